"""A damaged write-ahead log: SQLite drops the commits behind the first bad frame, and loom says which are known."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

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


@pytest.mark.parametrize("where", [0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("offset", [4, 9, 17, 24 + 2000])  # the size of the commit, the salt, the checksum, the page
def test_commits_behind_a_flipped_bit_are_named(tmp_path: Path, where: float, offset: int) -> None:
    path, lost = tmp_path / "a.loom", tmp_path / "b.loom"
    with loom.open(path, embedder="none", derive=False, index_tail_records=5) as memory:
        memory.remember("Kept in the file.")
        memory.flush()
        as_sqlite(memory.store).engine.truncate_wal()
        for number in range(12):
            memory.remember(f"In the log alone, number {number}.")
        memory.flush()
        shutil.copy(path, lost)
        shutil.copytree(f"{path}-index", f"{lost}-index")
        log = bytearray(Path(f"{path}-wal").read_bytes())
    frame = 24 + int.from_bytes(log[8:12], "big")
    frames = (len(log) - 32) // frame
    log[32 + round(where * (frames - 1)) * frame + offset] ^= 16
    Path(f"{lost}-wal").write_bytes(log)
    with loom.open(lost, embedder="none", derive=False, index_tail_records=5) as memory:
        stats = memory.get_stats()
        named = 0 if stats["lost"] is None else stats["lost"][1] - stats["lost"][0] + 1
        if where <= 0.5:
            assert stats["records"] < 13
            assert named
        assert stats["records"] + named <= 13  # what no index file has seen cannot be named
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
