"""The common form of all formats: messages, each with its position in a file, and problems.

The reader of a format only converts a file into this form; `histories` masks, filters and writes the messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO, NamedTuple

from loom.errors import InvalidInput
from loom.importers.json_reader import lines_of, parsed_json
from loom.protocol import checked_time

__all__ = [
    "HistoryMessage",
    "ImportProblem",
    "Messages",
    "Read",
    "SourceFile",
    "branch_to",
    "digest_id",
    "in_line",
    "in_lines",
    "messages_of",
    "moment_of",
    "native_id",
    "objects_in",
    "split_results",
    "text_field",
    "values_in",
]

_LONGEST_ID = 120
_YEARS = (1990, 2200)
_MILLISECONDS_FROM = 1e11
# Parts whose bytes are not stored. These are tuples, because values in a file may be unhashable.
_HEAVY_PARTS = ("image", "image_url", "input_image", "document", "file", "input_file", "audio", "input_audio")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")


class ImportProblem(NamedTuple):
    """A part of a file that was not imported: its position and the reason. `is_cut`: the file is truncated there."""

    file: str
    position: str
    reason: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a history: a file on disk, or a member of a zip archive. `stem` is its name without folders."""

    name: str
    stem: str
    modified: datetime
    size: int
    open: Callable[[], BinaryIO]


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """One message of a history. The same part of the same file always has the same `id`.

    `message` has a role and content, like a chat message. Without `created_at`, the time of the file counts. Without
    `trust`, the role determines it. `project` is the folder in which an agent worked.
    """

    id: str
    message: Mapping[str, Any]
    position: str
    session_id: str | None = None
    created_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trust: str | None = None
    kind: str | None = None
    project: str | None = None


Read = Iterator[HistoryMessage | ImportProblem]
"""The output of a reader for a file."""

Messages = Callable[[Mapping[str, Any], str], Iterator[HistoryMessage]]
"""Reads the messages of the object at a position. It may raise `InvalidInput`."""


def messages_of(found: object, position: str, messages: Messages) -> Iterator[HistoryMessage]:
    """Read the messages of a value. Raises `InvalidInput` for a value that is not an object."""
    if not isinstance(found, Mapping):
        raise InvalidInput("it is not a JSON object")
    return messages(found, position)


def in_lines(file: SourceFile, opened: BinaryIO, messages: Messages) -> Read:
    """Yield the messages of each line of JSON, and a problem for each line that cannot be read."""
    for line in _lines_in(file, opened):
        if isinstance(line, ImportProblem):
            yield line
        else:
            yield from in_line(file.name, *line, messages)


def in_line(name: str, position: str, line: bytes, messages: Messages) -> Read:
    """Yield the messages of one line of JSON, or a problem.

    Programs write a line in one piece, so a last line without a line break is an interrupted write.
    """
    try:
        yield from messages_of(parsed_json(line, repair=True), position, messages)
    except InvalidInput as error:
        yield ImportProblem(name, position, str(error), is_cut=not line.endswith(b"\n"))


def _lines_in(file: SourceFile, opened: BinaryIO) -> Iterator[tuple[str, bytes] | ImportProblem]:
    """Yield the position and the bytes of each line that is not empty, and a problem for each that is too long."""
    for line in lines_of(opened):
        position = f"line {line.number:,}"
        if line.text is None:
            yield ImportProblem(file.name, position, "it is too long")
        elif line.text.strip():
            yield position, line.text


def values_in(file: SourceFile, opened: BinaryIO) -> Iterator[Any]:
    """Yield the value of each line of JSON, or a problem in its place."""
    for line in _lines_in(file, opened):
        if isinstance(line, ImportProblem):
            yield line
            continue
        position, text = line
        try:
            yield parsed_json(text, repair=True)
        except InvalidInput as error:
            yield ImportProblem(file.name, position, str(error), is_cut=not text.endswith(b"\n"))


def digest_id(format_name: str, *parts: object) -> str:
    """Return an id derived from the parts that identify a message, for formats without ids."""
    told = "\0".join(str(part) for part in parts)
    return f"{format_name}:{hashlib.blake2b(told.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"


def native_id(format_name: str, *parts: object) -> str | None:
    """Return an id made of the ids in the file, or None if one of them is missing or not a text."""
    if not all(isinstance(part, str) and part for part in parts):
        return None
    told = ":".join(map(str, parts))
    return f"{format_name}:{told}" if len(told) <= _LONGEST_ID else digest_id(format_name, *parts)


def moment_of(value: object) -> datetime | None:
    """Parse a time in ISO 8601, or in seconds or milliseconds since 1970. Returns None for other values."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            found = found if found.tzinfo else found.replace(tzinfo=UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = datetime.fromtimestamp(value / 1000 if abs(value) >= _MILLISECONDS_FROM else value, UTC)
        else:
            return None
        return checked_time(found, "created_at") if _YEARS[0] <= found.year <= _YEARS[1] else None
    except (OverflowError, ValueError, OSError):
        return None


def text_field(found: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of the fields that is a non-empty text, or None."""
    return next((found[name] for name in names if isinstance(found.get(name), str) and found[name]), None)


def objects_in(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list; empty if the value is not a list."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def branch_to(leaf: object, parents: Mapping[str, Any]) -> list[str]:
    """Return the names of the nodes from the root of a tree to a leaf. Each node of a cycle occurs once."""
    path: list[str] = []
    seen: set[str] = set()
    while isinstance(leaf, str) and leaf in parents and leaf not in seen:
        seen.add(leaf)
        path.append(leaf)
        leaf = parents[leaf]
    return path[::-1]


def split_results(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split a message in the form of Anthropic's or OpenAI's API into messages of one speaker each.

    Results of tools inside a message become messages with the role `tool`, in their order. The reasoning of a model
    is left out, and pictures and files are named without their bytes.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return [dict(message)]
    split: list[dict[str, Any]] = []
    own: list[Any] = []

    def end_own(calls: bool = False) -> None:
        if own or calls:
            kept = {**message, "content": _plain(own)}
            if not calls:
                kept.pop("tool_calls", None)
            split.append(kept)
            own.clear()

    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("tool_result", "function_call_output"):
            end_own()
            split.append(_result(part))
        elif kind not in _THOUGHTS:
            own.append({"type": kind} if kind in _HEAVY_PARTS else part)
    end_own(bool(message.get("tool_calls")) or not content)
    return split


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    content = part.get("content", part.get("output"))
    if isinstance(content, list):
        parts = [one for one in content if isinstance(one, Mapping | str)]
        content = _plain([_light(one) for one in parts])
    elif not isinstance(content, str):
        content = "" if content is None else str(content)
    told = {"role": "tool", "content": content}
    called = part.get("tool_use_id", part.get("call_id"))
    return {**told, "tool_call_id": called} if isinstance(called, str) else told


def _light(part: Mapping[str, Any] | str) -> Mapping[str, Any] | str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return {"type": kind} if kind in _HEAVY_PARTS else part


def _plain(parts: Sequence[Any]) -> Any:
    """Return the text if there is a single text part, otherwise the parts."""
    if len(parts) == 1 and isinstance(parts[0], Mapping):
        only = parts[0]
        if only.get("type") in ("text", "input_text", "output_text") and isinstance(only.get("text"), str):
            return only["text"]
    return list(parts)
