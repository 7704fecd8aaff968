"""Writing: what may happen inside one SQLite transaction of one namespace."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from loom.errors import EmbeddingError, IdConflict, InvalidInput, NotFound, VersionConflictError, WrongDimension
from loom.steps import step
from loom.storage.contract import HEARD, Draft, Entry, Job, Record, Resident, Usage, Vector, Written
from loom.storage.identity import entry_guard, guard, id_hash, session_hash
from loom.storage.moments import from_micros, to_micros
from loom.storage.sqlite.archive import CONTENT, DATA
from loom.storage.sqlite.projections import active_space, advance, read_state
from loom.storage.sqlite.residency import (
    WINDOW,
    TierTotals,
    arrivals,
    as_residents,
    places_of,
    residents,
    totals,
    window,
)
from loom.storage.sqlite.rows import (
    FORGOTTEN_NAME,
    dump_json,
    first_number,
    read_newest,
    read_records,
    read_settings,
    same_id,
    to_job,
)
from loom.text.entities import NAMES

__all__ = [
    "COMPACT",
    "DERIVE",
    "EMBED",
    "EMPTY_AWAITED",
    "EMPTY_VECTORS",
    "INSERT_EDGE",
    "INSERT_RECORD",
    "RESTORE",
    "SqliteTransaction",
    "read_vectors",
]

EMBED = "embed"
"""The kind of job that embeds a record."""

COMPACT = "compact"
"""The kind of job that says that a stretch of records, named by its first, could not be summarised."""

DERIVE = "derive"
"""The kind of job that derives again from records what was derived from them and from a record that is forgotten."""

RESTORE = "restore"
"""The kind of job that gives records their places back after the record that stood for them is forgotten."""

EMPTY_VECTORS = "UPDATE vectors SET record = NULL, data = x'' WHERE "
"""Vectors are emptied where they stand; see `loom.storage.sqlite.schema`."""

INSERT_RECORD = (
    "INSERT INTO records (seq, namespace, id_hash, session_hash, id, version, tier, kind, node, session, role, name, "
    "trust, subject, flow, layer, importance, tokens, counter, created_at, committed_at, metadata, data, content, "
    "checksum, window_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

INSERT_EDGE = "INSERT OR IGNORE INTO edges (source, derived) VALUES (?, ?)"
"""Both ends are the sequence numbers of first versions."""

_EMPTY_ENTRIES = "UPDATE entries SET deleted = 1, content = NULL, metadata = NULL, checksum = 0"

EMPTY_AWAITED = "UPDATE awaited SET id_hash = NULL, id = '', derived = 0"
"""Names of sources are emptied where they stand; see `loom.storage.sqlite.schema`."""


@dataclass(slots=True)
class _Newest:
    """The newest version of an id, as far as the transaction knows."""

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


class SqliteTransaction:
    """Writes inside one `BEGIN IMMEDIATE`. Made by `SqliteStore.transaction`, never kept."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        namespace: int,
        clock: int,
        write_accesses: Callable[[sqlite3.Connection], None],
    ) -> None:
        self.connection = connection
        self.namespace = namespace
        self._write_accesses = write_accesses
        self._totals = TierTotals(connection, namespace)
        # Records carry their own numbers; `store` is written only when others are given out: one page less.
        self._next: int
        self._next, committed_at, self._space, self.revision, name = connection.execute(
            "SELECT max(seq, ifnull((SELECT max(seq) FROM records), 0)), "
            "max(committed_at, ifnull((SELECT committed_at FROM records ORDER BY seq DESC LIMIT 1), 0)), "
            "(SELECT value FROM settings WHERE namespace = ?1 AND node = '' AND key = 'space'), "
            "(SELECT value FROM settings WHERE namespace = ?1 AND node = '' AND key = 'revision'), "
            "(SELECT name FROM namespaces WHERE number = ?1) FROM store",
            (namespace,),
        ).fetchone()
        if name is None or name.startswith(FORGOTTEN_NAME):
            raise NotFound("the namespace of this memory was forgotten; open it again to begin a new one")
        # Never goes back, whatever the clock does: `known_at` relies on the order.
        self.now = max(clock, committed_at + 1)
        self._counts = False
        self.appended = self.appended_bytes = self.queued = 0

    def next_seq(self) -> int:
        self._counts = True
        self._next += 1
        return self._next

    def skip_to(self, number: int) -> None:
        """Give out no number up to this one any more: restored records keep their order under new numbers."""
        self._counts = True
        self._next = max(self._next, number)

    @step("transaction.finish")
    def finish(self) -> None:
        """Write the last number that was given out; the last statement before the commit."""
        if self._counts:
            self.connection.execute("UPDATE store SET seq = ?, committed_at = ?", (self._next, self.now))

    @step("transaction.append")
    def append(self, drafts: Sequence[Draft]) -> list[Written]:
        """Write records, in order. The same id and content again is a no-op.

        Other content under an id that exists raises `IdConflict`, unless the draft revises it.
        """
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
            rows.append(self._row(draft, seq, own_hash, version, created_at, now, metadata, data))
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
                    names.append(seq)  # not embedded: found by terms, and the source has a vector
            self.appended_bytes += len(draft.content)
            results.append(Written(seq, draft.id, version, True, draft.node, draft.importance))
        self._many(INSERT_RECORD, rows)
        for seq, node, size in heard:
            self.enter([seq], HEARD, node, "heard", [size])
        if first:
            self.resolve(first)
        for id, of in sources:
            self.derive(id, of)
        if derivations:
            self._many("INSERT INTO derivations (record, namespace, replaces) VALUES (?, ?, ?)", derivations)
        if self._space is not None:
            self._many(
                "INSERT INTO jobs (namespace, kind, record, seq) VALUES (?, ?, ?, ?)",
                [(self.namespace, EMBED, row[0], row[0]) for row in rows if row[0] not in names],
            )
            self.queued += len(rows) - len(names)
        self.appended += len(rows)
        return results

    def _row(
        self,
        draft: Draft,
        seq: int,
        own_hash: int,
        version: int,
        created_at: int,
        now: int,
        metadata: str | None,
        data: str | None,
    ) -> tuple[Any, ...]:
        place = draft.dimensions
        row = (
            seq,
            self.namespace,
            own_hash,
            None if draft.session_id is None else session_hash(self.namespace, draft.session_id),
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
            draft.tokens,
            draft.counter,
            created_at,
            now,
            metadata,
            data,
            draft.content,
        )
        return (*row, guard(row), draft.window_tokens)

    def _supersede(self, old: _Newest, new: Draft, by: int, at: int) -> list[tuple[int, str, int]]:
        """Put a newer version in the place of an old one, which stays in the log and leaves the tiers.

        Its uses count for the newer one. Nodes that had the old version get the new one: record, node and size.
        """
        self._take_place(old.seq, by, max(at, old.created_at))
        self._write_accesses(self.connection)
        self.connection.execute(
            "UPDATE accesses SET record = ? WHERE namespace = ? AND record = ?", (by, self.namespace, old.seq)
        )
        knew = {} if old.node == new.node else {old.node: new.tokens if old.tier == WINDOW else 0}
        for node, tier in places_of(self.connection, self.namespace, old.seq):
            went = self._totals.leave([old.seq], tier, node)
            self._moved(went, tier, node, 0, "superseded")
            if tier == HEARD and node != new.node:
                knew[node] = new.tokens if went.get(old.seq) else 0
        return [(by, node, size) for node, size in knew.items()]

    def derive(self, derived: str, sources: Sequence[str]) -> None:
        """Name further sources of a record that was made from others. A source may be stored later."""
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
        """Note a source that is not stored yet, of the record whose first version has this sequence number."""
        self.connection.execute(
            "INSERT INTO awaited (namespace, id_hash, id, derived) VALUES (?, ?, ?, ?)",
            (self.namespace, id_hash(self.namespace, id), id, derived),
        )

    def resolve(self, written: Sequence[tuple[int, str]]) -> None:
        """Add the edges of records that named these ids as sources before they were written: hash and id of each."""
        if not self.connection.execute("SELECT 1 FROM awaited WHERE id_hash IS NOT NULL LIMIT 1").fetchone():
            return
        for own_hash, id in written:
            place = (own_hash, id, self.namespace)
            waiting = self.connection.execute(
                "SELECT derived FROM awaited WHERE id_hash = ? AND id = ? AND namespace = ?", place
            ).fetchall()
            if waiting:
                number = first_number(self.connection, self.namespace, id)
                self._many(INSERT_EDGE, [(number, derived) for (derived,) in waiting])
                self.connection.execute(f"{EMPTY_AWAITED} WHERE id_hash = ? AND id = ? AND namespace = ?", place)

    def sources(self, id: str) -> list[Record]:
        """The newest versions of what a record was made from, in the order of writing."""
        seqs = self.connection.execute(
            "SELECT max(r.seq) FROM edges e CROSS JOIN records f ON f.seq = e.source "
            f"CROSS JOIN records r ON {same_id('r', 'f')} WHERE e.derived = ? GROUP BY e.source",
            (first_number(self.connection, self.namespace, id),),
        ).fetchall()
        return [record for _, record in sorted(self.records(seq for (seq,) in seqs).items())]

    def draws_on(self, derived: str, source: str) -> bool:
        """Whether a record was made from another one, among others."""
        ends = [first_number(self.connection, self.namespace, id) for id in (source, derived)]
        return (
            self.connection.execute("SELECT 1 FROM edges WHERE source = ? AND derived = ?", ends).fetchone()
            is not None
        )

    def is_drawn(self, record: int, replacing: bool = False) -> bool:
        """Whether a record was derived from others, and (with `replacing`) made to stand for them in a tier."""
        row = self.connection.execute("SELECT replaces FROM derivations WHERE record = ?", (record,)).fetchone()
        return row is not None and (not replacing or bool(row[0]))

    def supersede(self, record: int, by: int, at: datetime) -> bool:
        """Let another record, under any id, take a record's place from a moment on; False where one has it.

        The old record leaves the tiers and stays in the log. Forgetting the successor gives it its place back. A
        record that is its own successor is withdrawn: nothing took its place.
        """
        row = self.connection.execute(
            "SELECT created_at FROM records r WHERE seq = ? AND namespace = ? AND version > 0 "
            "AND NOT EXISTS (SELECT 1 FROM supersessions s WHERE s.record = r.seq)",
            (record, self.namespace),
        ).fetchone()
        if row is None:
            return False
        self._take_place(record, by, max(to_micros(at), row[0]))
        for node, tier in places_of(self.connection, self.namespace, record):
            self._moved(self._totals.leave([record], tier, node), tier, node, 0, "superseded")
        return True

    def _take_place(self, record: int, by: int, at: int) -> None:
        self.connection.execute(
            "INSERT OR IGNORE INTO supersessions (record, seq, by, at, committed_at) VALUES (?, ?, ?, ?, ?)",
            (record, self.next_seq(), by, at, self.now),
        )

    def progress(self, name: str) -> int:
        """Up to which record a piece of work that follows the log has come."""
        return read_state(self.connection, self.namespace, name).watermark

    @step("transaction.advance")
    def advance(self, name: str, to: int) -> None:
        """Note how far such a piece of work has come."""
        advance(self.connection, self.namespace, name, to)

    def _newest(self, record_id: str, own_hash: int) -> _Newest | None:
        row = self.connection.execute(
            f"SELECT r.seq, r.version, r.created_at, {CONTENT}, {DATA}, r.metadata, r.kind, r.node, r.importance, "
            "r.tier FROM records r WHERE r.id_hash = ? AND r.id = ? AND +r.namespace = ? "
            "ORDER BY r.version DESC LIMIT 1",
            (own_hash, record_id, self.namespace),
        ).fetchone()
        return None if row is None else _Newest(*row)

    def _many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) == 1:
            self.connection.execute(statement, rows[0])
        elif rows:
            self.connection.executemany(statement, rows)

    @step("transaction.enter")
    def enter(
        self, records: Sequence[int], tier: str, node: str, reason: str = "", tokens: Sequence[int] | None = None
    ) -> int:
        """Let records be in a tier of a node, at their own size or the given one; how many were not there yet."""
        if tier == WINDOW:
            raise InvalidInput(f"{WINDOW} is the window of the newest records; a record comes there by being written")
        came = self._totals.enter(records, tokens, tier, node, self._next + 1)
        return self._moved(came, tier, node, 1, reason)

    @step("transaction.leave")
    def leave(self, records: Sequence[int], tier: str, node: str, reason: str = "") -> int:
        """Let records leave a tier of a node; the records themselves stay. How many were there."""
        return self._moved(self._totals.leave(records, tier, node), tier, node, 0, reason)

    def _moved(self, records: Iterable[int], tier: str, node: str, entered: int, reason: str) -> int:
        if reason and not reason.isidentifier():
            raise InvalidInput(f"the reason of a move is one word of ours, such as superseded, not {reason!r}")
        moved = sorted(records)
        if moved:
            self._many(
                "INSERT INTO moves (seq, namespace, record, node, tier, entered, reason) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(self.next_seq(), self.namespace, record, node, tier, entered, reason) for record in moved],
            )
        return len(moved)

    def narrow_window(self, node: str, after: int) -> None:
        """Let the window of a node begin after this record at the earliest."""
        self.next_seq()
        self.connection.execute(
            "INSERT INTO tiers (namespace, node, tier, since) VALUES (?1, ?2, ?3, ?4) "
            "ON CONFLICT DO UPDATE SET since = max(since, ?4)",
            (self.namespace, node, WINDOW, after),
        )

    def totals(self, node: str) -> dict[str, Usage]:
        """What each tier of a node other than the window holds, this transaction's writes included."""
        return totals(self.connection, self.namespace, node)

    def arrivals(self, node: str, tier: str) -> list[tuple[int, int]]:
        """Number and size of each record in a tier other than the window, oldest arrival first."""
        return arrivals(self.connection, self.namespace, node, tier)

    def sizes(self, records: Sequence[int], tier: str, node: str) -> list[tuple[int, int]]:
        """Number and size of those of the records that are in a tier other than the window."""
        return self.connection.execute(
            "SELECT record, tokens FROM residents WHERE namespace = ? AND node = ? AND tier = ? "
            "AND record IN (SELECT value FROM json_each(?)) ORDER BY record",
            (self.namespace, node, tier, dump_json([*records], "records")),
        ).fetchall()

    def residents(self, node: str, tier: str) -> list[Resident]:
        """Who is in a tier other than the window, with the uses noted so far, oldest arrival first."""
        self._write_accesses(self.connection)
        return residents(self.connection, self.namespace, node, tier)

    def most_uses(self, node: str, tier: str) -> int:
        """The uses of the most used record of a tier other than the window."""
        (most,) = self.connection.execute(
            "SELECT ifnull(max(a.count), 0) FROM residents p JOIN accesses a ON a.namespace = p.namespace "
            "AND a.record = p.record AND a.node = p.node WHERE p.namespace = ? AND p.node = ? AND p.tier = ?",
            (self.namespace, node, tier),
        ).fetchone()
        return int(most)

    def as_residents(self, records: Sequence[int], node: str) -> list[Resident]:
        """Records wherever they are, with the uses noted so far."""
        self._write_accesses(self.connection)
        return as_residents(self.connection, self.namespace, node, records)

    def left_within(self, records: Sequence[int], tier: str, node: str, reason: str, numbers: int) -> set[int]:
        """Which of the records have left a tier for this reason within the last numbers of the sequence."""
        rows = self.connection.execute(
            "SELECT record FROM moves WHERE record IN (SELECT value FROM json_each(?)) AND seq > ? "
            "AND namespace = ? AND node = ? AND tier = ? AND NOT entered AND reason = ?",
            (dump_json([*records], "records"), self._next - numbers, self.namespace, node, tier, reason),
        )
        return {record for (record,) in rows}

    def window(self, node: str) -> list[tuple[int, int]]:
        """Number and tokens of each record in the node's window, newest first."""
        return window(self.connection, self.namespace, node)

    def vectors(self, records: Sequence[int]) -> dict[int, Vector]:
        """The embeddings of records; those that have none yet are missing."""
        return read_vectors(self.connection, self.namespace, records)

    def settings(self, node: str) -> dict[str, Any]:
        """What the file says about a node, in this transaction."""
        return read_settings(self.connection, self.namespace, node)

    def get(self, id: str) -> Record | None:
        """The newest version under an id, or None."""
        return read_newest(self.connection, self.namespace, id)

    def records(self, seqs: Iterable[int]) -> dict[int, Record]:
        """Records by their numbers; those that do not exist are missing."""
        return read_records(self.connection, self.namespace, seqs)

    def put_entry(
        self,
        key: str,
        content: Any,
        *,
        writer: str,
        scope: str = "local",
        owner: str = "",
        expected_version: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        history: bool = True,
    ) -> Entry:
        """Write the next version of a key. With `expected_version` (0: must not exist) only if it matches.

        Without `history` the earlier versions are emptied.
        """
        row = self._entry_row(key, scope, owner)
        exists = row is not None and not row[1]
        actual = row[0] if row is not None and exists else 0
        if expected_version is not None and expected_version != actual:
            raise VersionConflictError(key, expected_version, actual)
        merged = dict(json.loads(row[4])) if row is not None and exists and row[4] else {}
        merged.update(metadata or {})
        version = (row[0] if row is not None else 0) + 1
        created_by, created_at = (row[2], row[3]) if row is not None and exists else (writer, self.now)
        row_of_entry = (
            scope,
            owner,
            key,
            version,
            created_by,
            writer,
            created_at,
            self.now,
            dump_json(merged, "metadata") if merged else None,
            dump_json(content, "the content of an entry"),
        )
        try:
            guard = entry_guard(row_of_entry)
        except UnicodeEncodeError as error:
            raise InvalidInput(f"the entry {key!r} holds a lone surrogate, which is not valid text") from error
        self.connection.execute(
            "INSERT INTO entries (seq, namespace, scope, owner, key, version, deleted, created_by, updated_by, "
            "created_at, updated_at, metadata, content, checksum) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?)",
            (self.next_seq(), self.namespace, *row_of_entry, guard),
        )
        if not history and actual:
            self.connection.execute(
                f"{_EMPTY_ENTRIES} WHERE namespace = ? AND scope = ? AND owner = ? AND key = ? AND version < ? "
                "AND NOT deleted",
                (self.namespace, scope, owner, key, version),
            )
        return Entry(
            key=key,
            content=json.loads(dump_json(content, "the content of an entry")),
            version=version,
            scope=scope,
            owner=owner,
            created_by=created_by,
            updated_by=writer,
            created_at=from_micros(created_at),
            updated_at=from_micros(self.now),
            metadata=merged,
        )

    def delete_entry(
        self,
        key: str,
        *,
        scope: str = "local",
        owner: str = "",
        expected_version: int | None = None,
        writer: str = "",
    ) -> int:
        """Remove every version of a key; only who did it and the number are kept, so that versions grow.

        The version that the deletion has, 0 where there was nothing to delete.
        """
        row = self._entry_row(key, scope, owner)
        exists = row is not None and not row[1]
        actual = row[0] if row is not None and exists else 0
        if expected_version is not None and expected_version != actual:
            raise VersionConflictError(key, expected_version, actual)
        if row is None or not exists:
            return 0
        place = (self.namespace, scope, owner, key)
        self.connection.execute(
            f"{_EMPTY_ENTRIES} WHERE namespace = ? AND scope = ? AND owner = ? AND key = ?", place
        )
        self.connection.execute(
            "INSERT INTO entries (seq, namespace, scope, owner, key, version, deleted, created_by, updated_by, "
            "created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, 1, '', ?, ?, ?)",
            (self.next_seq(), *place, actual + 1, writer, self.now, self.now),
        )
        return actual + 1

    def _entry_row(self, key: str, scope: str, owner: str) -> tuple[int, int, str, int, str | None] | None:
        row: tuple[int, int, str, int, str | None] | None = self.connection.execute(
            "SELECT version, deleted, created_by, created_at, metadata FROM entries WHERE namespace = ? "
            "AND scope = ? AND owner = ? AND key = ? ORDER BY version DESC LIMIT 1",
            (self.namespace, scope, owner, key),
        ).fetchone()
        return row

    def put_blob(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, with a checksum; replaces what was there."""
        self.delete_blob(key)
        self.connection.execute(
            "INSERT INTO blobs (seq, namespace, key, checksum, data) VALUES (?, ?, ?, ?, ?)",
            (self.next_seq(), self.namespace, key, zlib.crc32(data), data),
        )

    def delete_blob(self, key: str) -> bool:
        """Remove the bytes under a key; False where there were none."""
        done = self.connection.execute(
            "UPDATE blobs SET key = NULL, data = x'' WHERE namespace = ? AND key = ?", (self.namespace, key)
        )
        return done.rowcount > 0

    @step("transaction.put_vectors")
    def put_vectors(self, records: Sequence[int], vectors: Vector) -> None:
        """Keep the embeddings of records in the namespace's space. A record that is gone is passed over."""
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
        marks = ", ".join("?" * len(records))
        alive = {
            row[0]
            for row in self.connection.execute(
                f"SELECT seq FROM records WHERE seq IN ({marks}) AND namespace = ? AND version > 0",
                (*records, self.namespace),
            )
        }
        self.connection.execute(f"{EMPTY_VECTORS} record IN ({marks})", records)
        self._many(
            "INSERT INTO vectors (seq, namespace, space, record, data) VALUES (?, ?, ?, ?, ?)",
            [
                (self.next_seq(), self.namespace, number, record, packed[position].tobytes())
                for position, record in enumerate(records)
                if record in alive
            ],
        )

    def take_jobs(self, kind: str, limit: int) -> list[Job]:
        """The oldest jobs of a kind, taken off the queue: they are done if this transaction commits."""
        rows = self.connection.execute(
            "SELECT seq, kind, record, data, attempts, error FROM jobs WHERE namespace = ? AND kind = ? "
            "ORDER BY record, seq LIMIT ?",
            (self.namespace, kind, limit),
        ).fetchall()
        return self.take(list(map(to_job, rows)))

    @step("transaction.take_jobs")
    def take(self, jobs: Sequence[Job]) -> list[Job]:
        """These jobs, taken off the queue; those that are no longer there are missing."""
        delete = "DELETE FROM jobs WHERE namespace = ? AND kind = ? AND record = ? AND seq = ?"
        return [
            job
            for job in jobs
            if self.connection.execute(delete, (self.namespace, job.kind, job.record, job.seq)).rowcount
        ]

    def enqueue(self, kind: str, record: int = 0, data: Sequence[int] = ()) -> int:
        """Put background work into the durable queue. It refers to records by number and never holds their words."""
        return self.enqueue_each(kind, [record], data)

    @step("transaction.enqueue")
    def enqueue_each(self, kind: str, records: Sequence[int], data: Sequence[int] = ()) -> int:
        """Put one piece of work about several records into the queue: a row for each, all with one number."""
        if not all(isinstance(number, int) for number in data):
            raise InvalidInput("a job carries numbers only; what records say stays in the records")
        seq = self.next_seq()
        numbers = dump_json(list(data), "a job's data") if data else None
        self._many(
            "INSERT INTO jobs (namespace, kind, record, seq, data) VALUES (?, ?, ?, ?, ?)",
            [(self.namespace, kind, record, seq, numbers) for record in records],
        )
        self.queued += len(records)
        return seq

    def retry(self, kind: str, record: int, error: str, *, attempts: int = 1) -> None:
        """Queue work about one record that failed `attempts` times so far, or count the attempts of what is queued.

        `error` is the name of the error's type. A job that has failed too often is set aside: it is not taken up.
        """
        counted = self.connection.execute(
            "UPDATE jobs SET attempts = attempts + ?, error = ? WHERE namespace = ? AND kind = ? AND record = ?",
            (attempts, error, self.namespace, kind, record),
        )
        if not counted.rowcount:
            self.connection.execute(
                "INSERT INTO jobs (namespace, kind, record, seq, data, attempts, error) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (self.namespace, kind, record, self.next_seq(), json.dumps([record]), attempts, error),
            )

    def pin(self, id: str, pinned: bool) -> None:
        """Keep an id from retention, or stop doing so. Raises `NotFound` if there is no such id to keep."""
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


def read_vectors(connection: sqlite3.Connection, namespace: int, records: Iterable[int]) -> dict[int, Vector]:
    """The embeddings of records in the space that the namespace uses; those that have none yet are missing."""
    space = active_space(connection, namespace)
    if space is None:
        return {}
    rows = connection.execute(
        "SELECT record, data FROM vectors WHERE record IN (SELECT value FROM json_each(?)) AND space = ?",
        (json.dumps([*records]), space[0]),
    )
    return {record: np.frombuffer(data, dtype=np.float16).astype(np.float32) for record, data in rows}
