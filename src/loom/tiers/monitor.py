"""The monitor: six measures of a memory, each with a target and an alarm, and an event when one is missed.

Nothing here reads a store or a clock. Callers report latencies with `observe` and shares with `gauge`. A measure is
judged once it has enough observations. A level that gets worse is published once, and again only after the
measure was clearly better.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from loom.errors import InvalidInput
from loom.forks import renew_after_fork
from loom.protocol import Task

__all__ = ["GOALS", "MONITOR_ACTION", "WINDOW", "Goal", "Level", "Measure", "Monitor", "Reading"]

log = logging.getLogger("loom.tiers")

MONITOR_ACTION = "memory.monitor"
"""The prefix of the actions of monitor events; memories that listen to the bus do not keep them."""

WINDOW = 500
"""The number of latest observations of a latency that count: five slow ones lie beyond its 99th percentile."""

# A value is clearly better than a mark by this share of the distance from the target to the alarm.
_MARGIN = 0.2


class Measure(StrEnum):
    """The measures. Shares are from 0 to 1, latencies in milliseconds."""

    FOCUS_UTILISATION = "focus_utilisation"
    """The tokens of the last prompt as a share of its budget."""
    WORKING_HIT_RATE = "working_hit_rate"
    """The share of uses whose record was in the working or the recent tier."""
    ARCHIVE_COMPRESSION = "archive_compression"
    """The tokens that the archive saves, as a share of the tokens of its originals."""
    RAG_LATENCY_MS = "rag_latency_ms"
    PROMOTION_LATENCY_MS = "promotion_latency_ms"
    DEMOTION_LATENCY_MS = "demotion_latency_ms"


class Level(StrEnum):
    """The level of a measure."""

    OK = "ok"
    WARNING = "warning"
    """The target is missed."""
    ALARM = "alarm"


_LEVELS = tuple(Level)


@dataclass(frozen=True, slots=True)
class Goal:
    """The target and the alarm of a measure; between the two, the level is a warning.

    A value equal to the target misses it, and a value equal to the alarm is still a warning. A latency is its
    `percent` percentile. `judged_from` observations are enough that one outlier lies beyond the percentile.
    """

    target: float
    alarm: float
    higher_is_better: bool
    unit: Literal["share", "ms"]
    judged_from: int = 1
    percent: int | None = None

    def level(self, value: float) -> Level:
        """The level of a value, independent of the level before."""
        return _LEVELS[_NOW[self.zone(value)]]

    def zone(self, value: float) -> int:
        """The zone of a value, from 0 (good) to 4 (alarm). In 1 and 3 it is better than a mark, but not clearly."""
        target, alarm = (-self.target, -self.alarm) if self.higher_is_better else (self.target, self.alarm)
        bad = -value if self.higher_is_better else value
        margin = _MARGIN * (alarm - target)
        if bad < target:
            return 0 if bad < target - margin else 1
        if bad <= alarm:
            return 2 if bad <= alarm - margin else 3
        return 4


GOALS: Mapping[Measure, Goal] = MappingProxyType(
    {
        Measure.FOCUS_UTILISATION: Goal(0.90, 0.95, False, "share"),
        Measure.WORKING_HIT_RATE: Goal(0.90, 0.85, True, "share", judged_from=100),
        Measure.ARCHIVE_COMPRESSION: Goal(0.90, 0.85, True, "share", judged_from=20),
        Measure.RAG_LATENCY_MS: Goal(300.0, 500.0, False, "ms", judged_from=20, percent=95),
        Measure.PROMOTION_LATENCY_MS: Goal(50.0, 100.0, False, "ms", judged_from=100, percent=99),
        Measure.DEMOTION_LATENCY_MS: Goal(100.0, 200.0, False, "ms", judged_from=100, percent=99),
    }
)
"""The targets and alarms of the design."""

# By zone: the level, as an index of _LEVELS, and the best level to which a worse one may fall.
_NOW = (0, 0, 1, 1, 2)
_BEST = (0, 1, 1, 2, 2)


@dataclass(frozen=True, slots=True)
class Reading:
    """One measure at one moment. `value` is None, and the level ok, until there are enough observations."""

    measure: Measure
    value: float | None
    level: Level
    goal: Goal
    observations: int

    @property
    def key(self) -> str:
        """The name of the value, with its percentile: `promotion_latency_ms_p99`."""
        return str(self.measure) if self.goal.percent is None else f"{self.measure}_p{self.goal.percent}"


class Monitor:
    """Collects the measures of one node and publishes an event when one gets worse. Thread-safe.

    `publish` receives a Task for each event: `memory.monitor.warning` and `memory.monitor.alarm` when a level gets
    worse, `memory.monitor.clear` when it is good again. It is called after the observation, in the same thread and
    without a lock held.
    """

    def __init__(self, node: str, publish: Callable[[Task], object] | None = None) -> None:
        self._node = node
        self._publish = publish
        self.after_fork()
        renew_after_fork(self)
        self._latencies: dict[Measure, deque[float]] = {
            measure: deque(maxlen=WINDOW) for measure, goal in GOALS.items() if goal.percent is not None
        }
        self._observed = dict.fromkeys(self._latencies, 0)
        self._shares: dict[Measure, tuple[float, int]] = {}
        self._held = dict.fromkeys(Measure, 0)

    def after_fork(self) -> None:
        """Renew the lock in a child process: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def observe(self, measure: Measure, value: float) -> None:
        """Add one latency, in milliseconds. A good one costs no more than adding it, because it changes no level."""
        latencies = self._latencies.get(measure)
        if latencies is None:
            raise InvalidInput(f"{measure!r} is not a latency; use gauge() for a share")
        if not 0.0 <= value < math.inf:
            raise InvalidInput(f"a latency must be a number of milliseconds from 0, not {value!r}")
        goal = GOALS[measure]
        with self._lock:
            latencies.append(value)
            count = self._observed[measure] = self._observed[measure] + 1
            matters = goal.zone(value) > 0 or self._held[measure] > 0 or count == goal.judged_from
            if count < goal.judged_from or not matters:
                return
            change = self._follow(measure, goal.zone(_percentile(latencies, goal)))
        self._tell(change)

    def gauge(self, measure: Measure, value: float, observations: int = 1) -> None:
        """Set the present value of a share, and the number of observations (uses, records) that it rests on."""
        goal = GOALS.get(measure)
        if goal is None or goal.percent is not None:
            raise InvalidInput(f"{measure!r} is not a share; use observe() for a latency")
        if not -math.inf < value < math.inf:
            raise InvalidInput(f"a share must be a number, not {value!r}")
        with self._lock:
            self._shares[measure] = (value, observations)
            if observations < goal.judged_from:
                return
            change = self._follow(measure, goal.zone(value))
        self._tell(change)

    def readings(self) -> tuple[Reading, ...]:
        """The present reading of every measure, in the order of `Measure`."""
        with self._lock:
            return tuple(self._reading(measure) for measure in Measure)

    def as_dict(self) -> dict[str, float | str | None]:
        """Every value and its level under flat names, for `get_stats()`."""
        named: dict[str, float | str | None] = {}
        for reading in self.readings():
            named[reading.key] = None if reading.value is None else round(reading.value, 4)
            named[f"{reading.measure}_level"] = str(reading.level)
        return named

    def table(self) -> str:
        """The measures as a table in plain text."""
        rows = [("measure", "value", "target", "alarm", "level", "observations")]
        for reading in self.readings():
            goal, (good, bad) = reading.goal, ("><" if reading.goal.higher_is_better else "<>")
            name = reading.measure.removesuffix("_ms").replace("_", " ")
            rows.append(
                (
                    name if goal.percent is None else f"{name}, p{goal.percent}",
                    "-" if reading.value is None else _shown(reading.value, goal, exact=True),
                    f"{good} {_shown(goal.target, goal)}",
                    f"{bad} {_shown(goal.alarm, goal)}",
                    "-" if reading.value is None else str(reading.level),
                    f"{reading.observations:,}",
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place in (0, 4) else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )

    def _reading(self, measure: Measure) -> Reading:
        goal = GOALS[measure]
        value: float | None
        if goal.percent is None:
            value, observations = self._shares.get(measure, (None, 0))
        else:
            observations = self._observed[measure]
            value = _percentile(self._latencies[measure], goal) if observations else None
        if observations < goal.judged_from:
            value = None
        return Reading(measure, value, Level.OK if value is None else goal.level(value), goal, observations)

    def _follow(self, measure: Measure, zone: int) -> tuple[Reading, str] | None:
        """Update the level of a measure: a worse level at once, a better one only if the measure is clearly better.

        Returns the event to publish: the measure got worse, or is good again.
        """
        before = self._held[measure]
        after = self._held[measure] = max(_NOW[zone], min(before, _BEST[zone]))
        if after == before or 0 < after < before:
            return None
        return self._reading(measure), str(_LEVELS[after]) if after else "clear"

    def _tell(self, change: tuple[Reading, str] | None) -> None:
        if change is None:
            return
        reading, what = change
        log.info("%s of node %s is %s (%s)", reading.key, self._node, reading.value, what)
        if self._publish is not None:
            parameters = {
                "measure": str(reading.measure),
                "level": what,
                "value": reading.value,
                "target": reading.goal.target,
                "alarm": reading.goal.alarm,
                "unit": reading.goal.unit,
                "observations": reading.observations,
            }
            self._publish(Task(action=f"{MONITOR_ACTION}.{what}", source_agent=self._node, parameters=parameters))


def _percentile(values: Iterable[float], goal: Goal) -> float:
    """The first of the ordered values that the percentile's share of them does not exceed."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * (goal.percent or 100) // 100) - 1]


def _shown(value: float, goal: Goal, *, exact: bool = False) -> str:
    """A value in its unit, with one decimal if it was measured."""
    number = value * 100 if goal.unit == "share" else value
    return f"{number:,.{int(exact)}f} {'%' if goal.unit == 'share' else 'ms'}"
