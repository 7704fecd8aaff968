"""Reading, atomically replacing and locking the files of a notebook. A file is read completely or refused."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from loom.errors import InvalidInput, StoreUnavailable

__all__ = [
    "displaced_path",
    "exists",
    "locked",
    "place_in",
    "problem_of",
    "read_text",
    "remove_leftovers",
    "replace_text",
    "write_text",
]

_LARGEST_BYTES = 16 * 1024 * 1024
_LEFTOVER = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")


def exists(path: Path) -> bool:
    """Whether there is a file. A link counts as a file even if its target does not exist; reading a link is
    refused."""
    return os.path.lexists(path)


def place_in(root: Path, path: str) -> Path:
    """Return the path of a file in a folder. Refuses a path that leaves the folder, directly or through a link."""
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidInput(f"{path!r} is not a path in {root}")
    place = root
    for part in parts[:-1]:
        place /= part
        if place.is_symlink():
            raise InvalidInput(f"{place} is a link; a notebook reads and writes in its own folders only")
    return place / parts[-1]


def read_text(path: Path) -> str:
    """Return the text of a file with its line ends.

    Raises `InvalidInput` for a link, a folder, a file over 16 MB, a binary file, and bytes that are not UTF-8. The
    error names the line if there is one.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise InvalidInput(f"{path} is a link; a notebook reads and writes its own files only") from None
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise InvalidInput(f"{path} is a folder; a notebook expects a file there")
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput(f"{path} is not a regular file; move it out of the way")
        if found.st_size > _LARGEST_BYTES:
            raise InvalidInput(f"{path} has {found.st_size:,} bytes; a notebook reads up to {_LARGEST_BYTES:,}")
        with open(handle, "rb", closefd=False) as file:
            content = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
    finally:
        os.close(handle)
    return _decoded(content, path)


def _decoded(content: bytes, path: Path) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidInput(f"{path}, line {line}: the file is not UTF-8 text; save it as UTF-8") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise InvalidInput(f"{path}, line {line}: the file is binary (it has a zero byte); a notebook reads text")
    return text


def problem_of(path: str, place: Path, error: Exception) -> str:
    """Return the problem with a file, with its path in the notebook instead of the absolute one."""
    told = str(error)
    return f"{path}{told.removeprefix(str(place))}" if told.startswith(str(place)) else f"{path}: {told}"


def write_text(path: Path, text: str) -> None:
    """Replace the text of a file atomically: readers see the old file or the new one, even after a crash.

    A link is refused. A new file is readable only by its owner, like every file that holds memories.
    """
    _write(path, text, None)


def replace_text(path: Path, text: str, expected: str | None) -> str | None:
    """Do the same as `write_text`, and return a text that another program saved in the meantime.

    `expected` is the text that the caller read, or None if there was no file. Returns None if the file still had that
    text. Otherwise the displaced text is also kept at `displaced_path(path)` until the caller removes it.
    """
    kept = displaced_path(path)
    _write(path, text, kept)
    if not exists(kept):
        return None
    found = read_text(kept)
    if found == expected:
        kept.unlink()
        return None
    return found


def displaced_path(path: Path) -> Path:
    """Return the path at which `replace_text` keeps a displaced file. A file found there is from a killed process."""
    return path.with_name(f".{path.name}.replaced")


def _write(path: Path, text: str, kept: Path | None) -> None:
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
            if kept is not None:
                _link(path, kept)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror or error}") from error


def _link(path: Path, kept: Path) -> None:
    """Give a file a second name, so that replacing it loses nothing. Without hard links, copy it."""
    try:
        os.link(path, kept, follow_symlinks=False)
    except FileNotFoundError:
        return
    except FileExistsError:
        raise
    except OSError:
        kept.write_bytes(path.read_bytes())


def remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files that killed processes left in a folder. The caller holds the writers' lock."""
    if folder.is_dir():
        for entry in os.scandir(folder):
            if _LEFTOVER.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)


_held = threading.local()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the notebook files of a folder against other processes and threads for a block. Blocks may be nested.

    The lock is on the folder itself, so there is no lock file among the notes.
    """
    own: set[str] = _held.__dict__.setdefault("folders", set())
    name = os.path.realpath(folder)
    if name in own:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
