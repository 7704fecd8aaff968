"""The vector index: immutable segments searched by 1-bit codes, and an exact in-memory tail, searched as one.

Other packages import this module. Its parts are `vector_segments.py` (files), `vector_codes.py` (the forms of a
vector) and `vector_scoring.py` (the search). Which keys are alive is decided in `loom.storage`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt

from loom.errors import InvalidInput, WrongDimension
from loom.index.segments import Array, Segment
from loom.index.vector_codes import Doubles, Halves, Query, prepare_query, unit_float16
from loom.index.vector_scoring import (
    DEFAULT_LIMITS,
    Fetched,
    Nominated,
    VectorLimits,
    best,
    completed,
    cosines_of,
    is_among,
    nearest_among,
    nominate,
    rows_among,
)
from loom.index.vector_segments import (
    CODE_VERSION,
    CODES_ONLY,
    Keys,
    VectorRows,
    build,
    check,
    check_dimensions,
    keys_of,
    merge,
    vector_rows,
    verify,
    without,
)

__all__ = [
    "CODES_ONLY",
    "CODE_VERSION",
    "DEFAULT_LIMITS",
    "Fetched",
    "VectorIndex",
    "VectorLimits",
    "VectorTail",
    "build",
    "check",
    "merge",
    "unit_float16",
    "verify",
    "without",
]


class VectorTail:
    """The vectors that no segment holds yet, in memory, searched exactly.

    One thread at a time may change it. Searches in other threads see it before or after a change, never in between.
    """

    __slots__ = ("_content", "dimensions")

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        # The keys and the vectors, with spare rows, and the number of rows in use; replaced together.
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
        """Append vectors under their keys. A key that is already in the tail gets the new vector."""
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
            # Grow by half, so that a vector is copied twice on average, however long the tail grows.
            room = max(total, count + count // 2, 64)
            held, old_keys = np.empty(room, dtype=np.int64), held
            matrix, old_matrix = np.empty((room, self.dimensions), dtype=np.float16), matrix
            held[:count] = old_keys[:count]
            matrix[:count] = old_matrix[:count]
        held[count:total] = added
        matrix[count:total] = rounded
        self._content = (held, matrix, total)

    def remove(self, keys: Collection[int]) -> None:
        """Remove these keys. Keys that are not in the tail are ignored."""
        held, matrix, count = self._content
        stays = ~np.isin(held[:count], np.fromiter(keys, dtype=np.int64, count=len(keys)))
        # New arrays: a running search keeps the old ones, and no removed vector stays in memory.
        left = int(np.count_nonzero(stays))
        if left < count:
            self._content = (held[:count][stays], matrix[:count][stays], left)

    def view(self, among: Keys | None = None) -> Nominated:
        """The present rows, or those of the ascending keys `among`. Later changes do not affect the result."""
        held, matrix, count = self._content
        rows = np.arange(count) if among is None else np.flatnonzero(is_among(held[:count], among))
        return Nominated(VectorRows(held, matrix), rows)


class VectorIndex:
    """Searches segments and a tail as one. A key may be in only one of them.

    An index copies nothing: making one takes microseconds for segments of any size. Raises `DamagedSegment` for a
    segment of other dimensions, another code version or another shape.
    """

    __slots__ = ("_fetch", "_last", "_limits", "_rows", "dimensions", "segments", "tail")

    def __init__(
        self,
        dimensions: int,
        segments: Sequence[Segment] = (),
        tail: VectorTail | None = None,
        *,
        limits: VectorLimits = DEFAULT_LIMITS,
        fetch: Callable[[Keys], Fetched] | None = None,
    ) -> None:
        if tail is not None and tail.dimensions != dimensions:
            raise WrongDimension(f"the tail has {tail.dimensions} dimensions, the index {dimensions}")
        for segment in segments:
            check_dimensions(segment, dimensions)
        self.dimensions = dimensions
        self.segments = tuple(segments)
        self.tail = tail
        self._rows = [vector_rows(segment) for segment in segments]
        self._limits = limits
        self._fetch = fetch
        self._last: tuple[tuple[tuple[int, ...], bytes], Query] | None = None

    def search(self, query: Array, limit: int, among: Keys | None = None) -> tuple[Keys, Doubles]:
        """Keys and cosines of the nearest vectors, best first, ties by ascending key.

        `among`, a sorted array, restricts the search to these keys and makes it exact. Otherwise the tail and small
        segments are searched exactly, and large segments by their codes, which finds at least 98 in 100 of the ten
        nearest vectors. If large segments have more than half a million rows, only the clusters nearest to the query
        are searched. Many keys in a segment without vectors are searched by their codes too. A score is always exact.
        A zero vector has the cosine 0 to every vector.
        """
        prepared, limit = self._prepared(query), _checked(limit)
        if among is not None:
            nominated = [Nominated(own, rows_among(own, among)) for own in self._rows]
            if self._fetch is not None:
                nominated = [
                    Nominated(own, nearest_among(own, rows, prepared, limit) if own.has_codes_only else rows)
                    for own, rows in nominated
                ]
        else:
            nominated = nominate(self._rows, prepared, limit, self._limits)
        if self._fetch is not None:
            nominated = completed(nominated, self._fetch)
        if self.tail is not None:
            nominated.append(self.tail.view(among))
        return best(nominated, prepared, limit)

    def score(self, query: Array, keys: Keys) -> tuple[Keys, Doubles]:
        """Those of these ascending keys that have a vector, in any order, and their exact cosines."""
        return cosines_of(self._chosen(keys), self._prepared(query))

    def __len__(self) -> int:
        """The number of vectors."""
        return sum(own.keys.size for own in self._rows) + (0 if self.tail is None else len(self.tail))

    def keys_between(self, start: int, stop: int) -> Keys:
        """The keys from one place up to another in the ascending order of all keys.

        The place is found by bisection, so that no more of a large segment is read than these keys.
        """
        held = [own.keys for own in self._rows if own.keys.size]
        if self.tail is not None and len(self.tail):
            held.append(np.sort(self.tail.keys))
        stop = min(stop, len(self))
        if start >= stop:
            return np.empty(0, dtype=np.int64)
        low, high = min(int(keys[0]) for keys in held), max(int(keys[-1]) for keys in held)
        while low < high:  # the least number up to which more than `start` keys lie is the first key
            middle = (low + high) // 2
            if sum(int(keys.searchsorted(middle, side="right")) for keys in held) > start:
                high = middle
            else:
                low = middle + 1
        count = stop - start
        parts = [keys[(first := int(keys.searchsorted(low))) : first + count] for keys in held]
        return np.sort(np.concatenate(parts))[:count]

    def vectors(self, keys: Keys) -> Fetched:
        """Those of these ascending keys that have a vector, and their vectors, both in ascending order."""
        chosen = [one for one in self._chosen(keys) if one.rows.size and not one.own.has_codes_only]
        found = np.concatenate([keys[:0], *(keys_of(own, rows) for own, rows in chosen)])
        none = np.empty((0, self.dimensions), dtype=np.float16)
        held = np.concatenate([none, *(own.vectors[rows] for own, rows in chosen)])
        order = found.argsort()
        return Fetched(found[order], held[order])

    def _chosen(self, keys: Keys) -> list[Nominated]:
        """The rows of these ascending keys, with the vectors that segments lack."""
        chosen = [Nominated(own, rows_among(own, keys)) for own in self._rows]
        if self._fetch is not None:
            chosen = completed(chosen, self._fetch)
        return chosen if self.tail is None else [*chosen, self.tail.view(keys)]

    def reading(self, fetch: Callable[[Keys], Fetched]) -> VectorIndex:
        """The same index; `fetch`, a function of ascending keys, reads the vectors that its segments lack."""
        if not any(own.has_codes_only for own in self._rows):
            return self
        return VectorIndex(self.dimensions, self.segments, self.tail, limits=self._limits, fetch=fetch)

    def _prepared(self, query: Array) -> Query:
        """The forms of a query. Keeps those of the last one, since a question is searched and then scored."""
        wanted = np.asarray(query, dtype=np.float64)
        values = wanted.shape, wanted.tobytes()
        last = self._last
        if last is None or last[0] != values:
            self._last = last = values, prepare_query(wanted, self.dimensions)
        return last[1]


def _checked(limit: int) -> int:
    if limit < 1:
        raise InvalidInput(f"a search needs a limit of at least 1, not {limit}")
    return limit
