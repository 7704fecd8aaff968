"""Confidence, coverage and novelty of an answer, estimated from the words of task and answer.

Repeating the task answers nothing: coverage counts only to the extent that the answer says something new. A question
for a number, a time, a person or a list is covered by an item of that kind. Works in English and Chinese, in linear
time.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from loom.text.scripts import HAN, has_han
from loom.text.specifics import specifics
from loom.text.words import content_terms, query_terms, terms

__all__ = ["WordJudgement", "judged_by_words"]


class WordJudgement(NamedTuple):
    """Three scores from 0 to 1."""

    confidence: float
    coverage: float
    novelty: float


# --- confidence --------------------------------------------------------------------------------------------

_ENGLISH_HEDGES: Final = (
    "maybe perhaps possibly probably might unsure uncertain unclear unknown guess seems apparently roughly unable "
    "cannot failed"
)
_HEDGING_PHRASES: Final = re.compile(
    r"\b(?:not (?:sure|certain|clear|known|found)|(?:do|does|did|could|can)(?: not|n['’]t) (?:know|say|tell|find|"
    r"determine)|no idea|hard to (?:say|tell)|some (?:way|reason|kind|how|port)|somehow|somewhere|various)\b",
    re.IGNORECASE,
)
_CHINESE_HEDGES: Final = re.compile(
    "可能|也许|大概|或许|不确定|不太?清楚|未知|无法|似乎|估计|不知道|说不准|没查到|某个|某种"
)
_SURE: Final = 0.8
_COST_OF_A_HEDGE: Final = 0.15
# The factor of the confidence of a sentence that has nothing to do with the task.
_UNRELATED: Final = 0.6


@cache
def _hedges() -> frozenset[str]:
    """Return the English hedges in the form of `terms`."""
    return frozenset(terms(_ENGLISH_HEDGES))


def _confidence(said: list[str], result: str) -> float:
    hedges = sum(term in _hedges() for term in said)
    hedges += len(_HEDGING_PHRASES.findall(result)) + len(_CHINESE_HEDGES.findall(result))
    # A hedge weighs less in a long text.
    return max(0.1, _SURE - _COST_OF_A_HEDGE * hedges / max(1.0, len(said) / 50))


# --- coverage ----------------------------------------------------------------------------------------------

_COUNTED: Final = (
    r"\bhow (?:much|many|long|often|old|far|big)\b"
    r"|\bwhat(?:['’]s| is| was| are) the (?:\w+ ){0,2}(?:cost|price|port|number|amount|size|version|rate|total|"
    r"period)\b"
    "|多少|多久|多长|几[个位次天年]|哪个端口"
)
_TIMED: Final = r"\bwhen\b|\bwhat (?:time|day|date)\b|什么时候|何时|几点|哪天|几号"
_NAMED: Final = (
    r"\bwho\b|\bwhom\b|\bwhich (?:countr|cit|person|team|compan)|\bwhere\b|谁|哪位|哪里|哪儿|哪个(?:国家|城市|人)"
)
_PICKED: Final = r"\bwhich (?!of\b|way\b|is\b|are\b)\w+"
_DEMANDS: Final = tuple(re.compile(pattern, re.IGNORECASE) for pattern in (_COUNTED, _TIMED, _NAMED, _PICKED))
_LISTED: Final = re.compile(
    r"\b(?:list|name|give)\b.{0,30}\b(?P<count>two|three|four|five|six|\d)\b"
    "|(?:列出|说出|举出)[^，。]{0,12}(?P<han>[两三四五六])",
    re.IGNORECASE,
)
_NUMBERS: Final = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6}
_ITEM_END: Final = re.compile(r",|;|\n|\band\b|[，、；]|和")
_NAME: Final = re.compile(r"(?<![.!?] )(?<!^)\b[A-Z][a-z]+|^[A-Z][a-z]+(?=,| (?:and|is|was|has|did|\w+ed)\b)")
_NAME_CHINESE: Final = re.compile(
    f"[{HAN}]{{1,3}}(?:总|工|哥|姐|老师|先生|女士|经理|主任|市|省|县|路|区)|[小老][{HAN}]"
)
# From this share of new terms, an answer is not an echo.
_MUCH_NEW: Final = 0.5


def _demands_met(task: str, result: str) -> list[bool]:
    """Return, for each kind of item that the task asks for, whether the answer has one that is not in the task."""
    found = specifics(result)
    names = [*_NAME.findall(result), *_NAME_CHINESE.findall(result)]
    undated = result
    for phrase in found.dates:
        undated = undated.replace(phrase, " ")
    picked = (*found.numbers, *found.identifiers, *found.names, *names)
    given = (specifics(undated).numbers, found.dates, names, picked)  # in the order of the demands
    met = [
        any(item not in task for item in items)
        for demand, items in zip(_DEMANDS, given, strict=True)
        if demand.search(task)
    ]
    listed = _LISTED.search(task)
    if listed is not None:
        count = listed["count"] or listed["han"]
        wanted = _NUMBERS.get(count.lower()) or int(count)
        items = [part.strip(" .。") for part in _ITEM_END.split(result)]
        met.append(sum(bool(item) and item not in task for item in items) >= wanted)
    return met


def _coverage(task: str, met: list[bool], said: set[str], answering: float) -> float:
    asked = query_terms(task)
    whole = sum(asked.values())
    repeated = sum(weight for term, weight in asked.items() if term in said) / whole if whole else 1.0
    answered = repeated * answering
    return 0.5 * answered + 0.5 * sum(met) / len(met) if met else answered


# --- novelty -----------------------------------------------------------------------------------------------

# This many new terms give half of the score. Chinese terms are character pairs, which are more numerous.
_HALF_ENGLISH, _HALF_CHINESE = 3.0, 5.0


# Words about questions and answers, which carry no content of an answer.
_ABOUT_ASKING: Final = """
question answer ask know want reason cause following here find tell say
原因 问题 回答 想知道 您问 你问 以下 如下 办法 情况
"""


@cache
def _about_asking() -> frozenset[str]:
    return frozenset(terms(_ABOUT_ASKING))


# Function characters without content of their own.
_JOINING_CHARACTERS: Final = frozenset("的了是就为在这那和以及因所有也都要需被把其之而且则与或吗呢您你我")


def _is_recombined(term: str, known: str) -> bool:
    """Return whether a pair of Chinese characters only recombines known ones."""
    return has_han(term) and all(character in known or character in _JOINING_CHARACTERS for character in term)


def judged_by_words(task: str, result: str, context: str = "") -> WordJudgement:
    """Judge an answer: its confidence, its coverage of the task, and its novelty beside task and context."""
    said = terms(result)
    if not said:
        return WordJudgement(0.0, 0.0, 0.0)
    known = f"{task}\n{context}"
    old = {*terms(known), *_about_asking()}
    distinct = {term for term in said if term in old or not _is_recombined(term, known)}
    # Function words repeat nothing: "The capital is Paris" has one word of the question and one of its own.
    telling = distinct & {*content_terms(result)} or distinct
    answering = min(1.0, len(telling - old) / max(1, len(telling)) / _MUCH_NEW)
    new = distinct - old
    share = len(new) / max(1, len(distinct))
    half = _HALF_CHINESE if has_han(result) else _HALF_ENGLISH
    met = _demands_met(task, result)
    related = _UNRELATED if _is_unrelated(task, result, distinct, met) else 1.0
    return WordJudgement(
        # Repeating the task and speaking of something else lower the confidence.
        _confidence(said, result) * (0.5 + 0.5 * answering) * related,
        _coverage(task, met, distinct, answering),
        share * len(new) / (len(new) + half),
    )


def _is_unrelated(task: str, result: str, said: set[str], met: list[bool]) -> bool:
    """Whether a sentence has no content word of the task and no item that it asks for. A fragment may be the item."""
    is_sentence = (
        not _JOINING_CHARACTERS.isdisjoint(result) if has_han(result) else len(content_terms(result)) < len(said)
    )
    return is_sentence and not any(met) and said.isdisjoint(content_terms(task))
