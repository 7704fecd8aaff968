"""Values, comparisons and arithmetic of a task process, in both languages.

Values are whole numbers of up to 4,200 digits, decimal numbers, texts in quotation marks, true, false, and variables.
An expression calls nothing and looks up nothing but variables, so evaluating one from any file is safe. Its length,
its depth and the size of its numbers are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from loom.errors import InvalidInput

__all__ = ["Value", "evaluate", "is_true", "literal", "value_of"]

Value = int | float | str | bool

# About 4,200 digits: Python converts no longer numbers to text, and each step would be slower than the one before.
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
# The words of both languages, by their one meaning.
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
    """Return the value of an expression. An expression that is malformed or has no value raises `InvalidInput`."""
    return _Reader(expression, variables).whole()


def is_true(value: Value) -> bool:
    """Return whether a value counts as true: 0, an empty text and false do not."""
    return bool(value)


def literal(value: Value) -> str:
    """Return a value as it is written in a file; `value_of` reads it back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        told = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        return f'"{told}"'
    return str(value)


def value_of(text: str) -> Value:
    """Return the value of a line of the section of variables: that of a literal, or else the text itself."""
    told = text.strip()
    try:
        return evaluate(told, {})
    except InvalidInput:
        return told


class _Reader:
    """Reads an expression from left to right: or, and, not, comparison, sum, product, unary, value."""

    def __init__(self, expression: str, variables: Mapping[str, Value]) -> None:
        if len(expression) > _LONGEST:
            raise InvalidInput(f"an expression has at most {_LONGEST:,} characters, not {len(expression):,}")
        self._expression = expression
        self._variables = variables
        self._tokens = _tokens(expression)
        self._place = 0
        self._depth = 0

    def whole(self) -> Value:
        value = self._or()
        if self._next is not None:
            self._fail(f"{self._next.text!r} is one too many")
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

    def _or(self) -> Value:
        value = self._and()
        while self._taken("or"):
            other = self._and()
            value = is_true(value) or is_true(other)
        return value

    def _and(self) -> Value:
        value = self._not()
        while self._taken("and"):
            other = self._not()
            value = is_true(value) and is_true(other)
        return value

    def _not(self) -> Value:
        if self._taken("not"):
            return not is_true(self._deeper(self._not))
        return self._comparison()

    def _comparison(self) -> Value:
        left = self._sum()
        sign = self._taken("==", "!=", "<", "<=", ">", ">=", "contains")
        if sign is None:
            return left
        right = self._sum()
        if sign in ("==", "!="):
            return (left == right) == (sign == "==")
        if sign == "contains":
            return _written(right) in _written(left)
        if isinstance(left, str) != isinstance(right, str):
            self._fail(f"{left!r} and {right!r} have no order")
        return _ORDERS[sign](left, right)

    def _sum(self) -> Value:
        value = self._product()
        while sign := self._taken("+", "-"):
            value = self._calculated(value, sign, self._product())
        return value

    def _product(self) -> Value:
        value = self._unary()
        while sign := self._taken("*", "/", "//", "%"):
            value = self._calculated(value, sign, self._unary())
        return value

    def _unary(self) -> Value:
        if self._taken("-"):
            return self._calculated(0, "-", self._deeper(self._unary))
        return self._single()

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
            self._fail(f"{token.text!r} is no value")
        value = self._deeper(self._or)
        if not self._taken(")"):
            self._fail("a bracket is not closed")
        return value

    def _calculated(self, left: Value, sign: str, right: Value) -> Value:
        if isinstance(left, str) or isinstance(right, str):
            if sign != "+":
                self._fail(f"{sign} takes numbers, not texts")
            return self._bounded(_written(left) + _written(right))
        if sign in ("/", "//", "%") and right == 0:
            self._fail("a division by zero")
        try:
            return self._bounded(_SUMS[sign](left, right))
        except OverflowError:
            self._fail("a number is too large")

    def _bounded(self, value: Value) -> Value:
        too_large = len(value) > _MOST_TEXT if isinstance(value, str) else _bits(value) > _MOST_BITS
        if too_large:
            self._fail("its value is too large")
        return value


def _bits(value: int | float) -> int:
    return value.bit_length() if isinstance(value, int) else 64


def _divided(left: float, right: float) -> int | float:
    """Divide. Whole numbers that divide evenly give a whole number."""
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return left / right


_ORDERS: Mapping[str, Callable[[Value, Value], bool]] = {
    "<": lambda left, right: left < right,  # type: ignore[operator]
    "<=": lambda left, right: left <= right,  # type: ignore[operator]
    ">": lambda left, right: left > right,  # type: ignore[operator]
    ">=": lambda left, right: left >= right,  # type: ignore[operator]
}
_SUMS: Mapping[str, Callable[[int | float, int | float], int | float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divided,
    "//": lambda left, right: left // right,
    "%": lambda left, right: left % right,
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
