"""Verification: stored data is compared with its checksums, and the tables with each other.

Records are the truth: damage there is reported and never hidden. Data that follows from them (projections, totals,
rows that point to no record) is rebuilt or removed if the caller asks for repair.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from loom.errors import CorruptStore, StoreUnavailable
from loom.index import text_index, vector_index
from loom.index.segments import DamagedSegment
from loom.progress import followed
from loom.storage.contract import CheckReport
from loom.storage.databases import Connection, Engine
from loom.storage.identity import guard
from loom.storage.sqlite.archive import damaged
from loom.storage.sqlite.engine import Engine as FileEngine
from loom.storage.sqlite.entries import Jobs, StoredEntry
from loom.storage.sqlite.maintenance import Maintenance
from loom.storage.sqlite.projections import (
    TEXT,
    VECTORS,
    active_space,
    index_files,
    index_folder,
    last_number,
    open_index,
    published,
    read_state,
)
from loom.storage.sqlite.residency import TierTotals
from loom.storage.sqlite.rows import ENTRY_COLUMNS, ROW_COLUMNS, StoredRecord, read_settings, text_read_with
from loom.storage.sqlite.searcher import Searcher
from loom.storage.sqlite.transactions import EMPTY_VECTORS

__all__ = ["TO_NOTHING", "check", "find_lost", "lost_problem"]

log = logging.getLogger("loom.store")

# Tables whose rows are useless without the record that they name.
_POINTING = ("supersessions", "derivations", "moves", "residents", "vectors", "accesses", "jobs", "pins")
TO_NOTHING = "record > 0 AND record NOT IN (SELECT seq FROM records WHERE version > 0)"
"""SQL for a row that points to no record."""

# The findings about rows that point to no record, about totals, and about indexes.
_WRONG = ("point to no record", "are wrong", "is unusable")
_REPAIRED = ("pointed to no record and were removed", "were wrong and were counted again", "was rebuilt")
_SEQUENCES = {
    **dict.fromkeys(("records", "supersessions", "moves", "entries", "vectors", "forgotten", "jobs", "blobs"), "seq"),
    "blocks": "number",
}


def check(
    own: Maintenance, searcher: Searcher, repair: bool, find_lost: Callable[[], tuple[int, int] | None] = lambda: None
) -> CheckReport:
    """Check one namespace and its file. `find_lost` returns the range of lost commits, if any."""
    engine, namespace = own.engine, own.namespace
    problems: list[str] = []
    repaired: list[str] = []
    lost: tuple[int, int] | None = None
    with engine.read() as connection:
        problems += engine.integrity(connection)
        records = 0
        if not problems:
            problems += damaged(connection, namespace, engine.archive)
            # So that one damaged row does not hide the others.
            with text_read_with(connection, lambda text: text.decode(errors="surrogateescape")):
                problems += _damaged_records(connection, namespace)
                problems += _damaged_entries(connection, namespace)
            records = _count_records(connection, namespace)
            problems += _damaged_blobs(connection, namespace)
            problems += _sequence(connection)
            lost = read_settings(connection, namespace, "").get("lost")
            # A read-only process could not have noted the loss in the file.
            lost = lost or find_lost()
            problems += [lost_problem(lost)] if lost is not None else []
        dangling = [] if problems else _dangling(connection)
        wrong = {} if problems else TierTotals(connection, namespace).wrong()
    projections = [] if problems else _damaged_projections(engine, namespace)
    if repair and (dangling or wrong):
        with engine.write() as connection:
            for table, _ in dangling:
                emptied = EMPTY_VECTORS if table == "vectors" else f"DELETE FROM {table} WHERE "
                connection.execute(emptied + TO_NOTHING)
            TierTotals(connection, namespace).recount()
    for kind, _ in projections if repair else ():
        searcher.rebuild(kind)
    found, (pointed, counted, built) = (repaired, _REPAIRED) if repair else (problems, _WRONG)
    found += [f"{count} rows of {table} {pointed}" for table, count in dangling]
    found += [f"the totals of {tier} of {node!r} {counted}" for node, tier in wrong]
    found += [f"the {kind} index {built}: {reason}" for kind, reason in projections]
    if repair and engine.index_folder is not None:
        with own.worker.lease(wait_s=5.0) as fence:
            swept = 0 if fence is None else own.projector(fence).sweep()
        if swept:
            repaired.append(f"{swept} index files that nothing refers to were removed")
    if repair and lost is not None:  # reported once; the commits cannot be restored from here
        with engine.write() as connection:
            connection.execute("DELETE FROM settings WHERE namespace = ? AND key = 'lost'", (namespace,))
    try:
        with engine.read() as connection:
            given_up = Jobs(connection, namespace).set_aside()
    except CorruptStore:  # the list of problems names it
        given_up = []
    return CheckReport(records, tuple(problems), tuple(repaired), tuple(given_up))


def _damaged_projections(engine: Engine, namespace: int) -> list[tuple[str, str]]:
    """The unusable projections, with the reasons. Files that a concurrent merge removes are not damage."""
    while True:
        with engine.read() as connection:
            before = _published(connection, namespace)
            found = list(_projections(connection, namespace, engine))
        with engine.read() as connection:
            if not found or _published(connection, namespace) == before:
                return found


def _published(connection: Connection, namespace: int) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT kind, file FROM segments WHERE namespace = ? ORDER BY kind, file", (namespace,)
    ).fetchall()


def _matches(checksum: Callable[[Any], int], values: Any, stored: int) -> bool:
    try:
        return checksum(values) == stored
    except UnicodeEncodeError:  # a damaged row: not text
        return False


def _count_records(connection: Connection, namespace: int) -> int:
    query = "SELECT count(*) FROM records WHERE namespace = ? AND version > 0"
    return int(connection.execute(query, (namespace,)).fetchone()[0])


def _damaged_records(connection: Connection, namespace: int) -> Iterator[str]:
    rows = connection.execute(
        f"SELECT {ROW_COLUMNS} FROM records r WHERE r.namespace = ? AND r.version > 0", (namespace,)
    )
    for row in followed(rows, lambda: _count_records(connection, namespace), "records"):
        one = StoredRecord(*row)
        unreadable = one.block is not None and one.content is None  # its block is reported
        if not unreadable and not _matches(guard, one.guarded, one.checksum):
            yield f"record {one.id!r} (number {one.seq}) does not match its checksum"


def _damaged_entries(connection: Connection, namespace: int) -> list[str]:
    rows = connection.execute(
        f"SELECT {ENTRY_COLUMNS} FROM entries WHERE namespace = ? AND NOT deleted", (namespace,)
    )
    return [
        f"entry {one.key!r} does not match its checksum"
        for one in map(StoredEntry._make, rows)
        if not _matches(StoredEntry.guard, one, one.checksum)
    ]


def _damaged_blobs(connection: Connection, namespace: int) -> list[str]:
    return [
        f"blob {key!r} does not match its checksum"
        for key, data, stored in connection.execute(
            "SELECT key, data, checksum FROM blobs WHERE namespace = ? AND key IS NOT NULL", (namespace,)
        )
        if zlib.crc32(data) != stored
    ]


def _sequence(connection: Connection) -> list[str]:
    last = last_number(connection)
    queries = {table: f"SELECT max({column}) FROM {table}" for table, column in _SEQUENCES.items()}
    highest = ((table, connection.execute(query).fetchone()[0]) for table, query in queries.items())
    return [
        f"{table} holds number {number}, above the sequence's {last}"
        for table, number in highest
        if number is not None and number > last
    ]


def find_lost(engine: FileEngine, namespace: int) -> tuple[int, int] | None:
    """The first and last sequence number that the log or an index file contains and the database does not.

    SQLite silently drops every commit after the first damaged frame of its log. `Engine` reads those frames when it
    opens the file. Index files contain only committed records, so an index file that the database does not name and
    that has later records than the database proves a loss, even if the log is missing or truncated.
    """
    folder = index_folder(engine.path)
    if folder is None or engine.had_no_log:
        return None  # a backup beside a newer index is older by intention
    try:
        found = set(index_files(folder, namespace))
    except StoreUnavailable as error:  # the records do not depend on the folder
        log.warning("lost commits of %s cannot be searched for in the index: %s", engine.path, error)
        found = set()
    with engine.read() as connection:
        last = last_number(connection)
        unnamed = found - {name for _, name in _published(connection, namespace)}
    highest = max([engine.last_dropped, *(_last_key(folder / name, engine.store_id) for name in unnamed)])
    if highest <= last:
        return None
    with engine.read() as connection:  # another process may have published a file meanwhile
        last = last_number(connection)
    return (last + 1, highest) if highest > last else None


def _last_key(path: Path, store_id: str) -> int:
    """The highest sequence number in an index file; 0 if it is unreadable or belongs to another store."""
    try:
        segment = open_index(TEXT if path.name.startswith(TEXT) else VECTORS, path)
    except DamagedSegment:
        return 0
    keys = segment.arrays["keys"]
    return int(keys[-1]) if segment.header.get("store") == store_id and len(keys) else 0


def lost_problem(lost: tuple[int, int]) -> str:
    return (
        f"commits that were acknowledged are gone: sequence numbers {lost[0]} to {lost[1]}. The write-ahead log was "
        "damaged or deleted, or an older copy of the file was put in its place. Restore the newest backup or snapshot"
    )


def _dangling(connection: Connection) -> list[tuple[str, int]]:
    query = f"SELECT count(*) FROM {{}} WHERE {TO_NOTHING}"
    counts = ((table, connection.execute(query.format(table)).fetchone()[0]) for table in _POINTING)
    return [(table, count) for table, count in counts if count]


def _projections(connection: Connection, namespace: int, engine: Engine) -> Iterator[tuple[str, str]]:
    folder = engine.index_folder
    if folder is None:
        return
    space = active_space(connection, namespace)
    for kind in (TEXT, VECTORS):
        watermark = read_state(connection, namespace, kind).watermark
        if kind == TEXT:
            query = "SELECT seq FROM records WHERE namespace = ? AND seq <= ? AND version > 0 ORDER BY seq"
        elif space is None:
            continue
        else:
            query = (
                f"SELECT record FROM vectors WHERE namespace = ? AND seq <= ? AND space = {space.number:d} "
                "AND record IS NOT NULL ORDER BY record"
            )
        values = (namespace, watermark)
        expected = np.array([seq for (seq,) in connection.execute(query, values)], dtype=np.int64)
        files = [entry.file for entry in published(connection, namespace, kind)]
        for file in files:
            engine.provide_file(connection, file)
        reason = _segment_problem(kind, folder, files, expected, engine.store_id)
        if reason:
            yield kind, reason


def _segment_problem(kind: str, folder: Path, files: list[str], expected: object, store_id: str) -> str:
    keys = []
    for name in files:
        try:
            segment = open_index(kind, folder / name, verified=True)
            (text_index if kind == TEXT else vector_index).verify(segment)
        except DamagedSegment as error:
            return str(error)
        if segment.header.get("store") != store_id:
            return f"{name} belongs to another store"
        keys.append(segment.arrays["keys"])
    found = np.sort(np.concatenate(keys)) if keys else np.empty(0, dtype=np.int64)
    return "" if np.array_equal(found, np.asarray(expected)) else "it does not cover the expected records"
