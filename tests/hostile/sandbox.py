"""Runs the cases of a fuzzer in a process of its own, which may hang, crash or eat memory without harm.

A case is a function of a seeded `random.Random` and an empty folder. It returns where the package kept its promise,
and raises where it did not: a `LoomError` that the case expects is caught by the case. One case again, by hand:

    python -m tests.hostile.sandbox segments 17
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path

from tests.tally import count

__all__ = ["FUZZERS", "Case", "broken_promises"]

ROOT = Path(__file__).resolve().parents[2]

Case = Callable[[random.Random, Path], object]

FUZZERS = {
    "segments": "tests.hostile.files:damaged_segments",
    "snapshots": "tests.hostile.files:damaged_snapshot",
    "forged snapshots": "tests.hostile.files:forged_snapshot",
    "archive blocks": "tests.hostile.files:damaged_blocks",
    "texts": "tests.hostile.texts:stored_texts",
    "growth": "tests.hostile.texts:growth",
    "questions": "tests.hostile.requests:questions",
    "filters": "tests.hostile.requests:filters",
    "settings": "tests.hostile.requests:settings",
    "replies": "tests.hostile.replies:replies",
}
"""Where the case of each fuzzer is."""

LONGEST_S = 30.0
"""A case that takes longer hangs."""

_SHOWN = 3000  # characters of a traceback, from its end

MOST_MEMORY = 768 * 1024 * 1024
"""What a case may take beyond what the process has when it starts."""


def broken_promises(fuzzer: str, numbers: Iterable[int]) -> Iterator[str]:
    """Run the cases of these numbers; one line or more for each that broke a promise."""
    left = list(numbers)
    while left:
        # The parent owns the folder, so that it goes also where the child is killed.
        with tempfile.TemporaryDirectory(prefix="hostile-") as place, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.sandbox", fuzzer, *map(str, left[:500])],
                cwd=ROOT,
                # The limit is on addresses, and the C library reserves 64 MB of them for each arena of a thread.
                env={**os.environ, "TMPDIR": place, "MALLOC_ARENA_MAX": "2"},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            assert process.stdout is not None
            with process, process.stdout as lines:
                done = 0
                for line in lines:
                    done += 1
                    trouble = json.loads(line)
                    if trouble:
                        yield f"{fuzzer} {left[done - 1]}: {trouble}"
            count(processes=1, cases=done)
            if process.returncode:
                errors.seek(0)
                end = _ending(process.returncode)
                trace = errors.read().decode(errors="replace")[:_SHOWN]
                yield f"{fuzzer} {left[done]}: the process ended with {end}\n{trace}"
                done += 1
            left = left[done:]


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


# -- inside --------------------------------------------------------------------------------------------------


def _run(fuzzer: str, numbers: Iterable[int]) -> None:
    module, _, name = FUZZERS[fuzzer].partition(":")
    case: Case = getattr(import_module(module), name)
    faulthandler.enable()
    with tempfile.TemporaryDirectory(prefix="hostile-") as place:
        _try(case, fuzzer, -1, Path(place) / "warm")  # whatever is loaded at its first use is no part of a case
        _limit_memory()
        for number in numbers:
            faulthandler.dump_traceback_later(LONGEST_S, exit=True)
            trouble = _try(case, fuzzer, number, Path(place) / str(number))
            os.write(1, json.dumps(trouble).encode() + b"\n")


def _try(case: Case, fuzzer: str, number: int, folder: Path) -> str | None:
    folder.mkdir()
    try:
        case(random.Random(f"{fuzzer} {number}"), folder)
    except Exception:
        return traceback.format_exc()[-_SHOWN:]
    finally:
        shutil.rmtree(folder)
    return None


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform.startswith("linux") else 0
    if pages:
        most = pages * resource.getpagesize() + MOST_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    _run(sys.argv[1], map(int, sys.argv[2:]))
