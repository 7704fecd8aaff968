"""The text projection: BM25 over immutable segments and an in-memory tail, with one scorer for both.

Segments hold 64-bit hashes of terms, never terms or text. A posting is a document number and a code into
the segment's short table of distinct (term frequency, document length) pairs, so that one small table per
segment turns codes into BM25 impacts. A score has the same bits however documents are divided between
segments and tail. A segment also keeps the doc_values of its documents. How text becomes terms is not decided here.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import count, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.errors import InvalidInput
from loom.index import kernels
from loom.index.doc_values import DOC_VALUE_WORDS, DocValues, DocValuesTable, packed
from loom.index.kernels import SOURCE, PostingLists, address
from loom.index.segments import DamagedSegment, Segment, places_of

__all__ = ["K1", "SILENT", "B", "TextIndex", "TextTail", "build", "check", "merge", "term_hash", "without"]

K1 = 0.9
B = 0.4
"""BM25's saturation and length weights: memories are short, so their length says little about them."""

SILENT = 1e-6
"""The weight of a term that only `contributions` tells of: beside others it finds nothing and adds to no score."""

Array = npt.NDArray[Any]
Keys = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.intp]
Scores = npt.NDArray[np.float64]
Weight = float | Scores
Built = tuple[dict[str, Any], dict[str, Array]]

KIND = "text"
FORMAT = 3
_LARGEST_FREQUENCY = 0xFFFF
_TRIM_FROM = 1_024
_MERGED_AT_ONCE = 1 << 20
# The kernels take these as they are, so a file may not say otherwise.
_ARRAYS: dict[str, tuple[type[np.generic], ...]] = {
    "keys": (np.int64,),
    "lengths": (np.uint32,),
    "doc_values": (np.int64,),
    "hashes": (np.uint64,),
    "starts": (np.uint32, np.uint64),
    "documents": (np.uint32,),
    "codes": (np.uint16, np.uint32),
    "pair_frequencies": (np.uint16,),
    "pair_lengths": (np.uint32,),
}
_LARGEST_WEIGHT = 1e6
# Bounds are sums of a few rounded products: a part in 10^9 is far above their error and far below a score.
_SLACK = 1e-9


@lru_cache(maxsize=1 << 17)
def term_hash(term: str) -> int:
    """64 bits that stand for the term in every segment."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


# --- Segments: build, merge, forget ------------------------------------------------------------------------


def build(documents: Iterable[tuple[int, Sequence[str]]], doc_values: Array | None = None) -> Built:
    """Header and arrays of a segment of these documents: (key, terms with repetitions), keys ascending.

    A document's length is the number of its terms; a term frequency above 65,535 counts as 65,535. `doc_values` has
    a row for each document; without it, none are known.
    """
    keys, lengths, hashes = array("q"), array("Q"), array("Q")
    for key, terms in documents:
        keys.append(key)
        lengths.append(len(terms))
        hashes.extend(map(term_hash, terms))
    key_array = np.array(keys, dtype=np.int64)
    if len(key_array) > 1 and not (key_array[1:] > key_array[:-1]).all():
        raise InvalidInput("documents of a segment must come in ascending order of their keys, each key once")
    length_array = np.array(lengths, dtype=np.uint32)
    owners = np.repeat(np.arange(len(keys), dtype=np.uint32), length_array)
    occurrences = np.array(hashes, dtype=np.uint64)
    order = np.argsort(occurrences, kind="stable")  # stable: the documents of a term stay ascending
    occurrences, owners = occurrences[order], owners[order]
    del order
    first = np.flatnonzero(_changes(occurrences) | _changes(owners))
    frequencies = np.minimum(np.diff(first, append=len(owners)), _LARGEST_FREQUENCY).astype(np.uint32)
    occurrences, owners = occurrences[first], owners[first]
    codes, pairs = _encode(frequencies, length_array[owners])
    if doc_values is None:
        doc_values = packed((key, *[None] * 6) for key in keys)
    return _assemble(key_array, length_array, doc_values, *_listed(occurrences), owners, codes, pairs)


def merge(segments: Sequence[Segment]) -> Built:
    """One segment of the documents of several, whatever their order; a key may stand in one only.

    Moves whole posting lists, those of a few terms at a time: peak memory is little more than the new segment's.
    """
    parts = sorted((_checked(segment) for segment in segments), key=_first_key)
    if not parts:
        return build(())
    keys = np.concatenate([part["keys"] for part in parts])
    lengths = np.concatenate([part["lengths"] for part in parts])
    doc_values = np.concatenate([part["doc_values"] for part in parts])
    bases = np.cumsum([0] + [len(part["keys"]) for part in parts])[:-1]
    numbers: Array | None = None
    if not (keys[1:] > keys[:-1]).all():  # key ranges that overlap: number the documents anew by key
        by_key = np.argsort(keys, kind="stable")
        numbers = np.empty(len(keys), dtype=np.uint32)
        numbers[by_key] = np.arange(len(keys), dtype=np.uint32)
        keys, lengths, doc_values = keys[by_key], lengths[by_key], doc_values[by_key]
        if not (keys[1:] > keys[:-1]).all():
            raise InvalidInput("segments to merge must not share a key")
    renamed, pairs = _merged_pairs(parts)
    postings = sum(len(part["documents"]) for part in parts)
    documents = np.empty(postings, dtype=np.uint32)
    codes = np.empty(postings, dtype=_code_type(pairs))
    hashes: list[Array] = []
    counts: list[Array] = []
    done = 0
    for ranges in _in_steps(parts):
        lists = _merged_lists(parts, ranges, bases, renamed, numbers)
        end = done + len(lists.documents)
        documents[done:end], codes[done:end], done = lists.documents, lists.codes, end
        hashes.append(lists.hashes)
        counts.append(lists.counts)
    starts = np.append(0, np.concatenate(counts).cumsum())
    return _assemble(keys, lengths, doc_values, np.concatenate(hashes), starts, documents, codes, pairs)


class _Lists(NamedTuple):
    """Posting lists, by the hashes of their terms: how long each is, and the documents and codes of all."""

    hashes: Array
    counts: Array
    documents: Array
    codes: Array


def _in_steps(parts: Sequence[Mapping[str, Array]]) -> Iterator[list[tuple[int, int]]]:
    """Of each part the terms to merge next, as a range: all with the same beginnings of their hashes.

    About `_MERGED_AT_ONCE` postings at a time, as hashes are spread evenly, and more only where one term has them.
    """
    steps = max(1, sum(len(part["documents"]) for part in parts) // _MERGED_AT_ONCE)
    edges = np.array([(step << 64) // steps for step in range(1, steps)], dtype=np.uint64)
    cuts = [[0, *part["hashes"].searchsorted(edges).tolist(), len(part["hashes"])] for part in parts]
    for step in range(steps):
        yield [(cut[step], cut[step + 1]) for cut in cuts]


def _merged_lists(
    parts: Sequence[Mapping[str, Array]],
    ranges: Sequence[tuple[int, int]],
    bases: Array,
    renamed: Sequence[Array],
    numbers: Array | None,
) -> _Lists:
    """The lists of these terms of all parts, each term once, its documents in order."""
    hashes = np.concatenate([part["hashes"][first:last] for part, (first, last) in zip(parts, ranges, strict=True)])
    lengths: list[Array] = []
    owners: list[Array] = []
    codes: list[Array] = []
    for part, (first, last), base, names in zip(parts, ranges, bases, renamed, strict=True):
        starts = part["starts"][first : last + 1].astype(np.intp)
        inside = slice(int(starts[0]), int(starts[-1]))
        lengths.append(np.diff(starts))
        owners.append(part["documents"][inside] + np.uint32(base))
        codes.append(names[part["codes"][inside]])
    moved, all_codes = np.concatenate(owners), np.concatenate(codes)
    counts = np.concatenate(lengths)
    by_hash = np.argsort(hashes, kind="stable")  # stable: lists of one term keep the order of the segments
    sources = np.cumsum(counts) - counts
    sizes = counts[by_hash]
    gather = np.repeat(sources[by_hash] - (np.cumsum(sizes) - sizes), sizes)
    gather += np.arange(len(gather))
    moved, all_codes = moved[gather], all_codes[gather]
    firsts = np.flatnonzero(_changes(hashes[by_hash]))
    distinct = hashes[by_hash][firsts]
    together = np.add.reduceat(sizes, firsts) if len(firsts) else sizes
    if numbers is not None:
        moved = numbers[moved]
        order = np.lexsort((moved, np.repeat(np.arange(len(distinct)), together)))
        moved, all_codes = moved[order], all_codes[order]
    return _Lists(distinct, together, moved, all_codes)


def without(segment: Segment, keys: Collection[int]) -> Built:
    """The segment without these documents: no posting, length, doc_values, or hash of a term only they had stays."""
    part = _checked(segment)
    gone = np.fromiter(keys, dtype=np.int64, count=len(keys))
    kept = ~np.isin(part["keys"], gone)
    numbers = (np.cumsum(kept) - 1).astype(np.uint32)
    postings = kept[part["documents"]]
    counts = np.diff(part["starts"]).astype(np.intp)
    occurrences = np.repeat(part["hashes"], counts)[postings]
    owners = numbers[part["documents"][postings]]
    used, codes = np.unique(part["codes"][postings], return_inverse=True)
    pairs = part["pair_frequencies"][used], part["pair_lengths"][used]
    rest, lengths, doc_values = (part[name][kept] for name in ("keys", "lengths", "doc_values"))
    return _assemble(rest, lengths, doc_values, *_listed(occurrences), owners, codes, pairs)


def _listed(occurrences: Array) -> tuple[Array, Array]:
    """Each of the sorted hashes of postings once, and where its postings begin; at last, where all end."""
    first = np.flatnonzero(_changes(occurrences))
    return occurrences[first], np.append(first, len(occurrences))


def _code_type(pairs: tuple[Array, Array]) -> type[np.uint16 | np.uint32]:
    return np.uint16 if len(pairs[0]) <= 1 << 16 else np.uint32


def _assemble(
    keys: Array,
    lengths: Array,
    doc_values: Array,
    hashes: Array,
    starts: Array,
    owners: Array,
    codes: Array,
    pairs: tuple[Array, Array],
) -> Built:
    """Header and arrays from postings that are sorted by hash, then by document."""
    header = {
        "kind": KIND,
        "format": FORMAT,
        "count": len(keys),
        "total_length": int(lengths.sum(dtype=np.int64)),
        "first_key": int(keys[0]) if len(keys) else None,
        "last_key": int(keys[-1]) if len(keys) else None,
    }
    arrays: dict[str, Array] = {
        "keys": keys.astype(np.int64, copy=False),
        "lengths": lengths.astype(np.uint32, copy=False),
        "doc_values": doc_values.astype(np.int64, copy=False),
        "hashes": hashes,
        "starts": starts.astype(np.uint32 if len(owners) < 1 << 32 else np.uint64),
        "documents": owners.astype(np.uint32, copy=False),
        "codes": codes.astype(_code_type(pairs), copy=False),
        "pair_frequencies": pairs[0].astype(np.uint16),
        "pair_lengths": pairs[1].astype(np.uint32),
    }
    return header, arrays


def _encode(frequencies: Array, lengths: Array) -> tuple[Array, tuple[Array, Array]]:
    """Codes of the postings and the table of pairs that they point into."""
    packed = frequencies.astype(np.uint64) << np.uint64(32) | lengths
    distinct, codes = _distinct(packed)
    return codes, _unpacked(distinct)


def _merged_pairs(parts: Sequence[Mapping[str, Array]]) -> tuple[list[Array], tuple[Array, Array]]:
    """For each part the new codes of its own, and the table of pairs that they point into."""
    tables = [part["pair_frequencies"].astype(np.uint64) << np.uint64(32) | part["pair_lengths"] for part in parts]
    distinct, renamed = _distinct(np.concatenate(tables))
    pairs = _unpacked(distinct)
    edges = np.cumsum([len(table) for table in tables])[:-1]
    return np.split(renamed.astype(_code_type(pairs)), edges), pairs


def _distinct(packed: Array) -> tuple[Array, Array]:
    """np.unique with its inverse; by presence instead of by sorting where the values are small."""
    if not len(packed):
        return packed, np.empty(0, dtype=np.intp)
    small = (packed >> np.uint64(32)).astype(np.intp)
    width = int((packed & np.uint64(0xFFFFFFFF)).max()) + 1
    size = (int(small.max()) + 1) * width
    if size > max(4 * len(packed), 1 << 16):
        distinct, codes = np.unique(packed, return_inverse=True)
        return distinct, codes
    small *= width
    small += (packed & np.uint64(0xFFFFFFFF)).astype(np.intp)
    present = np.zeros(size, dtype=np.bool_)
    present[small] = True
    values = np.flatnonzero(present)
    names = np.zeros(size, dtype=np.uint32)
    names[values] = np.arange(len(values), dtype=np.uint32)
    distinct = (values // width).astype(np.uint64) << np.uint64(32) | (values % width).astype(np.uint64)
    return distinct, names[small]


def _unpacked(distinct: Array) -> tuple[Array, Array]:
    return (distinct >> np.uint64(32)).astype(np.uint16), (distinct & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _changes(values: Array) -> npt.NDArray[np.bool_]:
    """Where a value differs from the one before it; the first always does."""
    changed = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def _first_key(part: Mapping[str, Array]) -> int:
    return int(part["keys"][0]) if len(part["keys"]) else 0


def check(segment: Segment) -> None:
    """Raise `DamagedSegment` for one that this program cannot read."""
    _checked(segment)


def _checked(segment: Segment) -> Mapping[str, Array]:
    """The arrays, if their shapes fit together; their content is the business of the checksums."""
    header, arrays = segment.header, segment.arrays
    name = "a segment in memory" if segment.path is None else segment.path.name
    if header.get("kind") != KIND or header.get("format") != FORMAT:
        raise DamagedSegment(f"{name} is not a text segment of format {FORMAT}")
    if not arrays.keys() >= _ARRAYS.keys():
        raise DamagedSegment(f"{name} lacks arrays of a text segment")
    for array_name, types in _ARRAYS.items():
        values = arrays[array_name]
        width = (DOC_VALUE_WORDS,) if array_name == "doc_values" else ()
        fits = values.dtype in types and values.ndim == 1 + len(width) and values.shape[1:] == width
        if not fits or not values.flags.c_contiguous:
            raise DamagedSegment(f"the array {array_name!r} of {name} is of another type or shape")
    sizes = {array_name: len(values) for array_name, values in arrays.items()}
    if (
        sizes["keys"] != header["count"]
        or sizes["lengths"] != sizes["keys"]
        or sizes["doc_values"] != sizes["keys"]
        or sizes["starts"] != sizes["hashes"] + 1
        or sizes["documents"] != sizes["codes"]
        or sizes["pair_frequencies"] != sizes["pair_lengths"]
    ):
        raise DamagedSegment(f"the arrays of {name} do not fit together")
    # These are taken from the header, so that the keys need not be read before they are needed.
    first, last = (header.get("first_key"), header.get("last_key")) if sizes["keys"] else (0, 0)
    for number in (first, last, header.get("total_length")):
        if not isinstance(number, int) or not 0 <= number < 1 << 62:
            raise DamagedSegment(f"the header of {name} makes no sense: {number!r} is no such number")
    return arrays


# --- What a query reads ------------------------------------------------------------------------------------


class _Statistics(NamedTuple):
    """What every impact depends on: the whole index, not the segment."""

    average: float
    k1: float
    b: float


def _impacts(frequencies: Array, lengths: Array, statistics: _Statistics) -> Scores:
    """BM25's saturated term frequency. Each operation is exact IEEE, so the bits depend on the values only."""
    average, k1, b = statistics
    norms = k1 * ((1.0 - b) + b * (lengths.astype(np.float64) / average))
    counts = frequencies.astype(np.float64)
    impacts: Scores = (counts * (k1 + 1.0)) / (counts + norms)
    return impacts


class _SegmentSource:
    """A segment as the scorer sees it: documents in order of their keys, impacts by code."""

    __slots__ = (
        "_cold_looks",
        "_hashes",
        "_pair_frequencies",
        "_pair_lengths",
        "_starts",
        "_table",
        "codes",
        "count",
        "doc_values",
        "documents",
        "first_key",
        "gapless",
        "keys",
        "last_key",
        "places",
        "ranks",
        "total_length",
    )

    def __init__(self, segment: Segment, rank_bytes: int = 0) -> None:
        arrays = _checked(segment)
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
        self.places = address(self.documents), address(self.codes)
        self._pair_frequencies = arrays["pair_frequencies"]
        self._pair_lengths = arrays["pair_lengths"]
        self._table: tuple[_Statistics, Scores] | None = None
        self._cold_looks = _COLD_LOOKS
        self.ranks = _Ranks(self.count, rank_bytes)

    def postings(self, hashes: Sequence[int]) -> list[tuple[int, int, int]]:
        """Place in `hashes`, and where the postings begin and end, of each term that is here.

        The first question touches few pages, later ones look all terms up in one go: a quarter of the time.
        """
        if self._cold_looks:
            self._cold_looks -= 1
            found = [self._find(wanted) for wanted in hashes]
            places = [place for place, at in enumerate(found) if at is not None]
            rows = np.array([at for at in found if at is not None], dtype=np.intp)
        else:
            wanted = np.array(hashes, dtype=np.uint64)
            at = np.minimum(self._hashes.searchsorted(wanted), max(0, len(self._hashes) - 1))
            here = (self._hashes.take(at) == wanted).nonzero()[0] if len(self._hashes) else at[:0]
            places, rows = here.tolist(), at.take(here)
        firsts, lasts = self._starts.take(rows).tolist(), self._starts.take(rows + 1).tolist()
        return list(zip(places, firsts, lasts, strict=True))

    def _find(self, wanted: int) -> int | None:
        """The place of a hash. Hashes are spread evenly, so it is known to within a few times the square root of
        their number, and from the hash that stands there to within a few places: a cold search touches one page
        or two instead of nine (at 200,000 hashes).
        """
        hashes, size = self._hashes, len(self._hashes)
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

    def places_of(self, keys: Keys) -> Numbers:
        """Where these keys stand, which lie between the first and the last; for one that is not here, any place."""
        return keys - self.first_key if self.gapless else places_of(self.keys, self.first_key, keys)

    def contributions(self, codes: Array, weight: Weight, statistics: _Statistics) -> Scores:
        """Weighted impacts, through a table of all pairs that is kept for as long as the statistics stay.

        A few codes are computed on their own: each write to the tail changes the statistics, and the table
        of a store of long documents has thousands of pairs. The bits are the same.
        """
        table = self._table
        if table is None or table[0] != statistics:
            if 2 * len(codes) < len(self._pair_lengths):
                return _impacts(self._pair_frequencies[codes], self._pair_lengths[codes], statistics) * weight
            table = (statistics, _impacts(self._pair_frequencies, self._pair_lengths, statistics))
            self._table = table
        impacts = table[1]
        if isinstance(weight, float) and len(impacts) < len(codes):
            return (impacts * weight).take(codes)
        contributions = impacts.take(codes)
        contributions *= weight
        return contributions

    def impacts(self, statistics: _Statistics) -> Scores:
        """What each code stands for, as `contributions` keeps it."""
        if self._table is None or self._table[0] != statistics:
            self._table = (statistics, _impacts(self._pair_frequencies, self._pair_lengths, statistics))
        return self._table[1]


class _TailSource:
    """What one query sees of the tail: a copy, in order of the keys, that later writes do not change."""

    __slots__ = (
        "_frequencies",
        "_impacts",
        "_lengths",
        "codes",
        "count",
        "documents",
        "first_key",
        "held",
        "keys",
        "last_key",
        "lists",
        "places",
        "total_length",
    )

    ranks = None
    gapless = False  # a key that was removed and given again stands there twice

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
        self.places = address(documents), address(codes)
        self.keys = keys
        self.count = len(keys)
        self.first_key, self.last_key = (int(keys[0]), int(keys[-1])) if self.count else (0, -1)
        self.lists = lists
        self._frequencies = frequencies
        self._lengths = lengths
        self._impacts: Scores | None = None

    def places_of(self, keys: Keys) -> Numbers:
        """As in a segment; where a removed key was given again, the later one counts."""
        return self.keys.searchsorted(keys, side="right") - 1

    def contributions(self, codes: Array, weight: Weight, statistics: _Statistics) -> Scores:
        contributions: Scores = self.impacts(statistics).take(codes)
        contributions *= weight
        return contributions

    def impacts(self, statistics: _Statistics) -> Scores:
        if self._impacts is None:
            self._impacts = _impacts(self._frequencies, self._lengths, statistics)
        return self._impacts


_Source = _SegmentSource | _TailSource
_NONE = np.empty(0, dtype=np.uint32)
_NO_TAIL = _TailSource(0, 0, np.empty(0, dtype=np.int64), _NONE, _NONE, _NONE, _NONE, [])


class _Ranks:
    """Common posting lists of one segment in a second form: which documents stand there, and at what place.

    A look into a list is a search in cold memory, 100 to 190 ns; here it takes 20. A bit for each document,
    and for each 64 of them how many come before. A common term comes up in many questions, so it gets this form
    from the second one on, while there is room: making it costs less than reading the list. A number given out holds
    for as long as the arrays of that time do.
    """

    __slots__ = ("_before", "_bits", "_least", "_met", "_refused", "_size", "_slots", "_width", "places")

    def __init__(self, documents: int, room_bytes: int) -> None:
        self._width = -(-documents // 64)
        self._size = room_bytes // (12 * self._width) if documents else 0
        self._least = documents // _RANKS_FROM
        self._slots: dict[tuple[int, int], int] = {}
        self._met: dict[tuple[int, int], int] = {}  # and by which question
        self._refused = 0
        self._bits: Array | None = None
        self._before: Array | None = None
        self.places = 0, 0, self._width  # where these two lie, and how many words a list has there

    @property
    def arrays(self) -> tuple[Array | None, Array | None]:
        """What the numbers of now point into."""
        return self._bits, self._before

    def make_room(self) -> None:
        """Start over if many lists found no room: now and then that is cheaper than any order of use."""
        if self._refused >= 4 * self._size:
            self._slots.clear()
            self._refused = 0
            self._bits = self._before = None

    def slot(self, documents: Array, first: int, last: int, question: int) -> int:
        """The number under which a list is kept here, -1 where it is not."""
        slot = self._slots.get((first, last))
        if slot is not None:
            return slot
        if last - first <= self._least or self._size < _FEWEST_RANKS:
            return -1
        if len(self._slots) >= self._size:
            self._refused += 1
            return -1
        if self._met.setdefault((first, last), question) == question:
            if len(self._met) > _MOST_MET:
                self._met.clear()
            return -1
        if self._bits is None or self._before is None:  # untouched pages of these cost nothing
            self._bits = np.empty((self._size, self._width), dtype=np.uint64)
            self._before = np.empty((self._size, self._width), dtype=np.uint32)
            self.places = address(self._bits), address(self._before), self._width
        present = np.zeros(64 * self._width, dtype=np.bool_)
        present[documents[first:last]] = True
        slot = len(self._slots)
        self._bits[slot] = np.packbits(present, bitorder="little").view("<u8")
        counts = np.bitwise_count(self._bits[slot])
        self._before[slot, 0] = 0
        np.cumsum(counts[:-1], dtype=np.uint32, out=self._before[slot, 1:])
        self._slots[first, last] = slot
        return slot

    def find(self, slots: Numbers, wanted: Array) -> tuple[Numbers, Numbers, Numbers]:
        """Which of the lists hold which of the documents, list by list, and at what place of the list."""
        assert self._bits is not None
        assert self._before is not None
        at = (slots * self._width)[:, np.newaxis] + (wanted >> np.uint32(6)).astype(np.intp)
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


def _search_lists(
    documents: Array, spans: Sequence[tuple[float, _List]], wanted: Array
) -> tuple[Numbers, Numbers, Numbers]:
    """As `_Ranks.find`, in the lists themselves."""
    places = np.empty((len(spans), len(wanted)), dtype=np.intp)
    found = np.empty((len(spans), len(wanted)), dtype=np.bool_)
    for (_, (_, first, last)), at, hit in zip(spans, places, found, strict=True):
        some = documents[first:last]
        at[:] = some.searchsorted(wanted)
        np.minimum(at, len(some) - 1, out=at)
        np.equal(some.take(at), wanted, out=hit)
    hits = found.reshape(-1).nonzero()[0]
    rows, columns = np.divmod(hits, len(wanted))
    return rows, columns, places.reshape(-1).take(hits)


# The postings of one term in one source: its number, and where they begin and end. A plain tuple: a question makes
# thirty of them for each segment, and a named one takes ten times as long.
_List = tuple[int, int, int]


class _Bounds(NamedTuple):
    """How many postings may be read, and how many documents scored."""

    postings: int
    shortlist: int


class _Term(NamedTuple):
    """A query term that some document has: its place there, its weight with the idf, the most it adds to a score, and
    its postings, or those of them that were not read."""

    row: int
    weight: float
    frequency: int
    bound: float
    lists: list[_List]


class TextTail:
    """Postings of the records that no segment holds yet. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.changes = 0
        # term hash -> ascending (slot << 16 | frequency); a slot is a document's number in order of arrival.
        # The only posting of a term stands alone: most terms are rare, and an array costs as much as ten.
        self._postings: dict[int, int | array[int]] = {}
        self._keys = array("q")
        self._lengths = array("I")
        self._first_slot = 0  # the slot of the first key; slots before it are gone
        self._dead = 0  # how many of the leading slots are of removed documents
        self._documents: dict[int, tuple[int, tuple[int, ...]]] = {}  # key -> slot, its term hashes
        self._total_length = 0
        self._ascending = True

    def __len__(self) -> int:
        return len(self._documents)

    @property
    def total_length(self) -> int:
        return self._total_length

    def keys(self) -> list[int]:
        """The keys of its documents, in order of arrival."""
        with self._lock:
            return list(self._documents)

    def add(self, key: int, terms: Sequence[str]) -> None:
        """Take in a document. A key that is here already is left as it is: a record never changes."""
        counts = Counter(terms)
        hashes = tuple(map(term_hash, counts))
        postings = self._postings
        with self._lock:
            if key in self._documents:
                return
            self.changes += 1
            keys = self._keys
            slot = self._first_slot + len(keys)
            if keys and key < keys[-1]:
                self._ascending = False
            keys.append(key)
            self._lengths.append(len(terms))
            packed = slot << 16
            once = packed | 1
            for term, frequency in zip(hashes, counts.values(), strict=True):
                posting = once if frequency == 1 else packed | min(frequency, _LARGEST_FREQUENCY)
                found = postings.setdefault(term, posting)
                if found is posting:
                    continue
                if isinstance(found, int):
                    postings[term] = array("Q", (found, posting))
                else:
                    found.append(posting)
            self._documents[key] = slot, hashes
            self._total_length += len(terms)

    def remove(self, key: int) -> bool:
        """Take a document out, with everything that only it had; whether it was here."""
        with self._lock:
            known = self._documents.pop(key, None)
            if known is None:
                return False
            self.changes += 1
            slot, terms = known
            for term in terms:
                found = self._postings[term]
                if isinstance(found, int) or len(found) == 1:
                    del self._postings[term]
                else:
                    del found[bisect_left(found, slot << 16)]
            place = slot - self._first_slot
            self._total_length -= self._lengths[place]
            self._lengths[place] = 0
            self._trim()
            return True

    def _trim(self) -> None:
        """Let go of leading slots whose documents were removed: segments take over the oldest first."""
        keys, dead = self._keys, self._dead
        while dead < len(keys):
            known = self._documents.get(keys[dead])
            if known is not None and known[0] == self._first_slot + dead:
                break
            dead += 1
        self._dead = dead
        if dead == len(keys) or dead >= max(_TRIM_FROM, len(keys) // 2):
            del keys[:dead]
            del self._lengths[:dead]
            self._first_slot += dead
            self._dead = 0
            self._ascending = self._ascending or not keys

    def view(self, hashes: Sequence[int]) -> _TailSource:
        """Of one moment: the statistics, the keys and, for each of the terms that is here, its postings."""
        with self._lock:
            if not self._keys:  # mostly, at rest
                return _NO_TAIL
            documents, total_length = len(self._documents), self._total_length
            keys: Keys = np.array(self._keys, dtype=np.int64)
            here: list[tuple[int, array[int]]] = []
            for place, term in enumerate(hashes):
                posting = self._postings.get(term)
                if posting is not None:
                    here.append((place, array("Q", (posting,)) if isinstance(posting, int) else posting))
            if not here:
                return _TailSource(documents, total_length, keys, _NONE, _NONE, _NONE, _NONE, [])
            # A copy: an array that lends its buffer cannot grow, and `add` would fail.
            joined = np.frombuffer(b"".join([found for _, found in here]), dtype=np.uint64)
            sizes = [len(found) for _, found in here]
            slots = (joined >> np.uint64(16)).astype(np.intp)
            slots -= self._first_slot
            lengths = np.frombuffer(self._lengths, dtype=np.uint32).take(slots)
            ascending = self._ascending
        numbers, codes = slots.astype(np.uint32), np.arange(len(slots))
        if not ascending:
            by_key = np.argsort(keys, kind="stable")
            ranks = np.empty(len(keys), dtype=np.uint32)
            ranks[by_key] = np.arange(len(keys), dtype=np.uint32)
            keys, numbers = keys[by_key], ranks[slots]
        lists: list[tuple[int, int, int]] = []
        last = 0
        for (place, _), size in zip(here, sizes, strict=True):
            first, last = last, last + size
            if not ascending:
                codes[first:last] = first + np.argsort(numbers[first:last])
            lists.append((place, first, last))
        frequencies = joined & np.uint64(0xFFFF)
        return _TailSource(
            documents,
            total_length,
            keys,
            numbers if ascending else numbers[codes],
            codes,
            frequencies,
            lengths,
            lists,
        )

    def frequencies(self, hashes: Sequence[int]) -> list[int]:
        """In how many of its documents each of these terms stands."""
        if not self._documents:
            return [0] * len(hashes)
        found = [self._postings.get(term) for term in hashes]
        return [0 if one is None else 1 if isinstance(one, int) else len(one) for one in found]


# --- The scorer --------------------------------------------------------------------------------------------

# Terms are summed up together until they have so many postings: a term costs 15 us, a posting 4 ns.
_BATCH = 4_096
# What one of the best must reach is taken from this many times the limit of good documents. Measured at 100,000: with
# twice as many, one or two more lists are read; six times as many cost what they save.
_LEADING = 5
# Once what is left to read is less than this part of that, few documents are near enough to be looked up.
_NEAR = 0.75
# An entry of a list that is read costs this part of a look into it.
_LOOK_COST = 8
# To look at all sums costs as much as reading postings for one in so many documents.
_SHARE = 8
# A list with more than one in so many documents of its segment is common: see `_Ranks`. All lists of an index that
# are kept so take no more than these bytes together, and where that is room for a few only, none is.
_RANKS_FROM = 32
_RANK_BYTES = 1 << 25
_FEWEST_RANKS = 64
_MOST_MET = 4_096
# A question looks so often for terms: its own, other words for them, and those of links, counted and read.
_COLD_LOOKS = 4
# So many terms are remembered with how many documents have them: other words of questions come up again and again.
_MOST_COUNTED = 16_384
# So many terms are looked up together before documents that cannot be among the best any more are dropped.
_TOGETHER = 4
# Documents times terms that are looked up in one go: the scratch of half a megabyte stays in the cache.
_LOOKS = 1 << 16
# From postings for a sixteenth of all documents on, going over all sums costs less than a list of those met.
_DENSE_FROM = 16
_DAMAGE = "a text segment points outside of its own arrays: the projection must be rebuilt"
_questions = count()
_scratch = threading.local()  # one score for each document, all zero between searches


class TextIndex:
    """Searches segments and tail as one corpus. A key may stand in one of them only.

    A search is exact, full BM25 wherever one of these holds:

    - `among` is given;
    - the index has at most `exact_documents` documents;
    - the posting lists of the query's terms have at most `postings_budget` entries together.

    Otherwise the terms, from the one that weighs most (by the query and by its rarity) to the least, are read for
    as long as they fit into the budget together, and of the next one the postings of the newest documents (the
    highest keys) that still fit. Of the documents found so, the best `shortlist` (or `limit`, if that is more)
    by what was read, ties going to the newest, are scored by all terms, and the best of these are the answer.
    Their scores are exact full BM25 in this case too. What can be missing are documents that have none of the
    weightier terms, or that rank beyond the shortlist by these. The answer depends on the documents only, not
    on their division.

    Each thread that searches keeps a buffer of about ten bytes for each document. The first search of a large index
    reads two or three pages for each term and segment, the postings within the budget (six bytes each), and a page or
    two for each document of the shortlist and each term that was not read.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        tail: TextTail | None = None,
        *,
        postings_budget: int = 1 << 19,
        exact_documents: int = 1 << 17,
        shortlist: int = 1 << 7,
    ) -> None:
        if postings_budget < 1:
            raise InvalidInput(f"the budget must allow at least one posting, not {postings_budget}")
        total = max(1, sum(segment.header["count"] for segment in segments))
        self._segments = [
            _SegmentSource(segment, _RANK_BYTES * segment.header["count"] // total) for segment in segments
        ]
        self._tail = TextTail() if tail is None else tail
        self._segment_documents = sum(source.count for source in self._segments)
        self._segment_length = sum(source.total_length for source in self._segments)
        self._postings_budget = postings_budget
        self._exact_documents = exact_documents
        self._shortlist = shortlist
        self._planned: dict[tuple[Any, ...], _Plan] = {}
        self._counted: dict[str, int] = {}  # in how many documents of the segments, which never change

    @property
    def documents(self) -> int:
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

        `query` gives each term its weight, `SILENT` being the smallest. `among` holds the only keys that may be
        found, in ascending order. Documents that have none of the terms are never found. Statistics are those of all
        documents.
        """
        if among is not None and not (among[1:] > among[:-1]).all():
            raise InvalidInput("the keys to search among must be in ascending order, each once")
        if limit < 0:
            raise InvalidInput(f"limit must not be negative, not {limit}")
        try:
            plan = self._plan(query, k1, b)
            if not plan.terms or not limit:
                return np.empty(0, dtype=np.int64), np.empty(0)
            if among is None:
                exact = plan.documents <= self._exact_documents or plan.postings <= self._postings_budget
                bounds = None if exact else _Bounds(self._postings_budget, self._shortlist)
                return plan.search(limit, None, bounds)
            chosen, _ = plan.find(among)
            # One look into a list costs about as much as reading eight of its entries, and most of these
            # need not be read.
            if len(chosen) <= 1_024 or 4 * len(chosen) * len(plan.terms) <= plan.postings:
                return plan.best(chosen, plan.scores(chosen), limit)
            return plan.search(limit, chosen, None)
        except IndexError as error:
            raise DamagedSegment(_DAMAGE) from error

    def score(self, query: Mapping[str, float], keys: Keys, k1: float = K1, b: float = B) -> Scores:
        """The exact score of each of these keys, in their order; 0.0 for one that matches nothing."""
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
        """What each term of the query adds to the score of each of these ascending keys: a row for each term.

        Beside it what each term adds to a document of average length that holds it once, and in how many documents
        it stands. Rows and terms follow the query.
        """
        try:
            plan = self._plan(query, k1, b)
            numbers, places = plan.find(keys)
            table = plan.contributions(numbers)
        except IndexError as error:
            raise DamagedSegment(_DAMAGE) from error
        if len(places) < len(keys) or np.count_nonzero(places[1:] <= places[:-1]):  # rarely
            # Added: what the tail held before it came into a segment still has a number there, and adds nothing.
            found, table = table, np.zeros((len(query), len(keys)))
            np.add.at(table.T, places, found.T)
        return table, np.array(plan.weights), np.array(plan.frequencies, dtype=np.intp)

    def doc_values(self, numbers: Sequence[int]) -> tuple[dict[int, DocValues], list[int]]:
        """What the segments know of these ascending numbers, and which of them they hold without knowing it."""
        known: dict[int, DocValues] = {}
        left: list[int] = []
        for source in self._segments:
            first, last = bisect_left(numbers, source.first_key), bisect_right(numbers, source.last_key)
            if first < last:
                found, others = source.doc_values.find(numbers[first:last])
                known |= found
                left += others
        return known, left

    def frequencies(self, names: Sequence[str]) -> list[int]:
        """In how many documents each of these terms stands."""
        counted = self._counted
        if len(counted) > _MOST_COUNTED:
            counted.clear()
        unknown = [name for name in names if name not in counted]
        if unknown:
            found = [0] * len(unknown)
            hashes = [term_hash(name) for name in unknown]
            for source in self._segments:
                for place, first, last in source.postings(hashes):
                    found[place] += last - first
            counted.update(zip(unknown, found, strict=True))
        tail = self._tail.frequencies([term_hash(name) for name in names]) if len(self._tail) else [0] * len(names)
        return [counted.get(name, 0) + more for name, more in zip(names, tail, strict=True)]

    def _plan(self, query: Mapping[str, float], k1: float, b: float) -> _Plan:
        """How to answer a query. The last two are kept: a question is searched and scored, and so are its links."""
        asked = (tuple(query.items()), k1, b, self._tail.changes)
        plan = self._planned.get(asked)
        if plan is None:
            kept = dict(list(self._planned.items())[-1:])
            plan = kept[asked] = self._make_plan(query, k1, b)
            self._planned = kept
        return plan

    def _make_plan(self, query: Mapping[str, float], k1: float, b: float) -> _Plan:
        if not (k1 >= 0.0 and 0.0 <= b <= 1.0):
            raise InvalidInput(f"BM25 needs k1 >= 0 and b from 0 to 1, not k1={k1} and b={b}")
        for weight in query.values():
            if not SILENT <= weight <= _LARGEST_WEIGHT:
                raise InvalidInput(
                    f"the weight of a query term must lie between {SILENT} and {_LARGEST_WEIGHT}, not {weight}"
                )
        hashes = [term_hash(term) for term in query]
        tail = self._tail.view(hashes)
        lists: list[list[_List]] = [[] for _ in hashes]
        frequencies = [0] * len(hashes)
        for number, source in enumerate(self._segments):
            for place, first, last in source.postings(hashes):
                lists[place].append((number, first, last))
                frequencies[place] += last - first
        for place, first, last in tail.lists:
            lists[place].append((len(self._segments), first, last))
            frequencies[place] += last - first
        documents = self._segment_documents + tail.held
        total_length = self._segment_length + tail.total_length
        weights: list[float] = []
        terms: list[tuple[bool, float, int, _Term]] = []
        for row, asked in enumerate(query.values()):
            frequency, found = frequencies[row], lists[row]
            weight = asked * math.log(1.0 + (documents - frequency + 0.5) / (frequency + 0.5))
            weights.append(weight)
            if found:
                term = _Term(row, weight, frequency, weight * (k1 + 1.0), found)
                terms.append((asked == SILENT, -weight, hashes[row], term))
        terms.sort()
        average = total_length / documents if total_length else 1.0
        heard = sum([not entry[0] for entry in terms])
        return _Plan(
            [*self._segments, tail] if tail.count else self._segments,
            [entry[-1] for entry in terms],
            heard,
            documents,
            _Statistics(average, k1, b),
            weights,
            frequencies,
        )


def _packed(source: _Source, base: int, impacts: Scores) -> bytes:
    """A source as the kernels take it."""
    bits_at, before_at, width = (0, 0, 0) if source.ranks is None else source.ranks.places
    return SOURCE.pack(
        *source.places, address(impacts), bits_at, before_at,
        len(source.documents), source.codes.itemsize, len(impacts), source.count, base, width,
    )  # fmt: skip


class _Plan:
    """One query: its terms from the one that weighs most to the least, and the sources with their statistics.

    Silent terms are searched only where there are no others.

    Documents of all sources are numbered through, source after source. Each score is the sum of its terms'
    contributions in the order of the plan, whichever way it is computed, so that its bits are always the same.
    """

    def __init__(
        self,
        sources: Sequence[_Source],
        asked: list[_Term],
        heard: int,
        documents: int,
        statistics: _Statistics,
        weights: list[float],
        frequencies: list[int],
    ) -> None:
        # Of all terms that the query gives, in its order: the weights with the idf, and how many documents have them.
        self.weights = weights
        self.frequencies = frequencies
        self.terms = asked[:heard] or asked
        self.documents = documents
        self.postings = sum([term.frequency for term in self.terms])
        self._asked = asked
        self._sources = sources
        self._statistics = statistics
        self._question = next(_questions)
        self._bases = [0]
        for source in sources:
            self._bases.append(self._bases[-1] + source.count)

    @cached_property
    def _rest(self) -> list[float]:
        """The most that the terms from each one on can add to a score."""
        rest = [0.0]
        for term in reversed(self.terms):
            rest.append(rest[-1] + term.bound * (1.0 + _SLACK))
        return rest[::-1]

    # Keys and numbers

    def find(self, keys: Keys) -> tuple[Numbers, Numbers]:
        """The numbers of the documents among these ascending keys, ascending, and the places of their keys."""
        numbers: list[Numbers] = []
        places: list[Numbers] = []
        for base, source in zip(self._bases, self._sources, strict=False):
            if not source.count:
                continue
            first = int(keys.searchsorted(source.first_key))
            last = int(keys.searchsorted(source.last_key, side="right"))
            if first == last:
                continue
            here, inside = np.arange(first, last), keys[first:last]
            found = source.places_of(inside)
            if not source.gapless:
                known = source.keys.take(found) == inside
                if np.count_nonzero(known) < len(known):
                    here, found = here[known], found[known]
            numbers.append(found + base)
            places.append(here)
        if not numbers:
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        return np.concatenate(numbers), np.concatenate(places)

    def keys(self, numbers: Numbers) -> Keys:
        """The keys of the documents with these ascending numbers."""
        keys = np.empty(len(numbers), dtype=np.int64)
        for i, first, last in self._split(numbers):
            source, inside = self._sources[i], numbers[first:last] - self._bases[i]
            keys[first:last] = inside + source.first_key if source.gapless else source.keys[inside]
        return keys

    def _split(self, numbers: Numbers) -> list[tuple[int, int, int]]:
        """Which sources these ascending numbers fall into, and where each one's begin and end."""
        edges = numbers.searchsorted(self._bases).tolist()
        return [(i, first, last) for i, (first, last) in enumerate(pairwise(edges)) if first < last]

    # Scores of given documents

    def scores(self, numbers: Numbers) -> Scores:
        """The scores of the documents with these ascending numbers."""
        scores = np.zeros(len(numbers))
        self._complete(numbers, scores, self.terms)
        return scores

    def _complete(self, numbers: Numbers, scores: Scores, pending: Sequence[_Term]) -> None:
        """Add the contributions of these terms to the scores of documents with ascending numbers.

        Looks the documents up in all lists of a source at once: of the ten numpy calls that a list would take,
        one is left.
        """
        if kernels.active is not None:
            kernels.active.look_up(self._lists(pending, as_bits=True), numbers, scores, 0)
            return
        for i, begin, end in self._split(numbers):
            spans = [(term.weight, entry) for term in pending for entry in term.lists if entry[0] == i]
            if not spans:
                continue
            wanted = (numbers[begin:end] - self._bases[i]).astype(np.uint32)
            step = max(_LOOKS // len(spans), 64)
            for start in range(0, len(wanted), step):
                part = slice(begin + start, begin + min(start + step, len(wanted)))
                self._look_up(self._sources[i], spans, wanted[start : start + step], scores[part])

    def _look_up(self, source: _Source, spans: Sequence[tuple[float, _List]], wanted: Array, scores: Scores) -> None:
        # Run after run, and row by row, so that every document gets its contributions in the order of the terms.
        for _, columns, contributions in self._found(source, spans, wanted):
            np.add.at(scores, columns, contributions)

    def _found(
        self, source: _Source, spans: Sequence[tuple[float, _List]], wanted: Array
    ) -> Iterator[tuple[Numbers, Numbers, Scores]]:
        """Which of the lists hold which of the wanted documents, and what that adds: list, document, contribution.

        In runs of lists that are kept alike.
        """
        ranks = source.ranks
        slots = [-1] * len(spans)
        if ranks is not None:
            ranks.make_room()
            slots = [ranks.slot(source.documents, first, last, self._question) for _, (_, first, last) in spans]
        begin = 0
        while begin < len(spans):
            end = begin + 1
            while end < len(spans) and (slots[end] < 0) == (slots[begin] < 0):
                end += 1
            firsts = np.array([first for _, (_, first, _) in spans[begin:end]])
            offset = begin
            if ranks is not None and slots[begin] >= 0:
                rows, columns, places = ranks.find(np.array(slots[begin:end]), wanted)
            else:
                rows, columns, places = _search_lists(source.documents, spans[begin:end], wanted)
            places += firsts.take(rows)
            weights = np.array([weight for weight, _ in spans[begin:end]]).take(rows)
            contributions = source.contributions(source.codes.take(places), weights, self._statistics)
            yield rows + offset, columns, contributions
            begin = end

    def contributions(self, numbers: Numbers) -> Scores:
        """What each term of the query adds to the documents with these ascending numbers, a row for each term."""
        table = np.zeros((len(self.weights), len(numbers)))
        if kernels.active is not None:
            kernels.active.look_up(self._all_lists, numbers, table, len(numbers))
            return table
        for i, begin, end in self._split(numbers):
            wanted = (numbers[begin:end] - self._bases[i]).astype(np.uint32)
            here = [(term, entry) for term in self._asked for entry in term.lists if entry[0] == i]
            rows_of = np.array([term.row for term, _ in here], dtype=np.intp)
            spans = [(term.weight, entry) for term, entry in here]
            for rows, columns, values in self._found(self._sources[i], spans, wanted):
                table[rows_of.take(rows), begin + columns] = values
        return table

    @cached_property
    def _all_lists(self) -> PostingLists:
        """The postings of all terms asked for, for a kernel to read and to look into."""
        return self._lists(self._asked, as_bits=True)

    def _lists(self, terms: Iterable[_Term], as_bits: bool) -> PostingLists:
        """The postings of these terms for a kernel to read or, those that are kept so `as_bits`, to look into."""
        sources = self._sources
        ranks = [source.ranks if as_bits else None for source in sources]
        for one in ranks:
            if one is not None:
                one.make_room()
        spans: list[int] = []
        weights: list[float] = []
        for term in terms:
            for number, first, last in term.lists:
                kept = ranks[number]
                slot = -1 if kept is None else kept.slot(sources[number].documents, first, last, self._question)
                spans += (number, first, last, slot, term.row)
                weights.append(term.weight)
        impacts = [source.impacts(self._statistics) for source in sources]
        held = sources, impacts, [one.arrays for one in ranks if one is not None]
        packed = b"".join(map(_packed, sources, self._bases, impacts))
        return PostingLists(packed, array("q", spans), array("d", weights), held)

    def best(self, numbers: Numbers, scores: Scores, limit: int) -> tuple[Keys, Scores]:
        """Keys and scores of the best of these documents (any order) with a score above zero."""
        threshold = _threshold(scores, limit) if len(scores) > limit else 0.0
        chosen = (scores >= threshold if threshold > 0.0 else scores > 0.0).nonzero()[0]
        chosen = chosen[numbers[chosen].argsort()]
        scores = scores[chosen]
        keys = self.keys(numbers[chosen])
        order = np.lexsort((keys, -scores))[:limit]
        return keys[order], scores[order]

    # Search

    def search(self, limit: int, among: Numbers | None, bounds: _Bounds | None) -> tuple[Keys, Scores]:
        """The best documents, reading no more of the common terms than it takes to be sure of them.

        Only `bounds` make it less than exact, as `TextIndex` says.
        """
        sums = _Sums(self._bases[-1], among)
        try:
            numbers, scores = (
                self._search_all(sums, limit) if bounds is None else self._search_within(sums, limit, bounds)
            )
            answer = self.best(numbers, scores, limit)
        except BaseException:
            sums.discard()
            raise
        sums.clear()
        return answer

    def _search_all(self, sums: _Sums, limit: int) -> tuple[Numbers, Scores]:
        """The documents that can be among the best, and their scores.

        The terms that weigh most name a few good documents. What these score in full is the least that one of the
        best must reach (`goal`), so it is known from then on how far the others must be read: until what is left
        is a part of that, and few documents are near enough to it to be worth a look into the lists left.
        """
        if sums.is_quick(self.postings):
            sums.add_lists(self._all_lists.first(sum([len(term.lists) for term in self.terms])))
            return sums.take_best(limit)
        position = 0
        numbers = np.empty(0, dtype=np.intp)
        while position < len(self.terms) and len(numbers) < limit:
            position = self._read_batch(sums, position)
            numbers, _ = sums.leading(_LEADING * limit)
        if position == len(self.terms):
            return sums.take_best(limit)
        known = np.sort(numbers)
        known_scores = sums.of(known)
        self._complete(known, known_scores, self.terms[position:])
        goal = _threshold(known_scores, limit) * (1.0 - _SLACK)
        sums.leave_out(known)
        while position < len(self.terms):
            left = self._rest[position]
            if left <= _NEAR * goal:
                others = sums.select(goal - left, self.terms[position].frequency // _LOOK_COST)
                if others is not None:
                    break
            position = self._read_batch(sums, position)
        else:
            others = sums.select_all(goal)
        more, more_scores = self._reaching(goal, *others, position)
        return np.concatenate((known, more)), np.concatenate((known_scores, more_scores))

    def _read_batch(self, sums: _Sums, position: int) -> int:
        """Sum up the next term, and those after it while they are small; the first that was not read."""
        first, size = position, 0
        most = max(_BATCH, self.documents // _SHARE)
        while position < len(self.terms) and (not size or size + self.terms[position].frequency <= most):
            size += self.terms[position].frequency
            position += 1
        self._read(sums, self.terms[first:position])
        return position

    def _read(self, sums: _Sums, pending: Sequence[_Term]) -> None:
        """Sum up these postings."""
        size = sum([last - first for term in pending for _, first, last in term.lists])
        if sums.is_quick(size):
            sums.add_lists(self._lists(pending, as_bits=False))
        else:
            sums.add(self._postings(pending), len(pending))

    def _reaching(self, goal: float, numbers: Numbers, scores: Scores, position: int) -> tuple[Numbers, Scores]:
        """Those of the documents that reach the goal with the terms from `position` on, and their scores."""
        order = np.argsort(numbers)
        numbers, scores = numbers[order], scores[order]
        while position < len(self.terms) and len(numbers):
            after = min(position + _TOGETHER, len(self.terms))
            self._complete(numbers, scores, self.terms[position:after])
            position = after
            near = (scores >= goal - self._rest[position]).nonzero()[0]
            numbers, scores = numbers[near], scores[near]
        return numbers, scores

    def _search_within(self, sums: _Sums, limit: int, bounds: _Bounds) -> tuple[Numbers, Scores]:
        """As `_search_all`, but no more than the budget is read, and no more than the shortlist scored."""
        position, left = 0, bounds.postings
        while position < len(self.terms) and self.terms[position].frequency <= left:
            left -= self.terms[position].frequency
            position += 1
        pending = self.terms[position:]
        self._read(sums, self.terms[:position])
        if pending and left:
            newest, older = self._newest(pending[0], left)
            self._read(sums, [pending[0]._replace(lists=newest)])
            pending = [pending[0]._replace(lists=older), *pending[1:]]
        size = max(bounds.shortlist, limit)
        numbers, scores = sums.select_all(sums.threshold(size))
        if len(numbers) > size:
            numbers, scores = self._newest_of_best(numbers, scores, size)
        known = np.sort(numbers)
        known_scores = sums.of(known)
        self._complete(known, known_scores, pending)
        return known, known_scores

    def _postings(self, terms: Iterable[_Term]) -> list[tuple[Numbers, Scores]]:
        """The documents and the contributions of each list of these terms, in their order."""
        postings: list[tuple[Numbers, Scores]] = []
        for term in terms:
            for i, first, last in term.lists:
                source = self._sources[i]
                numbers = source.documents[first:last].astype(np.intp)
                if self._bases[i]:
                    numbers += self._bases[i]
                codes = source.codes[first:last]
                postings.append((numbers, source.contributions(codes, term.weight, self._statistics)))
        return postings

    def _newest(self, term: _Term, size: int) -> tuple[list[_List], list[_List]]:
        """A term's postings of its `size` newest documents, and the others."""
        newer: list[_List] = []
        older: list[_List] = []
        for together in self._newest_first(term.lists):
            for entry, cut in zip(together, self._cuts(together, size), strict=True):
                source, first, last = entry
                newer.append((source, first + cut, last))
                older.append((source, first, first + cut))
            size = max(0, size - sum([last - first for _, first, last in together]))
        return [entry for entry in newer if entry[1] < entry[2]], [entry for entry in older if entry[1] < entry[2]]

    def _newest_first(self, lists: Iterable[_List]) -> list[list[_List]]:
        """The lists by the ranges of their sources' keys, the newest first; those whose ranges overlap together."""
        groups: list[tuple[int, list[_List]]] = []
        for entry in sorted(lists, key=lambda entry: -self._sources[entry[0]].last_key):
            source = self._sources[entry[0]]
            if groups and source.last_key >= groups[-1][0]:
                groups[-1][1].append(entry)
                groups[-1] = (min(groups[-1][0], source.first_key), groups[-1][1])
            else:
                groups.append((source.first_key, [entry]))
        return [together for _, together in groups]

    def _cuts(self, lists: list[_List], size: int) -> list[int]:
        """Where the newest `size` postings of all these lists begin in each."""
        lengths = [last - first for _, first, last in lists]
        if not size or size >= sum(lengths):
            return lengths if not size else [0] * len(lists)
        if len(lists) == 1:  # mostly: segments follow one another, and their keys need not be read
            return [lengths[0] - size]
        keys = [self._newest_keys(entry, size) for entry in lists]
        joined = np.concatenate(keys)
        oldest = np.partition(joined, len(joined) - size)[len(joined) - size]
        return [
            length - len(ends) + int(ends.searchsorted(oldest)) for length, ends in zip(lengths, keys, strict=True)
        ]

    def _newest_keys(self, entry: _List, size: int) -> Keys:
        number, first, last = entry
        source = self._sources[number]
        return source.keys[source.documents[max(first, last - size) : last]]

    def _newest_of_best(self, numbers: Numbers, scores: Scores, size: int) -> tuple[Numbers, Scores]:
        """The `size` documents with the highest scores, the newest of those that tie for the last places."""
        threshold = _threshold(scores, size)
        above, tied = (scores > threshold).nonzero()[0], (scores == threshold).nonzero()[0]
        tied = tied[np.argsort(numbers[tied])]
        places = size - len(above)
        if places < len(tied):
            tied = tied[np.argsort(self.keys(numbers[tied]))[-places:]]
        chosen = np.concatenate((above, tied))
        return numbers[chosen], scores[chosen]


class _Sums:
    """The sums of the scores of all documents while terms are read, in this thread's buffer.

    Keeps a list of the documents met while these are few, and goes over all once they are many. With `among`,
    the sums of all others are minus infinity, and stay so.
    """

    __slots__ = ("_dense", "_empty", "_filled", "_found", "_read", "_scores")

    def __init__(self, size: int, among: Numbers | None) -> None:
        self._scores = _buffer(size)[:size]
        self._found: list[Numbers] = []
        self._read = 0
        self._dense = False
        self._empty = False
        self._filled = among is not None
        if among is not None:
            self._scores.fill(-math.inf)
            self._scores[among] = 0.0

    def is_quick(self, postings: int) -> bool:
        """Whether so many more are best read by a kernel, which goes over all sums: not where they are few."""
        return kernels.active is not None and (
            self._dense or _DENSE_FROM * (self._read + postings) > len(self._scores)
        )

    def add_lists(self, lists: PostingLists) -> None:
        """As `add`, by a kernel."""
        assert kernels.active is not None
        self._dense = True
        kernels.active.add(lists, self._scores)

    def add(self, postings: Sequence[tuple[Numbers, Scores]], terms: int) -> None:
        """Add contributions (above zero) in this order. A document stands once for each of the `terms`."""
        self._read += sum([len(numbers) for numbers, _ in postings])
        self._dense = self._dense or _DENSE_FROM * self._read > len(self._scores)
        if self._dense:
            for numbers, contributions in postings:
                np.add.at(self._scores, numbers, contributions)
        elif postings:
            joined = np.concatenate([numbers for numbers, _ in postings])
            met = self._scores.take(joined) == 0.0
            np.add.at(self._scores, joined, np.concatenate([contributions for _, contributions in postings]))
            fresh = joined.compress(met)
            if terms > 1:
                fresh.sort()
                fresh = fresh.compress(_changes(fresh))
            self._found.append(fresh)

    def leading(self, count: int) -> tuple[Numbers, Scores]:
        """About `count` of the documents with the highest sums, or all that have one."""
        numbers, scores = self.select_all(self.threshold(count))
        if len(numbers) > 2 * count:  # equal sums
            chosen = np.argpartition(scores, len(scores) - count)[len(scores) - count :]
            numbers, scores = numbers[chosen], scores[chosen]
        return numbers, scores

    def leave_out(self, numbers: Numbers) -> None:
        """Never select these documents from now on."""
        self._scores[numbers] = -math.inf
        if not self._dense:
            self._found.append(numbers)  # to be cleared; those met twice are never selected

    def of(self, numbers: Numbers) -> Scores:
        """The sums of these documents."""
        return self._scores.take(numbers)

    def _documents(self) -> Numbers:
        """The documents met, each once."""
        if len(self._found) != 1:
            self._found = [np.concatenate(self._found)]
        return self._found[0]

    def _sums(self) -> Scores:
        return self._scores if self._dense else self._scores.take(self._documents())

    def threshold(self, limit: int) -> float:
        """The sum of the document at place `limit`; 0.0 if fewer have one above zero."""
        if self._dense and kernels.active is not None:
            return kernels.active.threshold(self._scores, limit)
        sums = self._sums()
        width = len(sums) // 64
        if self._dense and width >= limit:
            # Each of the `limit` best groups has a document of at least the lowest of their maxima. Only
            # documents that reach it matter, and these are few: an eighth of the time of a full partition.
            reached = _threshold(sums[: 64 * width].reshape(64, width).max(axis=0), limit)
            if reached > 0.0:
                return _threshold(sums.take((sums >= reached).nonzero()[0]), limit)
        return _threshold(sums.take((sums > 0.0).nonzero()[0]), limit)

    def select(self, lowest: float, most: int | None) -> tuple[Numbers, Scores] | None:
        """The documents, in any order, whose sum is above zero and not below `lowest`; None if over `most`."""
        if self._dense and kernels.active is not None and most is None:
            return kernels.active.select(self._scores, lowest)
        sums = self._sums()
        chosen = sums >= lowest if lowest > 0.0 else sums > 0.0
        if most is not None and np.count_nonzero(chosen) > most:
            return None
        places = chosen.nonzero()[0]
        return (places if self._dense else self._documents().take(places)), sums.take(places)

    def select_all(self, lowest: float) -> tuple[Numbers, Scores]:
        selected = self.select(lowest, None)
        assert selected is not None
        return selected

    def take_best(self, limit: int) -> tuple[Numbers, Scores]:
        """The documents with the `limit` highest sums, and those that tie with the last: the last thing asked."""
        if self._dense and kernels.active is not None:
            self._empty = True
            return kernels.active.take(self._scores, limit)
        return self.select_all(self.threshold(limit))

    def clear(self) -> None:
        if self._empty:
            return
        if self._dense or self._filled:
            self._scores.fill(0.0)
        else:
            self._scores[self._documents()] = 0.0

    def discard(self) -> None:
        """Leave the buffer to nobody: it may hold sums that are not known any more."""
        _scratch.buffer = None


def _threshold(scores: Scores, limit: int) -> float:
    """The score of the document at place `limit`; 0.0 if there are fewer."""
    if len(scores) < limit:
        return 0.0
    return float(np.partition(scores, len(scores) - limit)[len(scores) - limit])


def _buffer(size: int) -> Scores:
    """This thread's zeroed scores, for at least `size` documents. Untouched pages of it cost nothing."""
    buffer: Scores | None = getattr(_scratch, "buffer", None)
    if buffer is None or len(buffer) < size:
        buffer = np.zeros(max(size + size // 4, 1 << 12))
        _scratch.buffer = buffer
    return buffer
