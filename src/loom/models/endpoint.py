"""One JSON endpoint of OpenAI's form over HTTP: where it is, and asking it, with the standard library alone.

`HttpLanguageModel` and `HttpEmbedder` both speak through it. It decides what is tried again and says why an answer
did not come; what is sent and what of the answer is believed is theirs.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from loom.errors import InvalidInput, LoomError

if TYPE_CHECKING:  # urllib.request costs 30 ms to import; only who asks over HTTP pays for it
    import http.client
    import urllib.error
    import urllib.request

__all__ = ["Endpoint", "is_loopback", "retry_after_s"]

_RETRY_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_PAUSE_S: Final = 60.0
_ADVICE: Final[Mapping[int, str]] = {
    401: "Check the api_key.",
    403: "Check the api_key and what it is allowed to do.",
    404: "Check the base_url (it usually ends in /v1) and the model's name.",
    429: "A limit of the account or the server is reached; try later.",
}


class Endpoint:
    """`POST {base_url}/{path}`, for `whom` (as messages call it: "an embedder").

    429, 5xx, timeouts and broken connections are tried `max_retries` times more, after the `Retry-After` the server
    gives (60 s at most) or else 0.5 s, 1 s, 2 s... Redirects are not followed: the key stays with its host. What
    fails raises `error`, whose message carries neither the key nor what was sent.
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
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise InvalidInput("the api_key is empty or holds characters that no HTTP header can carry")
        for label, value, least in (("timeout_s", timeout_s, 0.001), ("max_retries", max_retries, 0)):
            if value < least:
                raise InvalidInput(f"{label} must be at least {least}, not {value}")
        self.url = _address(base_url, path, whom)
        self._error = error
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._largest_mb = largest_mb
        self._advice = {**_ADVICE, **advice}
        self._sleep = sleep

    def ask(self, body: bytes) -> bytes:
        """The answer to a JSON body."""
        attempt = 0
        while True:
            outcome = self._posted(body)
            if isinstance(outcome, bytes):
                return outcome
            if not outcome.worth_retrying or attempt == self._max_retries:
                tries = f" ({attempt + 1} tries)" if attempt else ""
                raise self._error(f"{self.url} {outcome.what}{tries}. {outcome.advice}")
            self._sleep(0.5 * 2**attempt if outcome.retry_after_s is None else outcome.retry_after_s)
            attempt += 1

    def _posted(self, body: bytes) -> bytes | _Failure:
        import http.client
        import urllib.error
        import urllib.request

        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "loomkeep"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(self.url, data=body, headers=headers, method="POST")
        largest = self._largest_mb * 1024 * 1024
        try:
            with _opener(self.url).open(request, timeout=self._timeout_s) as response:
                content: bytes = response.read(largest + 1)
        except urllib.error.HTTPError as error:
            with error:
                return self._status_failure(error)
        except (OSError, http.client.HTTPException) as error:
            return _connection_failure(error, self._timeout_s)
        if len(content) > largest:
            return _Failure(f"answered with more than {self._largest_mb} MB", "Check the base_url.")
        return content

    def _status_failure(self, error: urllib.error.HTTPError) -> _Failure:
        word = _error_word(error)
        fallback = "Give the final address: redirects are not followed." if error.code < 400 else "Try later."
        return _Failure(
            f"answered with status {error.code}{f' ({word})' if word else ''}",
            self._advice.get(error.code, fallback),
            worth_retrying=error.code in _RETRY_STATUS,
            retry_after_s=retry_after_s(error.headers.get("Retry-After"), datetime.now(UTC)),
        )


@dataclass(frozen=True, slots=True)
class _Failure:
    what: str
    advice: str
    worth_retrying: bool = False
    retry_after_s: float | None = None


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


def _opener(url: str) -> urllib.request.OpenerDirector:
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """urllib would send the Authorization header on to whatever host the answer names."""

        def redirect_request(self, *_: object, **__: object) -> None:
            return None

    # A proxy for the outside world has no way to this machine's own servers.
    loopback = is_loopback(urllib.parse.urlsplit(url).hostname or "")
    proxies = urllib.request.ProxyHandler({}) if loopback else urllib.request.ProxyHandler()
    return urllib.request.build_opener(proxies, NoRedirect())


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _error_word(error: urllib.error.HTTPError) -> str:
    """The server's own word for the error, where it is an identifier; its message may quote the text."""
    import http.client

    try:
        answer = json.loads(error.read(65536))["error"]
        word = answer.get("code") or answer.get("type")
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return ""
    return word if isinstance(word, str) and re.fullmatch(r"[a-z]{2,20}(_[a-z]{1,20}){0,4}", word) else ""


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """Seconds to wait, from either form of `Retry-After`, bounded; None where there is none to be read."""
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
    if isinstance(cause, TimeoutError):
        return _Failure(f"gave no answer within {timeout_s:g} s", "Try later, or raise timeout_s.", True)
    detail = getattr(cause, "strerror", None) or type(cause).__name__
    return _Failure(f"cannot be reached ({detail})", "Check the base_url and that the server runs.", True)
