"""Prompts of one session continue each other: the next begins with the tokens of the one before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.context import Context, LayoutStore, Place, PrefixPolicy
from loom.context.defaults import default_orchestrator
from loom.context.fitting import LEFT_OUT_TURNS, NO_ROOM, SHOWN_ONCE
from loom.context.layout import Block, BlockKind
from loom.context.rendering import CUT_OFF
from loom.everyday import Memory

BEGAN = datetime(2026, 3, 2, 9, tzinfo=UTC)
ANIMALS = ("heron", "lynx", "otter", "badger", "kite", "marten", "plover", "viper")


@pytest.fixture
def memory() -> Iterator[Memory]:
    with loom.open(embedder="none") as opened:
        fill(opened)
        yield opened


def fill(memory: Memory) -> None:
    memory.remember(
        [
            {
                "id": f"{animal}-{number}",
                "role": "user",
                "content": f"The {animal} was seen {number + 2} times at lake {animal.title()} in week {number}.",
                "created_at": BEGAN - timedelta(days=30 - number),
            }
            for number in range(20)
            for animal in ANIMALS
        ],
        session_id="field notes",
    )


def say(memory: Memory, number: int, question: str) -> None:
    at = BEGAN + timedelta(minutes=number)
    memory.remember(
        [
            {"role": "user", "content": question, "created_at": at},
            {"role": "assistant", "content": f"Answer {number}.", "created_at": at},
        ],
        session_id="now",
    )


def ask(memory: Memory, number: int, budget: int = 2000) -> Context:
    question = f"Where was the {ANIMALS[number % len(ANIMALS)]} seen, and how often? ({number})"
    context = memory.context(question, session_id="now", budget=budget, system="You know animals.")
    say(memory, number, question)
    return context


def common(before: list[Any], now: list[Any]) -> int:
    return next((at for at, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), len(before))


def test_the_next_prompt_begins_with_the_lasting_messages_of_the_one_before(memory: Memory) -> None:
    before = ask(memory, 0)
    for number in range(1, 6):
        now = ask(memory, number)
        assert now.prefix > 0
        assert now[: now.prefix] == before[: now.prefix]
        assert before[-1] in now  # the question before is a turn now
        assert memory.counter.count_messages(now) == now.tokens <= now.budget
        before = now


def test_most_of_a_long_conversations_prompts_are_beginnings_of_the_next(memory: Memory) -> None:
    shares = []
    rewrites = 0
    before = ask(memory, 0)
    for number in range(1, 60):
        now = ask(memory, number)
        same = memory.counter.count_messages(now[: common(before, now)])
        shares.append(same / now.tokens)
        rewrites += now.prefix == 0
        before = now
    assert sum(shares) / len(shares) > 0.65  # every turn asks, and what is shown once takes a quarter and more
    assert 1 <= rewrites < 6


def test_a_full_prompt_keeps_the_quotations_it_begins_with_and_the_end_of_the_conversation(memory: Memory) -> None:
    cuts = 0
    before = ask(memory, 0)
    for number in range(1, 130):
        now = ask(memory, number)
        assert now[: now.prefix] == before[: now.prefix]
        if any("the window is full" in note for note in now.notes) and now.prefix:
            cuts += 1
            assert now[1] == before[1]  # quotations, word for word
            assert now[1]["content"].startswith("<memory>")
            asked = [int(m["content"].split("(")[1][:-1]) for m in now if m["content"].startswith("Where was")]
            assert asked == list(range(asked[0], number + 1))  # without a gap, up to the question
            assert 3 < len(asked) < number
            left = {one.id for one in now.dropped if one.reason == "no room for this part of the conversation"}
            assert left
            assert not left & {item.id for item in now.items}
            assert memory.counter.count_messages(now) == now.tokens <= now.budget
        before = now
    assert cuts >= 2


def test_every_prompt_of_a_cut_conversation_says_what_is_left_out(memory: Memory) -> None:
    continued = 0
    for number in range(50):
        now = ask(memory, number, budget=1000)
        is_marked = {"role": "user", "content": CUT_OFF} in now
        left = [one for one in now.dropped if one.reason in LEFT_OUT_TURNS]
        assert bool(left) == is_marked == any("earlier turns are left out" in note for note in now.notes)
        assert not {one.id for one in left} & {item.id for item in now.items}
        continued += is_marked and now.prefix > 0
    assert continued > 5


def test_what_was_added_to_a_prompt_outlives_the_cut(memory: Memory) -> None:
    orchestrator = default_orchestrator(memory.manager, session="now", prefix_policy=PrefixPolicy(append=0.04))
    layouts = LayoutStore(memory.store, "default")
    for number in range(130):
        added = {seq for block in layouts.load("now").quotes[1:] for seq in block.records}
        question = f"Where was the {ANIMALS[number % len(ANIMALS)]} seen, and how often? ({number})"
        now = orchestrator.build(query=question, session_id="now", budget=2000)
        say(memory, number, question)
        if now.prefix and any("the window is full" in note for note in now.notes):
            break
    assert added
    assert added <= {item.seq for item in now.items}
    assert layouts.load("now").quotes[1].records == tuple(sorted(added, key=place_in(memory)))


def place_in(memory: Memory) -> Any:
    records = memory.store.records(range(1, 2000))
    return lambda seq: (records[seq].created_at, seq)


def test_room_that_is_kept_for_later_turns_is_used_for_one_prompt(memory: Memory) -> None:
    before = memory.context("Hello.", session_id="now", budget=900)
    cut = continued = 0
    for number in range(40):
        question = f"Where was the {ANIMALS[number % len(ANIMALS)]} seen, and how often? ({number})"
        now = memory.context(question, session_id="now", budget=900)
        say(memory, number, question)
        there = {item.id for item in now.items if not item.shortened}
        left = {one.id for one in now.dropped if one.reason == NO_ROOM}
        assert left
        assert not there & left
        assert now.budget - now.tokens < 40  # a memory with its mark and its day
        assert memory.counter.count_messages(now) == now.tokens
        assert now[: now.prefix] == before[: now.prefix]
        cut += {"role": "user", "content": CUT_OFF} in now
        continued += now.prefix > 0
        before = now
    assert cut > 10
    assert continued > 25


def test_turns_that_are_left_out_are_quoted_while_there_is_room(memory: Memory) -> None:
    quoted = 0
    for number in range(40):
        now = ask(memory, number, budget=700)
        spoken = {item.id for item in now.items if item.place is Place.TURN}
        again = [item for item in now.items if item.reason == SHOWN_ONCE]
        assert not spoken & {item.id for item in again}
        assert all(item.place is Place.QUOTE for item in again)
        left = [one for one in now.dropped if one.reason in LEFT_OUT_TURNS]
        if left:
            assert now.budget - now.tokens < 60
        quoted += bool(again)
    assert quoted > 5


def test_what_a_question_needs_is_in_its_prompt_although_the_layout_stands(memory: Memory) -> None:
    for number in range(30):
        context = ask(memory, number)
        animal = ANIMALS[number % len(ANIMALS)]
        assert sum(item.id.startswith(animal) for item in context.items) >= 3


def test_asking_again_gives_the_same_prompt(memory: Memory) -> None:
    ask(memory, 0)
    first = memory.context("Where was the lynx seen?", session_id="now", budget=2000)
    again = memory.context("Where was the lynx seen?", session_id="now", budget=2000)
    assert again == first


def test_the_layout_is_in_the_file_and_another_process_goes_on_with_it(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        fill(memory)
        before = ask(memory, 0)
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        now = ask(memory, 1)
    assert now.prefix > 1
    assert now[: now.prefix] == before[: now.prefix]


def test_sessions_and_stateless_calls_do_not_touch_each_other(memory: Memory) -> None:
    ask(memory, 0)
    alone = memory.context("Where was the otter seen?", budget=2000)
    assert alone.prefix == 0
    assert memory.context("Where was the otter seen?", budget=2000) == alone
    other = memory.context("Where was the otter seen?", session_id="other", budget=2000)
    assert other.prefix == 0
    assert ask(memory, 1).prefix > 0


def test_what_is_forgotten_is_gone_from_the_next_prompt(memory: Memory) -> None:
    context = ask(memory, 0)
    victim = next(item.id for item in context.items if item.id.startswith("heron"))
    record = memory.get(victim)
    assert record is not None
    memory.forget(victim)
    now = ask(memory, 8)
    assert now.prefix == 0
    assert all(record.content not in (message["content"] or "") for message in now)
    assert victim not in {item.id for item in now.items}


def test_a_correction_follows_what_stands_in_the_prompt(memory: Memory) -> None:
    context = ask(memory, 0)
    changed = next(item.id for item in context.items if item.id.startswith("heron"))
    memory.update(changed, "The heron was never seen at all.")
    now = ask(memory, 1)
    told = "\n".join(message["content"] for message in now)
    assert now.prefix > 0
    assert "user (corrected): The heron was never seen at all." in told
    assert ask(memory, 2).prefix > 0
    assert told.count("never seen at all") == 1


def test_a_smaller_budget_rewrites_the_prompt(memory: Memory) -> None:
    for number in range(4):
        ask(memory, number)
    small = ask(memory, 4, budget=600)
    assert (small.prefix, small.tokens <= 600) == (0, True)


def test_a_call_that_waits_for_its_result_comes_whole_when_it_is_there(memory: Memory) -> None:
    ask(memory, 0)
    call = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    memory.remember({"role": "user", "content": "Search, please."}, session_id="now")
    memory.remember({"role": "assistant", "content": "", "tool_calls": [call]}, session_id="now")
    waiting = memory.context("And?", session_id="now", budget=2000)
    assert "no result is known" in str(waiting.messages)
    memory.remember({"role": "tool", "tool_call_id": "call_1", "content": "Nothing new."}, session_id="now")
    memory.remember({"role": "assistant", "content": "Nothing new, then."}, session_id="now")
    done = memory.context("Fine.", session_id="now", budget=2000)
    roles = [message["role"] for message in done]
    at = roles.index("tool")
    assert done[at - 1]["tool_calls"][0]["id"] == done[at]["tool_call_id"]
    assert done.prefix > 0


def test_the_cache_of_anthropic_is_marked_where_the_prompt_may_change(memory: Memory) -> None:
    before = ask(memory, 0).to_anthropic()
    now = ask(memory, 1).to_anthropic()
    for request in (before, now):
        blocks = [*request["system"], *(block for message in request["messages"] for block in message["content"])]
        marked = [block for block in blocks if "cache_control" in block]
        assert 2 <= len(marked) <= 4
        assert "cache_control" not in request["messages"][-1]["content"][-1]
        roles = [message["role"] for message in request["messages"]]
        assert all(a != b for a, b in pairwise(roles))
        assert roles[0] == "user"


def test_a_layout_holds_numbers_and_no_words(memory: Memory) -> None:
    ask(memory, 0)
    entries = memory.store.entries(scope="layout", owner="default")
    assert entries
    for entry in entries:
        assert "now" not in entry.key
        assert set(entry.content) == {"generation", "budget", "blocks"}
        assert all(isinstance(number, int) for _, numbers in entry.content["blocks"] for number in numbers)


def test_of_two_writers_of_one_layout_the_first_counts(memory: Memory) -> None:
    layouts = LayoutStore(memory.store, "default")
    empty = layouts.load("both")
    assert layouts.rewrite("both", empty, [Block(BlockKind.QUOTES, (1,))])
    assert not layouts.rewrite("both", empty, [Block(BlockKind.QUOTES, (2,))])
    layout = layouts.load("both")
    assert layout.records == [1]
    assert layouts.append("both", layout, [Block(BlockKind.TURNS, (3, 4))])
    assert not layouts.append("both", layout, [Block(BlockKind.TURNS, (5,))])
    assert (layouts.load("both").records, layouts.load("both").last_turn) == ([1, 3, 4], 4)


def test_a_layout_of_many_parts_is_read_back_whole(memory: Memory) -> None:
    layouts = LayoutStore(memory.store, "default")
    layouts.rewrite("long", layouts.load("long"), [Block(BlockKind.QUOTES, (1,))])
    for number in range(2, 130):
        assert layouts.append("long", layouts.load("long"), [Block(BlockKind.TURNS, (number,))])
    assert layouts.load("long").records == list(range(1, 130))
