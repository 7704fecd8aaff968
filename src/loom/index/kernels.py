"""The inner loops of searching as compiled code, where the installation has it; without it numpy does the same.

`kernels.c` is compiled when the package is built and there is a compiler. It needs no Python headers and is loaded
with ctypes, so that one library serves every version of Python. Answers have the same bits with and without it; only
the time differs. Pointers are taken from arrays that the caller holds for the time of the call.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from array import array
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["KERNELS", "LIBRARY", "SOURCE", "Kernels", "Lists", "Looks", "address", "load"]

LIBRARY: Final = Path(__file__).with_name("_kernels.so")
_VERSION = 4

SOURCE = struct.Struct("@5P6q")
"""A source of posting lists: the addresses of its documents, codes and impacts, and of the bits and counts of lists
that are kept as such (0 for none), the number of postings, the bytes of a code, the ends of codes and documents, the
number of its first document, and the words of a list that is kept as bits."""


class Lists(NamedTuple):
    """Posting lists with their weights: of each its source, where it begins and ends, its slot (-1), and its row."""

    sources: bytes
    spans: array[int]
    weights: array[float]
    held: Any
    """The arrays that the sources point to."""

    def first(self, count: int) -> Lists:
        """No more than so many of them."""
        return self if count >= len(self.weights) else self._replace(weights=self.weights[:count])


_Counts = npt.NDArray[np.uint32]
_Floats = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]
_Halves = npt.NDArray[np.float16]
_Numbers = npt.NDArray[np.intp]
_Words = npt.NDArray[np.uint64]

_ROOM = 1_024
_begin = ctypes.c_char.from_buffer
_GROUP = 64  # as in kernels.c
_LOOKS = struct.Struct("@3q2d")


class Looks(NamedTuple):
    """How far a search by codes looks: from which rank, how many rows each look leaves at most, in deviations."""

    rank: int
    kept: int
    scored: int
    coarse_deviations: float
    weighted_deviations: float


def address(array: npt.NDArray[Any]) -> int:
    """Where the values of a contiguous array lie; 0 for none."""
    if array.flags.writeable and array.size:  # a quarter of the time, which is a question's fiftieth
        return ctypes.addressof(_begin(array.data))
    place: int = array.__array_interface__["data"][0]
    return place


class Kernels:
    """The functions of the library. `IndexError` says that a segment points outside of its own arrays."""

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

    def add(self, lists: Lists, sums: _Doubles) -> None:
        """Add what each posting of these lists contributes to the sum of its document."""
        if self._add(*_packed(lists), address(sums)):
            raise IndexError("a posting points outside of its segment")

    def threshold(self, sums: _Doubles, limit: int) -> float:
        """The sum at place `limit` from above; 0.0 if fewer are above zero."""
        if limit > len(sums):
            return 0.0
        heap = np.empty(limit)
        found: float = self._threshold(address(sums), len(sums), limit, address(heap))
        return found

    def select(self, sums: _Doubles, lowest: float) -> tuple[_Numbers, _Doubles]:
        """The places, ascending, and the values of the sums that are above zero and not below `lowest`."""
        room, found = _ROOM, -1
        while found < 0 or found > room:
            room = max(room, found)
            places, chosen = np.empty(room, dtype=np.intp), np.empty(room)
            found = self._select(address(sums), len(sums), lowest, address(places), address(chosen), room)
        return places[:found], chosen[:found]

    def take(self, sums: _Doubles, limit: int) -> tuple[_Numbers, _Doubles]:
        """The places, ascending, and the values of the `limit` highest sums above zero, ties with the last included.

        All sums are zero after that.
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

    def look_up(self, lists: Lists, wanted: _Numbers, values: _Doubles, stride: int) -> None:
        """Add what each list contributes to each of the wanted documents (ascending).

        `values` begins where the first document's column of the first row does; rows are `stride` apart.
        """
        if self._look_up(*_packed(lists), address(wanted), len(wanted), address(values), stride):
            raise IndexError("a posting points outside of its segment")

    def rows_by_code(self, coarse: _Words, fine: _Words, spans: _Numbers, query: _Floats, looks: Looks) -> _Numbers:
        """The rows whose codes are near enough to the query's, ascending: `_rows_by_code` in vector_index.py.

        `spans` is a table of where rows to look at begin and end, ascending and within the codes.
        """
        stride, words = len(fine), len(coarse) + fine.shape[1]
        spans = np.ascontiguousarray(spans, dtype=np.int64)
        count = int((spans[:, 1] - spans[:, 0]).sum())
        scratch = np.empty(24 * words + 4 * (looks.kept + 192 * words + 1) + count, dtype=np.uint8)
        rows = np.empty(looks.kept, dtype=np.intp)
        found = self._rows_by_code(
            address(coarse), address(fine), stride, words, address(spans), len(spans), address(query),
            _LOOKS.pack(*looks), address(rows), address(scratch),
        )  # fmt: skip
        return rows[:found]

    def turn(self, values: _Doubles, flips: _Floats, size: int, steps: float, step: float) -> None:
        """Rotate in place: `_turned` in vector_index.py."""
        self._turn(address(values), address(flips), len(values), size, steps, step)

    def near_products(self, vectors: _Halves, rows: _Numbers, query: _Floats) -> _Floats:
        """The products of these rows with a query that is larger by 2**112, nearly."""
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


def _packed(lists: Lists) -> tuple[bytes, int, int, int]:
    return lists.sources, lists.spans.buffer_info()[0], lists.weights.buffer_info()[0], len(lists.weights)


def load(path: Path = LIBRARY) -> Kernels | None:
    """The kernels of a library; None where it is missing, cannot be loaded here, or is of another version."""
    if sys.byteorder != "little":  # as segments are
        return None
    try:
        # With Python's lock held: a call takes a millisecond or two, and to get the lock back from a busy thread
        # would take five each time.
        library = ctypes.PyDLL(str(path))
        version = library.loom_version
    except (OSError, AttributeError):
        return None
    version.restype = ctypes.c_int64
    return Kernels(library) if version() == _VERSION else None


KERNELS: Kernels | None = load()
