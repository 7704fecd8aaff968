"""The files of a history: one file, the members of a zip archive, or the files of a folder.

Nothing is unpacked to disk. Links inside a folder are not followed, and only regular files are opened. A member of an
archive that unpacks to an implausible size is refused.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from loom.errors import InvalidInput, StoreUnavailable
from loom.importers.messages import ImportProblem, SourceFile

__all__ = ["SUFFIXES", "UNBOUNDED_UP_TO", "UnreadableFile", "source_files"]

SUFFIXES: Final = (".jsonl", ".json", ".af", ".md", ".markdown", ".ndjson")
"""The suffixes of the files that are read in a folder or an archive."""

_MOST_GROWTH = 250
UNBOUNDED_UP_TO: Final = 64 * 1024 * 1024
"""A member of an archive may unpack to this many bytes, whatever its compressed size is."""

_MOST_MEMBERS = 200_000


class UnreadableFile(InvalidInput):
    """A file that cannot be read any further because of an error of the disk or the archive."""


def source_files(path: Path) -> Iterator[SourceFile | ImportProblem]:
    """Yield the files at a path, the oldest first, and a problem for each file that is refused."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror or error}") from None
    if stat.S_ISDIR(mode):
        yield from _in_folder(path)
    elif not stat.S_ISREG(mode):
        raise InvalidInput(f"{path} is not a regular file; save its output to a file and import that")
    elif zipfile.is_zipfile(path):
        yield from _in_archive(path)
    else:
        yield _on_disk(path, path.name, follow=True)


# --- folders -------------------------------------------------------------------------------------------------


def _in_folder(folder: Path) -> Iterator[SourceFile | ImportProblem]:
    found: list[tuple[float, str]] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in names:
            if name.startswith(".") or not name.lower().endswith(SUFFIXES):
                continue
            path = Path(place, name)
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                yield ImportProblem(str(path.relative_to(folder)), "", "it is a symbolic link, which is not followed")
            elif stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime, str(path)))
    for _, one in sorted(found):
        try:
            yield _on_disk(Path(one), str(Path(one).relative_to(folder)))
        except OSError as error:
            yield ImportProblem(one, "", f"it cannot be read: {error.strerror or error}")


def _on_disk(path: Path, name: str, *, follow: bool = False) -> SourceFile:
    status = path.stat() if follow else path.lstat()

    def opened() -> BinaryIO:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
        try:
            file = os.open(path, flags)
        except OSError as error:
            raise UnreadableFile(f"it cannot be read: {error.strerror or error}") from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise UnreadableFile("it is not a regular file")
        return io.BufferedReader(_Guarded(os.fdopen(file, "rb", buffering=0)), 1 << 20)

    return SourceFile(name, path.stem, datetime.fromtimestamp(status.st_mtime, UTC), status.st_size, opened)


# --- archives ------------------------------------------------------------------------------------------------


def _in_archive(path: Path) -> Iterator[SourceFile | ImportProblem]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise InvalidInput(f"{path} is not a readable zip archive: {error}") from None
    if len(members) > _MOST_MEMBERS:
        raise InvalidInput(f"{path} has {len(members):,} members; an export has at most {_MOST_MEMBERS:,}")
    for member in sorted(members, key=lambda one: one.filename):
        if member.is_dir() or not member.filename.lower().endswith(SUFFIXES):
            continue
        name = f"{path.name}:{member.filename}"
        if stat.S_ISLNK(member.external_attr >> 16):
            yield ImportProblem(name, "", "it is a symbolic link, which is not followed")
        elif member.flag_bits & 1:
            yield ImportProblem(name, "", "it is encrypted; unpack the archive and import the folder")
        else:
            yield _of_archive(path, member, name)


def _of_archive(path: Path, member: zipfile.ZipInfo, name: str) -> SourceFile:
    try:
        modified = datetime(*member.date_time, tzinfo=UTC)
    except ValueError:
        modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)

    def opened() -> BinaryIO:
        try:
            archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise UnreadableFile(f"the archive cannot be read: {error}") from None
        try:
            raw = archive.open(member)
        except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
            archive.close()
            raise UnreadableFile(f"it cannot be unpacked: {error}") from None
        most = max(UNBOUNDED_UP_TO, _MOST_GROWTH * max(member.compress_size, 1))
        return io.BufferedReader(_Guarded(raw, most, archive), 1 << 20)

    return SourceFile(name, Path(member.filename).stem, modified, member.file_size, opened)


class _Guarded(io.RawIOBase):
    """A file that raises `UnreadableFile` for every error, and after `most` bytes."""

    def __init__(self, raw: object, most: int | None = None, archive: zipfile.ZipFile | None = None) -> None:
        super().__init__()
        self._raw = raw
        self._most = most
        self._archive = archive
        self._given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        room = memoryview(buffer)  # type: ignore[arg-type]
        try:
            data: bytes = self._raw.read(len(room))  # type: ignore[attr-defined]
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
            raise UnreadableFile(f"it cannot be read further: {error}") from None
        self._given += len(data)
        if self._most is not None and self._given > self._most:
            raise UnreadableFile(
                f"it unpacks to more than {_MOST_GROWTH} times its size, as no export does; if that is intended, "
                "unpack the archive and import the folder"
            )
        room[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()  # type: ignore[attr-defined]
            if self._archive is not None:
                self._archive.close()
        super().close()
