"""The SQLite backend keeps the storage contract, on a file and in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom.storage.conformance import StoreConformance
from loom.storage.contract import Store
from loom.storage.sqlite.projections import TailLimit
from loom.storage.sqlite.store import SqliteStore


class SqliteConformance(StoreConformance):
    def prepare_vectors(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        store.use_embedder("given", self.dimensions, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


class TestSqliteFile(SqliteConformance):
    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        return SqliteStore(folder / "a.loom", namespace=namespace)


class TestSqliteFileWithATinyTail(SqliteConformance):
    """Nearly everything is read from segments, and merged all the time."""

    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        return SqliteStore(folder / "a.loom", namespace=namespace, tail=TailLimit(2))


class TestSqliteInMemory(SqliteConformance):
    durable = False

    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        return SqliteStore(None, namespace=namespace)


def test_a_backend_that_makes_no_store_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        StoreConformance().make_store(tmp_path)
