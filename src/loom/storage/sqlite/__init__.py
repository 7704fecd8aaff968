"""The SQLite backend: one file, many processes, one writer at a time.

`store` is the entry point. `engine` owns the connections, `transactions` writes, `records`, `residency` and `entries`
read, `maintenance` does the background work, and `administration` has the verbs of an operator. No module outside
`loom.storage` contains SQL, except those of `loom.snapshots`.
"""

__all__: list[str] = []
