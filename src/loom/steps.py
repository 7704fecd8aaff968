"""Steps: functions that tests find by a name that stays the same when the function is renamed or moved.

Crash tests kill a process at a step. The decorator returns the function itself, so a step costs nothing at run time.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
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
    """Return all names. Imports every module of the package, because modules register their steps at import."""
    import pkgutil

    package = importlib.import_module(__name__.partition(".")[0])
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.rpartition(".")[2].startswith("_"):  # the kernels are a shared library and not a module
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] == __name__.partition(".")[0]:
                    raise  # otherwise it needs an extra that is not installed
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
