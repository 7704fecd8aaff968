"""Copies a namespace to another store of any backend, through a snapshot, and compares both at the end.

The copy adds to the target and changes nothing in the source. It is one transaction of the target, so a killed
process has copied everything or nothing, and a repeated copy adds only what is missing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from loom.errors import StoreError
from loom.snapshots.merging import restore_into
from loom.snapshots.staging import Restored
from loom.snapshots.taking import take
from loom.storage.contract import Rows, Store, Transaction
from loom.storage.tables import TABLES

__all__ = ["move_namespace"]

# The columns that a store assigns itself. All others must be equal in both stores.
_OWN: Final = {"records": {"tier", "window_tokens"}, "entries": {"checksum"}}
# Entries whose keys begin like this are a memory's notes about itself. A store that has such entries keeps them.
_NOTES: Final = "loom."


def move_namespace(
    source: Store,
    target: Store,
    folder: Path,
    *,
    without: Collection[str] = (),
    then: Callable[[Transaction, Sequence[str]], None] | None = None,
) -> Restored:
    """Copy the source's namespace into the target's, by a snapshot in `folder`; then compare memories and entries.

    Entries of the scopes `without` are not copied. `then` is called in the transaction of the target, as by
    `restore_into`. Raises `StoreError` if the target lacks a memory of the source or has it with other values.
    """
    snapshot = folder / "namespace.hctx"
    taken = take(source, snapshot, namespaces=[source.namespace])
    try:
        done = restore_into(target, snapshot, namespace=source.namespace, without=without, then=then)
    finally:
        snapshot.unlink(missing_ok=True)
    missing = _missing(source, target, taken.position, without)
    if len(missing) > done.forgotten:
        raise StoreError(
            f"{target.location} lacks {len(missing):,} memories or entries of {source.namespace!r} as they "
            f"are in {source.location}, such as {missing[0]}. The source is unchanged; check both and copy again"
        )
    return done


def _missing(source: Store, target: Store, position: int, without: Collection[str]) -> list[str]:
    """The ids and keys of the source's rows up to a position that the target lacks or has with other values."""
    with source.copying() as rows:
        wanted = {digest: name for name, digest in _digests(rows, without, position)}
    with target.copying() as rows:
        for _, digest in _digests(rows, without):
            wanted.pop(digest, None)
    return list(wanted.values())


def _digests(rows: Rows, without: Collection[str], position: float = math.inf) -> Iterator[tuple[str, bytes]]:
    """The name and the digest of each record that was not derived, and of each entry that is not a note."""
    derived = {row[0] for row in rows.rows("derivations")}
    for table, own in _OWN.items():
        columns = list(TABLES[table].stored)
        numbers = {*TABLES[table].named("seq", "until", "namespace"), *own}
        for row in rows.rows(table):
            values = dict(zip(columns, row, strict=True))
            if values["seq"] > position or (table == "records" and values["seq"] in derived):
                continue
            if table == "entries" and (values["scope"] in without or values["key"].startswith(_NOTES)):
                continue
            said = [values[column] for column in columns if column not in numbers]
            name = values["id"] if table == "records" else values["key"]
            yield f"{table} {name!r}", hashlib.sha256(json.dumps([table, *said]).encode()).digest()
