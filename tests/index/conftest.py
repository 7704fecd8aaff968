"""What several tests of the indexes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loom.index import text_index, vector_index
from loom.index.kernels import KERNELS


@pytest.fixture(scope="module", params=["kernels", "numpy"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test of the module once with the compiled kernels and once without them."""
    if request.param == "kernels" and KERNELS is None:
        pytest.skip("this installation has no compiled kernels")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(text_index, "KERNELS", None)
            patch.setattr(vector_index, "KERNELS", None)
        yield
