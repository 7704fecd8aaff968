"""Checks of arguments: numbers in a range, members of an enumeration, texts, paths, lists, objects.

Each check returns the value, or raises `InvalidInput` with the name, the requirement and the value.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Concatenate, ParamSpec, TypeVar

from loom.errors import InvalidInput

__all__ = [
    "checked_instance",
    "checked_items",
    "checked_list",
    "checked_mapping",
    "checked_member",
    "checked_number",
    "checked_object",
    "checked_path",
    "checked_text",
    "checked_whole",
    "if_given",
]

_Member = TypeVar("_Member", bound=StrEnum)
_Item = TypeVar("_Item")
_Rest = ParamSpec("_Rest")
_Checked = TypeVar("_Checked")


def checked_whole(value: int, name: str, least: int = 0) -> int:
    """Require a whole number of at least `least`. True and False are rejected."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def checked_number(value: float, name: str, least: float = -math.inf, most: float = math.inf) -> float:
    """Require a finite number from `least` to `most`. True and False are rejected."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not least <= value <= most:
        limits = f" from {least:g}" * (least > -math.inf) + f" to {most:g}" * (most < math.inf)
        raise InvalidInput(f"{name} must be a number{limits}, not {value!r}")
    return value


def if_given(
    check: Callable[Concatenate[_Item, _Rest], _Checked],
    value: _Item | None,
    /,
    *rest: _Rest.args,
    **more: _Rest.kwargs,
) -> _Checked | None:
    """Return the result of a check, or None for None, which stands for an argument that was left out."""
    return None if value is None else check(value, *rest, **more)


def checked_text(value: Any, name: str) -> str:
    """Require a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name} must be a text that is not empty, not {value!r}")
    return value


def checked_member(kind: type[_Member], value: Any, name: str) -> _Member:
    """Return the member of an enumeration with this value."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidInput(f"{name} {value!r} does not exist; it must be one of {', '.join(kind)}") from None


def checked_object(value: Any, name: str, *attributes: str) -> Any:
    """Require an object with these attributes. A class is rejected."""
    if isinstance(value, type) or not all(hasattr(value, attribute) for attribute in attributes):
        raise InvalidInput(f"{name} must be an object with {' and '.join(attributes)}, not {type(value).__name__}")
    return value


def checked_instance(value: Any, kind: type[_Item], name: str) -> _Item:
    """Require an instance of this class."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
    return value


def checked_list(values: Any, name: str) -> list[Any]:
    """Require an iterable that is not a text, and return it as a list."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidInput(f"{name} must be a list, not {type(values).__name__}")
    return [*values]


def checked_mapping(value: Any, name: str) -> Mapping[Any, Any]:
    """Require a mapping, such as a dict."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a dict, not {type(value).__name__}")
    return value


def checked_path(value: Any, name: str) -> str:
    """Require a path that the system accepts: a text or `Path`, not empty, without NUL or lone surrogates."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or not path:
        raise InvalidInput(f"{name} must be a path, a text or a Path that is not empty, not {value!r}")
    if "\0" in path or any("\ud800" <= letter <= "\udc7f" or "\udd00" <= letter <= "\udfff" for letter in path):
        raise InvalidInput(f"{name} is not a valid path: it contains a NUL or a lone surrogate")
    return path


def checked_items(values: Any, kind: type[_Item], verb: str, name: str = "") -> list[_Item]:
    """Require a list of values of one class; a text is rejected. `name` is that of the argument."""
    what = f"{verb}({name}=)" if name else f"{verb}()"
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidInput(f"{what} takes a list of {kind.__name__}, not {type(values).__name__}")
    found = [*values]
    for one in found:
        if not isinstance(one, kind):
            raise InvalidInput(f"{what} takes a list of {kind.__name__}; one of them is of {type(one).__name__}")
    return found
