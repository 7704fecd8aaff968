"""Agents on this memory: a model, tools, and a loop that remembers. Names are loaded at their first use."""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.agent.chat_models import AnthropicChat, OpenAIChat
    from loom.agent.loop import Agent
    from loom.agent.memory_tools import context_tools, index_context_tools, memory_management_tools
    from loom.agent.outcome import AgentEvent, AgentResult, Called, Finished, Prompted, Returned, Said
    from loom.agent.tools import Tool, as_tool, tool

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentResult",
    "AnthropicChat",
    "Called",
    "Finished",
    "OpenAIChat",
    "Prompted",
    "Returned",
    "Said",
    "Tool",
    "as_tool",
    "context_tools",
    "index_context_tools",
    "memory_management_tools",
    "tool",
]

_HOMES = {
    "loom.agent.loop": ("Agent",),
    "loom.agent.chat_models": ("AnthropicChat", "OpenAIChat"),
    "loom.agent.memory_tools": ("context_tools", "index_context_tools", "memory_management_tools"),
    "loom.agent.outcome": ("AgentEvent", "AgentResult", "Called", "Finished", "Prompted", "Returned", "Said"),
    "loom.agent.tools": ("Tool", "as_tool", "tool"),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
