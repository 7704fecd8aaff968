"""The default sources and shares of `memory.context`, with and without a conversation."""

from __future__ import annotations

from collections.abc import Iterable

from loom.context.allocation import BudgetConfig
from loom.context.layout import LayoutStore
from loom.context.orchestrator import ContextOrchestrator, PrefixPolicy
from loom.context.sources import (
    InstructionSource,
    L1RecentSource,
    L2ImportantSource,
    L3SummarySource,
    L4FactSource,
    RecallSource,
    ScopeSource,
)
from loom.memory.core import LoomMemory
from loom.memory.manager import MemoryManager

__all__ = ["CONVERSATION", "QUESTION", "default_orchestrator"]

QUESTION = BudgetConfig(l1_ratio=0.01, l2_ratio=0.01, l3_l4_ratio=0.866)
"""Without a session: recalled memories, and a few recent and important records in a large prompt or if recall finds
little. With 0.038 for each of these, REALTALK's prompts of 2,000 tokens held 0.7 points less of the evidence."""

CONVERSATION = BudgetConfig(l1_ratio=0.33, l2_ratio=0.075, l3_l4_ratio=0.47)
"""With a session: its turns, and recalled memories."""

# The number of recent and of important records that are offered without a session.
_FEW = 6


def default_orchestrator(
    manager: LoomMemory,
    *,
    session: str | None,
    sources: Iterable[object] = (),
    source_timeout_s: float = 2.0,
    prefix_policy: PrefixPolicy | None = None,
    layouts: LayoutStore | None = None,
) -> ContextOrchestrator:
    """An orchestrator over one memory. `sources` come after the user's standing instructions and recalled memories,
    and before everything else.

    Derived facts come from conversations with an assistant. An `L4FactSource` among the sources replaces the one that
    offers these.
    """
    given = [*sources]
    has_facts = any(isinstance(one, L4FactSource) and one.memory is manager for one in given)
    few = None if session else _FEW
    if prefix_policy is None:
        prefix_policy = PrefixPolicy(low=manager.settings.rules.prompt_watermark.low)
    return ContextOrchestrator(
        manager.counter,
        [
            InstructionSource(manager),
            RecallSource(manager),
            *given,
            *([] if has_facts else [L4FactSource(manager, assisted=True)]),
            *([ScopeSource(manager)] if isinstance(manager, MemoryManager) else []),
            L1RecentSource(manager, most=few),
            L2ImportantSource(manager, most=few),
            *([L3SummarySource(manager)] if session else []),
        ],
        config=CONVERSATION if session else QUESTION,
        source_timeout_s=source_timeout_s,
        layouts=layouts or LayoutStore(manager.store, manager.node_id),
        prefix_policy=prefix_policy,
    )
