"""A write in one statement, which takes the next number from the head of the namespace for the record that it
inserts.

The update locks the head, which every write does first. The statement writes nothing if the head has another
revision, because the settings have then changed. An interactive write takes three round trips and 2.5 times the CPU
time.

A statement that waits for the lock does not see what is committed meanwhile. A statement that must know whether an id
is free therefore does not wait: it writes nothing if another write has the lock, or has changed the head since the
statement began.
"""

from __future__ import annotations

import operator
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from loom.storage.contract import Draft
from loom.storage.identity import guard_of_texts, id_hash, session_hash
from loom.storage.moments import to_micros
from loom.storage.postgres.dialect import Dialect
from loom.storage.postgres.prepared import PooledConnection, checked, escape
from loom.storage.sqlite.rows import dump_json
from loom.storage.sqlite.transactions import INSERT_RECORD

__all__ = ["ALL_COLUMNS", "COLUMNS", "Head", "OneStatement", "RowEncoder"]

_BIGINT, _TEXT, _FLOAT = 20, 25, 701
_TYPES = {
    **dict.fromkeys(("id_hash", "session_hash", "tokens", "created_at", "checksum", "window_tokens"), _BIGINT),
    "importance": _FLOAT,
}
ALL_COLUMNS = re.findall(r"\w+", INSERT_RECORD[INSERT_RECORD.index("(") : INSERT_RECORD.index(")")])
# The columns whose values come from the head or the statement.
_GIVEN = {"seq": "h.seq", "namespace": "$3", "committed_at": "h.committed_at", "version": "1"}
# Values that a record usually shares with the previous one.
_SHARED = (
    *("session_hash", "tier", "kind", "node", "session", "role", "name", "trust", "subject", "flow", "layer"),
    *("importance", "counter", "window_tokens"),
)
_OWN = ("id_hash", "id", "tokens", "created_at", "metadata", "data", "content", "checksum")
COLUMNS = (*_OWN, *_SHARED)

_shared_of = operator.itemgetter(
    *map(
        Draft._fields.index,
        (
            *("tier", "kind", "node", "session_id", "role", "name", "trust", "dimensions", "importance"),
            *("counter", "window_tokens"),
        ),
    )
)


class _Shared(NamedTuple):
    """The values of a draft that `_shared_of` selects, and their forms in UTF-8."""

    of: tuple[Any, ...]
    session_hash: bytes
    from_tier_to_importance: bytes
    counter: bytes
    stored: tuple[bytes | None, ...]


class RowEncoder:
    """Makes the values of `OneStatement` for the records of a namespace.

    Every value is encoded once, for the checksum and for the server. Values that a record shares with the previous
    one are not encoded again. This takes 4 us of CPU time; `record_row` and encoding its values take 7 us.
    """

    def __init__(self, namespace: int) -> None:
        self._namespace = namespace
        self._number = b"%d" % namespace
        self._last: _Shared | None = None

    def encode(self, draft: Draft, now: int) -> tuple[bytes | None, ...]:
        """The number of the namespace, the time and the values of `COLUMNS` for a new record.

        Its tokens are counted.
        """
        shared = self._last
        if shared is None or shared.of != _shared_of(draft):
            shared = self._last = self._encode_shared(draft)
        own_hash = b"%d" % id_hash(self._namespace, draft.id)
        id, content = draft.id.encode(), draft.content.encode()
        tokens, created_at = b"%d" % draft.tokens, b"%d" % to_micros(draft.created_at)
        metadata = dump_json(dict(draft.metadata), "metadata").encode() if draft.metadata else None
        data = None if draft.data is None else dump_json(draft.data, "data").encode()
        checksum = guard_of_texts(
            (
                *(self._number, own_hash, shared.session_hash, id, b"1", shared.from_tier_to_importance),
                *(tokens, shared.counter, created_at, metadata or b"None", data or b"None"),
            ),
            content,
        )
        own = (own_hash, escape(id), tokens, created_at, metadata, data, escape(content), b"%d" % checksum)
        return (self._number, b"%d" % now, *own, *shared.stored)

    def _encode_shared(self, draft: Draft) -> _Shared:
        place, session = draft.dimensions, draft.session_id
        own_hash = None if session is None else b"%d" % session_hash(self._namespace, session)
        texts = (
            *(draft.tier, draft.kind, draft.node, session, draft.role, draft.name, draft.trust),
            *(place.subject, place.flow, place.layer),
        )
        middle = [*(None if text is None else text.encode() for text in texts), b"%r" % float(draft.importance)]
        counter = draft.counter.encode()
        window_tokens = None if draft.window_tokens is None else b"%d" % draft.window_tokens
        stored = (None if value is None else escape(value) for value in middle)
        return _Shared(
            _shared_of(draft),
            own_hash or b"None",
            b"\0".join([b"None" if value is None else value for value in middle]),
            counter,
            (own_hash, *stored, escape(counter), window_tokens),
        )


class Head(NamedTuple):
    """The state of a namespace as a transaction has read it: the revisions of the settings and of the head."""

    settings: str | None
    revision: int
    queues: bool
    """Whether records are queued for embedding."""


class OneStatement:
    """The statement for the tables of a dialect, prepared once for each connection."""

    def __init__(self, dialect: Dialect, queues: bool, named: bool) -> None:
        queue = (
            f", q AS (INSERT INTO {dialect.table('jobs')} (namespace, kind, record, seq) "
            "SELECT $3, 'embed', h.seq, h.seq FROM h)"
        )
        values = [_GIVEN.get(column) or f"${COLUMNS.index(column) + 5}" for column in ALL_COLUMNS]
        id_hash, id = values[ALL_COLUMNS.index("id_hash")], values[ALL_COLUMNS.index("id")]
        heads = dialect.table("heads")
        has_id = f"id_hash = {id_hash} AND id = {id} AND namespace = $3"
        is_free = (
            f"AND EXISTS (SELECT 1 FROM {heads} WHERE namespace = $3 FOR UPDATE SKIP LOCKED) "
            f"AND committed_at = (SELECT committed_at FROM {heads} WHERE namespace = $3) "
            f"AND NOT EXISTS (SELECT 1 FROM {dialect.table('records')} WHERE {has_id}) "
            f"AND NOT EXISTS (SELECT 1 FROM {dialect.table('awaited')} WHERE {has_id}) "
        )
        # The sub-select is executed before the head is locked.
        self.text = (
            f"WITH h AS (UPDATE {heads} SET seq = seq + 1, "
            "committed_at = greatest(committed_at + 1, $4) WHERE namespace = $3 AND revision = $1 "
            "AND (SELECT pg_catalog.set_config('lock_timeout', $2, true)) IS NOT NULL "
            f"{is_free if named else ''}RETURNING seq, committed_at)"
            f"{queue if queues else ''} INSERT INTO {dialect.table('records')} ({', '.join(ALL_COLUMNS)}) "
            f"SELECT {', '.join(values)} FROM h"
        ).encode()
        self._types = [_BIGINT, _TEXT, _BIGINT, _BIGINT, *(_TYPES.get(column, _TEXT) for column in COLUMNS)]
        self._name = f"loom_{zlib.crc32(self.text):08x}".encode()

    def execute(
        self,
        raw: PooledConnection,
        values: Sequence[bytes | None],
        head: Head,
        wait_ms: int,
        is_prepared: bool,
    ) -> bool:
        """Insert a record, given by `RowEncoder`. Returns False if the head has another revision."""
        given: list[Any] = [b"%d" % head.revision, b"%d" % wait_ms, *values]
        pgconn = raw.pgconn
        with raw.lock:
            if not is_prepared:
                result = pgconn.exec_params(self.text, given, self._types)
            else:
                if self._name not in raw.prepared:
                    checked(raw, pgconn.prepare(self._name, self.text, self._types))
                    raw.prepared.add(self._name)
                result = pgconn.exec_prepared(self._name, given)
        return bool(checked(raw, result).command_tuples)
