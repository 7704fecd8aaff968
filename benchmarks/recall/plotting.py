"""The curve of a benchmark as PNG and SVG. matplotlib draws it; without matplotlib, a line says so."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["plot"]


def plot(path: Path, budgets: Sequence[int], curves: Mapping[str, Sequence[float]], title: str) -> list[Path]:
    """Draw shares of evidence over token budgets, a line for each side. Returns the written files."""
    if importlib.util.find_spec("matplotlib") is None:
        print("  no plot: matplotlib is not installed (pip install 'loomkeep[bench]')")
        return []
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "loom"  # the same file for the same figures
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for name, shares in curves.items():
        ours = name.startswith("recall")
        axes.plot(
            budgets,
            [100 * share for share in shares],
            marker="o",
            linewidth=2.4 if ours else 1.4,
            linestyle="-" if ours else "--",
            label=name,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
    axes.set_xlabel("tokens")
    axes.set_ylabel("evidence found, %")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_suffix(".png"), path.with_suffix(".svg")]
    figure.savefig(written[0], dpi=150, metadata={"Software": None})
    figure.savefig(written[1], metadata={"Date": None})
    pyplot.close(figure)
    return written
