"""The format `loom-jsonl`: a header, a line for each version of each record, and a last line with the record count.

Each line is one JSON object in UTF-8. Values that are None, empty or False are omitted. Lines are in the order of
writing, so a version of an id always comes after the earlier ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from loom.checks import checked_number
from loom.errors import InvalidInput
from loom.importers.json_reader import parsed_json
from loom.protocol import checked_time
from loom.storage.contract import Dimensions, Record
from loom.types import Trust

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "RecordLine",
    "as_line",
    "check_header",
    "end_line",
    "header_line",
    "parsed",
    "records_at_end",
]

FORMAT: Final = "loom-jsonl"
FORMAT_VERSION: Final = 1

_TEXTS = ("id", "content", "kind", "node", "session_id", "role", "name", "trust", "subject", "flow", "layer")
_REQUIRED = ("id", "version", "content", "created_at", "kind", "node", "trust", "importance")
_FLAGS = ("pinned", "derived")
_OTHERS = ("version", "created_at", "importance", "metadata", "data", "sources", "ended_at")
_KNOWN = frozenset((*_TEXTS, *_FLAGS, *_OTHERS))


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One version of one memory, as stored in a line.

    `ended_at` is the time at which a memory ended without a newer version, because it was withdrawn or another memory
    replaced it. A `derived` line holds a record that was derived from its `sources`.
    """

    id: str
    version: int
    content: str
    created_at: datetime
    kind: str
    node: str
    trust: str
    importance: float
    dimensions: Dimensions
    session_id: str | None = None
    role: str | None = None
    name: str | None = None
    metadata: Mapping[str, Any] | None = None
    data: Any = None
    sources: tuple[str, ...] = ()
    pinned: bool = False
    derived: bool = False
    ended_at: datetime | None = None


# --- writing -------------------------------------------------------------------------------------------------


def header_line(namespace: str, exported_at: datetime) -> bytes:
    return _line(
        {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "namespace": namespace,
            "exported_at": exported_at.isoformat(),
        }
    )


def end_line(records: int) -> bytes:
    """Return the last line. A file without it was truncated."""
    return _line({"end": records})


def as_line(
    record: Record, *, sources: tuple[str, ...], pinned: bool, derived: bool, ended_at: datetime | None
) -> bytes:
    place = record.dimensions
    return _line(
        {
            "id": record.id,
            "version": record.version,
            "content": record.content,
            "created_at": record.created_at.isoformat(),
            "kind": str(record.kind),
            "node": record.node,
            "session_id": record.session_id,
            "role": record.role,
            "name": record.name,
            "trust": str(record.trust),
            "subject": place.subject,
            "flow": place.flow,
            "layer": place.layer,
            "importance": record.importance,
            "metadata": dict(record.metadata) or None,
            "data": record.data,
            "sources": list(sources) or None,
            "pinned": pinned or None,
            "derived": derived or None,
            "ended_at": None if ended_at is None else ended_at.isoformat(),
        }
    )


def _line(fields: Mapping[str, Any]) -> bytes:
    told = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(told, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


# --- reading -------------------------------------------------------------------------------------------------


def _object(line: bytes) -> dict[str, Any]:
    """Parse a line as an object. Error messages contain no content."""
    found = parsed_json(line)
    if not isinstance(found, dict):
        raise InvalidInput("it is not a JSON object")
    return found


def check_header(line: bytes) -> None:
    """Raise `InvalidInput` unless the first line states this format and a known version."""
    try:
        found = _object(line)
    except InvalidInput as error:
        raise InvalidInput(f"the file is not an export of loom: {error} (line 1)") from None
    if found.get("format") != FORMAT:
        raise InvalidInput(f'the file is not an export of loom: its first line must say "format": "{FORMAT}"')
    version = found.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise InvalidInput(
            f"the file has another version of {FORMAT} than {FORMAT_VERSION}, which this version of loom reads; "
            "if a newer version wrote it: pip install --upgrade loomkeep"
        )


def records_at_end(found: Mapping[str, Any]) -> int | None:
    """Return the number of records if this is the last line of a file, else None."""
    count = found.get("end")
    is_end = found.keys() == {"end"} and isinstance(count, int) and not isinstance(count, bool)
    return count if is_end else None


def parsed(line: bytes) -> RecordLine | int:
    """Parse a line after the header: a record, or the number of records from the last line. Raises `InvalidInput`."""
    found = _object(line)
    if (count := records_at_end(found)) is not None:
        return count
    for name in _REQUIRED:
        if name not in found:
            raise InvalidInput(f"it has no {name}")
    for name in found:
        if name not in _KNOWN:
            raise InvalidInput(f"it has a field that {FORMAT} {FORMAT_VERSION} does not define")
    for name in _TEXTS:
        if name in found and not isinstance(found[name], str):
            raise InvalidInput(f"{name} must be a text, not {type(found[name]).__name__}")
    for name in _FLAGS:
        if not isinstance(found.get(name, False), bool):
            raise InvalidInput(f"{name} must be true or false, not {type(found[name]).__name__}")
    return _record_line(found)


def _record_line(found: Mapping[str, Any]) -> RecordLine:
    version, metadata, sources = found["version"], found.get("metadata"), found.get("sources", [])
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidInput("version must be a whole number of at least 1")
    if not found["id"] or not found["kind"] or not found["node"]:
        raise InvalidInput("id, kind and node must be texts of at least one character")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidInput(f"metadata must be an object, not {type(metadata).__name__}")
    if not isinstance(sources, list) or not all(isinstance(one, str) and one for one in sources):
        raise InvalidInput("sources must be a list of ids")
    if found["trust"] not in [*Trust]:
        raise InvalidInput(f"trust must be one of {', '.join(Trust)}")
    ended_at = found.get("ended_at")
    places = {name: found[name] for name in ("subject", "flow", "layer") if name in found}
    return RecordLine(
        id=found["id"],
        version=version,
        content=found["content"],
        created_at=checked_time(found["created_at"], "created_at"),
        kind=found["kind"],
        node=found["node"],
        trust=found["trust"],
        importance=checked_number(found["importance"], "importance", 0.0, 1.0),
        dimensions=Dimensions(**places),
        session_id=found.get("session_id"),
        role=found.get("role"),
        name=found.get("name"),
        metadata=metadata,
        data=found.get("data"),
        sources=tuple(sources),
        pinned=found.get("pinned", False),
        derived=found.get("derived", False),
        ended_at=None if ended_at is None else checked_time(ended_at, "ended_at"),
    )
