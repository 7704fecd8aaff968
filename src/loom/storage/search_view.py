"""The view that a backend offers for searching, and the plain searches by words and by meaning.

A `SearchView` has the indexes of `loom.index` and the records, on one snapshot. It ranks nothing: `loom.recall`
decides which records a question nominates and how they are scored. A store lends one with `Store.search`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from loom.index.doc_values import DocValues
from loom.index.text_index import TextIndex
from loom.index.vector_index import VectorIndex
from loom.storage.contract import Filter, Match, Record, Searches, Vector, check_limit

__all__ = [
    "Keys",
    "NamesRead",
    "Nominate",
    "Scores",
    "SearchView",
    "Searching",
    "best_admitted",
    "search_text",
    "search_vectors",
]


Keys = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Nominate = Callable[[int, Keys | None], tuple[Keys, Scores]]
"""The best records of an index, at most this many, with scores, best first; among these ascending keys, if given."""

# A filter that admits fewer records than this is scored exactly, record by record.
_EXACT_SUBSET = 50_000
# The first request allows for this many derived records for each other record.
_MOST_DERIVED = 6.0


class NamesRead(NamedTuple):
    """A record of names: its names with the words that refer to each, and the record in which a model read them."""

    seq: int
    names: Mapping[str, str]
    source: int


class SearchView(Protocol):
    """The indexes and the records of a namespace, on one snapshot. Valid only inside `Store.search`."""

    @property
    def text(self) -> TextIndex:
        """The terms of every record that is not forgotten, and for a moment those of some forgotten ones."""

    @property
    def vectors(self) -> VectorIndex | None:
        """The vectors of the space in which this process embeds; None if there is none."""

    @property
    def kept(self) -> dict[Hashable, Any]:
        """Results computed from the vectors and their records, kept for later searches of this process.

        It is emptied when a record is forgotten, and when other files or another space replace the vectors. Vectors
        that are added do not empty it.
        """

    @property
    def derived(self) -> int:
        """The approximate number of derived records."""

    def admitted(self, seqs: Sequence[int], wanted: Filter) -> set[int]:
        """The records among these that exist and that the filter admits."""

    def numbers(self, wanted: Filter, most: int) -> Keys | None:
        """The numbers of all records that the filter admits, ascending; None if there are more than `most`."""

    def doc_values(self, seqs: Sequence[int], wanted: Filter, known: Collection[int] = ()) -> dict[int, DocValues]:
        """The doc values of the records among these ascending numbers that the filter admits.

        The filter is known to admit those in `known`.
        """

    def beside(self, one: DocValues, wanted: Filter, limit: int, *, before: bool) -> list[DocValues]:
        """The records that were written before one in its session, or after it, nearest first, if the filter admits
        them. For a record without a session, those of all sessions and of none."""

    def mixed(self, seqs: Sequence[int], distance: int) -> set[tuple[int, int]]:
        """Pairs of one of these numbers and another one at most `distance` away that belong to two sessions with the
        same hash in their doc values. There are nearly always none."""

    def names_read(self, seqs: Sequence[int], known_at: datetime | None, *, held: bool = False) -> list[NamesRead]:
        """The names that a model read in these records, or that these records of names have, as known at a moment."""

    def replacements(
        self, seqs: Sequence[int], as_of: datetime | None, known_at: datetime | None
    ) -> list[tuple[int, int]]:
        """Pairs of a record and its replacement, ascending, as of a moment and as known at another.

        Each of these records, and each record that was derived from one of them at the same moment, is paired with
        the records that it replaced and with its own replacement that is now current.
        """

    def records(self, seqs: Sequence[int]) -> dict[int, Record]:
        """Records by their numbers; those that do not exist are missing."""

    def uses(self, seqs: Sequence[int], node: str) -> dict[int, int]:
        """The number of uses of these records by a node; records that were never used are missing."""


Searching = Searches
"""The part of a `Store` that searches."""


def search_text(store: Searching, query: Mapping[str, float], limit: int, wanted: Filter) -> list[Match]:
    """The best records by their words (BM25), among those the filter admits."""
    if not query:
        return []
    return store.search(lambda view: _matches(view, limit, wanted, partial(view.text.search, query)))


def search_vectors(store: Searching, query: Vector, limit: int, wanted: Filter) -> list[Match]:
    """The best records by cosine similarity, among those the filter admits and that are embedded."""

    def ask(view: SearchView) -> list[Match]:
        vectors = view.vectors
        return [] if vectors is None else _matches(view, limit, wanted, partial(vectors.search, query))

    return store.search(ask)


def _matches(view: SearchView, limit: int, wanted: Filter, nominate: Nominate) -> list[Match]:
    check_limit(limit)
    return [Match(key, score) for key, score in best_admitted(view, limit, wanted, nominate).items()]


def best_admitted(
    view: SearchView, limit: int, wanted: Filter, nominate: Nominate, passed: dict[int, float] | None = None
) -> dict[int, float]:
    """The best of an index that the filter admits, with their scores, best first.

    If the filter excludes only derived and older records, these are added to `passed`.
    """
    # The filter usually admits most of the found records: ask for a few more, and keep the admitted ones.
    count = limit + 8
    if wanted.derived is False and view.derived:
        # A derived record has the words of its source and, being shorter, ranks before it. Asking once more, for
        # eight times as many, took five times as long with four facts to ten records.
        others = max(1, view.text.documents - view.derived)
        count += int(limit * min(_MOST_DERIVED, 2 * view.derived / others))
    keys, scores = nominate(count, None)
    found = list(zip(keys.tolist(), scores.tolist(), strict=True))
    kept = view.admitted(keys.tolist(), wanted)
    if passed is not None and not wanted.narrows and len(kept) < len(found):
        passed.update(pair for pair in found if pair[0] not in kept)
    if len(kept) < limit and len(found) >= count:
        found = _search_further(view, limit, wanted, nominate)
    elif len(kept) < len(found):
        found = [pair for pair in found if pair[0] in kept]
    return dict(found[:limit])


def _search_further(view: SearchView, limit: int, wanted: Filter, nominate: Nominate) -> list[tuple[int, float]]:
    """The filter admits few: search exactly among those or, if they are many, search deeper and deeper."""
    among = view.numbers(wanted, _EXACT_SUBSET) if wanted.narrows else None
    count = limit
    while True:
        count *= 8
        keys, scores = nominate(count if among is None else limit, among)
        found = list(zip(keys.tolist(), scores.tolist(), strict=True))
        if among is not None:
            return found
        kept = view.admitted(keys.tolist(), wanted)
        if len(kept) >= limit or len(found) < count:
            return [pair for pair in found if pair[0] in kept]
