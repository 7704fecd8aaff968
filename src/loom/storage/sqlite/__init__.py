"""The SQLite backend: one file, many processes, one writer at a time.

`store` is the face; the engine owns connections and transactions, and the rest are its tables and its background
work. Nothing above `loom.storage` writes SQL, `loom.snapshots` aside.
"""

__all__: list[str] = []
