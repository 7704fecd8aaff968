"""The protocols of three model APIs: their answers, as JSON and as a stream of events, and the requests they refuse.

`Wire` is the interface of a protocol. A request that the real service would refuse (a tool call without its result, a
result without its call, an empty text block) is refused here too, so that tests notice it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from loom.testing.replies import Answer, Call

__all__ = ["WIRES", "Usage", "Wire"]

Json = dict[str, Any]
Event = tuple[str, Any]
"""The name of a server-sent event ("" for none) and its data."""

_PIECE = 24


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of a request: of the prompt, the cached part of it, and of the answer."""

    prompt: int
    cached: int
    written: int


class Wire(Protocol):
    """One protocol."""

    path: str

    def refused(self, body: Json) -> str | None:
        """Return the reason why the service would refuse a request, or None."""

    def parts(self, body: Json) -> list[Json]:
        """Return the prompt in the order in which a cache compares it: tools, system, messages."""

    def cacheable(self, parts: Sequence[Json]) -> int:
        """Return the number of parts, from the first, that may be cached for the next request."""

    def whole(self, answer: Answer, model: str, number: int, usage: Usage) -> Json:
        """Return the answer as one object."""

    def events(self, answer: Answer, model: str, number: int, usage: Usage, body: Json) -> Iterator[Event]:
        """Yield the answer as the events of a stream."""

    def error(self, status: int, message: str) -> Json:
        """Return the body of an error."""


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def _numbered(answer: Answer, number: int, prefix: str) -> tuple[Call, ...]:
    """Return the calls, each with an id that is unique on this server."""
    return tuple(
        replace(call, id=call.id or f"{prefix}{number}_{place}") for place, call in enumerate(answer.calls, 1)
    )


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _unanswered(calls: Iterable[str], results: Iterable[str], whom: str) -> str | None:
    """Return the error in the results of some calls, or None."""
    wanted, given = list(calls), list(results)
    for one in given:
        if one not in wanted:
            return f"{whom}: the tool result {one!r} has no tool call before it"
    missing = [one for one in wanted if one not in given]
    return f"{whom}: the tool calls {', '.join(missing)} have no results" if missing else None


class _Chat:
    """OpenAI's chat completions."""

    path = "/chat/completions"

    def refused(self, body: Json) -> str | None:
        messages = body.get("messages")
        if not isinstance(body.get("model"), str) or not _is_list_of_objects(messages) or not messages:
            return "model and messages are required"
        open_calls: list[str] = []
        results: list[str] = []
        for message in [*messages, {"role": "end"}]:
            role = message.get("role")
            if role == "tool":
                results.append(str(message.get("tool_call_id")))
                continue
            if problem := _unanswered(open_calls, results, "messages"):
                return problem
            results = []
            open_calls = [str(call.get("id")) for call in message.get("tool_calls") or ()]
            if role not in ("system", "developer", "user", "assistant", "end"):
                return f"messages: {role!r} is not a role"
            if role != "end" and not open_calls and message.get("content") is None:
                return f"messages: a message of the role {role} has no content"
        return None

    def parts(self, body: Json) -> list[Json]:
        return [*body.get("tools", ()), *body["messages"]]

    def cacheable(self, parts: Sequence[Json]) -> int:
        return len(parts)

    def _calls(self, answer: Answer, number: int) -> list[Json]:
        return [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for call in _numbered(answer, number, "call_")
        ]

    def _finish(self, answer: Answer) -> str:
        ends = {"end": "tool_calls" if answer.calls else "stop", "length": "length", "refusal": "content_filter"}
        return ends[answer.stop]

    def _usage(self, usage: Usage) -> Json:
        return {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.written,
            "total_tokens": usage.prompt + usage.written,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
        }

    def whole(self, answer: Answer, model: str, number: int, usage: Usage) -> Json:
        message: Json = {"role": "assistant", "content": answer.text or (None if answer.calls else "")}
        if answer.calls:
            message["tool_calls"] = self._calls(answer, number)
        if answer.stop == "refusal":
            message |= {"content": None, "refusal": answer.text}
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(answer)}],
            "usage": self._usage(usage),
        }

    def events(self, answer: Answer, model: str, number: int, usage: Usage, body: Json) -> Iterator[Event]:
        frame = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": model}

        def chunk(delta: Json, finish: str | None = None) -> Event:
            return "", frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        yield chunk({"role": "assistant", "content": ""})
        key = "refusal" if answer.stop == "refusal" else "content"
        for piece in _pieces(answer.text):
            yield chunk({key: piece})
        for place, call in enumerate(self._calls(answer, number)):
            arguments = call["function"]["arguments"]
            opened = {"index": place, **call, "function": {"name": call["function"]["name"], "arguments": ""}}
            yield chunk({"tool_calls": [opened]})
            for piece in _pieces(arguments):
                yield chunk({"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
        yield chunk({}, self._finish(answer))
        if (body.get("stream_options") or {}).get("include_usage"):
            yield "", frame | {"choices": [], "usage": self._usage(usage)}
        yield "", "[DONE]"

    def error(self, status: int, message: str) -> Json:
        kind = {400: "invalid_request_error", 401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit"}
        return {"error": {"message": message, "type": kind.get(status, "server_error"), "param": None, "code": None}}


class _Messages:
    """Anthropic's messages."""

    path = "/messages"

    def refused(self, body: Json) -> str | None:
        messages = body.get("messages")
        if not isinstance(body.get("model"), str) or not _is_list_of_objects(messages) or not messages:
            return "model and messages are required"
        if not isinstance(body.get("max_tokens"), int):
            return "max_tokens: field required"
        calls: list[str] = []
        thread = body.get("thread")
        if isinstance(thread, dict) and thread.get("type") == "continue":
            # The server has the earlier messages, and the first results answer the calls in them.
            calls = [str(one.get("tool_use_id")) for one in _blocks(messages[0].get("content"))]
        for message in [*messages, {"role": "end", "content": []}]:
            role, blocks = message.get("role"), _blocks(message.get("content"))
            if role == "system" and message is not messages[0]:
                continue  # newer clients send reminders between the turns
            if role not in ("user", "assistant", "end"):
                return f"messages: {role!r} is not a role; pass the system prompt as `system`"
            if any(block.get("type") == "text" and not str(block.get("text")).strip() for block in blocks):
                return "messages: text content blocks must be non-empty"
            results = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
            if problem := _unanswered(calls, results, "messages"):
                return problem
            calls = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        return None

    def parts(self, body: Json) -> list[Json]:
        system = [{"role": "system", **block} for block in _blocks(body.get("system") or [])]
        said = [
            {"role": message["role"], **block}
            for message in body["messages"]
            for block in _blocks(message.get("content"))
        ]
        return [*body.get("tools", ()), *system, *said]

    def cacheable(self, parts: Sequence[Json]) -> int:
        marked = [place for place, part in enumerate(parts, 1) if part.get("cache_control")]
        return marked[-1] if marked else 0

    def _stop(self, answer: Answer) -> str:
        ends = {"end": "tool_use" if answer.calls else "end_turn", "length": "max_tokens", "refusal": "refusal"}
        return ends[answer.stop]

    def _usage(self, usage: Usage) -> Json:
        return {
            "input_tokens": usage.prompt - usage.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.written,
        }

    def _content(self, answer: Answer, number: int) -> list[Json]:
        text = [{"type": "text", "text": answer.text}] if answer.text else []
        return text + [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.text)}
            for call in _numbered(answer, number, "toolu_")
        ]

    def whole(self, answer: Answer, model: str, number: int, usage: Usage) -> Json:
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": self._content(answer, number),
            "stop_reason": self._stop(answer),
            "stop_sequence": None,
            "usage": self._usage(usage),
        }

    def events(self, answer: Answer, model: str, number: int, usage: Usage, body: Json) -> Iterator[Event]:
        start = self.whole(Answer(), model, number, replace(usage, written=0)) | {"stop_reason": None}
        yield _named({"type": "message_start", "message": start})
        yield _named({"type": "ping"})
        calls = iter(answer.calls)
        for place, block in enumerate(self._content(answer, number)):
            if block["type"] == "text":
                opened, kind, key, text = block | {"text": ""}, "text_delta", "text", block["text"]
            else:
                opened, kind, key = block | {"input": {}}, "input_json_delta", "partial_json"
                text = next(calls).text
            yield _named({"type": "content_block_start", "index": place, "content_block": opened})
            for piece in _pieces(text):
                delta = {"type": kind, key: piece}
                yield _named({"type": "content_block_delta", "index": place, "delta": delta})
            yield _named({"type": "content_block_stop", "index": place})
        stop = {"stop_reason": self._stop(answer), "stop_sequence": None}
        yield _named({"type": "message_delta", "delta": stop, "usage": self._usage(usage)})
        yield _named({"type": "message_stop"})

    def error(self, status: int, message: str) -> Json:
        kind = {
            400: "invalid_request_error",
            401: "authentication_error",
            403: "permission_error",
            404: "not_found_error",
            413: "request_too_large",
            429: "rate_limit_error",
            529: "overloaded_error",
        }
        return {"type": "error", "error": {"type": kind.get(status, "api_error"), "message": message}}


class _Responses(_Chat):
    """OpenAI's responses."""

    path = "/responses"

    def refused(self, body: Json) -> str | None:
        given = body.get("input")
        if not isinstance(body.get("model"), str) or not (isinstance(given, str) or _is_list_of_objects(given)):
            return "model and input are required"
        calls, results = (
            [str(item.get("call_id")) for item in self._items(body) if item.get("type") == kind]
            for kind in ("function_call", "function_call_output")
        )
        return _unanswered(calls, results, "input")

    def _items(self, body: Json) -> list[Json]:
        given = body["input"]
        return [{"role": "user", "content": given}] if isinstance(given, str) else given

    def parts(self, body: Json) -> list[Json]:
        return [*body.get("tools", ()), {"system": body.get("instructions")}, *self._items(body)]

    def _usage(self, usage: Usage) -> Json:
        return {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt + usage.written,
        }

    def _output(self, answer: Answer, number: int) -> list[Json]:
        said: list[Json] = []
        if answer.text or not answer.calls:
            said.append(
                {
                    "type": "message",
                    "id": f"msg_{number}",
                    "role": "assistant",
                    "status": "completed",
                    "content": [self._part(answer)],
                }
            )
        return said + [
            {
                "type": "function_call",
                "id": f"fc_{number}_{place}",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.text,
                "status": "completed",
                **({"namespace": call.namespace} if call.namespace else {}),
            }
            for place, call in enumerate(_numbered(answer, number, "call_"))
        ]

    def _part(self, answer: Answer) -> Json:
        if answer.stop == "refusal":
            return {"type": "refusal", "refusal": answer.text}
        return {"type": "output_text", "text": answer.text, "annotations": []}

    def whole(self, answer: Answer, model: str, number: int, usage: Usage) -> Json:
        cut = answer.stop == "length"
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 0,
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": None,
            "metadata": {},
            "model": model,
            "output": self._output(answer, number),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
            "usage": self._usage(usage),
        }

    def events(self, answer: Answer, model: str, number: int, usage: Usage, body: Json) -> Iterator[Event]:
        for place, event in enumerate(self._unnumbered(answer, model, number, usage)):
            yield _named(event | {"sequence_number": place})

    def _unnumbered(self, answer: Answer, model: str, number: int, usage: Usage) -> Iterator[Json]:
        done = self.whole(answer, model, number, usage)
        begun = done | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        for place, item in enumerate(done["output"]):
            where = {"item_id": item["id"], "output_index": place}
            if item["type"] == "message":
                yield {
                    "type": "response.output_item.added",
                    "output_index": place,
                    "item": item | {"content": [], "status": "in_progress"},
                }
                yield from self._said(item["content"][0], where | {"content_index": 0})
            else:
                opened = item | {"arguments": "", "status": "in_progress"}
                yield {"type": "response.output_item.added", "output_index": place, "item": opened}
                for piece in _pieces(item["arguments"]):
                    yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
                yield {
                    "type": "response.function_call_arguments.done",
                    **where,
                    "name": item["name"],
                    "arguments": item["arguments"],
                }
            yield {"type": "response.output_item.done", "output_index": place, "item": item}
        yield {"type": f"response.{done['status']}", "response": done}

    def _said(self, part: Json, where: Json) -> Iterator[Json]:
        key = "refusal" if part["type"] == "refusal" else "text"
        kind = "response.refusal" if key == "refusal" else "response.output_text"
        logged: Json = {} if key == "refusal" else {"logprobs": []}
        yield {"type": "response.content_part.added", **where, "part": part | {key: ""}}
        for piece in _pieces(part[key]):
            yield {"type": f"{kind}.delta", **where, "delta": piece, **logged}
        yield {"type": f"{kind}.done", **where, key: part[key], **logged}
        yield {"type": "response.content_part.done", **where, "part": part}


def _named(data: Json) -> Event:
    return data["type"], data


def _blocks(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


WIRES: tuple[Wire, ...] = (_Chat(), _Messages(), _Responses())
