"""The vocabulary of dates in English and Chinese, and patterns that recognise a date or a time of day in a text.

All other modules take months, weekdays and relative words from these tables. The patterns recognise phrases;
`loom.text.dates` resolves them to days.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from loom.text.numerals import NUMBER_WORDS

__all__ = [
    "CHINESE_DAYS",
    "CHINESE_SEASONS",
    "CHINESE_TIME_OF_DAY",
    "CHINESE_WEEK",
    "CHINESE_WEEKDAYS",
    "CHINESE_YEARS",
    "DATE_CHARACTERS",
    "DATE_CHINESE",
    "DATE_ENGLISH",
    "DATE_WORDS",
    "HOUR_CHINESE",
    "MONTH",
    "MONTHS",
    "MONTH_NAMES",
    "NEAR_DAYS",
    "SEASONS",
    "SMALL_NUMBERS",
    "WEEKDAY",
    "WEEKDAYS",
    "WEEKDAY_NAMES",
    "may_have_date",
]

# --- English -----------------------------------------------------------------------------------------------

MONTH_NAMES: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
WEEKDAY_NAMES: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

MONTHS: Final[Mapping[str, int]] = MappingProxyType(
    {name: number for number, name in enumerate(MONTH_NAMES, 1)}
    | {name[:3]: number for number, name in enumerate(MONTH_NAMES, 1)}
    | {"sept": 9}
)
"""The names and abbreviations of the months, from 1 for January."""

WEEKDAYS: Final[Mapping[str, int]] = MappingProxyType(
    {name: number for number, name in enumerate(WEEKDAY_NAMES)}
    | {name[:3]: number for number, name in enumerate(WEEKDAY_NAMES)}
    | {"tues": 1, "thur": 3, "thurs": 3}
)
"""The names and abbreviations of the weekdays, from 0 for Monday, as `date.weekday` counts."""

SEASONS: Final[Mapping[str, int]] = MappingProxyType({"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12})
"""The first month of each season in the northern hemisphere."""

NEAR_DAYS: Final[Mapping[str, int]] = MappingProxyType({"today": 0, "tonight": 0, "yesterday": -1, "tomorrow": 1})

SMALL_NUMBERS: Final[Mapping[str, int]] = MappingProxyType(
    {"a": 1, "an": 1} | {word: value for word, value in NUMBER_WORDS.items() if value <= 12}
)
"""Number words before days, weeks, months and years."""


def _forms(number: int) -> str:
    """Return a pattern for the forms of one month, which share their first three letters."""
    endings = [form[3:] for form, of in MONTHS.items() if of == number and len(form) > 3]
    return f"{MONTH_NAMES[number - 1][:3]}" + (f"(?:{'|'.join(endings)})?" if endings else "")


MONTH: Final = f"(?:{'|'.join(_forms(number) for number in range(1, 13))})"
"""A month, for patterns that ignore case."""

WEEKDAY: Final = f"(?:{'|'.join(name[:-3] for name in WEEKDAY_NAMES)})day"
"""A full weekday, for patterns that ignore case."""

_CLOCK: Final = r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?: ?[ap]\.?m\b\.?)?"

# Matches of the patterns below are features of `loom.knowledge.classifier`. After a change of the patterns its
# weights must be learned again.
DATE_ENGLISH: Final = re.compile(
    rf"\b(?:\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?"
    rf"|{MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?\b(?!:)(?:,? \d{{4}}\b)?"
    rf"|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{MONTH}\b(?: \d{{4}}\b)?"
    rf"|(?:in|since|until|till|by|from|of|last|next|this|early|late|mid|for|starting) {MONTH}\b(?! \d)(?: "
    rf"\d{{4}}\b)?"
    rf"|(?:last|next|this|on|by|until|since|every|each|the|coming|of) {WEEKDAY}s?(?: (?:morning|afternoon|"
    rf"evening|night))?\b"
    rf"|{WEEKDAY}s?\b"
    rf"|(?:last|next) (?:week|month|year|quarter|{'|'.join(SEASONS)}|night)"
    r"|(?:yesterday|tomorrow)(?: (?:morning|afternoon|evening|night))?"
    rf"|(?:{'|'.join(SMALL_NUMBERS)}|\d{{1,3}}) (?:day|week|month|year)s? (?:ago|later|earlier|from now)"
    r"|(?:a few|a couple of|several|some|many) (?:day|week|month|year)s ago"
    r"|(?:in|since|until|by|of) (?:19|20)\d\d"
    rf"|(?:at )?{_CLOCK}|\d{{1,2}} ?(?:am|pm))\b",
    re.IGNORECASE,
)
"""A date or a time of day in English."""

DATE_WORDS: Final = frozenset(
    (
        *MONTHS, *WEEKDAY_NAMES, *(f"{name}s" for name in WEEKDAY_NAMES), "yesterday", "tomorrow", "ago", "last",
        "next", "later", "earlier",
    )
)  # fmt: skip
"""Every English date without a digit contains one of these words."""

_DATE_HINT: Final = re.compile(
    rf"\d|day|last|next|ago|later|earlier|from now|tomorrow|{'|'.join(name[:3] for name in MONTH_NAMES)}",
    re.IGNORECASE,
)


def may_have_date(text: str) -> bool:
    """Whether a text may contain an English date: it has a digit or a part of a date word."""
    return _DATE_HINT.search(text) is not None


# --- Chinese -----------------------------------------------------------------------------------------------

CHINESE_YEARS: Final[Mapping[str, int]] = MappingProxyType({"前年": -2, "去年": -1, "今年": 0, "明年": 1, "后年": 2})

CHINESE_DAYS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "大前天": -3, "前天": -2, "昨天": -1, "昨日": -1, "昨晚": -1, "昨夜": -1, "今天": 0, "今日": 0, "今晚": 0,
        "今早": 0, "今晨": 0, "明天": 1, "明日": 1, "明早": 1, "明晚": 1, "后天": 2, "大后天": 3,
    }
)  # fmt: skip

CHINESE_SEASONS: Final[Mapping[str, int]] = MappingProxyType({"春": 3, "夏": 6, "秋": 9, "冬": 12})

CHINESE_WEEKDAYS: Final[Mapping[str, int]] = MappingProxyType(
    {character: number for number, character in enumerate("一二三四五六日")} | {"天": 6}
)

CHINESE_WEEK: Final = "(?:周|星期|礼拜)"
CHINESE_TIME_OF_DAY: Final = "(?:凌晨|清晨|早上|上午|中午|下午|傍晚|晚上|半夜)"

_NUMERAL: Final = "[〇一二两三四五六七八九十\\d]"
HOUR_CHINESE: Final = rf"{_NUMERAL}{{1,2}}点(?:半|{_NUMERAL}{{1,3}}分?)?(?![^\W\d]?(?:建议|意见|钱|了))"
"""An hour, but not 两点建议 (two suggestions)."""

DATE_CHINESE: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\d|(?:(?:\d{4}|今|明|去|后|前)年 ?)?(?:\d{1,2}|[一二三四五六七八九十]{1,2}) ?月(?!份?[内里])份?"
    r"(?: ?(?:\d{1,2}|[一二三四五六七八九十廿]{1,3}) ?[日号]|[一二三四五六七八九十廿]{1,3}(?![个天年多岁位人次月])|"
    r"[底初末]|[上中下]旬)?"
    r"|(?<![\d.,:/])\d{1,2} ?[日号](?![楼线机院店门])"
    rf"|(?:上|下|这|本)?个?{CHINESE_WEEK}[{''.join(CHINESE_WEEKDAYS)}](?![^\W\d_]?[期])"
    rf"|昨天|前天|后天|明天|昨晚|大前天|[上下]个?(?:月|{CHINESE_WEEK}|季度)|去年|明年|前年|后年|(?:19|20)\d\d年"
    rf"|{_NUMERAL}{{1,3}} ?(?:天|周|个月|年|个星期)以?[前后])(?: ?{CHINESE_TIME_OF_DAY}(?:{HOUR_CHINESE})?)?"
    rf"|{CHINESE_TIME_OF_DAY}?{HOUR_CHINESE}|{_CLOCK}"
)
"""A date or a time of day in simplified Chinese."""

DATE_CHARACTERS: Final = frozenset("月日号周点年昨明后前期拜")
"""Every Chinese date contains one of these characters."""
