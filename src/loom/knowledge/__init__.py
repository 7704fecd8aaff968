"""Knowledge: facts, summaries and stand-ins made from what was said and done.

Functions from texts to texts, with a language model where there is one. Storing the results and undoing them is the
work of `loom.memory`.
"""

__all__: list[str] = []
