"""Forgetting for good: removing the rows, then erasing the remaining copies.

One transaction empties the rows and queues a durable job; after it no reader finds them. The job then rewrites every
index segment that holds one of the records, folds the write-ahead log into the file and truncates it. SQLite
overwrites freed space itself (secure_delete). After a kill the next process that writes resumes the job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from loom.errors import ForgetPending, StoreFull
from loom.steps import step
from loom.storage.contract import DERIVE, LAYOUTS, RESTORE, ForgetReceipt, Retention
from loom.storage.databases import Connection, Engine
from loom.storage.identity import session_key
from loom.storage.sqlite import archive
from loom.storage.sqlite.archive import Reader
from loom.storage.sqlite.projections import SCRUB, TEXT, VECTORS, Projector, StaleProjection, count_up
from loom.storage.sqlite.residency import TierTotals
from loom.storage.sqlite.rows import FORGOTTEN_NAME, fetch_readable, first_version, read_settings, same_id
from loom.storage.sqlite.transactions import EMPTY_AWAITED, EMPTY_VECTORS, SqliteTransaction
from loom.storage.sqlite.worker import LeaseLost, Worker

__all__ = [
    "EMPTY_LAYOUTS",
    "expired",
    "forget_entries",
    "remove",
    "remove_all",
    "remove_name",
    "resume",
    "scrub",
    "truncate_log",
]

_LISTED = "IN (SELECT value FROM json_each(?))"
_MICROS_PER_DAY = 86_400_000_000


@step("forget.remove")
def remove(transaction: SqliteTransaction, reader: Reader, where: str, values: Sequence[Any]) -> ForgetReceipt:
    """Empty the records that a condition admits, with all versions and derived records, and queue the scrub."""
    connection, namespace = transaction.connection, transaction.namespace
    chosen = connection.execute(
        f"SELECT r.seq, r.id, {first_version()} FROM records r WHERE {where}", values
    ).fetchall()
    if not chosen:
        return ForgetReceipt(())
    firsts = list(dict.fromkeys(first for _, _, first in chosen if first is not None))
    derived = _derived(connection, firsts)
    firsts += derived
    _keep_what_remains(transaction, firsts, derived)
    versions = connection.execute(
        f"SELECT r.seq FROM records f CROSS JOIN records r ON {same_id('r', 'f')} WHERE f.seq {_LISTED}",
        [str(firsts)],
    )
    # Includes a chosen record whose damaged id leads to no first version.
    seqs = sorted({seq for seq, _, _ in chosen}.union(seq for (seq,) in versions))
    _remove_layouts(connection, namespace, seqs)
    archive.remove(connection, namespace, reader, seqs, transaction.next_seq)
    listed = [str(seqs)]
    counts: dict[str, Any] = {
        "records": len(seqs),
        "moves": connection.execute(f"DELETE FROM moves WHERE record {_LISTED}", listed).rowcount,
        "vectors": connection.execute(f"{EMPTY_VECTORS} record {_LISTED}", listed).rowcount,
        "accesses": connection.execute(
            f"DELETE FROM accesses WHERE namespace = ? AND record {_LISTED}", (namespace, *listed)
        ).rowcount,
        "jobs": connection.execute(_REMOVE_JOBS, (namespace, SCRUB, *listed)).rowcount,
    }
    connection.execute(f"DELETE FROM supersessions WHERE record {_LISTED}", listed)
    freed = connection.execute(f"DELETE FROM supersessions WHERE by {_LISTED} RETURNING record", listed).fetchall()
    if freed:  # records that a forgotten record had superseded are valid again
        transaction.enqueue(RESTORE, data=[record for (record,) in freed])
    connection.execute(f"DELETE FROM derivations WHERE record {_LISTED}", listed)
    connection.execute(f"{_EMPTY_RECORDS} WHERE seq {_LISTED}", listed)
    books = TierTotals(connection, namespace)
    books.remove(seqs)
    books.recount()
    for statement in _OF_FIRST_VERSIONS:
        connection.execute(f"{statement} {_LISTED}", [str(firsts)])
    tombstones = [(transaction.next_seq(), namespace, seq) for seq in seqs]
    connection.executemany("INSERT INTO forgotten (seq, namespace, record) VALUES (?, ?, ?)", tombstones)
    (first, *_), (last, *_) = tombstones[0], tombstones[-1]
    transaction.enqueue(SCRUB, data=[first, last])
    return ForgetReceipt(tuple(dict.fromkeys(id for _, id, _ in chosen)), derived=len(derived), **counts)


def _remove_layouts(connection: Connection, namespace: int, seqs: Sequence[int]) -> None:
    """Empty the layouts of sessions that lose a record. They name its sequence number, and their keys the session."""
    found = connection.execute(_OWNERS, {"namespace": namespace, "scope": LAYOUTS})
    owners = [owner for (owner,) in found if owner is not None]
    if not owners:
        return
    (store,) = connection.execute("SELECT id FROM store").fetchone()
    sessions = connection.execute(
        f"SELECT DISTINCT session FROM records WHERE seq {_LISTED} AND session IS NOT NULL", [str([*seqs])]
    ).fetchall()
    for (session,) in sessions:
        key = session_key(store, session)
        connection.executemany(
            f"{EMPTY_LAYOUTS} WHERE namespace = ? AND scope = ? AND owner = ? AND key >= ? AND key < ?",
            [(namespace, LAYOUTS, owner, f"{key}:", f"{key};") for owner in owners],
        )


# The index finds each owner from the one before.
_OWNERS = (
    "WITH RECURSIVE owners (name) AS (SELECT min(owner) FROM entries WHERE namespace = :namespace AND scope = :scope "
    "UNION ALL SELECT (SELECT min(owner) FROM entries WHERE namespace = :namespace AND scope = :scope "
    "AND owner > owners.name) FROM owners WHERE owners.name IS NOT NULL) SELECT name FROM owners"
)
# Emptied and not deleted, as records are; `vacuum` removes the rows of this namespace.
EMPTY_LAYOUTS = (
    "UPDATE entries SET namespace = -1, scope = '', owner = '', key = '', version = seq, deleted = TRUE, "
    "created_by = '', updated_by = '', created_at = 0, updated_at = 0, metadata = NULL, content = NULL, checksum = 0"
)


def forget_entries(transaction: SqliteTransaction, scope: str, owner: str | None, key: str | None) -> int:
    """Empty every version of entries, with their writers. Returns the number of keys that had a value."""
    connection, namespace = transaction.connection, transaction.namespace
    where, values = "namespace = ? AND scope = ?", [namespace, scope]
    for column, wanted in (("owner", owner), ("key", key)):
        if wanted is not None:
            where += f" AND {column} = ?"
            values.append(wanted)
    places = connection.execute(
        f"SELECT DISTINCT owner, key FROM entries WHERE {where} AND NOT deleted", values
    ).fetchall()
    forgotten = sum(transaction.delete_entry(name, scope=scope, owner=whose) > 0 for whose, name in places)
    connection.execute(f"UPDATE entries SET created_by = '', updated_by = '' WHERE {where} AND deleted", values)
    return forgotten


@step("forget.remove_all")
def remove_all(transaction: SqliteTransaction, reader: Reader) -> ForgetReceipt:
    """Empty every record of the transaction's namespace and delete its other data, except its name."""
    connection, namespace = transaction.connection, transaction.namespace
    receipt = remove(transaction, reader, "r.namespace = ? AND r.version > 0", [namespace])
    for table in _OF_A_NAMESPACE:
        connection.execute(f"DELETE FROM {table} WHERE namespace = ?", (namespace,))
    connection.execute("DELETE FROM jobs WHERE namespace = ? AND kind != ?", (namespace, SCRUB))
    return receipt


@step("forget.remove_name")
def remove_name(connection: Connection, namespace: int) -> None:
    """Remove the name of an empty namespace. Its number stays, so that it is never reused."""
    for table in ("settings", "projections", "segments"):
        connection.execute(f"DELETE FROM {table} WHERE namespace = ?", (namespace,))
    connection.execute("UPDATE namespaces SET name = ? WHERE number = ?", (f"{FORGOTTEN_NAME}{namespace}", namespace))
    count_up(connection)


_OF_A_NAMESPACE = (
    "entries",
    "blobs",
    "moves",
    "residents",
    "tiers",
    "accesses",
    "pins",
    "derivations",
    "awaited",
    "blocks",
)


def _keep_what_remains(transaction: SqliteTransaction, leaving: Sequence[int], derived: Sequence[int]) -> None:
    """Queue the other sources of removed derived records, to be derived from again and to return to their tiers."""
    gone = set(leaving)
    rows = transaction.connection.execute(
        "SELECT e.source, max(r.seq), EXISTS (SELECT 1 FROM records f CROSS JOIN records d ON "
        f"{same_id('d', 'f')} JOIN derivations v ON v.record = d.seq WHERE f.seq = e.derived AND v.replaces) "
        "FROM json_each(?) j CROSS JOIN edges e ON e.derived = j.value CROSS JOIN records f ON f.seq = e.source "
        f"CROSS JOIN records r ON {same_id('r', 'f')} GROUP BY e.derived, e.source",
        [str([*derived])],
    ).fetchall()
    again = {record for source, record, _ in rows if source not in gone}
    places = {record for source, record, replaced in rows if source not in gone and replaced}
    if again:
        transaction.enqueue(DERIVE, data=sorted(again))
    if places:
        transaction.enqueue(RESTORE, data=sorted(places))


# DELETE would leave copies behind: see `loom.storage.sqlite.schema`.
_EMPTY_RECORDS = (
    "UPDATE records SET id_hash = NULL, session_hash = NULL, id = '', version = 0, tier = NULL, kind = '', "
    "node = '', session = NULL, role = NULL, name = NULL, trust = '', subject = '', flow = '', layer = '', "
    "importance = 0, tokens = 0, window_tokens = NULL, counter = '', created_at = 0, committed_at = 0, checksum = 0, "
    "metadata = NULL, data = NULL, content = '', block = NULL, archived_bytes = NULL"
)


# By kind, because the index over jobs begins with it.
_REMOVE_JOBS = (
    "DELETE FROM jobs WHERE namespace = ?1 AND kind IN (SELECT DISTINCT kind FROM jobs WHERE namespace = ?1 "
    "AND kind != ?2) AND record IN (SELECT value FROM json_each(?3))"
)
_OF_FIRST_VERSIONS = (
    f"{EMPTY_AWAITED} WHERE id_hash IS NOT NULL AND derived",
    "DELETE FROM pins WHERE record",
    "DELETE FROM edges WHERE source",
    "DELETE FROM edges WHERE derived",
)


def _derived(connection: Connection, firsts: Sequence[int]) -> list[int]:
    """The first versions of all records derived from these, directly or indirectly."""
    rows = connection.execute(
        "WITH RECURSIVE reached (record) AS (SELECT value FROM json_each(?) UNION "
        "SELECT e.derived FROM reached CROSS JOIN edges e ON e.source = reached.record) SELECT record FROM reached",
        [str([*firsts])],
    )
    return sorted({record for (record,) in rows} - set(firsts))


@step("forget.scrub")
def scrub(
    engine: Engine,
    namespace: int,
    worker: Worker,
    projector: Callable[[Callable[[Connection], None]], Projector],
    deadline: float,
) -> int:
    """Erase the remaining copies of removed records. Returns the number of rewritten segments.

    Raises `ForgetPending` at the deadline; the job stays queued.
    """
    if engine.index_folder is None:
        with engine.write() as connection:
            connection.execute("DELETE FROM jobs WHERE namespace = ? AND kind = ?", (namespace, SCRUB))
        return 0
    while True:
        wait_s = max(0.0, deadline - time.monotonic())
        with suppress(LeaseLost), worker.urgent_lease(wait_s) as fence:
            if fence is None:
                raise ForgetPending(
                    "forgotten, but other calls of forget() are at work on the index; the last copies are removed "
                    "when they are done",
                    ("another forget() is at work on the index",),
                )
            return resume(engine, namespace, projector(fence), deadline)


@step("forget.resume")
def resume(engine: Engine, namespace: int, projector: Projector, deadline: float = 0.0) -> int:
    """Finish every queued scrub, under the lease. Returns the number of rewritten segments."""
    with engine.read() as connection:
        jobs = connection.execute(
            "SELECT record, seq, data FROM jobs WHERE namespace = ? AND kind = ?", (namespace, SCRUB)
        ).fetchall()
        records = {
            record
            for _, _, stretch in jobs
            for (record,) in connection.execute(
                "SELECT record FROM forgotten WHERE seq BETWEEN ? AND ? AND namespace = ?",
                (*json.loads(stretch), namespace),
            )
        }
    if not jobs:
        return 0
    rewritten = sum(_remove_from_segments(projector, kind, records) for kind in (TEXT, VECTORS))
    projector.sweep()
    if projector.kept:
        name, reason = next(iter(projector.kept.items()))
        raise ForgetPending(
            f"forgotten, but index files that may hold hashes of the words cannot be deleted ({name}: {reason}); "
            "they are deleted as soon as possible",
            tuple(projector.kept),
        )
    engine.archive.clear()
    truncate_log(engine, deadline)
    with engine.write() as connection:
        connection.executemany(
            "DELETE FROM jobs WHERE namespace = ? AND kind = ? AND record = ? AND seq = ?",
            [(namespace, SCRUB, record, seq) for record, seq, _ in jobs],
        )
    return rewritten


def _remove_from_segments(projector: Projector, kind: str, records: set[int]) -> int:
    while True:
        try:
            return projector.remove(kind, records)
        except StaleProjection:
            continue  # another forget or a replaced segment came in between: retry
        except StoreFull:
            # Deleting files needs no space. Answers are the same without an index, and the worker rebuilds it later.
            projector.reset(kind, None)
            return 1


def truncate_log(engine: Engine, deadline: float) -> None:
    """Erase the copies in the write-ahead log. Raises `ForgetPending` if a reader needs them at the deadline."""
    if not engine.clean_up_by(deadline):
        raise ForgetPending(
            "forgotten, but a reader still holds an older state of the file, so the write-ahead log keeps its "
            "copy; it is removed when that reader is done",
            ("a reader of an older state",),
        )


def expired(connection: Connection, namespace: int, now: int) -> list[str | bytes]:
    """The ids that the retention rule no longer keeps, never pinned ones; none without a rule.

    An id that is not valid text is returned as bytes.
    """
    rule = Retention(**(read_settings(connection, namespace, "").get("retention") or {}))
    current = (
        "records r WHERE r.namespace = ? AND r.version > 0 AND NOT EXISTS "
        "(SELECT 1 FROM supersessions s WHERE s.record = r.seq) "
        f"AND NOT EXISTS (SELECT 1 FROM pins p WHERE p.record = {first_version()}) "
        "AND NOT EXISTS (SELECT 1 FROM derivations d WHERE d.record = r.seq)"  # they go with their sources
    )
    sizes = (
        "SELECT r.id AS id, sum(coalesce(r.archived_bytes, length(CAST(r.content AS BLOB)))) "
        f"OVER (ORDER BY r.seq DESC) AS total FROM {current}"
    )
    oldest = None if rule.max_age_days is None else now - int(rule.max_age_days * _MICROS_PER_DAY)
    queries = (
        (f"SELECT r.id FROM {current} AND r.created_at < ?", oldest),
        (f"SELECT r.id FROM {current} ORDER BY r.seq DESC LIMIT {2**62} OFFSET ?", rule.max_records),
        (f"SELECT id FROM ({sizes}) sizes WHERE total > ?", rule.max_bytes),
    )
    found = (
        id
        for query, limit in queries
        if limit is not None
        for (id,) in fetch_readable(connection, query, (namespace, limit))
    )
    return list(dict.fromkeys(found))
