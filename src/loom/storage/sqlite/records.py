"""Reading records, the edges between them, their vectors, and the settings of a namespace."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from loom.errors import InvalidInput
from loom.storage import contract
from loom.storage.contract import Change, Filter, Page, Progress, Record, Vector, check_limit
from loom.storage.identity import id_hash
from loom.storage.sqlite.counting import TOKENS
from loom.storage.sqlite.filters import conditions
from loom.storage.sqlite.projections import active_space, last_number, read_state
from loom.storage.sqlite.rows import (
    RECORD_COLUMNS,
    Reader,
    first_number,
    first_version,
    read_records,
    read_settings,
    same_id,
    to_record,
)

__all__ = ["FILE_BYTES", "Records"]

FILE_BYTES = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"

_STATISTICS = {
    "records": "SELECT count(*) FROM records r WHERE namespace = :namespace AND version > 0 "
    "AND NOT EXISTS (SELECT 1 FROM derivations d WHERE d.record = r.seq)",
    "derived": "SELECT count(*) FROM derivations WHERE namespace = :namespace",
    "superseded": "SELECT count(*) FROM supersessions s JOIN records r ON r.seq = s.record "
    "WHERE r.namespace = :namespace",
    "tokens": f"SELECT sum({TOKENS}) FROM records r WHERE namespace = :namespace "
    "AND NOT EXISTS (SELECT 1 FROM derivations d WHERE d.record = r.seq)",
    "vectors": "SELECT count(*) FROM vectors WHERE namespace = :namespace AND record IS NOT NULL",
    "entries": "SELECT count(*) FROM entries e WHERE namespace = :namespace AND NOT deleted AND NOT EXISTS "
    "(SELECT 1 FROM entries n WHERE n.namespace = e.namespace AND n.scope = e.scope "
    "AND n.owner = e.owner AND n.key = e.key AND n.version > e.version)",
    "jobs": "SELECT count(*) FROM jobs WHERE namespace = :namespace",
    "indexed": "SELECT sum(count) FROM segments WHERE namespace = :namespace AND kind = 'text'",
    "segments": "SELECT count(*) FROM segments WHERE namespace = :namespace",
    "file_bytes": FILE_BYTES,
}

# The rows of `changes` by table: sequence number, kind, record, detail.
_CHANGES = (
    ("seq, 'record', seq, id", "(SELECT * FROM records WHERE version > 0) r"),
    (
        "s.seq AS seq, 'supersede', s.record, ''",
        "(SELECT s.seq, s.record, r.namespace FROM supersessions s JOIN records r ON r.seq = s.record) s",
    ),
    ("seq, CASE WHEN entered THEN 'enter' ELSE 'leave' END, record, tier", "moves"),
    ("seq, 'entry', 0, key", "entries"),
    ("seq, 'vector', record, ''", "(SELECT * FROM vectors WHERE record IS NOT NULL) v"),
    ("seq, 'forget', record, ''", "forgotten"),
    ("seq, 'pin', 0, ''", "pins"),
)


class Records(Reader, contract.Records):
    def get(self, id: str) -> Record | None:
        rows = self._all(
            f"SELECT {RECORD_COLUMNS} FROM records r WHERE r.id_hash = ? AND r.id = ? AND +r.namespace = ? "
            "ORDER BY r.version DESC LIMIT 1",
            (id_hash(self.number, id), id, self.number),
        )
        return to_record(rows[0]) if rows else None

    def records(self, seqs: Iterable[int]) -> dict[int, Record]:
        with self.connected(once=True) as connection:
            return read_records(connection, self.number, seqs)

    def scan(self, wanted: Filter, *, limit: int = 100, after: int | None = None, newest_first: bool = True) -> Page:
        check_limit(limit)
        if after is not None and not isinstance(after, int):
            raise InvalidInput(f"after is the `next` of an earlier page, not {after!r}")
        order, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
        follows, more = ("", ()) if after is None else (f"AND r.seq {beyond} ? ", (after,))
        rows = self._admitted(RECORD_COLUMNS, wanted, f"{follows}ORDER BY r.seq {order} LIMIT ?", *more, limit + 1)
        records = tuple(map(to_record, rows[:limit]))
        return Page(records, records[-1].seq if len(rows) > limit else None)

    def numbers(self, wanted: Filter, limit: int, after: int = 0) -> list[int]:
        rows = self._admitted("r.seq", wanted, "AND r.seq > ? ORDER BY r.seq LIMIT ?", after, limit)
        return [seq for (seq,) in rows]

    def count(self, wanted: Filter) -> int:
        return int(self._admitted("count(*)", wanted)[0][0])

    def _admitted(self, columns: str, wanted: Filter, rest: str = "", *more: Any) -> list[Any]:
        """The rows of `records r` that a filter admits, with the rest of the query and its values."""
        with self.connected() as connection:
            where, values = conditions(wanted, self.number, connection)
            query = f"SELECT {columns} FROM records r WHERE {where} {rest}"
            return connection.execute(query, (*values, *more)).fetchall()

    def neighbours(self, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        with self.connected() as connection:
            own = first_number(connection, self.number, id)
            sources, derived = (
                connection.execute(
                    f"SELECT r.id FROM edges e CROSS JOIN records r ON r.seq = e.{far} WHERE e.{near} = ? "
                    "ORDER BY r.id",
                    (own,),
                ).fetchall()
                for far, near in (("source", "derived"), ("derived", "source"))
            )
        return tuple(source for (source,) in sources), tuple(one for (one,) in derived)

    def draws_on(self, derived: str, source: str) -> bool:
        with self.connected() as connection:
            ends = [first_number(connection, self.number, id) for id in (source, derived)]
            row = connection.execute("SELECT 1 FROM edges WHERE source = ? AND derived = ?", ends).fetchone()
        return row is not None

    def is_drawn(self, record: int, replacing: bool = False) -> bool:
        return bool(self._all("SELECT 1 FROM derivations WHERE record = ? AND replaces >= ?", (record, replacing)))

    def replaced(self, seqs: Iterable[int]) -> set[int]:
        return set(
            self._firsts(
                "SELECT r.seq FROM records r WHERE r.seq IN (SELECT value FROM json_each(?)) AND EXISTS ("
                "SELECT 1 FROM edges e CROSS JOIN records f ON f.seq = e.derived "
                f"CROSS JOIN records d ON {same_id('d', 'f')} JOIN derivations v ON v.record = d.seq "
                f"WHERE e.source = {first_version()} AND v.replaces)",
                (json.dumps([*seqs]),),
            )
        )

    def following(self, record: int, limit: int) -> list[int]:
        return self._firsts(
            "SELECT n.seq FROM records r JOIN records n ON n.session_hash = r.session_hash AND n.seq > r.seq "
            "AND n.session = r.session WHERE r.seq = ?1 AND r.namespace = ?2 AND n.namespace = ?2 "
            "AND n.version > 0 ORDER BY n.seq LIMIT ?3",
            (record, self.number, limit),
        )

    def vectors(self, records: Iterable[int]) -> dict[int, Vector]:
        with self.connected() as connection:
            space = active_space(connection, self.number)
            if space is None:
                return {}
            rows = connection.execute(
                "SELECT record, data FROM vectors WHERE record IN (SELECT value FROM json_each(?)) AND space = ?",
                (json.dumps([*records]), space.number),
            ).fetchall()
        return {record: np.frombuffer(data, dtype=np.float16).astype(np.float32) for record, data in rows}

    def changes(self, since: int, limit: int = 1000) -> list[Change]:
        check_limit(limit)
        union = " UNION ALL ".join(
            f"SELECT * FROM (SELECT {columns} FROM {table} WHERE namespace = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3) t"
            for columns, table in _CHANGES
        )
        rows = self._all(f"{union} ORDER BY 1 LIMIT ?3", (self.number, since, limit))
        return [Change(*row) for row in rows]

    def progress(self, name: str) -> Progress:
        with self.connected() as connection:
            return Progress(read_state(connection, self.number, name).watermark, last_number(connection))

    def settings(self, node: str = "") -> dict[str, Any]:
        with self.connected(once=True) as connection:
            return read_settings(connection, self.number, node)

    def nodes(self) -> list[str]:
        return self._firsts(
            "SELECT DISTINCT node FROM settings WHERE namespace = ? AND node != '' ORDER BY node", (self.number,)
        )

    @property
    def space(self) -> tuple[str, int] | None:
        rows: list[tuple[str, int]] = self._all(
            "SELECT s.name, s.dimensions FROM settings JOIN spaces s ON s.number = CAST(value AS INTEGER) "
            "WHERE namespace = ? AND node = '' AND key = 'space'",
            (self.number,),
        )
        return rows[0] if rows else None

    def stats(self) -> dict[str, int]:
        named = {"namespace": self.number}
        with self.connected() as connection:
            found = {name: connection.execute(query, named).fetchone()[0] for name, query in _STATISTICS.items()}
        return {name: int(value or 0) for name, value in found.items()}
