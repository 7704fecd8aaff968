"""Resolves dates: finds the days that a text mentions, in English and Chinese, relative to the time of the text.

`date_mentions` finds "yesterday", "last summer", "two weeks ago", "on 8 May", 上周五, 去年夏天 and resolves each to
a span of days. The text index finds a memory by these days (`time_terms`), and facts store them beside the words.
The functions are pure; days are in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, date, datetime, timedelta
from functools import cache
from typing import Final, NamedTuple

from loom.text.date_phrases import (
    CHINESE_DAYS,
    CHINESE_SEASONS,
    CHINESE_WEEK,
    CHINESE_WEEKDAYS,
    CHINESE_YEARS,
    MONTH,
    MONTHS,
    NEAR_DAYS,
    SEASONS,
    SMALL_NUMBERS,
    WEEKDAY,
    WEEKDAY_NAMES,
    WEEKDAYS,
)
from loom.text.numerals import chinese_number
from loom.text.tense import is_past
from loom.text.words import simplified_in_place

__all__ = [
    "DateMention",
    "Span",
    "date_mentions",
    "days_of",
    "relative_words",
    "spans",
]

# The most characters of a text that are searched: a long document mentions too many dates to be about one of them.
_MOST_CHARS = 4_000
_MOST_SPANS = 8
# The most mentions for each language. Resolving one of them takes up to 0.1 ms.
_MOST_MENTIONS = 32


class Span(NamedTuple):
    """A range of days, both ends included.

    `has_year` is False if the year is inferred and not stated ("on 8 May"). `slack` is the number of days by which
    the phrase may be off in either direction ("two weeks ago"). A span that is not `exact` is a guess ("a few days
    ago").
    """

    first: date
    last: date
    has_year: bool = True
    slack: int = 0
    exact: bool = True

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    def with_slack(self) -> Span:
        """The span extended by the slack on both sides."""
        return self._replace(first=_day(self.first, -self.slack), last=_day(self.last, self.slack), slack=0)


class DateMention(NamedTuple):
    """A phrase that names a time: `text[start:end]`.

    `span` is None if the phrase names no particular days ("on Fridays", "the first Saturday of October"). The days of
    a `relative` phrase depend on when it is said ("last week"). A `complete` phrase can be read without that moment:
    it contains its year in digits, or is the weekday of a date beside it.
    """

    start: int
    end: int
    phrase: str
    span: Span | None
    relative: bool
    complete: bool


# --- Mentions ----------------------------------------------------------------------------------------------


def date_mentions(text: str, said_at: datetime) -> list[DateMention]:
    """Find the phrases that name a time within the calendar, English ones before Chinese ones."""
    text = text[:_MOST_CHARS]
    if text.isascii():
        return _apply(_english(), text, said_at.date())
    plain = simplified_in_place(text)
    return [*_apply(_english(), plain, said_at.date()), *_apply(_chinese(), plain, said_at.date())]


def spans(text: str, said_at: datetime) -> list[Span]:
    """Return the days that a text mentions, each span once, with the slack."""
    return days_of(date_mentions(text, said_at))


def days_of(mentions: list[DateMention]) -> list[Span]:
    """Return the spans of mentions with the slack, each once, at most eight."""
    found = (mention.span.with_slack() for mention in mentions if mention.span is not None)
    return list(dict.fromkeys(found))[:_MOST_SPANS]


def relative_words(text: str, said_at: datetime) -> str:
    """Return the words whose meaning depends on the time at which they are said: "last week", 昨天."""
    return " ".join(mention.phrase for mention in date_mentions(text, said_at) if mention.relative)


class _View:
    """The context in which a phrase is resolved: the day on which it was said, and the tense of its clause."""

    def __init__(self, said: date, match: re.Match[str]) -> None:
        self.said = said
        self._match = match

    @property
    def past(self) -> bool:
        """Whether the clause of the phrase is in the past tense; if it has no verb, whether its sentence is.

        A date to which something is moved or for which it is planned is not past.
        """
        text, (start, end) = self._match.string, self._match.span()
        if _TARGET.search(text, max(0, start - 80), start):
            return False
        for ends in (_CLAUSE_END, _SENTENCE_END):
            first, last = _around(ends, text, start, end)
            past = is_past(f"{text[first:start]} {text[end:last]}")
            if past is not None:
                return past
        return False


# The number of characters on each side of a phrase that are read to find its tense.
_NEAR = 200
_SENTENCE = r"[.!?](?=\s)|[。！？\n]"
_SENTENCE_END: Final = re.compile(_SENTENCE)
_CLAUSE_END: Final = re.compile(
    rf"{_SENTENCE}|[,;:](?!\d)|[，；：]|\b(?:and|but|so|because|although|while|which)\b", re.IGNORECASE
)
_TARGET: Final = re.compile(
    r"(?:\b(?:moved|postponed|delayed|rescheduled|scheduled|planned|booked|set|due)(?: it)? (?:to|for|until|till) "
    r"(?:the )?(?:\w+day,? )?"
    # "Booked a table for 8 May": the day lies ahead although the verb is in the past tense.
    r"|\b(?:booked|reserved|ordered|arranged|scheduled|planned|tickets?|invited|invitations?) [^.,;:!?\n]{0,60}\bfor "
    r"(?:the )?(?:\w+day,? )?|(?:改|推迟|推|延期?|延后|提前|挪|调|定|约|排|安排)(?:到|至|在|于)了?\s?)$",
    re.IGNORECASE,
)


def _around(end_of: re.Pattern[str], text: str, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of the clause or sentence around a phrase, within the characters that are read."""
    farthest = max(0, start - _NEAR)
    before = max((found.end() for found in end_of.finditer(text, farthest, start)), default=farthest)
    after = end_of.search(text, end, end + _NEAR)
    return before, after.start() if after else min(len(text), end + _NEAR)


_Resolve = Callable[["re.Match[str]", _View], "Span | None"]


class _Rule(NamedTuple):
    """A pattern and its meaning. It is tried only if one of its cues is in the text, which is quick to test.

    A rule without `resolve` finds phrases that name no particular days.
    """

    cues: frozenset[str]
    pattern: re.Pattern[str]
    resolve: _Resolve | None
    relative: bool


_CUES: Final = re.compile("[a-z]+|(?:19|20)(?=[0-9]{2})|[年月日号天周星礼昨今明前后季]")


def _apply(rules: tuple[_Rule, ...], text: str, said: date) -> list[DateMention]:
    """Find mentions by the rules. Words that an earlier rule has matched are not matched again."""
    present = set(_CUES.findall(text.lower()))
    found: list[DateMention] = []
    dates: list[DateMention] = []  # the mentions that are dates, without the weekdays
    for rule in rules:
        if rule.cues.isdisjoint(present):
            continue
        for match in rule.pattern.finditer(text):
            begin, end = match.span()
            if any(begin < one.end and one.start < end for one in found):
                continue
            span = None
            names_weekday = rule.resolve is _weekday
            beside = _beside_date(match, dates) if names_weekday else None
            if beside is not None:  # "Friday, 8 May": two names of one day
                span = beside.span if beside.span is not None and beside.span.days == 1 else None
            elif rule.resolve is not None:
                try:
                    span = rule.resolve(match, _View(said, match))
                    if span is None:
                        continue
                    span.with_slack()
                except (ValueError, OverflowError):  # 31 February, the year 0, ten thousand years ago
                    continue
            complete = match.groupdict().get("year") is not None
            mention = DateMention(begin, end, match[0], span, rule.relative, complete or beside is not None)
            found.append(mention)
            if len(found) == _MOST_MENTIONS:
                return found
            if not names_weekday:
                dates.append(mention)
    return found


_BETWEEN: Final = re.compile(r"[\s,，(（]*(?:是|is|on|the)?\s*")


def _beside_date(match: re.Match[str], dates: list[DateMention]) -> DateMention | None:
    """Return the date directly beside a weekday, unless the weekday has "last" or "next" before it."""
    if (match.groupdict().get("which") or "on").lower() != "on":
        return None
    text, (begin, end) = match.string, match.span()
    beside = (
        one for one in dates if _BETWEEN.fullmatch(text, one.end, begin) or _BETWEEN.fullmatch(text, end, one.start)
    )
    return next(beside, None)


# --- Calendar ----------------------------------------------------------------------------------------------


def _day(day: date, days: int) -> date:
    return day + timedelta(days=days)


def _month(month: date, months: int) -> date:
    years, number = divmod(month.month - 1 + months, 12)
    return date(month.year + years, number + 1, 1)


def _single(day: date) -> Span:
    return Span(day, day)


def _whole(month: date, months: int = 1) -> Span:
    first = month.replace(day=1)
    return Span(first, _day(_month(first, months), -1))


def _of_year(year: int) -> Span:
    return Span(date(year, 1, 1), date(year, 12, 31))


def _monday(day: date) -> date:
    return _day(day, -day.weekday())


def _by_tense(month: int, day: int | None, view: _View, past: bool | None = None) -> Span:
    """Resolve a month or day without a year: in the past tense the last one, else the current or next one."""
    date(_LEAP_YEAR, month, day or 1)  # raises ValueError if no year has this day
    said, past = view.said, view.past if past is None else past
    for years in range(8 + 1):  # until there is a 29 February
        year = said.year - years if past else said.year + years
        if not MINYEAR <= year <= MAXYEAR:
            break
        try:
            span = _whole(date(year, month, 1)) if day is None else _single(date(year, month, day))
        except (ValueError, OverflowError):
            continue
        if span.first <= said if past else span.last >= said:
            return span._replace(has_year=False)
    raise ValueError(f"the calendar ends before the next {month}-{day}")


_LEAP_YEAR = 2000


def _weekday_by_tense(number: int, view: _View, past: bool | None = None) -> Span:
    """Resolve a weekday: the last one in the past tense, else the next; never today, which is called "today"."""
    ahead = (number - view.said.weekday()) % 7
    is_past = view.past if past is None else past
    return _single(_day(view.said, ahead - 7 if is_past else ahead or 7))


def _away(said: date, count: int, unit: str, exact: bool = True) -> Span:
    """Resolve a time by its distance in units. The unit determines the slack."""
    if unit in ("day", "night"):
        span = _single(_day(said, count))
    elif unit == "week":
        span = _single(_day(said, 7 * count))._replace(slack=3)
    elif unit == "month":
        span = _whole(_month(said.replace(day=1), count))
    elif unit == "year":
        span = _of_year(said.year + count)
    else:
        span = _beside(said, count, unit)
    return span._replace(exact=exact)


def _beside(said: date, count: int, unit: str) -> Span:
    """Return the calendar week, weekend, month, quarter or year at a distance from the current one."""
    if unit == "week":
        monday = _day(_monday(said), 7 * count)
        return Span(monday, _day(monday, 6))
    if unit == "weekend":
        saturday = _day(_monday(said), 5 + 7 * count)
        return Span(saturday, _day(saturday, 1))
    if unit == "quarter":
        return _whole(_month(date(said.year, said.month - (said.month - 1) % 3, 1), 3 * count), 3)
    return _away(said, count, unit)


def _of_season(month: int, which: str | None, year: str | None, said: date) -> Span:
    """Return the three months from this one on. The last winter is the one that ended last."""
    if year is not None:
        return _whole(date(int(year), month, 1), 3)
    first, named = date(said.year, month, 1), (which or "").lower()
    if named in ("last", "past") and _month(first, 3) > said:
        first = date(said.year - 1, month, 1)
    elif named == "next" and first <= said:
        first = date(said.year + 1, month, 1)
    return _whole(first, 3)


# --- English -----------------------------------------------------------------------------------------------

_VAGUE_NUMBERS: Final = {"couple": 2, "few": 3, "several": 4}
_MONTH = rf"(?P<month>{MONTH})\b\.?"
_ABBREVIATED = "|".join(sorted(set(WEEKDAYS) - set(WEEKDAY_NAMES), key=len, reverse=True))
_COUNT = rf"(?P<count>\d{{1,3}}|{'|'.join((*SMALL_NUMBERS, *_VAGUE_NUMBERS))})(?:\s+(?:of|more))?"
_UNIT = "(?P<unit>day|night|week|weekend|month|year)s?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DIRECTION: Final = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}

_MONTH_CUES = " ".join((*MONTHS, "st", "nd", "rd", "th"))
_WEEKDAY_CUES = " ".join((*WEEKDAYS, *(f"{name}s" for name in WEEKDAY_NAMES)))
_SEASON_CUES = " ".join(SEASONS)
_YEAR_CUES = "19 20"


@cache
def _english() -> tuple[_Rule, ...]:
    """Compile the English rules at first use."""

    def rule(cues: str, pattern: str, resolve: _Resolve | None, relative: bool = False) -> _Rule:
        return _Rule(frozenset(cues.split()), re.compile(pattern, re.IGNORECASE), resolve, relative)

    other_order = rf"{_MONTH}\s+{_DAY}".replace("<month>", "<month_>").replace("<day>", "<day_>")
    season = f"(?P<season>{'|'.join(SEASONS)})"
    return (
        rule(
            _WEEKDAY_CUES,
            rf"\b(?:every|each)\s+(?:\w+\s+)?{WEEKDAY}\b|\b(?:on\s+)?{WEEKDAY}s\b|\b{WEEKDAY}\s+week\b"
            rf"|\b(?:on\s+)?{WEEKDAY}\s+(?:morning|afternoon|evening|night)s\b"
            rf"|\b(?:first|second|third|fourth|last|other)\s+{WEEKDAY}(?=\s+(?:of|in)\b)",
            None,
        ),
        rule(
            _MONTH_CUES,
            rf"\b(?P<unit>week|weekend|month|day)\s+(?P<side>before|after|of)\s+(?:the\s+)?"
            rf"(?:{_DAY}(?:\s+of)?\s+{_MONTH}|{other_order}(?!\d))(?:,?\s+{_YEAR})?",
            _beside_day,
        ),
        rule(_YEAR_CUES, r"\b(?P<year>(?:19|20)\d\d)[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})\b", _month_day),
        rule(
            _YEAR_CUES,
            r"(?<![\d./-])(?P<day>\d{1,2})(?P<mark>[./-])(?P<month>\d{1,2})(?P=mark)(?P<year>(?:19|20)\d\d)(?![./-]?\d)",
            _in_digits,
        ),
        rule(
            f"{_MONTH_CUES} {_YEAR_CUES}",
            rf"\b(?P<which>first|second|third|fourth|last)\s+week\s+of\s+(?:{_MONTH}(?:,?\s+{_YEAR})?"
            rf"|{_YEAR.replace('<year>', '<year_>')})",
            _week_of,
        ),
        rule(_MONTH_CUES, rf"\b{_DAY}(?:\s+of)?\s+{_MONTH}(?:,?\s+{_YEAR})?", _month_day),
        rule(_MONTH_CUES, rf"\b{_MONTH}\s+{_DAY}\b(?!:)(?:,?\s+{_YEAR})?", _month_day),
        rule(_MONTH_CUES, rf"\b{_MONTH},?\s+{_YEAR}", _whole_month),
        rule(
            _MONTH_CUES,
            r"\b(?P<which>in|since|during|by|until|till|from|of|for|starting|early|late|mid|last|this|next)[\s-]"
            rf"{_MONTH}(?!\s+\d)",
            _named_month,
        ),
        rule(_SEASON_CUES, rf"\b{season}(?:\s+of)?,?\s+{_YEAR}", _season),
        rule(_SEASON_CUES, rf"\b(?P<which>last|this|next|past)\s+{season}\b", _season),
        rule(_YEAR_CUES, rf"\b(?:in|since|during|year|of|by|until|from)\s+{_YEAR}\b", _whole_year),
        rule(" ".join(NEAR_DAYS), rf"\b(?:{'|'.join(NEAR_DAYS)})\b", _near_day, relative=True),
        rule(
            "morning afternoon evening night",
            r"\bthis\s+(?:morning|afternoon|evening)\b|\b(?P<last>last\s+night)\b",
            _near_day,
            relative=True,
        ),
        rule(
            "ago earlier back now",
            rf"\b{_COUNT}\s+{_UNIT}\s+(?P<side>ago|earlier|back|from\s+now)\b",
            _counted,
            relative=True,
        ),
        rule(
            "day days night nights week weeks weekends month months year years",
            rf"\bin\s+{_COUNT}\s+{_UNIT}\b",
            _within,
            relative=True,
        ),
        rule(
            "week weekend month quarter year",
            rf"\b(?P<which>{'|'.join(_DIRECTION)})\s+(?P<unit>week|weekend|month|quarter|year)\b",
            _near_unit,
            relative=True,
        ),
        rule(
            _WEEKDAY_CUES,
            rf"\b(?P<which>last|past|this|next|on)\s+(?P<weekday>{WEEKDAY}|{_ABBREVIATED})\b",
            _weekday,
            relative=True,
        ),
        rule(
            _WEEKDAY_CUES,
            rf"\b(?:(?P<which>by|until|till|since|from|the|coming|of|for)\s+)?(?P<weekday>{WEEKDAY})\b",
            _weekday,
            relative=True,
        ),
    )


def _count(written: str) -> int:
    word = written.lower()
    return int(word) if word.isdigit() else SMALL_NUMBERS.get(word) or _VAGUE_NUMBERS[word]


def _month_number(match: re.Match[str]) -> int:
    written = match["month"].lower()
    return MONTHS[written] if written in MONTHS else chinese_number(written)


def _year_of(match: re.Match[str], view: _View) -> int | None:
    """Return the year that a phrase names in digits or in Chinese (去年); None if it names none."""
    named = match.groupdict()
    if named.get("year"):
        return int(named["year"])
    return view.said.year + CHINESE_YEARS[named["which"]] if named.get("which") else None


def _month_day(match: re.Match[str], view: _View) -> Span:
    year, month, day = _year_of(match, view), _month_number(match), chinese_number(match["day"])
    return _by_tense(month, day, view) if year is None else _single(date(year, month, day))


def _in_digits(match: re.Match[str], view: _View) -> Span | None:
    """Resolve 16.01.2024, 23/01/2024 and 01/23/2024. With slashes or hyphens, 05/03/2024 is ambiguous and returns
    None."""
    day, month = int(match["day"]), int(match["month"])
    if match["mark"] != "." and month > 12:
        day, month = month, day
    elif match["mark"] != "." and day <= 12 and day != month:
        return None
    return _single(date(int(match["year"]), month, day))


_NTH_WEEK: Final = {"first": 0, "second": 7, "third": 14, "fourth": 21}


def _week_of(match: re.Match[str], view: _View) -> Span:
    """Resolve seven days of a month or a year, counted from its first day or back from its last."""
    if match["year_"]:
        whole = _of_year(int(match["year_"]))
    else:
        month = MONTHS[match["month"].lower()]
        whole = _whole(date(int(match["year"]), month, 1)) if match["year"] else _by_tense(month, None, view)
    which = match["which"].lower()
    first = _day(whole.last, -6) if which == "last" else _day(whole.first, _NTH_WEEK[which])
    return whole._replace(first=first, last=_day(first, 6))


def _whole_month(match: re.Match[str], view: _View) -> Span:
    year, month = _year_of(match, view), _month_number(match)
    return _by_tense(month, None, view) if year is None else _whole(date(year, month, 1))


def _named_month(match: re.Match[str], view: _View) -> Span | None:
    number, which = MONTHS[match["month"].lower()], match["which"].lower()
    if which in ("last", "this", "next"):
        year = view.said.year
        if which == "last" and number >= view.said.month:
            year -= 1
        elif which == "next" and number <= view.said.month:
            year += 1
        return _whole(date(year, number, 1))
    if match["month"].islower() and match["month"] in ("may", "march", "mar"):  # "in may ways"; months have capitals
        return None
    return _by_tense(number, None, view, past=True if which == "since" else None)


def _whole_year(match: re.Match[str], view: _View) -> Span:
    year = _year_of(match, view)
    return _of_year(view.said.year if year is None else year)


def _season(match: re.Match[str], view: _View) -> Span:
    named = match.groupdict()
    return _of_season(SEASONS[match["season"].lower()], named.get("which"), named.get("year"), view.said)


def _near_day(match: re.Match[str], view: _View) -> Span:
    named = -1 if match.groupdict().get("last") else 0  # "last night", "this morning"
    return _single(_day(view.said, _NEAR_DAYS.get(match[0].lower(), named)))


def _counted(match: re.Match[str], view: _View) -> Span:
    count = _count(match["count"]) * (1 if match["side"].lower().endswith("now") else -1)
    return _away(view.said, count, match["unit"].lower(), exact=match["count"].lower() not in _VAGUE_NUMBERS)


def _within(match: re.Match[str], view: _View) -> Span:
    # "In two weeks" may also be a duration.
    return _away(view.said, _count(match["count"]), match["unit"].lower(), exact=False)


def _near_unit(match: re.Match[str], view: _View) -> Span:
    which = match["which"].lower()
    # "The past year" often means the twelve months up to today.
    return _beside(view.said, _DIRECTION[which], match["unit"].lower())._replace(exact=which != "past")


def _weekday(match: re.Match[str], view: _View) -> Span:
    number, said = _WEEKDAYS[match["weekday"].lower()], view.said
    which = (match.groupdict().get("which") or "").lower()
    if which in ("last", "past"):
        return _single(_day(said, (number - said.weekday()) % 7 - 7))
    if which == "next":  # the weekday of the following week
        return _single(_day(_monday(said), 7 + number))
    return _weekday_by_tense(number, view, past=True if which == "since" else None)


def _beside_day(match: re.Match[str], view: _View) -> Span:
    number = MONTHS[(match["month"] or match["month_"]).lower()]
    day, year = int(match["day"] or match["day_"]), int(match["year"] or view.said.year)
    named, unit = date(year, number, day), match["unit"].lower()
    side = match["side"].lower()
    if unit == "day":
        return _single(_day(named, {"before": -1, "after": 1}.get(side, 0)))
    if unit == "weekend":
        saturday = _day(_monday(named), 5 + {"before": -7, "after": 7 if named.weekday() >= 5 else 0}.get(side, 0))
        return Span(saturday, _day(saturday, 1))
    size = 7 if unit == "week" else 30
    if side == "before":
        return Span(_day(named, -size), _day(named, -1))
    if side == "after":
        return Span(_day(named, 1), _day(named, size))
    return Span(_monday(named), _day(_monday(named), 6)) if unit == "week" else _whole(named)


# --- Chinese -----------------------------------------------------------------------------------------------

_NUMERAL = "[0-9]{1,3}|[一二两三四五六七八九]?十[一二三四五六七八九]?|[一二两三四五六七八九几半]"
_CHINESE_UNITS: Final = {
    "天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "季度": "quarter",
    "年": "year",
}  # fmt: skip
_NEAR_DAYS: Final = {**NEAR_DAYS, **CHINESE_DAYS}
_WEEKDAYS: Final = {**WEEKDAYS, **CHINESE_WEEKDAYS}
_CHINESE_SIDE: Final = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1, "下下": 2}
_ANY_WEEKDAY = f"[{''.join(CHINESE_WEEKDAYS)}]"


@cache
def _chinese() -> tuple[_Rule, ...]:
    """Compile the Chinese rules at first use. They match simplified characters."""

    def rule(cues: str, pattern: str, resolve: _Resolve | None, relative: bool = False) -> _Rule:
        return _Rule(frozenset(cues), re.compile(pattern), resolve, relative)

    month = "(?P<month>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])"
    numeral = "[二三]?十[一二三四五六七八九]?|廿[一二三四五六七八九]?|[一二三四五六七八九]"
    day = f"(?P<day>[12][0-9]|3[01]|0?[1-9]|{numeral})"
    year = rf"(?:(?P<year>(?:19|20)[0-9]{{2}})\s*年|(?P<which>{'|'.join(CHINESE_YEARS)}))"
    side = "(?P<side>上上|下下|上|这|本|下)个?"
    return (
        rule("周星礼", f"(?:每个?|隔|逢|第[一二三四五]个?|最后一个?){CHINESE_WEEK}{_ANY_WEEKDAY}", None),
        rule("日号", rf"(?:{year})?\s*{month}\s*月\s*{day}\s*[日号]", _month_day),
        rule("月", rf"(?:{year})?{month}月(?P<day>{numeral})(?![个天年多岁位人次月])", _month_day),
        rule("月", rf"{year}\s*的?\s*{month}\s*月(?:份?[上中下]旬|份?[初底末中]|份)?", _whole_month),
        rule(
            "月",
            rf"(?<![0-9.年个第每一二三四五六七八九十]){month}\s?月(?!亮|份?内|度)(?:份?[上中下]旬|份?[初底末中里]|份)?",
            _whole_month,
        ),
        rule("年", rf"{year}\s*的?\s*(?P<season>[{''.join(CHINESE_SEASONS)}])[天季]?", _chinese_season),
        rule("年", year, _whole_year),
        rule(
            "前后",
            rf"(?P<count>{_NUMERAL})\s?(?P<more>多?个?多?)(?P<unit>天|日|{CHINESE_WEEK}|月|年)"
            "(?P<side>[以之]?前|[以之]?后)",
            _chinese_away,
            relative=True,
        ),
        rule(
            "天日昨今明",
            "|".join(sorted(CHINESE_DAYS, key=len, reverse=True)),
            _near_day,
            relative=True,
        ),
        rule(
            "周星礼",
            rf"{side}{CHINESE_WEEK}(?![期边围])(?P<weekday>{_ANY_WEEKDAY}|末)?",
            _chinese_week,
            relative=True,
        ),
        rule("月", rf"{side}月\s?{day}\s?[日号]", _chinese_day_of_near_month, relative=True),
        rule("月季", f"{side}(?P<unit>月(?!亮|饼)|季度)", _chinese_near_unit, relative=True),
        rule(
            "日号",
            r"(?<![0-9.:/月第路街巷弄道楼栋座])(?<![路街巷弄道楼栋座] )(?<![0-9],)(?P<day>[0-9]{1,2})\s?[日号]"
            "(?![楼线机院店门房桌车馆仓码])",
            _chinese_day_of_month,
        ),
        rule(
            "周星礼",
            f"(?<![0-9一二两三四五六七八九十几]){CHINESE_WEEK}(?P<weekday>{_ANY_WEEKDAY})(?!期)",
            _weekday,
            relative=True,
        ),
    )


def _chinese_season(match: re.Match[str], view: _View) -> Span:
    year = _year_of(match, view)
    return _whole(date(view.said.year if year is None else year, CHINESE_SEASONS[match["season"]], 1), 3)


def _chinese_week(match: re.Match[str], view: _View) -> Span:
    monday = _day(_monday(view.said), 7 * _CHINESE_SIDE[match["side"]])
    weekday = match["weekday"]
    if weekday is None:
        return Span(monday, _day(monday, 6))
    if weekday == "末":
        return Span(_day(monday, 5), _day(monday, 6))
    return _single(_day(monday, CHINESE_WEEKDAYS[weekday]))


def _chinese_near_unit(match: re.Match[str], view: _View) -> Span:
    return _beside(view.said, _CHINESE_SIDE[match["side"]], _CHINESE_UNITS[match["unit"]])


def _chinese_away(match: re.Match[str], view: _View) -> Span:
    count, unit = match["count"], _CHINESE_UNITS[match["unit"]]
    direction = -1 if match["side"].endswith("前") else 1
    if count == "半":  # half a year, half a month
        away = (6, "month") if unit == "year" else (2, "week")
        return _away(view.said, direction * away[0], away[1], exact=False)
    if count == "几":
        return _away(view.said, direction * 3, unit, exact=False)
    return _away(view.said, direction * chinese_number(count), unit, exact="多" not in match["more"])


def _chinese_day_of_near_month(match: re.Match[str], view: _View) -> Span:
    month = _beside(view.said, _CHINESE_SIDE[match["side"]], "month").first
    return _single(month.replace(day=chinese_number(match["day"])))


def _chinese_day_of_month(match: re.Match[str], view: _View) -> Span:
    """Resolve a day without a month: the last one in the past tense, else the next; today counts."""
    day, month = int(match["day"]), view.said.replace(day=1)
    if not 1 <= day <= 31:
        raise ValueError(f"no month has a day {day}")
    past = view.past
    while True:
        if day <= _whole(month).last.day:
            found = month.replace(day=day)
            if found <= view.said if past else found >= view.said:
                return _single(found)
        month = _month(month, -1 if past else 1)
