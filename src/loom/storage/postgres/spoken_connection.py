"""A connection that executes SQLite's statements on PostgreSQL, in the caller's transaction.

PostgreSQL's text type cannot contain NUL, but stored texts may. NUL and the escape character itself (U+0001) are
escaped when a text is written, and unescaped when it is read. For a text in an archive block, statements return a
mark with the same character, and the text is then read from the block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import AdaptersMap, Dumper, Loader, Transformer

from loom.errors import (
    InvalidInput,
    LoomError,
    NotAStore,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from loom.storage.blocks import DamagedBlock
from loom.storage.databases import Cursor
from loom.storage.postgres.dialect import ARCHIVED, Dialect
from loom.storage.postgres.prepared import Prepared, escaped
from loom.storage.sqlite.archive import Reader
from loom.storage.sqlite.engine import translate as translate_values
from loom.storage.sqlite.filters import checked_metadata, metadata_condition
from loom.storage.sqlite.projections import LAST_NUMBER
from loom.storage.sqlite.residency import each
from loom.storage.sqlite.transactions import BEGUN

__all__ = ["ADAPTERS", "PostgresConnection", "Rows", "is_gone", "translate", "translated"]

# From this many rows on, COPY is faster than one statement for each row.
_FEWEST_COPIED = 8

_UNESCAPE = re.compile("\x01([ab])")
_UNESCAPED = {"a": "\x00", "b": "\x01"}


class _TextDumper(Dumper):
    """Escapes text for PostgreSQL. The server infers its type."""

    oid = 0

    def dump(self, obj: str) -> bytes:
        return escaped(obj)


class _TextLoader(Loader):
    """Unescapes text. A mark of the archive stays a mark."""

    def load(self, data: Any) -> str:
        text = str(data, "utf-8")
        if "\x01" in text:
            if text.startswith(ARCHIVED):
                return _InBlock(text)
            return _UNESCAPE.sub(lambda found: _UNESCAPED[found[1]], text)
        return text


class _InBlock(str):
    """The mark of a text in an archive block. No stored text begins like this before it is unescaped."""

    __slots__ = ()


class _NumberLoader(Loader):
    """Loads numeric sums without a fraction as integers."""

    def load(self, data: Any) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text or b"N" in text else int(text)


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(str, _TextDumper)
    for name in ("text", "varchar"):
        adapters.register_loader(name, _TextLoader)
    adapters.register_loader("numeric", _NumberLoader)
    return adapters


ADAPTERS = _adapters()


class PostgresConnection:
    """One connection in one transaction, on the tables of one namespace. Valid inside the block that yields it."""

    def __init__(
        self,
        raw: psycopg.Connection[Any],
        dialect: Dialect,
        namespace: int,
        archive: Reader,
        *,
        prepared: Prepared,
        copies: bool,
    ) -> None:
        self.raw = raw
        self.text_factory: Any = str
        self.head: tuple[Any, ...] | None = None
        """The result of `BEGUN`, as read by the statement that locked the namespace."""
        self.last_number: int | None = None
        """The result of `LAST_NUMBER` in a transaction that only reads."""
        self.last_statements = b""
        """Statements that are executed together with the commit."""
        self._waiting: list[tuple[str, list[Any]]] = []
        self.namespace = namespace
        self._dialect = dialect
        self._archive = archive
        self._prepared = prepared
        self._copies = copies

    # Statements without a needed result wait for the next statement or the end of the transaction, and become one
    # statement, or a COPY. The new head is written together with the commit.

    def defer(self, statement: str, rows: Sequence[Any]) -> None:
        """Execute an INSERT for each of the rows before the next statement."""
        self._waiting += [(statement, [*row]) for row in rows]

    def at_commit(self, statement: str, numbers: Sequence[int]) -> None:
        """Execute a statement whose values are numbers together with the commit."""
        spoken = self._dialect.spell(statement)
        values = spoken.values(numbers, self.namespace)
        self.last_statements += spoken.text.replace(b"%s", b"%d") % tuple(values) + b"; "

    def settle(self) -> None:
        """Execute the deferred statements."""
        waiting, self._waiting = self._waiting, []
        by_statement: dict[str, list[list[Any]]] = {}
        for one, row in waiting:
            by_statement.setdefault(one, []).append(row)
        alone = [(one, rows[0]) for one, rows in by_statement.items() if len(rows) == 1]
        for one, rows in by_statement.items():
            if len(rows) >= _FEWEST_COPIED and self._copies:
                self._copy(one, rows)
            elif len(rows) > 1:
                self.executemany(one, rows)
        self._together(alone)

    def _together(self, statements: Sequence[tuple[str, list[Any]]]) -> None:
        """Execute statements as one. None may read the writes of another."""
        if not statements:
            return
        spoken = [(self._dialect.spell(statement), values) for statement, values in statements]
        *before, (last, _) = spoken
        parts = b", ".join(b"w%d AS (%s)" % (number, one.text) for number, (one, _) in enumerate(before))
        text = b"WITH %s %s" % (parts, last.text) if before else last.text
        values = [value for one, given in spoken for value in one.values(given, self.namespace)]
        self._prepared.execute(self.raw, text, values)

    def _copy(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        into, _, _ = self._dialect.spell(statement).text.decode().removeprefix("INSERT INTO ").partition(" VALUES")
        with self.raw.cursor().copy(f"COPY {into} FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def execute(self, statement: str, parameters: Any = (), /) -> Cursor:
        if self._waiting:
            self.settle()
        if self.head is not None and statement == BEGUN:
            head, self.head = self.head, None
            return Rows([head])
        if self.last_number is not None and statement == LAST_NUMBER:
            return Rows([(self.last_number,)])
        rows = self._rows(statement, parameters)
        return Rows([self._whole(row) for row in rows]) if rows.has_marks() else rows

    def execute_plainly(self, statement: str, parameters: Any) -> Rows:
        """The rows of a statement. A mark replaces each text in an archive block (`Rows.has_marks`)."""
        return self._rows(statement, parameters)

    def _rows(self, statement: str, parameters: Any) -> Rows:
        spoken = self._dialect.spell(statement)
        values = spoken.values(parameters, self.namespace)
        result = self._prepared.execute(self.raw, spoken.text, values)
        transformer = Transformer(self.raw)
        transformer.set_pgresult(result)
        return Rows(transformer.load_rows(0, result.ntuples, tuple), result.command_tuples, spoken.archived)

    def executemany(self, statement: str, parameters: Iterable[Any], /) -> Cursor:
        if self._waiting:
            self.settle()
        spoken = self._dialect.spell(statement)
        cursor = self.raw.cursor()
        cursor.executemany(spoken.text, [spoken.values(one, self.namespace) for one in parameters])
        found: Cursor = cursor
        return found

    def _whole(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row with its texts from archive blocks; None in place of a text whose block is damaged."""
        return tuple(self._archived(value) if type(value) is _InBlock else value for value in row)

    def _archived(self, mark: str) -> str | None:
        part, number, seq = mark[len(ARCHIVED) :].split(" ")
        try:
            block = self._archive.block(self, int(number))
            return block.content(int(seq)) if part == "content" else block.data(int(seq))
        except DamagedBlock:
            return None  # the row names its block, and reading it reports the damage


class Rows:
    """The rows of a result."""

    def __init__(
        self, rows: list[tuple[Any, ...]], rowcount: int | None = None, may_have_marks: bool = False
    ) -> None:
        self.rowcount = rowcount or 0
        self._rows = rows
        self._may_have_marks = may_have_marks

    def has_marks(self) -> bool:
        """Whether marks replace texts in archive blocks."""
        return self._may_have_marks and any(type(value) is _InBlock for row in self._rows for value in row)

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        rows, self._rows = self._rows, []
        return rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())


_FIRST_ROWS = 64


@each.register
def _each(connection: PostgresConnection, query: str, values: Sequence[Any]) -> Iterator[Any]:
    """The rows of an ordered query, fetched in batches of growing size."""
    start, count = 0, _FIRST_ROWS
    while True:
        rows = connection.execute(f"{query} LIMIT {count} OFFSET {start}", values).fetchall()
        yield from rows
        if len(rows) < count:
            return
        start, count = start + count, 4 * count


@metadata_condition.register
def _metadata_condition(connection: PostgresConnection, key: Any, value: Any, values: list[Any]) -> str:
    # jsonb refuses NUL, so U+0001 replaces it on both sides here. A list matches a value that it contains.
    choices = [json.dumps(one).replace("\\u0000", "\\u0001") for one in checked_metadata(key, value)]
    values += [json.dumps(key).replace("\\u0000", "\\u0001"), json.dumps(choices)]
    return (
        "coalesce(CAST(replace(r.metadata, '\\u0000', '\\u0001') AS jsonb) -> (CAST(? AS jsonb) #>> '{}') "
        "@> ANY (CAST(?#t AS jsonb[])), FALSE)"
    )


# -- errors ----------------------------------------------------------------------------------------------------------

_BUSY = (
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.TooManyConnections,
)
_UNREADY = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.ReadOnlySqlTransaction)


def is_gone(error: BaseException) -> bool:
    """Whether an error means that this server, or the connection to it, is unusable."""
    if isinstance(error, _UNREADY):
        return True
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def translate(error: BaseException, place: str) -> LoomError | None:
    """The `LoomError` for an error of PostgreSQL; None for other exceptions."""
    if not isinstance(error, psycopg.Error):
        return translate_values(error, None)
    if isinstance(error, _BUSY):
        return StoreBusy(f"other writers held {place} for longer than this write may wait; nothing was written")
    if isinstance(error, errors.DiskFull | errors.OutOfMemory | errors.ConfigurationLimitExceeded):
        return StoreFull(f"no space left for {place}; nothing was written. Free some space and try again.")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreUnavailable(f"{place} refuses this role: {_said(error)}")
    if is_gone(error):
        return StoreUnavailable(
            f"{place} cannot be reached: {_said(error)}. Nothing of this call was stored; try again."
        )
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName | errors.UndefinedColumn):
        return NotAStore(f"{place} is not a loom memory: {_said(error)}")
    if isinstance(error, errors.ProgramLimitExceeded):
        return InvalidInput(f"a key or a name is too long for {place}: {_said(error)}")
    if isinstance(error, psycopg.DataError):
        return InvalidInput(f"a value cannot be stored: {_said(error)}")
    return StoreError(f"{place}: {_said(error)}")


def _said(error: psycopg.Error) -> str:
    """The server's message, without its details, which may quote values."""
    said = error.diag.message_primary or str(error).partition("\n")[0]
    return said.strip() or type(error).__name__


class translated:  # noqa: N801
    """Translates PostgreSQL's errors into loom's inside a block. (It is a class because generators are slower.)"""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, LoomError):
            ours = translate(error, self._place)
            if ours is not None:
                raise ours from error
