"""NodeContainer. Requirements 7, 98."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loom.errors import InvalidInput
from loom.fractal import BudgetTracker, NodeContainer, RecursiveBudget
from loom.protocol import AgentCard, NodeProtocol, Task, TaskStatus


class Worker:
    """A plain Python object that follows NodeProtocol."""

    def __init__(self, work: Callable[[Task], Any] | None = None) -> None:
        self.node_id = "worker"
        self.work = work
        self.depths: list[Any] = []

    async def execute_task(self, task: Task) -> Task:
        self.depths.append(task.metadata.get("_container_depth"))
        if self.work is not None:
            done = self.work(task)
            if isinstance(done, Awaitable):
                await done
        task.status, task.result = TaskStatus.COMPLETED, "done"
        return task

    def get_capabilities(self) -> AgentCard:
        return AgentCard("worker")


CARD = AgentCard("box", skills=("delegating",))


def nested(child: Any, levels: int, **options: Any) -> NodeContainer:
    for level in range(levels):
        child = NodeContainer(f"box-{level}", CARD, child, **options)
    assert isinstance(child, NodeContainer)
    return child


def run(node: NodeContainer, **task: Any) -> Task:
    return asyncio.run(node.execute_task(Task(**task)))


def test_a_container_is_a_node_that_delegates_and_shows_its_card() -> None:
    worker = Worker()
    box = NodeContainer("box", CARD, worker)
    assert isinstance(box, NodeProtocol)
    assert (box.node_id, box.child, box.get_capabilities()) == ("box", worker, CARD)
    task = Task(action="execute")
    done = asyncio.run(box.execute_task(task))
    assert done is task
    assert (done.status, done.result, worker.depths) == (TaskStatus.COMPLETED, "done", [1])


def test_the_depth_is_that_of_the_containers_around_and_gone_afterwards() -> None:
    """Requirement 98."""
    worker = Worker()
    done = run(nested(worker, 7), metadata={"importance": 0.7})
    assert worker.depths == [7]
    assert done.metadata == {"importance": 0.7}
    done = run(nested(worker, 2), metadata={"_container_depth": 3})
    assert worker.depths[-1] == 5
    assert done.metadata == {"_container_depth": 3}


def test_deeper_than_allowed_is_a_failure_and_nobody_works() -> None:
    worker = Worker()
    assert run(nested(worker, 5, max_depth=5)).status is TaskStatus.COMPLETED
    failed = run(nested(worker, 6, max_depth=5))
    assert failed.status is TaskStatus.FAILED
    assert failed.error == "the task is inside 5 containers, and 'box-0' allows 5"
    assert worker.depths == [5]
    assert failed.metadata == {}
    assert run(nested(worker, 100)).status is TaskStatus.COMPLETED
    assert run(nested(worker, 101)).status is TaskStatus.FAILED


@pytest.mark.parametrize("depth", [-1, "3", True, None, 1.5])
def test_a_depth_that_is_none_is_a_failure(depth: Any) -> None:
    """Hostile metadata must not count as depth 0."""
    worker = Worker()
    failed = run(nested(worker, 1), metadata={"_container_depth": depth})
    assert (failed.status, worker.depths) == (TaskStatus.FAILED, [])
    assert failed.error is not None
    assert "not a depth" in failed.error


def test_what_a_child_raises_is_the_outcome_of_its_task() -> None:
    def fail(task: Task) -> None:
        raise ValueError("no such table")

    failed = run(nested(Worker(fail), 3))
    assert (failed.status, failed.error, failed.metadata) == (TaskStatus.FAILED, "ValueError: no such table", {})


def test_a_child_may_replace_the_metadata() -> None:
    def replace_metadata(task: Task) -> None:
        task.metadata = {"tidy": True}

    done = run(nested(Worker(replace_metadata), 2))
    assert (done.status, done.metadata["tidy"]) == (TaskStatus.COMPLETED, True)


def test_cancelling_passes_through_and_leaves_no_depth() -> None:
    async def story() -> None:
        task = Task()
        began = asyncio.Event()

        async def wait(_: Task) -> None:
            began.set()
            await asyncio.Event().wait()

        running = asyncio.ensure_future(nested(Worker(wait), 2).execute_task(task))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (task.metadata, task.status) == ({}, TaskStatus.PENDING)

    asyncio.run(story())


def test_a_container_without_a_child_fails_its_tasks_until_it_has_one() -> None:
    box = NodeContainer("box", CARD)
    failed = run(box)
    assert failed.error is not None
    assert "no child" in failed.error
    box.set_child(Worker())
    assert run(box).status is TaskStatus.COMPLETED


def test_time_that_is_up_ends_the_work() -> None:
    seconds = 0.0
    budget = BudgetTracker(RecursiveBudget(time_budget=5), node_id="box", clock=lambda: seconds)
    worker = Worker()
    box = NodeContainer("box", CARD, worker, budget=budget)
    assert run(box).status is TaskStatus.COMPLETED
    seconds = 5.0
    failed = run(box)
    assert failed.status is TaskStatus.FAILED
    assert failed.error is not None
    assert failed.error.startswith("node 'box' asked for 5 seconds and has 0 left of 5")
    assert worker.depths == [1]


def test_work_that_outlasts_its_time_is_stopped() -> None:
    async def for_ever(_: Task) -> None:
        await asyncio.Event().wait()

    budget = BudgetTracker(RecursiveBudget(time_budget=0.02), node_id="box")
    failed = run(NodeContainer("box", CARD, Worker(for_ever), budget=budget))
    assert failed.status is TaskStatus.FAILED
    assert failed.error is not None
    assert "seconds left, and they have passed" in failed.error


def test_a_childs_own_time_limit_is_not_taken_for_the_budgets() -> None:
    def late(_: Task) -> None:
        raise TimeoutError("the server did not answer")

    budget = BudgetTracker(RecursiveBudget(time_budget=60))
    failed = run(NodeContainer("box", CARD, Worker(late), budget=budget))
    assert failed.error == "TimeoutError: the server did not answer"


@pytest.mark.parametrize(
    "make",
    [
        lambda: NodeContainer("", CARD, Worker()),
        lambda: NodeContainer("box", CARD, Worker(), max_depth=0),
        lambda: NodeContainer("box", CARD, Worker(), max_depth=True),
        lambda: NodeContainer("box", CARD, object()),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_container_is_refused(make: Callable[[], NodeContainer]) -> None:
    with pytest.raises(InvalidInput):
        make()


def test_a_container_is_never_inside_itself() -> None:
    inner = NodeContainer("inner", CARD)
    outer = NodeContainer("outer", CARD, inner)
    for child in (inner, outer):
        with pytest.raises(InvalidInput, match="inside itself"):
            inner.set_child(child)
