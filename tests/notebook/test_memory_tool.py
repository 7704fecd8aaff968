"""Anthropic's memory tool on a notebook: through the real SDK, and by the SDK's own tests of its file tool."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom.notebook import Notebook, Page
from loom.notebook.memory_tool import memory_tool
from loom.testing import Call, ScriptedModel

CLIENTS = Path(__file__).parents[2] / ".clients"

anthropic = pytest.importorskip("anthropic", reason="the anthropic package is not installed")


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    with Notebook(tmp_path / "project", agent="claude") as opened:
        yield opened


def call(tool: Any, **given: Any) -> Any:
    return tool.call(given)


def test_what_the_model_writes_is_a_page_that_is_recalled_and_versioned(notebook: Notebook) -> None:
    tool = memory_tool(notebook)
    call(tool, command="create", path="/memories/tastes.md", file_text="Ana drinks oolong tea.\n")
    call(tool, command="str_replace", path="/memories/tastes.md", old_str="oolong", new_str="green")
    found = notebook.memory.recall("What does Ana drink?", limit=1)[0]
    assert found.content == "Ana drinks green tea.\n"
    assert found.trust == "agent"
    page = Page(".notes/claude/memories/tastes.md")
    assert [one.content for one in notebook.pages.history(page)] == [
        "Ana drinks oolong tea.\n",
        "Ana drinks green tea.\n",
    ]
    call(tool, command="delete", path="/memories/tastes.md")
    assert not notebook.memory.recall("What does Ana drink?", limit=1)
    notebook.pages.rollback(page, 2)
    assert "green" in call(tool, command="view", path="/memories/tastes.md")


@pytest.mark.parametrize("path", ["/memoriesX/a", "/memories/../a", "memories/a", "/etc/passwd", "/memories/a\0b"])
def test_paths_outside_are_refused(path: str, notebook: Notebook) -> None:
    tool = memory_tool(notebook)
    with pytest.raises(Exception, match="/memories"):
        call(tool, command="create", path=path, file_text="x")
    assert not list(notebook.work_dir.rglob("a*"))[1:]


def test_a_client_of_the_sdk_works_with_the_notebook(notebook: Notebook) -> None:
    command = {"command": "create", "path": "/memories/a.md", "file_text": "The code is 9182."}
    with (
        ScriptedModel([Call("memory", command), "Kept."]) as model,
        anthropic.Anthropic(base_url=model.url, api_key="none") as client,
    ):
        done = client.beta.messages.tool_runner(
            model="scripted",
            max_tokens=100,
            messages=[{"role": "user", "content": "Keep the code 9182."}],
            tools=[memory_tool(notebook)],
        ).until_done()
        assert done.content[0].text == "Kept."
        assert "File created successfully at: /memories/a.md" in model.requests[-1].text
    assert notebook.memory.recall("code", limit=1)[0].content == "The code is 9182."


def test_the_sdks_own_tests_of_its_file_tool_pass_with_this_one(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The tests come from the source distribution of the installed version, which `make clients` downloads."""
    folder = _source_of_the_sdk(tmp_path, required=pytestconfig.getoption("--require-all"))
    # Alone: beside it are the settings of the SDK's whole suite.
    alone = tmp_path / "alone"
    alone.mkdir()
    source = folder / "tests" / "lib" / "tools" / "memory_tools" / "test_filesystem.py"
    tests = shutil.copy(source, alone)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.notebook.sdk_plugin", "-c", os.devnull, str(tests)],
        capture_output=True,
        text=True,
        env={**os.environ, "LOOM_EMBEDDER": "none"},
        cwd=Path(__file__).parent.parent.parent,
        timeout=250,
        check=False,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert passed is not None
    assert int(passed[1]) >= 71


def _source_of_the_sdk(folder: Path, required: bool) -> Path:
    archive = CLIENTS / f"anthropic-{anthropic.__version__}.tar.gz"
    if not archive.is_file():
        reason = f".clients/{archive.name} is missing: `make clients` downloads it"
        if required:
            pytest.fail(reason)
        pytest.skip(reason)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")
