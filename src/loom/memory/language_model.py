"""A language model, where there is one: from a prompt to its answer.

Nothing here is needed for a memory to work. `as_language_model` takes a plain function; `HttpLanguageModel` asks any
endpoint that speaks OpenAI's chat completions, with the standard library alone. What is asked, and what of the answer
is believed, is decided by the callers.
"""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from loom.errors import InvalidInput, LoomError

if TYPE_CHECKING:  # urllib.request costs 30 ms to import; only who asks over HTTP pays for it
    import http.client
    import urllib.error

__all__ = ["HttpLanguageModel", "LanguageModel", "LanguageModelError", "LanguageModelLike", "as_language_model"]


class LanguageModelError(LoomError):
    """A language model failed, cannot be reached, or answered with something unusable."""


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

_MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class HttpLanguageModel:
    """Any endpoint that speaks OpenAI's `POST {base_url}/chat/completions`: OpenRouter, Ollama, vLLM and others.

    429, 5xx, timeouts and broken connections are tried `max_retries` times more, after 0.5 s, 1 s, 2 s... Redirects
    are not followed: the key stays with its host. Errors carry neither the key, nor the prompt, nor the answer.
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
        if api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise InvalidInput("the api_key is empty or holds characters that no HTTP header can carry")
        for label, value, least in (
            ("temperature", temperature, 0),
            ("timeout_s", timeout_s, 0.001),
            ("max_retries", max_retries, 0),
            ("max_tokens", 1 if max_tokens is None else max_tokens, 1),
        ):
            if value < least:
                raise InvalidInput(f"{label} must be at least {least}, not {value}")
        self._url = _endpoint(base_url)
        self._model = model
        self._api_key = api_key
        self._temperature = temperature
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._max_tokens = max_tokens
        self._sleep = sleep

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
        return _answered(self._posted(encoded), self._url)

    def __repr__(self) -> str:
        return f"HttpLanguageModel({self._url!r}, model={self._model!r})"

    def _posted(self, body: bytes) -> bytes:
        attempt = 0
        while True:
            outcome = _post(self._url, body, self._api_key, self._timeout_s)
            if isinstance(outcome, bytes):
                return outcome
            if not outcome.worth_retrying or attempt == self._max_retries:
                tries = f" ({attempt + 1} tries)" if attempt else ""
                raise LanguageModelError(f"{self._url} {outcome.what}{tries}. {outcome.advice}")
            self._sleep(0.5 * 2**attempt)
            attempt += 1


@dataclass(frozen=True, slots=True)
class _Failure:
    what: str
    advice: str
    worth_retrying: bool = False


def _endpoint(base_url: str) -> str:
    parts = urllib.parse.urlsplit(base_url)
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        usable = False
    if not usable or not base_url.isascii() or re.search(r"[\s\x00-\x1f]", base_url):
        raise InvalidInput("the base_url of a language model must be like https://host/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInput("the base_url of a language model takes no user, query or fragment; a key goes to api_key")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return f"{parts.scheme}://{parts.netloc}{path}/chat/completions"


def _post(url: str, body: bytes, api_key: str | None, timeout_s: float) -> bytes | _Failure:
    import http.client
    import urllib.error
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """urllib would send the Authorization header on to whatever host the answer names."""

        def redirect_request(self, *_: object, **__: object) -> None:
            return None

    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "loom-memory"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    host = urllib.parse.urlsplit(url).hostname or ""
    # A proxy for the outside world has no way to this machine's own servers.
    local = host == "localhost" or host.endswith(".localhost") or host.startswith("127.") or host == "::1"
    proxies = urllib.request.ProxyHandler({}) if local else urllib.request.ProxyHandler()
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with urllib.request.build_opener(proxies, NoRedirect()).open(request, timeout=timeout_s) as response:
            content: bytes = response.read(_MAX_RESPONSE_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            return _status_failure(error)
    except (OSError, http.client.HTTPException) as error:
        return _connection_failure(error, timeout_s)
    if len(content) > _MAX_RESPONSE_BYTES:
        return _Failure("answered with more than 16 MB", "Check that it is a chat endpoint.")
    return content


_ADVICE = {
    400: "Check the model's name and how long its prompts may be.",
    401: "Check the api_key.",
    403: "Check the api_key and what it is allowed to do.",
    404: "Check the base_url (it usually ends in /v1) and the model's name.",
    413: "The prompt is too long for this server.",
    429: "A limit of the account or the server is reached; try later.",
}


def _status_failure(error: urllib.error.HTTPError) -> _Failure:
    fallback = "Give the final address: redirects are not followed." if error.code < 400 else "Try later."
    advice = _ADVICE.get(error.code, fallback)
    return _Failure(f"answered with status {error.code}", advice, worth_retrying=error.code in _RETRY_STATUS)


def _connection_failure(error: OSError | http.client.HTTPException, timeout_s: float) -> _Failure:
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return _Failure(f"gave no answer within {timeout_s:g} s", "Try later, or raise timeout_s.", True)
    detail = getattr(cause, "strerror", None) or type(cause).__name__
    return _Failure(f"cannot be reached ({detail})", "Check the base_url and that the server runs.", True)


def _answered(content: bytes, url: str) -> str:
    """The text of the first choice, whether the server gives it whole or in parts."""
    try:
        said = json.loads(content)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        raise LanguageModelError(
            f"{url} answered with something that is not a chat completion. Check the base_url."
        ) from None
    if isinstance(said, list):
        said = "".join(part["text"] for part in said if isinstance(part, dict) and isinstance(part.get("text"), str))
    if not isinstance(said, str):
        raise LanguageModelError(f"{url} answered without text; ask the model for text, not for a tool call.")
    return said
