"""The words of the memory: tiers, kinds, and the records that callers hold in their hands."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from loom.errors import InvalidInput
from loom.memory.thesaurus import Concept
from loom.protocol import Task, new_id, utc_now
from loom.storage.analysis import own_words
from loom.storage.base import Record
from loom.storage.naming import NAMES, entity_mark, entity_marks, entity_name
from loom.storage.words import terms

__all__ = [
    "Fact",
    "FactType",
    "Hit",
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
    "record_as_summary",
    "record_as_task",
]


class MemoryTier(StrEnum):
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
    try:
        return MemoryTier(tier)
    except ValueError as error:
        raise InvalidInput(f"there is no tier {tier!r}; the tiers are {', '.join(MemoryTier)}") from error


class MemoryType(StrEnum):
    """What kind of thing a memory is."""

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


class Trust(StrEnum):
    """Where a text came from, and so how far it may be believed."""

    USER = "user"
    AGENT = "agent"
    TOOL = "tool"
    WEB = "web"
    UNKNOWN = "unknown"


class MemoryStrategyType(StrEnum):
    """How records come to the working tier."""

    IMPORTANCE_BASED = "importance_based"
    SIMPLE = "simple"


class FactType(StrEnum):
    """What a fact is about."""

    API_SCHEMA = "api_schema"
    USER_PREFERENCE = "user_preference"
    DOMAIN_KNOWLEDGE = "domain_knowledge"
    TOOL_USAGE = "tool_usage"
    ERROR_PATTERN = "error_pattern"
    BEST_PRACTICE = "best_practice"


def _checked_importance(value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise InvalidInput(f"importance is {value}; it must be from 0 to 1")
    return value


@dataclass(slots=True)
class MemoryUnit:
    """A piece of memory outside any tier's storage: what a context strategy chooses among."""

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
        _checked_importance(self.importance)

    def to_message(self) -> dict[str, str]:
        """As a chat message. The role is the one in the metadata, else `system` for what is not speech."""
        speech = self.type in (MemoryType.MESSAGE, MemoryType.THOUGHT)
        role = str(self.metadata.get("role") or ("assistant" if speech else "system"))
        return {"role": role, "content": self.content if isinstance(self.content, str) else str(self.content)}


# Who spoke says enough, and a summary says what it is about.
_SPEAK_FOR_THEMSELVES = (MemoryType.MESSAGE, MemoryType.SUMMARY)


@dataclass(slots=True)
class TaskSummary:
    """A task in few words; the task itself stays in the log under `task_id`."""

    task_id: str
    action: str
    param_summary: str = ""
    result_summary: str = ""
    tags: list[str] = field(default_factory=list)
    importance: float = 0.5
    session_id: str | None = None
    created_at: datetime = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        _checked_importance(self.importance)

    @property
    def text(self) -> str:
        """The summary as one line: what a prompt would show, and what its tokens are counted on."""
        named = "" if self.action in _SPEAK_FOR_THEMSELVES else self.action
        done = ": ".join(part for part in (named, self.param_summary) if part) or self.action
        outcome = f" -> {self.result_summary}" if self.result_summary else ""
        tags = f" ({', '.join(self.tags)})" if self.tags else ""
        return f"{done}{outcome}{tags}"


@dataclass(slots=True)
class Fact:
    """One thing held to be true, with how sure that is, since when, and what it was drawn from.

    `created_at` is when it became true, `superseded_at` when another fact took its place; None while it holds.
    `metadata` tells how it came about: the label and key of an extracted fact, the fidelity of a merged one.
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
        if not 0.0 <= self.confidence <= 1.0:
            raise InvalidInput(f"confidence is {self.confidence}; it must be from 0 to 1")
        try:
            self.fact_type = FactType(self.fact_type)
        except ValueError as error:
            known = ", ".join(FactType)
            raise InvalidInput(f"there is no fact type {self.fact_type!r}; the types are {known}") from error
        if isinstance(self.tags, str) or not all(isinstance(tag, str) for tag in self.tags):
            raise InvalidInput(f"tags are a list of texts, not {self.tags!r}")
        self.tags = [*self.tags]
        if self.importance is not None:
            _checked_importance(self.importance)


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A question to the memory as one record."""

    query: str
    tier: MemoryTier | None = None
    type: MemoryType | None = None
    limit: int = 10
    min_importance: float = 0.0
    session_id: str | None = None

    def __post_init__(self) -> None:
        # A slip in a filter must not look like "nothing found".
        for name, kind in (("tier", MemoryTier), ("type", MemoryType)):
            value = getattr(self, name)
            if value is not None and value not in [*kind]:
                raise InvalidInput(f"there is no {name} {value!r}; there are {', '.join(kind)}")
        _checked_importance(self.min_importance)


class Receipt:
    """A write that is committed. It may also be awaited, which gives the receipt itself.

    `tier` is the tier nearest the prompt that holds it; `created` is False where the same text was there
    under the same id already. `note` says what the caller should know, such as that it was too large for a tier.
    (No dataclass: it is made for every write, in a quarter of the time.)
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
        """The size of what was written. A short text is counted when this is asked for, not when it is written."""
        if not isinstance(self._tokens, int):
            self._tokens = self._tokens()
        return self._tokens

    def _values(self) -> tuple[str, MemoryTier, int, int, bool, str]:
        return self.id, self.tier, self.tokens, self.version, self.created, self.note

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((self.id, self.version))

    def __repr__(self) -> str:
        names = ("id", "tier", "tokens", "version", "created", "note")
        values = zip(names, self._values(), strict=True)
        return f"Receipt({', '.join(f'{name}={value!r}' for name, value in values)})"

    def __reduce__(self) -> tuple[type[Receipt], tuple[str, MemoryTier, int, int, bool, str]]:
        return Receipt, self._values()

    def __await__(self) -> Generator[Any, None, Receipt]:
        return self
        yield


class Standing(NamedTuple):
    """A candidate among all of them: what each signal added to each, a row a signal and a column a candidate.

    Only those `nominated` stand beside one another; the others are their context.
    """

    signals: tuple[str, ...]
    table: Any
    nominated: Any
    place: int

    def added(self) -> dict[str, float]:
        """What each signal added to its score."""
        return dict(zip(self.signals, self.table[:, self.place].tolist(), strict=True))

    def ranks(self) -> dict[str, int]:
        """Its place by each of the signals that speak for it, the best being 1."""
        own = self.table[:, self.place]
        above = (self.table[:, self.nominated > 0] > own[:, None]).sum(axis=1).tolist()
        counts = zip(self.signals, own.tolist(), above, strict=True)
        return {name: better + 1 for name, value, better in counts if value > 0.0}


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that was recalled. Higher scores are better.

    `signals` holds what spoke for it: `words` (BM25) and `meaning` (cosine) as the indexes measure them, and what
    each of the others added to the score. `copies` counts the memories found that say the same, itself included;
    `copy_ids` are the others. `uses` is counted only for a `MemoryReranker`. `seq` is its number in the log. `names`
    are those that a language model read in it beyond what rules see, each with the words that it stands for.
    """

    id: str
    content: str
    score: float
    tokens: int
    created_at: datetime
    role: str | None
    name: str | None
    session_id: str | None
    kind: str
    trust: str
    importance: float
    metadata: Mapping[str, Any]
    version: int
    superseded_at: datetime | None
    signals: Mapping[str, float]
    standing: Standing | None = field(repr=False, compare=False, default=None)
    copies: int = 1
    copy_ids: tuple[str, ...] = field(repr=False, default=())
    uses: int = field(repr=False, default=0)
    query_terms: tuple[str, ...] = field(repr=False, default=())
    seq: int = field(repr=False, default=0)
    link_terms: tuple[str, ...] = field(repr=False, default=())
    concepts: tuple[Concept, ...] = field(repr=False, default=())
    shares_session: bool = field(repr=False, default=False)
    names: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def relevance(self) -> float:
        """The score, under the name by which a `MemoryReranker` knows it."""
        return self.score

    @property
    def ranks(self) -> dict[str, int]:
        """Its place among the candidates by each signal that speaks for it. Worked out when asked."""
        return {} if self.standing is None else self.standing.ranks()

    @property
    def why(self) -> str:
        """What brought it, in words: the terms it shares with the question, how close it is, and what else speaks for
        it, each with its place among the candidates."""
        # Worked out when asked: going through the text again costs more than finding it did.
        present = set(terms(own_words(self.name, self.metadata, self.content)))
        reasons: list[str] = []
        ranks = self.ranks
        for name, value in self.signals.items():
            place = f", no. {ranks[name]}" if name in ranks else ""
            if name == "words":
                reasons.append(f"words {value:.2f}{place} ({', '.join(_shared(self.query_terms, present))})")
            elif name == "synonyms":
                if found := self._in_other_words(present):
                    reasons.append(f"{', '.join(found)}{place}")
            elif name == "names":
                if read := self._read_as(self.query_terms):
                    reasons.append(f"{', '.join(read)}{place}")
            elif name == "meaning":
                reasons.append(f"meaning {value:.2f}{place}")
            elif name == "links":
                reasons.append(self._tie(present) + place)
            elif name in _REASONS:
                reasons.append(_REASONS[name] + place)
        if self.copies > 1:
            reasons.append(f"said {self.copies} times")
        return "; ".join(reasons)

    def _tie(self, present: set[str]) -> str:
        """What it has in common with others that were found."""
        marks = {mark: name for mark in entity_marks(self.content, self.metadata) if (name := entity_name(mark))}
        shared = _shared(tuple(term for term in self.link_terms if term not in marks), present)
        shared += [marks[mark] for mark in self.link_terms if mark in marks]
        shared += self._read_as(self.link_terms)
        if shared:
            return f"shares {', '.join(shared)} with other hits"
        if self.shares_session:
            return "of one session with other hits"
        return f"said by {self.name}, who said other hits" if self.name else "tied to other hits"

    def _read_as(self, wanted: Sequence[str]) -> list[str]:
        """Which names of these terms and marks a model read in it, and in which words."""
        return [
            name if name.casefold() == said.casefold() else f"{name} (as the model reads {said!r})"
            for name, said in self.names.items()
            if not {entity_mark(name), *terms(name)}.isdisjoint(wanted)
        ]

    def _in_other_words(self, present: set[str]) -> list[str]:
        """Which words stand there for which of the question's."""
        return [
            f"{other.word} for {concept.word}"
            for concept in self.concepts
            for other in concept.others
            if present.issuperset(other.terms) and not present.issuperset(concept.terms)
        ]


# What a signal means to a reader. Those that say nothing about the question are not named.
_REASONS = {
    "context": "the turns around it",
    "speaker": "said by whom the question names",
    "role": "said in the role that the question means",
    "time": "of the time that the question names",
    "dated": "names a time",
    "answer": "names what is asked for",
    "order": "in the order that is asked for",
    "phrase": "holds the quoted words",
    "reranked": "the reranker's choice",
}


def _shared(wanted: tuple[str, ...], present: set[str]) -> list[str]:
    shared = [term for term in wanted if term in present]
    # A character that is part of a shared pair says nothing more.
    return [term for term in shared if len(term) > 1 or not any(term in other for other in shared if other != term)]


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A summary that stands, or stood, for a stretch of dialogue, and how faithful it is to it.

    `faithful` is what the fidelity gate said: only then did it take the places of its sources. `superseded_at` is
    when it was withdrawn, None while it stands.
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


def record_as_task(record: Record) -> Task:
    """A record as the task it was, or, of what was no task, as one: its kind is the action, its text a parameter.

    It shares nothing with the record.
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
    """A record of kind `fact` as the fact it holds."""
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
