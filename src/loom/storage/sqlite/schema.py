"""The SQLite schema, as a list of numbered upgrades: scripts, or functions if rows must be read.

Upgrade n brings a store from version n-1 to n. All missing upgrades run in one transaction, so a kill in the middle
leaves the old version intact. A released upgrade is never edited.

Times are microseconds since 1970 in UTC. `seq` is always a sequence number.

Content can be forgotten without a trace because the rows that hold it (records, vectors, entries, blobs) are only
appended, and emptied in place. SQLite overwrites the space that a row frees. But a DELETE, or an INSERT in the
middle, makes SQLite move rows between pages, which leaves copies in the gaps of a page. So such rows are deleted only
before a VACUUM, and the indexes over them hold hashes and numbers, never words.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from loom.errors import InvalidInput, UnsupportedStore
from loom.steps import step
from loom.storage.blocks import DamagedBlock, compress, shipped
from loom.storage.identity import DAMAGED, entry_guard, entry_guard_4, guard, guard_4, id_hash
from loom.storage.sqlite.archive import CONTENT, DATA, SHIPPED, Reader
from loom.storage.sqlite.rows import text_read_with

__all__ = ["APPLICATION_ID", "UPGRADES", "check_known", "current_version", "upgrade"]

APPLICATION_ID = 0x4C4F4F4D  # "LOOM" in the file's header

Upgrade = str | Callable[[sqlite3.Connection], None]

UPGRADES: list[Upgrade] = [
    """
    -- The one row: who this store is, and the last number given out other than to a record.
    CREATE TABLE store (
        one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, created_at INTEGER NOT NULL,
        seq INTEGER NOT NULL, committed_at INTEGER NOT NULL
    );
    CREATE TABLE namespaces (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE settings (
        namespace INTEGER NOT NULL, node TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (namespace, node, key)
    ) WITHOUT ROWID;

    -- A record that was forgotten stays as an empty row of version 0, in no index, until VACUUM.
    CREATE TABLE records (
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
        checksum INTEGER NOT NULL
    );
    CREATE INDEX records_by_id ON records (id_hash);
    CREATE INDEX records_by_session ON records (session_hash) WHERE session_hash IS NOT NULL;
    CREATE INDEX records_by_number ON records (namespace, seq, created_at);

    -- A newer version took this one's place. `at` is when that became valid, `committed_at` when known.
    CREATE TABLE supersessions (
        record INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        by INTEGER NOT NULL,
        at INTEGER NOT NULL,
        committed_at INTEGER NOT NULL
    );
    CREATE INDEX supersessions_by_seq ON supersessions (seq);

    -- Every move between tiers after the first, which is in the record itself.
    CREATE TABLE moves (
        record INTEGER NOT NULL, seq INTEGER NOT NULL,
        namespace INTEGER NOT NULL, node TEXT NOT NULL, tier TEXT NOT NULL,
        entered INTEGER NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (record, seq)
    ) WITHOUT ROWID;
    CREATE INDEX moves_by_seq ON moves (seq);

    -- Both ends are hashes of ids.
    CREATE TABLE edges (
        source INTEGER NOT NULL, derived INTEGER NOT NULL, PRIMARY KEY (source, derived)
    ) WITHOUT ROWID;
    CREATE INDEX edges_by_derived ON edges (derived);
    CREATE TABLE pins (id_hash INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, seq INTEGER NOT NULL);
    CREATE TABLE accesses (
        namespace INTEGER NOT NULL, record INTEGER NOT NULL, node TEXT NOT NULL,
        count INTEGER NOT NULL, last_at INTEGER NOT NULL, previous_at INTEGER,
        PRIMARY KEY (namespace, record, node)
    ) WITHOUT ROWID;
    -- Numbers of records that are gone for good: what other processes must drop from their memory.
    CREATE TABLE forgotten (seq INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, record INTEGER NOT NULL);

    CREATE TABLE entries (
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
    );
    CREATE UNIQUE INDEX entries_by_key ON entries (namespace, scope, owner, key, version);

    CREATE TABLE blobs (
        seq INTEGER PRIMARY KEY,
        namespace INTEGER NOT NULL,
        key TEXT,
        checksum INTEGER NOT NULL,
        data BLOB NOT NULL
    );
    CREATE UNIQUE INDEX blobs_by_key ON blobs (namespace, key) WHERE key IS NOT NULL;

    CREATE TABLE spaces (number INTEGER PRIMARY KEY, name TEXT NOT NULL, dimensions INTEGER NOT NULL,
        UNIQUE (name, dimensions));
    CREATE TABLE vectors (
        seq INTEGER PRIMARY KEY,
        namespace INTEGER NOT NULL,
        space INTEGER NOT NULL,
        record INTEGER,
        data BLOB NOT NULL
    );
    CREATE INDEX vectors_by_record ON vectors (record) WHERE record IS NOT NULL;
    CREATE INDEX vectors_by_number ON vectors (namespace, space, seq) WHERE record IS NOT NULL;

    -- The projections: which immutable segment files stand for the records up to the watermark.
    CREATE TABLE projections (
        namespace INTEGER NOT NULL, kind TEXT NOT NULL,
        generation INTEGER NOT NULL, basis TEXT NOT NULL, watermark INTEGER NOT NULL,
        PRIMARY KEY (namespace, kind)
    ) WITHOUT ROWID;
    CREATE TABLE segments (
        namespace INTEGER NOT NULL, kind TEXT NOT NULL, file TEXT NOT NULL,
        first INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL,
        PRIMARY KEY (namespace, kind, file)
    ) WITHOUT ROWID;

    -- One tree, not three: every embedded record passes through here once.
    CREATE TABLE jobs (
        namespace INTEGER NOT NULL, kind TEXT NOT NULL, record INTEGER NOT NULL, seq INTEGER NOT NULL,
        data TEXT,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT,
        PRIMARY KEY (namespace, kind, record, seq)
    ) WITHOUT ROWID;
    CREATE TABLE leases (
        name TEXT PRIMARY KEY, owner TEXT NOT NULL, number INTEGER NOT NULL, expires_at INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    -- L1 is a window over the log: the newest records of a node that fit its budget. `window_tokens` is the size of
    -- what stands there for a record that is too large. `since` is where the window begins at the earliest.
    ALTER TABLE records ADD COLUMN window_tokens INTEGER;
    CREATE INDEX records_by_node ON records (namespace, node, seq) WHERE tier = 'l1';
    -- Who is in the other tiers now; how they came there is in `moves`.
    CREATE TABLE residents (
        namespace INTEGER NOT NULL, node TEXT NOT NULL, tier TEXT NOT NULL, record INTEGER NOT NULL,
        tokens INTEGER NOT NULL, importance REAL NOT NULL, entered INTEGER NOT NULL, written_at INTEGER NOT NULL,
        PRIMARY KEY (namespace, node, tier, record)
    ) WITHOUT ROWID;
    CREATE TABLE tiers (
        namespace INTEGER NOT NULL, node TEXT NOT NULL, tier TEXT NOT NULL,
        items INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0,
        hits INTEGER NOT NULL DEFAULT 0, misses INTEGER NOT NULL DEFAULT 0, since INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (namespace, node, tier)
    ) WITHOUT ROWID;
    INSERT INTO residents
        SELECT r.namespace, m.node, m.tier, r.seq, r.tokens, r.importance, m.seq, r.committed_at
        FROM (SELECT record, node, tier, entered, max(seq) AS seq FROM moves WHERE tier != 'l1'
              GROUP BY record, node, tier) m
        JOIN records r ON r.seq = m.record AND r.version > 0 WHERE m.entered;
    INSERT INTO tiers (namespace, node, tier, items, tokens)
        SELECT namespace, node, tier, count(*), sum(tokens) FROM residents GROUP BY namespace, node, tier;
    DELETE FROM moves WHERE tier = 'l1';
    """,
    """
    -- The words and data of older records, many together and compressed. A record whose words are in a block names it
    -- and holds none itself. A block or dictionary that was replaced stays as an empty row until VACUUM.
    CREATE TABLE dictionaries (
        number INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, trained_on INTEGER NOT NULL,
        checksum INTEGER NOT NULL, support BLOB NOT NULL, phrases BLOB NOT NULL
    );
    CREATE TABLE blocks (
        number INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, dictionary INTEGER NOT NULL,
        records INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, checksum INTEGER NOT NULL, data BLOB NOT NULL
    );
    ALTER TABLE records ADD COLUMN block INTEGER;
    ALTER TABLE records ADD COLUMN archived_bytes INTEGER;
    CREATE INDEX records_by_block ON records (block) WHERE block IS NOT NULL;

    -- Records that were drawn from others, which `edges` names. `replaces`: it stands in a tier for all of them.
    CREATE TABLE derivations (record INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, replaces INTEGER NOT NULL);
    -- A record can take the place of another one under another id, and lose it again.
    CREATE INDEX supersessions_by_successor ON supersessions (by);
    """,
    """
    -- From here on `tokens` may be negative: not counted yet, and at most `~tokens`. The checksum of such a row has
    -- the bit above its 32 set, so that the row does not grow when the count comes in. What is there is counted.
    INSERT INTO projections (namespace, kind, generation, basis, watermark)
        SELECT n.number, 'tokens', 0, '', ifnull((SELECT max(r.seq) FROM records r WHERE r.namespace = n.number), 0)
        FROM namespaces n;
    """,
    lambda connection: _upgrade_to_5(connection),
    lambda connection: _upgrade_to_6(connection),
]


def current_version() -> int:
    return len(UPGRADES)


def check_known(version: int) -> None:
    """Raise `UnsupportedStore` for a store of a newer program, before any change."""
    if version > current_version():
        raise UnsupportedStore(
            f"this store has format {version}; this version of loom reads formats up to {current_version()}. "
            "Open it with a newer version: pip install --upgrade loomkeep"
        )


def upgrade(connection: sqlite3.Connection) -> int:
    """Run the missing upgrades inside the caller's transaction. Returns the number of upgrades that ran."""
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    wanted = current_version()
    check_known(found)
    for script in UPGRADES[found:]:
        if callable(script):
            script(connection)
        else:
            for statement in _statements(script):
                connection.execute(statement)
    if found < wanted:
        connection.execute(f"PRAGMA user_version = {wanted}")
    return wanted - found


def _statements(script: str) -> list[str]:
    """The single statements of a script: executescript() would commit the surrounding transaction."""
    statements: list[str] = []
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements


# -- the upgrade to format 5 -------------------------------------------------------------------------
# Hashes become wider, checksums no longer cover sequence number and commit time, and edges and pins refer to records
# by sequence number. Each old checksum is verified before the row gets a new one; a damaged row gets a checksum that
# fails. Records and entries are copied into new tables in log order and the old tables are dropped, because rows that
# grow in place leave copies of their words between pages. The file needs space for both tables until it reuses its
# free pages.

_NEW_TABLES = (
    "CREATE TABLE pins_5 (record INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, seq INTEGER NOT NULL)",
    # Sources that records name and that are not stored yet. Emptied in place, as records are.
    """
    CREATE TABLE awaited (
        number INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, id_hash INTEGER, id TEXT NOT NULL,
        derived INTEGER NOT NULL
    )
    """,
    "CREATE INDEX awaited_by_id ON awaited (id_hash) WHERE id_hash IS NOT NULL",
    "CREATE INDEX awaited_by_derived ON awaited (derived) WHERE id_hash IS NOT NULL",
)

# A source that was never stored has only a hash of format 4, and is dropped.
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

_ROWS_AT_ONCE = 500


def _upgrade_to_5(connection: sqlite3.Connection) -> None:
    """Bring a database of format 4 to format 5, inside the caller's transaction."""
    with _replaced(connection, "records", "entries", "edges"):  # edges hold numbers of first versions
        for statement in (*_NEW_TABLES, *_REFERENCES):
            connection.execute(statement)
        with text_read_with(connection, lambda text: text.decode(errors="surrogateescape")):
            _copy(connection, "records", _READ_RECORDS, _COPY_RECORDS, _fresh_record)
            read, copied = _ENTRY.format(checksum="r.checksum"), _ENTRY.format(checksum="fresh(r.seq, 0)")
            # Layouts of prompts had keys without salt. The next prompt writes a new layout.
            _copy(connection, "entries", read, copied, _fresh_entry, "AND r.scope != 'context'")
    connection.execute("DROP TABLE pins")
    connection.execute("ALTER TABLE pins_5 RENAME TO pins")


@contextmanager
def _replaced(connection: sqlite3.Connection, *tables: str) -> Iterator[None]:
    """Create an empty copy of each table, named with `_5`. At the end of the block it replaces the old table."""
    indexes: list[str] = []
    for table in tables:
        rows = connection.execute("SELECT type, sql FROM sqlite_schema WHERE tbl_name = ? AND sql NOT NULL", (table,))
        for kind, sql in rows.fetchall():
            if kind == "index":
                indexes.append(sql)
            else:
                connection.execute(f"CREATE TABLE {table}_5 {sql[sql.index('(') :]}")
    yield
    for table in tables:
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE {table}_5 RENAME TO {table}")
    for sql in indexes:
        connection.execute(sql)


@step("upgrade.copy")
def _copy(
    connection: sqlite3.Connection,
    table: str,
    read: str,
    copied: str,
    freshen: Callable[[tuple[Any, ...]], tuple[int | None, ...]],
    kept: str = "",
) -> None:
    """Copy a table and compute some values again. SQLite copies the others, so that damaged ones stay unchanged."""
    if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is None:
        return  # a new database, perhaps without the SQL functions that read the archive
    fresh: dict[int, tuple[int | None, ...]] = {}
    connection.create_function("fresh", 2, lambda seq, place: fresh[seq][place])
    last = -(1 << 62)
    while rows := connection.execute(
        f"SELECT {read} FROM {table} r WHERE r.seq > ? ORDER BY r.seq LIMIT ?", (last, _ROWS_AT_ONCE)
    ).fetchall():
        fresh = {seq: freshen((seq, *rest)) for seq, *rest in rows}
        reached = max(fresh)
        connection.execute(
            f"INSERT INTO {table}_5 SELECT {copied} FROM {table} r WHERE r.seq > ? AND r.seq <= ? {kept} "
            "ORDER BY r.seq",
            (last, reached),
        )
        last = reached


def _fresh_record(row: tuple[Any, ...]) -> tuple[int | None, ...]:
    """The hashes and the checksum of a row of `records`."""
    seq, namespace, old, old_session, *values, checksum, _, _, _ = row
    id, version, _, _, _, session, *_ = values
    if version == 0:
        return None, None, 0
    hashes = _hash(namespace, id), _hash(namespace, session)
    try:
        sound = guard_4((seq, namespace, old, old_session, *values)) == checksum
    except UnicodeEncodeError:  # a damaged value: not valid text
        sound = False
    return *hashes, guard((seq, namespace, *hashes, *values)) if sound else DAMAGED


def _hash(namespace: int, name: Any) -> int | None:
    try:
        return id_hash(namespace, name) if isinstance(name, str) else None
    except InvalidInput:  # a damaged value: not valid text
        return None


def _fresh_entry(row: tuple[Any, ...]) -> tuple[int | None, ...]:
    _, _, scope, owner, key, version, deleted, *rest, checksum = row
    values = (scope, owner, key, version, *rest)
    if deleted and rest[-1] is None:
        return (checksum,)
    try:
        sound = entry_guard_4(values) == checksum
    except UnicodeEncodeError:
        sound = False
    return (entry_guard(values) if sound else DAMAGED,)


# -- the upgrade to format 6 -------------------------------------------------------------------------


def _upgrade_to_6(connection: sqlite3.Connection) -> None:
    """Drop the dictionaries that a store trained on its own texts, inside the caller's transaction."""
    if connection.execute("SELECT 1 FROM blocks WHERE dictionary != 0 LIMIT 1").fetchone():
        with _replaced(connection, "blocks"):
            for number, trained in connection.execute("SELECT number, dictionary FROM blocks ORDER BY 1").fetchall():
                _copy_block(connection, number, _compressed_again(connection, number) if trained else None)
    connection.execute("DROP TABLE dictionaries")


def _compressed_again(connection: sqlite3.Connection, number: int) -> tuple[Any, ...] | None:
    """The new values of a block, compressed with the dictionary of the package; None if the block is damaged."""
    try:
        data, raw_bytes = compress(list(Reader().block(connection, number).texts()), shipped())
    except DamagedBlock:
        return None  # the damaged block stays unchanged, and `check` names it
    return SHIPPED, raw_bytes, zlib.crc32(data), data


@step("upgrade.copy_block")
def _copy_block(connection: sqlite3.Connection, number: int, changed: tuple[Any, ...] | None) -> None:
    columns = "dictionary, records, raw_bytes, checksum, data" if changed is None else "?, records, ?, ?, ?"
    connection.execute(
        f"INSERT INTO blocks_5 SELECT number, namespace, {columns} FROM blocks WHERE number = ?",
        (*(changed or ()), number),
    )
