"""Steps: functions that tests find by a name that stays the same when the function is renamed or moved.

Crash tests kill a process at a step. The decorator returns the function itself, so a step costs nothing at run time.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["find", "names", "step"]

Function = TypeVar("Function", bound=Callable[..., Any])

_homes: dict[str, tuple[str, str]] = {}


def step(name: str) -> Callable[[Function], Function]:
    """Register a function or method under a name, and return it unchanged.

    Raises `ValueError` if another function has the name. A step that is a function of a module must be called through
    that module, because replacing it would not affect a caller that imported it by name.
    """

    def register(function: Function) -> Function:
        home = (function.__module__, function.__qualname__)
        if _homes.setdefault(name, home) != home:
            raise ValueError(f"the step {name!r} is {':'.join(_homes[name])}; {':'.join(home)} needs another name")
        return function

    return register


def names() -> frozenset[str]:
    """Return all names. Imports the modules whose source has a step, because they register it at import."""
    package = Path(__file__).parent
    for file in sorted(package.rglob("*.py")):
        if re.search(r"^ *@step\(", file.read_text(encoding="utf-8"), re.MULTILINE):
            module = file.relative_to(package.parent).with_suffix("")
            importlib.import_module(".".join(module.parts))
    return frozenset(_homes)


def find(name: str) -> tuple[Any, str]:
    """Return the module or class of a step and its attribute name, as `setattr` takes them.

    Raises `LookupError` for an unknown name.
    """
    if name not in _homes and name not in names():
        raise LookupError(f"there is no step {name!r}; `loom.steps.names()` lists all of them")
    module, qualified = _homes[name]
    owner: Any = sys.modules[module]
    *path, attribute = qualified.split(".")
    for part in path:
        owner = getattr(owner, part)
    return owner, attribute
