"""Times in words, seen from Wednesday 15 May 2024."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.text.dates import date_mentions, spans
from loom.text.time_terms import NAMES_A_TIME, asked_times, time_terms

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
        ("we met on 16.01.2024", "2024-01-16", "2024-01-16"),
        ("we met on 23/01/2024", "2024-01-23", "2024-01-23"),
        ("we met on 01/23/2024", "2024-01-23", "2024-01-23"),
        ("in the first week of 2024", "2024-01-01", "2024-01-07"),
        ("the last week of May 2023", "2023-05-25", "2023-05-31"),
        ("the second week of February, 2023", "2023-02-08", "2023-02-14"),
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
        ("禮拜天見", "2024-05-19", "2024-05-19"),
        ("see you on Monday", "2024-05-20", "2024-05-20"),
        ("I called him on Monday", "2024-05-13", "2024-05-13"),
        ("he called me, and we meet on Monday", "2024-05-20", "2024-05-20"),
        ("the demo was moved to Friday", "2024-05-17", "2024-05-17"),
        ("call the vet Wednesday", "2024-05-22", "2024-05-22"),
        ("it runs since Thursday", "2024-05-09", "2024-05-09"),
        ("next Friday", "2024-05-24", "2024-05-24"),
        ("two weeks from now", "2024-05-26", "2024-06-01"),
        ("last quarter", "2024-01-01", "2024-03-31"),
        ("Friday, 24 May 2024", "2024-05-24", "2024-05-24"),
        ("周一开会", "2024-05-20", "2024-05-20"),
        ("周一开了会", "2024-05-13", "2024-05-13"),
        ("问好了，周一去", "2024-05-20", "2024-05-20"),
        ("会议改到周一了", "2024-05-20", "2024-05-20"),
        ("大后天", "2024-05-18", "2024-05-18"),
        ("上上周三", "2024-05-01", "2024-05-01"),
        ("三天前天气很好", "2024-05-12", "2024-05-12"),
        ("3 天后", "2024-05-18", "2024-05-18"),
        ("下季度", "2024-07-01", "2024-09-30"),
        ("这个月28号", "2024-05-28", "2024-05-28"),
        ("去年六月十三", "2023-06-13", "2023-06-13"),
        ("20号交房租", "2024-05-20", "2024-05-20"),
        ("10号交了房租", "2024-05-10", "2024-05-10"),
        ("10号交房租", "2024-06-10", "2024-06-10"),
        ("２０２３年５月８日", "2023-05-08", "2023-05-08"),
        ("十二天后", "2024-05-27", "2024-05-27"),
    ],
)
def test_a_time_in_words_is_the_days_it_means(text: str, first: str, last: str) -> None:
    assert days(text) == [(first, last)]


@pytest.mark.parametrize(
    "text",
    [
        "I may go",
        "we march on",
        "the second one",
        "2023-02-30",
        "31.04.2023",
        "05/03/2024",
        "version 1.2.2024.3",
        "192.168.20.2024",
        "page 20 of 30",
        "他说得对",
        "weekly",
        "一个月亮",
        "四周一次",
        "以上周期",
        "建设路 9 号",
        "在线上看月饼",
        "on Fridays",
        "every other Monday",
        "Tuesday evenings",
        "the first Saturday of the month",
        "每周一",
        "第二个周五",
    ],
)
def test_what_only_looks_like_a_time_is_none(text: str) -> None:
    assert days(text) == []


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("we met on 8 May", "2024-05-08"),
        ("we meet on 8 May", "2025-05-08"),
        ("we bought the van in November", "2023-11-01"),
        ("the audit starts in November", "2024-11-01"),
        ("nothing worked since June", "2023-06-01"),
        ("the leap day was 29 February", "2024-02-29"),
        ("the leap day is 29 February", "2028-02-29"),
        ("合同六月到期", "2024-06-01"),
        ("合同六月签了", "2023-06-01"),
        ("合同是六月签的", "2023-06-01"),
        ("my sister will get married on 12 December", "2024-12-12"),
        ("my sister'll be married on 12 December", "2024-12-12"),
        ("my sister is getting married on 12 December", "2024-12-12"),
        ("my sister's getting married on 12 December", "2024-12-12"),
        ("she gets married on 12 December", "2024-12-12"),
        ("we decided to get married on 12 December", "2024-12-12"),
        ("my sister got married on 12 December", "2023-12-12"),
        ("my sister's got married on 12 December", "2023-12-12"),
        ("Ana's sister got married on 12 December", "2023-12-12"),
        ("my sister was married on 12 December", "2023-12-12"),
        ("he has got an exam on 12 December", "2024-12-12"),
        ("the advanced course is on 12 December", "2024-12-12"),
        ("we should have shipped on 12 December", "2023-12-12"),
        ("we booked a table for four for 12 December", "2024-12-12"),
        ("their daughter was born on 12 December", "2023-12-12"),
        ("a son, born on 12 December", "2023-12-12"),
        ("the baby will be born in December", "2024-12-01"),
        ("the baby is due on 12 December", "2024-12-12"),
        ("我妹妹12月12日要结婚", "2024-12-12"),
        ("我妹妹12月12日要结婚了", "2024-12-12"),
        ("我妹妹12月12日结婚了", "2023-12-12"),
        ("我妹妹是12月12日结的婚", "2023-12-12"),
        ("他们12月12日认识的，是朋友介绍的", "2024-12-12"),
        ("我们是12月12日认识的", "2023-12-12"),
        ("会议是12月12日下午的", "2024-12-12"),
        ("女儿12月3日出生", "2023-12-03"),
        ("宝宝预计12月3日出生", "2024-12-03"),
        ("预产期是12月3日", "2024-12-03"),
    ],
)
def test_the_tense_of_the_clause_tells_the_year_that_is_not_said(text: str, first: str) -> None:
    (span,) = spans(text, SAID)
    assert str(span.first) == first
    assert not span.has_year


def test_what_recurs_names_a_time_and_no_day() -> None:
    for text in ("we meet on Fridays", "每周一开会", "the last Friday of the month"):
        assert spans(text, SAID) == []
        assert NAMES_A_TIME in time_terms(text, SAID)
        assert [mention.span for mention in date_mentions(text, SAID)] == [None]


def test_a_mention_says_where_it_stands_and_whether_it_depends_on_the_moment() -> None:
    for text, phrase, relative, complete in (
        ("ship it last week, please", "last week", True, False),
        ("我们上个月发布的", "上个月", True, False),
        ("我們上個月發佈的", "上個月", True, False),
        ("signed on 8 May 2023", "8 May 2023", False, True),
        ("in July we left", "in July", False, False),
    ):
        (mention,) = date_mentions(text, SAID)
        assert text[mention.start : mention.end] == phrase
        assert (mention.relative, mention.complete) == (relative, complete)


@pytest.mark.parametrize("text", ["a few days ago", "a couple of weeks ago", "in two weeks", "几天前", "半年前"])
def test_a_vague_time_is_marked_as_a_guess(text: str) -> None:
    (mention,) = date_mentions(text, SAID)
    assert mention.span is not None
    assert not mention.span.exact


def test_a_text_full_of_dates_is_not_resolved_without_end() -> None:
    assert len(date_mentions("on Friday, 周五，" * 300, SAID)) <= 64


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
