"""What a process reads of the database before its first answer: no more the more there is."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loom.storage.contract import Draft, Filter
from loom.storage.sqlite import projections
from loom.storage.sqlite.store import SqliteStore

NOW = datetime(2024, 5, 15, tzinfo=UTC)
EVERYTHING = Filter()


def write(store: SqliteStore, first: int, last: int, every: int) -> None:
    """Records, and after each so many of them one that was drawn from it."""
    drafts = []
    for number in range(first, last):
        drafts.append(Draft(f"r{number}", f"herons {number}", NOW))
        if number % every == 0:
            drafts.append(
                Draft(f"d{number}", f"herons drawn {number}", NOW, kind="fact", sources=(f"r{number}",), drawn=True)
            )
    with store.transaction() as transaction:
        transaction.append(drafts)


def derived(store: SqliteStore) -> int:
    store.search_text({"heron": 1.0}, 5, EVERYTHING)
    return store._maintenance.index.derived


def test_few_derived_records_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path)) as store:
        assert derived(store) == 0
        write(store, 0, 60, every=3)
        assert derived(store) == 20
    with closing(SqliteStore(path)) as store:
        assert derived(store) == 20
        write(store, 60, 66, every=2)
        assert derived(store) == 23, "what is written is counted as it comes"
        store.forget(Filter(ids=["r0", "r3"]))
        assert derived(store) == 21
        with closing(SqliteStore(path, namespace="another")) as other:
            assert derived(other) == 0


def test_of_many_derived_records_the_newest_tell_how_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projections, "_NEWEST_DERIVED", 10)
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path)) as store:
        write(store, 0, 300, every=3)
    with closing(SqliteStore(path)) as store:
        assert 90 <= derived(store) <= 110
        write(store, 300, 306, every=3)
        assert 92 <= derived(store) <= 112
    with closing(SqliteStore(path, namespace="another")) as other:
        write(other, 0, 5, every=5)
        assert derived(other) >= 1, "none is certain only where all were looked at"


def test_what_was_forgotten_before_is_not_looked_through(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path)) as store:
        write(store, 0, 40, every=50)
        store.forget(Filter(ids=[f"r{number}" for number in range(20)]))
    statements: list[str] = []
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        with store._engine.read() as connection:
            connection.set_trace_callback(statements.append)
        assert len(store.search_text({"heron": 1.0}, 50, EVERYTHING)) == 20
        assert statements
        assert not [one for one in statements if "FROM forgotten" in one]
        other.forget(Filter(ids=["r30"]))
        assert len(store.search_text({"heron": 1.0}, 50, EVERYTHING)) == 19
        assert [one for one in statements if "FROM forgotten" in one]
