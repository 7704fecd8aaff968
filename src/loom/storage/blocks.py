"""The format of an archive block: the texts and data of many records, compressed together.

A block is one zstd frame of up to 64 KB before compression: large enough that similar records compress each other,
small enough that reading one record takes a fraction of a millisecond. All blocks share the dictionary that the
package ships. It was made from texts of this project and holds nothing of any record, so `forget` never has to
change it. `benchmarks.dictionary` makes and measures it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

__all__ = [
    "BLOCK_BYTES",
    "LEVEL",
    "Block",
    "DamagedBlock",
    "Text",
    "compress",
    "shipped",
]

BLOCK_BYTES = 64 * 1024
"""The largest size of text and data in a block, in bytes, unless it is one record.

Setting zstd up takes as long as decompressing some 20 KB: blocks of 32 KB decompress at 620 MB/s, blocks of 64 KB
at 800 MB/s, and the larger blocks compress better.
"""

# Measured on dialogue in blocks of 64 KB: level 9 gives 3.26:1 at 20 MB/s, level 19 3.53:1 at 2 MB/s.
LEVEL = 9
"""The default level of compression."""
_LARGEST = 1 << 30
_SHA256 = "9a182a86bb5c631b166f0f011ddd122c8f76a9156ce65e35f8fd841cbccdac94"
_HEAD = struct.Struct("<II")  # number of records, bytes of the table of shapes
_NONE = 0xFFFFFFFF
_PLAIN, _SHAPED = b"p", b"s"


class DamagedBlock(Exception):
    """The bytes of a block differ from those that were written."""


class Text(NamedTuple):
    """The part of a record in a block: its text, and its data as the stored JSON text."""

    seq: int
    content: str
    data: str | None


@functools.cache
def shipped() -> zstd.ZstdDict:
    """The dictionary that the package ships. A block that was compressed with it cannot be read without it."""
    content = Path(__file__).with_name("phrases.bin").read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise DamagedBlock("the dictionary of the package was changed; install loomkeep again")
    return zstd.ZstdDict(content, is_raw=True)


def compress(texts: Sequence[Text], dictionary: zstd.ZstdDict | None, level: int = LEVEL) -> tuple[bytes, int]:
    """Compress texts into a block. Returns the block and its size before compression."""
    shapes = _Shapes()
    contents = [text.content.encode() for text in texts]
    data = [b"" if text.data is None else shapes.encode(text.data) for text in texts]
    table = json.dumps(shapes.table, ensure_ascii=False, separators=(",", ":")).encode()
    head = _HEAD.pack(len(texts), len(table))
    numbers = np.diff([text.seq for text in texts], prepend=0).astype("<i8").tobytes()
    sizes = [len(content) for content in contents]
    sizes += [_NONE if text.data is None else len(one) for text, one in zip(texts, data, strict=True)]
    payload = b"".join((head, numbers, np.array(sizes, dtype="<u4").tobytes(), table, *contents, *data))
    return zstd.compress(payload, level=level, zstd_dict=dictionary), len(payload)


class Block:
    def __init__(self, data: bytes, raw_bytes: int, dictionary: zstd.ZstdDict | None) -> None:
        if not 0 < raw_bytes <= _LARGEST:
            raise DamagedBlock(f"a block of {raw_bytes} bytes")
        try:
            payload = zstd.ZstdDecompressor(zstd_dict=dictionary).decompress(data, max_length=raw_bytes + 1)
        except (zstd.ZstdError, EOFError) as error:
            raise DamagedBlock(f"it cannot be decompressed ({error})") from error
        if len(payload) != raw_bytes:
            raise DamagedBlock("its size after decompression is not the stored size")
        try:
            count, table = _HEAD.unpack_from(payload)
            steps = np.frombuffer(payload, dtype="<i8", count=count, offset=_HEAD.size).tolist()
            lengths = np.frombuffer(payload, dtype="<u4", count=2 * count, offset=_HEAD.size + 8 * count).tolist()
        except (ValueError, struct.error) as error:
            raise DamagedBlock("its table of contents is truncated") from error
        self._payload = payload
        self._count = count
        begin = _HEAD.size + 16 * count
        self._table = slice(begin, begin + table)
        self._places = {seq: position for position, seq in enumerate(accumulate(steps))}
        self._has_data = [size != _NONE for size in lengths[count:]]
        parts = lengths[:count] + [0 if size == _NONE else size for size in lengths[count:]]
        self._starts = list(accumulate(parts, initial=self._table.stop))
        if self._starts[-1] != len(payload):
            raise DamagedBlock("its table of contents does not fit it")

    @cached_property
    def _shapes(self) -> list[list[str]]:
        return json.loads(self._payload[self._table])  # type: ignore[no-any-return]

    @property
    def numbers(self) -> list[int]:
        return list(self._places)

    def content(self, seq: int) -> str | None:
        """The text of a record; None if the block does not hold it."""
        place = self._places.get(seq)
        try:
            return None if place is None else self._slice(place).decode()
        except UnicodeDecodeError as error:
            raise DamagedBlock(f"the text of record {seq} is not valid UTF-8") from error

    def data(self, seq: int) -> str | None:
        """The data of a record as JSON text; None if it has none."""
        place = self._places.get(seq)
        if place is None or not self._has_data[place]:
            return None
        packed = self._slice(self._count + place)
        try:
            if packed[:1] == _PLAIN:
                return packed[1:].decode()
            return _dump(_unshaped(json.loads(packed[1:]), self._shapes))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise DamagedBlock(f"the data of record {seq} cannot be read") from error

    def texts(self) -> Iterator[Text]:
        """Yield every text of the block, in the order of writing."""
        for seq in self._places:
            content = self.content(seq)
            assert content is not None
            yield Text(seq, content, self.data(seq))

    def _slice(self, position: int) -> bytes:
        return self._payload[self._starts[position] : self._starts[position + 1]]


class _Shapes:
    """Structured data without field names: objects with the same fields name them once in a block."""

    def __init__(self) -> None:
        self.table: list[list[str]] = []
        self._numbers: dict[tuple[str, ...], int] = {}

    def encode(self, text: str) -> bytes:
        try:
            value = json.loads(text)
            if isinstance(value, dict | list):
                packed = self._shaped(value)
                if _dump(_unshaped(packed, self.table)) == text:
                    return _SHAPED + _dump(packed).encode()
        except (ValueError, RecursionError):  # written by another program, or nested deeper than Python allows
            return _PLAIN + text.encode()
        return _PLAIN + text.encode()

    def _shaped(self, value: Any) -> Any:
        if isinstance(value, dict):
            number = self._numbers.setdefault(tuple(value), len(self.table))
            if number == len(self.table):
                self.table.append([*value])
            return [number, *map(self._shaped, value.values())]
        return [-1, *map(self._shaped, value)] if isinstance(value, list) else value


def _unshaped(value: Any, shapes: Sequence[Sequence[str]]) -> Any:
    if not isinstance(value, list):
        return value
    items = [_unshaped(one, shapes) for one in value[1:]]
    return items if value[0] == -1 else dict(zip(shapes[value[0]], items, strict=True))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
