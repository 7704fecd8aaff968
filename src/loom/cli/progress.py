"""A line on standard error that says that a long command is at work: on a terminal only, gone when it is done.

Commands that count what they do show the number of records.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from loom.operations.moving_files import PROGRESS

__all__ = ["working"]

_FRAMES = "|/-\\"
_BEGINS_AFTER_S = 0.5
_EVERY_S = 0.1


@contextmanager
def working(what: str, *, shown: bool = True) -> Iterator[None]:
    """Turn a mark and count seconds while the block runs, from half a second on."""
    stream = getattr(sys.stderr, "unguarded", sys.stderr)
    if not shown or not stream.isatty():
        yield
        return
    done = threading.Event()
    records: list[int] = []

    def turn() -> None:
        began = time.monotonic()
        wait, frame = _BEGINS_AFTER_S, 0
        while not done.wait(wait):
            wait, frame = _EVERY_S, frame + 1
            counted = f"{records[-1]:,} records, " if records else ""
            stream.write(f"\r{_FRAMES[frame % 4]} {what} {counted}{time.monotonic() - began:.0f} s ")
            stream.flush()
        if frame:
            stream.write("\r\x1b[K")
            stream.flush()

    def count(number: int) -> None:
        records[:] = [number]

    thread = threading.Thread(target=turn, daemon=True)
    thread.start()
    before = PROGRESS.set(count)
    try:
        yield
    finally:
        PROGRESS.reset(before)
        done.set()
        thread.join()
