"""The statements of a prompt about itself are true: its marks, its reasons, and the names of its quotations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import loom
from loom.context.fitting import NO_ROOM, Offer, TokenCosts, fit
from loom.context.items import Candidate
from loom.context.rendering import CUT_OFF, OPENING
from loom.everyday import Memory
from loom.protocol import Task, TaskStatus
from loom.text.tokens import TiktokenCounter

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def memory() -> Iterator[Memory]:
    with loom.open(embedder="none", clock=lambda: NOW) as opened:
        yield opened


def test_a_conversation_that_begins_with_an_answer_is_not_said_to_be_cut(memory: Memory) -> None:
    memory.remember({"role": "assistant", "content": "Welcome. What may I do?"}, session_id="s")
    memory.remember({"role": "user", "content": "Book a table for four."}, session_id="s")
    first = memory.context("At seven.", session_id="s", budget=500)
    memory.remember({"role": "user", "content": "At seven."}, session_id="s")
    second = memory.context("Outside, please.", session_id="s", budget=500)
    for context in (first, second):
        assert CUT_OFF not in str(context.messages)
        assert context[1] == {"role": "user", "content": OPENING}
        assert context[2]["content"] == "Welcome. What may I do?"
    assert second.prefix >= 4


def test_a_conversation_that_is_cut_says_so_also_where_it_began_with_an_answer(memory: Memory) -> None:
    roles = ("assistant", "user")
    said = [{"role": roles[number % 2], "content": f"Turn {number}: " + "tide " * 60} for number in range(20)]
    memory.remember(said, session_id="s")
    context = memory.context("Go on.", session_id="s", budget=700)
    assert [message["content"] for message in context].count(CUT_OFF) == 1
    assert OPENING not in str(context.messages)


@pytest.mark.parametrize("budget", [300, 450, 600, 900, 1400])
@pytest.mark.parametrize("session", [None, "s"])
def test_nothing_smaller_than_the_free_room_is_said_to_have_no_room(
    memory: Memory, budget: int, session: str | None
) -> None:
    long = "The harbour is quiet and the heron waits. " * 60
    for number in range(6):
        memory.remember(f"{number} {long}", session_id="other")
    for number in range(30):
        memory.remember(f"Heron {number} nests.", session_id="other", importance=0.9)
    if session:
        memory.remember([{"role": "user", "content": "Tell me of herons."}], session_id=session)
    context = memory.context("Where does the heron wait in the harbour?", session_id=session, budget=budget)
    free = context.budget - context.tokens
    wrong = [one for one in context.dropped if one.reason == NO_ROOM and one.tokens + 6 <= free]
    assert wrong == []
    assert all(one.reason for one in context.dropped)


def test_a_small_memory_behind_one_that_has_no_room_says_so() -> None:
    """The order is kept, so that more room never holds less: the reason names that and not a lack of room."""
    long = Candidate("long", "tide " * 400, stands_for=("long",), tokens=400, trust="user")
    small = Candidate("small", "Herons nest early.", tokens=6, trust="user")
    chosen = fit([Offer("l1", "l1", (long, small))], {"l1": 1.0}, 360, TokenCosts(TiktokenCounter()))
    assert {one.id: one.reason for one in chosen.dropped} == {
        "long": NO_ROOM,
        "small": "ranks behind one that has no room",
    }
    assert chosen.room == 360


def test_quotations_that_had_their_part_are_said_to_have_had_it() -> None:
    small = [Candidate(f"c{number}", f"Heron {number} nests.", tokens=6, trust="user") for number in range(40)]
    offers = [Offer("recall", "l3_l4", tuple(small))]
    chosen = fit(offers, {"l3_l4": 1.0}, 400, TokenCosts(TiktokenCounter()), quotes_room=60)
    assert chosen.room > 300
    assert {one.reason for one in chosen.dropped} == {"quotations have had their part of the room"}


def test_a_task_that_was_completed_is_not_called_corrected(memory: Memory) -> None:
    task = Task(action="execute", parameters={"content": "Deploy the heron server."})
    memory.remember(task)
    memory.remember(Task.from_dict({**task.to_dict(), "status": TaskStatus.COMPLETED, "result": "Deployed."}))
    for session in (None, "s"):
        context = memory.context("What happened to the heron server?", session_id=session, budget=800)
        shown = str(context.messages)
        assert "Deployed." in shown
        assert "corrected" not in shown


def test_a_memory_that_was_corrected_is_called_so(memory: Memory) -> None:
    id = memory.remember("The harbour code is 7319.", role="user", session_id="other").id
    memory.update(id, "The harbour code is 7320.")
    context = memory.context("What is the harbour code?", session_id="s", budget=800)
    assert "(corrected): The harbour code is 7320." in str(context.messages)


def test_of_what_agents_did_the_prompt_has_what_is_worth_most_now() -> None:
    """Requirement 91: events are chosen by time, action, relevance and node, beside messages by time alone."""
    moments = [NOW]
    with loom.open(embedder="none", node_id="me", clock=lambda: moments[0]) as memory:
        failed = Task(action="node.error", parameters={"content": "Valve nine burst."}, created_at=NOW)
        memory.remember(failed)
        for number in range(12):
            moments[0] = NOW + timedelta(minutes=1 + number)
            thought = {"content": f"Counting gulls, round {number}."}
            memory.remember(Task(action="node.thinking", parameters=thought, created_at=moments[0]))
        context = memory.context(Task(action="execute", parameters={"content": "Continue."}), budget=2000)
        recent = [item.text for item in context.items if item.source == "l1"]
        assert any("Valve nine burst." in text for text in recent)
        assert any("round 11." in text for text in recent)
        assert len(recent) <= 6
