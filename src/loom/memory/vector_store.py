"""Vectors by id, searched by cosine: the interface of a vector store, and one in memory.

It holds ids, vectors and metadata, never texts: a hit is looked up in its memory. The durable index of a store is a
projection under `loom.storage`. The store here is exact and serves small sets and tests.
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

from loom.checks import checked_mapping, checked_text, checked_whole
from loom.errors import InvalidInput, WrongDimension
from loom.models.embedders import EmbeddingProvider, Vector

__all__ = ["EmbeddingProvider", "InMemoryVectorStore", "VectorHit", "VectorStoreProvider"]

_NO_METADATA: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class VectorHit:
    """A result. `score` is the cosine, from -1 to 1, higher is nearer."""

    id: str
    score: float
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NO_METADATA)


@runtime_checkable
class VectorStoreProvider(Protocol):
    """A store of vectors. Synchronous; call a slow one from a thread.

    A `where` filter selects the entries that have all of its keys with equal values.
    """

    def add(self, record_id: str, vector: npt.ArrayLike, metadata: Mapping[str, Any] | None = None) -> None:
        """Store a vector; replace the one with the same id."""

    def search(
        self, vector: npt.ArrayLike, limit: int = 10, where: Mapping[str, Any] | None = None
    ) -> list[VectorHit]:
        """The nearest vectors, best first, ties by id."""

    def delete(self, record_id: str) -> bool:
        """Remove a vector. False if there is none."""

    def delete_by_metadata(self, where: Mapping[str, Any]) -> int:
        """Remove the vectors that the filter selects. Returns their number."""

    def clear(self) -> None:
        """Remove all vectors."""


class InMemoryVectorStore:
    """An exact store in memory, safe for several threads. The first vector sets the dimensions, unless given.

    `dimensions` is the length of every vector; None while the store is empty and nothing was given.
    """

    def __init__(self, dimensions: int | None = None) -> None:
        self._given_dimensions = None if dimensions is None else checked_whole(dimensions, "dimensions", 1)
        self.dimensions: int | None = None
        self._lock = threading.RLock()
        self.clear()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, record_id: object) -> bool:
        return record_id in self._held

    def add(self, record_id: str, vector: npt.ArrayLike, metadata: Mapping[str, Any] | None = None) -> None:
        checked_text(record_id, "the id of a vector")
        unit = _unit(vector)
        with self._lock:
            self._check(unit)
            self._held[record_id] = (unit, _frozen({} if metadata is None else metadata))
            self.dimensions = len(unit)

    def search(
        self, vector: npt.ArrayLike, limit: int = 10, where: Mapping[str, Any] | None = None
    ) -> list[VectorHit]:
        checked_whole(limit, "limit", 1)
        unit = _unit(vector)
        with self._lock:
            self._check(unit)
            ids = self._matching({} if where is None else where)
            # Row by row in float64, so that the order depends only on the vectors and ids.
            rows = np.array([self._held[id][0] for id in ids], dtype=np.float64).reshape(len(ids), len(unit))
            scores = np.clip((rows * unit).sum(axis=1), -1.0, 1.0).tolist()
            best = sorted(zip(ids, scores, strict=True), key=lambda hit: (-hit[1], hit[0]))[:limit]
            return [VectorHit(id, score, _frozen(self._held[id][1])) for id, score in best]

    def delete(self, record_id: str) -> bool:
        checked_text(record_id, "the id of a vector")
        with self._lock:
            return self._held.pop(record_id, None) is not None

    def delete_by_metadata(self, where: Mapping[str, Any]) -> int:
        if not where:
            raise InvalidInput("an empty filter would delete everything; clear() does that")
        with self._lock:
            return sum(self.delete(id) for id in self._matching(where))

    def clear(self) -> None:
        with self._lock:
            self.dimensions = self._given_dimensions
            self._held: dict[str, tuple[Vector, Mapping[str, Any]]] = {}

    def _check(self, unit: Vector) -> None:
        if self.dimensions not in (None, len(unit)):
            raise WrongDimension(
                f"the vector has {len(unit)} dimensions and the store {self.dimensions}: "
                "they come from different models"
            )

    def _matching(self, where: Mapping[str, Any]) -> list[str]:
        checked_mapping(where, "where")
        missing = object()
        return [
            id
            for id, (_, metadata) in self._held.items()
            if all(metadata.get(key, missing) == value for key, value in where.items())
        ]


def _frozen(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """A deep copy: later changes by the caller or a reader do not reach the store."""
    return MappingProxyType(copy.deepcopy(dict(checked_mapping(metadata, "metadata"))))


def _unit(vector: npt.ArrayLike) -> Vector:
    try:
        with np.errstate(over="ignore"):  # overflow becomes infinity, which is refused below
            values = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("a vector must be a flat list of numbers") from None
    if values.ndim != 1 or not len(values):
        raise InvalidInput(f"a vector must be a flat list of numbers, not of shape {values.shape}")
    length = float(np.sqrt(np.einsum("i,i->", values, values, dtype=np.float64)))
    if not np.isfinite(length) or length == 0:
        raise InvalidInput("a vector of zeros, or with NaN or infinity in it, has no direction")
    unit: Vector = (values / length).astype(np.float32)
    return unit
