"""The fixture that several tests of the indexes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loom.index import kernels


@pytest.fixture(scope="module", params=["kernels", "numpy"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test of the module once with the compiled kernels and once without them."""
    if request.param == "kernels" and kernels.KERNELS is None:
        pytest.skip("this installation has no compiled kernels")
    with kernels.using(kernels.KERNELS if request.param == "kernels" else None):
        yield
