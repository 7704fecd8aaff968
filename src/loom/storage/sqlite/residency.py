"""Where records are: the window of recent ones, and the residents of the other tiers.

L1 is a window over the log: the newest records of a node, as many as fit its budget. Nothing is written when
a record falls out of it, and no count can drift, because the window is read off the records each time. The
other tiers are rows in `residents`, with their totals in `tiers`, changed in the transaction that has the
reason for it.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Iterable, Sequence

from loom.storage.contract import FOCUS, HEARD, Resident, Usage
from loom.storage.sqlite.counting import TOKENS

__all__ = [
    "WINDOW",
    "TierTotals",
    "arrivals",
    "as_residents",
    "places_of",
    "residents",
    "resides",
    "tier_condition",
    "totals",
    "window",
    "windows",
]

WINDOW = "l1"
"""The tier that is a window."""

_BUDGET_SETTING = "l1_token_budget"


def window(connection: sqlite3.Connection, namespace: int, node: str) -> list[tuple[int, int]]:
    """Number and tokens of each record in a node's window, newest first.

    What was brought back into it has its room first. A record larger than the whole budget is passed over, unless it
    was written with a stand-in's size.
    """
    (room,) = connection.execute(
        "SELECT value FROM settings WHERE namespace = ? AND node = ? AND key = ?", (namespace, node, _BUDGET_SETTING)
    ).fetchone() or (None,)
    marks = {
        tier: (since, items)
        for tier, since, items in connection.execute(
            "SELECT tier, since, items FROM tiers WHERE namespace = ? AND node = ? AND tier IN (?, ?, ?)",
            (namespace, node, WINDOW, HEARD, FOCUS),
        )
    }
    since = marks.get(WINDOW, (0, 0))[0]
    rows: Iterable[tuple[int, int, int | None]] = connection.execute(
        f"SELECT r.seq, {TOKENS}, r.window_tokens FROM records r INDEXED BY records_by_node "
        "WHERE r.namespace = ? AND r.node = ? AND r.tier = 'l1' AND r.seq > ? "
        "AND NOT EXISTS (SELECT 1 FROM supersessions s WHERE s.record = r.seq) ORDER BY r.seq DESC",
        (namespace, node, since),
    )
    if marks.get(HEARD, (0, 0))[1]:
        heard = connection.execute(
            "SELECT record, tokens, NULL FROM residents WHERE namespace = ? AND node = ? AND tier = ? AND record > ? "
            "AND tokens > 0 ORDER BY record DESC",
            (namespace, node, HEARD, since),
        )
        rows = heapq.merge(rows, heard, key=lambda row: row[0], reverse=True)
    budget = left = float("inf") if room is None else json.loads(room)
    back: dict[int, int] = {}
    if marks.get(FOCUS, (0, 0))[1]:
        back = dict(arrivals(connection, namespace, node, FOCUS))
        left -= sum(back.values())
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


def windows(connection: sqlite3.Connection, namespace: int, nodes: Iterable[str] | None) -> list[int]:
    """The numbers of the records in the windows of these nodes; None: of every node."""
    if nodes is None:
        nodes = [
            row[0]
            for row in connection.execute(
                "WITH RECURSIVE found (node) AS ("
                "SELECT min(node) FROM records WHERE namespace = ?1 AND tier = 'l1' UNION ALL "
                "SELECT (SELECT min(r.node) FROM records r WHERE r.namespace = ?1 AND r.tier = 'l1' "
                "AND r.node > found.node) FROM found WHERE found.node IS NOT NULL"
                ") SELECT node FROM found WHERE node IS NOT NULL UNION "
                "SELECT node FROM tiers WHERE namespace = ?1 AND tier IN (?2, ?3) AND items > 0",
                (namespace, HEARD, FOCUS),
            )
        ]
    return [seq for node in nodes for seq, _ in window(connection, namespace, node)]


def tier_condition(
    connection: sqlite3.Connection, namespace: int, tiers: Sequence[str], nodes: Sequence[str] | None
) -> tuple[str, list[str]]:
    """SQL over `records r` for being in one of these tiers, of these nodes or of any, with its values."""
    recent = windows(connection, namespace, nodes) if WINDOW in tiers else []
    values = [json.dumps(recent), json.dumps([tier for tier in tiers if tier != WINDOW])]
    whose = ""
    if nodes is not None:
        whose = " AND t.node IN (SELECT value FROM json_each(?))"
        values.append(json.dumps([*nodes]))
    return (
        "(r.seq IN (SELECT value FROM json_each(?)) OR r.seq IN (SELECT p.record FROM residents p "
        "JOIN tiers t ON t.namespace = p.namespace AND t.node = p.node AND t.tier = p.tier "
        # Not `r.namespace`: the list would be made again for every record that is looked at.
        f"WHERE t.namespace = {namespace:d} AND t.tier IN (SELECT value FROM json_each(?)){whose}))",
        values,
    )


def totals(connection: sqlite3.Connection, namespace: int, node: str) -> dict[str, Usage]:
    """What each tier of a node holds, the window aside; a tier that was never used is missing."""
    return {
        row[0]: Usage(*row[1:])
        for row in connection.execute(
            "SELECT tier, items, tokens, hits, misses FROM tiers WHERE namespace = ? AND node = ? AND tier != 'l1'",
            (namespace, node),
        )
    }


def resides(connection: sqlite3.Connection, namespace: int, record: int, tier: str, node: str) -> bool:
    """Whether a record is in a tier of a node, other than the window."""
    row = connection.execute(
        "SELECT 1 FROM residents WHERE namespace = ? AND node = ? AND tier = ? AND record = ?",
        (namespace, node, tier, record),
    ).fetchone()
    return row is not None


def residents(connection: sqlite3.Connection, namespace: int, node: str, tier: str) -> list[Resident]:
    """Who is in a tier (other than the window), with how it was used, in the order of entering."""
    rows = connection.execute(
        "SELECT p.record, p.tokens, p.importance, p.entered, p.written_at / 1e6, coalesce(a.count, 0), "
        "coalesce(a.last_at, p.written_at) / 1e6, "
        # The writing counts as the first reference.
        "CASE WHEN a.count > 0 THEN coalesce(a.previous_at, p.written_at) / 1e6 END, NULL "
        "FROM residents p LEFT JOIN accesses a ON a.namespace = p.namespace AND a.record = p.record "
        "AND a.node = p.node WHERE p.namespace = ? AND p.node = ? AND p.tier = ? ORDER BY p.entered, p.record",
        (namespace, node, tier),
    )
    return list(map(Resident._make, rows))


def as_residents(connection: sqlite3.Connection, namespace: int, node: str, records: Sequence[int]) -> list[Resident]:
    """Records wherever they are, as if they had just entered a tier: what they measure, and how a node used them.

    Those that are gone, or have a newer version, are missing.
    """
    rows = connection.execute(
        f"SELECT r.seq, {TOKENS}, r.importance, r.seq, r.committed_at / 1e6, coalesce(a.count, 0), "
        "coalesce(a.last_at, r.committed_at) / 1e6, "
        "CASE WHEN a.count > 0 THEN coalesce(a.previous_at, r.committed_at) / 1e6 END, NULL "
        "FROM records r LEFT JOIN accesses a ON a.namespace = r.namespace AND a.record = r.seq AND a.node = ?2 "
        "WHERE r.namespace = ?1 AND r.version > 0 AND r.seq IN (SELECT value FROM json_each(?3)) "
        "AND NOT EXISTS (SELECT 1 FROM supersessions s WHERE s.record = r.seq) ORDER BY r.seq",
        (namespace, node, json.dumps([*records])),
    )
    return list(map(Resident._make, rows))


def arrivals(connection: sqlite3.Connection, namespace: int, node: str, tier: str) -> list[tuple[int, int]]:
    """Number and size of each record in a tier (other than the window), in the order of entering."""
    return connection.execute(
        "SELECT record, tokens FROM residents WHERE namespace = ? AND node = ? AND tier = ? ORDER BY entered, record",
        (namespace, node, tier),
    ).fetchall()


def places_of(connection: sqlite3.Connection, namespace: int, record: int) -> list[tuple[str, str]]:
    """Node and tier of each place a record is in, the window aside."""
    return connection.execute(
        "SELECT t.node, t.tier FROM tiers t WHERE t.namespace = ?1 AND EXISTS (SELECT 1 FROM residents p "
        "WHERE p.namespace = ?1 AND p.node = t.node AND p.tier = t.tier AND p.record = ?2) ORDER BY 2, 1",
        (namespace, record),
    ).fetchall()


class TierTotals:
    """Keeps `residents` and their totals in step, inside one transaction."""

    def __init__(self, connection: sqlite3.Connection, namespace: int) -> None:
        self._connection = connection
        self._namespace = namespace

    def enter(
        self, records: Sequence[int], sizes: Sequence[int] | None, tier: str, node: str, entered: int
    ) -> dict[int, int]:
        """Enter records, at their own sizes unless others are given; the sizes of those not there before.

        A record that has a newer version does not come in.
        """
        came: dict[int, int] = {}
        for position, record in enumerate(records):
            row = self._connection.execute(
                "INSERT OR IGNORE INTO residents "
                "(namespace, node, tier, record, tokens, importance, entered, written_at) "
                f"SELECT r.namespace, ?1, ?2, r.seq, coalesce(?3, {TOKENS}), r.importance, ?4, r.committed_at "
                "FROM records r WHERE r.seq = ?5 AND r.namespace = ?6 AND r.version > 0 "
                "AND NOT EXISTS (SELECT 1 FROM supersessions WHERE record = ?5) RETURNING tokens",
                (node, tier, None if sizes is None else sizes[position], entered, record, self._namespace),
            ).fetchall()
            if row:
                came[record] = row[0][0]
        self._book(tier, node, len(came), sum(came.values()))
        return came

    def leave(self, records: Sequence[int], tier: str, node: str) -> dict[int, int]:
        """Let records leave; the sizes of those that were there."""
        went = dict(
            self._connection.execute(
                "DELETE FROM residents WHERE namespace = ? AND node = ? AND tier = ? "
                "AND record IN (SELECT value FROM json_each(?)) RETURNING record, tokens",
                (self._namespace, node, tier, json.dumps([*records])),
            ).fetchall()
        )
        self._book(tier, node, -len(went), -sum(went.values()))
        return went

    def remove(self, records: Sequence[int]) -> None:
        """Take records out of every place. The totals wait for `recount`."""
        places = self._connection.execute(
            "SELECT node, tier FROM tiers WHERE namespace = ? AND items > 0", (self._namespace,)
        ).fetchall()
        self._connection.executemany(
            "DELETE FROM residents WHERE namespace = ? AND node = ? AND tier = ? AND record = ?",
            [(self._namespace, node, tier, record) for node, tier in places for record in records],
        )

    def _book(self, tier: str, node: str, items: int, tokens: int) -> None:
        """Add to the totals of a tier."""
        if not items and not tokens:
            return
        self._connection.execute(
            "INSERT INTO tiers (namespace, node, tier, items, tokens) VALUES (?1, ?2, ?3, ?4, ?5) "
            "ON CONFLICT DO UPDATE SET items = items + ?4, tokens = tokens + ?5",
            (self._namespace, node, tier, items, tokens),
        )

    def wrong(self) -> dict[tuple[str, str], tuple[int, int]]:
        """By node and tier: how many items and tokens each total lacks of what its residents add up to."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for node, tier, items, tokens in self._connection.execute(
            "SELECT node, tier, sum(items), sum(tokens) FROM ("
            "SELECT node, tier, 1 AS items, tokens FROM residents WHERE namespace = ?1 UNION ALL "
            "SELECT node, tier, -items, -tokens FROM tiers WHERE namespace = ?1 AND tier != 'l1') GROUP BY 1, 2",
            (self._namespace,),
        ):
            if items or tokens:
                found[node, tier] = (items, tokens)
        return found

    def recount(self) -> None:
        """Set every total right."""
        for (node, tier), (items, tokens) in self.wrong().items():
            self._book(tier, node, items, tokens)
