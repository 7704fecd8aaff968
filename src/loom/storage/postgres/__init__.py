"""The PostgreSQL backend: the contract on a server that many hosts share.

`dialect` translates the statements that backends share into PostgreSQL's SQL, and `spoken_connection` executes them.
`connections` pools the connections of a process, `namespace_engine` has the transactions of a namespace, and
`postgres_store` is the `Store`. `catalog` defines the tables, and `backup` copies them into a file.
"""

__all__: list[str] = []
