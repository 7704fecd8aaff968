"""One agent's memory: tiers, scopes, pools and background derivation over one store.

`LoomMemory` and `MemoryManager` compose the rooms below. Modules here carry the names that the design documents give
them; where the code belongs lower, they re-export it. Building prompts is the work of `loom.context`.
"""

from __future__ import annotations

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from loom.knowledge.extraction import FactExtractor
    from loom.knowledge.fact_merging import L4Compressor
    from loom.knowledge.fidelity import FidelityChecker
    from loom.knowledge.summarizer import Summarizer
    from loom.memory.compaction import CompactionConfig, CompactionResult, MemoryCompactor
    from loom.memory.core import LoomMemory
    from loom.memory.factory import MemoryFactory
    from loom.memory.manager import MemoryManager
    from loom.memory.segment_store import InMemorySegmentStore, LogSegmentStore, MemorySegment, SegmentStore
    from loom.memory.shared_pool import PoolChange, PoolEntry, SharedMemoryPool, VersionConflictError
    from loom.memory.vector_store import InMemoryVectorStore, VectorStoreProvider
    from loom.models.embedders import EmbeddingProvider
    from loom.models.language_model import HttpLanguageModel, LanguageModel
    from loom.recall.hits import Hit
    from loom.recall.reranking import MemoryReranker, RerankSignal
    from loom.text.sanitizer import ContentSanitizer
    from loom.text.tokens import AnthropicCounter, EstimateCounter, TiktokenCounter, TokenCounter
    from loom.tiers.quotas import LayerCounters, LayerQuota
    from loom.types import (
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
    "AnthropicCounter",
    "CompactionConfig",
    "CompactionResult",
    "ContentSanitizer",
    "EmbeddingProvider",
    "EstimateCounter",
    "Fact",
    "FactExtractor",
    "FactType",
    "FidelityChecker",
    "Hit",
    "HttpLanguageModel",
    "InMemorySegmentStore",
    "InMemoryVectorStore",
    "L4Compressor",
    "LanguageModel",
    "LayerCounters",
    "LayerQuota",
    "LogSegmentStore",
    "LoomMemory",
    "MemoryCompactor",
    "MemoryFactory",
    "MemoryManager",
    "MemoryQuery",
    "MemoryReranker",
    "MemorySegment",
    "MemoryStrategyType",
    "MemoryTier",
    "MemoryType",
    "MemoryUnit",
    "PoolChange",
    "PoolEntry",
    "Receipt",
    "RerankSignal",
    "SegmentStore",
    "SharedMemoryPool",
    "StoredSummary",
    "Summarizer",
    "TaskSummary",
    "TiktokenCounter",
    "TokenCounter",
    "Trust",
    "VectorStoreProvider",
    "VersionConflictError",
]

_HOMES = {
    "knowledge.extraction": ("FactExtractor",),
    "knowledge.fact_merging": ("FidelityChecker", "L4Compressor"),
    "knowledge.summarizer": ("Summarizer",),
    "memory.compaction": ("CompactionConfig", "CompactionResult", "MemoryCompactor"),
    "memory.core": ("LoomMemory",),
    "memory.factory": ("MemoryFactory",),
    "memory.manager": ("MemoryManager",),
    "memory.segment_store": ("InMemorySegmentStore", "LogSegmentStore", "MemorySegment", "SegmentStore"),
    "memory.shared_pool": ("PoolChange", "PoolEntry", "SharedMemoryPool", "VersionConflictError"),
    "memory.vector_store": ("InMemoryVectorStore", "VectorStoreProvider"),
    "models.embedders": ("EmbeddingProvider",),
    "models.language_model": ("HttpLanguageModel", "LanguageModel"),
    "recall.hits": ("Hit",),
    "recall.reranking": ("MemoryReranker", "RerankSignal"),
    "text.sanitizer": ("ContentSanitizer",),
    "text.tokens": ("AnthropicCounter", "EstimateCounter", "TiktokenCounter", "TokenCounter"),
    "tiers.quotas": ("LayerCounters", "LayerQuota"),
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
        return from_context(__name__, name, _IN_CONTEXT)
    if name not in __all__:
        raise AttributeError(f"module 'loom.memory' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "types")
    value = getattr(import_module(f"loom.{home}"), name)
    globals()[name] = value
    return value


def from_context(module: str, name: str, names: Collection[str]) -> Any:
    """One of these names of `loom.context`, for the module here that the documents look for it in."""
    from importlib import import_module

    if name not in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return getattr(import_module("loom.context"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
