"""The vector store in memory: exact, filtered, deterministic, and whole under threads."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import InvalidInput, WrongDimension
from loom.memory.vector_store import InMemoryVectorStore, VectorStoreProvider
from loom.models.embedders import FakeEmbedder


def ids(store: InMemoryVectorStore, vector: Any, **options: Any) -> list[str]:
    return [hit.id for hit in store.search(vector, **options)]


def test_it_is_a_vector_store_provider() -> None:
    assert isinstance(InMemoryVectorStore(), VectorStoreProvider)


def test_the_nearest_comes_first_with_its_cosine() -> None:
    store = InMemoryVectorStore()
    store.add("east", [1, 0])
    store.add("north", [0, 3])
    store.add("west", [-1, 0])
    hits = store.search([2, 1], limit=3)
    assert [hit.id for hit in hits] == ["east", "north", "west"]
    assert [hit.score for hit in hits] == pytest.approx([2 / 5**0.5, 1 / 5**0.5, -2 / 5**0.5])


def test_search_finds_what_a_plain_sort_by_cosine_finds() -> None:
    generator = np.random.default_rng(3)
    vectors = generator.normal(size=(300, 24))
    store = InMemoryVectorStore()
    for number, vector in enumerate(vectors):
        store.add(f"{number:03}", vector)
    for query in generator.normal(size=(20, 24)):
        cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
        assert ids(store, query, limit=7) == [f"{number:03}" for number in np.argsort(-cosines)[:7]]


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_ties_go_by_id_whatever_the_order_of_adding(source: random.Random, limit: int) -> None:
    names = [f"{number:03}" for number in range(120)]
    order = names[:]
    source.shuffle(order)
    direction = FakeEmbedder(37).embed("the same thing")
    store = InMemoryVectorStore()
    for name in order:
        store.add(name, direction)
    assert ids(store, direction, limit=limit) == names[:limit]


def test_adding_under_an_id_again_replaces_vector_and_metadata() -> None:
    store = InMemoryVectorStore()
    store.add("a", [1, 0], {"kind": "old"})
    store.add("a", [0, 1])
    assert len(store) == 1
    assert store.search([0, 1])[0].score == pytest.approx(1)
    assert dict(store.search([0, 1])[0].metadata) == {}


def test_a_filter_keeps_only_what_has_every_key_and_value() -> None:
    store = InMemoryVectorStore()
    store.add("a", [1, 0], {"session": "s1", "kind": "fact"})
    store.add("b", [1, 0.1], {"session": "s1"})
    store.add("c", [1, 0.2], {"session": None})
    store.add("d", [1, 0.3])
    assert ids(store, [1, 0], where={"session": "s1"}) == ["a", "b"]
    assert ids(store, [1, 0], where={"session": "s1", "kind": "fact"}) == ["a"]
    assert ids(store, [1, 0], where={"session": None}) == ["c"]
    assert ids(store, [1, 0], where={"nobody has": 1}) == []


def test_a_filter_comes_before_the_limit() -> None:
    store = InMemoryVectorStore()
    for number in range(50):
        store.add(f"near {number}", [1, 0])
    store.add("far", [-1, 0.1], {"wanted": True})
    assert ids(store, [1, 0], limit=1, where={"wanted": True}) == ["far"]


def test_what_is_deleted_is_not_found_and_the_others_are() -> None:
    store = InMemoryVectorStore()
    for name, angle in (("a", 0.0), ("b", 0.5), ("c", 1.0)):
        store.add(name, [np.cos(angle), np.sin(angle)], {"name": name})
    assert store.delete("a")
    assert not store.delete("a")
    assert "a" not in store
    hits = store.search([1, 0])
    assert [hit.id for hit in hits] == ["b", "c"]
    assert [hit.metadata["name"] for hit in hits] == ["b", "c"]
    assert hits[0].score == pytest.approx(np.cos(0.5))


def test_delete_by_metadata_takes_exactly_what_the_filter_keeps() -> None:
    store = InMemoryVectorStore()
    for number in range(10):
        store.add(str(number), [1, number], {"even": number % 2 == 0})
    assert store.delete_by_metadata({"even": True}) == 5
    assert sorted(ids(store, [1, 0])) == ["1", "3", "5", "7", "9"]
    assert store.delete_by_metadata({"even": True}) == 0


def test_an_empty_filter_deletes_nothing_and_says_so() -> None:
    store = InMemoryVectorStore()
    store.add("a", [1, 0])
    with pytest.raises(InvalidInput, match="clear"):
        store.delete_by_metadata({})
    assert len(store) == 1


def test_a_cleared_store_is_empty_and_takes_other_dimensions() -> None:
    store = InMemoryVectorStore()
    store.add("a", [1, 0])
    store.clear()
    assert len(store) == 0
    assert store.search([1, 0, 0]) == []
    store.add("b", [1, 0, 0])
    assert store.dimensions == 3


def test_another_length_than_the_stores_is_refused() -> None:
    store = InMemoryVectorStore()
    store.add("a", [1, 0])
    with pytest.raises(WrongDimension, match="3 dimensions and the store 2"):
        store.add("b", [1, 0, 0])
    with pytest.raises(WrongDimension):
        store.search([1, 0, 0])
    with pytest.raises(WrongDimension):
        InMemoryVectorStore(dimensions=4).add("a", [1, 0])
    assert ids(store, [1, 0]) == ["a"]


@pytest.mark.parametrize("vector", [[0, 0], [float("nan"), 1], [float("inf"), 1], [1e300, 0], [], [[1, 0]], "ab", 5])
def test_a_vector_without_direction_is_refused(vector: Any) -> None:
    store = InMemoryVectorStore()
    with pytest.raises(InvalidInput):
        store.add("a", vector)
    with pytest.raises(InvalidInput):
        store.search(vector)
    assert len(store) == 0


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        InMemoryVectorStore().search([1], limit=limit)


def test_metadata_is_a_copy_on_the_way_in_and_out() -> None:
    store = InMemoryVectorStore()
    mine: dict[str, Any] = {"tags": ["x"]}
    store.add("a", [1, 0], mine)
    mine["tags"].append("changed by the caller")
    store.search([1, 0])[0].metadata["tags"].append("changed by a reader")
    assert store.search([1, 0])[0].metadata["tags"] == ["x"]


def test_threads_that_add_delete_and_search_leave_it_whole() -> None:
    store = InMemoryVectorStore(dimensions=16)
    embedder = FakeEmbedder(16)
    problems: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for number in range(120):
                store.add(f"{worker}-{number}", embedder.embed(f"{worker} {number}"), {"worker": worker})
                if number % 3 == 0:
                    store.delete(f"{worker}-{number}")
                for hit in store.search(embedder.embed(str(number)), limit=5):
                    assert hit.metadata["worker"] == int(hit.id.split("-")[0])
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(store) == 4 * 80
    for worker in range(4):
        assert store.search(embedder.embed(f"{worker} 1"), limit=1)[0].score == pytest.approx(1)
