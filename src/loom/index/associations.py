"""Associations: the terms, names and speakers that tie a few records to others of the store.

Memories that share a rare term are neighbours in a graph: memory, term, memory. So are those that share a name, or a
speaker who says little. The graph is the text index itself, so it is as persistent, as incremental and as bounded as
that, and forgets with it. Here is the choice of the nodes to follow; which records hold them is the index's to say,
and what that is worth `loom.recall.propagation`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from loom.text.entities import name_nodes
from loom.text.words import content_terms

__all__ = ["Source", "associated_terms"]

# A term in more than this share of all records ties nothing to anything, nor does one in so many of a large store; in
# a small store, a few may share one.
_COMMON_SHARE, _MANY = 0.03, 1_000
_FEW, _FEW_SHARE = 8, 0.25
# Of a long text the beginning must do.
_MOST_CHARS = 120
# What a name weighs beside another term, and a speaker.
_NAME, _SPEAKER = 1.0, 0.5


class Source(NamedTuple):
    """A record that others may be tied to: its text, the marks of its speaker, its metadata, what it weighs, and the
    nodes of names that a model read in it."""

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
    """The terms and marks of these records that lead to others best, 1 for the best of them.

    A term counts by how rare it is and by the weight of the texts that hold it. Those `known` (the question's
    own) and those that stand nowhere else lead nowhere. With `names_only`, only what they name counts.
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
