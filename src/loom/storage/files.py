"""Who may read the files of a memory: new ones are for their owner alone under any umask, unless asked otherwise.

A file that exists keeps its mode, also where a complete new file takes its place.
"""

from __future__ import annotations

import os
from pathlib import Path

from loom.index.segments import FILE_MODE

__all__ = ["FILE_MODE", "create_file", "create_folder", "keep_mode"]


def create_file(path: Path, mode: int = FILE_MODE) -> None:
    """Create an empty file with exactly this mode, for another library to open; nothing where it exists."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    except FileExistsError:
        return
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def create_folder(path: Path, mode: int = FILE_MODE) -> None:
    """Create a folder for files of this mode: who may read a file may enter it. Nothing where it exists."""
    entered = mode | (mode & 0o444) >> 2
    try:
        path.mkdir(entered)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    path.chmod(entered)


def keep_mode(temporary: Path, target: Path) -> None:
    """Give a file that is about to replace another one the mode of that one."""
    if target.exists():
        temporary.chmod(target.stat().st_mode & 0o777)
