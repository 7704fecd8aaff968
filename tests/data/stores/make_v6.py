"""Writes v6.loom: a store of format 6, where blocks have the dictionary of the package. Run once, when it was new.

The file it wrote is kept beside it and must always open; do not run this again with a later format. It holds the
same as v5.loom.
"""

from __future__ import annotations

import runpy
from pathlib import Path

__all__ = ["make"]


def make(path: Path) -> None:
    runpy.run_path(str(Path(__file__).with_name("make_v5.py")))["make"](path)


if __name__ == "__main__":
    make(Path(__file__).with_name("v6.loom"))
