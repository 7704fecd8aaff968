"""The tail of the text index: postings, in memory, of the records that no segment holds yet.

`text_scoring.py` decides how they are scored, for segments and tail alike.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loom.index.text_postings import Keys, TailPostings
from loom.index.text_segments import LARGEST_FREQUENCY, term_hash

__all__ = ["TextTail"]

_NOTHING = np.empty(0, dtype=np.uint32)
_EMPTY = TailPostings(0, 0, np.empty(0, dtype=np.int64), _NOTHING, _NOTHING, _NOTHING, _NOTHING, [])


class TextTail:
    """Postings of the records that no segment holds yet. Safe for use by several threads.

    Leading slots of removed documents are freed if no other slots are left, or once they are at least `trim_from`
    slots and half of all.
    """

    def __init__(self, *, trim_from: int = 1_024) -> None:
        self._lock = threading.Lock()
        self._trim_from = trim_from
        self.changes = 0
        # term hash -> ascending (slot << 16 | frequency); slots number the documents in order of arrival.
        # A single posting is a plain int: most terms are rare, and an array takes the memory of ten ints.
        self._postings: dict[int, int | array[int]] = {}
        self._keys = array("q")
        self._lengths = array("I")
        self._first_slot = 0  # the slot of the first key; earlier slots are freed
        self._dead = 0  # the number of leading slots that belong to removed documents
        self._documents: dict[int, tuple[int, tuple[int, ...]]] = {}  # key -> slot, its term hashes
        self.total_length = 0
        """The number of terms of all documents."""
        self._ascending = True

    def __len__(self) -> int:
        return len(self._documents)

    def keys(self) -> list[int]:
        """The keys of its documents, in order of arrival."""
        with self._lock:
            return list(self._documents)

    def add(self, key: int, terms: Sequence[str]) -> None:
        """Add a document. Does nothing if the key is already in the tail, since a record never changes."""
        counts: Mapping[Any, int] = Counter(terms)
        hashes = tuple(map(term_hash, counts))
        if len(set(hashes)) < len(hashes):  # two of its terms collide: one posting holds both
            counts = Counter(map(term_hash, terms))
            hashes = tuple(counts)
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
                posting = once if frequency == 1 else packed | min(frequency, LARGEST_FREQUENCY)
                found = postings.setdefault(term, posting)
                if found is posting:
                    continue
                if isinstance(found, int):
                    postings[term] = array("Q", (found, posting))
                else:
                    found.append(posting)
            self._documents[key] = slot, hashes
            self.total_length += len(terms)

    def remove(self, key: int) -> bool:
        """Remove a document and every term that only it has. Returns True if the tail held it."""
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
            self.total_length -= self._lengths[place]
            self._lengths[place] = 0
            self._trim()
            return True

    def _trim(self) -> None:
        """Free leading slots of removed documents: segments take over the oldest documents first."""
        keys, dead = self._keys, self._dead
        while dead < len(keys):
            known = self._documents.get(keys[dead])
            if known is not None and known[0] == self._first_slot + dead:
                break
            dead += 1
        self._dead = dead
        if dead == len(keys) or dead >= max(self._trim_from, len(keys) // 2):
            del keys[:dead]
            del self._lengths[:dead]
            self._first_slot += dead
            self._dead = 0
            self._ascending = self._ascending or not keys

    def view(self, hashes: Sequence[int]) -> TailPostings:
        """The tail at this moment: statistics, keys, and the postings of these terms."""
        with self._lock:
            if not self._keys:  # the usual case while the store is idle
                return _EMPTY
            documents, total_length = len(self._documents), self.total_length
            keys: Keys = np.array(self._keys, dtype=np.int64)
            here: list[tuple[int, array[int]]] = []
            for place, term in enumerate(hashes):
                posting = self._postings.get(term)
                if posting is not None:
                    here.append((place, array("Q", (posting,)) if isinstance(posting, int) else posting))
            if not here:
                return TailPostings(documents, total_length, keys, _NOTHING, _NOTHING, _NOTHING, _NOTHING, [])
            # A copy: an array whose buffer is exported cannot grow, and `add` would fail.
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
        return TailPostings(
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
        """The number of its documents that have each of these terms."""
        if not self._documents:
            return [0] * len(hashes)
        found = [self._postings.get(term) for term in hashes]
        return [0 if one is None else 1 if isinstance(one, int) else len(one) for one in found]
