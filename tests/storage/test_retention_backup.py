"""Retention rules and backups: the records that expire and those that never do; copies that open and are complete."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import InvalidInput, NotAStore, ReadOnly, StoreBusy, StoreUnavailable
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from loom.storage.contract import Draft, Filter, Retention
from loom.storage.sqlite.store import SqliteStore

START = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)


class FakeClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def opened(path: Path | None, clock: FakeClock | None = None, **settings: Any) -> Memory:
    settings.setdefault("embedder", "none")
    return loom.open(path, clock=clock or FakeClock(), **settings)


def ids(memory: Memory) -> list[str]:
    return [record.id for record in memory.list(limit=1000, newest_first=False).records]


# --- retention --------------------------------------------------------------------------------------------


def test_nothing_leaves_without_a_rule(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("old", id="old", created_at=START - timedelta(days=10_000))
        assert memory.store.retention is None
        assert not memory.apply_retention()
        assert ids(memory) == ["old"]


@pytest.mark.parametrize("where", ["file", "memory"])
def test_what_is_too_old_leaves(tmp_path: Path, where: str) -> None:
    clock = FakeClock()
    with opened(tmp_path / "a.loom" if where == "file" else None, clock) as memory:
        for days in (0, 5, 29, 30, 31, 400):
            memory.remember(f"made {days} days ago agedword", id=f"d{days}", created_at=START - timedelta(days=days))
        memory.pin("d400")
        memory.set_retention(Retention(max_age_days=30))
        gone = memory.apply_retention()
        assert gone.ids == ("d31",)
        assert ids(memory) == ["d0", "d5", "d29", "d30", "d400"]
        clock.now += timedelta(days=10)
        assert set(memory.apply_retention().ids) == {"d29", "d30"}
        assert {hit.id for hit in memory.recall("agedword")} == {"d0", "d5", "d400"}
        memory.unpin("d400")
        assert memory.apply_retention().ids == ("d400",)


def test_an_updated_memory_is_as_old_as_its_newest_version(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("old", id="x", created_at=START - timedelta(days=100))
        memory.update("x", "new")
        memory.set_retention(Retention(max_age_days=30))
        assert not memory.apply_retention()
        assert [record.content for record in memory.history("x")] == ["old", "new"]


def test_the_oldest_leave_where_there_are_too_many(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        for number in range(10):
            memory.remember(f"note {number}", id=f"n{number}")
        memory.pin("n0")
        memory.update("n1", "a newer version counts once, as the newest")
        memory.set_retention(Retention(max_records=4))
        gone = memory.apply_retention()
        assert set(gone.ids) == {"n2", "n3", "n4", "n5", "n6"}
        assert ids(memory) == ["n0", "n7", "n8", "n9", "n1"]
        assert not memory.apply_retention()


def test_the_oldest_leave_where_their_texts_are_too_large(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("汉" * 100, id="han")  # 300 bytes
        for number in range(5):
            memory.remember("x" * 100, id=f"n{number}")
        memory.set_retention(Retention(max_bytes=800))
        assert not memory.apply_retention()
        memory.set_retention(Retention(max_bytes=799))
        assert memory.apply_retention().ids == ("han",)
        memory.set_retention(Retention(max_bytes=250))
        memory.apply_retention()
        assert ids(memory) == ["n3", "n4"]


def test_rules_add_up_and_can_be_switched_off_for_every_process(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with opened(path) as memory:
        memory.remember("old", id="old", created_at=START - timedelta(days=50))
        memory.remember(["one", "two", "three"])
        memory.set_retention(Retention(max_age_days=40, max_records=2, max_bytes=10_000))
    with opened(path) as memory:
        assert memory.store.retention == Retention(max_age_days=40, max_records=2, max_bytes=10_000)
        gone = memory.apply_retention()
        assert gone.records == 2
        assert "old" in gone.ids
        memory.set_retention(None)
        memory.remember(["four", "five"])
        assert not memory.apply_retention()
        assert len(ids(memory)) == 4


@pytest.mark.parametrize("value", [0, -1, float("nan"), "many"])
@pytest.mark.parametrize("name", ["max_age_days", "max_records", "max_bytes"])
def test_a_rule_that_makes_no_sense_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=name):
        Retention(**{name: value})


def test_the_background_worker_applies_the_rule_by_itself(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom", index_tail_records=5) as memory:
        memory.set_retention(Retention(max_records=3))
        for number in range(20):
            memory.remember(f"note {number}")
        deadline = time.monotonic() + 30
        while len(ids(memory)) > 15 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(ids(memory)) <= 15


def test_a_great_many_may_leave_at_once(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "a.loom")) as store:
        with store.transaction() as transaction:
            transaction.append(
                [Draft(id=f"n{number}", content="short", created_at=START, named=False) for number in range(40_000)]
            )
        store.set_retention(Retention(max_records=10))
        assert store.apply_retention().records == 39_990
        assert store.count(Filter()) == 10


def test_what_was_derived_from_what_leaves_goes_with_it(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "a.loom", clock=FakeClock())) as store:
        old, new = START - timedelta(days=9), START
        with store.transaction() as transaction:
            transaction.append(
                [
                    Draft(id="source", content="old source", created_at=old),
                    Draft(id="summary", content="new summary", created_at=new, sources=("source",)),
                ]
            )
        store.set_retention(Retention(max_age_days=5))
        gone = store.apply_retention()
        assert (gone.ids, gone.derived) == (("source",), 1)
        assert store.get("summary") is None


# --- backup -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_backup_is_the_whole_memory_as_it_was(tmp_path: Path, where: str) -> None:
    copy = tmp_path / "copy.loom"
    with opened(
        tmp_path / "a.loom" if where == "file" else None, embedder=FakeEmbedder(), index_tail_records=8
    ) as memory:
        for number in range(30):
            memory.remember(f"note {number} about harbours", id=f"n{number}", session_id="s", metadata={"n": number})
        memory.update("n3", "a newer note 3 about harbours")
        memory.pin("n4")
        memory.forget("n5")
        with memory.store.transaction() as transaction:
            transaction.put_entry("plan", {"step": 1}, writer="w")
            transaction.put_blob("bytes", b"blob")
        memory.flush()
        everything = memory.list(limit=100, history=True).records
        best = [hit.id for hit in memory.recall("harbours note 7", limit=30)]
        memory.backup(copy)
        memory.remember("only in the original, about harbours")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(("copy", ".copy"))) == [
        "copy.loom"
    ]
    with opened(copy, embedder=FakeEmbedder(), index_tail_records=8) as memory:
        assert memory.list(limit=100, history=True).records == everything
        assert [hit.id for hit in memory.recall("harbours note 7", limit=30)] == best
        assert memory.store.pinned("n4")
        entry = memory.store.entry("plan")
        assert entry is not None
        assert entry.content == {"step": 1}
        assert memory.store.blob("bytes") == b"blob"
        assert memory.check().ok
        memory.remember("the copy lives its own life")


def test_a_backup_replaces_the_earlier_one_and_never_the_original(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.loom", tmp_path / "copy.loom"
    with opened(path) as memory:
        memory.remember("first", id="1")
        memory.backup(copy)
        memory.remember("second", id="2")
        memory.backup(str(copy))
        for same in (path, tmp_path / "." / "a.loom"):
            with pytest.raises(InvalidInput, match="another path"):
                memory.backup(same)
        with pytest.raises(StoreUnavailable, match="does not exist"):
            memory.backup(tmp_path / "missing" / "copy.loom")
        with pytest.raises(StoreUnavailable):
            memory.backup(tmp_path)
        assert ids(memory) == ["1", "2"]
    with opened(copy) as memory:
        assert ids(memory) == ["1", "2"]
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


_DIE_WITH_A_LOG = """
import os, sys, loom
memory = loom.open(sys.argv[1], embedder="none")
memory.remember(["of the earlier store " + str(number) for number in range(200)])
os._exit(0)
"""


def test_a_backup_over_the_remains_of_a_dead_process_is_whole(tmp_path: Path) -> None:
    copy = tmp_path / "copy.loom"
    subprocess.run([sys.executable, "-c", _DIE_WITH_A_LOG, str(copy)], check=True)
    assert (tmp_path / "copy.loom-wal").stat().st_size > 0, "no log was left, so this shows nothing"
    with opened(tmp_path / "a.loom") as memory:
        memory.remember([f"of the new store {number}" for number in range(20)])
        memory.backup(copy)
    with opened(copy) as memory:
        assert {record.content for record in memory.list(limit=1000).records} == {
            f"of the new store {number}" for number in range(20)
        }
        assert memory.check().ok


def test_a_backup_never_takes_the_place_of_a_store_in_use(tmp_path: Path) -> None:
    (tmp_path / "link.loom").symlink_to(tmp_path / "a.loom")
    with opened(tmp_path / "a.loom") as memory, opened(tmp_path / "b.loom") as other:
        memory.remember("text", id="x")
        other.remember("theirs", id="theirs")
        for target in ("link.loom", "b.loom"):
            with pytest.raises((InvalidInput, StoreBusy)):
                memory.backup(tmp_path / target)
        memory.remember("more", id="y")
        other.remember("more of theirs", id="more")
        assert memory.check().ok
        assert other.check().ok
    with opened(tmp_path / "a.loom") as memory, opened(tmp_path / "b.loom") as other:
        assert ids(memory) == ["x", "y"]
        assert ids(other) == ["theirs", "more"]


def test_a_backup_while_others_write_is_one_moment_of_it(tmp_path: Path) -> None:
    copy = tmp_path / "copy.loom"
    with opened(tmp_path / "a.loom") as memory:
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                memory.remember([f"pair {number} left", f"pair {number} right"])
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(5):
                memory.backup(copy)
        finally:
            stop.set()
            writer.join()
    with opened(copy, read_only=True) as memory:
        records = memory.list(limit=100_000).records
        pairs = [record.content.split()[1] for record in records]
        assert all(pairs.count(pair) == 2 for pair in set(pairs[:50]))
        assert len(pairs) % 2 == 0
        assert memory.check().ok


def test_a_read_only_memory_can_be_backed_up(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("text", id="x")
    with opened(tmp_path / "a.loom", read_only=True) as memory:
        memory.backup(tmp_path / "copy.loom")
        with pytest.raises(ReadOnly):
            memory.vacuum()
    with opened(tmp_path / "copy.loom") as memory:
        assert ids(memory) == ["x"]


def test_an_older_backup_beside_a_newer_index_answers_from_its_own_records(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.loom", tmp_path / "copy.loom"
    with opened(path, index_tail_records=5) as memory:
        for number in range(20):
            memory.remember(f"early {number} harbours", id=f"early{number}")
        memory.flush()
        memory.backup(copy)
        for number in range(20):
            memory.remember(f"late {number} harbours", id=f"late{number}")
        memory.forget("early7")
        memory.flush()
    shutil.move(copy, path)
    for leftover in ("a.loom-wal", "a.loom-shm"):
        (tmp_path / leftover).unlink(missing_ok=True)
    with opened(path, index_tail_records=5) as memory:
        expected = {f"early{number}" for number in range(20)}
        assert {hit.id for hit in memory.recall("harbours", limit=100)} == expected
        assert memory.check().ok
        assert {hit.id for hit in memory.recall("harbours", limit=100)} == expected
        memory.remember("after the restore, harbours", id="after")
        assert {hit.id for hit in memory.recall("harbours", limit=100)} == {*expected, "after"}


def test_a_backup_does_not_hold_what_was_forgotten_before_it(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        for number in range(50):
            memory.remember(f"secretmark{number} in a text", id=f"n{number}")
        memory.forget([f"n{number}" for number in range(0, 50, 2)])
        memory.backup(tmp_path / "copy.loom")
    content = (tmp_path / "copy.loom").read_bytes()
    assert [number for number in range(50) if f"secretmark{number} ".encode() in content] == list(range(1, 50, 2))


def test_a_half_made_backup_is_no_store(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember(["text " * 500] * 50)
        memory.backup(tmp_path / "copy.loom")
    content = (tmp_path / "copy.loom").read_bytes()
    (tmp_path / "half.loom").write_bytes(content[:10])
    with pytest.raises(NotAStore):
        opened(tmp_path / "half.loom")


# --- vacuum -----------------------------------------------------------------------------------------------


def test_vacuum_gives_space_back_and_changes_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with opened(path, embedder=FakeEmbedder(), index_tail_records=8) as memory:
        for number in range(60):
            memory.remember(f"note {number} about harbours " + "x" * 3000, id=f"n{number}")
        memory.flush()
        memory.forget([f"n{number}" for number in range(50)])
        kept = memory.list(history=True).records
        best = [hit.id for hit in memory.recall("harbours", limit=100)]
        assert memory.vacuum() > 0
        assert memory.list(history=True).records == kept
        assert [hit.id for hit in memory.recall("harbours", limit=100)] == best
        assert memory.remember("after", id="after").created
        assert memory.flush().complete
        assert memory.check().ok
        newest = memory.get("after")
        assert newest is not None
        assert newest.seq > max(record.seq for record in kept)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA freelist_count").fetchone()[0] < 20
