"""The reads of a process before its first answer do not grow with the database."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from loom.storage.contract import Draft, Filter
from loom.storage.search_view import search_text
from loom.storage.sqlite.namespace_index import NEWEST_DERIVED, NamespaceIndex
from loom.storage.sqlite.store import SqliteStore

NOW = datetime(2024, 5, 15, tzinfo=UTC)
EVERYTHING = Filter()


def write(store: SqliteStore, first: int, last: int, every: int) -> None:
    """Records, and one that was derived from every `every`-th of them."""
    drafts = []
    for number in range(first, last):
        drafts.append(Draft(f"r{number}", f"herons {number}", NOW))
        if number % every == 0:
            drafts.append(
                Draft(f"d{number}", f"herons drawn {number}", NOW, kind="fact", sources=(f"r{number}",), drawn=True)
            )
    with store.transaction() as transaction:
        transaction.append(drafts)


class Reader:
    """The index that a process holds, on its own beside the one of the store."""

    def __init__(self, store: SqliteStore, newest_derived: int = NEWEST_DERIVED) -> None:
        self._store = store
        with store.transaction() as transaction:
            self._index = NamespaceIndex(store.engine, transaction.namespace, newest_derived)

    def derived(self) -> int:
        with self._store.engine.read() as connection:
            self._index.refresh(connection)
        return self._index.derived


def test_few_derived_records_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path)) as store:
        reader = Reader(store)
        assert reader.derived() == 0
        write(store, 0, 60, every=3)
        assert reader.derived() == 20
        other = Reader(store)
        assert other.derived() == 20
        write(store, 60, 66, every=2)
        assert other.derived() == 23, "what is written is counted as it comes"
        store.forget(Filter(ids=["r0", "r3"]))
        assert other.derived() == 21
        with closing(SqliteStore(path, namespace="another")) as another:
            assert Reader(another).derived() == 0


def test_of_many_derived_records_the_newest_tell_how_many_there_are(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path)) as store:
        write(store, 0, 300, every=3)
        reader = Reader(store, newest_derived=10)
        assert 90 <= reader.derived() <= 110
        write(store, 300, 306, every=3)
        assert 92 <= reader.derived() <= 112
    with closing(SqliteStore(path, namespace="another")) as other:
        write(other, 0, 5, every=5)
        assert Reader(other, newest_derived=10).derived() >= 1, "none is certain only where all were looked at"


def test_what_was_forgotten_before_is_not_looked_through(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path)) as store:
        write(store, 0, 40, every=50)
        store.forget(Filter(ids=[f"r{number}" for number in range(20)]))
    statements: list[str] = []
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        with store.engine.read() as connection:
            connection.set_trace_callback(statements.append)
        assert len(search_text(store, {"heron": 1.0}, 50, EVERYTHING)) == 20
        assert statements
        assert not [one for one in statements if "FROM forgotten" in one]
        other.forget(Filter(ids=["r30"]))
        assert len(search_text(store, {"heron": 1.0}, 50, EVERYTHING)) == 19
        assert [one for one in statements if "FROM forgotten" in one]
