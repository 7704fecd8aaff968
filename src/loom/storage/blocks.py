"""The form of an archive block: the texts and data of many records, compressed together.

A block is one zstd frame of up to 64 KB before compression: large enough that the words of neighbours help each
other, small enough that reading one record costs a fraction of a millisecond. The dictionary that blocks share holds
only phrases that several records have in common, with the number of records each was found in: what zstd's own
trainer picks are whole passages of single records, and a passage that was forgotten must not live on in one.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

__all__ = [
    "BLOCK_BYTES",
    "LEVEL",
    "NO_DICTIONARY",
    "Block",
    "DamagedBlock",
    "Dictionary",
    "Text",
    "compress",
    "train",
]

BLOCK_BYTES = 64 * 1024
"""How many bytes of text and data a block has at most, unless it is one record.

Setting zstd up takes as long as decompressing some 20 KB: 32 KB come back at 620 MB/s, 64 KB at 800, and smaller.
"""

# Measured on dialogue in blocks of 64 KB: level 9 gives 3.26:1 at 20 MB/s, level 19 3.53:1 at 2 MB/s.
LEVEL = 9
"""The level of compression, unless another is asked for."""
_LARGEST = 1 << 30
_LARGEST_DICTIONARY = 1 << 20
_HEAD = struct.Struct("<II")  # how many records, bytes of the table of shapes
_NONE = 0xFFFFFFFF
_PLAIN, _SHAPED = b"p", b"s"

_FEWEST_RECORDS = 3
_PHRASE_LENGTHS = (2, 3, 4, 6, 8)
_FEWEST_BYTES, _MOST_BYTES = 6, 120
_TRAINED_CHARACTERS = 32 * 1024
# A word with what follows it, or one character of a script that is written without spaces. Not the ranges of
# `loom.text.scripts`: stored dictionaries were counted by these units, and forgetting counts them down.
_UNIT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+\W?|\W")


class DamagedBlock(Exception):
    """The bytes of a block are not what was written."""


class Text(NamedTuple):
    """What a block holds of a record: its words, and its data as the JSON text that was stored."""

    seq: int
    content: str
    data: str | None


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Phrases that blocks share, and in how many records at least each still occurs."""

    phrases: tuple[bytes, ...]
    support: tuple[int, ...]

    def to_bytes(self) -> bytes:
        return b"\0".join(self.phrases)

    def without(self, texts: Iterable[str]) -> Dictionary:
        """The counts after these texts are gone; a phrase may stand at 0 then."""
        finder = _Finder(self._words())
        gone = Counter(phrase for text in texts for phrase in finder.held(text))
        support = [max(0, count - gone[phrase]) for phrase, count in zip(self._words(), self.support, strict=True)]
        return Dictionary(self.phrases, tuple(support))

    def surviving(self, texts: Iterable[str]) -> Dictionary:
        """What is left when every phrase at 0 is looked for in texts that live.

        Where one is found in none of them it goes, and all that few texts share go with it, so that the next forget
        does not ask again.
        """
        lost = [word for word, count in zip(self._words(), self.support, strict=True) if not count]
        finder = _Finder(lost)
        found: Counter[str] = Counter()
        for text in texts:
            if any(word in text for word in lost):  # much quicker to see than where it is
                found.update(finder.held(text))
            if len(found) == len(lost) and min(found.values()) >= _FEWEST_RECORDS:
                break
        support = [count or found[word] for word, count in zip(self._words(), self.support, strict=True)]
        if all(support):
            return Dictionary(self.phrases, tuple(support))
        kept = [position for position, count in enumerate(support) if count >= _FEWEST_RECORDS]
        return Dictionary(tuple(self.phrases[one] for one in kept), tuple(support[one] for one in kept))

    def _words(self) -> Iterator[str]:
        return (phrase.decode() for phrase in self.phrases)

    @property
    def spent(self) -> bool:
        """Whether some phrase may occur in no record any more."""
        return 0 in self.support

    def to_stored(self) -> tuple[bytes, bytes]:
        """Phrases and counts as they are stored: the phrases compressed, the counts with a checksum of their own."""
        counts = np.array(self.support, dtype="<u4").tobytes()
        return zstd.compress(self.to_bytes(), level=LEVEL), zlib.crc32(counts).to_bytes(4, "little") + counts

    @classmethod
    def from_stored(cls, phrases: bytes, support: bytes) -> Dictionary:
        """Counts that are damaged are 0: then the phrases are looked for again at the next forget."""
        try:
            plain = zstd.ZstdDecompressor().decompress(phrases, max_length=_LARGEST_DICTIONARY) if phrases else b""
        except (zstd.ZstdError, EOFError) as error:
            raise DamagedBlock("its dictionary cannot be decompressed") from error
        found = tuple(plain.split(b"\0")) if plain else ()
        sound = len(support) == 4 * (len(found) + 1) and zlib.crc32(support[4:]).to_bytes(4, "little") == support[:4]
        counts = np.frombuffer(support, dtype="<u4")[1:].tolist() if sound else [0] * len(found)
        return cls(found, tuple(counts))

    def for_zstd(self) -> zstd.ZstdDict | None:
        return zstd.ZstdDict(self.to_bytes(), is_raw=True) if len(self.to_bytes()) >= 8 else None


NO_DICTIONARY = Dictionary((), ())


def train(texts: Iterable[str], most_bytes: int) -> Dictionary:
    """The phrases that save most in texts like these: each in at least three of them, up to `most_bytes` in all."""
    records: Counter[str] = Counter()
    for text in texts:
        records.update(_phrases(text))
    worth = [
        (count * (len(encoded) - 3), encoded, count)
        for phrase, count in records.items()
        if count >= _FEWEST_RECORDS and _FEWEST_BYTES <= len(encoded := phrase.encode()) <= _MOST_BYTES
    ]
    worth.sort(reverse=True)
    chosen: list[tuple[bytes, int]] = []
    together = bytearray()
    for _, encoded, count in worth:
        if len(together) + len(encoded) > most_bytes:
            break
        if encoded not in together:
            chosen.append((encoded, count))
            together += encoded + b"\0"
    chosen.reverse()  # zstd reaches what stands last with the fewest bits
    return Dictionary(tuple(encoded for encoded, _ in chosen), tuple(count for _, count in chosen))


def _phrases(text: str) -> set[str]:
    """What a dictionary can have of a text. Of a long one only the beginning, which costs memory enough."""
    units = _UNIT.findall(text[:_TRAINED_CHARACTERS])
    return {
        phrase
        for length in _PHRASE_LENGTHS
        for start in range(len(units) - length + 1)
        if "\0" not in (phrase := "".join(units[start : start + length]))
    }


class _Finder:
    """Finds which of some phrases a text holds, where it holds them as `_phrases` would cut it."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases = frozenset(phrases)
        self._beginnings = {"".join(_UNIT.findall(phrase)[:2]) for phrase in self._phrases}

    def held(self, text: str) -> set[str]:
        units = _UNIT.findall(text[:_TRAINED_CHARACTERS])
        found: set[str] = set()
        for start, (one, next_one) in enumerate(pairwise(units)):
            if one + next_one in self._beginnings:
                found.update("".join(units[start : start + length]) for length in _PHRASE_LENGTHS)
        return found & self._phrases


def compress(texts: Sequence[Text], dictionary: zstd.ZstdDict | None, level: int = LEVEL) -> tuple[bytes, int]:
    """A block of these texts, and its size before compression."""
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
    """A block that was read back."""

    def __init__(self, data: bytes, raw_bytes: int, dictionary: zstd.ZstdDict | None) -> None:
        if not 0 < raw_bytes <= _LARGEST:
            raise DamagedBlock(f"a block of {raw_bytes} bytes")
        try:
            payload = zstd.ZstdDecompressor(zstd_dict=dictionary).decompress(data, max_length=raw_bytes + 1)
        except (zstd.ZstdError, EOFError) as error:
            raise DamagedBlock(f"it cannot be decompressed ({error})") from error
        if len(payload) != raw_bytes:
            raise DamagedBlock("it does not have the size it should")
        try:
            count, table = _HEAD.unpack_from(payload)
            steps = np.frombuffer(payload, dtype="<i8", count=count, offset=_HEAD.size).tolist()
            lengths = np.frombuffer(payload, dtype="<u4", count=2 * count, offset=_HEAD.size + 8 * count)
            sizes = lengths.reshape(2, count).tolist()
        except (ValueError, struct.error) as error:
            raise DamagedBlock("its table of contents is cut short") from error
        self._payload = payload
        self._count = count
        begin = _HEAD.size + 16 * count
        self._table = slice(begin, begin + table)
        self._places = {seq: position for position, seq in enumerate(accumulate(steps))}
        self._has_data = [size != _NONE for size in sizes[1]]
        parts = sizes[0] + [0 if size == _NONE else size for size in sizes[1]]
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
        """The words of a record; None where the block does not hold it."""
        place = self._places.get(seq)
        try:
            return None if place is None else self._slice(place).decode()
        except UnicodeDecodeError as error:
            raise DamagedBlock(f"the text of record {seq} is none") from error

    def data(self, seq: int) -> str | None:
        """The data of a record as its JSON text; None where it has none."""
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
        """Everything in it, in the order of writing."""
        for seq in self._places:
            content = self.content(seq)
            assert content is not None
            yield Text(seq, content, self.data(seq))

    def _slice(self, position: int) -> bytes:
        return self._payload[self._starts[position] : self._starts[position + 1]]


class _Shapes:
    """Structured data without the names of its fields: objects with the same fields name them once a block."""

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
        except (ValueError, RecursionError):  # written by another program, or nested deeper than Python goes
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
