"""Finds out whether a clause is in the past tense, in English and Chinese.

The tense decides which Friday or May a clause means: the last one in the past tense, else the next.
"""

from __future__ import annotations

import re
from typing import Final

from loom.text.scripts import HAN, has_han
from loom.text.words import word_set

__all__ = ["PAST_VERBS", "is_past"]

PAST_VERBS: Final = word_set("""
was were went got made had did took ran bought paid sold met saw came left gave found wrote told said knew began broke
chose drove ate flew forgot grew kept lost sent slept spent spoke stood taught thought won wore built felt held heard
led meant fell rose drew became brought caught fought rode sang sat shook stole swam threw woke lent
""")
"""Irregular past forms that differ from the present form."""

# The object of these verbs may lie ahead: "we said 13 October".
_REPORTING: Final = frozenset(("said", "told", "wrote", "thought", "knew", "meant", "chose"))
# Words in -ed that are not past forms. "Wed" is a day.
_NOT_PAST: Final = (
    "need|indeed|speed|feed|seed|weed|deed|breed|bleed|exceed|proceed|succeed|embed|bed|red|shed|sled|wed|hundred"
)
_PAST: Final = re.compile(
    rf"\b(?:born|{'|'.join(sorted(PAST_VERBS - _REPORTING))}|(?!(?:{_NOT_PAST})\b)\w+ed)\b", re.IGNORECASE
)
# The first verb decides, regardless of a participle after it: "will get married", "is going to be moved", "decided to
# meet".
_AHEAD: Final = re.compile(
    r"['’]ll\b|\b(?:will|won['’]t|shall|gonna|to be)\b|\bgoing to (?!the\b|a\b)\w"
    r"|\b(?:plan|hope|intend|expect|promise|agree|decide|want|arrange)(?:s|d|ed|ned)? to \w"
    r"|\b(?:planning|hoping|intending|expecting|promising|wanting|arranging) to \w",
    re.IGNORECASE,
)
# A missed possibility is past, and so is an abandoned intention.
_GIVEN_UP: Final = re.compile(
    r"\b(?:would|should|could|might|may|must)(?:n['’]t| not)?(?: have|['’]ve) \w+", re.IGNORECASE
)
# Past forms and forms in -ed without past meaning: "is getting married", "a limited offer", "has got", "was thinking
# of".
_NO_TENSE: Final = re.compile(
    r"(?:['’](?:m|re)|\b(?:is|are|am|be|being|get|gets|getting|isn['’]t|aren['’]t))(?: (?:not|now|all|both|also|just|"
    r"still|only|already|currently|usually|normally|being|getting|going|\w+ly))* (?:born|\w+ed)\b"
    r"|['’]s (?:being|getting|going to be) \w+"
    r"|\b(?:the|a|an|our|my|your|its|their|very|so|too) \w+ed\b"
    r"|(?:['’](?:s|ve)|\b(?:has|have))(?: (?:just|also|already|now|only|still|all|both))? got\b(?! \w+(?:ed|en)\b)"
    r"|\b(?:was|were) (?:thinking|planning|hoping|going to)\b",
    re.IGNORECASE,
)
_PRESENT: Final = re.compile(
    r"['’](?:s|re|m|ll|ve)\b|\b(?:is|are|am|will|can|could|would|should|must|may|might|do|does|has|have|let|wants?|"
    r"needs?|goes?|comes?|starts?|begins?|opens?|closes?|leaves?|moves?|turns?|gets?|takes|says?|runs?|meets?|ends?|"
    r"expires?|arrives?)\b",
    re.IGNORECASE,
)
# 了 and 过 mark a completed action; 的 after the verb says when or how it was done (礼拜五来的, 结的婚).
_PAST_CHINESE: Final = re.compile(
    r"(?<!不)了(?!解)|(?<![不超通])过(?![敏来去程期年节滤渡])|[来去签种买发开到出入始办装修拍写建生]的\s*$"
    rf"|[结离]的婚|出生|诞生|生于|是\s(?![上下中早晚傍][午上晨])[{HAN}]{{2,10}}的\s*$"
)
_AHEAD_CHINESE: Final = re.compile(
    "别|不要|快|该|将|打算|准备|计划|预计|预产|(?<![重主需只还不])要(?![了是求点素不过])|明年|下个?月|下周"
)


def is_past(clause: str) -> bool | None:
    """Whether a clause is in the past tense; None if it has no verb that decides."""
    if _GIVEN_UP.search(clause):
        return True
    if _AHEAD.search(clause):
        return False
    if _PAST.search(_NO_TENSE.sub(" is", clause)):
        return True
    if _PAST_CHINESE.search(clause):
        return _AHEAD_CHINESE.search(clause) is None
    return False if _PRESENT.search(clause) or has_han(clause) else None
