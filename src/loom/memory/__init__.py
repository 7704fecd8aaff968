"""What is kept: tokens, text, embeddings, recall, and one agent's memory over a store."""

from __future__ import annotations

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from loom.memory.core import LoomMemory
    from loom.memory.embeddings import EmbeddingProvider
    from loom.memory.factory import MemoryFactory
    from loom.memory.manager import MemoryManager
    from loom.memory.quotas import LayerCounters, LayerQuota
    from loom.memory.sanitizers import ContentSanitizer
    from loom.memory.tokenizer import AnthropicCounter, EstimateCounter, TiktokenCounter, TokenCounter
    from loom.memory.types import (
        Fact,
        FactType,
        Hit,
        MemoryQuery,
        MemoryStrategyType,
        MemoryTier,
        MemoryType,
        MemoryUnit,
        Receipt,
        TaskSummary,
        Trust,
    )
    from loom.memory.vector_store import InMemoryVectorStore, VectorStoreProvider

__all__ = [
    "AnthropicCounter",
    "ContentSanitizer",
    "EmbeddingProvider",
    "EstimateCounter",
    "Fact",
    "FactType",
    "Hit",
    "InMemoryVectorStore",
    "LayerCounters",
    "LayerQuota",
    "LoomMemory",
    "MemoryFactory",
    "MemoryManager",
    "MemoryQuery",
    "MemoryStrategyType",
    "MemoryTier",
    "MemoryType",
    "MemoryUnit",
    "Receipt",
    "TaskSummary",
    "TiktokenCounter",
    "TokenCounter",
    "Trust",
    "VectorStoreProvider",
]

_HOMES = {
    "core": ("LoomMemory",),
    "factory": ("MemoryFactory",),
    "manager": ("MemoryManager",),
    "quotas": ("LayerCounters", "LayerQuota"),
    "embeddings": ("EmbeddingProvider",),
    "sanitizers": ("ContentSanitizer",),
    "tokenizer": ("AnthropicCounter", "EstimateCounter", "TiktokenCounter", "TokenCounter"),
    "vector_store": ("InMemoryVectorStore", "VectorStoreProvider"),
}

# Names that the design documents also look for here. They live in `loom.context`, above this package, and are found
# by their name alone, when they are asked for.
_IN_CONTEXT = (
    "BudgetConfig",
    "ContextBudgeter",
    "ContextManager",
    "ContextOrchestrator",
    "ContextSource",
    "ContextStrategy",
    "EventCandidate",
    "KnowledgeContextSource",
    "MessageConverter",
    "PriorityContextStrategy",
    "SlidingWindowStrategy",
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _IN_CONTEXT:
        return getattr(import_module("loom.context"), name)
    if name not in __all__:
        raise AttributeError(f"module 'loom.memory' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "types")
    value = getattr(import_module(f"loom.memory.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
