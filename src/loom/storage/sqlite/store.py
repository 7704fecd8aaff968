"""The SQLite backend: one namespace of one file as a `Store`.

What it reads is in `records`, `residency` and `entries`, by role; each call sees one state of the database. Writes
are one `BEGIN IMMEDIATE` each and acknowledged when they are committed (`transactions`). A search reads the
projections and the database on one snapshot (`searcher`). The verbs of an operator are in
`administration`.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from loom.errors import (
    Closed,
    InvalidInput,
    LoomError,
    NotFound,
    ReadOnly,
    SettingsConflict,
    UnsupportedStore,
)
from loom.index.analysis import ANALYSIS_VERSION
from loom.protocol import Clock, Uncopied, utc_now
from loom.steps import step
from loom.storage.contract import (
    EMBED,
    MAX_ATTEMPTS,
    ArchiveStats,
    CheckReport,
    Chore,
    Embed,
    Filter,
    FlushReport,
    ForgetReceipt,
    Store,
    Usage,
)
from loom.storage.files import FILE_MODE
from loom.storage.moments import to_micros
from loom.storage.search_view import SearchView
from loom.storage.sqlite import administration, archive, checking, maintenance
from loom.storage.sqlite.copying import Copy
from loom.storage.sqlite.engine import Engine
from loom.storage.sqlite.entries import Blobs, Entries, Jobs
from loom.storage.sqlite.maintenance import AccessBuffer, TransactionScope, WorkLimits
from loom.storage.sqlite.projections import SCRUB, TEXT, TEXT_BASIS, TailLimit, active_space, start_over
from loom.storage.sqlite.records import Records
from loom.storage.sqlite.residency import Residency
from loom.storage.sqlite.rows import FORGOTTEN_NAME
from loom.storage.sqlite.searcher import Searcher
from loom.storage.sqlite.transactions import put_setting
from loom.trust import check_store

__all__ = ["SqliteStore", "as_sqlite"]

Answer = TypeVar("Answer")

_TAIL = TailLimit()
_LIMITS = WorkLimits()

log = logging.getLogger("loom.store")

# How long close() waits for another writer to note the last uses of records.
_LAST_USES_S = 0.2


class SqliteStore(Uncopied, Records, Residency, Entries, Blobs, Jobs, Store):
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
            self.number = self._find_namespace()
            self._maintenance = maintenance.join(self._engine, self.number, tail, lease_s, limits)
            if archive_after_days is not None:
                self._maintenance.archive_after_s = archive_after_days * 86_400
            self._searcher = Searcher(self._engine, self._maintenance)
            self._agree_on_analyzer()
            self._note_lost()
            if not read_only and self.jobs(SCRUB, 1):
                self._maintenance.worker.wake()
        except BaseException:
            self._engine.release()
            raise

    def _find_namespace(self) -> int:
        """The number of the namespace, which is created where it is missing; 0 where it may not be."""
        number = self._number_of(self._name)
        if number is None and not self.read_only:
            with self._engine.write() as connection:
                connection.execute("INSERT OR IGNORE INTO namespaces (name) VALUES (?)", (self._name,))
            number = self._number_of(self._name)
        return number or 0  # nothing has the number 0: every read of it is empty

    def _number_of(self, namespace: str) -> int | None:
        with self.connected() as connection:
            row = connection.execute("SELECT number FROM namespaces WHERE name = ?", (namespace,)).fetchone()
        (number,) = row or (None,)
        return number

    def _agree_on_analyzer(self) -> None:
        """Start the text index over where an older analyser made it."""
        stored = self.settings().get("analyzer")
        if stored is not None and stored > ANALYSIS_VERSION:
            raise SettingsConflict(
                f"this store's text index was made by a newer loom (analyser {stored}, here {ANALYSIS_VERSION}); "
                "upgrade: pip install --upgrade loomkeep"
            )
        if stored == ANALYSIS_VERSION or self.read_only:
            return
        with self._engine.write() as connection:
            if stored is not None:
                start_over(connection, self.number, TEXT, TEXT_BASIS)
            put_setting(connection, self.number, "", "analyzer", ANALYSIS_VERSION)

    def _note_lost(self) -> None:
        """Tell once that commits are gone, and note it in the file."""
        self._lost = checking.find_lost(self._engine, self.number)
        if self._lost is None:
            return
        log.warning("%s: %s", self._engine.path, checking.lost_problem(self._lost))
        with self._engine.try_write() as connection:
            if connection is not None:
                put_setting(connection, self.number, "", "lost", list(self._lost))
                # A sequence number is never used twice.
                connection.execute("UPDATE store SET seq = max(seq, ?)", self._lost[1:])

    @property
    def lost(self) -> tuple[int, int] | None:
        found = self.settings().get("lost")
        return self._lost if found is None else tuple(found)

    # -- identity ----------------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        return self._name

    @property
    def read_only(self) -> bool:
        return self._engine.read_only

    @property
    def location(self) -> str:
        return str(self.path or "in memory")

    @property
    def path(self) -> Path | None:
        return self._engine.path

    @property
    def file_mode(self) -> int:
        return self._engine.file_mode

    @property
    def engine(self) -> Engine:
        """The database underneath, which all stores of this process on one file share."""
        return self._engine

    def clock(self) -> datetime:
        return self._engine.clock()

    @property
    def store_id(self) -> str:
        return self._engine.store_id

    def namespaces(self) -> list[str]:
        self.check_namespaces("list the namespaces of the file")
        with self.connected() as connection:
            rows = connection.execute("SELECT name FROM namespaces ORDER BY number").fetchall()
        return [name for (name,) in rows if not name.startswith(FORGOTTEN_NAME)]

    def check_namespaces(self, wish: str) -> None:
        """Raise `InvalidInput` unless the store was opened for all namespaces of its file."""
        self.check_open()
        if not self._all_namespaces:
            raise InvalidInput(
                f"asked to {wish} through a handle that was opened for the namespace {self._name!r} alone; "
                "open it with all_namespaces=True"
            )

    # -- reading and writing ---------------------------------------------------------------------------

    def connected(self) -> AbstractContextManager[sqlite3.Connection]:
        self.check_open()
        return self._engine.read()

    def reading(self) -> AbstractContextManager[None]:
        self.check_open()
        return self._engine.reading()

    def transaction(self, wait_s: float | None = None) -> TransactionScope:
        self.check_open()
        return self._maintenance.transaction(wait_s)

    @contextmanager
    def copying(self, namespaces: Sequence[str] | None = None) -> Iterator[Copy]:
        names = [self._name] if namespaces is None else [*dict.fromkeys(namespaces)]
        self.check_open()
        if names != [self._name]:
            self.check_namespaces(f"copy the rows of {', '.join(map(repr, names))}")
        self.flush_accesses()
        with self._engine.reading_alone() as connection:
            known = {name: number for number, name in connection.execute("SELECT number, name FROM namespaces")}
            if missing := [name for name in names if name not in known]:
                there = ", ".join(name for name in known if not name.startswith(FORGOTTEN_NAME))
                raise NotFound(f"there is no namespace {missing[0]!r} in this store; it has {there}")
            yield Copy(connection, sorted(known[name] for name in names))

    def recent_uses(self) -> AccessBuffer:
        return self._maintenance.accesses

    def totals(self, node: str) -> dict[str, Usage]:
        found = super().totals(node)
        for tier, (hits, misses) in self._maintenance.accesses.lookups(node).items():
            known = found.get(tier, Usage())
            found[tier] = known._replace(hits=known.hits + hits, misses=known.misses + misses)
        return found

    def touch(self, records: Iterable[int], node: str) -> None:
        if self._maintenance.accesses.add(records, node, to_micros(self._engine.clock())) and not self.read_only:
            self._maintenance.worker.wake()  # not here: a reader never waits for the write lock

    def count_lookup(self, node: str, tier: str, hit: bool) -> None:
        self._maintenance.accesses.add_lookup(node, tier, hit)

    def flush_accesses(self) -> None:
        """Write the buffered uses and lookups; where another writer holds the file, they are written later."""
        self.check_open()
        self._maintenance.write_accesses()

    # -- searching -----------------------------------------------------------------------------------

    def search(self, ask: Callable[[SearchView], Answer]) -> Answer:
        self.check_open()
        return self._searcher.search(ask)

    def rebuild(self, kind: str) -> None:
        """Make a projection (`text` or `vectors`) again from the records."""
        self.check_open()
        self._searcher.rebuild(kind)

    # -- background work -----------------------------------------------------------------------------

    def count_with(self, counters: Mapping[str, Callable[[str], int]]) -> None:
        self._engine.counts.use(counters)

    def use_embedder(self, name: str, dimensions: int, embed: Embed | None, *, reconfigure: bool = False) -> None:
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
        with self.connected() as connection:
            number, _ = active_space(connection, self.number) or (None, 0)
        self._maintenance.use(number, embed)
        if embed is not None and not self.read_only:
            administration.retry_jobs(self._maintenance, [EMBED], 1, 0)
            self._maintenance.worker.wake()

    @step("space.switch")
    def _change_space(self, name: str, dimensions: int) -> None:
        with self.transaction() as transaction:
            transaction.change_space(name, dimensions)

    def retry_jobs(self, *kinds: str) -> None:
        self.check_open()
        if administration.retry_jobs(self._maintenance, kinds, MAX_ATTEMPTS, MAX_ATTEMPTS - 1):
            self._maintenance.look_after = 0.0

    def add_chore(self, owner: object, chore: Chore) -> None:
        self.check_open()
        if not self.read_only:
            self._chore_owners.add(owner)
            self._maintenance.give_chore(owner, chore)

    def wake_worker(self) -> None:
        self._maintenance.wake_worker()

    def remove_chores(self, *owners: object) -> None:
        self._chore_owners.difference_update(owners)
        self._maintenance.take_chores(owners, self._close_timeout_s)

    def flush(self, timeout_s: float | None = None) -> FlushReport:
        self.check_open()
        if self.read_only:
            return administration.unfinished(self._maintenance)
        self.flush_accesses()
        return administration.flush(self._maintenance, timeout_s)

    # -- administration --------------------------------------------------------------------------------

    def forget(self, wanted: Filter, timeout_s: float = 10.0) -> ForgetReceipt:
        self.check_open()
        return administration.forget(self._maintenance, wanted, timeout_s)

    def forget_entries(
        self, scope: str, *, owner: str | None = None, key: str | None = None, timeout_s: float = 10.0
    ) -> int:
        self.check_open()
        return administration.forget_entries(self._maintenance, scope, owner, key, timeout_s)

    def forget_namespace(self, name: str, timeout_s: float = 10.0) -> ForgetReceipt:
        self.check_namespaces(f"forget the namespace {name!r}")
        if self.read_only:
            raise ReadOnly(f"{self.path} was opened read-only; open it without read_only=True to forget")
        number = self._number_of(name)
        if number is None:
            raise NotFound(f"there is no namespace {name!r} in this file; namespaces() lists them")
        shared = maintenance.join(self._engine, number, _TAIL, self._lease_s, _LIMITS)
        try:
            return administration.forget_namespace(shared, timeout_s)
        finally:
            if maintenance.part(shared):
                shared.worker.stop(self._close_timeout_s)

    def apply_retention(self) -> ForgetReceipt:
        self.check_open()
        expired = administration.expired(self._maintenance)
        return self.forget(Filter(ids=expired, history=True)) if expired else ForgetReceipt(())

    def check(self, repair: bool = True) -> CheckReport:
        self.check_open()
        return checking.check(self._maintenance, self._searcher, repair and not self.read_only)

    def archive(self, before: datetime | None = None) -> ArchiveStats:
        self.check_open()
        moment = to_micros(self._engine.clock() if before is None else before)
        return administration.archive_before(self._maintenance, moment)

    def archived(self) -> ArchiveStats:
        with self.connected() as connection:
            return archive.statistics(connection, self.number)

    def compress_at(self, level: int) -> None:
        if not 1 <= level <= 22:
            raise InvalidInput(f"a level of compression is from 1 to 22, not {level!r}")
        self._maintenance.archive_level = level

    def vacuum(self) -> int:
        self.check_open()
        return administration.vacuum(self._maintenance)

    def backup(self, path: str | Path) -> None:
        self.check_open()
        administration.back_up(self._engine, path)

    # -- life ------------------------------------------------------------------------------------------

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


def as_sqlite(store: Store) -> SqliteStore:
    """The store as one of SQLite, for what only this backend has; another one raises `UnsupportedStore`."""
    if not isinstance(store, SqliteStore):
        raise UnsupportedStore(f"{store.location} is not a SQLite store")
    return store
