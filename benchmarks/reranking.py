"""Whether `MemoryReranker` orders the hits better than recall does, and its cost.

    python -m benchmarks.reranking [--data PATH/locomo10.json ...] [--questions 30] [--embedder auto] [--save]

The stores and questions are those of `benchmarks.recall`: our own sets, and the files of `--data`. Each question is
asked with 20 hits, without and with the reranker. The last column is the CPU of the process relative to that of plain
recall.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import figures
from benchmarks.recall.data import OWN_SETS, Dialogue, load, load_own, some_of
from benchmarks.recall.measures import MEASURES, Outcome, mean
from benchmarks.recall.sides import Rank, embedder_for, fill, outcomes
from loom.everyday import Memory
from loom.memory.reranker import MemoryReranker

__all__ = ["main"]

_COLUMNS = ("recall@5", "recall@10", "recall@20", "MRR")
_LIMIT = 20


def _timed(memory: Memory, reranker: MemoryReranker | None, spent: list[float]) -> Rank:
    def ask(question: str) -> list[str]:
        begun = time.process_time()
        hits = memory.recall(question, limit=_LIMIT, reranker=reranker)
        spent.append(time.process_time() - begun)
        return [hit.id for hit in hits]

    return ask


def compare(name: str, dialogues: Sequence[Dialogue], filled: Callable[[Dialogue], Memory]) -> list[list[str]]:
    """The rows of a set: recall as it is, and with the reranker."""
    sides: dict[str, tuple[MemoryReranker | None, list[Outcome], list[float]]] = {
        name: (None, [], []),
        "with `MemoryReranker`": (MemoryReranker(), [], []),
    }
    for dialogue in dialogues:
        with filled(dialogue) as memory:
            for reranker, _, _ in sides.values():  # the first run of a question is not timed
                outcomes(memory, dialogue, _timed(memory, reranker, []))
            for reranker, found, spent in sides.values():
                found += outcomes(memory, dialogue, _timed(memory, reranker, spent))
    bare = sum(next(iter(sides.values()))[2])
    rows = []
    for side, (_, found, spent) in sides.items():
        means = dict(zip(MEASURES, mean(found), strict=True))
        shares = [f"{100 * means[column]:.1f}" for column in _COLUMNS]
        rows.append([side, *shares, f"{sum(spent) / bare:.1f} x"])
        print("  ".join(f"{cell:>9}" for cell in rows[-1]), flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.reranking", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, nargs="+", default=[], help="files as benchmarks.recall takes them")
    parser.add_argument("--questions", type=int, default=30, help="at most so many of each kind in each set")
    parser.add_argument("--embedder", default="auto")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    sets = {name: [load_own(name)] for name in OWN_SETS} | dict(map(load, options.data))
    embedder = embedder_for(options.embedder)
    table = [["", *_COLUMNS, "CPU"]]
    for name, dialogues in sets.items():
        table += compare(
            name, some_of(dialogues, options.questions), lambda dialogue: fill(dialogue, embedder or "none")
        )
    if options.save:
        figures.save("reranking", sys.argv[1:] if arguments is None else arguments, {"table": table})


if __name__ == "__main__":
    main()
