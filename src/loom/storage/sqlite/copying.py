"""Rows for snapshots: the described tables, read from a SQLite database and stored in one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from loom.storage import contract
from loom.storage.contract import Origin
from loom.storage.databases import Connection
from loom.storage.identity import id_hash
from loom.storage.sqlite import archive, counting
from loom.storage.sqlite.projections import SCRUB, TEXT, VECTORS, last_number
from loom.storage.sqlite.rows import RECORD_COLUMNS, check_row
from loom.storage.tables import TABLES, Row, shifted

__all__ = ["IDENTITY", "Copy", "Rows", "insert"]

_PIECE_BYTES = 256 * 1024

# By table: its name in the database, the rows to leave out, and the values not to copy.
_NAMES = {"progress": "projections"}
_ONLY = {
    "progress": f"t.kind NOT IN ('{TEXT}', '{VECTORS}', '{archive.PROGRESS}', '{counting.PROGRESS}')",
    # A new store holds no forgotten copies, so it has nothing to scrub.
    "jobs": f"t.kind != '{SCRUB}'",
    "blobs": "t.key IS NOT NULL",
}
_READ_AS = {"blobs": {"size": "length(t.data)"}}
_FIXED = {
    "records": {"id_hash": "?", "session_hash": "?", "checksum": "?"},
    "blobs": {"data": "?"},
    "vectors": {"space": "?"},
    "progress": {"generation": "0", "basis": "''"},
}
IDENTITY = (
    "SELECT id, created_at, "
    "max(committed_at, ifnull((SELECT committed_at FROM records ORDER BY seq DESC LIMIT 1), 0)) FROM store"
)
"""The id of the database, its creation time, and its last commit time."""

_LIVES = "EXISTS (SELECT 1 FROM records r WHERE r.seq = t.{} AND r.version > 0{})"
# The first versions of both ends; for a source that is not stored yet, its id.
_EDGES = (
    "SELECT e.derived, e.source, NULL FROM edges e "
    "JOIN records d ON d.seq = e.derived AND d.version = 1 JOIN records s ON s.seq = e.source AND s.version = 1 "
    "WHERE d.namespace IN ({chosen}) UNION ALL SELECT w.derived, NULL, w.id FROM awaited w "
    "JOIN records d ON d.seq = w.derived AND d.version = 1 "
    "WHERE w.namespace IN ({chosen}) AND w.id_hash IS NOT NULL"
)


class Rows(contract.Rows):
    """Reads rows of the chosen namespaces on one connection, in the caller's transaction."""

    connection: Connection
    chosen: Sequence[int]

    @property
    def _chosen(self) -> str:
        return ", ".join(map(str, self.chosen))

    def origin(self) -> Origin:
        execute = self.connection.execute
        store, created_at, committed_at = execute(IDENTITY).fetchone()
        names = execute(f"SELECT number, name FROM namespaces WHERE number IN ({self._chosen}) ORDER BY number")
        active = dict(
            execute(
                "SELECT t.namespace, s.number FROM settings t JOIN spaces s ON s.number = CAST(t.value AS INTEGER) "
                f"WHERE t.node = '' AND t.key = 'space' AND t.namespace IN ({self._chosen}) ORDER BY 1"
            ).fetchall()
        )
        spaces = execute("SELECT number, name, dimensions FROM spaces ORDER BY 1").fetchall()
        return Origin(
            store,
            created_at,
            self._position(),
            committed_at,
            dict(names.fetchall()),
            execute("SELECT max(number) FROM namespaces").fetchone()[0],
            {number: (name, dimensions) for number, name, dimensions in spaces if number in active.values()},
            active,
        )

    def _position(self) -> int:
        return last_number(self.connection)

    def rows(
        self, table: str, *, after: int = 0, newest: int | None = None, **equal: Any
    ) -> Iterator[tuple[Any, ...]]:
        found = self.connection.execute(*self._query(table, after, newest, equal))
        return map(_described, found) if table == "records" else iter(found)

    def count_rows(self, table: str, *, after: int = 0) -> int:
        query, values = self._query(table, after, None, {})
        return int(self.connection.execute(f"SELECT count(*) FROM ({query}) counted", values).fetchone()[0])

    def _query(self, table: str, after: int, newest: int | None, equal: Row) -> tuple[str, Row]:
        if table == "records":
            return self._record_query(after, newest, equal)
        if table == "vectors":
            return self._vector_query(after)
        if table == "edges":
            return _EDGES.format(chosen=self._chosen), {}
        described = TABLES[table]
        flags = {one: f"CASE WHEN t.{one} THEN 1 ELSE 0 END" for one in described.named("flag")}
        read_as, stored = flags | _READ_AS.get(table, {}), described.stored
        columns = (read_as.get(one, f"t.{one}") if one in stored else "NULL" for one in described.columns)
        where = [_ONLY[table]] if table in _ONLY else []
        within = "" if "namespace" in described.columns else f" AND r.namespace IN ({self._chosen})"
        if not within:
            # `+` keeps SQLite from the index over namespaces: appended rows are read in the order of the log.
            in_order = described.appended and (newest or not equal)
            # A forgotten layout is an empty row with -1 as its namespace.
            emptied = ", -1" if table == "entries" and "seq" in equal else ""
            where.append(f"{'+' if in_order else ''}t.namespace IN ({self._chosen}{emptied})")
        where += [f"{flags.get(one, f't.{one}')} = :{one}" for one in equal]
        where += [f"t.{described.appended} > :after"] if described.appended else []
        where += [_LIVES.format(column, within) for column in described.records if column not in described.about]
        where += [f"(t.{column} <= 0 OR {_LIVES.format(column, '')})" for column in described.about]
        number = described.appended or ("seq" if table == "blobs" else "")
        order = f" ORDER BY t.{number}{'' if newest is None else ' DESC LIMIT :newest'}" if number else ""
        query = f"SELECT {', '.join(columns)} FROM {_NAMES.get(table, table)} t WHERE {' AND '.join(where)}{order}"
        return query, {**equal, "after": after, "newest": newest}

    def _record_query(self, after: int, newest: int | None, equal: Row) -> tuple[str, Row]:
        where, values = [f"r.{one} = :{one}" for one in equal], dict(equal)
        index, own = "", "+r.namespace"  # search by sequence number or hash, not by namespace
        if "id" in equal:
            hashes = {f"hash{number}": id_hash(number, equal["id"]) for number in self.chosen}
            where.append(f"r.id_hash IN ({', '.join(f':{name}' for name in hashes)})")
            values |= hashes
        elif "seq" not in equal:  # the index over namespaces skips the rows of others
            index, own = "INDEXED BY records_by_number" if len(self.chosen) == 1 else "NOT INDEXED", "r.namespace"
        where.append(f"{own} IN ({self._chosen})")
        order = "r.seq" if newest is None else "r.seq DESC LIMIT :newest"
        query = (
            f"SELECT {RECORD_COLUMNS}, r.window_tokens FROM records r {index} "
            f"WHERE {' AND '.join(where)} AND r.seq > :after AND r.version > 0 ORDER BY {order}"
        )
        return query, {**values, "after": after, "newest": newest}

    def _vector_query(self, after: int) -> tuple[str, Row]:
        """Rows in log order, so that a copy appends them in log order: see `loom.storage.sqlite.schema`."""
        active = [f"(v.namespace = {one} AND v.space = {space})" for one, space in self.origin().active.items()]
        index = "INDEXED BY vectors_by_number" if len(active) == 1 else "NOT INDEXED"
        query = (
            f"SELECT v.seq, v.record, v.namespace, v.data FROM vectors v {index} "
            f"WHERE ({' OR '.join(active) or '1 = 0'}) AND v.seq > :after AND v.record IS NOT NULL "
            "AND EXISTS (SELECT 1 FROM records r WHERE r.seq = v.record AND r.version > 0) ORDER BY v.seq"
        )
        return query, {"after": after}

    def blob_pieces(self, number: int) -> Iterator[bytes]:
        place, query = 1, "SELECT substr(data, ?, ?) FROM blobs WHERE seq = ?"
        while piece := self.connection.execute(query, (place, _PIECE_BYTES, number)).fetchone()[0]:
            yield bytes(piece)
            place += len(piece)


def _described(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Check a record and return its described columns, with its count."""
    check_row(row)
    # fmt: off
    (
        seq, namespace, _, _, *rest, _, counter, created_at, committed_at, metadata, data, content, _, _, _,
        tokens, window_tokens,
    ) = row
    # fmt: on
    written = (tokens, counter, created_at, committed_at, metadata, data, content, window_tokens)
    return (seq, namespace, *rest, *written)


class Copy(Rows):
    """The rows of some namespaces, read on a private connection. Their sequence numbers count from `zero`."""

    def __init__(self, connection: Connection, chosen: Sequence[int], zero: int = 0) -> None:
        self.connection = connection
        self.chosen = chosen
        self._zero = zero

    def _position(self) -> int:
        return super()._position() - self._zero

    def rows(
        self, table: str, *, after: int = 0, newest: int | None = None, **equal: Any
    ) -> Iterator[tuple[Any, ...]]:
        if not self._zero:
            return super().rows(table, after=after, newest=newest, **equal)
        absolute = {one: value + self._zero if one in ("seq", "record") else value for one, value in equal.items()}
        found = super().rows(table, after=after + self._zero, newest=newest, **absolute)
        return map(shifted(table, -self._zero), found)

    def count_rows(self, table: str, *, after: int = 0) -> int:
        return super().count_rows(table, after=after + self._zero)

    def blob_pieces(self, number: int) -> Iterator[bytes]:
        return super().blob_pieces(number + self._zero)


@functools.lru_cache
def _insertion(table: str, keeping: bool) -> tuple[str, Callable[[Row], tuple[Any, ...]]]:
    stored = [one for one in TABLES[table].stored if one not in _READ_AS.get(table, {})]
    values = dict.fromkeys(stored, "?") | _FIXED.get(table, {})
    statement = (
        f"INSERT {'OR IGNORE ' if keeping else ''}INTO {_NAMES.get(table, table)} ({', '.join(values)}) "
        f"VALUES ({', '.join(values.values())})"
    )
    return statement, itemgetter(*(column for column, value in values.items() if value == "?"))


def insert(connection: Connection, table: str, rows: Iterable[Row], *, keeping: bool = False) -> int:
    """Store rows of a table. Returns their count. With `keeping`, an existing row under the same key stays.

    A row of `records` must have its hashes and its checksum, and a row of `vectors` its space.
    """
    statement, values = _insertion(table, keeping)
    flags = TABLES[table].named("flag")
    stored = ({**row, **{one: bool(row[one]) for one in flags}} for row in rows) if flags else rows
    return connection.executemany(statement, map(values, stored)).rowcount
