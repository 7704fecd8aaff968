"""Replaced states: the lists of pairs as a whole, and the other words of a dialogue, which must never change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.states.__main__ import Pair, is_right, load
from loom.knowledge.states import newest_states
from loom.knowledge.summarizer import Turn

TALK = [
    "Thanks, that helps.",
    "What is left to do?",
    "好的，慢慢来。",
    "I saw a heron by the canal.",
    "```\nlimit = 900\n```",
]


def left_of(*said: str | Turn) -> list[str]:
    turns = [one if isinstance(one, Turn) else Turn(str(at), one, role="user") for at, one in enumerate(said)]
    return [turn.text for turn in newest_states(turns)]


def is_taken_out(pair: Pair) -> bool:
    turns = [Turn("1", pair.first.text, pair.first.speaker), Turn("2", pair.second.text, pair.second.speaker)]
    return newest_states(turns) != turns


@pytest.mark.parametrize(
    ("name", "right"),
    [("development", lambda pair: is_taken_out(pair) is pair.replaces), ("sealed", is_right)],
    ids=["compared", "compacted"],
)
def test_states_replace_each_other_and_nothing_else_does(name: str, right: Callable[[Pair], bool]) -> None:
    pairs = load(name)
    wrong = [pair for pair in pairs if not right(pair)]
    for language in ("English", "Chinese"):
        for replaces in (True, False):
            of_sort = [pair for pair in pairs if (pair.language, pair.replaces) == (language, replaces)]
            assert sum(pair in wrong for pair in of_sort) <= 0.1 * len(of_sort)
    assert [pair for pair in wrong if pair.example in ("other subjects", "numbers of a list", "negation")] == []


@pytest.mark.parametrize("pair", [pair for pair in load("development") if pair.example == "other subjects"])
def test_a_state_of_another_subject_stays_word_for_word(pair: Pair) -> None:
    assert not is_taken_out(pair)


def test_the_rest_of_a_sentence_and_of_a_turn_stays() -> None:
    assert left_of(
        "Morning! The limit is 900 requests, and Ana sings in a choir. See you at ten.",
        "The limit is now 1100 requests.",
    ) == ["Morning! Ana sings in a choir. See you at ten.", "The limit is now 1100 requests."]
    assert left_of("Ana sings, and the limit is 900 requests. Bye!", "The limit is now 1100 requests.") == [
        "Ana sings. Bye!",
        "The limit is now 1100 requests.",
    ]
    assert left_of("会议室是B12，咖啡十点开始。", "会议室现在是C04。") == ["咖啡十点开始。", "会议室现在是C04。"]


def test_a_state_with_its_cause_stays_as_an_event() -> None:
    said = ("The build is red because the disk is full.", "The build is green now.")
    assert left_of(*said) == [*said]


def test_what_a_tool_prints_replaces_nothing() -> None:
    said = Turn("1", "The limit is 900 requests.", role="user")
    printed = Turn("2", "The limit is now 1 request.", role="tool")
    assert left_of(said, printed) == [said.text, printed.text]


def test_a_list_in_one_turn_is_kept_whole() -> None:
    said = "Port: 8080\nThe port is 8081."
    assert left_of(said) == [said]


def test_a_state_that_returns_is_the_newest_again() -> None:
    red, green = "The build is red.", "The build is green now."
    assert left_of(red, green, "The build is red again.") == ["The build is red again."]


@given(st.lists(st.sampled_from(TALK), max_size=6), st.integers(0, 6))
def test_talk_is_never_changed(talk: list[str], at: int) -> None:
    before, after = talk[:at], talk[at:]
    older, newer = "The limit is 900 requests.", "The limit is now 1100 requests."
    assert left_of(*before, older, *after, newer) == [*before, *after, newer]


@given(st.lists(st.text(st.sampled_from("the is now 12 改成了是现在的，。: A\n"), max_size=200), max_size=3))
def test_any_text_is_read_and_only_parts_of_it_are_left_out(said: list[str]) -> None:
    kept = left_of(*said)
    assert len(kept) <= len(said)
    for text in kept:
        assert any(set(text) <= set(whole) and len(text) <= len(whole) for whole in said)
