"""Taking a snapshot: the parts of a store that go into a `.hctx` file, from one read transaction, while others write.

A full snapshot holds everything that a namespace has. An incremental one holds what was appended since its parent
(records, versions, entries, vectors, moves, tombstones), and all of the small tables that change in place. Indexes
are left out: they are made again from the records. Archived words are written out, because a block refers to numbers
of its own store; the store that they are restored into archives them by its own rule.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from loom.errors import InvalidInput, NotFound, SnapshotError, StoreUnavailable
from loom.index.segments import sync_folder
from loom.snapshots.format import LARGEST_ROW, MAGIC, NO_PARENT, Header, SnapshotReader, SnapshotWriter
from loom.steps import step
from loom.storage.files import disk_errors, keep_mode
from loom.storage.identity import entry_guard_4
from loom.storage.moments import from_micros, to_micros
from loom.storage.sqlite import archive, counting
from loom.storage.sqlite.engine import Engine, translate
from loom.storage.sqlite.projections import SCRUB, TEXT, VECTORS, last_number
from loom.storage.sqlite.rows import ENTRY_COLUMNS, RECORD_COLUMNS, check_row, counted_guard, was_guarded
from loom.storage.sqlite.store import as_sqlite
from loom.storage.temporary import let_go, temporary_beside

if TYPE_CHECKING:
    from loom.storage.contract import Store

__all__ = [
    "BLOB_PIECE",
    "KNOWN_SECTIONS",
    "NOTED",
    "VECTOR",
    "Section",
    "Snapshot",
    "SnapshotPath",
    "Start",
    "as_chain",
    "check_row_size",
    "descends",
    "describe",
    "opened",
    "read_start",
    "take",
]

SnapshotPath = str | Path

VECTOR = struct.Struct("<qqI")
"""What stands before the numbers of a vector: its number, its record, its namespace."""

BLOB_PIECE = struct.Struct("<qQ")
"""What stands before a piece of a blob: its number, and where the piece belongs."""

NOTED = "restored"
"""The setting that notes what was added to a snapshot's numbers: by store and namespace, up to which number."""

_PIECE_BYTES = 256 * 1024
_ANCHORS = 8


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


_BINARY = {Section.BLOB_BYTES: 1 << 20, Section.VECTORS: VECTOR.size + 2 * 65_536}
_LARGE = (Section.RECORDS, Section.ENTRIES)  # they carry texts and values of any size

KNOWN_SECTIONS = {int(one): LARGEST_ROW if one in _LARGE else _BINARY.get(one, 16 << 20) for one in Section}
"""The sections by number, and the most bytes that a row of each may have."""

# The columns of a section that hold JSON as text, which is parsed when it is restored.
_JSON_COLUMNS: dict[Section, tuple[int, ...]] = {
    Section.SETTINGS: (3,),
    Section.RECORDS: (19, 20),
    Section.ENTRIES: (11, 12),
    Section.JOBS: (4,),
}
_MOST_COLUMNS = 32
_SMALL_ROW = 64 << 10
_MOST_DECODED = 256 << 20
# A value of a flat array, without the space that it takes to go back on it.
_VALUE = re.compile(rb'\s*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+|[^"\[\]{},]{1,64})', re.DOTALL)
# What a container, a number or a short text costs at most: 4 bytes of JSON may become 72 in memory.
_VALUE_BYTES = 72


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot file: `sha256` is its name in a chain, `parent` that of the one it continues.

    `position` is how far the store's sequence had come, `records` how many records are in this file.
    """

    path: Path
    sha256: str
    parent: str | None
    store_id: str
    namespaces: tuple[str, ...]
    position: int
    created_at: datetime
    records: int
    size_bytes: int


class Start(NamedTuple):
    """The first row of a snapshot: which store it is of, and which part of it.

    `anchors` are numbers and checksums of the newest records and entries: by them a later state of the same store
    is told from another store, or from a copy that has gone its own way.
    """

    store: str
    created_at: int
    position: int
    committed_at: int
    since: int
    namespaces: dict[int, str]
    last_namespace: int
    spaces: dict[int, tuple[str, int]]
    active: dict[int, int]
    anchors: dict[str, list[tuple[int, int]]]

    def pack(self) -> bytes:
        return _packed(
            [
                self.store,
                self.created_at,
                self.position,
                self.committed_at,
                self.since,
                list(self.namespaces.items()),
                self.last_namespace,
                [[number, *space] for number, space in self.spaces.items()],
                list(self.active.items()),
                self.anchors,
            ]
        )


def take(
    store: Store,
    path: SnapshotPath,
    *,
    parent: SnapshotPath | None = None,
    namespaces: Sequence[str] | None = None,
) -> Snapshot:
    """Write a snapshot of some namespaces (by default the store's own) to a path; replaces it when complete."""
    store = as_sqlite(store)
    store.check_open()
    engine = store.engine
    target = Path(path).expanduser().absolute()
    with disk_errors(f"the snapshot {target} was not made"):
        _check_target(target, engine, parent)
    before = None if parent is None else _parent(Path(parent).expanduser())
    if namespaces is not None and (isinstance(namespaces, str) or not namespaces):
        raise InvalidInput("namespaces is a list of names, with at least one")
    names = [store.namespace] if namespaces is None else list(dict.fromkeys(namespaces))
    if names != [store.namespace]:
        store.check_namespaces(f"take a snapshot of {', '.join(map(repr, names))}")
    store.flush_accesses()
    with _replacing(target, engine.file_mode) as file:
        with _reading(engine) as connection:
            start = _start(connection, names, None if before is None else before[1])
            moment = to_micros(engine.clock())
            digest = NO_PARENT if before is None else before[0]
            writer = SnapshotWriter(file, Header(moment, start.position, digest))
            _write(connection, writer, start)
        sha256 = writer.finish()
    return Snapshot(
        target,
        sha256.hex(),
        None if before is None else before[0].hex(),
        start.store,
        tuple(start.namespaces.values()),
        start.position,
        from_micros(moment),
        writer.rows(Section.RECORDS),
        writer.size,
    )


def describe(path: SnapshotPath) -> Snapshot:
    """What a snapshot says of itself. Its frames and its SHA-256 are verified, its contents are not."""
    location = Path(path).expanduser().absolute()
    with opened(location) as reader:
        start: Start | None = None
        records = 0
        for section, rows in reader.sections(KNOWN_SECTIONS):
            if section == Section.START:
                start = read_start(rows, reader.header)
            elif section == Section.RECORDS:
                records = sum(1 for _ in rows)
        if start is None:
            raise SnapshotError(f"{location} is no snapshot that can be used: it does not say which store it is of")
        header = reader.header
        return Snapshot(
            location,
            reader.sha256.hex(),
            header.parent.hex() if header.incremental else None,
            start.store,
            tuple(start.namespaces.values()),
            header.position,
            from_micros(header.created_at),
            records,
            reader.size,
        )


@contextmanager
def opened(path: Path) -> Iterator[SnapshotReader]:
    """A snapshot file to read; errors say which file it was."""
    try:
        if _is_database(path):
            raise SnapshotError(f"{path} was refused and nothing was changed: it is a database, or locked like one")
        with open(path, "rb") as file:
            yield SnapshotReader(file)
    except OSError as error:
        raise StoreUnavailable(f"the snapshot {path} cannot be read: {error.strerror}") from error
    except SnapshotError as error:
        if str(path) in str(error):
            raise
        raise SnapshotError(f"{path} was refused and nothing was changed: {error}") from error


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
    cost = _parsed_bytes(row) if section is Section.START else _flat_bytes(row, _JSON_COLUMNS.get(section, ()))
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


def as_chain(snapshot: SnapshotPath | Sequence[SnapshotPath]) -> list[Path]:
    """The files of a chain, oldest first."""
    given = [snapshot] if isinstance(snapshot, str | Path) else list(snapshot)
    if not given:
        raise InvalidInput("name a snapshot, or a full one and those that continue it, oldest first")
    return [Path(one).expanduser().absolute() for one in given]


def read_start(rows: Iterator[bytes], header: Header) -> Start:
    """The first row, checked."""
    found = list(zip(rows, range(2), strict=False))
    if len(found) != 1:
        raise SnapshotError("its first section must have one row")
    check_row_size(Section.START, found[0][0])
    try:
        store, created, position, committed, since, names, last, spaces, active, anchors = json.loads(found[0][0])
        start = Start(
            store,
            created,
            position,
            committed,
            since,
            dict(names),
            last,
            {number: (name, dimensions) for number, name, dimensions in spaces},
            dict(active),
            {kind: [(number, guard) for number, guard in anchors[kind]] for kind in ("records", "entries")},
        )
        sound = _is_sound(start, len(names), len(spaces))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SnapshotError("its first row cannot be read") from error
    if not sound or position != header.position or bool(since) > header.incremental or since > position:
        raise SnapshotError("its first row makes no sense")
    return start


def _is_sound(start: Start, namespaces: int, spaces: int) -> bool:
    numbers = [*start.namespaces, *start.active, *start.active.values(), *start.spaces, start.last_namespace]
    numbers += [dimensions for _, dimensions in start.spaces.values()]
    places = [start.created_at, start.committed_at, start.since, start.position]
    places += [number for anchors in start.anchors.values() for pair in anchors for number in pair]
    names = [start.store, *start.namespaces.values(), *(name for name, _ in start.spaces.values())]
    return (
        all(type(number) is int and 0 < number < 1 << 31 for number in numbers)
        and all(type(number) is int and 0 <= number < 1 << 62 for number in places)
        and all(type(name) is str and name for name in names)
        and 0 < len(start.namespaces) == namespaces == len(set(start.namespaces.values()))
        and len(start.spaces) == spaces
        and all(dimensions <= 65_536 for _, dimensions in start.spaces.values())
        and start.active.keys() <= start.namespaces.keys()
        and set(start.active.values()) <= start.spaces.keys()
        and max(start.namespaces) <= start.last_namespace
    )


def descends(connection: sqlite3.Connection, start: Start) -> bool:
    """Whether a database is a later state of the store that a snapshot was taken from."""
    (store,) = connection.execute("SELECT id FROM store").fetchone()
    if store != start.store or last_number(connection) < start.position:
        return False
    for number, guard in start.anchors["records"]:
        row = connection.execute(
            f"SELECT {RECORD_COLUMNS} FROM records r WHERE r.seq = ? AND r.version > 0", (number,)
        ).fetchone()
        if row is None:
            row = connection.execute("SELECT 1 FROM forgotten WHERE record = ?", (number,)).fetchone()
            if row is None:
                return False
        elif not was_guarded(row, guard):
            return False
    for number, guard in start.anchors["entries"]:
        row = connection.execute(f"SELECT {ENTRY_COLUMNS} FROM entries WHERE seq = ?", (number,)).fetchone()
        if row is None or not (row[0] or guard in (row[11], entry_guard_4(row[1:11]))):
            return False
    return True


# -- what is written ---------------------------------------------------------------------------------


def _parent(path: Path) -> tuple[bytes, Start]:
    """The name of a parent and what it begins with. The rest is verified when it is restored."""
    with opened(path) as reader:
        for section, rows in reader.sections(KNOWN_SECTIONS):
            if section == Section.START:
                return reader.sha256, read_start(rows, reader.header)
            break
        raise SnapshotError("it does not say which store it is of")


@step("snapshot.start")
def _start(connection: sqlite3.Connection, names: Sequence[str], parent: Start | None) -> Start:
    known = {name: number for number, name in connection.execute("SELECT number, name FROM namespaces")}
    missing = [name for name in names if name not in known]
    if missing:
        raise NotFound(f"there is no namespace {missing[0]!r} in this store; it has {', '.join(known)}")
    namespaces = dict(sorted((known[name], name) for name in names))
    if parent is not None:
        if not descends(connection, parent):
            raise SnapshotError("the parent is not of this store's past; take a full snapshot first")
        older = {number for number in namespaces if number <= parent.last_namespace}
        if parent.namespaces.keys() != older:
            raise SnapshotError(
                f"the parent holds the namespaces {', '.join(parent.namespaces.values())}; an incremental snapshot "
                "holds the same ones, and those made since. Name these, or take a full snapshot."
            )
    chosen = json.dumps([*namespaces])
    active = dict(
        connection.execute(
            "SELECT t.namespace, s.number FROM settings t JOIN spaces s ON s.number = CAST(t.value AS INTEGER) "
            "WHERE t.node = '' AND t.key = 'space' AND t.namespace IN (SELECT value FROM json_each(?)) ORDER BY 1",
            (chosen,),
        ).fetchall()
    )
    spaces = {
        number: (name, dimensions)
        for number, name, dimensions in connection.execute("SELECT number, name, dimensions FROM spaces ORDER BY 1")
        if number in active.values()
    }
    newest = "AND namespace IN (SELECT value FROM json_each(?)) ORDER BY seq DESC LIMIT ?"
    records = connection.execute(
        f"SELECT {RECORD_COLUMNS} FROM records r NOT INDEXED WHERE version > 0 {newest}", (chosen, _ANCHORS)
    )
    entries = connection.execute(
        f"SELECT seq, checksum FROM entries NOT INDEXED WHERE NOT deleted {newest}", (chosen, _ANCHORS)
    )
    anchors = {"records": [(row[0], counted_guard(row)) for row in records], "entries": entries.fetchall()}
    store, created_at, committed_at = connection.execute(
        "SELECT id, created_at, "
        "max(committed_at, ifnull((SELECT committed_at FROM records ORDER BY seq DESC LIMIT 1), 0)) FROM store"
    ).fetchone()
    return Start(
        store,
        created_at,
        last_number(connection),
        committed_at,
        0 if parent is None else parent.position,
        namespaces,
        max(known.values()),
        spaces,
        active,
        anchors,
    )


@step("snapshot.write")
def _write(connection: sqlite3.Connection, writer: SnapshotWriter, start: Start) -> None:
    writer.begin(Section.START)
    _add(writer, Section.START, start.pack())
    values = {"chosen": json.dumps([*start.namespaces]), "since": start.since}
    for section in list(Section)[1:]:
        writer.begin(section)
        if section is Section.RECORDS:
            _write_records(connection, writer, start)
        elif section is Section.BLOB_BYTES:
            _write_blobs(connection, writer, values)
        elif section is Section.VECTORS:
            _write_vectors(connection, writer, start)
        else:
            for row in connection.execute(_ROWS[section], values):
                _add(writer, section, _packed(row))


def _add(writer: SnapshotWriter, section: Section, row: bytes) -> None:
    """Add a row that can be read again."""
    check_row_size(section, row)
    writer.add(row)


@step("snapshot.write_records")
def _write_records(connection: sqlite3.Connection, writer: SnapshotWriter, start: Start) -> None:
    columns = f"SELECT {RECORD_COLUMNS}, r.window_tokens FROM records r"
    if len(start.namespaces) == 1:  # through the index, past what others have
        where = "INDEXED BY records_by_number WHERE r.namespace = ?"
    else:
        where = "NOT INDEXED WHERE r.namespace IN (SELECT value FROM json_each(?))"
    chosen = next(iter(start.namespaces)) if len(start.namespaces) == 1 else json.dumps([*start.namespaces])
    for row in connection.execute(
        f"{columns} {where} AND r.seq > ? AND r.version > 0 ORDER BY r.seq", (chosen, start.since)
    ):
        check_row(row)
        _add(writer, Section.RECORDS, _packed((*row[:2], *row[4:17], row[27], *row[18:24], row[28])))


def _write_blobs(connection: sqlite3.Connection, writer: SnapshotWriter, values: dict[str, Any]) -> None:
    sizes = connection.execute(
        "SELECT seq, length(data) FROM blobs WHERE key IS NOT NULL AND seq > :since "
        "AND namespace IN (SELECT value FROM json_each(:chosen)) ORDER BY seq",
        values,
    )
    for seq, size in sizes:
        with connection.blobopen("blobs", "data", seq, readonly=True) as blob:
            for place in range(0, size, _PIECE_BYTES):
                writer.add(BLOB_PIECE.pack(seq, place) + blob.read(_PIECE_BYTES))


def _write_vectors(connection: sqlite3.Connection, writer: SnapshotWriter, start: Start) -> None:
    """In the order of their numbers, in which they are appended again: see `loom.storage.sqlite.schema`."""
    if len(start.active) == 1:
        ((namespace, space),) = start.active.items()
        where = "INDEXED BY vectors_by_number WHERE v.namespace = ? AND v.space = ?"
        values: tuple[Any, ...] = (namespace, space)
    else:
        where = "NOT INDEXED WHERE v.namespace || ':' || v.space IN (SELECT value FROM json_each(?))"
        values = (json.dumps([f"{namespace}:{space}" for namespace, space in start.active.items()]),)
    for seq, record, namespace, data in connection.execute(
        f"SELECT v.seq, v.record, v.namespace, v.data FROM vectors v {where} AND v.seq > ? "
        f"AND v.record IS NOT NULL AND {_LIVES.format('v.record')} ORDER BY v.seq",
        (*values, start.since),
    ):
        writer.add(VECTOR.pack(seq, record, namespace) + data)


# A row that means nothing without its record is left out with it; `check` reports it.
_LIVES = "EXISTS (SELECT 1 FROM records r WHERE r.seq = {} AND r.version > 0)"
_CHOSEN = "namespace IN (SELECT value FROM json_each(:chosen))"

_ROWS = {
    Section.FORGOTTEN: f"SELECT seq, namespace, record FROM forgotten WHERE {_CHOSEN} AND seq > :since ORDER BY seq",
    Section.SETTINGS: f"SELECT namespace, node, key, value FROM settings WHERE {_CHOSEN}",
    Section.SUPERSESSIONS: "SELECT s.record, s.seq, s.by, s.at, s.committed_at FROM supersessions s "
    f"JOIN records r ON r.seq = s.record AND r.version > 0 WHERE r.{_CHOSEN} AND s.seq > :since "
    f"AND {_LIVES.format('s.by')}",
    Section.DERIVATIONS: f"SELECT record, namespace, replaces FROM derivations d WHERE {_CHOSEN} "
    f"AND record > :since AND {_LIVES.format('d.record')}",
    # The first versions of both; of a source that is not stored yet, its id. Format 4 had a hash there.
    Section.EDGES: "SELECT e.derived, e.source, NULL FROM edges e "
    "JOIN records d ON d.seq = e.derived AND d.version = 1 JOIN records s ON s.seq = e.source AND s.version = 1 "
    f"WHERE d.{_CHOSEN} UNION ALL SELECT w.derived, NULL, w.id FROM awaited w "
    f"JOIN records d ON d.seq = w.derived AND d.version = 1 WHERE w.{_CHOSEN} AND w.id_hash IS NOT NULL",
    Section.MOVES: "SELECT record, seq, namespace, node, tier, entered, reason FROM moves m "
    f"WHERE {_CHOSEN} AND seq > :since AND {_LIVES.format('m.record')}",
    Section.RESIDENTS: "SELECT namespace, node, tier, record, tokens, importance, entered, written_at "
    f"FROM residents p WHERE {_CHOSEN} AND {_LIVES.format('p.record')}",
    Section.TIERS: f"SELECT namespace, node, tier, hits, misses, since FROM tiers WHERE {_CHOSEN}",
    # The last value is for pins on ids that are not stored, of which format 4 kept the hash.
    Section.PINS: f"SELECT p.namespace, p.seq, p.record, NULL FROM pins p WHERE p.{_CHOSEN} "
    f"AND {_LIVES.format('p.record')}",
    Section.ACCESSES: "SELECT namespace, record, node, count, last_at, previous_at FROM accesses a "
    f"WHERE {_CHOSEN} AND {_LIVES.format('a.record')}",
    Section.ENTRIES: "SELECT seq, namespace, scope, owner, key, version, deleted, created_by, updated_by, "
    "created_at, updated_at, metadata, content, checksum FROM entries NOT INDEXED "
    f"WHERE {_CHOSEN} AND seq > :since ORDER BY seq",
    Section.BLOBS: "SELECT seq, namespace, key, checksum, length(data) FROM blobs NOT INDEXED "
    f"WHERE {_CHOSEN} AND key IS NOT NULL ORDER BY seq",
    # How far the indexes and the archive have come is not carried over: they are made again. Here all are counted.
    Section.PROGRESS: f"SELECT namespace, kind, watermark FROM projections WHERE {_CHOSEN} "
    f"AND kind NOT IN ('{TEXT}', '{VECTORS}', '{archive.PROGRESS}', '{counting.PROGRESS}')",
    # Where nothing is left to be cleaned there is nothing to scrub.
    Section.JOBS: "SELECT namespace, kind, record, seq, data, attempts, error FROM jobs j "
    f"WHERE {_CHOSEN} AND kind != '{SCRUB}' AND (record <= 0 OR {_LIVES.format('j.record')})",
}


def _packed(row: Any) -> bytes:
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


# -- files -------------------------------------------------------------------------------------------


@contextmanager
def _reading(engine: Engine) -> Iterator[sqlite3.Connection]:
    """One unchanging state of the database, over a connection of its own."""
    if engine.path is None:
        with engine.read() as connection:
            yield connection
        return
    with engine.private_connection() as connection, engine.translated():
        connection.execute("BEGIN")
        yield connection


def _check_target(target: Path, engine: Engine, parent: SnapshotPath | None) -> None:
    """Raise an error unless a snapshot may be written to this path."""
    if not target.parent.is_dir():
        raise StoreUnavailable(f"the folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise StoreUnavailable(f"{target} is a folder; name a file in it, e.g. {target / 'agent.hctx'}")
    if engine.path is not None and (target == engine.path or (target.exists() and target.samefile(engine.path))):
        raise InvalidInput("a snapshot cannot replace the store it is made from; choose another path")
    if parent is not None and target.exists() and target.samefile(parent):
        raise InvalidInput("a snapshot cannot replace its parent, which restoring it needs; choose another path")
    _check_replaceable(target)


def _check_replaceable(target: Path) -> None:
    """Raise `StoreUnavailable` unless the path is free, or holds a snapshot or an empty file."""
    if not target.exists():
        return
    if target.is_file() and not _is_database(target):
        try:
            with open(target, "rb") as file:
                begin = file.read(len(MAGIC))
        except OSError as error:
            raise StoreUnavailable(f"{target} exists and cannot be read: {error.strerror}") from error
        if begin in (b"", MAGIC):
            return
    raise StoreUnavailable(f"{target} exists and is not a snapshot; choose another path, or remove that file first")


def _is_database(path: Path) -> bool:
    """Whether a file is a SQLite database, or an empty file with a log beside it.

    SQLite itself is asked. To open and close the file here would release the locks that this process has on it, and
    another process could then overwrite the commits of a memory that is open.
    """
    if not path.is_file():
        return False
    if not path.stat().st_size:
        return any(os.path.lexists(f"{path}{suffix}") for suffix in ("-wal", "-journal"))
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.0)
        try:
            connection.execute("PRAGMA schema_version")
        finally:
            connection.close()
    except sqlite3.Error as error:
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
        if code == sqlite3.SQLITE_IOERR:
            raise translate(error, path) or error from error
        # Locked, or in need of recovery: a database. A file that cannot be opened at all is reported by who opens it.
        return code not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN)
    return True


@contextmanager
def _replacing(target: Path, mode: int) -> Iterator[BinaryIO]:
    """A file that takes the target's place when it is complete and on the disk; a kill leaves what was there."""
    with temporary_beside(target, mode) as temporary:
        try:
            with open(temporary, "r+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _check_replaceable(target)  # once more: writing may have taken minutes
            keep_mode(temporary, target)
            let_go(temporary)
            os.replace(temporary, target)
            sync_folder(target.parent)
        except OSError as error:
            raise StoreUnavailable(f"the snapshot {target} was not made: {error.strerror}") from error
