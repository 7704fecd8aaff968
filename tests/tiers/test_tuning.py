"""Tuning and forecasting: parameters that follow the work within their limits. Requirements 143, 150; C-33, C-35."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loom.errors import InvalidInput
from loom.settings import EVICTION_WEIGHTS
from loom.tiers.tuning import (
    DEFAULT_TUNING,
    AdaptiveTuner,
    EwmaPredictor,
    HoltPredictor,
    SystemMetrics,
    TokenDemandPredictor,
    TuningResult,
    demote_ahead,
)

GOOD = SystemMetrics(0.97, 10.0, 0.3)
BAD = SystemMetrics(0.5, 400.0, 0.95)
BETWEEN = SystemMetrics(0.87, 75.0, 0.75)

shares = st.none() | st.sampled_from([0.0, 0.5, 0.849, 0.85, 0.86, 0.9, 0.91, 1.0])
latencies = st.none() | st.sampled_from([0.0, 49.0, 50.0, 75.0, 100.0, 101.0, 9e9])
any_metrics = st.builds(SystemMetrics, shares, latencies, shares)
starts = st.builds(
    lambda weights, threshold, level: TuningResult(weights[0], weights[1], weights[2], threshold, level),
    st.sampled_from([(one.recency, one.frequency, one.relevance) for one in EVICTION_WEIGHTS.values()])
    | st.sampled_from([(0.8, 0.0, 0.2), (0.8, 0.2, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.75, 0.02, 0.23)]),
    st.sampled_from([0.0, 0.7, 0.85, 0.9]),
    st.sampled_from([1, 9, 20, 22]),
)


def after(tuner: AdaptiveTuner, metrics: SystemMetrics, looks: int) -> TuningResult:
    for _ in range(looks):
        tuner.tune_parameters(metrics)
    return tuner.parameters


# --- the tuner -----------------------------------------------------------------------------------------------


def test_it_begins_with_the_parameters_of_the_design() -> None:
    """Requirement 143."""
    tuner = AdaptiveTuner()
    assert tuner.parameters == TuningResult(0.5, 0.3, 0.2, 0.7, 9) == tuner.tune_parameters(SystemMetrics())


def test_a_mark_that_is_missed_moves_its_own_parameter_by_one_step() -> None:
    """Requirement 143; C-33: the threshold rises, so that fewer are promoted."""
    poor = after(AdaptiveTuner(), SystemMetrics(cache_hit_rate=0.84), 3)
    assert poor.lru_weight == pytest.approx(0.6)
    assert poor.lfu_weight < 0.25
    assert poor.lfu_weight / poor.semantic_weight == pytest.approx(0.25 / 0.2)
    assert (poor.promotion_threshold, poor.compression_level) == (0.7, 9)
    slow = after(AdaptiveTuner(), SystemMetrics(promotion_latency=101.0), 3)
    assert slow == TuningResult(promotion_threshold=0.8)
    full = after(AdaptiveTuner(), SystemMetrics(storage_pressure=0.81), 3)
    assert full == TuningResult(compression_level=12)


def test_one_or_two_bad_looks_move_nothing() -> None:
    tuner = AdaptiveTuner()
    for metrics in (BAD, BAD, BETWEEN, BAD, BAD, GOOD, BAD, BAD):
        assert tuner.tune_parameters(metrics) == DEFAULT_TUNING
    assert tuner.tune_parameters(BAD) != DEFAULT_TUNING


def test_it_keeps_its_state_between_looks_and_ends_at_the_limits() -> None:
    """C-33: it must not begin from the defaults each time."""
    tuner = AdaptiveTuner()
    first, second = after(tuner, BAD, 3), after(tuner, BAD, 3)
    assert DEFAULT_TUNING.lru_weight < first.lru_weight < second.lru_weight
    last = after(tuner, BAD, 100)
    assert (last.lru_weight, last.promotion_threshold, last.compression_level) == (0.8, 0.9, 22)


@settings(max_examples=80)
@given(starts, st.lists(st.tuples(any_metrics, st.integers(1, 12)), max_size=15))
def test_whatever_is_measured_the_parameters_keep_their_limits(
    start: TuningResult, looks: Sequence[tuple[SystemMetrics, int]]
) -> None:
    """C-33: weights that sum to 1."""
    tuner = AdaptiveTuner(start)
    for metrics, times in looks:
        for _ in range(times):
            found = tuner.tune_parameters(metrics)
            weights = (found.lru_weight, found.lfu_weight, found.semantic_weight)
            assert min(weights) >= 0.0
            assert math.isclose(sum(weights), 1.0, abs_tol=1e-9)
            assert start.lru_weight <= found.lru_weight <= 0.8
            assert start.promotion_threshold <= found.promotion_threshold <= 0.9
            assert start.compression_level <= found.compression_level <= 22


@settings(max_examples=60)
@given(starts, st.lists(any_metrics, max_size=30), any_metrics)
def test_metrics_that_do_not_change_lead_one_way_and_to_rest(
    start: TuningResult, before: Sequence[SystemMetrics], constant: SystemMetrics
) -> None:
    tuner = AdaptiveTuner(start)
    for metrics in before:
        tuner.tune_parameters(metrics)
    found = [tuner.tune_parameters(constant) for _ in range(150)]
    for name in ("lru_weight", "promotion_threshold", "compression_level"):
        values = [getattr(one, name) for one in found]
        assert values in (sorted(values), sorted(values, reverse=True))
    assert len(set(found[-40:])) == 1


@settings(max_examples=40)
@given(starts, st.lists(any_metrics, max_size=60))
def test_a_good_stretch_returns_to_the_start(start: TuningResult, before: Sequence[SystemMetrics]) -> None:
    tuner = AdaptiveTuner(start)
    for metrics in before:
        tuner.tune_parameters(metrics)
    assert after(tuner, GOOD, 120) == start


def test_between_the_marks_what_was_reached_stays() -> None:
    tuner = AdaptiveTuner()
    moved = after(tuner, BAD, 6)
    assert moved != DEFAULT_TUNING
    assert after(tuner, BETWEEN, 200) == moved


@given(st.lists(any_metrics, max_size=40), st.integers(1, 12))
@settings(max_examples=40)
def test_what_is_not_known_changes_nothing(before: Sequence[SystemMetrics], looks: int) -> None:
    tuner = AdaptiveTuner()
    for metrics in before:
        tuner.tune_parameters(metrics)
    parameters, state = tuner.parameters, tuner.state()
    assert after(tuner, SystemMetrics(), looks) == parameters
    assert tuner.state() == state


@settings(max_examples=40)
@given(starts, st.lists(any_metrics, max_size=40), st.lists(any_metrics, max_size=20))
def test_a_tuner_that_goes_on_after_a_restart_does_what_it_would_have_done(
    start: TuningResult, before: Sequence[SystemMetrics], later: Sequence[SystemMetrics]
) -> None:
    tuner = AdaptiveTuner(start)
    for metrics in before:
        tuner.tune_parameters(metrics)
    again = AdaptiveTuner(start, json.loads(json.dumps(tuner.state())))
    assert again.parameters == tuner.parameters
    for metrics in later:
        assert again.tune_parameters(metrics) == tuner.tune_parameters(metrics)


def test_a_state_from_other_limits_is_cut_to_these() -> None:
    tuner = AdaptiveTuner(state={"hit_rate": [99, 50], "latency": [-4, -99], "pressure": [2, 0]})
    found = tuner.parameters
    assert (found.lru_weight, found.promotion_threshold, found.compression_level) == (0.8, 0.7, 15)
    assert after(tuner, GOOD, 120) == DEFAULT_TUNING


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"hit_rate": 1, "latency": [0, 0], "pressure": [0, 0]},
        {"hit_rate": [0.5, 0], "latency": [0, 0], "pressure": [0, 0]},
        {"hit_rate": [0], "latency": [0, 0], "pressure": [0, 0]},
        {"hit_rate": [True, 0], "latency": [0, 0], "pressure": [0, 0]},
    ],
)
def test_what_is_no_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="not a state of a tuner"):
        AdaptiveTuner(state=state)


@pytest.mark.parametrize(
    "given_",
    [
        {"lru_weight": 0.6},
        {"lru_weight": 0.9, "lfu_weight": 0.1, "semantic_weight": 0.0},
        {"lru_weight": 0.5, "lfu_weight": 0.7, "semantic_weight": -0.2},
        {"promotion_threshold": 0.95},
        {"compression_level": 23},
        {"compression_level": 0},
    ],
)
def test_parameters_beyond_their_limits_are_refused(given_: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        TuningResult(**given_)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_metrics_that_are_no_measurement_are_refused(value: float) -> None:
    for name in ("cache_hit_rate", "promotion_latency", "storage_pressure"):
        with pytest.raises(InvalidInput, match=name):
            SystemMetrics(**{name: value})


# --- the forecast --------------------------------------------------------------------------------------------

PREDICTORS: list[Callable[[], TokenDemandPredictor]] = [EwmaPredictor, HoltPredictor]
both = pytest.mark.parametrize("predictor", PREDICTORS)


def fed(predictor: Callable[[], TokenDemandPredictor], writes: Sequence[tuple[int, float]]) -> TokenDemandPredictor:
    made = predictor()
    for tokens, at in writes:
        made.observe(tokens, at)
    return made


@both
def test_nothing_is_expected_before_anything_was_seen(predictor: Callable[[], TokenDemandPredictor]) -> None:
    assert predictor().predict(60.0) == 0.0
    assert fed(predictor, [(500, 10.0)]).predict(60.0) == 0.0


@both
@pytest.mark.parametrize("every_s", [1.0, 7.0, 240.0])
def test_a_steady_stream_is_expected_to_go_on(predictor: Callable[[], TokenDemandPredictor], every_s: float) -> None:
    made = fed(predictor, [(0, 0.0)] + [(200, every_s * number) for number in range(1, 200)])
    assert made.predict(60.0) == pytest.approx(200 / every_s * 60.0, rel=0.01)
    assert made.predict(0.0) == 0.0


@both
def test_writes_at_irregular_times_count_by_their_rate(predictor: Callable[[], TokenDemandPredictor]) -> None:
    """Ten tokens a second, written in pieces of a second and in pieces of a minute."""
    at, writes = 0.0, [(0, 0.0)]
    for number in range(400):
        gap = (1.0, 3.0, 0.25, 60.0, 12.0)[number % 5]
        at += gap
        writes.append((round(10 * gap), at))
    assert fed(predictor, writes).predict(30.0) == pytest.approx(300.0, rel=0.1)


@both
def test_a_burst_at_one_moment_is_no_infinite_speed(predictor: Callable[[], TokenDemandPredictor]) -> None:
    steady = [(100, 10.0 * number) for number in range(100)]
    burst = [*steady, *[(100, 990.0)] * 50, (100, 1000.0)]
    found = fed(predictor, burst).predict(60.0)
    assert fed(predictor, steady).predict(60.0) < found <= 5_100 / 10 * 60


@both
def test_a_stall_lets_the_expectation_fall(predictor: Callable[[], TokenDemandPredictor]) -> None:
    steady = [(100, 10.0 * number) for number in range(100)]
    made = fed(predictor, steady)
    before = made.predict(60.0)
    made.observe(0, 990.0 + 3_600.0)
    assert made.predict(60.0) < before / 20


@both
def test_a_clock_that_goes_back_loses_nothing_and_breaks_nothing(
    predictor: Callable[[], TokenDemandPredictor],
) -> None:
    writes = [(100, 10.0 * number) for number in range(200)]
    back = [(100, 10.0 * number - 100_000.0) for number in range(200, 400)]
    assert fed(predictor, writes + back).predict(60.0) == pytest.approx(600.0, rel=0.1)


def test_a_trend_is_carried_on_by_holt_and_fades() -> None:
    growing = [(0, 0.0)] + [(number, 10.0 * number) for number in range(1, 300)]
    holt, mean = fed(HoltPredictor, growing), fed(EwmaPredictor, growing)
    assert mean.predict(120.0) < holt.predict(120.0)
    assert holt.predict(120.0) == pytest.approx(120.0 * 30.5, rel=0.1)
    assert holt.predict(1e7) <= 29.9 * 1e7


def test_a_falling_trend_lets_holt_expect_less_than_the_present_rate_goes_on() -> None:
    falling = [(0, 0.0)] + [(300 - number, 10.0 * number) for number in range(1, 151)]
    holt = fed(HoltPredictor, falling)
    assert 0 < holt.predict(600.0) / 600.0 < 0.95 * holt.predict(1.0)
    assert holt.predict(600.0) < fed(EwmaPredictor, falling).predict(600.0)


any_writes = st.lists(
    st.tuples(st.integers(0, 10**9), st.floats(-1e9, 1e9) | st.sampled_from([0.0, 0.5, 1.0, 1e9])), max_size=40
)


@both
@settings(max_examples=60)
@given(writes=any_writes, horizon_s=st.floats(0, 1e7))
def test_a_forecast_is_finite_and_between_nothing_and_the_highest_rate_seen(
    predictor: Callable[[], TokenDemandPredictor], writes: list[tuple[int, float]], horizon_s: float
) -> None:
    found = fed(predictor, writes).predict(horizon_s)
    everything = sum(tokens for tokens, _ in writes)  # in one second, which is the resolution
    assert 0.0 <= found <= everything * horizon_s * (1 + 1e-9) + 1e-9
    assert math.isfinite(found)


@both
def test_what_is_no_observation_is_refused(predictor: Callable[[], TokenDemandPredictor]) -> None:
    made = predictor()
    for tokens, at in ((-1, 0.0), (1, math.nan), (1, math.inf)):
        with pytest.raises(InvalidInput):
            made.observe(tokens, at)
    for horizon_s in (-1.0, math.nan, math.inf):
        with pytest.raises(InvalidInput):
            made.predict(horizon_s)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_predictor_needs_lengths_of_time(value: float) -> None:
    for make in (
        lambda: EwmaPredictor(value),
        lambda: HoltPredictor(value),
        lambda: HoltPredictor(trend_half_life_s=value),
        lambda: HoltPredictor(resolution_s=value),
    ):
        with pytest.raises(InvalidInput):
            make()


# --- demoting ahead ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "expected", "free"),
    [
        (0, 0.0, 0),
        (900, 100.0, 0),  # it just fits
        (900, 100.5, 100),  # down to 80 %
        (1_000, 0.0, 0),  # full, and nothing comes
        (1_000, 1.0, 200),
        (700, 5_000.0, 0),  # already below the low mark: the forecast alone evicts no record
        (1_100, 0.0, 300),
    ],
)
def test_room_is_made_before_it_is_needed(used: int, expected: float, free: int) -> None:
    assert demote_ahead(used, 1_000, 0.8, expected) == free


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.floats(0.01, 1.0), st.floats(0, 1e9))
def test_no_forecast_frees_more_than_an_ordinary_demotion(
    used: int, budget: int, low: float, expected: float
) -> None:
    assume(used <= budget)
    freed = demote_ahead(used, budget, low, expected)
    assert 0 <= freed <= max(0, used - math.floor(low * budget))


def test_the_mark_at_which_demotion_begins_may_be_lower_than_the_budget() -> None:
    assert demote_ahead(800, 1_000, 0.8, 49.0, 0.85) == 0
    assert demote_ahead(830, 1_000, 0.8, 49.0, 0.85) == 30
