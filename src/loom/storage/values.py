"""The records that cross the storage contract, and the constants and rules that every backend shares.

A record is immutable. Its later changes (a newer version, its place in the tiers, its vector) are stored separately.
`loom.storage.contract` has these names too, with the protocols of a backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn, Self

import numpy as np
import numpy.typing as npt

from loom.errors import Closed, Conflict, CorruptStore, ForgetPending, InvalidInput, StoreError, UnknownFilter
from loom.protocol import as_plain, checked_time, closest, from_plain

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
    "MERGE",
    "RESTORE",
    "RETAIN",
    "STANDING",
    "TIERS",
    "TRUSTS",
    "UNCONFIRMED",
    "WINDOW",
    "Access",
    "ArchiveStats",
    "AtMost",
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
    "LeaseLost",
    "Match",
    "Origin",
    "Page",
    "Progress",
    "Record",
    "Resident",
    "Retention",
    "Usage",
    "Vector",
    "Written",
    "check_limit",
    "concerns_everything",
    "fit_window",
    "pass_on_general",
]

TIERS = ("l1", "l2", "l3", "l4")
"""The tiers, nearest the prompt first."""

TRUSTS = ("user", "agent", "tool", "web", "unknown")
"""The possible origins of a text."""

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""The largest text of one record, in UTF-8 bytes."""

WINDOW = "l1"
"""The tier that is a window over the newest records."""

FOCUS = "focus"
"""The place for records that were promoted into a node's window, in addition to the tiers. Their sizes there are
counted before those of the newest records."""

STANDING = "standing"
"""The place for the standing instructions of a node in force, in addition to the tiers."""

UNCONFIRMED = "unconfirmed"
"""The place for imported messages in the user's words whose instructions are not confirmed, in addition to the
tiers."""

LAYOUTS = "layout"
"""The scope of entries about a session's last prompt. They are removed when a record of the session is forgotten."""

HEARD = "heard"
"""The place for records that this node has too, but that another node of the namespace wrote first, in addition to
the tiers. Their size there is their size in this node's window; with size 0, they are not in the window."""

EMBED = "embed"
"""The kind of job that embeds a record."""

COUNT = "count"
"""The kind of job for a record whose tokens could not be counted."""

COMPACT = "compact"
"""The kind of job for a stretch of records, named by its first, that could not be summarised."""

MERGE = "merge"
"""The kind of job for a fact that could not be merged with equivalent facts."""

DERIVE = "derive"
"""The kind of job that derives records again, after a record that they shared as a source was forgotten."""

RESTORE = "restore"
"""The kind of job that returns records to their tiers after the record that replaced them was forgotten."""

RETAIN = "retain"
"""The kind of job for a record that could not be forgotten although the retention rule no longer keeps it."""

MAX_ATTEMPTS = 5
"""A job that failed this many times is not tried again and is reported as failed."""

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The place of a memory in the three dimensions: its subject, state or event, type or instance."""

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


class AtMost(int):
    """An upper bound for a number of tokens that is not counted yet. Budgets use the bound."""


class Draft(NamedTuple):
    """A record before it is written. (A named tuple, which takes a third of the time to make, once for every write.)

    With the tier `l1`, it enters its node's window of recent records, with the size `window_tokens` if a stand-in
    replaces it there. `named` says that the caller chose the id, so the id may exist already; `revises` then allows a
    new version of the same kind instead of an error for other content. Another importance makes a new version too; if
    it is `lasting`, the new version is at least as important as the old one. `sources` are the ids from which it was
    derived: forgetting one of them forgets it too. A draft with `drawn` has no content beyond that of its sources;
    with `replaces`, it takes the place of all of them in a tier. If `tokens` is `AtMost` a number, the store counts
    them later, with the counter named `counter` (`Store.count_with`).
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
    """One version of one memory, exactly as it was written. (A named tuple, since reads make many of them and it
    takes half the time.)

    `superseded_at` is the time at which a newer version of the same id replaced it; None while it is current.
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
        """This record as plain JSON values; the inverse of `from_dict`."""
        return as_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """Create a record from the output of `to_dict`."""
        return from_plain(cls, data)


class Written(NamedTuple):
    """The result of writing a draft. `created` is False if the same content was present.

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
    """Selects records. Every field narrows the selection; None means any.

    `since` is inclusive and `until` exclusive, both on `created_at`. A time is an aware datetime, or a text in ISO
    8601 with an offset. `as_of` selects the versions that were valid at a moment, `known_at` those that had been
    committed by then. Without them, only the current version of each id is selected, unless `history` is True.
    `derived` selects derived records (facts, summaries), or all others. `where` compares metadata: a value must be
    equal, or be in the stored list; a list of values means any of them.

    `tier`, `trust`, `subject`, `flow` and `layer` take the names that loom defines, in upper or lower case; another
    name raises `InvalidInput` with the choices. A `kind` or `role` may also be the caller's own, which is compared
    exactly; the case of loom's own names does not matter.
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
        for name in _TEXT_FILTERS:
            _check_texts(name, getattr(self, name))
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool | None):
                raise InvalidInput(f"{name} must be True or False, not {getattr(self, name)!r}")
        if not isinstance(self.where, Mapping | None):
            raise InvalidInput(f"where must map metadata names to values, not {type(self.where).__name__}")
        least = self.min_importance
        if least is not None and (
            isinstance(least, bool) or not isinstance(least, int | float) or not 0.0 <= least <= 1.0
        ):
            raise InvalidInput(f"min_importance must be a number from 0 to 1, not {least!r}")
        for name, checked in _CHECKED.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, checked(value))
        if self.since is not None and self.until is not None and self.since > self.until:
            raise InvalidInput(f"since ({self.since}) is after until ({self.until}), so nothing can match")

    @classmethod
    def of(cls, verb: str = "Filter.of", /, **given: Any) -> Self:
        """Create a filter from the keyword arguments of `verb`. An unknown key raises an error."""
        for name in given:
            if name not in _FILTERS:
                raise UnknownFilter(
                    f"{verb}() has no filter {name!r}; {closest(name, _FILTERS)}the filters are "
                    f"{', '.join(sorted(_FILTERS))} (metadata goes into where={{...}})"
                )
        return cls(**given)

    @property
    def narrows(self) -> bool:
        """Whether the filter differs from the default one, with or without derived records."""
        return self not in _EVERYTHING


_FILTER_CHOICES: Mapping[str, tuple[str, ...]] = {"tier": TIERS, "trust": TRUSTS, **_DIMENSION_CHOICES}
# Choices to which callers may add their own. Those of loom are in lower case.
_OPEN_CHOICES: Mapping[str, frozenset[str]] = {
    "kind": frozenset(
        ("task", "context", "fact", "summary", "message", "thought", "tool_call", "tool_result", "plan", "names")
    ),
    "role": frozenset(("user", "assistant", "system", "developer", "tool", "function")),
}


def _known_names(name: str, value: object, choices: tuple[str, ...]) -> str | tuple[str, ...]:
    """`value`, one name or several, as spelled in `choices`."""
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


_TEXT_FILTERS = ("ids", "node", "session_id", "kind", "role", "name")
_FLAGS = ("pinned", "derived", "history")


def _check_texts(name: str, value: object) -> None:
    if value is None or isinstance(value, str):
        return
    for one in value if isinstance(value, Collection) else (value,):
        if not isinstance(one, str):
            raise InvalidInput(f"a filter on {name} takes a text or several, not {one!r}")


def _in_any_case(value: str | Collection[str], ours: frozenset[str]) -> Any:
    """`value`; if it is one of `ours` in another case, also that name."""
    if isinstance(value, str):
        folded = value.casefold()
        return value if folded not in ours or folded == value else (value, folded)
    added = {one.casefold() for one in value} & ours - {*value}
    return (*value, *sorted(added)) if added else value


# The fields whose values are checked and stored in one form.
_CHECKED: Mapping[str, Callable[[Any], Any]] = {
    **{name: partial(_known_names, name, choices=choices) for name, choices in _FILTER_CHOICES.items()},
    **{name: partial(_in_any_case, ours=ours) for name, ours in _OPEN_CHOICES.items()},
    **{name: partial(checked_time, name=name) for name in ("since", "until", "as_of", "known_at")},
}
_EVERYTHING = (Filter(), Filter(derived=False))
_FILTERS = frozenset(entry.name for entry in fields(Filter))


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing. Iteration and `len` are over its records. Pass `next` as `after` for the following page;
    it is None at the end."""

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
    """The newest state of a changed key. `entry` is None if `writer` deleted it."""

    seq: int
    key: str
    version: int
    writer: str
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Job:
    """Background work that survives a crash. `record` is the sequence number of its record, or 0.

    `data` has the sequence numbers of further records; `error` is the kind of error of the last attempt.
    """

    seq: int
    kind: str
    record: int
    data: tuple[int, ...]
    attempts: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """One event of the log. `kind` is record, supersede, enter, leave, entry, vector, forget or pin."""

    seq: int
    kind: str
    record: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """The uses of a record: their count and the times of the last two."""

    count: int
    last_at: datetime
    previous_at: datetime | None


class Usage(NamedTuple):
    """The items and tokens of a tier of a node, and its hits and misses."""

    items: int = 0
    tokens: int = 0
    hits: int = 0
    misses: int = 0


class Resident(NamedTuple):
    """A record in a tier, and its uses. Times are seconds since 1970.

    `entered` is the sequence number at which it entered, which serves as a clock. `last_at` and `previous_at` are its
    two last references, of which the writing is the first; `previous_at` is None if there is only one. `relevance` (0
    to 1) is its closeness to the present work, None if unknown.
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
    """The work that a flush left undone. Empty means that everything committed before it is processed.

    `waiting` counts jobs that this process cannot do, by kind (it has no embedder, say);
    `failed` counts jobs that were given up, by kind, and `set_aside` names the records of the first of them.
    `errors` names the work that failed in this process and will be retried (for example because a language model is
    down).
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
    """Counts of the rows that `forget` removed, by table.

    No reader finds them any more. `remains` names the places where a server keeps copies for a while, and until when.
    """

    ids: tuple[str, ...]
    records: int = 0
    derived: int = 0
    vectors: int = 0
    jobs: int = 0
    accesses: int = 0
    moves: int = 0
    segments: int = 0
    remains: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.records > 0


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of `check`. `problems` remain; `repaired` ones were corrected from the records.

    `set_aside` names records that background work gave up. They are stored as written; this is not damage.
    """

    records: int
    problems: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


class ArchiveStats(NamedTuple):
    """The content of the archive: records, blocks, and bytes before and after compression (including
    dictionaries)."""

    records: int = 0
    blocks: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


@dataclass(frozen=True, slots=True)
class Retention:
    """A rule for forgetting records automatically, oldest first; no limit by default. Pinned records stay.

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
    """The progress of work that follows the log: the last record processed, and the last sequence number."""

    done: int
    last: int


class Origin(NamedTuple):
    """The database from which rows are read, and the numbers in them. Times are microseconds since 1970.

    `position` is the last sequence number in use. `namespaces` has the names by number, `spaces` the names and
    dimensions by number, and `active` the space of each namespace that has one. If each namespace has its own
    sequence numbers, `zero` is the number before the first one, and the rows of `copying` count from it.
    """

    store: str
    created_at: int
    position: int
    committed_at: int
    namespaces: dict[int, str]
    last_namespace: int
    spaces: dict[int, tuple[str, int]]
    active: dict[int, int]
    zero: int = 0


class LeaseLost(Conflict):
    """Another process took over the background work; the current piece is discarded."""


def concerns_everything(error: Exception) -> bool:
    """Whether an error concerns the store or the lease, rather than the records of one piece of work."""
    about_the_store = isinstance(error, StoreError) and not isinstance(error, CorruptStore)
    return about_the_store or isinstance(error, LeaseLost | Closed | ForgetPending)


def pass_on_general(error: Exception) -> None:
    """Raise an error again if it concerns the store or the lease, rather than the records of one piece of work."""
    if concerns_everything(error):
        raise error


def fit_window(
    rows: Iterable[tuple[int, int, int | None]], budget: float, back: Mapping[int, int]
) -> list[tuple[int, int]]:
    """The records that fit into a window: the sequence number and the size of each, newest first.

    `rows` are the records that may be in it, newest first: the sequence number, the tokens, and the size of the
    stand-in with which the record was written. `back` has the sizes of promoted records, which get room first.
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
    """Raise `InvalidInput` unless a limit is a whole number from 1 to 2,147,483,647."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit < 2**31:
        raise InvalidInput(f"limit is {limit!r}; it must be a whole number from 1 to {2**31 - 1:,}")
