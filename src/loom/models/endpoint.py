"""Requests to a JSON endpoint of OpenAI's form over HTTP, with the standard library alone.

`HttpLanguageModel` and `HttpEmbedder` send their requests through it. They import it when an instance is made,
because urllib takes 30 ms to import. Retries and error messages are decided here. The callers write the requests and
check the answers.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import json
import math
import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Event
from types import MappingProxyType
from typing import Any, Final, TypeVar

from loom.checks import checked_number, checked_whole
from loom.errors import InvalidInput, LanguageModelError, LoomError

__all__ = ["Endpoint", "is_loopback", "parsed_json", "retry_after_s"]

Answer = TypeVar("Answer")
Picked = TypeVar("Picked")

# The interval at which a call checks whether it was cancelled.
_LOOK_S: Final = 0.25
_RETRY_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# With these statuses, a gateway gave up on a server that may have processed the request.
_PERHAPS_ANSWERED: Final = frozenset({408, 502, 504})
_LONGEST_PAUSE_S: Final = 60.0
_ADVICE: Final[Mapping[int, str]] = {
    401: "Check the api_key.",
    403: "Check the api_key and what it is allowed to do.",
    404: "Check the base_url (it usually ends in /v1) and the model's name.",
    429: "A limit of the account or the server is reached; try later.",
}


class Endpoint:
    """`POST {base_url}/{path}`. Error messages call the caller `whom`, such as "an embedder".

    `timeout_s` is the deadline of a whole call: connecting, sending, reading the whole answer, and all retries with
    the pauses between them. (The lookup of a host's address has the resolver's own limits.) A call that fails with
    429, 5xx or a broken connection is retried up to `max_retries` times, after the server's `Retry-After` (60 s at
    most) or else after 0.5 s, 1 s, 2 s..., while the deadline allows. Redirects are not followed, so the key stays
    with its host. Failures raise `error`; the message contains neither the key nor the request.
    """

    def __init__(
        self,
        base_url: str,
        path: str,
        whom: str,
        error: type[LoomError],
        *,
        api_key: str | None,
        timeout_s: float,
        max_retries: int,
        largest_mb: int,
        advice: Mapping[int, str],
        headers: Mapping[str, str] = MappingProxyType({}),
        key_header: str = "Authorization",
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise InvalidInput("the api_key is empty or holds characters that no HTTP header can carry")
        self.url = _address(base_url, path, whom)
        self._error = error
        self._headers = {"Content-Type": "application/json", "User-Agent": "loomkeep", **headers}
        if api_key is not None:
            self._headers[key_header] = f"Bearer {api_key}" if key_header == "Authorization" else api_key
        self._timeout_s = checked_number(timeout_s, "timeout_s", 0.001)
        self._max_retries = checked_whole(max_retries, "max_retries")
        self._largest_mb = largest_mb
        self._advice = {**_ADVICE, **advice}
        self._sleep = sleep

    def ask(
        self,
        body: Mapping[str, object],
        what: str,
        pick: Callable[[Any], Picked],
        cancelled: Event | None = None,
    ) -> Picked:
        """Send a JSON body, and return what `pick` takes from the answer.

        Raises `error` if the answer is not JSON, or `pick` does not find what it needs: then it is not `what`.
        Setting `cancelled` ends the call within a quarter of a second.
        """
        encoded = _encoded(body)

        def read(deadline: float) -> bytes | _Failure:
            response = self._opened(encoded, deadline, cancelled, "application/json")
            if isinstance(response, _Failure):
                return response
            largest = self._largest_mb * 1024 * 1024
            try:
                with response:
                    content: bytes = response.read(largest + 1)
            except (OSError, http.client.HTTPException) as error:
                return _connection_failure(error, self._timeout_s)
            if len(content) > largest:
                return _Failure(f"answered with more than {self._largest_mb} MB", "Check the base_url.")
            if response.length:
                return _Failure("broke off in the middle of an answer", "Try again.", worth_retrying=True)
            return content

        content = self._tried(read)
        try:
            return pick(parsed_json(content))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self.foreign(what) from None

    def foreign(self, what: str) -> LoomError:
        """The error for an answer that is not `what`."""
        return self._error(f"{self.url} answered with something that is not {what}. Check the base_url.")

    def stream(self, body: Mapping[str, object], cancelled: Event | None = None) -> Iterator[object]:
        """Yield the data of each server-sent event that answers a JSON body, parsed.

        A failure before the answer begins is retried; an answer that breaks off is not.
        """
        encoded = _encoded(body)
        response: Any = self._tried(lambda deadline: self._opened(encoded, deadline, cancelled, "text/event-stream"))
        with response:
            try:
                yield from _events(response, self._largest_mb * 1024 * 1024)
            except (OSError, http.client.HTTPException) as error:
                failure = _connection_failure(error, self._timeout_s)
                raise self._error(f"{self.url} {failure.what} in the middle of an answer. {failure.advice}") from None
            except ValueError as error:
                raise self._error(
                    f"{self.url} answered with a stream that is not of server-sent events ({error})."
                ) from None

    def _tried(self, attempt: Callable[[float], Answer | _Failure]) -> Answer:
        """Return the result of an attempt, retried as often as the limits allow. Raises the error of the last one."""
        deadline = time.monotonic() + self._timeout_s
        tries = 0
        sent = False
        while True:
            outcome = attempt(deadline)
            if not isinstance(outcome, _Failure):
                return outcome
            sent = sent or outcome.sent
            pause = 0.5 * 2**tries if outcome.retry_after_s is None else outcome.retry_after_s
            in_time = time.monotonic() + pause < deadline
            if not outcome.worth_retrying or tries == self._max_retries or not in_time:
                counted = f" ({tries + 1} tries)" if tries else ""
                late = f" and asks to wait {pause:g} s, longer than timeout_s allows"
                asked = "" if outcome.retry_after_s is None or in_time else late
                error = self._error(f"{self.url} {outcome.what}{asked}{counted}. {outcome.advice}")
                if isinstance(error, LanguageModelError):
                    error.sent = sent
                raise error
            self._sleep(pause)
            tries += 1

    def _opened(self, body: bytes, deadline: float, cancelled: Event | None, accept: str) -> Any:
        """The open response to a body, or the reason that there is none."""
        headers = {**self._headers, "Accept": accept}
        request = urllib.request.Request(self.url, data=body, headers=headers, method="POST")
        try:
            return _opener(self.url, deadline, cancelled).open(request, timeout=_left(deadline))
        except urllib.error.HTTPError as error:
            with error:
                return self._status_failure(error)
        except (OSError, http.client.HTTPException) as error:
            return _connection_failure(error, self._timeout_s)

    def _status_failure(self, error: urllib.error.HTTPError) -> _Failure:
        word = _error_word(error)
        fallback = "Give the final address: redirects are not followed." if error.code < 400 else "Try later."
        return _Failure(
            f"answered with status {error.code}{f' ({word})' if word else ''}",
            self._advice.get(error.code, fallback),
            worth_retrying=error.code in _RETRY_STATUS,
            retry_after_s=retry_after_s(error.headers.get("Retry-After"), datetime.now(UTC)),
            sent=error.code in _PERHAPS_ANSWERED,
        )


@dataclass(frozen=True, slots=True)
class _Failure:
    what: str
    advice: str
    worth_retrying: bool = False
    retry_after_s: float | None = None
    sent: bool = True


def _encoded(body: Mapping[str, object]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidInput("the prompt holds a lone surrogate and cannot be sent; replace the character") from None


def _events(response: Any, largest: int) -> Iterator[object]:
    """The data of a stream of server-sent events. `[DONE]` ends it, and so does the end of the answer."""
    data: list[bytes] = []
    read = 0
    while line := response.readline(largest + 1):
        read += len(line)
        if read > largest:
            raise ValueError(f"more than {largest // 1024 // 1024} MB")
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif not field and not value and data:
            if data == [b"[DONE]"]:
                return
            yield parsed_json(b"\n".join(data))
            data = []


def _address(base_url: str, path: str, whom: str) -> str:
    parts = urllib.parse.urlsplit(base_url)
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        usable = False
    if not usable or not base_url.isascii() or re.search(r"[\s\x00-\x1f]", base_url):
        raise InvalidInput(f"the base_url of {whom} must be like https://host/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInput(f"the base_url of {whom} takes no user, query or fragment; a key goes to api_key")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(f'/{path}')}/{path}"


def _left(deadline: float) -> float:
    """The seconds until a moment of the monotonic clock. Raises `TimeoutError` if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline of the call has passed")
    return left


class _Cancelled(OSError):
    """The caller has cancelled the call."""


class _TimedReader(io.RawIOBase):
    """Reads a socket until a deadline. A socket's own timeout starts again with every byte that arrives."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, deadline: float, cancelled: Event | None) -> None:
        self._sock = sock
        self._raw = raw
        self._deadline = deadline
        self._cancelled = cancelled

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._cancelled is None:
            self._sock.settimeout(_left(self._deadline))
            return self._raw.readinto(buffer)
        while True:
            if self._cancelled.is_set():
                raise _Cancelled
            self._sock.settimeout(min(_left(self._deadline), _LOOK_S))
            try:
                return self._sock.recv_into(buffer)
            except TimeoutError:
                continue

    def close(self) -> None:
        self._raw.close()
        super().close()


def _connected(address: tuple[str, int], deadline: float, source: tuple[str, int] | None) -> socket.socket:
    """A socket to the first address of a host that answers before the deadline."""
    failure: OSError | None = None
    for *_, (ip, *_) in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        try:
            sock = socket.create_connection((str(ip), address[1]), _left(deadline), source)
        except TimeoutError:
            raise
        except OSError as error:
            failure = error
            continue
        sock.settimeout(_left(deadline))
        return sock
    raise failure or OSError("the host has no address")


def _opener(url: str, deadline: float, cancelled: Event | None) -> urllib.request.OpenerDirector:
    """An opener whose connections end every step at the deadline."""

    class TimedResponse(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
            super().__init__(sock, *args, **options)
            self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach(), deadline, cancelled))

    class Timed(http.client.HTTPConnection):
        response_class = TimedResponse

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._create_connection = lambda address, _, source: _connected(address, deadline, source)

    class TimedTls(Timed, http.client.HTTPSConnection):
        """The same, encrypted."""

    class Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
        def do_open(self, http_class: Any, req: Any, **options: Any) -> Any:
            timed = TimedTls if http_class is http.client.HTTPSConnection else Timed
            return super().do_open(timed, req, **options)

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """Refuses redirects: urllib would send the Authorization header to the host that the answer names."""

        def redirect_request(self, *_: object, **__: object) -> None:
            return None

    # A proxy cannot reach the servers of this machine.
    loopback = is_loopback(urllib.parse.urlsplit(url).hostname or "")
    proxies = urllib.request.ProxyHandler({}) if loopback else urllib.request.ProxyHandler()
    return urllib.request.build_opener(proxies, NoRedirect(), Handler())


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _error_word(error: urllib.error.HTTPError) -> str:
    """The server's code for the error if it is an identifier. Its message is left out: it may quote the request."""
    try:
        answer: Any = parsed_json(error.read(65536))
        answer = answer["error"]
        word = answer.get("code") or answer.get("type")
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return ""
    return word if isinstance(word, str) and re.fullmatch(r"[a-z]{2,20}(_[a-z]{1,20}){0,4}", word) else ""


_DEEPEST: Final = 64
_MOST_CONTAINERS: Final = 100_000
# Up to this many brackets cannot exceed Python's recursion limit.
_FEW_BRACKETS: Final = 500
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def parsed_json(content: bytes) -> object:
    """Parse an answer as JSON. Raises `ValueError` if it is not JSON, nested too deeply, or in too many parts.

    `json.loads` alone raises `RecursionError`, and crashes the process if the recursion limit was raised.
    """
    if content.count(b"[") + content.count(b"{") > _FEW_BRACKETS:
        depth = containers = 0
        for found in _STRUCTURE.finditer(content):
            first = content[found.start()]
            if first in b"[{":
                depth += 1
                containers += 1
                if depth > _DEEPEST or containers > _MOST_CONTAINERS:
                    raise ValueError("the answer is nested too deeply, or has too many parts")
            elif first in b"]}":
                depth -= 1
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """The seconds to wait, from either form of `Retry-After`, 60 at most; None without a valid header."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_PAUSE_S) if math.isfinite(seconds) else None


def _connection_failure(error: OSError | http.client.HTTPException, timeout_s: float) -> _Failure:
    cause = getattr(error, "reason", error)
    sent = not isinstance(error, urllib.error.URLError)  # urllib wraps what fails until the request is sent
    if isinstance(cause, _Cancelled):
        return _Failure("was not asked further: the call was cancelled", "No action is needed.", sent=sent)
    if isinstance(cause, TimeoutError):
        return _Failure(f"gave no answer within {timeout_s:g} s", "Try later, or raise timeout_s.", True, sent=sent)
    detail = getattr(cause, "strerror", None) or type(cause).__name__
    return _Failure(f"cannot be reached ({detail})", "Check the base_url and that the server runs.", True, sent=sent)
