"""The recall benchmark measures what it says, and its own sets are sound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.recall.__main__ import verdict
from benchmarks.recall.data import OWN_SETS, load_own, parse
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
