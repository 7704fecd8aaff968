"""LoomMemory: one agent's memory. Everything it hears is kept in the log and has its place in four tiers.

memory = LoomMemory("agent-1", l1_token_budget=8000, l2_token_budget=16000)
memory.add_task(task)
memory.get_l2_tasks(limit=10)
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from loom.drafts import NO_ATTRIBUTES, Attributes, Drafter, checked_text
from loom.errors import InvalidInput, SettingsConflict
from loom.memory.layers import KnowledgeLayer, MemoryLayer, PriorityTokenLayer, SummaryLayer, TokenBudgetLayer
from loom.models.embedders import EmbeddingProvider, embed_texts, embedder_from_name
from loom.protocol import Clock, Task, utc_now
from loom.recall.feedback import Feedback
from loom.recall.hits import Hit
from loom.recall.relevance import Weights
from loom.recall.search import Explanation, Reranker, recall
from loom.settings import Settings, load_settings
from loom.storage import open_store
from loom.storage.contract import COMPACT, COUNT, DERIVE, RESTORE, RETAIN, Filter, Record, Store, Transaction
from loom.text.sanitizer import ContentSanitizer
from loom.text.tokens import TokenCounter, counter_by_name, counters_by_name
from loom.tiers.controller import TierController
from loom.tiers.eviction import Segments, segments
from loom.tiers.jobs import Migration, Promotion
from loom.tiers.migration import MoveCounts, Tiers
from loom.tiers.monitor import MONITOR_ACTION, Monitor
from loom.tiers.quotas import (
    ALARM_ACTION,
    ArchiveCounters,
    FocusCounters,
    LayerCounters,
    LayerQuota,
    QuotaCheck,
    RagCounters,
    WorkingCounters,
    WorkingSegments,
    check_quota,
    quotas_of,
)
from loom.types import (
    Fact,
    FactType,
    MemoryTier,
    MemoryType,
    Receipt,
    StoredSummary,
    TaskSummary,
    Trust,
    known_tier,
    record_as_fact,
    record_as_summary,
    record_as_task,
)

if TYPE_CHECKING:
    from loom.events import EventBus, Subscription
    from loom.memory.compaction import CompactionConfig, CompactionResult, MemoryCompactor
    from loom.memory.derivation import Derivation, UndoResult
    from loom.models.language_model import LanguageModelLike
    from loom.snapshots.staging import Restored

__all__ = ["LoomMemory"]

_ANYTHING = Filter()
_NOT_DERIVED = Filter(derived=False)


class LoomMemory:
    """The tiers of one node over a store. Thread-safe; many processes may share a file.

    `store` is a store to share (it stays open when this memory closes), or a path, or nothing for a memory that
    lives in this process. Budgets and other settings that are not given come from the environment, a TOML file,
    the memory file itself or the profile. With an `event_bus`, every task published there is remembered once.
    `embedder` is a provider or the name of one; `enable_l4_vectorization=False` does without. `llm` is what facts
    and summaries are drawn with, in the background, and names are read with; without one rules do both.
    """

    def __init__(
        self,
        node_id: str | None = None,
        *,
        event_bus: EventBus | None = None,
        store: Store | str | Path | None = None,
        l1_token_budget: int | None = None,
        l2_token_budget: int | None = None,
        l3_token_budget: int | None = None,
        l4_token_budget: int | None = None,
        strategy: str | None = None,
        profile: str | None = None,
        token_counter: TokenCounter | None = None,
        embedder: EmbeddingProvider | str | None = None,
        embedding_provider: EmbeddingProvider | None = None,
        enable_l4_vectorization: bool = True,
        sanitizer: ContentSanitizer | None = None,
        llm: LanguageModelLike | None = None,
        compaction: CompactionConfig | None = None,
        reconfigure: bool = False,
        clock: Clock = utc_now,
        config: str | Path | None = None,
        all_namespaces: bool = False,
        **settings: Any,
    ) -> None:
        given = embedding_provider if embedder is None else embedder
        if not enable_l4_vectorization:
            given = "none"
        if isinstance(given, str):
            settings["embedder"] = given
        if token_counter is not None:
            settings["counter"] = token_counter.name
        loaded = load_settings(
            settings
            | {
                "node_id": node_id,
                "l1_token_budget": l1_token_budget,
                "l2_token_budget": l2_token_budget,
                "l3_token_budget": l3_token_budget,
                "l4_token_budget": l4_token_budget,
                "strategy": strategy,
                "profile": profile,
            },
            file=config,
        )
        self._owns_store = store is None or isinstance(store, str | Path)
        self._store: Store = (
            _open_store(store, loaded, clock, all_namespaces)
            if store is None or isinstance(store, str | Path)
            else store
        )
        self._subscription: Subscription | None = None
        try:
            counters = counters_by_name() | ({} if token_counter is None else {token_counter.name: token_counter})
            self._store.count_with({name: counter.count for name, counter in counters.items()})
            self._node = loaded.node_id
            self._controller = TierController(self._node, event_bus)
            self.feedback = Feedback(self._store, self._node)

            def tiers_under(agreed: Settings) -> Tiers:
                counter = counter_by_name(agreed.counter) if token_counter is None else token_counter
                return Tiers(self._store, self._node, agreed, counter, self._controller)

            self._tiers = tiers_under(_agree(self._store, loaded, reconfigure, tiers_under))
            self._counter = self._tiers.counter
            self._embedder = _choose_embedder(self._store, loaded, given, reconfigure)
            self._drafter = Drafter(self._node, self._counter, self._store.clock, sanitizer)
        except BaseException:
            if self._owns_store:
                self._store.close()
            raise
        self._migration = Migration(self._tiers)
        self._store.retry_jobs(self._migration.kind, COUNT, RETAIN, DERIVE, RESTORE, COMPACT)
        self._store.add_chore(self._migration, self._migration.work)
        self._controller.attach(self._tiers, self._migration)
        if self._controller.is_active:
            self._store.add_chore(self._controller, self._controller.work)
        self._llm = llm
        self._compaction = compaction
        if self._tiers.settings.derive:
            # What draws knowledge is loaded when there is time to: opening does not wait for it.
            self._store.add_chore(self, lambda publish, thorough: self.derivation.work(publish, thorough))
        self._bus = event_bus
        if event_bus is not None:
            self._subscription = event_bus.register_handler("*", self._on_task, blocking=True)

    # -- what it is made of ----------------------------------------------------------------------------

    @property
    def node_id(self) -> str:
        """The node whose memory this is."""
        return self._node

    @property
    def store(self) -> Store:
        """The store underneath, to share with a pool or another node."""
        return self._store

    @property
    def settings(self) -> Settings:
        """The settings that hold; `settings.explain()` says where each came from."""
        return self._tiers.settings

    @property
    def counter(self) -> TokenCounter:
        """What counts the tokens."""
        return self._counter

    @property
    def embedder(self) -> EmbeddingProvider | None:
        """What embeds here; None where words are searched alone."""
        return self._embedder

    @property
    def drafter(self) -> Drafter:
        """What makes drafts of records for this node."""
        return self._drafter

    @property
    def tiers(self) -> Tiers:
        """The tiers as a whole: writing into them and moving between them."""
        return self._tiers

    @property
    def migration(self) -> Migration:
        """Promotions and demotions as jobs: triggers, pressure, and what is queued."""
        return self._migration

    @property
    def monitor(self) -> Monitor:
        """The measures of this memory, each with its target and its alarm: `monitor.table()` for people."""
        return self._controller.refreshed_monitor()

    @property
    def l1(self) -> TokenBudgetLayer:
        """The recent tier."""
        return TokenBudgetLayer(self._tiers, self._drafter)

    @property
    def l2(self) -> PriorityTokenLayer:
        """The working tier."""
        return PriorityTokenLayer(self._tiers, self._drafter)

    @property
    def l3(self) -> SummaryLayer:
        """The archive."""
        return SummaryLayer(self._tiers, self._drafter)

    @property
    def l4(self) -> KnowledgeLayer:
        """The knowledge tier."""
        return KnowledgeLayer(self._tiers, self._drafter)

    @property
    def layers(self) -> Mapping[MemoryTier, MemoryLayer[Any]]:
        """The four tiers, all with the same interface."""
        tiers = (self.l1, self.l2, self.l3, self.l4)
        return {layer.tier: layer for layer in tiers}

    @functools.cached_property
    def compactor(self) -> MemoryCompactor:
        """What summarises stretches of the archive tier when that is nearly full."""
        from loom.knowledge.summarizer import Summarizer
        from loom.memory.compaction import MemoryCompactor

        summarizer = Summarizer(self._llm, token_counter=self._counter)
        return MemoryCompactor(self._compaction, self, self._counter, summarizer=summarizer)

    @functools.cached_property
    def derivation(self) -> Derivation:
        """Derives facts and summaries from the log in the background, and undoes them."""
        from loom.knowledge.extraction import FactExtractor
        from loom.memory.derivation import Derivation

        return Derivation(self._store, self._tiers, FactExtractor(self._llm), self.compactor, self._embedder)

    # -- remembering -----------------------------------------------------------------------------------

    def add_task(
        self,
        task: Task,
        tier: MemoryTier | str | None = None,
        *,
        importance: float | None = None,
        session_id: str | None = None,
        on_oversize: str = "archive",
    ) -> Receipt:
        """Keep a task; committed when this returns. The receipt may be awaited, which changes nothing.

        It comes into L1 and, above the profile's importance, into L2; with another `tier`, into that one alone.
        The importance is the given one, else that in the task's metadata, else that of its action.
        """
        if not isinstance(task, Task):
            raise InvalidInput(f"add_task() takes a Task, not {type(task).__name__}")
        attributes = NO_ATTRIBUTES._replace(importance=importance, session_id=session_id)
        draft = self._drafter.task(task, None, attributes)
        return self._tiers.write(
            [draft], None if tier is None else known_tier(tier), on_oversize=on_oversize, again=tier is not None
        )[0]

    def add_fact(
        self,
        fact: Fact | str,
        *,
        fact_type: FactType | str | None = None,
        confidence: float | None = None,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        session_id: str | None = None,
        sources: Sequence[str] = (),
    ) -> Receipt:
        """Keep a fact in the knowledge tier; the same fact with another text or confidence is its next version.

        `sources` are the ids it was drawn from: forgetting one takes the fact too.
        """
        if not isinstance(fact, Fact | str):
            raise InvalidInput(f"add_fact() takes a Fact or a text, not {type(fact).__name__}")
        known = fact if isinstance(fact, Fact) else Fact(checked_text(fact))
        changes: dict[str, Any] = {"fact_type": fact_type, "confidence": confidence, "tags": tags}
        known = replace(known, **{name: value for name, value in changes.items() if value is not None})
        attributes = Attributes(
            None,
            None,
            session_id,
            known.created_at,
            known.confidence if importance is None else importance,
            {},
            Trust.AGENT,
            MemoryType.FACT,
            None,
        )
        data = {"fact_type": str(known.fact_type), "confidence": known.confidence, "tags": known.tags}
        draft = self._drafter.text(
            checked_text(known.content), known.id, attributes, data, revises=True, keep_data=True
        )
        return self._tiers.write([draft._replace(sources=tuple(sources))], MemoryTier.L4)[0]

    def _on_task(self, task: Task) -> None:
        """Hear a task from the bus. The same task again is no second memory; our own alarms are none at all.

        A task that names other nodes of this namespace, and not this one, is theirs.
        """
        if task.action.startswith((ALARM_ACTION, MONITOR_ACTION)):
            return
        named = {task.source_agent, task.target_agent} - {""}
        # Asked for by name: a tree may have a thousand nodes, and each of them hears every task.
        if self._node in named or not any(self._store.settings(name) for name in named):
            self.add_task(task)

    # -- reading the tiers -----------------------------------------------------------------------------

    def get_l1_tasks(self, limit: int | None = None, session_id: str | None = None) -> list[Task]:
        """The newest tasks of L1, at most `limit`, in the order in which they came.

        For a task that is too large for L1 there is a short one, with `stand_in` in its metadata.
        """
        return self.l1.retrieve(limit, session_id=session_id)

    def get_l2_tasks(self, limit: int | None = None, session_id: str | None = None) -> list[Task]:
        """The tasks of L2, the most important first."""
        return self.l2.retrieve(limit, session_id=session_id)

    def get_l3_summaries(self, session_id: str | None = None, limit: int | None = None) -> list[TaskSummary]:
        """The summaries of L3, the newest arrivals, at most `limit`, in the order in which they came."""
        return self.l3.retrieve(limit, session_id=session_id)

    def get(self, id: str) -> Record | None:
        """The newest version of a memory, or None. Counts as a use of it."""
        if not isinstance(id, str):
            raise InvalidInput(f"an id is a text, not {id!r}")
        record = self._store.get(id)
        if record is not None:
            self._tiers.use(record.seq)
            self._controller.used(record.seq, record.session_id)
        return record

    def get_task(self, task_id: str) -> Task | None:
        """A task by its id, from whichever tier or from the log; None also for a fact. Counts as a use of it."""
        record = self.get(task_id)
        return None if record is None or record.kind == MemoryType.FACT else record_as_task(record)

    def get_fact(self, fact_id: str) -> Fact | None:
        """A fact by its id. Counts as a use of it."""
        record = self.get(fact_id)
        return None if record is None or record.kind != MemoryType.FACT else self._as_fact(record)

    def sources_of(self, record: Record) -> tuple[str, ...]:
        """The ids of what a record was drawn from; for one version of a fact, of its own time, not of the chain."""
        sources = self._store.neighbours(record.id)[0]
        if record.version > 1 or record.superseded_at is not None:
            told = (self._store.get(one) for one in sources)
            until = record.superseded_at
            sources = tuple(
                one.id
                for one in told
                if one is not None
                and one.created_at >= record.created_at
                and (until is None or one.created_at < until)
            )
        return sources

    def _as_fact(self, record: Record) -> Fact:
        sources = self.sources_of(record)
        return record_as_fact(record, self._store.uses(record.seq, self._node), sources)

    def facts(
        self,
        question: str | None = None,
        *,
        limit: int = 50,
        fact_type: FactType | str | None = None,
        session_id: str | None = None,
        as_of: datetime | None = None,
        history: bool = False,
    ) -> list[Fact]:
        """What is known: the facts that answer a question, best first, or without one the newest first.

        With `as_of`, what held at that moment; with `history`, also what no longer holds.
        """
        kind = None if fact_type is None else _known_fact_type(fact_type)
        wanted = Filter(
            node=self._node, kind=str(MemoryType.FACT), session_id=session_id, as_of=as_of, history=history
        )
        found: list[Fact] = []
        asked, after = limit, None
        while True:
            if question is None:
                page = self._store.scan(wanted, limit=limit, after=after)
                records, after = list(page.records), page.next
            else:
                records = self._records_of(self.recall(question, limit=asked, wanted=wanted))
                found, after = [], asked if len(records) == asked else None
                asked *= 4
            found += [fact for fact in map(self._as_fact, records) if kind in (None, fact.fact_type)]
            if len(found) >= limit or after is None:
                return found[:limit]

    def summaries(
        self, session_id: str | None = None, *, limit: int = 50, history: bool = False
    ) -> list[StoredSummary]:
        """The summaries of stretches of dialogue, the newest first; with `history`, also those that hold no more."""
        wanted = Filter(node=self._node, kind=str(MemoryType.SUMMARY), session_id=session_id, history=history)
        page = self._store.scan(wanted, limit=limit)
        return [record_as_summary(record, self._store.neighbours(record.id)[0]) for record in page.records]

    def compact(self) -> CompactionResult:
        """Summarise stretches of the archive tier now, down to its target. A memory does so by itself in time."""
        return self.compactor.compact()

    def undo(self, id: str) -> UndoResult:
        """Withdraw a summary, a merged fact or a fact that the memory has drawn by itself.

        What it stood for has its place back. The originals were never touched.
        """
        return self.derivation.undo(id)

    def get_call_chain(self, task_id: str) -> list[Task]:
        """A task and the tasks that led to it by `parent_task_id`, the first cause first. Cycles end it."""
        chain: list[Task] = []
        seen: set[str] = set()
        wanted: str | None = task_id
        while wanted and wanted not in seen:
            seen.add(wanted)
            record = self._store.get(wanted)
            if record is None:
                break
            task = record_as_task(record)
            chain.append(task)
            wanted = task.parent_task_id
        return chain[::-1]

    # -- searching -------------------------------------------------------------------------------------

    def recall(self, question: str, *, limit: int = 10, wanted: Filter | None = None) -> list[Hit]:
        """The memories that answer a question, best first: of every node of the namespace, unless filtered.

        What was drawn from memories is left out, as they say the same themselves; a filter on `kind` asks for it.
        """
        return self.search(question, limit=limit, wanted=wanted).hits

    def search(
        self,
        question: str,
        *,
        limit: int = 10,
        wanted: Filter | None = None,
        weights: Weights | None = None,
        diversity: float = 0.0,
        reranker: Reranker | None = None,
        seeds: int = 0,
        explain: bool = False,
    ) -> Explanation:
        """A recall with everything that can be said about it: see `recall.recall`."""
        if wanted is None or wanted == _ANYTHING:
            wanted = _NOT_DERIVED
        elif wanted.derived is None and wanted.kind is None:
            wanted = replace(wanted, derived=False)
        started = time.perf_counter()
        found = recall(
            self._store,
            question,
            limit=limit,
            wanted=wanted,
            embedder=self._embedder,
            weights=weights or self.feedback.weights(),
            diversity=diversity,
            reranker=reranker,
            node=self._node,
            seeds=seeds,
            explain=explain,
        )
        self._controller.searched(time.perf_counter() - started)
        return found

    def search_tasks(self, query: str, limit: int = 10, session_id: str | None = None) -> list[Task]:
        """The tasks that answer a question, best first, wherever they are. What is no fact is a task here."""
        wanted = Filter(node=self._node, session_id=session_id)
        asked = limit
        while True:
            hits = self.recall(query, limit=asked, wanted=wanted)
            found = [hit for hit in hits if hit.kind != MemoryType.FACT][:limit]
            if len(found) == limit or len(hits) < asked:
                break
            asked *= 4
        return [record_as_task(record) for record in self._records_of(found)]

    def search_facts(self, query: str, limit: int = 10, session_id: str | None = None) -> list[Fact]:
        """The facts that answer a question, best first."""
        return self.facts(query, limit=limit, session_id=session_id)

    def _records_of(self, hits: Sequence[Hit]) -> list[Record]:
        """The records of hits, each in the version that was found."""
        found: list[Record] = []
        for hit in hits:
            record = self._store.get(hit.id)
            if record is not None and record.version != hit.version:
                versions = {one.version: one for one in self._store.history(hit.id)}
                record = versions.get(hit.version)
            if record is not None:
                found.append(record)
        return found

    # -- moving ----------------------------------------------------------------------------------------

    def promote_tasks(self) -> MoveCounts:
        """Bring every tier in line now: L1 to L2, L2 to L3, L3 to L4 (away from the prompt: "promote" is the
        documents' word for it). Every write does so by itself."""
        return self._tiers.rebalance()

    async def promote_tasks_async(self) -> MoveCounts:
        """The same, and wait until everything is embedded and indexed, so that L4 can be searched by meaning."""
        import asyncio

        moved = await asyncio.to_thread(self.promote_tasks)
        await asyncio.to_thread(self._store.flush)
        return moved

    def promote(self, id: str, to: MemoryTier | str = MemoryTier.L2) -> Promotion:
        """Bring a memory back up, to the working tier or (`to="l1"`) into the window, where it stays until others
        are brought there. It says what moved, or why not."""
        return self._migration.promote([id], known_tier(to))

    def demote(self, id: str) -> MemoryTier | None:
        """Let a memory go one tier down, away from the prompt; the tier that has it then, or None: the log alone."""
        return self._migration.demote([id])[id]

    # -- how it stands ---------------------------------------------------------------------------------

    @property
    def quotas(self) -> Mapping[MemoryTier, LayerQuota]:
        """The limits of each tier: hard (never exceeded), soft (where work begins) and warning."""
        return quotas_of(self._tiers.rules())

    def check_quota(self, tier: MemoryTier | str, incoming: int) -> QuotaCheck:
        """Whether a tier would take so many more tokens, and what would have to happen for it."""
        known = known_tier(tier)
        return check_quota(known, self.layers[known].token_usage, incoming, self._tiers.rules())

    def segments(self) -> Segments:
        """The residents of the working tier in its hot, warm and cold part."""
        rules = self._tiers.rules()
        residents = self._store.residents(self._node, MemoryTier.L2)
        budget = rules.budgets[MemoryTier.L2]
        return segments(residents, budget, rules.profile.eviction, rules.profile.eviction_weights)

    def get_counters(self) -> LayerCounters:
        """What the tiers hold, in the terms of a runtime: focus, working, archive, rag."""
        usage, quotas, parts = self._store.usage(self._node), self.quotas, self.segments()
        held = {tier: usage[tier] for tier in MemoryTier if tier in usage}
        archive = held.get(MemoryTier.L3)
        sizes = [sum(one.tokens for one in part) for part in parts]
        working = held.get(MemoryTier.L2)
        return LayerCounters(
            FocusCounters(usage[MemoryTier.L1].tokens, quotas[MemoryTier.L1]),
            WorkingCounters(
                sum(sizes),
                quotas[MemoryTier.L2],
                WorkingSegments(*sizes),
                working.hits if working else 0,
                working.misses if working else 0,
            ),
            ArchiveCounters(
                self._store.original_tokens(self._node, MemoryTier.L3),
                archive.tokens if archive else 0,
                quotas[MemoryTier.L3],
            ),
            RagCounters(
                held[MemoryTier.L4].tokens if MemoryTier.L4 in held else 0,
                quotas[MemoryTier.L4],
                self._store.stats()["vectors"],
            ),
        )

    def restore(
        self,
        snapshot: str | Path | Sequence[str | Path],
        *,
        namespace: str | None = None,
        forgotten: bool = False,
        without: Sequence[str] = (),
    ) -> Restored:
        """Bring in what a snapshot holds, in one transaction; every tier is within its budget afterwards.

        See `loom.snapshots.merging.restore_into`.
        """

        from loom.snapshots.merging import restore_into

        def make_room(transaction: Transaction, nodes: Sequence[str]) -> None:
            for node in nodes:
                Tiers(self._store, node, self.settings, self._tiers.counter).make_room(transaction)

        return restore_into(
            self._store, snapshot, namespace=namespace, forgotten=forgotten, without=without, then=make_room
        )

    def get_stats(self) -> dict[str, Any]:
        """Usage, budget and count of each tier, the backlog and the store's counts, as they are stored now.

        `backlog` counts queued work (embedding, that is, until L4 can be searched by meaning). `set_aside` names the
        records that background work gave up, and why. `lost` is the range of sequence numbers that are known to have
        been committed and are gone, or None.
        `l2_hit_rate` is None until something was asked for; it is counted where the profile is led by use.
        """
        usage, budgets = self._store.usage(self._node), self._tiers.rules().budgets
        stats: dict[str, Any] = {}
        for tier in MemoryTier:
            held = usage.get(tier)
            stats[f"{tier}_token_usage"] = held.tokens if held else 0
            stats[f"{tier}_token_budget"] = budgets[tier]
            stats[f"{tier}_items"] = held.items if held else 0
        working = usage.get(MemoryTier.L2)
        hits, misses = (working.hits, working.misses) if working else (0, 0)
        counts = self._store.stats()
        archive = self._store.archived()
        return {
            **stats,
            "l2_hits": hits,
            "l2_misses": misses,
            "l2_hit_rate": hits / (hits + misses) if hits + misses else None,
            "backlog": counts["jobs"],
            **counts,
            "set_aside": self._store.set_aside(),
            "lost": self._store.lost,
            "archived": archive.records,
            "archive_ratio": round(archive.ratio, 2) if archive.records else None,
            **self.monitor.as_dict(),
            **self.feedback.as_dict(),
        }

    # -- life ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop listening, and let go of the store if this memory opened it. Safe to call twice."""
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None
        self._store.remove_chores(self, self._migration, self._controller)
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._node!r} in {self._store.location.removeprefix('in ')}>"


def _known_fact_type(fact_type: FactType | str) -> FactType:
    try:
        return FactType(fact_type)
    except ValueError as error:
        raise InvalidInput(f"there is no fact type {fact_type!r}; the types are {', '.join(FactType)}") from error


def _open_store(path: str | Path | None, settings: Settings, clock: Clock, all_namespaces: bool) -> Store:
    return open_store(
        path,
        namespace=settings.namespace,
        read_only=settings.read_only,
        durability=settings.durability,
        busy_timeout_s=settings.busy_timeout_s,
        close_timeout_s=settings.close_timeout_s,
        tail=(settings.index_tail_records, settings.index_tail_bytes),
        lease_s=settings.lease_s,
        archive_after_days=settings.archive_after_days or None,
        clock=clock,
        all_namespaces=all_namespaces,
        file_mode=int(settings.file_mode, 8),
    )


def _agree(store: Store, wanted: Settings, reconfigure: bool, tiers_under: Callable[[Settings], Tiers]) -> Settings:
    """What holds for this node, settled with every other process that has the file open.

    Budgets may be smaller now than they were: who must leave does so in the transaction that changes them.
    """
    agreed = wanted

    def decide(stored: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal agreed
        agreed = wanted.agree_with(stored, reconfigure=reconfigure)
        return agreed.for_store()

    store.update_settings(wanted.node_id, decide, lambda transaction: tiers_under(agreed).make_room(transaction))
    return agreed


def _choose_embedder(
    store: Store, settings: Settings, given: EmbeddingProvider | str | None, reconfigure: bool
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
