"""Which store a command means when none is named, and why.

The store is the one that is named, else `LOOM_STORE`, else `.loom/memory.loom` of the project, searched upwards from
the working folder through folders of the same owner, else `memory.loom` in the user's data folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["PROJECT_FOLDER", "STORE_NAME", "STORE_VARIABLE", "FoundStore", "find_store"]

STORE_VARIABLE: Final = "LOOM_STORE"
PROJECT_FOLDER: Final = ".loom"
STORE_NAME: Final = "memory.loom"


class FoundStore(NamedTuple):
    """The path of a store, which need not exist yet, and how it was found."""

    path: str
    why: str


def find_store(
    named: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] = ".",
) -> FoundStore:
    """The store that a command in `folder` uses."""
    environment = os.environ if environ is None else environ
    if named is not None:
        return FoundStore(os.fspath(named), "named by --store")
    if environment.get(STORE_VARIABLE):
        return FoundStore(environment[STORE_VARIABLE], f"named by {STORE_VARIABLE}")
    project = _project_store(os.path.realpath(folder))
    if project is not None:
        return FoundStore(project, f"the {PROJECT_FOLDER} folder of this project")
    return FoundStore(os.path.join(_data_folder(environment), STORE_NAME), "the user's own: no project has one here")


def _project_store(folder: str) -> str | None:
    """Upwards through folders of this user. What somebody else put above them is not used."""
    while _is_own(folder):
        place = os.path.join(folder, PROJECT_FOLDER)
        if os.path.isdir(place) and _is_own(place):
            return os.path.join(place, STORE_NAME)
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
