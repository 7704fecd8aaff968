"""Context sources and budgets, under the name that document 002 gives. They live in `loom.context`, above.

Names are resolved when they are first used, so that importing `loom.memory` does not import `loom.context`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.memory import from_context

if TYPE_CHECKING:
    from loom.context import BudgetConfig, ContextBudgeter, ContextSource, EventCandidate, MessageConverter

__all__ = ["BudgetConfig", "ContextBudgeter", "ContextSource", "EventCandidate", "MessageConverter"]


def __getattr__(name: str) -> Any:
    return from_context(__name__, name, __all__)
