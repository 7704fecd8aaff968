"""The text index and the vector index: immutable segment files and in-memory tails, searched by compiled kernels.

Everything here is disposable: it is rebuilt from the records. Which files belong to a store, and when they are
written, merged and dropped, is decided in `loom.storage`.
"""

__all__: list[str] = []
