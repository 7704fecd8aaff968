"""Agents that are killed, and trees of agents in several processes on one file."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.testing import Answer, Call, Request, ScriptedModel
from tests.agent.agent_children import question
from tests.tally import scaled

TURNS = 300
KILLS = 12
ENOUGH = 1_500_000  # tokens for a whole tree


def _child(role: str, **given: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.agent.agent_children", role, json.dumps(given)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kills", [KILLS, pytest.param(scaled(TURNS - 2), marks=pytest.mark.soak)])
def test_a_conversation_survives_kills_between_and_within_its_turns(kills: int, tmp_path: Path) -> None:
    """No turn is lost or doubled, prompts stay within their budget, and turn 290 finds what turn 3 said."""
    store = tmp_path / "talk.loom"
    chance = random.Random(7)
    stops = sorted(chance.sample(range(1, TURNS - 1), kills))
    with ScriptedModel([_reply], repeat=True) as model:
        ended = 0
        for stop in [*stops, TURNS]:
            # It begins one turn before the last that was seen to end: a repeated turn must change nothing.
            given = {"store": str(store), "url": model.openai_url, "first": max(0, ended - 1), "last": TURNS}
            with _child("talk", **given) as child:
                assert child.stdout is not None
                for line in child.stdout:
                    number, _, said = line.strip().partition(" ")
                    assert said == f"Answer to {number}."
                    ended = int(number) + 1
                    if ended >= stop and stop < TURNS:
                        child.kill()  # wherever it is by now: it has gone on meanwhile
                        break
                child.wait()
        assert ended == TURNS
        prompts = [request for request in model.requests if "58-21-07" in request.text]
        assert any("What was the code" in str(request.body["messages"][-1]) for request in prompts)
        with loom.open(store, node_id="talker", embedder="none") as memory:
            for request in model.requests:
                sent = [{key: one[key] for key in ("role", "content")} for one in request.body["messages"]]
                assert memory.counter.count_messages(sent) <= 2000
            turns = _all_of(memory, "talk")
            asked = [one.content for one in turns if one.role == "user"]
            answered = [one.content for one in turns if one.role == "assistant"]
            assert asked == [question(number) for number in range(TURNS)]
            assert answered == [f"Answer to {number}." for number in range(TURNS)]
            assert memory.check().ok


def _reply(request: Request) -> str:
    text = str(request.body["messages"][-1]["content"])
    number = next(number for number in range(TURNS) if question(number) == text)
    return f"Answer to {number}."


def _all_of(memory: loom.Memory, session: str) -> list[loom.Record]:
    found: list[loom.Record] = []
    after = None
    while True:
        page = memory.list(session_id=session, newest_first=False, limit=500, after=after)
        found += page.records
        after = page.next
        if after is None:
            return found


def _dividing(request: Request) -> Answer | Call | str:
    """A tree of 1 + 4 + 8 + 8 nodes: a node above the last level divides its work once, then reports the results."""
    last = request.body["messages"][-1]
    if last["role"] == "tool":
        told = json.loads(last["content"])
        if "error" in told:
            return f"alone: {told['error']}"
        return (
            f"together: {len(told['sources'])} sources, {sorted(set(re.findall(r'leaf-[0-9.]+', last['content'])))}"
        )
    level, place = re.match(r"level (\d) of (\S+)", str(last["content"])).groups()  # type: ignore[union-attr]
    width = {"0": 4, "1": 2, "2": 1}.get(level)
    if width is None:
        return f"leaf-{place}"
    parts = [f"level {int(level) + 1} of {place}.{number}" for number in range(width)]
    return Call("delegate_task", {"task": f"all of {place}", "parts": parts})


def _divide(store: Path, model: ScriptedModel, names: list[str], tokens: int) -> list[dict[str, Any]]:
    """The output of the roots, each in its own process with its own budget."""
    children = [_child("divide", store=str(store), url=model.openai_url, name=name, tokens=tokens) for name in names]
    said = [json.loads(child.communicate(timeout=240)[0]) for child in children]
    assert [child.returncode for child in children] == [0] * len(names)
    return said


@pytest.mark.parametrize("tokens", [5_000, 20_000, 60_000])
def test_a_tree_spends_no_more_than_its_root_was_given(tokens: int, tmp_path: Path) -> None:
    """Too little for 21 nodes: a node without a share reports this, and the sum stays within the root's budget."""
    store = tmp_path / "tree.loom"
    names = [str(number) for number in range(4)]
    with ScriptedModel([_dividing], repeat=True) as model:
        said = _divide(store, model, names, tokens)
    assert all(0 < one["spent"] <= tokens for one in said), said
    with loom.open(store, node_id="reader", embedder="none") as memory:
        sent = [
            memory.counter.count(str(message.get("content") or ""))
            for request in model.requests
            for message in request.body["messages"]
        ]
        assert sum(sent) <= sum(one["spent"] for one in said)  # what every node sent is in the account of its root
        assert memory.check().ok


def test_trees_of_agents_in_four_processes_share_one_file(tmp_path: Path) -> None:
    """Budgets hold in sum, no update is lost, and results name their sources."""
    store = tmp_path / "tree.loom"
    names = [str(number) for number in range(4)]
    with ScriptedModel([_dividing], repeat=True) as model:
        said = _divide(store, model, names, ENOUGH)
    for name, one in zip(names, said, strict=True):
        assert one["error"] is None
        assert one["text"].startswith("together: 4 sources")
        for first in range(4):
            for second in range(2):
                assert f"leaf-{name}.{first}.{second}.0" in one["text"]
        assert 0 < one["spent"] <= ENOUGH
    with loom.open(store, node_id="reader", embedder="none") as memory:
        records = memory.list(limit=1000).records
        nodes = {one.node for one in records if one.role == "user"}
        assert len(nodes) == 4 * 21
        for node in nodes:
            own = [one.role for one in records if one.node == node]
            assert own.count("user") == 1
            assert own[0] == "assistant"  # newest first: the answer
        assert memory.check().ok
