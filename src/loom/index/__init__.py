"""The text index and the vector index: immutable segments and in-memory tails, searched by compiled kernels.

Everything here is disposable and can be rebuilt from the records. Which segments belong to a store, and when they are
written, merged and removed, is decided in `loom.storage`.
"""

__all__: list[str] = []
