"""Hashes and checksums: what stands for an id in an index, and what guards a row against damage.

A hash narrows a search and decides nothing: every query that selects rows by a hash compares the namespace and the
text too. Where rows of other tables refer to an id (pins, edges), they hold the sequence number of its first version,
which is unique in the file. The functions of format 4 serve the upgrade and snapshots taken before it.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from typing import Any

from loom.errors import InvalidInput

__all__ = [
    "DAMAGED",
    "SPAN",
    "entry_guard",
    "entry_guard_4",
    "guard",
    "guard_4",
    "hash_bits",
    "id_hash",
    "id_hash_4",
    "session_hash",
    "session_key",
]

DAMAGED = 1 << 34
"""The checksum of a row that was found damaged while it was rewritten. No row matches it."""

SPAN = 1 << 40
"""A server gives each namespace a stretch of this many sequence numbers. A file has one stretch for all of them."""

# A row must not grow when its count comes in: SQLite would move rows between full pages and leave copies of their
# words behind, which forgetting could not reach (see `loom.storage.sqlite.schema`). So until then `tokens` is as wide
# as the largest count would be, and the checksum takes six bytes, which is the most that any takes, and not four.
_WIDEST = 1 << 32


# -- hashes ------------------------------------------------------------------------------------------


def hash_bits(text: str) -> int:
    """64 bits of a text, as a signed number. Tests replace this function by a weak one."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def id_hash(namespace: int, name: str) -> int:
    """What stands for an id, or a session, in the indexes: 64 bits that say nothing about its words.

    Ids of our own making begin with their time. Their upper 16 bits are a window of 17 minutes, so that ids that are
    written together lie together: with hashes alone every commit touches another page, and a write among 100,000
    costs a fifth more than among 10,000. The other 48 bits are hashed.
    """
    try:
        bits = hash_bits(f"{namespace}\0{name}")
    except UnicodeEncodeError as error:
        raise InvalidInput("an id or a session holds a lone surrogate, which is not valid text") from error
    if len(name) == 26 and name.startswith("01"):
        try:
            window = int(name[2:6].translate(_BASE_32), 32)
        except ValueError:  # 26 characters of something else
            return bits
        return ((window & 0xFFFF) - 0x8000) << 48 | bits & 0xFFFF_FFFF_FFFF
    return bits


# Crockford's digits, which our ids are written in, as Python's.
_BASE_32 = str.maketrans("ABCDEFGHJKMNPQRSTVWXYZ", "ABCDEFGHIJKLMNOPQRSTUV")


session_hash = functools.lru_cache(maxsize=256)(id_hash)
"""The same for sessions, of which one writes many records in a row."""


def session_key(store_id: str, session_id: str) -> str:
    """A name for a session that differs from store to store, for values that are kept about it."""
    return hashlib.blake2b(session_id.encode(), key=store_id.encode()[:64], digest_size=16).hexdigest()


# -- checksums ---------------------------------------------------------------------------------------

# CRC-32 guards against damage of the file, not against a forger. The text comes last and by itself: where it was
# counted, Python has kept its UTF-8 form.
_VALUES = "%s\0" * 21
_ENTRY_VALUES = "%s\0" * 7


def guard(row: tuple[Any, ...]) -> int:
    """The checksum of a row of `records`, from its sequence number to its text, also while it waits for its count.

    It covers every value except the sequence number and the commit time, which a database may give out itself.
    """
    values = zlib.crc32((_VALUES % (row[1:20] + row[21:23])).encode())
    return zlib.crc32(str(row[23]).encode(), values) | (_WIDEST if _waits(row) else 0)


def entry_guard(row: tuple[Any, ...]) -> int:
    """The checksum of a row of `entries`, from its scope to its content, without its two commit times."""
    values = zlib.crc32((_ENTRY_VALUES % (row[:6] + row[8:9])).encode())
    return zlib.crc32(str(row[9]).encode(), values)


def _waits(row: tuple[Any, ...]) -> bool:
    """Whether a row is not counted yet. A damaged one may have anything there."""
    tokens = row[17]
    return isinstance(tokens, int) and tokens < 0


# -- format 4 ----------------------------------------------------------------------------------------


def id_hash_4(namespace: int, name: str) -> int:
    """What stood for an id or a session until format 4."""
    digest = hashlib.blake2b(f"{namespace}\0{name}".encode(), digest_size=6).digest()
    try:
        window = int(name[2:6].translate(_BASE_32), 32) if len(name) == 26 and name.startswith("01") else digest[0]
    except ValueError:
        window = 0
    return (window & 0x7FFF) << 48 | int.from_bytes(digest, "big")


def guard_4(row: tuple[Any, ...]) -> int:
    """The checksum that a row of `records` had until format 4, with the hashes of that format in it."""
    return _checksum_4(row) | (_WIDEST if _waits(row) else 0)


def entry_guard_4(row: tuple[Any, ...]) -> int:
    """The checksum that a row of `entries` had until format 4."""
    return _checksum_4(row)


def _checksum_4(row: tuple[Any, ...]) -> int:
    return zlib.crc32(str(row[-1]).encode(), zlib.crc32(("%s\0" * (len(row) - 1) % row[:-1]).encode()))
