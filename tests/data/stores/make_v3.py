"""Writes v3.loom: a store of format 3, with an archive and with derived records. Run once, when the format was new.

The file it wrote is kept beside it and must always open; do not run this again with a later format. The namespaces
`default` and `tiers` hold the same as in v2.loom; `knowledge` holds what format 3 added.
"""

from __future__ import annotations

import runpy
from datetime import UTC, datetime, timedelta
from pathlib import Path

from loom.storage.contract import Draft
from loom.storage.sqlite.store import SqliteStore

__all__ = ["make"]

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def said(number: int) -> Draft:
    text = f"Container {number} of the blue line waits at the north gate. 第{number}号集装箱在北门等候。" * 8
    return Draft(id=f"m{number}", content=text, created_at=MOMENT, data={"container": number, "gate": "north"})


def drawn(id: str, content: str, days: int, *sources: str, replaces: bool = False) -> Draft:
    kind = "summary" if replaces else "fact"
    data = {"fidelity": 0.75, "faithful": True} if replaces else {"fact_type": "domain_knowledge", "confidence": 0.9}
    at = MOMENT + timedelta(days=days)
    return Draft(id, content, at, kind=kind, data=data, sources=sources, revises=True, drawn=True, replaces=replaces)


def make(path: Path) -> None:
    runpy.run_path(str(Path(__file__).with_name("make_v2.py")))["make"](path)
    store = SqliteStore(path, namespace="knowledge")
    with store.transaction() as transaction:
        transaction.append([said(number) for number in range(120)])
        transaction.append([drawn("gate", "Place: the blue line waits at the north gate", 0, "m1", "m2")])
        transaction.append([drawn("gate", "Place: the blue line waits at the south gate", 5, "m3")])
        (summary,) = transaction.append([drawn("summary", "They all wait.", 1, "m4", "m5", replaces=True)])
        transaction.enter([summary.seq], "l3", "default", "summarized")
    store.archive()
    store.close()


if __name__ == "__main__":
    make(Path(__file__).with_name("v3.loom"))
