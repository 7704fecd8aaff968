"""What the statements and algorithms that backends share need of a database: a connection, and an engine.

The statements are written once, for SQLite. A connection to another server spells them in that server's SQL
(`loom.storage.postgres.dialect`). An engine is one open database in one process: its transactions, and where the
files of its indexes are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from loom.protocol import Clock

if TYPE_CHECKING:
    from loom.storage.sqlite.archive import Reader
    from loom.storage.sqlite.counting import Counts

__all__ = ["Connection", "Cursor", "Engine"]


class Cursor(Protocol):
    """The outcome of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Executes statements in SQLite's SQL: `?`, `?1` and `:name` stand for values."""

    text_factory: Any

    def execute(self, statement: str, parameters: Any = ..., /) -> Cursor: ...

    def executemany(self, statement: str, parameters: Iterable[Any], /) -> Cursor: ...


class Engine(Protocol):
    """One database, or one namespace of a server, in one process. All handles of the process share it."""

    read_only: bool
    clock: Clock
    file_mode: int
    archive: Reader
    counts: Counts

    @property
    def store_id(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    @property
    def index_folder(self) -> Path | None:
        """The folder of the index files; None where there are none."""

    def read(self, *, once: bool = False) -> AbstractContextManager[Connection]:
        """A connection on one unchanging snapshot of the database: inside `reading`, on that of the scope.

        `once` says that the block executes one statement, which is on one snapshot without a transaction.
        """

    def reading(self) -> AbstractContextManager[None]:
        """A block in which every read of this thread sees one snapshot. A commit of the same thread renews it."""

    def renew_reading(self) -> None:
        """Go on with a newer snapshot in this thread's `reading` block, if it is in one."""

    def write(self, wait_s: float | None = None) -> AbstractContextManager[Connection]:
        """A connection in a write transaction, which is committed at the end of the block or rolled back."""

    def try_write(self, wait_s: float = 0.0) -> AbstractContextManager[Connection | None]:
        """Like `write`; yields None where another writer is at work for longer than `wait_s`."""

    def now_for_leases(self, connection: Connection) -> int:
        """The time by the clock that leases run out by, in microseconds."""

    def stop_waiting(self, thread: threading.Thread) -> None:
        """Let a thread that waits to write give up soon, with `Closed`."""

    def release(self, wait_s: float = 5.0) -> bool:
        """Give up a handle; True where it was the last one and everything is closed."""

    def fold_wal(self) -> None:
        """Fold the write-ahead log into the file as far as readers allow."""

    def clean_up_by(self, deadline: float) -> bool:
        """Clean away the copies that the database's own log holds of forgotten rows; False if a reader needs them."""

    def without_limit(self) -> AbstractContextManager[None]:
        """A block in which the database may grow past its limit."""

    def integrity(self, connection: Connection) -> list[str]:
        """What the database itself finds damaged."""

    # The index files are written into `index_folder`. Where other hosts need them too, the database has a copy.

    def publish_file(self, name: str) -> None:
        """Give other hosts an index file that was written here, before the transaction that names it."""

    def provide_file(self, connection: Connection, name: str, *, afresh: bool = False) -> bool:
        """Make an index file that the database names be in the folder; False where it has no copy to fetch.

        With `afresh` what is there is damaged, and is replaced.
        """

    def drop_files(self, connection: Connection, names: Iterable[str]) -> None:
        """Drop the database's copies of index files, in the transaction that stops naming them."""

    def keep_files(self, names: Iterable[str], fence: Callable[[Connection], None]) -> None:
        """Drop the database's copies of all index files of this namespace but these, under the lease."""
