"""A proxy between a client and a PostgreSQL server: a test may count, hold and cut the traffic."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

from tests.postgres_server import PostgresServer

__all__ = ["Way", "way_to"]

_SOCKET = ".s.PGSQL.5432"
_READY = ord("Z")


@dataclass
class _Link:
    """One connection: the client's socket and the server's, and the incomplete message of the server."""

    client: socket.socket
    server: socket.socket
    said: bytearray = field(default_factory=bytearray)
    held: bool = False
    to_server: bytearray = field(default_factory=bytearray)
    to_client: bytearray = field(default_factory=bytearray)

    def close(self) -> None:
        for end in (self.client, self.server):
            end.close()


def _target(server: PostgresServer) -> str | tuple[str, int]:
    given = conninfo_to_dict(server.url)
    host, port = str(given.get("host") or "localhost"), str(given.get("port") or "5432")
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, int(port))


class Way:
    """Forwards the messages of both sides, and counts the answers of the server."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.folder = folder
        self.answers = 0
        self._server = server
        self._target: str | tuple[str, int] | None = _target(server)
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._loses = self._held = self._closed = False
        self._cuts_at: tuple[bytes, bool] | None = None
        self._fails_over = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _SOCKET))
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def lose_next_answer(self) -> None:
        """Forward the next question, wait for its whole answer, and close the connection instead of forwarding it."""
        self._loses = True

    def cut_at(self, question: bytes, *, answered: bool) -> None:
        """Close the connection that sends this question, instead of forwarding the question or, if `answered`, its
        answer."""
        self._cuts_at = question, answered

    def fail_over(self) -> None:
        """Cut every connection together with the next one that is cut, and refuse new ones until `lead_to`."""
        self._fails_over = True

    @property
    def has_failed_over(self) -> bool:
        return self._target is None

    def come_back(self) -> None:
        """Lead new connections to the first server again."""
        self.lead_to(self._server)

    def lead_to(self, server: PostgresServer) -> None:
        """Direct new connections to another server."""
        self._target = _target(server)

    def hold(self, *, new: bool = False) -> None:
        """Forward nothing on the present connections, as a slow network does; with `new`, on new ones neither."""
        with self._lock:
            self._held = new
            for link in self._links:
                link.held = True

    def release(self) -> None:
        """Forward again, beginning with the held data."""
        with self._lock:
            self._held = False
            for link in self._links:
                link.held = False

    @property
    def holds_a_question(self) -> bool:
        """Whether a client has said something that is held."""
        with self._lock:
            return any(link.held and link.to_server for link in self._links)

    def cut_clients(self) -> None:
        """Close the clients' ends; the server does not notice it and continues its work."""
        with self._lock:
            for link in self._links:
                with contextlib.suppress(OSError):
                    link.client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        self._held = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            target = self._target
            if target is None:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX if isinstance(target, str) else socket.AF_INET)
            server.connect(target)
            with self._lock:
                link = _Link(client, server, held=self._held)
                self._links.append(link)
            thread = threading.Thread(target=self._forward, args=(link,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _forward(self, link: _Link) -> None:
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(link.client, selectors.EVENT_READ)
                ready.register(link.server, selectors.EVENT_READ)
                while not self._closed:
                    for key, _ in ready.select(0.02):
                        if key.fileobj is link.client:
                            data = link.client.recv(1 << 16)
                            if not data:  # the server is not told: it finishes what it was asked for
                                ready.unregister(link.client)
                            if self._cuts_at is not None and self._cuts_at[0] in data:
                                (_, self._loses), self._cuts_at = self._cuts_at, None
                                if not self._loses:
                                    self._lost()
                                    return
                            link.to_server += data
                        else:
                            data = link.server.recv(1 << 16)
                            complete = self._count(link, data)
                            if not data or (self._loses and complete):
                                self._loses = False
                                self._lost()
                                return
                            link.to_client += data
                    if not link.held:
                        self._give(link)
        except OSError:
            return
        finally:
            with self._lock:
                self._links.remove(link)
            link.close()

    def _lost(self) -> None:
        """Carry out a failover that belongs to the loss of a connection."""
        if self._fails_over:
            self._fails_over = False
            self._target = None
            self.cut_clients()

    def _give(self, link: _Link) -> None:
        if link.to_server:
            link.server.sendall(link.to_server)
            link.to_server.clear()
        if link.to_client and not self._loses:
            with contextlib.suppress(OSError):
                link.client.sendall(link.to_client)
            link.to_client.clear()

    def _count(self, link: _Link, data: bytes) -> bool:
        """Count the answers that are complete with this data; whether there is one."""
        link.said += data
        found = False
        while len(link.said) >= 5:
            kind, length = struct.unpack_from("!cI", link.said)
            if len(link.said) < 1 + length:
                break
            if ord(kind) == _READY:
                self.answers += 1
                found = True
            del link.said[: 1 + length]
        return found


@contextmanager
def way_to(server: PostgresServer, folder: Path) -> Iterator[tuple[PostgresServer, Way]]:
    """A way to the server, and the server at its end, through a socket in a new folder."""
    folder.mkdir()
    way = Way(folder, server)
    ours = conninfo_to_dict(server.url) | {"host": str(folder), "port": "5432", "sslmode": "disable"}
    try:
        yield PostgresServer(f"postgresql:///?{urlencode(ours)}"), way
    finally:
        way.close()
