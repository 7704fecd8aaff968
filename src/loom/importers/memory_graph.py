"""The file of the reference memory server: JSON Lines of entities with their observations, and of relations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from loom.errors import InvalidInput
from loom.importers.messages import HistoryMessage, Read, SourceFile, digest_id, in_lines

__all__ = ["NAME", "is_line", "read"]

NAME: Final = "memory-graph"


def is_line(found: Mapping[str, Any]) -> bool:
    """Return whether an object is a line of the file."""
    return (found.get("type") == "entity" and {"name", "entityType"} <= found.keys()) or (
        found.get("type") == "relation" and {"from", "to", "relationType"} <= found.keys()
    )


def read(file: SourceFile, opened: BinaryIO) -> Read:
    return in_lines(file, opened, _messages)


def _messages(found: Mapping[str, Any], position: str) -> Iterator[HistoryMessage]:
    if not is_line(found):
        raise InvalidInput("it is neither an entity nor a relation")
    if found["type"] == "relation":
        ends = [found["from"], found["relationType"], found["to"]]
        if not all(isinstance(one, str) for one in ends):
            raise InvalidInput("from, relationType and to of a relation must be texts")
        yield _memory(" ".join(ends).replace("_", " "), position, {"entities": [ends[0], ends[2]]}, *ends)
        return
    name, kind, told = found["name"], found["entityType"], found.get("observations", [])
    if not isinstance(name, str) or not isinstance(kind, str) or not isinstance(told, list):
        raise InvalidInput("an entity must have a name, an entityType and a list of observations")
    metadata = {"entities": [name], "entity_type": kind}
    if not told:
        yield _memory(f"{name}: {kind}", position, metadata, name, kind)
    for observation in told:
        if not isinstance(observation, str):
            raise InvalidInput("an observation must be a text")
        yield _memory(f"{name}: {observation}", position, metadata, name, observation)


def _memory(text: str, position: str, metadata: Mapping[str, Any], *identity: str) -> HistoryMessage:
    # A model wrote these texts.
    return HistoryMessage(
        digest_id(NAME, *identity), {"role": None, "content": text}, position, metadata=metadata, trust="agent"
    )
