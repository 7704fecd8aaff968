"""Checks of values that a caller gives: numbers in a range, members of an enumeration, texts, objects.

Each returns the value, or raises `InvalidInput` with its name, what it must be and what it is.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, TypeVar

from loom.errors import InvalidInput

__all__ = ["checked_member", "checked_number", "checked_object", "checked_text", "checked_whole"]

_Member = TypeVar("_Member", bound=StrEnum)


def checked_whole(value: int, name: str, least: int = 0) -> int:
    """A whole number of at least `least`; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def checked_number(value: float, name: str, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number from `least` to `most`; True and False are none."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not least <= value <= most:
        limits = f" from {least:g}" * (least > -math.inf) + f" to {most:g}" * (most < math.inf)
        raise InvalidInput(f"{name} must be a number{limits}, not {value!r}")
    return value


def checked_text(value: Any, name: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name} must be a text that is not empty, not {value!r}")
    return value


def checked_member(kind: type[_Member], value: Any, name: str) -> _Member:
    """The member of an enumeration with this value."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidInput(f"{name} {value!r} does not exist; it is one of {', '.join(kind)}") from None


def checked_object(value: Any, name: str, *attributes: str) -> Any:
    """An object that has these attributes; a class is none."""
    if isinstance(value, type) or not all(hasattr(value, attribute) for attribute in attributes):
        raise InvalidInput(f"{name} must be an object with {' and '.join(attributes)}, not {type(value).__name__}")
    return value
