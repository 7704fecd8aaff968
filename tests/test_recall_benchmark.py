"""The recall benchmark measures what it says, and its own sets are sound."""

from __future__ import annotations

import pytest

from benchmarks.recall.data import OWN_SETS, load_own, parse
from benchmarks.recall.measures import MEASURES, measure
from benchmarks.recall.sides import baselines, fill, outcomes, recall_side


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
