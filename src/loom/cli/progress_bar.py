"""A line on standard error that shows the progress of a long command, on a terminal only; removed at the end.

A command that reports a total gets a bar, a command that only counts shows its count, and any other command shows
the elapsed seconds. See `loom.progress`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from loom.progress import Progress, listening

__all__ = ["line", "working"]

_FRAMES = "|/-\\"
_CELLS = 20
_EVERY_S = 0.1


@contextmanager
def working(what: str, *, shown: bool = True, after_s: float = 0.5) -> Iterator[None]:
    """Show the line while the block runs, starting after `after_s` seconds."""
    stream = getattr(sys.stderr, "unguarded", sys.stderr)
    if not shown or not stream.isatty():
        yield
        return
    done = threading.Event()
    heard: list[Progress] = []

    def draw() -> None:
        began = time.monotonic()
        wait, frame = after_s, 0
        while not done.wait(wait):
            wait, frame = _EVERY_S, frame + 1
            told = line(what, heard[-1] if heard else None, time.monotonic() - began, frame)
            stream.write(f"\r\x1b[K{told}")
            stream.flush()
        if frame:
            stream.write("\r\x1b[K")
            stream.flush()

    def hear(progress: Progress) -> None:
        heard[:] = [progress]

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        with listening(hear):
            yield
    finally:
        done.set()
        thread.join()


def line(what: str, progress: Progress | None, seconds: float, frame: int) -> str:
    """Return the line for a state. `frame` is the number of earlier lines; it animates the mark."""
    mark, clock = _FRAMES[frame % len(_FRAMES)], f"{seconds:.0f} s"
    if progress is None:
        return f"{mark} {what}, {clock}"
    if not progress.total:
        return f"{mark} {what}: {progress.done:,} {progress.unit}, {clock}"
    share = min(1.0, progress.done / progress.total)
    full = int(share * _CELLS)
    bar = "#" * full + "." * (_CELLS - full)
    return f"[{bar}] {share:>4.0%} {what}: {progress.done:,} of {progress.total:,} {progress.unit}, {clock}"
