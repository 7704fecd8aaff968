"""The share of the evidence for a question that recall returns, by the number of tokens."""
