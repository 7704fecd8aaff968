"""The transactions of one namespace of a database in one process, and the index files of this host.

A write first locks the row of the namespace in `heads`, as SQLite's `BEGIN IMMEDIATE` locks the file. The writes of a
namespace are therefore serial, their sequence numbers become visible in order, and they cannot deadlock. A read is
REPEATABLE READ and read-only, so it sees one snapshot. No state remains in a session, so a pooler in transaction mode
works.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult

from loom.errors import Closed, InvalidInput, LoomError, ReadOnly, StoreBusy, StoreUnavailable
from loom.index.segments import read_arrays, write_segment
from loom.index.vector_index import CODES_ONLY
from loom.protocol import Clock, new_id
from loom.storage.databases import Connection, Cursor, Taken, Wanted
from loom.storage.files import FILE_MODE, create_folder, disk_errors
from loom.storage.postgres import vacuuming
from loom.storage.postgres.catalog import WRITERS_KEPT_S
from loom.storage.postgres.connections import Address, Server, default_cache
from loom.storage.postgres.one_statement import Head, RowEncoder
from loom.storage.postgres.prepared import PooledConnection, checked
from loom.storage.postgres.spoken_connection import PostgresConnection, is_gone, translate, translated
from loom.storage.sqlite.counting import Counts
from loom.storage.sqlite.projections import LAST_NUMBER
from loom.storage.sqlite.transactions import BEGUN
from loom.storage.temporary import let_go, temporary_beside

__all__ = ["MOST_STALE", "SILENT_MS", "Engine", "LostInWrite", "create_namespace"]

Answer = TypeVar("Answer")

log = logging.getLogger("loom.store")

# A wait for another writer consists of pieces of this length, so that it can be interrupted.
_WAIT_PIECE_S = 1.0
# Jobs that a worker has taken return to the queue after this time, because the worker may have died.
_TAKEN_FOR_S = 20.0
# The worker vacuums the tables of a namespace at most this often.
_TIDY_PAUSE_S = 60.0
# The codes of a vector have about this part of its bytes.
_CODES_SHARE = 10
# The server ends a write whose host sends nothing for this long. Such a host is stopped or disconnected, and other
# writers wait for it.
SILENT_MS = 60_000
_BEGIN_READING = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# The statements name their tables in the order of the best plan, with CROSS JOIN for SQLite. Without statistics, as
# for new tables, PostgreSQL chose a join of whole tables, which took 400 ms for a recall among 3,000 records.
_IN_ORDER = b"SET LOCAL join_collapse_limit = 1"
_CHUNK_BYTES = 1 << 20
# Connections that the server has closed are discovered one by one. After this many, the server is assumed to fail.
MOST_STALE = 100

_Key = tuple[Address, int, bool]
_registry: dict[_Key, Engine] = {}
_servers: dict[tuple[Address, bool], Server] = {}
_registry_lock = threading.RLock()
_inherited: list[object] = []  # connections of a parent process: referenced, so that this process never closes them


class LostInWrite(Exception):
    """The connection was lost during a write of one statement, so it is not known whether the write was kept."""


class _Writer:
    """A row of the table `writers`, which one write at a time uses.

    The row names the last write that was committed with it. If the connection is lost during a commit, this process
    can find out whether the write was kept, on any server that has the row.
    """

    __slots__ = ("last", "number", "since")

    def __init__(self) -> None:
        self.number = secrets.randbits(62)
        self.last = 0
        self.since = 0.0

    def begin(self) -> None:
        self.last += 1
        self.since = time.time()


class _Scope(threading.local):
    """The state of this thread: the connection of its `reading` block, and its write."""

    reading: PostgresConnection | None = None
    writing: bool = False


class Engine:
    """One namespace of a database in this process. `acquire` opens or joins it, and `release` drops one handle."""

    folds_log = False

    def __init__(self, server: Server, key: _Key, clock: Clock, busy_timeout_s: float, file_mode: int) -> None:
        self.server = server
        self.read_only = server.read_only
        self.clock = clock
        self.file_mode = file_mode
        self.archive = server.archive
        self.counts = Counts()
        self._key = key
        _, self.namespace, _ = key
        self.dialect = server.dialect_of(self.namespace)
        # Every search first asks for the last sequence number, so the same round trip returns it.
        self._begin_reading = b"%b; %b; %b" % (_BEGIN_READING, _IN_ORDER, self._spelled_out(LAST_NUMBER))
        self._busy_timeout_s = busy_timeout_s
        self._references = 1
        self._closed = False
        self._scope = _Scope()
        self._tidy_after = 0.0
        self._fetching: threading.Thread | None = None
        self._head: Head | None = None
        self._writers: deque[_Writer] = deque()
        self.rows = RowEncoder(self.namespace)
        kinds = itertools.product((False, True), repeat=2)
        self.one_statements = {kind: server.one_statement(self.dialect, *kind) for kind in kinds}
        self._hurried: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        base = server.address.cache or default_cache()
        with disk_errors(f"the folder {base} for index files cannot be made; name another one with ?cache="):
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = base / server.store_id

    # -- opening and closing ---------------------------------------------------------------------

    @classmethod
    def acquire(
        cls,
        url: str,
        namespace: str,
        *,
        read_only: bool = False,
        busy_timeout_s: float = 30.0,
        clock: Clock,
        file_mode: int = FILE_MODE,
    ) -> Engine:
        """Open a namespace, which is created if it is missing, or join this process's engine on it."""
        address = Address.of(url)
        with _registry_lock:
            server = _servers.get((address, read_only))
            if server is None or server.closed:
                server = _servers[address, read_only] = Server(address, read_only, clock)
            try:
                number = _number_of(server, namespace)
                if number is None and not read_only:
                    number = create_namespace(server, namespace)
                return cls.join(server, number or 0, clock, busy_timeout_s, file_mode)
            except BaseException:
                _close_unused(server)
                raise

    @classmethod
    def join(
        cls, server: Server, number: int, clock: Clock, busy_timeout_s: float = 30.0, file_mode: int = FILE_MODE
    ) -> Engine:
        """Add a handle on a namespace, by its number."""
        key = (server.address, number, server.read_only)
        with _registry_lock:
            known = _registry.get(key)
            if known is not None:
                known._references += 1  # noqa: SLF001
                return known
            engine = _registry[key] = cls(server, key, clock, busy_timeout_s, file_mode)
            return engine

    def release(self, wait_s: float = 5.0) -> bool:
        """Drop a handle. Returns True if it was the last and everything is closed."""
        with _registry_lock:
            self._references -= 1
            if self._references > 0:
                return False
            self._closed = True
            _registry.pop(self._key, None)
            _close_unused(self.server)
        return True

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def store_id(self) -> str:
        return self.server.store_id

    @property
    def index_folder(self) -> Path:
        """The folder of the index files on this host."""
        return self._folder

    def stop_waiting(self, thread: threading.Thread) -> None:
        self._hurried.add(thread)

    def after_fork(self) -> None:
        """Drop the inherited state in a child process: the connections belong to the parent."""
        self._scope = _Scope()
        self._fetching = None
        self._hurried = weakref.WeakSet()
        self._writers = deque()

    # -- transactions ----------------------------------------------------------------------------

    @contextmanager
    def read(self, *, once: bool = False) -> Iterator[Connection]:
        joined = self._scope.reading
        if joined is not None:
            self._check_open()
            with translated(self.server.place):
                yield joined
            return
        if once:
            self._check_open()
            with translated(self.server.place):
                yield _Once(self)
            return
        raw, last = self._answered(self._begin_reading)
        try:
            with translated(self.server.place):
                yield self._reader(raw, last)
        finally:
            _roll_back(raw)
            self.server.give_back(raw)

    @contextmanager
    def reading(self) -> Iterator[None]:
        if self._scope.reading is not None:
            yield
            return
        with self.read() as connection:
            assert isinstance(connection, PostgresConnection)
            self._scope.reading = connection
            try:
                yield
            finally:
                self._scope.reading = None

    def renew_reading(self) -> None:
        connection = self._scope.reading
        if connection is not None:
            with translated(self.server.place):
                last = _execute(connection.raw, b"ROLLBACK; " + self._begin_reading)
            connection.last_number = _last_number(last)

    @contextmanager
    def write(self, wait_s: float | None = None) -> Iterator[Connection]:
        """A transaction with the lock of the namespace. Commits at the end, or rolls back after an error.

        Raises `StoreBusy` if others write for longer than `wait_s`, by default the store's `busy_timeout_s`.
        """
        self._check_writable()
        raw, head = self._locked(self._busy_timeout_s if wait_s is None else wait_s)
        writer = self._writers.pop() if self._writers else _Writer()
        self._scope.writing = True
        connection = self.connection_on(raw)
        connection.head = head
        try:
            with translated(self.server.place):
                try:
                    yield connection
                    connection.settle()
                except BaseException:
                    self.counts.forget()
                    raise
                self._commit(raw, connection.last_statements, writer)
        finally:
            self._scope.writing = False
            self._writers.append(writer)
            _roll_back(raw)
            self.server.give_back(raw)
        self.renew_reading()

    def insert_record(self, values: Sequence[bytes | None], settings: str, named: bool) -> bool:
        """Insert a record, given by `rows`, in one statement and in its own transaction.

        Returns False, and writes nothing, if the settings have another revision, or if this process does not know the
        namespace yet. For a record whose id may exist (`named`), it also does so if the id exists or is awaited, or
        if another write has the lock. Raises `LostInWrite` if the connection is lost.
        """
        self._check_writable()
        head = self._head
        if head is None or head.settings != settings:
            return False
        statement = self.one_statements[head.queues, named]

        def attempt(wait_ms: int) -> bool:
            raw = self.server.lend()
            try:
                return statement.execute(raw, values, head, wait_ms, self.server.prepared.is_allowed)
            except psycopg.Error as error:
                if is_gone(error):
                    raw.close()
                    raise LostInWrite from error
                raise translate(error, self.server.place) or error from error
            finally:
                self.server.give_back(raw)

        self._check_open()
        written = self._patiently(self._busy_timeout_s, attempt)
        if written:
            self.renew_reading()
        else:
            self._head = None
        return written

    @contextmanager
    def try_write(self, wait_s: float = 0.0) -> Iterator[Connection | None]:
        if self.read_only or self._scope.writing:
            yield None
            return
        writing = self.write(wait_s)
        try:
            connection = writing.__enter__()
        except StoreBusy:
            yield None
            return
        try:
            yield connection
        except BaseException as error:
            writing.__exit__(type(error), error, None)
            raise
        writing.__exit__(None, None, None)

    def connection_on(self, raw: psycopg.Connection[Any]) -> PostgresConnection:
        """Execute loom's statements on a connection of the server."""
        server = self.server
        return PostgresConnection(
            raw, self.dialect, self.namespace, self.archive, prepared=server.prepared, copies=not server.restricted
        )

    def _reader(self, raw: psycopg.Connection[Any], last: PGresult) -> PostgresConnection:
        connection = self.connection_on(raw)
        connection.last_number = _last_number(last)
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the memory is closed; open it again to use it")

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnly(f"{self.server.place} was opened read-only; open it without read_only=True to write")
        if self._scope.writing:
            raise InvalidInput("a transaction is already open in this thread; finish it first")

    def _answered(self, statements: bytes) -> tuple[PooledConnection, PGresult]:
        """Execute the first statements of a transaction. Returns the connection and the result of the last statement.

        Nothing precedes them, so they are retried if the connection or its server is lost.
        """
        self._check_open()
        for _ in range(MOST_STALE):
            raw = self.server.lend()
            try:
                result = _execute(raw, statements)
            except BaseException as error:
                _roll_back(raw)
                if is_gone(error):
                    raw.close()
                    if isinstance(error, errors.ReadOnlySqlTransaction):
                        self.server.drop_idle()
                self.server.give_back(raw)
                if not is_gone(error):
                    ours = translate(error, self.server.place)
                    raise ours or error from error
            else:
                return raw, result
        raise self.all_closed()

    def all_closed(self) -> StoreUnavailable:
        """The error for a server that closes every connection."""
        return StoreUnavailable(f"{self.server.place} closes every connection; see the log of the server")

    def _locked(self, wait_s: float) -> tuple[PooledConnection, tuple[Any, ...] | None]:
        """Begin a transaction with the lock of the namespace. Returns the connection and the result of `BEGUN`."""
        number = f"{self.namespace:d}"
        begun = self._spelled_out(BEGUN).decode()
        heads = self.dialect.table("heads")
        # A separate statement reads the head, because the statement that waited for the lock has an older snapshot.
        raw, result = self._patiently(
            wait_s,
            lambda wait_ms: self._answered(
                f"BEGIN; SET LOCAL lock_timeout = {wait_ms}; SELECT 1 FROM {heads} WHERE namespace = {number} "
                f"FOR UPDATE; SET LOCAL lock_timeout = 0; "
                f"SET LOCAL idle_in_transaction_session_timeout = {SILENT_MS}; {begun}".encode()
            ),
        )
        if not result.ntuples:
            return raw, None
        values = [result.get_value(0, column) for column in range(6)]
        seq, committed_at, space, settings, name, revision = (
            None if value is None else value.decode() for value in values
        )
        self._head = Head(settings, int(revision or 0), space is not None)
        return raw, (int(seq or 0), int(committed_at or 0), space, settings, name)

    def _spelled_out(self, statement: str) -> bytes:
        """A statement whose only value is the number of the namespace, with that number filled in."""
        return self.dialect.spell(statement).text.replace(b"%s", b"%d" % self.namespace)

    def _patiently(self, wait_s: float, attempt: Callable[[int], Answer]) -> Answer:
        """Repeat an attempt until it gets the lock of the namespace. Its argument is the longest wait in
        milliseconds.

        Raises `StoreBusy` after `wait_s`.
        """
        deadline = time.monotonic() + wait_s
        while True:
            left_s = max(0.001, min(_WAIT_PIECE_S, deadline - time.monotonic()))
            try:
                return attempt(max(1, int(left_s * 1000)))
            except StoreBusy:
                if time.monotonic() >= deadline:
                    raise
                if self._closed or threading.current_thread() in self._hurried:
                    raise Closed("the memory was closed while it waited for another writer") from None

    def _commit(self, raw: psycopg.Connection[Any], last: bytes, writer: _Writer) -> None:
        """Commit together with the last statements and the number of the write. If the answer is lost, finds out
        whether the commit was kept."""
        writer.begin()
        note = (
            f"INSERT INTO {self.dialect.table('writers')} VALUES ({self.namespace:d}, {writer.number:d}, "
            f"{writer.last:d}, now()) ON CONFLICT (namespace, writer) DO UPDATE SET last = excluded.last, "
            "at = excluded.at; COMMIT"
        ).encode()
        try:
            done = _execute(raw, last + note)
        except psycopg.OperationalError as error:
            if not is_gone(error):
                raise
            raw.close()
            kept = self._is_kept(writer)
            if kept:
                return
            told = (
                "so it is not known whether it was kept. Writing the same records under the same ids again is safe."
                if kept is None
                else "and the server did not keep it; nothing was written. Try again."
            )
            lost = f"the connection to {self.server.place} was lost while a write was committed, {told}"
            raise StoreUnavailable(lost) from error
        if done.command_status != b"COMMIT":
            raise StoreUnavailable(f"{self.server.place} rolled a write back; nothing was written. Try again.")

    def _is_kept(self, writer: _Writer) -> bool | None:
        """Whether the last write of a writer, whose connection was lost during the commit, was kept.

        None if the server cannot be asked. Takes the lock of the namespace, which the write holds until it has ended.
        Commits a change itself: if standbys confirm commits, they have then confirmed the earlier one too.
        """
        heads, writers = self.dialect.table("heads"), self.dialect.table("writers")
        query = f"SELECT last FROM {writers} WHERE namespace = %s AND writer = %s".encode()
        try:
            raw, _ = self._locked(self._busy_timeout_s)
            try:
                row = raw.execute(query, [self.namespace, writer.number]).fetchone()
                _execute(raw, f"UPDATE {heads} SET seq = seq WHERE namespace = {self.namespace:d}; COMMIT".encode())
            finally:
                _roll_back(raw)
                self.server.give_back(raw)
        except (psycopg.Error, LoomError) as error:
            log.info("the outcome of a commit cannot be determined: %s", type(error).__name__)
            return None
        if row == (writer.last,):
            return True
        # Much later, the row may have been removed as belonging to a process that has ended.
        return None if time.time() - writer.since > WRITERS_KEPT_S / 2 else False

    # -- operations on files that a server does not need -----------------------------------------------

    def fold_wal(self) -> None:
        """Do nothing: the server folds its own log."""

    @property
    def remains(self) -> tuple[str, ...]:
        return (
            "old versions of rows in the files of the tables, until VACUUM, which is queued",
            "write-ahead log, standbys, archives and base backups, until they expire",
        )

    def clean_up_by(self, deadline: float) -> bool:
        """Queue VACUUM. A transaction cannot erase the server's log and dead rows; see docs/postgres.md."""
        with self.write() as connection:
            vacuuming.note(connection, self.namespace)
        return True

    def tidy(self) -> None:
        if time.monotonic() < self._tidy_after:
            return
        self._tidy_after = time.monotonic() + _TIDY_PAUSE_S
        with translated(self.server.place), self.server.lent() as raw:
            vacuuming.run(raw, self.dialect, self.namespace)

    def vacuum(self) -> int:
        """Remove the rows that forgetting emptied, and vacuum the tables. Returns the number of bytes freed."""
        size = (
            b"SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
            b"WHERE c.relkind = 'r' AND c.relnamespace = CAST(%s AS regnamespace)"
        )
        with self.write() as connection:
            for table, emptied in vacuuming.EMPTIED:
                connection.execute(f"DELETE FROM {table} WHERE namespace = ? AND {emptied}", (self.namespace,))
        schema = f'"{self.server.address.schema}"'
        with translated(self.server.place), self.server.lent() as raw:
            (before,) = raw.execute(size, [schema]).fetchone() or (0,)
            vacuuming.run(raw, self.dialect, self.namespace, always=True)
            (after,) = raw.execute(size, [schema]).fetchone() or (0,)
        return max(0, int(before) - int(after))

    @contextmanager
    def without_limit(self) -> Iterator[None]:
        yield

    def integrity(self, connection: Connection) -> list[str]:
        """Find nothing: PostgreSQL verifies its pages itself (`pg_amcheck`, data checksums)."""
        return []

    def now_for_leases(self, connection: Connection) -> int:
        """The time by the server's clock, in microseconds."""
        row = connection.execute("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)").fetchone()
        return int(row[0])

    # -- jobs --------------------------------------------------------------------------------------------

    def take_jobs(self, kind: str, limit: int, attempts: int) -> Taken | None:
        """Take jobs in a separate statement, which neither waits for another worker nor locks a head."""
        by = new_id()
        now = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
        self._check_open()
        with translated(self.server.place):
            rows = _Once(self).execute(
                f"WITH free AS (SELECT ctid FROM jobs WHERE namespace = ? AND kind = ? AND attempts < ? "
                f"AND coalesce(taken_until, 0) < {now} ORDER BY record, seq LIMIT ? FOR UPDATE SKIP LOCKED) "
                f"UPDATE jobs j SET taken_by = ?, taken_until = {now} + ? FROM free WHERE j.ctid = free.ctid "
                "RETURNING j.record",
                (self.namespace, kind, attempts, limit, by, int(_TAKEN_FOR_S * 1e6)),
            )
            return Taken(kind, by, tuple(sorted(record for (record,) in rows)))

    def still_taken(self, connection: Connection, taken: Taken) -> set[int]:
        rows = connection.execute(
            "SELECT record FROM jobs WHERE namespace = ? AND kind = ? AND taken_by = ? "
            "AND record IN (SELECT value FROM json_each(?))",
            (self.namespace, taken.kind, taken.by, str([*taken.records])),
        )
        return {record for (record,) in rows}

    def free_jobs(self, connection: Connection, taken: Taken) -> None:
        connection.execute(
            "UPDATE jobs SET taken_by = NULL, taken_until = NULL WHERE namespace = ? AND kind = ? AND taken_by = ? "
            "AND record IN (SELECT value FROM json_each(?))",
            (self.namespace, taken.kind, taken.by, str([*taken.records])),
        )

    # -- index files -------------------------------------------------------------------------------

    def publish_file(self, name: str) -> None:
        """Copy an index file into the database, before the transaction that names it."""
        insert = f"INSERT INTO {self.dialect.table('segment_chunks')} VALUES (%s, %s, %s, %b)".encode()
        with (
            translated(self.server.place),
            disk_errors(f"the index file {name} cannot be read"),
            open(self._folder / name, "rb") as file,
            self.server.lent() as raw,
            raw.transaction(),
        ):
            part = 0
            while data := file.read(_CHUNK_BYTES):
                raw.execute(insert, (self.namespace, name, part, data), prepare=False)
                part += 1

    def fetch_later(self, wanted: Sequence[Wanted]) -> bool:
        missing = [one for one in wanted if not (self._folder / one.file).exists()]
        records = sum(one.records // (_CODES_SHARE if one.codes_only else 1) for one in missing)
        if records < self.server.address.words_first_from:
            return False
        if self._fetching is None or not self._fetching.is_alive():
            self._fetching = threading.Thread(target=self._fetch, args=(missing,), name="loom-fetch", daemon=True)
            self._fetching.start()
        return True

    def _fetch(self, missing: Sequence[Wanted]) -> None:
        try:
            for one in missing:
                with self.read() as connection:
                    self.provide_file(connection, one.file, codes_only=one.codes_only)
        except LoomError as error:  # the next search begins again
            log.info("fetching index files stopped: %s: %s", type(error).__name__, error)

    @property
    def codes_only_from(self) -> int:
        return self.server.address.codes_only_from

    def provide_file(
        self, connection: Connection, name: str, *, afresh: bool = False, codes_only: bool = False
    ) -> bool:
        path = self._folder / name
        if not afresh and path.exists():
            return True
        with disk_errors(f"the folder {self._folder} cannot be made"):
            create_folder(self._folder, self.file_mode)
        if codes_only:
            return self._provide_codes(connection, path)
        count = 0
        with temporary_beside(path, self.file_mode) as temporary:
            with disk_errors(f"the index file {path} cannot be written"), open(temporary, "wb") as file:
                while True:
                    row = connection.execute(
                        "SELECT data FROM segment_chunks WHERE namespace = ? AND file = ? AND part = ?",
                        (self.namespace, name, count),
                    ).fetchone()
                    if row is None:
                        break
                    file.write(row[0])
                    count += 1
            if not count:
                return False
            let_go(temporary)
            os.replace(temporary, path)
        return True

    def _provide_codes(self, connection: Connection, path: Path) -> bool:
        """Write a vector segment without its vectors. Only the other arrays are fetched."""
        of_file = "FROM segment_chunks WHERE namespace = ? AND file = ?"
        values = (self.namespace, path.name)
        (size,) = connection.execute(f"SELECT sum(octet_length(data)) {of_file}", values).fetchone()
        if size is None:
            return False

        def read(first: int, last: int) -> bytes:
            pieces = []
            while first < last:
                part, start = divmod(first, _CHUNK_BYTES)
                count = min(last - first, _CHUNK_BYTES - start)
                query = f"SELECT substring(data FROM {start + 1} FOR {count}) {of_file} AND part = ?"
                row = connection.execute(query, (*values, part)).fetchone()
                pieces.append(row[0] if row else b"")
                first += count
            return b"".join(pieces)

        header, arrays = read_arrays(read, int(size), path.name, without=["vectors"])
        with temporary_beside(path, self.file_mode) as temporary:
            with disk_errors(f"the index file {path} cannot be written"):
                write_segment(temporary, {**header, CODES_ONLY: True}, arrays, mode=self.file_mode)
            let_go(temporary)
            os.replace(temporary, path)
        return True

    def drop_files(self, connection: Connection, names: Iterable[str]) -> None:
        for name in names:
            connection.execute("DELETE FROM segment_chunks WHERE namespace = ? AND file = ?", (self.namespace, name))

    def keep_files(self, names: Iterable[str], fence: Callable[[Connection], None]) -> None:
        with self.read() as connection:
            rows = connection.execute(
                "SELECT DISTINCT file FROM segment_chunks WHERE namespace = ?", (self.namespace,)
            ).fetchall()
        orphans = {file for (file,) in rows} - {*names}
        if orphans:
            with self.write() as writing:
                fence(writing)
                self.drop_files(writing, orphans)


class _Once(PostgresConnection):
    """Executes one reading statement outside a transaction, and retries it if the connection is lost."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.namespace = engine.namespace

    def execute(self, statement: str, parameters: Any = (), /) -> Cursor:
        server = self._engine.server
        for _ in range(MOST_STALE):
            raw = server.lend()
            try:
                return self._on(raw, statement, parameters)
            except psycopg.OperationalError as error:
                if not is_gone(error):
                    raise
                raw.close()
            finally:
                _roll_back(raw)
                server.give_back(raw)
        raise self._engine.all_closed()

    def _on(self, raw: psycopg.Connection[Any], statement: str, parameters: Any) -> Cursor:
        connection = self._engine.connection_on(raw)
        rows = connection.execute_plainly(statement, parameters)
        if not rows.has_marks():
            return rows
        # Some of the texts are in archive blocks, which must be read on the same snapshot.
        _execute(raw, _BEGIN_READING)
        return connection.execute(statement, parameters)


def _last_number(result: PGresult) -> int | None:
    value = result.get_value(0, 0) if result.ntuples else None
    return None if value is None else int(value)


def _execute(raw: psycopg.Connection[Any], statements: bytes) -> PGresult:
    """Execute statements without values in one round trip. Returns the result of the last one."""
    with raw.lock:
        return checked(raw, raw.pgconn.exec_(statements))


def _roll_back(raw: psycopg.Connection[Any]) -> None:
    """Roll back an open transaction, or close the connection if that fails."""
    if raw.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        try:
            _execute(raw, b"ROLLBACK")
        except psycopg.Error:
            raw.close()


def _number_of(server: Server, namespace: str) -> int | None:
    with translated(server.place), server.lent() as raw:
        row = raw.execute(
            f'SELECT number FROM "{server.address.schema}".namespaces WHERE name = %s'.encode(), [namespace]
        ).fetchone()
    return None if row is None else int(row[0])


def create_namespace(server: Server, namespace: str) -> int:
    """The number of a namespace, which is created if it is missing."""
    schema = server.address.schema
    with translated(server.place), server.lent() as raw, raw.transaction():
        row = raw.execute(
            f'INSERT INTO "{schema}".namespaces (name) VALUES (%s) ON CONFLICT DO NOTHING RETURNING number'.encode(),
            [namespace],
        ).fetchone()
        if row is not None:
            insert = f'INSERT INTO "{schema}".heads (namespace, seq, committed_at) VALUES (%s, %s::bigint << 40, 0)'
            raw.execute(insert.encode(), [row[0], row[0]])
            return int(row[0])
    return _number_of(server, namespace) or 0


def _close_unused(server: Server) -> None:
    if not any(engine.server is server for engine in _registry.values()):
        _servers.pop((server.address, server.read_only), None)
        server.close()


def _after_fork_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.RLock()
    for server in _servers.values():
        _inherited.extend(server.abandon())
    for engine in _registry.values():
        engine.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
