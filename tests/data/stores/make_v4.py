"""Writes v4.loom: a store of format 4, with records whose tokens are not counted yet. Run once, when it was new.

The file it wrote is kept beside it and must always open; do not run this again with a later format. The namespaces
`default`, `tiers` and `knowledge` hold the same as in v3.loom; `waiting` holds what format 4 added.
"""

from __future__ import annotations

import runpy
from pathlib import Path

from loom.storage.contract import Draft
from loom.storage.sqlite.store import SqliteStore

__all__ = ["make"]


def make(path: Path) -> None:
    earlier = runpy.run_path(str(Path(__file__).with_name("make_v3.py")))
    earlier["make"](path)
    store = SqliteStore(path, namespace="waiting")
    texts = ["We moved the meeting to Thursday.", "会议改到星期四了。", "one word more than there was " * 40]
    with store.transaction() as transaction:
        transaction.append(
            [
                Draft(
                    f"w{number}", text, earlier["MOMENT"], tokens=~(4 * len(text)), counter="cl100k_base", tier="l1"
                )
                for number, text in enumerate(texts)
            ]
        )
    store.close()


if __name__ == "__main__":
    make(Path(__file__).with_name("v4.loom"))
