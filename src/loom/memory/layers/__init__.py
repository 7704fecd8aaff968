"""The four tiers behind one interface: add, retrieve, evict, size, clear; token budget and usage.

A layer holds nothing itself: it is a view of its tier in the store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from loom.checks import checked_whole, if_given
from loom.drafts import NO_ATTRIBUTES, Drafter, Rememberable
from loom.knowledge.stand_ins import stand_in, stand_in_task
from loom.protocol import Task
from loom.storage.contract import Record, Usage
from loom.tiers.migration import Tiers
from loom.types import MemoryTier, Receipt, TaskSummary, record_as_task

__all__ = [
    "CircularBufferLayer",
    "KnowledgeLayer",
    "MemoryLayer",
    "PriorityQueueLayer",
    "PriorityTokenLayer",
    "SummaryLayer",
    "TokenBudgetLayer",
]

Item = TypeVar("Item")
"""The items of a tier: tasks near the prompt, summaries further away."""


class MemoryLayer(ABC, Generic[Item]):
    """One tier of one node. `LoomMemory.l1` to `l4` are made for its node; all may be made at any time."""

    tier: ClassVar[MemoryTier]
    by_arrival: ClassVar[bool] = True
    """Whether a limit selects the newest arrivals; otherwise it selects the most important items."""

    def __init__(self, tiers: Tiers, drafter: Drafter) -> None:
        self._tiers = tiers
        self._drafter = drafter

    def add(self, what: Rememberable, *, importance: float | None = None, session_id: str | None = None) -> Receipt:
        """Store something in this tier. Storing in L1 is the usual way: important items then enter L2 too."""
        attributes = NO_ATTRIBUTES._replace(importance=importance, session_id=session_id)
        return self._tiers.write([self._drafter.draft(what, None, attributes)], self.tier, again=True)[0]

    def retrieve(self, limit: int | None = None, *, session_id: str | None = None) -> list[Item]:
        """The items of the tier, at most `limit`, of one session if one is given. Not counted as a use."""
        if_given(checked_whole, limit, "limit", 1)
        held = self._held()
        if self.by_arrival and limit is not None and session_id is None:
            held = dict(list(held.items())[-limit:])  # read only what is returned
        found = self._read(held)
        records = [found[seq] for seq in held if seq in found]
        return self._items([one for one in records if session_id in (None, one.session_id)], held, limit)

    def evict(self, tokens: int = 1) -> int:
        """Free at least this many tokens, least valuable records first. Returns the number of records that left. None
        of them is lost."""
        return self._tiers.evict(self.tier, checked_whole(tokens, "tokens of evict()", 1))

    def size(self) -> int:
        """The number of records in the tier."""
        return self._tiers.store.usage(self._tiers.node).get(self.tier, Usage()).items

    def clear(self) -> int:
        """Empty the tier. Returns the number of records that left. They stay in the log and can be recalled."""
        return self._tiers.clear(self.tier)

    @property
    def token_budget(self) -> int:
        return self._tiers.rules().budgets[self.tier]

    @property
    def token_usage(self) -> int:
        return self._tiers.store.usage(self._tiers.node).get(self.tier, Usage()).tokens

    def __len__(self) -> int:
        return self.size()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.token_usage:,} of {self.token_budget:,} tokens>"

    def _held(self) -> dict[int, int]:
        """Sequence number and size of each record in the tier, oldest arrival first."""
        return {one.record: one.tokens for one in self._tiers.store.residents(self._tiers.node, self.tier)}

    def _read(self, numbers: Iterable[int]) -> dict[int, Record]:
        return self._tiers.store.records(numbers)

    @abstractmethod
    def _items(self, records: Sequence[Record], sizes: Mapping[int, int], limit: int | None) -> list[Item]:
        """The records as items of the tier, at most `limit`."""


class TokenBudgetLayer(MemoryLayer[Task]):
    """L1: the newest tasks that fit the budget; the oldest leave first."""

    tier = MemoryTier.L1

    def _held(self) -> dict[int, int]:
        return self._tiers.window()

    def _read(self, numbers: Iterable[int]) -> dict[int, Record]:
        return self._tiers.recent(numbers)

    def _items(self, records: Sequence[Record], sizes: Mapping[int, int], limit: int | None) -> list[Task]:
        return [
            record_as_task(record) if sizes[record.seq] == record.tokens else stand_in_task(record)
            for record in (records if limit is None else records[-limit:])
        ]


class PriorityTokenLayer(MemoryLayer[Task]):
    """L2: the most valuable tasks by the profile's rule, most important first."""

    tier = MemoryTier.L2
    by_arrival = False

    def _items(self, records: Sequence[Record], sizes: Mapping[int, int], limit: int | None) -> list[Task]:
        ordered = sorted(records, key=lambda record: (-record.importance, -record.seq))
        return [record_as_task(record) for record in ordered[:limit]]


class SummaryLayer(MemoryLayer[TaskSummary]):
    """L3: a summary for each task that left L2; the oldest leave first."""

    tier = MemoryTier.L3

    def _items(self, records: Sequence[Record], sizes: Mapping[int, int], limit: int | None) -> list[TaskSummary]:
        return [stand_in(record) for record in (records if limit is None else records[-limit:])]


class KnowledgeLayer(SummaryLayer):
    """L4: summaries and facts across sessions. Items that leave stay in the log and are still searched."""

    tier = MemoryTier.L4


CircularBufferLayer = TokenBudgetLayer
PriorityQueueLayer = PriorityTokenLayer
