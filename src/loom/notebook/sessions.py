"""Session files: a Markdown file and a memory for each finished session. Only `sync` reads all of the files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from loom.drafts import Attributes
from loom.errors import InvalidInput, LoomError, NotFound, StoreUnavailable
from loom.memory.manager import MemoryManager
from loom.notebook.note_files import locked, problem_of, read_text, remove_leftovers, write_text
from loom.notebook.pages import Synced
from loom.storage.contract import Dimensions, Filter, ForgetReceipt, Record
from loom.types import MemoryTier, Trust

__all__ = ["SESSION", "SessionNote", "Sessions"]

SESSION = "session"
"""The kind of record that a session file is."""

_EVENT = Dimensions("world", "event", "instance")
_LONGEST_NAME = 60
# The number of words of a request that make the name of its session.
_NAMING_WORDS = 6
_MOST_IN_A_SECOND = 1000
_PAGE = 500
_PREFIX = "session:"
_OUR_NAME = re.compile(r"\d{8}_\d{6}_.+\.md")
# This file has a line for each version that a memory wrote: the memory, the sequence number of the version, the name.
_WRITTEN = ".written"
_AGENT = re.compile(r"^- Agent: (\S.{0,63})$", re.MULTILINE)
_OUTCOME = re.compile(r"^- Outcome: \w+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SessionNote:
    """A finished session. `task` is used in the name of its file; by default, the first words of the request are.

    `tools` counts the calls of each tool, and `sources` are the ids of its turns. `succeeded` is None if the session
    was not judged. `knowledge` and `knowledge_version` name the knowledge in use; a notebook fills them in.
    """

    request: str
    response: str
    task: str = ""
    duration_s: float = 0.0
    rounds: int = 0
    tools: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    succeeded: bool | None = None
    knowledge: str = ""
    knowledge_version: int = 0

    def to_markdown(self, name: str, agent: str) -> str:
        """Return the text of the file."""
        tools = ", ".join(f"{tool}({count})" for tool, count in self.tools.items()) or "-"
        knowledge = f"- Knowledge: {self.knowledge}, version {self.knowledge_version}\n" if self.knowledge else ""
        outcome = "" if self.succeeded is None else f"{_outcome_line(self.succeeded)}\n"
        return (
            f"# Session: {name}\n\n## Request\n用户: {self.request.strip()}\n\n## Response\nAgent: "
            f"{self.response.strip()}\n\n## Metadata\n- Agent: {agent}\n- Duration: {self.duration_s:.1f}s\n"
            f"- Rounds: {self.rounds}\n- Tools: {tools}\n{knowledge}{outcome}"
        )


class Sessions:
    """The session files of a folder and their memories. All agents of the folder share it."""

    def __init__(self, root: Path, memory: MemoryManager, agent: str) -> None:
        self.folder = root / ".sessions"
        self._memory = memory
        self._agent = agent

    def write(self, note: SessionNote, at: datetime | None = None) -> Path:
        """Store a finished session: its file, under a name that no other process uses, and its memory.

        Forgetting one of the `sources` of the note forgets the session too.
        """
        if not note.request.strip() and not note.response.strip():
            raise InvalidInput("a session needs a request or a response")
        self._check_folder()
        stamp = (at or self._memory.store.clock()).astimezone().strftime("%Y%m%d_%H%M%S")
        text = note.to_markdown(stamp, self._agent)
        metadata: dict[str, object] = {"rounds": note.rounds}
        if note.knowledge:
            metadata |= {"knowledge": note.knowledge, "knowledge_version": note.knowledge_version}
        if note.succeeded is not None:
            metadata["succeeded"] = note.succeeded
        with locked(self.folder):
            path = self._free(stamp, note.task or " ".join(note.request.split()[:_NAMING_WORDS]))
            # Store the memory before the file, because a listed file without a memory counts as forgotten.
            self._store(path.name, text, Trust.AGENT, metadata, note.sources)
            write_text(path, text)
        return path

    def own(self, limit: int = 3) -> list[Record]:
        """Return the newest sessions of this agent, newest first."""
        return list(self._memory.list(kind=SESSION, name=self._agent, limit=limit).records)

    def all(self, limit: int = 50) -> list[Record]:
        """Return the newest sessions of all agents, newest first."""
        return list(self._memory.list(kind=SESSION, limit=limit).records)

    def each(self, **where: object) -> Iterator[Record]:
        """Yield every session, newest first; `where` selects by values of their metadata."""
        for page in self._memory.store.pages(Filter(kind=SESSION, where=where or None), limit=_PAGE):
            yield from page.records

    def find(self, name: str) -> Record | None:
        """Return a session by the name of its file, or None."""
        return self._memory.store.get(_id_of(Path(name).name))

    def judge(self, name: str, succeeded: bool) -> Record:
        """Record whether the task of a session succeeded: a line in the file and the memory replaces an earlier
        one."""
        with locked(self.folder):
            found = self.find(name)
            if found is None:
                raise NotFound(f"there is no session {name!r}; names are those of the files in {self.folder}")
            line = _outcome_line(succeeded)
            text = found.content
            text = _OUTCOME.sub(line, text) if _OUTCOME.search(text) else f"{text.rstrip()}\n{line}\n"
            self._memory.update(found.id, text, metadata={**(found.metadata or {}), "succeeded": succeeded})
            self._note_written(Path(name).name)
            write_text(self.folder / Path(name).name, text)
        judged = self.find(name)
        assert judged is not None
        return judged

    def forget(self, name: str) -> ForgetReceipt:
        """Forget a session for good, with its file."""
        receipt = self._memory.forget(_id_of(Path(name).name))
        (self.folder / Path(name).name).unlink(missing_ok=True)
        return receipt

    def sync(self, trust: Trust, only: Collection[str] | None = None) -> Synced:
        """Synchronise all files with their memories, or only the files with these names.

        Edits and files of other origin are stored with this trust. Deleted files are reported, and files whose memory
        was forgotten are removed.
        """
        read, problems = [], []
        self._check_folder()
        if not self.folder.is_dir():
            return Synced()
        with locked(self.folder):
            remove_leftovers(self.folder)
            # Files with other names are not session files.
            there = (entry.name for entry in os.scandir(self.folder)) if only is None else only
            names = {name for name in there if _OUR_NAME.fullmatch(name)}
            forgotten = self._sweep(names)
            for name in sorted(names - set(forgotten)):
                if not (self.folder / name).exists():
                    continue
                try:
                    if self._read_edit(name, trust):
                        read.append(f".sessions/{name}")
                except LoomError as error:
                    problems.append(problem_of(f".sessions/{name}", self.folder / name, error))
            expected = (one.id.removeprefix(_PREFIX) for one in self.each()) if only is None else names
            missing = [
                f".sessions/{name}" for name in expected if not (self.folder / name).exists() and self.find(name)
            ]
        return Synced(
            read=tuple(read),
            missing=tuple(missing),
            forgotten=tuple(f".sessions/{name}" for name in forgotten),
            problems=tuple(problems),
        )

    def restore(self, name: str) -> Path:
        """Write the deleted file of a session again."""
        found = self.find(name)
        if found is None:
            raise NotFound(f"there is no session {name!r}")
        path = self.folder / Path(name).name
        with locked(self.folder):
            write_text(path, found.content)
        return path

    def follow(self, forgotten: Collection[int]) -> list[str]:
        """Remove the files of sessions that were forgotten, given the sequence numbers of forgotten records.

        Returns the paths of the removed files. Reads no other file.
        """
        self._check_folder()
        if not self.folder.is_dir():
            return []
        with locked(self.folder):
            remove_leftovers(self.folder)
            names = sorted(
                name for name, numbers in self._written_here().items() if not numbers.isdisjoint(forgotten)
            )
            return [f".sessions/{name}" for name in self._sweep(names)]

    # -- files -----------------------------------------------------------------------------------------

    def _check_folder(self) -> None:
        if self.folder.is_symlink():
            raise InvalidInput(f"{self.folder} is a link; a notebook writes in its own folders only")

    def _sweep(self, names: Iterable[str]) -> list[str]:
        """Remove those of these files that this memory wrote and whose memory no longer exists."""
        here = self._written_here()
        noted = [name for name in names if name in here]
        gone = []
        for at in range(0, len(noted), _PAGE):
            some = noted[at : at + _PAGE]
            wanted = Filter(ids=[_id_of(name) for name in some], derived=None)
            kept = {record.id for record in self._memory.store.scan(wanted, limit=_PAGE).records}
            gone += [name for name in some if _id_of(name) not in kept]
        removed = [name for name in gone if (self.folder / name).is_file()]
        for name in removed:
            (self.folder / name).unlink(missing_ok=True)
        if gone:  # the names of the files have words of the tasks
            left = set(gone)
            lines = [line for line in self._lines() if self._own(line)[1] not in left]
            write_text(self.folder / _WRITTEN, "".join(f"{line}\n" for line in lines))
        return removed

    def _note_written(self, name: str) -> None:
        """Record that this memory wrote a file, so that a file of other origin is never taken for a forgotten one."""
        found = self.find(name)
        assert found is not None
        handle = os.open(
            self.folder / _WRITTEN, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with open(handle, "a", encoding="utf-8") as file:
            file.write(f"{self._owner} {found.seq} {name}\n")

    def _written_here(self) -> dict[str, set[int]]:
        """Return the files that this memory wrote, with the sequence numbers of their versions.

        A number that the store has not assigned yet belongs to a record which a restored backup does not have.
        """
        last = self._memory.store.progress("notebook").last
        written: dict[str, set[int]] = {}
        for line in self._lines():
            number, name = self._own(line)
            if name and number <= last:
                written.setdefault(name, set()).add(number)
        return written

    def _lines(self) -> list[str]:
        path = self.folder / _WRITTEN
        return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []

    def _own(self, line: str) -> tuple[int, str]:
        """Return the sequence number and the name in a line of this memory; zero and no name for another line."""
        owner, _, rest = line.partition(" ")
        number, _, name = rest.partition(" ")
        return (int(number), name) if owner == self._owner and number.isdecimal() else (0, "")

    @property
    def _owner(self) -> str:
        """The name of the memory in one word. A store has a memory in each namespace."""
        return f"{self._memory.store.store_id}/{quote(self._memory.store.namespace, safe='')}"

    def _read_edit(self, name: str, trust: Trust) -> bool:
        text, found = read_text(self.folder / name), self.find(name)
        if not text.strip() or (found is not None and found.content == text):
            return False
        agent = _AGENT.search(text)
        metadata = {} if found is None else dict(found.metadata or {})
        self._store(name, text, trust, metadata, agent=agent[1] if agent else self._agent, revises=found is not None)
        return True

    def _store(
        self,
        name: str,
        text: str,
        trust: Trust,
        metadata: Mapping[str, object],
        sources: tuple[str, ...] = (),
        *,
        agent: str = "",
        revises: bool = False,
    ) -> None:
        whose = agent or self._agent
        attributes = Attributes(
            name=whose,
            importance=0.6,
            metadata={**metadata, "path": f".sessions/{name}", "agent": whose},
            trust=trust,
            kind=SESSION,
            dimensions=_EVENT,
        )
        draft = self._memory.drafter.text(text, _id_of(name), attributes, revises=revises)
        self._memory.tiers.write([draft._replace(sources=sources, drawn=bool(sources))], MemoryTier.L4)
        self._note_written(name)

    def _free(self, stamp: str, task: str) -> Path:
        """Return a path that no session has. Further sessions of the same second get a number."""
        words = re.sub(r"[^\w.-]+", "-", task.strip())[:_LONGEST_NAME].strip("-.") or "task"
        for number in range(1, _MOST_IN_A_SECOND):
            path = self.folder / f"{stamp}_{words}{'' if number == 1 else f'_{number}'}.md"
            if not os.path.lexists(path) and self.find(path.name) is None:
                return path
        raise StoreUnavailable(f"{self.folder} has {_MOST_IN_A_SECOND} sessions of this second; wait a second")


def _id_of(name: str) -> str:
    return f"{_PREFIX}{name}"


def _outcome_line(succeeded: bool) -> str:
    return f"- Outcome: {'succeeded' if succeeded else 'failed'}"
