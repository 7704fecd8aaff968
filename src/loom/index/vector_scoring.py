"""The search for vectors: nominating rows by their codes, and the exact cosines of the nominated rows.

The score of a vector has the same bits wherever the vector is stored, so moving a record from the tail into a
segment, or merging segments, never changes a score. The layout of segments is defined in `vector_segments.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loom.index import kernels
from loom.index.kernels import ScanLimits
from loom.index.segments import Array, places_of
from loom.index.vector_codes import (
    COARSE_WORDS,
    UNIT_TOLERANCE,
    Doubles,
    Floats,
    Halves,
    Query,
    Words,
    pack_bits,
    rotate_query,
)
from loom.index.vector_segments import Keys, Rows, VectorRows, cluster_ends, keys_of, rows_of

__all__ = [
    "DEFAULT_LIMITS",
    "Fetched",
    "Nominated",
    "VectorLimits",
    "best",
    "completed",
    "cosines_of",
    "is_among",
    "nearest_among",
    "nominate",
    "rows_among",
    "rows_by_code",
    "spans_to_scan",
]

# The distance beyond the last wanted row that the two passes over codes allow, in standard deviations of the noise.
_COARSE_DEVIATIONS = 3.0
_WEIGHTED_DEVIATIONS = 2.0
# The last wanted row has at least the rank `_LEAST_WANTED` over all segments and `_LEAST_RANK` in each of them, since
# the nearest code alone says little. Of the ten nearest of 60,000 embedded sentences, 96.6 in 100 were found with
# rank 10 over all segments, and 98.8 with rank 32.
_LEAST_WANTED = 32
_LEAST_RANK = 10
# The most rows that each pass keeps over all segments, even if more rows are equally near, and the number that it may
# always keep in a segment. Scoring a row reads one or two pages of its file.
_MOST_KEPT = 4_096
_LEAST_KEPT = 256
_MOST_SCORED = 1_024
_LEAST_SCORED = 64
# Up to this many rows are all scored exactly. Of a larger number, only those that are near in float32 are.
_SCORED_AT_ONCE = 1_024
# Columns per step of the scan. Its scratch buffer (128 KB) stays in the second-level cache.
_SCAN_BLOCK = 16_384
# Values per product of a matrix and a query: 256 rows of 384, which stay in the cache while float16 is widened. With
# 768,000 values (2,000 x 384), OpenBLAS starts its threads, and a product takes 3.8 ms of CPU time instead of 0.1
# (measured on two busy cores); with 384,000 it does not.
_PRODUCT_VALUES = 98_304
# The bits of a float16, shifted into a float32, give a value that is too small by this factor.
_HALF_SCALE = np.float32(2.0**112)

_NO_KEYS = np.empty(0, dtype=np.int64)
_NO_SCORES = np.empty(0)


class VectorLimits(NamedTuple):
    """The limits of a search for the nearest vectors."""

    exact_below: int = 1_024
    """Segments with fewer rows are scored whole: codes save little there."""
    most_scanned: int = 1 << 19
    """The most rows whose codes are scanned (13 MB). Of a larger number, those of the nearest clusters are scanned.

    Of the ten nearest of 60,000 embedded sentences, 99.3 in 100 were in the nearest half of the rows, and 96.9 in the
    nearest quarter.
    """


DEFAULT_LIMITS = VectorLimits()


class Nominated(NamedTuple):
    """Rows that may be among the nearest."""

    own: VectorRows
    rows: Rows


class Fetched(NamedTuple):
    """Vectors of ascending keys that were read from another place; keys without a vector are missing."""

    keys: Keys
    vectors: Halves


def completed(nominated: Sequence[Nominated], fetch: Callable[[Keys], Fetched]) -> list[Nominated]:
    """The nominated rows; `fetch` reads the vectors of those that have codes only."""
    lacking = [keys_of(own, rows) for own, rows in nominated if own.has_codes_only and rows.size]
    if not lacking:
        return [*nominated]
    found = fetch(np.sort(np.concatenate(lacking)))
    whole = [one for one in nominated if not one.own.has_codes_only]
    return [*whole, Nominated(VectorRows(*found), np.arange(found.keys.size))]


# --- Exact scores ------------------------------------------------------------------------------------------


def best(nominated: Sequence[Nominated], query: Query, limit: int) -> tuple[Keys, Doubles]:
    """Keys and exact cosines of the nearest rows, best first, ties by ascending key."""
    nominated = [one for one in nominated if one.rows.size]
    if sum([rows.size for _, rows in nominated]) > max(limit, _SCORED_AT_ONCE):
        nominated = _nearer(nominated, query, limit)
    scores = [_cosines(own.vectors, rows, query.exact) for own, rows in nominated]
    lowest = _nth_highest(scores, limit)
    near = [(some >= lowest).nonzero()[0] for some in scores]
    keys = _joined([keys_of(own, rows[here]) for (own, rows), here in zip(nominated, near, strict=True)], _NO_KEYS)
    kept = _joined([some[here] for some, here in zip(scores, near, strict=True)], _NO_SCORES)
    order = np.lexsort((keys, -kept))[:limit]
    return keys[order], kept[order]


def cosines_of(nominated: Sequence[Nominated], query: Query) -> tuple[Keys, Doubles]:
    """Keys and exact cosines of all these rows, in any order."""
    found = [keys_of(own, rows) for own, rows in nominated if rows.size]
    scores = [_cosines(own.vectors, rows, query.exact) for own, rows in nominated if rows.size]
    return _joined(found, _NO_KEYS), _joined(scores, _NO_SCORES)


def _joined(parts: Sequence[Array], nothing: Array) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate((nothing, *parts))


def _nearer(nominated: Sequence[Nominated], query: Query, limit: int) -> list[Nominated]:
    """The rows that can be among the best according to their products in float32, which take half the time."""
    products = [_single_products(own.vectors, rows, query.single) for own, rows in nominated]
    # A float32 product differs from the exact cosine by the rounding of the sum and by the length of the row.
    lowest = _nth_highest(products, limit) - 2 * (UNIT_TOLERANCE + query.exact.size * 2.0**-23)
    return [Nominated(own, rows[some >= lowest]) for (own, rows), some in zip(nominated, products, strict=True)]


def _nth_highest(scores: Sequence[Array], limit: int) -> float:
    """The `limit`-th highest of all scores; minus infinity if there are no more than that."""
    joined = _joined(scores, _NO_SCORES)
    return float(np.partition(joined, joined.size - limit)[joined.size - limit]) if joined.size > limit else -math.inf


def _cosines(vectors: Halves, rows: Rows, query: Doubles) -> Doubles:
    """The cosines of these rows; only the last division rounds. `prepare_query` makes the sums exact."""
    compiled = kernels.active
    if compiled is not None:
        return compiled.cosines(vectors, rows, query)
    products, squares = np.empty(rows.size), np.empty(rows.size)
    for part in _product_slices(rows.size, query.size):
        doubles = _widened(vectors[rows[part]]).astype(np.float64)
        doubles *= _HALF_SCALE
        np.matmul(doubles, query, out=products[part])
        np.einsum("ij,ij->i", doubles, doubles, out=squares[part])
    squares[squares == 0.0] = 1.0
    return np.asarray(np.clip(products / np.sqrt(squares), -1.0, 1.0))


def _single_products(vectors: Halves, rows: Rows, query: Floats) -> Floats:
    """Dot products of float16 rows in float32. Widens one block at a time."""
    scaled = query * _HALF_SCALE
    compiled = kernels.active
    if compiled is not None:
        return compiled.near_products(vectors, rows, scaled)
    products = np.empty(rows.size, dtype=np.float32)
    for part in _product_slices(rows.size, query.size):
        np.matmul(_widened(vectors.take(rows[part], axis=0)), scaled, out=products[part])
    return products


def _widened(halves: Halves) -> Floats:
    """The float16 values as float32. They are exact, but too small by the factor `_HALF_SCALE`.

    numpy widens float16 values one by one, which takes 210 us for 400 x 384. Shifting their bits into place as
    integers takes 50 us, and leaves the exponent too small by 112.
    """
    wide = halves.view(np.int16).astype(np.int32)
    np.left_shift(wide, 13, out=wide)
    # Widening repeated the sign bit; only the topmost copy is kept.
    np.bitwise_and(wide, np.int32(-0x70000001), out=wide)
    return wide.view(np.float32)


def _product_slices(count: int, dimensions: int) -> Iterator[slice]:
    """Slices of the rows, each with the most rows that one product may have."""
    size = max(1, _PRODUCT_VALUES // dimensions)
    return (slice(start, min(count, start + size)) for start in range(0, count, size))


# --- Rows of given keys ------------------------------------------------------------------------------------


def rows_among(own: VectorRows, among: Keys) -> Rows:
    """The rows of a segment whose key is one of these ascending keys."""
    keys = own.keys
    if not keys.size:
        return np.empty(0, dtype=np.intp)
    first, last = int(keys[0]), int(keys[-1])
    wanted = among[among.searchsorted(first) : among.searchsorted(last, side="right")]
    if last - first == keys.size - 1:  # no gap
        places = wanted - first
    elif wanted.size > keys.size:
        places = np.flatnonzero(is_among(keys, wanted))
    else:
        places = places_of(keys, first, wanted)
        places = places[keys[places] == wanted]
    return rows_of(own, places)


def is_among(keys: Keys, among: Keys) -> npt.NDArray[np.bool_]:
    if not among.size:
        return np.zeros(keys.size, dtype=np.bool_)
    places = np.minimum(np.searchsorted(among, keys), among.size - 1)
    return np.asarray(among[places] == keys)


def nearest_among(own: VectorRows, rows: Rows, query: Query, limit: int) -> Rows:
    """The rows that may be among the nearest, by their codes. The segment has codes only, and the rows are many."""
    rows = np.sort(rows)
    if rows.size <= _SCORED_AT_ONCE or query.is_zero:
        return rows
    breaks = np.flatnonzero(np.diff(rows) != 1)
    firsts, ends = rows[np.append(0, breaks + 1)], rows[np.append(breaks, rows.size - 1)] + 1
    return rows_by_code(own, np.stack((firsts, ends), axis=1), rotate_query(query.exact), limit, 1.0)


# --- Nominating rows by their codes ------------------------------------------------------------------------


def nominate(
    segments: Sequence[VectorRows], query: Query, limit: int, limits: VectorLimits = DEFAULT_LIMITS
) -> list[Nominated]:
    """The rows of each segment that may be among the nearest: all rows of small segments, selected ones of large."""
    large = [own for own in segments if own.keys.size >= limits.exact_below]
    nominated = [Nominated(own, np.arange(own.keys.size)) for own in segments if own.keys.size < limits.exact_below]
    if query.is_zero:
        firsts = [np.arange(min(limit, own.keys.size)) for own in large]
        return nominated + [Nominated(own, rows_of(own, first)) for own, first in zip(large, firsts, strict=True)]
    if large:
        rotated = rotate_query(query.exact)
        spans_of = spans_to_scan(large, query, limits.most_scanned)
        sizes = [int((spans[:, 1] - spans[:, 0]).sum()) for spans in spans_of]
        for own, spans, size in zip(large, spans_of, sizes, strict=True):
            if size:
                nominated.append(Nominated(own, rows_by_code(own, spans, rotated, limit, size / sum(sizes))))
    return nominated


def spans_to_scan(segments: Sequence[VectorRows], query: Query, most_scanned: int) -> list[Rows]:
    """The rows of each segment whose codes are scanned, as a table with a line (first row, end) for each range.

    These are all rows, or at most about `most_scanned` of them: those of the clusters nearest to the query, and the
    newest rows of the last cluster, which fits in part. A segment without clusters is small and always scanned.
    """
    whole = [np.array([(0, own.keys.size)]) for own in segments]
    if sum(own.keys.size for own in segments) <= most_scanned:
        return whole
    unclustered = sum(own.keys.size for own in segments if not own.cluster_ends.size)
    room = max(most_scanned - unclustered, most_scanned // 2)
    clustered = [(number, own, cluster_ends(own)) for number, own in enumerate(segments) if own.cluster_ends.size]
    if not clustered:
        return whole
    # The cosines are exact, so that the same clusters are chosen with and without kernels.
    near = np.concatenate(
        [_cosines(own.cluster_centroids, np.arange(ends.size), query.exact) for _, own, ends in clustered]
    )
    spans = np.concatenate([np.stack((np.append(0, ends[:-1]), ends), axis=1) for _, _, ends in clustered])
    owners = np.repeat([number for number, _, _ in clustered], [ends.size for _, _, ends in clustered])
    order = np.argsort(-near, kind="stable")
    reached = (spans[order, 1] - spans[order, 0]).cumsum()
    last = int(reached.searchsorted(room))
    if last < order.size:
        spans[order[last], 0] += reached[last] - room
    chosen = np.sort(order[: last + 1])  # by segment, and by row
    return [
        spans[chosen[owners[chosen] == number]] if own.cluster_ends.size else whole[number]
        for number, own in enumerate(segments)
    ]


def rows_by_code(own: VectorRows, spans: Rows, rotated: Floats, limit: int, share: float) -> Rows:
    """The rows of these spans that may be among the nearest, by two passes over their codes, ascending.

    The coarse pass reads a part of every code; the weighted pass reads the whole codes of the rows that are left.
    Both distances are noisy, and the noise is known: the number of differing bits has a binomial distribution. A row
    is kept if it is within a number of standard deviations of the last wanted row, so a query in a dense region keeps
    more rows than one in a sparse region. `share` is the segment's part of all scanned rows, and twice that part of
    `limit` is wanted: the whole limit from each segment would score far more rows than can be among the best.
    """
    count = int((spans[:, 1] - spans[:, 0]).sum())
    wanted = max(limit, _LEAST_WANTED)
    limit = min(wanted, max(_LEAST_RANK, math.ceil(2 * wanted * share)))
    rank = min(limit, count)
    kept = max(_LEAST_KEPT, int(_MOST_KEPT * share), int(count // 32 * share)) + 32 * limit
    scored = max(_LEAST_SCORED, rank, int((_MOST_SCORED + 8 * wanted) * share))
    query = rotated - own.centre
    compiled = kernels.active
    if compiled is not None:
        limits = ScanLimits(rank, kept, scored, _COARSE_DEVIATIONS, _WEIGHTED_DEVIATIONS)
        return compiled.rows_by_code(own.coarse, own.fine, spans, query, limits)
    levels = _levels(np.abs(query))
    signs = pack_bits(query > 0)
    coarse = [_coarse_distances(own.coarse[:, first:last], signs) for first, last in spans.tolist()]
    within = _rows_within(np.concatenate(coarse), rank, kept)
    rows = np.concatenate([np.arange(first, last) for first, last in spans.tolist()])[within]
    codes = np.concatenate((own.coarse.take(rows, axis=1), own.fine.take(rows, axis=0).T))
    distances = _weighted_distances(codes, signs, [pack_bits(levels >> 1), pack_bits(levels & 1)])
    weights = levels.astype(np.float64)
    scored = min(scored, rows.size)
    ordered = np.partition(distances, (rank - 1, scored - 1))
    nth = int(ordered[rank - 1])
    slack = _slack(nth / float(weights.sum()), float(weights @ weights), _WEIGHTED_DEVIATIONS)
    return np.asarray(rows[distances <= min(nth + slack, int(ordered[scored - 1]))])


def _levels(magnitudes: Floats) -> npt.NDArray[np.uint8]:
    """Magnitudes rounded to two bits. A third bit raised the share of nearest rows found by 0.002 at most."""
    step = 0.7 * (float(magnitudes.cumsum(dtype=np.float64)[-1]) / magnitudes.size)  # in order, as the kernel
    if step == 0.0:
        return np.ones(magnitudes.size, dtype=np.uint8)
    return np.asarray(np.minimum(np.rint(magnitudes / step), 3), dtype=np.uint8)


def _slack(share: float, squares: float, deviations: float) -> float:
    """This many standard deviations of a weighted sum of random bits, each of which is 1 with probability `share`."""
    return deviations * math.sqrt(squares * share * max(0.0, 1.0 - share))


def _rows_within(distances: npt.NDArray[np.uint8], rank: int, most: int) -> Rows:
    """The rows within the slack of the `rank`-th smallest coarse distance."""
    count = distances.size
    # The array is divided into folds, and the smallest value of each is taken. The `rank`-th of these values is the
    # `rank`-th of all, or a little more if two of the smallest are in one fold. This takes 9 us at 100,000 rows; a
    # histogram takes 137 us. The rows of a fold are far apart, so records of one conversation do not hide each other.
    depth = max(1, count // (64 * rank))
    smallest = distances[: count // depth * depth].reshape(depth, -1).min(axis=0)
    nth = int(np.partition(smallest, rank - 1)[rank - 1])
    while np.count_nonzero(distances < nth) >= rank:
        nth -= 1
    bits = 64 * COARSE_WORDS
    radius = int(nth + _slack(nth / bits, bits, _COARSE_DEVIATIONS))
    near = distances <= radius
    while radius > nth and np.count_nonzero(near) > most:
        radius -= 1
        near = distances <= radius
    rows = near.nonzero()[0]
    if rows.size > most:
        # Thousands of rows have the same distance, usually duplicates: keep the nearest, and the first among equals.
        rows = np.sort(rows[np.argsort(distances[rows], kind="stable")[:most]])
    return rows


def _coarse_distances(codes: Words, signs: Words) -> npt.NDArray[np.uint8]:
    count = codes.shape[1]
    distances = np.empty(count, dtype=np.uint8)
    mixed = np.empty(_SCAN_BLOCK, dtype=np.uint64)
    counts = np.empty(_SCAN_BLOCK, dtype=np.uint8)
    for start in range(0, count, _SCAN_BLOCK):
        stop = min(count, start + _SCAN_BLOCK)
        total, differ, ones = distances[start:stop], mixed[: stop - start], counts[: stop - start]
        np.bitwise_xor(codes[0, start:stop], signs[0], out=differ)
        np.bitwise_count(differ, out=total)
        for word in range(1, COARSE_WORDS):
            np.bitwise_xor(codes[word, start:stop], signs[word], out=differ)
            np.bitwise_count(differ, out=ones)
            np.add(total, ones, out=total)
    return distances


def _weighted_distances(codes: Words, signs: Words, levels: Sequence[Words]) -> npt.NDArray[np.uint32]:
    """The sum of the query's levels over the bits that differ: a coordinate far from zero counts more.

    The levels of the coordinates, 0 to 3, are given as two planes of bits, the high bits first.
    """
    differ = np.bitwise_xor(codes, signs[:, np.newaxis])
    distances = np.zeros(codes.shape[1], dtype=np.uint32)
    for plane in levels:
        np.left_shift(distances, 1, out=distances)
        for ones in np.bitwise_count(differ & plane[:, np.newaxis]):
            np.add(distances, ones, out=distances)
    return distances
