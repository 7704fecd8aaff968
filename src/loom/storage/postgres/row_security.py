"""Row-level security: the policies of the tables, and the role with the rights of tenants.

Every table and partition has one policy, which compares the namespace of a row with the table `tenants`. See
`loom.storage.postgres.tenants`.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from loom.storage.postgres.catalog import PARTITIONED
from loom.storage.postgres.dialect import TABLES

__all__ = ["exists", "is_secured", "named", "secure", "within"]

_OWN = "ARRAY(SELECT t.namespace FROM {schema}.tenants t WHERE t.role = current_user)"
_IN_OWN = f"namespace = ANY ({_OWN})"

# Tables without a namespace, or whose rows a tenant may not write without restriction: the rows that it sees, and its
# rights.
_SPECIAL = {
    "store": ("true", "SELECT"),
    "spaces": ("true", "SELECT, INSERT"),
    "namespaces": (f"number = ANY ({_OWN})", "SELECT"),
    "heads": (_IN_OWN, "SELECT, UPDATE"),
    "tenants": ("role = current_user", "SELECT"),
    "leases": (
        "name = ANY (ARRAY(SELECT 'worker-' || t.namespace FROM {schema}.tenants t WHERE t.role = current_user))",
        "SELECT, INSERT, UPDATE",
    ),
}
_EVERYTHING = "SELECT, INSERT, UPDATE, DELETE"
_POLICY = "tenants"


def is_secured(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Whether a tenant was ever added, so that the tables have policies."""
    found = connection.execute(
        "SELECT 1 FROM pg_catalog.pg_policy WHERE polrelid = to_regclass(%s) AND polname = %s",
        [f'"{schema}".heads', _POLICY],
    ).fetchone()
    return found is not None


def secure(connection: psycopg.Connection[Any], schema: str) -> None:
    """Restrict every table that is not restricted yet, and grant the rights of tenants on it."""
    group = _group(schema)
    if not exists(connection, group):
        connection.execute(named("CREATE ROLE {group} NOLOGIN", schema, group))
    connection.execute(
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), sql.Identifier(group))
    )
    open_tables = connection.execute(
        "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relnamespace = CAST(%s AS regnamespace) "
        "AND c.relkind IN ('r', 'p') AND NOT (c.relrowsecurity AND EXISTS "
        "(SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid AND p.polname = %s))",
        [f'"{schema}"', _POLICY],
    ).fetchall()
    for (table,) in open_tables:
        base, _, number = table.rpartition("_")
        known = base if base in PARTITIONED and number.isdigit() else table
        if known not in TABLES and known not in _SPECIAL:
            continue  # another program's table
        condition, rights = _SPECIAL.get(known, (_IN_OWN, _EVERYTHING))
        names = {"table": sql.Identifier(schema, table), "policy": sql.Identifier(_POLICY)}
        connection.execute(
            sql.SQL(
                "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; "
                "CREATE POLICY {policy} ON {table} TO {group} USING ({condition}); "
                f"GRANT {rights} ON {{table}} TO {{group}}"
            ).format(**names, group=sql.Identifier(group), condition=within(condition, schema))
        )


def within(statement: str, schema: str) -> sql.Composed:
    return sql.SQL(statement).format(schema=sql.Identifier(schema))


def named(statement: str, schema: str, role: str) -> sql.Composed:
    return sql.SQL(statement).format(group=sql.Identifier(_group(schema)), role=sql.Identifier(role))


def exists(connection: psycopg.Connection[Any], role: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %s", [role]).fetchone() is not None


def _group(schema: str) -> str:
    return f"{schema[:55]}_tenants"
