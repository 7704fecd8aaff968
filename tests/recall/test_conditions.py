"""Which standing instructions a question meets, by words, by the kind of work and by meaning."""

from __future__ import annotations

import numpy as np
import pytest

from loom.recall.conditions import MEETS, Wish, condition_scores, turns_to_raise
from loom.storage.contract import Vector
from loom.types import InstructionKind


def told(text: str, condition: str | None = None, vector: Vector | None = None) -> Wish:
    return Wish.of(text, condition, InstructionKind.INSTRUCTION, vector)


def liked(text: str, vector: Vector | None = None) -> Wish:
    return Wish.of(text, None, InstructionKind.PREFERENCE, vector)


def unit(*values: float) -> Vector:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize("question", ["Fix the login.", "What is the capital of Peru?", "周末去哪里？"])
def test_what_has_no_condition_always_holds(question: str) -> None:
    assert condition_scores(question, [told("Never use emojis.")])[0] >= MEETS


@pytest.mark.parametrize(
    ("condition", "question", "is_met"),
    [
        ("when I ask for code", "Write a Python script that renames files.", True),
        ("when I ask for code", "When is the next full moon?", False),
        ("in emails", "Draft an email to my landlord.", True),
        ("For the Lisbon project", "What is left to do for the Lisbon project?", True),
        ("For the Lisbon project", "Which apples are sweet?", False),
        ("我问你代码的时候", "帮我写一个脚本。", True),
        ("写邮件时", "给客户写封邮件。", True),
        ("写邮件时", "苹果哪种甜？", False),
        ("whenever you answer", "Which apples are sweet?", True),
    ],
)
def test_a_condition_is_met_by_its_words_or_by_the_kind_of_work(condition: str, question: str, is_met: bool) -> None:
    (score,) = condition_scores(question, [told("Keep it short.", condition)])
    assert (score >= MEETS) is is_met


def test_a_condition_is_met_by_meaning_where_no_word_is_shared() -> None:
    wish = told("Always draw a tree.", "when I ask about probability", unit(1, 0))
    question = "What are the odds of two sixes?"
    assert condition_scores(question, [wish], unit(1, 0.2))[0] > MEETS
    assert condition_scores(question, [wish], unit(0, 1)) == [0.0]


def test_a_preference_that_bears_on_nothing_is_left_out_only_where_meaning_tells() -> None:
    museums = liked("I like small museums.", unit(1, 0))
    assert condition_scores("My router blinks.", [museums], unit(0, 1)) == [0.0]
    (unknown,) = condition_scores("My router blinks.", [museums])
    (known,) = condition_scores("A museum for Sunday?", [museums])
    assert 0.0 < unknown < known < MEETS


def test_how_answers_should_be_bears_on_every_question() -> None:
    wish = liked("Short answers suit me better than long ones.", unit(1, 0))
    assert condition_scores("My router blinks.", [wish], unit(0, 1))[0] >= MEETS


def test_a_question_that_meets_a_condition_needs_it_more_than_what_always_holds() -> None:
    always, on_code = condition_scores(
        "Write a script.", [told("Never use emojis."), told("Show types.", "when I ask for code")]
    )
    assert on_code > always


def test_turns_are_raised_for_requests_and_not_for_questions_about_the_past() -> None:
    applying = [(number, told("Show types.", "when I ask for code"), 1.5 + number / 100) for number in range(1, 10)]
    raised = turns_to_raise("Write a script.", applying)
    assert list(raised) == [9, 8, 7, 6, 5]
    assert all(0.0 < strength <= 1.0 for strength in raised.values())
    for question in ("How many scripts did I write?", "When did I start?", "我之前写过脚本吗？", "What is my quota?"):
        assert turns_to_raise(question, applying) == {}


def test_what_always_holds_raises_its_turn_only_where_it_is_like_the_question() -> None:
    assert turns_to_raise("Write a script.", [(1, told("Never use emojis."), MEETS)]) == {}
    assert turns_to_raise("Write a script.", [(1, told("Never use emojis."), MEETS + 0.5)]) == {1: 0.5}


def test_scoring_takes_time_in_proportion_to_the_text() -> None:
    wishes = [told("when I ask " * 30, "when I ask " * 30), liked("我喜欢" * 100)]
    for question in ("what is the " * 100_000, "什么时候" * 100_000, "how do i " * 100_000):
        assert len(condition_scores(question, wishes)) == 2
