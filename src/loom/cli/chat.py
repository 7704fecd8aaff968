"""`loom chat`: talk to a model that uses this memory. Each turn shows the recalled memories and its cost."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import loom
from loom.cli.printing import Page, Part, uses_colours
from loom.errors import InvalidInput, LanguageModelError
from loom.protocol import new_id

if TYPE_CHECKING:
    from loom.agent.chat_models import ChatModel
    from loom.cli.programs import Place
    from loom.context import Context
    from loom.everyday import Memory

__all__ = ["run"]

_KEYS = {"ANTHROPIC_API_KEY": "claude-sonnet-5-5", "OPENAI_API_KEY": "gpt-5.4-mini"}
_SCRIPTED = (
    "This is a demonstration without a model: the reply is scripted. It shows the best memory for what you say. "
    "For a model, set OPENAI_API_KEY or ANTHROPIC_API_KEY, or pass --model https://host/v1#name."
)
_SYSTEM = "You are a helpful assistant with a long-term memory. Use what the memory holds; say when it holds nothing."


def run(place: Place, model: str | None, session_id: str | None, budget: int) -> int:
    """Talk until the input ends. Return the exit code."""
    if not place.why.startswith("named"):
        place.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    session = session_id or f"chat_{new_id()}"
    with loom.open(place.path, namespace=place.namespace, node_id=place.node) as memory:
        answers = _model(model, memory)
        _print([("memory ", "dim"), (place.path, ""), (f"  session {session}", "dim")])
        if answers is None:
            _print([(_SCRIPTED, "yellow")])
        for said in _turns():
            _turn(memory, answers, said, session, budget)
    return 0


def _turns() -> Iterator[str]:
    asks = sys.stdin.isatty()
    while True:
        if asks:
            print("you> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line.strip():
            return
        yield line.strip()


def _turn(memory: Memory, answers: Callable[[Context], Any] | None, said: str, session: str, budget: int) -> None:
    context = memory.context(said, budget=budget, session_id=session, system=_SYSTEM)
    _print([(f"{len(context.items)} memories in {context.tokens:,} of {budget:,} tokens", "dim")])
    for item in context.items[:5]:
        _print([("  ", ""), (item.source, "dim"), "  ", (item.text, ""), (f"  {item.reason}", "dim")])
    memory.remember({"role": "user", "content": said}, session_id=session)
    try:
        reply, cost = _scripted(memory, said, session) if answers is None else answers(context)
    except LanguageModelError as error:
        _print([("the model failed: ", "red"), (error, "")])
        return
    _print([("loom> ", "bold"), (reply, "")])
    _print([(cost, "dim")])
    if reply.strip():
        memory.remember({"role": "assistant", "content": reply}, session_id=session)


def _scripted(memory: Memory, said: str, session: str) -> tuple[str, str]:
    """Return a reply with the best memory of other sessions, and the cost."""
    hits = [hit for hit in memory.recall(said, limit=5) if hit.session_id != session]
    reply = f"(scripted) The memory holds: {hits[0].content}" if hits else "(scripted) I will remember that."
    return reply, "no model was called: 0 tokens"


def _model(named: str | None, memory: Memory) -> Callable[[Context], Any] | None:
    """Return a function from a prompt to a reply and its cost; None if no model is configured."""
    from loom.agent.chat_models import OpenAIChat, Prompt, as_chat_model

    client: ChatModel
    if named is not None:
        address, _, name = named.partition("#")
        if named.startswith(("http://", "https://")):
            if not name:
                raise InvalidInput("the address of a model ends in #name, as in https://host/v1#qwen3")
            client = OpenAIChat(name, base_url=address)
        else:
            client = as_chat_model(named)
    else:
        key = next((key for key in _KEYS if os.environ.get(key)), None)
        if key is None:
            return None
        client = as_chat_model(_KEYS[key])

    def answer(context: Context) -> tuple[str, str]:
        got = client.answer(Prompt(context.to_openai(), breakpoints=context.breakpoints))
        if got.usage is None:
            return got.text, f"{context.tokens:,} tokens of prompt, {memory.counter.count(got.text):,} of answer"
        used = got.usage
        return got.text, f"{used.prompt:,} tokens of prompt ({used.cached:,} cached), {used.answer:,} of answer"

    return answer


def _print(parts: list[Part]) -> None:
    raw = getattr(sys.stdout, "unguarded", sys.stdout)
    page = Page(uses_colours(raw), None)
    page.line(*parts)
    print(*page.lines, file=raw if page.colours else sys.stdout, flush=True)
