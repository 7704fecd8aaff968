"""Import a transcript as it grows: from the position where the last hook stopped to the last complete line.

The position is committed with the messages before it, so a killed hook loses nothing and the next one continues. It
advances by compare-and-set, so of two hooks at the same moment only one writes a line. Forgotten messages do not come
back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from loom.errors import VersionConflictError
from loom.everyday import Memory
from loom.importers import claude_code, codex
from loom.importers.codex import RolloutState
from loom.importers.histories import HistoryWriter
from loom.importers.json_reader import lines_of
from loom.importers.messages import ImportProblem, Read, SourceFile
from loom.storage.contract import Entry, Transaction

__all__ = ["Followed", "expect", "follow", "unfinished"]

SCOPE: Final = "hooks"
"""The scope of the entries with the read positions of transcripts."""

_WRITER = "hooks"


@dataclass(frozen=True, slots=True)
class Followed:
    """The counts for a transcript: new messages, and parts that could not be read."""

    kept: int
    skipped: int


def follow(memory: Memory, agent: str, path: Path) -> Followed:
    """Import the lines that a transcript has gained.

    If another hook imports the same lines meanwhile, this batch is undone, and reading continues from the place
    of the other hook.
    """
    writer = HistoryWriter(memory)
    while True:
        try:
            _read_on(writer, memory, agent, path)
        except VersionConflictError:
            continue
        return Followed(writer.records, writer.skipped)


def _read_on(writer: HistoryWriter, memory: Memory, agent: str, path: Path) -> None:
    place = _Place.of(memory, agent, path)  # before the size: other hooks advance the place as the file grows
    with _opened(path) as file:
        status = os.fstat(file.fileno())
        place.keep_within(status.st_size)
        source = SourceFile(
            path.name, path.stem, datetime.fromtimestamp(status.st_mtime, UTC), status.st_size, lambda: file
        )
        writer.within = place.note
        file.seek(place.offset)
        for offset, line in _whole_lines(file, place.offset):
            for one in place.read(line, offset):
                if isinstance(one, ImportProblem):
                    writer.problem(one)
                else:
                    writer.add(one, agent, source)
            place.offset = offset + len(line)
        if place.offset != place.noted:
            writer.flush()


def expect(memory: Memory, agent: str, path: Path) -> None:
    """Record a transcript that does not exist yet, so that it is found if its session is killed before the next
    hook."""
    place = _Place.of(memory, agent, path)
    if not place.version:
        with contextlib.suppress(VersionConflictError), memory.store.transaction() as transaction:
            place.note(transaction)  # a conflict: another hook recorded it


def unfinished(memory: Memory) -> Iterator[tuple[str, Path]]:
    """Yield the agent and path of each known transcript with unread bytes, as after a killed session."""
    for entry in memory.store.entries(scope=SCOPE, owner=memory.node_id, limit=100):
        told = entry.content if isinstance(entry.content, dict) else {}
        path = Path(str(told.get("path", "")))
        try:
            if path.is_file() and path.stat().st_size > int(told.get("offset", 0)):
                yield str(told.get("agent", "")), path
        except (OSError, ValueError, TypeError):
            continue


class _Place:
    """The read position of a transcript, and the state that its lines carry forward. `version` is 0 if it is not
    stored."""

    def __init__(self, key: str, path: str, agent: str, node: str, entry: Entry | None) -> None:
        told: Any = entry.content if entry is not None and isinstance(entry.content, dict) else {}
        offset, state = told.get("offset", 0), told.get("state")
        self.offset: int = offset if isinstance(offset, int) and offset >= 0 else 0
        self.noted = self.offset
        self.version = 0 if entry is None else entry.version
        self._key, self._path, self._agent, self._node = key, path, agent, node
        self._state = RolloutState(**state) if isinstance(state, dict) else RolloutState()

    @classmethod
    def of(cls, memory: Memory, agent: str, path: Path) -> _Place:
        key = f"transcript:{hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()}"
        entry = memory.store.entry(key, scope=SCOPE, owner=memory.node_id)
        return cls(key, str(path), agent, memory.node_id, entry)

    def keep_within(self, size: int) -> None:
        """Begin at the start if the file is shorter than its stored position: another file took its place."""
        if self.offset > size:
            self.offset = self.noted = 0
            self._state = RolloutState()

    def read(self, line: bytes, offset: int) -> Read:
        position = f"byte {offset:,}"
        if not line.strip():
            return iter(())
        if self._agent == codex.NAME:
            return codex.read_line(self._path, position, line, self._state)
        return claude_code.read_line(self._path, position, line)

    def note(self, transaction: Transaction) -> None:
        """Store the offset of the current line. Messages that it gave already are recognised by their ids.

        Raises `VersionConflictError` if another hook stored one since this position was read.
        """
        content = {"path": self._path, "agent": self._agent, "offset": self.offset, "state": asdict(self._state)}
        self.version = transaction.put_entry(
            self._key,
            content,
            writer=_WRITER,
            scope=SCOPE,
            owner=self._node,
            expected_version=self.version,
            history=False,
        ).version
        self.noted = self.offset


def _whole_lines(file: BinaryIO, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield each complete line with its offset. The last line may still be written."""
    for line in lines_of(file):
        if line.text is None:
            offset = file.tell()
            continue
        if not line.text.endswith(b"\n"):
            return
        yield offset, line.text
        offset += len(line.text)


def _opened(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("the transcript is not a regular file")
    return os.fdopen(descriptor, "rb")
