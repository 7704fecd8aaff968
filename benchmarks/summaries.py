"""The facts that survive in a summary of a tenth of the tokens, compared with the first sentences and with random
ones.

    python -m benchmarks.summaries [--share 0.1] [--list-misses] [--save]

Each dialogue of `benchmarks/dialogues` is summarised by itself. A marked fact survives if all of its keys are in the
summary. A fact that is said twice counts once, and one that is corrected later is reported separately, since a
summary should have the newest version. The last row is the result of a choice of sentences that knows the marks. Ends
with 1 if a summary is above its budget, or if fewer than 75 % of the decisions, errors, fixes and numbers survive.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import figures
from benchmarks.dialogues import LANGUAGES, TYPES, Dialogue, Mark, Utterance, load, sentences
from loom.knowledge.summarizer import Summarizer, Turn
from loom.text.tokens import default_counter

__all__ = ["DESIGNATED", "Fact", "distinct", "main"]

DESIGNATED: Final = ("decision", "error", "fix", "number")
TARGET: Final = 0.75
_IMPORTANCE: Final = 0.5
_RANDOM_CHOICES: Final = 20
_SEED: Final = 20_240_611


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of a dialogue with each mark that states it; `stale` if another one corrects it later."""

    type: str
    language: str
    marks: tuple[Mark, ...]
    stale: bool

    def kept_in(self, text: str) -> bool:
        return any(mark.kept_in(text) for mark in self.marks)


def distinct(dialogue: Dialogue) -> list[Fact]:
    """The facts of a dialogue without minor ones, each once, in the order in which they are first said."""
    first: dict[str, Utterance] = {}
    marks: dict[str, list[Mark]] = {}
    stale: set[str] = set()
    for utterance in dialogue.utterances:
        for mark in utterance.marks:
            if mark.minor:
                continue
            origin = mark.same_as or mark.id
            first.setdefault(origin, utterance)
            marks.setdefault(origin, []).append(mark)
            if mark.supersedes:
                stale.add(mark.supersedes)
    return [
        Fact(said[0].type, first[origin].language, tuple(said), origin in stale) for origin, said in marks.items()
    ]


# --- the sides ---------------------------------------------------------------------------------------------


def _tokens(text: str) -> int:
    return default_counter().count(text)


def summarised(dialogue: Dialogue, budget: int) -> str:
    turns = [
        Turn(
            id=turn.id,
            text=turn.text,
            speaker=turn.speaker,
            role=turn.role,
            created_at=turn.at,
            importance=_IMPORTANCE,
        )
        for turn in dialogue.utterances
    ]
    return Summarizer().summarize(turns, budget=budget).text


def chosen(pieces: Sequence[str], order: Iterable[int], budget: int) -> str:
    """As many sentences as fit, taken in this order and returned in the order of the dialogue."""
    taken: list[int] = []
    used = 0
    for number in order:
        cost = _tokens(pieces[number] + "\n")
        if used + cost <= budget:
            taken.append(number)
            used += cost
    text = "\n".join(pieces[number] for number in sorted(taken))
    while _tokens(text) > budget:  # tokens may join or split where two sentences meet
        taken.pop()
        text = "\n".join(pieces[number] for number in sorted(taken))
    return text


def knowing(pieces: Sequence[str], facts: Sequence[Fact], budget: int) -> list[int]:
    """The sentences in the order of their new facts per token: designated facts first, then the others."""
    kept = {
        number: {index for index, fact in enumerate(facts) if fact.kept_in(piece)}
        for number, piece in enumerate(pieces)
    }
    costs = [_tokens(piece + "\n") for piece in pieces]
    order: list[int] = []
    wanted = {index for index, fact in enumerate(facts) if fact.type in DESIGNATED and not fact.stale}
    for missing in (wanted, set(range(len(facts))) - wanted):
        used = sum(costs[number] for number in order)
        while missing:
            fitting = [
                number
                for number in kept
                if number not in order and used + costs[number] <= budget and kept[number] & missing
            ]
            if not fitting:
                break
            best = max(fitting, key=lambda number: len(kept[number] & missing) / costs[number])
            order.append(best)
            used += costs[best]
            missing -= kept[best]
    return order


# --- the report --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Side:
    """The rate at which each fact survived, from 0 to 1, in the order of all facts; also within one sentence."""

    name: str
    survived: list[float]
    together: list[float]

    def add(self, facts: Sequence[Fact], summaries: Sequence[str]) -> None:
        lines = [sentences(summary) for summary in summaries]
        for fact in facts:
            self.survived.append(_mean(fact.kept_in(summary) for summary in summaries))
            self.together.append(_mean(any(fact.kept_in(line) for line in summary) for summary in lines))


def _mean(values: Iterable[float]) -> float:
    held = list(values)
    return sum(held) / len(held) if held else float("nan")


def _row(side: Side, facts: Sequence[Fact], groups: Sequence[Callable[[Fact], bool]]) -> str:
    cells = [
        _mean(value for value, fact in zip(side.survived, facts, strict=True) if group(fact)) for group in groups
    ]
    return f"  {side.name:<32}" + "".join(f"{cell:>11.1%}" for cell in cells)


def _print_table(
    title: str, sides: Sequence[Side], facts: Sequence[Fact], groups: dict[str, Callable[[Fact], bool]]
) -> None:
    print(f"\n  {title:<32}" + "".join(f"{name:>11}" for name in groups))
    counts = [sum(map(group, facts)) for group in groups.values()]
    print(f"  {'facts':<32}" + "".join(f"{count:>11,}" for count in counts))
    for side in sides:
        print(_row(side, facts, list(groups.values())))


def _designated(fact: Fact) -> bool:
    return fact.type in DESIGNATED and not fact.stale


def _of_type(kind: str) -> Callable[[Fact], bool]:
    return lambda fact: fact.type == kind and not fact.stale


def _of_language(language: str, of: Callable[[Fact], bool]) -> Callable[[Fact], bool]:
    return lambda fact: fact.language == language and of(fact)


def _holds(fact: Fact) -> bool:
    return not fact.stale


def report(sides: Sequence[Side], facts: Sequence[Fact]) -> None:
    groups: dict[str, Callable[[Fact], bool]] = {"designated": _designated}
    for language, name in LANGUAGES.items():
        groups[name] = _of_language(language, _designated)
    groups |= {kind: _of_type(kind) for kind in DESIGNATED}
    _print_table("survive, designated types", sides, facts, groups)
    groups = {"all": _holds}
    for language, name in LANGUAGES.items():
        groups[name] = _of_language(language, _holds)
    groups |= {kind: _of_type(kind) for kind in TYPES if kind not in DESIGNATED}
    groups["corrected"] = lambda fact: fact.stale
    _print_table("survive, all types", sides, facts, groups)
    print("\n  designated facts whose keys stand in one sentence of the summary, and with those corrected later")
    for side in sides:
        together = _mean(value for value, fact in zip(side.together, facts, strict=True) if _designated(fact))
        every = _mean(value for value, fact in zip(side.survived, facts, strict=True) if fact.type in DESIGNATED)
        print(f"  {side.name:<32}{together:>11.1%}{every:>11.1%}")


def _figures(sides: Sequence[Side], facts: Sequence[Fact]) -> dict[str, Any]:
    """The figures for the documents: the share of designated facts that survive, by side, language and type."""

    def share(side: Side, group: Callable[[Fact], bool]) -> float:
        return _mean(value for value, fact in zip(side.survived, facts, strict=True) if group(fact))

    ours = sides[0]
    return {
        "facts": sum(map(_designated, facts)),
        "kept_facts": round(share(ours, _designated) * sum(map(_designated, facts))),
        "kept": {side.name.partition(",")[0].replace(" ", "_"): share(side, _designated) for side in sides},
        "languages": {name: share(ours, _of_language(one, _designated)) for one, name in LANGUAGES.items()},
        "types": {kind: share(ours, _of_type(kind)) for kind in DESIGNATED},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.summaries", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--share", type=float, default=0.1, help="of a dialogue's tokens (default 0.1)")
    parser.add_argument("--list-misses", action="store_true", help="print the facts that hold and did not survive")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    if not 0.0 < options.share <= 1.0:
        parser.error("--share must be above 0 and at most 1")
    loom_, lead, at_random, best = sides = [
        Side(name, [], [])
        for name in ("loom", "first sentences", f"random, mean of {_RANDOM_CHOICES}", "a choice that knows the marks")
    ]
    shuffler = random.Random(_SEED)
    facts: list[Fact] = []
    above: list[str] = []
    print(f"  {'dialogue':<24}{'turns':>7}{'tokens':>9}{'budget':>8}{'used':>7}{'facts':>7}")
    for dialogue in load():
        total = sum(_tokens(turn.text) for turn in dialogue.utterances)
        budget = int(total * options.share)
        here = distinct(dialogue)
        pieces = [piece for turn in dialogue.utterances for piece in sentences(turn.text)]
        summary = summarised(dialogue, budget)
        if _tokens(summary) > budget:
            above.append(dialogue.id)
        loom_.add(here, [summary])
        lead.add(here, [chosen(pieces, range(len(pieces)), budget)])
        orders = [shuffler.sample(range(len(pieces)), len(pieces)) for _ in range(_RANDOM_CHOICES)]
        at_random.add(here, [chosen(pieces, order, budget) for order in orders])
        best.add(here, [chosen(pieces, knowing(pieces, here, budget), budget)])
        print(
            f"  {dialogue.id:<24}{len(dialogue.utterances):>7,}{total:>9,}{budget:>8,}{_tokens(summary):>7,}"
            f"{len(here):>7,}"
        )
        if options.list_misses:
            for fact in here:
                if not fact.stale and not fact.kept_in(summary):
                    print(f"    {fact.type:<11}{fact.marks[0].says}")
        facts += here
    report(sides, facts)
    share = _mean(value for value, fact in zip(loom_.survived, facts, strict=True) if _designated(fact))
    goals = {
        f"at least {TARGET:.0%} of decisions, errors, fixes and numbers": share >= TARGET,
        "every summary within its budget": not above,
    }
    print("\n  " + ", ".join(f"{goal}: {'yes' if reached else 'NO'}" for goal, reached in goals.items()))
    if above:
        print(f"  above budget: {', '.join(above)}")
    if options.save:
        figures.save("summaries", sys.argv[1:] if arguments is None else arguments, _figures(sides, facts))
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
