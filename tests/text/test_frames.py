"""The frames of questions: what they are about, whether they want many answers, and their parts."""

from __future__ import annotations

import pytest

from loom.text.frames import outside_frame, parts_of, wants_many
from loom.text.words import query_terms


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        ("Can you list the order in which I brought up aspects of the greenhouse?", {"greenhous"}),
        ("Could you give me a complete summary of the greenhouse across our conversations?", {"greenhous"}),
        ("How many times did the heating fail so far?", {"heat", "fail"}),
        ("帮我总结一下温室", {"温室", "温", "室"}),
        ("Summarize so far, please.", {"summar", "far"}),  # nothing else is left
    ],
)
def test_the_frame_of_a_question_is_told_from_its_topic(question: str, topic: set[str]) -> None:
    assert set(query_terms(outside_frame(question))) == topic


@pytest.mark.parametrize(
    "question",
    [
        "In what order did we visit the ports?",
        "Can you give me a recap of the move?",
        "Which books has Mara read?",
        "How many different boats did we rent?",
        "List all the places where we anchored.",
        "How has the garden developed over the summer?",
        "What did we try about the leak, first to last?",
        "Order these: the mast, the paint, the new sails.",
        "这三件事谁先谁后，按时间排一下",
        "总结一下装修的问题",
        "老贺都提过哪些要求？",
        "合同是怎么一步步谈下来的？",
    ],
)
def test_questions_that_want_many_are_recognised(question: str) -> None:
    assert wants_many(question)


@pytest.mark.parametrize("question", ["Who painted the boat?", "What is the price of the mast?", "帆是谁补的？", ""])
def test_questions_that_want_one_answer_are_not(question: str) -> None:
    assert not wants_many(question)


def test_a_question_that_names_several_things_has_parts() -> None:
    assert len(parts_of(outside_frame("How long was it between buying the mast and launching the boat?"))) == 3
    assert parts_of(outside_frame("换期刊、改题目、换阈值，谁先谁后？")) == ("换期刊", "改题目", "换阈值")
    assert parts_of("Who painted the boat?") == ()
    assert parts_of(", ".join("abcdefgh")) == ()  # a list of words
