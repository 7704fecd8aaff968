"""Drafts of records from memories: texts, chat messages and tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypedDict

from loom.checks import checked_instance, checked_mapping, checked_member, checked_number
from loom.errors import InvalidInput, TextTooLarge
from loom.protocol import Clock, Task, checked_time, closest, new_id, value_text
from loom.storage.contract import MAX_TEXT_BYTES, AtMost, Dimensions, Draft
from loom.text.sanitizer import ContentSanitizer
from loom.text.tokens import TokenCounter, counters_by_name
from loom.types import MemoryTier, MemoryType, Trust

__all__ = [
    "ACTION_IMPORTANCE",
    "DEFAULT_IMPORTANCE",
    "NO_ATTRIBUTES",
    "AttributeValues",
    "Attributes",
    "Drafter",
    "MessageModel",
    "Rememberable",
    "attributes_of",
    "checked_attributes",
    "checked_text",
    "known_trust",
    "message_text",
    "role_of_message",
    "task_message",
    "task_text",
    "trust_of_message",
    "trust_of_role",
]


class MessageModel(Protocol):
    """A message of a provider's SDK, or any object that dumps its fields as pydantic does."""

    def model_dump(self) -> dict[str, Any]: ...


Rememberable = str | Task | Mapping[str, Any] | MessageModel

ACTION_IMPORTANCE: Mapping[str, float] = MappingProxyType(
    {
        "node.error": 0.9,
        "node.planning": 0.8,
        "node.tool_result": 0.75,
        "node.tool_call": 0.7,
        "execute": 0.65,
        "node.complete": 0.6,
        "node.thinking": 0.55,
    }
)
"""The default importance of a task by its action; all other actions have `DEFAULT_IMPORTANCE`."""

DEFAULT_IMPORTANCE = 0.5

_SAID_KEYS = frozenset({"content", "tool_calls", "function_call", "refusal"})
_PLAIN_MESSAGE_KEYS = frozenset({"role", "content", "name", "id", "session_id", "created_at", "metadata"})

# The free-text parts of a task.
_FREE_PARTS = ("parameters", "result", "error", "metadata")

_ANYWHERE = Dimensions()

# Texts up to this size may be counted after they are written: the worker holds hundreds of them at a time.
_LATER_BYTES = 4096

_TRUST_OF_ROLE = {
    "user": Trust.USER,
    "assistant": Trust.AGENT,
    "system": Trust.AGENT,
    "developer": Trust.AGENT,
    "tool": Trust.TOOL,
    "function": Trust.TOOL,
}


class Attributes(NamedTuple):
    """The attributes that a caller gives to a text: its speaker, session, time and trust."""

    role: str | None = None
    name: str | None = None
    session_id: str | None = None
    created_at: datetime | str | None = None
    importance: float | None = None
    metadata: Mapping[str, Any] | None = None
    trust: str | None = None
    kind: str | None = None
    dimensions: Dimensions | None = None


class AttributeValues(TypedDict, total=False):
    """The fields of `Attributes` as keyword arguments, for type checkers and editors."""

    role: str | None
    name: str | None
    session_id: str | None
    created_at: datetime | str | None
    importance: float | None
    metadata: Mapping[str, Any] | None
    trust: str | None
    kind: str | None
    dimensions: Dimensions | None


NO_ATTRIBUTES = Attributes()


def attributes_of(verb: str, given: AttributeValues) -> Attributes:
    """The attributes from the keyword arguments of a verb."""
    if not given:
        return NO_ATTRIBUTES
    for name in given:
        if name not in Attributes._fields:
            known = ("id", *Attributes._fields)
            raise InvalidInput(f"{verb}() takes no {name!r}; {closest(name, known)}it takes {', '.join(known)}")
    return Attributes(**given)


class Drafter:
    """Makes drafts for one node: checks, sanitises, counts, and fills in missing values."""

    def __init__(
        self,
        node: str,
        counter: TokenCounter,
        clock: Clock,
        sanitizer: ContentSanitizer | None = None,
        *,
        counts_later: bool = True,
    ) -> None:
        self.node = node
        self.counter = counter
        self._clock = clock
        self._sanitizer = sanitizer
        self._may_wait = counts_later and counter.name in counters_by_name()  # any process can then count

    def draft(
        self,
        what: object,
        id: str | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
        *,
        count_later: bool = False,
    ) -> Draft:
        """Draft a text, a `Task` or a chat message.

        With `count_later`, the store may count a short text later. (A count between two transactions takes 55 us,
        because its tables and SQLite evict each other from the CPU caches; many in a row take 17 us each.)
        """
        if not isinstance(what, str):  # first, because it is the usual case and quick to see
            if isinstance(what, Task):
                return self.task(what, id, attributes)
            if isinstance(what, Mapping) or _is_model(what):
                return self.message(_opened(what), id, attributes, count_later=count_later)
        return self.text(checked_text(what), id, attributes, count_later=count_later)

    def text(
        self,
        text: str,
        id: str | None,
        attributes: Attributes,
        data: Any = None,
        *,
        revises: bool = False,
        keep_data: bool = False,
        lasting: bool = False,
        count_later: bool = False,
    ) -> Draft:
        """Draft a text. Its original `data` is dropped if the sanitizer changes the text, unless the data is
        clean."""
        metadata = attributes.metadata or {}
        if self._sanitizer is not None and text.strip():
            cleaned = checked_text(self._sanitizer.sanitize(text))
            if cleaned != text:
                text, metadata = cleaned, {**metadata, "sanitized": True}
                data = data if keep_data else None
        if id is not None and not (isinstance(id, str) and id):
            raise InvalidInput(f"an id must be a text of at least one character, not {id!r}")
        attributes = checked_attributes(attributes)
        trust = trust_of_role(attributes.role) if attributes.trust is None else known_trust(attributes.trust)
        # In the order of the fields: keyword arguments would cost as much as the rest of the call.
        return Draft(
            new_id() if id is None else _plain(id),
            text,
            self._clock() if attributes.created_at is None else checked_time(attributes.created_at, "created_at"),
            attributes.kind or MemoryType.MESSAGE,
            self.node,
            attributes.session_id,
            attributes.role,
            attributes.name,
            trust,
            attributes.dimensions or _ANYWHERE,
            DEFAULT_IMPORTANCE if attributes.importance is None else attributes.importance,
            self._tokens(text, count_later),
            self.counter.name,
            MemoryTier.L1,
            metadata,
            data,
            (),
            id is not None,
            revises,
            None,
            lasting,
        )

    def _tokens(self, text: str, count_later: bool) -> int:
        """The tokens of a text, or an upper bound if they may be counted later (see `Draft`).

        A message without words counts as one token, so that a tier's budget also bounds the number of such messages.
        """
        if not text:
            return 1
        if count_later and self._may_wait:
            most = len(text) if text.isascii() else 4 * len(text)
            if most <= _LATER_BYTES:
                return AtMost(most)
        return self.counter.limit_count(text)

    def message(
        self, message: Mapping[str, Any], id: str | None, attributes: Attributes, *, count_later: bool = False
    ) -> Draft:
        """Draft a chat message. Its own fields override those of the call.

        A message without words is kept too, such as an empty tool result or an image. Its content is empty or names
        its kind; `data` holds the message.
        """
        message = _whole_message(message)
        if not message.keys() & _SAID_KEYS:
            held = ", ".join(map(repr, message)) or "nothing"
            raise InvalidInput(f"a chat message has content or tool_calls; this one has {held}")
        plain = isinstance(message.get("content"), str) and not message.keys() - _PLAIN_MESSAGE_KEYS
        role = role_of_message(message) or attributes.role
        own = attributes._replace(
            role=role,
            trust=attributes.trust or (Trust.TOOL if _holds_results(message) else None),
            name=message.get("name") or attributes.name,
            session_id=message.get("session_id") or attributes.session_id,
            created_at=message.get("created_at") or attributes.created_at,
            metadata={**(attributes.metadata or {}), **checked_mapping(message.get("metadata") or {}, "metadata")},
        )
        data = None if plain else {key: value for key, value in message.items() if key != "created_at"}
        return self.text(
            _storable(message_text(message)), message.get("id") or id, own, data, count_later=count_later
        )

    def task(self, task: Task, id: str | None, attributes: Attributes) -> Draft:
        """Draft a task. Its importance is the given one, else that in its metadata, else that of its action.

        A task that carries a chat message (see `task_message`) is found by the words of the message, and has the
        trust of its role, unless the task's metadata names its `trust`.
        """
        if id is not None and id != task.task_id:
            raise InvalidInput(f"a task is kept under its own task_id {task.task_id!r}; leave id out")
        importance = attributes.importance
        if importance is None:
            importance = task.metadata.get("importance")
        inferred = importance is None
        if inferred:
            importance = ACTION_IMPORTANCE.get(task.action, DEFAULT_IMPORTANCE)
        message = task_message(task.parameters)
        role = attributes.role or (None if message is None else role_of_message(message))
        own = attributes._replace(
            role=role,
            name=attributes.name or (task.source_agent if message is None else message.get("name")) or None,
            session_id=attributes.session_id or task.session_id,
            created_at=attributes.created_at or task.created_at,
            importance=importance,
            kind=attributes.kind or MemoryType.TASK,
            trust=attributes.trust or _trust_of_task(task, message),
        )
        content = self._cleaned_task(task.to_dict())
        said = Task.from_dict(content) if self._sanitizer is not None else task
        text = checked_text(task_text(said)) if message is None else _storable(task_text(said))
        # Completing a task does not reduce an importance that was given.
        return self.text(text, task.task_id, own, content, revises=True, keep_data=True, lasting=inferred)

    def _cleaned_task(self, content: dict[str, Any]) -> dict[str, Any]:
        """The task as data with its free texts sanitised. Ids, action, status and times are not free texts."""
        if self._sanitizer is None:
            return content
        free = {key: self._cleaned(content[key]) for key in _FREE_PARTS if content.get(key)}
        return {**content, **free}

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._sanitizer.sanitize(value) if self._sanitizer is not None else value
        if isinstance(value, dict):
            return {key: self._cleaned(part) for key, part in value.items()}
        return [self._cleaned(part) for part in value] if isinstance(value, list) else value


def _is_model(value: object) -> bool:
    """Whether a value is an object of a provider's SDK: these are made with pydantic."""
    return callable(getattr(value, "model_dump", None)) and not isinstance(value, type)


def _opened(value: Any, depth: int = 0, is_dumped: bool = False) -> Any:
    """A message with nested SDK objects as mappings, without their empty fields."""
    if isinstance(value, str) or depth > _DEEPEST:
        return value
    if isinstance(value, Mapping):
        return {
            key: _opened(one, depth + 1, is_dumped) for key, one in value.items() if not (is_dumped and one is None)
        }
    if isinstance(value, list | tuple):
        return [_opened(one, depth + 1, is_dumped) for one in value]
    return _opened(value.model_dump(), depth + 1, True) if _is_model(value) else value


# The deepest nesting of a message that is read; storing refuses deeper ones.
_DEEPEST = 100


def _whole_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A content block, a tool call or a tool result as the message that it is a part of."""
    kind = message.get("type")
    if "role" in message or not isinstance(kind, str) or kind not in _ROLE_OF_PART:
        return message
    return {"role": _ROLE_OF_PART[kind], "tool_calls" if kind in ("function", "custom") else "content": [message]}


# Parts that may be remembered alone, with the role of each.
_ROLE_OF_PART = {
    "text": None,
    "output_text": "assistant",
    "thinking": "assistant",
    "tool_use": "assistant",
    "function": "assistant",
    "custom": "assistant",
    "function_call": "assistant",
    "tool_result": "tool",
    "function_call_output": "tool",
}


def checked_attributes(attributes: Attributes) -> Attributes:
    """Refuse attributes of a wrong type, which could only be stored after a conversion.

    Returns them with plain texts: a member of a `str` enumeration prints as its name, and is stored as its value.
    """
    if attributes is NO_ATTRIBUTES:
        return attributes
    role, name, session_id, _, importance, metadata, _, kind, dimensions = attributes
    for field, value in (("role", role), ("name", name), ("session_id", session_id), ("kind", kind)):
        if value is not None and type(value) is not str:
            changed: dict[str, Any] = {field: _plain(checked_instance(value, str, field))}
            attributes = attributes._replace(**changed)
    if importance is not None:
        checked_number(importance, "importance", 0.0, 1.0)
    if metadata:
        for key in checked_mapping(metadata, "metadata"):
            checked_instance(key, str, "a metadata key")
    if dimensions is not None:
        checked_instance(dimensions, Dimensions, "dimensions")
    return attributes


def _plain(text: str) -> str:
    return text if type(text) is str else str.__str__(text)


def known_trust(trust: str) -> Trust:
    """The trust of a name."""
    return checked_member(Trust, trust, "trust")


def checked_text(text: object, verb: str = "remember") -> str:
    """The text, if it can be stored verbatim; otherwise an error that says why not."""
    if not isinstance(text, str):
        taken = "text, a Task, a chat message or a list of them" if verb == "remember" else "text"
        raise InvalidInput(f"{verb}() takes {taken}, not {type(text).__name__}")
    if not text.strip():
        raise InvalidInput(f"the text is empty; there is nothing for {verb}() to keep")
    return _storable(_plain(text))


def _storable(text: str) -> str:
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
    """The trust of a speaker in a chat, if the caller gives none."""
    if role is None:
        return Trust.UNKNOWN
    return _TRUST_OF_ROLE.get(role) or _TRUST_OF_ROLE.get(role.casefold(), Trust.UNKNOWN)


_RESULTS = frozenset({"tool_result", "function_call_output"})


def role_of_message(message: Mapping[str, Any]) -> str | None:
    """The role of a chat message. A message of tool results alone has the role `tool`; in Anthropic's API its role is
    `user`."""
    role = message.get("role")
    return "tool" if role == "user" and _kinds(message) <= _RESULTS and _holds_results(message) else role


def trust_of_message(message: Mapping[str, Any]) -> Trust:
    """The trust of a chat message, if the caller gives none."""
    return Trust.TOOL if _holds_results(message) else trust_of_role(message.get("role"))


def _holds_results(message: Mapping[str, Any]) -> bool:
    """Whether a message contains results of tools. Such a message is not the user's own words, whatever its role."""
    return not _RESULTS.isdisjoint(_kinds(message))


def _kinds(message: Mapping[str, Any]) -> set[object]:
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else ()
    return {part.get("type") if isinstance(part, Mapping) else None for part in parts}


def message_text(message: Mapping[str, Any]) -> str:
    """The words of a chat message: its text parts, its calls, and its captions.

    Without words, the kinds of its parts, such as `[image]`; empty for a message that holds nothing.
    """
    parts = [_content_text(message.get("content"))]
    calls = message.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise InvalidInput(f"the tool_calls of a message must be a list, not {type(calls).__name__}")
    parts += [_call_text(call) for call in calls]
    if isinstance(message.get("function_call"), Mapping):  # the predecessor of tool_calls
        parts.append(_function_text(message["function_call"], "arguments"))
    if isinstance(message.get("refusal"), str):
        parts.append(message["refusal"])
    return "\n".join(part for part in parts if part)


def _call_text(call: object) -> str:
    if isinstance(call, Mapping):
        for kind, given in (("function", "arguments"), ("custom", "input")):
            if isinstance(call.get(kind), Mapping):
                return _function_text(call[kind], given)
    raise InvalidInput("a tool call needs a function with a name")


def _function_text(function: Mapping[str, Any], given: str) -> str:
    return f"{function.get('name', '')}({function.get(given, '')})"


def _content_text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        words = "\n".join(text for text in map(_part_text, content) if text)
        return words if words.strip() else "\n".join(kind for kind in map(_part_kind, content) if kind)
    raise InvalidInput(f"the content of a message must be text or a list of parts, not {type(content).__name__}")


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InvalidInput(f"a part of a message must be text or an object, not {type(part).__name__}")
    for key in ("text", "caption", "alt", "refusal"):
        if isinstance(part.get(key), str):
            return str(part[key])
    if part.get("type") in _RESULTS:
        return _content_text(part.get("content", part.get("output")))
    if part.get("type") == "function_call":
        return _function_text(part, "arguments")
    if part.get("type") == "tool_use":
        return f"{part.get('name', '')}({json.dumps(part.get('input'), ensure_ascii=False)})"
    return ""


# Parts with nothing to show: empty texts, and a model's thoughts.
_WITHOUT_MARK = frozenset(
    {"text", "input_text", "output_text", "tool_result", "function_call_output", "thinking", "redacted_thinking"}
)


def _part_kind(part: object) -> str:
    """The kind of a part without words, from its type: `image_url` and `input_image` are images."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or kind in _WITHOUT_MARK or not _KIND.fullmatch(kind):
        return ""
    return f"[{kind.removeprefix('input_').removesuffix('_url')}]"


_KIND = re.compile("[a-z][a-z_]{0,30}")


def task_message(parameters: object) -> Mapping[str, Any] | None:
    """The chat message in a task's parameter `message`: a mapping with a role and content or tool calls. None
    without one."""
    message = parameters.get("message") if isinstance(parameters, Mapping) else None
    if isinstance(message, Mapping) and isinstance(message.get("role"), str) and message.keys() & _SAID_KEYS:
        return message
    return None


def _trust_of_task(task: Task, message: Mapping[str, Any] | None) -> Trust:
    if message is None:
        return Trust.AGENT
    named = task.metadata.get("trust")
    return known_trust(named) if named is not None else trust_of_message(message)


def task_text(task: Task) -> str:
    """The text of a task for people and for search: the words of its chat message, or else its action, parameters,
    result and error."""
    message = task_message(task.parameters)
    if message is not None:
        return message_text(message)
    lines = [task.action or MemoryType.TASK]
    lines += [f"{key}: {value_text(value)}" for key, value in task.parameters.items()]
    if task.result is not None:
        lines.append(f"result: {value_text(task.result)}")
    if task.error:
        lines.append(f"error: {task.error}")
    return "\n".join(lines)
