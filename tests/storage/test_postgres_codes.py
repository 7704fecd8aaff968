"""Large namespaces: hosts that fetch the codes of vectors, and read the vectors of the best from the database."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from loom.storage import open_store
from loom.storage.contract import Draft, Filter, Store
from loom.storage.search_view import search_text, search_vectors

pytest.importorskip("psycopg")


EVERYTHING = Filter()
NOON = datetime(2026, 2, 3, 12, 0, tzinfo=UTC)
DIMENSIONS = 64
COUNT = 3000
RANDOM = np.random.default_rng(7)
VECTORS = RANDOM.standard_normal((COUNT, DIMENSIONS)).astype(np.float32)
QUESTIONS = VECTORS[::300] + 0.4 * RANDOM.standard_normal((10, DIMENSIONS)).astype(np.float32)


def embed(texts: Any) -> npt.NDArray[np.float32]:
    return np.array([VECTORS[int(text.rpartition(" ")[2])] for text in texts])


def host(url: str, folder: Path, codes_only_from: int) -> Store:
    """A store with a cache of its own, as on another host."""
    base = url.partition("&cache=")[0]
    store = open_store(f"{base}&cache={folder}&codes_only_from={codes_only_from}", tail=(500, 1 << 20))
    store.use_embedder("of-the-tests", DIMENSIONS, embed)
    return store


@pytest.fixture
def filled(postgres_url: str, tmp_path: Path) -> str:
    store = host(postgres_url, tmp_path / "writer", 10**9)
    with store.transaction() as transaction:
        written = transaction.append([Draft(f"r{number}", f"text {number}", NOON) for number in range(COUNT)])
        transaction.take(transaction.jobs("embed", COUNT))
        transaction.put_vectors([one.seq for one in written], VECTORS)
    store.flush()
    store.vacuum()
    store.close()
    return postgres_url


def answers(store: Store, wanted: Filter = EVERYTHING) -> list[list[tuple[int, float]]]:
    return [[(one.seq, one.score) for one in search_vectors(store, question, 10, wanted)] for question in QUESTIONS]


def sizes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*/vectors-*.seg"))


def test_answers_from_codes_are_those_from_whole_files(filled: str, tmp_path: Path) -> None:
    whole, lean = host(filled, tmp_path / "whole", 10**9), host(filled, tmp_path / "lean", 1000)
    try:
        assert answers(lean) == answers(whole)
        few = Filter(ids=[f"r{number}" for number in range(0, COUNT, 7)])
        assert answers(lean, few) == answers(whole, few)
        assert 0 < sizes(tmp_path / "lean") < sizes(tmp_path / "whole") / 2
        with lean.transaction() as transaction:
            (one,) = transaction.append([Draft("new", "text 300", NOON)])
        lean.flush()
        assert answers(lean) == answers(whole)
        assert any(seq == one.seq for seq, _ in answers(lean)[1])
    finally:
        lean.close()
        whole.close()


def test_a_host_with_codes_only_forgets_and_rebuilds(filled: str, tmp_path: Path) -> None:
    lean = host(filled, tmp_path / "lean", 1000)
    try:
        before = answers(lean)
        record = lean.get("r300")
        assert record is not None
        assert lean.forget(Filter(ids=["r300"])).segments >= 1  # it rewrites whole files
        after = answers(lean)
        assert all(record.seq != seq for found in after for seq, _ in found)
        assert [one for one in before if all(seq != record.seq for seq, _ in one)] == [
            now for was, now in zip(before, after, strict=True) if all(seq != record.seq for seq, _ in was)
        ]
        lean.rebuild("vectors")  # type: ignore[attr-defined]
        lean.flush()
        assert answers(lean) == after
        assert lean.check().ok
    finally:
        lean.close()


def test_a_cold_host_answers_by_words_until_the_vectors_are_there(filled: str, tmp_path: Path) -> None:
    whole = host(filled, tmp_path / "whole", 10**9)
    cold = host(f"{filled.partition('&cache=')[0]}&words_first_from=100", tmp_path / "cold", 10**9)
    try:
        assert answers(cold)[0] == []  # it only begins to fetch them
        assert [match.seq for match in search_text(cold, {"300": 1.0}, 5, EVERYTHING)] == cold.numbers(
            Filter(ids=["r300"]), 2
        )
        deadline = time.monotonic() + 60
        while answers(cold) != answers(whole):
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
    finally:
        cold.close()
        whole.close()
