"""Background work on several hosts: what they share in one namespace, and several namespaces side by side."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loom.storage import open_store
from loom.storage.contract import Draft, Filter, LeaseLost, Publish, Store
from tests.postgres_server import PostgresServer

pytest.importorskip("psycopg")

import psycopg

NOON = datetime(2026, 2, 3, 12, 0, tzinfo=UTC)
WITHIN_S = 60.0

Execute = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def execute(postgres_server: PostgresServer, postgres_url: str) -> Iterator[Execute]:
    schema = postgres_url.partition("schema=")[2].partition("&")[0]
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:

        def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement.replace("SCHEMA", schema).encode(), values)
            return cursor.fetchall() if cursor.description else []

        yield run


def host(url: str, folder: Path, namespace: str = "default") -> Store:
    """A store with connections, a cache and a worker of its own, as on another host."""
    return open_store(f"{url.partition('&cache=')[0]}&cache={folder}", namespace=namespace)


def filled(store: Store, count: int) -> Store:
    store.use_embedder("of-the-tests", 2, None)
    with store.transaction() as transaction:
        transaction.append([Draft(f"r{number}", f"text {number}", NOON) for number in range(count)])
    return store


class Embedder:
    """Counts what it embeds, and waits for the others of its kind."""

    def __init__(self, meeting: threading.Barrier) -> None:
        self.texts: Counter[str] = Counter()
        self._meeting = meeting
        self._met = False

    def __call__(self, texts: Sequence[str]) -> Any:
        self.texts.update(texts)
        if not self._met:
            self._meeting.wait(WITHIN_S)  # all hosts hold a batch at this moment
            self._met = True
        return np.ones((len(texts), 2), dtype=np.float32)


def test_hosts_embed_one_namespace_side_by_side_and_no_text_twice(postgres_url: str, tmp_path: Path) -> None:
    filled(host(postgres_url, tmp_path / "first"), 400).close()
    meeting = threading.Barrier(3)
    embedders = [Embedder(meeting) for _ in range(3)]
    hosts = [host(postgres_url, tmp_path / str(number)) for number in range(3)]
    try:
        for store, embedder in zip(hosts, embedders, strict=True):
            store.use_embedder("of-the-tests", 2, embedder)
        with ThreadPoolExecutor(3) as threads:
            reports = list(threads.map(lambda store: store.flush(WITHIN_S), hosts))
        assert all(report.complete for report in reports)
        embedded = sum((embedder.texts for embedder in embedders), Counter[str]())
        assert embedded == Counter({f"text {number}": 1 for number in range(400)})
        assert all(embedder.texts for embedder in embedders)
        assert hosts[0].stats()["vectors"] == 400
        assert hosts[0].check().ok
    finally:
        for store in hosts:
            store.close()


def test_namespaces_are_worked_on_side_by_side(postgres_url: str, tmp_path: Path) -> None:
    meeting = threading.Barrier(3)  # none passes it unless all three work at the same time
    hosts = [filled(host(postgres_url, tmp_path / name, name), 20) for name in "abc"]
    try:
        for store in hosts:
            store.use_embedder("of-the-tests", 2, Embedder(meeting))
        with ThreadPoolExecutor(3) as threads:
            assert all(report.complete for report in threads.map(lambda store: store.flush(WITHIN_S), hosts))
    finally:
        for store in hosts:
            store.close()


def take_and_die(url: str, folder: Path, taken: Any) -> None:
    store = host(url, folder)

    def embed(texts: Sequence[str]) -> Any:
        taken.set()
        threading.Event().wait()

    store.use_embedder("of-the-tests", 2, embed)
    store.flush()


def test_jobs_of_a_host_that_died_are_done_by_another(postgres_url: str, tmp_path: Path, execute: Execute) -> None:
    filled(host(postgres_url, tmp_path / "first"), 10).close()
    spawn = multiprocessing.get_context("spawn")
    taken = spawn.Event()
    process = spawn.Process(target=take_and_die, args=(postgres_url, tmp_path / "dead", taken))
    process.start()
    assert taken.wait(WITHIN_S)
    process.kill()
    process.join()
    assert execute("SELECT count(*) FROM SCHEMA.jobs WHERE taken_until IS NOT NULL") == [(10,)]
    meeting = threading.Barrier(1)
    embedder = Embedder(meeting)
    store = host(postgres_url, tmp_path / "other")
    store.use_embedder("of-the-tests", 2, embedder)
    assert not embedder.texts
    execute("UPDATE SCHEMA.jobs SET taken_until = taken_until - 3600000000")  # their time has run out
    execute("UPDATE SCHEMA.leases SET expires_at = 0")
    assert store.flush(WITHIN_S).complete
    assert embedder.texts.total() == 10
    store.close()


def test_a_text_that_is_forgotten_while_it_is_embedded_gets_no_vector(postgres_url: str, tmp_path: Path) -> None:
    store = filled(host(postgres_url, tmp_path / "one"), 5)
    other = host(postgres_url, tmp_path / "other")

    def embed(texts: Sequence[str]) -> Any:
        if other.get("r3") is not None:
            other.forget(Filter(ids=["r3"]))
        return np.ones((len(texts), 2), dtype=np.float32)

    store.use_embedder("of-the-tests", 2, embed)
    assert store.flush(WITHIN_S).complete
    assert store.stats()["vectors"] == 4
    assert store.check().ok
    store.close()
    other.close()


def test_a_host_that_lost_the_lease_while_it_worked_publishes_nothing(
    postgres_url: str, tmp_path: Path, execute: Execute
) -> None:
    store = host(postgres_url, tmp_path / "one")
    outcomes: list[str] = []
    done = threading.Event()

    def chore(publish: Publish, _: bool) -> bool:
        if not outcomes:
            outcomes.append("works")
            # It is paused for longer than its lease, and another host takes the work over.
            execute("UPDATE SCHEMA.leases SET owner = 'another host', number = number + 1")
            try:
                with publish() as transaction:
                    transaction.put_entry("late", 1, writer="one")
                outcomes.append("published")
            except LeaseLost:
                outcomes.append("refused")
                raise
            finally:
                execute("UPDATE SCHEMA.leases SET expires_at = 0")
                done.set()
        return False

    store.add_chore("late", chore)
    store.wake_worker()
    assert done.wait(WITHIN_S)
    store.close()
    assert outcomes == ["works", "refused"]
    assert execute("SELECT count(*) FROM SCHEMA.entries") == [(0,)]
