"""The moves between the tiers of one node, made in the transaction that causes them.

Down (demote): records leave a full working tier for the archive, and the oldest of the archive leave for the
knowledge tier. Records that leave the knowledge tier are still in the log and still found. Up (promote): a record
enters the working tier by importance when it is written, and returns to it, or to the window, when it is hot.
`loom.tiers.eviction` decides which records leave, and `loom.tiers.jobs` queues moves that can wait. Budgets are
enforced before the commit, so no call returns while a tier is above its budget.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from loom.errors import CorruptStore, InvalidInput, OverBudget
from loom.knowledge.stand_ins import stand_in
from loom.settings import EVICTION_WEIGHTS, Admission, Eviction, EvictionWeights, Profile, Settings
from loom.steps import step
from loom.storage.contract import FOCUS, HEARD, AtMost, Draft, Record, Resident, Store, Transaction, Usage, Written
from loom.text.tokens import TokenCounter
from loom.tiers.eviction import choose_victims, hot_score, rank
from loom.types import MemoryTier, MemoryType, Receipt

__all__ = ["Move", "MoveCounts", "Observer", "PromotedRecords", "RebalanceResult", "TierRules", "Tiers", "Tuning"]

log = logging.getLogger("loom.tiers")

L1, L2, L3, L4 = MemoryTier.L1, MemoryTier.L2, MemoryTier.L3, MemoryTier.L4

# The knowledge tier is emptied a little below its budget, so that not every arrival has to choose victims.
_L4_LOW = 0.95
# The relevance of this many of the residents that would leave by use alone is considered: reading a vector costs more
# than all other data of a resident.
_SHORTLIST = 64
# The present work is represented by this many of the newest records.
_RECENT = 32
# The share of the window that promoted records may take; the newest records have the rest.
_FOCUS_SHARE = 0.25
# The time without a use after which the part of recency in the hot score of a record is halved.
_HALF_LIFE_S = 24 * 3600.0

# Facts and summaries have their own tiers, and a use does not move them.
_DERIVED = (MemoryType.FACT, MemoryType.SUMMARY)


class MoveCounts(NamedTuple):
    """The number of records that made each move."""

    l1_to_l2: int = 0
    l2_to_l3: int = 0
    l3_to_l4: int = 0
    l4_to_log: int = 0


class TierRules(NamedTuple):
    """The budgets and rules of a node, as the file has them.

    `largest` is the size of the largest item that each tier accepts, so that one item cannot empty a tier. An item no
    larger than `anywhere` fits into each tier, and into the window without pushing a promoted record out.
    """

    budgets: Mapping[str, int]
    largest: Mapping[str, int]
    anywhere: int
    profile: Profile

    @classmethod
    def of(cls, settings: Settings) -> TierRules:
        budgets: dict[str, int] = {tier: getattr(settings, f"{tier}_token_budget") for tier in MemoryTier}
        profile = settings.rules
        shares = {L1: 1.0, L2: profile.l2_watermark.low, L3: profile.l3_high, L4: _L4_LOW}
        largest: dict[str, int] = {tier: math.floor(budgets[tier] * shares[tier]) for tier in MemoryTier}
        anywhere = min(math.floor((1 - _FOCUS_SHARE) * budgets[L1]), largest[L1], largest[L2])
        return cls(budgets, largest, anywhere, profile)

    def is_full(self, tier: str, tokens: int) -> bool:
        """Whether records must leave a tier that holds this many tokens."""
        share = {L2: self.profile.l2_watermark.high, L3: self.profile.l3_high}.get(MemoryTier(tier), 1.0)
        budget = self.budgets[tier]
        return tokens > budget or (share < 1.0 and tokens >= share * budget)

    def may_count_later(self, draft: Draft) -> bool:
        """Whether a new record may be written before its tokens are counted.

        It may if its size decides nothing: it enters only the window and would fit into any tier.
        """
        return isinstance(draft.tokens, AtMost) and self.enters_window_alone(draft)

    def enters_window_alone(self, draft: Draft) -> bool:
        """Whether a new record enters the window, and no record of a tier has to move."""
        return (
            not draft.revises
            and draft.tier == L1
            and draft.tokens <= self.anywhere
            and not self.admits(draft.importance)
        )

    def admits(self, importance: float) -> bool:
        """Whether a record enters the working tier when it is written."""
        if self.profile.admission is Admission.IMPORTANCE:
            return importance > self.profile.l2_admission_threshold
        return self.profile.admission is Admission.WRITE_AND_USE


class Move(StrEnum):
    """The direction of a move."""

    PROMOTION = "promotion"
    DEMOTION = "demotion"


class Observer:
    """Receives the events of the tiers, and ignores those that a subclass does not handle."""

    def changed(self, peaks: Mapping[str, int], totals: Mapping[str, Usage], rules: TierRules) -> None:
        """Called after a commit with moves: the peaks and the totals of each tier but the window."""

    def took(self, move: Move, seconds: float) -> None:
        """Called with the duration of a move."""

    def admitted(self, tokens: int) -> None:
        """Called with the tokens that entered the working tier."""

    def looked_up(self, hits: int, misses: int) -> None:
        """Called with the uses whose record was in the working or the recent tier, and with the others."""


class RebalanceResult(NamedTuple):
    """The moves that made room, and the peak, the total and the rules of each tier."""

    moved: MoveCounts
    peaks: Mapping[str, int]
    totals: Mapping[str, Usage]
    rules: TierRules


class PromotedRecords(NamedTuple):
    """The records that a promotion moved, the reasons why others did not move, and all hot scores."""

    moved: tuple[int, ...]
    tokens: int
    refused: Mapping[int, str]
    scores: Mapping[int, float]
    room: RebalanceResult


class Tuning(NamedTuple):
    """Weights and threshold that replace those of the profile."""

    eviction_weights: EvictionWeights
    promotion_threshold: float


class _State(NamedTuple):
    """The settings as last read, and the rules made of them."""

    revision: str | None
    settings: Settings
    rules: TierRules


class Tiers:
    """The four tiers of one node of a store."""

    def __init__(
        self,
        store: Store,
        node: str,
        settings: Settings,
        counter: TokenCounter,
        observer: Observer | None = None,
    ) -> None:
        self.store = store
        self.node = node
        self.counter = counter
        self._state = _State(None, settings, TierRules.of(settings))
        self._observer = observer or Observer()
        self._tuning: Tuning | None = None
        self.cached: dict[int, Record] = {}  # the records of the window that this process holds, by number

    # -- the rules ----------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self._state.settings

    def rules(self) -> TierRules:
        """The rules as the file has them: another process may have changed them."""
        return self._follow(None, self.store.settings(self.node))

    def tune(self, weights: EvictionWeights, promotion_threshold: float) -> None:
        """Use these weights and this threshold instead of the profile's, in this process."""
        self._tuning = Tuning(weights, promotion_threshold)
        self._state = self._state._replace(rules=self._rules_of(self._state.settings))

    def _rules_of(self, settings: Settings) -> TierRules:
        rules = TierRules.of(settings)
        if self._tuning is None:
            return rules
        return rules._replace(profile=replace(rules.profile, **self._tuning._asdict()))

    def _rules_in(self, transaction: Transaction) -> TierRules:
        """The rules as this transaction sees them."""
        if transaction.revision is not None and transaction.revision == self._state.revision:
            return self._state.rules
        return self._follow(transaction.revision, transaction.settings(self.node))

    def _follow(self, revision: str | None, stored: Mapping[str, Any]) -> TierRules:
        state = self._state
        settings = state.settings.follow(stored)
        if settings is not state.settings:
            state = _State(revision, settings, self._rules_of(settings))
        elif revision is not None:
            state = state._replace(revision=revision)
        self._state = state  # at once, so that no thread sees new settings with old rules
        return state.rules

    # -- reading -------------------------------------------------------------------------------------

    def window(self) -> dict[int, int]:
        """Number and size of each record in the window, oldest first. Records outside it leave the cache."""
        held = dict(reversed(self.store.window(self.node)))
        self.cached = {number: record for number, record in self.cached.items() if number in held}
        return held

    def recent(self, numbers: Iterable[int]) -> dict[int, Record]:
        """Records of the window, from the cache if they were read before.

        Every prompt reads them. The cache needs no check: a record never changes, and a superseded or forgotten one
        is no longer in the window.
        """
        wanted, known = [*numbers], self.cached
        read = self.store.records([number for number in wanted if number not in known])
        self.cached = known | read
        return {number: known[number] for number in wanted if number in known} | read

    def clear_cache(self) -> None:
        """Drop the records that this process holds in memory."""
        self.cached = {}

    # -- writing -------------------------------------------------------------------------------------

    def write(
        self,
        drafts: Sequence[Draft],
        tier: MemoryTier | None = None,
        *,
        on_oversize: str = "archive",
        again: bool = False,
    ) -> list[Receipt]:
        """Write records and place each in its tiers, in one transaction.

        Without a tier, a record enters the window and, if the profile admits it, the working tier. A record that is
        larger than a tier goes to the archive with a stand-in; with `on_oversize="reject"` it raises `OverBudget`
        instead and nothing is written. `again` places a record that exists already like a new one.
        """
        if on_oversize not in ("archive", "reject"):
            raise InvalidInput(f"on_oversize is 'archive' or 'reject', not {on_oversize!r}")
        if not drafts:
            return []
        if tier is None and len(drafts) == 1 and self._write_alone(drafts[0]):
            return [self._receipt_alone(drafts[0])]
        room: RebalanceResult | None = None
        with self.store.transaction() as transaction:
            rules = self._rules_in(transaction)
            written: list[Written] | None = None
            if len(drafts) == 1 and tier is None and rules.may_count_later(drafts[0]):
                written = transaction.append(drafts)
                if written[0].created:
                    return [self._receipt_alone(drafts[0])]
            placed = [self._before_writing(draft, tier, rules, on_oversize) for draft in drafts]
            if written is None:
                written = transaction.append(placed)
            arrivals = [
                (one, draft)
                for one, draft in zip(written, placed, strict=True)
                if (one.node != self.node and self._hear(transaction, one.seq, draft)) or one.created or again
            ]
            largest = max((draft.window_tokens or draft.tokens for draft in placed if draft.tier == L1), default=0)
            if largest > (1 - _FOCUS_SHARE) * rules.budgets[L1]:
                self._free_focus(transaction, largest, rules)
            # A record that enters the window alone needs no further moves.
            if tier not in (None, L1) or any(
                rules.admits(one.importance) or draft.tokens > rules.largest[L1] for one, draft in arrivals
            ):
                room = self._place(transaction, arrivals, tier, rules)
            places = self._places(transaction, written, placed)
        if room is not None:
            self.notify_rebalanced(room)
            self._observer.admitted(sum(draft.tokens for one, draft in arrivals if rules.admits(one.importance)))
        return [
            Receipt(one.id, place, draft.tokens, one.version, one.created, self._note(one, draft, place, tier, rules))
            for one, draft, place in zip(written, placed, places, strict=True)
        ]

    def _write_alone(self, draft: Draft) -> bool:
        """Write a record that needs nothing but its own row. Returns False if it needs a transaction."""
        revision, _, rules = self._state
        return revision is not None and rules.enters_window_alone(draft) and self.store.append_alone(draft, revision)

    def _receipt_alone(self, draft: Draft) -> Receipt:
        """The receipt of a record that entered the window alone."""
        if isinstance(draft.tokens, AtMost):
            return Receipt(draft.id, L1, functools.partial(self.counter.limit_count, draft.content))
        return Receipt(draft.id, L1, draft.tokens)

    def _hear(self, transaction: Transaction, record: int, draft: Draft) -> bool:
        """Also add a record of another node to this node. Returns False if this node already has it."""
        size = 0 if draft.tier is None else draft.window_tokens or draft.tokens
        return transaction.enter([record], HEARD, self.node, "heard", [size]) > 0

    def _before_writing(self, draft: Draft, tier: MemoryTier | None, rules: TierRules, on_oversize: str) -> Draft:
        """The draft with its tier and its size in the window, in which a stand-in may replace it."""
        if isinstance(draft.tokens, AtMost):
            draft = draft._replace(tokens=self.counter.limit_count(draft.content))
        asked = L1 if tier is None else tier
        if draft.tokens <= rules.largest[asked] or asked in (L3, L4):
            return draft if draft.tier == (L1 if asked is L1 else None) else draft._replace(tier=None)
        if on_oversize == "reject":
            raise OverBudget(
                f"{draft.id!r} has {draft.tokens:,} tokens and {asked.upper()} takes items of at most "
                f"{rules.largest[asked]:,}; nothing was written. Split it, raise the budget, or let it go to the "
                "archive with a stand-in."
            )
        size = self._stand_in_tokens(draft)
        if asked is not L1 or size > rules.budgets[L1]:
            return draft._replace(tier=None)
        return draft._replace(tier=L1, window_tokens=size)

    @step("tiers.stand_in_tokens")
    def _stand_in_tokens(self, record: Record | Draft) -> int:
        """The tokens of the stand-in of a record: at most those of the record. A short record is its own stand-in."""
        return min(self.counter.limit_count(stand_in(record).text), record.tokens)

    def _place(
        self,
        transaction: Transaction,
        arrivals: Sequence[tuple[Written, Draft]],
        tier: MemoryTier | None,
        rules: TierRules,
    ) -> RebalanceResult:
        """Enter records into the tiers beside the window, and make room."""
        working: list[int] = []
        others: dict[MemoryTier, list[tuple[int, int]]] = {L3: [], L4: []}
        for one, draft in arrivals:
            wants_working = tier is L2 or (tier in (None, L1) and rules.admits(one.importance))
            if wants_working and draft.tokens <= rules.largest[L2]:
                working.append(one.seq)
            elif tier in (L3, L4) or wants_working or draft.tokens > rules.largest[L1]:
                size = self._stand_in_tokens(draft)
                if size > max(rules.largest[L3] if tier is not L4 else 0, rules.largest[L4]):
                    continue  # no tier accepts even its stand-in
                others[L4 if tier is L4 else L3].append((one.seq, size))
            else:
                continue
            if not one.created:  # it enters one tier, whole or with a stand-in, and leaves the others
                for place in (L2, L3, L4):
                    transaction.leave([one.seq], place, self.node, "moved")
        if working:
            transaction.enter(working, L2, self.node, "admitted")
        for target, entering in others.items():
            self._enter_stand_ins(transaction, entering, target, "written", rules)
        return self._make_room(transaction, rules)

    def _places(
        self, transaction: Transaction, written: Sequence[Written], placed: Sequence[Draft]
    ) -> list[MemoryTier]:
        """The tier nearest to the prompt that holds each record.

        The window counts only if it holds the whole record.
        """
        if len(written) == 1 and written[0].created and placed[0].tier == L1 and placed[0].window_tokens is None:
            return [L1]  # the newest of all, and not too large
        recent = dict(transaction.window(self.node))
        beside = self.nearest(transaction, [one.seq for one in written])
        return [
            # Every record is in the log, which the knowledge tier searches.
            L1 if recent.get(one.seq) == draft.tokens else beside.get(one.seq, L4)
            for one, draft in zip(written, placed, strict=True)
        ]

    def nearest(self, transaction: Transaction, records: Sequence[int]) -> dict[int, MemoryTier]:
        """The tier nearest to the prompt that holds each record, not counting the window.

        Records in the log alone are missing.
        """
        return {one: tier for tier in (L4, L3, L2) for one in transaction.sizes(self.node, tier, records)}

    def _note(self, one: Written, draft: Draft, place: MemoryTier, tier: MemoryTier | None, rules: TierRules) -> str:
        """The note of a receipt: why the record is not whole in the tier that was asked for."""
        if one.node == self.node and draft.tokens <= rules.largest[L1] and draft.tokens <= rules.largest[L2]:
            return ""
        notes: list[str] = []
        if one.node != self.node:
            notes.append(f"node {one.node!r} of this namespace had remembered it before")
        asked = L1 if tier is None else tier
        if asked is L1 and draft.tokens <= rules.largest[L1]:
            asked = L2 if rules.admits(one.importance) else asked
        largest = rules.largest[asked]
        if draft.tokens > largest and asked in (L1, L2):
            whole = place.upper() if place in (L1, L2) else "the log"
            others = [L1] if draft.window_tokens is not None else []
            others += [L3] if place is not L2 else []
            shown = " and ".join(tier.upper() for tier in others) or "no tier"
            notes.append(
                f"{draft.tokens:,} tokens are more than {asked.upper()} takes ({largest:,}): "
                f"whole in {whole}, with a stand-in in {shown}"
            )
        return "; ".join(notes)

    # -- derived records ---------------------------------------------------------------------------------

    def of(self, node: str) -> Tiers:
        """The tiers of another node of the same store."""
        return self if node == self.node else Tiers(self.store, node, self.settings, self.counter)

    def admit(self, transaction: Transaction, records: Sequence[int], tier: MemoryTier, reason: str) -> None:
        """Enter records into the archive or the knowledge tier with their stand-ins, and make room."""
        rules = self._rules_in(transaction)
        found = transaction.records(records)
        arrivals = [(seq, self._stand_in_tokens(found[seq])) for seq in records if seq in found]
        if arrivals:
            self._enter_stand_ins(transaction, arrivals, tier, reason, rules)
            self._make_room(transaction, rules)

    def replace(
        self, transaction: Transaction, draft: Draft, replaced: Sequence[int], tier: MemoryTier, reason: str
    ) -> int:
        """Write a derived record, which takes the places of its sources in a tier. Returns its number."""
        transaction.leave(replaced, tier, self.node, reason)
        (written,) = transaction.append([draft])
        self.admit(transaction, [written.seq], tier, reason)
        return written.seq

    def restore_residency(self, transaction: Transaction, records: Sequence[Record]) -> None:
        """Admit records that are in no tier again: facts to the knowledge tier, all others to the archive."""
        for tier in (L3, L4):
            theirs = [record.seq for record in records if (record.kind == MemoryType.FACT) == (tier is L4)]
            held = self.nearest(transaction, theirs)
            self.admit(transaction, [seq for seq in theirs if seq not in held], tier, "restored")

    # -- promotion -------------------------------------------------------------------------------------

    def use(self, *records: int) -> None:
        """Count a use of each record, and promote those that are hot enough to the working tier.

        Profiles that admit by importance promote important records only; profiles that admit by use promote all.
        """
        self.store.touch(records, self.node)
        rules = self.rules()
        admission = rules.profile.admission
        absent = self.store.absent(records, L2, self.node)
        missing = [one for one, _, _ in absent]
        if admission is Admission.FREQUENCY:
            uses = rules.profile.l2_admission_uses
            missing = [one for one in missing if self.store.uses(one, self.node) >= uses]
        elif admission is Admission.IMPORTANCE:
            missing = [one for one, importance, kind in absent if rules.admits(importance) and kind not in _DERIVED]
        else:
            recent = {seq for seq, _ in self.store.window(self.node)}
            hits = [one not in missing or one in recent for one in records]
            for hit in hits:
                self.store.count_lookup(self.node, L2, hit)
            self._observer.looked_up(hits.count(True), hits.count(False))
        if missing and not self.store.read_only:
            started = time.perf_counter()
            with self.store.transaction() as transaction:
                promoted = self.promote_records(transaction, missing, L2)
            self.notify_promoted(promoted, started)

    @step("tiers.promote")
    def promote_records(
        self,
        transaction: Transaction,
        records: Sequence[int],
        target: MemoryTier,
        *,
        threshold: float | None = None,
        now: bool = False,
    ) -> PromotedRecords:
        """Promote records to the working tier or into the window: assess, load, make room, enter.

        The threshold is the profile's unless given. With `now`, neither hot score nor rest nor importance counts.
        """
        rules = self._rules_in(transaction)
        scores, refused = self.assess_promotion(transaction, records, target, threshold=threshold, now=now)
        wanted = sorted((one for one in scores if one not in refused), key=lambda one: (-scores[one], one))
        loaded, damaged = self._load(transaction, wanted)
        knowledge = (
            {} if now else {one.seq: "it is knowledge, which L4 has" for one in loaded if one.kind in _DERIVED}
        )
        sizes, too_large = self._sizes([one for one in loaded if one.seq not in knowledge], target, rules)
        if sizes:
            self._reserve(transaction, sum(sizes.values()), target, rules)
            self._enter_promoted(transaction, sizes, target)
        room = self._make_room(transaction, rules)
        return PromotedRecords(
            tuple(sizes), sum(sizes.values()), refused | damaged | knowledge | too_large, scores, room
        )

    @step("tiers.assess_promotion")
    def assess_promotion(
        self,
        transaction: Transaction,
        records: Sequence[int],
        target: MemoryTier,
        *,
        threshold: float | None = None,
        now: bool = False,
    ) -> tuple[dict[int, float], dict[int, str]]:
        """The hot scores of records, and the reasons why some are not promoted.

        With `now`, score and rest do not count.
        """
        rules = self._rules_in(transaction)
        known = transaction.as_residents(records, self.node)
        scores = self._hot_scores(transaction, known, rules)
        refused = {one: "it is gone, or has a newer version" for one in records if one not in scores}
        for one in self._already(transaction, scores, target):
            refused[one] = f"it is in {target.upper()} already"
        if not now:
            threshold = rules.profile.promotion_threshold if threshold is None else threshold
            by_importance = rules.profile.admission is Admission.IMPORTANCE
            rest = int(rules.profile.promotion_rest * transaction.totals(self.node).get(L2, Usage()).items)
            resting = transaction.left_within(list(scores), L2, self.node, "full", rest)
            for resident in known:
                number, importance = resident.record, resident.importance
                if number in refused:
                    continue
                if scores[number] < threshold:
                    refused[number] = f"its hot score is {scores[number]:.2f}, below {threshold:.2f}"
                elif number in resting:
                    refused[number] = "it has left only recently, and returns after a rest"
                elif by_importance and target is L2 and not rules.admits(importance):
                    refused[number] = f"its importance is {importance:.2f}, and importance leads in this profile"
        return scores, refused

    def _hot_scores(
        self, transaction: Transaction, residents: Sequence[Resident], rules: TierRules
    ) -> dict[int, float]:
        most_uses = max(transaction.most_uses(self.node, L2), *(one.uses for one in residents), 1)
        weights = rules.profile.eviction_weights
        relevance = self._relevance(transaction, [one.record for one in residents]) if weights.relevance else {}
        at = self.store.clock().timestamp()
        return {
            one.record: hot_score(
                one._replace(relevance=relevance.get(one.record)),
                at,
                half_life_s=_HALF_LIFE_S,
                most_uses=most_uses,
                weights=weights,
            )
            for one in residents
        }

    def _already(self, transaction: Transaction, records: Iterable[int], target: MemoryTier) -> set[int]:
        if target is L1:
            return {*records} & dict(transaction.window(self.node)).keys()
        return {*transaction.sizes(self.node, target, records)}

    @step("tiers.load")
    def _load(self, transaction: Transaction, records: Sequence[int]) -> tuple[list[Record], dict[int, str]]:
        """Read and verify records. Returns the sound ones, and the error of each damaged one.

        Records are read one by one only if a batch has a damaged one.
        """
        try:
            found = transaction.records(records)
            return [found[one] for one in records if one in found], {}
        except CorruptStore as error:
            if len(records) == 1:
                log.warning("a record cannot be moved: %s", error)
                return [], {records[0]: str(error)}
        loaded: list[Record] = []
        damaged: dict[int, str] = {}
        for one in records:
            sound, bad = self._load(transaction, [one])
            loaded += sound
            damaged |= bad
        return loaded, damaged

    def _sizes(
        self, records: Sequence[Record], target: MemoryTier, rules: TierRules
    ) -> tuple[dict[int, int], dict[int, str]]:
        """The size in the target of each record that fits, and the reason for each that does not."""
        room = self._focus_room(rules) if target is L1 else rules.largest[target]
        sizes: dict[int, int] = {}
        refused: dict[int, str] = {}
        for record in records:
            size = record.tokens
            if target is L1 and size > room:
                size = self._stand_in_tokens(record)
            if size > room:
                refused[record.seq] = f"{size:,} tokens are more than {target.upper()} takes ({room:,})"
            elif sum(sizes.values()) + size > room:
                refused[record.seq] = f"{target.upper()} takes no more at once"
            else:
                sizes[record.seq] = size
        return sizes, refused

    @step("tiers.reserve")
    def _reserve(self, transaction: Transaction, tokens: int, target: MemoryTier, rules: TierRules) -> None:
        """Make room in the target first, so that the promoted records are not evicted at once."""
        if target is L1:
            held = transaction.residents(self.node, FOCUS)
            excess = sum(one.tokens for one in held) + tokens - self._focus_room(rules)
            victims = choose_victims(held, excess, Eviction.WEIGHTED, EVICTION_WEIGHTS["without_vectors"])
            transaction.leave([one.record for one in victims], FOCUS, self.node, "full")
            return
        held_tokens = transaction.totals(self.node).get(L2, Usage()).tokens
        if rules.is_full(L2, held_tokens + tokens):
            low = math.floor(rules.profile.l2_watermark.low * rules.budgets[L2])
            self._relieve(transaction, L2, held_tokens + tokens - low, rules)

    @step("tiers.enter_promoted")
    def _enter_promoted(self, transaction: Transaction, sizes: Mapping[int, int], target: MemoryTier) -> None:
        """Enter records into the target. They are whole in the working tier, so their stand-ins leave the others."""
        records = list(sizes)
        if target is L1:
            transaction.enter(records, FOCUS, self.node, "promoted", list(sizes.values()))
            return
        for tier in (L3, L4):
            transaction.leave(records, tier, self.node, "promoted")
        transaction.enter(records, L2, self.node, "promoted")

    def _focus_room(self, rules: TierRules) -> int:
        return math.floor(_FOCUS_SHARE * rules.budgets[L1])

    def _free_focus(self, transaction: Transaction, incoming: int, rules: TierRules) -> None:
        """Let promoted records leave the window until a large new record has room."""
        held = transaction.sizes(self.node, FOCUS)
        excess = sum(held.values()) + incoming - rules.budgets[L1]
        victims = _oldest(held, excess, 0) if excess > 0 else []
        transaction.leave([record for record, _ in victims], FOCUS, self.node, "full")

    # -- demotion --------------------------------------------------------------------------------------

    def rebalance(self) -> MoveCounts:
        """Make every tier conform to the present rules. Returns the moves.

        Every write also does this. Call it after budgets were changed, or on a store that was written without them.
        """
        if self.store.read_only:
            return MoveCounts()
        with self.store.transaction() as transaction:
            rules = self._rules_in(transaction)
            admitted = self._admit_from_window(transaction, rules)
            room = self._make_room(transaction, rules)
        moved = room.moved._replace(l1_to_l2=admitted)
        if any(moved):
            self.notify_rebalanced(room)
        return moved

    def _admit_from_window(self, transaction: Transaction, rules: TierRules) -> int:
        """Enter the important records of the window that are in no other tier into the working tier."""
        recent = [seq for seq, _ in transaction.window(self.node)]
        held = self.nearest(transaction, recent)
        chosen = [
            seq
            for seq, record in sorted(transaction.records(seq for seq in recent if seq not in held).items())
            if rules.admits(record.importance) and record.tokens <= rules.largest[L2]
        ]
        return transaction.enter(chosen, L2, self.node, "admitted") if chosen else 0

    @step("tiers.make_room")
    def make_room(self, transaction: Transaction) -> None:
        """Bring the tiers below budgets that this transaction has changed."""
        self._make_room(transaction, self._follow(None, transaction.settings(self.node)))

    def make_room_of(self, transaction: Transaction, nodes: Iterable[str]) -> None:
        """Bring the tiers of several nodes below budgets that this transaction has changed."""
        for node in nodes:
            self.of(node).make_room(transaction)

    def evict(self, tier: MemoryTier, tokens: int) -> int:
        """Free at least this many tokens of a tier, the lowest rank first.

        Returns the number of records that left.
        """
        if tier is L1:
            return self._leaving(lambda transaction, _: self._shorten_window(transaction, tokens))
        return self._leaving(lambda transaction, rules: self._relieve(transaction, tier, tokens, rules))

    def clear(self, tier: MemoryTier) -> int:
        """Empty a tier; its records stay in the log. Returns their number."""
        if tier is L1:
            return self._leaving(lambda transaction, _: self._shorten_window(transaction, math.inf))
        return self._leaving(
            lambda transaction, _: transaction.leave(
                [*transaction.sizes(self.node, tier)], tier, self.node, "cleared"
            )
        )

    def _leaving(self, leave: Callable[[Transaction, TierRules], int]) -> int:
        """Let records leave, and make room in the tiers that they entered."""
        with self.store.transaction() as transaction:
            rules = self._rules_in(transaction)
            count = leave(transaction, rules)
            room = self._make_room(transaction, rules)
        self.notify_rebalanced(room)
        return count

    def _shorten_window(self, transaction: Transaction, tokens: float) -> int:
        freed = count = last = 0
        back = transaction.sizes(self.node, FOCUS)
        leaving: list[int] = []
        for seq, size in reversed(transaction.window(self.node)):
            if freed >= tokens:
                break
            freed, count = freed + size, count + 1
            if seq in back:
                leaving.append(seq)
            else:
                last = seq
        transaction.leave(leaving, FOCUS, self.node, "cleared")
        if last:
            transaction.narrow_window(self.node, last)
        return count

    def _make_room(self, transaction: Transaction, rules: TierRules) -> RebalanceResult:
        """Bring each tier below its mark, from the working tier down. All tiers are within budget afterwards."""
        moved: dict[str, int] = {}
        totals = transaction.totals(self.node)
        peaks: dict[str, int] = {}
        if totals.get(FOCUS, Usage()).tokens > self._focus_room(rules):  # the budget was reduced
            self._free_focus(transaction, rules.budgets[L1] - self._focus_room(rules), rules)
        for tier in (L2, L3, L4):
            peaks[tier] = totals.get(tier, Usage()).tokens
            if not rules.is_full(tier, peaks[tier]):
                continue
            excess, share = peaks[tier] - rules.largest[tier], 0.0
            if tier is L3:  # below its mark, and at least the oldest share
                excess = peaks[L3] - math.ceil(rules.profile.l3_high * rules.budgets[L3]) + 1
                share = rules.profile.l3_oldest_share
            moved[tier] = self._relieve(transaction, tier, excess, rules, share)
            totals = transaction.totals(self.node)  # the next tier may have grown
        counts = MoveCounts(0, *(moved.get(tier, 0) for tier in (L2, L3, L4)))
        return RebalanceResult(counts, peaks, totals, rules)

    def _relieve(
        self, transaction: Transaction, tier: MemoryTier, excess: int, rules: TierRules, share: float = 0.0
    ) -> int:
        """Free `excess` tokens of a tier beside the window, and at least a share of it.

        Returns the number that left.
        """
        started = time.perf_counter()
        victims = self._victims(transaction, tier, excess, rules, share)
        count = self._send_down(transaction, victims, tier, "full", rules)
        if tier is L2:
            self._observer.took(Move.DEMOTION, time.perf_counter() - started)
        return count

    def _victims(
        self, transaction: Transaction, tier: MemoryTier, tokens: int, rules: TierRules, share: float = 0.0
    ) -> list[tuple[int, int]]:
        """Number and size of the records that leave a tier first, to free `tokens` and at least a share of all."""
        if tier is L2:
            residents = transaction.residents(self.node, L2)
            return [(one.record, one.tokens) for one in self._choose(transaction, residents, tokens, rules.profile)]
        if tier is L4:  # the least used leave, the oldest among those first
            used = choose_victims(transaction.residents(self.node, L4), tokens, Eviction.LEAST_USED)
            return [(one.record, one.tokens) for one in used]
        arrivals = transaction.sizes(self.node, FOCUS if tier is L1 else tier)
        return _oldest(arrivals, tokens, math.ceil(share * len(arrivals)))

    def _send_down(
        self,
        transaction: Transaction,
        victims: Sequence[tuple[int, int]],
        tier: MemoryTier,
        reason: str,
        rules: TierRules,
    ) -> int:
        """Move records one tier down, and replace each with a stand-in there. Returns the number that left.

        A record that cannot be read leaves without a stand-in. From the knowledge tier, records leave to the log
        alone.
        """
        records = [record for record, _ in victims]
        left = transaction.leave(records, FOCUS if tier is L1 else tier, self.node, reason)
        if tier is L2:
            loaded, _ = self._load(transaction, records)
            victims = [(record.seq, self._stand_in_tokens(record)) for record in loaded]
        if tier in (L2, L3):
            self._enter_stand_ins(transaction, victims, L3 if tier is L2 else L4, "demoted", rules)
        return left

    @step("tiers.demote")
    def demote_records(
        self, transaction: Transaction, records: Sequence[int], tier: MemoryTier, reason: str
    ) -> RebalanceResult:
        """Move the records that are in a tier to the next one down."""
        rules = self._rules_in(transaction)
        there = sorted(transaction.sizes(self.node, FOCUS if tier is L1 else tier, records).items())
        self._send_down(transaction, there, tier, reason, rules)
        return self._make_room(transaction, rules)

    @step("tiers.next_victims")
    def next_victims(self, transaction: Transaction, tier: MemoryTier, tokens: int) -> list[int]:
        """The records that would leave a tier first, until `tokens` are free."""
        return [record for record, _ in self._victims(transaction, tier, tokens, self._rules_in(transaction))]

    def _choose(
        self, transaction: Transaction, residents: list[Resident], excess: int, profile: Profile
    ) -> list[Resident]:
        if profile.eviction is not Eviction.WEIGHTED or profile.eviction_weights.relevance == 0:
            return choose_victims(residents, excess, profile.eviction, profile.eviction_weights)
        without = EVICTION_WEIGHTS["without_vectors"]
        leaving = choose_victims(residents, excess, profile.eviction, without)
        shortlist = [
            one.record for one in rank(residents, profile.eviction, without)[: max(_SHORTLIST, 4 * len(leaving))]
        ]
        relevance = self._relevance(transaction, shortlist)
        if not relevance:
            return leaving
        known = [
            one._replace(relevance=relevance[one.record]) if one.record in relevance else one for one in residents
        ]
        return choose_victims(known, excess, profile.eviction, profile.eviction_weights, candidates=shortlist)

    def _relevance(self, transaction: Transaction, records: Sequence[int]) -> dict[int, float]:
        """The closeness of records to the content of the window, from 0 to 1.

        Records without a vector are missing.
        """
        recent = transaction.vectors([seq for seq, _ in transaction.window(self.node)][:_RECENT])
        if not recent:
            return {}
        middle = np.mean([vector / (np.linalg.norm(vector) or 1.0) for vector in recent.values()], axis=0)
        length = float(np.linalg.norm(middle))
        if length == 0:
            return {}
        return {
            record: (1.0 + _cosine(vector, middle, length)) / 2.0
            for record, vector in transaction.vectors(records).items()
        }

    def _enter_stand_ins(
        self,
        transaction: Transaction,
        arrivals: Sequence[tuple[int, int]],
        tier: MemoryTier,
        reason: str,
        rules: TierRules,
    ) -> None:
        """Enter stand-ins into the first tier, from `tier` down, that is large enough for them."""
        rest = dict(arrivals)
        for target in (L3, L4):
            if target >= tier and rest:
                fitting = {record: size for record, size in rest.items() if size <= rules.largest[target]}
                rest = {record: size for record, size in rest.items() if record not in fitting}
                if fitting:
                    transaction.enter([*fitting], target, self.node, reason, [*fitting.values()])

    @step("tiers.notify_promoted")
    def notify_promoted(self, promoted: PromotedRecords, started: float) -> None:
        """Tell the observer of a committed promotion that began at `started` (`time.perf_counter`)."""
        if promoted.moved:
            self._observer.took(Move.PROMOTION, time.perf_counter() - started)
            self._observer.admitted(promoted.tokens)
            self.notify_rebalanced(promoted.room)

    def notify_compacted(self) -> None:
        """Tell the observer the totals after the commits of a compaction."""
        self._observer.changed({}, self.store.totals(self.node), self.rules())

    @step("tiers.notify_rebalanced")
    def notify_rebalanced(self, room: RebalanceResult) -> None:
        """Tell the observer of committed moves. Call it after the commit, because an observer may write."""
        self._observer.changed(room.peaks, room.totals, room.rules)


def _oldest(arrivals: Mapping[int, int], tokens: int, count: int) -> list[tuple[int, int]]:
    """The first arrivals, until they have at least `tokens` tokens and are at least `count` records."""
    chosen: list[tuple[int, int]] = []
    freed = 0
    for record, size in arrivals.items():
        if freed >= tokens and len(chosen) >= count:
            break
        chosen.append((record, size))
        freed += size
    return chosen


def _cosine(vector: np.ndarray, middle: np.ndarray, length: float) -> float:
    norm = float(np.linalg.norm(vector)) * length
    return float(np.dot(vector, middle)) / norm if norm else 0.0
