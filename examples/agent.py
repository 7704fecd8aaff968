"""An agent with a tool and a memory, in one run and after a restart. The model is scripted; no key is needed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from loom import Agent
from loom.agent import AnthropicChat
from loom.testing import Call, ScriptedModel, ScriptLine


def tide(harbour: str) -> str:
    """The time of high water in a harbour."""
    return f"High water in {harbour} is at 14:20."


def main() -> None:
    script: list[ScriptLine] = [
        Call("tide", {"harbour": "Delft"}),
        "High water is at 14:20, so leave by two.",
        Call("recall", {"query": "high water Delft"}),
        "You asked about Delft: 14:20.",
    ]
    with ScriptedModel(script) as server, tempfile.TemporaryDirectory() as folder:
        model = AnthropicChat("scripted", server.url, api_key="none")
        memory = Path(folder, "pilot.loom")
        with Agent.create(model, system_prompt="You advise pilots.", memory=memory, tools=[tide]) as agent:
            print(agent.run_sync("When is high water in Delft?", session_id="monday"))
        with Agent.create(model, system_prompt="You advise pilots.", memory=memory, tools=[tide]) as agent:
            print(agent.run_sync("Which harbour did I ask about?", session_id="tuesday"))
            usage = agent.stats.usage
            print(f"{usage.prompt} prompt tokens, {usage.cached} of them cached by the server")


if __name__ == "__main__":
    main()
