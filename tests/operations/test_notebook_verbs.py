"""The operations on a notebook: what they change, what they refuse, and how a person answers a request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import InvalidInput
from loom.everyday import Memory
from loom.notebook import Notebook
from loom.operations import OPERATIONS


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with loom.open(tmp_path / "agent.loom", embedder="none", derive=False) as opened:
        yield opened


@pytest.fixture
def notebook(memory: Memory, tmp_path: Path) -> Notebook:
    made = Notebook(tmp_path / "project", agent="writer", memory=memory)
    made.learn("Ana wants short chapters.")
    return made


def call(memory: Memory, verb: str, notebook: Notebook, **given: Any) -> Any:
    return OPERATIONS[f"notebook-{verb}"].call(memory, {"folder": str(notebook.work_dir), **given})


def test_a_missing_file_is_shown_until_a_person_answers(memory: Memory, notebook: Notebook) -> None:
    path = notebook.work_dir / notebook.knowledge_page.path
    path.unlink()
    done = call(memory, "sync", notebook)
    assert (done.missing, done.ok) == ((notebook.knowledge_page.path,), False)
    call(memory, "restore", notebook, page="knowledge")
    assert "short chapters" in path.read_text()
    assert call(memory, "sync", notebook).ok
    left = call(memory, "forget", notebook, page=notebook.knowledge_page.path)
    assert left.memories == ()
    assert not path.exists()


def test_versions_are_shown_compared_and_brought_back(memory: Memory, notebook: Notebook) -> None:
    notebook.learn("Tables have captions.")
    assert "+- Tables have captions." in call(memory, "diff", notebook, page="knowledge", older=1).diff
    assert "captions" not in call(memory, "rollback", notebook, page="knowledge", version=1).content
    (file,) = call(memory, "files", notebook).files
    assert (file.path, file.version, file.trust) == (notebook.knowledge_page.path, 3, "agent")
    assert len(call(memory, "forget", notebook, page="knowledge", earlier=True).memories) == 1


def test_variants_are_kept_used_and_compared(memory: Memory, notebook: Notebook) -> None:
    call(memory, "keep", notebook, name="short")
    assert call(memory, "use", notebook, name="short").before == "main"
    trials = call(memory, "compare", notebook).trials
    assert [(one.name, one.in_use, one.success_rate) for one in trials] == [
        ("main", False, None),
        ("short", True, None),
    ]


def test_an_imported_package_says_where_it_disagrees(memory: Memory, notebook: Notebook, tmp_path: Path) -> None:
    call(memory, "export", notebook, target=str(tmp_path / "package"), name="style")
    other = Notebook(tmp_path / "other", agent="reader", memory=memory)
    other.learn("Ana wants long chapters.")
    done = call(memory, "import", other, source=str(tmp_path / "package"), agent="reader")
    assert done.ok
    assert [one.own for one in done.disagreements] == ["- Ana wants long chapters."]
    assert not call(memory, "import", other, source=str(tmp_path / "package"), agent="reader", merge=True).ok


def test_an_attached_folder_is_read_and_written_only_on_demand(
    memory: Memory, notebook: Notebook, tmp_path: Path
) -> None:
    vault = tmp_path / "vault"
    (vault / ".obsidian").mkdir(parents=True)
    (vault / "note.md").write_text("The harbour opens at nine.")
    done = call(memory, "sync", notebook, attach=[str(vault)])
    (read,) = done.read
    record = memory.list(kind="page", where={"path": read}).records[0]
    memory.update(record.id, "The harbour opens at ten.")
    assert not call(memory, "sync", notebook, attach=[str(vault)]).written
    assert call(memory, "sync", notebook, attach=[str(vault)], write=True).written == (read,)
    assert (vault / "note.md").read_text() == "The harbour opens at ten."


def test_what_is_meant_has_to_be_clear(memory: Memory, notebook: Notebook, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a folder"):
        OPERATIONS["notebook-sync"].call(memory, {"folder": str(tmp_path / "missing")})
    with pytest.raises(InvalidInput, match="is not a page of this notebook"):
        call(memory, "diff", notebook, page="../../etc/passwd", older=1)
    Notebook(notebook.work_dir, agent="reader", memory=memory).learn("x")
    with pytest.raises(InvalidInput, match="notes of reader, writer; choose one"):
        call(memory, "files", notebook)
