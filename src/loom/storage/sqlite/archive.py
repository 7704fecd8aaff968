"""The archive: the words of older records, moved out of their rows into compressed blocks.

A record that is archived keeps its row, so every filter and index works on it as before; its text and its data are
in the block that the row names, and come back byte for byte. The row's checksum covers them there too. A block is
never changed. Forgetting one of its records writes another block without it and empties the old one. A phrase that no
record may hold any more leaves the dictionary, and every block that used that dictionary is compressed again.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from loom.errors import CorruptStore
from loom.steps import step
from loom.storage.blocks import (
    BLOCK_BYTES,
    LEVEL,
    NO_DICTIONARY,
    Block,
    DamagedBlock,
    Dictionary,
    Text,
    compress,
    train,
)
from loom.storage.contract import ArchiveStats

if TYPE_CHECKING:
    from backports.zstd import ZstdDict

__all__ = [
    "CONTENT",
    "DATA",
    "PROGRESS",
    "ArchiveLimits",
    "Packed",
    "Reader",
    "Removal",
    "damaged",
    "pack",
    "publish",
    "read_dictionary",
    "sample",
    "statistics",
]

CONTENT = "CASE WHEN r.block IS NULL THEN r.content ELSE archived(r.block, r.seq, 'content') END"
"""SQL for the text of `records r`, wherever it is; NULL where its block is damaged."""

DATA = "CASE WHEN r.block IS NULL THEN r.data ELSE archived(r.block, r.seq, 'data') END"
"""SQL for the data of `records r`, wherever it is."""

PROGRESS = "archive"
"""The name of the watermark: the last record that was archived."""

_CACHED_BLOCKS = 16
# A new dictionary is trained when the archive has grown by this factor.
_DICTIONARY_GROWTH = 4
_LARGEST_DICTIONARY = 32 * 1024
_SAMPLE_BYTES = 4 * BLOCK_BYTES
# A block of very short texts holds at most this many, and one call of `pack` reads no more.
_MOST_RECORDS = 2000
# A row must not grow when its words leave it: SQLite would move rows between full pages and leave copies behind.
_FEWEST_BYTES = 32
# How much of the log is searched for a phrase that may occur in no record any more.
_SEARCHED_BYTES = 1024 * 1024
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The sizes of blocks and dictionaries, in bytes before compression.

    Below `dictionary_from` a dictionary saves less than it takes: at 0.5 MB it cost 1 % of dialogue, at 1 MB it saved
    2 to 3 %, at 4 MB 5 to 10 %. A dictionary is at most the `dictionary_share`-th part of the archive. It is stored
    too, in half its size: 16 KB for the first megabyte, and the largest, 32 KB, from 2 MB on. A larger one makes
    reading slower: 683 MB/s without, 534 with 16 KB, 479 with 64.
    """

    block_bytes: int = BLOCK_BYTES
    dictionary_from: int = 16 * BLOCK_BYTES
    dictionary_share: int = 64


class Reader:
    """Reads records out of blocks, for all connections of one process; keeps the blocks it read last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._dictionaries: dict[int, ZstdDict | None] = {}

    def serve(self, connection: sqlite3.Connection) -> None:
        """Define the SQL function `archived(block, seq, 'content' or 'data')` on a connection."""

        def archived(number: int, seq: int, part: str) -> str | None:
            try:
                block = self.block(connection, number)
                return block.content(seq) if part == "content" else block.data(seq)
            except DamagedBlock:
                return None  # SQLite would hide the type of an exception; the row names the block

        connection.create_function("archived", 3, archived)

    def block(self, connection: sqlite3.Connection, number: int) -> Block:
        """A block by its number, in the state that the connection reads."""
        with self._lock:
            block = self._blocks.get(number)
            if block is not None:
                self._blocks.move_to_end(number)
                return block
        row = connection.execute(
            "SELECT CAST(data AS BLOB), raw_bytes, checksum, dictionary FROM blocks WHERE number = ?", (number,)
        ).fetchone()
        if row is None or zlib.crc32(row[0]) != row[2] or not isinstance(row[1], int):
            raise DamagedBlock("it does not match its checksum" if row else "it is missing")
        block = Block(row[0], row[1], self.dictionary(connection, row[3]))
        with self._lock:
            self._blocks[number] = block
            while len(self._blocks) > _CACHED_BLOCKS:
                self._blocks.popitem(last=False)
        return block

    def dictionary(self, connection: sqlite3.Connection, number: int) -> ZstdDict | None:
        """A dictionary by its number; number 0 is none."""
        with self._lock:
            if number in self._dictionaries:
                return self._dictionaries[number]
        made = read_dictionary(connection, number).for_zstd()
        with self._lock:
            self._dictionaries[number] = made
        return made

    def clear(self) -> None:
        """Drop every text that is held in memory."""
        with self._lock:
            self._blocks.clear()
            self._dictionaries.clear()

    def cached(self) -> list[Block]:
        """The blocks that are held in memory, least recently used first."""
        with self._lock:
            return list(self._blocks.values())


def read_dictionary(connection: sqlite3.Connection, number: int) -> Dictionary:
    """A stored dictionary; raises `DamagedBlock` where it is missing or damaged."""
    if number == 0:
        return NO_DICTIONARY
    row = connection.execute(
        "SELECT CAST(phrases AS BLOB), CAST(support AS BLOB), checksum FROM dictionaries WHERE number = ?", (number,)
    ).fetchone()
    if row is None or zlib.crc32(row[0]) != row[2]:
        raise DamagedBlock("its dictionary does not match its checksum" if row else "its dictionary is missing")
    return Dictionary.from_stored(row[0], row[1])


def _readable(connection: sqlite3.Connection, number: int) -> bool:
    try:
        return bool(read_dictionary(connection, number).phrases)
    except DamagedBlock:
        return False


class Packed(NamedTuple):
    """Blocks that were made of records and wait to be published. `trained` is a new dictionary they use.

    `seen` is the last tombstone at that time: a record that was forgotten since may have been trained on.
    """

    blocks: list[tuple[list[int], bytes, int]]
    dictionary: int
    trained: Dictionary | None
    trained_on: int
    seen: int


@step("archive.pack")
def pack(
    connection: sqlite3.Connection,
    namespace: int,
    reader: Reader,
    after: int,
    before: int,
    whole: bool,
    level: int = LEVEL,
    limits: ArchiveLimits | None = None,
) -> Packed | None:
    """Make blocks of the next records committed before a moment; None where they do not fill one.

    With `whole`, the last block need not be full.
    """
    limits = limits or ArchiveLimits()
    rows = connection.execute(
        "SELECT r.seq, r.committed_at, r.content, r.data FROM records r WHERE r.namespace = ? AND r.seq > ? "
        "AND r.version > 0 AND r.block IS NULL "
        "AND length(CAST(r.content AS BLOB)) + ifnull(length(CAST(r.data AS BLOB)), 0) >= ? ORDER BY r.seq LIMIT ?",
        (namespace, after, _FEWEST_BYTES, _MOST_RECORDS),
    )
    groups: list[list[Text]] = []
    group: list[Text] = []
    size = seen = 0
    for seq, committed_at, content, data in rows:
        if committed_at >= before:  # and so do all that follow
            break
        seen += 1
        added = len(content.encode()) + (len(data.encode()) if data else 0)
        if group and size + added > limits.block_bytes:
            groups.append(group)
            group, size = [], 0
        group.append(Text(seq, content, data))
        size += added
    if group and (whole or (not groups and seen == _MOST_RECORDS)):
        groups.append(group)
    if not groups:
        return None
    number, trained, trained_on = _dictionary_for(connection, namespace, groups, limits)
    dictionary = trained.for_zstd() if trained is not None else reader.dictionary(connection, number)
    blocks = []
    for group in groups:
        data, raw_bytes = compress(group, dictionary, level)
        if list(Block(data, raw_bytes, dictionary).texts()) != group:  # costs a twentieth of compressing
            raise CorruptStore(f"records from number {group[0].seq} do not come back from compression as they were")
        blocks.append(([text.seq for text in group], data, raw_bytes))
    (seen,) = connection.execute("SELECT ifnull(max(seq), 0) FROM forgotten").fetchone()
    return Packed(blocks, number, trained, trained_on, seen)


def _dictionary_for(
    connection: sqlite3.Connection, namespace: int, groups: Sequence[Sequence[Text]], limits: ArchiveLimits
) -> tuple[int, Dictionary | None, int]:
    """The dictionary in use, or a new one where the archive has outgrown it."""
    size = sum(len(text.content) + len(text.data or "") for group in groups for text in group)
    (archived,) = connection.execute(
        "SELECT total(raw_bytes) FROM blocks WHERE namespace = ? AND records > 0", (namespace,)
    ).fetchone()
    row = connection.execute(
        "SELECT number, trained_on FROM dictionaries WHERE namespace = ? AND trained_on > 0 "
        "ORDER BY number DESC LIMIT 1",
        (namespace,),
    ).fetchone()
    grown = int(archived) + size
    if row is not None and grown < row[1] * _DICTIONARY_GROWTH and _readable(connection, row[0]):
        return int(row[0]), None, 0
    if row is None and grown < limits.dictionary_from:
        return 0, None, 0
    size = min(_LARGEST_DICTIONARY, grown // limits.dictionary_share)
    trained = _trained(connection, namespace, size)
    return 0, trained if trained.phrases else None, grown


@step("archive.train")
def _trained(connection: sqlite3.Connection, namespace: int, size: int) -> Dictionary:
    return train(_words(sample(connection, namespace)), size)


def sample(connection: sqlite3.Connection, namespace: int) -> list[Text]:
    """Texts from all over the log, the same ones for the same log."""
    first, last = connection.execute(
        "SELECT min(seq), max(seq) FROM records WHERE namespace = ? AND version > 0", (namespace,)
    ).fetchone()
    found: dict[int, Text] = {}
    if first is None:
        return []
    size = 0
    pieces = 64
    step = max(1, (last - first + 1) // pieces)
    for start in range(first, last + 1, step):
        for seq, content, data in connection.execute(
            f"SELECT r.seq, {CONTENT}, {DATA} FROM records r WHERE r.namespace = ? AND r.seq >= ? AND r.seq < ? "
            "AND r.version > 0 ORDER BY r.seq LIMIT ?",
            (namespace, start, start + step, _CHUNK),
        ):
            if content is not None:
                found[seq] = Text(seq, content, data)
                size += len(content) + len(data or "")
            if size > _SAMPLE_BYTES * (start - first + step) / (last - first + 1):
                break
    return list(found.values())


def _words(texts: Iterable[Text]) -> Iterator[str]:
    """The texts and data that a dictionary is trained on."""
    return (f"{text.content}\0{text.data or ''}" for text in texts)


@step("archive.publish")
def publish(connection: sqlite3.Connection, namespace: int, packed: Packed, next_number: Callable[[], int]) -> bool:
    """Inside a write transaction: move the words of the records into the blocks.

    False, and nothing is changed, where a record or the dictionary has gone since `pack`.
    """
    numbers = [seq for seqs, _, _ in packed.blocks for seq in seqs]
    found = 0
    for start in range(0, len(numbers), _CHUNK):
        part = numbers[start : start + _CHUNK]
        marks = ", ".join("?" * len(part))
        found += connection.execute(
            f"SELECT count(*) FROM records WHERE seq IN ({marks}) AND version > 0 AND block IS NULL", part
        ).fetchone()[0]
    dictionary = packed.dictionary
    if found != len(numbers) or (dictionary and not _usable(connection, dictionary)):
        return False
    if packed.trained is not None and _forgotten_since(connection, packed.seen):
        return False
    if packed.trained is not None:
        dictionary = next_number()
        _insert_dictionary(connection, namespace, dictionary, packed.trained, packed.trained_on)
    for seqs, data, raw_bytes in packed.blocks:
        number = next_number()
        _insert_block(connection, namespace, number, dictionary, seqs, data, raw_bytes)
        connection.executemany(
            "UPDATE records SET archived_bytes = length(CAST(content AS BLOB)), content = '', data = NULL, block = ? "
            "WHERE seq = ?",
            [(number, seq) for seq in seqs],
        )
    return True


@step("archive.insert_dictionary")
def _insert_dictionary(
    connection: sqlite3.Connection, namespace: int, number: int, dictionary: Dictionary, trained_on: int
) -> None:
    phrases, support = dictionary.to_stored()
    connection.execute(
        "INSERT INTO dictionaries (number, namespace, trained_on, checksum, support, phrases) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (number, namespace, trained_on, zlib.crc32(phrases), support, phrases),
    )


def _usable(connection: sqlite3.Connection, number: int) -> bool:
    row = connection.execute("SELECT trained_on > 0 FROM dictionaries WHERE number = ?", (number,)).fetchone()
    return row is not None and bool(row[0]) and _readable(connection, number)


def _forgotten_since(connection: sqlite3.Connection, seen: int) -> bool:
    return connection.execute("SELECT 1 FROM forgotten WHERE seq > ? LIMIT 1", (seen,)).fetchone() is not None


@step("archive.insert_block")
def _insert_block(
    connection: sqlite3.Connection,
    namespace: int,
    number: int,
    dictionary: int,
    seqs: Sequence[int],
    data: bytes,
    raw_bytes: int,
) -> None:
    connection.execute(
        "INSERT INTO blocks (number, namespace, dictionary, records, raw_bytes, checksum, data) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, namespace, dictionary, len(seqs), raw_bytes, zlib.crc32(data), data),
    )


class Removal:
    """Takes records out of the archive, inside the transaction that forgets them.

    A dictionary is retired where one of its phrases may occur in no record any more. Another takes its place at once,
    and `move_some` compresses the blocks that were made with it again, until none is left and it is emptied.
    """

    def __init__(
        self, connection: sqlite3.Connection, namespace: int, reader: Reader, next_number: Callable[[], int]
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._reader = reader
        self._next_number = next_number

    @step("archive.remove")
    def remove(self, seqs: Sequence[int]) -> int:
        """Remove records whose rows still hold their words or name their blocks; how many blocks were rewritten."""
        if not self._any():
            return 0
        gone: list[Text] = []
        unread = False
        touched: dict[int, set[int]] = {}
        for start in range(0, len(seqs), _CHUNK):
            part = list(seqs[start : start + _CHUNK])
            marks = ", ".join("?" * len(part))
            for seq, block, content, data in self._connection.execute(
                f"SELECT r.seq, r.block, {CONTENT}, {DATA} FROM records r WHERE r.seq IN ({marks})", part
            ):
                unread |= content is None
                gone.append(Text(seq, content or "", data))
                if block is not None:
                    touched.setdefault(block, set()).add(seq)
        try:
            for number, leaving in touched.items():
                self._rewrite(number, leaving)
            self._forget_phrases(gone, unread)
        finally:
            self._reader.clear()  # a rollback gives the numbers of the blocks that were made here to others
        return len(touched)

    @step("archive.move_blocks")
    def move_some(self, most: int = 32) -> bool:
        """Move blocks away from retired dictionaries, and empty those without blocks; whether any was retired."""
        retired = [
            row[0]
            for row in self._connection.execute(
                "SELECT number FROM dictionaries WHERE namespace = ? AND trained_on < 0", (self._namespace,)
            )
        ]
        for number in retired:
            users = self._connection.execute(
                "SELECT number FROM blocks WHERE dictionary = ? AND records > 0", (number,)
            ).fetchall()
            target = self._current()
            moved = 0
            try:
                for (block,) in users:
                    moved += self._rewrite(block, set(), target)
                    if moved == most:
                        break
            finally:
                self._reader.clear()
            if not moved:  # none is left, or only damaged ones, which stay damaged
                self._connection.execute(
                    "UPDATE dictionaries SET trained_on = 0, checksum = 0, support = x'', phrases = x'' "
                    "WHERE number = ?",
                    (number,),
                )
        return bool(retired)

    def _current(self) -> int:
        row = self._connection.execute(
            "SELECT number FROM dictionaries WHERE namespace = ? AND trained_on > 0 ORDER BY number DESC LIMIT 1",
            (self._namespace,),
        ).fetchone()
        return row[0] if row is not None and _readable(self._connection, row[0]) else 0

    def _any(self) -> bool:
        row = self._connection.execute(
            "SELECT 1 FROM dictionaries WHERE namespace = ?1 UNION ALL SELECT 1 FROM blocks WHERE namespace = ?1 "
            "LIMIT 1",
            (self._namespace,),
        ).fetchone()
        return row is not None

    @step("archive.rewrite_block")
    def _rewrite(self, number: int, leaving: set[int], dictionary: int | None = None) -> bool:
        """Replace a block by one without some records or with another dictionary; False where it is damaged."""
        row = self._connection.execute("SELECT dictionary FROM blocks WHERE number = ?", (number,)).fetchone()
        try:
            block = self._reader.block(self._connection, number)
            kept = [text for text in block.texts() if text.seq not in leaving]
        except DamagedBlock:
            if leaving:  # what stays cannot be told from what is to be forgotten: all of it goes
                self._empty(number)
            return False
        dictionary = row[0] if dictionary is None else dictionary
        self._empty(number)
        if kept:
            compressed = compress(kept, self._reader.dictionary(self._connection, dictionary))
            new = self._next_number()
            _insert_block(self._connection, self._namespace, new, dictionary, [one.seq for one in kept], *compressed)
            self._connection.executemany(
                "UPDATE records SET block = ? WHERE seq = ?", [(new, one.seq) for one in kept]
            )
        return True

    @step("archive.empty_block")
    def _empty(self, number: int) -> None:
        self._connection.execute(
            "UPDATE blocks SET records = 0, raw_bytes = 0, checksum = 0, data = x'' WHERE number = ?", (number,)
        )

    @step("archive.forget_phrases")
    def _forget_phrases(self, gone: Sequence[Text], unread: bool) -> None:
        """Subtract these texts from the counts of the dictionaries; retire one with a phrase that may be gone."""
        rows = self._connection.execute(
            "SELECT number, trained_on FROM dictionaries WHERE namespace = ? AND trained_on > 0", (self._namespace,)
        ).fetchall()
        leaving = {text.seq for text in gone}
        words = list(_words(gone))
        for number, trained_on in rows:
            try:
                dictionary = read_dictionary(self._connection, number).without(words)
            except DamagedBlock:
                continue  # check() reports its blocks, and no text can be read with it
            if unread:  # a text that could not be read may have been the last with any of the phrases
                dictionary = Dictionary(dictionary.phrases, (0,) * len(dictionary.phrases))
            if dictionary.spent:
                left = dictionary.surviving(_words(self._living(leaving)))
                if left.phrases != dictionary.phrases:
                    self._retire(number, left, trained_on)
                    continue
                dictionary = left
            self._connection.execute(
                "UPDATE dictionaries SET support = ? WHERE number = ?", (dictionary.to_stored()[1], number)
            )

    def _living(self, leaving: set[int]) -> Iterator[Text]:
        """Texts that stay, from a bounded part of the log."""
        read = 0
        for seq, content, data in self._connection.execute(
            f"SELECT r.seq, {CONTENT}, {DATA} FROM records r WHERE r.namespace = ? AND r.version > 0 ORDER BY r.seq",
            (self._namespace,),
        ):
            if content is not None and seq not in leaving:
                yield Text(seq, content, data)
                read += len(content) + len(data or "")
                if read >= _SEARCHED_BYTES:
                    return

    def _retire(self, number: int, successor: Dictionary, trained_on: int) -> None:
        if successor.phrases:
            _insert_dictionary(self._connection, self._namespace, self._next_number(), successor, trained_on)
        self._connection.execute("UPDATE dictionaries SET trained_on = -1 WHERE number = ?", (number,))


def damaged(connection: sqlite3.Connection, namespace: int, reader: Reader) -> list[str]:
    """A line for every block that cannot be read, or does not hold the records that name it."""
    problems: list[str] = []
    reader.clear()
    for number, records, owner in connection.execute(
        "SELECT number, records, namespace FROM blocks WHERE records > 0 AND (namespace = ?1 OR number IN "
        "(SELECT block FROM records WHERE namespace = ?1 AND block IS NOT NULL AND version > 0))",
        (namespace,),
    ).fetchall():
        if owner != namespace:
            problems.append(f"archive block {number} is not marked as one of the namespace whose records name it")
        try:
            block = reader.block(connection, number)
        except DamagedBlock as error:
            problems.append(f"archive block {number} is damaged, with its {records} records: {error}")
            continue
        named = {
            row[0] for row in connection.execute("SELECT seq FROM records WHERE block = ? AND version > 0", (number,))
        }
        if named != set(block.numbers):
            problems.append(f"archive block {number} does not hold the records that name it")
    problems += [
        f"archive block {number} is missing, with its {records} records"
        for number, records in connection.execute(
            "SELECT r.block, count(*) FROM records r LEFT JOIN blocks b ON b.number = r.block AND b.records > 0 "
            "WHERE r.namespace = ? AND r.block IS NOT NULL AND r.version > 0 AND b.number IS NULL GROUP BY r.block",
            (namespace,),
        )
    ]
    return problems


@step("archive.statistics")
def statistics(connection: sqlite3.Connection, namespace: int) -> ArchiveStats:
    """What the archive of a namespace holds now."""
    blocks, records, raw, stored = connection.execute(
        "SELECT count(*), total(records), total(raw_bytes), total(length(data)) FROM blocks "
        "WHERE namespace = ? AND records > 0",
        (namespace,),
    ).fetchone()
    (phrases,) = connection.execute(
        "SELECT total(length(phrases) + length(support)) FROM dictionaries WHERE namespace = ?", (namespace,)
    ).fetchone()
    return ArchiveStats(int(records), blocks, int(raw), int(stored + phrases))
