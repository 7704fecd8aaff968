"""What tuner, predictor and preload gain on recorded traces: hits, stalls, tokens moved.

python -m benchmarks.traces                           # replay the traces of this folder
python -m benchmarks.traces --data locomo10.json      # and traces of LoCoMo, made on the spot and not kept
python -m benchmarks.traces record                    # record the traces of this folder again
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

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


def summary(runs: Sequence[dict[str, Outcome]]) -> None:
    """Each side beside the one with everything off, over all traces and sizes."""
    print(f"\nbeside all off, mean of {len(runs)} runs (worst and best)")
    print(f"  {'':<22}{'hit rate, points':>26}{'better in':>11}{'stalls':>9}{'their tokens':>14}{'moved':>8}")
    for name in list(SIDES)[1:]:
        pairs = [(run[name], run["all off"]) for run in runs]
        points = [(one.hit_rate - off.hit_rate) * 100 for one, off in pairs]
        better = sum(gain > 0 for gain in points)
        stalls, tokens, moved = (
            fmean(of / max(1, off) for of, off in values)
            for values in (
                [(one.stalls, off.stalls) for one, off in pairs],
                [(one.tokens_in_stalls, off.tokens_in_stalls) for one, off in pairs],
                [(one.moved, off.moved) for one, off in pairs],
            )
        )
        spread = f"{fmean(points):+.2f} ({min(points):+.2f} to {max(points):+.2f})"
        print(f"  {name:<22}{spread:>26}{f'{better} of {len(runs)}':>11}{stalls:>9.0%}{tokens:>14.0%}{moved:>8.0%}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="traces", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["replay", "record"], default="replay")
    parser.add_argument("--data", type=Path, help="a LoCoMo file, to replay traces of it as well")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these traces of the folder")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="sizes of the tier, of all tokens")
    chosen = parser.parse_args(arguments)
    if chosen.what == "record":
        for name, life in own_lives().items():
            trace = record(name, life)
            print(f"{save(trace).name}: {len(trace.steps):,} turns, {trace.tokens:,} tokens")
        return 0
    traces = [
        load(path) for path in sorted(FOLDER.glob("*.jsonl")) if chosen.only is None or path.stem in chosen.only
    ]
    groups = {"our own": traces}
    if chosen.data is not None:
        groups["LoCoMo"] = [record(name, life) for name, life in locomo_lives(chosen.data).items()]
    for group, members in groups.items():
        print(f"\n=== {group}")
        if members:
            summary([report(trace, share) for share in chosen.shares for trace in members])
    return 0


if __name__ == "__main__":
    sys.exit(main())
