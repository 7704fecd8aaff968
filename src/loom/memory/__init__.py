"""What is kept: tokens, text, embeddings, recall, and one agent's memory over a store."""

from __future__ import annotations

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from loom.memory.compaction import CompactionConfig, CompactionResult, MemoryCompactor
    from loom.memory.compression import FidelityChecker, L4Compressor
    from loom.memory.core import LoomMemory
    from loom.memory.embeddings import EmbeddingProvider
    from loom.memory.fact_extractor import FactExtractor
    from loom.memory.factory import MemoryFactory
    from loom.memory.language_model import HttpLanguageModel, LanguageModel
    from loom.memory.manager import MemoryManager
    from loom.memory.quotas import LayerCounters, LayerQuota
    from loom.memory.reranker import MemoryReranker, RerankSignal
    from loom.memory.sanitizers import ContentSanitizer
    from loom.memory.segment_store import InMemorySegmentStore, LogSegmentStore, MemorySegment, SegmentStore
    from loom.memory.shared_pool import PoolChange, PoolEntry, SharedMemoryPool, VersionConflictError
    from loom.memory.summarizer import Summarizer
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
        StoredSummary,
        TaskSummary,
        Trust,
    )
    from loom.memory.vector_store import InMemoryVectorStore, VectorStoreProvider

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
    "compaction": ("CompactionConfig", "CompactionResult", "MemoryCompactor"),
    "compression": ("FidelityChecker", "L4Compressor"),
    "core": ("LoomMemory",),
    "fact_extractor": ("FactExtractor",),
    "language_model": ("HttpLanguageModel", "LanguageModel"),
    "reranker": ("MemoryReranker", "RerankSignal"),
    "segment_store": ("InMemorySegmentStore", "LogSegmentStore", "MemorySegment", "SegmentStore"),
    "summarizer": ("Summarizer",),
    "factory": ("MemoryFactory",),
    "manager": ("MemoryManager",),
    "quotas": ("LayerCounters", "LayerQuota"),
    "embeddings": ("EmbeddingProvider",),
    "sanitizers": ("ContentSanitizer",),
    "shared_pool": ("PoolChange", "PoolEntry", "SharedMemoryPool", "VersionConflictError"),
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
