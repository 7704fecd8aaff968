"""Eviction from a full working tier: each rule, the grace, the segments, and easy mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from benchmarks.working_tier import LRU, ours, simulate, through_the_store
from benchmarks.working_tier import session as session_that_moves_on
from loom.errors import InvalidInput
from loom.settings import EVICTION_WEIGHTS, PROFILES, Eviction
from loom.storage.contract import Resident
from loom.tiers.eviction import GRACE, choose_victims, hot_score, rank, scores, segments

LEAST_IMPORTANT, LEAST_USED, WEIGHTED = Eviction.LEAST_IMPORTANT, Eviction.LEAST_USED, Eviction.WEIGHTED
NO_GRACE = 0.0


def resident(
    record: int,
    *uses_at: float,
    written_at: float | None = None,
    tokens: int = 200,
    importance: float = 0.5,
    entered: int | None = None,
    relevance: float | None = None,
) -> Resident:
    """A resident written at the moment of its number, and used at these moments."""
    references = (float(record) if written_at is None else written_at, *uses_at)
    return Resident(
        record,
        tokens,
        importance,
        record if entered is None else entered,
        references[0],
        len(uses_at),
        references[-1],
        references[-2] if uses_at else None,
        relevance,
    )


def order(residents: Sequence[Resident], rule: Eviction, grace: float = NO_GRACE) -> list[int]:
    return [one.record for one in rank(residents, rule, grace=grace)]


def session(messages: int, *, hot_every: int = 5, reach: int = 60) -> list[Resident]:
    """Messages of which each fifth is used every 15 moments, until it is `reach` old; the others never."""
    found = []
    for number in range(messages):
        last = min(messages, number + reach)
        uses = [float(at) for at in range(number + 15, last, 15)] if number % hot_every == 0 else []
        found.append(resident(number, *uses))
    return found


# --- the least important first ---------------------------------------------------------------------------


def test_the_least_important_leaves_first_and_the_most_important_last() -> None:
    tier = [resident(1, importance=0.9), resident(2, importance=0.61), resident(3, importance=0.7)]
    assert order(tier, LEAST_IMPORTANT) == [2, 3, 1]


def test_no_amount_of_use_outweighs_importance() -> None:
    busy = resident(1, *range(2, 1000), importance=0.7)
    idle = resident(2, importance=0.700001)
    assert order([busy, idle], LEAST_IMPORTANT) == [1, 2]


def test_among_equals_a_record_with_one_reference_leaves_before_one_with_two() -> None:
    tier = [resident(1, 2.0, 3.0), resident(4), resident(5)]
    assert order(tier, LEAST_IMPORTANT) == [4, 5, 1]


def test_among_equals_the_last_but_one_reference_decides_and_not_the_last() -> None:
    used_long_ago_and_just_now = resident(1, 2.0, 100.0)
    used_twice_lately = resident(3, 50.0, 60.0)
    assert order([used_twice_lately, used_long_ago_and_just_now], LEAST_IMPORTANT) == [1, 3]


def test_importances_that_differ_by_rounding_alone_are_equal() -> None:
    tier = [resident(1, importance=0.1 + 0.2), resident(2, importance=0.3)]
    assert order(tier, LEAST_IMPORTANT) == [1, 2]


def test_the_grace_does_not_drive_out_the_more_important() -> None:
    tier = [*(resident(number, importance=0.9) for number in range(10)), resident(10, importance=0.65)]
    assert choose_victims(tier, 1, LEAST_IMPORTANT)[0].record == 10


# --- the least used first --------------------------------------------------------------------------------


def test_the_least_used_leaves_first_and_among_equals_the_longest_unused() -> None:
    tier = [resident(1, 5.0, 6.0), resident(2, 9.0), resident(3, 8.0), resident(4)]
    assert order(tier, LEAST_USED) == [4, 3, 2, 1]


def test_what_has_just_entered_is_not_the_first_to_leave_for_want_of_uses() -> None:
    tier = [*(resident(number, 50.0 + number) for number in range(20)), resident(99)]
    assert order(tier, LEAST_USED, grace=0.05)[0] == 0
    assert order(tier, LEAST_USED, grace=NO_GRACE)[0] == 99


# --- the lowest score first ------------------------------------------------------------------------------


def test_a_record_used_again_and_again_stays_before_one_that_was_used_once_just_now() -> None:
    """LRU-2 and not LRU: one late reference, as in a scan, is not enough."""
    regular = resident(1, 60.0, 80.0, 90.0)
    scanned = resident(2, 100.0)
    others = [resident(number) for number in range(10, 60)]
    leaving = order([regular, scanned, *others], WEIGHTED)
    assert leaving.index(2) < leaving.index(1)


def test_a_scan_of_old_records_leaves_before_what_the_session_uses() -> None:
    """In a scan each record is the last used of all: LRU would keep it, and drop what is needed again."""
    work = session(200)
    scan = [resident(number - 9000, 200.0 + number / 100) for number in range(60)]
    leaving = order([*work, *scan], WEIGHTED)
    in_use = [one.record for one in work if one.uses >= 2 and one.record > 145]
    assert len(in_use) >= 4
    assert min(map(leaving.index, in_use)) > max(leaving.index(one.record) for one in scan)


def test_a_timestamp_does_not_swamp_the_count() -> None:
    now = 1.8e9
    often = resident(1, *(now - 50 + at for at in range(10)), now - 9, now - 3, written_at=now - 100)
    once = resident(2, now - 9, now - 3, written_at=now - 100)
    newer = [resident(number, written_at=now - 60 + number) for number in range(10, 40)]
    points = scores([often, once, *newer])
    assert points[1] - points[2] > 0.02


def test_what_was_used_a_lot_in_its_day_leaves_once_the_work_has_moved_on() -> None:
    """If nothing is used after a certain age, many old uses do not keep a record for ever."""
    tier = session(300)
    leaving = order(tier, WEIGHTED)
    once_hot = {one.record for one in tier if one.uses > 0 and one.record < 100}
    waiting = {one.record for one in tier if one.uses == 0 and one.record > 240}
    assert max(map(leaving.index, once_hot)) < min(map(leaving.index, waiting))


def test_what_is_old_and_still_in_use_stays_before_younger_records_that_nobody_uses() -> None:
    knowledge = [resident(number, *(float(at) for at in range(1000 + number, 2000, 40))) for number in range(30)]
    chatter = [resident(1700 + number) for number in range(300)]
    leaving = order([*knowledge, *chatter], WEIGHTED)
    assert min(leaving.index(number) for number in range(30)) > 200


def test_young_records_are_neither_the_first_to_leave_nor_safe_for_ever() -> None:
    tier = session(300)
    leaving = order(tier, WEIGHTED)
    newest = [record for record in leaving if record >= 290]
    assert min(map(leaving.index, newest)) > 200
    unused = [one.record for one in tier if one.uses == 0]
    assert [record for record in leaving if record in unused[:100]] == unused[:100]


def test_relevance_decides_among_records_used_alike() -> None:
    tier = [resident(number, written_at=1.0, relevance=value) for number, value in enumerate((0.9, 0.1, 0.5))]
    assert order(tier, WEIGHTED) == [1, 2, 0]


def test_relevance_weighs_more_in_the_profile_for_context() -> None:
    recent = resident(1, 90.0, 95.0, relevance=0.2)
    relevant = resident(2, 40.0, 50.0, relevance=0.9)
    others = [resident(number, relevance=0.5) for number in range(10, 40)]
    tier = [recent, relevant, *others]
    by_dialogue = scores(tier, EVICTION_WEIGHTS["dialogue"])
    by_context = scores(tier, EVICTION_WEIGHTS["context"])
    assert by_dialogue[1] > by_dialogue[2]
    assert by_context[1] < by_context[2]


def test_frequency_weighs_more_in_the_profile_for_knowledge() -> None:
    often = resident(1, *(float(at) for at in range(2, 30)), 60.0, 90.0, relevance=0.5)
    lately = resident(2, 75.0, 90.0, relevance=0.5)
    others = [resident(number, relevance=0.5) for number in range(30, 80)]
    tier = [often, lately, *others]
    by_knowledge = scores(tier, EVICTION_WEIGHTS["knowledge"])
    by_dialogue = scores(tier, EVICTION_WEIGHTS["dialogue"])
    assert by_knowledge[1] - by_knowledge[2] > by_dialogue[1] - by_dialogue[2]


def test_where_the_relevance_of_most_is_unknown_it_counts_for_nothing() -> None:
    known = [resident(1, written_at=1.0, relevance=1.0), resident(2, written_at=1.0, relevance=0.0)]
    tier = [*known, *(resident(number, written_at=1.0) for number in (3, 4, 5))]
    for weights in EVICTION_WEIGHTS.values():
        assert len(set(scores(tier, weights).values())) == 1


def test_a_record_of_unknown_relevance_is_taken_for_an_ordinary_one() -> None:
    values = (0.9, 0.5, None, 0.1)
    tier = [resident(number, written_at=1.0, relevance=value) for number, value in enumerate(values)]
    points = scores(tier)
    assert points[0] > points[2] == points[1] > points[3]


def test_importance_decides_where_the_scores_are_equal() -> None:
    tier = [resident(1, written_at=1.0, importance=0.9), resident(2, written_at=1.0, importance=0.2)]
    assert order(tier, WEIGHTED) == [2, 1]


@pytest.mark.parametrize("rule", Eviction)
def test_records_alike_in_everything_leave_in_the_order_of_writing(rule: Eviction) -> None:
    tier = [resident(number, written_at=1.0, entered=1) for number in (3, 1, 4, 2)]
    assert order(tier, rule) == [1, 2, 3, 4]


def test_in_a_session_that_moves_on_more_is_found_than_by_lru() -> None:
    work = session_that_moves_on(seed=5, accesses=1000)
    assert simulate(work, ours(), low=0.98).rate > simulate(work, LRU).rate + 0.015


def test_more_than_ninety_percent_of_the_uses_of_a_session_are_hits() -> None:
    """Requirement 146, MEM-002, on the workload with locality; `benchmarks.working_tier` runs it for longer."""
    outcome = simulate(session_that_moves_on(seed=11, accesses=1000), ours(), low=0.98)
    assert outcome.counted == 1000
    assert outcome.rate > 0.9


def test_a_real_store_hits_as_often_as_the_simulator() -> None:
    """MEM-002 by `remember` and `get`, with the tier of the profile `lcr`."""
    work = session_that_moves_on(seed=11, accesses=300)
    stored, simulated = through_the_store(work, None), simulate(work, ours(), low=0.98)
    assert stored.outcome.rate > 0.9
    assert abs(stored.outcome.rate_of_all - simulated.rate_of_all) < 0.01
    assert stored.stated == pytest.approx(stored.outcome.rate_of_all, abs=0.001)
    assert stored.largest <= PROFILES["lcr"].l2_token_budget


def test_a_scan_of_old_records_costs_few_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.working_tier.SCANNED", 1_500)
    work = session_that_moves_on(seed=12, accesses=600, scan="read")
    found = simulate(work, ours(), low=0.98).rate
    assert found > 0.9
    assert found > simulate(work, LRU).rate + 0.05


def test_seconds_and_months_are_ordered_alike() -> None:
    tier = session(120)
    stretched = [
        one._replace(
            written_at=one.written_at * 86_400,
            last_at=one.last_at * 86_400,
            previous_at=None if one.previous_at is None else one.previous_at * 86_400,
        )
        for one in tier
    ]
    assert order(stretched, WEIGHTED) == order(tier, WEIGHTED)


def test_records_of_others_in_between_change_nothing() -> None:
    tier = session(120)
    sparse = [one._replace(record=one.record * 1000) for one in tier]
    assert order(sparse, WEIGHTED) == [record * 1000 for record in order(tier, WEIGHTED)]


def test_a_night_between_two_turns_changes_nothing() -> None:
    def later(at: float) -> float:
        return at + 30_000.0 * (at >= 140)

    tier = session(200)
    slept = [
        one._replace(
            written_at=later(one.written_at),
            last_at=later(one.last_at),
            previous_at=None if one.previous_at is None else later(one.previous_at),
        )
        for one in tier
    ]
    assert order(slept, WEIGHTED) == order(tier, WEIGHTED)


def test_reading_alone_moves_the_clock() -> None:
    """With nothing written any more, what was used a while ago still grows cold."""
    tier = [resident(number) for number in range(100)]
    tier[10] = resident(10, 110.0, 120.0)
    tier[20] = resident(20, 990.0, 1000.0)
    points = scores(tier)
    assert points[10] < points[20] / 1.5


# --- the grace -------------------------------------------------------------------------------------------


def test_what_was_just_brought_back_is_not_thrown_out_at_once() -> None:
    tier = session(100)
    back = resident(-5000, 100.0, entered=101)
    assert order([*tier, back], WEIGHTED, grace=NO_GRACE).index(-5000) < 60
    assert order([*tier, back], WEIGHTED, grace=GRACE)[-3:].count(-5000) == 1


def test_the_grace_covers_a_small_share_of_the_tokens_and_no_more() -> None:
    tier = [resident(number, written_at=0.0, entered=1000 - number) for number in range(100)]
    assert set(order(tier, WEIGHTED, grace=0.05)[-5:]) == {0, 1, 2, 3, 4}
    assert order(tier, WEIGHTED, grace=0.05)[0] == 5


def test_the_newest_has_its_grace_even_if_it_is_large() -> None:
    tier = [*(resident(number, 50.0) for number in range(10)), resident(99, written_at=-100.0, tokens=1500)]
    assert order(tier, WEIGHTED, grace=0.05)[-1] == 99


def test_the_grace_ends_where_nothing_else_is_left() -> None:
    tier = [resident(1), resident(2)]
    assert [one.record for one in choose_victims(tier, 400, WEIGHTED, grace=1.0)] == [1, 2]


@pytest.mark.parametrize("grace", [-0.1, 1.1, math.nan])
def test_a_grace_that_is_no_share_is_refused(grace: float) -> None:
    with pytest.raises(InvalidInput, match="share"):
        rank([resident(1)], WEIGHTED, grace=grace)


# --- how many leave --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", Eviction)
def test_as_many_leave_as_are_needed(rule: Eviction) -> None:
    tier = [resident(number, tokens=100) for number in range(20)]
    assert len(choose_victims(tier, 350, rule)) == 4
    assert len(choose_victims(tier, 400, rule)) == 4
    assert len(choose_victims(tier, 401, rule)) == 5


@pytest.mark.parametrize("rule", Eviction)
def test_nobody_leaves_where_nothing_is_to_be_freed(rule: Eviction) -> None:
    assert choose_victims([resident(1)], 0, rule) == []
    assert choose_victims([resident(1)], -5, rule) == []
    assert choose_victims([], 100, rule) == []


def test_everybody_leaves_where_that_is_not_enough() -> None:
    assert len(choose_victims([resident(1), resident(2)], 10_000, WEIGHTED)) == 2


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidInput, match="weighted"):
        rank([resident(1)], "random")  # type: ignore[arg-type]


# --- candidates ------------------------------------------------------------------------------------------


def test_only_candidates_leave_in_the_order_they_have_in_the_whole_tier() -> None:
    tier = session(200)
    candidates = [3, 50, 120, 199]
    alone = [record for record in order(tier, WEIGHTED) if record in candidates]
    assert [one.record for one in rank(tier, WEIGHTED, candidates=candidates, grace=NO_GRACE)] == alone


def test_relevance_known_for_the_candidates_is_enough() -> None:
    tier = [resident(number, written_at=1.0, relevance=0.1 * number if number < 4 else None) for number in range(20)]
    tier[0] = tier[0]._replace(relevance=0.9)
    chosen = choose_victims(tier, 200, WEIGHTED, candidates=range(4), grace=NO_GRACE)
    assert [one.record for one in chosen] == [1]


# --- segments --------------------------------------------------------------------------------------------


def test_a_full_tier_is_a_quarter_hot_a_half_warm_and_a_quarter_cold() -> None:
    tier = [resident(number, tokens=128) for number in range(1024)]
    parts = segments(tier, 128 * 1024, WEIGHTED)
    assert [sum(one.tokens for one in part) for part in parts] == [32 * 1024, 64 * 1024, 32 * 1024]


def test_the_segments_are_the_ranking_the_best_first() -> None:
    tier = session(200)
    parts = segments(tier, 200 * 200, WEIGHTED)
    leaving = rank(tier, WEIGHTED)
    assert [*parts.hot, *parts.warm, *parts.cold] == leaving[::-1]
    assert parts.cold[-1] == choose_victims(tier, 1, WEIGHTED)[0]


def test_a_tier_that_is_hardly_used_is_all_hot() -> None:
    parts = segments([resident(1), resident(2)], 16_000, LEAST_IMPORTANT)
    assert (len(parts.hot), len(parts.warm), len(parts.cold)) == (2, 0, 0)
    assert segments([], 16_000, WEIGHTED) == ((), (), ())


# --- the hot score ---------------------------------------------------------------------------------------


def test_a_hot_score_reaches_one_and_falls_by_half_its_recency_in_a_half_life() -> None:
    hot = resident(1, *(float(at) for at in range(2, 12)), relevance=1.0)
    fresh = hot_score(hot, 11.0, half_life_s=60, most_uses=10)
    later = hot_score(hot, 71.0, half_life_s=60, most_uses=10)
    assert fresh == pytest.approx(1.0)
    assert fresh - later == pytest.approx(0.5 * EVICTION_WEIGHTS["default"].recency)


def test_a_hot_score_is_bounded_whatever_the_counts_and_the_clock() -> None:
    busy = resident(1, *([5.0] * 10_000), relevance=1.0)
    assert hot_score(busy, 0.0, half_life_s=1, most_uses=3) <= 1.0
    assert hot_score(resident(1), 1e12, half_life_s=1e-3, most_uses=0) == 0.0
    frequency_alone = hot_score(busy._replace(relevance=0.0), 1e12, half_life_s=1e-3, most_uses=3)
    assert frequency_alone == pytest.approx(EVICTION_WEIGHTS["default"].frequency)


def test_a_hot_score_without_relevance_can_still_pass_a_threshold() -> None:
    hot = resident(1, 2.0, 3.0, 4.0)
    assert hot_score(hot, 4.0, half_life_s=60, most_uses=3) == pytest.approx(1.0)


@pytest.mark.parametrize("half_life_s", [0.0, -1.0, math.nan])
def test_a_half_life_that_is_no_time_is_refused(half_life_s: float) -> None:
    with pytest.raises(InvalidInput, match="half-life"):
        hot_score(resident(1), 1.0, half_life_s=half_life_s, most_uses=1)
