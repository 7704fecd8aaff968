"""Writes v5.loom: a store of format 5, where edges and pins know records by number. Run once, when it was new.

The file it wrote is kept beside it and must always open; do not run this again with a later format. The namespaces
`default`, `tiers`, `knowledge` and `waiting` hold the same as in v4.loom; `named` holds what format 5 added.
"""

from __future__ import annotations

import runpy
from pathlib import Path

from loom.storage.contract import Draft
from loom.storage.sqlite.store import SqliteStore

__all__ = ["make"]


def make(path: Path) -> None:
    here = Path(__file__)
    runpy.run_path(str(here.with_name("make_v4.py")))["make"](path)
    moment = runpy.run_path(str(here.with_name("make_v3.py")))["MOMENT"]
    store = SqliteStore(path, namespace="named")
    with store.transaction() as transaction:
        transaction.append([Draft("kept", "The crane is kept in the north shed.", moment, session_id="s1")])
        transaction.append([Draft("kept", "The crane is kept in the south shed.", moment, revises=True)])
        transaction.append([Draft("made", "A crane, a shed.", moment, sources=("kept", "yet to come"), drawn=True)])
        transaction.pin("kept", True)
        transaction.put_entry("harbour", {"cranes": 4}, writer="w")
    store.close()


if __name__ == "__main__":
    make(Path(__file__).with_name("v5.loom"))
