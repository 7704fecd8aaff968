"""What all tests share: which examples property tests try, and what is left out of tests of the store.

The examples are the same ones every time, unless HYPOTHESIS_PROFILE asks for new ones.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def nothing_is_drawn_below_the_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the store count rows and bytes; what a memory draws by itself is no matter of theirs."""
    if request.path.parent.name in ("storage", "stress", "crash"):
        monkeypatch.setenv("LOOM_DERIVE", "false")
