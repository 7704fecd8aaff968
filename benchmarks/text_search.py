"""CPU cost of the text projection, compared with bare tantivy on the same documents and queries in one run.

    python -m benchmarks.text_search --records 100000

The corpus is synthetic: a Zipf-Mandelbrot vocabulary, documents of about 25 terms, a fixed seed. A query is
5 to 8 of the distinct terms of one document. "Content words" leaves out the 100 most common words, as our
analyser drops function words from a question; "all words" keeps them. Times are CPU of the calling thread,
for each query the best of three rounds. Without tantivy the comparison says so.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loom.index import text_index
from loom.index.segments import Segment, open_segment, write_segment
from loom.index.text_index import TextIndex, TextLimits, TextTail

__all__ = ["main"]

_SEGMENT = 65_536
_CHUNK = 2_048
_VOCABULARY = 400_000
_SEED = 20_240_607
_FUNCTION_WORDS = 100


def corpus(records: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The ranks of the words of all documents, concatenated, and the start of each document."""
    weights = 1.0 / (np.arange(_VOCABULARY) + 2.7) ** 1.05
    cumulative = np.cumsum(weights)
    lengths = np.maximum(3, rng.gamma(4.0, 25.0 / 4.0, records)).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    ranks = np.searchsorted(cumulative, rng.random(int(starts[-1])) * cumulative[-1]).astype(np.int32)
    return ranks, starts


def word(rank: int) -> str:
    return f"w{rank}"


def questions(
    ranks: npt.NDArray[np.int32], starts: npt.NDArray[np.int64], common: int, count: int, rng: np.random.Generator
) -> list[list[str]]:
    """Terms of one document each, without the `common` most common words."""
    chosen: list[list[str]] = []
    while len(chosen) < count:
        number = int(rng.integers(len(starts) - 1))
        distinct = np.unique(ranks[starts[number] : starts[number + 1]])
        distinct = distinct[distinct >= common]
        size = int(rng.integers(5, 9))
        if len(distinct) >= size:
            chosen.append([word(rank) for rank in rng.choice(distinct, size, replace=False).tolist()])
    return chosen


def weighted(query: Sequence[str]) -> dict[str, float]:
    return dict.fromkeys(query, 1.0)


def percentiles(run: Callable[[Sequence[str]], object], queries: list[list[str]]) -> tuple[float, float]:
    """CPU milliseconds of the calling thread at p50 and p95, each query's best of three rounds."""
    for query in queries[:20]:
        run(query)
    best = [float("inf")] * len(queries)
    for _ in range(3):
        for i, query in enumerate(queries):
            started = time.thread_time()
            run(query)
            best[i] = min(best[i], (time.thread_time() - started) * 1e3)
    p50, p95 = np.percentile(best, [50, 95]).tolist()
    return p50, p95


def build_segments(
    folder: Path, ranks: npt.NDArray[np.int32], starts: npt.NDArray[np.int64], tail: int
) -> tuple[list[Segment], TextTail]:
    """Chunks as the worker writes them, merged eight by eight into segments, and a tail."""
    records = len(starts) - 1
    spent_build = spent_merge = spent_tail = 0.0
    chunks: list[Segment] = []
    segments: list[Segment] = []

    def document(number: int) -> tuple[int, list[str]]:
        return number + 1, [word(rank) for rank in ranks[starts[number] : starts[number + 1]].tolist()]

    def flush() -> None:
        nonlocal spent_merge
        started = time.thread_time()
        header, arrays = text_index.merge(chunks)
        spent_merge += time.thread_time() - started
        path = folder / f"text-{len(segments)}.seg"
        write_segment(path, header, arrays)
        segments.append(open_segment(path))
        chunks.clear()

    for first in range(0, records - tail, _CHUNK):
        documents = [document(number) for number in range(first, min(first + _CHUNK, records - tail))]
        started = time.thread_time()
        chunks.append(Segment(*text_index.build(documents)))
        spent_build += time.thread_time() - started
        if len(chunks) * _CHUNK == _SEGMENT:
            flush()
    if chunks:
        flush()
    held = TextTail()
    for number in range(records - tail, records):
        key, terms = document(number)
        started = time.thread_time()
        held.add(key, terms)
        spent_tail += time.thread_time() - started
    indexed = max(1, records - tail)
    size = sum(segment.size_bytes for segment in segments)
    print(f"build   {spent_build / indexed * 1e6:8.2f} us CPU a document (chunks of {_CHUNK})")
    print(f"merge   {spent_merge / indexed * 1e6:8.2f} us CPU a document (32 chunks into one segment)")
    print(f"tail    {spent_tail / max(1, tail) * 1e6:8.2f} us CPU an add")
    print(f"size    {size / indexed:8.1f} bytes a document in {len(segments)} segments")
    return segments, held


def tantivy_search(
    folder: Path, ranks: npt.NDArray[np.int32], starts: npt.NDArray[np.int64], limit: int
) -> Callable[[Sequence[str]], object] | None:
    try:
        import tantivy  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("key", stored=True, indexed=False)
    builder.add_text_field("body", stored=False, tokenizer_name="whitespace", index_option="freq")
    schema = builder.build()
    index = tantivy.Index(schema, path=str(folder))
    writer = index.writer(heap_size=200_000_000, num_threads=1)
    started = time.process_time()
    for number, (first, last) in enumerate(itertools.pairwise(starts.tolist())):
        body = " ".join(word(rank) for rank in ranks[first:last].tolist())
        writer.add_document(tantivy.Document(key=number + 1, body=body))
    writer.commit()
    writer.wait_merging_threads()
    print(f"tantivy {(time.process_time() - started) / (len(starts) - 1) * 1e6:8.2f} us CPU a document")
    index.reload()
    searcher = index.searcher()
    term_query, boolean_query, should = tantivy.Query.term_query, tantivy.Query.boolean_query, tantivy.Occur.Should

    def search(terms: Sequence[str]) -> object:
        clauses = [(should, term_query(schema, "body", term, index_option="freq")) for term in terms]
        return searcher.search(boolean_query(clauses), limit, count=False).hits

    return search


def search_among(index: TextIndex, limit: int, keys: npt.NDArray[np.int64], query: Sequence[str]) -> object:
    return index.search(weighted(query), limit, keys)


def report(name: str, times: tuple[float, float], base: tuple[float, float] | None = None) -> None:
    ratio = f"   p95 {times[1] / base[1]:.2f}x tantivy" if base else ""
    print(f"{name:<34} p50 {times[0]:7.3f} ms   p95 {times[1]:7.3f} ms{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--tail", type=int, default=1_000, help="how many of the records no segment holds yet")
    options = parser.parse_args()
    rng = np.random.default_rng(_SEED)
    ranks, starts = corpus(options.records, rng)
    kinds = {
        "content words": questions(ranks, starts, _FUNCTION_WORDS, options.queries, rng),
        "all words": questions(ranks, starts, 0, options.queries, rng),
    }
    tenth = np.sort(rng.choice(options.records, options.records // 10, replace=False) + 1)
    few = tenth[:: max(1, len(tenth) // 500)]
    limit = options.limit
    print(f"{options.records} documents, {len(ranks) / options.records:.1f} terms each; limit {limit}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        segments, tail = build_segments(folder, ranks, starts, min(options.tail, options.records))
        index = TextIndex(segments, tail)
        exact = TextIndex(segments, tail, limits=TextLimits(exact_documents=options.records))
        (folder / "tantivy").mkdir()
        bare = tantivy_search(folder / "tantivy", ranks, starts, limit)
        if bare is None:
            print("tantivy: not installed, no comparison")
        for kind, queries in kinds.items():
            print(f"{kind}:")
            base = None if bare is None else percentiles(bare, queries)
            if base is not None:
                report("  bare tantivy", base)
            report("  search", percentiles(lambda query: index.search(weighted(query), limit), queries), base)
            for keys in (few, tenth):
                among = percentiles(partial(search_among, index, limit, keys), queries)
                report(f"  search among {len(keys)} keys", among)
            report("  score 100 keys", percentiles(lambda query: index.score(weighted(query), few[:100]), queries))
            same = sum(
                np.array_equal(index.search(weighted(query), limit)[0], exact.search(weighted(query), limit)[0])
                for query in queries
            )
            print(f"  answers equal to full BM25: {same} of {len(queries)}")


if __name__ == "__main__":
    main()
