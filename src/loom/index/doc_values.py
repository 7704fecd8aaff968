"""The doc_values of a record: what a search wants to know of it beside its words, without reading its row.

The text index keeps them with each document, in 48 bytes. A recall looks at a hundred records, and their rows take
five times as long. Whoever spoke is a hash there, as every term is; what is not known yet is left to the database.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "DOC_VALUES_VERSION",
    "DOC_VALUE_WORDS",
    "DocValues",
    "DocValuesTable",
    "of_row",
    "packed",
]

DOC_VALUES_VERSION = 1

Rows = npt.NDArray[np.int64]


class DocValues(NamedTuple):
    """What is known of a record without its text. Session, name and role are hashes, and 0 where there is none."""

    seq: int
    session: int
    created_at: int
    importance: float
    name: int
    role: int
    tokens: int


_ROW = struct.Struct("<qqqdQIi")
_NOT_KNOWN = -1  # in place of the tokens
DOC_VALUE_WORDS = _ROW.size // 8
"""How many words of 64 bits they take."""

# From a tuple, without a call in Python for each.
_made = partial(tuple.__new__, DocValues)


@lru_cache(maxsize=4_096)
def _hash(text: str | None) -> int:
    if not text:
        return 0
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _role_hash(role: str | None) -> int:
    return _hash(role) & 0xFFFF_FFFF


def of_row(row: tuple[Any, ...]) -> DocValues:
    """The doc_values as the database has them: (seq, session, created_at, importance, name, role, tokens)."""
    seq, session, created_at, importance, name, role, tokens = row
    return DocValues(seq, session or 0, created_at, importance, _hash(name), _role_hash(role), tokens)


def packed(rows: Iterable[tuple[Any, ...]]) -> Rows:
    """DocValues as the text index keeps them, of such rows.

    Where the tokens are None, or the row is damaged, they are not known.
    """
    return np.frombuffer(b"".join(map(_packed, rows)), dtype="<i8").reshape(-1, DOC_VALUE_WORDS)


def _packed(row: tuple[Any, ...]) -> bytes:
    try:
        return _ROW.pack(*of_row(row))
    except (struct.error, AttributeError, TypeError):  # reading the record says what is wrong with it
        return _ROW.pack(row[0], 0, 0, 0.0, 0, 0, _NOT_KNOWN)


class DocValuesTable:
    """What a segment keeps of its records, to look into. What makes no sense there counts as not known.

    One row after another, in Python: with numpy's calls on arrays of a hundred, cold as they mostly are, a recall
    takes 0.1 ms more.
    """

    __slots__ = ("_first_key", "_keys", "_rows")

    def __init__(self, first_key: int, keys: Rows, rows: Rows) -> None:
        self._first_key = first_key
        self._keys = keys.data
        self._rows = rows.reshape(-1).view(np.uint8).data

    def find(self, numbers: Sequence[int]) -> tuple[dict[int, DocValues], list[int]]:
        """The doc_values of these ascending numbers, which lie between the first key and the last; and those that
        are keys without doc_values. What is no key is in neither."""
        known: dict[int, DocValues] = {}
        left: list[int] = []
        keys, rows = self._keys, self._rows
        start, last = self._first_key, len(keys) - 1
        for number in numbers:
            # Few numbers are missing between the first key and another, and as many as before the last one found.
            place = number - start
            if place > last:
                place = last
            row = _ROW.unpack_from(rows, place * _ROW.size)
            if row[0] != number:
                place = bisect_left(keys, number)
                if place > last or keys[place] != number:
                    continue
                row = _ROW.unpack_from(rows, place * _ROW.size)
            start = number - place
            if row[0] == number and row[6] >= 0 and 0.0 <= row[3] <= 1.0:
                known[number] = _made(row)
            else:
                left.append(number)
        return known, left
