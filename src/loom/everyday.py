"""Memory: the everyday verbs over one store.

memory = loom.open("agent.loom")
memory.remember("We chose the authorization-code flow.", role="user", session_id="s1")
memory.recall("Which flow did we choose?")
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from loom.drafts import Rememberable
from loom.fractal.memory import in_thread
from loom.memory.manager import MemoryManager
from loom.memory.verbs import MemoryOptions

if TYPE_CHECKING:
    from loom.memory.shared_pool import SharedMemoryPool

__all__ = ["AsyncMemory", "Memory", "OpenOptions", "Rememberable", "open_memory"]

P = ParamSpec("P")
R = TypeVar("R")


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


def _in_thread(
    verb: Callable[Concatenate[Memory, P], R],
) -> Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]]:
    @functools.wraps(verb)
    async def awaitable(self: AsyncMemory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(verb, self.memory, *args, **kwargs)

    return awaitable


class AsyncMemory:
    """The verbs of a `Memory`, awaitable."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    remember = _in_thread(Memory.remember)
    update = _in_thread(Memory.update)
    recall = _in_thread(Memory.recall)
    feedback = _in_thread(Memory.feedback)
    context = _in_thread(Memory.context)
    get = _in_thread(Memory.get)
    history = _in_thread(Memory.history)
    list = _in_thread(Memory.list)
    facts = _in_thread(Memory.facts)
    summaries = _in_thread(Memory.summaries)
    compact = _in_thread(Memory.compact)
    undo = _in_thread(Memory.undo)
    promote = _in_thread(Memory.promote)
    demote = _in_thread(Memory.demote)
    pin = _in_thread(Memory.pin)
    unpin = _in_thread(Memory.unpin)
    forget = _in_thread(Memory.forget)
    forget_entries = _in_thread(Memory.forget_entries)
    namespaces = _in_thread(Memory.namespaces)
    forget_namespace = _in_thread(Memory.forget_namespace)
    set_retention = _in_thread(Memory.set_retention)
    apply_retention = _in_thread(Memory.apply_retention)
    flush = _in_thread(Memory.flush)
    check = _in_thread(Memory.check)
    backup = _in_thread(Memory.backup)
    snapshot = _in_thread(Memory.snapshot)
    restore = _in_thread(Memory.restore)
    archive = _in_thread(Memory.archive)
    vacuum = _in_thread(Memory.vacuum)
    get_stats = _in_thread(Memory.get_stats)
    close = _in_thread(Memory.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
