"""Renewing state in a forked child: a lock may be held by a thread of the parent that the child does not have."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Renewable", "renew_after_fork"]


class Renewable(Protocol):
    """An object with state that a forked child must renew."""

    def after_fork(self) -> None:
        """Called in the child, before anything else."""


_renewable: WeakSet[Renewable] = WeakSet()


def renew_after_fork(owner: Renewable) -> None:
    """Call `owner.after_fork()` in every process that is forked from this one, as long as the owner lives."""
    _renewable.add(owner)


def _renew_all() -> None:
    for owner in list(_renewable):
        owner.after_fork()


os.register_at_fork(after_in_child=_renew_all)
