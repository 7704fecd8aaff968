"""How much of the evidence for a question is in what `recall` returns, and within how many tokens.

    python -m benchmarks.recall --data locomo.json [--sets locomo chinese agent] [--embedder auto none] [--ablation]
                                [--out FOLDER]

Without `--data` the sets of our own writing run alone; LoCoMo is at https://github.com/snap-research/locomo. Every
dialogue is a store of its own, its turns go in through `remember`, its questions through `recall` and `context`. A
budget counts the text and the caption of each turn, that of a prompt everything in it. Intervals: 95 %, by drawing
the questions anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.recall.data import OWN_SETS, SETS_OF_STORES, Dialogue, load_locomo, load_own, load_stores
from benchmarks.recall.measures import BUDGETS, MEASURES, Outcome, mean, table
from benchmarks.recall.plotting import plot
from benchmarks.recall.sides import SharedEmbedder, ablations, baselines, fill, outcomes, prompted, recall_side
from loom.models.embedders import EmbeddingProvider, embedder_from_name

__all__ = ["main", "verdict"]

_BY_KIND = ("recall@5", "recall@10", "evidence 1K", "evidence 2K", "evidence 4K")
_IN_PROMPTS = tuple(f"{share} {budget // 1000}K" for share in ("evidence", "all") for budget in BUDGETS)
_ABLATED = ("recall@5", "recall@10", "MRR", "evidence 1K", "evidence 2K")
# Enough for 2,000 tokens of short turns; a third of the time of the whole curve.
_ABLATED_LIMIT = 100


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.recall", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, help="a LoCoMo file; without it, our own sets run alone")
    choices = ("locomo", *OWN_SETS, *SETS_OF_STORES)
    parser.add_argument(
        "--sets", nargs="+", choices=choices, help="which sets; without it, locomo and the small ones"
    )
    parser.add_argument("--embedder", nargs="+", default=["auto", "none"], help="auto (the offline one) and none")
    parser.add_argument("--ablation", action="store_true", help="each signal off in turn")
    parser.add_argument("--out", type=Path, help="where to write the curve as PNG and SVG")
    options = parser.parse_args(arguments)
    sets: dict[str, list[Dialogue]] = {}
    if options.data is not None:
        sets["locomo"] = load_locomo(options.data)
    sets |= {name: [load_own(name)] for name in OWN_SETS}
    shared = {name: None if name == "none" else SharedEmbedder(_embedder(name)) for name in options.embedder}
    chosen = options.sets or list(sets)
    sets |= {name: load_stores(name) for name in SETS_OF_STORES if name in chosen}
    for name in chosen:
        if name not in sets:
            parser.error("LoCoMo needs --data; it is at https://github.com/snap-research/locomo")
        rows: dict[str, list[Outcome]] = {}
        for embedder in shared.values():
            run(name, sets[name], embedder, options.ablation, rows)
        if options.out is not None:
            curves = {side: mean(found)[_budgets()].tolist() for side, found in rows.items()}
            for path in plot(options.out / f"recall-{name}", BUDGETS, curves, f"evidence within a budget, {name}"):
                print(f"  {path}", flush=True)


def _embedder(name: str) -> EmbeddingProvider:
    found = embedder_from_name(name)
    if found is None:
        raise SystemExit(f"there is no embedder {name!r} here (pip install 'loomkeep[embed]'); try --embedder none")
    return found


def _budgets() -> list[int]:
    return [MEASURES.index(f"evidence {budget // 1000}K") for budget in BUDGETS]


def verdict(sides: Mapping[str, Sequence[Outcome]]) -> str:
    """Whether recall, which fuses, falls behind words or meaning alone or what both make without care, and where."""
    means = {side: mean(found) for side, found in sides.items()}
    found: list[str] = []
    for column in _BY_KIND:
        place = MEASURES.index(column)
        part = max((side for side in means if side != "recall"), key=lambda side: float(means[side][place]))
        missing = 100 * float(means[part][place] - means["recall"][place])
        if missing > 0.0:
            found.append(f"{column} by {missing:.1f} ({part})")
    return f"worse than a part of it: {', '.join(found)}" if found else "never worse than a part of it"


def run(
    name: str,
    dialogues: Sequence[Dialogue],
    provider: SharedEmbedder | None,
    ablation: bool,
    rows: dict[str, list[Outcome]],
) -> None:
    """One set with one embedder, all sides; the outcomes of each side are added to `rows`."""
    started = time.process_time()
    label = "words alone" if provider is None else provider.name.split("/")[0]
    own: dict[str, list[Outcome]] = {}
    ablated: dict[str, list[Outcome]] = {}
    prompts: list[Outcome] = []
    for dialogue in dialogues:
        with fill(dialogue, "none" if provider is None else provider) as memory:
            own.setdefault("recall", []).extend(outcomes(memory, dialogue, recall_side(memory)))
            for side, rank in baselines(memory, dialogue, provider).items():
                own.setdefault(side, []).extend(outcomes(memory, dialogue, rank))
            if ablation:
                for side, weights in {"recall": None, **ablations()}.items():
                    rank = recall_side(memory, weights, _ABLATED_LIMIT)
                    ablated.setdefault(side, []).extend(outcomes(memory, dialogue, rank))
            prompts += prompted(memory, dialogue)  # last: being in a prompt counts as a use
    turns = sum(len(dialogue.turns) for dialogue in dialogues)
    print(f"\n{name}: {len(dialogues)} stores, {turns:,} turns, {len(own['recall'])} questions, {label}")
    print(table(own, intervals=True))
    for kind in dict.fromkeys(outcome.kind for outcome in own["recall"]):
        of_kind = {side: [one for one in found if one.kind == kind] for side, found in own.items()}
        print(f"  {kind} ({len(of_kind['recall'])} questions)")
        print(table(of_kind, _BY_KIND))
        print(f"    {verdict(of_kind)}")
    print("  in a prompt of so many tokens, built by context")
    print(table({"context": prompts}, _IN_PROMPTS))
    if ablated:
        print(f"  each signal off in turn, answers of {_ABLATED_LIMIT}")
        print(table(ablated, _ABLATED))
    print(f"  ({time.process_time() - started:.0f} s CPU)", flush=True)
    own.pop("recall by words", None)  # the curve of words alone is that of the run without the embedder
    rows.update({f"{side}, {label}" if side == "recall" else side: found for side, found in own.items()})
    rows[f"context, {label}"] = prompts


if __name__ == "__main__":
    main()
