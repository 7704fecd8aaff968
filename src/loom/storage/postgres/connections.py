"""The connections of one process to one database, and the address of that database.

A URL is one of libpq's, with additional options: `schema` (of the tables), `cache` (the folder of the index files on
this host), `connections` (the most in this process), `partitions` (of new tables), `codes_only_from` and
`words_first_from` (numbers of vectors; see `Engine` in `loom.storage.databases`). libpq finds passwords (in the URL,
`PGPASSFILE`, a service file). No message contains a password.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from loom.errors import Closed, InvalidInput, LoomError, NotAStore, StoreUnavailable, UnsupportedStore
from loom.protocol import Clock, new_id
from loom.storage.moments import to_micros
from loom.storage.postgres.catalog import (
    FORMAT,
    PARTITIONS,
    WRITERS_KEPT_S,
    Formats,
    check_formats,
    partition_of,
    read_formats,
    upgrade,
)
from loom.storage.postgres.dialect import Dialect
from loom.storage.postgres.one_statement import OneStatement
from loom.storage.postgres.prepared import PooledConnection, Prepared
from loom.storage.postgres.row_security import is_secured, secure
from loom.storage.postgres.spoken_connection import ADAPTERS, is_gone, translate, translated
from loom.storage.sqlite.archive import Reader

__all__ = ["FIND_AGAIN_S", "Address", "Server", "default_cache"]

_OLDEST_SERVER = 150_000
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_CONNECTIONS = 16
# The codes of 2 million vectors with 384 dimensions have 130 MB, the vectors 1.5 GB.
_CODES_ONLY_FROM = 2_000_000
# Fetching this many whole vectors takes about two seconds.
_WORDS_FIRST_FROM = 200_000
_CONNECT_WITHIN_S = 10
# The longest time for which a process that had a connection looks for a server, and the pause between attempts.
FIND_AGAIN_S = 30.0
_FIND_PAUSE_S = 0.1


class Address(NamedTuple):
    """The address of a database: libpq's connection string, schema, cache folder, and limit of connections."""

    conninfo: str
    schema: str
    cache: Path | None
    connections: int
    partitions: int
    codes_only_from: int
    words_first_from: int
    place: str
    """The address for messages, without a password."""

    @classmethod
    def of(cls, url: str) -> Address:
        """The address in a URL. Raises `InvalidInput` for a URL that libpq does not accept."""
        base, _, query = url.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        schema = options.pop("schema", "loom")
        cache = options.pop("cache", None)
        connections = _whole(options, "connections", _CONNECTIONS, 10_000)
        partitions = _whole(options, "partitions", PARTITIONS, 1024)
        words_first_from = _whole(options, "words_first_from", _WORDS_FIRST_FROM, 2**40)
        codes_only_from = _whole(options, "codes_only_from", _CODES_ONLY_FROM, 2**40)
        if not _SCHEMA.fullmatch(schema):
            raise InvalidInput(
                f"the schema {schema!r} must be a lower-case name of letters, digits and underscores, such as loom"
            )
        try:
            given = conninfo_to_dict(base + ("?" + urlencode(options) if options else ""))
        except psycopg.ProgrammingError as error:
            raise InvalidInput(f"this is not a PostgreSQL URL: {_without_password(str(error), base)}") from None
        given.setdefault("connect_timeout", _CONNECT_WITHIN_S)
        given.setdefault("application_name", "loom")
        # With these, a host that stops answering is detected within half a minute; the default takes two hours.
        for name, value in (("keepalives_idle", 10), ("keepalives_interval", 5), ("keepalives_count", 3)):
            given.setdefault(name, value)
        given.setdefault("tcp_user_timeout", 30_000)
        folder = None if cache is None else Path(cache).expanduser().absolute()
        limits = (connections, partitions, codes_only_from, words_first_from)
        return cls(make_conninfo("", **given), schema, folder, *limits, _place(given, schema))

    @property
    def several_hosts(self) -> bool:
        return "," in str(conninfo_to_dict(self.conninfo).get("host", ""))


def _whole(options: dict[str, str], name: str, default: int, most: int) -> int:
    """Remove a whole number from the options and return it."""
    given = options.pop(name, str(default))
    if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= most:
        raise InvalidInput(f"{name} is {given!r}; it must be a whole number from 1 to {most:,}")
    return int(given)


def _place(given: dict[str, Any], schema: str) -> str:
    hosts = str(given.get("host") or given.get("hostaddr") or given.get("service") or "localhost").split(",")
    ports = str(given.get("port") or "").split(",")
    where = ",".join(
        host + (f":{ports[number]}" if number < len(ports) and ports[number] else "")
        for number, host in enumerate(hosts)
    )
    user = f"{given['user']}@" if given.get("user") else ""
    name = f"postgresql://{user}{where}/{given.get('dbname') or ''}"
    return name if schema == "loom" else f"{name}?schema={schema}"


def _without_password(said: str, base: str) -> str:
    found = re.search(r"//[^/@]*?:([^/]*)@", base)
    return said.replace(found[1], "***") if found and found[1] else said


class Server:
    """A pool of connections to one database. All engines of a process on one address share it."""

    def __init__(self, address: Address, read_only: bool, clock: Clock) -> None:
        self.address = address
        self.place = address.place
        self.read_only = read_only
        self._dialects: dict[int | None, Dialect] = {}
        self._one_statement: dict[tuple[Dialect, bool, bool], OneStatement] = {}
        self.archive = Reader()
        self.prepared = Prepared()
        self.restricted = False
        """Whether row-level security restricts this role: PostgreSQL then refuses COPY into a table."""
        self._conninfo = address.conninfo
        if address.several_hosts and not read_only and "target_session_attrs" not in self._conninfo:
            self._conninfo = make_conninfo(self._conninfo, target_session_attrs="read-write")
        self._clock = clock
        self._known = False
        self._closed = False
        self.reset()
        try:
            self.store_id = self._open()
        except BaseException:
            self.close()
            raise

    def reset(self) -> None:
        """Start without connections, in a new pool or in a child process after a fork."""
        self._idle: deque[PooledConnection] = deque()
        self._own = threading.local()
        # One item for each connection that may be lent. A queue takes a fifth of the time of a semaphore.
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(self.address.connections):
            self._room.put(None)

    def abandon(self) -> list[PooledConnection]:
        """Drop and return the connections of a parent process, which still uses them. They must not be closed."""
        left = [*self._idle]
        self.reset()
        return left

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close all idle connections at once, and the others when they are returned."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _open(self) -> str:
        with translated(self.place), self.lent() as connection:
            if connection.info.server_version < _OLDEST_SERVER:
                raise UnsupportedStore(
                    f"{self.place} is PostgreSQL {connection.info.server_version // 10_000}; loom needs 15 or later"
                )
            self._check_encoding(connection)
            # A pooler reports its own process id. Through a pooler, a later transaction lacks prepared statements.
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            self.prepared.is_allowed = row == (connection.info.backend_pid,)
            formats = read_formats(connection, self.address.schema)
            if formats is not None:
                check_formats(formats, self.place, self.read_only)
            if not self.read_only and (formats is None or formats.format < FORMAT):
                self._upgrade(connection, formats)
            elif formats is None:
                raise NotAStore(f"{self.place} has no memory to read yet. Open it for writing first.")
            schema = f'"{self.address.schema}"'
            row = connection.execute(
                f"SELECT id, row_security_active('{schema}.records') FROM {schema}.store"
            ).fetchone()
            if row is None:
                raise NotAStore(f"{self.place} has lost its identity row; restore it from a backup")
            store_id, self.restricted = row
            if not self.read_only:
                gone = f"DELETE FROM {schema}.writers WHERE at < now() - make_interval(secs => {WRITERS_KEPT_S})"
                connection.execute(gone.encode())
            self._known = True
            return str(store_id)

    def _upgrade(self, connection: psycopg.Connection[Any], formats: Formats | None) -> None:
        schema, now = self.address.schema, to_micros(self._clock())
        try:
            with connection.transaction():
                upgrade(connection, schema, new_id(), now, self.address.partitions)
                if is_secured(connection, schema):
                    secure(connection, schema)
        except errors.InsufficientPrivilege as error:
            if formats is None:
                raise
            raise UnsupportedStore(
                f"{self.place} has format {formats.format}, and this role may not upgrade its tables to format "
                f"{FORMAT}; open it once as their owner"
            ) from error

    def _check_encoding(self, connection: psycopg.Connection[Any]) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise UnsupportedStore(f"{self.place} stores text as {encoding}; create a database with ENCODING 'UTF8'")

    def dialect_of(self, namespace: int) -> Dialect:
        """The translation of statements on the tables of a namespace."""
        with translated(self.place), self.lent() as connection:
            partition = partition_of(connection, self.address.schema, namespace)
        known = self._dialects.get(partition)
        if known is None:
            known = self._dialects[partition] = Dialect(self.address.schema, partition)
        return known

    def one_statement(self, dialect: Dialect, queues: bool, named: bool) -> OneStatement:
        """The statement that writes a record. All engines on these tables prepare it under the same name."""
        return self._one_statement.setdefault((dialect, queues, named), OneStatement(dialect, queues, named))

    # -- lending -----------------------------------------------------------------------------------

    @contextmanager
    def lent(self) -> Iterator[PooledConnection]:
        """Lend a connection for a block, outside a transaction."""
        connection = self.lend()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def lend(self) -> PooledConnection:
        """Lend an idle connection, or a new one, to this thread, which must return it.

        A thread that already has a connection does not wait for another one.
        """
        depth = getattr(self._own, "depth", 0)
        if not depth:
            self._room.get()
        try:
            connection = self._usable()
        except BaseException:
            if not depth:
                self._room.put(None)
            raise
        self._own.depth = depth + 1
        return connection

    def _usable(self) -> PooledConnection:
        if self._closed:
            raise Closed("the memory is closed; open it again to use it")
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if not connection.closed:
                return connection
        return self._connect()

    def give_back(self, connection: PooledConnection) -> None:
        """Return a connection to the pool. A connection that is inside a transaction is closed."""
        self._own.depth -= 1
        idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        if idle and not connection.closed and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        if not self._own.depth:
            self._room.put(None)

    def drop_idle(self) -> None:
        """Close the idle connections, because their server is unusable."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def _connect(self) -> PooledConnection:
        """Open a connection. A process that had one before retries for a while, since another server may take
        over."""
        deadline = time.monotonic() + (FIND_AGAIN_S if self._known else 0.0)
        while True:
            try:
                connection = PooledConnection.connect(
                    self._conninfo,
                    autocommit=True,
                    context=ADAPTERS,
                    prepare_threshold=5 if self.prepared.is_allowed else None,
                )
            except psycopg.Error as error:
                if self._closed or time.monotonic() >= deadline or not _may_come_back(error):
                    raise self._unreachable(error) from None
                time.sleep(_FIND_PAUSE_S)
            else:
                return connection

    def _unreachable(self, error: psycopg.Error) -> LoomError:
        if error.sqlstate is not None:
            return translate(error, self.place) or StoreUnavailable(self.place)
        said = " ".join(str(error).split())
        return StoreUnavailable(f"{self.place} cannot be reached: {said}")


def _may_come_back(error: psycopg.Error) -> bool:
    """Whether a connection may succeed later, after a server has refused it or has not answered."""
    refused = errors.InvalidPassword | errors.InvalidAuthorizationSpecification | errors.InvalidCatalogName
    return is_gone(error) and not isinstance(error, refused) and "password authentication" not in str(error)


def default_cache() -> Path:
    """The folder of the index files of all databases on this host."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "loom"
