"""SIGKILL between the commit of a record and the counting of its tokens: it is counted by whoever comes next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import loom
from loom.everyday import Memory
from tests.crash.processes import Child, assert_sound, unique_word

LEASE_S = 0.2
COUNT_SOME = "loom.storage.sqlite.maintenance:Maintenance._count_some"
COUNT = "loom.storage.sqlite.maintenance:Maintenance._count"
ADVANCE = "loom.storage.sqlite.maintenance:advance"  # in the transaction that puts the counts in, after them

STEPS = [
    (COUNT_SOME, "before", 1, 3),
    (COUNT, "before", 5, 6),
    (ADVANCE, "before", 2, 6),
    (ADVANCE, "after", 2, 6),
    (COUNT_SOME, "after", 1, 3),
]


def sizes(memory: Memory) -> dict[str, int]:
    return {record.content: record.tokens for record in memory.list(limit=1000).records}


def uncounted(memory: Memory) -> int:
    with memory.store._engine.read() as connection:
        return int(connection.execute("SELECT count(*) FROM records WHERE tokens < 0").fetchone()[0])


@pytest.mark.parametrize(("target", "when", "call", "written"), STEPS)
def test_a_kill_before_the_count_costs_no_count(
    tmp_path: Path, target: str, when: str, call: int, written: int
) -> None:
    path = tmp_path / "agent.loom"
    step: dict[str, Any] = {"target": target, "when": when, "call": call}
    with Child("write_unnamed_and_flush", path=str(path), first=0, count=30, armed=step, lease_s=LEASE_S) as child:
        assert len(child.wait_for_death()) == written
    texts = [f"{unique_word(number)} 写下来 and nothing decided" for number in range(written)]
    with loom.open(path, embedder="none", lease_s=LEASE_S) as memory:
        expected = {text: memory.counter.count(text) for text in texts}
        assert uncounted(memory) in (0, 3)
        for _ in range(2):
            assert sizes(memory) == expected
            assert memory.get_stats()["tokens"] == memory.get_stats()["l1_token_usage"] == sum(expected.values())
            assert_sound(memory)
            assert memory.flush().complete
        assert uncounted(memory) == 0
