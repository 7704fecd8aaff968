"""Any interleaving of edits, agent writes, restarts and two handles: both sides end equal, or a conflict is shown."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from loom.memory import MemoryManager
from loom.notebook import Notebook
from loom.notebook.edits import has_conflict

WORDS = st.sampled_from(["ash", "birch", "cedar", "elm", "fir", "松", "柏"])


class NotebookMachine(RuleBasedStateMachine):
    """Lines are numbered, so that each that was ever written can be looked for in the versions."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.number = 0
        self.said: set[str] = set()
        self.open()

    def open(self) -> None:
        self.memory = MemoryManager("writer", store=self.folder / "m.loom", embedder="none", derive=False)
        self.books = [Notebook(self.folder, agent="writer", memory=self.memory) for _ in range(2)]

    @property
    def path(self) -> Path:
        return self.folder / self.books[0].knowledge_page.path

    def line(self, word: str) -> str:
        self.number += 1
        made = f"- {word} {self.number}"
        self.said.add(made)
        return made

    @rule(word=WORDS, which=st.integers(0, 1))
    def learn(self, word: str, which: int) -> None:
        self.books[which].learn(self.line(word)[2:])

    @rule(word=WORDS, at=st.integers(0, 10))
    def edit(self, word: str, at: int) -> None:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        lines.insert(min(at, len(lines)), self.line(word))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("\n".join(lines) + "\n")

    @rule(word=WORDS, at=st.integers(0, 5))
    def write_in_the_store(self, word: str, at: int) -> None:
        found = self.memory.store.get(f"page:{self.books[0].knowledge_page.path}")
        if found is not None:
            lines = found.content.splitlines()
            lines.insert(min(at, len(lines)), self.line(word))
            self.memory.update(found.id, "\n".join(lines) + "\n")

    @rule(which=st.integers(0, 1))
    def sync(self, which: int) -> None:
        done = self.books[which].sync()
        assert not done.problems
        page = self.books[which].knowledge_page
        found = self.memory.store.get(f"page:{page.path}")
        if found is not None and not done.missing:
            assert self.path.read_text() == found.content
            assert has_conflict(found.content) == (page.path in done.conflicts)
            assert self.said <= set(found.content.splitlines())  # nothing was ever taken out

    @rule()
    def restart(self) -> None:
        self.memory.close()
        self.open()

    @rule()
    def lose_the_notes_of_what_was_agreed(self) -> None:
        (self.folder / ".notes" / "sync.json").unlink(missing_ok=True)

    @invariant()
    def no_line_is_lost(self) -> None:
        if not hasattr(self, "books"):
            return
        page = self.books[0].knowledge_page
        texts = [one.content for one in self.books[0].pages.history(page)]
        texts += [self.path.read_text()] if self.path.exists() else []
        everything = {line for text in texts for line in text.splitlines()}
        assert self.said <= everything

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.memory.close()
            shutil.rmtree(self.folder)


TestNotebookMachine = NotebookMachine.TestCase
TestNotebookMachine.settings = settings(max_examples=25, stateful_step_count=25)
