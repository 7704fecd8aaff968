"""Find the store of a command.

It is the named store, else `LOOM_STORE`, else `.loom/memory.loom` of the project or `.notes/memory.loom`
of a notebook, searched upwards from the working folder through folders of the same owner, else `memory.loom` in the
user's data folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PosixPath
from typing import Any, Final, NamedTuple

__all__ = [
    "PROJECT_FOLDER",
    "SERVERS",
    "STORE_NAME",
    "STORE_VARIABLE",
    "FoundStore",
    "as_place",
    "find_notebook_store",
    "find_store",
    "is_server",
]

SERVERS: Final = ("postgres", "postgresql")
"""The schemes of the URLs that name a server and not a file. `loom.storage.open_store` chooses the backend."""
STORE_VARIABLE: Final = "LOOM_STORE"
PROJECT_FOLDER: Final = ".loom"
STORE_NAME: Final = "memory.loom"
_NOTES_FOLDER: Final = ".notes"


class FoundStore(NamedTuple):
    """The path of a store, which may not exist yet, and how it was found."""

    path: str
    why: str


class _Server(PosixPath):
    """The URL of a memory on a server, where commands pass a path on. Its text is without the password."""

    url: str

    def __fspath__(self) -> str:
        return self.url

    def __str__(self) -> str:
        return re.sub(r"(?<=//)([^/:@]*):[^/@]*(?=@)|\b(?:password|sslpassword)=[^&#]*&?", r"\1", self.url)

    def exists(self, **_: Any) -> bool:
        return True

    @property
    def parent(self) -> Any:
        return Path()


def is_server(place: str | os.PathLike[str]) -> bool:
    """Whether a place is the URL of a memory on a server."""
    scheme, found, _ = os.fspath(place).partition("://")
    return bool(found) and scheme in SERVERS


def as_place(found: str) -> Path:
    """A path, or a URL of a server, as a path."""
    if not is_server(found):
        return Path(found)
    place = _Server(found)
    place.url = found
    return place


def find_store(
    named: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] = ".",
) -> FoundStore:
    """Return the store of a command that runs in `folder`."""
    environment = os.environ if environ is None else environ
    return (
        _named_store(named, environment)
        or _project_store(os.path.realpath(folder))
        or FoundStore(os.path.join(_data_folder(environment), STORE_NAME), "the user's own: no project has one here")
    )


def find_notebook_store(
    named: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] = ".",
) -> FoundStore:
    """Return the store of the notebook in `folder`: the named store, or else the one in its notes."""
    found = _named_store(named, os.environ if environ is None else environ)
    return found or FoundStore(os.path.join(folder, _NOTES_FOLDER, STORE_NAME), f"the notebook in {folder}")


def _named_store(named: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> FoundStore | None:
    if named is not None:
        return FoundStore(os.fspath(named), "named by --store")
    if environ.get(STORE_VARIABLE):
        return FoundStore(environ[STORE_VARIABLE], f"named by {STORE_VARIABLE}")
    return None


def _project_store(folder: str) -> FoundStore | None:
    """Look upwards through folders of this user. Folders of others above them are not used."""
    while _is_own(folder):
        place = os.path.join(folder, PROJECT_FOLDER)
        if os.path.isdir(place) and _is_own(place):
            return FoundStore(os.path.join(place, STORE_NAME), f"the {PROJECT_FOLDER} folder of this project")
        notes = os.path.join(folder, _NOTES_FOLDER)
        if os.path.isfile(os.path.join(notes, STORE_NAME)) and _is_own(notes):
            return FoundStore(os.path.join(notes, STORE_NAME), f"the notebook in {folder}")
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return None


def _is_own(folder: str) -> bool:
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except OSError:
        return False


def _data_folder(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.join(environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share"), "loom")
