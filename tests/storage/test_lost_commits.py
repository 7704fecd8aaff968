"""A damaged write-ahead log: SQLite drops the commits after the first bad frame, and loom names those that it
knows."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.storage.sqlite.store import SqliteStore, as_sqlite


def lose_the_log(tmp_path: Path) -> Path:
    """A store whose log was damaged after its index had seen what was in the log."""
    path, lost = tmp_path / "a.loom", tmp_path / "b.loom"
    with loom.open(path, embedder="none", derive=False, index_tail_records=5) as memory:
        memory.remember(["Kept in the file."])
        memory.flush()
        as_sqlite(memory.store).engine.truncate_wal()
        for number in range(12):
            memory.remember(f"In the log alone, number {number}.")
        memory.flush()
        shutil.copy(path, lost)
        shutil.copytree(path.with_name(path.name + "-index"), lost.with_name(lost.name + "-index"))
    return lost


def written(path: Path, lost: Path, **options: Any) -> bytes:
    """Write twelve records into the log of a store, copy the store without its log, and give the log."""
    with loom.open(path, embedder="none", derive=False, **options) as memory:
        memory.remember("Kept in the file.")
        memory.flush()
        as_sqlite(memory.store).engine.truncate_wal()
        for number in range(12):
            memory.remember(f"In the log alone, number {number}.")
        if options:
            memory.flush()
        shutil.copy(path, lost)
        if Path(f"{path}-index").exists():
            shutil.copytree(f"{path}-index", f"{lost}-index")
        return Path(f"{path}-wal").read_bytes()


def frames_of(log: bytes | bytearray) -> tuple[int, int, list[int]]:
    """The size of a frame, how many there are, and which of them end a transaction."""
    size = 24 + int.from_bytes(log[8:12], "big")
    count = (len(log) - 32) // size
    return size, count, [at for at in range(count) if any(log[32 + at * size + 4 : 32 + at * size + 8])]


@pytest.mark.parametrize("where", [0.0, 0.1, 0.25, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("offset", [4, 9, 17, 24 + 2000])  # the size of the commit, the salt, the checksum, the page
def test_commits_behind_a_flipped_bit_are_named_though_no_index_has_seen_them(
    tmp_path: Path, where: float, offset: int
) -> None:
    log = bytearray(written(tmp_path / "a.loom", tmp_path / "b.loom"))
    size, count, commits = frames_of(log)
    damaged = round(where * (count - 1))
    assert damaged < commits[-2]
    log[32 + damaged * size + offset] ^= 16
    Path(f"{tmp_path / 'b.loom'}-wal").write_bytes(log)
    for read_only in (True, False):
        with loom.open(tmp_path / "b.loom", embedder="none", derive=False, read_only=read_only) as memory:
            stats = memory.get_stats()
            assert stats["records"] < 13
            assert stats["lost"] is not None
            first, last = stats["lost"]
            assert stats["records"] + last - first + 1 == 13
            assert not memory.check(repair=False).ok
        assert Path(f"{tmp_path / 'b.loom'}-wal").exists() == read_only  # SQLite would delete one that it cannot use
    with loom.open(tmp_path / "b.loom", embedder="none", derive=False) as memory:
        assert memory.remember("Afterwards.")
        assert any(f"{first} to {last}" in problem for problem in memory.check().problems)
    with loom.open(tmp_path / "b.loom", embedder="none", derive=False) as memory:
        assert memory.check().ok  # it is told until it was checked


@pytest.mark.parametrize("offset", [5, 17, 25])  # the version, the salt, the checksum
def test_commits_of_a_log_whose_beginning_is_damaged_are_named(tmp_path: Path, offset: int) -> None:
    log = bytearray(written(tmp_path / "a.loom", tmp_path / "b.loom"))
    log[offset] ^= 1
    Path(f"{tmp_path / 'b.loom'}-wal").write_bytes(log)
    with loom.open(tmp_path / "b.loom", embedder="none", derive=False) as memory:
        stats = memory.get_stats()
        assert stats["records"] == 1
        assert stats["lost"][1] - stats["lost"][0] + 1 == 12


def test_a_transaction_that_was_not_committed_is_not_called_lost(tmp_path: Path) -> None:
    log = written(tmp_path / "a.loom", tmp_path / "b.loom")
    size, _, commits = frames_of(log)
    cut = 32 + (commits[-1]) * size  # the last transaction without the frame that commits it
    Path(f"{tmp_path / 'b.loom'}-wal").write_bytes(log[:cut] + bytes(100))
    with loom.open(tmp_path / "b.loom", embedder="none", derive=False) as memory:
        assert memory.get_stats()["records"] == 12
        assert memory.get_stats()["lost"] is None
        assert memory.check().ok


def test_a_log_that_others_write_to_is_not_called_damaged(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
        for number in range(40):
            memory.remember(f"Number {number}. " + "tide " * (20 * number % 700))
            if number % 7 == 0:
                as_sqlite(memory.store).engine.truncate_wal()
            looking = "import loom, sys; print(loom.open(sys.argv[1], read_only=True).get_stats()['lost'])"
            if number % 5 == 0:
                told = subprocess.check_output([sys.executable, "-c", looking, str(tmp_path / "a.loom")], text=True)
                assert told.strip() == "None"


@pytest.mark.parametrize("where", [0.0, 0.25, 0.5, 1.0])
def test_a_flipped_bit_beside_an_index_is_named_as_far_as_either_has_seen(tmp_path: Path, where: float) -> None:
    log = bytearray(written(tmp_path / "a.loom", tmp_path / "b.loom", index_tail_records=5))
    size, count, _ = frames_of(log)
    log[32 + round(where * (count - 1)) * size + 9] ^= 16
    Path(f"{tmp_path / 'b.loom'}-wal").write_bytes(log)
    with loom.open(tmp_path / "b.loom", embedder="none", derive=False, index_tail_records=5) as memory:
        stats = memory.get_stats()
        named = 0 if stats["lost"] is None else stats["lost"][1] - stats["lost"][0] + 1
        assert bool(named) >= (stats["records"] < 13)
        assert stats["records"] + named <= 13
        assert memory.check().ok == (not named)
        assert memory.remember("Afterwards.")


def test_is_named_by_check_stats_and_opening(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = lose_the_log(tmp_path)
    with (
        caplog.at_level(logging.WARNING, logger="loom.store"),
        loom.open(path, embedder="none", derive=False, index_tail_records=5) as memory,
    ):
        assert memory.get_stats()["records"] == 1
        lost = memory.get_stats()["lost"]
        assert lost is not None
        first, last = lost
        assert last - first + 1 >= 5
        assert f"{first} to {last}" in caplog.text
        report = memory.check()
        assert not report.ok
        assert any(f"{first} to {last}" in problem for problem in report.problems)
    with loom.open(path, embedder="none", derive=False) as memory:  # the evidence is gone with the orphaned files
        assert memory.get_stats()["records"] == 1


def test_is_not_claimed_of_a_store_that_is_whole(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False, index_tail_records=5) as memory:
        for number in range(30):
            memory.remember(f"Number {number}.")
        memory.flush()
        memory.forget(memory.list(limit=1).records[0].id)
        assert memory.get_stats()["lost"] is None
    store = SqliteStore(tmp_path / "a.loom")
    assert store.lost is None
    store.close()
