"""Resolvers of conflicts: a node and an ancestor share different values under one key.

A resolver is a pure function of the two entries. `MemorySyncManager` calls it and writes the result with a version
check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from loom.errors import InvalidInput
from loom.fractal.memory import MemoryEntry

__all__ = ["ChildWinsResolver", "ConflictResolver", "MergeResolver", "ParentWinsResolver", "deep_merge"]


class ConflictResolver(Protocol):
    """Decides between two values. The content and the metadata of the result are used."""

    def resolve(self, parent: MemoryEntry, child: MemoryEntry) -> MemoryEntry: ...


@dataclass(frozen=True, slots=True)
class ParentWinsResolver:
    """Keeps the value of the parent."""

    def resolve(self, parent: MemoryEntry, child: MemoryEntry) -> MemoryEntry:
        return parent


@dataclass(frozen=True, slots=True)
class ChildWinsResolver:
    """Keeps the value of the child."""

    def resolve(self, parent: MemoryEntry, child: MemoryEntry) -> MemoryEntry:
        return child


@dataclass(frozen=True, slots=True)
class MergeResolver:
    """Merges both values key by key at any depth. The preferred side wins if two values cannot be merged."""

    prefer: Literal["child", "parent"] = "child"

    def __post_init__(self) -> None:
        if self.prefer not in ("child", "parent"):
            raise InvalidInput(f"prefer is {self.prefer!r}; it must be child or parent")

    def resolve(self, parent: MemoryEntry, child: MemoryEntry) -> MemoryEntry:
        weak, strong = (parent, child) if self.prefer == "child" else (child, parent)
        return replace(
            child,
            content=deep_merge(weak.content, strong.content),
            metadata=deep_merge(weak.metadata, strong.metadata),
        )


def deep_merge(weak: Any, strong: Any) -> Any:
    """Merge mappings key by key at any depth. For other values, return the strong one. Neither argument is changed.

    A list counts as one value: its items do not show whether two lists should be joined.
    """
    if not isinstance(weak, Mapping) or not isinstance(strong, Mapping):
        return strong
    return {**weak, **strong} | {name: deep_merge(weak[name], strong[name]) for name in weak if name in strong}
