"""Eviction: the order in which records leave a full tier, and its hot, warm and cold parts.

Pure functions over the residents of a tier. There are three rules: the least important first, the least used first,
or the lowest weighted score of recency (LRU-2), frequency and relevance. `loom.tiers.migration` makes the moves.
Nothing here reads a clock: the present is the newest reference among the residents, and time is counted in records
written, so that a tier of a minute and a tier of a month are ordered alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.checks import checked_number
from loom.errors import InvalidInput
from loom.settings import EVICTION_WEIGHTS, Eviction, EvictionWeights
from loom.storage.contract import Resident

__all__ = ["GRACE", "Segments", "choose_victims", "hot_score", "rank", "scores", "segments"]

GRACE = 0.02
"""The share of a tier's tokens, newest by entering, that leaves last.

Enough that the next write does not evict a record that was just promoted. More only delays the choice: with 0.05, the
hit rate under a scan of old records is half a point lower.
"""

_HOT, _WARM = 0.25, 0.75
_IMPORTANCE_DIGITS = 9  # of an importance: 0.1 + 0.2 is 0.3
_SCORE_DIGITS = 12

_Numbers = npt.NDArray[np.float64]


class Segments(NamedTuple):
    """The working tier in three parts, the best record first."""

    hot: tuple[Resident, ...]
    warm: tuple[Resident, ...]
    cold: tuple[Resident, ...]


def rank(
    residents: Sequence[Resident],
    rule: Eviction,
    weights: EvictionWeights = EVICTION_WEIGHTS["default"],
    *,
    candidates: Collection[int] | None = None,
    grace: float = GRACE,
) -> list[Resident]:
    """The residents in the order in which they should leave. The order of the input does not matter.

    The grace lets the newest entries leave last. Under `LEAST_IMPORTANT` it decides only among records of the same
    importance. `weights` are for `WEIGHTED`; `without_vectors` replaces them if the relevance of most candidates is
    unknown. `candidates` are the records that may leave, all by default. Only they are returned; recency and youth
    are still relative to all residents.
    """
    checked_number(grace, "the grace, a share of the tier,", 0, 1)
    if not residents:
        return []
    table = _Table(residents)
    chosen = None if candidates is None else table.chosen(candidates)
    young = table.young(grace)
    keys: tuple[npt.NDArray[Any], ...]  # the last one decides first
    if rule is Eviction.LEAST_IMPORTANT:
        keys = (table.record, table.uses, table.last_at, table.previous_at, young, table.importance)
    elif rule is Eviction.LEAST_USED:
        keys = (table.record, table.importance, table.last_at, table.uses, young)
    elif rule is Eviction.WEIGHTED:
        score = table.scores(weights, chosen)
        keys = (table.record, table.importance, table.uses, table.last_at, table.previous_at, score, young)
    else:
        raise InvalidInput(f"unknown eviction rule {rule!r}; the rules are {', '.join(Eviction)}")
    order = np.lexsort(keys)
    if chosen is not None:
        order = order[chosen[order]]
    return [residents[index] for index in order.tolist()]


def choose_victims(
    residents: Sequence[Resident],
    excess_tokens: int,
    rule: Eviction,
    weights: EvictionWeights = EVICTION_WEIGHTS["default"],
    *,
    candidates: Collection[int] | None = None,
    grace: float = GRACE,
) -> list[Resident]:
    """The shortest beginning of the ranking that frees `excess_tokens`, or all of it if it frees less.

    With `candidates`, only these may leave. The relevance of a record costs reading a vector, so callers rank without
    relevance first, and then rank again with the relevance of the records that would leave.
    """
    victims: list[Resident] = []
    if excess_tokens <= 0:
        return victims
    freed = 0
    for resident in rank(residents, rule, weights, candidates=candidates, grace=grace):
        victims.append(resident)
        freed += resident.tokens
        if freed >= excess_tokens:
            break
    return victims


def segments(
    residents: Sequence[Resident],
    budget: int,
    rule: Eviction,
    weights: EvictionWeights = EVICTION_WEIGHTS["default"],
    *,
    grace: float = GRACE,
) -> Segments:
    """The tier in its hot quarter, warm half and cold quarter, by tokens of its budget: 32K, 64K, 32K of 128K.

    The hot part fills first. A record belongs to the part in which its last token lies.
    """
    parts: tuple[list[Resident], list[Resident], list[Resident]] = ([], [], [])
    total = 0
    for resident in reversed(rank(residents, rule, weights, grace=grace)):
        total += resident.tokens
        parts[(total > _HOT * budget) + (total > _WARM * budget)].append(resident)
    return Segments(*map(tuple, parts))


def scores(residents: Sequence[Resident], weights: EvictionWeights = EVICTION_WEIGHTS["default"]) -> dict[int, float]:
    """The score of each record under `WEIGHTED`, from 0 (leaves first) to 1; the grace is not part of it.

    A score compares residents of the same tier at the same moment, and nothing else.
    """
    if not residents:
        return {}
    return dict(zip([one.record for one in residents], _Table(residents).scores(weights).tolist(), strict=True))


def hot_score(
    resident: Resident,
    now: float,
    *,
    half_life_s: float,
    most_uses: int,
    weights: EvictionWeights = EVICTION_WEIGHTS["default"],
) -> float:
    """The hot score of a record in any tier, from 0 to 1. It suits a fixed threshold; x 100 it is a priority.

    Recency halves every `half_life_s` seconds since the last reference. `most_uses` is the count of the most
    used record that this one is compared with. Without a known relevance the weights are `without_vectors`.
    """
    if not half_life_s > 0:
        raise InvalidInput(f"a half-life must be above 0 seconds, not {half_life_s}")
    if resident.relevance is None:
        weights = EVICTION_WEIGHTS["without_vectors"]
    recency: float = 0.5 ** (max(0.0, now - resident.last_at) / half_life_s)
    frequency = math.log1p(resident.uses) / math.log1p(max(1, most_uses, resident.uses))
    relevance = min(1.0, max(0.0, resident.relevance or 0.0))
    return min(1.0, weights.recency * recency + weights.frequency * frequency + weights.relevance * relevance)


class _Table:
    """The residents in columns. For 655 residents this takes half the time of sorting tuples."""

    def __init__(self, residents: Sequence[Resident]) -> None:
        record, tokens, importance, entered, written_at, uses, last_at, previous_at, relevance = zip(
            *residents, strict=True
        )
        self.record = np.array(record, np.int64)
        self.tokens = np.array(tokens, np.int64)
        self.importance = np.array(importance, np.float64).round(_IMPORTANCE_DIGITS)
        self.entered = np.array(entered, np.int64)
        self.written_at = np.array(written_at, np.float64)
        self.uses = np.array(uses, np.int64)
        self.last_at = np.array(last_at, np.float64)
        # LRU-2: for a single reference, the second-last one lies infinitely far back.
        self.previous_at = np.array([-math.inf if at is None else at for at in previous_at], np.float64)
        self.relevance = np.array([math.nan if known is None else known for known in relevance], np.float64)

    def young(self, grace: float) -> npt.NDArray[np.bool_]:
        """A mask of the records that entered last, up to a share of the tokens;

        with any grace, the newest at least.
        """
        newest_first = np.lexsort((-self.record, -self.entered))
        tokens = self.tokens[newest_first]
        young = np.empty(len(tokens), np.bool_)
        young[newest_first] = np.cumsum(tokens) - tokens < grace * tokens.sum()
        return young

    def chosen(self, records: Collection[int]) -> npt.NDArray[np.bool_]:
        return np.isin(self.record, np.fromiter(records, np.int64, len(records)))

    def scores(self, weights: EvictionWeights, chosen: npt.NDArray[np.bool_] | None = None) -> _Numbers:
        known = ~np.isnan(self.relevance)
        asked = known if chosen is None else known[chosen]
        if 2 * np.count_nonzero(asked) < len(asked) or not known.any():
            weights = EVICTION_WEIGHTS["without_vectors"]
        # A count that never fades keeps records that were needed last month (88.6 % of hits on the locality workload
        # of benchmarks/working_tier.py instead of 96.3 %), so it is multiplied by the recency.
        frequency = np.log1p(self.uses) / math.log1p(max(1, int(self.uses.max())))
        score: _Numbers = self.recency() * (weights.recency + weights.frequency * frequency)
        if weights.relevance:
            # An unknown relevance counts as the median.
            relevance = np.where(known, self.relevance, np.median(self.relevance[known]))
            score += weights.relevance * np.clip(relevance, 0.0, 1.0)
        # Rounded, so that equal records tie and the other keys decide instead of the last bit.
        return np.clip(score.round(_SCORE_DIGITS), 0.0, 1.0)

    def recency(self) -> _Numbers:
        """Half the nearness of the references, half the prospect of a use at the record's age.

        Classic LRU-2 alone is worse than LRU if the work moves on: a record that was used twice long ago outlasts
        every record that still waits for its first use (66 % of hits, LRU 94 %, this rule 96 %). So a record that was
        never used counts from its writing, and the age at which records are still used is estimated from the
        residents.
        """
        turn = self._turns()
        written, last = turn(self.written_at), turn(self.last_at)
        previous = turn(np.where(np.isinf(self.previous_at), self.written_at, self.previous_at))
        now = max(last.max(), written.max())
        waiting = now - last
        scale = float(np.median(waiting)) or math.fsum(waiting) / len(waiting) or 1.0
        # The second-last reference counts most, as in LRU-2. By it alone, a promoted record would not stay long
        # enough to be used twice if each record is used rarely: MEM-002 as worded, 9 % of hits instead of 11 %.
        nearness = 0.75 * _near(now - previous, scale) + 0.25 * _near(waiting, scale)
        # Records used once do not count; otherwise a scan would raise its own scores (84 % of hits instead of 95 %).
        ages_in_use = np.maximum(0.0, last - written)[self.uses > 1]
        recency: _Numbers = (nearness + _prospect(now - written, ages_in_use, scale)) / 2
        return recency

    def _turns(self) -> Callable[[_Numbers], _Numbers]:
        """A function from seconds to records written: a clock that runs with the work and stops while it stalls.

        In seconds, a night or a busy machine would make all earlier records old at once. With stalls, or with changes
        of the speed, hits would fall from 96 % to 95 % on the locality workload and from 95 % to 92 % under a scan.
        Before the first writing and after the last the clock runs at the average speed, so reading alone moves it.
        """
        order = np.lexsort((self.record, self.written_at))
        times = self.written_at[order]
        numbers = np.maximum.accumulate(self.record[order].astype(np.float64))
        last_of_moment = np.append(times[1:] > times[:-1], True)
        times, numbers = times[last_of_moment], numbers[last_of_moment]
        speed = (numbers[-1] - numbers[0]) / (times[-1] - times[0]) if len(times) > 1 else 1.0

        def turn(at: _Numbers) -> _Numbers:
            beyond = np.maximum(0.0, at - times[-1]) - np.maximum(0.0, times[0] - at)
            turned: _Numbers = np.interp(at, times, numbers) + speed * beyond
            return turned

        return turn


def _near(distance: _Numbers, scale: float) -> _Numbers:
    """1 at distance 0, a half at the scale, and never 0."""
    return scale / (scale + np.maximum(0.0, distance))


def _prospect(age: _Numbers, ages_in_use: _Numbers, span: float) -> _Numbers:
    """The share of the residents at least as old as each one that were last used at its age, or within `span` of it.

    `ages_in_use` are the ages at which repeatedly used residents were last used. If the work moves on, the share
    falls to zero at the age that no record outlives; if old records stay in use, it stays high. A resident whose last
    use came later says nothing about this age. The divisor is one larger, so that a few residents do not count as a
    pattern.
    """
    ages_in_use = np.sort(ages_in_use)
    soon = np.searchsorted(ages_in_use, age + span)
    in_use = soon - np.searchsorted(ages_in_use, age)
    as_old = len(age) - np.searchsorted(np.sort(age), age)
    prospect: _Numbers = in_use / (as_old - (len(ages_in_use) - soon) + 1)
    return prospect
