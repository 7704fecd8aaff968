"""MemoryFactory: memories for the usual kinds of agent, by profile."""

from __future__ import annotations

from typing import Any

from loom.memory.core import LoomMemory

__all__ = ["MemoryFactory"]


class MemoryFactory:
    """Makes a `LoomMemory` with the profile for a kind of work. It also takes every option of `LoomMemory`."""

    @staticmethod
    def create_default(node_id: str = "default", **options: Any) -> LoomMemory:
        """Profile `loom`: four tiers ordered by importance."""
        return LoomMemory(node_id, profile="loom", **options)

    @staticmethod
    def create_for_chat(node_id: str = "default", **options: Any) -> LoomMemory:
        """Profile `chat`: more recent turns, ordinary messages admitted, eviction by recency."""
        return LoomMemory(node_id, profile="chat", **options)

    @staticmethod
    def create_for_task(node_id: str = "default", **options: Any) -> LoomMemory:
        """Profile `task`: a larger working tier that keeps records relevant to the current step."""
        return LoomMemory(node_id, profile="task", **options)
