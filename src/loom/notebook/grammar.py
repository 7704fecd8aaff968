"""The instructions of a task process. A line of any other form is text.

| English | 中文 | meaning |
|---|---|---|
| SET name = expression | 设 name = expression | give a variable a value |
| IF condition THEN instruction ELSE instruction | 如果 … 那么 … 否则 … | ELSE may be missing |
| GOTO 3, GOTO @label | 转到 3, 转到 @label | move the pointer |
| ADD "text", ADD "text" AT END | 添加 "text", 添加 "text" 到末尾 | a new item, next or last |
| CALL function(name = expression, ...) -> name | 调用 … | call a registered function |
| RUN "file.md" WITH name = expression, ... -> name | 运行 "file.md" 带 … | run another process to its end |
| RETRY, CONTINUE, STOP | 重试, 继续, 停止 | the same item again; the next one; the end |

An item may begin with `@label`. Keywords are in capitals or in Chinese; in the section of dynamic instructions they
may be in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from loom.errors import InvalidInput

__all__ = [
    "Add",
    "Assign",
    "Branch",
    "Call",
    "Continue",
    "Goto",
    "Instruction",
    "Retry",
    "Run",
    "Stop",
    "labelled",
    "parse",
]


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a variable a value."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Goto:
    """Move the pointer to an item, given by its place from 1 or by its label."""

    place: int | str


@dataclass(frozen=True, slots=True)
class Add:
    """Add an item after the current one, or at the end."""

    expression: str
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """Call a registered function and assign its result to a variable."""

    function: str
    arguments: tuple[tuple[str, str], ...] = ()
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Run another process to its end and assign its variable `result` to a variable of this process."""

    file: str
    arguments: tuple[tuple[str, str], ...] = ()
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Do the current item again."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Continue with the next item."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Carry out one of two instructions, depending on a condition."""

    condition: str
    then: Instruction
    otherwise: Instruction


Instruction = Assign | Goto | Add | Call | Run | Retry | Continue | Stop | Branch

_NAME = r"[^\W\d]\w*"
_LABEL = re.compile(rf"@({_NAME})\s+(.*)", re.DOTALL)
_IF = re.compile(r"(?:IF\b|如果)\s*(.+)", re.DOTALL)
_THEN = re.compile(r"\bTHEN\b|那么")
_ELSE = re.compile(r"\bELSE\b|否则")
_SET = re.compile(rf"(?:SET\s+|设\s*)({_NAME})\s*[=＝]\s*(.+)", re.DOTALL)
_GOTO = re.compile(rf"(?:GOTO\s+|转到\s*)(?:(\d{{1,9}})|@({_NAME}))")
_ADD = re.compile(r"(?:ADD\s+|添加\s*)(.+?)(\s+AT\s+END|\s*到末尾)?", re.DOTALL)
_CALL = re.compile(
    rf"(?:CALL\s+|调用\s*)({_NAME}(?:\.{_NAME})*)\s*[(（](.*)[)）]\s*(?:(?:->|→)\s*({_NAME}))?", re.DOTALL
)
_RUN = re.compile(
    rf"(?:RUN\s+|运行\s*)(?:\"([^\"\n]+)\"|“([^”\n]+)”|(\S+\.md))\s*(?:(?:WITH|带)\s*(.+?))?\s*(?:(?:->|→)\s*({_NAME}))?",
    re.DOTALL,
)
_WORDS: dict[str, Instruction] = {
    "RETRY": Retry(),
    "重试": Retry(),
    "CONTINUE": Continue(),
    "继续": Continue(),
    "STOP": Stop(),
    "停止": Stop(),
}
_KEYWORD = re.compile(r"\b(if|then|else|set|goto|add|at end|call|run|with|retry|continue|stop)\b", re.IGNORECASE)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|“[^”]*”|「[^」]*」')
_DEEPEST = 20
# A longer line is text: people do not write instructions of this length.
_LONGEST = 4000


def labelled(text: str) -> tuple[str | None, str]:
    """Return the label of an item, or None, and the rest of the item."""
    found = _LABEL.fullmatch(text.strip())
    return (found[1], found[2].strip()) if found else (None, text.strip())


def parse(text: str, *, any_case: bool = False) -> Instruction | None:
    """Return the instruction in a text, or None if it is only text.

    With `any_case`, keywords may be in lower case. A malformed instruction is text too.
    """
    told = text.strip()
    if len(told) > _LONGEST:
        return None
    if any_case:
        told = _outside_quotes(told, lambda part: _KEYWORD.sub(lambda found: found[0].upper(), part))
    return _parsed(told, 0)


def _parsed(text: str, depth: int) -> Instruction | None:
    if depth > _DEEPEST:
        return None
    if text in _WORDS:
        return _WORDS[text]
    if found := _IF.fullmatch(text):
        return _branch(found[1], depth)
    read = ((found, make) for pattern, make in _FORMS if (found := pattern.fullmatch(text)))
    return next((make(found) for found, make in read), None)


def _with_arguments(
    kind: type[Call] | type[Run], name: str, arguments: str | None, result: str | None
) -> Call | Run | None:
    given = _arguments(arguments or "")
    return None if given is None else kind(name, given, result)


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Instruction | None]], ...] = (
    (_SET, lambda found: Assign(found[1], found[2].strip())),
    (_GOTO, lambda found: Goto(int(found[1]) if found[1] else found[2])),
    (_ADD, lambda found: Add(found[1].strip(), bool(found[2]))),
    (_CALL, lambda found: _with_arguments(Call, found[1], found[2], found[3])),
    (_RUN, lambda found: _with_arguments(Run, found[1] or found[2] or found[3], found[4], found[5])),
)


def _branch(text: str, depth: int) -> Branch | None:
    """Parse the text after IF. Divides it at the first THEN, and the first ELSE after it, outside quotation marks."""
    bare = _hidden(text)
    then = _THEN.search(bare)
    if then is None:
        return None
    condition = text[: then.start()].strip().rstrip("，,")
    rest, hidden = text[then.end() :], bare[then.end() :]
    otherwise = _ELSE.search(hidden)
    first = _parsed(rest[: otherwise.start()].strip(" ，,;；") if otherwise else rest.strip(), depth + 1)
    second = _parsed(rest[otherwise.end() :].strip(), depth + 1) if otherwise else Continue()
    if not condition or first is None or second is None:
        return None
    return Branch(condition, first, second)


def _arguments(text: str) -> tuple[tuple[str, str], ...] | None:
    """Parse `name = expression` pairs separated by commas. Returns None if one of them is not a pair."""
    if not text.strip():
        return ()
    bare, start, parts = _hidden(text), 0, []
    depth = 0
    for at, one in enumerate(bare):
        depth += (one in "(（") - (one in ")）")
        if one in ",，" and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    pairs = []
    for part in parts:
        found = re.fullmatch(rf"\s*({_NAME})\s*[=＝](?!=)\s*(.+?)\s*", part, re.DOTALL)
        if found is None:
            return None
        pairs.append((found[1], found[2]))
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidInput(f"an argument is given twice in {text[:80]!r}")
    return tuple(pairs)


def _hidden(text: str) -> str:
    """Return the text with quoted parts blanked out, in the same length."""
    return _QUOTED.sub(lambda found: "\0" * len(found[0]), text)


def _outside_quotes(text: str, change: Callable[[str], str]) -> str:
    parts: list[str] = []
    end = 0
    for found in _QUOTED.finditer(text):
        parts += [change(text[end : found.start()]), found[0]]
        end = found.end()
    return "".join([*parts, change(text[end:])])
