"""Faults that long runs have found, each injected at the one call that meets it."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import SnapshotError, StoreUnavailable
from loom.everyday import Memory
from loom.storage.sqlite.store import as_sqlite


def opened(path: Path) -> Memory:
    return loom.open(path, embedder="none", derive=False, index_tail_records=2)


def failing_once(call: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    errors = [error]

    def fail(*arguments: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop()
        return call(*arguments, **options)

    return fail


def test_an_interrupted_mkdir_of_the_index_folder_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "a.loom") as memory:
        monkeypatch.setattr(os, "mkdir", failing_once(os.mkdir, InterruptedError(errno.EINTR, "interrupted")))
        memory.remember(["One.", "Two.", "Three."])
        assert memory.flush().complete
    assert list((tmp_path / "a.loom-index").glob("*.seg"))


def test_a_write_does_not_keep_a_connection_that_may_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite opens a file for reading where it cannot open it for writing at that moment."""
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("One.", id="one")
        own = as_sqlite(memory.store).engine
        with own.maintenance():
            own.close_writer()
        connect, modes = sqlite3.connect, ["mode=ro"]

        def for_reading(name: str, **options: Any) -> Any:
            return connect(name.replace("mode=rw", modes.pop()) if modes else name, **options)

        monkeypatch.setattr(sqlite3, "connect", for_reading)
        memory.remember("Two.", id="two")
        assert not modes
        assert memory.get("two") is not None


@pytest.mark.parametrize(
    "use",
    [
        lambda memory, folder: memory.snapshot(folder / "a.hctx"),
        lambda memory, _: memory.remember("Two."),
        lambda memory, folder: memory.backup(folder / "b.loom"),
        lambda memory, _: memory.vacuum(),
    ],
    ids=["snapshot", "remember", "backup", "vacuum"],
)
def test_a_connection_that_cannot_be_opened_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Memory, Path], object]
) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("One.", id="one")
        memory.get("one")
        own = as_sqlite(memory.store).engine
        with own.maintenance():
            own.close_writer()

        def connect(*_: object, **__: object) -> None:
            raise sqlite3.OperationalError("unable to open database file")

        with monkeypatch.context() as failing:
            failing.setattr(sqlite3, "connect", connect)
            with pytest.raises(loom.LoomError, match="unable to open database file"):
                use(memory, tmp_path)
        use(memory, tmp_path)


def test_a_store_opens_beside_an_index_folder_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.loom"
    with opened(path) as memory:
        memory.remember(["One.", "Two.", "Three."])
        memory.flush()
        as_sqlite(memory.store).engine.truncate_wal()
    listdir = os.listdir

    def unlisted(folder: Any = ".") -> list[str]:
        if str(folder).endswith("-index"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return listdir(folder)

    with monkeypatch.context() as failing, caplog.at_level(logging.WARNING, logger="loom.store"):
        failing.setattr(os, "listdir", unlisted)
        with opened(path) as memory:
            assert memory.get_stats()["records"] == 3
    assert f"{path}-index cannot be listed: {os.strerror(errno.EIO)}" in caplog.text


def test_a_snapshot_says_why_it_does_not_replace_a_locked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.hctx"
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("One.")
        memory.snapshot(kept)

        class Locked(sqlite3.Connection):
            def execute(self, *_: Any) -> sqlite3.Cursor:
                raise sqlite3.OperationalError("database is locked")

        connect = sqlite3.connect

        def locked(name: str | Path, **options: Any) -> Any:
            return connect(name, **{**options, "factory": Locked} if "kept.hctx" in str(name) else options)

        with monkeypatch.context() as failing:
            failing.setattr(sqlite3, "connect", locked)
            with pytest.raises(StoreUnavailable, match=r"locked like one \(database is locked\)"):
                memory.snapshot(kept)
            with pytest.raises(SnapshotError, match=r"locked like one \(database is locked\)"):
                loom.restore(kept, tmp_path / "b.loom")
        memory.snapshot(kept)
