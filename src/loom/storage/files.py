"""Creating and replacing the files of a memory. New files are readable by their owner alone under any umask.

An existing file keeps its mode, even if a new file replaces it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from loom.errors import StoreFull, StoreUnavailable
from loom.index.segments import FILE_MODE

__all__ = [
    "FILE_MODE",
    "check_folder",
    "create_file",
    "create_folder",
    "database_kind",
    "disk_errors",
    "keep_mode",
    "remove_database",
]


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Raise `StoreFull` or `StoreUnavailable` in place of an `OSError`; the message says what failed and why."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (StoreFull if full else StoreUnavailable)(f"{what}: {error.strerror or error}") from error


def check_folder(path: Path) -> None:
    """Raise `StoreUnavailable` unless a folder exists at this path."""
    if not path.is_dir():
        if path.exists():
            raise StoreUnavailable(f"{path} is a file and not a folder; choose another path")
        raise StoreUnavailable(f"the folder {path} does not exist; create it first")


def create_file(path: Path, mode: int = FILE_MODE) -> None:
    """Create an empty file with exactly this mode, for another library to open. An existing file is left alone."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    except FileExistsError:
        return
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def create_folder(path: Path, mode: int = FILE_MODE) -> None:
    """Create a folder for files of this mode: users who may read a file may enter it. An existing one stays."""
    entered = mode | (mode & 0o444) >> 2
    try:
        path.mkdir(entered)
    except InterruptedError:  # Python repeats an interrupted open(), but not mkdir()
        create_folder(path, mode)
        return
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    path.chmod(entered)


def keep_mode(temporary: Path, target: Path) -> None:
    """Copy the mode of the file that is about to be replaced."""
    if target.exists():
        temporary.chmod(target.stat().st_mode & 0o777)


def remove_database(path: Path) -> None:
    """Remove an unfinished database and its logs. Errors are ignored: the failure that led here is reported."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        with suppress(OSError):
            os.unlink(f"{path}{suffix}")


def database_kind(path: Path) -> str:
    """Describe a file that is a SQLite database, or an empty file with a log; "" for any other file.

    The file is opened by SQLite alone. Opening and closing it here would release the locks of this process on it, and
    another process could then overwrite commits of an open memory.
    """
    if not path.is_file():
        return ""
    if not path.stat().st_size:
        has_log = os.path.lexists(f"{path}-wal") or os.path.lexists(f"{path}-journal")
        return "an empty database" if has_log else ""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.0)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
        if code == sqlite3.SQLITE_IOERR:
            raise StoreUnavailable(
                f"the system could not read {path} ({error}). Try again, or check the disk"
            ) from error
        # The caller opens the file next and reports that it cannot be opened.
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN):
            return ""
        return f"a database, or locked like one ({error})"
    return "a database"
