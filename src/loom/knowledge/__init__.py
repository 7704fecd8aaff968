"""Knowledge: facts, summaries and stand-ins, derived from messages and tasks.

Functions from texts to texts, with a language model if one is given. `loom.memory` stores the results and undoes
them.
"""

__all__: list[str] = []
