"""The recall benchmark measures what it says, and its own sets are sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.recall.__main__ import verdict
from benchmarks.recall.data import OWN_SETS, SETS_OF_STORES, load_own, load_stores, parse
from benchmarks.recall.measures import MEASURES, measure
from benchmarks.recall.sides import SharedEmbedder, baselines, fill, outcomes, recall_side


def test_what_was_not_found_counts_nowhere_however_short_the_answer() -> None:
    values = dict(zip(MEASURES, measure("k", ["a"], [10], ["b"]).values, strict=True))
    assert set(values.values()) == {0.0}


def test_a_budget_ends_before_the_record_that_no_longer_fits() -> None:
    values = dict(zip(MEASURES, measure("k", ["a", "b", "c"], [900, 200, 50], ["a", "b"]).values, strict=True))
    assert (values["evidence 1K"], values["all 1K"]) == (0.5, 0.0)
    assert (values["evidence 2K"], values["all 2K"]) == (1.0, 1.0)
    assert (values["recall@5"], values["MRR"]) == (1.0, 1.0)


@pytest.mark.parametrize("name", OWN_SETS)
def test_our_own_sets_ask_questions_of_both_kinds(name: str) -> None:
    dialogue = load_own(name)
    assert len(dialogue.turns) > 100
    assert len(dialogue.questions) >= 40
    assert {question.kind for question in dialogue.questions} == {"lexical", "paraphrased"}


def test_evidence_that_names_no_turn_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"1\.2"):
        parse("x", "# 2024-01-01 10:00\nAna: hello\n== lexical\nWho? = 1.2\n")


def test_a_turn_may_have_several_lines() -> None:
    text = "# 2024-01-01 10:00\ntool: def f():\n|     return 1\n|\n| | a | b |\nuser: thanks\n== tool\nWhat? = 1.1\n"
    dialogue = parse("x", text)
    assert [turn.text for turn in dialogue.turns] == ["def f():\n    return 1\n\n| a | b |", "thanks"]
    assert [turn.role for turn in dialogue.turns] == ["tool", "user"]


KINDS_OF_QUESTIONS = [
    "facts",
    "information",
    "tool",
    "instructions",
    "preferences",
    "updates",
    "temporal",
    "several",
    "order",
    "summary",
    "contradictions",
    "paraphrase",
    "English",
]


def test_the_set_of_conversations_with_an_assistant_is_what_was_committed() -> None:
    (name,) = SETS_OF_STORES
    dialogues = load_stores(name)
    asked = [question for dialogue in dialogues for question in dialogue.questions]
    kinds = Counter(question.kind for question in asked)
    assert list(kinds) == KINDS_OF_QUESTIONS
    assert min(kinds.values()) >= 20
    assert len({question.text for question in asked}) == len(asked)
    turns = [turn for dialogue in dialogues for turn in dialogue.turns]
    assert 500 <= len(turns) <= 700
    assert {turn.role for turn in turns} == {"user", "assistant", "tool"}
    assert len(max((turn.text for turn in turns), key=len)) > 1000


def test_a_set_that_was_changed_after_it_was_committed_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  a.txt\n")
    (folder / "a.txt").write_text("# 2024-01-01 10:00\nuser: hello\n")
    with pytest.raises(ValueError, match="SHA256SUMS"):
        load_stores("x", tmp_path)


def test_recall_beats_plain_full_text_search_on_our_own_chinese_set() -> None:
    dialogue = load_own("chinese")
    with fill(dialogue, "none") as memory:
        ours, theirs = (
            sum(one.values[0] for one in outcomes(memory, dialogue, rank))
            for rank in (recall_side(memory), baselines(memory, dialogue, None)["plain FTS5"])
        )
    assert ours > theirs + 5


class Counting:
    """An embedder that counts what it is asked."""

    name = "counting"
    dimensions = 2

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        return np.asarray(self.embed_batch([text])[0])

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.asked += texts
        return np.array([[1.0, 0.0]] * len(texts), dtype=np.float32)


def test_every_text_and_question_is_embedded_once_for_all_sides() -> None:
    dialogue = parse("x", "# 2024-01-01 10:00\nAna: The boat.\nBen: The pier.\n== lexical\nWhich boat? = 1.1\n")
    counting = Counting()
    shared = SharedEmbedder(counting)
    for _ in range(2):
        with fill(dialogue, shared) as memory:
            for rank in (recall_side(memory), *baselines(memory, dialogue, shared).values()):
                outcomes(memory, dialogue, rank)
    assert sorted(counting.asked) == ["Ana: The boat.", "Ben: The pier.", "Which boat?"]


def test_the_verdict_names_where_fusing_is_worse_than_a_part_of_it() -> None:
    found, missed = (measure("lexical", ids, [10] * len(ids), ["a"]) for ids in (["a"], ["b"]))
    assert verdict({"recall": [found], "plain FTS5": [missed]}) == "never worse than a part of it"
    told = verdict({"recall": [missed], "plain FTS5": [found]})
    assert "recall@5 by 100.0 (plain FTS5)" in told
