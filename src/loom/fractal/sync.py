"""MemorySyncManager: compares the shared values of a node and its parent without losing updates.

Reading needs no sync: INHERITED values are read from their owner. Syncing reports new values of ancestors to a node,
and reconciles keys that both share by a `ConflictResolver` and compare-and-set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from loom.errors import InvalidInput, NotPermitted, VersionConflictError
from loom.fractal.memory import (
    RECONCILED_WITH,
    TAKEN_FROM,
    MemoryEntry,
    MemoryScope,
    Scoped,
    Scopes,
    as_memory_entry,
    in_thread,
)

if TYPE_CHECKING:
    from loom.fractal.resolvers import ConflictResolver
    from loom.storage.contract import Entry, EntryChange, Store

__all__ = ["MemorySyncManager"]

_SHARED = MemoryScope.SHARED
_PAGE = 1000


class MemorySyncManager:
    """Syncing for one node. `memory` is a `FractalMemory`, a `MemoryManager` or another object with scopes.

    `resolver` is the default of the calls. Without one, both sides keep their values.
    """

    def __init__(self, memory: Scoped, resolver: ConflictResolver | None = None) -> None:
        self.memory = memory
        self._resolver = resolver
        self._lock = Lock()
        self._looked_up_to: dict[int, int] = {}
        self._told: dict[str, tuple[str, int]] = {}

    async def write_with_version_check(
        self, key: str, content: Any, expected_version: int, scope: MemoryScope | str = _SHARED
    ) -> MemoryEntry:
        """Write if the key is at this version (0: does not exist), else raise `VersionConflictError`."""
        if expected_version is None:
            raise InvalidInput("a version check needs the version that is expected; 0 for a key that must not exist")
        return await in_thread(self.memory.scopes.write, key, content, scope, expected_version=expected_version)

    async def sync_from_parent(self, resolver: ConflictResolver | None = None) -> list[MemoryEntry]:
        """Return the shared values of ancestors that are new or changed since the last call, last updated first.

        With a resolver, a key that this node shares too, and that has changed above since the last comparison, gets
        the resolved value. The resolved entries of this node follow in the result.
        """
        return await in_thread(self._from_parent, resolver or self._resolver)

    async def sync_to_parent(self, resolver: ConflictResolver | None = None) -> list[MemoryEntry]:
        """Copy the shared values of this node to its parent, which shares them from then on. Returns the changes.

        The resolver decides on a key that the parent shares with another value. Without one, all other keys are
        copied, and then `VersionConflictError` is raised.
        """
        return await in_thread(self._to_parent, resolver or self._resolver)

    # -- down -------------------------------------------------------------------------------------------

    def _from_parent(self, resolver: ConflictResolver | None) -> list[MemoryEntry]:
        scopes = self.memory.scopes
        found = self._news(scopes)
        if resolver is not None:
            found += filter(None, [self._reconcile(scopes, key, resolver) for key in _shared_keys(scopes)])
        return found

    def _news(self, scopes: Scopes) -> list[MemoryEntry]:
        with self._lock:
            changed = {
                key
                for level, (store, owners) in enumerate(scopes.above)
                for key in self._changed_keys(level, store, owners)
            }
            news: list[Entry] = []
            for key in changed:
                entry = scopes.inherited(key)
                if entry is None:
                    self._told.pop(key, None)
                elif self._told.get(key) != (entry.owner, entry.version):
                    self._told[key] = (entry.owner, entry.version)
                    news.append(entry)
        news.sort(key=lambda entry: (-entry.updated_at.timestamp(), entry.key))
        return [as_memory_entry(entry, MemoryScope.INHERITED) for entry in news]

    def _changed_keys(self, level: int, store: Store, owners: tuple[str, ...]) -> list[str]:
        newest = store.last_entry_change()
        keys = [change.key for change in _changes(store, self._looked_up_to.get(level, 0), owners)]
        # Changes made in between are read again next time, and recognised.
        self._looked_up_to[level] = newest
        return keys

    def _reconcile(self, scopes: Scopes, key: str, resolver: ConflictResolver) -> MemoryEntry | None:
        while True:
            child, parent = scopes.own(key), scopes.inherited(key)
            if child is None or parent is None or child.content == parent.content:
                return None
            compared = [parent.owner, parent.version]
            if child.metadata.get(RECONCILED_WITH) == compared:
                return None
            decided = resolver.resolve(
                as_memory_entry(parent, MemoryScope.INHERITED), as_memory_entry(child, _SHARED)
            )
            try:
                return _put(scopes, scopes.node_id, key, decided, child.version, {RECONCILED_WITH: compared})
            except VersionConflictError:
                continue  # another writer was first: decide again on the new value

    # -- up ---------------------------------------------------------------------------------------------

    def _to_parent(self, resolver: ConflictResolver | None) -> list[MemoryEntry]:
        scopes = self.memory.scopes
        if scopes.parent is None:
            return []
        if not scopes.policies[_SHARED].propagates_up:
            raise NotPermitted("shared values do not go up in this tree: its policies forbid it")
        gone_up: list[MemoryEntry] = []
        conflict: VersionConflictError | None = None
        for key in _shared_keys(scopes):
            try:
                entry = self._hand_up(scopes, scopes.parent, key, resolver)
            except VersionConflictError as error:
                conflict = conflict or error
                continue
            if entry is not None:
                gone_up.append(entry)
        if conflict is not None:
            raise conflict
        return gone_up

    def _hand_up(
        self, scopes: Scopes, parent: Scopes, key: str, resolver: ConflictResolver | None
    ) -> MemoryEntry | None:
        while True:
            child, above = scopes.own(key), parent.own(key)
            if child is None:
                return None
            offered = as_memory_entry(child, _SHARED)
            taken: Mapping[str, int] = {}
            if above is not None:
                taken = above.metadata.get(TAKEN_FROM, {})
                if taken.get(scopes.node_id) == child.version or child.content == above.content:
                    return None
                if above.updated_by != scopes.node_id:  # not a value that this node copied up before
                    if resolver is None:
                        raise VersionConflictError(key, 0, above.version)
                    offered = resolver.resolve(as_memory_entry(above, _SHARED), offered)
            notes = {TAKEN_FROM: {**taken, scopes.node_id: child.version}}
            present = 0 if above is None else above.version
            try:
                return _put(parent, scopes.node_id, key, offered, present, notes)
            except VersionConflictError:
                continue  # another writer was first: decide again on the new value


def _put(
    place: Scopes, writer: str, key: str, decided: MemoryEntry, expected_version: int, notes: Mapping[str, Any]
) -> MemoryEntry:
    place.check_writable(_SHARED)
    with place.store.transaction() as transaction:
        entry = transaction.put_entry(
            key,
            decided.content,
            writer=writer,
            scope=_SHARED,
            owner=place.node_id,
            expected_version=expected_version,
            metadata={**decided.metadata, **notes},
        )
    return as_memory_entry(entry, _SHARED)


def _shared_keys(scopes: Scopes) -> list[str]:
    return [change.key for change in _changes(scopes.store, 0, (scopes.node_id,)) if change.entry is not None]


def _changes(store: Store, since: int, owners: tuple[str, ...]) -> Iterator[EntryChange]:
    """Yield every change to the shared values of these nodes, page by page."""
    while True:
        page = store.entry_changes(since, scope=_SHARED, owner=owners, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        since = page[-1].seq
