"""Embedders, language models, and the HTTP endpoint that both can use.

None is required. Nothing here depends on a store; the packages above decide when a model is called.
"""

__all__: list[str] = []
