"""Split a long text into passages, each a few paragraphs, a code block, or a part of a list or table.

Passages have no gaps between them, so together they are the text. A fenced code block or a table is divided only if
it is larger than a passage; each part then names the line that it needs (the fence, the head of the table). Works on
Markdown, prose, logs, JSON and text without line breaks, in time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

__all__ = ["LONG_UNITS", "Passage", "Span", "passages", "units"]

Span = tuple[int, int]
"""The start and end of a part of a text."""

# Sizes are in quarters of a token: an English letter takes one, a Chinese character four. Counting tokens would take
# longer than splitting. A passage has about 100 to 250 tokens.
_MOST_UNITS = 1_000
_FEWEST_UNITS = 400
LONG_UNITS = _MOST_UNITS
"""The largest text that is one passage."""

# The lines above a passage (headings, the introduction of a list) are few and short.
_LONGEST_HEADING = 160
_LONGEST_LEAD = 240
_MOST_HEADINGS = 2

_FENCE = re.compile(r"(`{3,}|~{3,})")
_HEADING = re.compile(r"(#{1,6})[ \t]+\S")
_BOLD_LINE = re.compile(r"(?:\*\*|__)[^*_\n]+(?:\*\*|__)[:：]?$")
_LIST_ITEM = re.compile(r"(?:[-*+]|\d{1,3}[.)])[ \t]|[•·]|\d{1,3}、|[（(]\d{1,2}[)）]")
# The first characters of lines with Markdown syntax. Every other line is prose, a log or data.
_MARKS = frozenset("`~#|-*+•·_0123456789（(")
# The places at which a part that is too long is divided, in order of preference: at blank lines, before lines that
# begin a statement, at ends of sentences, at any line break, at any space.
_BREAKS = (
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"\n(?![ \t]*[a-z(])"),
    re.compile(r"[.!?][\"'”’)\]]{0,2}[ \t]+|[。！？；…][”’」』）]{0,2}"),
    re.compile(r"\n"),
    re.compile(r"[ \t，、,]"),
)
# Code is divided before a line that is not indented, if there is one.
_LINE_BREAKS = (re.compile(r"\n[ \t]*\n(?=\S)"), _BREAKS[0], _BREAKS[3], _BREAKS[4])
# A text is usually split again soon: for the next question, and when it is quoted.
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

    `level` is the level of a heading, 7 for a bold line. `head` is the line that each part of a divided block needs:
    the fence, or the head of the table.
    """

    kind: _Kind
    start: int
    end: int
    level: int = 0
    head: Span | None = None


class Passage(NamedTuple):
    """A passage, as offsets into its text.

    `above` are lines before it that it needs: headings, the sentence that introduces its list, the head of its table.
    `fence` is the opening line of the code block in which it begins, `fence_after` of the one in which it ends.
    """

    start: int
    end: int
    above: tuple[Span, ...] = ()
    fence: Span | None = None
    fence_after: Span | None = None


def units(text: str) -> int:
    """Estimate the tokens of a text, times four."""
    return len(text) if text.isascii() else _units(len(text), len(text.encode("utf-8", "surrogatepass")))


def _units(characters: int, size: int) -> int:
    """The units of a text of this many characters and bytes; for ASCII both numbers are equal, and so is this."""
    return (3 * size - characters) // 2


def passages(text: str) -> list[Passage]:
    """Return the passages of a text in order. A short or empty text is one passage."""
    data = text.encode("utf-8", "surrogatepass")
    if _units(len(text), len(data)) <= LONG_UNITS:
        return [Passage(0, len(text))]
    # The key is a digest and not the text: forgotten text must not remain in a cache.
    digest = blake2b(data, digest_size=16).digest()
    known = _known.get(digest)
    if known is None:
        known = tuple(_Packing(text).run())
        if len(known) <= _MOST_KEPT:
            if len(_known) >= _KNOWN_TEXTS:
                _known.clear()  # cheaper than tracking use, and soon filled again
            _known[digest] = known
    return list(known)


# --- blocks ----------------------------------------------------------------------------------------------


def _lines(text: str) -> Iterator[Span]:
    """Yield the bounds of each line, with its line break."""
    start, end = 0, len(text)
    while start < end:
        line_end = text.find("\n", start) + 1 or end
        yield start, line_end
        start = line_end


class _Blocks:
    """Finds the blocks of a text, in order and without gaps."""

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
        """Return the level of a heading; 0 for any other line."""
        if heading := _HEADING.match(line):
            return len(heading[1])
        return 7 if self._kind is None and _BOLD_LINE.match(line) else 0

    def _continue(self, start: int, line: str) -> None:
        """Add a line without Markdown syntax to the block before it, and a row to its table."""
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
        """Return the blocks. Blank lines belong to the block before them."""
        if not self._found:
            return [_Block(_Kind.TEXT, 0, len(self._text))]
        first, *others = self._found
        blocks = [first._replace(start=0), *others]
        ends = [*(block.start for block in others), len(self._text)]
        return [block._replace(end=end) for block, end in zip(blocks, ends, strict=True)]


def _is_rule(line: str) -> bool:
    """Whether a line is the rule under the head of a table."""
    return "-" in line and "|" in line and not line.strip("|:- \t")


# --- dividing long parts ----------------------------------------------------------------------------------


def _divided(text: str, block: _Block, first: int) -> Iterator[Span]:
    """Yield the parts of a block that is too long, the first of at most `first` units."""
    # Rows and lines of code are not divided.
    breaks = _LINE_BREAKS if block.kind in (_Kind.TABLE, _Kind.CODE) else _BREAKS
    start, most = block.start, first
    while start < block.end:
        end = _limit(text, start, block.end, most)
        if end < block.end:
            end = _break(text, start, end, breaks)
        yield start, end
        start, most = end, _MOST_UNITS


def _limit(text: str, start: int, end: int, most: int) -> int:
    """Return the end of the next `most` units from `start` on, or the end of the text."""
    end = min(end, start + most)
    if units(text[start:end]) <= most:
        return end
    low, high = start + 1, end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if units(text[start:middle]) <= most else (low, middle)
    return low


def _break(text: str, start: int, end: int, breaks: tuple[re.Pattern[str], ...]) -> int:
    """Return the last good place to divide the second half of a span, or its end if there is none."""
    middle = (start + end) // 2
    for pattern in breaks:
        ends = [found.end() for found in pattern.finditer(text, middle, end)]
        if ends:
            return ends[-1]
    return end


# --- packing ---------------------------------------------------------------------------------------------


class _Packing:
    """Combines blocks, or parts of one, into passages. A heading stays with the block after it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[Passage] = []
        self._headings: list[tuple[int, Span]] = []
        self._lead: Span | None = None
        self._start = 0
        self._size = 0
        self._above: tuple[Span, ...] = ()
        self._fence: Span | None = None
        self._waiting: _Block | None = None  # headings without a block under them yet

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
        """Hold a heading until the block under it comes."""
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
        """Add a block, and the heading that waits, to the open passage, or put them into passages of their own."""
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
        """Return the block if it is a sentence that introduces the list, code or table after it."""
        start, end = span = self._trimmed(block.start, block.end)
        return span if end - start <= _LONGEST_LEAD and self._text[end - 1 : end] in (":", "：") else None

    def _trimmed(self, start: int, end: int) -> Span:
        return start, start + len(self._text[start:end].rstrip())
