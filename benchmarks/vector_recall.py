"""Recall and CPU cost of the vector projection, compared with exact numpy and bare usearch in one run.

    python -m benchmarks.vector_recall --records 100000 [--data clustered text vectors.npy] [--limit 10]
                                       [--save]

`clustered` is synthetic: clusters of Zipf-like sizes with a falling spectrum and a common direction, 384
dimensions. `text` is real: the sentences of the docstrings and comments of every Python file installed here,
embedded by the offline embedder (512 dimensions, a few milliseconds each; `--keep FILE.npy` writes them down). A
`.npy` file holds embeddings of your own, or those. Queries are drawn with the records and held out. Recall is against
the exact float32 cosine. Times are CPU of the process; usearch and the embedder are used if they are installed; the
output says if they are not.

The engines are queried in turn, query by query (`turns`), like in a store that searches words in between, and each
alone (`alone`), which lets the caches keep the part of a graph that is always visited.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import figures
from loom.index.segments import open_segment, write_segment
from loom.index.vector_index import VectorIndex, build
from loom.models.embedders import OfflineEmbedder, offline_embedder_installed

__all__ = ["main"]

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[Any]
Search = Callable[[Floats], Rows]

_SEED = 20_240_607
_PASSAGE = re.compile(r'"""(.*?)"""|((?:^[ \t]*#.*\n)+)', re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n")


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that returns the rows of the nearest vectors, and the time to build it."""

    name: str
    search: Search
    build_us: float | None
    vector_bytes: float


def clustered(count: int, dimensions: int = 384) -> Floats:
    """Unit vectors in `count / 100` clusters, the largest with a few percent of all."""
    random = np.random.default_rng(_SEED)
    clusters = max(1, count // 100)
    weights = 1.0 / (np.arange(clusters) + 10.0)
    labels = random.choice(clusters, count, p=weights / weights.sum())
    centres = random.standard_normal((clusters, dimensions), dtype=np.float32)
    spectrum = (np.arange(1, dimensions + 1) ** -0.5).astype(np.float32)
    common = 0.1 * random.standard_normal(dimensions, dtype=np.float32)
    vectors = np.empty((count, dimensions), dtype=np.float32)
    for start in range(0, count, 50_000):
        chosen = centres[labels[start : start + 50_000]]
        noise = random.standard_normal(chosen.shape, dtype=np.float32)
        vectors[start : start + 50_000] = (chosen + 0.7 * noise) * spectrum + common
    return unit(vectors)


def sentences() -> list[str]:
    """Distinct sentences of the docstrings and comments of the Python that is installed here."""
    found: dict[str, None] = {}
    roots = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    for path in sorted({path for root in roots for path in Path(root).rglob("*.py")}):
        for passage in _PASSAGE.finditer(path.read_text("utf-8", errors="ignore")):
            text = passage.group(1) or re.sub(r"^[ \t]*#+", "", passage.group(2) or "", flags=re.MULTILINE)
            for sentence in _SENTENCE.split(text):
                words = sentence.split()
                if len(words) >= 5 and 30 <= len(plain := " ".join(words)) <= 400:
                    found[plain] = None
    return list(found)


def embedded(count: int) -> Floats | None:
    """Embeddings of at most `count` sentences, or None without the offline embedder."""
    if not offline_embedder_installed():
        return None
    texts = sentences()
    chosen = np.random.default_rng(_SEED).permutation(len(texts))[:count]
    return unit(np.asarray(OfflineEmbedder().embed_batch([texts[number] for number in chosen]), dtype=np.float32))


def unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0.0, 1.0, lengths), dtype=np.float32)


def of_numpy(stored: Floats, limit: int) -> Engine:
    # Steps below the size at which OpenBLAS calls its threads, whose waiting would count as CPU time.
    step = max(1, 400_000 // stored.shape[1])
    scores = np.empty(len(stored), dtype=np.float32)

    def search(query: Floats) -> Rows:
        for start in range(0, len(stored), step):
            np.matmul(stored[start : start + step], query, out=scores[start : start + step])
        best = np.argpartition(scores, len(scores) - limit)[len(scores) - limit :]
        return np.asarray(best[np.argsort(-scores[best], kind="stable")])

    return Engine("exact numpy float32", search, None, stored.shape[1] * 4.0)


def of_loom(stored: Floats, limit: int, parts: int, folder: Path) -> Engine:
    segments, spent, size = [], 0.0, 0
    for number, rows in enumerate(np.array_split(np.arange(len(stored)), parts)):
        begun = time.process_time()
        built = build(rows, stored[rows[0] : rows[-1] + 1])
        spent += time.process_time() - begun
        path = folder / f"{number}.vectors"
        write_segment(path, *built)
        size += path.stat().st_size
        segments.append(open_segment(path))
    index = VectorIndex(stored.shape[1], segments)
    name = "loom" if parts == 1 else f"loom, {parts} segments"
    count = len(stored)
    return Engine(name, lambda query: index.search(query, limit)[0], spent / count * 1e6, size / count)


def of_usearch(stored: Floats, limit: int) -> Engine | None:
    if importlib.util.find_spec("usearch") is None:
        return None
    index = importlib.import_module("usearch.index").Index(ndim=stored.shape[1], metric="cos", dtype="f16")
    count = len(stored)
    keys = np.arange(count, dtype=np.uint64)
    begun = time.process_time()
    for start in range(0, count, 20_000):
        print(f"  usearch: {start:,} of {count:,} added", flush=True)
        index.add(keys[start : start + 20_000], stored[start : start + 20_000], threads=1)
    spent = time.process_time() - begun

    def search(query: Floats) -> Rows:
        return np.asarray(index.search(query, limit, threads=1).keys)

    return Engine("usearch f16 HNSW", search, spent / count * 1e6, index.serialized_length / count)


def timed(engines: Sequence[Engine], queries: Floats) -> tuple[list[list[float]], list[list[Rows]]]:
    """CPU microseconds and answers of each engine, the engines asked in turn for each query."""
    times: list[list[float]] = [[] for _ in engines]
    answers: list[list[Rows]] = [[] for _ in engines]
    for query in [*queries[:20], *queries]:
        for engine, spent, found in zip(engines, times, answers, strict=True):
            begun = time.process_time()
            found.append(engine.search(query))
            spent.append((time.process_time() - begun) * 1e6)
    return [spent[20:] for spent in times], [found[20:] for found in answers]


def compare(name: str, vectors: Floats, chosen: argparse.Namespace) -> float:
    """Print recall and cost of each engine. Returns the share of the nearest vectors that ours finds."""
    queries, stored = vectors[: chosen.queries], vectors[chosen.queries :]
    print(f"{name}: {len(stored):,} vectors of {stored.shape[1]} dimensions, {len(queries)} queries")
    with tempfile.TemporaryDirectory() as folder:
        engines = [of_loom(stored, chosen.limit, chosen.segments, Path(folder))]
        bare = None if chosen.without_usearch else of_usearch(stored, chosen.limit)
        if bare is not None:
            engines.append(bare)
        else:
            print("  usearch is not installed, or not wanted: not compared")
        turns, _ = timed(engines, queries)
        engines.append(of_numpy(stored, chosen.limit))
        alone, answers = zip(
            *((spent[0], found[0]) for spent, found in (timed([e], queries) for e in engines)), strict=True
        )
    truth = answers[-1]
    print("                            CPU per query, us: alone         in turn     | per vector")
    print(f"  {'engine':<22}{'recall':>8}{'p50':>10}{'p95':>9}{'p50':>9}{'p95':>9}  | {'build us':>9}{'bytes':>7}")
    shares: list[float] = []
    for number, engine in enumerate(engines):
        hits = sum(int(np.isin(found, near).sum()) for found, near in zip(answers[number], truth, strict=True))
        shares.append(hits / (len(truth) * chosen.limit))
        clusters = [f"{value:,.0f}" for value in np.percentile(alone[number], (50, 95))]
        clusters += (
            [f"{value:,.0f}" for value in np.percentile(turns[number], (50, 95))]
            if number < len(turns)
            else ["-", "-"]
        )
        built = "-" if engine.build_us is None else f"{engine.build_us:.1f}"
        print(
            f"  {engine.name:<22}{shares[-1]:>8.4f}{clusters[0]:>10}{clusters[1]:>9}"
            f"{clusters[2]:>9}{clusters[3]:>9}  | {built:>9}{engine.vector_bytes:>7.0f}"
        )
    return shares[0]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.vector_recall", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--segments", type=int, default=1, help="over how many segments the vectors are spread")
    parser.add_argument("--data", nargs="+", default=["clustered", "text"], metavar="clustered|text|FILE.npy")
    parser.add_argument("--keep", type=Path, help="where to write the embeddings of the text, for another run")
    parser.add_argument("--without-usearch", action="store_true", help="its build takes minutes from 100,000 on")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    chosen = parser.parse_args(arguments)
    name = "vector_recall" if chosen.segments == 1 else "vector_recall-segments"
    with figures.saving_output(name, arguments, is_wanted=chosen.save) as kept:
        run(chosen, kept)


def run(chosen: argparse.Namespace, kept: dict[str, Any]) -> None:
    """Compare the engines on each kind of vectors; the share of the nearest that ours finds goes into `kept`."""
    wanted = chosen.records + chosen.queries
    for name in chosen.data:
        print(f"preparing {name} ...", flush=True)
        vectors: Floats | None
        if name == "clustered":
            vectors = clustered(wanted)
        elif name == "text":
            vectors = embedded(wanted)
        else:
            vectors = unit(np.load(name, allow_pickle=False)[:wanted].astype(np.float32))
        if vectors is None:
            print("  the offline embedder is not installed (pip install 'loomkeep[embed]'): no real text")
            continue
        if name == "text" and chosen.keep is not None:
            np.save(chosen.keep, vectors.astype(np.float16))
        kept[Path(name).stem] = compare(name, vectors, chosen)


if __name__ == "__main__":
    main()
