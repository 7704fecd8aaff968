"""A tree of nodes under one budget: each divides its task if it is complex enough, and works on it otherwise.

Run it with: python examples/tree_of_nodes.py

No model is needed: a node is a plain Python object that follows NodeProtocol, and dividing a task is cutting it at
its marks. What a child is given its parent no longer has; the last one finds that nothing is left for it.
"""

from __future__ import annotations

import asyncio
import re

from loom.fractal import (
    BudgetTracker,
    NodeContainer,
    RecursiveBudget,
    ResultSynthesizer,
    should_use_fractal,
)
from loom.memory import MemoryManager
from loom.protocol import AgentCard, Task, TaskStatus
from loom.settings import FractalConfig

JOB = (
    "first survey the field and mark the corners, then plant the beans and the peas; "
    "paint the fence; "
    "最后修理屋顶和烟囱，然后清理水沟并检查门窗"
)
RULE = FractalConfig(complexity_threshold=0.2)


def divided(text: str) -> list[str]:
    """The parts of a job: at its semicolons, or else at its commas."""
    return [part.strip() for part in (text.split(";") if ";" in text else re.split("[,，]", text))]


class Node:
    """Works on a task, or divides it among children like itself."""

    def __init__(self, name: str, memory: MemoryManager, budget: BudgetTracker) -> None:
        self.node_id = name
        self.memory = memory
        self.budget = budget
        self.children: list[Node] = []

    def get_capabilities(self) -> AgentCard:
        return AgentCard(self.node_id)

    async def execute_task(self, task: Task) -> Task:
        text = task.parameters["content"]
        self.budget.record_tokens(self.memory.counter.count(text))
        await self.memory.write(f"job of {self.node_id}", text, "shared")
        parts = divided(text)
        if len(parts) > 1 and should_use_fractal(task, RULE) and self.budget.check_can_create_child() is None:
            results = [await self.delegate(part, number) for number, part in enumerate(parts, start=1)]
            task.result = await ResultSynthesizer().synthesize(task, results, "concatenate")
        else:
            self.budget.record_tool_call()  # the work itself
            task.result = f"done: {text}"
        task.status = TaskStatus.COMPLETED
        self.memory.add_task(task)
        return task

    async def delegate(self, part: str, number: int) -> Task:
        name = f"{self.node_id}.{number}"
        # The work on an undivided part is one tool call.
        calls = min(len(divided(part)), self.budget.get_remaining_budget().tool_budget)
        with self.budget.create_child(name, tool_budget=calls) as budget:
            child = Node(name, MemoryManager(name, self.memory), budget)
            self.children.append(child)
            # A container turns what goes wrong inside into the outcome of the task.
            inside = NodeContainer(f"{name}, contained", AgentCard(name), child, budget=budget)
            return await inside.execute_task(Task(action="execute", parameters={"content": part}))

    async def show(self, depth: int = 0) -> None:
        inherited = await self.memory.list_by_scope("inherited")
        names = ", ".join(sorted(entry.id for entry in inherited)) or "nothing"
        print(
            f"{'  ' * depth}{self.node_id}: spent {self.budget.spent.tokens} tokens and "
            f"{self.budget.spent.tool_calls} tool calls, remembers {len(self.memory.get_l1_tasks())} tasks,"
        )
        print(f"{'  ' * depth}  inherits {names}")
        for child in self.children:
            await child.show(depth + 1)


async def work() -> None:
    with (
        MemoryManager("root", embedder="none") as memory,
        BudgetTracker(RecursiveBudget(max_depth=2, max_children=4, token_budget=1000, tool_budget=4)) as budget,
    ):
        root = Node("root", memory, budget)
        done = await root.execute_task(Task(action="execute", parameters={"content": JOB}))
        print(done.result)
        await root.show()
        spent = budget.total_spent
        print(f"tokens: {spent.tokens} of {budget.budget.token_budget} spent by {1 + spent.children} nodes")
        print(f"tool calls: {spent.tool_calls} of {budget.budget.tool_budget}")


def main() -> None:
    asyncio.run(work())


if __name__ == "__main__":
    main()
