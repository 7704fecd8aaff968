"""The forms of a vector: float16 for storage, 1-bit codes for scans, and exact multiples for the query.

A code has one bit per coordinate of the rotated vector: the side of the centre on which it lies. The layout of
vectors in segments is defined in `vector_segments.py`, and the search in `vector_scoring.py`.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loom.blas import one_thread
from loom.errors import InvalidInput, WrongDimension
from loom.index import kernels
from loom.index.segments import Array

__all__ = [
    "BLOCK_ROWS",
    "COARSE_WORDS",
    "UNIT_TOLERANCE",
    "Doubles",
    "Floats",
    "Halves",
    "Query",
    "Words",
    "centre_of",
    "code_bits",
    "encode",
    "pack_bits",
    "prepare_query",
    "rotate",
    "rotate_query",
    "unit_float16",
    "unit_rows",
]

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Halves = npt.NDArray[np.float16]
Words = npt.NDArray[np.uint64]

BLOCK_ROWS = 4_096
"""Rows that are widened to float32 at a time."""

COARSE_WORDS = 3
"""The number of words of each code that a scan reads. The others are read only for the rows that the scan keeps."""

# A code has at least this many bits. Shorter vectors are padded with zeros before the rotation, which mixes all
# coordinates into every bit, so the additional bits carry information too.
_LEAST_BITS = 256

UNIT_TOLERANCE = 2.0**-10
"""A row is not scaled if its length differs from one by less than this.

Rounding a unit vector to float16 changes its length by at most 2**-11, so a rounded row is never changed again.
"""

# float16 values are multiples of 2**-24. With query values that are multiples of 2**-27, every product is a multiple
# of 2**-51, and every partial sum of a dot product of unit vectors is below 2. float64 holds all of them exactly, so
# the sum does not depend on its order, on the BLAS, or on the rows beside it.
_QUERY_STEP = 2.0**-27


def unit_float16(vectors: Array) -> Halves:
    """The form in which vectors are stored and compared: unit length, rounded to float16.

    Rows of unit length are only rounded; other rows are scaled first; zero stays zero. The function is idempotent.
    Raises `InvalidInput` for values that are not finite.
    """
    if vectors.ndim != 2:
        raise InvalidInput(f"vectors must be a table of rows, not an array of {vectors.ndim} dimensions")
    with np.errstate(over="ignore"):
        halves = np.ascontiguousarray(vectors, dtype=np.float16)
    for start in range(0, len(halves), BLOCK_ROWS):
        block = halves[start : start + BLOCK_ROWS].astype(np.float32)
        length = np.sqrt(np.einsum("ij,ij->i", block, block))
        odd = start + np.flatnonzero(~(np.abs(length - 1.0) <= UNIT_TOLERANCE))
        if odd.size:
            scaled = unit_rows(np.asarray(vectors[odd], dtype=np.float64))
            if np.may_share_memory(halves, vectors):
                halves = halves.copy()
            halves[odd] = scaled
    return halves


def unit_rows(vectors: Doubles) -> Doubles:
    """The rows, which may have any magnitude, scaled to length one; zero stays zero."""
    if not np.isfinite(vectors).all():
        raise InvalidInput("a vector has a value that is not finite")
    largest = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True)
    scaled = vectors / np.where(largest == 0.0, 1.0, largest)
    length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, np.newaxis]
    return np.asarray(scaled / np.where(length == 0.0, 1.0, length))


# --- Queries -----------------------------------------------------------------------------------------------


class Query(NamedTuple):
    """A query, which has unit length or is zero, in the forms that a search needs.

    The values of `exact` are multiples of 2**-27, so its products with float16 rows are exact in float64.
    """

    exact: Doubles
    single: Floats
    is_zero: bool


def prepare_query(query: Array, dimensions: int) -> Query:
    """The forms of a query. Raises `WrongDimension`, and `InvalidInput` for values that are not finite."""
    vector = np.asarray(query, dtype=np.float64)
    if vector.shape != (dimensions,):
        raise WrongDimension(f"the query has shape {vector.shape}; the index has {dimensions} dimensions")
    square = float(vector @ vector)
    # The fast path is for the vectors of embedders. `unit_rows` handles zero, huge, tiny and infinite values.
    unit = vector / math.sqrt(square) if 1e-9 < square < 1e9 else unit_rows(vector[np.newaxis])[0]
    exact = np.rint(unit * (1.0 / _QUERY_STEP)) * _QUERY_STEP
    single = exact.astype(np.float32)
    return Query(exact, single, not single.any())


def rotate_query(query: Doubles) -> Floats:
    """The `exact` form of a query, rotated in the same way as by `rotate`, with the same bits on every machine.

    Computed in float64. After each transform every value is rounded to a multiple of `_QUERY_STEP`, as those of the
    query are, so all sums are exact in any order.
    """
    width = code_bits(query.size)
    flips, left, right = _rotation(width)
    size = len(left) * len(right)
    turned = np.zeros(width)
    turned[: query.size] = query
    steps = 1.0 / math.sqrt(size) / _QUERY_STEP
    compiled = kernels.active
    if compiled is not None:
        compiled.turn(turned, flips, size, steps, _QUERY_STEP)
        return turned.astype(np.float32)
    signs = np.sign(left).astype(np.float64), np.sign(right).astype(np.float64)
    for flip in flips:
        turned *= flip
        for start in sorted({0, width - size}):
            part = turned[start : start + size]
            sums = (signs[0] @ part.reshape(len(left), len(right)) @ signs[1]).reshape(-1)
            part[:] = np.rint(sums * steps) * _QUERY_STEP
    return turned.astype(np.float32)


# --- Codes -------------------------------------------------------------------------------------------------


def code_bits(dimensions: int) -> int:
    return max(_LEAST_BITS, -(-dimensions // 64) * 64)


def centre_of(halves: Halves) -> Floats:
    """The rotated mean of the vectors."""
    mean = np.zeros((1, halves.shape[1]), dtype=np.float64)
    for start in range(0, len(halves), BLOCK_ROWS):
        mean += halves[start : start + BLOCK_ROWS].sum(axis=0, dtype=np.float64)
    return np.asarray(rotate((mean / max(1, len(halves))).astype(np.float32))[0])


def encode(halves: Halves, centre: Floats) -> tuple[Words, Words]:
    """The codes of the vectors as coarse and fine words: a bit for each rotated coordinate, set above the centre.

    Coarse words are transposed, one row per word, so that a scan of all codes reads long contiguous arrays. The fine
    words of a code are contiguous, for the rows that are read again.
    """
    codes = np.empty((len(halves), centre.size // 64), dtype=np.uint64)
    for start in range(0, len(halves), BLOCK_ROWS):
        block = halves[start : start + BLOCK_ROWS].astype(np.float32)
        codes[start : start + BLOCK_ROWS] = pack_bits(rotate(block) > centre)
    return np.ascontiguousarray(codes[:, :COARSE_WORDS].T), np.ascontiguousarray(codes[:, COARSE_WORDS:])


def pack_bits(bits: Array) -> Words:
    """The bits of the last axis, packed into words."""
    return np.packbits(bits, axis=-1, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def rotate(vectors: Floats) -> Floats:
    """The vectors, padded to the length of a code and rotated by a fixed pseudo-random rotation.

    Two rounds of sign flips, each followed by Hadamard transforms of the first and of the last 2**k coordinates.
    These overlap unless the length is a power of two itself.
    """
    count, dimensions = vectors.shape
    width = code_bits(dimensions)
    flips, left, right = _rotation(width)
    turned = np.zeros((count, width), dtype=np.float32)
    turned[:, :dimensions] = vectors
    size = len(left) * len(right)
    for flip in flips:
        turned *= flip
        for start in sorted({0, width - size}):
            part = turned[:, start : start + size].reshape(count, len(left), len(right))
            with one_thread():
                rotated = left @ (part @ right)
            turned[:, start : start + size] = rotated.reshape(count, size)
    return turned


@lru_cache(maxsize=16)
def _rotation(width: int) -> tuple[Floats, Floats, Floats]:
    """The sign flips of each round, and the two factors of the Hadamard transform.

    The signs come from a hash, since numpy's random streams may change between its versions.
    """
    power = width.bit_length() - 1
    digest = hashlib.shake_256(f"loom vector code 1, {width} bits".encode()).digest(width // 4)
    flips = np.unpackbits(np.frombuffer(digest, dtype=np.uint8)).reshape(2, width)
    return 1.0 - 2.0 * flips.astype(np.float32), _hadamard(power // 2), _hadamard(power - power // 2)


def _hadamard(power: int) -> Floats:
    matrix = np.ones((1, 1), dtype=np.float64)
    for _ in range(power):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.asarray(matrix / np.sqrt(len(matrix)), dtype=np.float32)
