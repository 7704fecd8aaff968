"""An archive that a few hundred records fill with several blocks.

A real one has blocks of 64 KB. What holds for blocks does not depend on their size, and stores of earlier releases
have blocks of this one.
"""

from __future__ import annotations

from typing import Final

from loom.storage.sqlite.maintenance import WorkLimits

__all__ = ["SMALL"]

SMALL: Final = WorkLimits(block_bytes=32 * 1024)
