"""Standing instructions: a check set of turns in two languages, and how well they are recognised and applied."""
