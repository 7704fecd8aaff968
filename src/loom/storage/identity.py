"""Hashes and checksums: a hash represents an id in an index, and a checksum reveals damage of a row.

A hash only narrows a search: every query that selects rows by a hash compares the namespace and the text too. Rows of
other tables (pins, edges) refer to an id by the sequence number of its first version, which is unique in the file.
The functions of format 4 serve the upgrade and snapshots taken before it.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Iterable
from typing import Any

from loom.errors import InvalidInput

__all__ = [
    "DAMAGED",
    "SPAN",
    "entry_guard",
    "entry_guard_4",
    "guard",
    "guard_4",
    "guard_of_texts",
    "hash_bits",
    "id_hash",
    "id_hash_4",
    "session_hash",
    "session_key",
]

DAMAGED = 1 << 34
"""The checksum for a row that is found damaged during a rewrite. No row matches it."""

SPAN = 1 << 40
"""The sequence numbers that a server reserves for each namespace. In a file, all namespaces share one sequence."""

# A row must not grow when its count is stored: SQLite would move rows between full pages and leave copies of their
# words behind, where forgetting cannot remove them (see `loom.storage.sqlite.schema`). So in an uncounted row
# `tokens` is as wide as the largest count, and the checksum takes six bytes instead of four, the most that any
# checksum takes.
_WIDEST = 1 << 32


# -- hashes ------------------------------------------------------------------------------------------


def hash_bits(text: str) -> int:
    """A hash of a text in 64 bits, as a signed number. Tests replace this function with a weak one."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def id_hash(namespace: int, name: str) -> int:
    """The hash of an id or a session in the indexes: 64 bits that reveal nothing about its words.

    Generated ids begin with their time. The upper 16 bits of their hash are a window of 17 minutes, and the other 48
    bits are hashed. So ids that are written together are adjacent in an index. With plain hashes every commit changes
    another page, and a write among 100,000 records costs a fifth more than among 10,000.
    """
    try:
        bits = hash_bits(f"{namespace}\0" + name)  # formatted, a member of a `str` enumeration would be its name
    except UnicodeEncodeError as error:
        raise InvalidInput("an id or a session holds a lone surrogate, which is not valid text") from error
    if len(name) == 26 and name.startswith("01"):
        window = _window(name[2:6])
        if window is not None:
            return window | bits & 0xFFFF_FFFF_FFFF
    return bits


# From Crockford's digits, in which generated ids are written, to Python's.
_BASE_32 = str.maketrans("ABCDEFGHJKMNPQRSTVWXYZ", "ABCDEFGHIJKLMNOPQRSTUV")


@functools.lru_cache(maxsize=16)
def _window(digits: str) -> int | None:
    """The upper 16 bits of a hash for these digits of an id; None for other text."""
    try:
        return ((int(digits.translate(_BASE_32), 32) & 0xFFFF) - 0x8000) << 48
    except ValueError:
        return None


session_hash = functools.lru_cache(maxsize=256)(id_hash)
"""`id_hash` with a cache, for sessions: one session writes many records in a row."""


def session_key(store_id: str, session_id: str) -> str:
    """The key of values about a session. It differs between stores."""
    return hashlib.blake2b(session_id.encode(), key=store_id.encode()[:64], digest_size=16).hexdigest()


# -- checksums ---------------------------------------------------------------------------------------

# CRC-32 detects damage of the file, but not a forgery. The text comes last and alone: after counting, Python has its
# UTF-8 form cached.
_VALUES = "%s\0" * 21
_ENTRY_VALUES = "%s\0" * 7


def guard(row: tuple[Any, ...]) -> int:
    """The checksum of a row of `records`, from its sequence number to its text. The row may be uncounted.

    It covers every value except the sequence number and the commit time, which a database may assign itself.
    """
    values = zlib.crc32((_VALUES % (row[1:20] + row[21:23])).encode())
    return zlib.crc32(str(row[23]).encode(), values) | (_WIDEST if _waits(row) else 0)


def guard_of_texts(values: Iterable[bytes], content: bytes) -> int:
    """`guard` of a counted row, from the same values as texts in UTF-8."""
    return zlib.crc32(content, zlib.crc32(b"\0".join(values) + b"\0"))


def entry_guard(row: tuple[Any, ...]) -> int:
    """The checksum of a row of `entries`, from its scope to its content, without its two commit times."""
    values = zlib.crc32((_ENTRY_VALUES % (row[:6] + row[8:9])).encode())
    return zlib.crc32(str(row[9]).encode(), values)


def _waits(row: tuple[Any, ...]) -> bool:
    """Whether a row is uncounted. A damaged row may have any value there."""
    tokens = row[17]
    return isinstance(tokens, int) and tokens < 0


# -- format 4 ----------------------------------------------------------------------------------------


def id_hash_4(namespace: int, name: str) -> int:
    """The hash of an id or a session until format 4."""
    digest = hashlib.blake2b(f"{namespace}\0{name}".encode(), digest_size=6).digest()
    try:
        window = int(name[2:6].translate(_BASE_32), 32) if len(name) == 26 and name.startswith("01") else digest[0]
    except ValueError:
        window = 0
    return (window & 0x7FFF) << 48 | int.from_bytes(digest, "big")


def guard_4(row: tuple[Any, ...]) -> int:
    """The checksum of a row of `records` until format 4, with the hashes of that format."""
    return entry_guard_4(row) | (_WIDEST if _waits(row) else 0)


def entry_guard_4(row: tuple[Any, ...]) -> int:
    """The checksum of a row of `entries` until format 4."""
    return zlib.crc32(str(row[-1]).encode(), zlib.crc32(("%s\0" * (len(row) - 1) % row[:-1]).encode()))
