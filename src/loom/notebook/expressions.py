"""The expressions of a task process: values, comparisons and arithmetic, in English and Chinese.

Values are whole numbers of up to 4,200 digits, decimal numbers, texts in quotation marks, true, false, and variables.
An expression calls no functions and reads only variables, so it is safe to evaluate one from any file. Its length,
its depth and the size of its numbers are bounded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from loom.errors import InvalidInput

__all__ = ["Value", "evaluate", "literal", "value_of"]

Value = int | float | str | bool

# About 4,200 digits. Python does not convert longer numbers to text, and arithmetic on them becomes slow.
_MOST_BITS = 14_000
_MOST_TEXT = 65_536
_LONGEST = 10_000
_DEEPEST = 50

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>\d+(?:\.\d+)?)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|“[^”]*”|「[^」]*」)
    |(?P<sign>==|!=|<=|>=|//|[-+*/%<>()=≠≤≥（）×÷])
    |(?P<name>[^\W\d]\w*)
    )""",
    re.VERBOSE,
)
# The keywords of both languages, each with its meaning.
_WORDS = {
    "and": "and",
    "且": "and",
    "并且": "and",
    "or": "or",
    "或": "or",
    "或者": "or",
    "not": "not",
    "非": "not",
    "contains": "contains",
    "包含": "contains",
    "true": "true",
    "真": "true",
    "false": "false",
    "假": "false",
}
_SIGNS = {"=": "==", "≠": "!=", "≤": "<=", "≥": ">=", "（": "(", "）": ")", "×": "*", "÷": "/"}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def evaluate(expression: str, variables: Mapping[str, Value]) -> Value:
    """Return the value of an expression. Raises `InvalidInput` if it is malformed or has no value."""
    return _Reader(expression, variables).whole()


def literal(value: Value) -> str:
    """Return a value as it is written in a file; `value_of` reads it back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        told = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        return f'"{told}"'
    return str(value)


def value_of(text: str) -> Value:
    """Return the value of a variable as written in a file: the value of a literal, otherwise the text itself."""
    told = text.strip()
    try:
        return evaluate(told, {})
    except InvalidInput:
        return told


class _Reader:
    """Reads an expression from left to right, by the precedence of its operators."""

    def __init__(self, expression: str, variables: Mapping[str, Value]) -> None:
        if len(expression) > _LONGEST:
            raise InvalidInput(f"an expression has at most {_LONGEST:,} characters, not {len(expression):,}")
        self._expression = expression
        self._variables = variables
        self._tokens = _tokens(expression)
        self._place = 0
        self._depth = 0

    def whole(self) -> Value:
        value = self._operation()
        if self._next is not None:
            self._fail(f"{self._next.text!r} is not expected there")
        return value

    @property
    def _next(self) -> _Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _taken(self, *texts: str) -> str | None:
        token = self._next
        if token is not None and token.kind in ("sign", "word") and token.text in texts:
            self._place += 1
            return token.text
        return None

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidInput(f"the expression {self._expression[:80]!r} cannot be evaluated: {reason}")

    def _deeper(self, part: Callable[[], Value]) -> Value:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"it is nested deeper than {_DEEPEST} levels")
        value = part()
        self._depth -= 1
        return value

    def _operation(self, least: int = 1) -> Value:
        """Read a value and the operators after it whose precedence is at least `least`."""
        if least <= _NOT and self._taken("not"):
            value: Value = not self._deeper(lambda: self._operation(_NOT))
            most = _NOT - 1
        else:
            value, most = self._unary(), _CLOSEST
        while sign := self._operator(least, most):
            most = _BINDING[sign]
            value = self._applied(value, sign, self._operation(most + 1))
            if most == _COMPARING:  # comparisons cannot be chained
                most -= 1
        return value

    def _operator(self, least: int, most: int) -> str | None:
        return self._taken(*(sign for sign, binding in _BINDING.items() if least <= binding <= most))

    def _unary(self) -> Value:
        return self._applied(0, "-", self._deeper(self._unary)) if self._taken("-") else self._single()

    def _single(self) -> Value:
        token = self._next
        if token is None:
            self._fail("it ends too early")
        self._place += 1
        if token.kind == "number":
            return float(token.text) if "." in token.text else self._bounded(int(token.text[:4300]))
        if token.kind == "text":
            return _unquoted(token.text)
        if token.kind == "word" and token.text in ("true", "false"):
            return token.text == "true"
        if token.kind == "name":
            if token.text not in self._variables:
                known = ", ".join(self._variables) or "none"
                self._fail(f"there is no variable {token.text!r}; there are {known[:200]}")
            return self._variables[token.text]
        if token.text != "(":
            self._fail(f"{token.text!r} is not a value")
        value = self._deeper(self._operation)
        if not self._taken(")"):
            self._fail("a bracket is not closed")
        return value

    def _applied(self, left: Value, sign: str, right: Value) -> Value:
        if sign in _TRUTHS:
            return _TRUTHS[sign](left, right)
        is_text = isinstance(left, str) or isinstance(right, str)
        if sign in _ORDERS:
            if is_text and isinstance(left, str) != isinstance(right, str):
                self._fail(f"{left!r} and {right!r} cannot be ordered")
            return _ORDERS[sign](left, right)
        if is_text:
            if sign != "+":
                self._fail(f"{sign} takes numbers, not texts")
            return self._bounded(_written(left) + _written(right))
        if sign in ("/", "//", "%") and right == 0:
            self._fail("it divides by zero")
        try:
            return self._bounded(_SUMS[sign](left, right))  # type: ignore[arg-type]
        except OverflowError:
            self._fail("a number is too large")

    def _bounded(self, value: Value) -> Value:
        if (isinstance(value, str) and len(value) > _MOST_TEXT) or (
            isinstance(value, int) and value.bit_length() > _MOST_BITS
        ):
            self._fail("its value is too large")
        return value


def _divided(left: float, right: float) -> int | float:
    """Divide. The quotient of whole numbers that divide evenly is a whole number."""
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return left / right


# The precedence of the operators. That of NOT is higher than that of AND, and lower than that of comparisons.
_BINDING: Mapping[str, int] = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "contains"), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "//", "%"), 6),
}
_NOT, _COMPARING, _CLOSEST = 3, 4, 6
_TRUTHS: Mapping[str, Callable[[Value, Value], bool]] = {
    "or": lambda left, right: bool(left) or bool(right),
    "and": lambda left, right: bool(left) and bool(right),
    "==": operator.eq,
    "!=": operator.ne,
    "contains": lambda left, right: _written(right) in _written(left),
}
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SUMS: Mapping[str, Callable[[int | float, int | float], int | float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "//": operator.floordiv,
    "%": operator.mod,
}


def _written(value: Value) -> str:
    return value if isinstance(value, str) else literal(value)


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    if text[0] not in "\"'":
        return inner
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inner)


def _tokens(expression: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    end = len(expression.rstrip())
    while at < end:
        match = _TOKEN.match(expression, at)
        if match is None or match.lastgroup is None:
            raise InvalidInput(
                f"the expression {expression[:80]!r} cannot be read at {expression[at : at + 10].strip()!r}"
            )
        kind, text = match.lastgroup, match[match.lastgroup]
        if kind == "sign":
            text = _SIGNS.get(text, text)
        elif kind == "name" and text.lower() in _WORDS:
            kind, text = "word", _WORDS[text.lower()]
        found.append(_Token(kind, text, at))
        at = match.end()
    return found
