"""BM25 scores of a query: the plan of its terms, the sums of their contributions, and the best documents.

The plan reads segments and tail alike, through `text_postings.py`. On every path, a score is the sum of the
contributions of its terms in the order of the plan, so its bits do not depend on how documents are divided between
segments and tail.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, count, pairwise
from typing import NamedTuple

import numpy as np

from loom.errors import InvalidInput
from loom.index import kernels
from loom.index.kernels import SOURCE, PostingLists, address
from loom.index.segments import Array
from loom.index.text_postings import (
    Keys,
    Numbers,
    PostingList,
    Postings,
    Scores,
    SegmentPostings,
    Statistics,
    find_in_lists,
)
from loom.index.text_segments import run_starts, term_hash
from loom.index.text_tail import TextTail

__all__ = ["DEFAULT_LIMITS", "K1", "SILENT", "B", "QueryPlan", "TextLimits"]

K1 = 0.9
B = 0.4
"""BM25's saturation and length weights. Memories are short, so their length says little about them."""

SILENT = 1e-6
"""The weight of a term that only `contributions` reports. Beside other terms it neither finds nor scores anything."""

_LARGEST_WEIGHT = 1e6
# Upper bounds are sums of a few rounded products. One part in 10^9 is far more than their error and far less than a
# difference in scores that matters.
_SLACK = 1e-9
# The score to reach is the `limit`-th highest in a sample of good documents. The sample has this many times `limit`
# documents. At 100,000 documents, a factor of 2 reads one or two more lists, and 6 takes as much time as it saves.
_SAMPLE_FACTOR = 5
# Documents are looked up once the terms that are left can add at most this share of the score to reach.
_NEAR = 0.75
# Looking up a document in a list costs as much as reading this many postings of the list.
_LOOKUP_COST = 8
# Scanning all sums costs as much as reading a posting for one in this many documents.
_PASS_SHARE = 8
# After this many terms are looked up, documents that can no longer be among the best are dropped.
_TERMS_PER_LOOKUP = 4
# Documents times lists of one lookup without kernels. Its scratch buffer of half a megabyte stays in the cache.
_LOOKUP_CELLS = 1 << 16

_query_numbers = count()
_scratch = threading.local()  # a score for each document, all zero between searches


class TextLimits(NamedTuple):
    """The limits of a text search. The first three decide which documents are found; `TextIndex` explains them.

    The others change the time and the memory of a search, never its result.
    """

    postings_budget: int = 1 << 19
    exact_documents: int = 1 << 17
    shortlist: int = 1 << 7
    batch_postings: int = 4_096
    """The most postings of terms that are read together: a term costs 15 us, a posting 4 ns."""
    dense_share: int = 16
    """All sums are scanned once one in this many documents has a posting; until then, documents found are listed."""
    common_share: int = 32
    """A list that has more than one in this many documents of its segment is common and may get a bitmap."""
    bitmap_bytes: int = 1 << 25
    """The memory of all bitmaps of an index."""
    fewest_bitmaps: int = 64
    """A segment has no bitmaps if there is no room for this many."""


DEFAULT_LIMITS = TextLimits()


class _Term(NamedTuple):
    """A query term that some document has.

    `row` is its place in the query, `weight` includes the idf, and `bound` is the most it can add to a score. `lists`
    has its postings, or those that are not read yet.
    """

    row: int
    weight: float
    frequency: int
    bound: float
    lists: list[PostingList]


class QueryPlan:
    """A query with its terms in descending order of weight, the sources of their postings, and the statistics.

    Silent terms come last and are searched only if there are no others. The documents of all sources are numbered
    consecutively, source by source. Raises `InvalidInput` for a weight or a parameter out of range.
    """

    def __init__(
        self,
        query: Mapping[str, float],
        segments: Sequence[SegmentPostings],
        tail: TextTail,
        k1: float,
        b: float,
        limits: TextLimits,
    ) -> None:
        if not (k1 >= 0.0 and 0.0 <= b <= 1.0):
            raise InvalidInput(f"BM25 needs k1 >= 0 and b from 0 to 1, not k1={k1} and b={b}")
        for weight in query.values():
            if not SILENT <= weight <= _LARGEST_WEIGHT:
                raise InvalidInput(
                    f"the weight of a query term must lie between {SILENT} and {_LARGEST_WEIGHT}, not {weight}"
                )
        hashes = [term_hash(term) for term in query]
        recent = tail.view(hashes)
        lists: list[list[PostingList]] = [[] for _ in hashes]
        for number, found in enumerate((*(source.find_terms(hashes) for source in segments), recent.lists)):
            for place, first, last in found:
                lists[place].append((number, first, last))
        # For each term of the query, in its order: the number of documents that have it, and the weight with the idf.
        self.frequencies = [sum([last - first for _, first, last in own]) for own in lists]
        self.weights: list[float] = []
        self.documents = recent.held + sum([source.count for source in segments])
        total_length = recent.total_length + sum([source.total_length for source in segments])
        terms: list[tuple[bool, float, int, _Term]] = []
        for row, (asked, frequency) in enumerate(zip(query.values(), self.frequencies, strict=True)):
            weight = asked * math.log(1.0 + (self.documents - frequency + 0.5) / (frequency + 0.5))
            self.weights.append(weight)
            if lists[row]:
                term = _Term(row, weight, frequency, weight * (k1 + 1.0), lists[row])
                terms.append((asked == SILENT, -weight, hashes[row], term))
        terms.sort()
        self._asked = [entry[-1] for entry in terms]
        self.terms = self._asked[: sum([not entry[0] for entry in terms])] or self._asked
        self._postings = sum([term.frequency for term in self.terms])
        self._sources: Sequence[Postings] = [*segments, recent] if recent.count else segments
        self._statistics = Statistics(total_length / self.documents if total_length else 1.0, k1, b)
        self._limits = limits
        self._number = next(_query_numbers)
        self._bases = [*accumulate((source.count for source in self._sources), initial=0)]

    def search(self, limit: int) -> tuple[Keys, Scores]:
        """Keys and scores of the best documents, best first, ties by ascending key; see `TextIndex`."""
        limits = self._limits
        exact = self.documents <= limits.exact_documents or self._postings <= limits.postings_budget
        return self._search(limit, None, exact)

    def search_among(self, limit: int, keys: Keys) -> tuple[Keys, Scores]:
        """The best of the documents with these ascending keys."""
        chosen, _ = self.find(keys)
        # A lookup costs about as much as reading eight postings, and a search skips most of the postings.
        if len(chosen) <= 1_024 or 4 * len(chosen) * len(self.terms) <= self._postings:
            return self._best(chosen, self.scores(chosen), limit)
        return self._search(limit, chosen, True)

    @cached_property
    def _bounds_from(self) -> list[float]:
        """The most that the terms from each position on can add to a score."""
        bounds = accumulate((term.bound * (1.0 + _SLACK) for term in reversed(self.terms)), initial=0.0)
        return [*bounds][::-1]

    # Keys and numbers

    def find(self, keys: Keys) -> tuple[Numbers, Numbers]:
        """The numbers, ascending, of the documents with these ascending keys, and the places of their keys."""
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

    def _keys(self, numbers: Numbers) -> Keys:
        keys = np.empty(len(numbers), dtype=np.int64)
        for i, first, last in self._split(numbers):
            source, inside = self._sources[i], numbers[first:last] - self._bases[i]
            keys[first:last] = inside + source.first_key if source.gapless else source.keys[inside]
        return keys

    def _split(self, numbers: Numbers) -> list[tuple[int, int, int]]:
        """The sources of these ascending numbers, with the first place and the end of each source's numbers."""
        edges = numbers.searchsorted(self._bases).tolist()
        return [(i, first, last) for i, (first, last) in enumerate(pairwise(edges)) if first < last]

    # Scores of given documents

    def scores(self, numbers: Numbers) -> Scores:
        scores = np.zeros(len(numbers))
        self._add_terms(numbers, scores, self.terms)
        return scores

    def contributions(self, numbers: Numbers) -> Scores:
        """The contribution of each query term to the documents with these ascending numbers, a row per term."""
        table = np.zeros((len(self.weights), len(numbers)))
        compiled = kernels.active
        if compiled is not None:
            compiled.look_up(self._all_lists, numbers, table, len(numbers))
            return table
        for i, begin, end in self._split(numbers):
            wanted = (numbers[begin:end] - self._bases[i]).astype(np.uint32)
            here = [(term, entry) for term in self._asked for entry in term.lists if entry[0] == i]
            rows_of = np.array([term.row for term, _ in here], dtype=np.intp)
            lists = [(term.weight, entry) for term, entry in here]
            for rows, columns, values in self._find_contributions(self._sources[i], lists, wanted):
                table[rows_of.take(rows), begin + columns] = values
        return table

    def _add_terms(self, numbers: Numbers, scores: Scores, terms: Sequence[_Term]) -> None:
        """Add the contributions of these terms to the scores of documents with ascending numbers.

        The numpy path looks the documents up in all lists of a source at once: ten calls for all lists, where one
        list at a time would take ten for each.
        """
        compiled = kernels.active
        if compiled is not None:
            compiled.look_up(self._packed_lists(terms, with_bitmaps=True), numbers, scores, 0)
            return
        for i, begin, end in self._split(numbers):
            lists = [(term.weight, entry) for term in terms for entry in term.lists if entry[0] == i]
            if not lists:
                continue
            wanted = (numbers[begin:end] - self._bases[i]).astype(np.uint32)
            step = max(_LOOKUP_CELLS // len(lists), 64)
            for start in range(0, len(wanted), step):
                part = scores[begin + start : begin + min(start + step, len(wanted))]
                # Ordered by list, so every document gets its contributions in the order of the terms.
                for _, columns, values in self._find_contributions(
                    self._sources[i], lists, wanted[start : start + step]
                ):
                    np.add.at(part, columns, values)

    def _find_contributions(
        self, source: Postings, lists: Sequence[tuple[float, PostingList]], wanted: Array
    ) -> Iterator[tuple[Numbers, Numbers, Scores]]:
        """Yield the wanted documents that the (weighted) lists hold: list, document, contribution.

        The result is ordered by list, in runs of lists that all have a bitmap or all have none.
        """
        bitmaps = source.bitmaps
        slots = [-1] * len(lists)
        if bitmaps is not None:
            bitmaps.make_room()
            slots = [bitmaps.slot(source.documents, first, last, self._number) for _, (_, first, last) in lists]
        begin = 0
        while begin < len(lists):
            end = begin + 1
            while end < len(lists) and (slots[end] < 0) == (slots[begin] < 0):
                end += 1
            firsts = np.array([first for _, (_, first, _) in lists[begin:end]])
            offset = begin
            if bitmaps is not None and slots[begin] >= 0:
                rows, columns, places = bitmaps.find(np.array(slots[begin:end]), wanted)
            else:
                rows, columns, places = find_in_lists(source.documents, lists[begin:end], wanted)
            places += firsts.take(rows)
            weights = np.array([weight for weight, _ in lists[begin:end]]).take(rows)
            contributions = source.contributions(source.codes.take(places), weights, self._statistics)
            yield rows + offset, columns, contributions
            begin = end

    # Posting lists for the kernels

    @cached_property
    def _all_lists(self) -> PostingLists:
        """The postings of all terms of the query, to be read or looked up."""
        return self._packed_lists(self._asked, with_bitmaps=True)

    def _packed_lists(self, terms: Iterable[_Term], with_bitmaps: bool) -> PostingLists:
        """The postings of these terms, to be read, or `with_bitmaps` (where there are any) to be looked up."""
        sources = self._sources
        bitmaps = [source.bitmaps if with_bitmaps else None for source in sources]
        for one in bitmaps:
            if one is not None:
                one.make_room()
        spans: list[int] = []
        weights: list[float] = []
        for term in terms:
            for number, first, last in term.lists:
                own = bitmaps[number]
                slot = -1 if own is None else own.slot(sources[number].documents, first, last, self._number)
                spans += (number, first, last, slot, term.row)
                weights.append(term.weight)
        impacts = [source.impacts(self._statistics) for source in sources]
        held = sources, impacts, [one.arrays for one in bitmaps if one is not None]
        packed = b"".join(map(_packed_source, sources, self._bases, impacts))
        return PostingLists(packed, array("q", spans), array("d", weights), held)

    # Search

    def _search(self, limit: int, among: Numbers | None, exact: bool) -> tuple[Keys, Scores]:
        """The best documents, among these numbers if given. Keeps to the postings budget unless `exact`."""
        sums = _ScoreSums(self._bases[-1], among, self._limits.dense_share)
        try:
            numbers, scores = self._search_exactly(sums, limit) if exact else self._search_budget(sums, limit)
            answer = self._best(numbers, scores, limit)
        except BaseException:
            sums.discard()
            raise
        sums.clear()
        return answer

    def _best(self, numbers: Numbers, scores: Scores, limit: int) -> tuple[Keys, Scores]:
        """Keys and scores of the best of these documents (in any order) with a score above zero."""
        threshold = _nth_highest(scores, limit) if len(scores) > limit else 0.0
        chosen = (scores >= threshold if threshold > 0.0 else scores > 0.0).nonzero()[0]
        chosen = chosen[numbers[chosen].argsort()]
        scores = scores[chosen]
        keys = self._keys(numbers[chosen])
        order = np.lexsort((keys, -scores))[:limit]
        return keys[order], scores[order]

    def _search_exactly(self, sums: _ScoreSums, limit: int) -> tuple[Numbers, Scores]:
        """The documents that can be among the best, and their scores.

        The heaviest terms find a sample of good documents. The full scores of the sample give the score that a
        document must reach to be among the best (`goal`). Further terms are read until the terms that are left can
        add only a part of the goal. Few documents are then near enough to the goal to be looked up in the lists of
        the other terms.
        """
        if sums.prefers_kernel(self._postings):
            sums.add_lists(self._all_lists.first(sum([len(term.lists) for term in self.terms])))
            return sums.take_best(limit)
        position = 0
        numbers = np.empty(0, dtype=np.intp)
        while position < len(self.terms) and len(numbers) < limit:
            position = self._read_batch(sums, position)
            numbers, _ = sums.leading(_SAMPLE_FACTOR * limit)
        if position == len(self.terms):
            return sums.take_best(limit)
        known = np.sort(numbers)
        known_scores = sums.of(known)
        self._add_terms(known, known_scores, self.terms[position:])
        goal = _nth_highest(known_scores, limit) * (1.0 - _SLACK)
        sums.leave_out(known)
        while position < len(self.terms):
            left = self._bounds_from[position]
            if left <= _NEAR * goal:
                others = sums.select(goal - left, self.terms[position].frequency // _LOOKUP_COST)
                if others is not None:
                    break
            position = self._read_batch(sums, position)
        else:
            others = sums.select_all(goal)
        more, more_scores = self._reaching(goal, *others, position)
        return np.concatenate((known, more)), np.concatenate((known_scores, more_scores))

    def _search_budget(self, sums: _ScoreSums, limit: int) -> tuple[Numbers, Scores]:
        """Like `_search_exactly`, but reads at most the postings budget and scores at most the shortlist."""
        position, left = 0, self._limits.postings_budget
        while position < len(self.terms) and self.terms[position].frequency <= left:
            left -= self.terms[position].frequency
            position += 1
        pending = self.terms[position:]
        self._read(sums, self.terms[:position])
        if pending and left:
            newest, older = self._newest(pending[0], left)
            self._read(sums, [pending[0]._replace(lists=newest)])
            pending = [pending[0]._replace(lists=older), *pending[1:]]
        size = max(self._limits.shortlist, limit)
        numbers, scores = sums.select_all(sums.threshold(size))
        if len(numbers) > size:
            numbers, scores = self._newest_of_best(numbers, scores, size)
        known = np.sort(numbers)
        known_scores = sums.of(known)
        self._add_terms(known, known_scores, pending)
        return known, known_scores

    def _read_batch(self, sums: _ScoreSums, position: int) -> int:
        """Add up the next term, and the following ones while they are small. Returns the next position."""
        first, size = position, 0
        most = max(self._limits.batch_postings, self.documents // _PASS_SHARE)
        while position < len(self.terms) and (not size or size + self.terms[position].frequency <= most):
            size += self.terms[position].frequency
            position += 1
        self._read(sums, self.terms[first:position])
        return position

    def _read(self, sums: _ScoreSums, terms: Sequence[_Term]) -> None:
        """Add up the postings of these terms."""
        size = sum([last - first for term in terms for _, first, last in term.lists])
        if sums.prefers_kernel(size):
            sums.add_lists(self._packed_lists(terms, with_bitmaps=False))
        else:
            sums.add(self._contributions_of(terms), len(terms))

    def _contributions_of(self, terms: Iterable[_Term]) -> list[tuple[Numbers, Scores]]:
        """The document numbers and contributions of each list of these terms, in their order."""
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

    def _reaching(self, goal: float, numbers: Numbers, scores: Scores, position: int) -> tuple[Numbers, Scores]:
        """The documents that reach the goal with the terms from `position` on, and their full scores."""
        order = np.argsort(numbers)
        numbers, scores = numbers[order], scores[order]
        while position < len(self.terms) and len(numbers):
            after = min(position + _TERMS_PER_LOOKUP, len(self.terms))
            self._add_terms(numbers, scores, self.terms[position:after])
            position = after
            near = (scores >= goal - self._bounds_from[position]).nonzero()[0]
            numbers, scores = numbers[near], scores[near]
        return numbers, scores

    # The newest documents, by key

    def _newest(self, term: _Term, size: int) -> tuple[list[PostingList], list[PostingList]]:
        """The postings of a term's `size` newest documents, and its other postings."""
        newer: list[PostingList] = []
        older: list[PostingList] = []
        for group in self._newest_first(term.lists):
            for entry, cut in zip(group, self._cuts(group, size), strict=True):
                source, first, last = entry
                newer.append((source, first + cut, last))
                older.append((source, first, first + cut))
            size = max(0, size - sum([last - first for _, first, last in group]))
        return [entry for entry in newer if entry[1] < entry[2]], [entry for entry in older if entry[1] < entry[2]]

    def _newest_first(self, lists: Iterable[PostingList]) -> list[list[PostingList]]:
        """The lists in descending order of their sources' keys; sources whose key ranges overlap form one group."""
        groups: list[tuple[int, list[PostingList]]] = []
        for entry in sorted(lists, key=lambda entry: -self._sources[entry[0]].last_key):
            source = self._sources[entry[0]]
            if groups and source.last_key >= groups[-1][0]:
                groups[-1][1].append(entry)
                groups[-1] = (min(groups[-1][0], source.first_key), groups[-1][1])
            else:
                groups.append((source.first_key, [entry]))
        return [group for _, group in groups]

    def _cuts(self, lists: list[PostingList], size: int) -> list[int]:
        """For each list, the place where its part of the newest `size` postings of all lists begins."""
        lengths = [last - first for _, first, last in lists]
        if not size or size >= sum(lengths):
            return lengths if not size else [0] * len(lists)
        if len(lists) == 1:  # the usual case: segments do not overlap, and their keys need not be read
            return [lengths[0] - size]
        keys = [self._newest_keys(entry, size) for entry in lists]
        joined = np.concatenate(keys)
        oldest = np.partition(joined, len(joined) - size)[len(joined) - size]
        return [
            length - len(ends) + int(ends.searchsorted(oldest)) for length, ends in zip(lengths, keys, strict=True)
        ]

    def _newest_keys(self, entry: PostingList, size: int) -> Keys:
        number, first, last = entry
        source = self._sources[number]
        return source.keys[source.documents[max(first, last - size) : last]]

    def _newest_of_best(self, numbers: Numbers, scores: Scores, size: int) -> tuple[Numbers, Scores]:
        """The `size` documents with the highest scores; of those that tie for the last places, the newest."""
        threshold = _nth_highest(scores, size)
        above, tied = (scores > threshold).nonzero()[0], (scores == threshold).nonzero()[0]
        tied = tied[np.argsort(numbers[tied])]
        places = size - len(above)
        if places < len(tied):
            tied = tied[np.argsort(self._keys(numbers[tied]))[-places:]]
        chosen = np.concatenate((above, tied))
        return numbers[chosen], scores[chosen]


def _packed_source(source: Postings, base: int, impacts: Scores) -> bytes:
    bits_at, before_at, words = (0, 0, 0) if source.bitmaps is None else source.bitmaps.addresses
    return SOURCE.pack(
        *source.addresses, address(impacts), bits_at, before_at,
        len(source.documents), source.codes.itemsize, len(impacts), source.count, base, words,
    )  # fmt: skip


class _ScoreSums:
    """A sum of contributions for each document while terms are read, in this thread's buffer.

    Lists the documents found while these are few, and scans all sums ("dense") once they are many. With `among`, the
    sums of all other documents are minus infinity and stay so.
    """

    __slots__ = ("_cleared", "_dense", "_dense_share", "_filled", "_met", "_read", "_sums")

    def __init__(self, size: int, among: Numbers | None, dense_share: int) -> None:
        self._sums = _buffer(size)[:size]
        self._met: list[Numbers] = []
        self._read = 0
        self._dense = False
        self._dense_share = dense_share
        self._cleared = False
        self._filled = among is not None
        if among is not None:
            self._sums.fill(-math.inf)
            self._sums[among] = 0.0

    def prefers_kernel(self, postings: int) -> bool:
        """Whether this many more postings would make the sums dense, so that a kernel should read them."""
        return kernels.active is not None and (
            self._dense or self._dense_share * (self._read + postings) > len(self._sums)
        )

    def add_lists(self, lists: PostingLists) -> None:
        compiled = kernels.active
        assert compiled is not None
        self._dense = True
        compiled.add(lists, self._sums)

    def add(self, postings: Sequence[tuple[Numbers, Scores]], terms: int) -> None:
        """Add contributions (above zero) in this order. A document occurs at most once per term."""
        self._read += sum([len(numbers) for numbers, _ in postings])
        self._dense = self._dense or self._dense_share * self._read > len(self._sums)
        if self._dense:
            for numbers, contributions in postings:
                np.add.at(self._sums, numbers, contributions)
        elif postings:
            joined = np.concatenate([numbers for numbers, _ in postings])
            is_new = self._sums.take(joined) == 0.0
            np.add.at(self._sums, joined, np.concatenate([contributions for _, contributions in postings]))
            new = joined.compress(is_new)
            if terms > 1:
                new.sort()
                new = new.compress(run_starts(new))
            self._met.append(new)

    def leading(self, count: int) -> tuple[Numbers, Scores]:
        """About `count` documents with the highest sums, or all documents that have a sum if these are fewer."""
        numbers, scores = self.select_all(self.threshold(count))
        if len(numbers) > 2 * count:  # equal sums
            chosen = np.argpartition(scores, len(scores) - count)[len(scores) - count :]
            numbers, scores = numbers[chosen], scores[chosen]
        return numbers, scores

    def leave_out(self, numbers: Numbers) -> None:
        """Never select these documents from now on."""
        self._sums[numbers] = -math.inf
        if not self._dense:
            self._met.append(numbers)  # for `clear`; a document that is listed twice is never selected

    def of(self, numbers: Numbers) -> Scores:
        return self._sums.take(numbers)

    def _documents(self) -> Numbers:
        """The documents found, each once."""
        if len(self._met) != 1:
            self._met = [np.concatenate(self._met)]
        return self._met[0]

    def _candidate_sums(self) -> Scores:
        return self._sums if self._dense else self._sums.take(self._documents())

    def threshold(self, limit: int) -> float:
        """The `limit`-th highest sum; 0.0 if fewer are above zero."""
        compiled = kernels.active
        if self._dense and compiled is not None:
            return compiled.threshold(self._sums, limit)
        sums = self._candidate_sums()
        width = len(sums) // 64
        if self._dense and width >= limit:
            # Each of the `limit` best groups has a document that reaches the lowest of their maxima. Only documents
            # that reach it matter, and these are few: this takes an eighth of the time of a full partition.
            reached = _nth_highest(sums[: 64 * width].reshape(64, width).max(axis=0), limit)
            if reached > 0.0:
                return _nth_highest(sums.take((sums >= reached).nonzero()[0]), limit)
        return _nth_highest(sums.take((sums > 0.0).nonzero()[0]), limit)

    def select(self, lowest: float, most: int | None) -> tuple[Numbers, Scores] | None:
        """The documents, in any order, with a sum above zero and at least `lowest`; None if more than `most`."""
        compiled = kernels.active
        if self._dense and compiled is not None and most is None:
            return compiled.select(self._sums, lowest)
        sums = self._candidate_sums()
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
        """The documents with the `limit` highest sums, and those that tie with the last. Ends the use of the sums."""
        compiled = kernels.active
        if self._dense and compiled is not None:
            self._cleared = True
            return compiled.take(self._sums, limit)
        return self.select_all(self.threshold(limit))

    def clear(self) -> None:
        if self._cleared:
            return
        if self._dense or self._filled:
            self._sums.fill(0.0)
        else:
            self._sums[self._documents()] = 0.0

    def discard(self) -> None:
        """Drop the buffer after a failure; its contents are undefined."""
        _scratch.buffer = None


def _nth_highest(scores: Scores, limit: int) -> float:
    """The `limit`-th highest score; 0.0 if there are fewer."""
    if len(scores) < limit:
        return 0.0
    return float(np.partition(scores, len(scores) - limit)[len(scores) - limit])


def _buffer(size: int) -> Scores:
    """This thread's buffer of zeros, for at least `size` documents. Pages that are never touched cost nothing."""
    buffer: Scores | None = getattr(_scratch, "buffer", None)
    if buffer is None or len(buffer) < size:
        buffer = np.zeros(max(size + size // 4, 1 << 12))
        _scratch.buffer = buffer
    return buffer
