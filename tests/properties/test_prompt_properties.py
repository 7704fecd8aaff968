"""Over random memories, windows and questions: a prompt is within its budget, whole, in order, and the same again.

Nothing is cut while there is room, whatever the sizes of turns and budgets; every cut can be seen; more budget never
holds less.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import loom
from loom.context import (
    Context,
    ContextItem,
    ContextOrchestrator,
    L1RecentSource,
    LayoutStore,
    Place,
    PrefixPolicy,
    RecallSource,
)
from loom.context.defaults import CONVERSATION, default_orchestrator
from loom.context.rendering import CUT_OFF
from loom.errors import OverBudget
from loom.everyday import Memory
from loom.protocol import Task
from loom.text.tokens import TiktokenCounter
from tests.tally import scaled

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
    """A user's turn and its consequences: an answer, or a call, its results and an answer, or nothing yet."""
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
    ids = [item.id for item in context.items if not item.shortened]
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
        # A session's prompt has another block for what it shows once.
        blocks = sum((message["content"] or "").startswith("<memory>") for message in context)
        moments = [moment(item) for item in quotes]
        assert sum(after < before for before, after in pairwise(moments)) < max(1, blocks)


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


# --- what fits is present, whole ------------------------------------------------------------------------------


def long_text(number: int, tokens: int, language: str) -> str:
    if language == "en":
        return f"Turn {number}. " + " ".join(f"line {at} of {number}" for at in range(max(1, tokens // 5)))
    return f"第{number}轮。" + "".join(f"港口第{at}行，" for at in range(max(1, tokens // 7)))


sizes = st.one_of(st.integers(1, 60), st.integers(60, 900), st.integers(900, 5000))
budgets = st.one_of(st.integers(64, 600), st.integers(600, 6000), st.integers(6000, 128_000))
languages = st.sampled_from(["en", "zh"])
talks = st.lists(st.tuples(sizes, sizes), min_size=1, max_size=8)


def hold(memory: Memory, sizes: list[tuple[int, int]], language: str, session: str | None) -> list[dict[str, str]]:
    said = [
        {"role": role, "content": long_text(2 * number + at, tokens, language)}
        for number, pair in enumerate(sizes)
        for at, (role, tokens) in enumerate(zip(("user", "assistant"), pair, strict=True))
    ]
    for number, message in enumerate(said):
        memory.remember({**message, "created_at": BEGAN + timedelta(minutes=number)}, session_id=session)
    return said


def check_cuts(context: Context, said: list[dict[str, str]]) -> None:
    """A shortened text is marked in the prompt, and named by its items or by those left out."""
    shown = [{"role": message["role"], "content": message["content"]} for message in context]
    told = "\n".join(message["content"] or "" for message in context)
    short = [item for item in context.items if item.shortened]
    assert ("tokens left out]" in told) >= bool(short)
    assert f", shortened: {len(short)}" in context.explain() or not short
    assert all("; shortened: " in item.reason and item.reason in context.explain() for item in short)
    there = {item.text for item in context.items if not item.shortened}
    missing = [message for message in said if message not in shown and message["content"] not in there]
    accounted = {item.text for item in short} | {one.text for one in context.dropped}
    # What was said before anything that could have had room is not offered at all.
    assert all(message["content"] in accounted for message in missing[-1:])
    if missing and not short:
        assert CUT_OFF in told or context.budget - context.tokens < 40


@settings(max_examples=40, deadline=None)
@given(talks, languages, budgets)
@example(sizes=[(1, 1), (1, 2580), (87, 4652)], language="en", budget=5790)
def test_a_conversation_that_fits_is_there_whole_and_every_cut_is_seen(
    sizes: list[tuple[int, int]], language: str, budget: int
) -> None:
    with loom.open(embedder="none", derive=False) as memory:
        said = hold(memory, sizes, language, "now")
        question = "What was in line 30?" if language == "en" else "第30行是什么？"
        for _ in range(2):  # the session's first prompt, and the one that continues it
            try:
                context = memory.context(question, session_id="now", budget=budget)
            except OverBudget:
                return
            check(context, question, budget)
            fixed = [context[0], {"role": "user", "content": question}]
            if COUNTER.count_messages([*fixed, *said]) <= budget:
                assert [m for m in context[1:-1] if "<memory>" not in m["content"]] == said
                assert not any(item.shortened for item in context.items)
            else:
                check_cuts(context, said)
                if COUNTER.count_messages([*fixed, {"role": "user", "content": CUT_OFF}, *said[-2:]]) <= budget:
                    assert [m for m in context[:-1] if "<memory>" not in m["content"]][-2:] == said[-2:]


@settings(max_examples=30, deadline=None)
@given(talks, languages, budgets, st.booleans())
def test_a_budget_that_grows_brings_back_what_was_cut(
    sizes: list[tuple[int, int]], language: str, budget: int, between: bool
) -> None:
    with loom.open(embedder="none", derive=False) as memory:
        said = hold(memory, sizes, language, "now")
        memory.context("Go on, 继续。", session_id="now", budget=max(120, budget // 50))
        if between:
            said += hold(memory, [(40, 40)], language, "now")
        context = memory.context("Go on, 继续。", session_id="now", budget=200_000)
        assert [m for m in context[1:-1] if "<memory>" not in m["content"]] == said
        assert not any(item.shortened for item in context.items)


def whole(context: Context) -> set[str]:
    return {item.id for item in context.items if not item.shortened}


def never_holds_less(sizes: list[tuple[int, int]], language: str, session: str | None, budgets: list[int]) -> None:
    with loom.open(embedder="none", derive=False) as memory:
        hold(memory, sizes, language, session)
        before: set[str] = set()
        for budget in sorted(budgets):
            context = memory.context("line 3 of 5, 第3行？", budget=budget)
            assert before <= whole(context)
            before = whole(context)


def never_holds_less_of_a_conversation(sizes: list[tuple[int, int]], language: str, budgets: list[int]) -> None:
    with loom.open(embedder="none", derive=False) as memory:
        hold(memory, sizes, language, "now")
        sources = [RecallSource(memory), L1RecentSource(memory)]
        orchestrator = ContextOrchestrator(memory.counter, sources, config=CONVERSATION)
        before: set[str] = set()
        for budget in sorted(budgets):
            context = orchestrator.build(query="line 3 of 5, 第3行？", session_id="now", budget=budget)
            turns = {item.id for item in context.items if item.place is Place.TURN and not item.shortened}
            assert before <= turns
            before = turns


GROWING = st.lists(budgets, min_size=2, max_size=8)
PROMISES: dict[Callable[..., None], tuple[st.SearchStrategy[Any], ...]] = {
    never_holds_less: (talks, languages, st.sampled_from(["past", None]), GROWING),
    never_holds_less_of_a_conversation: (talks, languages, GROWING),
}


@pytest.mark.parametrize("examples", [40, pytest.param(scaled(4000), marks=pytest.mark.soak)])
@pytest.mark.parametrize("promise", PROMISES)
def test_more_budget_never_holds_less(promise: Callable[..., None], examples: int) -> None:
    settings(max_examples=examples, deadline=None)(given(*PROMISES[promise])(promise))()


def test_one_token_more_never_holds_less() -> None:
    with loom.open(embedder="none", derive=False) as memory:
        hold(memory, [(1, 30), (25, 60)], "en", None)
        before: set[str] = set()
        for budget in range(64, 330):
            now = whole(memory.context("line 3 of 5, 第3行？", budget=budget))
            assert before <= now, budget
            before = now
        assert len(before) == 4


class Unchanged(LayoutStore):
    """Layouts that a prompt continues and does not replace, so that the next prompt is asked in the same state."""

    def append(self, *_: object) -> bool:
        return True

    def rewrite(self, *_: object) -> bool:
        return True


ANIMALS = {"en": ["heron", "lynx", "otter", "kite"], "zh": ["苍鹭", "山猫", "水獭", "鸢"]}
PLACES = {
    "en": ["lake", "deploy", "token", "harbour", "valve", "slow", "north", "\n\n"],
    "zh": ["湖边，", "部署，", "令牌，", "港口。", "阀门，", "慢。"],
}


def any_text(chance: Random, language: str, words: int) -> str:
    """A text of at most this many words, now and then of six times as many."""
    count = chance.randint(1, words) * (6 if chance.random() < 0.1 else 1)
    return " ".join(chance.choice(ANIMALS[language] + PLACES[language]) for _ in range(count))


def exchange_of_any_size(chance: Random, language: str, turn: int, words: int) -> list[dict[str, Any]]:
    """An exchange, now and then with a standing instruction or a call of a tool."""
    text = f"{turn}: {any_text(chance, language, words)}"
    if chance.random() < 0.1:
        text = ("Always answer in one sentence. " if language == "en" else "以后请总是用一句话回答。") + text
    said: list[dict[str, Any]] = [{"role": "user", "content": text}]
    if chance.random() < 0.15:
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "look", "arguments": '{"at": "lake"}'}}
        said.append({"role": "assistant", "content": "", "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"c{turn}", "content": any_text(chance, language, words)})
    return [*said, {"role": "assistant", "content": f"({turn}) {any_text(chance, language, words)}"}]


# A note about messages that are left out counts as a part of the turn before it.
NOTE = 32


def held(context: Context) -> dict[str, float]:
    """How many tokens of each memory a prompt holds."""
    found: dict[str, float] = {}
    for item in context.items:
        size = float("inf")
        if item.shortened and item.place is Place.TURN:
            now = re.findall(r"shortened: ([\d,]+) of", item.reason)[-1]
            size = max(0, int(now.replace(",", "")) - NOTE)
        elif item.shortened:
            size = COUNTER.count(item.text)
        found[item.id] = max(found.get(item.id, 0), size)
    return found


def missing(smaller: Context, larger: Context) -> list[tuple[str, float, float]]:
    """The memories that a prompt with a smaller budget holds, and one with a larger budget does not, or not as much
    of."""
    there = held(larger)
    redundant = {one.id for one in larger.dropped if one.reason.startswith(REDUNDANT)}
    return [
        (id, size, there.get(id, 0))
        for id, size in held(smaller).items()
        if there.get(id, 0) + (NOTE if id in there else 0) < size and not (id in redundant and id not in there)
    ]


def never_holds_less_at_any_moment_of_a_session(seed: int) -> None:
    chance = Random(seed)
    language, words = chance.choice(["en", "zh"]), chance.choice([20, 60, 200])
    usual = chance.choice([chance.randint(150, 600), chance.randint(600, 4000), chance.randint(2000, 16_000)])
    question = {"en": ["Where was the otter seen?", "Go on."], "zh": ["水獭在哪里出现过？", "继续。"]}[language]
    with loom.open(embedder="none", derive=False) as memory:
        notes = [f"Note {at}: {any_text(chance, language, 30)}" for at in range(chance.choice([0, 5, 30, 120]))]
        memory.remember(notes, session_id="past")
        orchestrator = default_orchestrator(memory, session="now")
        unchanged = default_orchestrator(memory, session="now", layouts=Unchanged(memory.store, memory.node_id))
        for turn in range(chance.randint(2, 16)):
            memory.remember(exchange_of_any_size(chance, language, turn, words), session_id="now")
            asked = chance.choice(question)
            budgets = {64, 200, usual - chance.randint(1, 60), usual, usual + 1, usual + chance.randint(2, 60)}
            budgets |= {int(usual * part) for part in (0.5, chance.uniform(1.05, 1.5), 2, chance.uniform(2, 8))}
            before: Context | None = None
            for budget in sorted(budgets):
                try:
                    context = unchanged.build(query=asked, session_id="now", budget=budget)
                except OverBudget:
                    assert before is None
                    continue
                check(context, asked, budget)
                if before is not None:
                    assert missing(before, context) == [], (turn, before.budget, budget, usual)
                before = context
            with suppress(OverBudget):
                budget = usual if chance.random() < 0.9 else int(usual * chance.choice([0.5, 1.3, 3]))
                orchestrator.build(query=asked, session_id="now", budget=budget)


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, scaled(2000)), marks=pytest.mark.soak)])
def test_at_any_moment_of_a_session_more_budget_never_holds_less(seeds: range) -> None:
    for seed in seeds:
        never_holds_less_at_any_moment_of_a_session(seed)


@settings(max_examples=40, deadline=None)
@given(talks, st.booleans(), languages, st.lists(budgets, min_size=1, max_size=2))
def test_all_through_a_session_the_conversation_is_whole_while_it_fits(
    sizes: list[tuple[int, int]], is_first: bool, language: str, budgets: list[int]
) -> None:
    question = "What was in line 30?" if language == "en" else "第30行是什么？"
    was_whole = [False] * len(sizes)
    for budget in sorted(budgets):
        with loom.open(embedder="none", derive=False) as memory:
            if not is_first:
                memory.remember([f"Line {number} says {number * 7}." for number in range(30)], session_id="past")
            said: list[dict[str, str]] = []
            for turn, pair in enumerate(sizes):
                said += hold(memory, [pair], language, "now")
                try:
                    context = memory.context(question, session_id="now", budget=budget)
                except OverBudget:
                    break
                check(context, question, budget)
                is_whole = [m for m in context[1:-1] if "<memory>" not in m["content"]] == said
                tokens = COUNTER.count_messages([context[0], *said, context[-1]])
                recalled = 0 if is_first else int(max(0.06 * budget, min(256, 0.24 * budget)))
                assert is_whole <= (tokens <= budget)
                assert is_whole >= (tokens + recalled <= budget)
                assert is_whole >= was_whole[turn]  # with more budget no less
                was_whole[turn] = is_whole


# The name, the line break and the day of a quotation; and the message around the first one.
AROUND = 16
BLOCK = 16
# Reasons for which a memory is left out however much room there is.
REDUNDANT = (
    "says the same as",
    "it is the question",
    "the same memory is already offered",
    "its source is",
    "the whole",
)


def room_for_more(context: Context) -> list[tuple[str, str]]:
    """Items that would have fitted into the free room but were left out or shortened."""
    is_first = not (context[-2]["content"] or "").startswith("<memory>")
    free = context.budget - context.tokens - AROUND - (BLOCK if is_first else 0)
    there = {item.id for item in context.items}
    whole = {item.id for item in context.items if not item.shortened}
    found = [
        (one.id, one.reason)
        for one in context.dropped
        if one.id not in there and not one.reason.startswith(REDUNDANT) and COUNTER.count(one.text) <= free
    ]
    for item in context.items:
        if item.shortened and item.id not in whole:
            now, before = re.findall(r"shortened: ([\d,]+) of ([\d,]+) tokens", item.reason)[-1]
            if int(before.replace(",", "")) - int(now.replace(",", "")) <= free:
                found.append((item.id, item.reason))
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(sizes, sizes), min_size=1, max_size=6),
    st.integers(0, 120),
    languages,
    st.booleans(),
    st.booleans(),
    budgets,
)
def test_all_through_a_session_nothing_is_left_out_or_shortened_while_there_is_room(
    sizes: list[tuple[int, int]], old: int, language: str, asks: bool, derive: bool, budget: int
) -> None:
    question = "What was in line 30?" if language == "en" else "第30行是什么？"
    with loom.open(embedder="none", derive=derive) as memory:
        memory.remember([f"Line {number} says {number * 7}. " + "tide " * (number % 40) for number in range(old)])
        for number, pair in enumerate(sizes * 2):
            said = [f"({number}) {long_text(2 * number + at, tokens, language)}" for at, tokens in enumerate(pair)]
            turns = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)]
            memory.remember(turns, session_id="now")
            if derive:
                memory.flush()
            try:
                context = memory.context(question if asks else "Go on.", session_id="now", budget=budget)
            except OverBudget:
                break
            check(context, context[-1]["content"], budget)
            assert room_for_more(context) == []


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 60), st.integers(1, 120), st.integers(800, 16_000), st.data())
def test_all_through_a_session_the_best_recalled_memories_are_there(
    tokens: int, old: int, budget: int, data: st.DataObject
) -> None:
    animals = ("heron", "lynx", "otter", "badger")
    with loom.open(embedder="none", derive=False) as memory:
        facts = [
            f"The {animals[at % 4]} was seen {at + 2} times, week {at}. " + "tide " * (at % 9) for at in range(old)
        ]
        memory.remember(facts, session_id="past")
        for _ in range(14):
            hold(memory, [(tokens, tokens)], "en", "now")
            question = f"Where was the {data.draw(st.sampled_from(animals))} seen?"
            task = Task(action="context.query", parameters={"content": question}, session_id="now")
            room = int(max(0.06 * budget, min(256, 0.24 * budget))) - 2 * AROUND
            best: list[str] = []
            for one in RecallSource(memory).get_context(task, 40):
                room -= COUNTER.count(one.text) + AROUND
                if room < 0:
                    break
                best.append(one.id)
            context = memory.context(question, session_id="now", budget=budget)
            redundant = {one.id for one in context.dropped if one.reason.startswith(REDUNDANT)}
            assert set(best) <= {item.id for item in context.items} | redundant


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=5), languages, budgets)
def test_a_policy_that_saves_tokens_still_leaves_no_turn_out_while_there_is_room(
    sizes: list[tuple[int, int]], language: str, budget: int
) -> None:
    question = "What was in line 30?" if language == "en" else "第30行是什么？"
    with loom.open(embedder="none", derive=False) as memory:
        policy = PrefixPolicy(fill_score=0.45)
        orchestrator = default_orchestrator(memory, session="now", prefix_policy=policy)
        memory.remember([f"Line {number} says {number * 7}." for number in range(30)], session_id="past")
        for number, pair in enumerate(sizes * 2):
            said = [f"({number}) {long_text(2 * number + at, tokens, language)}" for at, tokens in enumerate(pair)]
            turns = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)]
            memory.remember(turns, session_id="now")
            try:
                context = orchestrator.build(query=question, session_id="now", budget=budget)
            except OverBudget:
                break
            check(context, question, budget)
            own = {record.id for record in memory.list(session_id="now", limit=100).records}
            assert [one for one in room_for_more(context) if one[0] in own] == []


@settings(max_examples=10, deadline=None)
@given(talks, st.booleans(), languages, budgets, st.sampled_from([None, 0.4, 1.0]))
def test_all_through_a_session_no_more_room_is_kept_free_than_the_policy_says(
    sizes: list[tuple[int, int]], is_first: bool, language: str, budget: int, low: float | None
) -> None:
    question = "What was in line 30?" if language == "en" else "第30行是什么？"
    policy = PrefixPolicy() if low is None else PrefixPolicy(low=low)
    with loom.open(embedder="none", derive=False) as memory:
        orchestrator = default_orchestrator(memory, session="now", prefix_policy=policy)
        if not is_first:
            memory.remember([f"Line {number} says {number * 7}." for number in range(30)], session_id="past")
        for pair in sizes * 2:
            hold(memory, [pair], language, "now")
            try:
                context = orchestrator.build(query=question, session_id="now", budget=budget)
            except OverBudget:
                break
            check(context, question, budget)
            reasons = {one.reason for one in context.dropped}
            if "room is kept for the turns to come" in reasons:
                assert policy.low < 1.0
                largest = sum(sorted(one.tokens for one in context.dropped)[-2:])
                assert context.prefix or context.tokens + largest + 100 > policy.low * budget
            elif policy.low == 1.0 and "no room for this part of the conversation" in reasons:
                assert context.prefix == 0  # nothing is kept free, so nothing can be continued
