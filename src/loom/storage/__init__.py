"""Where memory is kept: the storage contract, its SQLite backend and the projections over it."""

__all__: list[str] = []
