"""Sources of candidates: the tiers, recall, scopes, shared pools, knowledge bases, and any callable.

L1RecentSource, L2ImportantSource, L3SummarySource and RecallSource read the tiers and the log of a memory,
ScopeSource the scopes of a manager, SharedPoolSource and KnowledgeContextSource outside data. A source only offers:
`loom.context.fitting` decides what is in the prompt.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, cast

from loom.context.excerpts import EXCERPT_TOKENS
from loom.context.findings import Findings
from loom.context.items import Candidate, Place
from loom.context.rendering import day_heading, question_of
from loom.context.strategies import score_events
from loom.drafts import message_text, task_text, trust_of_message, trust_of_role
from loom.echoes import is_echo
from loom.errors import InvalidInput, ReadOnly
from loom.fractal.memory import MemoryEntry, MemoryScope
from loom.knowledge.stand_ins import stand_in
from loom.memory.core import LoomMemory
from loom.memory.manager import MemoryManager
from loom.protocol import Clock, Task, utc_now, value_text
from loom.recall.conversation import Listeners
from loom.recall.hits import Hit
from loom.recall.questions import understand
from loom.storage.contract import FOCUS, Filter, Match, Record, Store
from loom.storage.identity import session_key
from loom.storage.search_view import search_text
from loom.types import MemoryTier, MemoryType, MemoryUnit, Trust, record_as_task

__all__ = [
    "LEAST_ITEM_TOKENS",
    "MOST_ITEMS",
    "CallableSource",
    "ContextSource",
    "HasManager",
    "InstructionSource",
    "KnowledgeBaseProvider",
    "KnowledgeContextSource",
    "KnowledgeItem",
    "L1RecentSource",
    "L2ImportantSource",
    "L3SummarySource",
    "L4FactSource",
    "PinnedSource",
    "PoolEntryLike",
    "RecallSource",
    "ScopeSource",
    "SharedPool",
    "SharedPoolSource",
    "SourceItem",
    "as_candidate",
    "as_source",
]

log = logging.getLogger("loom.context")

SourceItem = Candidate | Task | MemoryUnit | Record | Hit | Mapping[str, Any] | str
"""The values that a source may offer: candidates, or values that can be converted to one."""

LEAST_ITEM_TOKENS = 24
"""The approximate size of the shortest quotation. A source is asked for at most as many items as fit at this size."""

MOST_ITEMS = 400
"""The most items that a source is asked for, unless it sets its own limit."""

_SHARES = ("l1", "l2", "l3_l4", "instructions", "other")
# The size of the shortest turn with its message frame.
_TURN_TOKENS = 5
_TURN_FRAME = 4
# The most steps of an agent that are read between the oldest turn in the window and the user's turn before it.
_MOST_STEPS = 16
# The tasks among this many newest records are compared by their current value.
_EVENTS = 64
# The number of records that are read at once if a filter may skip most of them.
_CHUNK = 64
# Few facts matter for a question, and only those nearly as relevant as the best one. They are taken from the records
# that a recall skipped. Without a recall they need their own search, which took half as long as the recall over
# 95,000 facts and 100,000 memories.
_MOST_FACTS = 8
_FACTS_AMONG = 64
_WORTHY_FACT = 0.5
# They are read in parts of this size: the first part usually has enough.
_FACTS_AT_ONCE = 16
# A turn of at most this many tokens, or at most this many times the tokens of its instruction, is quoted whole as the
# user's wish.
_WHOLE_TURN = 48
_NEARLY_WHOLE = 1.5
# The score of an instruction whose condition the question meets in every way.
_BEST_WISH = 2.2
_KNOWLEDGE_PREFIX = "knowledge:query:"
# The tokens around the text of a quotation: the name, the line break, a part of the day's heading.
_FRAME_TOKENS = 6
# A source is asked for more items than fit on average: among the last hits, short ones are preferred.
_SPARE = 2.0
# The conversation around at least this many of the best hits is read, because an answer may share no word with the
# question. In LoCoMo's prompts of 1,000 tokens this finds 0.2 points more, for a tenth of recall's CPU.
_SEEDS = 50
# One neighbour is offered for each group of this many hits, because it takes the room of another hit
# (docs/context.md).
_HITS_FOR_A_NEIGHBOUR = 8
# A neighbour of more tokens than this takes the room of several hits.
_LONG_NEIGHBOUR = 64
# Hits are ordered by their score divided by this power of their size: a long memory takes the room of several short
# ones. From 0.15 to 0.25 each of the sets of `benchmarks.recall` gains (docs/context.md).
_WORTH_BY_SIZE = 0.2
# The sizes of the first group of hits that is ordered in this way, and of the other groups.
_FIRST_GROUP = 64
_GROUP = 32
# The average size is estimated from this many of the newest records.
_SAMPLE = 32


class ContextSource(Protocol):
    """Offers candidates for a prompt, best first. `get_context` may be a coroutine.

    `share` names its part of the budget: l1, l2, l3_l4, instructions or other. A `local` source reads local data
    and is asked in the calling thread; every other source has its own thread and a time limit. Local sources of one
    `memory` read one snapshot of it and are told of their uses together. `after` names local sources that are asked
    first, if present, because this source uses their findings.
    """

    name: str
    share: str = "other"
    local: bool = False
    memory: LoomMemory | None = None
    after: tuple[str, ...] = ()
    fewest_items: int = 8
    most_items: int = MOST_ITEMS
    """The most items that the source is asked for."""

    def get_context(self, task: Task, max_items: int) -> Iterable[SourceItem] | Awaitable[Iterable[SourceItem]]:
        """Return at most this many candidates for a task. A question is a task with its words as `content`."""

    def offer(self, findings: Findings, max_items: int) -> Iterable[SourceItem] | Awaitable[Iterable[SourceItem]]:
        """The same, for a source that reads or adds findings for the task."""
        return self.get_context(findings.task, max_items)

    def item_tokens(self, task: Task) -> int:
        """The average number of tokens of an item in a prompt, from which the number of items to ask for follows."""
        return LEAST_ITEM_TOKENS

    def mark_used(self, records: Sequence[int]) -> None:
        """Receives the ids of the records in a prompt: its own, and those of other sources of the same memory."""
        return


class HasManager(Protocol):
    """An object with a manager to read from, such as an opened `Memory`."""

    @property
    def manager(self) -> MemoryManager: ...


# --- the tiers -------------------------------------------------------------------------------------------


class _TierSource(ContextSource):
    """The common part of the sources over one memory."""

    local = True

    def __init__(self, memory: LoomMemory | HasManager) -> None:
        self._memory = self.memory = memory if isinstance(memory, LoomMemory) else memory.manager
        self._store = self._memory.store
        self._node = self._memory.node_id

    @property
    def shared_pool(self) -> SharedPool | None:
        """The pool of the memory, if the memory is a manager that holds one."""
        return self._memory.shared_pool if isinstance(self._memory, MemoryManager) else None

    def mark_used(self, records: Sequence[int]) -> None:
        """A record in a prompt counts as used."""
        self._memory.tiers.use(*records)

    def _derived_from(self, record: Record) -> tuple[str, ...]:
        """The sources of a fact or a summary. If a source is a fact, also the records that it was derived from."""
        if record.kind not in (MemoryType.FACT, MemoryType.SUMMARY):
            return ()
        sources = self._memory.sources_of(record)
        told = (self._store.get(one) for one in sources if record.kind == MemoryType.FACT)
        deeper = (self._memory.sources_of(one) for one in told if one is not None and one.kind == MemoryType.FACT)
        return tuple(dict.fromkeys((*sources, *(one for several in deeper for one in several))))

    def _of_session(self, seqs: Sequence[int], session_id: str | None, limit: int) -> list[Record]:
        """The first of these records that belong to a session, or to any if none is given, in the given order."""
        found: list[Record] = []
        step = limit if session_id is None else max(limit, _CHUNK)
        for start in range(0, len(seqs), step):
            part = seqs[start : start + step]
            records = self._store.records(part)
            found += [
                records[seq] for seq in part if seq in records and session_id in (None, records[seq].session_id)
            ]
            if len(found) >= limit:
                break
        return found[:limit]


class L1RecentSource(_TierSource):
    """The newest records, newest first, at most `most`, and records that were brought back into the window.

    With a session: the turns of its conversation, as far back as the prompt has room for, from the window and the
    log. Records that were brought back are quoted, whatever their session. Without a session: the records of the
    window, messages by time alone, tasks by `score_events`.
    """

    name = "l1"
    share = "l1"
    most_items = 1_000_000

    def __init__(self, memory: LoomMemory | HasManager, *, most: int | None = None) -> None:
        super().__init__(memory)
        self._most = most

    def item_tokens(self, task: Task) -> int:
        return LEAST_ITEM_TOKENS if task.session_id is None else _TURN_TOKENS

    def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        sizes = dict(self._store.window(self._node))
        limit = max_items if self._most is None else min(self._most, max_items)
        if task.session_id is not None:
            records = self._conversation(task.session_id, limit, max_items * _TURN_TOKENS, sizes)
            sizes = {}  # turns are shown in full, even if the window has a stand-in
        else:
            records = self._of_session(list(sizes), None, min(limit, MOST_ITEMS))
            records = [record for record in records if not is_echo(record)]
            if any(record.kind == MemoryType.TASK for record in records):
                records = self._with_the_best_events(records, list(sizes), task)
        known = {record.seq for record in records}
        records = [*(one for one in self._brought_back() if one.seq not in known), *records]
        return [
            self._candidate(record, 1.0 - rank / len(records), sizes.get(record.seq, record.tokens), task)
            for rank, record in enumerate(records)
        ]

    def _with_the_best_events(self, newest: Sequence[Record], window: Sequence[int], task: Task) -> list[Record]:
        """The newest records; the places of tasks are taken by the most valuable tasks of the window."""
        near = self._of_session(window, None, _EVENTS)
        done = [(record_as_task(record), record) for record in near if record.kind == MemoryType.TASK]
        records = {id(one): record for one, record in done}
        scored = score_events((one for one, _ in done), task, node_id=self._node, clock=self._store.clock)
        best = iter([records[id(event.task)] for event in scored])
        return [next(best, record) if record.kind == MemoryType.TASK else record for record in newest]

    def _conversation(self, session_id: str, limit: int, tokens: int, window: Iterable[int]) -> list[Record]:
        """The records of a session, newest first, up to this many tokens.

        They come from the log; records of other nodes come from the window. The last exchange is whole, and one
        record of the exchange before it shows that there is more.
        """
        found: dict[int, Record] = {}
        wanted = Filter(session_id=session_id, node=self._node, derived=False)
        after: int | None = None
        beyond = 0
        while beyond < _MOST_STEPS and len(found) < limit:
            page = self._store.scan(wanted, limit=min(_CHUNK, limit - len(found)), after=after)
            for record in page.records:
                found[record.seq] = record
                tokens -= record.tokens + _TURN_FRAME
                if tokens < 0:
                    beyond += 1
                    if beyond > 1 and record.role in (None, "user"):
                        beyond = _MOST_STEPS
                if beyond >= _MOST_STEPS:
                    break
            after = page.next
            if after is None:
                break
        oldest = min(found, default=0) if after is not None else 0
        heard = [seq for seq in window if seq not in found and seq > oldest]
        found |= {record.seq: record for record in self._of_session(heard, session_id, limit)} if heard else {}
        return [found[seq] for seq in sorted(found, reverse=True)]

    def _brought_back(self) -> list[Record]:
        """The records that the current work refers to: see `LoomMemory.promote`."""
        focus = [one.record for one in self._store.residents(self._node, FOCUS)]
        found = self._store.records(focus) if focus else {}
        return [found[seq] for seq in sorted(found, reverse=True)]

    def _candidate(self, record: Record, score: float, size: int, task: Task) -> Candidate:
        place = Place.TURN if record.session_id == task.session_id and record.kind != MemoryType.FACT else Place.QUOTE
        if size == record.tokens:
            return Candidate.of_record(
                record,
                source=self.name,
                tier="l1",
                score=score,
                reason="recent",
                place=place,
                stands_for=self._derived_from(record),
            )
        reason = f"recent; shortened, {record.tokens:,} tokens in all"
        return _abridged(record, source=self.name, tier="l1", score=score, reason=reason)


class L2ImportantSource(_TierSource):
    """The records of the working tier, the most important first."""

    name = "l2"
    share = "l2"

    def __init__(self, memory: LoomMemory | HasManager, *, most: int | None = None) -> None:
        super().__init__(memory)
        self._most = most

    def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        residents = sorted(
            self._store.residents(self._node, MemoryTier.L2), key=lambda one: (-one.importance, -one.record)
        )
        limit = max_items if self._most is None else min(self._most, max_items)
        return [
            Candidate.of_record(
                record,
                source=self.name,
                tier="l2",
                score=record.importance,
                reason=f"important ({record.importance:.2f})",
                stands_for=self._derived_from(record),
            )
            for record in self._of_session([one.record for one in residents], task.session_id, limit)
            if not is_echo(record)
        ]


class L3SummarySource(_TierSource):
    """The stand-ins and summaries of the archive, newest first. A summary is dropped if its whole record is shown."""

    name = "l3"
    share = "l3_l4"

    def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        newest = [one.record for one in reversed(self._store.residents(self._node, MemoryTier.L3))]
        return [self._candidate(record) for record in self._of_session(newest, task.session_id, max_items)]

    def _candidate(self, record: Record) -> Candidate:
        how: dict[str, Any] = {"source": self.name, "tier": "l3", "score": record.importance}
        sources = self._derived_from(record)
        if sources:
            reason = f"summarises {len(sources)} memories"
            return Candidate.of_record(record, reason=reason, stands_for=sources, **how)
        return _abridged(record, reason="archived, in short", **how)


class L4FactSource(_TierSource):
    """Facts that answer the question, best first, in their current version.

    A fact is dropped if its source is shown. It helps if the source is too long, or shares no word with the question.
    With `assisted`, only facts from conversations in which an assistant takes part are offered: turns between people
    are as short as facts, which then take the room of whole turns (docs/knowledge.md has the measurement).
    """

    name = "l4"
    after = ("recall",)

    def __init__(self, memory: LoomMemory | HasManager, *, assisted: bool = False) -> None:
        super().__init__(memory)
        self._assisted = assisted

    def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        return self.offer(Findings(task), max_items)

    def offer(self, findings: Findings, max_items: int) -> list[Candidate]:
        if not findings.question.strip():
            return []
        if not self._assisted:
            return self._known(findings, max_items)
        return self._store.search(lambda view: self._known(findings, max_items, Listeners(view)))

    def _known(self, findings: Findings, max_items: int, listeners: Listeners | None = None) -> list[Candidate]:
        known: list[Candidate] = []
        if listeners is not None and not listeners.is_assisted:
            return known
        for record, score in self._derived_facts(self._matches(findings)):
            if len(known) == min(max_items, _MOST_FACTS) or (known and score < _WORTHY_FACT * known[0].score):
                break
            sources = self._derived_from(record)
            if listeners is None or self._is_heard(sources, listeners):
                known.append(
                    Candidate.of_record(
                        record, source=self.name, tier="l4", score=score, reason="known", stands_for=sources
                    )
                )
        return known

    def _is_heard(self, sources: Iterable[str], listeners: Listeners) -> bool:
        """Whether an assistant takes part in the conversation of one of these records."""
        told = (self._store.get(one) for one in sources)
        return any(listeners.hear(one) for one in told if one is not None and one.kind != MemoryType.FACT)

    def _matches(self, findings: Findings) -> list[Match]:
        """The records that match the words of the question, best first, including facts. A recall has already found
        them."""
        passed = findings.passed_over(self._memory)
        if passed is not None:
            return [Match(seq, score) for seq, score in passed.items()][:_FACTS_AMONG]
        held = self._store.usage(self._node).get(MemoryTier.L4)
        words = understand(findings.question, self._store.clock()).words
        if held is None or not held.items or not words:
            return []
        return search_text(self._store, words, _FACTS_AMONG, Filter(kind=MemoryType.FACT, derived=True))

    def _derived_facts(self, matches: Sequence[Match]) -> Iterator[tuple[Record, float]]:
        """The facts of this node among the matches, best first, with their scores relative to the best."""
        for start in range(0, len(matches), _FACTS_AT_ONCE):
            part = matches[start : start + _FACTS_AT_ONCE]
            records = self._store.records([match.seq for match in part])
            for match in part:
                record = records.get(match.seq)
                if record is not None and self._is_derived_fact(record):
                    yield record, match.score / matches[0].score

    def _is_derived_fact(self, record: Record) -> bool:
        is_current = record.node == self._node and record.superseded_at is None
        return is_current and record.kind == MemoryType.FACT and bool(self._memory.sources_of(record))


class InstructionSource(_TierSource):
    """The user's standing instructions and preferences whose condition the question meets, best first.

    Each comes after all lasting parts, as the user's wish with its day, so the beginning of a session's prompts stays
    the same. A short turn is quoted whole, a longer one by the sentence with the wish.
    """

    name = "instructions"
    share = "instructions"
    most_items = 12

    def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        question = question_of(task)
        if not question.strip():
            return []
        applying = self._memory.standing.applying(question, task.session_id)[:max_items]
        told = self._store.records({one.said_in for one, _ in applying})
        found: list[Candidate] = []
        for one, score in applying:
            source = told.get(one.said_in)
            if source is None:
                continue
            is_whole = one.is_alone and source.tokens <= max(_WHOLE_TURN, _NEARLY_WHOLE * one.record.tokens)
            instruction = one.instruction
            when = f": {instruction.condition}" if instruction.condition else ""
            found.append(
                Candidate.of_record(
                    source,
                    text=source.content if is_whole else instruction.text,
                    source=self.name,
                    score=min(1.0, score / _BEST_WISH),
                    reason=f"{instruction.kind} {instruction.id}{when}",
                    place=Place.WISH,
                    # The speaker and the date.
                    label=", ".join(filter(None, (source.name, day_heading(source.created_at, None)))),
                    stands_for=() if is_whole else (source.id,),
                )
            )
        return found


class RecallSource(_TierSource):
    """Records that answer the question, from every tier, the log, and every session. Those with the best score for
    their size come first.

    A hit that depends on the turn before it (a short answer, "that", 那), or whose question the next turn answers,
    is offered with that neighbour, for at most `neighbours` hits. One neighbour comes after the first hit and after
    every eighth hit, short neighbours first; the others come at the end. With more room, the same memories therefore
    come first, in the same order.
    """

    name = "recall"
    share = "l3_l4"
    # With at least this many hits, short ones come before a long one at every budget. A long memory that fits only
    # with more room therefore does not displace others.
    fewest_items = _FIRST_GROUP

    def __init__(
        self, memory: LoomMemory | HasManager, *, wanted: Filter | None = None, neighbours: int = 12
    ) -> None:
        super().__init__(memory)
        self._wanted = wanted or Filter()
        self._neighbours = neighbours

    def item_tokens(self, task: Task) -> int:
        """The average size of the newest records. Recalled records are read in full, so reading too many is a waste.

        Only records in the question's script count, if there are any: a Chinese character takes four times the tokens
        of a letter.
        """
        window = self._store.window(self._node)[:_SAMPLE]
        records = self._store.records([seq for seq, _ in window]).values()
        plain = question_of(task).isascii()
        own = [one for one in records if one.content.isascii() is plain] or records
        sizes = [min(one.tokens, EXCERPT_TOKENS) for one in own]
        mean = sum(sizes) / len(sizes) if sizes else 0.0
        return max(LEAST_ITEM_TOKENS, int((mean + _FRAME_TOKENS) / _SPARE))

    def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        return self.offer(Findings(task), max_items)

    def offer(self, findings: Findings, max_items: int) -> list[Candidate]:
        if not findings.question.strip():
            return []
        limit = _last_rank(max_items) if max_items > _FIRST_GROUP else max_items
        explanation = self._memory.search(findings.question, limit=limit, wanted=self._wanted, seeds=_SEEDS)
        if self._wanted == Filter():
            findings.add_passed_over(self._memory, explanation.excluded)
        found: list[Candidate] = []
        begin, neighbours = 0, self._neighbours
        while begin < len(explanation.hits):
            end = min(limit, _last_rank(begin + 1))
            hits = sorted(explanation.hits[begin:end], key=_worth, reverse=True)
            most = min(neighbours, (end - begin) // _HITS_FOR_A_NEIGHBOUR)
            found += self._with_neighbours(hits, most, max_items - begin)
            begin, neighbours = end, neighbours - most
        return found

    def _with_neighbours(self, hits: Sequence[Hit], most: int, wanted: int) -> list[Candidate]:
        """The first `wanted` of these hits in their order, with the neighbours of the first `most` hits inserted."""
        brought = neighbours_of(self._store, hits[:most]) if most else {}
        sizes = {id: sum(record.tokens for record, _ in beside) for id, beside in brought.items()}
        waiting = deque(sorted(hits[:most], key=lambda hit: sizes.get(hit.id, 0) > _LONG_NEIGHBOUR))
        found: list[Candidate] = []
        for rank, hit in enumerate(hits[:wanted], 1):
            found += [_of_hit(hit, self.name), *_change_of(hit, self.name)]
            if rank % _HITS_FOR_A_NEIGHBOUR == 1 and waiting:
                found += self._neighbours_of(waiting.popleft(), brought)
        if wanted < len(hits):
            return found
        return [*found, *(one for hit in waiting for one in self._neighbours_of(hit, brought))]

    def _neighbours_of(self, hit: Hit, brought: Mapping[str, Sequence[tuple[Record, str]]]) -> list[Candidate]:
        how: Any = {"source": self.name, "tier": "l4", "score": hit.score * 0.9, "scorer": hit.passage_scorer}
        return [Candidate.of_record(record, reason=reason, **how) for record, reason in brought.get(hit.id, ())]


def _last_rank(rank: int) -> int:
    """The last rank of the group that contains this rank. Groups end at 64, 96, 128, ...

    Each group is ordered separately, so the order of the hits does not depend on their number.
    """
    return _FIRST_GROUP + _GROUP * max(0, -(-(rank - _FIRST_GROUP) // _GROUP))


def _worth(hit: Hit) -> float:
    """The score of a hit relative to the tokens that it takes in a prompt."""
    return hit.score / float((min(hit.tokens, EXCERPT_TOKENS) + _FRAME_TOKENS) ** _WORTH_BY_SIZE)


def _of_hit(hit: Hit, source: str = "recall") -> Candidate:
    return Candidate(
        id=hit.id,
        text=hit.content,
        source=source,
        tier="l4",
        score=hit.score,
        reason="recalled",
        seq=hit.seq,
        role=hit.role,
        name=hit.name,
        session_id=hit.session_id,
        trust=hit.trust,
        kind=hit.kind,
        created_at=hit.created_at,
        version=hit.version,
        tokens=hit.tokens,
        copies=hit.copy_ids,
        scorer=hit.passage_scorer,
    )


def _change_of(hit: Hit, source: str) -> list[Candidate]:
    """The older and the newer statement of a change in one line, with the day from which the newer one holds.

    A memory that was corrected under its own id is quoted in its current form, without its earlier text.
    """
    other = hit.replaced_by or hit.replaces
    if other is None or other.id == hit.id:
        return []
    sides = [(hit.id, hit.created_at, other.own), (other.id, other.created_at, other.content)]
    (earlier, began, old), (later, since, new) = sides if hit.replaced_by is not None else reversed(sides)
    text = f"earlier ({day_heading(began, None)}): {old} / since {day_heading(since, None)}: {new}"
    return [
        Candidate(
            id=f"change:{earlier}:{later}",
            text=" ".join(text.split()),
            source=source,
            tier="l4",
            score=hit.score,
            reason=f"{later} replaces {earlier}",
            place=Place.STATE,
            role=hit.role,
            name=hit.name,
            trust=hit.trust if hit.trust == other.trust else Trust.UNKNOWN,
            created_at=since,
        )
    ]


def _abridged(record: Record, **given: Any) -> Candidate:
    """A record in a few words. It is dropped if the whole record is shown."""
    return Candidate.of_record(record, text=stand_in(record).text, stands_for=(record.id,), **given)


# Beginnings of texts that depend on the text before.
_NEEDS_CONTEXT = re.compile(
    r"\W*(?:(?:yes|yeah|yep|no|nope|sure|ok|okay|right|exactly|that|this|it|they|those|these|both|same|so|and|but|"
    r"because|then|me too|he|she|him|her|them)\b"
    r"|是的|不是|对[，,。]|好的|嗯|没有|那|这|它|他|她|因为|所以|但是|可以|不行)",
    re.IGNORECASE,
)
# A text of at most this length says little by itself. A Chinese character counts as three letters.
_SHORT_CHARS = 32
_HAN_WIDTH = 3
# The distance in the log at which neighbours are looked for: other records take sequence numbers too.
_REACH = 4
_SAID = Filter(derived=False)


def _is_short(text: str) -> bool:
    return len(text) <= _SHORT_CHARS and sum(_HAN_WIDTH if one > "⺀" else 1 for one in text) <= _SHORT_CHARS


def neighbours_of(store: Store, hits: Sequence[Hit]) -> dict[str, list[tuple[Record, str]]]:
    """For each hit that cannot be understood by itself, the turn of its session that it refers to or that answers
    it."""
    wanted: dict[int, list[int]] = {}
    for hit in hits:
        if hit.session_id is None or not hit.seq:
            continue
        if hit.content.rstrip().endswith(("?", "？")):
            wanted[hit.seq] = [hit.seq + step for step in range(1, _REACH + 1)]
        elif _is_short(hit.content) or _NEEDS_CONTEXT.match(hit.content):
            wanted[hit.seq] = [hit.seq - step for step in range(1, min(_REACH, hit.seq - 1) + 1)]
    beside = {seq for seqs in wanted.values() for seq in seqs}
    # A fact is not part of the conversation. Its sequence number comes after that of its turn or of the next one.
    said = store.search(lambda view: view.admitted(sorted(beside), _SAID)) if beside else ()
    records = store.records(said) if said else {}
    brought: dict[str, list[tuple[Record, str]]] = {}
    for hit in hits:
        nearest = (records[seq] for seq in wanted.get(hit.seq, ()) if seq in records)
        record = next(
            (one for one in nearest if one.session_id == hit.session_id and one.superseded_at is None), None
        )
        if record is not None:
            reason = f"answers {hit.id}" if record.seq > hit.seq else f"what {hit.id} refers to"
            brought[hit.id] = [(record, reason)]
    return brought


# --- scopes and pools ------------------------------------------------------------------------------------


class ScopeSource(ContextSource):
    """The values that a manager's node sees in its scopes, newest first, as `[SCOPE:key]`."""

    name = "scopes"
    local = True

    def __init__(
        self, manager: MemoryManager | HasManager, scopes: Sequence[MemoryScope | str] | None = None
    ) -> None:
        self._manager = self.memory = manager if isinstance(manager, MemoryManager) else manager.manager
        self._scopes = tuple(MemoryScope) if scopes is None else tuple(MemoryScope(scope) for scope in scopes)

    @property
    def shared_pool(self) -> SharedPool | None:
        """The pool that the manager holds."""
        return self._manager.shared_pool

    def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        found: dict[str, Candidate] = {}
        for scope in self._scopes:
            for entry in self._manager.scopes.entries(scope, limit=max_items):
                if not entry.id.startswith(_KNOWLEDGE_PREFIX):  # the knowledge source shows these
                    found.setdefault(entry.id, self._candidate(entry, len(found)))
        return list(found.values())[:max_items]

    def _candidate(self, entry: MemoryEntry, rank: int) -> Candidate:
        return Candidate(
            id=f"scope:{entry.scope}:{entry.id}",
            text=value_text(entry.content),
            source=self.name,
            score=1.0 / (1 + rank),
            reason=f"{entry.scope} value",
            place=Place.STATE,
            label=f"SCOPE:{entry.id}",
        )


class PoolEntryLike(Protocol):
    """The fields of a shared pool's entry that a prompt needs."""

    @property
    def key(self) -> str: ...

    @property
    def content(self) -> Any: ...

    @property
    def updated_at(self) -> float: ...


class SharedPool(Protocol):
    """The methods of a `SharedMemoryPool` that a source needs."""

    async def list_entries(self, prefix: str = "", limit: int = 50) -> Sequence[PoolEntryLike]: ...


class SharedPoolSource(ContextSource):
    """The entries of a shared pool as `[SHARED:key]`, the newest first."""

    name = "shared"

    def __init__(self, pool: SharedPool, *, prefix: str = "") -> None:
        self.pool = pool
        self._prefix = prefix

    async def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        entries = await self.pool.list_entries(prefix=self._prefix, limit=max_items)
        newest = sorted(entries, key=lambda entry: (-entry.updated_at, entry.key))
        return [
            Candidate(
                id=f"shared:{entry.key}",
                text=value_text(entry.content),
                source=self.name,
                score=1.0 / (1 + rank),
                reason="shared, newest first",
                place=Place.STATE,
                label=f"SHARED:{entry.key}",
            )
            for rank, entry in enumerate(newest)
        ]


# --- knowledge bases -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnowledgeItem:
    """An answer of a knowledge base. `relevance` is from 0 to 1."""

    id: str
    content: str
    source: str = ""
    relevance: float = 1.0
    metadata: Mapping[str, Any] = field(default_factory=dict)


class KnowledgeBaseProvider(Protocol):
    """A knowledge base outside the memory."""

    async def query(self, query: str, limit: int = 5) -> Sequence[KnowledgeItem]: ...


class KnowledgeContextSource(ContextSource):
    """A knowledge base with a cache in the memory: it is asked once per session and question, until the answer
    expires.

    Without a memory every question goes to the provider. An empty answer is cached too.
    """

    name = "knowledge"

    def __init__(
        self,
        provider: KnowledgeBaseProvider,
        memory: MemoryManager | HasManager | None = None,
        *,
        max_items: int = 3,
        relevance_threshold: float = 0.7,
        expires_s: float = 3600.0,
        scope: MemoryScope | str = MemoryScope.SHARED,
        clock: Clock = utc_now,
    ) -> None:
        self._provider = provider
        self._manager = memory.manager if memory is not None and not isinstance(memory, MemoryManager) else memory
        self._max_items = max_items
        self._threshold = relevance_threshold
        self._expires = timedelta(seconds=expires_s)
        self._scope = MemoryScope(scope)
        self._clock = clock

    async def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        question = question_of(task).strip()
        if not question:
            return []
        limit = min(self._max_items, max_items)
        key = self._key(question, task.session_id)
        cached = await self._cached(key)
        if cached is None:
            items = await self._provider.query(question, limit=limit)
            await self._keep(key, items, task.session_id)
        else:
            items = cached
        relevant = [item for item in items if item.relevance >= self._threshold]
        relevant.sort(key=lambda item: (-item.relevance, item.id))
        how = "from the knowledge base" if cached is None else "from the knowledge base, cached"
        return [
            Candidate(
                id=f"knowledge:{item.id}",
                text=item.content,
                source=self.name,
                score=item.relevance,
                reason=how,
                place=Place.STATE,
                label=f"KNOWLEDGE:{item.source or item.id}",
            )
            for item in relevant[:limit]
        ]

    def _key(self, question: str, session_id: str | None) -> str:
        """The key of a cached answer. It outlives a forgotten answer, so it reveals nothing of the question."""
        salt = "" if self._manager is None else self._manager.store.store_id
        asked = f"{session_id or ''}\0{question}"
        return f"{_KNOWLEDGE_PREFIX}{session_key(salt, asked)}"

    async def _cached(self, key: str) -> list[KnowledgeItem] | None:
        entry = None if self._manager is None else await self._manager.read(key, self._scope)
        if entry is None or not isinstance(entry.content, Mapping):
            return None
        if self._clock() - datetime.fromisoformat(entry.content["at"]) >= self._expires:
            return None
        return [KnowledgeItem(**item) for item in entry.content["items"]]

    async def _keep(self, key: str, items: Sequence[KnowledgeItem], session_id: str | None) -> None:
        if self._manager is None:
            return
        plain = [
            {
                "id": item.id,
                "content": item.content,
                "source": item.source,
                "relevance": item.relevance,
                "metadata": dict(item.metadata),
            }
            for item in items
        ]
        content = {"at": self._clock().isoformat(), "items": plain}
        try:
            await self._manager.write(key, content, self._scope, metadata={"session_id": session_id})
        except ReadOnly:
            log.debug("a read-only memory cannot keep what the knowledge base answered")


# --- anything else ---------------------------------------------------------------------------------------


class PinnedSource(ContextSource):
    """A text that is always offered first: a task's state, a plan, a persona."""

    name = "pinned"
    local = True

    def __init__(self, text: str, *, label: str = "STATE", name: str = "pinned") -> None:
        self.name = name
        self._text = text
        self._label = label

    def get_context(self, task: Task, max_items: int) -> list[Candidate]:
        return [
            Candidate(
                id=f"{self.name}:{self._label}",
                text=self._text,
                source=self.name,
                score=1.0,
                reason="pinned",
                place=Place.STATE,
                label=self._label,
            )
        ]


class CallableSource(ContextSource):
    """A function of a task and a number of items, plain or a coroutine, as a source."""

    def __init__(
        self,
        function: Callable[[Task, int], Iterable[SourceItem] | Awaitable[Iterable[SourceItem]]],
        name: str | None = None,
        share: str = "other",
    ) -> None:
        self._function = function
        self.name = name or getattr(function, "__name__", "callable").strip("<>")
        self.share = share

    def get_context(self, task: Task, max_items: int) -> Iterable[SourceItem] | Awaitable[Iterable[SourceItem]]:
        return self._function(task, max_items)


def as_source(thing: object) -> ContextSource:
    """A source unchanged, or a callable as a source."""
    # Check the type first: checking a protocol costs as much as a small search.
    if ContextSource in type(thing).__mro__:
        source = cast(ContextSource, thing)
        if source.share not in _SHARES:
            raise InvalidInput(f"the source {source.name!r} has no share {source.share!r}: {', '.join(_SHARES)}")
        return source
    if callable(offers := getattr(thing, "get_context", None)):
        return CallableSource(offers, getattr(thing, "name", type(thing).__name__))
    if callable(thing):
        return CallableSource(thing)
    raise InvalidInput(
        f"a source must have get_context(task, max_items) or be a callable of these two, not {type(thing).__name__}"
    )


def as_candidate(offered: SourceItem, source: ContextSource, rank: int) -> Candidate:
    """An offer of a source as a candidate. Offers without a score are ranked in the order given."""
    score = 1.0 / (1 + rank)
    if isinstance(offered, Candidate):
        return offered if offered.source else replace(offered, source=source.name)
    if isinstance(offered, Record):
        return Candidate.of_record(offered, source=source.name, score=score, reason="offered")
    if isinstance(offered, Hit):
        return _of_hit(offered, source.name)
    if isinstance(offered, Task):
        return Candidate(
            id=offered.task_id,
            text=task_text(offered),
            source=source.name,
            score=score,
            reason="offered",
            session_id=offered.session_id,
            trust=Trust.AGENT,
            kind=MemoryType.TASK,
            created_at=offered.created_at,
            message=offered.to_dict(),
        )
    if isinstance(offered, MemoryUnit):
        return Candidate(
            id=offered.id,
            text=message_text(offered.to_message()),
            source=source.name,
            tier=str(offered.tier),
            score=offered.importance,
            reason="offered",
            role=offered.metadata.get("role"),
            trust=trust_of_role(offered.metadata.get("role")),
            kind=str(offered.type),
            created_at=offered.created_at,
        )
    if isinstance(offered, Mapping):
        return Candidate(
            id=str(offered.get("id") or f"{source.name}:{rank}"),
            text=message_text(offered),
            source=source.name,
            score=score,
            reason="offered",
            role=offered.get("role"),
            name=offered.get("name"),
            trust=trust_of_message(offered),
        )
    if isinstance(offered, str):
        return Candidate(id=f"{source.name}:{rank}", text=offered, source=source.name, score=score, reason="offered")
    raise InvalidInput(f"the source {source.name!r} offered a {type(offered).__name__}, which cannot be quoted")
