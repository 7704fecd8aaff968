"""Scopes: who may see a value that a node writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["MemoryEntry", "MemoryScope"]


class MemoryScope(StrEnum):
    """How far a value reaches from the node that wrote it."""

    LOCAL = "local"
    SHARED = "shared"
    INHERITED = "inherited"
    GLOBAL = "global"


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
