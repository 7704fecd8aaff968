"""A second backend of the storage contract, deliberately simple: dicts in memory, no SQL.

Every commit replaces the state of a namespace with a changed copy. A reader takes the current state, so it never
waits, and the state that it read cannot change meanwhile. The code is slow and simple: it shows that the contract is
enough for the layers above, and is the shortest description of a backend's duties.
"""

from __future__ import annotations

import json
import math
import pickle
import threading
import zlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from loom.errors import (
    Closed,
    EmbeddingError,
    IdConflict,
    InvalidInput,
    NotFound,
    SettingsConflict,
    StoreBusy,
    StoreUnavailable,
    VersionConflictError,
    WrongDimension,
)
from loom.index import text_index, vector_index
from loom.index.analysis import embedded_text, index_terms
from loom.index.doc_values import DocValues, of_row
from loom.protocol import Clock, new_id, utc_now
from loom.storage.contract import (
    DERIVE,
    EMBED,
    FOCUS,
    HEARD,
    LAYOUTS,
    MAX_ATTEMPTS,
    RESTORE,
    WINDOW,
    Access,
    ArchiveStats,
    AtMost,
    Change,
    CheckReport,
    Chore,
    Dimensions,
    Draft,
    Embed,
    Entry,
    EntryChange,
    Filter,
    FlushReport,
    ForgetReceipt,
    Job,
    Origin,
    Page,
    Progress,
    Reads,
    Record,
    Resident,
    Rows,
    Store,
    Transaction,
    Usage,
    Vector,
    Written,
    check_limit,
    concerns_everything,
    fit_window,
)
from loom.storage.identity import entry_guard, hash_bits, session_key
from loom.storage.moments import from_micros, to_micros
from loom.storage.search_view import NamesRead, SearchView
from loom.storage.tables import TABLES, Row, entry_values
from loom.text.entities import NAMES, names_in

__all__ = ["PlainDatabase", "PlainStore"]

Answer = TypeVar("Answer")
Count = Callable[[str], int]
_INSTANT = 1  # microsecond


class _Kept(NamedTuple):
    """One version of one memory. What can be changed by a reader is kept as JSON."""

    seq: int
    version: int
    committed_at: int
    created_at: int
    draft: Draft
    metadata: str
    data: str


class _Successor(NamedTuple):
    seq: int
    by: int
    at: int
    committed_at: int


class _Place(NamedTuple):
    tokens: int
    entered: int


class _Move(NamedTuple):
    seq: int
    record: int
    node: str
    tier: str
    entered: bool
    reason: str


class _Value(NamedTuple):
    """One version of an entry; `content` is None where it was deleted or its history was dropped."""

    seq: int
    version: int
    created_by: str
    updated_by: str
    created_at: int
    updated_at: int
    metadata: str
    content: str | None
    deleted: bool


_Key = tuple[str, str, str]  # scope, owner, key


@dataclass
class _State:
    """Everything in a namespace."""

    committed_at: int = 0
    revision: int = 0
    last: int = 0
    kept: dict[int, _Kept] = field(default_factory=dict)
    versions: dict[str, list[int]] = field(default_factory=dict)
    successors: dict[int, _Successor] = field(default_factory=dict)
    derived: dict[int, bool] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    vectors: dict[int, tuple[int, Vector]] = field(default_factory=dict)
    space: tuple[str, int] | None = None
    moves: list[_Move] = field(default_factory=list)
    places: dict[tuple[str, str], dict[int, _Place]] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    entries: dict[_Key, list[_Value]] = field(default_factory=dict)
    blobs: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    jobs: dict[tuple[str, int, int], Job] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    pins: dict[str, int] = field(default_factory=dict)
    forgotten: list[tuple[int, int]] = field(default_factory=list)
    progress: dict[str, int] = field(default_factory=dict)

    def copy(self) -> _State:
        return replace(self, **{one.name: _copied(getattr(self, one.name)) for one in fields(self)})


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(held) for key, held in value.items()}
    return [*value] if isinstance(value, list) else value


class PlainDatabase:
    """Some namespaces, with one sequence of numbers. Stores that are made with the same one share it."""

    def __init__(self, clock: Clock = utc_now) -> None:
        self.id = new_id()
        self.clock = clock
        self.writing = threading.RLock()
        self.seq = 0
        self.states: dict[str, _State] = {}
        self.uses: dict[tuple[str, str, int], Access] = {}
        self.lookups: dict[tuple[str, str, str], tuple[int, int]] = {}
        self.noting = threading.Lock()
        self.working = threading.RLock()


# -- reading -----------------------------------------------------------------------------------------


class _Reads(Reads):
    """The reads of a store and a transaction, from the state of each."""

    database: PlainDatabase
    name: str
    counters: dict[str, Count]

    def state(self) -> _State:
        raise NotImplementedError

    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()

    # records

    def get(self, id: str) -> Record | None:
        versions = self.state().versions.get(id)
        return self._record(versions[-1]) if versions else None

    def _record(self, seq: int) -> Record:
        state = self.state()
        kept, successor = state.kept[seq], state.successors.get(seq)
        draft = kept.draft
        return Record(
            seq,
            draft.id,
            kept.version,
            draft.content,
            from_micros(kept.created_at),
            from_micros(kept.committed_at),
            draft.kind,
            draft.node,
            draft.session_id,
            draft.role,
            draft.name,
            draft.trust,
            draft.dimensions,
            float(draft.importance),
            self._tokens(kept),
            draft.counter,
            json.loads(kept.metadata),
            json.loads(kept.data),
            None if successor is None else from_micros(successor.at),
        )

    def _tokens(self, kept: _Kept) -> int:
        tokens = kept.draft.tokens
        if isinstance(tokens, AtMost):
            return self.counters[kept.draft.counter](kept.draft.content)
        return tokens

    def records(self, seqs: Iterable[int]) -> dict[int, Record]:
        kept = self.state().kept
        return {seq: self._record(seq) for seq in sorted({*seqs}) if seq in kept}

    def scan(self, wanted: Filter, *, limit: int = 100, after: int | None = None, newest_first: bool = True) -> Page:
        check_limit(limit)
        if after is not None and not isinstance(after, int):
            raise InvalidInput(f"after is the `next` of an earlier page, not {after!r}")
        found = self._admitted(wanted)
        if newest_first:
            found.reverse()
        if after is not None:
            found = [seq for seq in found if (seq < after if newest_first else seq > after)]
        return Page(
            tuple(self._record(seq) for seq in found[:limit]), found[limit - 1] if len(found) > limit else None
        )

    def numbers(self, wanted: Filter, limit: int, after: int = 0) -> list[int]:
        return [seq for seq in self._admitted(wanted) if seq > after][:limit]

    def count(self, wanted: Filter) -> int:
        return len(self._admitted(wanted))

    def _admitted(self, wanted: Filter, among: Iterable[int] | None = None) -> list[int]:
        """The records that a filter admits, ascending."""
        admits = self._admits(wanted)
        kept = self.state().kept
        return [seq for seq in sorted(kept if among is None else {*among} & kept.keys()) if admits(kept[seq])]

    def _admits(self, wanted: Filter) -> Callable[[_Kept], bool]:
        state = self.state()
        fields = {
            "session_id": _names(wanted.session_id, "session_id"),
            "kind": _names(wanted.kind, "kind"),
            "role": _names(wanted.role, "role"),
            "name": _names(wanted.name, "name"),
            "trust": _names(wanted.trust, "trust"),
        }
        sides = {name: _names(getattr(wanted, name), name) for name in ("subject", "flow", "layer")}
        ids, nodes, tiers = (
            _names(wanted.ids, "ids"),
            _names(wanted.node, "node"),
            _names(wanted.tier, "tier"),
        )
        moments = {
            name: None if getattr(wanted, name) is None else _moment(getattr(wanted, name), name)
            for name in ("since", "until", "as_of", "known_at")
        }
        for flag in ("pinned", "derived", "history"):
            if not isinstance(getattr(wanted, flag), bool | None):
                raise InvalidInput(f"{flag} must be True or False, not {getattr(wanted, flag)!r}")
        if not isinstance(wanted.where, Mapping | None):
            raise InvalidInput(f"where must map metadata names to values, not {type(wanted.where).__name__}")
        where = {key: _choices(key, value) for key, value in (wanted.where or {}).items()}
        inside = None if tiers is None else self._in_tiers(tiers, nodes)
        heard = set() if nodes is None else {one for node in nodes for one in state.places.get((node, HEARD), ())}

        def current(kept: _Kept) -> bool:
            if moments["as_of"] is not None and kept.created_at > moments["as_of"]:
                return False
            if moments["known_at"] is not None and kept.committed_at > moments["known_at"]:
                return False
            successor = state.successors.get(kept.seq)
            return (
                wanted.history
                or successor is None
                or (moments["as_of"] is not None and successor.at > moments["as_of"])
                or (moments["known_at"] is not None and successor.committed_at > moments["known_at"])
            )

        def admits(kept: _Kept) -> bool:
            draft = kept.draft
            metadata = json.loads(kept.metadata) if where else {}
            return (
                (ids is None or draft.id in ids)
                and (nodes is None or draft.node in nodes or kept.seq in heard)
                and (inside is None or kept.seq in inside)
                and all(choice is None or getattr(draft, name) in choice for name, choice in fields.items())
                and all(choice is None or getattr(draft.dimensions, name) in choice for name, choice in sides.items())
                and (wanted.min_importance is None or draft.importance >= wanted.min_importance)
                and (moments["since"] is None or kept.created_at >= moments["since"])
                and (moments["until"] is None or kept.created_at < moments["until"])
                and (wanted.pinned is None or (draft.id in state.pins) == wanted.pinned)
                and (wanted.derived is None or (kept.seq in state.derived) == wanted.derived)
                and all(key in metadata and _matches(metadata[key], choice) for key, choice in where.items())
                and current(kept)
            )

        return admits

    def _in_tiers(self, tiers: Collection[str], nodes: Collection[str] | None) -> set[int]:
        state = self.state()
        found = {
            record
            for (node, tier), held in state.places.items()
            if tier in tiers and (nodes is None or node in nodes)
            for record in held
        }
        if WINDOW in tiers:
            known = {one.draft.node for one in state.kept.values()} | {node for node, _ in state.places}
            found |= {seq for node in (known if nodes is None else nodes) for seq, _ in self.window(node)}
        return found

    def neighbours(self, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        state = self.state()
        pairs = [(source, one) for source, one in state.edges if source in state.versions and one in state.versions]
        sources = tuple(sorted(source for source, derived in pairs if derived == id))
        return sources, tuple(sorted(derived for source, derived in pairs if source == id))

    def draws_on(self, derived: str, source: str) -> bool:
        return source in self.neighbours(derived)[0]

    def is_drawn(self, record: int, replacing: bool = False) -> bool:
        found = self.state().derived.get(record)
        return found is not None and (found or not replacing)

    def replaced(self, seqs: Iterable[int]) -> set[int]:
        state = self.state()
        standing = {state.kept[seq].draft.id for seq, replaces in state.derived.items() if replaces}
        gone = {source for source, derived in state.edges if derived in standing}
        return {seq for seq in seqs if seq in state.kept and state.kept[seq].draft.id in gone}

    def following(self, record: int, limit: int) -> list[int]:
        kept = self.state().kept
        one = kept.get(record)
        if one is None or one.draft.session_id is None:
            return []
        later = (seq for seq in sorted(kept) if seq > record)
        return [seq for seq in later if kept[seq].draft.session_id == one.draft.session_id][:limit]

    def vectors(self, records: Iterable[int]) -> dict[int, Vector]:
        found = self.state().vectors
        return {record: found[record][1].copy() for record in records if record in found}

    def changes(self, since: int, limit: int = 1000) -> list[Change]:
        check_limit(limit)
        state = self.state()
        found = [Change(one.seq, "record", one.seq, one.draft.id) for one in state.kept.values()]
        found += [Change(one.seq, "supersede", record) for record, one in state.successors.items()]
        found += [Change(one.seq, "enter" if one.entered else "leave", one.record, one.tier) for one in state.moves]
        found += [Change(one.seq, "entry", 0, key) for (_, _, key), held in state.entries.items() for one in held]
        found += [Change(seq, "vector", record) for record, (seq, _) in state.vectors.items()]
        found += [Change(seq, "forget", record) for seq, record in state.forgotten]
        found += [Change(seq, "pin", 0) for seq in state.pins.values()]
        return sorted((one for one in found if one.seq > since), key=lambda one: one.seq)[:limit]

    def progress(self, name: str) -> Progress:
        state = self.state()
        return Progress(state.progress.get(name, 0), state.last)

    def settings(self, node: str = "") -> dict[str, Any]:
        return {key: json.loads(value) for key, value in self.state().settings.get(node, {}).items()}

    def nodes(self) -> list[str]:
        return sorted(node for node in self.state().settings if node)

    @property
    def space(self) -> tuple[str, int] | None:
        return self.state().space

    def stats(self) -> dict[str, int]:
        state = self.state()
        told = [one for one in state.kept.values() if one.seq not in state.derived]
        return {
            "records": len(told),
            "derived": len(state.derived),
            "superseded": len(state.successors),
            "tokens": sum(map(self._tokens, told)),
            "vectors": len(state.vectors),
            "entries": sum(not held[-1].deleted for held in state.entries.values()),
            "jobs": len(state.jobs),
            "indexed": 0,
            "segments": 0,
            "file_bytes": 0,
        }

    # residency

    def window(self, node: str) -> list[tuple[int, int]]:
        state = self.state()
        since, heard = state.since.get(node, 0), state.places.get((node, HEARD), {})
        rows: list[tuple[int, int, int | None]] = [
            (seq, self._tokens(one), one.draft.window_tokens)
            for seq, one in state.kept.items()
            if one.draft.node == node and one.draft.tier == WINDOW and seq > since and seq not in state.successors
        ]
        rows += [(seq, one.tokens, None) for seq, one in heard.items() if seq > since and one.tokens > 0]
        budget = self.settings(node).get("l1_token_budget", math.inf)
        return fit_window(sorted(rows, key=lambda row: -row[0]), budget, self.sizes(node, FOCUS))

    def sizes(self, node: str, tier: str, among: Iterable[int] | None = None) -> dict[int, int]:
        held = self.state().places.get((node, tier), {})
        some = held.keys() if among is None else held.keys() & {*among}
        return {record: held[record].tokens for record in sorted(some, key=lambda one: (held[one].entered, one))}

    def residents(self, node: str, tier: str) -> list[Resident]:
        held = self.state().places.get((node, tier), {})
        return [
            self._resident(record, node, size, held[record].entered)
            for record, size in self.sizes(node, tier).items()
        ]

    def as_residents(self, records: Sequence[int], node: str) -> list[Resident]:
        state = self.state()
        return [
            self._resident(record, node, self._tokens(state.kept[record]), record)
            for record in sorted({*records})
            if record in state.kept and record not in state.successors
        ]

    def _resident(self, record: int, node: str, tokens: int, entered: int) -> Resident:
        kept = self.state().kept[record]
        written_at = kept.committed_at / 1e6
        used = self.accesses([record], node).get(record)
        previous = None
        if used is not None:
            previous = written_at if used.previous_at is None else to_micros(used.previous_at) / 1e6
        return Resident(
            record,
            tokens,
            float(kept.draft.importance),
            entered,
            written_at,
            0 if used is None else used.count,
            written_at if used is None else to_micros(used.last_at) / 1e6,
            previous,
        )

    def absent(self, records: Iterable[int], tier: str, node: str) -> list[tuple[int, float, str]]:
        state = self.state()
        held = state.places.get((node, tier), {})
        found = sorted(seq for seq in {*records} if seq in state.kept and seq not in held)
        return [(seq, float(state.kept[seq].draft.importance), state.kept[seq].draft.kind) for seq in found]

    def totals(self, node: str) -> dict[str, Usage]:
        found = {
            tier: Usage(len(held), sum(one.tokens for one in held.values()))
            for (whose, tier), held in self.state().places.items()
            if whose == node
        }
        for (name, whose, tier), (hits, misses) in list(self.database.lookups.items()):
            if (name, whose) == (self.name, node):
                found[tier] = found.get(tier, Usage())._replace(hits=hits, misses=misses)
        return found

    def original_tokens(self, node: str, tier: str) -> int:
        state = self.state()
        total = 0
        for record in state.places.get((node, tier), ()):
            if state.derived.get(record):
                total += sum(source.tokens for source in self.sources(state.kept[record].draft.id))
            else:
                total += self._tokens(state.kept[record])
        return total

    def left_within(self, records: Sequence[int], tier: str, node: str, reason: str, numbers: int) -> set[int]:
        state = self.state()
        return {
            one.record
            for one in state.moves
            if one.record in records
            and one.seq > state.last - numbers
            and (one.node, one.tier, one.entered, one.reason) == (node, tier, False, reason)
        }

    def accesses(self, records: Iterable[int], node: str) -> dict[int, Access]:
        uses = self.database.uses
        return {one: uses[self.name, node, one] for one in records if (self.name, node, one) in uses}

    def most_uses(self, node: str, tier: str) -> int:
        return max((one.uses for one in self.residents(node, tier)), default=0)

    # entries, blobs and jobs

    def entry(self, key: str, *, scope: str = "local", owner: str | Sequence[str] = "") -> Entry | None:
        for one in _owners(owner):
            held = self.state().entries.get((scope, one, key))
            if held and not held[-1].deleted:
                return _entry((scope, one, key), held[-1])
        return None

    def entries(self, prefix: str = "", *, scope: str = "local", owner: str = "", limit: int = 100) -> list[Entry]:
        found = [
            _entry(place, held[-1])
            for place, held in self.state().entries.items()
            if place[:2] == (scope, owner) and place[2].startswith(prefix) and not held[-1].deleted
        ]
        found.sort(key=lambda one: one.key)
        return sorted(found, key=lambda one: one.updated_at, reverse=True)[:limit]

    def count_entries(self, *, scope: str = "local", owner: str = "") -> int:
        return len(self.entries(scope=scope, owner=owner, limit=2**31 - 1))

    def entry_history(self, key: str, *, scope: str = "local", owner: str = "") -> list[Entry]:
        place = (scope, owner, key)
        return [_entry(place, one) for one in self.state().entries.get(place, ()) if one.content is not None]

    def entry_changes(
        self,
        since: int,
        prefix: str = "",
        *,
        scope: str = "local",
        owner: str | Sequence[str] = "",
        limit: int = 1000,
    ) -> list[EntryChange]:
        check_limit(limit)
        found = [
            EntryChange(
                held[-1].seq,
                place[2],
                held[-1].version,
                held[-1].updated_by,
                None if held[-1].deleted else _entry(place, held[-1]),
            )
            for place, held in self.state().entries.items()
            if place[0] == scope and place[1] in _owners(owner) and place[2].startswith(prefix)
        ]
        return sorted((one for one in found if one.seq > since), key=lambda one: one.seq)[:limit]

    def last_entry_change(self) -> int:
        return max((held[-1].seq for held in self.state().entries.values()), default=0)

    def blob(self, key: str) -> bytes | None:
        return self.state().blobs.get(key, (0, None))[1]

    def jobs(self, kind: str | None = None, limit: int = 100, *, failed: bool = True) -> list[Job]:
        found = [
            job
            for job in self.state().jobs.values()
            if kind in (None, job.kind) and (failed or job.attempts < MAX_ATTEMPTS)
        ]
        return sorted(found, key=lambda job: job.seq)[:limit]

    def set_aside(self) -> list[str]:
        state = self.state()
        return [
            f"record {state.kept[job.record].draft.id!r} (number {job.record}): {job.kind} failed {job.attempts} "
            f"times with {job.error}"
            if job.record in state.kept
            else f"{job.kind} failed {job.attempts} times with {job.error}"
            for job in state.jobs.values()
            if job.attempts >= MAX_ATTEMPTS - 1
        ][:20]


def _owners(owner: str | Sequence[str]) -> Sequence[str]:
    return (owner,) if isinstance(owner, str) else owner


def _entry(place: _Key, one: _Value) -> Entry:
    scope, owner, key = place
    assert one.content is not None
    return Entry(
        key,
        json.loads(one.content),
        one.version,
        scope,
        owner,
        one.created_by,
        one.updated_by,
        from_micros(one.created_at),
        from_micros(one.updated_at),
        json.loads(one.metadata),
    )


def _names(choice: str | Collection[str] | None, name: str) -> Collection[str] | None:
    if choice is None:
        return None
    chosen = [choice] if isinstance(choice, str) or not isinstance(choice, Collection) else [*choice]
    for value in chosen:
        if not isinstance(value, str):
            raise InvalidInput(f"a filter on {name} takes a text or several, not {value!r}")
    return chosen


def _moment(moment: Any, name: str) -> int:
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{name} must be a datetime with a time zone, not {moment!r}")
    return to_micros(moment)


def _choices(key: str, value: Any) -> list[Any]:
    choices = [*value] if isinstance(value, list | tuple | set | frozenset) else [value]
    for one in choices:
        if not isinstance(one, str | bool | int | float | None) or (
            isinstance(one, float) and not math.isfinite(one)
        ):
            raise InvalidInput(f"where[{key!r}] compares with text, numbers, booleans, None or a list of them")
    return choices


def _matches(stored: Any, choices: list[Any]) -> bool:
    """As in JSON: neither text nor a boolean is equal to a number."""
    return any(
        isinstance(one, bool | str | None) == isinstance(choice, bool | str | None)
        and (isinstance(one, bool) == isinstance(choice, bool))
        and one == choice
        for one in (stored if isinstance(stored, list) else [stored])
        for choice in choices
    )


def _as_json(value: Any, what: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} holds a lone surrogate, which is not valid text") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} must be plain JSON (text, numbers, lists, objects): {error}") from error
    return text


# -- rows for snapshots ------------------------------------------------------------------------------

_SPACE = 1


class _Rows(Rows):
    """The described tables, made from one state. There is one namespace, and its number is 1."""

    store: PlainStore

    def state(self) -> _State:
        raise NotImplementedError

    def origin(self) -> Origin:
        state, database = self.state(), self.store.database
        last, committed_at = max(state.last, database.seq), state.committed_at
        spaces = {} if state.space is None else {_SPACE: state.space}
        active = {1: _SPACE} if spaces else {}
        return Origin(database.id, 1, last, committed_at, {1: self.store.name}, 1, spaces, active)

    def rows(
        self, table: str, *, after: int = 0, newest: int | None = None, **equal: Any
    ) -> Iterator[tuple[Any, ...]]:
        described = TABLES[table]
        made: Iterable[Row] = getattr(self, f"_{table}")()
        found = [row for row in made if all(row[column] == value for column, value in equal.items())]
        if described.appended:
            found = [row for row in found if row[described.appended] > after]
        if described.appended or table == "blobs":
            found.sort(key=lambda row: int(row[described.appended or "seq"]))
        if newest is not None:
            found = found[::-1][:newest]
        return (tuple({"namespace": 1, **row}[column] for column in described.columns) for row in found)

    def blob_pieces(self, number: int) -> Iterator[bytes]:
        return (data for seq, data in self.state().blobs.values() if seq == number)

    def _forgotten(self) -> Iterator[Row]:
        return ({"seq": seq, "record": record} for seq, record in self.state().forgotten)

    def _settings(self) -> Iterator[Row]:
        for node, held in self.state().settings.items():
            for key, value in held.items():
                yield {"node": node, "key": key, "value": value}

    def _records(self) -> Iterator[Row]:
        for seq, kept in self.state().kept.items():
            draft = kept.draft
            own = {one: getattr(draft, one) for one in ("id", "tier", "kind", "node", "role", "name", "trust")}
            yield {
                **own,
                **asdict(draft.dimensions),
                "seq": seq,
                "version": kept.version,
                "session": draft.session_id,
                "importance": float(draft.importance),
                "tokens": self.store.measured(kept),
                "counter": draft.counter,
                "created_at": kept.created_at,
                "committed_at": kept.committed_at,
                "metadata": None if kept.metadata == "{}" else kept.metadata,
                "data": None if kept.data == "null" else kept.data,
                "content": draft.content,
                "window_tokens": draft.window_tokens,
            }

    def _supersessions(self) -> Iterator[Row]:
        return ({"record": record, **one._asdict()} for record, one in self.state().successors.items())

    def _derivations(self) -> Iterator[Row]:
        return ({"record": record, "replaces": int(one)} for record, one in self.state().derived.items())

    def _edges(self) -> Iterator[Row]:
        versions = self.state().versions
        for source, derived in self.state().edges:
            if derived in versions:
                known = versions.get(source)
                yield {
                    "derived": versions[derived][0],
                    "source": known[0] if known else None,
                    "bare": None if known else source,
                }

    def _moves(self) -> Iterator[Row]:
        return (one._asdict() | {"entered": int(one.entered)} for one in self.state().moves)

    def _residents(self) -> Iterator[Row]:
        state = self.state()
        for (node, tier), held in state.places.items():
            for record, one in held.items():
                kept = state.kept[record]
                yield {
                    "node": node,
                    "tier": tier,
                    "record": record,
                    "tokens": one.tokens,
                    "importance": float(kept.draft.importance),
                    "entered": one.entered,
                    "written_at": kept.committed_at,
                }

    def _tiers(self) -> Iterator[Row]:
        state, lookups = self.state(), self.store.database.lookups
        known = {*state.places, *((node, WINDOW) for node in state.since)}
        for node, tier in sorted(known | {(node, tier) for name, node, tier in lookups if name == self.store.name}):
            hits, misses = lookups.get((self.store.name, node, tier), (0, 0))
            since = state.since.get(node, 0) if tier == WINDOW else 0
            yield {"node": node, "tier": tier, "hits": hits, "misses": misses, "since": since}

    def _pins(self) -> Iterator[Row]:
        state = self.state()
        return ({"seq": seq, "record": state.versions[id][0], "bare": None} for id, seq in state.pins.items())

    def _accesses(self) -> Iterator[Row]:
        for (name, node, record), one in [*self.store.database.uses.items()]:
            if name == self.store.name and record in self.state().kept:
                yield {
                    "record": record,
                    "node": node,
                    "count": one.count,
                    "last_at": to_micros(one.last_at),
                    "previous_at": None if one.previous_at is None else to_micros(one.previous_at),
                }

    def _entries(self) -> Iterator[Row]:
        for (scope, owner, key), held in self.state().entries.items():
            for one in held:
                gone = one.content is None
                metadata = None if gone or one.metadata == "{}" else one.metadata
                row = {"scope": scope, "owner": owner, "key": key, **one._asdict(), "metadata": metadata}
                row |= {"deleted": int(gone), "checksum": 0}
                yield row if gone else row | {"checksum": entry_guard(entry_values(row))}

    def _blobs(self) -> Iterator[Row]:
        for key, (seq, data) in self.state().blobs.items():
            yield {"seq": seq, "key": key, "checksum": zlib.crc32(data), "size": len(data)}

    def _vectors(self) -> Iterator[Row]:
        for record, (seq, vector) in self.state().vectors.items():
            yield {"seq": seq, "record": record, "data": vector.astype("<f2").tobytes()}

    def _progress(self) -> Iterator[Row]:
        return ({"kind": kind, "watermark": done} for kind, done in self.state().progress.items())

    def _jobs(self) -> Iterator[Row]:
        for job in self.state().jobs.values():
            own = {one: getattr(job, one) for one in ("kind", "record", "seq", "attempts", "error")}
            yield own | {"data": json.dumps(job.data) if job.data else None}


class _Copy(_Rows):
    def __init__(self, store: PlainStore) -> None:
        self.store, self._state = store, store.state()

    def state(self) -> _State:
        return self._state


# -- writing -----------------------------------------------------------------------------------------


class _Transaction(_Reads, _Rows, Transaction):
    """Changes a copy of a state, which takes its place at the end."""

    def __init__(self, store: PlainStore) -> None:
        self.store, self.database, self.name, self.counters = store, store.database, store.name, store.counters
        self._changed = store.database.states[store.name].copy()
        self.now = max(to_micros(self.database.clock()), self._changed.committed_at + _INSTANT)
        self._changed.committed_at = self.now

    def state(self) -> _State:
        return self._changed

    @property
    def revision(self) -> str | None:
        return str(self._changed.revision)

    def _next(self) -> int:
        self.database.seq += 1
        self._changed.last = self.database.seq
        return self.database.seq

    def append(self, drafts: Sequence[Draft]) -> list[Written]:
        return [self._append(draft) for draft in drafts]

    def _append(self, draft: Draft) -> Written:
        state = self._changed
        metadata, data = _as_json(dict(draft.metadata), "metadata"), _as_json(draft.data, "data")
        for text in (draft.id, draft.content, draft.session_id or ""):
            _as_json(text, "a record")
        created_at = to_micros(draft.created_at)
        versions = state.versions.get(draft.id, [])
        known = state.kept[versions[-1]] if versions and draft.named else None
        if known is not None:
            old = known.draft
            same = (old.content, known.data) == (draft.content, data)
            if draft.revises:
                if old.kind != draft.kind:
                    raise IdConflict(f"the id {draft.id!r} names a {old.kind}, not a {draft.kind}")
                same = same and known.metadata == metadata
                same = same and (draft.lasting or old.importance == draft.importance)
            if same:
                return Written(known.seq, draft.id, known.version, False, old.node, old.importance)
            if not draft.revises:
                raise IdConflict(f"the id {draft.id!r} already names another text")
            if draft.lasting:
                draft = draft._replace(importance=max(old.importance, draft.importance))
        seq = self._next()
        own = draft._replace(metadata={}, data=None)
        kept = _Kept(seq, len(versions) + 1, self.now, created_at, own, metadata, data)
        state.kept[seq] = kept
        state.versions.setdefault(draft.id, []).append(seq)
        if known is not None:
            self._revise(known, kept)
        for source in draft.sources:
            state.edges[source, draft.id] = None
        if draft.drawn:
            state.derived[seq] = draft.replaces
        if state.space is not None and not (draft.drawn and draft.kind == NAMES):
            state.jobs[EMBED, seq, seq] = Job(seq, EMBED, seq, (), 0, None)
        return Written(seq, draft.id, kept.version, True, draft.node, draft.importance)

    def _revise(self, old: _Kept, new: _Kept) -> None:
        """Put a newer version in the place of an old one. Nodes that had the old version get the new one."""
        node, tokens = new.draft.node, self._tokens(new)
        heard = {} if old.draft.node == node else {old.draft.node: tokens if old.draft.tier == WINDOW else 0}
        for (whose, tier), held in self._changed.places.items():
            if tier == HEARD and old.seq in held and whose != node:
                heard[whose] = tokens if held[old.seq].tokens else 0
        self._take_place(old, new.seq, new.created_at)
        with self.database.noting:
            for name, whose, record in [*self.database.uses]:
                if (name, record) == (self.name, old.seq):
                    self.database.uses[name, whose, new.seq] = self.database.uses.pop((name, whose, record))
        for whose, size in heard.items():
            self.enter([new.seq], HEARD, whose, "heard", [size])

    def _take_place(self, old: _Kept, by: int, at: int) -> None:
        state = self._changed
        state.successors[old.seq] = _Successor(self._next(), by, max(at, old.created_at), self.now)
        for (node, tier), held in [*state.places.items()]:
            if old.seq in held:
                self.leave([old.seq], tier, node, "superseded")

    def derive(self, derived: str, sources: Sequence[str]) -> None:
        if derived not in self._changed.versions:
            raise NotFound(f"there is no record with the id {derived!r}, so it has no sources; write it first")
        for source in sources:
            self._changed.edges[source, derived] = None

    def supersede(self, record: int, by: int, at: datetime) -> bool:
        kept = self._changed.kept.get(record)
        if kept is None or record in self._changed.successors:
            return False
        self._take_place(kept, by, to_micros(at))
        return True

    def put_vectors(self, records: Sequence[int], vectors: Vector) -> None:
        state = self._changed
        if state.space is None:
            raise EmbeddingError("this store has no embedding space yet; open it with an embedder first")
        if vectors.ndim != 2 or vectors.shape != (len(records), state.space[1]):
            raise WrongDimension(f"vectors of shape {vectors.shape} for {len(records)} records in {state.space}")
        if not np.isfinite(vectors.astype(np.float16)).all():
            raise WrongDimension("a vector holds NaN or infinity; the embedder is at fault")
        for record, vector in zip(records, vectors.astype(np.float16).astype(np.float32), strict=True):
            if record in state.kept:
                state.vectors[record] = (self._next(), vector)

    def pin(self, id: str, pinned: bool) -> None:
        if pinned and id not in self._changed.versions:
            raise NotFound(f"there is no record with the id {id!r} to pin; write it first")
        number = self._next()
        self._changed.pins.pop(id, None)
        if pinned:
            self._changed.pins[id] = number

    def put_settings(self, node: str, values: Mapping[str, Any]) -> None:
        held = self._changed.settings.setdefault(node, {})
        held.update({key: _as_json(value, f"the setting {key}") for key, value in values.items()})
        self._changed.revision += 1

    def advance(self, name: str, to: int) -> None:
        self._changed.progress[name] = to

    # residency

    def enter(
        self, records: Sequence[int], tier: str, node: str, reason: str = "", tokens: Sequence[int] | None = None
    ) -> int:
        if tier == WINDOW:
            raise InvalidInput(f"{WINDOW} is the window of the newest records; a record enters it when it is written")
        state = self._changed
        held = state.places.setdefault((node, tier), {})
        entered, came = self.database.seq + 1, []
        for place, record in enumerate(records):
            if record in state.kept and record not in state.successors and record not in held:
                size = self._tokens(state.kept[record]) if tokens is None else tokens[place]
                held[record] = _Place(size, entered)
                came.append(record)
        return self._moved(came, tier, node, True, reason)

    def leave(self, records: Sequence[int], tier: str, node: str, reason: str = "") -> int:
        held = self._changed.places.get((node, tier), {})
        went = [record for record in {*records} if held.pop(record, None) is not None]
        return self._moved(went, tier, node, False, reason)

    def _moved(self, records: Iterable[int], tier: str, node: str, entered: bool, reason: str) -> int:
        if reason and not reason.isidentifier():
            raise InvalidInput(f"the reason of a move must be a single word, such as superseded, not {reason!r}")
        moved = sorted(records)
        self._changed.moves += [_Move(self._next(), record, node, tier, entered, reason) for record in moved]
        return len(moved)

    def narrow_window(self, node: str, after: int) -> None:
        self._changed.since[node] = max(after, self._changed.since.get(node, 0))

    # entries, blobs and jobs

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
        place = (scope, owner, key)
        _as_json(place, "the place of an entry")
        held = self._changed.entries.setdefault(place, [])
        known = _expect(held, key, expected_version)
        merged = ({} if known is None else json.loads(known.metadata)) | dict(metadata or {})
        made = _Value(
            self._next(),
            held[-1].version + 1 if held else 1,
            writer if known is None else known.created_by,
            writer,
            self.now if known is None else known.created_at,
            self.now,
            _as_json(merged, "metadata"),
            _as_json(content, "the content of an entry"),
            False,
        )
        if not history:
            held[:] = [one._replace(content=None) for one in held]
        held.append(made)
        return _entry(place, made)

    def delete_entry(
        self,
        key: str,
        *,
        scope: str = "local",
        owner: str = "",
        expected_version: int | None = None,
        writer: str = "",
    ) -> int:
        held = self._changed.entries.get((scope, owner, key), [])
        known = _expect(held, key, expected_version)
        if known is None:
            return 0
        gone = _Value(self._next(), known.version + 1, "", writer, self.now, self.now, "{}", None, True)
        held[:] = [*(one._replace(content=None, metadata="{}") for one in held), gone]
        return gone.version

    def put_blob(self, key: str, data: bytes) -> None:
        self._changed.blobs[key] = (self._next(), data)

    def delete_blob(self, key: str) -> bool:
        return self._changed.blobs.pop(key, None) is not None

    def enqueue(self, kind: str, records: Sequence[int] = (0,), data: Sequence[int] = ()) -> int:
        if not all(isinstance(number, int) for number in data):
            raise InvalidInput("a job holds only numbers; texts stay in the records")
        seq = self._next()
        for record in records:
            self._changed.jobs[kind, record, seq] = Job(seq, kind, record, tuple(data), 0, None)
        return seq

    def take(self, jobs: Sequence[Job]) -> list[Job]:
        queue = self._changed.jobs
        return [job for job in jobs if queue.pop((job.kind, job.record, job.seq), None) is not None]

    def retry(self, kind: str, record: int, error: str, *, attempts: int = 1) -> None:
        queue = self._changed.jobs
        known = [place for place in queue if place[:2] == (kind, record)]
        for place in known:
            queue[place] = replace(queue[place], attempts=queue[place].attempts + attempts, error=error)
        if not known:
            seq = self._next()
            queue[kind, record, seq] = Job(seq, kind, record, (record,), attempts, error)

    # rows of another store

    def skip_to(self, number: int) -> None:
        self.database.seq = self._changed.last = max(self.database.seq, number)

    def change_space(self, name: str, dimensions: int) -> None:
        state = self._changed
        state.space, state.vectors = (name, dimensions), {}
        state.jobs = {place: job for place, job in state.jobs.items() if job.kind != EMBED}
        for seq, kept in state.kept.items():
            if kept.draft.kind != NAMES or seq not in state.derived:
                state.jobs[EMBED, seq, seq] = Job(seq, EMBED, seq, (), 0, None)

    def add_rows(self, table: str, rows: Iterable[Row]) -> int:
        add: Callable[[Row], None] = getattr(self, f"_add_{table}")
        count = 0
        for row in rows:
            add(row)
            count += 1
        return count

    def _add_records(self, row: Row) -> None:
        given = {one: row[one] for one in ("id", "content", "tier", "kind", "node", "role", "name", "trust")}
        draft = Draft(
            **given,
            created_at=from_micros(row["created_at"]),
            session_id=row["session"],
            dimensions=Dimensions(row["subject"], row["flow"], row["layer"]),
            importance=row["importance"],
            tokens=row["tokens"],
            counter=row["counter"],
            window_tokens=row["window_tokens"],
        )
        seq, moments = row["seq"], (row["committed_at"], row["created_at"])
        kept = _Kept(seq, row["version"], *moments, draft, row["metadata"] or "{}", row["data"] or "null")
        self._changed.kept[seq] = kept
        self._changed.versions.setdefault(draft.id, []).append(seq)

    def _add_supersessions(self, row: Row) -> None:
        self._changed.successors[row["record"]] = _Successor(row["seq"], row["by"], row["at"], row["committed_at"])

    def _add_derivations(self, row: Row) -> None:
        self._changed.derived[row["record"]] = bool(row["replaces"])

    def _add_edges(self, row: Row) -> None:
        kept = self._changed.kept
        source = row["bare"] if row["source"] is None else kept[row["source"]].draft.id
        self._changed.edges[source, kept[row["derived"]].draft.id] = None

    def _add_moves(self, row: Row) -> None:
        given = {one: row[one] for one in ("seq", "record", "node", "tier", "reason")}
        self._changed.moves.append(_Move(**given, entered=bool(row["entered"])))

    def _add_residents(self, row: Row) -> None:
        held = self._changed.places.setdefault((row["node"], row["tier"]), {})
        held[row["record"]] = _Place(row["tokens"], row["entered"])

    def _add_tiers(self, row: Row) -> None:
        with self.database.noting:
            place = (self.name, row["node"], row["tier"])
            self.database.lookups.setdefault(place, (row["hits"], row["misses"]))
        if row["tier"] == WINDOW:
            self._changed.since.setdefault(row["node"], row["since"])
        else:
            self._changed.places.setdefault((row["node"], row["tier"]), {})

    def _add_pins(self, row: Row) -> None:
        self._changed.pins[self._changed.kept[row["record"]].draft.id] = row["seq"]

    def _add_accesses(self, row: Row) -> None:
        previous = None if row["previous_at"] is None else from_micros(row["previous_at"])
        with self.database.noting:
            place = (self.name, row["node"], row["record"])
            self.database.uses[place] = Access(row["count"], from_micros(row["last_at"]), previous)

    def _add_entries(self, row: Row) -> None:
        held = self._changed.entries.setdefault((row["scope"], row["owner"], row["key"]), [])
        if row["deleted"]:
            held[:] = [one._replace(content=None, metadata="{}") for one in held]
        given = {one: row[one] for one in _Value._fields if one in row}
        held.append(_Value(**given | {"metadata": row["metadata"] or "{}", "deleted": bool(row["deleted"])}))

    def _add_blobs(self, row: Row) -> None:
        self._changed.blobs[row["key"]] = (row["seq"], row["data"])

    def _add_vectors(self, row: Row) -> None:
        vector = np.frombuffer(row["data"], dtype="<f2").astype(np.float32)
        self._changed.vectors[row["record"]] = (row["seq"], vector)

    def _add_jobs(self, row: Row) -> None:
        data = tuple(json.loads(row["data"] or "[]"))
        job = Job(row["seq"], row["kind"], row["record"], data, row["attempts"], row["error"])
        self._changed.jobs[job.kind, job.record, job.seq] = job

    # forgetting

    def forget(self, chosen: Sequence[int], store_id: str) -> ForgetReceipt:
        """Remove records with every version and everything derived from them."""
        state = self._changed
        ids = [*dict.fromkeys(state.kept[seq].draft.id for seq in chosen)]
        derived: list[str] = []
        frontier = {*ids}
        while frontier:
            frontier = {one for source, one in state.edges if source in frontier} & state.versions.keys()
            frontier -= {*ids, *derived}
            derived += sorted(frontier)
        leaving = {*ids, *derived}
        again, places = set(), set()
        for source, one in state.edges:
            if one in derived and source not in leaving and source in state.versions:
                again.add(state.versions[source][-1])
                if any(state.derived.get(seq) for seq in state.versions[one]):
                    places.add(state.versions[source][-1])
        if again:
            self.enqueue(DERIVE, data=sorted(again))
        if places:
            self.enqueue(RESTORE, data=sorted(places))
        seqs = sorted(seq for id in leaving for seq in state.versions[id])
        sessions = {state.kept[seq].draft.session_id for seq in seqs} - {None}
        keys = tuple(f"{session_key(store_id, session)}:" for session in sessions if session is not None)
        state.entries = {
            place: held
            for place, held in state.entries.items()
            if place[0] != LAYOUTS or not place[2].startswith(keys)
        }
        freed = [record for record, one in state.successors.items() if one.by in seqs and record not in seqs]
        if freed:
            self.enqueue(RESTORE, data=freed)
        counts: dict[str, Any] = {
            "moves": _without(state.moves, lambda one: one.record in seqs),
            "vectors": _drop(state.vectors, seqs),
            "jobs": _drop(state.jobs, [place for place in state.jobs if place[1] in seqs]),
            "accesses": _drop(self.database.uses, [place for place in [*self.database.uses] if place[2] in seqs]),
        }
        _drop(state.successors, [*seqs, *freed])
        _drop(state.derived, seqs)
        for held in state.places.values():
            _drop(held, seqs)
        _drop(state.edges, [pair for pair in state.edges if leaving & {*pair}])
        _drop(state.pins, leaving)
        _drop(state.versions, leaving)
        _drop(state.kept, seqs)
        state.forgotten += [(self._next(), seq) for seq in seqs]
        return ForgetReceipt(tuple(ids), records=len(seqs), derived=len(derived), **counts)


def _drop(held: dict[Any, Any], keys: Iterable[Any]) -> int:
    return sum(held.pop(key, None) is not None for key in [*keys])


def _without(held: list[Any], goes: Callable[[Any], bool]) -> int:
    stays = [one for one in held if not goes(one)]
    gone = len(held) - len(stays)
    held[:] = stays
    return gone


def _expect(held: Sequence[_Value], key: str, expected_version: int | None) -> _Value | None:
    known = held[-1] if held and not held[-1].deleted else None
    actual = 0 if known is None else known.version
    if expected_version is not None and expected_version != actual:
        raise VersionConflictError(key, expected_version, actual)
    return known


# -- searching ---------------------------------------------------------------------------------------


class _View:
    """The indexes, made from the records of one state."""

    def __init__(self, store: PlainStore) -> None:
        self._store = store
        self._state = state = store.state()
        tail = text_index.TextTail()
        for seq, kept in sorted(state.kept.items()):
            draft = kept.draft
            names = draft.kind == NAMES and seq in state.derived
            tail.add(
                seq, index_terms(draft.name, draft.role, kept.created_at, kept.metadata, draft.content, int(names))
            )
        self.text = text_index.TextIndex([], tail)
        self.vectors: vector_index.VectorIndex | None = None
        if state.space is not None:
            vectors = vector_index.VectorTail(state.space[1])
            if state.vectors:
                matrix = np.stack([vector for _, vector in state.vectors.values()])
                vectors.add(np.array([*state.vectors], dtype=np.int64), matrix)
            self.vectors = vector_index.VectorIndex(state.space[1], [], vectors)
        self.kept: dict[Hashable, Any] = {}
        self.derived = len(state.derived)

    def admitted(self, seqs: Sequence[int], wanted: Filter) -> set[int]:
        return {*self._store.admitted(wanted, seqs)}

    def numbers(self, wanted: Filter, most: int) -> npt.NDArray[np.int64] | None:
        found = self._store.admitted(wanted)
        return None if len(found) > most else np.array(found, dtype=np.int64)

    def doc_values(self, seqs: Sequence[int], wanted: Filter, known: Collection[int] = ()) -> dict[int, DocValues]:
        return {one.seq: one for one in self._doc_values(self._store.admitted(wanted, seqs))}

    def _doc_values(self, seqs: Iterable[int]) -> list[DocValues]:
        records = self._store.records(seqs).values()
        return [
            of_row(
                (
                    one.seq,
                    None if one.session_id is None else hash_bits(one.session_id),
                    to_micros(one.created_at),
                    one.importance,
                    one.name,
                    one.role,
                    one.tokens,
                )
            )
            for one in records
        ]

    def beside(self, one: DocValues, wanted: Filter, limit: int, *, before: bool) -> list[DocValues]:
        session = self._state.kept[one.seq].draft.session_id
        found = [
            seq
            for seq in self._store.admitted(wanted)
            if (seq < one.seq if before else seq > one.seq)
            and (session is None or self._state.kept[seq].draft.session_id == session)
        ]
        near = found[::-1][:limit] if before else found[:limit]
        return sorted(self._doc_values(near), key=lambda other: abs(other.seq - one.seq))

    def mixed(self, seqs: Sequence[int], distance: int) -> set[tuple[int, int]]:
        sessions = {seq: kept.draft.session_id for seq, kept in self._state.kept.items()}
        near = {(seq, seq + step) for seq in seqs for step in range(-distance, distance + 1)}
        both = ((one, other) for one, other in near if sessions.get(one) and sessions.get(other))
        return {
            (one, other)
            for one, other in both
            if sessions[one] != sessions[other] and hash_bits(str(sessions[one])) == hash_bits(str(sessions[other]))
        }

    def names_read(self, seqs: Sequence[int], known_at: datetime | None, *, held: bool = False) -> list[NamesRead]:
        state, found = self._state, []
        for seq, kept in sorted(state.kept.items()):
            if kept.draft.kind != NAMES or seq not in state.derived or seq in state.successors:
                continue
            if known_at is not None and kept.committed_at > to_micros(known_at):
                continue
            more = json.loads(kept.metadata)
            for source in state.versions.get(more.get("of", ""), []):
                read = state.kept[source]
                is_source = (read.draft.id, kept.draft.id) in state.edges and read.version == more.get("version")
                if is_source and (seq if held else source) in seqs:
                    found.append(NamesRead(seq, names_in(more), source))
        return found

    def replacements(
        self, seqs: Sequence[int], as_of: datetime | None, known_at: datetime | None
    ) -> list[tuple[int, int]]:
        state = self._state
        valid, known = (2**62 if one is None else to_micros(one) for one in (as_of, known_at))
        ended = {
            record: one.by
            for record, one in state.successors.items()
            if one.at <= valid and one.committed_at <= known
        }
        own = {*seqs}
        for seq in seqs:
            for source, derived in state.edges:
                if seq in state.kept and source == state.kept[seq].draft.id:
                    moment = state.kept[seq].created_at
                    own |= {n for n in state.versions.get(derived, ()) if state.kept[n].created_at == moment}
        found = {(record, by) for record, by in ended.items() if by in own and by != record}
        for seq in own & ended.keys():
            last = ended[seq]
            while last in ended and ended[last] != last:
                last = ended[last]
            if last not in ended:
                found.add((seq, last))
        return sorted(found)

    def records(self, seqs: Sequence[int]) -> dict[int, Record]:
        return self._store.records(seqs)

    def uses(self, seqs: Sequence[int], node: str) -> dict[int, int]:
        return {seq: one.count for seq, one in self._store.accesses(seqs, node).items()}


# -- the store ---------------------------------------------------------------------------------------


class PlainStore(_Reads, Store):
    """One namespace of a `PlainDatabase`. There is no thread: `flush` does the background work."""

    def __init__(
        self, database: PlainDatabase | None = None, *, namespace: str = "default", all_namespaces: bool = False
    ) -> None:
        self.database = PlainDatabase() if database is None else database
        self.name = namespace
        self.counters = {}
        self._all_namespaces = all_namespaces
        self._closed = False
        self._embed: Embed | None = None
        self._chores: dict[object, Chore] = {}
        self._scope = threading.local()
        with self.database.writing:
            self.database.states.setdefault(namespace, _State())

    def state(self) -> _State:
        self.check_open()
        found: _State | None = getattr(self._scope, "state", None)
        return self.database.states.get(self.name, _State()) if found is None else found

    def admitted(self, wanted: Filter, among: Iterable[int] | None = None) -> list[int]:
        return self._admitted(wanted, among)

    @property
    def namespace(self) -> str:
        return self.name

    @property
    def store_id(self) -> str:
        return self.database.id

    @property
    def location(self) -> str:
        return "in memory"

    @property
    def read_only(self) -> bool:
        return False

    def clock(self) -> datetime:
        return self.database.clock()

    @contextmanager
    def reading(self) -> Iterator[None]:
        if getattr(self._scope, "state", None) is not None:
            yield
            return
        self._scope.state = self.state()
        try:
            yield
        finally:
            self._scope.state = None

    @contextmanager
    def copying(self, namespaces: Sequence[str] | None = None) -> Iterator[_Copy]:
        self.check_open()
        if namespaces is not None and [*namespaces] != [self.name]:
            raise InvalidInput("rows are copied from one namespace at a time")
        yield _Copy(self)

    def measured(self, kept: _Kept) -> int:
        """The tokens of a record, counted or not."""
        return self._tokens(kept)

    @contextmanager
    def transaction(self, wait_s: float | None = None) -> Iterator[_Transaction]:
        self.check_open()
        if not self.database.writing.acquire(timeout=-1 if wait_s is None else wait_s):
            raise StoreBusy(f"another thread has been writing for more than {wait_s} s")
        with ExitStack() as stack:
            stack.callback(self.database.writing.release)
            if getattr(self._scope, "writes", False):
                raise InvalidInput("a transaction is already open in this thread; finish it first")
            if self.name not in self.database.states:
                raise NotFound("the namespace of this memory was forgotten; open it again to begin a new one")
            self._scope.writes = True
            before = self.database.seq
            try:
                transaction = _Transaction(self)
                yield transaction
                self.database.states[self.name] = transaction.state()
                if getattr(self._scope, "state", None) is not None:
                    self._scope.state = transaction.state()
            except BaseException:
                self.database.seq = before
                raise
            finally:
                self._scope.writes = False

    def search(self, ask: Callable[[SearchView], Answer]) -> Answer:
        self.check_open()
        with self.reading():
            return ask(_View(self))

    def touch(self, records: Iterable[int], node: str) -> None:
        now = self.clock()
        with self.database.noting:
            for record in records:
                known = self.database.uses.get((self.name, node, record))
                before = Access(0, now, None) if known is None else known
                previous = None if known is None else known.last_at
                self.database.uses[self.name, node, record] = Access(before.count + 1, now, previous)

    def count_lookup(self, node: str, tier: str, hit: bool) -> None:
        with self.database.noting:
            hits, misses = self.database.lookups.get((self.name, node, tier), (0, 0))
            self.database.lookups[self.name, node, tier] = (hits + hit, misses + (not hit))

    # background work

    def count_with(self, counters: Mapping[str, Count]) -> None:
        self.counters.update(counters)

    def use_embedder(self, name: str, dimensions: int, embed: Embed | None, *, reconfigure: bool = False) -> None:
        self._embed = embed
        if self.space == (name, dimensions):
            return
        if self.space is not None and not reconfigure:
            raise SettingsConflict(f"this memory is embedded with {self.space}, not with {(name, dimensions)}")
        with self.transaction() as transaction:
            transaction.change_space(name, dimensions)

    def add_chore(self, owner: object, chore: Chore) -> None:
        self.check_open()
        self._chores[owner] = chore

    def remove_chores(self, *owners: object) -> None:
        for owner in owners:
            self._chores.pop(owner, None)

    def wake_worker(self) -> None:
        """The next `flush` runs the chores."""

    def retry_jobs(self, *kinds: str) -> None:
        with self.transaction() as transaction:
            queue = transaction.state().jobs
            for place, job in queue.items():
                if job.kind in kinds and job.attempts >= MAX_ATTEMPTS:
                    queue[place] = replace(job, attempts=MAX_ATTEMPTS - 1)

    def flush(self, timeout_s: float | None = None) -> FlushReport:
        self.check_open()
        errors: dict[str, str] = {}
        self._embed_all()
        for owner, chore in [*self._chores.items()]:
            name = f"the chore of {type(owner).__name__}"
            try:
                while self._one_piece(chore):
                    self._embed_all()
            except Exception as error:
                if concerns_everything(error):
                    raise
                errors[name] = f"{name} failed with {type(error).__name__} and will be tried again"
        self._embed_all()
        queue = self.state().jobs.values()
        waiting = [job.kind for job in queue if job.attempts < MAX_ATTEMPTS]
        failed = [job.kind for job in queue if job.attempts >= MAX_ATTEMPTS]
        return FlushReport(
            {kind: waiting.count(kind) for kind in waiting},
            {kind: failed.count(kind) for kind in failed},
            tuple(self.set_aside()) if failed else (),
            tuple(errors.values()),
        )

    def _one_piece(self, chore: Chore) -> bool:
        with self.database.working:  # the lease
            return chore(self.transaction, True)

    def _embed_all(self) -> None:
        jobs = self.jobs(EMBED, len(self.state().jobs) + 1, failed=False)
        if self._embed is None or not jobs:
            return
        kept = self.state().kept
        rows = [kept[job.record] for job in jobs]
        vectors = self._embed([embedded_text(one.draft.name, one.metadata, one.draft.content) for one in rows])
        with self.transaction() as transaction:
            transaction.put_vectors([one.seq for one in rows], np.asarray(vectors, dtype=np.float32))
            transaction.take(jobs)

    # administration

    def forget(self, wanted: Filter, timeout_s: float = 10.0) -> ForgetReceipt:
        self.check_open()
        with self.transaction() as transaction:
            chosen = transaction.numbers(wanted, 2**31)
            return transaction.forget(chosen, self.store_id) if chosen else ForgetReceipt(())

    def forget_entries(
        self, scope: str, *, owner: str | None = None, key: str | None = None, timeout_s: float = 10.0
    ) -> int:
        with self.transaction() as transaction:
            chosen = [
                place
                for place in transaction.state().entries
                if place[0] == scope and owner in (None, place[1]) and key in (None, place[2])
            ]
            return sum(transaction.delete_entry(one, scope=scope, owner=whose) > 0 for _, whose, one in chosen)

    def _check_namespaces(self) -> None:
        self.check_open()
        if not self._all_namespaces:
            raise InvalidInput("open the store with all_namespaces=True")

    def namespaces(self) -> list[str]:
        self._check_namespaces()
        return [*self.database.states]

    def forget_namespace(self, name: str, timeout_s: float = 10.0) -> ForgetReceipt:
        self._check_namespaces()
        with self.database.writing:
            gone = self.database.states.pop(name, None)
        if gone is None:
            raise NotFound(f"there is no namespace {name!r}")
        return ForgetReceipt(tuple(gone.versions), records=len(gone.kept))

    def apply_retention(self) -> ForgetReceipt:
        rule = self.retention
        expired: set[str] = set()
        if rule is not None:
            current = self.scan(Filter(derived=False, pinned=False), limit=2**31 - 1).records
            if rule.max_age_days is not None:
                oldest = to_micros(self.clock()) - int(rule.max_age_days * 86_400_000_000)
                expired |= {one.id for one in current if to_micros(one.created_at) < oldest}
            if rule.max_records is not None:
                expired |= {one.id for one in current[rule.max_records :]}
            total = 0
            for one in current if rule.max_bytes is not None else ():
                total += len(one.content.encode())
                expired |= {one.id} if total > (rule.max_bytes or 0) else set()
        return self.forget(Filter(ids=expired, history=True)) if expired else ForgetReceipt(())

    def check(self, repair: bool = True) -> CheckReport:
        return CheckReport(len(self.state().kept), set_aside=tuple(self.set_aside()))

    def backup(self, path: str | Path) -> None:
        self.check_open()
        try:
            Path(path).write_bytes(pickle.dumps(self.database.states))
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be written: {error.strerror}") from error

    def archive(self, before: datetime | None = None) -> ArchiveStats:
        return ArchiveStats()

    def archived(self) -> ArchiveStats:
        return ArchiveStats()

    def compress_at(self, level: int) -> None:
        """Nothing is compressed."""

    def vacuum(self) -> int:
        return 0

    @property
    def lost(self) -> tuple[int, int] | None:
        return None

    def check_open(self) -> None:
        if self._closed:
            raise Closed("the memory is closed; open it again to use it")

    def close(self) -> None:
        self._closed = True
