"""The settings of a namespace in the file: those that every process that has the file open must share.

Budgets and rules are written by the layers above. The analyser of the text index and the embedding space are agreed
on here, because changing one makes an index start over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from loom.errors import SettingsConflict
from loom.index.analysis import ANALYSIS_VERSION
from loom.steps import step
from loom.storage.sqlite.engine import Engine
from loom.storage.sqlite.projections import TEXT, TEXT_BASIS, VECTORS, count_up, start_over, vector_basis
from loom.storage.sqlite.rows import dump_json, is_names, read_settings
from loom.storage.sqlite.transactions import EMBED, EMPTY_VECTORS, SqliteTransaction

__all__ = [
    "agree_on_analyzer",
    "change_space",
    "find_namespace",
    "put_setting",
    "read_space",
    "retry_jobs",
    "settle",
]

Decide = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def find_namespace(engine: Engine, name: str) -> int:
    """The number of a namespace, which is created where it is missing; 0 where it may not be."""
    query = "SELECT number FROM namespaces WHERE name = ?"
    with engine.read() as connection:
        row = connection.execute(query, (name,)).fetchone()
    if row is not None:
        return int(row[0])
    if engine.read_only:
        return 0  # nothing has this number: every read of it is empty
    with engine.write() as connection:
        connection.execute("INSERT OR IGNORE INTO namespaces (name) VALUES (?)", (name,))
        row = connection.execute(query, (name,)).fetchone()
    return int(row[0])


def put_setting(connection: sqlite3.Connection, namespace: int, node: str, key: str, value: Any) -> None:
    """Write a setting of a node (the empty node: of the whole namespace) and count the revision up."""
    connection.execute(
        "INSERT OR REPLACE INTO settings (namespace, node, key, value) VALUES (?, ?, ?, ?)",
        (namespace, node, key, dump_json(value, f"the setting {key}")),
    )
    connection.execute(
        "INSERT INTO settings (namespace, node, key, value) VALUES (?, '', 'revision', '1') "
        "ON CONFLICT DO UPDATE SET value = value + 1",
        (namespace,),
    )
    count_up(connection)


def settle(transaction: SqliteTransaction, node: str, decide: Decide) -> None:
    """Write those of the settings that `decide` returns which differ from the stored ones."""
    stored = read_settings(transaction.connection, transaction.namespace, node)
    for key, value in decide(stored).items():
        if stored.get(key) != value:
            put_setting(transaction.connection, transaction.namespace, node, key, value)


def agree_on_analyzer(engine: Engine, namespace: int) -> None:
    """Start the text index over where an older analyser made it. Raises `SettingsConflict` where a newer one did."""
    with engine.read() as connection:
        stored = read_settings(connection, namespace, "").get("analyzer")
    if stored == ANALYSIS_VERSION:
        return
    if stored is not None and stored > ANALYSIS_VERSION:
        raise SettingsConflict(
            f"this store's text index was made by a newer loom (analyser {stored}, here {ANALYSIS_VERSION}); "
            "upgrade: pip install --upgrade loomkeep"
        )
    if engine.read_only:
        return
    with engine.write() as connection:
        if stored is not None:
            start_over(connection, namespace, TEXT, TEXT_BASIS)
        put_setting(connection, namespace, "", "analyzer", ANALYSIS_VERSION)


def read_space(connection: sqlite3.Connection, namespace: int) -> tuple[str, int] | None:
    """Name and dimensions of the embedding space in use, or None."""
    row = connection.execute(
        "SELECT s.name, s.dimensions FROM settings JOIN spaces s ON s.number = value "
        "WHERE namespace = ? AND node = '' AND key = 'space'",
        (namespace,),
    ).fetchone()
    return None if row is None else (str(row[0]), int(row[1]))


@step("space.change")
def change_space(transaction: SqliteTransaction, name: str, dimensions: int) -> None:
    """Use another embedding space: empty the vectors of every other one and queue all records for embedding."""
    connection, namespace = transaction.connection, transaction.namespace
    connection.execute("INSERT OR IGNORE INTO spaces (name, dimensions) VALUES (?, ?)", (name, dimensions))
    (number,) = connection.execute(
        "SELECT number FROM spaces WHERE name = ? AND dimensions = ?", (name, dimensions)
    ).fetchone()
    put_setting(connection, namespace, "", "space", number)
    transaction.next_seq()
    start_over(connection, namespace, VECTORS, vector_basis(number))
    connection.execute(EMPTY_VECTORS + "namespace = ? AND space != ?", (namespace, number))
    connection.execute("DELETE FROM jobs WHERE namespace = ? AND kind = ?", (namespace, EMBED))
    missing = connection.execute(
        "SELECT r.seq FROM records r LEFT JOIN vectors v ON v.record = r.seq AND v.space = ? "
        f"WHERE r.namespace = ? AND r.version > 0 AND v.seq IS NULL AND NOT {is_names()}",
        (number, namespace),
    ).fetchall()
    connection.executemany(
        "INSERT INTO jobs (namespace, kind, record, seq) VALUES (?, ?, ?, ?)",
        [(namespace, EMBED, record, transaction.next_seq()) for (record,) in missing],
    )


def retry_jobs(engine: Engine, namespace: int, kind: str) -> None:
    """Reset the attempts of the jobs of a kind: this process may succeed where another one gave up."""
    with engine.read() as connection:
        failed = connection.execute(
            "SELECT 1 FROM jobs WHERE namespace = ? AND kind = ? AND attempts > 0 LIMIT 1", (namespace, kind)
        ).fetchone()
    if failed:
        with engine.try_write() as connection:
            if connection is None:
                return  # another writer holds the file, and opening does not wait for it
            connection.execute(
                "UPDATE jobs SET attempts = 0, error = NULL WHERE namespace = ? AND kind = ?", (namespace, kind)
            )
