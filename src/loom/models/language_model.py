"""Language models: the protocol, plain functions as models, and any endpoint of OpenAI's chat completions.

A memory works without one. The callers write the prompts and check the answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from loom.checks import checked_number, checked_whole
from loom.errors import InvalidInput, LanguageModelError

__all__ = ["HttpLanguageModel", "LanguageModel", "LanguageModelLike", "as_language_model"]


@runtime_checkable
class LanguageModel(Protocol):
    """An object that answers prompts. `complete` blocks, and several threads may call it."""

    def complete(self, prompt: str) -> str:
        """The answer to the prompt."""


LanguageModelLike = LanguageModel | Callable[[str], str]
"""The values that `llm` takes: a model, or a function from prompt to answer."""


def as_language_model(thing: LanguageModelLike) -> LanguageModel:
    """Return a model as it is, or a function as a model. An answer that is not text raises `LanguageModelError`."""
    if isinstance(thing, LanguageModel):
        return thing
    if callable(thing):
        return _Function(thing)
    raise InvalidInput(
        f"a language model must be a function from text to text, or have complete(prompt), not {type(thing).__name__}"
    )


class _Function:
    """A plain function as a model."""

    def __init__(self, function: Callable[[str], str]) -> None:
        self._function = function

    def complete(self, prompt: str) -> str:
        answer = self._function(prompt)
        if not isinstance(answer, str):
            raise LanguageModelError(f"the language model returned {type(answer).__name__} instead of text")
        return answer


# --- over HTTP ---------------------------------------------------------------------------------------------

_LARGEST_ANSWER_MB = 16


class HttpLanguageModel:
    """A model behind OpenAI's `POST {base_url}/chat/completions`: OpenRouter, Ollama, vLLM and others.

    `timeout_s` is the deadline of a whole call, retries and their pauses included. A call that fails with 429, 5xx or
    a broken connection is retried up to `max_retries` times, after 0.5 s, 1 s, 2 s... Redirects are not followed, so
    the key stays with its host. Error messages contain neither the key, nor the prompt, nor the answer.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        temperature: float = 0,
        timeout_s: float = 60,
        max_retries: int = 2,
        *,
        max_tokens: int | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not model:
            raise InvalidInput("a language model over HTTP needs the name of a model")
        checked_whole(1 if max_tokens is None else max_tokens, "max_tokens", 1)
        from loom.models.endpoint import Endpoint

        self._endpoint = Endpoint(
            base_url,
            "chat/completions",
            "a language model",
            LanguageModelError,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            largest_mb=_LARGEST_ANSWER_MB,
            advice={
                400: "Check the model's name and how long its prompts may be.",
                413: "The prompt is too long for this server.",
            },
            sleep=sleep,
        )
        self._model = model
        self._temperature = checked_number(temperature, "temperature", 0)
        self._max_tokens = max_tokens

    def complete(self, prompt: str) -> str:
        body: dict[str, object] = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": self._temperature,
        }
        if self._max_tokens is not None:
            body["max_tokens"] = self._max_tokens
        said = self._endpoint.ask(
            body, "a chat completion", lambda answer: answer["choices"][0]["message"]["content"]
        )
        if isinstance(said, list):  # some servers send it in parts
            texts = (part.get("text") for part in said if isinstance(part, dict))
            said = "".join(text for text in texts if isinstance(text, str))
        if not isinstance(said, str):
            raise LanguageModelError(
                f"{self._endpoint.url} answered without text; ask the model for text, not for a tool call."
            )
        return said

    def __repr__(self) -> str:
        return f"HttpLanguageModel({self._endpoint.url!r}, model={self._model!r})"
