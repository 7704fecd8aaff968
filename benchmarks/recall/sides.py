"""The compared sides: `Memory.recall` over a store of each dialogue, also with single signals off, and plain
baselines.

The baselines see the same texts: SQLite FTS5 with Porter's stemmer and without question words, the same over the
user's turns alone, BM25 with our own analysis, the embedder alone (by turns, and by the passages of long ones), and
FTS5 and the embedder with equal weights by reciprocal rank.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt

from benchmarks.recall.data import Dialogue, Turn
from benchmarks.recall.measures import BUDGETS, Outcome, measure, measure_prompts
from benchmarks.recall.quoting import Passages
from loom.everyday import Memory, open_memory
from loom.models.embedders import EmbeddingProvider, embed_question, embed_texts, embedder_from_name
from loom.recall.questions import understand
from loom.recall.relevance import Weights
from loom.storage.contract import Filter
from loom.storage.search_view import SearchView, best_admitted
from loom.text.passages import passages
from loom.text.words import query_terms

__all__ = [
    "EnglishEmbedder",
    "RandomEmbedder",
    "Rank",
    "SharedEmbedder",
    "ablations",
    "baselines",
    "embedder_for",
    "fill",
    "judged_hits",
    "outcomes",
    "plain_bm25",
    "prompted",
    "recall_side",
]

Rank = Callable[[str], Sequence[str]]
"""From a question to the ids of the turns, best first."""

# The number of hits: enough for 8,000 tokens of short turns.
_LIMIT = 300
_QUESTION_WORD_LIST = """
what when where which who whom whose why how did does do is are was were has have had the a an of to in on for and or
with at by from be been would could should can will
"""
_QUESTION_WORDS = frozenset(_QUESTION_WORD_LIST.split())


class SharedEmbedder:
    """Embeds every text and every question once, for all sides: embedding took nine tenths of a run without it.

    With a `cache` folder, once for all runs.
    """

    def __init__(self, embedder: EmbeddingProvider, cache: Path | None = None) -> None:
        self._embedder = embedder
        self.name = embedder.name
        self.dimensions = embedder.dimensions
        path: Path | str = ":memory:"
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
            path = cache / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', embedder.name)}.db"
        self._vectors = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=60.0)
        self._vectors.execute("PRAGMA synchronous = OFF")
        self._vectors.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        self._lock = Lock()

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        return np.asarray(self.embed_batch([text])[0])

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return self._embedded("text", texts, lambda new: embed_texts(self._embedder, new))

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        return np.asarray(self._embedded("question", [text], lambda new: [embed_question(self._embedder, new[0])])[0])

    def _embedded(
        self, kind: str, texts: Sequence[str], embed: Callable[[list[str]], Iterable[npt.NDArray[np.float32]]]
    ) -> npt.NDArray[np.float32]:
        keys = {text: hashlib.sha256(f"{kind}\0{text}".encode(errors="surrogatepass")).digest() for text in texts}
        with self._lock:
            known = {text: self._stored(key) for text, key in keys.items()}
            new = [text for text, vector in known.items() if vector is None]
            for text, made in zip(new, embed(new) if new else (), strict=True):
                known[text] = vector = np.asarray(made, dtype=np.float32)
                self._vectors.execute("INSERT OR IGNORE INTO vectors VALUES (?, ?)", (keys[text], vector.tobytes()))
        return np.array([known[text] for text in texts], dtype=np.float32)

    def _stored(self, key: bytes) -> npt.NDArray[np.float32] | None:
        row = self._vectors.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.float32)


class EnglishEmbedder:
    """An embedder that knows only English: it reads only the ASCII characters of a text."""

    name = "english"

    def __init__(self, embedder: EmbeddingProvider) -> None:
        self._embedder = embedder
        self.dimensions = embedder.dimensions

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        return np.asarray(self.embed_batch([text])[0])

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return embed_texts(self._embedder, [text.encode("ascii", "ignore").decode() or "?" for text in texts])


class RandomEmbedder:
    """An embedder that knows nothing: each text has a direction of its own."""

    name = "random"
    dimensions = 256

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        random = np.random.default_rng(list(hashlib.sha256(text.encode(errors="surrogatepass")).digest()))
        vector = random.standard_normal(self.dimensions).astype(np.float32)
        return vector / np.linalg.norm(vector)

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.array([self.embed(text) for text in texts])


def embedder_for(name: str, cache: Path | None = None) -> SharedEmbedder | None:
    """An embedder by its name: none, random, english, or any that loom knows by name. Ends the run without it."""
    if name == "none":
        return None
    if name == "random":
        return SharedEmbedder(RandomEmbedder())
    found = embedder_from_name("auto" if name == "english" else name)
    if found is None:
        raise SystemExit(f"there is no embedder {name!r} here (pip install 'loomkeep[embed]'); try --embedder none")
    return SharedEmbedder(EnglishEmbedder(found) if name == "english" else found, cache)


def fill(dialogue: Dialogue, embedder: EmbeddingProvider | str) -> Memory:
    """A store in memory that holds the dialogue, turn by turn, embedded and indexed."""
    memory = open_memory(embedder=embedder)
    for turn in dialogue.turns:
        memory.remember(
            turn.text,
            id=turn.id,
            role=turn.role,
            name=turn.name,
            session_id=turn.session,
            created_at=turn.said_at,
            metadata={"caption": turn.caption} if turn.caption else None,
        )
    report = memory.flush()
    if not report.complete:
        raise SystemExit(f"not everything was indexed: {report}")
    return memory


def recall_side(memory: Memory, weights: Weights | None = None, limit: int = _LIMIT) -> Rank:
    """`Memory.recall` as it is, or with other weights."""
    return lambda question: [hit.id for hit in memory.manager.search(question, limit=limit, weights=weights).hits]


def judged_hits(memory: Memory, dialogue: Dialogue, limit: int = 10) -> list[tuple[float, bool]]:
    """The scores of the first hits of every question, and whether each is evidence."""
    return [
        (hit.score, hit.id in question.evidence)
        for question in dialogue.questions
        for hit in memory.recall(question.text, limit=limit)
    ]


def ablations() -> dict[str, Weights]:
    """Every signal off in turn."""
    whole = Weights()
    return {f"without {entry.name}": replace(whole, **{entry.name: 0.0}) for entry in fields(Weights)}


def baselines(
    memory: Memory, dialogue: Dialogue, embedder: EmbeddingProvider | None, only: Collection[str] | None = None
) -> dict[str, Rank]:
    """Full-text search, an embedder, and both; and `recall` without the embedder.

    `only` selects among the sides that embed no text again, `plain BM25` and `recall by words`.
    """
    without = recall_side(memory, replace(Weights(), meaning=0.0))
    if only is not None:
        own = {"plain BM25": plain_bm25(memory), "recall by words": without}
        return {side: rank for side, rank in own.items() if side in only}
    texts = [_whole(turn) for turn in dialogue.turns]
    ids = [turn.id for turn in dialogue.turns]
    words = _fts5(ids, texts)
    sides: dict[str, Rank] = {"plain FTS5": words}
    users = [place for place, turn in enumerate(dialogue.turns) if turn.role == "user"]
    if 0 < len(users) < len(ids):
        sides["FTS5, the user"] = _fts5([ids[place] for place in users], [texts[place] for place in users])
    sides["plain BM25"] = plain_bm25(memory)
    if embedder is not None:
        vectors = np.asarray(embed_texts(embedder, texts), dtype=np.float32)

        def by_meaning(question: str) -> list[str]:
            nearest = np.argsort(-(vectors @ np.asarray(embed_question(embedder, question))), kind="stable")
            return [ids[place] for place in nearest[:_LIMIT].tolist()]

        def by_both(question: str) -> list[str]:
            scores: dict[str, float] = {}
            for ranked in (words(question), by_meaning(question)):
                for place, id in enumerate(ranked):
                    scores[id] = scores.get(id, 0.0) + 1.0 / (60 + place)
            return sorted(scores, key=lambda id: -scores[id])[:_LIMIT]

        if (owners := _owners(texts)) is not None:
            sides["embedder, passages"] = _by_passages(embedder, ids, texts, owners)
        sides |= {"embedder alone": by_meaning, "equal fusion": by_both, "recall by words": without}
    return sides


def _owners(texts: Sequence[str]) -> list[int] | None:
    """For each passage of these texts, the place of its text; None if every text is one passage."""
    owners = [place for place, text in enumerate(texts) for _ in passages(text)]
    return owners if len(owners) > len(texts) else None


def _by_passages(embedder: EmbeddingProvider, ids: Sequence[str], texts: Sequence[str], owners: list[int]) -> Rank:
    """The embedder alone: the score of a turn is that of its nearest passage."""
    parts = [text[part.start : part.end] for text in texts for part in passages(text)]
    vectors = np.asarray(embed_texts(embedder, parts), dtype=np.float32)

    def ask(question: str) -> list[str]:
        nearest = np.full(len(ids), -np.inf)
        np.maximum.at(nearest, owners, vectors @ np.asarray(embed_question(embedder, question)))
        return [ids[place] for place in np.argsort(-nearest, kind="stable")[:_LIMIT].tolist()]

    return ask


def plain_bm25(memory: Memory) -> Rank:
    """BM25 of the words of a question as loom analyses them, and nothing else."""

    def ask(question: str) -> list[str]:
        words = understand(question, memory.manager.store.clock()).words

        def search(view: SearchView) -> list[str]:
            found = best_admitted(view, _LIMIT, Filter(derived=False), partial(view.text.search, words))
            records = view.records(list(found))
            return [records[key].id for key in found]

        return memory.manager.store.search(search) if words else []

    return ask


def _whole(turn: Turn) -> str:
    named = f"{turn.name}: {turn.text}" if turn.name else turn.text
    return f"{named} {turn.caption}" if turn.caption else named


def _fts5(ids: Sequence[str], texts: Sequence[str]) -> Rank:
    """FTS5, with Porter's stemmer; texts without spaces are indexed as bigrams, because FTS5 would find nothing in
    them otherwise."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE turns USING fts5(body, tokenize='porter unicode61')")
    rows = [(place + 1, _spaced(text)) for place, text in enumerate(texts)]
    connection.executemany("INSERT INTO turns (rowid, body) VALUES (?, ?)", rows)

    def ask(question: str) -> list[str]:
        words = re.findall(r"\w+", _spaced(question).lower())
        kept = [word for word in words if word not in _QUESTION_WORDS] or words
        wanted = " OR ".join(f'"{word}"' for word in dict.fromkeys(kept))
        found = connection.execute(
            "SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY bm25(turns), rowid LIMIT ?", (wanted, _LIMIT)
        )
        return [ids[row[0] - 1] for row in found]

    return ask


def _spaced(text: str) -> str:
    if text.isascii():
        return text
    bigrams = [term for term in query_terms(text) if len(term) == 2 and not term.isascii()]
    return " ".join([*re.findall(r"[A-Za-z0-9_]+", text), *bigrams])


def outcomes(memory: Memory, dialogue: Dialogue, rank: Rank) -> list[Outcome]:
    """The measures of every question. The tokens of a record are those of its text and of its attached text."""
    count = memory.counter.count
    tokens = {turn.id: count(f"{turn.text} {turn.caption}".strip()) for turn in dialogue.turns}
    results: list[Outcome] = []
    for question in dialogue.questions:
        ranked = rank(question.text)
        results.append(measure(question.kind, ranked, [tokens[id] for id in ranked], question.evidence))
    return results


def prompted(memory: Memory, dialogue: Dialogue, budgets: Sequence[int] = BUDGETS) -> list[Outcome]:
    """The same for `Memory.context`: the part of the evidence that is quoted in a prompt of each budget."""
    passages = Passages(dialogue)
    results: list[Outcome] = []
    for question in dialogue.questions:
        prompts: list[list[tuple[bool, float]]] = []
        for budget in BUDGETS:
            quotations: dict[str, list[str]] = {}
            if budget in budgets:
                for item in memory.context(question.text, budget=budget).items:
                    quotations.setdefault(item.id, []).append(item.text)
            prompts.append(
                [
                    passages.quoted(question.text, id, quotations[id]) if id in quotations else (False, 0.0)
                    for id in (question.evidence if budget in budgets else ())
                ]
            )
        results.append(measure_prompts(question.kind, prompts))
    return results
