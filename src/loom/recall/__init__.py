"""Recall: from a question to the memories that answer it.

A question is read, candidates are scored signal by signal, and hits say why they were found. The candidates come from
the store; what becomes of hits in a prompt is decided in `loom.context`.
"""

__all__: list[str] = []
