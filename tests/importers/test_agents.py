"""Transcripts that Claude Code and Codex really write, offline, against a scripted model: see `make clients`."""

from __future__ import annotations

import json
from pathlib import Path

import loom
from loom.importers import import_history
from loom.testing import Answer, Call, Request, ScriptedModel
from tests.mcp_server.test_npm_clients import CLAUDE, CODEX, NODE, Needs, needs, offline, run

__all__ = ["needs"]

QUESTION = "When does the harbour open?"
ANSWER = "The harbour opens at nine. 港口九点开门。"


def test_a_session_of_claude_code_is_imported(tmp_path: Path, needs: Needs) -> None:
    needs(CLAUDE)
    project = tmp_path / "harbour"
    project.mkdir()
    (project / "opening.txt").write_text("opens: 09:00\n")

    def line(request: Request) -> str | Answer:
        said = json.dumps(request.body["messages"])
        if not request.body.get("tools"):
            return "ok"
        if '"tool_result"' not in said:
            call = Call("Read", {"file_path": str(project / "opening.txt")})
            return Answer("I look.", calls=(call,))
        return ANSWER

    with ScriptedModel([line], repeat=True) as model:
        environ = offline(
            tmp_path / "home",
            ANTHROPIC_BASE_URL=model.url,
            ANTHROPIC_API_KEY="none",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
        )
        words = ["-p", QUESTION, "--model", "scripted", "--allowedTools", "Read"]
        done = run(CLAUDE, *words, environ=environ, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    with loom.open(embedder="none") as memory:
        found = import_history(memory, tmp_path / "home" / ".claude" / "projects", project="harbour")
        records = memory.list(limit=50, newest_first=False).records
    assert (found.formats, found.skipped, found.complete) == ({"claude-code": 1}, 0, True)
    assert [(one.role, one.trust) for one in records] == [
        ("user", "user"),
        ("assistant", "agent"),
        ("assistant", "agent"),
        ("tool", "tool"),
        ("assistant", "agent"),
    ]
    assert (records[0].content, records[-1].content) == (QUESTION, ANSWER)
    assert "09:00" in records[3].content
    assert records[-1].metadata["model"] == "scripted"
    assert records[-1].metadata["project"] == str(project)


def test_a_session_of_codex_is_imported(tmp_path: Path, needs: Needs) -> None:
    needs(CODEX)
    home, project = tmp_path / "codex", tmp_path / "harbour"
    home.mkdir()
    project.mkdir()
    (project / "opening.txt").write_text("opens: 09:00\n")

    def line(request: Request) -> str | Call:
        if "function_call_output" in json.dumps(request.body["input"]):
            return ANSWER
        return Call("exec_command", {"cmd": "cat opening.txt"})

    with ScriptedModel([line], repeat=True) as model:
        (home / "config.toml").write_text(codex_settings(model.openai_url))
        environ = offline(tmp_path / "home", CODEX_HOME=str(home), SCRIPTED_KEY="none")
        done = run(NODE, CODEX, "exec", "--skip-git-repo-check", QUESTION, environ=environ, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    with loom.open(embedder="none") as memory:
        found = import_history(memory, home / "sessions", project=str(project))
        records = memory.list(limit=50, newest_first=False).records
    assert (found.formats, found.skipped, found.complete) == ({"codex": 1}, 0, True)
    assert [(one.role, one.trust) for one in records] == [
        ("user", "user"),
        ("assistant", "agent"),
        ("tool", "tool"),
        ("assistant", "agent"),
    ]
    assert (records[0].content, records[-1].content) == (QUESTION, ANSWER)
    assert "09:00" in records[2].content


def test_a_forked_session_of_codex_does_not_repeat_what_it_continues(tmp_path: Path, needs: Needs) -> None:
    needs(CODEX)
    home, project = tmp_path / "codex", tmp_path / "harbour"
    home.mkdir()
    project.mkdir()

    def asked(*words: str) -> None:
        done = run(NODE, CODEX, "exec", "--skip-git-repo-check", *words, environ=environ, cwd=project)
        assert done.returncode == 0, done.stdout + done.stderr

    with ScriptedModel([ANSWER, "At five.", "On Sundays."], repeat=True) as model:
        (home / "config.toml").write_text(codex_settings(model.openai_url))
        environ = offline(tmp_path / "home", CODEX_HOME=str(home), SCRIPTED_KEY="none")
        asked(QUESTION)
        (first,) = (home / "sessions").rglob("*.jsonl")
        session = json.loads(first.read_text().splitlines()[0])["payload"]["id"]
        asked("fork", session, "When does it close?")
        as_older_versions_wrote(first)
        for state in home.glob("*.sqlite*"):
            state.unlink()
        asked("fork", session, "And when is it shut?")  # the program repeats the history, as it is of the older form
    forks = [one.read_text() for one in (home / "sessions").rglob("*.jsonl") if one != first]
    assert sorted(QUESTION in one for one in forks) == [False, True]
    with loom.open(embedder="none") as memory:
        found = import_history(memory, home / "sessions")
        records = sorted(memory.list(limit=50).records, key=lambda one: one.created_at)
    assert (found.formats, found.skipped, found.complete) == ({"codex": 3}, 0, True)
    told = [QUESTION, ANSWER, "When does it close?", "At five.", "And when is it shut?", "On Sundays."]
    assert [one.content for one in records] == told
    assert len({one.session_id for one in records}) == 3


def as_older_versions_wrote(rollout: Path) -> None:
    """Give a rollout the form in which a fork repeats it: without ordinals and a mode of its history."""
    lines = [json.loads(line) for line in rollout.read_text().splitlines()]
    for line in lines:
        line.pop("ordinal", None)
    lines[0]["payload"].pop("history_mode", None)
    rollout.write_text("".join(json.dumps(line) + "\n" for line in lines))


def codex_settings(address: str) -> str:
    """Settings with which Codex asks a scripted model, and no other server."""
    return f"""
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.scripted]
name = "scripted"
base_url = "{address}"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""
