"""The progress of a long operation: the code that does the work reports it, and a listener shows it.

Reports reach the listener of the calling context. Without a listener, a report costs one look-up and no total is
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

__all__ = ["Progress", "followed", "has_listener", "listening", "report"]

Item = TypeVar("Item")

# A report for every item would cost more than most items do.
_EVERY = 256


class Progress(NamedTuple):
    """The finished part of a total, which is None if unknown. `unit` names the counted things."""

    done: int
    total: int | None
    unit: str


Listener = Callable[[Progress], None]

_listener: ContextVar[Listener | None] = ContextVar("loom.progress", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Pass the reports of the block to a listener."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def has_listener() -> bool:
    """Whether reports reach a listener: a total that takes time to count is counted only then."""
    return _listener.get() is not None


def report(done: int, total: int | None, unit: str) -> None:
    """Report the progress of the work to the listener of this context, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(Progress(done, total, unit))


def followed(items: Iterable[Item], total: Callable[[], int], unit: str) -> Iterator[Item]:
    """The items, with a report before the first, after every 256 and after the last."""
    if not has_listener():
        yield from items
        return
    done, most = 0, total()
    report(0, most, unit)
    for item in items:
        yield item
        done += 1
        if done % _EVERY == 0:
            report(done, most, unit)
    report(done, most, unit)
