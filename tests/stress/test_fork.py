"""Forking with a store open: both sides read and write, nothing is lost, and neither harms the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import loom
from tests.crash.processes import Child, assert_sound
from tests.tally import count, scaled


def told(lines: list[str]) -> dict[str, str]:
    pairs = [json.loads(line) for line in lines]
    written = dict(pairs)
    assert len(written) == len(pairs), "two writes got the same id"
    return written


def assert_all_there(path: Path, written: dict[str, str]) -> None:
    count(written=len(written))
    with loom.open(path, embedder="none", lease_s=0.2) as memory:
        for name, text in written.items():
            record = memory.get(name)
            count(lost=record is None)
            assert record is not None, f"acknowledged and gone: {text}"
            assert record.content == text
        forked = [text for text in written.values() if not text.startswith("thread-")]
        for text in [*forked, *list(written.values())[::50]]:
            assert text in [hit.content for hit in memory.recall(text, limit=10)]
        assert memory.get_stats()["records"] == len(written)
        assert_sound(memory)


@pytest.mark.parametrize("parent_closes_first", [False, True])
@pytest.mark.parametrize("ending", ["leave", "close", "kill"])
def test_parent_and_forked_child_both_write_and_nothing_is_lost(
    tmp_path: Path, ending: str, parent_closes_first: bool
) -> None:
    path = tmp_path / "agent.loom"
    arguments = {"count": 8, "ending": ending, "parent_closes_first": parent_closes_first, "index_tail_records": 5}
    with Child("fork_and_write", path=str(path), lease_s=0.2, **arguments) as child:
        written = told(child.finish())
    assert len(written) == 3 + 8 * (3 if parent_closes_first else 4)
    assert_all_there(path, written)


@pytest.mark.parametrize("seed_of_embedder", [None, 0])
def test_forks_while_threads_write_recall_and_index_lose_nothing(
    tmp_path: Path, seed_of_embedder: int | None
) -> None:
    path = tmp_path / "agent.loom"
    arguments = {"forks": 8, "count": 4, "index_tail_records": 3, "lease_s": 0.5}
    with Child("fork_while_busy", path=str(path), seed_of_embedder=seed_of_embedder, **arguments) as child:
        written = told(child.finish())
    assert sum(text.startswith("fork-") for text in written.values()) == 8 * 4
    assert_all_there(path, written)


@pytest.mark.soak
def test_many_forks_while_threads_write_recall_and_index_lose_nothing(tmp_path: Path) -> None:
    for number in range(scaled(20)):
        path = tmp_path / f"agent-{number}.loom"
        arguments = {"forks": min(60, scaled(1200)), "count": 3, "index_tail_records": 25, "lease_s": 0.5}
        with Child("fork_while_busy", path=str(path), seed_of_embedder=0, **arguments) as child:
            written = told(child.finish())
        assert_all_there(path, written)
