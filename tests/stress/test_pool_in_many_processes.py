"""A pool in a file that several processes share: no increment is lost, and a watch sees the end of it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

import loom
from loom.memory import SharedMemoryPool
from tests.crash.pool_children import PoolChild
from tests.crash.processes import assert_sound
from tests.tally import scaled


def counted(path: Path, processes: int, times: int) -> None:
    total = processes * times
    with contextlib.ExitStack() as stack:
        follower = stack.enter_context(PoolChild("follow", path=str(path), prefix="count", until=total))
        assert follower.line() == "open"
        counters = [
            stack.enter_context(
                PoolChild("count", path=str(path), key="counter", writer=f"process {number}", times=times)
            )
            for number in range(processes)
        ]
        made = [[int(line) for line in counter.finish()[1:]] for counter in counters]
        seen = [int(line) for line in follower.finish()]
    # Every increment made a version of its own, and each process saw its own grow.
    assert sorted(version for versions in made for version in versions) == list(range(1, total + 1))
    assert all(versions == sorted(versions) for versions in made)
    assert seen == sorted(set(seen))
    assert seen[-1] == total
    with SharedMemoryPool("team", store=path) as pool:
        entry = asyncio.run(pool.read("counter"))
        assert entry is not None
        assert (entry.content, entry.version) == (total, total)
        history = asyncio.run(pool.history("counter"))
    assert [one.content for one in history] == list(range(1, total + 1))
    writers = [one.updated_by for one in history]
    for number, versions in enumerate(made):
        assert {writers[version - 1] for version in versions} == {f"process {number}"}
    with loom.open(path, embedder="none") as memory:
        assert_sound(memory)


def test_eight_processes_count_exactly(tmp_path: Path) -> None:
    counted(tmp_path / "pool.loom", 8, 25)


@pytest.mark.soak
def test_eight_processes_count_to_eight_thousand(tmp_path: Path) -> None:
    counted(tmp_path / "pool.loom", 8, scaled(1000))
