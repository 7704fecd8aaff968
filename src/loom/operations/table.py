"""Operations as data: each operation is one function, and every surface is generated from its signature.

The command line, MCP and HTTP take the arguments, their types and help, and the type of the answer from this table.
`Operation.call` checks arguments in the same way for all surfaces.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from loom.errors import InvalidInput
from loom.operations.answers import Answer
from loom.protocol import closest

__all__ = ["REQUIRED", "About", "Needs", "Operation", "Parameter", "entry_of", "moment_of", "operation", "schema_of"]

_TARGETS = ("memory", "file", "place")
REQUIRED = inspect.Parameter.empty

_ENTRIES: dict[Callable[..., Answer], Operation] = {}

_Run = TypeVar("_Run", bound=Callable[..., Answer])


class Needs(StrEnum):
    """The target of an operation, which the surface opens."""

    MEMORY = "memory"
    """One memory: a namespace and a node of a store."""
    FILE = "file"
    """The whole store with all its namespaces, or the path of a store that does not exist yet."""
    PLACE = "place"
    """The place of a store that is not opened, for programs of the command line."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class About:
    """The annotation of an argument: help for people and models, limits, and its name in help.

    `models=False` keeps the argument out of the schema for models: fewer arguments take fewer tokens and lead to
    fewer mistakes. With `stdin`, the command line reads standard input for the text `-`. With `single`, models are
    shown one value instead of a list.
    """

    help: str
    least: float | None = None
    most: float | None = None
    shown_as: str = ""
    models: bool = True
    stdin: bool = False
    single: bool = False


class Parameter(NamedTuple):
    """An argument of an operation. `choices` is empty if any value of the type is accepted."""

    name: str
    type: Any
    is_list: bool
    optional: bool
    choices: tuple[str, ...]
    default: Any
    positional: bool
    about: About

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True)
class Operation:
    """An operation: its function, its purpose, and its effects on the store.

    `summary` is one sentence for people and `details` further ones; `guidance` is for models. `elsewhere` maps each
    surface that does not offer the operation to the reason. `defaults_for_models` are the default arguments of calls
    by models, `defaults_for_people` those of calls that a person typed.

    The other flags are for surfaces that open the store for one call. A `by_meaning` operation needs the embedder. A
    `catches_up` operation first does waiting background work if the file is writable; with `derives`, this includes
    facts and summaries. `creates` creates a store that does not exist. A `long` operation may take a while. `asks`
    requires a confirmation if memories are selected by a filter.
    """

    name: str
    run: Callable[..., Answer]
    group: str
    summary: str
    details: str = ""
    guidance: str = ""
    examples: tuple[str, ...] = ()
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    by_meaning: bool = False
    catches_up: bool = False
    derives: bool = False
    creates: bool = False
    asks: bool = False
    long: bool = False
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    defaults_for_models: Mapping[str, Any] = field(default_factory=dict)
    defaults_for_people: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs(self) -> Needs:
        first = next(iter(inspect.signature(self.run).parameters), "")
        return Needs(first) if first in _TARGETS else Needs.NOTHING

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arguments of a call, in the order of the signature."""
        return _parameters(self.run)

    @property
    def answer(self) -> type[Answer]:
        """The type of the answer."""
        made: type[Answer] = inspect.signature(self.run).return_annotation
        return made

    def input_schema(self, *, models: bool = True) -> dict[str, Any]:
        """Return the JSON Schema of the arguments; for models, without the arguments that are hidden from them."""
        shown = [one for one in self.parameters if one.about.models or not models]
        return {
            "type": "object",
            "properties": {one.name: _described(one, models) for one in shown},
            "required": [one.name for one in shown if one.required],
            "additionalProperties": False,
        }

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the answer."""
        return schema_of(self.answer)

    def call(self, target: object, arguments: Mapping[str, Any]) -> Answer:
        """Check the arguments and run the operation on a memory or a file.

        Raises `InvalidInput`, before anything is changed, for arguments that are missing, unknown, of a wrong type or
        out of range.
        """
        known = {one.name: one for one in self.parameters}
        for name in arguments:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise InvalidInput(f"{self.name} has no argument {name!r}; {closest(name, known)}it takes {listed}")
        given: dict[str, Any] = {}
        for name, parameter in known.items():
            if arguments.get(name) is not None:
                given[name] = _checked(self.name, parameter, arguments[name])
            elif parameter.required:
                raise InvalidInput(f"{self.name} needs {name}: {parameter.about.help}")
        return self.run(*(() if self.needs is Needs.NOTHING else (target,)), **_gathered(self.run, given))


def operation(group: str, summary: str, **said: Any) -> Callable[[_Run], _Run]:
    """Enter a function in the table. Its docstring becomes the details."""

    def entered(run: _Run) -> _Run:
        details = inspect.cleandoc(run.__doc__ or "").replace("\n", " ")
        name = run.__name__.rstrip("_").replace("_", "-")
        _ENTRIES[run] = Operation(name, run, group, summary, details, **said)
        return run

    return entered


def entry_of(run: Callable[..., Answer]) -> Operation:
    """Return the entry of a function that is decorated with `operation`."""
    return _ENTRIES[run]


# --- signatures ----------------------------------------------------------------------------------------------


@cache
def _parameters(run: Callable[..., Answer]) -> tuple[Parameter, ...]:
    found: list[Parameter] = []
    for name, one in inspect.signature(run).parameters.items():
        if name in _TARGETS:
            continue
        if is_dataclass(one.annotation):
            hints = get_type_hints(one.annotation, include_extras=True)
            found += [_parameter(each.name, hints[each.name], each.default, False) for each in fields(one.annotation)]
        else:
            found.append(_parameter(name, one.annotation, one.default, one.kind is not one.KEYWORD_ONLY))
    return tuple(found)


def _gathered(run: Callable[..., Answer], given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments, with the fields of each group combined into one value."""
    for name, one in inspect.signature(run).parameters.items():
        if is_dataclass(one.annotation) and isinstance(one.annotation, type):
            names = {each.name for each in fields(one.annotation)}
            own = {each: given.pop(each) for each in list(given) if each in names}
            given[name] = one.annotation(**own)
    return given


def _parameter(name: str, hint: Any, default: Any, positional: bool) -> Parameter:
    kind, about = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, About(""))
    optional = get_origin(kind) in (UnionType, Union) and NoneType in get_args(kind)
    if optional:
        kind = next(one for one in get_args(kind) if one is not NoneType)
    is_list = get_origin(kind) in (list, tuple)
    if is_list:
        kind = get_args(kind)[0]
    choices: tuple[str, ...] = ()
    if get_origin(kind) is Literal:
        kind, choices = str, get_args(kind)
    return Parameter(name, get_origin(kind) or kind, is_list, optional, choices, default, positional, about)


def _checked(verb: str, parameter: Parameter, value: Any) -> Any:
    if not parameter.is_list:
        return _checked_one(verb, parameter, value)
    # A single value is accepted for a list: models often omit the brackets.
    several = value if isinstance(value, list | tuple) else [value]
    return [_checked_one(verb, parameter, one) for one in several]


_ACCEPTED: dict[Any, tuple[type, ...]] = {
    float: (int, float),
    dict: (Mapping,),
    datetime: (str, datetime),
    Path: (str, Path),
}
_CALLED = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object"}
_CALLED |= {datetime: "a time in ISO 8601", Path: "a path"}
_IN_JSON = {dict: "object", list: "array", str: "string", NoneType: "null"}
_SURROGATE = re.compile("[\ud800-\udfff]")


def _checked_one(verb: str, parameter: Parameter, value: Any) -> Any:
    name, kind, about = parameter.name, parameter.type, parameter.about
    wrong = isinstance(value, bool) and kind is not bool
    if wrong or not isinstance(value, _ACCEPTED.get(kind, (kind,))):
        found = _IN_JSON.get(type(value), type(value).__name__)
        raise InvalidInput(f"{name} of {verb} must be {_CALLED[kind]}, not {found}")
    if isinstance(value, str) and _SURROGATE.search(value) is not None:
        raise InvalidInput(f"{name} of {verb} contains a lone surrogate, which is not valid Unicode")
    if parameter.choices:
        value = str(value).casefold()
        if value not in parameter.choices:
            raise InvalidInput(f"{name} of {verb} must be one of {', '.join(parameter.choices)}, not {value[:40]!r}")
    if about.least is not None and not about.least <= value <= (about.most or value):
        limits = f"at least {about.least:g}" + (f" and at most {about.most:g}" if about.most is not None else "")
        raise InvalidInput(f"{name} of {verb} must be {limits}, not {value}")
    if kind is datetime:
        return moment_of(value, name)
    return Path(value) if kind is Path else value


def moment_of(value: str | datetime, name: str) -> datetime:
    """Return a time with a zone. A time without a zone is local."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        told = str(value)[:40]
        raise InvalidInput(f"{name} is {told!r}, which is not a time; write it like 2026-03-01T09:30") from None
    try:
        return moment if moment.tzinfo else moment.astimezone()
    except (OverflowError, ValueError, OSError):
        raise InvalidInput(f"{name} is {moment.isoformat()}, outside the years 1 to 9999") from None


# --- schemas -------------------------------------------------------------------------------------------------

_JSON_TYPES: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
    datetime: {"type": "string", "format": "date-time"},
    Path: {"type": "string"},
    Any: {},
}


def _described(parameter: Parameter, models: bool) -> dict[str, Any]:
    about = parameter.about
    one = dict(_JSON_TYPES[parameter.type])
    if parameter.type is datetime:
        one.pop("format")  # a date alone is accepted
    if parameter.choices:
        one["enum"] = list(parameter.choices)
    if about.least is not None:
        one["minimum"] = about.least
    if about.most is not None:
        one["maximum"] = about.most
    single = not parameter.is_list or (about.single and models)
    described = one if single else {"type": "array", "items": one}
    described["description"] = about.help
    if not parameter.required and parameter.default not in (None, (), False):
        described["default"] = parameter.default
    return described


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type, in the JSON form of `Answer.to_json`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return schema_of(next(one for one in arguments if one is not NoneType))
    if origin in (tuple, list):
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin in (dict, Mapping):
        return {"type": "object"}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if is_dataclass(hint):
        return _record_schema(hint)
    return dict(_JSON_TYPES[hint])


def _record_schema(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    optional = {name for name in names if NoneType in get_args(hints[name])}
    return {
        "type": "object",
        "properties": {name: schema_of(hints[name]) for name in names},
        "required": [name for name in names if name not in optional],
    }
