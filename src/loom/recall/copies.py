"""Copies among the answers to a question: each text appears once among the hits.

`loom.text.duplicates` decides what may differ in a copy. This module decides which records are compared, and how
similar two of them must be to count as copies. The number of comparisons is bounded, even for many records of one
template.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from loom.index.analysis import attached
from loom.storage.contract import Record
from loom.text.duplicates import Protected, may_merge, normal_form, normal_forms, protected
from loom.text.words import query_terms

__all__ = ["COMPARED", "COMPARED_WITH", "Duplicates", "jaccard"]

# Two texts are copies if their scores, lengths and terms differ by at most this share.
_ALIKE = 0.1
_ROUGHLY_ALIKE = 0.6

COMPARED = 2_000
"""The number of characters of a text that are compared, from its beginning."""

COMPARED_WITH = 32
"""The most records with which a record is compared."""

_ChosenRecord = tuple[int, Record, int]
_CopyKey = tuple[str | None, tuple[tuple[str, ...], ...]]


@dataclass(slots=True)
class _Bucket:
    """The chosen records of one speaker with the same words of the question: places, records and numbers.

    `forms` has the numbers by the normal forms of their texts and of their copies. In a large bucket, `by_key` groups
    the first `keyed` of them by the details that must be equal in a copy.
    """

    chosen: list[_ChosenRecord]
    forms: dict[str, int] = field(default_factory=dict)
    by_key: dict[_CopyKey, list[_ChosenRecord]] = field(default_factory=dict)
    keyed: int = 0


class Duplicates:
    """Finds the chosen record that another one copies, exactly or nearly.

    Only records of one speaker with the same words of the question are compared: a difference in those words may be
    the answer. Few records share a bucket, and each text is analysed once.
    """

    def __init__(self, totals: Sequence[float]) -> None:
        self._totals = totals
        self._buckets: dict[tuple[str | None, bytes], _Bucket] = {}
        self._forms: dict[int, str] = {}
        self._rough: dict[int, frozenset[str]] = {}
        self._terms: dict[int, frozenset[str]] = {}
        self._protected: dict[int, Protected] = {}

    def expect(self, found: Iterable[tuple[Record, int, bytes]]) -> None:
        """Prepare all records that will be compared, those that share a bucket."""
        by_bucket: dict[tuple[str | None, bytes], list[tuple[int, Record]]] = {}
        for record, place, words in found:
            by_bucket.setdefault((record.name, words), []).append((place, record))
        shared = [one for key, ones in by_bucket.items() if len(ones) > 1 or key in self._buckets for one in ones]
        forms = normal_forms([record.content for _, record in shared])
        for (place, record), form in zip(shared, forms, strict=True):
            self._forms[place] = f"{form}\n{_attached(record)}"

    def add(self, record: Record, place: int, words: bytes, number: int) -> None:
        """Add a chosen record, which copies none of the others."""
        bucket = self._buckets.get((record.name, words))
        if bucket is None:
            self._buckets[record.name, words] = _Bucket([(place, record, number)])
        else:
            bucket.forms[self._form(record, place)] = number
            bucket.chosen.append((place, record, number))

    def find(self, record: Record, place: int, words: bytes) -> int | None:
        """Return the number of the chosen record that this one copies, or None."""
        bucket = self._buckets.get((record.name, words))
        if bucket is None:
            return None
        if not bucket.forms:  # most buckets hold one record
            at, other, number = bucket.chosen[0]
            bucket.forms[self._form(other, at)] = number
        form = self._form(record, place)
        original = bucket.forms.get(form)
        if original is None:
            near = self._comparable(bucket, record, place)
            original = next((number for at, other, number in near if self.are_alike(record, place, other, at)), None)
            if original is not None:
                bucket.forms[form] = original
        return original

    def _comparable(self, bucket: _Bucket, record: Record, place: int) -> list[_ChosenRecord]:
        """Return the chosen records to compare: all if they are few, else the last with the same numbers and names.

        Records of one template fill a bucket and differ in a number. Comparing all pairs took three quarters of the
        time of a recall of 400.
        """
        if len(bucket.chosen) <= COMPARED_WITH:
            return bucket.chosen
        for at, other, number in bucket.chosen[bucket.keyed :]:
            bucket.by_key.setdefault(self._key(other, at), []).append((at, other, number))
        bucket.keyed = len(bucket.chosen)
        return bucket.by_key.get(self._key(record, place), [])[-COMPARED_WITH:]

    def _key(self, record: Record, place: int) -> _CopyKey:
        return record.role, self._what_may_not_differ(record, place).key

    def _what_may_not_differ(self, record: Record, place: int) -> Protected:
        if place not in self._protected:
            self._protected[place] = protected(record.content)
        return self._protected[place]

    def are_alike(self, record: Record, place: int, other: Record, at: int) -> bool:
        """Return whether both have nearly the same words, and nothing differs that must be the same.

        Scores and lengths are compared first: they are alike for copies.
        """
        return (
            other.role == record.role
            and self._totals[at] <= self._totals[place] * (1.0 + _ALIKE)
            and abs(other.tokens - record.tokens) <= _ALIKE * record.tokens + 1
            and jaccard(self._rough_terms(other, at), self._rough_terms(record, place)) >= _ROUGHLY_ALIKE
            and jaccard(self._exact_terms(other, at), self._exact_terms(record, place)) >= 1.0 - _ALIKE
            and _attached(other) == _attached(record)
            and may_merge(self._what_may_not_differ(other, at), self._what_may_not_differ(record, place))
        )

    def _form(self, record: Record, place: int) -> str:
        if place not in self._forms:
            self._forms[place] = f"{normal_form(record.content)}\n{_attached(record)}"
        return self._forms[place]

    def _rough_terms(self, record: Record, place: int) -> frozenset[str]:
        """Return the words, or the characters of unspaced scripts, in a hundredth of the time of an analysis."""
        if place not in self._rough:
            text = record.content[:COMPARED].casefold()
            self._rough[place] = frozenset(text.split() if text.isascii() else text)
        return self._rough[place]

    def _exact_terms(self, record: Record, place: int) -> frozenset[str]:
        if place not in self._terms:
            self._terms[place] = frozenset(query_terms(record.content[:COMPARED]))
        return self._terms[place]


def _attached(record: Record) -> str:
    return attached(record.metadata) if record.metadata else ""


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the size of the intersection as a share of the union."""
    both = len(one & other)
    return both / (len(one) + len(other) - both) if one or other else 1.0
