"""The left-out protocol: rules are switched and restored, chosen on other kinds of data, and judged on their own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recall.data import Dialogue, Question, Turn
from benchmarks.recall.left_out import (
    KINDS,
    RULES,
    Rule,
    chosen,
    in_force,
    measure_kind,
    save_kinds,
    saved_kinds,
    tables,
    together,
    value_of_package,
)
from loom.recall import relevance
from loom.recall.relevance import Weights

SYNONYMS = next(rule for rule in RULES if rule.name == "weight of synonyms")
SPEAKER = next(rule for rule in RULES if rule.name == "weight of speaker")
MORNING = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_a_value_that_switches_it_off_and_that_of_the_package(rule: Rule) -> None:
    assert value_of_package(rule) != rule.off
    with in_force(rule.values[rule.off]):
        assert value_of_package(rule) == rule.off


def test_a_rule_whose_value_was_changed_in_the_package_is_an_error() -> None:
    with (
        in_force([(relevance, "_NOT_SUBJECT", 0.123)]),
        pytest.raises(ValueError, match="share of a speaker named second"),
    ):
        list(map(value_of_package, RULES))


def test_settings_end_with_their_block() -> None:
    with in_force(SPEAKER.values["0"]):
        assert value_of_package(SPEAKER) == "0"
    with pytest.raises(KeyError), in_force(SPEAKER.values["0"]):
        raise KeyError
    assert value_of_package(SPEAKER) == f"{Weights().speaker:g}"


def measured(means: dict[str, list[float]], gains: dict[str, list[list[float]]] | None = None) -> dict[str, Any]:
    """A kind of one set with the means and the gains of each value of one rule."""
    nothing = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    return {
        "questions": {"set": [20, 10]},
        "rules": {
            SPEAKER.name: {
                value: {
                    "means": {"set": means.get(value, [0.0, 0.0])},
                    "gains": (gains or {}).get(value, nothing),
                }
                for value in SPEAKER.values
            }
        },
    }


def test_a_value_is_chosen_on_the_other_kinds_by_recall_and_prompts() -> None:
    kinds = {
        "own": measured({"0.6": [100.0, 100.0]}),
        "one": measured({"0.35": [50.0, 60.0], "0.45": [40.0, 40.0]}),
        "two": measured({"0.35": [50.0, 40.0], "0.45": [40.0, 70.0]}),
    }
    assert chosen(kinds, SPEAKER, "own") == "0.35"
    assert chosen(kinds, SPEAKER, "one") == "0.6"
    (setting,) = together(kinds, "own", [SPEAKER])
    assert setting[2] == Weights(speaker=0.35)


def test_of_equal_values_the_rule_is_off() -> None:
    assert chosen({"own": measured({"0.6": [9.0, 9.0]}), "one": measured({})}, SPEAKER, "own") == SPEAKER.off


def test_no_value_is_chosen_on_the_set_that_was_held_back() -> None:
    held_back = measured({"0.6": [100.0, 100.0]})
    for of_value in held_back["rules"][SPEAKER.name].values():
        of_value["means"] = {"chinese-check": of_value["means"]["set"]}
    kinds = {"own": measured({}), "Chinese": held_back, "one": measured({"0.35": [1.0, 1.0]})}
    assert chosen(kinds, SPEAKER, "own") == "0.35"


def test_a_rule_that_loses_beyond_the_interval_is_named() -> None:
    better = {"0.35": [[2.0, 1.0, 3.0], [0.5, -1.0, 2.0]]}
    worse = {"0.35": [[-1.0, -2.0, 1.0], [-2.0, -3.0, -1.0]]}
    means = {"0.35": [1.0, 1.0]}
    found = tables({"one": measured(means, better), "two": measured(means, worse)}, [SPEAKER])
    assert [row[:4] for row in found["kinds"][1:]] == [
        ["one", "1", "0", "none"],
        ["two", "0", "0", "weight of speaker (prompts)"],
    ]
    assert found["recall"][1][3:] == ["0.35: +2.0 (+1.0 to +3.0)", "0.35: -1.0 (-2.0 to +1.0)"]
    assert found["prompts"][1][4] == "0.35: -2.0 (-3.0 to -1.0, loses)"


def test_what_a_rule_brings_is_measured_question_by_question() -> None:
    """The pay is found by another word only."""
    said = ("My pay is 4,000 a month.", "The ferry leaves at nine.")
    turns = tuple(Turn(str(at), None, None, None, MORNING, text) for at, text in enumerate(said))
    questions = (
        Question("How high is the salary?", "other words", ("0",)),
        Question("When does the ferry leave?", "own words", ("1",)),
    )
    found = measure_kind({"talk": [Dialogue("talk", turns, questions)]}, None, [SYNONYMS])
    assert found["questions"] == {"talk": [2, 2]}
    of_rule = found["rules"][SYNONYMS.name]
    assert {value: one["means"]["talk"][0] for value, one in of_rule.items()} == {
        "0": 50.0,
        "0.6": 100.0,
        "0.9": 100.0,
    }
    assert of_rule["0"]["gains"][0] == [0.0, 0.0, 0.0]
    assert of_rule["0.9"]["gains"][0] == [50.0, 0.0, 100.0]


def test_kinds_measured_apart_are_saved_together(tmp_path: Path) -> None:
    names = list(KINDS)[:2]
    for name in reversed(names):
        save_kinds({name: measured({"0.35": [1.0, 1.0]})}, ["--left-out", "--sets", "x"], [SPEAKER], folder=tmp_path)
    assert list(saved_kinds(tmp_path)) == names
    text = (tmp_path / "recall-left-out.json").read_text(encoding="utf-8")
    sets = " ".join(one for name in names for one in KINDS[name])
    assert f'"python -m benchmarks.recall --left-out --sets {sets}"' in text
