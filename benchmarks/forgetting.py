"""How long `forget` takes beside work that could hold it up, in one run.

    python -m benchmarks.forgetting [--records 2000] [--forgets 15] [--processes 16]

The median of forgetting one memory at a time: on an idle store, in a process that has 1,000 records to embed yet
(with an embedder that takes 2 ms a text), and beside processes that write and recall without a pause. The last two
are also given as multiples of the first, in the same store.
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

from benchmarks.measuring import messages
from loom.everyday import Memory, open_memory
from loom.models.embedders import FakeEmbedder

__all__ = ["main"]

_BACKLOG = 1_000
_TEXT_S = 0.002


class SlowEmbedder(FakeEmbedder):
    """An embedder that takes its time for every text, as a model does, once it is told to."""

    slow = False

    def embed_batch(self, texts: Sequence[str]) -> Any:
        if self.slow:
            time.sleep(_TEXT_S * len(texts))
        return super().embed_batch(texts)


def opened(path: Path, embedder: SlowEmbedder | None = None) -> Memory:
    return open_memory(path, embedder=embedder or SlowEmbedder(dimensions=64), derive=False, busy_timeout_s=120.0)


def forget_each(memory: Memory, ids: Sequence[str]) -> list[float]:
    """How long forgetting each of these took, in ms."""
    took = []
    for id in ids:
        started = time.perf_counter()
        receipt = memory.forget(id, timeout_s=120.0)
        assert receipt.records == 1, receipt
        took.append(1e3 * (time.perf_counter() - started))
    return took


def write_and_recall(path: Path, texts: Sequence[str], ready: Barrier, stop: Event) -> None:
    """What each of the other processes does."""
    with opened(path) as memory:
        ready.wait()
        number = 0
        while not stop.is_set():
            memory.remember(texts[number % len(texts)] + f" {number}")
            if number % 10 == 0:
                memory.recall(texts[number % len(texts)], limit=5)
            number += 1


def beside_processes(path: Path, ids: Sequence[str], processes: int, texts: Sequence[str]) -> list[float]:
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Barrier(processes + 1), context.Event()
    others = [
        context.Process(target=write_and_recall, args=(path, texts, ready, stop), daemon=True)
        for _ in range(processes)
    ]
    for other in others:
        other.start()
    try:
        with opened(path) as memory:
            ready.wait()
            return forget_each(memory, ids)
    finally:
        stop.set()
        for other in others:
            other.join()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.forgetting", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=2000, help="in the store at the start")
    parser.add_argument("--forgets", type=int, default=15, help="memories forgotten in each situation")
    parser.add_argument("--processes", type=int, default=16, help="that write and recall meanwhile")
    asked = parser.parse_args(arguments)
    texts = list(messages(asked.records + _BACKLOG))
    print(f"{'':<16}{'median ms':>12}{'longest ms':>12}{'times idle':>12}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.loom"
        embedder = SlowEmbedder(dimensions=64)
        with opened(path, embedder) as memory:
            ids = [written.id for written in memory.remember(texts[: asked.records])]
            memory.flush()
            chosen = [ids[step :: len(ids) // asked.forgets][: asked.forgets] for step in range(3)]
            idle = forget_each(memory, chosen[0])
            report("idle", idle, idle)
            embedder.slow = True
            memory.remember(texts[asked.records :])
            report(f"{_BACKLOG:,} to embed", forget_each(memory, chosen[1]), idle)
            embedder.slow = False
            memory.flush()
        report(f"{asked.processes} processes", beside_processes(path, chosen[2], asked.processes, texts), idle)


def report(name: str, took: Sequence[float], idle: Sequence[float]) -> None:
    median = statistics.median(took)
    times = median / statistics.median(idle)
    print(f"{name:<16}{median:>12.1f}{max(took):>12.1f}{times:>12.1f}", flush=True)


if __name__ == "__main__":
    main()
