"""The plugins in the real programs, offline: the statements of one session are in the prompt of the next one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import loom
from loom.cli import main
from loom.hooks.answering import TIME_LIMIT_S, TOKEN_BUDGET
from loom.hooks.projects import log_of, memory_of_project
from loom.hooks.reports import read_reports
from loom.testing import Hang, ScriptedModel
from tests.importers.test_agents import codex_settings
from tests.mcp_server.sessions import environment
from tests.mcp_server.test_npm_clients import CLAUDE, CODEX, NODE, Needs, needs, offline, run

__all__ = ["needs"]

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "packaging" / "plugin"
SAID = "Heron goes live on 12 May. The key is sk-live-4f9a8b7c6d5e4f3a2b1c0d9e."
SECRET = "sk-live-4f9a8b7c6d5e4f3a2b1c0d9e"


def with_loom(folder: Path, environ: dict[str, str]) -> dict[str, str]:
    """An environment in which the command `loom` is that of this tree."""
    folder.mkdir()
    program = folder / "loom"
    words = f'exec "{sys.executable}" -c "import sys; from loom.cli import main; sys.exit(main())" "$@"'
    program.write_text(f"#!/bin/sh\n{words}\n")
    program.chmod(0o755)
    python = {"PYTHONPATH": environment()["PYTHONPATH"], "LOOM_EMBEDDER": "none"}
    return {**environ, **python, "PATH": f"{folder}{os.pathsep}{environ['PATH']}"}


def claude_code(tmp_path: Path, model: ScriptedModel) -> dict[str, str]:
    """An environment in which Claude Code has the plugin installed and asks a scripted model."""
    environ = offline(
        tmp_path / "home",
        ANTHROPIC_BASE_URL=model.url,
        ANTHROPIC_API_KEY="none",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
    )
    environ = with_loom(tmp_path / "bin", environ)
    for words in (["marketplace", "add", str(ROOT)], ["install", "loom@loom"]):
        done = run(CLAUDE, "plugin", *words, environ=environ, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    return environ


def test_the_second_session_of_claude_code_knows_what_the_first_one_said(tmp_path: Path, needs: Needs) -> None:
    needs(CLAUDE)
    project = tmp_path / "heron"
    project.mkdir()
    with ScriptedModel(["Noted."], repeat=True) as model:
        environ = claude_code(tmp_path, model)
        for prompt in (SAID, "When does Heron go live?"):
            before = len(model.requests)
            done = run(CLAUDE, "-p", prompt, "--model", "scripted", environ=environ, cwd=project)
            assert done.returncode == 0, done.stdout + done.stderr
        asked = "".join(request.text for request in model.requests[before:])
    assert "12 May" in asked
    assert "<memory>" in asked
    assert SECRET not in asked
    memory = memory_of_project(project, environ)
    reports = read_reports(log_of(memory), 50)
    assert {one.event for one in reports} == {"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"}
    assert [one.error for one in reports if one.error] == []
    quoted = next(one for one in reports[::-1] if one.event == "UserPromptSubmit")
    assert quoted.quoted >= 1
    assert 0 < quoted.tokens <= TOKEN_BUDGET
    assert all(0 < one.took_ms < TIME_LIMIT_S * 1000 for one in reports)
    with loom.open(memory, embedder="none") as opened:
        records = opened.list(newest_first=False).records
    said = [(one.role, one.content) for one in records]
    assert [role for role, _ in said] == ["user", "assistant", "user", "assistant"]
    assert said[0][1].startswith("Heron goes live on 12 May.")
    assert SECRET not in repr(records)


def test_killing_claude_code_in_the_middle_loses_nothing_that_it_wrote(tmp_path: Path, needs: Needs) -> None:
    needs(CLAUDE)
    project = tmp_path / "heron"
    project.mkdir()
    session = str(uuid4())
    name = re.sub(r"[^A-Za-z0-9]", "-", str(project))
    transcript = tmp_path / "home" / ".claude" / "projects" / name / f"{session}.jsonl"
    transcript.parent.mkdir(parents=True)
    with ScriptedModel([Hang()], repeat=True) as model:
        environ = claude_code(tmp_path, model)
        words = [str(CLAUDE), "-p", SAID, "--model", "scripted", "--session-id", session]
        with subprocess.Popen(
            words, env=environ, cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as child:
            follow = ["tail", "-n", "+1", "-F", str(transcript)]
            with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as following:
                assert following.stdout is not None
                limit = threading.Timer(60, following.kill)
                limit.start()
                came = any("12 May" in line for line in following.stdout)
                child.send_signal(signal.SIGKILL)
                following.kill()
                limit.cancel()
    assert came, "the prompt never came to the transcript"
    with ScriptedModel(["On 12 May."], repeat=True) as model:
        environ |= {"ANTHROPIC_BASE_URL": model.url}
        done = run(CLAUDE, "-p", "When does Heron go live?", "--model", "scripted", environ=environ, cwd=project)
        assert done.returncode == 0, done.stdout + done.stderr
        assert any("Heron goes live on 12 May" in request.text for request in model.requests)


def codex_home(tmp_path: Path, model: ScriptedModel) -> dict[str, str]:
    """An environment in which Codex asks a scripted model and runs the `loom` of this tree."""
    home = tmp_path / "codex"
    home.mkdir()
    (home / "config.toml").write_text(codex_settings(model.openai_url))
    return with_loom(tmp_path / "bin", offline(tmp_path / "home", CODEX_HOME=str(home), SCRIPTED_KEY="none"))


def codex(*words: object, environ: dict[str, str], cwd: Path) -> str:
    done = run(NODE, CODEX, *words, environ=environ, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


TRUSTING = ("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust")
EVENTS = ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"]


def test_the_second_session_of_codex_with_the_plugin_knows_what_the_first_one_said(
    tmp_path: Path, needs: Needs
) -> None:
    needs(CODEX)
    project = tmp_path / "heron"
    project.mkdir()
    with ScriptedModel(["Noted."], repeat=True) as model:
        environ = codex_home(tmp_path, model)
        codex("plugin", "marketplace", "add", ROOT, environ=environ, cwd=project)
        codex("plugin", "add", "loom@loom", environ=environ, cwd=project)
        servers = codex("mcp", "list", environ=environ, cwd=project)
        for prompt in (SAID, "When does Heron go live?"):
            codex(*TRUSTING, prompt, environ=environ, cwd=project)
        asked = model.requests[-1].text
    assert "loom mcp --project" in re.sub(" +", " ", servers)
    assert "skills/memory/SKILL.md" in asked
    assert "12 May" in asked
    assert "<memory>" in asked
    assert SECRET not in asked
    reports = read_reports(log_of(memory_of_project(project, environ)), 50)
    assert [one.event for one in reports] == EVENTS * 2
    assert [one.error for one in reports if one.error] == []


def test_codex_runs_the_copied_hooks(tmp_path: Path, needs: Needs) -> None:
    needs(CODEX)
    project = tmp_path / "heron"
    project.mkdir()
    with ScriptedModel(["Noted."], repeat=True) as model:
        environ = codex_home(tmp_path, model)
        (tmp_path / "codex" / "hooks.json").write_bytes((PLUGIN / "hooks" / "codex.json").read_bytes())
        codex(*TRUSTING, SAID, environ=environ, cwd=project)
    reports = read_reports(log_of(memory_of_project(project, environ)), 50)
    assert [(one.event, one.error) for one in reports] == [(event, "") for event in EVENTS]
    assert sum(one.kept for one in reports) == 2


def test_the_manifests_name_this_version_and_claude_code_finds_them_valid(tmp_path: Path, needs: Needs) -> None:
    for folder in (".claude-plugin", ".codex-plugin"):
        assert json.loads((PLUGIN / folder / "plugin.json").read_text())["version"] == loom.__version__
    needs(CLAUDE)
    for path in (ROOT, PLUGIN):
        done = run(CLAUDE, "plugin", "validate", path, environ=offline(tmp_path / "home"), cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_names_of_the_skill_exist(capsys: object) -> None:
    skill = (PLUGIN / "skills" / "memory" / "SKILL.md").read_text()
    assert "loom kept --forget-session ID --yes" in skill
    assert main(["kept", "--folder", str(ROOT / "tests")]) == 0
