"""The saved results of `benchmarks.recall`: the figures of each set, and the tables for the documents.

A run of some sets or embedders keeps the saved figures of the others, so each can be measured alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import ROOT, save
from benchmarks.recall.measures import CUTS, MEASURES, Outcome, compared, cut_shares, mean

__all__ = ["figures_of", "save_figures", "without_option"]

_RESULTS = ROOT / "benchmarks" / "results"
_AT_TEN = MEASURES.index("recall@10")
_BASELINES = ("plain BM25", "plain FTS5")
_NONE = "none_of_them"
_PROMPTS = ("evidence 2K", "evidence 4K", "quoted 4K")
_LABELS = {
    "auto": "with the embedder",
    "none": "by words alone",
    "english": "English embedder",
    "random": "random embedder",
}
_SETS = {
    "beam": "BEAM",
    "realtalk": "REALTALK",
    "locomo": "LoCoMo",
    "agent": "agent",
    "agents": "agents",
    "chinese": "Chinese",
    "chinese-check": "Chinese, held back",
    "chinese-assistant": "Chinese, assistant",
}
_SIDES = {
    "plain BM25": "plain BM25",
    "plain FTS5": "plain FTS5 with stemming",
    "FTS5, the user": "FTS5 over the user's turns",
    "embedder alone": "the embedder alone",
    "equal fusion": "both with equal weights",
}


def figures_of(
    own: Mapping[str, Sequence[Outcome]],
    ablated: Mapping[str, Sequence[Outcome]],
    prompts: Sequence[Outcome],
    judged: Sequence[tuple[float, bool]],
) -> dict[str, Any]:
    """The figures of one set with one embedder, in per cent."""
    kinds = dict.fromkeys(outcome.kind for outcome in own["recall"])
    found: dict[str, Any] = {
        "questions": len(own["recall"]),
        "recall": {side: _at_ten(outcomes) for side, outcomes in own.items()},
        "kinds": {
            kind: {side: _at_ten([one for one in outcomes if one.kind == kind]) for side, outcomes in own.items()}
            for kind in kinds
        },
        "floor": compared(own["recall"], own["plain BM25"]),
        "cuts": cut_shares(judged),
    }
    if "recall by words" in own:
        found["against words"] = compared(own["recall"], own["recall by words"])[:1]
    if ablated:
        whole = _at_ten(ablated["recall"])
        found["signals"] = {_NONE: whole} | {
            side.removeprefix("without "): _at_ten(outcomes) - whole
            for side, outcomes in ablated.items()
            if side != "recall"
        }
    if prompts:
        found["prompts"] = {
            kind: {column: _in_prompts(some, column) for column in _PROMPTS}
            for kind, some in {
                "all": prompts,
                **{kind: [one for one in prompts if one.kind == kind] for kind in kinds},
            }.items()
        }
    return found


def _at_ten(outcomes: Sequence[Outcome]) -> float:
    return round(100 * float(mean(outcomes)[_AT_TEN]), 2)


def _in_prompts(outcomes: Sequence[Outcome], column: str) -> float:
    return round(100 * float(mean(outcomes)[MEASURES.index(column)]), 2)


def save_figures(
    measured: Mapping[str, Mapping[str, Any]], arguments: Sequence[str], *, folder: Path = _RESULTS
) -> None:
    """Save these figures, by set and embedder, with the saved ones of others, and the tables of all of them."""
    file = folder / "recall.json"
    before = json.loads(file.read_text(encoding="utf-8"))["figures"]["sets"] if file.exists() else {}
    sets = {**before, **{name: {**before.get(name, {}), **_plain(figures)} for name, figures in measured.items()}}
    sets = {
        name: {label: sets[name][label] for label in _LABELS if label in sets[name]} for name in _SETS if name in sets
    }
    save("recall", _for_all(arguments, sets), {"sets": sets, "tables": _tables(sets)}, folder=folder)


def _for_all(arguments: Sequence[str], sets: Mapping[str, Any]) -> list[str]:
    """The arguments of a run of all these sets with their embedders."""
    labels = dict.fromkeys(label for label in _LABELS for figures in sets.values() if label in figures)
    words = [*without_option(without_option(arguments, "--sets"), "--embedder")]
    return [*words, "--embedder", *labels, "--sets", *sets]


def without_option(arguments: Sequence[str], option: str) -> list[str]:
    """The arguments without an option and its values."""
    if option not in arguments:
        return list(arguments)
    first = arguments.index(option)
    after = (place for place in range(first + 1, len(arguments)) if arguments[place].startswith("--"))
    return [*arguments[:first], *arguments[next(after, len(arguments)) :]]


def _plain(value: Any) -> Any:
    """Convert a value to its saved form: keys of letters, digits, hyphens and underscores, and lists."""
    if isinstance(value, Mapping):
        return {_key(str(key)): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _key(name: str) -> str:
    return re.sub(r"[^\w-]+", "_", name)


def _tables(sets: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    names = [_SETS[name] for name in sets]
    tables = {
        "reached": [["", *names], *_reached(sets)],
        "floor": [["set or kind", "questions", "against plain BM25", "95 % interval"], *_floor(sets)],
        "embedders": [["against words alone", *names], *_embedders(sets)],
        "signals": [["without", *names], *_signals(sets)],
        "prompts": [["", "2,000 tokens", "4,000 tokens", "of the evidence's text, in 4,000"], *_prompts(sets)],
        "cuts": [["cut: wrong above / right below", *map(str, CUTS)], *_cuts(sets)],
    }
    for name, figures in sets.items():
        tables[f"kinds {name}"] = _kinds(figures.get("auto") or next(iter(figures.values())))
    return tables


def _reached(sets: Mapping[str, Any]) -> list[list[str]]:
    rows = [
        [
            f"recall, {shown}",
            *(_shown(figures.get(label, {}).get("recall", {}).get("recall")) for figures in sets.values()),
        ]
        for label, shown in _LABELS.items()
        if any(label in figures for figures in sets.values())
    ]
    for side, shown in _SIDES.items():
        values = [_of_side(figures, _key(side)) for figures in sets.values()]
        if any(value is not None for value in values):
            rows.append([shown, *map(_shown, values)])
    return rows


def _of_side(figures: Mapping[str, Any], side: str) -> float | None:
    """The figures of a side with the first embedder with which it was measured."""
    return next((one["recall"][side] for one in figures.values() if side in one["recall"]), None)


def _floor(sets: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            f"{_SETS[name]}: {kind}",
            str(count),
            f"{gain:+.1f}",
            f"{low:+.1f} to {high:+.1f}" + (" (below)" if high < 0.0 else ""),
        ]
        for name, figures in sets.items()
        for kind, count, gain, low, high in figures.get("auto", {}).get("floor", [])
    ]


def _embedders(sets: Mapping[str, Any]) -> list[list[str]]:
    rows: list[list[str]] = []
    for label, shown in _LABELS.items():
        found = [figures.get(label, {}) for figures in sets.values()]
        compared_ = [one.get("against words") or one.get("against_words") for one in found]
        if any(compared_):
            cells = [
                "" if not one else f"{one[0][2]:+.1f} ({one[0][3]:+.1f} to {one[0][4]:+.1f})" for one in compared_
            ]
            rows.append([shown, *cells])
    return rows


def _signals(sets: Mapping[str, Any]) -> list[list[str]]:
    """With the embedder / by words alone: recall@10 with all signals, and its change without each."""
    found = [[figures[label] for label in ("auto", "none") if label in figures] for figures in sets.values()]
    signals = dict.fromkeys(signal for of_set in found for one in of_set for signal in one.get("signals", ()))
    return [
        ["none of them" if signal == _NONE else signal]
        + [
            " / ".join(
                format(one["signals"][signal], ".1f" if signal == _NONE else "+.1f")
                for one in of_set
                if signal in one.get("signals", ())
            )
            for of_set in found
        ]
        for signal in signals
    ]


def _prompts(sets: Mapping[str, Any]) -> list[list[str]]:
    return [
        [f"{_SETS[name]}, {_LABELS[label]}"]
        + [_shown(figures[label]["prompts"]["all"].get(_key(column))) for column in _PROMPTS]
        for name, figures in sets.items()
        for label in ("auto", "none")
        if "prompts" in figures.get(label, ())
    ]


def _cuts(sets: Mapping[str, Any]) -> list[list[str]]:
    return [
        [_SETS[name], *(f"{wrong:.0f} / {below:.0f}" for wrong, below in figures["auto"]["cuts"])]
        for name, figures in sets.items()
        if "auto" in figures
    ]


def _kinds(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = [["kind", "recall", *_BASELINES, "in a prompt of 4,000"]]
    for kind, sides in sorted(figures["kinds"].items()):
        prompts = figures.get("prompts", {}).get(kind, {})
        cells = [sides.get(_key(side)) for side in ("recall", *_BASELINES)]
        rows.append([kind.replace("_", " "), *map(_shown, [*cells, prompts.get(_key("evidence 4K"))])])
    return rows


def _shown(value: float | None) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value:.1f}"
