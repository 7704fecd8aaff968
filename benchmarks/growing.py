"""Whether a write costs more as the store grows: early records compared with late ones, including background work.

    python -m benchmarks.growing [--records 100000] [--window 5000] [--derive] [--save]

Records are written one by one and in batches of 100, without an embedder and with the fake one (64 dimensions), and
nothing is derived from them unless `--derive` asks for it. The figure is the CPU of the whole process per record,
worker included, of the second half of the records beside the first half. `flush` closes each window, so the work that
a window caused is in it. Which merges fall into a window is chance, so whole halves are compared; the first window is
left out. The halves cannot take turns, so a bare SQLite insert of the same texts is measured all along and divides
out a busy machine.
"""

from __future__ import annotations

import argparse
import itertools
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.measuring import messages
from loom.everyday import Memory, open_memory
from loom.models.embedders import FakeEmbedder

__all__ = ["main"]


@dataclass(frozen=True, slots=True)
class Window:
    """The cost of one stretch of records, in microseconds of CPU each: in total, and of the calling thread."""

    last: int
    process_us: float
    thread_us: float
    bare_us: float


class Bare:
    """The same texts into bare SQLite, one by one, as a measure of the machine's present speed."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("CREATE TABLE bare (seq INTEGER PRIMARY KEY, content TEXT)")

    def write_us(self, texts: Sequence[str], chunk: int = 100) -> float:
        """Microseconds of CPU for one text: the median of chunks, as one interruption says nothing."""
        spent: list[float] = []
        for first in range(0, len(texts), chunk):
            some = texts[first : first + chunk]
            started = time.thread_time()
            for text in some:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("INSERT INTO bare (content) VALUES (?)", (text,))
                self._connection.execute("COMMIT")
            spent.append((time.thread_time() - started) / len(some) * 1e6)
        return statistics.median(spent)

    def close(self) -> None:
        self._connection.close()


def write(memory: Memory, texts: Sequence[str], batch: int) -> None:
    if batch == 1:
        for text in texts:
            memory.remember(text, role="user", session_id="s1")
        return
    for start in range(0, len(texts), batch):
        memory.remember(list(texts[start : start + batch]), role="user", session_id="s1")


def windows(memory: Memory, bare: Bare, texts: Iterator[str], batch: int, size: int) -> Iterator[Window]:
    last = 0
    while chosen := list(itertools.islice(texts, size)):
        process, thread = time.process_time(), time.thread_time()
        write(memory, chosen, batch)
        thread = time.thread_time() - thread
        memory.flush()
        process = time.process_time() - process
        last += len(chosen)
        yield Window(
            last, process / len(chosen) * 1e6, thread / len(chosen) * 1e6, bare.write_us(chosen[: len(chosen) // 5])
        )


def relative(window: Window) -> float:
    return window.process_us / window.bare_us


def report(measured: Sequence[Window]) -> tuple[float, list[str]]:
    """Print the growth of the cost from the first half of the windows to the second. Returns the growth and its
    row."""
    middle = (len(measured) + 1) // 2
    halves = [measured[1:middle], measured[middle:]]  # the first window creates the tables
    for half in halves:
        cost, thread, bare = (
            statistics.mean(getattr(window, name) for window in half)
            for name in ("process_us", "thread_us", "bare_us")
        )
        print(
            f"    up to {half[-1].last:>9,}: {cost:7.1f} us CPU a record in all, "
            f"{thread:6.1f} of the calling thread; bare SQLite {bare:5.1f}"
        )
    costs = [statistics.mean(window.process_us for window in half) for half in halves]
    beside = [statistics.mean(map(relative, half)) for half in halves]
    growth, beside_bare = (after / before - 1 for before, after in (costs, beside))
    print(f"    growth {growth:+.0%} as measured, {beside_bare:+.0%} beside bare SQLite", flush=True)
    return growth, [*(f"{cost:,.0f} us" for cost in costs), f"{growth:+.0%}", f"{beside_bare:+.0%}"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.growing", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--window", type=int, default=5_000)
    parser.add_argument("--derive", action="store_true", help="draw facts and summaries, too: ten times the work")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    if options.records < 4 * options.window:
        parser.error("there must be room for four windows")
    embedders: dict[str, Any] = {"without an embedder": "none", "with the fake embedder": FakeEmbedder()}
    grown: dict[str, float] = {}
    table = [["", "first half of the records", "second half", "growth", "beside bare SQLite"]]
    for (name, embedder), batch in itertools.product(embedders.items(), (1, 100)):
        way = f"{'one by one' if batch == 1 else f'in batches of {batch}'}, {name}"
        print(f"  {way}:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            bare = Bare(Path(folder) / "bare.db")
            with open_memory(Path(folder) / "growing.loom", embedder=embedder, derive=options.derive) as memory:
                measured = list(windows(memory, bare, messages(options.records), batch, options.window))
                grown[way], row = report(measured)
                table.append([way, *row])
            bare.close()
    if options.save:
        figures.save("growing", sys.argv[1:] if arguments is None else arguments, {"table": table, "growth": grown})


if __name__ == "__main__":
    main()
