"""Tools that a model may call. A typed function is a tool; its schema comes from its signature and docstring.

    def lookup(order: str, days: Annotated[int, "how far back"] = 7) -> str:
        '''The state of an order.'''

    Agent.create(llm, tools=[lookup])

The arguments of a call are checked against the schema before the function is called. `loom.agent.calling` calls it.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
    overload,
)

from loom.errors import InvalidInput

__all__ = ["Tool", "ToolLike", "as_tool", "as_tools", "tool"]

Json = dict[str, Any]
_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK = "__loom_tool__"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its name, its purpose, the JSON schema of its arguments, and its function.

    The function gets its arguments by name; it may be async. A `read_only` tool changes nothing, so that several of
    its calls may run at once. `timeout_s` bounds one call; without it the agent's limit applies.
    """

    name: str
    description: str
    parameters: Json
    function: Callable[..., Any]
    read_only: bool = False
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidInput(
                f"the name of a tool must be 1 to 64 letters, digits, '_' or '-', not {self.name!r}; give one with "
                "tool(function, name=...)"
            )

    @property
    def definition(self) -> Json:
        """The name, description and schema."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}

    def to_openai(self) -> Json:
        """Return the definition for `tools` of OpenAI and compatible services."""
        return {"type": "function", "function": self.definition}

    def to_anthropic(self) -> Json:
        """Return the definition for Anthropic's `tools`."""
        return {"name": self.name, "description": self.description, "input_schema": self.parameters}

    def arguments(self, given: Mapping[str, Any] | str | None) -> Json:
        """Return the arguments of a call. Arguments that the schema does not allow raise `InvalidInput`."""
        parsed: Any = given or {}
        if isinstance(parsed, str):
            try:
                parsed = json.loads(parsed)
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"the arguments of {self.name} are not valid JSON: {error}") from None
        if not isinstance(parsed, Mapping):
            raise InvalidInput(f"the arguments of {self.name} must be an object, not {type(parsed).__name__}")
        properties = self.parameters.get("properties") or {}
        missing = [name for name in self.parameters.get("required") or () if parsed.get(name) in (None, "")]
        is_closed = self.parameters.get("additionalProperties") is False
        unknown = sorted(set(parsed) - set(properties)) if is_closed else []
        if missing or unknown:
            problem = f"needs {', '.join(missing)}" if missing else f"has no {', '.join(unknown)}"
            raise InvalidInput(f"{self.name} {problem}; its arguments are {', '.join(properties) or 'none'}")
        for name, value in parsed.items():
            if value is not None:
                _check(value, properties.get(name) or {}, f"{name} of {self.name}")
        return {name: value for name, value in parsed.items() if value is not None}


def _check(value: Any, schema: Mapping[str, Any], what: str) -> None:
    """Refuse a value that a schema does not allow. Covers the part of JSON schema that definitions here use."""
    kinds = schema.get("type")
    if kinds is None:
        return
    allowed = [kinds] if isinstance(kinds, str) else list(kinds)
    if not any(_is_a(value, kind) for kind in allowed):
        raise InvalidInput(f"{what} must be {' or '.join(allowed)}, not {type(value).__name__}")
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(value, int | float) and not ((low is None or low <= value) and (high is None or value <= high)):
        raise InvalidInput(f"{what} is {value}; it must be from {low} to {high}")
    choices = schema.get("enum")
    if choices and value not in choices and not (isinstance(value, str) and value.casefold() in choices):
        raise InvalidInput(f"{what} is {value!r}; it must be one of {', '.join(map(str, choices))}")
    if isinstance(value, list):
        for one in value:
            _check(one, schema.get("items") or {}, f"an item of {what}")
    if isinstance(value, dict):
        for name in schema.get("required") or ():
            if name not in value:
                raise InvalidInput(f"{what} needs {name}")
        for name, one in value.items():
            _check(one, (schema.get("properties") or {}).get(name) or {}, f"{name} in {what}")


def _is_a(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES.get(kind, (object,))) and (kind == "boolean" or not isinstance(value, bool))


# --- tools of functions ------------------------------------------------------------------------------------

ToolLike = Tool | Callable[..., Any]
"""A tool, or a function that becomes one."""


@overload
def tool(function: _Function, /) -> _Function: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    timeout_s: float | None = None,
) -> Callable[[_Function], _Function]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    timeout_s: float | None = None,
) -> Any:
    """Describe a function that is a tool. The function itself is unchanged.

    @tool(read_only=True, timeout_s=10)
    def lookup(order: str) -> str: ...
    """

    def mark(marked: Callable[..., Any]) -> Callable[..., Any]:
        said = {"name": name, "description": description, "read_only": read_only, "timeout_s": timeout_s}
        setattr(marked, _MARK, {key: value for key, value in said.items() if value is not None})
        return marked

    return mark if function is None else mark(function)


def as_tool(given: ToolLike) -> Tool:
    """Return a tool as it is, or make a tool of a function."""
    if isinstance(given, Tool):
        return given
    if not callable(given) or isinstance(given, type):
        raise InvalidInput(f"a tool must be a function with typed parameters, or a Tool, not {type(given).__name__}")
    said: dict[str, Any] = dict(getattr(given, _MARK, {}))
    name = said.pop("name", None) or getattr(given, "__name__", "")
    about, each = _documented(inspect.getdoc(given) or "")
    hints = _hints(given, name)
    properties: Json = {}
    required: list[str] = []
    for parameter in inspect.signature(given).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInput(
                f"the tool {name!r} takes {parameter}; a model names every argument, so give it plain parameters"
            )
        schema = _schema(hints.get(parameter.name, Any), f"{parameter.name} of {name}")
        if parameter.name in each:
            schema.setdefault("description", each[parameter.name])
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        properties[parameter.name] = schema
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    description = said.pop("description", None) or about or name
    return Tool(name, description, parameters, _typed(given, hints), **said)


def as_tools(given: Iterable[ToolLike]) -> dict[str, Tool]:
    """Return tools by their names. A name that is used twice is refused."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InvalidInput(f"tools must be a list of functions and Tools, not {type(given).__name__}")
    found: dict[str, Tool] = {}
    for one in map(as_tool, given):
        if one.name in found:
            raise InvalidInput(f"two tools have the name {one.name!r}; name one of them with tool(name=...)")
        found[one.name] = one
    return found


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    home = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(home, include_extras=True)
    except Exception as error:  # evaluating a hint may raise anything
        raise InvalidInput(f"the types of the tool {name!r} cannot be read: {error}") from None


def _typed(function: Callable[..., Any], hints: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that converts JSON values to the types of the parameters."""
    rich = {name: hint for name, hint in hints.items() if name != "return" and _needs_conversion(hint)}
    if not rich:
        return function

    def call(**arguments: Any) -> Any:
        return function(
            **{name: _converted(value, rich[name]) if name in rich else value for name, value in arguments.items()}
        )

    return call


# --- types as schemas --------------------------------------------------------------------------------------

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _schema(hint: Any, what: str, depth: int = 0) -> Json:
    if depth > 16:
        raise InvalidInput(f"the type of {what} contains itself; a tool takes plain values, lists and records")
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = _schema(arguments[0], what, depth + 1)
        said = next((one for one in arguments[1:] if isinstance(one, str)), None)
        return schema if said is None else {**schema, "description": said}
    if hint in (Any, object, inspect.Parameter.empty):
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is Literal:
        return _choices(list(arguments))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choices([member.value for member in hint])
    if origin in (Union, types.UnionType):
        kinds = [_schema(one, what, depth + 1) for one in arguments if one is not type(None)]
        if len(kinds) == 1:
            return kinds[0]
        plain = [kind["type"] for kind in kinds if set(kind) == {"type"}]
        return {"type": plain} if len(plain) == len(kinds) else {}
    kind = origin or hint
    if is_dataclass(hint) or is_typeddict(hint):
        return _record(hint, what, depth)
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return {"type": "object"}
    if isinstance(kind, type) and issubclass(kind, Sequence | AbstractSet) and not issubclass(kind, bytes):
        item = next((one for one in arguments if one is not Ellipsis), Any)
        return {"type": "array", "items": _schema(item, what, depth + 1)}
    raise InvalidInput(
        f"the type of {what} is {hint!r}, which JSON cannot represent; use str, int, float, bool, lists, dicts, "
        "Literal, an Enum, a dataclass or a TypedDict"
    )


def _choices(values: list[Any]) -> Json:
    kinds = sorted({_PLAIN.get(type(one), "string") for one in values})
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _record(hint: Any, what: str, depth: int) -> Json:
    hints = get_type_hints(hint, include_extras=True)
    if is_dataclass(hint):
        required = [
            one.name for one in fields(hint) if one.default is MISSING and one.default_factory is MISSING and one.init
        ]
    else:
        required = sorted(hint.__required_keys__)
    properties = {name: _schema(one, f"{name} in {what}", depth + 1) for name, one in hints.items()}
    return {"type": "object", "properties": properties, "required": required}


def _bare(hint: Any) -> Any:
    """Return a type without its annotation, and without None."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        others = [one for one in get_args(hint) if one is not type(None)]
        return _bare(others[0]) if len(others) == 1 else Any
    return hint


def _needs_conversion(hint: Any) -> bool:
    bare = _bare(hint)
    if any(map(_needs_conversion, get_args(bare))) and get_origin(bare) is not Literal:
        return True
    kind = get_origin(bare) or bare
    return isinstance(kind, type) and (issubclass(kind, Enum | tuple | set | frozenset | float) or is_dataclass(kind))


def _converted(value: Any, hint: Any) -> Any:
    """Convert a JSON value to the type of a parameter."""
    bare = _bare(hint)
    kind, arguments = get_origin(bare) or bare, get_args(bare)
    if value is None or not isinstance(kind, type):
        return value
    if issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int):
        return float(value)
    if is_dataclass(kind) and isinstance(value, Mapping):
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{name: _converted(one, hints.get(name, Any)) for name, one in value.items()})
    if isinstance(value, list):
        item = next((one for one in arguments if one is not Ellipsis), Any)
        made = [_converted(one, item) for one in value]
        return kind(made) if kind in (tuple, set, frozenset) else made
    return value


# --- docstrings --------------------------------------------------------------------------------------------

_SECTION = re.compile(r"^(?:Args|Arguments|Parameters|参数)\s*[:：]\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^[ \t]+(\w+)[ \t]*(?:\([^)\n]*\))?[:：][ \t]*(.+)$", re.MULTILINE)
_OTHER_SECTION = re.compile(r"^\w[\w ]*[:：]\s*$", re.MULTILINE)
_FIELD = re.compile(r"^:param (?:\w+ )?(\w+):[ \t]*(.+)$", re.MULTILINE)


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and that of each parameter."""
    found = dict(_FIELD.findall(text))
    about = text.split("\n:param ", 1)[0]
    section = _SECTION.search(about)
    if section is not None:
        rest = about[section.end() :]
        end = _OTHER_SECTION.search(rest)
        found |= dict(_ARGUMENT.findall(rest[: end.start()] if end else rest))
        about = about[: section.start()]
    return about.strip(), found
