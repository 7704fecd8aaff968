"""Trees and teams of nodes: containers, budgets, quality, synthesis, and the rule for dividing a task.

The scopes in which nodes share values are in `loom.fractal.memory`, next to `resolvers` and `sync`. A
`loom.memory.MemoryManager` includes them.
"""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.fractal.budget import (
        BudgetTracker,
        BudgetUsage,
        BudgetViolation,
        QualityEvaluator,
        QualityMetrics,
        RecursiveBudget,
    )
    from loom.fractal.container import NodeContainer
    from loom.fractal.synthesizer import ResultSynthesizer
    from loom.fractal.utils import estimate_task_complexity, should_use_fractal

__all__ = [
    "BudgetTracker",
    "BudgetUsage",
    "BudgetViolation",
    "NodeContainer",
    "QualityEvaluator",
    "QualityMetrics",
    "RecursiveBudget",
    "ResultSynthesizer",
    "estimate_task_complexity",
    "should_use_fractal",
]

_HOMES = {
    "loom.fractal.budget": (
        "BudgetTracker",
        "BudgetUsage",
        "BudgetViolation",
        "QualityEvaluator",
        "QualityMetrics",
        "RecursiveBudget",
    ),
    "loom.fractal.container": ("NodeContainer",),
    "loom.fractal.synthesizer": ("ResultSynthesizer",),
    "loom.fractal.utils": ("estimate_task_complexity", "should_use_fractal"),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
