"""The cost of a notebook with few and with many session files.

    python -m benchmarks.notebook [--few 100] [--many 10000] [--rounds 20] [--save]

Opening the notebook (a new process's first sync and prompt), looking one session up by its name, the newest three of
an agent, and finishing one more, in CPU milliseconds (the median), and as a ratio of many to few. Rounds take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import figures
from loom.notebook import Notebook, SessionNote

__all__ = ["main"]

_BEGIN = datetime(2025, 1, 5, 10, 30, tzinfo=UTC)


def fill(folder: Path, sessions: int) -> list[str]:
    """Store some sessions. Returns the names of their files."""
    with Notebook(folder, agent="writer") as notebook:
        notebook.learn("Ana wants short chapters.")
        names = []
        for number in range(sessions):
            note = SessionNote(f"Write chapter {number} of the report.", f"Chapter {number} is written.", f"{number}")
            names.append(notebook.sessions.write(note, _BEGIN + timedelta(minutes=number)).name)
        notebook.memory.flush()
    return names


def cpu_ms(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1e3 * (time.process_time() - started)


def opened(folder: Path) -> None:
    with Notebook(folder, agent="writer") as notebook:
        notebook.sync()
        notebook.prompt("You write.")


def measured(places: dict[str, tuple[Path, list[str]]], rounds: int) -> dict[str, dict[str, float]]:
    """The median cost of each thing, by the place that has few or many."""
    costs: dict[str, dict[str, list[float]]] = {}

    def note(what: str, place: str, work: Callable[[], object]) -> None:
        costs.setdefault(what, {}).setdefault(place, []).append(cpu_ms(work))

    for round_ in range(rounds):
        for place, (folder, names) in places.items():
            note("open", place, lambda folder=folder: opened(folder))  # type: ignore[misc]
            with Notebook(folder, agent="writer") as notebook:
                name = names[round_ * 7919 % len(names)]
                sessions = notebook.sessions
                note("look up", place, lambda sessions=sessions, name=name: sessions.find(name))  # type: ignore[misc]
                note("newest three", place, lambda sessions=sessions: sessions.own(3))  # type: ignore[misc]
                last = SessionNote("One more.", "Done.", f"round-{round_}")
                note("finish", place, lambda notebook=notebook, last=last: notebook.finish(last))  # type: ignore[misc]
    return {what: {place: statistics.median(of) for place, of in by.items()} for what, by in costs.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--save", action="store_true", help="save the figures for the documents")
    asked = parser.parse_args(arguments)
    os.environ["LOOM_EMBEDDER"] = "none"
    with tempfile.TemporaryDirectory() as folder:
        places = {}
        for place, sessions in (("few", asked.few), ("many", asked.many)):
            path = Path(folder, place)
            places[place] = (path, fill(path, sessions))
        found = measured(places, asked.rounds)
    rows = [
        [what, f"{by['few']:.2f} ms", f"{by['many']:.2f} ms", f"{by['many'] / by['few']:.2f}"]
        for what, by in found.items()
    ]
    table = [["of CPU", f"{asked.few:,} sessions", f"{asked.many:,} sessions", "ratio"], *rows]
    for row in table:
        print("  ".join(f"{cell:<16}" for cell in row))
    if asked.save:
        given = [*(sys.argv[1:] if arguments is None else arguments)]
        figures.save(
            "notebook", given, {"table": table, "most": max(by["many"] / by["few"] for by in found.values())}
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
