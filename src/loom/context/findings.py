"""Findings that the sources of one request share. A source adds them, and sources that are asked later read them."""

from __future__ import annotations

from collections.abc import Mapping

from loom.context.rendering import question_of
from loom.memory.core import LoomMemory
from loom.protocol import Task

__all__ = ["Findings"]


class Findings:
    """One request to the sources: its task, the question in words, and the findings of sources for each other.

    It exists as long as the request. A source lists in `after` the sources whose findings it reads. It also works
    without them.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.question = question_of(task)
        self._passed_over: list[tuple[LoomMemory, Mapping[int, float]]] = []

    def add_passed_over(self, memory: LoomMemory, found: Mapping[int, float]) -> None:
        """Add the records that a recall of the question found but skipped, because they are derived or have newer
        versions: sequence numbers with scores, best first."""
        self._passed_over.append((memory, found))

    def passed_over(self, memory: LoomMemory) -> Mapping[int, float] | None:
        """The records that the last recall from the store of this memory skipped; None without a recall."""
        return next((found for one, found in reversed(self._passed_over) if one.store is memory.store), None)
