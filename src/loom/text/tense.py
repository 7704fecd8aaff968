"""Whether a clause speaks of the past, by its words, in English and Chinese.

It decides which Friday or which May a clause means: the last one in the past tense, else the next.
"""

from __future__ import annotations

import re
from typing import Final

from loom.text.scripts import has_han
from loom.text.words import word_set

__all__ = ["PAST_VERBS", "is_past"]

PAST_VERBS: Final = word_set("""
was were went got made had did took ran bought paid sold met saw came left gave found wrote told said knew began broke
chose drove ate flew forgot grew kept lost sent slept spent spoke stood taught thought won wore built felt held heard
led meant fell rose drew
""")
"""Irregular past forms that are no present forms."""

# What was said, written or chosen may lie ahead: "we said 13 October".
_REPORTING: Final = frozenset(("said", "told", "wrote", "thought", "knew", "meant", "chose"))
# Words in -ed that are no past forms; "Wed" is a day.
_NOT_PAST: Final = (
    "need|indeed|speed|feed|seed|weed|deed|breed|bleed|exceed|proceed|succeed|embed|bed|red|shed|sled|wed|hundred"
)
_PAST: Final = re.compile(
    # "Is repeated" and "will be moved" are not past.
    rf"(?<!\bis )(?<!\bare )(?<!\bbe )\b(?:{'|'.join(sorted(PAST_VERBS - _REPORTING))}|(?!(?:{_NOT_PAST})\b)\w+ed)\b",
    re.IGNORECASE,
)
# Past forms that do not speak of the past: "has got", "was thinking of".
_PRESENT_PHRASE: Final = re.compile(
    r"(?:['’](?:s|ve)|\b(?:has|have))(?: \w+)? got\b|\b(?:was|were) (?:thinking|planning|hoping|going to)\b",
    re.IGNORECASE,
)
_PRESENT: Final = re.compile(
    r"['’](?:s|re|m|ll|ve)\b|\b(?:is|are|am|will|can|could|would|should|must|may|might|do|does|has|have|let|wants?|"
    r"needs?|goes?|comes?|starts?|begins?|opens?|closes?|leaves?|moves?|turns?|gets?|takes|says?|runs?|meets?|ends?|"
    r"expires?|arrives?)\b",
    re.IGNORECASE,
)
# 了 and 过 mark what is done; with 的 behind the verb, a clause says when or how it was done (礼拜五来的).
_PAST_CHINESE: Final = re.compile(
    r"(?<!不)了(?!解)|(?<![不超通])过(?![敏来去程期年节滤渡])|[来去签种买发开到出入始办装修拍写建]的\s*$"
)
_AHEAD_CHINESE: Final = re.compile("别|不要|快|该|就要|将|打算|准备")


def is_past(clause: str) -> bool | None:
    """Whether a clause is in the past tense; None where it has no verb that tells."""
    if _PAST.search(_PRESENT_PHRASE.sub(" is", clause)):
        return True
    if _PAST_CHINESE.search(clause):
        return _AHEAD_CHINESE.search(clause) is None
    return False if _PRESENT.search(clause) or has_han(clause) else None
