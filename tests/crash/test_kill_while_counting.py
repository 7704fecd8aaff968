"""SIGKILL among processes that count in one pool: every acknowledged increment is there, and none twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

import pytest

import loom
from loom.memory import SharedMemoryPool
from tests.crash.pool_children import PoolChild
from tests.crash.processes import assert_sound
from tests.tally import scaled


def rounds_of_kills(path: Path, rounds: int, processes: int, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged: dict[int, str] = {}
    for number in range(rounds):
        with contextlib.ExitStack() as stack:
            counters = {
                writer: stack.enter_context(
                    PoolChild("count", path=str(path), key="counter", writer=writer, times=1_000_000)
                )
                for writer in (f"{number}.{one}" for one in range(processes))
            }
            for counter in counters.values():
                assert counter.line() == "open"
            for writer, counter in chance.sample(sorted(counters.items()), processes):
                told = [counter.line() for _ in range(chance.randint(1, 6))]
                time.sleep(chance.random() * 0.01)  # chooses the moment; waits for nothing
                told += counter.kill()
                for line in told:
                    assert int(line) not in acknowledged
                    acknowledged[int(line)] = writer
        with SharedMemoryPool("team", store=path) as pool:
            history = {one.version: one for one in asyncio.run(pool.history("counter"))}
            entry = asyncio.run(pool.read("counter"))
        assert entry is not None
        # One more than was acknowledged may be there for each process that was killed.
        assert len(acknowledged) <= entry.content <= len(acknowledged) + (number + 1) * processes
        assert entry.content == entry.version == len(history)
        for version, writer in acknowledged.items():
            assert (history[version].updated_by, history[version].content) == (writer, version)
    with loom.open(path, embedder="none", lease_s=0.2) as memory:
        assert_sound(memory)


def test_every_acknowledged_increment_survives_kills(tmp_path: Path) -> None:
    rounds_of_kills(tmp_path / "pool.loom", 2, 4, seed=8)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_every_acknowledged_increment_survives_hundreds_of_kills(tmp_path: Path, seed: int) -> None:
    rounds_of_kills(tmp_path / "pool.loom", scaled(40), 8, seed)
