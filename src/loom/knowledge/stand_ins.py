"""The stand-in of a record: its key statements, with a mark where text was left out.

A short record is its own stand-in. A stand-in is computed from the record at each read; the original stays in the
log, word for word.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from loom.drafts import task_message
from loom.protocol import Task, value_text
from loom.storage.contract import Draft, Record
from loom.text.sentences import statements
from loom.text.statements import Statement
from loom.types import MemoryType, TaskSummary

__all__ = ["MOST_TOKENS", "beginning", "key_statements", "stand_in", "stand_in_task"]

MOST_TOKENS = 120
"""The largest size of a stand-in, in tokens."""

# The approximate size to which each part is cut: a sentence or two.
_PARAMETER_WEIGHT = 24.0
_RESULT_WEIGHT = 24.0
_ACTION_WEIGHT = 8.0
_MOST_TAGS = 3
_OMITTED = " […]"
# A text up to this many times as long as its key statements is kept whole: the marks would take as much as is saved.
_WHOLE = 4 / 3
# The part of a long text that is searched for key statements, while a writer waits.
_READ_CHARS = 2_000
# Statements of less weight (thoughts, questions, requests) are left out.
_KEY_WEIGHT = 0.5


def stand_in(record: Record | Draft) -> TaskSummary:
    """A record in a few words: its key statements, or all of a short record. A derived summary is used whole."""
    if record.kind == MemoryType.SUMMARY and isinstance(record.data, dict) and "fidelity" in record.data:
        return TaskSummary(
            task_id=record.id,
            action=MemoryType.SUMMARY,
            param_summary=record.content,
            importance=record.importance,
            session_id=record.session_id,
            created_at=record.created_at,
        )
    task = record.data if record.kind == MemoryType.TASK and isinstance(record.data, dict) else None
    if task is None or task_message(task.get("parameters")) is not None:
        kind, said, outcome = record.kind, record.content, ""
        said_weight, outcome_weight = _PARAMETER_WEIGHT + _RESULT_WEIGHT, 0.0
    else:
        kind = str(task.get("action") or MemoryType.TASK)
        said = "; ".join(f"{key}: {_plain(value)}" for key, value in (task.get("parameters") or {}).items())
        # The error comes first, so that it is not cut.
        outcomes = (f"error: {task['error']}" if task.get("error") else "", _plain(task.get("result")))
        outcome = "; ".join(part for part in outcomes if part)
        said_weight, outcome_weight = _PARAMETER_WEIGHT, _RESULT_WEIGHT
    action, parameters = beginning(kind, _ACTION_WEIGHT), key_statements(said, said_weight)
    result = key_statements(outcome, outcome_weight)
    cut = (action, parameters, result) != (_one_line(kind), _one_line(said), _one_line(outcome))
    return TaskSummary(
        task_id=record.id,
        action=action,
        param_summary=parameters,
        result_summary=result,
        tags=[*_tags(record, task), *([f"{record.tokens} tokens in all"] if cut else [])],
        importance=record.importance,
        session_id=record.session_id,
        created_at=record.created_at,
    )


def _tags(record: Record | Draft, task: dict[str, Any] | None) -> list[str]:
    """The first few tags of a task or a fact."""
    home = (task.get("metadata") or {}) if task is not None else record.data if isinstance(record.data, dict) else {}
    tags = home.get("tags")
    if not isinstance(tags, list):
        return []
    return [beginning(tag, 4.0) for tag in tags if isinstance(tag, str)][:_MOST_TAGS]


def stand_in_task(record: Record) -> Task:
    """The stand-in as a task, under the same id, with `stand_in` and the size of the whole record in its metadata."""
    summary = stand_in(record)
    return Task(
        task_id=record.id,
        action=summary.action,
        parameters={"summary": summary.text},
        session_id=record.session_id,
        created_at=record.created_at,
        metadata={"stand_in": True, "tokens": record.tokens, "importance": record.importance},
    )


def key_statements(text: str, weight: float) -> str:
    """The statements of a text that matter most, on one line and in its order, about `weight` tokens long together.

    A mark shows each gap. A text that is hardly longer is returned whole; a text without such statements is cut to
    its beginning.
    """
    if len(text) <= 4 * _WHOLE * weight and _weight(text) <= _WHOLE * weight:
        return _one_line(text)
    read = text[:_READ_CHARS]
    chosen: list[Statement] = []
    room = weight
    key = [one for one in statements(read) if one.asserted and one.weight >= _KEY_WEIGHT]
    # The heaviest first; among equals, those with more names and numbers for their length, then the earlier ones.
    for one in sorted(key, key=lambda one: (-one.weight, -_density(one), one.start)):
        cost = _weight(one.text)
        if cost <= room:
            chosen.append(one)
            room -= cost + 2.0
    if not chosen:
        return beginning(text, weight)
    chosen.sort(key=lambda one: one.start)
    parts: list[str] = []
    end = 0
    for one in chosen:
        if read[end : one.start].strip():
            parts.append(_OMITTED.strip())
        parts.append(_one_line(one.text))
        end = one.end
    return " ".join(parts) + (_OMITTED if text[end:].strip() else "")


def _density(statement: Statement) -> float:
    """The number of names, numbers, dates and identifiers in a statement, relative to its length."""
    said = statement.specifics
    return len({*said.numbers, *said.dates, *said.names, *said.identifiers}) / (1.0 + _weight(statement.text))


def _weight(text: str) -> float:
    """An estimate of the tokens of a text."""
    return sum(0.25 if letter.isascii() else 1.0 for letter in text)


def beginning(text: str, weight: float) -> str:
    """The beginning of a text on one line, about `weight` tokens long, with a mark if something is left out."""
    line = _one_line(text[: int(weight * 40)])
    if line.isascii():
        end = int(weight * 4)
    else:
        # As in EstimateCounter: a letter of an alphabet is a quarter of a token, any other about one.
        costs = accumulate(0.25 if letter.isascii() else 1.0 for letter in line)
        end = next((position for position, cost in enumerate(costs) if cost > weight), len(line))
    if end < len(line):
        return _whole_words(line, end) + _OMITTED
    return line if len(text) <= weight * 40 else line + _OMITTED


def _whole_words(line: str, position: int) -> str:
    """The line up to the position, without a partial word at the end in scripts with spaces."""
    space = line.rfind(" ", max(0, position - 20), position + 1)
    return line[: space if space > 0 else position].rstrip()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _plain(value: Any) -> str:
    return "" if value is None else value_text(value)
