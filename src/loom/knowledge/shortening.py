"""Shortening a clause in four steps, down to a telegram, in English and Chinese.

The word lists hold the words that a clause can lose without losing its meaning. `extractive` chooses the clauses of a
summary and their lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

from loom.text.numerals import CHINESE_NUMERALS, NUMBER_WORDS
from loom.text.scripts import HAN, is_chinese

__all__ = ["SHORTEST", "clause_forms"]

SHORTEST: Final = 3
"""The index of the shortest of the four forms."""

_LONGEST_MACHINE_LINE = 160


_RATE = " (?:second|minute|hour|day|night|week|month|quarter|year|person|head|piece)\\b"
_COUNTED = rf"(?:{'|'.join(NUMBER_WORDS)}|half|a hundred)\b"
_HAN = f"[{HAN}]"
_COUNTED_CHINESE = f"{CHINESE_NUMERALS}半第\\d"


@cache
def _shortening() -> dict[str, re.Pattern[str]]:
    """The patterns that can be left out: asides, padding, tails, light words, and in a telegram function words.

    Compiled at first use.
    """
    return {
        "aside": re.compile(r"\s?\((?![^()]{0,60}\d)[^()]{0,60}\)|（(?![^（）]{0,60}\d)[^（）]{0,60}）"),
        "padding": re.compile(
            r",? ?\b(?:by the way|actually|basically|honestly|of course|you know|i mean|i'm afraid|as you know|"
            r"for the "
            r"record|in fact|to be honest|"
            r"as far as i (?:know|can tell)|obviously|frankly|fortunately|unfortunately|apparently|kind of|sort "
            r"of|a bit|"
            r"pretty much|so far|"
            r"at the end of the day|in the end|after all|as it turns out|it turns out that|remember|just|really|very|"
            r"quite|simply|also|too|already)\b,?",
            re.IGNORECASE,
        ),
        # "Nine a day" is not "nine days", and "take it" is not "take".
        "light": re.compile(
            rf"\b(?:the|a(?! (?:half|quarter|third|dozen|few|couple|hundred|thousand|million)\b)(?!{_RATE})|"
            rf"an(?!{_RATE})|that|which|is|are|"
            r"was|were|am|we|our|there|have(?= \w+ed\b)|has(?= \w+ed\b)|had(?= \w+ed\b)|"
            r"will|it(?! ?$)|its|so|then|some|all|they|of the)\b(?!['’-])\s?",
            re.IGNORECASE,
        ),
        "padding_chinese": re.compile(
            "其实|基本上|实际上|总的来说|你知道|说实话|老实说|当然|顺便|一下子?|这个|那个|大家都?|应该说|可以说|"
            "比较而言|"
            "的时候|主要(?:还)?是|后来|然后|而且|不过|但是|所以"
        ),
        "light_chinese": re.compile(
            "(?<![目有似])的(?!确|士)|(?<![为除不])了(?!解|不起|如|$)|"
            f"吧(?!{_HAN})|[啊呢嘛呀哦啦]|"
            "我们|咱们|已经|目前|"
            "一共(?=\\s?\\d)|"
            f"(?<!不)是(?=\\s?[\\dA-Za-z])|(?<={_HAN})\\s(?=[\\dA-Za-z])"
        ),
        # Prepositions before a number or a name stay: "from 5 to 50", "moved to Lisbon".
        "telegram": re.compile(
            rf"\b(?:(?:(?<!out )of|for|in|on(?! ?$)|at|to|into|onto)\b(?! (?-i:[\dA-Z])|-)(?! {_COUNTED})|"
            r"(?:this|these|those|his|her|their|my|he|she|you|i|do|does|did|be|about|please|itself|us(?! ?$)|"
            r"them(?! ?$)|him|okay)\b(?!['’-])|(?:it|there|that|he|she|they|we|you|i)['’](?:s|re|m)\b(?! been))\s?",
            re.IGNORECASE,
        ),
        "telegram_chinese": re.compile(
            f"(?<!{_HAN})[就也还都会将](?={_HAN})|(?<=\\d) (?={_HAN})|我(?!们)|给?您|"
            "^那就(?!是)|"
            # "四十一个小时" must not become forty hours, nor "一个月" a month without its number.
            "(?<![〇零一二两三四五六七八九十百千万\\d第每])一[个种](?!月|半|小时|钟|星期|礼拜|季度|人|亿|世纪)|"
            "这样|同时|"
            # Words of manner without content of their own, unless they are part of another word.
            "^那(?![么边里儿时年天是几曲霸个种些台条张本位家件次回份套间栋辆只头根块片封笔批段面层场部项句期顿双对副棵颗])|"
            "(?<![成早高低迁造将不])就(?![业医读近地算诊职餐寝位要绪])|"
            f"(?<![{_COUNTED_CHINESE}这那几手门车火拖扫])把(?![握手关戏柄脉门控式])|"
            f"(?<![不还只就要可总像但都正老而也于凡])是(?=[{_COUNTED_CHINESE}])|"
            f"(?<={_HAN})(?<![去到在从往来朝向])[这那]边|"
            "(?<![首成古京大丰于花武])都(?![市会江匀])|(?<![归偿退交奉])还(?![款原清钱给价贷债是有剩书车回])|也(?![许门])|"
            f"(?<={_HAN})(?<![附沉执穿衣胶])着(?![火急陆色手装落重想迷力眼凉])"
        ),
        "tail": re.compile(
            r"(?:, | )(?:so (?!that)|which means|meaning|but (?:that|it)'s|and that's|and it's|i think|haha|lol|"
            r"saves? me|"
            r"careful|did i).*$|[，,](?:你知道的?|对吧|哈哈.*|越.越.|挺.*|比.{2,8}(?:方便|好|快))$",
            re.IGNORECASE,
        ),
    }


def clause_forms(
    said: str, machine: bool, doer: str | None = None, *, state: bool = False
) -> tuple[str, str, str, str]:
    """A clause at four lengths: unchanged, without padding, without light words, and as a telegram.

    The telegram does not begin with the name of the `doer`, which its source has. A `state` keeps its "is", so that a
    summary of the summary still recognises it as a state.
    """
    parts = _shortening()
    if machine:
        short = said if len(said) <= _LONGEST_MACHINE_LINE else said[: _LONGEST_MACHINE_LINE - 1].rstrip() + "…"
        return said, short, short, short
    tail = parts["tail"].search(said)
    # A tail with a number carries information.
    body = said if tail is None or any(map(str.isdigit, tail.group())) else said[: tail.start()]
    short = _tidy(parts["padding_chinese"].sub("", parts["padding"].sub("", parts["aside"].sub("", body))))
    short = short if len(short) >= 4 else said
    held: Callable[[re.Match[str]], str] | str = _held if state else ""
    terse = parts["light"].sub(held, short)
    chinese = is_chinese(said)
    if chinese:
        terse = parts["light_chinese"].sub(held, terse)
    terse = _tidy(terse)
    terse = terse if len(terse) >= 4 else short
    bare = terse
    if doer is not None and terse.startswith(doer) and not terse.startswith(("'s", "’s", "的"), len(doer)):
        bare = terse[len(doer) :].lstrip(" ,，")
    telegram = _tidy((parts["telegram_chinese"] if chinese else parts["telegram"]).sub(held, bare))
    return said, short, terse, telegram if len(telegram) >= 4 else terse


_COPULAS: Final = ("is", "are", "是")


def _held(match: re.Match[str]) -> str:
    return match.group() if match.group().strip().lower() in _COPULAS else ""


def _tidy(text: str) -> str:
    return re.sub(r"\s+([,;.:])", r"\1", " ".join(text.split())).strip(" ,;，；")
