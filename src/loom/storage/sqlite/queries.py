"""Reading: the queries behind the store, as functions of a connection and the number of a namespace.

Each runs in the caller's transaction and sees one state of the database. Rows become the records of the contract in
`rows`, tiers are read in `residency`, and what a search reads is in `searcher`.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Sequence

from loom.errors import CorruptStore, InvalidInput
from loom.storage.contract import (
    FOCUS,
    HEARD,
    Access,
    Change,
    Entry,
    EntryChange,
    Filter,
    FlushReport,
    Job,
    Page,
    Record,
    Usage,
)
from loom.storage.identity import id_hash
from loom.storage.moments import from_micros
from loom.storage.sqlite.counting import TOKENS
from loom.storage.sqlite.filters import conditions
from loom.storage.sqlite.residency import WINDOW, places_of, totals, window
from loom.storage.sqlite.rows import (
    ENTRY_COLUMNS,
    FORGOTTEN_NAME,
    RECORD_COLUMNS,
    first_number,
    first_version,
    read_records,
    same_id,
    to_entry,
    to_job,
    to_record,
)

__all__ = [
    "absent",
    "accesses",
    "blob",
    "changes",
    "check_limit",
    "count",
    "entries",
    "entry",
    "entry_changes",
    "entry_history",
    "following",
    "has_jobs",
    "history",
    "is_pinned",
    "jobs",
    "last_entry_change",
    "namespace_number",
    "namespaces",
    "neighbours",
    "nodes",
    "original_tokens",
    "replaced",
    "scan",
    "statistics",
    "tiers",
    "unfinished",
    "usage",
    "uses",
]

_STATISTICS = {
    "records": "SELECT count(*) FROM records r WHERE namespace = :namespace AND version > 0 "
    "AND NOT EXISTS (SELECT 1 FROM derivations d WHERE d.record = r.seq)",
    "derived": "SELECT count(*) FROM derivations WHERE namespace = :namespace",
    "superseded": "SELECT count(*) FROM supersessions s JOIN records r ON r.seq = s.record "
    "WHERE r.namespace = :namespace",
    "tokens": f"SELECT sum({TOKENS}) FROM records r WHERE namespace = :namespace "
    "AND NOT EXISTS (SELECT 1 FROM derivations d WHERE d.record = r.seq)",
    "vectors": "SELECT count(*) FROM vectors WHERE namespace = :namespace AND record IS NOT NULL",
    "entries": "SELECT count(*) FROM entries e WHERE namespace = :namespace AND NOT deleted AND NOT EXISTS "
    "(SELECT 1 FROM entries n WHERE n.namespace = e.namespace AND n.scope = e.scope "
    "AND n.owner = e.owner AND n.key = e.key AND n.version > e.version)",
    "jobs": "SELECT count(*) FROM jobs WHERE namespace = :namespace",
    "indexed": "SELECT sum(count) FROM segments WHERE namespace = :namespace AND kind = 'text'",
    "segments": "SELECT count(*) FROM segments WHERE namespace = :namespace",
    "file_bytes": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
}

# The keys of one place that start with a prefix, each found from the one before through the index. A key that was
# written a million times costs as much as any other.
_KEYS = (
    "WITH RECURSIVE keys (name) AS (SELECT min(key) FROM entries WHERE namespace = :namespace AND scope = :scope "
    "AND owner = :owner AND key >= :prefix UNION ALL SELECT (SELECT min(key) FROM entries WHERE "
    "namespace = :namespace AND scope = :scope AND owner = :owner AND key > keys.name) FROM keys "
    "WHERE substr(keys.name, 1, :length) = :prefix), found (name) AS (SELECT name FROM keys "
    "WHERE substr(name, 1, :length) = :prefix)"
)

# The rows of `changes` by table: sequence number, kind, record, detail.
_CHANGES = (
    ("seq, 'record', seq, id", "(SELECT * FROM records WHERE version > 0)"),
    (
        "s.seq AS seq, 'supersede', s.record, ''",
        "(SELECT s.*, r.namespace FROM supersessions s JOIN records r ON r.seq = s.record) s",
    ),
    ("seq, CASE entered WHEN 1 THEN 'enter' ELSE 'leave' END, record, tier", "moves"),
    ("seq, 'entry', 0, key", "entries"),
    ("seq, 'vector', record, ''", "(SELECT * FROM vectors WHERE record IS NOT NULL)"),
    ("seq, 'forget', record, ''", "forgotten"),
    ("seq, 'pin', 0, ''", "pins"),
)


def check_limit(limit: int) -> None:
    """Raise `InvalidInput` unless a limit is a whole number of 1 or more."""
    if not isinstance(limit, int) or not 1 <= limit < 2**31:
        raise InvalidInput(f"limit is {limit!r}; it must be a whole number of 1 or more")


# -- the file ----------------------------------------------------------------------------------------


def namespaces(connection: sqlite3.Connection) -> list[str]:
    """The names of the namespaces in the file, in the order in which they were made."""
    return [
        str(row[0])
        for row in connection.execute("SELECT name FROM namespaces ORDER BY number")
        if not row[0].startswith(FORGOTTEN_NAME)
    ]


def namespace_number(connection: sqlite3.Connection, name: str) -> int | None:
    """The number of a namespace, or None if there is none of that name."""
    row = connection.execute("SELECT number FROM namespaces WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def nodes(connection: sqlite3.Connection, namespace: int) -> list[str]:
    """The nodes that have settings of their own."""
    rows = connection.execute(
        "SELECT DISTINCT node FROM settings WHERE namespace = ? AND node != '' ORDER BY node", (namespace,)
    )
    return [row[0] for row in rows]


def statistics(connection: sqlite3.Connection, namespace: int) -> dict[str, int]:
    """Counts and sizes."""
    return {
        name: int(connection.execute(query, {"namespace": namespace}).fetchone()[0] or 0)
        for name, query in _STATISTICS.items()
    }


def changes(connection: sqlite3.Connection, namespace: int, since: int, limit: int) -> list[Change]:
    """What happened after a sequence number, in order."""
    check_limit(limit)
    union = " UNION ALL ".join(
        f"SELECT * FROM (SELECT {columns} FROM {table} WHERE namespace = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3)"
        for columns, table in _CHANGES
    )
    rows = connection.execute(f"{union} ORDER BY 1 LIMIT ?3", (namespace, since, limit))
    return [Change(*row) for row in rows]


# -- records -----------------------------------------------------------------------------------------


def history(connection: sqlite3.Connection, namespace: int, id: str) -> list[Record]:
    """Every version under an id, oldest first."""
    rows = connection.execute(
        f"SELECT {RECORD_COLUMNS} FROM records r WHERE r.id_hash = ? AND r.id = ? AND +r.namespace = ? "
        "ORDER BY r.version",
        (id_hash(namespace, id), id, namespace),
    )
    return [to_record(row) for row in rows.fetchall()]


def scan(
    connection: sqlite3.Connection, namespace: int, wanted: Filter, limit: int, after: int | None, newest_first: bool
) -> Page:
    """A page of the records that a filter admits, in the order in which they were written."""
    check_limit(limit)
    if after is not None and not isinstance(after, int):
        raise InvalidInput(f"after is the `next` of an earlier page, not {after!r}")
    order = "DESC" if newest_first else "ASC"
    where, values = conditions(wanted, namespace, connection)
    if after is not None:
        where += " AND r.seq < ?" if newest_first else " AND r.seq > ?"
        values.append(after)
    rows = connection.execute(
        f"SELECT {RECORD_COLUMNS} FROM records r WHERE {where} ORDER BY r.seq {order} LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    more = len(rows) > limit
    records = tuple(to_record(row) for row in rows[:limit])
    return Page(records, records[-1].seq if more else None)


def numbers(connection: sqlite3.Connection, namespace: int, wanted: Filter, limit: int, after: int) -> list[int]:
    """The sequence numbers of the next records that a filter admits, oldest first; a damaged record has one too."""
    where, values = conditions(wanted, namespace, connection)
    rows = connection.execute(
        f"SELECT r.seq FROM records r WHERE {where} AND r.seq > ? ORDER BY r.seq LIMIT ?", (*values, after, limit)
    )
    return [seq for (seq,) in rows]


def readable(
    connection: sqlite3.Connection, namespace: int, seqs: Iterable[int]
) -> tuple[dict[int, Record], dict[int, str]]:
    """Records by number, and the names of the errors of those that are damaged."""
    wanted = [*seqs]
    try:
        return read_records(connection, namespace, wanted), {}
    except (CorruptStore, sqlite3.OperationalError) as error:
        if isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", None) is not None:
            raise  # about the file, not about a text
        if len(wanted) == 1:
            return {}, {wanted[0]: CorruptStore.__name__}
    records: dict[int, Record] = {}
    bad: dict[int, str] = {}
    for half in (wanted[: len(wanted) // 2], wanted[len(wanted) // 2 :]):
        found, damaged = readable(connection, namespace, half)
        records |= found
        bad |= damaged
    return records, bad


def count(connection: sqlite3.Connection, namespace: int, wanted: Filter) -> int:
    """The number of records that a filter admits."""
    where, values = conditions(wanted, namespace, connection)
    return int(connection.execute(f"SELECT count(*) FROM records r WHERE {where}", values).fetchone()[0])


def neighbours(connection: sqlite3.Connection, namespace: int, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids that a record was derived from, and the ids that were derived from it."""
    own = first_number(connection, namespace, id)
    sources, derived = (
        tuple(
            row[0]
            for row in connection.execute(
                f"SELECT r.id FROM edges e CROSS JOIN records r ON r.seq = e.{far} WHERE e.{near} = ? ORDER BY r.id",
                (own,),
            )
        )
        for far, near in (("source", "derived"), ("derived", "source"))
    )
    return sources, derived


def replaced(connection: sqlite3.Connection, seqs: Iterable[int]) -> set[int]:
    """Those of these records that a derived record stands for in a tier, or stood for until that was undone."""
    rows = connection.execute(
        "SELECT r.seq FROM records r WHERE r.seq IN (SELECT value FROM json_each(?)) AND EXISTS ("
        "SELECT 1 FROM edges e CROSS JOIN records f ON f.seq = e.derived "
        f"CROSS JOIN records d ON {same_id('d', 'f')} JOIN derivations v ON v.record = d.seq "
        f"WHERE e.source = {first_version()} AND v.replaces)",
        (json.dumps([*seqs]),),
    )
    return {row[0] for row in rows}


def following(connection: sqlite3.Connection, namespace: int, record: int, limit: int) -> list[int]:
    """The records that were written next in the session of one, the nearest first."""
    rows = connection.execute(
        "SELECT n.seq FROM records r JOIN records n ON n.session_hash = r.session_hash AND n.seq > r.seq "
        "AND n.session = r.session WHERE r.seq = ?1 AND r.namespace = ?2 AND n.namespace = ?2 AND n.version > 0 "
        "ORDER BY n.seq LIMIT ?3",
        (record, namespace, limit),
    )
    return [seq for (seq,) in rows]


def is_pinned(connection: sqlite3.Connection, namespace: int, id: str) -> bool:
    number = first_number(connection, namespace, id)
    return connection.execute("SELECT 1 FROM pins WHERE record = ?", (number,)).fetchone() is not None


# -- uses and tiers ----------------------------------------------------------------------------------


def uses(connection: sqlite3.Connection, namespace: int, record: int, node: str) -> int:
    """How often a node used a record, by what was written so far."""
    row = connection.execute(
        "SELECT count FROM accesses WHERE namespace = ? AND node = ? AND record = ?", (namespace, node, record)
    ).fetchone()
    return row[0] if row else 0


def accesses(connection: sqlite3.Connection, namespace: int, records: Iterable[int], node: str) -> dict[int, Access]:
    """How often and when records were used by a node; those never used are missing."""
    found: dict[int, Access] = {}
    for record in records:
        row = connection.execute(
            "SELECT count, last_at, previous_at FROM accesses WHERE namespace = ? AND node = ? AND record = ?",
            (namespace, node, record),
        ).fetchone()
        if row is not None:
            previous = None if row[2] is None else from_micros(row[2])
            found[record] = Access(row[0], from_micros(row[1]), previous)
    return found


def tiers(connection: sqlite3.Connection, namespace: int, record: int, node: str) -> tuple[str, ...]:
    """The tiers of a node that hold a record, nearest the prompt first."""
    recent = (WINDOW,) if any(seq == record for seq, _ in window(connection, namespace, node)) else ()
    places = places_of(connection, namespace, record)
    return recent + tuple(tier for where, tier in places if where == node and tier not in (HEARD, FOCUS))


def usage(connection: sqlite3.Connection, namespace: int, node: str) -> dict[str, Usage]:
    """What each tier of a node holds; a tier that was never used is missing."""
    recent = window(connection, namespace, node)
    return {WINDOW: Usage(len(recent), sum(tokens for _, tokens in recent))} | totals(connection, namespace, node)


def original_tokens(connection: sqlite3.Connection, namespace: int, node: str, tier: str) -> int:
    """The tokens of the records behind a tier other than the window, whatever stands for them there."""
    (tokens,) = connection.execute(
        f"SELECT ifnull(sum({TOKENS}), 0) FROM residents p JOIN records r ON r.seq = p.record "
        "WHERE p.namespace = ? AND p.node = ? AND p.tier = ?",
        (namespace, node, tier),
    ).fetchone()
    return int(tokens)


def absent(
    connection: sqlite3.Connection, namespace: int, records: Iterable[int], tier: str, node: str
) -> list[tuple[int, float, str]]:
    """Number, importance and kind of those records that are not in a tier other than the window."""
    return connection.execute(
        "SELECT r.seq, r.importance, r.kind FROM records r WHERE r.seq IN (SELECT value FROM json_each(?1)) "
        "AND r.namespace = ?2 AND r.version > 0 AND NOT EXISTS (SELECT 1 FROM residents p "
        "WHERE p.namespace = ?2 AND p.node = ?3 AND p.tier = ?4 AND p.record = r.seq) ORDER BY r.seq",
        (json.dumps([*records]), namespace, node, tier),
    ).fetchall()


# -- entries and blobs -------------------------------------------------------------------------------


def entry(
    connection: sqlite3.Connection, namespace: int, key: str, scope: str, owners: Sequence[str]
) -> Entry | None:
    """The newest version of an entry of the first owner who has one, or None."""
    for owner in owners:
        row = connection.execute(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE namespace = ? AND scope = ? AND owner = ? "
            "AND key = ? ORDER BY version DESC LIMIT 1",
            (namespace, scope, owner, key),
        ).fetchone()
        if row is not None and not row[0]:
            return to_entry(row)
    return None


def entries(
    connection: sqlite3.Connection, namespace: int, prefix: str, scope: str, owner: str, limit: int
) -> list[Entry]:
    """The newest versions of the entries whose keys start with a prefix, last updated first."""
    rows = connection.execute(
        f"{_KEYS} SELECT {ENTRY_COLUMNS} FROM found CROSS JOIN entries e ON e.namespace = :namespace "
        "AND e.scope = :scope AND e.owner = :owner AND e.key = found.name AND e.version = "
        "(SELECT max(version) FROM entries n WHERE n.namespace = :namespace AND n.scope = :scope "
        "AND n.owner = :owner AND n.key = found.name) WHERE NOT e.deleted "
        "ORDER BY e.updated_at DESC, e.key LIMIT :limit",
        {
            "namespace": namespace,
            "scope": scope,
            "owner": owner,
            "prefix": prefix,
            "length": len(prefix),
            "limit": limit,
        },
    )
    return [to_entry(row) for row in rows.fetchall()]


def entry_history(connection: sqlite3.Connection, namespace: int, key: str, scope: str, owner: str) -> list[Entry]:
    """Every version of an entry since it was last deleted, oldest first."""
    rows = connection.execute(
        f"SELECT {ENTRY_COLUMNS} FROM entries WHERE namespace = ? AND scope = ? AND owner = ? AND key = ? "
        "AND NOT deleted ORDER BY version",
        (namespace, scope, owner, key),
    )
    return [to_entry(row) for row in rows.fetchall()]


def entry_changes(
    connection: sqlite3.Connection,
    namespace: int,
    since: int,
    prefix: str,
    scope: str,
    owners: Sequence[str],
    limit: int,
) -> list[EntryChange]:
    """The keys that changed after a sequence number, in the order of their last change, as they are now."""
    check_limit(limit)
    # By number where only the latest are wanted: by key, every version ever written would be read.
    by_number = "NOT INDEXED" if since > 0 else ""
    rows = connection.execute(
        f"SELECT seq, {ENTRY_COLUMNS} FROM entries e {by_number} WHERE seq > ? AND namespace = ? "
        f"AND scope = ? AND owner IN ({', '.join('?' * len(owners))}) AND substr(key, 1, ?) = ? "
        "AND NOT EXISTS (SELECT 1 FROM entries n WHERE n.namespace = e.namespace AND n.scope = e.scope "
        "AND n.owner = e.owner AND n.key = e.key AND n.version > e.version) ORDER BY seq LIMIT ?",
        (since, namespace, scope, *owners, len(prefix), prefix, limit),
    ).fetchall()
    return [EntryChange(row[0], row[4], row[5], row[7], None if row[1] else to_entry(row[1:])) for row in rows]


def last_entry_change(connection: sqlite3.Connection) -> int:
    """The sequence number of the last change to an entry of any namespace; 0 where there was none."""
    return int(connection.execute("SELECT max(seq) FROM entries").fetchone()[0] or 0)


def blob(connection: sqlite3.Connection, namespace: int, key: str) -> bytes | None:
    """The bytes under a key, or None; damaged bytes raise `CorruptStore`."""
    row = connection.execute(
        "SELECT data, checksum FROM blobs WHERE namespace = ? AND key = ?", (namespace, key)
    ).fetchone()
    if row is None:
        return None
    if zlib.crc32(row[0]) != row[1]:
        raise CorruptStore(f"blob {key!r} does not match its checksum: the file was damaged")
    return bytes(row[0])


# How many records that were set aside are named.
_MOST_NAMED = 20

# -- jobs --------------------------------------------------------------------------------------------


def jobs(
    connection: sqlite3.Connection, namespace: int, kind: str | None, limit: int, max_attempts: int | None = None
) -> list[Job]:
    """Work that is queued or has failed, oldest first; with `max_attempts`, without the work that was given up."""
    rows = connection.execute(
        "SELECT seq, kind, record, data, attempts, error FROM jobs WHERE namespace = ?1 "
        "AND (?2 IS NULL OR kind = ?2) AND (?4 IS NULL OR attempts < ?4) ORDER BY seq LIMIT ?3",
        (namespace, kind, limit, max_attempts),
    )
    return list(map(to_job, rows))


def has_jobs(connection: sqlite3.Connection, namespace: int, kind: str, attempts: int | None = None) -> bool:
    """Whether jobs of a kind are queued; with `attempts`, jobs that were tried less often than that."""
    row = connection.execute(
        "SELECT 1 FROM jobs WHERE namespace = ?1 AND kind = ?2 AND (?3 IS NULL OR attempts < ?3) LIMIT 1",
        (namespace, kind, attempts),
    ).fetchone()
    return row is not None


def has_failed_jobs(connection: sqlite3.Connection, namespace: int, kinds: Sequence[str], max_attempts: int) -> bool:
    """Whether jobs of one of these kinds were given up."""
    row = connection.execute(
        "SELECT 1 FROM jobs WHERE namespace = ? AND kind IN (SELECT value FROM json_each(?)) "
        "AND attempts >= ? LIMIT 1",
        (namespace, json.dumps([*kinds]), max_attempts),
    ).fetchone()
    return row is not None


def unfinished(connection: sqlite3.Connection, namespace: int, max_attempts: int) -> FlushReport:
    """The jobs that wait, and those that were given up after `max_attempts`, by kind."""
    rows = connection.execute(
        "SELECT kind, attempts >= ?, count(*) FROM jobs WHERE namespace = ? GROUP BY 1, 2", (max_attempts, namespace)
    ).fetchall()
    failures = {kind: number for kind, failed, number in rows if failed}
    return FlushReport(
        waiting={kind: number for kind, failed, number in rows if not failed},
        failed=failures,
        set_aside=tuple(set_aside(connection, namespace, max_attempts)) if failures else (),
    )


def lost(connection: sqlite3.Connection, namespace: int) -> tuple[int, int] | None:
    """The sequence numbers that are known to have been committed and are gone."""
    row = connection.execute(
        "SELECT value FROM settings WHERE namespace = ? AND node = '' AND key = 'lost'", (namespace,)
    ).fetchone()
    found = None if row is None else json.loads(row[0])
    return None if found is None else (int(found[0]), int(found[1]))


def set_aside(connection: sqlite3.Connection, namespace: int, max_attempts: int) -> list[str]:
    """Which records background work gave up, with the kind of work and the error; the first of them.

    One that gets its last attempt in a process that has just opened the store is among them.
    """
    rows = connection.execute(
        "SELECT j.kind, j.record, j.attempts, j.error, CAST(r.id AS BLOB) FROM jobs j "
        "LEFT JOIN records r ON r.seq = j.record AND j.record > 0 "
        "WHERE j.namespace = ? AND j.attempts >= ? ORDER BY j.record, j.kind LIMIT ?",
        (namespace, max_attempts - 1, _MOST_NAMED),
    )
    return [
        f"record {id.decode(errors='replace')!r} (number {record}): {kind} failed {attempts} times with {error}"
        if id
        else f"{kind} failed {attempts} times with {error}"
        for kind, record, attempts, error, id in rows
    ]
