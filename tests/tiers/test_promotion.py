"""Promotion: by heat, into the working tier and the window, and migration as jobs."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import loom.settings
from loom.errors import InvalidInput, NotFound, ReadOnly
from loom.memory.core import LoomMemory
from loom.models.embedders import FakeEmbedder
from loom.protocol import Task
from loom.storage.contract import FOCUS, Filter
from loom.storage.sqlite.store import as_sqlite
from loom.tiers.jobs import Migration, MigrationTrigger, Pressure
from loom.types import Fact, MemoryTier
from tests.crash.tier_children import what_is_wrong

L1, L2, L3, L4 = MemoryTier.L1, MemoryTier.L2, MemoryTier.L3, MemoryTier.L4
BUDGETS: dict[str, int] = {
    "l1_token_budget": 120,
    "l2_token_budget": 100,
    "l3_token_budget": 2000,
    "l4_token_budget": 2000,
}


class Clock:
    """A clock that goes on by a second with each look, and by more when told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


CLOCKS: WeakKeyDictionary[LoomMemory, Clock] = WeakKeyDictionary()


def memory_at(path: Path | None = None, **options: Any) -> LoomMemory:
    clock = Clock()
    settings: dict[str, Any] = {"embedder": "none", "derive": False, "clock": clock, **BUDGETS} | options
    memory = LoomMemory("agent", store=path, **settings)
    CLOCKS[memory] = clock
    return memory


def wait(memory: LoomMemory, time: timedelta) -> None:
    CLOCKS[memory].now += time


def note(id: str, words: str) -> Task:
    return Task(task_id=id, action="note", parameters={"content": words})


def say(memory: LoomMemory, numbers: range, importance: float = 0.8) -> None:
    for number in numbers:
        memory.add_task(
            note(f"n{number}", f"kite {number} flew over the harbour before it rained"), importance=importance
        )


def tiers_of(memory: LoomMemory, id: str) -> tuple[str, ...]:
    record = memory.store.get(id)
    assert record is not None
    return memory.store.tiers(record.seq, memory.node_id)


def window_of(memory: LoomMemory) -> list[str]:
    return [task.task_id for task in memory.get_l1_tasks()]


@pytest.fixture
def memory() -> Iterator[LoomMemory]:
    """One whose first notes have long left the window and the working tier."""
    with memory_at() as memory:
        say(memory, range(30))
        assert tiers_of(memory, "n3") == ("l3",)
        yield memory


@pytest.fixture
def full_file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.loom"
    with memory_at(path) as memory:
        say(memory, range(30))
    return path


def assert_within_budgets(memory: LoomMemory) -> None:
    stats = memory.get_stats()
    for tier in MemoryTier:
        assert stats[f"{tier}_token_usage"] <= stats[f"{tier}_token_budget"], tier


# --- by use ------------------------------------------------------------------------------------------------


def test_what_was_important_comes_back_whole_when_it_is_used(memory: LoomMemory) -> None:
    memory.get("n3")
    assert tiers_of(memory, "n3") == ("l2",)
    assert_within_budgets(memory)
    assert memory.get_task("n3") in memory.get_l2_tasks()


def test_what_was_important_comes_back_from_the_log_alone(memory: LoomMemory) -> None:
    memory.l3.clear()
    assert tiers_of(memory, "n3") == ()
    memory.get("n3")
    assert tiers_of(memory, "n3") == ("l2",)


def test_what_never_was_important_stays_in_the_log_where_importance_leads(memory: LoomMemory) -> None:
    memory.add_task(note("plain", "nothing of note"), importance=0.3)
    say(memory, range(30, 60))
    memory.get("plain")
    assert tiers_of(memory, "plain") == ()


def test_everything_that_is_used_comes_back_where_use_leads() -> None:
    with memory_at(profile="lcr") as memory:
        say(memory, range(30), importance=0.1)
        assert tiers_of(memory, "n3") == ("l3",)
        memory.get("n3")
        assert tiers_of(memory, "n3") == ("l2",)


def test_knowledge_stays_in_its_tier_when_it_is_used(memory: LoomMemory) -> None:
    fact = Fact("The harbour closes at nine.", confidence=0.95)
    memory.add_fact(fact)
    memory.get_fact(fact.id)
    assert tiers_of(memory, fact.id) == ("l4",)


def test_what_comes_back_is_not_thrown_out_by_coming_back(memory: LoomMemory) -> None:
    """The least important of all, into a full tier that lets the least important leave first."""
    memory.add_task(note("plain", "nothing of note"), importance=0.0)
    say(memory, range(30, 60))
    assert memory.promote("plain").moved == ("plain",)
    assert tiers_of(memory, "plain") == ("l2",)
    assert_within_budgets(memory)


def test_reading_a_read_only_memory_moves_nothing_and_promoting_says_why_not(full_file: Path) -> None:
    with memory_at(full_file, read_only=True) as memory:
        assert memory.get("n3") is not None
        assert tiers_of(memory, "n3") == ("l3",)
        with pytest.raises(ReadOnly):
            memory.promote("n3")


def test_what_has_only_just_left_rests_before_use_brings_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    resting = dataclasses.replace(loom.settings.PROFILES["loom"], promotion_rest=2.0)
    profiles = MappingProxyType({**loom.settings.PROFILES, "loom": resting})
    monkeypatch.setattr(loom.settings, "PROFILES", profiles)
    with memory_at() as memory:
        say(memory, range(30))
        newest = max(int(id.removeprefix("n")) for id in ids_in(memory, "l3"))
        memory.get(f"n{newest}")
        assert tiers_of(memory, f"n{newest}")[-1] == "l3"
        memory.get("n0")  # left long ago
        assert tiers_of(memory, "n0") == ("l2",)
        assert memory.promote(f"n{newest}").moved  # asked for by name


def ids_in(memory: LoomMemory, tier: str) -> list[str]:
    return [record.id for record in memory.store.scan(Filter(tier=tier, node="agent"), limit=1000).records]


# --- into the window ---------------------------------------------------------------------------------------


def test_a_memory_that_the_work_refers_to_stays_in_the_window_while_newer_ones_come(memory: LoomMemory) -> None:
    assert "n3" not in window_of(memory)
    assert memory.promote("n3", to="l1").moved == ("n3",)
    say(memory, range(30, 60))
    assert window_of(memory)[0] == "n3"
    assert window_of(memory)[-1] == "n59"
    assert tiers_of(memory, "n3") == ("l1", "l3")
    assert_within_budgets(memory)


def test_what_is_brought_into_the_window_has_a_quarter_of_it_and_the_longest_unused_gives_way(
    memory: LoomMemory,
) -> None:
    for number in range(8):
        memory.promote(f"n{number}", to="l1")
        assert_within_budgets(memory)
    held = memory.store.usage("agent")[FOCUS]
    assert 0 < held.tokens <= BUDGETS["l1_token_budget"] // 4
    assert "n0" not in window_of(memory)
    assert "n7" in window_of(memory)


def test_a_memory_too_large_for_that_is_shown_by_a_stand_in(memory: LoomMemory) -> None:
    memory.add_task(note("long", "the harbour log " * 15))
    say(memory, range(30, 60))
    assert memory.promote("long", to="l1").moved == ("long",)
    shown = next(task for task in memory.get_l1_tasks() if task.task_id == "long")
    assert shown.metadata["stand_in"]
    assert_within_budgets(memory)


def test_what_is_in_the_window_already_is_not_brought_there_twice(memory: LoomMemory) -> None:
    assert memory.promote("n29", to="l1").refused == {"n29": "it is in L1 already"}
    memory.promote("n3", to="l1")
    assert memory.promote("n3", to="l1").refused == {"n3": "it is in L1 already"}


def test_a_large_newcomer_drives_what_was_brought_back_out_of_the_window(memory: LoomMemory) -> None:
    memory.promote("n3", to="l1")
    words = " ".join(["harbour"] * 105)
    receipt = memory.add_task(note("large", words), importance=0.1)
    assert receipt.tier is L1
    assert window_of(memory) == ["large"]


def test_clearing_and_shrinking_the_window_take_what_was_brought_back_as_well(memory: LoomMemory) -> None:
    memory.promote("n3", to="l1")
    memory.l1.evict(tokens=1)
    assert "n3" not in window_of(memory)  # the oldest
    memory.promote("n3", to="l1")
    memory.l1.clear()
    assert window_of(memory) == []


def test_the_window_holds_its_budget_when_that_is_lowered_under_what_was_brought_back(full_file: Path) -> None:
    with memory_at(full_file) as memory:
        memory.promote("n3", to="l1")
    with memory_at(full_file, l1_token_budget=8, reconfigure=True) as memory:
        assert_within_budgets(memory)
    assert what_is_wrong(full_file) == []


def test_a_newer_version_of_what_was_brought_back_takes_its_place(memory: LoomMemory) -> None:
    memory.promote("n3", to="l1")
    newer = Task(task_id="n3", action="note", parameters={"content": "kite 3 landed"}, result="done")
    memory.add_task(newer)
    assert window_of(memory).count("n3") == 1
    assert memory.store.usage("agent")[FOCUS].items == 0


def test_what_is_forgotten_leaves_the_window_and_the_queue(memory: LoomMemory) -> None:
    memory.promote("n3", to="l1")
    memory.store.remove_chores(memory.migration)
    memory.migration.trigger_promotion(["n4"])
    memory.store.forget(Filter(ids=["n3", "n4"], history=True))
    assert "n3" not in window_of(memory)
    assert memory.migration.jobs() == []
    assert memory.store.check().ok


def test_a_search_of_the_window_finds_what_was_brought_back(memory: LoomMemory) -> None:
    memory.promote("n3", to="l1")
    hits = memory.recall("which kite is number 3", wanted=Filter(tier="l1", node="agent"))
    assert "n3" in [hit.id for hit in hits]


# --- as jobs -----------------------------------------------------------------------------------------------


def test_a_promotion_that_is_asked_for_is_queued_and_then_done(memory: LoomMemory) -> None:
    memory.store.remove_chores(memory.migration)  # so that nothing is done before it has been looked at
    asked = memory.migration.trigger_promotion(["n3", "n29"])
    assert asked.job is not None
    assert asked.job.context_ids == ("n3",)
    assert asked.refused == {"n29": "it is in L2 already"}
    assert asked.job.source_tier is L3
    assert asked.job.target_tier is L2
    assert 0 <= asked.job.priority <= 100
    assert asked.job.priority == round(100 * asked.scores["n3"])
    assert asked.job.deadline > datetime(2026, 1, 1, tzinfo=UTC)
    assert asked.job.deadline.microsecond == 50_000  # 50 ms from now; this clock shows whole seconds
    assert memory.migration.jobs() == [asked.job]
    memory.store.add_chore(memory.migration, memory.migration.work)
    assert memory.store.flush().complete
    assert tiers_of(memory, "n3") == ("l2",)
    assert memory.migration.jobs() == []


def test_a_promotion_is_a_use(memory: LoomMemory) -> None:
    before = memory.access_record("n3")
    memory.promote("n3")
    after = memory.access_record("n3")
    assert before is not None
    assert after is not None
    assert after.access_count == before.access_count + 1


def test_what_is_cold_is_refused_with_its_score(memory: LoomMemory) -> None:
    wait(memory, timedelta(days=30))
    asked = memory.migration.trigger_promotion(["n3"], trigger=MigrationTrigger.PREDICTIVE_PRELOAD)
    assert not asked
    assert asked.scores["n3"] < 0.7
    assert "hot score" in asked.refused["n3"]
    memory.get("n3")  # a use makes it hot
    assert tiers_of(memory, "n3") == ("l2",)


def test_relevance_to_the_present_work_decides_what_one_use_does_not() -> None:
    """With vectors, one use of a record among often used ones is not enough; relevance to the present work helps."""
    with memory_at(profile="lcr", embedder=FakeEmbedder(dimensions=16)) as memory:
        say(memory, range(30))
        memory.store.flush()
        for _ in range(200):
            memory.get("n29")
        scores = memory.migration.trigger_promotion(["n3"]).scores
        assert 0.5 <= scores["n3"] < 0.75


def test_jobs_are_done_by_priority_and_then_by_deadline(memory: LoomMemory) -> None:
    memory.store.remove_chores(memory.migration)
    memory.migration.preload({number_of(memory, "n1"): 0.4, number_of(memory, "n2"): 0.2})
    memory.migration.trigger_demotion(L3, Pressure.MEDIUM)
    memory.migration.trigger_demotion("l3", "soft")
    memory.migration.trigger_promotion(["n5"])
    jobs = memory.migration.jobs()
    assert [job.priority for job in jobs] == sorted((job.priority for job in jobs), reverse=True)
    assert [job.trigger for job in jobs] == [
        MigrationTrigger.EXPLICIT_ACCESS,
        MigrationTrigger.CAPACITY_PRESSURE,
        MigrationTrigger.PREDICTIVE_PRELOAD,
        MigrationTrigger.CAPACITY_PRESSURE,
    ]
    memory.store.add_chore(memory.migration, memory.migration.work)
    assert memory.store.flush().complete
    assert_within_budgets(memory)


def number_of(memory: LoomMemory, id: str) -> int:
    record = memory.store.get(id)
    assert record is not None
    return record.seq


def test_jobs_that_were_queued_by_a_process_that_is_gone_are_resumed(full_file: Path) -> None:
    with memory_at(full_file) as memory:
        memory.store.remove_chores(memory.migration)
        memory.migration.trigger_promotion(["n3"])
    with memory_at(full_file) as memory:
        assert memory.store.flush().complete
        assert tiers_of(memory, "n3") == ("l2",)


def test_a_guess_that_comes_too_late_is_dropped(memory: LoomMemory) -> None:
    memory.store.remove_chores(memory.migration)
    assert memory.migration.preload({number_of(memory, "n3"): 0.9}) is not None
    wait(memory, timedelta(minutes=5))
    assert not memory.migration.work(memory.store.transaction, True)
    assert memory.migration.jobs() == []
    assert tiers_of(memory, "n3") == ("l3",)


def test_only_what_is_archived_is_preloaded_and_never_into_the_window(memory: LoomMemory) -> None:
    assert memory.migration.preload({number_of(memory, "n29"): 0.9}) is None
    memory.migration.preload({number_of(memory, "n3"): 0.9})
    memory.store.flush()
    assert tiers_of(memory, "n3") == ("l2",)
    with pytest.raises(InvalidInput, match="focus reference"):
        memory.migration.trigger_promotion(["n3"], "l1", MigrationTrigger.PREDICTIVE_PRELOAD)


def test_what_was_used_after_it_was_chosen_to_leave_stays() -> None:
    with memory_at(profile="lcr", l2_token_budget=1000) as memory:
        say(memory, range(30))
        memory.store.remove_chores(memory.migration)
        job = memory.migration.trigger_demotion(L2, Pressure.MEDIUM)
        assert job is not None
        assert len(job.context_ids) > 1
        wanted, *others = job.context_ids
        memory.get(wanted)
        while memory.migration.work(memory.store.transaction, True):
            pass
        assert "l2" in tiers_of(memory, wanted)
        assert all("l2" not in tiers_of(memory, other) for other in others)


@pytest.mark.parametrize(("pressure", "share"), [("soft", 0.05), ("medium", 0.10), ("hard", 0.20)])
def test_the_pressure_says_how_much_leaves_how_urgently_and_until_when(pressure: str, share: float) -> None:
    with memory_at(l2_token_budget=4000) as memory:
        say(memory, range(200))
        before = memory.l2.token_usage
        job = memory.migration.trigger_demotion("l2", pressure)
        assert job is not None
        assert job.target_tier is L3
        assert job.priority == Pressure(pressure).priority
        if pressure == "hard":
            assert memory.migration.jobs() == []  # done already
        memory.store.flush()
        freed = before - memory.l2.token_usage
        assert share * before <= freed < share * before + 20


def test_collecting_asks_for_room_in_every_tier(memory: LoomMemory) -> None:
    memory.add_fact("The harbour closes at nine.")
    before = memory.get_stats()
    memory.store.remove_chores(memory.migration)
    jobs = memory.migration.collect("medium")
    memory.store.add_chore(memory.migration, memory.migration.work)
    assert [job.source_tier for job in jobs] == [L4, L3, L2]
    assert {job.trigger for job in jobs} == {MigrationTrigger.GC_PRESSURE}
    memory.store.flush()
    after = memory.get_stats()
    assert after["l2_items"] < before["l2_items"]
    assert after["records"] == before["records"]


def test_under_decay_only_what_is_cold_leaves() -> None:
    with memory_at(l2_token_budget=4000) as memory:
        say(memory, range(50))
        assert memory.migration.trigger_demotion(L2, Pressure.HARD, MigrationTrigger.HOTNESS_DECAY) is None
        wait(memory, timedelta(days=60))
        assert memory.migration.trigger_demotion(L2, Pressure.HARD, MigrationTrigger.HOTNESS_DECAY) is not None
        assert "l2" not in tiers_of(memory, "n0")


def test_a_full_queue_is_worked_off_by_whoever_asks_for_more(memory: LoomMemory) -> None:
    memory.store.remove_chores(memory.migration)
    migration = Migration(memory.tiers, most_queued=3)
    for number in range(8):
        migration.trigger_promotion([f"n{number}"])
        assert len(memory.store.jobs("migrate agent")) <= 3
    assert tiers_of(memory, "n0") == ("l2",)


def test_more_than_the_queue_holds_may_be_asked_for_at_once(memory: LoomMemory) -> None:
    memory.store.remove_chores(memory.migration)
    migration = Migration(memory.tiers, most_queued=3)
    memory.store.add_chore(migration, migration.work)
    migration.trigger_promotion([f"n{number}" for number in range(5)])
    assert memory.store.flush().complete
    assert sum("l2" in tiers_of(memory, f"n{number}") for number in range(5)) == 5


def test_an_old_version_that_is_queued_does_not_come_back_for_the_new_one(memory: LoomMemory) -> None:
    memory.store.remove_chores(memory.migration)
    memory.migration.trigger_promotion(["n3"])
    memory.add_task(Task(task_id="n3", action="note", parameters={"content": "kite 3 landed"}, result="done"))
    old = memory.store.history("n3")[0]
    memory.migration.work(memory.store.transaction, True)
    assert memory.store.tiers(old.seq, "agent") == ()
    assert memory.migration.jobs() == []
    assert what_is_missing(memory) == []


def what_is_missing(memory: LoomMemory) -> list[str]:
    return list(memory.store.check(repair=False).problems)


def test_many_records_are_moved_in_batches() -> None:
    with memory_at(l2_token_budget=4000, l3_token_budget=9000) as memory:
        say(memory, range(200))
        memory.store.remove_chores(memory.migration)
        memory.l2.clear()
        ids = [f"n{number}" for number in range(150)]
        memory.migration.trigger_promotion(ids)
        more = [memory.migration.work(memory.store.transaction, False) for _ in range(3)]
        assert more == [True, True, False]  # 64, 64 and 22 of them
        assert sum("l2" in tiers_of(memory, id) for id in ids) == 150


# --- down --------------------------------------------------------------------------------------------------


def test_a_memory_goes_down_one_tier_at_a_time_and_is_still_found(memory: LoomMemory) -> None:
    memory.promote("n3")
    memory.promote("n3", to="l1")
    assert memory.demote("n3") is L2  # out of the window, into which it was brought
    assert memory.demote("n3") is L3
    assert memory.demote("n3") is L4
    assert memory.demote("n3") is None
    assert memory.demote("n3") is None
    assert memory.recall("which kite is number 3")[0].id == "n3"
    assert memory.promote("n3").moved == ("n3",)


# --- bad input ---------------------------------------------------------------------------------------------


def test_bad_input_is_refused_with_what_to_do_and_moves_nothing(memory: LoomMemory) -> None:
    before = memory.get_stats()
    with pytest.raises(NotFound, match="no memory 'nobody'"):
        memory.promote("nobody")
    with pytest.raises(InvalidInput, match="L1 or L2"):
        memory.promote("n3", to="l4")
    with pytest.raises(InvalidInput, match="does not exist; it must be one of"):
        memory.promote("n3", to="l9")
    with pytest.raises(InvalidInput, match="list"):
        memory.migration.promote("n3")
    with pytest.raises(InvalidInput, match="trigger_demotion"):
        memory.migration.trigger_promotion(["n3"], trigger=MigrationTrigger.GC_PRESSURE)
    for target, trigger in ((L2, MigrationTrigger.FOCUS_REFERENCE), (L1, MigrationTrigger.EXPLICIT_ACCESS)):
        with pytest.raises(InvalidInput, match="a focus reference leads to L1"):
            memory.migration.trigger_promotion(["n3"], target, trigger)
    with pytest.raises(InvalidInput, match="trigger_promotion"):
        memory.migration.trigger_demotion(L2, Pressure.SOFT, MigrationTrigger.FOCUS_REFERENCE)
    with pytest.raises(InvalidInput, match="pressure 'enormous' does not exist"):
        memory.migration.trigger_demotion(L2, "enormous")
    with pytest.raises(InvalidInput, match="window"):
        memory.migration.trigger_demotion(L1, Pressure.SOFT)
    after = memory.get_stats()
    assert {key: after[key] for key in before if key.endswith("items")} == {
        key: before[key] for key in before if key.endswith("items")
    }


def test_a_queued_move_that_makes_no_sense_is_dropped_and_the_others_are_done(
    memory: LoomMemory, caplog: pytest.LogCaptureFixture
) -> None:
    memory.store.remove_chores(memory.migration)
    with memory.store.transaction() as transaction:
        transaction.enqueue("migrate agent", [number_of(memory, "n1")], [9, 1, 0, 50, 0, 0])
        transaction.enqueue("migrate agent", [number_of(memory, "n1")])
    memory.migration.trigger_promotion(["n3"])
    memory.migration.work(memory.store.transaction, True)
    assert memory.store.jobs("migrate agent") == []
    assert tiers_of(memory, "n3") == ("l2",)
    assert tiers_of(memory, "n1") == ("l3",)
    assert "are not valid in this store" in caplog.text


def test_a_damaged_record_stays_where_it_is_and_the_others_come_back(full_file: Path) -> None:
    connection = sqlite3.connect(full_file)
    connection.execute("UPDATE records SET content = 'something else' WHERE id = 'n3'")
    connection.commit()
    connection.close()
    with memory_at(full_file) as memory:
        with as_sqlite(memory.store).transaction() as transaction:
            ids = {row[1]: row[0] for row in transaction.connection.execute("SELECT seq, id FROM records")}
            promoted = memory.tiers.promote_records(transaction, [ids["n2"], ids["n3"], ids["n4"]], L2, now=True)
        assert set(promoted.moved) == {ids["n2"], ids["n4"]}
        assert "checksum" in promoted.refused[ids["n3"]]
        assert tiers_of(memory, "n2") == ("l2",)


def test_a_damaged_record_does_not_keep_others_from_being_written(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with memory_at(path) as memory:
        say(memory, range(5))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE records SET content = 'something else' WHERE id = 'n0'")
    connection.commit()
    connection.close()
    with memory_at(path) as memory:
        say(memory, range(5, 40))  # n0 must leave the working tier
        assert_within_budgets(memory)
