"""Splitting a long text into passages: a few paragraphs, a code block, a part of a list or of a table each.

Passages follow one another without a gap, so together they are the text. Fenced code and tables are divided only
where one alone is larger than a passage; such a part names the line that it needs (the fence, the head of the table).
Works on Markdown, plain prose, logs, JSON and text without any line break, in time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

__all__ = ["LONG_UNITS", "Passage", "Span", "passages", "units"]

Span = tuple[int, int]
"""Where a part of a text begins and ends."""

# Sizes are in quarters of a token: a letter of English takes one, a Chinese character four. Counting tokens would
# take longer than splitting. A passage has about 100 to 250 tokens.
_MOST_UNITS = 1_000
_FEWEST_UNITS = 400
LONG_UNITS = _MOST_UNITS
"""A text of up to this size is one passage."""

# What stands above a passage is a few short lines.
_LONGEST_HEADING = 160
_LONGEST_LEAD = 240
_MOST_HEADINGS = 2

_FENCE = re.compile(r"(`{3,}|~{3,})")
_HEADING = re.compile(r"(#{1,6})[ \t]+\S")
_BOLD_LINE = re.compile(r"(?:\*\*|__)[^*_\n]+(?:\*\*|__)[:：]?$")
_LIST_ITEM = re.compile(r"(?:[-*+]|\d{1,3}[.)])[ \t]|[•·]|\d{1,3}、|[（(]\d{1,2}[)）]")
# Characters that a line with a mark of its own begins with; every other line is prose, a log or data.
_MARKS = frozenset("`~#|-*+•·_0123456789（(")
# Where a part that is too long is divided, the best place first: blank lines, lines that begin another statement,
# ends of sentences, any line, any space.
_BREAKS = (
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"\n(?![ \t]*[a-z(])"),
    re.compile(r"[.!?][\"'”’)\]]{0,2}[ \t]+|[。！？；…][”’」』）]{0,2}"),
    re.compile(r"\n"),
    re.compile(r"[ \t，、,]"),
)
# Code is divided before a line that is not indented, if it can be.
_LINE_BREAKS = (re.compile(r"\n[ \t]*\n(?=\S)"), _BREAKS[0], _BREAKS[3], _BREAKS[4])
# A text is mostly split again soon: when the next question is asked, and when it is quoted.
_KNOWN_TEXTS = 2_048
_MOST_KEPT = 256
_known: dict[bytes, tuple[Passage, ...]] = {}


class _Kind(IntEnum):
    TEXT = 0
    HEADING = 1
    ITEM = 2
    TABLE = 3
    CODE = 4


class _Block(NamedTuple):
    """A paragraph, a heading, an item of a list, a table or a fenced code block, with the blank lines after it.

    `level` is a heading's, 7 for a bold line. `head` is what each part of a divided block needs: the fence's line,
    or the head of the table.
    """

    kind: _Kind
    start: int
    end: int
    level: int = 0
    head: Span | None = None


class Passage(NamedTuple):
    """A passage, as offsets into its text.

    `above` are the lines that it stands under and does not contain: headings, the sentence that introduces its list,
    the head of its table. `fence` is the opening line of the code block that it begins in, and `fence_after` of the
    one that it ends in.
    """

    start: int
    end: int
    above: tuple[Span, ...] = ()
    fence: Span | None = None
    fence_after: Span | None = None


def units(text: str) -> int:
    """About the tokens of a text, times four."""
    return len(text) if text.isascii() else (3 * len(text.encode("utf-8", "surrogatepass")) - len(text)) // 2


def passages(text: str) -> list[Passage]:
    """The passages of a text, in its order. A short text is one; so is an empty one."""
    if units(text) <= LONG_UNITS:
        return [Passage(0, len(text))]
    # By a digest and not by the text: what is forgotten must not stay in a cache.
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    known = _known.get(digest)
    if known is None:
        known = tuple(_Packing(text).run())
        if len(known) <= _MOST_KEPT:
            if len(_known) >= _KNOWN_TEXTS:
                _known.clear()  # cheaper than an order of use, and soon filled again
            _known[digest] = known
    return list(known)


# --- blocks ----------------------------------------------------------------------------------------------


def _lines(text: str) -> Iterator[Span]:
    """Each line with its line break."""
    start, end = 0, len(text)
    while start < end:
        line_end = text.find("\n", start) + 1 or end
        yield start, line_end
        start = line_end


class _Blocks:
    """The blocks of a text, in its order and without gaps."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[_Block] = []
        self._kind: _Kind | None = None
        self._start = 0
        self._last_line = 0

    def run(self) -> list[_Block]:
        text = self._text
        fence = ""
        for start, end in _lines(text):
            line = text[start:end].strip()
            if fence:
                if line.startswith(fence) and not line.strip(fence[0]):
                    self._end(end)
                    fence = ""
                continue
            if not line:
                self._end(start)
                continue
            if line[0] not in _MARKS:
                self._continue(start, line)
            elif opening := _FENCE.match(line):
                self._begin(_Kind.CODE, start)
                fence = opening[1]
            elif len(line) <= _LONGEST_HEADING and (level := self._level(line)):
                self._begin(_Kind.HEADING, start)
                self._end(end, level)
            elif _LIST_ITEM.match(line):
                self._begin(_Kind.ITEM, start)
            else:
                self._continue(start, line)
            self._last_line = start
        self._end(len(text))
        return self._joined()

    def _level(self, line: str) -> int:
        """The level of a heading; 0 for every other line."""
        if heading := _HEADING.match(line):
            return len(heading[1])
        return 7 if self._kind is None and _BOLD_LINE.match(line) else 0

    def _continue(self, start: int, line: str) -> None:
        """A line without a mark of its own belongs to the block that it follows, and a row to its table."""
        if _is_rule(line) and self._kind is _Kind.TEXT and "|" in self._text[self._last_line : start]:
            head = self._last_line
            if head > self._start:
                self._end(head)
            self._kind, self._start = _Kind.TABLE, head
        elif line[0] == "|" or (self._kind is _Kind.TABLE and "|" in line):
            if self._kind is not _Kind.TABLE:
                self._begin(_Kind.TABLE, start)
        elif self._kind is None or self._kind is _Kind.TABLE:
            self._begin(_Kind.TEXT, start)

    def _begin(self, kind: _Kind, start: int) -> None:
        self._end(start)
        self._kind, self._start = kind, start

    def _end(self, end: int, level: int = 0) -> None:
        if self._kind is not None and end > self._start:
            self._found.append(_Block(self._kind, self._start, end, level, self._head(end)))
        self._kind = None

    def _head(self, end: int) -> Span | None:
        if self._kind is not _Kind.CODE and self._kind is not _Kind.TABLE:
            return None
        first = self._text.find("\n", self._start, end) + 1 or end
        if self._kind is _Kind.TABLE:
            second = self._text.find("\n", first, end) + 1 or end
            first = second if _is_rule(self._text[first:second].strip()) else first
        return (self._start, first) if first - self._start <= _LONGEST_LEAD else None

    def _joined(self) -> list[_Block]:
        """The blocks with the blank lines between them, which belong to the one before."""
        if not self._found:
            return [_Block(_Kind.TEXT, 0, len(self._text))]
        first, *others = self._found
        blocks = [first._replace(start=0), *others]
        ends = [*(block.start for block in others), len(self._text)]
        return [block._replace(end=end) for block, end in zip(blocks, ends, strict=True)]


def _is_rule(line: str) -> bool:
    """Whether a line is the rule under the head of a table."""
    return "-" in line and "|" in line and not line.strip("|:- \t")


# --- dividing what is too long ---------------------------------------------------------------------------


def _divided(text: str, block: _Block, first: int) -> Iterator[Span]:
    """The parts of a block that is too long, the first of at most `first` units."""
    # A row and a line of code end where their line ends.
    breaks = _LINE_BREAKS if block.kind in (_Kind.TABLE, _Kind.CODE) else _BREAKS
    start, most = block.start, first
    while start < block.end:
        end = _limit(text, start, block.end, most)
        if end < block.end:
            end = _break(text, start, end, breaks)
        yield start, end
        start, most = end, _MOST_UNITS


def _limit(text: str, start: int, end: int, most: int) -> int:
    """Where so many units from `start` on end, or the text does."""
    end = min(end, start + most)
    if units(text[start:end]) <= most:
        return end
    low, high = start + 1, end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if units(text[start:middle]) <= most else (low, middle)
    return low


def _break(text: str, start: int, end: int, breaks: tuple[re.Pattern[str], ...]) -> int:
    """The last good place to divide a text in the second half of a span; its end where there is none."""
    middle = (start + end) // 2
    for pattern in breaks:
        ends = [found.end() for found in pattern.finditer(text, middle, end)]
        if ends:
            return ends[-1]
    return end


# --- packing ---------------------------------------------------------------------------------------------


class _Packing:
    """Blocks, or parts of one, put together to passages. A heading stays with what follows it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[Passage] = []
        self._headings: list[tuple[int, Span]] = []
        self._lead: Span | None = None
        self._start = 0
        self._size = 0
        self._above: tuple[Span, ...] = ()
        self._fence: Span | None = None
        self._waiting: _Block | None = None  # headings that have nothing under them yet

    def run(self) -> list[Passage]:
        for block in _Blocks(self._text).run():
            if block.kind is _Kind.HEADING and units(self._text[block.start : block.end]) <= _FEWEST_UNITS:
                self._wait(block)
                continue
            if block.kind is _Kind.TEXT:
                self._lead = None
            self._add(block)
            if block.kind is _Kind.TEXT:
                self._lead = self._lead_of(block)
        if self._waiting is not None:
            self._add(_Block(_Kind.TEXT, self._waiting.end, self._waiting.end))
        self._close(len(self._text))
        return self._found

    def _wait(self, block: _Block) -> None:
        """Keep a heading until there is something under it."""
        before = self._waiting
        if before is None and self._size >= _FEWEST_UNITS:
            self._close(block.start)
        self._headings = [one for one in self._headings if one[0] < block.level]
        if before is None:
            self._waiting = block
        elif units(self._text[before.start : block.end]) <= _FEWEST_UNITS:
            self._waiting = before._replace(end=block.end)
        else:
            self._add(_Block(_Kind.TEXT, before.end, before.end))
            self._waiting = block
        self._lead = None
        self._headings.append((block.level, self._trimmed(block.start, block.end)))

    def _add(self, block: _Block) -> None:
        """Put a block, and the heading that waits, behind what is there, or into passages of its own."""
        start = block.start if self._waiting is None else self._waiting.start
        heading = units(self._text[start : block.start])
        size = units(self._text[block.start : block.end])
        self._waiting = None
        if self._size + heading + size <= _MOST_UNITS:
            self._open(start)
            self._size += heading + size
            return
        is_divided = heading + size > _MOST_UNITS
        if self._size >= _FEWEST_UNITS or not is_divided:
            self._close(start)
        self._open(start)
        before = self._size + heading
        if not is_divided:
            self._size = heading + size
            return
        fence = block.head if block.kind is _Kind.CODE else None
        for first, last in _divided(self._text, block, _MOST_UNITS - before):
            if first > block.start:
                self._close(first, fence)
                self._open(first, fence, block.head if block.kind is _Kind.TABLE else None)
            self._size = units(self._text[self._start : last])

    def _open(self, start: int, fence: Span | None = None, head: Span | None = None) -> None:
        """Begin a passage here, unless one is open."""
        if self._size:
            return
        above = [span for _, span in self._headings if span[0] < start][-_MOST_HEADINGS:]
        above += [span for span in (self._lead, head) if span is not None and span[0] < start]
        self._start, self._above, self._fence = start, tuple(above), fence

    def _close(self, end: int, fence: Span | None = None) -> None:
        """End the passage here."""
        if end > self._start and self._size:
            self._found.append(Passage(self._start, end, self._above, self._fence, fence))
        self._start, self._size = end, 0

    def _lead_of(self, block: _Block) -> Span | None:
        """The sentence that introduces the list, the code or the table after it, if it is one."""
        span = self._trimmed(block.start, block.end)
        is_lead = span[1] - span[0] <= _LONGEST_LEAD and self._text[span[1] - 1 : span[1]] in (":", "：")
        return span if is_lead else None

    def _trimmed(self, start: int, end: int) -> Span:
        return start, start + len(self._text[start:end].rstrip())
