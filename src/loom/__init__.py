"""loom: a durable, token-budgeted memory for LLM agents in one local file.

    import loom

    memory = loom.open("agent.loom")
    memory.remember("We chose the authorization-code flow.", role="user", session_id="s1")
    memory.recall("Which flow did we choose?")

Names are loaded at first use, so the import is cheap.
"""

from __future__ import annotations

# Not from typing: importing typing takes as long as starting Python.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from loom.agent.loop import Agent
    from loom.context.orchestrator import Context, ContextOrchestrator
    from loom.errors import LoomError
    from loom.events import EventBus
    from loom.everyday import Memory
    from loom.everyday import open_memory as open
    from loom.protocol import Task, TaskStatus
    from loom.recall.hits import Hit
    from loom.snapshots.staging import restore
    from loom.storage.contract import Dimensions, Filter, Record, Retention
    from loom.trust import trust_folder
    from loom.types import MemoryTier, Receipt

__all__ = [
    "Agent",
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
    "trust_folder",
]

__version__ = "0.1.0"

_HOMES = {
    "Agent": "loom.agent.loop",
    "Context": "loom.context.orchestrator",
    "ContextOrchestrator": "loom.context.orchestrator",
    "Dimensions": "loom.storage.contract",
    "EventBus": "loom.events",
    "Filter": "loom.storage.contract",
    "Hit": "loom.recall.hits",
    "LoomError": "loom.errors",
    "Memory": "loom.everyday",
    "MemoryTier": "loom.types",
    "Receipt": "loom.types",
    "Record": "loom.storage.contract",
    "Retention": "loom.storage.contract",
    "Task": "loom.protocol",
    "TaskStatus": "loom.protocol",
    "open": "loom.everyday",
    "restore": "loom.snapshots.staging",
    "trust_folder": "loom.trust",
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
