"""Rows of the SQLite tables as the records of the contract, and back."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import Any

from loom.errors import CorruptStore, InvalidInput
from loom.storage.base import Dimensions, Entry, Record
from loom.storage.engine import from_micros

__all__ = ["ENTRY_COLUMNS", "RECORD_COLUMNS", "checksum", "dump_json", "id_hash", "to_entry", "to_record"]

RECORD_COLUMNS = (
    "r.seq, r.id, r.version, r.content, r.created_at, r.committed_at, r.kind, r.node, r.session, r.role, "
    "r.name, r.trust, r.subject, r.flow, r.layer, r.importance, r.tokens, r.counter, r.metadata, r.data, "
    "r.checksum, (SELECT s.at FROM supersessions s WHERE s.record = r.seq)"
)

ENTRY_COLUMNS = (
    "deleted, key, content, version, scope, owner, created_by, updated_by, created_at, updated_at, metadata"
)


def dump_json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} must be plain JSON (text, numbers, lists, objects): {error}") from error


def id_hash(namespace: int, name: str) -> int:
    """What stands for an id, or a session, in the indexes: 64 bits that say nothing about it."""
    try:
        digest = hashlib.blake2b(f"{namespace}\0{name}".encode(), digest_size=8).digest()
    except UnicodeEncodeError as error:
        raise InvalidInput("an id or a session holds a lone surrogate, which is not valid text") from error
    return int.from_bytes(digest, "little", signed=True)


def checksum(record_id: str, version: int, metadata: str | None, data: str | None, content: str) -> int:
    """CRC-32 over what a record says; guards against damage of the file, not against a forger."""
    return zlib.crc32(f"{record_id}\0{version}\0{metadata}\0{data}\0{content}".encode())


def to_record(row: Sequence[Any]) -> Record:
    if checksum(row[1], row[2], row[18], row[19], row[3]) != row[20]:
        raise CorruptStore(
            f"record {row[1]!r} (number {row[0]}) does not match its checksum: the file was damaged. "
            "Run check() for the full list, and restore a backup."
        )
    return Record(
        seq=row[0],
        id=row[1],
        version=row[2],
        content=row[3],
        created_at=from_micros(row[4]),
        committed_at=from_micros(row[5]),
        kind=row[6],
        node=row[7],
        session_id=row[8],
        role=row[9],
        name=row[10],
        trust=row[11],
        dimensions=Dimensions(row[12], row[13], row[14]),
        importance=row[15],
        tokens=row[16],
        counter=row[17],
        metadata=json.loads(row[18]) if row[18] else {},
        data=json.loads(row[19]) if row[19] else None,
        superseded_at=None if row[21] is None else from_micros(row[21]),
    )


def to_entry(row: Sequence[Any]) -> Entry:
    return Entry(
        key=row[1],
        content=json.loads(row[2]),
        version=row[3],
        scope=row[4],
        owner=row[5],
        created_by=row[6],
        updated_by=row[7],
        created_at=from_micros(row[8]),
        updated_at=from_micros(row[9]),
        metadata=json.loads(row[10]) if row[10] else {},
    )
