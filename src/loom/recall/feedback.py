"""Feedback: verdicts on hits change the weights of the signals of a namespace.

A verdict moves each weight a little and within bounds: if hits by meaning are judged useless repeatedly, meaning
counts less. Neither questions nor texts are kept, so there is nothing to forget. docs/recall.md describes the effect.
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
"""The signals with learned weights: those that tie a memory to a question."""

# The largest change by one verdict: for a hit by one signal alone among hits by others.
_STEP = 0.25
_LEAST, _MOST = 0.4, 2.0
_KEY, _SCOPE = "recall", "loom.feedback"


@dataclass(frozen=True, slots=True)
class LearnedWeights:
    """The factors for the weights of signals, and the number of verdicts behind them."""

    factors: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(LEARNED, 1.0))
    helpful: int = 0
    unhelpful: int = 0


# The state before the first verdict, kept since every recall needs it.
_DEFAULT = Weights()


def learn(known: LearnedWeights, judged: Hit, others: Sequence[Hit], helpful: bool) -> LearnedWeights:
    """Return the state after one more verdict. Signals that favour this hit over the others gain or lose."""
    own, rest = _shares(judged), [_shares(hit) for hit in others]
    factors: dict[str, float] = {}
    for name in LEARNED:
        usual = sum(shares[name] for shares in rest) / len(rest) if rest else own[name]
        step = _STEP * (own[name] - usual)
        factor = known.factors[name] * math.exp(step if helpful else -step)
        factors[name] = min(_MOST, max(_LEAST, factor))
    return LearnedWeights(factors, known.helpful + helpful, known.unhelpful + (not helpful))


def _shares(hit: Hit) -> dict[str, float]:
    """Return the share of each signal in a hit's score. Synonyms and names read by a model count as words."""
    added = {} if hit.ranking is None else hit.ranking.contributions()
    brought = {name: added.get(name, 0.0) for name in LEARNED}
    brought["words"] += added.get("synonyms", 0.0) + added.get("names", 0.0)
    total = sum(brought.values())
    return {name: value / total if total else 0.0 for name, value in brought.items()}


def apply_learned(weights: Weights, learned: LearnedWeights) -> Weights:
    """Return the weights with the learned factors applied."""
    return replace(weights, **{name: getattr(weights, name) * learned.factors[name] for name in LEARNED})


class Feedback:
    """The verdicts in one namespace of a store, shared by its nodes and by all processes."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._node = node

    def learned(self) -> LearnedWeights:
        """Return the learned factors."""
        return self._known()[0]

    def as_dict(self) -> dict[str, Any]:
        """Return the factors for `get_stats`."""
        learned = self.learned()
        return {
            "helpful": learned.helpful,
            "unhelpful": learned.unhelpful,
            **{f"trust_in_{name}": round(factor, 3) for name, factor in learned.factors.items()},
        }

    def weights(self) -> Weights:
        """Return the weights of this namespace."""
        learned = self.learned()
        return apply_learned(_DEFAULT, learned) if learned.helpful or learned.unhelpful else _DEFAULT

    def judge(self, id: str, hits: Sequence[Hit], helpful: bool) -> LearnedWeights:
        """Learn from a verdict on one of the hits of a recall."""
        if not isinstance(helpful, bool):
            raise InvalidInput(f"helpful must be True or False, not {helpful!r}")
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
        """Drop everything learned."""
        with self._store.transaction() as transaction:
            transaction.put_entry(_KEY, _content(LearnedWeights()), writer=self._node, scope=_SCOPE)

    def _known(self) -> tuple[LearnedWeights, int]:
        """Return the stored state and its version. An unreadable state counts as none."""
        entry = self._store.entry(_KEY, scope=_SCOPE)
        if entry is None:
            return LearnedWeights(), 0
        return _read(entry.content) or LearnedWeights(), entry.version

    def _put(self, learned: LearnedWeights, version: int) -> bool:
        """Store a state. Returns False if another process stored one first."""
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
    """Return the stored factors; None if they are damaged or of another version."""
    try:
        factors = {name: float(content["factors"].get(name, 1.0)) for name in LEARNED}
        helpful, unhelpful = int(content["helpful"]), int(content["unhelpful"])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None
    sensible = all(_LEAST <= factor <= _MOST for factor in factors.values()) and helpful >= 0 and unhelpful >= 0
    return LearnedWeights(factors, helpful, unhelpful) if sensible else None
