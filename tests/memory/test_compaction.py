"""Summaries in the place of stand-ins: when, how faithful, and how they are undone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import InvalidInput
from loom.memory import CompactionConfig, InMemorySegmentStore, LogSegmentStore, MemoryCompactor, MemorySegment
from loom.storage.contract import Filter
from tests.storage.plain_store import PlainStore

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
BUDGETS: dict[str, Any] = {"l1_token_budget": 300, "l2_token_budget": 400, "l3_token_budget": 2_000}


@pytest.fixture(params=["sqlite", "plain"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[loom.Memory]:
    config = CompactionConfig(enabled=False, target_ratio=0.2)  # only when it is asked for here
    store = PlainStore() if request.param == "plain" else tmp_path / "a.loom"
    with loom.Memory(store=store, embedder="none", compaction=config, **BUDGETS) as opened:
        yield opened


def talk(memory: loom.Memory, turns: int = 60, session_id: str = "s1", cluster: str = "BLUE") -> list[str]:
    """A working day: decisions and errors among a lot of talk, all of it important enough for the working tier."""
    ids = []
    for number in range(turns):
        text = {
            0: f"We decided to run job {number} on {cluster.format(number)} because the red one has no room left.",
            1: f"Job {number} failed with TimeoutError after {number + 30} s; raising the limit to 120 fixed it.",
            2: "Right, let me think about this for a moment, I am not sure yet what we could do, it is a long day.",
            3: "Okay! That sounds fine to me, thanks a lot, and by the way the coffee here has become really good.",
        }[number % 4]
        receipt = memory.remember(
            text,
            role="user",
            name="Ana",
            session_id=session_id,
            importance=0.7,
            created_at=MONDAY + timedelta(minutes=number),
        )
        ids.append(receipt.id)
    return ids


def originals(memory: loom.Memory) -> dict[str, str]:
    page = memory.store.scan(Filter(derived=False, history=True), limit=10_000)
    return {record.id: record.content for record in page.records}


def in_archive(memory: loom.Memory) -> set[str]:
    page = memory.store.scan(Filter(tier="l3"), limit=10_000)
    return {record.id for record in page.records}


def test_a_summary_takes_the_places_of_what_it_was_made_from_at_a_tenth_of_the_tokens(memory: loom.Memory) -> None:
    talk(memory)
    before, usage = in_archive(memory), memory.get_stats()["l3_token_usage"]
    result = memory.compact()
    assert result.summaries
    for summary in memory.summaries():
        assert summary.faithful
        assert summary.tokens <= 0.1 * summary.original_tokens
        assert set(summary.sources) <= before
        assert not set(summary.sources) & in_archive(memory)
        assert summary.id in in_archive(memory)
    assert memory.get_stats()["l3_token_usage"] == result.tokens_after < usage
    assert memory.check().ok


def test_the_originals_are_all_there_and_recalled(memory: loom.Memory) -> None:
    talk(memory)
    before = originals(memory)
    memory.compact()
    assert originals(memory) == before
    assert memory.recall("job 13 failed TimeoutError")[0].content.startswith("Job 13 failed")


def test_undo_gives_everyone_their_place_back(memory: loom.Memory) -> None:
    talk(memory)
    memory.compact()
    (summary, *_) = memory.summaries()
    undone = memory.undo(summary.id)
    assert set(undone.restored) == set(summary.sources)
    assert set(summary.sources) <= in_archive(memory)
    assert summary.id not in in_archive(memory)
    assert summary.id not in [one.id for one in memory.summaries()]
    assert summary.id in [one.id for one in memory.summaries(history=True)]


def test_what_was_undone_is_not_summarised_again(memory: loom.Memory) -> None:
    talk(memory)
    memory.compact()
    restored: set[str] = set()
    for summary in memory.summaries():
        restored |= set(memory.undo(summary.id).restored)
    memory.compact()
    assert not restored & {source for summary in memory.summaries() for source in summary.sources}


def test_forgetting_a_source_takes_the_summary_and_the_others_come_back(memory: loom.Memory) -> None:
    talk(memory)
    memory.compact()
    (summary, *_) = memory.summaries()
    gone, *rest = summary.sources
    receipt = memory.forget(gone)
    assert receipt.derived >= 1
    memory.flush()
    assert memory.get(summary.id) is None
    assert set(rest) <= in_archive(memory)


def test_a_summary_is_made_again_when_one_of_its_sources_gets_a_new_version(memory: loom.Memory) -> None:
    ids = talk(memory)
    (old, *_) = memory.compact().summaries
    told = next(summary for summary in memory.summaries() if summary.id == old)
    changed = next(id for id in ids if id in told.sources and "BLUE" in told.text)
    for id in [one for one in told.sources if "BLUE" in memory.store.get(one).content]:  # type: ignore[union-attr]
        memory.update(id, memory.store.get(id).content.replace("BLUE", "GREEN"))  # type: ignore[union-attr]
    memory.flush()
    now = {summary.id: summary for summary in memory.summaries() if changed in summary.sources}
    assert old not in now
    assert len(now) == 1
    (new,) = now.values()
    assert "GREEN" in new.text
    assert "BLUE" not in new.text
    assert set(new.sources) == set(told.sources)
    assert new.tokens <= 0.1 * new.original_tokens
    assert old not in in_archive(memory)
    assert new.id in in_archive(memory)
    assert old in {summary.id for summary in memory.summaries(history=True)}
    assert memory.check().ok


def test_one_that_keeps_too_little_is_kept_beside_and_replaces_nothing(tmp_path: Path) -> None:
    config = CompactionConfig(enabled=False, target_ratio=0.2, fidelity_threshold=1.0)
    with loom.open(tmp_path / "a.loom", embedder="none", compaction=config, **BUDGETS) as memory:
        talk(memory, cluster="BLUE_{}")  # more names than a tenth of the tokens can hold
        before = in_archive(memory)
        result = memory.compact()
        assert result.rejected
        assert not result.summaries
        assert in_archive(memory) == before
        (rejected, *_) = memory.summaries(history=True)
        assert not rejected.faithful
        assert 0.0 <= rejected.fidelity < 1.0
        assert memory.summaries() == []
        assert memory.compact().rejected == ()  # not tried again


def test_a_memory_compacts_by_itself_when_its_archive_is_nearly_full(tmp_path: Path) -> None:
    config = CompactionConfig(trigger_threshold=0.5, target_ratio=0.3)
    with loom.open(tmp_path / "a.loom", embedder="none", compaction=config, **BUDGETS) as memory:
        talk(memory, 80)
        memory.flush()
        assert memory.summaries()
        assert memory.get_stats()["l3_token_usage"] <= 0.5 * 2_000


def test_blocks_are_summarised_before_the_archive_is_full_and_a_few_at_a_time(memory: loom.Memory) -> None:
    talk(memory, 150)
    assert not memory.compactor.should_compact()
    assert memory.compactor.may_have_blocks()
    (first,) = memory.compactor.compact(most=1).summaries
    assert memory.compactor.may_have_blocks()
    others = memory.compactor.compact().summaries
    assert others
    assert first not in others
    assert not memory.compactor.may_have_blocks()


def test_nothing_happens_below_the_trigger(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        talk(memory, 20)
        memory.flush()
        assert memory.summaries(history=True) == []


def test_sessions_are_not_mixed(memory: loom.Memory) -> None:
    talk(memory, 40, "s1")
    talk(memory, 40, "s2")
    memory.compact()
    for summary in memory.summaries():
        sessions = {record.session_id for source in summary.sources if (record := memory.store.get(source))}
        assert sessions == {summary.session_id}


def test_what_is_less_important_than_asked_is_not_in_a_summary(tmp_path: Path) -> None:
    config = CompactionConfig(enabled=False, target_ratio=0.2, min_importance=0.8, fidelity_threshold=0.0)
    with loom.open(tmp_path / "a.loom", embedder="none", compaction=config, **BUDGETS) as memory:
        for number in range(90):
            memory.remember(f"The crates of apples came on day {number}.", session_id="s1", importance=0.9)
            # By its words alone this one matters more.
            memory.remember(f"We decided to buy {number} oranges at 3 euros.", session_id="s1", importance=0.7)
        memory.compact()
        texts = " ".join(summary.text for summary in memory.summaries())
        assert "apples" in texts
        assert "oranges" not in texts


def test_the_compactor_of_the_documents_runs_as_it_stands(memory: loom.Memory) -> None:
    talk(memory)
    manager, counter, segment_store = memory.manager, memory.counter, InMemorySegmentStore()
    compactor = MemoryCompactor(
        config=CompactionConfig(
            trigger_threshold=0.8,
            target_ratio=0.6,
            min_importance=0.3,
        ),
        memory_manager=manager,
        token_counter=counter,
        segment_store=segment_store,
    )
    assert compactor.should_compact() == (memory.get_stats()["l3_token_usage"] >= 1_600)
    result = compactor.compact()
    assert memory.summaries()
    for summary in memory.summaries():
        segments = segment_store.retrieve(summary.sources)
        assert [segment.content for segment in segments] == [originals(memory)[one] for one in summary.sources]
    assert result.tokens_after <= result.tokens_before


@pytest.mark.parametrize(
    "wrong",
    [
        {"trigger_threshold": 0.5, "target_ratio": 0.6},
        {"trigger_threshold": 1.5},
        {"target_ratio": 0.0},
        {"min_importance": 2.0},
        {"cooldown_seconds": -1.0},
    ],
)
def test_a_config_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        CompactionConfig(**wrong)  # type: ignore[arg-type]


class TestSegments:
    def test_the_log_gives_back_whatever_was_remembered(self, memory: loom.Memory) -> None:
        ids = talk(memory, 4)
        segments = LogSegmentStore(memory.store).retrieve([*ids, "unknown"])
        assert [segment.segment_id for segment in segments] == ids

    def test_what_is_stored_lasts_and_is_cleaned_up_by_age(self, memory: loom.Memory) -> None:
        ids = talk(memory, 4)
        store = LogSegmentStore(memory.store)
        old = MemorySegment(content="an old segment", timestamp=MONDAY - timedelta(days=9), task_id="t1")
        new = MemorySegment(content="a new segment", timestamp=MONDAY)
        for segment in (old, new):
            store.store(segment)
            store.store(segment)  # again: nothing changes
        assert store.retrieve([old.segment_id])[0].task_id == "t1"
        assert store.cleanup(MONDAY - timedelta(days=1)) == 1
        assert store.retrieve([old.segment_id]) == []
        assert len(store.retrieve([new.segment_id, *ids])) == 5

    def test_those_in_memory_do_the_same(self) -> None:
        store = InMemorySegmentStore()
        old = MemorySegment(content="old", timestamp=MONDAY)
        store.store(old)
        assert store.retrieve([old.segment_id, "unknown"]) == [old]
        assert store.cleanup(MONDAY + timedelta(days=1)) == 1
        assert store.retrieve([old.segment_id]) == []
