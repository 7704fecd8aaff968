"""SharedMemoryPool: values that a team of agents shares, beside the tiers of each agent.

    pool = SharedMemoryPool(pool_id="team")
    await pool.write("research_result", {"findings": ["..."]}, writer_id="agent-a")
    entry = await pool.read("research_result")

Without a store, the pool exists in this process and takes any value that can be copied. With a store, all processes
that have the store open share the pool, and it takes JSON values.
"""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar
from weakref import WeakSet

from loom.checks import checked_instance, checked_mapping, checked_object, checked_whole, if_given
from loom.errors import Closed, InvalidInput, VersionConflictError
from loom.fractal.memory import checked_key, checked_limit, checked_version, in_thread
from loom.protocol import Closing, Task

if TYPE_CHECKING:
    from loom.events import EventBus
    from loom.storage.contract import Entry, Store

__all__ = ["PoolChange", "PoolEntry", "PoolWatch", "SharedMemoryPool", "VersionConflictError"]

R = TypeVar("R")

_SCOPE = "pool"
# A pool in this process keeps this many versions of a key; a pool in a store keeps all.
_VERSIONS_IN_PROCESS = 100
_PAGE = 100
# The interval at which a watch checks for changes by other processes: at first, and after a long time without
# changes. A check takes about 0.1 ms.
_SOONEST_S, _LATEST_S = 0.02, 0.25


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """A value in a pool. It is a copy that belongs to the caller. Times are seconds since 1970."""

    key: str
    content: Any
    version: int = 1
    created_by: str = ""
    updated_by: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolChange:
    """A key after a change. `entry` is None if it was deleted."""

    key: str
    version: int
    writer: str
    entry: PoolEntry | None
    number: int
    """Grows with every change. A later watch may continue from it (`since`)."""


class SharedMemoryPool(Closing):
    """Values under keys that several agents read and write, with versions. Safe in every thread and process.

    The last writer wins, unless `expected_version` is given. `store` is a store to share (`memory.store`), or the
    path of one, which is then opened and closed here. With an `event_bus`, the process that makes a write or a
    deletion publishes it.
    """

    _elsewhere = "make one over the same store there: SharedMemoryPool(pool_id, store=path)"

    def __init__(
        self,
        pool_id: str = "default",
        event_bus: EventBus | None = None,
        store: Store | str | Path | None = None,
    ) -> None:
        self.pool_id = checked_key(pool_id)
        self._bus = event_bus
        self._opened: Store | None = None
        if isinstance(store, str | Path):
            from loom.storage import open_store

            store = self._opened = open_store(store)
        elif store is not None and not hasattr(store, "entry_changes"):
            raise InvalidInput(f"store must be a store (memory.store) or a path, not {type(store).__name__}")
        self._backend: _AnyBackend = _ProcessBackend() if store is None else _StoreBackend(store, pool_id)

    # -- reading and writing ---------------------------------------------------------------------------

    async def write(
        self,
        key: str,
        content: Any,
        writer_id: str = "",
        *,
        expected_version: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> PoolEntry:
        """Write the next version of a key; with `expected_version` (0: must not exist) only if it matches.

        A mismatch raises `VersionConflictError` and changes nothing. Metadata is merged with the existing one.
        """
        checked_key(key)
        checked_version(expected_version)
        if_given(checked_mapping, metadata, "the metadata of write()")
        writer = checked_instance(writer_id, str, "writer_id")
        entry = await self._backend.run(lambda: self._backend.put(key, content, writer, expected_version, metadata))
        await self._tell("shared_pool.write", key, entry.version, writer)
        return entry

    async def update(
        self,
        key: str,
        change: Callable[[Any], Any],
        writer_id: str = "",
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> PoolEntry:
        """Write the result of `change` on the current value (None if there is none). No other update is lost.

        `change` is called again whenever another writer was first, so it must have no side effects.
        """
        checked_object(change, "the change of update()", "__call__")
        attempt = 0
        while True:
            entry = await self.read(key)
            content, version = (None, 0) if entry is None else (entry.content, entry.version)
            try:
                return await self.write(key, change(content), writer_id, expected_version=version, metadata=metadata)
            except VersionConflictError:
                # Each waits for a different time, so that writers that collided do not collide again.
                await asyncio.sleep(random.uniform(0, 0.0005 * 2 ** min(attempt, 6)))
                attempt += 1

    async def read(self, key: str) -> PoolEntry | None:
        """The newest version of a key, or None."""
        checked_key(key)
        return await self._backend.run(lambda: self._backend.get(key))

    async def list_entries(self, prefix: str = "", limit: int = 50) -> list[PoolEntry]:
        """The entries whose keys start with a prefix, last updated first."""
        checked_limit(limit)
        _checked_prefix(prefix)
        return await self._backend.run(lambda: self._backend.entries(prefix, limit))

    async def delete(self, key: str, writer_id: str = "", *, expected_version: int | None = None) -> bool:
        """Remove a key with all its versions. Returns False if there is none. A key that is written again continues
        its version numbers."""
        checked_key(key)
        checked_version(expected_version)
        writer = checked_instance(writer_id, str, "writer_id")
        version = await self._backend.run(lambda: self._backend.remove(key, writer, expected_version))
        if version:
            await self._tell("shared_pool.delete", key, version, writer)
        return version > 0

    async def history(self, key: str) -> list[PoolEntry]:
        """The versions of a key since it was last deleted, oldest first; in this process, the last hundred."""
        checked_key(key)
        return await self._backend.run(lambda: self._backend.history(key))

    def watch(self, prefix: str = "", *, since: int | None = None) -> PoolWatch:
        """The changes to keys with a prefix, by any process, as they happen.

        `async with pool.watch("research:") as changes:` watches from its first line on, `async for` alone from the
        first step. With `since`, it continues after that `PoolChange.number`.
        """
        checked_whole(0 if since is None else since, "since, the number of a change,")
        return PoolWatch(self._backend, _checked_prefix(prefix), since)

    @property
    def size(self) -> int:
        """The number of keys that have a value. Reads from disk if the pool lies in a store."""
        return self._backend.count()

    # -- life ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End every watch, and close the store if it was opened here. Safe to call twice."""
        self._backend.closed = True
        self._backend.wake()
        if self._opened is not None:
            self._opened.close()

    def __repr__(self) -> str:
        return f"<SharedMemoryPool {self.pool_id!r} in {self._backend.name}>"

    async def _tell(self, action: str, key: str, version: int, writer: str) -> None:
        self._backend.wake()
        if self._bus is not None:
            parameters = {"pool_id": self.pool_id, "key": key, "version": version, "writer": writer}
            await self._bus.publish(Task(action=action, parameters=parameters, source_agent=writer))


class PoolWatch:
    """The changes to a part of a pool, in order, for one reader.

    A change is the state of a key after it. Versions that were overwritten before the reader saw them are skipped;
    `history` has them.
    """

    def __init__(self, backend: _AnyBackend, prefix: str, since: int | None) -> None:
        self._backend = backend
        self._prefix = prefix
        self._since = since
        self._pending: deque[PoolChange] = deque()
        self._news: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wait_s = _SOONEST_S

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._backend.unwatch(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PoolChange:
        news = await self._begin()
        try:
            while not self._pending:
                if self._backend.closed:
                    raise StopAsyncIteration
                news.clear()
                await self._look()
                if not self._pending and not self._backend.closed:
                    await self._sleep(news)
        except Closed:
            raise StopAsyncIteration from None
        self._wait_s = _SOONEST_S
        return self._pending.popleft()

    async def _begin(self) -> asyncio.Event:
        if self._news is None:
            self._news, self._loop = asyncio.Event(), asyncio.get_running_loop()
            self._backend.watch(self)
        if self._since is None:
            self._since = await self._backend.run(self._backend.newest)
        return self._news

    async def _look(self) -> None:
        backend, since = self._backend, self._since or 0
        # Read its own sequence number first: changes in between are found the next time.
        newest = await backend.run(backend.newest)
        if newest > since:
            found = await backend.run(lambda: backend.changes(since, self._prefix, _PAGE))
            self._pending.extend(found)
            self._since = found[-1].number if len(found) == _PAGE else max([newest, *(one.number for one in found)])

    async def _sleep(self, news: asyncio.Event) -> None:
        """Wait until something is written here, or until the next check for changes by others."""
        try:
            await asyncio.wait_for(news.wait(), self._wait_s if self._backend.blocks else None)
        except TimeoutError:
            self._wait_s = min(self._wait_s * 1.5, _LATEST_S)

    def wake(self) -> None:
        """Check for changes now. May be called from any thread."""
        if self._news is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)


# --- backends ------------------------------------------------------------------------------------------


class _Backend:
    """Stores the entries of a pool, and knows its watchers."""

    blocks = False
    """Whether its calls belong in a thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._watches: WeakSet[PoolWatch] = WeakSet()
        self.closed = False

    async def run(self, work: Callable[[], R]) -> R:
        """Run work so that it cannot block the event loop."""
        self.check_open()
        return await in_thread(work) if self.blocks else work()

    def check_open(self) -> None:
        """Raise `Closed` if the pool is closed."""
        if self.closed:
            raise Closed("the pool is closed; open another one with SharedMemoryPool(...)")

    def watch(self, watch: PoolWatch) -> None:
        with self._lock:
            self._watches.add(watch)

    def unwatch(self, watch: PoolWatch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def wake(self) -> None:
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.wake()


class _StoreBackend(_Backend):
    """Entries of a store, under the name of the pool."""

    blocks = True

    def __init__(self, store: Store, pool_id: str) -> None:
        super().__init__()
        self._store = store
        self._place: dict[str, Any] = {"scope": _SCOPE, "owner": pool_id}

    @property
    def name(self) -> str:
        return f"the store {self._store.store_id}"

    def put(
        self, key: str, content: Any, writer: str, expected: int | None, metadata: Mapping[str, Any] | None
    ) -> PoolEntry:
        with self._store.transaction() as transaction:
            entry = transaction.put_entry(
                key, content, writer=writer, expected_version=expected, metadata=metadata, **self._place
            )
        return _as_pool_entry(entry)

    def get(self, key: str) -> PoolEntry | None:
        entry = self._store.entry(key, **self._place)
        return None if entry is None else _as_pool_entry(entry)

    def entries(self, prefix: str, limit: int) -> list[PoolEntry]:
        return [_as_pool_entry(entry) for entry in self._store.entries(prefix, limit=limit, **self._place)]

    def count(self) -> int:
        self.check_open()
        return self._store.count_entries(**self._place)

    def remove(self, key: str, writer: str, expected: int | None) -> int:
        with self._store.transaction() as transaction:
            return transaction.delete_entry(key, writer=writer, expected_version=expected, **self._place)

    def history(self, key: str) -> list[PoolEntry]:
        return [_as_pool_entry(entry) for entry in self._store.entry_history(key, **self._place)]

    def changes(self, since: int, prefix: str, limit: int) -> list[PoolChange]:
        return [
            PoolChange(
                one.key, one.version, one.writer, None if one.entry is None else _as_pool_entry(one.entry), one.seq
            )
            for one in self._store.entry_changes(since, prefix, limit=limit, **self._place)
        ]

    def newest(self) -> int:
        return self._store.last_entry_change()


def _as_pool_entry(entry: Entry) -> PoolEntry:
    return PoolEntry(
        key=entry.key,
        content=entry.content,
        version=entry.version,
        created_by=entry.created_by,
        updated_by=entry.updated_by,
        created_at=entry.created_at.timestamp(),
        updated_at=entry.updated_at.timestamp(),
        metadata=dict(entry.metadata),
    )


@dataclass(slots=True)
class _KeyVersions:
    """The last versions of a key; none after a deletion."""

    versions: deque[PoolEntry] = field(default_factory=lambda: deque(maxlen=_VERSIONS_IN_PROCESS))
    version: int = 0
    number: int = 0
    writer: str = ""


class _ProcessBackend(_Backend):
    """Entries in this process. Values are copied on the way in and out."""

    name = "this process"

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[str, _KeyVersions] = {}
        self._number = 0

    def put(
        self, key: str, content: Any, writer: str, expected: int | None, metadata: Mapping[str, Any] | None
    ) -> PoolEntry:
        own, more = _copied(content, key), _copied(dict(metadata or {}), key)
        now = time.time()
        with self._lock:
            kept = self._keys.get(key) or _KeyVersions()
            before = _expected(key, kept, expected)
            entry = PoolEntry(
                key=key,
                content=own,
                version=kept.version + 1,
                created_by=writer if before is None else before.created_by,
                updated_by=writer,
                created_at=now if before is None else before.created_at,
                updated_at=now,
                metadata=more if before is None else before.metadata | more,
            )
            self._keys[key] = kept
            kept.versions.append(entry)
            self._note(kept, writer)
        return _copy_of(entry)

    def get(self, key: str) -> PoolEntry | None:
        with self._lock:
            kept = self._keys.get(key)
            entry = kept.versions[-1] if kept is not None and kept.versions else None
        return None if entry is None else _copy_of(entry)

    def entries(self, prefix: str, limit: int) -> list[PoolEntry]:
        with self._lock:
            found = [kept for key, kept in self._keys.items() if kept.versions and key.startswith(prefix)]
            found.sort(key=lambda kept: -kept.number)
            chosen = [kept.versions[-1] for kept in found[:limit]]
        return [_copy_of(entry) for entry in chosen]

    def count(self) -> int:
        self.check_open()
        with self._lock:
            return sum(bool(kept.versions) for kept in self._keys.values())

    def remove(self, key: str, writer: str, expected: int | None) -> int:
        with self._lock:
            kept = self._keys.get(key) or _KeyVersions()
            if _expected(key, kept, expected) is None:
                return 0
            kept.versions.clear()
            self._note(kept, writer)
            return kept.version

    def history(self, key: str) -> list[PoolEntry]:
        with self._lock:
            kept = self._keys.get(key)
            found = [] if kept is None else list(kept.versions)
        return [_copy_of(entry) for entry in found]

    def changes(self, since: int, prefix: str, limit: int) -> list[PoolChange]:
        with self._lock:
            found = [
                PoolChange(key, kept.version, kept.writer, kept.versions[-1] if kept.versions else None, kept.number)
                for key, kept in self._keys.items()
                if kept.number > since and key.startswith(prefix)
            ]
        found.sort(key=lambda change: change.number)
        return [
            change if change.entry is None else replace(change, entry=_copy_of(change.entry))
            for change in found[:limit]
        ]

    def newest(self) -> int:
        with self._lock:
            return self._number

    def _note(self, kept: _KeyVersions, writer: str) -> None:
        self._number += 1
        kept.number = self._number
        kept.version += 1
        kept.writer = writer


_AnyBackend: TypeAlias = _StoreBackend | _ProcessBackend


def _expected(key: str, kept: _KeyVersions, expected: int | None) -> PoolEntry | None:
    """The current entry, if it has the expected version."""
    present = kept.versions[-1] if kept.versions else None
    actual = 0 if present is None else present.version
    if expected is not None and expected != actual:
        raise VersionConflictError(key, expected, actual)
    return present


def _copy_of(entry: PoolEntry) -> PoolEntry:
    return replace(entry, content=_copied(entry.content, entry.key), metadata=_copied(entry.metadata, entry.key))


def _copied(value: Any, key: str) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:  # the value's own methods may raise anything
        raise InvalidInput(
            f"the value for {key!r} cannot be copied ({type(error).__name__}); a pool holds copies, so that no "
            "reader changes what another reads: share plain data"
        ) from error


def _checked_prefix(prefix: object) -> str:
    return checked_key(prefix) if prefix != "" else ""
