"""The cost of an import compared with `remember` of the same texts in batches, and its peak of memory.

    python -m benchmarks.importing [--messages 100000] [--memory-mb 1024] [--save]

A file of messages is written as JSON Lines and as one JSON array. Each way runs in a process of its own on a new
file, without an embedder: `remember` of the texts in lists of 256, then each import, until everything is indexed. CPU
time is of the whole process. Then an array of `--memory-mb` (0: none) is read in a dry run, and the peak of the
process is compared with that of a file a sixteenth of its size.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import loom
from benchmarks import figures
from benchmarks.measuring import messages
from loom.importers import import_history

__all__ = ["main"]

_BATCH = 256
_START = datetime(2026, 1, 1, tzinfo=UTC)


def write(path: Path, count: int, *, array: bool) -> None:
    """A chat of this many messages."""
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(islice(messages(count), count)):
            message = {
                "role": "assistant" if number % 2 else "user",
                "content": text,
                "created_at": f"{_START + timedelta(seconds=number):%Y-%m-%dT%H:%M:%SZ}",
            }
            line = json.dumps(message, ensure_ascii=False)
            file.write(("[" if number == 0 else ", ") + line if array else line + "\n")
        file.write("]" if array else "")


def write_large(path: Path, megabytes: int) -> None:
    """An array of long messages."""
    one = json.dumps({"role": "user", "content": "the harbour log of a long day " * 4000}).encode()
    with path.open("wb") as file:
        for number in range(megabytes * 1_000_000 // len(one)):
            file.write((b"[" if number == 0 else b", ") + one)
        file.write(b"]")


def step(role: str, source: str, store: str) -> None:
    if role == "dry":
        with loom.open(embedder="none", derive=False) as memory:
            import_history(memory, source, dry_run=True)
    else:
        with loom.open(store, embedder="none", derive=False) as memory:
            if role == "remember":
                with open(source, encoding="utf-8") as file:
                    told = (json.loads(line) for line in file)
                    while batch := list(islice(told, _BATCH)):
                        memory.remember(batch)
            else:
                import_history(memory, source, raw=role == "raw")
            memory.flush()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}))


def measured(role: str, source: Path, store: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.importing", "--step", role, str(source), str(store)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.importing", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--memory-mb", type=int, default=1024)
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    parser.add_argument("--step", nargs=3, metavar=("ROLE", "SOURCE", "STORE"))
    chosen = parser.parse_args(arguments)
    if chosen.step:
        step(*chosen.step)
        return 0
    with (
        figures.saving_output("importing", arguments, is_wanted=chosen.save) as kept,
        tempfile.TemporaryDirectory() as folder,
    ):
        kept |= costs(Path(folder), chosen.messages)
        peaks = kept["peaks"] = large_peaks(Path(folder), chosen.memory_mb)
    return 0 if max(peaks, default=0) <= min(peaks, default=0) + 16 else 1


def costs(folder: Path, count: int) -> dict[str, float]:
    """Print and return the CPU time of each way to import a chat, as a multiple of that of `remember`."""
    lines, array = folder / "chat.jsonl", folder / "chat.json"
    write(lines, count, array=False)
    write(array, count, array=True)
    base = measured("remember", lines, folder / "remember.loom")
    print(f"{count:,} messages; remember in lists of {_BATCH}: {base['cpu_s']:.1f} s of CPU time", flush=True)
    found: dict[str, float] = {"messages": count}
    for name, role, source, told in (
        ("raw", "raw", lines, "import of JSON Lines, --raw"),
        ("lines", "import", lines, "import of JSON Lines"),
        ("array", "import", array, "import of one JSON array"),
        ("again", "import", lines, "the JSON Lines again, nothing new"),
    ):
        took = measured(role, source, folder / f"{role}-{source.name}.loom")
        found[name] = took["cpu_s"] / base["cpu_s"]
        print(f"  {told}: {found[name]:.2f} x, peak {took['peak_mb']:.0f} MB", flush=True)
    return found


def large_peaks(folder: Path, megabytes: int) -> list[float]:
    """Print and return the peak in MB of a dry run on a file of this size and on one of a sixteenth of it."""
    peaks = []
    for size in (megabytes // 16, megabytes) if megabytes else ():
        large = folder / "large.json"
        write_large(large, size)
        peaks.append(measured("dry", large, large)["peak_mb"])
        print(f"  an array of {size:,} MB, dry run: peak {peaks[-1]:.0f} MB", flush=True)
    return peaks


if __name__ == "__main__":
    sys.exit(main())
