"""Snapshots as a database again: a chain of files is read into a new one, which is out of sight until it is complete.

Every value is checked before it is stored, whatever the checksums of the file say: a forged snapshot has right ones.
Hashes, checksums and totals are computed and not taken from the file. A record that a later snapshot of the chain has
forgotten is never written. A new store is staged beside its place and renamed; merging a namespace reads the stage.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loom.errors import InvalidInput, SnapshotError, StoreFull, StoreUnavailable
from loom.index.analysis import ANALYSIS_VERSION
from loom.index.segments import sync_folder
from loom.protocol import new_id
from loom.snapshots.format import NO_PARENT, SnapshotReader
from loom.snapshots.taking import (
    BLOB_PIECE,
    KNOWN_SECTIONS,
    NOTED,
    VECTOR,
    Section,
    SnapshotPath,
    Start,
    as_chain,
    check_row_size,
    opened,
    read_start,
)
from loom.steps import step
from loom.storage.contract import LAYOUTS, MAX_TEXT_BYTES, Dimensions, Retention
from loom.storage.files import FILE_MODE, create_file, disk_errors, remove_database
from loom.storage.identity import entry_guard, entry_guard_4, guard, id_hash, session_hash
from loom.storage.sqlite import schema
from loom.storage.sqlite.engine import translate
from loom.storage.sqlite.projections import advance
from loom.storage.sqlite.residency import TierTotals
from loom.storage.sqlite.transactions import INSERT_EDGE, INSERT_RECORD
from loom.storage.temporary import let_go, temporary_beside

__all__ = ["INSERT_ENTRY", "Restored", "Stage", "restore", "staged", "staged_aside"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did: how many records came, how many were there already, and how many stay forgotten.

    `entries`, `blobs` and `vectors` count what came with them; `left` counts derived records of which the
    target has another version.
    """

    path: Path | None
    namespaces: tuple[str, ...]
    records: int
    present: int = 0
    forgotten: int = 0
    left: int = 0
    entries: int = 0
    blobs: int = 0
    vectors: int = 0


def restore(
    snapshot: SnapshotPath | Sequence[SnapshotPath], path: SnapshotPath, *, file_mode: int = FILE_MODE
) -> Restored:
    """Make a new store of a snapshot, or of a full one and those that continue it, oldest first.

    The store appears under its path when it is complete; a kill leaves nothing there.
    """
    target = Path(path).expanduser().absolute()
    with disk_errors(f"{target} was not made"):
        if not target.parent.is_dir():
            raise StoreUnavailable(f"the folder {target.parent} does not exist; create it first")
    for suffix in ("", "-wal", "-journal"):  # a log that was left behind would be played over the new file
        if _is_there(f"{target}{suffix}"):
            raise StoreUnavailable(
                f"{target}{suffix} exists; a snapshot is restored to a new file, or into a namespace of a memory "
                "that is open: memory.restore(snapshot)"
            )
    with temporary_beside(target, file_mode) as temporary:
        with staged(as_chain(snapshot), temporary, mode=file_mode) as stage:
            found = _counted(stage, target)
        _publish(temporary, target)
    return found


def _is_there(path: str) -> bool:
    with disk_errors(f"{path} cannot be looked at"):
        try:
            os.lstat(path)
        except FileNotFoundError:
            return False
    return True


@contextmanager
def staged(chain: Sequence[Path], place: Path, unnamed: bool = False, mode: int = FILE_MODE) -> Iterator[Stage]:
    """A chain as a database of its own at a place, checked throughout; it stays there, unless it is `unnamed`."""
    with disk_errors(f"{place} cannot be created"):
        create_file(place, mode)
    with _as_ours(place):
        connection = sqlite3.connect(place, isolation_level=None)
    try:
        with _as_ours(place):
            stage = Stage(connection, place)
            stage.prepare()
            if unnamed:
                with disk_errors(f"{place} cannot be given up"):
                    place.unlink()
            stage.read(chain)
        yield stage
    finally:
        connection.close()


@contextmanager
def staged_aside(chain: Sequence[Path], beside: Path | None) -> Iterator[Stage]:
    """A chain as a database that goes when it has been read, beside a store or in the folder for temporary files.

    It has no name from the start on, so that a kill leaves nothing behind either.
    """
    folder = Path(tempfile.gettempdir()) if beside is None else beside.parent
    place = folder / f".{'loom' if beside is None else beside.name}.{new_id()}.tmp"
    try:
        with staged(chain, place, unnamed=True) as stage:
            yield stage
    finally:
        remove_database(place)


@step("restore.publish")
def _publish(temporary: Path, target: Path) -> None:
    """Bring a closed database to the disk and give it its name."""
    try:
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        let_go(temporary)
        os.rename(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreUnavailable(f"{target} was not made: {error.strerror}") from error


def _counted(stage: Stage, target: Path) -> Restored:
    def count(table: str, where: str = "1") -> int:
        return int(stage.connection.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()[0])

    return Restored(
        target,
        tuple(stage.start.namespaces.values()),
        count("records"),
        entries=count("entries", "NOT deleted"),
        blobs=count("blobs"),
        vectors=count("vectors"),
    )


@contextmanager
def _as_ours(place: Path) -> Iterator[None]:
    """SQLite's errors are those of the disk, or of a row that no store could have written."""
    try:
        yield
    except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError, InvalidInput) as error:
        raise SnapshotError(f"it holds a row that no store could have written ({type(error).__name__})") from error
    except sqlite3.Error as error:
        raise translate(error, place) or error from error


# -- checking values ---------------------------------------------------------------------------------

Check = Callable[[Any], bool]

_LARGEST = 1 << 62
# Year 1 to 9999 in microseconds: what a datetime can hold.
_EARLIEST, _LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
_LONGEST_NAME = 1 << 20


def _number(value: Any) -> bool:
    return type(value) is int and 0 < value < _LARGEST


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _flag(value: Any) -> bool:
    return type(value) is int and 0 <= value <= 1


def _integer(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _integer_or_name(value: Any) -> bool:
    return _integer(value) or _name(value)


def _time(value: Any) -> bool:
    return type(value) is int and _EARLIEST <= value <= _LATEST


def _share(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _text(value: Any) -> bool:
    return type(value) is str and len(value) <= _LONGEST_NAME


def _name(value: Any) -> bool:
    return _text(value) and value != ""


def _content(value: Any) -> bool:
    return type(value) is str and (len(value) * 4 <= MAX_TEXT_BYTES or len(value.encode()) <= MAX_TEXT_BYTES)


def _json(value: Any) -> bool:
    if type(value) is not str:
        return False
    try:
        json.loads(value, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _object(value: Any) -> bool:
    return _json(value) and value.startswith("{")


def _numbers(value: Any) -> bool:
    return _json(value) and isinstance(found := json.loads(value), list) and all(map(_integer, found))


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


# In the order of the columns that `snapshots` writes.
_SHAPES: dict[Section, tuple[Check, ...]] = {
    Section.FORGOTTEN: (_number, _number, _number),
    Section.SETTINGS: (_number, _text, _name, _json),
    Section.RECORDS: (
        *(_number, _number, _name, _number, _or_none(_name), _text, _text, _or_none(_text), _or_none(_text)),
        *(_or_none(_text), _text, _name, _name, _name, _share, _count, _text, _time, _time),
        *(_or_none(_object), _or_none(_json), _content, _or_none(_count)),
    ),
    Section.SUPERSESSIONS: (_number, _number, _number, _time, _time),
    Section.DERIVATIONS: (_number, _number, _flag),
    Section.EDGES: (_number, _or_none(_number), _or_none(_integer_or_name)),
    Section.MOVES: (_number, _number, _number, _text, _name, _flag, _text),
    Section.RESIDENTS: (_number, _text, _name, _number, _count, _share, _number, _time),
    Section.TIERS: (_number, _text, _name, _count, _count, _count),
    Section.PINS: (_number, _number, _or_none(_number), _or_none(_integer)),
    Section.ACCESSES: (_number, _number, _text, _number, _time, _or_none(_time)),
    Section.ENTRIES: (
        *(_number, _number, _text, _text, _text, _number, _flag, _text, _text, _time, _time),
        *(_or_none(_object), _or_none(_json), _count),
    ),
    Section.BLOBS: (_number, _number, _text, _count, _count),
    Section.PROGRESS: (_number, _name, _count),
    Section.JOBS: (_number, _name, _count, _number, _or_none(_numbers), _count, _or_none(_text)),
}


def _anything(_: Any) -> bool:
    return True


def _retention(value: Any) -> bool:
    try:
        return value is None or bool(Retention(**value))
    except (TypeError, InvalidInput):
        return False


def _restored(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(pairs, list)
        and all(isinstance(pair, list) and len(pair) == 2 and all(map(_count, pair)) for pair in pairs)
        for pairs in value.values()
    )


# What the storage itself reads of the settings of a whole namespace.
_SETTINGS: dict[str, Check] = {
    "analyzer": _count,
    "revision": _count,
    "retention": _retention,
    NOTED: _restored,
}


def _unpacked(section: Section, rows: Iterator[bytes]) -> Iterator[list[Any]]:
    """The rows of a section, each value of the kind that stands in its place."""
    shape = _SHAPES[section]
    decode = json.JSONDecoder(parse_constant=_refused).decode
    for packed in rows:
        check_row_size(section, packed)
        try:
            row = decode(packed.decode())
        except (ValueError, RecursionError) as error:
            raise SnapshotError(f"a row of section {section.name.lower()} cannot be read") from error
        if type(row) is not list or len(row) != len(shape):
            raise SnapshotError(f"a row of section {section.name.lower()} has another shape than it should")
        for place, (check, value) in enumerate(zip(shape, row, strict=True)):
            if not check(value):
                raise SnapshotError(f"value {place + 1} of a row of section {section.name.lower()} makes no sense")
        yield row


# -- the stage ---------------------------------------------------------------------------------------

INSERT_ENTRY = (
    "INSERT INTO entries (seq, namespace, scope, owner, key, version, deleted, created_by, updated_by, created_at, "
    "updated_at, metadata, content, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


# The scope of layouts until format 4, whose keys were digests without salt.
_OLD_LAYOUTS = "context"


class Stage:
    """A new database that a chain of snapshots is read into."""

    start: Start

    def __init__(self, connection: sqlite3.Connection, place: Path) -> None:
        self.connection = connection
        self._place = place
        self._emptied = False
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -4096", "locking_mode = EXCLUSIVE"):
            connection.execute(f"PRAGMA {pragma}")

    @step("stage.prepare")
    def prepare(self) -> None:
        """Make the tables, and with them the file."""
        execute = self.connection.execute
        execute("BEGIN")
        schema.upgrade(self.connection)
        execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        execute("COMMIT")
        execute("CREATE TEMP TABLE gone (record INTEGER PRIMARY KEY)")

    @step("stage.read")
    def read(self, chain: Sequence[Path]) -> None:
        """Read the files of a chain, oldest first."""
        execute = self.connection.execute
        self._check_room(chain)
        for file in chain[1:]:
            self._read_forgotten(file)
        execute("BEGIN")
        before: tuple[bytes, Start] | None = None
        for file in chain:
            with opened(file) as reader, _as_ours(self._place):
                self._check_link(reader, before)
                self._apply(reader, None if before is None else before[1], last=file is chain[-1])
                before = reader.sha256, self.start
        self._complete()
        execute("COMMIT")
        execute("DROP TABLE temp.gone")
        if self._emptied:  # what was deleted since must not stay in the gaps of a page
            execute("VACUUM")

    def _check_room(self, chain: Sequence[Path]) -> None:
        needed = 0
        for file in chain:
            with opened(file) as reader:
                needed += reader.raw_bytes
        with disk_errors(f"the room in {self._place.parent} is not known"):
            free = shutil.disk_usage(self._place.parent).free
        if needed > free:
            raise StoreFull(
                f"restoring needs about {needed:,} bytes, by what the snapshot says, and {self._place.parent} has "
                "fewer; nothing was changed"
            )

    def _check_link(self, reader: SnapshotReader, before: tuple[bytes, Start] | None) -> None:
        parent = reader.header.parent
        if before is None and parent != NO_PARENT:
            raise SnapshotError(
                f"it continues the snapshot {parent.hex()[:16]}…; give the whole chain, from the full one on"
            )
        if before is not None and parent == NO_PARENT:
            raise SnapshotError("it is a full snapshot and continues none; restore it by itself")
        if before is not None and parent != before[0]:
            raise SnapshotError(
                f"it continues the snapshot {parent.hex()[:16]}…, and the one before it is {before[0].hex()[:16]}…; "
                "give the whole chain, oldest first"
            )

    @step("stage.read_forgotten")
    def _read_forgotten(self, file: Path) -> None:
        """Note what is no more by a later snapshot, so that it is not even staged."""
        with opened(file) as reader:
            for section, rows in reader.sections(KNOWN_SECTIONS):
                if section == Section.FORGOTTEN:
                    numbers = ((row[2],) for row in _unpacked(Section.FORGOTTEN, rows))
                    self.connection.executemany("INSERT OR IGNORE INTO temp.gone VALUES (?)", numbers)
                if section >= Section.FORGOTTEN:
                    break

    @step("stage.apply")
    def _apply(self, reader: SnapshotReader, before: Start | None, last: bool) -> None:
        """Add what one file holds. The tables that change in place count as the last file has them."""
        self._reader = reader
        begun = False
        for number, rows in reader.sections(KNOWN_SECTIONS):
            section = Section(number)
            if section is Section.START:
                self.start = read_start(rows, reader.header)
                self._begin(before)
                begun = True
                continue
            if not begun:
                raise SnapshotError("it does not say which store it is of")
            if section is Section.BLOB_BYTES:
                self._blob_bytes(rows)
            elif section is Section.VECTORS:
                self._vectors(rows)
            elif section in _APPENDED or last:
                apply: Callable[[Iterator[list[Any]]], None] = getattr(self, f"_{section.name.lower()}")
                apply(_unpacked(section, rows))
        if not begun:
            raise SnapshotError("it does not say which store it is of")
        self._check_blobs()

    def _begin(self, before: Start | None) -> None:
        start = self.start
        if start.since != (0 if before is None else before.position):
            raise SnapshotError("it does not begin where its parent ends")
        if before is not None and (
            start.store != before.store
            or not before.namespaces.items() <= start.namespaces.items()
            or any(before.spaces.get(number, space) != space for number, space in start.spaces.items())
        ):
            raise SnapshotError("it is of another store than its parent")
        self._blobs_begun = False
        execute = self.connection.execute
        for number, name in start.namespaces.items():
            execute("INSERT OR IGNORE INTO namespaces (number, name) VALUES (?, ?)", (number, name))
        for number, (name, dimensions) in start.spaces.items():
            execute("INSERT OR IGNORE INTO spaces VALUES (?, ?, ?)", (number, name, dimensions))

    # -- rows that are appended ------------------------------------------------------------------------

    def _place_of(self, number: int, namespace: int | None = None) -> None:
        """Refuse a number that does not belong to this file, or a namespace that is not in it."""
        if not self.start.since < number <= self.start.position:
            raise SnapshotError(f"number {number} is outside of what this snapshot covers")
        self._known(namespace)

    def _known(self, namespace: int | None) -> None:
        if namespace is not None and namespace not in self.start.namespaces:
            raise SnapshotError(f"a row is of namespace {namespace}, which is not in this snapshot")

    def _lives(self, record: int, namespace: int | None = None) -> bool:
        """Whether a record is there; False for one that is forgotten further on. Any other number is refused."""
        row = self.connection.execute("SELECT namespace FROM records WHERE seq = ?", (record,)).fetchone()
        if row is not None and namespace in (None, row[0]):
            return True
        if self._gone(record):
            return False
        raise SnapshotError(f"a row is about record {record}, which is not in this snapshot")

    def _gone(self, record: int) -> bool:
        return self.connection.execute("SELECT 1 FROM temp.gone WHERE record = ?", (record,)).fetchone() is not None

    def _forgotten(self, rows: Iterator[list[Any]]) -> None:
        for seq, namespace, record in rows:
            self._place_of(seq, namespace)
            self.connection.execute("INSERT INTO forgotten VALUES (?, ?, ?)", (seq, namespace, record))

    @step("stage.records")
    def _records(self, rows: Iterator[list[Any]]) -> None:
        execute = self.connection.execute
        for row in rows:
            seq, namespace, id, version, tier, kind, node, session = row[:8]
            self._place_of(seq, namespace)
            if self._gone(seq):
                continue
            own = id_hash(namespace, id)
            (newest,) = execute(
                "SELECT max(version) FROM records WHERE id_hash = ? AND id = ? AND +namespace = ?",
                (own, id, namespace),
            ).fetchone()
            if version != (newest or 0) + 1:
                raise SnapshotError(f"version {version} of a record comes after version {newest or 0}")
            Dimensions(*row[11:14])
            values = (
                *(seq, namespace, own, None if session is None else session_hash(namespace, session)),
                *(id, version, tier, kind, node, session, *row[8:14], float(row[14]), *row[15:22]),
            )
            execute(INSERT_RECORD, (*values, guard(values), row[22]))

    def _supersessions(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            record, seq, by, _, _ = row
            self._place_of(seq)
            if self._lives(record) and self._lives(by):
                self.connection.execute("INSERT INTO supersessions VALUES (?, ?, ?, ?, ?)", row)

    def _derivations(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            self._place_of(row[0], row[1])
            if self._lives(row[0], row[1]):
                self.connection.execute("INSERT INTO derivations VALUES (?, ?, ?)", row)

    def _moves(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            self._place_of(row[1], row[2])
            if row[6] and not row[6].isidentifier():
                raise SnapshotError("the reason of a move is more than a word")
            if self._lives(row[0], row[2]):
                self.connection.execute(
                    "INSERT INTO moves (record, seq, namespace, node, tier, entered, reason) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    row,
                )

    def _entries(self, rows: Iterator[list[Any]]) -> None:
        execute = self.connection.execute
        for row in rows:
            seq, namespace, scope, owner, key, version, deleted = row[:7]
            self._place_of(seq, namespace)
            if scope == _OLD_LAYOUTS:
                continue
            place = (namespace, scope, owner, key)
            (newest,) = execute(
                "SELECT max(version) FROM entries WHERE namespace = ? AND scope = ? AND owner = ? AND key = ?", place
            ).fetchone()
            if version != (newest or 0) + 1 or bool(deleted) != (row[12] is None):
                raise SnapshotError(f"version {version} of an entry comes after version {newest or 0}")
            values = (*row[2:6], *row[7:13])
            own = 0 if deleted else entry_guard(values)
            if row[13] != own and (deleted or row[13] != entry_guard_4(values)):
                raise SnapshotError("an entry does not match its checksum")
            if deleted:  # and so is all that came before
                done = execute(
                    "UPDATE entries SET deleted = 1, content = NULL, metadata = NULL, checksum = 0 "
                    "WHERE namespace = ? AND scope = ? AND owner = ? AND key = ? AND NOT deleted",
                    place,
                )
                self._emptied |= done.rowcount > 0
            execute(INSERT_ENTRY, (*row[:13], own))

    def _vectors(self, rows: Iterator[bytes]) -> None:
        for packed in rows:
            if len(packed) < VECTOR.size:
                raise SnapshotError("a vector is cut short")
            seq, record, namespace = VECTOR.unpack_from(packed)
            self._place_of(seq, namespace)
            space = self.start.active.get(namespace)
            data = packed[VECTOR.size :]
            if space is None or len(data) != 2 * self.start.spaces[space][1]:
                raise SnapshotError("a vector has another length than its space")
            if not np.isfinite(np.frombuffer(data, dtype="<f2")).all():
                raise SnapshotError("a vector holds NaN or infinity")
            if self._lives(record, namespace):
                done = self.connection.execute("DELETE FROM vectors WHERE record = ?", (record,))
                self._emptied |= done.rowcount > 0
                self.connection.execute(
                    "INSERT INTO vectors (seq, namespace, space, record, data) VALUES (?, ?, ?, ?, ?)",
                    (seq, namespace, space, record, data),
                )

    # -- blobs -----------------------------------------------------------------------------------------

    def _blobs(self, rows: Iterator[list[Any]]) -> None:
        """Every blob that is left, and room for the bytes of those that are new."""
        execute = self.connection.execute
        execute("UPDATE blobs SET key = NULL")
        self._blobs_begun = True
        room = self._reader.declared(Section.BLOB_BYTES)
        for seq, namespace, key, stored, size in rows:
            self._known(namespace)
            if seq > self.start.since:
                self._place_of(seq, namespace)
                room -= size
                if room < 0:
                    raise SnapshotError("its blobs say they are larger than what the file holds of them")
                execute("INSERT INTO blobs VALUES (?, ?, ?, ?, zeroblob(?))", (seq, namespace, key, stored, size))
            elif not execute(
                "UPDATE blobs SET key = ? WHERE seq = ? AND namespace = ? AND checksum = ? AND length(data) = ?",
                (key, seq, namespace, stored, size),
            ).rowcount:
                raise SnapshotError(f"blob {seq} is not in the snapshots before")
        self._emptied |= execute("DELETE FROM blobs WHERE key IS NULL").rowcount > 0

    def _blob_bytes(self, rows: Iterator[bytes]) -> None:
        for packed in rows:
            if len(packed) < BLOB_PIECE.size:
                raise SnapshotError("a piece of a blob is cut short")
            seq, place = BLOB_PIECE.unpack_from(packed)
            piece = packed[BLOB_PIECE.size :]
            row = self.connection.execute("SELECT length(data) FROM blobs WHERE seq = ?", (seq,)).fetchone()
            if not self.start.since < seq or row is None or place + len(piece) > row[0]:
                raise SnapshotError("a piece of a blob belongs to none")
            with self.connection.blobopen("blobs", "data", seq) as blob:
                blob.seek(place)
                blob.write(piece)

    def _check_blobs(self) -> None:
        if not self._blobs_begun and self.start.since:  # none is left
            self._emptied |= self.connection.execute("DELETE FROM blobs").rowcount > 0
        for seq, stored in self.connection.execute(
            "SELECT seq, checksum FROM blobs WHERE seq > ?", (self.start.since,)
        ).fetchall():
            found = 0
            with self.connection.blobopen("blobs", "data", seq, readonly=True) as blob:
                while piece := blob.read(1 << 18):
                    found = zlib.crc32(piece, found)
            if found != stored:
                raise SnapshotError(f"blob {seq} does not match its checksum")

    # -- tables that count as they are now ---------------------------------------------------------------

    def _settings(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            namespace, node, key, value = row
            self._known(namespace)
            if not node and key == "space" and value != str(self.start.active.get(namespace)):
                raise SnapshotError("its settings name an embedding space that it does not have")
            if not node and not _SETTINGS.get(key, _anything)(json.loads(value)):
                raise SnapshotError(f"its setting {key!r} makes no sense")
            if not node and key == "analyzer" and json.loads(value) > ANALYSIS_VERSION:
                continue  # there is no index yet that a newer program could have made otherwise
            self.connection.execute("INSERT INTO settings VALUES (?, ?, ?, ?)", row)

    def _edges(self, rows: Iterator[list[Any]]) -> None:
        for derived, source, bare in rows:
            namespace = self._first(derived)
            if source is not None:
                if self._first(source) != namespace:
                    raise SnapshotError("an edge leads from one namespace to another")
                self.connection.execute(INSERT_EDGE, (source, derived))
            elif isinstance(bare, str):
                self.connection.execute(
                    "INSERT INTO awaited (namespace, id_hash, id, derived) VALUES (?, ?, ?, ?)",
                    (namespace, id_hash(namespace, bare), bare, derived),
                )
            elif bare is None:
                raise SnapshotError("an edge has one end")

    def _first(self, record: int) -> int:
        """The namespace of a record that is the first version of its id."""
        row = self.connection.execute(
            "SELECT namespace FROM records WHERE seq = ? AND version = 1", (record,)
        ).fetchone()
        if row is None:
            raise SnapshotError(f"a row is about record {record}, which is not in this snapshot as a first version")
        return int(row[0])

    def _residents(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            self._present(row[3], row[0])
            if not row[6] <= self.start.position or row[2] == "l1":
                raise SnapshotError("a record is in a tier in a way that cannot be")
            self.connection.execute("INSERT INTO residents VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _present(self, record: int, namespace: int) -> None:
        self._known(namespace)
        if not self._lives(record, namespace):
            raise SnapshotError(f"a row is about record {record}, which is forgotten")

    def _tiers(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            self._known(row[0])
            if row[5] > self.start.position:
                raise SnapshotError("a window begins after the end of the log")
            self.connection.execute(
                "INSERT INTO tiers (namespace, node, tier, hits, misses, since) VALUES (?, ?, ?, ?, ?, ?)", row
            )

    def _pins(self, rows: Iterator[list[Any]]) -> None:
        for namespace, seq, record, bare in rows:
            self._known(namespace)
            if (record is None and bare is None) or seq > self.start.position:
                raise SnapshotError("a pin is on nothing")
            if record is None:
                continue  # a hash of format 4, of an id that was not stored
            if self._first(record) != namespace:
                raise SnapshotError("a pin is on a record of another namespace")
            self.connection.execute(
                "INSERT INTO pins (record, namespace, seq) VALUES (?, ?, ?)", (record, namespace, seq)
            )

    def _accesses(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            self._present(row[1], row[0])
            self.connection.execute("INSERT INTO accesses VALUES (?, ?, ?, ?, ?, ?)", row)

    def _progress(self, rows: Iterator[list[Any]]) -> None:
        for namespace, kind, watermark in rows:
            self._known(namespace)
            if watermark > self.start.position:
                raise SnapshotError("work is said to have come further than the log")
            advance(self.connection, namespace, kind, watermark)

    def _jobs(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            namespace, _, record, seq = row[:4]
            self._known(namespace)
            if record:
                self._present(record, namespace)
            if seq > self.start.position:
                raise SnapshotError("a job has a number that was never given out")
            self.connection.execute(
                "INSERT INTO jobs (namespace, kind, record, seq, data, attempts, error) VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    # -- the end -----------------------------------------------------------------------------------------

    @step("stage.complete")
    def _complete(self) -> None:
        """What follows from the rest: totals, the identity of the store, and how far its sequence has come."""
        execute, start = self.connection.execute, self.start
        if execute("SELECT 1 FROM temp.gone LIMIT 1").fetchone():  # their layouts went with them
            self._emptied |= execute("DELETE FROM entries WHERE scope = ?", (LAYOUTS,)).rowcount > 0
        for number in start.namespaces:
            TierTotals(self.connection, number).recount()
            space = start.active.get(number, 0)
            stale = execute("DELETE FROM vectors WHERE namespace = ? AND space != ?", (number, space))
            self._emptied |= stale.rowcount > 0
        execute(
            "INSERT INTO store (one, id, created_at, seq, committed_at) VALUES (1, ?, ?, ?, ?)",
            (start.store, start.created_at, start.position, start.committed_at),
        )


_APPENDED = frozenset(
    {
        Section.FORGOTTEN,
        Section.RECORDS,
        Section.SUPERSESSIONS,
        Section.DERIVATIONS,
        Section.MOVES,
        Section.ENTRIES,
        Section.BLOBS,
    }
)
