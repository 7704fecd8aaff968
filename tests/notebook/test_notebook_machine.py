"""Any interleaving of edits, agent writes, restarts and two processes ends equal, or a conflict is shown."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from loom.memory import MemoryManager
from loom.notebook import Notebook
from loom.notebook.edits import has_conflict

ROOT = Path(__file__).resolve().parents[2]
WORDS = st.sampled_from(["ash", "birch", "cedar", "elm", "fir", "松", "柏"])


class NotebookMachine(RuleBasedStateMachine):
    """Lines are numbered, so that each that was ever written can be looked for in the versions.

    There is a notebook in this process, and one in another process on the same folder and store.
    """

    other: ClassVar[subprocess.Popen[str]]

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.number = 0
        self.said: set[str] = set()
        self.open()

    def open(self) -> None:
        self.memory = MemoryManager("writer", store=self.folder / "m.loom", embedder="none", derive=False)
        self.book = Notebook(self.folder, agent="writer", memory=self.memory)
        self.ask("open", str(self.folder / "m.loom"))

    def ask(self, *said: str) -> Any:
        """Let the other process carry out a command. Returns its answer."""
        assert self.other.stdin is not None
        assert self.other.stdout is not None
        self.other.stdin.write(f"{json.dumps(said)}\n")
        self.other.stdin.flush()
        answered = json.loads(self.other.stdout.readline())
        assert answered["did"] == said[0]
        return answered["answer"]

    @property
    def path(self) -> Path:
        return self.folder / self.book.knowledge_page.path

    def line(self, word: str) -> str:
        self.number += 1
        made = f"- {word} {self.number}"
        self.said.add(made)
        return made

    @rule(word=WORDS)
    def learn(self, word: str) -> None:
        self.book.learn(self.line(word)[2:])

    @rule(word=WORDS)
    def learn_in_the_other_process(self, word: str) -> None:
        self.ask("learn", self.line(word)[2:])

    @rule(word=WORDS, at=st.integers(0, 10))
    def edit(self, word: str, at: int) -> None:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        lines.insert(min(at, len(lines)), self.line(word))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("\n".join(lines) + "\n")

    @rule(word=WORDS, at=st.integers(0, 5))
    def write_in_the_store(self, word: str, at: int) -> None:
        found = self.memory.store.get(f"page:{self.book.knowledge_page.path}")
        if found is not None:
            lines = found.content.splitlines()
            lines.insert(min(at, len(lines)), self.line(word))
            self.memory.update(found.id, "\n".join(lines) + "\n")

    @rule()
    def sync(self) -> None:
        done = self.book.sync()
        self.both_are_equal({name: list(getattr(done, name)) for name in ("problems", "conflicts", "missing")})

    @rule()
    def sync_in_the_other_process(self) -> None:
        self.both_are_equal(self.ask("sync"))

    def both_are_equal(self, done: dict[str, list[str]]) -> None:
        assert not done["problems"]
        page = self.book.knowledge_page
        found = self.memory.store.get(f"page:{page.path}")
        if found is not None and not done["missing"]:
            assert self.path.read_text() == found.content
            assert has_conflict(found.content) == (page.path in done["conflicts"])
            assert self.said <= set(found.content.splitlines())  # nothing was ever taken out

    @rule()
    def restart(self) -> None:
        self.ask("close")
        self.memory.close()
        self.open()

    @rule()
    def lose_the_notes_of_what_was_agreed(self) -> None:
        (self.folder / ".notes" / "sync.json").unlink(missing_ok=True)

    @invariant()
    def no_line_is_lost(self) -> None:
        if not hasattr(self, "book"):
            return
        page = self.book.knowledge_page
        texts = [one.content for one in self.book.pages.history(page)]
        texts += [self.path.read_text()] if self.path.exists() else []
        everything = {line for text in texts for line in text.splitlines()}
        assert self.said <= everything

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.ask("close")
            self.memory.close()
            shutil.rmtree(self.folder)


@pytest.fixture(scope="module", autouse=True)
def other_process() -> Iterator[None]:
    command = [sys.executable, "-m", "tests.crash.notebook_children", "serve", "[]"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as child:
        NotebookMachine.other = child
        yield
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(60) == 0


TestNotebookMachine = NotebookMachine.TestCase
TestNotebookMachine.settings = settings(max_examples=25, stateful_step_count=25)
