"""The types of the memory: tiers, kinds, and the records that callers hold."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypedDict

from loom.checks import checked_items, checked_member, checked_number, if_given
from loom.protocol import Plain, Ready, Task, as_plain, from_plain, new_id, utc_now, value_text
from loom.storage.contract import Record
from loom.text.entities import NAMES

__all__ = [
    "AccessRecord",
    "Fact",
    "FactType",
    "Filters",
    "Instruction",
    "InstructionKind",
    "InstructionScope",
    "MemoryQuery",
    "MemoryStrategyType",
    "MemoryTier",
    "MemoryType",
    "MemoryUnit",
    "Receipt",
    "StoredSummary",
    "TaskSummary",
    "Trust",
    "known_tier",
    "record_as_fact",
    "record_as_instruction",
    "record_as_summary",
    "record_as_task",
]


class _AnyCase(StrEnum):
    """Names that are read case-insensitively."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        folded = value.casefold() if isinstance(value, str) else None
        return next((member for member in cls if member.value == folded), None)


class MemoryTier(_AnyCase):
    """The four tiers, nearest the prompt first."""

    L1 = "l1"
    L2 = "l2"
    L3 = "l3"
    L4 = "l4"
    L1_RAW_IO = "l1"
    L2_WORKING = "l2"
    L3_SESSION = "l3"
    L4_GLOBAL = "l4"


def known_tier(tier: MemoryTier | str) -> MemoryTier:
    """The tier of a name."""
    return checked_member(MemoryTier, tier, "tier")


class MemoryType(_AnyCase):
    """The kinds of memories."""

    TASK = "task"
    CONTEXT = "context"
    FACT = "fact"
    SUMMARY = "summary"
    MESSAGE = "message"
    THOUGHT = "thought"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    PLAN = "plan"
    NAMES = NAMES
    INSTRUCTION = "instruction"


class Trust(_AnyCase):
    """The origin of a text, which determines how far to trust it."""

    USER = "user"
    AGENT = "agent"
    TOOL = "tool"
    WEB = "web"
    UNKNOWN = "unknown"


class Filters(TypedDict, total=False):
    """The fields of `Filter` as keyword arguments of `recall`, `list` and `forget`, for type checkers and editors.

    A time may be given as a text in ISO 8601 with an offset.
    """

    ids: Collection[str] | None
    node: str | Collection[str] | None
    session_id: str | Collection[str] | None
    tier: str | Collection[str] | None
    kind: str | Collection[str] | None
    role: str | Collection[str] | None
    name: str | Collection[str] | None
    trust: str | Collection[str] | None
    subject: str | None
    flow: str | None
    layer: str | None
    min_importance: float | None
    since: datetime | str | None
    until: datetime | str | None
    as_of: datetime | str | None
    known_at: datetime | str | None
    pinned: bool | None
    derived: bool | None
    history: bool
    where: Mapping[str, Any] | None


class MemoryStrategyType(StrEnum):
    """The rules by which records enter the working tier."""

    IMPORTANCE_BASED = "importance_based"
    SIMPLE = "simple"


class FactType(_AnyCase):
    """The subject of a fact."""

    API_SCHEMA = "api_schema"
    USER_PREFERENCE = "user_preference"
    DOMAIN_KNOWLEDGE = "domain_knowledge"
    TOOL_USAGE = "tool_usage"
    ERROR_PATTERN = "error_pattern"
    BEST_PRACTICE = "best_practice"


@dataclass(slots=True)
class MemoryUnit:
    """A piece of memory outside the tiers, among which a context strategy chooses."""

    content: Any
    id: str = field(default_factory=new_id)
    tier: MemoryTier = MemoryTier.L1
    type: MemoryType = MemoryType.MESSAGE
    importance: float = 0.5
    token_count: int = 0
    created_at: datetime = field(default_factory=utc_now)
    accessed_count: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_number(self.importance, "importance", 0.0, 1.0)

    def to_message(self) -> dict[str, Any]:
        """As a chat message: a prepared message unchanged, a text as its content, everything else as JSON.

        The role is the one in the metadata, else `user` for a message, `assistant` for a thought, and `system` for
        other kinds.
        """
        if isinstance(self.content, Mapping) and isinstance(self.content.get("role"), str):
            return copy.deepcopy(dict(self.content))
        role = str(self.metadata.get("role") or _SPEAKERS.get(self.type, "system"))
        return {"role": role, "content": value_text(self.content)}


_SPEAKERS = {MemoryType.MESSAGE: "user", MemoryType.THOUGHT: "assistant"}


# Kinds whose action is not shown: a message shows its speaker, and a summary or fact states its own subject.
_WITHOUT_ACTION = (MemoryType.MESSAGE, MemoryType.SUMMARY, MemoryType.FACT)


@dataclass(slots=True)
class TaskSummary:
    """A task in a few words. The task itself stays in the log under `task_id`."""

    task_id: str
    action: str
    param_summary: str = ""
    result_summary: str = ""
    tags: list[str] = field(default_factory=list)
    importance: float = 0.5
    session_id: str | None = None
    created_at: datetime = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        checked_number(self.importance, "importance", 0.0, 1.0)

    @property
    def text(self) -> str:
        """The summary as one line: the text that a prompt shows and that its tokens count."""
        named = "" if self.action in _WITHOUT_ACTION else self.action
        done = ": ".join(part for part in (named, self.param_summary) if part) or self.action
        outcome = f" -> {self.result_summary}" if self.result_summary else ""
        tags = f" ({', '.join(self.tags)})" if self.tags else ""
        return f"{done}{outcome}{tags}"


@dataclass(slots=True)
class Fact(Plain):
    """A statement held to be true, with its confidence, its time of validity and its sources.

    `created_at` is the time when it became true, and `superseded_at` the time when another fact replaced it; None
    while it is valid. `metadata` has its origin: the label and key of an extracted fact, the fidelity of a merged
    one. As plain data, it has no embedding.
    """

    content: str
    fact_type: FactType = FactType.DOMAIN_KNOWLEDGE
    confidence: float = 0.8
    id: str = field(default_factory=lambda: f"fact_{new_id()}")
    tags: list[str] = field(default_factory=list)
    access_count: int = 0
    created_at: datetime = field(default_factory=utc_now)
    importance: float | None = None
    sources: list[str] = field(default_factory=list)
    superseded_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    embedding: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_number(self.confidence, "confidence", 0.0, 1.0)
        self.fact_type = checked_member(FactType, self.fact_type, "fact_type")
        self.tags = checked_items(self.tags, str, "Fact", "tags")
        if_given(checked_number, self.importance, "importance", 0.0, 1.0)


class InstructionKind(_AnyCase):
    """The kinds of standing instructions."""

    INSTRUCTION = "instruction"
    """The user told the assistant to do something, or not to do it."""
    PREFERENCE = "preference"
    """The user likes something, avoids it, or is used to it."""
    WITHDRAWAL = "withdrawal"
    """The user ended earlier instructions. It names them, and is not an instruction itself."""


class InstructionScope(_AnyCase):
    """The sessions in which a standing instruction applies."""

    EVERYWHERE = "everywhere"
    """In every session of the node that received it."""
    SESSION = "session"
    """In the session in which it was given."""


@dataclass(frozen=True, slots=True)
class Instruction(Plain):
    """A standing instruction or preference in the user's own words, and the memory that it was derived from.

    `condition` has the words that say when it applies ("when I ask for code"), None if it always applies. With the
    scope `session`, it applies only in the session `session_id`. `superseded_at` is the time when it was changed or
    withdrawn, None while it is in force. `trust` is that of the source, which is always `user`.
    """

    id: str
    text: str
    kind: InstructionKind
    condition: str | None
    scope: InstructionScope
    session_id: str | None
    sources: tuple[str, ...]
    created_at: datetime
    trust: Trust = Trust.USER
    superseded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A query to the memory as one record."""

    query: str
    tier: MemoryTier | None = None
    type: MemoryType | None = None
    limit: int = 10
    min_importance: float = 0.0
    session_id: str | None = None

    def __post_init__(self) -> None:
        # A misspelt filter must not look like an empty result.
        for name, kind in (("tier", MemoryTier), ("type", MemoryType)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_member(kind, getattr(self, name), name))
        checked_number(self.min_importance, "min_importance", 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """The last uses of a memory by a node: at most two times, the earlier first, and the total count.

    Writing is not a use. The record outlives the memory's stay in any tier.
    """

    timestamps: tuple[datetime, ...]
    access_count: int


class _Receipt(NamedTuple):
    """The values of a receipt, once its tokens are counted."""

    id: str
    tier: MemoryTier
    tokens: int
    version: int
    created: bool
    note: str


class Receipt(Ready):
    """A committed write. It may also be awaited, which returns the receipt itself.

    `tier` is the nearest tier to the prompt that holds it. `created` is False if the same text was already stored
    under the same id. `note` has remarks for the caller, such as that it was too large for a tier. (It is not a
    dataclass, because one is made for every write and this takes a quarter of the time.)
    """

    __slots__ = ("_tokens", "created", "id", "note", "tier", "version")

    def __init__(
        self,
        id: str,
        tier: MemoryTier,
        tokens: int | Callable[[], int],
        version: int = 1,
        created: bool = True,
        note: str = "",
    ) -> None:
        self.id = id
        self.tier = tier
        self._tokens = tokens
        self.version = version
        self.created = created
        self.note = note

    @property
    def tokens(self) -> int:
        """The size of the text. A short text is counted when this is read, not when it is written."""
        if not isinstance(self._tokens, int):
            self._tokens = self._tokens()
        return self._tokens

    def _values(self) -> _Receipt:
        return _Receipt(self.id, self.tier, self.tokens, self.version, self.created, self.note)

    def to_dict(self) -> dict[str, Any]:
        """This receipt as JSON values; `from_dict` makes an equal one from them."""
        return as_plain(self._values())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Receipt:
        """The receipt from the output of `to_dict`."""
        return cls(*from_plain(_Receipt, data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((self.id, self.version))

    def __repr__(self) -> str:
        return repr(self._values()).removeprefix("_")

    def __reduce__(self) -> tuple[type[Receipt], _Receipt]:
        return Receipt, self._values()


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A summary that replaces, or replaced, a stretch of dialogue, with its fidelity.

    `faithful` is the verdict of the fidelity check; only a faithful summary replaces its sources in the tiers.
    `superseded_at` is the time when it was withdrawn, None while it is in force.
    """

    id: str
    text: str
    tokens: int
    original_tokens: int
    session_id: str | None
    created_at: datetime
    fidelity: float
    faithful: bool
    method: str
    sources: tuple[str, ...]
    superseded_at: datetime | None


def record_as_summary(record: Record, sources: Sequence[str]) -> StoredSummary:
    """A record of kind `summary` that the memory made itself."""
    data = record.data if isinstance(record.data, Mapping) else {}
    return StoredSummary(
        id=record.id,
        text=record.content,
        tokens=record.tokens,
        original_tokens=int(data.get("tokens_of_originals", record.tokens)),
        session_id=record.session_id,
        created_at=record.created_at,
        fidelity=float(data.get("fidelity", 1.0)),
        faithful=bool(data.get("faithful", True)),
        method=str(data.get("method", "")),
        sources=tuple(sources),
        superseded_at=record.superseded_at,
    )


def record_as_instruction(record: Record, sources: Sequence[str]) -> Instruction:
    """A record of kind `instruction` that the memory made itself."""
    data = record.data if isinstance(record.data, Mapping) else {}
    return Instruction(
        id=record.id,
        text=record.content,
        kind=InstructionKind(data.get("kind", InstructionKind.INSTRUCTION)),
        condition=data.get("condition"),
        scope=InstructionScope(data.get("scope", InstructionScope.EVERYWHERE)),
        session_id=record.session_id,
        sources=tuple(sources),
        created_at=record.created_at,
        trust=Trust(record.trust),
        superseded_at=record.superseded_at,
    )


def record_as_task(record: Record) -> Task:
    """A record as the task that it was. A record that was not a task becomes one with its kind as action and its text
    as parameter.

    The result shares nothing with the record.
    """
    if record.kind == MemoryType.TASK and isinstance(record.data, Mapping):
        return Task.from_dict(record.data)
    said = {"content": record.content, "role": record.role, "name": record.name}
    return Task(
        task_id=record.id,
        action=record.kind,
        parameters={key: value for key, value in said.items() if value is not None},
        session_id=record.session_id,
        source_agent=record.name or "",
        created_at=record.created_at,
        metadata={**copy.deepcopy(record.metadata), "importance": record.importance},
    )


def record_as_fact(record: Record, uses: int = 0, sources: Sequence[str] = ()) -> Fact:
    """A record of kind `fact` as a fact."""
    data = record.data if isinstance(record.data, Mapping) else {}
    return Fact(
        content=record.content,
        fact_type=FactType(data.get("fact_type", FactType.DOMAIN_KNOWLEDGE)),
        confidence=float(data.get("confidence", 0.8)),
        id=record.id,
        tags=[*data.get("tags", ())],
        access_count=uses,
        created_at=record.created_at,
        importance=record.importance,
        sources=[*sources],
        superseded_at=record.superseded_at,
        metadata=dict(data.get("metadata", {})),
    )
