"""Hits: the memories that a recall found, with their scores and reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from loom.index.analysis import own_words
from loom.protocol import as_plain, from_plain
from loom.recall.passage_scores import PassageScorer
from loom.text.entities import entity_mark, entity_marks, entity_name
from loom.text.passages import Passage
from loom.text.thesaurus import Concept
from loom.text.words import simplified_in_place, spelled, terms

__all__ = ["Hit", "HitPassage", "Ranking", "Revision"]


class HitPassage(NamedTuple):
    """The passage of a long memory that answers the question best: `text` is `content[start:end]`.

    `heading` has the headings above it, or the head of its table, if there are any.
    """

    start: int
    end: int
    text: str
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Revision:
    """The other side of a change: the memory that a hit replaces, or that replaces it.

    `content` is the statement of the other memory and `own` that of the hit: whole texts for versions of one id,
    derived facts for two turns.
    """

    id: str
    version: int
    created_at: datetime
    trust: str
    content: str
    own: str


class Ranking(NamedTuple):
    """A candidate among all others. The table has a row for each signal and a column for each candidate.

    Only `nominated` candidates are ranked; the others are context.
    """

    signals: tuple[str, ...]
    table: Any
    nominated: Any
    place: int

    def contributions(self) -> dict[str, float]:
        """Return the contribution of each signal to the score."""
        return dict(zip(self.signals, self.table[:, self.place].tolist(), strict=True))

    def ranks(self) -> dict[str, int]:
        """Return the rank by each signal that contributes, from 1 for the best."""
        own = self.table[:, self.place]
        above = (self.table[:, self.nominated > 0] > own[:, None]).sum(axis=1).tolist()
        counts = zip(self.signals, own.tolist(), above, strict=True)
        return {name: better + 1 for name, value, better in counts if value > 0.0}


class _Told(NamedTuple):
    """The keys that `to_dict` adds to the fields."""

    ranks: Mapping[str, int] | None = None
    passage: HitPassage | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A recalled memory. Higher scores are better.

    `signals` has `words` (BM25) and `meaning` (cosine) as the indexes measure them, and the contributions of the
    other signals. `copies` counts the memories found with the same text, itself included; `copy_ids` are the others.
    `uses` is counted only for a `MemoryReranker`. `seq` is the sequence number. `names` maps the names that a
    language model read in the text to the words they stand for. `scored_by` is the passage that counted for the score
    of a long memory. `replaces` and `replaced_by` are the other sides of changes that concern the question.
    """

    id: str
    content: str
    score: float
    tokens: int
    created_at: datetime
    role: str | None
    name: str | None
    session_id: str | None
    kind: str
    trust: str
    importance: float
    metadata: Mapping[str, Any]
    version: int
    superseded_at: datetime | None
    signals: Mapping[str, float]
    ranking: Ranking | None = field(repr=False, compare=False, default=None)
    copies: int = 1
    copy_ids: tuple[str, ...] = field(repr=False, default=())
    uses: int = field(repr=False, default=0)
    query_terms: tuple[str, ...] = field(repr=False, default=())
    seq: int = field(repr=False, default=0)
    link_terms: tuple[str, ...] = field(repr=False, default=())
    concepts: tuple[Concept, ...] = field(repr=False, default=())
    shares_session: bool = field(repr=False, default=False)
    names: Mapping[str, str] = field(repr=False, default_factory=dict)
    passage_scorer: PassageScorer | None = field(repr=False, compare=False, default=None)
    scored_by: Passage | None = field(repr=False, compare=False, default=None)
    replaces: Revision | None = field(repr=False, default=None)
    replaced_by: Revision | None = field(repr=False, default=None)
    told_ranks: Mapping[str, int] | None = field(repr=False, compare=False, default=None)
    told_passage: HitPassage | None = field(repr=False, compare=False, default=None)

    @property
    def relevance(self) -> float:
        """The score, under the name that a `MemoryReranker` uses."""
        return self.score

    @property
    def ranks(self) -> dict[str, int]:
        """The rank among the candidates by each signal that contributes. Computed on request."""
        return self.ranking.ranks() if self.ranking is not None else dict(self.told_ranks or {})

    @property
    def passage(self) -> HitPassage | None:
        """The best passage for the question; None for a short memory, and if no passage has a word of the question.

        Computed on request, unless the score is by that passage.
        """
        best = self.scored_by
        if best is None and self.passage_scorer is not None:
            best = self.passage_scorer.best(self.content)
        if best is None:
            return self.told_passage
        heading = "\n".join(self.content[start:end] for start, end in best.above)
        return HitPassage(best.start, best.end, self.content[best.start : best.end], heading)

    def to_dict(self) -> dict[str, Any]:
        """Return the hit as JSON values. `from_dict` restores it with its ranks, but without other candidates."""
        passage = self.passage
        return {**as_plain(self), "ranks": self.ranks, "passage": None if passage is None else as_plain(passage)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Hit:
        """Return the hit from the result of `to_dict`."""
        if not isinstance(data, Mapping):
            return from_plain(cls, data)
        told = {name: value for name, value in data.items() if name in _Told._fields}
        known = from_plain(cls, {name: value for name, value in data.items() if name not in told})
        ranks, passage = from_plain(_Told, told)
        return replace(known, told_ranks=ranks, told_passage=passage)

    @property
    def why(self) -> str:
        """The reasons for this hit in words. `signals` and `ranks` have the figures."""
        # Built on request: reading the text again costs more than the search.
        text = own_words(self.name, self.metadata, self.content)
        reasons = [reason for name in self.signals if (reason := self._reason(name, text))]
        if (passage := self.passage) is not None:
            reasons.append(f"best passage {passage.start:,} to {passage.end:,} of {len(self.content):,} characters")
        if self.copies > 1:
            reasons.append(f"said {self.copies} times")
        if self.replaces is not None:
            reasons.append(f"replaces what was said on {_day(self.replaces.created_at)}")
        if self.replaced_by is not None:
            reasons.append(f"replaced by what was said on {_day(self.replaced_by.created_at)}")
        return "; ".join(reasons)

    def _reason(self, signal: str, text: str) -> str:
        """Return the reason of a signal; empty for signals independent of the question."""
        told: dict[str, Callable[[], str]] = {
            "words": lambda: f"has {_listed(spelled(text, frozenset(self.query_terms)))}",
            "synonyms": lambda: _listed(self._in_other_words(frozenset(terms(text)))),
            "names": lambda: _listed(self._read_as(self.query_terms)),
            "meaning": lambda: f"similar in meaning ({self.signals[signal]:.2f})",
            "links": lambda: self._tie(text),
            "role": lambda: f"said by the {self.role}",
        }
        return told[signal]() if signal in told else _REASONS.get(signal, "")

    def _tie(self, text: str) -> str:
        """Return the reasons that it has in common with other hits."""
        marks = {mark: name for mark in entity_marks(self.content, self.metadata) if (name := entity_name(mark))}
        shared = [_as_written(self.content, marks[mark]) for mark in self.link_terms if mark in marks]
        shared += spelled(text, frozenset(self.link_terms).difference(marks))
        shared += self._read_as(self.link_terms)
        if shared:
            return f"shares {_listed(shared)} with other hits"
        if self.shares_session:
            return "from the same session as other hits"
        return f"said by {self.name}, who also said other hits" if self.name else "linked to other hits"

    def _read_as(self, wanted: Sequence[str]) -> list[str]:
        """Return the names, among these terms and marks, that a model found, with the words for which they stand."""
        return [
            name if name.casefold() == said.casefold() else f"{name} (as the model reads {said!r})"
            for name, said in self.names.items()
            if not {entity_mark(name), *terms(name)}.isdisjoint(wanted)
        ]

    def _in_other_words(self, present: frozenset[str]) -> list[str]:
        """Return the words of the text that are synonyms of words of the question."""
        return [
            f"{other.word} for {concept.word}"
            for concept in self.concepts
            for other in concept.others
            if present.issuperset(other.terms) and not present.issuperset(concept.terms)
        ]


# The reasons without figures and words of the text.
_REASONS = {
    "context": "the turns around it match",
    "speaker": "said by the speaker whom the question names",
    "time": "from the time that the question names",
    "dated": "gives a time",
    "answer": "names what is asked for",
    "order": "in the order that is asked for",
    "parts": "best for a part of the question",
    "phrase": "has the quoted words",
    "reranked": "the reranker's choice",
}
# The largest number of words in a reason.
_MOST_LISTED = 8


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _MOST_LISTED
    return ", ".join(words[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _as_written(content: str, name: str) -> str:
    """Return the name as the content spells it, otherwise as its mark spells it."""
    found = re.search(r"\s+".join(map(re.escape, name.split())), simplified_in_place(content), re.IGNORECASE)
    return content[found.start() : found.end()] if found else name


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%b} {moment.year}"
