"""Pages: files of a notebook that are memories too, kept equal in both directions.

A page is a chain of versions in the store. What the store learns appears in the file; what a person edits becomes the
next version. Edits on both sides at once are merged, and where that cannot be done both texts stay, between marks.
A file that is gone is a request to forget, which has to be confirmed.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from loom.drafts import Attributes
from loom.errors import InvalidInput, LoomError, NotFound
from loom.memory.manager import MemoryManager
from loom.notebook.edits import has_conflict, merged
from loom.notebook.note_files import locked, read_text, write_text
from loom.storage.contract import Dimensions, ForgetReceipt, Record
from loom.trust import is_trusted
from loom.types import MemoryTier, Trust

__all__ = ["PAGE", "RETIRED", "Page", "Pages", "Synced", "page_id"]

RETIRED = "[this page was deleted]"
"""The text of the last version of a page that was deleted."""

PAGE = "page"
"""The kind of record that a page is."""

_STATE = "sync.json"


def page_id(path: str) -> str:
    """The id of the memory that a file is, by its path in the notebook."""
    return f"page:{path}"


@dataclass(frozen=True, slots=True)
class Page:
    """A file of a notebook: its path in the folder, and where it stands in the three dimensions."""

    path: str
    dimensions: Dimensions = field(default_factory=Dimensions)
    importance: float = 0.7


@dataclass(frozen=True, slots=True)
class Synced:
    """What `sync` did, by the paths of pages. `problems` are pages that could not be read, each with its reason.

    `conflicts` have marks in the file until somebody resolves them. `missing` are files that were deleted: the memory
    is as it was until `forget` or `restore` says what is meant.
    """

    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.read, self.written, self.conflicts, self.missing, self.forgotten, self.problems))


@dataclass(slots=True)
class _Doing:
    read: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def done(self) -> Synced:
        return Synced(*(tuple(getattr(self, name)) for name in Synced.__slots__))


class Pages:
    """The pages of a folder. Thread-safe, and safe beside other processes on the same folder.

    `notes` is where it is noted what both sides agreed on: `.notes` in the folder, unless it is to be elsewhere.
    """

    def __init__(self, root: Path, memory: MemoryManager, notes: Path | None = None) -> None:
        self._root = root
        self._memory = memory
        self._notes = root / ".notes" if notes is None else notes

    @property
    def trust(self) -> Trust:
        """How far an edit of a file is believed: as the user's own words in a folder that the user has trusted."""
        return Trust.USER if is_trusted(str(self._root), None, os.environ) else Trust.UNKNOWN

    # -- one page --------------------------------------------------------------------------------------

    def text(self, page: Page) -> str:
        """The text of a page as its file has it, after both sides were made equal; empty where there is none."""
        self._sync_one(page)
        path = self._root / page.path
        return read_text(path) if path.exists() else ""

    def write(self, page: Page, text: str, *, trust: Trust = Trust.AGENT) -> Record:
        """Put a new text in a page's place, as the agent does. Edits of the file that were not read yet are kept."""
        with locked(self._notes):
            self._sync_one(page)
            self._store(page, text, trust)
            self._sync_one(page)
            return self._required(page)

    def history(self, page: Page) -> list[Record]:
        """Every version of a page, oldest first."""
        return self._memory.history(page_id(page.path))

    def diff(self, page: Page, older: int, newer: int | None = None) -> str:
        """What changed between two versions of a page, as a unified diff."""
        versions = {one.version: one for one in self.history(page)}
        last = max(versions, default=0) if newer is None else newer
        for number in (older, last):
            if number not in versions:
                raise NotFound(
                    f"{page.path} has no version {number}; there are {', '.join(map(str, versions)) or 'none'}"
                )
        lines = difflib.unified_diff(
            versions[older].content.splitlines(keepends=True),
            versions[last].content.splitlines(keepends=True),
            f"{page.path} (version {older})",
            f"{page.path} (version {last})",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def rollback(self, page: Page, version: int) -> Record:
        """Put an earlier version in the newest's place. Nothing is lost: it becomes a version of its own."""
        found = next((one for one in self.history(page) if one.version == version), None)
        if found is None:
            raise NotFound(f"{page.path} has no version {version}")
        return self.write(page, found.content, trust=Trust(found.trust))

    def forget(self, page: Page) -> ForgetReceipt:
        """Forget a page for good: every version, and its file."""
        with locked(self._notes):
            receipt = self._memory.forget(page_id(page.path))
            self._remove(page)
            return receipt

    def read(self, page: Page, trust: Trust) -> None:
        """Take a file that a program has just written as the next version, at the trust of that program."""
        with locked(self._notes):
            text = read_text(self._root / page.path)
            version = self._store(page, text, trust).version if text.strip() else 0
            self._agree({page.path: (version, _digest(text)) if version else None})

    def retire(self, page: Page) -> None:
        """Let a page end without forgetting it: its text is found no more, and its history and `rollback` stay."""
        with locked(self._notes):
            if self._memory.store.get(page_id(page.path)) is not None:
                self._store(page, RETIRED, Trust.AGENT)
            self._remove(page)

    def restore(self, page: Page) -> Path:
        """Write a file again that was deleted."""
        with locked(self._notes):
            record = self._required(page)
            path = self._root / page.path
            write_text(path, record.content)
            self._agree({page.path: (record.version, _digest(record.content))})
            return path

    # -- all pages -------------------------------------------------------------------------------------

    def sync(self, pages: Iterable[Page]) -> Synced:
        """Make files and memories equal. One page that cannot be read does not stop the others."""
        doing = _Doing()
        with locked(self._notes):
            state = self._state()
            for page in pages:
                try:
                    agreed = self._synced(page, state.get(page.path), doing)
                except LoomError as error:
                    doing.problems.append(f"{page.path}: {error}")
                    continue
                if agreed != state.get(page.path):
                    self._agree({page.path: agreed})
        return doing.done()

    def _sync_one(self, page: Page) -> None:
        problems = self.sync([page]).problems
        if problems:
            raise InvalidInput(problems[0])

    def _synced(self, page: Page, base: tuple[int, str] | None, doing: _Doing) -> tuple[int, str] | None:
        path = self._root / page.path
        if path.is_symlink():
            raise InvalidInput("the file is a link; a notebook reads and writes its own files only")
        file = read_text(path) if path.exists() else None
        record = self._memory.store.get(page_id(page.path))
        if record is not None and record.content == RETIRED and file is None:
            return None
        if file is None and record is None:
            return None
        if file is None:
            assert record is not None
            if base is not None:
                doing.missing.append(page.path)
                return base
            return self._written(page, record.content, record.version, doing)
        if record is None:
            if base is not None and base[1] == _digest(file):
                self._remove(page)  # what was forgotten stands in no file
                doing.forgotten.append(page.path)
                return None
            if not file.strip():
                return None
            doing.read.append(page.path)
            return (self._store(page, file, self.trust).version, _digest(file))
        if has_conflict(file):
            doing.conflicts.append(page.path)
        if file == record.content:
            return (record.version, _digest(file))
        is_edited = base is None or base[1] != _digest(file)
        is_newer = base is None or base[0] != record.version
        if not is_edited:
            return self._written(page, record.content, record.version, doing)
        if not file.strip():
            doing.missing.append(page.path)  # an emptied file is a request too
            return base
        if not is_newer:
            doing.read.append(page.path)
            return (self._store(page, file, self.trust).version, _digest(file))
        return self._merged(page, base, file, record, doing)

    def _merged(
        self, page: Page, base: tuple[int, str] | None, file: str, record: Record, doing: _Doing
    ) -> tuple[int, str]:
        """Both sides were changed since they were equal: each is a version, and so is what they make together."""
        old = ""
        if base is not None:
            versions = {one.version: one for one in self.history(page)}
            old = versions[base[0]].content if base[0] in versions else ""
        made = merged(old, file, record.content)
        self._store(page, file, self.trust)
        if made.conflicts:
            doing.conflicts.append(page.path)
        stored = self._store(page, made.text, self.trust)
        doing.read.append(page.path)
        return self._written(page, made.text, stored.version, doing)

    def _written(self, page: Page, text: str, version: int, doing: _Doing) -> tuple[int, str]:
        write_text(self._root / page.path, text)
        doing.written.append(page.path)
        return (version, _digest(text))

    def _store(self, page: Page, text: str, trust: Trust) -> Record:
        """The next version of a page. It goes to the knowledge tier: a page is too long for the window."""
        if not text.strip():
            raise InvalidInput(f"the text of {page.path} is empty; forget the page instead")
        attributes = Attributes(
            name=self._memory.node_id,
            importance=page.importance,
            metadata={"path": page.path},
            trust=trust,
            kind=PAGE,
            dimensions=page.dimensions,
        )
        draft = self._memory.drafter.text(text, page_id(page.path), attributes, revises=True)
        self._memory.tiers.write([draft], MemoryTier.L4)
        return self._required(page)

    def _required(self, page: Page) -> Record:
        record = self._memory.store.get(page_id(page.path))
        if record is None:
            raise NotFound(f"there is no page {page.path}")
        return record

    def _remove(self, page: Page) -> None:
        path = self._root / page.path
        path.unlink(missing_ok=True)
        self._agree({page.path: None})

    # -- what both sides agreed on ---------------------------------------------------------------------

    def _state(self) -> dict[str, tuple[int, str]]:
        path = self._notes / _STATE
        if not path.exists():
            return {}
        try:
            told = json.loads(read_text(path))
            return {str(name): (int(version), str(digest)) for name, (version, digest) in told.items()}
        except (ValueError, TypeError, AttributeError):
            return {}  # unreadable: every page is compared as if for the first time, and nothing is lost

    def _agree(self, changed: dict[str, tuple[int, str] | None]) -> None:
        state: dict[str, tuple[int, str] | None] = {**self._state(), **changed}
        kept = {name: list(one) for name, one in sorted(state.items()) if one is not None}
        write_text(self._notes / _STATE, json.dumps(kept, ensure_ascii=False, indent=1))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()
