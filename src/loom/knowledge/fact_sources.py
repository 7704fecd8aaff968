"""Sources of facts: a text, a task or a record in one form, with its speaker, time and trust."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from loom.drafts import task_message, task_text
from loom.echoes import own_words
from loom.errors import InvalidInput
from loom.knowledge.classifier import NO_CONTEXT, TurnContext
from loom.protocol import Task
from loom.storage.contract import Record
from loom.types import MemoryType, Trust

__all__ = ["FactSource", "Source", "as_source"]

FactSource = str | Task | Record
"""The types of records from which facts can be extracted."""

_UNTRUSTED: Final = frozenset({Trust.TOOL, Trust.WEB})
_TOOL_ROLES: Final = frozenset({"tool", "function"})


class Source(NamedTuple):
    """A text to extract facts from, with its relevant parts, its speaker, its time and its context.

    An `untrusted` source is a tool or a web page. `output` marks the output of a tool: no facts are extracted from
    it, because the assistant reports the important parts in its own words.
    """

    text: str
    parts: tuple[tuple[int, int], ...]
    speaker: str | None = None
    at: datetime | None = None
    untrusted: bool = False
    context: TurnContext = NO_CONTEXT
    output: bool = False

    def in_context(self, role: str | None, before: str | None) -> Source:
        """The source with the role of its speaker and the text of the turn before, if they are given."""
        if role is None and before is None:
            return self
        output = self.output or role in _TOOL_ROLES
        return self._replace(context=TurnContext(role or self.context.role, before), output=output)


def as_source(
    source: FactSource, speaker: str | None = None, at: datetime | None = None, trust: str | None = None
) -> Source:
    """A text, a task or a record as a source. A task or a record supplies the values that are not given."""
    if isinstance(source, str):
        return Source(source, ((0, len(source)),), speaker, at, trust in _UNTRUSTED, output=trust == Trust.TOOL)
    if isinstance(source, Task):
        text = task_text(source)
        trust = trust or source.metadata.get("trust")
        output = trust == Trust.TOOL or source.action == "node.tool_result"
        untrusted = output or trust in _UNTRUSTED
        message = task_message(source.parameters)
        role = "assistant" if message is None else str(message["role"])
        context = TurnContext("tool" if untrusted else role)
        spans = _task_parts(text, source) if message is None else ((0, len(text)),)
        return Source(text, spans, speaker, at or source.created_at, untrusted, context, output)
    if isinstance(source, Record):
        parts: tuple[tuple[int, int], ...] = ((0, len(source.content)),)
        is_task = source.kind == MemoryType.TASK and isinstance(source.data, Mapping)
        if is_task and task_message(source.data.get("parameters")) is None:
            parts = _task_parts(source.content, source.data)
        trust = trust or source.trust
        untrusted = trust in _UNTRUSTED
        output = trust == Trust.TOOL or source.role in _TOOL_ROLES or source.kind == MemoryType.TOOL_RESULT
        context = TurnContext(source.role or ("tool" if untrusted else None))
        name, at = speaker or source.name, at or source.created_at
        text = own_words(source)
        return Source(text, parts, name, at, untrusted, context, output or not text.strip())
    raise InvalidInput(f"facts can be extracted from a text, a Task or a Record, not {type(source).__name__}")


def _task_parts(text: str, task: Task | Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """The spans of the values of a task in its text, without the action and the names of the parameters."""
    fields: Any = task.parameters if isinstance(task, Task) else task.get("parameters") or {}
    names = [*fields, "result", "error"]
    starts: list[tuple[int, int]] = []  # none if the task has only an action
    position = text.find("\n") + 1
    for name in names:
        label = f"{name}: "
        found = position if text.startswith(label, position) else text.find(f"\n{label}", position) + 1
        if text.startswith(label, found) and found >= position > 0:
            # The label belongs to an error: without it the text does not read as one.
            starts.append((found, found if name == "error" else found + len(label)))
            position = found + len(label)
    ends = [*(start for start, _ in starts), len(text)][1:]
    return tuple((begin, end) for (_, begin), end in zip(starts, ends, strict=True))
