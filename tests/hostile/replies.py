"""Hostile replies to the HTTP clients of embedders and language models, from a server on loopback."""

from __future__ import annotations

import functools
import itertools
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from loom.errors import LoomError
from loom.models.embedders import HttpEmbedder
from loom.models.language_model import HttpLanguageModel

__all__ = ["replies"]

# Far longer than any timeout that is given below, and longer than a case may take.
_DRIPS = 2_000


class Server:
    """Sends the pieces of `script` to each client, then closes."""

    def __init__(self) -> None:
        self.script: Callable[[], Iterator[bytes]] = lambda: iter(())
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=self._answer, args=(connection, self.script), daemon=True).start()

    @staticmethod
    def _answer(connection: socket.socket, script: Callable[[], Iterator[bytes]]) -> None:
        with connection, suppress(OSError):
            connection.settimeout(5.0)
            connection.recv(65536)
            for piece in script():
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)


@functools.cache
def server() -> Server:
    return Server()


def _json(chance: random.Random, depth: int = 0) -> Any:
    leaves: list[Any] = [None, True, 0, -1, 1e308, "text", "", "\0", 10**400, [], {}, [0.5] * 8, "\ud800", "x" * 1000]
    if depth > 3 or chance.random() < 0.3:
        return chance.choice(leaves)
    names = ["data", "embedding", "index", "choices", "message", "content", "text", "error", "object"]
    match chance.choice(["known", "object", "list"]):
        case "known":
            vector: Any = chance.choice(
                [[0.5] * 8, [0.0] * 8, [1e39] * 8, ["x"] * 8, [[0.5]] * 8, "AAAA", None, [0.5] * 7]
            )
            return {
                "data": [{"embedding": vector, "index": chance.choice([0, 1, -1, "0", None])}],
                "choices": [{"message": {"content": _json(chance, depth + 1)}}],
            }
        case "object":
            return {chance.choice(names): _json(chance, depth + 1) for _ in range(3)}
        case _:
            return [_json(chance, depth + 1) for _ in range(chance.choice([0, 1, 3]))]


def _body(chance: random.Random) -> bytes:
    depth = chance.choice([50, 900, 5_000, 200_000])
    match chance.choice(["json", "json", "json", "deep", "deeper", "noise", "cut", "large", "many"]):
        case "json":
            return json.dumps(_json(chance)).encode()
        case "deep":
            return b"[" * depth + b"]" * depth
        case "deeper":
            return b'{"data":' * depth + b"1" + b"}" * depth
        case "noise":
            return chance.randbytes(chance.choice([0, 1, 1000]))
        case "cut":
            whole = json.dumps({"data": [{"embedding": [0.5] * 8, "index": 0}]}).encode()
            return whole[: chance.randrange(len(whole))]
        case "large":
            return b'{"data":[' + b"0," * (chance.choice([1, 20]) * 1024 * 1024) + b"0]}"
        case _:
            return json.dumps({"data": [{"embedding": [0.5] * 8, "index": one} for one in range(3000)]}).encode()


def _script(chance: random.Random) -> Callable[[], Iterator[bytes]]:
    status = chance.choice([200] * 8 + [204, 301, 307, 400, 401, 404, 429, 500, 503, 999, -1])
    body = _body(chance)
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n".encode()

    def drip(piece: bytes) -> Iterator[bytes]:
        for _ in range(_DRIPS):
            time.sleep(0.05)  # the drip itself; nothing waits for it
            yield piece

    match chance.choice(
        ["whole"] * 6 + ["drip head", "drip body", "drip first", "chunks", "length", "redirect", "else", "close"]
    ):
        case "whole":
            return lambda: iter([head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body])
        case "drip head":
            return lambda: itertools.chain([head], drip(b"X-A: b\r\n"))
        case "drip body":
            return lambda: itertools.chain([head + b"Content-Length: 100000\r\n\r\n"], drip(b" "))
        case "drip first":
            return lambda: drip(b"H")
        case "chunks":
            size = chance.choice(["1", "ffffffffffffffff", "-1", "zz", "5"])
            return lambda: iter([head + f"Transfer-Encoding: chunked\r\n\r\n{size}\r\n".encode() + body])
        case "length":
            length = chance.choice(["-1", "99999999999999999999", "x", "0", str(len(body) + 5), str(len(body) // 2)])
            return lambda: iter([head + f"Content-Length: {length}\r\n\r\n".encode() + body])
        case "redirect":
            where = chance.choice([server().url, "file:///etc/passwd", "ftp://127.0.0.1/x", "//", ""])
            return lambda: iter([f"HTTP/1.1 302 X\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode()])
        case "else":
            junk = chance.choice(
                [
                    b"",
                    b"SSH-2.0\r\n",
                    b"HTTP/9.9 200\r\n\r\n",
                    b"\0" * 1000,
                    b"HTTP/1.1 200 X\r\n" + b"A: b\r\n" * 500,
                ]
            )
            return lambda: iter([junk])
        case _:
            return lambda: iter(())


def replies(chance: random.Random, folder: Path) -> None:
    """A client has an answer of the right kind, or an error of ours, and gives up in time."""
    server().script = _script(chance)
    options: dict[str, Any] = {"timeout_s": 0.5, "max_retries": chance.choice([0, 1]), "sleep": lambda _: None}
    with suppress(LoomError):
        if chance.random() < 0.5:
            dimensions = chance.choice([8, None])
            vectors = HttpEmbedder(server().url, "m", "key", dimensions, **options).embed_batch(["a text"])
            assert vectors.shape == (1, dimensions or vectors.shape[1])
            assert abs(float((vectors**2).sum()) - 1) < 1e-3
        else:
            assert isinstance(HttpLanguageModel(server().url, "m", "key", **options).complete("a prompt"), str)
