"""Times in words, seen from Wednesday 15 May 2024."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.text.dates import NAMES_A_TIME, asked_times, spans, time_terms

SAID = datetime(2024, 5, 15, 12, tzinfo=UTC)


def days(text: str) -> list[tuple[str, str]]:
    return [(str(span.first), str(span.last)) for span in spans(text, SAID)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("I saw him yesterday", "2024-05-14", "2024-05-14"),
        ("we left last night", "2024-05-14", "2024-05-14"),
        ("see you tomorrow", "2024-05-16", "2024-05-16"),
        ("it broke three days ago", "2024-05-12", "2024-05-12"),
        ("two weeks ago we moved", "2024-04-28", "2024-05-04"),
        ("a few years ago", "2021-01-01", "2021-12-31"),
        ("last week was hard", "2024-05-06", "2024-05-12"),
        ("this weekend", "2024-05-18", "2024-05-19"),
        ("next month", "2024-06-01", "2024-06-30"),
        ("last Friday", "2024-05-10", "2024-05-10"),
        ("next Wednesday", "2024-05-22", "2024-05-22"),
        ("last summer", "2023-06-01", "2023-08-31"),
        ("last December", "2023-12-01", "2023-12-31"),
        ("in the summer of 2022", "2022-06-01", "2022-08-31"),
        ("on 8 May 2023", "2023-05-08", "2023-05-08"),
        ("May 8th, 2023", "2023-05-08", "2023-05-08"),
        ("2023-05-08", "2023-05-08", "2023-05-08"),
        ("in July 2022", "2022-07-01", "2022-07-31"),
        ("since 2019", "2019-01-01", "2019-12-31"),
        ("the week before 16 November 2023", "2023-11-09", "2023-11-15"),
        ("上周五我们去了动物园", "2024-05-10", "2024-05-10"),
        ("去年夏天", "2023-06-01", "2023-08-31"),
        ("两周前", "2024-04-28", "2024-05-04"),
        ("半年前", "2023-11-01", "2023-11-30"),
        ("2023年5月8日", "2023-05-08", "2023-05-08"),
        ("去年的3月", "2023-03-01", "2023-03-31"),
        ("前天", "2024-05-13", "2024-05-13"),
        ("大前天", "2024-05-12", "2024-05-12"),
        ("上個月", "2024-04-01", "2024-04-30"),
        ("下周末", "2024-05-25", "2024-05-26"),
        ("禮拜天見", "2024-05-12", "2024-05-12"),
        ("十二天后", "2024-05-27", "2024-05-27"),
    ],
)
def test_a_time_in_words_is_the_days_it_means(text: str, first: str, last: str) -> None:
    assert days(text) == [(first, last)]


@pytest.mark.parametrize(
    "text",
    ["I may go", "we march on", "the second one", "2023-02-30", "page 20 of 30", "他说得对", "weekly", "一个月亮"],
)
def test_what_only_looks_like_a_time_is_none(text: str) -> None:
    assert days(text) == []


def test_a_day_without_a_year_is_that_day_of_every_year() -> None:
    (span,) = spans("on 8 May", SAID)
    assert not span.has_year
    assert asked_times("on 8 May", SAID).keys() & set(time_terms("x", datetime(2019, 5, 8, tzinfo=UTC)))
    assert not asked_times("on 8 May 2023", SAID).keys() & set(time_terms("x", datetime(2019, 5, 8, tzinfo=UTC)))


def test_a_question_finds_what_speaks_of_its_day_and_nearly_what_was_said_soon_after() -> None:
    asked = asked_times("What happened on 7 May 2024?", SAID)

    def best(text: str, said: datetime) -> float:
        return max((asked.get(term, 0.0) for term in time_terms(text, said)), default=0.0)

    assert best("we met yesterday", datetime(2024, 5, 8, tzinfo=UTC)) == 1.0
    assert best("nothing to tell", datetime(2024, 5, 7, tzinfo=UTC)) == 1.0
    assert 0.0 < best("nothing to tell", datetime(2024, 5, 9, tzinfo=UTC)) < 1.0
    assert best("nothing to tell", datetime(2023, 5, 7, tzinfo=UTC)) == 0.0


def test_only_a_text_that_names_a_time_is_marked_so() -> None:
    assert NAMES_A_TIME in time_terms("last week", SAID)
    assert NAMES_A_TIME not in time_terms("a quiet text", SAID)


@pytest.mark.parametrize("moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_ends_of_the_calendar_are_days_too(moment: datetime) -> None:
    assert time_terms("yesterday and tomorrow, next month, 三年后", moment)
    assert asked_times("today, 昨天", moment)


@given(st.text(max_size=200), st.datetimes(timezones=st.just(UTC)))
def test_no_text_and_no_moment_is_too_strange(text: str, moment: datetime) -> None:
    for one in (text, f"{text} yesterday, 3 weeks ago, last year, 999 years ago, 上个月 三百年前"):
        for span in spans(one, moment):
            assert date.min <= span.first <= span.last <= date.max
        assert time_terms(one, moment)
        asked_times(one, moment)
