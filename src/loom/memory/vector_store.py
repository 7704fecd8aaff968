"""Vectors by id, searched by cosine: the interface of a vector store, and one that lives in memory.

It holds ids, vectors and metadata, never the texts: a hit is looked up in the memory it came from. The durable
index of a store is a projection under `loom.storage`; this one serves small sets and tests, and is exact.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from loom.blas import one_thread
from loom.errors import InvalidInput, WrongDimension
from loom.models.embedders import EmbeddingProvider, Matrix, Vector

__all__ = ["EmbeddingProvider", "InMemoryVectorStore", "VectorHit", "VectorStoreProvider", "near_best"]

_NO_METADATA: Mapping[str, Any] = MappingProxyType({})

# Rows of one matrix product may differ in the last bits with their place in it. Whatever is this near the last
# hit is scored again, row by row in float64, so that the order depends on the vectors and ids alone.
_SCORE_NOISE = 1e-5


@dataclass(frozen=True, slots=True)
class VectorHit:
    """One result. `score` is the cosine, from -1 to 1, higher is nearer."""

    id: str
    score: float
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NO_METADATA)


@runtime_checkable
class VectorStoreProvider(Protocol):
    """A store of vectors. Synchronous; call a slow one from a thread.

    A `where` filter keeps what has every one of its keys with an equal value.
    """

    def add(self, record_id: str, vector: npt.ArrayLike, metadata: Mapping[str, Any] | None = None) -> None:
        """Keep a vector; one that is already there under this id is replaced."""

    def search(
        self, vector: npt.ArrayLike, limit: int = 10, where: Mapping[str, Any] | None = None
    ) -> list[VectorHit]:
        """The nearest, best first, ties by id."""

    def delete(self, record_id: str) -> bool:
        """Remove one; False where there was none."""

    def delete_by_metadata(self, where: Mapping[str, Any]) -> int:
        """Remove all that the filter keeps; how many there were."""

    def clear(self) -> None:
        """Remove all."""


class InMemoryVectorStore:
    """An exact store in memory, safe for several threads. The first vector sets the dimensions, unless given."""

    def __init__(self, dimensions: int | None = None) -> None:
        if dimensions is not None and dimensions < 1:
            raise InvalidInput(f"dimensions must be at least 1, not {dimensions}")
        self._given_dimensions = dimensions
        self._dimensions: int | None = None
        self._lock = threading.RLock()
        self.clear()

    @property
    def dimensions(self) -> int | None:
        """The length of every vector; None while the store is empty and nothing was given."""
        return self._dimensions

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, record_id: object) -> bool:
        return record_id in self._places

    def add(self, record_id: str, vector: npt.ArrayLike, metadata: Mapping[str, Any] | None = None) -> None:
        unit = _unit(vector)
        with self._lock:
            self._check(unit)
            place = self._places.get(record_id)
            if place is None:
                place = len(self._ids)
                self._make_room(place + 1, len(unit))
                self._ids.append(record_id)
                self._metadata.append(_NO_METADATA)
                self._places[record_id] = place
            self._rows[place] = unit
            self._metadata[place] = _frozen(metadata) if metadata else _NO_METADATA
            self._dimensions = len(unit)

    def search(
        self, vector: npt.ArrayLike, limit: int = 10, where: Mapping[str, Any] | None = None
    ) -> list[VectorHit]:
        if limit < 1:
            raise InvalidInput(f"limit must be at least 1, not {limit}")
        unit = _unit(vector)
        with self._lock:
            self._check(unit)
            places = self._matching(where) if where else np.arange(len(self._ids))
            if not len(places):
                return []
            rows = self._rows[places] if where else self._rows[: len(places)]
            with one_thread():
                products = rows @ unit
            near = near_best(products, limit)
            exact = (rows[near].astype(np.float64) * unit).sum(axis=1)
            found = [
                VectorHit(self._ids[place], float(score), _frozen(self._metadata[place]))
                for place, score in zip(places[near], np.clip(exact, -1.0, 1.0), strict=True)
            ]
        return sorted(found, key=lambda hit: (-hit.score, hit.id))[:limit]

    def delete(self, record_id: str) -> bool:
        with self._lock:
            place = self._places.pop(record_id, None)
            if place is None:
                return False
            last_id, last_metadata = self._ids.pop(), self._metadata.pop()
            last = len(self._ids)
            if place != last:
                self._ids[place] = last_id
                self._metadata[place] = last_metadata
                self._rows[place] = self._rows[last]
                self._places[last_id] = place
            self._rows[last] = 0  # what was deleted does not stay in memory
            return True

    def delete_by_metadata(self, where: Mapping[str, Any]) -> int:
        if not where:
            raise InvalidInput("an empty filter would delete everything; clear() does that")
        with self._lock:
            doomed = [self._ids[place] for place in self._matching(where)]
            for record_id in doomed:
                self.delete(record_id)
        return len(doomed)

    def clear(self) -> None:
        with self._lock:
            self._dimensions = self._given_dimensions
            self._ids: list[str] = []
            self._metadata: list[Mapping[str, Any]] = []
            self._places: dict[str, int] = {}
            self._rows: Matrix = np.zeros((0, self._dimensions or 0), dtype=np.float32)

    def _check(self, unit: Vector) -> None:
        if self._dimensions not in (None, len(unit)):
            raise WrongDimension(
                f"the vector has {len(unit)} dimensions and the store {self._dimensions}: "
                "they come from different models"
            )

    def _make_room(self, rows: int, dimensions: int) -> None:
        if rows > len(self._rows):
            grown = np.zeros((max(64, 2 * len(self._rows)), dimensions), dtype=np.float32)
            if len(self._rows):
                grown[: len(self._rows)] = self._rows
            self._rows = grown

    def _matching(self, where: Mapping[str, Any]) -> npt.NDArray[np.intp]:
        missing = object()
        kept = (
            place
            for place, metadata in enumerate(self._metadata)
            if all(metadata.get(key, missing) == value for key, value in where.items())
        )
        return np.fromiter(kept, dtype=np.intp)


def _frozen(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """A copy all the way down: neither the caller's later changes nor a reader's reach the store."""
    return MappingProxyType(copy.deepcopy(dict(metadata)))


def near_best(scores: Vector, limit: int) -> npt.NDArray[np.intp]:
    """The places of the `limit` best scores and of all that rounding could not tell from the last of them."""
    if len(scores) <= limit:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    return np.flatnonzero(scores >= least - _SCORE_NOISE)


def _unit(vector: npt.ArrayLike) -> Vector:
    try:
        with np.errstate(over="ignore"):  # becomes infinity, which is refused below
            values = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("a vector is a flat list of numbers") from None
    if values.ndim != 1 or not len(values):
        raise InvalidInput(f"a vector is a flat list of numbers, not of shape {values.shape}")
    length = float(np.sqrt(np.einsum("i,i->", values, values, dtype=np.float64)))
    if not np.isfinite(length) or length == 0:
        raise InvalidInput("a vector of zeros, or with NaN or infinity in it, has no direction")
    unit: Vector = (values / length).astype(np.float32)
    return unit
