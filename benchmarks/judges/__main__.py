"""The accuracy of the two judges of `loom.fractal` that need no model, on labelled cases in both languages.

    python -m benchmarks.judges [--list-misses] [--save]

`QualityEvaluator`: the share of pairs in which the right answer scores higher than a worse one, by the flaw of the
worse one. `should_use_fractal` with its default threshold: the share of tasks on which its decision agrees with the
label. README.md describes the cases. `--list-misses` lists those of the set `tune` only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import figures
from loom.fractal import QualityEvaluator, estimate_task_complexity, should_use_fractal

__all__ = ["main"]

_FOLDER: Final = Path(__file__).parent
SETS: Final = ("tune", "check")
LANGUAGES: Final = {"en": "English", "zh": "Chinese"}


def _cases(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return cases


async def pairs() -> list[tuple[dict[str, Any], str, float, float]]:
    """Every right answer with every worse one: the case, the flaw, and both scores."""
    judge = QualityEvaluator()
    found = []
    for case in _cases("quality"):
        right = (await judge.evaluate(case["task"], case["right"])).overall
        for fault, worse in case["worse"].items():
            found.append((case, fault, right, (await judge.evaluate(case["task"], worse)).overall))
    return found


def _share(right: Sequence[bool]) -> str:
    return f"{sum(right)}/{len(right)}".rjust(8) + (f"{sum(right) / len(right):>8.1%}" if right else "       -")


def _counted(judged: Sequence[tuple[str, bool]]) -> dict[str, dict[str, int]]:
    """By set, the number of cases and of correct judgements."""
    found = {part: [right for of, right in judged if of == part] for part in SETS}
    return {part: {"right": sum(right), "cases": len(right)} for part, right in found.items()}


def report_quality(list_misses: bool) -> dict[str, dict[str, int]]:
    judged = asyncio.run(pairs())
    print("\n  QualityEvaluator without a model: pairs in which the right answer scores higher")
    faults = list(dict.fromkeys(fault for _, fault, _, _ in judged))
    for part in SETS:
        for language, title in LANGUAGES.items():
            here = [one for one in judged if (one[0]["set"], one[0]["language"]) == (part, language)]
            print(f"  {part:<7}{title:<9}{_share([right > worse for _, _, right, worse in here])}", end="")
            for fault in faults:
                of_fault = [right > worse for _, what, right, worse in here if what == fault]
                print(f"   {fault} {sum(of_fault)}/{len(of_fault)}", end="")
            print()
    for case, fault, right, worse in judged if list_misses else ():
        if case["set"] == "tune" and right <= worse:
            print(f"    {fault} {worse:.2f} is not below {right:.2f}: {case['task']}")
    return _counted([(case["set"], right > worse) for case, _, right, worse in judged])


def report_tasks(list_misses: bool) -> dict[str, dict[str, int]]:
    print("\n  should_use_fractal: tasks on which it decides as they are labelled")
    decided = [(case, should_use_fractal(case["task"])) for case in _cases("tasks")]
    for part in SETS:
        for language, title in LANGUAGES.items():
            here = [one for one in decided if (one[0]["set"], one[0]["language"]) == (part, language)]
            print(f"  {part:<7}{title:<9}{_share([case['divide'] == divide for case, divide in here])}", end="")
            for wanted, name in ((True, "divided"), (False, "whole")):
                of_kind = [divide == wanted for case, divide in here if case["divide"] == wanted]
                print(f"   {name} {sum(of_kind)}/{len(of_kind)}", end="")
            print()
    for case, divide in decided if list_misses else ():
        if case["set"] == "tune" and divide != case["divide"]:
            complexity = estimate_task_complexity(case["task"])
            print(f"    {complexity:.2f} {'divided' if divide else 'whole'}: {case['task']}")
    return _counted([(case["set"], case["divide"] == divide) for case, divide in decided])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.judges", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--list-misses", action="store_true", help="print the cases of `tune` that were judged wrongly"
    )
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    found = {"quality": report_quality(options.list_misses), "tasks": report_tasks(options.list_misses)}
    if options.save:
        figures.save("judges", sys.argv[1:] if arguments is None else arguments, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
