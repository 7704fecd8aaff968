"""The replay: a working tier of a scaled budget over a trace, by the real eviction, with helpers on and off.

Records enter when they are written and when they are used, as in the profile `lcr`, and leave down to 98 % of the
budget when it is exceeded. A worker checks the tier after a turn, at most once a second; if records must leave during
a write, that is a stall. Nothing here knows the future.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.traces.recording import Trace
from loom.settings import PROFILES, Eviction, EvictionWeights
from loom.storage.contract import Resident
from loom.tiers.eviction import choose_victims
from loom.tiers.preload import AccessPattern
from loom.tiers.tuning import AdaptiveTuner, SystemMetrics, TokenDemandPredictor, TuningResult, demote_ahead

__all__ = ["Helpers", "LargestRecent", "Outcome", "replay"]

LCR = PROFILES["lcr"]
WITHOUT_VECTORS = TuningResult(0.7, 0.3, 0.0)
WINDOW_SHARE = LCR.l1_token_budget / LCR.l2_token_budget
WAKES_EVERY_S = 1.0  # the worker checks after a turn, and at most this often
PRELOADED = 2  # records predicted at a time
LOOK_EVERY = 50  # uses between two checks of the tuner
HORIZON_S = 300.0  # the time ahead for which the worker makes room


class LargestRecent:
    """No forecast at all: room for the largest of the last fifty entries is always kept."""

    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=50)

    def observe(self, tokens: int, at: float) -> None:
        self._latest.append(tokens)

    def predict(self, horizon_s: float) -> float:
        return float(max(self._latest, default=0))


@dataclass(frozen=True, slots=True)
class Helpers:
    """The helpers that are on. `start` are the weights with which the eviction begins."""

    tuner: bool = False
    predictor: Callable[[], TokenDemandPredictor] | None = None
    preload: float | None = None
    """The probability from which a record is brought in ahead."""
    start: TuningResult = WITHOUT_VECTORS


@dataclass(slots=True)
class Outcome:
    """Counted from the moment at which the trace has written as much as the tier holds."""

    uses: int = 0
    hits: int = 0
    writes: int = 0
    stalls: int = 0
    tokens_in_stalls: int = 0
    moved_in: int = 0
    moved_out: int = 0
    preloaded: int = 0
    preloads_used: int = 0
    tuned: int = 0

    @property
    def hit_rate(self) -> float:
        return self.hits / max(1, self.uses)

    @property
    def moved(self) -> int:
        """Tokens that were brought in, other than those written, and tokens that left."""
        return self.moved_in + self.moved_out


class _Tier:
    """The working tier and the window of recent records before it."""

    def __init__(self, budget: int, weights: EvictionWeights) -> None:
        self.budget = budget
        self.weights = weights
        self.known: dict[int, Resident] = {}
        self.residents: dict[int, Resident] = {}
        self.used = 0
        self.turn = 0
        self._window: deque[tuple[int, int]] = deque()
        self._window_tokens = 0

    def write(self, record: int, tokens: int, at: float) -> None:
        self._window.append((record, tokens))
        self._window_tokens += tokens
        while self._window_tokens > max(WINDOW_SHARE * self.budget, tokens):
            self._window_tokens -= self._window.popleft()[1]
        # The relevance is given, and the same for all: unknown, other weights than those of `weights` would hold.
        self.known[record] = Resident(record, tokens, 0.5, self.turn, at, 0, at, None, 0.0)
        self.enter(record)

    def use(self, record: int, at: float) -> bool:
        """Use a record. Returns whether it was at hand."""
        one = self.known[record]
        self.known[record] = one._replace(uses=one.uses + 1, previous_at=one.last_at, last_at=at)
        hit = record in self.residents or any(record == number for number, _ in self._window)
        if record in self.residents:
            self.residents[record] = self.known[record]
        return hit

    def enter(self, record: int) -> int:
        """Bring a record in. Returns its tokens, or 0 if it was already present or is too large."""
        one = self.known[record]
        if record in self.residents or one.tokens > math.floor(LCR.l2_watermark.low * self.budget):
            return 0
        self.turn += 1
        self.residents[record] = self.known[record] = one._replace(entered=self.turn)
        self.used += one.tokens
        return one.tokens

    def free(self, tokens: int) -> int:
        """Let the lowest-ranked records leave. Returns their tokens."""
        freed = 0
        for victim in choose_victims(list(self.residents.values()), tokens, Eviction.WEIGHTED, self.weights):
            del self.residents[victim.record]
            freed += victim.tokens
        self.used -= freed
        return freed

    def make_room(self) -> int:
        """Make room, as every write does before it returns."""
        if self.used <= self.budget:
            return 0
        return self.free(self.used - math.floor(LCR.l2_watermark.low * self.budget))


def replay(trace: Trace, budget: int, helpers: Helpers) -> Outcome:
    """Run a trace through a tier of `budget` tokens."""
    start = helpers.start
    tier = _Tier(budget, start.weights)
    tuner = AdaptiveTuner(start) if helpers.tuner else None
    predictor = helpers.predictor() if helpers.predictor is not None else None
    successors = _successors(trace)
    written_tokens = written = 0
    woke_at = -math.inf
    # Only records that are already written can follow.
    pattern = AccessPattern(lambda record: [one for one in successors[record] if one < written])
    ahead: set[int] = set()
    outcome = Outcome()
    recent_hits: list[bool] = []
    for step in trace.steps:
        counts = written_tokens > budget
        entered = 0
        for record in step.used:
            hit = tier.use(record, step.at)
            recent_hits.append(hit)
            entered += tier.enter(record)
            if helpers.preload is not None:
                pattern.record_use(record, step.session)
            if counts:
                outcome.uses += 1
                outcome.hits += hit
                outcome.preloads_used += record in ahead
            ahead.discard(record)
        moved_out = tier.make_room()
        if step.tokens:
            tier.write(written, step.tokens, step.at)
            written, written_tokens = written + 1, written_tokens + step.tokens
            in_write = tier.make_room()
            moved_out += in_write
            if counts:
                outcome.writes += 1
                outcome.stalls += in_write > 0
                outcome.tokens_in_stalls += in_write
        if predictor is not None:
            predictor.observe(entered + step.tokens, step.at)
        if step.at - woke_at >= WAKES_EVERY_S:
            woke_at = step.at
            if helpers.preload is not None:
                for foreseen in pattern.predict(PRELOADED):
                    if foreseen.probability >= helpers.preload and (came := tier.enter(foreseen.record)):
                        ahead.add(foreseen.record)
                        entered += came
                        outcome.preloaded += counts
                moved_out += tier.make_room()
            if predictor is not None:
                expected = predictor.predict(HORIZON_S)
                moved_out += tier.free(demote_ahead(tier.used, budget, LCR.l2_watermark.low, expected))
        if tuner is not None and len(recent_hits) >= LOOK_EVERY:
            if counts:
                tuned = tuner.tune_parameters(SystemMetrics(sum(recent_hits) / len(recent_hits)))
                outcome.tuned += tuned.weights != tier.weights
                tier.weights = tuned.weights
            recent_hits.clear()
        if counts:
            outcome.moved_in += entered
            outcome.moved_out += moved_out
    return outcome


def _successors(trace: Trace) -> dict[int, Sequence[int]]:
    """For each record, the records that were written after it in its session, nearest first."""
    sessions: defaultdict[str, list[int]] = defaultdict(list)
    number = 0
    for step in trace.steps:
        if step.tokens:
            sessions[step.session].append(number)
            number += 1
    return {
        record: tuple(members[place + 1 : place + 4])
        for members in sessions.values()
        for place, record in enumerate(members)
    }
