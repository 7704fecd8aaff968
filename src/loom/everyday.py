"""Memory: the everyday verbs over one store.

memory = loom.open("agent.loom")
memory.remember("We chose the authorization-code flow.", role="user", session_id="s1")
memory.recall("Which flow did we choose?")
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from loom.drafts import Rememberable
from loom.forks import made_once
from loom.fractal.memory import awaited
from loom.memory.manager import MemoryManager
from loom.memory.verbs import MemoryOptions
from loom.settings import PROFILES, load_settings

if TYPE_CHECKING:
    from loom.memory.shared_pool import SharedMemoryPool
    from loom.notebook.book import Notebook

__all__ = ["AsyncMemory", "Memory", "OpenOptions", "Rememberable", "open_memory"]


class OpenOptions(MemoryOptions, total=False):
    """The options of `loom.open`: see `MemoryOptions`. The entries of a `shared_pool` are offered to every prompt."""

    shared_pool: SharedMemoryPool | None


def open_memory(
    path: str | Path | None = None,
    *,
    node_id: str | None = None,
    notebook: str | Path | None = None,
    **options: Unpack[OpenOptions],
) -> Memory:
    """Open a memory. Without a path it exists only in this process.

    Settings not given here come from the environment (`LOOM_*`), a TOML file, the memory file, or the profile, in
    that order. The file holds the settings that all processes must share; giving other values raises
    `SettingsConflict`, unless `reconfigure` is True. The options are those of `OpenOptions`.

    `notebook` is a folder with Markdown files that show this memory: see `memory.notebook`. Without a path, the
    memory lies in that folder; with the profile `minimal` it exists only in this process, and the folder holds only
    the compact memory.
    """
    if notebook is None:
        return Memory(node_id, store=path, **options)
    from loom.notebook.book import Notebook

    if path is None and not _is_minimal(options.get("profile")):
        path = Path(notebook, ".notes", "memory.loom")
        path.parent.mkdir(parents=True, exist_ok=True)
    memory = Memory(node_id, store=path, **options)
    memory.notebook = Notebook(notebook, agent=memory.node_id, memory=memory)
    return memory


def _is_minimal(profile: str | None) -> bool:
    """Return whether the given profile, or the one that the settings choose, is a profile of minimal mode."""
    name = load_settings().profile if profile is None else profile
    return name in PROFILES and PROFILES[name].minimal_mode


class Memory(MemoryManager):
    """Everything an agent saw and did, stored durably and found again. Thread-safe; many processes may share a file.

    Its verbs are those of `MemoryVerbs`. Use it as a context manager, or call `close()`. `notebook` is the folder of
    Markdown files that `loom.open(notebook=...)` named, or None.
    """

    notebook: Notebook | None = None

    @property
    def manager(self) -> Self:
        """This memory. For code that expects a manager with tiers and scopes here."""
        return self

    @made_once
    def aio(self) -> AsyncMemory:
        """The same verbs, awaitable. Each runs in a thread, so the event loop is never blocked."""
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
    matrix = awaited(_memory_of, Memory.matrix)
    facts = awaited(_memory_of, Memory.facts)
    summaries = awaited(_memory_of, Memory.summaries)
    compact = awaited(_memory_of, Memory.compact)
    instructions = awaited(_memory_of, Memory.instructions)
    confirm = awaited(_memory_of, Memory.confirm)
    withdraw = awaited(_memory_of, Memory.withdraw)
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
    warm_up = awaited(_memory_of, Memory.warm_up)
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
