"""Terms of the text index for times: the day on which a record was made, and the days that it mentions.

`time_terms` returns the terms of a record, `asked_times` those of a question, so a memory is found by the time that
it mentions and not only by the time when it was made. `loom.text.dates` resolves the days.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import lru_cache

from loom.text.dates import Span, date_mentions, days_of, spans

__all__ = ["DATES_VERSION", "NAMES_A_TIME", "asked_times", "time_terms"]

DATES_VERSION = 3
"""Increased with every change of the terms of a record, which includes every change of `loom.text.dates`."""

# No word begins with this character, so no text can contain one of these terms.
_MARK = "\x1f"

NAMES_A_TIME = _MARK + "t"
"""The term of every text that mentions a time, which answers the question "when"."""

# The longest span whose days all become terms. A longer one has the terms of its months.
_MOST_DAYS = 10
_MOST_MONTHS = 6


def time_terms(text: str, said_at: datetime) -> list[str]:
    """Return the terms of the day on which a text was said and of the times that it mentions, each once."""
    found = dict.fromkeys(_day_terms(said_at.date()))
    mentions = date_mentions(text, said_at)
    for span in days_of(mentions):
        found.update(dict.fromkeys(_span_terms(span)))
    return [*found, NAMES_A_TIME] if mentions else list(found)


def asked_times(question: str, now: datetime) -> dict[str, float]:
    """Return the terms for the times of a question with their weights: 1 for a match, less for a near one.

    An event is often mentioned on one of the following days, mostly the next. Empty if the question names no time.
    """
    found: dict[str, float] = {}
    for span in spans(question, now):
        for term in _span_terms(span, exact=True):
            found[term] = 1.0
        if span.days <= _WEEK and span.has_year:
            for days, weight in enumerate(_TOLD_LATER[: (date.max - span.last).days], start=1):
                after = span.last + timedelta(days=days)
                found.setdefault(f"{_MARK}d{after:%Y%m%d}", weight)
            found.setdefault(f"{_MARK}m{span.last:%Y%m}", _SAME_MONTH)
    return found


# The weights of the seven days after a time that is asked for, and of its month.
_TOLD_LATER = (0.8, 0.5, 0.35, 0.35, 0.3, 0.2, 0.2)
_SAME_MONTH = 0.2
_WEEK = 7


@lru_cache(maxsize=256)
def _day_terms(day: date) -> tuple[str, ...]:
    """Return the terms of a day. Cached, because many texts are from the same day."""
    return tuple(_span_terms(Span(day, day)))


def _span_terms(span: Span, exact: bool = False) -> list[str]:
    """Return the days, months and years of a span; with `exact`, only the narrowest that cover it."""
    first, last, has_year = span.first, span.last, span.has_year
    names: dict[str, None] = {}
    months = _months(first, last)
    if span.days <= _MOST_DAYS:
        every = [first + timedelta(days=number) for number in range(span.days)]
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
    """Return the first day of each month of a span, at most one more than become terms."""
    begin, end = 12 * first.year + first.month - 1, 12 * last.year + last.month - 1
    return [date(number // 12, number % 12 + 1, 1) for number in range(begin, min(end, begin + _MOST_MONTHS) + 1)]
