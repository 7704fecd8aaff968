"""The storage contract: the records that cross it and the protocol that every backend fulfils.

A store is bound to one namespace of one database; nothing crosses a namespace. A record is immutable.
What changes about it (a newer version, its place in the tiers, its vector) is written beside it.
Everything that is written takes a number from one sequence that only grows, so `changes(since)` is the
whole story, in order. Nothing here knows SQLite; `loom.storage.conformance` is the suite to inherit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from loom.errors import InvalidInput, UnknownFilter
from loom.protocol import as_plain, checked_time, closest, from_plain

if TYPE_CHECKING:
    from loom.storage.search_view import SearchView

__all__ = [
    "FOCUS",
    "HEARD",
    "LAYOUTS",
    "MAX_TEXT_BYTES",
    "TIERS",
    "TRUSTS",
    "Access",
    "Change",
    "CheckReport",
    "Dimensions",
    "Draft",
    "Entry",
    "EntryChange",
    "Filter",
    "FlushReport",
    "ForgetReceipt",
    "Job",
    "Lease",
    "Match",
    "Page",
    "Record",
    "Resident",
    "Retention",
    "Store",
    "Transaction",
    "Usage",
    "Vector",
    "Written",
]

TIERS = ("l1", "l2", "l3", "l4")
"""The tiers, nearest the prompt first."""

TRUSTS = ("user", "agent", "tool", "web", "unknown")
"""Where a text may come from."""

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""The largest text of one record, in UTF-8 bytes."""

FOCUS = "focus"
"""The place, beside the tiers, for records that were brought back into a node's window. Their sizes there are counted
before those of the newest records."""

LAYOUTS = "layout"
"""The scope of entries about a session's last prompt. They go when a record of the session is forgotten."""

HEARD = "heard"
"""The place, beside the tiers, for records that another node of the namespace wrote before this one: they are its
own too. Their size there is what they take in its window; 0 keeps them out of that."""

Vector = npt.NDArray[np.float32]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Where a memory stands: whose it is, whether it is a state or an event, a type or an instance."""

    subject: Literal["subject", "world"] = "world"
    flow: Literal["state", "event"] = "event"
    layer: Literal["type", "instance"] = "instance"

    def __post_init__(self) -> None:
        for name, choices in _DIMENSION_CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidInput(
                    f"dimension {name} is {getattr(self, name)!r}; it must be one of {', '.join(choices)}"
                )


_DIMENSION_CHOICES = {
    "subject": ("subject", "world"),
    "flow": ("state", "event"),
    "layer": ("type", "instance"),
}


class Draft(NamedTuple):
    """A record before it is written. (A named tuple: it is made for every write, and costs a third.)

    With the tier `l1` it comes into its node's window of recent records, at `window_tokens` where something
    shorter stands in for it there. `named` says that the caller chose the id, so it may exist already;
    `revises` then allows a new version of the same kind, where other content would be an error. Another importance
    makes a new version too, unless it is `lasting`: then the new version is at least as important as the old one.
    `sources` are the ids it was made from: forgetting one takes it too. One that was `drawn` from them says nothing
    that they do not say, and with `replaces` it stands in a tier for all of them. Negative `tokens` are not counted
    yet, and at most `~tokens`: the store counts them later, with the `counter` of that name (`Store.count_with`).
    """

    id: str
    content: str
    created_at: datetime
    kind: str = "message"
    node: str = "default"
    session_id: str | None = None
    role: str | None = None
    name: str | None = None
    trust: str = "unknown"
    dimensions: Dimensions = Dimensions()
    importance: float = 0.5
    tokens: int = 0
    counter: str = ""
    tier: str | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    data: Any = None
    sources: tuple[str, ...] = ()
    named: bool = True
    revises: bool = False
    window_tokens: int | None = None
    lasting: bool = False
    drawn: bool = False
    replaces: bool = False


class Record(NamedTuple):
    """One version of one memory, exactly as it was written. (A named tuple: an answer makes many, in half the time.)

    `superseded_at` is when a newer version of the same id took its place, None while it is current.
    """

    seq: int
    id: str
    version: int
    content: str
    created_at: datetime
    committed_at: datetime
    kind: str
    node: str
    session_id: str | None
    role: str | None
    name: str | None
    trust: str
    dimensions: Dimensions
    importance: float
    tokens: int
    counter: str
    metadata: Mapping[str, Any]
    data: Any
    superseded_at: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """This record in what JSON knows; `from_dict` makes an equal one of it."""
        return as_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """The record that `to_dict` made `data` of."""
        return from_plain(cls, data)


class Written(NamedTuple):
    """What became of a draft. `created` is False where the same content was there already.

    `node` and `importance` are those of the record, which need not be the draft's.
    """

    seq: int
    id: str
    version: int
    created: bool
    node: str
    importance: float


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records are meant. Every field narrows; None means any.

    `since` is inclusive and `until` exclusive, both on `created_at`. A time is an aware datetime, or a text in ISO
    8601 with an offset. `as_of` asks what was valid at a moment, `known_at` what had been
    committed by then. Without them, only the current version of each id is meant, unless `history` is True.
    `derived` asks for what was derived from other records (facts, summaries), or for what was not. `where` compares
    metadata: a value must be equal, or be in the stored list; a list of values means any of them.

    `tier`, `trust`, `subject`, `flow` and `layer` take our own names, in any case; another name raises
    `InvalidInput` with the choices. A `kind` or `role` may be the caller's own: those of ours are found in any
    case, others as they were written.
    """

    ids: Collection[str] | None = None
    node: str | Collection[str] | None = None
    session_id: str | Collection[str] | None = None
    tier: str | Collection[str] | None = None
    kind: str | Collection[str] | None = None
    role: str | Collection[str] | None = None
    name: str | Collection[str] | None = None
    trust: str | Collection[str] | None = None
    subject: str | None = None
    flow: str | None = None
    layer: str | None = None
    min_importance: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    known_at: datetime | None = None
    pinned: bool | None = None
    derived: bool | None = None
    history: bool = False
    where: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, choices in _FILTER_CHOICES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _known_names(name, value, choices))
        for name, ours in _OPEN_CHOICES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _in_any_case(value, ours))
        least = self.min_importance
        if least is not None and (
            isinstance(least, bool) or not isinstance(least, int | float) or not 0.0 <= least <= 1.0
        ):
            raise InvalidInput(f"min_importance is a number from 0 to 1, not {least!r}")
        for name in _FILTER_TIMES:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, checked_time(value, name))
        if self.since is not None and self.until is not None and self.since > self.until:
            raise InvalidInput(f"since ({self.since}) is after until ({self.until}); nothing can be between them")

    @classmethod
    def of(cls, verb: str = "Filter.of", /, **given: Any) -> Self:
        """A filter from keyword arguments of `verb`; a key that does not exist is an error, never ignored."""
        for name in given:
            if name not in _FILTERS:
                raise UnknownFilter(
                    f"{verb}() has no filter {name!r}; {closest(name, _FILTERS)}the filters are "
                    f"{', '.join(sorted(_FILTERS))} (metadata goes into where={{...}})"
                )
        return cls(**given)

    @property
    def narrows(self) -> bool:
        """Whether anything is asked for beyond the current version of everything, derived or not."""
        return self not in _EVERYTHING


_FILTER_CHOICES: Mapping[str, tuple[str, ...]] = {"tier": TIERS, "trust": TRUSTS, **_DIMENSION_CHOICES}
_FILTER_TIMES = ("since", "until", "as_of", "known_at")
# Names that callers may add to. Ours are written in lower case.
_OPEN_CHOICES: Mapping[str, frozenset[str]] = {
    "kind": frozenset(
        ("task", "context", "fact", "summary", "message", "thought", "tool_call", "tool_result", "plan", "names")
    ),
    "role": frozenset(("user", "assistant", "system", "developer", "tool", "function")),
}


def _known_names(name: str, value: object, choices: tuple[str, ...]) -> str | tuple[str, ...]:
    """`value`, a name or several, as `choices` spells it."""
    if isinstance(value, str):
        folded = str.__str__(value).casefold()
        if folded in choices:
            return folded
    elif isinstance(value, Collection):
        return tuple(
            str(_known_names(name, one, choices)) if isinstance(one, str) else _unknown_name(name, one, choices)
            for one in value
        )
    return _unknown_name(name, value, choices)


def _unknown_name(name: str, value: object, choices: tuple[str, ...]) -> NoReturn:
    raise InvalidInput(f"the filter {name} is {value!r}; it must be one of {', '.join(choices)}, or several of them")


def _in_any_case(value: object, ours: frozenset[str]) -> Any:
    """`value`, and for a name of ours in another case also that name."""
    if isinstance(value, str):
        folded = value.casefold()
        return value if folded not in ours or folded == value else (value, folded)
    if isinstance(value, Collection) and all(isinstance(one, str) for one in value):
        added = {one.casefold() for one in value} & ours - {*value}
        return (*value, *sorted(added)) if added else value
    return value


_EVERYTHING = (Filter(), Filter(derived=False))
_FILTERS = frozenset(entry.name for entry in fields(Filter))


@dataclass(frozen=True, slots=True)
class Page:
    """A slice of a listing: iterating and `len` are over its records. Pass `next` as `after` for the following one;
    None at the end."""

    records: tuple[Record, ...]
    next: int | None

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True)
class Match:
    """A record nominated by an index, with that index's own score (higher is better)."""

    seq: int
    score: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A versioned value under a key, changed by compare-and-set. Versions only grow."""

    key: str
    content: Any
    version: int
    scope: str
    owner: str
    created_by: str
    updated_by: str
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EntryChange:
    """The newest state of a key that changed. `entry` is None where it was deleted, by `writer` as always."""

    seq: int
    key: str
    version: int
    writer: str
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Job:
    """Background work that survives a crash. `record` is the sequence number it is about, or 0.

    `data` are numbers of further records; `error` is the kind of error that the last attempt met.
    """

    seq: int
    kind: str
    record: int
    data: tuple[int, ...]
    attempts: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to do the background work. `number` grows with every new holder and fences its writes."""

    owner: str
    number: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened. `kind` is record, supersede, enter, leave, entry, vector, forget or pin."""

    seq: int
    kind: str
    record: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """How often and when a record was used: the count and the two last times."""

    count: int
    last_at: datetime
    previous_at: datetime | None


class Usage(NamedTuple):
    """What a tier of a node holds, and how often what was asked for was there."""

    items: int = 0
    tokens: int = 0
    hits: int = 0
    misses: int = 0


class Resident(NamedTuple):
    """A record in a tier, and how it was used. Times are seconds since 1970.

    `entered` is the sequence number at which it came in, a clock that never stands still. `last_at` and
    `previous_at` are its two last references, the writing counted as the first; `previous_at` is None where
    there was no other. `relevance` (0 to 1) tells how close it is to the present work, None if unknown.
    """

    record: int
    tokens: int
    importance: float
    entered: int
    written_at: float
    uses: int
    last_at: float
    previous_at: float | None
    relevance: float | None = None


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What is still undone after a flush. Empty means that everything committed before it is processed.

    `waiting` counts jobs that this process cannot do, by kind (it has no embedder, say);
    `failed` counts jobs that were given up, by kind, and `set_aside` names the records of the first of them.
    `errors` says which work failed in this process and is tried again later (a language model that is down, say).
    """

    waiting: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    set_aside: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.waiting and not self.failed and not self.errors


@dataclass(frozen=True, slots=True)
class ForgetReceipt:
    """What `forget` removed, by the place it was removed from."""

    ids: tuple[str, ...]
    records: int = 0
    derived: int = 0
    vectors: int = 0
    jobs: int = 0
    accesses: int = 0
    moves: int = 0
    segments: int = 0

    def __bool__(self) -> bool:
        return self.records > 0


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `check` found. `problems` remain; `repaired` were put right from the records.

    `set_aside` names records that background work gave up. They are stored as written: this is no damage.
    """

    records: int
    problems: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class Retention:
    """What may be forgotten by itself, oldest first; all off by default. Pinned records stay.

    `max_age_days` counts from `created_at`, `max_records` counts current records, and `max_bytes` is the
    size of their texts.
    """

    max_age_days: float | None = None
    max_records: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_age_days", "max_records", "max_bytes"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise InvalidInput(
                    f"retention {name} is {value!r}; it must be a number above 0, or None for no limit"
                )


class Transaction(Protocol):
    """Writes that become visible together or not at all. Reads see the writes made before them.

    `revision` tells one state of the settings from the next, for those who keep what they read of them.
    """

    @property
    def revision(self) -> str | None: ...

    def append(self, drafts: Sequence[Draft]) -> list[Written]: ...

    def derive(self, derived: str, sources: Sequence[str]) -> None: ...

    def draws_on(self, derived: str, source: str) -> bool: ...

    def is_drawn(self, record: int, replacing: bool = False) -> bool: ...

    def supersede(self, record: int, by: int, at: datetime) -> bool: ...

    def progress(self, name: str) -> int: ...

    def advance(self, name: str, to: int) -> None: ...

    def sources(self, id: str) -> list[Record]: ...

    def get(self, id: str) -> Record | None: ...

    def enter(
        self, records: Sequence[int], tier: str, node: str, reason: str = "", tokens: Sequence[int] | None = None
    ) -> int: ...

    def leave(self, records: Sequence[int], tier: str, node: str, reason: str = "") -> int: ...

    def narrow_window(self, node: str, after: int) -> None: ...

    def totals(self, node: str) -> dict[str, Usage]: ...

    def residents(self, node: str, tier: str) -> list[Resident]: ...

    def most_uses(self, node: str, tier: str) -> int: ...

    def as_residents(self, records: Sequence[int], node: str) -> list[Resident]: ...

    def left_within(self, records: Sequence[int], tier: str, node: str, reason: str, numbers: int) -> set[int]: ...

    def arrivals(self, node: str, tier: str) -> list[tuple[int, int]]: ...

    def sizes(self, records: Sequence[int], tier: str, node: str) -> list[tuple[int, int]]: ...

    def window(self, node: str) -> list[tuple[int, int]]: ...

    def vectors(self, records: Sequence[int]) -> dict[int, Vector]: ...

    def settings(self, node: str) -> dict[str, Any]: ...

    def records(self, seqs: Iterable[int]) -> dict[int, Record]: ...

    def put_entry(
        self,
        key: str,
        content: Any,
        *,
        writer: str,
        scope: str = "local",
        owner: str = "",
        expected_version: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        history: bool = True,
    ) -> Entry: ...

    def delete_entry(
        self,
        key: str,
        *,
        scope: str = "local",
        owner: str = "",
        expected_version: int | None = None,
        writer: str = "",
    ) -> int: ...

    def put_blob(self, key: str, data: bytes) -> None: ...

    def delete_blob(self, key: str) -> bool: ...

    def put_vectors(self, records: Sequence[int], vectors: Vector) -> None: ...

    def enqueue(self, kind: str, record: int = 0, data: Sequence[int] = ()) -> int: ...

    def enqueue_each(self, kind: str, records: Sequence[int], data: Sequence[int] = ()) -> int: ...

    def take_jobs(self, kind: str, limit: int) -> list[Job]: ...

    def take(self, jobs: Sequence[Job]) -> list[Job]: ...

    def retry(self, kind: str, record: int, error: str, *, attempts: int = 1) -> None: ...

    def pin(self, id: str, pinned: bool) -> None: ...


class Store(Protocol):
    """One namespace of one database. Thread-safe; many processes may hold the same one."""

    @property
    def namespace(self) -> str: ...

    @property
    def store_id(self) -> str: ...

    @property
    def read_only(self) -> bool: ...

    def reading(self) -> AbstractContextManager[None]: ...

    def transaction(self) -> AbstractContextManager[Transaction]: ...

    def get(self, id: str) -> Record | None: ...

    def records(self, seqs: Iterable[int]) -> dict[int, Record]: ...

    def scan(
        self, wanted: Filter, *, limit: int = 100, after: int | None = None, newest_first: bool = True
    ) -> Page: ...

    def count(self, wanted: Filter) -> int: ...

    def search(self, ask: Callable[[SearchView], Answer]) -> Answer: ...

    def settings(self, node: str = "") -> dict[str, Any]: ...

    def update_settings(
        self,
        node: str,
        decide: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        then: Callable[[Transaction], None] | None = None,
    ) -> None: ...

    def usage(self, node: str) -> dict[str, Usage]: ...

    def original_tokens(self, node: str, tier: str) -> int: ...

    def residents(self, node: str, tier: str) -> list[Resident]: ...

    def resides(self, record: int, tier: str, node: str) -> bool: ...

    def absent(self, records: Iterable[int], tier: str, node: str) -> list[tuple[int, float, str]]: ...

    def window(self, node: str) -> list[tuple[int, int]]: ...

    def following(self, record: int, limit: int) -> list[int]: ...

    def vectors(self, records: Iterable[int]) -> dict[int, Vector]: ...

    def touch(self, records: Iterable[int], node: str) -> None: ...

    def uses(self, record: int, node: str) -> int: ...

    def count_lookup(self, node: str, tier: str, hit: bool) -> None: ...

    def clock(self) -> datetime: ...

    def neighbours(self, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]: ...

    def replaced(self, seqs: Iterable[int]) -> set[int]: ...

    def progress(self, name: str) -> tuple[int, int]: ...

    def jobs(self, kind: str | None = None, limit: int = 100, *, failed: bool = True) -> list[Job]: ...

    def numbers(self, wanted: Filter, limit: int, after: int = 0) -> list[int]: ...

    def readable(self, seqs: Iterable[int]) -> tuple[dict[int, Record], dict[int, str]]: ...

    def count_with(self, counters: Mapping[str, Callable[[str], int]]) -> None: ...

    def wake_worker(self) -> None: ...

    def compress_at(self, level: int) -> None: ...

    def entry(self, key: str, *, scope: str = "local", owner: str | Sequence[str] = "") -> Entry | None: ...

    def entries(
        self, prefix: str = "", *, scope: str = "local", owner: str = "", limit: int = 100
    ) -> list[Entry]: ...

    def entry_history(self, key: str, *, scope: str = "local", owner: str = "") -> list[Entry]: ...

    def entry_changes(
        self,
        since: int,
        prefix: str = "",
        *,
        scope: str = "local",
        owner: str | Sequence[str] = "",
        limit: int = 1000,
    ) -> list[EntryChange]: ...

    def last_entry_change(self) -> int: ...

    def blob(self, key: str) -> bytes | None: ...

    def changes(self, since: int, limit: int = 1000) -> list[Change]: ...

    def forget(self, wanted: Filter) -> ForgetReceipt: ...

    def flush(self, timeout_s: float | None = None) -> FlushReport: ...

    def check(self, repair: bool = True) -> CheckReport: ...

    def backup(self, path: str | Path) -> None: ...

    def close(self) -> None: ...
