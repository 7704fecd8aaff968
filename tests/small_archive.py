"""An archive that a few hundred records fill: several blocks, and a dictionary for them.

A real one has blocks of 64 KB and a dictionary from a megabyte on. What holds for blocks and dictionaries does not
depend on their size, and stores of earlier releases have blocks of this one.
"""

from __future__ import annotations

from typing import Final

from loom.storage.sqlite.archive import ArchiveLimits
from loom.storage.sqlite.maintenance import WorkLimits

__all__ = ["SMALL"]

SMALL: Final = WorkLimits(
    archive=ArchiveLimits(block_bytes=32 * 1024, dictionary_from=128 * 1024, dictionary_share=16)
)
