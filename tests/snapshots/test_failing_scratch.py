"""The scratch database of a restore fails: the error is ours, and the memory is unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import StoreError


class _FailingConnection(sqlite3.Connection):
    """Fails at the first statement that contains a text."""

    refused = ""

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if self.refused in statement:
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(statement, *parameters)


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    with loom.open(tmp_path / "one.loom", embedder="none") as memory:
        memory.remember("The ferry leaves at nine.", id="ferry")
        memory.snapshot(tmp_path / "one.hctx")
    return tmp_path / "one.hctx"


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let statements of scratch databases that contain a text fail."""
    real = sqlite3.connect

    def connect(place: Any, **options: Any) -> sqlite3.Connection:
        kind = _FailingConnection if str(place).endswith(".tmp") else sqlite3.Connection
        return real(place, factory=kind, **options)

    def refusing(text: str) -> None:
        monkeypatch.setattr(_FailingConnection, "refused", text)
        monkeypatch.setattr(sqlite3, "connect", connect)

    return refusing


@pytest.mark.parametrize("refused", ["PRAGMA synchronous", "FROM supersessions"])
def test_a_restore_into_a_memory_names_the_fault_of_its_scratch_database(
    tmp_path: Path, snapshot: Path, refuse: Callable[[str], None], refused: str
) -> None:
    with loom.open(tmp_path / "other.loom", embedder="none") as memory:
        memory.remember("The kitchen is ochre.", id="kitchen")
        refuse(refused)
        with pytest.raises(StoreError, match="disk I/O error"):
            memory.restore(snapshot)
        assert [record.id for record in memory.list().records] == ["kitchen"]
    assert [*tmp_path.glob(".*")] == []


@pytest.mark.parametrize("refused", ["PRAGMA synchronous", "count(*) FROM blobs"])
def test_a_restore_into_a_file_names_the_fault_of_its_scratch_database(
    tmp_path: Path, snapshot: Path, refuse: Callable[[str], None], refused: str
) -> None:
    refuse(refused)
    with pytest.raises(StoreError, match="disk I/O error"):
        loom.restore(snapshot, tmp_path / "new.loom")
    assert not (tmp_path / "new.loom").exists()
    assert [*tmp_path.glob(".*")] == []
