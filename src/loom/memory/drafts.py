"""What may be remembered (a text, a chat message, a task), as drafts of records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from loom.errors import InvalidInput, TextTooLarge
from loom.memory.types import MemoryType, Trust
from loom.protocol import Task
from loom.storage.base import MAX_TEXT_BYTES, Dimensions

__all__ = ["Speech", "check_speech", "checked_text", "known_trust", "message_text", "task_text", "trust_of_role"]

_TRUST_OF_ROLE = {
    "user": Trust.USER,
    "assistant": Trust.AGENT,
    "system": Trust.AGENT,
    "developer": Trust.AGENT,
    "tool": Trust.TOOL,
    "function": Trust.TOOL,
}


class Speech(NamedTuple):
    """What a caller says about a text: who said it, where, when, and how far to trust it."""

    role: str | None
    name: str | None
    session_id: str | None
    created_at: datetime | None
    importance: float | None
    metadata: Mapping[str, Any]
    trust: str | None
    kind: str | None
    dimensions: Dimensions | None


def check_speech(speech: Speech) -> None:
    """Refuse what could only be stored as something else."""
    for field in ("role", "name", "session_id", "kind"):
        value = getattr(speech, field)
        if value is not None and not isinstance(value, str):
            raise InvalidInput(f"{field} is a text, not {value!r}")
    if speech.created_at is not None and not isinstance(speech.created_at, datetime):
        raise InvalidInput(f"created_at is a datetime with a time zone, not {speech.created_at!r}")
    importance = speech.importance
    if importance is not None and not (isinstance(importance, int | float) and 0.0 <= importance <= 1.0):
        raise InvalidInput(f"importance is {importance!r}; it must be a number from 0 to 1")
    if speech.metadata:
        if not isinstance(speech.metadata, Mapping):
            raise InvalidInput(f"metadata is a mapping of names to JSON values, not {type(speech.metadata).__name__}")
        for key in speech.metadata:
            if not isinstance(key, str):
                raise InvalidInput(f"a metadata key is a text, not {key!r}")
    if speech.dimensions is not None and not isinstance(speech.dimensions, Dimensions):
        raise InvalidInput(f"dimensions is a Dimensions record, not {type(speech.dimensions).__name__}")


def known_trust(trust: str) -> Trust:
    try:
        return Trust(trust)
    except ValueError as error:
        raise InvalidInput(f"trust is {trust!r}; it must be one of {', '.join(Trust)}") from error


def checked_text(text: object) -> str:
    """The text itself, if it can be kept verbatim; otherwise an error that says why not."""
    if not isinstance(text, str):
        raise InvalidInput(
            f"remember() takes text, a Task, a chat message or a list of them, not {type(text).__name__}"
        )
    if not text.strip():
        raise InvalidInput("the text is empty; there is nothing to remember")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"the text holds a lone surrogate at position {error.start}, which is not valid Unicode; "
            "decode it with errors='replace' first"
        ) from error
    if size > MAX_TEXT_BYTES:
        raise TextTooLarge(
            f"the text has {size:,} bytes; one record holds {MAX_TEXT_BYTES:,}. Split it into several."
        )
    return text


def trust_of_role(role: str | None) -> Trust:
    """How far the speaker in a chat may be believed, where the caller does not say."""
    return _TRUST_OF_ROLE.get(role or "", Trust.UNKNOWN)


def message_text(message: Mapping[str, Any]) -> str:
    """The words of a chat message: its text parts, the calls it makes, the captions it carries."""
    parts = [_content_text(message.get("content"))]
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise InvalidInput("a tool call needs a function with a name")
        parts.append(f"{function.get('name', '')}({function.get('arguments', '')})")
    return "\n".join(part for part in parts if part)


def _content_text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for text in map(_part_text, content) if text)
    raise InvalidInput(f"the content of a message is text or a list of parts, not {type(content).__name__}")


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InvalidInput(f"a part of a message is text or an object, not {type(part).__name__}")
    for key in ("text", "caption", "alt"):
        if isinstance(part.get(key), str):
            return str(part[key])
    if part.get("type") == "tool_result":
        return _content_text(part.get("content"))
    if part.get("type") == "tool_use":
        return f"{part.get('name', '')}({json.dumps(part.get('input'), ensure_ascii=False)})"
    return ""


def task_text(task: Task) -> str:
    """What a task says, for people and for search: its action, parameters, result and error."""
    lines = [task.action or MemoryType.TASK]
    lines += [f"{key}: {_plain(value)}" for key, value in task.parameters.items()]
    if task.result is not None:
        lines.append(f"result: {_plain(task.result)}")
    if task.error:
        lines.append(f"error: {task.error}")
    return "\n".join(lines)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
