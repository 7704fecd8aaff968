"""Models from outside: embedders, language models, and the HTTP endpoint that both may speak to.

None is required. Nothing here knows a store; who calls a model, and when, is decided above.
"""

__all__: list[str] = []
