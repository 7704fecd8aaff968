"""Backs up a database on a server, or one namespace of it, to a SQLite file that opens as a memory.

The tables of both have the same columns, so rows are copied unchanged, with their sequence numbers and checksums. The
indexes are not copied; those of the file are built from the records.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from psycopg import sql

from loom.storage.files import check_folder, disk_errors, keep_mode
from loom.storage.postgres.dialect import TABLES
from loom.storage.postgres.namespace_engine import Engine
from loom.storage.postgres.spoken_connection import PostgresConnection
from loom.storage.sqlite.engine import Engine as FileEngine
from loom.storage.sqlite.engine import translate
from loom.storage.sqlite.projections import TEXT, VECTORS
from loom.storage.temporary import let_go, temporary_beside

__all__ = ["back_up"]

_ROWS_AT_ONCE = 500
# Tables that are rebuilt in the file, or have other columns there.
_OWN = {"store", "namespaces", "heads", "spaces", "projections", "segments", "segment_chunks", "leases"}
_OWN |= {"vacuums", "writers"}
_COPIED = tuple(table for table in TABLES if table not in _OWN)


def back_up(engine: Engine, path: str | Path, namespace: str | None) -> None:
    """Copy a namespace, or all of them (None), to a path while other processes write. The complete copy replaces a
    file there."""
    target = Path(path).expanduser().absolute()
    with disk_errors(f"the backup to {target} was not made"):
        check_folder(target.parent)
        with temporary_beside(target, engine.file_mode) as temporary:
            FileEngine.acquire(temporary, clock=engine.clock, file_mode=engine.file_mode).release()
            try:
                _copy(engine, temporary, namespace)
            except sqlite3.Error as error:
                raise translate(error, target) or error from error
            keep_mode(temporary, target)
            let_go(temporary)
            os.replace(temporary, target)


def _copy(engine: Engine, place: Path, namespace: str | None) -> None:
    copy = sqlite3.connect(place, isolation_level=None)
    try:
        with engine.read() as connection:
            assert isinstance(connection, PostgresConnection)
            copy.execute("BEGIN")
            numbers = _namespaces(connection, copy, namespace)
            for table in _COPIED:
                _copy_table(connection, copy, engine.server.address.schema, table, numbers)
            _copy_progress(connection, copy, numbers)
            _copy_identity(connection, copy, numbers)
            copy.execute("COMMIT")
        copy.execute("PRAGMA journal_mode = DELETE")
    finally:
        copy.close()


def _namespaces(connection: PostgresConnection, copy: sqlite3.Connection, namespace: str | None) -> list[int]:
    rows = connection.execute("SELECT number, name FROM namespaces ORDER BY number").fetchall()
    chosen = [(number, name) for number, name in rows if namespace in (None, name)]
    copy.executemany("INSERT INTO namespaces (number, name) VALUES (?, ?)", chosen)
    copy.executemany(
        "INSERT INTO spaces (number, name, dimensions) VALUES (?, ?, ?)",
        connection.execute("SELECT number, name, dimensions FROM spaces").fetchall(),
    )
    return [number for number, _ in chosen]


def _copy_table(
    connection: PostgresConnection, copy: sqlite3.Connection, schema: str, table: str, numbers: list[int]
) -> None:
    columns = [name for _, name, *_ in copy.execute(f"PRAGMA table_info({table})")]
    insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    query = sql.SQL("SELECT {} FROM {} WHERE namespace = ANY(%s)").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(schema, table)
    )
    with connection.raw.cursor("backup") as cursor:
        cursor.itersize = _ROWS_AT_ONCE
        cursor.execute(query, [numbers])
        copy.executemany(insert, cursor)


def _copy_progress(connection: PostgresConnection, copy: sqlite3.Connection, numbers: list[int]) -> None:
    for number in numbers:
        rows = connection.execute(
            "SELECT namespace, kind, generation, basis, watermark FROM projections WHERE namespace = ?", (number,)
        ).fetchall()
        copy.executemany(
            "INSERT INTO projections (namespace, kind, generation, basis, watermark) VALUES (?, ?, ?, ?, ?)",
            [row for row in rows if row[1] not in (TEXT, VECTORS)],
        )


def _copy_identity(connection: PostgresConnection, copy: sqlite3.Connection, numbers: list[int]) -> None:
    """Copy the identity of the database, and the highest sequence number and commit time of its namespaces."""
    heads = [
        connection.execute("SELECT seq, committed_at FROM heads WHERE namespace = ?", (number,)).fetchone()
        for number in numbers
    ]
    seq, committed_at = (max((head[place] for head in heads), default=0) for place in (0, 1))
    (store_id,) = connection.execute("SELECT id FROM store").fetchone()
    copy.execute("UPDATE store SET id = ?, seq = ?, committed_at = ?", (store_id, seq, committed_at))
