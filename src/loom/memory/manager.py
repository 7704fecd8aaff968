"""MemoryManager: an agent's tiers, its scopes, and its place below a parent.

manager = MemoryManager("agent-1", l1_token_budget=8000)
manager.add_task(task)
await manager.add_context("task:123:content", "...")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from loom.errors import InvalidInput
from loom.fractal.memory import ACCESS_POLICIES, MemoryEntry, MemoryScope
from loom.memory.core import LoomMemory
from loom.memory.types import Hit, MemoryQuery
from loom.storage.base import Entry, Filter
from loom.storage.sqlite import SqliteStore

__all__ = ["MemoryManager"]

P = ParamSpec("P")
R = TypeVar("R")

# GLOBAL belongs to the whole tree, so to no node of it.
_NOBODY = ""


class MemoryManager(LoomMemory):
    """One entrance to everything a node keeps: the tiers of a `LoomMemory`, and values under keys in four scopes.

    LOCAL is the node's own. SHARED is written by a node and seen by all below it, who read it as INHERITED: always
    as it is now, and never to be written from below. GLOBAL is one for the whole tree. A child without a store of
    its own shares its parent's.
    """

    def __init__(
        self,
        node_id: str | None = None,
        parent: MemoryManager | None = None,
        *,
        store: SqliteStore | str | Path | None = None,
        **options: Any,
    ) -> None:
        if parent is not None:
            if not isinstance(parent, MemoryManager):
                raise InvalidInput(f"a parent is a MemoryManager, not {type(parent).__name__}")
            if store is None:
                store = parent.store
                if "embedder" not in options and "embedding_provider" not in options:
                    options["embedder"] = parent.embedder or "none"
            if store is parent.store and (node_id is None or node_id == parent.node_id):
                raise InvalidInput(f"a child needs a node_id other than its parent's {parent.node_id!r}")
        super().__init__(node_id, store=store, **options)
        self._parent = parent
        self._synced: dict[tuple[str, str], int] = {}

    @property
    def parent(self) -> MemoryManager | None:
        """The manager above this one, if any."""
        return self._parent

    @property
    def root(self) -> MemoryManager:
        """The top of the tree that this manager is in."""
        found = self
        while found._parent is not None:
            found = found._parent
        return found

    @property
    def _loom_memory(self) -> Self:
        """The tiers, for code that looks for them there."""
        return self

    # -- scopes ----------------------------------------------------------------------------------------

    async def write(
        self,
        key: str,
        content: Any,
        scope: MemoryScope | str = MemoryScope.LOCAL,
        *,
        expected_version: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> MemoryEntry:
        """Write the next version of a key. With `expected_version` (0: must not exist) only if it matches."""
        _check_version(expected_version)
        return await _in_thread(self._write, key, content, _known_scope(scope), expected_version, metadata)

    async def read(self, key: str, scope: MemoryScope | str | None = None) -> MemoryEntry | None:
        """The value under a key, or None; `str(entry)` is its content.

        Without a scope it is looked for in LOCAL, SHARED, INHERITED and GLOBAL, in this order.
        """
        wanted = tuple(MemoryScope) if scope is None else (_known_scope(scope),)
        return await _in_thread(self._read, key, wanted)

    async def list_by_scope(self, scope: MemoryScope | str, *, limit: int = 100) -> list[MemoryEntry]:
        """The values of a scope that this node sees, last updated first."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidInput(f"limit is {limit!r}; it must be a whole number of 1 or more")
        return await _in_thread(self.scope_entries, scope, limit=limit)

    def scope_entries(self, scope: MemoryScope | str, *, limit: int = 100) -> list[MemoryEntry]:
        """The same as `list_by_scope`, for callers without an event loop."""
        return self._list(_known_scope(scope), limit)

    async def delete(
        self, key: str, scope: MemoryScope | str = MemoryScope.LOCAL, *, expected_version: int | None = None
    ) -> bool:
        """Remove every version of a key that this node may write; False where there is none."""
        _check_version(expected_version)
        return await _in_thread(self._delete, key, _known_scope(scope), expected_version)

    async def write_with_version_check(
        self, key: str, content: Any, expected_version: int, scope: MemoryScope | str = MemoryScope.SHARED
    ) -> MemoryEntry:
        """Write only if the key is still at this version (0: if it does not exist); else `VersionConflictError`."""
        return await self.write(key, content, scope, expected_version=expected_version)

    async def sync_from_parent(self, *, limit: int = 1000) -> list[MemoryEntry]:
        """What the nodes above share that is new or changed since the last call, last updated first.

        INHERITED is read where it lies, so nothing is copied and nothing can be stale; this tells what to look at.
        """
        inherited = await self.list_by_scope(MemoryScope.INHERITED, limit=limit)
        changed = [one for one in inherited if self._synced.get((one.id, one.created_by)) != one.version]
        self._synced.update({(one.id, one.created_by): one.version for one in changed})
        return changed

    async def add_context(
        self, key: str, content: Any, *, scope: MemoryScope | str = MemoryScope.LOCAL
    ) -> MemoryEntry:
        """Keep a value that the tasks of this node share, under a key; `read` gives it back."""
        return await self.write(key, content, scope)

    def _write(
        self,
        key: str,
        content: Any,
        scope: MemoryScope,
        expected_version: int | None,
        metadata: Mapping[str, Any] | None,
    ) -> MemoryEntry:
        store, owner = self._writable_place(key, scope)
        with store.transaction() as transaction:
            entry = transaction.put_entry(
                key,
                content,
                writer=self.node_id,
                scope=scope,
                owner=owner,
                expected_version=expected_version,
                metadata=metadata,
            )
        return _as_entry(entry, scope)

    def _delete(self, key: str, scope: MemoryScope, expected_version: int | None) -> bool:
        store, owner = self._writable_place(key, scope)
        with store.transaction() as transaction:
            return transaction.delete_entry(key, scope=scope, owner=owner, expected_version=expected_version)

    def _writable_place(self, key: str, scope: MemoryScope) -> tuple[SqliteStore, str]:
        if not isinstance(key, str) or not key:
            raise InvalidInput(f"a key is a text of at least one character, not {key!r}")
        if not ACCESS_POLICIES[scope].writable:
            raise InvalidInput(
                f"{scope} values belong to a parent and cannot be changed here; write {key!r} as local to override "
                "it for this node, or write it as shared where it comes from"
            )
        return self._place(scope)

    def _place(self, scope: MemoryScope) -> tuple[SqliteStore, str]:
        """Where a scope is kept: the whole tree's at its root."""
        return (self.root.store, _NOBODY) if scope is MemoryScope.GLOBAL else (self.store, self.node_id)

    def _read(self, key: str, scopes: tuple[MemoryScope, ...]) -> MemoryEntry | None:
        for scope in scopes:
            if scope is MemoryScope.INHERITED:
                found = None if self._parent is None else self._parent._shared(key)
            else:
                store, owner = self._place(scope)
                entry = store.entry(key, scope=scope, owner=owner)
                found = None if entry is None else _as_entry(entry, scope)
            if found is not None:
                return found
        return None

    def _shared(self, key: str) -> MemoryEntry | None:
        """What a child inherits under a key: from the nearest ancestor that shares it."""
        entry = self.store.entry(key, scope=MemoryScope.SHARED, owner=self.node_id)
        if entry is not None:
            return _as_entry(entry, MemoryScope.INHERITED)
        return None if self._parent is None else self._parent._shared(key)

    def _list(self, scope: MemoryScope, limit: int) -> list[MemoryEntry]:
        if scope is not MemoryScope.INHERITED:
            store, owner = self._place(scope)
            return [_as_entry(entry, scope) for entry in store.entries(scope=scope, owner=owner, limit=limit)]
        found: dict[str, Entry] = {}
        ancestor = self._parent
        while ancestor is not None:
            for entry in ancestor.store.entries(scope=MemoryScope.SHARED, owner=ancestor.node_id, limit=limit):
                found.setdefault(entry.key, entry)  # the nearest ancestor's counts
            ancestor = ancestor._parent
        newest = sorted(found.values(), key=lambda entry: (-entry.updated_at.timestamp(), entry.key))
        return [_as_entry(entry, scope) for entry in newest[:limit]]

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
        count = asked.limit if limit is None else limit
        return await _in_thread(self.recall, asked.query, limit=count, wanted=wanted)


async def _in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run what may wait for the disk or another writer, without blocking the event loop."""
    import asyncio

    return await asyncio.to_thread(work, *args, **kwargs)


def _check_version(version: object) -> None:
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise InvalidInput(f"expected_version is a whole number from 0 (must not exist), not {version!r}")


def _known_scope(scope: MemoryScope | str) -> MemoryScope:
    try:
        return MemoryScope(scope)
    except ValueError as error:
        raise InvalidInput(f"there is no scope {scope!r}; the scopes are {', '.join(MemoryScope)}") from error


def _as_entry(entry: Entry, scope: MemoryScope) -> MemoryEntry:
    return MemoryEntry(
        id=entry.key,
        content=entry.content,
        scope=scope,
        version=entry.version,
        created_by=entry.created_by,
        updated_by=entry.updated_by,
        parent_version=entry.version if scope is MemoryScope.INHERITED else None,
        metadata=entry.metadata,
    )
