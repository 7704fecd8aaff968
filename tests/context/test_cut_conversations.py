"""Texts that do not fit are shortened with a mark, and nothing is shortened while there is room."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import loom
from loom.context import Context, Place
from loom.context.message_shortening import shorter_text
from loom.context.rendering import CUT_OFF
from loom.everyday import Memory
from loom.text.tokens import TiktokenCounter

COUNT = TiktokenCounter().count


@pytest.fixture
def memory() -> Iterator[Memory]:
    with loom.open(embedder="none") as opened:
        yield opened


def test_a_long_turn_is_whole_while_the_budget_has_room(memory: Memory) -> None:
    long = "\n".join(f"line {number}: value {number * 7}" for number in range(60))
    memory.remember({"role": "user", "content": long}, session_id="s")
    memory.remember({"role": "assistant", "content": "Thanks."}, session_id="s")
    context = memory.context("What was in line 30?", session_id="s", budget=2000)
    assert {"role": "user", "content": long} in context
    assert not any(item.shortened for item in context.items)


def test_a_conversation_is_there_whole_though_its_turns_left_the_window() -> None:
    with loom.open(embedder="none", l1_token_budget=300) as memory:
        said = [{"role": "user", "content": f"Note {number}. " + "tide " * 40} for number in range(60)]
        memory.remember(said, session_id="s")
        memory.remember([{"role": "user", "content": "moon " * 30}] * 30, session_id="other")
        context = memory.context("Go on.", session_id="s", budget=8000)
        assert [message for message in context if message["content"].startswith("Note")] == said


def test_turns_that_are_left_out_are_marked_in_this_prompt_and_in_the_next(memory: Memory) -> None:
    memory.remember(
        [{"role": "user", "content": f"Note {number}. " + "tide " * 90} for number in range(40)], session_id="s"
    )
    first = memory.context("Go on.", session_id="s", budget=1500)
    memory.remember({"role": "user", "content": "One more."}, session_id="s")
    for context in (first, memory.context("And now?", session_id="s", budget=1500)):
        assert {"role": "user", "content": CUT_OFF} in context
        assert "no room for this part of the conversation" in context.explain()


def test_a_rewritten_prompt_goes_on_with_what_fits_beside_an_exchange_that_is_larger_than_its_room(
    memory: Memory,
) -> None:
    """Room for the turns to come is used for quotations until then."""
    for number, words in enumerate([(20, 260), (70, 20), (800, 800), (20, 20)]):
        for role, count in zip(("user", "assistant"), words, strict=True):
            text = f"Turn {number}. " + " ".join(f"line {at} of {number}" for at in range(count // 4))
            memory.remember({"role": role, "content": text}, session_id="s")
        context = memory.context("What was in line 30?", session_id="s", budget=1000)
    assert context.prefix == 0
    assert context.tokens > 900
    turns = [item.text[:7] for item in context.items if item.place is Place.TURN]
    assert turns[-2:] == ["Turn 3.", "Turn 3."]
    assert not any(item.shortened for item in context.items if item.text.startswith("Turn 3."))


def test_a_shortened_turn_is_the_same_in_the_next_prompt(memory: Memory) -> None:
    memory.remember({"role": "user", "content": "The harbour code is 7319. " + "It rained. " * 60}, session_id="s")
    memory.remember({"role": "assistant", "content": "moon " * 500}, session_id="s")
    first = memory.context("Go on.", session_id="s", budget=500)
    assert {item.shortened for item in first.items} == {True}
    again = memory.context("Go on.", session_id="s", budget=500)
    assert again.prefix > 1
    assert again[: again.prefix] == first[: again.prefix]


def test_what_was_recalled_is_quoted_whole_where_its_turn_is_shortened(memory: Memory) -> None:
    code = "The harbour code is 7319 and nobody else may know it."
    steps = [f"Step {number}: {'it rained in the harbour, ' * 30}" for number in range(12)]
    said = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": code}]
    said += [{"role": "assistant", "content": step} for step in steps]
    memory.remember(said, session_id="s")
    context = memory.context("What is the harbour code?", session_id="s", budget=700)
    assert code in str(context.messages)
    assert any(item.shortened for item in context.items)


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def steps(form: str, result: str, content: str = "x") -> list[dict[str, Any]]:
    if form == "openai":
        return [
            {"role": "user", "content": "Read the file."},
            {"role": "assistant", "content": "", "tool_calls": [call("c1", "write_file", path="a", text=content)]},
            {"role": "tool", "tool_call_id": "c1", "content": result},
            {"role": "assistant", "content": "Read."},
        ]
    use = {"type": "tool_use", "id": "c1", "name": "write_file", "input": {"path": "a", "text": content}}
    return [
        {"role": "user", "content": "Read the file."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": result}]},
        {"role": "assistant", "content": "Read."},
    ]


def check_calls(context: Context) -> list[dict[str, Any]]:
    """Every call is followed by its results, and no call is converted to text."""
    waiting: list[str] = []
    calls = []
    for message in context:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert waiting == []
        for one in message.get("tool_calls") or ():
            assert isinstance(json.loads(one["function"]["arguments"]), dict)
            waiting.append(one["id"])
            calls.append(one)
        if message["role"] == "assistant":
            assert "write_file(" not in (message["content"] or "")
    assert waiting == []
    blocks = [block for message in context.to_anthropic()["messages"] for block in message["content"]]
    used = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert used == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    return calls


@pytest.mark.parametrize("form", ["openai", "anthropic"])
@pytest.mark.parametrize("budget", [200, 260, 330, 500, 900, 1900])
def test_a_call_and_its_result_are_shortened_together(memory: Memory, form: str, budget: int) -> None:
    memory.remember(steps(form, "line of the file\n" * 800), session_id="s")
    context = memory.context("And now?", session_id="s", budget=budget)
    calls = check_calls(context)
    told = str(context.messages)
    if calls:
        (result,) = [message for message in context if message["role"] == "tool"]
        assert re.search(r"\[… [\d,]+ tokens left out\]", result["content"])
    else:
        assert "left out" in told
    assert bool(calls) or budget < 330
    assert any(item.shortened for item in context.items)


@pytest.mark.parametrize("form", ["openai", "anthropic"])
@pytest.mark.parametrize("budget", [300, 600, 1200])
def test_long_arguments_are_shortened_inside_and_stay_json(memory: Memory, form: str, budget: int) -> None:
    memory.remember(steps(form, "done " * 300, content="word " * 2000), session_id="s")
    context = memory.context("And now?", session_id="s", budget=budget)
    for one in check_calls(context):
        arguments = json.loads(one["function"]["arguments"])
        assert arguments["path"] == "a"
        assert "tokens left out]" in arguments["text"]


def test_of_many_steps_a_note_stands_for_those_in_the_middle(memory: Memory) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": "Find it."}]
    for number in range(30):
        said.append({"role": "assistant", "content": "", "tool_calls": [call(f"c{number}", "search", q=number)]})
        said.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{number}: nothing. " * 20})
    memory.remember([*said, {"role": "assistant", "content": "It is not there."}], session_id="s")
    context = memory.context("Sure?", session_id="s", budget=700)
    calls = check_calls(context)
    assert 1 <= len(calls) < 30
    note = r"\[\d+ messages left out, with calls of search and their results: [\d,]+ tokens\]"
    assert any(re.fullmatch(note, message["content"] or "") for message in context)
    assert context[-2]["content"] == "It is not there."


@pytest.mark.parametrize("text", ["word " * 500, "港口" * 400, "x" * 3000, "a\n" * 900])
@pytest.mark.parametrize("most", [1, 8, 12, 40, 200, 2000])
def test_a_shorter_text_keeps_both_ends_and_says_what_is_missing(text: str, most: int) -> None:
    shown = shorter_text(text, most, COUNT)
    assert shown == text if COUNT(text) <= most else COUNT(shown) <= most
    if shown not in ("", text):
        assert "tokens left out]" in shown
    if 40 <= most < COUNT(text):
        assert shown.startswith(text[:4])
        assert shown.endswith(text[-4:])
        assert COUNT(shown) > most // 2
