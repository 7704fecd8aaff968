"""Background work: who may do it, and doing it.

The right to work is a lease row, taken by compare-and-set and given back when there is nothing left to do.
A holder that stops answering loses it when it expires; its number fences whatever it still tries to
publish. Work is idempotent, so a kill at any moment costs at most the chunk under way.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loom.errors import Closed, Conflict, LoomError
from loom.protocol import new_id
from loom.storage.sqlite.engine import Engine

__all__ = ["Fence", "LeaseLost", "Step", "Worker"]

log = logging.getLogger("loom.worker")

Fence = Callable[[sqlite3.Connection], None]
Step = Callable[[Fence], bool]

# How long the thread waits before it tries again what another process, or an error, kept it from.
_PAUSE_S = 1.0
# How long nothing must be wanted before what can wait is done.
_REST_S = 3.0
_NEVER = float("inf")


class LeaseLost(Conflict):
    """Another process took over the background work; what was being done here is dropped."""


class Worker:
    """The background thread of one process on one store, and the lease that keeps it alone.

    `step` does one bounded piece of work and says whether there was any; it runs only under the lease and
    receives the fence to call inside every transaction it publishes with. `rest` is a step of what can wait
    until nobody wants anything.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        step: Step,
        rest: Step,
        lease_s: float,
    ) -> None:
        self._engine = engine
        self._name = name
        self._step = step
        self._rest = rest
        self._lease_s = lease_s
        self.reset()

    def reset(self) -> None:
        """Start as if new: at birth, and in a child process after fork."""
        self._owner = new_id()
        self._number = 0
        self._renewed_at = 0.0
        self._turn = threading.RLock()
        self._wish = threading.Condition()
        self._due = _NEVER
        self._stopping = False
        self._unfinished = False
        self._thread: threading.Thread | None = None

    def wake(self, within_s: float = 0.0) -> None:
        """Ask the background thread to look for work within a time, starting it if there is none yet."""
        due = time.monotonic() + within_s
        with self._wish:
            if self._stopping or due >= self._due:
                return  # it will look by then: to wake it for every record would cost more than the rest of a write
            self._due = due
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="loom-worker", daemon=True)
                self._thread.start()
            self._wish.notify()

    def try_again(self) -> None:
        """From inside a step: there is work that cannot be done yet; come back after a pause."""
        self._unfinished = True

    def stop(self, timeout_s: float) -> bool:
        """Let the thread finish its current piece; False where it did not within the time."""
        with self._wish:
            self._stopping = True
            self._wish.notify()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    @contextmanager
    def lease(self, wait_s: float) -> Iterator[Fence | None]:
        """Hold the lease, waiting for another holder up to `wait_s`; yields the fence, or None if not had."""
        deadline = time.monotonic() + wait_s
        acquired = self._turn.acquire(timeout=max(wait_s, 0.0)) if wait_s > 0 else self._turn.acquire(False)
        if not acquired:
            yield None
            return
        try:
            while not self._take():
                if time.monotonic() >= deadline:
                    yield None
                    return
                time.sleep(0.01)
            try:
                yield self._fence
            finally:
                self._give_back()
        finally:
            self._turn.release()

    def _run(self) -> None:
        pause_s: float | None = None
        restless = False  # something was done since the last rest
        while True:
            with self._wish:
                idle_s = _REST_S if restless and pause_s is None else pause_s
                until = _NEVER if idle_s is None else time.monotonic() + idle_s
                while not self._stopping and (left_s := self._next(until) - time.monotonic()) > 0:
                    self._wish.wait(None if left_s == _NEVER else left_s)
                if self._stopping:
                    return
                resting = self._due == _NEVER and pause_s is None
                self._due = _NEVER  # before the work, so that a wish meanwhile is not lost
            try:
                self._unfinished = False
                done = self._work(self._rest if resting else self._step)
                restless = not (done and resting)
                pause_s = None if done and not self._unfinished else _PAUSE_S
            except LeaseLost:
                log.info("another process has taken over the background work")
                pause_s = _PAUSE_S
            except Closed:
                # Whoever closed the store did not wait for this piece to end. It stays queued, and nothing is amiss.
                log.info("the store was closed before a piece of background work was done")
                pause_s = _PAUSE_S
            except LoomError as error:
                # The work stays queued and is tried again; the records are not touched.
                log.warning("background work stopped: %s: %s", type(error).__name__, error)
                pause_s = _PAUSE_S
            except Exception:
                # A full disk under the index, a broken embedder: the thread must outlive it.
                log.exception("background work failed; it will be tried again")
                pause_s = _PAUSE_S

    def _next(self, until: float) -> float:
        """When to look: at what was wished for, and without a wish at `until`."""
        return until if self._due == _NEVER else self._due

    def _work(self, step: Step) -> bool:
        """Do what there is, until it is done or, at rest, somebody wants something; False without the lease."""
        with self.lease(wait_s=0) as fence:
            while fence is not None and not self._stopping and step(fence):
                if step is self._rest and self._due != _NEVER:
                    break
            return fence is not None

    def _take(self) -> bool:
        now = time.time_ns() // 1000
        with self._engine.read() as connection:
            row = connection.execute(
                "SELECT owner, number, expires_at FROM leases WHERE name = ?", (self._name,)
            ).fetchone()
            if row is not None and row[0] != self._owner and row[2] > now:
                return False
        with self._engine.write() as connection:
            row = connection.execute(
                "SELECT owner, number, expires_at FROM leases WHERE name = ?", (self._name,)
            ).fetchone()
            if row is not None and row[0] != self._owner and row[2] > now:
                return False
            self._number = (row[1] if row is not None else 0) + 1
            self._renew(connection)
        return True

    def _renew(self, connection: sqlite3.Connection) -> None:
        expires = (time.time_ns() + int(self._lease_s * 1e9)) // 1000
        connection.execute(
            "INSERT OR REPLACE INTO leases (name, owner, number, expires_at) VALUES (?, ?, ?, ?)",
            (self._name, self._owner, self._number, expires),
        )
        self._renewed_at = time.monotonic()

    def _fence(self, connection: sqlite3.Connection) -> None:
        """Inside a publishing transaction: still ours? Then it is renewed by the way."""
        row = connection.execute("SELECT owner, number FROM leases WHERE name = ?", (self._name,)).fetchone()
        if row != (self._owner, self._number):
            raise LeaseLost("another process took over the background work")
        if time.monotonic() - self._renewed_at > self._lease_s / 3:
            self._renew(connection)

    def _give_back(self) -> None:
        with self._engine.write() as connection:
            connection.execute(
                "UPDATE leases SET expires_at = 0 WHERE name = ? AND owner = ? AND number = ?",
                (self._name, self._owner, self._number),
            )
