"""The verbs of an operator: flush, forget, apply retention, archive, vacuum and back up.

Each is a function of the namespace's `Maintenance`. It takes the lease if the background work must stop meanwhile.
`maintenance` does the background work itself; `forgetting` finds the rows of a forgotten record.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from loom.errors import ForgetPending, InvalidInput, StoreBusy, StoreFull
from loom.progress import has_listener, report
from loom.steps import step
from loom.storage.contract import EMBED, ArchiveStats, Filter, FlushReport, ForgetReceipt
from loom.storage.files import check_folder, disk_errors, keep_mode
from loom.storage.moments import to_micros
from loom.storage.sqlite import archive, forgetting
from loom.storage.sqlite.engine import Engine as FileEngine
from loom.storage.sqlite.engine import translate
from loom.storage.sqlite.entries import Jobs
from loom.storage.sqlite.filters import conditions
from loom.storage.sqlite.maintenance import Maintenance
from loom.storage.sqlite.projections import count_up, index_files, index_folder
from loom.storage.sqlite.worker import LeaseLost
from loom.storage.temporary import let_go, temporary_beside

__all__ = [
    "archive_before",
    "back_up",
    "expired",
    "flush",
    "forget",
    "forget_entries",
    "forget_namespace",
    "retry_jobs",
    "settle",
    "shrink",
    "unfinished",
    "vacuum",
]

# The longest wait of a verb for the lease: this process's worker may be merging large segments.
_LEASE_WAIT_S = 60.0
# After this wait for the lease, a flush does the work that needs none.
_SHARE_AFTER_S = 1.0
# Merge the indexes, rewrite the file, fold the log into it. SQLite reports no progress within a step.
_VACUUM_STEPS = 3


def flush(own: Maintenance, timeout_s: float | None) -> FlushReport:
    """Do all background work that this process can do. Returns the jobs that then wait or have failed."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    if own.engine.index_folder is None and own.embed is None and not own.chores:
        return unfinished(own)
    most = _report_jobs(own, 0)
    while True:
        left = 3600.0 if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return unfinished(own)
        try:
            with own.worker.lease(wait_s=min(left, _SHARE_AFTER_S)) as fence:
                if fence is None:
                    while own.worker.share() and (deadline is None or time.monotonic() < deadline):
                        most = _report_jobs(own, most)
                    continue
                while own.work(fence, thorough=True):
                    most = _report_jobs(own, most)
                    if deadline is not None and time.monotonic() >= deadline:
                        return unfinished(own)
        except LeaseLost:
            continue
        except ForgetPending:
            return unfinished(own)
        most = _report_jobs(own, most)  # the worker may have done the last jobs
        if not _will_retry(own):
            return unfinished(own)
        time.sleep(0.05)


def _report_jobs(own: Maintenance, most: int) -> int:
    """Report how many queued jobs are done. `most` is the largest queue seen; returns the new value."""
    if not has_listener():
        return most
    waiting = sum(unfinished(own).waiting.values())
    most = max(most, waiting)
    report(most - waiting, most, "jobs")
    return most


def unfinished(own: Maintenance) -> FlushReport:
    """The jobs of the namespace that wait or have failed."""
    with own.engine.read() as connection:
        found = Jobs(connection, own.namespace).unfinished()
    return replace(found, errors=tuple(own.errors.values()))


def _will_retry(own: Maintenance) -> bool:
    if own.embed is None or own.embedder_is_down:
        return False
    with own.engine.read() as connection:
        return bool(Jobs(connection, own.namespace).jobs(EMBED, 1, failed=False))


def retry_jobs(own: Maintenance, kinds: Sequence[str], failed: int, attempts: int) -> bool:
    """Reset the attempts of jobs that failed this often. Returns False if there are none, or the file is locked.

    This process may succeed where another process gave up.
    """
    where = "namespace = ? AND kind IN (SELECT atom FROM json_each(?)) AND attempts >= ?"
    values = (own.namespace, json.dumps(kinds), failed)
    with own.engine.read() as connection:
        if connection.execute(f"SELECT 1 FROM jobs WHERE {where} LIMIT 1", values).fetchone() is None:
            return False
    with own.engine.try_write() as writing:  # opening does not wait for another writer
        if writing is None:
            return False
        error = "error" if attempts else "NULL"
        writing.execute(f"UPDATE jobs SET attempts = ?, error = {error} WHERE {where}", (attempts, *values))
        return True


def forget(own: Maintenance, wanted: Filter, timeout_s: float) -> ForgetReceipt:
    """Remove records with every version and everything derived from them, then erase the remaining copies.

    Raises `ForgetPending` if a copy cannot be erased within `timeout_s`; the worker then continues.
    """
    try:
        receipt = _remove(own, wanted)
    except StoreFull:
        with _more_room(own):
            receipt = _remove(own, wanted)
    if not receipt:
        return receipt
    try:
        rewritten = forgetting.scrub(
            own.engine, own.namespace, own.worker, own.projector, time.monotonic() + timeout_s
        )
    except ForgetPending:
        own.look_after = 0.0
        own.worker.wake()
        raise
    remains = own.engine.remains
    if remains:
        own.worker.wake()  # it tidies when it is idle again
    return replace(receipt, segments=rewritten, remains=remains)


def forget_namespace(own: Maintenance, timeout_s: float, shrink: Callable[[], None]) -> ForgetReceipt:
    """Remove a namespace with all its data, then its name, and erase the remaining copies.

    The call can be repeated until the name is gone: after a kill, or after `ForgetPending`.
    """
    deadline = time.monotonic() + timeout_s
    with own.transaction() as transaction:
        own.accesses.write(transaction.connection)
        receipt = forgetting.remove_all(transaction, own.engine.archive)
    rewritten = forgetting.scrub(own.engine, own.namespace, own.worker, own.projector, deadline)
    shrink()  # deleted rows of entries leave copies between pages; see `schema`
    with own.engine.write() as connection:
        forgetting.remove_name(connection, own.namespace)
    forgetting.truncate_log(own.engine, deadline)
    return replace(receipt, segments=rewritten, remains=own.engine.remains)


def forget_entries(own: Maintenance, scope: str, owner: str | None, key: str | None, timeout_s: float) -> int:
    """Empty entries with their history, then erase the copies in the log. Returns the number of keys."""
    with own.transaction() as transaction:
        forgotten = forgetting.forget_entries(transaction, scope, owner, key)
    forgetting.truncate_log(own.engine, time.monotonic() + timeout_s)
    return forgotten


def _remove(own: Maintenance, wanted: Filter) -> ForgetReceipt:
    with own.transaction() as transaction:
        own.accesses.write(transaction.connection)  # so that no use of a forgotten record is written later
        where, values = conditions(wanted, own.namespace, transaction.connection)
        return forgetting.remove(transaction, own.engine.archive, where, values)


@contextmanager
def _more_room(own: Maintenance) -> Iterator[None]:
    """Free space on a full disk or in a full file: forgetting writes a few pages before it frees any.

    Folds the log into the file to reuse its space, and deletes the index files of the namespace. Answers are the
    same without them, and the worker rebuilds them later. `max_bytes` does not apply inside the block.
    """
    engine = own.engine
    engine.clean_up_by(time.monotonic())
    folder = engine.index_folder
    if folder is not None:
        for name in index_files(folder, own.namespace):
            with disk_errors(f"the index file {folder / name} cannot be deleted"):
                (folder / name).unlink(missing_ok=True)
    with engine.without_limit():
        yield


def expired(own: Maintenance) -> list[str]:
    """The ids that the retention rule no longer keeps; none without a rule."""
    with own.engine.read() as connection:
        found = forgetting.expired(connection, own.namespace, to_micros(own.engine.clock()))
    return [id for id in found if isinstance(id, str)]  # the worker sets the others aside and names them


def archive_before(own: Maintenance, moment: int) -> ArchiveStats:
    """Archive every record committed before a moment. Returns the new statistics of the archive."""
    retry_jobs(own, [archive.ARCHIVE], 1, 0)
    total = _archivable(own, moment)
    report(0, total, "records")
    while True:
        with suppress(LeaseLost), own.worker.lease(wait_s=_LEASE_WAIT_S) as fence:
            if fence is None:
                raise StoreBusy("another process is doing the background work; try again when it is done")
            while own.archive_some(fence, moment, whole=True):
                report(total - _archivable(own, moment), total, "records")
            with own.engine.read() as connection:
                return archive.statistics(connection, own.namespace)


def _archivable(own: Maintenance, moment: int) -> int:
    """The number of records still to be archived; 0 without counting if progress has no listener."""
    if not has_listener():
        return 0
    with own.engine.read() as connection:
        return archive.count_waiting(connection, own.namespace, moment)


def settle(own: Maintenance) -> None:
    """Do the work that normally waits until the process is idle."""
    with own.worker.lease(wait_s=10.0) as fence:
        while fence is not None and own.rest(fence):
            pass


def vacuum(own: Maintenance, engine: FileEngine) -> int:
    """Do the work of idle times and return free pages to the disk. Returns the bytes by which the file shrank."""
    if engine.path is None:
        return 0
    report(0, _VACUUM_STEPS, "steps")
    settle(own)
    report(1, _VACUUM_STEPS, "steps")
    with disk_errors(f"{engine.path} cannot be vacuumed"):
        before = os.stat(engine.path).st_size
        shrink(engine)
        report(2, _VACUUM_STEPS, "steps")
        engine.truncate_wal()
        report(3, _VACUUM_STEPS, "steps")
        return before - os.stat(engine.path).st_size


@step("vacuum.shrink")
def shrink(engine: FileEngine) -> None:
    """Remove the empty rows and rewrite the file without them."""
    with engine.write() as connection:  # forgetting leaves empty rows; see `schema`
        count_up(connection)  # so that the sequence numbers of removed rows are not reused
        connection.execute("DELETE FROM records WHERE version = 0")
        connection.execute("DELETE FROM vectors WHERE record IS NULL")
        connection.execute("DELETE FROM blobs WHERE key IS NULL")
        connection.execute("DELETE FROM awaited WHERE id_hash IS NULL")
        connection.execute("DELETE FROM entries WHERE namespace = -1")
        # The block numbers in the rows of the records decide, not a count in the row of the block.
        connection.execute(
            "DELETE FROM blocks WHERE records = 0 "
            "AND number NOT IN (SELECT block FROM records WHERE block IS NOT NULL AND version > 0)"
        )
    with engine.maintenance() as connection:
        connection.execute("VACUUM")


def back_up(engine: FileEngine, path: str | Path) -> None:
    """Copy the whole database to a path while others write. The complete copy replaces the file there."""
    target = Path(path).expanduser().absolute()
    with disk_errors(f"the backup to {target} was not made"):
        check_folder(target.parent)
        if engine.path is not None and target == engine.path:
            raise InvalidInput("a backup cannot replace the store it is made from; choose another path")
        _settle_target(target)
        with temporary_beside(target, engine.file_mode) as temporary:
            try:
                _copy(engine, temporary)
            except sqlite3.Error as error:
                raise translate(error, target) or error from error
            keep_mode(temporary, target)
            let_go(temporary)
            os.replace(temporary, target)


def _copy(engine: FileEngine, place: Path) -> None:
    with closing(sqlite3.connect(place)) as copy:
        if engine.path is None:
            with engine.read() as connection:
                connection.backup(copy)
        else:
            with engine.private_connection() as source:
                source.backup(
                    copy,
                    pages=4096,
                    sleep=0.001,
                    progress=lambda _, remaining, total: report(total - remaining, total, "pages"),
                )
        copy.execute("PRAGMA journal_mode = DELETE")


def _settle_target(target: Path) -> None:
    """Fold the log of the file to be replaced: SQLite would otherwise apply that log to the backup."""
    if not target.exists():
        return
    try:
        with closing(sqlite3.connect(target, timeout=0.2)) as old:
            old.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        ours = translate(error, target)
        if isinstance(ours, StoreBusy):
            raise StoreBusy(f"{target} is in use; close it, or choose another path for the backup") from error
        raise ours or error from error
    folder = index_folder(target)
    if folder is not None and folder.is_dir():
        for segment in folder.glob("*.seg"):
            segment.unlink(missing_ok=True)
