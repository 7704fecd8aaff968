"""The cost of starting: `import loom` compared with bare Python, packages of a core install, first answers, and the
bytes that they read.

    python -m benchmarks.starting [--records 20000 100000] [--runs 40] [--vectors] [--store FILE ...]
                                  [--save]

Import: processes of both kinds in turn, user and system CPU of each. First answers: new processes open a small
store and ask; CPU of all threads at each step, by words and with the offline embedder (if it is installed), and after
`warm_up()`. Bytes: a new process opens a store whose
files were dropped from the page cache, asks one question by words, and prints the bytes read from the disk
(`read_bytes` of /proc/self/io, which counts mapped files, too) since its modules were loaded. Stores of several sizes
show whether that grows. With `--vectors` every record has one of 384 dimensions, drawn from its text as a seed, and
questions are asked by words and by meaning. `--store` takes files that were filled before; Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import figures
from benchmarks.measuring import messages, percentile, questions
from loom.everyday import open_memory
from loom.models.embedders import offline_embedder_installed

__all__ = ["SeededEmbedder", "fill", "main"]

_BATCH = 5_000
_EMBEDDER = "seeded"

_OPEN_AND_ASK = """
import json, sys, time
import loom.everyday
from benchmarks.starting import SeededEmbedder
from loom.index import text_index
from loom.index import vector_index
from loom.text import words
words.query_terms("warm up the tables of the analyser 先热身")
embedder = SeededEmbedder(sys.argv[4]) if sys.argv[4] else "none"

def read():
    with open("/proc/self/io") as file:
        pairs = (line.split(":") for line in file)
        return {key: int(value) for key, value in pairs}

before, cpu, wall = read(), time.process_time(), time.perf_counter()
memory = loom.everyday.open_memory(sys.argv[1], embedder=embedder, read_only=sys.argv[2] == "read_only", derive=False)
opened, opened_cpu = read(), time.process_time()
hits = memory.recall(sys.argv[3])
after = read()
print(json.dumps({
    "cpu_ms": (time.process_time() - cpu) * 1e3, "wall_ms": (time.perf_counter() - wall) * 1e3,
    "open_cpu_ms": (opened_cpu - cpu) * 1e3,
    "opening": opened["read_bytes"] - before["read_bytes"], "disk": after["read_bytes"] - before["read_bytes"],
    "calls": after["rchar"] - before["rchar"], "hits": len(hits)}))
memory.close()
"""


_FIRST_ANSWERS = """
import json, sys, time
started = time.process_time()
import loom
memory = loom.open(sys.argv[3], embedder=sys.argv[1], derive=False)
taken = {"open": time.process_time() - started}

def step(name, work):
    before = time.process_time()
    work()
    memory.flush()  # what works in the background belongs to the step that began it
    taken[name] = time.process_time() - before

if sys.argv[2] == "warm":
    step("warm_up()", memory.warm_up)
step("first recall", lambda: memory.recall("Which OAuth flow did we choose?"))
step("next recall", lambda: memory.recall("Where does the heron nest?"))
step("first context", lambda: memory.context("Continue the login work", budget=4000))
step("next context", lambda: memory.context("Continue the work on the page", budget=4000))
step("remember", lambda: memory.remember("We chose the authorization-code flow.", role="user", session_id="s1"))
print(json.dumps(taken))
memory.close()
"""


# --- import -----------------------------------------------------------------------------------------------


def process_cpu_ms(code: str) -> float:
    """User and system CPU of one new interpreter that runs `code`."""
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"python -c {code!r} failed")
    return (used.ru_utime + used.ru_stime) * 1e3


def compare_imports(runs: int) -> float:
    """Print the CPU of an import compared with bare Python. Returns the median ratio."""
    kinds = {"bare Python": "pass", "import loom": "import loom"}
    for code in kinds.values():
        process_cpu_ms(code)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(runs):
        for name, code in kinds.items():
            times[name].append(process_cpu_ms(code))
    for name, values in times.items():
        print(f"  {name:<14} CPU p50 {percentile(values, 50):6.1f} ms   best {min(values):6.1f} ms")
    bare, ours = times.values()
    middle = statistics.median(right / left for left, right in zip(bare, ours, strict=True))
    print(f"  ratio {middle:.2f} (of the best runs {min(ours) / min(bare):.2f})")
    return middle


# --- first answers ----------------------------------------------------------------------------------------


def first_answers(embedder: str, mode: str, runs: int) -> dict[str, float]:
    """CPU in ms of each step of a new process: the median of this many processes."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.loom"
        with open_memory(path, embedder=embedder, derive=False) as memory:
            memory.remember(list(itertools.islice(messages(100), 100)), role="user", session_id="s1")
            memory.flush()
        for _ in range(runs):
            command = [sys.executable, "-c", _FIRST_ANSWERS, embedder, mode, str(path)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            for name, seconds in json.loads(answer.stdout).items():
                found.setdefault(name, []).append(seconds * 1e3)
    return {name: statistics.median(values) for name, values in found.items()}


def report_first_answers(runs: int) -> None:
    kinds = [("none", "by words"), *([("offline", "with the offline embedder")] * offline_embedder_installed())]
    for embedder, name in kinds:
        for mode in ("cold", "warm"):
            steps = first_answers(embedder, mode, runs)
            told = ", ".join(f"{step} {cpu_ms:.0f}" for step, cpu_ms in steps.items())
            print(f"  {name + (', warmed up' if mode == 'warm' else ''):<37} {told}", flush=True)


# --- packages ---------------------------------------------------------------------------------------------


def core_packages(name: str = "loomkeep") -> set[str]:
    """A distribution and its installed dependencies, without extras."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        wanted = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if wanted in found:
            continue
        found.add(wanted)
        for requirement in metadata.requires(wanted) or ():
            spelled = re.match(r"[A-Za-z0-9._-]+", requirement)
            if spelled is not None and "extra ==" not in requirement:
                waiting.append(spelled.group())
    return found


# --- bytes to the first answer ----------------------------------------------------------------------------


class SeededEmbedder:
    """A random vector for each text, the same each time. No two are near, which is the worst case for an index."""

    dimensions = 384

    def __init__(self, name: str = _EMBEDDER) -> None:
        self.name = name

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        random = np.random.default_rng(zlib.crc32(text.encode()))
        vector = random.standard_normal(self.dimensions, dtype=np.float32)
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.stack([self.embed(text) for text in texts])


def fill(path: Path, records: int, vectors: bool = False) -> None:
    """A store of this many messages, in batches, with or without vectors."""
    texts = messages(records)
    with open_memory(path, embedder=SeededEmbedder() if vectors else "none", derive=False) as memory:
        for number in itertools.count():
            batch = list(itertools.islice(texts, _BATCH))
            if not batch:
                break
            memory.remember(batch, role="user", session_id=f"s{number}")
        memory.flush()
        memory.vacuum()  # merges what an idle worker would merge


def files_of(path: Path) -> list[Path]:
    """All files of a store. A process that has the store open must not open them."""
    index = path.with_name(path.name + "-index")
    return [file for file in (path, path.with_name(path.name + "-wal"), *index.glob("*.seg")) if file.exists()]


def drop_from_cache(files: Iterable[Path]) -> None:
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def open_and_ask(path: Path, mode: str, question: str, embedder: str) -> dict[str, float]:
    drop_from_cache(files_of(path))
    command = [sys.executable, "-c", _OPEN_AND_ASK, str(path), mode, question, embedder]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def report_bytes(path: Path, records: int | None, asked: Sequence[str], embedder: str) -> float:
    """Print the bytes that opening and the first answer read, for writing and for reading. Returns the largest, in
    MB."""
    size = sum(file.stat().st_size for file in files_of(path))
    name = path.name if records is None else f"{records:,} records"
    print(f"  {name}, {size / 1e6:,.0f} MB in {len(files_of(path))} files:")
    most = 0.0
    for mode in ("writing", "read_only"):
        runs = [open_and_ask(path, mode, question, embedder) for question in asked]

        most = max(most, *(run["disk"] / 1e6 for run in runs))

        def middle(key: str, unit: float = 1.0, runs: Sequence[Mapping[str, float]] = runs) -> float:
            return percentile([run[key] / unit for run in runs], 50)

        print(
            f"    opened for {mode:<10} MB read p50 {middle('disk', 1e6):6.2f}, "
            f"most {max(run['disk'] for run in runs) / 1e6:6.2f} (opening alone {middle('opening', 1e6):.2f}; "
            f"through read() {middle('calls', 1e6):.2f}); CPU p50 {middle('cpu_ms'):.0f} ms, "
            f"wall {middle('wall_ms'):.0f} ms",
            flush=True,
        )
    return most


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.starting", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, nargs="*", default=[20_000, 100_000])
    parser.add_argument("--runs", type=int, default=40, help="interpreters of each kind")
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument(
        "--vectors", action="store_true", help="with a vector for every record, asked by meaning, too"
    )
    parser.add_argument("--store", type=Path, nargs="*", default=[], help="stores that were filled before")
    parser.add_argument(
        "--embedder", default=_EMBEDDER, help="whose vectors (of 384 dimensions) a store was filled with"
    )
    parser.add_argument("--folder", type=Path, help="where to fill stores; not on a file system in memory")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    name = "starting-vectors" if options.vectors else "starting"
    with figures.saving_output(name, arguments, is_wanted=options.save) as kept:
        run(options, kept)


def run(options: argparse.Namespace, kept: dict[str, Any]) -> None:
    """Measure and print everything, and put the figures for the documents into `kept`."""
    print("import:")
    kept["import ratio"] = compare_imports(options.runs)
    packages = core_packages()
    kept["packages"] = len(packages)
    print(f"core install: {len(packages)} packages ({', '.join(sorted(packages))})")
    print(f"first answers of a process, CPU ms, median of {max(3, options.runs // 4)}:")
    report_first_answers(max(3, options.runs // 4))
    print("bytes from opening to the first answer:")
    asked = questions(options.questions)
    embedder = options.embedder if options.vectors else ""
    for path in options.store:
        kept[path.stem] = report_bytes(path, None, asked, embedder)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for records in [] if options.store else options.records:
            path = Path(folder) / f"{records}.loom"
            fill(path, records, options.vectors)
            kept[f"{records}"] = report_bytes(path, records, asked, embedder)


if __name__ == "__main__":
    main()
