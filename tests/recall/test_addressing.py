"""A name by which one speaker addresses another means that speaker, in a question too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pytest

import loom
from loom.everyday import Memory
from loom.recall.questions import understand

ADDRESSED = [
    ("Emi", "Good morning. I am about to go to my cooking class."),
    ("Elise", "Hello Kate! Enjoy the class."),
    ("Emi", "It was lovely, we made a pie with leeks."),
    ("Elise", "That sounds delicious. And what are you up to today, Kate?"),
    ("Emi", "I go to the harbour to draw boats."),
    ("Elise", "I like to draw boats as well, mostly in the harbour."),
    ("Elise", "Good night Kate, see you tomorrow."),
]
MENTIONED = [
    ("Emi", "My brother Kurt draws boats in the harbour."),
    ("Elise", "I draw boats in the harbour as well."),
    ("Emi", "Yesterday I met Kurt."),
    ("Elise", "How was that?"),
    ("Emi", "We ate leeks with Kurt and his wife."),
    ("Elise", "Nice."),
    ("Emi", "On Friday I travel with Kurt."),
]


def told(turns: list[tuple[str, str]]) -> Memory:
    memory = loom.open(embedder="none")
    for name, text in turns:
        memory.remember(text, name=name, role="user", session_id="s")
    return memory


def test_a_question_finds_the_turns_of_the_speaker_whom_others_call_by_that_name() -> None:
    with told(ADDRESSED) as memory:
        found = memory.recall("Where does Kate draw boats?")
        assert found[0].content == "I go to the harbour to draw boats."
        assert found[0].signals["speaker"] > 0.0


def test_a_name_that_is_only_told_of_means_no_speaker() -> None:
    with told(MENTIONED) as memory:
        assert all("speaker" not in hit.signals for hit in memory.recall("Where does Kurt draw boats?"))


def test_a_question_is_embedded_without_the_names_of_speakers() -> None:
    asked: list[str] = []

    class Embedder:
        name = "counting"
        dimensions = 4

        def embed(self, text: str) -> npt.NDArray[np.float32]:
            return np.ones(4, dtype=np.float32)

        def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
            return np.array([self.embed(text) for text in texts])

        def embed_query(self, text: str) -> npt.NDArray[np.float32]:
            asked.append(text)
            return self.embed(text)

    with loom.open(embedder=Embedder()) as memory:
        memory.remember("I draw boats.", name="Ana", session_id="s")
        memory.remember("我在画船。", name="小林", session_id="s")
        memory.flush()
        memory.recall("What does Ana's brother draw?")
        memory.recall("小林昨天画了什么？")
        memory.recall("What does Berta draw?")
    assert asked == ["What does brother draw?", "昨天画了什么？", "What does Berta draw?"]


def test_a_question_of_nothing_but_names_is_kept_whole() -> None:
    assert understand("Who is Ana?", datetime(2024, 5, 15, tzinfo=UTC)).without_names({"ana"}) == "Who is Ana?"


def test_of_the_turns_of_a_speaker_those_about_the_speaker_come_before_those_about_the_listener() -> None:
    turns = [
        ("Ben", "You said that you sail a boat called Heron, with your brother."),
        ("Ana", "What a lovely week."),
        ("Ben", "I sail a boat called Heron, with my brother too."),
    ]
    with told(turns) as memory:
        first, second = (hit for hit in memory.recall("Which boat does Ben sail?") if hit.name == "Ben")
        assert first.content == turns[2][1]
        assert 0.0 < second.signals["speaker"] < first.signals["speaker"]
    chinese = [
        ("小林", "你说过你养了一只鹦鹉，你还教它唱歌。"),
        ("小周", "这周过得真快。"),
        ("小林", "我养了一只鹦鹉，我还教它唱歌。"),
    ]
    with told(chinese) as memory:
        first, second = (hit for hit in memory.recall("小林养了什么鸟？") if hit.name == "小林")
        assert first.content == chinese[2][1]
        assert 0.0 < second.signals["speaker"] < first.signals["speaker"]


def test_of_two_speakers_in_a_question_the_first_is_the_one_who_answers() -> None:
    turns = [("Ana", "I painted the boat in spring."), ("Ben", "I painted the boat in spring!")]
    with told(turns) as memory:
        for first, second in (("Ana", "Ben"), ("Ben", "Ana")):
            hits = memory.recall(f"What did {first} tell {second} about the boat in spring?")
            assert [hit.name for hit in hits] == [first, second]
            assert 0.0 < hits[1].signals["speaker"] < hits[0].signals["speaker"]
        both = memory.recall("Did Ana and Ben paint the boat in spring?")
        assert both[0].signals["speaker"] == both[1].signals["speaker"]


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("What did Ana say about Ben?", {"ana"}),
        ("What do Ana and Ben have in common?", {"ana", "ben"}),
        ("Which cities have both, Ana, Ben and Carl, seen?", {"ana", "ben", "carl"}),
        ("Which of Ben's jokes did Ana and Carl like?", {"ben"}),
        ("王芳和李明去了哪里？", {"王芳", "李明"}),
        ("王芳给李明推荐了什么？", {"王芳"}),
    ],
)
def test_the_subject_of_a_question_is_the_first_name_with_those_joined_to_it(
    question: str, subject: set[str]
) -> None:
    asked = understand(question, datetime(2024, 5, 15, tzinfo=UTC))
    assert asked.subject({"ana", "ben", "carl", "王芳", "李明"}) == subject
    assert asked.subject({"dora"}) == {"dora"}
