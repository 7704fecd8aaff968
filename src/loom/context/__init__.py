"""Prompts built from memory under a hard token budget, with the reason for each item."""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.context.allocation import (
        BudgetAllocation,
        BudgetConfig,
        ContextBudgeter,
        FocusAllocation,
        ModelPreset,
        check_focus_hard_limit,
        model_preset,
        reallocate_focus_space,
    )
    from loom.context.dialogue import CompactedMessages, compact_messages, original_messages, should_compact
    from loom.context.findings import Findings
    from loom.context.items import Candidate, ContextItem, DroppedItem, Place, SourceReport
    from loom.context.layout import LayoutStore
    from loom.context.orchestrator import Context, ContextOrchestrator, PrefixPolicy
    from loom.context.prompts import build_minimal_prompt, fit_task_state
    from loom.context.rendering import MessageConverter
    from loom.context.sources import (
        CallableSource,
        ContextSource,
        InstructionSource,
        KnowledgeBaseProvider,
        KnowledgeContextSource,
        KnowledgeItem,
        L1RecentSource,
        L2ImportantSource,
        L3SummarySource,
        L4FactSource,
        PinnedSource,
        RecallSource,
        ScopeSource,
        SharedPoolSource,
    )
    from loom.context.strategies import (
        ContextManager,
        ContextStrategy,
        EventCandidate,
        EventWeights,
        PriorityContextStrategy,
        SlidingWindowStrategy,
        score_events,
    )
    from loom.context.truncation import ImportanceScore, SmartTruncator, TruncationResult, TruncationStrategy

__all__ = [
    "BudgetAllocation",
    "BudgetConfig",
    "CallableSource",
    "Candidate",
    "CompactedMessages",
    "Context",
    "ContextBudgeter",
    "ContextItem",
    "ContextManager",
    "ContextOrchestrator",
    "ContextSource",
    "ContextStrategy",
    "DroppedItem",
    "EventCandidate",
    "EventWeights",
    "Findings",
    "FocusAllocation",
    "ImportanceScore",
    "InstructionSource",
    "KnowledgeBaseProvider",
    "KnowledgeContextSource",
    "KnowledgeItem",
    "L1RecentSource",
    "L2ImportantSource",
    "L3SummarySource",
    "L4FactSource",
    "LayoutStore",
    "MessageConverter",
    "ModelPreset",
    "PinnedSource",
    "Place",
    "PrefixPolicy",
    "PriorityContextStrategy",
    "RecallSource",
    "ScopeSource",
    "SharedPoolSource",
    "SlidingWindowStrategy",
    "SmartTruncator",
    "SourceReport",
    "TruncationResult",
    "TruncationStrategy",
    "build_minimal_prompt",
    "check_focus_hard_limit",
    "compact_messages",
    "fit_task_state",
    "model_preset",
    "original_messages",
    "reallocate_focus_space",
    "score_events",
    "should_compact",
]

_HOMES = {
    "allocation": (
        "BudgetAllocation",
        "BudgetConfig",
        "ContextBudgeter",
        "FocusAllocation",
        "ModelPreset",
        "check_focus_hard_limit",
        "model_preset",
        "reallocate_focus_space",
    ),
    "dialogue": (
        "CompactedMessages",
        "compact_messages",
        "original_messages",
        "should_compact",
    ),
    "findings": ("Findings",),
    "items": (
        "Candidate",
        "ContextItem",
        "DroppedItem",
        "Place",
        "SourceReport",
    ),
    "layout": ("LayoutStore",),
    "orchestrator": (
        "Context",
        "ContextOrchestrator",
        "PrefixPolicy",
    ),
    "prompts": (
        "build_minimal_prompt",
        "fit_task_state",
    ),
    "rendering": ("MessageConverter",),
    "sources": (
        "CallableSource",
        "ContextSource",
        "KnowledgeBaseProvider",
        "KnowledgeContextSource",
        "KnowledgeItem",
        "InstructionSource",
        "L1RecentSource",
        "L2ImportantSource",
        "L3SummarySource",
        "L4FactSource",
        "PinnedSource",
        "RecallSource",
        "ScopeSource",
        "SharedPoolSource",
    ),
    "strategies": (
        "ContextManager",
        "ContextStrategy",
        "EventCandidate",
        "EventWeights",
        "PriorityContextStrategy",
        "SlidingWindowStrategy",
        "score_events",
    ),
    "truncation": (
        "ImportanceScore",
        "SmartTruncator",
        "TruncationResult",
        "TruncationStrategy",
    ),
}

__getattr__, __dir__ = lazy_names(__name__, {f"loom.context.{home}": names for home, names in _HOMES.items()})
