"""The answers by which two source trees are compared: the same whenever they are asked for, and complete."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.answers import answers, filled
from benchmarks.recall.data import parse

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
    told = list(answers(store, talk, None))
    assert told == list(answers(filled(store, talk, None), talk, None))
    name, limit, question, hits, _, _ = json.loads(told[0])
    assert (name, limit, question) == ("talk", 10, "Where is the gearbox repaired?")
    assert hits[0]["id"] == "1.1"
    assert hits[0]["added"]["words"] > 0.0
    assert "why" in hits[0]
    prompt = next(line for line in map(json.loads, told) if line[1] == 1_000)
    assert "gearbox" in str(prompt[3])

    other = parse("talk", TALK.replace("Porto", "Lisbon"))
    assert told != list(answers(filled(tmp_path / "other", other, None), other, None))
