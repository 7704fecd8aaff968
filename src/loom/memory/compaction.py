"""Compaction: many stand-ins of the archive tier give way to one summary, and can come back.

When the archive tier is nearly full, stretches of a session are summarised in at most a tenth of their tokens. A
summary takes the places of what it was made from only if it keeps enough of it (the fidelity gate); one that does
not is kept beside them, with its score. The originals are in the log either way, and `undo` gives them their places
back. Nothing here is ever the only copy of anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.checks import checked_number
from loom.errors import InvalidInput
from loom.knowledge.fidelity import Fidelity, FidelityChecker
from loom.knowledge.summarizer import Summarizer, Summary, Turn
from loom.memory.segment_store import MemorySegment, SegmentStore
from loom.models.embedders import embed_texts
from loom.protocol import new_id
from loom.storage.contract import Draft, Record, Transaction
from loom.text.sentences import statements
from loom.text.tokens import TokenCounter
from loom.types import MemoryTier, MemoryType, Trust

if TYPE_CHECKING:
    from loom.memory.verbs import MemoryVerbs

__all__ = ["CompactionConfig", "CompactionResult", "MemoryCompactor"]

Publish = Callable[[], AbstractContextManager[Transaction]]

# A stretch has at most so many tokens of originals: about 32 KB of text, half an archive block.
_STRETCH_TOKENS = 8_000
# Below this a tenth is too little to say anything.
_SMALLEST_STRETCH = 160
# How many of the statements that matter are compared by meaning; reading a vector for each would take too long.
_COMPARED = 64
# Statements of this weight must not get lost: decisions, results, changes, fixes.
_MATTERS = 0.6

_LEAST_TRUSTED = (Trust.UNKNOWN, Trust.WEB, Trust.TOOL, Trust.AGENT, Trust.USER)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """When compaction begins and ends, as shares of the tier's budget, and what it must keep.

    What is less important than `min_importance` is not in a summary. `summary_ratio` is the share of the original
    tokens that a summary may have, `fidelity_threshold` how faithful it must be to what matters in them. By itself a
    memory compacts at most once in `cooldown_seconds`.
    """

    trigger_threshold: float = 0.8
    target_ratio: float = 0.6
    min_importance: float = 0.3
    summary_ratio: float = 0.1
    fidelity_threshold: float = 0.4
    enabled: bool = True
    cooldown_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not 0.0 < self.target_ratio <= self.trigger_threshold <= 1.0:
            raise InvalidInput(
                f"compaction begins at trigger_threshold={self.trigger_threshold} and ends at "
                f"target_ratio={self.target_ratio}; it needs 0 < target_ratio <= trigger_threshold <= 1"
            )
        for name in ("min_importance", "summary_ratio", "fidelity_threshold"):
            checked_number(getattr(self, name), name, 0, 1)
        checked_number(self.cooldown_seconds, "cooldown_seconds", 0)


class CompactionResult(NamedTuple):
    """What a compaction did: the ids of the summaries that took places, and of those that did not keep enough."""

    summaries: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    replaced: int = 0
    tokens_before: int = 0
    tokens_after: int = 0


class MemoryCompactor:
    """Compacts the archive tier of one memory. A memory has one of its own; another config makes another.

    With a `segment_store`, the originals of every stretch are stored there too before a summary takes their places.
    """

    def __init__(
        self,
        config: CompactionConfig | None = None,
        memory_manager: MemoryVerbs | None = None,
        token_counter: TokenCounter | None = None,
        segment_store: SegmentStore | None = None,
        *,
        summarizer: Summarizer | None = None,
    ) -> None:
        if memory_manager is None:
            raise InvalidInput("a compactor needs the memory whose archive it compacts: memory_manager=...")
        self.config = config or CompactionConfig()
        self._memory = memory_manager
        self._counter = token_counter or memory_manager.counter
        self._segments = segment_store
        self._summarizer = summarizer or Summarizer(token_counter=self._counter)
        threshold = self.config.fidelity_threshold
        self._checker = FidelityChecker(threshold, threshold)

    def should_compact(self) -> bool:
        """Whether the archive tier has reached the trigger."""
        return self._usage() >= self.config.trigger_threshold * self._budget()

    def compact(
        self,
        publish: Publish | None = None,
        *,
        leave: Collection[int] = (),
        fail: Callable[[Sequence[Record], Exception], None] | None = None,
    ) -> CompactionResult:
        """Summarise stretches, oldest first, until the tier is at its target; whether or not the trigger is reached.

        `publish` opens the transactions it writes with; the store's own by default. Stretches whose first record is
        in `leave` are left alone. `fail` is called for a stretch that cannot be summarised, and the others go on;
        without it the error is raised.
        """
        publish = publish or self._memory.store.transaction
        before = after = self._usage()
        target = self.config.target_ratio * self._budget()
        made: list[str] = []
        rejected: list[str] = []
        replaced = 0
        if before > target:
            for stretch, size in self._stretches():
                if stretch[0].seq in leave:
                    continue
                try:
                    id, faithful, tokens = self._summarize(publish, stretch)
                except Exception as error:
                    if fail is None:
                        raise
                    fail(stretch, error)
                    continue
                if faithful:
                    made.append(id)
                    replaced += len(stretch)
                    after += tokens - size
                else:
                    rejected.append(id)
                if after <= target:
                    break
        return CompactionResult(tuple(made), tuple(rejected), replaced, before, self._usage())

    def renew(self, id: str, publish: Publish | None = None) -> str | None:
        """Make a summary again of its sources as they are now, and let it stand in the place of the old one.

        The id of the new one; None where the old one does not hold any more or is not a memory's own, or where the
        new one would not keep enough: then it is withdrawn, and its sources have their places back.
        """
        store, tiers = self._memory.store, self._memory.tiers
        old = store.get(id)
        found = [store.get(source) for source in store.neighbours(id)[0]]
        stretch = sorted((record for record in found if record is not None), key=lambda record: record.created_at)
        if old is None or old.superseded_at is not None or not stretch:
            return None
        summary, fidelity, faithful = self._made(stretch)
        with (publish or store.transaction)() as transaction:
            held = transaction.get(id)
            if held is None or held.superseded_at is not None or not transaction.is_drawn(old.seq, replacing=True):
                return None
            if [record.seq for record in transaction.sources(id)] != sorted(record.seq for record in stretch):
                return None  # one of them changed again meanwhile, which is another reason to make it again
            if not faithful:
                transaction.supersede(old.seq, old.seq, store.clock())
                tiers.restore_residency(transaction, transaction.sources(id))
                return None
            draft = self._draft(summary, stretch, fidelity, faithful)
            tiers.replace(transaction, draft, [old.seq], MemoryTier.L3, "summarized")
            written = transaction.get(draft.id)
            assert written is not None
            transaction.supersede(old.seq, written.seq, store.clock())
        return draft.id

    def _usage(self) -> int:
        held = self._memory.store.usage(self._memory.tiers.node).get(MemoryTier.L3)
        return held.tokens if held else 0

    def _budget(self) -> int:
        return self._memory.tiers.rules().budgets[MemoryTier.L3]

    def _stretches(self) -> Iterator[tuple[list[Record], int]]:
        """Neighbours of one session in the tier that were never summarised, oldest first, with their size there."""
        store, node = self._memory.store, self._memory.tiers.node
        sizes = {one.record: one.tokens for one in store.residents(node, MemoryTier.L3)}
        summarized = store.replaced(sizes)
        records, _ = store.readable(seq for seq in sizes if seq not in summarized)
        sessions: dict[str | None, list[Record]] = {}
        for seq in sorted(records):
            if records[seq].kind not in (MemoryType.SUMMARY, MemoryType.FACT):
                sessions.setdefault(records[seq].session_id, []).append(records[seq])
        for stretch in sorted(_cut(sessions.values()), key=lambda one: one[0].seq):
            size = sum(sizes[record.seq] for record in stretch)
            if len(stretch) > 1 and self._room(stretch) < size:
                yield stretch, size

    def _room(self, stretch: Sequence[Record]) -> int:
        """The tokens that a summary may have."""
        return math.floor(self.config.summary_ratio * sum(record.tokens for record in stretch))

    def _summarize(self, publish: Publish, stretch: Sequence[Record]) -> tuple[str, bool, int]:
        """Write a summary; its id, whether it took the places of what it was made from, and its size."""
        summary, fidelity, faithful = self._made(stretch)
        draft = self._draft(summary, stretch, fidelity, faithful)
        if self._segments is not None and faithful:
            for record in stretch:
                self._segments.store(
                    MemorySegment(content=record.content, segment_id=record.id, timestamp=record.created_at)
                )
        with publish() as transaction:
            tiers = self._memory.tiers
            replaced = [record.seq for record in stretch]
            if faithful and len(transaction.sizes(tiers.node, MemoryTier.L3, replaced)) < len(replaced):
                return draft.id, False, 0  # somebody moved, changed or forgot one of them meanwhile
            if len(transaction.records(replaced)) < len(replaced):
                return draft.id, False, 0
            if faithful:
                tiers.replace(transaction, draft, replaced, MemoryTier.L3, "summarized")
            else:
                (written,) = transaction.append([draft])
                transaction.supersede(written.seq, written.seq, draft.created_at)
        return draft.id, faithful, summary.tokens

    def _made(self, stretch: Sequence[Record]) -> tuple[Summary, Fidelity, bool]:
        """A summary of a stretch, how faithful it is, and whether that is enough."""
        turns = [_turn(record) for record in stretch if record.importance >= self.config.min_importance]
        summary = self._summarizer.summarize(turns or [_turn(stretch[-1])], budget=self._room(stretch))
        fidelity = self._fidelity(summary, stretch)
        return summary, fidelity, fidelity.passed and bool(summary.text)

    def _fidelity(self, summary: Summary, stretch: Sequence[Record]) -> Fidelity:
        """How much of what matters in a stretch its summary keeps."""
        said = [one for record in stretch for one in statements(record.content) if one.asserted]
        matters = [one.text for one in said if one.weight >= _MATTERS] or [record.content for record in stretch]
        text = summary.text or " "
        embedder = self._memory.embedder
        if embedder is None:
            return self._checker.check(text, matters)
        step = max(1, len(matters) // _COMPARED)
        compared = matters[::step][:_COMPARED]
        vectors = embed_texts(embedder, [text, *compared])
        return self._checker.check(text, matters, merged_embedding=vectors[0], embeddings=vectors[1:])

    def _draft(self, summary: Summary, stretch: Sequence[Record], fidelity: Fidelity, faithful: bool) -> Draft:
        trust = min((Trust(record.trust) for record in stretch), key=_LEAST_TRUSTED.index)
        data: dict[str, Any] = {
            "fidelity": round(fidelity.score, 4),
            "keyword_retention": round(fidelity.keyword_retention, 4),
            "threshold": self.config.fidelity_threshold,
            "faithful": faithful,
            "method": summary.method,
            "records": len(stretch),
            "tokens_of_originals": sum(record.tokens for record in stretch),
        }
        return Draft(
            id=f"summary_{new_id()}",
            content=summary.text or "(nothing could be kept)",
            created_at=stretch[-1].created_at,
            kind=MemoryType.SUMMARY,
            node=self._memory.tiers.node,
            session_id=stretch[-1].session_id,
            trust=trust,
            importance=max(record.importance for record in stretch),
            tokens=summary.tokens if summary.text else self._counter.count("(nothing could be kept)"),
            counter=self._counter.name,
            data=data,
            sources=tuple(record.id for record in stretch),
            named=False,
            drawn=True,
            replaces=True,
        )


def _cut(sessions: Sequence[list[Record]] | Any) -> Iterator[list[Record]]:
    """Sessions in stretches of a size that one summary can be made of."""
    for records in sessions:
        stretch: list[Record] = []
        tokens = 0
        for record in records:
            if stretch and tokens + record.tokens > _STRETCH_TOKENS:
                yield stretch
                stretch, tokens = [], 0
            stretch.append(record)
            tokens += record.tokens
        if tokens >= _SMALLEST_STRETCH:
            yield stretch


def _turn(record: Record) -> Turn:
    return Turn(
        id=record.id,
        text=record.content,
        speaker=record.name,
        role=record.role,
        created_at=record.created_at,
        importance=record.importance,
    )
