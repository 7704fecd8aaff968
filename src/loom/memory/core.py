"""LoomMemory: one agent's memory. The log keeps every task, and four tiers hold the records that are likely to be
needed next.

    memory = LoomMemory("agent-1", l1_token_budget=8000, l2_token_budget=16000)
    memory.add_task(task)
    memory.get_l2_tasks(limit=10)

The verbs are those of `loom.memory.verbs`. This module adds the names of the design documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from loom.checks import checked_instance, checked_items
from loom.drafts import NO_ATTRIBUTES, Attributes, checked_text
from loom.errors import InvalidInput
from loom.memory.layers import KnowledgeLayer, MemoryLayer, PriorityTokenLayer, SummaryLayer, TokenBudgetLayer
from loom.memory.verbs import MemoryVerbs, checked_id
from loom.protocol import ReadyList, Task
from loom.storage.contract import Filter, Usage
from loom.tiers.eviction import Segments, segments
from loom.tiers.migration import MoveCounts
from loom.tiers.quotas import (
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
    AccessRecord,
    Fact,
    FactType,
    MemoryTier,
    MemoryType,
    Receipt,
    TaskSummary,
    Trust,
    known_tier,
    record_as_task,
)

__all__ = ["LoomMemory"]


class LoomMemory(MemoryVerbs):
    """The tiers of one node over a store, with the verbs of a memory and the names of the design documents.

    Thread-safe; many processes may share a file. `store` is a store to share (it stays open when this memory closes),
    a path, or None for a memory in this process. See `MemoryOptions` for the options.
    """

    # -- the tiers -------------------------------------------------------------------------------------

    @property
    def l1(self) -> TokenBudgetLayer:
        """The recent tier."""
        return TokenBudgetLayer(self.tiers, self.drafter)

    @property
    def l2(self) -> PriorityTokenLayer:
        """The working tier."""
        return PriorityTokenLayer(self.tiers, self.drafter)

    @property
    def l3(self) -> SummaryLayer:
        """The archive."""
        return SummaryLayer(self.tiers, self.drafter)

    @property
    def l4(self) -> KnowledgeLayer:
        """The knowledge tier."""
        return KnowledgeLayer(self.tiers, self.drafter)

    @property
    def layers(self) -> Mapping[MemoryTier, MemoryLayer[Any]]:
        """The four tiers, all with the same interface."""
        return {layer.tier: layer for layer in (self.l1, self.l2, self.l3, self.l4)}

    @property
    def l1_token_budget(self) -> int:
        """The most tokens that L1 holds."""
        return self.tiers.rules().budgets[MemoryTier.L1]

    @property
    def l2_token_budget(self) -> int:
        """The most tokens that L2 holds."""
        return self.tiers.rules().budgets[MemoryTier.L2]

    @property
    def l3_token_budget(self) -> int:
        """The most tokens that L3 holds."""
        return self.tiers.rules().budgets[MemoryTier.L3]

    @property
    def l4_token_budget(self) -> int:
        """The most tokens that are resident in L4."""
        return self.tiers.rules().budgets[MemoryTier.L4]

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
        """Store a task; committed when this returns. The receipt may be awaited, which changes nothing.

        It enters L1, and L2 if its importance is above the profile's threshold; with another `tier`, that tier alone.
        The importance is the given one, else that in the task's metadata, else that of its action.
        """
        checked_instance(task, Task, "the task of add_task()")
        attributes = NO_ATTRIBUTES._replace(importance=importance, session_id=session_id)
        draft = self.drafter.task(task, None, attributes)
        return self.tiers.write(
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
        """Store a fact in the knowledge tier. The same fact with another text or confidence is its next version.

        `sources` are the ids it was derived from: forgetting one of them removes the fact too.
        """
        if not isinstance(fact, Fact | str):
            raise InvalidInput(f"add_fact() takes a Fact or a text, not {type(fact).__name__}")
        known = fact if isinstance(fact, Fact) else Fact(checked_text(fact, "add_fact"))
        origins = checked_items(sources, str, "add_fact", "sources")
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
        draft = self.drafter.text(
            checked_text(known.content, "add_fact"), known.id, attributes, data, revises=True, keep_data=True
        )
        return self.tiers.write([draft._replace(sources=tuple(origins))], MemoryTier.L4)[0]

    # -- finding again ---------------------------------------------------------------------------------

    def get_l1_tasks(self, limit: int | None = None, session_id: str | None = None) -> list[Task]:
        """The newest tasks of L1, at most `limit`, in the order of arrival.

        A task that is too large for L1 appears as a short one, with `stand_in` in its metadata.
        """
        return self.l1.retrieve(limit, session_id=session_id)

    def get_l2_tasks(self, limit: int | None = None, session_id: str | None = None) -> list[Task]:
        """The tasks of L2, most important first."""
        return self.l2.retrieve(limit, session_id=session_id)

    def get_l3_summaries(self, session_id: str | None = None, limit: int | None = None) -> list[TaskSummary]:
        """The newest summaries of L3, at most `limit`, in the order of arrival."""
        return self.l3.retrieve(limit, session_id=session_id)

    def get_task(self, task_id: str) -> Task | None:
        """A task by its id, from a tier or from the log; None for a fact. Counts as a use of it."""
        record = self.get(task_id)
        return None if record is None or record.kind == MemoryType.FACT else record_as_task(record)

    def get_fact(self, fact_id: str) -> Fact | None:
        """A fact by its id. Counts as a use of it."""
        record = self.get(fact_id)
        return None if record is None or record.kind != MemoryType.FACT else self._as_fact(record)

    def access_record(self, id: str) -> AccessRecord | None:
        """The uses of a memory by this node; None if there is no such memory. Reading this is not a use."""
        record = self.store.get(checked_id("access_record", id))
        if record is None:
            return None
        access = self.store.accesses([record.seq], self.node_id).get(record.seq)
        if access is None:
            return AccessRecord((), 0)
        return AccessRecord(
            tuple(moment for moment in (access.previous_at, access.last_at) if moment is not None), access.count
        )

    def get_call_chain(self, task_id: str) -> list[Task]:
        """A task and the tasks that led to it by `parent_task_id`, the first cause first. A cycle ends the chain."""
        chain: list[Task] = []
        seen: set[str] = set()
        wanted: str | None = checked_id("get_call_chain", task_id)
        while wanted and wanted not in seen:
            seen.add(wanted)
            record = self.store.get(wanted)
            if record is None:
                break
            task = record_as_task(record)
            chain.append(task)
            wanted = task.parent_task_id
        return chain[::-1]

    def search_tasks(self, query: str, limit: int = 10, session_id: str | None = None) -> ReadyList[Task]:
        """The tasks that answer a question, best first, from every tier. Every record except a fact counts as a task
        here.

        The list may be awaited, which changes nothing.
        """
        wanted = Filter(node=self.node_id, session_id=session_id)
        asked = limit
        while True:
            hits = self.recall(query, limit=asked, wanted=wanted)
            found = [hit for hit in hits if hit.kind != MemoryType.FACT][:limit]
            if len(found) == limit or len(hits) < asked:
                break
            asked *= 4
        return ReadyList(record_as_task(record) for record in self._records_of(found))

    def search_facts(self, query: str, limit: int = 10, session_id: str | None = None) -> ReadyList[Fact]:
        """The facts that answer a question, best first. The list may be awaited, which changes nothing."""
        return ReadyList(self.facts(query, limit=limit, session_id=session_id))

    # -- moving, and the state of the tiers ---------------------------------------------------------------------

    def promote_tasks(self) -> MoveCounts:
        """Move records between the tiers now: L1 to L2, L2 to L3, L3 to L4. The documents call these moves away
        from the prompt "promote". Every write also makes them."""
        return self.tiers.rebalance()

    async def promote_tasks_async(self) -> MoveCounts:
        """Do the same, and wait until everything is embedded and indexed, so that L4 can be searched by meaning."""
        import asyncio

        moved = await asyncio.to_thread(self.promote_tasks)
        await asyncio.to_thread(self.store.flush)
        return moved

    @property
    def quotas(self) -> Mapping[MemoryTier, LayerQuota]:
        """The limits of each tier: hard (never exceeded), soft (where work begins) and warning."""
        return quotas_of(self.tiers.rules())

    def check_quota(self, tier: MemoryTier | str, incoming: int) -> QuotaCheck:
        """Whether a tier has room for this many more tokens, or must evict records or refuse."""
        known = known_tier(tier)
        return check_quota(known, self.layers[known].token_usage, incoming, self.tiers.rules())

    def segments(self) -> Segments:
        """The residents of the working tier in its hot, warm and cold part."""
        rules = self.tiers.rules()
        return segments(
            self.store.residents(self.node_id, MemoryTier.L2),
            rules.budgets[MemoryTier.L2],
            rules.profile.eviction,
            rules.profile.eviction_weights,
        )

    def get_counters(self) -> LayerCounters:
        """The content of the tiers in the terms of document 004: focus, working, archive, rag."""
        usage, quotas, parts = self.store.usage(self.node_id), self.quotas, self.segments()
        recent, working, archive, knowledge = (usage.get(tier, Usage()) for tier in MemoryTier)
        sizes = [sum(one.tokens for one in part) for part in parts]
        return LayerCounters(
            FocusCounters(recent.tokens, quotas[MemoryTier.L1]),
            WorkingCounters(sum(sizes), quotas[MemoryTier.L2], WorkingSegments(*sizes), working.hits, working.misses),
            ArchiveCounters(
                self.store.original_tokens(self.node_id, MemoryTier.L3), archive.tokens, quotas[MemoryTier.L3]
            ),
            RagCounters(knowledge.tokens, quotas[MemoryTier.L4], self.store.stats()["vectors"]),
        )
