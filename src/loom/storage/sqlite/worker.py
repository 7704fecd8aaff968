"""The background thread of a process, and the lease, which lets one process at a time do the background work.

The lease is a row, taken by compare-and-set and released when all work is done. A holder that stops renewing the
lease loses it when it expires; the number of the lease then prevents it from publishing. Work is idempotent, so a
kill at any moment costs at most the current step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from loom.errors import Closed, LoomError
from loom.protocol import new_id
from loom.steps import step
from loom.storage.contract import LeaseLost
from loom.storage.databases import Connection, Engine

__all__ = ["Fence", "LeaseLost", "Piece", "Worker"]

log = logging.getLogger("loom.worker")

Fence = Callable[[Connection], None]
"""Raises `LeaseLost` inside a publishing transaction unless the lease is still held."""

Piece = Callable[[Fence], bool]
"""Does one bounded piece of work. Returns True if there was any."""

# The pause before a retry after an error, or while another process has the lease.
_PAUSE_S = 1.0
# The pause after a takeover of the lease: usually a forget has it for some milliseconds.
_SHORT_PAUSE_S = 0.05
# The idle time before the thread does the work of idle times.
_REST_S = 3.0
_NEVER = float("inf")
_URGENT = "urgent "


class _Held(NamedTuple):
    """The lease as stored in the file."""

    owner: str = ""
    number: int = 0
    expires_at: int = 0

    @property
    def is_urgent(self) -> bool:
        return self.owner.startswith(_URGENT)


def _held(connection: Connection, name: str) -> _Held:
    row = connection.execute("SELECT owner, number, expires_at FROM leases WHERE name = ?", (name,)).fetchone()
    return _Held(*(row or ()))


class _Holder:
    """A holder of the lease: takes it by compare-and-set, and is fenced by its number.

    An urgent holder, for a verb that does not wait for background work, takes it from any holder that is not urgent.
    """

    def __init__(self, engine: Engine, name: str, lease_s: float, *, is_urgent: bool = False) -> None:
        self._engine = engine
        self._name = name
        self._lease_s = lease_s
        self._is_urgent = is_urgent
        self._owner = f"{_URGENT if is_urgent else ''}{new_id()}"
        self._number = 0
        self._renewed_at = 0.0

    @step("lease.take")
    def take(self) -> bool:
        """Take the lease. Returns False if another holder has it."""
        with self._engine.read() as connection:
            now = self._engine.now_for_leases(connection)
            if self._is_barred(_held(connection, self._name), now):
                return False
        with self._engine.write() as connection:
            held = _held(connection, self._name)
            if self._is_barred(held, now):
                return False
            self._take_over(connection, held)
        return True

    def _is_barred(self, held: _Held, now: int) -> bool:
        """Whether another holder has the lease that this one may not take."""
        return held.owner != self._owner and held.expires_at > now and (held.is_urgent or not self._is_urgent)

    def _take_over(self, connection: Connection, held: _Held) -> None:
        self._number = held.number + 1
        self._renew(connection)

    def _renew(self, connection: Connection) -> None:
        expires = self._engine.now_for_leases(connection) + int(self._lease_s * 1e6)
        connection.execute(
            "INSERT OR REPLACE INTO leases (name, owner, number, expires_at) VALUES (?, ?, ?, ?)",
            (self._name, self._owner, self._number, expires),
        )
        self._renewed_at = time.monotonic()

    def fence(self, connection: Connection) -> None:
        """Raise `LeaseLost` unless the lease is still held. Renew it after a third of its time."""
        if _held(connection, self._name)[:2] != (self._owner, self._number):
            raise LeaseLost("another process took over the background work")
        if time.monotonic() - self._renewed_at > self._lease_s / 3:
            self._renew(connection)

    def join_in(self, connection: Connection) -> None:
        """Like the fence, for results other than index files: an urgent holder does not invalidate them.

        Takes the lease back if the urgent holder has finished.
        """
        held = _held(connection, self._name)
        if not held.is_urgent:
            self.fence(connection)
        elif held.expires_at <= self._engine.now_for_leases(connection):
            self._take_over(connection, held)

    @step("lease.give_back")
    def give_back(self) -> None:
        with self._engine.write() as connection:
            connection.execute(
                "UPDATE leases SET expires_at = 0 WHERE name = ? AND owner = ? AND number = ?",
                (self._name, self._owner, self._number),
            )


@contextmanager
def _holding(holder: _Holder, turn: threading.Lock | threading.RLock, wait_s: float) -> Iterator[Fence | None]:
    """Hold the lease, after waiting up to `wait_s` for another holder. Yields the fence, or None if not held.

    Only one thread of a process at a time has the turn to take it.
    """
    deadline = time.monotonic() + wait_s
    if not turn.acquire(timeout=max(wait_s, 0.0)):
        yield None
        return
    try:
        while not (taken := holder.take()) and time.monotonic() < deadline:
            time.sleep(0.005)
        try:
            yield holder.fence if taken else None
        finally:
            if taken:
                holder.give_back()
    finally:
        turn.release()


class Worker:
    """The background thread of one process on one namespace.

    `work` does one bounded piece of work and returns True if there was any. It runs only under the lease, and calls
    its fence inside every publishing transaction. `rest` does the same for the work of idle times. `share` does work
    that several processes may do at a time, without the lease.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        work: Piece,
        rest: Piece,
        lease_s: float,
        share: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._lease = engine, name, lease_s
        self._work = work
        self._rest = rest
        self._share = share
        self.reset()

    def reset(self) -> None:
        """Set the initial state, for a new worker and in a child process after fork."""
        self._holder = _Holder(*self._lease)
        self.join_in = self._holder.join_in
        self._turn = threading.RLock()
        self._urgent = threading.Lock()
        self._wish = threading.Condition()
        self._due = _NEVER
        self._stopping = self._unfinished = False
        self._told = ""
        self._thread: threading.Thread | None = None

    def share(self) -> bool:
        """Do a piece of work that needs no lease, unless a thread of this process is at work. True after any."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            return self._share()
        finally:
            self._turn.release()

    def wake(self, within_s: float = 0.0) -> None:
        """Ask the background thread to look for work within a time. Starts the thread if necessary."""
        due = time.monotonic() + within_s
        with self._wish:
            if self._stopping or due >= self._due:
                return  # it wakes by then; a notification per record would cost more than the rest of a write
            self._due = due
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="loom-worker", daemon=True)
                self._thread.start()
            self._wish.notify()

    def try_again(self) -> None:
        """Retry after a pause. Called by a piece of work that cannot be done yet."""
        self._unfinished = True

    def stop(self, timeout_s: float) -> bool:
        """Stop the thread after its current piece. Returns False if that takes longer than the timeout."""
        with self._wish:
            self._stopping = True
            self._wish.notify()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        self._engine.stop_waiting(thread)
        thread.join(timeout_s)
        return not thread.is_alive()

    def lease(self, wait_s: float) -> AbstractContextManager[Fence | None]:
        """Hold the lease, after waiting up to `wait_s` for another holder. Yields the fence, or None if not held."""
        return _holding(self._holder, self._turn, wait_s)

    def urgent_lease(self, wait_s: float) -> AbstractContextManager[Fence | None]:
        """Take the lease from background work, even of this process. Yields the fence, or None if it is not held.

        The fence then stops the current piece of work from publishing index files, and the piece is repeated later.
        Waits up to `wait_s` for another urgent holder.
        """
        return _holding(_Holder(*self._lease, is_urgent=True), self._urgent, wait_s)

    def _run(self) -> None:
        pause_s: float | None = None
        restless = False  # work was done since the last rest
        while True:
            with self._wish:
                idle_s = _REST_S if restless and pause_s is None else pause_s
                until = _NEVER if idle_s is None else time.monotonic() + idle_s
                while (
                    not self._stopping
                    and (left_s := (until if self._due == _NEVER else self._due) - time.monotonic()) > 0
                ):
                    self._wish.wait(None if left_s == _NEVER else left_s)
                if self._stopping:
                    return
                resting = self._due == _NEVER and pause_s is None
                self._due = _NEVER  # reset before the work, to keep a call of wake() during it
            try:
                self._unfinished = False
                done = self._run_pieces(self._rest if resting else self._work)
                self._told = ""
                restless = not (done and resting)
                pause_s = None if done and not self._unfinished else _PAUSE_S
            except LeaseLost:
                log.info("the background work was taken over")
                pause_s = _SHORT_PAUSE_S
            except Closed:
                # close() did not wait for the end of this piece. It stays queued, so nothing is lost.
                log.info("the store was closed before a piece of background work was done")
                pause_s = _PAUSE_S
            except LoomError as error:
                # The work stays queued and is retried. The records are unchanged.
                level = logging.DEBUG if str(error) == self._told else logging.WARNING  # once, not every second
                self._told = str(error)
                log.log(level, "background work stopped: %s: %s", type(error).__name__, error)
                pause_s = _PAUSE_S
            except Exception:
                # The thread must survive any error, such as a full disk under the index or a broken embedder.
                log.exception("background work failed; it will be tried again")
                pause_s = _PAUSE_S

    def _run_pieces(self, piece: Piece) -> bool:
        """Work until nothing is left or, at rest, until a call of wake(). Returns False without the lease."""
        with self.lease(wait_s=0) as fence:
            while fence is not None and not self._stopping and piece(fence):
                if piece is self._rest and self._due != _NEVER:
                    break
        if fence is None:
            while not self._stopping and self.share():
                pass
        return fence is not None
