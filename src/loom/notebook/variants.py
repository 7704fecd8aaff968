"""Variants of an agent's knowledge, one of which is in use, compared by the success of their tasks.

The main knowledge is `agent_knowledge.md`; a variant is `variants/<name>.md` beside it. A small file names the one in
use, and every finished session notes its name and version.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loom.errors import InvalidInput, NotFound
from loom.notebook.note_files import exists, locked, read_text, write_text
from loom.notebook.pages import Page, Pages
from loom.notebook.sessions import Sessions
from loom.storage.contract import Dimensions, Record

__all__ = ["KNOWLEDGE", "MAIN", "Trial", "Variants"]

MAIN = "main"
"""The name of the main knowledge, which is not a variant."""

KNOWLEDGE = Dimensions("subject", "state", "type")
"""The place of knowledge in the three dimensions."""

_NAME = re.compile(r"[^\W_][\w-]{0,63}")
_IN_USE = "variant_in_use"
_IMPORTANCE = 0.8


@dataclass(frozen=True, slots=True)
class Trial:
    """The sessions that used one version of a variant, or (version 0) any version, and the outcomes of their tasks.

    Sessions without a verdict count as neither succeeded nor failed. `rounds` is their mean number of model calls.
    """

    name: str
    version: int
    in_use: bool
    sessions: int
    succeeded: int
    failed: int
    rounds: float

    @property
    def success_rate(self) -> float | None:
        """The share of the judged sessions that succeeded, None if none was judged."""
        judged = self.succeeded + self.failed
        return self.succeeded / judged if judged else None


class Variants:
    """The variants of one agent's knowledge."""

    def __init__(self, folder: str, root: Path, pages: Callable[[], Pages], sessions: Callable[[], Sessions]) -> None:
        self._folder = folder
        self._root = root
        self._pages = pages
        self._sessions = sessions

    @property
    def in_use(self) -> str:
        """The name of the knowledge in use."""
        path = self._root / self._folder / _IN_USE
        if not exists(path):
            return MAIN
        name = read_text(path).strip()
        if name != MAIN and not exists(self._root / self.page(name).path):
            raise NotFound(f"{path} names the variant {name!r}, which does not exist; there are {self._listed()}")
        return name

    def names(self) -> list[str]:
        """Return the names of all variants, the main knowledge first."""
        found = sorted(path.stem for path in (self._root / self._folder / "variants").glob("*.md"))
        return [MAIN, *(name for name in found if _NAME.fullmatch(name))]

    def page(self, name: str) -> Page:
        """Return the page of a variant."""
        if name == MAIN:
            return Page(f"{self._folder}/agent_knowledge.md", KNOWLEDGE, _IMPORTANCE)
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"the name of a variant must have only letters, digits, '_' and '-', not {name!r}")
        return Page(f"{self._folder}/variants/{name}.md", KNOWLEDGE, _IMPORTANCE)

    def keep(self, name: str, text: str | None = None) -> Record:
        """Store a variant: a copy of the knowledge in use, or `text`. An existing variant gets a new version."""
        if name == MAIN:
            raise InvalidInput("'main' is the knowledge itself; give the variant another name")
        pages = self._pages()
        return pages.write(self.page(name), pages.text(self.page(self.in_use)) if text is None else text)

    def use(self, name: str) -> None:
        """Use another variant from now on: for prompts, for new knowledge and in the notes of sessions."""
        if name not in self.names():
            raise NotFound(f"there is no variant {name!r}; there are {self._listed()}")
        folder = self._root / self._folder
        with locked(folder):
            write_text(folder / _IN_USE, f"{name}\n")

    def diff(self, one: str, other: str) -> str:
        """Return the difference between two variants, as a unified diff."""
        pages = self._pages()
        before, after = (pages.text(self.page(name)).splitlines(keepends=True) for name in (one, other))
        return "".join(difflib.unified_diff(before, after, one, other))

    def compare(self, *, versions: bool = False) -> list[Trial]:
        """Return the trials of every variant, or of every version of each. Reads all sessions."""
        counts: dict[tuple[str, int], list[float]] = (
            {} if versions else {(name, 0): [0.0] * 4 for name in self.names()}
        )
        for record in self._sessions().each():
            told = record.metadata or {}
            name = told.get("knowledge")
            if not isinstance(name, str):
                continue
            count = counts.setdefault((name, told["knowledge_version"] if versions else 0), [0.0] * 4)
            outcome = told.get("succeeded")
            for at, value in enumerate((1, outcome is True, outcome is False, told.get("rounds", 0))):
                count[at] += value
        in_use = self.in_use
        return [
            Trial(name, version, name == in_use, int(all_), int(good), int(bad), rounds / all_ if all_ else 0.0)
            for (name, version), (all_, good, bad, rounds) in sorted(counts.items())
        ]

    def _listed(self) -> str:
        return ", ".join(self.names())
