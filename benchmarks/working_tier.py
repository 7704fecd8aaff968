"""MEM-002: the hit rate of the working tier, compared with LRU, LFU, LRU-2 and the optimum.

    python -m benchmarks.working_tier
    python -m benchmarks.working_tier --store --seed 1 --accesses 10000

A simulator with a token budget calls the real `loom.tiers.eviction`; `--store` runs the same workloads through
a real store with the profile `lcr`. `--save` saves the hit rates of each under its own name, and of a real store
apart where locality alone was run. A use is a hit if the record is in the working tier or in the window of recent
records. The texts are made of common words, and their tokens are counted exactly.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import sys
import tempfile
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np

import loom
from benchmarks import figures
from loom.settings import PROFILES, Eviction, Profile
from loom.storage.contract import Resident
from loom.text.tokens import TiktokenCounter
from loom.tiers.eviction import choose_victims

__all__ = ["WORKLOADS", "literal", "main", "session", "simulate"]

LCR = PROFILES["lcr"]
WINDOW_MESSAGES = 700
HOT_SHARE, HOT_USES = 0.2, 0.8
SCANNED = 5_000
WARM_UP = 2_000
TARGET, SHARE_OF_OPTIMUM = 0.90, 0.95
CLEARLY = 0.05  # above LRU, with a scan that is read

# Each is one token after a space, so that a message has about as many tokens as words.
_WORDS = ("tea", "garden", "window", "river", "table", "music", "paper", "winter", "market", "bridge", "letter")


# --- workloads ---------------------------------------------------------------------------------------------


class Step(Enum):
    """A write or a use of a message. The uses of a scan do not count."""

    WRITE = "write"
    USE = "use"
    SCAN = "scan"


@dataclass(slots=True)
class Workload:
    """Steps over numbered messages. A use counts from step `counted_from` on."""

    name: str
    texts: list[str]
    tokens: list[int]
    steps: list[tuple[Step, int]] = field(default_factory=list)
    counted_from: int = 0
    bound: float = 1.0
    scan: str = ""


def _messages(random: np.random.Generator, count: int) -> tuple[list[str], list[int]]:
    counter = TiktokenCounter("cl100k_base")
    lengths = random.integers(147, 248, count)  # and the number in front: 200 tokens on average
    words = random.integers(0, len(_WORDS), int(lengths.sum())).tolist()
    texts: list[str] = []
    begin = 0
    for number, length in enumerate(lengths.tolist()):
        texts.append(f"{number}: " + " ".join(_WORDS[word] for word in words[begin : begin + length]))
        begin += length
    return texts, [counter.count(text) for text in texts]


def literal(seed: int, messages: int = 10_000, accesses: int = 1_000) -> Workload:
    """The test as the design document words it: the hot fifth alone is three times the tier."""
    random = np.random.default_rng(seed)
    work = Workload("literal", *_messages(random, messages))
    work.steps = [(Step.WRITE, number) for number in range(messages)]
    work.counted_from = messages
    order = random.permutation(messages)
    hot = round(HOT_SHARE * messages)
    for _ in range(accesses):
        at = random.integers(0, hot) if random.random() < HOT_USES else random.integers(hot, messages)
        work.steps.append((Step.USE, int(order[at])))
    room = LCR.l2_token_budget / (sum(work.tokens) / messages)
    work.bound = HOT_USES * room / hot
    return work


def session(seed: int, accesses: int, scan: str = "") -> Workload:
    """A session that grows by a message per access, 80-20 over its most recent messages.

    The hot messages are drawn as they arrive. With `scan` "read", old messages from before the session are each used
    once, mixed into the counted part; with "write", as many messages that will never be used arrive there.
    """
    random = np.random.default_rng(seed)
    length = WARM_UP + accesses
    scanned = SCANNED if scan else 0
    name = {"": "locality", "read": "locality, scan read", "write": "locality, scan written"}[scan]
    work = Workload(name, *_messages(random, scanned + length), scan=scan)
    if scan == "read":
        work.steps = [(Step.WRITE, number) for number in range(scanned)]
    mixed_in = np.bincount(random.integers(WARM_UP, length, scanned), minlength=length).tolist()
    step = Step.SCAN if scan == "read" else Step.WRITE
    # Written messages arrive in order; old ones are used in any order, which is harder.
    order = iter(random.permutation(scanned).tolist() if scan == "read" else range(scanned))
    kinds: dict[bool, list[int]] = {True: [], False: []}
    for number in range(scanned, scanned + length):
        if number - scanned == WARM_UP:
            work.counted_from = len(work.steps)
        work.steps.append((Step.WRITE, number))
        kinds[bool(random.random() < HOT_SHARE)].append(number)
        recent = {hot: numbers[bisect_right(numbers, number - WINDOW_MESSAGES) :] for hot, numbers in kinds.items()}
        hot = bool(random.random() < HOT_USES)
        among = recent[hot] or recent[not hot]
        work.steps.append((Step.USE, among[int(random.integers(len(among)))]))
        for _ in range(mixed_in[number - scanned]):
            work.steps.append((step, next(order)))
    return work


WORKLOADS: dict[str, Callable[[int, int], Workload]] = {
    "literal": lambda seed, _: literal(seed),
    "locality": lambda seed, accesses: session(seed, accesses),
    "scan read": lambda seed, accesses: session(seed, accesses, "read"),
    "scan written": lambda seed, accesses: session(seed, accesses, "write"),
}


# --- the simulator -----------------------------------------------------------------------------------------

Policy = Callable[[Sequence[Resident], int], Iterable[Resident]]
"""Chooses the residents that leave, given all residents and the tokens to free."""


class Outcome(NamedTuple):
    """Hits among the counted uses, and among all of them, scan and warm-up included."""

    hits: int
    counted: int
    all_hits: int
    uses: int
    evictions: int = 0

    @property
    def rate(self) -> float:
        return self.hits / max(1, self.counted)

    @property
    def rate_of_all(self) -> float:
        return self.all_hits / max(1, self.uses)


class Window:
    """The window of recent records: the newest messages that fit a budget."""

    def __init__(self, tokens: Sequence[int], budget: int = LCR.l1_token_budget) -> None:
        self._tokens = tokens
        self._budget = budget
        self._newest: list[int] = []
        self._total = 0

    def __contains__(self, message: int) -> bool:
        return message in self._newest

    def write(self, message: int) -> None:
        self._newest.append(message)
        self._total += self._tokens[message]
        while self._total > self._budget:
            self._total -= self._tokens[self._newest.pop(0)]


def simulate(work: Workload, policy: Policy, low: float = 1.0, budget: int = LCR.l2_token_budget) -> Outcome:
    """Run a workload through a tier that frees down to `low` of its budget whenever it is above it.

    Records enter when they are written and when they are used. Uses are never forgotten. As in a store, a record's
    number is its place in the order of writing.
    """
    window = Window(work.tokens)
    tier: dict[int, Resident] = {}
    known: dict[int, Resident] = {}
    messages: dict[int, int] = {}
    used = hits = counted = all_hits = uses = evictions = 0
    for clock, (step, message) in enumerate(work.steps):
        if step is Step.WRITE:
            tokens = work.tokens[message]
            known[message] = Resident(clock, tokens, 0.5, clock, float(clock), 0, float(clock), None)
            messages[clock] = message
            window.write(message)
        else:
            hit = message in tier or message in window
            uses += 1
            all_hits += hit
            if step is Step.USE and clock >= work.counted_from:
                counted += 1
                hits += hit
            before = known[message]
            known[message] = before._replace(uses=before.uses + 1, previous_at=before.last_at, last_at=float(clock))
        if message not in tier:
            known[message] = known[message]._replace(entered=clock)
            used += work.tokens[message]
        tier[message] = known[message]
        if used > budget:
            for victim in policy(list(tier.values()), used - int(low * budget)):
                del tier[messages[victim.record]]
                used -= victim.tokens
                evictions += 1
        if used > budget:
            raise RuntimeError(f"the tier holds {used} tokens of {budget}")
    return Outcome(hits, counted, all_hits, uses, evictions)


def optimum(work: Workload, budget: int = LCR.l2_token_budget) -> Outcome:
    """Belady: the message with the latest next use leaves first, and a message that is never used again does not
    enter.

    It knows the future. A use within the window of recent records needs no place in the tier.
    """
    coming: defaultdict[int, list[int]] = defaultdict(list)
    window = Window(work.tokens)
    recent: set[int] = set()  # the clocks of the uses that the window serves
    for clock, (step, message) in enumerate(work.steps):
        if step is Step.WRITE:
            window.write(message)
        elif message in window:
            recent.add(clock)
        elif step is Step.USE:
            coming[message].append(clock)
    for clocks in coming.values():
        clocks.reverse()
    tier: set[int] = set()
    latest: list[tuple[int, int]] = []
    used = hits = counted = all_hits = uses = 0
    for clock, (step, message) in enumerate(work.steps):
        if step is not Step.WRITE:
            hit = message in tier or clock in recent
            uses += 1
            all_hits += hit
            if step is Step.USE and clock >= work.counted_from:
                counted += 1
                hits += hit
        clocks = coming[message]
        if clocks and clocks[-1] == clock:
            clocks.pop()
        if clocks and message not in tier:
            tier.add(message)
            used += work.tokens[message]
        elif not clocks and message in tier:
            tier.remove(message)
            used -= work.tokens[message]
        if clocks:
            heapq.heappush(latest, (-clocks[-1], message))
        while used > budget:
            when, other = heapq.heappop(latest)
            if other in tier and coming[other][-1] == -when:
                tier.remove(other)
                used -= work.tokens[other]
    return Outcome(hits, counted, all_hits, uses)


def by(worth: Callable[[Resident], tuple[float, ...]]) -> Policy:
    """The lowest value first, one by one, as in the textbook policies."""

    def leave(residents: Sequence[Resident], excess: int) -> Iterator[Resident]:
        rest = list(residents)
        while excess > 0:
            victim = min(rest, key=worth)
            rest.remove(victim)
            excess -= victim.tokens
            yield victim

    return leave


LRU = by(lambda one: (one.last_at,))
LFU = by(lambda one: (one.uses, one.last_at))
LRU_2 = by(lambda one: (-1.0 if one.previous_at is None else one.previous_at, one.last_at))


def ours(profile: Profile = LCR) -> Policy:
    """The eviction of a profile."""

    def leave(residents: Sequence[Resident], excess: int) -> list[Resident]:
        return choose_victims(residents, excess, Eviction(profile.eviction), profile.eviction_weights)

    return leave


# --- the store ---------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """The hits in a real store. `stated` is the store's own rate over all uses."""

    outcome: Outcome
    stated: float
    largest: int
    seconds: float


def through_the_store(work: Workload, path: Path | None) -> Stored:
    """The same steps by `remember` and `get`. Whether a use is a hit is looked up before it.

    Facts and summaries are not derived: they enter no working tier, and take ten times the time of the moves.
    """
    hits = counted = all_hits = uses = largest = 0
    began = time.perf_counter()
    with loom.open(path, profile="lcr", embedder="none", derive=False) as memory:
        node, store = memory.settings.node_id, memory.store
        seqs: dict[int, int] = {}
        for clock, (step, message) in enumerate(work.steps):
            name = f"message-{message}"
            if step is Step.WRITE:
                memory.remember(work.texts[message], id=name)
                continue
            if message not in seqs:
                found = store.get(name)
                if found is None:
                    raise RuntimeError(f"{name} was written and cannot be got")
                seqs[message] = found.seq
            seq = seqs[message]
            hit = store.resides(seq, "l2", node) or any(seq == number for number, _ in store.window(node))
            uses += 1
            all_hits += hit
            if step is Step.USE and clock >= work.counted_from:
                counted += 1
                hits += hit
            memory.get(name)
            if uses % 100 == 0:
                largest = max(largest, store.usage(node)["l2"].tokens)
        memory.flush()
        stated = memory.get_stats()["l2_hit_rate"]
    return Stored(Outcome(hits, counted, all_hits, uses), stated, largest, time.perf_counter() - began)


# --- the report --------------------------------------------------------------------------------------------


def report(work: Workload, low: float, in_store: bool, kept: dict[str, list[float]]) -> bool:
    """Print a workload's rows and keep their hit rates. Returns whether it reached its targets."""
    best = optimum(work)
    began = time.process_time()
    loom_ = simulate(work, ours(), low)
    cpu_ms = (time.process_time() - began) * 1e3
    others = {"LRU": simulate(work, LRU), "LFU": simulate(work, LFU), "LRU-2, classic": simulate(work, LRU_2)}
    print(f"\n{work.name}: {len(work.texts):,} messages, {sum(work.tokens):,} tokens, {best.counted:,} uses counted")
    if work.bound < 1.0:
        print(
            f"  without knowing the future at most {work.bound:.1%}: the share of the hot fifth that fits, times 80 %"
        )
    rows: list[tuple[str, Outcome]] = [("optimum (Belady)", best), (f"loom, {LCR.name}", loom_), *others.items()]
    stored: Stored | None = None
    if in_store:
        with tempfile.TemporaryDirectory() as folder:
            stored = through_the_store(work, Path(folder) / "bench.loom")
        rows.insert(2, (f"loom, {LCR.name}, real store", stored.outcome))
    print(f"  {'policy':<26}{'hit rate':>9}{'of optimum':>12}{'all uses':>10}{'evicted':>9}")
    for name, outcome in rows:
        kept.setdefault(name, []).append(outcome.rate)
        share = outcome.rate / best.rate
        print(
            f"  {name:<26}{outcome.rate:>9.1%}{share:>12.1%}{outcome.rate_of_all:>10.1%}"
            + (f"{outcome.evictions:>9,}" if outcome.evictions else f"{'':>9}")
        )
    print(f"  simulated with eviction down to {low:.0%}: {cpu_ms / len(work.steps) * 1e3:.0f} us CPU a step")
    if stored is not None:
        print(
            f"  store: l2_hit_rate {stored.stated:.1%} of all uses, at most {stored.largest:,} of "
            f"{LCR.l2_token_budget:,} tokens, {stored.seconds / len(work.steps) * 1e3:.2f} ms a step"
        )
    if work.bound < 1.0:
        return True
    rates = [loom_.rate] if stored is None else [loom_.rate, stored.outcome.rate]
    rate, others_best = min(rates), max(others["LRU"].rate, others["LFU"].rate)
    goals = {f"above {TARGET:.0%}": rate > TARGET, "above LRU and LFU": rate > others_best}
    if work.scan == "write":  # nothing distinguishes a message that will never be used from one that will
        del goals[f"above {TARGET:.0%}"]
    elif work.scan == "read":
        goals[f"{CLEARLY * 100:.0f} points above LRU"] = rate > others["LRU"].rate + CLEARLY
    else:
        goals[f"{SHARE_OF_OPTIMUM:.0%} of the optimum"] = rate >= SHARE_OF_OPTIMUM * best.rate
    print("  " + ", ".join(f"{goal}: {'yes' if reached else 'NO'}" for goal, reached in goals.items()))
    return all(goals.values())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="working_tier", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="one run for each (default 1)")
    parser.add_argument("--accesses", type=int, default=4_000, help="counted accesses of a session (default 4000)")
    parser.add_argument("--low", type=float, default=LCR.l2_watermark.low, help="evict down to this share")
    parser.add_argument("--store", action="store_true", help="run the workloads through a real store as well")
    parser.add_argument("--only", choices=list(WORKLOADS), nargs="+", default=list(WORKLOADS), help="these workloads")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    chosen = parser.parse_args(arguments)
    reached = True
    rates: dict[str, dict[str, list[float]]] = {name: {} for name in chosen.only}
    for seed in chosen.seed:
        print(f"\nseed {seed}", end="")
        for name in chosen.only:
            work = WORKLOADS[name](seed, chosen.accesses)
            reached = report(work, chosen.low, chosen.store, rates[name]) and reached
    if chosen.save:
        found = {
            name: {policy: {"mean": statistics.mean(values), "worst": min(values)} for policy, values in of.items()}
            for name, of in rates.items()
        }
        one = "working_tier" if chosen.only == ["locality"] else "working_tier-store"
        name = one if chosen.store else "working_tier-simulated"
        figures.save(name, sys.argv[1:] if arguments is None else arguments, found)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
