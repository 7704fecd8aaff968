"""What is compared: `Memory.recall` over a store of each dialogue, with a signal off in turn, and plain baselines.

The baselines see the same texts: SQLite FTS5 with Porter's stemmer and without question words, the embedder alone,
and both with equal weights by reciprocal rank.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt

from benchmarks.recall.data import Dialogue, Turn
from benchmarks.recall.measures import BUDGETS, Outcome, measure, measure_prompts
from loom.everyday import Memory, open_memory
from loom.models.embedders import EmbeddingProvider, embed_question, embed_texts
from loom.recall.relevance import Weights
from loom.text.words import query_terms

__all__ = ["Rank", "SharedEmbedder", "ablations", "baselines", "fill", "outcomes", "prompted", "recall_side"]

Rank = Callable[[str], Sequence[str]]
"""From a question to the ids of the turns, best first."""

# Enough for 8,000 tokens of short turns.
_LIMIT = 300
_QUESTION_WORD_LIST = """
what when where which who whom whose why how did does do is are was were has have had the a an of to in on for and or
with at by from be been would could should can will
"""
_QUESTION_WORDS = frozenset(_QUESTION_WORD_LIST.split())


class SharedEmbedder:
    """Embeds every text and every question once, for all sides: embedding took nine tenths of a run without it."""

    def __init__(self, embedder: EmbeddingProvider) -> None:
        self._embedder = embedder
        self._texts: dict[str, npt.NDArray[np.float32]] = {}
        self._questions: dict[str, npt.NDArray[np.float32]] = {}
        self.name = embedder.name
        self.dimensions = embedder.dimensions

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        return np.asarray(self.embed_batch([text])[0])

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in self._texts]
        if new:
            self._texts.update(zip(new, embed_texts(self._embedder, new), strict=True))
        return np.array([self._texts[text] for text in texts], dtype=np.float32)

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        if text not in self._questions:
            self._questions[text] = np.asarray(embed_question(self._embedder, text), dtype=np.float32)
        return self._questions[text]


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


def ablations() -> dict[str, Weights]:
    """Every signal off in turn."""
    whole = Weights()
    return {f"without {entry.name}": replace(whole, **{entry.name: 0.0}) for entry in fields(Weights)}


def baselines(memory: Memory, dialogue: Dialogue, embedder: EmbeddingProvider | None) -> dict[str, Rank]:
    """What everybody has: full-text search, an embedder, and both; and what `recall` does without the embedder."""
    texts = [_whole(turn) for turn in dialogue.turns]
    ids = [turn.id for turn in dialogue.turns]
    words = _fts5(ids, texts)
    sides: dict[str, Rank] = {"plain FTS5": words}
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

        without = recall_side(memory, replace(Weights(), meaning=0.0))
        sides |= {"embedder alone": by_meaning, "equal fusion": by_both, "recall by words": without}
    return sides


def _whole(turn: Turn) -> str:
    named = f"{turn.name}: {turn.text}" if turn.name else turn.text
    return f"{named} {turn.caption}" if turn.caption else named


def _fts5(ids: Sequence[str], texts: Sequence[str]) -> Rank:
    """FTS5, with Porter's stemmer; texts without spaces go in as bigrams, or it would find nothing in them."""
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
    """The measures of every question. A record takes the tokens of its text and of what is attached to it."""
    count = memory.counter.count
    tokens = {turn.id: count(f"{turn.text} {turn.caption}".strip()) for turn in dialogue.turns}
    results: list[Outcome] = []
    for question in dialogue.questions:
        ranked = rank(question.text)
        results.append(measure(question.kind, ranked, [tokens[id] for id in ranked], question.evidence))
    return results


def prompted(memory: Memory, dialogue: Dialogue) -> list[Outcome]:
    """The same through `Memory.context`: what of the evidence stands in a prompt of each budget."""
    results: list[Outcome] = []
    for question in dialogue.questions:
        inside = [{item.id for item in memory.context(question.text, budget=budget).items} for budget in BUDGETS]
        results.append(measure_prompts(question.kind, inside, question.evidence))
    return results
