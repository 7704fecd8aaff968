"""Feedback: what a memory learns from being told that a hit helped, or did not.

A verdict moves how much each signal of a recall counts in this namespace, a little and within bounds: where what
meaning brings is judged useless again and again, meaning counts for less. No question and no text is kept, so there
is nothing to forget. docs/recall.md says what to expect of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loom.errors import InvalidInput, VersionConflictError
from loom.recall.hits import Hit
from loom.recall.relevance import Weights
from loom.storage.contract import Store

__all__ = ["LEARNED", "Feedback", "LearnedWeights", "apply_learned", "learn"]

LEARNED = ("words", "context", "meaning", "speaker", "time", "links")
"""The signals whose weight is learned: those that tie a memory to a question."""

# A verdict on a hit that one signal alone brought, among hits that another brought, moves each by a quarter.
_STEP = 0.25
_LEAST, _MOST = 0.4, 2.0
_KEY, _SCOPE = "recall", "loom.feedback"


@dataclass(frozen=True, slots=True)
class LearnedWeights:
    """What verdicts have taught so far: a factor for the weight of each signal, and how many they were."""

    factors: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(LEARNED, 1.0))
    helpful: int = 0
    unhelpful: int = 0


# What holds until a first verdict. Every recall asks.
_DEFAULT = Weights()


def learn(known: LearnedWeights, judged: Hit, others: Sequence[Hit], helpful: bool) -> LearnedWeights:
    """What is known after one more verdict: signals that speak for this hit more than for the others gain or lose."""
    own, rest = _shares(judged), [_shares(hit) for hit in others]
    factors: dict[str, float] = {}
    for name in LEARNED:
        usual = sum(shares[name] for shares in rest) / len(rest) if rest else own[name]
        step = _STEP * (own[name] - usual)
        factor = known.factors[name] * math.exp(step if helpful else -step)
        factors[name] = min(_MOST, max(_LEAST, factor))
    return LearnedWeights(factors, known.helpful + helpful, known.unhelpful + (not helpful))


def _shares(hit: Hit) -> dict[str, float]:
    """The part of a hit's score that each of the signals brought; another word counts as a word, and so does a name
    that a model read."""
    added = {} if hit.ranking is None else hit.ranking.contributions()
    brought = {name: added.get(name, 0.0) for name in LEARNED}
    brought["words"] += added.get("synonyms", 0.0) + added.get("names", 0.0)
    total = sum(brought.values())
    return {name: value / total if total else 0.0 for name, value in brought.items()}


def apply_learned(weights: Weights, learned: LearnedWeights) -> Weights:
    """The weights as they hold after what was learned."""
    return replace(weights, **{name: getattr(weights, name) * learned.factors[name] for name in LEARNED})


class Feedback:
    """The verdicts on what one namespace of a store recalls, shared by its nodes and by all processes."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._node = node

    def learned(self) -> LearnedWeights:
        """What verdicts have taught so far."""
        return self._known()[0]

    def as_dict(self) -> dict[str, Any]:
        """For `get_stats`."""
        learned = self.learned()
        return {
            "helpful": learned.helpful,
            "unhelpful": learned.unhelpful,
            **{f"trust_in_{name}": round(factor, 3) for name, factor in learned.factors.items()},
        }

    def weights(self) -> Weights:
        """How much each signal counts here."""
        learned = self.learned()
        return apply_learned(_DEFAULT, learned) if learned.helpful or learned.unhelpful else _DEFAULT

    def judge(self, id: str, hits: Sequence[Hit], helpful: bool) -> LearnedWeights:
        """Take in a verdict on one of the hits of a recall."""
        if not isinstance(helpful, bool):
            raise InvalidInput(f"helpful is True or False, not {helpful!r}")
        judged = next((hit for hit in hits if id == hit.id or id in hit.copy_ids), None)
        if judged is None:
            raise InvalidInput(
                f"{id!r} is not among the {len(hits)} memories that this question recalls now; nothing was learned"
            )
        others = [hit for hit in hits if hit is not judged]
        while True:
            known, version = self._known()
            learned = learn(known, judged, others, helpful)
            if self._put(learned, version):
                return learned

    def reset(self) -> None:
        """Let all of it be as if nothing had been judged."""
        with self._store.transaction() as transaction:
            transaction.put_entry(_KEY, _content(LearnedWeights()), writer=self._node, scope=_SCOPE)

    def _known(self) -> tuple[LearnedWeights, int]:
        """What is known, and its version. What makes no sense counts as nothing: it would harm every recall."""
        entry = self._store.entry(_KEY, scope=_SCOPE)
        if entry is None:
            return LearnedWeights(), 0
        return _read(entry.content) or LearnedWeights(), entry.version

    def _put(self, learned: LearnedWeights, version: int) -> bool:
        """False where another process was first: its verdict counts too."""
        try:
            with self._store.transaction() as transaction:
                transaction.put_entry(
                    _KEY, _content(learned), writer=self._node, scope=_SCOPE, expected_version=version
                )
        except VersionConflictError:
            return False
        return True


def _content(learned: LearnedWeights) -> dict[str, Any]:
    return {"factors": dict(learned.factors), "helpful": learned.helpful, "unhelpful": learned.unhelpful}


def _read(content: Any) -> LearnedWeights | None:
    """What was stored; None where it makes no sense, by another version or by damage."""
    try:
        factors = {name: float(content["factors"].get(name, 1.0)) for name in LEARNED}
        helpful, unhelpful = int(content["helpful"]), int(content["unhelpful"])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None
    sensible = all(_LEAST <= factor <= _MOST for factor in factors.values()) and helpful >= 0 and unhelpful >= 0
    return LearnedWeights(factors, helpful, unhelpful) if sensible else None
