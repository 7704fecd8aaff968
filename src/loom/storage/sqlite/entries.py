"""Entries, blobs and jobs, which are stored beside the records, by role."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from loom.errors import CorruptStore, InvalidInput, VersionConflictError
from loom.steps import step
from loom.storage import contract
from loom.storage.contract import MAX_ATTEMPTS, Entry, EntryChange, FlushReport, Job, check_limit
from loom.storage.databases import Connection
from loom.storage.identity import entry_guard
from loom.storage.moments import from_micros
from loom.storage.sqlite.rows import ENTRY_COLUMNS, Reader, Writer, dump_json

__all__ = [
    "EMPTY_ENTRIES",
    "ENTRY_PLACE",
    "LAST_ENTRY",
    "BlobWrites",
    "Blobs",
    "Entries",
    "EntryWrites",
    "JobWrites",
    "Jobs",
    "StoredEntry",
]

# The most records set aside that a report names.
_MOST_NAMED = 20

ENTRY_PLACE = "namespace = ? AND scope = ? AND owner = ? AND key = ?"
"""SQL for the versions of one entry."""

# The keys of one scope and owner that start with a prefix. The index finds each key from the one before. A key with a
# million versions costs no more than another.
_KEYS = (
    "WITH RECURSIVE keys (name) AS (SELECT min(key) FROM entries WHERE namespace = :namespace AND scope = :scope "
    "AND owner = :owner AND key >= :prefix UNION ALL SELECT (SELECT min(key) FROM entries WHERE "
    "namespace = :namespace AND scope = :scope AND owner = :owner AND key > keys.name) FROM keys "
    "WHERE substr(keys.name, 1, :length) = :prefix), found (name) AS (SELECT name FROM keys "
    "WHERE substr(name, 1, :length) = :prefix)"
)

_NEWEST_OF_FOUND = (
    "FROM found CROSS JOIN entries e ON e.namespace = :namespace "
    "AND e.scope = :scope AND e.owner = :owner AND e.key = found.name AND e.version = "
    "(SELECT max(version) FROM entries n WHERE n.namespace = :namespace AND n.scope = :scope "
    "AND n.owner = :owner AND n.key = found.name) WHERE NOT e.deleted"
)

EMPTY_ENTRIES = "UPDATE entries SET deleted = TRUE, content = NULL, metadata = NULL, checksum = 0"
"""Empties versions in place; see `loom.storage.sqlite.schema`."""

_INSERT_ENTRY = (
    f"INSERT INTO entries (seq, namespace, {ENTRY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
LAST_ENTRY = "SELECT max(seq) FROM entries"
_JOB_COLUMNS = "seq, kind, record, data, attempts, error"


class StoredEntry(NamedTuple):
    """One version of an entry, as a row of its table."""

    deleted: bool
    scope: str
    owner: str
    key: str
    version: int
    created_by: str
    updated_by: str
    created_at: int
    updated_at: int
    metadata: str | None
    content: str
    checksum: int

    def guard(self) -> int:
        return entry_guard(self[1:-1])

    def unpack(self) -> Entry:
        """The entry. Raises `CorruptStore` if the row does not match its checksum."""
        if self.guard() != self.checksum:
            raise CorruptStore(
                f"entry {self.key!r} does not match its checksum: the file was damaged; restore a backup"
            )
        return Entry(
            self.key,
            json.loads(self.content),
            self.version,
            self.scope,
            self.owner,
            self.created_by,
            self.updated_by,
            from_micros(self.created_at),
            from_micros(self.updated_at),
            json.loads(self.metadata) if self.metadata else {},
        )


class Entries(Reader, contract.Entries):
    def entry(self, key: str, *, scope: str = "local", owner: str | Sequence[str] = "") -> Entry | None:
        with self.connected() as connection:
            for one in _owners(owner):
                found = _newest(connection, (self.number, scope, one, key))
                if found is not None and not found.deleted:
                    return found.unpack()
        return None

    def entries(self, prefix: str = "", *, scope: str = "local", owner: str = "", limit: int = 100) -> list[Entry]:
        rows = self._all(
            f"{_KEYS} SELECT {ENTRY_COLUMNS} {_NEWEST_OF_FOUND} ORDER BY e.updated_at DESC, e.key LIMIT :limit",
            {**self._found_in(scope, owner, prefix), "limit": limit},
        )
        return [StoredEntry(*row).unpack() for row in rows]

    def count_entries(self, *, scope: str = "local", owner: str = "") -> int:
        query = f"{_KEYS} SELECT count(*) {_NEWEST_OF_FOUND}"
        return int(self._firsts(query, self._found_in(scope, owner, ""))[0])

    def _found_in(self, scope: str, owner: str, prefix: str) -> dict[str, Any]:
        return {
            "namespace": self.number,
            "scope": scope,
            "owner": owner,
            "prefix": prefix,
            "length": len(prefix),
        }

    def entry_history(self, key: str, *, scope: str = "local", owner: str = "") -> list[Entry]:
        rows = self._all(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE {ENTRY_PLACE} AND NOT deleted ORDER BY version",
            (self.number, scope, owner, key),
        )
        return [StoredEntry(*row).unpack() for row in rows]

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
        owners = _owners(owner)
        # Recent changes are read in log order. An index over keys would read every version ever written.
        by_number = "NOT INDEXED" if since > 0 else ""
        rows = self._all(
            f"SELECT seq, {ENTRY_COLUMNS} FROM entries e {by_number} WHERE seq > ? AND namespace = ? "
            f"AND scope = ? AND owner IN ({', '.join('?' * len(owners))}) AND substr(key, 1, ?) = ? "
            "AND NOT EXISTS (SELECT 1 FROM entries n WHERE n.namespace = e.namespace AND n.scope = e.scope "
            "AND n.owner = e.owner AND n.key = e.key AND n.version > e.version) ORDER BY seq LIMIT ?",
            (since, self.number, scope, *owners, len(prefix), prefix, limit),
        )
        changed = ((seq, StoredEntry(*row)) for seq, *row in rows)
        return [
            EntryChange(seq, one.key, one.version, one.updated_by, None if one.deleted else one.unpack())
            for seq, one in changed
        ]

    def last_entry_change(self) -> int:
        return self._firsts(LAST_ENTRY)[0] or 0


def _newest(connection: Connection, place: tuple[int, str, str, str]) -> StoredEntry | None:
    """The newest version of an entry by namespace, scope, owner and key; a deletion is a version too."""
    row = connection.execute(
        f"SELECT {ENTRY_COLUMNS} FROM entries WHERE {ENTRY_PLACE} ORDER BY version DESC LIMIT 1", place
    ).fetchone()
    return None if row is None else StoredEntry(*row)


def _owners(owner: str | Sequence[str]) -> Sequence[str]:
    return (owner,) if isinstance(owner, str) else owner


class EntryWrites(Entries, Writer, contract.EntryWrites):
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
        place = (self.number, scope, owner, key)
        last = _newest(self.connection, place)
        known = _expect(last, key, expected_version)
        merged = (json.loads(known.metadata) if known is not None and known.metadata else {}) | dict(metadata or {})
        row = StoredEntry(
            False,
            scope,
            owner,
            key,
            1 if last is None else last.version + 1,
            writer if known is None else known.created_by,
            writer,
            self.now if known is None else known.created_at,
            self.now,
            dump_json(merged, "metadata") if merged else None,
            dump_json(content, "the content of an entry"),
            0,
        )
        try:
            row = row._replace(checksum=row.guard())
        except UnicodeEncodeError as error:
            raise InvalidInput(f"the entry {key!r} holds a lone surrogate, which is not valid text") from error
        self.connection.execute(_INSERT_ENTRY, (self.next_seq(), self.number, *row))
        if not history and known is not None:
            self.connection.execute(
                f"{EMPTY_ENTRIES} WHERE {ENTRY_PLACE} AND version < ? AND NOT deleted",
                (*place, row.version),
            )
        return row.unpack()

    def delete_entry(
        self,
        key: str,
        *,
        scope: str = "local",
        owner: str = "",
        expected_version: int | None = None,
        writer: str = "",
    ) -> int:
        place = (self.number, scope, owner, key)
        known = _expect(_newest(self.connection, place), key, expected_version)
        if known is None:
            return 0
        version = known.version + 1
        self._empty_entry(place)
        gone = (True, scope, owner, key, version, "", writer, self.now, self.now, None, None, 0)
        self.connection.execute(_INSERT_ENTRY, (self.next_seq(), self.number, *gone))
        return version

    def _empty_entry(self, place: tuple[int, str, str, str]) -> None:
        self.connection.execute(f"{EMPTY_ENTRIES} WHERE {ENTRY_PLACE}", place)


def _expect(last: StoredEntry | None, key: str, expected_version: int | None) -> StoredEntry | None:
    """The newest version, or None after a deletion. Raises `VersionConflictError` if another one was expected."""
    known = None if last is None or last.deleted else last
    actual = 0 if known is None else known.version
    if expected_version is not None and expected_version != actual:
        raise VersionConflictError(key, expected_version, actual)
    return known


# -- blobs -------------------------------------------------------------------------------------------


class Blobs(Reader, contract.Blobs):
    def blob(self, key: str) -> bytes | None:
        for data, checksum in self._all(
            "SELECT data, checksum FROM blobs WHERE namespace = ? AND key = ?", (self.number, key)
        ):
            if zlib.crc32(data) != checksum:
                raise CorruptStore(f"blob {key!r} does not match its checksum: the file was damaged")
            return bytes(data)
        return None


class BlobWrites(Blobs, Writer, contract.BlobWrites):
    def put_blob(self, key: str, data: bytes) -> None:
        self.delete_blob(key)
        self.connection.execute(
            "INSERT INTO blobs (seq, namespace, key, checksum, data) VALUES (?, ?, ?, ?, ?)",
            (self.next_seq(), self.number, key, zlib.crc32(data), data),
        )

    def delete_blob(self, key: str) -> bool:
        done = self.connection.execute(
            "UPDATE blobs SET key = NULL, data = x'' WHERE namespace = ? AND key = ?", (self.number, key)
        )
        return done.rowcount > 0


# -- jobs --------------------------------------------------------------------------------------------


class Jobs(Reader, contract.Jobs):
    def jobs(self, kind: str | None = None, limit: int = 100, *, failed: bool = True) -> list[Job]:
        rows = self._all(
            f"SELECT {_JOB_COLUMNS} FROM jobs WHERE namespace = :namespace "
            f"{'' if kind is None else 'AND kind = :kind '}{'' if failed else 'AND attempts < :most '}"
            "ORDER BY seq LIMIT :limit",
            {"namespace": self.number, "kind": kind, "most": MAX_ATTEMPTS, "limit": limit},
        )
        return [
            Job(seq, kind, record, tuple(json.loads(data)) if data else (), attempts, error)
            for seq, kind, record, data, attempts, error in rows
        ]

    def set_aside(self) -> list[str]:
        # Includes a job that a process which has just opened the store tries one last time.
        rows = self._all(
            "SELECT j.kind, j.record, j.attempts, j.error, CAST(r.id AS BLOB) FROM jobs j "
            "LEFT JOIN records r ON r.seq = j.record AND j.record > 0 "
            "WHERE j.namespace = ? AND j.attempts >= ? ORDER BY j.record, j.kind LIMIT ?",
            (self.number, MAX_ATTEMPTS - 1, _MOST_NAMED),
        )
        return [
            f"record {id.decode(errors='replace')!r} (number {record}): {kind} failed {attempts} times with {error}"
            if id
            else f"{kind} failed {attempts} times with {error}"
            for kind, record, attempts, error, id in rows
        ]

    def unfinished(self) -> FlushReport:
        """The waiting jobs and the jobs given up, by kind."""
        with self.connected() as connection:
            rows = connection.execute(
                "SELECT kind, attempts >= ?, count(*) FROM jobs WHERE namespace = ? GROUP BY 1, 2",
                (MAX_ATTEMPTS, self.number),
            ).fetchall()
            failures = {kind: number for kind, failed, number in rows if failed}
            waiting = {kind: number for kind, failed, number in rows if not failed}
            return FlushReport(waiting, failures, tuple(self.set_aside()) if failures else ())


class JobWrites(Jobs, Writer, contract.JobWrites):
    queued = 0
    """The number of jobs put into the queue."""

    @step("transaction.enqueue")
    def enqueue(self, kind: str, records: Sequence[int] = (0,), data: Sequence[int] = ()) -> int:
        if not all(isinstance(number, int) for number in data):
            raise InvalidInput("a job holds only numbers; texts stay in the records")
        seq = self.next_seq()
        numbers = dump_json(list(data), "a job's data") if data else None
        self.many(
            "INSERT INTO jobs (namespace, kind, record, seq, data) VALUES (?, ?, ?, ?, ?)",
            [(self.number, kind, record, seq, numbers) for record in records],
        )
        self.queued += len(records)
        return seq

    @step("transaction.take_jobs")
    def take(self, jobs: Sequence[Job]) -> list[Job]:
        delete = "DELETE FROM jobs WHERE namespace = ? AND kind = ? AND record = ? AND seq = ?"
        return [
            job
            for job in jobs
            if self.connection.execute(delete, (self.number, job.kind, job.record, job.seq)).rowcount
        ]

    def retry(self, kind: str, record: int, error: str, *, attempts: int = 1) -> None:
        counted = self.connection.execute(
            "UPDATE jobs SET attempts = attempts + ?, error = ? WHERE namespace = ? AND kind = ? AND record = ?",
            (attempts, error, self.number, kind, record),
        )
        if not counted.rowcount:
            self.connection.execute(
                f"INSERT INTO jobs (namespace, {_JOB_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (self.number, self.next_seq(), kind, record, json.dumps([record]), attempts, error),
            )
