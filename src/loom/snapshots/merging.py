"""Restoring a snapshot into a namespace that exists: which records are there already, which come, and their numbers.

Ids stay; numbers are mapped, because a file has one sequence for all of its namespaces. What comes keeps its order
above everything that was there. The mapping is noted in the file, so that the same snapshot, or a later one of the
same store, finds its records again, and finds which of them were forgotten here since. Everything happens in the
caller's transaction: all of it is done, or nothing has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from loom.errors import Conflict, IdConflict, NotFound, ReadOnly
from loom.snapshots.staging import INSERT_ENTRY, Restored, Stage, staged_aside
from loom.snapshots.taking import NOTED, SnapshotPath, as_chain, descends
from loom.steps import step
from loom.storage.contract import EMBED, Store
from loom.storage.identity import guard, id_hash, session_hash
from loom.storage.moments import from_micros
from loom.storage.sqlite.archive import CONTENT, DATA
from loom.storage.sqlite.projections import VECTORS, active_space, last_number, start_over, vector_basis
from loom.storage.sqlite.residency import WINDOW, TierTotals
from loom.storage.sqlite.rows import first_number, is_names, read_settings
from loom.storage.sqlite.store import SqliteStore, as_sqlite
from loom.storage.sqlite.transactions import INSERT_EDGE, INSERT_RECORD, SqliteTransaction, put_setting

__all__ = ["restore_into"]

# What a namespace decides for itself, or what the merge maps.
_OWN_SETTINGS = frozenset({"analyzer", "space", "revision", NOTED})
# Where a memory notes how it tunes itself: it goes on with its own notes, not with another's.
_OWN_KEYS = "loom."
_NOWHERE = 0


def restore_into(
    store: Store,
    snapshot: SnapshotPath | Sequence[SnapshotPath],
    *,
    namespace: str | None = None,
    forgotten: bool = False,
    without: Collection[str] = (),
    then: Callable[[SqliteTransaction, list[str]], None] | None = None,
) -> Restored:
    """Bring what a snapshot holds of a namespace (its own name's, or the only one) into the store's, all or nothing.

    Records the store already has are not written twice; an id with another text raises `IdConflict`. Records that
    were forgotten here since stay forgotten, unless `forgotten` is True. Entries of the scopes `without` are skipped.
    `then` is called in the same transaction with the nodes that have records in tiers.
    """
    store = as_sqlite(store)
    store.check_open()
    if store.read_only:
        raise ReadOnly(f"{store.path} was opened read-only; open it without read_only=True to restore into it")
    with staged_aside(as_chain(snapshot), store.path) as stage, store.transaction() as transaction:
        merge = _Merge(store, transaction, stage, namespace, forgotten=forgotten, without=without)
        done = merge.run()
        if then is not None:
            then(transaction, merge.nodes)
    return done


class _Merge:
    """One restore of one staged namespace into one that exists, inside one transaction."""

    def __init__(
        self,
        store: SqliteStore,
        transaction: SqliteTransaction,
        stage: Stage,
        namespace: str | None,
        *,
        forgotten: bool,
        without: Collection[str],
    ) -> None:
        self._store = store
        self._transaction = transaction
        self._connection = transaction.connection
        self._number = transaction.namespace
        self._stage = stage
        self._bring_back = forgotten
        self._without = without
        self._source = _chosen(stage, namespace, store.namespace)
        self._base = last_number(self._connection)
        self._settings = read_settings(self._connection, self._number, "")
        self._was_empty = (
            self._connection.execute(
                "SELECT 1 FROM records WHERE namespace = ? AND version > 0 LIMIT 1", (self._number,)
            ).fetchone()
            is None
        )
        self._known = self._known_ranges()
        self._moved: dict[int, int] = {}
        self._left: set[str] = set()
        self._first: list[tuple[int, str]] = []

    @step("merge.run")
    def run(self) -> Restored:
        """Bring everything over; what came and what did not."""
        records, present, forgotten, left = self._records()
        self._supersessions()
        self._derivations()
        self._edges()
        self._places()
        self._pins()
        self._accesses()
        entries = self._entries()
        blobs = self._blobs()
        vectors = self._vectors()
        self._jobs()
        self._node_settings()
        if self._was_empty:
            self._follow()
        self._note()
        self._transaction.appended += records
        return Restored(
            self._store.path,
            (self._store.namespace,),
            records,
            present=present,
            forgotten=forgotten,
            left=left,
            entries=entries,
            blobs=blobs,
            vectors=vectors,
        )

    @property
    def nodes(self) -> list[str]:
        """The nodes that something was restored for."""
        return [
            row[0]
            for row in self._connection.execute(
                "SELECT DISTINCT node FROM tiers WHERE namespace = ? ORDER BY node", (self._number,)
            )
        ]

    # -- numbers -----------------------------------------------------------------------------------------

    def _known_ranges(self) -> list[tuple[int, int]]:
        """Up to which number of the snapshot's store what was added to numbers here, in earlier restores."""
        start = self._stage.start
        if start.namespaces[self._source] == self._store.namespace and descends(self._connection, start):
            return [(start.position, 0)]  # it is our own past
        noted = self._settings.get(NOTED, {}).get(self._key(), [])
        return [(last, added) for last, added in noted]

    def _key(self) -> str:
        return f"{self._stage.start.store}/{self._stage.start.namespaces[self._source]}"

    def _earlier(self, number: int) -> int | None:
        """The number that an earlier restore gave this one, or that it always had; None where it is new here."""
        return next((number + added for last, added in self._known if number <= last), None)

    def _mapped(self, number: int) -> int:
        """Where a record of the snapshot is now; what is not above the base was there before, or is not here."""
        found = self._moved.get(number)
        if found is None:
            found = self._earlier(number)
        return number + self._base if found is None else found

    def _new(self, number: int) -> int:
        """A number for what comes: above everything that is here, in the order of the snapshot."""
        self._transaction.skip_to(self._base + self._stage.start.position)
        return number + self._base

    def _came(self, number: int) -> int | None:
        """The new number of a record that came just now, or None."""
        found = self._mapped(number)
        return found if found > self._base else None

    @step("merge.note")
    def _note(self) -> None:
        start = self._stage.start
        if self._known and self._known[-1][0] >= start.position:
            return
        noted = dict(self._settings.get(NOTED, {}))
        noted[self._key()] = [*self._known, (start.position, self._base)]
        self._put_setting("", NOTED, noted)

    def _staged(self, query: str) -> Iterator[Any]:
        return self._stage.connection.execute(query, (self._source,))

    # -- records -----------------------------------------------------------------------------------------

    @step("merge.records")
    def _records(self) -> tuple[int, int, int, int]:
        came = present = forgotten = left = 0
        for row in self._staged(
            "SELECT r.seq, r.id, r.version, r.tier, r.kind, r.node, r.session, r.role, r.name, r.trust, r.subject, "
            "r.flow, r.layer, r.importance, r.tokens, r.counter, r.created_at, r.committed_at, r.metadata, r.data, "
            "r.content, r.window_tokens, EXISTS (SELECT 1 FROM derivations d WHERE d.record = r.seq) "
            "FROM records r WHERE r.namespace = ? ORDER BY r.seq"
        ):
            old = row[0]
            earlier = self._earlier(old)
            if earlier is not None and self._is_same(earlier, row):
                present += 1
                continue
            if earlier is not None and self._is_forgotten(earlier) and not self._bring_back:
                forgotten += 1
                continue
            there = self._under_same_id(row)
            if there is not None:
                self._moved[old] = there
                present += there != _NOWHERE
                left += there == _NOWHERE
                continue
            if earlier is not None:
                self._moved[old] = self._new(old)
            self._insert(row)
            came += 1
        return came, present, forgotten, left

    def _is_same(self, number: int, row: Any) -> bool:
        """Whether the record with a number is this version of this id, with the same words."""
        found = self._connection.execute(
            f"SELECT r.id, r.version, r.kind, {CONTENT}, {DATA} FROM records r "
            "WHERE r.seq = ? AND r.namespace = ? AND r.version > 0",
            (number, self._number),
        ).fetchone()
        return found is not None and found == (row[1], row[2], row[4], row[20], row[19])

    def _is_forgotten(self, number: int) -> bool:
        place = int(np.searchsorted(self._tombstones, number))
        return place < len(self._tombstones) and int(self._tombstones[place]) == number

    @cached_property
    def _tombstones(self) -> npt.NDArray[np.int64]:
        rows = self._connection.execute("SELECT record FROM forgotten WHERE namespace = ?", (self._number,))
        return np.sort(np.fromiter((row[0] for row in rows), dtype=np.int64))

    def _under_same_id(self, row: Any) -> int | None:
        """The record that is here under the same id and version; `_NOWHERE` where this one cannot be beside it."""
        found = self._connection.execute(
            f"SELECT r.seq, r.version, r.kind, {CONTENT}, {DATA} FROM records r WHERE r.id_hash = ? AND r.id = ? "
            "AND +r.namespace = ? AND r.version >= ? ORDER BY r.version LIMIT 2",
            (id_hash(self._number, row[1]), row[1], self._number, row[2] - 1),
        ).fetchall()
        for seq, version, kind, content, data in found:
            if version != row[2]:
                continue
            if (kind, content, data) == (row[4], row[20], row[19]):
                return int(seq)
            if row[22]:  # derived: the target keeps what it has derived itself
                self._left.add(row[1])
                return _NOWHERE
            raise IdConflict(
                f"the id {row[1]!r} names another text in namespace {self._store.namespace!r} than in the snapshot; "
                "nothing was changed. Restore into another namespace, or forget or rename one of them."
            )
        if row[1] in self._left or (row[2] > 1 and not found):
            return _NOWHERE  # the version before has stayed out
        return None

    def _insert(self, row: Any) -> None:
        seq = self._new(row[0])
        session = row[6]
        values = (
            *(seq, self._number, id_hash(self._number, row[1])),
            *(None if session is None else session_hash(self._number, session), *row[1:21]),
        )
        self._connection.execute(INSERT_RECORD, (*values, guard(values), row[21]))
        if row[2] == 1:
            self._first.append((values[2], row[1]))
        self._transaction.appended_bytes += len(row[20])

    def _supersessions(self) -> None:
        for record, seq, by, at, committed_at in self._staged(
            "SELECT s.record, s.seq, s.by, s.at, s.committed_at FROM supersessions s "
            "JOIN records r ON r.seq = s.record WHERE r.namespace = ?"
        ):
            old, successor = self._came(record), self._came(by)
            if old is not None and self._lives(self._mapped(by)):
                self._connection.execute(
                    "INSERT INTO supersessions VALUES (?, ?, ?, ?, ?)",
                    (old, self._new(seq), self._mapped(by), at, committed_at),
                )
            elif old is None and successor is not None:
                self._transaction.supersede(self._mapped(record), successor, from_micros(at))

    def _derivations(self) -> None:
        for record, replaces in self._staged("SELECT record, replaces FROM derivations WHERE namespace = ?"):
            if (new := self._came(record)) is not None:
                self._connection.execute("INSERT INTO derivations VALUES (?, ?, ?)", (new, self._number, replaces))

    def _edges(self) -> None:
        for derived, source in self._staged(
            "SELECT e.derived, e.source FROM edges e JOIN records d ON d.seq = e.derived WHERE d.namespace = ?"
        ):
            if self._came(derived) is None and self._came(source) is None:
                continue
            ends = self._mapped(source), self._mapped(derived)
            if all(map(self._lives, ends)):
                self._connection.execute(INSERT_EDGE, ends)
        self._transaction.resolve(self._first)
        for derived, id in self._staged("SELECT derived, id FROM awaited WHERE namespace = ?"):
            if (new := self._came(derived)) is not None:
                number = first_number(self._connection, self._number, id)
                if number is None:
                    self._transaction.await_source(id, new)
                else:
                    self._connection.execute(INSERT_EDGE, (number, new))

    def _lives(self, number: int) -> bool:
        row = self._connection.execute(
            "SELECT 1 FROM records WHERE seq = ? AND namespace = ? AND version > 0", (number, self._number)
        ).fetchone()
        return row is not None

    # -- tiers -------------------------------------------------------------------------------------------

    @step("merge.places")
    def _places(self) -> None:
        execute = self._connection.execute
        for record, seq, node, tier, entered, reason in self._staged(
            "SELECT record, seq, node, tier, entered, reason FROM moves WHERE namespace = ?"
        ):
            if (new := self._came(record)) is not None:
                execute(
                    "INSERT INTO moves (record, seq, namespace, node, tier, entered, reason) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (new, self._new(seq), self._number, node, tier, entered, reason),
                )
        for node, tier, record, tokens, importance, entered, written_at in self._staged(
            "SELECT node, tier, record, tokens, importance, entered, written_at FROM residents WHERE namespace = ?"
        ):
            if (new := self._came(record)) is not None:
                execute(
                    "INSERT INTO residents VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (self._number, node, tier, new, tokens, importance, self._new(entered), written_at),
                )
        for node, tier, hits, misses, since in self._staged(
            "SELECT node, tier, hits, misses, since FROM tiers WHERE namespace = ?"
        ):
            begins = self._new(since) if tier == WINDOW and since and self._was_empty else 0
            execute(
                "INSERT OR IGNORE INTO tiers (namespace, node, tier, hits, misses, since) VALUES (?, ?, ?, ?, ?, ?)",
                (self._number, node, tier, hits, misses, begins),
            )
        TierTotals(self._connection, self._number).recount()

    def _pins(self) -> None:
        for seq, record in self._staged("SELECT seq, record FROM pins WHERE namespace = ?"):
            if (new := self._came(record)) is not None:
                self._connection.execute(
                    "INSERT OR IGNORE INTO pins (record, namespace, seq) VALUES (?, ?, ?)",
                    (new, self._number, self._new(seq)),
                )

    def _accesses(self) -> None:
        for record, *uses in self._staged(
            "SELECT record, node, count, last_at, previous_at FROM accesses WHERE namespace = ?"
        ):
            if (new := self._came(record)) is not None:
                self._connection.execute("INSERT INTO accesses VALUES (?, ?, ?, ?, ?, ?)", (self._number, new, *uses))

    # -- entries, blobs, vectors, work -----------------------------------------------------------------------

    @step("merge.entries")
    def _entries(self) -> int:
        execute = self._connection.execute
        came = 0
        kept: set[tuple[Any, ...]] = set()
        for seq, *row in self._staged(
            "SELECT seq, scope, owner, key, version, deleted, created_by, updated_by, created_at, updated_at, "
            "metadata, content, checksum FROM entries WHERE namespace = ? ORDER BY seq"
        ):
            scope, owner, key, version, deleted = row[:5]
            if scope in self._without:
                continue
            place = (self._number, scope, owner, key)
            there = execute(
                "SELECT deleted, checksum FROM entries WHERE namespace = ? AND scope = ? AND owner = ? AND key = ? "
                "AND version = ?",
                (*place, version),
            ).fetchone()
            if there is not None:
                if there[0] or deleted or there[1] == row[11]:
                    continue
                if key.startswith(_OWN_KEYS):
                    kept.add(place)
                    continue
                raise self._other_entry(key)
            if deleted and not self._known and self._has_entry(place):
                kept.add(place)  # what was deleted there was not ours
                continue
            if place in kept:
                if deleted or key.startswith(_OWN_KEYS):
                    continue
                raise self._other_entry(key)
            if deleted:
                execute(
                    "UPDATE entries SET deleted = 1, content = NULL, metadata = NULL, checksum = 0 "
                    "WHERE namespace = ? AND scope = ? AND owner = ? AND key = ? AND NOT deleted",
                    place,
                )
            execute(INSERT_ENTRY, (self._new(seq), self._number, *row))
            came += not deleted
        return came

    def _has_entry(self, place: tuple[Any, ...]) -> bool:
        row = self._connection.execute(
            "SELECT 1 FROM entries WHERE namespace = ? AND scope = ? AND owner = ? AND key = ? AND NOT deleted "
            "LIMIT 1",
            place,
        ).fetchone()
        return row is not None

    def _other_entry(self, key: str) -> Conflict:
        return Conflict(
            f"the entry {key!r} says something else in namespace {self._store.namespace!r} than in the snapshot; "
            "nothing was changed. Restore into another namespace, or delete it first."
        )

    def _blobs(self) -> int:
        came = 0
        for seq, key, stored, data in self._staged(
            "SELECT seq, key, checksum, data FROM blobs WHERE namespace = ? ORDER BY seq"
        ):
            row = self._connection.execute(
                "SELECT seq, checksum, length(data) FROM blobs WHERE namespace = ? AND key = ?", (self._number, key)
            ).fetchone()
            if row is not None and row[1:] == (stored, len(data)):
                continue
            if self._earlier(seq) is not None and (row is not None or not self._bring_back):
                continue  # it was replaced or deleted here since
            if row is not None and not self._was_brought(row[0]):
                raise Conflict(
                    f"the blob {key!r} holds other bytes in namespace {self._store.namespace!r} than in the "
                    "snapshot; nothing was changed. Restore into another namespace, or delete it first."
                )
            self._transaction.delete_blob(key)
            self._connection.execute(
                "INSERT INTO blobs (seq, namespace, key, checksum, data) VALUES (?, ?, ?, ?, ?)",
                (self._new(seq), self._number, key, stored, data),
            )
            came += 1
        return came

    def _was_brought(self, number: int) -> bool:
        """Whether an earlier restore of the same store gave out this number."""
        return any(added < number <= added + last for last, added in self._known)

    def _vectors(self) -> int:
        """Bring the vectors where both sides use one model; else queue the records that came for embedding."""
        theirs = self._stage.start.spaces.get(self._stage.start.active.get(self._source, 0))
        self._same_space = self._agree_on_space(theirs)
        space = active_space(self._connection, self._number)
        if space is None:
            return 0
        came = 0
        if self._same_space:
            for seq, record, data in self._staged(
                "SELECT seq, record, data FROM vectors WHERE namespace = ? ORDER BY seq"
            ):
                if (new := self._came(record)) is not None:
                    self._connection.execute(
                        "INSERT INTO vectors (seq, namespace, space, record, data) VALUES (?, ?, ?, ?, ?)",
                        (self._new(seq), self._number, space[0], new, data),
                    )
                    came += 1
            return came
        self._transaction.queued += self._connection.execute(
            "INSERT INTO jobs (namespace, kind, record, seq) SELECT namespace, ?, seq, seq FROM records r "
            f"WHERE namespace = ? AND seq > ? AND version > 0 AND NOT {is_names()}",
            (EMBED, self._number, self._base),
        ).rowcount
        return 0

    def _agree_on_space(self, theirs: tuple[str, int] | None) -> bool:
        if theirs is None:
            return False
        mine = self._transaction.space
        if mine is None and self._was_empty:
            self._connection.execute("INSERT OR IGNORE INTO spaces (name, dimensions) VALUES (?, ?)", theirs)
            (number,) = self._connection.execute(
                "SELECT number FROM spaces WHERE name = ? AND dimensions = ?", theirs
            ).fetchone()
            self._put_setting("", "space", number)
            start_over(self._connection, self._number, VECTORS, vector_basis(number))
            return True
        return mine == theirs

    def _jobs(self) -> None:
        for kind, record, seq, data, attempts, error in self._staged(
            "SELECT kind, record, seq, data, attempts, error FROM jobs WHERE namespace = ?"
        ):
            if kind == EMBED and not self._same_space:
                continue
            new = self._came(record) if record else 0
            if new is None or not self._transaction.appended_bytes:
                continue
            if not record and data:  # what is about several records names them here
                about = [came for number in json.loads(data) if (came := self._came(number)) is not None]
                if not about:
                    continue
                data = json.dumps(about)
            self._connection.execute(
                "INSERT INTO jobs (namespace, kind, record, seq, data, attempts, error) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (self._number, kind, new, self._new(seq), data, attempts, error),
            )
            self._transaction.queued += 1

    # -- settings ----------------------------------------------------------------------------------------

    def _put_setting(self, node: str, key: str, value: Any) -> None:
        put_setting(self._connection, self._number, node, key, value)

    def _node_settings(self) -> None:
        """Nodes that have settled nothing here keep what they had. A namespace with records keeps its own rules."""
        known = {
            row[0]
            for row in self._connection.execute(
                "SELECT DISTINCT node FROM settings WHERE namespace = ? AND node != ''", (self._number,)
            )
        }
        for node, key, value in list(self._staged("SELECT node, key, value FROM settings WHERE namespace = ?")):
            if node and node not in known:
                self._put_setting(node, key, json.loads(value))
            elif not node and self._was_empty and key not in _OWN_SETTINGS and key not in self._settings:
                self._put_setting("", key, json.loads(value))

    def _follow(self) -> None:
        """Work that follows the log goes on where it was."""
        for kind, watermark in self._staged("SELECT kind, watermark FROM projections WHERE namespace = ?"):
            if watermark:
                self._transaction.advance(kind, self._new(watermark))


def _chosen(stage: Stage, wanted: str | None, own: str) -> int:
    """The number of the namespace to take from a snapshot: the one that is named, ours, or the only one."""
    names = {name: number for number, name in stage.start.namespaces.items()}
    if wanted is None:
        wanted = own if own in names or len(names) > 1 else next(iter(names))
    if wanted not in names:
        raise NotFound(f"there is no namespace {wanted!r} in the snapshot; it has {', '.join(names)}")
    return names[wanted]
