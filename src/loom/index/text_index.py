"""The text index: BM25 over immutable segments and an in-memory tail, searched as one corpus.

Other packages import this module. Its parts are `text_segments.py` (files), `text_tail.py` (the tail),
`text_postings.py` (reading) and `text_scoring.py` (scores). How text becomes terms is decided in `analysis.py`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loom.errors import InvalidInput
from loom.index.doc_values import DocValues
from loom.index.segments import DamagedSegment, Segment
from loom.index.text_postings import Keys, Numbers, Scores, SegmentPostings
from loom.index.text_scoring import DEFAULT_LIMITS, K1, SILENT, B, QueryPlan, TextLimits
from loom.index.text_segments import build, merge, term_hash, verify, without
from loom.index.text_segments import checked_arrays as check
from loom.index.text_tail import TextTail

__all__ = [
    "K1",
    "SILENT",
    "B",
    "TextIndex",
    "TextLimits",
    "TextTail",
    "build",
    "check",
    "merge",
    "term_hash",
    "verify",
    "without",
]

# The most document frequencies that are cached: queries repeat the synonyms of their terms.
_MOST_COUNTED = 16_384
_DAMAGE = "a text segment points outside of its own arrays: the index must be rebuilt"


class TextIndex:
    """Searches the segments and the tail as one corpus. A key may be in only one of them.

    A search is exact, full BM25 if one of these conditions holds:

    - `among` is given;
    - the index has at most `exact_documents` documents;
    - the posting lists of the query's terms together have at most `postings_budget` entries.

    Otherwise the search reads the terms in descending order of weight (the weight in the query, times the idf) until
    the next one does not fit into the budget. Of that one it reads the postings of the newest documents (the highest
    keys) that still fit. These postings select the best `shortlist` documents, or `limit` if that is more; ties go to
    the newest. All terms score the selected documents, and the best of them are the result. Their scores are exact
    full BM25 too. The result may lack documents that have none of the heavier terms, or that the heavier terms rank
    below the shortlist. It depends on the documents only, not on their division between segments and tail.

    Each thread that searches keeps a buffer of about ten bytes per document. The first search of a large index reads
    two or three pages for each term and segment, the postings within the budget (six bytes each), and a page or two
    for each document of the shortlist and each term that was not read.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        tail: TextTail | None = None,
        *,
        limits: TextLimits = DEFAULT_LIMITS,
    ) -> None:
        if limits.postings_budget < 1:
            raise InvalidInput(f"the budget must allow at least one posting, not {limits.postings_budget}")
        total = max(1, sum(segment.header["count"] for segment in segments))
        self.segments = [
            SegmentPostings(
                segment,
                limits.bitmap_bytes * segment.header["count"] // total,
                common_share=limits.common_share,
                fewest_bitmaps=limits.fewest_bitmaps,
            )
            for segment in segments
        ]
        self._tail = TextTail() if tail is None else tail
        self._limits = limits
        self._segment_documents = sum(source.count for source in self.segments)
        self._segment_length = sum(source.total_length for source in self.segments)
        self._plans: dict[tuple[Any, ...], QueryPlan] = {}
        self._counted: dict[str, int] = {}  # the frequencies in the segments, which never change

    @property
    def documents(self) -> int:
        """The number of documents."""
        return self._segment_documents + len(self._tail)

    @property
    def total_length(self) -> int:
        """The number of terms of all documents."""
        return self._segment_length + self._tail.total_length

    def search(
        self,
        query: Mapping[str, float],
        limit: int,
        among: Keys | None = None,
        k1: float = K1,
        b: float = B,
    ) -> tuple[Keys, Scores]:
        """Keys and scores of the documents that match best, best first, ties by ascending key.

        `query` maps each term to its weight, which is at least `SILENT`. `among` restricts the search to these keys,
        in ascending order; the statistics remain those of all documents. A document with none of the terms is never
        found.
        """
        if among is not None and not (among[1:] > among[:-1]).all():
            raise InvalidInput("the keys to search among must be in ascending order, each once")
        if limit < 0:
            raise InvalidInput(f"limit must not be negative, not {limit}")
        try:
            plan = self._plan(query, k1, b)
            if not plan.terms or not limit:
                return np.empty(0, dtype=np.int64), np.empty(0)
            return plan.search(limit) if among is None else plan.search_among(limit, among)
        except IndexError as error:
            raise DamagedSegment(_DAMAGE) from error

    def score(self, query: Mapping[str, float], keys: Keys, k1: float = K1, b: float = B) -> Scores:
        """The exact score of each of these keys, in their order; 0.0 for a key that matches nothing."""
        distinct, places = np.unique(keys, return_inverse=True)
        scores = np.zeros(len(distinct))
        try:
            plan = self._plan(query, k1, b)
            numbers, here = plan.find(distinct)
            scores[here] = plan.scores(numbers)
        except IndexError as error:
            raise DamagedSegment(_DAMAGE) from error
        return scores[places]

    def contributions(
        self, query: Mapping[str, float], keys: Keys, k1: float = K1, b: float = B
    ) -> tuple[Scores, Scores, Numbers]:
        """The contribution of each query term to the score of each of these ascending keys: a row for each term.

        Also returns, for each term, its contribution to a document of average length that has it once, and the number
        of documents that have it. Rows and terms are in the order of the query.
        """
        try:
            plan = self._plan(query, k1, b)
            numbers, places = plan.find(keys)
            table = plan.contributions(numbers)
        except IndexError as error:
            raise DamagedSegment(_DAMAGE) from error
        if len(places) < len(keys) or np.count_nonzero(places[1:] <= places[:-1]):  # rare
            # Add instead of assigning: a key that moved from the tail to a segment still has a number in the tail,
            # where it contributes nothing.
            found, table = table, np.zeros((len(query), len(keys)))
            np.add.at(table.T, places, found.T)
        return table, np.array(plan.weights), np.array(plan.frequencies, dtype=np.intp)

    def doc_values(self, numbers: Sequence[int]) -> tuple[dict[int, DocValues], list[int]]:
        """The doc values that segments hold for these ascending keys, and the keys they hold without doc values."""
        known: dict[int, DocValues] = {}
        left: list[int] = []
        for source in self.segments:
            first, last = bisect_left(numbers, source.first_key), bisect_right(numbers, source.last_key)
            if first < last:
                found, others = source.doc_values.find(numbers[first:last])
                known |= found
                left += others
        return known, left

    def frequencies(self, names: Sequence[str]) -> list[int]:
        """The number of documents that have each of these terms."""
        counted = self._counted
        if len(counted) > _MOST_COUNTED:
            counted.clear()
        unknown = [name for name in names if name not in counted]
        if unknown:
            found = [0] * len(unknown)
            hashes = [term_hash(name) for name in unknown]
            for source in self.segments:
                for place, first, last in source.find_terms(hashes):
                    found[place] += last - first
            counted.update(zip(unknown, found, strict=True))
        tail = self._tail.frequencies([term_hash(name) for name in names]) if len(self._tail) else [0] * len(names)
        return [counted.get(name, 0) + more for name, more in zip(names, tail, strict=True)]

    def _plan(self, query: Mapping[str, float], k1: float, b: float) -> QueryPlan:
        """The plan of a query. Keeps the last two: a question is searched and then scored, and so are its links."""
        asked = (tuple(query.items()), k1, b, self._tail.changes)
        plan = self._plans.get(asked)
        if plan is None:
            kept = dict(list(self._plans.items())[-1:])
            plan = kept[asked] = QueryPlan(query, self.segments, self._tail, k1, b, self._limits)
            self._plans = kept
        return plan
