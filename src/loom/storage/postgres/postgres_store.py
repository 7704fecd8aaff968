"""The PostgreSQL store: one namespace of a database on a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loom.errors import InvalidInput, NotFound, ReadOnly, StoreBusy, StoreUnavailable
from loom.protocol import Clock, utc_now
from loom.storage.contract import AtMost, CheckReport, Draft, ForgetReceipt, Origin, Written
from loom.storage.files import FILE_MODE
from loom.storage.handle import LIMITS, TAIL, Handle
from loom.storage.identity import SPAN
from loom.storage.moments import to_micros
from loom.storage.postgres import vacuuming
from loom.storage.postgres.backup import back_up
from loom.storage.postgres.namespace_engine import Engine, LostInWrite
from loom.storage.postgres.spoken_connection import PostgresConnection
from loom.storage.sqlite import administration, checking, maintenance
from loom.storage.sqlite.copying import Copy
from loom.storage.sqlite.counting import Counts
from loom.storage.sqlite.maintenance import WorkLimits
from loom.storage.sqlite.projections import TailLimit, count_up
from loom.storage.sqlite.transactions import (
    FINISH,
    INSERT_RECORD,
    INSERT_VECTOR,
    QUEUE,
    SqliteTransaction,
)
from loom.storage.tables import Row

__all__ = ["PostgresStore"]


class _Transaction(SqliteTransaction):
    """Writes inside one transaction that holds the lock of the namespace."""

    def origin(self) -> Origin:
        return super().origin()._replace(zero=self.namespace * SPAN)

    def add_rows(self, table: str, rows: Iterable[Row]) -> int:
        self._counts = True
        return super().add_rows(table, rows)

    def append(self, drafts: Sequence[Draft]) -> list[Written]:
        # The server cannot count tokens, and a second write would take longer than a count.
        written = super().append([_counted(draft, self.counts) for draft in drafts])
        self._counts = True
        return written

    def await_source(self, id: str, derived: int) -> None:
        super().await_source(id, derived)
        self._counts = True  # a write of one statement checks for awaited ids; see `OneStatement`

    def many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if statement in (INSERT_RECORD, INSERT_VECTOR, QUEUE) and isinstance(self.connection, PostgresConnection):
            self.connection.defer(statement, rows)
        else:
            super().many(statement, rows)

    def finish(self) -> None:
        connection = self.connection
        assert isinstance(connection, PostgresConnection)
        if self._counts:
            connection.at_commit(FINISH, (self._next, self.now))


def _counted(draft: Draft, counts: Counts) -> Draft:
    if not isinstance(draft.tokens, AtMost):
        return draft
    tokens = counts.count(draft.counter, draft.content)
    if tokens is None:
        raise InvalidInput(
            f"the tokens of {draft.id!r} must be counted with {draft.counter!r}, which this process does not have; "
            "give the store that counter with count_with()"
        )
    return draft._replace(tokens=tokens)


class PostgresStore(Handle):
    """One namespace of a PostgreSQL database. See `loom.storage.contract.Store`.

    With `all_namespaces` it may also list and forget the other namespaces of the database. `durability` is the
    server's (`synchronous_commit`). All stores of a process on one namespace share their background work. The first
    store sets `tail`, `lease_s` and `limits`.
    """

    _begin = _Transaction
    _engine: Engine

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        read_only: bool = False,
        durability: str = "commit",
        busy_timeout_s: float = 30.0,
        close_timeout_s: float = 5.0,
        tail: TailLimit = TAIL,
        lease_s: float = 10.0,
        limits: WorkLimits = LIMITS,
        archive_after_days: float | None = None,
        clock: Clock = utc_now,
        all_namespaces: bool = False,
        file_mode: int = FILE_MODE,
    ) -> None:
        if not namespace:
            raise InvalidInput("a namespace needs a name")
        self._clock = clock
        engine = Engine.acquire(
            url, namespace, read_only=read_only, busy_timeout_s=busy_timeout_s, clock=clock, file_mode=file_mode
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

    def _find_namespace(self) -> int:
        return self._engine.namespace

    @property
    def location(self) -> str:
        return self._engine.server.place

    @property
    def counts_later(self) -> bool:
        """False: the server would have to write every row a second time."""
        return False

    @property
    def engine(self) -> Engine:
        """The engine of the namespace, which all stores of this process on the namespace share."""
        return self._engine

    @property
    def lost(self) -> tuple[int, int] | None:
        return None

    def append_alone(self, draft: Draft, revision: str) -> bool:
        self.check_open()
        if draft.revises or draft.sources or draft.drawn:
            return False
        draft = _counted(draft, self._engine.counts)
        values = self._engine.rows.encode(draft, to_micros(self._engine.clock()))
        try:
            written = self._engine.insert_record(values, revision, draft.named)
        except LostInWrite as lost:
            self._append_again(draft, lost)
            return True
        if written:
            self._maintenance.wrote(1, len(draft.content), 1)
        return written

    def _append_again(self, draft: Draft, lost: LostInWrite) -> None:
        """Append a record unless a statement on a lost connection has appended it.

        That statement may still wait for the lock. The new revision makes it write nothing.
        """
        try:
            with self.transaction() as transaction:
                count_up(transaction.connection)
                transaction.append([draft._replace(named=True)])
        except (StoreBusy, StoreUnavailable):
            raise StoreUnavailable(
                f"the connection to {self.location} was lost while {draft.id!r} was written, so it is not known "
                f"whether it was kept. Writing it again with id={draft.id!r} is safe."
            ) from lost

    def forget_namespace(self, name: str, timeout_s: float = 10.0) -> ForgetReceipt:
        self.check_namespaces(f"forget the namespace {name!r}")
        if self.read_only:
            raise ReadOnly(f"{self.location} was opened read-only; open it without read_only=True to forget")
        number = self._number_of(name)
        if number is None:
            raise NotFound(f"there is no namespace {name!r} in this database; namespaces() lists them")
        engine = Engine.join(self._engine.server, number, self._clock)
        try:
            shared = maintenance.join(engine, number, TAIL, self._lease_s, LIMITS, self._begin)
            try:
                return administration.forget_namespace(shared, timeout_s, lambda: None)
            finally:
                if maintenance.part(shared):
                    shared.worker.stop(self._close_timeout_s)
        finally:
            engine.release()

    def check(self, repair: bool = True) -> CheckReport:
        self.check_open()
        return checking.check(self._maintenance, self._searcher, repair and not self.read_only)

    @contextmanager
    def copying(self, namespaces: Sequence[str] | None = None) -> Iterator[Copy]:
        names = [self._name] if namespaces is None else [*dict.fromkeys(namespaces)]
        self.check_open()
        if len(names) != 1:
            raise InvalidInput(f"a snapshot of {self.location} is of one namespace; take one for each")
        if names != [self._name]:
            self.check_namespaces(f"copy the rows of {names[0]!r}")
        number = self._number_of(names[0])
        if number is None:
            raise NotFound(f"there is no namespace {names[0]!r} in this database; namespaces() lists them")
        self.flush_accesses()
        engine = Engine.join(self._engine.server, number, self._clock)
        try:
            with engine.read() as connection:
                yield Copy(connection, [number], zero=number * SPAN)
        finally:
            engine.release()

    def stats(self) -> dict[str, int]:
        found = super().stats()
        if self._engine.dialect.partition is None:  # format 1 keeps no note of it
            return found | {"awaiting_vacuum": 0}
        with self.connected() as connection:
            of = None if self._all_namespaces else self.number
            return found | {"awaiting_vacuum": vacuuming.waiting(connection, of)}

    def vacuum(self) -> int:
        self.check_open()
        administration.settle(self._maintenance)
        return self._engine.vacuum()

    def backup(self, path: str | Path) -> None:
        self.check_open()
        everything = self._all_namespaces
        back_up(self._engine, path, None if everything else self._name)
