"""The stand-in of one memory: the beginning of its text, with a mark where something was left out.

It is computed from the record whenever it is read; the original stays in the log, word for word.
"""

from __future__ import annotations

from typing import Any

from loom.protocol import Task, value_text
from loom.storage.contract import Draft, Record
from loom.types import MemoryType, TaskSummary

__all__ = ["beginning", "stand_in", "stand_in_task"]

# The tokens of each part that are kept, about: a sentence or two.
_PARAMETER_WEIGHT = 24.0
_RESULT_WEIGHT = 24.0
_ACTION_WEIGHT = 8.0
_MOST_TAGS = 3
_OMITTED = " […]"


def stand_in(record: Record | Draft) -> TaskSummary:
    """A record in few words. A summary that the memory made is used whole."""
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
    if task is None:
        speaker = record.name or record.role
        kind, said, outcome = record.kind, f"{speaker}: {record.content}" if speaker else record.content, ""
        said_weight, outcome_weight = _PARAMETER_WEIGHT + _RESULT_WEIGHT, 0.0
    else:
        kind = str(task.get("action") or MemoryType.TASK)
        said = "; ".join(f"{key}: {_plain(value)}" for key, value in (task.get("parameters") or {}).items())
        # The error comes first, so that it is not cut.
        outcomes = (f"error: {task['error']}" if task.get("error") else "", _plain(task.get("result")))
        outcome = "; ".join(part for part in outcomes if part)
        said_weight, outcome_weight = _PARAMETER_WEIGHT, _RESULT_WEIGHT
    action, parameters = beginning(kind, _ACTION_WEIGHT), beginning(said, said_weight)
    result = beginning(outcome, outcome_weight)
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
    """The stand-in as a task, under the same id, with `stand_in` and the size of the whole in its metadata."""
    summary = stand_in(record)
    return Task(
        task_id=record.id,
        action=summary.action,
        parameters={"summary": summary.text},
        session_id=record.session_id,
        created_at=record.created_at,
        metadata={"stand_in": True, "tokens": record.tokens, "importance": record.importance},
    )


def beginning(text: str, weight: float) -> str:
    """The beginning of a text on one line, about `weight` tokens long, with a mark if something is left out."""
    line = _one_line(text[: int(weight * 40)])
    if line.isascii():
        end = int(weight * 4)
        return _whole_words(line, end) + _OMITTED if len(line) > end else _marked(line, text, weight)
    left = weight
    for position, letter in enumerate(line):
        # As in EstimateCounter: a letter of an alphabet is a quarter of a token, any other about one.
        left -= 0.25 if letter.isascii() else 1.0
        if left < 0:
            return _whole_words(line, position) + _OMITTED
    return _marked(line, text, weight)


def _marked(line: str, text: str, weight: float) -> str:
    """A line that fits, with the mark if it is not the whole text."""
    return line if len(text) <= weight * 40 else line + _OMITTED


def _whole_words(line: str, position: int) -> str:
    """The line up to the position, without half a word at the end where words are divided by spaces."""
    space = line.rfind(" ", max(0, position - 20), position + 1)
    return line[: space if space > 0 else position].rstrip()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _plain(value: Any) -> str:
    return "" if value is None else value_text(value)
