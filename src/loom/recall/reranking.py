"""Reranking of candidates of any tier by relevance, recency, importance and use, with an explanation of each score.

Relevance leads; the other signals decide between memories that answer a question about equally well. Pure functions:
the caller provides the candidates and their relevance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from loom.checks import checked_instance, checked_list, checked_mapping, checked_number, checked_object, checked_whole
from loom.errors import InvalidInput
from loom.protocol import Clock, utc_now
from loom.text.words import query_terms, terms

__all__ = ["DEFAULT_WEIGHTS", "MemoryReranker", "Rankable", "Ranked", "RerankSignal"]


class RerankSignal(StrEnum):
    """The signals of the reranker."""

    RECENCY = "recency"
    IMPORTANCE = "importance"
    RELEVANCE = "relevance"
    FREQUENCY = "frequency"


DEFAULT_WEIGHTS: Mapping[RerankSignal, float] = MappingProxyType(
    {
        RerankSignal.RELEVANCE: 0.80,
        RerankSignal.RECENCY: 0.08,
        RerankSignal.IMPORTANCE: 0.08,
        RerankSignal.FREQUENCY: 0.04,
    }
)
"""Together, the other three move a memory past one that is at most 0.25 more relevant, and never further."""

# The number of uses that score a half. The hundredth use adds very little.
_HALF_OF_THE_USES = 4.0
_DIGITS = 12


class Rankable(Protocol):
    """A candidate of any tier. `relevance` is from 0 to 1, or None if unknown."""

    @property
    def id(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def relevance(self) -> float | None: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def importance(self) -> float: ...
    @property
    def uses(self) -> int: ...


Item = TypeVar("Item", bound=Rankable)


@dataclass(frozen=True, slots=True)
class Ranked(Generic[Item]):
    """A ranked memory. The score and each signal are from 0 to 1; `why` explains the score."""

    item: Item
    score: float
    signals: dict[RerankSignal, float]
    why: str


class MemoryReranker:
    """Orders memories of any tiers by a weighted sum of four signals.

    `weights` maps signals to weights in any scale; they are scaled to a sum of 1, and other signals do not count.
    Recency halves every `half_life_hours`. Candidates below `min_score` are left out.
    """

    def __init__(
        self,
        weights: Mapping[RerankSignal, float] | Mapping[str, float] | None = None,
        half_life_hours: float = 48,
        min_score: float = 0.0,
        clock: Clock = utc_now,
    ) -> None:
        if checked_number(half_life_hours, "half_life_hours") <= 0:
            raise InvalidInput(f"half_life_hours is {half_life_hours}; it must be above 0")
        checked_number(min_score, "min_score", 0, 1)
        checked_object(clock, "clock", "__call__")
        self.weights = _normalised(DEFAULT_WEIGHTS if weights is None else weights)
        self.half_life_hours = half_life_hours
        self.min_score = min_score
        self._clock = clock

    def rerank(self, query: str, candidates: Iterable[Item], limit: int | None = None) -> list[Ranked[Item]]:
        """Return at most `limit` candidates, best first, ties by id.

        An unknown relevance is the share of the query's words that the candidate has.
        """
        if limit is not None:
            checked_whole(limit, "limit", 1)
        checked_instance(query, str, "the query of rerank()")
        now = self._clock()
        asked = query_terms(query)
        ranked = [self._ranked(item, asked, now) for item in checked_list(candidates, "the candidates of rerank()")]
        ranked.sort(key=lambda one: (-one.score, one.item.id))
        return [one for one in ranked if one.score >= self.min_score][:limit]

    def _ranked(self, item: Item, asked: Mapping[str, float], now: datetime) -> Ranked[Item]:
        checked_object(item, "a candidate of rerank()", "id", "content", "created_at", "importance", "uses")
        if item.created_at.tzinfo is None:
            raise InvalidInput(f"{item.id!r} has a time without a zone; give created_at one, such as UTC")
        hours = max(0.0, (now - item.created_at).total_seconds() / 3600)
        measured = item.relevance is not None
        signals = {
            RerankSignal.RELEVANCE: _bounded(item.relevance if measured else _shared(asked, item.content)),
            RerankSignal.RECENCY: 0.5 ** (hours / self.half_life_hours),
            RerankSignal.IMPORTANCE: _bounded(item.importance),
            RerankSignal.FREQUENCY: _saturating(item.uses),
        }
        # Rounded, so that the id decides between equal candidates and not the last bit.
        score = round(math.fsum(self.weights[signal] * value for signal, value in signals.items()), _DIGITS)
        known = {
            RerankSignal.RELEVANCE: "relevance" if measured else "relevance by shared words",
            RerankSignal.RECENCY: f"recency, {_age(hours)} old",
            RerankSignal.IMPORTANCE: "importance",
            RerankSignal.FREQUENCY: f"frequency, used {_times(item.uses)}",
        }
        why = "; ".join(
            f"{known[signal]}: {value:.2f} x {self.weights[signal]:.2f} = {value * self.weights[signal]:.3f}"
            for signal, value in signals.items()
            if self.weights[signal] > 0
        )
        return Ranked(item, min(1.0, score), signals, why)


def _normalised(weights: Mapping[RerankSignal, float] | Mapping[str, float]) -> Mapping[RerankSignal, float]:
    given: dict[RerankSignal, float] = {}
    for name, weight in checked_mapping(weights, "weights").items():
        try:
            signal = RerankSignal(name)
        except ValueError:
            raise InvalidInput(f"there is no signal {name!r}; the signals are {', '.join(RerankSignal)}") from None
        given[signal] = float(checked_number(weight, f"the weight of {signal}", 0))
    largest = max(given.values(), default=0.0)
    if largest == 0.0:
        raise InvalidInput("all weights are 0; give at least one signal a weight")
    scaled = {signal: given.get(signal, 0.0) / largest for signal in RerankSignal}  # a sum of any floats is finite
    total = math.fsum(scaled.values())
    return MappingProxyType({signal: weight / total for signal, weight in scaled.items()})


def _bounded(value: float | None) -> float:
    """Return a value between 0 and 1; 0 for NaN."""
    return min(1.0, max(0.0, value)) if value is not None and not math.isnan(value) else 0.0


def _saturating(uses: int) -> float:
    return max(0, uses) / (max(0, uses) + _HALF_OF_THE_USES)


def _shared(asked: Mapping[str, float], content: str) -> float:
    total = math.fsum(asked.values())
    present = set(terms(content)) if total else set()
    return math.fsum(weight for term, weight in asked.items() if term in present) / total if total else 0.0


def _age(hours: float) -> str:
    short = f"{hours * 60:.0f} minutes" if hours < 1 else f"{hours:.0f} hours"
    return short if hours < 48 else f"{hours / 24:.0f} days"


def _times(uses: int) -> str:
    return "once" if uses == 1 else f"{uses} times" if uses > 0 else "never"
