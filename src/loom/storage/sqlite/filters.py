"""A `Filter` as SQL over `records r`."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import singledispatch
from typing import Any

from loom.errors import InvalidInput
from loom.storage.contract import HEARD, Filter
from loom.storage.databases import Connection
from loom.storage.identity import id_hash
from loom.storage.moments import to_micros
from loom.storage.sqlite.residency import tier_condition
from loom.storage.sqlite.rows import first_version

__all__ = ["admitted", "checked_metadata", "conditions", "kept_out", "metadata_condition"]

_COLUMNS = {
    "session_id": "r.session",
    "kind": "r.kind",
    "role": "r.role",
    "name": "r.name",
    "trust": "r.trust",
    "subject": "r.subject",
    "flow": "r.flow",
    "layer": "r.layer",
}

# SQLite bounds the depth of an expression (1,000), and each key is a step.
_MOST_KEYS = 500


def conditions(wanted: Filter, namespace: int, connection: Connection) -> tuple[str, list[Any]]:
    """The WHERE clause (without the word) and its values, for use on the state that the connection reads."""
    clauses = ["r.namespace = ?", "r.version > 0"]
    values: list[Any] = [namespace]

    def one_of(column: str, choices: list[str] | list[int], kind: str = "atom") -> str:
        """SQL for one of these choices, bound as a single JSON value: SQLite limits the number of values."""
        if len(choices) == 1:
            values.append(choices[0])
            return f"{column} = ?"
        values.append(json.dumps(choices))
        return f"{column} IN (SELECT {kind} FROM json_each(?))"

    def hashed(column: str, choices: list[str]) -> str:
        """SQL that repeats the names as hashes, which the indexes hold."""
        return one_of(column, [id_hash(namespace, name) for name in choices], "value")

    for field, column in _COLUMNS.items():
        choice = getattr(wanted, field)
        if choice is not None:
            clauses.append(one_of(column, _several(choice)))
    if wanted.node is not None:
        nodes = json.dumps(_several(wanted.node))
        clauses.append(
            "(r.node IN (SELECT atom FROM json_each(?)) OR r.seq IN (SELECT p.record FROM residents p "
            # With `r.namespace` SQLite would compute the list again for every record.
            f"WHERE p.namespace = {namespace:d} AND p.node IN (SELECT atom FROM json_each(?)) AND p.tier = ?))"
        )
        values.extend([nodes, nodes, HEARD])
    if wanted.session_id is not None:
        clauses.append(hashed("r.session_hash", _several(wanted.session_id)))
    if wanted.ids is not None:
        clauses.append(hashed("r.id_hash", _several(wanted.ids)))
        clauses.append(one_of("r.id", _several(wanted.ids)))
    if wanted.tier is not None:
        whose = None if wanted.node is None else _several(wanted.node)
        clause, own = tier_condition(connection, namespace, _several(wanted.tier), whose)
        clauses.append(clause)
        values.extend(own)
    for clause, limit in (
        ("r.importance >= ?", wanted.min_importance),
        ("r.created_at >= ?", wanted.since),
        ("r.created_at < ?", wanted.until),
    ):
        if limit is not None:
            clauses.append(clause)
            values.append(to_micros(limit) if isinstance(limit, datetime) else limit)
    for has, rows in (
        (wanted.pinned, f"pins p WHERE p.record = {first_version()}"),
        (wanted.derived, "derivations d WHERE d.record = r.seq"),
    ):
        if has is not None:
            clauses.append(f"{'' if has else 'NOT '}EXISTS (SELECT 1 FROM {rows})")
    if len(wanted.where or {}) > _MOST_KEYS:
        raise InvalidInput(f"where compares at most {_MOST_KEYS} metadata keys, not {len(wanted.where or {}):,}")
    for key, value in (wanted.where or {}).items():
        clauses.append(metadata_condition(connection, key, value, values))
    _validity(wanted, clauses, values)
    return " AND ".join(clauses), values


def admitted(connection: Connection, keys: Sequence[int], where: str, values: list[Any]) -> set[int]:
    """The records among these that the conditions of a filter admit."""
    kept: set[int] = set()
    for start in range(0, len(keys), 500):
        part = keys[start : start + 500]
        marks = ", ".join("?" * len(part))
        query = f"SELECT r.seq FROM records r WHERE r.seq IN ({marks}) AND {where}"
        kept.update(seq for (seq,) in connection.execute(query, (*part, *values)))
    return kept


def kept_out(connection: Connection, keys: Sequence[int], derived: bool) -> set[int]:
    """The records among these that a filter without conditions excludes: derived, or with a newer version."""
    query = "SELECT s.record FROM json_each(?1) j CROSS JOIN supersessions s ON s.record = j.value"
    if derived:
        query += " UNION ALL SELECT d.record FROM json_each(?1) j CROSS JOIN derivations d ON d.record = j.value"
    return {record for (record,) in connection.execute(query, (str([*keys]),))}


def _several(names: str | Collection[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _validity(wanted: Filter, clauses: list[str], values: list[Any]) -> None:
    """Restrict to current records: now, or as of one moment, as known at another."""
    superseded = "SELECT 1 FROM supersessions s WHERE s.record = r.seq"
    until: list[int] = []
    for moment, own, of_newer in (
        (wanted.as_of, "r.created_at", "s.at"),
        (wanted.known_at, "r.committed_at", "s.committed_at"),
    ):
        if moment is not None:
            clauses.append(f"{own} <= ?")
            superseded += f" AND {of_newer} <= ?"
            until.append(to_micros(moment))
    values.extend(until)
    if not wanted.history:
        clauses.append(f"NOT EXISTS ({superseded})")
        values.extend(until)


def checked_metadata(key: Any, value: Any) -> list[Any]:
    """The values to compare a metadata key with. Raises `InvalidInput` for values that cannot be compared."""
    if not isinstance(key, str):
        raise InvalidInput(f"a metadata key is text, not {key!r}")
    choices = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    for choice in choices:
        is_finite = isinstance(choice, float) and math.isfinite(choice)
        if choice is not None and not isinstance(choice, str | int) and not is_finite:
            raise InvalidInput(
                f"where[{key!r}] compares with text, finite numbers, booleans, None or a list of them, "
                f"not {choice if isinstance(choice, float) else type(choice).__name__}"
            )
    return choices


@singledispatch
def metadata_condition(connection: Connection, key: Any, value: Any, values: list[Any]) -> str:
    """SQL that compares a top-level metadata key. A stored list matches if it contains the value.

    Appends to `values`. The connection determines the dialect.
    """
    kinds: set[str] = set()
    texts: list[str] = []
    numbers: list[int | float] = []
    for choice in checked_metadata(key, value):
        if choice is None or isinstance(choice, bool):
            kinds.add("null" if choice is None else "true" if choice else "false")
        elif isinstance(choice, str):
            texts.append(choice)
        else:
            numbers.append(choice)
    tests = [f"{{0}}.type = '{kind}'" for kind in sorted(kinds)]
    own: list[Any] = []
    # As in JSON, text never equals a number.
    for given, stored in ((texts, "('text')"), (numbers, "('integer', 'real')")):
        if given:
            single = len(given) == 1 and (isinstance(given[0], str | float) or abs(given[0]) < 1 << 63)
            # Several values are bound as one: SQLite limits the number of values and the depth of an expression.
            one_of = "= ?" if single else "IN (SELECT value FROM json_each(?))"
            tests.append(f"({{0}}.type IN {stored} AND {{0}}.value {one_of})")
            own.append(given[0] if single else json.dumps(given))
    itself = " OR ".join(tests).format("m") or "0"
    inside = " OR ".join(tests).format("x") or "0"
    values += [key, *own, *own]
    return (
        "EXISTS (SELECT 1 FROM json_each(coalesce(r.metadata, '{}')) m WHERE m.key = ? "
        f"AND ({itself} OR (m.type = 'array' AND EXISTS (SELECT 1 FROM json_each(m.value) x WHERE {inside}))))"
    )
