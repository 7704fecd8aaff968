"""A server on loopback that speaks the protocols of models and follows a script.

    with ScriptedModel(["Hello.", Call("recall", {"query": "harbour"}), "It is in Rotterdam."]) as model:
        client = openai.OpenAI(base_url=model.openai_url, api_key="none")

It keeps every request, so that a test can check what was sent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from loom.testing.replies import Answer, Broken, Cut, Fail, Hang, Reply, ScriptLine, answered
from loom.testing.wires import WIRES, Usage, Wire

__all__ = ["Request", "ScriptedModel"]

_LARGEST_MB = 64


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a client: the path after the version, the headers in lower case, and the body."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """The whole body as one text, for searching."""
        return json.dumps(self.body, ensure_ascii=False)


class ScriptedModel:
    """A model server that answers by a script: one line for each request, in the order of arrival.

    After the end of the script, the last line is repeated if `repeat` is true. Otherwise the request fails with
    status 400, which no client retries. `models` are the names that it lists.
    """

    def __init__(
        self, script: Iterable[ScriptLine] = (), *, repeat: bool = False, models: Iterable[str] = ("scripted",)
    ) -> None:
        self._script = _Script(list(script), repeat, tuple(models))
        self._server = _Server(self._script)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address without a version, for Anthropic's clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """The address for OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests, in the order of arrival."""
        with self._script.lock:
            return tuple(self._script.requests)

    @property
    def left(self) -> int:
        """The number of lines of the script that were not used yet."""
        with self._script.lock:
            return len(self._script.lines) - self._script.place

    def add(self, *lines: ScriptLine) -> None:
        """Add lines to the script."""
        with self._script.lock:
            self._script.lines += lines

    def close(self) -> None:
        """Stop the server and end requests that hang. Safe to call twice."""
        self._script.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Script:
    """The lines, the place in them, and the requests; shared by the threads of a server."""

    def __init__(self, lines: list[ScriptLine], repeat: bool, models: tuple[str, ...]) -> None:
        self.lines = lines
        self.models = models
        self.place = 0
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self._repeat = repeat
        self._kept: list[list[str]] = []

    def reply(self, request: Request) -> tuple[int, Reply]:
        """Return the number of a request and the reply to it."""
        with self.lock:
            self.requests.append(request)
            number = len(self.requests)
            if self.place < len(self.lines):
                line = self.lines[self.place]
                self.place += 1
            elif self._repeat and self.lines:
                line = self.lines[-1]
            else:
                return number, Fail(400, message=f"the script ended after {len(self.lines)} lines")
        return number, answered(line, request)

    def usage(self, wire: Wire, body: dict[str, Any], answer: Answer) -> Usage:
        """Return the tokens of a prompt. The beginning that it shares with the cacheable part of an earlier prompt
        counts as cached."""
        parts = wire.parts(body)
        texts = [json.dumps(part, ensure_ascii=False, sort_keys=True) for part in parts]
        with self.lock:
            known = max((_common(texts, kept) for kept in self._kept), default=0)
            self._kept.append(texts[: wire.cacheable(parts)])
        sizes = [-(-len(text) // 4) for text in texts]
        return Usage(sum(sizes), sum(sizes[:known]), answer.tokens)


def _common(one: list[str], other: list[str]) -> int:
    """Return the length of the common beginning of two lists."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, script: _Script) -> None:
        self.script = script
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Write nothing to the terminal."""

    def do_GET(self) -> None:
        path = self._path()
        if path == "/models":
            listed = [
                {"id": name, "object": "model", "created": 0, "owned_by": "loom"}
                for name in self.server.script.models
            ]
            self._send(200, {"object": "list", "data": listed})
        else:
            self._send(404, {"error": {"message": f"there is nothing at {path}"}})

    def do_HEAD(self) -> None:
        self._send(200, {})

    def do_POST(self) -> None:
        path = self._path()
        body = self._body()
        if body is None:
            return
        if path == "/messages/count_tokens":
            self._send(200, {"input_tokens": -(-len(json.dumps(body)) // 4)})
            return
        wire = next((one for one in WIRES if one.path == path), None)
        if wire is None:
            self._send(404, {"error": {"message": f"there is nothing at {path}"}})
            return
        if problem := wire.refused(body):
            self._send(400, wire.error(400, problem))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        number, reply = self.server.script.reply(Request(path, headers, body))
        self._reply(wire, body, number, reply)

    def _reply(self, wire: Wire, body: dict[str, Any], number: int, reply: Reply) -> None:
        match reply:
            case Fail(status, retry_after_s, message):
                pause = {} if retry_after_s is None else {"Retry-After": f"{retry_after_s:g}"}
                self._send(status, wire.error(status, message), pause)
            case Hang():
                self.server.script.ended.wait()
                self.close_connection = True
            case Broken(content):
                self._send_bytes(200, content, {"Content-Type": "text/html"})
            case Cut(answer, after):
                self._answer(wire, body, number, answer, after)
            case Answer():
                self._answer(wire, body, number, reply, None)

    def _answer(self, wire: Wire, body: dict[str, Any], number: int, answer: Answer, after: int | None) -> None:
        usage = self.server.script.usage(wire, body, answer)
        model = str(body["model"])
        if not body.get("stream"):
            content = json.dumps(wire.whole(answer, model, number, usage), ensure_ascii=False).encode()
            headers = {"Content-Type": "application/json"}
            self._send_bytes(200, content, headers, None if after is None else len(content) // 2)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for place, event in enumerate(_lines(wire.events(answer, model, number, usage, body))):
            if place == after:
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _path(self) -> str:
        return self.path.partition("?")[0].removeprefix("/v1")

    def _body(self) -> dict[str, Any] | None:
        """Return the body as an object; None if it is not one, after sending the error."""
        length = int(self.headers.get("Content-Length") or 0)
        if length > _LARGEST_MB * 1024 * 1024:
            self.close_connection = True
            self._send(413, {"error": {"message": f"a request has at most {_LARGEST_MB} MB"}})
            return None
        try:
            body = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            self._send(400, {"error": {"message": "the body is not a JSON object"}})
            return None
        return body

    def _send(self, status: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        encoded = json.dumps(content, ensure_ascii=False).encode()
        self._send_bytes(status, encoded, {"Content-Type": "application/json"} | (headers or {}))

    def _send_bytes(self, status: int, content: bytes, headers: dict[str, str], cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:cut])
        if cut is not None:
            self.close_connection = True


def _lines(events: Iterator[tuple[str, Any]]) -> Iterator[bytes]:
    """Encode events as server-sent events."""
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        head = f"event: {name}\n" if name else ""
        yield f"{head}data: {text}\n\n".encode()
