"""Another program removes, cuts or replaces files between two operations: nothing is lost without an error.

Lost index files are built again. A store that is gone or damaged is an error of ours, or a problem that `check()`
names; what is acknowledged after that is there when the file is opened again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.faults.injection import Nursery, what_is_wrong
from tests.faults.operations import HARMS, OPERATIONS

OFTEN = ("remember", "flush", "forget", "snapshot")  # the others wait for `make soak`

BROKEN: dict[tuple[str, str], str] = {}
"""Promises that are not kept yet."""


def cases() -> Iterator[ParameterSet]:
    for operation, harm in product(OPERATIONS, HARMS):
        marks = [] if operation in OFTEN else [pytest.mark.soak]
        if reason := BROKEN.get((harm, operation)):
            marks.append(pytest.mark.xfail(strict=True, reason=reason))
        yield pytest.param(operation, harm, marks=marks, id=f"{operation}-{harm}")


@pytest.mark.parametrize(("operation", "harm"), list(cases()))
def test_files_harmed_before_an_operation(
    nursery: Nursery, template: Path, tmp_path: Path, operation: str, harm: str
) -> None:
    folder = shutil.copytree(template, tmp_path / "case")
    assert list(what_is_wrong(nursery, folder, operation, harm=harm)) == []
