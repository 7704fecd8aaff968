"""Stores, ends and lists the standing instructions of a node.

Each is a record of kind `instruction` that names its source. Instructions in force reside in the place `STANDING`, so
the time to read them does not depend on the size of the memory. `loom.knowledge.instructions` finds them in a text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from loom.errors import InvalidInput, NotFound
from loom.knowledge.instruction_changes import InstructionTopic, ends
from loom.knowledge.instructions import StandingInstruction, instructions_of
from loom.recall.conditions import Wish, condition_scores
from loom.storage.contract import DERIVE, STANDING, UNCONFIRMED, Draft, Record, Store, Transaction, Vector
from loom.text.duplicates import normal_form
from loom.text.tokens import TokenCounter
from loom.types import Instruction, InstructionKind, InstructionScope, MemoryType, Trust, record_as_instruction

__all__ = ["MOST_STANDING", "Standing", "StandingInstructions", "digest_id", "found_in"]

MOST_STANDING: Final = 512
"""The most instructions, preferences and withdrawals of a node in force at once. Above this number the oldest
preferences leave first. They stay in the log, which also records that they left."""

_READ_TOGETHER: Final = 256

# The weight of a preference relative to an explicit instruction.
_IMPORTANCE: Final = {
    InstructionKind.INSTRUCTION: 0.9,
    InstructionKind.PREFERENCE: 0.7,
    InstructionKind.WITHDRAWAL: 0.5,
}


class Standing(NamedTuple):
    """An instruction in force, its record, and the topic with which questions are compared."""

    instruction: Instruction
    record: Record
    wish: Wish
    said_in: int
    """The sequence number of the turn that gave it, 0 if unknown."""

    @property
    def is_alone(self) -> bool:
        """Whether that turn holds no other instruction."""
        return bool(_data(self.record).get("is_alone"))


class StandingInstructions:
    """Stores and lists the standing instructions of one node. Thread-safe."""

    def __init__(
        self, store: Store, node: str, counter: TokenCounter, embed: Callable[[str], Vector | None] = lambda _: None
    ) -> None:
        """`embed` returns the vector of a question, or None without an embedder."""
        self._store = store
        self._node = node
        self._counter = counter
        self._embed = embed
        self._known: dict[int, Standing] = {}
        self._topics: dict[str, InstructionTopic] = {}  # of the instructions in force, by id; used only by the worker

    # -- listing -----------------------------------------------------------------------------------------

    def in_force(self, session_id: str | None = None) -> list[Standing]:
        """The instructions in force in a session (without one: everywhere), newest first.

        Earlier results are cached while they are valid.
        """
        # An instruction that ends between the two reads is missing in the second: no common snapshot is needed.
        seqs = [*self._store.sizes(self._node, STANDING)]
        known = self._read(seqs)
        found = [known[seq] for seq in seqs if seq in known]
        found.sort(key=lambda one: (one.record.created_at, one.record.seq), reverse=True)
        return [one for one in found if _holds_in(one.instruction, session_id)]

    def applying(self, question: str, session_id: str | None = None) -> list[tuple[Standing, float]]:
        """The instructions whose condition a question meets, with a score above 0, best first; equal ones newest
        first."""
        standing = self.in_force(session_id)
        if not standing:
            return []
        vector = self._embed(question) if any(one.wish.vector is not None for one in standing) else None
        scores = condition_scores(question, [one.wish for one in standing], vector)
        places = sorted(
            (place for place, score in enumerate(scores) if score > 0.0), key=lambda at: (-scores[at], at)
        )
        return [(standing[place], scores[place]) for place in places]

    def _read(self, seqs: Sequence[int]) -> dict[int, Standing]:
        before = self._known  # replaced, never changed: no lock is needed that a fork could leave held
        known = {seq: before[seq] for seq in seqs if seq in before}
        unread = [seq for seq in seqs if seq not in known]
        records = self._store.records(unread) if unread else {}
        without = [seq for seq, one in known.items() if one.wish.vector is None] + list(records)
        vectors = self._store.vectors(without) if without and self._store.space is not None else {}
        turns = self._store.records({_said_in(record) for record in records.values()}) if records else {}
        for seq in without:
            if seq in records:
                sources = self._store.neighbours(records[seq].id)[0]
                one = record_as_instruction(records[seq], sources)
                wish = Wish.of(one.text, one.condition, one.kind, vectors.get(seq))
                known[seq] = Standing(one, records[seq], wish, self._turn(records[seq], sources, turns))
            elif seq in vectors:
                known[seq] = known[seq]._replace(wish=known[seq].wish._replace(vector=vectors[seq]))
        self._known = known
        return known

    def _turn(self, record: Record, sources: Collection[str], turns: Mapping[int, Record]) -> int:
        """The sequence number of the turn that gave an instruction.

        In a restored or migrated memory, the number in the instruction may name another record.
        """
        noted = _said_in(record)
        if not sources or (noted in turns and turns[noted].id in sources):
            return noted
        found = (self._store.get(source) for source in sorted(sources))
        return next((turn.seq for turn in found if turn is not None), 0)

    # -- keeping -----------------------------------------------------------------------------------------

    def keep(self, transaction: Transaction, source: Record, found: Sequence[StandingInstruction]) -> None:
        """Store the instructions found in a record. Instructions that only its earlier versions contain end."""
        kept = {self._learn(transaction, one, source, is_alone=len(found) == 1) for one in found}
        if source.version > 1:
            for id in transaction.neighbours(source.id)[1]:
                older = transaction.get(id)
                if older is None or older.kind != MemoryType.INSTRUCTION or id in kept:
                    continue
                if older.seq < source.seq and len(transaction.neighbours(id)[0]) == 1:
                    transaction.supersede(older.seq, source.seq, source.created_at)

    def _learn(self, transaction: Transaction, found: StandingInstruction, source: Record, is_alone: bool) -> str:
        """Store one instruction; return its id. A known one gains a source, unless it had ended before the source was
        said."""
        id = _instruction_id(source, found)
        known = transaction.get(id)
        if known is not None:
            ended = known.superseded_at
            if ended is None or source.created_at < ended or transaction.draws_on(id, source.id):
                transaction.derive(id, [source.id])
                return id
        elif transaction.get(digest_id("withdrawal", id, source.id)) is not None:
            return id  # it was withdrawn, and forgotten with another source
        (written,) = transaction.append([self._draft(id, found, source, is_alone)])
        if written.created:
            self._enter(transaction, written.seq, found, source)
        return id

    def _draft(self, id: str, found: StandingInstruction, source: Record, is_alone: bool) -> Draft:
        data = {
            "kind": str(found.kind),
            "condition": found.condition,
            "scope": str(found.scope),
            "said_in": source.seq,  # the same words at another time are another version
            "is_alone": is_alone,  # nothing else in the turn could end before it
        }
        return Draft(
            id=id,
            content=found.text,
            created_at=source.created_at,
            kind=MemoryType.INSTRUCTION,
            node=source.node,
            session_id=source.session_id,
            name=source.name,
            trust=source.trust,
            importance=_IMPORTANCE[found.kind],
            tokens=self._counter.limit_count(found.text),
            counter=self._counter.name,
            data=data,
            sources=(source.id,),
            revises=True,
            drawn=True,
        )

    def _enter(self, transaction: Transaction, seq: int, found: StandingInstruction, source: Record) -> None:
        """Put an instruction into force, and end those that it ends. An instruction that is read late ends at once if
        a later one ends it, so the result does not depend on the order of reading."""
        own = InstructionTopic.of(found.text, found.condition, found.kind, found.scope)
        by: Record | None = None
        for record, other in self._topics_of(transaction, source.node):
            if not _share_a_scope(own, source.session_id, other, record.session_id):
                continue
            if record.created_at <= source.created_at and ends(own, other):
                transaction.supersede(record.seq, seq, source.created_at)
            elif record.created_at > source.created_at and ends(other, own):
                by = record if by is None or record.created_at < by.created_at else by
        if by is not None:
            transaction.supersede(seq, by.seq, by.created_at)
            return
        transaction.enter([seq], STANDING, source.node, "told")
        self._make_room(transaction, source.node)

    def _topics_of(self, transaction: Transaction, node: str) -> list[tuple[Record, InstructionTopic]]:
        """The instructions in force with their topics. Topics are cached by id, which names one text. Sequence
        numbers would not do: those of a failed transaction are used again."""
        records = list(transaction.records(transaction.sizes(node, STANDING)).values())
        self._topics = {record.id: self._topics.get(record.id) or _topic_of(record) for record in records}
        return [(record, self._topics[record.id]) for record in records]

    def _make_room(self, transaction: Transaction, node: str) -> None:
        excess = len(transaction.sizes(node, STANDING)) - MOST_STANDING
        if excess > 0:
            by_worth = sorted(transaction.residents(node, STANDING), key=lambda one: (one.importance, one.entered))
            transaction.leave([one.record for one in by_worth[:excess]], STANDING, node, "full")

    # -- ending ------------------------------------------------------------------------------------------

    def withdraw(self, id: str) -> Instruction:
        """End an instruction by its id. It stays in the log, and is not derived again from the same words."""
        record = self._store.get(id)
        if record is None:
            raise NotFound(f"there is no memory with the id {id!r}; instructions() lists those in force")
        if record.kind != MemoryType.INSTRUCTION:
            raise InvalidInput(
                f"{id!r} is a {record.kind}, not a standing instruction; instructions() lists those in force, and "
                "forget() removes any memory"
            )
        now = self._store.clock()
        with self._store.transaction() as transaction:
            if not transaction.supersede(record.seq, record.seq, now):
                raise InvalidInput(f"{id!r} is no longer in force; there is nothing to withdraw")
            transaction.append([_withdrawal(record, source, now) for source in transaction.neighbours(id)[0]])
        ended = self._store.get(id)
        assert ended is not None
        return record_as_instruction(ended, self._store.neighbours(id)[0])

    # -- confirming --------------------------------------------------------------------------------------

    def unconfirmed(self, limit: int) -> list[Instruction]:
        """The unconfirmed instructions of imported messages, the last imported first.

        They have no records of their own yet: the id of each is the id of its message.
        """
        waiting = [*self._store.sizes(self._node, UNCONFIRMED)][::-1]
        found: list[Instruction] = []
        for start in range(0, len(waiting), _READ_TOGETHER):
            page = waiting[start : start + _READ_TOGETHER]
            records = self._store.records(page)
            for record in (records[seq] for seq in page if seq in records):
                for one in found_in(record):
                    told = (record.id, one.text, one.kind, one.condition, one.scope, record.session_id)
                    found.append(Instruction(*told, (), record.created_at))
                if len(found) >= limit:
                    return found[:limit]
        return found

    def confirm(self, id: str) -> list[Instruction]:
        """Put the instructions of an imported message into force, as if the user had just given them."""
        with self._store.transaction() as transaction:
            record = transaction.get(id)
            if record is None:
                raise NotFound(f"there is no memory with the id {id!r}; instructions(unconfirmed=True) lists them")
            if not transaction.leave([record.seq], UNCONFIRMED, record.node, "confirmed"):
                raise InvalidInput(
                    f"{id!r} is not an imported message that waits for confirmation; "
                    "instructions(unconfirmed=True) lists those that do"
                )
            found = found_in(record)
            self.keep(transaction, record, found)
            transaction.enqueue(DERIVE, data=[record.seq])  # a model may find more than the rules
        held = [self._store.get(_instruction_id(record, one)) for one in found]
        return [record_as_instruction(one, self._store.neighbours(one.id)[0]) for one in held if one is not None]


def found_in(record: Record, read: Sequence[str] = ()) -> list[StandingInstruction]:
    """The standing instructions in a record. Only messages in the user's own words, by their trust, can hold any.

    `read` are sentences that a model classified as instructions; they are added to those of the rules.
    """
    if record.kind != MemoryType.MESSAGE or record.trust != Trust.USER or record.role not in (None, "user"):
        return []
    return instructions_of(record.content, record.data if isinstance(record.data, Mapping) else None, read)


def _topic_of(record: Record) -> InstructionTopic:
    one = record_as_instruction(record, ())
    return InstructionTopic.of(one.text, one.condition, one.kind, one.scope)


def _said_in(record: Record) -> int:
    """The sequence number of the turn that is stored in an instruction; 0 without one."""
    return int(_data(record).get("said_in", 0))


def _data(record: Record) -> Mapping[str, Any]:
    return record.data if isinstance(record.data, Mapping) else {}


def _holds_in(instruction: Instruction, session_id: str | None) -> bool:
    return instruction.kind is not InstructionKind.WITHDRAWAL and (
        instruction.scope is InstructionScope.EVERYWHERE
        or (session_id is not None and instruction.session_id == session_id)
    )


def _share_a_scope(one: InstructionTopic, session: str | None, other: InstructionTopic, others: str | None) -> bool:
    """Whether one instruction can end the other: an instruction for a session ends nothing outside of the session."""
    return InstructionScope.SESSION not in (one.scope, other.scope) or (session is not None and session == others)


def _withdrawal(record: Record, source: str, at: datetime) -> Draft:
    """The note that an instruction was withdrawn. It is stored for each source and lasts as long as the source."""
    return Draft(
        id=digest_id("withdrawal", record.id, source),
        content=f"withdrawn: {record.id}",
        created_at=at,
        kind=MemoryType.INSTRUCTION,
        node=record.node,
        trust=record.trust,
        data={"kind": str(InstructionKind.WITHDRAWAL), "at": at.isoformat()},
        sources=(source,),
        revises=True,
        drawn=True,
    )


def digest_id(kind: str, *parts: object) -> str:
    """The id of a derived record. It is the same for the same parts, and does not contain their words."""
    named = "\0".join(map(str, parts)).encode()
    return f"{kind}_{hashlib.blake2b(named, digest_size=13).hexdigest()}"


def _instruction_id(source: Record, found: StandingInstruction) -> str:
    """The id of an instruction. It is the same for the same words of a node (and of a session), and does not contain
    the words."""
    where = (source.session_id or "") if found.scope is InstructionScope.SESSION else ""
    return digest_id("instruction", source.node, where, found.kind, normal_form(found.text))
