"""Tools with which a model divides its work: a plan that all child agents can read, and tasks for child agents.

The model decides whether to divide. The budget limits the depth, the number of children, the time and the tokens.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom.agent.tools import Tool
from loom.errors import InvalidInput
from loom.fractal.budget import BudgetTracker
from loom.fractal.memory import MemoryScope
from loom.fractal.synthesizer import ResultSynthesizer
from loom.protocol import Task, TaskStatus, new_id

if TYPE_CHECKING:
    from loom.agent.loop import Agent
    from loom.memory.manager import MemoryManager

__all__ = ["PLAN", "meta_tools"]

PLAN = "plan"
"""The key of an agent's plan in its SHARED scope."""

_MOST_PARTS = 16


def meta_tools(
    question: Task,
    account: BudgetTracker,
    *,
    memory: MemoryManager | None,
    keep: Callable[[Task], Awaitable[None]],
    make_child: Callable[[BudgetTracker], Agent],
    plan: Callable[[list[str]], object] | None = None,
) -> list[Tool]:
    """Return `create_plan` and `delegate_task` for one run, whose budget is `account`.

    `keep` stores and publishes a task. `make_child` returns an agent that works on a share of the budget. `plan`
    writes the steps to the task process of the notebook, if there is one.
    """
    dividing = _Dividing(question, account, memory, keep, make_child, plan)
    return [
        Tool(
            "create_plan",
            "Write down the steps of a larger task before you begin. The plan is kept in memory, and every agent "
            "that you delegate to can read it. Call it again to change the plan.",
            {
                "type": "object",
                "properties": {
                    "goal": {"type": "string", "description": "what the plan is for"},
                    "steps": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "what is to be done, in order",
                    },
                },
                "required": ["goal", "steps"],
                "additionalProperties": False,
            },
            dividing.create_plan,
        ),
        Tool(
            "delegate_task",
            "Give a self-contained piece of work to a child agent and get its result. It does not see this "
            "conversation: say everything that it must know. With parts, each part goes to a child of its own, all "
            "of them work side by side, and their results come back as one.",
            {
                "type": "object",
                "properties": {
                    "task": {"type": "string", "description": "what is to be done"},
                    "parts": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "independent parts of the task, each complete in itself",
                    },
                },
                "required": ["task"],
                "additionalProperties": False,
            },
            dividing.delegate_task,
            read_only=True,  # each child has its own node, so that several can work at once
            timeout_s=math.inf,  # the time of the budget bounds a child
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Dividing:
    """The work of the meta tools in one run."""

    question: Task
    account: BudgetTracker
    memory: MemoryManager | None
    keep: Callable[[Task], Awaitable[None]]
    make_child: Callable[[BudgetTracker], Agent]
    write_process: Callable[[list[str]], object] | None

    async def create_plan(self, goal: str, steps: list[str]) -> dict[str, Any]:
        if not steps:
            raise InvalidInput("a plan must have at least one step")
        plan = {"goal": goal, "steps": steps}
        if self.memory is not None:
            await self.memory.write(PLAN, plan, MemoryScope.SHARED)
        if self.write_process is not None:
            await asyncio.to_thread(self.write_process, steps)
        await self.keep(
            Task(
                action="node.planning",
                parameters=plan,
                status=TaskStatus.COMPLETED,
                # Not in the conversation, where this turn would separate a call from its result.
                session_id=f"{self.question.session_id}/{PLAN}",
                parent_task_id=self.question.task_id,
                source_agent=self.question.target_agent,
            )
        )
        return {"plan": plan}

    async def delegate_task(self, task: str, parts: list[str] | None = None) -> dict[str, Any]:
        asked = [part for part in parts or [] if part.strip()] or [task]
        if len(asked) > _MOST_PARTS:
            raise InvalidInput(f"a task has at most {_MOST_PARTS} parts, not {len(asked)}")
        # Open all accounts before any work: if one is refused, nothing was spent on the others.
        accounts: list[BudgetTracker] = []
        children: list[asyncio.Task[Task]] = []
        try:
            accounts.extend(
                self.account.create_child(f"{self.question.target_agent}.{new_id().lower()}") for _ in asked
            )
            children.extend(asyncio.create_task(self._delegated(*one)) for one in zip(accounts, asked, strict=True))
            done = await asyncio.gather(*children)
        finally:
            # If one of them raised an error, the others must end before their accounts are closed.
            for child in children:
                child.cancel()
            await asyncio.gather(*children, return_exceptions=True)
            for account in accounts:
                account.close()
        sources = [{"node": one.target_agent, "task_id": one.task_id, "status": str(one.status)} for one in done]
        if len(done) == 1:
            said: dict[str, Any] = (
                {"error": done[0].error} if done[0].status is not TaskStatus.COMPLETED else {"result": done[0].result}
            )
            return {**said, "sources": sources}
        whole = await ResultSynthesizer().synthesize(task, done)
        return {"result": whole, "sources": sources}

    async def _delegated(self, account: BudgetTracker, text: str) -> Task:
        """Let one child work, and return its task with the outcome."""
        task = Task(
            action="execute",
            parameters={"content": text},
            session_id=f"{self.question.session_id}/{account.node_id}",
            parent_task_id=self.question.task_id,
            source_agent=self.question.target_agent,
            target_agent=account.node_id,
        )
        child = await asyncio.to_thread(self.make_child, account)
        try:
            return await child.execute_task(task)
        finally:
            await asyncio.to_thread(child.close)
