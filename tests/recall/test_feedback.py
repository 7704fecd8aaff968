"""Feedback: verdicts on hits move how far each signal is trusted, within bounds, and are shared and kept."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import loom
from loom.errors import InvalidInput, ReadOnly
from loom.everyday import Memory
from loom.recall.feedback import LEARNED, LearnedWeights, apply_learned, learn
from loom.recall.relevance import Weights

QUESTION = "Which colour shall the kitchen have?"
RIGHT = "The kitchen shall have a warm colour, ochre I think."
WRONG = "The ferry to the island leaves at nine."


class Misled:
    """An embedder for which every question is about the ferry."""

    name = "misled"
    dimensions = 64

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        vector = np.zeros(self.dimensions, dtype=np.float32)
        vector[0 if text == WRONG or text.endswith("?") else 1 + len(text) % 60] = 1.0
        return vector

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.stack([self.embed(text) for text in texts])


def misled(path: Path | None = None) -> Memory:
    memory = loom.open(path, embedder=Misled(), derive=False)
    if memory.get_stats()["records"] == 0:
        said = [f"Somebody told a story about number {number} and went home." for number in range(20)]
        memory.remember([*said, WRONG, RIGHT])
        memory.flush()
    return memory


def id_of(memory: Memory, text: str) -> str:
    return next(hit.id for hit in memory.recall(QUESTION, limit=30) if hit.content == text)


def test_a_signal_that_misleads_counts_for_less_with_every_verdict() -> None:
    with misled() as memory:
        wrong = id_of(memory, WRONG)
        before = next(hit.score for hit in memory.recall(QUESTION) if hit.id == wrong)
        trust = [memory.feedback(QUESTION, wrong, helpful=False).factors["meaning"] for _ in range(8)]
        assert trust == sorted(trust, reverse=True)
        assert trust[-1] < 0.6
        after = next(hit.score for hit in memory.recall(QUESTION) if hit.id == wrong)
        assert after < 0.8 * before


def test_verdicts_bring_the_answer_before_what_only_seemed_near() -> None:
    asked = "Which paint suits the plaster beside the oven of a kitchen, matt or gloss, and who sells it?"
    with misled() as memory:
        assert memory.recall(asked)[0].content == WRONG
        while memory.recall(asked)[0].content == WRONG:
            learned = memory.feedback(asked, id_of_hit(memory, asked, WRONG), helpful=False)
            learned = memory.feedback(asked, id_of_hit(memory, asked, RIGHT), helpful=True)
            assert learned.helpful < 30, "it never learns"
        assert memory.recall(asked)[0].content == RIGHT


def id_of_hit(memory: Memory, asked: str, text: str) -> str:
    return next(hit.id for hit in memory.recall(asked, limit=30) if hit.content == text)


def test_trust_stays_within_bounds_whatever_is_said() -> None:
    with misled() as memory:
        wrong = id_of(memory, WRONG)
        for helpful in (True, False):
            for _ in range(40):
                learned = memory.feedback(QUESTION, wrong, helpful=helpful)
            assert all(0.4 <= factor <= 2.0 for factor in learned.factors.values())
        assert (learned.helpful, learned.unhelpful) == (40, 40)
        assert memory.recall(QUESTION)


def test_what_was_learned_is_kept_shared_and_can_be_reset(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with misled(path) as memory:
        memory.feedback(QUESTION, id_of(memory, WRONG), helpful=False)
        with misled(path) as other:
            stats = other.get_stats()
            assert stats["unhelpful"] == 1
            assert stats["trust_in_meaning"] < 1.0
    with misled(path) as memory:
        assert memory.verdicts.learned().unhelpful == 1
        memory.verdicts.reset()
        assert memory.verdicts.learned() == LearnedWeights()


def test_verdicts_at_the_same_time_all_count(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with misled(path) as memory, misled(path) as other:
        right = id_of(memory, RIGHT)

        def judge(one: Memory) -> None:
            for _ in range(10):
                one.feedback(QUESTION, right, helpful=True)

        threads = [threading.Thread(target=judge, args=(one,)) for one in (memory, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert memory.verdicts.learned().helpful == 20


def test_a_verdict_on_what_was_not_recalled_is_refused() -> None:
    with misled() as memory:
        with pytest.raises(InvalidInput, match="is not among the"):
            memory.feedback(QUESTION, "nobody", helpful=True)
        with pytest.raises(InvalidInput, match="True or False"):
            memory.feedback(QUESTION, id_of(memory, RIGHT), helpful="yes")  # type: ignore[arg-type]
        assert memory.verdicts.learned() == LearnedWeights()


def test_a_memory_that_may_only_be_read_learns_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    misled(path).close()
    with loom.open(path, embedder=Misled(), read_only=True) as memory:
        with pytest.raises(ReadOnly):
            memory.feedback(QUESTION, id_of(memory, RIGHT), helpful=True)
        assert memory.recall(QUESTION)


@pytest.mark.parametrize(
    "content",
    [
        {"factors": {"meaning": 9.0}, "helpful": 1, "unhelpful": 0},
        {"factors": {"meaning": float("1e300")}, "helpful": 1, "unhelpful": 0},
        {"factors": [], "helpful": 1, "unhelpful": 0},
        {"helpful": 1},
        "nonsense",
        None,
    ],
)
def test_what_makes_no_sense_counts_as_nothing(content: object) -> None:
    with misled() as memory:
        expected = [hit.id for hit in memory.recall(QUESTION)]
        with memory.store.transaction() as transaction:
            transaction.put_entry("recall", content, writer="somebody", scope="loom.feedback")
        assert [hit.id for hit in memory.recall(QUESTION)] == expected
        assert memory.feedback(QUESTION, expected[0], helpful=True).helpful == 1


def test_nothing_of_a_question_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with misled(path) as memory:
        memory.feedback("Was the zebrawood table in the kitchen?", id_of(memory, RIGHT), helpful=True)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"zebrawood" not in file.read_bytes().lower()


def test_where_all_hits_are_alike_nothing_can_be_learned() -> None:
    with misled() as memory:
        (hit,) = memory.recall("ochre", limit=1)
        assert learn(LearnedWeights(), hit, [], True).factors == dict.fromkeys(LEARNED, 1.0)
        assert apply_learned(Weights(), LearnedWeights()) == Weights()
