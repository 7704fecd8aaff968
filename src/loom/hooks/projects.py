"""The folder of a project, and the file of its memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from loom.discovery import PROJECT_FOLDER, STORE_VARIABLE, find_store

__all__ = ["log_of", "memory_of_project", "project_of"]

_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def project_of(folder: Path) -> Path:
    """Return the project of a folder: the nearest folder upwards with `.git`, else the folder itself."""
    place = folder.resolve()
    return next((one for one in (place, *place.parents) if (one / ".git").exists()), place)


def memory_of_project(folder: Path, environ: Mapping[str, str]) -> Path:
    """Return the file of a project's memory.

    A store that is named by LOOM_STORE or that a `.loom` folder of the project holds is used; otherwise each project
    has a file of its own in the user's data folder.
    """
    found = find_store(environ=environ, folder=folder)
    if environ.get(STORE_VARIABLE) or Path(found.path).parent.name == PROJECT_FOLDER:
        return Path(found.path)
    project = project_of(folder)
    digest = hashlib.blake2b(str(project).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    name = _NAME.sub("-", project.name)[:40] or "root"
    return Path(found.path).parent / "projects" / f"{name}-{digest}.loom"


def log_of(memory: Path) -> Path:
    """Return the file of the hooks' log, next to the memory."""
    return memory.with_name(f"{memory.stem}.hooks.jsonl")
