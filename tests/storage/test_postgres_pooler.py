"""pgbouncer in transaction mode between loom and the server: each transaction may get another session."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.models.embedders import FakeEmbedder
from loom.storage import open_store
from tests.postgres_server import PostgresServer, running_pooler

pytest.importorskip("psycopg")

import psycopg


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    if shutil.which("pgbouncer") is None and not Path("/usr/sbin/pgbouncer").exists():
        pytest.skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
    with running_pooler(postgres_server, pool_size=3) as pooler:
        yield pooler


def test_many_clients_share_three_sessions_without_a_trace(pooler: PostgresServer, tmp_path: Path) -> None:
    url = pooler.store_url(tmp_path)
    options: dict[str, Any] = {"embedder": FakeEmbedder(dimensions=16), "index_tail_records": 16, "derive": False}
    with (
        loom.open(url, **options) as one,
        loom.open(f"{url.partition('&cache=')[0]}&cache={tmp_path / 'other'}", **options) as other,
    ):

        def live(number: int) -> None:
            memory = other if number % 2 else one
            receipt = memory.remember(f"The lighthouse q{number}q stands in the north.", session_id=f"s{number % 5}")
            memory.remember([{"role": "user", "content": f"Ship {number}-{line} is late."} for line in range(9)])
            assert memory.recall(f"q{number}q", limit=1)[0].id == receipt.id
            memory.update(receipt.id, f"The lighthouse q{number}q stands in the south.")
            memory.pin(receipt.id)
            assert memory.context(f"Where is q{number}q?", budget=300).messages
            memory.unpin(receipt.id)
            if number % 3 == 0:
                memory.forget(receipt.id)

        with ThreadPoolExecutor(24) as threads:
            list(threads.map(live, range(48)))
        assert one.flush().complete
        assert one.get_stats()["records"] == 48 * 9 + 32 * 2
        assert one.check().ok
        assert other.check(repair=False).ok
    with psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as connection:
        for _ in range(6):
            assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
            assert connection.execute(
                "SELECT current_setting('lock_timeout'), current_setting('search_path')"
            ).fetchone() == ("0", '"$user", public')


def test_a_pooler_is_noticed_and_nothing_is_prepared(pooler: PostgresServer, tmp_path: Path) -> None:
    store = open_store(pooler.store_url(tmp_path))
    assert not store.engine.server.prepared.is_allowed  # type: ignore[attr-defined]
    store.close()
