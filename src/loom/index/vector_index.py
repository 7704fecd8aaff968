"""The vector projection: immutable segments of 1-bit codes and float16 vectors, and an exact tail.

A search nominates rows by their codes and scores them with the true cosine of the float16 vectors. The
score of a vector is the same number wherever the vector lies, so moving a record from the tail into a
segment, or merging segments, never changes a score. The rows of a large segment are grouped in clusters, so that a
search of very many rows looks at the nearest half a million of them and no more. Pure data structures: files are
the business of `segments.py`, and which keys are alive is the business of the store.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.errors import InvalidInput, WrongDimension
from loom.index import kernels
from loom.index.kernels import ScanLimits
from loom.index.segments import DamagedSegment, Segment, places_of

__all__ = ["CODE_VERSION", "VectorIndex", "VectorTail", "build", "check", "merge", "unit_float16", "without"]

Array = npt.NDArray[Any]
Keys = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Halves = npt.NDArray[np.float16]
Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.intp]

Built = tuple[dict[str, Any], dict[str, Array]]

KIND = "vectors"
CODE_VERSION = 3
"""Changes whenever a segment of the same vectors would be another; those of another version are rebuilt."""

# A code has at least this many bits. Shorter vectors are padded with zeros before the rotation, which turns
# the surplus bits into further, differently mixed, views of the same vector.
_LEAST_BITS = 256
# Smaller segments are scanned exactly: there the codes save little.
_EXACT_BELOW = 1_024
# No more rows than this are looked at by their codes: 13 MB. Where there are more, those of the nearest clusters. Of
# the ten nearest of 60,000 embedded sentences 99.3 in 100 lay in the nearest half of their rows, 96.9 in the nearest
# quarter.
_MOST_SCANNED = 1 << 19
# Rows per cluster, the smallest clustered segment, and the most clusters of one: every search reads all centroids.
# With 256 rows to a cluster the nearest quarter held 96.9 in 100 of the ten nearest; with 1,024, 93.1.
_CLUSTER_ROWS = 256
_CLUSTERS_FROM = 16_384
_MOST_CLUSTERS = 512
# Clusters are found from so many rows of each, in so many rounds.
_CLUSTER_SAMPLE = 32
_CLUSTER_ROUNDS = 6
# The scan reads this many words of each code; the others are read for the rows that it keeps.
_COARSE_WORDS = 3
# How far beyond the last wanted row the two looks reach, in standard deviations of their noise.
_COARSE_DEVIATIONS = 3.0
_WEIGHTED_DEVIATIONS = 2.0
# The rank from which that is reckoned is at least this over all segments, and this in any: the nearest code alone
# says little. Of the ten nearest of 60,000 embedded sentences 96.6 in 100 were found with 10 over all, 98.8 with 32.
_LEAST_WANTED = 32
_LEAST_RANK = 10
# Never more than about so many over all segments, however dense the crowd, and so many in any. Each that is scored
# costs a page or two of its file.
_MOST_KEPT = 4_096
_LEAST_KEPT = 256
_LEAST_SCORED = 64
_MOST_SCORED = 1_024
# Up to so many rows all are scored exactly; of more, those that come near in float32.
_SCORED_AT_ONCE = 1_024
# Columns per step of the scan: its scratch (128 KB) stays in the second-level cache.
_SCAN_BLOCK = 16_384
# Values per product of a matrix and a query: 256 rows of 384, in cache when float16 is widened. Never much more:
# somewhere between 384,000 and 768,000 values OpenBLAS calls its threads, and 2,000 x 384 cost 3.8 ms of CPU
# instead of 0.1 (measured on two busy cores).
_PRODUCT_VALUES = 98_304
_BUILD_BLOCK = 4_096
# A row whose length is nearer to one than this is taken as it is. Rounding a unit vector to float16 changes
# its length by at most 2**-11, so what was rounded once is never changed again.
_UNIT_TOLERANCE = 2.0**-10
# float16 values are multiples of 2**-24. With query values that are multiples of 2**-27, every product is a
# multiple of 2**-51 and every partial sum of a dot product of unit vectors is below 2: float64 holds all of
# them exactly, so that the sum does not depend on its order, on the BLAS, or on the rows beside it.
_QUERY_STEP = 2.0**-27
# What the bits of a float16, shifted into a float32, are too small by.
_HALF_SCALE = np.float32(2.0**112)


def build(keys: npt.ArrayLike, vectors: Array) -> Built:
    """Header and arrays of a segment that holds these vectors under these keys.

    `vectors` is (n, dimensions), unit length or zero; see `unit_float16`. The order in which they come does not
    matter. Raises `InvalidInput` for a key given twice.
    """
    ordered = np.asarray(keys, dtype=np.int64)
    halves = unit_float16(vectors)
    if ordered.shape != (halves.shape[0],):
        raise InvalidInput(f"{ordered.size} keys were given for {halves.shape[0]} vectors")
    if ordered.size > 1 and not bool(np.all(ordered[1:] > ordered[:-1])):
        order = np.argsort(ordered, kind="stable")
        ordered, halves = ordered[order], halves[order]
        if bool(np.any(ordered[1:] == ordered[:-1])):
            raise InvalidInput("a key was given twice; a segment holds one vector per key")
    return _assembled(ordered, halves, _clusters_of(halves) if ordered.size >= _CLUSTERS_FROM else None)


def merge(segments: Sequence[Segment]) -> Built:
    """One segment with the vectors of all of them, centred and coded anew.

    A key that two segments hold is kept once. Raises `InvalidInput` for no segment at all.
    """
    if not segments:
        raise InvalidInput("there is no segment to merge")
    dimensions = segments[0].header["dimensions"]
    for segment in segments:
        _check(segment, dimensions)
    joined = np.concatenate([segment.arrays["keys"] for segment in segments])
    keys, firsts = np.unique(joined, return_index=True)
    vectors = np.empty((len(keys), dimensions), dtype=np.float16)
    base = 0
    for segment in segments:  # one by one: no more than the new segment is in memory
        end = base + segment.header["count"]
        mine = np.flatnonzero((firsts >= base) & (firsts < end))
        vectors[mine] = segment.arrays["vectors"][_rows_of(_part(segment), firsts[mine] - base)]
        base = end
    return build(keys, vectors)


def without(segment: Segment, keys: Collection[int]) -> Built:
    """The segment as if these keys had never been in it; keys that it does not hold are ignored.

    Everything that depends on the rows is made anew, the centres included: a mean still knows what went into it.
    """
    check(segment)
    held = segment.arrays["keys"]
    stays = np.flatnonzero(~np.isin(held, np.fromiter(keys, dtype=np.int64, count=len(keys))))
    part = _part(segment)
    rows, ends = _rows_of(part, stays), _cluster_ends(part)
    clusters = ends.searchsorted(rows, side="right") if ends.size else None
    return _assembled(held[stays], segment.arrays["vectors"][rows], clusters)


def _assembled(keys: Keys, halves: Halves, clusters: Rows | None) -> Built:
    """Header and arrays of a segment of these vectors, in the order of their keys, with the cluster of each.

    Keys lie in ascending order; vectors and codes by cluster, and within a cluster by key.
    `rows` says in which row the vector of each key is, and `places` of which key each row's is. Without clusters both
    orders are one, and nothing needs to be said.
    """
    count, dimensions = halves.shape
    header = {
        "kind": KIND,
        "count": count,
        "dimensions": dimensions,
        "code_version": CODE_VERSION,
        "clusters": 0,
        "first_key": int(keys[0]) if count else None,
        "last_key": int(keys[-1]) if count else None,
    }
    arrays: dict[str, Array] = {"keys": keys}
    if clusters is not None and count:
        order = np.argsort(clusters, kind="stable")
        halves = halves[order]
        ends = np.bincount(clusters).cumsum()
        sums = [part.sum(axis=0, dtype=np.float32) for part in np.split(halves, ends[:-1])]
        header["clusters"] = len(ends)
        arrays["places"] = order.astype(np.uint32)
        arrays["rows"] = np.empty(count, dtype=np.uint32)
        arrays["rows"][order] = np.arange(count, dtype=np.uint32)
        arrays["cluster_ends"] = ends.astype(np.uint32)
        arrays["cluster_centroids"] = unit_float16(np.array(sums))
    centre = _centre(halves)
    coarse, fine = _codes(halves, centre)
    return header, arrays | {"coarse": coarse, "fine": fine, "vectors": halves, "centre": centre}


def check(segment: Segment) -> None:
    """Raise `DamagedSegment` for one that this program cannot read."""
    dimensions = segment.header.get("dimensions")
    if not isinstance(dimensions, int) or dimensions < 1:
        raise DamagedSegment(f"a vector segment of {dimensions!r} dimensions makes no sense; build it anew")
    _check(segment, dimensions)


def unit_float16(vectors: Array) -> Halves:
    """The form in which vectors are kept and compared: unit length, rounded to float16.

    Rows that are unit already are only rounded, rows of another length are scaled first, zero stays zero.
    Applying it again changes nothing. Raises `InvalidInput` for values that are not finite.
    """
    if vectors.ndim != 2:
        raise InvalidInput(f"vectors must be a table of rows, not an array of {vectors.ndim} dimensions")
    with np.errstate(over="ignore"):
        halves = np.ascontiguousarray(vectors, dtype=np.float16)
    for start in range(0, len(halves), _BUILD_BLOCK):
        block = halves[start : start + _BUILD_BLOCK].astype(np.float32)
        length = np.sqrt(np.einsum("ij,ij->i", block, block))
        odd = start + np.flatnonzero(~(np.abs(length - 1.0) <= _UNIT_TOLERANCE))
        if odd.size:
            scaled = _unit(np.asarray(vectors[odd], dtype=np.float64))
            if np.may_share_memory(halves, vectors):
                halves = halves.copy()
            halves[odd] = scaled
    return halves


class VectorTail:
    """The vectors that no segment holds yet, in memory, searched exactly.

    One thread at a time may change it. Searches may run meanwhile in others and see it before or after
    a change, never in between.
    """

    __slots__ = ("_content", "dimensions")

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        # The keys and the vectors with room to grow, and how many are in use; replaced as one.
        self._content: tuple[Keys, Halves, int] = (
            np.empty(0, dtype=np.int64),
            np.empty((0, dimensions), dtype=np.float16),
            0,
        )

    def __len__(self) -> int:
        return self._content[2]

    @property
    def keys(self) -> Keys:
        """The keys in the order in which they were added."""
        keys, _, count = self._content
        return keys[:count].copy()

    def add(self, keys: npt.ArrayLike, vectors: Array) -> None:
        """Append vectors under new keys. A key that is already here gets the new vector."""
        added = np.asarray(keys, dtype=np.int64)
        rounded = unit_float16(vectors)
        if rounded.shape != (added.size, self.dimensions) or added.ndim != 1:
            raise WrongDimension(
                f"{added.size} keys came with vectors of shape {rounded.shape}; "
                f"each vector must have {self.dimensions} dimensions"
            )
        if np.unique(added).size != added.size:
            raise InvalidInput("a key was given twice in one call")
        held, matrix, count = self._content
        if bool(np.isin(held[:count], added).any()):
            self.remove(added.tolist())
            held, matrix, count = self._content
        total = count + added.size
        if total > held.size:
            # Half as much again, so that a vector is copied twice on average however long the tail grows.
            room = max(total, count + count // 2, 64)
            held, old_keys = np.empty(room, dtype=np.int64), held
            matrix, old_matrix = np.empty((room, self.dimensions), dtype=np.float16), matrix
            held[:count] = old_keys[:count]
            matrix[:count] = old_matrix[:count]
        held[count:total] = added
        matrix[count:total] = rounded
        self._content = (held, matrix, total)

    def remove(self, keys: Collection[int]) -> None:
        """Drop these keys; keys that are not here are ignored."""
        held, matrix, count = self._content
        stays = ~np.isin(held[:count], np.fromiter(keys, dtype=np.int64, count=len(keys)))
        # New arrays: a search that runs meanwhile keeps the old ones, and nothing of what left stays behind.
        left = int(np.count_nonzero(stays))
        if left < count:
            self._content = (held[:count][stays], matrix[:count][stays], left)

    def search(self, query: Array, limit: int, among: Keys | None = None) -> tuple[Keys, Doubles]:
        """As `VectorIndex.search`, in the tail alone."""
        return _best([self._chosen(among)], _prepare(query, self.dimensions), _checked(limit))

    def _chosen(self, among: Keys | None) -> _Chosen:
        held, matrix, count = self._content
        rows = np.arange(count) if among is None else np.flatnonzero(_is_among(held[:count], among))
        return _Chosen(_Part(held, matrix), rows)


class VectorIndex:
    """Segments and a tail, searched as one. Every key lies in one of them only.

    Holds no copy of anything: making one costs microseconds, whatever the segments weigh.
    Raises `DamagedSegment` for a segment of other dimensions, another code version or another shape.
    """

    __slots__ = ("_last", "_parts", "dimensions", "segments", "tail")

    def __init__(self, dimensions: int, segments: Sequence[Segment] = (), tail: VectorTail | None = None) -> None:
        if tail is not None and tail.dimensions != dimensions:
            raise WrongDimension(f"the tail has {tail.dimensions} dimensions, the index {dimensions}")
        for segment in segments:
            _check(segment, dimensions)
        self.dimensions = dimensions
        self.segments = tuple(segments)
        self._parts = [_part(segment) for segment in segments]
        self._last: tuple[tuple[tuple[int, ...], bytes], _Query] | None = None
        self.tail = tail

    def search(self, query: Array, limit: int, among: Keys | None = None) -> tuple[Keys, Doubles]:
        """Keys and cosines of the nearest vectors, best first, ties by ascending key.

        `among`, a sorted array, restricts the search to these keys and makes it exact. Otherwise the tail and
        small segments are searched exactly, and large segments by their codes, which finds 98 in 100 of the ten
        nearest or more; where they have more than half a million rows, in the clusters nearest to the query only. The
        score itself is always exact. A zero vector has the cosine 0 to everything.
        """
        asked, limit = self._asked(query), _checked(limit)
        if among is not None:
            chosen = [_Chosen(part, _rows_among(part, among)) for part in self._parts]
        else:
            chosen = self._nominated(asked, limit)
        if self.tail is not None:
            chosen.append(self.tail._chosen(among))
        return _best(chosen, asked, limit)

    def _asked(self, query: Array) -> _Query:
        """The query, prepared. The last one is kept: what a question finds is scored by it."""
        wanted = np.asarray(query, dtype=np.float64)
        values = wanted.shape, wanted.tobytes()
        last = self._last
        if last is None or last[0] != values:
            self._last = last = values, _prepare(wanted, self.dimensions)
        return last[1]

    def _nominated(self, asked: _Query, limit: int) -> list[_Chosen]:
        """What may be among the nearest in each segment."""
        large = [part for part in self._parts if part.keys.size >= _EXACT_BELOW]
        chosen = [_Chosen(part, np.arange(part.keys.size)) for part in self._parts if part.keys.size < _EXACT_BELOW]
        if asked.is_zero:
            firsts = [np.arange(min(limit, part.keys.size)) for part in large]
            return chosen + [_Chosen(part, _rows_of(part, first)) for part, first in zip(large, firsts, strict=True)]
        if large:
            rotated = _turned(asked.exact)
            reached = _within_reach(large, asked)
            sizes = [int((spans[:, 1] - spans[:, 0]).sum()) for spans in reached]
            for part, spans, size in zip(large, reached, sizes, strict=True):
                if size:
                    rows = _rows_by_code(part, spans, rotated, limit, size / sum(sizes))
                    chosen.append(_Chosen(part, rows))
        return chosen

    def score(self, query: Array, keys: Keys) -> tuple[Keys, Doubles]:
        """Those of these ascending keys that have a vector, in any order, and their exact cosines."""
        asked = self._asked(query)
        chosen = [_Chosen(part, _rows_among(part, keys)) for part in self._parts]
        if self.tail is not None:
            chosen.append(self.tail._chosen(keys))
        found = [_keys_of(part, rows) for part, rows in chosen if rows.size]
        scores = [_cosines(part.vectors, rows, asked.exact) for part, rows in chosen if rows.size]
        return _joined(found, _NO_KEYS), _joined(scores, _NO_SCORES)


# -- parts -------------------------------------------------------------------------------------------------

_NONE = np.empty(0, dtype=np.uint32)
_NO_KEYS = np.empty(0, dtype=np.int64)
_NO_SCORES = np.empty(0)


class _Part(NamedTuple):
    """Vectors that lie together, those of a segment or of the tail; see `_assembled`."""

    keys: Keys
    vectors: Halves
    places: Array = _NONE
    rows: Array = _NONE
    cluster_ends: Array = _NONE
    cluster_centroids: Array = _NONE
    coarse: Array = _NONE
    fine: Array = _NONE
    centre: Array = _NONE


class _Chosen(NamedTuple):
    """Rows of a part that may be among the nearest."""

    part: _Part
    rows: Rows


def _part(segment: Segment) -> _Part:
    names = "keys", "vectors", "places", "rows", "cluster_ends", "cluster_centroids", "coarse", "fine", "centre"
    return _Part(*[segment.arrays.get(name, _NONE) for name in names])


def _keys_of(part: _Part, rows: Rows) -> Keys:
    """The keys of the vectors in these rows."""
    return np.asarray(part.keys[_translated(part.places, rows)])


def _rows_of(part: _Part, places: Rows) -> Rows:
    """The rows of the vectors whose keys stand at these places."""
    return _translated(part.rows, places)


def _translated(table: Array, numbers: Rows) -> Rows:
    """Numbers through a table of a file, which may be damaged: what comes out leads to memory."""
    if not table.size:
        return numbers
    found = table[numbers].astype(np.intp)
    if found.size and int(found.max()) >= table.size:
        raise DamagedSegment("a vector segment points outside of its own arrays: the projection must be rebuilt")
    return np.asarray(found)


def _cluster_ends(part: _Part) -> Rows:
    """Where the clusters end, in rows."""
    ends = part.cluster_ends.astype(np.intp)
    if ends.size and (int(ends[-1]) != part.keys.size or bool(np.any(ends[1:] < ends[:-1]))):
        raise DamagedSegment("the clusters of a vector segment make no sense: the projection must be rebuilt")
    return ends


# -- scoring -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Query:
    """A query in every form that a search needs."""

    exact: Doubles
    single: Floats
    is_zero: bool


def _checked(limit: int) -> int:
    if limit < 1:
        raise InvalidInput(f"a search needs a limit of at least 1, not {limit}")
    return limit


def _prepare(query: Array, dimensions: int) -> _Query:
    vector = np.asarray(query, dtype=np.float64)
    if vector.shape != (dimensions,):
        raise WrongDimension(f"the query has shape {vector.shape}; the index has {dimensions} dimensions")
    square = float(vector @ vector)
    # The quick way for what embedders give; the careful one for zero, the huge, the tiny and the infinite.
    unit = vector / math.sqrt(square) if 1e-9 < square < 1e9 else _unit(vector[np.newaxis])[0]
    exact = np.rint(unit * (1.0 / _QUERY_STEP)) * _QUERY_STEP
    single = exact.astype(np.float32)
    return _Query(exact, single, not single.any())


def _best(chosen: Sequence[_Chosen], asked: _Query, limit: int) -> tuple[Keys, Doubles]:
    """The best of all parts, scored exactly."""
    chosen = [one for one in chosen if one.rows.size]
    if sum([rows.size for _, rows in chosen]) > max(limit, _SCORED_AT_ONCE):
        chosen = _nearer(chosen, asked, limit)
    scores = [_cosines(part.vectors, rows, asked.exact) for part, rows in chosen]
    floor = _floor(scores, limit)
    near = [(own >= floor).nonzero()[0] for own in scores]
    keys = _joined([_keys_of(part, rows[here]) for (part, rows), here in zip(chosen, near, strict=True)], _NO_KEYS)
    kept = _joined([own[here] for own, here in zip(scores, near, strict=True)], _NO_SCORES)
    order = np.lexsort((keys, -kept))[:limit]
    return keys[order], kept[order]


def _joined(parts: Sequence[Array], nothing: Array) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate((nothing, *parts))


def _nearer(chosen: Sequence[_Chosen], asked: _Query, limit: int) -> list[_Chosen]:
    """Those of the rows that can be among the best by their cosines in float32, which take half the time."""
    nearly = [_nearly(part.vectors, rows, asked.single) for part, rows in chosen]
    # float32 sums differ from the exact cosine by the rounding of the sum and by the length of the row.
    floor = _floor(nearly, limit) - 2 * (_UNIT_TOLERANCE + asked.exact.size * 2.0**-23)
    return [_Chosen(part, rows[own >= floor]) for (part, rows), own in zip(chosen, nearly, strict=True)]


def _floor(scores: Sequence[Array], limit: int) -> float:
    """The least of the `limit` highest."""
    joined = _joined(scores, _NO_SCORES)
    return float(np.partition(joined, joined.size - limit)[joined.size - limit]) if joined.size > limit else -math.inf


def _cosines(vectors: Halves, rows: Rows, query: Doubles) -> Doubles:
    """Exact but for the last division: see `_QUERY_STEP`."""
    if kernels.active is not None:
        return kernels.active.cosines(vectors, rows, query)
    products, squares = np.empty(rows.size), np.empty(rows.size)
    for part in _steps(rows.size, query.size):
        doubles = _widened(vectors[rows[part]]).astype(np.float64)
        doubles *= _HALF_SCALE
        np.matmul(doubles, query, out=products[part])
        np.einsum("ij,ij->i", doubles, doubles, out=squares[part])
    squares[squares == 0.0] = 1.0
    return np.asarray(np.clip(products / np.sqrt(squares), -1.0, 1.0))


def _nearly(vectors: Halves, rows: Rows, query: Floats) -> Floats:
    """Dot products of float16 rows in float32, widening no more than a block at a time."""
    scaled = query * _HALF_SCALE
    if kernels.active is not None:
        return kernels.active.near_products(vectors, rows, scaled)
    products = np.empty(rows.size, dtype=np.float32)
    for part in _steps(rows.size, query.size):
        np.matmul(_widened(vectors.take(rows[part], axis=0)), scaled, out=products[part])
    return products


def _widened(halves: Halves) -> Floats:
    """float16 as float32, too small by `_HALF_SCALE`, exactly.

    numpy widens float16 one by one: 210 us for 400 x 384. Moving the bits to their places in a float32 as integers
    takes 50 us; the exponent is then too small by 2**112.
    """
    wide = halves.view(np.int16).astype(np.int32)
    np.left_shift(wide, 13, out=wide)
    # Widening repeated the sign in the bits above; only the topmost copy is one.
    np.bitwise_and(wide, np.int32(-0x70000001), out=wide)
    return wide.view(np.float32)


# -- nominating --------------------------------------------------------------------------------------------


def _within_reach(parts: Sequence[_Part], asked: _Query) -> list[Rows]:
    """Of each part the rows to look at, as a table of where they begin and end.

    All, or where there are more than `_MOST_SCANNED`, those of the clusters that are nearest to the query, and of the
    last cluster that there is room for the newest. What has no clusters is small, and looked at in any case.
    """
    whole = [np.array([(0, part.keys.size)]) for part in parts]
    if sum(part.keys.size for part in parts) <= _MOST_SCANNED:
        return whole
    bare = sum(part.keys.size for part in parts if not part.cluster_ends.size)
    room = max(_MOST_SCANNED - bare, _MOST_SCANNED // 2)
    clusters = [(number, part, _cluster_ends(part)) for number, part in enumerate(parts) if part.cluster_ends.size]
    if not clusters:
        return whole
    # Exactly, so that the same clusters are looked at with and without kernels.
    near = np.concatenate(
        [_cosines(part.cluster_centroids, np.arange(ends.size), asked.exact) for _, part, ends in clusters]
    )
    spans = np.concatenate([np.stack((np.append(0, ends[:-1]), ends), axis=1) for _, _, ends in clusters])
    owners = np.repeat([number for number, _, _ in clusters], [ends.size for _, _, ends in clusters])
    order = np.argsort(-near, kind="stable")
    reached = (spans[order, 1] - spans[order, 0]).cumsum()
    last = int(reached.searchsorted(room))
    if last < order.size:
        spans[order[last], 0] += reached[last] - room
    chosen = np.sort(order[: last + 1])  # by part, and by row
    return [
        spans[chosen[owners[chosen] == number]] if part.cluster_ends.size else whole[number]
        for number, part in enumerate(parts)
    ]


class _Coded(NamedTuple):
    """A query of a search by codes: its bits, and their weights, 0 to 3, in two planes."""

    signs: Words
    high: Words
    low: Words


def _rows_by_code(part: _Part, spans: Rows, rotated: Floats, limit: int, share: float) -> Rows:
    """The rows that may be among the nearest, by two looks: a cheap one at all, a keener one at the few left.

    All are those of the spans. Both distances are noisy, and the noise is known: the number of differing bits is a
    sum of coin flips. A row stays in while it is within so many standard deviations of the last one wanted. Queries
    with a crowd around them thus get more candidates than the others, where one number for all was too few and too
    many. Wanted is twice the part's share of all rows: the whole limit from each would rescore far more rows than can
    be among the best.
    """
    count = int((spans[:, 1] - spans[:, 0]).sum())
    wanted = max(limit, _LEAST_WANTED)
    limit = min(wanted, max(_LEAST_RANK, math.ceil(2 * wanted * share)))
    rank = min(limit, count)
    kept = max(_LEAST_KEPT, int(_MOST_KEPT * share), int(count // 32 * share)) + 32 * limit
    scored = max(_LEAST_SCORED, rank, int((_MOST_SCORED + 8 * wanted) * share))
    query = rotated - part.centre
    if kernels.active is not None:
        limits = ScanLimits(rank, kept, scored, _COARSE_DEVIATIONS, _WEIGHTED_DEVIATIONS)
        return kernels.active.rows_by_code(part.coarse, part.fine, spans, query, limits)
    levels = _levels(np.abs(query))
    asked = _Coded(_pack_bits(query > 0), _pack_bits(levels >> 1), _pack_bits(levels & 1))
    looked = [_coarse_distances(part.coarse[:, first:last], asked.signs) for first, last in spans.tolist()]
    within = _rows_within(np.concatenate(looked), rank, kept)
    rows = np.concatenate([np.arange(first, last) for first, last in spans.tolist()])[within]
    codes = np.concatenate((part.coarse.take(rows, axis=1), part.fine.take(rows, axis=0).T))
    distances = _weighted_distances(codes, asked)
    weights = levels.astype(np.float64)
    scored = min(scored, rows.size)
    sorted_there = np.partition(distances, (rank - 1, scored - 1))
    nth = int(sorted_there[rank - 1])
    slack = _slack(nth / float(weights.sum()), float(weights @ weights), _WEIGHTED_DEVIATIONS)
    return np.asarray(rows[distances <= min(nth + slack, int(sorted_there[scored - 1]))])


def _levels(magnitudes: Floats) -> npt.NDArray[np.uint8]:
    """Magnitudes rounded to two bits; a third bit raised the recall by 0.002 at most."""
    step = 0.7 * (float(magnitudes.cumsum(dtype=np.float64)[-1]) / magnitudes.size)  # one by one, as the kernel
    if step == 0.0:
        return np.ones(magnitudes.size, dtype=np.uint8)
    return np.asarray(np.minimum(np.rint(magnitudes / step), 3), dtype=np.uint8)


def _slack(share: float, squares: float, deviations: float) -> float:
    """So many deviations of a sum of weighted coin flips; `share` is how many of them come up."""
    return deviations * math.sqrt(squares * share * max(0.0, 1.0 - share))


def _rows_within(distances: npt.NDArray[np.uint8], rank: int, most: int) -> Rows:
    """The rows within the slack of the `rank`-th smallest coarse distance."""
    count = distances.size
    # The array is folded and the smallest of each fold looked at: the `rank`-th of these is the `rank`-th of all,
    # or a little more where a fold holds two of them. 9 us at 100,000, where a histogram takes 137. Rows of a
    # fold lie far apart, so that neighbours in time do not hide each other.
    depth = max(1, count // (64 * rank))
    smallest = distances[: count // depth * depth].reshape(depth, -1).min(axis=0)
    nth = int(np.partition(smallest, rank - 1)[rank - 1])
    while np.count_nonzero(distances < nth) >= rank:
        nth -= 1
    bits = 64 * _COARSE_WORDS
    radius = int(nth + _slack(nth / bits, bits, _COARSE_DEVIATIONS))
    near = distances <= radius
    while radius > nth and np.count_nonzero(near) > most:
        radius -= 1
        near = distances <= radius
    rows = near.nonzero()[0]
    if rows.size > most:
        # Thousands at the very same distance, duplicates as a rule: the nearest, and of equals the first.
        rows = np.sort(rows[np.argsort(distances[rows], kind="stable")[:most]])
    return rows


def _coarse_distances(codes: Words, signs: Words) -> npt.NDArray[np.uint8]:
    """Hamming distances over the first words of the codes."""
    count = codes.shape[1]
    distances = np.empty(count, dtype=np.uint8)
    mixed = np.empty(_SCAN_BLOCK, dtype=np.uint64)
    counts = np.empty(_SCAN_BLOCK, dtype=np.uint8)
    for start in range(0, count, _SCAN_BLOCK):
        stop = min(count, start + _SCAN_BLOCK)
        total, differ, ones = distances[start:stop], mixed[: stop - start], counts[: stop - start]
        np.bitwise_xor(codes[0, start:stop], signs[0], out=differ)
        np.bitwise_count(differ, out=total)
        for word in range(1, _COARSE_WORDS):
            np.bitwise_xor(codes[word, start:stop], signs[word], out=differ)
            np.bitwise_count(differ, out=ones)
            np.add(total, ones, out=total)
    return distances


def _weighted_distances(codes: Words, asked: _Coded) -> npt.NDArray[np.uint32]:
    """The sum of the query's levels, 0 to 3, over the bits that differ: a bit far from zero tells more."""
    differ = np.bitwise_xor(codes, asked.signs[:, np.newaxis])
    distances = np.zeros(codes.shape[1], dtype=np.uint32)
    for plane in (asked.high, asked.low):
        np.left_shift(distances, 1, out=distances)
        for ones in np.bitwise_count(differ & plane[:, np.newaxis]):
            np.add(distances, ones, out=distances)
    return distances


def _rows_among(part: _Part, among: Keys) -> Rows:
    """The rows of a segment whose key is allowed; `among` is ascending."""
    keys = part.keys
    if not keys.size:
        return np.empty(0, dtype=np.intp)
    first, last = int(keys[0]), int(keys[-1])
    wanted = among[among.searchsorted(first) : among.searchsorted(last, side="right")]
    if last - first == keys.size - 1:  # no gap
        places = wanted - first
    elif wanted.size > keys.size:
        places = np.flatnonzero(_is_among(keys, wanted))
    elif wanted.size:
        places = places_of(keys, first, wanted)
        places = places[keys[places] == wanted]
    else:
        return np.empty(0, dtype=np.intp)
    return _rows_of(part, places)


def _is_among(keys: Keys, among: Keys) -> npt.NDArray[np.bool_]:
    if not among.size:
        return np.zeros(keys.size, dtype=np.bool_)
    places = np.minimum(np.searchsorted(among, keys), among.size - 1)
    return np.asarray(among[places] == keys)


# -- clusters -------------------------------------------------------------------------------------------------


def _clusters_of(halves: Halves) -> Rows:
    """The cluster of each vector, neighbours in one: k-means by cosine on a sample, then each to the nearest middle.

    It takes 25 us a vector of 384 dimensions.
    """
    clusters = min(_MOST_CLUSTERS, len(halves) // _CLUSTER_ROWS)
    sample = halves[np.linspace(0, len(halves) - 1, clusters * _CLUSTER_SAMPLE).astype(np.intp)].astype(np.float32)
    middles = sample[::_CLUSTER_SAMPLE].copy()
    for _ in range(_CLUSTER_ROUNDS):
        nearest = _nearest(sample, middles)
        sums = np.zeros_like(middles)
        np.add.at(sums, nearest, sample)
        held = np.bincount(nearest, minlength=clusters) > 0  # one that nothing is near to stays where it is
        middles[held] = _unit(sums[held].astype(np.float64))
    middles = middles[_in_a_chain(middles)]
    found = np.empty(len(halves), dtype=np.intp)
    for start in range(0, len(halves), _BUILD_BLOCK):
        block = halves[start : start + _BUILD_BLOCK].astype(np.float32)
        found[start : start + _BUILD_BLOCK] = _nearest(block, middles)
    return found


def _in_a_chain(middles: Floats) -> list[int]:
    """An order in which each is followed by the nearest of those left: what is read together then lies together."""
    alike = middles @ middles.T
    chain: list[int] = []
    at = 0
    for _ in range(len(middles)):
        chain.append(at)
        alike[:, at] = -np.inf
        at = int(alike[at].argmax())
    return chain


def _nearest(vectors: Floats, middles: Floats) -> Rows:
    return np.asarray(np.argmax(vectors @ middles.T, axis=1))


# -- coding ------------------------------------------------------------------------------------------------


def _centre(halves: Halves) -> Floats:
    """The rotated mean of the vectors."""
    mean = np.zeros((1, halves.shape[1]), dtype=np.float64)
    for start in range(0, len(halves), _BUILD_BLOCK):
        mean += halves[start : start + _BUILD_BLOCK].sum(axis=0, dtype=np.float64)
    return np.asarray(_rotate((mean / max(1, len(halves))).astype(np.float32))[0])


def _codes(halves: Halves, centre: Floats) -> tuple[Words, Words]:
    """A bit per rotated coordinate, on the one side of the centre or on the other.

    The words that all rows are looked at by are transposed, a row per word: the scan then works on long contiguous
    arrays. The others of a code lie together, for those that are looked at again.
    """
    codes = np.empty((len(halves), centre.size // 64), dtype=np.uint64)
    for start in range(0, len(halves), _BUILD_BLOCK):
        block = halves[start : start + _BUILD_BLOCK].astype(np.float32)
        codes[start : start + _BUILD_BLOCK] = _pack_bits(_rotate(block) > centre)
    return np.ascontiguousarray(codes[:, :_COARSE_WORDS].T), np.ascontiguousarray(codes[:, _COARSE_WORDS:])


def _pack_bits(bits: Array) -> Words:
    return np.packbits(bits, axis=-1, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def _code_bits(dimensions: int) -> int:
    return max(_LEAST_BITS, -(-dimensions // 64) * 64)


def _rotate(vectors: Floats) -> Floats:
    """The vectors, padded to the length of a code and turned by a fixed pseudo-random rotation.

    Two rounds of sign flips, each followed by a Hadamard transform of the first and of the last 2**k coordinates,
    which overlap unless the length is a power of two itself.
    """
    count, dimensions = vectors.shape
    width = _code_bits(dimensions)
    flips, left, right = _rotation(width)
    turned = np.zeros((count, width), dtype=np.float32)
    turned[:, :dimensions] = vectors
    size = len(left) * len(right)
    for flip in flips:
        turned *= flip
        for start in sorted({0, width - size}):
            part = turned[:, start : start + size].reshape(count, len(left), len(right))
            turned[:, start : start + size] = (left @ (part @ right)).reshape(count, size)
    return turned


def _turned(query: Doubles) -> Floats:
    """A query, rotated as `_rotate` does, to the same bits on every machine.

    In float64, and after each transform every value is rounded to a multiple of `_QUERY_STEP`, as those of the query
    are: so all sums are exact, in whatever order they are made.
    """
    width = _code_bits(query.size)
    flips, left, right = _rotation(width)
    size = len(left) * len(right)
    turned = np.zeros(width)
    turned[: query.size] = query
    steps = 1.0 / math.sqrt(size) / _QUERY_STEP
    if kernels.active is not None:
        kernels.active.turn(turned, flips, size, steps, _QUERY_STEP)
        return turned.astype(np.float32)
    signs = np.sign(left).astype(np.float64), np.sign(right).astype(np.float64)
    for flip in flips:
        turned *= flip
        for start in sorted({0, width - size}):
            part = turned[start : start + size]
            sums = signs[0] @ part.reshape(len(left), len(right)) @ signs[1]
            part[:] = np.rint(sums.reshape(-1) * steps) * _QUERY_STEP
    return turned.astype(np.float32)


@lru_cache(maxsize=16)
def _rotation(width: int) -> tuple[Floats, Floats, Floats]:
    """Sign flips per round, and the two factors of the Hadamard transform.

    The signs come from a hash, since the random streams of numpy may change between its versions.
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


# -- small parts -------------------------------------------------------------------------------------------


def _unit(vectors: Doubles) -> Doubles:
    """Rows of length one, or zero, whatever their magnitude was."""
    if not np.isfinite(vectors).all():
        raise InvalidInput("a vector holds a value that is not finite")
    largest = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True)
    scaled = vectors / np.where(largest == 0.0, 1.0, largest)
    length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, np.newaxis]
    return np.asarray(scaled / np.where(length == 0.0, 1.0, length))


def _steps(count: int, dimensions: int) -> Iterator[slice]:
    """Slices of so many rows as one product may have."""
    size = max(1, _PRODUCT_VALUES // dimensions)
    return (slice(start, min(count, start + size)) for start in range(0, count, size))


def _check(segment: Segment, dimensions: int) -> None:
    """Refuse a segment that this index cannot read."""
    header: Mapping[str, Any] = segment.header
    found = (header.get("kind"), header.get("code_version"), header.get("dimensions"))
    if found != (KIND, CODE_VERSION, dimensions):
        raise DamagedSegment(
            f"a segment of kind, code version and dimensions {found} cannot serve "
            f"an index of {(KIND, CODE_VERSION, dimensions)}; build it anew from the records"
        )
    count, clusters, bits = header.get("count"), header.get("clusters"), _code_bits(dimensions)
    shapes: dict[str, tuple[type[np.generic], tuple[Any, ...]]] = {
        "keys": (np.int64, (count,)),
        "coarse": (np.uint64, (_COARSE_WORDS, count)),
        "fine": (np.uint64, (count, bits // 64 - _COARSE_WORDS)),
        "vectors": (np.float16, (count, dimensions)),
        "centre": (np.float32, (bits,)),
    }
    if clusters != 0:
        shapes |= {
            "places": (np.uint32, (count,)),
            "rows": (np.uint32, (count,)),
            "cluster_ends": (np.uint32, (clusters,)),
            "cluster_centroids": (np.float16, (clusters, dimensions)),
        }
    for name, (dtype, shape) in shapes.items():
        array = segment.arrays.get(name)
        if array is None or array.dtype != dtype or array.shape != shape:
            raise DamagedSegment(f"the array {name!r} of a vector segment is missing or has another shape")
