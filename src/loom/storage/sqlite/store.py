"""The SQLite backend: one namespace of one file as a `Store`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from loom.errors import InvalidInput, NotFound, ReadOnly, UnsupportedStore
from loom.protocol import Clock, utc_now
from loom.storage.contract import CheckReport, ForgetReceipt, Store
from loom.storage.files import FILE_MODE
from loom.storage.handle import LIMITS, TAIL, Handle
from loom.storage.sqlite import administration, checking, maintenance
from loom.storage.sqlite.copying import Copy
from loom.storage.sqlite.engine import Engine
from loom.storage.sqlite.maintenance import WorkLimits
from loom.storage.sqlite.projections import TailLimit
from loom.storage.sqlite.rows import FORGOTTEN_NAME
from loom.storage.sqlite.transactions import put_setting
from loom.trust import check_store

__all__ = ["SqliteStore", "as_sqlite"]

log = logging.getLogger("loom.store")


class SqliteStore(Handle):
    """One namespace of one SQLite file, or of a database in memory. See `loom.storage.contract.Store`.

    With `all_namespaces` it may also list, snapshot and forget the other namespaces of the file.
    New files have the mode `file_mode`; existing files keep theirs. All stores of a process on one namespace share
    their background work. The first store sets `tail`, `lease_s` and `limits`.
    """

    _engine: Engine

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        namespace: str = "default",
        read_only: bool = False,
        durability: str = "commit",
        busy_timeout_s: float = 30.0,
        close_timeout_s: float = 5.0,
        tail: TailLimit = TAIL,
        lease_s: float = 10.0,
        limits: WorkLimits = LIMITS,
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
        engine = Engine.acquire(
            path,
            read_only=read_only,
            durability=durability,
            busy_timeout_s=busy_timeout_s,
            max_bytes=max_bytes,
            clock=clock,
            file_mode=file_mode,
        )
        super().__init__(
            engine,
            namespace,
            all_namespaces=all_namespaces,
            close_timeout_s=close_timeout_s,
            tail=tail,
            lease_s=lease_s,
            limits=limits,
            archive_after_days=archive_after_days,
        )

    def _create_namespace(self) -> None:
        with self._engine.write() as connection:
            connection.execute("INSERT OR IGNORE INTO namespaces (name) VALUES (?)", (self._name,))

    def _find_lost(self) -> tuple[int, int] | None:
        return checking.find_lost(self._engine, self.number)

    def _note_lost(self) -> None:
        """Report lost commits once, and record the loss in the file."""
        self._lost = self._find_lost()
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
        """The open database, which all stores of this process on one file share."""
        return self._engine

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

    def forget_namespace(self, name: str, timeout_s: float = 10.0) -> ForgetReceipt:
        self.check_namespaces(f"forget the namespace {name!r}")
        if self.read_only:
            raise ReadOnly(f"{self.path} was opened read-only; open it without read_only=True to forget")
        number = self._number_of(name)
        if number is None:
            raise NotFound(f"there is no namespace {name!r} in this file; namespaces() lists them")
        shared = maintenance.join(self._engine, number, TAIL, self._lease_s, LIMITS)
        try:
            return administration.forget_namespace(shared, timeout_s, lambda: administration.shrink(self._engine))
        finally:
            if maintenance.part(shared):
                shared.worker.stop(self._close_timeout_s)

    def check(self, repair: bool = True) -> CheckReport:
        return checking.check(self._own, self._searcher, repair and not self.read_only, self._find_lost)

    def vacuum(self) -> int:
        return administration.vacuum(self._own, self._engine)

    def backup(self, path: str | Path) -> None:
        self.check_open()
        administration.back_up(self._engine, path)


def as_sqlite(store: Store) -> SqliteStore:
    """The store as a `SqliteStore`, for features of this backend. Raises `UnsupportedStore` for another backend."""
    if not isinstance(store, SqliteStore):
        raise UnsupportedStore(f"{store.location} is not a SQLite store")
    return store
