"""Translation of SQLite's SQL into PostgreSQL's.

The statements of a store are written once, in `loom.storage.sqlite`. Few parts differ: placeholders, lists of values,
hints for SQLite's planner, and statements about the counter of sequence numbers, which PostgreSQL has for each
namespace. The translation replaces text. It is made once for each statement and cached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from loom.storage.postgres.catalog import PARTITIONED
from loom.storage.sqlite.archive import CONTENT, DATA
from loom.storage.sqlite.checking import TO_NOTHING
from loom.storage.sqlite.copying import IDENTITY
from loom.storage.sqlite.counting import TOKENS
from loom.storage.sqlite.entries import LAST_ENTRY
from loom.storage.sqlite.forgetting import EMPTY_LAYOUTS
from loom.storage.sqlite.maintenance import NOTE_USES
from loom.storage.sqlite.namespace_index import NEWEST
from loom.storage.sqlite.projections import COUNT_UP, LAST_NUMBER
from loom.storage.sqlite.records import FILE_BYTES
from loom.storage.sqlite.transactions import BEGUN, FINISH

__all__ = ["ARCHIVED", "TABLES", "Dialect", "Spoken"]

TABLES = (
    "store",
    "namespaces",
    "heads",
    "settings",
    "records",
    "supersessions",
    "moves",
    "residents",
    "tiers",
    "edges",
    "awaited",
    "pins",
    "accesses",
    "forgotten",
    "derivations",
    "entries",
    "blobs",
    "spaces",
    "vectors",
    "projections",
    "segments",
    "segment_chunks",
    "jobs",
    "leases",
    "blocks",
    "vacuums",
    "writers",
)

ARCHIVED = "\x01@"
"""The prefix of a mark that replaces a text in an archive block. No stored text has it (see `spoken_connection`)."""

_KEYS = {
    "pins": ("record",),
    "leases": ("name",),
    "settings": ("namespace", "node", "key"),
    "projections": ("namespace", "kind"),
}

_OWN = ":own_namespace"

_SPELLINGS = {
    LAST_NUMBER: f"SELECT seq FROM heads WHERE namespace = {_OWN}",
    COUNT_UP: f"UPDATE heads SET seq = seq + 1, revision = revision + 1 WHERE namespace = {_OWN}",
    LAST_ENTRY: f"SELECT max(seq) FROM entries WHERE namespace = {_OWN}",
    FINISH: f"UPDATE heads SET seq = greatest(seq, ?), committed_at = ? WHERE namespace = {_OWN}",
    BEGUN: (
        "SELECT h.seq, h.committed_at, "
        "(SELECT value FROM settings WHERE namespace = ?1 AND node = '' AND key = 'space'), "
        "(SELECT value FROM settings WHERE namespace = ?1 AND node = '' AND key = 'revision'), "
        "(SELECT name FROM namespaces WHERE number = ?1), h.revision "
        "FROM heads h WHERE h.namespace = ?1"
    ),
    NOTE_USES: (
        "INSERT INTO accesses (namespace, node, record, count, last_at, previous_at) "
        "SELECT ?1, ?2, r.seq, CAST(j.value ->> 1 AS bigint), CAST(j.value ->> 2 AS bigint), "
        "CAST(j.value ->> 3 AS bigint) FROM json_array_elements(CAST(?3 AS json)) j(value) "
        "JOIN records r ON r.seq = CAST(j.value ->> 0 AS bigint) WHERE r.version > 0 "
        "ON CONFLICT (namespace, record, node) DO UPDATE SET count = accesses.count + excluded.count, "
        "previous_at = coalesce(excluded.previous_at, accesses.last_at), last_at = excluded.last_at"
    ),
    NEWEST: NEWEST.replace("FROM derivations", f"FROM derivations WHERE namespace = {_OWN}"),
    IDENTITY: (f"SELECT s.id, s.created_at, h.committed_at FROM store s JOIN heads h ON h.namespace = {_OWN}"),
    FILE_BYTES: (
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_catalog.pg_class c "
        "WHERE c.relnamespace = CAST('{schema}' AS regnamespace) AND c.relkind = 'r'"
    ),
}

_CONTENT = "CONTENT_OF_ARCHIVE"
_DATA = "DATA_OF_ARCHIVE"
_VALUE = r"(\?\d*)"

_REWRITES: tuple[tuple[str, str], ...] = (
    # Lists of values: statements select numbers as `value` and texts as `atom`.
    (rf"IN \(SELECT value FROM json_each\({_VALUE}\)\)", r"= ANY(CAST(\1#n AS bigint[]))"),
    (rf"IN \(SELECT atom FROM json_each\({_VALUE}\)\)", r"= ANY(CAST(\1#t AS text[]))"),
    (rf"json_each\({_VALUE}\) (?!UNION)(\w+)", r"unnest(CAST(\1#n AS bigint[])) \2(value)"),
    (rf"json_each\({_VALUE}\)", r"unnest(CAST(\1#n AS bigint[])) listed(value)"),
    # Hints for SQLite's planner.
    (r" INDEXED BY \w+", ""),
    (r" NOT INDEXED", ""),
    (r"\+((?:\w+\.)?namespace)\b", r"\1"),
    (r"\bCROSS JOIN\b", "JOIN"),
    # Functions and literals.
    (r"\bifnull\(", "coalesce("),
    (r"length\(CAST\(((?:\w+\.)?\w+) AS BLOB\)\)", r"octet_length(\1)"),
    (r"CAST\(((?:\w+\.)?(?:content|data)) AS BLOB\)", r"\1"),
    (r"CAST\(((?:\w+\.)?\w+) AS BLOB\)", r"convert_to(\1, 'UTF8')"),
    (r"\btotal\(((?:[^()]|\([^()]*\))*)\)", r"coalesce(sum(\1), 0)"),
    (r"x''", "CAST('' AS bytea)"),
    # Divided tables have the namespace in every row.
    (
        r"INTO (edges|supersessions) \(([^)]*)\) VALUES \(([^)]*)\)",
        rf"INTO \1 (\2, namespace) VALUES (\3, {_OWN})",
    ),
    # A maximum over one namespace.
    (r"^SELECT max\((\w+)\) FROM (?!namespaces$)(\w+)$", rf"SELECT max(\1) FROM \2 WHERE namespace = {_OWN}"),
)
_COMPILED = tuple((re.compile(pattern), spelling) for pattern, spelling in _REWRITES)
_PLACEHOLDER = re.compile(r"\?(\d*)(#[nt])?|(?<![:\w]):([a-z_][a-z_0-9]*)")
_QUALIFIED = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE)(\s+)({'|'.join(TABLES)})\b(?!\()")
_INSERT = re.compile(r"^(\s*)INSERT OR (IGNORE|REPLACE) INTO (\w+) \(([^)]*)\)(.*?)( RETURNING .*)?$", re.DOTALL)


class _List(Enum):
    """The form of a value: unchanged, or a JSON list of numbers or texts."""

    NO = ""
    NUMBERS = "#n"
    TEXTS = "#t"


class Spoken(NamedTuple):
    """A statement in PostgreSQL's SQL, and the places of its values among the given ones, in order."""

    text: bytes
    order: tuple[tuple[int | str, _List], ...]
    archived: bool

    def values(self, given: Sequence[Any] | Mapping[str, Any], namespace: int) -> list[Any]:
        """The values in the order of this statement."""
        return [_given(given, place, kind, namespace) for place, kind in self.order]


def _given(given: Any, place: int | str, kind: _List, namespace: int) -> Any:
    if place == _OWN:
        return namespace
    value = given[place]
    if kind is _List.NUMBERS:
        return "{" + value[1:-1] + "}"
    return json.loads(value) if kind is _List.TEXTS else value


class Dialect:
    """Translates statements for the tables of one schema, and for the partitions of one number, if it has any."""

    def __init__(self, schema: str, partition: int | None) -> None:
        self.schema = schema
        self.partition = partition
        self._known: dict[str, Spoken] = {}

    def spell(self, statement: str) -> Spoken:
        """Translate a statement from SQLite's SQL into PostgreSQL's."""
        known = self._known.get(statement)
        if known is None:
            if len(self._known) > _MOST_REMEMBERED:
                self._known.clear()
            known = self._known[statement] = self._spelled(statement)
        return known

    def table(self, name: str) -> str:
        """The qualified name of a table, or of its partition."""
        divided = self.partition is not None and name in PARTITIONED
        return f'"{self.schema}".{name}_{self.partition}' if divided else f'"{self.schema}".{name}'

    def _spelled(self, statement: str) -> Spoken:
        text = _SPELLINGS.get(statement, statement)
        # VACUUM removes the old versions of changed rows just as it removes deleted rows.
        text = text.replace(TO_NOTHING, _TO_NOTHING).replace(EMPTY_LAYOUTS, "DELETE FROM entries")
        text = text.replace(TOKENS, "r.tokens").replace(CONTENT, _CONTENT).replace(DATA, _DATA)
        archived = _CONTENT in text or _DATA in text
        text = _conflicts(text)
        for pattern, spelling in _COMPILED:
            text = pattern.sub(spelling, text)
        order: list[tuple[int | str, _List]] = []

        def placed(found: re.Match[str]) -> str:
            number, kind, name = found.groups()
            if name is not None:
                place: int | str = _OWN if f":{name}" == _OWN else name
            else:
                place = (
                    int(number) - 1
                    if number
                    else 1 + max((one for one, _ in order if isinstance(one, int)), default=-1)
                )
            order.append((place, _List(kind or "")))
            return "%s"

        text = _PLACEHOLDER.sub(placed, text.replace("%", "%%"))

        def qualified(found: re.Match[str]) -> str:
            word, space, name = found.groups()
            # If columns are qualified with the name of the table, the partition needs that name as an alias.
            alias = f" AS {name}" if f" {name}." in text or f"({name}." in text else ""
            return f"{word}{space}{self.table(name)}{alias}"

        text = _QUALIFIED.sub(qualified, text).replace("{schema}", f'"{self.schema}"')
        text = text.replace(_CONTENT, _archived("content")).replace(_DATA, _archived("data"))
        return Spoken(text.encode(), tuple(order), archived)


_MOST_REMEMBERED = 2000

_TO_NOTHING = (
    f"namespace = {_OWN} AND record > 0 "
    "AND NOT EXISTS (SELECT 1 FROM records known WHERE known.seq = record AND known.version > 0)"
)


def _archived(part: str) -> str:
    """SQL for the text or the data of `records r`; a mark if they are in an archive block."""
    mark = ARCHIVED.replace("\x01", "\\001")
    return f"CASE WHEN r.block IS NULL THEN r.{part} ELSE E'{mark}{part} ' || r.block || ' ' || r.seq END"


def _conflicts(text: str) -> str:
    """`INSERT OR IGNORE` and `INSERT OR REPLACE` in standard SQL."""
    found = _INSERT.match(text)
    if found is None:
        return text
    space, how, table, columns, rest, returning = found.groups()
    if how == "IGNORE":
        action = "NOTHING"
        target = ""
    else:
        keys = _KEYS[table]
        changed = [name for name in columns.split(", ") if name not in keys]
        target = f" ({', '.join(keys)})"
        action = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in changed)
    return f"{space}INSERT INTO {table} ({columns}){rest} ON CONFLICT{target} DO {action}{returning or ''}"
