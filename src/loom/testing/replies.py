"""The replies of a scripted model: answers, tool calls, and the failures of real servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from loom.testing.server import Request

__all__ = ["Answer", "Broken", "Call", "Cut", "Fail", "Hang", "Reply", "ScriptLine", "answered"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool. `arguments` that are a text are sent unchanged, so that they can be malformed.

    Anthropic's protocol cannot carry arguments that are not JSON: there they become an empty object. `namespace` is
    the group of the tool in OpenAI's responses; the other protocols have none.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""
    namespace: str = ""

    @property
    def text(self) -> str:
        """The arguments as JSON."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the model: a text, calls of tools, or both. It may be empty.

    `stop` is "end", "length" (the limit of tokens was reached) or "refusal". Without `output_tokens`, four characters
    count as one token.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Literal["end", "length", "refusal"] = "end"
    output_tokens: int | None = None

    @property
    def tokens(self) -> int:
        written = len(self.text) + sum(len(call.name) + len(call.text) for call in self.calls)
        return -(-written // 4) if self.output_tokens is None else self.output_tokens


@dataclass(frozen=True, slots=True)
class Fail:
    """An error of the server, by its status: 429, 500, 529, or 401, 400, 404."""

    status: int = 500
    retry_after_s: float | None = None
    message: str = "the script says so"


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer until the client gives up or the server is closed."""


@dataclass(frozen=True, slots=True)
class Cut:
    """An answer whose connection breaks, after `after` events of a stream or in the middle of a whole answer."""

    answer: Answer = field(default_factory=lambda: Answer("This answer is never complete."))
    after: int = 3


@dataclass(frozen=True, slots=True)
class Broken:
    """A body that does not follow the protocol."""

    body: bytes = b"<html>not the model</html>"


Reply = Answer | Fail | Hang | Cut | Broken
"""The reply to one request."""

ScriptLine = Reply | str | Call | Callable[["Request"], "Reply | str | Call"]
"""A reply; a text or a call, as the short form of an answer; or a function that returns the reply to a request."""


def answered(line: ScriptLine, request: Request) -> Reply:
    """Return the reply of a line of the script to a request."""
    said = line(request) if callable(line) else line
    if isinstance(said, str):
        return Answer(said)
    return Answer(calls=(said,)) if isinstance(said, Call) else said
