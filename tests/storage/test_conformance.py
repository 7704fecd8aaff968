"""The SQLite backend keeps the storage contract, on a file and in memory, and so does a backend without SQL."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from loom.storage import open_store
from loom.storage.conformance import StoreConformance
from loom.storage.contract import Store
from loom.storage.sqlite.projections import TailLimit
from loom.storage.sqlite.store import SqliteStore
from tests.postgres_server import PostgresServer
from tests.storage.plain_store import PlainDatabase, PlainStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


class TestSqliteFile(StoreConformance):
    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        return SqliteStore(folder / "a.loom", namespace=namespace)


class TestSqliteFileWithATinyTail(StoreConformance):
    """Nearly everything is read from segments, and merged all the time."""

    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        return SqliteStore(folder / "a.loom", namespace=namespace, tail=TailLimit(2))


class TestSqliteInMemory(StoreConformance):
    durable = False

    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        return SqliteStore(None, namespace=namespace)


class _OnPostgres(StoreConformance):
    @pytest.fixture(autouse=True)
    def _serve(self, postgres_server: PostgresServer, folder: Path) -> None:
        self.url = postgres_server.store_url(folder)


class TestPostgres(_OnPostgres):
    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        return open_store(self.url, namespace=namespace)


class TestPostgresWithATinyTail(_OnPostgres):
    """Nearly everything is read from segments, which are fetched from the server."""

    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        return open_store(self.url, namespace=namespace, tail=(2, 4_000_000))


class TestPlainStore(StoreConformance):
    """Stores of one folder share a database, in this process."""

    databases: ClassVar[dict[Path, PlainDatabase]] = {}

    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        return PlainStore(self.databases.setdefault(folder, PlainDatabase()), namespace=namespace)


def test_a_backend_that_makes_no_store_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        StoreConformance().make_store(tmp_path)
