"""Temporary files beside the file that they will replace, and sweeping what a killed process left.

The name says which process writes the file, and the writer holds a lock on it (`flock`), which ends with the process.
A file is swept if that process is gone and the lock is free: in another container processes have other numbers.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loom.protocol import new_id
from loom.storage.files import FILE_MODE, create_file, disk_errors, remove_database

__all__ = ["let_go", "sweep", "temporary_beside"]

_NAME = re.compile(r"\..+\.([0-9]+)-([0-9A-Z]{26})\.tmp(?:-journal|-wal|-shm)?", re.DOTALL)

_held: dict[Path, int] = {}


@contextmanager
def temporary_beside(target: Path, mode: int = FILE_MODE) -> Iterator[Path]:
    """An empty file beside another one, to be written, released with `let_go` and renamed. Else it is removed.

    Sweeps the folder first.
    """
    sweep(target.parent)
    path = target.with_name(f".{target.name}.{os.getpid()}-{new_id()}.tmp")
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


def let_go(path: Path) -> None:
    """Release a file that is complete, before it is renamed.

    After that SQLite may have it open under its new name: closing a descriptor would drop SQLite's locks.
    """
    descriptor = _held.pop(path, None)
    if descriptor is not None:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove the temporary files in a folder whose writers are dead. What cannot be removed stays."""
    with suppress(OSError):  # a folder that cannot be listed
        for name in os.listdir(folder):
            found = _NAME.fullmatch(name) if name.startswith(".") else None
            if found and _is_left(folder / name, int(found[1])):
                with suppress(OSError):
                    os.unlink(folder / name)


def _is_left(path: Path, process: int) -> bool:
    base = path.with_name(re.sub(r"-(journal|wal|shm)$", "", path.name))
    if base in _held:
        return False
    if process != os.getpid() and _is_alive(process):
        return False  # a process of a restarted container has the number of its predecessor
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
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
