"""Alarms are raised automatically by the work that causes them. Requirements 41, 142 and 145."""

from __future__ import annotations

from typing import Any

import pytest

import loom
from loom.errors import OverBudget
from loom.events import EventBus
from loom.memory.core import LoomMemory
from loom.protocol import Task
from loom.tiers.monitor import Measure, Monitor


@pytest.fixture
def heard() -> list[Task]:
    return []


@pytest.fixture
def bus(heard: list[Task]) -> EventBus:
    found = EventBus()
    found.subscribe("memory.monitor.alarm", heard.append)
    found.subscribe("memory.quota.hard", heard.append)
    return found


def opened(bus: EventBus, **options: Any) -> LoomMemory:
    """A memory whose working tier holds about eight notes."""
    given: dict[str, Any] = {"l1_token_budget": 40, "l2_token_budget": 100, "profile": "lcr"}
    return LoomMemory("agent", event_bus=bus, embedder="none", derive=False, **given | options)


def note(number: int) -> Task:
    words = f"kite {number} flew over the harbour before it rained"
    return Task(task_id=f"n{number}", action="note", parameters={"content": words}, session_id="s")


def measures(heard: list[Task]) -> list[str]:
    return [task.parameters["measure"] for task in heard if "measure" in task.parameters]


def test_a_low_hit_rate_is_told_by_the_use_that_makes_it_low(bus: EventBus, heard: list[Task]) -> None:
    with opened(bus) as memory:
        for number in range(40):
            memory.add_task(note(number))
        for number in range(150):
            memory.get(f"n{number % 30}")  # a cycle that is larger than the tier
    assert measures(heard) == [Measure.WORKING_HIT_RATE]


def test_an_archive_that_saves_little_is_told_by_the_move_that_fills_it(bus: EventBus, heard: list[Task]) -> None:
    with opened(bus, l3_token_budget=600) as memory:
        for number in range(200):
            memory.add_task(note(number))  # a short note saves nothing
    assert measures(heard).count(Measure.ARCHIVE_COMPRESSION) == 1


def test_originals_are_counted_seldom(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(bus, l3_token_budget=2000) as memory:
        counted: list[str] = []
        count = memory.store.original_tokens

        def noted(node: str, tier: str) -> int:
            counted.append(tier)
            return count(node, tier)

        monkeypatch.setattr(memory.store, "original_tokens", noted)
        for number in range(300):
            memory.add_task(note(number))
        assert 1 <= len(counted) < 60


def test_a_full_prompt_is_told_when_it_is_built_and_a_lean_one_clears_it(bus: EventBus, heard: list[Task]) -> None:
    cleared: list[Task] = []
    bus.subscribe("memory.monitor.clear", cleared.append)
    with loom.open(event_bus=bus, embedder="none", derive=False) as memory:
        question = "tide " * 90
        memory.context(question, budget=memory.context(question, budget=2000).tokens + 2)
        assert measures(heard) == [Measure.FOCUS_UTILISATION]
        memory.context("Go on.", budget=2000)
    assert [task.parameters["measure"] for task in cleared] == [Measure.FOCUS_UTILISATION]


def test_the_utilisation_of_focus_is_that_of_the_last_prompt() -> None:
    with loom.open(embedder="none", l1_token_budget=40) as memory:
        for number in range(20):
            memory.remember(f"kite {number} flew over the harbour before it rained", session_id="s")
        assert memory.get_stats()["l1_token_usage"] > 30
        assert memory.get_stats()["focus_utilisation"] is None  # no prompt was built
        context = memory.context("Which kite?", session_id="s")
        assert memory.get_stats()["focus_utilisation"] == round(context.tokens / context.budget, 4)


def test_a_prompt_over_its_budget_is_refused_with_an_alarm_each_time(bus: EventBus, heard: list[Task]) -> None:
    """MEM-001: a hard-limit alarm."""
    with loom.open(event_bus=bus, embedder="none") as memory:
        for _ in range(2):
            with pytest.raises(OverBudget) as refused:
                memory.context("tide " * 9000)
        assert memory.get_stats()["records"] == 0  # an alarm is no memory
    assert [task.action for task in heard] == ["memory.quota.hard"] * 2
    told = heard[0].parameters
    assert (told["tier"], told["hard_limit"]) == ("prompt", 8192)
    assert refused.value.tokens is not None
    assert told["tokens"] == refused.value.tokens
    assert refused.value.tokens > 9000


def test_a_monitor_that_cannot_be_heard_still_measures() -> None:
    monitor = Monitor("agent")
    monitor.gauge(Measure.FOCUS_UTILISATION, 0.99)
    assert monitor.as_dict()["focus_utilisation_level"] == "alarm"
