"""Recognises the format of a file by its beginning, never by its name alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final, NamedTuple

from loom.errors import InvalidInput
from loom.importers import (
    chat_lists,
    chatgpt,
    claude_ai,
    claude_code,
    codex,
    letta,
    markdown_notes,
    mem0,
    memory_graph,
)
from loom.importers.json_reader import JsonReader, MalformedValue, lines_of, parsed_json
from loom.importers.messages import Read, SourceFile
from loom.importers.record_lines import FORMAT

__all__ = ["AGENTS", "FORMATS", "LONGEST_LINE_LOOKED_AT", "OWN", "HistoryFormat", "recognised"]

OWN: Final = FORMAT
"""The name of loom's own format; `importing` reads it."""

_LINES_LOOKED_AT = 20
LONGEST_LINE_LOOKED_AT: Final = 4 * 1024 * 1024
"""Longer lines are not examined: a file with one line may be a document."""

_MEMBERS_LOOKED_AT = 40
# Members that decide the format of a document.
_DECIDING = letta.MARKS | {"mapping", "chat_messages"}
_BYTES_LOOKED_AT = 64 * 1024 * 1024


class HistoryFormat(NamedTuple):
    """A format: its name, its description for people, and the function that reads it."""

    name: str
    called: str
    read: Callable[[SourceFile, BinaryIO], Read]


FORMATS: Final[Mapping[str, str]] = {
    claude_code.NAME: "transcripts of Claude Code",
    codex.NAME: "rollouts of Codex",
    chatgpt.NAME: "exports of ChatGPT",
    claude_ai.NAME: "exports of Claude.ai",
    chat_lists.NAME: "lists of messages in the forms of OpenAI, Anthropic and LangChain",
    memory_graph.NAME: "the file of the reference memory server",
    mem0.NAME: "exports of mem0",
    letta.NAME: "agent files of Letta",
    markdown_notes.NAME: "folders of Markdown",
    OWN: "exports of loom",
}
"""The formats by their names."""

AGENTS: Final = {claude_code.NAME: claude_code.own_folder, codex.NAME: codex.own_folder}
"""The folders of the programs that keep a history on this machine."""

# The formats of lines, in the order in which they are tried.
_OF_LINES: tuple[tuple[str, Callable[[Mapping[str, Any]], bool], Callable[[SourceFile, BinaryIO], Read]], ...] = (
    (claude_code.NAME, claude_code.is_line, claude_code.read),
    (codex.NAME, codex.is_line, codex.read),
    (memory_graph.NAME, memory_graph.is_line, memory_graph.read),
    (mem0.NAME, mem0.is_memory, mem0.read_lines),
    (chat_lists.NAME, chat_lists.is_message, chat_lists.read_lines),
)
_OF_ELEMENTS: tuple[tuple[str, Callable[[Mapping[str, Any]], bool], Callable[[SourceFile, BinaryIO], Read]], ...] = (
    (chatgpt.NAME, chatgpt.is_conversation, chatgpt.read),
    (claude_ai.NAME, claude_ai.is_conversation, claude_ai.read),
    (mem0.NAME, mem0.is_memory, mem0.read),
    (chat_lists.NAME, chat_lists.is_message, chat_lists.read),
)


def recognised(file: SourceFile, wanted: str | None = None) -> HistoryFormat | None:
    """Return the format of a file, or None if it is unknown or differs from `wanted`."""
    if file.name.lower().endswith((".md", ".markdown")):
        found: HistoryFormat | None = _named(markdown_notes.NAME, markdown_notes.read)
    else:
        with file.open() as opened:
            found = _of_lines(opened)
        if found is None:
            with file.open() as opened:
                found = _of_document(opened)
    return found if found is not None and wanted in (None, found.name) else None


def _named(name: str, read: Callable[[SourceFile, BinaryIO], Read]) -> HistoryFormat:
    return HistoryFormat(name, FORMATS[name], read)


def _own(_: SourceFile, __: BinaryIO) -> Read:
    raise InvalidInput("an export of loom must be imported alone, not among other files")


def _of_lines(opened: BinaryIO) -> HistoryFormat | None:
    """Return the format of JSON Lines, decided by the first lines, or None."""
    shown: list[Mapping[str, Any]] = []
    for line in lines_of(opened, largest=LONGEST_LINE_LOOKED_AT):
        if line.number > _LINES_LOOKED_AT:
            break
        try:
            value = parsed_json(line.text or b"", repair=True)
        except InvalidInput:
            continue
        if isinstance(value, Mapping):
            if line.number == 1 and value.get("format") == OWN:
                return _named(OWN, _own)
            shown.append(value)
        elif isinstance(value, list) and line.number > 1:
            shown += [one for one in value[:1] if isinstance(one, Mapping)]
    if len(shown) < 2 and shown and shown[0].keys() & {"mapping", "chat_messages"}:
        return None  # a document in one line
    for name, is_of, read in _OF_LINES:
        if any(is_of(one) for one in shown):
            return _named(name, read)
    return None


def _of_document(opened: BinaryIO) -> HistoryFormat | None:
    """Return the format of a JSON document, decided by its first elements or the names of its members, or None."""
    reader = JsonReader(opened)
    try:
        if reader.kind() == "[":
            return _of_elements(reader)
        return _of_members(reader) if reader.kind() == "{" else None
    except MalformedValue:
        return None


def _of_elements(reader: JsonReader) -> HistoryFormat | None:
    for number, position in enumerate(reader.elements()):
        if number == _LINES_LOOKED_AT or position > _BYTES_LOOKED_AT:
            break
        try:
            element = reader.value()
        except MalformedValue:
            continue
        for one in _itself_or_first(element):
            for name, is_of, read in _OF_ELEMENTS:
                if is_of(one):
                    return _named(name, read)
    return None


def _itself_or_first(element: object) -> Iterator[Mapping[str, Any]]:
    """Yield an element, or its first item if it is a list, since a conversation may be a list of messages."""
    first = element[0] if isinstance(element, list) and element else element
    if isinstance(first, Mapping):
        yield first


def _of_members(reader: JsonReader) -> HistoryFormat | None:
    """Decide by the names of the members and by the first elements of lists that may hold records."""
    names: set[str] = set()
    lists: dict[str, HistoryFormat | None] = {}
    try:
        for name in reader.members():
            names.add(name)
            if name in ("messages", *mem0.LISTS) and reader.kind() == "[":
                lists[name] = _of_elements(reader)
            if len(names) > _MEMBERS_LOOKED_AT or reader.position > _BYTES_LOOKED_AT or names & _DECIDING:
                break
    except MalformedValue:
        pass  # a truncated file is recognised by the part that remains
    if "mapping" in names:
        return _named(chatgpt.NAME, chatgpt.read)
    if "chat_messages" in names:
        return _named(claude_ai.NAME, claude_ai.read)
    if names & letta.MARKS:
        return _named(letta.NAME, letta.read)
    if (held := lists.get("messages")) is not None and held.name == chat_lists.NAME:
        return held
    found = next((lists[name] for name in mem0.LISTS if lists.get(name)), None)
    return found if found is not None and found.name == mem0.NAME else None
