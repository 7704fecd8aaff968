"""The types of the memory, under the name that the design documents give them.

They live in `loom.types`, and hits in `loom.recall.hits`.
"""

from __future__ import annotations

from loom.fractal.memory import MemoryEntry, MemoryScope
from loom.recall.hits import Hit
from loom.types import (
    AccessRecord,
    Fact,
    FactType,
    MemoryQuery,
    MemoryStrategyType,
    MemoryTier,
    MemoryType,
    MemoryUnit,
    Receipt,
    StoredSummary,
    TaskSummary,
    Trust,
)

__all__ = [
    "AccessRecord",
    "Fact",
    "FactType",
    "Hit",
    "MemoryEntry",
    "MemoryQuery",
    "MemoryScope",
    "MemoryStrategyType",
    "MemoryTier",
    "MemoryType",
    "MemoryUnit",
    "Receipt",
    "StoredSummary",
    "TaskSummary",
    "Trust",
]
