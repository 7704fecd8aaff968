"""The sections of a snapshot: the table that each section holds, the values that its rows admit, and their sizes.

`loom.storage.tables` defines the columns of the tables and their kinds.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

from loom.errors import InvalidInput, SnapshotError
from loom.snapshots.format import LARGEST_ROW
from loom.storage import tables
from loom.storage.contract import MAX_TEXT_BYTES, WINDOW, Retention
from loom.storage.tables import Row, Table

__all__ = [
    "BLOB_PIECE",
    "CONTENTS",
    "KNOWN_SECTIONS",
    "NOTED",
    "VECTOR",
    "Content",
    "Section",
    "check_row_size",
    "is_sound_setting",
    "pack_row",
]

Check = Callable[[Any], bool]

NOTED: Final = "restored"
"""The setting with the offsets added to the sequence numbers of restored snapshots, by store and namespace."""

VECTOR: Final = struct.Struct("<qqI")
"""The head of a vector: its sequence number, its record, its namespace. The components follow."""

BLOB_PIECE: Final = struct.Struct("<qQ")
"""The head of a piece of a blob: the sequence number of the blob, and the offset of the piece."""


class Section(IntEnum):
    """The sections of a snapshot, in file order."""

    START = 1
    FORGOTTEN = 2
    SETTINGS = 3
    RECORDS = 4
    SUPERSESSIONS = 5
    DERIVATIONS = 6
    EDGES = 7
    MOVES = 8
    RESIDENTS = 9
    TIERS = 10
    PINS = 11
    ACCESSES = 12
    ENTRIES = 13
    BLOBS = 14
    BLOB_BYTES = 15
    VECTORS = 16
    PROGRESS = 17
    JOBS = 18


# -- the kinds of values -----------------------------------------------------------------------------

_POSITIVE = range(1, 1 << 62)
_COUNT = range(1 << 62)
_LIMITS = {
    **dict.fromkeys(("number", "seq", "namespace", "record"), _POSITIVE),
    **dict.fromkeys(("count", "until", "about"), _COUNT),
    "flag": range(2),
    **dict.fromkeys(("integer", "old"), range(-(1 << 63), 1 << 63)),
    "time": range(-62_135_596_800_000_000, 253_402_300_800_000_000),  # years 1 to 9999, as a datetime has them
}
_LONGEST_NAME = 1 << 20


def _within(limits: range) -> Check:
    least, most = limits[0], limits[-1]
    return lambda value: type(value) is int and least <= value <= most


def _json(value: Any) -> bool:
    try:
        _decode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refused).decode
_CHECKS: dict[str, Check] = {
    **{kind: _within(limits) for kind, limits in _LIMITS.items()},
    "share": lambda value: type(value) in (int, float) and math.isfinite(value),
    "text": lambda value: type(value) is str and len(value) <= _LONGEST_NAME,
    "name": lambda value: type(value) is str and 0 < len(value) <= _LONGEST_NAME,
    "content": lambda value: (
        type(value) is str and (len(value) * 4 <= MAX_TEXT_BYTES or len(value.encode()) <= MAX_TEXT_BYTES)
    ),
    "json": _json,
    "object": lambda value: _json(value) and value.startswith("{"),
    "numbers": lambda value: (
        _json(value) and isinstance(found := json.loads(value), list) and all(map(_CHECKS["integer"], found))
    ),
    "id": lambda value: _CHECKS["integer"](value) or _CHECKS["name"](value),
}
_PARSED = ("json", "object", "numbers")


def _retention(value: Any) -> bool:
    try:
        return value is None or bool(Retention(**value))
    except (TypeError, InvalidInput):
        return False


def _restored(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(pairs, list)
        and all(isinstance(pair, list) and len(pair) == 2 and all(map(_CHECKS["count"], pair)) for pair in pairs)
        for pairs in value.values()
    )


def is_sound_setting(key: str, value: Any) -> bool:
    """Whether a setting that the storage reads has a valid value. True for all other settings."""
    checks = {"analyzer": _CHECKS["count"], "revision": _CHECKS["count"], "retention": _retention, NOTED: _restored}
    return key not in checks or checks[key](value)


# -- the sections ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Content:
    """The contents of a section: rows of a table, each a JSON array, or binary for vectors.

    `late` is the error for a sequence number after the end of the log. `rules` maps errors to predicates that are
    true for invalid rows. `largest` is the largest size of a row in bytes.
    """

    table: Table
    late: str = ""
    rules: Mapping[str, Callable[[Row], bool]] = field(default_factory=dict)
    largest: int = 16 << 20

    @cached_property
    def columns(self) -> list[str]:
        """The columns of a row, except binary ones."""
        return [column for column, kind in self.table.columns.items() if kind != "bytes"]

    @cached_property
    def _checks(self) -> list[tuple[Check, bool]]:
        """The check of each value, and whether the value may be None."""
        kinds = map(self.table.columns.__getitem__, self.columns)
        return [(_CHECKS[kind.rstrip("?")], kind.endswith("?")) for kind in kinds]

    @cached_property
    def parsed(self) -> list[int]:
        """The positions of the values that are JSON text."""
        return [self.columns.index(column) for column in self.table.named(*_PARSED)]

    def unpacked(self, section: Section, packed: bytes) -> Row:
        """Decode a row and check the kind of each value. Returns the values by column name."""
        if section is Section.VECTORS:
            if len(packed) < VECTOR.size:
                raise SnapshotError("a vector is truncated")
            numbers = zip(self.columns, VECTOR.unpack_from(packed), strict=True)
            return dict(numbers) | {"data": packed[VECTOR.size :]}
        check_row_size(section, packed)
        try:
            values = _decode(packed.decode())
        except (ValueError, RecursionError) as error:
            raise SnapshotError(f"a row of section {section.name.lower()} cannot be read") from error
        if type(values) is not list or len(values) != len(self._checks):
            raise SnapshotError(f"a row of section {section.name.lower()} has the wrong number of values")
        for place, ((check, optional), value) in enumerate(zip(self._checks, values, strict=True), 1):
            if not (value is None and optional) and not check(value):
                raise SnapshotError(f"value {place} of a row of section {section.name.lower()} is not valid")
        return dict(zip(self.columns, values, strict=True))


_SPECIAL: dict[Section, dict[str, Any]] = {
    Section.RECORDS: {"largest": LARGEST_ROW},
    Section.MOVES: {
        "rules": {
            "the reason of a move is not one word": lambda row: row["reason"] and not row["reason"].isidentifier()
        }
    },
    Section.RESIDENTS: {
        "late": "a residency is not valid",
        "rules": {"a residency is not valid": lambda row: row["tier"] == WINDOW},
    },
    Section.TIERS: {"late": "a window begins after the end of the log"},
    Section.PINS: {
        "late": "a pin names no record",
        "rules": {"a pin names no record": lambda row: row["record"] is None and row["bare"] is None},
    },
    Section.ENTRIES: {"largest": LARGEST_ROW},
    Section.BLOBS: {"late": "the sequence number of a blob is outside of the range of this snapshot"},
    Section.VECTORS: {"largest": VECTOR.size + 2 * 65_536},
    Section.PROGRESS: {"late": "the progress of a chore is beyond the end of the log"},
    Section.JOBS: {"late": "a job has a sequence number that was never assigned"},
}

CONTENTS: Final[Mapping[Section, Content]] = {
    section: Content(tables.TABLES[section.name.lower()], **_SPECIAL.get(section, {}))
    for section in Section
    if section not in (Section.START, Section.BLOB_BYTES)
}
"""The contents of each section except START and BLOB_BYTES."""

KNOWN_SECTIONS: Final = {
    int(one): CONTENTS[one].largest if one in CONTENTS else {Section.BLOB_BYTES: 1 << 20}.get(one, 16 << 20)
    for one in Section
}
"""The sections by number, each with the largest size of its rows in bytes."""


def pack_row(values: Any) -> bytes:
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


# -- sizes -------------------------------------------------------------------------------------------

_MOST_COLUMNS = 32
_SMALL_ROW = 64 << 10
_MOST_DECODED = 256 << 20
# A value of a flat array. The quantifiers are possessive, so that a mismatch does not backtrack.
_VALUE = re.compile(rb'\s*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+|[^"\[\]{},]{1,64})', re.DOTALL)
# The most memory that a container, a number or a short text takes: 4 bytes of JSON may take 72 bytes in memory.
_VALUE_BYTES = 72


def check_row_size(section: Section, row: bytes) -> None:
    """Raise `SnapshotError` for a JSON row that would take more than 256 MiB when it is decoded.

    The compressed size says little: 128 MiB of empty lists are 15 KiB in a file and 3 GiB in memory.
    """
    if len(row) > KNOWN_SECTIONS[section]:
        raise SnapshotError(
            f"a row of section {section.name.lower()} has {len(row):,} bytes; the most is {KNOWN_SECTIONS[section]:,}"
        )
    if len(row) <= _SMALL_ROW:
        return
    cost = _parsed_bytes(row) if section is Section.START else _flat_bytes(row, CONTENTS[section].parsed)
    if cost > _MOST_DECODED:
        raise SnapshotError(
            f"a row of section {section.name.lower()} would take about {cost:,} bytes of memory; "
            f"the most is {_MOST_DECODED:,}"
        )


def _flat_bytes(row: bytes, json_columns: list[int]) -> int:
    """The memory that the values of a row take once decoded, with JSON columns parsed as well."""
    place, column, cost = 1, 0, 0
    while row[place - 1 : place] == (b"," if column else b"["):
        found = _VALUE.match(row, place)
        if found is None or column == _MOST_COLUMNS:
            break
        first, place = found.span()
        value = row[first:place]
        cost += _text_bytes(value) + (_parsed_bytes(value) if column in json_columns else 0)
        column, place = column + 1, place + 1
    if row[place - 1 : place + 1] != b"]":
        raise SnapshotError("a row has a value that is neither a text nor a number, or is truncated")
    return cost


def _parsed_bytes(value: bytes) -> int:
    return _text_bytes(value) + _VALUE_BYTES * sum(map(value.count, (b"[", b"{", b",", b":")))


def _text_bytes(value: bytes) -> int:
    """The size of a JSON string as a Python string: one, two or four bytes per character."""
    escapes = max(0, value.count(b"\\u") - value.count(b"\\\\u"))
    width = 4 if _FOUR_BYTES.search(value) else 1 if value.isascii() and not escapes else 2
    return width * (len(value) - 5 * escapes)


_FOUR_BYTES = re.compile(rb"[\xf0-\xff]|\\u[dD][89abAB]")
