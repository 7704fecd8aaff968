"""A search for terms in several texts at once finds the same as a search in each text."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loom.recall.passage_scores import DividedText, PassageScorer
from loom.recall.term_places import Sought
from loom.text.passages import passages
from loom.text.words import terms

PIECES = [
    "moved",
    "Moving",
    "bought",
    "buy",
    "gear-box",
    "42",
    "İstanbul",
    "服务器",
    "服务",
    "務器",
    "哈哈",
    "哈",
    "的",
]
TERMS = ["move", "buy", "gear", "42", "服务", "务器", "哈哈", "哈", "务", "สวัส"]
texts_of = st.lists(
    st.lists(st.sampled_from([*PIECES, " ", "\n", "。"]), max_size=12).map("".join), min_size=1, max_size=5
)


def found(sought: Sought, texts: list[str], held: np.ndarray | None = None) -> list[tuple[int, int, int]]:
    """Rows, texts and places, in one order."""
    columns = sought.occurrences(texts, held)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@given(texts=texts_of, chosen=st.lists(st.sampled_from(TERMS), min_size=1, max_size=8, unique=True))
def test_several_texts_are_searched_as_each_alone(texts: list[str], chosen: list[str]) -> None:
    sought = Sought.of(chosen)
    alone = [(row, number, at) for number, text in enumerate(texts) for row, _, at in found(sought, [text])]
    assert found(sought, texts) == sorted(alone)


@given(text=texts_of.map(" ".join), chosen=st.lists(st.sampled_from(TERMS), min_size=1, max_size=8, unique=True))
def test_a_text_has_the_terms_that_its_analysis_has(text: str, chosen: list[str]) -> None:
    text = text.replace("İ", "I")  # a text that small letters make longer is searched as it is written
    has = {chosen[row] for row, _, _ in found(Sought.of(chosen), [text])}
    assert has <= {*terms(text), *"".join(terms(text))}
    assert {term for term in chosen if term in terms(text)} <= has


@given(texts=texts_of, seed=st.integers(0, 2**32 - 1))
def test_only_texts_that_may_have_a_term_are_looked_at(texts: list[str], seed: int) -> None:
    sought = Sought.of(TERMS)
    held = np.random.default_rng(seed).random((len(TERMS), len(texts))) < 0.5
    assert found(sought, texts, held) == [one for one in found(sought, texts) if held[one[0], one[1]]]


def test_no_term_goes_from_one_text_into_the_next() -> None:
    assert found(Sought.of(["服务"]), ["服", "务"]) == []
    assert found(Sought.of(["服务"]), ["服", "服务"]) == [(0, 1, 0)]
    assert found(Sought.of(["gearbox"]), ["gear", "box"]) == []


def test_overlapping_occurrences_all_count_and_no_more_than_a_thousand_of_a_text() -> None:
    sought = Sought.of(["哈哈", "move"])
    assert [at for _, _, at in found(sought, ["哈哈哈"])] == [0, 1]
    flooded = ["哈" * 5_000, "哈哈 moved", "moved " * 2_000]
    rows = [(row, number) for row, number, _ in found(sought, flooded)]
    assert {one: rows.count(one) for one in rows} == {(0, 0): 1_000, (0, 1): 1, (1, 1): 1, (1, 2): 1_000}


@given(seed=st.integers(0, 2**32 - 1))
def test_passages_of_several_texts_score_to_the_last_bit_as_of_each_alone(seed: int) -> None:
    random = np.random.default_rng(seed)
    lines = [
        "# 服务器",
        "gearbox moved:",
        "- bought 42",
        "服务器搬到了三楼。" * 6,
        "",
        "| a | b |",
        "|---|---|",
        "| 哈 | 42 |",
    ]
    drawn = ["\n".join(random.choice(lines, 90).tolist()) for _ in range(3)]
    texts = [DividedText(text, passages(text), "Ana buy") for text in drawn]
    assert all(len(one.parts) > 1 for one in texts)
    scorer = PassageScorer({"服务": 1.5, "42": 2.5, "move": 0.7, "buy": 3.1}, 61.0, {"哈": 0.3, "gearbox": 1.9})
    together = scorer.contributions(texts)
    assert together.tobytes() == np.concatenate([scorer.contributions([one]) for one in texts], axis=1).tobytes()
    assert scorer.totals(together).tobytes() == np.concatenate([scorer.scores(*one) for one in texts]).tobytes()
