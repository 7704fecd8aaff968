"""System calls fail at every step of every operation: the old or the new state, an error of ours, a store that opens.

`make test` takes a sample that is the same every time; `make soak` takes every call of every kind.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.faults.injection import ACTIONS, Fault, Nursery, what_is_wrong
from tests.faults.operations import OPERATIONS

SAMPLE = 16
# Faults that last are tried from at most this many calls of a kind on. An interrupted call is tried again for ever,
# and SQLite waits 10 s for a lock that is refused for ever, both by design: these never last.
LASTING = 40


def every_fault(counts: Mapping[str, int], chance: random.Random) -> Iterator[Fault]:
    """Each action at each call, in random order, kinds and actions by turns."""
    groups = []
    for kind, actions in ACTIONS.items():
        for action in actions:
            calls = range(1, counts[kind] + 1)
            once = [Fault(kind, nth, action) for nth in calls]
            lasting = [
                Fault(kind, nth, action, lasting=True) for nth in calls if kind != "lock" and action != "EINTR"
            ]
            lasting = chance.sample(lasting, min(len(lasting), LASTING))
            groups.append(chance.sample([*once, *lasting], len(once) + len(lasting)))
    chance.shuffle(groups)
    yield from (fault for fault in chain.from_iterable(zip_longest(*groups)) if fault is not None)


BROKEN = {
    "remember a batch": "a writing connection that SQLite could only open for reading is kept",
    "flush": "OSError where a merged segment cannot be removed",
    "forget": "OSError where segments cannot be listed, looked at or removed",
    "snapshot": "OSError where the target cannot be looked at",
    "restore into a new file": "sqlite3.OperationalError where the new file cannot be opened",
    "restore into a namespace": "OSError and sqlite3.OperationalError of the file that it is prepared in",
    "backup": "the log of an unfinished copy is left behind",
    "vacuum": "OSError where the file cannot be looked at",
    "recall": "OSError, and an error that does not say that a segment cannot be mapped",
    "check": "OSError where segments cannot be listed; a writing connection that may only read is kept",
    "close and open": "OSError where the file cannot be looked at",
}
"""Promises that are not kept yet; a sample shows only some of them."""
SHOWN_BY_SAMPLE = ("forget", "restore into a namespace", "backup", "vacuum", "check")


def cases() -> Iterator[ParameterSet]:
    for operation in OPERATIONS:
        for most in (SAMPLE, None):
            marks = [] if most else [pytest.mark.soak]
            if operation in BROKEN and (most is None or operation in SHOWN_BY_SAMPLE):
                marks.append(pytest.mark.xfail(strict=True, reason=BROKEN[operation]))
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
    faults = list(every_fault(counted, random.Random(operation)))[:most]
    assert faults
    wrong = list(chain.from_iterable(map(broken, faults)))
    assert not wrong, f"{len(wrong)} broken promises with {len(faults)} faults:\n" + "\n".join(wrong)
