"""Models that an agent talks to: endpoints of OpenAI's and Anthropic's form, and functions.

A prompt is in OpenAI's form. Each client converts it for its service and reads an `Answer` from the response.
`as_chat_model` selects the client for a name. Keys come from the caller or the environment and are never in errors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, isawaitable, signature
from threading import Event
from typing import Any, Literal, Protocol, runtime_checkable

from loom.checks import checked_whole
from loom.context.rendering import to_anthropic
from loom.errors import InvalidInput, LanguageModelError
from loom.models.language_model import LanguageModel

__all__ = [
    "Answer",
    "AnthropicChat",
    "ChatModel",
    "ChatModelLike",
    "OpenAIChat",
    "Prompt",
    "ToolCall",
    "Usage",
    "as_chat_model",
]

Json = dict[str, Any]
OnText = Callable[[str], object]
_Join = Callable[[Iterator[Any], OnText], "Answer"]
# Makes an answer from the events of a stream; raises `EOFError` if the stream ends early.

_LARGEST_ANSWER_MB = 16
_PROTOCOL = "of its protocol"
_ANTHROPIC_VERSION = "2023-06-01"
_ANTHROPIC_URL = "https://api.anthropic.com"
_OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model requests. `arguments` is the text that the model wrote, which should be JSON."""

    id: str
    name: str
    arguments: str = "{}"

    def to_openai(self) -> Json:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one or more calls: prompts, the part of them that the service had cached, and answers."""

    prompt: int = 0
    cached: int = 0
    answer: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.answer

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt + other.prompt, self.cached + other.cached, self.answer + other.answer)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a model. `usage` is None if the service did not report it."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: Literal["end", "tools", "length", "refusal"] = "end"
    usage: Usage | None = None

    def to_message(self) -> Json:
        """Return the answer as the assistant's message."""
        message: Json = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [call.to_openai() for call in self.calls]
        return message


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: messages in OpenAI's form, the tools that may be called, and the largest size of the answer.

    `breakpoints` are the positions of messages after which the service may cache.
    """

    messages: Sequence[Json]
    tools: Sequence[Json] = ()
    max_tokens: int = 4096
    breakpoints: Sequence[int] = ()


@runtime_checkable
class ChatModel(Protocol):
    """Anything that answers a prompt. Blocking; safe to call from several threads."""

    def answer(self, prompt: Prompt, on_text: OnText | None = None, cancelled: Event | None = None) -> Answer:
        """Return the answer. With `on_text` it is streamed: `on_text` is called with each piece of text."""


ChatModelLike = ChatModel | LanguageModel | Callable[..., Any] | str
"""The values that `llm` accepts: the name of a model, a client, or a function of the messages (and, if it takes them,
of the tools) that returns a text, an assistant's message or an `Answer`."""


def as_chat_model(llm: ChatModelLike) -> ChatModel:
    """Return the model that `llm` means. Names that begin with `claude` or `anthropic:` are Anthropic's."""
    if isinstance(llm, str):
        name = llm.strip()
        if not name:
            raise InvalidInput("the name of the model is empty")
        provider, _, rest = name.partition(":")
        if provider == "anthropic" and rest:
            return AnthropicChat(rest)
        return AnthropicChat(name) if name.startswith("claude") else OpenAIChat(name.removeprefix("openai:"))
    if isinstance(llm, type):
        raise InvalidInput(f"llm is the class {llm.__name__}; give an instance of it")
    if isinstance(llm, ChatModel):
        return llm
    if isinstance(llm, LanguageModel):
        return _OfTexts(llm)
    if callable(llm):
        return _Function(llm)
    raise InvalidInput(
        f"llm is {type(llm).__name__}; it must be the name of a model, a client, or a function of the messages"
    )


class _Function:
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        try:
            taken = [one for one in signature(function).parameters.values() if one.kind is not Parameter.KEYWORD_ONLY]
        except (TypeError, ValueError):  # a builtin without a signature
            taken = []
        self._takes_tools = len(taken) > 1 or any(one.kind is Parameter.VAR_POSITIONAL for one in taken)

    def answer(self, prompt: Prompt, on_text: OnText | None = None, cancelled: Event | None = None) -> Answer:
        given = ([dict(one) for one in prompt.messages], [dict(one) for one in prompt.tools])
        said = self._function(*given[: 1 + self._takes_tools])
        if isawaitable(said):
            said = _awaited(said)
        answer = said if isinstance(said, Answer) else _from_message(said)
        if on_text is not None and answer.text:
            on_text(answer.text)
        return answer


def _awaited(awaitable: Any) -> Any:
    """Wait for an awaitable in a thread that has no event loop, and return its result."""
    import asyncio

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())


def _from_message(said: Any) -> Answer:
    if isinstance(said, str):
        return Answer(said)
    if isinstance(said, Mapping):
        try:
            return _chat_answer(said, None, None)
        except (LookupError, TypeError, AttributeError):
            pass
    raise LanguageModelError(
        f"the model function returned {type(said).__name__}; it must return a text, an assistant's message or an "
        "Answer"
    )


class _OfTexts:
    """A model that only takes text. It receives the messages as one text, and calls no tools."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def answer(self, prompt: Prompt, on_text: OnText | None = None, cancelled: Event | None = None) -> Answer:
        lines = [f"{one['role']}: {one.get('content') or ''}" for one in prompt.messages]
        said = self._model.complete("\n\n".join(lines))
        if on_text is not None:
            on_text(said)
        return Answer(said)


# --- over HTTP ---------------------------------------------------------------------------------------------


class _HttpChat:
    """The common part of both clients: the model, the endpoint, and requests with and without a stream."""

    def __init__(
        self,
        model: str,
        base_url: str,
        path: str,
        *,
        api_key: str | None,
        timeout_s: float,
        max_retries: int,
        headers: Mapping[str, str],
        key_header: str,
        extra: Mapping[str, Any] | None,
    ) -> None:
        if not model:
            raise InvalidInput("a chat model needs the name of a model")
        from loom.models.endpoint import Endpoint

        self.model = model
        self._extra = dict(extra or {})
        self._endpoint = Endpoint(
            base_url,
            path,
            "a chat model",
            LanguageModelError,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            largest_mb=_LARGEST_ANSWER_MB,
            advice={
                400: "Check the model's name, the tools, and how long its prompts may be.",
                413: "The prompt is too long for this server.",
            },
            headers=headers,
            key_header=key_header,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, {self._endpoint.url!r})"

    def _streamed(self, body: Json, cancelled: Event | None, join: _Join, on_text: OnText) -> Answer:
        events = self._endpoint.stream(body | self._extra | {"stream": True}, cancelled)
        try:
            return join(events, on_text)
        except EOFError:
            raise LanguageModelError(
                f"{self._endpoint.url} broke off in the middle of an answer. Try again."
            ) from None
        except (LookupError, TypeError, AttributeError):
            raise self._endpoint.foreign(_PROTOCOL) from None


class OpenAIChat(_HttpChat):
    """Any endpoint that speaks OpenAI's `POST {base_url}/chat/completions`: OpenRouter, Ollama, vLLM and others.

    The default address is `OPENAI_BASE_URL`, else OpenAI's own; the default key is `OPENAI_API_KEY`. `timeout_s` is
    the deadline of a whole call. 429, 5xx and broken connections are retried `max_retries` times. `extra` has further
    fields of every request, such as `temperature`.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 300,
        max_retries: int = 3,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        address = base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI_URL
        # The key from the environment is only sent to the address from the environment.
        key = api_key or (None if base_url else os.environ.get("OPENAI_API_KEY"))
        super().__init__(
            model,
            address,
            "chat/completions",
            api_key=key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            headers={},
            key_header="Authorization",
            extra=extra,
        )
        # OpenAI's newer models refuse the older name; other servers accept only that one.
        self._limit = "max_completion_tokens" if address.startswith("https://api.openai.com/") else "max_tokens"

    def answer(self, prompt: Prompt, on_text: OnText | None = None, cancelled: Event | None = None) -> Answer:
        body: Json = {
            "model": self.model,
            "messages": list(prompt.messages),
            self._limit: checked_whole(prompt.max_tokens, "max_tokens", 1),
        }
        if prompt.tools:
            body["tools"] = [{"type": "function", "function": dict(tool)} for tool in prompt.tools]
        if on_text is not None:
            options = {"stream_options": {"include_usage": True}}
            return self._streamed(body | options, cancelled, _joined_chat, on_text)
        return self._endpoint.ask(body | self._extra, _PROTOCOL, _whole_chat, cancelled)


def _whole_chat(answer: Any) -> Answer:
    choice = answer["choices"][0]
    return _chat_answer(choice["message"], choice.get("finish_reason"), _chat_usage(answer.get("usage")))


def _chat_usage(usage: Any) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
    return Usage(_count(usage.get("prompt_tokens")), _count(cached), _count(usage.get("completion_tokens")))


def _count(number: object) -> int:
    return number if isinstance(number, int) and number > 0 else 0


def _chat_answer(message: Mapping[str, Any], finish: object, usage: Usage | None) -> Answer:
    said = message.get("content")
    if isinstance(said, list):
        said = "".join(str(part.get("text") or "") for part in said if isinstance(part, Mapping))
    refusal = message.get("refusal")
    calls = tuple(
        ToolCall(
            str(call.get("id") or f"call_{place}"),
            str(call["function"]["name"]),
            _as_text(call["function"].get("arguments")),
        )
        for place, call in enumerate(message.get("tool_calls") or (), 1)
    )
    return Answer(_as_text(said or refusal or ""), calls, _stop("refusal" if refusal else finish, calls), usage)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value or {}, ensure_ascii=False)


_STOPS = {"refusal": "refusal", "content_filter": "refusal", "length": "length", "max_tokens": "length"}


def _stop(reason: object, calls: Sequence[ToolCall]) -> Any:
    return _STOPS.get(str(reason), "tools" if calls else "end")


@dataclass(slots=True)
class _CallParts:
    """The parts of a call that a stream has sent so far."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def whole(self, place: int) -> ToolCall:
        return ToolCall(self.id or f"call_{place}", self.name, "".join(self.arguments) or "{}")


def _joined_chat(events: Iterator[Any], on_text: OnText) -> Answer:
    texts: list[str] = []
    calls: dict[int, _CallParts] = {}
    finish: object = None
    refused = False
    usage: Usage | None = None
    for event in events:
        usage = _chat_usage(event.get("usage")) or usage
        for choice in event.get("choices") or ():
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta") or {}
            refused = refused or bool(delta.get("refusal"))
            if piece := delta.get("content") or delta.get("refusal"):
                texts.append(piece)
                on_text(piece)
            for part in delta.get("tool_calls") or ():
                one = calls.setdefault(part.get("index", 0), _CallParts())
                function = part.get("function") or {}
                one.id = part.get("id") or one.id
                one.name = function.get("name") or one.name
                one.arguments.append(function.get("arguments") or "")
    if finish is None:
        raise EOFError
    made = tuple(calls[place].whole(place + 1) for place in sorted(calls))
    return Answer("".join(texts), made, _stop("refusal" if refused else finish, made), usage)


class AnthropicChat(_HttpChat):
    """Anthropic's messages. The default address is `ANTHROPIC_BASE_URL`, else Anthropic's own; the default key is
    `ANTHROPIC_API_KEY`. The rest is as in `OpenAIChat`."""

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 300,
        max_retries: int = 3,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        address = base_url or os.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC_URL
        super().__init__(
            model,
            address.rstrip("/").removesuffix("/v1"),
            "v1/messages",
            api_key=api_key or (None if base_url else os.environ.get("ANTHROPIC_API_KEY")),
            timeout_s=timeout_s,
            max_retries=max_retries,
            headers={"anthropic-version": _ANTHROPIC_VERSION},
            key_header="x-api-key",
            extra=extra,
        )

    def answer(self, prompt: Prompt, on_text: OnText | None = None, cancelled: Event | None = None) -> Answer:
        body: Json = {
            "model": self.model,
            "max_tokens": checked_whole(prompt.max_tokens, "max_tokens", 1),
            **to_anthropic(prompt.messages, prompt.breakpoints),
        }
        if prompt.tools:
            body["tools"] = [
                {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
                for tool in prompt.tools
            ]
        if on_text is not None:
            return self._streamed(body, cancelled, _joined_message, on_text)
        return self._endpoint.ask(body | self._extra, _PROTOCOL, _whole_message, cancelled)


def _whole_message(answer: Any) -> Answer:
    blocks = answer["content"]
    text = "".join(block["text"] for block in blocks if block.get("type") == "text")
    calls = tuple(
        ToolCall(str(block["id"]), str(block["name"]), _as_text(block.get("input")))
        for block in blocks
        if block.get("type") == "tool_use"
    )
    return Answer(text, calls, _stop(answer.get("stop_reason"), calls), _message_usage(answer["usage"]))


def _message_usage(usage: Mapping[str, Any]) -> Usage:
    cached = _count(usage.get("cache_read_input_tokens"))
    fresh = _count(usage.get("input_tokens")) + _count(usage.get("cache_creation_input_tokens"))
    return Usage(fresh + cached, cached, _count(usage.get("output_tokens")))


def _joined_message(events: Iterator[Any], on_text: OnText) -> Answer:
    texts: list[str] = []
    calls: dict[int, _CallParts] = {}
    usage: Json = {}
    reason: object = None
    ended = False
    for event in events:
        match event.get("type"):
            case "message_start":
                usage |= event["message"].get("usage") or {}
            case "content_block_start" if event["content_block"].get("type") == "tool_use":
                block = event["content_block"]
                calls[event["index"]] = _CallParts(str(block["id"]), str(block["name"]))
            case "content_block_delta":
                delta = event["delta"]
                if piece := delta.get("text"):
                    texts.append(piece)
                    on_text(piece)
                elif event["index"] in calls:
                    calls[event["index"]].arguments.append(delta.get("partial_json") or "")
            case "message_delta":
                reason = event["delta"].get("stop_reason")
                usage |= {name: count for name, count in (event.get("usage") or {}).items() if count is not None}
            case "message_stop":
                ended = True
            case "error":
                word = (event.get("error") or {}).get("type")
                raise LanguageModelError(f"the service ended its answer with an error ({word}). Try later.")
    if not ended:
        raise EOFError
    made = tuple(calls[place].whole(number) for number, place in enumerate(sorted(calls), 1))
    return Answer("".join(texts), made, _stop(reason, made), _message_usage(usage))
