"""Child processes for the tests of the tiers: `python -m tests.crash.tier_children <role> <json>`.

They write important tasks with tiny budgets, so that every write moves something, and look into the file after
each of them, in one read transaction over a connection of their own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sqlite3
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loom.memory.core import LoomMemory
from loom.protocol import Task
from loom.storage.sqlite.archive import Reader
from loom.storage.sqlite.counting import Counts
from loom.storage.sqlite.residency import Residency
from loom.text.tokens import counters_by_name
from tests.crash.children import arm, say, unique_word
from tests.crash.processes import Child

__all__ = ["BUDGETS", "TierChild", "opened", "task_for", "what_is_wrong"]

BUDGETS: dict[str, Any] = {
    "l1_token_budget": 60,
    "l2_token_budget": 120,
    "l3_token_budget": 90,
    "l4_token_budget": 150,
}
ACTIONS = ("node.error", "node.planning", "node.tool_result", "node.tool_call", "execute", "node.thinking")
_LONGEST_LIFE_S = 150.0


def task_for(number: int, outcome: str | None = None) -> Task:
    """A task with a word of its own; most of them important, one in eleven too large for L1 and L2."""
    filling = "the ships in the harbour " * (1 + number % 3) + "所有的灯都亮着 " * (number % 2)
    if number % 11 == 10:
        filling *= 12
    return Task(
        task_id=f"task-{number}",
        action=ACTIONS[number % len(ACTIONS)],
        parameters={"content": f"{unique_word(number)} {filling}"},
        result=outcome,
    )


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30.0)
    counts = Counts()
    counts.use({name: counter.count for name, counter in counters_by_name().items()})
    counts.serve(connection)
    Reader().serve(connection)
    try:
        connection.execute("BEGIN")
        yield connection
    finally:
        connection.close()


def what_is_wrong(path: str | Path) -> list[str]:
    """In one moment of the file: tiers above budget, totals that are no sums, residents that should be none."""
    wrong: list[str] = []
    with reading(path) as connection:
        budgets = {
            (namespace, node, key[:2]): json.loads(value)
            for namespace, node, key, value in connection.execute("SELECT namespace, node, key, value FROM settings")
            if key.endswith("_token_budget") and key.startswith("l")
        }
        held = {
            (namespace, node, tier): (items, tokens)
            for namespace, node, tier, items, tokens in connection.execute(
                "SELECT namespace, node, tier, count(*), sum(tokens) FROM residents GROUP BY 1, 2, 3"
            )
        }
        totals = {
            (namespace, node, tier): (items, tokens)
            for namespace, node, tier, items, tokens in connection.execute(
                "SELECT namespace, node, tier, items, tokens FROM tiers WHERE tier != 'l1'"
            )
        }
        wrong += [
            f"{place} holds {held.get(place)} and is said to hold {totals.get(place)}"
            for place in sorted(held.keys() | totals.keys())
            if held.get(place, (0, 0)) != totals.get(place, (0, 0))
        ]
        for (namespace, node, tier), budget in budgets.items():
            if tier == "l1":
                tokens = sum(size for _, size in Residency(connection, namespace).window(node))
            else:
                tokens = held.get((namespace, node, tier), (0, 0))[1]
            if tokens > budget:
                wrong.append(f"{tier} of {node} holds {tokens} of {budget}")
        stray = connection.execute(
            "SELECT count(*) FROM residents WHERE record IN (SELECT record FROM supersessions) "
            "OR record NOT IN (SELECT seq FROM records WHERE version > 0)"
        ).fetchone()[0]
        if stray:
            wrong.append(f"{stray} residents are superseded or forgotten")
        double = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM residents WHERE tier IN ('l2', 'l3', 'l4') "
            "GROUP BY namespace, node, record HAVING count(*) > 1)"
        ).fetchone()[0]
        if double:
            wrong.append(f"{double} records are in two of L2, L3 and L4")
    return wrong


def opened(path: str | Path, node: str, **options: Any) -> LoomMemory:
    return LoomMemory(node, store=path, embedder="none", **options)


# -- roles ---------------------------------------------------------------------------------------------------


def write_tasks(path: str, node: str, first: int, count: int, look: bool = True, **options: Any) -> None:
    """Add tasks; each id is said when it is acknowledged. Every fifth is done twice: when it is begun, and done."""
    with opened(path, node, **options) as memory:
        for number in range(first, first + count):
            memory.add_task(task_for(number))
            if number % 5 == 0:
                memory.add_task(task_for(number, "done"))
            say(f"ack {number}")
            if number % 7 == 0:
                memory.get_task(f"task-{number}")
            if look and (wrong := what_is_wrong(path)):
                raise AssertionError(f"after task {number}: {wrong}")


def poll(path: str) -> None:
    """Look without pause until the pipe is closed; prints the number of rounds, or the error."""
    told = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    say("open")
    rounds = 0
    while not told.is_set() or not rounds:
        rounds += 1
        if wrong := what_is_wrong(path):
            say({"wrong": wrong})
            return
    say({"rounds": rounds})


def tell(path: str, nodes: list[str]) -> None:
    """The contents of the tiers of some nodes, as this process reads them."""
    answer = {}
    for node in nodes:
        with opened(path, node) as memory:
            stats = memory.get_stats()
            answer[node] = {
                "stats": {key: value for key, value in stats.items() if key[:2] in ("l1", "l2", "l3", "l4")},
                "l1": [task.task_id for task in memory.get_l1_tasks()],
                "l2": [task.task_id for task in memory.get_l2_tasks()],
                "l3": [one.task_id for one in memory.get_l3_summaries()],
                "l4": [one.task_id for one in memory.l4.retrieve()],
            }
    say(answer)


def nursery() -> None:
    """Fork a writer for each line of arguments, and tell when it is gone: dozens of kills for one start.

    Nothing is open here and no thread runs, so forking is safe.
    """
    for line in sys.stdin:
        arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                if "armed" in arguments:
                    arm(arguments.pop("armed"))
                say(f"pid {os.getpid()}")
                write_tasks(**arguments)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(f"gone {os.waitstatus_to_exitcode(status)}")


class TierChild(Child):
    """A process that plays one of these roles."""

    roles = "tests.crash.tier_children"

    def send(self, what: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()


def main() -> None:
    arguments = json.loads(sys.argv[2])
    if sys.argv[1] != "nursery":  # its thread would not be copied by fork
        faulthandler.dump_traceback_later(_LONGEST_LIFE_S, exit=True)
    globals()[sys.argv[1]](**arguments)


if __name__ == "__main__":
    main()
