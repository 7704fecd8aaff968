"""The SQLite backend: one file, many processes, one writer at a time.

`store` is the face. `engine` owns the connections, `transactions` writes, `reading`, `residency` and `candidates`
read, `maintenance` is the background work, and `administration` has the verbs of an operator. Nothing above
`loom.storage` writes SQL, `loom.snapshots` aside.
"""

__all__: list[str] = []
