"""The events of a run, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loom.agent.chat_models import ToolCall, Usage
from loom.context.orchestrator import Context
from loom.protocol import TaskStatus

__all__ = ["AgentEvent", "AgentResult", "AgentStats", "Called", "Finished", "Prompted", "Returned", "Said"]

Stop = Literal["end", "length", "refusal", "failure", "cancelled"]


@dataclass(frozen=True, slots=True)
class Prompted:
    """A prompt was built from memory. `context` has its items with their reasons; None in minimal mode."""

    tokens: int
    context: Context | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the model's text, as it arrived."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """The model requested a tool call."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Returned:
    """A tool has answered. `text` is the answer for the model, `error` the reason of a failure."""

    call: ToolCall
    text: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The run has ended. The last event of every run."""

    result: AgentResult


AgentEvent = Prompted | Said | Called | Returned | Finished
"""The events that `Agent.stream` yields."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """The result of a run. `str(result)` is the answer, or the reason why there is none.

    `stop` is "end" for a whole answer, "length" for one that reached `max_tokens`, "refusal", "failure" or
    "cancelled". `task_id` names the run in memory; its steps have it as their `parent_task_id`. `usage` counts this
    node alone, `tokens_spent` this node and all nodes to which it delegated. A model call that was abandoned counts
    with the prompt and the longest answer it may have, until it has ended. `tools` counts the calls of each tool.
    """

    text: str
    status: TaskStatus
    stop: Stop = "end"
    error: str | None = None
    task_id: str = ""
    session_id: str = ""
    usage: Usage = field(default_factory=Usage)
    model_calls: int = 0
    tool_calls: int = 0
    tokens_spent: int = 0
    seconds: float = 0.0
    tools: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if there is an answer."""
        return self.status is TaskStatus.COMPLETED

    def __str__(self) -> str:
        return self.text if self.ok else f"no answer: {self.error}"


@dataclass(frozen=True, slots=True)
class AgentStats:
    """The totals of an agent since it was made. `usage.cached` counts prompt tokens that the service had cached."""

    runs: int = 0
    failures: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)

    def after(self, result: AgentResult) -> AgentStats:
        """Return the totals with one more run."""
        return AgentStats(
            self.runs + 1,
            self.failures + (not result.ok),
            self.model_calls + result.model_calls,
            self.tool_calls + result.tool_calls,
            self.usage + result.usage,
        )
