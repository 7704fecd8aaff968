"""Serve a memory over MCP on standard input and output, with the official SDK.

The tools are operations of the table. The server answers the handshake before it imports the memory, and opens the
memory in a thread after the first request. Only the protocol is written to standard output: the SDK redirects file
descriptor 1 while it serves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

import loom
from loom.errors import InvalidInput, LoomError
from loom.mcp.for_models import INSTRUCTIONS, PROMPT_DESCRIPTION, RESOURCE_DESCRIPTION, core_text, shown, structured
from loom.operations.catalogue import OPERATIONS
from loom.operations.table import Operation

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from loom.everyday import Memory

__all__ = ["CORE", "TOOLS", "MemoryHolder", "make_server", "serve", "server_of", "tool_of"]

TOOLS: Final[Mapping[str, Operation]] = {
    name: operation for name, operation in OPERATIONS.items() if "mcp" not in operation.elsewhere
}
CORE: Final = "memory://core"
_PROMPT: Final = "with_memory"

Context = Any


class MemoryHolder:
    """Opens a memory once, when it is first needed or in the background. Thread-safe."""

    def __init__(self, open_memory: Callable[[], Memory], exists: Callable[[], bool] = lambda: True) -> None:
        self._open = open_memory
        self._exists = exists
        self._lock = threading.Lock()
        self._memory: Memory | None = None
        self._begun = False

    def begin(self) -> None:
        """Import the memory in a thread, and open the store if it exists; otherwise the first call creates it. `get`
        tries again after a failure, and raises its error."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._try, daemon=True).start()

    def _try(self) -> None:
        import_module("loom.everyday")
        with suppress(LoomError, OSError):
            if self._exists():
                self.get().warm_up()

    def get(self) -> Memory:
        with self._lock:
            if self._memory is None:
                self._memory = self._open()
            return self._memory

    def close(self) -> None:
        with self._lock:
            if self._memory is not None:
                self._memory.close()
                self._memory = None


def tool_of(operation: Operation) -> types.Tool:
    """Return the tool of an operation."""
    return types.Tool(
        name=operation.name,
        title=operation.name.capitalize(),
        description=operation.guidance,
        input_schema=operation.input_schema(),
        output_schema=operation.output_schema(),
        annotations=types.ToolAnnotations(
            title=operation.name.capitalize(),
            read_only_hint=operation.read_only,
            destructive_hint=operation.destructive,
            idempotent_hint=operation.idempotent,
            open_world_hint=False,
        ),
    )


def make_server(holder: MemoryHolder, *, read_only: bool = False) -> Server[Any]:
    """Make the server of a memory. `read_only` leaves out the tools that change it."""
    tools = {name: one for name, one in TOOLS.items() if one.read_only or not read_only}
    core = types.Resource(
        uri=CORE, name="core", title="Core memory", description=RESOURCE_DESCRIPTION, mime_type="text/markdown"
    )

    prompt = types.Prompt(
        name=_PROMPT,
        title="Begin with memory",
        description=PROMPT_DESCRIPTION,
        arguments=[
            types.PromptArgument(name="task", description="What you are about to do, in a sentence.", required=True),
            types.PromptArgument(name="budget", description="The most tokens that the memory may take (2000)."),
        ],
    )

    async def list_templates(
        _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[])

    async def list_prompts(_: Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[prompt])

    async def get_prompt(_: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name != _PROMPT:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name[:80]!r}; there is {_PROMPT}")
        return await anyio.to_thread.run_sync(_prompted, holder, params.arguments or {})

    server = server_of(
        "loom",
        tools,
        lambda name: tool_of(tools[name]),
        lambda name, arguments: _called(tools[name], holder, arguments),
        core,
        lambda: core_text(holder.get()),
        title="loom memory",
        description="A durable long-term memory in one local file.",
        instructions=INSTRUCTIONS,
        on_list_resource_templates=list_templates,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )
    server.middleware.append(_open_after_the_first_answer(holder))
    return server


def server_of(
    name: str,
    tools: Collection[str],
    described: Callable[[str], types.Tool],
    call: Callable[[str, Mapping[str, Any]], types.CallToolResult],
    resource: types.Resource,
    read: Callable[[], str],
    **others: Any,
) -> Server[Any]:
    """Make a server of the tools with these names, and of one resource. `call` and `read` run in a thread."""

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(one) for one in tools])

    async def call_tool(_: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in tools:
            raise MCPError(
                types.INVALID_PARAMS, f"there is no tool {params.name[:80]!r}; there are {', '.join(tools)}"
            )
        return await anyio.to_thread.run_sync(call, params.name, params.arguments or {})

    async def list_resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[resource])

    async def read_resource(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        asked = str(params.uri)
        if asked != str(resource.uri):
            raise MCPError(
                types.INVALID_PARAMS, f"there is no resource {asked[:80]!r}; there is {resource.uri}", {"uri": asked}
            )
        try:
            text = await anyio.to_thread.run_sync(read)
        except LoomError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None
        held = types.TextResourceContents(uri=asked, mime_type=resource.mime_type, text=text)
        return types.ReadResourceResult(contents=[held])

    return Server[Any](
        name,
        version=loom.__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        **others,
    )


def _open_after_the_first_answer(holder: MemoryHolder) -> Any:
    async def middleware(context: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(context)
        holder.begin()
        return result

    return middleware


def _called(operation: Operation, holder: MemoryHolder, arguments: Mapping[str, Any]) -> types.CallToolResult:
    """Run a call. An error is part of the result, so that the model can read it."""
    try:
        given = {**operation.defaults_for_models, **_offered(operation, arguments)}
        answer = operation.call(holder.get(), given)
    except (LoomError, OSError) as error:
        return types.CallToolResult(content=[_text(str(error))], is_error=True)
    return types.CallToolResult(content=[_text(shown(answer))], structured_content=structured(answer))


def _offered(operation: Operation, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments. Raise `InvalidInput` for one that the schema does not offer to models."""
    offered = operation.input_schema()["properties"]
    for name in arguments:
        if name not in offered:
            raise InvalidInput(f"{operation.name} has no argument {name[:80]!r}; it takes {', '.join(offered)}")
    return arguments


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def _prompted(holder: MemoryHolder, arguments: Mapping[str, str]) -> types.GetPromptResult:
    unknown = set(arguments) - {"task", "budget"}
    budget = arguments.get("budget", "2000")
    if unknown or not arguments.get("task") or not budget.isdecimal() or len(budget) > 7:
        raise MCPError(types.INVALID_PARAMS, f"{_PROMPT} takes task (a text) and budget (a number of tokens)")
    try:
        answer = OPERATIONS["context"].call(
            holder.get(), {"question": arguments["task"], "budget": int(budget), "wait_s": 0.0}
        )
    except LoomError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    message = types.PromptMessage(role="user", content=_text(shown(answer)))
    return types.GetPromptResult(description=PROMPT_DESCRIPTION, messages=[message])


def serve(server: Server[Any], close: Callable[[], None] = lambda: None) -> None:
    """Serve over standard input and output until the input ends."""

    async def run() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    try:
        anyio.run(run)
    finally:
        close()
