"""The cost of a whole `recall`, compared with a bare tantivy and a bare usearch search on the same data, in one run.

    python -m benchmarks.recalling --records 100000 [--questions 200] [--rounds 10] [--folder FOLDER] [--long]
                                   [--save]

`recall` answers with ten memories, text and all, found by words and by meaning, filtered, scored and read from
the database. The bare sides answer with ten document numbers each: tantivy from an index of the same terms with
the same query terms (made by our analyser beforehand), usearch (f16, HNSW with its defaults) from the same
vectors. Embedding the question is left out on both sides: the vectors are prepared (clustered, 384 dimensions).
The sides take turns, question by question; CPU of the process, for each question the best of the rounds.
`--folder` keeps the store and the bare indexes, and uses those that an earlier run with as many records and
questions left there. With `--long` the records are turns of 500 to 2,000 tokens, and `recall` without passage scores
is measured as well.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import figures
from benchmarks.measuring import best_by_query, long_turns, messages, percentile, questions
from benchmarks.vector_recall import clustered
from loom.everyday import Memory, open_memory
from loom.recall.relevance import Weights
from loom.storage.contract import Filter
from loom.storage.search_view import search_text, search_vectors
from loom.text.words import query_terms, terms

__all__ = ["main"]

Floats = npt.NDArray[np.float32]
Ask = Callable[[int], object]

_BATCH = 5_000
_DIMENSIONS = 384
_LIMIT = 10


class PreparedEmbedder:
    """Returns prepared vectors: the n-th stored text has the n-th vector.

    A derived record (a fact or a summary) has the vector of one of the texts.
    """

    name = "prepared"
    dimensions = _DIMENSIONS

    def __init__(self, texts: Sequence[str], vectors: Floats, asked: Sequence[str], question_vectors: Floats) -> None:
        self._vectors = vectors
        self._numbers = {text: number for number, text in enumerate(texts)}
        self._questions = dict(zip(asked, question_vectors, strict=True))

    def embed(self, text: str) -> Floats:
        return np.asarray(self._vectors[self._number(text)])

    def embed_batch(self, batch: Sequence[str]) -> Floats:
        return np.asarray(self._vectors[[self._number(text) for text in batch]])

    def _number(self, text: str) -> int:
        return self._numbers.get(text, len(text.encode()) % len(self._vectors))

    def embed_query(self, text: str) -> Floats:
        return np.asarray(self._questions[text])


def fill(memory: Memory, texts: Sequence[str]) -> None:
    for start in range(0, len(texts), _BATCH):
        memory.remember(list(texts[start : start + _BATCH]), role="user", session_id=f"s{start // _BATCH}")


def _flushed(memory: Memory) -> None:
    outcome = memory.flush()
    if not outcome.complete:
        raise SystemExit(f"not everything was indexed: {outcome}")


def bare_tantivy(folder: Path, texts: Sequence[str], asked: Sequence[str]) -> Ask | None:
    if importlib.util.find_spec("tantivy") is None:
        return None
    tantivy = importlib.import_module("tantivy")
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("key", stored=True, indexed=False)
    builder.add_text_field("body", stored=False, tokenizer_name="whitespace", index_option="freq")
    schema = builder.build()
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    index = tantivy.Index(schema, path=str(folder))
    if is_new:
        writer = index.writer(heap_size=200_000_000, num_threads=1)
        for number, text in enumerate(texts):
            writer.add_document(tantivy.Document(key=number, body=" ".join(terms(text))))
        writer.commit()
        writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    words = [list(query_terms(question)) for question in asked]
    should = tantivy.Occur.Should

    def ask(number: int) -> object:
        clauses = [
            (should, tantivy.Query.term_query(schema, "body", word, index_option="freq")) for word in words[number]
        ]
        return searcher.search(tantivy.Query.boolean_query(clauses), _LIMIT, count=False).hits

    return ask


def bare_usearch(path: Path, vectors: Floats, question_vectors: Floats) -> Ask | None:
    if importlib.util.find_spec("usearch") is None:
        return None
    index: Any = importlib.import_module("usearch.index").Index(ndim=_DIMENSIONS, metric="cos", dtype="f16")
    if path.exists():
        index.load(str(path))
    else:
        for start in range(0, len(vectors), 20_000):
            print(f"  usearch: {start:,} of {len(vectors):,} added", flush=True)
            part = vectors[start : start + 20_000]
            index.add(np.arange(start, start + len(part), dtype=np.uint64), part, threads=1)
        index.save(str(path))
    return lambda number: index.search(question_vectors[number], _LIMIT, threads=1).keys


def report(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Print the times of each side, and return them."""
    found = {name: {"p50": percentile(values, 50), "p95": percentile(values, 95)} for name, values in times.items()}
    for name, at in found.items():
        print(f"  {name:<28} CPU ms p50 {at['p50']:7.3f}   p95 {at['p95']:7.3f}")
    return found


def parts_of(memory: Memory, asked: Sequence[str], question_vectors: Floats) -> dict[str, Ask]:
    """The steps of a plain search, measured separately. The rest of a recall serves to find the right memory."""
    store = memory.store
    words = [query_terms(question) for question in asked]
    everything = Filter()
    found = [[match.seq for match in search_text(store, one, 18, everything)] for one in words]
    return {
        "analysing the question": lambda number: query_terms(asked[number]),
        "searching words": lambda number: search_text(store, words[number], 64, everything),
        "searching vectors": lambda number: search_vectors(store, question_vectors[number], 64, everything),
        "reading 18 records": lambda number: store.records(found[number]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.recalling", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="where to keep the store and the bare indexes for another run")
    parser.add_argument("--long", action="store_true", help="turns of 500 to 2,000 tokens")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    name = "recalling-long" if options.long else "recalling-million" if options.records >= 1_000_000 else "recalling"
    with figures.saving_output(name, arguments, is_wanted=options.save) as found:
        run(options, found)


def run(options: argparse.Namespace, kept: dict[str, Any]) -> None:
    """Fill or open the store, ask, print, and put the times and ratios into `kept`."""
    texts = list(dict.fromkeys((long_turns if options.long else messages)(options.records)))
    asked = list(dict.fromkeys(questions(options.questions)))
    drawn = clustered(len(texts) + len(asked), _DIMENSIONS)
    vectors, question_vectors = drawn[: len(texts)], drawn[len(texts) :]
    print(f"{len(texts):,} records, {len(asked)} questions in two languages")
    with tempfile.TemporaryDirectory() as temporary:
        kept_as = f"{options.records}-{options.questions}{'-long' if options.long else ''}"
        folder = Path(temporary) if options.folder is None else options.folder / kept_as
        folder.mkdir(parents=True, exist_ok=True)
        embedder = PreparedEmbedder(texts, vectors, asked, question_vectors)
        with open_memory(folder / "recall.loom", embedder=embedder, derive=False) as memory:
            if memory.get_stats()["records"] < len(texts):
                started = time.process_time()
                fill(memory, texts)
                _flushed(memory)
                spent = time.process_time() - started
                print(f"  filled and indexed: {spent / len(texts) * 1e6:.0f} us CPU a record", flush=True)
            _flushed(memory)
            sides: dict[str, Ask] = {"recall": lambda number: memory.recall(asked[number], limit=_LIMIT)}
            whole = Weights(passages=0.0)
            by_records: dict[str, Ask] = {
                "recall without passages": lambda number: memory.manager.search(
                    asked[number], limit=_LIMIT, weights=whole
                )
            }
            bare = {
                "bare tantivy": bare_tantivy(folder / "tantivy", texts, asked),
                "bare usearch f16": bare_usearch(folder / "usearch", vectors, question_vectors),
            }
            for name, ask in bare.items():
                if ask is None:
                    print(f"  {name}: not installed (pip install 'loomkeep[bench]'), no comparison")
                else:
                    sides[name] = ask
            steps = parts_of(memory, asked, question_vectors)
            if options.long:
                alone = best_by_query([*by_records.values()], len(asked), options.rounds)
                kept |= report(dict(zip(by_records, alone, strict=True)))
            runs = best_by_query([*sides.values(), *steps.values()], len(asked), options.rounds)
            times = dict(zip(itertools.chain(sides, steps), runs, strict=True))
            kept |= report(times)
            if len(sides) == 3:
                both = [sum(pair) for pair in zip(*(times[name] for name in bare), strict=True)]
                report({"tantivy + usearch": both})
                together = [sum(values) for values in zip(*(times[name] for name in steps), strict=True)]
                for name, values in (("recall", times["recall"]), ("its four steps alone", together)):
                    middle, high = (percentile(values, rank) / percentile(both, rank) for rank in (50, 95))
                    print(f"  {name:<28} ratio at p50 {middle:.2f}, at p95 {high:.2f}")
                    kept[f"{name}, ratio"] = {"p50": middle, "p95": high}


if __name__ == "__main__":
    main()
