"""The two indexes as projections of the records: building their files, and naming the files in the database.

Immutable segment files cover the log up to a watermark; the records above it are the tail. The transaction that moves
the watermark also names the current files, so a projection always agrees with the records of its database. A backup
beside a newer index folder names its own files, and finds them intact or rebuilds them. Files hold hashes and
vectors, no text. `namespace_index` has the indexes that a process holds in memory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.errors import CorruptStore, StoreFull, StoreUnavailable, UnsupportedStore
from loom.index import text_index, vector_index
from loom.index.analysis import ANALYSIS_VERSION, index_terms
from loom.index.doc_values import packed
from loom.index.segments import DamagedSegment, Segment, open_segment, write_segment
from loom.protocol import new_id
from loom.steps import step
from loom.storage.databases import Connection, Engine
from loom.storage.files import create_folder, disk_errors
from loom.storage.sqlite.rows import INDEX_COLUMNS, fetch_readable

__all__ = [
    "COUNT_UP",
    "LAST_NUMBER",
    "LIVING",
    "SCRUB",
    "TEXT",
    "TEXT_BASIS",
    "VECTORS",
    "Entry",
    "ProjectionState",
    "Projector",
    "Space",
    "StaleProjection",
    "TailLimit",
    "active_space",
    "advance",
    "analysed",
    "choose_merge",
    "count_up",
    "forgotten_since",
    "index_files",
    "index_folder",
    "is_damaged_segment",
    "largest_segment",
    "last_number",
    "open_index",
    "open_published",
    "published",
    "read_state",
    "start_over",
    "unpack_vectors",
    "vector_basis",
    "vectors_above",
]

TEXT = "text"
VECTORS = "vectors"

TEXT_BASIS = f"words-{ANALYSIS_VERSION}"
"""The version of text analysis in new text segments. Segments with another basis are rebuilt."""

SCRUB = "scrub"
"""The kind of job for segments that still hold forgotten records."""

LIVING = "FROM records r WHERE r.namespace = ? AND r.seq > ? AND r.version > 0 ORDER BY r.seq"
"""SQL for the records of a namespace above a sequence number, in the order of writing."""

_INDEXED = (
    f"SELECT r.seq, {INDEX_COLUMNS}, r.session_hash, r.importance, r.tokens, CAST(r.counter AS BLOB) {LIVING} LIMIT ?"
)

# The largest segment is this, or an eighth of all records. Forgetting a record rewrites one segment, in a second or
# two. The first answer of a process reads every segment; with this limit there are at most about sixteen.
_LARGEST_SEGMENT = 131_072
_LARGEST_SHARE = 8
# The limit for every segment: a merge holds the new segment in memory.
_LARGEST_EVER = 1_048_576
# During writes the limit is divided by this: merging 100,000 records takes a second or two, at the expense of the
# writer.
_WHILE_WRITING = 4
# While idle, a tail is indexed once it reaches its limit divided by this. The first answer of every process must read
# and analyse the rest, at about 0.35 ms per record. A smaller limit would make segments of very few records.
_REST_SHARE = 8
# A merge or rewrite reads a segment up to this size into memory. A larger one is mapped and verified.
_REWRITTEN_IN_MEMORY = 1 << 28
# The most records indexed at once. A large import makes large segments from the start.
_LARGEST_CHUNK = 16_384

Provide = Callable[[str, bool], bool]
"""Restores a published file to the folder; True replaces a damaged one. Returns False if there is no copy."""

Built = tuple[Mapping[str, Any], Mapping[str, npt.NDArray[Any]]]


class StaleProjection(Exception):
    """The segment files do not match the projection that names them."""

    def __init__(self, kind: str, generation: int) -> None:
        super().__init__(f"{kind} generation {generation}")
        self.kind = kind
        self.generation = generation


@dataclass(frozen=True, slots=True)
class TailLimit:
    """The longest tail. Every process reads the tail when it starts, and holds it in memory."""

    records: int = 2000
    size_bytes: int = 4 * 1024 * 1024

    @property
    def at_rest(self) -> TailLimit:
        return TailLimit(-(-self.records // _REST_SHARE), -(-self.size_bytes // _REST_SHARE))


@dataclass(frozen=True, slots=True)
class ProjectionState:
    """One row of `projections`: the part of the log that the segments of a kind cover."""

    generation: int = 0
    basis: str = ""
    watermark: int = 0


def index_folder(path: Path | None) -> Path | None:
    """The folder beside the file that holds the segments; None for a store in memory."""
    return None if path is None else path.with_name(path.name + "-index")


def index_files(folder: Path, namespace: int) -> list[str]:
    """The names of the index files of a namespace. Raises `StoreUnavailable` if the folder cannot be listed."""
    own = tuple(f"{kind}-{namespace}-" for kind in (TEXT, VECTORS))
    with disk_errors(f"the index files in {folder} cannot be listed"):
        try:
            return [name for name in os.listdir(folder) if name.startswith(own)]
        except (FileNotFoundError, NotADirectoryError):
            return []


def vector_basis(space: int) -> str:
    return f"space-{space}"


def last_number(connection: Connection) -> int:
    """The last sequence number in use."""
    return int(connection.execute(LAST_NUMBER).fetchone()[0])


def count_up(connection: Connection) -> None:
    """Use a sequence number for a change that is not a record, so that other processes notice the change."""
    connection.execute(COUNT_UP)


_LAST_NUMBER = "max(store.seq, ifnull((SELECT max(seq) FROM records), 0))"
LAST_NUMBER = f"SELECT {_LAST_NUMBER} FROM store"
COUNT_UP = f"UPDATE store SET seq = 1 + {_LAST_NUMBER}"


def read_state(connection: Connection, namespace: int, kind: str) -> ProjectionState:
    """The state of the segments of a kind in the database."""
    row = connection.execute(
        "SELECT generation, basis, watermark FROM projections WHERE namespace = ? AND kind = ?", (namespace, kind)
    ).fetchone()
    return ProjectionState(*row) if row else ProjectionState()


def advance(connection: Connection, namespace: int, kind: str, watermark: int) -> None:
    """Record the progress of work that follows the log, inside the caller's transaction."""
    connection.execute(
        "INSERT INTO projections (namespace, kind, generation, basis, watermark) VALUES (?1, ?2, 0, '', ?3) "
        "ON CONFLICT (namespace, kind) DO UPDATE SET watermark = ?3",
        (namespace, kind, watermark),
    )


def start_over(connection: Connection, namespace: int, kind: str, basis: str) -> None:
    """Drop all segments of a kind, inside the caller's transaction; `Projector.sweep` removes their files."""
    connection.execute("DELETE FROM segments WHERE namespace = ? AND kind = ?", (namespace, kind))
    connection.execute(
        "INSERT INTO projections (namespace, kind, generation, basis, watermark) VALUES (?1, ?2, 1, ?3, 0) "
        "ON CONFLICT (namespace, kind) DO UPDATE "
        "SET generation = projections.generation + 1, basis = ?3, watermark = 0",
        (namespace, kind, basis),
    )
    count_up(connection)


def forgotten_since(connection: Connection, namespace: int, seq: int) -> list[int]:
    """The records of a namespace that were forgotten after a sequence number."""
    rows = connection.execute("SELECT record FROM forgotten WHERE seq > ? AND namespace = ?", (seq, namespace))
    return [record for (record,) in rows]


class Space(NamedTuple):
    """An embedding space: its number in the file, and the length of its vectors."""

    number: int
    dimensions: int


def active_space(connection: Connection, namespace: int) -> Space | None:
    """The embedding space that the namespace uses, if it uses one."""
    row = connection.execute(
        "SELECT s.number, s.dimensions FROM settings JOIN spaces s ON s.number = CAST(value AS INTEGER) "
        "WHERE namespace = ? AND node = '' AND key = 'space'",
        (namespace,),
    ).fetchone()
    return None if row is None else Space(*map(int, row))


def vectors_above(
    connection: Connection, namespace: int, space: int, seq: int, limit: int = 2**62
) -> list[tuple[int, int, bytes]]:
    """The sequence number, record and bytes of the next vectors of a space, in the order of writing."""
    return connection.execute(
        "SELECT seq, record, data FROM vectors WHERE namespace = ? AND space = ? AND seq > ? "
        "AND record IS NOT NULL ORDER BY seq LIMIT ?",
        (namespace, space, seq, limit),
    ).fetchall()


def unpack_vectors(rows: list[tuple[int, int, bytes]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    keys = np.array([record for _, record, _ in rows], dtype=np.int64)
    matrix = np.frombuffer(b"".join([data for _, _, data in rows]), dtype=np.float16)
    return keys, matrix.reshape(len(rows), -1).astype(np.float32)


class Projector:
    """Builds and publishes segments. The caller holds the lease, so only one projector works at a time.

    `fence` is called inside the publishing transaction and raises if the lease is lost.
    """

    def __init__(self, engine: Engine, namespace: int, fence: Callable[[Connection], None], limit: TailLimit) -> None:
        self._engine = engine
        self._namespace = namespace
        self._fence = fence
        self._limit = limit
        folder = engine.index_folder
        if folder is None:
            raise UnsupportedStore("a store in memory has no index files")
        self._folder = folder
        self.bad: dict[int, str] = {}
        """The records of the last `extend` whose text could not be analysed, with the names of the errors."""
        self.covered = (0, 0)
        """The first and the last sequence number of the last `extend`."""
        self.kept: dict[str, str] = {}
        """The files that the last `sweep` could not delete, with the reason."""

    def due(self, kind: str, at_rest: bool = False) -> bool:
        """Whether the tail exceeds its limit, or the lower limit at rest."""
        with self._engine.read() as connection:
            count, size = self._backlog(connection, kind)
        limit = self._limit.at_rest if at_rest else self._limit
        return count >= limit.records or size >= limit.size_bytes

    def _backlog(self, connection: Connection, kind: str) -> tuple[int, int]:
        """The number of records or vectors above the watermark, and their bytes."""
        watermark = read_state(connection, self._namespace, kind).watermark
        if kind == TEXT:
            query = (
                "SELECT count(*), total(length(CAST(content AS BLOB))) FROM records "
                "WHERE namespace = ? AND seq > ? AND version > 0"
            )
            values: tuple[int, ...] = (self._namespace, watermark)
        else:
            space = active_space(connection, self._namespace)
            if space is None:
                return 0, 0
            query = (
                "SELECT count(*), 0 FROM vectors WHERE namespace = ? AND space = ? AND seq > ? AND record IS NOT NULL"
            )
            values = (self._namespace, space.number, watermark)
        count, size = connection.execute(query, values).fetchone()
        return int(count), int(size)

    def extend(self, kind: str) -> int:
        """Index the next chunk of the tail and publish it. Returns the number of records in it."""
        with self._engine.read() as connection:
            seen = last_number(connection)
            state = read_state(connection, self._namespace, kind)
            basis, rows = self._next_rows(connection, kind, state)
        if not rows:
            return 0
        if kind == TEXT:
            doc_values = packed(map(self._doc_values, rows))
            self.bad = {}
            terms = ((seq, analysed(seq, columns[:6], self.bad)) for seq, *columns in rows)
            built: Built = text_index.build(terms, doc_values)
        else:
            built = vector_index.build(*unpack_vectors(sorted(rows, key=itemgetter(1))))
        (first, *_), (last, *_) = rows[0], rows[-1]
        self._publish(kind, basis, state, seen, [built], [], last)
        self.covered = (first, last)
        return len(rows)

    def _next_rows(
        self, connection: Connection, kind: str, state: ProjectionState
    ) -> tuple[str, list[tuple[Any, ...]]]:
        if kind == TEXT:
            values = (self._namespace, state.watermark, _LARGEST_CHUNK)
            return TEXT_BASIS, fetch_readable(connection, _INDEXED, values)
        space = active_space(connection, self._namespace)
        if space is None:
            return "", []
        rows = vectors_above(connection, self._namespace, space.number, state.watermark, _LARGEST_CHUNK)
        return vector_basis(space.number), rows

    def _doc_values(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of `packed` from a row of `_INDEXED`. Counts the tokens of an uncounted record."""
        seq, name, role, created_at, _, content, _, session, importance, tokens, counter = row
        if isinstance(tokens, int) and tokens < 0 and isinstance(content, str):
            tokens = self._engine.counts.of(seq, counter, content)
        return seq, session, created_at, importance, name, role, tokens

    @step("projection.merge")
    def merge(self, kind: str, at_rest: bool = False) -> bool:
        """Merge the newest segments if that pays, at rest into larger ones. Returns True after a merge."""
        with self._engine.read() as connection:
            seen = last_number(connection)
            state = read_state(connection, self._namespace, kind)
            entries = published(connection, self._namespace, kind)
        largest = largest_segment(sum(entry.records for entry in entries), at_rest)
        chosen = choose_merge([(entry.file, entry.records) for entry in entries], largest)
        if not chosen:
            return False
        with self._rewriting(kind, state):
            segments = [self._read_whole(kind, entry) for entry in entries if entry.file in chosen]
            built = self._merged(kind, segments)
            _check_unchanged(segments)
        self._publish(kind, state.basis, state, seen, [built], chosen, state.watermark)
        return True

    @step("projection.join_segments")
    def _merged(self, kind: str, segments: list[Segment]) -> Built:
        built: Built = _module(kind).merge(segments)
        return built

    @step("projection.remove")
    def remove(self, kind: str, records: Collection[int]) -> int:
        """Rewrite every segment that holds one of the records. Returns the number of rewritten segments."""
        with self._engine.read() as connection:
            seen = last_number(connection)
            state = read_state(connection, self._namespace, kind)
            entries = published(connection, self._namespace, kind)
        gone = np.fromiter(sorted(records), dtype=np.int64)
        replaced: list[str] = []
        built: list[Built] = []
        for entry in entries:
            if gone.searchsorted(entry.first) == gone.searchsorted(entry.last, side="right"):
                continue
            with self._rewriting(kind, state):
                if not self._holds(kind, entry, gone):
                    continue
                segment = self._read_whole(kind, entry)
                rest = _module(kind).without(segment, set(records))
                _check_unchanged([segment])
            replaced.append(entry.file)
            if rest[0]["count"]:
                built.append(rest)
        if replaced:
            self._publish(kind, state.basis, state, seen, built, replaced, state.watermark)
        return len(replaced)

    def _holds(self, kind: str, entry: Entry, records: npt.NDArray[np.int64]) -> bool:
        """Whether a segment has one of these records, after verification of its keys."""
        segment = open_published(kind, self._folder, entry, self._engine.store_id, provide=self._provide)
        if segment.damaged_arrays(["keys"]):
            raise DamagedSegment(f"the keys of {entry.file} do not match their checksum")
        return bool(np.isin(segment.arrays["keys"], records).any())

    def _read_whole(self, kind: str, entry: Entry) -> Segment:
        """A segment to be rewritten under new checksums: verified, and in memory unless it is very large."""
        segment = open_published(
            kind,
            self._folder,
            entry,
            self._engine.store_id,
            verified=True,
            in_memory_up_to=_REWRITTEN_IN_MEMORY,
            provide=self._provide,
        )
        _module(kind).verify(segment)
        return segment

    def _provide(self, file: str, afresh: bool) -> bool:
        with self._engine.read() as connection:
            return self._engine.provide_file(connection, file, afresh=afresh)

    @contextmanager
    def _rewriting(self, kind: str, state: ProjectionState) -> Iterator[None]:
        """Start the projection over if a segment is missing or damaged, to rebuild it from the records."""
        try:
            yield
        except DamagedSegment as error:
            self.reset(kind, state.generation)
            raise StaleProjection(kind, state.generation) from error

    def sweep(self) -> int:
        """Remove unused files of this namespace, which a killed process left behind.

        Under the lease no other process writes files for this namespace, and a former holder cannot publish.
        """
        with self._engine.read() as connection:
            known = {one.file for kind in (TEXT, VECTORS) for one in published(connection, self._namespace, kind)}
        self._engine.keep_files(known, self._fence)
        orphans = [name for name in index_files(self._folder, self._namespace) if name not in known]
        self.kept = self._delete_files(orphans)
        return len(orphans) - len(self.kept)

    def reset(self, kind: str, generation: int | None) -> bool:
        """Start over a projection with damaged files. Returns False if its generation has changed since."""
        with self._engine.write() as connection:
            state = read_state(connection, self._namespace, kind)
            if generation is not None and state.generation != generation:
                return False
            start_over(connection, self._namespace, kind, TEXT_BASIS if kind == TEXT else state.basis)
        self.sweep()
        return True

    def _publish(
        self,
        kind: str,
        basis: str,
        state: ProjectionState,
        seen: int,
        built: list[Built],
        replaced: Collection[str],
        watermark: int,
    ) -> None:
        """Write the files, then name them in one transaction.

        Raises `StaleProjection` if the projection has changed since, or one of the records was forgotten.
        """
        rows: list[tuple[str, int, int, int]] = []
        try:
            create_folder(self._folder, self._engine.file_mode)
            for header, arrays in built:
                name = f"{kind}-{self._namespace}-{new_id()}.seg"
                keys = arrays["keys"]
                self.write_file(name, header, arrays)
                rows.append((name, int(keys[0]), int(keys[-1]), len(keys)))
        except FileNotFoundError as error:  # the folder was deleted meanwhile: retry
            raise StaleProjection(kind, state.generation) from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise (StoreFull if full else StoreUnavailable)(
                f"the index in {self._folder} cannot be written: {error.strerror}. The records are safe, and are "
                "found without it."
            ) from error
        try:
            with self._engine.write() as connection:
                self._fence(connection)
                gone = forgotten_since(connection, self._namespace, seen)
                forgotten = any(np.isin(arrays["keys"], gone).any() for _, arrays in built)
                if forgotten or read_state(connection, self._namespace, kind) != state:
                    raise StaleProjection(kind, state.generation)
                after = ProjectionState(state.generation + 1, basis, max(watermark, 0))
                self._record(connection, kind, after, rows, replaced)
        except BaseException:
            self._delete_files([name for name, *_ in rows])
            raise
        self._delete_files(replaced)

    @step("projection.write_file")
    def write_file(self, name: str, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        write_segment(
            self._folder / name,
            {**header, "store": self._engine.store_id},
            arrays,
            mode=self._engine.file_mode,
        )
        self._engine.publish_file(name)

    @step("projection.record")
    def _record(
        self,
        connection: Connection,
        kind: str,
        state: ProjectionState,
        added: Iterable[tuple[str, int, int, int]],
        removed: Collection[str],
    ) -> None:
        connection.executemany(
            "DELETE FROM segments WHERE namespace = ? AND kind = ? AND file = ?",
            [(self._namespace, kind, name) for name in removed],
        )
        self._engine.drop_files(connection, removed)
        connection.executemany(
            "INSERT INTO segments (namespace, kind, file, first, last, count) VALUES (?, ?, ?, ?, ?, ?)",
            [(self._namespace, kind, *row) for row in added],
        )
        connection.execute(
            "INSERT OR REPLACE INTO projections (namespace, kind, generation, basis, watermark) "
            "VALUES (?, ?, ?, ?, ?)",
            (self._namespace, kind, state.generation, state.basis, state.watermark),
        )
        count_up(connection)

    @step("projection.delete_files")
    def _delete_files(self, names: Iterable[str]) -> dict[str, str]:
        """Delete files. Returns those that cannot be deleted, with the reasons; the next sweep retries them."""
        kept: dict[str, str] = {}
        for name in names:
            try:
                (self._folder / name).unlink(missing_ok=True)
            except OSError as error:
                kept[name] = error.strerror or str(error)
        return kept


def open_index(kind: str, path: Path, *, verified: bool = False, in_memory_up_to: int | None = None) -> Segment:
    """Open a usable segment. Raises `DamagedSegment` for damage or another version."""
    segment = open_segment(path, verified=verified, in_memory_up_to=in_memory_up_to)
    _module(kind).check(segment)
    return segment


def analysed(record: int, columns: Sequence[Any], bad: dict[int, str]) -> list[str]:
    """The terms of a record from its columns. One that cannot be analysed has none, and an error in `bad`."""
    try:
        if any(isinstance(value, bytes) for value in columns):
            raise CorruptStore(f"record number {record} holds text that is not valid")
        return index_terms(*columns)
    except Exception as error:  # any error that a text can cause: index the other records
        bad[record] = type(error).__name__
        return []


class Entry(NamedTuple):
    """One row of `segments`: a file, its first and its last key, and its number of keys."""

    file: str
    first: int
    last: int
    records: int


def published(connection: Connection, namespace: int, kind: str) -> list[Entry]:
    """The current segments of a kind, in the order of their keys."""
    rows = connection.execute(
        "SELECT file, first, last, count FROM segments WHERE namespace = ? AND kind = ? ORDER BY first, file",
        (namespace, kind),
    )
    return [Entry(*row) for row in rows]


def open_published(
    kind: str,
    folder: Path,
    entry: Entry,
    store_id: str,
    *,
    verified: bool = False,
    in_memory_up_to: int | None = None,
    provide: Provide,
) -> Segment:
    """Open a segment that the database names. Raises `DamagedSegment` for a file of another store or other records.

    A missing or damaged file is first fetched from the database, if that has a copy.
    """
    options = {"verified": verified, "in_memory_up_to": in_memory_up_to}
    provide(entry.file, False)
    try:
        return _opened(kind, folder, entry, store_id, **options)
    except DamagedSegment:
        if not provide(entry.file, True):
            raise
    return _opened(kind, folder, entry, store_id, **options)


def _opened(kind: str, folder: Path, entry: Entry, store_id: str, **options: Any) -> Segment:
    segment = open_index(kind, folder / entry.file, **options)
    header = segment.header
    if options.get("verified") and header.get(vector_index.CODES_ONLY):  # it is to be rewritten
        raise DamagedSegment(f"{entry.file} was fetched without its vectors")
    if header.get("store") != store_id:
        raise DamagedSegment(f"{entry.file} belongs to another store")
    if (header.get("first_key"), header.get("last_key"), header.get("count")) != entry[1:]:
        raise DamagedSegment(f"{entry.file} does not have the records that the database names")
    return segment


def _module(kind: str) -> ModuleType:
    return text_index if kind == TEXT else vector_index


def is_damaged_segment(kind: str, segment: Segment) -> bool:
    if not segment.is_unchanged or segment.damaged_arrays():
        return True
    try:
        _module(kind).verify(segment)
    except DamagedSegment:
        return True
    return False


def _check_unchanged(segments: Iterable[Segment]) -> None:
    """Raise `DamagedSegment` if a file has changed since its verification, so possibly during a read."""
    for segment in segments:
        if not segment.is_unchanged:
            raise DamagedSegment(f"{segment.path} was changed while it was read")


def largest_segment(total: int, at_rest: bool) -> int:
    """The most records in a segment, out of `total` records."""
    largest = max(_LARGEST_SEGMENT, min(total // _LARGEST_SHARE, _LARGEST_EVER))
    return largest if at_rest else largest // _WHILE_WRITING


def choose_merge(sizes: list[tuple[str, int]], largest: int) -> list[str]:
    """The segments to merge next, out of all in the order of their keys.

    The newer segments are merged once they hold half as many records as the next older one. So each segment is at
    least twice as large as all newer ones together, and a search reads few segments. A record is rewritten a number
    of times that grows with the logarithm of the store. Only neighbours are merged, so ranges of keys do not overlap,
    and a search finds the newest postings without reading keys.
    """
    total = 0
    chosen: list[str] = []
    best: list[str] = []
    for name, count in reversed(sizes):
        if count > largest // 2 or total + count > largest:
            if best:
                break
            total, chosen = 0, []
            if count > largest // 2:
                continue
        if chosen and count <= 2 * total:
            best = [*chosen, name]
        chosen.append(name)
        total += count
    return best[::-1]
