"""Exports of mem0: the output of `get_all` or of an export, as an array, an object with `results`, or JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    native_id,
    text_field,
    values_in,
)

__all__ = ["LISTS", "NAME", "is_memory", "read", "read_lines"]

NAME: Final = "mem0"
LISTS: Final = ("results", "memories")
"""The members of a document that hold memories."""

_SCOPES = ("user_id", "agent_id", "app_id", "actor_id")


def is_memory(found: Mapping[str, Any]) -> bool:
    """Return whether an object is a memory of an export."""
    return isinstance(found.get("memory"), str) and bool(found.keys() & {"id", "hash", "user_id", "created_at"})


def read(file: SourceFile, opened: BinaryIO) -> Read:
    return until_malformed(file, _document(file, JsonReader(opened)))


def _document(file: SourceFile, reader: JsonReader) -> Read:
    if reader.kind() != "{":
        yield from _memories(file, array_or_one(file, reader))
        return
    for name in reader.members():
        if name in LISTS:
            yield from _memories(file, array_or_one(file, reader))


def read_lines(file: SourceFile, opened: BinaryIO) -> Read:
    return _memories(file, values_in(file, opened))


def _memories(file: SourceFile, values: Iterator[Any]) -> Read:
    return each_of(file, "memory", values, _memory)


def _memory(found: Mapping[str, Any], position: str) -> Iterator[HistoryMessage]:
    text = text_field(found, "memory")
    if text is None:
        raise InvalidInput("it has no memory")
    own = found.get("metadata")
    told = dict(own) if isinstance(own, Mapping) else {}
    told |= {name: found[name] for name in _SCOPES if isinstance(found.get(name), str)}
    if isinstance(found.get("categories"), list):
        told["categories"] = [one for one in found["categories"] if isinstance(one, str)]
    # A model wrote these texts, whatever the role of the source message is.
    yield HistoryMessage(
        native_id(NAME, found.get("id")) or digest_id(NAME, found.get("user_id"), text),
        {"role": None, "content": text},
        position,
        text_field(found, "run_id"),
        moment_of(found.get("created_at")) or moment_of(found.get("updated_at")),
        told,
        trust="agent",
    )
