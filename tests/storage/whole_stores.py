"""Parts that the tests of snapshots share: a store with some data of every kind, its whole content, and forged
snapshots."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from loom.snapshots.format import SnapshotReader, SnapshotWriter
from loom.snapshots.sections import KNOWN_SECTIONS, Section
from loom.storage.contract import Draft, Filter, Retention, Store
from loom.storage.sqlite.archive import CONTENT, DATA
from loom.storage.sqlite.store import SqliteStore, as_sqlite

__all__ = ["MOMENT", "Clock", "everything", "forged", "lived_in", "opened_store", "rows_of"]

MOMENT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
DIMENSIONS = 8


class Clock:
    """A clock that advances by a second at every reading."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.now = MOMENT + timedelta(seconds=seconds)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@contextmanager
def opened_store(path: Path | None, namespace: str = "default", **options: Any) -> Iterator[SqliteStore]:
    store = SqliteStore(path, namespace=namespace, **{"clock": Clock(), "all_namespaces": True, **options})
    try:
        yield store
    finally:
        store.close()


def lived_in(store: SqliteStore, count: int = 30, first: int = 0) -> None:
    """Write something of every kind that a store can hold."""
    if store.space is None:
        store.use_embedder("of-the-tests", DIMENSIONS, None)
    random = np.random.default_rng(first)
    with store.transaction() as transaction:
        written = transaction.append([_draft(number) for number in range(first, first + count)])
        numbers = [one.seq for one in written]
        transaction.take(transaction.jobs("embed", count - 5))
        transaction.put_vectors(numbers[:-5], random.standard_normal((count - 5, DIMENSIONS)).astype(np.float32))
        transaction.append([_draft(first)._replace(content="changed 改了", revises=True)])
        transaction.enter(numbers[2:9], "l2", "agent", "written")
        transaction.leave(numbers[2:4], "l2", "agent", "evicted")
        transaction.enter(numbers[2:4], "l3", "agent", "evicted", [3, 4])
        transaction.narrow_window("agent", numbers[1])
        sources = (f"r{first + 3}", f"r{first + 4}", "nobody")
        transaction.append(
            [
                Draft(f"fact{first}", "drawn", MOMENT, kind="fact", sources=sources, drawn=True),
                Draft(f"summary{first}", "stands", MOMENT, sources=sources[:2], drawn=True, replaces=True),
            ]
        )
        transaction.supersede(numbers[10], numbers[11], MOMENT)
        transaction.pin(f"r{first + 5}", True)
        transaction.put_entry("pool/\0plan", {"步骤": [1, 2.5, None]}, writer="w", scope="shared", owner="team")
        transaction.put_entry(
            "pool/\0plan", {"步骤": []}, writer="w", scope="shared", owner="team", metadata={"a": 1}
        )
        transaction.put_entry(f"gone{first}", "deleted words", writer="w")
        transaction.delete_entry(f"gone{first}", writer="w")
        transaction.put_blob(f"blob{first}", bytes(range(256)) * 3000)
        transaction.put_blob("shared blob", f"written at {first}".encode())
        transaction.put_blob(f"empty{first}", b"")
        transaction.enqueue("derive", data=numbers[:3])
        transaction.enqueue("later", [numbers[6]])
        transaction.advance("facts", numbers[8])
    store.touch(numbers[2:6], "agent")
    store.touch(numbers[3:4], "agent")
    store.count_lookup("agent", "l2", True)
    store.update_settings("agent", lambda _: {"l2_token_budget": 5000, "profile": "loom"})
    store.set_retention(Retention(max_age_days=10_000))
    store.forget(Filter(ids=[f"r{first + 12}", f"r{first + 13}"], history=True))


def _draft(number: int) -> Draft:
    return Draft(
        f"r{number}",
        f"text {number} of the harbour\n\0 港口的灯塔 {'long ' * (number % 7)}",
        MOMENT + timedelta(minutes=number),
        node="agent",
        session_id=f"s{number % 4}",
        role="user",
        name="Ana",
        trust="user",
        importance=number % 10 / 10,
        tokens=10 + number,
        counter="test",
        tier="l1",
        metadata={"number": number, "名": "值"} if number % 3 else {},
        data={"task": number} if number % 5 == 0 else None,
        window_tokens=number % 4 or None,
    )


_TABLES = {
    "records": "SELECT r.seq, r.namespace, r.id_hash, r.session_hash, r.id, r.version, r.tier, r.kind, r.node, "
    "r.session, r.role, r.name, r.trust, r.subject, r.flow, r.layer, r.importance, r.tokens, r.counter, "
    f"r.created_at, r.committed_at, r.metadata, {DATA}, {CONTENT}, r.checksum, r.window_tokens "
    "FROM records r WHERE version > 0",
    "store": "SELECT * FROM store",
    "namespaces": "SELECT * FROM namespaces",
    "settings": "SELECT * FROM settings WHERE key NOT IN ('analyzer', 'revision')",
    "supersessions": "SELECT * FROM supersessions",
    "moves": "SELECT * FROM moves",
    "edges": "SELECT * FROM edges",
    "pins": "SELECT * FROM pins",
    "accesses": "SELECT * FROM accesses",
    "forgotten": "SELECT * FROM forgotten",
    "entries": "SELECT * FROM entries WHERE namespace >= 0",  # forgetting empties rows for no namespace
    "blobs": "SELECT * FROM blobs WHERE key IS NOT NULL",
    "spaces": "SELECT * FROM spaces",
    "vectors": "SELECT * FROM vectors WHERE record IS NOT NULL",
    "jobs": "SELECT * FROM jobs WHERE kind != 'scrub'",
    "residents": "SELECT * FROM residents",
    "tiers": "SELECT * FROM tiers",
    "derivations": "SELECT * FROM derivations",
    "progress": "SELECT namespace, kind, watermark FROM projections "
    "WHERE kind NOT IN ('text', 'vectors', 'archive', 'tokens')",
}


def everything(given: Store, *without: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of the file that a snapshot carries, in an order of its own."""
    store = as_sqlite(given)
    store.flush_accesses()
    with store.engine.read() as connection:
        return {
            name: sorted(connection.execute(query).fetchall(), key=repr)
            for name, query in _TABLES.items()
            if name not in without
        }


def rows_of(path: Path) -> dict[int, list[bytes]]:
    """The rows of each section of a snapshot."""
    with open(path, "rb") as file:
        return {section: list(rows) for section, rows in SnapshotReader(file).sections(KNOWN_SECTIONS)}


def forged(path: Path, target: Path, change: Callable[[dict[int, list[Any]]], None]) -> Path:
    """A snapshot with other contents and right checksums. JSON rows are given as lists, others as bytes."""
    with open(path, "rb") as file:
        header = SnapshotReader(file).header
    binary = (Section.VECTORS, Section.BLOB_BYTES)
    rows: dict[int, list[Any]] = {
        section: found if section in binary else [json.loads(row) for row in found]
        for section, found in rows_of(path).items()
    }
    change(rows)
    with open(target, "wb") as file:
        writer = SnapshotWriter(file, header)
        for section in sorted(rows):
            writer.begin(section)
            for row in rows[section]:
                packed = row if isinstance(row, bytes) else json.dumps(row, separators=(",", ":")).encode()
                writer.add(packed)
        writer.finish()
    return target
