"""Indexing while idle, so that the next process has little to analyse."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loom.storage.contract import Draft, Filter
from loom.storage.search_view import search_text
from loom.storage.sqlite.projections import TailLimit
from loom.storage.sqlite.store import SqliteStore

NOW = datetime(2024, 5, 15, tzinfo=UTC)


def indexed(store: SqliteStore) -> int:
    """The number of records in segments of the text index."""
    return store.stats()["indexed"]


@pytest.mark.parametrize(("records", "found"), [(9, 0), (10, 10), (11, 11)])
def test_at_rest_an_eighth_of_the_longest_tail_is_indexed(tmp_path: Path, records: int, found: int) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path, tail=TailLimit(80))) as store:
        with store.transaction() as transaction:
            transaction.append([Draft(f"r{number}", f"herons {number}", NOW) for number in range(records)])
        store.flush()
        assert indexed(store) == 0, "while records may come in, a tail is short enough"
        store.vacuum()  # rests first
        assert indexed(store) == found


def test_at_rest_few_long_texts_are_indexed_too(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path, tail=TailLimit(80, 8_000))) as store:
        with store.transaction() as transaction:
            transaction.append([Draft("long", "herons on the pier " * 60, NOW)])
        store.vacuum()
        assert indexed(store) == 1


def test_a_process_that_only_asks_has_a_long_tail_indexed(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path, tail=TailLimit(80))) as store, store.transaction() as transaction:
        transaction.append([Draft(f"r{number}", f"herons {number}", NOW) for number in range(10)])
    with closing(SqliteStore(path, tail=TailLimit(80))) as store:
        assert len(search_text(store, {"heron": 1.0}, 20, Filter())) == 10
        deadline = time.monotonic() + 60
        while indexed(store) < 10 and time.monotonic() < deadline:
            time.sleep(0.05)  # for the condition, never for a time
        assert indexed(store) == 10, "the worker did not rest"
        assert len(search_text(store, {"heron": 1.0}, 20, Filter())) == 10
