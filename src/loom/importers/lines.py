"""The lines of a file of JSON Lines, each within a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

__all__ = ["LARGEST_LINE", "Line", "lines_of"]

LARGEST_LINE: Final = 64 * 1024 * 1024
"""The largest line that is read, in bytes: four times the largest text of a record."""


class Line(NamedTuple):
    """A line and its number, from 1. `text` is None if the line is longer than the limit."""

    number: int
    text: bytes | None


def lines_of(file: BinaryIO, after: int = 0, largest: int = LARGEST_LINE) -> Iterator[Line]:
    """Yield the lines of a file from behind line `after`. Of an oversize line only a part is held in memory."""
    number = after
    while line := file.readline(largest + 1):
        number += 1
        if len(line) <= largest:
            yield Line(number, line)
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(1 << 20)
        yield Line(number, None)
