"""The roles of the child processes of the agent's tests: `python -m tests.agent.agent_children <role> <json>`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import loom
from loom.agent import Agent, OpenAIChat
from loom.fractal import RecursiveBudget


def talk(store: str, url: str, first: int, last: int) -> None:
    """Run turns of one conversation, and print which have ended. Each has the id of its number."""
    with loom.open(store, node_id="talker", embedder="none") as memory:
        agent = Agent.create(OpenAIChat("scripted", url), memory=memory, prompt_budget=2000)
        for number in range(first, last):
            result = agent.run_sync(question(number), session_id="talk", task_id=f"turn-{number}")
            os.write(1, f"{number} {result}\n".encode())


def question(number: int) -> str:
    """The question of a turn. Turn 3 states something that turn 290 asks for."""
    if number == 3:
        return "My locker in the north hall has the code 58-21-07, please keep that."
    if number == 290:
        return "What was the code of my locker in the north hall?"
    return f"Turn {number}: the tide table for harbour {number} says high water at {number % 24}:{number % 60:02d}."


def divide(store: str, url: str, name: str, tokens: int) -> None:
    """Carry out one task with a tree of agents below this one, and print its usage and the agents that were asked."""
    with loom.open(store, node_id=name, embedder="none") as memory:
        budget = RecursiveBudget(max_depth=3, max_children=4, token_budget=tokens, tool_budget=400, time_budget=120)
        agent = Agent.create(OpenAIChat("scripted", url), memory=memory, meta_tools=True, budget=budget)
        result = agent.run_sync(f"level 0 of {name}", session_id=name)
        said: dict[str, Any] = {"text": result.text, "error": result.error, "spent": result.tokens_spent}
        os.write(1, json.dumps(said).encode() + b"\n")


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"talk": talk, "divide": divide}
    roles[sys.argv[1]](**json.loads(sys.argv[2]))
