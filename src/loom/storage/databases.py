"""The interface between a database and the statements that backends share: a connection, and an engine.

The statements are written once, for SQLite. A connection to a server translates them into that server's SQL
(`loom.storage.postgres.dialect`). An engine is one open database in one process, with its transactions and the folder
of its index files.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from loom.protocol import Clock

if TYPE_CHECKING:
    from loom.storage.sqlite.archive import Reader
    from loom.storage.sqlite.counting import Counts

__all__ = ["Connection", "Cursor", "Engine", "Taken", "Wanted"]


class Taken(NamedTuple):
    """Jobs that one worker has taken: their kind, a unique name for this batch, and their records."""

    kind: str
    by: str
    records: tuple[int, ...]


class Wanted(NamedTuple):
    """An index file to be fetched: its name, the number of its vectors, and whether their codes suffice."""

    file: str
    records: int
    codes_only: bool


class Cursor(Protocol):
    """The result of a statement."""

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
    """One database, or one namespace of a server, in one process. All handles of the process share it.

    The methods with a body suit a database whose processes share one folder of index files and one lease.
    """

    read_only: bool
    folds_log: bool
    """Whether the log of the database grows until `fold_wal`."""
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
        """The folder of the index files; None for a store without index files."""

    def read(self, *, once: bool = False) -> AbstractContextManager[Connection]:
        """A connection on one snapshot of the database. Inside `reading` it is the snapshot of that block.

        `once` says that the block executes one statement, which has one snapshot without a transaction.
        """

    def reading(self) -> AbstractContextManager[None]:
        """Let every read of this thread see one snapshot inside the block. A commit of this thread renews it."""

    def renew_reading(self) -> None:
        """Take a newer snapshot for this thread's `reading` block, if it is in one."""

    def write(self, wait_s: float | None = None) -> AbstractContextManager[Connection]:
        """A connection in a write transaction. It commits at the end of the block, or rolls back after an error."""

    def try_write(self, wait_s: float = 0.0) -> AbstractContextManager[Connection | None]:
        """Like `write`, but yields None if another writer needs longer than `wait_s`."""

    def now_for_leases(self, connection: Connection) -> int:
        """The time by the clock for leases, in microseconds."""

    # Workers of several hosts may do jobs of one namespace at the same time if each first takes some.

    def take_jobs(self, kind: str, limit: int, attempts: int) -> Taken | None:
        """Take jobs with fewer attempts that no other worker has. Returns None if the lease protects all jobs.

        They return to the queue after a while, or when `free_jobs` is called.
        """
        return None

    def still_taken(self, connection: Connection, taken: Taken) -> set[int]:
        """The records whose jobs are still taken, inside the transaction that ends the jobs."""
        return set(taken.records)

    def free_jobs(self, connection: Connection, taken: Taken) -> None:
        """Return the jobs that are still taken to the queue."""
        return

    def stop_waiting(self, thread: threading.Thread) -> None:
        """Make a thread that waits to write raise `Closed` soon."""

    def release(self, wait_s: float = 5.0) -> bool:
        """Drop a handle. Returns True if it was the last and everything is closed."""

    def fold_wal(self) -> None:
        """Fold the write-ahead log into the file as far as readers permit."""

    def clean_up_by(self, deadline: float) -> bool:
        """Erase the copies of forgotten rows in the database's own log. Returns False if a reader needs them."""

    @property
    def remains(self) -> tuple[str, ...]:
        """The places where forgotten rows remain after `clean_up_by`, and until when."""
        return ()

    def tidy(self) -> None:
        """Do the database's own upkeep that `clean_up_by` has queued, if this process may. Called while idle."""
        return

    def without_limit(self) -> AbstractContextManager[None]:
        """Let the database exceed its size limit inside the block."""

    def integrity(self, connection: Connection) -> list[str]:
        """The damage that the database's own check finds."""

    # Index files are written into `index_folder`. If other hosts need them too, the database has a copy.

    def publish_file(self, name: str) -> None:
        """Share a new index file with other hosts, before the transaction that names it."""
        return

    def provide_file(
        self, connection: Connection, name: str, *, afresh: bool = False, codes_only: bool = False
    ) -> bool:
        """Fetch an index file into the folder if it is missing. Returns False if the database has no copy.

        `afresh` replaces an existing file, which is damaged. With `codes_only` the file lacks its vectors, which are
        read from the database when a search needs them.
        """
        return False

    def fetch_later(self, wanted: Sequence[Wanted]) -> bool:
        """Start fetching missing vectors in the background if they are many. Returns True if it does.

        Until they are fetched, searches use words only.
        """
        return False

    @property
    def codes_only_from(self) -> int:
        """The number of vectors in a namespace from which on files are fetched without their vectors."""
        return sys.maxsize

    def drop_files(self, connection: Connection, names: Iterable[str]) -> None:
        """Drop the database's copies of index files, in the transaction that stops naming them."""
        return

    def keep_files(self, names: Iterable[str], fence: Callable[[Connection], None]) -> None:
        """Drop the database's copies of all other index files of this namespace, under the lease."""
        return
