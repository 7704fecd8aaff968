"""Passages in recall: a long candidate is scored by the passage of it that says most about the question.

The index holds records and no passages, so passages cost nothing when a record is written. When a question is asked,
the best of the long candidates are read and split, and a word adds to them what it adds to their best passage, by the
statistics of the whole index. Short records are never read here. docs/recall.md has the measurements.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loom.index.analysis import own_words
from loom.index.text_scoring import K1, B
from loom.recall.candidates import Candidates
from loom.recall.questions import Question
from loom.storage.contract import Record
from loom.storage.search_view import SearchView
from loom.text.passages import Passage, passages
from loom.text.scripts import UNSPACED
from loom.text.words import MAX_TERM_CHARS, irregular_beginnings, query_terms, simplified_in_place, terms

__all__ = ["PassageScorer", "ScoredByPassages", "by_passages"]

Floats = npt.NDArray[np.float64]

# A record of more tokens than this is long: it has two passages or more.
_LONG_TOKENS = 250
# So many of the long candidates are scored by passages, the best by the words of the whole record first, while they
# take no more tokens than this in all. Each costs 0.15 ms of CPU. BEAM's development chats, recall@10 by words:
# 47.6 % with none, 52.3 with 24, 52.4 with 48.
_MOST_RECORDS = 24
_MOST_TOKENS = 64_000
# The characters of a word with the space after it, on average; and the fewest letters that a word is looked for with.
_WORD_CHARS = 6.0
_FEWEST_LETTERS = 3
# More occurrences than this add nothing to a score.
_MOST_PLACES = 1_000
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
# Other words for the question's own count half where the best passage is chosen.
_SYNONYM = 0.5


class Sought(NamedTuple):
    """The terms that are looked for in texts: the row of each, and how to find it.

    Only what begins like a term is analysed (`beginnings`, with the term and its row): to analyse all of a text takes
    five times as long. Terms of scripts without spaces are looked for as they are (`unspaced`).
    """

    rows: Mapping[str, int]
    beginnings: Sequence[tuple[int, str, Sequence[str]]]
    unspaced: Sequence[tuple[int, str]]

    @classmethod
    def of(cls, sought: Sequence[str]) -> Sought:
        rows = {term: row for row, term in enumerate(sought)}
        unspaced = [(row, term) for term, row in rows.items() if _IS_UNSPACED.match(term)]
        spaced = [(row, term, _beginnings(term)) for term, row in rows.items() if not _IS_UNSPACED.match(term)]
        return cls(rows, spaced, unspaced)

    def held(self, rows: Sequence[bool]) -> Sought:
        """The same rows, of which only some are looked for: those of the terms that a text is known to have."""
        return Sought(
            self.rows,
            [one for one in self.beginnings if rows[one[0]]],
            [one for one in self.unspaced if rows[one[0]]],
        )

    def places(self, text: str) -> Iterator[tuple[int, list[int]]]:
        """Where the terms stand in a text: the row of each that it has, and the places."""
        letters = text.lower()
        if len(letters) != len(text):
            letters = text
        for row, term, beginnings in self.beginnings:
            places = [
                place
                for beginning in beginnings
                if beginning in letters
                for place in _found(letters, beginning)
                if term in _terms_at(text, place)
            ]
            if places:
                yield row, places
        if self.unspaced and not text.isascii():
            characters = simplified_in_place(text)
            for row, term in self.unspaced:
                if term in characters:
                    yield row, [*_found(characters, term)]


def _beginnings(term: str) -> list[str]:
    """How the words begin that may have a term."""
    return sorted({term[: max(_FEWEST_LETTERS, len(term) - 2)], *_irregular().get(term[:_FEWEST_LETTERS], ())})


@dataclass(frozen=True, slots=True)
class PassageScorer:
    """Scores passages for one question as the index scores records: by BM25, with the weights of the whole index.

    `weights` is what each term of the question adds to a record of average length that has it once, and `synonyms`
    the same for terms of other words. `average_length` is in terms.
    """

    weights: Mapping[str, float]
    average_length: float
    synonyms: Mapping[str, float]

    @classmethod
    def of_question(cls, question: str) -> PassageScorer:
        """A scorer that knows nothing of an index: every word of the question weighs what the question says."""
        return cls(query_terms(question), 100.0, {})

    def sought(self) -> Sought:
        """What is looked for in texts, prepared once for all of them."""
        return Sought.of([*self.weights, *self.synonyms])

    def contributions(
        self, text: str, parts: Sequence[Passage], beside: str = "", sought: Sought | None = None
    ) -> Floats:
        """What each term adds to each passage: a row a term, those of the question first.

        The lines above a passage count as its own. So does `beside`, which is said of the whole text. `sought` is for
        callers that ask about many texts.
        """
        sought = self.sought() if sought is None else sought
        counts = np.zeros((len(sought.rows), len(parts)))
        starts = [part.start for part in parts]
        above = [(column, part.above) for column, part in enumerate(parts) if part.above]
        for row, places in sought.places(text):
            for place in places:
                counts[row, bisect_right(starts, place) - 1] += 1
            for column, spans in above:
                counts[row, column] += sum(start <= place < end for start, end in spans for place in places)
        for term in filter(sought.rows.__contains__, terms(beside)) if beside else ():
            counts[sought.rows[term]] += 1
        lengths = np.array([_length(text, part) for part in parts])
        norms = K1 * ((1.0 - B) + B * (lengths / self.average_length))
        weights = np.array([*self.weights.values(), *self.synonyms.values()])
        values: Floats = weights[:, None] * (counts * (K1 + 1.0)) / (counts + norms)
        return values

    def scores(self, text: str, parts: Sequence[Passage], beside: str = "") -> Floats:
        """The score of each passage; 0 where it has none of the terms."""
        return self.totals(self.contributions(text, parts, beside))

    def totals(self, contributions: Floats) -> Floats:
        """The scores that the contributions of terms make."""
        split = len(self.weights)
        total: Floats = contributions[:split].sum(axis=0) + _SYNONYM * contributions[split:].sum(axis=0)
        return total

    def best(self, text: str) -> Passage | None:
        """The passage that says most about the question, the first of equals; None where the text is one passage, or
        none has any of the terms."""
        parts = passages(text)
        if len(parts) < 2:
            return None
        scores = self.scores(text, parts)
        return parts[int(scores.argmax())] if scores.any() else None


def _length(text: str, part: Passage) -> float:
    """About how many terms a passage has: a word is one, a Chinese character with its pair two."""
    spoken = text[part.start : part.end]
    beyond = 0 if spoken.isascii() else len(spoken.encode("utf-8", "surrogatepass")) - len(spoken)
    return (len(spoken) - beyond / 2) / _WORD_CHARS + beyond


def _found(text: str, part: str) -> Iterator[int]:
    """The first places of a part in a text."""
    place = text.find(part)
    for _ in range(_MOST_PLACES):
        if place < 0:
            break
        yield place
        place = text.find(part, place + 1)


def _terms_at(text: str, place: int) -> frozenset[str]:
    """The terms of the word at this place, and of what is written together with it."""
    first, last = max(0, place - MAX_TERM_CHARS), place + MAX_TERM_CHARS
    start = max(text.rfind(" ", first, place), text.rfind("\n", first, place)) + 1 or first
    ends = [end for end in (text.find(" ", place, last), text.find("\n", place, last)) if end >= 0]
    return _known_terms(text[start : min(ends, default=last)])


@lru_cache(maxsize=4_096)
def _known_terms(word: str) -> frozenset[str]:
    return frozenset(terms(word))


@lru_cache(maxsize=1)
def _irregular() -> dict[str, frozenset[str]]:
    return irregular_beginnings(_FEWEST_LETTERS)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredByPassages:
    """Candidates of which the long ones have the words of their best passage, with these passages by place."""

    found: Candidates
    best: Mapping[int, Passage]
    scorer: PassageScorer


def by_passages(view: SearchView, found: Candidates, asked: Question, share: float) -> ScoredByPassages:
    """Let the best passage speak for each of the best long candidates, in the words of the question and others.

    What the words of the whole record add counts for the rest of `share`.
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
    best: dict[int, Passage] = {}
    sought = scorer.sought()
    for place in long:
        record = records.get(int(found.keys[place]))
        for passage, column in () if record is None else _best_of(record, scorer, sought, table[:, place]):
            best[place] = passage
            table[:, place] += share * (column - table[:, place])
    split = len(found.words)
    return ScoredByPassages(replace(found, words=table[:split], synonyms=table[split:]), best, scorer)


def _long_candidates(found: Candidates) -> list[int]:
    """The places of the long candidates to be scored by passages, the best by words first.

    Those that are as good as the last one are among them: copies of a text score alike.
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


def _best_of(
    record: Record, scorer: PassageScorer, sought: Sought, whole: Floats
) -> Iterator[tuple[Passage, Floats]]:
    """The best passage of a record, and what each term adds to it; nothing where the record is one passage.

    `whole` is what each adds to the whole record. What the index does not find in it is not looked for.
    """
    parts = passages(record.content)
    if len(parts) > 1:
        sought = sought.held((whole > 0.0).tolist())
        values = scorer.contributions(record.content, parts, own_words(record.name, record.metadata, ""), sought)
        best = int(scorer.totals(values).argmax())
        yield parts[best], values[:, best]
