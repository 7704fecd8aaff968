"""The inner loops of a search as compiled code. An installation without the compiled code uses numpy instead.

`kernels.c` is compiled when the package is built on a machine with a C compiler. It needs no Python headers and is
loaded with ctypes, so one library serves every version of Python. Results are the same, bit for bit, without it.
The pointers passed to it come from arrays that the caller keeps alive during the call.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "KERNELS",
    "LIBRARY",
    "SOURCE",
    "Kernels",
    "PostingLists",
    "ScanLimits",
    "active",
    "address",
    "load",
    "using",
]

LIBRARY: Final = Path(__file__).with_name("_kernels.so")
_VERSION = 4

SOURCE = struct.Struct("@5P6q")
"""A source of posting lists, as the kernels read it.

Five addresses: documents, codes, impacts, and the bits and counts of its bitmaps (0 without bitmaps). Six numbers:
the count of postings, the bytes per code, the upper bounds of codes and of documents, the number of the first
document, and the words per bitmap.
"""


class PostingLists(NamedTuple):
    """Weighted posting lists for a kernel.

    `sources` are packed by `SOURCE`. `spans` has five numbers per list: its source, its first posting, the end of its
    postings, the slot of its bitmap (-1 for none), and the row of the result that it adds to.
    """

    sources: bytes
    spans: array[int]
    weights: array[float]
    held: Any
    """Keeps the arrays alive that the sources point to."""

    def first(self, count: int) -> PostingLists:
        return self if count >= len(self.weights) else self._replace(weights=self.weights[:count])


_Counts = npt.NDArray[np.uint32]
_Floats = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]
_Halves = npt.NDArray[np.float16]
_Numbers = npt.NDArray[np.intp]
_Words = npt.NDArray[np.uint64]

_ROOM = 1_024  # results expected at first; more are fetched in a second call
_begin = ctypes.c_char.from_buffer
_GROUP = 64  # as in kernels.c
_SCAN_LIMITS = struct.Struct("@3q2d")


class ScanLimits(NamedTuple):
    """The limits of a scan of codes, which keeps the rows within some standard deviations of the row at `rank`.

    At most `kept` rows remain after the coarse pass, and at most `scored` after the weighted pass.
    """

    rank: int
    kept: int
    scored: int
    coarse_deviations: float
    weighted_deviations: float


def address(array: npt.NDArray[Any]) -> int:
    """The address of the values of a contiguous array; 0 for an empty one."""
    if array.flags.writeable and array.size:  # four times as fast as the general way, which takes 2 % of a search
        return ctypes.addressof(_begin(array.data))
    return int(array.__array_interface__["data"][0])


class Kernels:
    """The functions of the library. They raise `IndexError` where a segment points outside of its own arrays."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64

        def function(name: str, result: Any, *parameters: Any) -> Any:
            found = getattr(library, f"loom_{name}")
            found.restype, found.argtypes = result, parameters
            return found

        lists = ctypes.c_char_p, pointer, pointer, number
        self._add = function("add", number, *lists, pointer)
        self._threshold = function("threshold", ctypes.c_double, pointer, number, number, pointer)
        self._select = function("select", number, pointer, number, ctypes.c_double, pointer, pointer, number)
        self._look_up = function("look_up", number, *lists, pointer, number, pointer, number)
        self._take = function("take", number, pointer, number, number, *[pointer] * 4, number)
        self._rows_by_code = function(
            "rows_by_code",
            number,
            pointer,
            pointer,
            number,
            number,
            pointer,
            number,
            pointer,
            ctypes.c_char_p,
            pointer,
            pointer,
        )
        self._turn = function("turn", None, pointer, pointer, number, number, ctypes.c_double, ctypes.c_double)
        self._near_products = function("near_products", None, pointer, number, pointer, number, *[pointer] * 2)
        self._cosines = function("cosines", None, pointer, number, pointer, number, *[pointer] * 2)

    def add(self, lists: PostingLists, sums: _Doubles) -> None:
        """Add the contribution of every posting to the sum of its document."""
        if self._add(*_packed(lists), address(sums)):
            raise IndexError("a posting points outside of its segment")

    def threshold(self, sums: _Doubles, limit: int) -> float:
        """The `limit`-th highest sum; 0.0 if fewer are above zero."""
        if limit > len(sums):
            return 0.0
        heap = np.empty(limit)
        return float(self._threshold(address(sums), len(sums), limit, address(heap)))

    def select(self, sums: _Doubles, lowest: float) -> tuple[_Numbers, _Doubles]:
        """The places and the values of the sums that are above zero and at least `lowest`, in ascending places."""
        room, found = _ROOM, -1
        while found < 0 or found > room:
            room = max(room, found)
            places, chosen = np.empty(room, dtype=np.intp), np.empty(room)
            found = self._select(address(sums), len(sums), lowest, address(places), address(chosen), room)
        return places[:found], chosen[:found]

    def take(self, sums: _Doubles, limit: int) -> tuple[_Numbers, _Doubles]:
        """The places and the values of the `limit` highest sums above zero, in ascending places.

        Sums that tie with the last are included. Sets all sums to zero.
        """
        size, found = len(sums), _ROOM
        limit, groups = min(limit, size), -(-size // _GROUP)
        room = 0
        while found > room:
            room = found
            space = np.empty(groups + limit + 2 * room)
            highest = address(space)
            heap = highest + 8 * groups
            places = heap + 8 * limit
            found = self._take(address(sums), size, limit, highest, heap, places, places + 8 * room, room)
        return space[-2 * room :][:found].view(np.intp), space[-room:][:found]

    def look_up(self, lists: PostingLists, wanted: _Numbers, values: _Doubles, stride: int) -> None:
        """Add the contribution of each list to each of the wanted documents, which are in ascending order.

        `values` has a column per document. Rows are `stride` values apart; with 0, all lists add to one row.
        """
        if self._look_up(*_packed(lists), address(wanted), len(wanted), address(values), stride):
            raise IndexError("a posting points outside of its segment")

    def rows_by_code(
        self, coarse: _Words, fine: _Words, spans: _Numbers, query: _Floats, limits: ScanLimits
    ) -> _Numbers:
        """The rows whose codes are near the query's, ascending: `rows_by_code` in vector_scoring.py.

        `spans` has a line (first row, end) for each range of rows to scan, ascending and within the codes.
        """
        stride, words = len(fine), len(coarse) + fine.shape[1]
        spans = np.ascontiguousarray(spans, dtype=np.int64)
        count = int((spans[:, 1] - spans[:, 0]).sum())
        scratch = np.empty(24 * words + 4 * (limits.kept + 192 * words + 1) + count, dtype=np.uint8)
        rows = np.empty(limits.kept, dtype=np.intp)
        found = self._rows_by_code(
            address(coarse), address(fine), stride, words, address(spans), len(spans), address(query),
            _SCAN_LIMITS.pack(*limits), address(rows), address(scratch),
        )  # fmt: skip
        return rows[:found]

    def turn(self, values: _Doubles, flips: _Floats, size: int, steps: float, step: float) -> None:
        """Rotate in place: `rotate_query` in vector_codes.py."""
        self._turn(address(values), address(flips), len(values), size, steps, step)

    def near_products(self, vectors: _Halves, rows: _Numbers, query: _Floats) -> _Floats:
        """The approximate products of these rows with a query that was multiplied by 2**112."""
        found = np.empty(len(rows), dtype=np.float32)
        self._near_products(
            address(vectors), vectors.shape[1], address(rows), len(rows), address(query), address(found)
        )
        return found

    def cosines(self, vectors: _Halves, rows: _Numbers, query: _Doubles) -> _Doubles:
        """The cosines of these rows and a query of length one; 0 for a row of zeros."""
        found = np.empty(len(rows))
        self._cosines(address(vectors), vectors.shape[1], address(rows), len(rows), address(query), address(found))
        return found


def _packed(lists: PostingLists) -> tuple[bytes, int, int, int]:
    return lists.sources, lists.spans.buffer_info()[0], lists.weights.buffer_info()[0], len(lists.weights)


def load(path: Path = LIBRARY) -> Kernels | None:
    """The kernels of a library; None if it is missing, cannot be loaded here, or has another version."""
    if sys.byteorder != "little":  # segments are little-endian
        return None
    try:
        # PyDLL keeps Python's global lock during a call. A call takes a millisecond or two; getting the lock back
        # from a busy thread would take five.
        library = ctypes.PyDLL(str(path))
        version = library.loom_version
    except (OSError, AttributeError):
        return None
    version.restype = ctypes.c_int64
    return Kernels(library) if version() == _VERSION else None


KERNELS: Final[Kernels | None] = load()
"""The kernels of this installation; None if it has none."""

active: Kernels | None = KERNELS
"""The kernels that searches call, read as `kernels.active` at every call; None means numpy. Set by `using`."""


@contextmanager
def using(kernels: Kernels | None) -> Iterator[None]:
    """Search with these kernels, or with numpy for None, until the block ends.

    For tests and measurements: it affects all threads of the process.
    """
    global active
    before, active = active, kernels
    try:
        yield
    finally:
        active = before
