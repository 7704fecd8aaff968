"""Texts that are written one after another are embedded together, and no caller waits longer for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import loom
from loom.errors import Closed
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from loom.storage.sqlite.engine import Engine
from loom.storage.sqlite.maintenance import WorkLimits
from loom.storage.sqlite.store import SqliteStore
from loom.storage.sqlite.worker import Fence, Worker

# Texts wait an hour for others to be embedded with, unless a batch is full.
PATIENT = WorkLimits(embed_batch=8, gather_s=3600.0)


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)  # for the condition, never for a time
    return condition()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Memory]:
    with (
        closing(SqliteStore(tmp_path / "agent.loom", limits=PATIENT)) as store,
        Memory(store=store, embedder=FakeEmbedder(dimensions=16), derive=False) as memory,
    ):
        yield memory


def test_flush_embeds_what_is_still_gathering(patient: Memory) -> None:
    for number in range(3):
        patient.remember(f"sentence {number}")
        assert patient.flush().complete
        assert patient.get_stats()["vectors"] == number + 1


def test_a_full_batch_is_embedded_without_waiting_for_more(patient: Memory) -> None:
    for number in range(PATIENT.embed_batch):
        patient.remember(f"sentence {number}")
    assert wait_for(lambda: patient.get_stats()["vectors"] == PATIENT.embed_batch)


def test_a_text_alone_is_embedded_by_itself(tmp_path: Path) -> None:
    with loom.open(tmp_path / "agent.loom", embedder=FakeEmbedder(dimensions=16), derive=False) as memory:
        for number in range(3):
            memory.remember(f"sentence {number}")
            assert wait_for(lambda: memory.get_stats()["jobs"] == 0)
            assert memory.get_stats()["vectors"] == number + 1


def test_the_vectors_of_the_last_few_texts_are_indexed_when_their_tail_is_full(tmp_path: Path) -> None:
    with loom.open(tmp_path / "agent.loom", embedder=FakeEmbedder(dimensions=16), index_tail_records=10) as memory:
        memory.remember([f"sentence {number}" for number in range(10)])
        # One segment of words and one of vectors, and no more writes.
        assert wait_for(lambda: memory.get_stats()["segments"] == 2)


def test_work_that_a_closing_store_did_not_wait_for_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine.acquire(tmp_path / "agent.loom")
    ended = threading.Event()

    def step(_: Fence) -> bool:
        ended.set()
        raise Closed("the memory is closed")

    worker = Worker(engine, "worker", step, lambda _: False, lease_s=10.0)
    with caplog.at_level("INFO", logger="loom.worker"):
        worker.wake()
        assert ended.wait(60)
        assert worker.stop(60)
    engine.release()
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("INFO", None)]


def test_a_wish_made_while_the_worker_is_busy_is_not_lost(tmp_path: Path) -> None:
    engine = Engine.acquire(tmp_path / "agent.loom")
    began, go_on = threading.Event(), threading.Event()
    steps = 0

    def step(_: Fence) -> bool:
        nonlocal steps
        steps += 1
        began.set()
        assert go_on.wait(60)
        return False

    worker = Worker(engine, "worker", step, lambda _: False, lease_s=10.0)
    worker.wake()
    assert began.wait(60)
    worker.wake(within_s=0.01)
    go_on.set()
    assert wait_for(lambda: steps == 2)
    assert worker.stop(60)
    engine.release()
