"""SIGKILL while tasks move between tiers: every acknowledged record is there, the totals equal the residents, and
budgets hold."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.drafts import task_text
from tests.crash.processes import assert_sound, point
from tests.crash.tier_children import BUDGETS, TierChild, task_for, what_is_wrong
from tests.tally import count, scaled

NODE = "agent"
# The lease of a killed process soon ends, so that no process waits for it in the next round.
LEASE_S = 0.2
OPTIONS = {"node": NODE, "lease_s": LEASE_S, "look": False, **BUDGETS}


@pytest.fixture(scope="module")
def nursery() -> Iterator[TierChild]:
    with TierChild("nursery") as child:
        yield child
        child.finish()


def killed_at_random(nursery: TierChild, chance: random.Random, **arguments: Any) -> list[int]:
    """Let a writer get some acknowledgements, continue for some milliseconds, and die. Returns the acknowledged
    ids."""
    nursery.send(arguments)
    word, pid = nursery.line().split()
    assert word == "pid"
    acknowledged = [int(nursery.line().split()[1]) for _ in range(chance.randint(1, 25))]
    time.sleep(chance.random() * 0.01)  # chooses the moment; waits for nothing
    os.kill(int(pid), signal.SIGKILL)
    return acknowledged + until_gone(nursery)


def until_gone(nursery: TierChild) -> list[int]:
    """The writes that were acknowledged before the writer was killed."""
    acknowledged: list[int] = []
    while True:
        word, value = nursery.line().split()
        if word == "gone":
            assert int(value) == -signal.SIGKILL, nursery.complaints()
            count(processes=1, kills=1, written=len(acknowledged))
            return acknowledged
        if word == "ack":
            acknowledged.append(int(value))


def in_the_end(number: int) -> str:
    """The text of a task after the last change by the writer."""
    return task_text(task_for(number, None if number % 5 else "done"))


def assert_all_is_there(path: Path, acknowledged: list[int], chance: random.Random) -> int:
    """Look first from outside, then through the memory; the number to go on with."""
    assert what_is_wrong(path) == []
    first = acknowledged[-1] + 1 if acknowledged else 0
    with loom.open(path, node_id=NODE, embedder="none", lease_s=LEASE_S) as memory:
        assert what_is_wrong(path) == []
        for number in acknowledged:
            record = memory.store.get(f"task-{number}")
            count(lost=record is None)
            assert record is not None, f"task {number} was acknowledged and is gone"
            assert record.content == in_the_end(number)
        for number in chance.sample(acknowledged, min(5, len(acknowledged))):
            (hit,) = memory.recall(task_for(number).parameters["content"].split()[0], limit=1)
            assert hit.id == f"task-{number}"
        # One write more than was acknowledged may be there: it was committed, and the kill came before the line.
        extra = memory.store.get(f"task-{first}")
        if extra is not None and extra.content == in_the_end(first):
            first, extra = first + 1, None
        stats = memory.get_stats()
        assert stats["records"] - stats["superseded"] == first + (extra is not None)
        for tier in ("l1", "l2", "l3", "l4"):
            assert stats[f"{tier}_token_usage"] <= BUDGETS[f"{tier}_token_budget"]
        assert_sound(memory)
    assert what_is_wrong(path) == []
    return first


@pytest.mark.parametrize("seed", range(2))
def test_tiers_survive_kills_at_random_moments(tmp_path: Path, nursery: TierChild, seed: int) -> None:
    rounds_of_kills(tmp_path / "agent.loom", nursery, 15, seed)


@pytest.mark.parametrize("profile", ["lcr", "chat"])
def test_tiers_led_by_use_survive_kills_at_random_moments(tmp_path: Path, nursery: TierChild, profile: str) -> None:
    rounds_of_kills(tmp_path / "agent.loom", nursery, 8, 7, profile=profile)


@pytest.mark.soak
@pytest.mark.parametrize("profile", ["loom", "lcr", "chat", "task"])
def test_tiers_survive_hundreds_of_kills(tmp_path: Path, nursery: TierChild, profile: str) -> None:
    rounds_of_kills(tmp_path / "agent.loom", nursery, scaled(250), 99, profile=profile, index_tail_records=5)


def rounds_of_kills(path: Path, nursery: TierChild, rounds: int, seed: int, **options: Any) -> None:
    chance = random.Random(seed)
    first = 0
    for _ in range(rounds):
        acknowledged = killed_at_random(
            nursery, chance, path=str(path), first=first, count=100_000, **OPTIONS, **options
        )
        first = assert_all_is_there(path, [*range(acknowledged[-1] + 1)], chance)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "target", ["transaction.append", "transaction.enter", "transaction.leave", "transaction.finish"]
)
def test_a_kill_between_the_steps_of_a_move_leaves_all_of_it_or_nothing(
    tmp_path: Path, nursery: TierChild, target: str, when: str
) -> None:
    """At each of the first moves of a new writer on a file that is full already."""
    path = tmp_path / "agent.loom"
    chance = random.Random(5)
    with loom.open(path, embedder="none", node_id=NODE, **BUDGETS) as memory:
        for number in range(30):
            memory.manager.add_task(task_for(number, None if number % 5 else "done"))
    first = 30
    for call in (1, 2, 3, 7):
        nursery.send(
            {
                "path": str(path),
                "first": first,
                "count": 1000,
                "armed": point(target, when, call),
                **OPTIONS,
            }
        )
        first = 1 + max([first - 1, *until_gone(nursery)])
        first = assert_all_is_there(path, [*range(first)], chance)
