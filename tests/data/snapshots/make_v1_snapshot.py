"""Writes v1.hctx and v1-continued.hctx: snapshots of format 1. Run once, when the format was new.

The files it wrote are kept beside it and must be restored for ever; do not run this again with a later format.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from loom.snapshots.taking import take
from loom.storage.contract import Draft, Filter
from tests.storage.whole_stores import MOMENT, lived_in, opened_store

__all__ = ["make"]


def make(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place, opened_store(Path(place) / "a.loom") as store:
        lived_in(store)
        take(store, folder / "v1.hctx")
        with store.transaction() as transaction:
            transaction.append([Draft("later", "said after the first", MOMENT)])
        store.forget(Filter(ids=["r14"], history=True))
        take(store, folder / "v1-continued.hctx", parent=folder / "v1.hctx")


if __name__ == "__main__":
    make(Path(__file__).parent)
