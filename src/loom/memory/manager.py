"""MemoryManager: an agent's tiers, its scopes, and its place below a parent.

manager = MemoryManager("agent-1", l1_token_budget=8000)
manager.add_task(task)
await manager.add_context("task:123:content", "...")
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from loom.checks import checked_instance
from loom.errors import InvalidInput
from loom.fractal.memory import AccessPolicy, MemoryEntry, MemoryScope, ScopedMemory, Scopes, in_thread
from loom.fractal.sync import MemorySyncManager
from loom.memory.core import LoomMemory
from loom.memory.verbs import MemoryOptions
from loom.recall.hits import Hit
from loom.storage.contract import Filter, Store
from loom.types import MemoryQuery

if TYPE_CHECKING:
    from loom.fractal.resolvers import ConflictResolver
    from loom.memory.shared_pool import SharedMemoryPool

__all__ = ["MemoryManager"]


class MemoryManager(LoomMemory, ScopedMemory):
    """All memory of a node: the tiers of a `LoomMemory`, and values under keys in four scopes.

    LOCAL belongs to the node. SHARED is written by a node and read as INHERITED by all nodes below it, always in its
    current version; they cannot write it. GLOBAL is common to the whole tree. A child without its own store uses its
    parent's, and without its own `shared_pool` its parent's pool. `policies` restrict this for a whole tree, and are
    given at its root. `sync_manager` syncs with the `parent`.
    """

    def __init__(
        self,
        node_id: str | None = None,
        parent: MemoryManager | None = None,
        *,
        store: Store | str | Path | None = None,
        shared_pool: SharedMemoryPool | None = None,
        policies: Mapping[MemoryScope, AccessPolicy] | None = None,
        **options: Unpack[MemoryOptions],
    ) -> None:
        if shared_pool is not None and (
            isinstance(shared_pool, type) or not callable(getattr(shared_pool, "list_entries", None))
        ):
            raise InvalidInput(
                f"shared_pool is {shared_pool!r}; it must be a SharedMemoryPool, such as "
                "SharedMemoryPool('team', store=memory.store)"
            )
        if parent is not None:
            checked_instance(parent, MemoryManager, "a parent")
            if store is None:
                store = parent.store
                if "embedder" not in options and "embedding_provider" not in options:
                    options["embedder"] = parent.embedder or "none"
            if store is parent.store and (node_id is None or node_id == parent.node_id):
                raise InvalidInput(f"a child needs a node_id other than its parent's {parent.node_id!r}")
        super().__init__(node_id, store=store, **options)
        self.parent = parent
        self.shared_pool: SharedMemoryPool | None = (
            parent.shared_pool if shared_pool is None and parent is not None else shared_pool
        )
        try:
            self.scopes = Scopes(
                self.node_id,
                self.store,
                None if parent is None else parent.scopes,
                policies=policies,
                reconfigure=options.get("reconfigure", False),
            )
        except BaseException:
            self.close()
            raise
        self.sync_manager = MemorySyncManager(self)

    @property
    def root(self) -> MemoryManager:
        """The root of this manager's tree."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    @property
    def _loom_memory(self) -> Self:
        """This manager, for code that expects the tiers here."""
        return self

    # -- sharing ---------------------------------------------------------------------------------------

    async def add_context(
        self, key: str, content: Any, *, scope: MemoryScope | str = MemoryScope.SHARED
    ) -> MemoryEntry:
        """Store a value under a key for this node and all nodes below it. `read` returns it."""
        return await self.write(key, content, scope)

    async def write_with_version_check(
        self, key: str, content: Any, expected_version: int, scope: MemoryScope | str = MemoryScope.SHARED
    ) -> MemoryEntry:
        """Write only if the key still has this version (0: it does not exist); else raise `VersionConflictError`."""
        return await self.sync_manager.write_with_version_check(key, content, expected_version, scope)

    async def sync_from_parent(self, resolver: ConflictResolver | None = None) -> list[MemoryEntry]:
        """The shared values of the nodes above that are new or changed since the last call; see
        `MemorySyncManager`."""
        return await self.sync_manager.sync_from_parent(resolver)

    async def sync_to_parent(self, resolver: ConflictResolver | None = None) -> list[MemoryEntry]:
        """Pass this node's shared values to its parent; see `MemorySyncManager`."""
        return await self.sync_manager.sync_to_parent(resolver)

    # -- asking ----------------------------------------------------------------------------------------

    async def query(self, question: str | MemoryQuery, *, limit: int | None = None) -> list[Hit]:
        """The memories of this node that answer a question, best first, from every tier and the log."""
        asked = question if isinstance(question, MemoryQuery) else MemoryQuery(question)
        wanted = Filter(
            node=self.node_id,
            tier=None if asked.tier is None else str(asked.tier),
            kind=None if asked.type is None else str(asked.type),
            min_importance=asked.min_importance or None,
            session_id=asked.session_id,
        )
        return await in_thread(self.recall, asked.query, limit=asked.limit if limit is None else limit, wanted=wanted)
