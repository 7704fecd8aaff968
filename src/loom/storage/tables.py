"""The tables in a snapshot: their columns, and the kind of each column.

The modules that write, stage and merge snapshots follow this description, and so does every backend that reads or
adds such rows (`Rows` and `RowWrites` of the contract). The kind of a column defines its values, its reference, and
its mapping into another store:

    seq        a sequence number, not after the end of the log; gets a new number in another store
    until      the position in the log up to which work is done, or 0; is mapped in the same way
    namespace  one of the namespaces of the snapshot; becomes that of the other store
    record     a record of the row's namespace; the row is restored only if this record is
    about      such a record, or 0 for none
    old        a value that only earlier formats had; it is read but not stored
    others     plain values within limits, which `loom.snapshots.sections` checks

A `?` after a kind admits None. Times are microseconds since 1970; values of JSON columns are JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from loom.storage.identity import guard, guard_4, id_hash, id_hash_4, session_hash

__all__ = ["TABLES", "Row", "Table", "entry_values", "guarded", "named", "record_guard_4", "shifted"]

Row = dict[str, Any]
"""A row as a mapping of column names to values."""


@dataclass(frozen=True)
class Table:
    """A table of the storage contract.

    `columns` maps the columns, in their order, to their kinds. For tables to which rows are only ever added,
    `appended` is the column with the sequence number at which a row was written; such rows are read in this order.
    """

    name: str
    columns: Mapping[str, str]
    appended: str = ""

    def named(self, *kinds: str) -> list[str]:
        return [column for column, kind in self.columns.items() if kind.rstrip("?") in kinds]

    @cached_property
    def numbers(self) -> list[str]:
        """The columns that hold sequence numbers."""
        return self.named("seq", "until")

    @cached_property
    def records(self) -> list[str]:
        """The columns that refer to a record of the row's namespace."""
        return self.named("record", "about")

    @cached_property
    def about(self) -> list[str]:
        """Those of `records` that may be 0, for none."""
        return self.named("about")

    @cached_property
    def stored(self) -> list[str]:
        """The columns that a store has; the others exist in files only."""
        return [column for column, kind in self.columns.items() if kind.rstrip("?") not in ("old", "id")]


def _table(name: str, columns: str, appended: str = "") -> Table:
    return Table(name, dict(one.split(":") for one in columns.split()), appended)


TABLES: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (
        _table("forgotten", "seq:seq namespace:namespace record:number", "seq"),
        _table("settings", "namespace:namespace node:text key:name value:json"),
        _table(
            "records",
            "seq:seq namespace:namespace id:name version:number tier:name? kind:text node:text session:text? "
            "role:text? name:text? trust:text subject:name flow:name layer:name importance:share tokens:count "
            "counter:text created_at:time committed_at:time metadata:object? data:json? content:content "
            "window_tokens:count?",
            "seq",
        ),
        _table("supersessions", "record:record seq:seq by:record at:time committed_at:time", "seq"),
        _table("derivations", "record:record namespace:namespace replaces:flag", "record"),
        # Both ends are first versions. `bare` is the id of a source that is not stored yet; format 4 had a hash.
        _table("edges", "derived:number source:number? bare:id?"),
        _table(
            "moves", "record:record seq:seq namespace:namespace node:text tier:name entered:flag reason:text", "seq"
        ),
        _table(
            "residents",
            "namespace:namespace node:text tier:name record:record tokens:count importance:share entered:seq "
            "written_at:time",
        ),
        # The totals of a tier follow from its residents and are not columns.
        _table("tiers", "namespace:namespace node:text tier:name hits:count misses:count since:until"),
        # `record` is the first version of the pinned id. `bare` is the hash that format 4 kept of an id not stored.
        _table("pins", "namespace:namespace seq:seq record:record? bare:old?"),
        _table("accesses", "namespace:namespace record:record node:text count:number last_at:time previous_at:time?"),
        _table(
            "entries",
            "seq:seq namespace:namespace scope:text owner:text key:text version:number deleted:flag "
            "created_by:text updated_by:text created_at:time updated_at:time metadata:object? content:json? "
            "checksum:count",
            "seq",
        ),
        # The bytes of blobs are separate: `blob_pieces` reads them, and a row that is added has them as `data`.
        _table("blobs", "seq:seq namespace:namespace key:text checksum:count size:count"),
        # `data`: float16 in little-endian order.
        _table("vectors", "seq:seq record:record namespace:namespace data:bytes", "seq"),
        # The progress of work that follows the log, except for the indexes and the archive, which are rebuilt.
        _table("progress", "namespace:namespace kind:name watermark:until"),
        _table(
            "jobs",
            "namespace:namespace kind:name record:about seq:seq data:numbers? attempts:count error:text?",
        ),
    )
}
"""The tables by name, in the order in which they are written and restored."""


def named(table: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
    """Rows of a table as mappings of column names to values."""
    columns = TABLES[table].columns
    return (dict(zip(columns, row, strict=True)) for row in rows)


def shifted(table: str, by: int) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that adds a number to every sequence number in a row of a table, except None and 0."""
    kinds = [kind.rstrip("?") for kind in TABLES[table].columns.values()]
    refers = table in ("forgotten", "edges")
    numbered = [kind in _NUMBERED or (refers and kind == "number") for kind in kinds]
    listed = [kind == "numbers" for kind in kinds]

    def shift(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            value + by
            if number and value
            else json.dumps([one + by for one in json.loads(value)])
            if several and value
            else value
            for value, number, several in zip(row, numbered, listed, strict=True)
        )

    return shift


def guarded(row: Row, namespace: int) -> Row:
    """The hashes and the checksum of a row of `records` in a namespace."""
    session = None if row["session"] is None else session_hash(namespace, row["session"])
    own = id_hash(namespace, row["id"])
    values = (row["seq"], namespace, own, session, *map(row.__getitem__, _GUARDED))
    return {"id_hash": own, "session_hash": session, "checksum": guard(values)}


def record_guard_4(row: Row) -> int:
    """The checksum that a row of `records` had until format 4."""
    session = None if row["session"] is None else id_hash_4(row["namespace"], row["session"])
    own = id_hash_4(row["namespace"], row["id"])
    return guard_4((row["seq"], row["namespace"], own, session, *map(row.__getitem__, _GUARDED)))


def entry_values(row: Row) -> tuple[Any, ...]:
    """The values of a row of `entries` that its checksum covers, for `entry_guard` and `entry_guard_4`."""
    return tuple(map(row.__getitem__, _ENTRY_GUARDED))


_NUMBERED = ("seq", "until", "record", "about")
_GUARDED = [one for one in TABLES["records"].columns if one not in ("seq", "namespace", "window_tokens")]
_ENTRY_GUARDED = [one for one in TABLES["entries"].columns if one not in ("seq", "namespace", "deleted", "checksum")]
