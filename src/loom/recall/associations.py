"""Associations: the terms, names and speakers that link a few records to others of the store.

Records that share a rare term, a name or a rare speaker are neighbours in a graph. The text index is that graph, so
it is as durable and as bounded as the index, and forgets with it. This module chooses the terms to follow. The index
finds the records, and `propagation` weights them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from loom.index.analysis import speaker_marks
from loom.recall.model_names import ModelNames
from loom.storage.search_view import SearchView
from loom.text.entities import name_nodes
from loom.text.words import content_terms

__all__ = ["associated_terms"]

# A term in more than this share of the records, or in more than `_MANY`, links nothing. In a small store up to `_FEW`
# records may have it, but at most the share `_FEW_SHARE`.
_COMMON_SHARE, _MANY = 0.03, 1_000
_FEW, _FEW_SHARE = 8, 0.25
# The beginning of a text that is used.
_MOST_CHARS = 120
# The weights of a name and of a speaker; other terms have 1.0.
_NAME, _SPEAKER = 1.0, 0.5


def associated_terms(
    view: SearchView,
    best: Sequence[int],
    known: Collection[str],
    limit: int,
    names: ModelNames | None = None,
    *,
    names_only: bool = False,
) -> dict[str, float]:
    """Return the best terms and marks of these records to follow with their scores, 1.0 for the best.

    The score is the rarity of a term times the weight of the records with it, of which the first has most. Terms that
    are `known` (those of the question) and terms of no other record are left out. Names that a model read in the
    records are included. With `names_only`, only names are.
    """
    if not limit or not best:
        return {}
    records = view.records(best)
    read = {} if names is None else names.nodes(best)
    found: dict[str, float] = {}
    for place, record in ((place, records[key]) for place, key in enumerate(best) if key in records):
        text = record.content[:_MOST_CHARS]
        own = dict.fromkeys(() if names_only else content_terms(text), 1.0)
        own.update(dict.fromkeys(name_nodes(text, record.metadata), _NAME))
        own.update(dict.fromkeys(read.get(record.seq, ()), _NAME))
        own.update(dict.fromkeys(speaker_marks(record.name), _SPEAKER))
        part = 1.0 / (2.0 + place) / math.sqrt(len(own)) if own else 0.0
        for term, share in own.items():
            if term not in known:
                found[term] = found.get(term, 0.0) + share * part
    if not found:
        return {}
    terms, documents = list(found), view.text.documents
    frequencies = view.text.frequencies(terms) if names is None else names.frequencies(terms)
    common = max(min(_COMMON_SHARE * documents, _MANY), min(_FEW, _FEW_SHARE * documents))
    scored: list[tuple[float, str]] = []
    for term, frequency in zip(terms, frequencies, strict=True):
        if 2 <= frequency <= common:
            rarity = math.log(1.0 + (documents - frequency + 0.5) / (frequency + 0.5))
            scored.append((-found[term] * rarity, term))
    chosen = sorted(scored)[:limit]
    return {term: score / chosen[0][0] for score, term in chosen}
