"""forget() does not wait for background work, of its own process or another, and works on a full disk."""

from __future__ import annotations

import errno
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import ForgetPending, StoreFull
from loom.models.embedders import FakeEmbedder
from loom.storage.sqlite.projections import Projector
from loom.storage.sqlite.store import SqliteStore


class Stuck(FakeEmbedder):
    """An embedder that does not return until it is released."""

    def __init__(self) -> None:
        super().__init__(dimensions=16)
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def embed_batch(self, texts: Sequence[str]) -> Any:
        self.asked.set()
        self.may_answer.wait()
        return super().embed_batch(texts)


def hold_lease(path: Path, owner: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        expires = (time.time_ns() + 3600 * 10**9) // 1000
        (name,) = connection.execute("SELECT 'worker-' || number FROM namespaces").fetchone()
        connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, 1000, ?)", (name, owner, expires))
        connection.commit()


def test_it_overtakes_the_embedding_of_its_own_process(tmp_path: Path) -> None:
    embedder = Stuck()
    with loom.open(tmp_path / "a.loom", embedder=embedder, derive=False) as memory:
        ids = [written.id for written in memory.remember([f"Text {number}." for number in range(100)])]
        embedder.asked.wait()
        assert memory.forget(ids[7]).records == 1
        assert memory.forget(ids[8]).records == 1
        embedder.may_answer.set()
        assert memory.flush().complete
        assert memory.get_stats()["vectors"] == 98
        assert memory.check(repair=False).ok


def test_it_overtakes_the_background_work_of_another_process(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
        one = memory.remember("To be forgotten.").id
        memory.flush()
        hold_lease(tmp_path / "a.loom", "another process")
        assert memory.forget(one).records == 1


def test_it_waits_for_another_forget_and_says_so(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
        one = memory.remember("To be forgotten.").id
        memory.flush()
        hold_lease(tmp_path / "a.loom", "urgent other")
        with pytest.raises(ForgetPending, match=r"other calls of forget\(\)"):
            memory.forget(one, timeout_s=0.1)
        assert memory.get(one) is None


class TestWithoutRoom:
    def test_it_works_at_the_limit_of_the_file(self, tmp_path: Path) -> None:
        limited = SqliteStore(tmp_path / "a.loom", max_bytes=600_000)
        with closing(limited), loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
            ids: list[str] = []

            def fill() -> None:
                while True:
                    ids.append(memory.remember(f"{len(ids)} " + "x" * 700).id)

            with pytest.raises(StoreFull):
                fill()
            for id in ids[::3]:
                assert memory.forget(id).records == 1
            assert memory.get(ids[0]) is None
            assert memory.get(ids[1]) is not None
            assert memory.check(repair=False).ok

    @pytest.mark.parametrize("lacking", [errno.ENOSPC, errno.EDQUOT])
    def test_it_drops_an_index_that_it_cannot_write_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: int
    ) -> None:
        with loom.open(tmp_path / "a.loom", embedder="none", derive=False, index_tail_records=5) as memory:
            ids = [memory.remember(f"The harbour number {number}.").id for number in range(12)]
            memory.flush()
            assert memory.get_stats()["segments"] > 0

            def full(self: Projector, name: str, header: Any, arrays: Any) -> None:
                raise OSError(lacking, "no space left on device")

            monkeypatch.setattr(Projector, "write_file", full)
            assert memory.forget(ids[0]).records == 1
            assert not list((tmp_path / "a.loom-index").glob("*"))
            assert len(memory.recall("harbour", limit=20)) == 11
            monkeypatch.undo()
            assert memory.flush().complete
            assert memory.check(repair=False).ok
