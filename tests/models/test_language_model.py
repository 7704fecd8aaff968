"""Asking a language model: a function, an object, or an endpoint over HTTP. The server is real, on loopback."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from loom.errors import InvalidInput, LanguageModelError, LoomError
from loom.knowledge.summarizer import COMPRESS_CONFIG
from loom.models.endpoint import Endpoint as ServiceEndpoint
from loom.models.endpoint import parsed_json
from loom.models.language_model import (
    HttpLanguageModel,
    LanguageModel,
    LanguageModelLike,
    as_language_model,
)

KEY = "sk-very-secret-4711"
PROMPT = "the secret ingredient is cardamom 小豆蔻"


def test_a_function_is_a_model() -> None:
    assert as_language_model(str.upper).complete("abc") == "ABC"


def test_an_object_that_completes_is_used_as_it_is() -> None:
    class Model:
        def complete(self, prompt: str) -> str:
            return prompt[::-1]

    model = Model()
    assert as_language_model(model) is model
    assert isinstance(model, LanguageModel)


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(InvalidInput, match="complete"):
        as_language_model(cast(LanguageModelLike, 5))


def test_a_function_that_gives_no_text_is_an_error() -> None:
    model = as_language_model(cast(LanguageModelLike, lambda prompt: None))
    with pytest.raises(LanguageModelError, match="NoneType"):
        model.complete("x")
    assert issubclass(LanguageModelError, LoomError)


# --- over HTTP ----------------------------------------------------------------------------------------------

Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


@dataclass
class Endpoint:
    url: str = ""
    plan: list[Answer] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.requests.append((handler.path, dict(handler.headers), body))
        (self.plan.pop(0) if self.plan else saying("fine"))(handler, body)


def send(handler: BaseHTTPRequestHandler, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw)


def saying(content: Any) -> Answer:
    return lambda handler, body: send(
        handler, 200, {"choices": [{"message": {"role": "assistant", "content": content}}]}
    )


def failing(status: int, headers: dict[str, str] | None = None) -> Answer:
    """An answer that quotes the request, as real servers do."""
    return lambda handler, body: send(
        handler, status, {"error": f"{body} {handler.headers['Authorization']}"}, headers
    )


def hanging_up(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    handler.close_connection = True


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            running.answer(self)

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    running.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def client(endpoint: Endpoint, **options: Any) -> HttpLanguageModel:
    return HttpLanguageModel(endpoint.url, "model-1", **{"api_key": KEY, "sleep": lambda seconds: None, **options})


def test_the_request_is_what_chat_endpoints_expect(endpoint: Endpoint) -> None:
    assert client(endpoint, max_tokens=9).complete(PROMPT) == "fine"
    path, headers, body = endpoint.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    messages = [{"role": "user", "content": PROMPT}]
    assert body == {"model": "model-1", "messages": messages, "temperature": 0, "max_tokens": 9}


def test_without_a_key_no_authorization_is_sent(endpoint: Endpoint) -> None:
    client(endpoint, api_key=None).complete(PROMPT)
    assert "Authorization" not in endpoint.requests[0][1]


def test_an_answer_in_parts_is_put_together(endpoint: Endpoint) -> None:
    endpoint.plan = [saying([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]
    assert client(endpoint).complete(PROMPT) == "ab"


@pytest.mark.parametrize("failure", [failing(429), failing(503), hanging_up])
def test_a_passing_failure_is_tried_again_after_longer_and_longer_pauses(endpoint: Endpoint, failure: Answer) -> None:
    pauses: list[float] = []
    endpoint.plan = [failure, failure]
    assert client(endpoint, sleep=pauses.append).complete(PROMPT) == "fine"
    assert pauses == [0.5, 1.0]


def test_a_lasting_failure_names_the_tries_and_what_to_do(endpoint: Endpoint) -> None:
    endpoint.plan = [failing(503)] * 3
    with pytest.raises(LanguageModelError, match=r"status 503 \(3 tries\)\. Try later"):
        client(endpoint).complete(PROMPT)


@pytest.mark.parametrize(("status", "advice"), [(400, "model's name"), (401, "api_key"), (404, "base_url")])
def test_a_refusal_is_not_tried_again(endpoint: Endpoint, status: int, advice: str) -> None:
    endpoint.plan = [failing(status)]
    with pytest.raises(LanguageModelError, match=advice):
        client(endpoint).complete(PROMPT)
    assert len(endpoint.requests) == 1


def test_redirects_are_not_followed(endpoint: Endpoint) -> None:
    endpoint.plan = [failing(302, {"Location": f"{endpoint.url}/elsewhere"})]
    with pytest.raises(LanguageModelError, match="redirects are not followed"):
        client(endpoint).complete(PROMPT)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        lambda handler, body: send(handler, 200, b"<html>"),
        lambda handler, body: send(handler, 200, {"choices": []}),
        saying(None),
    ],
)
def test_an_answer_without_text_is_an_error(endpoint: Endpoint, answer: Answer) -> None:
    endpoint.plan = [answer]
    with pytest.raises(LanguageModelError, match="answered"):
        client(endpoint).complete(PROMPT)


def test_errors_carry_neither_key_nor_prompt(endpoint: Endpoint) -> None:
    endpoint.plan = [failing(400)]
    model = client(endpoint)
    with pytest.raises(LanguageModelError) as caught:
        model.complete(PROMPT)
    for secret in (KEY, "cardamom"):
        assert secret not in str(caught.value)
        assert secret not in repr(model)


def test_a_server_that_is_not_there_is_named() -> None:
    model = HttpLanguageModel("http://127.0.0.1:9/v1", "m", max_retries=0)
    with pytest.raises(LanguageModelError, match=r"127\.0\.0\.1:9.*cannot be reached"):
        model.complete("x")


def test_a_prompt_that_cannot_be_sent_is_refused(endpoint: Endpoint) -> None:
    with pytest.raises(InvalidInput, match="surrogate"):
        client(endpoint).complete("\ud800")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://host/v1", {}),
        ("https://user:pw@host/v1", {}),
        ("https://host/v1?key=1", {}),
        ("https://host:port/v1", {}),
        ("https://host/v1", {"model": ""}),
        ("https://host/v1", {"api_key": "a\nb"}),
        ("https://host/v1", {"timeout_s": 0}),
        ("https://host/v1", {"temperature": -1}),
    ],
)
def test_what_cannot_work_is_refused_at_once(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        HttpLanguageModel(url, **{"model": "m", **options})


def test_the_suggested_configuration_makes_a_client() -> None:
    chosen = {name: COMPRESS_CONFIG[name] for name in ("base_url", "model", "temperature")}
    assert "https://openrouter.ai/api/v1/chat/completions" in repr(HttpLanguageModel(**chosen))


# --- servers that take their time, or too much room --------------------------------------------------------------

FINE = json.dumps({"choices": [{"message": {"content": "fine"}}]}).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(FINE)
CHUNKS = b"".join(b"1\r\n%c\r\n" % byte for byte in FINE) + b"0\r\n\r\n"


def dripping(at_once: bytes, drip: bytes) -> Answer:
    """Send the first bytes at once and the others one by one, which takes some seconds in all."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        handler.close_connection = True
        pause = threading.Event()
        try:
            handler.wfile.write(at_once)
            for place in range(len(drip)):
                handler.wfile.write(drip[place : place + 1])
                pause.wait(3.0 / len(drip))
        except OSError:
            return

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        dripping(HEAD, FINE),
        dripping(b"", HEAD + FINE),
        dripping(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 50 + HEAD.partition(b"\r\n")[2] + FINE),
        dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNKS),
        dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 5 + HEAD + FINE),
        dripping(b"HTTP/1.1 503 Busy\r\nContent-Length: 60\r\n\r\n", b"x" * 60),
    ],
    ids=["body", "status", "header", "chunks", "continue", "error"],
)
def test_a_server_that_drips_is_left_at_the_deadline(endpoint: Endpoint, answer: Answer) -> None:
    endpoint.plan = [answer] * 3
    with pytest.raises(LanguageModelError, match=r"0\.3 s|503"):
        client(endpoint, timeout_s=0.3).complete(PROMPT)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + FINE[:-5],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS[:-30],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"no HTTP\r\n\r\n",
    ],
    ids=["body", "chunks", "chunk size", "status"],
)
def test_an_answer_that_is_cut_short_or_no_http_is_an_error_of_ours(endpoint: Endpoint, answer: bytes) -> None:
    def cut(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        handler.close_connection = True
        handler.wfile.write(answer)

    endpoint.plan = [cut] * 5
    with pytest.raises(LanguageModelError):
        client(endpoint, sleep=lambda _: None).complete(PROMPT)


def test_the_pauses_between_tries_belong_to_the_deadline(endpoint: Endpoint) -> None:
    pauses: list[float] = []
    endpoint.plan = [failing(429, {"Retry-After": "40"}), saying("late")]
    with pytest.raises(LanguageModelError, match=r"status 429.*wait 40 s.*timeout_s"):
        client(endpoint, timeout_s=20, sleep=pauses.append).complete(PROMPT)
    assert (len(endpoint.requests), pauses) == (1, [])
    assert client(endpoint, timeout_s=60, sleep=pauses.append).complete(PROMPT) == "late"


@pytest.mark.parametrize("opening", [b"[", b'{"choices":', b'{"a":[', b'{"error":'])
@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_that_is_nested_without_end_is_an_error_of_ours(
    endpoint: Endpoint, opening: bytes, status: int
) -> None:
    endpoint.plan = [lambda handler, body: send(handler, status, opening * 200_000)]
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(1_000_000)  # as some programs do: then the C stack is what ends
        with pytest.raises(LanguageModelError, match=r"chat completion|status 400"):
            client(endpoint).complete(PROMPT)
    finally:
        sys.setrecursionlimit(limit)


def test_brackets_in_a_text_are_no_nesting(endpoint: Endpoint) -> None:
    text = "[{" * 5_000 + '\\"' + "]" * 50
    endpoint.plan = [saying(text)]
    assert client(endpoint).complete(PROMPT) == text


def test_an_answer_of_very_many_parts_is_refused_before_it_is_parsed() -> None:
    """Parsed, it would take many times the memory of its text."""
    with pytest.raises(ValueError, match="too many parts"):
        parsed_json(b"[" + b"[]," * 110_000 + b"0]")
    assert parsed_json(b"[" + b"[]," * 90_000 + b"0]") is not None


def test_an_answer_that_breaks_off_is_asked_for_again(endpoint: Endpoint) -> None:
    """Even if the part that arrived is an answer by itself."""

    def cut(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        raw = json.dumps({"choices": [{"message": {"role": "assistant", "content": "half"}}]}).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(raw) + 100))
        handler.end_headers()
        handler.wfile.write(raw)
        handler.close_connection = True

    endpoint.plan = [cut, saying("whole")]
    assert client(endpoint).complete(PROMPT) == "whole"
    assert len(endpoint.requests) == 2


def test_an_answer_that_is_too_large_is_refused(endpoint: Endpoint) -> None:
    endpoint.plan = [lambda handler, body: send(handler, 200, b" " * (17 * 1024 * 1024))]
    with pytest.raises(LanguageModelError, match="more than 16 MB"):
        client(endpoint).complete(PROMPT)


def test_a_stream_that_is_too_large_is_refused(endpoint: Endpoint) -> None:
    endpoint.plan = [lambda handler, body: send(handler, 200, b"data: {}\n\n" * 120_000)]
    limits: Any = {"timeout_s": 60, "max_retries": 0, "largest_mb": 1, "advice": {}}
    service = ServiceEndpoint(endpoint.url, "chat", "a model", LanguageModelError, api_key=None, **limits)
    with pytest.raises(LanguageModelError, match="more than 1 MB"):
        for _ in service.stream({}):
            pass
