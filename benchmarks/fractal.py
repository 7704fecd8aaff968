"""Trees of nodes and shared pools: the cost of reading through many levels, and of a compare-and-set of a team.

A tree of 1,000 nodes, 50 levels deep, in one file; every node shares 20 values, and only the root has the one that is
read. A read at the bottom searches 49 ancestors. It is compared with its minimum: the same read by a child of the
root, and 48 point reads of the store. The pool is compared with the bare transaction below it, and a listing of a
pool in which one key was written 10,000 times with one in which it was written once.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import figures
from benchmarks.measuring import Side, print_table, ratio, take_turns
from loom.fractal.memory import FractalMemory, MemoryScope
from loom.memory.shared_pool import SharedMemoryPool
from loom.storage.sqlite.store import SqliteStore

__all__ = ["main"]

_SEED = 20_250_801
EACH = 20


def plant(store: SqliteStore, nodes: int, depth: int, values: int) -> list[FractalMemory]:
    """A spine from the root down to `depth`, and the other nodes at random places below it; the spine comes first."""
    chance = random.Random(_SEED)
    tree = [FractalMemory("node-0", store=store)]
    levels = [1]
    while len(tree) < nodes:
        above = len(tree) - 1 if len(tree) < depth else chance.randrange(len(tree))
        if levels[above] < depth:
            tree.append(FractalMemory(f"node-{len(tree)}", tree[above]))
            levels.append(levels[above] + 1)
    with store.transaction() as transaction:
        for node in tree:
            for number in range(values):
                transaction.put_entry(
                    f"value {number}",
                    {"of": node.node_id, "text": "x" * 100},
                    writer=node.node_id,
                    scope=MemoryScope.SHARED,
                    owner=node.node_id,
                )
    return tree


def inheriting(folder: Path, nodes: int, depth: int, rounds: int) -> float:
    store = SqliteStore(folder / "tree.loom")
    tree = plant(store, nodes, depth, 20)
    tree[0].scopes.write("plan", {"steps": ["read", "write", "check"]}, MemoryScope.SHARED)
    bottom, second = tree[depth - 1].scopes, tree[1].scopes

    def read_below() -> None:
        for _ in range(EACH):
            assert bottom.read("plan", MemoryScope.INHERITED) is not None

    def read_second() -> None:
        for _ in range(EACH):
            assert second.read("plan", MemoryScope.INHERITED) is not None

    def point_reads() -> None:
        for _ in range(EACH):
            for level in range(1, depth - 1):
                store.entry("plan", scope=MemoryScope.SHARED, owner=f"node-{level}")

    sides = [
        Side(f"INHERITED at depth {depth}", read_below, EACH),
        Side("INHERITED at depth 2", read_second, EACH),
        Side(f"{depth - 2} point reads", point_reads, EACH),
    ]
    take_turns(sides, rounds)
    print(f"a tree of {len(tree):,} nodes, {depth} levels deep, {store.stats()['entries']:,} values:")
    print_table(sides, "reading")
    found = ratio(*sides)
    print(f"  ratio to a read at depth 2 and {depth - 2} point reads: {found:.2f} (target 1.00)", flush=True)
    store.close()
    return found


def sharing(folder: Path, rounds: int) -> None:
    store = SqliteStore(folder / "pool.loom")
    pool = SharedMemoryPool("team", store=store)
    loop = asyncio.new_event_loop()

    async def write() -> None:
        for _ in range(EACH):
            entry = await pool.read("counter")
            version, value = (0, 0) if entry is None else (entry.version, entry.content)
            await pool.write("counter", value + 1, "bench", expected_version=version)

    def bare() -> None:
        for _ in range(EACH):
            entry = store.entry("bare", scope="pool", owner="bare")
            version, value = (0, 0) if entry is None else (entry.version, entry.content)
            with store.transaction() as transaction:
                transaction.put_entry(
                    "bare", value + 1, writer="bench", scope="pool", owner="bare", expected_version=version
                )

    sides = [
        Side("read and compare-and-set", lambda: loop.run_until_complete(write()), EACH, time.process_time),
        Side("the same without the pool", bare, EACH, time.process_time),
    ]
    take_turns(sides, rounds)
    print("a pool in a file, CPU of the whole process:")
    print_table(sides, "a shared counter")
    print(f"  ratio {ratio(*sides):.2f}", flush=True)

    with store.transaction() as transaction:
        for owner, times in (("hot", 10_000), ("cool", 1)):
            for number in range(times):
                transaction.put_entry("counter", number, writer="bench", scope="pool", owner=owner)
            for number in range(50):
                transaction.put_entry(f"key {number}", number, writer="bench", scope="pool", owner=owner)
    listings = [
        Side(f"one of 51 keys written {times}", partial(store.entries, scope="pool", owner=owner))
        for owner, times in (("hot", "10,000 times"), ("cool", "once"))
    ]
    take_turns(listings, rounds)
    print_table(listings, "listing")
    print(f"  ratio {ratio(*listings):.2f}", flush=True)
    loop.close()
    store.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.fractal", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    if not 3 <= options.depth <= options.nodes:
        parser.error("the depth must be at least 3, and there must be as many nodes")
    with (
        tempfile.TemporaryDirectory() as folder,
        figures.saving_output("fractal", arguments, is_wanted=options.save) as kept,
    ):
        found = kept["ratio"] = inheriting(Path(folder), options.nodes, options.depth, options.rounds)
        sharing(Path(folder), options.rounds)
    return 0 if found <= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
