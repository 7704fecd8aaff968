"""The archive: the text of older records, moved out of their rows into compressed blocks.

An archived record keeps its row, so filters and indexes still apply to it. The row names the block that holds the
text and the data, byte for byte; the checksum of the row covers them there too. A block never changes. Forgetting one
of its records writes a new block without that record and empties the old block.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from loom.errors import CorruptStore
from loom.steps import step
from loom.storage.blocks import BLOCK_BYTES, LEVEL, Block, DamagedBlock, Text, compress, shipped
from loom.storage.contract import ArchiveStats
from loom.storage.databases import Connection

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

__all__ = [
    "ARCHIVE",
    "CONTENT",
    "DATA",
    "PROGRESS",
    "SHIPPED",
    "Packed",
    "PackedBlock",
    "Reader",
    "count_waiting",
    "damaged",
    "pack",
    "publish",
    "remove",
    "statistics",
]

CONTENT = "CASE WHEN r.block IS NULL THEN r.content ELSE archived(r.block, r.seq, 'content') END"
"""SQL for the text of `records r`, in the row or in a block; NULL if its block is damaged."""

DATA = "CASE WHEN r.block IS NULL THEN r.data ELSE archived(r.block, r.seq, 'data') END"
"""SQL for the data of `records r`, in the row or in a block."""

PROGRESS = "archive"
"""The name of the watermark, which is at the last archived record."""

ARCHIVE = "archive"
"""The kind of job for a record that could not be archived; its text stays in its row."""

SHIPPED = -1
"""The number of the package's own dictionary, which new blocks use. 0 means no dictionary; other numbers occur in
blocks of format 5 and earlier."""

_CACHED_BLOCKS = 16
# A block of very short texts holds at most this many, and one call of `pack` reads no more.
_MOST_RECORDS = 2000
# A row must not grow when its text moves out: SQLite would move rows between full pages and leave copies behind.
_FEWEST_BYTES = 32
_LARGEST_DICTIONARY = 1 << 20
_CHUNK = 500


class Reader:
    """Reads records from blocks, for all connections of one process. Caches the blocks read last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.blocks: OrderedDict[int, Block] = OrderedDict()

    def serve(self, connection: sqlite3.Connection) -> None:
        """Define the SQL function `archived(block, seq, 'content' or 'data')` on a connection."""

        def archived(number: int, seq: int, part: str) -> str | None:
            try:
                block = self.block(connection, number)
                return block.content(seq) if part == "content" else block.data(seq)
            except DamagedBlock:
                return None  # SQLite would hide the type of an exception; the row names the block

        connection.create_function("archived", 3, archived)

    def block(self, connection: Connection, number: int) -> Block:
        """A block by its number, in the state that the connection reads."""
        with self._lock:
            block = self.blocks.get(number)
            if block is not None:
                self.blocks.move_to_end(number)
                return block
        row = connection.execute(
            "SELECT CAST(data AS BLOB), raw_bytes, checksum, dictionary FROM blocks WHERE number = ?", (number,)
        ).fetchone()
        if row is None:
            raise DamagedBlock("it is missing")
        data, raw_bytes, checksum, dictionary = row
        if not isinstance(data, bytes) or zlib.crc32(data) != checksum or not isinstance(raw_bytes, int):
            raise DamagedBlock("it does not match its checksum")
        block = Block(data, raw_bytes, _dictionary(connection, dictionary))
        with self._lock:
            self.blocks[number] = block
            while len(self.blocks) > _CACHED_BLOCKS:
                self.blocks.popitem(last=False)
        return block

    def clear(self) -> None:
        with self._lock:
            self.blocks.clear()


def _dictionary(connection: Connection, number: int) -> zstd.ZstdDict | None:
    if number in (0, SHIPPED):
        return shipped() if number else None
    # Until format 5 a store trained dictionaries on its own texts; the upgrade to format 6 reads with them once.
    row = None
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'dictionaries'").fetchone():
        row = connection.execute(
            "SELECT CAST(phrases AS BLOB), checksum FROM dictionaries WHERE number = ?", (number,)
        ).fetchone()
    if row is None:
        raise DamagedBlock("its dictionary is missing")
    phrases, checksum = row
    if zlib.crc32(phrases) != checksum:
        raise DamagedBlock("its dictionary does not match its checksum")
    try:
        content = zstd.ZstdDecompressor().decompress(phrases, max_length=_LARGEST_DICTIONARY)
    except (zstd.ZstdError, EOFError) as error:
        raise DamagedBlock("its dictionary cannot be decompressed") from error
    return zstd.ZstdDict(content, is_raw=True) if len(content) >= 8 else None


class PackedBlock(NamedTuple):
    """A block before publishing: its records, its bytes, and its size before compression."""

    seqs: list[int]
    data: bytes
    raw_bytes: int


class Packed(NamedTuple):
    """New blocks before publishing, and the records that cannot be in one.

    `bad` maps these records to the names of their errors. `again` has the retried records, which had failed before.
    `reached` is the last record that `pack` examined.
    """

    blocks: list[PackedBlock]
    bad: dict[int, str]
    again: list[int]
    reached: int


@step("archive.pack")
def pack(
    connection: Connection,
    namespace: int,
    after: int,
    before: int,
    whole: bool,
    again: Sequence[int] = (),
    level: int = LEVEL,
    block_bytes: int = BLOCK_BYTES,
) -> Packed | None:
    """Pack the next records committed before a moment into blocks. Returns None if they do not fill one.

    With `whole`, the last block need not be full. `again` has the records that failed before and are retried.
    """
    try:
        dictionary = shipped()
    except DamagedBlock as error:
        raise CorruptStore(f"nothing can be archived: {error}") from error
    bad: dict[int, str] = {}
    tried = connection.execute(
        f"{_WAITING} AND r.seq IN (SELECT value FROM json_each(?))", (namespace, _FEWEST_BYTES, str([*again]))
    )
    groups = [[text] for seq, _, content, data in tried for text in _decoded(seq, content, data, bad)]
    group: list[Text] = []
    size = seen = reached = 0
    for seq, committed_at, content, data in connection.execute(
        f"{_WAITING} AND r.seq > ? ORDER BY r.seq LIMIT ?", (namespace, _FEWEST_BYTES, after, _MOST_RECORDS)
    ):
        if committed_at >= before:  # commit times ascend, so all following records are later too
            break
        seen, reached = seen + 1, seq
        added = len(content) + len(data or "")
        if group and size + added > block_bytes:
            groups.append(group)
            group, size = [], 0
        group += _decoded(seq, content, data, bad)
        size += added
    if group and (whole or (not groups and seen == _MOST_RECORDS)):
        groups.append(group)
    elif group:
        reached = group[0].seq - 1
    bad = {seq: error for seq, error in bad.items() if seq <= reached or seq in again}
    blocks = [block for group in groups for block in _compressed(group, dictionary, level, bad)]
    return Packed(blocks, bad, list(again), max(after, reached)) if blocks or bad else None


# Texts are read as bytes, so that one that is not valid UTF-8 does not make the whole query fail.
_WHERE_WAITING = (
    "WHERE r.namespace = ? AND r.version > 0 AND r.block IS NULL "
    "AND length(CAST(r.content AS BLOB)) + ifnull(length(CAST(r.data AS BLOB)), 0) >= ?"
)
_WAITING = (
    f"SELECT r.seq, r.committed_at, CAST(r.content AS BLOB), CAST(r.data AS BLOB) FROM records r {_WHERE_WAITING}"
)


def count_waiting(connection: Connection, namespace: int, before: int) -> int:
    """The number of records committed before a moment whose text is still in their rows."""
    query = f"SELECT count(*) FROM records r {_WHERE_WAITING} AND r.committed_at < ?"
    return int(connection.execute(query, (namespace, _FEWEST_BYTES, before)).fetchone()[0])


def _decoded(seq: int, content: bytes | str, data: bytes | str | None, bad: dict[int, str]) -> list[Text]:
    """The text of a row as a list of one. A row that is not valid text results in an empty list and an error in
    `bad`."""
    try:
        return [Text(seq, _as_text(content), None if data is None else _as_text(data))]
    except UnicodeDecodeError as error:
        bad[seq] = type(error).__name__
        return []


def _as_text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode()


def _compressed(group: list[Text], dictionary: zstd.ZstdDict, level: int, bad: dict[int, str]) -> list[PackedBlock]:
    """Compress texts into a block. After a failure, each half is tried alone, so that only bad texts stay out."""
    try:
        data, raw_bytes = compress(group, dictionary, level)
        if list(Block(data, raw_bytes, dictionary).texts()) != group:  # a twentieth of the cost
            raise DamagedBlock("decompression does not return the original texts")
    except Exception as error:  # any error that a text can cause: name its record, archive the others
        if len(group) == 1:
            bad[group[0].seq] = type(error).__name__
            return []
        middle = len(group) // 2
        halves = group[:middle], group[middle:]
        return [block for half in halves for block in _compressed(half, dictionary, level, bad)]
    return [PackedBlock([text.seq for text in group], data, raw_bytes)]


@step("archive.publish")
def publish(connection: Connection, namespace: int, packed: Packed, next_number: Callable[[], int]) -> bool:
    """Move the text of the records into the blocks, inside a write transaction.

    Returns False, and changes nothing, if a record was removed since `pack`.
    """
    numbers = [*packed.bad, *(seq for block in packed.blocks for seq in block.seqs)]
    (found,) = connection.execute(
        "SELECT count(*) FROM json_each(?) j CROSS JOIN records r ON r.seq = j.value "
        "WHERE r.version > 0 AND r.block IS NULL",
        (str(numbers),),
    ).fetchone()
    if found != len(numbers):
        return False
    for block in packed.blocks:
        number = next_number()
        _insert_block(connection, namespace, number, block)
        connection.executemany(
            "UPDATE records SET archived_bytes = length(CAST(content AS BLOB)), content = '', data = NULL, block = ? "
            "WHERE seq = ?",
            [(number, seq) for seq in block.seqs],
        )
    connection.executemany(
        "DELETE FROM jobs WHERE namespace = ? AND kind = ? AND record = ?",
        [(namespace, ARCHIVE, seq) for seq in packed.again if seq not in packed.bad],
    )
    return True


@step("archive.insert_block")
def _insert_block(connection: Connection, namespace: int, number: int, block: PackedBlock) -> None:
    connection.execute(
        "INSERT INTO blocks (number, namespace, dictionary, records, raw_bytes, checksum, data) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, namespace, SHIPPED, len(block.seqs), block.raw_bytes, zlib.crc32(block.data), block.data),
    )


@step("archive.remove")
def remove(
    connection: Connection,
    namespace: int,
    reader: Reader,
    seqs: Iterable[int],
    next_number: Callable[[], int],
) -> None:
    """Remove records from their blocks, inside the transaction that forgets them, before their rows are emptied."""
    leaving: dict[int, set[int]] = {}
    for number, seq in connection.execute(
        "SELECT r.block, r.seq FROM json_each(?) j CROSS JOIN records r ON r.seq = j.value WHERE r.block IS NOT NULL",
        (str([*seqs]),),
    ):
        leaving.setdefault(number, set()).add(seq)
    try:
        for number, gone in leaving.items():
            _rewrite(connection, namespace, reader, number, gone, next_number)
    finally:
        reader.clear()  # after a rollback, other blocks get the numbers of these new ones


@step("archive.rewrite_block")
def _rewrite(
    connection: Connection,
    namespace: int,
    reader: Reader,
    number: int,
    gone: set[int],
    next_number: Callable[[], int],
) -> None:
    """Replace a block with one that lacks some records. A damaged block is emptied, since none of its records is
    readable."""
    try:
        kept = [text for text in reader.block(connection, number).texts() if text.seq not in gone]
    except DamagedBlock:
        kept = []
    _empty(connection, number)
    if kept:
        new = next_number()
        seqs = [text.seq for text in kept]
        _insert_block(connection, namespace, new, PackedBlock(seqs, *compress(kept, shipped())))
        connection.executemany("UPDATE records SET block = ? WHERE seq = ?", [(new, seq) for seq in seqs])


@step("archive.empty_block")
def _empty(connection: Connection, number: int) -> None:
    connection.execute(
        "UPDATE blocks SET records = 0, raw_bytes = 0, checksum = 0, data = x'' WHERE number = ?", (number,)
    )


def damaged(connection: Connection, namespace: int, reader: Reader) -> list[str]:
    """A line for each block that is unreadable or lacks records that name it."""
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
        named = connection.execute("SELECT seq FROM records WHERE block = ? AND version > 0", (number,))
        if {seq for (seq,) in named} != set(block.numbers):
            problems.append(f"archive block {number} does not contain the records that name it")
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
def statistics(connection: Connection, namespace: int) -> ArchiveStats:
    blocks, records, raw, stored = connection.execute(
        "SELECT count(*), total(records), total(raw_bytes), total(length(data)) FROM blocks "
        "WHERE namespace = ? AND records > 0",
        (namespace,),
    ).fetchone()
    return ArchiveStats(int(records), blocks, int(raw), int(stored))
