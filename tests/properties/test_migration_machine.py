"""Promotions, demotions and their jobs in any order: budgets hold, each record has one place, and nothing is lost."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loom.memory.core import LoomMemory
from loom.protocol import Task
from loom.storage.contract import FOCUS, Filter
from loom.tiers.jobs import MigrationTrigger
from tests.crash.tier_children import what_is_wrong

BUDGETS = ((60, 120, 90, 150), (30, 50, 40, 60), (200, 300, 150, 400), (12, 400, 25, 15), (1, 1, 1, 1))
SIZES = st.sampled_from([1, 1, 1, 6, 20, 45, 110])
NUMBERS = st.integers(0, 11)
LATER = st.sampled_from([timedelta(), timedelta(seconds=30), timedelta(minutes=2), timedelta(days=20)])
DOWN = [MigrationTrigger.CAPACITY_PRESSURE, MigrationTrigger.HOTNESS_DECAY, MigrationTrigger.GC_PRESSURE]


class Migrating(RuleBasedStateMachine):
    """A memory with tiny tiers, whose background work is done when a rule says so."""

    @initialize(budgets=st.sampled_from(BUDGETS), profile=st.sampled_from(["loom", "lcr", "chat", "task"]))
    def open(self, budgets: tuple[int, int, int, int], profile: str) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "agent.loom"
        self.options = {f"l{tier}_token_budget": budget for tier, budget in enumerate(budgets, 1)}
        self.profile = profile
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.written: dict[str, str] = {}
        self.memory = self._opened()

    def _clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def _opened(self) -> LoomMemory:
        memory = LoomMemory(
            "agent",
            store=self.path,
            embedder="none",
            derive=False,
            clock=self._clock,
            profile=self.profile,
            reconfigure=True,
            l1_token_budget=self.options["l1_token_budget"],
            l2_token_budget=self.options["l2_token_budget"],
            l3_token_budget=self.options["l3_token_budget"],
            l4_token_budget=self.options["l4_token_budget"],
        )
        memory.store.remove_chores(memory.migration)
        return memory

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.memory.close()
            shutil.rmtree(self.folder)

    def _known(self, number: int) -> str | None:
        ids = sorted(self.written)
        return ids[number % len(ids)] if ids else None

    @rule(number=NUMBERS, size=SIZES, importance=st.sampled_from([0.1, 0.5, 0.8, 0.9]), later=LATER)
    def write(self, number: int, size: int, importance: float, later: timedelta) -> None:
        self.now += later
        id = f"n{number}"
        if id not in self.written:
            words = f"kite {number} " + "harbour 港口 " * size
            self.memory.add_task(
                Task(task_id=id, action="note", parameters={"content": words}), importance=importance
            )
            self.written[id] = words

    @rule(number=NUMBERS, to=st.sampled_from(["l1", "l2"]))
    def promote(self, number: int, to: str) -> None:
        id = self._known(number)
        if id is not None:
            done = self.memory.promote(id, to=to)
            assert bool(done.moved) != bool(done.refused)
            if done.moved:
                record = self.memory.store.get(id)
                assert record is not None
                assert to in self.memory.store.tiers(record.seq, "agent")

    @rule(number=NUMBERS)
    def use(self, number: int) -> None:
        id = self._known(number)
        if id is not None:
            assert self.memory.get(id) is not None

    @rule(number=NUMBERS)
    def demote(self, number: int) -> None:
        id = self._known(number)
        if id is not None:
            self.memory.demote(id)

    @rule(number=NUMBERS, focus=st.booleans())
    def queue(self, number: int, focus: bool) -> None:
        id = self._known(number)
        if id is not None and focus:
            self.memory.migration.trigger_promotion([id], "l1", MigrationTrigger.FOCUS_REFERENCE)
        elif id is not None:
            record = self.memory.store.get(id)
            assert record is not None
            self.memory.migration.preload({record.seq: 0.9})

    @rule(
        tier=st.sampled_from(["l2", "l3", "l4"]),
        pressure=st.sampled_from(["soft", "medium", "hard"]),
        why=st.sampled_from(DOWN),
    )
    def press(self, tier: str, pressure: str, why: MigrationTrigger) -> None:
        self.memory.migration.trigger_demotion(tier, pressure, why)

    @precondition(lambda self: self.memory.migration.jobs())
    @rule()
    def work(self) -> None:
        self.memory.migration.work(self.memory.store.transaction, False)

    @rule(number=NUMBERS)
    def forget(self, number: int) -> None:
        id = self._known(number)
        if id is not None:
            self.memory.store.forget(Filter(ids=[id], history=True))
            del self.written[id]

    @rule(budgets=st.sampled_from(BUDGETS))
    def reopen(self, budgets: tuple[int, int, int, int]) -> None:
        self.memory.close()
        self.options = {f"l{tier}_token_budget": budget for tier, budget in enumerate(budgets, 1)}
        self.memory = self._opened()

    @rule()
    def clear_the_window(self) -> None:
        self.memory.l1.clear()
        assert self.memory.l1.size() == 0

    @invariant()
    def budgets_hold_and_nothing_is_lost(self) -> None:
        if not hasattr(self, "memory"):
            return
        assert what_is_wrong(self.path) == []
        focused = self.memory.store.usage("agent").get(FOCUS)
        assert focused is None or focused.tokens <= self.options["l1_token_budget"] // 4
        jobs = self.memory.migration.jobs()
        assert [job.priority for job in jobs] == sorted((job.priority for job in jobs), reverse=True)
        assert all(id in self.written for job in jobs for id in job.context_ids)
        for id, words in self.written.items():
            record = self.memory.store.get(id)
            assert record is not None
            assert words in record.content


TestMigrating = Migrating.TestCase
TestMigrating.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
