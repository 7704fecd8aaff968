"""The upgrade to format 6: blocks with a dictionary that the store trained on its own texts get the package's.

The store is described in tests/data/archives/make_trained.py.
"""

from __future__ import annotations

import runpy
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loom.errors import CorruptStore
from loom.storage.contract import Filter
from loom.storage.sqlite.store import SqliteStore

MAKER = Path(__file__).parent.parent / "data" / "archives" / "make_trained.py"
MADE = runpy.run_path(str(MAKER))
TEXTS: dict[str, str] = MADE["texts"]()
PHRASE: str = MADE["PHRASE"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.loom"
    shutil.copy(MAKER.with_name("trained.loom"), path)
    return path


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql).fetchall()


def texts(store: SqliteStore) -> dict[str, str]:
    return {record.id: record.content for record in store.scan(Filter(history=True), limit=1000).records}


def test_the_stored_file_uses_a_dictionary_of_its_own(path: Path) -> None:
    (trained,) = rows(path, "SELECT number FROM dictionaries")
    assert rows(path, "SELECT DISTINCT dictionary FROM blocks") == [trained]


def test_every_text_comes_back_and_no_dictionary_is_left(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        assert texts(store) == TEXTS
        assert store.archived().records == len(TEXTS)
        assert store.check().ok
    assert rows(path, "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%dictionar%' OR name LIKE '%_5'") == [(0,)]
    assert rows(path, "SELECT DISTINCT dictionary FROM blocks") == [(-1,)]
    with closing(SqliteStore(path, read_only=True)) as store:
        assert texts(store) == TEXTS


def test_a_phrase_that_was_trained_on_is_forgotten_with_its_records(path: Path) -> None:
    shared = [id for id in TEXTS if id.startswith("s")]
    with closing(SqliteStore(path)) as store:
        assert store.forget(Filter(ids=shared)).records == len(shared)
        assert texts(store) == {id: text for id, text in TEXTS.items() if id not in shared}
        assert store.check().ok
    content = path.read_bytes()
    assert b"rendezvous" not in content
    assert PHRASE.encode() not in content


def test_a_damaged_block_stays_damaged_and_costs_its_own_records_only(path: Path) -> None:
    rows(path, "UPDATE blocks SET checksum = checksum + 1 WHERE number = (SELECT min(number) FROM blocks)")
    lost = {id for (id,) in rows(path, "SELECT id FROM records WHERE block = (SELECT min(number) FROM blocks)")}
    with closing(SqliteStore(path)) as store:
        for id, text in TEXTS.items():
            if id in lost:
                with pytest.raises(CorruptStore):
                    store.get(id)
            else:
                found = store.get(id)
                assert found is not None
                assert found.content == text
        assert any("damaged" in problem for problem in store.check().problems)
        store.forget(Filter(ids=sorted(lost)))
        assert store.check().ok


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE dictionaries SET phrases = zeroblob(length(phrases))",
        "UPDATE dictionaries SET phrases = x''",
        "UPDATE dictionaries SET checksum = checksum + 1",
        "DELETE FROM dictionaries",
    ],
)
def test_blocks_of_a_damaged_dictionary_are_reported_and_can_be_forgotten(path: Path, sql: str) -> None:
    rows(path, sql)
    with closing(SqliteStore(path)) as store:
        with pytest.raises(CorruptStore):
            store.get("s1")
        assert not store.check().ok
        store.forget(Filter(ids=sorted(TEXTS)))
        assert store.check().ok
