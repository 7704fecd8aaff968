"""Storage: records, their tiers, entries, jobs and blobs, behind one contract.

`contract` defines a backend, and `conformance` tests one. `sqlite` and `postgres` are the backends, and only
`open_store` chooses between them. Snapshots are in `loom.snapshots`, and relevance to a question in `loom.recall`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from loom.checks import checked_path
from loom.discovery import is_server
from loom.errors import UnsupportedStore

if TYPE_CHECKING:
    from loom.storage.contract import Store

__all__ = ["add_tenant", "open_store", "remove_tenant", "tenants"]

# At least two letters: `C:/` is a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=/)|(?:file|sqlite):")


def open_store(
    place: str | PathLike[str] | None = None, *, tail: tuple[int, int] | None = None, **options: Any
) -> Store:
    """Open the store at a path or a URL, or a new one in memory (None).

    A `file:` or `sqlite:` URL names a file: `sqlite:///var/lib/agent.loom`, or `sqlite:agent.loom` in the working
    folder. `postgresql://host/database` names a database on a server. `tail` is the most records and bytes that are
    searched without an index. The backend defines the other options, such as `namespace`, `read_only` and
    `all_namespaces`. Another kind of URL raises `UnsupportedStore`.
    """
    from loom.storage.sqlite.projections import TailLimit
    from loom.storage.sqlite.store import SqliteStore

    path = checked_path(place, "the place of a store") if place not in (None, "") else place
    if tail is not None:
        options["tail"] = TailLimit(*tail)
    if path is not None and is_server(path):
        with _psycopg():
            from loom.storage.postgres.postgres_store import PostgresStore
        return PostgresStore(path, **options)
    if path is not None and _URL.match(path):
        url = urlsplit(path)
        if url.scheme not in ("file", "sqlite") or url.netloc not in ("", "localhost"):
            raise UnsupportedStore(
                f"no store can be opened at {url.scheme}://{url.hostname or ''}; a store is a path, a file: or "
                "sqlite: URL without a host, such as sqlite:///var/lib/agent.loom, a database on a server, such as "
                "postgresql://host/database, or None for one in memory"
            )
        path = unquote(url.path) or None
    return SqliteStore(path, **options)


def add_tenant(place: str | PathLike[str], role: str, namespace: str) -> None:
    """Let a role of a PostgreSQL server use this namespace. It can use no namespace that it was not given.

    Creates the namespace and the role if they are missing; a new role may log in and has no password. `place` is the
    URL of the owner of the tables, who needs CREATEROLE. Raises `InvalidInput` for a role that nothing restricts,
    such as a superuser, and `UnsupportedStore` for a file.
    """
    with _psycopg():
        from loom.storage.postgres.tenants import add
    add(_server_url(place), role, namespace)


def remove_tenant(place: str | PathLike[str], role: str, namespace: str) -> None:
    """Withdraw a role's permission to use this namespace. The memory and the role stay.

    Raises `NotFound` for another tenant.
    """
    with _psycopg():
        from loom.storage.postgres.tenants import remove
    remove(_server_url(place), role, namespace)


def tenants(place: str | PathLike[str]) -> list[tuple[str, str]]:
    """The roles of a PostgreSQL server with the namespaces that they may use, in order."""
    with _psycopg():
        from loom.storage.postgres.tenants import listed
    return listed(_server_url(place))


def _server_url(place: str | PathLike[str]) -> str:
    url = checked_path(place, "the place of a store")
    if not is_server(url):
        raise UnsupportedStore(
            "a file has no tenants; they are roles of a server, such as postgresql://host/database"
        )
    return url


@contextmanager
def _psycopg() -> Iterator[None]:
    """Make the error of a block that imports the backend of PostgreSQL say how to install psycopg."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "psycopg":
            raise
        raise UnsupportedStore(
            "a memory on PostgreSQL needs psycopg, which is not installed: pip install 'loomkeep[postgres]'"
        ) from error
