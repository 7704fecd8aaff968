"""The monitor: its measures, their targets, and the events when one is missed. Requirement 142; C-28."""

from __future__ import annotations

import faulthandler
import json
import math
import os
import threading
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import InvalidInput
from loom.protocol import Task
from loom.tiers.monitor import GOALS, MONITOR_ACTION, WINDOW, Level, Measure, Monitor

PROMOTION, RAG, DEMOTION = Measure.PROMOTION_LATENCY_MS, Measure.RAG_LATENCY_MS, Measure.DEMOTION_LATENCY_MS
HITS, FOCUS = Measure.WORKING_HIT_RATE, Measure.FOCUS_UTILISATION
LATENCIES = [measure for measure in Measure if GOALS[measure].percent is not None]
SHARES = [measure for measure in Measure if GOALS[measure].percent is None]

milliseconds = st.sampled_from([0.0, 1.0, 39.9, 40.0, 49.9, 50.0, 89.0, 90.0, 91.0, 100.0, 100.1, 300.0, 501.0])


class Heard:
    """The published events, by the last word of the action."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def __call__(self, task: Task) -> None:
        self.tasks.append(task)

    @property
    def words(self) -> list[str]:
        return [task.action.removeprefix(f"{MONITOR_ACTION}.") for task in self.tasks]


def reading(monitor: Monitor, measure: Measure) -> tuple[float | None, Level]:
    found = next(one for one in monitor.readings() if one.measure is measure)
    return found.value, found.level


def observe(monitor: Monitor, measure: Measure, values: Sequence[float]) -> None:
    for value in values:
        monitor.observe(measure, value)


# --- the goals ---------------------------------------------------------------------------------------------


def test_the_targets_and_alarms_are_those_of_the_design() -> None:
    """Requirement 142."""
    assert {str(measure): (goal.target, goal.alarm, goal.higher_is_better) for measure, goal in GOALS.items()} == {
        "focus_utilisation": (0.90, 0.95, False),
        "working_hit_rate": (0.90, 0.85, True),
        "archive_compression": (0.90, 0.85, True),
        "rag_latency_ms": (300.0, 500.0, False),
        "promotion_latency_ms": (50.0, 100.0, False),
        "demotion_latency_ms": (100.0, 200.0, False),
    }


@pytest.mark.parametrize(
    ("measure", "value", "level"),
    [
        (FOCUS, 0.89, "ok"),
        (FOCUS, 0.90, "warning"),
        (FOCUS, 0.95, "warning"),
        (FOCUS, 0.951, "alarm"),
        (HITS, 0.901, "ok"),
        (HITS, 0.90, "warning"),
        (HITS, 0.85, "warning"),
        (HITS, 0.849, "alarm"),
        (RAG, 299.9, "ok"),
        (RAG, 300.0, "warning"),
        (RAG, 500.0, "warning"),
        (RAG, 500.1, "alarm"),
    ],
)
def test_the_target_must_be_passed_and_the_alarm_exceeded(measure: Measure, value: float, level: str) -> None:
    assert GOALS[measure].level(value) == level


# --- what is read ------------------------------------------------------------------------------------------


def test_nothing_observed_is_no_value_and_no_alarm() -> None:
    heard = Heard()
    for one in Monitor("n", heard).readings():
        assert (one.value, one.level, one.observations) == (None, Level.OK, 0)
    assert heard.words == []


@pytest.mark.parametrize("measure", LATENCIES)
def test_a_latency_is_judged_when_one_outlier_is_no_percentile(measure: Measure) -> None:
    heard = Heard()
    monitor = Monitor("n", heard)
    observe(monitor, measure, [9_999.0])
    observe(monitor, measure, [1.0] * (GOALS[measure].judged_from - 2))
    assert reading(monitor, measure) == (None, Level.OK)
    monitor.observe(measure, 1.0)
    assert reading(monitor, measure) == (1.0, Level.OK)
    assert heard.words == []


@pytest.mark.parametrize("measure", SHARES)
def test_a_share_of_too_little_is_not_judged(measure: Measure) -> None:
    heard = Heard()
    monitor = Monitor("n", heard)
    bad = 0.1 if GOALS[measure].higher_is_better else 0.99
    monitor.gauge(measure, bad, GOALS[measure].judged_from - 1)
    assert reading(monitor, measure) == (None, Level.OK)
    assert heard.words == []
    monitor.gauge(measure, bad, GOALS[measure].judged_from)
    assert reading(monitor, measure) == (bad, Level.ALARM)
    assert heard.words == ["alarm"]


@settings(max_examples=60)
@given(st.sampled_from(LATENCIES), st.lists(st.floats(0, 1e6), min_size=100, max_size=WINDOW + 200))
def test_a_percentile_is_that_of_the_latest_observations(measure: Measure, values: list[float]) -> None:
    monitor = Monitor("n")
    observe(monitor, measure, values)
    percent, latest = GOALS[measure].percent, values[-WINDOW:]
    assert percent is not None
    value, level = reading(monitor, measure)
    assert value == np.percentile(latest, percent, method="inverted_cdf")
    assert level == GOALS[measure].level(float(value or 0.0))
    within = sum(one <= (value or 0.0) for one in latest)
    below = sum(one < (value or 0.0) for one in latest)
    assert 100 * within >= percent * len(latest) > 100 * below


# --- who is told -------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.sampled_from(LATENCIES), st.lists(milliseconds, max_size=40), st.integers(1, 40))
def test_the_events_are_those_of_the_percentile_after_each_observation(
    measure: Measure, values: list[float], times: int
) -> None:
    """The counts by which a level is followed say the same as sorting after every observation would."""
    heard = Heard()
    monitor = Monitor("n", heard)
    goal = GOALS[measure]
    margin = (goal.alarm - goal.target) / 5
    levels, held, expected = list(Level), Level.OK, []
    for value in (value for value in values for _ in range(times)):
        monitor.observe(measure, value)
        current, level = reading(monitor, measure)
        if current is None:
            continue
        worse = goal.level(current + margin)
        after = max(level, min(held, worse, key=levels.index), key=levels.index)
        if levels.index(after) > levels.index(held):
            expected.append(str(after))
        elif after is Level.OK and held is not Level.OK:
            expected.append("clear")
        held = after
    assert heard.words == expected


def test_a_level_that_gets_worse_is_told_once_and_again_after_it_was_clearly_better() -> None:
    heard = Heard()
    monitor = Monitor("n", heard)
    for rate in (0.95, 0.89, 0.88, 0.84, 0.80, 0.84):
        monitor.gauge(HITS, rate, 1_000)
    assert heard.words == ["warning", "alarm"]
    for rate in (0.855, 0.84, 0.855, 0.84):  # at the mark, to and fro
        monitor.gauge(HITS, rate, 1_000)
    assert heard.words == ["warning", "alarm"]
    for rate in (0.87, 0.84):  # clearly better than the alarm, and not good
        monitor.gauge(HITS, rate, 1_000)
    assert heard.words == ["warning", "alarm", "alarm"]
    for rate in (0.905, 0.89, 0.905):  # the target is passed, and not clearly
        monitor.gauge(HITS, rate, 1_000)
    assert heard.words == ["warning", "alarm", "alarm"]
    for rate in (0.92, 0.89):
        monitor.gauge(HITS, rate, 1_000)
    assert heard.words == ["warning", "alarm", "alarm", "clear", "warning"]


def test_an_alarm_clears_when_the_slow_ones_are_no_longer_among_the_latest() -> None:
    heard = Heard()
    monitor = Monitor("n", heard)
    observe(monitor, PROMOTION, [1.0] * 200 + [250.0] * 10)
    assert heard.words == ["alarm"]
    observe(monitor, PROMOTION, [1.0] * WINDOW)
    assert heard.words == ["alarm", "clear"]
    assert reading(monitor, PROMOTION) == (1.0, Level.OK)


def test_an_event_says_who_what_and_how_far() -> None:
    heard = Heard()
    Monitor("agent-1", heard).gauge(HITS, 0.6, 250)
    (task,) = heard.tasks
    assert (task.action, task.source_agent) == ("memory.monitor.alarm", "agent-1")
    assert task.parameters == {
        "measure": "working_hit_rate",
        "level": "alarm",
        "value": 0.6,
        "target": 0.9,
        "alarm": 0.85,
        "unit": "share",
        "observations": 250,
    }
    assert json.dumps(task.to_dict())


def test_a_listener_may_look_at_the_monitor_and_add_to_it() -> None:
    found: list[tuple[float | None, Level]] = []

    def listen(_task: Task) -> None:
        monitor.observe(DEMOTION, 1.0)
        found.append(reading(monitor, HITS))

    monitor = Monitor("n", listen)
    monitor.gauge(HITS, 0.2, 100)
    assert found == [(0.2, Level.ALARM)]


def test_observations_of_many_threads_all_count_and_raise_one_alarm() -> None:
    heard = Heard()
    monitor = Monitor("n", heard)
    ready = threading.Barrier(8)

    def work() -> None:
        ready.wait()
        observe(monitor, DEMOTION, [250.0] * 2_000)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = next(one for one in monitor.readings() if one.measure is DEMOTION)
    assert (found.observations, found.value, found.level) == (16_000, 250.0, Level.ALARM)
    assert heard.words == ["alarm"]


def test_what_is_kept_does_not_grow() -> None:
    monitor = Monitor("n")
    values = [float(number % 400) for number in range(20 * WINDOW)]
    observe(monitor, RAG, values[:WINDOW])
    tracemalloc.start()
    observe(monitor, RAG, values)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 4_096  # a byte for each observation would be more
    observe(monitor, RAG, [1.0] * WINDOW)
    assert reading(monitor, RAG) == (1.0, Level.OK)


# --- refusing and showing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_what_is_no_duration_is_refused_and_leaves_nothing(value: float) -> None:
    monitor = Monitor("n")
    with pytest.raises(InvalidInput, match="milliseconds"):
        monitor.observe(RAG, value)
    with pytest.raises(InvalidInput):
        monitor.gauge(FOCUS, math.nan)
    assert all(one.observations == 0 for one in monitor.readings())


def test_a_share_is_not_observed_and_a_latency_not_gauged() -> None:
    monitor = Monitor("n")
    with pytest.raises(InvalidInput, match="gauge"):
        monitor.observe(FOCUS, 0.5)
    with pytest.raises(InvalidInput, match="observe"):
        monitor.gauge(RAG, 5.0)


def test_the_statistics_are_flat_and_named_with_their_percentile() -> None:
    monitor = Monitor("n")
    observe(monitor, PROMOTION, [60.0] * 100)
    stated = monitor.as_dict()
    assert json.loads(json.dumps(stated)) == stated
    assert (stated["promotion_latency_ms_p99"], stated["promotion_latency_ms_level"]) == (60.0, "warning")
    assert (stated["rag_latency_ms_p95"], stated["working_hit_rate"]) == (None, None)


def test_the_table_shows_each_measure_aligned_with_its_goal() -> None:
    monitor = Monitor("n")
    monitor.gauge(HITS, 0.963, 4_000)
    observe(monitor, DEMOTION, [123.4] * 100)
    lines = monitor.table().splitlines()
    assert len(lines) == 1 + len(Measure)
    assert "working hit rate" in lines[2]
    assert lines[2].split()[3:] == ["96.3", "%", ">", "90", "%", "<", "85", "%", "ok", "4,000"]
    assert lines[6].split()[-8:] == ["<", "100", "ms", ">", "200", "ms", "warning", "100"]
    assert lines[0].index("level") == lines[2].index("ok") == lines[6].index("warning")


class Slow(float):
    """A latency that takes its time to be compared with the goal, which is done under the monitor's lock."""

    held, release = threading.Event(), threading.Event()

    def __lt__(self, other: float) -> bool:
        if other < math.inf:
            self.held.set()
            self.release.wait()
        return float(self) < other


def test_a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    monitor = Monitor("agent")
    thread = threading.Thread(target=monitor.observe, args=(RAG, Slow(1.0)))
    thread.start()
    Slow.held.wait()
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(20, exit=True)
        monitor.observe(RAG, 1.0)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    Slow.release.set()
    thread.join()
    assert status == 0
