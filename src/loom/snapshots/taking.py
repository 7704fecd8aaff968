"""Taking a snapshot: write a `.hctx` file from one consistent state of a store, while other processes write to it.

A full snapshot holds all rows of a namespace. An incremental one holds the rows appended since its parent (records,
versions, entries, vectors, moves, tombstones), and all rows of the small tables whose rows change in place. Indexes
are omitted and rebuilt from the records. Archived text is written uncompressed, because a block refers to sequence
numbers of its own store; the restored store archives by its own rules.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from loom.checks import checked_items, checked_list, checked_path
from loom.errors import InvalidInput, SnapshotError, StoreUnavailable
from loom.progress import followed
from loom.snapshots.format import MAGIC, NO_PARENT, Header, SnapshotReader, SnapshotWriter
from loom.snapshots.sections import BLOB_PIECE, CONTENTS, KNOWN_SECTIONS, VECTOR, Section, check_row_size, pack_row
from loom.steps import step
from loom.storage.contract import Origin, Rows, Store
from loom.storage.files import check_folder, database_kind, disk_errors
from loom.storage.identity import entry_guard_4
from loom.storage.moments import from_micros, to_micros
from loom.storage.tables import entry_values, guarded, named, record_guard_4
from loom.storage.temporary import replacing

__all__ = ["Snapshot", "SnapshotPath", "Start", "as_chain", "descends", "describe", "opened", "read_start", "take"]

SnapshotPath = str | Path

_ANCHORS = 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot file: `sha256` identifies it in a chain, `parent` is the `sha256` of the snapshot it continues.

    `position` is the last sequence number of the store at that time, `records` the number of records in this file.
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
    """The first row of a snapshot: the store from which it was taken, and the sequence number after which it begins.

    `anchors` are sequence numbers and checksums of the newest records and entries. They distinguish a later state of
    the same store from a copy that has diverged.
    """

    origin: Origin
    since: int
    anchors: dict[str, list[tuple[int, int]]]

    def pack(self) -> bytes:
        origin = self.origin
        return pack_row(
            [
                *origin[:4],
                self.since,
                list(origin.namespaces.items()),
                origin.last_namespace,
                [[number, *space] for number, space in origin.spaces.items()],
                list(origin.active.items()),
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
    """Write a snapshot of some namespaces (default: the store's own) to a path; replaces the file when complete."""
    target = Path(checked_path(path, "the path of a snapshot")).expanduser().absolute()
    store.settings()  # raises `Closed`
    parent = None if parent is None else checked_path(parent, "the parent of a snapshot")
    with disk_errors(f"the snapshot {target} was not made"):
        _check_target(target, store.path, parent)
    before, digest = None, NO_PARENT
    if parent is not None:
        with opened(Path(parent).expanduser()) as reader:  # its other sections are verified by a restore
            before, digest = read_start(reader.sections(KNOWN_SECTIONS), reader.header), reader.sha256
    if namespaces is not None and not checked_items(namespaces, str, "snapshot", "namespaces"):
        raise InvalidInput("namespaces must be a list of at least one name")
    with disk_errors(f"the snapshot {target} was not made"), replacing(target, store.file_mode) as file:
        with store.copying(namespaces) as copy:
            start = _start(copy, before)
            moment = to_micros(store.clock())
            writer = SnapshotWriter(file, Header(moment, start.origin.position, digest))
            _write(copy, writer, start)
        sha256 = writer.finish()
        _check_replaceable(target)  # again, since writing may have taken minutes
    return Snapshot(
        target,
        sha256.hex(),
        None if before is None else digest.hex(),
        start.origin.store,
        tuple(start.origin.namespaces.values()),
        start.origin.position,
        from_micros(moment),
        writer.rows(Section.RECORDS),
        writer.size,
    )


def describe(path: SnapshotPath) -> Snapshot:
    """Describe a snapshot file. Verifies its frames and its SHA-256, but not its rows."""
    location = Path(path).expanduser().absolute()
    with opened(location) as reader:
        header, sections = reader.header, reader.sections(KNOWN_SECTIONS)
        start = read_start(sections, header)
        records = sum(sum(1 for _ in rows) for section, rows in sections if section == Section.RECORDS)
        return Snapshot(
            location,
            reader.sha256.hex(),
            header.parent.hex() if header.incremental else None,
            start.origin.store,
            tuple(start.origin.namespaces.values()),
            header.position,
            from_micros(header.created_at),
            records,
            reader.size,
        )


@contextmanager
def opened(path: Path) -> Iterator[SnapshotReader]:
    """Open a snapshot file for reading. Errors in the block name the file."""
    try:
        if kind := database_kind(path):
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
    """Read and check the first section; the iterator then continues with the second."""
    section, rows = next(sections, (0, iter(())))
    if section != Section.START:
        raise SnapshotError("it does not name its store")
    found = list(itertools.islice(rows, 2))
    if len(found) != 1:
        raise SnapshotError("its first section must have one row")
    (first,) = found
    check_row_size(Section.START, first)
    try:
        store, created, position, committed, since, names, last, spaces, active, anchors = json.loads(first)
        spaces_by_number = {number: (name, dimensions) for number, name, dimensions in spaces}
        start = Start(
            Origin(store, created, position, committed, dict(names), last, spaces_by_number, dict(active)),
            since,
            {kind: [(number, guard) for number, guard in anchors[kind]] for kind in ("records", "entries")},
        )
        sound = _is_sound(start, len(names), len(spaces))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SnapshotError("its first row cannot be read") from error
    if not sound or position != header.position or bool(since) > header.incremental or since > position:
        raise SnapshotError("its first row is not valid")
    return start


def _is_sound(start: Start, namespaces: int, spaces: int) -> bool:
    origin = start.origin
    numbers = [*origin.namespaces, *origin.active, *origin.active.values(), *origin.spaces, origin.last_namespace]
    numbers += [dimensions for _, dimensions in origin.spaces.values()]
    places = [origin.created_at, origin.committed_at, start.since, origin.position]
    places += [number for anchors in start.anchors.values() for pair in anchors for number in pair]
    names = [origin.store, *origin.namespaces.values(), *(name for name, _ in origin.spaces.values())]
    return (
        all(type(number) is int and 0 < number < 1 << 31 for number in numbers)
        and all(type(number) is int and 0 <= number < 1 << 62 for number in places)
        and all(type(name) is str and name for name in names)
        and 0 < len(origin.namespaces) == namespaces == len(set(origin.namespaces.values()))
        and len(origin.spaces) == spaces
        and all(dimensions <= 65_536 for _, dimensions in origin.spaces.values())
        and origin.active.keys() <= origin.namespaces.keys()
        and set(origin.active.values()) <= origin.spaces.keys()
        and max(origin.namespaces) <= origin.last_namespace
    )


def descends(rows: Rows, start: Start) -> bool:
    """Whether these rows are a later state of the store from which a snapshot was taken."""
    origin = rows.origin()
    if origin.store != start.origin.store or origin.position < start.origin.position:
        return False
    for number, guard in start.anchors["records"]:
        found = next(named("records", rows.rows("records", seq=number)), None)
        if found is None:
            if next(rows.rows("forgotten", record=number), None) is None:
                return False
        elif guard not in (guarded(found, found["namespace"])["checksum"], record_guard_4(found)):
            return False
    for number, guard in start.anchors["entries"]:
        entry = next(named("entries", rows.rows("entries", seq=number)), None)
        if entry is None:
            return False
        guards = (entry["checksum"], entry_guard_4(entry_values(entry)))
        if not entry["deleted"] and guard not in guards:
            return False
    return True


# -- written content ---------------------------------------------------------------------------------


@step("snapshot.start")
def _start(copy: Rows, parent: Start | None) -> Start:
    origin = copy.origin()
    if parent is not None:
        theirs = parent.origin.namespaces
        older = {number for number in origin.namespaces if number <= parent.origin.last_namespace}
        if origin.store == parent.origin.store and theirs.keys() != older:
            raise SnapshotError(
                f"the parent has the namespaces {', '.join(theirs.values())}; an incremental snapshot must "
                "have the same ones, and those created since. Name these, or take a full snapshot."
            )
        if not descends(copy, parent):
            raise SnapshotError("the parent is not an earlier state of this store; take a full snapshot first")
    records = named("records", copy.rows("records", newest=_ANCHORS))
    entries = named("entries", copy.rows("entries", newest=_ANCHORS, deleted=0))
    anchors = {
        "records": [(row["seq"], guarded(row, row["namespace"])["checksum"]) for row in records],
        "entries": [(row["seq"], row["checksum"]) for row in entries],
    }
    return Start(origin, 0 if parent is None else parent.origin.position, anchors)


@step("snapshot.write")
def _write(copy: Rows, writer: SnapshotWriter, start: Start) -> None:
    writer.begin(Section.START)
    _add(writer, Section.START, start.pack())
    for section in list(Section)[1:]:
        writer.begin(section)
        if section is Section.BLOB_BYTES:
            _write_blobs(copy, writer, start.since)
        else:
            _write_rows(copy, writer, section, start.since)


@step("snapshot.write_rows")
def _write_rows(copy: Rows, writer: SnapshotWriter, section: Section, since: int) -> None:
    table = CONTENTS[section].table.name
    rows = copy.rows(table, after=since)
    if table in ("records", "vectors"):
        rows = followed(rows, lambda: copy.count_rows(table, after=since), table)
    for row in rows:
        if section is Section.VECTORS:
            *numbers, data = row
            writer.add(VECTOR.pack(*numbers) + data)
        else:
            _add(writer, section, pack_row(row))


def _add(writer: SnapshotWriter, section: Section, row: bytes) -> None:
    """Write a row. Raises `SnapshotError` if it is too large to be read again."""
    check_row_size(section, row)
    writer.add(row)


def _write_blobs(copy: Rows, writer: SnapshotWriter, since: int) -> None:
    for number, *_ in copy.rows("blobs"):
        place = 0
        for piece in copy.blob_pieces(number) if number > since else ():
            writer.add(BLOB_PIECE.pack(number, place) + piece)
            place += len(piece)


# -- files -------------------------------------------------------------------------------------------


def _check_target(target: Path, own: Path | None, parent: SnapshotPath | None) -> None:
    """Raise an error unless a snapshot may be written to this path."""
    check_folder(target.parent)
    if target.is_dir():
        raise StoreUnavailable(f"{target} is a folder; name a file in it, e.g. {target / 'agent.hctx'}")
    if own is not None and (target == own or (target.exists() and target.samefile(own))):
        raise InvalidInput("a snapshot cannot replace its own store; choose another path")
    if parent is not None and target.exists() and target.samefile(parent):
        raise InvalidInput("a snapshot cannot replace its parent, which a restore needs; choose another path")
    _check_replaceable(target)


def _check_replaceable(target: Path) -> None:
    """Raise `StoreUnavailable` unless the path is free, or holds a snapshot or an empty file."""
    if not target.exists():
        return
    kind = database_kind(target) if target.is_file() else "not a file"
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
