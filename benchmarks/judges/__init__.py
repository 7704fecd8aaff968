"""Labelled cases for the two judges of `loom.fractal`, and the accuracy of the judges."""
