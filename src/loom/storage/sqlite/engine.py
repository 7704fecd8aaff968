"""One SQLite file in one process: opening, connections, transactions, and forks.

All handles of a process on one file share one engine, found by inode. One connection writes, a few read. After a
fork the child drops the inherited connections and opens its own. Only SQLite opens the file: closing another
descriptor on it would release SQLite's locks, and acknowledged writes could be lost.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from loom.errors import (
    Closed,
    CorruptStore,
    InvalidInput,
    LoomError,
    NotAStore,
    ReadOnly,
    SettingsConflict,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnsupportedStore,
)
from loom.protocol import Clock, new_id, utc_now
from loom.steps import step
from loom.storage import databases
from loom.storage.databases import Connection
from loom.storage.files import FILE_MODE, check_folder, create_file, disk_errors
from loom.storage.moments import to_micros
from loom.storage.sqlite import schema
from loom.storage.sqlite.archive import Reader
from loom.storage.sqlite.counting import Counts
from loom.storage.sqlite.damaged_log import read_log
from loom.storage.temporary import sweep

__all__ = ["CHECK_EVERY_S", "Engine", "translate"]

_OLDEST_SQLITE = (3, 37, 0)  # RETURNING, and quick WAL recovery
_NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "davfs"}
)

CHECK_EVERY_S = 0.01
"""A read or a write first verifies that the path leads to the opened file, unless this was verified so recently."""

# A wait for another writer is split into pieces of this length.
_WAIT_PIECE_S = 0.25
# The first and the longest wait for readers before the log is truncated.
_TRUNCATE_WAIT_S = 0.2
_LONGEST_TRUNCATE_WAIT_S = 1.6
# The longest wait of a fork for the transactions of other threads.
_FORK_WAIT_S = 10.0

# The coarsest file system keeps modification times in steps of two seconds.
_COARSEST_TIME_NS = 2_000_000_000

_registry: dict[tuple[int, int], Engine] = {}
_registry_lock = threading.Lock()
_living: weakref.WeakSet[Engine] = weakref.WeakSet()
_inherited: list[object] = []  # connections of a parent process: referenced, so that this process never closes them


class _Marks(NamedTuple):
    """The attributes by which `Engine` notices a change of a file that it reads without locks."""

    modified_ns: int
    size: int
    log_bytes: int
    looked_at: int
    """The time of this check if the file was written shortly before; else 0."""


class _Connection(sqlite3.Connection):
    """A connection. `marks` is set if it reads the file without locks. The first write sets `may_write`."""

    marks: _Marks | None = None
    may_write: bool = False


class Engine(databases.Engine):
    """Connections to one database. `acquire` opens or joins it, `release` drops one handle."""

    folds_log = True
    closed = False
    store_id = ""

    def __init__(
        self,
        path: Path | None,
        *,
        read_only: bool = False,
        durability: str = "commit",
        busy_timeout_s: float = 30.0,
        max_bytes: int | None = None,
        clock: Clock = utc_now,
        file_mode: int = FILE_MODE,
    ) -> None:
        self.path = path
        self.file_mode = file_mode
        self.read_only = read_only
        self.clock = clock
        self._durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._max_bytes = max_bytes
        self._references = 1
        self._file: tuple[int, int] | None = None
        self._checked_at = 0.0
        self.had_no_log = False
        """Whether the file was opened new or as a backup, so without a log that could be damaged."""
        self.last_dropped = 0
        """The highest sequence number in a commit that SQLite dropped at opening because of a damaged log."""
        self._name = "" if path is None else str(path)
        self._writer: _Connection | None = None
        self._idle: list[_Connection] = []
        self._write_lock = threading.RLock()
        self._lent = _Lent()
        self._scope = _Scope()
        self._unlocked = self._severed = False
        self._write_lock_held_for_fork = self._quiet_at_fork = False
        self._hurried: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self.archive = Reader()
        self.counts = Counts()
        self.store_id = self._open()
        _living.add(self)

    # -- opening and closing ---------------------------------------------------------------------

    @classmethod
    def acquire(cls, path: str | Path | None, *, read_only: bool = False, **options: Any) -> Engine:
        """Open a file, or join this process's engine on it."""
        if path is None or str(path) == ":memory:":
            if read_only:
                raise InvalidInput("a store in memory cannot be opened read-only: there is nothing to read")
            return cls(None, **options)
        location = Path(os.path.realpath(Path(path).expanduser()))
        with disk_errors(f"{location} cannot be opened"), _registry_lock:
            _check_location(location, read_only)
            file = _inode(location) if location.exists() else None
            known = _registry.get(file) if file is not None else None
            if known is not None and known.read_only == read_only:
                return known.join(**options)
            with ExitStack() as held_back:
                if not read_only:
                    for reader in list(_living):
                        held_back.enter_context(reader.without_unlocked(file))
                engine = cls(location, read_only=read_only, **options)
            if not read_only or known is None:
                _registry[_inode(location)] = engine
            return engine

    def join(self, durability: str | None = None, **_: object) -> Engine:
        """Add a handle. Raises `SettingsConflict` if it asks for another durability."""
        if durability not in (None, self._durability):
            raise SettingsConflict(
                f"{self.path} is already open in this process with durability={self._durability!r}; "
                "open it with the same one"
            )
        self._references += 1
        return self

    def release(self, wait_s: float = 5.0) -> bool:
        """Drop a handle. Returns True if it was the last and everything is closed.

        A thread that still writes after `wait_s` closes its connection when it finishes.
        """
        with _registry_lock:
            self._references -= 1
            if self._references > 0:
                return False
            if self._file is not None and _registry.get(self._file) is self:
                del _registry[self._file]
        self.closed = True
        self._close_idle()
        if self._write_lock.acquire(timeout=wait_s):
            try:
                self.close_writer()
            finally:
                self._write_lock.release()
        return True

    def close_writer(self) -> None:
        """Close the writing connection. For the holder of the write lock."""
        connection, self._writer = self._writer, None
        if connection is not None:
            connection.close()

    def drop_if_read_only(self, error: sqlite3.Error) -> bool:
        """Close connections that turn out to be read-only, so that the next write opens new ones. Returns True if so.

        For the holder of the write lock. SQLite opens a file read-only if it cannot open it for writing at that
        moment, and reports this at the first write.
        """
        if self.path is None or _code(error) != sqlite3.SQLITE_READONLY:
            return False
        self.close_writer()
        self._close_idle()  # they share the index of the log with the writing connection
        return True

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def stop_waiting(self, thread: threading.Thread) -> None:
        """Make a thread that waits for the write lock of the file raise `Closed` soon."""
        self._hurried.add(thread)

    @property
    def index_folder(self) -> Path | None:
        """The folder beside the file that holds the segments; None for a store in memory."""
        return None if self.path is None else self.path.with_name(self.path.name + "-index")

    @property
    def _log(self) -> Path:
        return Path(f"{self._name}-wal")

    def _open(self) -> str:
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise UnsupportedStore(
                f"SQLite {sqlite3.sqlite_version} is too old; loom needs "
                f"{'.'.join(map(str, _OLDEST_SQLITE))} or later"
            )
        with self.translated():
            if self.path is None:
                self._writer = self._connect(writer=True)
                return self._prepare(self._writer)
            if not self.read_only:
                self._create_file(self.path)
            # Before SQLite recovers the log: the next commit overwrites what it drops.
            self.last_dropped = read_log(self._log).last_dropped
            with closing(self._connect(writer=not self.read_only)) as connection:
                self._file = _inode(self.path)
                return self._prepare(connection)

    def _create_file(self, path: Path) -> None:
        """Create a missing file with its mode. SQLite gives its log the same mode."""
        try:
            create_file(path, self.file_mode)
            sweep(path.parent)
        except OSError as error:
            raise StoreUnavailable(
                f"{path} cannot be created ({error.strerror}); check that its folder may be written"
            ) from error

    def _prepare(self, connection: sqlite3.Connection) -> str:
        tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
        if not _is_ours_or_empty(connection):
            raise NotAStore(
                f"{self.path} is an SQLite database of another program; it was left untouched. "
                "Choose another path for the memory."
            )
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        schema.check_known(version)
        if self.read_only:
            if not tables:
                raise NotAStore(f"{self.path} is empty: there is nothing to read. Open it for writing first.")
            if version < schema.current_version():
                raise UnsupportedStore(
                    f"{self.path} has format {version} and needs an upgrade to "
                    f"{schema.current_version()}: open it once for writing, as `loom flush` does"
                )
        if version != schema.current_version():
            if self.path is not None:
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            with connection:  # commits, or rolls back after an error
                schema.upgrade(connection)
                connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                now = to_micros(self.clock())
                connection.execute(
                    "INSERT OR IGNORE INTO store (one, id, created_at, seq, committed_at) VALUES (1, ?, ?, 0, ?)",
                    (new_id(), now, now),
                )
        row = connection.execute("SELECT id FROM store").fetchone()
        if row is None:
            raise CorruptStore(f"{self.path} has lost its identity row; restore it from a backup")
        (store_id,) = row
        return str(store_id)

    def _connect(self, writer: bool) -> _Connection:
        marks = self._marks() if self.read_only else None
        # On close SQLite deletes a log without usable frames, even over a read-only connection.
        reads_log = marks is not None and marks.log_bytes > 0 and read_log(self._log).usable > 0
        self._unlocked |= reads_log
        connection = sqlite3.connect(
            self._target(marks, reads_log),
            uri=self.path is not None,
            isolation_level=None,
            check_same_thread=False,
            timeout=self._busy_timeout_s,
            cached_statements=256,
            factory=_Connection,
        )
        connection.marks = marks
        try:
            if reads_log:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # the index of the log is held in memory
            self._configure(connection, writer)
        except BaseException:
            connection.close()
            raise
        return connection

    def _target(self, marks: _Marks | None, reads_log: bool) -> str:
        if self.path is None:
            return ":memory:"
        if not self.read_only:
            # Only the first connection may create the file. Later a missing file means that it was removed.
            options = f"mode={'rwc' if self._file is None else 'rw'}"
        elif marks is None:
            options = "mode=ro"
        else:
            options = "mode=ro&vfs=unix-none" if reads_log else "immutable=1"
        return f"file:{quote(str(self.path))}?{options}"

    # A read-only connection would create the log and its index, leave them behind, and fail in a read-only folder.
    # While there is no index of the log, no process has the file open for writing. The file is then read without
    # log, index and locks. Each read verifies that this still holds (two or three stats).

    def _marks(self) -> _Marks | None:
        """The marks of a file that no process has open for writing; None if one may have it open."""
        with disk_errors(f"{self.path} cannot be examined"):
            if _size(f"{self._name}-shm") is not None or _size(f"{self._name}-journal"):
                return None
            status = os.stat(self._name)
            now = time.time_ns()
            # Two changes in quick succession may have the same time.
            looked_at = now if now - status.st_mtime_ns < _COARSEST_TIME_NS else 0
            return _Marks(status.st_mtime_ns, status.st_size, _size(f"{self._name}-wal") or 0, looked_at)

    def _check_unchanged(self, connection: _Connection) -> None:
        """Raise `StoreBusy` if this connection reads without locks and the file was written."""
        if connection.marks is not None:
            with disk_errors(f"{self.path} cannot be examined"):
                status = os.stat(self._name)
            if (status.st_mtime_ns, status.st_size) != connection.marks[:2]:
                raise StoreBusy(f"another process began to write {self.path} while it was read; try again")

    @contextmanager
    def without_unlocked(self, file: tuple[int, int] | None) -> Iterator[None]:
        """Keep this engine, if it has this file, without unlocked connections inside the block.

        This process is about to open the file for writing. Closing an unlocked connection later would release the
        locks of the writing one.
        """
        if file is None or file != self._file or not self._unlocked or self.closed:
            yield
            return
        try:
            if not self._lent.pause(time.monotonic() + _FORK_WAIT_S):
                raise StoreBusy(
                    f"a thread of this process reads {self.path} without locks; try again when it is done"
                )
            self._close_idle()
            self._unlocked = False
            yield
        finally:
            self._lent.go_on()

    def _configure(self, connection: sqlite3.Connection, writer: bool) -> None:
        self.archive.serve(connection)
        self.counts.serve(connection)
        execute = connection.execute
        execute("PRAGMA temp_store = MEMORY")
        execute("PRAGMA cache_size = -8192")
        if writer and self.path is not None:
            if execute("PRAGMA journal_mode").fetchone()[0] != "wal" and _is_ours_or_empty(connection):
                self.had_no_log = True
                execute("PRAGMA journal_mode = WAL")
            execute(f"PRAGMA synchronous = {'FULL' if self._durability == 'fsync' else 'NORMAL'}")
        if writer:
            execute("PRAGMA secure_delete = ON")
            # The worker folds the log long before this limit, which is for a process whose worker cannot keep up.
            execute("PRAGMA wal_autocheckpoint = 4000")
            if self._max_bytes is not None:
                page = int(execute("PRAGMA page_size").fetchone()[0])
                execute(f"PRAGMA max_page_count = {max(1, self._max_bytes // page)}")
        else:
            execute("PRAGMA query_only = ON")
            execute("SELECT count(*) FROM sqlite_schema").fetchone()

    # -- transactions ----------------------------------------------------------------------------

    @contextmanager
    def read(self, *, once: bool = False) -> Iterator[sqlite3.Connection]:
        joined = self._scope.connection
        if joined is not None:
            self._check_usable()
            with self.translated():
                yield joined
            return
        if self.path is None:
            with self._write_lock, self.translated():
                yield self.writing_connection()
            return
        with self._lent:
            connection = self._reader()
            try:
                with self.translated():
                    connection.execute("BEGIN")
                    yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if self.closed:
                    connection.close()
                else:
                    self._idle.append(connection)
                self._check_unchanged(connection)

    @contextmanager
    def reading(self) -> Iterator[None]:
        if self.path is None or self._scope.connection is not None:
            yield
            return
        with self.read() as connection:
            self._scope.connection = connection
            try:
                yield
            finally:
                self._scope.connection = None

    def renew_reading(self) -> None:
        connection = self._scope.connection
        if connection is not None:
            with self.translated():
                connection.execute("ROLLBACK")
                connection.execute("BEGIN")

    @contextmanager
    def write(self, wait_s: float | None = None) -> Iterator[sqlite3.Connection]:
        """The writing connection inside BEGIN IMMEDIATE. Commits at the end, or rolls back after an error.

        Raises `StoreBusy` if another process, or another thread, writes for longer than `wait_s`. By default it waits
        the store's `busy_timeout_s` for processes, and without limit for threads.
        """
        if self.read_only:
            raise ReadOnly(f"{self.path} was opened read-only; open it without read_only=True to write")
        if not self._write_lock.acquire(timeout=-1 if wait_s is None else wait_s):
            raise StoreBusy("another thread was writing for longer than this write may wait; nothing was written")
        try:
            with self.translated():
                connection = self._begun(self._busy_timeout_s if wait_s is None else wait_s)
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException as error:
                    self.counts.forget()
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    if isinstance(error, sqlite3.Error):
                        self.drop_if_read_only(error)
                    raise
                else:
                    if self._file is not None:
                        self.check_file(written=True)
                    self.renew_reading()
                finally:
                    if self.closed:  # closed during this write
                        self.close_writer()
        finally:
            self._write_lock.release()

    @contextmanager
    def try_write(self, wait_s: float = 0.0) -> Iterator[sqlite3.Connection | None]:
        """Like `write`, for deferrable work: yields None if another writer holds the file longer than `wait_s`."""
        if self.read_only or not self._write_lock.acquire(timeout=wait_s):
            yield None
            return
        try:
            if self.writing_connection().in_transaction:  # this thread is inside a write
                yield None
                return
            with ExitStack() as stack:
                try:
                    connection = stack.enter_context(self.write(wait_s))
                except StoreBusy:
                    yield None
                    return
                yield connection
        finally:
            self._write_lock.release()

    def _begun(self, wait_s: float) -> _Connection:
        """The writing connection, inside a write transaction. For the holder of the write lock of this process."""
        connection = self.writing_connection()
        if connection.in_transaction:
            raise InvalidInput("a transaction is already open in this thread; finish it first")
        try:
            self._begin(connection, wait_s)
        except sqlite3.OperationalError as error:
            if not self.drop_if_read_only(error):
                raise
            connection = self.writing_connection()
            self._begin(connection, wait_s)
        return connection

    def _begin(self, connection: _Connection, wait_s: float) -> None:
        """Begin a write transaction, after waiting for the transactions of other processes.

        The wait is split into short pieces, so that it can be interrupted. Raises SQLite's error for a read-only
        connection, on which BEGIN IMMEDIATE would silently begin to read.
        """
        self._wait_to_begin(connection, wait_s)
        if not connection.may_write:
            try:
                connection.execute("DELETE FROM store WHERE 0")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.may_write = True

    def _wait_to_begin(self, connection: _Connection, wait_s: float) -> None:
        deadline = 0.0
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
                now = time.monotonic()
                deadline = deadline or now + wait_s - _WAIT_PIECE_S
                if now >= deadline:
                    raise
                if self.closed or threading.current_thread() in self._hurried:
                    raise Closed("the memory was closed while it waited for another writer") from error

    @contextmanager
    def maintenance(self) -> Iterator[sqlite3.Connection]:
        """The writing connection outside a transaction: checkpoints, VACUUM, backup."""
        if self.read_only:
            raise ReadOnly(f"{self.path} was opened read-only; open it without read_only=True")
        with self._write_lock, self.translated():
            connection = self.writing_connection()
            connection.execute(f"PRAGMA busy_timeout = {int(self._busy_timeout_s * 1000)}")
            try:
                yield connection
            except sqlite3.OperationalError as error:
                self.drop_if_read_only(error)
                raise
            finally:
                if self._writer is connection:
                    self._wait_in_pieces(connection)

    def _wait_in_pieces(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA busy_timeout = {int(min(self._busy_timeout_s, _WAIT_PIECE_S) * 1000)}")

    @contextmanager
    def without_limit(self) -> Iterator[None]:
        """Let the file exceed `max_bytes` inside the block: forgetting writes some pages before it frees any."""
        with self._write_lock, self.translated():
            if self._max_bytes is None:
                yield
                return
            connection = self.writing_connection()
            limit = int(connection.execute("PRAGMA max_page_count").fetchone()[0])
            connection.execute(f"PRAGMA max_page_count = {2 * limit}")
            try:
                yield
            finally:
                connection.execute(f"PRAGMA max_page_count = {limit}")

    def fold_wal(self) -> None:
        """Copy the write-ahead log into the file as far as readers permit, without waiting for them."""
        if self.path is not None:
            with self.private_connection() as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @step("wal.truncate")
    def truncate_wal(self, wait_s: float = _TRUNCATE_WAIT_S) -> bool:
        """Fold the write-ahead log into the file and truncate it. False if a reader needs it after `wait_s`."""
        if self.path is None:
            return True
        with self.maintenance() as connection:
            connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def clean_up_by(self, deadline: float) -> bool:
        """Retry `truncate_wal` until a deadline.

        An attempt blocks writers while it waits for the current readers. Each attempt waits longer than the last:
        among many busy processes all readers rarely finish within a short time.
        """
        wait_s = _TRUNCATE_WAIT_S
        while not self.truncate_wal(wait_s):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
            wait_s = min(2 * wait_s, _LONGEST_TRUNCATE_WAIT_S)
        return True

    def integrity(self, connection: Connection) -> list[str]:
        try:
            rows = connection.execute("PRAGMA integrity_check(20)").fetchall()
        except sqlite3.DatabaseError as error:
            return [f"the file is damaged: {error}"]
        return [f"the file is damaged: {found}" for (found,) in rows if found != "ok"]

    def now_for_leases(self, connection: Connection) -> int:
        """The time by the machine's clock, in microseconds."""
        return time.time_ns() // 1000

    @contextmanager
    def private_connection(self) -> Iterator[sqlite3.Connection]:
        """A new reading connection for one long job, outside a transaction."""
        with self._lent:
            connection = self._connect_again(writer=False)
            try:
                yield connection
                self._check_unchanged(connection)
            finally:
                connection.close()

    @contextmanager
    def reading_alone(self) -> Iterator[sqlite3.Connection]:
        """One snapshot of the database for a long read, over a private connection."""
        alone = self.path is not None
        with self.private_connection() if alone else self.read() as connection, self.translated():
            if alone:
                connection.execute("BEGIN")
            yield connection

    def _reader(self) -> _Connection:
        self._check_usable()
        try:
            while True:
                connection = self._idle.pop()
                if connection.marks is None or connection.marks == self._marks():
                    return connection
                connection.close()
        except IndexError:
            return self._connect_again(writer=False)

    def _connect_again(self, writer: bool) -> _Connection:
        """Another connection to the file that was opened. A new file under the same name is refused."""
        self.check_file()
        with self.translated():
            connection = self._connect(writer)
            try:
                self.check_file()
                if connection.execute("SELECT id FROM store").fetchone() != (self.store_id,):
                    raise self._lost("replaced by another store")
            except BaseException:
                connection.close()
                raise
        return connection

    def check_file(self, written: bool = False) -> None:
        """Raise `StoreUnavailable` unless the path still leads to the file that was opened."""
        try:
            status = os.stat(self._name)
        except (FileNotFoundError, NotADirectoryError):
            raise self._lost("deleted or moved", written) from None
        except OSError as error:
            if written:  # the file may be the same one; the next operation checks again
                return
            raise StoreUnavailable(f"{self.path} cannot be examined: {error.strerror}") from error
        if (status.st_dev, status.st_ino) != self._file:
            raise self._lost("replaced by another file", written)
        self._checked_at = time.monotonic()

    def _lost(self, how: str, written: bool = False) -> StoreUnavailable:
        last = " The last write is not in it." if written else " Nothing was written to the file that is there now."
        return StoreUnavailable(
            f"{self.path} was {how} while this process had it open.{last} Close this memory, put the file back or "
            "restore a backup, and open it again."
        )

    def writing_connection(self) -> _Connection:
        """The only writing connection. The caller holds the write lock, as in `write` and `maintenance`."""
        self._check_usable()
        if self._writer is None:
            self._writer = self._connect_again(writer=True)
            self._wait_in_pieces(self._writer)
        return self._writer

    def _check_usable(self) -> None:
        if self.closed:
            raise Closed("the memory is closed; open it again to use it")
        if self._severed:
            raise StoreUnavailable(
                f"this process was forked while {self.path} was in the middle of a transaction and cannot use it; "
                "fork outside a transaction, or start the child with the 'spawn' method"
            )
        if self._file is not None and time.monotonic() - self._checked_at > CHECK_EVERY_S:
            self.check_file()

    # -- fork --------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close every connection. A fork copies SQLite's table of locks, but not the locks.

        A connection opened in the child would treat the parent's locks as its own and take none from the kernel.
        Acknowledged writes would then be lost when the parent folds the log (measured: 49 of 49).
        """
        deadline = time.monotonic() + _FORK_WAIT_S
        self._write_lock_held_for_fork = self._write_lock.acquire(timeout=_FORK_WAIT_S)
        inside = self._writer is not None and self._writer.in_transaction
        if self.path is None or not self._write_lock_held_for_fork or inside or not self._lent.pause(deadline):
            return  # an operation that cannot be interrupted: the child must not use the file
        self._close_idle()
        self.close_writer()
        self._quiet_at_fork = True

    def after_fork_in_parent(self) -> None:
        self._quiet_at_fork = False
        self._lent.go_on()
        if self._write_lock_held_for_fork:
            self._write_lock.release()

    def after_fork_in_child(self) -> None:
        self._write_lock = threading.RLock()
        self._lent = _Lent()
        self._scope = _Scope()
        if self.path is not None and not self._quiet_at_fork:
            _inherited.extend([self._writer, *self._idle])
            self._writer, self._idle = None, []
            self._severed = True
        self._quiet_at_fork = False

    def translated(self) -> _Translating:
        """Translate SQLite's errors into ours inside the block."""
        return _Translating(self.path, self.read_only)


class _Scope(threading.local):
    """The connection of this thread's `reading` block, if it is in one."""

    connection: sqlite3.Connection | None = None


class _Lent:
    """Counts the reading connections in use. `pause` waits until all are returned."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._own = threading.local()
        self._count = 0
        self._paused = False

    def __enter__(self) -> None:
        depth = getattr(self._own, "depth", 0)
        with self._changed:
            if self._paused and not depth:
                self._changed.wait_for(lambda: not self._paused)
            self._count += 1
        self._own.depth = depth + 1

    def __exit__(self, *_: object) -> None:
        self._own.depth -= 1
        with self._changed:
            self._count -= 1
            if self._paused:
                self._changed.notify_all()

    def pause(self, deadline: float) -> bool:
        """Stop lending connections. Returns True if all were returned by the deadline."""
        with self._changed:
            self._paused = True
            return self._changed.wait_for(lambda: self._count == 0, max(0.0, deadline - time.monotonic()))

    def go_on(self) -> None:
        with self._changed:
            self._paused = False
            self._changed.notify_all()


class _Translating:
    __slots__ = ("_path", "_read_only")

    def __init__(self, path: Path | None, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            ours = translate(error, self._path, self._read_only)
            if ours is not None:
                raise ours from error


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def translate(error: BaseException, path: Path | None, read_only: bool = False) -> LoomError | None:
    """Our error for one of SQLite's; None for other exceptions."""
    # Python's message would quote the unreadable text.
    if isinstance(error, UnicodeDecodeError) or "Could not decode to UTF-8" in str(error):
        return CorruptStore(f"{path} is damaged: it holds text that is not valid. Restore a backup.")
    if isinstance(error, OverflowError):
        return InvalidInput("a value cannot be stored: a number is larger than 64 bits")
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput(
            f"a value cannot be stored: it holds a lone surrogate at position {error.start}, which is not valid text"
        )
    if not isinstance(error, sqlite3.Error):
        return None
    code = _code(error)
    place = str(path) if path is not None else "the store in memory"
    if read_only and code in (sqlite3.SQLITE_READONLY, *_UNOPENED):
        return StoreUnavailable(
            f"{place} cannot be read ({error}); check that this user may read it and the files beside it whose names "
            "begin with its name, or copy them all to another folder and open the copy"
        )
    if code == sqlite3.SQLITE_ERROR and "user-defined function" in str(error):  # only without a counter
        return StoreUnavailable(
            f"{place} holds records whose tokens are not counted yet, and was opened without a counter. Open it as a "
            "memory, with loom.open(), or give the store one with count_with()"
        )
    kind, message = _ERRORS.get(code, (StoreError, "{place}: {error}"))
    return kind(message.format(place=place, error=error))


_UNOPENED = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_BUSY = (StoreBusy, "another writer held {place} for longer than busy_timeout_s; nothing was written. Try again.")
_ERRORS: dict[int, tuple[type[LoomError], str]] = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_FULL: (
        StoreFull,
        "no space left for {place}; nothing was written. Free some space and try again.",
    ),
    sqlite3.SQLITE_NOTADB: (
        NotAStore,
        "{place} is not a loom memory (not an SQLite database); it was left untouched.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        CorruptStore,
        "{place} is damaged ({error}). Copy it aside and restore a backup; `loom check` lists what can still be "
        "read.",
    ),
    sqlite3.SQLITE_READONLY: (
        StoreUnavailable,
        "{place} may not be written ({error}); open it with read_only=True to read it",
    ),
    **dict.fromkeys(
        _UNOPENED,
        (StoreUnavailable, "{place} cannot be opened ({error}); check that its folder may be written"),
    ),
    # An I/O error does not mean that the bytes on the disk are damaged.
    sqlite3.SQLITE_IOERR: (
        StoreUnavailable,
        "the system could not read or write {place} ({error}). Try again; if this continues, check the disk and the "
        "system log",
    ),
    sqlite3.SQLITE_TOOBIG: (InvalidInput, "a value is larger than {place} can hold"),
}


def _is_ours_or_empty(connection: sqlite3.Connection) -> bool:
    """Whether the file is ours or empty. The journal mode of another program's database must not change."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    empty = not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    return application == schema.APPLICATION_ID or empty


def _size(name: str) -> int | None:
    try:
        return os.stat(name).st_size
    except FileNotFoundError:
        return None


def _inode(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _check_location(path: Path, read_only: bool) -> None:
    if path.is_dir():
        raise StoreUnavailable(f"{path} is a folder; name a file in it, e.g. {path / 'agent.loom'}")
    check_folder(path.parent)
    if read_only and not path.exists():
        raise StoreUnavailable(f"{path} does not exist: there is nothing to read")
    status = os.stat(path) if path.exists() else None
    if status is not None and status.st_size == 1:
        raise NotAStore(f"{path} is not a loom memory; it was left untouched")  # SQLite would treat it as empty
    if status is not None and status.st_nlink > 1:
        raise UnsupportedStore(
            f"{path} has other names (hard links), and SQLite would keep a separate log for each, losing writes; "
            "remove the other names, or copy the file"
        )
    system = _file_system(path.parent)
    if system in _NETWORK_FILE_SYSTEMS:
        raise UnsupportedStore(
            f"{path} is on a network file system ({system}), where SQLite's locks are not reliable and "
            "writes can be lost; keep the memory on a local disk"
        )


def _file_system(folder: Path) -> str:
    """The type of a folder's file system on Linux; an empty string if it is unknown."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    target = os.path.realpath(folder)
    best, system = "", ""
    for _, place, kind, *_ in (line.split(" ") for line in mounts.splitlines() if line.count(" ") > 1):
        mount = place.encode().decode("unicode_escape", errors="replace")
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, system = mount, kind
    return system


_forking: list[Engine] = []


def _before_fork() -> None:
    _registry_lock.acquire()
    _forking[:] = [engine for engine in list(_living) if not engine.closed]
    for engine in _forking:
        engine.before_fork()


def _after_fork_in_parent() -> None:
    for engine in _forking:
        engine.after_fork_in_parent()
    _forking.clear()
    _registry_lock.release()


def _after_fork_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()
    for engine in _forking:
        engine.after_fork_in_child()
    _forking.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
