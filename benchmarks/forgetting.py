"""The time of `forget` during work that could delay it, in one run.

    python -m benchmarks.forgetting [--records 2000] [--forgets 15] [--processes 16] [--save]

The median of forgetting one memory at a time: on an idle store, in a process that has 1,000 records to embed yet
(with an embedder that takes 2 ms a text), and beside processes that each write ten times a second and recall once.
Each of the last two is measured by turns with the idle store, and given as a multiple of that. Multiples above 3 are
marked. With `--pause 0` the processes write without a pause, which leaves forget a small share of the processors;
so the same share is measured for one `remember`, in the same turns, and printed below.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.measuring import messages
from loom.everyday import Memory, open_memory
from loom.models.embedders import FakeEmbedder

__all__ = ["main"]

_BACKLOG = 1_000
_TEXT_S = 0.002
_TURNS = 3
_SETTLE_S = 1.0
_MOST_TIMES = 3.0


class SlowEmbedder(FakeEmbedder):
    """An embedder that, once it is switched on, takes time for every text, as a model does."""

    slow = False

    def embed_batch(self, texts: Sequence[str]) -> Any:
        if self.slow:
            time.sleep(_TEXT_S * len(texts))
        return super().embed_batch(texts)


def opened(path: Path, embedder: SlowEmbedder | None = None) -> Memory:
    return open_memory(path, embedder=embedder or SlowEmbedder(dimensions=64), derive=False, busy_timeout_s=120.0)


def forget_each(memory: Memory, ids: Sequence[str]) -> list[float]:
    """The times of forgetting each of these, in ms."""
    took = []
    for id in ids:
        started = time.perf_counter()
        receipt = memory.forget(id, timeout_s=120.0)
        assert receipt.records == 1, receipt
        took.append(1e3 * (time.perf_counter() - started))
    return took


def write_and_recall(
    path: Path, texts: Sequence[str], pause: float, ready: Barrier, busy: Event, stop: Event
) -> None:
    """The work of each of the other processes while `busy` is set."""
    with opened(path) as memory:
        ready.wait()
        number = 0
        while not stop.is_set():
            busy.wait()
            memory.remember(texts[number % len(texts)] + f" {number}")
            if number % 10 == 0:
                memory.recall(texts[number % len(texts)], limit=5)
            number += 1
            time.sleep(pause)


Times = tuple[list[float], list[float]]
"""The times of forgetting on the idle store and during other work, in ms."""


def remember_each(memory: Memory, texts: Sequence[str]) -> list[float]:
    """The times of remembering each of these, in ms."""
    took = []
    for text in texts:
        started = time.perf_counter()
        memory.remember(text)
        took.append(1e3 * (time.perf_counter() - started))
    return took


def beside_processes(
    path: Path, ids: Sequence[str], processes: int, texts: Sequence[str], pause: float
) -> tuple[Times, Times]:
    """For `forget` and for `remember`."""
    context = multiprocessing.get_context("spawn")
    ready, busy, stop = context.Barrier(processes + 1), context.Event(), context.Event()
    others = [
        context.Process(target=write_and_recall, args=(path, texts, pause, ready, busy, stop), daemon=True)
        for _ in range(processes)
    ]
    for other in others:
        other.start()
    forgotten: Times = [], []
    written: Times = [], []
    try:
        with opened(path) as memory:
            ready.wait()
            for turn in by_turns(ids):
                memory.flush()
                for state, chosen in enumerate(turn):
                    if state:
                        busy.set()
                        time.sleep(_SETTLE_S)
                    forgotten[state].extend(forget_each(memory, chosen))
                    written[state].extend(remember_each(memory, texts[: len(chosen)]))
                busy.clear()
                time.sleep(_SETTLE_S)
    finally:
        stop.set()
        busy.set()
        for other in others:
            other.join()
    return forgotten, written


def beside_embedding(memory: Memory, embedder: SlowEmbedder, ids: Sequence[str], texts: Sequence[str]) -> Times:
    idle: list[float] = []
    took: list[float] = []
    for first, second in by_turns(ids):
        memory.flush()
        idle += forget_each(memory, first)
        embedder.slow = True
        memory.remember([*texts[-_BACKLOG:]])
        took += forget_each(memory, second)
        embedder.slow = False
    memory.flush()
    return idle, took


def by_turns(ids: Sequence[str]) -> list[tuple[Sequence[str], Sequence[str]]]:
    """The ids to forget on the idle store and during other work, in `_TURNS` turns."""
    parts = [ids[step :: 2 * _TURNS] for step in range(2 * _TURNS)]
    return list(zip(parts[::2], parts[1::2], strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.forgetting", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=2000, help="in the store at the start")
    parser.add_argument("--forgets", type=int, default=15, help="memories forgotten in each situation")
    parser.add_argument("--processes", type=int, default=16, help="that write and recall meanwhile")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two writes of each process")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    asked = parser.parse_args(arguments)
    with figures.saving_output("forgetting", arguments, is_wanted=asked.save):
        run(asked)


def run(asked: argparse.Namespace) -> None:
    """Measure and print the three situations."""
    texts = list(messages(asked.records + _BACKLOG))
    print(f"{'':<16}{'idle ms':>12}{'median ms':>12}{'longest ms':>12}{'times idle':>12}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.loom"
        embedder = SlowEmbedder(dimensions=64)
        with opened(path, embedder) as memory:
            ids = [written.id for written in memory.remember(texts[: asked.records])]
            chosen = ids[:: len(ids) // (4 * asked.forgets)]
            half = 2 * asked.forgets
            report(f"{_BACKLOG:,} to embed", *beside_embedding(memory, embedder, chosen[:half], texts))
        forgotten, written = beside_processes(path, chosen[half : 2 * half], asked.processes, texts, asked.pause)
        report(f"{asked.processes} processes", *forgotten)
        report("one remember", *written)


def report(name: str, idle: Sequence[float], took: Sequence[float]) -> None:
    times = statistics.median(took) / statistics.median(idle)
    line = f"{statistics.median(idle):>12.1f}{statistics.median(took):>12.1f}{max(took):>12.1f}{times:>12.1f}"
    print(f"{name:<16}{line}{'  more than 3' if times > _MOST_TIMES else ''}", flush=True)


if __name__ == "__main__":
    main()
