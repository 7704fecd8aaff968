"""SIGKILL between the commit of a record and the counting of its tokens: the next process counts it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import loom
from loom.everyday import Memory
from tests.crash.processes import Child, Point, assert_sound, named, point, unique_word

LEASE_S = 0.2

STEPS = [
    (point("counting.batch", "before"), 3),
    (point("counting.record", "before", 5), 6),
    (point("counting.note", "before", 2), 6),  # in the transaction that puts the counts in, after them
    (point("counting.note", "after", 2), 6),
    (point("counting.batch", "after"), 3),
]


def sizes(memory: Memory) -> dict[str, int]:
    return {record.content: record.tokens for record in memory.list(limit=1000).records}


def uncounted(path: Path) -> int:
    """The number of uncounted rows, in a file that no process has open."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM records WHERE tokens < 0").fetchone()[0])


@pytest.mark.parametrize(("step", "written"), STEPS, ids=named)
def test_a_kill_before_the_count_costs_no_count(tmp_path: Path, step: Point, written: int) -> None:
    path = tmp_path / "agent.loom"
    with Child("write_unnamed_and_flush", path=str(path), first=0, count=30, armed=step, lease_s=LEASE_S) as child:
        assert len(child.wait_for_death()) == written
    texts = [f"{unique_word(number)} 写下来 and nothing decided" for number in range(written)]
    assert uncounted(path) in (0, 3)
    with loom.open(path, embedder="none", lease_s=LEASE_S) as memory:
        expected = {text: memory.counter.count(text) for text in texts}
        for _ in range(2):
            assert sizes(memory) == expected
            assert memory.get_stats()["tokens"] == memory.get_stats()["l1_token_usage"] == sum(expected.values())
            assert_sound(memory)
            assert memory.flush().complete
    assert uncounted(path) == 0
