"""A pull reader for JSON files of any size. It holds one value at a time and continues after a malformed one.

The reader finds the end of each value and passes its bytes to `json`. An array of a gigabyte is therefore read
element by element, every problem has a position in bytes, and only the malformed or oversized elements are lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

from loom.errors import InvalidInput

__all__ = ["CHUNK", "LARGEST_VALUE", "CutFile", "JsonReader", "Line", "MalformedValue", "lines_of", "parsed_json"]

LARGEST_VALUE: Final = 64 * 1024 * 1024
"""The largest value or line that is read as a whole, in bytes: four times the largest text of a record."""

CHUNK: Final = 1 << 22
"""The number of bytes that are read from the file at once."""

_SPACE = b" \t\r\n"
_SPACES = re.compile(rb"[ \t\r\n]*+")
# The bytes that may follow a value. Without one of them, a number may continue beyond the buffer, or be malformed.
_BEHIND_VALUES = frozenset(bytes([one]) for one in b",]} \t\r\n")
# Everything up to the next bracket, whole strings included. Stops before a string that the buffer does not end.
_BETWEEN_BRACKETS = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_SCALAR = re.compile(rb"[^,\]}\s\"{\[:]*+")
_GARBAGE = re.compile(rb"[^,\]}\"{\[]*+")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class MalformedValue(InvalidInput):
    """A value that cannot be read. The reader has advanced past it, and later values can be read."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


class CutFile(MalformedValue):
    """The file ends in the middle of a value, or its structure is broken: nothing more can be read."""


def parsed_json(raw: bytes, *, repair: bool = False) -> Any:
    """Parse bytes as JSON. Raises `InvalidInput`; its message contains no content.

    With `repair`, an escaped lone surrogate becomes the replacement character; without it, it is refused.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"it is not UTF-8 (byte {error.start:,})") from None
    try:
        found = json.loads(text, parse_constant=_no_number)
        if _SURROGATE_ESCAPE.search(raw):
            if repair:
                return _repaired(found)
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidInput("it has a lone surrogate, which is not valid text") from None
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InvalidInput(f"it is not JSON: {reason}") from None
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_repaired(key): _repaired(one) for key, one in value.items()}
    return [_repaired(one) for one in value] if isinstance(value, list) else value


_DECODER = json.JSONDecoder(parse_constant=_no_number)


class JsonReader:
    """Reads one JSON document from a binary file, from its beginning to its end.

    `elements()` and `members()` step through an array or an object. At each step, the caller reads the value with
    `value()`, steps into it, or does neither, in which case the value is skipped.
    """

    def __init__(self, file: BinaryIO, largest: int = LARGEST_VALUE) -> None:
        self._file = file
        self._largest = largest
        self._buffer = b""
        self._latin: str | None = None
        self._at = 0
        self._base = 0
        self._consumed = False
        """Whether the value at the current step was read, in part or completely."""
        if self._peek() == b"\xef" and self._buffer.startswith(b"\xef\xbb\xbf"):
            self._at += 3

    @property
    def position(self) -> int:
        """The offset of the next byte in the file."""
        return self._base + self._at

    def kind(self) -> str:
        """Return the first character of the next value: `{`, `[`, `"`, or the first character of a number or a
        literal. Returns an empty text at the end of the file."""
        return self._next_visible().decode("latin-1")

    def value(self, *, repair: bool = True) -> Any:
        """Read the next value. Raises `MalformedValue`, after which reading can continue, or `CutFile`."""
        self._consumed = True
        self._next_visible()
        at, start = self._at, self.position
        if (found := self._decoded()) is not None:
            raw = self._buffer[at : self._at]
            if raw.isascii() and not _SURROGATE_ESCAPE.search(raw):
                return found[0]
            return self._parsed(raw, start, repair)
        scanned = self._raw(self._largest)
        if scanned is None:
            raise MalformedValue(start, f"it is longer than {self._largest:,} bytes")
        return self._parsed(scanned, start, repair)

    def skip(self) -> None:
        """Skip the next value."""
        self._consumed = True
        self._next_visible()
        if self._decoded() is None:
            self._raw(0)

    def elements(self) -> Iterator[int]:
        """Step through the next value, an array. Yields the file position of each element.

        Raises `MalformedValue` if the value is not an array, and `CutFile` if the file ends inside it.
        """
        self._open(b"[", "an array")
        while self._next_step(b"]", "an array"):
            yield from self._step(self.position)

    def members(self) -> Iterator[str]:
        """Step through the next value, an object. Yields the name of each member."""
        self._open(b"{", "an object")
        while following := self._next_step(b"}", "an object"):
            if following != b'"':
                raise CutFile(self.position, "it is not JSON: an object has a member without a name")
            name = self.value()
            if self._next_visible() != b":":
                raise CutFile(self.position, "it is not JSON: the name of a member has no value")
            self._at += 1
            yield from self._step(name)

    def _next_step(self, bracket: bytes, called: str) -> bytes:
        """Advance to the next element or member and return its first byte; empty after the closing bracket."""
        while (following := self._next_visible()) == b",":
            self._at += 1
        if not following:
            raise CutFile(self.position, f"the file ends inside {called}: it is truncated")
        if following != bracket:
            return following
        self._at += 1
        self._consumed = True
        return b""

    # -- the scanner ---------------------------------------------------------------------------------------

    def _decoded(self) -> tuple[Any] | None:
        """Decode the value at this position if it ends within the buffer, and advance past it; else return None.

        The bytes are decoded as Latin-1, one character for each byte, so the end is always correct, and the texts are
        correct if the bytes are ASCII. This is the fast path; the scanner handles the values that it refuses.
        """
        if self._latin is None:
            self._latin = self._buffer.decode("latin-1")
        try:
            found, end = _DECODER.raw_decode(self._latin, self._at)
        except (ValueError, RecursionError):
            return None
        if end - self._at > self._largest or self._buffer[end : end + 1] not in _BEHIND_VALUES:
            return None
        self._at = end
        return (found,)

    @staticmethod
    def _parsed(raw: bytes, start: int, repair: bool) -> Any:
        try:
            return parsed_json(raw, repair=repair)
        except InvalidInput as error:
            raise MalformedValue(start, str(error)) from None

    def _step(self, told: Any) -> Iterator[Any]:
        """Yield one step, then skip the value if the caller has not read it."""
        start = self.position
        self._consumed = False
        yield told
        if not self._consumed:
            self.skip()
        if self.position == start:  # no value begins with this character
            self._pass_over(_GARBAGE)
            if self.position == start:
                self._at += 1

    def _open(self, bracket: bytes, called: str) -> None:
        self._consumed = True
        if self._next_visible() != bracket:
            start = self.position
            self._raw(0)
            raise MalformedValue(start, f"it is not {called}")
        self._at += 1

    def _peek(self) -> bytes:
        """Return the next byte, empty at the end of the file."""
        if self._at >= len(self._buffer) and not self._refill():
            return b""
        return self._buffer[self._at : self._at + 1]

    def _next_visible(self) -> bytes:
        while (following := self._peek()) and following in _SPACE:
            self._at = _end(_SPACES, self._buffer, self._at)
        return following

    def _refill(self) -> bool:
        """Replace the exhausted buffer. Returns False at the end of the file."""
        self._base += len(self._buffer)
        self._buffer, self._latin, self._at = self._file.read(CHUNK), None, 0
        return bool(self._buffer)

    def _more(self) -> bool:
        """Append the next chunk to the unread part of the buffer. Returns False at the end of the file."""
        more = self._file.read(CHUNK)
        self._base += self._at
        self._buffer, self._latin, self._at = self._buffer[self._at :] + more, None, 0
        return bool(more)

    def _pass_over(self, pattern: re.Pattern[bytes]) -> None:
        while True:
            self._at = _end(pattern, self._buffer, self._at)
            if self._at < len(self._buffer) or not self._refill():
                return

    def _raw(self, most: int) -> bytes | None:
        """Return the bytes of the next value and advance past it; None if it has more than `most` bytes."""
        first = self._next_visible()
        held = _Held(most)
        if first in (b"{", b"["):
            self._brackets(held)
        elif first == b'"':
            self._take(held, self._at + 1)
            self._string(held)
        else:
            while True:
                self._take(held, _end(_SCALAR, self._buffer, self._at))
                if self._at < len(self._buffer) or not self._refill():
                    break
        return held.whole()

    def _brackets(self, held: _Held) -> None:
        depth = 0
        while True:
            self._take(held, _end(_BETWEEN_BRACKETS, self._buffer, self._at))
            following = self._peek()
            if not following:
                raise CutFile(self.position, "the file ends inside a value: it is truncated")
            if following == b'"':  # the string continues beyond the buffer
                self._take(held, self._at + 1)
                self._string(held)
                continue
            if following not in b"{}[]":
                continue  # a new buffer
            depth += 1 if following in b"{[" else -1
            self._take(held, self._at + 1)
            if depth == 0:
                return

    def _string(self, held: _Held) -> None:
        """Scan the rest of a string after its opening quotation mark."""
        while True:
            self._take(held, _end(_IN_STRING, self._buffer, self._at))
            left = self._buffer[self._at : self._at + 2]
            if left.startswith(b'"'):
                self._take(held, self._at + 1)
                return
            if not self._more():  # nothing left, or a backslash whose character is in the next chunk
                raise CutFile(self.position, "the file ends inside a text: it is truncated")

    def _take(self, held: _Held, to: int) -> None:
        held.add(self._buffer, self._at, to)
        self._at = to


class _Held:
    """The bytes of one value, unless they exceed a limit."""

    __slots__ = ("_most", "_pieces", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._pieces: list[bytes] = []

    def add(self, buffer: bytes, start: int, end: int) -> None:
        self._size += end - start
        if self._size > self._most:
            self._pieces.clear()
        elif end > start:
            self._pieces.append(buffer[start:end])

    def whole(self) -> bytes | None:
        return b"".join(self._pieces) if self._size <= self._most else None


def _end(pattern: re.Pattern[bytes], buffer: bytes, at: int) -> int:
    found = pattern.match(buffer, at)
    assert found is not None  # each pattern matches the empty text
    return found.end()


# --- JSON Lines -----------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A line and its number, from 1. `text` is None if the line is longer than the limit."""

    number: int
    text: bytes | None


def lines_of(file: BinaryIO, after: int = 0, largest: int = LARGEST_VALUE) -> Iterator[Line]:
    """Yield the lines of a file that follow line `after`. Only a part of an oversized line is held in memory."""
    number = after
    while line := file.readline(largest + 1):
        number += 1
        if len(line) <= largest:
            yield Line(number, line)
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(1 << 20)
        yield Line(number, None)
