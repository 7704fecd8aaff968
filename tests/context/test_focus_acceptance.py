"""MEM-001 from end to end: a window of 8,192 tokens that no prompt exceeds, and a conversation that stays one."""

from __future__ import annotations

import pytest

import loom
from loom.errors import OverBudget

WINDOW = 8192


def words(number: int, tokens: int, language: str) -> str:
    return (
        f"message {number}: " + "tide " * (tokens - 4)
        if language == "en"
        else f"第{number}条：" + "潮" * (tokens - 6)
    )


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("profile", ["loom", "lcr"])
def test_the_focus_window_holds_while_a_conversation_goes_on(profile: str, language: str) -> None:
    system = words(0, 1000, language)
    with loom.open(embedder="none", profile=profile) as memory:
        seen_full = False
        for number in range(1, 61):
            text = words(number, 200, language)
            context = memory.context(text, session_id="s1", system=system)
            assert memory.counter.count_messages(context) == context.tokens <= context.budget == WINDOW
            assert context[-1]["content"] == text
            assert context[0]["role"] == "system"
            assert context[0]["content"].startswith(system.rstrip())
            turns = [
                int(message["content"].split(":")[0].split()[1])
                if language == "en"
                else int(message["content"][1:].split("条")[0])
                for message in context[1:]
                if message["content"].startswith(("message", "第"))
            ]
            # What is kept is the end of the conversation, without a gap: it reads as one.
            assert turns == list(range(turns[0], number + 1))
            assert turns[0] == 1 or len(turns) > 4
            seen_full = seen_full or turns[0] > 1
            memory.remember({"role": "user", "content": text}, session_id="s1")
        assert seen_full


def test_a_request_over_the_window_is_rejected_and_says_so() -> None:
    with loom.open(embedder="none") as memory, pytest.raises(OverBudget, match="budget is 8,192"):
        memory.context("tide " * 9000, session_id="s1")


def test_whoever_asks_is_told_that_the_window_is_full_and_nothing_is_lost() -> None:
    with loom.open(embedder="none", l1_token_budget=20_000) as memory:
        receipts = memory.remember(
            [{"role": "user", "content": words(number, 200, "en")} for number in range(60)], session_id="s1"
        )
        context = memory.context("Go on.", session_id="s1")
        assert any("the window is full" in note for note in context.notes)
        assert all(memory.get(receipt.id) is not None for receipt in receipts)
