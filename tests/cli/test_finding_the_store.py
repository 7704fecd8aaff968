"""Which store a command uses when none is named, and what `doctor` says about it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import loom
from loom import cli
from loom.discovery import find_store

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a home of their own, in an empty folder of it."""
    home = tmp_path / "home"
    (home / "project" / "deep" / "er").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("LOOM_STORE", raising=False)
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    monkeypatch.chdir(home / "project" / "deep" / "er")
    return home


def test_with_nothing_configured_the_users_data_folder_is_used_and_made(home: Path, run: Run) -> None:
    code, _, err = run("recall", "harbour")
    assert code == 2
    assert err.count("\n") == 1
    assert "loom remember" in err
    assert not (home / ".local").exists()
    assert run("remember", "The harbour opens at nine.")[0] == 0
    store = home / ".local" / "share" / "loom" / "memory.loom"
    assert store.is_file()
    assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    assert "opens at nine" in run("recall", "harbour")[1]


def test_a_projects_folder_is_found_from_below(home: Path, run: Run) -> None:
    (home / "project" / ".loom").mkdir()
    assert run("remember", "The harbour opens at nine.")[0] == 0
    assert (home / "project" / ".loom" / "memory.loom").is_file()
    assert not (home / ".local").exists()


def test_the_order_is_option_variable_project_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_store().path == str(home / ".local/share/loom/memory.loom")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    assert find_store().path == str(home / "data/loom/memory.loom")
    (home / ".loom").mkdir()
    assert find_store().path == str(home / ".loom/memory.loom")
    (home / "project" / ".loom").mkdir()
    assert find_store().path == str(home / "project/.loom/memory.loom")
    monkeypatch.setenv("LOOM_STORE", "by-variable.loom")
    assert find_store().path == "by-variable.loom"
    assert find_store("by-option.loom") == ("by-option.loom", "named by --store")


def test_a_notebooks_memory_is_found_in_its_folder(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "project")
    notes = home / "project" / ".notes" / "writer"
    notes.mkdir(parents=True)
    (notes / "agent_knowledge.md").write_text("Ana wants short chapters.\n")
    code, shown = run("notebook-sync")[:2]
    assert code == 0
    assert "agent_knowledge.md" in shown
    assert (home / "project" / ".notes" / "memory.loom").is_file()
    assert "short chapters" in run("recall", "What does Ana want?")[1]
    assert find_store().why == f"the notebook in {home / 'project'}"
    assert "the files and the memory agree" in run("notebook-sync", "--folder", str(home / "project"))[1]
    assert "version" in run("notebook-files")[1]
    (notes / "agent_knowledge.md").unlink()
    assert run("notebook-sync")[0] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give folders away")
def test_folders_of_another_owner_end_the_search(home: Path) -> None:
    planted = home / "project" / ".loom"
    planted.mkdir()
    os.chown(planted, 12345, -1)
    assert find_store().path == str(home / ".local/share/loom/memory.loom")
    os.chown(planted, os.geteuid(), -1)
    assert find_store().path == str(planted / "memory.loom")
    os.chown(home / "project" / "deep", 12345, -1)
    assert find_store().path == str(home / ".local/share/loom/memory.loom")


def test_the_variable_is_no_unknown_setting(
    home: Path, monkeypatch: pytest.MonkeyPatch, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOOM_STORE", str(home / "a.loom"))
    assert run("remember", "x")[0] == 0
    assert (home / "a.loom").is_file()
    assert not caplog.records


# --- doctor --------------------------------------------------------------------------------------------------


def findings(out: str) -> dict[str, dict[str, str]]:
    return {one["about"]: one for one in json.loads(out)["findings"]}


def test_doctor_says_which_store_and_why_and_what_is_missing(home: Path, run: Run) -> None:
    code, out, _ = run("doctor", "--json")
    found = findings(out)
    assert code == 0
    assert "no project has one here" in found["store"]["detail"]
    assert found["file"]["state"] == "note"
    assert "loom remember" in found["file"]["remedy"]
    assert {"tokenizer", "embedder", "kernels", "disk", "settings", "extra", "folder"} <= found.keys()
    run("remember", "The harbour opens at nine.")
    found = findings(run("doctor", "--json")[1])
    assert "namespaces: default" in found["file"]["detail"]
    assert list((home / ".local" / "share" / "loom").glob("*.loom"))


def test_doctor_ends_with_1_where_the_file_is_something_else(home: Path, run: Run) -> None:
    letter = home / "letter.loom"
    letter.write_text("Dear Wei, this is a letter.\n" * 100)
    code, out, _ = run("doctor", "--store", letter)
    assert code == 1
    assert "problem" in out
    assert letter.read_text().startswith("Dear Wei")


def test_doctor_names_a_file_that_others_may_read(home: Path, run: Run) -> None:
    store = home / "a.loom"
    with loom.open(store, embedder="none") as memory:
        memory.remember("x")
    store.chmod(0o644)
    found = findings(run("doctor", "--store", store, "--json")[1])
    assert "chmod 600" in found["file mode"]["remedy"]
