"""The values of a record as the statement of a plain `remember` sends them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("psycopg")

from loom.storage.contract import Dimensions, Draft
from loom.storage.identity import id_hash
from loom.storage.moments import to_micros
from loom.storage.postgres.one_statement import ALL_COLUMNS, COLUMNS, RowEncoder
from loom.storage.postgres.prepared import escaped
from loom.storage.sqlite.rows import dump_json
from loom.storage.sqlite.transactions import record_row
from loom.types import MemoryTier, MemoryType, Trust

NAMESPACE = 7
NOW = 1_800_000_000_000_000
DRAFT = Draft("01ARZ3NDEKTSV4RRFFQ69G5FAV", "a text", datetime(2026, 2, 3, tzinfo=UTC), counter="words", tokens=2)
OTHERS: list[dict[str, Any]] = [
    {"id": "of the caller \0\x01", "content": "NUL \0, the escape character \x01 and 中文"},
    {"session_id": "s1"},
    {"session_id": "s2"},
    {"session_id": "s\0\x01", "node": "n\x01", "role": "r\0", "name": "\x01\0", "kind": "k\x01a", "counter": "c\0"},
    {"role": "None"},
    {"role": "user", "name": "Ana", "trust": Trust.USER, "kind": MemoryType.TASK, "tier": MemoryTier.L1},
    {"name": ""},
    {"dimensions": Dimensions("subject", "state", "type")},
    {"importance": 1},
    {"importance": 0.1 + 0.2},
    {"tokens": 3},
    {"window_tokens": 1},
    {"metadata": {"n": [1, "\0", "中文"]}, "data": {"parts": ["x", None]}},
    {"created_at": datetime(1969, 1, 1, tzinfo=UTC)},
]


def expected(draft: Draft) -> dict[str, bytes | None]:
    """The values that a transaction would store, in their stored form."""
    row = record_row(
        NAMESPACE,
        draft,
        0,
        id_hash(NAMESPACE, draft.id),
        1,
        to_micros(draft.created_at),
        NOW,
        dump_json(dict(draft.metadata), "metadata") if draft.metadata else None,
        None if draft.data is None else dump_json(draft.data, "data"),
    )
    return {
        column: None if value is None else escaped(str(value)) for column, value in zip(ALL_COLUMNS, row, strict=True)
    }


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: ", ".join(other))
def test_one_statement_stores_what_a_transaction_stores(other: dict[str, Any]) -> None:
    encoder = RowEncoder(NAMESPACE)
    for draft in (DRAFT, DRAFT._replace(**other), DRAFT):  # each after one with other values
        namespace, now, *values = encoder.encode(draft, NOW)
        assert (namespace, now) == (b"7", b"%d" % NOW)
        stored = expected(draft)
        assert dict(zip(COLUMNS, values, strict=True)) == {column: stored[column] for column in COLUMNS}


def test_one_statement_has_every_column_of_a_record() -> None:
    assert {*COLUMNS} == {*ALL_COLUMNS} - {"seq", "namespace", "version", "committed_at"}
