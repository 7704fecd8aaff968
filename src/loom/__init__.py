"""loom: a durable, token-budgeted memory for LLM agents in one local file.

    import loom

    memory = loom.open("agent.loom")
    memory.remember("We chose the authorization-code flow.", role="user", session_id="s1")
    memory.recall("Which flow did we choose?")

Names are loaded when they are first used, so that importing costs next to nothing.
"""

from __future__ import annotations

# Not from typing: importing that alone takes as long as starting Python.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from loom.context.orchestrator import Context, ContextOrchestrator
    from loom.errors import LoomError
    from loom.events import EventBus
    from loom.everyday import Memory
    from loom.everyday import open_memory as open
    from loom.memory.types import Hit, MemoryTier, Receipt
    from loom.protocol import Task, TaskStatus
    from loom.storage.base import Dimensions, Filter, Record, Retention
    from loom.storage.snapshot_staging import restore

__all__ = [
    "Context",
    "ContextOrchestrator",
    "Dimensions",
    "EventBus",
    "Filter",
    "Hit",
    "LoomError",
    "Memory",
    "MemoryTier",
    "Receipt",
    "Record",
    "Retention",
    "Task",
    "TaskStatus",
    "open",
    "restore",
]

__version__ = "0.1.0"

_HOMES = {
    "Context": "loom.context.orchestrator",
    "ContextOrchestrator": "loom.context.orchestrator",
    "Dimensions": "loom.storage.base",
    "EventBus": "loom.events",
    "Filter": "loom.storage.base",
    "Hit": "loom.memory.types",
    "LoomError": "loom.errors",
    "Memory": "loom.everyday",
    "MemoryTier": "loom.memory.types",
    "Receipt": "loom.memory.types",
    "Record": "loom.storage.base",
    "Retention": "loom.storage.base",
    "Task": "loom.protocol",
    "TaskStatus": "loom.protocol",
    "open": "loom.everyday",
    "restore": "loom.storage.snapshot_staging",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'loom' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), "open_memory" if name == "open" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
