"""Bare corrections: "make that 1100", 改成1100吧. They name a new value, but neither its attribute nor the old value.

A bare correction applies to the last fact of the conversation with one value of the same sort; `revised` phrases the
new fact like that one. Pure functions, in English and Chinese.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Final

from loom.knowledge.facts import ExtractedFact
from loom.knowledge.keys import apply_correction, normal_value
from loom.knowledge.wording import with_dates
from loom.text.date_phrases import DATE_CHINESE, DATE_ENGLISH
from loom.text.scripts import is_chinese
from loom.text.specifics import specifics

__all__ = ["revised", "revision_in"]

_NUMBER: Final = r"[$€£¥]?\s?\d+(?:[.,]\d+)*(?:\s?%|[kKmM]\b)?"
_UNIT: Final = r"(?:\s?[A-Za-z]{1,12}){0,2}?"
_DATE: Final = rf"(?:on |at |by )?{DATE_ENGLISH.pattern}"
_SORRY: Final = (
    r"(?:no|sorry|actually|wait|oops|hmm|correction|scratch that|my mistake|i misspoke|on second thoughts?)"
)
_ENGLISH: Final = re.compile(
    rf"(?:(?P<sorry>{_SORRY})\b[\s,:.!;–—-]*)*"
    r"(?:(?P<made>(?:(?:let['’]?s|please|can we|could you|can you|we should|we['’]d better) )*"
    r"(?:make|change|set|move|bump|raise|lower|reduce|cut|push|increase) (?:that|it|this)(?: (?:back|up|down))?"
    r"(?: to| at)?|let['’]?s (?:say|do|go with)|i meant(?: to say)?|(?:that|it) should (?:be|say|have been))\s+"
    r"|(?:it|that)(?:['’]s| is| will be)(?: actually| now)? )?"
    rf"(?P<value>{_DATE}|{_NUMBER}{_UNIT})(?P<instead> instead)?(?:,? (?:please|then|now|ok|okay|thanks))?[\s.!]*",
    re.IGNORECASE,
)
_CHINESE: Final = re.compile(
    r"(?:(?P<sorry>不对|不是|说错了|我?记错了|我?写错了|更正(?:一下)?|纠正(?:一下)?|等等|等一下|啊|哦|噢|抱歉|不好意思)[，,：:。\s]*)*"
    r"(?:(?P<made>(?:我们|咱们|那|就|还是|再|先|给我|帮我|请|麻烦)*(?:改[成为到]|换[成到]|调[成到整]+|推[迟到]+|提前到|加到|降到|提到)|"
    r"(?:那就?|就)?还是|应该是)了?|(?:是|那就)?)\s?"
    rf"(?P<value>{DATE_CHINESE.pattern}|[$€£¥]?\s?\d+(?:[.,]\d+)*\s?[万千百亿]?(?:%|[元块个人份台件天小时分钟岁斤公]{{0,3}}))"
    r"(?:吧|了|好了|呗|哈|才对|才是)*[。！!～~\s]*"
)


def revision_in(said: str) -> str | None:
    """The new value, if a text is only a correction; else None."""
    match = _CHINESE.fullmatch(said) if is_chinese(said) else _ENGLISH.fullmatch(said)
    if match is None or not any(found for name, found in match.groupdict().items() if name != "value"):
        return None
    value: str = match["value"].strip()
    return value


# "Make it 5" after "the budget is 900" is about something else.
_MOST_TIMES: Final = 10.0


def revised(newer: ExtractedFact, older: ExtractedFact, at: datetime) -> ExtractedFact | None:
    """A bare correction, made at the time `at`, in the words of the fact that it corrects; None if it does not apply.

    It corrects a fact with exactly one number, or one date, of the same sort as the new value.
    """
    if newer.revises is None:
        return None
    outdated = _outdated(newer.revises, older)
    if outdated is None or normal_value(outdated[0]) == normal_value(outdated[1]):
        return None
    old, new = outdated
    bare = replace(newer, key=None, value=new, replaces=old)
    fact = apply_correction(bare, older)
    if fact is bare:
        return None
    keyed = None if fact.key is None else older.value
    value = None if keyed is None else keyed.replace(normal_value(old), normal_value(new))
    return replace(fact, content=with_dates(fact.content, at), value=value, replaces=None, revises=None)


def _outdated(value: str, older: ExtractedFact) -> tuple[str, str] | None:
    """The corrected value of a fact, and its replacement; for a number with a unit, the number alone."""
    said = _DAYS.sub("", older.content.partition(": ")[2])
    if any(pattern.fullmatch(value) for pattern in (DATE_ENGLISH, DATE_CHINESE)):
        pattern = DATE_CHINESE if is_chinese(older.content) else DATE_ENGLISH
        dates = [match.group() for match in pattern.finditer(said)]
        same_sort = len(dates) == 1 and any(map(str.isdigit, dates[0])) == any(map(str.isdigit, value))
        return (_BEFORE_DAY.sub("", dates[0]), _BEFORE_DAY.sub("", value)) if same_sort else None
    amounts = [number for number in specifics(said).numbers if _amount(number)]
    if len(amounts) != 1:
        return None
    digits = _DIGITS.search(value)
    unit = "" if digits is None else value[digits.end() :].strip()
    times = _amount(value) / _amount(amounts[0])
    if unit.lower() not in said.lower() or not 1 / _MOST_TIMES <= times <= _MOST_TIMES:
        return None
    old = _DIGITS.search(amounts[0])
    return None if digits is None or old is None else (old.group(), digits.group())


_BEFORE_DAY: Final = re.compile(r"^(?:on|at|by|in|from|until|since|for|the) ", re.IGNORECASE)
_DAYS: Final = re.compile(r" \[\d{4}[\d\- toQ]*\]")
_DIGITS: Final = re.compile(r"\d[\d,]*(?:\.\d+)?")


def _amount(number: str) -> float:
    """The number in a value; 0 without one."""
    digits = _DIGITS.search(number)
    return float(digits.group().replace(",", "")) if digits else 0.0
