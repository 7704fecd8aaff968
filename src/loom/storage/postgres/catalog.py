"""The PostgreSQL tables, as a list of numbered upgrades, and the formats of programs that may use them.

The tables have the columns of the SQLite ones (`loom.storage.sqlite.schema`). The table `heads` has a row for each
namespace, with its counter and its clock; this row is also its write lock. A sequence number is
`namespace << 40 | counter`, so it is unique in the database and contains its namespace.

Each upgrade runs in one transaction with its version. It states the oldest program that may still read the tables and
the oldest that may write them, so that hosts with two versions can use one database.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

from loom.errors import UnsupportedStore

__all__ = ["FORMAT", "Formats", "check_formats", "read_formats", "upgrade"]

_UPGRADES = (
    """
    CREATE TABLE store (
        one smallint PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, created_at bigint NOT NULL,
        format int NOT NULL, min_reader int NOT NULL, min_writer int NOT NULL
    );
    CREATE TABLE namespaces (
        number bigint GENERATED ALWAYS AS IDENTITY (MAXVALUE 8388607) PRIMARY KEY, name TEXT NOT NULL UNIQUE
    );
    -- The lock, the counter and the clock of a namespace. Its row changes with every write: pages are left free.
    CREATE TABLE heads (
        namespace bigint PRIMARY KEY, seq bigint NOT NULL, committed_at bigint NOT NULL
    ) WITH (fillfactor = 20);
    CREATE TABLE settings (
        namespace bigint NOT NULL, node TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (namespace, node, key)
    );

    -- A record that was forgotten stays as an empty row of version 0, in no index of words, until VACUUM.
    CREATE TABLE records (
        seq bigint NOT NULL,
        namespace bigint NOT NULL,
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
    );
    CREATE INDEX records_by_number ON records (seq);
    CREATE INDEX records_by_id ON records (id_hash) WHERE id_hash IS NOT NULL;
    CREATE INDEX records_by_session ON records (session_hash, seq) WHERE session_hash IS NOT NULL;
    CREATE INDEX records_by_node ON records (namespace, node, seq) WHERE tier = 'l1';
    CREATE INDEX records_by_block ON records (block) WHERE block IS NOT NULL;

    CREATE TABLE supersessions (
        record bigint PRIMARY KEY, seq bigint NOT NULL, by bigint NOT NULL, at bigint NOT NULL,
        committed_at bigint NOT NULL, namespace bigint NOT NULL GENERATED ALWAYS AS (record >> 40) STORED
    );
    CREATE INDEX supersessions_by_seq ON supersessions (seq);
    CREATE INDEX supersessions_by_successor ON supersessions (by);
    CREATE TABLE moves (
        record bigint NOT NULL, seq bigint NOT NULL,
        namespace bigint NOT NULL, node TEXT NOT NULL, tier TEXT NOT NULL,
        entered boolean NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (record, seq)
    );
    CREATE INDEX moves_by_seq ON moves (namespace, seq);
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
    CREATE TABLE edges (
        source bigint NOT NULL, derived bigint NOT NULL,
        namespace bigint NOT NULL GENERATED ALWAYS AS (source >> 40) STORED,
        PRIMARY KEY (source, derived)
    );
    CREATE INDEX edges_by_derived ON edges (derived);
    CREATE TABLE awaited (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, namespace bigint NOT NULL, id_hash bigint,
        id TEXT NOT NULL, derived bigint NOT NULL
    );
    CREATE INDEX awaited_by_id ON awaited (id_hash) WHERE id_hash IS NOT NULL;
    CREATE INDEX awaited_by_derived ON awaited (derived) WHERE id_hash IS NOT NULL;
    CREATE TABLE pins (record bigint PRIMARY KEY, namespace bigint NOT NULL, seq bigint NOT NULL);
    CREATE INDEX pins_by_seq ON pins (namespace, seq);
    CREATE TABLE accesses (
        namespace bigint NOT NULL, record bigint NOT NULL, node TEXT NOT NULL,
        count bigint NOT NULL, last_at bigint NOT NULL, previous_at bigint,
        PRIMARY KEY (namespace, record, node)
    ) WITH (fillfactor = 80);
    CREATE TABLE forgotten (
        seq bigint NOT NULL, namespace bigint NOT NULL, record bigint NOT NULL, PRIMARY KEY (namespace, seq)
    );
    CREATE TABLE derivations (record bigint PRIMARY KEY, namespace bigint NOT NULL, replaces boolean NOT NULL);
    CREATE INDEX derivations_by_namespace ON derivations (namespace, record);

    CREATE TABLE entries (
        seq bigint NOT NULL, namespace bigint NOT NULL,
        scope TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, version bigint NOT NULL,
        deleted boolean NOT NULL, created_by TEXT NOT NULL, updated_by TEXT NOT NULL,
        created_at bigint NOT NULL, updated_at bigint NOT NULL, metadata TEXT, content TEXT,
        checksum bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (namespace, seq)
    );
    CREATE UNIQUE INDEX entries_by_key ON entries (namespace, scope, owner, key, version);

    CREATE TABLE blobs (
        seq bigint NOT NULL, namespace bigint NOT NULL, key TEXT, checksum bigint NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (namespace, seq)
    );
    CREATE UNIQUE INDEX blobs_by_key ON blobs (namespace, key) WHERE key IS NOT NULL;

    CREATE TABLE spaces (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL, dimensions int NOT NULL,
        UNIQUE (name, dimensions)
    );
    CREATE TABLE vectors (
        seq bigint NOT NULL, namespace bigint NOT NULL, space bigint NOT NULL, record bigint, data bytea NOT NULL,
        PRIMARY KEY (namespace, seq)
    );
    CREATE INDEX vectors_by_record ON vectors (record) WHERE record IS NOT NULL;

    -- The projections: which segment files stand for the records up to the watermark, and the bytes of these files.
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
    CREATE TABLE segment_chunks (
        namespace bigint NOT NULL, file TEXT NOT NULL, part int NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (namespace, file, part)
    );
    ALTER TABLE segment_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

    CREATE TABLE jobs (
        namespace bigint NOT NULL, kind TEXT NOT NULL, record bigint NOT NULL, seq bigint NOT NULL,
        data TEXT, attempts int NOT NULL DEFAULT 0, error TEXT,
        PRIMARY KEY (namespace, kind, record, seq)
    );
    CREATE TABLE leases (
        name TEXT PRIMARY KEY, owner TEXT NOT NULL, number bigint NOT NULL, expires_at bigint NOT NULL
    ) WITH (fillfactor = 20);
    CREATE TABLE blocks (
        number bigint PRIMARY KEY, namespace bigint NOT NULL, dictionary bigint NOT NULL,
        records bigint NOT NULL, raw_bytes bigint NOT NULL, checksum bigint NOT NULL, data bytea NOT NULL
    );
    CREATE INDEX blocks_by_namespace ON blocks (namespace);
    """,
)

# For each upgrade, the oldest formats whose programs may read and write the tables after it.
_STILL_READ = (1,)
_STILL_WRITE = (1,)

FORMAT = len(_UPGRADES)
"""The format that this program writes."""


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
    """Refuse tables of a newer program that this one cannot use."""
    needed = formats.min_reader if read_only else formats.min_writer
    if needed > FORMAT:
        use = "read" if read_only else "write"
        raise UnsupportedStore(
            f"{place} has format {formats.format}, which programs of format {needed} or later can {use}; this one "
            f"knows {FORMAT}. Upgrade: pip install --upgrade loomkeep"
        )


def upgrade(connection: psycopg.Connection[Any], schema: str, store_id: str, now: int) -> None:
    """Run the missing upgrades inside the caller's transaction. Only one program at a time does so."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"loom {schema}"])
    connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    found = read_formats(connection, schema)
    done = 0 if found is None else found.format
    if done >= FORMAT:
        return
    # Unqualified names in a script belong to the schema. The end of the transaction resets the path.
    connection.execute("SELECT set_config('search_path', %s, true)", [f'"{schema}", pg_catalog'])
    for script in _UPGRADES[done:]:
        connection.execute(script.replace(" TEXT", ' text COLLATE "C"').encode())
    formats = (FORMAT, _STILL_READ[FORMAT - 1], _STILL_WRITE[FORMAT - 1])
    if found is None:
        connection.execute("INSERT INTO store VALUES (1, %s, %s, %s, %s, %s)", [store_id, now, *formats])
    else:
        connection.execute("UPDATE store SET format = %s, min_reader = %s, min_writer = %s", formats)
