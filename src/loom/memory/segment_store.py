"""Stores of original segments, so that facts and summaries can point back to them.

The log of a memory is such a store: every record can be read by its id, word for word. `LogSegmentStore` gives the
log the interface that a `MemoryCompactor` takes. Any other object with this interface works too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from loom.protocol import new_id, utc_now
from loom.storage.contract import Draft, Filter, Record, Store
from loom.types import MemoryType, Trust

__all__ = ["InMemorySegmentStore", "LogSegmentStore", "MemorySegment", "SegmentStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySegment:
    """A stretch of original text. `task_id` is its task, if it has one."""

    content: str
    segment_id: str = field(default_factory=new_id)
    timestamp: datetime = field(default_factory=utc_now)
    task_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class SegmentStore(Protocol):
    """Stores original segments."""

    def store(self, segment: MemorySegment) -> str:
        """Store a segment; return its id."""

    def retrieve(self, ids: Sequence[str]) -> list[MemorySegment]:
        """Segments by their ids, in that order; missing ones are left out."""

    def cleanup(self, before_timestamp: datetime) -> int:
        """Remove older segments; return their number."""


class InMemorySegmentStore:
    """Segments that exist as long as this object."""

    def __init__(self) -> None:
        self._segments: dict[str, MemorySegment] = {}

    def store(self, segment: MemorySegment) -> str:
        self._segments[segment.segment_id] = segment
        return segment.segment_id

    def retrieve(self, ids: Sequence[str]) -> list[MemorySegment]:
        return [self._segments[one] for one in ids if one in self._segments]

    def cleanup(self, before_timestamp: datetime) -> int:
        old = [one for one, segment in self._segments.items() if segment.timestamp < before_timestamp]
        for one in old:
            del self._segments[one]
        return len(old)


class LogSegmentStore:
    """The log of a memory as a segment store. It is durable and already holds every record.

    Text that is stored here and is not in the log yet becomes a record of its own, outside every tier.
    """

    def __init__(self, store: Store, node: str = "default") -> None:
        self._store = store
        self._node = node

    def store(self, segment: MemorySegment) -> str:
        known = self._store.get(segment.segment_id)
        if known is None or known.content != segment.content:
            draft = Draft(
                id=segment.segment_id,
                content=segment.content,
                created_at=segment.timestamp,
                kind=MemoryType.CONTEXT,
                node=self._node,
                trust=Trust.AGENT,
                metadata={
                    **segment.metadata,
                    _MARK: True,
                    **({"task_id": segment.task_id} if segment.task_id else {}),
                },
            )
            with self._store.transaction() as transaction:
                transaction.append([draft])
        return segment.segment_id

    def retrieve(self, ids: Sequence[str]) -> list[MemorySegment]:
        found = (self._store.get(one) for one in ids)
        return [_as_segment(record) for record in found if record is not None]

    def cleanup(self, before_timestamp: datetime) -> int:
        """Permanently forget the older segments that were stored here. Other records stay."""
        wanted = Filter(node=self._node, until=before_timestamp, where={_MARK: True}, history=True)
        return len(self._store.forget(wanted).ids)


_MARK = "segment"


def _as_segment(record: Record) -> MemorySegment:
    metadata = {key: value for key, value in record.metadata.items() if key != _MARK}
    return MemorySegment(
        content=record.content,
        segment_id=record.id,
        timestamp=record.created_at,
        task_id=metadata.pop("task_id", record.id if record.kind == MemoryType.TASK else None),
        metadata=metadata,
    )
