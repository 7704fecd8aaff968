"""Malformed files: a message with file and line, and everything else continues to work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom.errors import InvalidInput
from loom.notebook import Notebook, Outcome, SessionNote


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with Notebook(tmp_path / "project", agent="writer") as opened:
        opened.learn("Ana wants short chapters.")
        yield opened


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50 * 1024 * 1024)


def folder(path: Path) -> None:
    path.mkdir()


def link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "binary": (lambda path: path.write_bytes(b"one\ntwo\0three\n"), "line 2: the file is binary"),
    "not UTF-8": (lambda path: path.write_bytes(b"one\ntwo\nthr\xffee\n"), "line 3: the file is not UTF-8"),
    "UTF-16": (lambda path: path.write_bytes("世界".encode("utf-16")), "line 1: the file is not UTF-8"),
    "50 MB": (large, "52,428,800 bytes"),
    "a folder": (folder, "is a folder"),
    "a link": (link, "is a link"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_cannot_be_read_is_named_and_the_others_go_on(kind: str, notebook: Notebook) -> None:
    make, told = UNREADABLE[kind]
    make(notebook.work_dir / "world_state.md")
    knowledge = notebook.work_dir / notebook.knowledge_page.path
    knowledge.write_text("# K\n\n- edited\n")
    done = notebook.sync()
    assert done.read == (notebook.knowledge_page.path,)
    (problem,) = done.problems
    assert problem.startswith("world_state.md")
    assert str(notebook.work_dir) not in problem
    assert told in problem
    with pytest.raises(InvalidInput, match=r"world_state\.md"):
        _ = notebook.world
    prompt = notebook.prompt("You write.")  # an agent goes on, and is told
    assert "- edited" in prompt
    assert "cannot be read" in prompt
    assert notebook.finish(SessionNote("a", "b")) is not None


def test_a_front_matter_that_is_not_closed_is_named_and_its_text_is_read(notebook: Notebook) -> None:
    path = notebook.work_dir / notebook.knowledge_page.path
    path.write_text("---\nname: x\n\n- edited\n")
    done = notebook.sync()
    (problem,) = done.problems
    assert problem.startswith(f"{notebook.knowledge_page.path}, line 1: the front matter is not closed")
    assert done.read == (notebook.knowledge_page.path,)
    assert notebook.knowledge == path.read_text()


@pytest.mark.parametrize(
    ("text", "line"), [("- a\n>>>>>>> memory\n", 2), ("- a\n- b\n<<<<<<< this file\n- c\n=======\n", 3)]
)
def test_half_a_conflict_is_named_with_its_line(text: str, line: int, notebook: Notebook) -> None:
    (notebook.work_dir / notebook.knowledge_page.path).write_text(text)
    assert f"line {line}: the " in notebook.sync().problems[0]


def test_a_session_that_cannot_be_read_does_not_stop_the_others(notebook: Notebook) -> None:
    good, bad = (notebook.finish(SessionNote(name, "b", task=name)) for name in ("good", "bad"))
    assert good is not None
    assert bad is not None
    bad.write_bytes(b"\xff")
    good.write_text(good.read_text().replace("Agent: b", "Agent: better"))
    done = notebook.sync(sessions=True)
    assert done.read == (f".sessions/{good.name}",)
    assert f".sessions/{bad.name}" in done.problems[0]
    assert "line 1" in done.problems[0]
    found = notebook.sessions.find(good.name)
    assert found is not None
    assert "better" in found.content


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# Task Process\n\n## State\n- Pointer: 9\n\n## TODO\n- [ ] a\n", "line 4: the pointer is 9"),
        ("# Task Process\n\n## State\n- Pointer: three\n\n## TODO\n- [ ] a\n", "line 4: the pointer is 'three'"),
        ("- 指令指针: 1\n\n## 当前状态\n- 指令指针: 0\n\n## TODO列表\n- [ ] a\n", "line 4: the pointer is 0"),
    ],
)
def test_a_pointer_to_no_item_is_named_with_file_and_line(text: str, told: str, notebook: Notebook) -> None:
    notebook.plan(["a"])
    notebook.process_path.write_text(text)
    with pytest.raises(InvalidInput, match=f"task_process.md, {told}"):
        notebook.machine().run()
    assert "Ana wants short chapters." in notebook.prompt()
    assert not notebook.sync().problems


def test_a_process_without_its_headings_is_finished_and_unchanged(notebook: Notebook) -> None:
    notebook.plan(["a"])
    notebook.process_path.write_text("nothing of a process\r\n")
    report = notebook.machine().run()
    assert report.outcome is Outcome.DONE
    assert notebook.process_path.read_bytes().count(b"nothing of a process\r\n") == 1


def test_a_cycle_of_processes_ends_with_file_and_line(notebook: Notebook) -> None:
    notebook.plan(['RUN "task_process.md"'])
    report = notebook.machine().run(max_steps=10_000)
    assert report.outcome is Outcome.FAILED
    assert re.fullmatch(
        r"task_process\.\d+\.md, line \d+: processes are nested deeper than 20 levels", report.message
    )


def test_a_folder_that_is_a_link_is_not_followed(notebook: Notebook, tmp_path: Path) -> None:
    with Notebook(tmp_path / "clone", agent="other", memory=notebook.memory) as clone:
        (tmp_path / "elsewhere").mkdir()
        (clone.work_dir / ".notes").mkdir()
        (clone.work_dir / ".notes" / "other").symlink_to(tmp_path / "elsewhere")
        (clone.work_dir / ".sessions").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InvalidInput, match="is a link"):
            clone.learn("x")
        with pytest.raises(InvalidInput, match="is a link"):
            clone.finish(SessionNote("a", "b"))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_windows_line_ends_survive_an_edit_on_both_sides(notebook: Notebook) -> None:
    path = notebook.work_dir / notebook.knowledge_page.path
    path.write_bytes(b"# K\r\n\r\n- a\r\n\r\n- b\r\n")
    notebook.sync()
    path.write_bytes(b"# K\r\n\r\n- a, here\r\n\r\n- b\r\n")
    notebook.memory.update(notebook.pages.id_of(notebook.knowledge_page), "# K\r\n\r\n- a\r\n\r\n- b, there\r\n")
    assert not notebook.sync().conflicts
    assert path.read_bytes() == b"# K\r\n\r\n- a, here\r\n\r\n- b, there\r\n"
