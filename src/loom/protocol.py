"""The protocol between agents: the Task, nodes that execute tasks, ids, times, and records as plain data.

Every communication is a `Task`; the event bus delivers it and the memory stores it. Ids sort by creation time, and
times are aware and in UTC. Storing and routing of tasks are decided elsewhere.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from itertools import count
from threading import RLock
from typing import (
    Any,
    ClassVar,
    Literal,
    NoReturn,
    Protocol,
    Self,
    SupportsIndex,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from loom.checks import checked_list, checked_member, checked_text
from loom.errors import InvalidInput

__all__ = [
    "AgentCapability",
    "AgentCard",
    "Clock",
    "Closing",
    "IdMaker",
    "NodeProtocol",
    "Plain",
    "Ready",
    "ReadyAnswer",
    "ReadyList",
    "Task",
    "TaskStatus",
    "Uncopied",
    "as_plain",
    "checked_time",
    "closest",
    "from_plain",
    "new_id",
    "utc_now",
    "value_text",
]

Clock = Callable[[], datetime]
"""A function that returns the time as an aware datetime. The default is `utc_now`."""


def utc_now() -> datetime:
    """Return the current time, aware and in UTC."""
    return datetime.now(UTC)


def value_text(value: object) -> str:
    """Return a value of a task or entry as text: a text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def error_text(error: Exception) -> str:
    """Return an error as text: its type, and its message if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# --- ids -----------------------------------------------------------------------------------------------

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: ASCII order is numeric order
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_LETTERS = _ALPHABET.encode() * 8  # the character for each byte, with 5 of its bits
_IDS_PER_MILLISECOND = 1 << 30


class _Millisecond:
    """The ids of one millisecond: a fixed prefix and a counter."""

    __slots__ = ("counter", "number", "prefix")

    def __init__(self, number: int, most_ids: int) -> None:
        chance = os.urandom(14)
        self.number = number
        moment = _PAIRS[number >> 40 & 255] + _PAIRS[number >> 30 & 1023] + _PAIRS[number >> 20 & 1023]
        moment += _PAIRS[number >> 10 & 1023] + _PAIRS[number & 1023]
        self.prefix = moment + chance[:10].translate(_LETTERS).decode()
        # The counter starts in the lower half of its range, so that it always has room.
        self.counter = count(int.from_bytes(chance[10:], "big") & (most_ids // 2 - 1))


class IdMaker:
    """The state of `new_id`: 48 bits of milliseconds, 50 random bits, 30 bits of a counter.

    The random bits and the start of the counter are new in each millisecond, so ids of two processes are equal only
    if both choose the same 79 bits in the same millisecond. Within a millisecond only the counter changes, in one
    atomic step without a lock. A new millisecond takes a reentrant lock, because a signal handler that needs an id
    may interrupt the thread there. `ids_per_millisecond` is a power of two, at most 2**30; when they are used up, ids
    continue in the next millisecond.
    """

    __slots__ = ("_current", "_lock", "_most_ids")

    def __init__(self, ids_per_millisecond: int = _IDS_PER_MILLISECOND) -> None:
        self._most_ids = ids_per_millisecond
        self.reset()

    def reset(self) -> None:
        self._lock = RLock()
        self._current = _Millisecond(0, self._most_ids)

    def make(self) -> str:
        now = time.time_ns() // 1_000_000
        current = self._current
        # Ids must not descend after the clock was set back: the last millisecond then continues.
        if now > current.number:
            current = self._advance(now)
        while (number := next(current.counter)) >= self._most_ids:
            current = self._advance(current.number + 1)
        return current.prefix + _PAIRS[number >> 20] + _PAIRS[number >> 10 & 1023] + _PAIRS[number & 1023]

    def _advance(self, millisecond: int) -> _Millisecond:
        with self._lock:
            if self._current.number < millisecond:
                self._current = _Millisecond(millisecond, self._most_ids)
            return self._current


_ids = IdMaker()
# A forked child inherits the counter, and perhaps a lock that none of its threads will release.
os.register_at_fork(after_in_child=_ids.reset)


def new_id() -> str:
    """Return a new id of 26 characters: unique across processes and forks, ascending within this process.

    Ids of different processes sort by millisecond. Thread-safe.
    """
    return _ids.make()


# --- tasks ---------------------------------------------------------------------------------------------


class TaskStatus(StrEnum):
    """The state of a task; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_AS_CREATED = datetime.min.replace(tzinfo=UTC)
_MAX_DEPTH = 100


class Plain:
    """The base of dataclasses that can be converted to plain data and back."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return this record as JSON values; `from_dict` makes an equal record from them."""
        return as_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make a record from the values that `to_dict` returned, without sharing objects with them.

        A missing field has its default. An unknown field, a missing field without a default, a value of a wrong type
        or a time without an offset raises `InvalidInput`.
        """
        return from_plain(cls, data)


@dataclass(slots=True)
class Task(Plain):
    """A request, event or answer between agents. Mutable: the node that executes it fills in the outcome.

    Times must be aware and are stored in UTC; `updated_at` starts as `created_at` and is updated by the caller. A
    text as `status` becomes a `TaskStatus`. `metadata` is free; by convention it contains `importance` (0..1, which
    takes precedence over the value of the action) and `_container_depth` (set by containers). Parameters, result and
    metadata may contain any values while the task stays in this process; only `to_dict` requires JSON values.
    """

    task_id: str = field(default_factory=new_id)
    action: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str | None = None
    status: TaskStatus = TaskStatus.PENDING
    session_id: str | None = None
    parent_task_id: str | None = None
    source_agent: str = ""
    target_agent: str = ""
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = _AS_CREATED
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_text(self.task_id, "task_id (leave it out for a new id)")
        if type(self.status) is not TaskStatus:
            self.status = checked_member(TaskStatus, self.status, "status")
        self.created_at = checked_time(self.created_at, "created_at")
        if self.updated_at is _AS_CREATED:
            self.updated_at = self.created_at
        else:
            self.updated_at = checked_time(self.updated_at, "updated_at")

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of this task as JSON values; `from_dict` makes an equal task from it.

        Times become ISO 8601 text and tuples become lists. Any other value that JSON does not have (an object, bytes,
        a set, NaN, a key that is not text) raises `InvalidInput`, which names the place.
        """
        return {
            "task_id": self.task_id,
            "action": self.action,
            "parameters": _json_copy(self.parameters, "parameters"),
            "result": _json_copy(self.result, "result"),
            "error": self.error,
            "status": TaskStatus(self.status).value,
            "session_id": self.session_id,
            "parent_task_id": self.parent_task_id,
            "source_agent": self.source_agent,
            "target_agent": self.target_agent,
            "created_at": checked_time(self.created_at, "created_at").isoformat(),
            "updated_at": checked_time(self.updated_at, "updated_at").isoformat(),
            "metadata": _json_copy(self.metadata, "metadata"),
        }


# --- agents --------------------------------------------------------------------------------------------


class AgentCapability(StrEnum):
    """The general capabilities of an agent. `AgentCard.skills` has the specific ones."""

    REASONING = "reasoning"
    TOOL_USE = "tool_use"
    PLANNING = "planning"
    REFLECTION = "reflection"
    MEMORY = "memory"
    MULTI_AGENT = "multi_agent"


@dataclass(frozen=True, slots=True)
class AgentCard(Plain):
    """The description of an agent: its identity and capabilities. Only `agent_id` is required."""

    agent_id: str
    name: str = ""
    description: str = ""
    version: str = "1.0.0"
    capabilities: tuple[AgentCapability, ...] = ()
    skills: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        checked_text(self.agent_id, "agent_id")
        capabilities = checked_list(self.capabilities, "capabilities")
        named = tuple(checked_member(AgentCapability, capability, "capabilities") for capability in capabilities)
        object.__setattr__(self, "capabilities", named)
        object.__setattr__(self, "skills", tuple(checked_list(self.skills, "skills")))


@runtime_checkable
class NodeProtocol(Protocol):
    """An object that executes tasks: an agent, or a container of agents."""

    @property
    def node_id(self) -> str: ...

    async def execute_task(self, task: Task) -> Task:
        """Execute `task` and return it with its status, result or error."""

    def get_capabilities(self) -> AgentCard: ...


class Uncopied:
    """The base of objects that cannot be copied or pickled, because their resources are open in this process."""

    # The advice to a caller who wants to send it to another process.
    _elsewhere: ClassVar[str] = "make another one there"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise InvalidInput(
            f"{type(self).__name__} cannot be copied, pickled or sent to another process, because its resources are "
            f"open in this one; {self._elsewhere}"
        )


class Closing(Uncopied):
    """The base of objects that are closed by `close`, or at the end of a `with` block."""

    def close(self) -> None:
        """Release all resources. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_Item = TypeVar("_Item")


class Ready:
    """A finished result. It may also be awaited, which returns the result itself."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


class ReadyList(Ready, list[_Item]):
    """A list that may also be awaited."""

    __slots__ = ()


class ReadyAnswer(Ready, int):
    """A value equal to True or False that may also be awaited."""

    __slots__ = ()

    def __new__(cls, answer: object) -> Self:
        return super().__new__(cls, bool(answer))

    def __repr__(self) -> str:
        return repr(bool(self))

    def __reduce__(self) -> tuple[type[ReadyAnswer], tuple[bool]]:
        return ReadyAnswer, (bool(self),)


# --- checks --------------------------------------------------------------------------------------------


def closest(name: object, known: Iterable[str], prefix: str = "") -> str:
    """Return a hint at the most similar known name; empty if none is similar."""
    import difflib

    close = difflib.get_close_matches(str(name), [*known], n=1)
    return f"did you mean '{prefix}{close[0]}'? " if close else ""


def checked_time(moment: object, name: str) -> datetime:
    """Convert an aware datetime, or an ISO 8601 text with an offset, to UTC. `name` is that of the argument."""
    way_out = "add tzinfo=..., for example datetime.now(timezone.utc)"
    if isinstance(moment, str):
        text, way_out = moment, "add its offset, for example +00:00"
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInput(
                f"{name} is {text[:40]!r}, not a time in ISO 8601 such as 2025-01-05T10:30:00+00:00"
            ) from None
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{name} must be a datetime or a text in ISO 8601, not {type(moment).__name__}")
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise InvalidInput(f"{name} is {moment.isoformat()}, a time without a zone; {way_out}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(f"{name} is {moment.isoformat()}, outside the years 1 to 9999 in UTC") from None


def _json_copy(value: Any, place: str, depth: int = 0) -> Any:
    """Return a copy of `value` in plain JSON types. Errors name the place and the type, never the content."""
    kind = type(value)
    if value is None or kind is str or kind is bool or kind is int:
        return value
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"{place[:80]}... is nested deeper than {_MAX_DEPTH} levels, or contains itself")
    if isinstance(value, float):
        if value - value != 0.0:  # NaN and the infinities, which JSON does not have
            raise InvalidInput(f"{place} is {value!r}, which JSON cannot represent; use null or text")
        return float(value)
    if isinstance(value, Mapping):
        copy: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInput(f"{place} has a key of type {type(key).__name__}; JSON keys are text")
            copy[str.__str__(key)] = _json_copy(item, f"{place}.{key}", depth + 1)
        return copy
    if isinstance(value, list | tuple):
        return [_json_copy(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, str):  # a subclass of a text or number, such as a member of an enum
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    raise InvalidInput(
        f"{place} is of type {kind.__name__}, which JSON cannot represent; turn it into text, numbers, lists or dicts"
    )


# --- records as plain data -----------------------------------------------------------------------------

_Kind = TypeVar("_Kind")


def as_plain(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or named tuple as JSON values, without fields that are not compared.

    Times become ISO 8601 text with an offset, tuples lists, nested records dicts. A value that JSON does not have
    raises `InvalidInput`, which names the place.
    """
    return {name: _plain(getattr(record, name), name) for name in _field_types(record.__class__)}


def _plain(value: Any, place: str) -> Any:
    if isinstance(value, datetime):
        return checked_time(value, place).isoformat()
    if is_dataclass(value) or hasattr(value, "_fields"):
        return as_plain(value)
    if isinstance(value, tuple):
        return [_plain(one, place) for one in value]
    return _json_copy(value, place)


def from_plain(kind: type[_Kind], data: Mapping[str, Any]) -> _Kind:
    """Make a record from the output of `as_plain`, without sharing objects with it.

    A missing field has its default. An unknown field, a missing field without a default, a value of a wrong type or a
    time without an offset raises `InvalidInput`.
    """
    made: Any = kind
    what, types = kind.__name__.lstrip("_"), _field_types(made)
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{what} is made from a mapping of its fields, not from {type(data).__name__}")
    for name in data:
        if name not in types:
            raise InvalidInput(f"{what} has no field {name!r}; its fields are {', '.join(types)}")
    values = {name: _typed(value, types[name], name, what) for name, value in data.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidInput(f"{what} cannot be made from these fields: {error}") from None


@cache
def _field_types(kind: type) -> dict[str, Any]:
    types = get_type_hints(kind)
    return {one.name: types[one.name] for one in fields(kind) if one.compare} if is_dataclass(kind) else types


def _typed(value: Any, hint: Any, name: str, what: str) -> Any:
    """Convert a value of plain data to the type of its field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if type(None) in arguments:
        return None if value is None else _typed(value, arguments[0], name, what)
    if hint is datetime:
        return checked_time(value, name)
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return from_plain(hint, value)
    kind = origin or hint
    is_choice = isinstance(kind, type) and issubclass(kind, StrEnum)
    accepted = (str,) if is_choice else _PLAIN_KINDS.get(kind, (kind,))
    if hint is not Any and not isinstance(value, accepted):
        wanted = " or ".join(one.__name__ for one in accepted)
        raise InvalidInput(f"{name} of {what} must be {wanted}, not {type(value).__name__}")
    if kind in (tuple, list):
        return kind(_typed(one, arguments[0], name, what) for one in value)
    return checked_member(kind, value, name) if is_choice else _json_copy(value, name)


_PLAIN_KINDS: dict[Any, tuple[type, ...]] = {
    float: (int, float),
    list: (list, tuple),
    tuple: (list, tuple),
    Literal: (str,),
}
