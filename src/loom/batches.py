"""Dividing a stream into batches of bounded size, so that work on many items takes bounded memory and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["batches"]

_Item = TypeVar("_Item")


def batches(
    items: Iterable[_Item],
    size_of: Callable[[_Item], int],
    *,
    most_items: float = math.inf,
    full_at: float = math.inf,
) -> Iterator[list[_Item]]:
    """Yield the items in lists, each of which ends with `most_items`, or with the item that brings its size to
    `full_at`."""
    batch: list[_Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if len(batch) >= most_items or size >= full_at:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
