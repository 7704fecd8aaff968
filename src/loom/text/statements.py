"""Statements: sentences, clauses, log lines and blocks of code, each with its kind and its clauses.

`loom.text.sentences` splits a text into statements; `statement_kinds` has the cues. `loom.knowledge` derives facts
and summaries from statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from loom.text.scripts import HAN
from loom.text.specifics import Specifics, specifics
from loom.text.statement_kinds import UNASSERTED, WEIGHTS, StatementKind, is_question, judge_clause, without_opening

__all__ = ["Statement", "clauses", "cuts", "kind_of", "trimmed"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence, clause, log line or block of code: `text` is `source[start:end]`.

    `machine` is True for output of a program (a log, a test report, a traceback), `quoted` for a quotation.
    """

    text: str
    start: int
    end: int
    kind: StatementKind
    machine: bool = False
    quoted: bool = False

    @property
    def weight(self) -> float:
        """The weight, from 0 to 1."""
        return WEIGHTS[self.kind]

    @property
    def asserted(self) -> bool:
        """Whether it asserts something, and is not a question, supposition or small talk."""
        return self.kind not in UNASSERTED and not self.quoted

    @property
    def specifics(self) -> Specifics:
        """The details that a summary must keep unchanged."""
        return specifics(self.text)


def trimmed(text: str, start: int, end: int) -> tuple[str, int, int]:
    """Return a part of a text without the white space around it, with its start and end."""
    part = text[start:end]
    trimmed = part.strip()
    start += len(part) - len(part.lstrip())
    return trimmed, start, start + len(trimmed)


# Only this many characters of a longer sentence are judged.
_JUDGED_CHARS = 400
_TAG = re.compile(r",? (?:okay|ok|please|alright|got it)[?？]$", re.IGNORECASE)


def kind_of(text: str) -> StatementKind:
    """Return the kind of a sentence, which is the kind of its clause with the highest weight."""
    text = text[:_JUDGED_CHARS]
    text = _TAG.sub("", text) if text[-1:] in "?？" else text
    kind, gated = judge_clause(text)
    if gated:
        parts = _clause_spans(text)
        if len(parts) > 1:
            kinds = [each for each, _ in _judged_clauses(text, parts)]
            best = max(kinds, key=WEIGHTS.__getitem__)
            if best not in UNASSERTED:
                return best
    return kind


# --- clauses -----------------------------------------------------------------------------------------------

_CLAUSE_END = re.compile(
    r"[,;](?= (?:and|but|so|because|since|which|while|then|although|though|as)\b)"
    r"|(?<=\w)(?= (?:because|since (?:it|we|the|they|he|she|i|our|my|this|that)|due to|so that)\b)"
    r"|, (?=(?:i|we|he|she|they|it|my|our|the|please|don't)(?:'|’|\b))"
    r"|, (?=(?:can|could|would|will|did|do|does|have|is|are|should) (?:you|i|we|he|she|it|they|that)\b)"
    r"|: (?=\w+ )|; | [–—-] |(?<=\w) (?=and (?:now|then|i|we|it|don't)\b)"
    r"|[，；：](?!\s*$)"
    rf"|(?<=[{HAN}\w])(?=因为|由于)",
    re.IGNORECASE,
)
_QUESTION_TAG = re.compile(
    r"[,，] ?(?:then|right|no|huh|yes|correct|eh|isn't it|aren't (?:we|you|they)|don't (?:we|you|they)|对吧|对吗|"
    r"是吗|是吧|好吗|行吗|可以吗|真的吗)"
    r"[?？\s]*$",
    re.IGNORECASE,
)
_INHERITS = re.compile(
    r"(?:if|when|unless|suppose|maybe|perhaps|what if|如果|假如|要是|假设|万一|倘若|也许|可能)", re.IGNORECASE
)


def _clause_spans(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _CLAUSE_END.finditer(text):
        if match.end() > start and text[start : match.start()].strip():
            spans.append((start, match.start()))
            start = match.end()
    spans.append((start, len(text)))
    return spans


def _judged_clauses(text: str, spans: list[tuple[int, int]]) -> list[tuple[StatementKind, tuple[int, int]]]:
    """Return the clauses with their kinds. The clauses after an "if" are suppositions too."""
    judged: list[tuple[StatementKind, tuple[int, int]]] = []
    asked = is_question(text)
    # A tag turns the whole sentence into a question: "we are selling it, then?"
    supposed = asked and _QUESTION_TAG.search(text) is not None
    for number, (start, end) in enumerate(spans):
        clause = text[start:end].strip()
        kind = judge_clause(clause)[0] if clause else StatementKind.SMALL_TALK
        if supposed or (asked and number == len(spans) - 1):
            kind = StatementKind.QUESTION if asked and not supposed else StatementKind.HYPOTHESIS
        elif kind is StatementKind.HYPOTHESIS and _INHERITS.match(without_opening(clause)):
            supposed = True
        judged.append((kind, (start, end)))
    return judged


def clauses(statement: Statement) -> list[Statement]:
    """Return the clauses of a sentence with their kinds. A line of program output is one clause."""
    is_whole = statement.machine or len(statement.text) > _JUDGED_CHARS
    spans = [] if is_whole else _clause_spans(statement.text)
    if len(spans) < 2:
        return [statement]
    place = statement.start
    parts = ((kind, *trimmed(statement.text, *span)) for kind, span in _judged_clauses(statement.text, spans))
    return [
        Statement(clause, place + begin, place + stop, kind, quoted=statement.quoted)
        for kind, clause, begin, stop in parts
        if clause
    ]


_COMMA = re.compile(r", (?=\D)")


def cuts(statement: Statement) -> list[Statement]:
    """Return the clauses of a sentence, divided further at commas between parts of at least two words.

    Each piece is understandable alone. A clause with a negation is not divided, because a part of it might state the
    opposite.
    """
    parts = clauses(statement)
    if statement.machine or ", " not in statement.text:
        return parts
    return [piece for part in parts for piece in _cut(part)]


def _cut(clause: Statement) -> Iterator[Statement]:
    text = clause.text
    if ", " not in text or len(text) > _JUDGED_CHARS or specifics(text).negated:
        yield clause
        return
    start = 0
    for match in _COMMA.finditer(text):
        if " " in text[start : match.start()].strip() and " " in text[match.end() :].strip():
            yield _part(clause, start, match.start())
            start = match.end()
    yield _part(clause, start, len(text)) if start else clause


def _part(clause: Statement, start: int, end: int) -> Statement:
    text = clause.text[start:end].rstrip()
    start += clause.start
    return Statement(text, start, start + len(text), kind_of(text), quoted=clause.quoted)
