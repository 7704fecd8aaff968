"""The shares of standing instructions that are recognised, of look-alikes that are passed over, and of correct
applications.

    python -m benchmarks.instructions [--parts 1 2] [--embedder auto none] [--list-misses] [--save]

Every turn of the set goes into a memory of its own with its trust, and `instructions()` is read. An instruction that
shares its sentence with the marked one is right; every other one is wrong. Then the questions of the set are asked:
whether the instruction is in the context of a question that meets its condition, and out of the context of one that
does not. The same run also measures a simple rule: a sentence with "always", "never", "prefer" or a similar word is
an instruction. Intervals: 95 %, by resampling turns. Ends with 1 if the files are not those of `SHA256SUMS`.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import figures
from loom.everyday import Memory, open_memory
from loom.text.duplicates import normal_form
from loom.text.sentences import statements

__all__ = ["Outcome", "Turn", "keyword_rule", "load", "main", "measure", "overlaps"]

_FOLDER: Final = Path(__file__).parent
_LANGUAGES: Final = ("english", "chinese")
_WANTED: Final = ("instruction", "preference")
_RESAMPLES, _SEED = 2_000, 20_261_118
_BUDGET: Final = 1_000
_KEYWORDS: Final = re.compile(
    r"\b(?:always|never|prefer|from now on|whenever|every time|don't|i like|i love|i hate|rather)\b"
    "|以后|每次|总是|不要|一律|喜欢|习惯|默认|讨厌",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Turn:
    """A turn of the set: its kind and trust, its text, the sentence to find, and questions that meet it or do not."""

    kind: str
    trust: str
    language: str
    lines: list[str] = field(default_factory=list)
    wanted: str = ""
    meeting: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a turn: whether its sentence was found, the other instructions found, and the correctly answered
    questions."""

    turn: Turn
    found: bool
    wrong: tuple[str, ...]
    met: tuple[bool, ...] = ()
    passed: tuple[bool, ...] = ()


def load(language: str, part: int = 1) -> list[Turn]:
    """The turns of a language in one of the two parts of the set, in their order."""
    turns: list[Turn] = []
    name = f"{language}.txt" if part == 1 else f"{language}-{part}.txt"
    for line in (_FOLDER / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            kind, _, trust = line[2:].partition(" @")
            turns.append(Turn(kind, trust or "user", language))
        elif line.startswith("> "):
            turns[-1].wanted = line[2:]
        elif line.startswith("+ "):
            turns[-1].meeting.append(line[2:])
        elif line.startswith("- ") and turns[-1].wanted:
            turns[-1].other.append(line[2:])
        elif line.strip():
            turns[-1].lines.append(line)
    return turns


def overlaps(found: str, wanted: str) -> bool:
    """Whether two texts share a sentence: one of them holds the other, or most of it."""
    one, other = normal_form(found), normal_form(wanted)
    return bool(one and other) and (one in other or other in one)


def keyword_rule(turn: Turn) -> list[str]:
    """The instructions in a turn of the user by a rule with a dozen words."""
    if turn.trust != "user":
        return []
    return [one.text for one in statements(turn.text) if _KEYWORDS.search(one.text)]


def _judged(turn: Turn, kept: Sequence[str]) -> Outcome:
    right = [one for one in kept if turn.kind in _WANTED and overlaps(one, turn.wanted or turn.text)]
    return Outcome(turn, bool(right), tuple(one for one in kept if one not in right))


def measure(turn: Turn, embedder: str) -> Outcome:
    """Remember a turn, read its instructions, and ask its questions."""
    with open_memory(embedder=embedder) as memory:
        role = "user" if turn.trust == "user" else "assistant" if turn.trust == "agent" else turn.trust
        memory.remember(turn.text, role=role, trust=turn.trust, session_id="told")
        memory.flush()
        judged = _judged(turn, [one.text for one in memory.instructions()])
        if not judged.found:
            return Outcome(turn, judged.found, judged.wrong, (False,) * len(turn.meeting), (True,) * len(turn.other))
        met = tuple(_applies(memory, question, turn) for question in turn.meeting)
        passed = tuple(not _applies(memory, question, turn) for question in turn.other)
        return Outcome(turn, judged.found, judged.wrong, met, passed)


def _applies(memory: Memory, question: str, turn: Turn) -> bool:
    items = memory.context(question, budget=_BUDGET).items
    return any(item.source == "instructions" and overlaps(item.text, turn.wanted) for item in items)


def _share(counts: Sequence[tuple[int, int]]) -> dict[str, float]:
    """The correct share, the number of cases, and the interval by resampling turns; empty without cases."""
    table = np.array(counts).reshape(-1, 2)
    right, number = (int(one) for one in table.sum(axis=0)) if len(table) else (0, 0)
    if not number:
        return {}
    random = np.random.default_rng(_SEED)
    drawn = table[random.integers(len(table), size=(_RESAMPLES, len(table)))].sum(axis=1)
    low, high = np.percentile(drawn[:, 0] / np.maximum(drawn[:, 1], 1), [2.5, 97.5])
    return {"value": right / number, "low": float(low), "high": float(high), "number": number}


def _shown(share: dict[str, float]) -> str:
    if not share:
        return f"{'-':>22}"
    low, high = 100 * share["low"], 100 * share["high"]
    return f"{100 * share['value']:6.1f} ({low:.0f} to {high:.0f}) of {share['number']:.0f}".rjust(22)


def _report(name: str, outcomes: Sequence[Outcome]) -> dict[str, dict[str, dict[str, float]]]:
    """Print the shares of each language, and return them by language and column."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{name}")
    print(f"  {'':<10}{'found':>22}{'right of kept':>22}{'look-alikes passed':>22}{'met':>22}{'not met':>22}")
    for language in (*_LANGUAGES, "both"):
        mine = [one for one in outcomes if language in (one.turn.language, "both")]
        wanted = [one for one in mine if one.turn.kind in _WANTED]
        others = [one for one in mine if one.turn.kind not in _WANTED]
        found[language] = {
            "found": _share([(int(one.found), 1) for one in wanted]),
            "right": _share([(int(one.found), int(one.found) + len(one.wrong)) for one in mine]),
            "passed": _share([(int(not one.wrong), 1) for one in others]),
            "met": _share([(sum(one.met), len(one.met)) for one in wanted]),
            "not_met": _share([(sum(one.passed), len(one.passed)) for one in wanted]),
        }
        print(f"  {language:<10}" + "".join(map(_shown, found[language].values())), flush=True)
    for kind in _WANTED:
        some = [(int(one.found), 1) for one in outcomes if one.turn.kind == kind]
        print(f"  {kind:<10}" + _shown(_share(some)))
    return found


def _checked() -> bool:
    lines = (_FOLDER / "SHA256SUMS").read_text(encoding="utf-8").split("\n")
    for line in filter(None, lines):
        digest, name = line.split()
        if hashlib.sha256((_FOLDER / Path(name).name).read_bytes()).hexdigest() != digest:
            print(f"{name} is not the file that was sealed")
            return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.instructions", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--embedder", nargs="+", default=["auto", "none"], help="auto (the offline one), none")
    parser.add_argument("--questions", type=int, help="at most so many turns of each language")
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 2], choices=[1, 2], help="which parts of the set")
    parser.add_argument("--list-misses", action="store_true", help="print what went wrong")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    kept: dict[str, Any] = {}
    for part in options.parts:
        turns = [turn for language in _LANGUAGES for turn in load(language, part)[: options.questions]]
        kept[f"part-{part}"] = _run(f"part {part}", turns, options.embedder, options.list_misses)
    if options.save:
        figures.save("instructions", sys.argv[1:] if arguments is None else arguments, kept)
    return 0 if _checked() else 1


def _run(part: str, turns: Sequence[Turn], embedders: Sequence[str], list_misses: bool) -> dict[str, Any]:
    found = {
        "keywords": _report(f"{part}, a rule of keywords", [_judged(turn, keyword_rule(turn)) for turn in turns])
    }
    for embedder in embedders:
        outcomes = [measure(turn, embedder) for turn in turns]
        found[embedder] = _report(f"{part}, loom, {'words alone' if embedder == 'none' else embedder}", outcomes)
        for one in outcomes if list_misses else ():
            if one.wrong or (one.turn.kind in _WANTED and not (one.found and all(one.met) and all(one.passed))):
                print(f"  {one.turn.kind} found={one.found} met={one.met} passed={one.passed}: {one.turn.wanted}")
                print(*(f"    kept: {text}" for text in one.wrong), sep="\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
