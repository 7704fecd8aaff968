"""Rows of the SQLite tables as records of the contract, and the base classes of the reading and writing roles."""

from __future__ import annotations

import functools
import json
import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from loom.errors import CorruptStore, InvalidInput
from loom.storage.contract import Dimensions, Record
from loom.storage.databases import Connection
from loom.storage.identity import guard, id_hash
from loom.storage.moments import from_micros
from loom.storage.sqlite.archive import CONTENT, DATA
from loom.storage.sqlite.counting import TOKENS
from loom.text.entities import NAMES

if TYPE_CHECKING:
    from loom.storage.sqlite.maintenance import AccessBuffer

__all__ = [
    "DOC_VALUE_COLUMNS",
    "ENTRY_COLUMNS",
    "FORGOTTEN_NAME",
    "INDEX_COLUMNS",
    "INSERT_EDGE",
    "RECORD_COLUMNS",
    "ROW_COLUMNS",
    "Reader",
    "StoredRecord",
    "Writer",
    "check_row",
    "damaged_as_bytes",
    "dump_json",
    "fetch_readable",
    "first_number",
    "first_version",
    "is_names",
    "is_no_text",
    "read_records",
    "read_settings",
    "same_id",
    "text_read_with",
    "to_record",
]


class Reader:
    """Reads one namespace on one connection, in the caller's transaction. The base of the reading roles.

    A store has no fixed connection: it overrides `connected`.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self._connected = nullcontext(connection)
        self._reading = nullcontext()

    def connected(self, *, once: bool = False) -> AbstractContextManager[Connection]:
        """The connection to read from, on one snapshot. `once` says that the block executes one statement."""
        return self._connected

    def reading(self) -> AbstractContextManager[None]:
        return self._reading

    def _all(self, query: str, values: Any = ()) -> list[Any]:
        """The rows of one query."""
        with self.connected(once=True) as connection:
            return connection.execute(query, values).fetchall()

    def _firsts(self, query: str, values: Any = ()) -> list[Any]:
        """The first value of each row of one query."""
        return [first for first, *_ in self._all(query, values)]

    def recent_uses(self) -> AccessBuffer | None:
        """The buffer of unwritten uses of records, if there is one."""
        return None


class Writer(Reader):
    """Writes to one namespace, in a transaction that begins at `now`, in microseconds."""

    now: int

    def next_seq(self) -> int:
        """The next sequence number."""
        raise NotImplementedError

    def many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) == 1:
            self.connection.execute(statement, rows[0])
        elif rows:
            self.connection.executemany(statement, rows)


def is_names(row: str = "r") -> str:
    """SQL for whether a row of `records` is a derived record of names. A caller's record may have the same kind."""
    return f"({row}.kind = '{NAMES}' AND EXISTS (SELECT 1 FROM derivations v WHERE v.record = {row}.seq))"


def same_id(row: str, other: str) -> str:
    """SQL for whether two rows of `records` are versions of one id. It searches by the hash of `other`."""
    # With `+`, SQLite uses the index over hashes instead of the one over namespaces.
    return (
        f"{row}.id_hash = {other}.id_hash AND {row}.id = {other}.id AND +{row}.namespace = {other}.namespace "
        f"AND {row}.version > 0"
    )


def first_version(row: str = "r") -> str:
    """SQL for the sequence number of the first version of a row of `records`, to which other tables refer."""
    return (
        f"CASE {row}.version WHEN 1 THEN {row}.seq ELSE (SELECT first.seq FROM records first "
        f"WHERE {same_id('first', row)} AND first.version = 1) END"
    )


INSERT_EDGE = "INSERT OR IGNORE INTO edges (source, derived) VALUES (?, ?)"
"""Both ends are the sequence numbers of first versions."""

FORGOTTEN_NAME = "\x1f"
"""The prefix of the name of a forgotten namespace, whose number is never reused."""

# In the order of the table up to the checksum: `guard` takes the columns in this order.
ROW_COLUMNS = (
    "r.seq, r.namespace, r.id_hash, r.session_hash, r.id, r.version, r.tier, r.kind, r.node, r.session, r.role, "
    "r.name, r.trust, r.subject, r.flow, r.layer, r.importance, r.tokens, r.counter, r.created_at, r.committed_at, "
    f"r.metadata, {DATA}, {CONTENT}, r.checksum, (SELECT s.at FROM supersessions s WHERE s.record = r.seq), r.block"
)
RECORD_COLUMNS = f"{ROW_COLUMNS}, {TOKENS}"
INDEX_COLUMNS = (
    "CAST(r.name AS TEXT), CAST(r.role AS TEXT), r.created_at, CAST(r.metadata AS TEXT), "
    f"CAST(ifnull({CONTENT}, '') AS TEXT), {is_names()}"
)
"""The columns of `records r` for `loom.index.analysis.index_terms`. A value that is no longer text belongs to a
damaged row: reading that record reports the damage, and a search still finds all other records."""
DOC_VALUE_COLUMNS = (
    f"r.seq, r.session_hash, r.created_at, r.importance, CAST(r.name AS TEXT), CAST(r.role AS TEXT), {TOKENS}"
)
"""The columns of `records r` for `loom.index.doc_values.of_row`."""
# CROSS JOIN reads the rows in the order of the list. Ten rows take 59 us, and 67 us with IN; with cold caches 114 us
# and 150 us. The statement is the same for any number of rows.
_RECORDS_OF = (
    f"SELECT {RECORD_COLUMNS} FROM json_each(?) j CROSS JOIN records r ON r.seq = j.value "
    "WHERE r.namespace = ? AND r.version > 0"
)

ENTRY_COLUMNS = (
    "deleted, scope, owner, key, version, created_by, updated_by, created_at, updated_at, metadata, content, checksum"
)


def dump_json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} must be plain JSON (text, numbers, lists, objects): {error}") from error


# A damaged row may hold any values, so the values have no types.
_Columns = namedtuple(
    "_Columns",
    "seq namespace id_hash session_hash id version tier kind node session role name trust subject flow layer "
    "importance tokens counter created_at committed_at metadata data content checksum superseded_at block counted",
    defaults=(None,),
)


class StoredRecord(_Columns):
    """A row of `ROW_COLUMNS`, or of `RECORD_COLUMNS` with the count."""

    __slots__ = ()

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> StoredRecord:
        """A row of these columns, with names. Further columns are dropped."""
        return cls(*row[: len(cls._fields)])

    @property
    def guarded(self) -> tuple[Any, ...]:
        return self[:_GUARDED]


_GUARDED = StoredRecord._fields.index("checksum")


def read_records(connection: Connection, namespace: int, seqs: Iterable[int]) -> dict[int, Record]:
    """Records by sequence number, without those that do not exist."""
    rows = connection.execute(_RECORDS_OF, (str(sorted(seqs)), namespace))
    return {record.seq: record for record in map(to_record, rows)}


def first_number(connection: Connection, namespace: int, id: str) -> int | None:
    """The sequence number of the first version of an id, to which other tables refer; None for an unknown id."""
    row = connection.execute(
        "SELECT seq FROM records WHERE id_hash = ? AND id = ? AND +namespace = ? AND version = 1",
        (id_hash(namespace, id), id, namespace),
    ).fetchone()
    return row[0] if row else None


def read_settings(connection: Connection, namespace: int, node: str) -> dict[str, Any]:
    """The settings in the file for a node, or for the whole namespace (the empty node)."""
    rows = connection.execute(
        "SELECT key, value FROM settings WHERE namespace = ? AND node = ?", (namespace, node)
    ).fetchall()
    return dict(_parsed_settings(tuple(rows)))


@functools.lru_cache(maxsize=64)
def _parsed_settings(rows: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Parse settings. Cached, because every move between tiers reads them and they rarely change."""
    return {key: json.loads(value) for key, value in rows}


def is_no_text(error: sqlite3.Error) -> bool:
    """Whether an error of a query concerns a value that is not valid text, and not the file."""
    return getattr(error, "sqlite_errorcode", None) is None and "decode" in str(error)


@contextmanager
def text_read_with(connection: Connection, read: Callable[[bytes], Any]) -> Iterator[None]:
    """Read text with this function inside the block, since some of it may not be valid."""
    before, connection.text_factory = connection.text_factory, read
    try:
        yield
    finally:
        connection.text_factory = before


def damaged_as_bytes(connection: Connection) -> AbstractContextManager[None]:
    """Read invalid text as bytes inside the block, instead of failing the query."""
    return text_read_with(connection, _text_or_bytes)


def fetch_readable(connection: Connection, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of a query. Invalid text in them is returned as bytes."""
    try:
        return connection.execute(query, values).fetchall()
    except sqlite3.OperationalError as error:
        if not is_no_text(error):
            raise
    with damaged_as_bytes(connection):
        return connection.execute(query, values).fetchall()


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def check_row(row: tuple[Any, ...]) -> None:
    """Raise `CorruptStore` unless a row of `ROW_COLUMNS` matches its checksum."""
    if guard(row[:_GUARDED]) != row[_GUARDED]:
        one = StoredRecord.of(row)
        if one.block is not None:
            raise CorruptStore(
                f"record {one.id!r} (number {one.seq}) is in archive block {one.block}, which is damaged, with all "
                "of its records. Run check() for the full list, and restore a backup."
            )
        raise CorruptStore(
            f"record {one.id!r} (number {one.seq}) does not match its checksum: the file was damaged. "
            "Run check() for the full list, and restore a backup."
        )


def to_record(row: tuple[Any, ...]) -> Record:
    """A row of `RECORD_COLUMNS` as a record, with its count."""
    check_row(row)
    # fmt: off
    (
        seq, _, _, _, id, version, _, kind, node, session, role, name, trust, subject, flow, layer, importance, _,
        counter, created_at, committed_at, metadata, data, content, _, superseded_at, _, tokens,
    ) = row
    # fmt: on
    return Record(
        seq,
        id,
        version,
        content,
        from_micros(created_at),
        from_micros(committed_at),
        kind,
        node,
        session,
        role,
        name,
        trust,
        dimensions(subject, flow, layer),
        importance,
        tokens,
        counter,
        json.loads(metadata) if metadata else {},
        json.loads(data) if data else None,
        None if superseded_at is None else from_micros(superseded_at),
    )


@functools.lru_cache
def dimensions(subject: Any, flow: Any, layer: Any) -> Dimensions:
    """One of the eight combinations, as a shared object."""
    return Dimensions(subject, flow, layer)
