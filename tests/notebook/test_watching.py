"""Watching: edits by a person are read at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

import pytest

from loom.errors import InvalidInput
from loom.notebook import Notebook, SessionNote, Synced

pytest.importorskip("watchfiles", reason="the watchfiles package is not installed")

LONGEST_S = 60


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with Notebook(tmp_path / "project", agent="writer") as opened:
        yield opened


class Watch:
    """A thread that watches; `next` waits for its next report."""

    def __init__(self, notebook: Notebook) -> None:
        self.stop = Event()
        self.done: Queue[Synced] = Queue()
        self.thread = Thread(target=self.run, args=(notebook,))

    def run(self, notebook: Notebook) -> None:
        for done in notebook.watch(self.stop):
            self.done.put(done)

    def read(self) -> tuple[str, ...]:
        """The files that are read next. A file that is saved may be seen empty first: then it is missing."""
        while not (read := self.done.get(timeout=LONGEST_S).read):
            pass
        return read

    def missing(self) -> tuple[str, ...]:
        while not (missing := self.done.get(timeout=LONGEST_S).missing):
            pass
        return missing

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(LONGEST_S)
        assert not self.thread.is_alive()


def test_edits_are_read_as_they_happen(notebook: Notebook, tmp_path: Path) -> None:
    notebook.learn("Ana wants short chapters.")
    session = notebook.finish(SessionNote("ask", "answer"))
    assert session is not None
    vault = tmp_path / "vault"
    (vault / ".obsidian").mkdir(parents=True)
    (vault / "note.md").write_text("The harbour opens at nine.\n")
    attached = notebook.attach(vault)
    path = notebook.work_dir / notebook.knowledge_page.path
    with Watch(notebook) as watch:
        assert watch.read() == (f"{attached.name}:note.md",)  # what was there before
        path.write_text(path.read_text().replace("short", "long"))
        assert watch.read() == (notebook.knowledge_page.path,)
        (notebook.work_dir / "world_state.md").write_text("The build is red.\n")
        assert watch.read() == ("world_state.md",)
        further = path.parent / "knowledge" / "tools.md"
        further.parent.mkdir()
        path.write_text(path.read_text() + "- More.\n")
        assert watch.read() == (notebook.knowledge_page.path,)
        further.write_text("make test\n")  # in a folder that was not there when the watch began
        assert watch.read() == (".notes/writer/knowledge/tools.md",)
        session.write_text(session.read_text().replace("Agent: answer", "Agent: better answer"))
        assert watch.read() == (f".sessions/{session.name}",)
        path.unlink()
        assert watch.missing() == (notebook.knowledge_page.path,)
    assert "better answer" in notebook.sessions.own(1)[0].content


def test_an_edit_of_a_session_while_the_watch_takes_in_a_new_folder_is_read(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    import watchfiles

    notebook.learn("Ana wants short chapters.")
    session = notebook.finish(SessionNote("ask", "answer"))
    assert session is not None
    watches, has_begun = iter(range(9)), Event()

    def slow_to_begin(*folders: Path, **options: Any) -> Any:
        if next(watches) == 1:
            session.write_text(session.read_text().replace("Agent: answer", "Agent: better answer"))
        has_begun.set()
        return real(*folders, **options)

    real = watchfiles.watch
    monkeypatch.setattr(watchfiles, "watch", slow_to_begin)
    path = notebook.work_dir / notebook.knowledge_page.path
    with Watch(notebook) as watch:
        path.write_text(path.read_text() + "- One.\n")
        assert watch.read() == (notebook.knowledge_page.path,)
        assert has_begun.wait(LONGEST_S)  # else the first watch has the new folder already
        (path.parent / "knowledge").mkdir()
        path.write_text(path.read_text() + "- Two.\n")
        assert watch.read() == (notebook.knowledge_page.path,)
        assert watch.read() == (f".sessions/{session.name}",)


def test_every_edit_of_one_file_is_told(notebook: Notebook) -> None:
    notebook.learn("Ana wants short chapters.")
    path = notebook.work_dir / notebook.knowledge_page.path
    with Watch(notebook) as watch:
        for length in ("long", "longer", "very long"):
            path.write_text(f"- Ana wants {length} chapters.\n")
            assert watch.read() == (notebook.knowledge_page.path,)


def test_minimal_mode_has_nothing_to_watch(tmp_path: Path) -> None:
    with Notebook(tmp_path, minimal_mode=True) as notebook, pytest.raises(InvalidInput, match="nothing to watch"):
        next(notebook.watch())


def test_without_the_package_the_way_to_it_is_told(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(InvalidInput, match=r"loomkeep\[watch\]"):
        next(notebook.watch())


def test_the_command_prints_a_line_for_each_file(notebook: Notebook) -> None:
    notebook.learn("Ana wants short chapters.")
    (notebook.work_dir / notebook.knowledge_page.path).write_text("- Ana wants long chapters.\n")
    program = "import sys, loom.cli; sys.exit(loom.cli.main())"
    command = [sys.executable, "-c", program, "notebook-watch", "--folder", str(notebook.work_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        child.terminate()
    assert line.split() == ["read", notebook.knowledge_page.path]
