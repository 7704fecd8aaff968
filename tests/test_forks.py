"""State that a forked child must renew."""

from __future__ import annotations

import gc
import os
import weakref
from threading import Lock

from loom.forks import renew_after_fork


class Guarded:
    def __init__(self) -> None:
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self.lock = Lock()


def test_a_lock_that_is_held_at_the_fork_is_free_in_the_child() -> None:
    guarded = Guarded()
    with guarded.lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if guarded.lock.acquire(blocking=False) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert guarded.lock.locked()


def test_what_is_registered_is_not_kept_alive() -> None:
    guarded = Guarded()
    reference = weakref.ref(guarded)
    del guarded
    gc.collect()
    assert reference() is None
