"""The files of a notebook: read whole or refused with a reason, written atomically, locked across processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from loom.errors import InvalidInput, StoreUnavailable

__all__ = ["locked", "read_text", "write_text"]

_LARGEST_BYTES = 16 * 1024 * 1024


def read_text(path: Path) -> str:
    """The text of a file, with its line ends. A folder, a file over 16 MB or bytes that are no UTF-8 are refused."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise InvalidInput(f"{path} is no file; move it out of the way")
            if found.st_size > _LARGEST_BYTES:
                raise InvalidInput(f"{path} has {found.st_size:,} bytes; a notebook reads up to {_LARGEST_BYTES:,}")
            content = file.read(_LARGEST_BYTES + 1)
    except IsADirectoryError:
        raise InvalidInput(f"{path} is a folder; a notebook expects a file there") from None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidInput(f"{path}, line {line}: the file is not UTF-8 text; save it as UTF-8") from None


def write_text(path: Path, text: str) -> None:
    """Put a text in a file's place at once: whoever reads it, also after a crash, sees the old file or the new one.

    A link is refused. A new file is readable by its owner alone, as everything that holds memories.
    """
    if path.is_symlink():
        raise InvalidInput(f"{path} is a link; a notebook writes its own files only")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8"))
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror or error}") from error


_held = threading.local()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A block in which no other process or thread changes the notebook files of a folder. It may be nested."""
    own: set[str] = _held.__dict__.setdefault("folders", set())
    name = os.path.realpath(folder)
    if name in own:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be locked: {error.strerror or error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        own.add(name)
        yield
    finally:
        own.discard(name)
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
