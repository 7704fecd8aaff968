"""Over random memories, windows and questions: a prompt is within its budget, whole, in order, and the same again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom.context import Context, ContextItem, Place
from loom.errors import OverBudget
from loom.everyday import Memory
from loom.text.tokens import TiktokenCounter

COUNTER = TiktokenCounter()
BEGAN = datetime(2026, 3, 2, 9, tzinfo=UTC)
WORDS = [
    "heron",
    "lynx",
    "lake",
    "deploy",
    "token",
    "数据库",
    "港口",
    "发票",
    "8443",
    "</memory>",
    "[SHARED:x]",
    "\n",
    "é",
]

texts = (
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(" ".join).filter(lambda text: text.strip() != "")
)
questions = st.lists(st.sampled_from(WORDS[:9]), min_size=1, max_size=6).map(" ".join)


@st.composite
def exchange(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    """What a user says and what comes of it: an answer, or a call, its results and an answer, or nothing yet."""
    kind = draw(st.sampled_from(["answer", "answer", "call", "open", "untrusted"]))
    said: list[dict[str, Any]] = [{"role": "user", "content": draw(texts)}]
    if kind == "call":
        ids = [f"c{number}-{at}" for at in range(draw(st.integers(1, 3)))]
        calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
        said.append({"role": "assistant", "content": "", "tool_calls": calls})
        said += [{"role": "tool", "tool_call_id": one, "content": draw(texts)} for one in draw(st.permutations(ids))]
        if draw(st.booleans()):
            said.pop()
    if kind != "open":
        said.append({"role": "assistant", "content": draw(texts)})
    if kind == "untrusted":
        said.append({"role": "tool", "content": draw(texts)})
    return said


@st.composite
def dialogues(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    return [draw(exchange(number)) for number in range(draw(st.integers(0, 12)))]


def remember(memory: Memory, said: list[list[dict[str, Any]]], session: str, began: datetime) -> None:
    for number, messages in enumerate(said):
        at = began + timedelta(hours=number * (1 if number % 3 else 9))
        memory.remember([{**message, "created_at": at} for message in messages], session_id=session)


def check(context: Context, question: str, budget: int) -> None:
    assert COUNTER.count_messages(context) == context.tokens <= budget
    assert context[0]["role"] == "system"
    assert sum(message["role"] == "system" for message in context) == 1
    assert context[1]["role"] == "user"
    assert context[-1] == {"role": "user", "content": question}
    waiting: list[str] = []
    for message in context:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        assert message["content"] is None or "</memory>" not in message["content"].removesuffix("</memory>")
    assert waiting == []
    ids = [item.id for item in context.items]
    assert len(ids) == len(set(ids))
    turns = [item.seq for item in context.items if item.place is Place.TURN]
    assert turns == sorted(turns)
    assert not {one.id for one in context.dropped if one.reason == "no room"} & set(ids)
    check_quotes(context)


def check_exchanges(memory: Memory, context: Context) -> None:
    """A question of the conversation and its answer are both turns of the prompt, or neither is."""
    spoken = {item.id for item in context.items if item.place is Place.TURN}
    records = memory.list(session_id="now", limit=200, newest_first=False).records
    for before, after in pairwise(records):
        if (before.role, after.role) == ("user", "assistant"):
            assert (before.id in spoken) == (after.id in spoken)


def check_quotes(context: Context) -> None:
    """Within a block quotations are in the order of time; blocks follow each other as they were made."""
    quotes = [item for item in context.items if item.place is Place.QUOTE and item.source != "session"]
    if context.prefix == 0:
        moments = [moment(item) for item in quotes]
        assert moments == sorted(moments)


def moment(item: ContextItem) -> tuple[float, int]:
    return (item.created_at.timestamp() if item.created_at else 0.0, item.seq)


@settings(max_examples=40, deadline=None)
@given(dialogues(), dialogues(), questions, st.integers(60, 3000))
def test_a_stateless_prompt_keeps_every_promise(
    past: list[Any], present: list[Any], question: str, budget: int
) -> None:
    with loom.open(embedder="none") as memory:
        remember(memory, past, "past", BEGAN - timedelta(days=9))
        remember(memory, present, "now", BEGAN)
        context = memory.context(question, budget=budget)
        check(context, question, budget)
        assert memory.context(question, budget=budget) == context


@settings(max_examples=40, deadline=None)
@given(dialogues(), dialogues(), st.lists(st.tuples(questions, st.integers(80, 2500)), min_size=1, max_size=5))
def test_the_prompts_of_a_session_keep_every_promise(
    past: list[Any], present: list[Any], asked: list[tuple[str, int]]
) -> None:
    with loom.open(embedder="none", l1_token_budget=900) as memory:
        remember(memory, past, "past", BEGAN - timedelta(days=9))
        for number, (question, budget) in enumerate(asked):
            remember(memory, present[number::5], "now", BEGAN + timedelta(days=number))
            try:
                context = memory.context(question, budget=budget, session_id="now")
            except OverBudget:
                assert COUNTER.count_messages([{"role": "user", "content": question}]) + 20 > budget
                continue
            check(context, question, budget)
            check_exchanges(memory, context)
            again = memory.context(question, budget=budget, session_id="now")
            assert again.messages[: again.prefix] == context.messages[: again.prefix]
            check(again, question, budget)


@settings(max_examples=25, deadline=None)
@given(dialogues(), questions)
def test_the_least_budget_is_the_one_that_the_error_names(said: list[Any], question: str) -> None:
    with loom.open(embedder="none") as memory:
        remember(memory, said, "now", BEGAN)
        try:
            memory.context(question, budget=1)
        except OverBudget as error:
            least = int(str(error).split("give at least ")[1].split(",")[0])
            assert memory.context(question, budget=least).tokens == least
        else:
            raise AssertionError("one token was enough")
