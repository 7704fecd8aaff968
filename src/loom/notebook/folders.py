"""Folders of other programs as pages: Claude Code's auto-memory, Obsidian vaults, AGENTS.md and CLAUDE.md.

Their files are read, and written back if the folder is writable; unchanged parts stay the same byte for byte. Their
content is data of another origin: its trust is `unknown` unless the user has trusted the folder, and always `unknown`
for AGENTS.md and CLAUDE.md. None of it becomes an instruction.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from loom.errors import InvalidInput
from loom.memory.manager import MemoryManager
from loom.notebook.note_files import exists, locked, place_in, read_text, write_text
from loom.notebook.pages import Page, Pages, Synced
from loom.storage.contract import Dimensions, Record
from loom.trust import is_trusted
from loom.types import Trust

__all__ = ["FolderKind", "OtherFolder", "front_matter"]

INDEX = "MEMORY.md"
_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md")
_RULES = Dimensions("subject", "state", "type")
_STATE = Dimensions("world", "state", "instance")
_TYPES = {"user": _RULES, "feedback": _RULES, "project": _STATE, "reference": _STATE}
_FIELD = re.compile(r"(\s*)([A-Za-z_][\w-]*):\s*(.*?)\s*")
_SLUG = re.compile(r"[^\w]+")
# A longer front matter is taken for text.
_MOST_LINES = 200


class FolderKind(StrEnum):
    """The kind of a folder."""

    CLAUDE_MEMORY = "claude-memory"
    """Claude Code's auto-memory: a file for each memory, with a front matter, and the index MEMORY.md."""
    OBSIDIAN = "obsidian"
    """A vault of notes, in folders."""
    INSTRUCTIONS = "instructions"
    """AGENTS.md and CLAUDE.md of a project. They are never written."""


class OtherFolder:
    """A folder of another program. `pages` offers history, rollback and forgetting of its files.

    With `writable`, changes in the memory are written to the files; otherwise the files are only read.
    """

    def __init__(
        self,
        root: Path,
        memory: MemoryManager,
        notes: Path,
        *,
        kind: FolderKind | None = None,
        writable: bool = False,
    ) -> None:
        if not root.is_dir():
            raise InvalidInput(f"{root} is not a folder")
        self.root = root.resolve()
        self.kind = _kind_of(self.root) if kind is None else FolderKind(kind)
        if writable and self.kind is FolderKind.INSTRUCTIONS:
            raise InvalidInput("AGENTS.md and CLAUDE.md are read-only: they are their author's instructions")
        self.writable = writable
        place = hashlib.blake2b(os.fsencode(self.root), digest_size=4).hexdigest()
        # The name is for people; the digest of the path distinguishes two folders of the same name.
        self.name = f"{self.root.name}-{place}"
        self.pages = Pages(self.root, memory, notes, f"{self.name}:")

    def sync(self) -> Synced:
        """Synchronise the files of the folder with their memories."""
        found = list(self._found())
        gone = set(self.pages.known()) - {page.path for page in found}
        done = self.pages.sync([*found, *map(self._page, sorted(gone))])
        return Synced(*(tuple(f"{self.name}:{one}" for one in getattr(done, name)) for name in Synced.__slots__))

    def page(self, path: str) -> Page:
        """Return the page of a file, by its path in the folder."""
        place_in(self.root, path)
        return self._page(path)

    def add(self, name: str, text: str, *, description: str = "", memory_type: str = "project") -> Record:
        """Add a memory to a Claude Code folder: a file with a front matter, and a line in MEMORY.md."""
        if self.kind is not FolderKind.CLAUDE_MEMORY or not self.writable:
            raise InvalidInput("memories can only be added to a folder of Claude Code attached with writable=True")
        if memory_type not in _TYPES:
            raise InvalidInput(f"memory_type must be one of {', '.join(_TYPES)}, not {memory_type!r}")
        title, hook = " ".join(name.split()), " ".join(description.split())
        slug = _SLUG.sub("-", title.lower()).strip("-")[:80]
        if not slug or not text.strip():
            raise InvalidInput("a memory needs a name with letters or digits, and a text")
        path = f"{slug}.md"
        front = (
            f"---\nname: {_scalar(title)}\ndescription: {_scalar(hook)}\nmetadata:\n  type: {memory_type}\n---\n\n"
        )
        with locked(self.root):
            if exists(self.root / path):
                raise InvalidInput(f"{path} exists already; change it instead")
            # Write the file before the page, which takes its place in the dimensions from the front matter.
            write_text(self.root / path, f"{front}{text.strip()}\n")
            self.pages.read(self._page(path), Trust.AGENT)
            index = self._page(INDEX)
            known = self.pages.text(index) or "# Memory\n"
            line = f"- [{title}]({path})" + (f" — {hook}" if hook else "")
            self.pages.write(index, f"{known.rstrip()}\n{line}\n")
        return self.pages.history(self._page(path))[-1]

    def watched(self) -> list[Path]:
        """Return the folders whose files are pages of this one."""
        if self.kind is not FolderKind.OBSIDIAN:
            return [self.root]
        return [Path(folder) for folder, _ in _folders_of(self.root)]

    def _found(self) -> Iterator[Page]:
        if self.kind is FolderKind.INSTRUCTIONS:
            # Often one of these files is a link to another one.
            yield from (
                self._page(name)
                for name in _INSTRUCTIONS
                if exists(self.root / name) and not (self.root / name).is_symlink()
            )
        elif self.kind is FolderKind.CLAUDE_MEMORY:
            names = (name for name in os.listdir(self.root) if name.endswith(".md") and not name.startswith("."))
            yield from map(self._page, sorted(names))
        else:
            yield from map(self._page, sorted(_notes_of(self.root)))

    def _page(self, path: str) -> Page:
        if self.kind is FolderKind.INSTRUCTIONS:
            return Page(path, _RULES, 0.6, Trust.UNKNOWN, writable=False, metadata={"origin": self.kind})
        told = _told(self.root / path)
        metadata = {
            "origin": str(self.kind),
            **{name: told[name] for name in ("name", "description") if told.get(name)},
        }
        if self.kind is FolderKind.OBSIDIAN:
            return Page(path, _STATE, 0.5, None, self.writable, metadata)
        kind = told.get("metadata.type", told.get("type", ""))
        if kind in _TYPES:
            metadata["type"] = kind
        # A model writes these files, not the user.
        trust = Trust.AGENT if is_trusted(str(self.root), None, os.environ) else Trust.UNKNOWN
        importance = 0.3 if path == INDEX else 0.6
        return Page(path, _TYPES.get(kind, _STATE), importance, trust, self.writable, metadata)


def front_matter(text: str) -> dict[str, str]:
    """Return the fields of a front matter; empty if there is none. Fields of a nested mapping are `outer.inner`.

    Plain and quoted values are read. Any other YAML stays text, and no objects are built from it.
    """
    lines = text.splitlines()[:_MOST_LINES]
    if not lines or lines[0].rstrip() != "---":
        return {}
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    found: dict[str, str] = {}
    outer = ""
    for line in lines[1:end] if end else ():
        field = _FIELD.fullmatch(line)
        if field is None:
            continue
        indented, name, value = field[1], field[2], field[3]
        if not indented:
            outer = "" if value else f"{name}."
        if value:
            found[f"{outer if indented else ''}{name}"] = _unquoted(value)
    return found


def _told(path: Path) -> Mapping[str, str]:
    """Return the front matter of a file; empty if the file cannot be read, which `sync` reports."""
    try:
        return front_matter(read_text(path)) if exists(path) else {}
    except InvalidInput:
        return {}


def _kind_of(root: Path) -> FolderKind:
    """Return the kind of a folder, recognised by its content."""
    if (root / ".obsidian").is_dir():
        return FolderKind.OBSIDIAN
    if exists(root / INDEX):
        return FolderKind.CLAUDE_MEMORY
    if any(exists(root / name) for name in _INSTRUCTIONS):
        return FolderKind.INSTRUCTIONS
    kinds: Any = ", ".join(FolderKind)
    raise InvalidInput(f"{root} has no .obsidian, {INDEX}, AGENTS.md or CLAUDE.md; name its kind with kind: {kinds}")


def _folders_of(root: Path) -> Iterator[tuple[str, list[str]]]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield folder, files


def _notes_of(root: Path) -> Iterator[str]:
    """Yield the paths of the notes of a vault. Hidden folders and links are left out."""
    for folder, files in _folders_of(root):
        for name in files:
            path = Path(folder, name)
            if name.endswith(".md") and not name.startswith(".") and not path.is_symlink():
                yield path.relative_to(root).as_posix()


def _unquoted(value: str) -> str:
    if len(value) < 2 or value[0] != value[-1] or value[0] not in "\"'":
        return value
    inner = value[1:-1]
    return inner.replace("''", "'") if value[0] == "'" else re.sub(r"\\(.)", r"\1", inner)


def _scalar(text: str) -> str:
    """Return a text as a value of YAML that is read back as it was."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if re.fullmatch(r"[^\W\d_][\w ,.'()-]*", text) and ": " not in text else f'"{escaped}"'
