"""The tools of a real MCP server, over stdio, as tools of an agent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loom.agent import Agent, OpenAIChat
from loom.agent.mcp_server import McpServer
from loom.errors import Closed, ToolUnavailable
from loom.testing import Call, ScriptedModel, ScriptLine

pytest.importorskip("mcp", reason="the extra [mcp] is not installed")

SERVER = """
import logging
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

logging.disable()
server = MCPServer("adding")


@server.tool()
def add(first: int, second: int) -> str:
    "Adds two numbers."
    if first < 0:
        raise ToolError("negative numbers are out")
    return str(first + second)


server.run()
"""


def test_an_agent_calls_the_tools_of_a_server_and_is_told_its_errors(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    calls: list[ScriptLine] = [
        Call("add", {"first": 1, "second": 2}),
        Call("add", {"first": -1, "second": 2}),
        "Three.",
    ]
    with McpServer(sys.executable, str(script)) as server, ScriptedModel(calls) as model:
        (tool,) = server
        assert (tool.name, tool.description) == ("add", "Adds two numbers.")
        with Agent.create(OpenAIChat("scripted", model.openai_url), tools=server) as agent:
            assert str(agent.run_sync("What are 1 and 2?")) == "Three."
        results = [one["content"] for one in model.requests[-1].body["messages"] if one["role"] == "tool"]
    assert results[0] == "3"
    assert "negative numbers are out" in results[1]
    with pytest.raises(Closed):
        tool.function(first=1, second=1)


def test_a_server_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolUnavailable, match="nowhere"):
        McpServer(str(tmp_path / "nowhere"))
