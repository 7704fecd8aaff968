"""A scratch database, in which a snapshot is assembled and checked before a store changes.

It is a SQLite file for every backend. A complete one can become the file of a new SQLite store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from loom.errors import InvalidInput
from loom.steps import step
from loom.storage.contract import LAYOUTS, Origin
from loom.storage.files import create_file, disk_errors
from loom.storage.identity import id_hash
from loom.storage.sqlite import archive, counting, schema
from loom.storage.sqlite.copying import Copy, insert
from loom.storage.sqlite.engine import translate
from loom.storage.sqlite.entries import EMPTY_ENTRIES, ENTRY_PLACE
from loom.storage.sqlite.residency import TierTotals
from loom.storage.sqlite.rows import INSERT_EDGE
from loom.storage.tables import Row

__all__ = ["Scratch"]


class Scratch:
    """Rows of several namespaces under their original numbers, outside any store."""

    def __init__(self, place: Path, mode: int) -> None:
        self._place = place
        self._emptied = False
        with disk_errors(f"{place} cannot be created"):
            create_file(place, mode)
        with self.faults(), ExitStack() as undo:
            self._connection = sqlite3.connect(place, isolation_level=None)
            undo.callback(self._connection.close)
            for pragma in (
                "journal_mode = OFF",
                "synchronous = OFF",
                "cache_size = -4096",
                "locking_mode = EXCLUSIVE",
            ):
                self._connection.execute(f"PRAGMA {pragma}")
            undo.pop_all()
        archive.Reader().serve(self._connection)
        counting.Counts().serve(self._connection)

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Raise `InvalidInput` for a row that violates a constraint, and our errors in place of SQLite's."""
        try:
            yield
        except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError) as error:
            raise InvalidInput(f"a row breaks a rule of the tables ({type(error).__name__})") from error
        except sqlite3.Error as error:
            raise translate(error, self._place) or error from error

    @step("stage.prepare")
    def prepare(self) -> None:
        """Make the tables, and with them the file; begin the transaction that `complete` commits."""
        execute = self._connection.execute
        execute("BEGIN")
        schema.upgrade(self._connection)
        execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        execute("COMMIT")
        execute("CREATE TEMP TABLE gone (record INTEGER PRIMARY KEY)")
        execute("BEGIN")

    def unlink(self) -> None:
        """Unlink the file, so that it is gone once it is closed or the process is killed."""
        with disk_errors(f"{self._place} cannot be deleted"):
            self._place.unlink()

    def close(self) -> None:
        self._connection.close()

    # -- reading -----------------------------------------------------------------------------------------------------

    def rows_of(self, *namespaces: int) -> Copy:
        return Copy(self._connection, namespaces)

    def version_of(self, record: int) -> tuple[int, int] | None:
        """The namespace and version of a record; None if there is no such record."""
        found: tuple[int, int] | None = self._connection.execute(
            "SELECT namespace, version FROM records WHERE seq = ?", (record,)
        ).fetchone()
        return found

    def newest_version(self, row: Row) -> int:
        """The newest version of the id of a row, which has its hashes; 0 if there is none."""
        place = (row["id_hash"], row["id"], row["namespace"])
        return self._newest("records WHERE id_hash = ? AND id = ? AND +namespace = ?", place)

    def newest_entry(self, row: Row) -> int:
        """The newest version of the entry that a row belongs to; 0 if there is none."""
        return self._newest(f"entries WHERE {ENTRY_PLACE}", _entry_place(row))

    def _newest(self, rows: str, values: Sequence[int | str]) -> int:
        return self._connection.execute(f"SELECT max(version) FROM {rows}", values).fetchone()[0] or 0

    def count(self, table: str) -> int:
        """The number of rows of a table; deleted entries do not count."""
        where = "NOT deleted" if table == "entries" else "1"
        return int(self._connection.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()[0])

    # -- writing -----------------------------------------------------------------------------------------------------

    def know(self, namespaces: dict[int, str], spaces: dict[int, tuple[str, int]]) -> None:
        """Add namespaces and embedding spaces; those that exist stay."""
        many = self._connection.executemany
        many("INSERT OR IGNORE INTO namespaces (number, name) VALUES (?, ?)", namespaces.items())
        many("INSERT OR IGNORE INTO spaces VALUES (?, ?, ?)", ((number, *space) for number, space in spaces.items()))

    def add_rows(self, table: str, rows: Iterable[Row]) -> int:
        """Add rows to the namespaces that they name; returns their count.

        A row of `records` has its hashes and its checksum too (`guarded`), and a row of `vectors` its `space`.
        """
        prepare = {
            "entries": self._after_emptying,
            "vectors": self._after_dropping,
        }.get(table, lambda row: row)
        return insert(self._connection, table, map(prepare, rows))

    def add_edge(self, derived: int, source: int) -> None:
        self._connection.execute(INSERT_EDGE, (source, derived))

    def await_source(self, namespace: int, id: str, derived: int) -> None:
        self._connection.execute(
            "INSERT INTO awaited (namespace, id_hash, id, derived) VALUES (?, ?, ?, ?)",
            (namespace, id_hash(namespace, id), id, derived),
        )

    def _after_emptying(self, row: Row) -> Row:
        """Prepare a row of an entry: a deletion empties the earlier versions."""
        if row["deleted"]:
            self._change(f"{EMPTY_ENTRIES} WHERE {ENTRY_PLACE} AND NOT deleted", _entry_place(row))
        return row

    def _after_dropping(self, row: Row) -> Row:
        """Prepare a row of a vector, which replaces an earlier one of its record."""
        self._change("DELETE FROM vectors WHERE record = ?", (row["record"],))
        return row

    def _change(self, statement: str, values: Sequence[int | str] = ()) -> None:
        """Execute a statement that removes content, and vacuum the file at the end if it removed any."""
        self._emptied |= self._connection.execute(statement, values).rowcount > 0

    # -- records that are gone ---------------------------------------------------------------------------------------

    def note_gone(self, records: Iterable[int]) -> None:
        self._connection.executemany("INSERT OR IGNORE INTO temp.gone VALUES (?)", ((one,) for one in records))

    def is_gone(self, record: int) -> bool:
        return bool(self._connection.execute("SELECT 1 FROM temp.gone WHERE record = ?", (record,)).fetchone())

    # -- blobs -------------------------------------------------------------------------------------------------------

    def hide_blobs(self) -> None:
        """Clear the keys of all blobs; `reveal_blob` restores those of the remaining ones."""
        self._connection.execute("UPDATE blobs SET key = NULL")

    def reveal_blob(self, row: Row) -> bool:
        """Restore the key of the blob that matches a row. Returns False if there is none."""
        done = self._connection.execute(
            "UPDATE blobs SET key = :key WHERE seq = :seq AND namespace = :namespace AND checksum = :checksum "
            "AND length(data) = :size",
            row,
        )
        return done.rowcount > 0

    def drop_hidden_blobs(self) -> None:
        self._change("DELETE FROM blobs WHERE key IS NULL")

    def make_room(self, row: Row) -> None:
        """Add a blob of the stated size, filled with zeros."""
        self._connection.execute("INSERT INTO blobs VALUES (:seq, :namespace, :key, :checksum, zeroblob(:size))", row)

    def write_piece(self, number: int, place: int, piece: bytes) -> bool:
        """Write bytes of a blob at an offset. Returns False if they do not fit."""
        (size,) = self._connection.execute("SELECT sum(length(data)) FROM blobs WHERE seq = ?", (number,)).fetchone()
        if size is None or place + len(piece) > size:
            return False
        with self._connection.blobopen("blobs", "data", number) as blob:
            blob.seek(place)
            blob.write(piece)
        return True

    # -- the end -----------------------------------------------------------------------------------------------------

    @step("stage.complete")
    def complete(self, origin: Origin) -> None:
        """Compute the totals, give the file the identity of its origin, and commit."""
        execute = self._connection.execute
        if execute("SELECT 1 FROM temp.gone LIMIT 1").fetchone():  # their layouts were forgotten with them
            self._change("DELETE FROM entries WHERE scope = ?", (LAYOUTS,))
        for number in origin.namespaces:
            TierTotals(self._connection, number).recount()
            space = origin.active.get(number, 0)
            self._change("DELETE FROM vectors WHERE namespace = ? AND space != ?", (number, space))
        # A backend may store the space of a namespace outside its settings.
        active = ((number, str(space)) for number, space in origin.active.items())
        self._connection.executemany("INSERT OR IGNORE INTO settings VALUES (?, '', 'space', ?)", active)
        execute(
            "INSERT INTO store (one, id, created_at, seq, committed_at) VALUES (1, ?, ?, ?, ?)",
            (origin.store, origin.created_at, origin.position, origin.committed_at),
        )
        execute("COMMIT")
        execute("DROP TABLE temp.gone")
        if self._emptied:  # deleted content must not remain in the gaps of a page
            execute("VACUUM")


def _entry_place(row: Row) -> tuple[int, str, str, str]:
    return row["namespace"], row["scope"], row["owner"], row["key"]
