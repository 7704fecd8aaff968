"""Lists of chat messages in the forms of OpenAI, Anthropic and LangChain.

A file is an array of messages, an object with `messages`, an array of such objects, or JSON Lines of any of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, Final

from loom.errors import InvalidInput
from loom.importers.conversations import array_or_one, each_of, until_malformed
from loom.importers.json_reader import JsonReader
from loom.importers.messages import (
    HistoryMessage,
    ImportProblem,
    Read,
    SourceFile,
    digest_id,
    messages_of,
    moment_of,
    split_results,
    text_field,
    values_in,
)

__all__ = ["NAME", "is_message", "read", "read_lines"]

NAME: Final = "messages"

_ROLES = ("user", "assistant", "system", "developer", "tool", "function")
_LANGCHAIN = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
}
_SESSIONS = ("id", "session_id", "thread_id", "conversation_id")
_ITEMS = ("function_call", "function_call_output", "message")


def is_message(found: Mapping[str, Any]) -> bool:
    """Return whether an object is a message in one of the forms, or holds a list of messages."""
    if isinstance(found.get("messages"), list):
        return any(isinstance(one, Mapping) and is_message(one) for one in found["messages"][:3])
    if found.get("role") in _ROLES:
        return bool(found.keys() & {"content", "tool_calls", "function_call"})
    return found.get("type") in _ITEMS or _langchain_fields(found) is not None


def read(file: SourceFile, opened: BinaryIO) -> Read:
    """Yield the messages of a JSON document one at a time, even if one object holds a long list of them."""
    return until_malformed(file, _document(file, JsonReader(opened)))


def _document(file: SourceFile, reader: JsonReader) -> Read:
    session = file.stem
    if reader.kind() != "{":
        yield from _conversation(file, array_or_one(file, reader), session)
        return
    for name in reader.members():
        if name in _SESSIONS and reader.kind() == '"':
            session = str(reader.value())
        elif name == "messages":
            yield from _conversation(file, array_or_one(file, reader), session)


def read_lines(file: SourceFile, opened: BinaryIO) -> Read:
    """Yield the messages of JSON Lines. Each line is a message or a list of messages."""
    return _conversation(file, values_in(file, opened), file.stem)


def _conversation(file: SourceFile, values: Iterator[Any], session: str) -> Read:
    """Yield the messages of a list. An element with a list of messages is a separate conversation."""
    for number, value in enumerate(values, 1):
        if isinstance(value, ImportProblem):
            yield value
            continue
        held = value.get("messages") if isinstance(value, Mapping) else value
        if isinstance(held, list):
            own = text_field(value, *_SESSIONS) if held is not value else None
            messages = partial(_messages, session=own or f"{session}-{number}")
            yield from each_of(file, f"item {number:,}, message", held, messages)
        else:
            try:
                yield from messages_of(value, f"message {number:,}", partial(_messages, session=session))
            except InvalidInput as error:
                yield ImportProblem(file.name, f"message {number:,}", str(error))


def _messages(found: Mapping[str, Any], position: str, session: str) -> Iterator[HistoryMessage]:
    plain = _from_langchain(found) or _from_item(found) or found
    if plain.get("role") not in _ROLES:
        raise InvalidInput("it is not a message: it has no known role")
    for place, said in enumerate(split_results(plain)):
        message = {
            name: said[name]
            for name in ("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal")
            if said.get(name) is not None
        }
        told = json.dumps(message, ensure_ascii=False, sort_keys=True)
        metadata = {"model": model} if (model := text_field(found, "model")) else {}
        yield HistoryMessage(
            # The place in the list is part of the id, so that the same words said twice stay two messages.
            digest_id(NAME, session, position, place, told),
            {"content": None, **message},
            position,
            text_field(found, "session_id", "thread_id") or session,
            moment_of(found.get("created_at", found.get("timestamp"))),
            metadata,
        )


def _from_item(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert a call or a result of OpenAI's Responses API to a message, or return None."""
    if found.get("type") == "function_call":
        function = {"name": found.get("name"), "arguments": found.get("arguments")}
        call = {"id": found.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "tool", "content": [found]} if found.get("type") == "function_call_output" else None


# --- LangChain -----------------------------------------------------------------------------------------------


def _langchain_fields(found: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the role and the fields of a LangChain message in any of its three forms, or None."""
    if found.get("lc") == 1 and isinstance(found.get("id"), list) and found["id"]:
        role, fields = _LANGCHAIN.get(str(found["id"][-1])), found.get("kwargs")
    else:
        role, fields = _LANGCHAIN.get(str(found.get("type"))), found.get("data", found)
    if role is None or not isinstance(fields, Mapping) or "content" not in fields:
        return None
    return role, fields


def _from_langchain(found: Mapping[str, Any]) -> dict[str, Any] | None:
    told = None if "role" in found else _langchain_fields(found)
    if told is None:
        return None
    role, fields = told
    message: dict[str, Any] = {"role": role, "content": fields["content"]}
    for name in ("name", "tool_call_id"):
        if text := text_field(fields, name):
            message[name] = text
    calls = fields.get("tool_calls")
    if isinstance(calls, list) and calls and role == "assistant":
        message["tool_calls"] = [_call(call) for call in calls]
        if isinstance(message["content"], list):  # messages of Anthropic's models repeat the calls among the parts
            kept = [
                one for one in message["content"] if not (isinstance(one, Mapping) and one.get("type") == "tool_use")
            ]
            message["content"] = kept or None
    return message


def _call(call: Any) -> dict[str, Any]:
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        raise InvalidInput("a tool call has no name")
    arguments = json.dumps(call.get("args"), ensure_ascii=False)
    return {"id": call.get("id"), "type": "function", "function": {"name": call["name"], "arguments": arguments}}
