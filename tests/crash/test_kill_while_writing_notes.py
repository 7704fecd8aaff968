"""SIGKILL at every call that puts a notebook's file in place: the old file or the new one, then both sides equal."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loom.errors import InvalidInput
from loom.memory.manager import MemoryManager
from loom.notebook import Notebook
from loom.notebook.note_files import read_text
from loom.notebook.process import TaskProcess
from tests.crash.processes import ROOT


@pytest.mark.parametrize(
    ("when", "target"),
    [("before", "os:replace"), ("after", "os:replace"), ("before", "os:link"), ("after", "os:fsync")],
)
def test_a_killed_write_leaves_the_old_file_or_the_new_one(target: str, when: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.crash.notebook_children",
            "killed_at_every_call",
            json.dumps([str(tmp_path), target, when]),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    *killed, last = map(json.loads, ran.stdout.splitlines())
    assert last["code"] == 0
    assert last["calls"] == len(killed) >= 3
    for one in killed:
        assert one["signal"] == signal.SIGKILL
        check(Path(one["folder"]))


def check(folder: Path) -> None:
    done = (folder / "acknowledged").read_text()
    memory = MemoryManager("writer", store=folder / "memory.loom", embedder="none", derive=False)
    with memory, Notebook(folder, agent="writer", memory=memory) as notebook:
        path = folder / notebook.knowledge_page.path
        if path.exists():
            versions = [one.content for one in notebook.pages.history(notebook.knowledge_page)]
            edit = "# K\n\n- first\n- from the file\n\n- second\n"
            assert read_text(path) in [*versions, edit]
        synced = notebook.sync(sessions=True)
        assert not synced.problems
        assert not synced.conflicts
        if "b" in done:
            assert path.read_text() == "# K\n\n- first\n- from the file\n\n- second\n- from the store\n"
        if "c" in done:
            assert notebook.world == "green"
        if notebook.process_path.exists():
            TaskProcess.parse(read_text(notebook.process_path))
            notebook.machine().run()
            assert notebook.machine().state().variables == {"a": 2, "done": 1}
        for name in synced.missing:
            assert "e" not in done
            notebook.sessions.restore(name)
        for session in (folder / ".sessions").glob("*.md"):
            found = notebook.sessions.find(session.name)
            assert found is not None
            assert found.content == session.read_text()
        if "f" in done:
            notebook.import_knowledge(folder / "package")
        elif (folder / "package" / "package.json").exists():
            with contextlib.suppress(InvalidInput):  # an unfinished export is refused with its reason
                notebook.import_knowledge(folder / "package")
        assert not notebook.sync(sessions=True)
        knowledge = notebook.memory.store.get(notebook.pages.id_of(notebook.knowledge_page))
        if knowledge is not None:
            assert path.read_text() == knowledge.content
