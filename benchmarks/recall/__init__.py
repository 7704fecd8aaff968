"""How much of the evidence for a question recall brings back, and within how many tokens."""
