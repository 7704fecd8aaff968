"""The storage contract: the protocols, by role, that every backend implements, and the records that cross them.

A store is bound to one namespace of one database; nothing crosses a namespace. Every write takes a number from one
sequence that only grows, so `changes(since)` returns every change in order. Nothing here depends on SQLite;
`loom.storage.conformance` is the suite to inherit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy.typing as npt

from loom.errors import CorruptStore, InvalidInput, ReadOnly
from loom.storage.files import FILE_MODE
from loom.storage.tables import Row
from loom.storage.values import (
    COMPACT,
    COUNT,
    DERIVE,
    EMBED,
    FOCUS,
    HEARD,
    LAYOUTS,
    MAX_ATTEMPTS,
    MAX_TEXT_BYTES,
    MERGE,
    RESTORE,
    RETAIN,
    STANDING,
    TIERS,
    TRUSTS,
    UNCONFIRMED,
    WINDOW,
    Access,
    ArchiveStats,
    AtMost,
    Change,
    CheckReport,
    Dimensions,
    Draft,
    Entry,
    EntryChange,
    Filter,
    FlushReport,
    ForgetReceipt,
    Job,
    LeaseLost,
    Match,
    Origin,
    Page,
    Progress,
    Record,
    Resident,
    Retention,
    Usage,
    Vector,
    Written,
    check_limit,
    concerns_everything,
    fit_window,
    pass_on_general,
)

if TYPE_CHECKING:
    from loom.storage.search_view import SearchView

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
    "Administration",
    "ArchiveStats",
    "AtMost",
    "Background",
    "BlobWrites",
    "Blobs",
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
    "Origin",
    "Page",
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
    "RowWrites",
    "Rows",
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
    "pass_on_general",
]

Answer = TypeVar("Answer")

Decide = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Gets the stored settings and returns the valid ones."""

Embed = Callable[[Sequence[str]], npt.NDArray[Any]]
"""Embeds texts: a row of numbers for each."""


# -- reading ---------------------------------------------------------------------------------------------------------
#
# A store and a transaction have the same reads. On a store, each call reads the newest committed state, or that of
# the `reading` block around it; in a transaction, it also sees the earlier writes. A method with a body is derived
# from the others, and a backend inherits it from the protocol.


class _Reading(Protocol):
    def reading(self) -> AbstractContextManager[None]:
        """A block in which all reads of this thread see one snapshot, and its own writes."""


class Records(_Reading, Protocol):
    """Records, the edges between them, their vectors, and the settings that all processes share."""

    def get(self, id: str) -> Record | None:
        """The newest version under an id, or None."""

    def records(self, seqs: Iterable[int]) -> dict[int, Record]:
        """Records by sequence number, without those that do not exist. A damaged one raises `CorruptStore`."""

    def readable(self, seqs: Iterable[int]) -> tuple[dict[int, Record], dict[int, str]]:
        """Records by sequence number, and the error names of damaged ones."""
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

    def pages(self, wanted: Filter, *, limit: int = 100, newest_first: bool = True) -> Iterator[Page]:
        """All pages of the records that a filter admits."""
        after: int | None = None
        while True:
            page = self.scan(wanted, limit=limit, after=after, newest_first=newest_first)
            yield page
            after = page.next
            if after is None:
                return

    def numbers(self, wanted: Filter, limit: int, after: int = 0) -> list[int]:
        """The sequence numbers of the next records that a filter admits, oldest first, damaged ones too."""

    def count(self, wanted: Filter) -> int:
        """The number of records that a filter admits."""

    def history(self, id: str) -> list[Record]:
        """Every version under an id, oldest first."""
        return [*self.scan(Filter(ids=[id], history=True), limit=2**31 - 1, newest_first=False).records]

    def pinned(self, id: str) -> bool:
        """Whether an id is protected from retention."""
        return self.count(Filter(ids=[id], pinned=True, history=True)) > 0

    def neighbours(self, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ids from which a record was derived, and the ids that were derived from it."""

    def sources(self, id: str) -> list[Record]:
        """The newest versions of the sources of a record, in the order of writing."""
        found = (self.get(source) for source in self.neighbours(id)[0])
        return sorted((record for record in found if record is not None), key=lambda record: record.seq)

    def draws_on(self, derived: str, source: str) -> bool:
        """Whether one record is a source of another."""

    def is_drawn(self, record: int, replacing: bool = False) -> bool:
        """Whether a record was derived from others, and (with `replacing`) replaces them in a tier."""

    def replaced(self, seqs: Iterable[int]) -> set[int]:
        """The records among these that a derived record replaces in a tier, or replaced until that was undone."""

    def following(self, record: int, limit: int) -> list[int]:
        """The records that were written after a record in its session, nearest first."""

    def vectors(self, records: Iterable[int]) -> dict[int, Vector]:
        """The embeddings of records in the space in use; records without one are missing."""

    def changes(self, since: int, limit: int = 1000) -> list[Change]:
        """The events after a sequence number, in order.

        Sequence numbers become visible in order: once a reader has seen one, no lower one appears later.
        """

    def progress(self, name: str) -> Progress:
        """The progress of work that follows the log."""

    def settings(self, node: str = "") -> dict[str, Any]:
        """The stored settings of a node (the empty node: of the whole namespace)."""

    def nodes(self) -> list[str]:
        """The nodes with stored settings in this namespace."""

    @property
    def space(self) -> tuple[str, int] | None:
        """Name and dimensions of the embedding space in use, if there is one."""

    @property
    def retention(self) -> Retention | None:
        """The rule for forgetting records automatically."""
        rule = self.settings().get("retention")
        return None if rule is None else Retention(**rule)

    def stats(self) -> dict[str, int]:
        """Counts and sizes, as they are stored now."""


class Residency(_Reading, Protocol):
    """The tiers of records, their sizes there, and their uses.

    The window (`l1`) is not stored: it is the newest records of a node, as many as fit its budget, read each time.
    """

    def window(self, node: str) -> list[tuple[int, int]]:
        """The sequence number and the tokens of each record in the node's window, newest first.

        Records that were promoted into it (`FOCUS`) get room first. A record larger than the whole budget is skipped
        unless it was written with the size of a stand-in.
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
        """Records in any place as residents that have just entered a tier: their sizes and their uses.

        Records that are gone or have a newer version are missing.
        """

    def absent(self, records: Iterable[int], tier: str, node: str) -> list[tuple[int, float, str]]:
        """Sequence number, importance and kind of those records that are not in a tier other than the window."""

    def totals(self, node: str) -> dict[str, Usage]:
        """The usage of each tier of a node other than the window, without tiers that were never used."""

    def usage(self, node: str) -> dict[str, Usage]:
        """The usage of each tier of a node with the window, without other tiers that were never used."""
        with self.reading():
            recent, found = self.window(node), self.totals(node)
        held = Usage(len(recent), sum(tokens for _, tokens in recent), *found.pop(WINDOW, Usage())[2:])
        return {WINDOW: held, **found}

    def original_tokens(self, node: str, tier: str) -> int:
        """The tokens of the originals of a tier's residents, other than the window's, whatever replaces them there.

        A derived record that replaces others counts as their newest versions.
        """

    def left_within(self, records: Sequence[int], tier: str, node: str, reason: str, numbers: int) -> set[int]:
        """The records that have left a tier for this reason within the last `numbers` of the sequence."""

    def accesses(self, records: Iterable[int], node: str) -> dict[int, Access]:
        """The uses of records by a node, without those never used."""

    def uses(self, record: int, node: str) -> int:
        """The number of times that a node used a record."""
        found = self.accesses([record], node)
        return found[record].count if record in found else 0

    def most_uses(self, node: str, tier: str) -> int:
        """The uses of the most used record of a tier other than the window."""


class Entries(_Reading, Protocol):
    """Versioned values under keys, apart by scope and owner."""

    def entry(self, key: str, *, scope: str = "local", owner: str | Sequence[str] = "") -> Entry | None:
        """The newest version of an entry, or None. With several owners, that of the first one that has it."""

    def entries(self, prefix: str = "", *, scope: str = "local", owner: str = "", limit: int = 100) -> list[Entry]:
        """The newest versions of the entries whose keys start with a prefix, last updated first."""

    def count_entries(self, *, scope: str = "local", owner: str = "") -> int:
        """The number of keys that have a value."""

    def entry_history(self, key: str, *, scope: str = "local", owner: str = "") -> list[Entry]:
        """Every version of an entry since its last deletion, oldest first."""

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
        """A sequence number that grows with every change to an entry, from which `entry_changes` continues."""


class Blobs(_Reading, Protocol):
    """Bytes under keys."""

    def blob(self, key: str) -> bytes | None:
        """The bytes under a key, or None; damaged bytes raise `CorruptStore`."""


class Jobs(_Reading, Protocol):
    """The durable queue. A job names records by number and never holds their words."""

    def jobs(self, kind: str | None = None, limit: int = 100, *, failed: bool = True) -> list[Job]:
        """Queued and failed work, oldest first; without `failed`, work that was given up is left out."""

    def set_aside(self) -> list[str]:
        """The first of the records that background work gave up, with the reasons."""


class Reads(Records, Residency, Entries, Blobs, Jobs, Protocol):
    """Everything that a store and a transaction read."""


class Rows(Protocol):
    """The rows of some namespaces, in the form of a snapshot. `loom.storage.tables` describes the tables."""

    def origin(self) -> Origin:
        """The database that the rows are read from."""

    def rows(
        self, table: str, *, after: int = 0, newest: int | None = None, **equal: Any
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a table, each with the values of the described columns in their order.

        Rows of a table that is only appended to come in the order of their sequence numbers, and only those after
        `after`; with `newest`, this many of the last ones, newest first. `equal` gives values that columns must have.
        Rows about missing records are left out. A damaged record raises `CorruptStore`.
        """

    def count_rows(self, table: str, *, after: int = 0) -> int:
        """The number of rows that `rows` returns, for reports of progress."""
        return sum(1 for _ in self.rows(table, after=after))

    def blob_pieces(self, number: int) -> Iterator[bytes]:
        """The bytes of the blob with a sequence number, in pieces of bounded size."""


# -- writing ---------------------------------------------------------------------------------------------------------


class RecordWrites(Protocol):
    """Writing records and data about them. A record is never changed."""

    def append(self, drafts: Sequence[Draft]) -> list[Written]:
        """Write records, in order. The same id and content again is a no-op.

        Other content under an existing id raises `IdConflict`, unless the draft revises it.
        """

    def derive(self, derived: str, sources: Sequence[str]) -> None:
        """Name further sources of a record that was made from others. A source may be stored later."""

    def supersede(self, record: int, by: int, at: datetime) -> bool:
        """Let another record, under any id, supersede a record from a time on. Returns False if one already does.

        The old record leaves the tiers and stays in the log. Forgetting the successor returns it to its place. A
        record that is its own successor is withdrawn, without a replacement.
        """

    def put_vectors(self, records: Sequence[int], vectors: Vector) -> None:
        """Store the embeddings of records in the namespace's space. A missing record is skipped."""

    def pin(self, id: str, pinned: bool) -> None:
        """Protect an id from retention, or end the protection. Raises `NotFound` for an unknown id."""

    def put_settings(self, node: str, values: Mapping[str, Any]) -> None:
        """Write settings of a node (the empty node: of the whole namespace); `revision` grows."""

    def advance(self, name: str, to: int) -> None:
        """Record the progress of work that follows the log."""


class ResidencyWrites(Protocol):
    """Moving records between tiers. The totals of a tier change with its residents, in the same transaction."""

    def enter(
        self, records: Sequence[int], tier: str, node: str, reason: str = "", tokens: Sequence[int] | None = None
    ) -> int:
        """Add records to a tier of a node, at their own sizes or the given ones. Returns the number of new ones."""

    def leave(self, records: Sequence[int], tier: str, node: str, reason: str = "") -> int:
        """Remove records from a tier of a node; the records themselves stay. Returns the number removed."""

    def narrow_window(self, node: str, after: int) -> None:
        """Restrict the window of a node to records after this one."""


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
        """Remove every version of a key; only the writer and the version number stay, so that versions grow.

        Returns the version of the deletion, 0 if there was nothing to delete.
        """


class BlobWrites(Protocol):
    """Changing bytes under keys."""

    def put_blob(self, key: str, data: bytes) -> None:
        """Store bytes under a key, with a checksum; replaces earlier bytes."""

    def delete_blob(self, key: str) -> bool:
        """Remove the bytes under a key. Returns False if there were none."""


class JobWrites(Protocol):
    """Queueing work and taking it off the queue."""

    def enqueue(self, kind: str, records: Sequence[int] = (0,), data: Sequence[int] = ()) -> int:
        """Queue one piece of work about records: a job for each, all with one number, which is returned."""

    def take(self, jobs: Sequence[Job]) -> list[Job]:
        """Take these jobs off the queue, if the transaction commits. Returns those that were still in it."""

    def retry(self, kind: str, record: int, error: str, *, attempts: int = 1) -> None:
        """Queue work about one record that failed `attempts` times so far, or update the attempts of its queued job.

        `error` is the name of the error's type. A job that has failed `MAX_ATTEMPTS` times is set aside and not tried
        again.
        """


class RowWrites(Rows, Protocol):
    """Adding rows of another store, under their own numbers."""

    def add_rows(self, table: str, rows: Iterable[Row]) -> int:
        """Add rows to this namespace, whatever namespace they name, and update the data that depends on them. Returns
        their count.

        The iterator of the rows may read in this transaction; whether it sees earlier rows is not defined.

        The dependent data are hashes and checksums, edges to awaited sources, the totals of tiers, and the emptied
        versions before a deleted entry. A row has the columns of its table, and `data` for the bytes of a blob. An
        existing edge or tier stays. The caller ensures that no other row exists.
        """

    def skip_to(self, number: int) -> None:
        """Never use a sequence number up to this one again."""

    def change_space(self, name: str, dimensions: int) -> None:
        """Use another embedding space: drop the vectors of every other one and queue all records for embedding."""


class Transaction(Reads, RecordWrites, ResidencyWrites, EntryWrites, BlobWrites, JobWrites, RowWrites, Protocol):
    """Writes that become visible together or not at all. Reads see the writes made before them.

    Transactions of a namespace happen one after another, so its reads stay valid until it commits, and its numbers
    are above all committed ones. `revision` changes with the settings.
    """

    @property
    def revision(self) -> str | None: ...


Publish = Callable[[], AbstractContextManager[Transaction]]
"""Opens a transaction for the outcome of background work; raises `LeaseLost` if another process has taken the work
over."""

Chore = Callable[[Publish, bool], bool]
"""A bounded piece of background work of a layer above; returns whether there may be more. The second argument is True
if a caller waits until all of it is done."""


# -- a store ---------------------------------------------------------------------------------------------------------


class Searches(Protocol):
    """Searches in the indexes, which follow every commit. `loom.storage.search_view` has the plain searches."""

    def search(self, ask: Callable[[SearchView], Answer]) -> Answer:
        """The result of `ask`, which reads one snapshot, through the view or through this store.

        `ask` is called again if an index was damaged and has been rebuilt.
        """


class Uses(Protocol):
    """Recording uses. Buffered, so no reader waits for a writer; unflushed uses may be lost in a crash."""

    def touch(self, records: Iterable[int], node: str) -> None:
        """Record that a node used records."""

    def count_lookup(self, node: str, tier: str, hit: bool) -> None:
        """Record whether a requested record was in a tier."""


class Background(Protocol):
    """Background work. One process at a time does that of a namespace, while it holds the lease.

    A lease expires by the store's clock: the clock of the machine for a file, of the server for a database server. A
    process whose lease was taken over cannot publish its unfinished work.
    """

    def count_with(self, counters: Mapping[str, Callable[[str], int]]) -> None:
        """Count the tokens of records that were written without a count, by the name of the counter of each."""

    def use_embedder(self, name: str, dimensions: int, embed: Embed | None, *, reconfigure: bool = False) -> None:
        """Choose the embedding space of this namespace, and how to embed its texts in this process.

        A space other than the stored one raises `SettingsConflict`. With `reconfigure`, every record is embedded
        again in the background, and found by words until then. Spaces are never mixed.
        """

    def add_chore(self, owner: object, chore: Chore) -> None:
        """Run a piece of background work of a layer above when there is time, until `remove_chores` or `close`."""

    def remove_chores(self, *owners: object) -> None:
        """Remove the chores of these owners; waits a bounded time for the piece under way."""

    def wake_worker(self) -> None:
        """Run the chores now."""

    def retry_jobs(self, *kinds: str) -> None:
        """Retry jobs of these kinds that were given up: this process may succeed where another failed."""

    def flush(self, timeout_s: float | None = None) -> FlushReport:
        """Wait until everything committed before this call, by any process, is processed.

        Work that this process cannot do (it has no embedder) is reported as waiting; the call does not wait for it.
        """


class Administration(Protocol):
    """Operations for administrators of a store."""

    def forget(self, wanted: Filter, timeout_s: float = 10.0) -> ForgetReceipt:
        """Remove records for good, with every version and everything derived from them.

        Returns when no copy is left. Raises `ForgetPending` if that takes longer than `timeout_s`; the background
        work then continues.
        """

    def forget_entries(
        self, scope: str, *, owner: str | None = None, key: str | None = None, timeout_s: float = 10.0
    ) -> int:
        """Forget the values of a scope for good, of all owners or of one, with their history. Returns the number of
        keys.

        The key and a version of an entry stay, so that other processes notice the change and versions grow. Raises
        `ForgetPending` if a copy cannot be erased within `timeout_s`; call it again then.
        """

    def namespaces(self) -> list[str]:
        """The names of the namespaces of this database, in the order of their creation.

        For a store that was opened with `all_namespaces=True`; raises `InvalidInput` for another one.
        """

    def forget_namespace(self, name: str, timeout_s: float = 10.0) -> ForgetReceipt:
        """Remove a namespace for good: its records, entries, blobs, settings and its name.

        For a store that was opened with `all_namespaces=True`. Handles that are open on the namespace can no longer
        write. Raises `NotFound` if there is none with this name, and `ForgetPending` if a copy cannot be erased
        within `timeout_s`; call it again then.
        """

    def apply_retention(self) -> ForgetReceipt:
        """Forget the records that the retention rule no longer keeps; none without a rule."""

    def check(self, repair: bool = True) -> CheckReport:
        """Verify checksums, counts and projections; rebuild what can be rebuilt from the records."""

    def backup(self, path: str | Path) -> None:
        """Write a consistent copy of everything while others continue to write; it replaces `path` when it is
        complete."""

    def archive(self, before: datetime | None = None) -> ArchiveStats:
        """Compress the text of every record committed before a time (default: now). Returns the size of the archive.

        Reads are unaffected. The store itself shrinks with the next `vacuum`.
        """

    def archived(self) -> ArchiveStats:
        """The size of the archive."""

    def compress_at(self, level: int) -> None:
        """Archive at another level of compression in this process, from 1 (quick) to 22 (small)."""

    def vacuum(self) -> int:
        """Return free space to the file system and merge the indexes. Returns the number of bytes freed."""

    @property
    def lost(self) -> tuple[int, int] | None:
        """The first and the last sequence number that are known to have been committed and are lost."""


class Store(Reads, Searches, Uses, Background, Administration, Protocol):
    """One namespace of one database. Thread-safe; many processes may hold the same one.

    Every write takes a number from a sequence that only grows, in the order of commits within the namespace. A read
    never waits for a writer. The checksum of a record covers neither its number nor its commit time, which a database
    may assign itself. No layer above needs a function inside the database. A closed store raises `Closed`.
    """

    @property
    def namespace(self) -> str:
        """The name of the namespace."""

    @property
    def store_id(self) -> str:
        """The unique identifier of this database; a copy of it has the same."""

    @property
    def location(self) -> str:
        """The place of the database, for messages: a path, a URL without its password, or `in memory`."""

    @property
    def path(self) -> Path | None:
        """The file of the database; None if it has none."""
        return None

    @property
    def file_mode(self) -> int:
        """The mode of new files that hold data of this store."""
        return FILE_MODE

    @property
    def read_only(self) -> bool:
        """Whether every write is refused."""

    @property
    def counts_later(self) -> bool:
        """Whether the background work counts short texts. Otherwise they are best counted before they are written."""
        return True

    def clock(self) -> datetime:
        """The time by this store's clock."""

    def transaction(self, wait_s: float | None = None) -> AbstractContextManager[Transaction]:
        """Write several things at once; committed at the end, or not at all.

        Raises `StoreBusy` if others write for longer than `wait_s`, by default the store's own time limit.
        """

    def append_alone(self, draft: Draft, revision: str) -> bool:
        """Write one new record in the fewest steps, if the settings have this revision.

        Returns False, and writes nothing, if they have another one, if the draft has an id of the caller's, sources
        or an older version, or if the backend has no shorter way than a transaction.
        """
        return False

    def copying(self, namespaces: Sequence[str] | None = None) -> AbstractContextManager[Rows]:
        """A block in which the rows of this namespace, or of the named ones, are read from one unchanging state.

        Other namespaces need a store that was opened with `all_namespaces=True`; `NotFound` names one that does not
        exist. A backend whose namespaces have sequences of their own raises `InvalidInput` for several at once, and
        counts all numbers from `Origin.zero`.
        """

    def close(self) -> None:
        """Close the store; waits a bounded time for the background work. Safe to call twice."""

    def update_settings(self, node: str, decide: Decide, then: Callable[[Transaction], None] | None = None) -> None:
        """Agree on settings with every other process: `decide` gets the stored ones and returns the valid ones.

        They are written in the same transaction, so if two processes open a new store at once, the second gets the
        settings of the first. `decide` may be called twice. If a setting changes, `then` runs in the same
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

    def set_retention(self, retention: Retention | None) -> None:
        """Set the retention rule of this namespace, for every process; None removes it."""
        if retention is not None and not isinstance(retention, Retention):
            raise InvalidInput(f"a retention rule must be a Retention record, not {type(retention).__name__}")
        with self.transaction() as transaction:
            transaction.put_settings("", {"retention": None if retention is None else asdict(retention)})
