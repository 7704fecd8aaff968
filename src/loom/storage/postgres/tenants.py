"""Tenants: roles of the server that may use chosen namespaces only, by row-level security.

The table `tenants` says which role may use which namespace. The same policy on every table and partition compares
the namespace of a row with that table, so a further tenant changes no policy. Rights are granted once, to a role
`<schema>_tenants` without a login, of which every tenant is a member. The owner of the tables is not restricted.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from loom.errors import InvalidInput, NotFound
from loom.protocol import utc_now
from loom.storage.postgres.catalog import PARTITIONED
from loom.storage.postgres.connections import Address, Server
from loom.storage.postgres.dialect import TABLES
from loom.storage.postgres.namespace_engine import create_namespace
from loom.storage.postgres.spoken_connection import translated

__all__ = ["add", "listed", "remove"]

_OWN = "ARRAY(SELECT t.namespace FROM {schema}.tenants t WHERE t.role = current_user)"
_IN_OWN = f"namespace = ANY ({_OWN})"

# Tables without a namespace, or whose rows a tenant may not all write: the rows that it sees, and its rights.
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


def add(url: str, role: str, namespace: str) -> None:
    """Let a role use a namespace, and no other that it was not given. Creates both if they are missing.

    A new role may log in and has no password. Raises `InvalidInput` for a role that row-level security does not
    restrict, such as a superuser or the owner of the tables.
    """
    if not role or not namespace:
        raise InvalidInput("a tenant needs a role and a namespace")
    server = _server(url)
    try:
        number = create_namespace(server, namespace)
        with translated(server.place), server.lent() as connection, connection.transaction():
            # Two calls at once would create the same policies.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"loom {server.address.schema}"])
            _secure(connection, server.address.schema)
            _admit(connection, server.address.schema, role, number)
    finally:
        server.close()


def remove(url: str, role: str, namespace: str) -> None:
    """Let a role no longer use a namespace. The memory stays. Raises `NotFound` if it was not a tenant of it."""
    server = _server(url)
    schema = server.address.schema
    try:
        with translated(server.place), server.lent() as connection, connection.transaction():
            gone = connection.execute(
                _in(
                    "DELETE FROM {schema}.tenants t USING {schema}.namespaces n "
                    "WHERE t.role = %s AND n.number = t.namespace AND n.name = %s",
                    schema,
                ),
                [role, namespace],
            ).rowcount
            if not gone:
                raise NotFound(f"the role {role!r} is no tenant of {namespace!r} in {server.place}")
            left = connection.execute(
                _in("SELECT 1 FROM {schema}.tenants WHERE role = %s LIMIT 1", schema), [role]
            ).fetchone()
            if left is None and _exists(connection, role):
                connection.execute(_named("REVOKE {group} FROM {role}", schema, role))
    finally:
        server.close()


def listed(url: str) -> list[tuple[str, str]]:
    """The roles and the namespaces that they may use, in order."""
    server = _server(url)
    try:
        with translated(server.place), server.lent() as connection:
            return connection.execute(
                _in(
                    "SELECT CAST(t.role AS text), n.name FROM {schema}.tenants t JOIN {schema}.namespaces n "
                    "ON n.number = t.namespace ORDER BY 1, 2",
                    server.address.schema,
                )
            ).fetchall()
    finally:
        server.close()


def _server(url: str) -> Server:
    return Server(Address.of(url), read_only=False, clock=utc_now)


def _in(statement: str, schema: str) -> sql.Composed:
    return sql.SQL(statement).format(schema=sql.Identifier(schema))


def _group(schema: str) -> str:
    return f"{schema[:55]}_tenants"


def _named(statement: str, schema: str, role: str) -> sql.Composed:
    return sql.SQL(statement).format(group=sql.Identifier(_group(schema)), role=sql.Identifier(role))


def _exists(connection: psycopg.Connection[Any], role: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %s", [role]).fetchone() is not None


def _secure(connection: psycopg.Connection[Any], schema: str) -> None:
    """Restrict every table that is not restricted yet, and grant the rights of tenants on it."""
    group = _group(schema)
    if not _exists(connection, group):
        connection.execute(_named("CREATE ROLE {group} NOLOGIN", schema, group))
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
            continue  # a table of somebody else
        condition, rights = _SPECIAL.get(known, (_IN_OWN, _EVERYTHING))
        names = {"table": sql.Identifier(schema, table), "policy": sql.Identifier(_POLICY)}
        connection.execute(
            sql.SQL(
                "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; "
                "CREATE POLICY {policy} ON {table} TO {group} USING ({condition}); "
                f"GRANT {rights} ON {{table}} TO {{group}}"
            ).format(**names, group=sql.Identifier(group), condition=_in(condition, schema))
        )


def _admit(connection: psycopg.Connection[Any], schema: str, role: str, namespace: int) -> None:
    if not _exists(connection, role):
        connection.execute(_named("CREATE ROLE {role} LOGIN", schema, role))
    unrestricted = connection.execute(
        "SELECT r.rolsuper OR r.rolbypassrls OR pg_has_role(r.oid, c.relowner, 'MEMBER') "
        "FROM pg_catalog.pg_roles r CROSS JOIN pg_catalog.pg_class c "
        "WHERE r.rolname = %s AND c.oid = CAST(%s AS regclass)",
        [role, f'"{schema}".records'],
    ).fetchone()
    if unrestricted != (False,):
        raise InvalidInput(
            f"the role {role!r} is a superuser, bypasses row-level security, or owns the tables: nothing would "
            "restrict it; name another role"
        )
    connection.execute(_named("GRANT {group} TO {role}", schema, role))
    connection.execute(
        _in("INSERT INTO {schema}.tenants (role, namespace) VALUES (%s, %s) ON CONFLICT DO NOTHING", schema),
        [role, namespace],
    )
