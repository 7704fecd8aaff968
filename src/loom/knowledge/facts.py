"""The record of an extracted fact, and for each kind of statement the type, labels and confidence of its facts.

`extraction` and `model_extraction` find facts, `wording` phrases them, and `keys` compares two facts about one thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from loom.text.statement_kinds import StatementKind
from loom.types import FactType

__all__ = [
    "FORMS",
    "LONGEST_FACT",
    "UNTRUSTED_CONFIDENCE",
    "UNTRUSTED_KINDS",
    "ExtractedFact",
    "Extraction",
    "FactForm",
    "Mention",
]

_K = StatementKind

LONGEST_FACT: Final = 400
"""The most characters of a fact, without its label."""


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """One fact in the words of the source; `content` can be read on its own and begins with the label.

    `key` names the attribute of the fact if that can have only one current value ("ana|lives in"), with its `value`;
    both are None for facts that do not exclude each other. `replaces` is the value that the source itself calls
    outdated or wrong; `revises` is the new value of a bare correction ("make that 1100"), which names no attribute.
    `machine` marks the report of a program, word for word. `span` is the part of the source (of `task_text` for a
    task) that states it.
    """

    content: str
    fact_type: FactType
    label: str
    confidence: float
    kind: StatementKind
    span: tuple[int, int]
    key: str | None = None
    value: str | None = None
    replaces: str | None = None
    revises: str | None = None
    machine: bool = False


class Mention(NamedTuple):
    """A name that a model read in a text, and the words of the text that refer to it."""

    name: str
    said: str


class Extraction(NamedTuple):
    """The facts of one source and, if a model read it, its names and its standing instructions."""

    facts: list[ExtractedFact]
    mentions: tuple[Mention, ...] = ()
    wishes: tuple[str, ...] = ()


class FactForm(NamedTuple):
    """The type of a fact, its label in both languages, and its confidence if a model states none."""

    fact_type: FactType
    english: str
    chinese: str
    confidence: float


FORMS: Final[Mapping[StatementKind, FactForm]] = MappingProxyType(
    {
        _K.FIX: FactForm(FactType.ERROR_PATTERN, "Fix", "修复", 0.9),
        _K.ERROR: FactForm(FactType.ERROR_PATTERN, "Error", "错误", 0.85),
        _K.CHANGE: FactForm(FactType.DOMAIN_KNOWLEDGE, "Change", "变更", 0.8),
        _K.TEST: FactForm(FactType.DOMAIN_KNOWLEDGE, "Result", "结果", 0.85),
        _K.DECISION: FactForm(FactType.DOMAIN_KNOWLEDGE, "Decision", "决策", 0.9),
        _K.REASON: FactForm(FactType.DOMAIN_KNOWLEDGE, "Reason", "原因", 0.85),
        _K.PREFERENCE: FactForm(FactType.USER_PREFERENCE, "Preference", "偏好", 0.85),
        _K.IDENTITY: FactForm(FactType.DOMAIN_KNOWLEDGE, "Identity", "身份", 0.85),
        _K.PLACE: FactForm(FactType.DOMAIN_KNOWLEDGE, "Place", "地点", 0.85),
        _K.EVENT: FactForm(FactType.DOMAIN_KNOWLEDGE, "Event", "事件", 0.8),
        _K.NUMBER: FactForm(FactType.DOMAIN_KNOWLEDGE, "Number", "数值", 0.8),
        _K.TOOL: FactForm(FactType.TOOL_USAGE, "Tool", "工具", 0.75),
        _K.API: FactForm(FactType.API_SCHEMA, "API", "接口", 0.9),
        _K.PRACTICE: FactForm(FactType.BEST_PRACTICE, "Practice", "实践", 0.85),
        _K.STATE: FactForm(FactType.DOMAIN_KNOWLEDGE, "State", "状态", 0.7),
        _K.PLAN: FactForm(FactType.DOMAIN_KNOWLEDGE, "Plan", "计划", 0.7),
    }
)
UNTRUSTED_KINDS: Final = frozenset({_K.PRACTICE, _K.PREFERENCE, _K.DECISION, _K.PLAN})
"""The kinds of facts that are not taken from a tool or a web page: practices, preferences and decisions of the
user."""

UNTRUSTED_CONFIDENCE: Final = 0.6
"""The factor for the confidence of a fact from a tool or a web page."""
