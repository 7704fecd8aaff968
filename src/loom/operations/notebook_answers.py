"""The answers of the operations on a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from loom.operations.answers import Answer

if TYPE_CHECKING:
    from loom.notebook import pages, variants

__all__ = [
    "Difference",
    "Disagreement",
    "NotebookFile",
    "NotebookFiles",
    "PackageFolder",
    "PackageMerged",
    "Synced",
    "TrialItem",
    "Trials",
    "VariantUsed",
]


@dataclass(frozen=True, slots=True)
class Synced(Answer):
    """The files that were read and written, by path, and the questions that wait for an answer."""

    read: tuple[str, ...]
    written: tuple[str, ...]
    conflicts: tuple[str, ...]
    missing: tuple[str, ...]
    removed: tuple[str, ...]
    forgotten: tuple[str, ...]
    problems: tuple[str, ...]

    @classmethod
    def of(cls, done: pages.Synced) -> Synced:
        return cls(done.read, done.written, done.conflicts, done.missing, done.removed, done.forgotten, done.problems)

    @property
    def ok(self) -> bool:
        return not (self.conflicts or self.missing or self.problems)


@dataclass(frozen=True, slots=True)
class NotebookFile:
    """A page: its newest version, the author, and its size."""

    path: str
    version: int
    trust: str
    tokens: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NotebookFiles(Answer):
    rows = "files"
    agent: str
    variant: str
    files: tuple[NotebookFile, ...]


@dataclass(frozen=True, slots=True)
class Difference(Answer):
    """A unified diff; empty if nothing differs."""

    diff: str


@dataclass(frozen=True, slots=True)
class TrialItem:
    """The sessions of a variant, of one version or (version 0) of all. The success rate is of judged sessions."""

    name: str
    version: int
    in_use: bool
    sessions: int
    succeeded: int
    failed: int
    success_rate: float | None
    rounds: float

    @classmethod
    def of(cls, one: variants.Trial) -> TrialItem:
        return cls(
            one.name,
            one.version,
            one.in_use,
            one.sessions,
            one.succeeded,
            one.failed,
            one.success_rate,
            round(one.rounds, 2),
        )


@dataclass(frozen=True, slots=True)
class Trials(Answer):
    rows = "trials"
    trials: tuple[TrialItem, ...]


@dataclass(frozen=True, slots=True)
class VariantUsed(Answer):
    """The variant in use now, and the one before."""

    name: str
    before: str


@dataclass(frozen=True, slots=True)
class PackageFolder(Answer):
    name: str
    agent: str
    folder: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A line of the agent's own knowledge and a similar line of the package."""

    own: str
    package: str


@dataclass(frozen=True, slots=True)
class PackageMerged(Answer):
    name: str
    merged: tuple[str, ...]
    conflicts: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]

    @property
    def ok(self) -> bool:
        return not self.conflicts
