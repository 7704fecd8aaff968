"""Restoring a snapshot into a namespace that exists: which records are there already, which come, and their numbers.

Ids stay; numbers are mapped, because a file has one sequence for all of its namespaces. What comes keeps its order
above everything that was there. The mapping is noted in the file, so that the same snapshot, or a later one of the
same store, finds its records again, and finds which of them were forgotten here since. Everything happens in the
caller's transaction: all of it is done, or nothing has changed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from loom.errors import Conflict, IdConflict, NotFound, ReadOnly
from loom.progress import followed
from loom.snapshots.staging import EMPTY_ENTRIES, ENTRY_PLACE, Restored, Stage, guarded, staged_aside
from loom.snapshots.tables import NOTED, TABLES, Row, Section
from loom.snapshots.taking import SnapshotPath, as_chain, descends
from loom.steps import step
from loom.storage.contract import EMBED, Store
from loom.storage.identity import id_hash
from loom.storage.moments import from_micros
from loom.storage.sqlite.archive import CONTENT, DATA
from loom.storage.sqlite.projections import VECTORS, active_space, last_number, start_over, vector_basis
from loom.storage.sqlite.residency import WINDOW, TierTotals
from loom.storage.sqlite.rows import first_number, is_names, read_settings
from loom.storage.sqlite.store import SqliteStore, as_sqlite
from loom.storage.sqlite.transactions import INSERT_EDGE, SqliteTransaction, put_setting

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
        counts = self._records()
        self._supersessions()
        self._bring(Section.DERIVATIONS)
        self._edges()
        self._places()
        self._bring(Section.PINS)
        self._bring(Section.ACCESSES)
        counts["entries"] = self._entries()
        counts["blobs"] = self._blobs()
        counts["vectors"] = self._vectors()
        self._jobs()
        self._node_settings()
        if self._was_empty:
            self._follow()
        self._note()
        self._transaction.appended += counts["records"]
        return Restored(self._store.path, (self._store.namespace,), **counts)

    @property
    def nodes(self) -> list[str]:
        """The nodes that something was restored for."""
        rows = self._connection.execute(
            "SELECT DISTINCT node FROM tiers WHERE namespace = ? ORDER BY node", (self._number,)
        )
        return [node for (node,) in rows]

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

    def _staged(self, section: Section, query: str = "") -> Iterator[Row]:
        """The rows of a section that were staged, by the names of their columns."""
        rows = self._stage.connection.execute(query or TABLES[section].staged, (self._source,))
        names = [column for column, *_ in rows.description]
        return (dict(zip(names, row, strict=True)) for row in rows)

    def _bring(self, section: Section, **fixed: Any) -> int:
        """Bring the rows of a section about records that came, mapped by the kinds of their columns; how many."""
        table = TABLES[section]
        (about,) = table.records

        def mapped() -> Iterator[Row]:
            for row in self._staged(section):
                if (new := self._came(row[about])) is not None:
                    row.update(fixed, namespace=self._number)
                    row |= {about: new} | {column: self._new(row[column]) for column in table.numbers}
                    yield row

        return table.insert(self._connection, mapped())

    # -- records -----------------------------------------------------------------------------------------

    @step("merge.records")
    def _records(self) -> Counter[str]:
        """Bring the records that come; how many came, were present, stay forgotten, and were left out."""
        counts: Counter[str] = Counter()
        counts["records"] = TABLES[Section.RECORDS].insert(self._connection, self._coming(counts))
        return counts

    def _coming(self, counts: Counter[str]) -> Iterator[Row]:
        rows = self._staged(Section.RECORDS, f"{TABLES[Section.RECORDS].staged} ORDER BY seq")
        for row in followed(rows, self._count_staged, "records"):
            old = row["seq"]
            earlier = self._earlier(old)
            if earlier is not None and self._is_same(earlier, row):
                counts["present"] += 1
            elif earlier is not None and self._is_forgotten(earlier) and not self._bring_back:
                counts["forgotten"] += 1
            elif (there := self._under_same_id(row)) is not None:
                self._moved[old] = there
                counts["left" if there == _NOWHERE else "present"] += 1
            else:
                if earlier is not None:
                    self._moved[old] = self._new(old)
                row |= {"seq": self._new(old), "namespace": self._number}
                row |= guarded(row)
                if row["version"] == 1:
                    self._first.append((row["id_hash"], row["id"]))
                self._transaction.appended_bytes += len(row["content"])
                yield row

    def _count_staged(self) -> int:
        query = "SELECT count(*) FROM records WHERE namespace = ? AND version > 0"
        (count,) = self._stage.connection.execute(query, (self._source,)).fetchone()
        return int(count)

    def _is_same(self, number: int, row: Row) -> bool:
        """Whether the record with a number is this version of this id, with the same words."""
        found = self._connection.execute(
            f"SELECT r.id, r.version, r.kind, {CONTENT}, {DATA} FROM records r "
            "WHERE r.seq = ? AND r.namespace = ? AND r.version > 0",
            (number, self._number),
        ).fetchone()
        return bool(found == (row["id"], row["version"], row["kind"], row["content"], row["data"]))

    def _is_forgotten(self, number: int) -> bool:
        place = int(np.searchsorted(self._tombstones, number))
        return place < len(self._tombstones) and int(self._tombstones[place]) == number

    @cached_property
    def _tombstones(self) -> npt.NDArray[np.int64]:
        rows = self._connection.execute("SELECT record FROM forgotten WHERE namespace = ?", (self._number,))
        return np.sort(np.fromiter((record for (record,) in rows), dtype=np.int64))

    def _under_same_id(self, row: Row) -> int | None:
        """The record that is here under the same id and version; `_NOWHERE` where this one cannot be beside it."""
        id = row["id"]
        found = self._connection.execute(
            f"SELECT r.seq, r.version, r.kind, {CONTENT}, {DATA} FROM records r WHERE r.id_hash = ? AND r.id = ? "
            "AND +r.namespace = ? AND r.version >= ? ORDER BY r.version LIMIT 2",
            (id_hash(self._number, id), id, self._number, row["version"] - 1),
        ).fetchall()
        for seq, version, *words in found:
            if version != row["version"]:
                continue
            if words == [row["kind"], row["content"], row["data"]]:
                return int(seq)
            if self._is_derived(row["seq"]):  # the target keeps what it has derived itself
                self._left.add(id)
                return _NOWHERE
            raise IdConflict(
                f"the id {id!r} names another text in namespace {self._store.namespace!r} than in the snapshot; "
                "nothing was changed. Restore into another namespace, or forget or rename one of them."
            )
        if id in self._left or (row["version"] > 1 and not found):
            return _NOWHERE  # the version before has stayed out
        return None

    def _is_derived(self, record: int) -> bool:
        query = "SELECT 1 FROM derivations WHERE record = ?"
        return self._stage.connection.execute(query, (record,)).fetchone() is not None

    def _supersessions(self) -> None:
        for row in self._staged(
            Section.SUPERSESSIONS,
            "SELECT s.* FROM supersessions s JOIN records r ON r.seq = s.record WHERE r.namespace = ?",
        ):
            old, successor = self._came(row["record"]), self._mapped(row["by"])
            if old is not None and self._lives(successor):
                row |= {"record": old, "by": successor, "seq": self._new(row["seq"])}
                TABLES[Section.SUPERSESSIONS].insert(self._connection, [row])
            elif old is None and successor > self._base:
                self._transaction.supersede(self._mapped(row["record"]), successor, from_micros(row["at"]))

    def _edges(self) -> None:
        edges = "SELECT e.derived, e.source FROM edges e JOIN records d ON d.seq = e.derived WHERE d.namespace = ?"
        for row in self._staged(Section.EDGES, edges):
            ends = self._mapped(row["source"]), self._mapped(row["derived"])
            if max(ends) > self._base and all(map(self._lives, ends)):
                self._connection.execute(INSERT_EDGE, ends)
        self._transaction.resolve(self._first)
        for row in self._staged(Section.EDGES, "SELECT derived, id FROM awaited WHERE namespace = ?"):
            if (new := self._came(row["derived"])) is not None:
                number = first_number(self._connection, self._number, row["id"])
                if number is None:
                    self._transaction.await_source(row["id"], new)
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
        self._bring(Section.MOVES)
        self._bring(Section.RESIDENTS)
        for row in self._staged(Section.TIERS):
            begins = row["tier"] == WINDOW and row["since"] and self._was_empty
            row |= {"namespace": self._number, "since": self._new(row["since"]) if begins else 0}
            self._connection.execute(
                "INSERT OR IGNORE INTO tiers (namespace, node, tier, hits, misses, since) "
                "VALUES (:namespace, :node, :tier, :hits, :misses, :since)",
                row,
            )
        TierTotals(self._connection, self._number).recount()

    # -- entries, blobs, vectors, work -----------------------------------------------------------------------

    @step("merge.entries")
    def _entries(self) -> int:
        execute = self._connection.execute
        came = 0
        kept: set[tuple[str, ...]] = set()
        for row in self._staged(Section.ENTRIES, f"{TABLES[Section.ENTRIES].staged} ORDER BY seq"):
            if row["scope"] in self._without:
                continue
            row["namespace"] = self._number
            place = (row["scope"], row["owner"], row["key"])
            own, gone = row["key"].startswith(_OWN_KEYS), row["deleted"]
            there = execute(
                f"SELECT deleted OR checksum = :checksum FROM entries WHERE {ENTRY_PLACE} AND version = :version", row
            ).fetchone()
            if there is not None:
                if gone or there == (1,):
                    continue
                if not own:
                    raise self._other_entry(row["key"])
                kept.add(place)
                continue
            if gone and not self._known and self._has_entry(row):
                kept.add(place)  # what was deleted there was not ours
                continue
            if place in kept:
                if gone or own:
                    continue
                raise self._other_entry(row["key"])
            if gone:
                execute(EMPTY_ENTRIES, row)
            row["seq"] = self._new(row["seq"])
            TABLES[Section.ENTRIES].insert(self._connection, [row])
            came += not gone
        return came

    def _has_entry(self, row: Row) -> bool:
        query = f"SELECT 1 FROM entries WHERE {ENTRY_PLACE} AND NOT deleted LIMIT 1"
        return self._connection.execute(query, row).fetchone() is not None

    def _other_entry(self, key: str) -> Conflict:
        return Conflict(
            f"the entry {key!r} says something else in namespace {self._store.namespace!r} than in the snapshot; "
            "nothing was changed. Restore into another namespace, or delete it first."
        )

    def _blobs(self) -> int:
        came = 0
        for row in self._staged(Section.BLOBS, "SELECT * FROM blobs WHERE namespace = ? ORDER BY seq"):
            row["namespace"] = self._number
            found = self._connection.execute(
                "SELECT seq, checksum = :checksum AND length(data) = length(:data) FROM blobs "
                "WHERE namespace = :namespace AND key = :key",
                row,
            ).fetchone()
            there, same = found or (None, False)
            if same:
                continue
            if self._earlier(row["seq"]) is not None and (there is not None or not self._bring_back):
                continue  # it was replaced or deleted here since
            if there is not None and not self._was_brought(there):
                raise Conflict(
                    f"the blob {row['key']!r} holds other bytes in namespace {self._store.namespace!r} than in the "
                    "snapshot; nothing was changed. Restore into another namespace, or delete it first."
                )
            self._transaction.delete_blob(row["key"])
            row["seq"] = self._new(row["seq"])
            self._connection.execute("INSERT INTO blobs VALUES (:seq, :namespace, :key, :checksum, :data)", row)
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
        if self._same_space:
            return self._bring(Section.VECTORS, space=space[0])
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
        for row in self._staged(Section.JOBS):
            if row["kind"] == EMBED and not self._same_space:
                continue
            new = self._came(row["record"]) if row["record"] else 0
            if new is None or not self._transaction.appended_bytes:
                continue
            if not row["record"] and row["data"]:  # what is about several records names them here
                about = [came for number in json.loads(row["data"]) if (came := self._came(number)) is not None]
                if not about:
                    continue
                row["data"] = json.dumps(about)
            row |= {"namespace": self._number, "record": new, "seq": self._new(row["seq"])}
            TABLES[Section.JOBS].insert(self._connection, [row])
            self._transaction.queued += 1

    # -- settings ----------------------------------------------------------------------------------------

    def _put_setting(self, node: str, key: str, value: Any) -> None:
        put_setting(self._connection, self._number, node, key, value)

    def _node_settings(self) -> None:
        """Nodes that have settled nothing here keep what they had. A namespace with records keeps its own rules."""
        rows = self._connection.execute("SELECT DISTINCT node FROM settings WHERE namespace = ?", (self._number,))
        known = {node for (node,) in rows}
        for row in list(self._staged(Section.SETTINGS)):
            node, key = row["node"], row["key"]
            own = self._was_empty and key not in _OWN_SETTINGS and key not in self._settings
            if own if not node else node not in known:
                self._put_setting(node, key, json.loads(row["value"]))

    def _follow(self) -> None:
        """Work that follows the log goes on where it was."""
        for row in self._staged(Section.PROGRESS):
            if row["watermark"]:
                self._transaction.advance(row["kind"], self._new(row["watermark"]))


def _chosen(stage: Stage, wanted: str | None, own: str) -> int:
    """The number of the namespace to take from a snapshot: the one that is named, ours, or the only one."""
    names = {name: number for number, name in stage.start.namespaces.items()}
    if wanted is None:
        wanted = own if own in names or len(names) > 1 else next(iter(names))
    if wanted not in names:
        raise NotFound(f"there is no namespace {wanted!r} in the snapshot; it has {', '.join(names)}")
    return names[wanted]
