"""Statements with values, which are passed to libpq directly and prepared once for each connection.

For each statement, psycopg's cursors take 20 us of CPU time in addition to libpq and the loading of rows, and a
search has a dozen statements.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors
from psycopg.pq import DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import RowFactory, tuple_row

__all__ = ["PooledConnection", "Prepared", "checked", "escape", "escaped"]

# Statements with a list of placeholders have many texts. A statement is therefore prepared when it is executed for
# the second time, and a connection drops the least recently used one.
_MOST = 200

_BOOL, _BYTES, _BIGINT, _INT, _FLOAT, _UNKNOWN = 16, 17, 20, 23, 701, 0

_Key = tuple[bytes, tuple[int, ...]]


class PooledConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection, with the names of the statements that `OneStatement` has prepared on it."""

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[tuple[Any, ...]] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self.prepared: set[bytes] = set()


class Prepared:
    """Executes statements. Without `is_allowed` it prepares none, because a pooler may change the session each
    time."""

    def __init__(self) -> None:
        self.is_allowed = False
        self._of: WeakKeyDictionary[psycopg.Connection[Any], OrderedDict[_Key, bytes]] = WeakKeyDictionary()
        self._count = 0

    def execute(self, raw: psycopg.Connection[Any], text: bytes, values: Sequence[Any]) -> PGresult:
        """Execute a statement whose values are marked by `%s`. The call is not interrupted by signals."""
        given, types, formats = [], [], []
        for value in values:
            kind = type(value)
            if kind is str:
                given.append(escaped(value))
                types.append(_UNKNOWN)
                formats.append(Format.TEXT)
            elif kind is int:
                given.append(b"%d" % value)
                types.append(_INT if -0x8000_0000 <= value <= 0x7FFF_FFFF else _BIGINT)
                formats.append(Format.TEXT)
            else:
                one, oid, form = _dumped(value)
                given.append(one)
                types.append(oid)
                formats.append(form)
        numbered = _numbered(text)
        with raw.lock:
            pgconn = raw.pgconn
            if not self.is_allowed:
                return checked(raw, pgconn.exec_params(numbered, given, types, formats))
            name = self._name(raw, (numbered, tuple(types)))
            if name is None:
                return checked(raw, pgconn.exec_params(numbered, given, types, formats))
            return checked(raw, pgconn.exec_prepared(name, given, formats))

    def _name(self, raw: psycopg.Connection[Any], key: _Key) -> bytes | None:
        """The name of a prepared statement; None when it is executed for the first time."""
        known = self._of.get(raw)
        if known is None:
            known = self._of[raw] = OrderedDict()
        name = known.get(key)
        if name is None:
            known[key] = b""
            return None
        known.move_to_end(key)
        if not name:
            self._count += 1
            name = b"loom_%d" % self._count
            checked(raw, raw.pgconn.prepare(name, *key))
            known[key] = name
            while len(known) > _MOST:
                _, oldest = known.popitem(last=False)
                if oldest:
                    checked(raw, raw.pgconn.exec_(b"DEALLOCATE " + oldest))
        return name


def _dumped(value: Any) -> tuple[Any, int, Format]:
    """A value that is neither a text nor a plain number, its type, and the format of its bytes."""
    if value is None:
        return None, _UNKNOWN, Format.TEXT
    if isinstance(value, bool):
        return (b"t" if value else b"f"), _BOOL, Format.TEXT
    if isinstance(value, float):
        return repr(float(value)).encode(), _FLOAT, Format.TEXT
    if isinstance(value, str):
        return escaped(value), _UNKNOWN, Format.TEXT
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), _BYTES, Format.BINARY
    if isinstance(value, list):
        return escaped("{" + ",".join(map(_quoted, value)) + "}"), _UNKNOWN, Format.TEXT
    return b"%d" % operator.index(value), _BIGINT, Format.TEXT


def _quoted(value: object) -> str:
    """An element of an array of texts."""
    if value is None:
        return "NULL"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


@functools.lru_cache(maxsize=4096)
def _numbered(text: bytes) -> bytes:
    """A statement with `$1`, `$2` and so on in place of its marks."""
    first, *others = text.replace(b"%%", b"\x00").split(b"%s")
    numbered = first + b"".join(b"$%d%b" % (number, part) for number, part in enumerate(others, start=1))
    return numbered.replace(b"\x00", b"%")


def escaped(text: str) -> bytes:
    """A text in the form in which it is stored."""
    return escape(text.encode())


def escape(text: bytes) -> bytes:
    """A text in UTF-8 in the form in which it is stored."""
    if 0 in text or 1 in text:  # numbers, because bytes are first tried as a number, which raises an error
        return text.replace(b"\x01", b"\x01b").replace(b"\x00", b"\x01a")
    return text


def checked(raw: psycopg.Connection[Any], result: PGresult) -> PGresult:
    """A result, or its error."""
    if result.status == ExecStatus.FATAL_ERROR:
        # An error without a code comes from libpq: the connection is lost, even if libpq does not report that yet.
        if raw.closed or result.error_field(DiagnosticField.SQLSTATE) is None:
            raise psycopg.OperationalError(raw.pgconn.get_error_message("utf-8").strip())
        raise errors.error_from_result(result, encoding="utf-8")
    return result
