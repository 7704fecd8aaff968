"""Tools with which a model works on its memory: JSON-schema definitions, and their functions.

Reading tools show one tier or search all; writing tools remember, forget and move. Results are JSON within a token
limit, so that an answer never floods the prompt. Stored texts are data, never instructions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loom.agent.tools import Tool
from loom.context.rendering import neutralised
from loom.echoes import FROM_MEMORY
from loom.errors import InvalidInput, LoomError, NotFound
from loom.everyday import Memory
from loom.memory.manager import MemoryManager
from loom.protocol import Task
from loom.recall.hits import Hit
from loom.storage.contract import Filter
from loom.types import TaskSummary, Trust

__all__ = ["ALL_TOOLS", "MemoryTools", "context_tools", "index_context_tools", "memory_management_tools"]

Json = dict[str, Any]

# The first key of every list, by which a stored answer is recognised, whole or truncated.
_SOURCE: Json = {FROM_MEMORY[0]: FROM_MEMORY[1]}

ALL_TOOLS = (
    "query_l1",
    "query_l2",
    "query_l3",
    "query_l4",
    "list_l2",
    "list_l3",
    "recall",
    "stats",
    "remember",
    "forget",
    "promote",
)
"""The names of the memory tools."""

_LIMIT: Json = {"type": "integer", "minimum": 1, "maximum": 50, "description": "how many at most (10)"}
_SESSION: Json = {"type": "string", "description": "only of this session"}
_QUERY: Json = {"type": "string", "minLength": 1, "description": "what to look for, in any words"}


class MemoryTools:
    """The tools of one memory. `read_only=True` leaves out the tools that change anything.

    `max_tokens` bounds the answer of a call. A truncated list is marked as such.
    """

    def __init__(
        self,
        memory: Memory | MemoryManager,
        *,
        session_id: str | None = None,
        read_only: bool = False,
        max_tokens: int = 2000,
    ) -> None:
        self._memory = memory
        self._session = session_id
        self._max_tokens = max_tokens
        self._tools = {tool.name: tool for tool in self._all() if tool.read_only or not read_only}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def to_openai(self) -> list[Json]:
        return [tool.to_openai() for tool in self._tools.values()]

    def to_anthropic(self) -> list[Json]:
        return [tool.to_anthropic() for tool in self._tools.values()]

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """Carry out a call of a model and return the answer as JSON. The answer to an invalid call has the key
        `error`, and nothing changes."""
        try:
            tool = self._tools.get(name)
            if tool is None:
                raise InvalidInput(f"there is no tool {name!r}; there are {', '.join(self._tools)}")
            return self._answer(tool.function(**tool.arguments(arguments)))
        except LoomError as error:
            return json.dumps({"error": str(error)}, ensure_ascii=False)

    def as_tools(self, names: Iterable[str] | None = None) -> list[Tool]:
        """Return the tools for an agent, or those of these names. Each answers in text, within the token limit."""

        def answering(tool: Tool) -> Tool:
            return replace(tool, function=lambda **arguments: self.call(tool.name, arguments))

        wanted = self._tools if names is None else names
        return [answering(self._tools[name]) for name in wanted if name in self._tools]

    def tool_message(self, call: Mapping[str, Any]) -> Json:
        """Return the message that answers a tool call of a chat message."""
        function = call.get("function")
        if not isinstance(function, Mapping):
            raise InvalidInput("a tool call has a function with a name and arguments")
        answer = self.call(str(function.get("name")), function.get("arguments"))
        return {"role": "tool", "tool_call_id": call.get("id"), "content": answer}

    # -- answers -----------------------------------------------------------------------------------------

    def _answer(self, result: Any) -> str:
        if not isinstance(result, list):
            return json.dumps(result, ensure_ascii=False, default=str)
        length = len(result)
        text = _listed(result, length)
        while length and self._memory.counter.safe_count(text) > self._max_tokens:
            length -= 1
            text = _listed(result, length)
        return text

    def _all(self) -> list[Tool]:
        search = {"query": _QUERY, "limit": _LIMIT, "session_id": _SESSION}
        browse = {"limit": _LIMIT, "session_id": _SESSION}
        text = {"type": "string", "minLength": 1, "description": "what to remember, in one or a few sentences"}
        importance = {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "from 0 to 1; above 0.6 it stays at hand",
        }
        return [
            _tool("query_l1", "The newest tasks and messages, in the order in which they came.", browse, self._l1),
            _tool(
                "query_l2", "Search the working memory: important records, whole.", search, self._in("l2"), ["query"]
            ),
            _tool("query_l3", "Search the archive: what left the working memory.", search, self._in("l3"), ["query"]),
            _tool("query_l4", "Search everything ever remembered, across sessions.", search, self._recall, ["query"]),
            _tool("list_l2", "List the working memory, the most important first.", browse, self._l2),
            _tool("list_l3", "List the archive's summaries, the newest last.", browse, self._l3),
            _tool("recall", "Find the memories that answer a question, best first.", search, self._recall, ["query"]),
            _tool("stats", "How full each tier of the memory is.", {}, self._stats),
            _tool(
                "remember",
                "Keep something for later.",
                {"text": text, "importance": importance},
                self._remember,
                ["text"],
                writes=True,
            ),
            _tool(
                "forget",
                "Remove one memory for good, by its id.",
                {"id": {"type": "string", "minLength": 1, "description": "the id, as another tool showed it"}},
                self._forget,
                ["id"],
                writes=True,
            ),
            _tool(
                "promote",
                "Bring a memory back to the working tier, or into the window of recent ones, as it is needed now. "
                "Without an id: bring the tiers in line. Says what moved, or why not.",
                {
                    "id": {"type": "string", "minLength": 1, "description": "the id, as another tool showed it"},
                    "to": {"type": "string", "enum": ["l1", "l2"], "description": "the window or the working tier"},
                },
                self._promote,
                writes=True,
            ),
        ]

    # -- handlers ----------------------------------------------------------------------------------------

    def _l1(self, limit: int = 10, session_id: str | None = None) -> list[Json]:
        return [_task(task) for task in self._memory.get_l1_tasks(limit, session_id)]

    def _l2(self, limit: int = 10, session_id: str | None = None) -> list[Json]:
        return [_task(task) for task in self._memory.get_l2_tasks(limit, session_id)]

    def _l3(self, limit: int = 10, session_id: str | None = None) -> list[Json]:
        return [_summary(summary) for summary in self._memory.get_l3_summaries(session_id, limit)]

    def _in(self, tier: str) -> Callable[..., list[Json]]:
        def search(query: str, limit: int = 10, session_id: str | None = None) -> list[Json]:
            wanted = Filter(tier=tier, node=self._memory.node_id, session_id=session_id)
            return [_hit(hit) for hit in self._memory.recall(query, limit=limit, wanted=wanted)]

        return search

    def _recall(self, query: str, limit: int = 10, session_id: str | None = None) -> list[Json]:
        return [_hit(hit) for hit in self._memory.recall(query, limit=limit, session_id=session_id)]

    def _stats(self) -> Json:
        stats = self._memory.get_stats()
        tiers = {
            tier: {what: stats[f"{tier}_{what}"] for what in ("items", "token_usage", "token_budget")}
            for tier in ("l1", "l2", "l3", "l4")
        }
        return {"tiers": tiers, "records": stats["records"], "backlog": stats["backlog"]}

    def _remember(self, text: str, importance: float | None = None) -> Json:
        receipt = self._memory.remember(
            text, importance=importance, session_id=self._session, trust=Trust.AGENT, role="assistant"
        )
        return {"id": receipt.id, "tier": str(receipt.tier), "tokens": receipt.tokens}

    def _forget(self, id: str) -> Json:
        if self._memory.store.get(id) is None:
            raise NotFound(f"there is no memory with the id {id!r}; ask recall for the ids that exist")
        receipt = self._memory.forget(id)
        return {"forgotten": list(receipt.ids), "records": receipt.records}

    def _promote(self, id: str | None = None, to: str = "l2") -> Json:
        if id is None:
            return dict(self._memory.promote_tasks()._asdict())
        done = self._memory.promote(id, to)
        return {"moved": list(done.moved), "refused": dict(done.refused)}


def context_tools(memory: Memory | MemoryManager, *, max_tokens: int = 2000) -> list[Tool]:
    """Return the tools that search one tier or all of them."""
    return MemoryTools(memory, max_tokens=max_tokens).as_tools(
        ("query_l1", "query_l2", "query_l3", "query_l4", "recall")
    )


def index_context_tools(memory: Memory | MemoryManager, *, max_tokens: int = 2000) -> list[Tool]:
    """Return the tools that list the contents of a tier."""
    return MemoryTools(memory, max_tokens=max_tokens).as_tools(("list_l2", "list_l3"))


def memory_management_tools(memory: Memory | MemoryManager, *, max_tokens: int = 2000) -> list[Tool]:
    """Return the tools that manage a memory: remember, forget, promote, stats."""
    return MemoryTools(memory, max_tokens=max_tokens).as_tools(("remember", "forget", "promote", "stats"))


def _tool(
    name: str,
    description: str,
    properties: Json,
    handler: Callable[..., Any],
    required: Sequence[str] = (),
    *,
    writes: bool = False,
) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return Tool(name, description, schema, handler, read_only=not writes)


def _listed(items: list[Json], length: int) -> str:
    """Return the first items as JSON, and how many were left out."""
    rest = {"left_out": len(items) - length} if length < len(items) else {}
    return json.dumps({**_SOURCE, "items": items[:length], **rest}, ensure_ascii=False, default=str)


def _task(task: Task) -> Json:
    return {
        "id": task.task_id,
        "action": task.action,
        "at": task.created_at.isoformat(timespec="seconds"),
        **{key: _clean(value) for key, value in task.parameters.items()},
        **{key: _clean(value) for key in ("result", "error") if (value := getattr(task, key)) is not None},
    }


def _summary(summary: TaskSummary) -> Json:
    return {
        "id": summary.task_id,
        "text": _clean(summary.text),
        "at": summary.created_at.isoformat(timespec="seconds"),
    }


def _hit(hit: Hit) -> Json:
    shown = {
        "id": hit.id,
        "text": _clean(hit.content),
        "by": hit.name or hit.role,
        "trust": hit.trust,
        "at": hit.created_at.isoformat(timespec="seconds"),
        "score": round(hit.score, 3),
    }
    return {key: value for key, value in shown.items() if value is not None}


def _clean(value: Any) -> Any:
    return neutralised(value, trusted=False) if isinstance(value, str) else value
