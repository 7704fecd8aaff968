"""An archive that a few hundred records fill: several blocks, and a dictionary for them.

A real one has blocks of 64 KB and a dictionary from a megabyte on. What holds for blocks and dictionaries does not
depend on their size, and stores of earlier releases have blocks of this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from loom.storage.sqlite import archive

__all__ = ["SMALL", "make_small"]

SMALL: Final[Mapping[str, int]] = {
    "BLOCK_BYTES": 32 * 1024,
    "_DICTIONARY_FROM": 128 * 1024,
    "_DICTIONARY_SHARE": 16,
}


def make_small() -> None:
    """For the rest of this process; a test uses `monkeypatch` with `SMALL`."""
    for name, value in SMALL.items():
        setattr(archive, name, value)
