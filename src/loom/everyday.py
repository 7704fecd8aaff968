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
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload

from loom.errors import InvalidInput, NotFound, SettingsConflict
from loom.memory.drafts import (
    Speech,
    check_speech,
    checked_text,
    known_trust,
    message_text,
    task_text,
    trust_of_role,
)
from loom.memory.embeddings import EmbeddingProvider, embed_texts, embedder_from_name
from loom.memory.recall import recall as recall_from
from loom.memory.sanitizers import ContentSanitizer
from loom.memory.tokenizer import TokenCounter, counter_by_name
from loom.memory.types import Hit, MemoryTier, MemoryType, Receipt, Trust
from loom.protocol import Clock, Task, new_id, utc_now
from loom.settings import AGREED_SETTINGS, Settings, load_settings
from loom.storage.base import (
    CheckReport,
    Dimensions,
    Draft,
    Filter,
    FlushReport,
    ForgetReceipt,
    Page,
    Record,
    Retention,
)
from loom.storage.projections import TailLimit
from loom.storage.sqlite import SqliteStore

__all__ = ["AsyncMemory", "Memory", "Rememberable", "open_memory"]

Rememberable = str | Task | Mapping[str, Any]

# The embedding space has its own place in the file.
_STORED_SETTINGS = AGREED_SETTINGS - {"embedder"}

_ANYWHERE = Dimensions()

P = ParamSpec("P")
R = TypeVar("R")


def open_memory(
    path: str | Path | None = None,
    *,
    embedder: EmbeddingProvider | str | None = None,
    sanitizer: ContentSanitizer | None = None,
    reconfigure: bool = False,
    clock: Clock = utc_now,
    config: str | Path | None = None,
    **settings: Any,
) -> Memory:
    """Open a memory; without a path it lives in this process only.

    Settings not given here come from the environment (`LOOM_*`), a TOML file, the memory file itself, or
    the profile, in that order. Those that every process must share are kept in the file; giving others
    raises `SettingsConflict`, unless `reconfigure` is True.

    `embedder` is a provider or the name of one; by default the offline one is used where it is installed.
    `sanitizer` cleans each text before it is stored, which is then no longer verbatim.
    """
    if isinstance(embedder, str):
        settings["embedder"] = embedder
    loaded = load_settings(settings, file=config)
    store = SqliteStore(
        path,
        namespace=loaded.namespace,
        read_only=loaded.read_only,
        durability=loaded.durability,
        busy_timeout_s=loaded.busy_timeout_s,
        close_timeout_s=loaded.close_timeout_s,
        tail=TailLimit(loaded.index_tail_records, loaded.index_tail_bytes),
        lease_s=loaded.lease_s,
        clock=clock,
    )
    try:
        return Memory(
            store,
            _agree(store, loaded, reconfigure),
            _choose_embedder(store, loaded, embedder, reconfigure),
            sanitizer,
        )
    except BaseException:
        store.close()
        raise


def _agree(store: SqliteStore, wanted: Settings, reconfigure: bool) -> Settings:
    """What holds for this node, settled with every other process that has the file open."""
    agreed = wanted

    def decide(stored: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal agreed
        agreed = wanted.agree_with(stored, reconfigure=reconfigure)
        return {name: getattr(agreed, name) for name in _STORED_SETTINGS}

    store.settle(wanted.node_id, decide)
    return agreed


def _choose_embedder(
    store: SqliteStore, settings: Settings, given: EmbeddingProvider | str | None, reconfigure: bool
) -> EmbeddingProvider | None:
    """The embedder of this process. One that nobody asked for by name gives way to what the file has."""
    asked = (given is not None and given != "auto") or (
        settings.is_given("embedder") and settings.embedder not in ("auto", "none")
    )
    provider = embedder_from_name(settings.embedder) if given is None or isinstance(given, str) else given
    if provider is None:
        return None

    def embed(texts: Sequence[str]) -> Any:
        return embed_texts(provider, texts)

    try:
        store.use_embedder(provider.name, provider.dimensions, embed, reconfigure=reconfigure and asked)
    except SettingsConflict:
        if asked:
            raise
        return None
    if store.space != (provider.name, provider.dimensions):
        return None  # a read-only store that was never embedded, or with something else
    return provider


class Memory:
    """Everything an agent saw and did, durably, and found again. Thread-safe; many processes may share a file.

    Use it as a context manager, or call `close()`.
    """

    def __init__(
        self,
        store: SqliteStore,
        settings: Settings,
        embedder: EmbeddingProvider | None = None,
        sanitizer: ContentSanitizer | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._embedder = embedder
        self._sanitizer = sanitizer
        self._node = settings.node_id
        self._counter = counter_by_name(settings.counter)

    @property
    def store(self) -> SqliteStore:
        """The store underneath, to share with a pool or another node."""
        return self._store

    @property
    def settings(self) -> Settings:
        """The settings that hold; `settings.explain()` says where each came from."""
        return self._settings

    @property
    def counter(self) -> TokenCounter:
        return self._counter

    @property
    def embedder(self) -> EmbeddingProvider | None:
        return self._embedder

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
        speech = Speech(role, name, session_id, created_at, importance, metadata or {}, trust, kind, dimensions)
        if isinstance(what, list | tuple):
            if id is not None:
                raise InvalidInput("one id cannot name a list; give each message an 'id' of its own")
            return self._write([self._draft(item, None, speech) for item in what])
        return self._write([self._draft(what, id, speech)])[0]

    def _draft(self, what: object, id: str | None, speech: Speech) -> Draft:
        if not isinstance(what, str):  # first, because it is the usual case and quick to see
            if isinstance(what, Task):
                return self._task_draft(what, id, speech)
            if isinstance(what, Mapping):
                return self._message_draft(what, id, speech)
        return self._text_draft(checked_text(what), id, speech)

    def _text_draft(
        self, text: str, id: str | None, speech: Speech, data: Any = None, revises: bool = False
    ) -> Draft:
        metadata = speech.metadata
        if self._sanitizer is not None:
            cleaned = checked_text(self._sanitizer.sanitize(text))
            if cleaned != text:
                text, metadata, data = cleaned, {**metadata, "sanitized": True}, None
        if id is not None and not (isinstance(id, str) and id):
            raise InvalidInput(f"an id is a text of at least one character, not {id!r}")
        check_speech(speech)
        importance = 0.5 if speech.importance is None else speech.importance
        trust = trust_of_role(speech.role) if speech.trust is None else known_trust(speech.trust)
        # In the order of the fields: names would cost as much as the rest of the call.
        return Draft(
            new_id() if id is None else id,
            text,
            self._store.clock() if speech.created_at is None else speech.created_at,
            speech.kind or MemoryType.MESSAGE,
            self._node,
            speech.session_id,
            speech.role,
            speech.name,
            trust,
            speech.dimensions or _ANYWHERE,
            importance,
            self._counter.count(text),
            self._counter.name,
            MemoryTier.L1,
            metadata,
            data,
            (),
            id is not None,
            revises,
        )

    def _message_draft(self, message: Mapping[str, Any], id: str | None, speech: Speech) -> Draft:
        """A chat message: what it says itself goes before what the call says about all of them."""
        plain = isinstance(message.get("content"), str) and not message.keys() - _PLAIN_MESSAGE_KEYS
        own = speech._replace(
            role=message.get("role") or speech.role,
            name=message.get("name") or speech.name,
            session_id=message.get("session_id") or speech.session_id,
            created_at=message.get("created_at") or speech.created_at,
            metadata={**speech.metadata, **_mapping(message.get("metadata") or {})},
        )
        data = None if plain else {key: value for key, value in message.items() if key != "created_at"}
        return self._text_draft(checked_text(message_text(message)), message.get("id") or id, own, data)

    def _task_draft(self, task: Task, id: str | None, speech: Speech) -> Draft:
        if id is not None and id != task.task_id:
            raise InvalidInput(f"a task is kept under its own task_id {task.task_id!r}; leave id out")
        importance = task.metadata.get("importance") if speech.importance is None else speech.importance
        own = speech._replace(
            name=speech.name or task.source_agent or None,
            session_id=speech.session_id or task.session_id,
            created_at=speech.created_at or task.created_at,
            importance=importance,
            kind=speech.kind or MemoryType.TASK,
            trust=speech.trust or Trust.AGENT,
        )
        text = checked_text(task_text(task))
        return self._text_draft(text, task.task_id, own, task.to_dict(), revises=True)

    def _write(self, drafts: builtins.list[Draft]) -> builtins.list[Receipt]:
        if not drafts:
            return []
        with self._store.transaction() as transaction:
            written = transaction.append(drafts)
        return [
            Receipt(one.id, MemoryTier.L1, draft.tokens, one.version, one.created)
            for one, draft in zip(written, drafts, strict=True)
        ]

    def update(self, id: str, text: str, *, metadata: Mapping[str, Any] | None = None) -> Receipt:
        """Put a new version in a memory's place; the earlier ones stay, for `history` and `as_of`."""
        old = self._require(id)
        speech = Speech(
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
        return self._write([self._text_draft(checked_text(text), id, speech, revises=True)])[0]

    # -- finding again -----------------------------------------------------------------------------

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
        **filters: Any,
    ) -> builtins.list[Hit]:
        """The memories that answer a question, best first.

        `since` and `until` bound when a memory was made; `as_of` asks what was valid at a moment, `known_at`
        what had been remembered by then; `where` compares metadata. Further filters: see `Filter`.
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
        return recall_from(self._store, question, limit=limit, wanted=wanted, embedder=self._embedder)

    def get(self, id: str) -> Record | None:
        """The newest version of a memory, or None. Counts as a use of it."""
        record = self._store.get(id)
        if record is not None:
            self._store.touch([record.seq], self._node)
        return record

    def history(self, id: str) -> builtins.list[Record]:
        """Every version of a memory, oldest first; empty where there is none."""
        return self._store.history(id)

    def list(
        self, /, *, limit: int = 50, after: int | None = None, newest_first: bool = True, **filters: Any
    ) -> Page:
        """A page of memories in the order in which they were written; pass `page.next` as `after` for more."""
        return self._store.scan(Filter.of(**filters), limit=limit, after=after, newest_first=newest_first)

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
        return self._store.forget(wanted, timeout_s)

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

    def vacuum(self) -> int:
        """Give free space back to the disk and tidy the index; how many bytes the file shrank by."""
        return self._store.vacuum()

    def get_stats(self) -> dict[str, int]:
        """Counts and sizes, as they are stored now, and the budgets."""
        budgets = {
            name: getattr(self._settings, name) for name in sorted(AGREED_SETTINGS) if name.endswith("token_budget")
        }
        return {**self._store.stats(), **budgets}

    def close(self) -> None:
        """Let go of the file; waits a bounded time for background work. Safe to call twice."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        place = self._store.path or "in memory"
        return f"<Memory {place} namespace={self._store.namespace!r}>"


_PLAIN_MESSAGE_KEYS = frozenset({"role", "content", "name", "id", "session_id", "created_at", "metadata"})


def _mapping(metadata: object) -> Mapping[str, Any]:
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"the metadata of a message is a mapping, not {type(metadata).__name__}")
    return metadata


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
    get = _in_thread(Memory.get)
    history = _in_thread(Memory.history)
    list = _in_thread(Memory.list)
    pin = _in_thread(Memory.pin)
    unpin = _in_thread(Memory.unpin)
    forget = _in_thread(Memory.forget)
    keep = _in_thread(Memory.keep)
    apply_retention = _in_thread(Memory.apply_retention)
    flush = _in_thread(Memory.flush)
    check = _in_thread(Memory.check)
    backup = _in_thread(Memory.backup)
    vacuum = _in_thread(Memory.vacuum)
    get_stats = _in_thread(Memory.get_stats)
    close = _in_thread(Memory.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
