"""The four tiers behind one interface: add, retrieve, evict, size, clear; token budget and usage."""

from __future__ import annotations

from loom.memory.layers.base import MemoryLayer
from loom.memory.layers.per_tier import (
    CircularBufferLayer,
    KnowledgeLayer,
    PriorityQueueLayer,
    PriorityTokenLayer,
    SummaryLayer,
    TokenBudgetLayer,
)

__all__ = [
    "CircularBufferLayer",
    "KnowledgeLayer",
    "MemoryLayer",
    "PriorityQueueLayer",
    "PriorityTokenLayer",
    "SummaryLayer",
    "TokenBudgetLayer",
]
