"""Parameters that follow the work: a tuner of weights, threshold and compression level, and a forecast of demand.

Both are decisions without a store: the tuner takes measured metrics and says which parameters should hold, a
predictor takes what was written and when, and says what to expect. Neither reads a clock. docs/tiers.md says what
they gained on recorded traces, and which of them is on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from loom.checks import checked_number, checked_whole
from loom.errors import InvalidInput
from loom.settings import EvictionWeights

__all__ = [
    "DEFAULT_TUNING",
    "AdaptiveTuner",
    "EwmaPredictor",
    "HoltPredictor",
    "SystemMetrics",
    "TokenDemandPredictor",
    "TuningResult",
    "demote_ahead",
]

_LRU_MAXIMUM, _LRU_STEP, _LFU_STEP = 0.8, 0.1, 0.05
_THRESHOLD_MAXIMUM, _THRESHOLD_STEP = 0.9, 0.1
_LEVEL_MAXIMUM, _LEVEL_STEP = 22, 3

# A mark must be missed so many looks in a row before a parameter moves, and kept clearly for so many before it
# moves back: it is quick to help and slow to take back, so that what has just helped is not undone at once.
_LOOKS_TO_ACT = 3
_LOOKS_TO_RETURN = 10
_SHORTEST_S = 1e-9


# --- the tuner -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SystemMetrics:
    """What the tuner looks at; None for what is not known.

    `cache_hit_rate` is a share, `promotion_latency` in milliseconds, `storage_pressure` the share of the archive's
    budget that is taken.
    """

    cache_hit_rate: float | None = None
    promotion_latency: float | None = None
    storage_pressure: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            checked_number(0.0 if value is None else value, f"{name} (None where it is not known)", 0)


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The parameters that should hold. The weights are at least 0 and sum to 1."""

    lru_weight: float = 0.5
    lfu_weight: float = 0.3
    semantic_weight: float = 0.2
    promotion_threshold: float = 0.7
    compression_level: int = 9

    def __post_init__(self) -> None:
        EvictionWeights(self.lru_weight, self.lfu_weight, self.semantic_weight)
        checked_number(self.lru_weight, "the weight of recency", 0, _LRU_MAXIMUM)
        checked_number(self.promotion_threshold, "the promotion threshold", 0, _THRESHOLD_MAXIMUM)
        checked_number(self.compression_level, "the compression level", 1, _LEVEL_MAXIMUM)

    @property
    def weights(self) -> EvictionWeights:
        """The weights as the eviction takes them."""
        return EvictionWeights(self.lru_weight, self.lfu_weight, self.semantic_weight)


DEFAULT_TUNING = TuningResult()
"""Where the tuner begins, and where it returns to."""


@dataclass(slots=True)
class _Hysteresis:
    """How many steps a parameter is away from its start, and how many looks in a row ask for another.

    A value beyond `missed`, seen from `kept`, misses the mark; one beyond `kept` keeps it clearly. `streak` counts
    looks of the first kind as positive and looks of the second as negative.
    """

    missed: float
    kept: float
    highest: int
    steps: int = 0
    streak: int = 0

    def update(self, value: float) -> None:
        sign = 1 if self.missed > self.kept else -1
        if sign * value > sign * self.missed:
            self.streak = max(0, self.streak) + 1
            if self.streak >= _LOOKS_TO_ACT:
                self.steps, self.streak = min(self.highest, self.steps + 1), 0
        elif sign * value < sign * self.kept:
            self.streak = min(0, self.streak) - 1
            if self.streak <= -_LOOKS_TO_RETURN:
                self.steps, self.streak = max(0, self.steps - 1), 0
        else:
            self.streak = 0


class AdaptiveTuner:
    """Moves parameters in steps while a metric misses its mark, and back to the start while all is well.

    | metric | moves | while | back while |
    |---|---|---|---|
    | `cache_hit_rate` | recency +0.1, to at most 0.8; frequency -0.05 | below 0.85 | above 0.90 |
    | `promotion_latency` | promotion threshold +0.1, to at most 0.9: fewer promotions | above 100 | below 50 |
    | `storage_pressure` | compression level +3, to at most 22 | above 0.8 | below 0.7 |

    One step takes three looks in a row, one step back ten. Between the marks nothing moves. With a `state` it goes on
    where the tuner that gave it stood; steps beyond a limit, which may have changed, are cut. Not thread-safe: one
    worker looks, and what it got is handed on.
    """

    def __init__(self, start: TuningResult = DEFAULT_TUNING, state: Mapping[str, Any] | None = None) -> None:
        self._start = start
        self._hystereses = {
            "hit_rate": _Hysteresis(0.85, 0.90, _steps_to(_LRU_MAXIMUM, start.lru_weight, _LRU_STEP)),
            "latency": _Hysteresis(
                100.0, 50.0, _steps_to(_THRESHOLD_MAXIMUM, start.promotion_threshold, _THRESHOLD_STEP)
            ),
            "pressure": _Hysteresis(0.8, 0.7, _steps_to(_LEVEL_MAXIMUM, start.compression_level, _LEVEL_STEP)),
        }
        if state is not None:
            self._continue(state)

    def state(self) -> dict[str, list[int]]:
        """Where it stands, for JSON."""
        return {name: [hysteresis.steps, hysteresis.streak] for name, hysteresis in self._hystereses.items()}

    def tune_parameters(self, metrics: SystemMetrics) -> TuningResult:
        """Look at the metrics once, and say which parameters should hold now."""
        looks = {
            "hit_rate": metrics.cache_hit_rate,
            "latency": metrics.promotion_latency,
            "pressure": metrics.storage_pressure,
        }
        for name, value in looks.items():
            if value is not None:
                self._hystereses[name].update(value)
        return self.parameters

    @property
    def parameters(self) -> TuningResult:
        """What holds now, without looking."""
        start = self._start
        lru, lfu, semantic = _reweighed(start.weights, self._hystereses["hit_rate"].steps)
        return TuningResult(
            lru,
            lfu,
            semantic,
            _climbed(
                start.promotion_threshold, self._hystereses["latency"].steps, _THRESHOLD_STEP, _THRESHOLD_MAXIMUM
            ),
            min(_LEVEL_MAXIMUM, start.compression_level + _LEVEL_STEP * self._hystereses["pressure"].steps),
        )

    def _continue(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping):
            raise InvalidInput(f"this is no state of a tuner: {state!r}; begin without one")
        for name, hysteresis in self._hystereses.items():
            found = state.get(name)
            if (
                not isinstance(found, list | tuple)
                or len(found) != 2
                or not all(isinstance(one, int) and not isinstance(one, bool) for one in found)
            ):
                raise InvalidInput(f"this is no state of a tuner: {name!r} is {found!r}; begin without one")
            steps, streak = found
            hysteresis.steps = min(hysteresis.highest, max(0, steps))
            hysteresis.streak = min(_LOOKS_TO_ACT - 1, max(1 - _LOOKS_TO_RETURN, streak))


def _steps_to(limit: float, start: float, step: float) -> int:
    """How many steps lead from the start to the limit, the last one perhaps a shorter one."""
    return max(0, math.ceil(round((limit - start) / step, 9)))


def _climbed(start: float, steps: int, step: float, limit: float) -> float:
    return min(limit, round(start + step * steps, 9))


def _reweighed(start: EvictionWeights, steps: int) -> tuple[float, float, float]:
    """Recency so many steps up, frequency down; the two others keep their proportion and share what is left."""
    if steps == 0:
        return start.recency, start.frequency, start.relevance
    recency = _climbed(start.recency, steps, _LRU_STEP, _LRU_MAXIMUM)
    frequency = max(0.0, start.frequency - _LFU_STEP * steps)
    others = frequency + start.relevance
    # With no weight on relevance, and none left on frequency, frequency still takes the rest.
    share = frequency / others if others > 0 else 1.0
    frequency = (1.0 - recency) * share
    return recency, frequency, max(0.0, 1.0 - recency - frequency)


# --- the forecast --------------------------------------------------------------------------------------


class TokenDemandPredictor(Protocol):
    """Expects how many tokens will be written, from how many were."""

    def observe(self, tokens: int, at: float) -> None:
        """So many tokens were written at this moment, in seconds; none of them says that time has passed."""

    def predict(self, horizon_s: float) -> float:
        """How many tokens to expect in so many seconds from the last observation on; never below 0."""


class _Intervals:
    """Tokens per second over intervals of at least `resolution_s`.

    What is written at once, or at moments nearer than that, counts together: a burst is no infinite speed. When the
    clock goes back, the interval begins anew and nothing that was written is lost. Before the first observation
    there was no interval, so its tokens are those of the interval that it begins.
    """

    __slots__ = ("_began_at", "_pending", "peak", "resolution_s")

    def __init__(self, resolution_s: float) -> None:
        self.resolution_s = checked_number(resolution_s, "the resolution in seconds", _SHORTEST_S)
        self._began_at: float | None = None
        self._pending = 0
        self.peak = 0.0

    def add(self, tokens: int, at: float) -> tuple[float, float] | None:
        """The interval that this completes, as seconds and tokens per second; None where none is complete."""
        checked_number(at, "the moment in seconds")
        self._pending += checked_whole(tokens, "tokens")
        if self._began_at is None or at < self._began_at:
            self._began_at = at
            return None
        seconds = at - self._began_at
        if seconds < self.resolution_s:
            return None
        rate = self._pending / seconds
        self._began_at, self._pending = at, 0
        self.peak = max(self.peak, rate)
        return seconds, rate


class EwmaPredictor:
    """The mean rate of the last while, older seconds counting less: half as much every `half_life_s`."""

    def __init__(self, half_life_s: float = 300.0, resolution_s: float = 1.0) -> None:
        self._decay = _decay_of(half_life_s)
        self._intervals = _Intervals(resolution_s)
        self._rate = 0.0
        self._weight = 0.0

    def observe(self, tokens: int, at: float) -> None:
        interval = self._intervals.add(tokens, at)
        if interval is None:
            return
        seconds, rate = interval
        share = -math.expm1(-self._decay * seconds)
        # While there is little history, what there is counts whole instead of being averaged with nothing.
        self._weight += (1.0 - self._weight) * share
        self._rate += (rate - self._rate) * min(1.0, share / self._weight)

    def predict(self, horizon_s: float) -> float:
        return self._rate * checked_number(horizon_s, "the horizon in seconds", 0)


class HoltPredictor:
    """Double exponential smoothing: a level of tokens per second and a trend of it, at irregular times.

    The trend fades over `half_life_s`, so that a burst is not carried on for ever and a stall does not make the
    rate negative; nothing is expected beyond the highest rate that was seen.
    """

    def __init__(
        self, half_life_s: float = 300.0, trend_half_life_s: float = 900.0, resolution_s: float = 1.0
    ) -> None:
        self._decay = _decay_of(half_life_s)
        self._trend_decay = _decay_of(trend_half_life_s)
        self._intervals = _Intervals(resolution_s)
        self._level: float | None = None
        self._trend = 0.0

    def observe(self, tokens: int, at: float) -> None:
        interval = self._intervals.add(tokens, at)
        if interval is None:
            return
        seconds, rate = interval
        if self._level is None:
            self._level = rate
            return
        before = self._level
        expected = min(self._intervals.peak, max(0.0, before + self._trend * self._faded(seconds)))
        self._level = expected + (rate - expected) * -math.expm1(-self._decay * seconds)
        slope = (self._level - before) / seconds
        self._trend += (slope - self._trend) * -math.expm1(-self._trend_decay * seconds)

    def predict(self, horizon_s: float) -> float:
        horizon_s = checked_number(horizon_s, "the horizon in seconds", 0)
        if self._level is None:
            return 0.0
        # The area under the level and its fading trend.
        grown = (horizon_s - self._faded(horizon_s)) / self._decay
        expected = self._level * horizon_s + self._trend * grown
        return min(self._intervals.peak * horizon_s, max(0.0, expected))

    def _faded(self, seconds: float) -> float:
        """For how many seconds a trend that fades counts within so many."""
        return -math.expm1(-self._decay * seconds) / self._decay


def demote_ahead(used: int, budget: int, low_watermark: float, expected: float, high_watermark: float = 1.0) -> int:
    """How many tokens a tier should free now, so that what is expected need not wait for it.

    The watermarks are shares of the budget. Nothing while the expected tokens stay below the high one; else what
    the demotion would free that they would otherwise start, down to the low one and never below it: a forecast,
    however wrong, makes a demotion earlier and no larger.
    """
    if used + expected <= high_watermark * budget:
        return 0
    return max(0, used - math.floor(low_watermark * budget))


def _decay_of(half_life_s: float) -> float:
    return math.log(2.0) / checked_number(half_life_s, "the half-life in seconds", _SHORTEST_S)
