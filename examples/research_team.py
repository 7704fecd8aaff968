"""A research team: three readers and a writer share a pool, under one lead, in one file.

Run it with: python examples/research_team.py

No model is needed: each node is a plain Python object that follows NodeProtocol. The readers work at the same time
and add what they find to one list, by compare-and-set, so that nobody's finding is lost.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path

from loom.events import EventBus
from loom.fractal import BudgetTracker, RecursiveBudget, ResultSynthesizer
from loom.memory import MemoryManager, SharedMemoryPool
from loom.protocol import AgentCard, Task, TaskStatus

SHELVES = {
    "rivers": ("The Danube passes through ten countries.", "多瑙河流经十个国家。"),
    "bridges": ("The bridge at Mostar was rebuilt in 2004.",),
    "harbours": ("Rotterdam dredges its harbour all year round.", "The harbour of Lisbon lies on the Tagus."),
}


class Member:
    """The common part of all nodes: a name, a memory below its lead's, and a share of the budget."""

    def __init__(self, name: str, lead: MemoryManager, budget: BudgetTracker, bus: EventBus) -> None:
        self.node_id = name
        self.bus = bus
        self.memory = MemoryManager(name, lead, event_bus=bus)  # the pool comes from the lead
        self.budget = budget.create_child(name, token_budget=200)

    @property
    def pool(self) -> SharedMemoryPool:
        assert self.memory.shared_pool is not None
        return self.memory.shared_pool

    def get_capabilities(self) -> AgentCard:
        return AgentCard(self.node_id, skills=("reading",))

    async def say(self, task: Task, result: object) -> Task:
        """Everything that is said goes over the bus, and is remembered by the one who said it."""
        task.status, task.result, task.source_agent = TaskStatus.COMPLETED, result, self.node_id
        await self.bus.publish(task)
        return task


def added(sentence: str, found: list[str] | None) -> list[str]:
    return [*(found or []), sentence]


class Reader(Member):
    """Reads one shelf and adds what it finds to the team's findings."""

    async def execute_task(self, task: Task) -> Task:
        shelf = task.parameters["shelf"]
        style = await self.memory.read("style")  # inherited from the lead
        for sentence in SHELVES[shelf]:
            self.budget.record_tokens(self.memory.counter.count(sentence))
            await self.pool.update("findings", partial(added, sentence), self.node_id)
        return await self.say(task, f"{len(SHELVES[shelf])} findings about {shelf}, {style}")


class Writer(Member):
    """Makes one text of what the team has found."""

    async def execute_task(self, task: Task) -> Task:
        entry = await self.pool.read("findings")
        findings = [] if entry is None else sorted(entry.content)
        counter = self.memory.counter
        text = await ResultSynthesizer(token_counter=counter).synthesize(
            task, findings, "concatenate", max_tokens=self.budget.get_remaining_budget().token_budget
        )
        self.budget.record_tokens(counter.count(text))
        await self.pool.write("report", text, writer_id=self.node_id, expected_version=0)
        return await self.say(task, "the report is written")


async def work(path: Path) -> None:
    bus = EventBus()
    budget = BudgetTracker(RecursiveBudget(max_depth=1, max_children=4, token_budget=1000), node_id="lead")
    with (
        SharedMemoryPool("team", event_bus=bus, store=path) as pool,
        MemoryManager("lead", store=path, embedder="none", shared_pool=pool) as lead,
    ):
        await lead.write("style", "one sentence each", "shared")
        readers = {shelf: Reader(f"reader of {shelf}", lead, budget, bus) for shelf in SHELVES}
        writer = Writer("writer", lead, budget, bus)
        async with pool.watch("report") as changes:
            await asyncio.gather(
                *(
                    reader.execute_task(Task(action="execute", parameters={"shelf": shelf}))
                    for shelf, reader in readers.items()
                )
            )
            await writer.execute_task(Task(action="execute", parameters={"content": "Report on waters"}))
            change = await anext(changes)
        assert change.entry is not None
        print(f"{change.key}, version {change.version}, by {change.writer}:")
        print(change.entry.content)
        findings = await pool.history("findings")
        print(f"findings: {len(findings)} versions by {len({one.updated_by for one in findings})} readers")

        print(f"lead: {budget.total_spent.tokens} of {budget.budget.token_budget} tokens spent by all")
        for member in (*readers.values(), writer):
            remembered = member.memory.get_l1_tasks()
            inherited = await member.memory.list_by_scope("inherited")
            print(
                f"  {member.node_id}: spent {member.budget.spent.tokens}, remembers {len(remembered)} tasks, "
                f"inherits {', '.join(entry.id for entry in inherited)}"
            )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(work(Path(folder) / "team.loom"))


if __name__ == "__main__":
    main()
