"""Pages: files of a notebook that are also memories, synchronised in both directions.

A page is a chain of versions in the store. Changes in the store are written to the file; an edit of the file becomes
the next version. Simultaneous edits of both sides are merged; lines that both changed occur twice, between marks. A
deleted file is a request to forget, which has to be confirmed.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from loom.drafts import Attributes
from loom.errors import InvalidInput, LoomError, NotFound
from loom.memory.manager import MemoryManager
from loom.notebook.edits import Merged, common_lines, flaws, has_conflict, merged, removed_headings
from loom.notebook.note_files import (
    displaced_path,
    exists,
    locked,
    place_in,
    problem_of,
    read_text,
    replace_text,
    write_text,
)
from loom.storage.contract import Dimensions, ForgetReceipt, Record
from loom.trust import is_trusted
from loom.types import MemoryTier, Trust

__all__ = ["PAGE", "RETIRED", "Page", "Pages", "Synced", "lower_trust", "page_id"]

RETIRED = "[this page was deleted]"
"""The text of the last version of a page that was deleted."""

PAGE = "page"
"""The kind of record that a page is."""

_STATE = "sync.json"
_LEARNED = "learned"
_NOTHING: Mapping[str, Sequence[str]] = MappingProxyType({})
_FROM_HIGHEST = (Trust.USER, Trust.AGENT, Trust.TOOL, Trust.WEB, Trust.UNKNOWN)
# If another program saves a page this often while it is written, the page is left for the next sync.
_TRIES = 20


def page_id(path: str, prefix: str = "") -> str:
    """Return the id of the memory of a file, given its path in the notebook."""
    return f"page:{prefix}{path}"


@dataclass(frozen=True, slots=True)
class Page:
    """A file of a notebook: its path in the folder, and its place in the three dimensions.

    `trust` is the trust of an edit of the file; by default, the folder determines it. If a page is not `writable`,
    the memory follows the file, and the file is never changed.
    """

    path: str
    dimensions: Dimensions = field(default_factory=Dimensions)
    importance: float = 0.7
    trust: Trust | None = None
    writable: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of `sync`, by the paths of pages.

    `conflicts` are marked in the file until they are resolved. `missing` are files that were deleted or emptied: the
    memory is unchanged until `forget` or `restore` is called. `removed` names sections that an edit deleted
    (`path#heading`): earlier versions have them until `forget_earlier` is called. `problems` are unreadable files,
    and flaws of readable ones with their lines.
    """

    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def __add__(self, other: Synced) -> Synced:
        return Synced(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


_Doing = defaultdict[str, list[str]]
# The lists of `Synced` by their names while they are filled, and `unreadable`: the errors of pages that were not
# read.


class _Base(NamedTuple):
    """The last version on which file and memory agreed, the digest of its text, and its sequence number."""

    version: int
    digest: str
    seq: int


class Pages:
    """The pages of a folder. Several threads and processes may use the same folder.

    `notes` is the folder that stores the versions on which both sides agreed, by default `.notes`. `prefix`
    distinguishes the ids of pages of different folders.
    """

    def __init__(self, root: Path, memory: MemoryManager, notes: Path | None = None, prefix: str = "") -> None:
        self._root = root
        self._memory = memory
        self._notes = root / ".notes" if notes is None else notes
        self._prefix = prefix

    @property
    def trust(self) -> Trust:
        """The trust of an edit of a file: that of the user's own words if the user has trusted the folder."""
        return Trust.USER if is_trusted(str(self._root), None, os.environ) else Trust.UNKNOWN

    def id_of(self, page: Page) -> str:
        """Return the id of the memory of a page."""
        return page_id(page.path, self._prefix)

    # -- one page --------------------------------------------------------------------------------------

    def text(self, page: Page) -> str:
        """Synchronise a page and return the text of its file; empty if there is none."""
        with self._locked():
            self._sync_one(page)
            path = place_in(self._root, page.path)
            return read_text(path) if exists(path) else ""

    def write(
        self, page: Page, text: str, *, trust: Trust = Trust.AGENT, learned: Mapping[str, Sequence[str]] = _NOTHING
    ) -> Record:
        """Replace the text of a page. Edits of the file that were not read yet become earlier versions.

        `learned` maps lines of the text to the ids of the memories from which they were learned.
        """
        if not page.writable:
            raise InvalidInput(f"{page.path} belongs to another program; change it there")
        with self._locked():
            self._sync_one(page)
            self._store_all(page, (text, trust, ""), learned={_digest(line): learned[line] for line in learned})
            self._sync_one(page)
            return self._required(page)

    def merge(self, page: Page, text: str, *, trust: Trust, package: str, joins: bool = False) -> Merged:
        """Merge a text of a package into a page, with marks around the lines that both sides changed.

        The base is the previous text of the package. The new text becomes a separate version, with the name of the
        package in its metadata. With `joins`, all lines that both sides added are kept if they do not disagree.
        """
        with self._locked():
            self._sync_one(page)
            record = self._record(page)
            if record is None:
                self._store_all(page, (text, trust, package))
                result = Merged(text, 0)
            else:
                told = [one for one in self.history(page) if (one.metadata or {}).get("package") == package]
                if told and told[-1].content == text:
                    return Merged(record.content, 0)
                base = told[-1].content if told else common_lines(record.content, text)
                result = merged(base, record.content, text, other=f"package {package}", joins=joins)
                self._store_all(page, (text, trust, package), (result.text, lower_trust(trust, record.trust), ""))
            self._sync_one(page)
            return result

    def history(self, page: Page) -> list[Record]:
        """Return every version of a page, oldest first."""
        return self._memory.history(self.id_of(page))

    def diff(self, page: Page, older: int, newer: int | None = None) -> str:
        """Return the changes between two versions of a page, as a unified diff."""
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
        """Make an earlier version the newest one again. The rollback is a new version, so nothing is lost."""
        found = next((one for one in self.history(page) if one.version == version), None)
        if found is None:
            raise NotFound(f"{page.path} has no version {version}")
        return self.write(page, found.content, trust=Trust(found.trust))

    def forget(self, page: Page) -> ForgetReceipt:
        """Forget a page for good: every version, and its file."""
        with self._locked():
            receipt = self._memory.forget(self.id_of(page))
            self._remove(page)
            return receipt

    def forget_earlier(self, page: Page) -> ForgetReceipt:
        """Forget all earlier versions of a page, and with them every section that was removed from it."""
        with self._locked():
            self._sync_one(page)
            return self._forget_earlier(page, self._required(page))

    def learned(self, page: Page) -> dict[str, list[str]]:
        """Return the digests of the lines, in all versions, that were learned from memories, with these ids."""
        return {digest: ids for one in self.history(page) for digest, ids in _learned(one).items()}

    def forget_lines(self, page: Page, digests: Collection[str]) -> bool:
        """Remove lines from a page, by their digests, and forget all earlier versions. Returns whether any version
        had one of the lines."""
        with self._locked():
            if not any(_digest(line) in digests for one in self.history(page) for line in one.content.splitlines()):
                return False
            self._sync_one(page)
            record = self._record(page)
            lines = [] if record is None else record.content.splitlines(keepends=True)
            text = "".join(line for line in lines if _digest(line.rstrip("\r\n")) not in digests)
            if record is None or not text.strip():
                self.forget(page)
                return True
            if text != record.content:
                self._store(page, text, Trust(record.trust))
                self._sync_one(page)
            self._forget_earlier(page, self._required(page))
            return True

    def _forget_earlier(self, page: Page, record: Record) -> ForgetReceipt:
        stays = {_digest(line) for line in record.content.splitlines()}
        learned = {digest: ids for digest, ids in self.learned(page).items() if digest in stays}
        # Without a base, the text is read from its file again if the process dies before the end.
        self._agree({page.path: None})
        receipt = self._memory.forget(self.id_of(page))
        self._store_all(page, (record.content, Trust(record.trust), ""), learned=learned)
        self._sync_one(page)
        return receipt

    def read(self, page: Page, trust: Trust) -> None:
        """Store a file that a program has just written as the next version, with the trust of that program."""
        with self._locked():
            text = read_text(place_in(self._root, page.path))
            record = self._store(page, text, trust) if text.strip() else None
            self._agree({page.path: None if record is None else _agreed(record)})

    def retire(self, page: Page) -> None:
        """End a page without forgetting it: its text is no longer found; its history and `rollback` remain."""
        with self._locked():
            if self._record(page) is not None:
                self._store(page, RETIRED, Trust.AGENT)
            self._remove(page)

    def restore(self, page: Page) -> Path:
        """Write a deleted or emptied file again."""
        with self._locked():
            record = self._required(page)
            path = place_in(self._root, page.path)
            write_text(path, record.content)
            self._agree({page.path: _agreed(record)})
            return path

    def known(self, below: str = "") -> list[str]:
        """Return the paths of the synchronised pages in a folder."""
        return [path for path in self._state() if path.startswith(below)]

    # -- all pages -------------------------------------------------------------------------------------

    def sync(self, pages: Iterable[Page]) -> Synced:
        """Synchronise files and memories. A page that cannot be read does not stop the others."""
        doing = self._synced_all(pages)
        return Synced(*(tuple(dict.fromkeys(doing[name])) for name in Synced.__slots__))

    def _synced_all(self, pages: Iterable[Page]) -> _Doing:
        doing: _Doing = defaultdict(list)
        with self._locked():
            state = self._state()
            changed: dict[str, _Base | None] = {}
            try:
                for page in pages:
                    try:
                        base = self._synced(page, state.get(page.path), doing)
                    except LoomError as error:
                        doing["problems"].append(problem_of(page.path, self._root / page.path, error))
                        doing["unreadable"].append(str(error))
                        continue
                    if base != state.get(page.path):
                        changed[page.path] = base
            finally:
                if changed:
                    self._agree(changed)
        return doing

    def _sync_one(self, page: Page) -> None:
        doing = self._synced_all([page])
        if doing["unreadable"]:
            raise InvalidInput(doing["unreadable"][0])

    def _synced(self, page: Page, base: _Base | None, doing: _Doing) -> _Base | None:
        path = place_in(self._root, page.path)
        file = read_text(path) if exists(path) else None
        record = self._record(page)
        if file is not None:
            doing["problems"] += [f"{page.path}, line {line}: {what}" for line, what in flaws(file)]
            if has_conflict(file):
                doing["conflicts"].append(page.path)
        if exists(displaced_path(path)):
            file, record, base = self._recovered(page, path, file, record)
        if file is None:
            return self._without_file(page, base, record, doing)
        if record is None:
            return self._without_memory(page, base, file, doing)
        if file == record.content:
            return _agreed(record)
        if base is not None and not self._stands(page, base, record):
            base = None
        if base is not None and base.digest == _digest(file):
            return self._written(page, file, record, doing) if page.writable else base
        if not file.strip():
            doing["missing"].append(page.path)  # an emptied file is also a request to forget
            return base
        if not page.writable or (base is not None and base.version == record.version):
            doing["read"].append(page.path)
            doing["removed"] += [f"{page.path}#{one}" for one in removed_headings(record.content, file)]
            return _agreed(self._store(page, file, self._trust_of(page)))
        return self._merged(page, base, file, record, doing)

    def _without_file(self, page: Page, base: _Base | None, record: Record | None, doing: _Doing) -> _Base | None:
        if record is None:
            return None
        if base is None and page.writable:
            return self._written(page, None, record, doing)
        doing["missing"].append(page.path)
        return base

    def _without_memory(self, page: Page, base: _Base | None, file: str, doing: _Doing) -> _Base | None:
        if base is not None and base.digest == _digest(file) and page.writable and self._was_forgotten(base):
            self._remove(page)  # a forgotten record is in no file
            doing["forgotten"].append(page.path)
            return None
        if not file.strip():
            return None
        doing["read"].append(page.path)
        return _agreed(self._store(page, file, self._trust_of(page)))

    def _merged(self, page: Page, base: _Base | None, file: str, record: Record, doing: _Doing) -> _Base:
        """Merge after both sides changed. Each text becomes a version, and so does the merged one."""
        versions = {one.version: one.content for one in self.history(page)}
        if file in [text for version, text in versions.items() if base is not None and version > base.version]:
            # A killed process stored the edit, but did not write the merged text to the file.
            return self._written(page, file, record, doing)
        made = merged(versions.get(base.version, "") if base is not None else "", file, record.content)
        if made.conflicts:
            doing["conflicts"].append(page.path)
        doing["read"].append(page.path)
        return self._written(page, file, self._edited(page, file, made.text, record), doing)

    def _edited(self, page: Page, edit: str, made: str, record: Record) -> Record:
        """Store an edit of a file, and the text that results from merging it with the memory's version."""
        trust = self._trust_of(page)
        return self._store_all(page, (edit, trust, ""), (made, lower_trust(trust, record.trust), ""))

    def _written(self, page: Page, file: str | None, record: Record, doing: _Doing) -> _Base:
        """Write a version to the file. An edit that is saved at the same moment is merged too."""
        path = place_in(self._root, page.path)
        for _ in range(_TRIES):
            edit = replace_text(path, record.content, file)
            doing["written"].append(page.path)
            if edit is None:
                return _agreed(record)
            made = merged(file or "", edit, record.content)
            if made.conflicts:
                doing["conflicts"].append(page.path)
            file, record = record.content, self._edited(page, edit, made.text, record)
            displaced_path(path).unlink()
        raise InvalidInput(f"another program saves {path} continuously; sync again later")

    def _recovered(
        self, page: Page, path: Path, file: str | None, record: Record | None
    ) -> tuple[str | None, Record | None, _Base | None]:
        """Recover the text that a killed process had displaced. It is almost always a known version."""
        left = read_text(displaced_path(path))
        if left.strip() and left not in {one.content for one in self.history(page)} and left != file:
            text = merged("", left, file).text if file else left
            trust = self._trust_of(page)
            record = self._store_all(page, (left, trust, ""), (text, trust, ""))
            write_text(path, text)
            file = text
        displaced_path(path).unlink()
        return file, record, self._state().get(page.path)

    def _stands(self, page: Page, base: _Base, record: Record) -> bool:
        """Return whether the version on which both sides agreed is in the history, or was forgotten since. After the
        restore of a backup it may be neither; the file is then not overwritten."""
        if record.version == base.version and base.digest == _digest(record.content):
            return True
        return base[:2] in ((one.version, _digest(one.content)) for one in self.history(page)) or self._was_forgotten(
            base
        )

    def _was_forgotten(self, base: _Base) -> bool:
        """Return whether the version was forgotten. A memory that never had it, or lost it, deletes no file."""
        since = base.seq
        while changes := self._memory.store.changes(since):
            if any(one.kind == "forget" and one.record == base.seq for one in changes):
                return True
            since = changes[-1].seq
        return False

    def _store(self, page: Page, text: str, trust: Trust) -> Record:
        return self._store_all(page, (text, trust, ""))

    def _store_all(
        self, page: Page, *versions: tuple[str, Trust, str], learned: Mapping[str, Sequence[str]] = _NOTHING
    ) -> Record:
        """Store the next versions of a page in one transaction, each with its trust and the package it comes from.

        They enter the knowledge tier, since a page is too long for the window. The origins of lines learned in
        earlier versions are kept.
        """
        drafts = []
        before = self._memory.store.get(self.id_of(page))
        known = {**(_learned(before) if before else {}), **{line: [*ids] for line, ids in learned.items()}}
        origin = {_LEARNED: known} if known else {}
        for text, trust, package in versions:
            if not text.strip():
                raise InvalidInput(f"the text of {page.path} is empty; forget the page instead")
            if "\0" in text:
                raise InvalidInput(f"the text of {page.path} has a zero byte, which no editor could save")
            attributes = Attributes(
                name=self._memory.node_id,
                importance=page.importance,
                metadata={
                    **page.metadata,
                    "path": self._prefix + page.path,
                    **({"package": package} if package else {}),
                    **origin,
                },
                trust=trust,
                kind=PAGE,
                dimensions=page.dimensions,
            )
            drafts.append(self._memory.drafter.text(text, self.id_of(page), attributes, revises=True))
        self._memory.tiers.write(drafts, MemoryTier.L4)
        return self._required(page)

    def _record(self, page: Page) -> Record | None:
        """Return the newest version; None if there is none or the page has ended."""
        record = self._memory.store.get(self.id_of(page))
        return None if record is None or record.content == RETIRED else record

    def _required(self, page: Page) -> Record:
        record = self._memory.store.get(self.id_of(page))
        if record is None:
            raise NotFound(f"there is no page {page.path}")
        return record

    def _remove(self, page: Page) -> None:
        if page.writable:
            path = place_in(self._root, page.path)
            path.unlink(missing_ok=True)
            displaced_path(path).unlink(missing_ok=True)
        self._agree({page.path: None})

    def _trust_of(self, page: Page) -> Trust:
        return self.trust if page.trust is None else page.trust

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self._notes), locked(self._root):
            yield

    # -- what both sides agreed on ---------------------------------------------------------------------

    def _state(self) -> dict[str, _Base]:
        """Return the versions on which both sides agreed; none if the file is unreadable or belongs to another
        memory. Every page is then compared as if for the first time, and no text is lost."""
        found = {}
        for path, one in self._folders().get(self._prefix, {}).items():
            with contextlib.suppress(ValueError, TypeError):
                version, digest, seq = map(str, one)
                found[path] = _Base(int(version), digest, int(seq))
        return found

    def _folders(self) -> dict[str, dict[str, list[object]]]:
        """Return the agreed versions of all folders of these notes, by their prefixes."""
        path = self._notes / _STATE
        if not exists(path):
            return {}
        try:
            told = json.loads(read_text(path))
            folders: dict[str, dict[str, list[object]]] = told["pages"]
            is_of_this = (
                all(isinstance(one, dict) for one in folders.values()) and self._memory_name == told["memory"]
            )
        except (ValueError, TypeError, KeyError, AttributeError, InvalidInput):
            return {}
        return folders if is_of_this else {}

    @property
    def _memory_name(self) -> list[str]:
        return [self._memory.store.store_id, self._memory.store.namespace]

    def _agree(self, changed: dict[str, _Base | None]) -> None:
        folders = self._folders()
        pages = folders.setdefault(self._prefix, {})
        for path, base in changed.items():
            if base is None:
                pages.pop(path, None)
            else:
                pages[path] = [*base]
        write_text(
            self._notes / _STATE,
            json.dumps({"memory": self._memory_name, "pages": folders}, ensure_ascii=False, indent=1, sort_keys=True),
        )


def _agreed(record: Record) -> _Base:
    return _Base(record.version, _digest(record.content), record.seq)


def _learned(record: Record) -> dict[str, list[str]]:
    """Return the digests of the lines that a version learned from memories, with the ids of the memories."""
    found = (record.metadata or {}).get(_LEARNED)
    return dict(found) if isinstance(found, dict) else {}


def lower_trust(*trusts: str) -> Trust:
    """Return the lowest of several trusts, which is the trust of a text composed of several parts."""
    return max(map(Trust, trusts), key=_FROM_HIGHEST.index)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()
