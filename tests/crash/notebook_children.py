"""Processes that work on a notebook: `python -m tests.crash.notebook_children <role> <json>`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from loom.memory.manager import MemoryManager
from loom.notebook import Notebook, SessionNote
from tests.crash.children import arm, say

__all__ = ["work"]


def work(folder: Path, acknowledged: int) -> None:
    """Do one of everything that writes a file; write a letter to `acknowledged` after each."""
    path = folder / ".notes" / "writer" / "agent_knowledge.md"
    memory = MemoryManager("writer", store=folder / "memory.loom", embedder="none", derive=False)
    with memory, Notebook(folder, agent="writer", memory=memory) as notebook:
        notebook.knowledge = "# K\n\n- first\n\n- second\n"
        os.write(acknowledged, b"a")
        path.write_text(path.read_text().replace("- first\n", "- first\n- from the file\n"))
        memory.update(notebook.pages.id_of(notebook.knowledge_page), "# K\n\n- first\n\n- second\n- from the store\n")
        notebook.sync()
        os.write(acknowledged, b"b")
        notebook.world = "red"
        notebook.world = "green"
        os.write(acknowledged, b"c")
        notebook.plan(["SET a = 1", "SET a = a + 1", "SET done = 1"])
        notebook.machine().run()
        os.write(acknowledged, b"d")
        notebook.finish(SessionNote("ask", "answer"))
        os.write(acknowledged, b"e")
        notebook.export_knowledge(folder / "package")
        os.write(acknowledged, b"f")


def killed_at_every_call(base: str, target: str, when: str) -> None:
    """Work in one forked process after another, each killed at the next call of a function; say where."""
    for call in range(1, 1000):
        folder = Path(base, str(call))
        folder.mkdir()
        acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT)
        child = os.fork()
        if not child:
            arm({"target": target, "when": when, "call": call})
            work(folder, acknowledged)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.close(acknowledged)
        if os.WIFEXITED(status):
            say({"calls": call - 1, "code": os.WEXITSTATUS(status)})
            return
        say({"folder": str(folder), "signal": os.WTERMSIG(status)})


def serve() -> None:
    """Hold a notebook and do what the lines of standard input say: open, learn, sync, close."""
    memory: MemoryManager | None = None
    notebook: Notebook | None = None
    for line in sys.stdin:
        verb, *given = json.loads(line)
        answer: Any = None
        if verb == "open":
            memory = MemoryManager("writer", store=given[0], embedder="none", derive=False)
            notebook = Notebook(Path(given[0]).parent, agent="writer", memory=memory)
        elif verb == "learn":
            assert notebook is not None
            notebook.learn(given[0])
        elif verb == "sync":
            assert notebook is not None
            done = notebook.sync()
            answer = {name: getattr(done, name) for name in ("problems", "conflicts", "missing")}
        elif verb == "close":
            assert memory is not None
            memory.close()
        say({"did": verb, "answer": answer})


def main() -> None:
    {"killed_at_every_call": killed_at_every_call, "serve": serve}[sys.argv[1]](*json.loads(sys.argv[2]))  # type: ignore[operator]


if __name__ == "__main__":
    main()
