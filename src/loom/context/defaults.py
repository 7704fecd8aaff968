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

QUESTION = BudgetConfig(l1_ratio=0.038, l2_ratio=0.038, l3_l4_ratio=0.81)
"""Without a session: what was recalled leads, and a few recent and important records stand beside it."""

CONVERSATION = BudgetConfig(l1_ratio=0.33, l2_ratio=0.075, l3_l4_ratio=0.47)
"""With a session: its turns, and what was recalled."""

# Without a session, only a few recent and important records are offered.
_FEW = 6


def default_orchestrator(
    manager: LoomMemory,
    *,
    session: str | None,
    sources: Iterable[object] = (),
    source_timeout_s: float = 2.0,
    prefix_policy: PrefixPolicy | None = None,
) -> ContextOrchestrator:
    """An orchestrator over one memory. `sources` come after the user's standing instructions and what was recalled,
    and before everything else."""
    few = None if session else _FEW
    if prefix_policy is None:
        prefix_policy = PrefixPolicy(low=manager.settings.rules.prompt_watermark.low)
    return ContextOrchestrator(
        manager.counter,
        [
            InstructionSource(manager),
            RecallSource(manager),
            *sources,
            L4FactSource(manager),
            *([ScopeSource(manager)] if isinstance(manager, MemoryManager) else []),
            L1RecentSource(manager, most=few),
            L2ImportantSource(manager, most=few),
            *([L3SummarySource(manager)] if session else []),
        ],
        config=CONVERSATION if session else QUESTION,
        source_timeout_s=source_timeout_s,
        layouts=LayoutStore(manager.store, manager.node_id),
        prefix_policy=prefix_policy,
    )
