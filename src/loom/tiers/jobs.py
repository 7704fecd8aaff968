"""Migration jobs: moves between tiers with a trigger, a priority and a deadline.

An urgent move is made at once, in one transaction. Every other move is a job in the durable queue of the store, which
the background carries out by priority and in batches. The rows of a job leave the queue in the transaction that moves
their records, so after a crash each record is in one place and the rest of the job is still queued.
`loom.tiers.migration` makes the moves.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

from loom.checks import checked_member
from loom.errors import InvalidInput, NotFound
from loom.steps import step
from loom.storage.contract import FOCUS, Job, Publish, Transaction, Usage, pass_on_general
from loom.types import MemoryTier, known_tier

if TYPE_CHECKING:
    from loom.tiers.migration import PromotedRecords, RebalanceResult, Tiers

__all__ = ["Migration", "MigrationJob", "MigrationTrigger", "Pressure", "Promotion", "QueuedMove"]

L1, L2, L3, L4 = MemoryTier.L1, MemoryTier.L2, MemoryTier.L3, MemoryTier.L4


log = logging.getLogger("loom.tiers")


class MigrationTrigger(StrEnum):
    """The reason for a move. The first three lead up, towards the prompt, the others down."""

    EXPLICIT_ACCESS = "EXPLICIT_ACCESS"
    """A caller asked for a record of the archive (a cache miss) or of the log (a retrieval)."""
    PREDICTIVE_PRELOAD = "PREDICTIVE_PRELOAD"
    """A record will probably be used soon. Only from the archive to the working tier."""
    FOCUS_REFERENCE = "FOCUS_REFERENCE"
    """The present work refers to a record. Into the window."""
    CAPACITY_PRESSURE = "CAPACITY_PRESSURE"
    """The tier is full, or is expected to be."""
    HOTNESS_DECAY = "HOTNESS_DECAY"
    """A record was not used for a long time."""
    GC_PRESSURE = "GC_PRESSURE"
    """Every tier needs room."""

    @property
    def is_up(self) -> bool:
        """Whether the trigger moves records towards the prompt."""
        return self in _UP


_UP = frozenset(
    {MigrationTrigger.EXPLICIT_ACCESS, MigrationTrigger.PREDICTIVE_PRELOAD, MigrationTrigger.FOCUS_REFERENCE}
)


class Pressure(StrEnum):
    """The need for room: it sets the share that leaves, the priority and the deadline."""

    SOFT = "soft"
    MEDIUM = "medium"
    HARD = "hard"

    @property
    def share(self) -> float:
        """The share of a tier's tokens that leaves."""
        return {Pressure.SOFT: 0.05, Pressure.MEDIUM: 0.10, Pressure.HARD: 0.20}[self]

    @property
    def priority(self) -> int:
        return {Pressure.SOFT: 30, Pressure.MEDIUM: 60, Pressure.HARD: 90}[self]

    @property
    def within(self) -> timedelta:
        """The time limit. Hard pressure is relieved before the call returns."""
        return {Pressure.SOFT: timedelta(minutes=1), Pressure.MEDIUM: timedelta(seconds=5)}.get(self, timedelta())


# The time limits of promotions into a tier (requirement 131). A preload may wait for its turn.
_DEADLINES = {L1: timedelta(milliseconds=10), L2: timedelta(milliseconds=50)}
_PRELOAD_WITHIN = timedelta(minutes=1)
# The share of the working tier that one preload may fill.
_PRELOADED_SHARE = 0.25

# Records in one transaction. Moving a record takes about as long as a commit, so sixteen records give most of the
# gain. A writer waits for this many at most.
_BATCH = 64
# A record of the working tier whose hot score has fallen below this is cold.
_COLD = 0.1

# The last moment that a datetime can hold, in microseconds.
_LATEST = 253_402_300_800_000_000

_TRIGGERS, _TIERS = tuple(MigrationTrigger), tuple(MemoryTier)


@dataclass(frozen=True, slots=True)
class MigrationJob:
    """A queued move. `priority` is from 0 to 100; the highest goes first."""

    id: str
    source_tier: MemoryTier
    target_tier: MemoryTier
    context_ids: tuple[str, ...]
    trigger: MigrationTrigger
    priority: int
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Promotion:
    """The result of a promotion.

    `moved` are the ids that entered the target. `refused` has the reason for each id that did not. `job` is the
    queued job if the move was not made at once.
    """

    target: MemoryTier
    moved: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    job: MigrationJob | None = None

    def __bool__(self) -> bool:
        return bool(self.moved) or self.job is not None


class Migration:
    """Promotions and demotions of one node, made at once or queued.

    The queue holds at most `most_queued` records. A caller that adds more carries out some of the queue first. `kind`
    is the kind of its jobs in the store.
    """

    def __init__(self, tiers: Tiers, *, most_queued: int = 4096) -> None:
        self._tiers = tiers
        self._most_queued = most_queued
        self._store = tiers.store
        self.kind = f"migrate {tiers.node}"

    # -- asking for promotions -------------------------------------------------------------------------

    def promote(self, ids: Sequence[str], target: MemoryTier = L2) -> Promotion:
        """Promote memories at once, however low their hot scores are. Counts as a use of each."""
        numbers = self._numbers(ids, target)
        self._store.touch(numbers.values(), self._tiers.node)
        started = time.perf_counter()
        with self._store.transaction() as transaction:
            promoted = self._tiers.promote_records(transaction, list(numbers.values()), target, now=True)
        self._tiers.notify_promoted(promoted, started)
        return _promotion(target, numbers, promoted.refused, promoted.scores, moved=promoted.moved)

    def trigger_promotion(
        self,
        ids: Sequence[str],
        target: MemoryTier | str = L2,
        trigger: MigrationTrigger = MigrationTrigger.EXPLICIT_ACCESS,
    ) -> Promotion:
        """Queue the records that are hot enough, with the highest hot score as priority.

        Room in the target is made when the job is carried out.
        """
        target = known_tier(target)
        if not trigger.is_up:
            raise InvalidInput(f"{trigger} leads away from the prompt: use trigger_demotion")
        if (target is L1) != (trigger is MigrationTrigger.FOCUS_REFERENCE):
            raise InvalidInput(
                f"{trigger} does not lead to {target.upper()}: a focus reference leads to L1, others to L2"
            )
        numbers = self._numbers(ids, target)
        guessed = trigger is MigrationTrigger.PREDICTIVE_PRELOAD
        if not guessed:
            self._store.touch(numbers.values(), self._tiers.node)
        self._shorten_queue(len(numbers))
        with self._store.transaction() as transaction:
            scores, refused = self._tiers.assess_promotion(transaction, list(numbers.values()), target)
            hot = [one for one in numbers.values() if one not in refused]
            job = None
            if hot:
                move = QueuedMove(
                    self._tiers.nearest(transaction, hot[:1]).get(hot[0], L4),
                    target,
                    trigger,
                    _priority(max(scores[one] for one in hot)),
                    *self._from_now(_PRELOAD_WITHIN if guessed else _DEADLINES[target]),
                )
                job = self.enqueue_move(transaction, hot, move)
        if job is not None:
            self._store.wake_worker()
        return _promotion(target, numbers, refused, scores, job=job)

    def preload(self, probabilities: Mapping[int, float]) -> MigrationJob | None:
        """Queue archived records that will probably be used soon, given by sequence number.

        The likeliest go first, up to a share of the working tier.
        """
        self._shorten_queue(len(probabilities))
        room = _PRELOADED_SHARE * self._tiers.rules().budgets[L2]
        with self._store.transaction() as transaction:
            likeliest = sorted(probabilities, key=lambda one: (-probabilities[one], one))
            in_archive = transaction.sizes(self._tiers.node, L3, likeliest)
            sizes = {one.record: one.tokens for one in transaction.as_residents(likeliest, self._tiers.node)}
            archived: list[int] = []
            for one in likeliest:
                if one in in_archive and one in sizes and sizes[one] <= room:
                    archived.append(one)
                    room -= sizes[one]
            if not archived:
                return None
            priority = _priority(probabilities[archived[0]])
            move = QueuedMove(L3, L2, MigrationTrigger.PREDICTIVE_PRELOAD, priority, *self._from_now(_PRELOAD_WITHIN))
            job = self.enqueue_move(transaction, archived, move)
        self._store.wake_worker()
        return job

    # -- asking for demotions --------------------------------------------------------------------------

    def trigger_demotion(
        self,
        tier: MemoryTier | str,
        pressure: Pressure | str,
        trigger: MigrationTrigger = MigrationTrigger.CAPACITY_PRESSURE,
        *,
        tokens: int | None = None,
    ) -> MigrationJob | None:
        """Make room in a tier: the pressure sets the share, the priority and the deadline. Returns None if no record
        can leave.

        Hard pressure is relieved before this returns, other pressure in the background. `tokens` replaces the share
        of the pressure. Under `HOTNESS_DECAY` only cold records leave.
        """
        tier, pressure = known_tier(tier), checked_member(Pressure, pressure, "pressure")
        if trigger.is_up:
            raise InvalidInput(f"{trigger} leads towards the prompt: use trigger_promotion")
        if tier is L1:
            raise InvalidInput("L1 is the window of the newest records, which makes room by itself; use demote()")
        self._shorten_queue(_BATCH)
        with self._store.transaction() as transaction:
            if tokens is None:
                held = transaction.totals(self._tiers.node).get(tier, Usage()).tokens
                tokens = math.ceil(pressure.share * held)
            victims = self._tiers.next_victims(transaction, tier, tokens)
            if trigger is MigrationTrigger.HOTNESS_DECAY:
                scores, _ = self._tiers.assess_promotion(transaction, victims, L2)
                victims = [one for one in victims if scores.get(one, 0.0) < _COLD]
            if not victims:
                return None
            # Records that leave the last tier stay in the log, which L4 searches.
            below = {L2: L3}.get(tier, L4)
            move = QueuedMove(tier, below, trigger, pressure.priority, *self._from_now(pressure.within))
            job = self.enqueue_move(transaction, victims, move)
        if pressure is Pressure.HARD:
            while self._step(self._store.transaction, only=int(job.id)):
                pass
        else:
            self._store.wake_worker()
        return job

    def collect(self, pressure: Pressure | str) -> list[MigrationJob]:
        """Make room in every tier but the window, from the lowest up, so that each has room for the one above."""
        jobs = [self.trigger_demotion(tier, pressure, MigrationTrigger.GC_PRESSURE) for tier in (L4, L3, L2)]
        return [job for job in jobs if job is not None]

    def demote(self, ids: Sequence[str]) -> dict[str, MemoryTier | None]:
        """Move memories one tier down, away from the prompt. Returns the tier of each; None if it is only in the log.

        The newest records stay in the window until newer ones come.
        """
        numbers = self._numbers(ids, L2)
        rooms: list[RebalanceResult] = []
        with self._store.transaction() as transaction:
            focused = transaction.sizes(self._tiers.node, FOCUS)
            for one in numbers.values():
                tier = L1 if one in focused else self._tiers.nearest(transaction, [one]).get(one)
                if tier is not None:
                    rooms.append(self._tiers.demote_records(transaction, [one], tier, "demoted"))
            nearest = self._tiers.nearest(transaction, [*numbers.values()])
            places = {id: nearest.get(one) for id, one in numbers.items()}
        for room in rooms:
            self._tiers.notify_rebalanced(room)
        return places

    # -- doing -----------------------------------------------------------------------------------------

    def jobs(self) -> list[MigrationJob]:
        """The queued jobs, in the order in which they will be carried out."""
        return [
            self._job(rows[0].seq, QueuedMove.of(rows[0]), [row.record for row in rows]) for rows in self._queue()
        ]

    def work(self, publish: Publish, thorough: bool) -> bool:
        """Carry out a batch of the queue. Returns whether there is more. See `loom.storage.contract.Chore`."""
        return self._step(publish)

    @step("migration.step")
    def _step(self, begin: Publish, only: int | None = None) -> bool:
        """Carry out a batch of the most urgent job, or of the job `only`. Returns whether the queue has more."""
        waiting = [rows for rows in self._queue() if only in (None, rows[0].seq)]
        if not waiting:
            return False
        batch = waiting[0][:_BATCH]
        try:
            self._carry_out(begin, batch)
        except Exception as error:
            pass_on_general(error)
            for row in batch:  # one by one, so that a bad record does not hold up the others
                self._carry_out_alone(begin, row)
        return bool(self._store.jobs(self.kind, 1, failed=False))

    def _carry_out_alone(self, begin: Publish, row: Job) -> None:
        try:
            self._carry_out(begin, [row])
        except Exception as error:
            pass_on_general(error)
            log.warning("moving record %d failed with %s; the others continue", row.record, type(error).__name__)
            with begin() as transaction:
                transaction.retry(self.kind, row.record, type(error).__name__)

    def _carry_out(self, begin: Publish, batch: Sequence[Job]) -> None:
        """Move the records of some rows of one job, in one transaction."""
        move = QueuedMove.of(batch[0])
        guessed = move.trigger is MigrationTrigger.PREDICTIVE_PRELOAD
        started = time.perf_counter()
        promoted: PromotedRecords | None = None
        room: RebalanceResult | None = None
        with begin() as transaction:
            records = [row.record for row in transaction.take(batch)]
            if not move.trigger.is_up:
                known = transaction.as_residents(records, self._tiers.node)
                # A record that was used after it was chosen to leave stays.
                leaving = [one.record for one in known if one.uses == 0 or one.last_at * 1e6 < move.asked_at]
                room = self._tiers.demote_records(transaction, leaving, move.source, move.trigger.lower())
            elif not guessed or _micros(self._store.clock()) <= move.deadline:  # a late preload is of no use
                promoted = self._tiers.promote_records(
                    transaction, records, move.target, threshold=0.0, now=not guessed
                )
        if promoted is not None:
            self._tiers.notify_promoted(promoted, started)
        if room is not None:
            self._tiers.notify_rebalanced(room)

    def _shorten_queue(self, coming: int) -> None:
        """Carry out some of the queue, if it would become too long."""
        most = self._most_queued
        while (waiting := len(self._store.jobs(self.kind, most, failed=False))) and waiting + coming > most:
            self._step(self._store.transaction)

    def _queue(self) -> list[list[Job]]:
        """The rows of each job, the most urgent first."""
        jobs: dict[int, list[Job]] = {}
        strange: list[Job] = []
        for row in self._store.jobs(self.kind, self._most_queued, failed=False):
            (jobs.setdefault(row.seq, []) if QueuedMove.is_one(row.data) else strange).append(row)
        if strange and not self._store.read_only:  # from a forged file, or a later version
            log.warning("%d queued moves are not valid in this store and are dropped", len(strange))
            with self._store.transaction() as transaction:
                transaction.take(strange)
        return sorted(jobs.values(), key=lambda rows: (*QueuedMove.of(rows[0]).urgency, rows[0].seq))

    def enqueue_move(self, transaction: Transaction, records: Sequence[int], move: QueuedMove) -> MigrationJob:
        """Queue a row for each record, so that `forget` takes a record off the queue too."""
        return self._job(transaction.enqueue(self.kind, records, move.numbers()), move, records)

    def _job(self, number: int, move: QueuedMove, records: Sequence[int]) -> MigrationJob:
        found = self._store.records(records)
        return MigrationJob(
            str(number),
            move.source,
            move.target,
            tuple(found[one].id for one in records if one in found),
            move.trigger,
            move.priority,
            datetime.fromtimestamp(move.deadline / 1e6, UTC),
        )

    # -- helpers ----------------------------------------------------------------------------------

    def _numbers(self, ids: Sequence[str], target: MemoryTier) -> dict[str, int]:
        """The numbers of memories by their ids; each must exist."""
        if isinstance(ids, str):
            raise InvalidInput("give the ids as a list")
        if target not in (L1, L2):
            raise InvalidInput(f"a promotion leads to L1 or L2, not to {target.upper()}")
        numbers: dict[str, int] = {}
        for id in ids:
            record = self._store.get(id)
            if record is None:
                raise NotFound(f"there is no memory {id!r}")
            numbers[id] = record.seq
        return numbers

    def _from_now(self, within: timedelta) -> tuple[int, int]:
        now = self._store.clock()
        return _micros(now), _micros(now + within)


class QueuedMove(NamedTuple):
    """A move in the form in which the queue stores it for each record. Times are microseconds."""

    source: MemoryTier
    target: MemoryTier
    trigger: MigrationTrigger
    priority: int
    asked_at: int
    deadline: int

    @staticmethod
    def is_one(data: Sequence[int]) -> bool:
        """Whether these numbers encode a move."""
        limits = (len(_TIERS), len(_TIERS), len(_TRIGGERS), 101, _LATEST, _LATEST)
        return len(data) == len(limits) and all(0 <= one < limit for one, limit in zip(data, limits, strict=True))

    @classmethod
    def of(cls, row: Job) -> Self:
        source, target, trigger, *rest = row.data
        return cls(_TIERS[source], _TIERS[target], _TRIGGERS[trigger], *rest)

    def numbers(self) -> tuple[int, ...]:
        return (
            _TIERS.index(self.source),
            _TIERS.index(self.target),
            _TRIGGERS.index(self.trigger),
            self.priority,
            self.asked_at,
            self.deadline,
        )

    @property
    def urgency(self) -> tuple[int, int]:
        """The sort key; the lowest goes first."""
        return -self.priority, self.deadline


def _promotion(
    target: MemoryTier,
    numbers: Mapping[str, int],
    refused: Mapping[int, str],
    scores: Mapping[int, float],
    *,
    moved: Sequence[int] = (),
    job: MigrationJob | None = None,
) -> Promotion:
    return Promotion(
        target,
        tuple(id for id, one in numbers.items() if one in moved),
        {id: refused[one] for id, one in numbers.items() if one in refused},
        {id: scores[one] for id, one in numbers.items() if one in scores},
        job,
    )


def _priority(score: float) -> int:
    return round(100 * min(1.0, max(0.0, score)))


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)
