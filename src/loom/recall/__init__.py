"""Recall: from a question to the memories that answer it.

A question is read, candidates are nominated by the indexes of the store and scored signal by signal, and hits explain
why they were found. `loom.context` builds prompts from hits.
"""

__all__: list[str] = []
