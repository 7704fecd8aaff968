"""After any sequence of facts, summaries, merges, undos, forgetting and restarts, every original is byte for byte
there, every derived record names existing sources, and contains nothing that was forgotten."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import loom
from loom.memory import CompactionConfig
from loom.storage.contract import Filter
from tests.postgres_server import new_store_url

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
BUDGETS: dict[str, Any] = {f"l{tier}_token_budget": tokens for tier, tokens in enumerate((120, 200, 400, 600), 1)}
CITIES = ("Berlin", "Paris", "Oslo")
SAID = (
    "We decided to use port {mark} for the gateway because the old one is taken.",
    "The build failed with TimeoutError{mark}; raising the limit fixed it, so that is settled.",
    "我们决定使用方案{mark}，因为成本最低。",
    "I live in {city}, quite close to the station, and my badge says {mark}.",
    "Well, let me think about that for a while, it is late and nobody knows, number {mark} or not.",
)


class Knowing(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.place = self.new_place()
        self.marks: dict[str, str] = {}
        self.said: dict[str, str] = {}
        self.gone: list[str] = []
        self.count = 0
        self.reopen_as()

    def new_place(self) -> Path | str:
        """The location of the memory."""
        return Path(self.folder.name) / "a.loom"

    def reopen_as(self) -> None:
        config = CompactionConfig(trigger_threshold=0.6, target_ratio=0.3, fidelity_threshold=0.2)
        self.memory = loom.open(self.place, embedder="none", compaction=config, l4_fact_limit=6, **BUDGETS)

    @rule(
        which=st.lists(st.integers(0, len(SAID) - 1), min_size=1, max_size=12),
        city=st.sampled_from(CITIES),
        session=st.sampled_from(("s1", "s2")),
    )
    def remember(self, which: list[int], city: str, session: str) -> None:
        for one in which:
            self.count += 1
            mark = f"{7_000_000 + self.count * 137}"
            text = SAID[one].format(mark=mark, city=city)
            at = MONDAY + timedelta(minutes=self.count)
            receipt = self.memory.remember(text, name="Ana", session_id=session, importance=0.7, created_at=at)
            self.said[receipt.id], self.marks[receipt.id] = text, mark

    @rule()
    def settle(self) -> None:
        self.memory.flush()

    @rule()
    def compact(self) -> None:
        self.memory.compact()

    @rule(place=st.integers(0, 50))
    def undo(self, place: int) -> None:
        page = self.memory.store.scan(Filter(derived=True), limit=1000)
        if page.records:
            self.memory.undo(page.records[place % len(page.records)].id)

    @rule(place=st.integers(0, 200))
    def forget(self, place: int) -> None:
        if self.said:
            chosen = sorted(self.said)[place % len(self.said)]
            assert self.memory.forget(chosen)
            del self.said[chosen]
            self.gone.append(self.marks.pop(chosen))

    @rule()
    def archive(self) -> None:
        self.memory.archive()

    @rule()
    def reopen(self) -> None:
        self.memory.close()
        self.reopen_as()

    @invariant()
    def every_original_is_there(self) -> None:
        page = self.memory.store.scan(Filter(derived=False, history=True), limit=10_000)
        assert {record.id: record.content for record in page.records} == self.said

    @invariant()
    def everything_drawn_names_sources_that_exist_and_nothing_forgotten(self) -> None:
        page = self.memory.store.scan(Filter(derived=True, history=True), limit=10_000)
        for record in page.records:
            sources, _ = self.memory.store.neighbours(record.id)
            assert sources
            assert all(self.memory.store.get(source) is not None for source in sources)
            assert not any(mark in record.content for mark in self.gone)

    @invariant()
    def tiers_keep_to_their_budgets(self) -> None:
        stats = self.memory.get_stats()
        for tier in ("l1", "l2", "l3", "l4"):
            assert stats[f"{tier}_token_usage"] <= stats[f"{tier}_token_budget"]

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            assert self.memory.check().ok
            self.memory.close()
            self.folder.cleanup()


Knowing.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestKnowing = Knowing.TestCase


class KnowingOnPostgres(Knowing):
    def new_place(self) -> Path | str:
        return new_store_url(Path(self.folder.name))


@pytest.mark.usefixtures("postgres_server")
class TestKnowingOnPostgres(KnowingOnPostgres.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(Knowing.TestCase.settings, max_examples=4)
