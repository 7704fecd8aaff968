"""Writes v2.loom: a store of format 2, with tiers. Run once, when the format was new.

The file it wrote is kept beside it and must always open; do not run this again with a later format. What is in
the namespace `default` is the same as in v1.loom; `tiers` holds what format 2 added.
"""

from __future__ import annotations

import runpy
from datetime import UTC, datetime
from pathlib import Path

from loom.memory import LoomMemory
from loom.protocol import Task

__all__ = ["make"]

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BUDGETS = {"l1_token_budget": 60, "l2_token_budget": 80, "l3_token_budget": 70, "l4_token_budget": 90}


def task(number: int) -> Task:
    return Task(
        task_id=f"t{number}",
        action="node.error",
        parameters={"ship": number},
        error=f"container {number} 没有清关",
        created_at=MOMENT,
        updated_at=MOMENT,
    )


def make(path: Path) -> None:
    runpy.run_path(str(Path(__file__).with_name("make_v1.py")))["make"](path)
    with LoomMemory("one", store=path, namespace="tiers", embedder="none", derive=False, **BUDGETS) as memory:  # type: ignore[arg-type]
        for number in range(30):
            memory.add_task(task(number))
        memory.add_task(Task(task_id="large", action="x", parameters={"log": "refused; " * 90}, created_at=MOMENT))
        memory.add_fact("港口的代码是 NLRTM", tags=["port"])
        with LoomMemory("two", store=memory.store, embedder="none", derive=False) as second:
            second.add_task(task(29))


if __name__ == "__main__":
    make(Path(__file__).with_name("v2.loom"))
