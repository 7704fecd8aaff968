"""The tools of an MCP server as tools of an agent. Needs the extra `[mcp]`.

    with McpServer("npx", "-y", "@modelcontextprotocol/server-filesystem", ".") as server:
        agent = Agent.create(llm, tools=[lookup, *server])

The connection runs in a thread with its own event loop, so that agents on any loop, or on none, can use it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from loom.agent.tools import Tool
from loom.errors import Closed, InvalidInput, ToolUnavailable
from loom.protocol import Closing

__all__ = ["McpServer"]


class McpServer(Closing):
    """A server that is started as a process (a command and its arguments), or reached at an `http://` address.

    Iterate over it for its tools. A call that the server reports as failed raises, and the model reads the reason. A
    server that does not complete the handshake within `timeout_s` raises `ToolUnavailable`.
    """

    def __init__(
        self, command: str, *arguments: str, env: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> None:
        try:
            from mcp import StdioServerParameters
            from mcp.client import Client
        except ImportError:
            raise InvalidInput("tools of MCP servers need a package: pip install 'loomkeep[mcp]'") from None
        is_address = command.startswith(("http://", "https://"))
        target: Any = command
        if not is_address:
            target = StdioServerParameters(
                command=command, args=list(arguments), env=None if env is None else dict(env)
            )
        self._name = command
        self._open: Any = lambda: Client(target, read_timeout_seconds=timeout_s)
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._ready: Future[list[Tool]] = Future()
        self._client: Any = None
        self._thread = threading.Thread(target=self._work, name="loom-mcp", daemon=True)
        self._thread.start()
        try:
            self._tools = self._ready.result(timeout_s)
        except TimeoutError:
            self.close()
            raise ToolUnavailable(
                f"the MCP server {command!r} did not answer within {timeout_s:g} seconds; try its command in a shell"
            ) from None

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def close(self) -> None:
        """End the connection, and the server if it was started here. Safe to call twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(10)

    # -- in the thread ---------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._loop.run_until_complete(self._connected())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(_unreachable(self._name, error))
        finally:
            self._loop.close()

    async def _connected(self) -> None:
        async with self._open() as client:
            self._client = client
            tools: list[Tool] = []
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                tools += [self._tool(one) for one in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    break
            self._ready.set_result(tools)
            await self._ended.wait()
            self._client = None

    def _tool(self, described: Any) -> Tool:
        hints = described.annotations

        def call(**arguments: Any) -> str:
            if self._client is None or self._loop.is_closed():
                raise Closed(f"the connection to the MCP server {self._name!r} is closed")
            made = asyncio.run_coroutine_threadsafe(self._client.call_tool(described.name, arguments), self._loop)
            return _text_of(made.result())

        return Tool(
            described.name,
            described.description or described.name,
            described.input_schema,
            call,
            read_only=bool(hints is not None and hints.read_only_hint),
        )


def _text_of(result: Any) -> str:
    """Return the text of an answer. Parts that are not text are named by their type."""
    parts = [getattr(part, "text", None) or f"[{part.type}]" for part in result.content]
    text = "\n".join(parts)
    if result.is_error:
        raise InvalidInput(text or "the tool failed without a reason")
    return text


def _unreachable(name: str, error: BaseException) -> ToolUnavailable:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return ToolUnavailable(f"the MCP server {name!r} cannot be reached: {type(error).__name__}: {error}")
