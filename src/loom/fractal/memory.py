"""Scopes: who may see a value that a node writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

__all__ = ["ACCESS_POLICIES", "AccessPolicy", "MemoryEntry", "MemoryScope"]


class MemoryScope(StrEnum):
    """How far a value reaches from the node that wrote it."""

    LOCAL = "local"
    SHARED = "shared"
    INHERITED = "inherited"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What a scope allows: whether a node may write there, and whether its descendants see what it wrote."""

    writable: bool
    seen_by_children: bool


ACCESS_POLICIES: Mapping[MemoryScope, AccessPolicy] = MappingProxyType(
    {
        MemoryScope.LOCAL: AccessPolicy(writable=True, seen_by_children=False),
        MemoryScope.SHARED: AccessPolicy(writable=True, seen_by_children=True),
        MemoryScope.INHERITED: AccessPolicy(writable=False, seen_by_children=True),
        MemoryScope.GLOBAL: AccessPolicy(writable=True, seen_by_children=True),
    }
)


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """A versioned value in a scope. `str(entry)` is its content."""

    id: str
    content: Any
    scope: MemoryScope = MemoryScope.LOCAL
    version: int = 1
    created_by: str = ""
    updated_by: str = ""
    parent_version: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.content)
