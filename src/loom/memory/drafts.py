"""What may be remembered (a text, a chat message, a task), as drafts of records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loom.errors import InvalidInput, TextTooLarge
from loom.memory.types import MemoryType, Trust
from loom.protocol import Task
from loom.storage.base import MAX_TEXT_BYTES

__all__ = ["checked_text", "message_text", "task_text", "trust_of_role"]

_TRUST_OF_ROLE = {
    "user": Trust.USER,
    "assistant": Trust.AGENT,
    "system": Trust.AGENT,
    "developer": Trust.AGENT,
    "tool": Trust.TOOL,
    "function": Trust.TOOL,
}


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
