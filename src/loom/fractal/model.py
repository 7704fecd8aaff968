"""Calls to a language model from a coroutine, and JSON objects in its answers. A model is always optional."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from loom.checks import checked_instance
from loom.errors import InvalidInput

if TYPE_CHECKING:
    from loom.models.language_model import LanguageModelLike

__all__ = ["AsyncLanguageModel", "Model", "ask", "find_object"]

# Bounds the work for an answer that consists of braces.
_MOST_BRACES = 50


class AsyncLanguageModel(Protocol):
    """A model whose answers are awaited."""

    def complete(self, prompt: str) -> Awaitable[str]: ...


Model: TypeAlias = "LanguageModelLike | AsyncLanguageModel | Callable[[str], Awaitable[str]]"
"""A model or a function of one prompt, as everywhere in loom. Here both may be async."""


async def ask(model: Model, prompt: str) -> str:
    """Return the answer of a model. A synchronous function runs in a thread."""
    call = cast(Callable[[str], str | Awaitable[str]], getattr(model, "complete", model))
    if not callable(call):
        raise InvalidInput(f"a model must be a function of a prompt or have complete(), not {type(model).__name__}")
    if inspect.iscoroutinefunction(call):
        answer: Any = await call(prompt)
    else:
        import asyncio

        answer = await asyncio.to_thread(call, prompt)
        if inspect.isawaitable(answer):
            answer = await answer
    return checked_instance(answer, str, "the answer of a model")


def find_object(answer: str) -> dict[str, Any] | None:
    """Return the first JSON object in an answer, or None if there is none near its start."""
    decoder = json.JSONDecoder()
    start = -1
    for _ in range(_MOST_BRACES):
        start = answer.find("{", start + 1)
        if start < 0:
            break
        try:
            found: dict[str, Any] = decoder.raw_decode(answer, start)[0]
        except (ValueError, RecursionError):
            continue
        return found
    return None
