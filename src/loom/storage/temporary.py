"""Temporary files beside the file that they will replace, and removing those of killed processes.

The name holds the process id of the writer, which also holds a lock (`flock`) on the file until it exits. A file is
removed if that process is gone and the lock is free: a process in another container may have the same id.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from loom.index.segments import sync_folder
from loom.protocol import new_id
from loom.storage.files import FILE_MODE, create_file, disk_errors, keep_mode, remove_database

__all__ = ["let_go", "replacing", "sweep", "temporary_beside"]

_BUFFER_BYTES = 1 << 20
_NAME = re.compile(r"\..+\.([0-9]+)-([0-9A-Z]{26})\.tmp(?:-journal|-wal|-shm)?", re.DOTALL)

_held: dict[Path, int] = {}


@contextmanager
def temporary_beside(target: Path, mode: int = FILE_MODE) -> Iterator[Path]:
    """An empty file beside another one, to be written, released with `let_go` and renamed; otherwise it is removed.

    Stale temporary files in the folder are removed first.
    """
    sweep(target.parent)
    path = target.with_name(f".{target.name[:100]}.{os.getpid()}-{new_id()}.tmp")
    try:
        with disk_errors(f"{target} was not made"):
            create_file(path, mode)
            _held[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(_held[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    finally:
        let_go(path)
        remove_database(path)


@contextmanager
def replacing(target: Path, mode: int = FILE_MODE) -> Iterator[BinaryIO]:
    """A file that replaces the target once it is complete and synced; a kill leaves the target unchanged.

    It has this mode, or that of the file that it replaces.
    """
    with temporary_beside(target, mode) as temporary:
        with open(temporary, "r+b", buffering=_BUFFER_BYTES) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        keep_mode(temporary, target)
        let_go(temporary)
        os.replace(temporary, target)
        sync_folder(target.parent)


def let_go(path: Path) -> None:
    """Release a complete file before it is renamed.

    Once it has its new name, SQLite may open it, and closing our descriptor would drop SQLite's locks.
    """
    descriptor = _held.pop(path, None)
    if descriptor is not None:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove temporary files whose writers are dead. A file that cannot be removed is left alone."""
    with suppress(OSError):  # a folder that cannot be listed
        for name in os.listdir(folder):
            found = _NAME.fullmatch(name) if name.startswith(".") else None
            if found and _is_left(folder / name, int(found[1])):
                with suppress(OSError):
                    os.unlink(folder / name)


def _is_left(path: Path, process: int) -> bool:
    base = path.with_name(re.sub(r"-(journal|wal|shm)$", "", path.name))
    # A process of a restarted container may have the id of its predecessor.
    if base in _held or (process != os.getpid() and _is_alive(process)):
        return False
    try:
        descriptor = os.open(base, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (OSError, OverflowError) as error:
        return not isinstance(error, ProcessLookupError)
    return True
