"""Asking the sources, each under the same time limit. A source that fails or is late loses only its own part.

Sources outside the memory are asked first, all at once, in daemon threads or on the event loop. Local sources then
answer in the calling thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from loom.context.findings import Findings
from loom.context.items import Candidate
from loom.context.sources import LEAST_ITEM_TOKENS, ContextSource, SourceItem, as_candidate
from loom.errors import Closed
from loom.protocol import Task

__all__ = ["SourceAnswer", "SourceQuery"]

log = logging.getLogger("loom.context")

# A source is not asked again if its items fill the room. Each item counts for at most the room divided by this
# number: a long item follows several short ones, or is left out.
_LARGEST_PART = 4


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """The answer of a source. `error` says why it failed, if it did."""

    source: ContextSource
    candidates: tuple[Candidate, ...] = ()
    error: str = ""


class SourceQuery:
    """One request to all sources. Sources that are not local start at once, each in its own thread.

    First call `wait` for them, then `ask_local`, which reads in the calling thread. Thus no snapshot of a memory is
    held while outside sources work. With `on_loop`, coroutines run on the event loop instead: await `run_coroutines`
    first.
    """

    def __init__(
        self, sources: Sequence[ContextSource], task: Task, room: int, timeout_s: float, *, on_loop: bool = False
    ) -> None:
        """Ask each source for as many items as fit into this many tokens."""
        self._sources = sources
        self._room = room
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._findings = Findings(task)
        self._answers: dict[int, SourceAnswer] = {}
        self._coroutines = {at for at, one in enumerate(sources) if on_loop and iscoroutinefunction(one.get_context)}
        self._threads = {
            at: _InThread(source, self._findings, room)
            for at, source in enumerate(sources)
            if not source.local and at not in self._coroutines
        }

    async def run_coroutines(self) -> None:
        """Await the sources whose `get_context` is a coroutine, within the time limit."""
        import asyncio

        running = {at: asyncio.ensure_future(self._awaited(self._sources[at])) for at in self._coroutines}
        try:
            if running:
                await asyncio.wait(running.values(), timeout=self._time_left())
        finally:
            for future in running.values():
                future.cancel()
        for at, future in running.items():
            done = future.done() and not future.cancelled()
            self._answers[at] = future.result() if done else _late(self._sources[at], self._timeout_s)

    async def _awaited(self, source: ContextSource) -> SourceAnswer:
        try:
            limit = _fitting(source, source.item_tokens(self._findings.task), self._room)
            offered: Any = source.offer(self._findings, limit)
            return _answer(source, await offered, limit)
        except Exception as error:
            return _failed(source, error)

    def wait(self) -> None:
        """Wait for the threads, within the time limit."""
        for at, thread in self._threads.items():
            self._answers[at] = thread.answer(self._time_left()) or _late(self._sources[at], self._timeout_s)

    def _time_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def ask_local(self) -> list[SourceAnswer]:
        """Ask the local sources, and return the answers of all sources in order.

        Raises `Closed` if a local source reads from a closed memory. Every other failure is in its answer.
        """
        waiting = [at for at in range(len(self._sources)) if at not in self._answers]
        while waiting:
            names = {self._sources[at].name for at in waiting}
            at = next((at for at in waiting if names.isdisjoint(self._sources[at].after)), waiting[0])
            waiting.remove(at)
            self._answers[at] = _ask(self._sources[at], self._findings, self._room)
        return [self._answers[at] for at in range(len(self._sources))]


def _ask(source: ContextSource, findings: Findings, room: int) -> SourceAnswer:
    """The offers of a source. If its items are smaller than expected and it has more of them, ask again for as many
    as fit."""
    try:
        most = _fitting(source, LEAST_ITEM_TOKENS, room)
        limit = _fitting(source, source.item_tokens(findings.task), room)
        answer = _answer(source, _offered(source, findings, limit), limit)
        count, part = len(answer.candidates), room // _LARGEST_PART
        tokens = sum(min(one.tokens, part) for one in answer.candidates)
        if count < limit or limit >= most or tokens >= room:
            return answer
        limit = _fitting(source, max(LEAST_ITEM_TOKENS, tokens // count), room)
        return _answer(source, _offered(source, findings, limit), limit)
    except Exception as error:
        if source.local and isinstance(error, Closed):
            raise  # a prompt without the items of a closed memory would look like the prompt of an empty one
        return _failed(source, error)


def _fitting(source: ContextSource, tokens_each: int, room: int) -> int:
    """The number of items of this size that fit into this many tokens, within bounds."""
    return max(source.fewest_items, min(source.most_items, room // tokens_each))


def _offered(source: ContextSource, findings: Findings, limit: int) -> Iterable[SourceItem]:
    offered = source.offer(findings, limit)
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
    """Whether the item is the result of a tool call, which stays with its call even if it is empty."""
    data = candidate.message or {}
    content = data.get("content")
    parts = content if isinstance(content, list) else ()
    return "tool_call_id" in data or any(isinstance(part, Mapping) and "tool_use_id" in part for part in parts)


def _failed(source: ContextSource, error: Exception) -> SourceAnswer:
    # Log only the type: the message may quote stored text.
    log.warning("the context source %s failed (%s)", source.name, type(error).__name__)
    return SourceAnswer(source, error=f"{type(error).__name__}: {error}")


def _late(source: ContextSource, timeout_s: float) -> SourceAnswer:
    log.warning("the context source %s gave no answer in %s s", source.name, timeout_s)
    return SourceAnswer(source, error=f"no answer within {timeout_s:g} s")


class _InThread:
    """One source in a daemon thread. A source that never returns must not keep the process alive."""

    def __init__(self, source: ContextSource, findings: Findings, room: int) -> None:
        self._answer: SourceAnswer | None = None
        self._work = (source, findings, room)
        self._thread = threading.Thread(target=self._run, name=f"loom-{source.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._answer = _ask(*self._work)

    def answer(self, timeout_s: float) -> SourceAnswer | None:
        self._thread.join(timeout_s)
        return self._answer
