"""Evidence per token: the share of the evidence in a prompt of a given size, compared with simpler rankings.

    python -m benchmarks.evidence --data locomo.json realtalk.json beam.json --save
    python -m benchmarks.evidence --draw docs/evidence.svg

`--save` saves the figures, and `--draw` draws the saved ones. A prompt of loom is counted with everything in it. The
other sides are lists of whole turns, counted by their bare text. All are measured in one run over the same stores.
`benchmarks.recall` describes the data and how evidence is counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.figures import ROOT, save
from benchmarks.recall.data import load
from benchmarks.recall.measures import BUDGETS, MEASURES, Outcome, mean
from benchmarks.recall.sides import baselines, embedder_for, fill, outcomes, prompted

__all__ = ["main"]

_TITLES = {
    "locomo": "LoCoMo: two people, months",
    "realtalk": "REALTALK: real chats",
    "beam": "BEAM: user and assistant",
}
_OURS = "loom"
_SIDES = {"plain FTS5": "fts5", "plain BM25": "bm25", "embedder alone": "embedder", "equal fusion": "fusion"}
# The name and the colour of each line, in the order of the legend.
_LINES = {
    _OURS: ("loom", "#b5179e"),
    "fusion": ("FTS5 + embedder", "#f8961e"),
    "embedder": ("embedder", "#43aa8b"),
    "bm25": ("BM25", "#577590"),
    "fts5": ("SQLite FTS5", "#8d99ae"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="benchmarks.evidence", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, nargs="+", default=[], help="files of evaluation data")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir(), "loom-recall-embeddings"))
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/evidence.json")
    parser.add_argument("--draw", type=Path, metavar="FILE.svg", help="draw the saved figures")
    options = parser.parse_args(given)
    measured = {name: measure(dialogues, options.cache) for name, dialogues in map(load, options.data)}
    for name, curves in measured.items():
        print(f"\n{name:<18}" + "".join(f"{budget:>8,}" for budget in BUDGETS))
        for side, shares in curves.items():
            print(f"{side:<18}" + "".join(f"{share:>8.1f}" for share in shares))
    if options.save and measured:
        save("evidence", given, {"budgets": list(BUDGETS), "sets": measured, "table": table(measured)})
    if options.draw is not None:
        draw(
            json.loads((ROOT / "benchmarks" / "results" / "evidence.json").read_text(encoding="utf-8"))["figures"],
            options.draw,
        )


def measure(dialogues: Sequence[Any], cache: Path) -> dict[str, list[float]]:
    """The share of the evidence at each budget, in per cent, for each side."""
    embedder = embedder_for("auto", cache)
    found: dict[str, list[Outcome]] = {_OURS: []}
    for dialogue in dialogues:
        with fill(dialogue, embedder or "none") as memory:
            for side, rank in baselines(memory, dialogue, embedder).items():
                if side in _SIDES:
                    found.setdefault(_SIDES[side], []).extend(outcomes(memory, dialogue, rank))
            found[_OURS] += prompted(memory, dialogue, BUDGETS)  # last: being in a prompt counts as a use
    columns = [MEASURES.index(f"evidence {budget // 1000}K") for budget in BUDGETS]
    return {side: [round(100 * float(share), 1) for share in mean(all_)[columns]] for side, all_ in found.items()}


def table(measured: Mapping[str, Mapping[str, Sequence[float]]]) -> list[list[str]]:
    """The figures as rows: a line for each set and side."""
    rows = [["evidence in a prompt, %", *(f"{budget:,} tokens" for budget in BUDGETS)]]
    for name, curves in measured.items():
        for side, (label, _) in _LINES.items():
            rows.append([f"{_TITLES.get(name, name).partition(':')[0]}, {label}", *map(str, curves[side])])
    return rows


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """A panel for each set, a line for each side. The figures themselves are in the description of the picture."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "loom", "svg.fonttype": "none", "font.size": 10})
    pyplot: Any = import_module("matplotlib.pyplot")
    sets, budgets = figures["sets"], figures["budgets"]
    figure, panels = pyplot.subplots(1, len(sets), figsize=(3.6 * len(sets), 3.4), sharey=True, layout="constrained")
    for panel, (name, curves) in zip([panels] if len(sets) == 1 else panels, sets.items(), strict=True):
        for side, (label, colour) in reversed(_LINES.items()):
            width = 2.6 if side == _OURS else 1.2
            panel.plot(budgets, curves[side], label=label, color=colour, marker="o", markersize=4, linewidth=width)
        panel.set_title(_TITLES.get(name, name), fontsize=10)
        panel.set_xscale("log", base=2)
        panel.set_xticks(budgets, [f"{budget // 1000}K" for budget in budgets])
        panel.set_xlabel("tokens")
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("evidence found, %")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(
        path, metadata={"Date": None, "Creator": None, "Description": json.dumps({"budgets": budgets, "sets": sets})}
    )
    pyplot.close(figure)


if __name__ == "__main__":
    main()
