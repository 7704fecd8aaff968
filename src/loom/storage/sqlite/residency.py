"""The tiers of records: the window of recent ones, and the residents of the other tiers.

L1 is a window over the log: the newest records of a node that fit its budget. It is computed from the records at
each read, so a record leaves it without a write, and no count can drift. The other tiers are rows in `residents`,
with totals in `tiers`. Both change in the transaction that causes the move.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import singledispatch
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from loom.errors import InvalidInput
from loom.steps import step
from loom.storage import contract
from loom.storage.contract import FOCUS, HEARD, WINDOW, Access, Resident, Usage, fit_window
from loom.storage.databases import Connection
from loom.storage.moments import from_micros
from loom.storage.sqlite.counting import TOKENS
from loom.storage.sqlite.projections import last_number
from loom.storage.sqlite.rows import Reader, Writer, first_version, same_id

if TYPE_CHECKING:
    from loom.storage.sqlite.maintenance import BufferedUses

__all__ = ["WINDOW", "Residency", "ResidencyWrites", "TierTotals", "each", "tier_condition"]

_BUDGET_SETTING = "l1_token_budget"


@singledispatch
def each(connection: Connection, query: str, values: Sequence[Any]) -> Iterable[Any]:
    """The rows of an ordered query without a limit. The caller may stop early."""
    return connection.execute(query, values)


class Residency(Reader, contract.Residency):
    def window(self, node: str) -> list[tuple[int, int]]:
        with self.connected() as connection:
            (room,) = connection.execute(
                "SELECT value FROM settings WHERE namespace = ? AND node = ? AND key = ?",
                (self.number, node, _BUDGET_SETTING),
            ).fetchone() or (None,)
            marks = {
                tier: (since, items)
                for tier, since, items in connection.execute(
                    "SELECT tier, since, items FROM tiers WHERE namespace = ? AND node = ? AND tier IN (?, ?, ?)",
                    (self.number, node, WINDOW, HEARD, FOCUS),
                )
            }
            since, _ = marks.get(WINDOW, (0, 0))
            _, heard = marks.get(HEARD, (0, 0))
            _, focused = marks.get(FOCUS, (0, 0))
            rows: Iterable[tuple[int, int, int | None]] = each(
                connection,
                f"SELECT r.seq, {TOKENS}, r.window_tokens FROM records r INDEXED BY records_by_node "
                "WHERE r.namespace = ? AND r.node = ? AND r.tier = 'l1' AND r.seq > ? "
                "AND NOT EXISTS (SELECT 1 FROM supersessions s WHERE s.record = r.seq) ORDER BY r.seq DESC",
                (self.number, node, since),
            )
            if heard:
                others = connection.execute(
                    "SELECT record, tokens, NULL FROM residents WHERE namespace = ? AND node = ? AND tier = ? "
                    "AND record > ? AND tokens > 0 ORDER BY record DESC",
                    (self.number, node, HEARD, since),
                )
                rows = heapq.merge(rows, others, key=itemgetter(0), reverse=True)
            back = self.sizes(node, FOCUS) if focused else {}
            return fit_window(rows, float("inf") if room is None else json.loads(room), back)

    def sizes(self, node: str, tier: str, among: Iterable[int] | None = None) -> dict[int, int]:
        some = "" if among is None else "AND record IN (SELECT value FROM json_each(?)) "
        values = () if among is None else (json.dumps([*among]),)
        return dict(
            self._all(
                f"SELECT record, tokens FROM residents WHERE namespace = ? AND node = ? AND tier = ? {some}"
                "ORDER BY entered, record",
                (self.number, node, tier, *values),
            )
        )

    def totals(self, node: str) -> dict[str, Usage]:
        rows = self._all(
            "SELECT tier, items, tokens, hits, misses FROM tiers WHERE namespace = ? AND node = ? AND tier != 'l1'",
            (self.number, node),
        )
        return {tier: Usage(*held) for tier, *held in rows}

    def residents(self, node: str, tier: str) -> list[Resident]:
        # The write counts as the first reference.
        return self._used(
            "SELECT p.record, p.tokens, p.importance, p.entered, p.written_at / 1e6, coalesce(a.count, 0), "
            "coalesce(a.last_at, p.written_at) / 1e6, "
            "CASE WHEN a.count > 0 THEN coalesce(a.previous_at, p.written_at) / 1e6 END, NULL "
            "FROM residents p LEFT JOIN accesses a ON a.namespace = p.namespace AND a.record = p.record "
            "AND a.node = p.node WHERE p.namespace = ?1 AND p.node = ?2 AND p.tier = ?3 "
            "ORDER BY p.entered, p.record",
            node,
            tier,
        )

    def as_residents(self, records: Sequence[int], node: str) -> list[Resident]:
        return self._used(
            f"SELECT r.seq, {TOKENS}, r.importance, r.seq, r.committed_at / 1e6, coalesce(a.count, 0), "
            "coalesce(a.last_at, r.committed_at) / 1e6, "
            "CASE WHEN a.count > 0 THEN coalesce(a.previous_at, r.committed_at) / 1e6 END, NULL "
            "FROM records r LEFT JOIN accesses a ON a.namespace = r.namespace AND a.record = r.seq AND a.node = ?2 "
            "WHERE r.namespace = ?1 AND r.version > 0 AND r.seq IN (SELECT value FROM json_each(?3)) "
            "AND NOT EXISTS (SELECT 1 FROM supersessions s WHERE s.record = r.seq) ORDER BY r.seq",
            node,
            json.dumps([*records]),
        )

    def _used(self, query: str, node: str, wanted: str) -> list[Resident]:
        """The residents that a query finds, with their buffered uses."""
        recent = self.recent_uses()
        found = [Resident(*row) for row in self._all(query, (self.number, node, wanted))]
        if not recent:
            return found
        return [one if (uses := recent.of(one.record, node)) is None else _with_uses(one, uses) for one in found]

    def absent(self, records: Iterable[int], tier: str, node: str) -> list[tuple[int, float, str]]:
        return self._all(
            "SELECT r.seq, r.importance, r.kind FROM records r WHERE r.seq IN (SELECT value FROM json_each(?1)) "
            "AND r.namespace = ?2 AND r.version > 0 AND NOT EXISTS (SELECT 1 FROM residents p "
            "WHERE p.namespace = ?2 AND p.node = ?3 AND p.tier = ?4 AND p.record = r.seq) ORDER BY r.seq",
            (json.dumps([*records]), self.number, node, tier),
        )

    def original_tokens(self, node: str, tier: str) -> int:
        with self.connected() as connection:
            (own,) = connection.execute(
                f"SELECT ifnull(sum({TOKENS}), 0) FROM residents p JOIN records r ON r.seq = p.record "
                "WHERE p.namespace = ? AND p.node = ? AND p.tier = ? "
                "AND NOT EXISTS (SELECT 1 FROM derivations v WHERE v.record = p.record AND v.replaces)",
                (self.number, node, tier),
            ).fetchone()
            # The newest versions of the sources of derived records. Edges name first versions.
            (behind,) = connection.execute(
                f"SELECT ifnull(sum({TOKENS}), 0) FROM residents p "
                "CROSS JOIN derivations v ON v.record = p.record AND v.replaces "
                "CROSS JOIN records d ON d.seq = p.record "
                f"CROSS JOIN edges e ON e.derived = {first_version('d')} CROSS JOIN records f ON f.seq = e.source "
                f"CROSS JOIN records r ON {same_id('r', 'f')} AND NOT EXISTS "
                f"(SELECT 1 FROM records n WHERE {same_id('n', 'f')} AND n.seq > r.seq) "
                "WHERE p.namespace = ? AND p.node = ? AND p.tier = ?",
                (self.number, node, tier),
            ).fetchone()
        return int(own) + int(behind)

    def left_within(self, records: Sequence[int], tier: str, node: str, reason: str, numbers: int) -> set[int]:
        with self.connected() as connection:
            rows = connection.execute(
                "SELECT record FROM moves WHERE record IN (SELECT value FROM json_each(?)) AND seq > ? "
                "AND namespace = ? AND node = ? AND tier = ? AND NOT entered AND reason = ?",
                (json.dumps([*records]), self._last_seq(connection) - numbers, self.number, node, tier, reason),
            ).fetchall()
        return {record for (record,) in rows}

    def _last_seq(self, connection: Connection) -> int:
        return last_number(connection)

    def accesses(self, records: Iterable[int], node: str) -> dict[int, Access]:
        wanted, recent = [*records], self.recent_uses()
        rows = self._all(
            "SELECT record, count, last_at, previous_at FROM accesses WHERE namespace = ? AND node = ? "
            "AND record IN (SELECT value FROM json_each(?))",
            (self.number, node, json.dumps(wanted)),
        )
        found = {record: Access(count, from_micros(last), _moment(before)) for record, count, last, before in rows}
        if recent:
            for record in wanted:
                if (uses := recent.of(record, node)) is not None:
                    found[record] = _after(found.get(record), uses)
        return found

    def most_uses(self, node: str, tier: str) -> int:
        (most,) = self._firsts(
            "SELECT ifnull(max(a.count), 0) FROM residents p JOIN accesses a ON a.namespace = p.namespace "
            "AND a.record = p.record AND a.node = p.node WHERE p.namespace = ? AND p.node = ? AND p.tier = ?",
            (self.number, node, tier),
        )
        return int(most)


def _with_uses(resident: Resident, recent: BufferedUses) -> Resident:
    previous = resident.last_at if recent.previous_at is None else recent.previous_at / 1e6
    return resident._replace(uses=resident.uses + recent.number, last_at=recent.last_at / 1e6, previous_at=previous)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _after(written: Access | None, recent: BufferedUses) -> Access:
    earlier = None if written is None else written.last_at
    previous = _moment(recent.previous_at) or earlier
    return Access(recent.number + (written.count if written else 0), from_micros(recent.last_at), previous)


class ResidencyWrites(Residency, Writer, contract.ResidencyWrites):
    @step("transaction.enter")
    def enter(
        self, records: Sequence[int], tier: str, node: str, reason: str = "", tokens: Sequence[int] | None = None
    ) -> int:
        if tier == WINDOW:
            raise InvalidInput(f"{WINDOW} is the window of the newest records; a record enters it when it is written")
        came = TierTotals(self.connection, self.number).enter(
            records, tokens, tier, node, self._last_seq(self.connection) + 1
        )
        return self._moved(came, tier, node, True, reason)

    @step("transaction.leave")
    def leave(self, records: Sequence[int], tier: str, node: str, reason: str = "") -> int:
        return len(self._leave(records, tier, node, reason))

    def _leave(self, records: Sequence[int], tier: str, node: str, reason: str) -> dict[int, int]:
        """Remove records from a tier. Returns the sizes of those that were there."""
        went = TierTotals(self.connection, self.number).leave(records, tier, node)
        self._moved(went, tier, node, False, reason)
        return went

    def leave_everywhere(self, record: int) -> dict[tuple[str, str], int]:
        """Remove a superseded record from all tiers. Returns its sizes by node and tier."""
        places = self.connection.execute(
            "SELECT t.node, t.tier FROM tiers t WHERE t.namespace = ?1 AND EXISTS (SELECT 1 FROM residents p "
            "WHERE p.namespace = ?1 AND p.node = t.node AND p.tier = t.tier AND p.record = ?2) ORDER BY 2, 1",
            (self.number, record),
        ).fetchall()
        return {(node, tier): self._leave([record], tier, node, "superseded").get(record, 0) for node, tier in places}

    def _moved(self, records: Iterable[int], tier: str, node: str, entered: bool, reason: str) -> int:
        if reason and not reason.isidentifier():
            raise InvalidInput(f"the reason of a move must be a single word, such as superseded, not {reason!r}")
        moved = sorted(records)
        self.many(
            "INSERT INTO moves (seq, namespace, record, node, tier, entered, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(self.next_seq(), self.number, record, node, tier, entered, reason) for record in moved],
        )
        return len(moved)

    def narrow_window(self, node: str, after: int) -> None:
        self.next_seq()
        self.connection.execute(
            "INSERT INTO tiers (namespace, node, tier, since) VALUES (?1, ?2, ?3, ?4) "
            "ON CONFLICT (namespace, node, tier) DO UPDATE "
            "SET since = CASE WHEN tiers.since > excluded.since THEN tiers.since ELSE excluded.since END",
            (self.number, node, WINDOW, after),
        )


def _windows(connection: Connection, namespace: int, nodes: Iterable[str] | None) -> list[int]:
    """The sequence numbers of the records in the windows of these nodes, or of every node (None)."""
    if nodes is None:
        nodes = [
            node
            for (node,) in connection.execute(
                "WITH RECURSIVE found (node) AS ("
                "SELECT min(node) FROM records WHERE namespace = ?1 AND tier = 'l1' UNION ALL "
                "SELECT (SELECT min(r.node) FROM records r WHERE r.namespace = ?1 AND r.tier = 'l1' "
                "AND r.node > found.node) FROM found WHERE found.node IS NOT NULL"
                ") SELECT node FROM found WHERE node IS NOT NULL UNION "
                "SELECT node FROM tiers WHERE namespace = ?1 AND tier IN (?2, ?3) AND items > 0",
                (namespace, HEARD, FOCUS),
            )
        ]
    reader = Residency(connection, namespace)
    return [seq for node in nodes for seq, _ in reader.window(node)]


def tier_condition(
    connection: Connection, namespace: int, tiers: Sequence[str], nodes: Sequence[str] | None
) -> tuple[str, list[str]]:
    """SQL over `records r` for membership in one of these tiers, of these nodes or of any, with its values."""
    recent = _windows(connection, namespace, nodes) if WINDOW in tiers else []
    values = [json.dumps(recent), json.dumps([tier for tier in tiers if tier != WINDOW])]
    whose = ""
    if nodes is not None:
        whose = " AND t.node IN (SELECT atom FROM json_each(?))"
        values.append(json.dumps([*nodes]))
    return (
        "(r.seq IN (SELECT value FROM json_each(?)) OR r.seq IN (SELECT p.record FROM residents p "
        "JOIN tiers t ON t.namespace = p.namespace AND t.node = p.node AND t.tier = p.tier "
        # With `r.namespace` SQLite would compute the list again for every record.
        f"WHERE t.namespace = {namespace:d} AND t.tier IN (SELECT atom FROM json_each(?)){whose}))",
        values,
    )


class TierTotals:
    """Changes `residents` together with their totals, inside one transaction."""

    def __init__(self, connection: Connection, namespace: int) -> None:
        self._connection = connection
        self._namespace = namespace

    def enter(
        self, records: Sequence[int], sizes: Sequence[int] | None, tier: str, node: str, entered: int
    ) -> dict[int, int]:
        """Add records, at their own sizes unless others are given. Returns the sizes of the new ones.

        A record with a newer version is not added.
        """
        came: dict[int, int] = {}
        for position, record in enumerate(records):
            for (size,) in self._connection.execute(
                "INSERT OR IGNORE INTO residents "
                "(namespace, node, tier, record, tokens, importance, entered, written_at) "
                f"SELECT r.namespace, ?1, ?2, r.seq, coalesce(?3, {TOKENS}), r.importance, ?4, r.committed_at "
                "FROM records r WHERE r.seq = ?5 AND r.namespace = ?6 AND r.version > 0 "
                "AND NOT EXISTS (SELECT 1 FROM supersessions WHERE record = ?5) RETURNING tokens",
                (node, tier, None if sizes is None else sizes[position], entered, record, self._namespace),
            ).fetchall():
                came[record] = size
        self._book(tier, node, len(came), sum(came.values()))
        return came

    def leave(self, records: Sequence[int], tier: str, node: str) -> dict[int, int]:
        """Remove records from a tier. Returns the sizes of those that were there."""
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
        """Remove records from every tier. The totals are wrong until `recount`."""
        places = self._connection.execute(
            "SELECT node, tier FROM tiers WHERE namespace = ? AND items > 0", (self._namespace,)
        ).fetchall()
        self._connection.executemany(
            "DELETE FROM residents WHERE namespace = ? AND node = ? AND tier = ? AND record = ?",
            ((self._namespace, node, tier, record) for node, tier in places for record in records),
        )

    def _book(self, tier: str, node: str, items: int, tokens: int) -> None:
        """Add to the totals of a tier."""
        if not items and not tokens:
            return
        self._connection.execute(
            "INSERT INTO tiers (namespace, node, tier, items, tokens) VALUES (?1, ?2, ?3, ?4, ?5) "
            "ON CONFLICT (namespace, node, tier) DO UPDATE "
            "SET items = tiers.items + excluded.items, tokens = tiers.tokens + excluded.tokens",
            (self._namespace, node, tier, items, tokens),
        )

    def wrong(self) -> dict[tuple[str, str], tuple[int, int]]:
        """The items and tokens that each wrong total lacks compared with its residents, by node and tier."""
        rows = self._connection.execute(
            "SELECT node, tier, sum(items), sum(tokens) FROM ("
            "SELECT node, tier, 1 AS items, tokens FROM residents WHERE namespace = ?1 UNION ALL "
            "SELECT node, tier, -items, -tokens FROM tiers WHERE namespace = ?1 AND tier != 'l1') held GROUP BY 1, 2",
            (self._namespace,),
        )
        return {(node, tier): (items, tokens) for node, tier, items, tokens in rows if items or tokens}

    def recount(self) -> None:
        for (node, tier), (items, tokens) in self.wrong().items():
            self._book(tier, node, items, tokens)
