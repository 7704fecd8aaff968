"""Decides which standing instructions a question meets: by words of the condition, by kind of work, by meaning.

Pure functions. The decisions are generous: a superfluous instruction costs a line of a prompt, and a missing one is
not followed. `loom.memory.standing` reads and stores instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from loom.recall.candidates import Candidates
from loom.recall.questions import Question
from loom.recall.relevance import Scored, assisted, names_speaker
from loom.storage.contract import Vector
from loom.text.thesaurus import concepts
from loom.text.topics import topic_terms
from loom.types import InstructionKind

__all__ = ["MEETS", "Wish", "asks_about_the_past", "condition_scores", "turns_to_raise", "with_instructions"]

MEETS: Final = 1.0
"""The least score of an instruction without a condition, or with a condition that the question meets."""

# The bonus of an instruction whose condition is met over one without a condition.
_NAMED_CONDITION = 0.2
# The likeness of two texts for each shared word, and for each shared synonym.
_SHARED, _SYNONYM = 0.5, 0.3
# The cosine below which texts count as unrelated, and the one above which they count as texts on one subject.
_UNRELATED, _RELATED = 0.12, 0.55
# The likeness from which on a question meets a condition, and from which on a preference bears on it.
_MEETS_CONDITION = 0.2
_BEARS_ON = 0.12
# The score of a preference without shared words if there are no vectors to compare.
_UNKNOWN = 0.02
# A recall places the turn of an instruction after this many hits, by whether it binds the answer strongly.
_AFTER_STRONG, _AFTER_WEAK = 3, 5
# The least likeness with which a turn is raised.
_LEAST_LIKENESS = 0.3
# The part of a question that is read.
_MOST_CHARS = 4_000
# The number of turns that are raised; more would displace the answers.
_MOST_TURNS = 5

_KINDS: Final = tuple(
    re.compile(kind, re.IGNORECASE)
    for kind in (
        # code
        r"\b(?:code|coding|snippets?|functions?|scripts?|program(?:s|ming)?|implement(?:ation|ing)?|software|python|"
        r"java|"
        r"javascript|typescript|rust|golang|sql|regex(?:es)?|regular expressions?|quer(?:y|ies)|class(?:es)?|"
        r"methods?|"
        r"refactor(?:ing)?|debug(?:ging)?|bugs?|endpoints?|apis?|unit tests?|components?|algorithms?|stack trace|"
        r"bash|"
        r"shell|commands?)\b|代码|函数|脚本|程序|编程|实现|接口|查询|正则|重构|报错|命令",
        # messages
        r"\be?-?mails?\b|\bmessages?\b|\bletters?\b|\b(?:write|draft|reply|respond) (?:to|back)\b|\bnewsletters?\b"
        r"|邮件|信件|写信|回信|消息|短信|发给",
        # food
        r"\brecipes?\b|\b(?:cook|cooking|bake|baking|meals?|dinner|lunch|breakfast|dessert|snacks?|dish(?:es)?|food|"
        r"eat|"
        r"eating|restaurants?|menu|ingredients?|curry|soup|salad)\b|菜谱|做饭|做菜|晚饭|午饭|早饭|早餐|午餐|晚餐|"
        r"甜点|"
        r"零食|餐厅|饭店|点菜|吃什么|菜单|火锅|食谱|下厨",
        # explanations
        r"\bexplain(?:ed|ing)?\b|\bexplanations?\b|\bconcepts?\b|\bteach\b|\bunderstand\b|\bhow (?:do|does|did|is|"
        r"are|can)\b"
        r"|\bwhy\b|\bwhat(?:'s| is| are| does)\b|\bdifference\b|解释|讲解|讲讲|什么是|为什么|原理|区别|是怎么|概念|"
        r"题目?",
        # recommendations
        r"\b(?:recommend(?:ations?|ed)?|suggest(?:ions?|ed)?|options?|ideas?|advice|which|what should|where should|"
        r"choose|"
        r"pick)\b|推荐|建议|选哪|哪个好|哪家|主意|挑|选择",
        # plans and dates
        r"\b(?:plan(?:s|ning)?|schedul(?:e|es|ing)|meetings?|appointments?|calendar|itinerar(?:y|ies)|trips?|"
        r"travel(?:ling)?|"
        r"flights?|book(?:ing)?|hotels?|remind(?:er|ers)?|dates?|deadlines?|invite|appointment)\b"
        r"|安排|计划|日程|会议|开会|行程|旅行|出差|航班|机票|酒店|预订|提醒|日期|约",
        # numbers
        r"\b(?:numbers?|figures?|statistics|amounts?|prices?|costs?|budgets?|how (?:many|much|far|big|tall|long|old|"
        r"warm|hot|"
        r"cold|heavy|fast)|percent(?:age)?|share|distance|temperature|weight|size|calculate|measure(?:ments?)?|"
        r"units?)\b"
        r"|数字|数据|金额|价格|多少|多远|多大|多高|多重|几度|百分|费用|预算|距离|温度|单位|计算|算一下",
        # summaries and lists
        r"\bsummar(?:y|ies|i[sz]e)\b|\brecap\b|\boverview\b|\bkey points\b|总结|摘要|概括|概述|归纳|要点",
        r"\b(?:list|lists|compare|comparison|pros and cons|versus|vs)\b|列出|列表|比较|对比|优缺点|清单",
        # translations
        r"\btranslat(?:e|es|ion|ions|ing)\b|翻译|译成|翻成",
        # texts
        r"\b(?:essay|article|blog|post|story|stories|poem|paragraph|report|document|documentation|copy|headline|"
        r"title|write up|"
        r"proofread|draft|text)\b|文章|作文|故事|诗|报告|文档|标题|文案|润色|写一篇|草稿|周报|方案",
        # changes to what exists
        r"\b(?:deploy|release|push|merge|commit|migrat(?:e|ion)|delete|drop|remove|rollback|roll back|production|"
        r"publish|ship|"
        r"install|upgrade|restart|overwrite)\b|部署|上线|发布|推送|合并|提交|迁移|删除|删掉|回滚|生产|安装|升级|重启|"
        r"清理|线上",
        # reviews
        r"\b(?:review|feedback|critique|check|proofread|look over)\b|评审|审查|检查|反馈|看一下|点评",
    )
)
# The manner of answers, which concerns every question.
_MANNER: Final = re.compile(
    r"\b(?:answers?|repl(?:y|ies)|responses?|explanations?|examples?|units?|metric|imperial|celsius|fahrenheit|"
    r"spelling|"
    r"british|american english|bullet(?:s| points)?|emojis?|jargon|tone|concise|brief|short|long|detailed|"
    r"step[- ]by[- ]step|"
    r"diagrams?|tables?|plain (?:text|language|english)|sources?|citations?|language|format(?:ting)?|style|call me|"
    r"learn best|understand (?:things )?(?:better|best))\b"
    r"|回答|回复|解释|例子|单位|公制|摄氏|简洁|简短|详细|表格|列表|要点|语气|表情|术语|步骤|图|出处|来源|中文|英文|"
    r"格式|叫我|称呼",
    re.IGNORECASE,
)
# A question about the past. Instructions bind requested work; they do not answer questions about the past. Recall@10
# of BEAM's six chats, knowledge updates: 47.9 % with instructions for all questions, 70.8 % without. The boundary
# precedes all alternatives: a pattern with a boundary in each alternative takes five times as long.
_PAST_IN_ENGLISH: Final = re.compile(
    r"\b(?:(?:have|had|has|did|was|were) (?:i|we|my|our|it|there|that|he|she|they)\b"
    r"|(?:do|am) i (?:have|still|trying)\b"
    r"|(?:did|have|had) you\b|how (?:many|much|long|often|old|far along)\b"
    r"|when (?:did|was|were|is|does|do|will)\b"
    r"|who(?:se|m)?\b|remind me (?:what|when|which|how|of)\b"
    r"|(?:i|we) (?:said|mentioned|told|brought up|discussed|decided|agreed|talked)\b"
    r"|(?:throughout|across|during|in) (?:all )?(?:of )?(?:our|my|the) (?:conversations?|chats?|sessions?|requests?"
    r"|discussions?)\b"
    r"|so far\b|over time\b|(?:has|have) (?:progressed|developed|changed|evolved)\b"
    r"|what(?:'s| is| are| was| were) (?:my|our|the (?!(?:best|different|main|common|typical|usual|easiest|right|most"
    r"|difference|steps|pros|advantages|benefits|ways?)\b)(?:[\w-]+ ){1,6}?(?:of|for|in|used|that))\b"
    r"|which \w+ (?:happened|came|was|were|did)\b"
    r"|summar\w+ (?:of )?(?:how|what|everything|all) (?:i|we|my|our)\b)",
    re.IGNORECASE,
)
_PAST_IN_CHINESE: Final = re.compile(
    r"(?:我|我们|你)(?:之前|以前|上次|上回|当时|曾经|一共|总共|已经)|说过|提过|提到过|讨论过|(?:是|在)?什么时候"
    r"|多少(?:次|个|天|钱)|几(?:次|个|天|月|号|点)|哪(?:天|一天|年|次)|谁|多久|我的[^，。？?]{1,12}是(?:什么|多少|哪)"
    r"|还记得|(?:做|用|写|买|去|说|定|选|改)(?:过|了)[^，。]{0,12}(?:吗|什么|哪)"
)
# The words of a condition about the request itself, not about its subject.
_ASKING: Final = re.compile(
    r"\b(?:when(?:ever)?|if|once|any ?time|every time|each time|before|after|for|in|with|on|about|during|regarding|"
    r"i|you|we|me|my|your|ask(?:ed|ing)?|request|want|say|tell|give|need|mention|talk|inquire|the|an?|of|to|it|"
    r"comes)\b"
    r"|当?我|你|让|叫|要|请|问|说|提到|需要|的?时候|的话|时$|给|帮|每次|每当|凡是|只要|以后|今后|涉及|关于|遇到",
    re.IGNORECASE,
)


class _Reading(NamedTuple):
    """The terms of a wish or a question, and the kinds of work that it names."""

    terms: frozenset[str]
    kinds: frozenset[int]


class Wish(NamedTuple):
    """An instruction or preference, read once for the comparison with questions.

    `when` is the reading of its condition, None if it has none with a subject.
    """

    kind: InstructionKind
    said: _Reading
    when: _Reading | None
    is_manner: bool
    vector: Vector | None = None

    @classmethod
    def of(cls, text: str, condition: str | None, kind: InstructionKind, vector: Vector | None = None) -> Wish:
        """Read an instruction. `vector` is that of its text, if there is one."""
        when = None
        if condition is not None:
            when = _read(condition)._replace(terms=topic_terms(_ASKING.sub(" ", condition)))
        is_named = when is not None and bool(when.terms or when.kinds)
        return cls(kind, _read(text), when if is_named else None, _MANNER.search(text) is not None, vector)


def asks_about_the_past(question: str) -> bool:
    """Return whether a question is about past statements or actions. No instruction binds its answer."""
    question = question[:_MOST_CHARS]
    return _PAST_IN_ENGLISH.search(question) is not None or (
        not question.isascii() and _PAST_IN_CHINESE.search(question) is not None
    )


def turns_to_raise(question: str, applying: Iterable[tuple[int, Wish, float]]) -> dict[int, float]:
    """Return the turns of wishes to raise in a recall, with their strengths (0 to 1).

    `applying` has sequence numbers of turns with their wishes and the scores of these. A wish without a condition
    counts by its likeness to the question alone. A question about the past raises none.
    """
    if asks_about_the_past(question):
        return {}
    found: dict[int, float] = {}
    for turn, wish, score in applying:
        found[turn] = max(found.get(turn, 0.0), _strength(wish, score))
    best = sorted((turn for turn in found if found[turn] > 0.0), key=lambda turn: (-found[turn], -turn))
    return {turn: found[turn] for turn in best[:_MOST_TURNS]}


def _strength(wish: Wish, score: float) -> float:
    if wish.when is not None and score >= MEETS + _NAMED_CONDITION:
        return 0.5 + 0.5 * min(1.0, score - MEETS - _NAMED_CONDITION)
    likeness = score - MEETS if score >= MEETS else score
    return likeness if likeness >= _LEAST_LIKENESS else 0.0


def with_instructions(found: Candidates, question: Question, scored: Scored, standing: Mapping[int, float]) -> Scored:
    """Return the scores with those of the `standing` turns raised.

    They rank after the first three hits, or the first five below half strength. Turns between people are not raised,
    nor is any if the question names a speaker.
    """
    binding = np.zeros(len(found.keys))
    if standing and len(found.keys) and not names_speaker(found, question):
        places = np.searchsorted(found.keys, list(standing)).clip(max=len(found.keys) - 1)
        for place, (seq, strength) in zip(places.tolist(), standing.items(), strict=True):
            if found.keys[place] == seq:
                binding[place] = strength
        binding *= assisted(found) | (found.speakers < 0)  # not turns between people with names
    if not binding.any():
        return scored
    best = np.sort(np.where(binding > 0.0, 0.0, scored.total * (found.nominated > 0)))[::-1]
    added = np.zeros(len(found.keys))
    for place in np.flatnonzero(binding):
        after = _AFTER_STRONG if binding[place] >= 0.5 else _AFTER_WEAK
        enough = best[min(after, len(best)) - 1] * (1.0 + 1e-6 * (1.0 + binding[place]))
        added[place] = max(0.0, enough - scored.total[place])
    return Scored(scored.total + added, (*scored.signals, "instruction"), np.concatenate((scored.table, [added])))


def condition_scores(question: str, wishes: Sequence[Wish], vector: Vector | None = None) -> list[float]:
    """Return a score for each wish, 0 if the question does not meet its condition.

    `MEETS` and above are wishes that always hold or whose condition is met; below are preferences that bear on the
    question. `vector` is that of the question.
    """
    if not wishes:
        return []
    question = question[:_MOST_CHARS]
    asked = _read(question)
    others = _synonyms(question) - asked.terms
    return [_score(asked, others, wish, vector) for wish in wishes]


def _score(asked: _Reading, others: frozenset[str], wish: Wish, vector: Vector | None) -> float:
    cosine = _cosine(vector, wish.vector)
    likeness = _likeness(asked, others, wish.said, cosine)
    if wish.when is not None:
        likeness = max(likeness, _likeness(asked, others, wish.when, cosine))
        is_met = bool(wish.when.kinds & asked.kinds) or likeness >= _MEETS_CONDITION
        return MEETS + _NAMED_CONDITION + likeness if is_met else 0.0
    if wish.kind is InstructionKind.INSTRUCTION or wish.is_manner:
        return MEETS + likeness
    if likeness >= _BEARS_ON:
        return likeness
    return _UNKNOWN if vector is None or wish.vector is None else 0.0


def _likeness(asked: _Reading, others: frozenset[str], said: _Reading, cosine: float) -> float:
    """Return the likeness of a question and a wish, 0 to 1."""
    words = min(1.0, _SHARED * len(asked.terms & said.terms) + _SYNONYM * len(others & said.terms))
    meaning = min(1.0, max(0.0, (cosine - _UNRELATED) / (_RELATED - _UNRELATED)))
    kinds = 0.1 if asked.kinds & said.kinds else 0.0
    return min(1.0, max(words, meaning) * 0.7 + min(words, meaning) * 0.3 + kinds)


def _cosine(one: Vector | None, other: Vector | None) -> float:
    if one is None or other is None or len(one) != len(other):
        return 0.0
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(np.dot(one, other)) / size if size else 0.0


def _read(text: str) -> _Reading:
    return _Reading(topic_terms(text), frozenset(place for place, kind in enumerate(_KINDS) if kind.search(text)))


def _synonyms(question: str) -> frozenset[str]:
    """Return the terms of the synonyms of the question's words."""
    return frozenset(term for concept in concepts(question) for other in concept.others for term in other.terms)
