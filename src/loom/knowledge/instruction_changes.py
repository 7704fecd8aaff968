"""Whether a later sentence of the user ends an earlier standing instruction.

It does so if it gives another instruction about the same thing, or takes the instruction back ("forget what I said
about bullet points", 不用再写注释了). Pure functions of texts; the caller knows which of two was said later.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from loom.text.topics import topic_terms
from loom.types import InstructionKind, InstructionScope

__all__ = ["InstructionTopic", "ends", "withdrawn_topic"]

# The least share of terms in common of two instructions that differ only in a number or a word.
_SAME_TOPIC = 0.75
# The same, if one forbids what the other asks for, or names the change.
_RELATED_TOPIC = 0.5
# The least share of the terms of a withdrawal in the instruction that it ends.
_NAMED = 0.5

# Values that exclude each other in one answer, as do two wishes with different values of one row.
_EXCLUSIVE: Final = tuple(
    tuple(re.compile(value, re.IGNORECASE) for value in row)
    for row in (
        (r"\bbritish\b|英式", r"\bamerican (?:english|spelling)\b|\bus spelling\b|美式"),
        (r"\bmetric\b|公制", r"\bimperial\b|英制"),
        (r"\bcelsius\b|摄氏", r"\bfahrenheit\b|华氏", r"\bkelvin\b|开尔文"),
        (r"\bkilomet(?:re|er)s?\b|\bkm\b|公里", r"\bmiles?\b|英里"),
        (r"\btabs?\b|制表符", r"\bspaces\b|空格"),
        (r"\b24[- ]?hours?\b|24 ?小时制|二十四小时制", r"\b12[- ]?hours?\b|\bam/pm\b|12 ?小时制|十二小时制"),
        (
            r"\b(?:short(?:er)?|brief(?:ly)?|concise(?:ly)?|terse|to the point)\b|简短|简洁|精简|短一点",
            r"\b(?:long(?:er)?(?! run| term)|detailed|in detail|thorough|in depth|verbose|elaborate)\b|详细|展开|"
            r"长一点",
        ),
        (r"\b(?:informal|casual|relaxed)\b|随意|口语|轻松", r"(?<!in)\bformal\b|正式|书面"),
        (r"\bbullet(?:ed)?\b|要点|列表", r"\b(?:prose|paragraphs?|running text)\b|段落|连贯的文字"),
        (
            r"\bin english\b|用英[文语]",
            r"\bin chinese\b|用中文|用汉语",
            r"\bin french\b|用法[文语]",
            r"\bin german\b|用德[文语]",
            r"\bin spanish\b|用西班牙[文语]",
            r"\bin japanese\b|用日[文语]",
        ),
        (r"\beuros?\b|欧元", r"\bdollars?\b|\busd\b|美元", r"\bpounds?\b|英镑", r"\byuan\b|\brmb\b|人民币"),
    )
)
_ADDRESS: Final = re.compile(r"\b(?:call|address) me\b|(?:叫|称呼)我", re.IGNORECASE)
_FORBIDS: Final = re.compile(
    r"\b(?:never|don't|do not|stop|avoid|no more|not|without|skip|omit|leave out|hate|dislike|can't stand)\b"
    r"|不要|别|不用|不必|禁止|不许|不准|停止|避免|讨厌|省略|不再",
    re.IGNORECASE,
)
_CHANGES: Final = re.compile(
    r"\binstead\b|\bno longer\b|\bany ?more\b|\bfrom now on\b|\bswitch(?:ed)? to\b|\bchange(?:d)? (?:it |that )?to\b"
    r"|改(?:成|为|用)|换成|不再|而不是|从现在",
    re.IGNORECASE,
)
_TAKES_BACK: Final = (
    # Forget what I said about bullet points. / Drop the rule about commas.
    re.compile(
        r"^(?:you can |you may |please |ok(?:ay)?,? |actually,? )*(?:forget|ignore|disregard|drop|scrap|cancel|undo|"
        r"scratch|take back|never mind|lift|remove|delete)\b (?:about )?(?:everything |all )?"
        r"(?:what i(?:'ve| have)? (?:said|told you|asked|wanted)|(?:my|the|that|this) (?:\w+ ){0,3}?(?:rule|"
        r"instruction|"
        r"preference|request|wish|requirement|policy)s?|(?:my|the) earlier \w+)"
        r"(?: (?:earlier|before|last time|yesterday))?(?: (?:about|on|regarding|concerning|for|to|that|of|with))?"
        r"(?P<topic>.*)$",
        re.IGNORECASE,
    ),
    # You no longer need to add the date.
    re.compile(
        r"\byou (?:no longer|don't|do not|needn't|need not|don't any longer) (?:need|have)?(?: to)? (?P<topic>.*?)"
        r"(?: any ?more| any longer| from now on)[.! ]*$"
        r"|\byou no longer (?:need|have) to (?P<topic1>.*)$"
        r"|\b(?:there's |there is )?no (?:longer any )?need to (?P<topic2>.*?) (?:any ?more|any longer|from now on)",
        re.IGNORECASE,
    ),
    # I no longer prefer tea. / I changed my mind about the tables.
    re.compile(
        r"\bi (?:no longer (?:prefer|want|need|like|mind|care about|insist on|require)|(?:don't|do not) (?:prefer|"
        r"want|"
        r"need|require) (?=.*\bany ?more\b)|(?:have |'ve )?changed my mind (?:about|on)) (?P<topic>.*)$",
        re.IGNORECASE,
    ),
    # The rule about commas no longer applies.
    re.compile(
        r"\b(?:rule|instruction|preference|policy|requirement|wish)s? (?:about|on|for|regarding|of|to) (?P<topic>.*?)"
        r" (?:no longer (?:applies|apply|holds?)|is (?:off|void|lifted|cancelled|gone)|(?:doesn't|does not) apply)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:忘掉|忘了|忘记|忽略|别管|取消|撤销|撤回|收回|作废|不用管)(?:吧|掉)?(?:我)?(?:之前|以前|刚才|上次|先前|"
        r"前面)?"
        r"(?:说|提|讲|要求|定)(?:过)?的?(?:关于|那个|那条)?(?P<topic>[^，。！？!?]{2,40})"
    ),
    re.compile(
        r"(?:取消|撤销|撤回|收回|作废)(?:了)?(?:关于)?(?P<topic>[^，。！？!?]{2,30}?)的?(?:要求|规定|规则|约定|习惯|"
        r"偏好)"
    ),
    re.compile(
        r"(?:我)?(?:之前|以前|刚才|上次|先前)(?:说|提|讲|要求|"
        r"定)(?:过)?的(?:关于)?(?P<topic>[^，。！？!?]{2,30}?)[，,]?"
        r"(?:就|可以|现在)?(?:不算|作废|取消|不用管|不用了|算了|不用再)"
    ),
    re.compile(
        r"(?P<topic>[^，。！？!?]{2,30}?)的?(?:要求|规定|规则|约定)(?:可以)?(?:就)?(?:取消|作废|不算|不用管)(?:了|"
        r"数)?"
    ),
    re.compile(r"我(?:现在)?(?:已经)?(?:不再|不)(?:喜欢|需要|想要|要求|习惯|在意)(?P<topic>[^，。！？!?]{2,30}?)了"),
    re.compile(r"(?:以后|今后)?(?:就)?(?:不用|不必|不需要|无需)再(?P<topic>[^，。！？!?]{2,30}?)了?[。！!]?$"),
)


class InstructionTopic(NamedTuple):
    """The topic of a standing instruction, computed once so that it can be compared with many.

    `terms` are its content words without numbers ("under 50 words" replaces "under 100 words"), and `bare` are those
    without exclusive values. `values` are the exclusive values that it names, by row and place. `withdrawn` are the
    terms of the instruction that a withdrawal names.
    """

    kind: InstructionKind
    scope: InstructionScope
    condition: frozenset[str] | None
    terms: frozenset[str]
    bare: frozenset[str]
    values: frozenset[tuple[int, int]]
    withdrawn: frozenset[str]
    forbids: bool
    changes: bool
    addresses: bool

    @classmethod
    def of(cls, text: str, condition: str | None, kind: InstructionKind, scope: InstructionScope) -> InstructionTopic:
        """Compute the topic of an instruction from its words."""
        values, bare = _values_in(text)
        return cls(
            kind,
            scope,
            None if condition is None else topic_terms(condition),
            frozenset(term for term in topic_terms(text) if not term[0].isdigit()),
            topic_terms(bare),
            values,
            topic_terms(withdrawn_topic(text) or "") if kind is InstructionKind.WITHDRAWAL else frozenset(),
            _FORBIDS.search(text) is not None,
            _CHANGES.search(text) is not None,
            _ADDRESS.search(text) is not None,
        )


def withdrawn_topic(said: str) -> str | None:
    """The words for the instruction that a sentence takes back, or None."""
    for pattern in _TAKES_BACK:
        match = pattern.search(said)
        if match is not None:
            topic = next((part for part in match.groups() if part), "").strip(" .,;:!。，；：！")
            if topic_terms(topic):
                return topic
    return None


def ends(later: InstructionTopic, earlier: InstructionTopic) -> bool:
    """Whether a later sentence ends an earlier one: it takes it back, replaces it, or repeats it."""
    if later.kind is InstructionKind.WITHDRAWAL:
        named = later.withdrawn
        return bool(named) and len(named & earlier.terms) >= max(1.0, _NAMED * len(named))
    if earlier.kind is InstructionKind.WITHDRAWAL or later.scope is not earlier.scope:
        return False
    if later.addresses and earlier.addresses:
        return True
    if not later.changes and not _same_condition(later.condition, earlier.condition):
        return False
    if _excludes(later.values, earlier.values) and _about_the_same(later, earlier):
        return True
    shared = len(later.terms & earlier.terms)
    if not shared:
        return False
    if shared / len(later.terms | earlier.terms) >= _SAME_TOPIC:
        return True
    return (later.forbids != earlier.forbids or later.changes) and (
        shared / min(len(later.terms), len(earlier.terms)) >= _RELATED_TOPIC
    )


def _same_condition(one: frozenset[str] | None, other: frozenset[str] | None) -> bool:
    """Whether two wishes apply to the same requests, judged by their words."""
    if one is None or other is None:
        return one is other
    return one == other or len(one & other) >= _RELATED_TOPIC * max(len(one), len(other), 1)


def _values_in(text: str) -> tuple[frozenset[tuple[int, int]], str]:
    """The exclusive values that a text names, and the text without them."""
    found: set[tuple[int, int]] = set()
    for row, values in enumerate(_EXCLUSIVE):
        for place, value in enumerate(values):
            text, count = value.subn(" ", text)
            if count:
                found.add((row, place))
    return frozenset(found), text


def _excludes(later: frozenset[tuple[int, int]], earlier: frozenset[tuple[int, int]]) -> bool:
    """Whether two wishes name different values that exclude each other."""
    return any(
        {place for one, place in later if one == row}.isdisjoint(place for one, place in earlier if one == row)
        for row in {row for row, _ in later} & {row for row, _ in earlier}
    )


def _about_the_same(later: InstructionTopic, earlier: InstructionTopic) -> bool:
    """Whether two wishes differ only in their exclusive values, so that neither names a further thing."""
    # Conditions, if there are any, were compared before.
    has_condition = later.condition is not None or earlier.condition is not None
    return has_condition or not later.bare or not earlier.bare or bool(later.bare & earlier.bare)
