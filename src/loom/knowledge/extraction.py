"""Facts from messages and tasks: decisions, reasons, preferences, people, places, dates, numbers, errors.

Without a language model, learned weights (`classifier`) choose the statements that are worth keeping, and rules
phrase them, in English and Chinese. With a model, its answer is checked against the source (`model_extraction`);
weights and rules replace an unusable answer. `loom.memory` stores and supersedes facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from loom.knowledge.classifier import (
    TYPES,
    Assessment,
    Model,
    assess,
    in_company,
    is_kept,
    shipped_model,
    type_probabilities,
)
from loom.knowledge.fact_sources import FactSource, Source, as_source
from loom.knowledge.facts import (
    FORMS,
    LONGEST_FACT,
    UNTRUSTED_CONFIDENCE,
    UNTRUSTED_KINDS,
    ExtractedFact,
    Extraction,
)
from loom.knowledge.homes import home_in
from loom.knowledge.keys import correction_in, fact_identity, key_and_value
from loom.knowledge.model_extraction import ask_model
from loom.knowledge.revisions import revision_in
from loom.knowledge.wording import (
    END_MARKS,
    opens_reason,
    spoken,
    third_person,
    with_dates,
    without_connective,
    word_decision,
    word_reason,
)
from loom.models.language_model import LanguageModel, LanguageModelLike, as_language_model
from loom.text.personal import is_personal
from loom.text.scripts import HAN, han_characters, has_han, is_chinese
from loom.text.sentences import statements
from loom.text.specifics import specifics
from loom.text.statement_kinds import WEIGHTS, StatementKind, without_opening
from loom.text.statements import Statement, clauses
from loom.text.unstated import is_acknowledgement, is_data
from loom.text.words import word_set
from loom.types import Trust

__all__ = ["CandidateFact", "FactExtractor", "candidate_facts", "may_state"]

_K = StatementKind


class FactExtractor:
    """Extracts facts from a text, a task or a record. It is deterministic without a language model.

    `llm` is a callable from prompt to answer, or an object with `complete(prompt)`. Its answer is data: a fact whose
    numbers, names or identifiers are not in the source is refused, and the rules replace an unusable answer.
    `weights` replace the shipped weights that choose the statements worth keeping.
    """

    def __init__(self, llm: LanguageModelLike | None = None, weights: Model | None = None) -> None:
        self._llm: LanguageModel | None = None if llm is None else as_language_model(llm)
        self._weights = weights

    def extract(
        self,
        source: FactSource,
        *,
        speaker: str | None = None,
        at: datetime | None = None,
        trust: Trust | str | None = None,
        role: str | None = None,
        before: str | None = None,
    ) -> list[ExtractedFact]:
        """The facts of the source, in their order there.

        `speaker` replaces "I"; `at` is the time of the source and resolves "yesterday". Facts from a web page
        (`trust`) have less confidence, and never include decisions or preferences of the user. No facts are extracted
        from the output of a tool (`trust`, `role`). A record or a task supplies all of these values. `role` is the
        role of the speaker (user, assistant, tool), and `before` is the text of the previous turn: after a question,
        "Tuesday." is a fact.
        """
        return self._extract(as_source(source, speaker, at, trust).in_context(role, before), None).facts

    @property
    def has_model(self) -> bool:
        """Whether a language model is used."""
        return self._llm is not None

    def extract_with_mentions(
        self, source: FactSource, *, before: str | None = None, earlier: Sequence[str] = ()
    ) -> Extraction:
        """The facts of the source and the names in it, in one request to the model. Rules give only facts.

        `earlier` has the previous turns, oldest first, from which the model can tell who "she" is. A name is accepted
        if the words that refer to it occur in the source.
        """
        return self._extract(as_source(source).in_context(None, before), earlier)

    def _extract(self, source: Source, earlier: Sequence[str] | None) -> Extraction:
        if source.output:
            return Extraction([])
        if self._llm is not None:
            answer = ask_model(self._llm, source, earlier)
            if answer is not None:
                return answer
        return Extraction(_by_rules(source, self._weights or shipped_model()))


# --- rules -------------------------------------------------------------------------------------------------


def _by_rules(source: Source, weights: Model) -> list[ExtractedFact]:
    facts: dict[str, ExtractedFact] = {}
    for start, end in source.parts:
        part = source.text[start:end]
        found = statements(part)
        # Half of the statements are small talk and questions, which need no assessment.
        stating = [may_state(statement, source.context.role == "assistant") for statement in found]
        assessed = assess(found, weights, source.context, stating)
        for assessment in in_company(assessed, len(found) - len(assessed)):
            assessment = _as_surely_as_said(assessment, source)
            text = assessment.statement.text
            if not is_kept(assessment, weights, source.context) and revision_in(text) is None:
                continue
            for group in _groups_of(assessment, weights):
                fact = _fact(group, part, source, start, assessment.worth)
                if fact is not None:
                    facts.setdefault(fact_identity(fact), fact)
    return [*facts.values()]


# The least worth of lasting statements of users about themselves. Of 25 such statements in the dialogues, 21 were
# annotated as facts. The weights, which were learned from few of them, had missed 8 of those.
_PERSONAL_WORTH: Final = 0.95
_SELDOM_ASSERTED: Final = frozenset({_K.HYPOTHESIS, _K.QUESTION, _K.REQUEST})


def _as_surely_as_said(assessment: Assessment, source: Source) -> Assessment:
    """The assessment, with at least the worth of a personal statement if the user makes one."""
    statement = assessment.statement
    told = source.context.role in (None, "user") and not source.untrusted
    if not told or statement.machine or statement.kind in _SELDOM_ASSERTED or not is_personal(statement.text):
        return assessment
    return assessment._replace(worth=max(assessment.worth, _PERSONAL_WORTH))


_ORDER_TO_READER = re.compile(r"(?:please )?(?:ignore|disregard|forget)\b|请?(?:忽略|无视|忘记|忘掉)", re.IGNORECASE)
_ENDS_ASKING = re.compile("[?？][\\s\"'”’)）」*]*$")
_SUPPOSED = re.compile(r"if\b.{1,120}\b(?:would|could|might)\b", re.IGNORECASE)


def may_state(statement: Statement, assistant: bool) -> bool:
    """Whether a statement can be a fact.

    A question, a quotation, a supposition, an order to the reader, an acknowledgement, data and code cannot.
    """
    text = statement.text
    return not (
        statement.quoted
        or statement.kind in (_K.QUESTION, _K.SMALL_TALK, _K.CODE)
        or _ENDS_ASKING.search(text)
        or is_data(text)
        or is_acknowledgement(text, assistant)
        or (statement.kind is _K.HYPOTHESIS and _SUPPOSED.match(text))
        or _ORDER_TO_READER.match(without_opening(text))
    )


def _groups_of(assessment: Assessment, weights: Model) -> list[_Group]:
    """The parts of a statement that become facts: the decision and its reason, or the whole statement.

    Only a decision with a reason is divided, since single clauses often miss the point of their sentence.
    """
    statement = assessment.statement
    if statement.kind is _K.DECISION:
        groups = [*_groups(statement)]
        if [group.kind for group in groups] == [_K.DECISION, _K.REASON]:
            return groups
    return [_Group(_kind(assessment, weights), (statement,), "")]


# The least probability of a type for its label, with and without the support of a rule. On dialogues that were not
# used for learning, 55 % of the labels then agree with the annotations, and a quarter of the facts are labelled as a
# state. With the most probable label for every fact, 49 % agree.
_RULED_FROM: Final = 0.1
_LIKELY_FROM: Final = 0.5
# Kinds whose rules search for the word itself: "we plan to", "I prefer".
_NAMED_BY_THEMSELVES: Final = frozenset({_K.PLAN, _K.PREFERENCE, _K.PRACTICE, _K.API})
_TYPE_OF: Final[Mapping[StatementKind, str]] = MappingProxyType({kind: name for name, kind in TYPES.items()})


def _kind(assessment: Assessment, weights: Model) -> StatementKind:
    """The kind of a statement by the rules, or the most probable one; a state if neither is probable enough.

    A wrong label is worse than none: a statement without a number is not a Number.
    """
    kind = assessment.statement.kind
    if assessment.statement.machine or (kind in FORMS and kind is not _K.STATE and kind not in _TYPE_OF):
        return kind if kind in FORMS else _K.STATE
    types = {TYPES[name]: share for name, share in type_probabilities(assessment, weights).items()}
    for lacking in _lacking(assessment.statement.text):
        del types[lacking]
    if kind in _NAMED_BY_THEMSELVES or types.get(kind, 0.0) >= _RULED_FROM * assessment.worth:
        return kind
    likely = max(types, key=types.__getitem__)
    return likely if types[likely] >= _LIKELY_FROM * assessment.worth else _K.STATE


# A number after a name is its version: "Postgres 16".
_VERSION = re.compile(r"\b[A-Z][\w.+#]*[ -]v?\d+(?:\.\d+)*\b(?! ?%)")
_MOVED = re.compile(r"\b(?:moved|relocated|migrated) (?:\w+ )?to\b", re.IGNORECASE)
_BUILDING = re.compile(
    r"\b(?:office|house|flat|apartment|building|warehouse|shop|store|city|town|village|country|street|road|room|"
    r"floor|site|campus|lab|hall)s?\b",
    re.IGNORECASE,
)


def _lacking(text: str) -> Iterator[StatementKind]:
    """The kinds that a statement cannot have because it lacks a number, a date or a place."""
    if not specifics(_VERSION.sub("", text)).numbers:
        yield _K.NUMBER
    if not specifics(text).dates:
        yield _K.EVENT
    if _MOVED.search(text) and not _BUILDING.search(text) and home_in(text, chinese=False) is None:
        yield _K.PLACE


class CandidateFact(NamedTuple):
    """A whole statement as a fact that a summary may choose: its worth, and the probability of each type."""

    fact: ExtractedFact
    statement: Statement
    worth: float
    types: Mapping[str, float]
    features: tuple[str, ...]


def candidate_facts(source: Source, *, weights: Model, least: Callable[[Statement], float]) -> list[CandidateFact]:
    """The statements of a turn whose worth is at least `least`, each as a fact.

    A summary shows statements side by side, so a statement need not be understandable alone, and may be partly a
    question: only its worth decides.
    """
    found = []
    text = source.text
    for assessment in assess(statements(text), weights, source.context):
        statement = assessment.statement
        # Code, and a log line that reports nothing, need the worth of a fact.
        if statement.quoted:
            continue
        if assessment.worth >= (weights.keep_from if statement.kind is _K.CODE else least(statement)):
            group = _Group(_kind(assessment, weights), (statement,), "")
            fact = _fact(group, text, source, 0, assessment.worth, alone=False)
            if fact is not None:
                found.append(
                    CandidateFact(
                        fact,
                        statement,
                        assessment.worth,
                        type_probabilities(assessment, weights),
                        assessment.features,
                    )
                )
    return found


class _Group(NamedTuple):
    """Clauses of one sentence that state one thing, and the text before them in the sentence."""

    kind: StatementKind
    clauses: tuple[Statement, ...]
    before: str


# A Chinese clause that begins with one of these has no subject of its own and continues the clause before it.
_NO_SUBJECT_CHINESE = re.compile(
    "(?:而且|并且|并|后来|然后|最终|最后|还|也|都|就|又|才|现在|目前|已经?|刚)*(?:一共|共|总共|大约|约|为期|只有|"
    "有|是|在|从|到|比|同比|环比|每|需要|要|不|没|别|越|以|用|把|被|让|给|去|来|做|当|教|住|搬|花|"
    "今年|明年|去年|今天|昨天|之前|其中|包括|来自|影响|增长|下降|这样|返回|传|为|达到|省|赚|亏|占|超过|腾出|修|改|"
    "换|加|删|恢复|同时|主要|老家|只|更|最)"
)
_OWN_SUBJECT = re.compile(
    r"(?:i|we|he|she|they|it|you|my|our|his|her|their|the|a|an|this|that|there|please|always|never|don't|do|from|"
    r"everyone|nobody|[A-Z]\w+)(?:'|’|\b)"
)
# The kinds of clauses that continue a group of each kind: a result continues a fix, a number its subject.
_JOINS: Final[Mapping[StatementKind, frozenset[StatementKind]]] = MappingProxyType(
    {
        _K.FIX: frozenset({_K.CHANGE, _K.TEST, _K.STATE, _K.NUMBER}),
        _K.API: frozenset({_K.STATE, _K.NUMBER, _K.TOOL}),
        _K.ERROR: frozenset({_K.NUMBER, _K.STATE}),
        _K.TEST: frozenset({_K.NUMBER}),
        _K.CHANGE: frozenset({_K.STATE, _K.NUMBER, _K.FIX}),
        _K.TOOL: frozenset({_K.FIX}),
        _K.STATE: frozenset({_K.FIX}),
        _K.EVENT: frozenset({_K.FIX}),
    }
)
_ALONE: Final = frozenset({_K.PREFERENCE, _K.PRACTICE, _K.IDENTITY, _K.PLACE, _K.NUMBER, _K.TOOL})


def _groups(statement: Statement) -> Iterator[_Group]:
    """The clauses of a statement, in groups that each state one thing."""
    group: list[Statement] = []
    kind = _K.THOUGHT
    before = ""
    for clause in clauses(statement):
        reason = kind in FORMS and opens_reason(clause.text)
        if reason and kind is not _K.ERROR:
            if clause.kind in _UNSAID:
                continue
            yield _Group(kind, tuple(group), before)
            before = statement.text[: clause.start - statement.start]
            group, kind = [clause], _K.REASON
        elif clause.kind in FORMS:
            if kind is _K.THOUGHT and group and clause.kind in (_K.FIX, _K.TEST):
                group, kind = [*group, clause], clause.kind
            elif group and (reason or _goes_with(kind, clause)):
                group.append(clause)
                kind = max(kind, clause.kind, key=WEIGHTS.__getitem__) if kind in FORMS else clause.kind
            else:
                if kind in FORMS:
                    yield _Group(kind, tuple(group), before)
                before = statement.text[: clause.start - statement.start]
                group, kind = [clause], clause.kind
        elif clause.kind is _K.THOUGHT and ((kind in FORMS and kind is not _K.REASON) or not group):
            # A thought after a fact belongs to it. A thought before one is kept in case a fix follows.
            group.append(clause)
        elif kind in FORMS:
            yield _Group(kind, tuple(group), before)
            group, kind = [], _K.THOUGHT
    if kind in FORMS:
        yield _Group(kind, tuple(group), before)


_UNSAID: Final = frozenset({_K.QUESTION, _K.HYPOTHESIS, _K.REQUEST, _K.SMALL_TALK})


def _goes_with(kind: StatementKind, clause: Statement) -> bool:
    """Whether a clause continues the group before it."""
    if kind not in FORMS:
        return False
    if kind is _K.REASON:
        return clause.kind is _K.REASON
    text = without_connective(clause.text)
    if is_chinese(text):
        return (
            clause.kind in _JOINS.get(kind, ())
            or (kind == clause.kind and kind not in _ALONE)
            or _NO_SUBJECT_CHINESE.match(text) is not None
        )
    if clause.kind in _JOINS.get(kind, ()) or (kind == clause.kind and kind not in _ALONE):
        return True
    return _OWN_SUBJECT.match(text) is None and not text[:1].isupper()


_TIMESTAMP = re.compile(
    r"^\s*\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?\s*(?:\[?(?:ERROR|"
    r"FATAL|CRITICAL|WARN(?:ING)?)\]?:?\s*)?"
)
_LIGHT_WORDS: Final = word_set("""
i we you he she it they this that these those is are was were be been am do does did have has had a an the and or but
so then now it's that's there here to of in on at for with by from as my your our his her their me us him them just
also too very really all everything something thing things one ones fixed solved works worked working fine again good
great okay error errors bug problem issue issues broken failed fails decided chose agreed because not no already will
can up down out get got go going let's let use using make sure always never must should please i'm we're i've we've
happened changed done some any much many lot more less what which who first last next time
""")


def _fact(
    group: _Group, text: str, source: Source, offset: int, worth: float, *, alone: bool = True
) -> ExtractedFact | None:
    """The group as a fact; None if it is too long or untrusted, or if it must be understandable `alone` and is
    not."""
    kind = group.kind
    if source.untrusted and kind in UNTRUSTED_KINDS:
        return None
    start, end = group.clauses[0].start, group.clauses[-1].end
    machine = group.clauses[0].machine
    said = text[start:end]
    chinese = is_chinese(said)
    said = " ".join((_TIMESTAMP.sub("", said) if machine else spoken(said, chinese)).split())
    if kind is _K.DECISION and not machine:
        said = word_decision(said, group.before, chinese)
    elif kind is _K.REASON:
        said = word_reason(said)
    said = said.strip(END_MARKS)
    if machine and len(said) > _LONGEST_REPORT:
        said = f"{said[: _LONGEST_REPORT - 1].rstrip()}…"
    if len(said) > LONGEST_FACT or (alone and not _says_something(said, kind, machine)):
        return None
    replacing, replaced = correction_in(said) or (None, None)
    key, value = (None, None) if machine else key_and_value(said, kind, source.speaker, chinese)
    if source.at is not None and not machine:
        # Keep the words of the speaker: "Ana's sister got" could be read as "has got".
        said = with_dates(said, source.at)
    if source.speaker and not machine:
        said = third_person(said, source.speaker)
    form = FORMS[kind]
    label = form.chinese if chinese else form.english
    return ExtractedFact(
        content=f"{label}: {said}",
        fact_type=form.fact_type,
        label=label,
        confidence=round(worth * (UNTRUSTED_CONFIDENCE if source.untrusted else 1.0), 3),
        kind=kind,
        span=(offset + start, offset + end),
        key=key,
        value=value if replacing is None else value or replacing,
        replaces=replaced,
        revises=None if machine or replaced else revision_in(text[start:end]),
        machine=machine,
    )


_LONGEST_REPORT = 240


def _says_something(said: str, kind: StatementKind, machine: bool) -> bool:
    """Whether a fact can be understood without the rest of the dialogue: "it works now" cannot."""
    if machine:
        return len(said) >= 6
    if not _PLAIN_WORD.search(said):
        return False  # a row of codes does not explain itself
    found = specifics(said)
    if _DIGIT.search(said) or found.numbers or found.names or found.identifiers or found.dates:
        return len(said) >= 3
    if has_han(said):
        return len(han_characters(_LIGHT_CHINESE.sub("", said))) >= 2
    words = [word for word in _WORD.findall(said.lower()) if word not in _LIGHT_WORDS]
    return len(words) >= (1 if kind in (_K.REASON, _K.PREFERENCE, _K.IDENTITY) else 2)


_DIGIT = re.compile(r"[0-9]")
_PLAIN_WORD = re.compile(f"[{HAN}]|(?<![\\w/.-])[^\\W\\d_]{{2,}}(?![\\w/=])")
_WORD = re.compile(r"[a-z][a-z'’-]*")
_LIGHT_CHINESE = re.compile(
    "我们?|你们?|他们?|她们?|它|这个?|那个?|已经|现在|修复|修好|解决|恢复|搞定|正常|失败|报错|错误|问题|决定|同意|"
    "确定|因为|所以|就|都|了|的|是|好|很|也|还|吧|啊|呢|嘛|呀|不|没有?|有|在|要|会|能|可以|一下|什么|怎么"
)
