"""The sizes of a real archive: what a block holds at most."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from loom.storage.blocks import BLOCK_BYTES
from loom.storage.contract import Draft, Filter
from loom.storage.sqlite.store import SqliteStore

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_a_block_is_full_before_it_is_too_large_and_a_larger_record_has_one_of_its_own(tmp_path: Path) -> None:
    chance = random.Random(1)
    texts = [f"note {number} 的内容 " + "ab " * chance.randrange(300, 900) for number in range(160)]
    texts[80] = "x" * (2 * BLOCK_BYTES)
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path)) as store:
        with store.transaction() as transaction:
            transaction.append([Draft(f"n{number}", text, NOW) for number, text in enumerate(texts)])
        assert store.archive().records == len(texts)
        found = store.scan(Filter(history=True), limit=1000, newest_first=False).records
        assert [record.content for record in found] == texts
    with closing(sqlite3.connect(path)) as connection:
        blocks = connection.execute(
            "SELECT sum(length(CAST(r.content AS BLOB)) + r.archived_bytes), count(*) FROM records r "
            "WHERE r.block IS NOT NULL GROUP BY r.block ORDER BY min(r.seq)"
        ).fetchall()
    assert [records for size, records in blocks if size > BLOCK_BYTES] == [1]
    # Each but the last and the one before the large record had no room for what follows it.
    assert sum(size < BLOCK_BYTES - 3 * 900 for size, _ in blocks) <= 2
