"""Notebook: a folder of Markdown that is a memory, for people in an editor and for an agent at work.

    notebook = Notebook("project", agent="writer", memory=memory)
    notebook.plan(["read the sources", "write chapter one"])
    notebook.learn("Ana wants short chapters.")
    print(notebook.prompt("You write."))

Full mode keeps `.notes/<agent>/task_process.md`, `.notes/<agent>/agent_knowledge.md`, `world_state.md` for all
agents, and a file for every finished session. Minimal mode keeps `.compact_memory.md` and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loom.context.dialogue import CompactedMessages, compact_messages
from loom.context.message_shortening import shorter_text
from loom.context.prompts import build_minimal_prompt
from loom.context.rendering import neutralised
from loom.errors import InvalidInput
from loom.knowledge.summarizer import Summarizer
from loom.memory.manager import MemoryManager
from loom.notebook.machine import Machine
from loom.notebook.note_files import locked, read_text, write_text
from loom.notebook.pages import Page, Pages, Synced
from loom.notebook.process import TaskProcess, new_process
from loom.notebook.sessions import SessionNote, Sessions
from loom.protocol import Closing
from loom.storage.contract import Dimensions, ForgetReceipt, Record

__all__ = ["Notebook"]

_AGENT = re.compile(r"[^\W_][\w.-]{0,63}")
_COMPACT = ".compact_memory.md"
_NEW_KNOWLEDGE = "# Agent Knowledge\n\n"
# What the parts of a prompt may have: knowledge, the state of the task, the sessions, what the world is like.
_KNOWLEDGE_TOKENS = 2000
_TASK_TOKENS = 1250
_SESSION_TOKENS = 400


class Notebook(Closing):
    """A folder as an agent's notebook. `memory` is the memory behind it, or else one in `.notes/memory.loom`.

    The store is the truth and the files are its readable face: they are made equal at every operation, and by
    `sync()`. Edits of files count as the user's words where the user has trusted the folder (`loom.trust_folder`),
    and as unverified elsewhere.
    """

    def __init__(
        self,
        work_dir: str | Path,
        *,
        agent: str = "agent",
        minimal_mode: bool = False,
        memory: MemoryManager | None = None,
    ) -> None:
        if not isinstance(agent, str) or not _AGENT.fullmatch(agent):
            raise InvalidInput(f"the name of an agent is letters, digits, '_', '-' and '.', not {agent!r}")
        self.work_dir = Path(work_dir)
        self.agent = agent
        self.minimal_mode = minimal_mode
        self._owns_memory = memory is None and not minimal_mode
        self.work_dir.mkdir(parents=True, exist_ok=True)
        if memory is None and not minimal_mode:
            self._notes.mkdir(parents=True, exist_ok=True)
            memory = MemoryManager(agent, store=self.work_dir / ".notes" / "memory.loom")
        self._memory = memory

    # -- the parts -------------------------------------------------------------------------------------

    @property
    def memory(self) -> MemoryManager:
        """The memory behind the files."""
        if self._memory is None:
            raise InvalidInput("a notebook in minimal mode has its compact memory alone")
        return self._memory

    @property
    def pages(self) -> Pages:
        """The pages as such: history, differences, rolling back, forgetting."""
        return Pages(self.work_dir, self._full("pages"))

    @property
    def sessions(self) -> Sessions:
        """The files of finished sessions."""
        return Sessions(self.work_dir, self._full("sessions"), self.agent)

    @property
    def knowledge_page(self) -> Page:
        return Page(f".notes/{self.agent}/agent_knowledge.md", Dimensions("subject", "state", "type"), 0.8)

    @property
    def world_page(self) -> Page:
        return Page("world_state.md", Dimensions("world", "state", "instance"))

    @property
    def process_path(self) -> Path:
        """Where the task process is."""
        return self._notes / "task_process.md"

    @property
    def _notes(self) -> Path:
        return self.work_dir / ".notes" / self.agent

    def _full(self, what: str) -> MemoryManager:
        if self._memory is None:
            raise InvalidInput(f"minimal mode has no {what}; open the notebook with minimal_mode=False")
        return self._memory

    # -- knowledge and world ---------------------------------------------------------------------------

    @property
    def knowledge(self) -> str:
        """What the agent knows, as its file says."""
        return self.pages.text(self.knowledge_page)

    @knowledge.setter
    def knowledge(self, text: str) -> None:
        self.pages.write(self.knowledge_page, text)

    def learn(self, text: str) -> Record:
        """Add a line to what the agent knows. Known already, it changes nothing."""
        line = f"- {' '.join(text.split())}"
        if line == "- ":
            raise InvalidInput("there is nothing to learn from an empty text")
        with locked(self.work_dir / ".notes"):
            known = self.knowledge or "# Agent Knowledge\n"
            if line not in known.splitlines():
                known = (
                    f"{known.rstrip()}\n{line}\n" if known.strip() != "# Agent Knowledge" else f"{known}\n{line}\n"
                )
            return self.pages.write(self.knowledge_page, known)

    @property
    def world(self) -> str:
        """What the world is like, in whatever form its file has; `.notes/<agent>/world_state.md` where there is none.

        The world has no schema. A `world_schema.md`, if there is one, is advice in the prompt.
        """
        text = self.pages.text(self.world_page)
        older = self._notes / "world_state.md"
        return text or (read_text(older) if older.exists() else "")

    @world.setter
    def world(self, text: str) -> None:
        self.pages.write(self.world_page, text)

    # -- the task --------------------------------------------------------------------------------------

    def plan(
        self,
        steps: Sequence[str],
        *,
        rules: Sequence[str] = (),
        variables: Mapping[str, Any] | None = None,
        chinese: bool = False,
    ) -> TaskProcess:
        """Begin a task: write its process. One that is under way is kept beside it, under another name."""
        self._full("task process")
        process = new_process(steps, rules=rules, variables=variables, chinese=chinese)
        with locked(self._notes):
            if self.process_path.exists() and read_text(self.process_path).strip():
                number = 1
                while (kept := self.process_path.with_name(f"task_process.{number}.md")).exists():
                    number += 1
                write_text(kept, read_text(self.process_path))
            write_text(self.process_path, process.text)
        return process

    def machine(
        self,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        do: Callable[[str, Mapping[str, Any]], Any] | None = None,
    ) -> Machine:
        """What runs the task process of this notebook."""
        self._full("task process")
        return Machine(self.process_path, functions=functions, do=do)

    # -- sessions and compaction -----------------------------------------------------------------------

    def finish(self, note: SessionNote) -> Path | None:
        """Keep a finished session. In minimal mode there are no session files, and nothing is written."""
        return None if self.minimal_mode else self.sessions.write(note)

    def compact(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        summarizer: Summarizer | None = None,
        keep_tokens: int | None = None,
        summary_tokens: int | None = None,
    ) -> CompactedMessages:
        """Sum up a dialogue. In minimal mode the result is the whole memory, and is written to its file at once; in
        full mode it is for the moment."""
        done = compact_messages(
            messages, summarizer=summarizer, keep_tokens=keep_tokens, summary_tokens=summary_tokens
        )
        if self.minimal_mode and done.compact_memory:
            self.write_compact_memory(done.compact_memory)
        return done

    @property
    def compact_memory(self) -> str:
        """What is left of earlier dialogues in minimal mode; empty where there is nothing."""
        path = self.work_dir / _COMPACT
        return read_text(path) if path.exists() else ""

    def write_compact_memory(self, text: str) -> None:
        """Put another text in the compact memory's place."""
        if not self.minimal_mode:
            raise InvalidInput("a compact memory is for minimal mode; full mode has sessions and knowledge")
        write_text(self.work_dir / _COMPACT, text)

    # -- the prompt ------------------------------------------------------------------------------------

    def prompt(self, base_template: str = "") -> str:
        """The system text with this notebook in it: what the agent knows, and the state of its task or what is left.

        Each part has its budget of tokens. The status of a task and its current item are always there.
        """
        if self.minimal_mode:
            return build_minimal_prompt(base_template, compact_memory=self.compact_memory)
        counter = self.memory.counter
        knowledge = self._within(self.knowledge, _KNOWLEDGE_TOKENS)
        schema = self.work_dir / "world_schema.md"
        world = self._within(self.world, _KNOWLEDGE_TOKENS)
        advice = self._within(read_text(schema), _SESSION_TOKENS) if schema.exists() else ""
        told = "".join(
            f"\n## {heading}\n{text}"
            for heading, text in (("知识", knowledge), ("世界约定", advice), ("世界状态", world))
            if text.strip()
        )
        own = [self._within(one.content, _SESSION_TOKENS) for one in reversed(self.sessions.own(3))]
        state = read_text(self.process_path) if self.process_path.exists() else ""
        return build_minimal_prompt(
            base_template,
            told,
            minimal_mode=False,
            task_state=state,
            own_sessions=own,
            task_state_tokens=_TASK_TOKENS,
            token_counter=counter,
        )

    def _within(self, text: str, tokens: int) -> str:
        return neutralised(shorter_text(text, tokens, self.memory.counter.safe_count), trusted=False)

    # -- both sides ------------------------------------------------------------------------------------

    def sync(self) -> Synced:
        """Make files and memory equal now; what was read, written, in conflict or missing."""
        if self.minimal_mode:
            return Synced()
        return self.pages.sync([self.knowledge_page, self.world_page])

    def forget(self, id: str | Sequence[str]) -> ForgetReceipt:
        """Forget memories for good, as `memory.forget` does, and every file of this notebook that tells of them."""
        memory = self._full("memories")
        with locked(self.work_dir / ".notes"):
            self.sync()
            receipt = memory.forget(id)
            self.sync()
            self.sessions.sweep()
        return receipt

    def copies(self) -> list[str]:
        """Places out of reach of `forget` that may hold earlier texts of this notebook: a version history, if any."""
        place = self.work_dir.resolve()
        return [f"the history of {one / '.git'}" for one in (place, *place.parents) if (one / ".git").exists()][:1]

    # -- the three dimensions --------------------------------------------------------------------------

    def matrix(self) -> dict[tuple[str, str], dict[str, int]]:
        """How many memories are in each cell of the third document's matrix, as states and as events."""
        return self._full("matrix").matrix()

    def close(self) -> None:
        """Close the memory, if this notebook opened it. Safe to call twice."""
        if self._owns_memory and self._memory is not None:
            self._memory.close()

    def __repr__(self) -> str:
        return f"<Notebook {str(self.work_dir)!r} of {self.agent!r}{', minimal' if self.minimal_mode else ''}>"
