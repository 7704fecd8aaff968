"""The PostgreSQL tables, their upgrades, and the formats that programs need in order to use them.

The tables have the columns of the SQLite ones (`loom.storage.sqlite.schema`). The table `heads` has a row for each
namespace, with its counter and its clock; this row is also its write lock. A sequence number is
`namespace << 40 | counter`, so it is unique in the database and contains its namespace.

Constraints check that a number which identifies a row alone contains the namespace of that row.

The tables that grow with the records are divided into partitions by the hash of the namespace. All data of a
namespace is in the partitions with one number, and statements name these directly: planning a statement on 64
partitions costs more than executing it.

An upgrade runs in one transaction with its version. It states the oldest program that may still read the tables and
the oldest that may write them, so that hosts with two versions can use one database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg

from loom.errors import UnsupportedStore

__all__ = [
    "FORMAT",
    "PARTITIONED",
    "PARTITIONS",
    "WRITERS_KEPT_S",
    "Formats",
    "check_formats",
    "partition_of",
    "read_formats",
    "upgrade",
]

_PLAIN = """
    CREATE TABLE store (
        one smallint PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, created_at bigint NOT NULL,
        format int NOT NULL, min_reader int NOT NULL, min_writer int NOT NULL
    );
    CREATE TABLE namespaces (
        number bigint GENERATED ALWAYS AS IDENTITY (MAXVALUE 8388607) PRIMARY KEY, name TEXT NOT NULL UNIQUE
    );
    -- The lock, the counter and the clock of a namespace. Its row changes with every write, so pages have free space.
    -- The revision grows with every change on which a write of one statement depends.
    CREATE TABLE heads (
        namespace bigint PRIMARY KEY, seq bigint NOT NULL CHECK (namespace = seq >> 40), committed_at bigint NOT NULL,
        revision bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 20);
    CREATE TABLE settings (
        namespace bigint NOT NULL, node TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (namespace, node, key)
    );
    CREATE TABLE residents (
        namespace bigint NOT NULL, node TEXT NOT NULL, tier TEXT NOT NULL, record bigint NOT NULL,
        tokens bigint NOT NULL, importance double precision NOT NULL, entered bigint NOT NULL,
        written_at bigint NOT NULL,
        PRIMARY KEY (namespace, node, tier, record)
    );
    CREATE TABLE tiers (
        namespace bigint NOT NULL, node TEXT NOT NULL, tier TEXT NOT NULL,
        items bigint NOT NULL DEFAULT 0, tokens bigint NOT NULL DEFAULT 0,
        hits bigint NOT NULL DEFAULT 0, misses bigint NOT NULL DEFAULT 0, since bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (namespace, node, tier)
    ) WITH (fillfactor = 50);
    CREATE TABLE awaited (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, namespace bigint NOT NULL, id_hash bigint,
        id TEXT NOT NULL, derived bigint NOT NULL
    );
    CREATE INDEX awaited_by_id ON awaited (id_hash) WHERE id_hash IS NOT NULL;
    CREATE INDEX awaited_by_derived ON awaited (derived) WHERE id_hash IS NOT NULL;
    CREATE TABLE pins (record bigint PRIMARY KEY, namespace bigint NOT NULL, seq bigint NOT NULL);
    CREATE INDEX pins_by_seq ON pins (namespace, seq);
    CREATE TABLE forgotten (
        seq bigint NOT NULL, namespace bigint NOT NULL, record bigint NOT NULL, PRIMARY KEY (namespace, seq)
    );
    CREATE TABLE spaces (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL, dimensions int NOT NULL,
        UNIQUE (name, dimensions)
    );
    -- The projections: the segment files that cover the records up to the watermark. segment_chunks has the bytes.
    CREATE TABLE projections (
        namespace bigint NOT NULL, kind TEXT NOT NULL,
        generation bigint NOT NULL, basis TEXT NOT NULL, watermark bigint NOT NULL,
        PRIMARY KEY (namespace, kind)
    );
    CREATE TABLE segments (
        namespace bigint NOT NULL, kind TEXT NOT NULL, file TEXT NOT NULL,
        first bigint NOT NULL, last bigint NOT NULL, count bigint NOT NULL,
        PRIMARY KEY (namespace, kind, file)
    );
    CREATE TABLE leases (
        name TEXT PRIMARY KEY, owner TEXT NOT NULL, number bigint NOT NULL, expires_at bigint NOT NULL
    ) WITH (fillfactor = 20);
"""

# Format 2 adds the roles that may use only some namespaces (`tenants`), and the namespaces that wait for VACUUM.
_ADDED = """
    CREATE TABLE tenants (role name, namespace bigint, PRIMARY KEY (role, namespace));
    CREATE TABLE vacuums (namespace bigint PRIMARY KEY, xid xid8 NOT NULL, forgets bigint NOT NULL);
"""

# Format 3 adds the last write of each writer, which a process reads if its connection was lost during a commit.
_WRITERS = """
    CREATE TABLE writers (
        namespace bigint NOT NULL, writer bigint NOT NULL, last bigint NOT NULL, at timestamptz NOT NULL,
        PRIMARY KEY (namespace, writer)
    ) WITH (fillfactor = 20);
"""

WRITERS_KEPT_S = 86_400
"""A row of `writers` that was not written for this long belongs to a process that has ended."""


class _Big(NamedTuple):
    """A table that is divided by the hash of its namespace, which is part of its key."""

    columns: str
    indexes: Mapping[str, str] = {}
    unique: str = ""
    """The index that is unique."""
    fillfactor: int = 100


_BIG: Mapping[str, _Big] = {
    # A forgotten record stays as an empty row of version 0, in no partial index, until VACUUM.
    "records": _Big(
        """
        seq bigint NOT NULL,
        namespace bigint NOT NULL CHECK (namespace = seq >> 40),
        id_hash bigint,
        session_hash bigint,
        id TEXT NOT NULL,
        version int NOT NULL,
        tier TEXT,
        kind TEXT NOT NULL,
        node TEXT NOT NULL,
        session TEXT,
        role TEXT,
        name TEXT,
        trust TEXT NOT NULL,
        subject TEXT NOT NULL,
        flow TEXT NOT NULL,
        layer TEXT NOT NULL,
        importance double precision NOT NULL,
        tokens bigint NOT NULL,
        counter TEXT NOT NULL,
        created_at bigint NOT NULL,
        committed_at bigint NOT NULL,
        metadata TEXT,
        data TEXT,
        content TEXT NOT NULL,
        checksum bigint NOT NULL,
        window_tokens bigint,
        block bigint,
        archived_bytes bigint,
        PRIMARY KEY (namespace, seq)
        """,
        {
            "records_by_number": "(seq)",
            "records_by_id": "(id_hash) WHERE id_hash IS NOT NULL",
            "records_by_session": "(session_hash, seq) WHERE session_hash IS NOT NULL",
            "records_by_node": "(namespace, node, seq) WHERE tier = 'l1'",
            "records_by_block": "(block) WHERE block IS NOT NULL",
        },
    ),
    "supersessions": _Big(
        """
        record bigint NOT NULL, seq bigint NOT NULL, by bigint NOT NULL, at bigint NOT NULL,
        committed_at bigint NOT NULL, namespace bigint NOT NULL CHECK (namespace = record >> 40),
        PRIMARY KEY (record, namespace)
        """,
        {"supersessions_by_seq": "(seq)", "supersessions_by_successor": "(by)"},
    ),
    "moves": _Big(
        """
        record bigint NOT NULL, seq bigint NOT NULL, namespace bigint NOT NULL CHECK (namespace = record >> 40),
        node TEXT NOT NULL, tier TEXT NOT NULL, entered boolean NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (record, seq, namespace)
        """,
        {"moves_by_seq": "(namespace, seq)"},
    ),
    "edges": _Big(
        """
        source bigint NOT NULL, derived bigint NOT NULL, namespace bigint NOT NULL CHECK (namespace = source >> 40),
        PRIMARY KEY (source, derived, namespace)
        """,
        {"edges_by_derived": "(derived)"},
    ),
    "accesses": _Big(
        """
        namespace bigint NOT NULL, record bigint NOT NULL, node TEXT NOT NULL,
        count bigint NOT NULL, last_at bigint NOT NULL, previous_at bigint,
        PRIMARY KEY (namespace, record, node)
        """,
        fillfactor=80,
    ),
    "derivations": _Big(
        """
        record bigint NOT NULL, namespace bigint NOT NULL CHECK (namespace = record >> 40), replaces boolean NOT NULL,
        PRIMARY KEY (record, namespace)
        """,
        {"derivations_by_namespace": "(namespace, record)"},
    ),
    "entries": _Big(
        """
        seq bigint NOT NULL, namespace bigint NOT NULL,
        scope TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, version bigint NOT NULL,
        deleted boolean NOT NULL, created_by TEXT NOT NULL, updated_by TEXT NOT NULL,
        created_at bigint NOT NULL, updated_at bigint NOT NULL, metadata TEXT, content TEXT,
        checksum bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (namespace, seq)
        """,
        {"entries_by_key": "(namespace, scope, owner, key, version)"},
        unique="entries_by_key",
    ),
    "blobs": _Big(
        """
        seq bigint NOT NULL, namespace bigint NOT NULL, key TEXT, checksum bigint NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (namespace, seq)
        """,
        {"blobs_by_key": "(namespace, key) WHERE key IS NOT NULL"},
        unique="blobs_by_key",
    ),
    "vectors": _Big(
        """
        seq bigint NOT NULL, namespace bigint NOT NULL CHECK (namespace = record >> 40), space bigint NOT NULL,
        record bigint, data bytea NOT NULL,
        PRIMARY KEY (namespace, seq)
        """,
        {"vectors_by_record": "(record) WHERE record IS NOT NULL"},
    ),
    "segment_chunks": _Big(
        """
        namespace bigint NOT NULL, file TEXT NOT NULL, part int NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (namespace, file, part)
        """
    ),
    "jobs": _Big(
        """
        namespace bigint NOT NULL, kind TEXT NOT NULL, record bigint NOT NULL, seq bigint NOT NULL,
        data TEXT, attempts int NOT NULL DEFAULT 0, error TEXT, taken_by TEXT, taken_until bigint,
        PRIMARY KEY (namespace, kind, record, seq)
        """,
        fillfactor=70,
    ),
    "blocks": _Big(
        """
        number bigint NOT NULL, namespace bigint NOT NULL CHECK (namespace = number >> 40),
        dictionary bigint NOT NULL, records bigint NOT NULL, raw_bytes bigint NOT NULL,
        checksum bigint NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (number, namespace)
        """,
        {"blocks_by_namespace": "(namespace)"},
    ),
}

PARTITIONED = frozenset(_BIG)
"""The tables that are divided by the hash of the namespace."""

PARTITIONS = 64
"""The number of partitions of new tables, unless the address names another one. It never changes afterwards."""

# For each format, the oldest formats whose programs may read and write the tables. Format 2 has the partitions. A
# program of format 1 does not write the namespace into `edges` and `supersessions`. Programs of format 2 do not use
# `writers`.
_STILL_READ = (1, 1, 1)
_STILL_WRITE = (1, 2, 2)

FORMAT = len(_STILL_READ)
"""The format that this program writes."""

_DIVIDED = 2


class Formats(NamedTuple):
    """The format of the tables, and the oldest formats whose programs may read or write them."""

    format: int
    min_reader: int
    min_writer: int


def read_formats(connection: psycopg.Connection[Any], schema: str) -> Formats | None:
    """The formats of the tables in a schema; None without tables."""
    (found,) = connection.execute("SELECT to_regclass(%s)", [f'"{schema}".store']).fetchone() or (None,)
    if found is None:
        return None
    row = connection.execute(f'SELECT format, min_reader, min_writer FROM "{schema}".store').fetchone()
    return None if row is None else Formats(*row)


def check_formats(formats: Formats, place: str, read_only: bool) -> None:
    """Raise `UnsupportedStore` for tables of a newer program that this one cannot use."""
    needed = formats.min_reader if read_only else formats.min_writer
    if needed > FORMAT:
        use = "read" if read_only else "write"
        raise UnsupportedStore(
            f"{place} has format {formats.format}, which programs of format {needed} or later can {use}; this "
            f"program has format {FORMAT}. Upgrade: pip install --upgrade loomkeep"
        )


def upgrade(connection: psycopg.Connection[Any], schema: str, store_id: str, now: int, partitions: int) -> None:
    """Create or upgrade the tables inside the caller's transaction. Only one program at a time does so."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"loom {schema}"])
    found = read_formats(connection, schema)
    if found is not None and found.format >= FORMAT:
        return
    if found is None:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    # Unqualified names in a script belong to the schema. The end of the transaction resets the path.
    connection.execute("SELECT set_config('search_path', %s, true)", [f'"{schema}", pg_catalog'])
    formats = (FORMAT, _STILL_READ[-1], _STILL_WRITE[-1])
    if found is None:
        _run(connection, _PLAIN + _ADDED + _WRITERS)
        _run(connection, _divided(partitions))
        _run(connection, _indexes())
        connection.execute("INSERT INTO store VALUES (1, %s, %s, %s, %s, %s)", [store_id, now, *formats])
    else:
        if found.format < _DIVIDED:
            _divide(connection, partitions)
        _run(connection, _WRITERS)
        connection.execute("UPDATE store SET format = %s, min_reader = %s, min_writer = %s", formats)


def partition_of(connection: psycopg.Connection[Any], schema: str, namespace: int) -> int | None:
    """The number of the partitions with the data of a namespace; None in the tables of format 1, which have none."""
    row = connection.execute(
        "SELECT number FROM (SELECT CAST(p.oid AS regclass) AS parent, (SELECT CAST(count(*) AS int) FROM "
        "pg_catalog.pg_inherits i WHERE i.inhparent = p.oid) AS partitions FROM pg_catalog.pg_class p "
        "WHERE p.oid = to_regclass(%s) AND p.relkind = 'p') t CROSS JOIN generate_series(0, partitions - 1) number "
        "WHERE satisfies_hash_partition(parent, partitions, number, CAST(%s AS bigint))",
        [f'"{schema}".records', namespace],
    ).fetchone()
    (number,) = row or (None,)
    return number


def _run(connection: psycopg.Connection[Any], script: str) -> None:
    connection.execute(script.replace(" TEXT", ' text COLLATE "C"').encode())


def _divided(partitions: int) -> str:
    """SQL that creates the divided tables, with their primary keys but no other indexes."""
    script = []
    for name, table in _BIG.items():
        script.append(f"CREATE TABLE {name} ({table.columns}) PARTITION BY HASH (namespace);")
        if name == "segment_chunks":
            script.append(f"ALTER TABLE {name} ALTER COLUMN data SET STORAGE EXTERNAL;")
        script += [
            f"CREATE TABLE {name}_{number} PARTITION OF {name} FOR VALUES "
            f"WITH (MODULUS {partitions}, REMAINDER {number}) WITH (fillfactor = {table.fillfactor});"
            for number in range(partitions)
        ]
    return "\n".join(script)


def _indexes() -> str:
    """SQL that creates the other indexes of the divided tables, on every partition."""
    return "\n".join(
        f"CREATE {'UNIQUE ' if index == table.unique else ''}INDEX {index} ON {name} {columns};"
        for name, table in _BIG.items()
        for index, columns in table.indexes.items()
    )


def _divide(connection: psycopg.Connection[Any], partitions: int) -> None:
    """Upgrade format 1: copy the undivided tables into divided ones. No other program uses the tables meanwhile."""
    # Every writer locks a row of `heads` first, so writers wait here and not between two of the tables.
    connection.execute(f"LOCK TABLE heads, {', '.join(_BIG)} IN ACCESS EXCLUSIVE MODE".encode())
    _run(
        connection,
        "ALTER TABLE heads ADD COLUMN revision bigint NOT NULL DEFAULT 0, ADD CHECK (namespace = seq >> 40)",
    )
    for name, table in _BIG.items():
        _run(connection, "".join(f"DROP INDEX {index};" for index in table.indexes))
        _run(connection, f"ALTER TABLE {name} DROP CONSTRAINT {name}_pkey; ALTER TABLE {name} RENAME TO {name}_old")
    _run(connection, _ADDED + _divided(partitions))
    for name in _BIG:
        rows = connection.execute(
            "SELECT string_agg(quote_ident(attname), ', ') FROM pg_catalog.pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [f"{name}_old"],
        ).fetchone()
        (columns,) = rows or ("",)
        _run(connection, f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {name}_old; DROP TABLE {name}_old")
    _run(connection, _indexes())
