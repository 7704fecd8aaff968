"""The names that a language model read in records, and what they add to a search.

They are in records of their own, derived from those that they were read in, and in the text index under marks of
their own. A search finds them first, and then the records that they were read in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loom.index.analysis import mapping
from loom.protocol import to_micros
from loom.storage.contract import Candidates, Filter
from loom.storage.sqlite.namespace_index import NamespaceIndex
from loom.storage.sqlite.rows import first_version, is_names, same_id
from loom.text.entities import UNNAMED_KINDS, named, names_in

__all__ = ["NamesRead", "as_array", "has_names", "with_names"]

# From records of names to what they were read in, and back, by the first versions of both. The other sources are
# turns before it.
_PAIR = "SELECT n.seq, n.metadata, r.seq, r.id, r.version FROM json_each(?) j"
_WITHDRAWN = "EXISTS (SELECT 1 FROM supersessions s WHERE s.record = n.seq)"
_HOLDS = f"WHERE {is_names('n')} AND n.committed_at <= ? AND NOT {_WITHDRAWN}"
_SOURCES_OF = (
    f"{_PAIR} CROSS JOIN records n ON n.seq = j.value CROSS JOIN edges e ON e.derived = {first_version('n')} "
    f"CROSS JOIN records f ON f.seq = e.source CROSS JOIN records r ON {same_id('r', 'f')} {_HOLDS}"
)
_NAMES_OF = (
    f"{_PAIR} CROSS JOIN records r ON r.seq = j.value CROSS JOIN edges e ON e.source = {first_version()} "
    f"CROSS JOIN records f ON f.seq = e.derived CROSS JOIN records n ON {same_id('n', 'f')} {_HOLDS}"
)
_ALWAYS = 2**62


class Names(NamedTuple):
    """A record of names, its names, and the record that a model read them in."""

    seq: int
    names: Mapping[str, str]
    source: int


class NamesRead:
    """What a model read in records, as far as it was known at the moment that the filter asks for."""

    def __init__(self, connection: sqlite3.Connection, wanted: Filter) -> None:
        self._connection = connection
        self._until = _ALWAYS if wanted.known_at is None else to_micros(wanted.known_at)

    def of(self, sources: Sequence[int]) -> list[Names]:
        """The names that were read in these records."""
        return self._read(_NAMES_OF, sources)

    def held_by(self, keys: Sequence[int]) -> list[Names]:
        """The names that these records hold."""
        return self._read(_SOURCES_OF, keys)

    def _read(self, query: str, keys: Sequence[int]) -> list[Names]:
        found: list[Names] = []
        for seq, metadata, source, id, version in self._connection.execute(query, (str([*keys]), self._until)):
            more = mapping(metadata)
            if (more.get("of"), more.get("version")) == (id, version):
                found.append(Names(seq, names_in(more), source))
        return found


def has_names(index: NamespaceIndex, wanted: Filter) -> bool:
    """Whether a model may have read names in what the filter admits."""
    kinds = {wanted.kind} if isinstance(wanted.kind, str) else {*(wanted.kind or ())}
    if not index.derived or wanted.derived or (kinds and kinds <= UNNAMED_KINDS):
        return False
    return index.text.frequencies([named()])[0] > 0


def as_array(keys: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.array([*keys], dtype=np.int64)


def with_names(
    index: NamespaceIndex,
    names: NamesRead,
    words: Mapping[str, float],
    links: Mapping[str, float],
    found: Candidates,
) -> Candidates:
    """The candidates with what the names that a model read add to the question's words, and to what they share."""
    held = sorted(names.of(found.keys.tolist()), key=lambda one: one.seq)
    if not held:
        return found
    keys, places = as_array(one.seq for one in held), found.keys.searchsorted([one.source for one in held])

    def read(query: Mapping[str, float], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What each term adds, at most what it would by standing there: a name is rarer among names than in texts."""
        table, own, _ = index.text.contributions({named(node): weight for node, weight in query.items()}, keys)
        spread = np.zeros((len(query), len(found.keys)))
        spread[:, places] = table * np.minimum(weights / own, 1.0)[:, np.newaxis]
        return spread

    linked = found.links
    if links:
        linked = np.maximum(linked, read(links, index.text.contributions(links, found.keys)[1]))
    by_source = {one.source: one.names for one in held}
    return replace(found, named=read(words, found.weights), links=linked, names=by_source)
