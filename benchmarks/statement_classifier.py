"""Learns the weights of `loom.knowledge.classifier` from the development dialogues, and reports their quality.

    python -m benchmarks.statement_classifier [--write] [--save] [--folds 8] [--keep-from THRESHOLD]

Each fold leaves whole dialogues out, learns from the others, and measures precision and recall on the unseen ones. A
statement is right if it has all the keys of a mark of its turn. `--write` learns from all dialogues and writes
`classifier.json`, with the checksum of the data and the threshold at which unseen dialogues reached the required
precision. With `--keep-from` no dialogues are left out: the threshold is one that an earlier run chose. The same data
give the same weights.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from time import thread_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks import figures
from benchmarks.dialogues import FOLDER, LANGUAGES, TYPES, Dialogue, Mark, checksum, load, sentences
from benchmarks.extraction import extracted, with_the_turn_before
from benchmarks.extraction import read as compared
from benchmarks.summaries import DESIGNATED, chosen, distinct, knowing
from loom.knowledge.classifier import (
    WEIGHTS_FILE,
    Assessment,
    Model,
    TurnContext,
    features,
    in_company,
    probability,
)
from loom.knowledge.extraction import FactExtractor, may_state
from loom.knowledge.summarizer import Summarizer, Turn
from loom.text.sentences import statements
from loom.text.statements import Statement, cuts
from loom.text.tokens import default_counter

__all__ = ["DEVELOPMENT", "Example", "examples", "learn", "main", "unseen"]

DEVELOPMENT: Final = FOLDER / "development"
PRECISION: Final = 0.87
"""The precision on unseen dialogues for which the threshold is set. Dialogues of other writers have a little less."""

_LEAST_DIALOGUES: Final = 3  # a feature of fewer dialogues is a word of their topic
_STRENGTH: Final = 10.0  # the pull towards zero, in examples
_TYPE_STRENGTH: Final = 4.0
_NOTES_SHARE: Final = 0.4  # the weight of a note relative to a sentence of talk
_TALK_SHARE: Final = 3.0  # the weight of a sentence of small talk when worth is learned
_MOST: Final = 5_000  # features for the worth of a statement, and for each type
_MOST_OF_TYPE: Final = 300
_LEAST_CLAUSES: Final = 5
_POINT_STRENGTH: Final = 8.0
_MOST_OF_POINT: Final = 1_500
_CLAUSE: Final = "clause "  # the prefix of the features of a clause, as opposed to those of its statement
_CHOICE_STRENGTH: Final = 10.0
_MOST_OF_CHOICE: Final = 6_000
_STEPS: Final = 120
_SHUFFLE: Final = 20_240_613

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Example:
    """A statement of a dialogue, its features, its marks, and its weight.

    `wanted` are the marks by which a summary is measured. A turn of `talk` has small talk and no mark.
    """

    dialogue: str
    turn: str
    statement: Statement
    seen: tuple[str, ...]
    marks: tuple[Mark, ...]
    wanted: tuple[Mark, ...]
    share: float
    role: str
    talk: bool


def examples(dialogues: Iterable[Dialogue]) -> list[Example]:
    found = []
    for dialogue in dialogues:
        corrected = {mark.supersedes for turn in dialogue.utterances for mark in turn.marks}
        share = 1.0 if is_talk(dialogue) or _is_one_of(dialogue, "brief", "chatter") else _NOTES_SHARE
        for turn, before in with_the_turn_before(dialogue):
            said = statements(turn.text)
            context = TurnContext(turn.role, None if before is None else before.text)
            for statement, seen in zip(said, features(said, context), strict=True):
                marks = tuple(mark for mark in turn.marks if mark.kept_in(statement.text))
                wanted = tuple(mark for mark in marks if _is_wanted(mark, corrected))
                talk = turn.small_talk > 0 and not turn.marks
                found.append(Example(dialogue.id, turn.id, statement, seen, marks, wanted, share, turn.role, talk))
    return found


def _is_wanted(mark: Mark, corrected: Container[str | None]) -> bool:
    """Whether a summary should keep the mark: a decision, an error, a fix or a number without a later correction."""
    return mark.type in DESIGNATED and not mark.minor and (mark.same_as or mark.id) not in corrected


# --- learning ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    """Examples as rows of feature numbers, one after the other; `starts` is where each row begins."""

    names: tuple[str, ...]
    cells: Indices
    starts: Indices
    lengths: Indices

    def scores(self, weights: Floats) -> Floats:
        values = np.append(weights[self.cells], 0.0)
        sums: Floats = np.add.reduceat(values, self.starts)
        sums[self.lengths == 0] = 0.0
        return sums

    def back(self, errors: Floats) -> Floats:
        sums = np.bincount(self.cells, np.repeat(errors, self.lengths), minlength=len(self.names))
        return sums.astype(np.float64)


def _table(rows: Sequence[tuple[str, ...]], names: Iterable[str]) -> _Table:
    ordered = tuple(sorted(names))
    numbers = {name: number for number, name in enumerate(ordered)}
    cells = [[numbers[name] for name in row if name in numbers] for row in rows]
    lengths = np.array([len(row) for row in cells], np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
    return _Table(ordered, np.array([cell for row in cells for cell in row], np.int64), starts, lengths)


def _fit(table: _Table, truth: Floats, shares: Floats, strength: float) -> tuple[float, Floats]:
    """Logistic regression with a quadratic penalty, by limited-memory quasi-Newton steps. The bias is free.

    `shares` are the weights of the examples.
    """

    def value(point: Floats) -> tuple[float, Floats]:
        scores = point[0] + table.scores(point[1:])
        loss = float(shares @ (np.logaddexp(0.0, scores) - truth * scores))
        errors = shares * (1.0 / (1.0 + np.exp(-scores)) - truth)
        slope = np.concatenate(([errors.sum()], table.back(errors) + strength * point[1:]))
        return loss + 0.5 * strength * float(point[1:] @ point[1:]), slope

    point = _lowest(value, np.zeros(len(table.names) + 1))
    return float(point[0]), point[1:]


def _lowest(value: Callable[[Floats], tuple[float, Floats]], point: Floats) -> Floats:
    height, slope = value(point)
    steps: list[tuple[Floats, Floats]] = []
    for _ in range(_STEPS):
        direction = -_curved(slope, steps)
        rate = 1.0 if steps else min(1.0, 1.0 / max(1e-9, float(np.abs(slope).sum())))
        while True:
            there = point + rate * direction
            lower, steeper = value(there)
            if lower <= height + 1e-4 * rate * float(slope @ direction) or rate < 1e-10:
                break
            rate /= 2
        steps = [*steps[-9:], (there - point, steeper - slope)]
        gained, height, point, slope = height - lower, lower, there, steeper
        if gained < 1e-7 * max(1.0, abs(height)):
            break
    return point


def _curved(slope: Floats, steps: list[tuple[Floats, Floats]]) -> Floats:
    """The slope, corrected by the curvature of the last steps (the two loops of L-BFGS)."""
    direction = slope.copy()
    shares = []
    for step, change in reversed(steps):
        share = float(step @ direction) / max(1e-12, float(step @ change))
        shares.append(share)
        direction -= share * change
    if steps:
        step, change = steps[-1]
        direction *= float(step @ change) / max(1e-12, float(change @ change))
    for (step, change), share in zip(steps, reversed(shares), strict=True):
        direction += (share - float(change @ direction) / max(1e-12, float(step @ change))) * step
    return direction


def _learned(
    rows: Sequence[tuple[str, ...]], truth: Floats, shares: Floats, names: Iterable[str], strength: float, most: int
) -> tuple[int, dict[str, int]]:
    """The bias and the weights in hundredths, for the features that affect the most examples; the others are left
    out."""
    table = _table(rows, names)
    _, weights = _fit(table, truth, shares, strength)
    often = np.bincount(table.cells, minlength=len(table.names))
    pull = np.abs(weights) * np.sqrt(often)
    chosen = [table.names[number] for number in np.argsort(-pull, kind="stable")[:most]]
    table = _table(rows, chosen)
    bias, weights = _fit(table, truth, shares, strength)
    hundredths = np.rint(weights * 100).astype(int)
    return round(bias * 100), {
        name: int(weight) for name, weight in zip(table.names, hundredths, strict=True) if weight
    }


def learn(known: Sequence[Example], keep_from: float = 0.5, data: str = "") -> Model:
    """The model of these examples."""
    dialogues: dict[str, set[str]] = {}
    for example in known:
        for name in example.seen:
            dialogues.setdefault(name, set()).add(example.dialogue)
    names = [name for name, of in dialogues.items() if len(of) >= _LEAST_DIALOGUES]
    truth = np.array([bool(example.marks) for example in known], np.float64)
    shares = np.array([example.share for example in known], np.float64)
    stressed = shares * np.array([_TALK_SHARE if example.talk else 1.0 for example in known])
    seen = [example.seen for example in known]
    _, weights = _learned(seen, truth, stressed, names, _STRENGTH, _MOST)
    bias = _fair_bias(seen, truth, shares, weights)
    stating = [example for example in known if example.marks]
    rows = [example.seen for example in stating]
    type_bias: dict[str, float] = {}
    type_weights: dict[str, Mapping[str, float]] = {}
    for kind in TYPES:
        truth = np.array([any(mark.type == kind for mark in example.marks) for example in stating], np.float64)
        of_type, held = _learned(rows, truth, np.ones(len(rows)), names, _TYPE_STRENGTH, _MOST_OF_TYPE)
        type_bias[kind] = of_type / 100
        type_weights[kind] = {name: weight / 100 for name, weight in held.items()}
    parts = [(part, one) for example in stating for part, one in _parts(example)]
    often = Counter(name for seen, _ in parts for name in seen)
    point_bias, point_weights = _learned(
        [seen for seen, _ in parts],
        np.array([holds for _, holds in parts], np.float64),
        np.ones(len(parts)),
        [name for name, times in often.items() if times >= _LEAST_CLAUSES],
        _POINT_STRENGTH,
        _MOST_OF_POINT,
    )
    choice_bias, choice_weights = _learned_choices(known, names)
    return Model(
        bias / 100,
        {name: weight / 100 for name, weight in weights.items()},
        type_bias,
        type_weights,
        point_bias / 100,
        {name: weight / 100 for name, weight in point_weights.items()},
        choice_bias / 100,
        {name: weight / 100 for name, weight in choice_weights.items() if not name.startswith(_CLAUSE)},
        {
            name.removeprefix(_CLAUSE): weight / 100
            for name, weight in choice_weights.items()
            if name.startswith(_CLAUSE)
        },
        keep_from,
        data,
    )


def _fair_bias(rows: Sequence[tuple[str, ...]], truth: Floats, shares: Floats, weights: Mapping[str, int]) -> int:
    """The bias in hundredths with which the probabilities are right on average.

    The higher weight of small talk changes the weights; without this correction it would also lower every
    probability.
    """
    table = _table(rows, weights)
    scores = table.scores(np.array([weights[name] / 100 for name in table.names]))
    low, high = -20.0, 20.0
    while high - low > 1e-4:
        bias = (low + high) / 2
        expected = 1.0 / (1.0 + np.exp(-(bias + scores)))
        low, high = (low, bias) if shares @ expected > shares @ truth else (bias, high)
    return round(low * 100)


def _learned_choices(known: Sequence[Example], names: Sequence[str]) -> tuple[int, dict[str, int]]:
    """The weights that distinguish the clauses that a summary should choose, for the statement and for the clause."""
    rows: list[tuple[str, ...]] = []
    truth: list[bool] = []
    shares: list[float] = []
    dialogues: dict[str, set[str]] = {}
    for example in known:
        parts = cuts(example.statement)
        of_parts = [example.seen] if len(parts) == 1 else features(parts)
        for part, seen in zip(parts, of_parts, strict=True):
            own = tuple(_CLAUSE + name for name in seen)
            for name in own:
                dialogues.setdefault(name, set()).add(example.dialogue)
            rows.append(example.seen + own)
            truth.append(any(mark.kept_in(part.text) for mark in example.wanted))
            shares.append(example.share)
    of_clauses = [name for name, of in dialogues.items() if len(of) >= _LEAST_DIALOGUES]
    return _learned(
        rows,
        np.array(truth, np.float64),
        np.array(shares, np.float64),
        [*names, *of_clauses],
        _CHOICE_STRENGTH,
        _MOST_OF_CHOICE,
    )


def _parts(example: Example) -> list[tuple[tuple[str, ...], bool]]:
    """The clauses of a statement with several, and whether each alone has all the keys of a mark."""
    parts = cuts(example.statement)
    if len(parts) == 1:
        return []
    return [
        (seen, any(mark.kept_in(part.text) for mark in example.marks))
        for part, seen in zip(parts, features(parts), strict=True)
    ]


def write(learned: Model, path: Path) -> None:
    held = {
        "data": learned.data,
        "keep_from": learned.keep_from,
        "bias": round(learned.bias * 100),
        "weights": _in_hundredths(learned.weights),
        "type_bias": _in_hundredths(learned.type_bias),
        "type_weights": {kind: _in_hundredths(weights) for kind, weights in learned.type_weights.items()},
        "point_bias": round(learned.point_bias * 100),
        "point_weights": _in_hundredths(learned.point_weights),
        "choice_bias": round(learned.choice_bias * 100),
        "choice_weights": _in_hundredths(learned.choice_weights),
        "clause_weights": _in_hundredths(learned.clause_weights),
    }
    path.write_text(json.dumps(held, ensure_ascii=False, separators=(",", ":"), indent=None) + "\n", "utf-8")


def _in_hundredths(weights: Mapping[str, float]) -> dict[str, int]:
    return {name: round(weight * 100) for name, weight in sorted(weights.items())}


# --- leaving dialogues out ---------------------------------------------------------------------------------


def is_talk(dialogue: Dialogue) -> bool:
    """Whether a dialogue is used for measuring. Notes, plain statements, brief talks and chatter are only for
    learning.

    Notes and plain statements would make the figures look better. In the brief talks few borderline facts are marked,
    so they would make precision look worse than it is. Chatter was written as a contrast to facts.
    """
    return not _is_one_of(dialogue, "notes", "plain", "brief", "chatter")


def _is_one_of(dialogue: Dialogue, *kinds: str) -> bool:
    return any(f"_{kind}_" in dialogue.id for kind in kinds)


def folds(dialogues: Sequence[Dialogue], count: int) -> list[list[Dialogue]]:
    """The dialogues in this many groups, with each language spread over all of them."""
    shuffled = np.random.default_rng(_SHUFFLE).permutation(len(dialogues))
    by_language = sorted((dialogues[number] for number in shuffled), key=lambda dialogue: dialogue.id[:2])
    return [by_language[number::count] for number in range(count)]


def unseen(dialogues: Sequence[Dialogue], count: int) -> list[tuple[Model, list[Dialogue]]]:
    """For each fold, the model of the other dialogues, and the dialogues it has not seen."""
    parts = folds(dialogues, count)
    of_part = [examples(part) for part in parts]
    return [
        (learn([one for other in of_part if other is not known for one in other]), part)
        for part, known in zip(parts, of_part, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Judged:
    """An example that the model had not seen, and the model's judgement."""

    example: Example
    worth: float


def judged(learned: Model, dialogues: Iterable[Dialogue]) -> list[Judged]:
    """The model's judgement of the statements that can be facts, each within its turn."""
    found = []
    for _, turn in groupby(examples(dialogues), lambda example: (example.dialogue, example.turn)):
        together = [*turn]
        stating = [one for one in together if may_state(one.statement, one.role == "assistant")]
        assessed = [
            Assessment(one.statement, one.seen, probability(learned.bias, learned.weights, one.seen))
            for one in stating
        ]
        worths = {
            id(one): judgement.worth
            for one, judgement in zip(stating, in_company(assessed, len(together) - len(stating)), strict=True)
        }
        found += [Judged(one, worths.get(id(one), 0.0)) for one in together]
    return found


def threshold(judged: Sequence[Judged], precision: float) -> float:
    """The lowest worth above which the share of statements with a mark is at least this."""
    ordered = sorted(judged, key=lambda one: -one.worth)
    right = 0
    found = 1.0
    for number, one in enumerate(ordered, 1):
        right += bool(one.example.marks)
        if right / number >= precision:
            found = one.worth
    return found


# --- the report --------------------------------------------------------------------------------------------


def _shares(judged: Sequence[Judged], asked: Mapping[tuple[str, str], str], keep_from: float) -> tuple[float, float]:
    kept = [one for one in judged if one.worth >= keep_from]
    right = sum(bool(one.example.marks) for one in kept)
    found = {
        (one.example.dialogue, mark.id) for one in kept for mark in one.example.marks if not mark.minor
    } & asked.keys()
    return right / max(1, len(kept)), len(found) / max(1, len(asked))


def report_facts(held_out: Sequence[tuple[Model, Sequence[Dialogue]]]) -> dict[str, Any]:
    """The facts of `FactExtractor` in dialogues from which its weights were not learned; also for the documents."""
    kept: dict[str, Any] = {}
    readings = []
    seconds = 0.0
    for learned, part in held_out:
        extractor = FactExtractor(weights=learned)
        for turn, before in (pair for dialogue in part for pair in with_the_turn_before(dialogue)):
            began = thread_time()
            claims = extracted(turn, before, extractor)
            seconds += thread_time() - began
            readings.append(compared(turn, claims))
    print(f"\n  {'facts of unseen':<16}{'facts':>8}{'precision':>11}{'recall':>9}{'length':>8}")
    for name, language in (("all", None), *((name, language) for language, name in LANGUAGES.items())):
        here = [one for one in readings if language in (None, one.utterance.language)]
        claims = [claim for one in here for claim in (*one.right, *one.wrong)]
        right, found = sum(len(one.right) for one in here), sum(len(one.found_of_those) for one in here)
        asked = sum(len(one.asked_for) for one in here)
        kept[name] = {"precision": right / max(1, len(claims)), "recall": found / max(1, asked)}
        print(
            f"  {name:<16}{len(claims):>8,}{kept[name]['precision']:>11.1%}{kept[name]['recall']:>9.1%}"
            f"{sum(len(claim.content) for claim in claims) / max(1, len(claims)):>8.0f}"
        )
    talk = [one for one in readings if not one.utterance.marks and one.utterance.small_talk]
    print(f"  out of {len(talk):,} turns of small talk: {sum(one.claims for one in talk):,}")
    letters = sum(len(one.utterance.text) for one in readings)
    print(f"  CPU {1e3 * seconds / len(readings):.2f} ms a turn of {letters / len(readings):.0f} characters")
    return kept | {
        "talk": {"turns": len(talk), "facts": sum(one.claims for one in talk)},
        "cpu_ms": 1e3 * seconds / len(readings),
        "letters": letters / len(readings),
    }


def report_summaries(held_out: Sequence[tuple[Model, Sequence[Dialogue]]], share: float = 0.1) -> dict[str, float]:
    """The facts that survive in summaries of unseen dialogues, compared with first sentences, a random choice and a
    choice that knows the marks."""
    survived: dict[str, Counter[str]] = {name: Counter() for name in ("loom", "first", "random", "knows")}
    marked: Counter[str] = Counter()
    random = np.random.default_rng(_SHUFFLE)
    for learned, part in held_out:
        for dialogue in part:
            facts = [fact for fact in distinct(dialogue) if fact.type in DESIGNATED and not fact.stale]
            budget = int(share * sum(default_counter().count(turn.text) for turn in dialogue.utterances))
            pieces = [piece for turn in dialogue.utterances for piece in sentences(turn.text)]
            texts = {
                "loom": _summary(dialogue, budget, learned),
                "first": chosen(pieces, range(len(pieces)), budget),
                "random": chosen(pieces, [int(number) for number in random.permutation(len(pieces))], budget),
                "knows": chosen(pieces, knowing(pieces, distinct(dialogue), budget), budget),
            }
            for group in ("all", dialogue.id[:2], *DESIGNATED):
                here = [fact for fact in facts if group in ("all", dialogue.id[:2], fact.type)]
                marked[group] += len(here)
                for name, text in texts.items():
                    survived[name][group] += sum(fact.kept_in(text) for fact in here)
    print(f"\n  survive at {share:.0%}   " + "".join(f"{group:>10}" for group in marked))
    print(f"  {'facts':<16}" + "".join(f"{count:>10,}" for count in marked.values()))
    for name, kept in survived.items():
        print(f"  {name:<16}" + "".join(f"{kept[group] / max(1, marked[group]):>10.1%}" for group in marked))
    return {name: kept["all"] / max(1, marked["all"]) for name, kept in survived.items()}


def _summary(dialogue: Dialogue, budget: int, learned: Model) -> str:
    turns = [Turn(turn.id, turn.text, turn.speaker, turn.role, turn.at) for turn in dialogue.utterances]
    return Summarizer(weights=learned).summarize(turns, budget=budget).text


def _measured(dialogues: Sequence[Dialogue], count: int) -> tuple[float, dict[str, Any]]:
    """The threshold for unseen dialogues, and the quality of models on dialogues that they have not seen."""
    held_out = unseen(dialogues, count)
    found = [one for learned, part in held_out for one in judged(learned, filter(is_talk, part))]
    keep_from = round(threshold(found, PRECISION), 3)
    report([*filter(is_talk, dialogues)], found, keep_from)
    talk = [(learned._replace(keep_from=keep_from), [*filter(is_talk, part)]) for learned, part in held_out]
    return keep_from, {"facts": report_facts(talk), "summaries": report_summaries(talk), "keep_from": keep_from}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.statement_classifier", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--write", action="store_true", help="learn from all dialogues and write classifier.json")
    parser.add_argument("--folds", type=int, default=8, help="how often dialogues are left out (default 8)")
    parser.add_argument("--keep-from", type=float, help="leave no dialogues out, and write this threshold")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    dialogues = load(DEVELOPMENT)
    keep_from = options.keep_from
    if keep_from is None:
        keep_from, figures_of = _measured(dialogues, options.folds)
        if options.save:
            figures.save("statement_classifier", sys.argv[1:] if arguments is None else arguments, figures_of)
    if options.write:
        learned = learn(examples(dialogues), keep_from, checksum(DEVELOPMENT))
        write(learned, WEIGHTS_FILE)
        print(f"\n  wrote {len(learned.weights):,} weights, {WEIGHTS_FILE.stat().st_size:,} bytes")
    return 0


def report(dialogues: Sequence[Dialogue], found: Sequence[Judged], keep_from: float) -> None:
    asked = {
        (dialogue.id, mark.id): mark.type
        for dialogue in dialogues
        for turn in dialogue.utterances
        for mark in turn.marks
        if not mark.minor
    }
    print(
        f"  {len(dialogues)} dialogues, {len(found):,} statements, {len(asked):,} marks, "
        f"sha256 {checksum(DEVELOPMENT)}\n  left out of learning, kept from {keep_from}:"
    )
    print(f"\n  {'':<16}{'marks':>8}{'precision':>11}{'recall':>9}")
    for name, begins in (("all", ""), *((name, language) for language, name in LANGUAGES.items())):
        part = [one for one in found if one.example.dialogue.startswith(begins)]
        of = {key: kind for key, kind in asked.items() if key[0].startswith(begins)}
        precision, recall = _shares(part, of, keep_from)
        print(f"  {name:<16}{len(of):>8,}{precision:>11.1%}{recall:>9.1%}")
    for kind in TYPES:
        of = {key: type_ for key, type_ in asked.items() if type_ == kind}
        print(f"  {kind:<16}{len(of):>8,}{'':>11}{_shares(found, of, keep_from)[1]:>9.1%}")
    print("\n  how sure and how often right")
    for low in np.arange(0.0, 1.0, 0.1):
        part = [one for one in found if low <= one.worth < low + 0.1]
        right = sum(bool(one.example.marks) for one in part) / max(1, len(part))
        print(f"  {low:.1f} to {low + 0.1:.1f}{len(part):>13,}{right:>11.1%}")


if __name__ == "__main__":
    sys.exit(main())
