"""The CPU time of writing, recalling, prompts and snapshots in two source trees, which take turns.

    python -m benchmarks.alternating --other PATH [--rounds 10] [--records 3000] [--json]

`--other` is the source folder of another version (it holds `loom`). Each round measures three processes on the same
texts, another one first each time: this tree, the other tree, and the other tree again. A ratio is this tree by the
other one, of the same round; the ratio of the other tree to itself shows the variation by chance. Writing counts the
CPU time of the whole process until the background worker is done; the rest that of the calling thread, while the
worker is idle. Both trees are compiled to bytecode first: a measure includes the imports of its first call.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measuring import messages, questions

__all__ = ["MEASURES", "main", "measure", "run_tree"]

MEASURES = {
    "remember": "one by one, then flush()",
    "remember, a list": "all at once, then flush()",
    "recall": "limit=10, 100 questions twice",
    "context": "budget=2000, 30 questions",
    "snapshot": "a full one",
    "restore": "into a new file",
    "restore into a namespace": "into one of an open store",
    "restore again": "where all of it is present",
}
"""The measures, in this order."""

_HERE = Path(__file__).parent.parent
_TASK = "Continue with: {}"


def measure(records: int, folder: Path) -> dict[str, float]:
    """CPU seconds of each measure, in this process."""
    import loom

    spent: dict[str, float] = {}

    def timed(name: str, run: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> None:
        began = clock()
        run()
        spent[name] = clock() - began

    texts = list(messages(2 * records))
    asked = questions(100)
    source, taken, target = folder / "source.loom", folder / "taken.hctx", folder / "target.loom"
    with loom.open(source, embedder="none", derive=False) as memory:

        def write() -> None:
            for number, text in enumerate(texts[: records // 10]):
                memory.remember(text, session_id=f"s{number // 20}")
            memory.flush()

        def write_list() -> None:
            memory.remember([{"role": "user", "content": text} for text in texts[records // 10 :]])
            memory.flush()

        def recall() -> None:
            for question in [*asked, *asked]:
                memory.recall(question, limit=10)

        def prompt() -> None:
            for question in asked[:30]:
                memory.context(_TASK.format(question), session_id="s0", budget=2_000)

        memory.remember("The first write opens the store.", session_id="s0")
        timed("remember", write, time.process_time)
        timed("remember, a list", write_list, time.process_time)
        memory.recall(asked[0])
        timed("recall", recall)
        memory.context(asked[0], session_id="s0", budget=2_000)
        timed("context", prompt)
        memory.flush()
        timed("snapshot", lambda: memory.snapshot(taken))
    timed("restore", lambda: loom.restore(taken, folder / "restored.loom"))
    with loom.open(target, embedder="none", derive=False) as memory:
        timed("restore into a namespace", lambda: memory.restore(taken))
        memory.flush()
        timed("restore again", lambda: memory.restore(taken))
    return spent


def run_tree(tree: Path, records: int) -> dict[str, float]:
    """Measure a source tree in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.alternating", "--here", "--records", str(records)]
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{_HERE}"}
    done = subprocess.run(command, env=environment, cwd=_HERE, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _compare(other: Path, rounds: int, records: int) -> dict[str, dict[str, list[float]]]:
    """The ratios of each measure, by round: this tree to the other one, and the other one to itself."""
    trees = [_HERE / "src", other, other]
    for tree in trees[:2]:
        compileall.compile_dir(tree / "loom", quiet=1)
    ratios: dict[str, dict[str, list[float]]] = {name: {"this/other": [], "other/other": []} for name in MEASURES}
    for number in range(rounds):
        spent: dict[int, dict[str, float]] = {}
        for place in range(len(trees)):
            side = (number + place) % len(trees)
            spent[side] = run_tree(trees[side], records)
        for name, found in ratios.items():
            found["this/other"].append(spent[0][name] / spent[1][name])
            found["other/other"].append(spent[2][name] / spent[1][name])
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return ratios


def _shown(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):6.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.alternating", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--other", type=Path, help="the source folder of another version (it holds `loom`)")
    parser.add_argument("--rounds", type=int, default=10, help="how often each tree is measured (default 10)")
    parser.add_argument("--records", type=int, default=3_000, help="half the records of the memory (default 3000)")
    parser.add_argument("--json", action="store_true", help="print the ratios of each round as JSON")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.here:
        with tempfile.TemporaryDirectory(prefix="loom-alternating-") as folder:
            print(json.dumps(measure(asked.records, Path(folder))))
        return 0
    if asked.other is None or not (asked.other / "loom" / "__init__.py").is_file():
        parser.error("--other names a source folder, which holds `loom`")
    if len({(tree / "loom" / "index" / "_kernels.so").is_file() for tree in (_HERE / "src", asked.other)}) > 1:
        parser.error("one of the trees has compiled kernels and the other has none; run `make .venv/.ready` in both")
    ratios = _compare(asked.other.resolve(), asked.rounds, asked.records)
    if asked.json:
        print(json.dumps(ratios))
        return 0
    print(f"{'CPU time, median of the rounds (range)':58}{'this/other':>24}{'other/other':>26}")
    for name, found in ratios.items():
        what = f"{name}: {MEASURES[name]}"
        print(f"{what:58}{_shown(found['this/other']):>24}{_shown(found['other/other']):>26}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
