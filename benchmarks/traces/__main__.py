"""The gain by tuner, predictor and preload on recorded traces: hits, stalls and moved tokens.

python -m benchmarks.traces                           # replay the traces of this folder
python -m benchmarks.traces --data locomo10.json      # and traces of LoCoMo, made on the spot and not kept
python -m benchmarks.traces record                    # record the traces of this folder again

`--save` keeps the table of means for the documents.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks import figures
from benchmarks.traces.recording import FOLDER, Trace, load, locomo_lives, own_lives, record, save
from benchmarks.traces.replay import Helpers, LargestRecent, Outcome, replay
from loom.tiers.tuning import EwmaPredictor, HoltPredictor

__all__ = ["SIDES", "main"]

PRELOAD_FROM = 0.15
SIDES: dict[str, Helpers] = {
    "all off": Helpers(),
    "tuner": Helpers(tuner=True),
    "predictor, Holt": Helpers(predictor=HoltPredictor),
    "predictor, EWMA": Helpers(predictor=EwmaPredictor),
    "room for the largest": Helpers(predictor=LargestRecent),
    "preload": Helpers(preload=PRELOAD_FROM),
    "Holt and preload": Helpers(predictor=HoltPredictor, preload=PRELOAD_FROM),
}
SHARES = (0.1, 0.25, 0.4)


def report(trace: Trace, share: float) -> dict[str, Outcome]:
    """Replay a trace with every side and print a row for each."""
    budget = int(share * trace.tokens)
    print(
        f"\n{trace.name}: {trace.tokens:,} tokens in {len(trace.steps):,} turns, a tier of {budget:,} ({share:.0%})"
    )
    print(
        f"  {'':<22}{'hit rate':>9}{'stalls':>8}{'of writes':>11}{'their tokens':>14}{'moved':>10}{'preloaded':>16}"
    )
    outcomes = {name: replay(trace, budget, helpers) for name, helpers in SIDES.items()}
    for name, one in outcomes.items():
        used = f"{one.preloads_used:,} of {one.preloaded:,}" if one.preloaded else ""
        print(
            f"  {name:<22}{one.hit_rate:>9.1%}{one.stalls:>8,}{one.writes:>11,}{one.tokens_in_stalls:>14,}"
            f"{one.moved:>10,}{used:>16}"
        )
    return outcomes


class Gain(NamedTuple):
    """One side compared with the side with everything off, over all runs: points of hits, and ratios of the other
    measures."""

    points: list[float]
    stalls: float
    tokens: float
    moved: float

    @property
    def better(self) -> str:
        return f"{sum(gain > 0 for gain in self.points)} of {len(self.points)}"


def gains(runs: Sequence[dict[str, Outcome]]) -> dict[str, Gain]:
    """The gain of each side but "all off", by name."""
    found = {}
    for name in list(SIDES)[1:]:
        pairs = [(run[name], run["all off"]) for run in runs]
        found[name] = Gain(
            [(one.hit_rate - off.hit_rate) * 100 for one, off in pairs],
            *(
                fmean(of / max(1, off) for of, off in values)
                for values in (
                    [(one.stalls, off.stalls) for one, off in pairs],
                    [(one.tokens_in_stalls, off.tokens_in_stalls) for one, off in pairs],
                    [(one.moved, off.moved) for one, off in pairs],
                )
            ),
        )
    return found


def print_gains(found: dict[str, Gain], runs: int) -> None:
    print(f"\nbeside all off, mean of {runs} runs (worst and best)")
    print(f"  {'':<22}{'hit rate, points':>26}{'better in':>11}{'stalls':>9}{'their tokens':>14}{'moved':>8}")
    for name, one in found.items():
        spread = f"{fmean(one.points):+.2f} ({min(one.points):+.2f} to {max(one.points):+.2f})"
        print(f"  {name:<22}{spread:>26}{one.better:>11}{one.stalls:>9.0%}{one.tokens:>14.0%}{one.moved:>8.0%}")


def table(groups: dict[str, dict[str, Gain]]) -> list[list[str]]:
    """The table for the documents: a row for each side, with the hits, stalls and moved tokens of each group."""
    rows = [["beside all off, mean"]]
    for group in groups:
        rows[0] += [f"{group}: hit rate, points", "better in", "stalls", "moved"]
    for name in list(SIDES)[1:]:
        row = [name]
        for found in groups.values():
            one = found[name]
            row += [f"{fmean(one.points):+.2f}", one.better, f"{one.stalls:.0%}", f"{one.moved:.0%}"]
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="traces", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["replay", "record"], default="replay")
    parser.add_argument("--data", type=Path, help="a LoCoMo file, to replay traces of it as well")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these traces of the folder")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="sizes of the tier, of all tokens")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    chosen = parser.parse_args(arguments)
    if chosen.what == "record":
        for name, life in own_lives().items():
            trace = record(name, life)
            print(f"{save(trace).name}: {len(trace.steps):,} turns, {trace.tokens:,} tokens")
        return 0
    traces = [
        load(path) for path in sorted(FOLDER.glob("*.jsonl")) if chosen.only is None or path.stem in chosen.only
    ]
    groups = {"ours": traces}
    if chosen.data is not None:
        groups["LoCoMo"] = [record(name, life) for name, life in locomo_lives(chosen.data).items()]
    found: dict[str, dict[str, Gain]] = {}
    for group, members in groups.items():
        print(f"\n=== {group}")
        runs = [report(trace, share) for share in chosen.shares for trace in members]
        if runs:
            found[group] = gains(runs)
            print_gains(found[group], len(runs))
    if chosen.save:
        figures.save("traces", sys.argv[1:] if arguments is None else arguments, {"table": table(found)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
