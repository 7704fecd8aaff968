"""Segments: the immutable array files of the text index and the vector index.

A segment is a JSON header and named arrays, each aligned and with its own checksum. It is written once, under a name
that is never used again. A small one is read into memory and verified when it is opened. A large one is mapped, so
opening it reads its header only. A segment may also exist only in memory. The meaning of the arrays is defined in
`text_segments.py` and `vector_segments.py`.

A change to a file is detected without reading the file. The writer sets the modification time to a whole second and
stores that second in the header; any later change to the file also changes its modification time. A mapped file whose
time differs is verified when it is opened. `Segment.is_unchanged` checks the time again before each search, because
reading a mapped file that was truncated kills the process.
"""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.errors import CorruptStore, StoreUnavailable

__all__ = [
    "FILE_MODE",
    "IN_MEMORY_BYTES",
    "Array",
    "Built",
    "DamagedSegment",
    "Segment",
    "open_segment",
    "places_of",
    "read_arrays",
    "sync_folder",
    "write_segment",
]

Array = npt.NDArray[Any]
Built = tuple[dict[str, Any], dict[str, Array]]
"""Header and arrays of a segment, to be written or to be searched in memory."""

IN_MEMORY_BYTES = 1 << 20
"""Segments up to this size are read into memory and verified when they are opened. Larger ones are mapped."""

FILE_MODE = 0o600
"""The mode of new files: for their owner alone."""

MAGIC = b"LOOMSEG2"
_ALIGN = 64
_FIXED = 16  # the magic, the length of the JSON, and its checksum
_PIECE = 1 << 20
# The process or the machine has run out of a resource; the file may be sound.
_LACKING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class DamagedSegment(CorruptStore):
    """A segment that cannot be used; the index is rebuilt from the records."""


# This package uses named tuples: defining a frozen dataclass takes 0.5 to 0.9 ms at every start.
class Segment(NamedTuple):
    """Named arrays with a header. `path` is None for a segment in memory alone, `file` for one that is not mapped."""

    header: Mapping[str, Any]
    arrays: Mapping[str, Array]
    path: Path | None = None
    checksums: Mapping[str, int] | None = None
    file: MappedFile | None = None

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def is_unchanged(self) -> bool:
        """False if the file of a mapped segment was changed or truncated after it was opened. Takes one fstat."""
        return self.file is None or self.file.is_unchanged

    def damaged_arrays(self, names: Iterable[str] | None = None) -> list[str]:
        """The names of the arrays whose bytes do not match their checksum.

        Checks all arrays, or those in `names`. Reads all their bytes through the file, not through its mapping.
        """
        if self.checksums is None:
            return []
        return [name for name in names or self.arrays if self._checksum_of(name) != self.checksums[name]]

    def _checksum_of(self, name: str) -> int | None:
        return _checksum(self.arrays[name]) if self.file is None else self.file.checksum(name)


class MappedFile:
    """The open file of a mapped segment. Closed when it is garbage-collected."""

    __slots__ = ("_descriptor", "_modified_ns", "_places", "_size")

    def __init__(self, descriptor: int, found: os.stat_result, places: Mapping[str, tuple[int, int]]) -> None:
        self._descriptor = descriptor
        self._size = found.st_size
        self._modified_ns = found.st_mtime_ns
        self._places = places  # where each array begins and ends

    def __del__(self) -> None:
        os.close(self._descriptor)

    @property
    def is_unchanged(self) -> bool:
        try:
            found = os.fstat(self._descriptor)
        except OSError:  # a file that cannot be examined may have changed
            return False
        return found.st_size == self._size and found.st_mtime_ns == self._modified_ns

    def is_marked(self, written: int) -> bool:
        """Whether the file still has the modification time that its writer set."""
        return self._modified_ns == written * 1_000_000_000

    def mark(self, written: int) -> None:
        """Restore that modification time, if this process has the permission."""
        with suppress(OSError):
            os.utime(self._descriptor, (written, written))
            self._modified_ns = os.fstat(self._descriptor).st_mtime_ns

    def checksum(self, name: str) -> int | None:
        """The checksum of an array's bytes in the file; None if they cannot be read."""
        place, end = self._places[name]
        found = 0
        try:
            while place < end:
                piece = os.pread(self._descriptor, min(_PIECE, end - place), place)
                if not piece:
                    return None
                found = zlib.crc32(piece, found)
                place += len(piece)
        except OSError:
            return None
        return found


def write_segment(
    path: Path, header: Mapping[str, Any], arrays: Mapping[str, Array], *, mode: int = FILE_MODE
) -> None:
    """Write and fsync a segment under a temporary name, then rename it. The file has exactly this mode.

    Raises `OSError` on failure, for example on a full disk, and leaves no file behind.
    """
    layout: dict[str, dict[str, Any]] = {}
    offset = 0
    solid = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in solid.items():
        offset = _aligned(offset)
        layout[name] = {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "offset": offset,
            "crc": _checksum(array),
        }
        offset += array.nbytes
    written = int(time.time()) & ~1  # even: the coarsest file system keeps times in steps of two seconds
    head = json.dumps({"header": dict(header), "arrays": layout, "bytes": offset, "written": written}).encode()
    prefix = MAGIC + len(head).to_bytes(4, "little") + zlib.crc32(head).to_bytes(4, "little") + head
    start = _aligned(len(prefix))
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            os.fchmod(file.fileno(), mode)
            file.write(prefix)
            for name, array in solid.items():
                file.seek(start + layout[name]["offset"])
                file.write(array.data.cast("B") if array.size else b"")
            file.truncate(start + offset)
            file.flush()
            with suppress(OSError):  # without this time, the segment is verified whenever it is opened
                os.utime(file.fileno(), (written, written))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def open_segment(path: Path, *, verified: bool = False, in_memory_up_to: int | None = None) -> Segment:
    """Open a segment; `in_memory_up_to` is `IN_MEMORY_BYTES` unless given.

    A small segment is read into memory and verified. A large one is mapped; it is verified only if `verified` is true
    or if the file has changed since it was written. Raises `DamagedSegment` for an inconsistent file.
    """
    limit = IN_MEMORY_BYTES if in_memory_up_to is None else in_memory_up_to
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(path, error) from error
    file: MappedFile | None = None
    try:
        found = os.fstat(descriptor)
        size = found.st_size
        whole = _read(descriptor, size) if size <= limit else None
        content, start = _read_head(path, descriptor if whole is None else whole, size)
        places = _places(path, content, start, size)
        if whole is None:
            whole = _mapped(descriptor, size)
            file, descriptor = MappedFile(descriptor, found, places), -1
        arrays = {
            # Plain arrays over the bytes: numpy's memmap subclass costs microseconds at every slice.
            name: whole[first:last].view(entry["dtype"]).reshape(entry["shape"])
            for (name, entry), (first, last) in zip(content["arrays"].items(), places.values(), strict=True)
        }
        segment = Segment(
            dict(content["header"]),
            arrays,
            path,
            {name: entry["crc"] for name, entry in content["arrays"].items()},
            file,
        )
        if not all(array.flags.aligned for array in arrays.values()):
            raise DamagedSegment(f"an array of index segment {path.name} is not aligned")
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DamagedSegment(f"the header of index segment {path.name} is not valid: {error}") from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    _verify(segment, content.get("written"), verified)
    return segment


def read_arrays(read: Callable[[int, int], bytes], size: int, name: str, without: Collection[str] = ()) -> Built:
    """The header and the verified arrays of a segment that is stored outside of a file, except those in `without`.

    `read(first, last)` returns the bytes of a range of the segment; `size` is the number of all its bytes. Raises
    `DamagedSegment`.
    """
    try:
        fixed = read(0, _FIXED)
        end = _FIXED + int.from_bytes(fixed[8:12], "little")
        head = np.frombuffer(fixed + read(_FIXED, min(end, size)), dtype=np.uint8)
        content, start = _read_head(Path(name), head, size)
        arrays: dict[str, Array] = {}
        for one, (first, last) in _places(Path(name), content, start, size).items():
            if one not in without:
                entry = content["arrays"][one]
                arrays[one] = np.frombuffer(read(first, last), dtype=entry["dtype"]).reshape(entry["shape"])
                if _checksum(arrays[one]) != entry["crc"]:
                    raise DamagedSegment(f"index segment {name} does not match its checksums: {one}")
        return dict(content["header"]), arrays
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DamagedSegment(f"the header of index segment {name} is not valid: {error}") from error


def _unreadable(path: Path, error: OSError) -> CorruptStore | StoreUnavailable:
    reason = f"index segment {path.name} cannot be read: {error.strerror}"
    return StoreUnavailable(reason) if error.errno in _LACKING else DamagedSegment(reason)


def _read(descriptor: int, size: int) -> Array:
    """Read the file into memory: `size` bytes, or fewer if it was truncated meanwhile."""
    room = np.empty(size + _ALIGN, dtype=np.uint8)
    whole = room[-room.ctypes.data % _ALIGN :][:size]  # arrays are aligned as in a mapping
    place = 0
    while place < size and (piece := os.pread(descriptor, min(_PIECE, size - place), place)):
        whole[place : place + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        place += len(piece)
    whole.flags.writeable = False
    return whole[:place]


def _read_head(path: Path, source: int | Array, size: int) -> tuple[Mapping[str, Any], int]:
    """The JSON header of a segment, read from its file or its bytes, and the offset at which the arrays begin."""

    def read(first: int, last: int) -> bytes:
        return os.pread(source, last - first, first) if isinstance(source, int) else source[first:last].tobytes()

    fixed = read(0, _FIXED)
    if len(fixed) < _FIXED or fixed[:8] != MAGIC:
        raise DamagedSegment(f"{path.name} is not an index segment of this version")
    end = _FIXED + int.from_bytes(fixed[8:12], "little")
    # The length is compared before anything of that length is allocated.
    head = read(_FIXED, end) if end <= size else b""
    if len(head) != end - _FIXED or zlib.crc32(head) != int.from_bytes(fixed[12:16], "little"):
        raise DamagedSegment(f"the header of index segment {path.name} is damaged")
    content = json.loads(head)
    start = _aligned(end)
    if size != start + content["bytes"]:
        raise DamagedSegment(f"index segment {path.name} is truncated or too long")
    return content, start


def _places(path: Path, content: Mapping[str, Any], start: int, size: int) -> dict[str, tuple[int, int]]:
    """The offset of the first byte of each array in the file, and the offset after its last byte."""
    places: dict[str, tuple[int, int]] = {}
    for name, entry in content["arrays"].items():
        first = start + entry["offset"]
        last = first + math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
        if not start <= first <= last <= size:
            raise DamagedSegment(f"the array {name!r} of index segment {path.name} lies outside of the file")
        places[name] = first, last
    return places


def _verify(segment: Segment, written: object, thorough: bool) -> None:
    """Raise `DamagedSegment` unless the arrays match their checksums or the file is as it was written."""
    path, file = segment.path, segment.file
    assert path is not None
    marked = file is not None and isinstance(written, int) and file.is_marked(written)
    if marked and not thorough:
        return
    damaged = segment.damaged_arrays()
    if damaged:
        raise DamagedSegment(f"index segment {path.name} does not match its checksums: {', '.join(damaged)}")
    if not segment.is_unchanged:
        raise DamagedSegment(f"index segment {path.name} was changed while it was read")
    if file is not None and not marked and isinstance(written, int):  # a copy, or a file that was only touched
        file.mark(written)


def places_of(held: Array, first: int, wanted: Array) -> Array:
    """The places of these keys in a segment's ascending keys, whose first is `first`.

    A missing key gets an arbitrary valid place. Every wanted key lies between the first and the last key. As a rule,
    few numbers are missing between keys, so the distance of a key from the first one predicts its place; a binary
    search in cold memory takes three times as long. Every result is a valid place, even if the keys are damaged.
    """
    last = len(held) - 1
    places = np.minimum(wanted - first, last)  # np.clip takes four times as long for integers
    places -= held.take(places, mode="clip") - wanted
    np.minimum(np.maximum(places, 0, out=places), last, out=places)
    astray = (held.take(places) != wanted).nonzero()[0]
    if len(astray):
        places[astray] = np.minimum(held.searchsorted(wanted[astray]), last)
    return np.asarray(places)


def _mapped(descriptor: int, size: int) -> Array:
    """Map the file into memory.

    MADV_RANDOM turns off readahead, which would read 186 MB for the first search of a million records.
    """
    pages = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, dtype=np.uint8)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def _checksum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B")) if array.size else 0


def sync_folder(folder: Path) -> None:
    """Fsync a folder, so that a new name in it survives a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
