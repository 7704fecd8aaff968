"""Carries out the calls that a model requests. Every call has a time limit and gets an answer.

A function that is not async runs in a daemon thread, which never delays the end of the program. If it exceeds the
time limit, the model is told so, and the thread is left to end by itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable, iscoroutinefunction
from itertools import groupby
from typing import Any, TypeVar

from loom.agent.chat_models import ToolCall
from loom.agent.tools import Tool
from loom.errors import LoomError
from loom.protocol import error_text, value_text

__all__ = ["ToolAnswer", "call_all", "in_own_thread"]

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer to a call, as the model reads it. `error` is the reason of a failure."""

    call: ToolCall
    text: str
    error: str | None = None


async def in_own_thread(work: Callable[[], _Value]) -> _Value:
    """Run blocking work in a new thread. Unlike the loop's pool, the end of the loop does not wait for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Value] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not done.done():
            if error is None:
                done.set_result(value)
            else:
                done.set_exception(error)

    def run() -> None:
        value: Any = None
        failure: BaseException | None = None
        try:
            value = context.run(work)
        except StopIteration as error:  # a future refuses this one
            failure = RuntimeError(f"{type(error).__name__}: {error}")
        except BaseException as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=run, name="loom-agent", daemon=True).start()
    return await done


async def call_all(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    timeout_s: float,
    admit: Callable[[ToolCall], str | None],
) -> list[ToolAnswer]:
    """Return the answers to calls, in their order. Neighbouring calls of tools that only read run in parallel.

    `admit` is called before each call. It returns the reason to refuse the call, or None.
    """

    async def one(call: ToolCall) -> ToolAnswer:
        refused = admit(call)
        return _failed(call, refused) if refused is not None else await _answer(call, tools, timeout_s)

    def reads(call: ToolCall) -> bool:
        found = tools.get(call.name)
        return found is not None and found.read_only

    answers: list[ToolAnswer] = []
    for together, group in groupby(calls, reads):
        if together:
            answers += await asyncio.gather(*map(one, group))
        else:
            answers += [await one(call) for call in group]
    return answers


async def _answer(call: ToolCall, tools: Mapping[str, Tool], timeout_s: float) -> ToolAnswer:
    tool = tools.get(call.name)
    if tool is None:
        return _failed(call, f"there is no tool {call.name!r}; there are {', '.join(tools) or 'none'}")
    limit_s = timeout_s if tool.timeout_s is None else tool.timeout_s
    limit = asyncio.timeout(None if limit_s == math.inf else limit_s)
    try:
        arguments = tool.arguments(call.arguments)
        async with limit:
            value = await _called(tool, arguments)
        return ToolAnswer(call, "" if value is None else value_text(value))
    except LoomError as error:
        return _failed(call, str(error))
    except Exception as error:  # the model reads any error of a tool
        late = isinstance(error, TimeoutError) and limit.expired()
        return _failed(call, f"{tool.name} did not answer within {limit_s:g} seconds" if late else error_text(error))


async def _called(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    if iscoroutinefunction(tool.function):
        return await tool.function(**arguments)
    value = await in_own_thread(lambda: tool.function(**arguments))
    return await value if isawaitable(value) else value


def _failed(call: ToolCall, reason: str) -> ToolAnswer:
    return ToolAnswer(call, json.dumps({"error": reason}, ensure_ascii=False), reason)
