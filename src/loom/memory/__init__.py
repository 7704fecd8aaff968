"""One agent's memory: tiers, scopes, pools and background derivation over one store.

`LoomMemory` and `MemoryManager` combine the packages below this one. Modules here have the names that the design
documents give them; some re-export code of a lower package. Building prompts is the work of `loom.context`.
"""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
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
        AccessRecord,
        Fact,
        FactType,
        Instruction,
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
    "Instruction",
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
    "loom.knowledge.extraction": ("FactExtractor",),
    "loom.knowledge.fact_merging": ("FidelityChecker", "L4Compressor"),
    "loom.knowledge.summarizer": ("Summarizer",),
    "loom.memory.compaction": ("CompactionConfig", "CompactionResult", "MemoryCompactor"),
    "loom.memory.core": ("LoomMemory",),
    "loom.memory.factory": ("MemoryFactory",),
    "loom.memory.manager": ("MemoryManager",),
    "loom.memory.segment_store": ("InMemorySegmentStore", "LogSegmentStore", "MemorySegment", "SegmentStore"),
    "loom.memory.shared_pool": ("PoolChange", "PoolEntry", "SharedMemoryPool", "VersionConflictError"),
    "loom.memory.vector_store": ("InMemoryVectorStore", "VectorStoreProvider"),
    "loom.models.embedders": ("EmbeddingProvider",),
    "loom.models.language_model": ("HttpLanguageModel", "LanguageModel"),
    "loom.recall.hits": ("Hit",),
    "loom.recall.reranking": ("MemoryReranker", "RerankSignal"),
    "loom.text.sanitizer": ("ContentSanitizer",),
    "loom.text.tokens": ("AnthropicCounter", "EstimateCounter", "TiktokenCounter", "TokenCounter"),
    "loom.tiers.quotas": ("LayerCounters", "LayerQuota"),
    "loom.types": (
        "AccessRecord",
        "Fact",
        "Instruction",
        "FactType",
        "MemoryQuery",
        "MemoryStrategyType",
        "MemoryTier",
        "MemoryType",
        "MemoryUnit",
        "Receipt",
        "StoredSummary",
        "TaskSummary",
        "Trust",
    ),
    # The design documents look for these here too. They live above this package, and are found by their name alone.
    "loom.context": (
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
    ),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
