"""The names that a language model found in records, as a search uses them.

The names are stored in derived records, and in the text index under separate marks. A search finds these records
first, and then their sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from loom.storage.contract import Filter
from loom.storage.search_view import NamesRead, SearchView
from loom.text.entities import UNNAMED_KINDS, named, nodes_of_name

__all__ = ["ModelNames", "model_names"]

Keys = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def model_names(view: SearchView, wanted: Filter) -> ModelNames | None:
    """Return the names read in the records that the filter admits, or None if there are none."""
    kinds = {wanted.kind} if isinstance(wanted.kind, str) else {*(wanted.kind or ())}
    if not view.derived or wanted.derived or (kinds and kinds <= UNNAMED_KINDS):
        return None
    return ModelNames(view, wanted) if view.text.frequencies([named()])[0] > 0 else None


class ModelNames:
    """The names that a model read in records, as known at the time of the filter."""

    def __init__(self, view: SearchView, wanted: Filter) -> None:
        self._view = view
        self._known_at = wanted.known_at

    def search(self, query: Mapping[str, float], count: int, among: Keys | None) -> tuple[Keys, Floats]:
        """Return the records whose names match best. The records of names stand for their sources."""
        if among is not None:
            among = np.unique(_keys(one.seq for one in self._of(among.tolist())))
        keys, scores = self._view.text.search(_named(query), count, among=among)
        sources = {one.seq: one.source for one in self._view.names_read(keys.tolist(), self._known_at, held=True)}
        here = [place for place, key in enumerate(keys.tolist()) if key in sources]
        return _keys(sources[int(keys[place])] for place in here), scores[here]

    def nodes(self, sources: Sequence[int]) -> dict[int, list[str]]:
        """Return the nodes of the names read in these records, by record."""
        return {one.source: [node for name in one.names for node in nodes_of_name(name)] for one in self._of(sources)}

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """Return for each name the number of records that contain it or in which a model read it."""
        count = self._view.text.frequencies
        return [sum(both) for both in zip(count(terms), count([*map(named, terms)]), strict=True)]

    def held_by(self, keys: Keys) -> list[NamesRead]:
        """Return the names read in these ascending records, in the order of writing."""
        return sorted(self._of(keys.tolist()), key=lambda one: one.seq)

    def contributions(
        self, query: Mapping[str, float], weights: Floats, held: Sequence[NamesRead], keys: Keys
    ) -> Floats:
        """Return the contribution of each term to each of these ascending records by names.

        It is at most that of a word in the text, although a name is rarer among names than in texts.
        """
        table, own, _ = self._view.text.contributions(_named(query), _keys(one.seq for one in held))
        spread = np.zeros((len(query), len(keys)))
        places = keys.searchsorted([one.source for one in held])
        spread[:, places] = table * np.minimum(weights / own, 1.0)[:, np.newaxis]
        return spread

    def _of(self, sources: Sequence[int]) -> list[NamesRead]:
        return self._view.names_read(sources, self._known_at)


def _named(query: Mapping[str, float]) -> dict[str, float]:
    return {named(node): weight for node, weight in query.items()}


def _keys(keys: Iterable[int]) -> Keys:
    return np.array([*keys], dtype=np.int64)
