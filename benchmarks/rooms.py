"""The way of one `remember`, one `recall` and one `context` through the package.

    python -m benchmarks.rooms [--records 400] [--package PATH] [--json] [--save]

For each verb, once everything is warm: the calls of Python functions of the package, the components that they enter,
and the crossings between components. A component is a folder of the package or a module beside the folders. A call
from one component into another is a crossing, and so is the return: storage -> memory -> storage counts two. SQL
statements are counted as well. Counts, not seconds: they are the same on every machine. `--package` measures another
source tree, such as an earlier version, in the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

__all__ = ["Journey", "Watch", "main", "measure"]

SUBJECTS = (
    "harbour",
    "invoice",
    "garden",
    "cluster",
    "passport",
    "recipe",
    "violin",
    "budget",
    "lighthouse",
    "review",
)
QUESTION = "Who moved the invoice for the harbour cluster to Friday?"


@dataclass(frozen=True, slots=True)
class Journey:
    """One verb's way through the package."""

    verb: str
    calls: int
    crossings: int
    statements: int
    rooms: dict[str, int] = field(default_factory=dict)


class Watch:
    """Counts calls and crossings in this thread while a verb runs."""

    def __init__(self, package: Path) -> None:
        self._package = str(package) + "/"
        self._rooms: dict[str, str | None] = {}
        self._stack: list[str] = []
        self.calls = 0
        self.crossings = 0
        self.entered: Counter[str] = Counter()

    def _room(self, file: str) -> str | None:
        if file not in self._rooms:
            inside = file.removeprefix(self._package)
            self._rooms[file] = None if inside == file else inside.partition("/")[0].removesuffix(".py")
        return self._rooms[file]

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        room = self._room(frame.f_code.co_filename)
        if room is None:
            return
        if event == "call":
            self.calls += 1
            if not self._stack or self._stack[-1] != room:
                self.crossings += bool(self._stack)
                self.entered[room] += 1
            self._stack.append(room)
        elif self._stack:
            left = self._stack.pop()
            if self._stack and self._stack[-1] != left:
                self.crossings += 1


def measure(records: int, folder: Path) -> list[Journey]:
    """Fill a memory in this folder, warm every verb up, and follow one call of each."""
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*given: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **options)
        connection.set_trace_callback(statements.append)
        return connection

    with patch.object(sqlite3, "connect", traced):
        return _journeys(records, folder, statements)


def _journeys(records: int, folder: Path, statements: list[str]) -> list[Journey]:
    import loom

    package = Path(loom.__file__ or "").parent
    with loom.open(folder / "rooms.loom", embedder="none", derive=False) as memory:
        memory.remember([_turn(number) for number in range(records)])
        memory.flush()
        verbs: dict[str, Callable[[], object]] = {
            "remember": lambda: memory.remember(
                "Ana moved the invoice review to Monday.", role="user", name="Ana", session_id="s0"
            ),
            "recall": lambda: memory.recall(QUESTION, limit=10),
            "context": lambda: memory.context(QUESTION, session_id="s0", budget=2_000),
        }
        found = []
        for name, verb in verbs.items():
            for _ in range(3):
                verb()
            memory.flush()
            verb()  # the same state of the index each time
            watch = Watch(package)
            before = len(statements)
            sys.setprofile(watch)
            try:
                verb()
            finally:
                sys.setprofile(None)
            found.append(
                Journey(
                    name, watch.calls, watch.crossings, len(statements) - before, dict(watch.entered.most_common())
                )
            )
    return found


def _turn(number: int) -> dict[str, Any]:
    subject, other = SUBJECTS[number % 10], SUBJECTS[number // 10 % 10]
    speaker = ("Ana", "Bo")[number % 2]
    return {
        "role": ("user", "assistant")[number % 2],
        "name": speaker,
        "session_id": f"s{number // 20}",
        "content": f"{speaker} moved the {subject} for the {other} number {number} to day {number % 28 + 1}.",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.rooms", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=400, help="turns in the memory (default 400)")
    parser.add_argument("--package", type=Path, help="the source folder of another version (it holds `loom`)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    asked = parser.parse_args(arguments)
    if asked.package is not None:
        given = [__file__, "--records", str(asked.records), *(["--json"] if asked.json else [])]
        environment = {**os.environ, "PYTHONPATH": str(asked.package)}
        return subprocess.run([sys.executable, *given], env=environment, check=False).returncode
    with tempfile.TemporaryDirectory() as folder:
        journeys = measure(asked.records, Path(folder))
    if asked.json:
        print(json.dumps([asdict(journey) for journey in journeys]))
        return 0
    print(f"{'verb':10} {'calls':>7} {'crossings':>10} {'statements':>11}  rooms entered")
    for journey in journeys:
        rooms = ", ".join(f"{room} {count}" for room, count in journey.rooms.items())
        print(f"{journey.verb:10} {journey.calls:7,} {journey.crossings:10,} {journey.statements:11,}  {rooms}")
    if asked.save:
        from benchmarks import figures  # not with --package, where only this file is run

        table = [["", "calls", "crossings", "SQL statements"]]
        table += [[f"`{one.verb}`", f"{one.calls:,}", f"{one.crossings:,}", str(one.statements)] for one in journeys]
        figures.save("rooms", sys.argv[1:] if arguments is None else arguments, {"table": table})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
