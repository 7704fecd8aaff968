"""Whether an important record costs more after many others: with full tiers, including moves and flush.

    python -m benchmarks.tiers [--records 50000] [--profiles loom lcr] [--save]

Every record is important, so each enters the working tier and drives others down through all four. The figure is
the CPU of the whole process per record from 5,000 to 10,000 records against the last 5,000; `flush` closes each
window. Beside it the same for ordinary records, which only pass through the window of recent ones, and a bare
SQLite insert of the same texts, which shows how busy the machine was.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import figures
from benchmarks.growing import Bare, Window, relative
from benchmarks.measuring import messages
from loom.everyday import open_memory
from loom.settings import PROFILES

__all__ = ["main"]

IMPORTANT, ORDINARY = 0.8, 0.5


def measure(folder: Path, profile: str, importance: float, records: int, size: int) -> list[Window]:
    """The windows of one run."""
    found: list[Window] = []
    texts = messages(records)
    bare = Bare(folder / "bare.db")
    with open_memory(folder / "tiers.loom", embedder="none", profile=profile) as memory:
        while chosen := list(itertools.islice(texts, size)):
            process, thread = time.process_time(), time.thread_time()
            for text in chosen:
                memory.remember(text, importance=importance)
            thread = time.thread_time() - thread
            memory.flush()
            process = time.process_time() - process
            number = len(chosen)
            found.append(
                Window(
                    (found[-1].last if found else 0) + number,
                    process / number * 1e6,
                    thread / number * 1e6,
                    bare.write_us(chosen[: number // 5]),
                )
            )
        stats = memory.get_stats()
    bare.close()
    over = [tier for tier in ("l1", "l2", "l3", "l4") if stats[f"{tier}_token_usage"] > stats[f"{tier}_token_budget"]]
    if over:
        raise SystemExit(f"{', '.join(over)} above budget")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.tiers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--window", type=int, default=5_000)
    parser.add_argument("--profiles", nargs="+", default=["loom", "lcr"], choices=list(PROFILES))
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    if options.records < 3 * options.window:
        parser.error("there must be room for three windows")
    lines: list[str] = []
    for profile in options.profiles:
        for name, importance in (("important", IMPORTANT), ("ordinary", ORDINARY)):
            with tempfile.TemporaryDirectory() as folder:
                found = measure(Path(folder), profile, importance, options.records, options.window)
            early, late = found[1], found[-1]
            lines.append(
                f"  {profile}, {name}: records up to {early.last:,} {early.process_us:6.1f} us CPU each "
                f"({early.thread_us:.1f} of the caller), up to {late.last:,} {late.process_us:6.1f} "
                f"({late.thread_us:.1f}); ratio {late.process_us / early.process_us:.2f}, "
                f"beside bare SQLite {relative(late) / relative(early):.2f}"
            )
            print(lines[-1], flush=True)
    if options.save:
        figures.save("tiers", sys.argv[1:] if arguments is None else arguments, {"output": "\n".join(lines)})


if __name__ == "__main__":
    main()
