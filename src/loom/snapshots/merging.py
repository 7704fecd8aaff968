"""Merging: restore a snapshot into an existing namespace.

Ids are unchanged. Sequence numbers are mapped: restored rows keep their order and come after all rows of the
namespace. The mapping is stored in a setting, so that a later restore of the same store finds the records that are
present and those that this namespace has forgotten since. All changes are made in one transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from loom.batches import batches
from loom.errors import Conflict, IdConflict, NotFound, ReadOnly, StoreUnavailable
from loom.progress import followed
from loom.snapshots.sections import NOTED
from loom.snapshots.staging import Restored, Stage, staged_aside
from loom.snapshots.taking import SnapshotPath, as_chain, describe
from loom.steps import step
from loom.storage import open_store
from loom.storage.contract import EMBED, WINDOW, Filter, Record, Rows, Store, Transaction
from loom.storage.identity import SPAN
from loom.storage.moments import from_micros
from loom.storage.tables import TABLES, Row, named
from loom.text.entities import NAMES
from loom.text.tokens import counters_by_name

__all__ = ["restore_all_into", "restore_into"]

# Settings that are not copied: the namespace keeps its own, or the merge maps them.
_OWN_SETTINGS = frozenset({"analyzer", "space", "revision", NOTED})
# The prefix of the keys of a memory's tuning state, which a merge never replaces.
_OWN_KEYS = "loom."
_NOWHERE = 0
# The number of newest rows that are compared to detect a diverged copy of a store.
_COMPARED = 8
# The number of records, and of their characters, that are compared at a time with those of an earlier restore.
_BATCH_ROWS = 256
_BATCH_CHARACTERS = 1 << 20


def restore_into(
    store: Store,
    snapshot: SnapshotPath | Sequence[SnapshotPath],
    *,
    namespace: str | None = None,
    forgotten: bool = False,
    without: Collection[str] = (),
    then: Callable[[Transaction, list[str]], None] | None = None,
) -> Restored:
    """Merge one namespace of a snapshot (default: of the same name, or the only one) into the store's, atomically.

    Records that are present are not written twice; an id with another text raises `IdConflict`. Records that the
    namespace has forgotten since stay forgotten, unless `forgotten` is True. Entries of the scopes `without` are
    skipped.
    `then` is called in the same transaction with the nodes that have records in tiers.
    """
    store.settings()  # raises `Closed`
    if store.read_only:
        raise ReadOnly(f"{store.location} was opened read-only; open it without read_only=True to restore into it")
    with staged_aside(as_chain(snapshot), store.path) as stage, store.transaction() as transaction:
        merge = _Merge(store, transaction, stage, namespace, forgotten=forgotten, without=without)
        done = merge.run()
        if then is not None:
            then(transaction, merge.nodes)
    return done


def restore_all_into(url: str, chain: Sequence[Path]) -> Restored:
    """Restore every namespace of a chain into empty namespaces of a server, each in one transaction."""
    names = [*dict.fromkeys(name for path in chain for name in describe(path).namespaces)]
    with ExitStack() as opened:
        stores = [opened.enter_context(closing(open_store(url, namespace=name))) for name in names]
        for store in stores:
            if store.numbers(Filter(history=True), 1):
                raise StoreUnavailable(
                    f"the namespace {store.namespace!r} of {store.location} is not empty; merge the snapshot into it "
                    "with memory.restore(snapshot), or add what is missing with `loom migrate`"
                )
            store.count_with({name: counter.limit_count for name, counter in counters_by_name().items()})
        parts = [restore_into(store, chain, namespace=store.namespace) for store in stores]
    counts = {name: sum(getattr(part, name) for part in parts) for name in _COUNTS}
    return Restored(None, tuple(names), **counts)


_COUNTS = ("records", "present", "forgotten", "left", "entries", "blobs", "vectors")


class _Merge:
    """Merges one staged namespace into an existing one, inside one transaction."""

    def __init__(
        self,
        store: Store,
        transaction: Transaction,
        stage: Stage,
        namespace: str | None,
        *,
        forgotten: bool,
        without: Collection[str],
    ) -> None:
        self._store = store
        self._transaction = transaction
        self._theirs = stage.start.origin
        self._bring_back = forgotten
        self._without = without
        self._source = _chosen(stage, namespace, store.namespace)
        self._staged_rows = stage.scratch.rows_of(self._source)
        self._origin = transaction.origin()
        self._base = self._origin.position
        self._begin, self._end = self._span()
        self._settings = transaction.settings()
        self._was_empty = not transaction.numbers(Filter(history=True), 1)
        self._known = self._known_ranges()
        self._moved: dict[int, int] = {}
        self._left: set[str] = set()
        self._to_embed: list[int] = []

    @step("merge.run")
    def run(self) -> Restored:
        theirs = self._theirs.spaces.get(self._theirs.active.get(self._source, 0))
        if theirs is not None and self._was_empty and self._transaction.space is None:
            self._transaction.change_space(*theirs)
        self._same_space = theirs is not None and self._transaction.space == theirs
        counts = self._records()
        self._supersessions()
        self._bring("derivations")
        self._edges()
        self._places()
        self._bring("pins")
        self._bring("accesses")
        counts["entries"] = self._entries()
        counts["blobs"] = self._blobs()
        counts["vectors"] = self._vectors()
        if counts["records"]:
            self._transaction.add_rows("jobs", self._jobs())
        self._node_settings()
        if self._was_empty:
            self._follow()
        self._note()
        return Restored(self._store.path, (self._store.namespace,), **counts)

    @property
    def nodes(self) -> list[str]:
        """The nodes that have tiers after the merge."""
        return sorted({row["node"] for row in _named(self._transaction, "tiers")})

    # -- sequence numbers --------------------------------------------------------------------------------

    def _span(self) -> tuple[int, int]:
        """The sequence numbers of the staged namespace: above the first, and up to the second, as far as rows show.

        A backup of a memory on a server keeps those of the server, where each namespace has a range. They are
        restored without the beginning of the range, because they would not fit into the range of another namespace.
        """
        ends = [
            row[table.appended]
            for name, table in TABLES.items()
            if table.appended
            for row in (*islice(self._staged(name), 1), *_named(self._staged_rows, name, newest=1))
        ]
        begin = min(ends, default=0) // SPAN * SPAN
        position = self._theirs.position
        return begin, position if position // SPAN * SPAN == begin else max(ends, default=begin)

    def _known_ranges(self) -> list[tuple[int, int]]:
        """The mappings of earlier restores: pairs of a sequence number and the offset added to numbers up to it."""
        if self._is_own_past():
            return [(self._theirs.position, self._origin.zero)]
        return [(last, added) for last, added in self._settings.get(NOTED, {}).get(self._key(), [])]

    def _is_own_past(self) -> bool:
        """Whether the snapshot is an earlier state of this namespace."""
        start, origin = self._theirs, self._origin
        theirs, ours = (start.store, start.namespaces[self._source]), (origin.store, self._store.namespace)
        if theirs != ours or origin.position < start.position + origin.zero:
            return False
        for row in _named(self._staged_rows, "records", newest=_COMPARED):
            number = row["seq"] + origin.zero
            here = next(_named(self._transaction, "records", seq=number), None)
            if here != row | {"seq": number} and (here is not None or not self._is_forgotten(number)):
                return False
        for row in _named(self._staged_rows, "entries", newest=_COMPARED):
            here = next(_named(self._transaction, "entries", seq=row["seq"] + origin.zero), None)
            if here is None or not (here["deleted"] or here["checksum"] == row["checksum"]):
                return False
        return True

    def _key(self) -> str:
        return f"{self._theirs.store}/{self._theirs.namespaces[self._source]}"

    def _earlier(self, number: int) -> int | None:
        """The sequence number in this store of a row of an earlier restore; None if the row is new."""
        return next((number + added for last, added in self._known if number <= last), None)

    def _mapped(self, number: int) -> int:
        """The sequence number in this store of a staged record. A number up to the base belongs to an earlier
        restore, or to no row."""
        found = self._moved.get(number)
        if found is None:
            found = self._earlier(number)
        if found is None:
            found = number - self._begin + self._base if number > self._begin else _NOWHERE
        return found

    def _new(self, number: int) -> int:
        """Map the sequence number of a restored row above all existing numbers, in the order of the snapshot."""
        added = self._base - self._begin
        self._transaction.skip_to(max(number, self._end) + added)
        return number + added

    def _came(self, number: int) -> int | None:
        """The new sequence number of a record that this merge restores, or None."""
        found = self._mapped(number)
        return found if found > self._base else None

    @step("merge.note")
    def _note(self) -> None:
        position = self._theirs.position
        if not self._known or self._known[-1][0] < position:
            noted = {self._key(): [*self._known, (position, self._base - self._begin)]}
            self._transaction.put_settings("", {NOTED: self._settings.get(NOTED, {}) | noted})

    def _staged(self, table: str) -> Iterator[Row]:
        return _named(self._staged_rows, table)

    def _bring(self, name: str) -> int:
        """Restore the rows of a table that refer to restored records. Returns their number."""
        table = TABLES[name]
        (about,) = table.records

        def mapped() -> Iterator[Row]:
            for row in self._staged(name):
                if (new := self._came(row[about])) is not None:
                    yield row | {about: new} | {column: self._new(row[column]) for column in table.numbers}

        return self._transaction.add_rows(name, mapped())

    # -- records -----------------------------------------------------------------------------------------

    @step("merge.records")
    def _records(self) -> Counter[str]:
        """Restore records. Returns the counts of restored, present, forgotten and omitted ones."""
        counts: Counter[str] = Counter()
        self._derived = {row["record"] for row in self._staged("derivations")}
        counts["records"] = self._transaction.add_rows("records", self._coming(counts))
        return counts

    def _coming(self, counts: Counter[str]) -> Iterator[Row]:
        staged = followed(self._staged("records"), lambda: self._staged_rows.count_rows("records"), "records")
        for row, earlier, is_present in self._compared(staged):
            old = row["seq"]
            if is_present:
                counts["present"] += 1
            elif earlier is not None and self._is_forgotten(earlier) and not self._bring_back:
                counts["forgotten"] += 1
            elif (there := self._under_same_id(row)) is not None:
                self._moved[old] = there
                counts["left" if there == _NOWHERE else "present"] += 1
            else:
                new = self._new(old)
                if earlier is not None:
                    self._moved[old] = new
                if not (row["kind"] == NAMES and old in self._derived):
                    self._to_embed.append(new)
                yield row | {"seq": new}

    def _compared(self, staged: Iterator[Row]) -> Iterator[tuple[Row, int | None, bool]]:
        """Staged records, with their sequence numbers of an earlier restore, and whether that record is unchanged."""
        # In groups, so that few statements compare them. Groups are limited by rows and by characters.
        for rows in batches(
            staged, lambda row: len(row["content"]), most_items=_BATCH_ROWS, full_at=_BATCH_CHARACTERS
        ):
            earlier = [self._earlier(row["seq"]) for row in rows]
            known = [number for number in earlier if number is not None]
            here = self._transaction.records(known) if known else {}
            for row, number in zip(rows, earlier, strict=True):
                yield row, number, number in here and _is_same(here[number], row)

    def _is_forgotten(self, number: int) -> bool:
        return number in self._tombstones

    @cached_property
    def _tombstones(self) -> frozenset[int]:
        return frozenset(row["record"] for row in _named(self._transaction, "forgotten"))

    def _under_same_id(self, row: Row) -> int | None:
        """The sequence number in this store of the same id and version; `_NOWHERE` if the staged record cannot be
        restored beside it."""
        id, found = row["id"], False
        # In an empty namespace, an id only has versions of this merge, none of which differs.
        for here in () if self._was_empty else _named(self._transaction, "records", id=id):
            found |= here["version"] >= row["version"] - 1
            if here["version"] != row["version"]:
                continue
            if all(here[one] == row[one] for one in _WORDS):
                return int(here["seq"])
            if row["seq"] in self._derived:  # the target keeps its own derived record
                self._left.add(id)
                return _NOWHERE
            raise IdConflict(
                f"the id {id!r} has another text in namespace {self._store.namespace!r} than in the snapshot; "
                "nothing was changed. Restore into another namespace, or forget or rename one of them."
            )
        if id in self._left or (row["version"] > 1 and not found and not self._came_before(row)):
            return _NOWHERE  # the previous version was left out
        return None

    def _came_before(self, row: Row) -> bool:
        """Whether this merge restores the previous version, which may not be stored yet."""
        versions = _named(self._staged_rows, "records", id=row["id"])
        return any(one["version"] == row["version"] - 1 and self._came(one["seq"]) is not None for one in versions)

    def _supersessions(self) -> None:
        for row in self._staged("supersessions"):
            old, successor = self._came(row["record"]), self._mapped(row["by"])
            if old is not None and self._lives(successor):
                mapped = row | {"record": old, "by": successor, "seq": self._new(row["seq"])}
                self._transaction.add_rows("supersessions", [mapped])
            elif old is None and successor > self._base and (present := self._mapped(row["record"])) != _NOWHERE:
                self._transaction.supersede(present, successor, from_micros(row["at"]))

    def _edges(self) -> None:
        def mapped() -> Iterator[Row]:
            for row in self._staged("edges"):
                derived, source = self._mapped(row["derived"]), row["source"]
                if source is None:
                    if derived > self._base:
                        yield row | {"derived": derived}
                    continue
                source = self._mapped(source)
                if max(derived, source) > self._base and self._lives(derived) and self._lives(source):
                    yield row | {"derived": derived, "source": source}

        self._transaction.add_rows("edges", mapped())

    def _lives(self, number: int) -> bool:
        return next(self._transaction.rows("records", seq=number), None) is not None

    # -- tiers -------------------------------------------------------------------------------------------

    @step("merge.places")
    def _places(self) -> None:
        def mapped() -> Iterator[Row]:
            for row in self._staged("tiers"):
                begins = row["tier"] == WINDOW and row["since"] and self._was_empty
                yield row | {"since": self._new(row["since"]) if begins else 0}

        self._bring("moves")
        self._transaction.add_rows("tiers", mapped())
        self._bring("residents")

    # -- entries, blobs, vectors, work -----------------------------------------------------------------------

    @step("merge.entries")
    def _entries(self) -> int:
        came = 0
        kept: set[tuple[str, ...]] = set()
        for row in self._staged("entries"):
            if row["scope"] in self._without:
                continue
            place = (row["scope"], row["owner"], row["key"])
            own, gone = row["key"].startswith(_OWN_KEYS), row["deleted"]
            where = dict(zip(("scope", "owner", "key"), place, strict=True))
            there = next(_named(self._transaction, "entries", **where, version=row["version"]), None)
            if there is not None:
                if gone or there["deleted"] or there["checksum"] == row["checksum"]:
                    continue
                if not own:
                    raise self._other_entry(row["key"])
                kept.add(place)
                continue
            if gone and not self._known and self._transaction.entry(**where) is not None:
                kept.add(place)  # the deletion concerned another value
                continue
            if place in kept:
                if gone or own:
                    continue
                raise self._other_entry(row["key"])
            self._transaction.add_rows("entries", [row | {"seq": self._new(row["seq"])}])
            came += not gone
        return came

    def _other_entry(self, key: str) -> Conflict:
        return Conflict(
            f"the entry {key!r} has another value in namespace {self._store.namespace!r} than in the snapshot; "
            "nothing was changed. Restore into another namespace, or delete it first."
        )

    def _blobs(self) -> int:
        came = 0
        for row in self._staged("blobs"):
            there = next(_named(self._transaction, "blobs", key=row["key"]), None)
            if there is not None and all(there[one] == row[one] for one in ("checksum", "size")):
                continue
            if self._earlier(row["seq"]) is not None and (there is not None or not self._bring_back):
                continue  # the store has replaced or deleted it since
            # A blob from an earlier restore of the same store is replaced by the newer one.
            brought = there is not None and any(added < there["seq"] <= added + last for last, added in self._known)
            if there is not None and not brought:
                raise Conflict(
                    f"the blob {row['key']!r} has other bytes in namespace {self._store.namespace!r} than in the "
                    "snapshot; nothing was changed. Restore into another namespace, or delete it first."
                )
            data = b"".join(self._staged_rows.blob_pieces(row["seq"]))
            came += self._transaction.add_rows("blobs", [row | {"seq": self._new(row["seq"]), "data": data}])
        return came

    def _vectors(self) -> int:
        """Restore vectors if both sides use the same space; otherwise queue the restored records for embedding."""
        if self._same_space:
            return self._bring("vectors")
        if self._transaction.space is not None and self._to_embed:
            self._transaction.enqueue(EMBED, self._to_embed)
        return 0

    def _jobs(self) -> Iterator[Row]:
        for row in self._staged("jobs"):
            if row["kind"] == EMBED and not self._same_space:
                continue
            new = self._came(row["record"]) if row["record"] else 0
            if new is None:
                continue
            if not row["record"] and row["data"]:  # map the records that the job names
                about = [came for number in json.loads(row["data"]) if (came := self._came(number)) is not None]
                if not about:
                    continue
                row["data"] = json.dumps(about)
            yield row | {"record": new, "seq": self._new(row["seq"])}

    # -- settings ----------------------------------------------------------------------------------------

    def _node_settings(self) -> None:
        """Restore the settings of nodes that the store does not have, and of the namespace if it was empty."""
        known = {*self._transaction.nodes(), ""}
        for row in [*self._staged("settings")]:
            node, key = row["node"], row["key"]
            own = self._was_empty and key not in _OWN_SETTINGS and key not in self._settings
            if own if not node else node not in known:
                self._transaction.put_settings(node, {key: json.loads(row["value"])})

    def _follow(self) -> None:
        """Restore the progress of work that follows the log."""
        for row in self._staged("progress"):
            if row["watermark"]:
                self._transaction.advance(row["kind"], self._new(row["watermark"]))


_WORDS = ("kind", "content", "data")


def _is_same(here: Record, row: Row) -> bool:
    """Whether a record has the id, version and text of a row."""
    data = None if row["data"] is None else json.loads(row["data"])
    theirs = (row["id"], row["version"], row["kind"], row["content"], data)
    return (here.id, here.version, here.kind, here.content, here.data) == theirs


def _named(rows: Rows, table: str, **which: Any) -> Iterator[Row]:
    return named(table, rows.rows(table, **which))


def _chosen(stage: Stage, wanted: str | None, own: str) -> int:
    """The number of the namespace to restore: the one named `wanted`, the one named `own`, or the only one."""
    names = {name: number for number, name in stage.start.origin.namespaces.items()}
    if wanted is None:
        wanted = own if own in names or len(names) > 1 else next(iter(names))
    if wanted not in names:
        raise NotFound(f"there is no namespace {wanted!r} in the snapshot; it has {', '.join(names)}")
    return names[wanted]
