"""The format of a snapshot file: a header, compressed frames of bounded size, an index, and a SHA-256 over all bytes.

To this module, sections are numbers and rows are bytes. A file is written and read sequentially, with one frame in
memory. Every size in a file is compared with a fixed bound before memory is allocated. docs/snapshots.md describes
the format for programs that read it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from loom.errors import SnapshotError
from loom.progress import report
from loom.steps import step

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

__all__ = [
    "FRAME_BYTES",
    "LARGEST_ROW",
    "MAGIC",
    "NO_PARENT",
    "VERSION",
    "Header",
    "SnapshotReader",
    "SnapshotWriter",
]

MAGIC = b"HCTX"
VERSION = 1
FRAME_BYTES = 1 << 20
"""The largest size of a frame before compression, in bytes."""

LARGEST_ROW = 128 << 20
"""The largest row, in bytes. A text of 16 MB fits even if every character is escaped."""

NO_PARENT = bytes(32)

_INCREMENTAL = 1
_OPTIONAL = 0x8000  # a reader skips unknown sections with these numbers
_INDEX = 0xFFFF
# Magic, version, flags, time in microseconds, position in the sequence, SHA-256 of the parent, zero, CRC.
_HEADER = struct.Struct("<4sHHqQ32sII")
_FRAME = struct.Struct("<HHIII")  # section, zero, bytes before and after compression, CRC of the uncompressed bytes
_LENGTH = struct.Struct("<I")
_FOOT = struct.Struct("<Q32s")  # offset of the index, SHA-256 of all bytes before
_MOST_STORED = FRAME_BYTES + (FRAME_BYTES >> 6) + 1024
# Measured on 30,000 messages in two languages: level 1 compresses them 4.0:1 at 295 MB/s, level 3 4.6:1 at 210 MB/s,
# and level 9 5.1:1 at 42 MB/s. Vectors do not shrink at any level.
_LEVEL = 3
_WINDOW_LOG = FRAME_BYTES.bit_length() - 1


class Header(NamedTuple):
    """The first 64 bytes of a file."""

    created_at: int
    position: int
    parent: bytes = NO_PARENT

    @property
    def incremental(self) -> bool:
        return self.parent != NO_PARENT

    def pack(self) -> bytes:
        flags = _INCREMENTAL if self.incremental else 0
        known = _HEADER.pack(MAGIC, VERSION, flags, self.created_at, self.position, self.parent, 0, 0)
        return known[:-4] + zlib.crc32(known[:-4]).to_bytes(4, "little")

    @classmethod
    def unpack(cls, given: bytes) -> Header:
        if len(given) < _HEADER.size or given[:4] != MAGIC:
            raise SnapshotError("it is not a snapshot: it does not begin with HCTX and a header of 64 bytes")
        _, version, flags, created_at, position, parent, nothing, checksum = _HEADER.unpack(given)
        for is_sound, fault in (
            (
                version == VERSION,
                f"it has format {version}; this version of loom reads format {VERSION}. "
                "If a newer version of loom wrote it: pip install --upgrade loomkeep",
            ),
            (
                zlib.crc32(given[:-4]) == checksum and not nothing,
                "its header does not match its checksum: the file was damaged",
            ),
            (
                flags == (_INCREMENTAL if parent != NO_PARENT else 0),
                f"its header has unknown flags ({flags:#06x})",
            ),
            (
                position < 1 << 62 and 0 <= created_at < 1 << 57,
                "its header has an impossible position or time",
            ),
        ):
            if not is_sound:
                raise SnapshotError(fault)
        return cls(created_at, position, parent)


@dataclass(slots=True)
class _Tally:
    """The entry of a section in the index."""

    frames: int = 0
    rows: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0

    def add(self, raw_bytes: int, stored_bytes: int) -> None:
        self.frames += 1
        self.raw_bytes += raw_bytes
        self.stored_bytes += stored_bytes


class _Frame(NamedTuple):
    """A frame as read: its section, its bytes, and its size in the file."""

    section: int
    raw: bytes
    stored_bytes: int


class SnapshotWriter:
    """Writes a snapshot to a file that is open for writing; `finish` completes it."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._pending = bytearray()
        self._section = 0
        self._tallies: dict[int, _Tally] = {}
        self.size = 0
        self._write(header.pack())

    def begin(self, section: int) -> None:
        """Begin a section. Sections must come in ascending order, each once."""
        if not self._section < section < _INDEX:
            raise ValueError(f"section {section} after section {self._section}")
        self._flush()
        self._section = section
        self._tallies[section] = _Tally()

    def add(self, row: bytes) -> None:
        if len(row) > LARGEST_ROW:
            raise SnapshotError(f"a row of {len(row):,} bytes is larger than a snapshot can hold ({LARGEST_ROW:,})")
        self._tallies[self._section].rows += 1
        self._pending += _LENGTH.pack(len(row))
        self._pending += row
        while len(self._pending) >= FRAME_BYTES:
            self._frame(self._section, bytes(self._pending[:FRAME_BYTES]))
            del self._pending[:FRAME_BYTES]

    def rows(self, section: int) -> int:
        """The number of rows written to a section so far."""
        return self._tallies[section].rows if section in self._tallies else 0

    @step("snapshot.finish")
    def finish(self) -> bytes:
        """Write the index and the trailer. Returns the SHA-256 that identifies this snapshot."""
        self._flush()
        place = self.size
        listed = [[section, *astuple(tally)] for section, tally in self._tallies.items() if tally.rows]
        self._frame(_INDEX, json.dumps({"sections": listed}, separators=(",", ":")).encode())
        self._write(place.to_bytes(8, "little"))
        digest = self._digest.digest()
        self._write(digest)
        return digest

    def _flush(self) -> None:
        if self._pending:
            self._frame(self._section, bytes(self._pending))
            self._pending.clear()

    def _frame(self, section: int, raw: bytes) -> None:
        stored = zstd.compress(raw, level=_LEVEL)
        if section in self._tallies:
            self._tallies[section].add(len(raw), len(stored))
        self._write(_FRAME.pack(section, 0, len(raw), len(stored), zlib.crc32(raw)))
        self._write(stored)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)


class SnapshotReader:
    """Reads a snapshot sequentially. Opening it reads the header, the index and the trailer, without trusting them.

    The contents are compared with the header and the index as they are read. The file is verified once `sections` is
    exhausted. Every fault raises `SnapshotError`. `raw_bytes` is the total size before compression, as the index
    states it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size
        file.seek(0)
        self.header = Header.unpack(file.read(_HEADER.size))
        if self.size < _HEADER.size + _FRAME.size + _FOOT.size:
            raise SnapshotError("it is truncated")
        file.seek(self.size - _FOOT.size)
        self._index_at, self.sha256 = _FOOT.unpack(file.read(_FOOT.size))
        misplaced = "its index is not where the trailer says: the file is truncated or was damaged"
        if not _HEADER.size <= self._index_at <= self.size - _FOOT.size - _FRAME.size:
            raise SnapshotError(misplaced)
        file.seek(self._index_at)
        index = self._read_frame(None)
        if index.section != _INDEX or file.tell() != self.size - _FOOT.size:
            raise SnapshotError(misplaced)
        self._expected = _read_index(index.raw, self._index_at - _HEADER.size)
        self.raw_bytes = sum(tally.raw_bytes for tally in self._expected.values())

    def declared(self, section: int) -> int:
        """The size of a section before compression, as the index states it."""
        return self._expected[section].raw_bytes if section in self._expected else 0

    def sections(self, known: Mapping[int, int]) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Yield each known section with its rows, in order. Rows that the caller does not read are skipped.

        `known` maps a section to the largest size of its rows in bytes, at most `LARGEST_ROW`.
        """
        digest = hashlib.sha256()
        self._file.seek(0)
        digest.update(self._file.read(_HEADER.size))
        before = 0
        found: dict[int, _Tally] = {}
        for section, frames in itertools.groupby(self._frames(digest), key=lambda frame: frame.section):
            if section <= before:
                raise SnapshotError(f"section {section} follows section {before}: it is out of order or a duplicate")
            if section not in self._expected:
                raise SnapshotError(f"section {section} is not in the index")
            before = section
            found[section] = tally = _Tally()
            rows = _rows(frames, section, tally, known.get(section, LARGEST_ROW))
            if section in known:
                yield section, rows
            elif section < _OPTIONAL:
                raise SnapshotError(f"section {section} is required but unknown to this version of loom; upgrade it")
            for _ in rows:
                pass
            if tally != self._expected[section]:
                raise SnapshotError(f"section {section} does not match the index")
        if found.keys() != self._expected.keys():
            raise SnapshotError("the index names sections that are missing")
        rest = self._file.read(self.size - self._index_at + 1)
        digest.update(rest[:-32])
        if len(rest) != self.size - self._index_at or digest.digest() != rest[-32:] or rest[-32:] != self.sha256:
            raise SnapshotError("it does not match its SHA-256: the file was damaged or changed")

    def _frames(self, digest: Any) -> Iterator[_Frame]:
        """Yield the frames between the header and the index."""
        while (place := self._file.tell()) < self._index_at:
            yield self._read_frame(digest)
            report(self._file.tell(), self._index_at, "bytes")
        if place > self._index_at:
            raise SnapshotError("a frame reaches into the index")

    def _read_frame(self, digest: Any) -> _Frame:
        head = self._file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            raise SnapshotError("it is truncated")
        section, nothing, raw_bytes, stored_bytes, checksum = _FRAME.unpack(head)
        if nothing or not 0 < raw_bytes <= FRAME_BYTES or not 0 < stored_bytes <= _MOST_STORED:
            raise SnapshotError(
                f"a frame of section {section} states {stored_bytes:,} bytes for {raw_bytes:,}; "
                f"the most is {FRAME_BYTES:,}"
            )
        stored = self._file.read(stored_bytes)
        if len(stored) < stored_bytes:
            raise SnapshotError("it is truncated")
        if digest is not None:
            digest.update(head + stored)
        return _Frame(section, _decompressed(stored, raw_bytes, checksum, section), stored_bytes)


def _decompressed(stored: bytes, raw_bytes: int, checksum: int, section: int) -> bytes:
    decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})
    try:
        if zstd.get_frame_info(stored).decompressed_size not in (None, raw_bytes):
            raise SnapshotError(f"a frame of section {section} does not have the size that it states")
        raw = decompressor.decompress(stored, max_length=raw_bytes + 1)
    except (zstd.ZstdError, EOFError) as error:
        raise SnapshotError(f"a frame of section {section} cannot be decompressed: the file was damaged") from error
    if len(raw) != raw_bytes or not decompressor.eof or decompressor.unused_data:
        raise SnapshotError(f"a frame of section {section} does not have the size that it states")
    if zlib.crc32(raw) != checksum:
        raise SnapshotError(f"a frame of section {section} does not match its checksum: the file was damaged")
    return raw


def _rows(frames: Iterable[_Frame], section: int, tally: _Tally, largest: int) -> Iterator[bytes]:
    """Yield the rows of one section. A row may begin in one frame and end in another."""
    pending = bytearray()
    for frame in frames:
        tally.add(len(frame.raw), frame.stored_bytes)
        pending += frame.raw
        place = 0
        while len(pending) - place >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(pending, place)
            if length > largest:
                raise SnapshotError(f"a row of section {section} states {length:,} bytes; the most is {largest:,}")
            end = place + _LENGTH.size + length
            if end > len(pending):
                break
            tally.rows += 1
            with memoryview(pending) as held:
                row = bytes(held[place + _LENGTH.size : end])
            place = end
            if length > FRAME_BYTES:  # decoding it may take the same amount of memory again
                del pending[:place]
                place = 0
            yield row
            del row
        del pending[:place]
    if pending:
        raise SnapshotError(f"the last row of section {section} is truncated")


def _read_index(raw: bytes, room: int) -> dict[int, _Tally]:
    """Parse the index. Raises `SnapshotError` unless its sizes fit the `room` bytes between header and index."""
    try:
        listed = json.loads(raw.decode())["sections"]
        found = {section: _Tally(*numbers) for section, *numbers in listed}
        sound = len(found) == len(listed) and all(
            type(number) is int and 0 <= number < 1 << 50
            for section, tally in found.items()
            for number in (section, *astuple(tally))
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SnapshotError("its index cannot be read: the file was damaged") from error
    if not sound:
        raise SnapshotError("its index is not valid")
    for section, tally in found.items():
        room -= tally.stored_bytes + tally.frames * _FRAME.size
        if (
            room < 0
            or tally.frames > tally.stored_bytes
            or not tally.frames <= tally.raw_bytes <= tally.frames * FRAME_BYTES
            or tally.rows * _LENGTH.size > tally.raw_bytes
        ):
            raise SnapshotError(f"section {section} cannot match the index: the file is too small for it")
    return found
