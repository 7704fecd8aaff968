"""LoomMemory: which records enter and leave each tier, and that none is lost.

Requirements 42-61; C-1, C-10, C-11, C-37 to C-39; the traps under "Tiers and budgets".
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.drafts import task_text
from loom.errors import Closed, IdConflict, InvalidInput, OverBudget, ReadOnly, SettingsConflict
from loom.events import EventBus
from loom.memory import Fact, FactType, MemoryTier, TaskSummary
from loom.memory.core import LoomMemory
from loom.models.embedders import FakeEmbedder
from loom.protocol import Task, TaskStatus
from loom.storage.contract import Filter
from loom.storage.sqlite.store import SqliteStore
from loom.storage.sqlite.transactions import SqliteTransaction
from loom.text.sanitizer import ContentSanitizer
from loom.text.tokens import TokenCounter

IMPORTANT = 0.9
SMALL: dict[str, Any] = {f"l{tier}_token_budget": 100 for tier in (1, 2, 3, 4)}


class WordCounter(TokenCounter):
    """A word is a token, so that the numbers in these tests can be checked by hand."""

    name = "words"
    exact = True
    margin = 0.0

    def count(self, text: str) -> int:
        return len(text.split())


WORDS = WordCounter()


def task(number: int | str, tokens: int = 10, **fields: Any) -> Task:
    """A task of exactly this many tokens, with words of its own; its stand-in has the same number up to about
    fifteen."""
    fields = {"task_id": f"t{number}", "action": "note"} | fields
    words = " ".join(f"k{number}w{place}" for place in range(tokens - 2))
    return Task(parameters={"c": words}, **fields)


def opened(store: SqliteStore | Path | None = None, node: str = "agent", **options: Any) -> LoomMemory:
    given: dict[str, Any] = {"embedder": "none", "token_counter": WORDS} | options
    return LoomMemory(node, store=store, **given)


@pytest.fixture
def memory() -> Iterator[LoomMemory]:
    with opened() as found:
        yield found


@pytest.fixture
def small() -> Iterator[LoomMemory]:
    """Every tier has room for ten tasks."""
    with opened(l1_token_budget=100, l2_token_budget=100, l3_token_budget=100, l4_token_budget=100) as found:
        yield found


def ids(found: list[Task] | list[TaskSummary]) -> list[str]:
    return [one.task_id for one in found]


def real_usage(memory: LoomMemory) -> dict[str, int]:
    """Counted from the records that the tiers return."""
    count = memory.counter.count

    def text(one: Task) -> str:
        """A record that is not a task, such as a fact, is returned as a task and counted by its own text."""
        if one.metadata.get("stand_in"):
            return str(one.parameters["summary"])
        return str(one.parameters["content"]) if one.action in ("fact", "message") else task_text(one)

    l1 = [count(text(one)) for one in memory.get_l1_tasks()]
    l2 = [count(text(one)) for one in memory.get_l2_tasks()]
    l3 = [count(one.text) for one in memory.get_l3_summaries()]
    l4 = [count(one.text) for one in memory.l4.retrieve()]
    found: dict[str, int] = {}
    for name, sizes in zip(("l1", "l2", "l3", "l4"), (l1, l2, l3, l4), strict=True):
        found |= {f"{name}_token_usage": sum(sizes), f"{name}_items": len(sizes)}
    return found


def assert_books_are_right(memory: LoomMemory) -> None:
    stats = memory.get_stats()
    assert {name: stats[name] for name in real_usage(memory)} == real_usage(memory)
    for tier in MemoryTier:
        assert stats[f"{tier}_token_usage"] <= stats[f"{tier}_token_budget"]


# --- importance --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "importance"),
    [
        ("node.error", 0.9),
        ("node.planning", 0.8),
        ("node.tool_result", 0.75),
        ("node.tool_call", 0.7),
        ("execute", 0.65),
        ("node.complete", 0.6),
        ("node.thinking", 0.55),
        ("anything else", 0.5),
    ],
)
def test_an_action_has_its_importance_and_more_than_sixty_percent_comes_to_l2(
    memory: LoomMemory, action: str, importance: float
) -> None:
    """Requirements 48, 54; C-11: node.complete is 0.6, which is not more than 0.6."""
    memory.add_task(task(1, action=action))
    record = memory.get("t1")
    assert record is not None
    assert record.importance == importance
    assert ids(memory.get_l1_tasks()) == ["t1"]
    assert ids(memory.get_l2_tasks()) == (["t1"] if importance > 0.6 else [])


@pytest.mark.parametrize(("importance", "comes"), [(0.0, False), (0.6, False), (0.601, True), (1.0, True), (1, True)])
def test_a_given_importance_wins_over_the_action(memory: LoomMemory, importance: float, comes: bool) -> None:
    """Requirements 43, 48, 55."""
    memory.add_task(task(1, action="execute"), importance=importance)
    assert ids(memory.get_l2_tasks()) == (["t1"] if comes else [])


def test_the_importance_in_the_metadata_wins_over_the_action_and_the_call_over_both(memory: LoomMemory) -> None:
    """Requirements 35, 55."""
    memory.add_task(task(1, action="node.error", metadata={"importance": 0.2}))
    memory.add_task(task(2, metadata={"importance": 0.7}))
    memory.add_task(task(3, metadata={"importance": 0.7}), importance=0.1)
    found = [memory.get(f"t{number}") for number in (1, 2, 3)]
    assert [one.importance for one in found if one] == [0.2, 0.7, 0.1]
    assert ids(memory.get_l2_tasks()) == ["t2"]


@pytest.mark.parametrize("importance", [-0.1, 1.1, float("nan"), "0.8", True])
def test_an_importance_that_is_no_share_is_refused_and_nothing_is_kept(memory: LoomMemory, importance: Any) -> None:
    with pytest.raises(InvalidInput, match="importance"):
        memory.add_task(task(1), importance=importance)
    assert memory.get_task("t1") is None


def test_a_given_importance_counts_for_a_task_that_was_heard_before(memory: LoomMemory) -> None:
    """Requirement 55, after 59: the bus brings a task with its ordinary importance, then a caller raises it."""
    heard = task(1)
    memory.add_task(heard)
    memory.add_task(heard, importance=IMPORTANT)
    assert ids(memory.get_l2_tasks()) == ["t1"]
    assert_books_are_right(memory)


def test_an_importance_given_later_decides_the_order_of_l2(memory: LoomMemory) -> None:
    heard, known = task(1), task(2)
    memory.add_task(heard)
    memory.add_task(known, importance=0.65)
    memory.add_task(task(3), importance=0.7)
    memory.add_task(heard, importance=0.95)
    memory.add_task(known, importance=0.9)
    assert ids(memory.get_l2_tasks()) == ["t1", "t2", "t3"]
    assert memory.recall("k1w1")[0].importance == 0.95
    assert_books_are_right(memory)


def test_an_importance_given_later_decides_who_leaves_l2() -> None:
    with opened(l2_token_budget=100) as memory:
        raised = task("raised")
        memory.add_task(raised, importance=0.65)
        for number in range(7):
            memory.add_task(task(number), importance=0.7)
        memory.add_task(raised, importance=0.95)
        memory.add_task(task("last"), importance=0.7)
        assert ids(memory.get_l2_tasks(limit=1)) == ["traised"]
        assert len(memory.get_l3_summaries()) == 1
        assert_books_are_right(memory)


def test_an_importance_given_later_lasts_when_the_bus_brings_the_next_version() -> None:
    """Requirements 55, 59: heard, called important, and heard again when it is done."""
    bus = EventBus()
    with opened(event_bus=bus) as memory:
        work = task(1)
        bus.publish_sync(work)
        memory.add_task(work, importance=IMPORTANT)
        work.status = TaskStatus.COMPLETED
        bus.publish_sync(work)
        assert memory.get_l1_tasks() == memory.get_l2_tasks() == [work]


def test_a_given_tier_counts_for_a_task_that_was_heard_before(memory: LoomMemory) -> None:
    """Requirement 57: add_task() to a given tier."""
    known = task(1)
    memory.add_task(known)
    memory.add_task(known, MemoryTier.L3)
    assert ids(memory.get_l3_summaries()) == ["t1"]
    assert_books_are_right(memory)


def test_a_task_that_was_important_is_important_when_it_is_done(memory: LoomMemory) -> None:
    """Requirement 55: its next version is still the task that a caller marked as important."""
    work = task(1)
    memory.add_task(work, importance=IMPORTANT)
    work.status = TaskStatus.COMPLETED
    work.result = "done"
    memory.add_task(work)
    assert [one.status for one in memory.get_l2_tasks()] == [TaskStatus.COMPLETED]


# --- L1: the newest that fit -------------------------------------------------------------------------------


def test_l1_keeps_the_newest_tasks_that_fit_and_gives_them_in_their_order() -> None:
    """Requirements 2, 42: FIFO by tokens, not by number."""
    with opened(l1_token_budget=50) as memory:
        for number in range(6):
            memory.add_task(task(number))
        assert ids(memory.get_l1_tasks()) == ["t1", "t2", "t3", "t4", "t5"]
        memory.add_task(task("big", 25))
        assert ids(memory.get_l1_tasks()) == ["t4", "t5", "tbig"]
        assert memory.get_stats()["l1_token_usage"] == 45
        memory.add_task(task("exact", 50))
        assert ids(memory.get_l1_tasks()) == ["texact"]


def test_the_window_follows_what_others_do_to_its_records(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with loom.open(path, embedder="none", derive=False) as memory, loom.open(path, embedder="none") as other:
        for number in range(4):
            memory.remember(f"note {number}", id=f"n{number}", metadata={"seen": [number]})
        first = memory.manager.get_l1_tasks()
        first[0].metadata["seen"].append("mine alone")
        first[1].parameters["content"] = "changed"
        other.forget("n2")
        other.update("n3", "note 3, corrected")
        other.remember("note 4")
        now = memory.manager.get_l1_tasks()
        texts = [task.parameters["content"] for task in now]
        assert texts == ["note 0", "note 1", "note 3, corrected", "note 4"]
        assert now[0].metadata["seen"] == [0]
        assert "note 2" not in repr(memory.manager.tiers.cached)  # what is forgotten elsewhere is let go here
        memory.forget("n0")
        assert [task.parameters["content"] for task in memory.manager.get_l1_tasks(2)] == texts[2:]
        assert [task.parameters["content"] for task in memory.manager.get_l1_tasks()] == texts[1:]


def test_nothing_stays_in_l1_that_is_older_than_what_has_left() -> None:
    """Requirement 42: first in, first out, also where an older and smaller task would still fit."""
    with opened(l1_token_budget=50) as memory:
        memory.add_task(task("old"))
        memory.add_task(task("large", 40))
        assert ids(memory.get_l1_tasks()) == ["told", "tlarge"]
        memory.add_task(task("new", 15))
        assert ids(memory.get_l1_tasks()) == ["tnew"]


def test_what_leaves_l1_is_still_got_and_found(small: LoomMemory) -> None:
    """C-38: dropped from L1 only."""
    for number in range(30):
        small.add_task(task(number))
    assert "t0" not in ids(small.get_l1_tasks())
    assert small.get_task("t0") == small.search_tasks("k0w1")[0]
    assert [small.search_tasks(f"k{number}w3", limit=1)[0].task_id for number in range(30)] == [
        f"t{number}" for number in range(30)
    ]


def test_a_task_comes_back_exactly_as_it_was(memory: LoomMemory) -> None:
    """Requirement 42: L1 and L2 hold the full task."""
    whole = Task(
        action="node.tool_call",
        parameters={"工具": "search", "limits": [1, 2.5, None, True]},
        result={"行": ["甲", "乙"]},
        error="partly",
        status=TaskStatus.RUNNING,
        session_id="s1",
        parent_task_id="p1",
        source_agent="a",
        target_agent="b",
        metadata={"importance": 0.7, "_container_depth": 2},
    )
    memory.add_task(whole)
    assert memory.get_task(whole.task_id) == whole
    assert memory.get_l1_tasks() == memory.get_l2_tasks() == [whole]


def test_what_is_handed_out_is_a_copy(memory: LoomMemory) -> None:
    memory.add_task(task(1))
    memory.get_l1_tasks()[0].parameters["c"] = "changed"
    assert memory.get_l1_tasks() == memory.search_tasks("k1w1")
    found = memory.get_task("t1")
    assert found is not None
    assert found.parameters["c"] != "changed"


def test_a_new_version_takes_the_place_of_the_old_one_in_every_tier(small: LoomMemory) -> None:
    work = task(1, action="execute")
    small.add_task(work)
    work.result = "fertig"
    work.status = TaskStatus.COMPLETED
    receipt = small.add_task(work)
    assert (receipt.version, receipt.created) == (2, True)
    assert small.get_l1_tasks() == small.get_l2_tasks() == [work]
    assert [one.result for one in small.search_tasks("k1w1")] == ["fertig"]
    assert_books_are_right(small)


def test_a_new_version_takes_the_place_of_a_summary_too(small: LoomMemory) -> None:
    work = task(1)
    small.add_task(work, "l3")
    small.add_task(task(2), "l4")
    work.error = "late"
    small.add_task(work)
    assert all(one.result_summary for one in small.get_l3_summaries())
    assert_books_are_right(small)


def test_an_id_that_names_another_kind_of_memory_is_refused(memory: LoomMemory) -> None:
    """A task cannot be the next version of a fact, nor a fact of a task: a mistaken id must not remove either."""
    memory.add_fact(Fact("the port is 8080", id="same"))
    with pytest.raises(IdConflict, match="fact"):
        memory.add_task(task("x", task_id="same"))
    assert [one.id for one in memory.search_facts("port")] == ["same"]
    memory.add_task(task(1))
    with pytest.raises(IdConflict, match="task"):
        memory.add_fact(Fact("the port is 9090", id="t1"))
    assert ids(memory.search_tasks("k1w1")) == ["t1"]
    assert_books_are_right(memory)


def test_uses_are_those_of_a_memory_and_not_of_one_version(memory: LoomMemory) -> None:
    """Requirement 22: access_count goes on when the fact is confirmed."""
    memory.add_fact(Fact("the port is 8080", id="fact_1"))
    for _ in range(3):
        memory.get_fact("fact_1")
    memory.add_fact(Fact("the port is 8080", id="fact_1", confidence=0.95))
    found = memory.get_fact("fact_1")
    assert found is not None
    assert (found.confidence, found.access_count) == (0.95, 4)


# --- L2: the important ones --------------------------------------------------------------------------------


def test_l2_gives_the_most_important_first(memory: LoomMemory) -> None:
    """Requirement 43; 57."""
    for number, importance in enumerate([0.7, 0.95, 0.61, 0.8]):
        memory.add_task(task(number), importance=importance)
    assert ids(memory.get_l2_tasks()) == ["t1", "t3", "t0", "t2"]
    assert ids(memory.get_l2_tasks(limit=2)) == ["t1", "t3"]


def test_l2_acts_at_eighty_five_percent_and_frees_to_eighty_by_the_least_important() -> None:
    """Requirement 49."""
    with opened(l2_token_budget=200) as memory:
        for number in range(16):
            memory.add_task(task(number), importance=0.95 - number / 100)
        assert memory.get_stats()["l2_token_usage"] == 160
        memory.add_task(task("a", 9), importance=0.99)
        assert memory.get_stats()["l2_token_usage"] == 169  # just below 85 %
        assert memory.get_l3_summaries() == []
        memory.add_task(task("b", 3), importance=0.98)  # 172: over it, and 12 must go
        assert memory.get_stats()["l2_token_usage"] == 152
        assert ids(memory.get_l3_summaries()) == ["t14", "t15"]
        assert ids(memory.get_l2_tasks(limit=2)) == ["ta", "tb"]
        assert_books_are_right(memory)


def test_l2_acts_at_exactly_eighty_five_percent() -> None:
    """Requirement 49: "reaches"."""
    with opened(l2_token_budget=100) as memory:
        for number in range(7):
            memory.add_task(task(number), importance=IMPORTANT)
        memory.add_task(task("x", 15), importance=IMPORTANT)
        assert memory.get_stats()["l2_token_usage"] <= 80
        assert len(memory.get_l3_summaries()) == 1


def test_the_least_important_leaves_even_if_it_came_last() -> None:
    """Trap: the most important leaves instead of the least, by a heap of negated scores."""
    with opened(l2_token_budget=100) as memory:
        for number in range(8):
            memory.add_task(task(number), importance=IMPORTANT)
        memory.add_task(task("least"), importance=0.61)
        assert ids(memory.get_l3_summaries()) == ["tleast"]
        assert memory.add_task(task("more"), importance=1.0).tier == MemoryTier.L1
        assert ids(memory.get_l2_tasks(limit=1)) == ["tmore"]


def test_as_many_leave_as_have_to_however_large_the_newcomer_is() -> None:
    """Trap: one victim whatever the size."""
    with opened(l2_token_budget=100) as memory:
        for number in range(8):
            memory.add_task(task(number), importance=0.7)
        memory.add_task(task("large", 70), importance=0.95)
        assert memory.get_stats()["l2_token_usage"] == 80
        assert ids(memory.get_l2_tasks())[0] == "tlarge"
        assert len(memory.get_l2_tasks()) == 2
        assert len(memory.get_l3_summaries()) == 7
        assert_books_are_right(memory)


def test_what_leaves_l2_has_a_summary_in_l3_and_its_original_whole_in_the_log() -> None:
    """Requirements 44, 49; C-37."""
    with opened(l1_token_budget=20, l2_token_budget=100) as memory:
        originals = [task(number, 10, session_id="s1", result="ok") for number in range(20)]
        for one in originals:
            memory.add_task(one, importance=0.8)
        summaries = {one.task_id: one for one in memory.get_l3_summaries()}
        assert len(summaries) >= 11
        for one in originals:
            assert memory.get_task(one.task_id) == one
            if one.task_id in summaries:
                summary = summaries[one.task_id]
                assert (summary.action, summary.session_id, summary.importance) == ("note", "s1", 0.8)
                assert summary.result_summary == "ok"


def test_a_task_may_be_put_into_l2_alone(memory: LoomMemory) -> None:
    """Requirement 57: to a given tier."""
    receipt = memory.add_task(task(1), MemoryTier.L2)
    assert receipt.tier == MemoryTier.L2
    assert ids(memory.get_l2_tasks()) == ["t1"]
    assert memory.get_l1_tasks() == []


# --- L3 and L4 ---------------------------------------------------------------------------------------------


def test_l3_acts_at_ninety_percent_and_sends_the_oldest_fifth_to_l4(small: LoomMemory) -> None:
    """Requirement 50."""
    for number in range(8):
        small.add_task(task(number), "l3")
    assert small.get_stats()["l4_items"] == 0
    small.add_task(task(8), "l3")
    assert ids(small.l4.retrieve()) == ["t0", "t1"]  # a fifth of nine, rounded up
    assert ids(small.get_l3_summaries()) == [f"t{number}" for number in range(2, 9)]
    assert_books_are_right(small)


def test_the_oldest_of_l3_are_those_that_came_there_first(small: LoomMemory) -> None:
    """Requirements 44, 50."""
    for number in (5, 3, 8, 1, 2, 7, 4, 6, 0):
        small.add_task(task(number), "l3")
    assert ids(small.l4.retrieve()) == ["t5", "t3"]


def test_l4_lets_the_oldest_go_when_it_is_full_and_they_are_still_found(small: LoomMemory) -> None:
    """Requirement 45; C-7: overflow is still searchable, nothing is deleted."""
    for number in range(15):
        small.add_task(task(number), "l4")
    held = ids(small.l4.retrieve())
    assert held == [f"t{number}" for number in range(15 - len(held), 15)]
    assert 80 <= small.get_stats()["l4_token_usage"] <= 100
    assert [small.search_tasks(f"k{number}w2")[0].task_id for number in range(15)] == [f"t{n}" for n in range(15)]
    assert_books_are_right(small)


def test_what_is_used_stays_in_l4_and_what_is_unused_leaves_first(small: LoomMemory) -> None:
    """Requirement 140: the knowledge tier goes by frequency of use."""
    for number in range(5):
        small.add_task(task(number), "l4")
    for _ in range(50):
        assert small.get_task("t1") is not None
    for number in range(5, 30):
        small.add_task(task(number), "l4")
    held = ids(small.l4.retrieve())
    assert "t1" in held
    assert "t0" not in held
    assert "t2" not in held
    assert_books_are_right(small)


@pytest.mark.parametrize("tier", ["l3", "l4", MemoryTier.L3, MemoryTier.L4])
def test_a_task_may_be_put_into_a_far_tier_alone(memory: LoomMemory, tier: str) -> None:
    receipt = memory.add_task(task(1, action="node.error"), tier)
    assert receipt.tier == tier
    assert (memory.get_l1_tasks(), memory.get_l2_tasks()) == ([], [])
    stats = memory.get_stats()
    assert [stats[f"{name}_items"] for name in MemoryTier].count(1) == 1


def test_sixty_important_tasks_flow_through_all_tiers_with_plain_calls_and_none_is_lost(small: LoomMemory) -> None:
    """Requirements 51, 52; C-10; traps: sync never moves L3 to L4; what is in L4 cannot be found; counters drift."""
    for number in range(60):
        small.add_task(task(number, action="node.error"))
        assert_books_are_right(small)
    stats = small.get_stats()
    assert all(stats[f"{tier}_items"] for tier in MemoryTier)
    for number in range(60):
        found = small.search_tasks(f"k{number}w0 k{number}w1", limit=1)
        assert found == [task(number, action="node.error", created_at=found[0].created_at)]


def test_what_only_l4_or_the_log_holds_is_found_with_its_content(small: LoomMemory) -> None:
    """Requirement 57 search_tasks; trap: L4 stores no content."""
    for number in range(60):
        small.add_task(task(number, action="node.error", session_id=f"s{number % 2}"))
    near = {one.task_id for one in (*small.get_l1_tasks(), *small.get_l2_tasks())}
    near |= {one.task_id for one in small.get_l3_summaries()}
    in_l4 = set(ids(small.l4.retrieve())) - near
    in_log = {f"t{number}" for number in range(60)} - near - in_l4
    assert in_l4
    assert in_log
    for name in sorted(in_l4 | in_log):
        found = small.search_tasks(f"k{name[1:]}w4")[0]
        assert found.task_id == name
        assert f"k{name[1:]}w7" in found.parameters["c"]


# --- larger than a tier ------------------------------------------------------------------------------------


def test_a_task_larger_than_l1_does_not_empty_it(small: LoomMemory) -> None:
    """C-1: never exceed the budget, never empty the layer; a summary in L1, the whole in the log."""
    for number in range(3):
        small.add_task(task(number))
    giant = task("giant", 500)
    receipt = small.add_task(giant)
    assert receipt.tier == MemoryTier.L3
    assert "500" in receipt.note
    assert "100" in receipt.note
    assert ids(small.get_l1_tasks()) == ["t0", "t1", "t2", "tgiant"]
    stand_in = small.get_l1_tasks()[-1]
    assert stand_in.metadata["stand_in"] is True
    assert stand_in.metadata["tokens"] == 500
    assert ids(small.get_l3_summaries()) == ["tgiant"]
    assert small.get_task("tgiant") == giant
    assert small.search_tasks("kgiantw321") == [giant]
    assert_books_are_right(small)


def test_an_important_task_larger_than_l2_leaves_those_in_l2_alone(small: LoomMemory) -> None:
    """C-1; trap: one oversize item empties the tier."""
    for number in range(4):
        small.add_task(task(number), importance=IMPORTANT)
    receipt = small.add_task(task("giant", 90), importance=1.0)
    assert len(small.get_l2_tasks()) == 4
    assert ids(small.get_l3_summaries()) == ["tgiant"]
    assert "L2" in receipt.note
    assert_books_are_right(small)


def test_the_note_tells_where_the_whole_and_where_the_stand_in_is() -> None:
    """C-1: an explicit result."""
    with opened(l1_token_budget=100, l2_token_budget=1000) as memory:
        receipt = memory.add_task(task("giant", 300), importance=IMPORTANT)
        assert receipt.tier == MemoryTier.L2
        assert memory.get_l2_tasks() == [memory.get_task("tgiant")]
        assert "stand-in in L1" in receipt.note
        assert "stand-in in L2" not in receipt.note


def test_a_task_that_fits_gets_no_note(small: LoomMemory) -> None:
    assert small.add_task(task(1, 100)).note == ""


def test_twenty_giants_in_a_row_stay_within_every_budget(small: LoomMemory) -> None:
    """C-1, with and without importance."""
    for number in range(20):
        small.add_task(task(number, 400), importance=IMPORTANT if number % 2 else None)
        assert_books_are_right(small)
    assert [small.search_tasks(f"k{number}w399 k{number}w200", limit=1)[0].task_id for number in range(20)] == [
        f"t{number}" for number in range(20)
    ]


def test_a_giant_is_dealt_with_alike_with_and_without_a_running_loop() -> None:
    """Trap: the tier is left above budget, or emptied, depending on whether an event loop runs."""

    def work() -> tuple[list[str], ...]:
        with opened(**SMALL) as memory:
            for number in range(12):
                memory.add_task(task(number), importance=IMPORTANT)
            memory.add_task(task("giant", 400), importance=1.0)
            assert_books_are_right(memory)
            return (
                ids(memory.get_l1_tasks()),
                ids(memory.get_l2_tasks()),
                ids(memory.get_l3_summaries()),
                ids(memory.l4.retrieve()),
            )

    async def on_a_loop() -> tuple[list[str], ...]:
        return work()

    assert asyncio.run(on_a_loop()) == work()


def test_budgets_so_small_that_not_even_a_stand_in_fits_still_hold() -> None:
    with opened(l1_token_budget=1, l2_token_budget=1, l3_token_budget=1, l4_token_budget=1) as memory:
        for number in range(5):
            memory.add_task(task(number), importance=IMPORTANT)
            assert_books_are_right(memory)
        assert memory.get_l1_tasks() == []
        assert memory.search_tasks("k3w1") == [memory.get_task("t3")]


def test_a_giant_may_be_refused_and_then_nothing_is_written(small: LoomMemory) -> None:
    with pytest.raises(OverBudget, match="500 tokens"):
        small.add_task(task("giant", 500), on_oversize="reject")
    assert small.get_task("tgiant") is None
    assert small.search_tasks("kgiantw1") == []
    assert small.get_stats()["records"] == 0


# --- reading -----------------------------------------------------------------------------------------------


def test_the_first_three_tiers_can_be_read_by_session_and_up_to_a_limit(memory: LoomMemory) -> None:
    """Requirements 9, 57, 61."""
    for number in range(12):
        memory.add_task(task(number, session_id=f"s{number % 3}"), importance=0.7 + number / 100)
        memory.add_task(task(f"x{number}", session_id=f"s{number % 3}"), "l3")
    assert ids(memory.get_l1_tasks(session_id="s1")) == ["t1", "t4", "t7", "t10"]
    assert ids(memory.get_l1_tasks(limit=2, session_id="s1")) == ["t7", "t10"]
    assert ids(memory.get_l1_tasks(limit=2)) == ["t10", "t11"]
    assert ids(memory.get_l2_tasks(session_id="s1")) == ["t10", "t7", "t4", "t1"]
    assert ids(memory.get_l2_tasks(limit=2, session_id="s1")) == ["t10", "t7"]
    assert ids(memory.get_l3_summaries(session_id="s1")) == ["tx1", "tx4", "tx7", "tx10"]
    assert ids(memory.get_l3_summaries(limit=2, session_id="s1")) == ["tx7", "tx10"]
    assert memory.get_l1_tasks(session_id="nobody's") == []


def test_the_session_of_the_call_wins_over_that_of_the_task(memory: LoomMemory) -> None:
    memory.add_task(task(1, session_id="s1"), session_id="s2")
    assert ids(memory.get_l1_tasks(session_id="s2")) == ["t1"]


def test_search_crosses_sessions_unless_one_is_asked_for(small: LoomMemory) -> None:
    """Requirements 9, 61."""
    for number in range(40):
        small.add_task(task(number, result="shared word", session_id=f"s{number % 2}"), importance=IMPORTANT)
    assert {one.session_id for one in small.search_tasks("shared word", limit=40)} == {"s0", "s1"}
    assert {one.session_id for one in small.search_tasks("shared word", limit=40, session_id="s1")} == {"s1"}
    assert len(small.search_tasks("shared word", limit=40, session_id="s1")) == 20
    for session in ("s0", "s1"):
        small.add_fact(f"The shared word of {session} is heron.", session_id=session)
    assert len(small.search_facts("shared word")) == 2
    (fact,) = small.search_facts("shared word", session_id="s1")
    assert "s1" in fact.content


@pytest.mark.parametrize("question", ["kettle", "walnut", "umbrella", "zebra crossing", "雨伞"])
def test_a_task_is_found_by_its_action_its_parameters_its_result_and_its_error(
    memory: LoomMemory, question: str
) -> None:
    """Trap: results, errors and the question itself missing."""
    memory.add_task(task(2))
    memory.add_task(
        Task(
            task_id="t1",
            action="kettle",
            parameters={"walnut": 1, "c": {"deep": ["umbrella"]}},
            result={"n": "zebra crossing"},
            error="雨伞坏了",
        )
    )
    assert ids(memory.search_tasks(question)) == ["t1"]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "3", True])
def test_a_limit_that_is_no_number_of_tasks_is_refused(memory: LoomMemory, limit: Any) -> None:
    memory.add_task(task(1))
    for ask in (memory.get_l1_tasks, memory.get_l2_tasks, memory.get_l3_summaries):
        with pytest.raises(InvalidInput, match="limit"):
            ask(limit=limit)
    with pytest.raises(InvalidInput, match="limit"):
        memory.search_tasks("k1w1", limit)


def test_an_unknown_tier_or_what_is_no_task_is_refused(memory: LoomMemory) -> None:
    with pytest.raises(InvalidInput, match="l1, l2, l3, l4"):
        memory.add_task(task(1), "l5")
    with pytest.raises(InvalidInput, match="Task"):
        memory.add_task("a text")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="JSON"):
        memory.add_task(Task(parameters={"object": object()}))
    assert memory.get_stats()["records"] == 0


def test_getting_what_is_not_there_gives_nothing(memory: LoomMemory) -> None:
    assert memory.get("t1") is None
    assert memory.get_task("t1") is None
    assert memory.get_fact("fact_1") is None
    assert memory.get_call_chain("t1") == []
    assert memory.search_tasks("nothing of the kind") == []
    assert memory.search_facts("nothing of the kind") == []
    assert memory.get_l1_tasks() == memory.get_l2_tasks() == []
    assert memory.get_l3_summaries() == []


def test_an_id_that_is_no_text_is_refused(memory: LoomMemory) -> None:
    with pytest.raises(InvalidInput):
        memory.get_task(None)  # type: ignore[arg-type]


# --- call chains -------------------------------------------------------------------------------------------


def test_a_call_chain_leads_from_the_first_cause_to_the_task(small: LoomMemory) -> None:
    """Requirement 57, also where the causes have long left the near tiers."""
    for number in range(40):
        small.add_task(task(number, parent_task_id=f"t{number - 1}" if number else None))
    assert ids(small.get_call_chain("t39")) == [f"t{number}" for number in range(40)]
    assert ids(small.get_call_chain("t0")) == ["t0"]


def test_a_call_chain_ends_where_it_comes_round_or_where_a_parent_is_missing(memory: LoomMemory) -> None:
    """Trap: a call chain that loops for ever."""
    memory.add_task(task("a", parent_task_id="tc"))
    memory.add_task(task("b", parent_task_id="ta"))
    memory.add_task(task("c", parent_task_id="tb"))
    memory.add_task(task("self", parent_task_id="tself"))
    memory.add_task(task("orphan", parent_task_id="never seen"))
    assert ids(memory.get_call_chain("tc")) == ["ta", "tb", "tc"]
    assert ids(memory.get_call_chain("ta")) == ["tb", "tc", "ta"]
    assert ids(memory.get_call_chain("tself")) == ["tself"]
    assert ids(memory.get_call_chain("torphan")) == ["torphan"]


# --- facts -------------------------------------------------------------------------------------------------


def test_a_fact_is_kept_got_and_found(memory: LoomMemory) -> None:
    """Requirements 22, 57, 60."""
    fact = Fact("the port is 8080", FactType.API_SCHEMA, 0.9, tags=["network"])
    receipt = memory.add_fact(fact)
    assert (receipt.id, receipt.tier) == (fact.id, MemoryTier.L4)
    assert fact.id.startswith("fact_")
    found = memory.get_fact(fact.id)
    assert found is not None
    assert (found.content, found.fact_type, found.confidence, found.tags) == (
        "the port is 8080",
        FactType.API_SCHEMA,
        0.9,
        ["network"],
    )
    assert [one.id for one in memory.search_facts("which port")] == [fact.id]
    assert ids(memory.l4.retrieve()) == [fact.id]


def test_a_fact_may_be_said_in_plain_words(memory: LoomMemory) -> None:
    receipt = memory.add_fact("用户喜欢深色主题", fact_type="user_preference", confidence=0.7, tags=("界面",))
    (found,) = memory.search_facts("深色主题")
    assert found.id == receipt.id
    assert (found.fact_type, found.confidence, found.tags) == (FactType.USER_PREFERENCE, 0.7, ["界面"])


def test_a_fact_counts_how_often_it_was_asked_for(memory: LoomMemory) -> None:
    """Requirement 22: access_count. A search does not count as a use."""
    name = memory.add_fact("the port is 8080").id
    memory.search_facts("port")
    counts = []
    for _ in range(3):
        found = memory.get_fact(name)
        assert found is not None
        counts.append(found.access_count)
    assert counts == [1, 2, 3]
    assert memory.search_facts("port")[0].access_count == 3


def test_tasks_and_facts_do_not_crowd_each_other_out_of_a_search(memory: LoomMemory) -> None:
    for number in range(60):
        memory.add_fact(f"rack {number} is in the cellar")
    memory.add_task(Task(task_id="t", action="note", parameters={"c": "the rack was moved out of the old cellar"}))
    assert ids(memory.search_tasks("rack cellar", limit=1)) == ["t"]
    assert len(memory.search_facts("rack cellar", limit=60)) == 60
    assert "t" not in {one.id for one in memory.search_facts("rack cellar", limit=100)}


def test_a_task_is_no_fact(memory: LoomMemory) -> None:
    memory.add_task(task(1))
    assert memory.get_fact("t1") is None


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.add_fact("x", fact_type="rumour"),
        lambda memory: memory.add_fact("x", confidence=1.5),
        lambda memory: memory.add_fact("  "),
        lambda memory: memory.add_fact(3),
        lambda memory: memory.add_fact("x", tags="one text"),
        lambda memory: Fact("x", fact_type="rumour"),  # type: ignore[arg-type]
    ],
    ids=["type", "confidence", "empty", "number", "tags", "type of a Fact"],
)
def test_a_fact_that_makes_no_sense_is_refused_by_name(memory: LoomMemory, call: Callable[[LoomMemory], Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        call(memory)
    assert "remember()" not in str(refused.value)
    assert memory.get_stats()["records"] == 0


def test_the_type_of_a_fact_in_plain_words_becomes_a_fact_type() -> None:
    assert Fact("x", fact_type="user_preference").fact_type is FactType.USER_PREFERENCE  # type: ignore[arg-type]


def test_many_facts_keep_l4_within_its_budget_and_are_all_found(small: LoomMemory) -> None:
    for number in range(50):
        small.add_fact(f"machine m{number} stands in rack r{number}")
        assert_books_are_right(small)
    assert [small.search_facts(f"m{number}", limit=1)[0].content.split()[1] for number in range(50)] == [
        f"m{number}" for number in range(50)
    ]


# --- promoting ---------------------------------------------------------------------------------------------


def test_promoting_finds_nothing_to_do_after_any_write(small: LoomMemory) -> None:
    """Requirement 52: every write does it by itself."""
    for number in range(40):
        small.add_task(task(number), importance=0.5 + number / 100)
        assert not any(small.promote_tasks())


def test_promoting_brings_the_important_ones_of_l1_to_l2(memory: LoomMemory) -> None:
    """Requirement 48."""
    for number in range(6):
        memory.add_task(task(number), importance=0.9 if number % 2 else 0.3)
    memory.l2.clear()
    assert memory.promote_tasks().l1_to_l2 == 3
    assert sorted(ids(memory.get_l2_tasks())) == ["t1", "t3", "t5"]
    assert_books_are_right(memory)


def test_promoting_may_be_awaited_and_then_everything_is_embedded() -> None:
    """Requirement 52: promote_tasks_async, with L4 up to date."""

    async def work() -> None:
        with opened(embedder=FakeEmbedder(32), l2_token_budget=100, l3_token_budget=100) as memory:
            for number in range(30):
                await memory.add_task(task(number), importance=IMPORTANT)
            moved = await memory.promote_tasks_async()
            assert not any(moved)
            stats = memory.get_stats()
            assert (stats["backlog"], stats["vectors"]) == (0, 30)
            assert stats["l4_items"] > 0

    asyncio.run(work())


def test_a_receipt_may_be_awaited_and_is_itself(memory: LoomMemory) -> None:
    """C-12."""

    async def both() -> None:
        receipt = memory.add_task(task(1))
        assert await receipt is receipt
        first, second = await asyncio.gather(memory.add_task(task(2)), memory.add_task(task(3)))
        assert (first.id, second.id) == ("t2", "t3")

    asyncio.run(both())


# --- with and without vectors ------------------------------------------------------------------------------


def test_l4_is_searched_by_meaning_where_there_is_an_embedder() -> None:
    """Requirements 45, 53; trap: an exact-text query of what is in L4 finds nothing."""
    with opened(embedder=FakeEmbedder(64), l1_token_budget=50, l2_token_budget=100, l3_token_budget=100) as memory:
        for number in range(40):
            memory.add_task(task(number), importance=IMPORTANT)
        memory.store.flush()
        for name in ids(memory.l4.retrieve()):
            hit = memory.recall(f"k{name[1:]}w1 k{name[1:]}w2", limit=1)[0]
            assert hit.id == name
            assert hit.signals["meaning"] > 0


def test_the_name_embedding_provider_does_as_well() -> None:
    """Requirement 53 names it so."""
    with opened(embedder=None, embedding_provider=FakeEmbedder(16)) as memory:
        assert memory.embedder is not None
        assert memory.embedder.dimensions == 16


def test_without_vectors_search_goes_by_words_alone() -> None:
    """Requirement 53: enable_l4_vectorization=False."""
    with opened(embedder=FakeEmbedder(16), enable_l4_vectorization=False, l3_token_budget=50) as memory:
        for number in range(10):
            memory.add_task(task(number), "l3")
        memory.add_fact("the port is 8080")
        memory.store.flush()
        assert memory.embedder is None
        assert memory.get_stats()["vectors"] == 0
        assert memory.get_stats()["l4_items"] > 1
        assert ids(memory.search_tasks("k0w3")) == ["t0"]
        assert [one.content for one in memory.search_facts("port")] == ["the port is 8080"]


# --- statistics --------------------------------------------------------------------------------------------


def test_the_statistics_have_usage_budget_and_count_of_each_tier_and_the_backlog(memory: LoomMemory) -> None:
    """Requirement 58; C-10."""
    stats = memory.get_stats()
    for tier in MemoryTier:
        assert stats[f"{tier}_token_usage"] == 0
        assert stats[f"{tier}_items"] == 0
        assert stats[f"{tier}_token_budget"] > 0
    assert stats["backlog"] == 0
    assert stats["l2_hit_rate"] is None


def test_the_statistics_equal_what_is_stored_after_every_kind_of_call(small: LoomMemory) -> None:
    """Trap: removal, retention and migration forget to subtract."""
    work = task(0, action="execute")
    steps: list[Callable[[], object]] = [
        lambda: [small.add_task(task(number), importance=IMPORTANT) for number in range(1, 25)],
        lambda: small.add_task(work),
        lambda: small.add_task(task("g", 300), importance=1.0),
        lambda: small.add_task(task("l3"), "l3"),
        lambda: small.add_fact("a fact of five words"),
        lambda: small.store.forget(Filter(ids=("t20", "t1", "tg"))),
        lambda: small.l2.evict(15),
        lambda: small.l3.evict(15),
        lambda: small.l1.evict(15),
        lambda: small.l4.clear(),
        lambda: small.add_task(work),
        lambda: small.promote_tasks(),
        lambda: small.l1.clear(),
        lambda: small.l2.clear(),
        lambda: small.l3.clear(),
    ]
    for step in steps:
        step()
        assert_books_are_right(small)
    assert all(small.get_stats()[f"{tier}_items"] == 0 for tier in ("l1", "l3"))


def test_forgetting_takes_a_task_from_every_tier(small: LoomMemory) -> None:
    for number in range(30):
        small.add_task(task(number), importance=IMPORTANT)
    everything = small.get_l1_tasks(), small.get_l2_tasks(), small.get_l3_summaries(), small.l4.retrieve()
    victims = tuple(one[0].task_id for one in everything if one)
    small.store.forget(Filter(ids=victims))
    left = {*ids(small.get_l1_tasks()), *ids(small.get_l2_tasks())}
    left |= {*ids(small.get_l3_summaries()), *ids(small.l4.retrieve())}
    assert left.isdisjoint(victims)
    assert_books_are_right(small)


# --- strategies --------------------------------------------------------------------------------------------


def test_simple_brings_tasks_to_l2_by_how_often_they_are_used_whatever_their_importance() -> None:
    """Requirement 25."""
    with opened(strategy="simple") as memory:
        memory.add_task(task("important", action="node.error"))
        memory.add_task(task("ordinary"))
        assert memory.get_l2_tasks() == []
        memory.get_task("tordinary")
        assert memory.get_l2_tasks() == []
        memory.get_task("tordinary")
        assert ids(memory.get_l2_tasks()) == ["tordinary"]


def test_simple_counts_the_uses_of_a_task_while_its_status_changes() -> None:
    """Requirement 25: the frequency of the task, whatever version of it was asked for."""
    with opened(strategy="simple") as memory:
        work = task(1)
        memory.add_task(work)
        memory.get_task("t1")
        work.status = TaskStatus.RUNNING
        memory.add_task(work)
        memory.get_task("t1")
        assert memory.get_l2_tasks() == [work]
        assert_books_are_right(memory)


def test_simple_lets_the_least_used_leave() -> None:
    """Requirement 25."""
    with opened(strategy="simple", l2_token_budget=100) as memory:
        for number in range(9):
            memory.add_task(task(number), importance=number / 10)
            for _ in range(2 + (number != 4)):
                memory.get_task(f"t{number}")
        assert ids(memory.get_l3_summaries()) == ["t4"]
        assert_books_are_right(memory)


def test_importance_leads_by_default_and_uses_alone_bring_nothing_to_l2(memory: LoomMemory) -> None:
    """Requirement 25: IMPORTANCE_BASED is the default."""
    memory.add_task(task(1))
    for _ in range(5):
        memory.get_task("t1")
    assert memory.get_l2_tasks() == []
    assert memory.settings.strategy == "importance_based"


# --- the bus -----------------------------------------------------------------------------------------------


def test_every_task_on_the_bus_is_remembered_once() -> None:
    """Requirements 8, 59; C-39."""
    bus = EventBus()
    with opened(event_bus=bus) as listening:
        first, second = task(1), task(2, action="node.error")
        for one in (first, second, first, second):
            bus.publish_sync(one)
        listening.add_task(first)
        assert listening.get_l1_tasks() == [first, second]
        assert listening.get_l2_tasks() == [second]
        assert listening.get_stats()["records"] == 2
        assert bus.failures == []


def test_tasks_published_on_a_loop_are_remembered_once() -> None:
    """Requirement 59."""
    bus = EventBus()

    async def publish(listening: LoomMemory) -> None:
        await asyncio.gather(*(bus.publish(task(number)) for number in range(20)))
        await bus.publish(task(20), wait=False)
        bus.publish_nowait(task(21))
        bus.publish_nowait(task(3))
        await bus.drain()
        assert sorted(ids(listening.get_l1_tasks())) == sorted(f"t{number}" for number in range(22))

    with opened(event_bus=bus) as listening:
        asyncio.run(publish(listening))
        # The task of the last publishing has another time of making, so it is a new version and no second task.
        assert listening.get_stats()["records"] - listening.get_stats()["superseded"] == 22
    assert bus.failures == []


def test_two_memories_on_one_bus_with_stores_of_their_own_have_each_task_once() -> None:
    """C-39."""
    bus = EventBus()
    with opened(node="a", event_bus=bus) as first, opened(node="b", event_bus=bus) as second:
        for number in range(5):
            bus.publish_sync(task(number, action="execute"))
        for memory in (first, second):
            assert ids(memory.get_l1_tasks()) == [f"t{number}" for number in range(5)]
            assert memory.get_stats()["records"] == 5


def test_two_memories_on_one_bus_in_one_store_keep_each_task_once_and_both_find_it() -> None:
    """C-39: idempotent by task_id; 59: each of them heard it."""
    bus = EventBus()
    store = SqliteStore()
    with opened(store, "a", event_bus=bus) as first, opened(store, "b", event_bus=bus) as second:
        for number in range(5):
            bus.publish_sync(task(number, action="execute"))
        assert store.stats()["records"] == 5
        assert bus.failures == []
        for memory in (first, second):
            for number in range(5):
                assert memory.get_task(f"t{number}") is not None
                assert ids(memory.search_tasks(f"k{number}w1")) == [f"t{number}"]
            assert_books_are_right(memory)
    store.close()


def test_a_second_node_that_is_given_a_task_finds_it_again() -> None:
    """An acknowledged item is found by `get` and `recall`, whichever node wrote it first."""
    store = SqliteStore()
    shared = task(1, action="node.error")
    with opened(store, "a") as first, opened(store, "b") as second:
        first.add_task(shared)
        second.add_task(shared)
        assert second.search_tasks("k1w1") == [shared]
        assert second.get_l2_tasks() == [shared]
        assert store.stats()["records"] == 1
        assert_books_are_right(first)
        assert_books_are_right(second)
    store.close()


def test_a_task_that_a_second_node_wants_in_one_tier_is_in_that_one_alone() -> None:
    store = SqliteStore()
    shared = task(1)
    with opened(store, "a") as first, opened(store, "b") as second:
        first.add_task(shared)
        assert second.add_task(shared, "l3").tier == MemoryTier.L3
        assert (second.get_l1_tasks(), second.get_l2_tasks()) == ([], [])
        assert ids(second.get_l3_summaries()) == ["t1"]
        assert second.search_tasks("k1w1") == [shared]
    store.close()


def test_a_task_that_a_second_node_has_no_room_for_has_a_stand_in_where_the_note_says() -> None:
    """C-1."""
    store = SqliteStore()
    giant = task("giant", 500)
    with opened(store, "a", **SMALL) as first, opened(store, "b", **SMALL) as second:
        first.add_task(giant)
        receipt = second.add_task(giant)
        assert receipt.tier == MemoryTier.L3
        assert ids(second.get_l3_summaries()) == ["tgiant"]
        assert ("stand-in in L1" in receipt.note) == (ids(second.get_l1_tasks()) == ["tgiant"])
        assert_books_are_right(second)
    store.close()


@pytest.mark.parametrize("reviser", [0, 1], ids=["by the first", "by the second"])
def test_a_task_that_a_second_node_heard_stays_with_both_in_its_next_version(reviser: int) -> None:
    """Ids name chains: a node that has the task has its newest version."""
    store = SqliteStore()
    shared = task(1, action="execute")
    with opened(store, "a") as first, opened(store, "b") as second:
        first.add_task(shared)
        second.add_task(shared)
        shared.result = "done"
        (first, second)[reviser].add_task(shared)
        for memory in (first, second):
            assert memory.search_tasks("k1w1") == [shared]
            assert memory.get_l1_tasks() == [shared]
            assert_books_are_right(memory)
    store.close()


def test_a_task_that_names_nodes_of_the_store_belongs_to_those() -> None:
    """C-39: a manager filters by node."""
    bus = EventBus()
    store = SqliteStore()
    with opened(store, "a", event_bus=bus) as first, opened(store, "b", event_bus=bus) as second:
        bus.publish_sync(task(1, source_agent="a"))
        bus.publish_sync(task(2, target_agent="b"))
        bus.publish_sync(task(3, source_agent="a", target_agent="b"))
        bus.publish_sync(task(4, source_agent="somebody else"))
        assert ids(first.get_l1_tasks()) == ["t1", "t3", "t4"]
        assert ids(second.get_l1_tasks()) == ["t2", "t3", "t4"]
        assert store.stats()["records"] == 4
    store.close()


def test_forgetting_takes_a_task_from_every_node_that_heard_it() -> None:
    store = SqliteStore()
    shared = task(1, action="execute")
    with opened(store, "a") as first, opened(store, "b") as second:
        first.add_task(shared)
        second.add_task(shared)
        store.forget(Filter(ids=("t1",)))
        for memory in (first, second):
            assert (memory.get_l1_tasks(), memory.get_l2_tasks(), memory.search_tasks("k1w1")) == ([], [], [])
            assert_books_are_right(memory)
    assert store.check().problems == ()
    store.close()


def test_the_same_node_opened_twice_on_one_bus_keeps_each_task_once(tmp_path: Path) -> None:
    """C-39."""
    bus = EventBus()
    path = tmp_path / "agent.loom"
    with opened(path, event_bus=bus) as first, opened(path, event_bus=bus) as second:
        for number in range(5):
            bus.publish_sync(task(number))
        assert ids(first.get_l1_tasks()) == ids(second.get_l1_tasks()) == [f"t{number}" for number in range(5)]
        assert first.get_stats()["records"] == 5


def test_alarms_are_not_remembered() -> None:
    bus = EventBus()
    heard: list[Task] = []
    bus.register_handler("*", heard.append)
    with opened(event_bus=bus, l2_token_budget=100) as memory:
        for number in range(30):
            bus.publish_sync(task(number, action="node.error"))
        assert any(one.action.startswith("memory.quota") for one in heard)
        assert memory.get_stats()["records"] == 30


def test_a_closed_memory_hears_nothing_more() -> None:
    """close() stops listening."""
    bus = EventBus()
    store = SqliteStore()
    first, second = opened(store, "a", event_bus=bus), opened(None, "b", event_bus=bus)
    first.close()
    first.close()
    bus.publish_sync(task(1))
    assert store.stats()["records"] == 0
    assert ids(second.get_l1_tasks()) == ["t1"]
    second.close()
    bus.publish_sync(task(2))
    assert bus.failures == []
    store.close()


def test_a_task_that_cannot_be_kept_is_reported_and_harms_no_other() -> None:
    bus = EventBus()
    with opened(event_bus=bus) as memory:
        bus.publish_sync(Task(parameters={"object": object()}))
        bus.publish_sync(task(1))
        assert [type(one.error) for one in bus.failures] == [InvalidInput]
        assert ids(memory.get_l1_tasks()) == ["t1"]


# --- a sanitizer -------------------------------------------------------------------------------------------


def test_a_task_that_is_sanitised_is_still_the_same_task() -> None:
    with opened(sanitizer=ContentSanitizer()) as memory:
        memory.add_task(task(0))
        memory.add_task(
            Task(
                task_id="t1",
                action="execute",
                parameters={"to": "joe.doe@example.com", "n": 3},
                result={"sent to": ["joe.doe@example.com"]},
                error="joe.doe@example.com bounced",
                parent_task_id="t0",
                status=TaskStatus.FAILED,
            )
        )
        found = memory.get_task("t1")
        assert found is not None
        assert (found.action, found.parent_task_id, found.status) == ("execute", "t0", TaskStatus.FAILED)
        assert found.parameters["n"] == 3
        assert "joe.doe" not in str(found)
        assert ids(memory.get_call_chain("t1")) == ["t0", "t1"]


def test_a_fact_that_is_sanitised_keeps_its_type_and_confidence() -> None:
    with opened(sanitizer=ContentSanitizer()) as memory:
        name = memory.add_fact(
            "write to joe.doe@example.com", fact_type="user_preference", confidence=0.9, tags=["mail"]
        ).id
        found = memory.get_fact(name)
        assert found is not None
        assert "joe.doe" not in found.content
        assert (found.fact_type, found.confidence, found.tags) == (FactType.USER_PREFERENCE, 0.9, ["mail"])


# --- a file ------------------------------------------------------------------------------------------------


def everything(memory: LoomMemory) -> list[Any]:
    stats = memory.get_stats()
    return [
        memory.get_l1_tasks(),
        memory.get_l2_tasks(),
        memory.get_l3_summaries(),
        memory.l4.retrieve(),
        memory.search_tasks("k3w1 k4w1 k5w1", limit=20),
        memory.search_facts("port"),
        memory.get_counters(),
        {name: value for name, value in stats.items() if name.startswith(("l1", "l2", "l3", "l4"))},
    ]


def fill(memory: LoomMemory) -> None:
    for number in range(40):
        memory.add_task(task(number, session_id=f"s{number % 2}"), importance=0.5 + (number % 10) / 20)
    memory.add_task(task("giant", 400), importance=IMPORTANT)
    memory.add_fact("the port is 8080")
    for number in range(0, 40, 3):
        memory.get_task(f"t{number}")


@pytest.mark.parametrize("strategy", ["importance_based", "simple"])
def test_reopening_restores_everything_exactly(tmp_path: Path, strategy: str) -> None:
    """Trap: snapshots that leave out L3, L4, facts and access history."""
    path = tmp_path / "agent.loom"
    with opened(path, strategy=strategy, **SMALL) as memory:
        fill(memory)
        fact = memory.search_facts("port")[0]
        memory.get_fact(fact.id)
        before = everything(memory)
    with opened(path) as memory:
        assert everything(memory) == before
        found = memory.get_fact(fact.id)
        assert found is not None
        assert found.access_count == 2
        assert_books_are_right(memory)


def test_two_handles_on_one_file_agree_after_every_write(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path, **SMALL) as first, opened(path) as second:
        for number in range(40):
            (first, second)[number % 2].add_task(task(number), importance=0.5 + (number % 10) / 20)
            if number % 8 == 7:
                assert everything(first) == everything(second)
                assert_books_are_right(second)


def test_eight_threads_lose_nothing_and_keep_the_books() -> None:
    with opened(**SMALL) as memory:
        threads = [
            threading.Thread(
                target=lambda worker=worker: [
                    memory.add_task(task(f"{worker}x{number}"), importance=(number % 10) / 10) for number in range(25)
                ]
            )
            for worker in range(8)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert memory.get_stats()["records"] == 200
        assert_books_are_right(memory)
        assert all(memory.get_task(f"t{worker}x{number}") for worker in range(8) for number in range(25))


def test_a_file_opened_for_reading_can_be_read_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path, **SMALL) as memory:
        fill(memory)
        before = everything(memory)
    with opened(path, read_only=True) as memory:
        assert everything(memory) == before
        assert memory.get_task("t3") is not None
        assert ids(memory.get_call_chain("t3")) == ["t3"]
        assert not any(memory.promote_tasks())
        for write in (
            lambda: memory.add_task(task("new")),
            lambda: memory.add_fact("new"),
            lambda: memory.l2.evict(),
            lambda: memory.l3.clear(),
        ):
            with pytest.raises(ReadOnly):
                write()
        assert everything(memory) == before


def test_other_budgets_than_the_files_are_refused_unless_they_are_to_change(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path, **SMALL) as memory:
        fill(memory)
    with pytest.raises(SettingsConflict, match=re.escape("l2_token_budget is 100 in the store and 50")):
        opened(path, l2_token_budget=50)
    smaller: dict[str, Any] = dict.fromkeys(SMALL, 40)
    with opened(path, reconfigure=True, **smaller) as memory:
        assert_books_are_right(memory)
        assert memory.get_stats()["l2_token_usage"] > 0
        assert all(memory.search_tasks(f"k{number}w1", limit=1) for number in range(40))


def test_larger_budgets_give_out_no_more_than_they_hold(tmp_path: Path) -> None:
    """Requirement 42 after a change: what stood in for a large task must not be counted short and given whole."""
    path = tmp_path / "agent.loom"
    with opened(path, l1_token_budget=100) as memory:
        for number in range(12):
            memory.add_task(task(number, 150))
    with opened(path, l1_token_budget=500, reconfigure=True) as memory:
        assert memory.get_l1_tasks()
        assert_books_are_right(memory)
        memory.add_task(task("next", 150))
        assert ids(memory.get_l1_tasks(limit=1)) == ["tnext"]
        assert_books_are_right(memory)


def test_a_handle_follows_budgets_that_another_changes(tmp_path: Path) -> None:
    """An item larger than a tier has a stand-in, and the receipt says so, also just after the budget was lowered."""
    path = tmp_path / "agent.loom"
    with opened(path, l1_token_budget=1000) as first, opened(path, l1_token_budget=100, reconfigure=True):
        receipt = first.add_task(task(1, 200))
        assert receipt.note
        assert receipt.tier == MemoryTier.L3
        assert ids(first.get_l3_summaries()) == ["t1"]
        assert_books_are_right(first)


def test_budgets_cannot_be_changed_through_a_file_opened_for_reading(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    opened(path, **SMALL).close()
    with pytest.raises((ReadOnly, SettingsConflict)):
        opened(path, read_only=True, reconfigure=True, l2_token_budget=50)


def test_nodes_of_one_store_have_tiers_of_their_own() -> None:
    store = SqliteStore()
    with opened(store, "a", l1_token_budget=50) as first, opened(store, "b", l1_token_budget=100) as second:
        for number in range(20):
            first.add_task(task(f"a{number}"), importance=IMPORTANT)
        second.add_task(task("b"))
        assert ids(second.get_l1_tasks()) == ["tb"]
        assert second.get_l2_tasks() == []
        assert second.search_tasks("ka3w1") == []
        assert len(first.get_l1_tasks()) == 5
        assert_books_are_right(first)
        assert_books_are_right(second)
    assert store.stats()["records"] == 21  # a store that was given stays open
    store.close()


def test_a_closed_memory_refuses_everything() -> None:
    memory = opened()
    memory.close()
    memory.close()
    for call in (
        lambda: memory.add_task(task(1)),
        lambda: memory.get_l1_tasks(),
        lambda: memory.get_l2_tasks(),
        lambda: memory.get_l3_summaries(),
        lambda: memory.get_task("t1"),
        lambda: memory.search_tasks("x"),
        lambda: memory.promote_tasks(),
        lambda: memory.get_stats(),
    ):
        with pytest.raises(Closed):
            call()


def test_a_write_that_fails_changes_no_tier(small: LoomMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        small.add_task(task(number), importance=IMPORTANT)
    before = everything(small)

    def fail(*_: object) -> int:
        raise sqlite3.OperationalError("the disk went away")

    with monkeypatch.context() as broken:
        broken.setattr(SqliteTransaction, "totals", fail)  # read after the record has entered its tiers
        with pytest.raises(Exception, match="disk"):
            small.add_task(task("lost"), importance=IMPORTANT)
    assert everything(small) == before
    assert small.get_task("tlost") is None
