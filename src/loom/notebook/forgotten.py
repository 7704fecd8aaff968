"""The progress of a notebook in following its memory. Finds the records forgotten since, without reading others."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from urllib.parse import quote

from loom.errors import InvalidInput
from loom.memory.manager import MemoryManager
from loom.notebook.note_files import exists, read_text, write_text

__all__ = ["Following"]

_FOLLOWED = ".followed"


class Following:
    """The position of an agent's notebook in the log of its memory. The caller holds the lock of the notes."""

    def __init__(self, notes: Path, memory: MemoryManager, agent: str) -> None:
        self._path = notes / _FOLLOWED
        self._store = memory.store
        self._reader = f"{self._store.store_id}/{quote(self._store.namespace, safe='')}/{agent}"

    def begin(self) -> None:
        """Start following the memory at its present end, unless the notebook already follows it."""
        if self._reader not in self._places():
            self.reached(self._store.progress("notebook").last)

    def forgotten(self) -> tuple[set[int], int]:
        """Return the sequence numbers of the records forgotten since, and the position up to which this holds."""
        last = self._store.progress("notebook").last
        place = min(self._places().get(self._reader, last), last)  # a restored backup may end before the position
        numbers: set[int] = set()
        while changes := self._store.changes(place):
            numbers.update(one.record for one in changes if one.kind == "forget")
            place = changes[-1].seq
        return numbers, place

    def reached(self, place: int) -> None:
        """Store the position up to which the memory was followed."""
        places = self._places()
        if places.get(self._reader) != place:
            write_text(self._path, json.dumps({**places, self._reader: place}, sort_keys=True))

    def _places(self) -> dict[str, int]:
        """Return the positions of all agents; none if the file is unreadable."""
        if not exists(self._path):
            return {}
        told = None
        with contextlib.suppress(ValueError, InvalidInput):
            told = json.loads(read_text(self._path))
        return (
            {name: place for name, place in told.items() if isinstance(place, int)} if isinstance(told, dict) else {}
        )
