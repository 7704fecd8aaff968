"""Prompts from a memory: what is in them, in which roles and order, within which budget, and why."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import FunctionType, ModuleType
from typing import Any
from unicodedata import east_asian_width

import pytest

import loom
from loom.context import (
    BudgetConfig,
    Candidate,
    ContextOrchestrator,
    L1RecentSource,
    L2ImportantSource,
    Place,
    RecallSource,
)
from loom.context.rendering import READING_RULE
from loom.errors import InvalidInput, OverBudget
from loom.everyday import Memory
from loom.memory import LoomMemory
from loom.protocol import Task
from loom.text.tokens import EstimateCounter, TiktokenCounter
from loom.types import MemoryUnit

BEGAN = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture
def memory() -> Iterator[Memory]:
    with loom.open(embedder="none") as opened:
        yield opened


def tell(memory: Memory, *said: tuple[str, str], session: str | None = "s1", began: datetime = BEGAN) -> None:
    memory.remember(
        [
            {"role": role, "content": text, "created_at": began + timedelta(minutes=minute)}
            for minute, (role, text) in enumerate(said)
        ],
        session_id=session,
    )


def content(context: Sequence[Any]) -> str:
    return "\n".join(message["content"] or "" for message in context)


def test_the_prompt_has_rules_quotations_and_the_question_last_within_its_budget(memory: Memory) -> None:
    tell(memory, ("user", "We chose the authorization-code flow."), ("assistant", "Noted."))
    context = memory.context("Which flow did we choose?", budget=400, system="You help with logins.")
    assert [message["role"] for message in context] == ["system", "user", "user"]
    assert context[0]["content"] == f"You help with logins.\n\n{READING_RULE}"
    assert context[-1] == {"role": "user", "content": "Which flow did we choose?"}
    assert "user: We chose the authorization-code flow." in context[1]["content"]
    assert context.tokens == memory.counter.count_messages(context) <= context.budget == 400
    assert context.messages == list(context) == context.to_openai()
    assert json.loads(json.dumps(context)) == list(context)


def test_an_empty_memory_gives_a_valid_prompt(memory: Memory) -> None:
    context = memory.context("Anything?", budget=100)
    assert [message["role"] for message in context] == ["system", "user"]
    assert (context.items, context.dropped) == ((), ())
    assert memory.context("还记得吗？", budget=100, session_id="new")[-1]["content"] == "还记得吗？"


def test_a_budget_below_system_and_question_is_refused_with_what_it_needs(memory: Memory) -> None:
    least = memory.context("Which flow?", budget=500).tokens
    with pytest.raises(OverBudget, match=f"give at least {least}"):
        memory.context("Which flow?", budget=least - 1)
    assert memory.context("Which flow?", budget=least).tokens == least


@pytest.mark.parametrize("question", ["", "  \n"])
def test_a_prompt_needs_something_to_answer(memory: Memory, question: str) -> None:
    with pytest.raises(InvalidInput, match="empty"):
        memory.context(question)


@pytest.mark.parametrize("budget", [0, -1, True, 1.5])
def test_a_budget_is_a_whole_number_of_tokens(memory: Memory, budget: Any) -> None:
    with pytest.raises(InvalidInput, match="whole number"):
        memory.context("Which flow?", budget=budget)


def test_without_a_budget_the_setting_holds() -> None:
    with loom.open(embedder="none", prompt_token_budget=300) as memory:
        assert memory.context("Which flow?").budget == 300


def test_what_is_quoted_is_in_order_of_time_under_its_days(memory: Memory) -> None:
    tell(memory, ("user", "The red kite nests in the oak."), began=BEGAN + timedelta(days=30), session="b")
    tell(memory, ("user", "The kite festival is in May."), ("user", "Kites need wind."), session="a")
    quoted = memory.context("kite", budget=500)[1]["content"]
    assert quoted.splitlines() == [
        "<memory>",
        "2 Mar 2026",
        "user: The kite festival is in May.",
        "user: Kites need wind.",
        "1 Apr",
        "user: The red kite nests in the oak.",
        "</memory>",
    ]


def test_headings_are_counted_as_they_stand_so_that_hardly_a_token_is_left(memory: Memory) -> None:
    for number in range(80):
        tell(
            memory,
            ("user", f"The heron {number} was seen at pond {number}."),
            session=f"s{number}",
            began=BEGAN + timedelta(days=13 * number),
        )
    context = memory.context("Where was the heron seen?", budget=600)
    lines = content(context[1:2]).splitlines()
    years = [line for line in lines if line.endswith((" 2026", " 2027", " 2028"))]
    assert 2 <= len(years) <= 3  # each where it begins, and not on every day
    items = sum(item.tokens for item in context.items)
    fixed = memory.counter.count_messages([context[0], context[-1]])
    assert items + fixed - 3 <= context.tokens <= items + fixed


def test_of_the_newest_none_is_shown_behind_one_that_has_no_room(memory: Memory) -> None:
    for number in range(60):
        text = f"The heron {number} was seen {number} times at pond {7 * number}, and {number} others with it."
        tell(memory, ("user", text), session="a")
    tell(memory, ("user", "Fine."), ("user", "Then let us speak of something else. " * 12), session="b")
    config = BudgetConfig(l1_ratio=0.04, l2_ratio=0.0, l3_l4_ratio=0.9)
    sources = [RecallSource(memory), L1RecentSource(memory)]
    orchestrator = ContextOrchestrator(memory.counter, sources, config=config)
    context = orchestrator.build(query="Where was the heron seen?", budget=600)
    assert not [item.text for item in context.items if item.source == "l1"]
    tell(memory, ("user", "Until tomorrow."), session="b", began=BEGAN + timedelta(hours=1))
    context = orchestrator.build(query="Where was the heron seen?", budget=600)
    assert [item.text for item in context.items if item.source == "l1"] == ["Until tomorrow."]


def test_without_a_session_the_newest_take_only_room_that_recall_leaves(memory: Memory) -> None:
    for number in range(60):
        text = f"The heron {number} was seen {number} times at pond {7 * number}, and {number} others with it."
        tell(memory, ("user", text), session="a")
    tell(memory, ("user", "Until tomorrow."), session="b")
    small, large = (memory.context("Where was the heron seen?", budget=budget) for budget in (600, 3000))
    assert "Until tomorrow." not in [item.text for item in small.items]
    assert [item.text for item in large.items if item.source == "l1"] == ["Until tomorrow."]


def test_a_chinese_sentence_stands_alone_and_a_few_signs_do_not(memory: Memory) -> None:
    tell(memory, ("user", "端口改了没有"), ("assistant", "登录服务的证书三月到期。"), session="a")
    tell(memory, ("user", "登录服务的证书在谁那里"), ("assistant", "证书在小李那里"), session="b")
    task = Task(action="context.query", parameters={"content": "登录服务的证书？"})
    offered = RecallSource(memory).get_context(task, 24)
    ids = {one.text: one.id for one in offered}
    reasons = {one.reason for one in offered}
    assert f"what {ids['登录服务的证书三月到期。']} refers to" not in reasons
    assert f"what {ids['证书在小李那里']} refers to" in reasons


def test_in_a_small_prompt_only_the_best_hits_bring_a_neighbour(memory: Memory) -> None:
    for number in range(12):
        tell(
            memory,
            ("user", f"Which colour has heron number {number}?"),
            ("assistant", f"It looks like {number} shades of grey."),
            session=f"s{number}",
        )
    source = RecallSource(memory)
    task = Task(action="context.query", parameters={"content": "Which colour has the heron?"})
    brought = {
        most: [one for one in source.get_context(task, most) if one.reason != "recalled"] for most in (8, 24, 96)
    }
    assert len(brought[8]) <= 1
    assert len(brought[24]) <= 3
    assert 3 < len(brought[96]) <= 12


def test_every_item_says_where_it_comes_from_and_what_it_takes(memory: Memory) -> None:
    memory.remember("The deadline is Friday.", id="deadline", role="user", importance=0.9, session_id="s1")
    context = memory.context("When is the deadline?", budget=300)
    (item,) = context.items
    assert (item.id, item.source, item.tier, item.reason) == ("deadline", "recall", "l4", "recalled")
    assert 0 < item.tokens < context.tokens
    (double,) = {one.id for one in context.dropped}
    assert double == "deadline"  # the recent and the important one are the same memory
    assert "already offered" in context.dropped[0].reason


def test_explaining_shows_shares_items_and_what_is_left_out(memory: Memory) -> None:
    for number in range(60):
        text = f"Note {number}: the harbour crane lifted container {number}" + " and set it down again" * 8
        memory.remember(text, role="user", session_id="s1")
    context = memory.context("harbour crane", budget=300)
    shown = context.explain()
    there = {item.id for item in context.items}
    left = {one.id for one in context.dropped} - there
    assert f"{context.tokens:,} of 300 tokens; items in: {len(context.items)}, left out: {len(left)}" in shown
    assert all(shown.count(id) == 1 for id in (*there, *left))
    assert "recall" in shown
    assert "no room" in shown
    assert all(item.id in shown for item in context.items)
    assert sum(report.used for report in context.sources) == len(context.items)


def test_explaining_shows_how_each_memory_begins_in_columns_that_stay_straight(memory: Memory) -> None:
    tell(
        memory,
        ("user", "港口的起重机吊起了第一个集装箱，然后又慢慢地把它放了下来。"),
        ("user", "Crane\x1b[2J one\nand two."),
    )
    rows = memory.context("crane 起重机", budget=300).explain().splitlines()
    chinese = next(row for row in rows if "港口的起重机" in row)
    plain = next(row for row in rows if "Crane" in row)
    assert "港口的起重机吊起了第一个集装箱，然…" in chinese
    assert "Crane[2J one and two." in plain
    wide = sum(east_asian_width(sign) in "WF" for sign in chinese)
    assert chinese.index("01") + wide == plain.index("01")


def test_a_question_that_is_stored_already_is_not_quoted_to_itself(memory: Memory) -> None:
    tell(memory, ("user", "Hello."), ("assistant", "Hello, Ana."), ("user", "Which port does staging use?"))
    context = memory.context("Which port does staging use?", session_id="s1", budget=400)
    assert content(context).count("Which port does staging use?") == 1
    assert any(one.reason == "it is the question" for one in context.dropped)
    assert "Which port" not in content(memory.context("Which port does staging use?", budget=400)[:-1])


def test_the_same_words_by_the_same_speaker_are_quoted_once(memory: Memory) -> None:
    for number in range(3):
        memory.remember("The key is under the mat.", id=f"key-{number}", role="user", session_id=f"s{number}")
    memory.remember("The key is under the mat.", id="other", role="user", name="Ben")
    context = memory.context("Where is the key?", budget=400)
    assert content(context).count("under the mat") == 2
    assert len({one.id for one in context.dropped if "says the same as" in one.reason}) == 2


# --- a conversation ------------------------------------------------------------------------------------------


def test_the_turns_of_the_session_are_messages_in_their_roles(memory: Memory) -> None:
    tell(memory, ("user", "Staging is slow."), ("assistant", "Since the release?"), ("user", "Since Monday."))
    tell(memory, ("user", "Another session entirely."), session="s2")
    context = memory.context("What changed on Monday?", session_id="s1", budget=600)
    spoken = [(message["role"], message["content"]) for message in context if "</memory>" not in message["content"]]
    assert spoken[1:] == [
        ("user", "Staging is slow."),
        ("assistant", "Since the release?"),
        ("user", "Since Monday."),
        ("user", "What changed on Monday?"),
    ]


def test_a_task_names_its_session_and_its_question(memory: Memory) -> None:
    tell(memory, ("user", "Staging is slow."), ("assistant", "Since when?"))
    task = Task(action="execute", parameters={"content": "Find out why."}, session_id="s1")
    context = memory.context(task, budget=400)
    assert [message["content"] for message in context][-3:] == ["Staging is slow.", "Since when?", "Find out why."]


def call(number: int, name: str = "search", arguments: str = '{"q": "tide"}') -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_tool_call_is_followed_by_all_of_its_results(memory: Memory) -> None:
    memory.remember(
        [
            {"role": "user", "content": "Look up the tides."},
            {"role": "assistant", "content": "", "tool_calls": [call(1), call(2, "weather")]},
            {"role": "tool", "tool_call_id": "call_2", "content": "Sunny."},
            {"role": "tool", "tool_call_id": "call_1", "content": "High at noon."},
            {"role": "assistant", "content": "High tide is at noon, with sun."},
        ],
        session_id="s1",
    )
    context = memory.context("And tomorrow?", session_id="s1", budget=800)
    roles = [message["role"] for message in context]
    assert roles[-6:] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    calling = context[-5]
    assert [one["id"] for one in calling["tool_calls"]] == ["call_1", "call_2"]
    assert [context[at]["tool_call_id"] for at in (-4, -3)] == ["call_1", "call_2"]


def test_a_call_without_its_result_and_a_result_without_its_call_become_text(memory: Memory) -> None:
    memory.remember(
        [
            {"role": "tool", "tool_call_id": "call_0", "content": "An orphan."},
            {"role": "user", "content": "Look up the tides."},
            {"role": "assistant", "content": "A moment.", "tool_calls": [call(1)]},
            {"role": "assistant", "content": "It did not answer."},
        ],
        session_id="s1",
    )
    context = memory.context("And now?", session_id="s1", budget=800)
    assert not any(message.get("tool_calls") or message["role"] == "tool" for message in context)
    assert "tool result (tool, unverified): “An orphan.”" in content(context)
    assert 'A moment.\n[called search({"q": "tide"}); no result is known]' in content(context)


def test_anthropic_messages_with_tool_parts_come_out_as_calls_and_results(memory: Memory) -> None:
    memory.remember(
        [
            {"role": "user", "content": "Tides?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "tide"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Noon."}]},
            {"role": "assistant", "content": "At noon."},
        ],
        session_id="s1",
    )
    context = memory.context("Thanks, and tomorrow?", session_id="s1", budget=800)
    assert [message["role"] for message in context][-5:] == ["user", "assistant", "tool", "assistant", "user"]
    request = context.to_anthropic()
    roles = [message["role"] for message in request["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert request["messages"][1]["content"][-1] == {
        "type": "tool_use",
        "id": "t1",
        "name": "search",
        "input": {"q": "tide"},
    }
    assert request["messages"][2]["content"][0]["type"] == "tool_result"


def test_the_conversation_keeps_its_end_and_whole_exchanges(memory: Memory) -> None:
    said = [
        (("user", f"Question {n}: " + "tide " * 30), ("assistant", f"Answer {n}: " + "moon " * 30)) for n in range(20)
    ]
    tell(memory, *(turn for pair in said for turn in pair))
    context = memory.context("Go on.", session_id="s1", budget=900)
    spoken = [m["content"].split(":")[0] for m in context if m["content"].startswith(("Question", "Answer"))]
    first = 20 - len(spoken) // 2
    assert spoken == [f"{what} {n}" for n in range(first, 20) for what in ("Question", "Answer")]
    assert 2 <= len(spoken) < 40
    assert any("the window is full" in note for note in context.notes)


def test_a_turn_too_long_for_the_prompt_is_shortened_and_leaves_no_gap(memory: Memory) -> None:
    tell(
        memory,
        ("user", "First."),
        ("assistant", "A long report. " + "It rained in the harbour. " * 400),
        ("user", "Thank you."),
        ("assistant", "You are welcome."),
    )
    context = memory.context("What was first?", session_id="s1", budget=500)
    told = [message["content"] for message in context]
    assert told[-4:-2] == ["Thank you.", "You are welcome."] or told[-3:-1] == ["Thank you.", "You are welcome."]
    (report,) = [text for text in told if text.startswith("A long report.")]
    assert re.search(r" \[… 2,\d\d\d tokens left out\] .*harbour\.\s*$", report)
    assert 450 < context.tokens <= 500
    (item,) = [one for one in context.items if one.shortened and one.place is Place.TURN]
    assert re.fullmatch(r"recent; shortened: \d\d\d of 2,\d\d\d tokens", item.reason)
    # What the question needs of it is quoted, too.
    assert ", shortened: 2" in context.explain()


def test_a_long_pause_in_the_conversation_is_told(memory: Memory) -> None:
    tell(memory, ("user", "See you."), ("assistant", "Good night."))
    tell(memory, ("user", "Back again."), ("assistant", "Welcome back."), began=BEGAN + timedelta(days=3))
    told = [message["content"] for message in memory.context("Where were we?", session_id="s1", budget=400)]
    assert told.index("[2 days later, 5 Mar 2026]") == told.index("Back again.") - 1


def test_an_answer_brings_the_question_it_answers(memory: Memory) -> None:
    tell(
        memory,
        ("user", "Filler one."),
        ("assistant", "Which colour should the boathouse door have?"),
        ("user", "Blue."),
    )
    tell(memory, *[("user", f"Unrelated talk number {n} about invoices.") for n in range(80)], session="s2")
    context = memory.context("boathouse door", budget=120)
    reasons = {item.reason.split(" ")[0]: item.id for item in context.items}
    assert "Which colour should the boathouse door have?" in content(context)
    assert "user: Blue." in content(context)
    assert {"answers", "what"} & reasons.keys()  # whichever of them was recalled brought the other


def test_what_was_corrected_is_shown_as_it_holds_now(memory: Memory) -> None:
    memory.remember("The launch is on 12 May.", id="launch", role="user", session_id="s1")
    memory.update("launch", "The launch is on 9 June.")
    shown = content(memory.context("When is the launch?", budget=300))
    assert "9 June" in shown
    assert "12 May" not in shown
    assert "(corrected)" in shown


# --- sources -------------------------------------------------------------------------------------------------


def test_a_failing_source_is_named_and_costs_only_its_part(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    def broken(task: Task, max_items: int) -> list[str]:
        raise RuntimeError("secret words")

    tell(memory, ("user", "Staging listens on 8443."))
    context = memory.context("Which port does staging use?", budget=400, sources=[broken])
    report = next(one for one in context.sources if one.name == "broken")
    assert report.error == "RuntimeError: secret words"
    assert "8443" in content(context)
    assert "secret words" not in caplog.text


def test_a_source_that_never_answers_delays_nothing_beyond_its_limit(memory: Memory) -> None:
    release = threading.Event()

    def stuck(task: Task, max_items: int) -> list[str]:
        release.wait(60)
        return ["too late"]

    tell(memory, ("user", "Staging listens on 8443."))
    try:
        context = memory.context("Which port?", budget=400, sources=[stuck], source_timeout_s=0.05)
    finally:
        release.set()
    assert next(one for one in context.sources if one.name == "stuck").error == "no answer within 0.05 s"
    assert "too late" not in content(context)


def test_any_callable_is_a_source_plain_or_awaited(memory: Memory) -> None:
    async def later(task: Task, max_items: int) -> list[Any]:
        return [{"role": "user", "content": f"asked: {task.parameters['content']}"}]

    def now(task: Task, max_items: int) -> list[Any]:
        return ["a plain text", Candidate("c1", "a candidate", trust="user")]

    context = memory.context("Which port?", budget=400, sources=[later, now])
    shown = content(context)
    assert "user: asked: Which port?" in shown
    assert "someone: “a plain text”" in shown  # the rule calls texts in these marks unverified
    assert "- a candidate" in shown
    assert {item.source for item in context.items} == {"later", "now"}


def test_unused_shares_flow_to_who_can_use_them() -> None:
    with LoomMemory("agent", embedder="none") as memory:
        for number in range(40):
            memory.add_task(Task(action="note", parameters={"content": f"step {number} " + "tide " * 20}))
        orchestrator = ContextOrchestrator(TiktokenCounter(), [L1RecentSource(memory), L2ImportantSource(memory)])
        context = orchestrator.build(query="Go on.", budget=1000)
        (recent, important) = context.sources
        assert recent.tokens > recent.share > 0
        assert important.tokens == 0
        assert context.tokens > 900


def test_what_is_in_a_prompt_counts_as_used(memory: Memory) -> None:
    receipt = memory.remember("Staging listens on 8443.", role="user")
    record = memory.store.get(receipt.id)
    assert record is not None
    before = memory.store.uses(record.seq, "default")
    memory.recall("staging")
    assert memory.store.uses(record.seq, "default") == before
    memory.context("staging", budget=300)
    assert memory.store.uses(record.seq, "default") == before + 1


def test_awaited_and_plain_builds_are_the_same(memory: Memory) -> None:
    tell(memory, ("user", "Staging listens on 8443."), ("assistant", "Noted."))
    orchestrator = ContextOrchestrator(memory.counter, [RecallSource(memory), L1RecentSource(memory)], 2000)
    plain = orchestrator.build(query="Which port?", session_id="s1")
    awaited = asyncio.run(orchestrator.build_context(query="Which port?", session_id="s1"))
    assert awaited == plain
    assert awaited.items == plain.items
    assert asyncio.run(memory.aio.context("Which port?", budget=300)) == memory.context("Which port?", budget=300)


def test_an_awaited_source_that_hangs_is_given_up(memory: Memory) -> None:
    async def hangs(task: Task, max_items: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    orchestrator = ContextOrchestrator(memory.counter, [hangs], 2000, source_timeout_s=0.05)
    context = asyncio.run(orchestrator.build_context("Which port?"))
    assert context.sources[0].error == "no answer within 0.05 s"


def test_a_counter_that_estimates_is_held_to_its_upper_bound(memory: Memory) -> None:
    for number in range(50):
        memory.remember(f"备忘 {number}：港口的起重机吊起了第 {number} 个集装箱。", role="user")
    orchestrator = ContextOrchestrator(EstimateCounter(), [RecallSource(memory)], 4000)
    context = orchestrator.build(query="港口的起重机")
    assert len(context.items) > 5
    assert TiktokenCounter().count_messages(context) <= context.tokens <= context.budget


def test_a_model_brings_its_window_and_its_counter(memory: Memory) -> None:
    orchestrator = ContextOrchestrator.for_model("gpt-4o-mini", [RecallSource(memory)])
    assert orchestrator.limit == 128_000 - 16_384 - 1024
    with pytest.raises(InvalidInput, match="not known"):
        ContextOrchestrator.for_model("somebody-elses-model")


@pytest.mark.parametrize("given", [{}, {"query": 5}, {"current_task": "a", "query": "b"}])
def test_a_build_takes_one_question(memory: Memory, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ContextOrchestrator(memory.counter).build(**given)


def test_a_read_only_memory_builds_prompts_too(tmp_path: Any) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        tell(memory, ("user", "Staging listens on 8443."))
    with loom.open(tmp_path / "a.loom", embedder="none", read_only=True) as reader:
        assert "8443" in content(reader.context("Which port does staging use?", budget=300))
        context = reader.context("Which port does staging use?", budget=300, session_id="s1")
        assert any("read-only" in note for note in context.notes)


def test_an_orchestrator_keeps_nothing_of_what_its_sources_gave() -> None:
    """Requirement 88: what one build was given is neither in the next one nor reachable from the orchestrator."""
    secret = "The harbour code is 7319."
    given = [[MemoryUnit(secret, metadata={"role": "user"})], []]

    def once(task: Task, max_items: int) -> list[MemoryUnit]:
        return given.pop(0)

    orchestrator = ContextOrchestrator(sources=[once])
    assert secret in str(orchestrator.build("Which code?", session_id="s").messages)
    reached: set[int] = set()
    waiting: list[object] = [vars(orchestrator)]
    while waiting:
        one = waiting.pop()
        if id(one) in reached or isinstance(one, ModuleType | type | FunctionType):
            continue
        reached.add(id(one))
        assert not (isinstance(one, str) and secret in one)
        waiting += gc.get_referents(one)
    assert len(reached) > 10
    assert secret not in str(orchestrator.build("Which code?", session_id="s").messages)
