"""Finds commits in the write-ahead log that SQLite drops: those after its first damaged frame.

SQLite recovers a log up to the first frame whose checksum does not match, and silently ignores the frames after it. A
frame's checksum continues that of the frame before it, so each frame can be verified alone. Commits after a damaged
frame were acknowledged, and their pages contain the sequence numbers that they wrote. Section 4 of
sqlite.org/fileformat.html describes the layout of the log.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.storage.files import disk_errors

__all__ = ["LogContents", "read_log"]

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_LITTLE_ENDIAN, _BIG_ENDIAN = 0x377F0682, 0x377F0683
_TABLE_LEAF = 0x0D
# A longer log is not verified, because that would delay opening.
_MOST_BYTES = 256 * 1024 * 1024

_Words = npt.NDArray[np.uint32]


class LogContents(NamedTuple):
    """The number of frames that SQLite uses, and the highest sequence number in a commit that it drops.

    `last_dropped` is 0 if it drops none. Each rowid of a store is a sequence number, or a smaller number of another
    kind.
    """

    usable: int = 0
    last_dropped: int = 0


def read_log(log: Path) -> LogContents:
    """Verify a log. A missing log, or one shorter than a frame, has no contents."""
    with disk_errors(f"{log} cannot be read"):
        try:
            size = log.stat().st_size
            if size > _MOST_BYTES:
                return LogContents(usable=1)
            data = log.read_bytes() if size > _HEADER_BYTES else b""
        except FileNotFoundError:
            return LogContents()
    header = np.frombuffer(data[:_HEADER_BYTES], dtype=">u4").astype(np.uint32)
    page = int(header[2]) if data else 0
    if page < 512 or page & (page - 1) or page > 65_536 or header[0] not in (_LITTLE_ENDIAN, _BIG_ENDIAN):
        return LogContents()
    count = (len(data) - _HEADER_BYTES) // (_FRAME_HEADER_BYTES + page)
    if not count:
        return LogContents()
    frames = np.frombuffer(data, np.uint8, count * (_FRAME_HEADER_BYTES + page), _HEADER_BYTES).reshape(count, -1)
    usable, dropped = _verified(header, np.frombuffer(data[:_FRAME_HEADER_BYTES], np.uint8), frames)
    rowids = (_highest_rowid(frames[at, _FRAME_HEADER_BYTES:].tobytes()) for at in dropped)
    return LogContents(usable, max(rowids, default=0))


def _verified(
    header: _Words, header_bytes: npt.NDArray[np.uint8], frames: npt.NDArray[np.uint8]
) -> tuple[int, list[int]]:
    """The number of frames that SQLite uses, and the intact frames from the first damaged one to the last commit."""
    order = "<u4" if header[0] == _LITTLE_ENDIAN else ">u4"
    heads = _words(frames[:, :_FRAME_HEADER_BYTES], ">u4")
    at_first = _checksums(_words(header_bytes[None], order), np.zeros((1, 2), np.uint32))
    is_header_right = np.array_equal(at_first[0], header[6:8])
    salts = header[4:6] if is_header_right else heads[0, 2:4]
    covered = _words(np.concatenate((frames[:, :8], frames[:, _FRAME_HEADER_BYTES:]), axis=1), order)
    before = np.concatenate((header[None, 6:8], heads[:-1, 4:6]))
    intact = (_checksums(covered, before) == heads[:, 4:6]).all(axis=1)
    intact &= (heads[:, 2:4] == salts).all(axis=1) & (heads[:, 0] > 0)
    damaged = np.flatnonzero(~intact)
    first = 0 if not is_header_right else int(damaged[0]) if len(damaged) else len(frames)
    commits = np.flatnonzero(intact & (heads[:, 1] > 0))
    last = int(commits[-1]) if len(commits) else -1
    used = commits[commits < first]
    dropped: list[int] = (first + np.flatnonzero(intact[first : last + 1])).tolist()
    return int(used[-1]) + 1 if len(used) else 0, dropped


def _words(data: npt.NDArray[np.uint8], order: str) -> _Words:
    return np.ascontiguousarray(data).view(order).astype(np.uint32)


def _checksums(words: _Words, before: _Words) -> _Words:
    """SQLite's checksums of rows of words, each continuing from the two words of `before`.

    For each pair of words: s0 += x0 + s1, then s1 += x1 + s0. This is linear modulo 2**32.
    """
    weights, power = _weights(words.shape[1] // 2)
    sums: _Words = words @ weights + before @ power
    return sums


@cache
def _weights(pairs: int) -> tuple[_Words, _Words]:
    """The factors of each word in both sums, and those of the initial sums."""
    power: list[list[int]] = [[1, 0], [0, 1]]
    rows: list[Any] = []
    for _ in range(pairs):
        (a, b), (c, d) = power
        rows += [[b, d], [a + b & 0xFFFFFFFF, c + d & 0xFFFFFFFF]]  # from the end: the second word, then the first
        power = [[a + b & 0xFFFFFFFF, a + 2 * b & 0xFFFFFFFF], [c + d & 0xFFFFFFFF, c + 2 * d & 0xFFFFFFFF]]
    return np.array(rows[::-1], dtype=np.uint32), np.array(power, dtype=np.uint32).T


def _highest_rowid(page: bytes) -> int:
    """The highest key on a page that is a leaf of a table; 0 for other pages."""
    if page[0] != _TABLE_LEAF:
        return 0
    cells = int.from_bytes(page[3:5], "big")
    starts = (int.from_bytes(page[at : at + 2], "big") for at in range(8, min(8 + 2 * cells, len(page)), 2))
    return max((_varint(page, _varint(page, start)[1])[0] for start in starts), default=0)


def _varint(page: bytes, start: int) -> tuple[int, int]:
    """A number of variable length, and the offset after it."""
    value = 0
    for at in range(start, min(start + 8, len(page))):
        value = value << 7 | page[at] & 0x7F
        if page[at] < 0x80:
            return value, at + 1
    return 0, start + 9  # nine bytes: no sequence number is that large
