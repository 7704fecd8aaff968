"""The details of a text that a summary must keep unchanged: numbers, dates, names, identifiers, negation.

Works on English, Chinese and mixed text. A date is found by its words; `loom.text.dates` resolves it to days. Pure
functions of the text, linear in its length.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from loom.text.date_phrases import DATE_CHINESE, DATE_ENGLISH, MONTH_NAMES, WEEKDAY_NAMES, may_have_date
from loom.text.numerals import CHINESE_NUMERALS
from loom.text.scripts import HAN
from loom.text.words import word_set

__all__ = ["Specifics", "specifics"]


_UNITS_CHINESE: Final = (
    "年|个月|月|周|天|日|号|小时|分钟|秒|毫秒|点|岁|元|块|美元|欧元|日元|万|亿|千|百|个|台|条|位|次|人|名|只|套|"
    "份|件|本|页|行|步|轮|"
    "遍|倍|成|斤|公斤|千克|克|毫克|毫升|升|米|公里|厘米|度|平米|平方米|楼|层|室|届|期|字|张|辆|栋|间|家|所|级"
)


class Specifics(NamedTuple):
    """The details of a text that a summary must keep unchanged, in the order of the text."""

    numbers: tuple[str, ...]
    dates: tuple[str, ...]
    names: tuple[str, ...]
    identifiers: tuple[str, ...]
    negated: bool


# One pass finds all pieces of Latin letters and digits; the form of a piece determines its kind.
_PIECE = re.compile(
    r"https?://[^\s<>\"'，。；）】」]+"
    r"|`[^`\n]{1,120}`"
    r"|[$€£¥]\s?\d++(?:,\d{3})*+(?:\.\d++)?+"
    r"|\d++(?:,\d{3})*+(?:\.\d++)*+(?:e-?\d++)?+(?: ?%|‰)?+(?![A-Za-z_\d])"
    r"|[~./]?[A-Za-z0-9_]+(?:(?:[-./@:+=#]|::)[A-Za-z0-9_]+)*(?:\+\+|\#|\(\))?"
)
_HAN_NUMBER = re.compile(f"[{CHINESE_NUMERALS}半\\d][{CHINESE_NUMERALS}半\\d.,]{{0,31}}(?= ?(?:{_UNITS_CHINESE}))")
_TITLE = re.compile(r"《[^》\n]{1,60}》|「[^」\n]{1,40}」")
_HAN_NAME = re.compile(
    r"(?:叫做?|名叫|姓名是|名字是|我是|导师是|同事|经理|老师|医生)\s?"
    rf"([{HAN}]{{2,3}}?)(?=[，。,.！!；;、 教老先女在的和]|$)"
)
_NEGATION_WORDS: Final = word_set(
    "not no never none nothing nobody nowhere neither nor cannot without isn't aren't wasn't weren't don't "
    "doesn't didn't won't wouldn't can't couldn't shouldn't mustn't haven't hasn't hadn't ain't nope"
)
_NEGATION_CHINESE = re.compile(
    "不(?!错|过|仅|但|同|少|久|断|管|如|论)|没|无法|未(?!来)|别(?!的|人|墅)|勿|非(?!常)|莫"
)
_CAPITAL_WORDS: Final = word_set("I I'm I've I'll I'd OK INFO DEBUG WARN WARNING ERROR FATAL AND OR NOT TODO") | {
    name.capitalize() for name in (*MONTH_NAMES, *WEEKDAY_NAMES)
}


def specifics(text: str) -> Specifics:
    """Return the numbers, dates, names and identifiers of a text, and whether it contains a negation.

    A name is a capitalised Latin word that does not begin a sentence, or a Chinese word that is introduced as a name.
    """
    numbers: list[str] = []
    names: list[str] = []
    identifiers: list[str] = []
    dates: list[str] = []
    negated = False
    previous_end = 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece.islower() and piece.isalpha() and not piece.startswith("http"):
            # Nine of ten pieces are plain words.
            negated = negated or piece in _NEGATION_WORDS
            previous_end = match.end()
            continue
        first = piece[0]
        if first.isdigit() or first in "$€£¥":
            (numbers if _is_number(piece) else identifiers).append(piece)
        elif first == "`" or _is_identifier(piece):
            identifiers.append(piece.strip("`"))
        elif (
            first.isupper()
            and piece not in _CAPITAL_WORDS
            # A word in capitals is a name in any place.
            and ((len(piece) > 1 and piece.isupper()) or not _opens_sentence(text, previous_end, match.start()))
        ):
            names.append(piece)
        elif piece.lower() in _NEGATION_WORDS:
            negated = True
        previous_end = match.end()
    if not text.isascii():
        numbers += _HAN_NUMBER.findall(text)
        names += _TITLE.findall(text) + _HAN_NAME.findall(text)
        negated = negated or _NEGATION_CHINESE.search(text) is not None
        dates += [match.group() for match in DATE_CHINESE.finditer(text)]
    negated = negated or "n't" in text or "n’t" in text
    if may_have_date(text):
        dates += [match.group() for match in DATE_ENGLISH.finditer(text)]
    return Specifics(tuple(dict.fromkeys(numbers)), tuple(dates), tuple(names), tuple(identifiers), negated)


def _opens_sentence(text: str, previous_end: int, start: int) -> bool:
    """Whether a piece is the first, or has more than a space between itself and the piece before."""
    between = text[previous_end:start]
    return not previous_end or not between.isspace() or "\n" in between


def _is_number(piece: str) -> bool:
    return not any(character.isalpha() or character in "_/:@=#" for character in piece.replace("e", "", 1)) or (
        piece[-1].isalpha() and piece.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ%")[-1:].isdigit()
    )


def _is_identifier(piece: str) -> bool:
    """Whether a piece is a path, a dotted or underscored name, camel case, letters with digits, or a call."""
    if _IDENTIFIER_FORM.search(piece):
        return True
    return "-" not in piece and not piece[1:].islower() and _CAMEL.search(piece) is not None


_IDENTIFIER_FORM = re.compile(r"^http|[_/@=#\d]|::|[^.]\.+[^.]|\(\)$|\+\+$", re.ASCII)
_CAMEL = re.compile(r"^(?=.*[a-z]).+[A-Z]", re.ASCII)
