"""More facts than the knowledge tier should have: which are merged, which leave the tier, and that none is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom.storage.contract import Filter, Vector


class ByTopic:
    """An embedder for which texts about one topic, told by their first word, mean nearly the same."""

    name = "by-topic"
    dimensions = 64

    def embed(self, text: str) -> Vector:
        vector: Vector = self.embed_batch([text])[0]
        return vector

    def embed_batch(self, texts: Sequence[str]) -> Vector:
        return np.array([self._one(text) for text in texts], dtype=np.float32)

    def _one(self, text: str) -> Any:
        topic = text.split(maxsplit=1)[0].casefold()
        seed = sum(ord(letter) * (place + 1) for place, letter in enumerate(topic))
        vector = np.random.default_rng(seed).normal(size=self.dimensions)
        noise = np.random.default_rng(len(text)).normal(size=self.dimensions) * 0.05
        return (vector + noise) / np.linalg.norm(vector + noise)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[loom.Memory]:
    with loom.open(tmp_path / "a.loom", embedder=ByTopic(), l4_fact_limit=10) as opened:
        yield opened


SAID = (
    "caching makes reads of the catalogue quick",
    "caching is done in front of the catalogue",
    "caching of the catalogue spares the database",
    "caching keeps the catalogue near its readers",
)
TOPICS = ("deploys", "backups", "tests", "reviews", "logs", "alerts", "docs", "tokens", "queues")


def add(memory: loom.Memory, texts: Sequence[str]) -> list[str]:
    return [memory.manager.add_fact(text, confidence=0.7).id for text in texts]


def in_tier(memory: loom.Memory) -> list[str]:
    page = memory.store.scan(Filter(tier="l4", kind="fact"), limit=1000)
    return [record.id for record in page.records]


def settle(memory: loom.Memory) -> None:
    memory.flush()
    memory.flush()


def test_facts_that_say_the_same_become_one_that_uses_them_all(memory: loom.Memory) -> None:
    members = add(memory, SAID)
    others = add(memory, [f"{topic} are looked at every day" for topic in TOPICS])
    settle(memory)
    (merged,) = [fact for fact in memory.facts(limit=100) if set(fact.sources) == set(members)]
    for word in ("quick", "front", "database", "near"):
        assert word in merged.content
    assert merged.id in in_tier(memory)
    assert not set(members) & set(in_tier(memory))
    assert set(others) <= set(in_tier(memory))


def test_its_members_are_still_found(memory: loom.Memory) -> None:
    members = add(memory, SAID)
    add(memory, [f"{topic} are looked at every day" for topic in TOPICS])
    settle(memory)
    assert set(members) <= {fact.id for fact in memory.facts("caching catalogue", limit=50)}


def test_undo_brings_the_members_back(memory: loom.Memory) -> None:
    members = add(memory, SAID)
    add(memory, [f"{topic} are looked at every day" for topic in TOPICS[:6]])
    add(memory, ["a last one"])
    settle(memory)
    (merged,) = [fact for fact in memory.facts(limit=100) if set(fact.sources) == set(members)]
    assert set(memory.undo(merged.id).restored) == set(members)
    assert merged.id not in in_tier(memory)
    settle(memory)
    assert not [fact for fact in memory.facts(limit=100) if set(fact.sources) == set(members)]  # not made again


def test_forgetting_a_member_takes_the_merged_fact_and_leaves_the_others(memory: loom.Memory) -> None:
    gone, *rest = add(memory, SAID)
    add(memory, [f"{topic} are looked at every day" for topic in TOPICS])
    settle(memory)
    memory.forget(gone)
    settle(memory)
    contents = [fact.content for fact in memory.facts(limit=100)]
    assert not any("quick" in content for content in contents)
    assert set(rest) <= {fact.id for fact in memory.facts(limit=100)}


def test_texts_that_differ_in_a_number_are_never_joined(memory: loom.Memory) -> None:
    racks = add(memory, [f"racks in row {number} hold the spare disks" for number in range(8)])
    add(memory, [f"{topic} are looked at every day" for topic in TOPICS])
    settle(memory)
    assert set(racks) <= {fact.id for fact in memory.facts(limit=100)}
    assert not any(len(set(fact.sources) & set(racks)) > 1 for fact in memory.facts(limit=100))


def test_the_tier_keeps_to_its_limit_and_what_leaves_is_still_known(memory: loom.Memory) -> None:
    everything = add(memory, [f"{topic}{number} are done" for topic in TOPICS for number in range(3)])
    settle(memory)
    assert len(in_tier(memory)) <= 10
    assert set(everything) <= {fact.id for fact in memory.facts(limit=100)}


def test_without_an_embedder_the_most_important_stay(tmp_path: Path) -> None:
    with loom.open(tmp_path / "b.loom", embedder="none", l4_fact_limit=5) as memory:
        for number in range(20):
            memory.manager.add_fact(f"fact number {number}", confidence=0.5, importance=number / 20)
        settle(memory)
        kept = [memory.store.get(one) for one in in_tier(memory)]
        assert {record.content for record in kept if record} == {f"fact number {number}" for number in range(15, 20)}
        assert len(memory.facts(limit=100)) == 20
