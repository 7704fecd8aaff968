"""Names and spellings that users of the design documents expect, with and without `await`."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from loom.context import ContextManager, SlidingWindowStrategy
from loom.errors import Closed, InvalidInput, LoomError, NotPermitted
from loom.fractal.memory import AccessPolicy, FractalMemory, Writers
from loom.fractal.sync import MemorySyncManager
from loom.memory import (
    AccessRecord,
    Fact,
    L4Compressor,
    LoomMemory,
    MemoryManager,
    MemoryType,
    MemoryUnit,
    SharedMemoryPool,
)
from loom.protocol import Task

T = TypeVar("T")
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def now(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.fixture
def root() -> Iterator[MemoryManager]:
    with MemoryManager("root", embedder="none") as manager:
        yield manager


# --- await, or not ---------------------------------------------------------------------------------------


def test_searches_give_a_list_that_may_be_awaited(root: MemoryManager) -> None:
    task = Task(action="execute", parameters={"content": "Repair the heron server."})
    root.add_task(task)
    root.add_fact("The heron server listens on port 8443.")

    async def awaited() -> tuple[list[Task], list[Fact]]:
        return await root.search_tasks("heron server"), await root.search_facts("heron server")

    plain = root.search_tasks("heron server"), root.search_facts("heron server")
    assert plain[0] == [task]
    assert [fact.content for fact in plain[1]] == ["The heron server listens on port 8443."]
    assert now(awaited()) == plain
    assert all(isinstance(one, list) for one in plain)


def test_a_compressor_answers_and_compresses_with_await_and_without() -> None:
    facts = [Fact(f"Fact number {number} is about tide {number}.") for number in range(4)]
    compressor = L4Compressor(threshold=3)

    async def awaited() -> tuple[int, int, list[Fact]]:
        less, more = await compressor.should_compress(facts[:3]), await compressor.should_compress(facts)
        return less, more, await compressor.compress(facts)

    less, more, kept = now(awaited())
    assert (less, more) == (False, True)
    assert (repr(less), repr(more)) == ("False", "True")
    assert kept == compressor.compress(facts)
    assert not compressor.should_compress(facts[:3])
    assert pickle.loads(pickle.dumps(more)) == copy.copy(more) == True  # noqa: E712


# --- scopes ----------------------------------------------------------------------------------------------


def test_a_key_is_looked_for_in_the_scopes_given_and_in_their_order(root: MemoryManager) -> None:
    with MemoryManager("child", parent=root) as child:
        now(root.write("plan", "of the parent", "shared"))
        now(child.write("plan", "of the child", "local"))
        assert str(now(child.read("plan", ["local", "inherited"]))) == "of the child"
        assert str(now(child.read("plan", ("inherited", "local")))) == "of the parent"
        assert now(child.read("plan", ["shared", "global"])) is None
        for wrong in ([], ["everywhere"], 7):
            with pytest.raises(InvalidInput, match="scope"):
                now(child.read("plan", wrong))  # type: ignore[arg-type]


def test_a_write_to_inherited_is_a_permission_error_and_ours(root: MemoryManager) -> None:
    with MemoryManager("child", parent=root) as child, FractalMemory("leaf", parent_memory=child) as leaf:
        for node in (root, child, leaf):
            with pytest.raises(PermissionError, match="write the key as local") as caught:
                now(node.write("plan", 1, "inherited"))
            assert isinstance(caught.value, NotPermitted | LoomError)
            assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_what_the_policies_of_a_tree_forbid_is_a_permission_error_too() -> None:
    policies = {"shared": AccessPolicy(Writers.ROOT, propagates_down=True)}
    with (
        MemoryManager("root", embedder="none", policies=policies) as root,  # type: ignore[arg-type]
        MemoryManager("child", parent=root) as child,
    ):
        with pytest.raises(PermissionError, match="not 'child'"):
            now(child.write("plan", 1, "shared"))
        with pytest.raises(PermissionError, match="do not go up"):
            now(child.sync_to_parent())


def test_what_add_context_adds_is_shared_with_the_nodes_below(root: MemoryManager) -> None:
    now(root.add_context("task:123:content", "任务内容"))
    with MemoryManager("child", parent=root) as child, MemoryManager("grandchild", parent=child) as grandchild:
        for node in (root, child, grandchild):
            assert str(now(node.read("task:123:content"))) == "任务内容"
        now(child.add_context("mine", "for below"))
        assert now(root.read("mine")) is None
        assert str(now(grandchild.read("mine"))) == "for below"
        now(root.add_context("secret", 1, scope="local"))
        assert now(child.read("secret")) is None


def test_a_sync_manager_names_its_memory(root: MemoryManager) -> None:
    memory = FractalMemory("node")
    assert MemorySyncManager(memory).memory is memory
    assert root.sync_manager.memory is root


# --- counts and budgets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_pool_tells_its_size(tmp_path: Path, is_stored: bool) -> None:
    with SharedMemoryPool("team", store=tmp_path / "pool.loom" if is_stored else None) as pool:
        assert pool.size == 0
        for number in range(3):
            now(pool.write(f"key{number % 2}", number))
        assert pool.size == 2
        now(pool.delete("key0"))
        assert pool.size == 1
        now(pool.write("key0", "again"))
        assert pool.size == 2
    with pytest.raises(Closed, match="pool"):
        _ = pool.size


@pytest.mark.parametrize("kind", [LoomMemory, MemoryManager])
def test_a_memory_tells_its_budgets(kind: type[LoomMemory]) -> None:
    given = {"l1_token_budget": 700, "l2_token_budget": 800, "l3_token_budget": 900, "l4_token_budget": 1000}
    with kind("agent", embedder="none", **given) as memory:  # type: ignore[arg-type]
        assert {name: getattr(memory, name) for name in given} == given


def test_an_access_record_has_the_last_two_uses_and_their_number() -> None:
    moments = iter(NOW + timedelta(minutes=number) for number in range(1000))
    with LoomMemory("agent", embedder="none", clock=lambda: next(moments)) as memory:
        id = memory.remember("The harbour code is 7319.").id
        assert memory.access_record(id) == AccessRecord((), 0)
        memory.get(id)
        once = memory.access_record(id)
        assert once is not None
        assert (len(once.timestamps), once.access_count) == (1, 1)
        memory.get(id)
        memory.get(id)
        thrice = memory.access_record(id)
        assert thrice is not None
        assert (len(thrice.timestamps), thrice.access_count) == (2, 3)
        assert thrice.timestamps[0] < thrice.timestamps[1]
        assert memory.access_record("no such") is None


# --- units -----------------------------------------------------------------------------------------------


def unit(number: int, **more: Any) -> MemoryUnit:
    at = NOW + timedelta(minutes=number)
    return MemoryUnit(f"unit {number}", id=f"u{number}", token_count=10, created_at=at, **more)


def test_a_context_manager_chooses_from_the_units_it_is_given() -> None:
    manager = ContextManager(SlidingWindowStrategy(), max_tokens=20)
    manager.add(unit(9))
    given = [unit(number) for number in range(5)]
    assert [one.id for one in manager.build_context(given)] == ["u3", "u4"]
    assert [one.id for one in manager.build_context(given, max_tokens=10)] == ["u4"]
    assert manager.to_messages(given[:1]) == [{"role": "user", "content": "unit 0"}]
    assert [one.id for one in manager.build_context()] == ["u9"]

    async def awaited() -> list[MemoryUnit]:
        return await manager.build_context(given)

    assert [one.id for one in now(awaited())] == ["u3", "u4"]
    for wrong in ("text", [1], 5):
        with pytest.raises(InvalidInput, match=r"build_context\(\) takes a list of MemoryUnit"):
            manager.build_context(wrong)  # type: ignore[arg-type]


def test_a_context_manager_is_a_source_of_prompts(root: MemoryManager) -> None:
    manager = ContextManager(max_tokens=30)
    manager.add(MemoryUnit("The harbour code is 7319.", metadata={"role": "user"}), MemoryUnit("tide " * 200))
    context = root.context("What is the harbour code?", sources=[manager], budget=600)
    assert "The harbour code is 7319." in str(context.messages)
    assert "tide tide" not in str(context.messages)
    assert [item.source for item in context.items] == ["units"]


@pytest.mark.parametrize(
    ("content", "kind", "metadata", "message"),
    [
        ("hello", MemoryType.MESSAGE, {}, {"role": "user", "content": "hello"}),
        ("hello", MemoryType.MESSAGE, {"role": "assistant"}, {"role": "assistant", "content": "hello"}),
        ("hm", MemoryType.THOUGHT, {}, {"role": "assistant", "content": "hm"}),
        ("port 8443", MemoryType.FACT, {}, {"role": "system", "content": "port 8443"}),
        ({"名": "苍鹭"}, MemoryType.FACT, {}, {"role": "system", "content": '{"名": "苍鹭"}'}),
        (
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
            MemoryType.MESSAGE,
            {"role": "user"},
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ),
    ],
)
def test_a_unit_becomes_the_message_that_it_is(
    content: Any, kind: MemoryType, metadata: dict[str, Any], message: dict[str, Any]
) -> None:
    made = MemoryUnit(content, type=kind, metadata=metadata)
    assert made.to_message() == message
    made.to_message()["content"] = "changed"
    assert made.to_message() == message
