"""Properties of eviction from every tier, with any residents."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.settings import EVICTION_WEIGHTS, Eviction, EvictionWeights
from loom.storage.contract import Resident
from loom.tiers.eviction import choose_victims, hot_score, rank, scores, segments

# Few different values, so that ties are common; and some that strain the arithmetic.
moments = st.one_of(
    st.integers(0, 20).map(float), st.floats(0, 2e9, allow_subnormal=False), st.just(1.8e9), st.just(1.8e9 + 1e-6)
)
importances = st.one_of(st.sampled_from([0.0, 0.3, 0.1 + 0.2, 0.5, 1.0]), st.floats(0, 1))
relevances = st.one_of(st.none(), st.floats(0, 1))
weights = st.sampled_from(sorted(EVICTION_WEIGHTS)).map(EVICTION_WEIGHTS.__getitem__)
rules = st.sampled_from(Eviction)
graces = st.sampled_from([0.0, 0.05, 0.3, 1.0])


@st.composite
def residents(draw: st.DrawFn, record: int = 1) -> Resident:
    times = sorted(draw(st.lists(moments, min_size=1, max_size=4)))
    uses = len(times) - 1 if len(times) < 4 else draw(st.sampled_from([3, 40, 10**9]))
    return Resident(
        record,
        draw(st.integers(1, 500)),
        draw(importances),
        draw(st.integers(0, 30)),
        times[0],
        uses,
        times[-1],
        times[-2] if uses else None,
        draw(relevances),
    )


@st.composite
def tiers(draw: st.DrawFn, min_size: int = 0) -> list[Resident]:
    found = draw(st.lists(residents(), min_size=min_size, max_size=25))
    numbers = draw(st.permutations(range(1, len(found) + 1)))
    return [one._replace(record=number) for one, number in zip(found, numbers, strict=True)]


@given(tier=tiers(), rule=rules, weight=weights, grace=graces, data=st.data())
def test_the_order_of_leaving_does_not_depend_on_the_order_of_asking(
    tier: list[Resident], rule: Eviction, weight: EvictionWeights, grace: float, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(tier))
    ranked = rank(tier, rule, weight, grace=grace)
    assert rank(shuffled, rule, weight, grace=grace) == ranked
    assert sorted(ranked) == sorted(tier)


@given(tier=tiers(), rule=rules, weight=weights, grace=graces, excess=st.integers(-10, 8000))
def test_enough_is_freed_and_no_more_than_needed(
    tier: list[Resident], rule: Eviction, weight: EvictionWeights, grace: float, excess: int
) -> None:
    victims = choose_victims(tier, excess, rule, weight, grace=grace)
    freed = sum(one.tokens for one in victims)
    assert victims == rank(tier, rule, weight, grace=grace)[: len(victims)]
    assert freed >= min(excess, sum(one.tokens for one in tier))
    assert not victims or freed - victims[-1].tokens < excess


@given(tier=tiers(), weight=weights)
def test_scores_lie_between_0_and_1(tier: list[Resident], weight: EvictionWeights) -> None:
    points = scores(tier, weight)
    assert points.keys() == {one.record for one in tier}
    assert all(0.0 <= value <= 1.0 for value in points.values())


@given(
    one=residents(),
    now=moments,
    half_life_s=st.floats(1e-3, 1e9),
    most_uses=st.integers(0, 10**9),
    weight=weights,
)
def test_a_hot_score_lies_between_0_and_1(
    one: Resident, now: float, half_life_s: float, most_uses: int, weight: EvictionWeights
) -> None:
    assert 0.0 <= hot_score(one, now, half_life_s=half_life_s, most_uses=most_uses, weights=weight) <= 1.0


BETTER: dict[str, dict[str, Any]] = {
    "more important": {"importance": lambda one: one.importance + 0.2},
    "used more often": {"uses": lambda one: one.uses + 3},
    "used more recently": {"last_at": lambda one: one.last_at + 5.0},
    "used again more recently": {"last_at": lambda one: one.last_at + 5.0, "previous_at": lambda one: one.last_at},
    "more relevant": {"relevance": lambda one: one.relevance + 0.2},
}
COUNTS_UNDER = {
    "more important": {*Eviction},
    "used more often": {*Eviction},
    "used more recently": {*Eviction},
    "used again more recently": {*Eviction},
    "more relevant": {Eviction.WEIGHTED},
}


@pytest.mark.parametrize(
    ("how", "rule"), [(how, rule) for how in BETTER for rule in sorted(COUNTS_UNDER[how])], ids=str
)
@settings(max_examples=50)
@given(tier=tiers(min_size=1), weight=weights, grace=graces)
def test_the_better_of_two_otherwise_equal_records_leaves_later(
    how: str, rule: Eviction, tier: list[Resident], weight: EvictionWeights, grace: float
) -> None:
    # Used once and once more, so that one more use or another time is possible and nothing else changes.
    worse = tier[0]._replace(record=100, importance=0.5, uses=max(2, tier[0].uses), entered=5)
    worse = worse._replace(previous_at=worse.written_at, relevance=0.5)
    better = worse._replace(record=99, **{name: change(worse) for name, change in BETTER[how].items()})
    # The grace goes by entering, in which the two are equal but for the number: give it to both or neither.
    others = [one._replace(relevance=one.relevance or 0.5) for one in tier[1:]]
    if grace:
        others = [*others, tier[0]._replace(record=101, entered=6, tokens=10_000, relevance=0.5)]
    leaving = [one.record for one in rank([better, worse, *others], rule, weight, grace=min(grace, 0.3))]
    if how == "more relevant" and weight.relevance == 0:
        return
    assert leaving.index(100) < leaving.index(99)


@given(tier=tiers(), rule=rules, weight=weights, data=st.data())
def test_candidates_leave_and_nobody_else(
    tier: list[Resident], rule: Eviction, weight: EvictionWeights, data: st.DataObject
) -> None:
    numbers = [one.record for one in tier]
    candidates = data.draw(st.sets(st.sampled_from(numbers))) if numbers else set()
    ranked = rank(tier, rule, weight, candidates=candidates)
    assert sorted(one.record for one in ranked) == sorted(candidates)


@given(tier=tiers(), rule=rules, budget=st.integers(1, 8000))
def test_segments_hold_everybody_once_and_the_best_parts_keep_their_share(
    tier: list[Resident], rule: Eviction, budget: int
) -> None:
    parts = segments(tier, budget, rule)
    hot, warm = (sum(one.tokens for one in part) for part in parts[:2])
    assert [*parts.hot, *parts.warm, *parts.cold] == rank(tier, rule)[::-1]
    assert hot <= budget / 4
    assert hot + warm <= budget * 3 / 4
