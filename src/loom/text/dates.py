"""Times in words: which days a text speaks of, in English and in Chinese, seen from the moment it was said.

`spans` resolves "yesterday", "last summer", "two weeks ago", "on 8 May", 上周五, 去年夏天. `time_terms` turns the
days of a record into terms that the text index holds like any others, `asked_times` those of a question into the
terms that answer it. So a memory is found by the time it speaks of, not only by the time it was made.
Pure functions of text and moment; days are days of UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from functools import cache, lru_cache
from typing import NamedTuple

from loom.text.words import simplified

__all__ = ["DATES_VERSION", "NAMES_A_TIME", "Span", "asked_times", "relative_words", "spans", "time_terms"]

# Anything that changes a term of a record changes this number.
DATES_VERSION = 1

# No word of a text begins with this character, so no text can pretend to be of another time.
_MARK = "\x1f"

NAMES_A_TIME = _MARK + "t"
"""The term of every text that speaks of a time: what a question "when" looks for."""

# Only so much of a text is searched for times: a long document speaks of too many to mean any.
_MOST_CHARS = 4_000
_MOST_SPANS = 8
# The longest stretch whose days are all named; longer ones are named by their months.
_MOST_DAYS = 10
_MOST_MONTHS = 6


class Span(NamedTuple):
    """From the first day to the last, both included. Without a year, the same days of every year are meant."""

    first: date
    last: date
    has_year: bool = True

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1


# --- Terms -------------------------------------------------------------------------------------------------


def time_terms(text: str, said_at: datetime) -> list[str]:
    """The terms of the day a text was said on and of the times it speaks of, each once."""
    found = dict.fromkeys(_day_terms(said_at.date()))
    named = spans(text, said_at)
    for span in named:
        found.update(dict.fromkeys(_span_terms(span)))
    return [*found, NAMES_A_TIME] if named else list(found)


def asked_times(question: str, now: datetime) -> dict[str, float]:
    """The terms by which the times of a question are found, from 1 for a match to less for what is near.

    What happened on a day is often told on one of the next: those days count for a third. Empty where a question
    names no time.
    """
    found: dict[str, float] = {}
    for span in spans(question, now):
        for term in _span_terms(span, exact=True):
            found[term] = 1.0
        if span.days == 1 and span.has_year:
            for days in range(1, min(7, (date.max - span.last).days) + 1):
                after = _day(span.last, days)
                found.setdefault(f"{_MARK}d{after:%Y%m%d}", _LATER_WEIGHT)
            found.setdefault(f"{_MARK}m{span.last:%Y%m}", _LATER_WEIGHT)
    return found


_LATER_WEIGHT = 0.35


@lru_cache(maxsize=256)
def _day_terms(day: date) -> tuple[str, ...]:
    """Those of one day; texts come many on a day."""
    return tuple(_span_terms(Span(day, day)))


def _span_terms(span: Span, exact: bool = False) -> list[str]:
    """Days, months and years of a span; with `exact`, only the narrowest that cover it."""
    first, last, has_year = span
    names: dict[str, None] = {}
    months = _months(first, last)
    if span.days <= _MOST_DAYS:
        every = [_day(first, number) for number in range(span.days)]
        if has_year:
            names.update(dict.fromkeys(f"d{day:%Y%m%d}" for day in every))
        if not has_year or span.days == 1:
            names.update(dict.fromkeys(f"D{day:%m%d}" for day in every) if not (exact and has_year) else {})
    if not (exact and span.days <= _MOST_DAYS) and len(months) <= _MOST_MONTHS:
        if has_year:
            names.update(dict.fromkeys(f"m{month:%Y%m}" for month in months))
        if not (exact and has_year):
            names.update(dict.fromkeys(f"M{month:%m}" for month in months))
    if has_year and (not exact or len(months) > _MOST_MONTHS):
        names.update(dict.fromkeys(f"y{year:04d}" for year in range(first.year, min(last.year, first.year + 9) + 1)))
    return [_MARK + name for name in names]


def _months(first: date, last: date) -> list[date]:
    """The first day of each month of a span, at most one more than are ever named."""
    found: list[date] = []
    month = first.replace(day=1)
    while month <= last and len(found) <= _MOST_MONTHS:
        found.append(month)
        if (month.year, month.month) == (date.max.year, 12):
            break
        month = _month(month, 1)
    return found


# --- Spans -------------------------------------------------------------------------------------------------


def spans(text: str, said_at: datetime) -> list[Span]:
    """The times that a text speaks of, each once; none that lies beyond the calendar."""
    return list(dict.fromkeys(span for span, _, _ in _found(text, said_at)))[:_MOST_SPANS]


def relative_words(text: str, said_at: datetime) -> str:
    """The words of a text that mean another time whenever they are said: "last week", 昨天."""
    return " ".join(words for _, words, is_relative in _found(text, said_at) if is_relative)


def _found(text: str, said_at: datetime) -> Iterator[tuple[Span, str, bool]]:
    text, said = text[:_MOST_CHARS], said_at.date()
    yield from _apply(_english(), text, said)
    if not text.isascii():
        yield from _apply(_chinese(), simplified(text), said)


_Make = Callable[["re.Match[str]", date], "Span | None"]


class _Rule(NamedTuple):
    """A pattern and what it means. It is tried only where one of the signs is there: that is quick to see."""

    signs: frozenset[str]
    pattern: re.Pattern[str]
    make: _Make

    @property
    def is_relative(self) -> bool:
        """Whether its words mean another time whenever they are said."""
        return self.make in _RELATIVE


_SIGNS = re.compile("[a-z]+|(?:19|20)(?=[0-9]{2})|[年月日号天周星礼昨今明前后]")


def _apply(rules: tuple[_Rule, ...], text: str, said: date) -> Iterator[tuple[Span, str, bool]]:
    """What the rules find: the days, the words, and whether these are relative. An earlier rule takes its words away
    from the later ones."""
    present = set(_SIGNS.findall(text.lower()))
    taken: list[tuple[int, int]] = []
    for rule in rules:
        if rule.signs.isdisjoint(present):
            continue
        for match in rule.pattern.finditer(text):
            begin, end = match.span()
            if any(begin < last and first < end for first, last in taken):
                continue
            try:
                span = rule.make(match, said)
            except (ValueError, OverflowError):  # 31 February, the year 0, ten thousand years ago
                continue
            if span is not None:
                taken.append((begin, end))
                yield span, match[0], rule.is_relative


_MONTH_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    "(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_WEEKDAY_NAMES = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_WEEKDAY = "(?P<weekday>mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?s?"
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_SMALL = {
    "a": 1, "an": 1, "one": 1, "two": 2, "couple": 2, "three": 3, "few": 3, "several": 4, "four": 4, "five": 5,
    "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip
_COUNT = rf"(?P<count>\d{{1,3}}|{'|'.join(_SMALL)})(?:\s+(?:of|more))?"
_UNIT = "(?P<unit>day|night|week|weekend|month|year)s?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_NEAR_DAYS = {"today": 0, "tonight": 0, "yesterday": -1, "tomorrow": 1}


_MONTH_SIGNS = (
    "jan january feb february mar march apr april may jun june jul july aug august sep sept september oct october "
    "nov november dec december st nd rd th"
)
_WEEKDAY_SIGNS = (
    "mon tue tues wed thu thur thurs fri sat sun monday tuesday wednesday thursday friday saturday sunday mondays "
    "tuesdays wednesdays thursdays fridays saturdays sundays"
)
_SEASON_SIGNS = " ".join(_SEASONS)
_YEAR_SIGNS = "19 20"


@cache
def _english() -> tuple[_Rule, ...]:
    """The English rules; compiled at first use."""

    def rule(signs: str, pattern: str, make: _Make) -> _Rule:
        return _Rule(frozenset(signs.split()), re.compile(pattern, re.IGNORECASE), make)

    other_order = rf"{_MONTH}\s+{_DAY}".replace("<month>", "<month_>").replace("<day>", "<day_>")
    return (
        rule(
            _MONTH_SIGNS,
            rf"\b(?P<unit>week|weekend|month|day)\s+(?P<side>before|after|of)\s+(?:the\s+)?"
            rf"(?:{_DAY}(?:\s+of)?\s+{_MONTH}|{other_order})(?:,?\s+{_YEAR})?",
            _beside_day,
        ),
        rule(_YEAR_SIGNS, r"\b(?P<year>(?:19|20)\d\d)[-/.](?P<number>\d{1,2})[-/.](?P<day>\d{1,2})\b", _iso_day),
        rule(_MONTH_SIGNS, rf"\b{_DAY}(?:\s+of)?\s+{_MONTH}(?:,?\s+{_YEAR})?", _month_day),
        rule(_MONTH_SIGNS, rf"\b{_MONTH}\s+{_DAY}\b(?!:)(?:,?\s+{_YEAR})?", _month_day),
        rule(_MONTH_SIGNS, rf"\b{_MONTH},?\s+{_YEAR}", _whole_month),
        rule(
            _MONTH_SIGNS,
            rf"\b(?P<which>in|since|during|by|until|till|early|late|mid|last|this|next)[\s-]{_MONTH}",
            _named_month,
        ),
        rule(_SEASON_SIGNS, rf"\b(?P<season>spring|summer|autumn|fall|winter)(?:\s+of)?,?\s+{_YEAR}", _season),
        rule(
            _SEASON_SIGNS,
            r"\b(?P<which>last|this|next|past)\s+(?P<season>spring|summer|autumn|fall|winter)\b",
            _season,
        ),
        rule(_YEAR_SIGNS, rf"\b(?:in|since|during|year|of|by|until|from)\s+{_YEAR}\b", _whole_year),
        rule(" ".join(_NEAR_DAYS), rf"\b(?P<near>{'|'.join(_NEAR_DAYS)})\b", _near_day),
        rule(
            "morning afternoon evening night",
            r"\bthis\s+(?P<near>morning|afternoon|evening)\b|\b(?P<last>last\s+night)\b",
            _near_day,
        ),
        rule("ago earlier back", rf"\b{_COUNT}\s+{_UNIT}\s+(?:ago|earlier|back)\b", _ago),
        rule(
            "day days night nights week weeks weekends month months year years",
            rf"\bin\s+{_COUNT}\s+{_UNIT}\b",
            _ahead,
        ),
        rule(
            "week weekend month year",
            r"\b(?P<which>last|past|previous|this|next|coming)\s+(?P<unit>week|weekend|month|year)\b",
            _near_unit,
        ),
        rule(_WEEKDAY_SIGNS, rf"\b(?P<which>last|past|this|next|on)\s+{_WEEKDAY}\b", _weekday),
    )


def _day(day: date, days: int) -> date:
    return day + timedelta(days=days)


def _month(month: date, months: int) -> date:
    years, number = divmod(month.month - 1 + months, 12)
    return date(month.year + years, number + 1, 1)


def _whole(month: date, months: int = 1) -> Span:
    first = month.replace(day=1)
    return Span(first, _day(_month(first, months), -1))


def _monday(day: date) -> date:
    return _day(day, -day.weekday())


def _month_number(match: re.Match[str], group: str = "month") -> int:
    return _MONTH_NAMES.index(match[group][:3].lower()) + 1


def _count(written: str) -> int:
    return int(written) if written.isdigit() else _SMALL[written.lower()]


# A year that has a 29 February, for days without a year.
_LEAP_YEAR = 2000


def _single(day: date) -> Span:
    return Span(day, day)


def _iso_day(match: re.Match[str], said: date) -> Span:
    return _single(date(int(match["year"]), int(match["number"]), int(match["day"])))


def _month_day(match: re.Match[str], said: date) -> Span:
    month, day, year = _month_number(match), int(match["day"]), match["year"]
    if year is None:
        only = date(_LEAP_YEAR, month, day)
        return Span(only, only, has_year=False)
    return _single(date(int(year), month, day))


def _whole_month(match: re.Match[str], said: date) -> Span:
    return _whole(date(int(match["year"]), _month_number(match), 1))


def _named_month(match: re.Match[str], said: date) -> Span | None:
    number, which = _month_number(match), match["which"].lower()
    if which in ("last", "this", "next"):
        year = said.year
        if which == "last" and number >= said.month:
            year -= 1
        elif which == "next" and number <= said.month:
            year += 1
        return _whole(date(year, number, 1))
    if match["month"].islower() and match["month"] in ("may", "march", "mar"):  # "in may ways"; months have capitals
        return None
    span = _whole(date(_LEAP_YEAR, number, 1))
    return Span(span.first, span.last, has_year=False)


def _whole_year(match: re.Match[str], said: date) -> Span:
    return _of_year(int(match["year"]))


def _of_year(year: int) -> Span:
    return Span(date(year, 1, 1), date(year, 12, 31))


def _season(match: re.Match[str], said: date) -> Span:
    named = match.groupdict()
    return _of_season(_SEASONS[match["season"].lower()], named.get("which"), named.get("year"), said)


def _of_season(month: int, which: str | None, year: str | None, said: date) -> Span:
    """Three months from this one on. The last winter is the one that began last, unless it goes on still."""
    if year is not None:
        return _whole(date(int(year), month, 1), 3)
    first, named = date(said.year, month, 1), (which or "").lower()
    if named in ("last", "past") and _month(first, 3) > said:
        first = date(said.year - 1, month, 1)
    elif named == "next" and first <= said:
        first = date(said.year + 1, month, 1)
    return _whole(first, 3)


def _near_day(match: re.Match[str], said: date) -> Span:
    named = match.groupdict()
    if named.get("last"):
        return _single(_day(said, -1))
    return _single(_day(said, _NEAR_DAYS.get(match["near"].lower(), 0)))


def _ago(match: re.Match[str], said: date) -> Span | None:
    return _away(said, -_count(match["count"]), match["unit"].lower())


def _ahead(match: re.Match[str], said: date) -> Span | None:
    return _away(said, _count(match["count"]), match["unit"].lower())


def _away(said: date, count: int, unit: str) -> Span | None:
    """So many units away; the unit tells how exactly that is meant."""
    if unit in ("day", "night"):
        return _single(_day(said, count))
    if unit == "week":
        middle = _day(said, 7 * count)
        return Span(_day(middle, -3), _day(middle, 3))
    if unit == "weekend":
        saturday = _day(_monday(said), 5 + 7 * count)
        return Span(saturday, _day(saturday, 1))
    if unit == "month":
        return _whole(_month(said.replace(day=1), count))
    return _of_year(said.year + count)


_DIRECTION = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}


def _near_unit(match: re.Match[str], said: date) -> Span | None:
    return _unit_beside(_DIRECTION[match["which"].lower()], match["unit"].lower(), said)


def _unit_beside(direction: int, unit: str, said: date) -> Span | None:
    if unit == "week":
        monday = _day(_monday(said), 7 * direction)
        return Span(monday, _day(monday, 6))
    return _away(said, direction, unit)


def _weekday(match: re.Match[str], said: date) -> Span:
    number, which = _WEEKDAY_NAMES.index(match["weekday"][:3].lower()), match["which"].lower()
    ahead = (number - said.weekday()) % 7
    if which in ("last", "past"):
        return _single(_day(said, ahead - 7))
    if which == "next":
        return _single(_day(said, ahead or 7))
    if which == "this":
        return _single(_day(_monday(said), number))
    return _single(_day(said, ahead - 7 if ahead > 3 else ahead))  # on Friday: the nearest


def _beside_day(match: re.Match[str], said: date) -> Span | None:
    number = _month_number(match, "month" if match["month"] else "month_")
    day, year = int(match["day"] or match["day_"]), int(match["year"] or said.year)
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

_DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九十")} | {"两": 2, "〇": 0, "几": 3, "半": 0}
_NUMERAL = "[0-9]{1,3}|[一二两三四五六七八九]?十[一二三四五六七八九]?|[一二两三四五六七八九几半]"
_CHINESE_YEARS = {"前年": -2, "去年": -1, "今年": 0, "明年": 1, "后年": 2}
_CHINESE_DAYS = {
    "大前天": -3, "前天": -2, "昨天": -1, "昨日": -1, "昨晚": -1, "昨夜": -1, "今天": 0, "今日": 0, "今晚": 0,
    "今早": 0, "今晨": 0, "明天": 1, "明日": 1, "明早": 1, "明晚": 1, "后天": 2, "大后天": 3,
}  # fmt: skip
_CHINESE_SEASONS = {"春": 3, "夏": 6, "秋": 9, "冬": 12}
_CHINESE_UNITS = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}
_CHINESE_SIDE = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1, "下下": 2}


@cache
def _chinese() -> tuple[_Rule, ...]:
    """The Chinese rules, for simplified characters; compiled at first use."""

    def rule(signs: str, pattern: str, make: _Make) -> _Rule:
        return _Rule(frozenset(signs), re.compile(pattern), make)

    number = "(?P<number>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])"
    day = "(?P<day>[12][0-9]|3[01]|0?[1-9]|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九])"
    year = rf"(?:(?P<year>(?:19|20)[0-9]{{2}})\s*年|(?P<which>{'|'.join(_CHINESE_YEARS)}))"
    return (
        rule("日号", rf"(?:{year})?\s*{number}\s*月\s*{day}\s*[日号]", _chinese_day),
        rule("月", rf"{year}\s*的?\s*{number}\s*月", _chinese_month),
        rule(
            "月",
            rf"(?<![0-9年个一二三四五六七八九十]){number}\s*月(?:份|[初底中里]|(?=[的,.?，。？]))",
            _chinese_month,
        ),
        rule("年", rf"{year}\s*的?\s*(?P<season>[春夏秋冬])[天季]?", _chinese_season),
        rule("年", year, _chinese_year),
        rule(
            "天日昨今明",
            "|".join(sorted(_CHINESE_DAYS, key=len, reverse=True)),
            _chinese_near_day,
        ),
        rule(
            "周星礼",
            "(?P<side>上上|下下|上|这|本|下)个?(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天末])?",
            _chinese_week,
        ),
        rule("月", "(?P<side>上上|上|这|本|下)个?月", _chinese_near_month),
        rule(
            "前后",
            f"(?P<count>{_NUMERAL})多?个?多?(?P<unit>天|日|周|星期|礼拜|月|年)(?P<side>[以之]?前|[以之]?后)",
            _chinese_away,
        ),
        rule("周星礼", "(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])", _chinese_weekday),
    )


def _numeral(written: str) -> int:
    if written.isdigit():
        return int(written)
    tens, ten, ones = written.partition("十")
    if not ten:
        return _DIGITS[written]
    return (_DIGITS[tens] if tens else 1) * 10 + (_DIGITS[ones] if ones else 0)


def _chinese_year_of(match: re.Match[str], said: date) -> int | None:
    named = match.groupdict()
    if named.get("year"):
        return int(named["year"])
    return said.year + _CHINESE_YEARS[named["which"]] if named.get("which") else None


def _chinese_day(match: re.Match[str], said: date) -> Span:
    year = _chinese_year_of(match, said)
    day = date(_LEAP_YEAR if year is None else year, _numeral(match["number"]), _numeral(match["day"]))
    return Span(day, day, year is not None)


def _chinese_month(match: re.Match[str], said: date) -> Span:
    year = _chinese_year_of(match, said)
    span = _whole(date(_LEAP_YEAR if year is None else year, _numeral(match["number"]), 1))
    return Span(span.first, span.last, year is not None)


def _chinese_season(match: re.Match[str], said: date) -> Span:
    year = _chinese_year_of(match, said)
    return _whole(date(said.year if year is None else year, _CHINESE_SEASONS[match["season"]], 1), 3)


def _chinese_year(match: re.Match[str], said: date) -> Span:
    year = _chinese_year_of(match, said)
    return _of_year(said.year if year is None else year)


def _chinese_near_day(match: re.Match[str], said: date) -> Span:
    return _single(_day(said, _CHINESE_DAYS[match[0]]))


def _chinese_week(match: re.Match[str], said: date) -> Span:
    monday = _day(_monday(said), 7 * _CHINESE_SIDE[match["side"]])
    weekday = match["weekday"]
    if weekday is None:
        return Span(monday, _day(monday, 6))
    if weekday == "末":
        return Span(_day(monday, 5), _day(monday, 6))
    return _single(_day(monday, _chinese_weekday_number(weekday)))


def _chinese_weekday_number(sign: str) -> int:
    return "一二三四五六日".index("日" if sign == "天" else sign)


def _chinese_near_month(match: re.Match[str], said: date) -> Span:
    return _whole(_month(said.replace(day=1), _CHINESE_SIDE[match["side"]]))


def _chinese_away(match: re.Match[str], said: date) -> Span | None:
    count, unit = _numeral(match["count"]), _CHINESE_UNITS[match["unit"]]
    direction = -1 if match["side"].endswith("前") else 1
    if match["count"] == "半":  # half a year, half a month
        return _away(said, direction * 6, "month") if unit == "year" else _away(said, direction * 2, "week")
    return _away(said, direction * count, unit)


def _chinese_weekday(match: re.Match[str], said: date) -> Span:
    ahead = (_chinese_weekday_number(match["weekday"]) - said.weekday()) % 7
    return _single(_day(said, ahead - 7 if ahead > 3 else ahead))


_RELATIVE = frozenset(
    (
        _near_day, _ago, _ahead, _near_unit, _weekday, _chinese_near_day, _chinese_week, _chinese_near_month,
        _chinese_away, _chinese_weekday,
    )
)  # fmt: skip
