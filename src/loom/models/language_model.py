"""A language model, where there is one: from a prompt to its answer.

Nothing here is needed for a memory to work. `as_language_model` takes a plain function; `HttpLanguageModel` asks any
endpoint that speaks OpenAI's chat completions, with the standard library alone. What is asked, and what of the answer
is believed, is decided by the callers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from loom.checks import checked_number, checked_whole
from loom.errors import InvalidInput, LanguageModelError

__all__ = ["HttpLanguageModel", "LanguageModel", "LanguageModelLike", "as_language_model"]


@runtime_checkable
class LanguageModel(Protocol):
    """Anything that answers a prompt. Blocking; safe to call from several threads."""

    def complete(self, prompt: str) -> str:
        """The answer to the prompt."""


LanguageModelLike = LanguageModel | Callable[[str], str]
"""What may be given as `llm`: a model, or a function from prompt to answer."""


def as_language_model(thing: LanguageModelLike) -> LanguageModel:
    """The model behind what was given. Answers that are not text raise `LanguageModelError`."""
    if isinstance(thing, LanguageModel):
        return thing
    if callable(thing):
        return _Function(thing)
    raise InvalidInput(
        f"a language model is a function from text to text, or has complete(prompt); not {type(thing).__name__}"
    )


class _Function:
    """A plain function as a model."""

    def __init__(self, function: Callable[[str], str]) -> None:
        self._function = function

    def complete(self, prompt: str) -> str:
        answer = self._function(prompt)
        if not isinstance(answer, str):
            raise LanguageModelError(f"the language model gave {type(answer).__name__} where text was expected")
        return answer


# --- over HTTP ---------------------------------------------------------------------------------------------

_LARGEST_ANSWER_MB = 16


class HttpLanguageModel:
    """Any endpoint that speaks OpenAI's `POST {base_url}/chat/completions`: OpenRouter, Ollama, vLLM and others.

    `timeout_s` is the deadline of a whole call, further tries and their pauses included. 429, 5xx and broken
    connections are tried `max_retries` times more, after 0.5 s, 1 s, 2 s... Redirects are not followed: the key stays
    with its host. Errors carry neither the key, nor the prompt, nor the answer.
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
        try:
            encoded = json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                "the prompt holds a lone surrogate and cannot be sent; replace the character"
            ) from error
        return _answered(self._endpoint.ask(encoded), self._endpoint.url)

    def __repr__(self) -> str:
        return f"HttpLanguageModel({self._endpoint.url!r}, model={self._model!r})"


def _answered(content: bytes, url: str) -> str:
    """The text of the first choice, whether the server gives it whole or in parts."""
    from loom.models.endpoint import parsed_json

    try:
        answer: Any = parsed_json(content)
        said = answer["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        raise LanguageModelError(
            f"{url} answered with something that is not a chat completion. Check the base_url."
        ) from None
    if isinstance(said, list):
        said = "".join(part["text"] for part in said if isinstance(part, dict) and isinstance(part.get("text"), str))
    if not isinstance(said, str):
        raise LanguageModelError(f"{url} answered without text; ask the model for text, not for a tool call.")
    return said
