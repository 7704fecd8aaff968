"""Staging: a chain of snapshots is read into a scratch database and checked there before any store changes.

Every value is checked before it is stored, even if the checksums of the file match, since a forged snapshot has valid
checksums. Hashes, checksums and totals are computed, not read from the file. A record that a later snapshot of the
chain has forgotten is never written. A new store is staged beside its path and renamed; `merging` reads the stage of
an existing store.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loom.checks import checked_path
from loom.discovery import is_server
from loom.errors import InvalidInput, SnapshotError, StoreFull, StoreUnavailable
from loom.index.analysis import ANALYSIS_VERSION
from loom.index.segments import sync_folder
from loom.protocol import new_id
from loom.snapshots.format import NO_PARENT, SnapshotReader
from loom.snapshots.sections import BLOB_PIECE, CONTENTS, KNOWN_SECTIONS, Section, is_sound_setting
from loom.snapshots.taking import SnapshotPath, Start, as_chain, opened, read_start
from loom.steps import step
from loom.storage.contract import Dimensions
from loom.storage.files import FILE_MODE, check_folder, disk_errors, remove_database
from loom.storage.identity import entry_guard, entry_guard_4
from loom.storage.scratch import Scratch
from loom.storage.tables import Row, Table, entry_values, guarded
from loom.storage.temporary import let_go, temporary_beside

__all__ = ["Restored", "Stage", "restore", "staged", "staged_aside"]


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore: the numbers of records that were restored, were already present, or stay forgotten.

    `entries`, `blobs` and `vectors` count the restored ones; `left` counts derived records that were omitted because
    the target has another version of them.
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
    """Create a new store from a snapshot, or from a full one and its continuations, oldest first.

    The file appears at its path once it is complete; a kill leaves nothing there. On a server (the path is a URL) the
    namespaces of the snapshot must be empty; each is restored in one transaction.
    """
    place = checked_path(path, "the path of the new store")
    if is_server(place):
        from loom.snapshots.merging import restore_all_into

        return restore_all_into(place, as_chain(snapshot))
    target = Path(place).expanduser().absolute()
    with disk_errors(f"{target} was not made"):
        check_folder(target.parent)
    for suffix in ("", "-wal", "-journal"):  # SQLite would replay a stale log into the new file
        if _is_there(f"{target}{suffix}"):
            raise StoreUnavailable(
                f"{target}{suffix} exists; a snapshot is restored to a new file, or into a namespace of a memory "
                "that is open: memory.restore(snapshot)"
            )
    with temporary_beside(target, file_mode) as temporary:
        with staged(as_chain(snapshot), temporary, mode=file_mode) as stage:
            count = stage.scratch.count
            found = Restored(
                target,
                tuple(stage.start.origin.namespaces.values()),
                count("records"),
                entries=count("entries"),
                blobs=count("blobs"),
                vectors=count("vectors"),
            )
        _publish(temporary, target)
    return found


def _is_there(path: str) -> bool:
    with disk_errors(f"{path} cannot be examined"):
        try:
            os.lstat(path)
        except FileNotFoundError:
            return False
    return True


@contextmanager
def staged(chain: Sequence[Path], place: Path, unnamed: bool = False, mode: int = FILE_MODE) -> Iterator[Stage]:
    """Stage a chain in a database at a path, and check all of it. With `unnamed`, the file is unlinked at once."""
    with _as_ours():
        scratch = Scratch(place, mode)
    try:
        with _as_ours(), scratch.faults():
            stage = Stage(scratch, place)
            scratch.prepare()
            if unnamed:
                scratch.unlink()
            stage.read(chain)
        with scratch.faults():
            yield stage
    finally:
        scratch.close()


@contextmanager
def staged_aside(chain: Sequence[Path], beside: Path | None) -> Iterator[Stage]:
    """Stage a chain in a temporary database, beside a store or in the folder for temporary files.

    The file is unlinked as soon as it exists, so a kill leaves nothing behind.
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
    """Sync a closed database and rename it to its path."""
    with disk_errors(f"{target} was not made"):
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        let_go(temporary)
        os.rename(temporary, target)
        sync_folder(target.parent)


@contextmanager
def _as_ours() -> Iterator[None]:
    """Raise `SnapshotError` instead of `InvalidInput`: in a restore, an invalid value is a fault of the snapshot."""
    try:
        yield
    except InvalidInput as error:
        raise SnapshotError(f"it has a row that no store could have written: {error}") from error


# -- the stage ---------------------------------------------------------------------------------------

# The scope of layouts until format 4, whose keys were digests without salt.
_OLD_LAYOUTS = "context"


class Stage:
    """A scratch database with the rows of a chain of snapshots."""

    start: Start

    def __init__(self, scratch: Scratch, place: Path) -> None:
        self.scratch = scratch
        self._place = place

    @step("stage.read")
    def read(self, chain: Sequence[Path]) -> None:
        self._check_room(chain)
        for file in chain[1:]:
            self._read_forgotten(file)
        before: tuple[bytes, Start] | None = None
        for file in chain:
            with opened(file) as reader, _as_ours(), self.scratch.faults():
                self._check_link(reader, before)
                self._apply(reader, None if before is None else before[1], last=file is chain[-1])
                before = reader.sha256, self.start
        self.scratch.complete(self.start.origin)

    def _check_room(self, chain: Sequence[Path]) -> None:
        needed = 0
        for file in chain:
            with opened(file) as reader:
                needed += reader.raw_bytes
        with disk_errors(f"the free space in {self._place.parent} is not known"):
            free = shutil.disk_usage(self._place.parent).free
        if needed > free:
            raise StoreFull(
                f"restoring needs about {needed:,} bytes according to the snapshot, and {self._place.parent} has "
                "fewer; nothing was changed"
            )

    def _check_link(self, reader: SnapshotReader, before: tuple[bytes, Start] | None) -> None:
        parent = reader.header.parent
        if before is None and parent != NO_PARENT:
            raise SnapshotError(
                f"it continues the snapshot {parent.hex()[:16]}…; name the whole chain, starting with the full one"
            )
        if before is not None and parent == NO_PARENT:
            raise SnapshotError("it is a full snapshot, which continues no other; restore it alone")
        if before is not None and parent != before[0]:
            raise SnapshotError(
                f"it continues the snapshot {parent.hex()[:16]}…, and the one before it is {before[0].hex()[:16]}…; "
                "name the whole chain, oldest first"
            )

    @step("stage.read_forgotten")
    def _read_forgotten(self, file: Path) -> None:
        """Note the records that a later snapshot has forgotten, so that they are never staged."""
        with opened(file) as reader:
            for number, rows in reader.sections(KNOWN_SECTIONS):
                section = Section(number)
                if section == Section.FORGOTTEN:
                    self.scratch.note_gone(row["record"] for row in _unpacked(section, rows))
                if section >= Section.FORGOTTEN:
                    break

    @step("stage.apply")
    def _apply(self, reader: SnapshotReader, before: Start | None, last: bool) -> None:
        """Add the rows of one file. Tables whose rows change in place come from the last file."""
        sections = reader.sections(KNOWN_SECTIONS)
        self.start = read_start(sections, reader.header)
        self._begin(before)
        blobs = False
        for number, rows in sections:
            section = Section(number)
            if section is Section.BLOBS:
                self._blobs(_unpacked(section, rows), reader.declared(Section.BLOB_BYTES))
                blobs = True
            elif section is Section.BLOB_BYTES:
                self._blob_bytes(rows)
            elif CONTENTS[section].table.appended or last:
                self._rows(section, rows)
        self._check_blobs(blobs)

    def _begin(self, before: Start | None) -> None:
        origin, earlier = self.start.origin, None if before is None else before.origin
        if self.start.since != (0 if earlier is None else earlier.position):
            raise SnapshotError("it does not begin at the end of its parent")
        if earlier is not None and (
            origin.store != earlier.store
            or not earlier.namespaces.items() <= origin.namespaces.items()
            or any(earlier.spaces.get(number, space) != space for number, space in origin.spaces.items())
        ):
            raise SnapshotError("it was taken from another store than its parent")
        self.scratch.know(origin.namespaces, origin.spaces)

    # -- rows ------------------------------------------------------------------------------------------

    @step("stage.rows")
    def _rows(self, section: Section, rows: Iterator[bytes]) -> None:
        """Check and store the rows of a section.

        A table may have a method `_prepare_<table>`, which may change a row and returns whether to store it.
        """
        table = CONTENTS[section].table
        prepare: Callable[[Row], bool] = getattr(self, f"_prepare_{table.name}", lambda row: True)
        admitted = (row for row in _unpacked(section, rows) if self._admits(section, table, row) and prepare(row))
        self.scratch.add_rows(table.name, admitted)

    def _admits(self, section: Section, table: Table, row: Row) -> bool:
        """Whether to store a row: False if a later snapshot forgets its record. Raises an error if it is invalid."""
        origin, namespace, content = self.start.origin, row.get("namespace"), CONTENTS[section]
        if namespace not in origin.namespaces and namespace is not None:
            raise SnapshotError(f"a row is of namespace {namespace}, which is not in this snapshot")
        if table.appended and not self.start.since < row[table.appended] <= origin.position:
            raise SnapshotError(f"sequence number {row[table.appended]} is outside of the range of this snapshot")
        if content.late and any(row[column] > origin.position for column in table.numbers):
            raise SnapshotError(content.late)
        for error, applies in content.rules.items():
            if applies(row):
                raise SnapshotError(error)
        for column in table.records:
            record = row[column]
            about_none = record is None or (column in table.about and record == 0)
            if not about_none and not self._lives(record, namespace):
                if table.appended:
                    return False
                raise SnapshotError(f"a row is about record {record}, which is forgotten")
        return True

    def _lives(self, record: int, namespace: int | None = None) -> bool:
        """Whether a record is staged; False if a later snapshot forgets it. Raises an error for any other number."""
        found = self.scratch.version_of(record)
        if found is not None and namespace in (None, found[0]):
            return True
        if self.scratch.is_gone(record):
            return False
        raise SnapshotError(f"a row is about record {record}, which is not in this snapshot")

    def _first(self, record: int) -> int:
        """The namespace of a record, which must be the first version of its id."""
        found = self.scratch.version_of(record)
        if found is None or found[1] != 1:
            raise SnapshotError(f"a row is about record {record}, which is not in this snapshot as a first version")
        return found[0]

    def _prepare_records(self, row: Row) -> bool:
        if self.scratch.is_gone(row["seq"]):
            return False
        Dimensions(row["subject"], row["flow"], row["layer"])
        row["importance"] = float(row["importance"])
        row.update(guarded(row, row["namespace"]))
        newest = self.scratch.newest_version(row)
        if row["version"] != newest + 1:
            raise SnapshotError(f"version {row['version']} of a record comes after version {newest}")
        return True

    def _prepare_entries(self, row: Row) -> bool:
        if row["scope"] == _OLD_LAYOUTS:
            return False
        newest = self.scratch.newest_entry(row)
        deleted = bool(row["deleted"])
        if row["version"] != newest + 1 or deleted != (row["content"] is None):
            raise SnapshotError(f"version {row['version']} of an entry comes after version {newest}")
        values = entry_values(row)
        own = 0 if deleted else entry_guard(values)
        if row["checksum"] != own and (deleted or row["checksum"] != entry_guard_4(values)):
            raise SnapshotError("an entry does not match its checksum")
        row["checksum"] = own
        return True

    def _prepare_settings(self, row: Row) -> bool:
        if row["node"]:
            return True
        key, value = row["key"], json.loads(row["value"])
        if key == "space" and row["value"] != str(self.start.origin.active.get(row["namespace"])):
            raise SnapshotError("its settings name an embedding space that it does not have")
        if not is_sound_setting(key, value):
            raise SnapshotError(f"its setting {key!r} is not valid")
        # The restored store has no index yet, so the version of a newer analyzer must not be kept.
        return key != "analyzer" or bool(value <= ANALYSIS_VERSION)

    def _prepare_edges(self, row: Row) -> bool:
        namespace, source, bare = self._first(row["derived"]), row["source"], row["bare"]
        if source is not None and self._first(source) != namespace:
            raise SnapshotError("an edge leads from one namespace to another")
        if source is None and bare is None:
            raise SnapshotError("an edge has only one end")
        if source is not None:
            self.scratch.add_edge(row["derived"], source)
        elif isinstance(bare, str):
            self.scratch.await_source(namespace, bare, row["derived"])
        return False

    def _prepare_pins(self, row: Row) -> bool:
        if row["record"] is not None and self._first(row["record"]) != row["namespace"]:
            raise SnapshotError("a pin is on a record of another namespace")
        return row["record"] is not None  # otherwise a hash of format 4, of an id that was not stored

    def _prepare_vectors(self, row: Row) -> bool:
        row["space"] = space = self.start.origin.active.get(row["namespace"])
        data = row["data"]
        if space is None or len(data) != 2 * self.start.origin.spaces[space][1]:
            raise SnapshotError("a vector has another length than its space")
        if not np.isfinite(np.frombuffer(data, dtype="<f2")).all():
            raise SnapshotError("a vector has a value that is NaN or infinite")
        return True

    # -- blobs -----------------------------------------------------------------------------------------

    def _blobs(self, rows: Iterable[Row], room: int) -> None:
        """Keep the listed blobs and allocate new ones, up to the size that the index states for their bytes."""
        self.scratch.hide_blobs()
        for row in rows:
            self._admits(Section.BLOBS, CONTENTS[Section.BLOBS].table, row)
            if row["seq"] > self.start.since:
                room -= row["size"]
                if room < 0:
                    raise SnapshotError("its blobs state a larger size than the file has for them")
                self.scratch.make_room(row)
            elif not self.scratch.reveal_blob(row):
                raise SnapshotError(f"blob {row['seq']} is not in the earlier snapshots")
        self.scratch.drop_hidden_blobs()

    def _blob_bytes(self, rows: Iterator[bytes]) -> None:
        for packed in rows:
            if len(packed) < BLOB_PIECE.size:
                raise SnapshotError("a piece of a blob is truncated")
            seq, place = BLOB_PIECE.unpack_from(packed)
            if not self.start.since < seq or not self.scratch.write_piece(seq, place, packed[BLOB_PIECE.size :]):
                raise SnapshotError("a piece of a blob belongs to no blob")

    def _check_blobs(self, any_left: bool) -> None:
        if not any_left and self.start.since:  # none is left
            self.scratch.hide_blobs()
            self.scratch.drop_hidden_blobs()
        copy = self.scratch.rows_of(*self.start.origin.namespaces)
        for seq, _, _, stored, _ in [*copy.rows("blobs")]:
            found = 0
            for piece in copy.blob_pieces(seq) if seq > self.start.since else ():
                found = zlib.crc32(piece, found)
            if seq > self.start.since and found != stored:
                raise SnapshotError(f"blob {seq} does not match its checksum")


def _unpacked(section: Section, rows: Iterator[bytes]) -> Iterator[Row]:
    """Decode the rows of a section and check every value."""
    return (CONTENTS[section].unpacked(section, packed) for packed in rows)
