"""Quotas: the limits of a tier, its usage, and the alarms when it fills.

The hard limit is the budget, which `loom.tiers.migration` enforces. The soft limit and the warning only raise alarms:
one when a tier rises past a mark, and the next one only after it has fallen clearly below it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from loom.checks import checked_whole
from loom.errors import InvalidInput
from loom.forks import ForkedLock
from loom.knowledge.stand_ins import MOST_TOKENS
from loom.protocol import Task
from loom.storage.contract import Usage
from loom.tiers.migration import TierRules
from loom.types import MemoryTier

if TYPE_CHECKING:
    from loom.events import EventBus

__all__ = [
    "ArchiveCounters",
    "FocusCounters",
    "FocusReserve",
    "LayerCounters",
    "LayerQuota",
    "QuotaAlarm",
    "QuotaCheck",
    "QuotaLevel",
    "QuotaWatch",
    "RagCounters",
    "WorkingCounters",
    "WorkingSegments",
    "check_quota",
    "quotas_of",
]

log = logging.getLogger("loom.tiers")

ALARM_ACTION = "memory.quota"
"""The prefix of the actions of alarm events; memories that listen to the bus do not keep them."""

# A tier must fall below this share of a mark before the mark can be passed again.
_REARM = 0.9


@dataclass(frozen=True, slots=True)
class LayerQuota:
    """The limits of one tier, in tokens. `warning_threshold` is a share of the hard limit."""

    hard_limit: int
    soft_limit: int
    warning_threshold: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.soft_limit <= self.hard_limit:
            raise InvalidInput(
                f"a quota needs 0 < soft <= hard, not soft {self.soft_limit} and hard {self.hard_limit}"
            )
        if not 0.0 < self.warning_threshold <= 1.0:
            raise InvalidInput(f"a warning threshold must be a share from 0 to 1, not {self.warning_threshold}")


def quotas_of(rules: TierRules) -> Mapping[MemoryTier, LayerQuota]:
    """The quotas of a node's tiers. Records begin to leave at the soft limit; it is at most 90 % of the budget."""
    begins = {MemoryTier.L2: rules.profile.l2_watermark.high, MemoryTier.L3: rules.profile.l3_high}
    return {
        tier: LayerQuota(budget, max(1, int(budget * min(0.9, begins.get(tier, 0.9)))))
        for tier, budget in ((tier, rules.budgets[tier]) for tier in MemoryTier)
    }


class QuotaLevel(StrEnum):
    """The fill level of a tier."""

    OK = "ok"
    WARNING = "warning"
    SOFT = "soft"
    HARD = "hard"


_LEVELS = tuple(QuotaLevel)


@dataclass(frozen=True, slots=True)
class QuotaCheck:
    """Whether a tier accepts more tokens, and what happens then.

    `action` is `accept`, `evict` if other records leave first, or `reject` if even an empty tier is too small.
    """

    accepted: bool
    action: Literal["accept", "evict", "reject"]
    level: QuotaLevel
    room: int
    reason: str


def _marks(quota: LayerQuota) -> dict[QuotaLevel, float]:
    """The tokens from which on a tier is at each level."""
    warning = quota.warning_threshold * quota.hard_limit
    return dict(zip(_LEVELS, (0, warning, quota.soft_limit, quota.hard_limit), strict=True))


def check_quota(tier: MemoryTier, held: int, incoming: int, rules: TierRules) -> QuotaCheck:
    """The answer to a request for `incoming` tokens of a tier that holds `held`.

    The archive and the knowledge tier take a stand-in for a long record, and never refuse. A stand-in is counted with
    its largest size, or as the largest item of a smaller tier.
    """
    checked_whole(incoming, "the number of tokens")
    quota = quotas_of(rules)[tier]
    room = max(0, quota.hard_limit - held)
    name, largest = tier.upper(), rules.largest[tier]
    if tier in (MemoryTier.L3, MemoryTier.L4):  # a stand-in takes the place of a long record
        incoming = min(incoming, MOST_TOKENS, largest)
    reached = min(held + incoming, quota.hard_limit)
    level = max((level for level, mark in _marks(quota).items() if reached >= mark), key=_LEVELS.index)
    if incoming > largest:
        reason = f"{incoming:,} tokens are more than {name} takes ({largest:,})"
        return QuotaCheck(False, "reject", level, room, reason)
    if incoming > room or rules.is_full(tier, held + incoming):
        return QuotaCheck(
            True, "evict", level, room, f"{name} holds {held:,} tokens; others leave for {incoming:,} more"
        )
    return QuotaCheck(True, "accept", level, room, f"{name} has room for {room:,} tokens")


# --- counters ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FocusReserve:
    """The tokens that a prompt keeps free beside the dialogue."""

    system: int = 1024
    functions: int = 1024


@dataclass(frozen=True, slots=True)
class FocusCounters:
    """The recent tier, from which a prompt takes its dialogue."""

    current: int
    quota: LayerQuota
    reserved: FocusReserve = field(default_factory=FocusReserve)


@dataclass(frozen=True, slots=True)
class WorkingSegments:
    """Tokens of the hot, warm and cold part of the working tier."""

    hot: int
    warm: int
    cold: int


@dataclass(frozen=True, slots=True)
class WorkingCounters:
    current: int
    quota: LayerQuota
    segments: WorkingSegments
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float | None:
        """The share of uses whose record was in the working or the recent tier; None before the first use."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


@dataclass(frozen=True, slots=True)
class ArchiveCounters:
    """`current` counts the tokens of the originals, `compressed` those of their summaries and stand-ins."""

    current: int
    compressed: int
    quota: LayerQuota


@dataclass(frozen=True, slots=True)
class RagCounters:
    """`current` counts resident tokens, `indexed` the vectors that can be searched."""

    current: int
    quota: LayerQuota
    indexed: int


@dataclass(frozen=True, slots=True)
class LayerCounters:
    """The content of a node's tiers, at one moment."""

    focus: FocusCounters
    working: WorkingCounters
    archive: ArchiveCounters
    rag: RagCounters


# --- alarms --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuotaAlarm:
    """A tier rose past a mark, or the fixed parts of a prompt exceed its budget."""

    node: str
    tier: MemoryTier | Literal["prompt"]
    level: QuotaLevel
    tokens: int
    quota: LayerQuota

    def to_task(self) -> Task:
        """As an event: `memory.quota.warning`, `memory.quota.soft` or `memory.quota.hard`."""
        return Task(
            action=f"{ALARM_ACTION}.{self.level}",
            source_agent=self.node,
            parameters={
                "tier": str(self.tier),
                "level": str(self.level),
                "tokens": self.tokens,
                "hard_limit": self.quota.hard_limit,
                "soft_limit": self.quota.soft_limit,
            },
        )


class QuotaWatch:
    """Raises an alarm when a tier rises past a mark. The window is not watched, because it is always nearly full.

    The marks are compared with the peak of a tier before records left it. The soft limit therefore raises an alarm,
    although no call leaves a tier above it.
    """

    def __init__(self, node: str, bus: EventBus) -> None:
        self._node = node
        self._bus = bus
        self._raised: set[tuple[MemoryTier, QuotaLevel]] = set()
        self._lock = ForkedLock()

    def __call__(self, peaks: Mapping[str, int], totals: Mapping[str, Usage], rules: TierRules) -> None:
        for tier, quota in quotas_of(rules).items():
            if tier is not MemoryTier.L1:
                alarm = self._look(tier, max(totals.get(tier, Usage()).tokens, peaks.get(tier, 0)), quota)
                if alarm is not None:
                    self._raise(alarm)

    def refused(self, tokens: int, budget: int) -> None:
        """Raise the alarm for a refused prompt, whose fixed parts exceed its budget. Every refusal raises one."""
        self._raise(QuotaAlarm(self._node, "prompt", QuotaLevel.HARD, tokens, LayerQuota(budget, budget)))

    def _raise(self, alarm: QuotaAlarm) -> None:
        limit = alarm.quota.hard_limit
        log.info("%s of node %s is at %s of %s tokens (%s)", alarm.tier, self._node, alarm.tokens, limit, alarm.level)
        self._bus.publish_nowait(alarm.to_task())

    def _look(self, tier: MemoryTier, peak: int, quota: LayerQuota) -> QuotaAlarm | None:
        """The alarm for the highest mark newly passed, if any.

        Marks that the tier is clearly below are armed again.
        """
        marks = {level: mark for level, mark in _marks(quota).items() if level is not QuotaLevel.OK}
        with self._lock:
            passed = [level for level, mark in marks.items() if peak >= mark and (tier, level) not in self._raised]
            self._raised |= {(tier, level) for level in passed}
            self._raised -= {(tier, level) for level, mark in marks.items() if peak < _REARM * mark}
        return QuotaAlarm(self._node, tier, passed[-1], peak, quota) if passed else None
