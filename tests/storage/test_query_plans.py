"""How SQLite answers a filter: the list of a tier's records is not computed again for every record."""

from __future__ import annotations

import pytest

from loom.storage.contract import Filter
from loom.storage.sqlite.filters import conditions
from loom.storage.sqlite.store import SqliteStore


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(node="agent"),
        Filter(tier="l2"),
        Filter(tier=["l1", "l4"], node="agent", kind="fact"),
        Filter(tier="l3", node=["agent", "other"], session_id="s", derived=True),
    ],
)
def test_what_a_tier_holds_is_listed_once(wanted: Filter) -> None:
    """In a thousand records and two thousand facts, listing it again each time took 2.8 seconds instead of 10
    milliseconds."""
    store = SqliteStore(None)
    with store.transaction() as transaction:
        where, values = conditions(wanted, transaction.namespace, transaction.connection)
        plan = transaction.connection.execute(
            f"EXPLAIN QUERY PLAN SELECT count(*) FROM records r WHERE {where}", values
        ).fetchall()
    store.close()
    assert not [step for *_, step in plan if "CORRELATED LIST" in step]
