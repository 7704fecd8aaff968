"""Memories and pools that outlive the store that they were given: they say so once, and hold up no other memory."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import loom
from loom.errors import Closed
from loom.events import EventBus
from loom.memory import MemoryManager, SharedMemoryPool
from loom.storage.sqlite.store import SqliteStore


def about(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if record.levelno >= logging.INFO]


def test_children_of_a_closed_parent_do_not_hold_up_other_handles(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loom")
    with loom.open(tmp_path / "a.loom", embedder="none", node_id="other") as other:
        parent = loom.open(tmp_path / "a.loom", embedder="none", node_id="parent")
        children = [MemoryManager(f"child {number}", store=parent.store, embedder="none") for number in range(3)]
        parent.close()
        caplog.clear()
        for number in range(5):
            other.remember(f"I moved to Berlin in 20{number:02}.", role="user", name="Ana")
            assert other.flush().complete
        assert other.facts()
        assert about(caplog.records) == []
        for child in children:
            with pytest.raises(Closed):
                child.recall("Berlin")
            child.close()


def test_a_chore_whose_store_closes_under_it_ends_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loom")
    with loom.open(tmp_path / "a.loom", embedder="none") as other:
        store = SqliteStore(tmp_path / "a.loom", close_timeout_s=0.0)
        calls: list[int] = []

        def chore(publish: object, thorough: bool) -> bool:
            calls.append(1)
            raise Closed("the memory is closed; open it again to use it")

        store.add_chore("outlived", chore)
        for number in range(5):
            other.remember(f"note {number}")
            assert other.flush().complete
        assert calls == [1]
        assert len(about(caplog.records)) == 1
        store.close()


def test_a_child_on_a_bus_says_once_that_its_store_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def heard() -> None:
        bus = EventBus()
        parent = loom.open(tmp_path / "a.loom", embedder="none")
        child = MemoryManager("child", store=parent.store, embedder="none", event_bus=bus)
        await bus.publish(loom.Task(action="hello", source_agent="child"))
        parent.close()
        caplog.clear()
        for _ in range(10):
            await bus.publish(loom.Task(action="hello", source_agent="child"))
        child.close()

    caplog.set_level(logging.INFO, "loom")
    asyncio.run(heard())
    assert len(about(caplog.records)) == 1
    assert "its store was closed" in about(caplog.records)[0]


def test_a_watch_of_a_pool_ends_when_the_store_of_the_pool_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def watched() -> list[str]:
        parent = loom.open(tmp_path / "a.loom", embedder="none")
        pool = SharedMemoryPool("team", store=parent.store)
        await pool.write("a", "1", "ana")
        seen: list[str] = []
        async for change in pool.watch(since=0):
            seen.append(change.key)
            parent.close()
        return seen

    caplog.set_level(logging.INFO, "loom")
    assert asyncio.run(asyncio.wait_for(watched(), 60)) == ["a"]
    assert about(caplog.records) == []
