"""One order over all tiers: the four signals, their weights, and the parts of each score."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom.errors import InvalidInput
from loom.everyday import Memory
from loom.memory import Fact
from loom.recall.reranking import DEFAULT_WEIGHTS, MemoryReranker, RerankSignal

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Found:
    id: str
    relevance: float | None = 0.5
    created_at: datetime = NOW
    importance: float = 0.5
    uses: int = 0
    content: str = ""


def reranker(
    weights: dict[str, float] | None = None, half_life_hours: float = 48, min_score: float = 0.0
) -> MemoryReranker:
    return MemoryReranker(weights, half_life_hours, min_score, clock=lambda: NOW)


def order(*found: Found, weights: dict[str, float] | None = None) -> list[str]:
    return [one.item.id for one in reranker(weights).rerank("question", found)]


def test_the_signals_are_those_of_the_design() -> None:
    assert {signal.name: signal.value for signal in RerankSignal} == {
        "RECENCY": "recency",
        "IMPORTANCE": "importance",
        "RELEVANCE": "relevance",
        "FREQUENCY": "frequency",
    }


@pytest.mark.parametrize(
    ("signal", "better"),
    [
        ("relevance", Found("z", relevance=0.6)),
        ("recency", Found("z", created_at=NOW + timedelta(hours=1))),
        ("importance", Found("z", importance=0.6)),
        ("frequency", Found("z", uses=1)),
    ],
)
def test_each_signal_decides_where_the_others_are_equal(signal: str, better: Found) -> None:
    worse = Found("a", created_at=NOW - timedelta(hours=1))
    if signal == "recency":
        assert order(worse, better) == ["z", "a"]
    else:
        assert order(Found("a"), better) == ["z", "a"]
        assert order(Found("a"), better, weights={signal: 1.0}) == ["z", "a"]


def test_recency_halves_with_each_half_life_and_the_future_is_no_better_than_now() -> None:
    times = [NOW + timedelta(days=9), NOW, NOW - timedelta(hours=48), NOW - timedelta(hours=96)]
    ranked = reranker().rerank("", [Found(str(place), created_at=at) for place, at in enumerate(times)])
    assert [one.signals[RerankSignal.RECENCY] for one in ranked] == [1.0, 1.0, 0.5, 0.25]


def test_frequency_saturates() -> None:
    first, many, more = (
        reranker().rerank("", [Found("a", uses=uses)])[0].signals[RerankSignal.FREQUENCY] for uses in (1, 100, 101)
    )
    assert 0 < first < many < more < 1
    assert more - many < 0.001


def test_a_clearly_more_relevant_memory_is_never_passed_by_a_newer_more_important_and_more_used_one() -> None:
    plain = Found("plain", relevance=0.8, created_at=NOW - timedelta(days=900), importance=0.0)
    shiny = Found("shiny", relevance=0.5, importance=1.0, uses=10**9)
    assert order(shiny, plain) == ["plain", "shiny"]


def test_among_about_equally_relevant_ones_the_other_signals_decide() -> None:
    plain = Found("plain", relevance=0.80, created_at=NOW - timedelta(days=900), importance=0.0)
    shiny = Found("shiny", relevance=0.78, importance=1.0, uses=10)
    assert order(plain, shiny) == ["shiny", "plain"]


def test_weights_are_brought_to_a_sum_of_one_and_what_is_not_named_does_not_count() -> None:
    weights = reranker({"relevance": 3, "importance": 1}).weights
    assert weights == {"relevance": 0.75, "importance": 0.25, "recency": 0.0, "frequency": 0.0}
    assert math.isclose(sum(DEFAULT_WEIGHTS.values()), 1.0)
    assert sum(reranker({"relevance": 1e308, "recency": 1e308}).weights.values()) == 1.0


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"relevance": -0.1, "recency": 1.0}, "relevance must be a number from 0, not -0.1"),
        ({"relevance": 0.0}, "all weights are 0"),
        ({}, "all weights are 0"),
        ({"relevance": math.nan}, "nan"),
        ({"relevance": math.inf}, "inf"),
        ({"beauty": 1.0}, "no signal 'beauty'"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        reranker(weights)


def test_settings_and_times_that_make_no_sense_are_refused() -> None:
    for half_life in (0, -1, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="half_life_hours"):
            reranker(half_life_hours=half_life)
    with pytest.raises(InvalidInput, match="min_score"):
        reranker(min_score=1.5)
    with pytest.raises(InvalidInput, match="limit"):
        reranker().rerank("", [], limit=0)
    with pytest.raises(InvalidInput, match="zone"):
        reranker().rerank("", [Found("a", created_at=datetime(2026, 1, 1))])  # noqa: DTZ001


def test_equal_ones_come_by_id_whatever_order_they_are_given_in() -> None:
    assert order(Found("c"), Found("a"), Found("b")) == ["a", "b", "c"]


def test_the_least_score_and_the_limit_cut_the_end_off() -> None:
    found = [Found(str(place), relevance=place / 10) for place in range(10)]
    assert [one.item.id for one in reranker().rerank("", found, limit=2)] == ["9", "8"]
    kept = reranker({"relevance": 1.0}, min_score=0.5).rerank("", found)
    assert [one.item.id for one in kept] == ["9", "8", "7", "6", "5"]


def test_without_a_measured_relevance_the_words_of_the_question_count_in_both_languages() -> None:
    tea, coffee = Found("tea", None, content="Ana drinks green tea"), Found("coffee", None, content="coffee for Ben")
    assert [one.item.id for one in reranker().rerank("who drinks tea", [coffee, tea])] == ["tea", "coffee"]
    chinese = [Found("b", None, content="向量检索的召回率"), Found("a", None, content="今天天气好")]
    (best, other) = reranker().rerank("召回率是多少", chinese)
    assert best.item.id == "b"
    assert other.signals[RerankSignal.RELEVANCE] < best.signals[RerankSignal.RELEVANCE]
    assert "shared words" in best.why


def test_a_score_is_told_in_words_and_is_the_sum_of_what_is_told() -> None:
    (ranked,) = reranker().rerank("", [Found("a", 0.5, NOW - timedelta(hours=48), importance=1.0, uses=4)])
    assert ranked.why == (
        "relevance: 0.50 x 0.80 = 0.400; recency, 2 days old: 0.50 x 0.08 = 0.040; "
        "importance: 1.00 x 0.08 = 0.080; frequency, used 4 times: 0.50 x 0.04 = 0.020"
    )
    assert ranked.score == pytest.approx(0.54)
    (only,) = reranker({"importance": 2}).rerank("", [Found("a")])
    assert only.why == "importance: 0.50 x 1.00 = 0.500"


found_ones = st.builds(
    Found,
    id=st.text(max_size=3),
    relevance=st.one_of(st.none(), st.floats(-1, 2), st.just(math.nan)),
    created_at=st.integers(-(10**9), 10**9).map(lambda seconds: NOW + timedelta(seconds=seconds)),
    importance=st.floats(0, 1),
    uses=st.integers(-1, 10**12),
    content=st.text(max_size=10),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(found_ones, max_size=8, unique_by=lambda one: one.id), st.text(max_size=8), st.randoms())
def test_nothing_is_lost_scores_are_bounded_and_the_order_depends_on_nothing_else(
    found: list[Found], query: str, chance: random.Random
) -> None:
    ranked = reranker().rerank(query, found)
    assert sorted(one.item.id for one in ranked) == sorted(one.id for one in found)
    assert all(0 <= value <= 1 for one in ranked for value in (one.score, *one.signals.values()))
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
    shuffled = chance.sample(found, len(found))
    assert [one.item.id for one in reranker().rerank(query, shuffled)] == [one.item.id for one in ranked]


# --- over a real store ----------------------------------------------------------------------------------


@pytest.fixture
def herons() -> Iterator[Memory]:
    """Five memories that answer a question alike, in different tiers, of different age, importance and use."""
    moments = [NOW - timedelta(days=30)]
    with loom.open(embedder="none", derive=False, clock=lambda: moments[0], l1_token_budget=120) as memory:
        say = "The heron nests at the {} pier."
        memory.remember(say.format("old"), id="old", importance=0.1)
        memory.remember(say.format("used"), id="used", importance=0.1)
        memory.remember(say.format("weighty"), id="weighty", importance=0.9)
        memory.add_fact(Fact(say.format("known"), created_at=moments[0]), importance=0.1)
        moments[0] = NOW
        memory.remember(say.format("new"), id="new", importance=0.1)
        for _ in range(12):
            memory.get("used")
        yield memory


@pytest.mark.parametrize(("signal", "first"), [("recency", "new"), ("importance", "weighty"), ("frequency", "used")])
def test_each_signal_decides_in_a_real_store(herons: Memory, signal: str, first: str) -> None:
    """Requirement 77."""
    chosen = MemoryReranker({signal: 1.0}, clock=lambda: NOW)
    hits = herons.recall("Where does the heron nest?", reranker=chosen)
    assert {"old", "used", "weighty", "new"} <= {hit.id for hit in hits}
    assert hits[0].id == first
    scores = [hit.signals["reranked"] for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_one_order_holds_over_every_tier(herons: Memory) -> None:
    found = herons.recall("Where does the heron nest?", derived=None, reranker=MemoryReranker(clock=lambda: NOW))
    assert len({hit.id for hit in found}) == 5
    relevant = MemoryReranker({"relevance": 1.0}, clock=lambda: NOW)
    plain = herons.recall("Where does the heron nest?", derived=None)
    assert {hit.id for hit in herons.recall("Where does the heron nest?", derived=None, reranker=relevant)} == {
        hit.id for hit in plain
    }


def test_a_memory_may_be_opened_with_a_reranker_for_every_recall_and_prompt() -> None:
    newest = MemoryReranker({"recency": 1.0}, clock=lambda: NOW)
    moments = [NOW - timedelta(days=9)]
    with loom.open(embedder="none", derive=False, reranker=newest, clock=lambda: moments[0]) as memory:
        for number in range(4):
            memory.remember(f"The heron nests at pier {number}.", id=f"r{number}", session_id="old")
            moments[0] += timedelta(days=1)
        assert [hit.id for hit in memory.recall("Where does the heron nest?")] == ["r3", "r2", "r1", "r0"]
        other = memory.recall("pier 0", reranker=MemoryReranker({"recency": 0.01, "relevance": 0.99}))
        assert other[0].id == "r0"
        items = memory.context("Where does the heron nest?", budget=600).items
        scores = {item.id: item.score for item in items if item.source == "recall"}
        assert set(scores) == {"r0", "r1", "r2", "r3"}
    with pytest.raises(InvalidInput, match="reranker must be an object"):
        loom.open(reranker=7)  # type: ignore[arg-type]
