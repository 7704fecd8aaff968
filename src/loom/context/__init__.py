"""What is used: prompts built from memory under a hard token budget, with the reasons for what is in them."""

from __future__ import annotations

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from loom.context.orchestrator import Context, ContextOrchestrator

__all__ = ["Context", "ContextOrchestrator"]

_HOMES = {
    "orchestrator": ("Context", "ContextOrchestrator"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'loom.context' has no attribute {name!r}")
    from importlib import import_module

    home = next(module for module, names in _HOMES.items() if name in names)
    value = getattr(import_module(f"loom.context.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
