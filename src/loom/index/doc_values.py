"""Doc values: the columns of a record that a search needs beside its terms, stored with each document.

The doc values of a record take 48 bytes. A recall needs those of a hundred records; reading the rows instead takes
five times as long. Speakers and roles are stored as hashes, as terms are. Values that are not known yet are read from
the database.
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
    "of_rows",
    "packed",
    "role_hash",
]

DOC_VALUES_VERSION = 2

Rows = npt.NDArray[np.int64]


class DocValues(NamedTuple):
    """The doc values of a record. Session, name and role are hashes; 0 means none."""

    seq: int
    session: int
    created_at: int
    importance: float
    name: int
    role: int
    tokens: int


_ROW = struct.Struct("<qqqdQIi")
_NOT_KNOWN = -1  # stored in place of the tokens
DOC_VALUE_WORDS = _ROW.size // 8
"""The 64-bit words of a record's doc values."""

# Makes a DocValues from a tuple without running Python code.
_made = partial(tuple.__new__, DocValues)


@lru_cache(maxsize=4_096)
def _hash(text: str | bytes | None) -> int:
    """The hash of a name. A name that is no longer valid text is passed as bytes."""
    if not text:
        return 0
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def role_hash(role: str | bytes | None) -> int:
    """The hash that stands for a role in doc values."""
    return _hash(role) & 0xFFFF_FFFF


def of_row(row: tuple[Any, ...]) -> DocValues:
    """The doc values of a database row: (seq, session, created_at, importance, name, role, tokens)."""
    seq, session, created_at, importance, name, role, tokens = row
    return DocValues(seq, session or 0, created_at, importance, _hash(name), role_hash(role), tokens)


def of_rows(rows: Iterable[tuple[Any, ...]]) -> list[DocValues]:
    """The doc values of several database rows; see `of_row`."""
    return [of_row(row) for row in rows]


def packed(rows: Iterable[tuple[Any, ...]]) -> Rows:
    """The doc values of several database rows, as the text index stores them; see `of_row`.

    They are unknown if the tokens are None or the row is damaged.
    """
    return np.frombuffer(b"".join(map(_packed, rows)), dtype="<i8").reshape(-1, DOC_VALUE_WORDS)


def _packed(row: tuple[Any, ...]) -> bytes:
    try:
        return _ROW.pack(*of_row(row))
    except (struct.error, AttributeError, TypeError):  # reading the record reports the damage
        return _ROW.pack(row[0], 0, 0, 0.0, 0, 0, _NOT_KNOWN)


class DocValuesTable:
    """The doc values of a segment. Invalid doc values count as unknown.

    Rows are read one by one in Python: numpy calls on arrays of a hundred rows, in cold memory, make a recall 0.1 ms
    slower.
    """

    __slots__ = ("_first_key", "_keys", "_rows")

    def __init__(self, first_key: int, keys: Rows, rows: Rows) -> None:
        self._first_key = first_key
        self._keys = keys.data
        self._rows = rows.reshape(-1).view(np.uint8).data

    def find(self, numbers: Sequence[int]) -> tuple[dict[int, DocValues], list[int]]:
        """The doc values of these ascending sequence numbers, and the keys among them without doc values.

        All numbers lie between the first and the last key. A number that is not a key is in neither result.
        """
        known: dict[int, DocValues] = {}
        left: list[int] = []
        keys, rows = self._keys, self._rows
        start, last = self._first_key, len(keys) - 1
        for number in numbers:
            # Few numbers are missing between keys, so start from the number of gaps before the last key found.
            place = number - start
            if place > last:
                place = last
            one = _made(_ROW.unpack_from(rows, place * _ROW.size))
            if one.seq != number:
                place = bisect_left(keys, number)
                if place > last or keys[place] != number:
                    continue
                one = _made(_ROW.unpack_from(rows, place * _ROW.size))
            start = number - place
            if one.seq == number and one.tokens >= 0 and 0.0 <= one.importance <= 1.0:
                known[number] = one
            else:
                left.append(number)
        return known, left
