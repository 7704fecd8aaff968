"""NodeContainer: a node that wraps another node, so that a tree consists of nodes only.

It delegates a task to its single child, counts the containers around the task, and turns failures below into a failed
task. An orchestrator handles several children.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from loom.checks import checked_instance, checked_text, checked_whole
from loom.errors import InvalidInput
from loom.protocol import AgentCard, NodeProtocol, Task, TaskStatus, error_text

if TYPE_CHECKING:
    from loom.fractal.budget import BudgetTracker

__all__ = ["CONTAINER_DEPTH", "NodeContainer"]

CONTAINER_DEPTH = "_container_depth"
"""The metadata key with the number of containers around a task."""


class NodeContainer:
    """A node that delegates to a single child and is itself a child like any other (`NodeProtocol`).

    The task returns as FAILED, with the reason in `error`, if it is inside `max_depth` containers already, if the
    child fails, or if the `budget` has no time left. Only cancellation propagates as an exception.
    """

    def __init__(
        self,
        node_id: str,
        agent_card: AgentCard,
        child: NodeProtocol | None = None,
        *,
        max_depth: int = 100,
        budget: BudgetTracker | None = None,
    ) -> None:
        self.node_id = checked_text(node_id, "node_id")
        self._card = agent_card
        self._max_depth = checked_whole(max_depth, "max_depth", 1)
        self._budget = budget
        self._child: NodeProtocol | None = None
        if child is not None:
            self.set_child(child)

    @property
    def child(self) -> NodeProtocol | None:
        """The wrapped node, or None."""
        return self._child

    def set_child(self, child: NodeProtocol) -> None:
        """Set or replace the wrapped node."""
        if not isinstance(child, NodeProtocol):
            raise InvalidInput(f"a child must be a node (NodeProtocol), not {type(child).__name__}")
        inside: object = child
        while isinstance(inside, NodeContainer):
            if inside is self:
                raise InvalidInput(f"node {self.node_id!r} cannot be put inside itself")
            inside = inside.child
        self._child = child

    def get_capabilities(self) -> AgentCard:
        return self._card

    async def execute_task(self, task: Task) -> Task:
        """Delegate the task to the child and return it with its outcome."""
        outer = checked_instance(task, Task, "the task of execute_task()").metadata.get(CONTAINER_DEPTH, 0)
        if isinstance(outer, bool) or not isinstance(outer, int) or outer < 0:
            return _failed(task, f"{CONTAINER_DEPTH} in the task's metadata is not a depth: {outer!r}")
        if outer >= self._max_depth:
            return _failed(
                task, f"the task is inside {outer} containers, and {self.node_id!r} allows {self._max_depth}"
            )
        if self._child is None:
            return _failed(task, f"the container {self.node_id!r} has no child to carry out the task")
        task.metadata[CONTAINER_DEPTH] = outer + 1
        try:
            return await self._delegate(self._child, task)
        finally:
            if outer:
                task.metadata[CONTAINER_DEPTH] = outer
            else:
                task.metadata.pop(CONTAINER_DEPTH, None)

    async def _delegate(self, child: NodeProtocol, task: Task) -> Task:
        import asyncio

        budget = self._budget
        if budget is not None and (late := budget.check_time()) is not None:
            return _failed(task, str(late))
        left_s = math.inf if budget is None else budget.get_remaining_budget().time_budget
        try:
            async with asyncio.timeout(None if math.isinf(left_s) else left_s) as limit:
                return await child.execute_task(task)
        except Exception as error:  # any exception of a node is the outcome of its task
            is_over = isinstance(error, TimeoutError) and limit.expired()
            told = f"node {self.node_id!r} had {left_s:g} seconds left, and they have passed"
            return _failed(task, told if is_over else error_text(error))


def _failed(task: Task, reason: str) -> Task:
    task.status, task.error = TaskStatus.FAILED, reason
    return task
