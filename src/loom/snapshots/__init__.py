"""Snapshots: a memory as one `.hctx` file, and a file as a memory again.

`format` frames bytes, `tables` describes what is in them, `taking` writes, `staging` reads and checks, and `merging`
brings a snapshot into a namespace that exists. Backups of the whole database file are the store's.

A snapshot is rows of SQLite tables. Taking one needs of a store its `engine` (a connection that reads one state, the
clock, the path and the mode of new files), its `namespace`, `check_open`, `check_namespaces` and `flush_accesses`.
Merging needs `transaction`, `check_open`, `namespace`, `path` and `read_only`. Staging needs no store.
"""

__all__: list[str] = []
