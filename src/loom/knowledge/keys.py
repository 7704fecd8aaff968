"""Keys and values of facts, which decide whether facts agree with, contradict or correct each other.

A key names an attribute that has one value at a time ("ana|lives in"). Pure functions of the words, in English and
Chinese.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from typing import Final

from loom.knowledge.facts import ExtractedFact
from loom.knowledge.homes import home_in
from loom.text.date_phrases import DATE_CHINESE, DATE_ENGLISH, MONTH_NAMES, SEASONS, WEEKDAY_NAMES
from loom.text.scripts import is_chinese
from loom.text.specifics import specifics
from loom.text.statement_kinds import StatementKind
from loom.text.words import word_set

__all__ = [
    "apply_correction",
    "contradicts",
    "correction_in",
    "fact_identity",
    "is_pronoun",
    "key_and_value",
    "normal_key",
    "normal_text",
    "normal_value",
]

_K = StatementKind

_COPULA = re.compile(
    r"^(?:(?P<owner>my|our|his|her|their|[A-Z]\w+['’]s) |the )?(?P<about>(?!it\b|this\b|that\b|there\b|he\b|she\b|"
    r"they\b|we\b|i\b|you\b|what\b|here\b)[A-Za-z][\w-]*(?: [\w-]+){0,4}?) "
    r"(?P<verb>is|are|was|listens|expires?|costs?)(?: now| currently| still)?(?: (?:scheduled (?:for|"
    r"on)|set (?:to|for)|due(?: on)?|on|at|after|from|called|named|planned for))? (?P<value>[^,;]+?)(?=,|;| "
    r"because| since| but|\.$|$)",
    re.IGNORECASE,
)
_COPULA_CHINESE = re.compile(
    r"^(?P<owner>我的|我们的|他的|她的|我|我们)?(?P<about>[^，。：:是在为有]{2,12}?)(?:现在|目前|已经|就|"
    r"也)?(?:定在|定于|改到|改成|改为|换成|换到|达到|设为|推迟到|提前到|是|为|在)了?\s?(?P<value>[^，。；,]{1,40})"
)
_SWITCHED = re.compile(
    r"\b(?:switched|moved|migrated|changed)(?: (?:the |our |my )?(?P<about>[\w -]{2,40}?))? from (?P<old>.+?) to "
    r"(?P<new>[^,;.]+?)(?= (?:last|next|this|on|in|because|since|yesterday)\b|[,;.]|$)",
    re.IGNORECASE,
)
_INSTEAD = re.compile(
    r"\b(?:use|using|go with|choose|pick|buy|take) (?P<new>.{2,60}?)(?: for .{2,30}?)? (?:instead of|rather than) "
    r"(?P<old>[^,;.]+)|\breplaced? (?:the )?(?P<old2>[^,;]{2,40}?) (?:with|by) (?P<new2>[^,;.]+)",
    re.IGNORECASE,
)
_NOT_THIS = re.compile(
    r"(?P<new>[^,;:]{1,40}), not (?:on |at |in )?(?P<old>[^,;.]{1,40})|"
    r"不是(?P<old2>[^，,。]{1,16})[，,]\s?(?:而)?是(?P<new2>[^，,。]{1,20})|"
    r"是(?P<new3>[^，,。]{1,20})[，,]\s?(?:而)?不是(?P<old3>[^，,。]{1,16})"
)
_CHANGED_CHINESE = re.compile(
    r"^(?P<about>[^，。]{2,8}?)(?:我们|团队|公司|已经|都|现在|统一)*(?:改用|换成|换用|切换到|迁移到|改成用|还是用|"
    r"统一用)了?\s?(?P<new>[^，。；,]{1,24}?)(?:了|$|，|,|。)(?:不再用\s?(?P<old>[^，。了]{1,16}))?"
)
_FROM_TO_CHINESE = re.compile(
    r"把?(?P<about>[^，。]{2,12}?)从\s?(?P<old>[^，。到]{1,12}?)(?:改[为成到]|调[到成]|换成|迁移?到|切换到|切到|"
    r"降到|升到|涨到|推迟到|提前到)了?\s?(?P<new>[^，。；,]{1,20})"
)
# Each pattern with a list of words; the pattern is tried only if a text has one of them. A failing match is slow, and
# the words exclude most texts.
_CORRECTIONS: Final = (
    (_SWITCHED, (" from ",)),
    (_FROM_TO_CHINESE, ("从",)),
    (_INSTEAD, ("instead of", "rather than", "replace")),
    (_NOT_THIS, (", not ", "不是")),
    (_CHANGED_CHINESE, ("不再用",)),
)
_KEYED_KINDS: Final = frozenset(
    {_K.EVENT, _K.NUMBER, _K.IDENTITY, _K.PLACE, _K.STATE, _K.PREFERENCE, _K.DECISION, _K.CHANGE, _K.TOOL, _K.FIX}
)
_HOME_KINDS: Final = frozenset({_K.PLACE, _K.IDENTITY, _K.EVENT, _K.CHANGE, _K.STATE})
# Attributes that have one value at a time. Other attributes can have several values; if one were listed here, a new
# fact could supersede a true one.
_ONE_VALUED = re.compile(
    r"(?:^|[ -])(?:birthday|name|deadline|release(?: date)?|launch(?: date)?|budget|rent|price|cost|salary|income|"
    r"revenue|"
    r"port|version|address|e-?mail|phone(?: number)?|password|rate|timeout|time-?out|limit|size|age|weight|height|"
    r"temperature|pressure|accuracy|coverage|database|store|cache|queue|framework|language|region|timezone|time zone|"
    r"host|owner|lead|manager|boss|supervisor|favou?rite(?: \w+){1,2}|capacity|threshold|goal|title|status|date|"
    r"start|end|duration|score|usage|password|interval|retention|expiry|colou?r|model|provider|vendor|license|"
    r"licence)$"
)
_ONE_VALUED_CHINESE = re.compile(
    "(?:预算|收入|成本|价格|费用|房租|租金|工资|薪水|生日|名字|姓名|时间|日期|截止日?期?|有效期|端口号?|版本号?|"
    "地址|电话|手机号|邮箱|密码|"
    "学习率|超时|上限|下限|限制|大小|年龄|体重|身高|体温|血压|准确率|毛利率|利润率|覆盖率|使用率|数据库|缓存|队列|"
    "框架|语言|导师|负责人|经理|"
    "题目|标题|专业|职业|职位|状态|目标|时区|地点|截止|阈值|容量|延迟|审计公司|供应商|系统|环境|分数|血型)$"
)
_DATED_THING = re.compile(
    r"(?:^|[ -])(?:meeting|demo|wedding|exam|interview|appointment|flight|kickoff|defen[cs]e|surgery|party|trip|"
    r"conference|"
    r"review|opening)$|(?:会议|例会|答辩|婚礼|考试|面试|航班|手术|聚会|发布会|评审|上线|发布|体检|演示)$"
)
_VERB_ATTRIBUTE: Final = {
    "costs": " cost",
    "cost": " cost",
    "expires": " expiry",
    "expire": " expiry",
    "listens": " port",
}
_PRONOUN = re.compile("我们?|你们?|他们?|她们?|它们?|大家|公司|团队|已经|现在|这|那|都|统一")


def key_and_value(
    said: str, kind: StatementKind, speaker: str | None, chinese: bool
) -> tuple[str | None, str | None]:
    """The key and the value of a fact about something that has one value at a time; else two Nones."""
    if kind not in _KEYED_KINDS:
        return None, None
    home = home_in(said, chinese) if kind in _HOME_KINDS else None
    if home is not None:
        return f"{_who(home.who or None, speaker)}|{home.attribute}", normal_value(home.value)
    for pattern in (_CHANGED_CHINESE, _FROM_TO_CHINESE) if chinese else (_SWITCHED,):
        match = pattern.search(said)
        about = _PRONOUN.sub("", match["about"] or "").strip() if match is not None else ""
        if match is not None and len(about) >= 2:
            return f"project|{normal_text(about)}", normal_value(match["new"])
    match = (_COPULA_CHINESE if chinese else _COPULA).match(said)
    if match is None:
        return None, None
    about = normal_text(match["about"])
    if not chinese:
        about += _VERB_ATTRIBUTE.get(match["verb"].lower(), "")
    value = match["value"]
    if value.lower().startswith("not "):
        return None, None  # "the database is not MySQL" does not say what it is
    if _DATED_THING.search(about):
        when = (DATE_CHINESE if chinese else DATE_ENGLISH).search(value)
        if when is None:
            return None, None
        about, value = f"{about} date", when.group()
    elif not (_ONE_VALUED_CHINESE if chinese else _ONE_VALUED).search(about):
        return None, None
    owner = match["owner"]
    shared = owner is None or owner.lower() in ("our", "我们的", "我们")
    return f"{'project' if shared else _who(owner, speaker)}|{about}", normal_value(value)


def _who(word: str | None, speaker: str | None) -> str:
    if word is None or word.lower() in ("i", "my", "我", "我的"):
        return normal_text(speaker) if speaker else "user"
    if word.lower().startswith("my "):
        return f"{normal_text(speaker) if speaker else 'user'} {normal_text(word[3:])}"
    return normal_text(word.removesuffix("'s").removesuffix("’s").removesuffix("的"))


def correction_in(said: str) -> tuple[str, str] | None:
    """The new and the old value, if the text itself says that the old one is wrong or outdated; else None."""
    lowered = said.lower()
    for pattern, hints in _CORRECTIONS:
        match = pattern.search(said) if any(hint in lowered for hint in hints) else None
        if match is not None:
            groups = match.groupdict()
            new = next((groups[name] for name in ("new", "new2", "new3") if groups.get(name)), None)
            old = next((groups[name] for name in ("old", "old2", "old3") if groups.get(name)), None)
            if new and old:
                return normal_value(_alike(new, old)), normal_value(old)
    return None


def _alike(new: str, old: str) -> str:
    """The part of `new` that replaces `old`: its date for a date, its number for a number, else as many words."""
    for pattern in (DATE_CHINESE, DATE_ENGLISH):
        dates = [match.group() for match in pattern.finditer(new)]
        if dates and pattern.search(old):
            return dates[-1]
    numbers = specifics(old).numbers and specifics(new).numbers
    if numbers:
        return numbers[-1]
    return " ".join(new.split()[-len(old.split()) :]) if not is_chinese(new) else new


_ARTICLE = re.compile(r"^(?:the|a|an|our|my|on|at|in|it's|it is|about|roughly|now|现在|大约|约)\s+")
_TRAILING_TIME = re.compile(
    r"\s+(?:in|since|last|next|this|on|from|until|as of) "
    rf"(?:{'|'.join((*MONTH_NAMES, *WEEKDAY_NAMES, *SEASONS))}|week|month|year|\d{{4}}).*$"
)


def normal_text(text: str | None) -> str:
    """A text without case, width, articles, punctuation and double spaces."""
    folded = unicodedata.normalize("NFKC", text or "").casefold()
    folded = re.sub(r"[^\w\s.%/:+#@$€£¥-]|(?<!\d)[.:](?!\w)|[.:](?=\s|$)", " ", folded)
    return _ARTICLE.sub("", " ".join(folded.split()))


def normal_value(text: str) -> str:
    """The normal form of a value, without the time or the particle that follows it."""
    value = normal_text(text)
    shorter = _TRAILING_TIME.sub("", value)
    shorter = re.sub(r"(?:了|的|吧|啊|呢|已经)$| (?:now|today|already)$", "", shorter)
    return shorter or value


def normal_key(key: str) -> str:
    """The normal form of each part of a key."""
    return "|".join(normal_text(part) for part in key.split("|"))


def is_pronoun(word: str) -> bool:
    """Whether a Chinese word refers to a person or a thing without a name (她, 大家, 公司)."""
    return _PRONOUN.fullmatch(word) is not None


_FILLER_WORDS: Final = word_set("""
the a an is are was were be been am has have had do does did will that which so very really just also now currently of
to in on at for and it its it's this
""")
_FILLER_CHINESE = re.compile("[的了吧啊呢嘛呀]|现在|目前|已经|一下")
_BRACKETED_DATE = re.compile(r" \[\d{4}[\d\- toQ]*\]")


def fact_identity(fact: ExtractedFact) -> str:
    """The normal form of a fact: equal for the same fact in other words, different if a name or number differs.

    For a fact with a key it is key and value, otherwise its words without filler words, in their order.
    """
    if fact.key is not None and fact.value is not None and fact.replaces is None:
        return f"{fact.key}={fact.value}"
    said = _BRACKETED_DATE.sub("", fact.content.partition(": ")[2] or fact.content)
    normal = normal_text(_FILLER_CHINESE.sub("", said))
    return f"{fact.fact_type}:{' '.join(word for word in normal.split() if word not in _FILLER_WORDS)}"


def contradicts(newer: ExtractedFact, older: ExtractedFact) -> bool:
    """Whether the facts cannot both be valid now, so that the newer supersedes the older.

    They do if they give different values to one key, or if the newer calls the value of the older outdated and at
    least one of them has no key.
    """
    if newer.key is not None and newer.key == older.key:
        return newer.value != older.value
    # "It's the 27th" has no subject of its own to compare.
    if newer.replaces is None or (newer.key is not None and older.key is not None):
        return False
    if older.value is not None:
        new, old = newer.replaces, older.value
        return new in old.split() or old.endswith(new) or new.endswith(old)
    said = normal_text(older.content.partition(": ")[2])
    return (
        re.search(rf"(?<![\w.]){re.escape(newer.replaces)}(?![\w.])", said) is not None
        and (newer.value or "") not in said
    )


def apply_correction(newer: ExtractedFact, older: ExtractedFact) -> ExtractedFact:
    """The newer fact in the words of the older, if it only names the value: "it's the 27th, not the 20th".

    Requires `contradicts(newer, older)`. A newer fact that has a key is returned unchanged.
    """
    if newer.key is not None or newer.replaces is None or newer.value is None:
        return newer
    outdated = re.compile(
        rf"(?<![\w.]){re.escape(newer.replaces)}(?![\w.]*\w)|{re.escape(newer.replaces)}$", re.IGNORECASE
    )
    if is_chinese(older.content):
        outdated = re.compile(rf"(?<!\d){re.escape(newer.replaces)}", re.IGNORECASE)
    # The value as the source wrote it; `value` is its normal form.
    written = re.search(re.escape(newer.value), newer.content, re.IGNORECASE)
    said = _BRACKETED_DATE.sub("", older.content)
    if written is None or outdated.search(said) is None:
        return newer
    content = outdated.sub(lambda _: written.group(), said, count=1)
    return replace(
        newer, content=content, label=older.label, fact_type=older.fact_type, kind=older.kind, key=older.key
    )
