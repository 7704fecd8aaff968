"""A memory that watches itself, and what tuning, forecasts and preloading do in it when they are chosen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.events import EventBus
from loom.memory.core import LoomMemory
from loom.protocol import Task
from loom.settings import EVICTION_WEIGHTS
from loom.tiers.monitor import Level, Measure


class Clock:
    """A clock that goes on by a second with each look."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def virtual(path: Path | None = None, **options: Any) -> LoomMemory:
    """One led by use, whose working tier holds about eight notes."""
    budgets: dict[str, Any] = {"l1_token_budget": 40, "l2_token_budget": 100, "profile": "lcr"}
    return LoomMemory("agent", store=path, embedder="none", derive=False, **budgets | options)


def note(number: int) -> Task:
    words = f"kite {number} flew over the harbour before it rained"
    return Task(task_id=f"n{number}", action="note", parameters={"content": words}, session_id="s")


def level(memory: LoomMemory, measure: Measure) -> Level:
    return next(one.level for one in memory.monitor.readings() if one.measure is measure)


def test_moves_and_searches_are_timed_and_counted() -> None:
    with virtual() as memory:
        for number in range(20):
            memory.add_task(note(number))
        memory.get("n0")
        memory.recall("which kite flew over the harbour")
        counts = {one.measure: one.observations for one in memory.monitor.readings()}
    assert counts[Measure.DEMOTION_LATENCY_MS] > 5
    assert counts[Measure.PROMOTION_LATENCY_MS] == 1
    assert counts[Measure.RAG_LATENCY_MS] == 1
    assert counts[Measure.WORKING_HIT_RATE] == 1


def test_the_statistics_say_how_the_memory_stands_against_its_targets() -> None:
    with virtual() as memory:
        for number in range(20):
            memory.add_task(note(number))
        for _ in range(60):
            memory.get("n19")
            memory.get("n18")
        stats = memory.get_stats()
        table = memory.monitor.table()
    assert stats["working_hit_rate"] == 1.0
    assert stats["working_hit_rate_level"] == "ok"
    assert stats["focus_utilisation"] is None  # no prompt was built
    assert stats["archive_compression"] is None  # far from where it must save anything
    assert "working hit rate" in table


def test_an_alarm_is_an_event_once_and_no_memory() -> None:
    bus = EventBus()
    heard: list[Task] = []
    bus.subscribe("memory.monitor.alarm", heard.append)
    with virtual(event_bus=bus) as memory:
        for number in range(40):
            memory.add_task(note(number))
        for number in range(150):
            memory.get(f"n{number % 30}")  # a cycle that is larger than the tier
        records = memory.get_stats()["records"]
        assert memory.get_stats()["working_hit_rate_level"] == "alarm"
        assert memory.get_stats()["records"] == records == 40
    assert [task.parameters["measure"] for task in heard].count("working_hit_rate") == 1


def test_what_the_archive_saves_is_judged_when_it_must_save() -> None:
    with virtual(l3_token_budget=600) as memory:
        number = 0
        while memory.l3.token_usage < 0.8 * 600:
            memory.add_task(note(number))
            number += 1
        # The stand-in of a short note is as long as the note: nothing is saved, and that is said.
        assert level(memory, Measure.ARCHIVE_COMPRESSION) is Level.ALARM


def test_nothing_is_tuned_foreseen_or_preloaded_unless_it_is_asked_for() -> None:
    with virtual() as memory:
        settings = memory.settings
        assert [settings.tune, settings.predict_demand, settings.preload] == [False, False, False]
        for number in range(30):
            memory.add_task(note(number))
        for number in range(400):
            memory.get(f"n{number % 25}")
        memory.store.flush()
        assert memory.tiers.rules().profile.eviction_weights == EVICTION_WEIGHTS["default"]
        assert memory.store.entries(owner="agent") == []


def test_a_hit_rate_that_stays_low_gives_recency_more_weight_and_a_restart_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with virtual(path, tune=True) as memory:
        for number in range(40):
            memory.add_task(note(number))
        for _ in range(4):
            for number in range(120):
                memory.get(f"n{number % 30}")
            memory.store.flush()
        tuned = memory.tiers.rules().profile.eviction_weights
        assert tuned.recency == 0.6
        assert abs(tuned.recency + tuned.frequency + tuned.relevance - 1) < 1e-9
    with virtual(path, tune=True) as memory:
        assert memory.tiers.rules().profile.eviction_weights == tuned
    with virtual(path) as memory:
        assert memory.tiers.rules().profile.eviction_weights == EVICTION_WEIGHTS["default"]


def test_unreadable_state_of_tuning_is_discarded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "agent.loom"
    for strange in ({"hit_rate": "often"}, [1, 2], "gone"):
        with virtual(path) as memory, memory.store.transaction() as transaction:
            transaction.put_entry("loom.tuning", strange, owner="agent", writer="agent")
        with virtual(path, tune=True) as memory:
            assert memory.tiers.rules().profile.eviction_weights == EVICTION_WEIGHTS["default"]
    assert "tuning restarts" in caplog.text


def test_an_archive_tier_that_stays_full_is_compressed_harder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with virtual(tmp_path / "agent.loom", tune=True, l3_token_budget=600) as memory:
        levels: list[int] = []
        compress_at = memory.store.compress_at

        def noted(level: int) -> None:
            levels.append(level)
            compress_at(level)

        monkeypatch.setattr(memory.store, "compress_at", noted)
        number = 0
        for _ in range(3):
            while memory.l3.token_usage < 0.82 * 600:
                memory.add_task(note(number))
                number += 1
            for one in range(110):
                memory.get(f"n{number - 1 - one % 3}")
            memory.store.flush()
        assert levels[-1] == 12
        words = {f"n{one}": memory.store.get(f"n{one}") for one in range(number)}
        memory.store.archive()
        assert {id: memory.store.get(id) for id in words} == words


def test_room_is_made_before_it_is_needed_when_demand_is_foreseen() -> None:
    """A write that has to wait for others to leave is one less for each time that they have left before."""
    waited: dict[bool, int] = {}
    for predict in (False, True):
        waited[predict] = 0
        with virtual(predict_demand=predict, profile="chat", l2_token_budget=1000, clock=Clock()) as memory:
            for number in range(150):
                before = moved_down(memory)
                memory.add_task(note(number))
                waited[predict] += moved_down(memory) - before
                memory.store.flush()
                assert memory.l2.token_usage <= 1000
    assert waited[True] < waited[False] / 2


def moved_down(memory: LoomMemory) -> int:
    readings = {one.measure: one.observations for one in memory.monitor.readings()}
    return readings[Measure.DEMOTION_LATENCY_MS]


def test_what_is_always_used_next_is_brought_back_before_it_is_asked_for(tmp_path: Path) -> None:
    with virtual(tmp_path / "agent.loom", preload=True) as memory:
        for number in range(30):
            memory.add_task(note(number))
        for turn in range(6):
            memory.get("n2")
            memory.get("n7")
            for other in range(10, 20):
                memory.get(f"n{other + turn % 2}")
        memory.store.flush()
        wanted = memory.store.get("n7")
        assert wanted is not None
        while "l3" not in memory.store.tiers(wanted.seq, "agent"):
            memory.demote("n7")
        memory.get("n2")
        memory.store.flush()
        assert "l2" in memory.store.tiers(wanted.seq, "agent")
        assert "l1" not in memory.store.tiers(wanted.seq, "agent")  # never towards a prompt


def test_the_everyday_memory_shows_its_monitor_and_moves_what_it_is_told_to() -> None:
    with loom.open(profile="lcr", l1_token_budget=40, l2_token_budget=100, embedder="none") as memory:
        for number in range(20):
            memory.remember(f"kite {number} flew over the harbour", id=f"n{number}")
        assert memory.promote("n3").moved == ("n3",)
        assert memory.demote("n3") == "l3"
        assert "focus utilisation" in memory.monitor.table()
