"""Sessions of real MCP clients with `loom mcp` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

LOOM = ("-c", "import sys; from loom.cli import main; sys.exit(main())")

_Result = TypeVar("_Result")


def environment() -> dict[str, str]:
    """That of this process, for a server by words alone that finds the package."""
    return {**os.environ, "LOOM_EMBEDDER": "none", "PYTHONPATH": os.pathsep.join(sys.path)}


def parameters(store: Path, *options: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=[*LOOM, "mcp", "--store", str(store), *options], env=environment()
    )


def talk(server: StdioServerParameters, use: Callable[[Client], Awaitable[_Result]], mode: Any = "auto") -> _Result:
    """Connect, use the client, close."""

    async def run() -> _Result:
        with anyio.fail_after(120):
            async with Client(server, mode=mode) as client:
                return await use(client)

    return anyio.run(run)


def text_of(result: CallToolResult) -> str:
    return "\n".join(one.text for one in result.content if one.type == "text")


class RawServer:
    """`loom mcp`, controlled line by line, for messages that no well-behaved client sends."""

    def __init__(self, store: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *LOOM, "mcp", "--store", str(store), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        self._ids = 0

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request and the answer to it."""
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}}
        self.send(json.dumps(message).encode())
        return self.answer(self._ids)

    def answer(self, id: int) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == id:
                return message
        raise AssertionError(f"the server ended: {self.process.stderr.read().decode()}")  # type: ignore[union-attr]

    def begin(self, version: str = "2025-06-18") -> dict[str, Any]:
        who = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
        told = self.ask("initialize", who)
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return told

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def close(self) -> tuple[int, bytes]:
        """End the input. Returns the exit code and the output of the server outside the protocol."""
        output, _ = self.process.communicate(timeout=60)
        return self.process.returncode, output

    def __enter__(self) -> RawServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()
