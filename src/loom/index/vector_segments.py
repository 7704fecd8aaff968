"""Vector segments: built from vectors, merged, rewritten without some vectors, and checked.

A segment holds float16 vectors with their 1-bit codes. The rows of a large segment are grouped in clusters, so that
a search can read the nearest clusters only. Files are written in `segments.py`; the form of vectors and codes is
defined in `vector_codes.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.blas import one_thread
from loom.errors import InvalidInput
from loom.index.segments import Array, Built, DamagedSegment, Segment
from loom.index.vector_codes import (
    BLOCK_ROWS,
    COARSE_WORDS,
    Floats,
    Halves,
    centre_of,
    code_bits,
    encode,
    unit_float16,
    unit_rows,
)

__all__ = [
    "CODES_ONLY",
    "CODE_VERSION",
    "DEFAULT_CLUSTERING",
    "KIND",
    "Clustering",
    "Keys",
    "Rows",
    "VectorRows",
    "build",
    "check",
    "check_dimensions",
    "cluster_ends",
    "keys_of",
    "merge",
    "rows_of",
    "vector_rows",
    "verify",
    "without",
]

Keys = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

KIND = "vectors"
CODES_ONLY = "codes_only"
"""In the header of a segment without its vectors, which are read elsewhere when a search needs them."""
CODE_VERSION = 3
"""Raised whenever the same vectors would result in a different segment. Segments of another version are rebuilt."""

# k-means runs on this many rows per cluster, for this many rounds.
_SAMPLE_ROWS = 32
_ROUNDS = 6

_NONE = np.empty(0, dtype=np.uint32)


class Clustering(NamedTuple):
    """Which segments are clustered, and how finely. Every search of a large index reads all centroids.

    With 256 rows per cluster the nearest quarter of the rows held 96.9 in 100 of the ten nearest vectors; with 1,024,
    93.1.
    """

    from_rows: int = 16_384
    rows_per_cluster: int = 256
    most_clusters: int = 512


DEFAULT_CLUSTERING = Clustering()


def build(keys: npt.ArrayLike, vectors: Array, clustering: Clustering = DEFAULT_CLUSTERING) -> Built:
    """Header and arrays of a segment that holds these vectors under these keys, in any order.

    `vectors` has a row per key, of unit length or zero; see `unit_float16`. Raises `InvalidInput` for a key given
    twice.
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
    clusters = _clusters_of(halves, clustering) if ordered.size >= clustering.from_rows else None
    return _assemble(ordered, halves, clusters)


def merge(segments: Sequence[Segment], clustering: Clustering = DEFAULT_CLUSTERING) -> Built:
    """One segment with the vectors of all segments, with a new centre, new codes and new clusters.

    A key that two segments hold is kept once. Raises `InvalidInput` if no segment is given.
    """
    if not segments:
        raise InvalidInput("there is no segment to merge")
    dimensions = segments[0].header["dimensions"]
    for segment in segments:
        check_dimensions(segment, dimensions)
    keys, firsts = np.unique(np.concatenate([segment.arrays["keys"] for segment in segments]), return_index=True)
    vectors = np.empty((len(keys), dimensions), dtype=np.float16)
    base = 0
    for segment in segments:  # one at a time: only the new segment is in memory
        end = base + segment.header["count"]
        mine = np.flatnonzero((firsts >= base) & (firsts < end))
        vectors[mine] = segment.arrays["vectors"][rows_of(vector_rows(segment), firsts[mine] - base)]
        base = end
    return build(keys, vectors, clustering)


def without(segment: Segment, keys: Collection[int]) -> Built:
    """The segment as if these keys had never been in it. Keys that it does not hold are ignored.

    The centre, the codes and the centroids are computed again, since the old means depend on the removed vectors.
    """
    check(segment)
    held = segment.arrays["keys"]
    stays = np.flatnonzero(~np.isin(held, np.fromiter(keys, dtype=np.int64, count=len(keys))))
    own = vector_rows(segment)
    rows, ends = rows_of(own, stays), cluster_ends(own)
    clusters = ends.searchsorted(rows, side="right") if ends.size else None
    return _assemble(held[stays], segment.arrays["vectors"][rows], clusters)


def _assemble(keys: Keys, halves: Halves, clusters: Rows | None) -> Built:
    """Header and arrays of a segment of these vectors, in order of their keys, with the cluster of each.

    Keys are stored in ascending order; vectors and codes by cluster, and within a cluster by key. The array `rows`
    gives the row of each key's vector, and `places` the place of each row's key. Without clusters both orders are the
    same, and neither array is stored.
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
    centre = centre_of(halves)
    coarse, fine = encode(halves, centre)
    return header, arrays | {"coarse": coarse, "fine": fine, "vectors": halves, "centre": centre}


# --- Clusters ----------------------------------------------------------------------------------------------


def _clusters_of(halves: Halves, clustering: Clustering) -> Rows:
    """The cluster of each vector: k-means by cosine on a sample, then each vector to the nearest centroid.

    It takes 25 us per vector of 384 dimensions.
    """
    clusters = min(clustering.most_clusters, len(halves) // clustering.rows_per_cluster)
    sample = halves[np.linspace(0, len(halves) - 1, clusters * _SAMPLE_ROWS).astype(np.intp)].astype(np.float32)
    centroids = sample[::_SAMPLE_ROWS].copy()
    for _ in range(_ROUNDS):
        nearest = _nearest(sample, centroids)
        sums = np.zeros_like(centroids)
        np.add.at(sums, nearest, sample)
        held = np.bincount(nearest, minlength=clusters) > 0  # an empty cluster keeps its centroid
        centroids[held] = unit_rows(sums[held].astype(np.float64))
    centroids = centroids[_chain(centroids)]
    found = np.empty(len(halves), dtype=np.intp)
    for start in range(0, len(halves), BLOCK_ROWS):
        block = halves[start : start + BLOCK_ROWS].astype(np.float32)
        found[start : start + BLOCK_ROWS] = _nearest(block, centroids)
    return found


def _chain(centroids: Floats) -> list[int]:
    """An order in which each centroid is followed by the nearest one left.

    Clusters that a search reads together are then near each other in the file.
    """
    with one_thread():
        alike = centroids @ centroids.T
    chain: list[int] = []
    at = 0
    for _ in range(len(centroids)):
        chain.append(at)
        alike[:, at] = -np.inf
        at = int(alike[at].argmax())
    return chain


def _nearest(vectors: Floats, centroids: Floats) -> Rows:
    with one_thread():
        alike = vectors @ centroids.T
    return np.asarray(np.argmax(alike, axis=1))


# --- Reading -----------------------------------------------------------------------------------------------


class VectorRows(NamedTuple):
    """The vectors of a segment or of the tail, with their keys. See `_assemble` for the arrays of a segment."""

    keys: Keys
    vectors: Halves
    places: Array = _NONE
    rows: Array = _NONE
    cluster_ends: Array = _NONE
    cluster_centroids: Array = _NONE
    coarse: Array = _NONE
    fine: Array = _NONE
    centre: Array = _NONE

    @property
    def has_codes_only(self) -> bool:
        """Whether the vectors are elsewhere."""
        return self.vectors.ndim == 1


def vector_rows(segment: Segment) -> VectorRows:
    return VectorRows(*[segment.arrays.get(name, _NONE) for name in VectorRows._fields])


def keys_of(own: VectorRows, rows: Rows) -> Keys:
    return np.asarray(own.keys[_translated(own.places, rows)])


def rows_of(own: VectorRows, places: Rows) -> Rows:
    """The rows of the vectors whose keys are at these places."""
    return _translated(own.rows, places)


def _translated(table: Array, numbers: Rows) -> Rows:
    """The entries of a table at these numbers. Checks them: a damaged file must not lead outside of an array."""
    if not table.size:
        return numbers
    found = table[numbers].astype(np.intp)
    if found.size and int(found.max()) >= table.size:
        raise DamagedSegment("a vector segment points outside of its own arrays: the index must be rebuilt")
    return np.asarray(found)


def cluster_ends(own: VectorRows) -> Rows:
    """The end of each cluster, in rows. Raises `DamagedSegment` if they are not ascending up to the last row."""
    ends = own.cluster_ends.astype(np.intp)
    if ends.size and (int(ends[-1]) != own.keys.size or bool(np.any(ends[1:] < ends[:-1]))):
        raise DamagedSegment("the clusters of a vector segment are not valid: the index must be rebuilt")
    return ends


# --- Checking ----------------------------------------------------------------------------------------------


def check(segment: Segment) -> None:
    """Raise `DamagedSegment` for a segment that this version cannot read."""
    dimensions = segment.header.get("dimensions")
    if not isinstance(dimensions, int) or dimensions < 1:
        raise DamagedSegment(f"a vector segment cannot have {dimensions!r} dimensions; it must be rebuilt")
    check_dimensions(segment, dimensions)


def check_dimensions(segment: Segment, dimensions: int) -> None:
    """Raise `DamagedSegment` for a segment that an index of these dimensions cannot read."""
    header: Mapping[str, Any] = segment.header
    found = (header.get("kind"), header.get("code_version"), header.get("dimensions"))
    if found != (KIND, CODE_VERSION, dimensions):
        raise DamagedSegment(
            f"a segment of kind, code version and dimensions {found} cannot serve "
            f"an index of {(KIND, CODE_VERSION, dimensions)}; it must be rebuilt from the records"
        )
    count, clusters, bits = header.get("count"), header.get("clusters"), code_bits(dimensions)
    shapes: dict[str, tuple[type[np.generic], tuple[Any, ...]]] = {
        "keys": (np.int64, (count,)),
        "coarse": (np.uint64, (COARSE_WORDS, count)),
        "fine": (np.uint64, (count, bits // 64 - COARSE_WORDS)),
        "centre": (np.float32, (bits,)),
    }
    if not header.get(CODES_ONLY):
        shapes["vectors"] = (np.float16, (count, dimensions))
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


def verify(segment: Segment) -> None:
    """Raise `DamagedSegment` unless the arrays of a segment agree with each other. Reads everything.

    Merging and rewriting compute new checksums, so the arrays must be verified before. `open_segment` compares the
    checksums only.
    """
    check(segment)
    own, header = vector_rows(segment), segment.header
    count = own.keys.size
    sound = bool(np.all(own.keys[1:] > own.keys[:-1])) and all(
        _are_finite(own.vectors[first : first + BLOCK_ROWS]) for first in range(0, len(own.vectors), BLOCK_ROWS)
    )
    if sound and count:
        sound = (int(own.keys[0]), int(own.keys[-1])) == (header.get("first_key"), header.get("last_key"))
    if sound and own.rows.size:
        cluster_ends(own)
        sound = bool(
            np.array_equal(own.rows[rows_of(own._replace(rows=own.places), np.arange(count))], np.arange(count))
        )
    if not sound:
        raise DamagedSegment("the arrays of a vector segment contradict each other: the index must be rebuilt")


def _are_finite(halves: Halves) -> bool:
    """Whether no exponent marks a NaN or an infinity. numpy's own test takes ten times as long for float16."""
    return int((halves.view(np.uint16) & np.uint16(0x7C00)).max(initial=0)) < 0x7C00
