"""The PostgreSQL backend: the contract on a server that many hosts share.

`dialect` spells the statements that backends share in PostgreSQL's SQL, and `spoken_connection` executes them.
`connections` keeps the connections of a process, `namespace_engine` has the transactions of a namespace, and
`postgres_store` is the `Store`. The tables are in `catalog`; `backup` copies them into a file.
"""

__all__: list[str] = []
