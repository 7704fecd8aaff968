"""Nodes in trees and teams: containers, budgets, quality, synthesis, and when to divide a task.

The scopes in which nodes share memory are in `loom.fractal.memory`, with `resolvers` and `sync` beside it; a
`loom.memory.MemoryManager` has them built in.
"""

from __future__ import annotations

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

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
    "container": ("NodeContainer",),
    "synthesizer": ("ResultSynthesizer",),
    "utils": ("estimate_task_complexity", "should_use_fractal"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'loom.fractal' has no attribute {name!r}")
    from importlib import import_module

    home = next((module for module, names in _HOMES.items() if name in names), "budget")
    value = getattr(import_module(f"loom.fractal.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
