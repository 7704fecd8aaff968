"""Session files: one for each finished session, in the form of requirement 113, found without reading the others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from loom.drafts import Attributes
from loom.errors import InvalidInput, StoreUnavailable
from loom.memory.manager import MemoryManager
from loom.notebook.note_files import write_text
from loom.storage.contract import Dimensions, ForgetReceipt, Record
from loom.types import MemoryTier, Trust

__all__ = ["SESSION", "SessionNote", "Sessions"]

SESSION = "session"
"""The kind of record that a session file is."""

_EVENT = Dimensions("world", "event", "instance")
_LONGEST_NAME = 60
_MOST_IN_A_SECOND = 1000


@dataclass(frozen=True, slots=True)
class SessionNote:
    """What a finished session is remembered by. `tools` counts the calls of each tool."""

    request: str
    response: str
    task: str = "task"
    duration_s: float = 0.0
    rounds: int = 0
    tools: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()

    def to_markdown(self, name: str, agent: str) -> str:
        """The text of the file."""
        tools = ", ".join(f"{tool}({count})" for tool, count in self.tools.items()) or "-"
        return (
            f"# Session: {name}\n\n## Request\n用户: {self.request.strip()}\n\n## Response\nAgent: "
            f"{self.response.strip()}\n\n## Metadata\n- Agent: {agent}\n- Duration: {self.duration_s:.1f}s\n"
            f"- Rounds: {self.rounds}\n- Tools: {tools}\n"
        )


class Sessions:
    """The session files of a folder, and the memories of them. All agents of the folder write here."""

    def __init__(self, root: Path, memory: MemoryManager, agent: str) -> None:
        self._folder = root / ".sessions"
        self._memory = memory
        self._agent = agent

    def write(self, note: SessionNote, at: datetime | None = None) -> Path:
        """Keep a finished session: its file, under a name that no other process has, and its memory.

        `sources` of the note are the ids of the turns that it tells of: forgetting one of them takes the session too.
        """
        if not note.request.strip() and not note.response.strip():
            raise InvalidInput("a session needs a request or a response")
        moment = (at or self._memory.store.clock()).astimezone()
        stamp = moment.strftime("%Y%m%d_%H%M%S")
        path = self._reserved(stamp, note.task)
        text = note.to_markdown(stamp, self._agent)
        attributes = Attributes(
            name=self._agent,
            importance=0.6,
            metadata={"path": f".sessions/{path.name}", "agent": self._agent},
            trust=Trust.AGENT,
            kind=SESSION,
            dimensions=_EVENT,
        )
        draft = self._memory.drafter.text(text, _id_of(path.name), attributes)
        self._memory.tiers.write([draft._replace(sources=note.sources, drawn=bool(note.sources))], MemoryTier.L4)
        write_text(path, text)
        return path

    def own(self, limit: int = 3) -> list[Record]:
        """The newest sessions of this agent, newest first."""
        page = self._memory.list(kind=SESSION, name=self._agent, limit=limit)
        return list(page.records)

    def all(self, limit: int = 50) -> list[Record]:
        """The newest sessions of all agents, newest first."""
        return list(self._memory.list(kind=SESSION, limit=limit).records)

    def find(self, name: str) -> Record | None:
        """A session by the name of its file."""
        return self._memory.store.get(_id_of(Path(name).name))

    def forget(self, name: str) -> ForgetReceipt:
        """Forget a session for good, with its file."""
        receipt = self._memory.forget(_id_of(Path(name).name))
        (self._folder / Path(name).name).unlink(missing_ok=True)
        return receipt

    def sweep(self, ids: tuple[str, ...] | None = None) -> list[str]:
        """Remove the files of sessions that were forgotten: those of these ids, or any; their names."""
        if ids is not None:
            names = [one.removeprefix(_PREFIX) for one in ids if one.startswith(_PREFIX)]
        else:
            names = [entry.name for entry in os.scandir(self._folder)] if self._folder.is_dir() else []
        gone = []
        for name in names:
            path = self._folder / name
            if name.endswith(".md") and path.exists() and self._is_ours(path) and self.find(name) is None:
                path.unlink()
                gone.append(name)
        return gone

    def _is_ours(self, path: Path) -> bool:
        """Whether a file was written here: others may keep files of their own in the folder."""
        return _OUR_NAME.fullmatch(path.name) is not None and path.stat().st_size > 0

    def _reserved(self, stamp: str, task: str) -> Path:
        """A new, empty file under a name of its own; the next free one within a second."""
        words = re.sub(r"[^\w.-]+", "-", task.strip())[:_LONGEST_NAME].strip("-.") or "task"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for number in range(1, _MOST_IN_A_SECOND):
                path = self._folder / f"{stamp}_{words}{'' if number == 1 else f'_{number}'}.md"
                try:
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
                except FileExistsError:
                    continue
                return path
        except OSError as error:
            raise StoreUnavailable(f"{self._folder} cannot be written: {error.strerror or error}") from error
        raise StoreUnavailable(f"{self._folder} has {_MOST_IN_A_SECOND} sessions of one second; wait a second")


_PREFIX = "session:"
_OUR_NAME = re.compile(r"\d{8}_\d{6}_.+\.md")


def _id_of(name: str) -> str:
    return f"{_PREFIX}{name}"
