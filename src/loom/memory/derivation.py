"""Derivation: a memory derives facts, names, instructions and summaries from its log, in the background.

Facts and standing instructions (and names, with a model) are derived from messages and tasks. Stretches of a full
archive tier are summarised, and equivalent facts are merged when there are too many. Every result is a record that
names its sources: forgetting a source removes it, and it is derived again from the remaining sources. A record that
replaces others in a tier has passed the fidelity check, and `undo` reverses it in one step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

from loom.errors import CorruptStore, EmbeddingError, InvalidInput, LanguageModelError, NotFound
from loom.knowledge.extraction import FactExtractor
from loom.knowledge.fact_merging import L4Compressor, Merge
from loom.knowledge.facts import ExtractedFact, Extraction, Mention
from loom.knowledge.fidelity import FidelityChecker
from loom.knowledge.instructions import StandingInstruction
from loom.knowledge.keys import contradicts, fact_identity
from loom.knowledge.revisions import revised
from loom.memory.compaction import MemoryCompactor
from loom.memory.standing import StandingInstructions, digest_id, found_in
from loom.models.embedders import EmbeddingProvider, embed_texts
from loom.protocol import new_id
from loom.storage.contract import (
    COMPACT,
    DERIVE,
    MAX_ATTEMPTS,
    MERGE,
    RESTORE,
    STANDING,
    UNCONFIRMED,
    Draft,
    Filter,
    Job,
    Publish,
    Record,
    Store,
    Transaction,
    concerns_everything,
    pass_on_general,
)
from loom.text.entities import NAMES, entity_mark, name_nodes, nodes_of_name
from loom.text.statement_kinds import StatementKind
from loom.text.words import content_terms, terms
from loom.tiers.migration import Tiers
from loom.types import FactType, MemoryTier, MemoryType, Trust, record_as_fact

__all__ = ["Derivation", "UndoResult"]

log = logging.getLogger("loom.worker")

# The most records from which one piece of work derives facts, and the most jobs that it takes.
_BATCH = 64
_JOBS = 16
# The number of blocks of the archive that one piece of work summarises, in about three seconds.
_BLOCKS = 64
# At most this many records whose work was given up are looked up.
_MOST_LEFT = 1000
# A correction without a subject ("no, the 27th") is compared with this many facts of its session.
_CORRECTED_AMONG = 64
# A bare correction ("make that 1100") is completed from these newest facts of its session, if they are this recent.
_REVISED_AMONG = 16
_REVISED_WITHIN = timedelta(hours=1)
# The kinds of records from which facts are derived: neither derived records nor thoughts.
_SOURCES = frozenset(
    {MemoryType.MESSAGE, MemoryType.TASK, MemoryType.CONTEXT, MemoryType.TOOL_CALL, MemoryType.TOOL_RESULT}
)
# The number of earlier turns that a model sees, to resolve references, and the characters of each.
_EARLIER_TURNS = 4
# The number of turns on each side that show whether an assistant takes part in a conversation.
_AROUND = 8
_EARLIER_CHARS = 400


class UndoResult(NamedTuple):
    """The result of `undo`: the id that was withdrawn, and the ids that returned to their places."""

    id: str
    restored: tuple[str, ...]


class _Read(NamedTuple):
    """A record with its facts and names, the earlier turns that a model was shown, and its standing instructions."""

    record: Record
    extraction: Extraction
    earlier: Sequence[Record]
    instructions: Sequence[StandingInstruction]


class Derivation:
    """Derives facts, summaries and merged facts for one node, a bounded piece at a time."""

    def __init__(
        self,
        store: Store,
        tiers: Tiers,
        extractor: FactExtractor,
        compactor: MemoryCompactor,
        embedder: EmbeddingProvider | None,
        standing: StandingInstructions,
    ) -> None:
        self._store = store
        self._tiers = tiers
        self.node = tiers.node
        self._standing = standing
        self._extractor = extractor
        self._compactor = compactor
        self._embedder = embedder
        self._compacted_at: float | None = None
        self._unanswered: dict[int, int] = {}  # how often a model failed on a record, by sequence number

    # -- in the background -----------------------------------------------------------------------------

    def work(self, publish: Publish, thorough: bool) -> bool:
        """Do a piece of each kind of work. Returns True if there may be more. See `loom.storage.contract.Chore`."""
        worked = False
        failed: Exception | None = None
        for piece in (self._restore, self._draw_again, self._draw):
            try:
                worked |= piece(publish)
            except Exception as error:  # a failing model must not delay work that needs none
                pass_on_general(error)
                failed = error
        # Merging waits until all facts are derived: otherwise it would be repeated after each piece.
        worked = worked or self._compact(publish, thorough) or self._compress(publish)
        if failed is not None:
            raise failed
        return worked

    def _draw(self, publish: Publish) -> bool:
        """Derive facts from the next records of this node."""
        name = f"facts-{self.node}"
        done, head = self._store.progress(name)
        if done >= head:
            return False
        numbers = self._store.numbers(Filter(node=self.node, derived=False, history=True), _BATCH, after=done)
        found, bad = self._store.readable(numbers)
        own = [record for _, record in sorted(found.items()) if record.node == self.node and record.kind in _SOURCES]
        read, failure = self._read(own, bad, publish)
        more = len(numbers) == _BATCH
        last = numbers[-1] if numbers else 0
        reached = last if more else max(head, last)
        if failure is not None:  # the model did not answer: store the results so far, and try again later
            reached = own[len(read)].seq - 1
            bad = {seq: error for seq, error in bad.items() if seq <= reached}
        missed = self._keep_each(publish, read, bad, lambda transaction: transaction.progress(name).done == done)
        if missed is None:
            return True  # another process was faster
        with publish() as transaction:
            if transaction.progress(name).done == done:
                self._set_aside(transaction, missed)
                transaction.advance(name, reached)
        if failure is not None:
            raise failure
        return more

    def _keep_each(
        self,
        publish: Publish,
        read: Sequence[_Read],
        bad: Mapping[int, str],
        still: Callable[[Transaction], bool] = lambda _: True,
    ) -> dict[int, str] | None:
        """Store the results, one record at a time if storing them together fails. Returns the bad records with the
        names of their errors, or None if `still` reports that the work was done elsewhere."""
        missed = dict(bad)
        for together in (read, *([one] for one in read)):
            try:
                with publish() as transaction:
                    if not still(transaction):
                        return None
                    self._keep(transaction, together)
                if together is read:
                    break
            except Exception as error:
                pass_on_general(error)
                if together is not read:
                    missed[together[0].record.seq] = type(error).__name__
        return missed

    def _set_aside(self, transaction: Transaction, bad: Mapping[int, str], attempts: int = 1) -> None:
        """Queue records for later derivation, one by one. A record that fails too often is set aside."""
        for seq, error in bad.items():
            log.warning("deriving from record %d failed with %s; the others continue", seq, error)
            transaction.retry(DERIVE, seq, error, attempts=attempts)

    def _renew(self, publish: Publish, changed: Record) -> None:
        """Renew the summaries of earlier versions of a record."""
        for id in self._store.neighbours(changed.id)[1]:
            summary = self._store.get(id)
            if summary is not None and summary.kind == MemoryType.SUMMARY and summary.seq < changed.seq:
                self._compactor.renew(id, publish)

    def _draw_again(self, publish: Publish) -> bool:
        """Derive again from records that shared a derived record with forgotten text."""
        jobs = self._store.jobs(DERIVE, _JOBS, failed=False)
        if not jobs:
            return False
        tried: dict[int, int] = {}
        for job in jobs:
            tried |= {seq: max(job.attempts, tried.get(seq, 0)) for seq in job.data}
        found, bad = self._store.readable(tried)
        again = [found[seq] for seq in sorted(found) if found[seq].kind in _SOURCES]
        # Before the transaction: other writers would wait while a model reads in it.
        read: list[_Read] = []
        failure: Exception | None = None
        waiting: set[int] = set()
        for record in again:
            one, unanswered = self._read([record], bad, publish)
            read += one
            if unanswered is not None:
                failure = unanswered
                waiting.add(record.seq)
        missed = self._keep_each(publish, read, bad)
        assert missed is not None
        with publish() as transaction:
            transaction.take([job for job in jobs if waiting.isdisjoint(job.data)])
            for seq, error in missed.items():
                self._set_aside(transaction, {seq: error}, tried[seq] + 1)
        if failure is not None:
            raise failure
        # Failures are retried with the next piece of work, not at once.
        return len(jobs) == _JOBS and not missed

    def _read(
        self, records: Sequence[Record], bad: dict[int, str], publish: Publish
    ) -> tuple[list[_Read], Exception | None]:
        """Read records in the order of writing, each after the earlier turns of its session.

        A record that cannot be read is noted in `bad` with the name of its error. If a model does not answer, return
        its error and the results so far, unless the model has failed on this record too often.
        """
        read: list[_Read] = []
        said: dict[tuple[str, str], str] = {}
        for record in records:
            try:
                read.append(self._read_one(record, said))
                if record.version > 1:
                    self._renew(publish, record)
            except Exception as error:
                pass_on_general(error)
                if isinstance(error, LanguageModelError | EmbeddingError):
                    self._unanswered[record.seq] = self._unanswered.get(record.seq, 0) + 1
                    if self._unanswered[record.seq] < MAX_ATTEMPTS:
                        return read, error
                bad[record.seq] = type(error).__name__
        return read, None

    def _read_one(self, record: Record, said: dict[tuple[str, str], str]) -> _Read:
        before = None
        earlier: Sequence[Record] = ()
        if record.session_id is not None:
            session = (record.node, record.session_id)
            before = said[session] if session in said else self._before(record)
            said[session] = record.content
            earlier = self._earlier(record) if self._extractor.has_model else ()
        shown = [f"{one.name or one.role or 'somebody'}: {one.content[:_EARLIER_CHARS]}" for one in earlier]
        extraction = self._extractor.extract_with_mentions(record, before=before, earlier=shown)
        wishes = found_in(record, extraction.wishes)
        return _Read(record, extraction, earlier, () if wishes and self._is_among_people(record) else wishes)

    def _keep(self, transaction: Transaction, read: Sequence[_Read]) -> None:
        """Store derived records. A model takes time: results from text that was forgotten meanwhile are dropped, and
        their records are read again."""
        there = transaction.records({one.seq for record, _, earlier, _ in read for one in (record, *earlier)})
        learned: dict[str, list[int]] = {}
        unconfirmed = self._leave_unconfirmed(transaction, [one for one in read if one.record.seq in there])
        for record, extraction, earlier, instructions in read:
            if record.seq not in there:
                continue
            if not all(one.seq in there for one in earlier):
                transaction.enqueue(DERIVE, data=[record.seq])
                continue
            for fact in extraction.facts:
                said = content_terms(fact.content.partition(": ")[2]) if earlier else ()
                seq = self.learn(transaction, fact, record, _lenders(said, record, earlier))
                if seq is not None:
                    learned.setdefault(record.node, []).append(seq)
            self._name(transaction, record, extraction.mentions, earlier)
            if (instructions or record.version > 1) and record.seq not in unconfirmed:
                self._standing.keep(transaction, record, instructions)
        for node, seqs in learned.items():
            self._tiers.of(node).admit(transaction, seqs, MemoryTier.L4, "learned")

    @staticmethod
    def _leave_unconfirmed(transaction: Transaction, read: Sequence[_Read]) -> set[int]:
        """Mark the imported records that have unconfirmed instructions; unmark the others."""
        waiting: set[int] = set()
        for node in {one.record.node for one in read}:
            imported = transaction.sizes(node, UNCONFIRMED, [one.record.seq for one in read])
            without = [one.record.seq for one in read if one.record.seq in imported and not one.instructions]
            if without:
                transaction.leave(without, UNCONFIRMED, node, "read")
            waiting |= imported.keys() - set(without)
        return waiting

    def _earlier(self, record: Record) -> list[Record]:
        """The last turns before a record in its session, oldest first, without tool and web text, which could attach
        its own names to the references of others."""
        found = self._turns_beside(record, _EARLIER_TURNS)
        return [one for one in found if one.kind in _SOURCES and one.trust not in (Trust.TOOL, Trust.WEB)][::-1]

    def _is_among_people(self, record: Record) -> bool:
        """Whether a record is part of a conversation between people, whose wishes are not meant for an assistant.

        It is if turns of other speakers surround it, and none of them is by an assistant or a tool. Treating people's
        preferences as instructions cost 4 points of evidence in LoCoMo's prompts of 2,000 tokens.
        """
        if record.session_id is None or record.name is None:
            return False
        around = [
            *self._turns_beside(record, _AROUND, history=False),
            *self._turns_beside(record, _AROUND, history=False, newest_first=False),
        ]
        if any(one.role not in (None, "user") for one in around):
            return False
        return any(one.name not in (None, record.name) for one in around)

    def _before(self, record: Record) -> str:
        """The text of the last record before a record in its session; empty at the beginning of the session."""
        found = self._turns_beside(record, 1)
        return found[0].content if found else ""

    def _turns_beside(
        self, record: Record, limit: int, *, history: bool = True, newest_first: bool = True
    ) -> Sequence[Record]:
        """The records next to another in its session, before or after it; none if one of them is damaged, because
        that must not stop the work."""
        wanted = Filter(node=record.node, session_id=record.session_id, derived=False, history=history)
        try:
            return self._store.scan(wanted, limit=limit, after=record.seq, newest_first=newest_first).records
        except CorruptStore:
            return ()

    def _restore(self, publish: Publish) -> bool:
        """Return records to their places after the record that replaced them was forgotten."""
        jobs = self._store.jobs(RESTORE, _JOBS, failed=False)
        if not jobs:
            return False
        try:
            self._give_back(publish, jobs, {seq for job in jobs for seq in job.data})
            return len(jobs) == _JOBS
        except Exception as error:
            pass_on_general(error)
        for job in jobs:  # one by one, so that one bad record does not stop the others
            for seq in job.data:
                try:
                    self._give_back(publish, [], {seq})
                except Exception as error:
                    pass_on_general(error)
                    with publish() as transaction:
                        transaction.retry(RESTORE, seq, type(error).__name__, attempts=job.attempts + 1)
            with publish() as transaction:
                transaction.take([job] if job.record == 0 or job.attempts == 0 else [])
        return False

    def _give_back(self, publish: Publish, jobs: Sequence[Job], seqs: set[int]) -> None:
        with publish() as transaction:
            transaction.take(jobs)
            by_node: dict[str, list[Record]] = {}
            for _, record in sorted(transaction.records(seqs).items()):
                if record.kind == MemoryType.INSTRUCTION:
                    transaction.enter([record.seq], STANDING, record.node, "restored")
                else:
                    by_node.setdefault(record.node, []).append(record)
            for node, records in by_node.items():
                self._tiers.of(node).restore_residency(transaction, records)

    def _compact(self, publish: Publish, thorough: bool) -> bool:
        left = self._given_up(publish, COMPACT, MemoryTier.L3)
        config = self._compactor.config
        now = self._store.clock().timestamp()
        resting = self._compacted_at is not None and now - self._compacted_at < config.cooldown_seconds
        full = not resting and self._compactor.should_compact()
        if not config.enabled or not (thorough or full or self._compactor.may_have_blocks()):
            return False

        def fail(stretch: Sequence[Record], error: Exception) -> None:
            if concerns_everything(error) or isinstance(error, LanguageModelError | EmbeddingError):
                raise error
            with publish() as transaction:
                transaction.retry(COMPACT, stretch[0].seq, type(error).__name__)

        done = self._compactor.compact(publish, leave=left, most=_BLOCKS, fail=fail)
        self._compacted_at = now
        return bool(done.summaries)

    def _given_up(self, publish: Publish, kind: str, tier: MemoryTier) -> set[int]:
        """The records for which this kind of work was given up. Notes of records that left the tier are dropped."""
        noted = self._store.jobs(kind, _MOST_LEFT)
        if not noted:
            return set()
        found, _ = self._store.readable(job.record for job in noted)
        own = [seq for seq, record in found.items() if record.node == self.node]
        held = self._store.sizes(self.node, tier, own)
        over = [job for job in noted if job.record in own and job.record not in held]
        if over:
            with publish() as transaction:
                transaction.take(over)
        return {job.record for job in noted if job.attempts >= MAX_ATTEMPTS}

    # -- facts -----------------------------------------------------------------------------------------

    def learn(
        self, transaction: Transaction, fact: ExtractedFact, source: Record, lenders: Sequence[str] = ()
    ) -> int | None:
        """Store a fact. Returns its sequence number if it is new. A known fact gains a source.

        `lenders` are the ids of the other records from which the fact was derived.

        A fact that can have only one value is a chain of versions under one id; the newest version is valid.
        """
        outdated: Record | None = None
        if fact.revises is not None:
            found = self._revised(transaction, fact, source)
            if found is None:
                return None  # without the corrected fact, it states nothing
            fact, outdated = found
            lenders = (*lenders, *transaction.neighbours(outdated.id)[0])
        named = fact.key is not None and fact.value is not None
        id = digest_id("fact", source.node, fact.key if named and fact.key else fact_identity(fact))
        known = transaction.get(id)
        if known is not None:
            same = not named or _stored(known).value == fact.value
            older = source.created_at < known.created_at
            if (same and (known.superseded_at is None or older)) or transaction.draws_on(id, source.id):
                transaction.derive(id, [source.id, *lenders])
                return None
            if older:  # the fact arrives late, and is stored as the value at its own time
                id = digest_id("fact", source.node, f"{fact.key}={fact.value} {source.id}")
                written = transaction.append([self._draft(id, fact, source, lenders)])[0]
                if written.created:
                    transaction.supersede(written.seq, known.seq, known.created_at)
                return None
        written = transaction.append([self._draft(id, fact, source, lenders)])[0]
        if fact.replaces is not None:
            self._correct(transaction, fact, written.seq, source)
        if outdated is not None and outdated.id != id:
            transaction.supersede(outdated.seq, written.seq, source.created_at)
        return written.seq if written.created else None

    def _revised(
        self, transaction: Transaction, fact: ExtractedFact, source: Record
    ) -> tuple[ExtractedFact, Record] | None:
        """A bare correction, completed with the words of the last fact to which it can refer, and that fact."""
        wanted = Filter(node=source.node, session_id=source.session_id, kind=str(MemoryType.FACT), derived=True)
        for older in transaction.scan(wanted, limit=_REVISED_AMONG).records:
            if not timedelta(0) <= source.created_at - older.created_at <= _REVISED_WITHIN:
                continue
            whole = revised(fact, _stored(older), source.created_at)
            if whole is not None:
                return whole, older
        return None

    def _correct(self, transaction: Transaction, fact: ExtractedFact, seq: int, source: Record) -> None:
        """Supersede the facts of the session that a new fact calls outdated."""
        wanted = Filter(node=source.node, session_id=source.session_id, kind=str(MemoryType.FACT), derived=True)
        for older in transaction.scan(wanted, limit=_CORRECTED_AMONG).records:
            if older.seq != seq and older.created_at <= source.created_at and contradicts(fact, _stored(older)):
                transaction.supersede(older.seq, seq, source.created_at)

    def _draft(self, id: str, fact: ExtractedFact, source: Record, lenders: Sequence[str]) -> Draft:
        counter = self._tiers.counter
        metadata = {
            "label": fact.label,
            "kind": str(fact.kind),
            "key": fact.key,
            "value": fact.value,
            "replaces": fact.replaces,
        }
        data: dict[str, Any] = {
            "fact_type": str(fact.fact_type),
            "confidence": fact.confidence,
            "tags": [],
            "metadata": {name: value for name, value in metadata.items() if value is not None},
            "said_in": source.seq,  # the same words at another time are another version
        }
        return Draft(
            id=id,
            content=fact.content,
            created_at=source.created_at,
            kind=MemoryType.FACT,
            node=source.node,
            session_id=source.session_id,
            name=source.name,
            trust=source.trust,
            importance=fact.confidence,
            tokens=counter.limit_count(fact.content),
            counter=counter.name,
            data=data,
            sources=(source.id, *lenders),
            revises=True,
            drawn=True,
        )

    # -- names -----------------------------------------------------------------------------------------

    def _name(
        self, transaction: Transaction, record: Record, names: Sequence[Mention], earlier: Sequence[Record]
    ) -> None:
        """Store the names that a model read in a record next to the record, unless the rules find them too.

        Each version is read once. An earlier turn that contains one of the names is a source too: forgetting that
        turn removes them, and the record is read again without it.
        """
        new = [mention for mention in names if _is_new(mention, record)]
        id = digest_id("names", record.version, record.id)
        if not new or transaction.get(id) is not None:
            return
        content = "\n".join(f"{mention.said}: {mention.name}" for mention in new)
        words = [term for mention in new for term in terms(mention.name) if len(term) > 1]
        counter = self._tiers.counter
        draft = Draft(
            id=id,
            content=content,
            created_at=record.created_at,
            kind=NAMES,
            node=record.node,
            trust=record.trust,
            importance=record.importance,
            tokens=counter.limit_count(content),
            counter=counter.name,
            metadata={
                "of": record.id,
                "version": record.version,
                NAMES: {mention.name: mention.said for mention in new},
            },
            sources=(record.id, *_lenders(words, record, earlier)),
            drawn=True,
        )
        transaction.append([draft])

    # -- too many facts --------------------------------------------------------------------------------

    def _compress(self, publish: Publish) -> bool:
        """Merge equivalent facts if the knowledge tier has too many."""
        left = self._given_up(publish, MERGE, MemoryTier.L4)
        limit = self._tiers.settings.l4_fact_limit
        usage = self._store.usage(self.node).get(MemoryTier.L4)
        wanted = Filter(node=self.node, tier=MemoryTier.L4, kind=str(MemoryType.FACT))
        if usage is None or usage.items <= limit or (count := self._store.count(wanted)) <= limit:
            return False
        facts, _ = self._store.readable(self._store.numbers(wanted, count))
        vectors = self._store.vectors(facts)
        if self._embedder is not None and len(vectors) < len(facts):
            return False  # the newest facts are still being embedded
        undone = self._store.replaced(facts) | left
        candidates = [
            replace(record_as_fact(record), embedding=None if seq in undone else vectors.get(seq))
            for seq, record in sorted(facts.items())
        ]
        compressor = L4Compressor(threshold=limit)
        plan = compressor.plan(candidates)
        while unfaithful := {fact.id for merge in plan.merged if not self._faithful(merge) for fact in merge.members}:
            for fact in candidates:
                if fact.id in unfaithful:
                    fact.embedding = None  # it is then not merged
            plan = compressor.plan(candidates)
        numbers = {record.id: seq for seq, record in facts.items()}
        leaving = [numbers[fact.id] for fact in plan.left_out]
        for merge in plan.merged:
            members = [numbers[fact.id] for fact in merge.members]
            try:
                self._merge(publish, merge, members)
            except Exception as error:
                pass_on_general(error)
                with publish() as transaction:
                    for seq in members:
                        transaction.retry(MERGE, seq, type(error).__name__)
        if leaving:
            with publish() as transaction:
                transaction.leave(leaving, MemoryTier.L4, self.node, "full")
        return False

    def _faithful(self, merge: Merge) -> bool:
        """Whether the embedding of the merged text is close to that of every member."""
        if self._embedder is None:
            return True
        (vector,) = embed_texts(self._embedder, [merge.content])
        said = [member.content for member in merge.members]
        return FidelityChecker().check(merge.content, said, vector, [one.embedding for one in merge.members]).passed

    def _merge(self, publish: Publish, merge: Merge, members: Sequence[int]) -> None:
        fact = merge.fact
        counter = self._tiers.counter
        draft = Draft(
            id=f"fact_{new_id()}",
            content=fact.content,
            created_at=fact.created_at,
            kind=MemoryType.FACT,
            node=self.node,
            importance=fact.confidence if fact.importance is None else fact.importance,
            tokens=counter.limit_count(fact.content),
            counter=counter.name,
            trust="agent",
            data={
                "fact_type": str(fact.fact_type),
                "confidence": fact.confidence,
                "tags": fact.tags,
                "metadata": fact.metadata,
            },
            sources=tuple(member.id for member in merge.members),
            named=False,
            drawn=True,
            replaces=True,
        )
        with publish() as transaction:
            if len(transaction.sizes(self.node, MemoryTier.L4, members)) == len(members):
                self._tiers.replace(transaction, draft, members, MemoryTier.L4, "merged")

    # -- reversing -------------------------------------------------------------------------------------

    def undo(self, id: str) -> UndoResult:
        """Withdraw a derived record: a summary, a merged fact, a fact or an instruction. The records that it replaced
        return to their places.

        It stays in the log as a withdrawn record, and is not derived again from the same sources.
        """
        record = self._store.get(id)
        if record is None:
            raise NotFound(f"there is no memory with the id {id!r}")
        with self._store.transaction() as transaction:
            if not transaction.is_drawn(record.seq):
                raise InvalidInput(f"{id!r} is not derived from other memories; use forget() to remove it")
            sources = transaction.sources(id) if transaction.is_drawn(record.seq, replacing=True) else []
            if not transaction.supersede(record.seq, record.seq, self._store.clock()):
                raise InvalidInput(f"{id!r} is no longer in force; there is nothing to undo")
            self._tiers.of(record.node).restore_residency(transaction, sources)
        return UndoResult(id, tuple(source.id for source in sources))


def _is_new(mention: Mention, record: Record) -> bool:
    """Whether a name is new, compared with the names that the rules find in a record and with its speaker."""
    known = {*name_nodes(record.content, record.metadata), *terms(record.name or "")}
    mark = entity_mark(mention.name)
    words = {*nodes_of_name(mention.name)} - {mark}
    return mark not in known and not (words and words <= known)


def _lenders(words: Sequence[str], record: Record, earlier: Sequence[Record]) -> list[str]:
    """The ids of the earlier turns whose words a derived record uses. They are also its sources."""
    if not earlier:
        return []
    borrowed = {*words} - {*terms(f"{record.name or ''}\n{record.content}")}
    return [
        one.id
        for one in earlier
        if one.id != record.id and not borrowed.isdisjoint(terms(f"{one.name or ''}\n{one.content}"))
    ]


def _stored(record: Record) -> ExtractedFact:
    data = record.data if isinstance(record.data, dict) else {}
    metadata = data.get("metadata", {})
    return ExtractedFact(
        content=record.content,
        fact_type=FactType(data.get("fact_type", FactType.DOMAIN_KNOWLEDGE)),
        label=str(metadata.get("label", "")),
        confidence=float(data.get("confidence", 0.0)),
        kind=StatementKind(metadata.get("kind", StatementKind.DECISION)),
        span=(0, 0),
        key=metadata.get("key"),
        value=metadata.get("value"),
        replaces=metadata.get("replaces"),
    )
