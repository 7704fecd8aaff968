"""Predicts which records will be used next, from the pattern of uses.

It learns which records were used after which, and how often a use continues to the records that follow in the log. It
holds no store and is of bounded size. A predicted record may move from the archive to the working tier, and never
into a prompt.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loom.checks import checked_whole

__all__ = ["AccessPattern", "Prediction"]

_BEFORE = 4
"""A use is counted after this many earlier uses of its session: a recall uses several records at once."""
_FOLLOWING = 3
_SUCCESSORS = 12
_SESSIONS = 64
# The factor for the successors of a record at each of its uses.
_DECAY = 0.9
# Uses without success that a new successor starts with, so that one coincidence does not make a pattern.
_DOUBT = 1.0
# The weight of past continuations in the log halves in about seventy uses. At first, a continuation is unlikely.
_FORGET = 0.99
_FOLLOWS_DOUBT = 20.0


class Prediction(NamedTuple):
    """A record, and the probability that it is among the next few uses."""

    record: int
    probability: float


@dataclass(slots=True)
class _Successors:
    """The records used after a record, by weight, and the number of opportunities."""

    chances: float
    weights: dict[int, float]


class AccessPattern:
    """Learns from uses which records come next. Not thread-safe.

    `following` gives the records that follow one in the log of its own session, the nearest first. Without it, only
    records that were used together before are predicted. The successors of the `records` latest used are kept.
    """

    def __init__(self, following: Callable[[int], Sequence[int]] | None = None, *, records: int = 4096) -> None:
        self._following = following
        self._records = checked_whole(records, "records", 1)
        self._after: OrderedDict[int, _Successors] = OrderedDict()
        self._recent: OrderedDict[str | None, deque[int]] = OrderedDict()
        self._current: deque[int] | None = None
        # By place in the log after a use: how often that record was used within the next uses.
        self._continued = [0.0] * _FOLLOWING
        self._uses = 0.0

    def record_use(self, record: int, session: str | None = None) -> None:
        """Record the use of a record in a session. An immediate repetition says nothing about others."""
        recent = self._recent.setdefault(session, deque(maxlen=_BEFORE))
        self._recent.move_to_end(session)
        if len(self._recent) > _SESSIONS:
            self._recent.popitem(last=False)
        self._current = recent
        if recent and recent[-1] == record:
            return
        for earlier in dict.fromkeys(recent):
            if earlier != record:
                self._link(earlier, record)
        self._learn_to_follow(recent, record)
        self._begin(record)
        recent.append(record)

    def predict(self, limit: int) -> list[Prediction]:
        """The probable next uses in the session of the last use, the likeliest first; ties by record."""
        checked_whole(limit, "limit")
        recent = self._current or ()
        unlikely: dict[int, float] = {}
        for earlier in dict.fromkeys(recent):
            for record, probability in self._expected_after(earlier):
                if record not in recent:
                    unlikely[record] = unlikely.get(record, 1.0) * (1.0 - probability)
        foreseen = (Prediction(record, 1.0 - rest) for record, rest in unlikely.items())
        return sorted(foreseen, key=lambda one: (-one.probability, one.record))[:limit]

    def _begin(self, record: int) -> None:
        """Count one more opportunity for the successors of a record."""
        known = self._after.get(record)
        if known is None:
            self._after[record] = _Successors(1.0, {})
            if len(self._after) > self._records:
                self._after.popitem(last=False)
            return
        self._after.move_to_end(record)
        known.chances = known.chances * _DECAY + 1.0
        known.weights = {one: weight * _DECAY for one, weight in known.weights.items()}

    def _link(self, earlier: int, record: int) -> None:
        known = self._after.get(earlier)
        if known is None:
            return
        # At most the number of opportunities, however often the two take turns.
        known.weights[record] = min(known.chances, known.weights.get(record, 0.0) + 1.0)
        if len(known.weights) > _SUCCESSORS:
            del known.weights[min(known.weights, key=lambda one: (known.weights[one], -one))]

    def _learn_to_follow(self, recent: deque[int], record: int) -> None:
        if self._following is None or not recent:
            return
        self._uses = self._uses * _FORGET + 1.0
        places = {
            place
            for earlier in recent
            for place, one in enumerate(self._following(earlier)[:_FOLLOWING])
            if one == record
        }
        for place in range(_FOLLOWING):
            self._continued[place] = self._continued[place] * _FORGET + (place in places)

    def _expected_after(self, earlier: int) -> list[tuple[int, float]]:
        known = self._after.get(earlier)
        expected = (
            [(one, weight / (known.chances + _DOUBT)) for one, weight in known.weights.items()] if known else []
        )
        if self._following is not None:
            followed = self._following(earlier)[:_FOLLOWING]
            expected += [
                (one, self._continued[place] / (self._uses + _FOLLOWS_DOUBT)) for place, one in enumerate(followed)
            ]
        return expected
