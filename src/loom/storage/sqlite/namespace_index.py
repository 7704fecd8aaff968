"""The indexes of one namespace in this process: the open segments, and the tail above them.

The tail is in memory and is searched exactly. `refresh` follows the database. `projections` builds and merges
segments.
"""

from __future__ import annotations

import sqlite3
import threading
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from loom.errors import UnsupportedStore
from loom.index import text_index, vector_index
from loom.index.doc_values import DocValues
from loom.index.segments import DamagedSegment, Segment
from loom.steps import step
from loom.storage.databases import Connection, Engine, Wanted
from loom.storage.identity import SPAN
from loom.storage.sqlite.projections import (
    LIVING,
    SCRUB,
    TEXT,
    TEXT_BASIS,
    VECTORS,
    Entry,
    ProjectionState,
    StaleProjection,
    active_space,
    analysed,
    forgotten_since,
    is_damaged_segment,
    last_number,
    open_published,
    published,
    read_state,
    unpack_vectors,
    vectors_above,
)
from loom.storage.sqlite.rows import INDEX_COLUMNS, damaged_as_bytes, is_no_text

__all__ = ["NEWEST", "NEWEST_DERIVED", "NamespaceIndex"]

NEWEST_DERIVED = 4_096
"""The number of derived records is estimated from this many of the newest derived records."""

# The most records in the cache of records whose neighbouring sessions share no hash.
_MOST_APART = 16_384

NEWEST = (
    "SELECT count(*), count(*) FILTER (WHERE namespace = ?), min(record), max(record) "
    "FROM (SELECT record, namespace FROM derivations ORDER BY record DESC LIMIT ?) newest"
)
"""SQL over the newest derived records: their count, their count in the namespace, the first and the last."""

_SCRUBS = "SELECT EXISTS (SELECT 1 FROM jobs WHERE namespace = ? AND kind = ?)"
_FOUND_BY = f"SELECT r.seq, {INDEX_COLUMNS} {LIVING}"


class NamespaceIndex:
    """The indexes of one namespace as one process has them open. Use under `lock`, after `refresh`."""

    def __init__(self, engine: Engine, namespace: int, newest_derived: int = NEWEST_DERIVED) -> None:
        self._engine = engine
        self._namespace = namespace
        self._newest_derived = newest_derived
        self._folder = engine.index_folder
        self.lock = threading.RLock()
        self._unusable: dict[str, int] = {}  # kind -> generation with damaged files that a reader may not repair
        self._seen = self._snapshot = 0  # the last sequence numbers that were followed, and of the current snapshot
        self._forgotten_seen: int | None = None
        self._states = {TEXT: ProjectionState(basis=TEXT_BASIS), VECTORS: ProjectionState()}
        self._segments: dict[str, dict[str, Segment]] = {TEXT: {}, VECTORS: {}}
        self._mapped: list[Segment] = []
        self.holds_forgotten = False
        self.derived = self._last_derived = 0
        self._apart: dict[int, int] = {}
        self._tail = text_index.TextTail()
        self._tail_seen = 0
        self.text = text_index.TextIndex([], self._tail)
        self.space: int | None = None
        """The embedding space of the vectors."""
        self._vector_tail: vector_index.VectorTail | None = None
        self._vectors_seen = 0
        self.vectors: vector_index.VectorIndex | None = None
        self.kept: dict[Hashable, Any] = {}
        """Results that searches computed from the vectors and their records: see `SearchView.kept`."""
        self.vectors_are_coming = False
        """Whether searches use words until the files of the vectors have been fetched."""

    @property
    def tail(self) -> tuple[int, int]:
        """The generation of the text segments, and the number of records in the tail above them."""
        return self._states[TEXT].generation, len(self._tail)

    @step("index.refresh")
    def refresh(self, connection: Connection) -> None:
        """Follow the database up to the connection's snapshot.

        Raises `StaleProjection` if a segment file is missing or damaged.
        """
        if not all(segment.is_unchanged for segment in self._mapped):
            self._look_again()
        self._snapshot = seq = last_number(connection)
        if seq <= self._seen and not self.holds_forgotten:
            return
        self._follow_text(connection)
        self._follow_vectors(connection)
        self.holds_forgotten = bool(connection.execute(_SCRUBS, (self._namespace, SCRUB)).fetchone()[0])
        seen = self._forgotten_seen  # before the first refresh the tails are empty
        forgotten = [] if seen is None else forgotten_since(connection, self._namespace, seen)
        if forgotten:
            self._drop(forgotten)
        if forgotten or self._forgotten_seen is None:  # a block may have been cached before the first refresh
            self._engine.archive.clear()
        if forgotten or not self._last_derived:
            self.derived, self._last_derived = self._estimate_derived(connection)
        else:  # those written since the last refresh
            more, last = connection.execute(
                "SELECT count(*), max(record) FROM derivations WHERE record > ? AND namespace = ?",
                (self._last_derived, self._namespace),
            ).fetchone()
            self.derived, self._last_derived = self.derived + more, last or self._last_derived
        self._forgotten_seen = seq
        self._seen = 0 if self.vectors_are_coming else seq

    def _estimate_derived(self, connection: Connection) -> tuple[int, int]:
        """The estimated number of derived records, and the last of them.

        The estimate uses the newest ones. Counting all would slow the first answer of a large store.
        """
        newest, own, oldest, last = connection.execute(
            NEWEST,
            (self._namespace, self._newest_derived),
        ).fetchone()
        if newest < self._newest_derived:
            return int(own), last or 0
        return max(1, round(own * (last % SPAN) / (last - oldest + 1))), last

    def _follow_text(self, connection: Connection) -> None:
        state = self._state(connection, TEXT)
        if state.basis and state.basis != TEXT_BASIS:
            raise UnsupportedStore(
                "this store's index was rebuilt by another version of loom; restart this process with that version"
            )
        if state.generation != self._states[TEXT].generation:
            segments = self._load(connection, TEXT, state)
            if state.watermark < self._states[TEXT].watermark:  # started over: the tail must hold all of it
                self._tail = text_index.TextTail()
                self._tail_seen = 0
            tail_keys = self._tail.keys()
            for key in [key for key in tail_keys if key <= state.watermark]:
                self._tail.remove(key)
            self.text = text_index.TextIndex(segments, self._tail)
            self._states[TEXT] = state
        self._tail_seen = max(self._tail_seen, state.watermark)
        try:
            self._follow_tail(connection)
        except sqlite3.OperationalError as error:
            if not is_no_text(error):
                raise
            with damaged_as_bytes(connection):  # a search does not find such a record; reading it reports the damage
                self._follow_tail(connection)

    def _follow_tail(self, connection: Connection) -> None:
        for key, *columns in connection.execute(_FOUND_BY, (self._namespace, self._tail_seen)):
            self._tail.add(key, analysed(key, columns, {}))
            self._tail_seen = key

    def _follow_vectors(self, connection: Connection) -> None:
        space = active_space(connection, self._namespace)
        if space is None:
            self.space, self._vector_tail, self.vectors = None, None, None
            self.kept.clear()
            return
        number, dimensions = space
        if number != self.space or self._vector_tail is None:
            self.space = number
            self._vector_tail = vector_index.VectorTail(dimensions)
            self._vectors_seen = 0
            self._states[VECTORS] = ProjectionState()
            self._segments[VECTORS] = {}
            self.kept.clear()
            self._watch()
            self.vectors = vector_index.VectorIndex(dimensions, [], self._vector_tail)
        state = self._state(connection, VECTORS)
        self.vectors_are_coming = False
        if state.generation != self._states[VECTORS].generation:
            known = self._segments[VECTORS]
            wanted = [
                Wanted(entry.file, entry.records, codes_only)
                for entry, codes_only in self._published(connection, VECTORS)
                if entry.file not in known
            ]
            if self._engine.fetch_later(wanted):
                self.vectors_are_coming = True
                return
            segments = self._load(connection, VECTORS, state)
            self._vector_tail = vector_index.VectorTail(dimensions)
            self._vectors_seen = state.watermark
            self.kept.clear()
            self.vectors = vector_index.VectorIndex(dimensions, segments, self._vector_tail)
            self._states[VECTORS] = state
        rows = vectors_above(connection, self._namespace, number, max(self._vectors_seen, state.watermark))
        if rows:
            self._vector_tail.add(*unpack_vectors(rows))
            self._vectors_seen, *_ = rows[-1]

    def _state(self, connection: Connection, kind: str) -> ProjectionState:
        state = read_state(connection, self._namespace, kind)
        return replace(state, watermark=0) if self._unusable.get(kind) == state.generation else state

    def rely_on_records(self, kind: str, generation: int) -> None:
        """Search records instead of this generation's files, which a reader may not repair: slower, same answers."""
        self._unusable[kind] = generation
        self._states[kind] = replace(self._states[kind], generation=-1)  # so that the next refresh loads it again
        self._seen = 0

    def _look_again(self) -> None:
        """Reopen and so verify the segments whose files have changed. Damage raises `StaleProjection`."""
        for kind, segments in self._segments.items():
            whole = {name: segment for name, segment in segments.items() if segment.is_unchanged}
            if len(whole) < len(segments):
                self._segments[kind] = whole
                self._states[kind] = replace(self._states[kind], generation=-1)
        self._watch()
        self._seen = 0

    def _watch(self) -> None:
        """Collect the segments whose files are checked for changes before each search."""
        self._mapped = [one for held in self._segments.values() for one in held.values() if one.file is not None]

    def damaged_kinds(self) -> list[str]:
        """The kinds of index with a damaged open segment. Reads all segments completely."""
        with self.lock:
            return [
                kind
                for kind, segments in self._segments.items()
                if any(is_damaged_segment(kind, segment) for segment in segments.values())
            ]

    def _load(self, connection: Connection, kind: str, state: ProjectionState) -> list[Segment]:
        if self._unusable.get(kind) == state.generation:
            self._segments[kind] = {}
            self._watch()
            return []
        known = self._segments[kind]
        opened: dict[str, Segment] = {}
        for entry, codes_only in self._published(connection, kind):
            segment = known.get(entry.file)
            if segment is None:
                if self._folder is None:
                    raise StaleProjection(kind, state.generation)
                try:
                    segment = open_published(
                        kind,
                        self._folder,
                        entry,
                        self._engine.store_id,
                        provide=partial(self._provide, connection, codes_only),
                    )
                except DamagedSegment as error:
                    raise StaleProjection(kind, state.generation) from error
            opened[entry.file] = segment
        self._segments[kind] = opened
        self._watch()
        return list(opened.values())

    def _published(self, connection: Connection, kind: str) -> list[tuple[Entry, bool]]:
        """The current segments of a kind, and whether their codes suffice."""
        entries = published(connection, self._namespace, kind)
        many = kind == VECTORS and sum(entry.records for entry in entries) >= self._engine.codes_only_from
        # Small segments are scored whole.
        return [(entry, many and entry.records >= vector_index.DEFAULT_LIMITS.exact_below) for entry in entries]

    def _provide(self, connection: Connection, codes_only: bool, name: str, afresh: bool) -> bool:
        return self._engine.provide_file(connection, name, afresh=afresh, codes_only=codes_only)

    def _drop(self, records: Iterable[int]) -> None:
        """Remove forgotten records from the tails. Scrubbing replaces the segments that hold them."""
        self.kept.clear()
        for record in records:
            self._tail.remove(record)
        if self._vector_tail is not None:
            self._vector_tail.remove(list(records))

    def doc_values(self, keys: Sequence[int]) -> tuple[dict[int, DocValues], list[int]]:
        """The doc values from segments for ascending sequence numbers, and the numbers that only the database has.

        While `holds_forgotten` is true, some of these records may be forgotten; check them in the database.
        """
        known, left = self.text.doc_values(keys)
        return known, [*left, *keys[bisect_right(keys, self._states[TEXT].watermark) :]]

    def is_apart(self, seq: int, distance: int) -> bool:
        """Whether the sessions around this record, up to `distance` away, are known not to share a hash."""
        return self._apart.get(seq, 0) >= distance

    def note_apart(self, seqs: Iterable[int], distance: int) -> None:
        """Remember that no sessions around these records share a hash under different names.

        This stays true: a record never changes its session, and new records have higher sequence numbers.
        """
        if len(self._apart) > _MOST_APART:
            self._apart.clear()
        self._apart.update((seq, distance) for seq in seqs if seq + distance <= self._snapshot)
