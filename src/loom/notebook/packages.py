"""Packages of knowledge: an agent's knowledge as a folder of Markdown that other agents import.

A package is a folder with `package.json` (format, name, agent, and the SHA-256 of every file) and Markdown files. An
imported package stays separate, under `.notes/<agent>/packages/<name>`, or is merged into the agent's own knowledge.
A later version of a package is merged with the edits made since.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom.errors import InvalidInput
from loom.notebook.edits import disagreements
from loom.notebook.note_files import exists, locked, read_text, write_text
from loom.notebook.pages import Page, Pages
from loom.notebook.variants import KNOWLEDGE
from loom.trust import is_trusted
from loom.types import Trust

__all__ = ["Package", "PackageImport", "export_package", "import_package"]

FORMAT = "loom-knowledge"
_VERSION = 1
_DESCRIPTION = "package.json"
_MOST_FILES = 1000
_NAME = re.compile(r"[^\W_][\w.-]{0,63}")
_FILE = re.compile(r"[^\W_][\w.-]{0,120}\.md")


@dataclass(frozen=True, slots=True)
class Package:
    """A package in a folder: its name, the agent that wrote it, and the names of its files."""

    name: str
    agent: str
    folder: Path
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PackageImport:
    """The result of an import, by the paths of pages. Conflicts are marked in the file until they are resolved.

    `disagreements` are pairs of lines, of the agent's own knowledge and of the package, that are nearly the same.
    """

    package: Package
    merged: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    disagreements: tuple[tuple[str, str], ...] = ()


def export_package(pages: Pages, files: dict[str, Page], target: Path, *, name: str, agent: str) -> Package:
    """Write pages as a package, replacing an earlier one. Refuses a folder with other files."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"the name of a package must have only letters, digits, '_', '-' and '.', not {name!r}")
    if exists(target) and not target.is_dir():
        raise InvalidInput(f"{target} is not a folder; name the folder for the package")
    if target.is_dir() and any(target.iterdir()) and not exists(target / _DESCRIPTION):
        raise InvalidInput(f"{target} has other files; name a new folder, or one with a package")
    texts = {file: text for file, page in files.items() if (text := pages.text(page)).strip()}
    if not texts:
        raise InvalidInput(f"{agent!r} has no knowledge to export yet")
    with locked(target):
        gone = set(_described(target)["files"]) - texts.keys() if exists(target / _DESCRIPTION) else set()
        for file, text in texts.items():
            write_text(target / file, text)
        digests = {file: _digest(text) for file, text in sorted(texts.items())}
        told = {"format": FORMAT, "version": _VERSION, "name": name, "agent": agent, "files": digests}
        write_text(target / _DESCRIPTION, json.dumps(told, ensure_ascii=False, indent=1) + "\n")
        for file in gone:
            (target / file).unlink(missing_ok=True)
    return Package(name, agent, target, tuple(digests))


def import_package(pages: Pages, source: Path, *, notes: str, own: dict[str, Page], merge: bool) -> PackageImport:
    """Import a package into the notes of an agent; with `merge`, into its own pages of the same names.

    Its text counts as unverified unless the user has trusted the folder of the package.
    """
    told = _described(source)
    name = told["name"]
    texts = {file: _checked_text(source, file, digest) for file, digest in told["files"].items()}
    trust = Trust.AGENT if is_trusted(str(source), None, os.environ) else Trust.UNKNOWN
    known = [line for page in own.values() for line in pages.text(page).splitlines()]
    merged, conflicts, disagreeing = [], [], []
    for file, text in texts.items():
        if merge:
            page = own.get(file) or Page(f"{notes}/knowledge/{file}", KNOWLEDGE)
        else:
            page = Page(f"{notes}/packages/{name}/{file}", KNOWLEDGE, trust=trust)
            disagreeing += disagreements(known, text.splitlines())
        result = pages.merge(page, text, trust=trust, package=name, joins=merge)
        merged.append(page.path)
        if result.conflicts:
            conflicts.append(page.path)
    return PackageImport(
        Package(name, told["agent"], source, tuple(texts)), tuple(merged), tuple(conflicts), tuple(disagreeing)
    )


def _described(folder: Path) -> dict[str, Any]:
    """Return the checked description of a package."""
    path = folder / _DESCRIPTION
    if not exists(path):
        raise InvalidInput(f"{folder} is not a package of knowledge: it has no {_DESCRIPTION}")
    try:
        told = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise InvalidInput(f"{path} does not describe a package of knowledge (format {FORMAT!r})")
    if told.get("version") != _VERSION:
        raise InvalidInput(f"{path} has version {told.get('version')!r}; this version of loom reads {_VERSION}")
    name, agent, files = told.get("name"), told.get("agent"), told.get("files")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(agent, str):
        raise InvalidInput(f"{path}: a package needs a name and an agent of letters, digits, '_', '-' and '.'")
    if not isinstance(files, dict) or not 1 <= len(files) <= _MOST_FILES:
        raise InvalidInput(f"{path}: a package must have 1 to {_MOST_FILES:,} files")
    for file, digest in files.items():
        if not _FILE.fullmatch(file) or not isinstance(digest, str):
            raise InvalidInput(f"{path}: {file[:80]!r} is not the name of a Markdown file in the package")
    return told


def _checked_text(folder: Path, file: str, digest: str) -> str:
    text = read_text(folder / file)
    if _digest(text) != digest:
        raise InvalidInput(f"{folder / file} does not match {_DESCRIPTION}: it was changed; export the package again")
    if not text.strip():
        raise InvalidInput(f"{folder / file} is empty; export the package again")
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
