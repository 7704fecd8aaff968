"""The latencies of answers and moves of the tiers, against the targets of the design: P99, for searching P95.

    python -m benchmarks.latencies [--records 100000] [--rounds 1000] [--questions 300] [--folder FOLDER] [--save]

One memory of the profile `lcr` with all four tiers full and its old records in compressed blocks. Every operation is
timed separately, on another record each time. Wall and CPU time are both given, because on a busy machine the wall
time mostly reflects other work. Before a record whose block is "not at hand" is read, the cache of blocks is emptied.
The embedding of a question is not part of searching: the vectors are prepared. `--folder` keeps the store for another
run with as many records. `--save` keeps the figures for the documents. It ends with 1 if a target is missed in CPU
time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import figures
from benchmarks.measuring import messages, percentile, questions
from benchmarks.recalling import PreparedEmbedder
from benchmarks.vector_recall import clustered
from loom.everyday import Memory, open_memory
from loom.storage.sqlite.store import as_sqlite
from loom.tiers.monitor import Measure

__all__ = ["main"]

_DIMENSIONS = 384
_BATCH = 500
_LIMIT = 10


class Row(NamedTuple):
    """An operation, its target in milliseconds at a percentile, and its times in milliseconds."""

    name: str
    percent: int
    target: float
    cpu: list[float]
    wall: list[float]

    @property
    def reached(self) -> str:
        if percentile(self.wall, self.percent) < self.target:
            return "yes"
        return "in CPU time" if self.kept else "NO"

    @property
    def kept(self) -> bool:
        return percentile(self.cpu, self.percent) < self.target


def timed(
    name: str,
    percent: int,
    target: float,
    run: Callable[[int], object],
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> Row:
    """Call a function this many times with the number of the call; CPU is that of the calling thread, which does all
    of the work."""
    row = Row(name, percent, target, [], [])
    for number in range(rounds):
        before()
        wall, cpu = time.perf_counter(), time.thread_time()
        run(number)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        row.cpu.append(cpu * 1e3)
        row.wall.append(wall * 1e3)
    return row


def filled(memory: Memory, texts: Sequence[str]) -> None:
    """Write the texts, unless an earlier run has done so, and compress the old ones."""
    if memory.get_stats()["records"] < len(texts):
        began = time.process_time()
        for start in range(0, len(texts), _BATCH):
            memory.remember(list(texts[start : start + _BATCH]), role="user", session_id=f"s{start // _BATCH}")
        memory.flush()
        memory.store.archive()
        print(f"  filled: {(time.process_time() - began) / len(texts) * 1e6:.0f} us CPU a record", flush=True)
    memory.flush()


def measure(memory: Memory, count: int, asked: Sequence[str], rounds: int) -> list[Row]:
    _fill_up(memory)
    manager, store = memory.manager, memory.store
    random = np.random.default_rng(1)
    residents = {one.record for one in store.residents(manager.node_id, "l2")}
    working = _ids(memory, list(residents))
    # From the older half, in no tier but the archive or the log; each is used once only. Moves are numbered too, so
    # not every number is a record's.
    numbers = [int(one) for one in random.permutation(max(residents) // 2)[: 8 * rounds] if one not in residents]
    far = _ids(memory, numbers)[: 2 * rounds]
    rounds = min(rounds, len(far) // 2, len(working))
    reads, lifted = far[:rounds], far[rounds:]
    reader = as_sqlite(store).engine.archive
    rows = [
        timed("focus: reading the window", 99, 1.0, lambda _: store.window(manager.node_id), rounds),
        timed("focus: the newest ten, as tasks", 99, 1.0, lambda _: manager.get_l1_tasks(10), rounds),
        timed("focus: all of it, as tasks", 99, 1.0, lambda _: manager.get_l1_tasks(), rounds),
        timed(
            "working: get",
            99,
            10.0,
            lambda number: manager.get(working[number * 7 % len(working)]),
            rounds,
        ),
        timed(
            "archive: reading, block not at hand",
            99,
            100.0,
            lambda number: store.get(reads[number]),
            rounds,
            reader.clear,
        ),
        timed(
            "archive: get, which promotes",
            99,
            100.0,
            lambda number: manager.get(reads[number]),
            rounds,
            reader.clear,
        ),
        timed(
            "promotion to working",
            99,
            50.0,
            lambda number: manager.promote(lifted[number]),
            rounds,
            reader.clear,
        ),
        timed("promotion to focus", 99, 10.0, lambda number: manager.promote(working[-1 - number], "l1"), rounds),
    ]
    rows.append(_writing(memory, rounds))
    held = _ids(memory, [one.record for one in store.residents(manager.node_id, "l2")])
    rows.append(timed("demotion from working", 99, 100.0, lambda number: manager.demote(held[number]), rounds))
    # The same records, which are now in the archive.
    rows.append(timed("demotion from the archive", 99, 100.0, lambda number: manager.demote(held[number]), rounds))
    memory.flush()
    rows.append(
        timed(
            f"searching, {count:,} records",
            95,
            300.0,
            lambda number: memory.recall(asked[number], limit=_LIMIT),
            len(asked),
        )
    )
    return rows


def _demotions(memory: Memory) -> int:
    """The number of moves and writes of this process in which records left."""
    readings = memory.manager.monitor.readings()
    return next(one.observations for one in readings if one.measure is Measure.DEMOTION_LATENCY_MS)


def _write(memory: Memory) -> None:
    memory.remember(f"{time.time_ns()} " + "and so on " * 60)


def _fill_up(memory: Memory) -> None:
    """Fill the working tier: an earlier run may have left room in it, which would make promotions too easy."""
    before = _demotions(memory)
    while _demotions(memory) == before:
        _write(memory)


def _writing(memory: Memory, rounds: int) -> Row:
    """Writes into a full tier, and those of them that had to wait until others had left."""
    before: list[int] = []
    row = timed(
        "writing, where others must leave",
        99,
        100.0,
        lambda _: _write(memory),
        2 * rounds,
        lambda: before.append(_demotions(memory)),
    )
    after = [*before[1:], _demotions(memory)]
    waited = [place for place, (was, now) in enumerate(zip(before, after, strict=True)) if now > was]
    return row._replace(cpu=[row.cpu[place] for place in waited], wall=[row.wall[place] for place in waited])


def _ids(memory: Memory, records: Sequence[int]) -> list[str]:
    return [record.id for record in memory.store.records(records).values()]


def report(rows: Sequence[Row]) -> None:
    print(f"\n  {'':<38}{'CPU ms p50':>11}{'p95':>9}{'p99':>9}{'wall p50':>10}{'p95':>9}{'p99':>9}   target")
    for row in rows:
        figures = [percentile(times, percent) for times in (row.cpu, row.wall) for percent in (50, 95, 99)]
        shown = f"{figures[0]:>11.3f}{figures[1]:>9.3f}{figures[2]:>9.3f}{figures[3]:>10.3f}"
        print(
            f"  {row.name:<38}{shown}{figures[4]:>9.3f}{figures[5]:>9.3f}"
            f"   p{row.percent} < {row.target:g}: {row.reached}"
        )


def saved(rows: Sequence[Row], records: int) -> dict[str, object]:
    """The figures for the documents: by operation, in milliseconds."""
    found: dict[str, object] = {"records": records}
    for row in rows:
        found[row.name.partition(",")[0]] = {
            f"{clock}_p{percent}": percentile(times, percent)
            for clock, times in (("cpu", row.cpu), ("wall", row.wall))
            for percent in (50, row.percent)
        }
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="latencies", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=100_000, help="memories in the store (default 100,000)")
    parser.add_argument("--rounds", type=int, default=1_000, help="times that each operation is done (default 1,000)")
    parser.add_argument("--questions", type=int, default=300, help="questions that are searched (default 300)")
    parser.add_argument("--folder", type=Path, help="where to keep the store for another run")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    chosen = parser.parse_args(arguments)
    texts = list(dict.fromkeys(messages(chosen.records)))
    asked = list(dict.fromkeys(questions(chosen.questions)))
    drawn = clustered(len(texts) + len(asked), _DIMENSIONS)
    embedder = PreparedEmbedder(texts, drawn[: len(texts)], asked, drawn[len(texts) :])
    print(f"{len(texts):,} records, {len(asked)} questions in two languages")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if chosen.folder is None else chosen.folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"latencies-{chosen.records}.loom"
        with open_memory(path, profile="lcr", embedder=embedder, derive=False) as memory:
            filled(memory, texts)
            rows = measure(memory, len(texts), asked, chosen.rounds)
    report(rows)
    if chosen.save:
        figures.save("latencies", sys.argv[1:] if arguments is None else arguments, saved(rows, len(texts)))
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
