"""Rows for snapshots, where a namespace has numbers of its own, and where rows are stored all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from loom.snapshots.merging import restore_into
from loom.snapshots.staging import restore
from loom.snapshots.taking import take
from loom.storage.contract import Draft, Filter, Origin
from loom.storage.sqlite.copying import Copy
from loom.storage.sqlite.store import SqliteStore
from loom.storage.sqlite.transactions import SqliteTransaction
from loom.storage.tables import TABLES, Row, shifted
from tests.storage.whole_stores import MOMENT, everything, lived_in, opened_store

ZERO = 1 << 40


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores count from `ZERO`, as a server does whose namespaces have a part of all numbers each."""
    own_origin, own_copying = SqliteTransaction.origin, SqliteStore.copying

    def origin(transaction: SqliteTransaction) -> Origin:
        return own_origin(transaction)._replace(zero=ZERO)

    @contextmanager
    def copying(store: SqliteStore, namespaces: Sequence[str] | None = None) -> Iterator[Copy]:
        with own_copying(store, namespaces) as copy:
            yield Copy(copy.connection, copy.chosen, ZERO)

    monkeypatch.setattr(SqliteTransaction, "origin", origin)
    monkeypatch.setattr(SqliteStore, "copying", copying)


def _lived_in(store: SqliteStore) -> None:
    with store.transaction() as transaction:
        transaction.skip_to(ZERO)
    lived_in(store)


def test_numbers_of_a_snapshot_count_from_the_zero_of_their_namespace(tmp_path: Path, numbered: None) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        _lived_in(store)
        made = take(store, tmp_path / "0.hctx")
        assert made.position < 1000
        with store.transaction() as transaction:
            transaction.append([Draft("later", "said after the first", MOMENT)])
        store.forget(Filter(ids=["r14"], history=True))
        take(store, tmp_path / "1.hctx", parent=tmp_path / "0.hctx")
        before = everything(store, "store")
    restore([tmp_path / "0.hctx", tmp_path / "1.hctx"], tmp_path / "b.loom")
    with opened_store(tmp_path / "b.loom") as store:
        assert store.check(repair=False).problems == ()
        after = everything(store, "store")
    assert {name: len(rows) for name, rows in after.items()} == {name: len(rows) for name, rows in before.items()}
    records = [(seq + ZERO, *rest) for seq, *rest in after["records"]]
    assert sorted(records, key=repr) == before["records"]
    moves = [(record + ZERO, seq + ZERO, *rest) for record, seq, *rest in after["moves"]]
    assert sorted(moves, key=repr) == before["moves"]


def test_a_namespace_with_its_own_zero_knows_its_own_past(tmp_path: Path, numbered: None) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        _lived_in(store)
        take(store, tmp_path / "0.hctx")
        store.forget(Filter(ids=["r7"], history=True))
        before = everything(store)
        done = restore_into(store, tmp_path / "0.hctx")
        assert (done.records, done.forgotten) == (0, 1)
        assert everything(store) == before
        assert restore_into(store, tmp_path / "0.hctx", forgotten=True).records == 1
        assert store.get("r7") is not None


def test_rows_may_be_stored_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server gets many rows together: what yields them finds none of those before."""
    own = SqliteTransaction.add_rows

    def add_rows(transaction: SqliteTransaction, table: str, rows: Iterable[Row]) -> int:
        return own(transaction, table, [*rows])

    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "0.hctx")
    with opened_store(tmp_path / "b.loom") as store:
        restore_into(store, tmp_path / "0.hctx")
        expected = everything(store, "store", "settings")
    monkeypatch.setattr(SqliteTransaction, "add_rows", add_rows)
    with opened_store(tmp_path / "c.loom") as store:
        restore_into(store, tmp_path / "0.hctx")
        assert everything(store, "store", "settings") == expected


def test_none_and_nothing_are_not_shifted() -> None:
    jobs = TABLES["jobs"].columns
    shift = shifted("jobs", 10)
    row = dict.fromkeys(jobs) | {"namespace": 1, "kind": "derive", "record": 0, "seq": 5, "data": "[1, 2]"}
    found = dict(zip(jobs, shift(tuple(row.values())), strict=True))
    assert (found["record"], found["seq"], found["data"], found["namespace"]) == (0, 15, "[11, 12]", 1)
    assert shifted("edges", 10)((3, None, "awaited")) == (13, None, "awaited")
    assert shifted("forgotten", -10)((30, 1, 20)) == (20, 1, 10)
