"""Posting lists as a search reads them: those of a segment, those of the tail, and common ones as bitmaps.

A posting contributes its impact, looked up by its code, times the weight of its term. Which lists a query reads, and
how contributions become scores, is decided in `text_scoring.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loom.index.doc_values import DocValuesTable
from loom.index.kernels import address
from loom.index.segments import Array, Segment, places_of
from loom.index.text_segments import checked_arrays

__all__ = [
    "Keys",
    "Numbers",
    "PostingBitmaps",
    "PostingList",
    "Postings",
    "Scores",
    "SegmentPostings",
    "Statistics",
    "TailPostings",
    "find_hash",
    "find_in_lists",
]

Keys = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.intp]
Scores = npt.NDArray[np.float64]
_Weight = float | Scores

PostingList = tuple[int, int, int]
"""The postings of one term in one source: the number of the source, the first posting, and the end.

A plain tuple: a query makes thirty for each segment, and a named tuple takes ten times as long to make.
"""

# The first lookups in a segment, this many, read few pages each; see `SegmentPostings.find_terms`. The first query
# makes this number of lookups: for its own terms, for its synonyms, and twice for the terms of its associations.
_COLD_LOOKUPS = 4
# The most lists per segment that are remembered as used once; the second use gives a list its bitmap.
_MOST_SEEN_ONCE = 4_096


class Statistics(NamedTuple):
    """The parameters of every impact. They describe the whole index, not one segment."""

    average_length: float
    k1: float
    b: float


def _impacts(frequencies: Array, lengths: Array, statistics: Statistics) -> Scores:
    """BM25's saturated term frequency. Each operation is exact IEEE, so the bits depend on the values only."""
    average, k1, b = statistics
    norms = k1 * ((1.0 - b) + b * (lengths.astype(np.float64) / average))
    counts = frequencies.astype(np.float64)
    impacts: Scores = (counts * (k1 + 1.0)) / (counts + norms)
    return impacts


class SegmentPostings:
    """The postings of a segment: documents numbered in order of their keys, impacts by code.

    Raises `DamagedSegment` for a segment that cannot be read. `PostingBitmaps` explains the other arguments.
    """

    __slots__ = (
        "_cold_lookups",
        "_hashes",
        "_pair_frequencies",
        "_pair_lengths",
        "_starts",
        "_table",
        "addresses",
        "bitmaps",
        "codes",
        "count",
        "doc_values",
        "documents",
        "first_key",
        "gapless",
        "keys",
        "last_key",
        "total_length",
    )

    def __init__(self, segment: Segment, bitmap_bytes: int, *, common_share: int, fewest_bitmaps: int) -> None:
        arrays = checked_arrays(segment)
        self.keys: Keys = arrays["keys"]
        self.count = len(self.keys)
        header = segment.header  # not the keys: their pages are not read before they are needed
        self.first_key = int(header["first_key"]) if self.count else 0
        self.last_key = int(header["last_key"]) if self.count else -1
        self.doc_values = DocValuesTable(self.first_key, self.keys, arrays["doc_values"])
        self.gapless = self.count > 0 and self.last_key - self.first_key == self.count - 1
        self.total_length = int(segment.header["total_length"])
        self._hashes = arrays["hashes"]
        self._starts = arrays["starts"]
        self.documents = arrays["documents"]
        self.codes = arrays["codes"]
        self.addresses = address(self.documents), address(self.codes)
        self._pair_frequencies = arrays["pair_frequencies"]
        self._pair_lengths = arrays["pair_lengths"]
        self._table: tuple[Statistics, Scores] | None = None
        self._cold_lookups = _COLD_LOOKUPS
        self.bitmaps = PostingBitmaps(
            self.count,
            bitmap_bytes,
            lists=len(self._hashes),
            postings=len(self.documents),
            common_share=common_share,
            fewest=fewest_bitmaps,
        )

    def find_terms(self, hashes: Sequence[int]) -> list[tuple[int, int, int]]:
        """For each term that has postings here: its place in `hashes`, its first posting, and the end.

        The first lookups touch few pages. Later ones search all terms in one call, in a quarter of the time.
        """
        if self._cold_lookups:
            self._cold_lookups -= 1
            found = [find_hash(self._hashes, wanted) for wanted in hashes]
            places = [place for place, at in enumerate(found) if at is not None]
            rows = np.array([at for at in found if at is not None], dtype=np.intp)
        else:
            wanted = np.array(hashes, dtype=np.uint64)
            at = np.minimum(self._hashes.searchsorted(wanted), max(0, len(self._hashes) - 1))
            here = (self._hashes.take(at) == wanted).nonzero()[0] if len(self._hashes) else at[:0]
            places, rows = here.tolist(), at.take(here)
        firsts, lasts = self._starts.take(rows).tolist(), self._starts.take(rows + 1).tolist()
        return list(zip(places, firsts, lasts, strict=True))

    def places_of(self, keys: Keys) -> Numbers:
        """The places of these keys, which lie between the first and the last key; see `places_of` in segments.py."""
        return keys - self.first_key if self.gapless else places_of(self.keys, self.first_key, keys)

    def contributions(self, codes: Array, weight: _Weight, statistics: Statistics) -> Scores:
        """The weighted impacts of these codes.

        They come from a table of all pairs, which is kept until the statistics change. The impacts of a few codes are
        computed one by one without a table, with the same bits: each write to the tail changes the statistics, and
        the table of a store of long documents has thousands of pairs.
        """
        is_known = self._table is not None and self._table[0] == statistics
        if not is_known and 2 * len(codes) < len(self._pair_lengths):
            return _impacts(self._pair_frequencies[codes], self._pair_lengths[codes], statistics) * weight
        impacts = self.impacts(statistics)
        if isinstance(weight, float) and len(impacts) < len(codes):
            return (impacts * weight).take(codes)
        contributions = impacts.take(codes)
        contributions *= weight
        return contributions

    def impacts(self, statistics: Statistics) -> Scores:
        if self._table is None or self._table[0] != statistics:
            self._table = (statistics, _impacts(self._pair_frequencies, self._pair_lengths, statistics))
        return self._table[1]


class TailPostings:
    """The tail as one query sees it: a copy, documents numbered in order of their keys.

    `held` is the number of its documents; `count` includes removed documents whose slots are not freed yet. `lists`
    has the postings of the query's terms, as `SegmentPostings.find_terms` returns them.
    """

    __slots__ = (
        "_frequencies",
        "_impacts",
        "_lengths",
        "addresses",
        "codes",
        "count",
        "documents",
        "first_key",
        "held",
        "keys",
        "last_key",
        "lists",
        "total_length",
    )

    bitmaps = None
    gapless = False  # a key that was removed and added again is there twice

    def __init__(
        self,
        held: int,
        total_length: int,
        keys: Keys,
        documents: Array,
        codes: Array,
        frequencies: Array,
        lengths: Array,
        lists: list[tuple[int, int, int]],
    ) -> None:
        self.held = held
        self.total_length = total_length
        self.documents = documents
        self.codes = codes
        self.addresses = address(documents), address(codes)
        self.keys = keys
        self.count = len(keys)
        self.first_key, self.last_key = (int(keys[0]), int(keys[-1])) if self.count else (0, -1)
        self.lists = lists
        self._frequencies = frequencies
        self._lengths = lengths
        self._impacts: Scores | None = None

    def places_of(self, keys: Keys) -> Numbers:
        """The places of these keys, as in a segment. A key that was removed and added again gets the later place."""
        return self.keys.searchsorted(keys, side="right") - 1

    def contributions(self, codes: Array, weight: _Weight, statistics: Statistics) -> Scores:
        contributions: Scores = self.impacts(statistics).take(codes)
        contributions *= weight
        return contributions

    def impacts(self, statistics: Statistics) -> Scores:
        """The impact of each code. The statistics are those of the query that this copy was made for."""
        if self._impacts is None:
            self._impacts = _impacts(self._frequencies, self._lengths, statistics)
        return self._impacts


Postings = SegmentPostings | TailPostings


class PostingBitmaps:
    """Common posting lists of one segment as bitmaps, which give the place of a document in its list.

    A bitmap has a bit for each document, and for each group of 64 documents the number of set bits before the group.
    A lookup takes 20 ns; a search of the list itself, in cold memory, takes 100 to 190 ns. A common term occurs in
    many queries, so its list gets a bitmap in the second query that uses it, if there is room. Making a bitmap costs
    less than reading the list. A slot is valid only for the `arrays` at the time when the slot was returned.

    A list is common if it has more than one in `common_share` of the documents. If there is no room for `fewest`
    bitmaps, none is made.
    """

    __slots__ = (
        "_before",
        "_bits",
        "_common_from",
        "_enabled",
        "_refused",
        "_room",
        "_seen_once",
        "_slots",
        "_words",
        "addresses",
    )

    def __init__(
        self, documents: int, room_bytes: int, *, lists: int, postings: int, common_share: int, fewest: int
    ) -> None:
        self._words = -(-documents // 64)
        self._common_from = documents // common_share
        room = room_bytes // (12 * self._words) if documents else 0
        self._enabled = room >= fewest
        # At most one bitmap for each common list: unused room would be spread over the heap and touched eventually.
        self._room = min(room, lists, postings // (self._common_from + 1))
        self._slots: dict[tuple[int, int], int] = {}
        self._seen_once: dict[tuple[int, int], int] = {}  # the number of the query that used it
        self._refused = 0
        self._bits: Array | None = None
        self._before: Array | None = None
        self.addresses = 0, 0, self._words  # the addresses of the bits and of the counts, and the words per bitmap

    def __len__(self) -> int:
        """The number of lists that have a bitmap."""
        return len(self._slots)

    @property
    def arrays(self) -> tuple[Array | None, Array | None]:
        """The arrays that slots index at present."""
        return self._bits, self._before

    def make_room(self) -> None:
        """Drop all bitmaps if many lists found no room. That is cheaper than tracking the use of each bitmap."""
        if self._refused >= 4 * self._room:
            self._slots.clear()
            self._refused = 0
            self._bits = self._before = None

    def slot(self, documents: Array, first: int, last: int, query: int) -> int:
        """The slot of a list's bitmap, which is made if it is due; -1 if the list has none.

        `query` is the number of the query.
        """
        slot = self._slots.get((first, last))
        if slot is not None:
            return slot
        if last - first <= self._common_from or not self._enabled:
            return -1
        if len(self._slots) >= self._room:
            self._refused += 1
            return -1
        if self._seen_once.setdefault((first, last), query) == query:
            if len(self._seen_once) > _MOST_SEEN_ONCE:
                self._seen_once.clear()
            return -1
        if self._bits is None or self._before is None:  # pages that are never touched cost nothing
            self._bits = np.empty((self._room, self._words), dtype=np.uint64)
            self._before = np.empty((self._room, self._words), dtype=np.uint32)
            self.addresses = address(self._bits), address(self._before), self._words
        present = np.zeros(64 * self._words, dtype=np.bool_)
        present[documents[first:last]] = True
        slot = len(self._slots)
        self._bits[slot] = np.packbits(present, bitorder="little").view("<u8")
        counts = np.bitwise_count(self._bits[slot])
        self._before[slot, 0] = 0
        np.cumsum(counts[:-1], dtype=np.uint32, out=self._before[slot, 1:])
        self._slots[first, last] = slot
        return slot

    def find(self, slots: Numbers, wanted: Array) -> tuple[Numbers, Numbers, Numbers]:
        """Which lists hold which of the wanted documents: places in `slots`, in `wanted`, and in the list.

        The result is ordered by list.
        """
        assert self._bits is not None
        assert self._before is not None
        at = (slots * self._words)[:, np.newaxis] + (wanted >> np.uint32(6)).astype(np.intp)
        words = self._bits.reshape(-1).take(at)
        bits = np.uint64(1) << (wanted & np.uint32(63)).astype(np.uint64)
        # Flat: nonzero and indexing in two dimensions take five times as long.
        hits = ((words & bits) != 0).reshape(-1).nonzero()[0]
        rows, columns = np.divmod(hits, len(wanted))
        before = words.reshape(-1).take(hits)
        before &= (bits - np.uint64(1)).take(columns)
        places: Numbers = self._before.reshape(-1).take(at.reshape(-1).take(hits)).astype(np.intp)
        places += np.bitwise_count(before)
        return rows, columns, places


def find_in_lists(
    documents: Array, lists: Sequence[tuple[float, PostingList]], wanted: Array
) -> tuple[Numbers, Numbers, Numbers]:
    """Does the same as `PostingBitmaps.find`, by binary search in the (weighted) lists themselves."""
    places = np.empty((len(lists), len(wanted)), dtype=np.intp)
    found = np.empty((len(lists), len(wanted)), dtype=np.bool_)
    for (_, (_, first, last)), at, hit in zip(lists, places, found, strict=True):
        some = documents[first:last]
        at[:] = some.searchsorted(wanted)
        np.minimum(at, len(some) - 1, out=at)
        np.equal(some.take(at), wanted, out=hit)
    hits = found.reshape(-1).nonzero()[0]
    rows, columns = np.divmod(hits, len(wanted))
    return rows, columns, places.reshape(-1).take(hits)


def find_hash(hashes: Array, wanted: int) -> int | None:
    """The place of a hash in ascending hashes; None if it is missing.

    Hashes are spread evenly, so the value predicts the place to within a few times the square root of their number,
    and the hash at that place predicts it to within a few places. A search of 200,000 hashes on disk touches one page
    or two; a binary search touches nine. If the hashes are spread unevenly, a binary search finds them.
    """
    size = len(hashes)
    if not size:
        return None
    guess = wanted * size >> 64
    step = (wanted - int(hashes[guess])) * size >> 64
    reach = 4 * math.isqrt(abs(step)) + 8
    low, high = (min(max(guess + step + side, 0), size) for side in (-reach, reach))
    value = np.uint64(wanted)
    at = low + int(hashes[low:high].searchsorted(value))
    if (at == low and low) or (at == high and high < size):  # rare
        at = int(hashes.searchsorted(value))
    return at if at < size and hashes[at] == value else None
