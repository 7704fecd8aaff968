"""The storage part of MEM-001: the recent tier stays within its budget, and has no gaps."""

from __future__ import annotations

import pytest

from loom.errors import OverBudget
from loom.memory import LoomMemory
from loom.protocol import Task

WINDOW = 8192


def message(number: int, tokens: int, language: str) -> Task:
    """A message of about this many tokens, by cl100k_base."""
    words = f"message {number}: " + " tide" * (tokens - 12) if language == "en" else f"第{number}条：" + "潮" * tokens
    return Task(task_id=f"m{number}", action="user.message", parameters={"content": words}, session_id="s1")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("profile", ["loom", "lcr", "chat"])
def test_the_recent_tier_holds_within_its_budget_and_keeps_the_newest_turns_without_a_gap(
    profile: str, language: str
) -> None:
    with LoomMemory("agent", profile=profile, l1_token_budget=WINDOW, embedder="none") as memory:
        memory.add_task(message(0, 1000, language))  # the system's instructions
        for number in range(1, 120):
            memory.add_task(message(number, 200, language))
            stats = memory.get_stats()
            assert stats["l1_token_usage"] <= stats["l1_token_budget"] == WINDOW
            kept = [int(task.task_id[1:]) for task in memory.get_l1_tasks()]
            assert kept == list(range(number - len(kept) + 1, number + 1))
        # Full, but for what the next older message would take.
        assert stats["l1_token_usage"] > WINDOW - 400
        assert all(memory.get_task(f"m{number}") is not None for number in range(120))


def test_a_request_over_the_limit_is_rejected_or_archived_with_a_clear_result() -> None:
    with LoomMemory("agent", l1_token_budget=WINDOW, embedder="none") as memory:
        for number in range(30):
            memory.add_task(message(number, 200, "en"))
        before = memory.get_stats()
        answer = memory.check_quota("l1", 9000)
        assert (answer.accepted, answer.action) == (False, "reject")
        with pytest.raises(OverBudget, match="nothing was written"):
            memory.add_task(message(99, 9000, "en"), on_oversize="reject")
        assert memory.get_stats() == before
        receipt = memory.add_task(message(99, 9000, "en"))
        assert (receipt.tier, "stand-in" in receipt.note) == ("l3", True)
        stats = memory.get_stats()
        assert stats["l1_token_usage"] <= WINDOW
        assert stats["l1_items"] == before["l1_items"] + 1
