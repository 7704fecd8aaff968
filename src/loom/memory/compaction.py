"""Compaction: neighbouring turns of the archive tier become one block with one summary, and can be restored.

As soon as the archive holds a block of a session (800 tokens of originals, or all of a finished session), it is
summarised in less than a tenth of its tokens. A summary replaces its sources only if it passes the fidelity check;
otherwise it is stored beside them, with its score. The originals stay in the log, and `undo` returns them to their
places. Nothing here is ever the only copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.checks import checked_number, checked_whole
from loom.echoes import is_echo, own_words
from loom.errors import InvalidInput
from loom.knowledge.fidelity import FidelityChecker, FidelityResult
from loom.knowledge.summarizer import Summarizer, Summary, Turn
from loom.memory.segment_store import MemorySegment, SegmentStore
from loom.protocol import new_id
from loom.storage.contract import Draft, Publish, Record, Usage
from loom.text.tokens import TokenCounter
from loom.text.words import content_terms
from loom.types import MemoryTier, MemoryType, Trust

if TYPE_CHECKING:
    from loom.memory.verbs import MemoryVerbs

__all__ = ["CompactionConfig", "CompactionResult", "MemoryCompactor"]

# The fewest tokens of originals: a summary of fewer would be too short to say anything.
_SMALLEST_BLOCK = 160
# A summary is compared with the most important clauses, which together have this many times its length.
_COMPARED = 2

_LEAST_TRUSTED = (Trust.UNKNOWN, Trust.WEB, Trust.TOOL, Trust.AGENT, Trust.USER)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """The size of a block, the least fidelity of its summary, and the limits of further compaction.

    `block_tokens` of neighbouring originals are a block. `summary_ratio` is the largest size of its summary, as a
    share. `fidelity_threshold` is the least share of the words of the most important clauses that the summary must
    keep: on our dialogues summaries keep 0.4 to 0.5, random sentences 0.1 to 0.2, and summaries of other dialogues
    less than 0.1. Records below `min_importance` are not summarised.

    Above `trigger_threshold`, a share of the tier's budget, smaller stretches are summarised too, until
    `target_ratio` is reached. The background worker does this at most once in `cooldown_seconds`.
    """

    trigger_threshold: float = 0.8
    target_ratio: float = 0.6
    min_importance: float = 0.3
    summary_ratio: float = 0.08
    fidelity_threshold: float = 0.15
    block_tokens: int = 800
    enabled: bool = True
    cooldown_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name in ("trigger_threshold", "target_ratio"):
            checked_number(getattr(self, name), name)
        if not 0.0 < self.target_ratio <= self.trigger_threshold <= 1.0:
            raise InvalidInput(
                f"compaction begins at trigger_threshold={self.trigger_threshold} and ends at "
                f"target_ratio={self.target_ratio}; it needs 0 < target_ratio <= trigger_threshold <= 1"
            )
        for name in ("min_importance", "summary_ratio", "fidelity_threshold"):
            checked_number(getattr(self, name), name, 0, 1)
        checked_number(self.cooldown_seconds, "cooldown_seconds", 0)
        checked_whole(self.block_tokens, "block_tokens", least=1)


class CompactionResult(NamedTuple):
    """The result of a compaction: the ids of the summaries that replaced their sources, and of those that were not
    faithful enough."""

    summaries: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    replaced: int = 0
    tokens_before: int = 0
    tokens_after: int = 0


class _Settled(NamedTuple):
    """A summary in the tier: its id, its session, and the tokens of its originals."""

    id: str
    session: str | None
    tokens: int


class _Stretch(NamedTuple):
    """The records of one summary, in the order of writing, and their size in the tier.

    The last `archived` of them are in the tier. The others are the sources of the summary `older`, which replaces
    them there. A stretch that is `due` is a block; another may become one.
    """

    records: list[Record]
    size: int
    due: bool
    archived: int
    older: int | None = None


class MemoryCompactor:
    """Compacts the archive tier of one memory. Each memory has one; another config makes another.

    With a `segment_store`, the originals of every stretch are stored there before a summary replaces them.
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
        self._checker = FidelityChecker(keyword_threshold=self.config.fidelity_threshold)
        self._settled: dict[int, _Settled | None] = {}  # residents that must not be summarised, by sequence number
        self._seen = 0  # the tokens of the tier at the last check

    def should_compact(self) -> bool:
        """Whether the archive tier has reached the trigger."""
        return self._usage() >= self.config.trigger_threshold * self._budget()

    def may_have_blocks(self) -> bool:
        """Whether enough records entered the archive tier since the last check that there may be a block to
        summarise."""
        usage = self._usage()
        self._seen = min(self._seen, usage)  # some residents may have left
        return usage >= self._seen + self.config.block_tokens

    def compact(
        self,
        publish: Publish | None = None,
        *,
        leave: Collection[int] = (),
        most: int | None = None,
        fail: Callable[[Sequence[Record], Exception], None] | None = None,
    ) -> CompactionResult:
        """Summarise every block, oldest first; then smaller stretches, until the tier is at its target.

        `publish` opens the transactions for writing; by default, the store does. Stretches whose first record is in
        `leave` are skipped, and at most `most` are summarised. If a stretch cannot be summarised, `fail` is called
        and the others follow; without `fail`, the error is raised.
        """
        publish = publish or self._memory.store.transaction
        before = after = self._usage()
        target = self.config.target_ratio * self._budget()
        made: list[str] = []
        rejected: list[str] = []
        replaced = 0
        cut_short = False
        for stretch in self._stretches():
            if stretch.records[0].seq in leave or not (stretch.due or after > target):
                continue
            if len(made) + len(rejected) == most:
                cut_short = True
                break
            try:
                id, faithful, tokens = self._summarize(publish, stretch)
            except Exception as error:
                if fail is None:
                    raise
                fail(stretch.records, error)
                continue
            if faithful:
                made.append(id)
                replaced += stretch.archived
                after += tokens - stretch.size
            else:
                rejected.append(id)
        if made:
            self._memory.tiers.notify_compacted()
        now = self._usage()
        self._seen = 0 if cut_short else now
        return CompactionResult(tuple(made), tuple(rejected), replaced, before, now)

    def renew(self, id: str, publish: Publish | None = None) -> str | None:
        """Summarise the current versions of a summary's sources again, and replace the old summary.

        Returns the id of the new one. Returns None if the old one is no longer in force or was not made by the
        memory. Also returns None if the new one is not faithful enough; the old one is then withdrawn, and its
        sources return to their places.
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
                return None  # a source changed again meanwhile, so it will be renewed again
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
        return self._memory.store.usage(self._memory.tiers.node).get(MemoryTier.L3, Usage()).tokens

    def _budget(self) -> int:
        return self._memory.tiers.rules().budgets[MemoryTier.L3]

    def _stretches(self) -> list[_Stretch]:
        """The residents that were never summarised, by session and in the order of writing, oldest first.

        If the rest of a session is too small for a separate summary, it is summarised together with the sources of
        the session's earlier summary.
        """
        store, node = self._memory.store, self._memory.tiers.node
        sizes = store.sizes(node, MemoryTier.L3)
        records = self._unsettled(sizes)
        # The remainder joins the summary of the session with the fewest originals.
        known = sorted(((one.tokens, seq, one) for seq, one in self._settled.items() if one), reverse=True)
        summaries = {one.session: (seq, one) for _, seq, one in known}
        newest = max(records, default=0)
        sessions: dict[str | None, list[Record]] = {}
        for seq in sorted(records):
            sessions.setdefault(records[seq].session_id, []).append(records[seq])
        found: list[_Stretch] = []
        for session, theirs in sessions.items():
            ended = theirs[-1].seq != newest
            for part in _cut(theirs, self.config.block_tokens):
                tokens, size = sum(record.tokens for record in part), sum(sizes[record.seq] for record in part)
                whole = tokens >= self.config.block_tokens
                if tokens >= _SMALLEST_BLOCK:
                    if len(part) > 1 and self._room(part) < size:
                        found.append(_Stretch(part, size, whole or ended, len(part)))
                elif ended and session in summaries:
                    seq, summary = summaries[session]
                    if summary.tokens < 2 * self.config.block_tokens:
                        earlier = store.sources(summary.id)
                        found.append(_Stretch([*earlier, *part], size + sizes[seq], True, len(part), seq))
        return sorted(found, key=lambda one: one.records[0].seq)

    def _unsettled(self, sizes: Mapping[int, int]) -> dict[int, Record]:
        """The residents that may be summarised. The others are read once and then cached."""
        store = self._memory.store
        self._settled = {seq: one for seq, one in self._settled.items() if seq in sizes}
        new = [seq for seq in sizes if seq not in self._settled]
        self._settled |= dict.fromkeys(store.replaced(new))
        records, bad = store.readable(seq for seq in new if seq not in self._settled)
        self._settled |= dict.fromkeys(bad)
        for seq, record in records.items():
            if record.kind == MemoryType.SUMMARY and isinstance(record.data, dict) and "faithful" in record.data:
                self._settled[seq] = _Settled(record.id, record.session_id, record.data["tokens_of_originals"])
            elif record.kind in (MemoryType.SUMMARY, MemoryType.FACT):
                self._settled[seq] = None
        return {seq: record for seq, record in records.items() if seq not in self._settled}

    def _room(self, stretch: Sequence[Record]) -> int:
        return math.floor(self.config.summary_ratio * sum(record.tokens for record in stretch))

    def _summarize(self, publish: Publish, stretch: _Stretch) -> tuple[str, bool, int]:
        """Write a summary. Returns its id, whether it replaced its sources, and its size."""
        records, older = stretch.records, stretch.older
        summary, fidelity, faithful = self._made(records)
        draft = self._draft(summary, records, fidelity, faithful)
        if self._segments is not None and faithful:
            for record in records:
                self._segments.store(
                    MemorySegment(content=record.content, segment_id=record.id, timestamp=record.created_at)
                )
        with publish() as transaction:
            tiers = self._memory.tiers
            held = [record.seq for record in records[-stretch.archived :]] + ([] if older is None else [older])
            if faithful and len(transaction.sizes(tiers.node, MemoryTier.L3, held)) < len(held):
                return draft.id, False, 0  # another process moved, changed or forgot a source meanwhile
            if len(transaction.records(record.seq for record in records)) < len(records):
                return draft.id, False, 0
            if faithful:
                written = tiers.replace(transaction, draft, held, MemoryTier.L3, "summarized")
                if older is not None:
                    transaction.supersede(older, written, self._memory.store.clock())
            else:
                (kept,) = transaction.append([draft])
                transaction.supersede(kept.seq, kept.seq, draft.created_at)
        return draft.id, faithful, summary.tokens

    def _made(self, stretch: Sequence[Record]) -> tuple[Summary, FidelityResult, bool]:
        """A summary of a stretch, its fidelity, and whether the fidelity suffices.

        A readable summary that keeps too little is replaced by one of shortened clauses, which has room for more.
        """
        turns = [
            _turn(record)
            for record in stretch
            if record.importance >= self.config.min_importance and not is_echo(record)
        ] or [_turn(stretch[-1])]
        room = self._room(stretch)
        matters = self._summarizer.key_clauses(turns, budget=_COMPARED * room) or [turn.text for turn in turns]
        for readable in (True, False):
            summary = self._summarizer.summarize(turns, budget=room, readable=readable)
            fidelity = self._checker.check(summary.text, matters, words=content_terms)
            faithful = fidelity.passed and bool(summary.text)
            if faithful or summary.method != "extractive":
                break
        return summary, fidelity, faithful

    def _draft(self, summary: Summary, stretch: Sequence[Record], fidelity: FidelityResult, faithful: bool) -> Draft:
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
            trust=min((Trust(record.trust) for record in stretch), key=_LEAST_TRUSTED.index),
            importance=max(record.importance for record in stretch),
            tokens=self._counter.limit_count(summary.text or "(nothing could be kept)"),
            counter=self._counter.name,
            data=data,
            sources=tuple(record.id for record in stretch),
            named=False,
            drawn=True,
            replaces=True,
        )


def _cut(records: Sequence[Record], block_tokens: int) -> Iterator[list[Record]]:
    """The records of a session, divided into blocks. The last part stays large enough for a summary."""
    part: list[Record] = []
    tokens = 0
    left = sum(record.tokens for record in records)
    for record in records:
        part.append(record)
        tokens += record.tokens
        left -= record.tokens
        if tokens >= block_tokens and left >= _SMALLEST_BLOCK:
            yield part
            part, tokens = [], 0
    if part:
        yield part


def _turn(record: Record) -> Turn:
    return Turn(
        id=record.id,
        text=own_words(record).strip() or record.content,
        speaker=record.name,
        role=record.role,
        created_at=record.created_at,
        importance=record.importance,
    )
