"""The Python reference as Markdown: a page for each public module, from its signatures and docstrings.

python packaging/reference.py FOLDER
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["PUBLIC", "write"]

# The public modules, in the order in which a reader needs them.
PUBLIC = {
    "loom": "Everyday names",
    "loom.memory": "Memories, tiers and pools",
    "loom.context": "Prompts",
    "loom.agent": "Agents",
    "loom.notebook": "Notebooks",
    "loom.fractal": "Trees of nodes",
    "loom.importers": "Import and export",
    "loom.models.embedders": "Embedders",
    "loom.models.language_model": "Language models",
    "loom.recall.search": "Explained recall",
    "loom.storage": "Opening a store",
    "loom.storage.contract": "The storage contract",
    "loom.types": "Types",
    "loom.protocol": "Tasks and clocks",
    "loom.events": "Events",
    "loom.settings": "Settings",
    "loom.errors": "Errors",
    "loom.testing": "A model server for tests",
}
_WIDTH = 96
_INDEX = """# Python reference

Every public name, from its docstring. A name that several modules export is described on the first of their pages.

:::{toctree}
:maxdepth: 1

"""


def write(folder: Path) -> None:
    """Write the pages into a folder, and remove pages of modules that are gone. Unchanged pages keep their times."""
    folder.mkdir(exist_ok=True)
    homes: dict[int, str] = {}
    pages = {f"{name}.md": "\n".join(_module(import_module(name), homes)) + "\n" for name in PUBLIC}
    pages["index.md"] = _INDEX + "\n".join(PUBLIC) + "\n:::\n"
    for stale in {path.name for path in folder.iterdir()} - set(pages):
        (folder / stale).unlink()
    for name, text in pages.items():
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _module(module: ModuleType, homes: dict[int, str]) -> Iterator[str]:
    name = module.__name__
    yield f"# {PUBLIC[name]}: `{name}`\n"
    yield from _prose(module)
    elsewhere: dict[str, list[str]] = {}
    for public in module.__all__:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            home = homes.setdefault(id(value), name)
            if home != name:
                elsewhere.setdefault(home, []).append(public)
                continue
        yield f"## {public}\n"
        if inspect.isclass(value):
            yield from _class(public, value, homes)
        elif inspect.isfunction(value):
            yield from _function(public, value)
        else:
            yield f"{_a(type(value).__name__)} `{type(value).__name__}`.\n"
    if elsewhere:
        yield "## Described on other pages\n"
    for home, names in elsewhere.items():
        yield f"- [{home}]({home}.md): {', '.join(f'`{one}`' for one in names)}"


def _class(name: str, subject: type, homes: dict[int, str]) -> Iterator[str]:
    bases = [base.__name__ for base in subject.__bases__ if base is not object]
    if issubclass(subject, BaseException):
        yield f"An exception; a kind of `{bases[0]}`.\n"
        yield from _prose(subject)
        return
    if issubclass(subject, Enum):
        yield from _prose(subject)
        yield from (f"- `{member.name}` = `{member.value!r}`" for member in subject)
        yield ""
        return
    yield from _signature(name, subject)
    yield from _prose(subject)
    if is_dataclass(subject):
        shown = [field for field in fields(subject) if field.repr and not field.name.startswith("_")]
        yield from (
            f"- `{field.name}`: `{field.type}`" + ("" if _required(field) else f", by default {_default(field)}")
            for field in shown
        )
        yield ""
    described = [base for base in subject.__mro__[1:] if id(base) in homes]
    for member, value in _members(subject):
        if any(vars(base).get(member) is value for base in described):
            continue
        if isinstance(value, property):
            returned = inspect.signature(value.fget).return_annotation if value.fget else ""
            yield f"### {member}\n"
            yield from _code(f"{member}: {returned}" if isinstance(returned, str) else member)
            yield from _prose(value)
        else:
            yield f"### {member}()\n"
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            yield from _function(member, function, method=not isinstance(value, staticmethod))


def _members(subject: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties with a docstring, in the order of their classes."""
    seen = set()
    for kind in subject.__mro__:
        if not kind.__module__.startswith("loom"):
            continue
        for name, value in vars(kind).items():
            is_method = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if is_method and not name.startswith("_") and name not in seen and inspect.getdoc(value):
                seen.add(name)
                yield name, value


def _function(name: str, function: Any, *, method: bool = False) -> Iterator[str]:
    yield from _signature(name, function, method=method)
    yield from _prose(function)


def _signature(name: str, subject: Any, *, method: bool = False) -> Iterator[str]:
    try:
        signature = inspect.signature(subject)
    except (TypeError, ValueError):
        return
    parameters = list(signature.parameters.values())[1 if method else 0 :]
    word = "async def " if inspect.iscoroutinefunction(subject) else ""
    returned = signature.return_annotation
    arrow = f" -> {returned}" if isinstance(returned, str) and returned != "None" else ""
    line = f"{word}{name}({', '.join(_listed(parameters))}){arrow}"
    if len(line) > _WIDTH:
        line = f"{word}{name}(\n" + "".join(f"    {one},\n" for one in _listed(parameters)) + f"){arrow}"
    yield from _code(line)


def _listed(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Parameters as they are written, with the marks before positional-only and keyword-only ones."""
    starred = False
    for place, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield _parameter(parameter)
        following = parameters[place + 1].kind if parameters[place + 1 :] else parameter.kind
        if parameter.kind is parameter.POSITIONAL_ONLY and following is not parameter.POSITIONAL_ONLY:
            yield "/"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotated = f": {parameter.annotation}" if isinstance(parameter.annotation, str) else ""
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{annotated}"
    # The representation of an object tells only that there is one.
    default = "..." if repr(parameter.default).startswith("<") else repr(parameter.default)
    return f"{parameter.name}{annotated} = {default}" if annotated else f"{parameter.name}={default}"


def _required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _default(field: Any) -> str:
    return f"`{field.default!r}`" if field.default is not MISSING else f"a new `{field.default_factory.__name__}`"


def _code(text: str) -> Iterator[str]:
    yield f"```python\n{text}\n```\n"


def _prose(subject: Any) -> Iterator[str]:
    """A docstring. Its single backticks and indented code have the same meaning in Markdown."""
    text = inspect.getdoc(subject)
    own = getattr(subject, "__doc__", None)
    if text and own and not own.startswith(f"{getattr(subject, '__name__', '')}("):
        yield re.sub(r"(?m)^(\s*)([#<])", r"\1\\\2", text) + "\n"


def _a(name: str) -> str:
    return "An" if name[0].casefold() in "aeiou" else "A"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
