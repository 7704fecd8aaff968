"""The measures of a ranking: recall at ranks, evidence within a token budget, and the intervals of the means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "BUDGETS",
    "CUTS",
    "MEASURES",
    "Outcome",
    "compared",
    "cut_shares",
    "cut_table",
    "floor",
    "interval",
    "mean",
    "measure",
    "measure_prompts",
    "paired",
    "table",
]

RANKS = (5, 10, 20)
BUDGETS = (1_000, 2_000, 4_000, 8_000)
MEASURES = (
    *(f"recall@{rank}" for rank in RANKS),
    "hit@10",
    "MRR",
    *(f"evidence {budget // 1000}K" for budget in BUDGETS),
    *(f"all {budget // 1000}K" for budget in BUDGETS),
    *(f"quoted {budget // 1000}K" for budget in BUDGETS),
)
"""Recall: the share of a question's evidence that is found. All: whether all of it is. Quoted: the share of the
evidence's text that is in a prompt."""

CUTS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The scores at which hits are cut off, for `cut_table`."""

# Kinds with fewer questions are pooled with the others of their set.
_FEWEST = 20
_SAMPLES = 1_000
_SEED = 20_240_607


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question's measures, in the order of `MEASURES`."""

    kind: str
    values: tuple[float, ...]


def measure(kind: str, ranked: Sequence[str], tokens: Sequence[int], evidence: Sequence[str]) -> Outcome:
    """The measures of one ranking: ids, best first, and the tokens of each.

    The records before the first one that no longer fits are within a budget.
    """
    places = {id: place for place, id in reversed(list(enumerate(ranked)))}
    far = 1 << 30
    found = [places.get(id, far) for id in evidence]
    used = np.cumsum(tokens) if len(tokens) else np.zeros(0)
    values = [float(np.mean([place < rank for place in found])) for rank in RANKS]
    values.append(float(min(found) < 10))
    values.append(0.0 if min(found) == far else 1.0 / (1 + min(found)))
    within = [[place < len(used) and used[place] <= budget for place in found] for budget in BUDGETS]
    values += [float(np.mean(inside)) for inside in within]
    values += [float(all(inside)) for inside in within]
    values += [math.nan] * len(BUDGETS)
    return Outcome(kind, tuple(values))


def measure_prompts(kind: str, prompts: Sequence[Sequence[tuple[bool, float]]]) -> Outcome:
    """The measures of one question's prompts by `BUDGETS`: for each evidence turn, whether the prompt has the needed
    part of it, and the share of it that is quoted. A prompt has no ranks, so these are not measured."""
    ranks = [math.nan] * (len(RANKS) + 2)
    found = [[inside for inside, _ in prompt] for prompt in prompts]
    shares = [float(np.mean([share for _, share in prompt])) if prompt else math.nan for prompt in prompts]
    means = [float(np.mean(one)) if one else math.nan for one in found]
    return Outcome(kind, (*ranks, *means, *(float(all(one)) if one else math.nan for one in found), *shares))


def mean(outcomes: Sequence[Outcome]) -> npt.NDArray[np.float64]:
    means: npt.NDArray[np.float64] = np.array([outcome.values for outcome in outcomes]).mean(axis=0)
    return means


def interval(outcomes: Sequence[Outcome]) -> npt.NDArray[np.float64]:
    """The 95 % interval of each mean, by resampling the questions: the lower bounds in the first row, the upper in
    the second."""
    return _resampled(np.array([outcome.values for outcome in outcomes]))


def _resampled(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    random = np.random.default_rng(_SEED)
    means = np.array([values[random.integers(len(values), size=len(values))].mean(axis=0) for _ in range(_SAMPLES)])
    bounds: npt.NDArray[np.float64] = np.percentile(means, [2.5, 97.5], axis=0)
    return bounds


def table(rows: Mapping[str, Sequence[Outcome]], columns: Sequence[str] = MEASURES, intervals: bool = False) -> str:
    """Means in per cent, a line for each side; with `intervals`, a second line for each."""
    chosen = [MEASURES.index(column) for column in columns]
    width = max(map(len, rows), default=0) + 2
    lines = [f"  {'':<{width}}" + "".join(f"{column:>14}" for column in columns)]
    for name, outcomes in rows.items():
        values = mean(outcomes) * 100
        lines.append(f"  {name:<{width}}" + "".join(f"{values[column]:14.1f}" for column in chosen))
        if intervals:
            low, high = interval(outcomes) * 100
            cells = [f"{low[column]:.1f}-{high[column]:.1f}" for column in chosen]
            lines.append(f"  {'':<{width}}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def compared(
    ours: Sequence[Outcome], others: Sequence[Outcome], column: str = "recall@10"
) -> list[tuple[str, int, float, float, float]]:
    """One side against another, question by question, in points: for the set, for each kind of at least twenty
    questions and for the others together: the number of questions, the gain, and its 95 % interval."""
    place = MEASURES.index(column)
    gains = np.array([one.values[place] - other.values[place] for one, other in zip(ours, others, strict=True)])
    kinds = np.array([outcome.kind for outcome in ours])
    large = [kind for kind in dict.fromkeys(kinds.tolist()) if np.count_nonzero(kinds == kind) >= _FEWEST]
    groups = {"all": np.ones(len(gains), dtype=np.bool_)} | {kind: kinds == kind for kind in large}
    if len(rest := ~np.isin(kinds, large)) and 0 < np.count_nonzero(rest) < len(gains):
        groups["other kinds"] = rest
    found: list[tuple[str, int, float, float, float]] = []
    for name, chosen in groups.items():
        found.append((name, int(np.count_nonzero(chosen)), *paired(gains[chosen])))
    return found


def paired(gains: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """The mean gain over the questions and the bounds of its 95 % interval, in points."""
    low, high = _resampled(gains[:, np.newaxis])[:, 0].tolist()
    gain, low, high = (round(100 * value, 2) for value in (float(gains.mean()), low, high))
    return gain, low, high


def floor(ours: Sequence[Outcome], plain: Sequence[Outcome], column: str = "recall@10") -> list[str]:
    """`compared` as lines. A side is below another one if the whole interval is."""
    return [
        f"  {name} ({count} questions): {gain:+.1f} ({low:+.1f} to {high:+.1f}), "
        + ("below" if high < 0.0 else "not below")
        for name, count, gain, low, high in compared(ours, plain, column)
    ]


def cut_shares(hits: Sequence[tuple[float, bool]]) -> list[tuple[float, float]]:
    """For each of `CUTS` the share of hits above it that are wrong, and of right ones below it, in per cent."""
    scores = np.array([score for score, _ in hits])
    right = np.array([is_right for _, is_right in hits], dtype=np.bool_)
    shares: list[tuple[float, float]] = []
    for cut in CUTS:
        kept = scores >= cut
        wrong = 100 * float((~right[kept]).mean()) if kept.any() else math.nan
        lost = 100 * float((~kept[right]).mean()) if right.any() else math.nan
        shares.append((round(wrong, 1), round(lost, 1)))
    return shares


def cut_table(hits: Sequence[tuple[float, bool]]) -> str:
    """`cut_shares` as a table."""
    shares = cut_shares(hits)
    lines = [f"  {'cut':<24}" + "".join(f"{cut:8.1f}" for cut in CUTS)]
    lines.append(f"  {'wrong of those above':<24}" + "".join(f"{wrong:8.1f}" for wrong, _ in shares))
    lines.append(f"  {'right ones below':<24}" + "".join(f"{lost:8.1f}" for _, lost in shares))
    return "\n".join(lines)
