"""Standing instructions: a check set of turns in two languages, and the rates at which they are recognised and
applied."""
