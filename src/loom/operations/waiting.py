"""Wait for background work that short commands have left, before an answer depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from loom.operations.table import About

if TYPE_CHECKING:
    from loom.everyday import Memory

__all__ = ["Wait", "catch_up"]

Wait = Annotated[
    float,
    About("first wait up to this long for background work", least=0, most=86_400, shown_as="SECONDS", models=False),
]


def catch_up(memory: Memory, wait_s: float) -> None:
    """Wait at most this long until all memories are embedded and derived. A read-only memory does not wait."""
    if wait_s and not memory.settings.read_only:
        memory.flush(wait_s)
