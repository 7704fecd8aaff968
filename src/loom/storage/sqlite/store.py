"""The SQLite backend: one namespace of one file as a `Store`.

This is the face. Writes are one `BEGIN IMMEDIATE` each and acknowledged when they are committed (`transactions`).
Reads run on a snapshot (`reading`, `residency`). A search reads the projections and the
database on one snapshot (`searcher`). The verbs of an operator are in `administration`.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from loom.errors import Closed, InvalidInput, LoomError, NotFound, ReadOnly, SettingsConflict
from loom.protocol import Clock, utc_now
from loom.steps import step
from loom.storage.contract import (
    Access,
    Change,
    CheckReport,
    Entry,
    EntryChange,
    Filter,
    FlushReport,
    ForgetReceipt,
    Job,
    Page,
    Record,
    Resident,
    Retention,
    Usage,
    Vector,
)
from loom.storage.files import FILE_MODE
from loom.storage.moments import from_micros, to_micros
from loom.storage.search_view import SearchView
from loom.storage.sqlite import (
    administration,
    archive,
    checking,
    forgetting,
    maintenance,
    namespace_settings,
    queries,
    residency,
)
from loom.storage.sqlite.archive import ArchiveStats
from loom.storage.sqlite.counting import Count
from loom.storage.sqlite.engine import Engine
from loom.storage.sqlite.maintenance import MAX_ATTEMPTS, Chore, Embed, TransactionScope, WorkLimits
from loom.storage.sqlite.projections import SCRUB, TailLimit, active_space, last_number, read_state
from loom.storage.sqlite.rows import read_newest, read_records, read_settings
from loom.storage.sqlite.searcher import Searcher
from loom.storage.sqlite.transactions import EMBED, SqliteTransaction, read_vectors
from loom.trust import check_store

__all__ = ["SqliteStore"]

Answer = TypeVar("Answer")

_TAIL = TailLimit()
_LIMITS = WorkLimits()

log = logging.getLogger("loom.store")

# How long close() waits for another writer to note the last uses of records.
_LAST_USES_S = 0.2


class SqliteStore:
    """One namespace of one SQLite file, or of a database in memory. See `loom.storage.contract.Store`.

    With `all_namespaces` it may also list, snapshot and forget the other namespaces of the file.
    New files have the mode `file_mode`; those that exist keep theirs.
    All stores of one process on one namespace share their background work; `tail`, `lease_s` and `limits` are those
    of the first one.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        namespace: str = "default",
        read_only: bool = False,
        durability: str = "commit",
        busy_timeout_s: float = 30.0,
        close_timeout_s: float = 5.0,
        tail: TailLimit = _TAIL,
        lease_s: float = 10.0,
        limits: WorkLimits = _LIMITS,
        max_bytes: int | None = None,
        archive_after_days: float | None = None,
        clock: Clock = utc_now,
        all_namespaces: bool = False,
        file_mode: int = FILE_MODE,
    ) -> None:
        if not namespace:
            raise InvalidInput("a namespace needs a name")
        if path is not None:
            check_store(path)
        self._name = namespace
        self._all_namespaces = all_namespaces
        self._lease_s = lease_s
        self._close_timeout_s = close_timeout_s
        self._engine = Engine.acquire(
            path,
            read_only=read_only,
            durability=durability,
            busy_timeout_s=busy_timeout_s,
            max_bytes=max_bytes,
            clock=clock,
            file_mode=file_mode,
        )
        self._closed = False
        self._chore_owners: set[object] = set()
        try:
            self._number = namespace_settings.find_namespace(self._engine, namespace)
            self._maintenance = maintenance.join(self._engine, self._number, tail, lease_s, limits)
            if archive_after_days is not None:
                self._maintenance.archive_after_s = archive_after_days * 86_400
            self._searcher = Searcher(self._engine, self._maintenance)
            namespace_settings.agree_on_analyzer(self._engine, self._number)
            self._note_lost()
            if not read_only and self._is_to_be_scrubbed():
                self._maintenance.worker.wake()
        except BaseException:
            self._engine.release()
            raise

    def _is_to_be_scrubbed(self) -> bool:
        with self._reading() as connection:
            return queries.has_jobs(connection, self._number, SCRUB)

    def _note_lost(self) -> None:
        """Tell once that commits are gone which an index file had seen, and note it in the file."""
        self._lost = checking.find_lost(self._engine, self._number)
        if self._lost is None:
            return
        log.warning("%s: %s", self._engine.path, checking.lost_problem(self._lost))
        with self._engine.try_write() as connection:
            if connection is not None:
                namespace_settings.put_setting(connection, self._number, "", "lost", list(self._lost))
                # A sequence number is never used twice.
                connection.execute("UPDATE store SET seq = max(seq, ?)", (self._lost[1],))

    @property
    def lost(self) -> tuple[int, int] | None:
        """The first and last sequence number that are known to have been committed and are gone."""
        with self._reading() as connection:
            return queries.lost(connection, self._number) or self._lost

    # -- identity ----------------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        return self._name

    @property
    def read_only(self) -> bool:
        return self._engine.read_only

    @property
    def path(self) -> Path | None:
        return self._engine.path

    @property
    def engine(self) -> Engine:
        """The database underneath, which all stores of this process on one file share."""
        return self._engine

    def clock(self) -> datetime:
        """The time by this store's clock."""
        return self._engine.clock()

    @property
    def store_id(self) -> str:
        return self._engine.store_id

    def namespaces(self) -> list[str]:
        """The names of the namespaces in this file, in the order in which they were made.

        For a store that was opened with `all_namespaces=True`; raises `InvalidInput` for another one.
        """
        self.check_namespaces("list the namespaces of the file")
        with self._reading() as connection:
            return queries.namespaces(connection)

    def check_namespaces(self, wish: str) -> None:
        """Raise `InvalidInput` unless the store was opened for all namespaces of its file."""
        self.check_open()
        if not self._all_namespaces:
            raise InvalidInput(
                f"asked to {wish} through a handle that was opened for the namespace {self._name!r} alone; "
                "open it with all_namespaces=True"
            )

    def nodes(self) -> list[str]:
        """The nodes that have settled their settings in this namespace."""
        with self._reading() as connection:
            return queries.nodes(connection, self._number)

    # -- settings that must agree --------------------------------------------------------------------

    def settings(self, node: str = "") -> dict[str, Any]:
        """The stored settings of a node (the empty node: of the whole namespace)."""
        with self._reading() as connection:
            return read_settings(connection, self._number, node)

    def update_settings(
        self,
        node: str,
        decide: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        then: Callable[[SqliteTransaction], None] | None = None,
    ) -> None:
        """Agree on settings with every other process: `decide` gets the stored ones and returns those that hold.

        They are written in the same transaction, so of two processes that open a new file at once the second gets
        what the first has written. `decide` may be called twice. Where a setting changes, `then` runs in the same
        transaction.
        """
        found = self.settings(node)
        wanted = decide(found)
        if all(found.get(key) == value for key, value in wanted.items()):
            return
        if self.read_only:
            if found and any(found[key] != value for key, value in wanted.items() if key in found):
                raise ReadOnly("settings cannot be changed in a store that was opened read-only")
            return
        with self.transaction() as transaction:
            namespace_settings.settle(transaction, node, decide)
            if then is not None:
                then(transaction)

    @property
    def space(self) -> tuple[str, int] | None:
        """Name and dimensions of the embedding space in use, if there is one."""
        with self._reading() as connection:
            return namespace_settings.read_space(connection, self._number)

    def use_embedder(self, name: str, dimensions: int, embed: Embed | None, *, reconfigure: bool = False) -> None:
        """Choose the embedding space of this namespace, and how to embed its texts in this process.

        Another space than the file's raises `SettingsConflict`; with `reconfigure` every record is embedded again in
        the background, and until then found by words. Spaces are never mixed.
        """
        space = self.space
        if space != (name, dimensions):
            if space is not None and not reconfigure:
                raise SettingsConflict(
                    f"this memory is embedded with {space[0]} ({space[1]} dimensions), not {name} ({dimensions}). "
                    "Open it with that embedder, or with reconfigure=True to embed everything again."
                )
            if self.read_only:
                return
            self._change_space(name, dimensions)
        with self._reading() as connection:
            active = active_space(connection, self._number)
        self._maintenance.use(active[0] if active is not None else None, embed)
        if embed is not None and not self.read_only:
            namespace_settings.retry_jobs(self._engine, self._number, EMBED)
            self._maintenance.worker.wake()

    @step("space.switch")
    def _change_space(self, name: str, dimensions: int) -> None:
        with self.transaction() as transaction:
            namespace_settings.change_space(transaction, name, dimensions)

    def count_with(self, counters: Mapping[str, Count]) -> None:
        """Count the tokens of records that were written without a count, by the name of the counter of each."""
        self._engine.counts.use(counters)

    def set_retention(self, retention: Retention | None) -> None:
        """State the retention rule of this namespace, for every process; None removes it."""
        if retention is not None and not isinstance(retention, Retention):
            raise InvalidInput(f"a retention rule is a Retention record, not {type(retention).__name__}")
        rule = (
            None
            if retention is None
            else {
                "max_age_days": retention.max_age_days,
                "max_records": retention.max_records,
                "max_bytes": retention.max_bytes,
            }
        )
        with self._writing() as connection:
            namespace_settings.put_setting(connection, self._number, "", "retention", rule)

    @property
    def retention(self) -> Retention | None:
        with self._reading() as connection:
            return forgetting.retention(connection, self._number)

    # -- scopes --------------------------------------------------------------------------------------

    def reading(self) -> AbstractContextManager[None]:
        """A block in which all that this thread reads is of one moment. What it writes there itself, it sees."""
        self.check_open()
        return self._engine.reading()

    # -- writing -------------------------------------------------------------------------------------

    def transaction(self) -> TransactionScope:
        """Write several things at once; committed at the end, or not at all."""
        self.check_open()
        return self._maintenance.transaction()

    def touch(self, records: Iterable[int], node: str) -> None:
        """Note that records were used. Buffered; uses that are not flushed may be lost in a crash."""
        if self._maintenance.accesses.add(records, node, to_micros(self._engine.clock())) and not self.read_only:
            self._maintenance.worker.wake()  # not here: a reader never waits for the write lock

    def count_lookup(self, node: str, tier: str, hit: bool) -> None:
        """Note whether a record that was asked for was in a tier. Buffered like the uses."""
        self._maintenance.accesses.add_lookup(node, tier, hit)

    def flush_accesses(self) -> None:
        """Write the buffered uses and lookups; where another writer holds the file, they are written later."""
        self.check_open()
        self._maintenance.write_accesses()

    # -- records -------------------------------------------------------------------------------------

    def get(self, id: str) -> Record | None:
        """The newest version under an id, or None."""
        with self._reading() as connection:
            return read_newest(connection, self._number, id)

    def history(self, id: str) -> list[Record]:
        """Every version under an id, oldest first."""
        with self._reading() as connection:
            return queries.history(connection, self._number, id)

    def records(self, seqs: Iterable[int]) -> dict[int, Record]:
        """Records by their numbers; those that do not exist are missing."""
        with self._reading() as connection:
            return read_records(connection, self._number, seqs)

    def scan(self, wanted: Filter, *, limit: int = 100, after: int | None = None, newest_first: bool = True) -> Page:
        """A page of the records that a filter admits, in the order in which they were written."""
        with self._reading() as connection:
            return queries.scan(connection, self._number, wanted, limit, after, newest_first)

    def numbers(self, wanted: Filter, limit: int, after: int = 0) -> list[int]:
        """The sequence numbers of the next records that a filter admits, oldest first, damaged ones too."""
        with self._reading() as connection:
            return queries.numbers(connection, self._number, wanted, limit, after)

    def readable(self, seqs: Iterable[int]) -> tuple[dict[int, Record], dict[int, str]]:
        """Records by their numbers, and the names of the errors of those that are damaged."""
        with self._reading() as connection:
            return queries.readable(connection, self._number, seqs)

    def count(self, wanted: Filter) -> int:
        """The number of records that a filter admits."""
        with self._reading() as connection:
            return queries.count(connection, self._number, wanted)

    def neighbours(self, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ids that a record was derived from, and the ids that were derived from it."""
        with self._reading() as connection:
            return queries.neighbours(connection, self._number, id)

    def vectors(self, records: Iterable[int]) -> dict[int, Vector]:
        """The embeddings of records; those that have none yet are missing."""
        with self._reading() as connection:
            return read_vectors(connection, self._number, records)

    def replaced(self, seqs: Iterable[int]) -> set[int]:
        """Those of these records that a derived record stands for in a tier, or stood for until that was undone."""
        with self._reading() as connection:
            return queries.replaced(connection, seqs)

    def following(self, record: int, limit: int) -> list[int]:
        """The records that were written next in the session of one, the nearest first."""
        with self._reading() as connection:
            return queries.following(connection, self._number, record, limit)

    def pinned(self, id: str) -> bool:
        """Whether an id is kept from retention."""
        with self._reading() as connection:
            return queries.is_pinned(connection, self._number, id)

    def changes(self, since: int, limit: int = 1000) -> list[Change]:
        """What happened after a sequence number, in order."""
        with self._reading() as connection:
            return queries.changes(connection, self._number, since, limit)

    def stats(self) -> dict[str, int]:
        """Counts and sizes, as they are stored now."""
        with self._reading() as connection:
            return queries.statistics(connection, self._number)

    # -- uses and tiers ------------------------------------------------------------------------------

    def uses(self, record: int, node: str) -> int:
        """How often a node used a record, with the uses that are buffered here."""
        with self._reading() as connection:
            written = queries.uses(connection, self._number, record, node)
        return written + self._maintenance.accesses.uses(record, node)

    def accesses(self, records: Iterable[int], node: str) -> dict[int, Access]:
        """How often and when records were used by a node; those never used are missing."""
        wanted = [*records]
        with self._reading() as connection:
            found = queries.accesses(connection, self._number, wanted, node)
        for record in wanted:
            recent = self._maintenance.accesses.of(record, node)
            if recent is not None:
                known = found.get(record)
                count, last_at, previous_at = recent
                before = None if known is None else known.last_at
                previous = before if previous_at is None else from_micros(previous_at)
                found[record] = Access(count + (known.count if known else 0), from_micros(last_at), previous)
        return found

    def tiers(self, record: int, node: str) -> tuple[str, ...]:
        """The tiers of a node that hold a record, nearest the prompt first."""
        with self._reading() as connection:
            return queries.tiers(connection, self._number, record, node)

    def usage(self, node: str) -> dict[str, Usage]:
        """What each tier of a node holds; a tier that was never used is missing."""
        with self._reading() as connection:
            found = queries.usage(connection, self._number, node)
        for tier, (hits, misses) in self._maintenance.accesses.lookups(node).items():
            known = found.get(tier, Usage())
            found[tier] = known._replace(hits=known.hits + hits, misses=known.misses + misses)
        return found

    def original_tokens(self, node: str, tier: str) -> int:
        """The tokens of the records behind a tier other than the window, whatever stands for them there."""
        with self._reading() as connection:
            return queries.original_tokens(connection, self._number, node, tier)

    def window(self, node: str) -> list[tuple[int, int]]:
        """Number and tokens of each record in the node's window, newest first."""
        with self._reading() as connection:
            return residency.window(connection, self._number, node)

    def residents(self, node: str, tier: str) -> list[Resident]:
        """The records in a tier other than the window, oldest arrival first."""
        with self._reading() as connection:
            found = residency.residents(connection, self._number, node, tier)
        return [self._with_recent_uses(one, node) for one in found] if self._maintenance.accesses else found

    def _with_recent_uses(self, resident: Resident, node: str) -> Resident:
        recent = self._maintenance.accesses.of(resident.record, node)
        if recent is None:
            return resident
        previous = resident.last_at if recent.previous_at is None else recent.previous_at / 1e6
        return resident._replace(
            uses=resident.uses + recent.number, last_at=recent.last_at / 1e6, previous_at=previous
        )

    def resides(self, record: int, tier: str, node: str) -> bool:
        """Whether a record is in a tier other than the window."""
        with self._reading() as connection:
            return residency.resides(connection, self._number, record, tier, node)

    def absent(self, records: Iterable[int], tier: str, node: str) -> list[tuple[int, float, str]]:
        """Number, importance and kind of those records that are not in a tier other than the window."""
        with self._reading() as connection:
            return queries.absent(connection, self._number, records, tier, node)

    # -- entries and blobs ---------------------------------------------------------------------------

    def entry(self, key: str, *, scope: str = "local", owner: str | Sequence[str] = "") -> Entry | None:
        """The newest version of an entry, or None. Of several owners, that of the first who has one."""
        with self._reading() as connection:
            return queries.entry(connection, self._number, key, scope, _owners(owner))

    def entries(self, prefix: str = "", *, scope: str = "local", owner: str = "", limit: int = 100) -> list[Entry]:
        """The newest versions of the entries whose keys start with a prefix, last updated first."""
        with self._reading() as connection:
            return queries.entries(connection, self._number, prefix, scope, owner, limit)

    def entry_history(self, key: str, *, scope: str = "local", owner: str = "") -> list[Entry]:
        """Every version of an entry since it was last deleted, oldest first."""
        with self._reading() as connection:
            return queries.entry_history(connection, self._number, key, scope, owner)

    def entry_changes(
        self,
        since: int,
        prefix: str = "",
        *,
        scope: str = "local",
        owner: str | Sequence[str] = "",
        limit: int = 1000,
    ) -> list[EntryChange]:
        """The keys that changed after a sequence number, in the order of their last change, as they are now."""
        with self._reading() as connection:
            return queries.entry_changes(connection, self._number, since, prefix, scope, _owners(owner), limit)

    def last_entry_change(self) -> int:
        """The sequence number of the last change to an entry of any namespace; 0 where there was none."""
        with self._reading() as connection:
            return queries.last_entry_change(connection)

    def blob(self, key: str) -> bytes | None:
        """The bytes under a key, or None; damaged bytes raise `CorruptStore`."""
        with self._reading() as connection:
            return queries.blob(connection, self._number, key)

    # -- searching -----------------------------------------------------------------------------------

    def search(self, ask: Callable[[SearchView], Answer]) -> Answer:
        """The answer to a question that reads one snapshot, through the view or through this store.

        The question is asked again, from the start, where an index turned out to be damaged and was rebuilt.
        """
        self.check_open()
        return self._searcher.search(ask)

    def rebuild(self, kind: str) -> None:
        """Make a projection (`text` or `vectors`) again from the records."""
        self.check_open()
        self._searcher.rebuild(kind)

    # -- background work -----------------------------------------------------------------------------

    def jobs(self, kind: str | None = None, limit: int = 100, *, failed: bool = True) -> list[Job]:
        """Work that is queued or has failed, oldest first; without `failed`, no work that was given up."""
        with self._reading() as connection:
            return queries.jobs(connection, self._number, kind, limit, None if failed else MAX_ATTEMPTS)

    def set_aside(self) -> list[str]:
        """Which records background work gave up, and why; the first of them."""
        with self._reading() as connection:
            return queries.set_aside(connection, self._number, MAX_ATTEMPTS)

    def retry_jobs(self, *kinds: str) -> None:
        """Try work of these kinds that was given up once more: this process may succeed where another failed."""
        with self._reading() as connection:
            given_up = not self.read_only and queries.has_failed_jobs(connection, self._number, kinds, MAX_ATTEMPTS)
        if given_up:
            with self._engine.try_write() as connection:
                if connection is None:
                    return
                connection.executemany(
                    "UPDATE jobs SET attempts = ?3 - 1 WHERE namespace = ?1 AND kind = ?2 AND attempts >= ?3",
                    [(self._number, kind, MAX_ATTEMPTS) for kind in kinds],
                )
            self._maintenance.look_after = 0.0

    def progress(self, name: str) -> tuple[int, int]:
        """The last record that a piece of work which follows the log has done, and the last number of the log."""
        with self._reading() as connection:
            return read_state(connection, self._number, name).watermark, last_number(connection)

    def add_chore(self, owner: object, chore: Chore) -> None:
        """Run a piece of background work of a layer above when there is time, until `remove_chores` or `close`."""
        self.check_open()
        if not self.read_only:
            self._chore_owners.add(owner)
            self._maintenance.give_chore(owner, chore)

    def wake_worker(self) -> None:
        """Run the chores now."""
        self._maintenance.wake_worker()

    def remove_chores(self, *owners: object) -> None:
        """Remove the chores of these owners; waits a bounded time for the piece under way."""
        self._chore_owners.difference_update(owners)
        self._maintenance.take_chores(owners, self._close_timeout_s)

    def flush(self, timeout_s: float | None = None) -> FlushReport:
        """Wait until everything committed before this call, by any process, is processed.

        Work that this process cannot do (it has no embedder) is reported as waiting, and not waited for.
        """
        self.check_open()
        if self.read_only:
            return administration.unfinished(self._maintenance)
        self.flush_accesses()
        return administration.flush(self._maintenance, timeout_s)

    # -- administration --------------------------------------------------------------------------------

    def forget(self, wanted: Filter, timeout_s: float = 10.0) -> ForgetReceipt:
        """Remove records for good, with every version and everything derived from them.

        Returns when no place holds them any more. Raises `ForgetPending` where that takes longer than `timeout_s`;
        the worker then goes on with it.
        """
        self.check_open()
        return administration.forget(self._maintenance, wanted, timeout_s)

    def forget_entries(
        self, scope: str, *, owner: str | None = None, key: str | None = None, timeout_s: float = 10.0
    ) -> int:
        """Forget the values of a scope for good, of all owners or of one, with their history; the number of keys.

        What stays of an entry is its key and a version, so that other processes learn of it and versions grow.
        Raises `ForgetPending` if the write-ahead log cannot be cleaned within `timeout_s`; call it again then.
        """
        self.check_open()
        return administration.forget_entries(self._maintenance, scope, owner, key, timeout_s)

    def forget_namespace(self, name: str, timeout_s: float = 10.0) -> ForgetReceipt:
        """Remove a namespace for good: its records, entries, blobs, settings and its name.

        For a store that was opened with `all_namespaces=True`. Handles that are open on the namespace can no longer
        write. Raises `NotFound` if there is none of that name, and `ForgetPending` if a copy cannot be cleaned away
        within `timeout_s`; call it again then. It rewrites the whole file.
        """
        self.check_namespaces(f"forget the namespace {name!r}")
        if self.read_only:
            raise ReadOnly(f"{self.path} was opened read-only; open it without read_only=True to forget")
        with self._reading() as connection:
            number = queries.namespace_number(connection, name)
        if number is None:
            raise NotFound(f"there is no namespace {name!r} in this file; namespaces() lists them")
        shared = maintenance.join(self._engine, number, _TAIL, self._lease_s, _LIMITS)
        try:
            return administration.forget_namespace(shared, timeout_s)
        finally:
            if maintenance.part(shared):
                shared.worker.stop(self._close_timeout_s)

    def apply_retention(self) -> ForgetReceipt:
        """Forget what the stated rule no longer keeps; nothing where there is no rule."""
        self.check_open()
        expired = administration.expired(self._maintenance)
        return self.forget(Filter(ids=expired, history=True)) if expired else ForgetReceipt(())

    def check(self, repair: bool = True) -> CheckReport:
        """Verify checksums, counts and projections; rebuild what can be rebuilt from the records."""
        self.check_open()
        return checking.check(self._maintenance, self._searcher, repair and not self.read_only)

    def archive(self, before: datetime | None = None) -> ArchiveStats:
        """Compress the words of every record committed before a moment (now); what the archive then holds.

        Reads are unaffected. The file itself shrinks with the next `vacuum`.
        """
        self.check_open()
        moment = to_micros(self._engine.clock() if before is None else before)
        return administration.archive_before(self._maintenance, moment)

    def archived(self) -> ArchiveStats:
        """What the archive holds."""
        with self._reading() as connection:
            return archive.statistics(connection, self._number)

    def compress_at(self, level: int) -> None:
        """Archive at another level of compression in this process, from 1 (quick) to 22 (small)."""
        if not 1 <= level <= 22:
            raise InvalidInput(f"a level of compression is from 1 to 22, not {level!r}")
        self._maintenance.archive_level = level

    def vacuum(self) -> int:
        """Give free pages back to the disk and merge the index; how many bytes the file shrank by."""
        self.check_open()
        return administration.vacuum(self._maintenance)

    def backup(self, path: str | Path) -> None:
        """A consistent copy of the whole file while others go on writing; replaces `path` when complete."""
        self.check_open()
        administration.back_up(self._engine, path)

    # -- life ------------------------------------------------------------------------------------------

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        self.check_open()
        return self._engine.read()

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        self.check_open()
        return self._engine.write()

    def check_open(self) -> None:
        """Raise `Closed` unless the store is open."""
        if self._closed:
            raise Closed("the memory is closed; open it again to use it")

    def close(self) -> None:
        """Give up the store; waits a bounded time for the background work. Safe to call twice.

        It always closes. Uses that cannot be written then, because another writer holds the file, are dropped.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self.remove_chores(*self._chore_owners)  # of memories that outlive their store
            self._maintenance.write_accesses(min(_LAST_USES_S, self._close_timeout_s))
        except LoomError as error:
            log.info("the last uses were not noted: %s", error)
        finally:
            try:
                if maintenance.part(self._maintenance):
                    self._maintenance.worker.stop(self._close_timeout_s)
            finally:
                self._engine.release(self._close_timeout_s)


def _owners(owner: str | Sequence[str]) -> Sequence[str]:
    return (owner,) if isinstance(owner, str) else owner
