"""The upgrade from format 4 to 5: wider hashes, checksums without sequence number and commit time, edges and pins by
sequence number.

Each old checksum is verified before the row gets a new one; a row that does not match keeps a checksum that fails.
Records and entries are copied into new tables in the order of their numbers and the old tables are dropped, because
rows that grow where they stand leave copies of their words between pages (see `schema`). The file needs room for both
until its free pages are used again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from loom.errors import InvalidInput
from loom.steps import step
from loom.storage.sqlite.archive import CONTENT, DATA
from loom.storage.sqlite.identity import (
    DAMAGED,
    entry_guard,
    entry_guard_4,
    guard,
    guard_4,
    id_hash,
)

__all__ = ["upgrade"]

_TABLES = (
    """
    CREATE TABLE records_5 (
        seq INTEGER PRIMARY KEY,
        namespace INTEGER NOT NULL,
        id_hash INTEGER,
        session_hash INTEGER,
        id TEXT NOT NULL,
        version INTEGER NOT NULL,
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
        importance REAL NOT NULL,
        tokens INTEGER NOT NULL,
        counter TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        committed_at INTEGER NOT NULL,
        metadata TEXT,
        data TEXT,
        content TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        window_tokens INTEGER,
        block INTEGER,
        archived_bytes INTEGER
    )
    """,
    """
    CREATE TABLE entries_5 (
        seq INTEGER PRIMARY KEY,
        namespace INTEGER NOT NULL,
        scope TEXT NOT NULL,
        owner TEXT NOT NULL,
        key TEXT NOT NULL,
        version INTEGER NOT NULL,
        deleted INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        updated_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        metadata TEXT,
        content TEXT,
        checksum INTEGER NOT NULL DEFAULT 0
    )
    """,
    # Both ends are the numbers of first versions.
    """
    CREATE TABLE edges_5 (
        source INTEGER NOT NULL, derived INTEGER NOT NULL, PRIMARY KEY (source, derived)
    ) WITHOUT ROWID
    """,
    "CREATE TABLE pins_5 (record INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, seq INTEGER NOT NULL)",
    # A source that a record names and that is not stored yet. Emptied where it stands, as records are.
    """
    CREATE TABLE awaited (
        number INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, id_hash INTEGER, id TEXT NOT NULL,
        derived INTEGER NOT NULL
    )
    """,
    "CREATE INDEX awaited_by_id ON awaited (id_hash) WHERE id_hash IS NOT NULL",
    "CREATE INDEX awaited_by_derived ON awaited (derived) WHERE id_hash IS NOT NULL",
)

# A source that was never stored is only known by a hash of the old kind, and is left out.
_REFERENCES = (
    "INSERT OR IGNORE INTO edges_5 SELECT s.seq, d.seq FROM edges e "
    "CROSS JOIN records d ON d.id_hash = e.derived AND d.version = 1 "
    "CROSS JOIN records s ON s.id_hash = e.source AND s.version = 1 AND +s.namespace = d.namespace",
    "INSERT OR IGNORE INTO pins_5 SELECT r.seq, p.namespace, p.seq FROM pins p "
    "CROSS JOIN records r ON r.id_hash = p.id_hash AND r.version = 1 AND +r.namespace = p.namespace",
)

_RECORD = (
    "r.seq, r.namespace, {id}, {session}, r.id, r.version, r.tier, r.kind, r.node, r.session, r.role, r.name, "
    "r.trust, r.subject, r.flow, r.layer, r.importance, r.tokens, r.counter, r.created_at, r.committed_at, "
    "r.metadata, {data}, {content}, {checksum}, r.window_tokens, r.block, r.archived_bytes"
)
_READ_RECORDS = _RECORD.format(
    id="r.id_hash", session="r.session_hash", data=DATA, content=CONTENT, checksum="r.checksum"
)
_COPY_RECORDS = _RECORD.format(
    id="fresh(r.seq, 0)", session="fresh(r.seq, 1)", data="r.data", content="r.content", checksum="fresh(r.seq, 2)"
)
_ENTRY = (
    "r.seq, r.namespace, r.scope, r.owner, r.key, r.version, r.deleted, r.created_by, r.updated_by, r.created_at, "
    "r.updated_at, r.metadata, r.content, {checksum}"
)

_CHANGE_PLACES = tuple(
    statement
    for table in ("records", "entries", "edges", "pins")
    for statement in (f"DROP TABLE {table}", f"ALTER TABLE {table}_5 RENAME TO {table}")
)
_INDEXES = (
    "CREATE INDEX records_by_id ON records (id_hash)",
    "CREATE INDEX records_by_session ON records (session_hash) WHERE session_hash IS NOT NULL",
    "CREATE INDEX records_by_number ON records (namespace, seq, created_at)",
    "CREATE INDEX records_by_node ON records (namespace, node, seq) WHERE tier = 'l1'",
    "CREATE INDEX records_by_block ON records (block) WHERE block IS NOT NULL",
    "CREATE UNIQUE INDEX entries_by_key ON entries (namespace, scope, owner, key, version)",
    "CREATE INDEX edges_by_derived ON edges (derived)",
)

_ROWS_AT_ONCE = 500


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring a database of format 4 to format 5, inside the caller's transaction."""
    for statement in (*_TABLES, *_REFERENCES):
        connection.execute(statement)
    factory = connection.text_factory
    connection.text_factory = _as_stored
    try:
        _copy(connection, "records", _READ_RECORDS, _COPY_RECORDS, _fresh_record)
        read, copied = _ENTRY.format(checksum="r.checksum"), _ENTRY.format(checksum="fresh(r.seq, 0)")
        _copy(connection, "entries", read, copied, _fresh_entry)
    finally:
        connection.text_factory = factory
    for statement in (*_CHANGE_PLACES, *_INDEXES):
        connection.execute(statement)


@step("upgrade.copy")
def _copy(
    connection: sqlite3.Connection,
    table: str,
    read: str,
    copied: str,
    freshen: Callable[[tuple[Any, ...]], tuple[int | None, ...]],
) -> None:
    """Copy a table, with some values made again. SQLite copies the others, so that damaged ones stay as they are."""
    if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is None:
        return  # a new database, perhaps without the SQL functions that read the archive
    fresh: dict[int, tuple[int | None, ...]] = {}
    connection.create_function("fresh", 2, lambda seq, place: fresh[seq][place])
    last = -(1 << 62)
    while rows := connection.execute(
        f"SELECT {read} FROM {table} r WHERE r.seq > ? ORDER BY r.seq LIMIT ?", (last, _ROWS_AT_ONCE)
    ).fetchall():
        fresh = {row[0]: freshen(row) for row in rows}
        connection.execute(
            f"INSERT INTO {table}_5 SELECT {copied} FROM {table} r WHERE r.seq > ? AND r.seq <= ? ORDER BY r.seq",
            (last, rows[-1][0]),
        )
        last = rows[-1][0]


def _fresh_record(row: tuple[Any, ...]) -> tuple[int | None, ...]:
    """The hashes and the checksum of a row of `records`."""
    seq, namespace, _, _, id, version = row[:6]
    if version == 0:
        return None, None, 0
    own, session = _hash(namespace, id), _hash(namespace, row[9])
    try:
        sound = guard_4(row[:24]) == row[24]
    except UnicodeEncodeError:  # bytes that are not text
        sound = False
    return own, session, guard((seq, namespace, own, session, *row[4:24])) if sound else DAMAGED


def _hash(namespace: int, name: Any) -> int | None:
    try:
        return id_hash(namespace, name) if isinstance(name, str) else None
    except InvalidInput:  # bytes that are not text
        return None


def _fresh_entry(row: tuple[Any, ...]) -> tuple[int | None, ...]:
    """The checksum of a row of `entries`."""
    values = (*row[2:6], *row[7:13])
    if row[6] and row[12] is None:
        return (row[13],)
    try:
        sound = entry_guard_4(values) == row[13]
    except UnicodeEncodeError:
        sound = False
    return (entry_guard(values) if sound else DAMAGED,)


def _as_stored(text: bytes) -> str:
    return text.decode(errors="surrogateescape")
