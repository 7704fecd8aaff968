"""Searching: candidates from the indexes of this process, and which of them a filter admits.

The index is brought up to the snapshot that the filter is asked on. One whose files are missing or damaged is
rebuilt from the records by the way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from loom.errors import CorruptStore, InvalidInput, WrongDimension
from loom.storage.base import Candidates, Filter, Match, Vector
from loom.storage.engine import Engine
from loom.storage.filters import conditions
from loom.storage.projections import SPOKEN, TEXT, VECTORS, NamespaceIndex, StaleProjection, read_state
from loom.storage.segments import DamagedSegment
from loom.storage.upkeep import Upkeep
from loom.storage.vector_index import VectorIndex
from loom.storage.words import spoken, terms
from loom.storage.worker import LeaseLost

__all__ = ["Searcher", "check_limit"]

Answer = TypeVar("Answer")

# A filter that admits fewer records than this is scored exactly, record by record.
_EXACT_SUBSET = 50_000

_Nominated = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
_Nominate = Callable[[sqlite3.Connection, NamespaceIndex, int, "npt.NDArray[np.int64] | None"], _Nominated]


class Searcher:
    """Search over one namespace."""

    def __init__(self, engine: Engine, upkeep: Upkeep) -> None:
        self._engine = engine
        self._upkeep = upkeep
        self._number = upkeep.namespace

    def search_text(self, query: Mapping[str, float], limit: int, wanted: Filter) -> list[Match]:
        return self._search(limit, wanted, self._by_words(query)) if query else []

    def search_vectors(self, query: Vector, limit: int, wanted: Filter) -> list[Match]:
        return self._search(limit, wanted, self._by_meaning(query))

    def _by_words(
        self, query: Mapping[str, float], others: Collection[int] = (), scores: dict[int, float] | None = None
    ) -> _Nominate:
        """Nominates by words, and writes the scores of `others` into `scores` by the way: half the cost of asking."""

        def nominate(
            connection: sqlite3.Connection, index: NamespaceIndex, count: int, among: npt.NDArray[np.int64] | None
        ) -> _Nominated:
            terms_of = partial(_terms_of, connection)
            if scores is None or not others or among is not None:
                return index.text.search(query, count, among=among, terms_of=terms_of)
            keys = np.array(sorted(others), dtype=np.int64)
            best, best_scores, theirs = index.text.search_and_score(query, count, keys, terms_of=terms_of)
            scores.update(zip(keys.tolist(), theirs.tolist(), strict=True))
            return best, best_scores

        return nominate

    def _by_meaning(self, query: Vector) -> _Nominate:
        def nominate(
            connection: sqlite3.Connection, index: NamespaceIndex, count: int, among: npt.NDArray[np.int64] | None
        ) -> _Nominated:
            vectors = self._vectors_for(index, query)
            if vectors is None:
                return np.empty(0, dtype=np.int64), np.empty(0)
            return vectors.search(query, count, among=among)

        return nominate

    def _vectors_for(self, index: NamespaceIndex, query: Vector) -> VectorIndex | None:
        """The vectors that a query can be compared with; None where they are of another space than it."""
        if index.vectors is None or index.space != self._upkeep.space:
            return None
        if len(query) != index.vectors.dimensions:
            raise WrongDimension(
                f"the query vector has {len(query)} dimensions; this store holds {index.vectors.dimensions}"
            )
        return index.vectors

    def candidates(
        self, query: Mapping[str, float], vector: Vector | None, limit: int, vector_limit: int, wanted: Filter
    ) -> Candidates:
        """The best by words and the best by meaning, each scored by both, all on one snapshot."""
        return self._answer(lambda: self._candidates(query, vector, limit, vector_limit, wanted))

    def _candidates(
        self, query: Mapping[str, float], vector: Vector | None, limit: int, vector_limit: int, wanted: Filter
    ) -> Candidates:
        with self._fresh_index() as (connection, index):
            if vector is None:
                by_words = self._admitted(connection, index, limit, wanted, self._by_words(query)) if query else {}
                return Candidates(by_words, {}, 0.0)
            by_meaning = self._admitted(connection, index, vector_limit, wanted, self._by_meaning(vector))
            worded: dict[int, float] = {}
            nominate = self._by_words(query, by_meaning, worded)
            by_words = self._admitted(connection, index, limit, wanted, nominate) if query else {}
            unmeant = np.array(sorted(by_words.keys() - by_meaning.keys()), dtype=np.int64)
            if len(unmeant) and (vectors := self._vectors_for(index, vector)) is not None:
                keys, scores = vectors.score(vector, unmeant)
                by_meaning |= dict(zip(keys.tolist(), scores.tolist(), strict=True))
            if len(by_words) >= limit:  # else words have found all that share one
                by_words = worded | by_words
            return Candidates(by_words, by_meaning, index.text.ceiling(query) if query else 0.0)

    def _search(self, limit: int, wanted: Filter, nominate: _Nominate) -> list[Match]:
        def ask() -> dict[int, float]:
            with self._fresh_index() as (connection, index):
                return self._admitted(connection, index, limit, wanted, nominate)

        return [Match(key, score) for key, score in self._answer(ask).items()]

    def _answer(self, ask: Callable[[], Answer]) -> Answer:
        """Ask; where a segment turns out to be damaged inside, make the indexes again and ask once more."""
        try:
            return ask()
        except DamagedSegment:
            for kind in (TEXT, VECTORS):
                with self._engine.read() as connection:
                    generation = read_state(connection, self._number, kind).generation
                self._repair(StaleProjection(kind, generation))
            return ask()

    def _admitted(
        self, connection: sqlite3.Connection, index: NamespaceIndex, limit: int, wanted: Filter, nominate: _Nominate
    ) -> dict[int, float]:
        """The best of an index that the filter admits, with their scores, best first."""
        check_limit(limit)
        # Mostly the filter admits most of what is found: ask for a few more, and see who may stay.
        count = limit + 8
        if wanted.derived is False and _any_derived(connection):
            count += limit  # what was drawn from a record is found by the same words
        keys, scores = nominate(connection, index, count, None)
        if not wanted.narrows:
            gone = _kept_out(connection, keys, wanted.derived is False)
            if not gone:  # mostly
                return dict(zip(keys[:limit].tolist(), scores[:limit].tolist(), strict=True))
            kept = set(keys.tolist()) - gone
        else:
            kept = _admitted(connection, keys, *conditions(wanted, self._number, connection))
        if len(kept) < limit and len(keys) >= count:
            keys, scores, kept = self._search_further(connection, index, limit, wanted, nominate)
        pairs = zip(keys.tolist(), scores.tolist(), strict=True)
        return dict([pair for pair in pairs if pair[0] in kept][:limit])

    def _search_further(
        self, connection: sqlite3.Connection, index: NamespaceIndex, limit: int, wanted: Filter, nominate: _Nominate
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], set[int]]:
        """The filter admits few: search exactly among those, or, where they are many, ever deeper."""
        where, values = conditions(wanted, self._number, connection)
        among = _subset(connection, where, values, _EXACT_SUBSET)
        if among is not None:
            keys, scores = nominate(connection, index, limit, among)
            return keys, scores, set(keys.tolist())
        count = limit
        while True:
            count *= 8
            keys, scores = nominate(connection, index, count, None)
            kept = _admitted(connection, keys, where, values)
            if len(kept) >= limit or len(keys) < count:
                return keys, scores, kept

    @contextmanager
    def _fresh_index(self) -> Iterator[tuple[sqlite3.Connection, NamespaceIndex]]:
        """The index of this process, brought up to a snapshot; repairs a projection that is damaged."""
        own = self._upkeep
        for _ in range(100):
            with self._engine.read() as connection, own.index.lock:
                try:
                    own.index.refresh(connection)
                except StaleProjection as stale:
                    damage = stale
                else:
                    yield connection, own.index
                    return
            self._repair(damage)
        raise CorruptStore("the index of this store cannot be rebuilt; run check()")

    def _repair(self, damage: StaleProjection) -> None:
        """Rebuild a projection whose files are missing or damaged, unless it has changed meanwhile.

        Mostly it has: another process merged some segments after this one looked.
        """
        with self._engine.read() as connection:
            if read_state(connection, self._number, damage.kind).generation != damage.generation:
                return
        if self._engine.read_only:
            self._upkeep.index.rely_on_records(damage.kind, damage.generation)
        else:
            self.rebuild(damage.kind, damage.generation)

    def rebuild(self, kind: str, generation: int | None = None) -> None:
        """Make a projection again from the records; with `generation`, only if it is still that one."""
        own = self._upkeep
        with own.worker.lease(wait_s=60.0) as fence:
            if fence is None:
                return
            projector = own.projector(fence)
            try:
                if projector.reset(kind, generation):
                    while projector.due(kind):
                        projector.extend(kind)
            except (LeaseLost, StaleProjection):
                return  # somebody else is at it: the caller looks again


def check_limit(limit: int) -> None:
    if not isinstance(limit, int) or not 1 <= limit < 2**31:
        raise InvalidInput(f"limit is {limit!r}; it must be a whole number of 1 or more")


def _terms_of(connection: sqlite3.Connection, keys: Sequence[int]) -> list[list[str]]:
    """The terms of these records as the index was given them; none for one that is gone."""
    found: dict[int, list[str]] = {}
    for start in range(0, len(keys), 500):
        part = keys[start : start + 500]
        marks = ", ".join("?" * len(part))
        for key, name, content in connection.execute(f"{SPOKEN} WHERE r.seq IN ({marks}) AND r.version > 0", part):
            found[key] = terms(spoken(name, content))
    return [found.get(key, []) for key in keys]


def _any_derived(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM derivations LIMIT 1").fetchone() is not None


def _kept_out(connection: sqlite3.Connection, keys: npt.NDArray[np.int64], derived: bool) -> set[int]:
    """Which of the nominated have a newer version, or are derived: all that can keep one out without a filter."""
    tables = ("supersessions", "derivations") if derived else ("supersessions",)
    found: set[int] = set()
    wanted = keys.tolist()
    for start in range(0, len(wanted), 500):
        part = wanted[start : start + 500]
        marks = ", ".join("?" * len(part))
        for table in tables:
            query = f"SELECT record FROM {table} WHERE record IN ({marks})"
            found.update(row[0] for row in connection.execute(query, part))
    return found


def _admitted(connection: sqlite3.Connection, keys: npt.NDArray[np.int64], where: str, values: list[Any]) -> set[int]:
    """Which of the nominated records the filter admits."""
    kept: set[int] = set()
    wanted = keys.tolist()
    for start in range(0, len(wanted), 500):
        part = wanted[start : start + 500]
        marks = ", ".join("?" * len(part))
        kept.update(
            row[0]
            for row in connection.execute(
                f"SELECT r.seq FROM records r WHERE r.seq IN ({marks}) AND {where}", (*part, *values)
            )
        )
    return kept


def _subset(connection: sqlite3.Connection, where: str, values: list[Any], most: int) -> npt.NDArray[np.int64] | None:
    """The numbers of all records the filter admits, in order; None where there are more than `most`."""
    rows = connection.execute(f"SELECT r.seq FROM records r WHERE {where} LIMIT ?", (*values, most + 1)).fetchall()
    if len(rows) > most:
        return None
    return np.sort(np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows)))
