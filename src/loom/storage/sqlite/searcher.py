"""Search over one snapshot: the indexes of this process, refreshed to the snapshot, and the rows in it.

An index with missing or damaged files is first rebuilt from the records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from loom.errors import CorruptStore, LoomError
from loom.index.analysis import mapping
from loom.index.doc_values import DocValues, of_rows
from loom.index.segments import DamagedSegment
from loom.index.vector_index import Fetched, unit_float16
from loom.storage.contract import Filter, Record
from loom.storage.databases import Connection, Engine
from loom.storage.moments import to_micros
from loom.storage.search_view import NamesRead, SearchView
from loom.storage.sqlite.filters import admitted, conditions, kept_out
from loom.storage.sqlite.maintenance import Maintenance
from loom.storage.sqlite.projections import TEXT, VECTORS, StaleProjection, read_state, unpack_vectors
from loom.storage.sqlite.rows import DOC_VALUE_COLUMNS, fetch_readable, first_version, is_names, read_records, same_id
from loom.storage.sqlite.worker import LeaseLost
from loom.text.entities import names_in

__all__ = ["Searcher"]

Answer = TypeVar("Answer")

_READ = f"SELECT {DOC_VALUE_COLUMNS} FROM records r"
# CROSS JOIN takes two thirds of the time of IN, and the statement is the same for any number of rows.
_READ_ALL = f"SELECT {DOC_VALUE_COLUMNS} FROM json_each(?) j CROSS JOIN records r ON r.seq = j.value"
# Search by the hash of a session, then compare its name: two records are of the same session if both match.
_IN_SESSION = (
    f"{_READ} INDEXED BY records_by_session WHERE r.session_hash = ?1 "
    "AND r.session = (SELECT o.session FROM records o WHERE o.seq = ?2) AND r.seq"
)
_MIXED = (
    "SELECT o.seq, r.seq FROM json_each(?) j CROSS JOIN records o ON o.seq = j.value CROSS JOIN records r "
    "ON r.seq BETWEEN o.seq - ?2 AND o.seq + ?2 WHERE r.session_hash = o.session_hash AND r.session <> o.session"
)
_IN_A_ROW = f"{_READ} INDEXED BY records_by_number WHERE r.namespace = ?1 AND r.seq"

# From records of names to the records in which the names were found, and back, by the first versions of both. The
# other sources are earlier turns.
_PAIR = "SELECT n.seq, n.metadata, r.seq, r.id, r.version FROM json_each(?) j"
_WITHDRAWN = "EXISTS (SELECT 1 FROM supersessions s WHERE s.record = n.seq)"
_HOLDS = f"WHERE {is_names('n')} AND n.committed_at <= ? AND NOT {_WITHDRAWN}"
_SOURCES_OF = (
    f"{_PAIR} CROSS JOIN records n ON n.seq = j.value CROSS JOIN edges e ON e.derived = {first_version('n')} "
    f"CROSS JOIN records f ON f.seq = e.source CROSS JOIN records r ON {same_id('r', 'f')} {_HOLDS}"
)
_NAMES_OF = (
    f"{_PAIR} CROSS JOIN records r ON r.seq = j.value CROSS JOIN edges e ON e.source = {first_version()} "
    f"CROSS JOIN records f ON f.seq = e.derived CROSS JOIN records n ON {same_id('n', 'f')} {_HOLDS}"
)
# From records, and from derived records that became true with them, to the records they superseded and, along the
# supersessions, to the records that are valid now. A longer sequence of supersessions is not followed to its end. One
# that ends in a withdrawal has no valid record.
_LONGEST_CHAIN = 1000
_KNOWN = "s.at <= ?2 AND s.committed_at <= ?3"
_REPLACEMENTS = (
    "WITH RECURSIVE own(seq) AS (SELECT j.value FROM json_each(?1) j "
    f"UNION SELECT n.seq FROM json_each(?1) j CROSS JOIN records r ON r.seq = j.value "
    f"CROSS JOIN edges e ON e.source = {first_version()} CROSS JOIN records f ON f.seq = e.derived "
    f"CROSS JOIN records n ON {same_id('n', 'f')} AND n.seq > r.seq AND n.created_at = r.created_at), "
    "chain(first, seq, length) AS (SELECT o.seq, o.seq, 0 FROM own o "
    "UNION SELECT c.first, s.by, c.length + 1 FROM chain c CROSS JOIN supersessions s ON s.record = c.seq "
    f"WHERE s.by <> s.record AND {_KNOWN} AND c.length < {_LONGEST_CHAIN}) "
    "SELECT c.first, c.seq FROM chain c WHERE c.length > 0 "
    f"AND NOT EXISTS (SELECT 1 FROM supersessions s WHERE s.record = c.seq AND {_KNOWN}) "
    "UNION SELECT s.record, s.by FROM own o CROSS JOIN supersessions s ON s.by = o.seq "
    f"WHERE s.by <> s.record AND {_KNOWN}"
)
_ALWAYS = 2**62

_VECTORS = (
    "SELECT seq, record, data FROM vectors WHERE record IN (SELECT value FROM json_each(?)) AND space = ? "
    "ORDER BY record"
)

_USES = (
    "SELECT a.record, a.count FROM json_each(?) j CROSS JOIN accesses a "
    "ON a.namespace = ? AND a.node = ? AND a.record = j.value"
)


class Searcher:
    def __init__(self, engine: Engine, maintenance: Maintenance) -> None:
        self._engine = engine
        self._maintenance = maintenance
        self._number = maintenance.namespace

    def search(self, ask: Callable[[SearchView], Answer]) -> Answer:
        """Run a search. If a segment turns out to be damaged inside, rebuild its index and retry once."""
        try:
            return self._ask(ask)
        except DamagedSegment:
            damaged = self._maintenance.index.damaged_kinds() or [TEXT, VECTORS]
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            # Damage that the header does not reveal can cause any of these errors. Without damage it is raised.
            damaged = [] if isinstance(error, LoomError) else self._maintenance.index.damaged_kinds()
            if not damaged:
                raise
        for kind in damaged:
            with self._engine.read() as connection:
                generation = read_state(connection, self._number, kind).generation
            self._repair(StaleProjection(kind, generation))
        return self._ask(ask)

    def _ask(self, ask: Callable[[SearchView], Answer]) -> Answer:
        """Run a search on a snapshot, after refreshing the index to it. Repairs a damaged projection."""
        own = self._maintenance
        for _ in range(100):
            with self._engine.reading(), self._engine.read() as connection, own.index.lock:
                try:
                    own.index.refresh(connection)
                except StaleProjection as stale:
                    damage = stale
                else:
                    own.notice_tail()
                    return ask(_View(connection, own))
            self._repair(damage)
            self._engine.renew_reading()
        raise CorruptStore("the index of this store cannot be rebuilt; run check()")

    def _repair(self, damage: StaleProjection) -> None:
        """Rebuild a projection with missing or damaged files, unless it has changed meanwhile.

        Usually it has changed: another process merged segments after this one read their names.
        """
        with self._engine.read() as connection:
            if read_state(connection, self._number, damage.kind).generation != damage.generation:
                return
        if self._engine.read_only:
            self._maintenance.index.rely_on_records(damage.kind, damage.generation)
        else:
            self.rebuild(damage.kind, damage.generation)

    def rebuild(self, kind: str, generation: int | None = None) -> None:
        """Rebuild a projection from the records. With `generation`, only if it still has that generation."""
        own = self._maintenance
        with own.worker.lease(wait_s=60.0) as fence:
            if fence is None:
                return
            projector = own.projector(fence)
            try:
                if projector.reset(kind, generation):
                    while projector.due(kind):
                        projector.extend(kind)
            except (LeaseLost, StaleProjection):
                return  # another process rebuilds it: the caller retries


class _View:
    """A `loom.storage.search_view.SearchView` of the index of this process and the snapshot of a connection."""

    def __init__(self, connection: Connection, maintenance: Maintenance) -> None:
        self._connection = connection
        self._number = maintenance.namespace
        self._index = index = maintenance.index
        self._accesses = maintenance.accesses
        self._filters: dict[int, tuple[Filter, tuple[str, list[Any]]]] = {}
        self._records: dict[int, Record] = {}
        self.text = index.text
        usable = index.space == maintenance.space and not index.vectors_are_coming
        vectors = index.vectors if usable else None
        self.vectors = None if vectors is None else vectors.reading(self._stored_vectors)
        self.kept = index.kept
        self.derived = index.derived

    def _conditions(self, wanted: Filter) -> tuple[str, list[Any]]:
        """The filter as SQL. Cached, because most searches use a single filter several times."""
        known = self._filters.get(id(wanted))
        if known is None:
            known = self._filters[id(wanted)] = (wanted, conditions(wanted, self._number, self._connection))
        return known[1]

    def _stored_vectors(self, keys: npt.NDArray[np.int64]) -> Fetched:
        """The vectors of these ascending numbers, as segments hold them."""
        assert self.vectors is not None
        rows = self._connection.execute(_VECTORS, (str(keys.tolist()), self._index.space)).fetchall()
        if not rows:
            return Fetched(keys[:0], np.empty((0, self.vectors.dimensions), dtype=np.float16))
        found, vectors = unpack_vectors(rows)
        return Fetched(found, unit_float16(vectors))

    def admitted(self, seqs: Sequence[int], wanted: Filter) -> set[int]:
        if wanted.narrows or self._index.holds_forgotten:
            return admitted(self._connection, seqs, *self._conditions(wanted))
        return set(seqs) - kept_out(self._connection, seqs, wanted.derived is False)

    def numbers(self, wanted: Filter, most: int) -> npt.NDArray[np.int64] | None:
        where, values = self._conditions(wanted)
        query = f"SELECT r.seq FROM records r WHERE {where} LIMIT ?"
        found = [seq for (seq,) in self._connection.execute(query, (*values, most + 1))]
        return np.array(sorted(found), dtype=np.int64) if len(found) <= most else None

    def doc_values(self, seqs: Sequence[int], wanted: Filter, known: Collection[int] = ()) -> dict[int, DocValues]:
        found, left = self._index.doc_values(seqs)
        unsure = [seq for seq in found if seq not in known]
        for seq in set(unsure) - self.admitted(unsure, wanted):
            del found[seq]
        if left:
            where, values = self._conditions(wanted)
            rows = fetch_readable(self._connection, f"{_READ_ALL} WHERE {where}", (str(left), *values))
            found.update((one.seq, one) for one in of_rows(rows))
        return found

    def beside(self, one: DocValues, wanted: Filter, limit: int, *, before: bool) -> list[DocValues]:
        where, values = self._conditions(wanted)
        query, of = (_IN_SESSION, one.session) if one.session else (_IN_A_ROW, self._number)
        side = f"< ?2 AND {where} ORDER BY r.seq DESC" if before else f"> ?2 AND {where} ORDER BY r.seq"
        rows = fetch_readable(self._connection, f"{query} {side} LIMIT ?", (of, one.seq, *values, limit))
        return of_rows(rows)

    def mixed(self, seqs: Sequence[int], distance: int) -> set[tuple[int, int]]:
        unsure = [seq for seq in seqs if not self._index.is_apart(seq, distance)]
        found = set(self._connection.execute(_MIXED, (str(unsure), distance))) if unsure else set()
        if not found:
            self._index.note_apart(unsure, distance)
        return found

    def names_read(self, seqs: Sequence[int], known_at: datetime | None, *, held: bool = False) -> list[NamesRead]:
        until = _ALWAYS if known_at is None else to_micros(known_at)
        rows = self._connection.execute(_SOURCES_OF if held else _NAMES_OF, (str([*seqs]), until))
        pairs = ((seq, mapping(metadata), *names) for seq, metadata, *names in rows)
        return [
            NamesRead(seq, names_in(more), source)
            for seq, more, source, id, version in pairs
            if (more.get("of"), more.get("version")) == (id, version)
        ]

    def replacements(
        self, seqs: Sequence[int], as_of: datetime | None, known_at: datetime | None
    ) -> list[tuple[int, int]]:
        until = [_ALWAYS if one is None else to_micros(one) for one in (as_of, known_at)]
        return sorted(self._connection.execute(_REPLACEMENTS, (str([*seqs]), *until)))

    def records(self, seqs: Sequence[int]) -> dict[int, Record]:
        # Cached: several stages of a recall read the same records, and a read takes 10 us a record.
        read = self._records
        unread = [seq for seq in seqs if seq not in read]
        if unread:
            read.update(read_records(self._connection, self._number, unread))
        return {seq: read[seq] for seq in sorted(seqs) if seq in read}

    def uses(self, seqs: Sequence[int], node: str) -> dict[int, int]:
        found = dict(self._connection.execute(_USES, (str([*seqs]), self._number, node)).fetchall())
        recent = ((seq, self._accesses.of(seq, node)) for seq in seqs)
        return found | {seq: found.get(seq, 0) + more.number for seq, more in recent if more}
