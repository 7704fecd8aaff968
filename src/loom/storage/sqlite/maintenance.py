"""State that the handles of one process on one namespace share: the index, the worker, the buffers.

`Maintenance.work` does the background work. It counts the tokens of records written without a count, embeds queued
records, indexes the tail, merges segments, applies the retention rule, finishes forgetting, and runs the chores of
the layers above. `Maintenance.rest` does the work of idle times: larger merges, and archiving.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loom.errors import Closed, CorruptStore, ForgetPending, StoreError
from loom.index.analysis import embedded_text
from loom.steps import step
from loom.storage.blocks import BLOCK_BYTES, LEVEL
from loom.storage.contract import COUNT, EMBED, MAX_ATTEMPTS, RETAIN, Chore, Embed, Filter, concerns_everything
from loom.storage.databases import Connection, Engine, Taken
from loom.storage.identity import guard
from loom.storage.moments import to_micros
from loom.storage.sqlite import archive, counting, forgetting
from loom.storage.sqlite.archive import CONTENT
from loom.storage.sqlite.entries import Jobs
from loom.storage.sqlite.filters import conditions
from loom.storage.sqlite.namespace_index import NamespaceIndex
from loom.storage.sqlite.projections import (
    TEXT,
    VECTORS,
    Projector,
    StaleProjection,
    TailLimit,
    active_space,
    advance,
    last_number,
    read_state,
)
from loom.storage.sqlite.rows import ROW_COLUMNS, StoredRecord, check_row, fetch_readable
from loom.storage.sqlite.transactions import SqliteTransaction
from loom.storage.sqlite.worker import Fence, LeaseLost, Worker

__all__ = [
    "INDEX",
    "NOTE_USES",
    "AccessBuffer",
    "BufferedUses",
    "Maintenance",
    "WorkLimits",
    "join",
    "part",
]

log = logging.getLogger("loom.worker")

INDEX = "index"
"""The kind of job for a record whose text could not be analysed. A search by words does not find it."""

# The watermark of the counts is written after this many sequence numbers, even if nothing had to be counted.
_COUNTED_NOTE = 10_000
# The longest time from a write to the next run of the chores. An idle worker runs them sooner.
_CHORES_WITHIN_S = 10.0
# The pause after a failed chore, after a look for expired records, and after one for records to archive.
_PAUSE_S = 60.0
_LOOK_PAUSE_S = 1.0
# The estimated pages of a commit in the write-ahead log, and the size at which the log is folded (about 6 MB).
_PAGES_A_COMMIT = 4
_PAGE_BYTES = 4096
_FOLD_AFTER_PAGES = 1500
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 60.0
_NEVER = float("inf")
_DOWN_AFTER = 8  # more failures than one bad text can cause, which is given up after MAX_ATTEMPTS
# The uses of this many records are buffered before a write.
_MOST_ACCESSES = 256
_MOST_KEPT = 8192
_MOST_NAMED = 1000


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """The size of one step of each kind of background work.

    A text waits up to `gather_s` for others to be embedded with. Without this wait, the texts of a busy writer were
    embedded two or three at a time: 2,000 transactions for 5,000 records, and about 300 us more CPU for each record.
    """

    embed_batch: int = 64
    count_batch: int = 256
    """The records counted in one transaction, for which a writer waits about 2 ms."""
    gather_s: float = 0.05
    block_bytes: int = BLOCK_BYTES
    """The size of a block of the archive before compression."""


NOTE_USES = (
    "INSERT INTO accesses (namespace, node, record, count, last_at, previous_at) "
    "SELECT ?1, ?2, r.seq, json_extract(j.value, '$[1]'), json_extract(j.value, '$[2]'), "
    "json_extract(j.value, '$[3]') FROM json_each(?3) j "
    "CROSS JOIN records r ON r.seq = json_extract(j.value, '$[0]') WHERE r.version > 0 "
    "ON CONFLICT (namespace, record, node) DO UPDATE SET count = accesses.count + excluded.count, "
    "previous_at = coalesce(excluded.previous_at, accesses.last_at), last_at = excluded.last_at"
)
"""SQL to add uses: a list of lists of record, count of uses, last time and time before it."""


class AccessBuffer:
    """Unwritten uses of records and lookups in tiers, which a crash may lose.

    The number of records in it is bounded. If another writer holds the file for long, the oldest uses are dropped.
    """

    def __init__(self, namespace: int) -> None:
        self._namespace = namespace
        self._lock = threading.Lock()
        self._uses: dict[tuple[str, int], BufferedUses] = {}
        self._lookups: dict[tuple[str, str], list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._uses or self._lookups)

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def is_full(self) -> bool:
        """Whether the uses are worth a transaction of their own."""
        return len(self._uses) >= _MOST_ACCESSES

    def add(self, records: Iterable[int], node: str, now: int) -> bool:
        """Add uses of records by a node. Returns True if the buffer is full."""
        with self._lock:
            for record in records:
                known = self._uses.get((node, record))
                before = (0, None) if known is None else (known.number, known.last_at)
                self._uses[node, record] = BufferedUses(before[0] + 1, now, before[1])
            while len(self._uses) > _MOST_KEPT:
                del self._uses[next(iter(self._uses))]
            return self.is_full

    def add_lookup(self, node: str, tier: str, hit: bool) -> None:
        """Add a lookup: whether a requested record was in a tier."""
        with self._lock:
            self._lookups.setdefault((node, tier), [0, 0])[0 if hit else 1] += 1

    def of(self, record: int, node: str) -> BufferedUses | None:
        return self._uses.get((node, record))

    def lookups(self, node: str) -> dict[str, tuple[int, int]]:
        """The buffered hits and misses of each tier of a node."""
        with self._lock:
            return {tier: (hits, misses) for (where, tier), (hits, misses) in self._lookups.items() if where == node}

    def write(self, connection: Connection) -> None:
        """Write and empty the buffer, inside the caller's transaction."""
        with self._lock:
            uses, self._uses = self._uses, {}
            lookups, self._lookups = self._lookups, {}
        by_node: dict[str, list[list[int | None]]] = {}
        for (node, record), found in uses.items():
            by_node.setdefault(node, []).append([record, *found])
        for node, used in by_node.items():
            connection.execute(
                NOTE_USES,
                (self._namespace, node, json.dumps(used)),
            )
        if lookups:
            connection.executemany(
                "INSERT INTO tiers (namespace, node, tier, hits, misses) VALUES (?1, ?2, ?3, ?4, ?5) "
                "ON CONFLICT (namespace, node, tier) DO UPDATE "
                "SET hits = tiers.hits + excluded.hits, misses = tiers.misses + excluded.misses",
                [(self._namespace, node, tier, *counts) for (node, tier), counts in lookups.items()],
            )


class BufferedUses(NamedTuple):
    """The number of uses of a record, and the last two times in microseconds."""

    number: int
    last_at: int
    previous_at: int | None


class _ToEmbed(NamedTuple):
    """A record to embed, and its job. A damaged text is given as bytes."""

    record: int
    seq: int
    attempts: int
    name: str | None
    metadata: str | None
    content: str


class Maintenance:
    """The index, the worker and the buffers of one namespace in one process."""

    def __init__(
        self,
        engine: Engine,
        namespace: int,
        tail: TailLimit,
        lease_s: float,
        limits: WorkLimits,
        begin: type[SqliteTransaction] = SqliteTransaction,
    ) -> None:
        self.engine = engine
        self._begin = begin
        self.namespace = namespace
        self._tail_limit = tail
        self._limits = limits
        self.longest_at_rest = tail.at_rest.records
        self.handles = 0
        self.embed: Embed | None = None
        self.space: int | None = None
        self.archive_after_s: float | None = None
        self.archive_level = LEVEL
        self.chores: dict[object, Chore] = {}
        self.worker = Worker(engine, f"worker-{namespace}", self.work, self.rest, lease_s, self.share)
        self.reset()

    def reset(self) -> None:
        self.index = NamespaceIndex(self.engine, self.namespace)
        self.unindexed_records = self.unindexed_bytes = self.unindexed_vectors = self.unembedded = 0
        self.counted_to = self.log_pages = self.embed_failures = 0
        self.tail_is_due = self.counts_more = self.swept = False
        self.tail_noticed = -1
        self.look_after = self.retain_after = self.archive_after = self.embed_after = 0.0
        self.chores_after = _NEVER
        self.errors: dict[str, str] = {}
        self.accesses = AccessBuffer(self.namespace)
        self._at_chores = threading.RLock()

    def begun(self, connection: Connection) -> SqliteTransaction:
        """The transaction object for a connection inside a write."""
        now = to_micros(self.engine.clock())
        return self._begin(connection, self.namespace, now, self.accesses.write, self.engine.counts)

    @contextmanager
    def transaction(self, wait_s: float | None = None, *, fenced: bool = False) -> Iterator[SqliteTransaction]:
        """One write transaction, which commits at the end of the block, or rolls back after an error.

        A `fenced` one, for the outcome of background work, raises `LeaseLost` without the lease.
        """
        with self.engine.write(wait_s) as connection:
            if fenced:
                self.worker.join_in(connection)
            transaction = self.begun(connection)
            yield transaction
            transaction.finish()
        if transaction.appended or transaction.queued:
            self.wrote(transaction.appended, transaction.appended_bytes, transaction.queued)

    @step("maintenance.wrote")
    def wrote(self, appended: int, size: int, queued: int) -> None:
        """Wake the worker after a commit, if there is enough work for it.

        The commit has appended this many records with texts of this size, and queued this many of them for embedding.
        """
        self.unindexed_records += appended
        self.unindexed_bytes += size
        wanted = False
        if self.engine.index_folder is not None:
            if self.engine.folds_log:
                self.log_pages += _PAGES_A_COMMIT + size // _PAGE_BYTES
                wanted = self.log_pages >= _FOLD_AFTER_PAGES
            if (
                self.unindexed_records >= self._tail_limit.records
                or self.unindexed_bytes >= self._tail_limit.size_bytes
            ):
                self.unindexed_records = self.unindexed_bytes = 0
                self.tail_is_due = wanted = True
        if queued and self.embed is not None:
            self.unembedded += queued
            if self.unembedded >= self._limits.embed_batch:
                self.unembedded = 0
                wanted = True
            elif not wanted:
                self.worker.wake(self._limits.gather_s)
        if wanted:
            self.worker.wake()
        self._chores_in_time()

    def notice_tail(self) -> None:
        """After a search, let the idle worker index a long tail. Otherwise every process would analyse it again."""
        generation, records = self.index.tail
        if records >= self.longest_at_rest and generation != self.tail_noticed:
            self.tail_noticed = generation
            if self.engine.index_folder is not None and not self.engine.read_only:
                self.worker.wake()

    def _chores_in_time(self) -> None:
        """Run the chores within `_CHORES_WITHIN_S` of a change."""
        if self.chores and self.chores_after == _NEVER:
            self.chores_after = time.monotonic() + _CHORES_WITHIN_S
            self.worker.wake(_CHORES_WITHIN_S)

    def wake_worker(self) -> None:
        if self.chores:
            self.chores_after = 0.0
            self.worker.wake()

    def give_chore(self, owner: object, chore: Chore) -> None:
        """Run a chore in the background from now on, beginning with earlier unfinished work."""
        self.chores[owner] = chore
        self.chores_after = 0.0

    def take_chores(self, owners: Iterable[object], timeout_s: float) -> None:
        """Remove the chores of these owners, and wait a bounded time for the current step."""
        for owner in owners:
            self.chores.pop(owner, None)
        if self._at_chores.acquire(timeout=timeout_s):
            self._at_chores.release()

    def _do_chores(self, thorough: bool) -> bool:
        """Do a step of every chore. Returns True if there is more. A failed chore waits; the others continue."""
        self.chores_after = _NEVER  # reset before the work, to notice a write during it
        worked = False
        for owner, chore in list(self.chores.items()):
            name = f"the chore of {type(owner).__name__}"
            try:
                with self._at_chores:
                    worked |= owner in self.chores and chore(partial(self.transaction, fenced=True), thorough)
                self.errors.pop(name, None)
            except Closed:  # the memory of this chore lost its store; other handles continue
                if self.engine.closed:
                    raise
                self.chores.pop(owner, None)
                log.info("%s ended: its store was closed", name)
            except Exception as error:  # a model without an answer must not delay the other chores
                _pass_on_general(error)
                self._note_error(name, error)
                self.chores_after = time.monotonic() + _PAUSE_S
        return worked

    def _note_error(self, name: str, error: Exception) -> None:
        """Log the failure of a kind of work, and keep it for the report of `flush`."""
        log.warning("%s failed with %s; it will be tried again", name, type(error).__name__)
        log.debug("%s failed", name, exc_info=error)
        self.errors[name] = f"{name} failed with {type(error).__name__} and will be tried again"

    def _apart(self, name: str, piece: Callable[[], bool]) -> bool:
        """Do one kind of work. A failure is recorded, and does not stop the other kinds."""
        try:
            worked = piece()
        except Exception as error:
            _pass_on_general(error)
            self._note_error(name, error)
            self.worker.try_again()
            return False
        self.errors.pop(name, None)
        return worked

    def projector(self, fence: Fence) -> Projector:
        return Projector(self.engine, self.namespace, fence, self._tail_limit)

    def work(self, fence: Fence, thorough: bool = False) -> bool:
        """Do a step of each kind of work, so that no kind waits for another to finish. Returns False if all is done.

        Measuring the tail requires reading it. This happens after enough writes of this process, once a second
        because of other processes, and always if `thorough`.
        """
        if self.accesses.is_full:
            self.write_accesses()
        # Counting comes before indexing and chores, but not at every step: in small batches a text costs three times
        # as much.
        counts = thorough or self.tail_is_due or self.counts_more or self._chores_are_due(thorough)
        worked = counts and self._apart("counting", self._count_some)
        if self.engine.index_folder is None:
            worked |= self.embed is not None and self._embed_some(fence, thorough)
            return (self._chores_are_due(thorough) and self._do_chores(thorough)) or worked
        if self.log_pages >= _FOLD_AFTER_PAGES:  # so that no writer has to fold the log and wait for the disk
            self.log_pages = 0
            self.engine.fold_wal()
        held: ForgetPending | None = None
        if thorough or self.tail_is_due or time.monotonic() >= self.look_after:
            self.look_after = time.monotonic() + _LOOK_PAUSE_S
            projector = self.projector(fence)
            if not self.swept:
                projector.sweep()
                self.swept = True
            self.tail_is_due = False  # reset before the work, to notice a write during it
            projected = self._apart("indexing", lambda: self._project(projector))
            self.tail_is_due |= projected
            worked |= projected
            self._apart("retention", self._retain)
            try:
                self._apart("forgetting", lambda: bool(forgetting.resume(self.engine, self.namespace, projector)))
            except ForgetPending as pending:  # a reader of an older snapshot delays it; the other work continues
                held = pending
        if self.embed is not None:
            worked |= self._embed_some(fence, thorough) or self.tail_is_due
        worked |= self._chores_are_due(thorough) and self._do_chores(thorough)
        if held is not None and not worked:
            raise held
        return worked

    def share(self) -> bool:
        """Embed a batch that no other process has taken, without the lease. Returns True after any work."""
        return self.embed is not None and self._embed_some(None, True)

    def write_accesses(self, wait_s: float = 0.0) -> None:
        """Write the buffered uses and lookups. They stay in the buffer if another writer holds the file."""
        if self.accesses and not self.engine.read_only:
            with self.engine.try_write(wait_s) as connection:
                if connection is not None:
                    self.accesses.write(connection)

    def _chores_are_due(self, thorough: bool) -> bool:
        return bool(self.chores) and (thorough or time.monotonic() >= self.chores_after)

    @step("counting.batch")
    def _count_some(self) -> bool:
        """Count the tokens of the next uncounted records. Returns True if there may be more."""
        if not self.engine.counts.can_count:
            return False
        with self.engine.read() as connection:
            noted = read_state(connection, self.namespace, counting.PROGRESS).watermark
            after = max(noted, self.counted_to)
            last = last_number(connection)
            waiting = [] if after >= last else self._waiting(connection, after)
            again = [
                job.record
                for job in Jobs(connection, self.namespace).jobs(COUNT, self._limits.count_batch, failed=False)
            ]
            found = fetch_readable(
                connection,
                f"SELECT {ROW_COLUMNS} FROM records r WHERE r.seq IN (SELECT value FROM json_each(?))",
                (json.dumps([*waiting, *again]),),
            )
        rows = [StoredRecord(*row) for row in found]
        more = len(waiting) == self._limits.count_batch
        reached = waiting[-1] if more else last
        counted: list[tuple[int, int, int]] = []
        bad: dict[int, str] = {}
        for row in rows:
            try:
                count = self._count(row)
            except Exception as error:  # any error of a counter: set this record aside, count the others
                _pass_on_general(error)
                bad[row.seq] = type(error).__name__
            else:
                if count is not None:
                    counted.append((*count, row.seq))
        if counted or bad or reached - noted >= _COUNTED_NOTE:
            with self.engine.write() as connection:
                self.worker.join_in(connection)
                self._note_bad(connection, COUNT, bad)
                if again:
                    connection.executemany(
                        "DELETE FROM jobs WHERE namespace = ? AND kind = ? AND record = ?",
                        [(self.namespace, COUNT, seq) for *_, seq in counted],
                    )
                # Only rows that are still uncounted: the record may have been forgotten since.
                connection.executemany(
                    "UPDATE records SET tokens = ?, checksum = ? WHERE seq = ? AND tokens < 0", counted
                )
                self._note_counted(connection, reached)
            self.log_pages += _PAGES_A_COMMIT + sum(len(row.content or "") for row in rows) // _PAGE_BYTES
        self.counted_to = reached
        self.counts_more = more
        return more

    def _note_bad(self, connection: Connection, kind: str, bad: Mapping[int, str], attempts: int = 1) -> None:
        """Queue a failed job for each of these records, with its attempts and the name of its error."""
        if not bad:
            return
        transaction = self.begun(connection)
        for record, error in bad.items():
            log.warning("%s of record %d failed with %s; the others continue", kind, record, error)
            transaction.retry(kind, record, error, attempts=attempts)
        transaction.finish()

    @step("counting.note")
    def _note_counted(self, connection: Connection, reached: int) -> None:
        advance(connection, self.namespace, counting.PROGRESS, reached)

    def _waiting(self, connection: Connection, after: int) -> list[int]:
        """The sequence numbers of the next uncounted records."""
        rows = connection.execute(
            "SELECT r.seq FROM records r INDEXED BY records_by_number WHERE r.namespace = ? AND r.seq > ? "
            "AND r.version > 0 AND r.tokens < 0 ORDER BY r.seq LIMIT ?",
            (self.namespace, after, self._limits.count_batch),
        )
        return [seq for (seq,) in rows]

    @step("counting.record")
    def _count(self, row: StoredRecord) -> tuple[int, int] | None:
        """The tokens of a row, and its checksum including them; None if this process has no such counter.

        Raises `CorruptStore` for a damaged row, which must not get a new checksum.
        """
        check_row(row)
        tokens = self.engine.counts.of(row.seq, row.counter.encode(), row.content)
        return None if tokens is None else (tokens, guard(row._replace(tokens=tokens).guarded))

    def _project(self, projector: Projector) -> bool:
        """Index a chunk of each tail and merge small segments. Returns True if there was any work."""
        worked = False
        for kind in (TEXT, VECTORS):
            try:
                worked |= projector.due(kind) and self._extend(projector, kind)
                worked |= projector.merge(kind)
            except StaleProjection:
                worked = True  # a record was forgotten or a segment replaced meanwhile: retry
        return worked

    def _extend(self, projector: Projector, kind: str) -> bool:
        """Index the next chunk of a tail. Records whose text could not be analysed are set aside."""
        if not projector.extend(kind):
            return False
        if kind == TEXT:
            first, last = projector.covered
            with self.engine.read() as connection:
                known = Jobs(connection, self.namespace).jobs(INDEX, _MOST_NAMED)
            if projector.bad or any(first <= job.record <= last for job in known):
                with self.engine.write() as connection:
                    connection.execute(
                        "DELETE FROM jobs WHERE namespace = ? AND kind = ? AND record BETWEEN ? AND ?",
                        (self.namespace, INDEX, first, last),
                    )
                    self._note_bad(connection, INDEX, projector.bad, MAX_ATTEMPTS)
        return True

    def rest(self, fence: Fence) -> bool:
        """Do the work of idle times: chores, archiving, and more indexing and merging than pays during writes."""
        self.write_accesses()
        if self._count_some() or (self.chores and self.chores_after < _NEVER and self._do_chores(False)):
            return True
        if self.engine.index_folder is None:
            return False
        projector = self.projector(fence)
        try:
            indexed = [
                projector.due(kind, at_rest=True) and self._extend(projector, kind) for kind in (TEXT, VECTORS)
            ]
            merged = any(indexed) or any(projector.merge(kind, at_rest=True) for kind in (TEXT, VECTORS))
        except StaleProjection:
            return True
        if merged or self._archive_old(fence):
            return True
        self.engine.tidy()
        return False

    def _archive_old(self, fence: Fence) -> bool:
        """Archive some records older than `archive_after_s`. Looks for them at most once a minute."""
        if self.archive_after_s is None or time.monotonic() < self.archive_after:
            return False
        before = to_micros(self.engine.clock()) - int(self.archive_after_s * 1e6)
        if self.archive_some(fence, before, whole=False):
            return True
        self.archive_after = time.monotonic() + _PAUSE_S
        return False

    @step("archive.some")
    def archive_some(self, fence: Fence, before: int, whole: bool) -> bool:
        """Archive the next records committed before a moment. Returns True if there were any."""
        with self.engine.read() as connection:
            after = read_state(connection, self.namespace, archive.PROGRESS).watermark
            jobs = Jobs(connection, self.namespace)
            again = [job.record for job in jobs.jobs(archive.ARCHIVE, _MOST_NAMED, failed=False)]
            packed = archive.pack(
                connection, self.namespace, after, before, whole, again, self.archive_level, self._limits.block_bytes
            )
        if packed is None:
            return False
        with self.transaction(fenced=True) as transaction:
            if archive.publish(transaction.connection, self.namespace, packed, transaction.next_seq):
                for record, error in packed.bad.items():
                    transaction.retry(archive.ARCHIVE, record, error)
                transaction.advance(archive.PROGRESS, packed.reached)
        self.log_pages += sum(len(block.data) for block in packed.blocks) // _PAGE_BYTES * 4
        return True

    def _retain(self) -> bool:
        """Apply the retention rule, at most once a minute. Always returns False: one step does all of it."""
        if time.monotonic() < self.retain_after:
            return False
        self.retain_after = time.monotonic() + _PAUSE_S
        with self.engine.read() as connection:
            expired = forgetting.expired(connection, self.namespace, to_micros(self.engine.clock()))
            given_up = connection.execute(
                "SELECT CAST(r.id AS BLOB) FROM jobs j JOIN records r ON r.seq = j.record "
                "WHERE j.namespace = ? AND j.kind = ? AND j.attempts >= ?",
                (self.namespace, RETAIN, MAX_ATTEMPTS),
            ).fetchall()
        self._retire([id for id in expired if (_utf8(id),) not in given_up])
        return False

    def _retire(self, expired: Sequence[str | bytes]) -> None:
        """Forget expired records. After a failure, each half is tried alone, so that a bad record does not keep
        others."""
        if not expired:
            return
        try:
            self._remove_expired(expired)
        except Exception as error:
            _pass_on_general(error)
            if len(expired) > 1:
                middle = len(expired) // 2
                self._retire(expired[:middle])
                self._retire(expired[middle:])
                return
            with self.engine.write() as connection:
                (newest,) = connection.execute(
                    "SELECT max(seq) FROM records WHERE namespace = ? AND CAST(id AS BLOB) = ?",
                    (self.namespace, _utf8(expired[0])),
                ).fetchone()
                self._note_bad(connection, RETAIN, {int(newest or 0): type(error).__name__})

    def _remove_expired(self, expired: Sequence[str | bytes]) -> None:
        ids = [id for id in expired if isinstance(id, str)]
        if len(ids) < len(expired):
            raise CorruptStore("a record to be forgotten has an id that is not valid text")
        with self.engine.write() as connection:
            transaction = self.begun(connection)
            where, values = conditions(Filter(ids=ids, history=True), self.namespace, connection)
            forgetting.remove(transaction, self.engine.archive, where, values)
            transaction.finish()

    def _embed_some(self, fence: Fence | None, thorough: bool) -> bool:
        """Embed a batch. Returns True to continue at once. A few texts may wait for others, unless `thorough`.

        Without a fence only jobs that this process can take from the others.
        """
        if time.monotonic() < self.embed_after:
            self.worker.try_again()
            return False
        with self.engine.read() as connection:
            if not self._embeds_here(connection):
                return False
        taken = self.engine.take_jobs(EMBED, self._limits.embed_batch, MAX_ATTEMPTS)
        if fence is None and taken is None:
            return False
        with self.engine.read() as connection:
            rows = self._embed_jobs(connection, taken)
        if not rows:
            return False
        full = len(rows) == self._limits.embed_batch
        damaged = {row.record: "CorruptStore" for row in rows if any(isinstance(value, bytes) for value in row)}
        if damaged:
            with self.engine.write() as connection:
                if taken is None:
                    self.worker.join_in(connection)
                self._note_bad(connection, EMBED, damaged)
            rows = [row for row in rows if row.record not in damaged]
            if not rows:
                return True
        # After a failure each text is embedded alone, so that a bad text does not delay the others.
        alone = any(row.attempts for row in rows)
        more = thorough or alone or full
        if alone:
            rows = rows[:1]
        try:
            vectors = self._embedded([embedded_text(row.name, row.metadata, row.content) for row in rows])
            with self._ending(taken) as connection:
                if not self._embeds_here(connection):
                    return False  # another process changed the embedder meanwhile: spaces must not mix
                if taken is not None:  # expired jobs may be taken by another worker, or their records forgotten
                    ours = self.engine.still_taken(connection, taken)
                    chosen = [place for place, row in enumerate(rows) if row.record in ours]
                    rows, vectors = [rows[place] for place in chosen], vectors[chosen]
                transaction = self.begun(connection)
                transaction.put_vectors([row.record for row in rows], vectors)
                _delete_jobs(connection, self.namespace, EMBED, rows)
                transaction.finish()
            self.embed_failures = 0
            self._chores_in_time()
            self.log_pages += _PAGES_A_COMMIT + vectors.nbytes // 2 // _PAGE_BYTES
            self.unindexed_vectors += len(rows)
            if self.unindexed_vectors >= self._tail_limit.records:
                self.unindexed_vectors = 0
                self.tail_is_due = True
        except (StoreError, LeaseLost, Closed):
            raise
        except Exception as error:  # any error of an embedder: its jobs are retried, then reported
            self._embedding_failed(taken, rows, error)
            return True
        return more

    @contextmanager
    def _ending(self, taken: Taken | None) -> Iterator[Connection]:
        """A write that ends jobs, under the lease or with jobs taken. Taken jobs that it leaves are free again."""
        with self.engine.write() as connection:
            if taken is None:
                self.worker.join_in(connection)
            yield connection
            if taken is not None:
                self.engine.free_jobs(connection, taken)

    @step("embedding.embed")
    def _embedded(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        assert self.embed is not None
        return np.asarray(self.embed(texts), dtype=np.float32)

    def _embed_jobs(self, connection: Connection, taken: Taken | None) -> list[_ToEmbed]:
        """The next records to embed, or those taken."""
        query = (
            f"SELECT j.record, j.seq, j.attempts, r.name, r.metadata, ifnull({CONTENT}, '') FROM jobs j "
            "JOIN records r ON r.seq = j.record WHERE j.namespace = ? AND j.kind = ? AND j.attempts < ?"
        )
        values = (self.namespace, EMBED, MAX_ATTEMPTS)
        if taken is None:
            rows = fetch_readable(connection, f"{query} LIMIT ?", (*values, self._limits.embed_batch))
        else:
            listed = "j.record IN (SELECT value FROM json_each(?))"
            rows = fetch_readable(connection, f"{query} AND {listed}", (*values, str([*taken.records])))
        return [_ToEmbed(*row) for row in rows]

    def _embedding_failed(self, taken: Taken | None, rows: Iterable[_ToEmbed], error: Exception) -> None:
        """Count the failed attempt, and pause: the embedder may be down and the texts valid."""
        self.embed_failures += 1
        self.embed_after = time.monotonic() + min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self.embed_failures)
        log.warning("embedding failed with %s; it will be tried again", type(error).__name__)
        with self._ending(taken) as connection:
            connection.executemany(
                "UPDATE jobs SET attempts = attempts + 1, error = ? "
                "WHERE namespace = ? AND kind = ? AND record = ? AND seq = ?",
                [(type(error).__name__, self.namespace, EMBED, row.record, row.seq) for row in rows],
            )

    @property
    def embedder_is_down(self) -> bool:
        """Whether the embedder has failed too many times in a row to wait for it."""
        return self.embed_failures >= _DOWN_AFTER

    def _embeds_here(self, connection: Connection) -> bool:
        """Whether this process embeds in the current space of the file."""
        space = active_space(connection, self.namespace)
        return space is not None and space.number == self.space


def _utf8(id: str | bytes) -> bytes:
    return id.encode() if isinstance(id, str) else id


def _pass_on_general(error: Exception) -> None:
    """Raise an error again if it concerns more than the records of one step."""
    if concerns_everything(error) or isinstance(error, StaleProjection):
        raise error


@step("embedding.delete_jobs")
def _delete_jobs(connection: Connection, namespace: int, kind: str, rows: Iterable[_ToEmbed]) -> None:
    connection.executemany(
        "DELETE FROM jobs WHERE namespace = ? AND kind = ? AND record = ? AND seq = ?",
        [(namespace, kind, row.record, row.seq) for row in rows],
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


def join(
    engine: Engine,
    namespace: int,
    tail: TailLimit,
    lease_s: float,
    limits: WorkLimits,
    begin: type[SqliteTransaction] = SqliteTransaction,
) -> Maintenance:
    """Join the maintenance of a namespace in this process. The first handle creates it and sets its limits."""
    with _shared_lock:
        namespaces = _shared.setdefault(engine, {})
        maintenance = namespaces.get(namespace)
        if maintenance is None:
            maintenance = namespaces[namespace] = Maintenance(engine, namespace, tail, lease_s, limits, begin)
        maintenance.handles += 1
        return maintenance


def part(maintenance: Maintenance) -> bool:
    """Drop a handle. Returns True if it was the last."""
    with _shared_lock:
        maintenance.handles -= 1
        if maintenance.handles:
            return False
        _shared.get(maintenance.engine, {}).pop(maintenance.namespace, None)
        return True
