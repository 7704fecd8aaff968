"""The SQLite backend: one namespace of one file as a `Store`.

Writes are one `BEGIN IMMEDIATE` each and acknowledged when they are committed. Reads run on a snapshot.
Search asks the projections for candidates and the database which of them the filter admits.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from loom.errors import (
    Closed,
    CorruptStore,
    ForgetPending,
    InvalidInput,
    ReadOnly,
    SettingsConflict,
    StoreBusy,
    StoreUnavailable,
)
from loom.index.analysis import ANALYSIS_VERSION
from loom.protocol import new_id, utc_now
from loom.storage.contract import (
    FOCUS,
    HEARD,
    Access,
    Candidates,
    Change,
    CheckReport,
    Entry,
    EntryChange,
    Filter,
    FlushReport,
    ForgetReceipt,
    Job,
    Match,
    Page,
    Probe,
    Record,
    Resident,
    Retention,
    Usage,
    Vector,
)
from loom.storage.sqlite import checking, forgetting, maintenance
from loom.storage.sqlite.archive import ArchiveStats, statistics
from loom.storage.sqlite.candidates import Searcher, check_limit
from loom.storage.sqlite.counting import TOKENS, Count
from loom.storage.sqlite.engine import Clock, Engine, from_micros, to_micros, translate
from loom.storage.sqlite.filters import conditions
from loom.storage.sqlite.maintenance import MAX_ATTEMPTS, Chore, Embed
from loom.storage.sqlite.projections import (
    SCRUB,
    TEXT,
    TEXT_BASIS,
    VECTORS,
    TailLimit,
    active_space,
    count_up,
    index_folder,
    last_number,
    read_state,
    start_over,
    vector_basis,
)
from loom.storage.sqlite.residency import WINDOW, places_of, residents, resides, totals, window
from loom.storage.sqlite.rows import (
    ENTRY_COLUMNS,
    RECORD_COLUMNS,
    dump_json,
    id_hash,
    is_names,
    read_newest,
    read_records,
    read_settings,
    to_entry,
    to_job,
    to_record,
)
from loom.storage.sqlite.transactions import EMBED, EMPTY_VECTORS, SqliteTransaction, read_vectors
from loom.storage.sqlite.worker import LeaseLost
from loom.trust import check_store

__all__ = ["SqliteStore"]


class SqliteStore:
    """One namespace of one SQLite file, or of a database in memory. See `loom.storage.contract.Store`."""

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        namespace: str = "default",
        read_only: bool = False,
        durability: str = "commit",
        busy_timeout_s: float = 30.0,
        close_timeout_s: float = 5.0,
        tail: TailLimit = TailLimit(),  # noqa: B008
        lease_s: float = 10.0,
        max_bytes: int | None = None,
        archive_after_days: float | None = None,
        clock: Clock = utc_now,
    ) -> None:
        if not namespace:
            raise InvalidInput("a namespace needs a name")
        if path is not None:
            check_store(path)
        self._name = namespace
        self._close_timeout_s = close_timeout_s
        self._engine = Engine.acquire(
            path,
            read_only=read_only,
            durability=durability,
            busy_timeout_s=busy_timeout_s,
            max_bytes=max_bytes,
            clock=clock,
        )
        self._closed = False
        try:
            number = self._namespace_number(namespace)
            self._number = number
            self._maintenance = maintenance.join(self._engine, number, tail, lease_s)
            if archive_after_days is not None:
                self._maintenance.archive_after_s = archive_after_days * 86_400
            self._searcher = Searcher(self._engine, self._maintenance)
            self._agree_on_analyzer()
            if not read_only and self._pending(SCRUB):
                self._maintenance.worker.wake()
        except BaseException:
            self._engine.release()
            raise

    # -- identity ----------------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        return self._name

    @property
    def read_only(self) -> bool:
        return self._engine.read_only

    @property
    def path(self) -> Path | None:
        return self._engine.path

    def clock(self) -> datetime:
        """The time by this store's clock."""
        return self._engine.clock()

    @property
    def store_id(self) -> str:
        return self._engine.store_id

    def namespaces(self) -> list[str]:
        """The names of the namespaces in this file, in the order in which they were made."""
        with self._reading() as connection:
            return [str(row[0]) for row in connection.execute("SELECT name FROM namespaces ORDER BY number")]

    def nodes(self) -> list[str]:
        """The nodes that have settled their settings in this namespace."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT DISTINCT node FROM settings WHERE namespace = ? AND node != '' ORDER BY node", (self._number,)
            ).fetchall()
        return [row[0] for row in rows]

    def _namespace_number(self, name: str) -> int:
        with self._reading() as connection:
            row = connection.execute("SELECT number FROM namespaces WHERE name = ?", (name,)).fetchone()
        if row is not None:
            return int(row[0])
        if self._engine.read_only:
            return 0  # no such namespace yet: everything is empty
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO namespaces (name) VALUES (?)", (name,))
            row = connection.execute("SELECT number FROM namespaces WHERE name = ?", (name,)).fetchone()
        return int(row[0])

    def _agree_on_analyzer(self) -> None:
        """A newer analyser replaces the index; an older program must not fight over it."""
        wanted = ANALYSIS_VERSION
        found = self.settings().get("analyzer")
        if found == wanted:
            return
        if found is not None and found > wanted:
            raise SettingsConflict(
                f"this store's text index was made by a newer loom (analyser {found}, here {wanted}); upgrade: "
                "pip install --upgrade loomkeep"
            )
        if self.read_only:
            return
        with self._writing() as connection:
            if found is not None:
                start_over(connection, self._number, TEXT, TEXT_BASIS)
            self._put_setting(connection, "", "analyzer", wanted)

    # -- settings that must agree --------------------------------------------------------------------

    def settings(self, node: str = "") -> dict[str, Any]:
        """What the file says about a node (the empty node: about the whole namespace)."""
        with self._reading() as connection:
            return read_settings(connection, self._number, node)

    def update_settings(
        self,
        node: str,
        decide: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        then: Callable[[SqliteTransaction], None] | None = None,
    ) -> None:
        """Agree on settings with every other process: `decide` sees what the file has and says what holds.

        What it answers is written in the same transaction, so two processes that open a new file at once
        cannot both have their way. It may be called twice. Where settings change, `then` does what follows
        from that, in the same transaction.
        """
        found = self.settings(node)
        wanted = decide(found)
        if all(found.get(key) == value for key, value in wanted.items()):
            return
        if self.read_only:
            if found and any(found[key] != value for key, value in wanted.items() if key in found):
                raise ReadOnly("settings cannot be changed in a store that was opened read-only")
            return
        with self.transaction() as transaction:
            connection = transaction.connection
            found = read_settings(connection, self._number, node)
            for key, value in decide(found).items():
                if found.get(key) != value:
                    self._put_setting(connection, node, key, value)
            if then is not None:
                then(transaction)

    def _put_setting(self, connection: sqlite3.Connection, node: str, key: str, value: Any) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO settings (namespace, node, key, value) VALUES (?, ?, ?, ?)",
            (self._number, node, key, dump_json(value, f"the setting {key}")),
        )
        connection.execute(
            "INSERT INTO settings (namespace, node, key, value) VALUES (?, '', 'revision', '1') "
            "ON CONFLICT DO UPDATE SET value = value + 1",
            (self._number,),
        )
        count_up(connection)

    def use_embedder(self, name: str, dimensions: int, embed: Embed | None, *, reconfigure: bool = False) -> None:
        """Say which embedding space this namespace uses, and how to embed its texts in this process.

        Another space than the file's raises `SettingsConflict`; with `reconfigure` every record is embedded
        again in the background, and until then found by words. Spaces are never mixed.
        """
        with self._reading() as connection:
            row = connection.execute(
                "SELECT s.number, s.name, s.dimensions FROM settings JOIN spaces s ON s.number = value "
                "WHERE namespace = ? AND node = '' AND key = 'space'",
                (self._number,),
            ).fetchone()
        if row is None or (row[1], row[2]) != (name, dimensions):
            if row is not None and not reconfigure:
                raise SettingsConflict(
                    f"this memory is embedded with {row[1]} ({row[2]} dimensions), not {name} ({dimensions}). "
                    "Open it with that embedder, or with reconfigure=True to embed everything again."
                )
            if self.read_only:
                return
            self._change_space(name, dimensions)
        with self._reading() as connection:
            space = active_space(connection, self._number)
        self._maintenance.use(space[0] if space is not None else None, embed)
        if embed is not None and not self.read_only:
            self._try_again(EMBED)
            self._maintenance.worker.wake()

    def count_with(self, counters: Mapping[str, Count]) -> None:
        """Count the tokens of records that were written without with these, by the name that each record has."""
        self._engine.counts.use(counters)

    def add_chore(self, owner: object, chore: Chore) -> None:
        """Let a piece of background work of a layer above be done whenever there is time, until `remove_chores`."""
        self.check_open()
        if not self.read_only:
            self._maintenance.give_chore(owner, chore)

    def wake_worker(self) -> None:
        """Let the chores be looked at now, and not when there is time."""
        self._maintenance.wake_worker()

    def remove_chores(self, *owners: object) -> None:
        """Do the background work of these no more."""
        self._maintenance.take_chores(owners, self._close_timeout_s)

    def _try_again(self, kind: str) -> None:
        """Give jobs that were given up another chance: a new process may have a better embedder."""
        with self._reading() as connection:
            failed = connection.execute(
                "SELECT 1 FROM jobs WHERE namespace = ? AND kind = ? AND attempts > 0 LIMIT 1", (self._number, kind)
            ).fetchone()
        if failed:
            with self._writing() as connection:
                connection.execute(
                    "UPDATE jobs SET attempts = 0, error = NULL WHERE namespace = ? AND kind = ?",
                    (self._number, kind),
                )

    def _change_space(self, name: str, dimensions: int) -> None:
        with self.transaction() as transaction:
            connection = transaction.connection
            connection.execute("INSERT OR IGNORE INTO spaces (name, dimensions) VALUES (?, ?)", (name, dimensions))
            (number,) = connection.execute(
                "SELECT number FROM spaces WHERE name = ? AND dimensions = ?", (name, dimensions)
            ).fetchone()
            self._put_setting(connection, "", "space", number)
            transaction.next_seq()
            start_over(connection, self._number, VECTORS, vector_basis(number))
            connection.execute(EMPTY_VECTORS + "namespace = ? AND space != ?", (self._number, number))
            connection.execute("DELETE FROM jobs WHERE namespace = ? AND kind = ?", (self._number, EMBED))
            missing = connection.execute(
                "SELECT r.seq FROM records r LEFT JOIN vectors v ON v.record = r.seq AND v.space = ? "
                f"WHERE r.namespace = ? AND r.version > 0 AND v.seq IS NULL AND NOT {is_names()}",
                (number, self._number),
            ).fetchall()
            connection.executemany(
                "INSERT INTO jobs (namespace, kind, record, seq) VALUES (?, ?, ?, ?)",
                [(self._number, EMBED, record, transaction.next_seq()) for (record,) in missing],
            )

    @property
    def space(self) -> tuple[str, int] | None:
        """Name and dimensions of the embedding space in use, if there is one."""
        with self._reading() as connection:
            return self._space_in(connection)

    def _space_in(self, connection: sqlite3.Connection) -> tuple[str, int] | None:
        row = connection.execute(
            "SELECT s.name, s.dimensions FROM settings JOIN spaces s ON s.number = value "
            "WHERE namespace = ? AND node = '' AND key = 'space'",
            (self._number,),
        ).fetchone()
        return None if row is None else (str(row[0]), int(row[1]))

    # -- writing -------------------------------------------------------------------------------------

    def transaction(self) -> _TransactionScope:
        """Write several things at once; committed at the end, or not at all."""
        self.check_open()
        return _TransactionScope(self)

    def touch(self, records: Iterable[int], node: str) -> None:
        """Note that records were used. Buffered; what is not flushed may be lost in a crash."""
        now = to_micros(self._engine.clock())
        own = self._maintenance
        with own.access_lock:
            for record in records:
                times = own.accesses.setdefault((node, record), [])
                times.append(now)
            full = len(own.accesses) >= 256
        if full:
            self.flush_accesses()

    def uses(self, record: int, node: str) -> int:
        """How often a node used a record, what is still buffered here included."""
        own = self._maintenance
        with self._reading() as connection:
            row = connection.execute(
                "SELECT count FROM accesses WHERE namespace = ? AND node = ? AND record = ?",
                (self._number, node, record),
            ).fetchone()
        with own.access_lock:
            return (row[0] if row else 0) + len(own.accesses.get((node, record), ()))

    def count_lookup(self, node: str, tier: str, hit: bool) -> None:
        """Note whether something that was asked for was in a tier. Buffered like the uses."""
        own = self._maintenance
        with own.access_lock:
            own.lookups.setdefault((node, tier), [0, 0])[0 if hit else 1] += 1

    def flush_accesses(self) -> None:
        """Write the buffered accesses."""
        own = self._maintenance
        if not self.read_only and (own.accesses or own.lookups):
            with self._writing() as connection:
                own.write_accesses(connection)

    def accesses(self, records: Iterable[int], node: str) -> dict[int, Access]:
        """How often and when records were used by a node; those never used are missing."""
        self.flush_accesses()
        wanted = list(records)
        found: dict[int, Access] = {}
        with self._reading() as connection:
            for record in wanted:
                row = connection.execute(
                    "SELECT count, last_at, previous_at FROM accesses WHERE namespace = ? AND node = ? "
                    "AND record = ?",
                    (self._number, node, record),
                ).fetchone()
                if row is not None:
                    previous = None if row[2] is None else from_micros(row[2])
                    found[record] = Access(row[0], from_micros(row[1]), previous)
        return found

    # -- reading -------------------------------------------------------------------------------------

    def get(self, id: str) -> Record | None:
        """The newest version under an id, or None."""
        self.check_open()
        with self._reading() as connection:
            return read_newest(connection, self._number, id)

    def history(self, id: str) -> list[Record]:
        """Every version under an id, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {RECORD_COLUMNS} FROM records r WHERE r.id_hash = ? AND r.id = ? ORDER BY r.version",
                (id_hash(self._number, id), id),
            ).fetchall()
        return [to_record(row) for row in rows]

    def records(self, seqs: Iterable[int]) -> dict[int, Record]:
        """Records by their numbers; those that do not exist are missing."""
        self.check_open()
        with self._reading() as connection:
            return read_records(connection, self._number, seqs)

    def scan(self, wanted: Filter, *, limit: int = 100, after: int | None = None, newest_first: bool = True) -> Page:
        """A page of the records that a filter admits, in the order in which they were written."""
        self.check_open()
        check_limit(limit)
        if after is not None and not isinstance(after, int):
            raise InvalidInput(f"after is the `next` of an earlier page, not {after!r}")
        order = "DESC" if newest_first else "ASC"
        with self._reading() as connection:
            where, values = conditions(wanted, self._number, connection)
            if after is not None:
                where += " AND r.seq < ?" if newest_first else " AND r.seq > ?"
                values.append(after)
            rows = connection.execute(
                f"SELECT {RECORD_COLUMNS} FROM records r WHERE {where} ORDER BY r.seq {order} LIMIT ?",
                (*values, limit + 1),
            ).fetchall()
        more = len(rows) > limit
        records = tuple(to_record(row) for row in rows[:limit])
        return Page(records, records[-1].seq if more else None)

    def count(self, wanted: Filter) -> int:
        with self._reading() as connection:
            where, values = conditions(wanted, self._number, connection)
            return int(connection.execute(f"SELECT count(*) FROM records r WHERE {where}", values).fetchone()[0])

    def neighbours(self, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ids that a record was derived from, and the ids that were derived from it."""
        own = id_hash(self._number, id)
        with self._reading() as connection:
            sources, derived = (
                tuple(
                    row[0]
                    for row in connection.execute(
                        f"SELECT DISTINCT r.id FROM edges e JOIN records r ON r.id_hash = e.{far} "
                        f"WHERE e.{near} = ? ORDER BY r.id",
                        (own,),
                    )
                )
                for far, near in (("source", "derived"), ("derived", "source"))
            )
        return sources, derived

    def vectors(self, records: Iterable[int]) -> dict[int, Vector]:
        """The embeddings of records; those that have none yet are missing."""
        with self._reading() as connection:
            return read_vectors(connection, self._number, records)

    def replaced(self, seqs: Iterable[int]) -> set[int]:
        """Which of these records something was drawn from that stands for them in a tier, or did until undone."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT r.seq FROM records r WHERE r.seq IN (SELECT value FROM json_each(?)) AND EXISTS ("
                "SELECT 1 FROM edges e JOIN records d ON d.id_hash = e.derived "
                "JOIN derivations v ON v.record = d.seq "
                "WHERE e.source = r.id_hash AND v.replaces)",
                (json.dumps([*seqs]),),
            )
            return {row[0] for row in rows}

    def progress(self, name: str) -> tuple[int, int]:
        """Up to which record a piece of work that follows the log has come, and how far the log has."""
        with self._reading() as connection:
            return read_state(connection, self._number, name).watermark, last_number(connection)

    def pinned(self, id: str) -> bool:
        with self._reading() as connection:
            row = connection.execute("SELECT 1 FROM pins WHERE id_hash = ?", (id_hash(self._number, id),)).fetchone()
        return row is not None

    def tiers(self, record: int, node: str) -> tuple[str, ...]:
        """The tiers of a node that hold a record, nearest the prompt first."""
        with self._reading() as connection:
            recent = (WINDOW,) if any(seq == record for seq, _ in window(connection, self._number, node)) else ()
            places = places_of(connection, self._number, record)
        return recent + tuple(tier for where, tier in places if where == node and tier not in (HEARD, FOCUS))

    def usage(self, node: str) -> dict[str, Usage]:
        """What each tier of a node holds; a tier that was never used is missing."""
        with self._reading() as connection:
            recent = window(connection, self._number, node)
            found = totals(connection, self._number, node)
        return {WINDOW: Usage(len(recent), sum(tokens for _, tokens in recent))} | found

    def original_tokens(self, node: str, tier: str) -> int:
        """The tokens of the records behind a tier other than the window, whatever stands for them there."""
        with self._reading() as connection:
            (tokens,) = connection.execute(
                f"SELECT ifnull(sum({TOKENS}), 0) FROM residents p JOIN records r ON r.seq = p.record "
                "WHERE p.namespace = ? AND p.node = ? AND p.tier = ?",
                (self._number, node, tier),
            ).fetchone()
        return int(tokens)

    def following(self, record: int, limit: int) -> list[int]:
        """The records that were written next in the session of one, the nearest first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT n.seq FROM records r JOIN records n ON n.session_hash = r.session_hash AND n.seq > r.seq "
                "WHERE r.seq = ?1 AND r.namespace = ?2 AND n.namespace = ?2 AND n.version > 0 "
                "ORDER BY n.seq LIMIT ?3",
                (record, self._number, limit),
            ).fetchall()
        return [seq for (seq,) in rows]

    def residents(self, node: str, tier: str) -> list[Resident]:
        """Who is in a tier other than the window, oldest arrival first."""
        self.flush_accesses()
        with self._reading() as connection:
            return residents(connection, self._number, node, tier)

    def resides(self, record: int, tier: str, node: str) -> bool:
        """Whether a record is in a tier other than the window."""
        with self._reading() as connection:
            return resides(connection, self._number, record, tier, node)

    def absent(self, records: Iterable[int], tier: str, node: str) -> list[tuple[int, float, str]]:
        """Number, importance and kind of those records that are not in a tier other than the window."""
        with self._reading() as connection:
            return connection.execute(
                "SELECT r.seq, r.importance, r.kind FROM records r WHERE r.seq IN (SELECT value FROM json_each(?1)) "
                "AND r.namespace = ?2 AND r.version > 0 AND NOT EXISTS (SELECT 1 FROM residents p "
                "WHERE p.namespace = ?2 AND p.node = ?3 AND p.tier = ?4 AND p.record = r.seq) ORDER BY r.seq",
                (json.dumps([*records]), self._number, node, tier),
            ).fetchall()

    def window(self, node: str) -> list[tuple[int, int]]:
        """Number and tokens of each record in the node's window, newest first."""
        with self._reading() as connection:
            return window(connection, self._number, node)

    def entry(self, key: str, *, scope: str = "local", owner: str | Sequence[str] = "") -> Entry | None:
        """The newest version of an entry, or None. Of several owners, that of the first who has one."""
        with self._reading() as connection:
            for one in (owner,) if isinstance(owner, str) else owner:
                row = connection.execute(
                    f"SELECT {ENTRY_COLUMNS} FROM entries WHERE namespace = ? AND scope = ? AND owner = ? "
                    "AND key = ? ORDER BY version DESC LIMIT 1",
                    (self._number, scope, one, key),
                ).fetchone()
                if row is not None and not row[0]:
                    return to_entry(row)
        return None

    def entries(self, prefix: str = "", *, scope: str = "local", owner: str = "", limit: int = 100) -> list[Entry]:
        """The newest versions of the entries whose keys start with a prefix, last updated first."""
        with self._reading() as connection:
            rows = connection.execute(
                f"{_KEYS} SELECT {ENTRY_COLUMNS} FROM found CROSS JOIN entries e ON e.namespace = :namespace "
                "AND e.scope = :scope AND e.owner = :owner AND e.key = found.name AND e.version = "
                "(SELECT max(version) FROM entries n WHERE n.namespace = :namespace AND n.scope = :scope "
                "AND n.owner = :owner AND n.key = found.name) WHERE NOT e.deleted "
                "ORDER BY e.updated_at DESC, e.key LIMIT :limit",
                {
                    "namespace": self._number,
                    "scope": scope,
                    "owner": owner,
                    "prefix": prefix,
                    "length": len(prefix),
                    "limit": limit,
                },
            ).fetchall()
        return [to_entry(row) for row in rows]

    def entry_history(self, key: str, *, scope: str = "local", owner: str = "") -> list[Entry]:
        """Every version of an entry since it was last deleted, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {ENTRY_COLUMNS} FROM entries WHERE namespace = ? AND scope = ? AND owner = ? AND key = ? "
                "AND NOT deleted ORDER BY version",
                (self._number, scope, owner, key),
            ).fetchall()
        return [to_entry(row) for row in rows]

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
        check_limit(limit)
        owners = (owner,) if isinstance(owner, str) else tuple(owner)
        # By number where only the latest are wanted: by key it would look at every version there ever was.
        by_number = "NOT INDEXED" if since > 0 else ""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT seq, {ENTRY_COLUMNS} FROM entries e {by_number} WHERE seq > ? AND namespace = ? "
                f"AND scope = ? AND owner IN ({', '.join('?' * len(owners))}) AND substr(key, 1, ?) = ? "
                "AND NOT EXISTS (SELECT 1 FROM entries n WHERE n.namespace = e.namespace AND n.scope = e.scope "
                "AND n.owner = e.owner AND n.key = e.key AND n.version > e.version) ORDER BY seq LIMIT ?",
                (since, self._number, scope, *owners, len(prefix), prefix, limit),
            ).fetchall()
        return [EntryChange(row[0], row[4], row[5], row[7], None if row[1] else to_entry(row[1:])) for row in rows]

    def last_entry_change(self) -> int:
        """The sequence number of the last change to an entry of any namespace; 0 where there was none."""
        with self._reading() as connection:
            return int(connection.execute("SELECT max(seq) FROM entries").fetchone()[0] or 0)

    def blob(self, key: str) -> bytes | None:
        """The bytes under a key, or None; damaged bytes raise `CorruptStore`."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT data, checksum FROM blobs WHERE namespace = ? AND key = ?", (self._number, key)
            ).fetchone()
        if row is None:
            return None
        if zlib.crc32(row[0]) != row[1]:
            raise CorruptStore(f"blob {key!r} does not match its checksum: the file was damaged")
        return bytes(row[0])

    def changes(self, since: int, limit: int = 1000) -> list[Change]:
        """What happened after a sequence number, in order."""
        check_limit(limit)
        union = " UNION ALL ".join(
            f"SELECT * FROM (SELECT {columns} FROM {table} WHERE namespace = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3)"
            for columns, table in _CHANGES
        )
        with self._reading() as connection:
            rows = connection.execute(f"{union} ORDER BY 1 LIMIT ?3", (self._number, since, limit)).fetchall()
        return [Change(*row) for row in rows]

    def jobs(self, kind: str | None = None, limit: int = 100) -> list[Job]:
        """Work that is queued or has failed, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT seq, kind, record, data, attempts, error FROM jobs WHERE namespace = ?1 "
                "AND (?2 IS NULL OR kind = ?2) ORDER BY seq LIMIT ?3",
                (self._number, kind, limit),
            ).fetchall()
        return list(map(to_job, rows))

    # -- searching -----------------------------------------------------------------------------------

    def search_text(self, query: Mapping[str, float], limit: int, wanted: Filter) -> list[Match]:
        """The best records by their words (BM25), among those the filter admits."""
        self.check_open()
        return self._searcher.search_text(query, limit, wanted)

    def search_vectors(self, query: Vector, limit: int, wanted: Filter) -> list[Match]:
        """The best records by cosine similarity, among those the filter admits and that are embedded."""
        self.check_open()
        return self._searcher.search_vectors(query, limit, wanted)

    def candidates(self, probe: Probe, limit: int, vector_limit: int, wanted: Filter) -> Candidates:
        """The best by words, meaning, conversation and what they share with others, with all that is known of each.

        Up to `limit` by words and `vector_limit` by meaning; what the filter does not admit is in none of them.
        """
        self.check_open()
        return self._searcher.candidates(probe, limit, vector_limit, wanted)

    def rebuild(self, kind: str) -> None:
        """Make a projection (`text` or `vectors`) again from the records."""
        self.check_open()
        self._searcher.rebuild(kind)

    # -- background work -----------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> FlushReport:
        """Wait until everything committed before this call, by any process, is processed.

        Work that nobody here can do (no embedder in this process) is reported as waiting, not waited for.
        """
        self.check_open()
        if self.read_only:
            return self._undone()
        self.flush_accesses()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        own = self._maintenance
        if self._engine.path is None and own.embed is None and not own.chores:
            return self._undone()
        while True:
            left = 3600.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return self._undone()
            try:
                with own.worker.lease(wait_s=min(left, 5.0)) as fence:
                    if fence is None:
                        continue
                    while own.step(fence, thorough=True):
                        if deadline is not None and time.monotonic() >= deadline:
                            return self._undone()
            except LeaseLost:
                continue
            except ForgetPending:
                return self._undone()
            if not self._retrying():
                return self._undone()
            time.sleep(0.05)

    def _retrying(self) -> bool:
        """Whether a failed job of ours will be tried again soon."""
        if self._maintenance.embed is None or self._maintenance.embedder_is_down:
            return False
        with self._reading() as connection:
            row = connection.execute(
                "SELECT 1 FROM jobs WHERE namespace = ? AND kind = ? AND attempts < ? LIMIT 1",
                (self._number, EMBED, MAX_ATTEMPTS),
            ).fetchone()
        return row is not None

    def _undone(self) -> FlushReport:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT kind, attempts >= ?, count(*) FROM jobs WHERE namespace = ? GROUP BY 1, 2",
                (MAX_ATTEMPTS, self._number),
            ).fetchall()
        return FlushReport(
            waiting={kind: count for kind, failed, count in rows if not failed},
            failed={kind: count for kind, failed, count in rows if failed},
        )

    def _pending(self, kind: str) -> bool:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT 1 FROM jobs WHERE namespace = ? AND kind = ? LIMIT 1", (self._number, kind)
            ).fetchone()
        return row is not None

    # -- forgetting and keeping whole ------------------------------------------------------------------

    def forget(self, wanted: Filter, timeout_s: float = 10.0) -> ForgetReceipt:
        """Remove records for good, with every version and everything derived from them.

        Returns when no place holds them any more; raises `ForgetPending` where something stands in the way
        for longer than `timeout_s`, and goes on by itself.
        """
        self.check_open()
        self.flush_accesses()
        with self.transaction() as transaction:
            where, values = conditions(wanted, self._number, transaction.connection)
            receipt = forgetting.remove(transaction, self._engine.archive, where, values)
        if not receipt:
            return receipt
        own = self._maintenance
        try:
            segments = forgetting.scrub(
                self._engine, self._number, own.worker, own.projector, time.monotonic() + timeout_s
            )
        except ForgetPending:
            own.look_after = 0.0
            own.worker.wake()  # it goes on by itself
            raise
        return replace(receipt, segments=segments)

    def keep(self, retention: Retention | None) -> None:
        """State the retention rule of this namespace, for every process; None removes it."""
        if retention is not None and not isinstance(retention, Retention):
            raise InvalidInput(f"a retention rule is a Retention record, not {type(retention).__name__}")
        rule = (
            None
            if retention is None
            else {
                "max_age_days": retention.max_age_days,
                "max_records": retention.max_records,
                "max_bytes": retention.max_bytes,
            }
        )
        with self._writing() as connection:
            self._put_setting(connection, "", "retention", rule)

    @property
    def retention(self) -> Retention | None:
        with self._reading() as connection:
            return forgetting.retention(connection, self._number)

    def apply_retention(self) -> ForgetReceipt:
        """Forget what the stated rule no longer keeps; nothing where there is no rule."""
        rule = self.retention
        if rule is None:
            return ForgetReceipt(())
        with self._reading() as connection:
            expired = forgetting.expired(connection, self._number, rule, to_micros(self._engine.clock()))
        if not expired:
            return ForgetReceipt(())
        return self.forget(Filter(ids=expired, history=True))

    def check(self, repair: bool = True) -> CheckReport:
        """Verify checksums, counts and projections; rebuild what can be rebuilt from the records."""
        self.check_open()
        self.flush_accesses()
        return checking.check(self, repair and not self.read_only)

    def archive(self, before: datetime | None = None) -> ArchiveStats:
        """Compress the words of every record committed before a moment (now); what the archive holds then.

        Nothing changes for a reader. The file itself shrinks with the next `vacuum`.
        """
        self.check_open()
        moment = to_micros(self._engine.clock() if before is None else before)
        while True:
            try:
                with self._maintenance.worker.lease(wait_s=60.0) as fence:  # our own worker may be at a large merge
                    if fence is None:
                        raise StoreBusy("another process is doing the background work; try again when it is done")
                    while self._maintenance.archive_some(fence, moment, whole=True):
                        pass
                break
            except LeaseLost:
                continue
        return self.archived()

    def compress_at(self, level: int) -> None:
        """Let this process archive at another level of compression, from 1 (quick) to 22 (small)."""
        if not 1 <= level <= 22:
            raise InvalidInput(f"a level of compression is from 1 to 22, not {level!r}")
        self._maintenance.archive_level = level

    def archived(self) -> ArchiveStats:
        """What the archive holds."""
        with self._reading() as connection:
            return statistics(connection, self._number)

    def vacuum(self) -> int:
        """Give free pages back to the disk and merge the index; how many bytes the file shrank by."""
        self.check_open()
        if self._engine.path is None:
            return 0
        with self._maintenance.worker.lease(wait_s=10.0) as fence:
            while fence is not None and self._maintenance.rest(fence):
                pass
        before = os.stat(self._engine.path).st_size
        with self._writing() as connection:  # the empty rows of what was forgotten go with it
            count_up(connection)  # their numbers are not used again
            connection.execute("DELETE FROM records WHERE version = 0")
            connection.execute("DELETE FROM vectors WHERE record IS NULL")
            connection.execute("DELETE FROM blobs WHERE key IS NULL")
            connection.execute("DELETE FROM blocks WHERE records = 0")
            connection.execute(
                "DELETE FROM dictionaries WHERE length(phrases) = 0 "
                "AND number NOT IN (SELECT dictionary FROM blocks WHERE records > 0)"
            )
        with self._engine.maintenance() as connection:
            connection.execute("VACUUM")
        self._engine.truncate_wal()
        return before - os.stat(self._engine.path).st_size

    def backup(self, path: str | Path) -> None:
        """A consistent copy of the whole file while others go on writing; replaces `path` when complete."""
        self.check_open()
        target = Path(path).expanduser().absolute()
        if not target.parent.is_dir():
            raise StoreUnavailable(f"the folder {target.parent} does not exist; create it first")
        if self._engine.path is not None and target == self._engine.path:
            raise InvalidInput("a backup cannot replace the store it is made from; choose another path")
        _settle_target(target)
        temporary = target.with_name(f".{target.name}.{new_id()}.tmp")
        try:
            copy = sqlite3.connect(temporary)
            try:
                if self._engine.path is None:
                    with self._reading() as connection:
                        connection.backup(copy)
                else:
                    with self._engine.private_connection() as source:
                        source.backup(copy, pages=4096, sleep=0.001)
                copy.execute("PRAGMA journal_mode = DELETE")
            finally:
                copy.close()
            os.replace(temporary, target)
        except sqlite3.Error as error:
            raise translate(error, target) or error from error
        except OSError as error:
            raise StoreUnavailable(f"the backup to {target} was not made: {error.strerror}") from error
        finally:
            with suppress(OSError):  # a folder that cannot be written: the error above says so
                temporary.unlink(missing_ok=True)

    def stats(self) -> dict[str, int]:
        """Counts and sizes, as they are stored now."""
        with self._reading() as connection:
            return {
                name: int(connection.execute(query, {"namespace": self._number}).fetchone()[0] or 0)
                for name, query in _STATISTICS.items()
            }

    # -- life ------------------------------------------------------------------------------------------

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        self.check_open()
        return self._engine.read()

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        self.check_open()
        return self._engine.write()

    def check_open(self) -> None:
        """Raise `Closed` unless the store is open."""
        if self._closed:
            raise Closed("the memory is closed; open it again to use it")

    def close(self) -> None:
        """Let go of the store; waits a bounded time for the background work. Safe to call twice."""
        if self._closed:
            return
        try:
            self.flush_accesses()
            self._closed = True
            if maintenance.part(self._maintenance):
                self._maintenance.worker.stop(self._close_timeout_s)
        finally:
            self._engine.release()


class _TransactionScope:
    """`with store.transaction() as transaction:`"""

    __slots__ = ("_store", "_transaction", "_writing")

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._writing = store._engine.write()

    def __enter__(self) -> SqliteTransaction:
        now = to_micros(self._store._engine.clock())
        connection = self._writing.__enter__()
        try:
            self._transaction = SqliteTransaction(
                connection, self._store._number, now, self._store._maintenance.write_accesses
            )
        except BaseException as failure:
            self._writing.__exit__(type(failure), failure, None)
            raise
        return self._transaction

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        transaction = self._transaction
        if error is None:
            try:
                transaction.finish()
            except BaseException as failure:
                self._writing.__exit__(type(failure), failure, None)
                raise
        self._writing.__exit__(kind, error, trace)
        if error is None and (transaction.appended or transaction.queued):
            self._store._maintenance.wrote(transaction)


_STATISTICS = {
    "records": "SELECT count(*) FROM records r WHERE namespace = :namespace AND version > 0 "
    "AND NOT EXISTS (SELECT 1 FROM derivations d WHERE d.record = r.seq)",
    "derived": "SELECT count(*) FROM derivations WHERE namespace = :namespace",
    "superseded": "SELECT count(*) FROM supersessions s JOIN records r ON r.seq = s.record "
    "WHERE r.namespace = :namespace",
    "tokens": f"SELECT sum({TOKENS}) FROM records r WHERE namespace = :namespace "
    "AND NOT EXISTS (SELECT 1 FROM derivations d WHERE d.record = r.seq)",
    "vectors": "SELECT count(*) FROM vectors WHERE namespace = :namespace AND record IS NOT NULL",
    "entries": "SELECT count(*) FROM entries e WHERE namespace = :namespace AND NOT deleted AND NOT EXISTS "
    "(SELECT 1 FROM entries n WHERE n.namespace = e.namespace AND n.scope = e.scope "
    "AND n.owner = e.owner AND n.key = e.key AND n.version > e.version)",
    "jobs": "SELECT count(*) FROM jobs WHERE namespace = :namespace",
    "indexed": "SELECT sum(count) FROM segments WHERE namespace = :namespace AND kind = 'text'",
    "segments": "SELECT count(*) FROM segments WHERE namespace = :namespace",
    "file_bytes": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
}

# The keys of one place that start with a prefix, from one to the next through the index: a key that was written a
# million times costs as much as any other.
_KEYS = (
    "WITH RECURSIVE keys (name) AS (SELECT min(key) FROM entries WHERE namespace = :namespace AND scope = :scope "
    "AND owner = :owner AND key >= :prefix UNION ALL SELECT (SELECT min(key) FROM entries WHERE "
    "namespace = :namespace AND scope = :scope AND owner = :owner AND key > keys.name) FROM keys "
    "WHERE substr(keys.name, 1, :length) = :prefix), found (name) AS (SELECT name FROM keys "
    "WHERE substr(name, 1, :length) = :prefix)"
)

# What each table tells `changes`: sequence number, kind, record, detail.
_CHANGES = (
    ("seq, 'record', seq, id", "(SELECT * FROM records WHERE version > 0)"),
    (
        "s.seq AS seq, 'supersede', s.record, ''",
        "(SELECT s.*, r.namespace FROM supersessions s JOIN records r ON r.seq = s.record) s",
    ),
    ("seq, CASE entered WHEN 1 THEN 'enter' ELSE 'leave' END, record, tier", "moves"),
    ("seq, 'entry', 0, key", "entries"),
    ("seq, 'vector', record, ''", "(SELECT * FROM vectors WHERE record IS NOT NULL)"),
    ("seq, 'forget', record, ''", "forgotten"),
    ("seq, 'pin', 0, ''", "pins"),
)


def _settle_target(target: Path) -> None:
    """Make a file that a backup may replace: with its log folded in, or SQLite would play that over the new file."""
    if not target.exists():
        return
    try:
        old = sqlite3.connect(target, timeout=0.2)
        try:
            old.execute("PRAGMA journal_mode = DELETE")
        finally:
            old.close()
    except sqlite3.Error as error:
        ours = translate(error, target)
        if isinstance(ours, StoreBusy):
            raise StoreBusy(f"{target} is in use; close it, or choose another path for the backup") from error
        raise ours or error from error
    folder = index_folder(target)
    if folder is not None and folder.is_dir():
        for segment in folder.glob("*.seg"):
            segment.unlink(missing_ok=True)
