"""SIGKILL at random moments while writing: every acknowledged record is found by `get` and `recall`, and `check`
finds no problem."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from tests.crash.processes import Child, assert_found, assert_sound, unique_word
from tests.tally import scaled

BATCH = 12
# The lease of a killed process soon ends, so that no process waits for it in the next round.
LEASE_S = 0.2


def kill_at_a_random_moment(child: Child, chance: random.Random, most: int) -> list[str]:
    """Let a writer get some acknowledgements, continue for some milliseconds, and die. Returns the acknowledged
    writes."""
    acknowledged = [child.line() for _ in range(chance.randint(1, most))]
    time.sleep(chance.random() * 0.01)  # chooses the moment; waits for nothing
    return acknowledged + child.kill()


def reopened(path: Path, index_tail_records: int = 2000, seed_of_embedder: int | None = None) -> Memory:
    embedder = "none" if seed_of_embedder is None else FakeEmbedder(dimensions=16, seed=seed_of_embedder)
    return loom.open(path, embedder=embedder, index_tail_records=index_tail_records, lease_s=LEASE_S)


def rounds_one_by_one(path: Path, rounds: int, seed: int, **options: Any) -> None:
    chance = random.Random(seed)
    acknowledged: dict[str, str] = {}
    first = 0
    for _ in range(rounds):
        with Child(
            "write_one_by_one", path=str(path), first=first, count=100_000, lease_s=LEASE_S, **options
        ) as child:
            numbers = [int(line) for line in kill_at_a_random_moment(child, chance, 60)]
        new = {f"one-{number}": f"{unique_word(number)} written alone" for number in numbers}
        acknowledged |= new
        with reopened(path, options.get("index_tail_records", 2000)) as memory:
            assert_found(memory, new)
            assert_found(memory, dict(chance.sample(sorted(acknowledged.items()), min(20, len(acknowledged)))))
            assert_sound(memory)
            # One write more than was acknowledged may be there: it was committed, and the kill came before the line.
            first = numbers[-1] + 1
            extra = memory.get(f"one-{first}")
            if extra is not None:
                acknowledged[extra.id] = extra.content
                first += 1
            assert memory.get(f"one-{first}") is None
            assert memory.get_stats()["records"] == len(acknowledged)


def rounds_in_batches(path: Path, rounds: int, seed: int, **options: Any) -> None:
    chance = random.Random(seed)
    whole: set[int] = set()
    first = 0
    for _ in range(rounds):
        arguments = {"first": first, "count": 100_000, "size": BATCH, "lease_s": LEASE_S, **options}
        with Child("write_batches", path=str(path), **arguments) as child:
            batches = [int(line) for line in kill_at_a_random_moment(child, chance, 25)]
        whole.update(batches)
        with reopened(path, options.get("index_tail_records", 2000)) as memory:
            for batch in batches:
                assert_found(memory, texts_of_batch(batch))
            assert_found(memory, texts_of_batch(chance.choice(sorted(whole))))
            assert_sound(memory)
            first = batches[-1] + 1
            extra = len(memory.list(session_id=f"batch-{first}", limit=BATCH + 1).records)
            assert extra in (0, BATCH), f"batch {first} was written in part"
            if extra:
                whole.add(first)
                first += 1
            assert memory.get_stats()["records"] == len(whole) * BATCH


def texts_of_batch(batch: int) -> dict[str, str]:
    return {
        f"batch-{batch}-{place}": f"{unique_word(batch * BATCH + place)} written together" for place in range(BATCH)
    }


@pytest.mark.parametrize("seed", range(2))
def test_single_writes_survive_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    rounds_one_by_one(tmp_path / "agent.loom", rounds=4, seed=seed)


@pytest.mark.parametrize("seed", range(2))
def test_single_writes_survive_kills_while_the_worker_builds_and_merges(tmp_path: Path, seed: int) -> None:
    rounds_one_by_one(tmp_path / "agent.loom", rounds=4, seed=seed, index_tail_records=3)


@pytest.mark.parametrize("seed", range(2))
def test_batches_survive_kills_whole_or_not_at_all(tmp_path: Path, seed: int) -> None:
    rounds_in_batches(tmp_path / "agent.loom", rounds=3, seed=seed)


def test_batches_survive_kills_while_the_worker_builds_and_merges(tmp_path: Path) -> None:
    rounds_in_batches(tmp_path / "agent.loom", rounds=4, seed=7, index_tail_records=5)


def test_every_record_is_embedded_after_kills_while_embedding(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    rounds_one_by_one(path, rounds=4, seed=3, seed_of_embedder=0, index_tail_records=4)
    with reopened(path, index_tail_records=4, seed_of_embedder=0) as memory:
        assert memory.flush().complete
        stats = memory.get_stats()
        assert stats["vectors"] == stats["records"]
        assert_sound(memory)


def test_writes_with_fsync_survive_kills(tmp_path: Path) -> None:
    rounds_one_by_one(tmp_path / "agent.loom", rounds=2, seed=11, durability="fsync")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 112))
def test_hundreds_of_kills_on_one_file_lose_nothing(tmp_path: Path, seed: int) -> None:
    """250 kills each, 3,000 in all."""
    rounds_one_by_one(tmp_path / "alone.loom", rounds=scaled(100), seed=seed, index_tail_records=1 + seed % 7)
    rounds_one_by_one(
        tmp_path / "embedded.loom", rounds=scaled(50), seed=seed, index_tail_records=5, seed_of_embedder=0
    )
    rounds_in_batches(tmp_path / "together.loom", rounds=scaled(100), seed=seed, index_tail_records=1 + seed % 11)
