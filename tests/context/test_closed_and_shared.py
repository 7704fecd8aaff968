"""A closed memory gives no prompt, a failing source is seen, and a pool that a manager holds is in its prompts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.context import ContextOrchestrator, L1RecentSource, RecallSource, ScopeSource
from loom.errors import Closed, InvalidInput
from loom.memory.manager import MemoryManager
from loom.memory.shared_pool import SharedMemoryPool
from loom.protocol import Task


@pytest.mark.parametrize("session", [None, "s"])
def test_a_prompt_of_a_closed_memory_is_refused(session: str | None) -> None:
    memory = loom.open(embedder="none")
    memory.remember("Staging listens on 8443.")
    orchestrator = ContextOrchestrator(memory.counter, [RecallSource(memory), L1RecentSource(memory)])
    memory.close()
    with pytest.raises(Closed):
        memory.context("Which port?", budget=400, session_id=session)
    with pytest.raises(Closed):
        orchestrator.build(query="Which port?", session_id=session)
    with pytest.raises(Closed):
        asyncio.run(orchestrator.build_context(query="Which port?", session_id=session))


@pytest.mark.parametrize("session", [None, "s"])
def test_a_closed_memory_is_refused_while_another_has_its_file_open(tmp_path: Path, session: str | None) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as other:
        other.remember("Staging listens on 8443.", session_id="s")
        memory = loom.open(tmp_path / "a.loom", embedder="none")
        memory.close()
        with pytest.raises(Closed):
            memory.context("Which port?", budget=400, session_id=session)
        assert "8443" in str(other.context("Which port?", budget=400, session_id=session))


def test_a_source_that_failed_is_in_the_notes_and_the_explanation() -> None:
    def broken(task: Task, max_items: int) -> list[str]:
        raise RuntimeError("no connection")

    with loom.open(embedder="none") as memory:
        context = memory.context("Which port?", budget=400, sources=[broken])
    assert "the source broken is missing: RuntimeError: no connection" in context.notes
    assert "no connection" in context.explain()


def test_a_closed_pool_costs_its_part_and_is_named() -> None:
    with loom.open(embedder="none") as other:
        pool = SharedMemoryPool("team", store=other.store)
    with loom.open(embedder="none", shared_pool=pool) as memory:
        memory.remember("Staging listens on 8443.")
        context = memory.context("Which port does staging use?", budget=400)
    assert "8443" in str(context)
    assert any(note.startswith("the source shared is missing: Closed") for note in context.notes)


def shared() -> SharedMemoryPool:
    pool = SharedMemoryPool("team")
    asyncio.run(pool.write("plan", "ship on Friday", writer_id="ana"))
    return pool


@pytest.mark.parametrize("session", [None, "s"])
def test_a_pool_that_is_held_is_in_every_prompt(session: str | None) -> None:
    with loom.open(embedder="none", shared_pool=shared()) as memory:
        for _ in range(2):
            context = memory.context("What is the plan?", budget=400, session_id=session)
            assert str(context.messages).count("[SHARED:plan] ship on Friday") == 1


def test_an_orchestrator_over_a_manager_shows_its_pool_once() -> None:
    pool = shared()
    with MemoryManager("root", embedder="none", shared_pool=pool) as root:
        child = MemoryManager("child", root)
        for sources in ([RecallSource(child)], [ScopeSource(root), L1RecentSource(root)]):
            given: dict[str, Any] = {"token_counter": root.counter, "sources": sources}
            for orchestrator in (ContextOrchestrator(**given), ContextOrchestrator(**given, shared_pool=pool)):
                context = orchestrator.build(query="What is the plan?", budget=400)
                assert str(context.messages).count("[SHARED:plan] ship on Friday") == 1


@pytest.mark.parametrize("pool", ["not a pool", 5, {}, SharedMemoryPool])
def test_what_is_no_pool_is_refused(pool: Any) -> None:
    with pytest.raises(InvalidInput, match="SharedMemoryPool"):
        loom.open(embedder="none", shared_pool=pool)
    with pytest.raises(InvalidInput, match="SharedMemoryPool"):
        ContextOrchestrator(shared_pool=pool)
