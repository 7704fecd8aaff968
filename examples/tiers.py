"""An agent at work under small budgets: what is at hand, what had to make room, and that nothing is lost.

Run it with: python examples/tiers.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from loom.events import EventBus
from loom.memory import MemoryManager
from loom.protocol import Task

STEPS = (
    ("node.planning", {"goal": "move the invoices to the new database"}, "export, convert, import, compare", None),
    ("node.tool_call", {"tool": "pg_dump", "table": "invoices"}, None, None),
    ("node.tool_result", {"tool": "pg_dump"}, "41,207 rows exported in 12 seconds", None),
    ("node.thinking", {"thought": "the amounts are text in the old table and need converting"}, None, None),
    ("node.error", {"tool": "psql"}, None, "invalid input syntax for type numeric: '1.204,50'"),
    ("node.thinking", {"thought": "a German decimal comma; convert before importing"}, None, None),
    ("node.tool_result", {"tool": "convert"}, "converted 41,207 amounts, 0 left over", None),
    ("node.tool_result", {"tool": "psql"}, "41,207 rows imported", None),
    ("node.complete", {"goal": "move the invoices"}, "both tables sum up to 9,310,442.17", None),
)


def main() -> None:
    bus = EventBus()
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryManager(
            "migrator",
            store=Path(folder) / "agent.loom",
            event_bus=bus,
            l1_token_budget=60,
            l2_token_budget=90,
            l3_token_budget=80,
            l4_token_budget=400,
        ) as memory,
    ):
        for action, parameters, result, error in STEPS:
            # Everything that is published on the bus is remembered, once.
            bus.publish_sync(Task(action=action, parameters=parameters, result=result, error=error, session_id="s1"))

        stats = memory.get_stats()
        for tier in ("l1", "l2", "l3", "l4"):
            used, budget, items = (stats[f"{tier}_{what}"] for what in ("token_usage", "token_budget", "items"))
            print(f"{tier.upper()}: {items} items, {used} of {budget} tokens")
        print("at hand, by importance:")
        for task in memory.get_l2_tasks():
            print(f"  {task.action}: {task.error or task.result}")
        print("made room, and left a stand-in:")
        for summary in memory.get_l3_summaries():
            print(f"  {summary.text}")
        print("found again, whole, wherever it is:")
        print(f"  {memory.search_tasks('how many rows were exported', limit=1)[0].result}")


if __name__ == "__main__":
    main()
