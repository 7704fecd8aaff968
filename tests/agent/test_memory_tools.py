"""Tools over a memory: definitions that a provider accepts, and calls that a model makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import loom
from loom.agent.memory_tools import (
    ALL_TOOLS,
    MemoryTools,
    context_tools,
    index_context_tools,
    memory_management_tools,
)
from loom.errors import InvalidInput
from loom.everyday import Memory
from loom.protocol import Task

NAMES = (
    "query_l1",
    "query_l2",
    "query_l3",
    "query_l4",
    "list_l2",
    "list_l3",
    "recall",
    "stats",
    "remember",
    "forget",
    "promote",
)


@pytest.fixture
def memory() -> Iterator[Memory]:
    with loom.open(embedder="none", l2_token_budget=60) as opened:
        for number in range(8):
            opened.remember(
                Task(
                    task_id=f"t{number}",
                    action="node.error",
                    parameters={"tool": "crane"},
                    error=f"container {number} is too heavy",
                    session_id="s1",
                )
            )
        yield opened


def asked(tools: MemoryTools, name: str, **arguments: Any) -> Any:
    return json.loads(tools.call(name, arguments))


def test_every_tool_has_a_definition_for_both_providers(memory: Memory) -> None:
    tools = MemoryTools(memory)
    assert tools.names == NAMES
    for ours, openai, anthropic in zip(tools, tools.to_openai(), tools.to_anthropic(), strict=True):
        assert openai["function"]["name"] == anthropic["name"] == ours.name
        assert anthropic["input_schema"] == openai["function"]["parameters"]
        assert anthropic["input_schema"]["additionalProperties"] is False
        assert set(anthropic["input_schema"]["required"]) <= set(anthropic["input_schema"]["properties"])


def test_the_tiers_can_be_read_listed_and_searched(memory: Memory) -> None:
    tools = MemoryTools(memory.manager)
    assert [one["id"] for one in asked(tools, "query_l1", limit=2)["items"]] == ["t6", "t7"]
    working = {one["id"] for one in asked(tools, "list_l2")["items"]}
    archived = {one["id"] for one in asked(tools, "list_l3")["items"]}
    assert working
    assert archived
    assert not working & archived
    assert {one["id"] for one in asked(tools, "query_l2", query="heavy container")["items"]} == working
    assert {one["id"] for one in asked(tools, "query_l3", query="heavy container")["items"]} == archived
    best = asked(tools, "recall", query="container 5", limit=1)["items"][0]
    assert (best["id"], best["trust"]) == ("t5", "agent")
    assert asked(tools, "query_l4", query="container 5", session_id="elsewhere") == {"source": "memory", "items": []}


def test_a_model_remembers_forgets_and_looks_at_the_numbers(memory: Memory) -> None:
    tools = MemoryTools(memory, session_id="s9")
    kept = asked(tools, "remember", text="The crane lifts 12 tonnes.", importance=0.9)
    record = memory.get(kept["id"])
    assert record is not None
    assert (record.session_id, record.trust, record.importance) == ("s9", "agent", 0.9)
    assert asked(tools, "stats")["tiers"]["l1"]["token_budget"] == 8000
    assert asked(tools, "promote").keys() >= {"l1_to_l2", "l2_to_l3"}
    assert asked(tools, "promote", id=kept["id"])["refused"] == {kept["id"]: "it is in L2 already"}
    memory.demote(kept["id"])
    assert asked(tools, "promote", id=kept["id"], to="l2")["moved"] == [kept["id"]]
    assert asked(tools, "forget", id=kept["id"])["forgotten"] == [kept["id"]]
    assert memory.get(kept["id"]) is None


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("nobody", {}, "there is no tool"),
        ("recall", {}, "needs query"),
        ("recall", {"query": "x", "colour": "red"}, "has no colour"),
        ("recall", {"query": 5}, "must be string"),
        ("recall", {"query": "x", "limit": 500}, "from 1 to 50"),
        ("recall", "{not json", "not valid JSON"),
        ("recall", "[1]", "must be an object"),
        ("remember", {"text": "x", "importance": True}, "must be number"),
        ("forget", {"id": "missing"}, "there is no memory"),
    ],
)
def test_a_call_that_makes_no_sense_is_answered_with_what_is_wrong(
    memory: Memory, name: str, arguments: Any, problem: str
) -> None:
    before = memory.get_stats()["records"]
    assert problem in json.loads(MemoryTools(memory).call(name, arguments))["error"]
    assert memory.get_stats()["records"] == before


def test_read_only_tools_change_nothing(memory: Memory) -> None:
    tools = MemoryTools(memory, read_only=True)
    assert not {"remember", "forget", "promote"} & set(tools.names)
    assert "there is no tool" in asked(tools, "forget", id="t1")["error"]


def test_an_answer_is_cut_to_its_tokens_and_says_so(memory: Memory) -> None:
    memory.remember("container </memory> [SHARED:x] " + "heavy " * 300)
    answer = MemoryTools(memory, max_tokens=150).call("recall", {"query": "heavy container"})
    assert memory.counter.count(answer) <= 150
    assert json.loads(answer)["left_out"] > 0
    assert "</memory>" not in MemoryTools(memory).call("recall", {"query": "SHARED"})


def test_a_call_of_a_chat_message_is_answered_with_a_message(memory: Memory) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "stats", "arguments": "{}"}}
    message = MemoryTools(memory).tool_message(call)
    assert (message["role"], message["tool_call_id"]) == ("tool", "call_1")
    assert json.loads(message["content"])["records"] == 8
    with pytest.raises(InvalidInput):
        MemoryTools(memory).tool_message({"id": "call_2"})


def test_arguments_that_are_nested_without_end_are_answered_with_an_error() -> None:
    with loom.open(embedder="none", derive=False) as memory:
        assert "error" in json.loads(MemoryTools(memory).call("recall", "[" * 100_000))


def test_the_documents_names_give_the_tools_by_what_they_do(memory: Memory) -> None:
    """002 §1.4: requirement 96."""
    names = [
        tuple(one.name for one in tools(memory))
        for tools in (context_tools, index_context_tools, memory_management_tools)
    ]
    assert names == [
        ("query_l1", "query_l2", "query_l3", "query_l4", "recall"),
        ("list_l2", "list_l3"),
        ("remember", "forget", "promote", "stats"),
    ]
    assert sorted(one for part in names for one in part) == sorted(ALL_TOOLS)
    found = json.loads(context_tools(memory)[-1].function(query="container 5"))
    assert found["items"][0]["id"] == "t5"
