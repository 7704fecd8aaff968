"""Writing: the operations inside one transaction of one namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from loom.errors import EmbeddingError, IdConflict, NotFound, WrongDimension
from loom.steps import step
from loom.storage import contract
from loom.storage.contract import EMBED, HEARD, WINDOW, Draft, Vector, Written
from loom.storage.databases import Connection
from loom.storage.identity import guard, id_hash, session_hash
from loom.storage.moments import to_micros
from loom.storage.sqlite.archive import CONTENT, DATA
from loom.storage.sqlite.copying import Rows, insert
from loom.storage.sqlite.counting import Counts, as_stored
from loom.storage.sqlite.entries import BlobWrites, EntryWrites, JobWrites
from loom.storage.sqlite.projections import VECTORS, active_space, advance, count_up, start_over, vector_basis
from loom.storage.sqlite.records import Records
from loom.storage.sqlite.residency import ResidencyWrites, TierTotals
from loom.storage.sqlite.rows import FORGOTTEN_NAME, INSERT_EDGE, dump_json, first_number, is_names
from loom.storage.tables import Row, guarded
from loom.text.entities import NAMES

__all__ = [
    "BEGUN",
    "EMPTY_AWAITED",
    "EMPTY_VECTORS",
    "FINISH",
    "INSERT_RECORD",
    "INSERT_VECTOR",
    "QUEUE",
    "SqliteTransaction",
    "put_setting",
    "record_row",
]

EMPTY_VECTORS = "UPDATE vectors SET record = NULL, data = x'' WHERE "
"""Empties vectors in place; see `loom.storage.sqlite.schema`."""

INSERT_RECORD = (
    "INSERT INTO records (seq, namespace, id_hash, session_hash, id, version, tier, kind, node, session, role, name, "
    "trust, subject, flow, layer, importance, tokens, counter, created_at, committed_at, metadata, data, content, "
    "checksum, window_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

INSERT_VECTOR = "INSERT INTO vectors (seq, namespace, space, record, data) VALUES (?, ?, ?, ?, ?)"

QUEUE = "INSERT INTO jobs (namespace, kind, record, seq) VALUES (?, ?, ?, ?)"
"""Puts a job into the queue."""

BEGUN = (
    "SELECT max(seq, ifnull((SELECT max(seq) FROM records), 0)), "
    "max(committed_at, ifnull((SELECT committed_at FROM records ORDER BY seq DESC LIMIT 1), 0)), "
    "(SELECT value FROM settings WHERE namespace = ?1 AND node = '' AND key = 'space'), "
    "(SELECT value FROM settings WHERE namespace = ?1 AND node = '' AND key = 'revision'), "
    "(SELECT name FROM namespaces WHERE number = ?1) FROM store"
)
"""The last sequence number and commit time, space, revision of the settings, and name of a namespace."""

FINISH = "UPDATE store SET seq = ?, committed_at = ?"
"""Writes the last sequence number and commit time."""

EMPTY_AWAITED = "UPDATE awaited SET id_hash = NULL, id = '', derived = 0"
"""Empties names of sources in place; see `loom.storage.sqlite.schema`."""


@dataclass(slots=True)
class _Newest:
    """The newest version of an id, as the transaction sees it."""

    seq: int
    version: int
    created_at: int
    content: str
    data: str | None
    metadata: str | None
    kind: str
    node: str
    importance: float
    tier: str | None


class SqliteTransaction(Records, ResidencyWrites, EntryWrites, BlobWrites, JobWrites, Rows, contract.Transaction):
    """Writes inside one `BEGIN IMMEDIATE`. `SqliteStore.transaction` creates it for one block."""

    def __init__(
        self,
        connection: Connection,
        namespace: int,
        clock: int,
        write_accesses: Callable[[Connection], None],
        counts: Counts,
    ) -> None:
        super().__init__(connection, namespace)
        self.namespace = namespace
        self.chosen = (namespace,)
        self._write_accesses = write_accesses
        self.counts = counts
        # Records store their own sequence numbers. The table `store` is written only if other rows use some, which
        # saves writing a page.
        self._next: int
        self._revision: str | None
        self._next, committed_at, self._space, self._revision, name = connection.execute(
            BEGUN, (namespace,)
        ).fetchone()
        if name is None or name.startswith(FORGOTTEN_NAME):
            raise NotFound("the namespace of this memory was forgotten; open it again to begin a new one")
        # Commit times always ascend, even if the clock goes back: `known_at` relies on the order.
        self.now = max(clock, committed_at + 1)
        self._counts = False
        self.appended = self.appended_bytes = 0

    @property
    def revision(self) -> str | None:
        return self._revision

    def recent_uses(self) -> None:
        """Write the buffered uses, so that reads in the transaction find them in the database."""
        self._write_accesses(self.connection)

    def _last_seq(self, connection: Connection) -> int:
        return self._next

    def next_seq(self) -> int:
        self._counts = True
        self._next += 1
        return self._next

    def skip_to(self, number: int) -> None:
        self._counts = True
        self._next = max(self._next, number)

    @step("transaction.finish")
    def finish(self) -> None:
        """Write the last sequence number in use, as the last statement before the commit."""
        if self._counts:
            self.connection.execute(FINISH, (self._next, self.now))

    @step("transaction.append")
    def append(self, drafts: Sequence[Draft]) -> list[Written]:
        now = self.now
        rows: list[tuple[Any, ...]] = []
        sources: list[tuple[str, Sequence[str]]] = []
        first: list[tuple[int, str]] = []
        derivations: list[tuple[Any, ...]] = []
        names: list[int] = []
        results: list[Written] = []
        heard: list[tuple[int, str, int]] = []
        newest: dict[str, _Newest] = {}
        for draft in drafts:
            metadata = dump_json(dict(draft.metadata), "metadata") if draft.metadata else None
            data = None if draft.data is None else dump_json(draft.data, "data")
            created_at = to_micros(draft.created_at)
            version = 1
            own_hash = id_hash(self.namespace, draft.id)
            known = newest.get(draft.id) or (self._newest(draft.id, own_hash) if draft.named else None)
            if known is not None:
                same = known.content == draft.content and known.data == data
                if draft.revises:
                    if known.kind != draft.kind:
                        raise IdConflict(
                            f"the id {draft.id!r} names a {known.kind}; a {draft.kind} cannot be its next version. "
                            "Choose another id."
                        )
                    same = same and known.metadata == metadata
                    same = same and (draft.lasting or known.importance == draft.importance)
                if same:
                    results.append(Written(known.seq, draft.id, known.version, False, known.node, known.importance))
                    continue
                if not draft.revises:
                    raise IdConflict(
                        f"the id {draft.id!r} already names another text; choose another id, "
                        "or use update() to replace it with a new version"
                    )
                version = known.version + 1
                if draft.lasting and known.importance > draft.importance:
                    draft = draft._replace(importance=known.importance)
            seq = self._next = self._next + 1
            rows.append(record_row(self.namespace, draft, seq, own_hash, version, created_at, now, metadata, data))
            if known is not None:
                pending = [(seq, node, draft.tokens if size else 0) for old, node, size in heard if old == known.seq]
                heard = [one for one in heard if one[0] != known.seq]
                heard += [one for one in pending if one[1] != draft.node]
                heard += self._supersede(known, draft, seq, created_at)
            if draft.named:
                if version == 1:
                    first.append((own_hash, draft.id))
                newest[draft.id] = _Newest(
                    seq,
                    version,
                    created_at,
                    draft.content,
                    data,
                    metadata,
                    draft.kind,
                    draft.node,
                    draft.importance,
                    draft.tier,
                )
            if draft.sources:
                sources.append((draft.id, draft.sources))
            if draft.drawn:
                derivations.append((seq, self.namespace, draft.replaces))
                if draft.kind == NAMES:
                    names.append(seq)  # not embedded: a search finds it by terms, and its source has a vector
            self.appended_bytes += len(draft.content)
            results.append(Written(seq, draft.id, version, True, draft.node, draft.importance))
        self.many(INSERT_RECORD, rows)
        for seq, node, size in heard:
            self.enter([seq], HEARD, node, "heard", [size])
        if first:
            self.resolve(first)
        for id, of in sources:
            self.derive(id, of)
        if derivations:
            self.many("INSERT INTO derivations (record, namespace, replaces) VALUES (?, ?, ?)", derivations)
        if self._space is not None:
            self.many(QUEUE, [(self.namespace, EMBED, seq, seq) for seq, *_ in rows if seq not in names])
            self.queued += len(rows) - len(names)
        self.appended += len(rows)
        return results

    def _supersede(self, old: _Newest, new: Draft, by: int, at: int) -> list[tuple[int, str, int]]:
        """Supersede an old version by a new one. The old version stays in the log and leaves the tiers.

        Its uses count for the new version. Nodes that had the old version get the new one. Returns the new residents:
        record, node and size.
        """
        self._take_place(old.seq, by, max(at, old.created_at))
        self._write_accesses(self.connection)
        self.connection.execute(
            "UPDATE accesses SET record = ? WHERE namespace = ? AND record = ?", (by, self.namespace, old.seq)
        )
        knew = {} if old.node == new.node else {old.node: new.tokens if old.tier == WINDOW else 0}
        for (node, tier), size in self.leave_everywhere(old.seq).items():
            if tier == HEARD and node != new.node:
                knew[node] = new.tokens if size else 0
        return [(by, node, size) for node, size in knew.items()]

    def derive(self, derived: str, sources: Sequence[str]) -> None:
        own = first_number(self.connection, self.namespace, derived)
        if own is None:
            raise NotFound(f"there is no record with the id {derived!r}, so it has no sources; write it first")
        for source in sources:
            number = first_number(self.connection, self.namespace, source)
            if number is not None:
                self.connection.execute(INSERT_EDGE, (number, own))
            else:
                self.await_source(source, own)

    def await_source(self, id: str, derived: int) -> None:
        """Remember a source that is not stored yet. `derived` is the first version of the record that names it."""
        self.connection.execute(
            "INSERT INTO awaited (namespace, id_hash, id, derived) VALUES (?, ?, ?, ?)",
            (self.namespace, id_hash(self.namespace, id), id, derived),
        )

    def resolve(self, written: Sequence[tuple[int, str]]) -> None:
        """Add the edges of records that named these ids as sources in advance. `written`: the hash and id of each."""
        if not self.connection.execute("SELECT 1 FROM awaited WHERE id_hash IS NOT NULL LIMIT 1").fetchone():
            return
        for own_hash, id in written:
            place = (own_hash, id, self.namespace)
            waiting = self.connection.execute(
                "SELECT derived FROM awaited WHERE id_hash = ? AND id = ? AND namespace = ?", place
            ).fetchall()
            if waiting:
                number = first_number(self.connection, self.namespace, id)
                self.many(INSERT_EDGE, [(number, derived) for (derived,) in waiting])
                self.connection.execute(f"{EMPTY_AWAITED} WHERE id_hash = ? AND id = ? AND namespace = ?", place)

    def supersede(self, record: int, by: int, at: datetime) -> bool:
        row = self.connection.execute(
            "SELECT created_at FROM records r WHERE seq = ? AND namespace = ? AND version > 0 "
            "AND NOT EXISTS (SELECT 1 FROM supersessions s WHERE s.record = r.seq)",
            (record, self.namespace),
        ).fetchone()
        if row is None:
            return False
        self._take_place(record, by, max(to_micros(at), row[0]))
        self.leave_everywhere(record)
        return True

    def _take_place(self, record: int, by: int, at: int) -> None:
        self.connection.execute(
            "INSERT OR IGNORE INTO supersessions (record, seq, by, at, committed_at) VALUES (?, ?, ?, ?, ?)",
            (record, self.next_seq(), by, at, self.now),
        )

    @step("transaction.advance")
    def advance(self, name: str, to: int) -> None:
        advance(self.connection, self.namespace, name, to)

    def put_settings(self, node: str, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            put_setting(self.connection, self.namespace, node, key, value)

    def _newest(self, record_id: str, own_hash: int) -> _Newest | None:
        row = self.connection.execute(
            f"SELECT r.seq, r.version, r.created_at, {CONTENT}, {DATA}, r.metadata, r.kind, r.node, r.importance, "
            "r.tier FROM records r WHERE r.id_hash = ? AND r.id = ? AND +r.namespace = ? "
            "ORDER BY r.version DESC LIMIT 1",
            (own_hash, record_id, self.namespace),
        ).fetchone()
        return None if row is None else _Newest(*row)

    @step("transaction.put_vectors")
    def put_vectors(self, records: Sequence[int], vectors: Vector) -> None:
        space = active_space(self.connection, self.namespace)
        if space is None:
            raise EmbeddingError("this store has no embedding space yet; open it with an embedder first")
        number, dimensions = space
        if vectors.ndim != 2 or vectors.shape != (len(records), dimensions):
            raise WrongDimension(
                f"vectors of shape {vectors.shape} for {len(records)} records; this store holds "
                f"vectors of {dimensions} dimensions"
            )
        packed = vectors.astype(np.float16)
        if not np.isfinite(packed).all():
            raise WrongDimension("a vector holds NaN or infinity; the embedder is at fault")
        if not records:
            return
        marks = ", ".join("?" * len(records))
        alive = {
            seq
            for (seq,) in self.connection.execute(
                f"SELECT seq FROM records WHERE seq IN ({marks}) AND namespace = ? AND version > 0",
                (*records, self.namespace),
            )
        }
        self.connection.execute(f"{EMPTY_VECTORS} record IN ({marks})", records)
        self.many(
            INSERT_VECTOR,
            [
                (self.next_seq(), self.namespace, number, record, packed[position].tobytes())
                for position, record in enumerate(records)
                if record in alive
            ],
        )

    def pin(self, id: str, pinned: bool) -> None:
        number = first_number(self.connection, self.namespace, id)
        if number is None and pinned:
            raise NotFound(f"there is no record with the id {id!r} to pin; write it first")
        if pinned:
            self.connection.execute(
                "INSERT OR REPLACE INTO pins (record, namespace, seq) VALUES (?, ?, ?)",
                (number, self.namespace, self.next_seq()),
            )
        else:
            self.next_seq()
            self.connection.execute("DELETE FROM pins WHERE record = ?", (number,))

    @step("space.change")
    def change_space(self, name: str, dimensions: int) -> None:
        self.connection.execute("INSERT OR IGNORE INTO spaces (name, dimensions) VALUES (?, ?)", (name, dimensions))
        (number,) = self.connection.execute(
            "SELECT number FROM spaces WHERE name = ? AND dimensions = ?", (name, dimensions)
        ).fetchone()
        self.put_settings("", {"space": number})
        self.next_seq()
        start_over(self.connection, self.namespace, VECTORS, vector_basis(number))
        self.connection.execute(EMPTY_VECTORS + "namespace = ? AND space != ?", (self.namespace, number))
        self.connection.execute("DELETE FROM jobs WHERE namespace = ? AND kind = ?", (self.namespace, EMBED))
        missing = self.connection.execute(
            "SELECT r.seq FROM records r LEFT JOIN vectors v ON v.record = r.seq AND v.space = ? "
            f"WHERE r.namespace = ? AND r.version > 0 AND v.seq IS NULL AND NOT {is_names()}",
            (number, self.namespace),
        ).fetchall()
        self.many(QUEUE, [(self.namespace, EMBED, record, self.next_seq()) for (record,) in missing])

    # -- rows of another store -------------------------------------------------------------------------------------

    def _position(self) -> int:
        return self._next

    @step("transaction.add_rows")
    def add_rows(self, table: str, rows: Iterable[Row]) -> int:
        own: Iterator[Row] = ({**row, "namespace": self.namespace} for row in rows)
        if table == "edges":
            return sum(map(self._add_edge, own))
        if table == "records":
            return self._add_records(own)
        if table == "entries":
            own = map(self._after_emptying, own)
        elif table == "blobs":
            own = map(self._after_deleting, own)
        elif table == "vectors":
            space, _ = active_space(self.connection, self.namespace) or (None, 0)
            own = ({**row, "space": space} for row in own)
        count = insert(self.connection, table, own, keeping=table == "tiers")
        if table == "jobs":
            self.queued += count
        elif table == "residents":
            TierTotals(self.connection, self.namespace).recount()
        return count

    def _add_records(self, rows: Iterable[Row]) -> int:
        first: list[tuple[int, str]] = []

        def complete() -> Iterator[Row]:
            for row in rows:
                row |= guarded(row, self.namespace)
                if row["version"] == 1:
                    first.append((row["id_hash"], row["id"]))
                self.appended_bytes += len(row["content"])
                yield row

        count = insert(self.connection, "records", complete())
        self.resolve(first)
        self.appended += count
        return count

    def _add_edge(self, row: Row) -> int:
        source = row["source"]
        if source is None:
            source = first_number(self.connection, self.namespace, row["bare"])
        if source is None:
            self.await_source(row["bare"], row["derived"])
            return 1
        return self.connection.execute(INSERT_EDGE, (source, row["derived"])).rowcount

    def _after_emptying(self, row: Row) -> Row:
        """A row of an entry. A deletion first empties the earlier versions."""
        if row["deleted"]:
            self._empty_entry((self.namespace, row["scope"], row["owner"], row["key"]))
        return row

    def _after_deleting(self, row: Row) -> Row:
        """A row of a blob, which replaces the earlier blob of its key."""
        self.delete_blob(row["key"])
        return row


def record_row(
    namespace: int,
    draft: Draft,
    seq: int,
    own_hash: int,
    version: int,
    created_at: int,
    now: int,
    metadata: str | None,
    data: str | None,
) -> tuple[Any, ...]:
    """The values of `INSERT_RECORD` for a draft."""
    place = draft.dimensions
    row = (
        seq,
        namespace,
        own_hash,
        None if draft.session_id is None else session_hash(namespace, draft.session_id),
        draft.id,
        version,
        draft.tier,
        draft.kind,
        draft.node,
        draft.session_id,
        draft.role,
        draft.name,
        draft.trust,
        place.subject,
        place.flow,
        place.layer,
        float(draft.importance),
        as_stored(draft.tokens),
        draft.counter,
        created_at,
        now,
        metadata,
        data,
        draft.content,
    )
    return (*row, guard(row), draft.window_tokens)


def put_setting(connection: Connection, namespace: int, node: str, key: str, value: Any) -> None:
    """Write a setting of a node, or of the whole namespace (the empty node), and increment the revision."""
    connection.execute(
        "INSERT OR REPLACE INTO settings (namespace, node, key, value) VALUES (?, ?, ?, ?)",
        (namespace, node, key, dump_json(value, f"the setting {key}")),
    )
    connection.execute(
        "INSERT INTO settings (namespace, node, key, value) VALUES (?, '', 'revision', '1') "
        "ON CONFLICT (namespace, node, key) DO UPDATE SET value = CAST(CAST(settings.value AS INTEGER) + 1 AS TEXT)",
        (namespace,),
    )
    count_up(connection)
