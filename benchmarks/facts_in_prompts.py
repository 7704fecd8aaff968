"""The benefit of derived facts in a prompt: evidence in prompts of 1,000 and 2,000 tokens with `derive` on and off.

    python -m benchmarks.facts_in_prompts --data FILE ... [--questions 60] [--embedder none] [--save]

`--data` takes files as `benchmarks.recall` does (LoCoMo, REALTALK, BEAM; bring your own copies). The same memories
are opened with and without derivation, and with it prompts are built without facts, with those of conversations with
an assistant (the default), and with those of every conversation: derivation also finds standing instructions, which
take room of their own. For each question the share of the turns with the answer that are in the prompt: a turn counts
where it is there itself and, in other columns, also where a fact that was derived from it is. A fact is not the whole
turn, so the truth lies between the two. What facts add has the bounds of 95 % of a bootstrap over questions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks import figures
from benchmarks.recall.data import Dialogue, Question, load, some_of
from loom.context import Context, ContextOrchestrator, L1RecentSource, L2ImportantSource, RecallSource
from loom.context.defaults import QUESTION
from loom.context.sources import InstructionSource, L4FactSource
from loom.everyday import Memory, open_memory

__all__ = ["main"]

BUDGETS: Final = (1_000, 2_000)
_RESAMPLES: Final = 2_000
_SEED: Final = 20_261_118
# As many of the recent and the important records as `memory.context` offers without a session.
_FEW: Final = 6


@dataclass(frozen=True, slots=True)
class Share:
    """The share of the evidence of one question that is in a prompt, by turns and by turns or facts of them."""

    turns: float
    with_facts: float
    facts: int


SIDES: Final = ("off", "without facts", "default", "everywhere")

Reached = dict[str, dict[int, list[Share]]]
"""By side and budget, a share for each question."""


def fill(memory: Memory, dialogue: Dialogue) -> None:
    memory.remember(
        [
            {
                "id": turn.id,
                "role": turn.role or "user",
                "name": turn.name,
                "content": f"{turn.text} [{turn.caption}]" if turn.caption else turn.text,
                "session_id": turn.session,
                "created_at": turn.said_at,
            }
            for turn in dialogue.turns
        ]
    )
    memory.flush()


def without_facts(memory: Memory) -> ContextOrchestrator:
    """The builder of the prompts of `memory.context` without a session, but without the source of facts."""
    sources = [
        InstructionSource(memory),
        RecallSource(memory),
        L1RecentSource(memory, most=_FEW),
        L2ImportantSource(memory, most=_FEW),
    ]
    return ContextOrchestrator(memory.counter, sources, config=QUESTION)


def share(memory: Memory, prompt: Context, question: Question) -> Share:
    evidence = {*question.evidence}
    there = {item.id for item in prompt.items}
    facts = [item.id for item in prompt.items if item.source == "l4"]
    told = {source for id in facts for source in memory.store.neighbours(id)[0]}
    return Share(len(evidence & there) / len(evidence), len(evidence & (there | told)) / len(evidence), len(facts))


def measure(dialogues: Sequence[Dialogue], embedder: str) -> Reached:
    reached: Reached = {side: {budget: [] for budget in BUDGETS} for side in SIDES}
    for dialogue in dialogues:
        for derive in (False, True):
            with open_memory(embedder=embedder, derive=derive) as memory:
                fill(memory, dialogue)
                orchestrator = without_facts(memory)
                for question in dialogue.questions:
                    for budget in BUDGETS:
                        prompt = memory.context(question.text, budget=budget)
                        reached["default" if derive else "off"][budget].append(share(memory, prompt, question))
                        if derive:
                            prompt = orchestrator.build(query=question.text, budget=budget)
                            reached["without facts"][budget].append(share(memory, prompt, question))
                            facts = L4FactSource(memory)
                            prompt = memory.context(question.text, budget=budget, sources=[facts])
                            reached["everywhere"][budget].append(share(memory, prompt, question))
        print(f"  {dialogue.name}: {len(dialogue.questions)} questions", file=sys.stderr, flush=True)
    return reached


def _difference(on: Sequence[float], off: Sequence[float]) -> str:
    gains = 100 * (np.array(on) - np.array(off))
    means = np.random.default_rng(_SEED).choice(gains, (_RESAMPLES, len(gains))).mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return f"{gains.mean():+.1f} [{low:+.1f}, {high:+.1f}]"


def _row(budget: int, reached: Reached) -> list[str]:
    """The budget, the evidence of each side, and the gain by facts."""
    bare = [one.turns for one in reached["without facts"][budget]]
    off = [one.turns for one in reached["off"][budget]]
    cells = [f"{budget:,}", f"{100 * np.mean(off):.1f}", f"{100 * np.mean(bare):.1f}"]
    for side in ("default", "everywhere"):
        turns = [one.turns for one in reached[side][budget]]
        told = [one.with_facts for one in reached[side][budget]]
        cells += [
            f"{100 * np.mean(turns):.1f} ({_difference(turns, bare)})",
            f"{100 * np.mean(told):.1f} ({_difference(told, bare)})",
        ]
    some = np.mean([one.facts > 0 for one in reached["default"][budget]])
    return [*cells, f"{some:.0%}"]


HEADS: Final = [
    "data",
    "questions",
    "budget",
    "`derive=False`",
    "derived, without facts",
    "default, turns",
    "default, turns or facts of them",
    "facts everywhere, turns",
    "facts everywhere, turns or facts of them",
    "prompts with a fact",
]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.facts_in_prompts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="files as benchmarks.recall takes them")
    parser.add_argument("--questions", type=int, help="at most this many of each file, spread over its dialogues")
    parser.add_argument("--embedder", default="auto")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    table = [HEADS]
    for path in options.data:
        name, dialogues = load(path)
        chosen = dialogues if options.questions is None else some_of(dialogues, options.questions)
        reached = measure(chosen, options.embedder)
        asked = f"{len(reached['off'][BUDGETS[0]]):,}"
        rows = [[name, asked, *_row(budget, reached)] for budget in BUDGETS]
        table += rows
        for row in rows:
            print(
                "\n  " + "\n  ".join(f"{head:<36}{cell}" for head, cell in zip(HEADS, row, strict=True)), flush=True
            )
    if options.save:
        figures.save("facts_in_prompts", sys.argv[1:] if arguments is None else arguments, {"table": table})
    return 0


if __name__ == "__main__":
    sys.exit(main())
