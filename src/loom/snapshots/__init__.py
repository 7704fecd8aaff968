"""Snapshots: a memory as one `.hctx` file, and a file as a memory again.

`format` frames bytes, `taking` writes, `staging` reads and checks, `merging` brings a snapshot into a namespace that
exists. Backups of the whole database file are the store's.
"""

__all__: list[str] = []
