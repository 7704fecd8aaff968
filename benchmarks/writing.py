"""The cost of one durable `remember` and of a batch of 1,000, compared with bare SQLite in one run.

    python -m benchmarks.writing [--rounds 40] [--chunk 200] [--embedder] [--long] [--save]

One `remember` is compared with two transactions of bare SQLite (BEGIN IMMEDIATE, INSERT, COMMIT; WAL, synchronous
NORMAL): one writes every value of the same row into a table without an index, the other writes only the text. The
batch is compared with `executemany` of the same rows and with the bare token counter on the same texts. The figure is
CPU of the calling thread while the background worker is idle. The same is then measured while a worker in the same
process indexes (and, with `--embedder`, embeds with the fake one); its own cost is given separately. Deriving facts
and summaries is not included: it follows the writing, and has its own figures. With `--long`, turns of 500 to 2,000
tokens are written one by one. Their tokens are counted as they are written; those of short messages are known.
"""

from __future__ import annotations

import argparse
import itertools
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.measuring import Side, long_turns, messages, percentile, print_table, ratio, take_turns
from loom.everyday import Memory, open_memory
from loom.models.embedders import FakeEmbedder

__all__ = ["main"]

Row = tuple[Any, ...]

_BATCH = 1_000
_NO_INDEXING: dict[str, Any] = {"index_tail_records": 10**9, "index_tail_bytes": 10**12, "derive": False}


def bare_database(path: Path, columns: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"CREATE TABLE bare ({columns[0]} INTEGER PRIMARY KEY, {', '.join(columns[1:])})")
    return connection


def stored_rows(path: Path) -> tuple[list[str], list[Row]]:
    """The columns and rows that the bare side has to write: those of a store, read by another connection."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        cursor = connection.execute("SELECT * FROM records ORDER BY seq")
        return [column[0] for column in cursor.description], cursor.fetchall()
    finally:
        connection.close()


def insert(columns: int) -> str:
    return f"INSERT INTO bare VALUES ({', '.join('?' * columns)})"


def one_by_one(connection: sqlite3.Connection, rows: Iterator[Row], columns: int, count: int) -> Callable[[], None]:
    statement = insert(columns)

    def write() -> None:
        for row in itertools.islice(rows, count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(statement, row)
            connection.execute("COMMIT")

    return write


def all_at_once(connection: sqlite3.Connection, rows: Iterator[Row], columns: int) -> Callable[[], None]:
    statement = insert(columns)

    def write() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(statement, itertools.islice(rows, _BATCH))
        connection.execute("COMMIT")

    return write


def renumbered(rows: Sequence[Row]) -> Iterator[Row]:
    """The same rows repeatedly, each time with a new number."""
    for number, row in enumerate(itertools.cycle(rows), start=1):
        yield (number, *row[1:])


def example_rows(folder: Path, texts: Sequence[str], said: dict[str, Any]) -> tuple[list[str], list[Row]]:
    path = folder / "example.loom"
    with open_memory(path, embedder="none", derive=False) as memory:
        memory.remember(list(texts), **said)
        columns, rows = stored_rows(path)
    for file in folder.glob("example.loom*"):
        if file.is_file():
            file.unlink()
    return columns, rows


def compare(
    folder: Path, texts: Sequence[str], said: dict[str, Any], options: argparse.Namespace
) -> dict[str, float]:
    """Print the times of one kind of record, and return the ratios and the CPU of a write in microseconds."""
    columns, rows = example_rows(folder, texts[:_BATCH] if options.long else texts, said)
    width = len(columns)
    embedder: Any = FakeEmbedder() if options.embedder else "none"
    chunk = options.chunk
    by_row = bare_database(folder / "row.db", columns)
    by_text = bare_database(folder / "text.db", ("seq", "content"))
    only_text = [(row[0], row[columns.index("content")]) for row in rows]
    row_side = Side("bare SQLite, the same row", one_by_one(by_row, renumbered(rows), width, chunk), chunk)
    text_side = Side("bare SQLite, the text alone", one_by_one(by_text, renumbered(only_text), 2, chunk), chunk)

    def remembering(memory: Memory, name: str, first: int) -> Side:
        spoken = itertools.cycle(texts[first:] if options.long else texts)

        def remember() -> None:
            for text in itertools.islice(spoken, chunk):
                memory.remember(text, **said)

        return Side(name, remember, chunk)

    # An unlimited tail keeps the worker idle, so that the calling thread's time does not include its work either.
    with open_memory(folder / "one.loom", embedder="none", **_NO_INDEXING) as memory:
        sides = [remembering(memory, "remember", _BATCH), row_side, text_side]
        take_turns(sides, options.rounds)
        print_table(sides, "one by one")
        found = {"cpu_us": percentile(sides[0].cpu_us, 50), "ratio": ratio(sides[0], row_side)}
        print(f"  ratio to the same row {found['ratio']:.2f}, to the text alone {ratio(sides[0], text_side):.2f}")
    row_side.forget()
    with open_memory(folder / "busy.loom", embedder=embedder, derive=False) as memory:
        busy = remembering(memory, "remember, worker at work", 2 * _BATCH)
        before = worker_cpu()
        take_turns([busy, row_side], options.rounds)
        own = time.thread_time()
        memory.flush()
        spent = worker_cpu() - before + time.thread_time() - own
        print_table([busy, row_side], "beside the worker")
        found["busy"] = ratio(busy, row_side)
        found["worker_us"] = spent / (chunk * (options.rounds + 2)) * 1e6
        print(
            f"  ratio to the same row {found['busy']:.2f}; "
            f"the worker, apart: {found['worker_us']:.0f} us CPU a record"
        )
    by_row.close()
    by_text.close()
    if not options.long:
        found["batch"] = compare_batches(folder, texts, said, columns, rows, options.rounds)
    return found


def worker_cpu() -> float:
    """CPU of every other thread of this process so far."""
    return time.process_time() - time.thread_time()


def compare_batches(
    folder: Path,
    texts: Sequence[str],
    said: dict[str, Any],
    columns: Sequence[str],
    rows: Sequence[Row],
    rounds: int,
) -> float:
    """Print the times of batches of 1,000, and return the ratio to the bare ones."""
    spoken = itertools.cycle(texts)
    counted = itertools.cycle(texts)
    with open_memory(folder / "batch.loom", embedder="none", **_NO_INDEXING) as memory:
        bare = bare_database(folder / "batch.db", columns)
        sides = [
            Side("remember, 1,000 at once", lambda: _remember_batch(memory, spoken, said), _BATCH),
            Side("executemany of the same rows", all_at_once(bare, renumbered(rows), len(columns)), _BATCH),
            Side("bare token counting", lambda: _count_batch(memory, counted), _BATCH),
        ]
        take_turns(sides, rounds)
        print_table(sides, "in batches")
        found = ratio(sides[0], sides[1], sides[2])
        print(f"  ratio to both together {found:.2f}")
        bare.close()
    return found


def _remember_batch(memory: Memory, spoken: Iterator[str], said: dict[str, Any]) -> None:
    memory.remember(list(itertools.islice(spoken, _BATCH)), **said)


def _count_batch(memory: Memory, texts: Iterator[str]) -> None:
    count = memory.counter.count
    for text in itertools.islice(texts, _BATCH):
        count(text)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.writing", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--chunk", type=int, default=200, help="writes per turn")
    parser.add_argument("--embedder", action="store_true", help="with the fake embedder: jobs are queued, too")
    parser.add_argument("--long", action="store_true", help="turns of 500 to 2,000 tokens")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    texts = list(long_turns(_BATCH * 3) if options.long else messages(_BATCH * 4))
    kept_as = "writing-long" if options.long else "writing"
    with figures.saving_output(kept_as, arguments, is_wanted=options.save) as kept:
        for name, said in (("a text", {}), ("a chat message", {"role": "user", "name": "Ana", "session_id": "s1"})):
            print(f"{name}:", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                kept[name] = compare(Path(folder), texts, said, options)


if __name__ == "__main__":
    main()
