"""System calls fail at every step of every operation: the old or the new state, an error of ours, a store that opens.

`make test` takes a sample that is the same every time; `make soak` takes every call of every kind.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.faults.injection import ACTIONS, Fault, Nursery, what_is_wrong
from tests.faults.operations import OPERATIONS
from tests.tally import scaled

SAMPLE = 12
LASTING = 40  # faults that last begin at no more than this many of the calls of a kind
PAIRS = [(kind, action) for kind, actions in ACTIONS.items() for action in actions]


def every_fault(counts: Mapping[str, int], chance: random.Random) -> Iterator[Fault]:
    """Each action at each call."""
    for kind, action in PAIRS:
        calls = range(1, counts[kind] + 1)
        yield from (Fault(kind, nth, action) for nth in calls)
        if may_last(kind, action):
            yield from (
                Fault(kind, nth, action, lasting=True) for nth in chance.sample(calls, min(len(calls), LASTING))
            )


def some_faults(counts: Mapping[str, int], chance: random.Random) -> Iterator[Fault]:
    """Actions by turns, each at a call somewhere on the way: nearly the same ones if the counts differ a little."""
    while True:
        for kind, action in chance.sample(PAIRS, len(PAIRS)):
            place, lasting = chance.random(), chance.random() < 0.5
            if counts[kind]:
                yield Fault(kind, 1 + int(place * counts[kind]), action, lasting and may_last(kind, action))


def may_last(kind: str, action: str) -> bool:
    """An interrupted call is tried again for ever, and SQLite waits 10 s for a lock that is refused for ever."""
    return kind != "lock" and action != "EINTR"


BROKEN: dict[str, str] = {}
"""Promises that are not kept yet; a sample need not show it."""


def cases() -> Iterator[ParameterSet]:
    for operation in OPERATIONS:
        for most in (SAMPLE, None):
            marks = [] if most else [pytest.mark.soak]
            if operation in BROKEN:
                marks.append(pytest.mark.xfail(strict=most is None, reason=BROKEN[operation]))
            yield pytest.param(operation, most, marks=marks, id=f"{operation}-{'sample' if most else 'all'}")


@pytest.mark.parametrize(("operation", "most"), list(cases()))
def test_a_failing_call_leaves_the_old_or_the_new_state(
    nursery: Nursery, template: Path, tmp_path: Path, operation: str, most: int | None
) -> None:
    def broken(fault: Fault | None) -> list[str]:
        folder = shutil.copytree(template, tmp_path / "case")
        try:
            return [f"{operation}, {fault}: {what}" for what in what_is_wrong(nursery, folder, operation, fault)]
        finally:
            shutil.rmtree(folder)

    assert broken(None) == []
    counted = nursery.ask("act", shutil.copytree(template, tmp_path / "counted"), operation)["counts"]
    chance = random.Random(operation)
    if most is not None:
        faults = list(islice(some_faults(counted, chance), most))
    else:
        every = list(every_fault(counted, chance))
        faults = chance.sample(every, min(len(every), scaled(len(every))))
    assert faults
    wrong = list(chain.from_iterable(map(broken, faults)))
    assert not wrong, f"{len(wrong)} broken promises with {len(faults)} faults:\n" + "\n".join(wrong)
