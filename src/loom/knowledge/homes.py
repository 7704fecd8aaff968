"""Homes and jobs in a statement: the key and the value of a fact about the home or the work of a person.

A move has the same key as a residence, so that "moved to York" supersedes "lives in Leeds". A plan to move has no
key, and neither does a team that moves to other software. The functions are pure, and read English and Chinese.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from loom.text.date_phrases import CHINESE_TIME_OF_DAY, DATE_CHINESE, MONTH, WEEKDAY
from loom.text.scripts import HAN

__all__ = ["WORKS_AS", "Home", "home_in"]

LIVES, WORKS_AT, WORKS_AS = "lives in", "works at", "works as"


class Home(NamedTuple):
    """A person ("" for the speaker, "sister" for a relative, else a name), an attribute, and its value."""

    who: str
    attribute: str
    value: str


# --- English -----------------------------------------------------------------------------------------------

_WHO: Final = (
    r"(?:\b(?P<who>(?:[Mm]y (?:\w+ )?and )?(?:I|[Ww]e)|[Mm]y \w+|"
    r"(?!(?:We|My|He|She|They|It|You|Who|And|But|The|This|That)\b)[A-Z]\w+))"
)
_DONE: Final = (
    r"(?:['’](?:ve|s|m|re)| (?:am|is|are|have|has|had|just|now|recently|finally|already|all|still|both|since))*"
)
_END: Final = (
    r"(?= (?:for|with|since|because|and|but|so|now|again|anymore|any more|these|at the moment|last|in|on|from)\b|"
    r"[,;.!?]|$)"
)
# People also move to software, days and parts of a company, which are not places.
_NO_PLACE: Final = (
    rf"(?!(?:(?i:{MONTH}|{WEEKDAY})|Linux|Windows|macOS|Mac|Ubuntu|Debian|Fedora|Android|Kubernetes|Docker|Terraform|"
    r"Postgres|Mongo|Redis|Kafka|Python|Rust|Go|Java|Kotlin|Swift|React|Vue|Angular|Slack|Teams|Zoom|Notion|Jira|"
    r"Linear|Azure|Heroku|Vercel|Netlify|Chrome|Firefox|Plan|Phase|Version|Option|Step|Stage|Round|Monday|Team)\b|"
    r"[A-Z]{2,}\b|\w*[a-z][A-Z]|\w*\d)"
)
_ENGLISH: Final = (
    (
        LIVES,
        "not ",
        re.compile(
            rf"{_WHO}(?:['’]s)?(?: (?:am|is|are))? (?:no longer (?:lives?|living)|(?:don['’]t|doesn['’]t|do not|does "
            r"not) live) (?:in|at|on|near) (?P<value>[^,;.]+?)(?: (?:anymore|any more|now))?(?=[,;.]|$)"
        ),
    ),
    (
        LIVES,
        "",
        re.compile(
            rf"{_WHO}{_DONE} (?:lives?|living|based)(?: (?:now|together|here))? (?:in|at|on|near) "
            rf"(?P<value>[^,;.]+?){_END}"
        ),
    ),
    (
        LIVES,
        "",
        re.compile(
            rf"(?:{_WHO}{_DONE} |^)(?:moved|relocated|Moved|Relocated)(?: (?:house|home|back|over|away|out|up|down))*"
            rf"(?: from [A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*)? (?:to|into) (?:a \w+ (?:\w+ )?in )?"
            rf"(?P<value>{_NO_PLACE}[A-Z][\w'’-]*(?: [A-Z][\w'’-]+)*)(?! (?:team|department|account|plan|office)\b)"
        ),
    ),
    (
        WORKS_AS,
        "",
        re.compile(
            rf"{_WHO}{_DONE} (?:works?|working) as (?:an? |the )?(?P<value>[^,;.]+?)(?= at\b| for\b| in\b|[,;.]|$)"
        ),
    ),
    (
        WORKS_AT,
        "",
        re.compile(
            rf"{_WHO}{_DONE} (?:(?:started |been )?(?:works?|working) (?:at|for)|started (?:a (?:new )?job )?at) "
            rf"(?P<value>[^,;.]+?){_END}"
        ),
    ),
)

# --- Chinese -----------------------------------------------------------------------------------------------

_PLACE_CHINESE: Final = r"(?P<value>[^，。；,、！!？?了的\s]{2,16})"
_CHINESE: Final = (
    (LIVES, re.compile(rf"(?<![记抓站忍挡保停留拦])(?:住在?|搬家?(?:到|去|进|回|来))了?\s?{_PLACE_CHINESE}")),
    (WORKS_AT, re.compile(r"在(?P<value>[^，。；,、在]{2,12}?)(?:上班|工作|任职)(?![时期中了])")),
    (WORKS_AS, re.compile(r"(?:当(?![时年初天场即然中下成作着])|做|担任)(?P<value>[^，。；,了过的]{2,10})")),
)
# Words of time and manner before the verb, which are not its subject.
_ADVERBS_CHINESE: Final = re.compile(
    f"{DATE_CHINESE.pattern}|{CHINESE_TIME_OF_DAY}|今年|现在|目前|如今|最近|前阵子|已经?|刚刚?|又|都|就|还|也|才|终于|"
    "从[^，。]{1,8}?(?=$|搬|住)|[上下这本]个?|一直|一起|是|在|\\s"
)
_AHEAD_CHINESE: Final = re.compile(
    "要|打算|准备|计划|想|会|将|可能|也许|明年|下个?月|下周|如果|希望|不|没|以前|曾|过去|小时候"
)
_SPEAKER_CHINESE: Final = re.compile(f"(?:我和[{HAN}]{{1,3}}|我们?一?家|我们俩?|咱们?家?|我)(?:人|几个)?")
_RELATIVE_CHINESE: Final = re.compile(f"我们?的?(?P<who>[{HAN}]{{1,3}})")
_CLAUSE_CHINESE: Final = re.compile("[，。；,！!？?]")


def home_in(said: str, chinese: bool) -> Home | None:
    """The residence, employer or occupation of a person in a statement; None if there is none."""
    return _home_in_chinese(said) if chinese else _home_in_english(said)


def _home_in_english(said: str) -> Home | None:
    last: tuple[int, Home] | None = None  # "I don't live in Leeds anymore, I live in York": the last one is valid
    for attribute, negation, pattern in _ENGLISH:
        for match in pattern.finditer(said):
            if last is None or (match.start() > last[0] and attribute == last[1].attribute):
                last = match.start(), Home(_who(match["who"]), attribute, negation + match["value"])
    return None if last is None else last[1]


def _who(word: str | None) -> str:
    if word is None or word.lower().endswith((" i", " we")) or word.lower() in ("i", "we"):
        return ""
    return word


def _home_in_chinese(said: str) -> Home | None:
    for attribute, pattern in _CHINESE:
        match = pattern.search(said)
        if match is None:
            continue
        starts = [end.end() for end in _CLAUSE_CHINESE.finditer(said, 0, match.start())]
        before = said[starts[-1] if starts else 0 : match.start()]
        if _AHEAD_CHINESE.search(before):
            continue
        who = _ADVERBS_CHINESE.sub("", before)
        # "我搬家了，现在住成都": the clause before has the subject.
        if not who and starts and not said.startswith("我"):
            continue
        if not who or _SPEAKER_CHINESE.fullmatch(who):
            return Home("", attribute, match["value"])
        relative = _RELATIVE_CHINESE.fullmatch(who)
        if relative is not None:
            return Home(f"my {relative['who']}", attribute, match["value"])
        if len(who) <= 4 and attribute is not WORKS_AS:
            return Home(who, attribute, match["value"])
    return None
