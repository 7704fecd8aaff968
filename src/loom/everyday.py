"""Memory: the everyday verbs over one store.

memory = loom.open("agent.loom")
memory.remember("We chose the authorization-code flow.", role="user", session_id="s1")
memory.recall("Which flow did we choose?")
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from loom.drafts import Rememberable
from loom.fractal.memory import awaited
from loom.memory.manager import MemoryManager
from loom.memory.verbs import MemoryOptions

if TYPE_CHECKING:
    from loom.memory.shared_pool import SharedMemoryPool

__all__ = ["AsyncMemory", "Memory", "OpenOptions", "Rememberable", "open_memory"]


class OpenOptions(MemoryOptions, total=False):
    """What `loom.open` takes: see `MemoryOptions`. The entries of a `shared_pool` are offered to every prompt."""

    shared_pool: SharedMemoryPool | None


def open_memory(
    path: str | Path | None = None, *, node_id: str | None = None, **options: Unpack[OpenOptions]
) -> Memory:
    """Open a memory; without a path it lives in this process only.

    Settings not given here come from the environment (`LOOM_*`), a TOML file, the memory file itself, or
    the profile, in that order. Those that every process must share are kept in the file; giving others
    raises `SettingsConflict`, unless `reconfigure` is True. The options are those of `OpenOptions`.
    """
    return Memory(node_id, store=path, **options)


class Memory(MemoryManager):
    """Everything an agent saw and did, durably, and found again. Thread-safe; many processes may share a file.

    Its verbs are those of `MemoryVerbs`. Use it as a context manager, or call `close()`.
    """

    @property
    def manager(self) -> Self:
        """This memory, for code that looks for its tiers and scopes there."""
        return self

    @functools.cached_property
    def aio(self) -> AsyncMemory:
        """The same verbs, awaitable: each runs in a thread, so the event loop is never blocked."""
        return AsyncMemory(self)


def _memory_of(face: AsyncMemory) -> Memory:
    return face.memory


class AsyncMemory:
    """The verbs of a `Memory`, awaitable."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    remember = awaited(_memory_of, Memory.remember)
    update = awaited(_memory_of, Memory.update)
    recall = awaited(_memory_of, Memory.recall)
    feedback = awaited(_memory_of, Memory.feedback)
    context = awaited(_memory_of, Memory.context)
    get = awaited(_memory_of, Memory.get)
    history = awaited(_memory_of, Memory.history)
    list = awaited(_memory_of, Memory.list)
    facts = awaited(_memory_of, Memory.facts)
    summaries = awaited(_memory_of, Memory.summaries)
    compact = awaited(_memory_of, Memory.compact)
    undo = awaited(_memory_of, Memory.undo)
    promote = awaited(_memory_of, Memory.promote)
    demote = awaited(_memory_of, Memory.demote)
    pin = awaited(_memory_of, Memory.pin)
    unpin = awaited(_memory_of, Memory.unpin)
    forget = awaited(_memory_of, Memory.forget)
    forget_entries = awaited(_memory_of, Memory.forget_entries)
    namespaces = awaited(_memory_of, Memory.namespaces)
    forget_namespace = awaited(_memory_of, Memory.forget_namespace)
    set_retention = awaited(_memory_of, Memory.set_retention)
    apply_retention = awaited(_memory_of, Memory.apply_retention)
    flush = awaited(_memory_of, Memory.flush)
    check = awaited(_memory_of, Memory.check)
    backup = awaited(_memory_of, Memory.backup)
    snapshot = awaited(_memory_of, Memory.snapshot)
    restore = awaited(_memory_of, Memory.restore)
    archive = awaited(_memory_of, Memory.archive)
    vacuum = awaited(_memory_of, Memory.vacuum)
    get_stats = awaited(_memory_of, Memory.get_stats)
    close = awaited(_memory_of, Memory.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
