"""The four tiers behind one interface: add, retrieve, evict, size, clear. Requirements 42-46; C-1."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from loom.errors import InvalidInput
from loom.memory import MemoryTier, TaskSummary
from loom.memory.core import LoomMemory
from loom.memory.layers import (
    CircularBufferLayer,
    KnowledgeLayer,
    MemoryLayer,
    PriorityQueueLayer,
    PriorityTokenLayer,
    SummaryLayer,
    TokenBudgetLayer,
)
from loom.protocol import Task
from loom.text.tokens import TokenCounter
from tests.storage.plain_store import PlainStore

TIERS = list(MemoryTier)
BUDGET = 100


class WordCounter(TokenCounter):
    """A word is a token."""

    name = "words"
    exact = True
    margin = 0.0

    def count(self, text: str) -> int:
        return len(text.split())


@pytest.fixture(params=["sqlite", "plain"])
def memory(request: pytest.FixtureRequest) -> Iterator[LoomMemory]:
    """Every tier has room for ten of the tasks below."""
    budgets: dict[str, Any] = {f"{tier}_token_budget": BUDGET for tier in TIERS}
    store = PlainStore() if request.param == "plain" else None
    with LoomMemory("layers", store=store, embedder="none", token_counter=WordCounter(), **budgets) as opened:
        yield opened


@pytest.fixture(params=TIERS)
def layer(request: pytest.FixtureRequest, memory: LoomMemory) -> MemoryLayer[Any]:
    return memory.layers[request.param]


def task(number: int | str, tokens: int = 10, **fields: Any) -> Task:
    words = " ".join(f"k{number}w{place}" for place in range(tokens - 2))
    return Task(task_id=f"t{number}", action="note", parameters={"c": words}, **fields)


def ids(layer: MemoryLayer[Any], **asked: Any) -> list[str]:
    return [one.task_id for one in layer.retrieve(**asked)]


# --- one interface -----------------------------------------------------------------------------------------


def test_the_names_of_the_second_document_are_the_same_classes() -> None:
    """C-1: token budgets behind the older names."""
    assert CircularBufferLayer is TokenBudgetLayer
    assert PriorityQueueLayer is PriorityTokenLayer


def test_a_memory_has_one_layer_for_each_tier(memory: LoomMemory) -> None:
    """Requirement 46: all four have the interface, L3 and L4 too."""
    assert {tier: type(layer) for tier, layer in memory.layers.items()} == {
        MemoryTier.L1: TokenBudgetLayer,
        MemoryTier.L2: PriorityTokenLayer,
        MemoryTier.L3: SummaryLayer,
        MemoryTier.L4: KnowledgeLayer,
    }
    for tier, layer in memory.layers.items():
        assert layer.tier == tier
        assert isinstance(layer, MemoryLayer)


def test_the_interface_is_abstract() -> None:
    assert inspect.isabstract(MemoryLayer)
    for name in ("add", "retrieve", "evict", "size", "clear", "token_budget", "token_usage"):
        assert hasattr(MemoryLayer, name)


def test_an_empty_layer_says_so(layer: MemoryLayer[Any]) -> None:
    assert layer.size() == len(layer) == layer.token_usage == 0
    assert layer.token_budget == BUDGET
    assert layer.retrieve() == []
    assert layer.clear() == 0
    assert layer.evict(5) == 0


def test_what_is_added_is_retrieved_counted_and_still_there_for_another_view(
    memory: LoomMemory, layer: MemoryLayer[Any]
) -> None:
    receipt = layer.add(task(1))
    assert (receipt.id, receipt.tier, receipt.tokens) == ("t1", layer.tier, 10)
    assert ids(layer) == ["t1"]
    assert (layer.size(), layer.token_usage) == (1, 10)
    assert ids(memory.layers[layer.tier]) == ["t1"]
    assert memory.get_task("t1") == task(1, created_at=memory.get_task("t1").created_at)  # type: ignore[union-attr]


def test_near_tiers_give_tasks_and_far_ones_summaries(layer: MemoryLayer[Any]) -> None:
    """Requirements 42 to 45."""
    layer.add(task(1))
    (found,) = layer.retrieve()
    assert type(found) is (Task if layer.tier in ("l1", "l2") else TaskSummary)


def test_a_layer_takes_texts_and_messages_too(layer: MemoryLayer[Any]) -> None:
    layer.add("端口是 8080", session_id="s1")
    layer.add({"role": "user", "content": "the disk is full"}, importance=0.3)
    assert layer.size() == 2
    assert len(layer.retrieve(session_id="s1")) == 1


@pytest.mark.parametrize("what", [None, 3, "", "  ", ["a list"], object()])
def test_what_cannot_be_kept_is_refused(layer: MemoryLayer[Any], what: Any) -> None:
    with pytest.raises(InvalidInput):
        layer.add(what)
    assert layer.size() == 0


def test_the_budget_holds_however_much_is_added(layer: MemoryLayer[Any]) -> None:
    """Requirement 2; trap: 350 tokens in a budget of 100."""
    for number in range(40):
        layer.add(task(number, 3 + number % 12), importance=(number % 10) / 10)
        assert 0 < layer.token_usage <= BUDGET
        assert layer.size() == len(layer.retrieve())


def test_something_larger_than_the_tier_does_not_empty_it(memory: LoomMemory, layer: MemoryLayer[Any]) -> None:
    """C-1."""
    for number in range(3):
        layer.add(task(number))
    receipt = layer.add(task("giant", 400))
    assert {"t0", "t1", "t2"} <= set(ids(layer))
    assert layer.token_usage <= BUDGET
    assert receipt.tokens == 400
    found = memory.get_task("tgiant")
    assert found is not None
    assert len(found.parameters["c"].split()) == 398
    assert [one.task_id for one in memory.search_tasks("kgiantw200")] == ["tgiant"]


# --- retrieving --------------------------------------------------------------------------------------------


def test_retrieving_takes_a_limit_and_a_session(layer: MemoryLayer[Any]) -> None:
    """Requirement 61."""
    for number in range(6):
        layer.add(task(number, session_id=f"s{number % 2}"), importance=0.5)
    assert len(layer.retrieve()) == 6
    assert len(layer.retrieve(2)) == 2
    assert set(ids(layer, session_id="s1")) == {"t1", "t3", "t5"}
    assert set(ids(layer, limit=1, session_id="s1")) == {"t5"}
    assert layer.retrieve(session_id="another") == []


@pytest.mark.parametrize("limit", [0, -3, 2.0, "2", True])
def test_a_limit_that_is_no_number_of_records_is_refused(layer: MemoryLayer[Any], limit: Any) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        layer.retrieve(limit)


def test_retrieving_is_no_use(memory: LoomMemory, layer: MemoryLayer[Any]) -> None:
    layer.add(task(1))
    for _ in range(3):
        layer.retrieve()
    record = memory.store.get("t1")
    assert record is not None
    assert memory.store.uses(record.seq, memory.node_id) == 0


def test_the_order_of_each_tier(memory: LoomMemory) -> None:
    """Requirements 42 to 45: L1 and the far tiers by arrival, L2 by importance."""
    importances = [0.2, 0.9, 0.4, 0.7]
    for tier, layer in memory.layers.items():
        for number, importance in enumerate(importances):
            layer.add(task(f"{tier}{number}"), importance=importance)
    by_arrival = [0, 1, 2, 3]
    assert ids(memory.l1) == [f"tl1{number}" for number in by_arrival]
    assert [one for one in ids(memory.l2) if one.startswith("tl2")] == [f"tl2{number}" for number in (1, 3, 2, 0)]
    assert ids(memory.l3) == [f"tl3{number}" for number in by_arrival]
    assert ids(memory.l4) == [f"tl4{number}" for number in by_arrival]


def test_each_tier_is_added_to_alone_but_l1_is_the_usual_way_in(memory: LoomMemory) -> None:
    """002 §1.7: add_task(..., L1) is followed by promotion; the others take what they are given."""
    for tier, layer in memory.layers.items():
        layer.add(task(tier), importance=0.9)
    assert ids(memory.l1) == ["tl1"]
    assert set(ids(memory.l2)) == {"tl1", "tl2"}
    assert (ids(memory.l3), ids(memory.l4)) == (["tl3"], ["tl4"])


# --- evicting ----------------------------------------------------------------------------------------------


def test_evicting_frees_at_least_so_many_tokens_and_no_record_more_than_needed(layer: MemoryLayer[Any]) -> None:
    for number in range(6):
        layer.add(task(number), importance=0.5)
    assert layer.evict() == 1
    assert layer.token_usage == 50
    assert layer.evict(11) == 2
    assert layer.token_usage == 30
    assert layer.evict(10) == 1
    assert layer.evict(1000) == 2
    assert layer.size() == layer.token_usage == 0


@pytest.mark.parametrize("tokens", [0, -1, 1.5, "1", True])
def test_evicting_what_is_no_number_of_tokens_is_refused(layer: MemoryLayer[Any], tokens: Any) -> None:
    layer.add(task(1))
    with pytest.raises(InvalidInput, match="tokens"):
        layer.evict(tokens)
    assert layer.size() == 1


def test_who_leaves_first_in_each_tier(memory: LoomMemory) -> None:
    """Requirements 42 to 45: L1, L3, L4 the oldest, L2 the least important."""
    importances = [0.5, 0.55, 0.2, 0.4]
    for tier, layer in memory.layers.items():
        for number, importance in enumerate(importances):
            layer.add(task(f"{tier}{number}"), importance=importance)
    for layer in memory.layers.values():
        layer.evict(11)
    assert ids(memory.l1) == ["tl12", "tl13"]
    assert ids(memory.l2) == ["tl21", "tl20"]
    assert not {"tl30", "tl31"} & set(ids(memory.l3))


def test_what_is_evicted_goes_one_tier_further_and_is_never_lost(memory: LoomMemory) -> None:
    """C-38: migrate, not delete."""
    memory.l2.add(task("a"), importance=0.9)
    memory.l2.evict()
    assert (ids(memory.l2), ids(memory.l3)) == ([], ["ta"])
    memory.l3.evict()
    assert (ids(memory.l3), ids(memory.l4)) == ([], ["ta"])
    memory.l4.evict()
    assert ids(memory.l4) == []
    assert [one.task_id for one in memory.search_tasks("kaw1")] == ["ta"]


def test_evicting_many_at_once_keeps_the_next_tier_within_its_budget(memory: LoomMemory) -> None:
    for number in range(8):
        memory.l3.add(task(f"old{number}"))
        memory.l2.add(task(number), importance=0.9)
    memory.l2.evict(80)
    assert memory.l2.size() == 0
    for layer in memory.layers.values():
        assert layer.token_usage <= BUDGET


# --- clearing ----------------------------------------------------------------------------------------------


def test_clearing_empties_one_tier_and_leaves_everything_to_be_found(
    memory: LoomMemory, layer: MemoryLayer[Any]
) -> None:
    for number in range(4):
        layer.add(task(number), importance=0.5)
    others = {tier: other.size() for tier, other in memory.layers.items() if tier != layer.tier}
    assert layer.clear() == 4
    assert (layer.size(), layer.token_usage, layer.retrieve()) == (0, 0, [])
    assert {tier: memory.layers[tier].size() for tier in others} == others
    assert [memory.search_tasks(f"k{number}w1")[0].task_id for number in range(4)] == ["t0", "t1", "t2", "t3"]
    layer.add(task("next"), importance=0.5)
    assert ids(layer) == ["tnext"]


def test_a_layer_is_shown_with_its_usage(memory: LoomMemory) -> None:
    memory.l1.add(task(1))
    assert repr(memory.l1) == "<TokenBudgetLayer 10 of 100 tokens>"


def test_two_views_of_a_tier_are_one_tier(memory: LoomMemory) -> None:
    """A layer holds nothing itself."""
    first, second = memory.l2, memory.l2
    first.add(task(1), importance=0.7)
    assert ids(second) == ["t1"]
    second.clear()
    assert first.size() == 0
