"""A writer that holds the file: readers answer at once, and close() closes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import loom
from loom.errors import StoreBusy
from loom.storage.sqlite import maintenance
from loom.storage.sqlite.engine import Engine
from loom.storage.sqlite.store import SqliteStore
from loom.storage.sqlite.worker import Worker

NEVER = 3600.0  # a wait for the lock would be noticed: the test would not end


@contextmanager
def writer(path: Path) -> Iterator[None]:
    """Another program that holds the write lock."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=NEVER)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[loom.Memory]:
    opened = loom.open(tmp_path / "a.loom", embedder="none", derive=False, busy_timeout_s=NEVER)
    yield opened
    opened.close()


def test_reads_note_their_uses_later(memory: loom.Memory, tmp_path: Path) -> None:
    ids = [memory.remember(f"The number {number} is remembered.").id for number in range(300)]
    memory.flush()
    with writer(tmp_path / "a.loom"):
        for id in ids:
            assert memory.get(id) is not None
        assert memory.recall("number 7")
        assert memory.get_stats()["records"] == 300
        assert memory.check(repair=False).ok
        assert memory.list(limit=5)
        seq = memory.store.records(range(1000)).popitem()[0]
        memory.store.touch([seq, seq], "default")
        assert memory.store.accesses([seq], "default")[seq].count >= 2
    memory.flush()
    with sqlite3.connect(tmp_path / "a.loom") as connection:
        assert connection.execute("SELECT count(*) FROM accesses").fetchone()[0] >= 1


def test_a_prompt_of_a_session_comes_without_its_layout(memory: loom.Memory, tmp_path: Path) -> None:
    memory.remember({"role": "user", "content": "I live in Berlin."}, session_id="s")
    memory.flush()
    with writer(tmp_path / "a.loom"):
        context = memory.context("Where do I live?", session_id="s", budget=1000)
        assert "Berlin" in str(context.messages)
        assert "read-only or busy" in str(context.notes)
    assert memory.context("Where do I live?", session_id="s", budget=1000).notes == ()


def test_opening_does_not_wait(memory: loom.Memory, tmp_path: Path) -> None:
    memory.remember("Nothing to settle.")
    with writer(tmp_path / "a.loom"):
        loom.open(tmp_path / "a.loom", read_only=True).close()
        with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as another:
            assert another.list()


def test_close_closes_and_stops_the_worker(tmp_path: Path) -> None:
    others = set(threading.enumerate())  # a memory that another test left open has a worker too
    memory = loom.open(tmp_path / "a.loom", embedder="none", derive=False, busy_timeout_s=NEVER)
    ids = [memory.remember(f"The number {number} is remembered.").id for number in range(20)]
    memory.flush()
    with writer(tmp_path / "a.loom"):
        for id in ids:
            memory.get(id)
        memory.store.wake_worker()  # it waits for the lock
        workers = [one for one in threading.enumerate() if one.name == "loom-worker" and one not in others]
        assert workers
        memory.close()
        memory.close()
        assert not [one for one in workers if one.is_alive()]
        with pytest.raises(loom.LoomError, match="closed"):
            memory.get(ids[0])
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as again:
        assert len(again.list(limit=100).records) == 20


@pytest.mark.parametrize("failing", ["remove_chores", "worker"])
def test_close_lets_go_of_the_file_when_the_background_work_cannot_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    store = SqliteStore(tmp_path / "a.loom")
    released: list[bool] = []
    release = Engine.release

    def noted(engine: Engine, wait_s: float = 5.0) -> bool:
        released.append(release(engine, wait_s))
        return released[-1]

    monkeypatch.setattr(Engine, "release", noted)

    def fail(*_: object) -> None:
        raise RuntimeError("cannot be stopped")

    if failing == "worker":
        monkeypatch.setattr(Worker, "stop", fail)
    else:
        monkeypatch.setattr(store, "remove_chores", fail)
    with pytest.raises(RuntimeError, match="cannot be stopped"):
        store.close()
    store.close()
    assert released == [True]


def test_a_second_close_leaves_other_handles_of_the_file_open(tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path / "a.loom"), SqliteStore(tmp_path / "a.loom")
    first.close()
    first.close()
    with second.transaction() as transaction:
        transaction.put_blob("key", b"value")
    second.close()


def test_a_writer_still_gives_up_after_its_time(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.loom", busy_timeout_s=0.3)
    with writer(tmp_path / "a.loom"), pytest.raises(StoreBusy), store.transaction():
        pass
    store.close()


def test_uses_that_cannot_be_written_stay_bounded() -> None:
    buffer = maintenance.AccessBuffer(1)
    for record in range(100_000):
        buffer.add([record], "node", record)
    assert buffer.of(99_999, "node") == maintenance.BufferedUses(1, 99_999, None)
    assert len(buffer) <= 10_000
