"""Snapshots: a memory as one `.hctx` file, and a file as a memory again.

`format` frames bytes, `sections` describes their content, `taking` writes, `staging` reads and checks, and `merging`
brings a snapshot into a namespace that exists. All of them read and add rows through the storage contract, so a
snapshot of one backend is restored into any other. Backups of the whole database file are the store's.
"""

__all__: list[str] = []
