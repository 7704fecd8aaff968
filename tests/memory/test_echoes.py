"""Answers of a memory that a tool or an assistant stores again stay in the log, but are not recalled or derived
from."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import loom
from loom.agent.memory_tools import MemoryTools
from loom.cli.command import main
from loom.context import Context
from loom.mcp.for_models import shown
from loom.operations.answers import Found, Recalled
from loom.protocol import Task

TOLD = "I live in Leeds and my budget for the flat is 900 euros."
TOLD_CHINESE = "我住在杭州，租房预算是4200元。"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[loom.Memory]:
    with loom.open(tmp_path / "a.loom", embedder="none") as opened:
        opened.remember(TOLD, role="user", name="Ana", session_id="s1", id="told")
        opened.remember(TOLD_CHINESE, role="user", name="小雨", session_id="s1", id="told-zh")
        opened.flush()
        yield opened


def prompt_block(memory: loom.Memory, question: str) -> str:
    context: Context = memory.context(question, budget=600)
    (block,) = [message["content"] for message in context if "<memory>\n" in str(message["content"])]
    return str(block)


def recalled(memory: loom.Memory, question: str) -> Recalled:
    hits = memory.recall(question)
    return Recalled(tuple(map(Found.of, hits)), sum(hit.tokens for hit in hits))


def operation_json(memory: loom.Memory, question: str) -> str:
    return json.dumps(recalled(memory, question).to_json(), ensure_ascii=False)


def printed(memory: loom.Memory, *words: str) -> str:
    """The output of a command about this memory."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main([*words, "--store", memory.store.location]) == 0
    return output.getvalue()


def echoes_of(memory: loom.Memory, question: str) -> dict[str, str]:
    """Every form in which an answer comes, whole and cut off."""
    tool = MemoryTools(memory).call("recall", {"query": question})
    block, operation = prompt_block(memory, question), operation_json(memory, question)
    return {
        "tool": tool,
        "tool, cut off": tool[: len(tool) * 2 // 3],
        "window": MemoryTools(memory).call("query_l1"),
        "inside JSON": json.dumps({"ok": True, "output": tool}),
        "operation": operation,
        "operation, indented": json.dumps(json.loads(operation), indent=2, ensure_ascii=False),
        "one hit": json.dumps(json.loads(operation)["hits"][0], ensure_ascii=False),
        "prompt": block,
        "prompt, cut off": block[: len(block) * 2 // 3],
        "MCP": shown(recalled(memory, question)),
        "command line": printed(memory, "recall", question),
        "facts on the command line": printed(memory, "facts"),
        "introduced": f"Here is what I found in memory:\n{block}",
        "introduced in Chinese": f"记忆里是这样说的：\n{block}",
    }


def stored(memory: loom.Memory, text: str, role: str, id: str) -> None:
    if role == "task":
        message = {"role": "tool", "tool_call_id": "c1", "content": text}
        parameters = {"tool": "recall", "message": message}
        memory.remember(Task(action="node.tool_result", parameters=parameters, task_id=id, session_id="s2"))
    else:
        memory.remember(text, role=role, session_id="s2", id=id)


@pytest.mark.parametrize("question", ["Where does Ana live and what is the budget?", "小雨住在哪里，预算是多少？"])
@pytest.mark.parametrize("role", ["tool", "assistant", "task"])
def test_an_answer_that_is_stored_again_is_neither_recalled_nor_derived_from(
    memory: loom.Memory, role: str, question: str
) -> None:
    facts = {fact.content for fact in memory.facts()}
    expected = [hit.id for hit in memory.recall(question)]
    for number, (form, text) in enumerate(echoes_of(memory, question).items()):
        stored(memory, text, role, f"echo-{number}")
        memory.flush()
        assert [hit.id for hit in memory.recall(question)] == expected, form
        assert {fact.content for fact in memory.facts()} == facts, form
        kept = memory.get(f"echo-{number}")
        assert kept is not None
        assert kept.id in [record.id for record in memory.list(limit=50).records]
    assert "echo" not in "".join(item.id for item in memory.context(question, budget=2000).items)


def test_many_echoes_do_not_crowd_out_what_they_repeat(memory: loom.Memory) -> None:
    answer = MemoryTools(memory).call("recall", {"query": "Where does Ana live?"})
    for number in range(200):
        memory.remember(answer, role="tool", session_id=f"s{number}")
    memory.flush()
    assert memory.recall("Where does Ana live?", limit=1)[0].id == "told"


@pytest.mark.parametrize(
    ("comment", "question"),
    [
        ("So I booked the viewing in Headingley for Friday at 9:40.", "When is the viewing in Headingley?"),
        ("所以我约了周五九点四十去看文三路的房子。", "什么时候去看文三路的房子？"),
    ],
)
def test_what_an_assistant_adds_to_a_quotation_is_recalled_and_derived_from(
    memory: loom.Memory, comment: str, question: str
) -> None:
    facts = {fact.content for fact in memory.facts()}
    block = prompt_block(memory, "Where does Ana live?")
    memory.remember(f"{block}\n{comment}", role="assistant", session_id="s2", id="mixed")
    memory.flush()
    assert "mixed" in [hit.id for hit in memory.recall(question)]
    for fact in {fact.content for fact in memory.facts()} - facts:
        assert "900" not in fact
        assert "4200" not in fact


@pytest.mark.parametrize("trust", [None, "user"])
def test_a_user_cannot_be_hidden_by_imitating_an_echo(memory: loom.Memory, trust: str | None) -> None:
    forms = echoes_of(memory, "Where does Ana live?")
    for number, text in enumerate(forms.values()):
        said = text.replace("Leeds", f"Ripon{number}")
        memory.remember(said, role="user", session_id="s3", id=f"mine-{number}", trust=trust)
    memory.remember("<memory>\n- The gate code is 4711.\n</memory>", role="user", session_id="s3", id="gate")
    memory.flush()
    for number, (form, text) in enumerate(forms.items()):
        if "Leeds" in text:
            assert f"mine-{number}" in [hit.id for hit in memory.recall(f"Ripon{number}", limit=50)], form
    assert "gate" in [hit.id for hit in memory.recall("What is the gate code?")]


@pytest.mark.parametrize(
    "text",
    [
        '{"items": [{"id": "SKU-1", "text": "Copper kettle", "score": 4.5}, {"id": "SKU-2", "text": "Steel"}]}',
        '{"id": 17, "content": "The kettle leaks.", "author": "web shop"}',
        "The prompt puts quotations inside <memory> tags, and the copper kettle is item SKU-1.",
        "The memory of the kettle's controller is 64 KB.",
    ],
)
def test_output_of_other_tools_is_no_echo(memory: loom.Memory, text: str) -> None:
    memory.remember(text, role="tool", session_id="s2", id="other")
    memory.flush()
    assert "other" in [hit.id for hit in memory.recall("Tell me about the kettle")]


def test_an_explanation_says_what_was_left_out_as_an_echo(memory: loom.Memory) -> None:
    stored(memory, MemoryTools(memory).call("recall", {"query": "Where does Ana live?"}), "tool", "again")
    memory.flush()
    explained = memory.recall("Where does Ana live?", explain=True)
    assert {one.id: one.outcome for one in explained.candidates}["again"] == "an echo of memory"
