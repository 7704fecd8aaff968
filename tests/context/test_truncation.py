"""Shortening a list of messages: the rest is a conversation, within the target, in its order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from loom.context import ImportanceScore, SmartTruncator, TruncationStrategy
from loom.context.truncation import exchanges
from loom.errors import InvalidInput, OverBudget
from loom.text.tokens import TiktokenCounter

COUNTER = TiktokenCounter()
STRATEGIES = list(TruncationStrategy)


def conversation(count: int = 30, words: int = 30) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You help."}]
    for number in range(count):
        messages.append({"role": "user", "content": f"Question {number}? " + "tide " * words})
        if number % 5 == 0:
            call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "moon " * words})
        messages.append({"role": "assistant", "content": f"Answer {number}. " + "moon " * words})
    return messages


def check_pairs(messages: list[Any]) -> None:
    for at, message in enumerate(messages):
        if message.get("tool_calls"):
            assert messages[at + 1]["tool_call_id"] == message["tool_calls"][0]["id"]
        if message["role"] == "tool":
            assert messages[at - 1].get("tool_calls")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("target", [120, 300, 777, 1500, 2400])
def test_it_stays_within_the_target_keeps_system_and_last_and_splits_no_pair(
    strategy: TruncationStrategy, target: int
) -> None:
    messages = [*conversation(), {"role": "user", "content": "And now?"}]
    result = SmartTruncator(COUNTER).truncate(messages, target, strategy)
    assert COUNTER.count_messages(result.messages) == result.tokens <= target
    assert (result.messages[0], result.messages[-1]) == (messages[0], messages[-1])
    assert (result.truncated, result.original_count) == (True, len(messages))
    check_pairs(result.messages)
    kept = [messages.index(dict(one)) for one in result.messages if one in messages]
    assert kept == sorted(kept)
    assert len(kept) == result.preserved_count
    assert len(result.dropped) == len(messages) - len(kept)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_fits_is_left_as_it_is(strategy: TruncationStrategy) -> None:
    messages = conversation(3)
    result = SmartTruncator(COUNTER).truncate(messages, 10_000, strategy)
    assert (result.messages, result.truncated, result.preserved_count) == (messages, False, len(messages))
    assert SmartTruncator(COUNTER).truncate(messages, result.tokens, strategy) == result  # exactly as much
    assert SmartTruncator(COUNTER).truncate(messages, result.tokens - 1, strategy).truncated


def test_the_tail_is_kept_without_a_gap() -> None:
    messages = conversation()
    result = SmartTruncator(COUNTER).truncate(messages, 600, "TAIL_CUTOFF")
    kept = result.messages[1:]
    assert kept == messages[-len(kept) :]
    assert kept[0]["role"] == "user"


def test_the_important_stay_and_not_only_the_newest() -> None:
    messages = conversation()
    messages[1] |= {"metadata": {"starred": True}}
    messages[1]["content"] = "We decided on PostgreSQL 16 because of the migration deadline on 12 May. " * 2
    result = SmartTruncator(COUNTER).truncate(messages, 700, TruncationStrategy.IMPORTANCE_BASED)
    assert messages[1] in result.messages
    assert result.messages.index(messages[1]) == 1


def test_without_a_strategy_the_important_stay() -> None:
    messages = conversation()
    messages[1] |= {"metadata": {"starred": True}}
    messages[1]["content"] = "We decided on PostgreSQL 16 because of the migration deadline on 12 May. " * 2
    truncator = SmartTruncator(COUNTER)
    chosen = truncator.truncate(messages, 700)
    assert chosen == truncator.truncate(messages, 700, TruncationStrategy.IMPORTANCE_BASED)
    assert chosen != truncator.truncate(messages, 700, TruncationStrategy.TAIL_CUTOFF)


def test_what_bears_on_the_question_is_more_important() -> None:
    about = {"role": "user", "content": "The heron nests at the lake."}
    other = {"role": "user", "content": "The invoice was paid on time."}
    truncator = SmartTruncator(COUNTER, query="Where does the heron nest?")
    assert truncator.calculate_importance(about, 0.5) > truncator.calculate_importance(other, 0.5)


def test_importance_is_the_weighted_sum_of_four_parts() -> None:
    assert ImportanceScore(1.0, 0.0, 0.0, 0.0).total == pytest.approx(0.4)
    assert ImportanceScore(0.0, 1.0, 0.0, 0.0).total == pytest.approx(0.3)
    assert ImportanceScore(0.0, 0.0, 1.0, 0.0).total == pytest.approx(0.2)
    assert ImportanceScore(0.0, 0.0, 0.0, 1.0).total == pytest.approx(0.1)


def test_newer_marked_and_structured_messages_score_higher() -> None:
    truncator = SmartTruncator(COUNTER)
    now = datetime(2026, 3, 2, tzinfo=UTC)
    new = {"role": "user", "content": "tea", "timestamp": now.timestamp()}
    old = {"role": "user", "content": "tea", "timestamp": (now.timestamp() - 86_400) * 1000}  # in milliseconds
    assert truncator.score(new, now=now).recency == pytest.approx(1.0)
    assert truncator.score(old, now=now).recency == pytest.approx(0.5)
    assert truncator.score({"role": "user", "content": "tea", "copied": True}).user_emphasis == pytest.approx(0.7)
    listed = {"role": "user", "content": "# Plan\n- one\n- two\n1. three"}
    assert truncator.score(listed).structural == pytest.approx(1.0)


def test_a_summary_stands_for_what_is_left_out() -> None:
    asked: list[tuple[int, int]] = []

    def summarize(messages: Any, budget: int) -> str:
        asked.append((len(messages), budget))
        return "They spoke of tides.\n</memory>"

    result = SmartTruncator(COUNTER, summarize=summarize).truncate(conversation(), 800, "DYNAMIC_SUMMARY")
    told = result.messages[1]["content"]
    assert told.startswith("<memory>\n[")
    assert "They spoke of tides." in told
    assert told.count("</memory>") == 1
    assert asked[0][0] == len(result.dropped)


def test_merging_leaves_a_line_for_earlier_exchanges() -> None:
    result = SmartTruncator(COUNTER).truncate(conversation(), 800, "CONVERSATION_MERGE")
    told = result.messages[1]["content"]
    assert "user: Question" in told
    assert " / assistant: Answer" in told
    assert "[…]" in told


def test_of_an_exchange_too_long_its_question_and_its_end_stay() -> None:
    steps: list[dict[str, Any]] = [{"role": "user", "content": "Repair it."}]
    for number in range(20):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        steps.append({"role": "assistant", "content": None, "tool_calls": [call]})
        steps.append({"role": "tool", "tool_call_id": f"c{number}", "content": "log " * 40})
    steps.append({"role": "assistant", "content": "Repaired."})
    result = SmartTruncator(COUNTER).truncate(steps, 400, "TAIL_CUTOFF")
    assert (result.messages[0], result.messages[-1]) == (steps[0], steps[-1])
    assert len(result.messages) > 4
    check_pairs(result.messages)


def test_too_small_a_target_is_refused_with_what_it_needs() -> None:
    with pytest.raises(OverBudget, match="give at least"):
        SmartTruncator(COUNTER).truncate(conversation(), 10)


@pytest.mark.parametrize(("target", "strategy"), [(-1, "TAIL_CUTOFF"), (True, "TAIL_CUTOFF"), (100, "HEAD_CUTOFF")])
def test_what_makes_no_sense_is_refused(target: int, strategy: str) -> None:
    with pytest.raises(InvalidInput):
        SmartTruncator(COUNTER).truncate(conversation(), target, strategy)


def test_an_exchange_goes_from_one_word_of_the_user_to_the_next() -> None:
    messages = conversation(2)[1:]
    assert [list(one) for one in exchanges(messages)] == [[0, 1, 2, 3], [4, 5]]
    assert exchanges([]) == []


def test_a_dynamic_summary_is_the_summarizers_where_no_other_is_given() -> None:
    decided = {"role": "user", "content": "We decided to move the harbour database to port 8443 because of the tide."}
    talk = [decided, *conversation(40)[1:]]
    told = SmartTruncator(COUNTER).truncate(talk, 900, "DYNAMIC_SUMMARY").messages[0]["content"]
    assert "8443" in told  # a decision at the very beginning outlives forty exchanges without one
    merged = SmartTruncator(COUNTER).truncate(talk, 900, "CONVERSATION_MERGE").messages[0]["content"]
    assert "8443" not in merged


@pytest.mark.parametrize("text", ["a" * 400_000, "\n" * 400_000, " " * 400_000, "a." * 200_000, "/" * 400_000])
def test_a_score_takes_time_in_proportion_to_the_text(text: str) -> None:
    """With a pattern that looks for the beginning of a name at each letter this takes hours."""
    assert 0.0 <= SmartTruncator().score({"role": "user", "content": text}).total <= 1.0
