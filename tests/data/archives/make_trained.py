"""Writes trained.loom: a store of format 5 whose archive has a dictionary trained on its own texts. Run once.

Format 6 compresses with a dictionary of the package and has no such table. The file must open for ever; this script
needs the program that wrote format 5.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

from loom.storage.contract import Draft
from loom.storage.sqlite.store import SqliteStore

__all__ = ["PHRASE", "make", "texts"]

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PHRASE = "the hidden rendezvous of the harbour master"


def texts() -> dict[str, str]:
    """The texts by id: those of `s` share a phrase, those of `f` share nothing."""
    chance = random.Random(5)

    def words(count: int) -> str:
        return " ".join("".join(chance.choices("bcdfghjklmnpqrstvwxz", k=9)) for _ in range(count))

    shared = {f"s{number}": f"{PHRASE} {words(5)}" for number in range(60)}
    return shared | {f"f{number}": f"{words(30)} 第{number}号" for number in range(80)}


def make(path: Path) -> None:
    archive, maintenance = map(import_module, ("loom.storage.sqlite.archive", "loom.storage.sqlite.maintenance"))
    sizes = {"block_bytes": 4096, "dictionary_from": 8192, "dictionary_share": 4}  # as format 5 had them
    limits = archive.ArchiveLimits(**sizes)
    store = SqliteStore(path, limits=maintenance.WorkLimits(archive=limits))
    chance = random.Random(6)
    items = list(texts().items())
    chance.shuffle(items)
    with store.transaction() as transaction:
        transaction.append(
            [
                Draft(id, text, MOMENT + timedelta(minutes=n), data={"n": n} if n % 3 == 0 else None)
                for n, (id, text) in enumerate(items)
            ]
        )
    store.archive()
    store.vacuum()
    store.close()


if __name__ == "__main__":
    make(Path(__file__).with_name("trained.loom"))
