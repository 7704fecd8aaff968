"""Tenants: roles of the server that row-level security restricts to chosen namespaces.

The table `tenants` has the namespaces that each role may use. The same policy on every table and partition compares
the namespace of a row with that table, so another tenant changes no policy. Rights are granted once, to a role
`<schema>_tenants` without a login, of which every tenant is a member. The owner of the tables is not restricted.
"""

from __future__ import annotations

from typing import Any

import psycopg

from loom.errors import InvalidInput, NotFound
from loom.protocol import utc_now
from loom.storage.postgres.connections import Address, Server
from loom.storage.postgres.namespace_engine import create_namespace
from loom.storage.postgres.row_security import exists, named, secure, within
from loom.storage.postgres.spoken_connection import translated

__all__ = ["add", "listed", "remove"]


def add(url: str, role: str, namespace: str) -> None:
    """Let a role use a namespace, but no namespace that it was not given. Creates both if they are missing.

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
            secure(connection, server.address.schema)
            _admit(connection, server.address.schema, role, number)
    finally:
        server.close()


def remove(url: str, role: str, namespace: str) -> None:
    """Withdraw a namespace from a role. The memory stays. Raises `NotFound` if the role was not a tenant of it."""
    server = _server(url)
    schema = server.address.schema
    try:
        with translated(server.place), server.lent() as connection, connection.transaction():
            gone = connection.execute(
                within(
                    "DELETE FROM {schema}.tenants t USING {schema}.namespaces n "
                    "WHERE t.role = %s AND n.number = t.namespace AND n.name = %s",
                    schema,
                ),
                [role, namespace],
            ).rowcount
            if not gone:
                raise NotFound(f"the role {role!r} is not a tenant of {namespace!r} in {server.place}")
            left = connection.execute(
                within("SELECT 1 FROM {schema}.tenants WHERE role = %s LIMIT 1", schema), [role]
            ).fetchone()
            if left is None and exists(connection, role):
                connection.execute(named("REVOKE {group} FROM {role}", schema, role))
    finally:
        server.close()


def listed(url: str) -> list[tuple[str, str]]:
    """The roles with the namespaces that they may use, in order."""
    server = _server(url)
    try:
        with translated(server.place), server.lent() as connection:
            return connection.execute(
                within(
                    "SELECT CAST(t.role AS text), n.name FROM {schema}.tenants t JOIN {schema}.namespaces n "
                    "ON n.number = t.namespace ORDER BY 1, 2",
                    server.address.schema,
                )
            ).fetchall()
    finally:
        server.close()


def _server(url: str) -> Server:
    return Server(Address.of(url), read_only=False, clock=utc_now)


def _admit(connection: psycopg.Connection[Any], schema: str, role: str, namespace: int) -> None:
    if not exists(connection, role):
        connection.execute(named("CREATE ROLE {role} LOGIN", schema, role))
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
    connection.execute(named("GRANT {group} TO {role}", schema, role))
    connection.execute(
        within("INSERT INTO {schema}.tenants (role, namespace) VALUES (%s, %s) ON CONFLICT DO NOTHING", schema),
        [role, namespace],
    )
