"""The nursery and the store that every case starts from, once for a run of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.injection import Nursery, build_shim
from tests.faults.operations import make_template


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    shim = build_shim(tmp_path_factory.mktemp("shim"))
    if shim is None:
        pytest.skip("fault injection needs Linux and a C compiler named cc")
    with Nursery(shim) as opened:
        yield opened


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    make_template(folder)
    return folder
