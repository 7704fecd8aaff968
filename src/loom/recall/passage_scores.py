"""Passages in recall: the best passage of a long candidate decides its score.

The index has no passages, so writing a record costs no more. For a question, the best of the long candidates are read
and split, and each word counts as in the best passage, with the statistics of the whole index. Short records are not
read here. docs/recall.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loom.index.analysis import own_words
from loom.index.text_scoring import K1, B
from loom.recall.candidates import Candidates
from loom.recall.questions import Question
from loom.recall.term_places import Occurrences, Sought
from loom.storage.search_view import SearchView
from loom.text.passages import Passage, passages
from loom.text.words import query_terms, terms

__all__ = ["PassageScorer", "ScoredByPassages", "by_passages"]

Floats = npt.NDArray[np.float64]

# A longer record, in tokens, has two passages or more.
_LONG_TOKENS = 250
# The number of long candidates that are scored by passages, best by the words of the whole record first, and their
# tokens in all. Each takes 0.15 ms of CPU. BEAM's development chats, recall@10 by words:
# 47.6 % with none, 52.3 with 24, 52.4 with 48.
_MOST_RECORDS = 24
_MOST_TOKENS = 64_000
# The characters of a word with the space after it, on average.
_WORD_CHARS = 6.0
# The weight of synonyms of the question's words in the choice of the best passage.
_SYNONYM = 0.5


class DividedText(NamedTuple):
    """A text with its passages. `beside` has the names and attached texts, which count for every passage."""

    text: str
    parts: Sequence[Passage]
    beside: str = ""


@dataclass(frozen=True, slots=True)
class PassageScorer:
    """Scores passages for one question by BM25 with the weights of the whole index.

    `weights` has the contribution of each term of the question to a record of average length that has it once, and
    `synonyms` the same for terms of synonyms. `average_length` is in terms.
    """

    weights: Mapping[str, float]
    average_length: float
    synonyms: Mapping[str, float]

    @classmethod
    def of_question(cls, question: str) -> PassageScorer:
        """Return a scorer without an index: each word has the weight that it has in the question."""
        return cls(query_terms(question), 100.0, {})

    def sought(self) -> Sought:
        """Return the terms prepared for a search in texts."""
        return Sought.of([*self.weights, *self.synonyms])

    def contributions(
        self, texts: Sequence[DividedText], sought: Sought | None = None, held: npt.NDArray[np.bool_] | None = None
    ) -> Floats:
        """Return the contributions of terms to passages: a row for each term of the question and then of synonyms,
        a column for each passage, text by text.

        The lines above a passage and the text beside it count as its own. `sought` is the result of `sought()` if the
        caller asks several times. `held` marks, for each row and text, whether the text may have the term.
        """
        sought = self.sought() if sought is None else sought
        counts = _counted(texts, sought, sought.occurrences([one.text for one in texts], held))
        lengths = np.array([_length(one.text, part) for one in texts for part in one.parts])
        norms = K1 * ((1.0 - B) + B * (lengths / self.average_length))
        weights = np.array([*self.weights.values(), *self.synonyms.values()])
        values: Floats = weights[:, None] * (counts * (K1 + 1.0)) / (counts + norms)
        return values

    def scores(self, text: str, parts: Sequence[Passage], beside: str = "") -> Floats:
        """Return the score of each passage, 0 for one without any of the terms."""
        return self.totals(self.contributions([DividedText(text, parts, beside)]))

    def totals(self, contributions: Floats) -> Floats:
        """Return the scores for contributions of terms."""
        split = len(self.weights)
        total: Floats = contributions[:split].sum(axis=0) + _SYNONYM * contributions[split:].sum(axis=0)
        return total

    def best(self, text: str) -> Passage | None:
        """Return the best passage, the first of equals; None if the text is one passage or has none of the terms."""
        parts = passages(text)
        if len(parts) < 2:
            return None
        scores = self.scores(text, parts)
        return parts[int(scores.argmax())] if scores.any() else None


def _length(text: str, part: Passage) -> float:
    """Estimate the number of terms of a passage: one for a word, two for a Chinese character with its pair."""
    spoken = text[part.start : part.end]
    beyond = 0 if spoken.isascii() else len(spoken.encode("utf-8", "surrogatepass")) - len(spoken)
    return (len(spoken) - beyond / 2) / _WORD_CHARS + beyond


def _counted(texts: Sequence[DividedText], sought: Sought, found: Occurrences) -> Floats:
    """Count each term in each passage: a row for each term, a column for each passage."""
    sizes = [len(one.parts) for one in texts]
    firsts = np.cumsum([0, *sizes])
    starts = np.array([part.start for one in texts for part in one.parts])
    ends = np.array([one.parts[-1].end for one in texts])
    # The texts are numbered as if concatenated with space between them.
    room = int(ends.max(initial=0)) + 1
    at = found.texts * room + found.places
    columns = (np.repeat(np.arange(len(texts)), sizes) * room + starts).searchsorted(at, side="right") - 1
    shape = len(sought.rows), int(firsts[-1])
    counts = (
        np.bincount(found.rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    )
    above = [
        (first + column, span[0] + number * room, span[1] + number * room)
        for number, (one, first) in enumerate(zip(texts, firsts.tolist(), strict=False))
        for column, part in enumerate(one.parts)
        for span in part.above
    ]
    if above and len(at):
        order = at.argsort(kind="stable")
        rows, at = found.rows[order], at[order]
        lines = np.array(above)
        low, high = at.searchsorted(lines[:, 1]).tolist(), at.searchsorted(lines[:, 2]).tolist()
        for (column, _, _), first, last in zip(above, low, high, strict=True):
            for row in rows[first:last].tolist():
                counts[row, column] += 1.0
    for one, first, size in zip(texts, firsts.tolist(), sizes, strict=False):
        for term in filter(sought.rows.__contains__, terms(one.beside)) if one.beside else ():
            counts[sought.rows[term], first : first + size] += 1.0
    return counts


@dataclass(frozen=True, slots=True, eq=False)
class ScoredByPassages:
    """Candidates whose long records have the words of their best passage, and these passages by place."""

    found: Candidates
    best: Mapping[int, Passage]
    scorer: PassageScorer


def by_passages(view: SearchView, found: Candidates, asked: Question, share: float) -> ScoredByPassages:
    """Replace the words of the best long candidates with those of their best passage.

    `share` (0 to 1) is the weight of the passage; the words of the whole record have the rest.
    """
    scorer = PassageScorer(
        dict(zip(asked.words, found.weights.tolist(), strict=True)),
        view.text.total_length / max(1, view.text.documents) or 1.0,
        dict(zip(found.synonym_terms, found.synonym_weights.tolist(), strict=True)),
    )
    long = _long_candidates(found) if share else []
    if not long:
        return ScoredByPassages(found, {}, scorer)
    table = np.concatenate((found.words, found.synonyms))
    records = view.records(sorted(found.keys[long].tolist()))
    places, texts = [], []
    for place in long:
        record = records.get(int(found.keys[place]))
        if record is not None and len(parts := passages(record.content)) > 1:
            places.append(place)
            texts.append(DividedText(record.content, parts, own_words(record.name, record.metadata, "")))
    if not texts:
        return ScoredByPassages(found, {}, scorer)
    # Terms that the index does not have for a record are not searched in it.
    values = scorer.contributions(texts, held=table[:, places] > 0.0)
    totals = scorer.totals(values).tolist()
    best: dict[int, Passage] = {}
    columns: list[int] = []
    first = 0
    for place, one in zip(places, texts, strict=True):
        of_text = totals[first : first + len(one.parts)]
        at = of_text.index(max(of_text))
        best[place] = one.parts[at]
        columns.append(first + at)
        first += len(of_text)
    table[:, places] += share * (values[:, columns] - table[:, places])
    split = len(found.words)
    return ScoredByPassages(replace(found, words=table[:split], synonyms=table[split:]), best, scorer)


def _long_candidates(found: Candidates) -> list[int]:
    """Return the places of the long candidates to score by passages, best by words first.

    All ties of the last one are included, since copies of a text score alike.
    """
    words = found.words.sum(axis=0)
    long = np.flatnonzero((found.tokens > _LONG_TOKENS) & (found.nominated > 0) & (words > 0.0))
    long = long[(-words[long]).argsort(kind="stable")]
    if len(long) > _MOST_RECORDS:
        long = long[words[long] >= words[long[_MOST_RECORDS - 1]]]
    room = _MOST_TOKENS
    chosen: list[int] = []
    for place in long.tolist():
        if (tokens := int(found.tokens[place])) <= room:
            room -= tokens
            chosen.append(place)
    return chosen
