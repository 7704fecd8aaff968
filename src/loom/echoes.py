"""Echoes: answers of a memory that a tool or an assistant stores again.

An agent or an MCP client may store an answer of `recall`, `context`, `facts` or a memory tool as a tool result, or
repeat it in its own text. Such a text contains nothing new. It stays in the log, and is neither recalled nor used as
a source. It is recognised by its form: the `<memory>` block of a prompt, the JSON of memory tools and operations
(`FROM_MEMORY`), even truncated or inside other JSON, and the lists of the MCP server and the command line. Only texts
of an agent or a tool can be echoes, never a turn of the user.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from loom.storage.contract import Record
from loom.text.scripts import han_characters
from loom.types import Trust

__all__ = ["FROM_MEMORY", "echo_spans", "echoes_among", "is_echo", "own_words"]

FROM_MEMORY: Final = ("source", "memory")
"""The first member of the JSON answers of memory tools."""

_ECHOING: Final = frozenset({Trust.AGENT, Trust.TOOL})
# Every echo contains one of these; most texts contain none.
_HINTS: Final = ("memory", '"id', "id='", "(id ", "\n       ", "\n  fact_")
_BLOCK: Final = re.compile("[<‹]memory[>›]", re.IGNORECASE)
_CUT_OFF_BLOCK: Final = re.compile(r"[<‹]memory[>›](?:\n|\\n)", re.IGNORECASE)
_BLOCK_END: Final = re.compile("[<‹]/memory[>›]", re.IGNORECASE)
# The possible beginnings of loom's JSON. Inside other JSON, quotes have a backslash before them.
_QUOTE: Final = r'\\{0,3}"'
_JSON_START: Final = re.compile(
    rf"\{{\s*{_QUOTE}(?:{FROM_MEMORY[0]}{_QUOTE}\s*:\s*{_QUOTE}{FROM_MEMORY[1]}{_QUOTE}"
    rf"|(?:items|hits|facts){_QUOTE}\s*:\s*\[\s*\{{\s*{_QUOTE}id{_QUOTE}|id{_QUOTE}\s*:)"
    r"|Hit\(id='"
)
# Contained in the rest of a text that is our JSON but cannot be parsed, because it is truncated or inside other JSON.
_SIGNATURES: Final = tuple(
    tuple(re.compile(rf"{_QUOTE}{name}{_QUOTE}\s*:\s*{value}") for name, value in members)
    for members in (
        ((FROM_MEMORY[0], rf"{_QUOTE}{FROM_MEMORY[1]}{_QUOTE}"),),
        (("text", _QUOTE), ("trust", rf"{_QUOTE}(?:user|agent|tool|web|unknown){_QUOTE}"), ("at", _QUOTE)),
        (("content", _QUOTE), ("score", r"-?\d"), ("why", _QUOTE)),
        (("content", _QUOTE), ("fact_type", _QUOTE), ("confidence", r"\d")),
    )
)
_MEMBERS: Final = (
    frozenset({"id", "text", "trust", "at", "score"}),
    frozenset({"id", "content", "score", "why", "trust"}),
    frozenset({"id", "content", "fact_type", "confidence"}),
)
_MOST_STARTS: Final = 16
_DECODER: Final = json.JSONDecoder()


def is_echo(record: Record) -> bool:
    """Whether a record repeats an answer of a memory and adds no words of its own."""
    if not _may_echo(record):
        return False
    spans = echo_spans(record.content)
    if not spans:
        return False
    if record.trust == Trust.TOOL:  # the answer of a tool has only names and labels around it
        return 2 * sum(end - start for start, end in spans) >= len(record.content)
    return not _says_something(_without(record.content, spans, ""))


def echoes_among(records: Iterable[Record]) -> set[str]:
    """Return the ids of the records that are echoes."""
    return {record.id for record in records if is_echo(record)}


def own_words(record: Record) -> str:
    """Return the text of a record with echoes replaced by spaces; only spaces if it adds no words of its own."""
    text = record.content
    spans = echo_spans(text) if _may_echo(record) else []
    return " " * len(text) if spans and is_echo(record) else _without(text, spans, " ")


def _may_echo(record: Record) -> bool:
    return record.role != "user" and record.trust in _ECHOING and any(hint in record.content for hint in _HINTS)


def echo_spans(text: str) -> list[tuple[int, int]]:
    """Return the disjoint spans in which a text repeats an answer of a memory, in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((*_blocks(text), *_answers(text), *_listings(text))):
        if not found or start >= found[-1][1]:
            found.append((start, end))
        elif end > found[-1][1]:
            found[-1] = (found[-1][0], end)
    return found


def _without(text: str, spans: list[tuple[int, int]], filler: str) -> str:
    """Return a text with each character of these spans replaced."""
    for start, end in reversed(spans):
        text = f"{text[:start]}{filler * (end - start)}{text[end:]}"
    return text


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Find the `<memory>` blocks of prompts. A truncated block extends to the end of the text.

    A block without its end mark must begin on a line of its own, because sentences may mention the mark.
    """
    position = 0
    while (closing := _BLOCK_END.search(text, position)) is not None:
        opening = _BLOCK.search(text, position, closing.start())
        if opening is not None:
            yield opening.start(), closing.end()
        position = closing.end()
    cut_off = _CUT_OFF_BLOCK.search(text, position)
    if cut_off is not None:
        yield cut_off.start(), len(text)


# Hits in the form of the MCP tools, and hits and facts in the form of the command line.
_LISTED: Final = re.compile(r"^- \d{4}-\d\d-\d\d [^\n:]{1,200}: ", re.MULTILINE)
_LISTED_END: Final = re.compile(r" \(id [\w.:/-]{1,200}\)$", re.MULTILINE)
_PRINTED: Final = re.compile(
    r"^ ?\d\.\d\d  \S[^\n]*\n {7}\S+  [^\n]*\d{4}-\d\d-\d\d \d\d:\d\d[^\n]*(?:\n {7}[^\n]+)*"
    r"|^[^\n]+\n  fact_[0-9a-f]{20,40}  [^\n]*% sure[^\n]*(?:\n  from [^\n]+)?",
    re.MULTILINE,
)


def _listings(text: str) -> Iterator[tuple[int, int]]:
    """Find lists of hits and facts in plain text. A truncated last line belongs to the list before it."""
    end = -1
    for start in _LISTED.finditer(text):
        if start.start() < end:  # a line within the quoted text
            continue
        closing = _LISTED_END.search(text, start.end())
        if closing is None:
            if end >= 0:
                yield start.start(), len(text)
            break
        end = closing.end()
        yield start.start(), end
    for printed in _PRINTED.finditer(text):
        yield printed.span()


def _answers(text: str) -> Iterator[tuple[int, int]]:
    """Find the JSON of memory tools and operations, whole or truncated."""
    position = 0
    for _ in range(_MOST_STARTS):
        start = _JSON_START.search(text, position)
        if start is None:
            return
        end = _end_of_answer(text, start.start())
        if end is not None:
            yield start.start(), end
        position = start.end() if end is None else end


def _end_of_answer(text: str, start: int) -> int | None:
    if text.startswith("Hit(", start):
        return len(text) if "score=" in text[start:] else None
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        rest = text[start:]
        signed = any(all(member.search(rest) for member in members) for members in _SIGNATURES)
        return len(text) if signed else None
    return int(end) if _is_answer(value) else None


def _is_answer(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if value.get(FROM_MEMORY[0]) == FROM_MEMORY[1]:
        return True
    listed = next((value[name] for name in ("items", "hits", "facts") if isinstance(value.get(name), list)), [value])
    return bool(listed) and all(
        isinstance(one, Mapping) and any(members <= one.keys() for members in _MEMBERS) for one in listed
    )


# Lines that only introduce or label the following text.
_LABEL: Final = re.compile(r"[^\n]{0,80}[:：]\s*$", re.MULTILINE)
_WORD: Final = re.compile(r"[A-Za-z]{2,}|\d+")
_FEWEST_WORDS, _FEWEST_HAN = 4, 6


def _says_something(rest: str) -> bool:
    """Whether the text around an echo is more than labels: at least one short sentence."""
    rest = _LABEL.sub("", rest)
    return len(han_characters(rest)) >= _FEWEST_HAN or len(_WORD.findall(rest)) >= _FEWEST_WORDS
