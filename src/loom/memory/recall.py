"""Recall: from a question to the memories that answer it.

Words and vectors each nominate candidates of their own; every candidate is then scored by both, so that
neither can only re-order what the other found. Words lead: they are exact in both languages and need no model.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from loom.errors import InvalidInput
from loom.memory.embeddings import EmbeddingProvider, embed_question
from loom.memory.types import Hit
from loom.storage.base import Candidates, Filter, Record, Vector
from loom.storage.words import query_terms

__all__ = ["Searchable", "fuse", "recall"]

log = logging.getLogger("loom.recall")

# How many candidates words nominate for a result of `limit`, and meaning a third as many: a vector costs more to
# score, and its far neighbours are rarely right. The same for every small limit, so that a shorter answer is the
# beginning of a longer one.
_CANDIDATES = 4
_FEWEST_CANDIDATES = 40
# The share of the ceiling at which words alone are taken to answer a question. Measured on English dialogues and
# on paraphrases in both languages: from 0.45 to 0.8 the first lose under a point and the second gain ten.
_GOOD_MATCH = 0.6


class Searchable(Protocol):
    """What recall needs of a store."""

    def candidates(
        self, query: Mapping[str, float], vector: Vector | None, limit: int, vector_limit: int, wanted: Filter
    ) -> Candidates: ...

    def records(self, seqs: Sequence[int]) -> dict[int, Record]: ...


def recall(
    store: Searchable,
    question: str,
    *,
    limit: int,
    wanted: Filter,
    embedder: EmbeddingProvider | None = None,
    vector_weight: float = 0.7,
) -> list[Hit]:
    """The best memories for a question, best first; equal scores in the order in which they were written."""
    if not isinstance(question, str):
        raise InvalidInput(f"a question is a text, not {type(question).__name__}")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidInput(f"limit is {limit!r}; it must be a whole number of 1 or more")
    if not question.strip():
        raise InvalidInput("the question is empty; ask for something")
    terms = query_terms(question)
    vector = None if embedder is None else _question_vector(embedder, question)
    count = max(limit * _CANDIDATES, _FEWEST_CANDIDATES)
    found = store.candidates(terms, vector, count, count // 3, wanted)
    scores = fuse(found.by_words, found.by_meaning, vector_weight, found.ceiling)
    best = sorted(scores, key=lambda seq: (-scores[seq], seq))
    records: dict[int, Record] = {}
    asked = 0
    while len(records) < limit and asked < len(best):  # again only where records were forgotten meanwhile
        records |= store.records(best[asked : asked + limit])
        asked += limit
    shared = tuple(terms)
    return [_hit(records[seq], scores[seq], found, shared) for seq in best[:asked] if seq in records][:limit]


def _question_vector(embedder: EmbeddingProvider, question: str) -> Vector | None:
    """The question as a vector. An embedder that fails costs its signal, not the answer: words go on alone."""
    try:
        return embed_question(embedder, question)
    except Exception as error:
        log.warning("the question was not embedded (%s), so only words are searched", type(error).__name__)
        return None


def fuse(
    by_words: Mapping[int, float], by_meaning: Mapping[int, float], vector_weight: float, ceiling: float
) -> dict[int, float]:
    """One score from two: words as a share of what they could have reached, meaning by how far it stands out.

    A share of `ceiling` (what a record with every word of the question would score), because the best of
    poor matches is no good match: a shared "any" must not beat a memory that means the same. Similarities
    crowd together and their level differs from model to model, so only the distance from the candidates'
    mean counts (in standard deviations, 0 to 3). The result lies between 0 and 1.
    """
    full = max(max(by_words.values(), default=0.0), _GOOD_MATCH * ceiling) or 1.0
    if not by_meaning:
        return {seq: words / full for seq, words in by_words.items()}
    mean, deviation = _spread(list(by_meaning.values()))
    word_share = 1.0 / (full * (1.0 + vector_weight))
    meaning_share = vector_weight / (1.0 + vector_weight)
    step = meaning_share / (3.0 * deviation) if deviation > 0 else 0.0
    fused = {seq: words * word_share for seq, words in by_words.items()}
    for seq, meaning in by_meaning.items():
        distance = (
            min(max((meaning - mean) * step, 0.0), meaning_share) if step else max(meaning, 0.0) * meaning_share
        )
        fused[seq] = fused.get(seq, 0.0) + distance
    return fused


def _spread(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return 0.0, 0.0
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def _hit(record: Record, score: float, found: Candidates, terms: tuple[str, ...]) -> Hit:
    words, meaning = found.by_words.get(record.seq, 0.0), found.by_meaning.get(record.seq)
    signals = {"words": words} if words > 0 else {}
    if meaning is not None:
        signals["meaning"] = meaning
    return Hit(
        id=record.id,
        content=record.content,
        score=score,
        tokens=record.tokens,
        created_at=record.created_at,
        role=record.role,
        name=record.name,
        session_id=record.session_id,
        kind=record.kind,
        trust=record.trust,
        importance=record.importance,
        metadata=record.metadata,
        version=record.version,
        superseded_at=record.superseded_at,
        signals=signals,
        query_terms=terms,
        seq=record.seq,
    )
