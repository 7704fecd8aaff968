"""A vector store of the caller's own is fed from the memory, nominates what a recall ranks, and forgets with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import loom
from loom.errors import ForgetPending, InvalidInput
from loom.memory import InMemoryVectorStore, LoomMemory, MemoryManager, VectorStoreProvider
from loom.memory.vector_store import VectorHit
from loom.models.embedders import FakeEmbedder

TEXTS = ["The heron nests by the harbour.", "Rent rose to six thousand.", "苍鹭在港口筑巢。", "Valve nine burst."]


class Noted(InMemoryVectorStore):
    """One that notes what it is asked, and can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.broken = False

    def search(
        self, vector: npt.ArrayLike, limit: int = 10, where: Mapping[str, Any] | None = None
    ) -> list[VectorHit]:
        self.asked += 1
        if self.broken:
            raise OSError("unplugged")
        return super().search(vector, limit, where)

    def delete_by_metadata(self, where: Mapping[str, Any]) -> int:
        if self.broken:
            raise OSError("unplugged")
        return super().delete_by_metadata(where)


class SqliteVectors:
    """A durable one of a caller's own making. It has a name, so the memory file knows how far it has come."""

    name = "own"

    def __init__(self, path: Path) -> None:
        self._rows = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._rows.execute("CREATE TABLE IF NOT EXISTS v (id TEXT PRIMARY KEY, vector BLOB, space TEXT, record INT)")
        self.added = 0

    def add(self, record_id: str, vector: npt.ArrayLike, metadata: Mapping[str, Any] | None = None) -> None:
        self.added += 1
        held = metadata or {}
        blob = np.asarray(vector, dtype=np.float32).tobytes()
        self._rows.execute("REPLACE INTO v VALUES (?, ?, ?, ?)", (record_id, blob, held["namespace"], held["record"]))

    def search(
        self, vector: npt.ArrayLike, limit: int = 10, where: Mapping[str, Any] | None = None
    ) -> list[VectorHit]:
        wanted = np.asarray(vector, dtype=np.float32)
        hits = [
            VectorHit(id, float(np.frombuffer(blob, dtype=np.float32) @ wanted), {"record": record})
            for id, blob, record in self._rows.execute("SELECT id, vector, record FROM v")
        ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))[:limit]

    def delete(self, record_id: str) -> bool:
        return self._rows.execute("DELETE FROM v WHERE id = ?", (record_id,)).rowcount > 0

    def delete_by_metadata(self, where: Mapping[str, Any]) -> int:
        return self._rows.execute("DELETE FROM v WHERE record = ?", (where["record"],)).rowcount

    def clear(self) -> None:
        self._rows.execute("DELETE FROM v")

    @property
    def ids(self) -> set[str]:
        return {row[0] for row in self._rows.execute("SELECT id FROM v")}


def meant(memory: LoomMemory, question: str) -> set[str]:
    """The hits that were nominated by meaning."""
    found = memory.search(question, limit=10, explain=True)
    return {one.id for one in found.candidates if "meaning" in one.nominated_by}


@pytest.mark.parametrize("kind", [LoomMemory, MemoryManager])
def test_what_is_embedded_is_in_the_callers_store_and_found_through_it(kind: type[LoomMemory]) -> None:
    """Requirements 45, 53, 78."""
    vectors = Noted()
    assert isinstance(vectors, VectorStoreProvider)
    with kind("agent", embedder=FakeEmbedder(), vector_store=vectors, derive=False) as memory:
        ids = [memory.remember(text, session_id="s").id for text in TEXTS]
        memory.flush()
        hits = memory.recall("Where does the heron nest?")
        assert hits[0].id == ids[0]
        assert vectors.asked > 0
        assert all(id in vectors for id in ids)
        assert meant(memory, "heron harbour") == set(ids)
        # What the caller's store does not give is not nominated by meaning.
        vectors.delete(ids[3])
        assert meant(memory, "heron harbour") == set(ids[:3])
        assert "session_id" in vectors.search(np.ones(64), 1)[0].metadata


def test_every_hit_is_scored_here_so_the_order_is_that_of_a_memory_without_one() -> None:
    with (
        loom.open(embedder=FakeEmbedder(), derive=False) as plain,
        loom.open(embedder=FakeEmbedder(), vector_store=InMemoryVectorStore(), derive=False) as plugged,
    ):
        for memory in (plain, plugged):
            for number, text in enumerate(TEXTS):
                memory.remember(text, id=f"r{number}", created_at="2026-03-02T12:00:00+00:00")
            memory.flush()
        for question in ("Where does the heron nest?", "苍鹭在哪里？", "valve"):
            found = [[(hit.id, round(hit.score, 3)) for hit in one.recall(question)] for one in (plain, plugged)]
            assert found[0] == found[1]


def test_forgetting_deletes_from_the_callers_store_before_it_returns() -> None:
    vectors = InMemoryVectorStore()
    with loom.open(embedder=FakeEmbedder(), vector_store=vectors, derive=False) as memory:
        ids = [memory.remember(text).id for text in TEXTS]
        memory.flush()
        memory.recall("heron")
        memory.forget(ids[0])
        assert ids[0] not in vectors
        assert ids[1] in vectors


def test_a_store_that_cannot_delete_leaves_the_forgetting_pending_and_is_asked_again() -> None:
    vectors = Noted()
    with loom.open(embedder=FakeEmbedder(), vector_store=vectors, derive=False) as memory:
        id = memory.remember(TEXTS[0]).id
        memory.flush()
        memory.recall("heron")
        vectors.broken = True
        with pytest.raises(ForgetPending, match="the vector store could not delete"):
            memory.forget(id)
        assert memory.get(id) is None
        vectors.broken = False
        memory.recall("heron")
        assert id not in vectors


def test_a_store_that_fails_costs_its_signal_and_not_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    vectors = Noted()
    with loom.open(embedder=FakeEmbedder(), vector_store=vectors, derive=False) as memory:
        memory.remember(TEXTS[0])
        memory.flush()
        vectors.broken = True
        assert memory.recall("Where does the heron nest?")[0].content == TEXTS[0]
        assert "the vector store failed (OSError)" in caplog.text


def test_an_update_replaces_the_vector_and_another_handles_writes_are_followed(tmp_path: Path) -> None:
    vectors = InMemoryVectorStore()
    path = tmp_path / "a.loom"
    with (
        loom.open(path, embedder=FakeEmbedder(), derive=False) as other,
        loom.open(path, embedder=FakeEmbedder(), vector_store=vectors, derive=False) as memory,
    ):
        id = other.remember(TEXTS[0]).id
        other.flush()
        memory.recall("heron")
        before = vectors.search(FakeEmbedder().embed(TEXTS[0]), 1)[0]
        assert (before.id, round(before.score, 3)) == (id, 1.0)
        other.update(id, TEXTS[3])
        other.flush()
        memory.recall("valve")
        after = vectors.search(FakeEmbedder().embed(TEXTS[3]), 1)[0]
        assert (after.id, round(after.score, 3)) == (id, 1.0)
        assert len(vectors) == 1


def test_a_store_with_a_name_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with loom.open(
        path, embedder=FakeEmbedder(), vector_store=SqliteVectors(tmp_path / "v.db"), derive=False
    ) as memory:
        ids = {memory.remember(text).id for text in TEXTS}
        memory.flush()
        assert memory.recall("heron")
    again = SqliteVectors(tmp_path / "v.db")
    assert again.ids == ids
    with loom.open(path, embedder=FakeEmbedder(), vector_store=again, derive=False) as memory:
        new = memory.remember("The gull follows the boat.").id
        memory.flush()
        assert memory.recall("Where does the heron nest?")[0].content == TEXTS[0]
    assert again.ids == {*ids, new}
    assert again.added == 1


def test_without_an_embedder_or_vectorisation_words_answer_alone() -> None:
    """Requirement 53."""
    for options in ({"embedder": "none"}, {"embedder": FakeEmbedder(), "enable_l4_vectorization": False}):
        vectors = Noted()
        with loom.open(vector_store=vectors, derive=False, **options) as memory:
            memory.remember(TEXTS[0])
            memory.flush()
            assert memory.recall("heron")
            assert (vectors.asked, len(vectors)) == (0, 0)


def test_what_is_no_vector_store_is_refused() -> None:
    for wrong in (object(), InMemoryVectorStore, "path", {}):
        with pytest.raises(InvalidInput, match="vector_store must be an object with add"):
            loom.open(embedder="fake", vector_store=wrong)  # type: ignore[arg-type]
