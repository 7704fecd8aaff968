"""A write in one statement: the head of the namespace gives the number, and the record is inserted under it.

The update of the head locks it, as every write does first. The statement writes nothing if the head has another
revision, because the settings have changed. Interactive writes take three round trips, and 2.5 times the CPU.

A statement that waits for the lock does not see what was committed meanwhile. So one that must know whether an id is
free does not wait: it writes nothing if another write has the lock, or has changed the head since it began.
"""

from __future__ import annotations

import operator
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from loom.storage.postgres.dialect import Dialect
from loom.storage.postgres.prepared import PooledConnection, checked, escaped, needs_escapes
from loom.storage.sqlite.transactions import INSERT_RECORD

__all__ = ["Head", "OneStatement"]

_BIGINT, _INT, _TEXT, _FLOAT = 20, 23, 25, 701
_TYPES = {
    **dict.fromkeys(("id_hash", "session_hash", "tokens", "created_at", "checksum", "window_tokens"), _BIGINT),
    "version": _INT,
    "importance": _FLOAT,
}
_ALL_COLUMNS = re.findall(r"\w+", INSERT_RECORD[INSERT_RECORD.index("(") : INSERT_RECORD.index(")")])
# The head and the statement give these.
_GIVEN = {"seq": "h.seq", "namespace": "$1", "committed_at": "h.committed_at"}
_COLUMNS = [column for column in _ALL_COLUMNS if column not in _GIVEN]
_values_of = operator.itemgetter(*map(_ALL_COLUMNS.index, _COLUMNS))


class Head(NamedTuple):
    """What a transaction has read of its namespace: the revision of the settings, and that of the head."""

    settings: str | None
    revision: int
    queues: bool
    """Whether records are queued for embedding."""


class OneStatement:
    """The statement for the tables of a dialect, prepared once for each connection."""

    def __init__(self, dialect: Dialect, queues: bool, named: bool) -> None:
        queue = (
            f", q AS (INSERT INTO {dialect.table('jobs')} (namespace, kind, record, seq) "
            "SELECT $1, 'embed', h.seq, h.seq FROM h)"
        )
        values = [_GIVEN.get(column) or f"${_COLUMNS.index(column) + 5}" for column in _ALL_COLUMNS]
        id_hash, id = values[_ALL_COLUMNS.index("id_hash")], values[_ALL_COLUMNS.index("id")]
        heads = dialect.table("heads")
        has_id = f"id_hash = {id_hash} AND id = {id} AND namespace = $1"
        is_free = (
            f"AND EXISTS (SELECT 1 FROM {heads} WHERE namespace = $1 FOR UPDATE SKIP LOCKED) "
            f"AND committed_at = (SELECT committed_at FROM {heads} WHERE namespace = $1) "
            f"AND NOT EXISTS (SELECT 1 FROM {dialect.table('records')} WHERE {has_id}) "
            f"AND NOT EXISTS (SELECT 1 FROM {dialect.table('awaited')} WHERE {has_id}) "
        )
        # The sub-select is executed before the head is locked, and ends with the statement.
        self.text = (
            f"WITH h AS (UPDATE {heads} SET seq = seq + 1, "
            "committed_at = greatest(committed_at + 1, $3) WHERE namespace = $1 AND revision = $2 "
            "AND (SELECT pg_catalog.set_config('lock_timeout', $4, true)) IS NOT NULL "
            f"{is_free if named else ''}RETURNING seq, committed_at)"
            f"{queue if queues else ''} INSERT INTO {dialect.table('records')} ({', '.join(_ALL_COLUMNS)}) "
            f"SELECT {', '.join(values)} FROM h"
        ).encode()
        self._types = [_BIGINT, _BIGINT, _BIGINT, _TEXT, *(_TYPES.get(column, _TEXT) for column in _COLUMNS)]
        self._name = f"loom_{zlib.crc32(self.text):08x}".encode()

    def execute(
        self,
        raw: PooledConnection,
        row: Sequence[Any],
        head: Head,
        *,
        wait_ms: int,
        is_prepared: bool,
    ) -> bool:
        """Insert a record, given as values of `INSERT_RECORD`. Returns False if the head has another revision."""
        given = (row[1], head.revision, row[20], wait_ms, *_values_of(row))
        values: list[Any] = [None if value is None else str(value).encode() for value in given]
        if needs_escapes(b"".join(filter(None, values))):
            values = [None if value is None else escaped(str(value)) for value in given]
        pgconn = raw.pgconn
        with raw.lock:
            if not is_prepared:
                result = pgconn.exec_params(self.text, values, self._types)
            else:
                if self._name not in raw.prepared:
                    checked(raw, pgconn.prepare(self._name, self.text, self._types))
                    raw.prepared.add(self._name)
                result = pgconn.exec_prepared(self._name, values)
        return bool(checked(raw, result).command_tuples)
