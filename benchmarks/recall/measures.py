"""What is measured of a ranking: recall at ranks, evidence within a token budget, and how sure the means are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BUDGETS", "MEASURES", "Outcome", "interval", "mean", "measure", "measure_prompts", "table"]

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
"""Recall: the share of a question's evidence that is there. All: whether the whole of it is. Quoted: the share of the
text of the evidence that stands in a prompt."""

_SAMPLES = 1_000
_SEED = 20_240_607


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question's measures, in the order of `MEASURES`."""

    kind: str
    values: tuple[float, ...]


def measure(kind: str, ranked: Sequence[str], tokens: Sequence[int], evidence: Sequence[str]) -> Outcome:
    """The measures of one ranking: ids, best first, and what each takes in tokens.

    Within a budget is what comes before the first record that no longer fits, as somebody would read it who cannot
    choose.
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
    """The measures of one question's prompts by `BUDGETS`: for each evidence turn whether the prompt has what is
    needed of it, and the share of it that is quoted. A prompt has no ranks: those are not measured."""
    ranks = [math.nan] * (len(RANKS) + 2)
    found = [[inside for inside, _ in prompt] for prompt in prompts]
    shares = [float(np.mean([share for _, share in prompt])) if prompt else math.nan for prompt in prompts]
    means = [float(np.mean(one)) if one else math.nan for one in found]
    return Outcome(kind, (*ranks, *means, *(float(all(one)) if one else math.nan for one in found), *shares))


def mean(outcomes: Sequence[Outcome]) -> npt.NDArray[np.float64]:
    means: npt.NDArray[np.float64] = np.array([outcome.values for outcome in outcomes]).mean(axis=0)
    return means


def interval(outcomes: Sequence[Outcome]) -> npt.NDArray[np.float64]:
    """The 95 % interval of each mean, by drawing the questions anew: low in the first row, high in the second."""
    values = np.array([outcome.values for outcome in outcomes])
    random = np.random.default_rng(_SEED)
    drawn = np.array([values[random.integers(len(values), size=len(values))].mean(axis=0) for _ in range(_SAMPLES)])
    bounds: npt.NDArray[np.float64] = np.percentile(drawn, [2.5, 97.5], axis=0)
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
