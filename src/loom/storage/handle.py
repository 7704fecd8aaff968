"""One namespace of an open database as a `Store`, for every backend.

Reads are in `records`, `residency` and `entries`, by role. Each call sees one snapshot of the database. Each write is
one transaction (`transactions`), acknowledged after its commit. A search reads the projections and the database on
one snapshot (`searcher`). The verbs of an operator are in `administration`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TypeVar

from loom.errors import Closed, InvalidInput, LoomError, SettingsConflict
from loom.index.analysis import ANALYSIS_VERSION
from loom.protocol import Uncopied
from loom.steps import step
from loom.storage.contract import (
    EMBED,
    MAX_ATTEMPTS,
    ArchiveStats,
    Chore,
    Embed,
    Filter,
    FlushReport,
    ForgetReceipt,
    Store,
    Usage,
)
from loom.storage.databases import Connection, Engine
from loom.storage.moments import to_micros
from loom.storage.search_view import SearchView
from loom.storage.sqlite import administration, archive, maintenance
from loom.storage.sqlite.entries import Blobs, Entries, Jobs
from loom.storage.sqlite.maintenance import AccessBuffer, Maintenance, WorkLimits
from loom.storage.sqlite.projections import SCRUB, TEXT, TEXT_BASIS, TailLimit, active_space, start_over
from loom.storage.sqlite.records import Records
from loom.storage.sqlite.residency import Residency
from loom.storage.sqlite.rows import FORGOTTEN_NAME
from loom.storage.sqlite.searcher import Searcher
from loom.storage.sqlite.transactions import SqliteTransaction, put_setting

__all__ = ["LIMITS", "TAIL", "Handle"]

Answer = TypeVar("Answer")

TAIL = TailLimit()
LIMITS = WorkLimits()

log = logging.getLogger("loom.store")

# The longest wait of close() for another writer, to write the last uses of records.
_LAST_USES_S = 0.2


class Handle(Uncopied, Records, Residency, Entries, Blobs, Jobs, Store):
    """A store on an open engine. A backend opens the engine, and adds its own features."""

    _begin: type[SqliteTransaction] = SqliteTransaction

    def __init__(
        self,
        engine: Engine,
        namespace: str,
        *,
        all_namespaces: bool,
        close_timeout_s: float,
        tail: TailLimit,
        lease_s: float,
        limits: WorkLimits,
        archive_after_days: float | None,
    ) -> None:
        self._engine = engine
        self._name = namespace
        self._all_namespaces = all_namespaces
        self._lease_s = lease_s
        self._close_timeout_s = close_timeout_s
        self._closed = False
        self._chore_owners: set[object] = set()
        try:
            self.number = self._find_namespace()
            self._maintenance = maintenance.join(engine, self.number, tail, lease_s, limits, self._begin)
            if archive_after_days is not None:
                self._maintenance.archive_after_s = archive_after_days * 86_400
            self._searcher = Searcher(engine, self._maintenance)
            self._agree_on_analyzer()
            self._note_lost()
            if not self.read_only and self.jobs(SCRUB, 1):
                self._maintenance.worker.wake()
        except BaseException:
            engine.release()
            raise

    def _find_namespace(self) -> int:
        """The number of the namespace, created if it is missing; 0 for a missing one in a read-only store."""
        number = self._number_of(self._name)
        if number is None and not self.read_only:
            self._create_namespace()
            number = self._number_of(self._name)
        return number or 0  # no namespace has the number 0, so every read is empty

    def _create_namespace(self) -> None:
        """Create the namespace, unless it exists."""
        raise NotImplementedError

    def _note_lost(self) -> None:
        """Report lost commits once, if the backend can detect them."""

    def _number_of(self, namespace: str) -> int | None:
        numbers = self._firsts("SELECT number FROM namespaces WHERE name = ?", (namespace,))
        return numbers[0] if numbers else None

    def _agree_on_analyzer(self) -> None:
        """Start the text index over if an older analyser made it."""
        stored = self.settings().get("analyzer")
        if stored is not None and stored > ANALYSIS_VERSION:
            raise SettingsConflict(
                f"a newer version of loom made this store's text index (analyser {stored}, here {ANALYSIS_VERSION}); "
                "upgrade: pip install --upgrade loomkeep"
            )
        if stored == ANALYSIS_VERSION or self.read_only:
            return
        with self._engine.write() as connection:
            if stored is not None:
                start_over(connection, self.number, TEXT, TEXT_BASIS)
            put_setting(connection, self.number, "", "analyzer", ANALYSIS_VERSION)

    # -- identity ----------------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        return self._name

    @property
    def read_only(self) -> bool:
        return self._engine.read_only

    def clock(self) -> datetime:
        return self._engine.clock()

    @property
    def store_id(self) -> str:
        return self._engine.store_id

    def namespaces(self) -> list[str]:
        self.check_namespaces("list the namespaces of the file")
        names = self._firsts("SELECT name FROM namespaces ORDER BY number")
        return [name for name in names if not name.startswith(FORGOTTEN_NAME)]

    def check_namespaces(self, wish: str) -> None:
        """Raise `InvalidInput` unless the store was opened for all namespaces of its file."""
        self.check_open()
        if not self._all_namespaces:
            raise InvalidInput(
                f"cannot {wish} through a handle that was opened for the namespace {self._name!r} alone; "
                "open it with all_namespaces=True"
            )

    # -- reading and writing ---------------------------------------------------------------------------

    def connected(self, *, once: bool = False) -> AbstractContextManager[Connection]:
        self.check_open()
        return self._engine.read(once=once)

    def reading(self) -> AbstractContextManager[None]:
        self.check_open()
        return self._engine.reading()

    def transaction(self, wait_s: float | None = None) -> AbstractContextManager[SqliteTransaction]:
        return self._own.transaction(wait_s)

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
            self._maintenance.worker.wake()  # the worker writes them, because a reader never waits for the write lock

    def count_lookup(self, node: str, tier: str, hit: bool) -> None:
        self._maintenance.accesses.add_lookup(node, tier, hit)

    def flush_accesses(self) -> None:
        """Write the buffered uses and lookups. If another writer holds the file, they are written later."""
        self._own.write_accesses()

    # -- searching -----------------------------------------------------------------------------------

    def search(self, ask: Callable[[SearchView], Answer]) -> Answer:
        self.check_open()
        return self._searcher.search(ask)

    def rebuild(self, kind: str) -> None:
        """Rebuild a projection (`text` or `vectors`) from the records."""
        self.check_open()
        self._searcher.rebuild(kind)

    # -- background work -----------------------------------------------------------------------------

    @property
    def _own(self) -> Maintenance:
        """The state that the handles of this process on the namespace share. Raises `Closed` if this one is
        closed."""
        self.check_open()
        return self._maintenance

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
        self._maintenance.space, self._maintenance.embed = number, embed
        if embed is not None and not self.read_only:
            administration.retry_jobs(self._maintenance, [EMBED], 1, 0)
            self._maintenance.worker.wake()

    @step("space.switch")
    def _change_space(self, name: str, dimensions: int) -> None:
        with self.transaction() as transaction:
            transaction.change_space(name, dimensions)

    def retry_jobs(self, *kinds: str) -> None:
        if administration.retry_jobs(self._own, kinds, MAX_ATTEMPTS, MAX_ATTEMPTS - 1):
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
        if self.read_only:
            return administration.unfinished(self._own)
        self.flush_accesses()
        return administration.flush(self._maintenance, timeout_s)

    # -- administration --------------------------------------------------------------------------------

    def forget(self, wanted: Filter, timeout_s: float = 10.0) -> ForgetReceipt:
        return administration.forget(self._own, wanted, timeout_s)

    def forget_entries(
        self, scope: str, *, owner: str | None = None, key: str | None = None, timeout_s: float = 10.0
    ) -> int:
        return administration.forget_entries(self._own, scope, owner, key, timeout_s)

    def apply_retention(self) -> ForgetReceipt:
        expired = administration.expired(self._own)
        return self.forget(Filter(ids=expired, history=True)) if expired else ForgetReceipt(())

    def archive(self, before: datetime | None = None) -> ArchiveStats:
        moment = self._engine.clock() if before is None else before
        return administration.archive_before(self._own, to_micros(moment))

    def archived(self) -> ArchiveStats:
        with self.connected() as connection:
            return archive.statistics(connection, self.number)

    def compress_at(self, level: int) -> None:
        if not 1 <= level <= 22:
            raise InvalidInput(f"a level of compression must be from 1 to 22, not {level!r}")
        self._maintenance.archive_level = level

    # -- life ------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._closed:
            raise Closed("the memory is closed; open it again to use it")

    def close(self) -> None:
        """Close the store; waits a bounded time for the background work. Safe to call twice.

        The store always closes. Unwritten uses are dropped if another writer holds the file.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self.remove_chores(*self._chore_owners)  # the chores of memories that outlive their store
            self._maintenance.write_accesses(min(_LAST_USES_S, self._close_timeout_s))
        except LoomError as error:
            log.info("the last uses were not stored: %s", error)
        finally:
            try:
                if maintenance.part(self._maintenance):
                    self._maintenance.worker.stop(self._close_timeout_s)
            finally:
                self._engine.release(self._close_timeout_s)
