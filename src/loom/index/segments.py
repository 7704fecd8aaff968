"""Segments: the immutable array files of the text index and the vector index.

A segment is a JSON header and named arrays, each aligned and with its own checksum. It is written once, under a name
that is never used again, and memory-mapped, so opening one reads its header only. A segment may also live in memory.
The meaning of the arrays is defined in `text_segments.py` and `vector_segments.py`.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.errors import CorruptStore

__all__ = [
    "FILE_MODE",
    "Array",
    "Built",
    "DamagedSegment",
    "Segment",
    "open_segment",
    "places_of",
    "sync_folder",
    "write_segment",
]

Array = npt.NDArray[Any]
Built = tuple[dict[str, Any], dict[str, Array]]
"""Header and arrays of a segment, to be written or to be searched in memory."""

FILE_MODE = 0o600
"""The mode of new files: for their owner alone."""

MAGIC = b"LOOMSEG1"
_ALIGN = 64


class DamagedSegment(CorruptStore):
    """A segment that cannot be used; the index is rebuilt from the records."""


# Records of this package are named tuples: defining a frozen dataclass takes 0.5 to 0.9 ms at every start.
class Segment(NamedTuple):
    """Named arrays with a header. `path` is None for a segment in memory."""

    header: Mapping[str, Any]
    arrays: Mapping[str, Array]
    path: Path | None = None
    checksums: Mapping[str, int] | None = None

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def damaged_arrays(self) -> list[str]:
        """The names of the arrays whose bytes no longer match their checksum (reads everything)."""
        if self.checksums is None:
            return []
        return [name for name, array in self.arrays.items() if _checksum(array) != self.checksums[name]]


def write_segment(
    path: Path, header: Mapping[str, Any], arrays: Mapping[str, Array], *, mode: int = FILE_MODE
) -> None:
    """Write and fsync a segment under a temporary name, then rename it. It has exactly this mode.

    Raises `OSError` if that fails, on a full disk for example, and leaves no file behind.
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
    head = json.dumps({"header": dict(header), "arrays": layout, "bytes": offset}).encode()
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
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def open_segment(path: Path) -> Segment:
    """Map a segment. Reads its header only; raises `DamagedSegment` if that is inconsistent."""
    try:
        with open(path, "rb") as file:
            fixed = file.read(16)
            if len(fixed) < 16 or fixed[:8] != MAGIC:
                raise DamagedSegment(f"{path.name} is not an index segment")
            head = file.read(int.from_bytes(fixed[8:12], "little"))
            size = os.fstat(file.fileno()).st_size
            # Map the open file: another file may have its name by now.
            whole = _mapped(file)
    except OSError as error:
        raise DamagedSegment(f"index segment {path.name} cannot be read: {error.strerror}") from error
    if zlib.crc32(head) != int.from_bytes(fixed[12:16], "little"):
        raise DamagedSegment(f"the header of index segment {path.name} is damaged")
    content = json.loads(head)
    start = _aligned(16 + len(head))
    if size != start + content["bytes"]:
        raise DamagedSegment(f"index segment {path.name} is cut short")
    arrays: dict[str, Array] = {}
    checksums: dict[str, int] = {}
    for name, entry in content["arrays"].items():
        try:
            dtype = np.dtype(entry["dtype"])
            shape = tuple(entry["shape"])
            first = start + entry["offset"]
            last = first + int(np.prod(shape)) * dtype.itemsize
            # A plain array over the map: numpy's memmap subclass costs microseconds at every slice.
            arrays[name] = np.asarray(whole[first:last]).view(np.ndarray).view(dtype).reshape(shape)
            checksums[name] = entry["crc"]
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedSegment(f"the array {name!r} of index segment {path.name} is not valid: {error}") from error
        if not arrays[name].flags.aligned:
            raise DamagedSegment(f"the array {name!r} of index segment {path.name} is not aligned")
    return Segment(content["header"], arrays, path, checksums)


def places_of(held: Array, first: int, wanted: Array) -> Array:
    """The places of these keys in a segment's ascending keys, whose first is `first`; any place for a missing key.

    Every wanted key lies between the first and the last. Few numbers are missing between keys as a rule, so a key is
    near the place that its distance from the first suggests; a binary search in cold memory takes three times as
    long. Every result is a valid place, even if the keys are damaged.
    """
    last = len(held) - 1
    places = np.minimum(wanted - first, last)  # np.clip takes four times as long for integers
    places -= held.take(places, mode="clip") - wanted
    np.minimum(np.maximum(places, 0, out=places), last, out=places)
    astray = (held.take(places) != wanted).nonzero()[0]
    if len(astray):
        places[astray] = np.minimum(held.searchsorted(wanted[astray]), last)
    return np.asarray(places)


def _mapped(file: BinaryIO) -> Array:
    """The file as bytes, mapped.

    MADV_RANDOM turns readahead off, which would read 186 MB for the first search of a million records.
    """
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
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
