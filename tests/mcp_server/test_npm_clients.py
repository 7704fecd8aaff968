"""Clients that people use, offline: the conformance suite, the inspector, Claude Code, Codex, the bundle's checker.

`make clients` installs them. Models are scripted servers on loopback; proxies that lead nowhere stand in the way of
any other address.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters

import loom
from loom.mcp import TOOLS
from loom.testing import Call, Request, ScriptedModel
from tests.mcp_server.sessions import LOOM, environment, talk
from tests.mcp_server.test_reference_tools import SESSION, session
from tests.mcp_server.test_reference_tools import server as reference_server

ROOT = Path(__file__).parents[2]
MODULES = ROOT / ".clients" / "node_modules"
NODE = MODULES / "node" / "bin" / "node"
CONFORMANCE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
INSPECTOR = MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
REFERENCE = MODULES / "@modelcontextprotocol" / "server-memory" / "dist" / "index.js"
CODEX = MODULES / "@openai" / "codex" / "bin" / "codex.js"
CLAUDE = MODULES / ".bin" / "claude"
MCPB = MODULES / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"
BASELINE: dict[str, dict[str, list[str]]] = json.loads((Path(__file__).parent / "conformance.json").read_text())

Needs = Callable[..., None]


@pytest.fixture
def needs(request: pytest.FixtureRequest) -> Needs:
    """Skip, or with --require-all fail, where a program is missing."""

    def check(*programs: Path) -> None:
        for program in (NODE, *programs):
            if not program.exists():
                missing = f"{program.relative_to(ROOT)} is missing: `make clients` installs it from npm"
                if request.config.getoption("--require-all"):
                    pytest.fail(missing)
                pytest.skip(missing)

    return check


def offline(home: Path, **more: str) -> dict[str, str]:
    """An environment in which nothing but loopback can be reached by a program that heeds proxies."""
    nowhere = "http://127.0.0.1:9"
    home.mkdir(exist_ok=True)
    return {
        "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1,localhost",
        **more,
    }


def run(
    *words: object, environ: dict[str, str], cwd: Path, timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def settings_of(store: Path) -> dict[str, Any]:
    """The server as clients name it in their settings."""
    needed = {"LOOM_EMBEDDER": "none", "PYTHONPATH": environment()["PYTHONPATH"]}
    return {"command": sys.executable, "args": [*LOOM, "mcp", "--store", str(store)], "env": needed}


# --- the conformance suite -----------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", BASELINE)
def test_the_conformance_suite_passes_but_for_what_is_listed_with_a_reason(
    tmp_path: Path, needs: Needs, revision: str
) -> None:
    needs(CONFORMANCE)
    child = [sys.executable, "-m", "tests.mcp_server.http_child", str(tmp_path / "memory.loom")]
    with subprocess.Popen(
        child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
    ) as serving:
        assert serving.stdout is not None
        port = int(serving.stdout.readline())
        expected = tmp_path / "expected.yml"
        names = [name for listed in BASELINE[revision].values() for name in listed]
        expected.write_text("server:\n" + "".join(f'  - "{name}"\n' for name in names))
        address = f"http://127.0.0.1:{port}/mcp"
        words = ["server", "--url", address, "--requirements", revision, "--expected-failures", expected]
        done = run(NODE, CONFORMANCE, *words, environ=offline(tmp_path / "home"), cwd=tmp_path)
        serving.communicate(timeout=60)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "tools-list" in done.stdout


# --- the inspector -------------------------------------------------------------------------------------------


def test_the_inspectors_command_line_lists_and_calls(tmp_path: Path, needs: Needs) -> None:
    needs(INSPECTOR)
    store, config = tmp_path / "memory.loom", tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"loom": settings_of(store)}}))
    environ = offline(tmp_path / "home", MCP_INSPECTOR_SECRET_STORE="memory")

    def ask(*words: str) -> Any:
        done = run(
            NODE, INSPECTOR, "--cli", "--config", config, "--server", "loom", *words, environ=environ, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert {tool["name"] for tool in ask("--method", "tools/list")["tools"]} == TOOLS.keys()
    words = ["--method", "tools/call", "--tool-name"]
    kept = ask(*words, "remember", "--tool-arg", "text=Heron goes live on 12 May.")
    assert kept["structuredContent"]["memories"][0]["created"] is True
    found = ask(*words, "recall", "--tool-arg", "question=When does Heron go live?")
    assert "12 May" in found["content"][0]["text"]
    assert ask("--method", "resources/list")["resources"][0]["uri"] == "memory://core"
    assert ask("--method", "prompts/list")["prompts"][0]["name"] == "with_memory"


# --- agents --------------------------------------------------------------------------------------------------


def test_claude_code_remembers_and_recalls(tmp_path: Path, needs: Needs) -> None:
    needs(CLAUDE)
    store, config = tmp_path / "memory.loom", tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"loom": settings_of(store)}}))
    results: list[str] = []

    def line(request: Request) -> str | Call:
        said = json.dumps(request.body["messages"])
        if not request.body.get("tools"):
            return "ok"
        if '"name": "mcp__loom__remember"' not in said:
            return Call("mcp__loom__remember", {"text": "Heron goes live on 12 May."})
        if '"name": "mcp__loom__recall"' not in said:
            return Call("mcp__loom__recall", {"question": "When does Heron go live?"})
        results.append(said)
        return "On 12 May."

    with ScriptedModel([line], repeat=True) as model:
        environ = offline(
            tmp_path / "home",
            ANTHROPIC_BASE_URL=model.url,
            ANTHROPIC_API_KEY="none",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
            MCP_CONNECTION_NONBLOCKING="0",
        )
        tools = "mcp__loom__remember,mcp__loom__recall"
        words = [
            "-p",
            "When does Heron go live?",
            "--mcp-config",
            config,
            "--strict-mcp-config",
            "--model",
            "scripted",
        ]
        done = run(CLAUDE, *words, "--allowedTools", tools, environ=environ, cwd=tmp_path)
        offered = model.requests[0].text
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 May" in done.stdout
    # As tools, or by their names where the client loads tools when they are wanted.
    assert all(f"mcp__loom__{name}" in offered for name in TOOLS)
    assert "why" in results[0], results[0]
    with loom.open(store, embedder="none") as memory:
        assert [one.content for one in memory.list().records] == ["Heron goes live on 12 May."]


def test_codex_remembers(tmp_path: Path, needs: Needs) -> None:
    needs(CODEX)
    store, home = tmp_path / "memory.loom", tmp_path / "codex"
    home.mkdir()

    def line(request: Request) -> str | Call:
        if "function_call_output" in json.dumps(request.body["input"]):
            return "Noted."
        return Call("remember", {"text": "Heron goes live on 12 May."}, namespace="mcp__loom")

    with ScriptedModel([line], repeat=True) as model:
        server = settings_of(store)
        (home / "config.toml").write_text(
            f"""
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.scripted]
name = "scripted"
base_url = "{model.openai_url}"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
[mcp_servers.loom]
command = {json.dumps(server["command"])}
args = {json.dumps(server["args"])}
startup_timeout_sec = 60
required = true
[mcp_servers.loom.env]
{"".join(f"{name} = {json.dumps(value)}" + chr(10) for name, value in server["env"].items())}
"""
        )
        environ = offline(tmp_path / "home", CODEX_HOME=str(home), SCRIPTED_KEY="none")
        words = ["exec", "--skip-git-repo-check", "--json", "Remember that Heron goes live on 12 May."]
        done = run(NODE, CODEX, *words, environ=environ, cwd=tmp_path / "home")
        groups = {tool.get("name"): tool for tool in model.requests[0].body["tools"]}
    assert done.returncode == 0, done.stdout + done.stderr
    assert {tool["name"] for tool in groups["mcp__loom"]["tools"]} == TOOLS.keys()
    assert "Noted." in done.stdout
    with loom.open(store, embedder="none") as memory:
        assert [one.content for one in memory.list().records] == ["Heron goes live on 12 May."]


# --- the reference server, the bundle and the registry ---------------------------------------------------------


def test_the_reference_server_answers_the_same_and_reads_the_same_file(tmp_path: Path, needs: Needs) -> None:
    needs(REFERENCE)
    theirs, ours = tmp_path / "theirs.jsonl", tmp_path / "ours.jsonl"
    environ = offline(tmp_path / "home", MEMORY_FILE_PATH=str(theirs))
    reference = StdioServerParameters(command=str(NODE), args=[str(REFERENCE)], env=environ)
    answers = talk(reference, session, "legacy")
    own = talk(reference_server(ours), session)
    for (name, _), expected, got in zip(SESSION, answers, own, strict=True):
        assert got[0] == expected[0], name
        assert got[2] == expected[2], name
        if not expected[0]:
            assert got[1] == expected[1], name
    assert ours.read_bytes() == theirs.read_bytes()

    async def read(client: Any) -> Any:
        return (await client.call_tool("read_graph", {})).structured_content

    assert talk(reference_server(theirs), read) == talk(reference_server(ours), read)


def test_the_bundle_is_one_that_desktop_clients_take(tmp_path: Path, needs: Needs) -> None:
    needs(MCPB)
    bundle = tmp_path / "loom.mcpb"
    done = run(
        NODE, MCPB, "pack", ROOT / "packaging" / "mcpb", bundle, environ=offline(tmp_path / "home"), cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert bundle.is_file()


def test_the_bundle_and_the_registry_entry_name_this_version_and_these_tools() -> None:
    manifest = json.loads((ROOT / "packaging" / "mcpb" / "manifest.json").read_text())
    entry = json.loads((ROOT / "server.json").read_text())
    assert {tool["name"] for tool in manifest["tools"]} == TOOLS.keys()
    pinned = (ROOT / "packaging" / "mcpb" / "pyproject.toml").read_text()
    assert f"loomkeep[embed,mcp]=={loom.__version__}" in pinned
    versions = {manifest["version"], entry["version"], *(package["version"] for package in entry["packages"])}
    assert versions == {loom.__version__}
    assert all(package["identifier"] == "loomkeep" for package in entry["packages"])
    # Limits of the registry's schema.
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert len(entry["name"]) <= 200
    assert 1 <= len(entry["description"]) <= 100
    assert all(one["transport"] == {"type": "stdio"} and one["runtimeHint"] for one in entry["packages"])
    assert all(one.get("value") for package in entry["packages"] for one in package["packageArguments"])
