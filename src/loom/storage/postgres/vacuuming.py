"""VACUUM after forgetting: recording that a namespace needs it, and running it if the role may.

The old versions of emptied and deleted rows stay in the files until VACUUM, which removes them once no snapshot is
older than the forgetting. The table `vacuums` has, for each namespace, the last transaction that forgot something.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg

from loom.storage.databases import Connection
from loom.storage.postgres.catalog import PARTITIONED
from loom.storage.postgres.dialect import Dialect

__all__ = ["EMPTIED", "note", "run", "waiting"]

log = logging.getLogger("loom.worker")

EMPTIED = (
    ("records", "version = 0"),
    ("vectors", "record IS NULL"),
    ("blobs", "key IS NULL"),
    ("awaited", "id_hash IS NULL"),
    ("blocks", "records = 0"),
)
"""The rows that forgetting has emptied, by table."""

# The tables with rows that forgetting empties or deletes. `heads` is not among them: VACUUM would only remove its
# free space.
_TOUCHED = (*sorted(PARTITIONED), "awaited", "pins", "residents", "settings", "tiers")

# Transactions and replication slots that may still see forgotten rows. Those of other databases do not matter.
_OLDEST = (
    "SELECT max(age) FROM (SELECT greatest(age(backend_xmin), age(backend_xid)) AS age FROM pg_stat_activity "
    "WHERE (datname = current_database() OR backend_type = 'walsender') AND pid <> pg_backend_pid() "
    "UNION ALL SELECT age(xmin) FROM pg_replication_slots "
    "UNION ALL SELECT age(transaction) FROM pg_prepared_xacts WHERE database = current_database()) held"
)
_OWNS = (
    "SELECT bool_and(pg_has_role(c.relowner, 'USAGE')) FROM pg_catalog.pg_class c "
    "WHERE c.oid = ANY (CAST(%s AS regclass[]))"
)
_MAINTAINS = "SELECT bool_and(has_table_privilege(t, 'MAINTAIN')) FROM unnest(CAST(%s AS regclass[])) t"
_MAINTAIN_SINCE = 170_000


def note(connection: Connection, namespace: int) -> None:
    """Record, in a write, that its namespace needs VACUUM."""
    connection.execute(
        "INSERT INTO vacuums (namespace, xid, forgets) VALUES (?, pg_current_xact_id(), 1) ON CONFLICT (namespace) "
        "DO UPDATE SET xid = excluded.xid, forgets = vacuums.forgets + 1",
        (namespace,),
    )


def waiting(connection: Connection, namespace: int | None) -> int:
    """The number of times that a namespace forgot since its last VACUUM. None counts all that the role may see."""
    query = "SELECT coalesce(sum(forgets), 0) FROM vacuums"
    chosen = ("", ()) if namespace is None else (" WHERE namespace = ?", (namespace,))
    (forgets,) = connection.execute(query + chosen[0], chosen[1]).fetchone()
    return int(forgets)


def run(raw: psycopg.Connection[Any], dialect: Dialect, namespace: int, *, always: bool = False) -> bool:
    """Vacuum the tables of a namespace if it needs that, or `always`. Returns False if that must wait.

    It must wait for a role that has the right, and for the end of transactions that may still see forgotten rows.
    """
    vacuums = dialect.table("vacuums")
    row = raw.execute(
        f"SELECT xid, age(xid(xid)) FROM {vacuums} WHERE namespace = %s".encode(), [namespace]
    ).fetchone()
    if row is None and not always:
        return False
    tables = [dialect.table(name) for name in _TOUCHED]
    may = _MAINTAINS if raw.info.server_version >= _MAINTAIN_SINCE else _OWNS
    if raw.execute(may, [tables]).fetchone() != (True,):
        log.info("VACUUM after forgetting waits for the owner of the tables: loom vacuum")
        return False
    (oldest,) = raw.execute(_OLDEST).fetchone() or (None,)
    raw.execute(f"VACUUM {', '.join(tables)}".encode())
    if row is None:
        return True
    xid, age = row
    if oldest is not None and oldest >= age:
        log.info("VACUUM after forgetting waits for the end of an older transaction")
        return False
    raw.execute(f"DELETE FROM {vacuums} WHERE namespace = %s AND xid = CAST(%s AS xid8)".encode(), [namespace, xid])
    return True
