"""Watching a notebook's folder: a changed file is read at once. Needs the extra `[watch]`."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from importlib import import_module
from itertools import chain
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from loom.errors import InvalidInput
from loom.notebook.pages import Synced

if TYPE_CHECKING:
    from loom.notebook.book import Notebook

__all__ = ["watch"]

_DEBOUNCE_MS = 200
_IDLE_MS = 500
_SYNCS_AT_FIRST = 2
# The most by which the clocks of a file system and of the process may differ.
_OVERLAP_S = 5.0


def watch(notebook: Notebook, stop: Event | None = None) -> Iterator[Synced]:
    """Yield the result of `sync` whenever a file of the notebook or of an attached folder changes, until `stop` is
    set.

    Changes made before the call are read too. Requests and conflicts are yielded once, not at every change.
    """
    watchfiles = _watchfiles()
    if notebook.minimal_mode:
        raise InvalidInput("minimal mode has nothing to watch: its file is read at every use")
    ended = Event() if stop is None else stop
    last = Synced()
    unwatched_since: float | None = None
    while not ended.is_set():
        folders = _folders(notebook)
        quiet = 0
        with closing(_changes(watchfiles, folders, ended)) as changes:
            # Sync before the first wait, which starts the watch, and after it, so that no change between is missed.
            for changed in chain([set()], changes):
                noticed_at = time.time()
                quiet += not changed
                if changed or quiet <= _SYNCS_AT_FIRST:
                    if unwatched_since is not None:
                        changed |= _sessions_since(notebook, unwatched_since - _OVERLAP_S)
                    done = notebook.sync() + _sessions_of(notebook, changed)
                    if _is_news(done, last):
                        yield done
                    last = done
                    if _folders(notebook) != folders:
                        unwatched_since = noticed_at
                        break
                else:
                    unwatched_since = None


def _is_news(done: Synced, last: Synced) -> bool:
    """Return whether a result has changes, or requests that the last result did not have."""
    asked = (done.conflicts, done.missing, done.problems)
    return any((done.read, done.written, done.removed, done.forgotten)) or (
        any(asked) and asked != (last.conflicts, last.missing, last.problems)
    )


def _changes(watchfiles: Any, folders: list[Path], ended: Event) -> Generator[set[str], None, None]:
    """Yield the paths of Markdown files that changed; an empty set if nothing happened for a while."""
    found = watchfiles.watch(
        *folders,
        watch_filter=lambda _, path: _is_a_note(path),
        debounce=_DEBOUNCE_MS,
        rust_timeout=_IDLE_MS,
        yield_on_timeout=True,
        stop_event=ended,
        recursive=False,
        ignore_permission_denied=True,
    )
    with closing(found):
        for changes in found:
            yield {path for _, path in changes}


def _sessions_of(notebook: Notebook, changed: set[str]) -> Synced:
    folder = notebook.sessions.folder.resolve()
    names = {Path(path).name for path in changed if Path(path).parent == folder}
    return notebook.sessions.sync(notebook.pages.trust, only=names) if names else Synced()


def _sessions_since(notebook: Notebook, moment: float) -> set[str]:
    """Return the sessions that were written after this time, which a watch misses while it is set up."""
    folder = notebook.sessions.folder.resolve()
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:
        return {str(folder / one.name) for one in entries if _is_a_note(one.name) and one.stat().st_ctime >= moment}


def _folders(notebook: Notebook) -> list[Path]:
    """Return each folder that holds files of the notebook. The whole project may hold a million other files."""
    found = {notebook.work_dir.resolve()}
    for root in (notebook.work_dir / ".notes", notebook.sessions.folder):
        found.update(Path(folder) for folder, _, _ in os.walk(root.resolve()))
    for other in notebook.folders:
        found.update(other.watched())
    return sorted(found)


def _is_a_note(path: str) -> bool:
    name = os.path.basename(path)
    return name.endswith(".md") and not name.startswith(".")


def _watchfiles() -> Any:
    try:
        return import_module("watchfiles")
    except ImportError:
        raise InvalidInput("watching needs a package: pip install 'loomkeep[watch]'") from None
