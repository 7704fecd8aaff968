"""Memory: the everyday verbs over one store.

memory = loom.open("agent.loom")
memory.remember("We chose the authorization-code flow.", role="user", session_id="s1")
memory.recall("Which flow did we choose?")
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

from loom.drafts import Attributes, Rememberable, checked_text
from loom.errors import InvalidInput, NotFound
from loom.events import EventBus
from loom.memory.manager import MemoryManager
from loom.models.embedders import EmbeddingProvider
from loom.protocol import Clock, Task, utc_now
from loom.recall.hits import Hit
from loom.recall.search import Explanation, Reranker
from loom.settings import Settings
from loom.storage.contract import (
    ArchiveStats,
    CheckReport,
    Dimensions,
    Filter,
    FlushReport,
    ForgetReceipt,
    Page,
    Record,
    Retention,
    Store,
)
from loom.text.sanitizer import ContentSanitizer
from loom.text.tokens import TokenCounter
from loom.types import Fact, MemoryTier, MemoryType, Receipt, StoredSummary

if TYPE_CHECKING:
    from loom.context.orchestrator import Context
    from loom.memory.compaction import CompactionConfig, CompactionResult
    from loom.memory.derivation import UndoResult
    from loom.memory.shared_pool import SharedMemoryPool
    from loom.models.language_model import LanguageModelLike
    from loom.recall.feedback import LearnedWeights
    from loom.snapshots.staging import Restored
    from loom.snapshots.taking import Snapshot
    from loom.tiers.jobs import Promotion
    from loom.tiers.monitor import Monitor

__all__ = ["AsyncMemory", "Memory", "Rememberable", "open_memory"]

# A verdict may be on any of so many hits.
_JUDGED = 30

P = ParamSpec("P")
R = TypeVar("R")


def open_memory(
    path: str | Path | None = None,
    *,
    event_bus: EventBus | None = None,
    embedder: EmbeddingProvider | str | None = None,
    sanitizer: ContentSanitizer | None = None,
    llm: LanguageModelLike | None = None,
    compaction: CompactionConfig | None = None,
    shared_pool: SharedMemoryPool | None = None,
    reconfigure: bool = False,
    clock: Clock = utc_now,
    config: str | Path | None = None,
    all_namespaces: bool = False,
    **settings: Any,
) -> Memory:
    """Open a memory; without a path it lives in this process only.

    Settings not given here come from the environment (`LOOM_*`), a TOML file, the memory file itself, or
    the profile, in that order. Those that every process must share are kept in the file; giving others
    raises `SettingsConflict`, unless `reconfigure` is True.

    With an `event_bus`, every task published there is remembered once.
    `embedder` is a provider or the name of one; by default the offline one is used where it is installed.
    `sanitizer` cleans each text before it is stored, which is then no longer verbatim.
    `llm` (a callable from prompt to answer) draws facts, names and summaries in the background; by default rules do,
    and with `derive=False` nobody.
    The entries of a `shared_pool` are offered to every prompt.

    With `all_namespaces` the memory may also list, snapshot and forget the other namespaces of the file. It is given
    here only: no variable and no settings file can give it.
    """
    return Memory(
        MemoryManager(
            store=path,
            event_bus=event_bus,
            embedder=embedder,
            sanitizer=sanitizer,
            llm=llm,
            compaction=compaction,
            shared_pool=shared_pool,
            reconfigure=reconfigure,
            clock=clock,
            config=config,
            all_namespaces=all_namespaces,
            **settings,
        )
    )


class Memory:
    """Everything an agent saw and did, durably, and found again. Thread-safe; many processes may share a file.

    Use it as a context manager, or call `close()`.
    """

    def __init__(self, manager: MemoryManager) -> None:
        self._manager = manager
        self._store = manager.store

    @property
    def manager(self) -> MemoryManager:
        """The tiers and scopes underneath, with everything that the verbs do not show."""
        return self._manager

    @property
    def store(self) -> Store:
        """The store underneath, to share with a pool or another node."""
        return self._store

    @property
    def settings(self) -> Settings:
        """The settings that hold; `settings.explain()` says where each came from."""
        return self._manager.settings

    @property
    def counter(self) -> TokenCounter:
        return self._manager.counter

    @property
    def embedder(self) -> EmbeddingProvider | None:
        return self._manager.embedder

    @functools.cached_property
    def aio(self) -> AsyncMemory:
        """The same verbs, awaitable: each runs in a thread, so the event loop is never blocked."""
        return AsyncMemory(self)

    # -- remembering -------------------------------------------------------------------------------

    @overload
    def remember(
        self,
        what: Rememberable,
        *,
        id: str | None = None,
        role: str | None = None,
        name: str | None = None,
        session_id: str | None = None,
        created_at: datetime | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        trust: str | None = None,
        kind: str | None = None,
        dimensions: Dimensions | None = None,
    ) -> Receipt: ...

    @overload
    def remember(
        self,
        what: builtins.list[Any] | tuple[Any, ...],
        *,
        role: str | None = None,
        name: str | None = None,
        session_id: str | None = None,
        created_at: datetime | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        trust: str | None = None,
        kind: str | None = None,
        dimensions: Dimensions | None = None,
    ) -> builtins.list[Receipt]: ...

    def remember(
        self,
        what: Any,
        *,
        id: str | None = None,
        role: str | None = None,
        name: str | None = None,
        session_id: str | None = None,
        created_at: datetime | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        trust: str | None = None,
        kind: str | None = None,
        dimensions: Dimensions | None = None,
    ) -> Receipt | builtins.list[Receipt]:
        """Keep a text, a `Task`, a chat message, or a list of these (in one transaction, all or none).

        Returns when it is committed. The same id and text again changes nothing; another text under an id
        that exists raises `IdConflict` (use `update`). A `Task` whose status, result or error changed
        becomes the next version of its id. `trust` is user, agent, tool, web or unknown; without it, it
        follows from the role.
        """
        attributes = Attributes(
            role, name, session_id, created_at, importance, metadata or {}, trust, kind, dimensions
        )
        if isinstance(what, list | tuple):
            if id is not None:
                raise InvalidInput("one id cannot name a list; give each message an 'id' of its own")
            return self._manager.tiers.write([self._manager.drafter.draft(item, None, attributes) for item in what])
        return self._manager.tiers.write([self._manager.drafter.draft(what, id, attributes, count_later=True)])[0]

    def update(self, id: str, text: str, *, metadata: Mapping[str, Any] | None = None) -> Receipt:
        """Put a new version in a memory's place; the earlier ones stay, for `history` and `as_of`."""
        old = self._require(id)
        attributes = Attributes(
            old.role,
            old.name,
            old.session_id,
            None,
            old.importance,
            old.metadata if metadata is None else metadata,
            old.trust,
            old.kind,
            old.dimensions,
        )
        is_fact = old.kind == MemoryType.FACT  # what is known of a fact outlives its wording
        data = old.data if is_fact else None
        draft = self._manager.drafter.text(checked_text(text), id, attributes, data, revises=True)
        return self._manager.tiers.write([draft], MemoryTier.L4 if is_fact else None)[0]

    # -- finding again -----------------------------------------------------------------------------

    @overload
    def recall(
        self,
        /,
        question: str,
        *,
        limit: int = 10,
        session_id: str | builtins.list[str] | None = None,
        tier: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        where: Mapping[str, Any] | None = None,
        diversity: float = 0.0,
        reranker: Reranker | None = None,
        explain: Literal[False] = False,
        **filters: Any,
    ) -> builtins.list[Hit]: ...

    @overload
    def recall(
        self,
        /,
        question: str,
        *,
        limit: int = 10,
        session_id: str | builtins.list[str] | None = None,
        tier: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        where: Mapping[str, Any] | None = None,
        diversity: float = 0.0,
        reranker: Reranker | None = None,
        explain: Literal[True],
        **filters: Any,
    ) -> Explanation: ...

    def recall(
        self,
        /,
        question: str,
        *,
        limit: int = 10,
        session_id: str | builtins.list[str] | None = None,
        tier: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        where: Mapping[str, Any] | None = None,
        diversity: float = 0.0,
        reranker: Reranker | None = None,
        explain: bool = False,
        **filters: Any,
    ) -> builtins.list[Hit] | Explanation:
        """The memories that answer a question, best first.

        `since` and `until` bound when a memory was made; `as_of` asks what was valid at a moment, `known_at`
        what had been remembered by then; `where` compares metadata. Further filters: see `Filter`.

        `diversity` (0 to 1) keeps hits apart that say much the same. `reranker` is a second opinion: it is called
        with the question and the best hits and gives a score for each. With `explain=True` the answer is an
        `Explanation`: the hits, how the question was understood, and every candidate with what each signal added.
        """
        wanted = Filter.of(
            session_id=session_id,
            tier=tier,
            since=since,
            until=until,
            as_of=as_of,
            known_at=known_at,
            where=where,
            **filters,
        )
        explanation = self._manager.search(
            question, limit=limit, wanted=wanted, diversity=diversity, reranker=reranker, explain=explain
        )
        return explanation if explain else explanation.hits

    def feedback(self, question: str, id: str, *, helpful: bool) -> LearnedWeights:
        """Say whether a memory that a question recalls has helped: from then on, what brought it counts for more or
        less in every recall of this namespace. A little at a time and within bounds; what was said is not kept."""
        return self._manager.feedback.judge(id, self._manager.recall(question, limit=_JUDGED), helpful)

    def context(
        self,
        query: str | Task,
        *,
        budget: int | None = None,
        session_id: str | None = None,
        system: str | None = None,
        sources: Iterable[object] = (),
        source_timeout_s: float = 2.0,
    ) -> Context:
        """The best prompt for a question within a hard budget of tokens, and why each item is in or out.

        The result is a list of messages, the question last; `explain()` shows where the budget went. With a
        `session_id` the turns of that session are part of it, and it continues the layout of the session's last
        prompt, so that it begins with the same tokens; without one the call is stateless. `system` is the text of
        the system message. `sources` are further ones: anything with `get_context(task, max_items)`, or a callable
        of these two. Without a `budget`, the setting `prompt_token_budget` holds. Being in a prompt counts as a use.
        """
        from loom.context.defaults import default_orchestrator

        session = session_id or (query.session_id if isinstance(query, Task) else None)
        orchestrator = default_orchestrator(
            self._manager, session=session, sources=sources, source_timeout_s=source_timeout_s
        )
        most = self.settings.prompt_token_budget if budget is None else budget
        return orchestrator.build(query=query, system=system, session_id=session_id, budget=most)

    def get(self, id: str) -> Record | None:
        """The newest version of a memory, or None. Counts as a use of it."""
        return self._manager.get(id)

    def history(self, id: str) -> builtins.list[Record]:
        """Every version of a memory, oldest first; empty where there is none."""
        if not isinstance(id, str):
            raise InvalidInput(f"an id is a text, not {id!r}")
        return self._store.history(id)

    def list(
        self, /, *, limit: int = 50, after: int | None = None, newest_first: bool = True, **filters: Any
    ) -> Page:
        """A page of memories in the order in which they were written; pass `page.next` as `after` for more.

        What was drawn from memories (facts, summaries) is listed when a filter on `kind` or `derived` asks for it.
        """
        if not filters.keys() & {"kind", "derived", "ids"}:
            filters["derived"] = False
        return self._store.scan(Filter.of(**filters), limit=limit, after=after, newest_first=newest_first)

    # -- what was drawn from it --------------------------------------------------------------------

    def facts(
        self,
        question: str | None = None,
        *,
        limit: int = 50,
        fact_type: str | None = None,
        session_id: str | None = None,
        as_of: datetime | None = None,
        history: bool = False,
    ) -> builtins.list[Fact]:
        """What is known: the facts that answer a question, best first, or without one the newest first.

        They are drawn in the background from what was remembered (`flush` waits for it). With `as_of`, what held at
        that moment; with `history`, also what no longer holds.
        """
        return self._manager.facts(
            question, limit=limit, fact_type=fact_type, session_id=session_id, as_of=as_of, history=history
        )

    def summaries(
        self, session_id: str | None = None, *, limit: int = 50, history: bool = False
    ) -> builtins.list[StoredSummary]:
        """The summaries of stretches of dialogue, the newest first; with `history`, also those that hold no more."""
        return self._manager.summaries(session_id, limit=limit, history=history)

    def compact(self) -> CompactionResult:
        """Summarise stretches of the archive tier now, down to its target. A memory does so by itself in time."""
        return self._manager.compact()

    def undo(self, id: str) -> UndoResult:
        """Withdraw a summary, a merged fact or a fact that the memory has drawn by itself.

        What it stood for has its place back; the originals were never touched.
        """
        return self._manager.undo(id)

    def promote(self, id: str, to: MemoryTier | str = "l2") -> Promotion:
        """Bring a memory back towards the prompt: to the working tier, or with `to="l1"` into the window of recent
        ones, where it stays until others are brought there. It says what moved, or why it did not."""
        return self._manager.promote(id, to)

    def demote(self, id: str) -> MemoryTier | None:
        """Let a memory go one tier down, away from the prompt; the tier that has it then, or None: the log alone."""
        return self._manager.demote(id)

    @property
    def monitor(self) -> Monitor:
        """How the memory stands against its targets: `print(memory.monitor.table())`."""
        return self._manager.monitor

    def pin(self, id: str) -> None:
        """Keep a memory out of the reach of retention rules."""
        self._set_pin(id, True)

    def unpin(self, id: str) -> None:
        """Undo `pin`."""
        self._set_pin(id, False)

    def _set_pin(self, id: str, pinned: bool) -> None:
        self._require(id)
        with self._store.transaction() as transaction:
            transaction.pin(id, pinned)

    def _require(self, id: str) -> Record:
        record = self._store.get(id)
        if record is None:
            raise NotFound(f"there is no memory with the id {id!r}")
        return record

    # -- forgetting --------------------------------------------------------------------------------

    def forget(
        self, /, id: str | Iterable[str] | None = None, *, timeout_s: float = 10.0, **filters: Any
    ) -> ForgetReceipt:
        """Remove memories for good: every version, every index, everything derived from them.

        Takes an id, several ids, or filters. The receipt counts what went; it is falsy where nothing matched.
        Backups and exports made before are out of its reach.
        """
        if id is not None:
            if isinstance(id, str):
                filters["ids"] = [id]
            elif isinstance(id, Iterable):
                filters["ids"] = [*id]
            else:
                raise InvalidInput(f"forget() takes an id or several ids, not {type(id).__name__}")
        wanted = Filter.of(**{**filters, "history": True})
        if not replace(wanted, where=wanted.where or None, history=False).narrows:
            raise InvalidInput("forget() needs an id or a filter; it never forgets everything by accident")
        self._manager.tiers.clear_cache()
        return self._store.forget(wanted, timeout_s)

    def forget_entries(
        self, scope: str, *, owner: str | None = None, key: str | None = None, timeout_s: float = 10.0
    ) -> int:
        """Forget the values of a scope (`local`, `shared`, `global`) or of pools (`pool`) for good, with history.

        Of all owners, or of one: a node, or the id of a pool. With `key`, only that one. Returns the number of keys
        that had a value. A key itself stays, without a value, until its namespace is forgotten.
        """
        return self._store.forget_entries(scope, owner=owner, key=key, timeout_s=timeout_s)

    def namespaces(self) -> tuple[str, ...]:
        """The names of the namespaces in the file. For a memory opened with `all_namespaces=True`."""
        return tuple(self._store.namespaces())

    def forget_namespace(self, name: str, timeout_s: float = 10.0) -> ForgetReceipt:
        """Forget a namespace for good: its memories, entries, blobs, settings and its name.

        For a memory opened with `all_namespaces=True`. A memory that is open on the namespace cannot write any more.
        Raises `NotFound` if there is none of that name. It rewrites the whole file, as `vacuum` does.
        """
        return self._store.forget_namespace(name, timeout_s)

    def keep(self, retention: Retention | None) -> None:
        """State what may be forgotten by itself (off by default); None switches it off again."""
        self._store.keep(retention)

    def apply_retention(self) -> ForgetReceipt:
        """Forget now what the stated rule no longer keeps; the background worker does so by itself."""
        return self._store.apply_retention()

    # -- looking after it --------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> FlushReport:
        """Wait until everything committed before this call is embedded and indexed."""
        return self._store.flush(timeout_s)

    def check(self, repair: bool = True) -> CheckReport:
        """Verify everything that is stored; rebuild what can be rebuilt."""
        return self._store.check(repair)

    def backup(self, path: str | Path) -> None:
        """Write a consistent copy of the file while others go on using it."""
        self._store.backup(path)

    def snapshot(
        self,
        path: str | Path,
        *,
        parent: str | Path | None = None,
        namespaces: Sequence[str] | None = None,
    ) -> Snapshot:
        """Write everything this memory holds to a `.hctx` file, compressed and checksummed, while others go on.

        All tiers, versions, uses, facts, entries and vectors of its namespace, or of those that are named. With a
        `parent`, only what has changed since that snapshot; restoring needs the whole chain then. `loom.restore`
        makes a new memory file of it. What is forgotten later stays in it: it is out of the reach of `forget`.
        """
        from loom.snapshots.taking import take

        return take(self._store, path, parent=parent, namespaces=namespaces)

    def restore(
        self,
        snapshot: str | Path | Sequence[str | Path],
        *,
        namespace: str | None = None,
        forgotten: bool = False,
    ) -> Restored:
        """Bring what a snapshot holds into this memory: all of it, or nothing where something stands in the way.

        Several paths are a chain, the full snapshot first. `namespace` names the one in the snapshot, where it is not
        the only one or of another name. What is here already does not come twice; an id that names another text here
        raises `IdConflict`. What was forgotten here since stays forgotten, unless `forgotten` is True.
        """
        from loom.context.layout import SCOPE  # layouts hold numbers of records, which are others here

        return self._manager.restore(snapshot, namespace=namespace, forgotten=forgotten, without=(SCOPE,))

    def archive(self, before: datetime | None = None) -> ArchiveStats:
        """Compress the words of everything remembered before a moment (now). Nothing changes for who reads it.

        By itself a memory does so after `archive_after_days`. The file shrinks with the next `vacuum`.
        """
        return self._store.archive(before)

    def vacuum(self) -> int:
        """Give free space back to the disk and tidy the index; how many bytes the file shrank by."""
        return self._store.vacuum()

    def get_stats(self) -> dict[str, Any]:
        """Usage, budget and count of each tier, the backlog, and the counts and sizes of the store."""
        return self._manager.get_stats()

    def close(self) -> None:
        """Let go of the file; waits a bounded time for background work. Safe to call twice."""
        self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        place = self._store.location
        return f"<Memory {place} namespace={self._store.namespace!r}>"


def _in_thread(
    verb: Callable[Concatenate[Memory, P], R],
) -> Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]]:
    @functools.wraps(verb)
    async def awaitable(self: AsyncMemory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio

        return await asyncio.to_thread(verb, self.memory, *args, **kwargs)

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
    keep = _in_thread(Memory.keep)
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
