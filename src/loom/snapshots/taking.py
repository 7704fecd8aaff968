"""Taking a snapshot: the parts of a store that go into a `.hctx` file, from one read transaction, while others write.

A full snapshot holds everything that a namespace has. An incremental one holds what was appended since its parent
(records, versions, entries, vectors, moves, tombstones), and all of the small tables that change in place. Indexes
are left out: they are made again from the records. Archived words are written out, because a block refers to numbers
of its own store; the store that they are restored into archives them by its own rule.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from loom.checks import checked_items, checked_list, checked_path
from loom.errors import InvalidInput, NotFound, SnapshotError, StoreUnavailable
from loom.index.segments import sync_folder
from loom.progress import followed
from loom.snapshots.format import MAGIC, NO_PARENT, Header, SnapshotReader, SnapshotWriter
from loom.snapshots.tables import BLOB_PIECE, KNOWN_SECTIONS, TABLES, VECTOR, Section, check_row_size, pack_row
from loom.steps import step
from loom.storage.files import disk_errors, keep_mode
from loom.storage.identity import entry_guard_4
from loom.storage.moments import from_micros, to_micros
from loom.storage.sqlite.engine import Engine, translate
from loom.storage.sqlite.projections import last_number
from loom.storage.sqlite.rows import ENTRY_COLUMNS, RECORD_COLUMNS, check_row, counted_guard, was_guarded
from loom.storage.sqlite.store import as_sqlite
from loom.storage.temporary import let_go, temporary_beside

if TYPE_CHECKING:
    from loom.storage.contract import Store

__all__ = ["Snapshot", "SnapshotPath", "Start", "as_chain", "descends", "describe", "opened", "read_start", "take"]

SnapshotPath = str | Path

_PIECE_BYTES = 256 * 1024
_ANCHORS = 8


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
        return pack_row(
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
    target = Path(checked_path(path, "the path of a snapshot")).expanduser().absolute()
    if parent is not None:
        parent = checked_path(parent, "the parent of a snapshot")
    with disk_errors(f"the snapshot {target} was not made"):
        _check_target(target, engine, parent)
    before, digest = None, NO_PARENT
    if parent is not None:
        with opened(Path(parent).expanduser()) as reader:  # the rest of it is verified when it is restored
            before, digest = read_start(reader.sections(KNOWN_SECTIONS), reader.header), reader.sha256
    if namespaces is not None and not checked_items(namespaces, str, "snapshot", "namespaces"):
        raise InvalidInput("namespaces is a list of names, with at least one")
    names = [store.namespace] if namespaces is None else list(dict.fromkeys(namespaces))
    if names != [store.namespace]:
        store.check_namespaces(f"take a snapshot of {', '.join(map(repr, names))}")
    store.flush_accesses()
    with _replacing(target, engine.file_mode) as file:
        with _reading(engine) as connection:
            start = _start(connection, names, before)
            moment = to_micros(engine.clock())
            writer = SnapshotWriter(file, Header(moment, start.position, digest))
            _write(connection, writer, start)
        sha256 = writer.finish()
    return Snapshot(
        target,
        sha256.hex(),
        None if before is None else digest.hex(),
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
        header, sections = reader.header, reader.sections(KNOWN_SECTIONS)
        start = read_start(sections, header)
        records = sum(sum(1 for _ in rows) for section, rows in sections if section == Section.RECORDS)
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
        if kind := _database_kind(path):
            raise SnapshotError(f"{path} was refused and nothing was changed: it is {kind}")
        with open(path, "rb") as file:
            yield SnapshotReader(file)
    except OSError as error:
        raise StoreUnavailable(f"the snapshot {path} cannot be read: {error.strerror}") from error
    except SnapshotError as error:
        if str(path) in str(error):
            raise
        raise SnapshotError(f"{path} was refused and nothing was changed: {error}") from error


def as_chain(snapshot: SnapshotPath | Sequence[SnapshotPath]) -> list[Path]:
    """The files of a chain, oldest first."""
    given = [snapshot] if isinstance(snapshot, str | PathLike) else checked_list(snapshot, "what is restored")
    if not given:
        raise InvalidInput("name a snapshot, or a full one and those that continue it, oldest first")
    return [Path(checked_path(one, "a snapshot")).expanduser().absolute() for one in given]


def read_start(sections: Iterator[tuple[int, Iterator[bytes]]], header: Header) -> Start:
    """The row of the first section, checked; the other sections follow."""
    section, rows = next(sections, (0, iter(())))
    if section != Section.START:
        raise SnapshotError("it does not say which store it is of")
    found = list(itertools.islice(rows, 2))
    if len(found) != 1:
        raise SnapshotError("its first section must have one row")
    (first,) = found
    check_row_size(Section.START, first)
    try:
        store, created, position, committed, since, names, last, spaces, active, anchors = json.loads(first)
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
        gone = connection.execute("SELECT 1 FROM forgotten WHERE record = ?", (number,)).fetchone()
        if not (was_guarded(row, guard) if row else gone):
            return False
    for number, guard in start.anchors["entries"]:
        row = connection.execute(f"SELECT {ENTRY_COLUMNS} FROM entries WHERE seq = ?", (number,)).fetchone()
        if row is None:
            return False
        deleted, *values, checksum = row
        if not deleted and guard not in (checksum, entry_guard_4(tuple(values))):
            return False
    return True


# -- what is written ---------------------------------------------------------------------------------


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
    guards = [(seq, counted_guard((seq, *rest))) for seq, *rest in records]
    anchors = {"records": guards, "entries": entries.fetchall()}
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
            for row in connection.execute(TABLES[section].taken, values):
                _add(writer, section, pack_row(row))


def _add(writer: SnapshotWriter, section: Section, row: bytes) -> None:
    """Add a row that can be read again."""
    check_row_size(section, row)
    writer.add(row)


@step("snapshot.write_records")
def _write_records(connection: sqlite3.Connection, writer: SnapshotWriter, start: Start) -> None:
    chosen: list[Any] = [*start.namespaces]
    if len(chosen) == 1:  # through the index, past what others have
        where = "INDEXED BY records_by_number WHERE r.namespace = ?"
    else:
        where, chosen = "NOT INDEXED WHERE r.namespace IN (SELECT value FROM json_each(?))", [json.dumps(chosen)]
    wanted = f"FROM records r {where} AND r.seq > ? AND r.version > 0"
    given = (*chosen, start.since)
    rows = connection.execute(f"SELECT {RECORD_COLUMNS}, r.window_tokens {wanted} ORDER BY r.seq", given)
    for row in followed(rows, lambda: _count(connection, wanted, given), "records"):
        check_row(row)
        # fmt: off
        (
            seq, namespace, _, _, *values, _, counter, created_at, committed_at, metadata, data, content, _, _, _,
            tokens, window_tokens,
        ) = row
        # fmt: on
        written = (tokens, counter, created_at, committed_at, metadata, data, content, window_tokens)
        _add(writer, Section.RECORDS, pack_row((seq, namespace, *values, *written)))


def _count(connection: sqlite3.Connection, wanted: str, values: Sequence[Any]) -> int:
    (count,) = connection.execute(f"SELECT count(*) {wanted}", values).fetchone()
    return int(count)


def _write_blobs(connection: sqlite3.Connection, writer: SnapshotWriter, values: dict[str, Any]) -> None:
    for seq, _, _, _, size in connection.execute(TABLES[Section.BLOBS].taken, values):
        if seq > values["since"]:
            with connection.blobopen("blobs", "data", seq, readonly=True) as blob:
                for place in range(0, size, _PIECE_BYTES):
                    writer.add(BLOB_PIECE.pack(seq, place) + blob.read(_PIECE_BYTES))


def _write_vectors(connection: sqlite3.Connection, writer: SnapshotWriter, start: Start) -> None:
    """In the order of their numbers, in which they are appended again: see `loom.storage.sqlite.schema`."""
    chosen: list[Any] = [f"{namespace}:{space}" for namespace, space in start.active.items()]
    if len(chosen) == 1:
        where, chosen = "INDEXED BY vectors_by_number WHERE v.namespace = ? AND v.space = ?", chosen[0].split(":")
    else:
        where = "NOT INDEXED WHERE v.namespace || ':' || v.space IN (SELECT value FROM json_each(?))"
        chosen = [json.dumps(chosen)]
    wanted = (
        f"FROM vectors v {where} AND v.seq > ? AND v.record IS NOT NULL "
        "AND EXISTS (SELECT 1 FROM records r WHERE r.seq = v.record AND r.version > 0)"
    )
    values = (*chosen, start.since)
    rows = connection.execute(f"SELECT v.seq, v.record, v.namespace, v.data {wanted} ORDER BY v.seq", values)
    for *numbers, data in followed(rows, lambda: _count(connection, wanted, values), "vectors"):
        writer.add(VECTOR.pack(*numbers) + data)


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
    kind = _database_kind(target) if target.is_file() else "not a file"
    if not kind:
        try:
            with open(target, "rb") as file:
                begin = file.read(len(MAGIC))
        except OSError as error:
            raise StoreUnavailable(f"{target} exists and cannot be read: {error.strerror}") from error
        if begin in (b"", MAGIC):
            return
        kind = "a file of another kind"
    raise StoreUnavailable(
        f"{target} exists and is not a snapshot: it is {kind}. Choose another path, or remove that file first"
    )


def _database_kind(path: Path) -> str:
    """How a file is a SQLite database, or an empty file with a log beside it; nothing for any other file.

    SQLite itself is asked. To open and close the file here would release the locks that this process has on it, and
    another process could then overwrite the commits of a memory that is open.
    """
    if not path.is_file():
        return ""
    if not path.stat().st_size:
        logged = any(os.path.lexists(f"{path}{suffix}") for suffix in ("-wal", "-journal"))
        return "an empty database" if logged else ""
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
        # A file that cannot be opened at all is reported by who opens it.
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN):
            return ""
        return f"a database, or locked like one ({error})"
    return "a database"


@contextmanager
def _replacing(target: Path, mode: int) -> Iterator[BinaryIO]:
    """A file that takes the target's place when it is complete and on the disk; a kill leaves what was there."""
    with temporary_beside(target, mode) as temporary, disk_errors(f"the snapshot {target} was not made"):
        with open(temporary, "r+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _check_replaceable(target)  # once more: writing may have taken minutes
        keep_mode(temporary, target)
        let_go(temporary)
        os.replace(temporary, target)
        sync_folder(target.parent)
