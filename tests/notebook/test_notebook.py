"""The notebook in both modes: files that are memories, edits that are read, conflicts that are shown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import loom
from loom.errors import InvalidInput, NotFound
from loom.notebook import Notebook, Outcome, SessionNote
from loom.notebook import sessions as notebook_sessions
from loom.notebook.edits import merged
from loom.notebook.pages import Page, Pages
from loom.trust import TRUSTED_VARIABLE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.fixture
def notebook(folder: Path) -> Iterator[Notebook]:
    with Notebook(folder, agent="writer") as opened:
        yield opened


def knowledge_of(notebook: Notebook) -> Path:
    return notebook.work_dir / notebook.knowledge_page.path


def test_what_the_agent_learns_is_in_its_file_and_in_its_memory(notebook: Notebook) -> None:
    notebook.learn("Ana wants short chapters.")
    notebook.learn("Dates are written as 2025-01-05.")
    notebook.learn("Ana wants short chapters.")
    assert knowledge_of(notebook).read_text() == (
        "# Agent Knowledge\n\n- Ana wants short chapters.\n- Dates are written as 2025-01-05.\n"
    )
    found = notebook.memory.recall("How long should chapters be for Ana?", limit=1)
    assert "short chapters" in found[0].content
    assert len(notebook.pages.history(notebook.knowledge_page)) == 2


def test_an_edit_in_an_editor_is_the_next_version(notebook: Notebook) -> None:
    notebook.learn("Ana wants short chapters.")
    path = knowledge_of(notebook)
    path.write_text(path.read_text().replace("short", "long"))
    done = notebook.sync()
    assert done.read == (notebook.knowledge_page.path,)
    record = notebook.pages.history(notebook.knowledge_page)[-1]
    assert "long chapters" in record.content
    assert record.trust == "unknown"  # the folder is not the user's yet
    assert not notebook.sync()


def test_edits_are_the_users_words_where_the_user_trusts_the_folder(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUSTED_VARIABLE, str(notebook.work_dir))
    knowledge_of(notebook).parent.mkdir(parents=True, exist_ok=True)
    knowledge_of(notebook).write_text("I am allergic to shellfish.\n")
    notebook.sync()
    assert notebook.pages.history(notebook.knowledge_page)[-1].trust == "user"


def test_everything_that_was_not_changed_stays_byte_for_byte(notebook: Notebook) -> None:
    text = (
        "---\r\ntitle: x\r\n---\r\n\r\n# 知识\r\n\r\n* one [[link]]\r\n\r\n| a | b |\r\n|---|---|\r\n"
        "```py\r\nx = 1\r\n```\r\n<!-- kept -->\r\n\r\n\r\nno newline at the end"
    )
    path = knowledge_of(notebook)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    notebook.sync()
    notebook.learn("new")
    assert path.read_bytes().decode() == f"{text}\r\n- new\r\n"


def test_a_line_that_is_learned_changes_nothing_else(notebook: Notebook) -> None:
    path = knowledge_of(notebook)
    for text, end in (
        (b"---\r\ntitle: K\r\n---\r\n\r\n# A [[link]]\r\n\r\n| a |\r\n|---|\r\n\r\n\r\n", b"\r\n"),
        ("# 知识\n\n<!-- c -->\n- 甲  \n\n".encode(), b"\n"),
    ):
        path.write_bytes(text)
        notebook.learn("Ana drinks tea.")
        assert path.read_bytes() == text + b"- Ana drinks tea." + end


def test_edits_on_both_sides_are_merged_and_real_conflicts_are_shown_with_both_texts(notebook: Notebook) -> None:
    notebook.knowledge = "# K\n\n- first\n- second\n- third\n"
    path = knowledge_of(notebook)
    page = notebook.knowledge_page
    path.write_text("# K\n\n- FIRST\n- second\n- third\n")
    notebook.memory.update(f"page:{page.path}", "# K\n\n- first\n- second\n- THIRD\n")
    done = notebook.sync()
    assert not done.conflicts
    assert path.read_text() == "# K\n\n- FIRST\n- second\n- THIRD\n"
    path.write_text("# K\n\n- mine\n")
    notebook.memory.update(f"page:{page.path}", "# K\n\n- theirs\n")
    done = notebook.sync()
    assert done.conflicts == (page.path,)
    assert path.read_text() == "# K\n\n<<<<<<< this file\n- mine\n=======\n- theirs\n>>>>>>> memory\n"
    assert notebook.sync().conflicts == (page.path,)  # until somebody resolves it
    path.write_text("# K\n\n- both of us\n")
    assert not notebook.sync().conflicts
    texts = [one.content for one in notebook.pages.history(page)]
    assert "# K\n\n- mine\n" in texts
    assert "# K\n\n- theirs\n" in texts


def test_a_deleted_file_is_a_request_that_waits_for_an_answer(notebook: Notebook) -> None:
    notebook.learn("Keep me.")
    path = knowledge_of(notebook)
    path.unlink()
    assert notebook.sync().missing == (notebook.knowledge_page.path,)
    assert notebook.memory.recall("Keep me", limit=1)
    assert not path.exists()
    notebook.pages.restore(notebook.knowledge_page)
    assert "Keep me." in path.read_text()
    path.write_text("")
    assert notebook.sync().missing == (notebook.knowledge_page.path,)
    assert notebook.pages.forget(notebook.knowledge_page)
    assert not path.exists()
    assert not notebook.memory.recall("Keep me", limit=1)
    assert not notebook.sync()


def test_what_is_forgotten_elsewhere_leaves_the_file_too(notebook: Notebook) -> None:
    notebook.learn("The gate code is 9182.")
    notebook.memory.forget(f"page:{notebook.knowledge_page.path}")
    assert notebook.sync().forgotten == (notebook.knowledge_page.path,)
    assert not any("9182" in path.read_text(errors="replace") for path in notebook.work_dir.rglob("*.md"))


def test_knowledge_has_a_history_a_diff_and_a_way_back(notebook: Notebook) -> None:
    notebook.knowledge = "# K\n- a\n"
    notebook.knowledge = "# K\n- b\n"
    page = notebook.knowledge_page
    assert "-- a\n+- b\n" in notebook.pages.diff(page, 1)
    notebook.pages.rollback(page, 1)
    assert knowledge_of(notebook).read_text() == "# K\n- a\n"
    assert [one.content for one in notebook.pages.history(page)] == ["# K\n- a\n", "# K\n- b\n", "# K\n- a\n"]
    with pytest.raises(NotFound):
        notebook.pages.rollback(page, 9)
    with pytest.raises(NotFound):
        notebook.pages.diff(page, 1, 9)


def test_the_world_is_free_text_that_all_agents_share(folder: Path) -> None:
    memory = loom.open(folder / "m.loom", embedder="none")
    with (
        memory,
        Notebook(folder, agent="a", memory=memory) as first,
        Notebook(folder, agent="b", memory=memory) as second,
    ):
        first.world = "Any *form* whatever: {not: yaml\n"
        assert second.world == first.world
        assert (folder / "world_state.md").exists()
    other = folder / "other"
    (other / ".notes" / "a").mkdir(parents=True)
    (other / ".notes" / "a" / "world_state.md").write_text("From the old place.")
    with Notebook(other, agent="a") as older:
        assert older.world == "From the old place."


def test_sessions_have_the_form_of_the_document_and_names_of_their_own(notebook: Notebook) -> None:
    """003 §4.2: requirement 113."""
    at = datetime(2025, 1, 5, 10, 30, tzinfo=UTC)
    note = SessionNote("生成PSM文档", "已生成blog_psm.md", "task1", 15.3, 12, {"read_file": 2, "write_file": 1})
    first = notebook.sessions.write(note, at)
    second = notebook.sessions.write(note, at)
    stamp = at.astimezone().strftime("%Y%m%d_%H%M%S")
    assert (first.name, second.name) == (f"{stamp}_task1.md", f"{stamp}_task1_2.md")
    assert first.read_text() == (
        f"# Session: {stamp}\n\n## Request\n用户: 生成PSM文档\n\n## Response\nAgent: 已生成blog_psm.md\n\n"
        "## Metadata\n- Agent: writer\n- Duration: 15.3s\n- Rounds: 12\n- Tools: read_file(2), write_file(1)\n"
    )
    assert [one.content for one in notebook.sessions.own()] == [second.read_text(), first.read_text()]
    with Notebook(notebook.work_dir, agent="reader", memory=notebook.memory) as other:
        assert other.sessions.own() == []
        assert len(other.sessions.all()) == 2
    unnamed = notebook.sessions.write(SessionNote("Fix the build of the importer before noon", "Done."), at)
    assert unnamed.name == f"{stamp}_Fix-the-build-of-the-importer.md"
    hostile = notebook.sessions.write(SessionNote("a", "b", "../../etc/passwd\n"), at)
    assert hostile.parent == notebook.work_dir / ".sessions"


def test_two_processes_never_write_one_session_over_another(folder: Path) -> None:
    code = (
        "import sys, loom.notebook as n\n"
        "with n.Notebook(sys.argv[1], agent=sys.argv[2]) as book:\n"
        "    for number in range(20): book.finish(n.SessionNote(f'{sys.argv[2]} {number}', 'ok'))\n"
    )
    with Notebook(folder, agent="a"):  # makes the store
        pass
    children = [subprocess.Popen([sys.executable, "-c", code, str(folder), name]) for name in ("a", "b")]
    assert [child.wait(120) for child in children] == [0, 0]
    texts = [path.read_text() for path in (folder / ".sessions").glob("*.md")]
    asked = {re.search("用户: (.*)", text)[1] for text in texts}  # type: ignore[index]
    assert asked == {f"{name} {number}" for name in ("a", "b") for number in range(20)}


def test_forgetting_a_turn_takes_the_session_file_that_tells_of_it(notebook: Notebook) -> None:
    turn = notebook.memory.remember("My password is hunter2.", role="user")
    other = notebook.memory.remember("The sky is blue.", role="user")
    gone = notebook.finish(SessionNote("My password is hunter2.", "Noted.", sources=(turn.id,)))
    kept = notebook.finish(SessionNote("The sky is blue.", "Yes.", sources=(other.id,)))
    assert gone is not None
    assert kept is not None
    notebook.forget(turn.id)
    assert not gone.exists()
    assert kept.exists()
    assert notebook.sessions.find(gone.name) is None
    (notebook.work_dir / ".git").mkdir()
    assert notebook.copies() == [f"the history of {notebook.work_dir.resolve() / '.git'}"]


def test_a_sync_follows_what_the_memory_forgot_without_a_look_at_other_sessions(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = notebook.memory.remember("My password is hunter2.", role="user")
    gone = notebook.finish(SessionNote("My password is hunter2.", "Noted.", task="hunter2", sources=(turn.id,)))
    judged = notebook.finish(SessionNote("The door code is 9182.", "Noted."))
    kept = notebook.finish(SessionNote("The sky is blue.", "Yes."))
    assert gone is not None
    assert judged is not None
    assert kept is not None
    notebook.sessions.judge(judged.name, True)
    kept.write_text("an edit that no ordinary sync reads")
    notebook.sync()
    notebook.memory.forget([turn.id, f"session:{judged.name}"])
    monkeypatch.setattr(notebook_sessions, "read_text", None)
    monkeypatch.setattr(os, "listdir", None)
    assert sorted(notebook.sync().forgotten) == sorted(f".sessions/{one.name}" for one in (gone, judged))
    assert not gone.exists()
    assert not judged.exists()
    assert kept.exists()
    assert "hunter2" not in (notebook.sessions.folder / ".written").read_text()
    assert not notebook.sync()


@pytest.mark.parametrize("directly", [False, True])
def test_forgetting_a_turn_takes_the_line_that_was_learned_from_it(notebook: Notebook, directly: bool) -> None:
    turn = notebook.memory.remember("My password is hunter2.", role="user")
    other = notebook.memory.remember("I drink tea.", role="user")
    notebook.learn("Dates are written as 2025-01-05.")
    notebook.learn("The password is hunter2.", sources=turn.id)
    notebook.learn("Ana drinks tea.", sources=[other.id])
    notebook.variants.keep("short", "# K\n\n- The password is hunter2.\n- Be short.\n")
    path = knowledge_of(notebook)
    path.write_text(path.read_text() + "- 我喜欢短句。\n")
    notebook.sync()
    assert not notebook.sync()
    if directly:
        notebook.memory.forget(turn.id)
        assert notebook.knowledge_page.path in notebook.sync().written
    else:
        assert notebook.knowledge_page.path in notebook.forget(turn.id).rewritten
    assert path.read_text() == (
        "# Agent Knowledge\n\n- Dates are written as 2025-01-05.\n- Ana drinks tea.\n- 我喜欢短句。\n"
    )
    for page in notebook.knowledge_pages():
        assert not any("hunter2" in one.content for one in notebook.pages.history(page))
    assert not any("hunter2" in one.read_text() for one in notebook.work_dir.rglob("*.md"))
    assert not notebook.sync()
    notebook.memory.forget(other.id)  # the origin of the lines that stayed is still known
    notebook.sync()
    assert path.read_text() == "# Agent Knowledge\n\n- Dates are written as 2025-01-05.\n- 我喜欢短句。\n"


def test_a_process_that_dies_while_it_takes_lines_out_leaves_the_rest_to_the_next_sync(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = notebook.memory.remember("My password is hunter2.", role="user")
    notebook.learn("The password is hunter2.", sources=turn.id)
    for name in ("a", "zz"):
        notebook.variants.keep(name, "# K\n\n- The password is hunter2.\n- Be short.\n")
    notebook.memory.forget(turn.id)
    take_out = Pages.forget_lines
    done: list[Page] = []

    def interrupted(pages: Pages, page: Page, digests: Collection[str]) -> bool:
        if done:
            raise KeyboardInterrupt
        done.append(page)
        return take_out(pages, page, digests)

    with monkeypatch.context() as patched:
        patched.setattr(Pages, "forget_lines", interrupted)
        with pytest.raises(KeyboardInterrupt):
            notebook.sync()
    notebook.sync()
    for page in notebook.knowledge_pages():
        assert not any("hunter2" in one.content for one in notebook.pages.history(page))


def test_a_line_is_learned_from_memories_that_are_there(notebook: Notebook) -> None:
    with pytest.raises(NotFound, match="no memory 'nothing'"):
        notebook.learn("Ana drinks tea.", sources=["nothing"])
    assert "tea" not in notebook.knowledge


def test_a_first_sync_follows_what_was_forgotten_before_it(folder: Path) -> None:
    with Notebook(folder, agent="writer") as opened:
        gone = opened.finish(SessionNote("The door code is 9182.", "Noted."))
        assert gone is not None
    with loom.open(folder / ".notes" / "memory.loom") as memory:
        memory.forget(f"session:{gone.name}")
    with Notebook(folder, agent="writer") as opened:
        assert opened.sync().forgotten == (f".sessions/{gone.name}",)
    assert not gone.exists()


def test_a_session_that_a_restored_backup_lost_keeps_its_file(folder: Path, tmp_path: Path) -> None:
    store = folder / ".notes" / "memory.loom"
    with Notebook(folder, agent="writer") as opened:
        opened.finish(SessionNote("first", "Done."))
        opened.memory.backup(tmp_path / "kept.loom")
        late = opened.finish(SessionNote("late", "Done."))
        opened.sync()
    assert late is not None
    for path in store.parent.glob("memory.loom*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copy(tmp_path / "kept.loom", store)
    with Notebook(folder, agent="writer") as opened:
        assert f".sessions/{late.name}" in opened.sync(sessions=True).read
        assert late.exists()


def test_two_memories_of_a_store_leave_each_others_sessions_alone(folder: Path, tmp_path: Path) -> None:
    with (
        loom.open(tmp_path / "both.loom", notebook=folder, namespace="one") as one,
        loom.open(tmp_path / "both.loom", notebook=folder, namespace="two") as two,
    ):
        assert one.notebook is not None
        assert two.notebook is not None
        mine = one.notebook.finish(SessionNote("mine", "Done."))
        theirs = two.notebook.finish(SessionNote("theirs", "Done."))
        assert mine is not None
        assert theirs is not None
        assert not one.notebook.sync(sessions=True).forgotten
        one.forget(f"session:{mine.name}")
        assert one.notebook.sync().forgotten == (f".sessions/{mine.name}",)
        two.forget(f"session:{theirs.name}")
        assert two.notebook.sync().forgotten == (f".sessions/{theirs.name}",)


def test_the_store_of_a_notebook_stays_out_of_version_control(folder: Path) -> None:
    with Notebook(folder, agent="writer") as opened:
        opened.learn("Ana wants short chapters.")
        ignored = folder / ".notes" / ".gitignore"
        assert ignored.read_text() == "memory.loom*\n"
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
        listed = ["git", "-C", str(folder), "ls-files", "--others", "--exclude-standard"]
        seen = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    assert ".notes/writer/agent_knowledge.md" in seen
    assert not any("memory.loom" in name for name in seen)
    ignored.write_text("# mine\n")
    Notebook(folder, agent="writer").close()
    assert ignored.read_text() == "# mine\n"


def test_a_notebook_whose_store_is_elsewhere_writes_no_gitignore(folder: Path, tmp_path: Path) -> None:
    with loom.open(tmp_path / "elsewhere.loom", notebook=folder) as memory:
        assert memory.notebook is not None
    assert not (folder / ".notes" / ".gitignore").exists()


def test_the_prompt_has_knowledge_task_and_own_sessions_and_never_loses_the_current_item(notebook: Notebook) -> None:
    """003 §5.1: requirement 124."""
    notebook.learn("Ana wants short chapters.")
    notebook.world = "The build is red."
    (notebook.work_dir / "world_schema.md").write_text("Files are Markdown.")
    steps = [f"step {number} " + "with many words " * 20 for number in range(200)]
    notebook.plan(steps)
    machine = notebook.machine(do=lambda text, _: text)
    machine.run(max_steps=150)
    for number in range(5):
        notebook.finish(SessionNote(f"request {number}", "done"))
    prompt = notebook.prompt("You write.")
    assert prompt.startswith("You write.")
    for part in (
        "short chapters",
        "The build is red.",
        "Files are Markdown.",
        "Pointer: 151",
        "step 150",
        "request 4",
    ):
        assert part in prompt
    assert "request 1" not in prompt
    assert notebook.memory.counter.count(prompt) < 6000


def test_a_task_goes_on_after_a_restart(folder: Path) -> None:
    with Notebook(folder, agent="writer") as notebook:
        notebook.plan(["CALL read(page = 1) -> text", "think about it", "SET done = text + '!'"])
        report = notebook.machine(functions={"read": lambda page: f"page {page}"}).run()
        assert report.outcome is Outcome.WAITING
    with Notebook(folder, agent="writer") as notebook:
        machine = notebook.machine()
        machine.complete("thought")
        assert machine.run().process.variables["done"] == "page 1!"
        notebook.plan(["another task"])
    assert "SET done" in (folder / ".notes" / "writer" / "task_process.1.md").read_text()


def test_minimal_mode_is_one_file_that_survives_a_restart(folder: Path) -> None:
    """003 §2.1, §9: requirements 109, 114."""
    messages = [{"role": "user", "content": "The error E42 was fixed by replacing the fuse."}]
    messages += [
        {"role": ("user", "assistant")[number % 2], "content": f"Thought {number} about nothing."}
        for number in range(1, 31)
    ]
    with Notebook(folder, minimal_mode=True) as notebook:
        notebook.compact(messages, keep_tokens=50)
        assert notebook.finish(SessionNote("a", "b")) is None
        for part in ("pages", "sessions", "memory"):
            with pytest.raises(InvalidInput, match="minimal mode"):
                getattr(notebook, part)
    assert [path.name for path in folder.iterdir()] == [".compact_memory.md"]
    with Notebook(folder, minimal_mode=True) as notebook:
        assert "E42" in notebook.prompt("You help.")
        assert "历史记忆" in notebook.prompt("You help.")


def test_the_profile_minimal_is_minimal_mode(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loom.open(notebook=folder, profile="minimal", embedder="none") as memory:
        assert memory.notebook is not None
        assert memory.notebook.minimal_mode
        memory.notebook.write_compact_memory("The fuse was replaced.")
    assert [path.name for path in folder.iterdir()] == [".compact_memory.md"]
    monkeypatch.setenv("LOOM_PROFILE", "minimal")
    with loom.open(notebook=folder, embedder="none") as memory:
        assert memory.notebook is not None
        assert "fuse" in memory.notebook.prompt()
    assert [path.name for path in folder.iterdir()] == [".compact_memory.md"]
    with pytest.raises(InvalidInput, match="profile"):
        loom.open(notebook=folder, profile="unknown")


def test_an_edit_of_the_compact_memory_is_merged_with_what_is_written_next(folder: Path) -> None:
    path = folder / ".compact_memory.md"
    with Notebook(folder, minimal_mode=True) as notebook:
        notebook.write_compact_memory("The fuse was replaced.\n\nThe lamp works.\n")
        assert "lamp" in notebook.compact_memory
        path.write_text("The fuse was replaced by Ana.\n\nThe lamp works.\n")
        notebook.write_compact_memory("The fuse was replaced.\n\nThe lamp works.\nThe door is open.\n")
    assert path.read_text() == "The fuse was replaced by Ana.\n\nThe lamp works.\nThe door is open.\n"


def test_forgetting_names_the_files_that_went_and_the_copies_that_stay(notebook: Notebook) -> None:
    (notebook.work_dir / ".git").mkdir()
    turn = notebook.memory.remember("My password is hunter2.", role="user")
    notebook.finish(SessionNote("My password is hunter2.", "Noted.", sources=(turn.id,), task="password"))
    left = notebook.work_dir / ".sessions" / ".old.md.abcd1234.tmp"
    left.write_text("hunter2")  # what a killed process left
    receipt = notebook.forget(turn.id)
    assert receipt.records == 2
    assert [Path(one).suffix for one in receipt.files] == [".md"]
    assert receipt.copies == (f"the history of {notebook.work_dir.resolve() / '.git'}",)
    texts = [
        path.read_text(errors="replace")
        for path in notebook.work_dir.rglob("*")
        if path.suffix != ".loom" and path.is_file() and "memory.loom" not in str(path)
    ]
    assert not [text for text in texts if "hunter2" in text or "password" in text]


def test_a_folder_whose_memory_was_lost_keeps_its_files(folder: Path) -> None:
    with Notebook(folder, agent="writer") as notebook:
        notebook.learn("first")
        notebook.finish(SessionNote("ask", "answer"))
        path = knowledge_of(notebook)
    text = path.read_text()
    for name in ("memory.loom", "memory.loom-wal", "memory.loom-shm"):
        (folder / ".notes" / name).unlink(missing_ok=True)
    with Notebook(folder, agent="writer") as notebook:  # a clone, or a store that was deleted
        done = notebook.sync(sessions=True)
        assert (len(done.read), done.forgotten) == (2, ())
        assert path.read_text() == text
        assert len(notebook.sessions.own()) == 1


def test_a_folder_whose_memory_was_restored_from_a_backup_keeps_what_is_newer(folder: Path) -> None:
    with Notebook(folder, agent="writer") as notebook:
        notebook.memory.backup(folder / "empty.loom")
        notebook.learn("first")
        notebook.memory.backup(folder / "backup.loom")
        notebook.learn("second")
        path = knowledge_of(notebook)
    for name in ("backup.loom", "empty.loom"):
        memory = loom.open(folder / name, embedder="none")
        with memory, Notebook(folder, agent="writer", memory=memory) as notebook:
            assert not notebook.sync().forgotten
            assert {"- first", "- second"} <= set(path.read_text().splitlines())
            assert notebook.knowledge == path.read_text()


def test_an_edit_that_is_saved_while_the_file_is_written_is_not_lost(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.knowledge = "# K\n\n- first\n\n- second\n"
    path, put = knowledge_of(notebook), os.link

    def saved_by_an_editor(source: Path, target: Path, **options: bool) -> None:
        monkeypatch.undo()
        path.write_text("# K\n\n- first, edited\n\n- second\n")
        put(source, target, **options)

    monkeypatch.setattr(os, "link", saved_by_an_editor)
    notebook.memory.update(f"page:{notebook.knowledge_page.path}", "# K\n\n- first\n\n- second, learnt\n")
    notebook.sync()
    assert path.read_text() == "# K\n\n- first, edited\n\n- second, learnt\n"
    assert notebook.knowledge == path.read_text()
    assert not list(path.parent.glob(".*"))


def test_opening_and_looking_up_read_no_other_session(folder: Path) -> None:
    """The files of a folder are listed by no operation but the explicit comparison of all of them."""
    with Notebook(folder, agent="writer") as notebook:
        names = [notebook.finish(SessionNote(f"ask {number}", "answer")) for number in range(30)]
    touched: list[str] = []
    watching = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in ("open", "os.listdir", "os.scandir") and ".sessions" in str(arguments[0]):
            touched.append(f"{event} {arguments[0]}")

    sys.addaudithook(note)  # it cannot be removed: `watching` ends it
    try:
        with Notebook(folder, agent="writer") as notebook:
            assert names[7] is not None
            found = notebook.sessions.find(names[7].name)
            assert found is not None
            assert "ask 7" in found.content
            assert len(notebook.sessions.own(3)) == 3
            notebook.sync()
            notebook.prompt()
            assert touched == []
            notebook.finish(SessionNote("one more", "answer"))
            assert not [one for one in touched if "scandir" in one or "listdir" in one]
    finally:
        watching = False


def test_one_file_that_cannot_be_read_does_not_stop_the_others(notebook: Notebook) -> None:
    notebook.learn("Fine.")
    (notebook.work_dir / "world_state.md").write_bytes(b"ok\nnot \xff ok\n")
    knowledge_of(notebook).write_text("Edited.\n")
    done = notebook.sync()
    assert done.read == (notebook.knowledge_page.path,)
    assert len(done.problems) == 1
    assert "world_state.md, line 2" in done.problems[0]
    (notebook.work_dir / "world_state.md").unlink()
    (notebook.work_dir / "world_state.md").symlink_to("/etc/hostname")
    with pytest.raises(InvalidInput, match="link"):
        notebook.world = "mine"


def test_the_matrix_counts_what_is_in_each_cell(notebook: Notebook) -> None:
    """003 §1.3: requirements 11, 107."""
    notebook.learn("A rule.")
    notebook.world = "A state."
    notebook.finish(SessionNote("a", "b"))
    matrix = notebook.matrix()
    assert matrix["subject", "type"]["state"] == 1
    assert matrix["world", "instance"] == {"state": 1, "event": 1}
    assert sum(sum(cell.values()) for cell in matrix.values()) == 3


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\n", "x" * 70, 7])
def test_names_that_are_no_folder_names_are_refused(name: str, folder: Path) -> None:
    with pytest.raises(InvalidInput, match="agent's name"):
        Notebook(folder, agent=name)


def test_a_merge_keeps_every_line_of_both_sides() -> None:
    base = "a\nb\nc\n"
    assert merged(base, "a\nX\nb\nc\n", "a\nb\nc\nY\n") == ("a\nX\nb\nc\nY\n", 0)
    assert merged(base, base, "z\n") == ("z\n", 0)
    assert merged("", "one", "two").conflicts == 1
    assert merged(base, "a\nc\n", "a\nb\nc\nd\n") == ("a\nc\nd\n", 0)
