"""Rollouts of Codex: a file of JSON Lines for each session, below `~/.codex/sessions`.

The messages are the items of the conversation with the model. Text that the program inserts (its instructions, the
environment, the contents of AGENTS.md) and its notes about events are left out.

A fork is a session that continues another one. Newer versions of Codex refer to the rollout of the other session.
Older versions repeat its header and its turns after the fork's own header, with new times. The repeated turns are
left out, since the other rollout has them. They are recognised by their ids: UUIDs of version 7 that are older than
the fork's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import UUID

from loom.errors import InvalidInput
from loom.importers.messages import (
    HistoryMessage,
    Read,
    SourceFile,
    digest_id,
    in_line,
    in_lines,
    moment_of,
    native_id,
    split_results,
    text_field,
)

__all__ = ["NAME", "RolloutState", "is_line", "own_folder", "read", "read_line"]

NAME: Final = "codex"

_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state")
_OF_THE_PROGRAM = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions",
    "# AGENTS.md instructions",
    "<skill",
)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


@dataclass(slots=True)
class RolloutState:
    """The session, project and model that earlier lines named; `repeats` is True while lines repeat another
    session."""

    session: str | None = None
    project: str | None = None
    model: str | None = None
    is_fork: bool = False
    repeats: bool = False


def own_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder with the rollouts of this user."""
    base = environ.get("CODEX_HOME")
    return (Path(base) if base else Path(environ.get("HOME") or Path.home(), ".codex")) / "sessions"


def is_line(found: Mapping[str, Any]) -> bool:
    """Return whether an object is a line of a rollout. The first line of older versions has no type."""
    if found.get("type") in _TYPES and isinstance(found.get("payload"), Mapping):
        return True
    return {"id", "timestamp", "instructions"} <= found.keys()


def read(file: SourceFile, opened: BinaryIO) -> Read:
    return in_lines(file, opened, partial(_messages, state=RolloutState()))


def read_line(name: str, position: str, line: bytes, state: RolloutState) -> Read:
    """Yield the messages of one line. `state` carries over from line to line."""
    return in_line(name, position, line, partial(_messages, state=state))


def _messages(found: Mapping[str, Any], position: str, state: RolloutState) -> Iterator[HistoryMessage]:
    kind, item = found.get("type"), found.get("payload")
    if kind == "session_meta" or (kind is None and "instructions" in found):
        meta = item if isinstance(item, Mapping) else found
        named = text_field(meta, "id", "session_id")
        state.is_fork = state.is_fork or state.session not in (None, named)
        state.session = state.session or named
        state.project = text_field(meta, "cwd") or state.project
        return
    if isinstance(item, Mapping) and (turn := text_field(item, "turn_id")):
        state.repeats = state.is_fork and _is_older(turn, state.session)
    if kind == "turn_context" and isinstance(item, Mapping):
        state.model = text_field(item, "model") or state.model
        state.project = text_field(item, "cwd") or state.project
        return
    if kind == "response_item":
        if not isinstance(item, Mapping):
            raise InvalidInput("a response item has no payload")
    elif kind in ("message", *_CALLS, *_RESULTS):  # older versions wrote the items without an envelope
        item = found
    else:
        return
    if state.repeats:
        return
    for place, message in enumerate(_of_item(item)):
        told = {"model": state.model if message["role"] == "assistant" else None, "project": state.project}
        line = _line_id(found, position)
        yield HistoryMessage(
            native_id(NAME, state.session, line, str(place)) or digest_id(NAME, line, place),
            message,
            position,
            state.session,
            moment_of(found.get("timestamp")),
            {name: value for name, value in told.items() if value is not None},
            project=state.project,
        )


def _line_id(found: Mapping[str, Any], position: str) -> str:
    """Return the id of a line within its session.

    A line with a time is identified by its content, so that hooks, which count bytes, and imports, which count lines,
    store it under the same id. Lines of older versions have no time; their positions distinguish equal ones.
    """
    if not isinstance(found.get("timestamp"), str):
        return position.removeprefix("line ")
    content = json.dumps(found, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _is_older(turn: str, session: str | None) -> bool:
    """Return whether a turn began before a session, according to their ids: UUIDs of version 7 begin with a time."""
    try:
        ids = UUID(turn), UUID(session or "")
    except ValueError:
        return False
    return ids[0].version == ids[1].version == 7 and ids[0].int < ids[1].int


def _of_item(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    kind = item.get("type")
    if kind == "message":
        role, content = item.get("role"), item.get("content")
        if role not in ("user", "assistant"):
            return []
        if isinstance(content, list):
            content = [part for part in content if not _is_added(part)]
        return [one for one in split_results({"role": role, "content": content}) if one["content"] not in ("", [])]
    if kind in _CALLS:
        given = item.get("arguments", item.get("input", item.get("action")))
        told = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        function = {"name": text_field(item, "name") or str(kind).removesuffix("_call"), "arguments": told}
        call = {"id": text_field(item, "call_id") or "", "type": "function", "function": function}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]
    if kind in _RESULTS:
        output = item.get("output")
        if isinstance(output, Mapping):
            output = output.get("content", output.get("output"))
        part = {"type": "tool_result", "content": output, "tool_use_id": item.get("call_id")}
        return split_results({"role": "tool", "content": [part]})
    return []


def _is_added(part: Any) -> bool:
    text = part.get("text") if isinstance(part, Mapping) else None
    return isinstance(text, str) and text.lstrip().startswith(_OF_THE_PROGRAM)
