"""SIGKILL at every step of a promotion and of a demotion: each record is in one valid place, and jobs are resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from loom.memory.core import LoomMemory
from loom.protocol import Task
from tests.crash.forking import run
from tests.crash.processes import Point, named, point
from tests.crash.tier_children import what_is_wrong

LEASE_S = 0.2
RECORDS = 30
OPTIONS: dict[str, Any] = {
    "l1_token_budget": 120,
    "l2_token_budget": 100,
    "l3_token_budget": 150,
    "l4_token_budget": 200,
    "embedder": "none",
    "derive": False,
    "lease_s": LEASE_S,
}

# A child with one thing to do; `arm` kills it before or after the n-th call of a step.
_CHILD = """
import json, os, sys
from tests.crash.children import arm, say
from loom.memory.core import LoomMemory
given = json.loads(sys.argv[1])
memory = LoomMemory("agent", store=given["path"], **given["options"])
arm(given["armed"])
if given["verb"] == "promote":
    memory.promote("n3")
elif given["verb"] == "focus":
    memory.promote("n3", to="l1")
elif given["verb"] == "use":
    memory.get("n3")
elif given["verb"] == "queue":
    memory.migration.trigger_promotion(["n3", "n4"])
    say("queued")
    memory.store.flush()
elif given["verb"] == "demote":
    memory.migration.trigger_demotion("l2", "hard")
elif given["verb"] == "collect":
    memory.migration.collect("medium")
    say("queued")
    memory.store.flush()
say("survived")
os._exit(0)
"""


def words(number: int) -> str:
    return f"kite {number} flew over the harbour before it rained, 风筝第{number}号"


def note(number: int) -> Task:
    return Task(task_id=f"n{number}", action="note", parameters={"content": words(number)})


def opened(path: Path) -> LoomMemory:
    return LoomMemory("agent", store=path, **OPTIONS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        for number in range(RECORDS):
            memory.add_task(note(number), importance=0.8)
        for number in (1, 2):  # so that the window has something to give up
            memory.promote(f"n{number}", to="l1")
    return path


def killed(path: Path, verb: str, armed: Point) -> list[str]:
    """The output of the child before it was killed."""
    given = {"path": str(path), "verb": verb, "armed": armed, "options": OPTIONS}
    child = run(_CHILD, json.dumps(given))
    assert child.returncode == -signal.SIGKILL, child.stderr
    return child.stdout.split()


def assert_nothing_is_wrong(memory: LoomMemory, path: Path) -> None:
    assert what_is_wrong(path) == []
    for number in range(RECORDS):
        record = memory.store.get(f"n{number}")
        assert record is not None
        assert words(number) in record.content
    report = memory.store.check(repair=False)
    assert report.ok, report.problems


def places(memory: LoomMemory, id: str) -> set[str]:
    record = memory.store.get(id)
    assert record is not None
    return set(memory.store.tiers(record.seq, "agent"))


def before_and_after(*targets: str) -> list[Point]:
    return [point(target, when) for target in targets for when in ("before", "after")]


PROMOTION = before_and_after(
    "tiers.assess_promotion",
    "tiers.load",
    "tiers.reserve",
    "tiers.enter_promoted",
    "transaction.leave",
    "transaction.enter",
    "transaction.finish",
    "tiers.notify_promoted",
)


@pytest.mark.parametrize(
    ("verb", "step"),
    [("promote", step) for step in PROMOTION] + [("focus", step) for step in PROMOTION[4:8]],
    ids=named,
)
def test_a_kill_at_any_step_of_a_promotion_leaves_it_undone_or_done(path: Path, verb: str, step: Point) -> None:
    killed(path, verb, step)
    assert what_is_wrong(path) == []
    done = step["target"] == "tiers.notify_promoted"
    with opened(path) as memory:
        there = places(memory, "n3")
        assert (there == {"l2"}) is done if verb == "promote" else ("l1" in there) is done
        assert_nothing_is_wrong(memory, path)
        memory.promote("n3")
        assert "l2" in places(memory, "n3")
    assert what_is_wrong(path) == []


QUEUE = before_and_after(
    "transaction.enqueue",
    "migration.step",
    "transaction.take_jobs",
    "tiers.promote",
    "transaction.finish",
    "tiers.notify_promoted",
)


@pytest.mark.parametrize("step", QUEUE, ids=named)
def test_a_promotion_that_was_queued_before_the_kill_is_resumed(path: Path, step: Point) -> None:
    said = killed(path, "queue", step)
    assert what_is_wrong(path) == []
    with opened(path) as memory:
        assert memory.store.flush().complete
        if "queued" in said:
            assert places(memory, "n3") == {"l2"}
            assert places(memory, "n4") == {"l2"}
        assert memory.migration.jobs() == []
        assert_nothing_is_wrong(memory, path)


DEMOTION = before_and_after(
    "tiers.next_victims",
    "transaction.enqueue",
    "transaction.take_jobs",
    "tiers.demote",
    "transaction.leave",
    "tiers.stand_in_tokens",
    "transaction.enter",
    "transaction.finish",
    "tiers.notify_rebalanced",
)


@pytest.mark.parametrize(
    ("verb", "step"),
    [("demote", step) for step in DEMOTION] + [("collect", step) for step in DEMOTION[4:8]],
    ids=named,
)
def test_a_kill_at_any_step_of_a_demotion_leaves_every_record_in_one_place(
    path: Path, verb: str, step: Point
) -> None:
    with opened(path) as memory:
        before = memory.get_stats()["l2_items"]
    said = killed(path, verb, step)
    assert what_is_wrong(path) == []
    with opened(path) as memory:
        assert memory.store.flush().complete
        assert memory.migration.jobs() == []
        if "queued" in said or step["target"] == "tiers.notify_rebalanced":
            assert memory.get_stats()["l2_items"] < before
        assert_nothing_is_wrong(memory, path)


def test_a_use_that_is_killed_has_moved_or_not(path: Path) -> None:
    killed(path, "use", point("transaction.enter", "after"))
    assert what_is_wrong(path) == []
    with opened(path) as memory:
        assert places(memory, "n3") <= {"l3", "l4"}
        assert_nothing_is_wrong(memory, path)
