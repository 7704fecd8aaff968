"""The share of the evidence for a question in the results of `recall`, by the number of tokens.

    python -m benchmarks.recall --data locomo.json realtalk.json beam.json [--sets locomo chinese agent]
                                [--embedder auto none english random] [--questions 10] [--budgets 2000 4000]
                                [--ablation] [--left-out] [--save] [--out FOLDER]

Without `--data` the sets of our own writing run alone. LoCoMo is at https://github.com/snap-research/locomo; other
files are of the common form (see `data`), such as REALTALK (https://github.com/danny911kr/REALTALK) and BEAM
(https://github.com/mohammadtavakoli78/BEAM). Every dialogue is a store of its own, its turns are stored by
`remember`, and its questions asked by `recall` and `context`. A budget counts the text and the caption of each turn;
the budget of a prompt counts everything in it. In a prompt a turn counts if it is quoted whole, or if the passage
that the question needs is (see `quoting`). Intervals: 95 %, by resampling the questions. Embeddings are kept in
`--cache` for the next run. `--left-out` measures nothing of this, but whether each weight and rule holds on a kind of
data that was not used to choose it (see `left_out`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.recall.data import OWN_SETS, SETS_OF_STORES, Dialogue, load, load_own, load_stores, some_of
from benchmarks.recall.left_out import (
    KINDS,
    measure_kind,
    measure_together,
    save_kinds,
    saved_kinds,
    tables,
    together,
)
from benchmarks.recall.measures import BUDGETS, MEASURES, Outcome, cut_table, floor, mean, table
from benchmarks.recall.plotting import plot
from benchmarks.recall.report import figures_of, save_figures
from benchmarks.recall.sides import (
    SharedEmbedder,
    ablations,
    baselines,
    embedder_for,
    fill,
    judged_hits,
    outcomes,
    prompted,
    recall_side,
)

__all__ = ["main", "verdict"]

_BY_KIND = ("recall@5", "recall@10", "evidence 1K", "evidence 2K", "evidence 4K")
_RANKED = tuple(column for column in MEASURES if not column.startswith("quoted"))
_IN_PROMPTS = ("evidence", "all", "quoted")
_ABLATED = ("recall@5", "recall@10", "recall@20", "MRR")
# Enough for the ranks, in a third of the time of the whole curve.
_ABLATED_LIMIT = 20
# Embedders that do not understand the texts, to show the loss that such an embedder causes. Only their recall is
# measured.
_FOREIGN = ("english", "random")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.recall", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[], help="LoCoMo or the common form; without it, our own sets alone"
    )
    parser.add_argument("--sets", nargs="+", help="which sets, by name; without it, the files and the small ones")
    parser.add_argument(
        "--embedder", nargs="+", default=["auto", "none"], help="auto (the offline one), none, english, random"
    )
    parser.add_argument("--questions", type=int, help="at most so many of each kind in each set")
    parser.add_argument("--budgets", type=int, nargs="*", default=BUDGETS, help="which prompts are built")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir(), "loom-recall-embeddings"))
    parser.add_argument("--ablation", action="store_true", help="each signal off in turn")
    parser.add_argument(
        "--left-out", action="store_true", help="each weight and rule, chosen without one kind of data"
    )
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/recall.json")
    parser.add_argument("--out", type=Path, help="where to write the curve as PNG and SVG")
    options = parser.parse_args(arguments)
    sets = dict(map(load, options.data))
    sets |= {name: [load_own(name)] for name in OWN_SETS}
    shared = {name: embedder_for(name, options.cache) for name in options.embedder}
    chosen = options.sets or list(sets)
    sets |= {name: load_stores(name) for name in SETS_OF_STORES if name in chosen}
    for name in chosen:
        if name not in sets:
            parser.error(f"there is no set {name!r}; there are {', '.join(sets)}, and others need --data")
    if options.left_out:
        provider = embedder_for("auto", options.cache)
        given = sys.argv[1:] if arguments is None else list(arguments)
        leave_out({name: sets[name] for name in chosen}, provider, given, is_saved=options.save)
        return
    for name in chosen:
        dialogues = sets[name] if options.questions is None else some_of(sets[name], options.questions)
        rows: dict[str, list[Outcome]] = {}
        measured: dict[str, Any] = {}
        for label, embedder in shared.items():
            alone = label in _FOREIGN
            budgets = () if alone else options.budgets
            measured[label] = run(name, dialogues, embedder, options.ablation and not alone, rows, budgets)
        if options.save:
            save_figures({name: measured}, sys.argv[1:] if arguments is None else list(arguments))
        if options.out is not None:
            curves = {side: mean(found)[_budgets()].tolist() for side, found in rows.items()}
            for path in plot(options.out / f"recall-{name}", BUDGETS, curves, f"evidence within a budget, {name}"):
                print(f"  {path}", flush=True)


def leave_out(
    sets: Mapping[str, Sequence[Dialogue]],
    provider: SharedEmbedder | None,
    arguments: Sequence[str],
    *,
    is_saved: bool,
) -> None:
    """Measure every kind of data whose sets are all given, and print or save what the rules bring on it if they are
    chosen on the other kinds."""
    kinds: dict[str, Any] = {}
    given = {kind: {name: sets[name] for name in names} for kind, names in KINDS.items() if sets.keys() >= {*names}}
    for kind, of_kind in given.items():
        started = time.process_time()
        kinds[kind] = measure_kind(of_kind, provider)
        print(f"{kind}: {time.process_time() - started:.0f} s CPU", flush=True)
        if is_saved:
            save_kinds({kind: kinds[kind]}, arguments)
    known = {**(saved_kinds() if is_saved else {}), **kinds}
    if len(known) < 2:
        return
    for kind in kinds:
        kinds[kind]["together"] = measure_together(given[kind], provider, together(known, kind))
        if is_saved:
            save_kinds({kind: kinds[kind]}, arguments)
    for name, rows in tables({**known, **kinds}).items():
        print(f"\n{name}")
        print("\n".join("  " + " | ".join(row) for row in rows))


def _budgets() -> list[int]:
    return [MEASURES.index(f"evidence {budget // 1000}K") for budget in BUDGETS]


def verdict(sides: Mapping[str, Sequence[Outcome]]) -> str:
    """Whether recall is worse than words alone, meaning alone or their plain fusion, and for which questions."""
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
    budgets: Sequence[int] = BUDGETS,
) -> dict[str, Any]:
    """One set with one embedder, all sides, and its figures; the outcomes of each side are added to `rows`."""
    started = time.process_time()
    label = "words alone" if provider is None else provider.name.split("/")[0]
    compared = ("plain BM25", "recall by words") if label in _FOREIGN else None
    own: dict[str, list[Outcome]] = {}
    ablated: dict[str, list[Outcome]] = {}
    prompts: list[Outcome] = []
    judged: list[tuple[float, bool]] = []
    for dialogue in dialogues:
        with fill(dialogue, "none" if provider is None else provider) as memory:
            own.setdefault("recall", []).extend(outcomes(memory, dialogue, recall_side(memory)))
            judged += judged_hits(memory, dialogue)
            for side, rank in baselines(memory, dialogue, provider, compared).items():
                own.setdefault(side, []).extend(outcomes(memory, dialogue, rank))
            if ablation:
                for side, weights in {"recall": None, **ablations()}.items():
                    rank = recall_side(memory, weights, _ABLATED_LIMIT)
                    ablated.setdefault(side, []).extend(outcomes(memory, dialogue, rank))
            if budgets:
                prompts += prompted(memory, dialogue, budgets)  # last: being in a prompt counts as a use
    turns = sum(len(dialogue.turns) for dialogue in dialogues)
    print(f"\n{name}: {len(dialogues)} stores, {turns:,} turns, {len(own['recall'])} questions, {label}")
    print(table(own, _RANKED, intervals=True))
    print("  recall@10 against plain BM25, in pairs, with the 95 % interval")
    print("\n".join(f"  {line}" for line in floor(own["recall"], own["plain BM25"])))
    if "recall by words" in own:
        print("  recall@10 against words alone, in pairs, with the 95 % interval")
        print(f"  {floor(own['recall'], own['recall by words'])[0]}")
    print("  hits of answers of ten, by score, in per cent")
    print(cut_table(judged))
    for kind in dict.fromkeys(outcome.kind for outcome in own["recall"]):
        of_kind = {side: [one for one in found if one.kind == kind] for side, found in own.items()}
        print(f"  {kind} ({len(of_kind['recall'])} questions)")
        print(table(of_kind, _BY_KIND))
        print(f"    {verdict(of_kind)}")
    if prompts:
        print("  in a prompt of so many tokens, built by context")
        columns = [f"{share} {budget // 1000}K" for share in _IN_PROMPTS for budget in BUDGETS if budget in budgets]
        kinds = dict.fromkeys(outcome.kind for outcome in prompts)
        by_kind = {kind: [one for one in prompts if one.kind == kind] for kind in kinds}
        print(table({"context": prompts, **by_kind}, columns))
    if ablated:
        print(f"  each signal off in turn, answers of {_ABLATED_LIMIT}")
        print(table(ablated, _ABLATED))
    print(f"  ({time.process_time() - started:.0f} s CPU)", flush=True)
    figures = figures_of(own, ablated, prompts, judged)
    own.pop("recall by words", None)  # the curve of words alone is from the run without the embedder
    rows.update({f"{side}, {label}" if side == "recall" else side: found for side, found in own.items()})
    if prompts:
        rows[f"context, {label}"] = prompts
    return figures


if __name__ == "__main__":
    main()
