"""The storage contract: the records that cross it and the protocols, by role, that every backend fulfils.

A store is bound to one namespace of one database; nothing crosses a namespace. A record is immutable.
What changes about it (a newer version, its place in the tiers, its vector) is written beside it.
Everything that is written takes a number from one sequence that only grows, so `changes(since)` is the
whole story, in order. Nothing here knows SQLite; `loom.storage.conformance` is the suite to inherit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import IntFlag
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, Self

import numpy as np
import numpy.typing as npt

from loom.errors import (
    Closed,
    Conflict,
    CorruptStore,
    ForgetPending,
    InvalidInput,
    ReadOnly,
    StoreError,
    UnknownFilter,
)

__all__ = [
    "COMPACT",
    "COUNT",
    "DERIVE",
    "EMBED",
    "FOCUS",
    "HEARD",
    "LAYOUTS",
    "MAX_ATTEMPTS",
    "MAX_TEXT_BYTES",
    "RESTORE",
    "RETAIN",
    "TIERS",
    "TRUSTS",
    "WINDOW",
    "Access",
    "Administration",
    "ArchiveStats",
    "Background",
    "BlobWrites",
    "Blobs",
    "Candidates",
    "Change",
    "CheckReport",
    "Chore",
    "Decide",
    "Dimensions",
    "Draft",
    "Embed",
    "Entries",
    "Entry",
    "EntryChange",
    "EntryWrites",
    "Filter",
    "FlushReport",
    "ForgetReceipt",
    "Job",
    "JobWrites",
    "Jobs",
    "LeaseLost",
    "Match",
    "Nominated",
    "Page",
    "Probe",
    "Progress",
    "Publish",
    "Reads",
    "Record",
    "RecordWrites",
    "Records",
    "Residency",
    "ResidencyWrites",
    "Resident",
    "Retention",
    "Searches",
    "Store",
    "Transaction",
    "Usage",
    "Uses",
    "Vector",
    "Written",
    "check_limit",
    "concerns_everything",
    "fit_window",
]

TIERS = ("l1", "l2", "l3", "l4")
"""The tiers, nearest the prompt first."""

TRUSTS = ("user", "agent", "tool", "web", "unknown")
"""Where a text may come from."""

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""The largest text of one record, in UTF-8 bytes."""

WINDOW = "l1"
"""The tier that is a window over the newest records."""

FOCUS = "focus"
"""The place, beside the tiers, for records that were brought back into a node's window. Their sizes there are counted
before those of the newest records."""

LAYOUTS = "layout"
"""The scope of entries about a session's last prompt. They go when a record of the session is forgotten."""

HEARD = "heard"
"""The place, beside the tiers, for records that another node of the namespace wrote before this one: they are its
own too. Their size there is what they take in its window; 0 keeps them out of that."""

EMBED = "embed"
"""The kind of job that embeds a record."""

COUNT = "count"
"""The kind of job that says that the tokens of a record could not be counted."""

COMPACT = "compact"
"""The kind of job that says that a stretch of records, named by its first, could not be summarised."""

DERIVE = "derive"
"""The kind of job that derives again from records what was derived from them and from a record that is forgotten."""

RESTORE = "restore"
"""The kind of job that gives records their places back after the record that stood for them is forgotten."""

RETAIN = "retain"
"""The kind of job that says that a record could not be forgotten although the retention rule no longer keeps it."""

MAX_ATTEMPTS = 5
"""After this many failures a job is left alone and reported as failed."""

Vector = npt.NDArray[np.float32]


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

    `since` is inclusive and `until` exclusive, both on `created_at`. `as_of` asks what was valid at a
    moment, `known_at` what had been committed by then. Without them, only the current version of each id
    is meant, unless `history` is True. `derived` asks for what was derived from other records (facts,
    summaries), or for what was not. `where` compares metadata: a value must be equal, or be in the stored
    list; a list of values means any of them.

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
        if isinstance(self.since, datetime) and isinstance(self.until, datetime):
            _check_range(self.since, self.until)

    @classmethod
    def of(cls, **given: Any) -> Self:
        """A filter from keyword arguments; a key that does not exist is an error, never ignored."""
        if unknown := given.keys() - _FILTERS:
            raise UnknownFilter(
                f"unknown filter {', '.join(map(repr, sorted(unknown)))}; the filters are "
                f"{', '.join(sorted(_FILTERS))} (metadata goes into where={{...}})"
            )
        return cls(**given)

    @property
    def narrows(self) -> bool:
        """Whether anything is asked for beyond the current version of everything, derived or not."""
        return self not in _EVERYTHING


_FILTER_CHOICES: Mapping[str, tuple[str, ...]] = {"tier": TIERS, "trust": TRUSTS, **_DIMENSION_CHOICES}
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


def _check_range(since: datetime, until: datetime) -> None:
    if (since.tzinfo is None) == (until.tzinfo is None) and since > until:
        raise InvalidInput(f"since ({since}) is after until ({until}); nothing can be between them")


_EVERYTHING = (Filter(), Filter(derived=False))
_FILTERS = frozenset(entry.name for entry in fields(Filter))


@dataclass(frozen=True, slots=True)
class Page:
    """A slice of a listing. Pass `next` as `after` for the following one; None at the end."""

    records: tuple[Record, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class Match:
    """A record nominated by an index, with that index's own score (higher is better)."""

    seq: int
    score: float


@dataclass(frozen=True, slots=True)
class Probe:
    """What is asked of the indexes: words with their weights, other words for them, marks (speakers, times), and a
    vector.

    A mark's weight is what it counts for in nominating. The best `seeds` are looked at in their conversation,
    `reach` records before and after each, and for the terms that tie them to others, at most `links`.
    """

    words: Mapping[str, float]
    marks: Mapping[str, float] = field(default_factory=dict)
    vector: Vector | None = None
    synonyms: Mapping[str, float] = field(default_factory=dict)
    seeds: int = 32
    reach: int = 0
    links: int = 0


class Nominated(IntFlag):
    """What brought a candidate: each may bring what none of the others found."""

    WORDS = 1
    MEANING = 2
    CONTEXT = 4
    LINKS = 8
    NAMES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What the indexes nominate, with everything that is known about it, in columns; rows are terms.

    `keys` are ascending numbers of records. A record with no bit in `nominated` is only the context of others.
    `words` and `marks` hold what each term adds to a record's score, `weights` what a word adds to a record of
    average length that holds it once; `frequencies` tell in how many records of the store each word stands, `spread`
    the same for each mark. `synonyms` and `synonym_weights` are like `words` and `weights`, at full weight, for the
    terms of other words that some record holds. `meaning` is the cosine, NaN where there is no vector. `links` is
    like `words`, for terms that the best records have in common with others.
    `following` is the place of the next record of the same conversation, -1 where it is not here, and `closeness`
    (0 to 1) says how much that one has to do with this. `sessions` and `speakers` number the sessions and speakers
    that several of these are of, -1 for a record that has none or shares it with no other. Times are microseconds
    since 1970. `excluded` is what the words found and no filter but the one for derived and older versions left
    out, with its score, best first. `named` is like `words`, for the names that a model read in a record, None where
    it read none; in `links` they count too. `names` are these, by record, each with the words that it stands for.
    """

    keys: npt.NDArray[np.int64]
    nominated: npt.NDArray[np.uint8]
    words: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    frequencies: npt.NDArray[np.intp]
    marks: npt.NDArray[np.float64]
    spread: npt.NDArray[np.intp]
    synonym_terms: tuple[str, ...]
    synonyms: npt.NDArray[np.float64]
    synonym_weights: npt.NDArray[np.float64]
    meaning: npt.NDArray[np.float64]
    link_terms: tuple[str, ...]
    links: npt.NDArray[np.float64]
    following: npt.NDArray[np.intp]
    closeness: npt.NDArray[np.float64]
    sessions: npt.NDArray[np.intp]
    speakers: npt.NDArray[np.intp]
    created_at: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float64]
    excluded: Mapping[int, float] = field(default_factory=dict)
    named: npt.NDArray[np.float64] | None = None
    names: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


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


class ArchiveStats(NamedTuple):
    """What the archive holds: records, blocks, and bytes before and after compression (dictionaries included)."""

    records: int = 0
    blocks: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


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


class Progress(NamedTuple):
    """How far a piece of work that follows the log has come: the last record it has done, and the last number."""

    done: int
    last: int


class LeaseLost(Conflict):
    """Another process took over the background work; the piece under way here is dropped."""


def concerns_everything(error: Exception) -> bool:
    """Whether an error is about the store or the lease, and not about the records of one piece of work."""
    about_the_store = isinstance(error, StoreError) and not isinstance(error, CorruptStore)
    return about_the_store or isinstance(error, LeaseLost | Closed | ForgetPending)


def fit_window(
    rows: Iterable[tuple[int, int, int | None]], budget: float, back: Mapping[int, int]
) -> list[tuple[int, int]]:
    """What is in a window of a budget: number and size of each record, newest first.

    `rows` are the records that may be in it, newest first: number, tokens, and the size of the stand-in it was
    written with. `back` are the sizes of those that were brought back into it, which have their room first.
    """
    left = budget - sum(back.values())
    found: list[tuple[int, int]] = []
    for seq, tokens, shorter in rows:
        if seq in back:
            continue
        size = tokens if tokens <= budget or shorter is None else shorter
        if size > budget:
            continue
        if size > left:
            break
        left -= size
        found.append((seq, size))
    return sorted([*found, *back.items()], reverse=True) if back else found


def check_limit(limit: int) -> None:
    """Raise `InvalidInput` unless a limit is a whole number of 1 or more."""
    if not isinstance(limit, int) or not 1 <= limit < 2**31:
        raise InvalidInput(f"limit is {limit!r}; it must be a whole number of 1 or more")


Decide = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Gets the stored settings and returns those that hold."""

Embed = Callable[[Sequence[str]], npt.NDArray[Any]]
"""Embeds texts: a row of numbers for each."""


# -- reading ---------------------------------------------------------------------------------------------------------
#
# What is read is the same on a store and in a transaction. On a store each call reads the newest committed state, or
# that of the `reading` block around it; in a transaction it also sees the writes made before it. A method with a body
# follows from the others, and a backend has it by inheriting the protocol.


class _Reading(Protocol):
    def reading(self) -> AbstractContextManager[None]:
        """A block in which all that this thread reads is of one moment. What it writes there itself, it sees."""


class Records(_Reading, Protocol):
    """What was written, the edges between records, their vectors, and the settings that all processes share."""

    def get(self, id: str) -> Record | None:
        """The newest version under an id, or None."""

    def records(self, seqs: Iterable[int]) -> dict[int, Record]:
        """Records by their numbers; those that do not exist are missing. A damaged one raises `CorruptStore`."""

    def readable(self, seqs: Iterable[int]) -> tuple[dict[int, Record], dict[int, str]]:
        """Records by their numbers, and the names of the errors of those that are damaged."""
        wanted = [*seqs]
        try:
            return self.records(wanted), {}
        except CorruptStore:
            if len(wanted) == 1:
                return {}, {wanted[0]: CorruptStore.__name__}
        middle = len(wanted) // 2
        (records, bad), (more, worse) = self.readable(wanted[:middle]), self.readable(wanted[middle:])
        return records | more, bad | worse

    def scan(self, wanted: Filter, *, limit: int = 100, after: int | None = None, newest_first: bool = True) -> Page:
        """A page of the records that a filter admits, in the order in which they were written."""

    def numbers(self, wanted: Filter, limit: int, after: int = 0) -> list[int]:
        """The sequence numbers of the next records that a filter admits, oldest first, damaged ones too."""

    def count(self, wanted: Filter) -> int:
        """The number of records that a filter admits."""

    def history(self, id: str) -> list[Record]:
        """Every version under an id, oldest first."""
        wanted = Filter(ids=[id], history=True)
        return [*self.scan(wanted, limit=2**31 - 1, newest_first=False).records]

    def pinned(self, id: str) -> bool:
        """Whether an id is kept from retention."""
        return self.count(Filter(ids=[id], pinned=True, history=True)) > 0

    def neighbours(self, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ids that a record was derived from, and the ids that were derived from it."""

    def sources(self, id: str) -> list[Record]:
        """The newest versions of what a record was made from, in the order of writing."""
        found = (self.get(source) for source in self.neighbours(id)[0])
        return sorted((record for record in found if record is not None), key=lambda record: record.seq)

    def draws_on(self, derived: str, source: str) -> bool:
        """Whether a record was made from another one, among others."""

    def is_drawn(self, record: int, replacing: bool = False) -> bool:
        """Whether a record was derived from others, and (with `replacing`) made to stand for them in a tier."""

    def replaced(self, seqs: Iterable[int]) -> set[int]:
        """Those of these records that a derived record stands for in a tier, or stood for until that was undone."""

    def following(self, record: int, limit: int) -> list[int]:
        """The records that were written next in the session of one, the nearest first."""

    def vectors(self, records: Iterable[int]) -> dict[int, Vector]:
        """The embeddings of records in the space in use; those that have none yet are missing."""

    def changes(self, since: int, limit: int = 1000) -> list[Change]:
        """What happened after a sequence number, in order.

        Numbers become visible in their order: once a reader has seen one, none below it appears later.
        """

    def progress(self, name: str) -> Progress:
        """How far a piece of work that follows the log has come."""

    def settings(self, node: str = "") -> dict[str, Any]:
        """The stored settings of a node (the empty node: of the whole namespace)."""

    def nodes(self) -> list[str]:
        """The nodes that have settled their settings in this namespace."""

    @property
    def space(self) -> tuple[str, int] | None:
        """Name and dimensions of the embedding space in use, if there is one."""

    @property
    def retention(self) -> Retention | None:
        """The stated rule for what may be forgotten by itself."""
        rule = self.settings().get("retention")
        return None if rule is None else Retention(**rule)

    def stats(self) -> dict[str, int]:
        """Counts and sizes, as they are stored now."""


class Residency(_Reading, Protocol):
    """Where records are, at what size, and how they were used.

    The window (`l1`) is not stored: it is the newest records of a node, as many as fit its budget, read each time.
    """

    def window(self, node: str) -> list[tuple[int, int]]:
        """Number and tokens of each record in the node's window, newest first.

        Records that were brought back into it (`FOCUS`) have their room first. A record larger than the whole budget
        is passed over, unless it was written with a stand-in's size.
        """

    def sizes(self, node: str, tier: str, among: Iterable[int] | None = None) -> dict[int, int]:
        """The sizes of the records in a tier other than the window, oldest arrival first; of all, or of some."""

    def resides(self, record: int, tier: str, node: str) -> bool:
        """Whether a record is in a tier other than the window."""
        return bool(self.sizes(node, tier, [record]))

    def tiers(self, record: int, node: str) -> tuple[str, ...]:
        """The tiers of a node that hold a record, nearest the prompt first."""
        with self.reading():
            recent = (WINDOW,) if any(seq == record for seq, _ in self.window(node)) else ()
            return recent + tuple(tier for tier in TIERS if tier != WINDOW and self.resides(record, tier, node))

    def residents(self, node: str, tier: str) -> list[Resident]:
        """The records in a tier other than the window, with their uses, oldest arrival first."""

    def as_residents(self, records: Sequence[int], node: str) -> list[Resident]:
        """Records wherever they are, as if they had just entered a tier: what they measure, and how they were used.

        Those that are gone, or have a newer version, are missing.
        """

    def absent(self, records: Iterable[int], tier: str, node: str) -> list[tuple[int, float, str]]:
        """Number, importance and kind of those records that are not in a tier other than the window."""

    def totals(self, node: str) -> dict[str, Usage]:
        """What each tier of a node other than the window holds; a tier that was never used is missing."""

    def usage(self, node: str) -> dict[str, Usage]:
        """What each tier of a node holds, the window too; another tier that was never used is missing."""
        with self.reading():
            recent, found = self.window(node), self.totals(node)
        held = Usage(len(recent), sum(tokens for _, tokens in recent), *found.pop(WINDOW, Usage())[2:])
        return {WINDOW: held, **found}

    def original_tokens(self, node: str, tier: str) -> int:
        """The tokens of the records behind a tier other than the window, whatever stands for them there."""

    def left_within(self, records: Sequence[int], tier: str, node: str, reason: str, numbers: int) -> set[int]:
        """Which of the records have left a tier for this reason within the last numbers of the sequence."""

    def accesses(self, records: Iterable[int], node: str) -> dict[int, Access]:
        """How often and when records were used by a node; those never used are missing."""

    def uses(self, record: int, node: str) -> int:
        """How often a node used a record."""
        found = self.accesses([record], node)
        return found[record].count if record in found else 0

    def most_uses(self, node: str, tier: str) -> int:
        """The uses of the most used record of a tier other than the window."""


class Entries(_Reading, Protocol):
    """Versioned values under keys, apart by scope and owner."""

    def entry(self, key: str, *, scope: str = "local", owner: str | Sequence[str] = "") -> Entry | None:
        """The newest version of an entry, or None. Of several owners, that of the first who has one."""

    def entries(self, prefix: str = "", *, scope: str = "local", owner: str = "", limit: int = 100) -> list[Entry]:
        """The newest versions of the entries whose keys start with a prefix, last updated first."""

    def entry_history(self, key: str, *, scope: str = "local", owner: str = "") -> list[Entry]:
        """Every version of an entry since it was last deleted, oldest first."""

    def entry_changes(
        self,
        since: int,
        prefix: str = "",
        *,
        scope: str = "local",
        owner: str | Sequence[str] = "",
        limit: int = 1000,
    ) -> list[EntryChange]:
        """The keys that changed after a sequence number, in the order of their last change, as they are now."""

    def last_entry_change(self) -> int:
        """A sequence number that grows with every change to an entry: what `entry_changes` follows on from."""


class Blobs(_Reading, Protocol):
    """Bytes under keys."""

    def blob(self, key: str) -> bytes | None:
        """The bytes under a key, or None; damaged bytes raise `CorruptStore`."""


class Jobs(_Reading, Protocol):
    """The durable queue. A job names records by number and never holds their words."""

    def jobs(self, kind: str | None = None, limit: int = 100, *, failed: bool = True) -> list[Job]:
        """Work that is queued or has failed, oldest first; without `failed`, no work that was given up."""

    def set_aside(self) -> list[str]:
        """Which records background work gave up, and why; the first of them."""


class Reads(Records, Residency, Entries, Blobs, Jobs, Protocol):
    """Everything that a store and a transaction read."""


# -- writing ---------------------------------------------------------------------------------------------------------


class RecordWrites(Protocol):
    """Writing records and what is known about them. A record is never changed."""

    def append(self, drafts: Sequence[Draft]) -> list[Written]:
        """Write records, in order. The same id and content again is a no-op.

        Other content under an id that exists raises `IdConflict`, unless the draft revises it.
        """

    def derive(self, derived: str, sources: Sequence[str]) -> None:
        """Name further sources of a record that was made from others. A source may be stored later."""

    def supersede(self, record: int, by: int, at: datetime) -> bool:
        """Let another record, under any id, take a record's place from a moment on; False where one has it.

        The old record leaves the tiers and stays in the log. Forgetting the successor gives it its place back. A
        record that is its own successor is withdrawn: nothing took its place.
        """

    def put_vectors(self, records: Sequence[int], vectors: Vector) -> None:
        """Keep the embeddings of records in the namespace's space. A record that is gone is passed over."""

    def pin(self, id: str, pinned: bool) -> None:
        """Keep an id from retention, or stop doing so. Raises `NotFound` if there is no such id to keep."""

    def put_settings(self, node: str, values: Mapping[str, Any]) -> None:
        """Write settings of a node (the empty node: of the whole namespace); `revision` grows."""

    def advance(self, name: str, to: int) -> None:
        """Note how far a piece of work that follows the log has come."""


class ResidencyWrites(Protocol):
    """Moving records between tiers. The totals of a tier change with its residents, in the same transaction."""

    def enter(
        self, records: Sequence[int], tier: str, node: str, reason: str = "", tokens: Sequence[int] | None = None
    ) -> int:
        """Let records be in a tier of a node, at their own size or the given one; how many were not there yet."""

    def leave(self, records: Sequence[int], tier: str, node: str, reason: str = "") -> int:
        """Let records leave a tier of a node; the records themselves stay. How many were there."""

    def narrow_window(self, node: str, after: int) -> None:
        """Let the window of a node begin after this record at the earliest."""


class EntryWrites(Protocol):
    """Changing entries by compare-and-set."""

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
    ) -> Entry:
        """Write the next version of a key. With `expected_version` (0: must not exist) only if it matches.

        Without `history` the earlier versions are emptied.
        """

    def delete_entry(
        self,
        key: str,
        *,
        scope: str = "local",
        owner: str = "",
        expected_version: int | None = None,
        writer: str = "",
    ) -> int:
        """Remove every version of a key; only who did it and the number are kept, so that versions grow.

        The version that the deletion has, 0 where there was nothing to delete.
        """


class BlobWrites(Protocol):
    """Changing bytes under keys."""

    def put_blob(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, with a checksum; replaces what was there."""

    def delete_blob(self, key: str) -> bool:
        """Remove the bytes under a key; False where there were none."""


class JobWrites(Protocol):
    """Queueing work and taking it off the queue."""

    def enqueue(self, kind: str, records: Sequence[int] = (0,), data: Sequence[int] = ()) -> int:
        """Put one piece of work about records into the queue: a job for each, with one number, which it returns."""

    def take(self, jobs: Sequence[Job]) -> list[Job]:
        """These jobs, taken off the queue, which they leave if this commits; those no longer there are missing."""

    def retry(self, kind: str, record: int, error: str, *, attempts: int = 1) -> None:
        """Queue work about one record that failed `attempts` times so far, or count the attempts of what is queued.

        `error` is the name of the error's type. A job that has failed `MAX_ATTEMPTS` times is set aside: it is not
        taken up.
        """


class Transaction(Reads, RecordWrites, ResidencyWrites, EntryWrites, BlobWrites, JobWrites, Protocol):
    """Writes that become visible together or not at all. Reads see the writes made before them.

    Transactions of a namespace happen one after another, so what one reads holds until it commits, and its numbers
    are above all that were committed before. `revision` tells one state of the settings from the next.
    """

    @property
    def revision(self) -> str | None: ...


Publish = Callable[[], AbstractContextManager[Transaction]]
"""Opens a transaction for the outcome of background work; raises `LeaseLost` where another process has taken the work
over."""

Chore = Callable[[Publish, bool], bool]
"""A bounded piece of background work of a layer above; whether there may be more. The second argument is True where
a caller waits until all of it is done."""


# -- a store ---------------------------------------------------------------------------------------------------------


class Searches(Protocol):
    """What the indexes find. They follow every commit."""

    def search_text(self, query: Mapping[str, float], limit: int, wanted: Filter) -> list[Match]:
        """The best records by their words (BM25), among those the filter admits."""

    def search_vectors(self, query: Vector, limit: int, wanted: Filter) -> list[Match]:
        """The best records by cosine similarity, among those the filter admits and that are embedded."""

    def candidates(self, probe: Probe, limit: int, vector_limit: int, wanted: Filter) -> Candidates:
        """The best by words, meaning, conversation and shared terms, with all that is known of each.

        Up to `limit` by words and `vector_limit` by meaning; the filter admits all of them.
        """


class Uses(Protocol):
    """Noting what was used. Buffered: no reader waits for a writer. What is not flushed may be lost in a crash."""

    def touch(self, records: Iterable[int], node: str) -> None:
        """Note that records were used by a node."""

    def count_lookup(self, node: str, tier: str, hit: bool) -> None:
        """Note whether a record that was asked for was in a tier."""


class Background(Protocol):
    """Work that nobody waits for. One process at a time does that of a namespace, while it holds the lease.

    A lease runs out by the store's clock: that of the machine for a file, that of the server for a database server. A
    process whose lease was taken over cannot publish what it has begun.
    """

    def count_with(self, counters: Mapping[str, Callable[[str], int]]) -> None:
        """Count the tokens of records that were written without a count, by the name of the counter of each."""

    def use_embedder(self, name: str, dimensions: int, embed: Embed | None, *, reconfigure: bool = False) -> None:
        """Choose the embedding space of this namespace, and how to embed its texts in this process.

        Another space than the stored one raises `SettingsConflict`; with `reconfigure` every record is embedded again
        in the background, and until then found by words. Spaces are never mixed.
        """

    def add_chore(self, owner: object, chore: Chore) -> None:
        """Run a piece of background work of a layer above whenever there is time, until `remove_chores`."""

    def remove_chores(self, *owners: object) -> None:
        """Remove the chores of these owners; waits a bounded time for the piece under way."""

    def wake_worker(self) -> None:
        """Run the chores now."""

    def retry_jobs(self, *kinds: str) -> None:
        """Try work of these kinds that was given up once more: this process may succeed where another failed."""

    def flush(self, timeout_s: float | None = None) -> FlushReport:
        """Wait until everything committed before this call, by any process, is processed.

        Work that this process cannot do (it has no embedder) is reported as waiting, and not waited for.
        """


class Administration(Protocol):
    """What an operator asks of a store."""

    def forget(self, wanted: Filter, timeout_s: float = 10.0) -> ForgetReceipt:
        """Remove records for good, with every version and everything derived from them.

        Returns when no place holds them any more. Raises `ForgetPending` where that takes longer than `timeout_s`;
        the background work then goes on with it.
        """

    def forget_entries(
        self, scope: str, *, owner: str | None = None, key: str | None = None, timeout_s: float = 10.0
    ) -> int:
        """Forget the values of a scope for good, of all owners or of one, with their history; the number of keys.

        What stays of an entry is its key and a version, so that other processes learn of it and versions grow.
        Raises `ForgetPending` if a copy cannot be cleaned away within `timeout_s`; call it again then.
        """

    def namespaces(self) -> list[str]:
        """The names of the namespaces of this database, in the order in which they were made.

        For a store that was opened with `all_namespaces=True`; raises `InvalidInput` for another one.
        """

    def forget_namespace(self, name: str, timeout_s: float = 10.0) -> ForgetReceipt:
        """Remove a namespace for good: its records, entries, blobs, settings and its name.

        For a store that was opened with `all_namespaces=True`. Handles that are open on the namespace can no longer
        write. Raises `NotFound` if there is none of that name, and `ForgetPending` if a copy cannot be cleaned away
        within `timeout_s`; call it again then.
        """

    def apply_retention(self) -> ForgetReceipt:
        """Forget what the stated rule no longer keeps; nothing where there is no rule."""

    def check(self, repair: bool = True) -> CheckReport:
        """Verify checksums, counts and projections; rebuild what can be rebuilt from the records."""

    def backup(self, path: str | Path) -> None:
        """A consistent copy of everything while others go on writing; replaces `path` when complete."""

    def archive(self, before: datetime | None = None) -> ArchiveStats:
        """Compress the words of every record committed before a moment (now); what the archive then holds.

        Reads are unaffected. The store itself shrinks with the next `vacuum`.
        """

    def archived(self) -> ArchiveStats:
        """What the archive holds."""

    def compress_at(self, level: int) -> None:
        """Archive at another level of compression in this process, from 1 (quick) to 22 (small)."""

    def vacuum(self) -> int:
        """Give free space back and merge the indexes; how many bytes were given back."""

    @property
    def lost(self) -> tuple[int, int] | None:
        """The first and last sequence number that are known to have been committed and are gone."""


class Store(Reads, Searches, Uses, Background, Administration, Protocol):
    """One namespace of one database. Thread-safe; many processes may hold the same one.

    Every write takes a number from a sequence that only grows, in the order of commits within the namespace. A read
    never waits for a writer. The checksum of a record covers neither its number nor its commit time, which a database
    may give out itself. No layer above needs a function inside the database. A closed store raises `Closed`.
    """

    @property
    def namespace(self) -> str:
        """The name of the namespace."""

    @property
    def store_id(self) -> str:
        """What tells this database from every other one; a copy of it has the same."""

    @property
    def location(self) -> str:
        """The place of the database, for messages: a path, a URL without its password, or `memory`."""

    @property
    def read_only(self) -> bool:
        """Whether every write is refused."""

    def clock(self) -> datetime:
        """The time by this store's clock."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Write several things at once; committed at the end, or not at all."""

    def close(self) -> None:
        """Give up the store; waits a bounded time for the background work. Safe to call twice."""

    def update_settings(self, node: str, decide: Decide, then: Callable[[Transaction], None] | None = None) -> None:
        """Agree on settings with every other process: `decide` gets the stored ones and returns those that hold.

        They are written in the same transaction, so of two processes that open a new store at once the second gets
        what the first has written. `decide` may be called twice. Where a setting changes, `then` runs in the same
        transaction.
        """
        found = self.settings(node)
        wanted = decide(found)
        if all(found.get(key) == value for key, value in wanted.items()):
            return
        if self.read_only:
            if any(found[key] != value for key, value in wanted.items() if key in found):
                raise ReadOnly("settings cannot be changed in a store that was opened read-only")
            return
        with self.transaction() as transaction:
            stored = transaction.settings(node)
            changed = {key: value for key, value in decide(stored).items() if stored.get(key) != value}
            transaction.put_settings(node, changed)
            if then is not None:
                then(transaction)

    def keep(self, retention: Retention | None) -> None:
        """State the retention rule of this namespace, for every process; None removes it."""
        if retention is not None and not isinstance(retention, Retention):
            raise InvalidInput(f"a retention rule is a Retention record, not {type(retention).__name__}")
        with self.transaction() as transaction:
            transaction.put_settings("", {"retention": None if retention is None else asdict(retention)})
