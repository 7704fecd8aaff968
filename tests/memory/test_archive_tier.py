"""The archive tier over its whole content: what it saves, what it says, and that it can be reversed.

Requirements 44, 127, 147; C-26. `benchmarks.archive_tier` measures the same on other dialogues.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import loom
from benchmarks.archive_tier import own_turns, remember, tier_figures
from loom.storage.contract import Filter


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[loom.Memory]:
    """Twelve dialogues of ours, in English and Chinese, of which the archive holds the greater part."""
    path: Path = tmp_path_factory.mktemp("archive") / "talk.loom"
    with loom.open(path, embedder="none", derive=True, l2_token_budget=2_000) as opened:
        remember(opened, own_turns(development=False))
        yield opened


def test_the_tier_saves_more_than_ninety_percent_of_the_tokens_of_its_originals(memory: loom.Memory) -> None:
    found = tier_figures(memory)
    assert found.originals > 25_000
    assert found.saved > 0.9
    assert found.longer == 0


def test_the_monitor_and_the_counters_report_what_is_true(memory: loom.Memory) -> None:
    found = tier_figures(memory)
    counters = memory.manager.get_counters().archive
    assert (counters.compressed, counters.current) == (found.tokens, found.originals)
    stats = memory.get_stats()
    assert stats["archive_compression"] == round(found.saved, 4)
    assert stats["archive_compression_level"] == "ok"


def test_a_summary_says_who_spoke_in_the_words_that_were_said(memory: loom.Memory) -> None:
    summaries = [one for one in memory.summaries(limit=1_000) if one.faithful]
    assert len(summaries) >= 12
    readable = 0
    for summary in summaries:
        assert summary.tokens <= 0.1 * summary.original_tokens
        records = [record for source in summary.sources if (record := memory.store.get(source))]
        speakers = {record.name for record in records}
        lines = [line.replace("：", ": ", 1).partition(": ") for line in summary.text.splitlines()]
        readable += all(speaker in speakers for speaker, _, _ in lines)
    assert readable >= 0.9 * len(summaries)


def test_everything_is_in_the_log_word_for_word_and_undo_gives_the_places_back(memory: loom.Memory) -> None:
    said = sorted(turn.text for turn in own_turns(development=False))
    kept = memory.store.scan(Filter(derived=False), limit=10_000).records
    assert sorted(record.content for record in kept) == said
    (summary, *_) = memory.summaries()
    assert set(memory.undo(summary.id).restored) == set(summary.sources)
    held = {record.id for record in memory.store.scan(Filter(tier="l3"), limit=10_000).records}
    assert set(summary.sources) <= held
    assert summary.id not in held
    assert memory.check().ok


def test_the_rest_of_a_session_joins_its_summary(tmp_path: Path) -> None:
    """A session goes to the archive bit by bit; none of its turns stays beside the summary of the others."""
    budgets = {"l1_token_budget": 300, "l2_token_budget": 600}
    with loom.open(tmp_path / "a.loom", embedder="none", **budgets) as memory:  # type: ignore[arg-type]
        turns = [turn for turn in own_turns(development=False) if turn.session == "en_kitchen"]
        for turn in turns:
            memory.remember(turn.text, session_id="kitchen", name=turn.name, role=turn.role, importance=0.7)
            memory.flush()
        for number in range(60):
            text = f"Crate {number} of the harvest was weighed, and it holds {number + 20} kilos of plums."
            memory.remember(text, session_id="harvest", importance=0.7)
        memory.flush()
        of_kitchen = memory.store.scan(Filter(tier="l3", session_id="kitchen"), limit=1_000).records
        told = {source for record in of_kitchen for source in memory.store.neighbours(record.id)[0]}
        assert {record.kind for record in of_kitchen} == {"summary"}
        assert len(told) == len(turns)
        assert memory.check().ok
