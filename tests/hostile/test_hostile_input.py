"""Hostile input gets the right answer or an error of ours; nothing is lost, and time and memory stay within bounds.

`make test` runs the first cases of every fuzzer, the same ones each time; `make soak` the ones that follow, sixty
times as many. A case that broke a promise is named by its number and can be run again alone.
"""

from __future__ import annotations

from itertools import islice

import pytest
from _pytest.mark.structures import ParameterSet

from tests.hostile.sandbox import FUZZERS, broken_promises
from tests.tally import scaled

CASES = {
    "segments": 24,
    "snapshots": 60,
    "forged snapshots": 30,
    "archive blocks": 30,
    "texts": 24,
    "growth": 30,
    "questions": 150,
    "filters": 150,
    "settings": 150,
    "replies": 60,
}
"""How many cases `make test` runs: less than a minute on two cores."""

BROKEN: dict[str, str] = {}
"""Promises that are not kept yet."""

SOAK = 60
SHOWN = 10  # a run ends when this many promises are broken


def marked(fuzzer: str) -> ParameterSet:
    reason = BROKEN.get(fuzzer)
    return pytest.param(fuzzer, marks=[pytest.mark.xfail(strict=True, reason=reason)] if reason else [])


@pytest.mark.parametrize(
    ("first", "times"), [(0, 1), pytest.param(1, SOAK, marks=pytest.mark.soak)], ids=["short", "long"]
)
@pytest.mark.parametrize("fuzzer", [marked(fuzzer) for fuzzer in FUZZERS])
def test_hostile_input_breaks_no_promise(fuzzer: str, first: int, times: int) -> None:
    cases = CASES[fuzzer]
    number = scaled(times * cases) if first else cases
    broken = list(islice(broken_promises(fuzzer, range(first * cases, first * cases + number)), SHOWN))
    assert not broken, "\n".join(broken)
