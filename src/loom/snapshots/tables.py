"""What a snapshot carries: every table with its columns, their kinds, and which rows of it are taken.

Taking, staging and merging read this description. The kind of a column says which values it admits, what it refers
to, and how it is mapped into another store:

    seq        a number of the sequence, not after the end of the log; gets a new number in another store
    until      how far something has come in the log, or 0; is mapped likewise
    namespace  one of the namespaces of the snapshot; becomes that of the other store
    record     a record of the row's namespace; a row comes into another store only if its record comes
    about      such a record, or 0 for none
    old        a value that only earlier formats had; it is read and not stored
    others     plain values within limits: `_LIMITS`, `_CHECKS`

A `?` after a kind admits None.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import Any, Final

from loom.errors import InvalidInput, SnapshotError
from loom.snapshots.format import LARGEST_ROW
from loom.storage.contract import MAX_TEXT_BYTES, Retention
from loom.storage.sqlite import archive, counting
from loom.storage.sqlite.projections import SCRUB, TEXT, VECTORS
from loom.storage.sqlite.residency import WINDOW

__all__ = [
    "BLOB_PIECE",
    "KNOWN_SECTIONS",
    "NOTED",
    "TABLES",
    "VECTOR",
    "Row",
    "Section",
    "Table",
    "check_row_size",
    "is_sound_setting",
    "pack_row",
]

Check = Callable[[Any], bool]

NOTED: Final = "restored"
"""The setting that notes what was added to a snapshot's numbers: by store and namespace, up to which number."""

VECTOR: Final = struct.Struct("<qqI")
"""What stands before the numbers of a vector: its number, its record, its namespace."""

BLOB_PIECE: Final = struct.Struct("<qQ")
"""What stands before a piece of a blob: its number, and where the piece belongs."""


class Section(IntEnum):
    """The parts of a snapshot, in their order in the file."""

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


def _optional(kind: str) -> Check:
    check = _CHECKS[kind.rstrip("?")]
    return lambda value: value is None or check(value)


def _share(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _text(value: Any) -> bool:
    return type(value) is str and len(value) <= _LONGEST_NAME


def _name(value: Any) -> bool:
    return _text(value) and value != ""


def _content(value: Any) -> bool:
    return type(value) is str and (len(value) * 4 <= MAX_TEXT_BYTES or len(value.encode()) <= MAX_TEXT_BYTES)


def _json(value: Any) -> bool:
    try:
        _decode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _numbers(value: Any) -> bool:
    return _json(value) and isinstance(found := json.loads(value), list) and all(map(_CHECKS["integer"], found))


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_decode = json.JSONDecoder(parse_constant=_refused).decode
_CHECKS: dict[str, Check] = {
    **{kind: _within(limits) for kind, limits in _LIMITS.items()},
    "share": _share,
    "text": _text,
    "name": _name,
    "content": _content,
    "json": _json,
    "object": lambda value: _json(value) and value.startswith("{"),
    "numbers": _numbers,
    "id": lambda value: _CHECKS["integer"](value) or _name(value),
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
    """Whether a setting of a whole namespace that the storage itself reads has a value that it can read."""
    checks = {"analyzer": _CHECKS["count"], "revision": _CHECKS["count"], "retention": _retention, NOTED: _restored}
    return key not in checks or checks[key](value)


# -- tables ------------------------------------------------------------------------------------------

Row = dict[str, Any]

_CHOSEN = "namespace IN (SELECT value FROM json_each(:chosen))"
_LIVES = "EXISTS (SELECT 1 FROM records r WHERE r.seq = t.{} AND r.version > 0{})"


class Table:
    """A table of the store as a section of a snapshot.

    `columns` are those of the section with their kinds, in their order. `appended` is the column with the number at
    which a row was written, where rows are only ever added: an incremental snapshot holds those since its parent. Of
    the other tables the last snapshot of a chain holds all that is left. `only` is SQL for the rows that are taken,
    `taken` the whole query where it is another one, and `fixed` the SQL of columns that are not in the section.
    `late` is the error of a number after the end of the log; `rules` are errors, each with the rows that it is about.
    """

    def __init__(
        self,
        name: str,
        columns: str,
        *,
        appended: str = "",
        only: str = "",
        taken: str = "",
        fixed: Mapping[str, str] | None = None,
        late: str = "",
        rules: Mapping[str, Callable[[Row], bool]] | None = None,
        largest: int = 16 << 20,
    ) -> None:
        self.name, self.appended, self.late, self.rules, self.largest = name, appended, late, rules or {}, largest
        given = dict(one.split(":") for one in columns.split())
        self.kinds = {column: kind.rstrip("?") for column, kind in given.items()}
        self._checks = [_optional(kind) if kind.endswith("?") else _CHECKS[kind] for kind in given.values()]
        self.parsed = tuple(place for place, kind in enumerate(self.kinds.values()) if kind in _PARSED)
        own = [column for column, kind in self.kinds.items() if kind not in ("old", "id")]
        stored = dict.fromkeys(own, "?") | dict(fixed or {})
        self._insert = f"INSERT INTO {name} ({', '.join(stored)}) VALUES ({', '.join(stored.values())})"
        self._stored = itemgetter(*(column for column, value in stored.items() if value == "?"))
        self.staged = f"SELECT {', '.join(stored)} FROM {name} WHERE namespace = ?"
        self.numbers = self._named("seq", "until")
        self.records, self.about = self._named("record", "about"), self._named("about")
        self.taken = taken or self._taken(own, only)

    def insert(self, connection: sqlite3.Connection, rows: Iterable[Row]) -> int:
        """Store rows, of which none is there yet; how many they were."""
        return connection.executemany(self._insert, map(self._stored, rows)).rowcount

    def _named(self, *kinds: str) -> list[str]:
        """The columns of some kinds."""
        return [column for column, kind in self.kinds.items() if kind in kinds]

    def _taken(self, own: Sequence[str], only: str) -> str:
        """The query for the rows of the namespaces `:chosen`; of rows that are appended, for those after `:since`."""
        columns = ", ".join(f"t.{column}" if column in own else "NULL" for column in self.kinds)
        within = "" if "namespace" in self.kinds else f" AND r.{_CHOSEN}"
        where = [only] if only else []
        # `+`: rows that are appended are read in the order of their numbers, through no index over namespaces.
        where += [f"{'+' if self.appended else ''}t.{_CHOSEN}"] if "namespace" in self.kinds else []
        where += [f"t.{self.appended} > :since"] if self.appended else []
        where += [_LIVES.format(column, within) for column in self.records if column not in self.about]
        where += [f"(t.{column} <= 0 OR {_LIVES.format(column, '')})" for column in self.about]
        order = f" ORDER BY t.{self.appended}" if self.appended else ""
        return f"SELECT {columns} FROM {self.name} t WHERE {' AND '.join(where)}{order}"

    def unpacked(self, section: Section, packed: bytes) -> Row:
        """A row of a file by the names of its columns, each value of the kind that stands in its place."""
        if section is Section.VECTORS:
            if len(packed) < VECTOR.size:
                raise SnapshotError("a vector is cut short")
            return dict(zip(self.kinds, VECTOR.unpack_from(packed), strict=True)) | {"data": packed[VECTOR.size :]}
        check_row_size(section, packed)
        try:
            values = _decode(packed.decode())
        except (ValueError, RecursionError) as error:
            raise SnapshotError(f"a row of section {section.name.lower()} cannot be read") from error
        if type(values) is not list or len(values) != len(self._checks):
            raise SnapshotError(f"a row of section {section.name.lower()} has another shape than it should")
        sound = [check(value) for check, value in zip(self._checks, values, strict=True)]
        if not all(sound):
            place = sound.index(False) + 1
            raise SnapshotError(f"value {place} of a row of section {section.name.lower()} makes no sense")
        return dict(zip(self.kinds, values, strict=True))


TABLES: Final[dict[Section, Table]] = {
    Section.FORGOTTEN: Table("forgotten", "seq:seq namespace:namespace record:number", appended="seq"),
    Section.SETTINGS: Table("settings", "namespace:namespace node:text key:name value:json"),
    Section.RECORDS: Table(
        "records",
        "seq:seq namespace:namespace id:name version:number tier:name? kind:text node:text session:text? role:text? "
        "name:text? trust:text subject:name flow:name layer:name importance:share tokens:count counter:text "
        "created_at:time committed_at:time metadata:object? data:json? content:content window_tokens:count?",
        appended="seq",
        fixed={"id_hash": "?", "session_hash": "?", "checksum": "?"},
        largest=LARGEST_ROW,
    ),
    Section.SUPERSESSIONS: Table(
        "supersessions", "record:record seq:seq by:record at:time committed_at:time", appended="seq"
    ),
    Section.DERIVATIONS: Table("derivations", "record:record namespace:namespace replaces:flag", appended="record"),
    # The first versions of both; of a source that is not stored yet, its id. Format 4 had a hash there.
    Section.EDGES: Table(
        "edges",
        "derived:number source:number? bare:id?",
        taken="SELECT e.derived, e.source, NULL FROM edges e "
        "JOIN records d ON d.seq = e.derived AND d.version = 1 JOIN records s ON s.seq = e.source AND s.version = 1 "
        f"WHERE d.{_CHOSEN} UNION ALL SELECT w.derived, NULL, w.id FROM awaited w "
        f"JOIN records d ON d.seq = w.derived AND d.version = 1 WHERE w.{_CHOSEN} AND w.id_hash IS NOT NULL",
    ),
    Section.MOVES: Table(
        "moves",
        "record:record seq:seq namespace:namespace node:text tier:name entered:flag reason:text",
        appended="seq",
        rules={
            "the reason of a move is more than a word": lambda row: row["reason"] and not row["reason"].isidentifier()
        },
    ),
    Section.RESIDENTS: Table(
        "residents",
        "namespace:namespace node:text tier:name record:record tokens:count importance:share entered:seq "
        "written_at:time",
        late="a record is in a tier in a way that cannot be",
        rules={"a record is in a tier in a way that cannot be": lambda row: row["tier"] == WINDOW},
    ),
    Section.TIERS: Table(
        "tiers",
        "namespace:namespace node:text tier:name hits:count misses:count since:until",
        late="a window begins after the end of the log",
    ),
    # The last value is for pins on ids that are not stored, of which format 4 kept the hash.
    Section.PINS: Table(
        "pins",
        "namespace:namespace seq:seq record:record? bare:old?",
        late="a pin is on nothing",
        rules={"a pin is on nothing": lambda row: row["record"] is None and row["bare"] is None},
    ),
    Section.ACCESSES: Table(
        "accesses",
        "namespace:namespace record:record node:text count:number last_at:time previous_at:time?",
    ),
    Section.ENTRIES: Table(
        "entries",
        "seq:seq namespace:namespace scope:text owner:text key:text version:number deleted:flag created_by:text "
        "updated_by:text created_at:time updated_at:time metadata:object? content:json? checksum:count",
        appended="seq",
        largest=LARGEST_ROW,
    ),
    Section.BLOBS: Table(
        "blobs",
        "seq:seq namespace:namespace key:text checksum:count size:count",
        taken="SELECT seq, namespace, key, checksum, length(data) FROM blobs NOT INDEXED "
        f"WHERE {_CHOSEN} AND key IS NOT NULL ORDER BY seq",
        late="the number of a blob is outside of what this snapshot covers",
    ),
    Section.VECTORS: Table(
        "vectors",
        "seq:seq record:record namespace:namespace",
        appended="seq",
        fixed={"space": "?", "data": "?"},
        largest=VECTOR.size + 2 * 65_536,
    ),
    # How far the indexes and the archive have come is not carried over: they are made again. Here all are counted.
    Section.PROGRESS: Table(
        "projections",
        "namespace:namespace kind:name watermark:until",
        only=f"t.kind NOT IN ('{TEXT}', '{VECTORS}', '{archive.PROGRESS}', '{counting.PROGRESS}')",
        fixed={"generation": "0", "basis": "''"},
        late="work is said to have come further than the log",
    ),
    # Where nothing is left to be cleaned there is nothing to scrub.
    Section.JOBS: Table(
        "jobs",
        "namespace:namespace kind:name record:about seq:seq data:numbers? attempts:count error:text?",
        only=f"t.kind != '{SCRUB}'",
        late="a job has a number that was never given out",
    ),
}
"""What stands in each section, those of the start and of the bytes of blobs apart."""

KNOWN_SECTIONS: Final = {
    int(one): TABLES[one].largest if one in TABLES else {Section.BLOB_BYTES: 1 << 20}.get(one, 16 << 20)
    for one in Section
}
"""The sections by number, and the most bytes that a row of each may have."""


def pack_row(values: Any) -> bytes:
    """A row as it stands in a file."""
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


# -- sizes -------------------------------------------------------------------------------------------

_MOST_COLUMNS = 32
_SMALL_ROW = 64 << 10
_MOST_DECODED = 256 << 20
# A value of a flat array, without the space that it takes to go back on it.
_VALUE = re.compile(rb'\s*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+|[^"\[\]{},]{1,64})', re.DOTALL)
# What a container, a number or a short text costs at most: 4 bytes of JSON may become 72 in memory.
_VALUE_BYTES = 72


def check_row_size(section: Section, row: bytes) -> None:
    """Raise `SnapshotError` for a JSON row that would take more than 256 MiB when it is decoded.

    Rows that are read are not believed: 128 MiB of empty lists are 15 KiB in a file and 3 GiB in memory.
    """
    if len(row) > KNOWN_SECTIONS[section]:
        raise SnapshotError(
            f"a row of section {section.name.lower()} has {len(row):,} bytes; the most is {KNOWN_SECTIONS[section]:,}"
        )
    if len(row) <= _SMALL_ROW:
        return
    cost = _parsed_bytes(row) if section is Section.START else _flat_bytes(row, TABLES[section].parsed)
    if cost > _MOST_DECODED:
        raise SnapshotError(
            f"a row of section {section.name.lower()} would take about {cost:,} bytes of memory; "
            f"the most is {_MOST_DECODED:,}"
        )


def _flat_bytes(row: bytes, json_columns: tuple[int, ...]) -> int:
    """What the values of a row take when they are decoded, and those in JSON columns when they are parsed as well."""
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
        raise SnapshotError("a row holds something else than texts and numbers, or is cut short")
    return cost


def _parsed_bytes(value: bytes) -> int:
    return _text_bytes(value) + _VALUE_BYTES * sum(map(value.count, (b"[", b"{", b",", b":")))


def _text_bytes(value: bytes) -> int:
    """The size of a JSON string as a Python string: one, two or four bytes for each of its characters."""
    escapes = max(0, value.count(b"\\u") - value.count(b"\\\\u"))
    wide = _FOUR_BYTES.search(value) is not None
    width = 4 if wide else 1 if value.isascii() and not escapes else 2
    return width * (len(value) - 5 * escapes)


_FOUR_BYTES = re.compile(rb"[\xf0-\xff]|\\u[dD][89abAB]")
