"""One layer for each tier: recent tasks, important tasks, summaries, knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from loom.knowledge.stand_ins import stand_in, stand_in_task
from loom.memory.layers.base import MemoryLayer
from loom.protocol import Task
from loom.storage.contract import Record
from loom.types import MemoryTier, TaskSummary, record_as_task

__all__ = [
    "CircularBufferLayer",
    "KnowledgeLayer",
    "PriorityQueueLayer",
    "PriorityTokenLayer",
    "SummaryLayer",
    "TokenBudgetLayer",
]


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
