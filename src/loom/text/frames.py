"""The frame of a question: its words that describe the answer and not the subject.

"Can you list the order in which I brought up the topics of our talks" has no word that a memory contains, and asks
for many memories. This module also splits a question that asks for several things. Pure functions of a text, for
English and Chinese.
"""

from __future__ import annotations

import re

__all__ = ["outside_frame", "parts_of", "wants_many"]

_TELLING = (
    r"br(?:ing|ought) up|mention(?:ed)?|discuss(?:ed)?|talk(?:ed)? about|sa(?:y|id)|t(?:ell|old) (?:you|me)"
    r"|ask(?:ed)?(?: about| for)?|cover(?:ed)?|raised?|describ(?:e|ed)"
)
_TALKS = r"(?:conversation|session|discussion|chat|talk|exchange)s?|messages|requests"
_SIZE = r"comprehensive|complete|detailed|brief|short|full|overall|concise|quick|thorough|clear"
# The boundary precedes all alternatives: a pattern with a boundary in each alternative takes ten times as long.
_ENGLISH = re.compile(
    r"\b(?:"
    + "|".join(
        (
            # A request, and the form of its answer.
            r"(?:can|could|would|will) (?:you|i|we)\b(?: please)?(?: list\b)?|^list\b",
            r"please\b|(?:i'd|i would) like (?:you )?to\b",
            r"(?:walk me through|give (?:me|us)|provide(?: me with)?|summari[sz]e|sum up|recap|outline|tell me"
            r"|remind me(?: of)?|show me|help me(?: to)?|describe|explain)\b",
            rf"(?:an? |the )?(?:(?:{_SIZE}) )*(?:summary|overview|recap|rundown) (?:of|on|about)\b",
            # A sequence.
            r"(?:the )?order (?:in which|of|that)\b|chronological(?:ly)?\b|in what order\b|in sequence\b",
            r"(?:in|by) (?:the )?(?:chronological |right |correct |time )?order\b",
            # Words for the act of saying, and for the place where something was said.
            rf"(?:i|we|you)(?:'ve| have| had)?(?: first)? (?:{_TELLING})\b",
            rf"(?:throughout|across|during|over|in|from|through) (?:all )?(?:of )?(?:our|my|the|these|those|your)?"
            rf" ?(?:different |various |previous |past |whole |entire )?(?:{_TALKS})\b",
            # The number of items.
            r"(?:different |various |several |multiple |key |main |major |specific |certain |all )?"
            r"(?:aspect|thing|item|point|topic|detail)s? of\b",
            r"(?:mention|name) only\b[^.?!]*|so far\b|over time\b|including\b|(?:kind|type|sort)s? of\b",
            r"how many (?:different |distinct |unique |times\b)?",
        )
    )
    + ")",
    re.IGNORECASE,
)
_CHINESE = re.compile(
    "(?:帮我|请你?|麻烦你?|给我)?(?:总结|概括|梳理|回顾|捋|列出|列举|归纳|整理|盘点|汇总)(?:一下|一遍|下)?"
    "|按照?(?:时间|先后|发生)的?(?:先后)?(?:顺序|次序)?|(?:先后|时间)(?:顺序|次序)|哪个在前哪个在后|(?:谁|哪个)先(?:谁|哪个)后"
    "|前前后后|分别(?:是|有)?|一共|总共|都(?:有|提过|说过|聊过|做了?)?(?:哪些|些什么|什么)"
    "|(?:我们?|你)(?:之前|以前|曾经?|当时)?(?:提到|提过|说过|聊过|讲过)的?|到目前为止|整个过程|的过程|来龙去脉"
)


def outside_frame(text: str) -> str:
    """Return a question without its frame, or all of it if nothing else is left."""
    rest = _ENGLISH.sub(" ", text)
    if not text.isascii():
        rest = _CHINESE.sub(" ", rest)
    return rest if any(character.isalnum() for character in rest) else text


_MANY_IN_ENGLISH = re.compile(
    r"\b(?:"
    + "|".join(
        (
            # A sequence of events.
            r"order (?:in which|that|of (?:the )?(?:event|thing|topic|step)s)|sequence (?:of|in which)\b",
            r"in (?:(?:what|which|chronological|time) )?order\b|chronolog|timeline\b|in sequence\b",
            r"first to last\b|step by step\b|one after (?:the other|another)\b",
            r"(?:what|which) (?:are|were) the steps\b|(?:put|order) (?:these|those|them|the following)\b",
            r"(?:came|happened) (?:first|earlier)\b",
            # A summary.
            r"summar|overview\b|recap|rundown\b|sum up\b|everything (?:we|i|you|about)\b",
            r"(?:has|have|did|my|our) [^?.]{0,80}\b(?:progress|evolv|develop|chang)\w* (?:over|through|across|so)\b",
            # A list, or its length.
            r"(?:list|name) (?:all|every|the|some)\b|all (?:the|of|my|our|his|her|their)\b",
            r"how many (?:different|distinct|times|kinds|types|of)\b|how often\b|(?:each|every) time\b",
            r"what (?:are|were) (?:all|the|some)\b",
            r"(?:what|which) (?:\w+ )?\w+s (?:has|have|did|does|do|are|were)\b",
        )
    )
    + ")",
    re.IGNORECASE,
)
_MANY_IN_CHINESE = re.compile(
    "先后|顺序|次序|时间线|来龙去脉|在前|依次|按时间|捋|(?:谁|哪[个件])[在是]?先|先[^，。？]{1,6}的?哪|一步步|一步一步"
    "|总结|概括|梳理|回顾|归纳|汇总|盘点|全过程|经过|始末|前前后后|怎么从|都[^，。？]{0,6}(?:哪些|什么)"
    "|哪些|哪几|各自|分别|几次|多少次|每次|所有|一共"
)
_JOINS = re.compile(
    r"[、，,;；]|\b(?:and|or|vs\.?|versus|than|between|until|after|before)\b|和|与|跟|以及|还有|到底?(?=\S{2})|从",
    re.IGNORECASE,
)
# A question of more parts is a list of words and not several questions.
_MOST_PARTS = 6


def wants_many(text: str) -> bool:
    """Whether a question asks for a list, a sequence of events, a summary or a count, which take many memories."""
    return _MANY_IN_ENGLISH.search(text) is not None or (
        not text.isascii() and _MANY_IN_CHINESE.search(text) is not None
    )


def parts_of(topic: str) -> tuple[str, ...]:
    """Split a question about several things, without its frame, at commas and conjunctions; return nothing for any
    other question."""
    parts = [part for part in _JOINS.split(topic) if any(map(str.isalnum, part))]
    return tuple(parts) if 1 < len(parts) <= _MOST_PARTS else ()
