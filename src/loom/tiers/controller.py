"""The controller of a node's tiers: it feeds the monitor, and may tune, forecast and preload.

Monitoring is always on: the latencies of moves and searches, and the usage of the tiers. Tuning, forecasting and
preloading are the settings `tune`, `predict_demand` and `preload`; they run in the background. docs/tiers.md has
their measured benefit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from loom.errors import InvalidInput, OverBudget
from loom.forks import ForkedLock
from loom.settings import Profile
from loom.storage.contract import Publish, Usage
from loom.tiers.jobs import Migration, Pressure
from loom.tiers.migration import Move, Observer, TierRules, Tiers
from loom.tiers.monitor import Measure, Monitor
from loom.tiers.preload import AccessPattern
from loom.tiers.quotas import QuotaWatch
from loom.tiers.tuning import AdaptiveTuner, HoltPredictor, SystemMetrics, TuningResult, demote_ahead
from loom.types import MemoryTier

if TYPE_CHECKING:
    from loom.events import EventBus

__all__ = ["TierController"]

log = logging.getLogger("loom.tiers")

L1, L2, L3 = MemoryTier.L1, MemoryTier.L2, MemoryTier.L3

_MEASURES = {Move.PROMOTION: Measure.PROMOTION_LATENCY_MS, Move.DEMOTION: Measure.DEMOTION_LATENCY_MS}

# The tuner considers a hit rate once it rests on this many uses.
_USES_A_LOOK = 100
# Chosen on benchmarks/traces: the horizon of a demand forecast, the number of records that one preload brings back,
# and the least probability of their use.
_AHEAD_S = 300.0
_PRELOADED, _LIKELY = 2, 0.15
_FOLLOWING = 3
_STATE = "loom.tuning"
# The compression of the archive is judged from this share of its budget on, or from this many tokens of originals. In
# a smaller archive, turns that belong to no block yet are a large part.
_JUDGED_FROM = 0.8
_JUDGED_ORIGINALS = 16_000
# The change of the archive, as a share of its budget, after which its compression is judged again.
_CHANGED = 0.05


class TierController(Observer):
    """Monitors the tiers of one node, and tunes, forecasts and preloads if the settings enable it.

    Nothing moves before `attach` is called.
    """

    _tiers: Tiers
    _migration: Migration

    def __init__(self, node: str, bus: EventBus | None = None) -> None:
        self.monitor = Monitor(node, None if bus is None else bus.publish_nowait)
        self._node = node
        self._quotas = None if bus is None else QuotaWatch(node, bus)
        self._lock = ForkedLock()
        self._tuner: AdaptiveTuner | None = None
        self._predictor: HoltPredictor | None = None
        self._pattern: AccessPattern | None = None
        self._looked_at = (0, 0)
        self._lookups: tuple[int, int] | None = None  # hits and misses of the working tier, once read
        self._judged: Usage | None = None  # the archive as it was when its compression was last judged
        self._foresee = False

    def attach(self, tiers: Tiers, migration: Migration) -> None:
        """Watch these tiers, and tune, predict and preload according to their settings."""
        self._tiers, self._migration = tiers, migration
        settings, store = tiers.settings, tiers.store
        if settings.tune:
            self._tuner = self._resumed_tuner(settings.rules)
            self._apply(self._tuner.parameters)
            working = store.usage(self._node).get(L2, Usage())
            self._looked_at = (working.hits, working.misses)
        if settings.predict_demand:
            self._predictor = HoltPredictor()
        if settings.preload:
            self._pattern = AccessPattern(lambda record: store.following(record, _FOLLOWING))

    def _resumed_tuner(self, profile: Profile) -> AdaptiveTuner:
        """The tuner with its stored state. Unreadable state is discarded and tuning restarts."""
        weights = profile.eviction_weights
        start = TuningResult(weights.recency, weights.frequency, weights.relevance, profile.promotion_threshold)
        known = self._tiers.store.entry(_STATE, owner=self._node)
        try:
            return AdaptiveTuner(start, None if known is None else known.content)
        except InvalidInput as error:
            log.warning("tuning restarts: %s", error)
            return AdaptiveTuner(start)

    @property
    def is_active(self) -> bool:
        """Whether there is anything to do in the background."""
        return any(one is not None for one in (self._tuner, self._predictor, self._pattern))

    # -- watching --------------------------------------------------------------------------------------

    def changed(self, peaks: Mapping[str, int], totals: Mapping[str, Usage], rules: TierRules) -> None:
        """Check quotas and compression after a move. See `loom.tiers.migration.Observer`."""
        if self._quotas is not None:
            self._quotas(peaks, totals, rules)
        self._judge_archive(totals.get(L3, Usage()), rules.budgets[L3])

    def looked_up(self, hits: int, misses: int) -> None:
        """Record the hits and misses of some uses. The store has counted them already."""
        with self._lock:
            if self._lookups is None:
                working = self._tiers.store.usage(self._node).get(L2, Usage())
                self._lookups = (working.hits, working.misses)
            else:
                self._lookups = (self._lookups[0] + hits, self._lookups[1] + misses)
            found, missed = self._lookups
        self._judge_lookups(found, missed)

    def prompted(self, tokens: int, budget: int) -> None:
        """Record the size and the budget of a prompt that was built."""
        self.monitor.gauge(Measure.FOCUS_UTILISATION, tokens / budget)

    def refused(self, error: OverBudget) -> None:
        """Raise the alarm for a prompt whose fixed parts exceed its budget."""
        if self._quotas is not None and error.tokens is not None and error.budget is not None:
            self._quotas.refused(error.tokens, error.budget)

    def took(self, move: Move, seconds: float) -> None:
        """Record the duration of a move."""
        self.monitor.observe(_MEASURES[move], seconds * 1e3)

    def searched(self, seconds: float) -> None:
        """Record the duration of a search."""
        self.monitor.observe(Measure.RAG_LATENCY_MS, seconds * 1e3)

    def admitted(self, tokens: int) -> None:
        """Record the tokens that entered the working tier."""
        if self._predictor is not None:
            with self._lock:
                self._predictor.observe(tokens, self._tiers.store.clock().timestamp())

    def used(self, record: int, session: str | None) -> None:
        """Record the use of a record."""
        if self._pattern is not None:
            with self._lock:
                self._pattern.record_use(record, session)
                self._foresee = True
            self._tiers.store.wake_worker()

    def refreshed_monitor(self) -> Monitor:
        """The monitor, with the shares that other processes change read from the store."""
        usage = self._tiers.store.usage(self._node)
        working = usage.get(L2, Usage())
        with self._lock:
            self._lookups = (working.hits, working.misses)
        self._judge_lookups(working.hits, working.misses)
        self._judge_archive(usage.get(L3, Usage()), self._tiers.rules().budgets[L3], always=True)
        return self.monitor

    def _judge_lookups(self, hits: int, misses: int) -> None:
        if hits + misses:
            self.monitor.gauge(Measure.WORKING_HIT_RATE, hits / (hits + misses), hits + misses)

    def _judge_archive(self, archive: Usage, budget: int, *, always: bool = False) -> None:
        """Gauge the compression of the archive if the archive is large enough.

        Counting the originals reads every resident, so a writer does it only after the tier has changed by a share
        of its budget.
        """
        known = self._judged
        if not archive.items:
            return
        if not always and known is not None and abs(archive.tokens - known.tokens) < _CHANGED * budget:
            return
        originals = self._tiers.store.original_tokens(self._node, L3)
        if archive.tokens >= _JUDGED_FROM * budget or originals >= _JUDGED_ORIGINALS:
            self.monitor.gauge(Measure.ARCHIVE_COMPRESSION, 1 - archive.tokens / max(1, originals), archive.items)
        self._judged = archive

    # -- in the background -----------------------------------------------------------------------------

    def work(self, publish: Publish, thorough: bool) -> bool:
        """Tune, make room ahead, and preload; each only if it is enabled. See `loom.storage.contract.Chore`."""
        self._tune(publish)
        return self._make_room_ahead() | self._preload()

    def _tune(self, publish: Publish) -> None:
        if self._tuner is None:
            return
        usage = self._tiers.store.usage(self._node)
        working, archive = usage.get(L2, Usage()), usage.get(L3, Usage())
        hits_then, misses_then = self._looked_at
        hits, misses = working.hits - hits_then, working.misses - misses_then
        if hits + misses < _USES_A_LOOK:
            return
        self._looked_at = (working.hits, working.misses)
        latencies = {one.measure: one.value for one in self.monitor.readings()}
        metrics = SystemMetrics(
            hits / (hits + misses),
            latencies[Measure.PROMOTION_LATENCY_MS],
            archive.tokens / self._tiers.rules().budgets[L3],
        )
        before = self._tuner.parameters
        after = self._tuner.tune_parameters(metrics)
        with publish() as transaction:
            transaction.put_entry(_STATE, self._tuner.state(), owner=self._node, writer=self._node)
        if after != before:
            self._apply(after)

    def _apply(self, parameters: TuningResult) -> None:
        self._tiers.tune(parameters.weights, parameters.promotion_threshold)
        self._tiers.store.compress_at(parameters.compression_level)

    def _make_room_ahead(self) -> bool:
        """Make room in the working tier for the expected tokens, so that their writer does not wait."""
        if self._predictor is None:
            return False
        with self._lock:
            self._predictor.observe(0, self._tiers.store.clock().timestamp())
            expected = self._predictor.predict(_AHEAD_S)
        rules = self._tiers.rules()
        used = self._tiers.store.usage(self._node).get(L2, Usage()).tokens
        mark = rules.profile.l2_watermark
        tokens = demote_ahead(used, rules.budgets[L2], mark.low, expected, mark.high)
        if not tokens or any(job.source_tier is L2 for job in self._migration.jobs()):
            return False
        return self._migration.trigger_demotion(L2, Pressure.SOFT, tokens=tokens) is not None

    def _preload(self) -> bool:
        if self._pattern is None or not self._foresee:
            return False
        with self._lock:
            self._foresee = False
            foreseen = self._pattern.predict(_PRELOADED)
        likely: dict[int, float] = {one.record: one.probability for one in foreseen if one.probability >= _LIKELY}
        return bool(likely) and self._migration.preload(likely) is not None
