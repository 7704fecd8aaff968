"""Adaptive parameters: a tuner of weights, threshold and compression level, and forecasts of token demand.

Neither holds a store or reads a clock. The tuner turns measured metrics into parameters. A predictor turns the times
and sizes of writes into an expected demand. docs/tiers.md has their gain on recorded traces.
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

# Updates in a row that must miss a mark before a parameter moves, and that must clearly reach it before the parameter
# moves back. Moving back is slower, so that a step that has just helped is not undone at once.
_LOOKS_TO_ACT = 3
_LOOKS_TO_RETURN = 10
_SHORTEST_S = 1e-9


# --- the tuner -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SystemMetrics:
    """The metrics of the tuner; None for an unknown one.

    `cache_hit_rate` is a share, `promotion_latency` is in milliseconds, and `storage_pressure` is the used share of
    the archive's budget.
    """

    cache_hit_rate: float | None = None
    promotion_latency: float | None = None
    storage_pressure: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            checked_number(0.0 if value is None else value, f"{name} (None if unknown)", 0)


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The parameters of a tuner. The weights are at least 0 and sum to 1."""

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
        """The weights in the form that the eviction takes."""
        return EvictionWeights(self.lru_weight, self.lfu_weight, self.semantic_weight)


DEFAULT_TUNING = TuningResult()
"""The parameters from which the tuner starts, and to which it returns."""


@dataclass(slots=True)
class _Hysteresis:
    """The steps of a parameter from its start, and the streak of updates that ask for another step.

    The mark lies between `missed` and `kept`: a value on the far side of `missed` misses it, and one on the far side
    of `kept` clearly reaches it. `streak` counts updates of the first kind up from 0 and those of the second kind
    down.
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
    """Moves parameters in steps while a metric misses its mark, and back while it clearly reaches it.

    | metric | moves | while | back while |
    |---|---|---|---|
    | `cache_hit_rate` | recency +0.1, to at most 0.8; frequency -0.05 | below 0.85 | above 0.90 |
    | `promotion_latency` | promotion threshold +0.1, to at most 0.9: fewer promotions | above 100 | below 50 |
    | `storage_pressure` | compression level +3, to at most 22 | above 0.8 | below 0.7 |

    One step takes three updates in a row, one step back ten. Between the marks no parameter moves. A `state` resumes
    the tuner that returned it; steps beyond a limit, which may have changed, are dropped. Not thread-safe.
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
        """The steps and streaks, in a form for JSON."""
        return {name: [hysteresis.steps, hysteresis.streak] for name, hysteresis in self._hystereses.items()}

    def tune_parameters(self, metrics: SystemMetrics) -> TuningResult:
        """Record the metrics once, and return the parameters that they lead to."""
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
        """The present parameters."""
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
            raise InvalidInput(f"this is not a state of a tuner: {state!r}; start without one")
        for name, hysteresis in self._hystereses.items():
            found = state.get(name)
            if (
                not isinstance(found, list | tuple)
                or len(found) != 2
                or not all(isinstance(one, int) and not isinstance(one, bool) for one in found)
            ):
                raise InvalidInput(f"this is not a state of a tuner: {name!r} is {found!r}; start without one")
            steps, streak = found
            hysteresis.steps = min(hysteresis.highest, max(0, steps))
            hysteresis.streak = min(_LOOKS_TO_ACT - 1, max(1 - _LOOKS_TO_RETURN, streak))


def _steps_to(limit: float, start: float, step: float) -> int:
    """The number of steps from the start to the limit. The last one may be shorter."""
    return max(0, math.ceil(round((limit - start) / step, 9)))


def _climbed(start: float, steps: int, step: float, limit: float) -> float:
    return min(limit, round(start + step * steps, 9))


def _reweighed(start: EvictionWeights, steps: int) -> tuple[float, float, float]:
    """Raise recency and lower frequency by steps; frequency and relevance share the rest in their proportion."""
    if steps == 0:
        return start.recency, start.frequency, start.relevance
    recency = _climbed(start.recency, steps, _LRU_STEP, _LRU_MAXIMUM)
    frequency = max(0.0, start.frequency - _LFU_STEP * steps)
    others = frequency + start.relevance
    # With no weight on relevance, and none left on frequency, frequency still takes the rest.
    frequency = (1.0 - recency) * (frequency / others if others > 0 else 1.0)
    return recency, frequency, max(0.0, 1.0 - recency - frequency)


# --- the forecast --------------------------------------------------------------------------------------


class TokenDemandPredictor(Protocol):
    """Forecasts the tokens that will be written, from those that were written."""

    def observe(self, tokens: int, at: float) -> None:
        """Record the tokens written at a moment, in seconds. 0 tokens only advance the time."""

    def predict(self, horizon_s: float) -> float:
        """The tokens expected within `horizon_s` seconds after the last observation; never below 0."""


class _Intervals:
    """Tokens per second over intervals of at least `resolution_s`.

    Writes closer together than that count as one, so a burst has no infinite rate. When the clock goes back, the
    interval restarts and keeps its tokens. The tokens of the first observation belong to the interval that it begins.
    """

    __slots__ = ("_began_at", "_pending", "peak", "resolution_s")

    def __init__(self, resolution_s: float) -> None:
        self.resolution_s = checked_number(resolution_s, "the resolution in seconds", _SHORTEST_S)
        self._began_at: float | None = None
        self._pending = 0
        self.peak = 0.0

    def add(self, tokens: int, at: float) -> tuple[float, float] | None:
        """The interval that this write completes, as seconds and tokens per second, or None."""
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
    """An exponentially weighted mean rate: the weight of a second halves every `half_life_s`."""

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
        # A short history counts whole instead of being averaged with nothing.
        self._weight += (1.0 - self._weight) * share
        self._rate += (rate - self._rate) * min(1.0, share / self._weight)

    def predict(self, horizon_s: float) -> float:
        return self._rate * checked_number(horizon_s, "the horizon in seconds", 0)


class HoltPredictor:
    """Double exponential smoothing: a level of tokens per second and a trend of it, at irregular times.

    The trend fades over `half_life_s`, so that a burst does not continue for ever and a stall does not make the rate
    negative. The forecast never exceeds the highest observed rate.
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
        expected = self._level * horizon_s + self._trend * ((horizon_s - self._faded(horizon_s)) / self._decay)
        return min(self._intervals.peak * horizon_s, max(0.0, expected))

    def _faded(self, seconds: float) -> float:
        """The seconds for which a fading trend counts within an interval."""
        return -math.expm1(-self._decay * seconds) / self._decay


def demote_ahead(used: int, budget: int, low_watermark: float, expected: float, high_watermark: float = 1.0) -> int:
    """The tokens that a tier should free now, so that the expected writes need not wait.

    The watermarks are shares of the budget. 0 while the expected tokens stay below the high watermark; otherwise the
    tokens above the low one, which the writes would have to free. So a wrong forecast makes a demotion earlier, and
    never larger.
    """
    if used + expected <= high_watermark * budget:
        return 0
    return max(0, used - math.floor(low_watermark * budget))


def _decay_of(half_life_s: float) -> float:
    return math.log(2.0) / checked_number(half_life_s, "the half-life in seconds", _SHORTEST_S)
