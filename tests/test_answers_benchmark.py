"""The answers by which two source trees are compared: the same whenever they are asked for, and complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.answers import FILE, answers, copied, filled
from benchmarks.recall.data import load_own, load_stores, parse, some_of
from loom.models.embedders import FakeEmbedder
from tests.postgres_server import PostgresServer

TALK = """
# 2024-03-01 09:00
Ana: The gearbox of the blue bus is being repaired in Porto.
Ben: I always want prices in euros, please.
Ana: The repair costs 420, and the bus is back on Friday.
== facts
Where is the gearbox repaired? = 1.1
What does the repair of the bus cost? = 1.3
"""


def test_answers_are_the_same_each_time_and_change_with_the_store(tmp_path: Path) -> None:
    talk = parse("talk", TALK)
    store = filled(tmp_path / "store", talk, None)
    told = list(answers(store / FILE, talk, None))
    assert told == list(answers(filled(store, talk, None) / FILE, talk, None))
    name, limit, question, hits, _, _ = json.loads(told[0])
    assert (name, limit, question) == ("talk", 10, "Where is the gearbox repaired?")
    assert hits[0]["id"] == "1.1"
    assert hits[0]["added"]["words"] > 0.0
    assert "why" in hits[0]
    prompt = next(line for line in map(json.loads, told) if line[1] == 1_000)
    assert "gearbox" in str(prompt[3])

    other = parse("talk", TALK.replace("Porto", "Lisbon"))
    assert told != list(answers(filled(tmp_path / "other", other, None) / FILE, other, None))


@pytest.mark.parametrize("embedder", [None, FakeEmbedder(dimensions=96)], ids=["words", "vectors"])
def test_a_server_answers_as_a_file_to_the_last_bit(
    postgres_server: PostgresServer, tmp_path: Path, embedder: FakeEmbedder | None
) -> None:
    """On a part of the recall sets; `python -m benchmarks.answers --server` takes all of them."""
    part = [*some_of([load_own("chinese-check")], 2), *some_of(load_stores("agents")[:1], 1)]
    for number, dialogue in enumerate(part):
        store = filled(tmp_path / str(number), dialogue, embedder)
        on_file = list(answers(store / FILE, dialogue, embedder, numbered=False))
        assert list(answers(copied(store, postgres_server), dialogue, embedder, numbered=False)) == on_file
        assert sum(bool(json.loads(line)[3]) for line in on_file) > 2
