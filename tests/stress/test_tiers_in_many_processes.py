"""Several processes fill the tiers of one file: no tier is ever above its budget, nothing is lost, all agree."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.drafts import task_text
from loom.everyday import Memory
from loom.memory.core import LoomMemory
from tests.crash.processes import assert_sound
from tests.crash.tier_children import BUDGETS, TierChild, opened, task_for, what_is_wrong

WRITERS = 4
EACH = 25
SMALLER: dict[str, Any] = {"l1_token_budget": 40, "l2_token_budget": 70, "l3_token_budget": 50, "l4_token_budget": 60}
OPTIONS: dict[str, Any] = {"lease_s": 1.0, "index_tail_records": 20}


def open_node(path: Path, node: str, **options: Any) -> Memory:
    return loom.open(path, node_id=node, embedder="none", **OPTIONS, **options)


def assert_all_written(memory: Memory, numbers: range) -> None:
    for number in numbers:
        content = task_text(task_for(number, None if number % 5 else "done"))
        record = memory.store.get(f"task-{number}")
        assert record is not None, f"task {number} was acknowledged and is gone"
        assert record.content == content
        if number % 4 == 0:
            word = task_for(number).parameters["content"].split()[0]
            assert [hit.id for hit in memory.recall(word, limit=1)] == [record.id]


def told_here(memory: LoomMemory) -> dict[str, Any]:
    """The contents of the tiers as this process reads them; `tell` returns the same of another process."""
    stats = {key: value for key, value in memory.get_stats().items() if key[:2] in ("l1", "l2", "l3", "l4")}
    return {
        "stats": stats,
        "l1": [task.task_id for task in memory.get_l1_tasks()],
        "l2": [task.task_id for task in memory.get_l2_tasks()],
        "l3": [one.task_id for one in memory.get_l3_summaries()],
        "l4": [one.task_id for one in memory.l4.retrieve()],
    }


def assert_processes_agree(path: Path, nodes: list[str]) -> None:
    with TierChild("tell", path=str(path), nodes=nodes) as other:
        there = json.loads(other.finish()[0])
    for node in nodes:
        with open_node(path, node) as memory:
            assert told_here(memory.manager) == there[node]


@pytest.mark.parametrize(
    ("nodes", "profile"), [(["one"], "loom"), (["one", "two"], "loom"), (["one"], "lcr")], ids=str
)
def test_four_writers_keep_every_budget_at_every_moment(tmp_path: Path, nodes: list[str], profile: str) -> None:
    path = tmp_path / "agent.loom"
    for node in nodes:
        open_node(path, node, profile=profile, **BUDGETS).close()
    with contextlib.ExitStack() as stack:
        watcher = stack.enter_context(TierChild("poll", path=str(path)))
        assert watcher.line() == "open"
        writers = [
            stack.enter_context(
                TierChild(
                    "write_tasks",
                    path=str(path),
                    node=nodes[number % len(nodes)],
                    first=number * EACH,
                    count=EACH,
                    **OPTIONS,
                )
            )
            for number in range(WRITERS)
        ]
        for number, writer in enumerate(writers):
            assert writer.finish() == [f"ack {one}" for one in range(number * EACH, (number + 1) * EACH)]
        (line,) = watcher.finish()
        assert "wrong" not in json.loads(line), line
    assert what_is_wrong(path) == []
    assert_processes_agree(path, nodes)
    with open_node(path, nodes[0]) as memory:
        assert_all_written(memory, range(WRITERS * EACH))
        stats = memory.get_stats()
        assert stats["records"] - stats["superseded"] == WRITERS * EACH
        assert stats["l2_items"] > 0
        assert stats["l3_items"] > 0
        assert_sound(memory)


def test_a_writer_follows_smaller_budgets_that_another_process_sets(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    open_node(path, "one", **BUDGETS).close()
    with contextlib.ExitStack() as stack:
        watcher = stack.enter_context(TierChild("poll", path=str(path)))
        assert watcher.line() == "open"
        writer = stack.enter_context(
            TierChild("write_tasks", path=str(path), node="one", first=0, count=60, **OPTIONS)
        )
        for number in range(20):
            assert writer.line() == f"ack {number}"
        # From here on it still has the old budgets in mind, unless it looks.
        with open_node(path, "one", reconfigure=True, **SMALLER) as memory:
            memory.manager.add_task(task_for(1000, "done"))
            assert what_is_wrong(path) == []
            assert writer.finish() == [f"ack {number}" for number in range(20, 60)]
            assert what_is_wrong(path) == []
            memory.manager.add_task(task_for(1001))
            stats = memory.get_stats()
            for name, budget in SMALLER.items():
                assert stats[name] == budget
                assert stats[name.replace("budget", "usage")] <= budget
            assert_all_written(memory, range(60))
            assert_sound(memory)
        (line,) = watcher.finish()
        assert "wrong" not in json.loads(line), line
    assert what_is_wrong(path) == []
    assert_processes_agree(path, ["one"])


def test_a_handle_that_was_open_places_by_budgets_that_were_set_since(tmp_path: Path) -> None:
    """It has not looked at anything since: the first write of all must know."""
    path = tmp_path / "agent.loom"
    with (
        opened(path, "one", **{**BUDGETS, "l1_token_budget": 300}) as before,
        TierChild("write_tasks", path=str(path), node="one", first=0, count=1, reconfigure=True, **SMALLER) as other,
    ):
        other.finish()
        receipt = before.add_task(task_for(10))  # 12 times as large as others
        assert receipt.tokens > SMALLER["l1_token_budget"]
        assert receipt.tier != "l1"
        assert receipt.note
        record = before.store.get("task-10")
        assert record is not None
        assert {"l3", "l4"} & {*before.store.tiers(record.seq, "one")}
        assert what_is_wrong(path) == []
