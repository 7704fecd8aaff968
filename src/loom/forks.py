"""Renewing state in a forked child: a lock may be held by a thread of the parent that the child does not have."""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod

__all__ = ["renew_after_fork"]

_renewals: set[WeakMethod[Callable[[], None]]] = set()


def renew_after_fork(renew: Callable[[], None]) -> None:
    """Call a bound method in every process that is forked from this one, as long as its object lives."""
    _renewals.add(WeakMethod(renew, _renewals.discard))


def _renew_all() -> None:
    for reference in list(_renewals):
        if (renew := reference()) is not None:
            renew()


os.register_at_fork(after_in_child=_renew_all)
