"""The cost of a snapshot compared with a backup (bytes, CPU time and memory), and the savings of an incremental one.

    python -m benchmarks.snapshots [--records 100000] [--dimensions 256] [--save]

The store holds messages from word lists, half of them Chinese, in sessions, one in ten in the working tier, one in
five used, and with `--dimensions` a random vector for each (0: none), which cannot be compressed. CPU time is of the
thread; memory is the rise of the process's peak above its memory with the store open. The incremental snapshot
follows a thousand further messages. It ends with 1 if a round trip is not exact or memory rises by more than 24 MB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks import figures
from benchmarks.measuring import messages
from loom.snapshots.merging import restore_into
from loom.snapshots.staging import restore
from loom.snapshots.taking import take
from loom.storage.contract import Draft, Filter
from loom.storage.sqlite.store import SqliteStore

__all__ = ["main"]

_START = datetime(2025, 1, 1, tzinfo=UTC)
_MOST_MB = 24.0
_BATCH = 2000


def fill(store: SqliteStore, first: int, count: int, dimensions: int) -> None:
    """Append messages with the other data of a store in use."""
    random = np.random.default_rng(first)
    texts = enumerate(islice(messages(first + count), first, None), first)
    while part := list(islice(texts, _BATCH)):
        drafts = [
            Draft(f"r{number}", text, _START + timedelta(seconds=number), session_id=f"s{number // 40}", tokens=30)
            for number, text in part
        ]
        with store.transaction() as transaction:
            numbers = [written.seq for written in transaction.append(drafts)]
            transaction.enter(numbers[::10], "l2", "default", "written")
            if dimensions:
                vectors = random.standard_normal((len(numbers), dimensions)).astype(np.float32)
                transaction.put_vectors(numbers, vectors)
                transaction.take(transaction.jobs("embed", len(numbers)))
        store.touch(numbers[::5], "default")


def measured(role: str, *arguments: str) -> dict[str, float]:
    """Run one step in a process of its own. Returns CPU seconds, and the rise of its memory in MB."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.snapshots", "--step", role, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def step(role: str, *paths: str) -> None:
    if role == "restore":
        restore_to = paths[-1]
        run: Callable[[], object] = lambda: restore(paths[:-1], restore_to)  # noqa: E731
        report(run)
        return
    store = SqliteStore(paths[0])
    store.get("r0")
    if role == "backup":
        report(lambda: store.backup(paths[1]))
    elif role == "merge":
        report(lambda: restore_into(store, paths[1:]))
    else:
        report(lambda: take(store, paths[1], parent=paths[2] if len(paths) > 2 else None))
    store.close()


def report(run: Callable[[], object]) -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is measured from here
    before = peak_mb()
    began = time.thread_time()
    run()
    spent = time.thread_time() - began
    json.dump({"cpu": spent, "memory": peak_mb() - before}, sys.stdout)


def peak_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def same(one: Path, other: Path) -> bool:
    """Whether two stores have the same records and the same counts, apart from the size of the file."""
    stores = [SqliteStore(path) for path in (one, other)]
    try:
        counts = [store.stats() for store in stores]
        for count in counts:
            for name in ("file_bytes", "indexed", "segments"):
                count.pop(name)
        if counts[0] != counts[1]:
            return False
        after: int | None = None
        while True:
            pages = [store.scan(Filter(history=True), limit=1000, after=after) for store in stores]
            if pages[0] != pages[1]:
                return False
            after = pages[0].next
            if after is None:
                return True
    finally:
        for store in stores:
            store.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=256)
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    asked = parser.parse_args(arguments)
    if asked.step:
        step(*asked.step)
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="loom-snapshots-") as name,
        figures.saving_output("snapshots", arguments, is_wanted=asked.save),
    ):
        return compare(Path(name), asked.records, asked.dimensions)


def compare(folder: Path, records: int, dimensions: int) -> int:
    path = folder / "agent.loom"
    store = SqliteStore(path)
    if dimensions:
        store.use_embedder("random", dimensions, None)
    fill(store, 0, records, dimensions)
    store.close()
    rows: list[tuple[str, ...]] = []
    worst = 0.0

    def note(what: str, found: dict[str, float], size: int | None) -> None:
        nonlocal worst
        worst = max(worst, found["memory"] if what != "backup" else 0.0)
        rows.append(
            (what, "" if size is None else f"{size / 1e6:,.1f}", f"{found['cpu']:.2f}", f"{found['memory']:.1f}")
        )

    copy, full, more = folder / "copy.loom", folder / "full.hctx", folder / "more.hctx"
    note("backup", measured("backup", str(path), str(copy)), None)
    rows[-1] = (rows[-1][0], f"{copy.stat().st_size / 1e6:,.1f}", *rows[-1][2:])
    found = measured("snapshot", str(path), str(full))
    note("snapshot", found, full.stat().st_size)
    restored = folder / "restored.loom"
    note("restore, new file", measured("restore", str(full), str(restored)), restored.stat().st_size)
    exact = same(path, restored)
    store = SqliteStore(path)
    fill(store, records, 1000, dimensions)
    store.close()
    found = measured("snapshot", str(path), str(more), str(full))
    note("incremental, 1,000 more", found, more.stat().st_size)
    chained = folder / "chained.loom"
    note("restore, chain of two", measured("restore", str(full), str(more), str(chained)), chained.stat().st_size)
    exact = exact and same(path, chained)
    other = folder / "other.loom"
    SqliteStore(other).close()
    note("restore into a namespace", measured("merge", str(other), str(full)), None)
    print(
        f"{records:,} records, vectors of {dimensions} dimensions; the store has {path.stat().st_size / 1e6:,.1f} MB"
    )
    print(f"  {'':<26}{'MB':>10}{'CPU s':>9}{'memory, MB above':>19}")
    for what, size, cpu, memory in rows:
        print(f"  {what:<26}{size:>10}{cpu:>9}{memory:>19}")
    print(f"round trips exact: {'yes' if exact else 'NO'}")
    return 0 if exact and worst <= _MOST_MB else 1


if __name__ == "__main__":
    sys.exit(main())
