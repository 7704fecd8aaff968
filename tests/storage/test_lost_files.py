"""The file is deleted, moved or replaced while it is open: no write is acknowledged that is not in the file."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import loom
from loom.errors import Closed, StoreUnavailable
from loom.storage.sqlite.engine import Engine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.loom"


@pytest.fixture
def memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[loom.Memory]:
    monkeypatch.setattr("loom.storage.sqlite.engine.CHECK_EVERY_S", 0.0)
    opened = loom.open(path, embedder="none", derive=False)
    opened.remember("Written while all was well.")
    opened.flush()
    yield opened
    opened.close()


def other_store(folder: Path) -> Path:
    other = folder / "other.loom"
    with loom.open(other, embedder="none", derive=False) as memory:
        memory.remember("Belongs to another store.", id="theirs")
    return other


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved.loom"))


def replace(path: Path) -> None:
    os.replace(other_store(path.parent), path)


def copy(path: Path) -> None:
    """The effect of `cp backup agent.loom.new && mv agent.loom.new agent.loom`: the same store, another file."""
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


@pytest.mark.parametrize("lose", [delete, move, replace, copy])
class TestALostFile:
    def test_is_noticed_before_a_write_is_acknowledged(
        self, memory: loom.Memory, path: Path, lose: Callable[[Path], None]
    ) -> None:
        lose(path)
        with pytest.raises(StoreUnavailable, match=r"agent\.loom was (deleted|replaced).*open it again"):
            memory.remember("Into nothing.")

    def test_is_noticed_by_readers_and_check(
        self, memory: loom.Memory, path: Path, lose: Callable[[Path], None]
    ) -> None:
        lose(path)
        for verb in (memory.check, memory.get_stats, memory.flush, lambda: memory.recall("all was well")):
            with pytest.raises(StoreUnavailable):
                verb()

    def test_does_not_keep_a_memory_with_unwritten_uses_from_closing(
        self, memory: loom.Memory, path: Path, lose: Callable[[Path], None]
    ) -> None:
        (record,) = memory.list().records
        assert memory.get(record.id)
        lose(path)
        memory.close()
        with pytest.raises(Closed):
            memory.get(record.id)

    def test_is_noticed_when_it_is_lost_within_a_transaction(
        self, memory: loom.Memory, path: Path, lose: Callable[[Path], None]
    ) -> None:
        scope = memory.store.transaction()
        scope.__enter__().put_blob("key", b"value")
        lose(path)
        with pytest.raises(StoreUnavailable, match="last write"):
            scope.__exit__(None, None, None)


def test_another_store_in_its_place_is_left_alone(memory: loom.Memory, path: Path) -> None:
    replace(path)
    with pytest.raises(StoreUnavailable):
        memory.remember("Not into the other one.")
    memory.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)  # those of the store that was there before
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT id FROM records").fetchall() == [("theirs",)]


def test_a_write_right_after_the_last_look_is_not_acknowledged(
    memory: loom.Memory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom.storage.sqlite.engine.CHECK_EVERY_S", 3600.0)
    memory.get("nothing")
    path.unlink()
    with pytest.raises(StoreUnavailable, match="last write"):
        memory.remember("Into nothing.")


def test_a_new_connection_never_makes_a_new_file(path: Path) -> None:
    engine = Engine.acquire(path)
    path.unlink()
    with pytest.raises(StoreUnavailable), engine.read():
        pass
    with pytest.raises(StoreUnavailable), engine.write():
        pass
    engine.release()
    assert not path.exists()
