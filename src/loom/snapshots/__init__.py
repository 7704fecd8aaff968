"""Snapshots: writing a memory to one `.hctx` file, and restoring a memory from such files.

`format` frames bytes, `sections` describes their content, `taking` writes, `staging` reads and checks, and `merging`
adds a snapshot to an existing namespace. All of them read and add rows through the storage contract, so a snapshot of
one backend can be restored into any other. Backups of the whole database file belong to `loom.storage`.
"""

__all__: list[str] = []
