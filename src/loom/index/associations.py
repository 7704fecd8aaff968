"""Associations: the terms, names and speakers that link a few records to others of the store.

Records that share a rare term, a name or a rare speaker are neighbours in a graph: record, term, record. The graph is
the text index itself, so it is as persistent and as bounded as the index, and forgets with it. This module chooses
the terms to follow. The index finds the records that have them, and `loom.recall.propagation` weights these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from loom.text.entities import name_nodes
from loom.text.words import content_terms

__all__ = ["Source", "associated_terms"]

# A term in more than this share of the records links nothing, nor does one in more than `_MANY` records. In a small
# store up to `_FEW` records may have it, but no larger share than `_FEW_SHARE`.
_COMMON_SHARE, _MANY = 0.03, 1_000
_FEW, _FEW_SHARE = 8, 0.25
# The beginning of a text that is used.
_MOST_CHARS = 120
# The weights of a name and of a speaker; other terms have 1.0.
_NAME, _SPEAKER = 1.0, 0.5


class Source(NamedTuple):
    """A record that others may be linked to: its text, the marks of its speaker, its metadata and its weight.

    `names` are the nodes of the names that a model read in it.
    """

    text: str
    speakers: Sequence[str]
    metadata: Mapping[str, Any]
    weight: float
    names: Sequence[str] = ()


def associated_terms(
    sources: Sequence[Source],
    known: Collection[str],
    frequencies: Callable[[Sequence[str]], Sequence[int]],
    documents: int,
    limit: int,
    *,
    names_only: bool = False,
) -> dict[str, float]:
    """The best terms and marks of these records to follow, with their scores, 1.0 for the best.

    A term scores by its rarity and by the weight of the records that have it. Terms that are `known` (those of the
    question) and terms of no other record are left out. With `names_only`, only names count.
    """
    found: dict[str, float] = {}
    for source in sources:
        text = source.text[:_MOST_CHARS]
        own = dict.fromkeys(() if names_only else content_terms(text), 1.0)
        own.update(dict.fromkeys(name_nodes(text, source.metadata), _NAME))
        own.update(dict.fromkeys(source.names, _NAME))
        own.update(dict.fromkeys(source.speakers, _SPEAKER))
        part = source.weight / math.sqrt(len(own)) if own else 0.0
        for term, share in own.items():
            if term not in known:
                found[term] = found.get(term, 0.0) + share * part
    names = list(found)
    common = max(min(_COMMON_SHARE * documents, _MANY), min(_FEW, _FEW_SHARE * documents))
    scored: list[tuple[float, str]] = []
    for name, frequency in zip(names, frequencies(names) if names else (), strict=True):
        if 2 <= frequency <= common:
            rarity = math.log(1.0 + (documents - frequency + 0.5) / (frequency + 0.5))
            scored.append((-found[name] * rarity, name))
    best = sorted(scored)[:limit]
    return {name: score / best[0][0] for score, name in best}
