"""Labelled cases for the two judges of `loom.fractal`, and how often these are right."""
