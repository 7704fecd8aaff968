"""Facts and summaries in prompts: only if they help, never together with their sources, and in their current form."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import loom
from loom.context import Context, ContextOrchestrator, L4FactSource, RecallSource
from loom.everyday import Memory
from loom.memory import CompactionConfig
from loom.protocol import Task
from loom.storage.contract import Filter

BEGAN = datetime(2026, 3, 2, 9, tzinfo=UTC)
PARIS = "My address is 12 Rue Cler, Paris."
BERLIN = "My address is 12 Elbe Street, Berlin."
FROM_ANA = Filter(name="Ana")
LONG = f"{PARIS} " + "The tide came in and the boats went out again. " * 60


@pytest.fixture
def memory() -> Iterator[Memory]:
    with loom.open(embedder="none") as opened:
        yield opened


def content(context: Context) -> str:
    return "\n".join(message["content"] or "" for message in context[:-1])


def heard(memory: Memory, *sessions: str) -> None:
    """An assistant takes part in these sessions."""
    for session in sessions:
        memory.remember("Noted.", role="assistant", session_id=session, created_at=BEGAN)


def drawn(context: Context) -> list[str]:
    return [item.id for item in context.items if item.source == "l4"]


def test_a_fact_reaches_the_prompt_where_its_source_is_too_long_for_it(memory: Memory) -> None:
    memory.remember(LONG, name="Ana", role="user", created_at=BEGAN, session_id="s1", id="long")
    heard(memory, "s1")
    memory.flush()
    context = memory.context("What is the address of Ana?", budget=250)
    assert drawn(context)
    assert "Paris" in content(context)
    assert "long" not in {item.id for item in context.items if item.source == "recall"}
    assert context.tokens == memory.counter.count_messages(context) <= 250


def of_records(memory: Memory, **given: Any) -> list[bool]:
    """Whether a fact is in a prompt by default if an assistant speaks nowhere, elsewhere, and beside its source."""
    memory.remember(LONG, name="Ana", role="user", created_at=BEGAN, id="long", **given)
    memory.remember("Where was that?", name="Ben", role="user", created_at=BEGAN, **given)
    found: list[bool] = []
    for session in ("", "elsewhere", given.get("session_id")):
        if session != "":
            memory.remember("All right.", role="assistant", session_id=session, created_at=BEGAN)
        memory.flush()
        found.append(bool(drawn(memory.context("What is the address of Ana?", budget=250))))
    return found


def test_facts_of_a_conversation_without_an_assistant_stay_out_of_prompts(memory: Memory) -> None:
    assert of_records(memory, session_id="s1") == [False, False, True]


def test_facts_of_records_without_a_session_are_offered_where_an_assistant_speaks_anywhere(memory: Memory) -> None:
    assert of_records(memory) == [False, True, True]


def test_a_source_of_facts_of_ones_own_offers_those_of_every_conversation(memory: Memory) -> None:
    memory.remember(LONG, name="Ana", role="user", created_at=BEGAN, session_id="s1", id="long")
    memory.flush()
    question = "What is the address of Ana?"
    assert not drawn(memory.context(question, budget=250))
    context = memory.context(question, budget=250, sources=[L4FactSource(memory)])
    assert len(drawn(context)) == 1
    assert [source.name for source in context.sources].count("l4") == 1
    heard(memory, "s1")
    assert drawn(memory.context(question, budget=250)) == drawn(context)


def test_a_fact_and_what_it_was_drawn_from_are_never_both_there(memory: Memory) -> None:
    memory.remember(PARIS, name="Ana", role="user", created_at=BEGAN, session_id="s1", id="said")
    heard(memory, "s1")
    memory.flush()
    (fact,) = memory.facts("What is the address of Ana?")
    assert tuple(fact.sources) == ("said",)
    for session in (None, "s1", "s2"):
        context = memory.context("What is the address of Ana?", budget=600, session_id=session)
        assert content(context).count("Paris") == 1
        assert "said" in {item.id for item in context.items}
        assert fact.id not in {item.id for item in context.items}
        if session != "s1":
            reasons = [one.reason for one in context.dropped if one.id == fact.id]
            assert reasons == ["its source is in the prompt"]


def test_the_order_of_the_sources_does_not_matter_for_that(memory: Memory) -> None:
    memory.remember(PARIS, name="Ana", role="user", created_at=BEGAN, session_id="s1", id="said")
    memory.flush()
    for sources in ([L4FactSource(memory), RecallSource(memory)], [RecallSource(memory), L4FactSource(memory)]):
        context = ContextOrchestrator(memory.counter, sources).build(query="What is the address of Ana?", budget=600)
        assert [item.id for item in context.items] == ["said"]


def test_what_a_recall_passed_over_is_not_searched_for_again(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.remember(LONG, name="Ana", role="user", created_at=BEGAN, session_id="s1", id="long")
    memory.remember("Herons were seen at the pond.", name="Ana", role="user", session_id="s1")
    memory.flush()
    task = Task(action="context.query", parameters={"content": "What is the address of Ana?"})
    other = Task(action="context.query", parameters={"content": "Where does Ana live, at which address?"})
    facts = L4FactSource(memory)
    searched = [one.id for one in facts.get_context(task, 8)]
    assert searched
    assert facts.get_context(other, 8)
    monkeypatch.setattr("loom.context.sources.search_text", lambda *given: pytest.fail("searched again"))
    for sources in ([RecallSource(memory), facts], [facts, RecallSource(memory)]):
        context = ContextOrchestrator(memory.counter, sources).build(query=task, budget=300)
        assert drawn(context) == searched


def test_facts_are_found_with_and_without_a_recall_in_any_order(memory: Memory) -> None:
    memory.remember(LONG, name="Ana", role="user", created_at=BEGAN, session_id="s1", id="long")
    talk = [f"Ana, the address, the address of Ana: is address {number} her address?" for number in range(160)]
    memory.remember([{"role": "assistant", "content": text} for text in talk], session_id="s2")
    memory.flush()
    facts, recalled = L4FactSource(memory), RecallSource(memory)
    found = []
    for sources in ([facts], [facts, recalled], [recalled, facts], [facts, RecallSource(memory, wanted=FROM_ANA)]):
        context = ContextOrchestrator(memory.counter, sources).build(query="What is the address of Ana?", budget=900)
        offered = [one.id for one in context.dropped if one.source == "l4"]
        found.append(drawn(context) + offered)
    assert found[0]
    assert all(ids == found[0] for ids in found)


def test_a_recall_tells_facts_of_this_request_and_of_no_other(memory: Memory) -> None:
    question = "What is the address of Ana?"
    orchestrator = ContextOrchestrator(memory.counter, [L4FactSource(memory), RecallSource(memory)])
    assert not drawn(orchestrator.build(query=question, budget=300))
    memory.remember(LONG, name="Ana", role="user", created_at=BEGAN, session_id="s1", id="long")
    memory.flush()
    assert "Paris" in content(orchestrator.build(query=question, budget=300))


def test_a_fact_that_no_longer_holds_is_not_shown(memory: Memory) -> None:
    memory.remember(
        BERLIN + LONG[len(PARIS) :],
        name="Ana",
        role="user",
        created_at=BEGAN,
        session_id="s1",
    )
    later = BEGAN + timedelta(days=4)
    memory.remember(LONG, name="Ana", role="user", created_at=later, session_id="s2")
    heard(memory, "s2")
    memory.flush()
    assert {"Berlin", "Paris"} <= set(" ".join(fact.content for fact in memory.facts(history=True)).split(" "))
    context = memory.context("What is the address of Ana?", budget=250)
    assert drawn(context)
    assert "Paris" in content(context)
    assert not any("Berlin" in item.text for item in context.items if item.source == "l4")


def test_a_fact_stays_where_only_what_it_replaced_is_quoted(memory: Memory) -> None:
    memory.remember(BERLIN, name="Ana", role="user", created_at=BEGAN, session_id="s1", id="old")
    later = BEGAN + timedelta(days=4)
    memory.remember(LONG, name="Ana", role="user", created_at=later, session_id="s2", id="new")
    memory.flush()
    context = memory.context("What is the address of Ana?", budget=300)
    assert "old" in {item.id for item in context.items}
    assert "Paris" in content(context)  # the fact of now, though a turn from its past is there


def test_in_a_session_a_fact_is_shown_once_and_the_prompt_goes_on(memory: Memory) -> None:
    memory.remember(LONG, name="Ana", role="user", created_at=BEGAN, session_id="old", id="long")
    heard(memory, "old")
    memory.remember({"role": "user", "content": "Good morning."}, session_id="now")
    memory.remember({"role": "assistant", "content": "Good morning."}, session_id="now")
    memory.flush()
    first = memory.context("What is the address of Ana?", budget=420, session_id="now")
    again = memory.context("What is the address of Ana?", budget=420, session_id="now")
    assert again.prefix > 1
    assert again[: again.prefix] == first[: again.prefix]
    for context in (first, again):
        assert drawn(context)
        assert content(context).count("fact by Ana") == 1
        assert context.tokens <= 420


def archived(memory: Memory, count: int = 60) -> None:
    """A working day, most of it in the archive."""
    for number in range(count):
        text = {
            0: f"We decided to run job {number} on BLUE because the red cluster has no room left.",
            1: f"Job {number} failed with TimeoutError after {number + 30} s; raising the limit to 120 fixed it.",
            2: "Right, let me think about this for a moment, I am not sure yet what we could do, it is a long day.",
            3: "Okay! That sounds fine to me, thanks a lot, and by the way the coffee here has become really good.",
        }[number % 4]
        moment = BEGAN + timedelta(minutes=number)
        memory.remember(text, role="user", name="Ana", session_id="now", importance=0.7, created_at=moment)


BUDGETS: dict[str, Any] = {"l1_token_budget": 300, "l2_token_budget": 400, "l3_token_budget": 2_000}


def test_the_archive_in_short_is_in_a_sessions_prompt_but_not_beside_the_whole() -> None:
    with loom.open(embedder="none", derive=False, **BUDGETS) as memory:
        archived(memory)
        first = memory.context("Go on, please", budget=1000, session_id="now")
        short = {item.id for item in first.items if item.source == "l3"}
        assert short
        assert len(short) < len(first.items)
        second = memory.context("And then", budget=1000, session_id="now")
        assert second.prefix > 1
        assert second[: second.prefix] == first[: second.prefix]
        for context in (first, second):
            whole = [item.id for item in context.items if not item.shortened]
            assert len(set(whole)) == len(whole)
            assert not set(whole) & {item.id for item in context.items if item.source == "l3" and item.shortened}
            assert memory.counter.count_messages(context) == context.tokens <= 1000


def test_a_drawn_summary_reaches_a_sessions_prompts_and_stays_there() -> None:
    config = CompactionConfig(enabled=False, target_ratio=0.2)
    with loom.open(embedder="none", compaction=config, **BUDGETS) as memory:
        archived(memory)
        memory.compact()
        standing = {one.id for one in memory.summaries()}
        assert standing
        first = memory.context("Go on, please", budget=1000, session_id="now")
        shown = {item.id for item in first.items if item.source == "l3"}
        assert standing & shown
        assert any(line.startswith("summary") for line in content(first).splitlines())
        second = memory.context("And then", budget=1000, session_id="now")
        assert second[: second.prefix] == first[: second.prefix]
        assert standing & shown <= {item.id for item in second.items}
