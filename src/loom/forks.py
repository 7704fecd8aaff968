"""Resets state in a forked child, where a lock may be held by a thread that exists only in the parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, Self, TypeVar, overload
from weakref import WeakSet

__all__ = ["ForkedLock", "Renewable", "made_once", "renew_after_fork"]

_Made = TypeVar("_Made")


class made_once(Generic[_Made]):  # noqa: N801
    """A property that is computed at first use and cached.

    Unlike `functools.cached_property` of Python 3.11, it takes no lock, which a fork could leave held. Two threads
    may compute it at once; both get the first result.
    """

    def __init__(self, make: Callable[[Any], _Made]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...

    @overload
    def __get__(self, owner: object, kind: type) -> _Made: ...

    def __get__(self, owner: object | None, kind: type) -> Self | _Made:
        if owner is None:
            return self
        kept: _Made = owner.__dict__.setdefault(self._name, self._make(owner))
        return kept


class Renewable(Protocol):
    """An object with state that must be reset in a forked child."""

    def after_fork(self) -> None:
        """Called in the child before any other code."""


_renewable: WeakSet[Renewable] = WeakSet()


def renew_after_fork(owner: Renewable) -> None:
    """Call `owner.after_fork()` in every process that is forked from this one while the owner exists."""
    _renewable.add(owner)


def _renew_all() -> None:
    for owner in list(_renewable):
        owner.after_fork()


os.register_at_fork(after_in_child=_renew_all)


class ForkedLock:
    """A lock that is free in a forked child: the thread that held it does not exist there to release it."""

    def __init__(self) -> None:
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()
