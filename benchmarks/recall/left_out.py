"""Whether the weights and rules of recall hold on a kind of data that was not used to choose them.

Each rule is measured with a few values: the first switches it off, and one is that of the package. For each kind of
data, `chosen` returns the value that is best on all other kinds, and the tables show what it brings on the kind that
was left out, against the value that switches the rule off. The other rules keep their values meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.figures import ROOT, save
from benchmarks.recall.data import Dialogue, some_of
from benchmarks.recall.measures import MEASURES, paired
from benchmarks.recall.report import without_option
from benchmarks.recall.sides import SharedEmbedder, fill, prompted, recall_side
from loom.everyday import Memory
from loom.recall import addressing, conditions, conversation, feedback, questions, relevance, search
from loom.recall.questions import ANSWERS, SEVERAL_PLACES, TITLES
from loom.recall.relevance import Weights
from loom.text import time_terms, words

__all__ = [
    "KINDS",
    "RULES",
    "Rule",
    "chosen",
    "in_force",
    "measure_kind",
    "measure_together",
    "save_kinds",
    "saved_kinds",
    "tables",
    "together",
    "value_of_package",
]

_RESULTS = ROOT / "benchmarks" / "results"
_NAME = "recall-left-out"
KINDS: Mapping[str, tuple[str, ...]] = {
    "LoCoMo": ("locomo",),
    "REALTALK": ("realtalk",),
    "BEAM": ("beam",),
    "agents": ("agent", "agents"),
    "Chinese": ("chinese", "chinese-check"),
    "Chinese, assistant": ("chinese-assistant",),
}
"""The kinds of data with their sets."""

# No value is chosen on this set; its questions count where the Chinese dialogues are left out.
_NEVER_CHOSEN_ON = "chinese-check"
_LIMIT = 10
_BUDGET = 2_000
_IN_PROMPT = MEASURES.index(f"evidence {_BUDGET // 1000}K")
# Prompts are built for at most this many questions of each kind of question in a set: they take four times as long.
_ASKED = 12

# Weights that divide cannot be 0.
_NEARLY_0 = 1e-5

Floats = npt.NDArray[np.float64]
Setting = tuple[ModuleType, str, object]
"""A module, the name of a constant or function in it, and its value."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with the settings of each value that is tried. The first value switches it off."""

    name: str
    values: Mapping[str, tuple[Setting, ...]]

    @property
    def off(self) -> str:
        return next(iter(self.values))


def _weight(name: str, *values: float) -> Rule:
    return Rule(
        f"weight of {name}",
        {f"{value:g}": ((feedback, "_DEFAULT", replace(Weights(), **{name: value})),) for value in (0.0, *values)},
    )


def _constant(name: str, module: ModuleType, constant: str, *values: float) -> Rule:
    return Rule(name, {f"{value:g}": ((module, constant, value),) for value in values})


def _switch(name: str, *off: Setting) -> Rule:
    return Rule(name, {"off": off, "on": ()})


def _shorter(patterns: Mapping[str, re.Pattern[str]], *parts: str) -> dict[str, re.Pattern[str]]:
    """These patterns without the given parts of them."""
    texts = {mark: pattern.pattern for mark, pattern in patterns.items()}
    for part in parts:
        texts = {mark: text.replace(part, "") for mark, text in texts.items()}
    return {mark: re.compile(text, patterns[mark].flags) for mark, text in texts.items()}


RULES: Sequence[Rule] = (
    _weight("words", 0.7, 1.0),
    _weight("synonyms", 0.6, 0.9),
    _weight("context", 0.7, 1.0),
    _weight("meaning", 0.6, 0.9),
    _weight("speaker", 0.35, 0.45, 0.6),
    _weight("role", 0.3, 0.45),
    _weight("time", 0.25, 0.45),
    _weight("links", 0.1),
    _weight("telling", 0.1),
    _weight("dated", 0.1),
    _weight("answer", 0.25, 0.35),
    _weight("substance", 0.15),
    _weight("importance", 0.05),
    _weight("recency", 0.05),
    _weight("order", 0.2),
    _weight("passages", 1.0),
    _weight("parts", 1.0),
    _weight("spread", 0.2),
    _constant("weight of words that relate things", questions, "_LIGHT_WEIGHT", 1.0, 0.15, 0.3, 0.5),
    _constant("weight of such words in Chinese", words, "_LIGHT_WEIGHT", 1.0, 0.3),
    _constant("weight of a question's frame", questions, "_FRAME_WEIGHT", 1.0, 0.2),
    _constant("weight of the words of a date", questions, "_RELATIVE_WEIGHT", 1.0, 0.2),
    _switch("the days after a date", (time_terms, "_TOLD_LATER", ()), (time_terms, "_SAME_MONTH", _NEARLY_0)),
    _constant("share of a speaker named second", relevance, "_NOT_SUBJECT", 1.0, 0.7, 0.4),
    _constant("share of a turn about the listener", relevance, "_OF_ANOTHER", 1.0, 0.7),
    _constant("weight of a speaker's name in a text", relevance, "_MENTIONED", 1.0, 0.3),
    _switch("names that others use", (addressing, "_FEWEST_SURE", 1 << 30)),
    _switch("question embedded without names", (search, "_speakers", lambda store, asked: frozenset())),
    _switch("names for titles and cities", (questions, "ANSWERS", _shorter(ANSWERS, TITLES, SEVERAL_PLACES))),
    _switch("questions that want many", (questions, "wants_many", lambda text: False)),
    Rule(
        "candidates and seeds in small stores",
        {
            f"{count} and {seeds}": (
                (search, "_FEWEST_IN_SMALL", count),
                (search, "_FEWEST_SEEDS_IN_SMALL", seeds),
            )
            for count, seeds in ((30, 10), (100, 30))
        },
    ),
    _constant("share of a text that only asks", relevance, "_ASKING", 1.0, 0.7),
    _constant("share of roles not referred to", relevance, "_ANY_ROLE", 0.0, 0.6),
    _constant("factor of the role for many memories", relevance, "_MANY_ROLE", 1.0, 2.5),
    _constant("meaning beside all words", relevance, "_LEAST_TRUST", 1.0, 0.5),
    _switch("meaning that agrees with words", (relevance, "_agreement", lambda found: 1.0)),
    Rule(
        "meaning of the turns around",
        {
            f"{share:g}": ((relevance, "_MEANT_BEFORE", share), (relevance, "_MEANT_AFTER", share))
            for share in (0.0, 0.3)
        },
    ),
    Rule(
        "words of the turns before and after",
        {
            f"{back:g} and {ahead:g}": ((relevance, "_BACK", back), (relevance, "_AHEAD", ahead))
            for back, ahead in ((0.6, 0.6), (0.7, 0.5))
        },
    ),
    _constant("closeness of turns of one speaker", conversation, "_MONOLOGUE", 1.0, 0.5),
    Rule(
        "links over sessions and speakers",
        {
            "off": ((relevance, "_SESSION", _NEARLY_0), (relevance, "_SPEAKER", _NEARLY_0)),
            "1 and 0.3": ((relevance, "_SESSION", 1.0), (relevance, "_SPEAKER", 0.3)),
        },
    ),
    _constant("share of an acknowledgement", search, "_FILLER", 1.0, 0.3),
    _constant("weight of a quoted phrase", search, "_PHRASE", 0.0, 0.3),
    _switch("instructions that are raised", (conditions, "_MOST_TURNS", 0)),
)


@contextmanager
def in_force(settings: Sequence[Setting]) -> Iterator[None]:
    """A block in which recall has these settings."""
    before = [(module, name, getattr(module, name)) for module, name, _ in settings]
    try:
        for module, name, value in settings:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def value_of_package(rule: Rule) -> str:
    """The value with the settings of the package. Raises ValueError if it is none of those that are tried."""
    for value, settings in rule.values.items():
        if all(getattr(module, name) == given for module, name, given in settings):
            return value
    raise ValueError(f"{rule.name!r} has another value in the package than {', '.join(rule.values)}")


def measure_kind(
    sets: Mapping[str, Sequence[Dialogue]], provider: SharedEmbedder | None, rules: Sequence[Rule] = RULES
) -> dict[str, Any]:
    """The means of each set of a kind with each value of each rule, and the gains of the kind against the value that
    switches the rule off: recall@10, and the evidence in prompts."""
    variations = {("", ""): ()} | {
        (rule.name, value): settings
        for rule in rules
        for value, settings in rule.values.items()
        if value != value_of_package(rule)
    }
    found = {name: _measured(dialogues, provider, variations) for name, dialogues in sets.items()}
    for of_set in found.values():
        of_set.update({(rule.name, value_of_package(rule)): of_set["", ""] for rule in rules})
    return {
        "questions": {name: [len(one) for one in of_set["", ""]] for name, of_set in found.items()},
        "rules": {
            rule.name: {
                value: {
                    "means": {
                        name: [_per_cent(one) for one in of_set[rule.name, value]] for name, of_set in found.items()
                    },
                    "gains": _gains(found, (rule.name, value), (rule.name, rule.off)),
                }
                for value in rule.values
            }
            for rule in rules
        },
    }


def measure_together(
    sets: Mapping[str, Sequence[Dialogue]], provider: SharedEmbedder | None, settings: Sequence[Setting]
) -> list[list[float]]:
    """The gains of these settings on a kind against those of the package."""
    variations = {("", ""): (), ("together", ""): settings}
    found = {name: _measured(dialogues, provider, variations) for name, dialogues in sets.items()}
    return _gains(found, ("together", ""), ("", ""))


_Place = tuple[str, str]
_Found = dict[_Place, tuple[Floats, Floats]]


def _gains(found: Mapping[str, _Found], place: _Place, other: _Place) -> list[list[float]]:
    """The gains with one variation against another in recall@10 and in prompts, each with its interval."""
    return [
        list(paired(np.concatenate([of_set[place][at] - of_set[other][at] for of_set in found.values()])))
        for at in (0, 1)
    ]


def _measured(
    dialogues: Sequence[Dialogue], provider: SharedEmbedder | None, variations: Mapping[_Place, Sequence[Setting]]
) -> _Found:
    """For each variation, recall@10 of every question and the evidence in the prompts of some."""
    recalled: dict[_Place, list[float]] = {place: [] for place in variations}
    in_prompts: dict[_Place, list[float]] = {place: [] for place in variations}
    for dialogue, of_prompts in zip(dialogues, some_of(dialogues, _ASKED), strict=True):
        with fill(dialogue, "none" if provider is None else provider) as memory:
            for place, settings in variations.items():
                with in_force(settings):
                    recalled[place] += _recalled(memory, dialogue)
                    in_prompts[place] += _quoted(memory, of_prompts)
            now = _quoted(memory, of_prompts)
            if now != in_prompts["", ""][len(in_prompts["", ""]) - len(now) :]:
                raise SystemExit("the prompts of one variation changed those of others")  # they count as uses
        print(f"  {dialogue.name}: {len(dialogue.questions)} questions, {len(variations)} variations", flush=True)
    return {place: (np.array(recalled[place]), np.array(in_prompts[place])) for place in variations}


def _recalled(memory: Memory, dialogue: Dialogue) -> list[float]:
    rank = recall_side(memory, None, _LIMIT)
    found = [frozenset(rank(question.text)) for question in dialogue.questions]
    return [
        float(np.mean([id in hits for id in question.evidence]))
        for question, hits in zip(dialogue.questions, found, strict=True)
    ]


def _quoted(memory: Memory, dialogue: Dialogue) -> list[float]:
    return [outcome.values[_IN_PROMPT] for outcome in prompted(memory, dialogue, (_BUDGET,))]


def _per_cent(values: Floats) -> float:
    return round(100 * float(values.mean()), 3)


def chosen(kinds: Mapping[str, Any], rule: Rule, left_out: str) -> str:
    """The value that is best on the other kinds: by the mean of recall@10 and the evidence in prompts, each set with
    the same weight. Of equals, the first."""
    means = {
        value: np.mean(
            [
                shares
                for kind, measured in kinds.items()
                if kind != left_out
                for name, shares in measured["rules"][rule.name][value]["means"].items()
                if name != _NEVER_CHOSEN_ON
            ]
        )
        for value in rule.values
    }
    return max(means, key=lambda value: float(means[value]))


def together(kinds: Mapping[str, Any], left_out: str, rules: Sequence[Rule] = RULES) -> list[Setting]:
    """The settings of the values that are chosen for all rules without a kind."""
    settings: dict[tuple[ModuleType, str], object] = {}
    default = Weights()
    for rule in rules:
        for module, name, value in rule.values[chosen(kinds, rule, left_out)]:
            if isinstance(value, Weights):
                known = settings.get((module, name), default)
                assert isinstance(known, Weights)
                changed = {one.name: getattr(value, one.name) for one in fields(value)}
                value = replace(known, **{one: new for one, new in changed.items() if new != getattr(default, one)})
            settings[module, name] = value
    return [(module, name, value) for (module, name), value in settings.items()]


def saved_kinds(folder: Path = _RESULTS) -> dict[str, Any]:
    """The measured kinds of the last saved run, by name."""
    file = folder / f"{_NAME}.json"
    if not file.exists():
        return {}
    return {one["kind"]: one for one in json.loads(file.read_text(encoding="utf-8"))["figures"]["kinds"]}


def save_kinds(
    kinds: Mapping[str, Any], arguments: Sequence[str], rules: Sequence[Rule] = RULES, *, folder: Path = _RESULTS
) -> None:
    """Save these kinds with the saved ones of others, and the tables of all of them."""
    known = saved_kinds(folder) | {name: {"kind": name, **measured} for name, measured in kinds.items()}
    known = {name: known[name] for name in KINDS if name in known}
    figures: dict[str, Any] = {"kinds": list(known.values())}
    if len(known) > 1:
        figures |= {"tables": tables(known, rules), "effects": _effects(known, rules)}
    command = [*without_option(arguments, "--sets"), "--sets", *(name for kind in known for name in KINDS[kind])]
    save(_NAME, command, figures, folder=folder)


_MEASURED = ("recall@10", "prompts")
_AT_ONCE = tuple(f"all at once, {one}" for one in _MEASURED)


def tables(kinds: Mapping[str, Any], rules: Sequence[Rule] = RULES) -> dict[str, list[list[str]]]:
    """The tables for the documents: of each kind left out, and of each rule."""
    by_kind = [["left out", "rules that gain", "within the interval", "rules that lose", *_AT_ONCE]]
    for kind, measured in kinds.items():
        gains = {rule.name: measured["rules"][rule.name][chosen(kinds, rule, kind)]["gains"] for rule in rules}
        lose = {
            name: [of for of, (_, _, high) in zip(_MEASURED, both, strict=True) if high < 0.0]
            for name, both in gains.items()
        }
        named = ", ".join(f"{name} ({', '.join(of)})" for name, of in lose.items() if of)
        gaining = [name for name, both in gains.items() if not lose[name] and any(low > 0.0 for _, low, _ in both)]
        within = len(gains) - len(gaining) - sum(map(bool, lose.values()))
        at_once = [_spoken(gain) for gain in measured.get("together", [])] or [""] * len(_AT_ONCE)
        by_kind.append([kind, str(len(gaining)), str(within), named or "none", *at_once])
    header = ["rule", "off", "package", *kinds]
    rows: tuple[list[list[str]], ...] = ([header], [header])
    for rule in rules:
        values = {kind: chosen(kinds, rule, kind) for kind in kinds}
        for at, table in enumerate(rows):
            cells = [
                f"{value}: {_spoken(kinds[kind]['rules'][rule.name][value]['gains'][at])}"
                for kind, value in values.items()
            ]
            table.append([rule.name, rule.off, value_of_package(rule), *cells])
    return {"kinds": by_kind, "recall": rows[0], "prompts": rows[1]}


def _effects(kinds: Mapping[str, Any], rules: Sequence[Rule]) -> dict[str, int]:
    """The number of effects on the kinds left out that differ from zero, and of those beyond the interval."""
    effects = [
        gain
        for kind, measured in kinds.items()
        for rule in rules
        for gain in measured["rules"][rule.name][chosen(kinds, rule, kind)]["gains"]
        if any(gain)
    ]
    above, below = (
        sum(beyond) for beyond in ((low > 0.0 for _, low, _ in effects), (high < 0.0 for _, _, high in effects))
    )
    return {"all": len(effects), "above": above, "below": below}


def _spoken(gain: Sequence[float]) -> str:
    mean, low, high = gain
    if not (mean or low or high):
        return "0"
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f}{', loses' if high < 0.0 else ''})"
