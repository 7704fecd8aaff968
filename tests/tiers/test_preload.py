"""Predicting uses: records that were used together, and records that follow in the log. Requirement 126, 131;
C-21."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import InvalidInput
from loom.tiers.preload import AccessPattern


def noted(pattern: AccessPattern, records: Sequence[int], session: str | None = "s") -> AccessPattern:
    for record in records:
        pattern.record_use(record, session)
    return pattern


def foreseen(pattern: AccessPattern, limit: int = 10) -> list[int]:
    return [one.record for one in pattern.predict(limit)]


def in_log_order(record: int) -> Sequence[int]:
    return range(record + 1, record + 9)


def test_nothing_is_foreseen_from_nothing() -> None:
    assert AccessPattern().predict(5) == []
    assert noted(AccessPattern(), [1]).predict(5) == []


def test_what_was_used_together_is_foreseen_together() -> None:
    pattern = noted(AccessPattern(), [1, 2, 3])
    noted(pattern, [7, 8, 9], "other")
    noted(pattern, [1], "later")
    assert foreseen(pattern) == [2, 3]
    noted(pattern, [7], "latest")
    assert foreseen(pattern) == [8, 9]


def test_sessions_side_by_side_do_not_mix() -> None:
    """Uses of two sessions alternate; what follows in one is not foreseen in the other."""
    pattern = AccessPattern()
    for one, other in zip([1, 2, 3, 4], [11, 12, 13, 14], strict=True):
        pattern.record_use(one, "left")
        pattern.record_use(other, "right")
    noted(pattern, [2], "again")
    assert set(foreseen(pattern)) == {3, 4}


def test_more_often_is_likelier_and_what_repeats_nears_certainty() -> None:
    pattern = AccessPattern()
    for _ in range(30):
        noted(pattern, [1, 2], "a")
        noted(pattern, [50, 51, 52, 53, 54, 55], "a")
    noted(pattern, [1, 3], "b")
    pattern.record_use(1, "c")
    found = pattern.predict(10)
    assert found[0].record == 2
    assert found[0].probability > 0.7 > 0.2 > found[-1].probability


def test_what_is_used_twice_after_each_use_is_no_more_than_certain() -> None:
    pattern = AccessPattern()
    for number in range(40):
        noted(pattern, [1, 2, 3, 2], f"s{number}")
    pattern.record_use(1, "now")
    assert foreseen(pattern, 1) == [2]
    assert pattern.predict(1)[0].probability < 1.0


def test_a_habit_that_has_changed_is_unlearnt() -> None:
    pattern = AccessPattern()
    for number in range(5):
        noted(pattern, [1, 2], f"before {number}")
    for number in range(12):
        noted(pattern, [1, 3], f"since {number}")
    pattern.record_use(1, "now")
    by_record = dict(pattern.predict(10))
    assert by_record[3] > 4 * by_record[2]


def test_the_next_in_the_log_is_foreseen_once_uses_go_on_in_the_log() -> None:
    pattern = AccessPattern(in_log_order)
    for begin in range(0, 1_000, 100):
        noted(pattern, range(begin, begin + 6), f"reads {begin}")
    pattern.record_use(5_000, "new")
    assert foreseen(pattern, 1) == [5_001]
    assert pattern.predict(1)[0].probability > 0.4


def test_the_next_in_the_log_is_not_foreseen_where_uses_jump() -> None:
    pattern = AccessPattern(in_log_order)
    noted(pattern, range(0, 60_000, 1_000))
    pattern.record_use(500, "new")
    assert all(one.probability < 0.05 for one in pattern.predict(10))


def test_the_same_record_again_says_nothing() -> None:
    pattern = noted(AccessPattern(in_log_order), [1, 2])
    before = pattern.predict(10)
    noted(pattern, [2, 2, 2])
    assert pattern.predict(10) == before


def test_what_was_just_used_is_not_foreseen() -> None:
    pattern = noted(AccessPattern(in_log_order), [1, 2, 1, 2, 1, 2])
    assert not {1, 2} & set(foreseen(pattern))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["a", "b", None])), max_size=120),
    st.booleans(),
    st.integers(0, 6),
)
def test_whatever_is_used_probabilities_are_probabilities_in_order_and_repeatable(
    uses: list[tuple[int, str | None]], by_log: bool, limit: int
) -> None:
    pattern, again = (AccessPattern(in_log_order if by_log else None, records=8) for _ in range(2))
    for record, session in uses:
        pattern.record_use(record, session)
        again.record_use(record, session)
        found = pattern.predict(limit)
        assert len(found) <= limit
        assert len({one.record for one in found}) == len(found)
        assert all(0.0 <= one.probability <= 1.0 for one in found)
        assert found == sorted(found, key=lambda one: (-one.probability, one.record)) == again.predict(limit)


@pytest.mark.parametrize(("others", "expected"), [(8, [2]), (9, [])])
def test_records_beyond_the_limit_are_forgotten_the_longest_unused_first(others: int, expected: list[int]) -> None:
    pattern = noted(AccessPattern(records=10), [2, 1, 2])
    noted(pattern, range(100, 100 + others), "others")
    noted(pattern, [1], "later")
    assert foreseen(pattern) == expected


@pytest.mark.parametrize(("others", "expected"), [(63, [2]), (64, [])])
def test_sessions_beyond_the_limit_are_forgotten(others: int, expected: list[int]) -> None:
    pattern = noted(AccessPattern(), [1])
    for number in range(others):
        pattern.record_use(1000 + number, f"visitor {number}")
    noted(pattern, [2])
    noted(pattern, [1], "later")
    assert foreseen(pattern) == expected


def test_a_record_has_a_bounded_number_of_successors() -> None:
    pattern = AccessPattern()
    for number in range(40):
        noted(pattern, [1, 100 + number], f"session {number}")
    noted(pattern, [1], "later")
    assert len(pattern.predict(100)) == 12


def test_a_pattern_of_nothing_and_a_limit_below_zero_are_refused() -> None:
    with pytest.raises(InvalidInput):
        AccessPattern(records=0)
    with pytest.raises(InvalidInput):
        AccessPattern().predict(-1)
