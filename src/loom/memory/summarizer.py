"""The stand-in: what a tier holds of a memory whose whole text it has no room for.

It is short, the same for the same memory every time, and honest: the beginning of what was said or done, a mark
where something was left out, and the size of the whole. The memory itself stays in the log, word for word.
"""

from __future__ import annotations

import json
from typing import Any

from loom.memory.types import MemoryType, TaskSummary
from loom.protocol import Task
from loom.storage.base import Draft, Record

__all__ = ["beginning", "stand_in", "stand_in_task"]

# About so many tokens of each part are kept: a sentence or two.
_PARAMETER_WEIGHT = 24.0
_RESULT_WEIGHT = 24.0
_OMITTED = " […]"


def stand_in(record: Record | Draft) -> TaskSummary:
    """A memory in few words."""
    task = record.data if record.kind == MemoryType.TASK and isinstance(record.data, dict) else None
    if task is None:
        said = beginning(record.content, _PARAMETER_WEIGHT + _RESULT_WEIGHT)
        speaker = record.name or record.role
        action, parameters, result = record.kind, f"{speaker}: {said}" if speaker else said, ""
        cut = said != _one_line(record.content)
    else:
        whole = "; ".join(f"{key}: {_plain(value)}" for key, value in (task.get("parameters") or {}).items())
        outcome = f"error: {task['error']}" if task.get("error") else _plain(task.get("result"))
        action = str(task.get("action") or MemoryType.TASK)
        parameters, result = beginning(whole, _PARAMETER_WEIGHT), beginning(outcome, _RESULT_WEIGHT)
        cut = (parameters, result) != (_one_line(whole), _one_line(outcome))
    return TaskSummary(
        task_id=record.id,
        action=action,
        param_summary=parameters,
        result_summary=result,
        tags=[f"{record.tokens} tokens in all"] if cut else [],
        importance=record.importance,
        session_id=record.session_id,
        created_at=record.created_at,
    )


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
    """The beginning of a text on one line, of about `weight` tokens, with a mark where something is left out."""
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
    """A line that fits, with the mark if it is only the beginning of the text after all."""
    return line if len(text) <= weight * 40 else line + _OMITTED


def _whole_words(line: str, position: int) -> str:
    """Up to the position, without half a word at the end where words are divided by spaces."""
    space = line.rfind(" ", max(0, position - 20), position + 1)
    return line[: space if space > 0 else position].rstrip()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
