"""Asking the sources, all at once, each under the same time limit. One that fails or is late costs only its part.

Local sources answer in the calling thread, others in daemon threads that nobody waits for beyond the limit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loom.context.items import Candidate
from loom.context.sources import LEAST_ITEM_TOKENS, ContextSource, SourceItem, as_candidate
from loom.errors import Closed
from loom.protocol import Task

__all__ = ["SourceAnswer", "query_sources", "query_sources_async"]

log = logging.getLogger("loom.context")

# A source that offers as much as the room has offered enough; asking twice costs. One item counts for at most this
# part of the room: a long one comes after several short ones, or not at all.
_LARGEST_PART = 4


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """What a source came up with; `error` says why it is empty, if it failed."""

    source: ContextSource
    candidates: tuple[Candidate, ...] = ()
    error: str = ""


def query_sources(sources: Sequence[ContextSource], task: Task, room: int, timeout_s: float) -> list[SourceAnswer]:
    """The answers of all sources, in their order. Each is asked for as many items as fit into so many tokens.

    Raises `Closed` where a local source reads from a closed memory; every other failure is in the answer.
    """
    deadline = time.monotonic() + timeout_s
    waiting = {index: _InThread(source, task, room) for index, source in enumerate(sources) if not source.local}
    answers = {index: _ask(source, task, room) for index, source in enumerate(sources) if source.local}
    answers |= {index: thread.answer(deadline, timeout_s) for index, thread in waiting.items()}
    return [answers[index] for index in range(len(sources))]


async def query_sources_async(
    sources: Sequence[ContextSource], task: Task, room: int, timeout_s: float
) -> list[SourceAnswer]:
    """The same without blocking the event loop: coroutines run on it, everything else in threads."""
    import asyncio
    import inspect

    awaited = {
        index: asyncio.ensure_future(_await_source(source, task, room))
        for index, source in enumerate(sources)
        if inspect.iscoroutinefunction(source.get_context)
    }
    others = [index for index in range(len(sources)) if index not in awaited]
    answers: dict[int, SourceAnswer] = {}
    deadline = time.monotonic() + timeout_s
    try:
        if others:
            blocking = [sources[index] for index in others]
            answered = await asyncio.to_thread(query_sources, blocking, task, room, timeout_s)
            answers = dict(zip(others, answered, strict=True))
        if awaited:
            await asyncio.wait(awaited.values(), timeout=max(0.0, deadline - time.monotonic()))
    finally:
        for future in awaited.values():
            future.cancel()
    for index, future in awaited.items():
        done = future.done() and not future.cancelled()
        answers[index] = future.result() if done else _late(sources[index], timeout_s)
    return [answers[index] for index in range(len(sources))]


async def _await_source(source: ContextSource, task: Task, room: int) -> SourceAnswer:
    try:
        limit = _fitting(source, source.item_tokens(task), room)
        offered: Any = source.get_context(task, limit)
        return _answer(source, await offered, limit)
    except Exception as error:
        return _failed(source, error)


def _ask(source: ContextSource, task: Task, room: int) -> SourceAnswer:
    """What a source offers; where it has more and its items are smaller than it thought, as many as fit of those."""
    try:
        most = _fitting(source, LEAST_ITEM_TOKENS, room)
        limit = _fitting(source, source.item_tokens(task), room)
        answer = _answer(source, _offered(source, task, limit), limit)
        count, part = len(answer.candidates), room // _LARGEST_PART
        tokens = sum(min(one.tokens, part) for one in answer.candidates)
        if count < limit or limit >= most or tokens >= room:
            return answer
        limit = _fitting(source, max(LEAST_ITEM_TOKENS, tokens // count), room)
        return _answer(source, _offered(source, task, limit), limit)
    except Exception as error:
        if source.local and isinstance(error, Closed):
            raise  # the memory itself is closed: a prompt without it would look like one of an empty memory
        return _failed(source, error)


def _fitting(source: ContextSource, tokens_each: int, room: int) -> int:
    """How many items of a size fit into so many tokens, within reason."""
    return max(source.fewest_items, min(source.most_items, room // tokens_each))


def _offered(source: ContextSource, task: Task, limit: int) -> Iterable[SourceItem]:
    offered = source.get_context(task, limit)
    if isinstance(offered, Awaitable):
        import asyncio

        return asyncio.run(_awaited(offered))
    return offered


async def _awaited(offered: Awaitable[Iterable[SourceItem]]) -> Iterable[SourceItem]:
    return await offered


def _answer(source: ContextSource, offered: Iterable[SourceItem], limit: int) -> SourceAnswer:
    candidates = [as_candidate(one, source, rank) for rank, one in zip(range(4 * limit), offered, strict=False)]
    return SourceAnswer(source, tuple(one for one in candidates if one.text.strip() or _answers_a_call(one)))


def _answers_a_call(candidate: Candidate) -> bool:
    """Whether it is the result of a tool call, which belongs to its call even where it is empty."""
    data = candidate.message or {}
    content = data.get("content")
    parts = content if isinstance(content, list) else ()
    return "tool_call_id" in data or any(isinstance(part, Mapping) and "tool_use_id" in part for part in parts)


def _failed(source: ContextSource, error: Exception) -> SourceAnswer:
    # The kind alone goes to the log: a message may quote what was stored.
    log.warning("the context source %s failed (%s)", source.name, type(error).__name__)
    return SourceAnswer(source, error=f"{type(error).__name__}: {error}")


def _late(source: ContextSource, timeout_s: float) -> SourceAnswer:
    log.warning("the context source %s gave no answer in %s s", source.name, timeout_s)
    return SourceAnswer(source, error=f"no answer within {timeout_s:g} s")


class _InThread:
    """One source in a thread of its own. A daemon: one that never returns must not keep the process alive."""

    def __init__(self, source: ContextSource, task: Task, room: int) -> None:
        self._source = source
        self._answer: SourceAnswer | None = None
        self._done = threading.Event()
        thread = threading.Thread(target=self._run, args=(task, room), name=f"loom-{source.name}", daemon=True)
        thread.start()

    def _run(self, task: Task, room: int) -> None:
        self._answer = _ask(self._source, task, room)
        self._done.set()

    def answer(self, deadline: float, timeout_s: float) -> SourceAnswer:
        self._done.wait(max(0.0, deadline - time.monotonic()))
        return self._answer or _late(self._source, timeout_s)
