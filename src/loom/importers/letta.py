"""Agent files of Letta (`.af`): the messages of each agent, and the blocks of its memory.

Both forms are read: a document for one agent, and a document with lists of agents and blocks. System prompts, which
repeat the blocks, and the signals with which Letta wakes an agent are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final

from loom.errors import InvalidInput
from loom.importers.conversations import array_or_one, each_of, until_malformed
from loom.importers.json_reader import JsonReader
from loom.importers.messages import (
    HistoryMessage,
    Read,
    SourceFile,
    digest_id,
    moment_of,
    objects_in,
    split_results,
    text_field,
)

__all__ = ["MARKS", "NAME", "read"]

NAME: Final = "letta"
MARKS: Final = frozenset({"agents", "core_memory", "agent_type", "llm_config", "in_context_message_ids"})
"""The members by which a document of Letta is recognised."""

_ROLES = ("user", "assistant", "tool")
_WORDS_OF_USERS = ("user_message", "message")


@dataclass(slots=True)
class _Agent:
    """The agent whose members are read at present."""

    name: str
    messages: int = 0


def read(file: SourceFile, opened: BinaryIO) -> Read:
    return until_malformed(file, _document(file, JsonReader(opened), _Agent(file.stem)))


def _document(file: SourceFile, reader: JsonReader, agent: _Agent) -> Read:
    for member in reader.members():
        if member == "agents" and reader.kind() == "[":
            for number, _ in enumerate(reader.elements(), 1):
                if reader.kind() == "{":
                    yield from _document(file, reader, _Agent(f"{file.stem}-{number}"))
        elif member == "name" and reader.kind() == '"':
            agent.name = str(reader.value()) or agent.name
        elif member == "messages" and reader.kind() == "[":
            called = f"agent {agent.name[:40]}, message"
            yield from each_of(file, called, array_or_one(file, reader), partial(_messages, agent=agent))
        elif member in ("blocks", "core_memory") and reader.kind() == "[":
            yield from each_of(file, "block", array_or_one(file, reader), partial(_block, file=file))


def _block(found: Mapping[str, Any], position: str, file: SourceFile) -> Iterator[HistoryMessage]:
    text, label = text_field(found, "value"), text_field(found, "label")
    if not isinstance(found.get("value"), str) or label is None:
        raise InvalidInput("a block lacks its label or its value")
    if text and text.strip():
        yield HistoryMessage(
            digest_id(NAME, file.stem, label, text),
            {"role": None, "content": f"{label}: {text}"},
            position,
            created_at=moment_of(found.get("updated_at")) or moment_of(found.get("created_at")),
            metadata={"block": label},
            trust="agent",
            kind="context",
        )


def _messages(found: Mapping[str, Any], position: str, agent: _Agent) -> Iterator[HistoryMessage]:
    role = found.get("role")
    if not isinstance(role, str):
        raise InvalidInput("a message has no role")
    if role not in _ROLES:
        return
    agent.messages += 1
    content = found.get("content", found.get("text"))
    message: dict[str, Any] = {"role": role, "content": content}
    spoken: list[str] = []
    if role == "assistant":
        calls = objects_in(found.get("tool_calls"))
        spoken = [words for call in calls if (words := _spoken(call)) is not None]
        others = [call for call in calls if _spoken(call) is None]
        # In a message with a call, the content is the model's reasoning.
        message["content"] = "\n".join(spoken) if spoken else (None if others else content)
        message |= {"tool_calls": others} if others else {}
    if name := text_field(found, "name"):
        message["name"] = name
    for place, said in enumerate(split_results(message)):
        words = _unpacked(said)
        if words is None or (words in ("", []) and not said.get("tool_calls")):
            continue
        model = text_field(found, "model")
        yield HistoryMessage(
            digest_id(NAME, agent.name, found.get("id"), found.get("created_at"), agent.messages, place),
            {**said, "content": words},
            position,
            agent.name,
            moment_of(found.get("created_at")),
            {"agent": agent.name, **({"model": model} if model else {})},
        )


def _spoken(call: Mapping[str, Any]) -> str | None:
    """Return the text that an agent sends to the user by calling `send_message`, or None."""
    function = call.get("function")
    if not isinstance(function, Mapping) or function.get("name") != "send_message":
        return None
    found = _object(function.get("arguments"))
    return text_field(found, "message") if found else None


def _unpacked(said: Mapping[str, Any]) -> Any:
    """Return the text of a message that Letta wrapped in JSON, or None for a signal that wakes an agent."""
    content = said.get("content")
    found = _object(content)
    if found is None:
        return "" if content is None else content
    kind, words = found.get("type"), text_field(found, "message")
    if said["role"] == "tool" and "status" in found:
        return words or ""
    if said["role"] == "user" and isinstance(kind, str):
        return words if kind in _WORDS_OF_USERS else None
    return content


def _object(text: object) -> Mapping[str, Any] | None:
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
