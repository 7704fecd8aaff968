"""What the handles of one process on one namespace share: its indexes, its worker, its buffers.

`Maintenance.step` is the whole of the background work: count the tokens of what was written without, embed what is
queued, index the tail, merge segments, apply the retention rule, finish forgetting, and the chores that the layers
above have given it. What can wait until nobody wants anything is in `Maintenance.rest`: larger merges, and archiving.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from loom.errors import CorruptStore, ForgetPending, StoreError
from loom.index.analysis import embedded_text
from loom.storage.blocks import LEVEL
from loom.storage.contract import Filter
from loom.storage.sqlite import archive, counting, forgetting
from loom.storage.sqlite.archive import CONTENT
from loom.storage.sqlite.engine import Engine, to_micros
from loom.storage.sqlite.filters import conditions
from loom.storage.sqlite.projections import (
    TEXT,
    VECTORS,
    NamespaceIndex,
    Projector,
    StaleProjection,
    TailLimit,
    active_space,
    advance,
    last_number,
    read_state,
)
from loom.storage.sqlite.rows import ROW_COLUMNS, check_row, guard
from loom.storage.sqlite.transactions import EMBED, SqliteTransaction
from loom.storage.sqlite.worker import Fence, LeaseLost, Worker

__all__ = ["MAX_ATTEMPTS", "Chore", "Embed", "Maintenance", "Publish", "join", "part"]

log = logging.getLogger("loom.worker")

Embed = Callable[[Sequence[str]], npt.NDArray[Any]]

Publish = Callable[[], AbstractContextManager[SqliteTransaction]]
"""Opens a transaction for the outcome of background work; it fails where another process has taken the work over."""

Chore = Callable[[Publish, bool], bool]
"""A bounded piece of background work of a layer above; whether there may be more. The second argument tells that
somebody waits for it to be done, and not only for the next piece."""

MAX_ATTEMPTS = 5
"""After so many failures a job is left alone and reported as failed."""

_EMBED_BATCH = 64
# How many records are given their counts at once. A writer waits for no more than that, about 2 ms.
_COUNT_BATCH = 256
# So far the log is looked through for what is to be counted before that is noted, where nothing was.
_COUNTED_NOTE = 10_000
# How long a text may wait for others to be embedded with. Without it a busy writer's texts were embedded two or three
# at a time: 2,000 transactions for 5,000 records, and about 300 us of CPU more for each record.
_GATHER_S = 0.05
# Chores follow what was written at the latest after so long, and sooner when nothing else is wanted.
_CHORES_WITHIN_S = 10.0
_CHORES_PAUSE_S = 60.0
_RETENTION_PAUSE_S = 60.0
_ARCHIVE_PAUSE_S = 60.0
_LOOK_PAUSE_S = 1.0
# About what a commit adds to the log, and when that is folded into the file: at about 6 MB.
_PAGES_A_COMMIT = 4
_PAGE_BYTES = 4096
_FOLD_AFTER_PAGES = 1500
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 60.0
_NEVER = float("inf")
_DOWN_AFTER = 8  # more than one bad text can cause: it is given up after MAX_ATTEMPTS


class Maintenance:
    """The index, the worker and the buffers of one namespace in one process."""

    def __init__(self, engine: Engine, namespace: int, limit: TailLimit, lease_s: float) -> None:
        self.engine = engine
        self.namespace = namespace
        self.limit = limit
        self.longest_at_rest = limit.at_rest.records
        self.handles = 0
        self.embed: Embed | None = None
        self.space: int | None = None
        self.archive_after_s: float | None = None
        self.archive_level = LEVEL
        self.chores: dict[object, Chore] = {}
        self.worker = Worker(engine, f"worker-{namespace}", self.step, self.rest, lease_s)
        self.reset()

    def reset(self) -> None:
        self.index = NamespaceIndex(self.engine, self.namespace)
        self.unindexed_records = 0
        self.unindexed_bytes = 0
        self.unindexed_vectors = 0
        self.unembedded = 0
        self.tail_is_due = False
        self.tail_noticed = -1
        self.counted_to = 0
        self.counts_more = False
        self.look_after = 0.0
        self.log_pages = 0
        self.retain_after = 0.0
        self.archive_after = 0.0
        self.chores_after = _NEVER
        self.embed_after = 0.0
        self.embed_failures = 0
        self.swept = False
        self.accesses: dict[tuple[str, int], list[int]] = {}
        self.lookups: dict[tuple[str, str], list[int]] = {}
        self.access_lock = threading.Lock()
        self._at_chores = threading.RLock()

    def use(self, space: int | None, embed: Embed | None) -> None:
        """Embed texts in this process, for this space and no other."""
        self.space, self.embed = space, embed

    def wrote(self, transaction: SqliteTransaction) -> None:
        """After a commit: wake the worker when there is enough for it to do."""
        self.unindexed_records += transaction.appended
        self.unindexed_bytes += transaction.appended_bytes
        self.log_pages += _PAGES_A_COMMIT + transaction.appended_bytes // _PAGE_BYTES
        if self.engine.path is None:
            wanted = False
        else:
            wanted = self.log_pages >= _FOLD_AFTER_PAGES
            if self.unindexed_records >= self.limit.records or self.unindexed_bytes >= self.limit.size_bytes:
                self.unindexed_records = self.unindexed_bytes = 0
                self.tail_is_due = wanted = True
        if transaction.queued and self.embed is not None:
            self.unembedded += transaction.queued
            if self.unembedded >= _EMBED_BATCH:
                self.unembedded = 0
                wanted = True
            elif not wanted:
                self.worker.wake(_GATHER_S)
        if wanted:
            self.worker.wake()
        self._chores_in_time()

    def notice_tail(self) -> None:
        """After a search: have a tail indexed, at rest, that every process would have to analyse again."""
        generation, records = self.index.tail
        if records >= self.longest_at_rest and generation != self.tail_noticed:
            self.tail_noticed = generation
            if self.engine.path is not None and not self.engine.read_only:
                self.worker.wake()

    def _chores_in_time(self) -> None:
        """Something has changed: look for chores, though not at once."""
        if self.chores and self.chores_after == _NEVER:
            self.chores_after = time.monotonic() + _CHORES_WITHIN_S
            self.worker.wake(_CHORES_WITHIN_S)

    def wake_worker(self) -> None:
        """Look for chores now."""
        if self.chores:
            self.chores_after = 0.0
            self.worker.wake()

    def give_chore(self, owner: object, chore: Chore) -> None:
        """Let a chore be done in the background, from now on and for what was left undone before."""
        self.chores[owner] = chore
        self.chores_after = 0.0

    def take_chores(self, owners: Iterable[object], timeout_s: float) -> None:
        """Let the chores of these be, and wait a bounded time for the piece under way."""
        for owner in owners:
            self.chores.pop(owner, None)
        if self._at_chores.acquire(timeout=timeout_s):
            self._at_chores.release()

    def _do_chores(self, fence: Fence, thorough: bool) -> bool:
        """A piece of every chore; whether there is more. One that fails waits, and the others go on."""
        self.chores_after = _NEVER  # before, so that what is written meanwhile is not lost
        worked = False
        for owner, chore in list(self.chores.items()):
            try:
                with self._at_chores:
                    worked |= owner in self.chores and chore(lambda: self._publishing(fence), thorough)
            except (StoreError, LeaseLost):
                raise
            except Exception as error:  # a model that does not answer: the rest must not wait for it
                log.warning("background work failed with %s; it will be tried again", type(error).__name__)
                log.debug("the chore of %r failed", owner, exc_info=True)
                self.chores_after = time.monotonic() + _CHORES_PAUSE_S
        return worked

    @contextmanager
    def _publishing(self, fence: Fence) -> Iterator[SqliteTransaction]:
        with self.engine.write() as connection:
            fence(connection)
            now = to_micros(self.engine.clock())
            transaction = SqliteTransaction(connection, self.namespace, now, self.write_accesses)
            yield transaction
            transaction.finish()
        if transaction.appended or transaction.queued:
            self.wrote(transaction)

    def write_accesses(self, connection: sqlite3.Connection) -> None:
        """Write the buffered uses and lookups, inside the caller's transaction."""
        with self.access_lock:
            uses, self.accesses = self.accesses, {}
            lookups, self.lookups = self.lookups, {}
        if uses:
            connection.executemany(
                "INSERT INTO accesses (namespace, node, record, count, last_at, previous_at) "
                "SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM records WHERE seq = ?3 AND version > 0) "
                "ON CONFLICT (namespace, record, node) DO UPDATE SET count = count + ?4, "
                "previous_at = coalesce(?6, last_at), last_at = ?5",
                [
                    (self.namespace, node, record, len(times), times[-1], times[-2] if len(times) > 1 else None)
                    for (node, record), times in uses.items()
                ],
            )
        if lookups:
            connection.executemany(
                "INSERT INTO tiers (namespace, node, tier, hits, misses) VALUES (?1, ?2, ?3, ?4, ?5) "
                "ON CONFLICT DO UPDATE SET hits = hits + ?4, misses = misses + ?5",
                [(self.namespace, node, tier, *counts) for (node, tier), counts in lookups.items()],
            )

    def _fold(self) -> None:
        """Fold the log into the file here, so that no writer has to: it would wait for the disk."""
        if self.log_pages >= _FOLD_AFTER_PAGES:
            self.log_pages = 0
            self.engine.fold_wal()

    def projector(self, fence: Fence) -> Projector:
        return Projector(self.engine, self.namespace, fence, self.limit)

    def step(self, fence: Fence, thorough: bool = False) -> bool:
        """A piece of each kind of work, so that none waits for another to run dry; False when all is done.

        Looking how long the tail is means reading it. That is done when this process has written enough, once
        a second for what others write, and always when `thorough`.
        """
        worked = self._count_if_due(fence, thorough)
        if self.engine.path is None:
            worked |= self.embed is not None and self._embed_some(fence, thorough)
            return self._chores_if_due(fence, thorough) or worked
        self._fold()
        held: ForgetPending | None = None
        if thorough or self.tail_is_due or time.monotonic() >= self.look_after:
            self.look_after = time.monotonic() + _LOOK_PAUSE_S
            projector = self.projector(fence)
            if not self.swept:
                projector.sweep()
                self.swept = True
            self.tail_is_due = False  # before, so that a writer's word meanwhile is not lost
            projected = self._project(projector)
            self.tail_is_due |= projected
            worked |= projected
            self._retain()
            try:
                forgetting.resume(self.engine, self.namespace, projector)
            except ForgetPending as pending:  # a reader of an older state: everything else goes on
                held = pending
        if self.embed is not None:
            worked |= self._embed_some(fence, thorough) or self.tail_is_due
        worked |= self._chores_if_due(fence, thorough)
        if held is not None and not worked:
            raise held
        return worked

    def _chores_if_due(self, fence: Fence, thorough: bool) -> bool:
        return self._chores_are_due(thorough) and self._do_chores(fence, thorough)

    def _chores_are_due(self, thorough: bool) -> bool:
        return bool(self.chores) and (thorough or time.monotonic() >= self.chores_after)

    def _count_if_due(self, fence: Fence, thorough: bool) -> bool:
        """Count a batch with what is indexed and before the chores; whether there is more.

        Not with every look: counted a few at a time, a text costs three times as much.
        """
        if thorough or self.tail_is_due or self.counts_more or self._chores_are_due(thorough):
            self.counts_more = self._count_some(fence)
            return self.counts_more
        return False

    def _count_some(self, fence: Fence) -> bool:
        """Count the tokens of the next records that were written without; whether there may be more."""
        if not self.engine.counts.can_count:
            return False
        with self.engine.read() as connection:
            noted = read_state(connection, self.namespace, counting.PROGRESS).watermark
            after = max(noted, self.counted_to)
            last = last_number(connection)
            waiting = [] if after >= last else self._waiting(connection, after)
            rows = _rows_of(connection, waiting)
        more = len(waiting) == _COUNT_BATCH
        reached = waiting[-1] if more else last
        counted = [(*count, row[0]) for row in rows if (count := self._count(row)) is not None]
        if counted or reached - noted >= _COUNTED_NOTE:
            with self.engine.write() as connection:
                fence(connection)
                # Only what still waits: whoever was forgotten meanwhile has nothing left to count.
                connection.executemany(
                    "UPDATE records SET tokens = ?, checksum = ? WHERE seq = ? AND tokens < 0", counted
                )
                advance(connection, self.namespace, counting.PROGRESS, reached)
            self.log_pages += _PAGES_A_COMMIT + sum(len(row[23] or "") for row in rows) // _PAGE_BYTES
        self.counted_to = reached
        return more

    def _waiting(self, connection: sqlite3.Connection, after: int) -> list[int]:
        """The next records that wait for their counts, by number."""
        rows = connection.execute(
            "SELECT r.seq FROM records r INDEXED BY records_by_number WHERE r.namespace = ? AND r.seq > ? "
            "AND r.version > 0 AND r.tokens < 0 ORDER BY r.seq LIMIT ?",
            (self.namespace, after, _COUNT_BATCH),
        )
        return [seq for (seq,) in rows]

    def _count(self, row: tuple[Any, ...]) -> tuple[int, int] | None:
        """The tokens of a row and its checksum with them; None for one that is damaged, which must not get a new
        checksum, or whose counter is not known here."""
        try:
            check_row(row)
        except CorruptStore:
            return None
        tokens = self.engine.counts.of(row[0], row[18].encode(), row[23])
        if tokens is None:
            return None
        return tokens, guard((*row[:17], tokens, *row[18:24]))

    def _project(self, projector: Projector) -> bool:
        """Index a piece of each tail and merge what is small; whether there was any."""
        worked = False
        for kind in (TEXT, VECTORS):
            try:
                worked |= projector.due(kind) and bool(projector.extend(kind))
                worked |= projector.merge(kind)
            except StaleProjection:
                worked = True  # somebody forgot a record or replaced a segment meanwhile: look again
        return worked

    def rest(self, fence: Fence) -> bool:
        """What can wait: chores, indexing and merging further than pays while records come in, archiving."""
        if self._count_some(fence):
            return True
        if self.chores and self.chores_after < _NEVER and self._do_chores(fence, False):
            return True
        if self.engine.path is None:
            return False
        projector = self.projector(fence)
        try:
            indexed = [projector.due(kind, at_rest=True) and projector.extend(kind) for kind in (TEXT, VECTORS)]
            merged = any(indexed) or any(projector.merge(kind, at_rest=True) for kind in (TEXT, VECTORS))
        except StaleProjection:
            return True
        return merged or self._archive_old(fence)

    def _archive_old(self, fence: Fence) -> bool:
        """Archive what is older than was asked for, a piece at a time; look for it at most once a minute."""
        if self.archive_after_s is None or time.monotonic() < self.archive_after:
            return False
        before = to_micros(self.engine.clock()) - int(self.archive_after_s * 1e6)
        if self.archive_some(fence, before, whole=False):
            return True
        self.archive_after = time.monotonic() + _ARCHIVE_PAUSE_S
        return False

    def archive_some(self, fence: Fence, before: int, whole: bool) -> bool:
        """Archive the next records that were committed before a moment; whether there were any."""
        with self.engine.read() as connection:
            after = read_state(connection, self.namespace, archive.PROGRESS).watermark
            packed = archive.pack(
                connection, self.namespace, self.engine.archive, after, before, whole, self.archive_level
            )
        if packed is None:
            return False
        with self._publishing(fence) as transaction:
            if archive.publish(transaction.connection, self.namespace, packed, transaction.next_seq):
                transaction.advance(archive.PROGRESS, packed.blocks[-1][0][-1])
        self.log_pages += sum(len(data) for _, data, _ in packed.blocks) // _PAGE_BYTES * 4
        return True

    def _retain(self) -> None:
        """Apply the stated retention rule, at most once a minute."""
        if time.monotonic() < self.retain_after:
            return
        self.retain_after = time.monotonic() + _RETENTION_PAUSE_S
        with self.engine.read() as connection:
            rule = forgetting.retention(connection, self.namespace)
            now = to_micros(self.engine.clock())
            expired = forgetting.expired(connection, self.namespace, rule, now) if rule else []
        if expired:
            with self.engine.write() as connection:
                transaction = SqliteTransaction(connection, self.namespace, now, self.write_accesses)
                wanted = Filter(ids=expired, history=True)
                where, values = conditions(wanted, self.namespace, connection)
                forgetting.remove(transaction, self.engine.archive, where, values)
                transaction.finish()

    def _embed_some(self, fence: Fence, thorough: bool) -> bool:
        """Embed a batch; whether to come again at once. A few that came meanwhile may wait for others to join them,
        unless `thorough`."""
        assert self.embed is not None
        if time.monotonic() < self.embed_after:
            self.worker.try_again()
            return False
        with self.engine.read() as connection:
            rows = self._embed_jobs(connection) if self._embeds_here(connection) else []
        if not rows:
            return False
        # After a failure one by one, so that a single bad text is found and the others are not held up.
        alone = any(row[2] for row in rows)
        more = thorough or alone or len(rows) == _EMBED_BATCH
        if alone:
            rows = rows[:1]
        try:
            vectors = np.asarray(self.embed([embedded_text(*row[3:]) for row in rows]), dtype=np.float32)
            with self.engine.write() as connection:
                fence(connection)
                if not self._embeds_here(connection):
                    return False  # another process has changed the embedder meanwhile: never mix
                now = to_micros(self.engine.clock())
                transaction = SqliteTransaction(connection, self.namespace, now, self.write_accesses)
                transaction.put_vectors([row[0] for row in rows], vectors)
                _delete_jobs(connection, self.namespace, EMBED, rows)
                transaction.finish()
            self.embed_failures = 0
            self._chores_in_time()
            self.log_pages += _PAGES_A_COMMIT + vectors.nbytes // 2 // _PAGE_BYTES
            self.unindexed_vectors += len(rows)
            if self.unindexed_vectors >= self.limit.records:
                self.unindexed_vectors = 0
                self.tail_is_due = True
        except (StoreError, LeaseLost):
            raise
        except Exception as error:  # whatever an embedder raises: its jobs are tried again, then reported
            self._embedding_failed(fence, rows, error)
            return True
        return more

    def _embed_jobs(self, connection: sqlite3.Connection) -> list[tuple[int, int, int, str | None, str | None, str]]:
        """Record, job, attempts, and speaker, metadata and text of what is to be embedded next."""
        return connection.execute(
            f"SELECT j.record, j.seq, j.attempts, r.name, r.metadata, ifnull({CONTENT}, '') FROM jobs j "
            "JOIN records r ON r.seq = j.record WHERE j.namespace = ? AND j.kind = ? AND j.attempts < ? LIMIT ?",
            (self.namespace, EMBED, MAX_ATTEMPTS, _EMBED_BATCH),
        ).fetchall()

    def _embedding_failed(self, fence: Fence, rows: Iterable[Sequence[Any]], error: Exception) -> None:
        """Count the attempt, and leave the embedder alone for a while: it may be down, not the text bad."""
        self.embed_failures += 1
        self.embed_after = time.monotonic() + min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self.embed_failures)
        log.warning("embedding failed with %s; it will be tried again", type(error).__name__)
        with self.engine.write() as connection:
            fence(connection)
            connection.executemany(
                "UPDATE jobs SET attempts = attempts + 1, error = ? "
                "WHERE namespace = ? AND kind = ? AND record = ? AND seq = ?",
                [(type(error).__name__, self.namespace, EMBED, row[0], row[1]) for row in rows],
            )

    @property
    def embedder_is_down(self) -> bool:
        """Whether the embedder has failed so often in a row that waiting for it makes no sense."""
        return self.embed_failures >= _DOWN_AFTER

    def _embeds_here(self, connection: sqlite3.Connection) -> bool:
        """Whether this process embeds in the space that the file uses now."""
        space = active_space(connection, self.namespace)
        return space is not None and space[0] == self.space


def _rows_of(connection: sqlite3.Connection, seqs: Sequence[int]) -> list[tuple[Any, ...]]:
    """The rows of records, without those that hold what is no text: whoever reads such a record is told."""
    try:
        return connection.execute(
            f"SELECT {ROW_COLUMNS} FROM records r WHERE r.seq IN (SELECT value FROM json_each(?))",
            (json.dumps([*seqs]),),
        ).fetchall()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) is not None:  # SQLite's own, about the file and not about a text
            raise
        return [row for seq in seqs for row in _rows_of(connection, [seq])] if len(seqs) > 1 else []


def _delete_jobs(connection: sqlite3.Connection, namespace: int, kind: str, rows: Iterable[Sequence[Any]]) -> None:
    connection.executemany(
        "DELETE FROM jobs WHERE namespace = ? AND kind = ? AND record = ? AND seq = ?",
        [(namespace, kind, row[0], row[1]) for row in rows],
    )


_shared_lock = threading.Lock()
_shared: weakref.WeakKeyDictionary[Engine, dict[int, Maintenance]] = weakref.WeakKeyDictionary()


def _after_fork_in_child() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for namespaces in list(_shared.values()):
        for shared in namespaces.values():
            shared.worker.reset()
            shared.reset()


os.register_at_fork(after_in_child=_after_fork_in_child)


def join(engine: Engine, namespace: int, limit: TailLimit, lease_s: float) -> Maintenance:
    """The maintenance of a namespace in this process, made at the first handle."""
    with _shared_lock:
        namespaces = _shared.setdefault(engine, {})
        maintenance = namespaces.get(namespace)
        if maintenance is None:
            maintenance = namespaces[namespace] = Maintenance(engine, namespace, limit, lease_s)
        maintenance.handles += 1
        return maintenance


def part(maintenance: Maintenance) -> bool:
    """Give up a handle; True where it was the last."""
    with _shared_lock:
        maintenance.handles -= 1
        if maintenance.handles:
            return False
        _shared.get(maintenance.engine, {}).pop(maintenance.namespace, None)
        return True
