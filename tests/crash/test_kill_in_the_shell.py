"""SIGKILL in the middle of a shell command that writes: every printed text is stored, and the rest is complete or
absent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import cli
from tests.crash.processes import Child, Point, assert_sound, named, point

OLD = [f"Pier {number} was painted in March." for number in range(5)]
NOTES = [f"Note {number}: the tide at pier {number} turns early." for number in range(300)]

# In the transaction, at its end, and after the commit. The answer is written to standard output after the last one.
STEPS = [
    point("transaction.append", "after"),
    point("transaction.finish", "after"),
    point("shell.show", "after"),
]
COMMITTED = "shell.show"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    return tmp_path / "a.loom"


def killed(store: Path, armed: Point, words: Iterable[str], given: str = "") -> list[dict[str, Any]]:
    """The output of a command until it is killed."""
    with Child("shell", words=[*words, "--jsonl", "--store", str(store)], armed=armed) as child:
        assert child.process.stdin is not None
        child.process.stdin.write(given)
        child.process.stdin.close()
        printed = [json.loads(line) for line in child.rest()]
        assert child.process.wait() == -9, child.complaints()
    return printed


def shell(store: Path, *words: str) -> None:
    assert cli.main([*words, "--store", str(store)]) == 0


def held(store: Path) -> dict[str, str]:
    """Every current text by its id. Fails unless the store is sound and finds what it holds."""
    with loom.open(store, embedder="none") as memory:
        assert_sound(memory)
        found = {record.id: record.content for record in memory.list(limit=1000)}
        for content in [*found.values()][::50]:
            assert any(hit.content == content for hit in memory.recall(content, limit=5))
    return found


@pytest.mark.parametrize("armed", STEPS, ids=named)
def test_a_command_that_is_killed_writes_all_of_its_texts_or_none(store: Path, armed: Point) -> None:
    shell(store, "remember", *OLD)
    acknowledged = held(store)
    assert sorted(acknowledged.values()) == OLD
    printed = killed(store, armed, ["remember", "--lines", "-"], "\n".join(NOTES))
    now = held(store)
    assert acknowledged.items() <= now.items()
    assert {one["id"] for one in printed} <= now.keys()
    new = sorted(text for name, text in now.items() if name not in acknowledged)
    assert new == (sorted(NOTES) if armed["target"] == COMMITTED else [])


AGAIN = [
    ("update", point("transaction.append", "after")),
    ("forget", point("transaction.finish", "before")),
    ("import", point("transaction.finish", "after", 2)),  # its second batch
    ("import", point("shell.show", "before")),
]


@pytest.mark.parametrize(("verb", "armed"), AGAIN, ids=named)
def test_a_command_that_is_killed_may_be_given_again(store: Path, tmp_path: Path, verb: str, armed: Point) -> None:
    exported = str(tmp_path / "a.jsonl")
    with loom.open(store, embedder="none") as memory:
        memory.remember([{"id": f"old-{number}", "content": text} for number, text in enumerate(OLD)])
        memory.remember([{"id": f"new-{number}", "content": text} for number, text in enumerate(NOTES)])
        if verb == "import":
            shell(store, "export", exported)
            memory.forget([f"new-{number}" for number in range(len(NOTES))])
    words = {"update": ["old-1", "Pier 1 is blue."], "forget": ["old-1"], "import": [exported]}[verb]
    before = held(store)
    killed(store, armed, [verb, *words])
    after = held(store)
    if verb == "import":
        assert before.items() <= after.items()
        assert len(before) < len(after)
        assert (len(after) == len(OLD) + len(NOTES)) == (armed["target"] == COMMITTED)
    else:
        assert after == before
    shell(store, verb, *words)
    last = held(store)
    assert last.pop("old-1", None) == {"update": "Pier 1 is blue.", "forget": None, "import": OLD[1]}[verb]
    assert sorted(last.values()) == sorted([*OLD[:1], *OLD[2:], *NOTES])
