"""Hashes that collide all the time: ids, sessions and terms are told apart by their text and namespace."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import NotFound
from loom.index import doc_values, text_segments
from loom.index.text_index import TextIndex
from loom.index.text_tail import TextTail
from loom.protocol import new_id
from loom.storage import identity
from loom.storage.contract import Draft, Filter, Retention
from loom.storage.search_view import search_text
from loom.storage.sqlite.store import SqliteStore

MOMENT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
NAMESPACES = ("one", "two")


def weak(text: str) -> int:
    """A hash of four bits that does not include the namespace."""
    return blake2b(text.partition("\0")[2].encode(), digest_size=1).digest()[0] & 15


@pytest.fixture(autouse=True)
def weak_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(identity, "hash_bits", weak)
    identity.session_hash.cache_clear()
    yield
    identity.session_hash.cache_clear()


def drafts(namespace: str) -> list[Draft]:
    notes = [
        Draft(f"n{number}", f"note {number} of {namespace}", MOMENT, session_id=f"s{number % 40}", tier="l1")
        for number in range(120)
    ]
    derived = [
        Draft(f"d{number}", f"derived {number}", MOMENT, sources=(f"n{number}",), drawn=True) for number in range(60)
    ]
    return notes + derived


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    one, two = (SqliteStore(tmp_path / "a.loom", namespace=name) for name in NAMESPACES)
    for store in (one, two):
        with store.transaction() as transaction:
            transaction.append(drafts(store.namespace))
            transaction.append([Draft(f"n{number}", "revised", MOMENT, revises=True) for number in range(0, 120, 10)])
    yield one, two
    one.close()
    two.close()


def ids(store: SqliteStore, wanted: Filter | None = None) -> set[str]:
    page = store.scan(wanted or Filter(), limit=10_000)
    return {record.id for record in page.records}


EVERYTHING = {f"n{number}" for number in range(120)} | {f"d{number}" for number in range(60)}


def test_hashes_collide_in_these_tests() -> None:
    assert len({identity.id_hash(1, id) for id in EVERYTHING}) <= 16
    assert identity.id_hash(1, "n1") == identity.id_hash(2, "n1")


def test_each_id_is_read_by_itself(stores: tuple[SqliteStore, SqliteStore]) -> None:
    for store in stores:
        for number in range(120):
            record = store.get(f"n{number}")
            assert record is not None
            assert record.content == ("revised" if number % 10 == 0 else f"note {number} of {store.namespace}")
            assert len(store.history(f"n{number}")) == (2 if number % 10 == 0 else 1)
            assert store.neighbours(f"n{number}") == ((), (f"d{number}",) if number < 60 else ())
        assert ids(store, Filter(ids=["n3", "n7"])) == {"n3", "n7"}


def test_forgetting_takes_the_chosen_records_and_no_others(stores: tuple[SqliteStore, SqliteStore]) -> None:
    one, two = stores
    receipt = one.forget(Filter(ids=["n3", "n10"]))
    assert (set(receipt.ids), receipt.records, receipt.derived) == ({"n3", "n10"}, 5, 2)
    assert ids(one) == EVERYTHING - {"n3", "n10", "d3", "d10"}
    assert ids(two) == EVERYTHING
    assert two.neighbours("n3") == ((), ("d3",))
    assert one.check().ok
    assert two.check().ok
    with one.transaction() as transaction:
        (written,) = transaction.append([Draft("n3", "another one", MOMENT)])
    assert written.version == 1
    assert one.neighbours("n3") == ((), ())


def test_a_pin_marks_one_id_of_one_namespace(stores: tuple[SqliteStore, SqliteStore]) -> None:
    one, two = stores
    with one.transaction() as transaction:
        transaction.pin("n10", True)
        transaction.pin("n11", True)
    assert ids(one, Filter(pinned=True)) == {"n10", "n11"}
    assert ids(one, Filter(pinned=False)) == EVERYTHING - {"n10", "n11"}
    assert [id for id in sorted(EVERYTHING) if one.pinned(id)] == ["n10", "n11"]
    assert ids(two, Filter(pinned=True)) == set()
    assert not two.pinned("n10")
    with two.transaction() as transaction:
        transaction.pin("n10", False)
    with one.transaction() as transaction:
        transaction.pin("n11", False)
    assert ids(one, Filter(pinned=True)) == {"n10"}
    one.forget(Filter(ids=[id for id in EVERYTHING if id != "n10" and id[0] == "n"]))
    assert one.pinned("n10")


def test_a_session_is_told_apart_from_another_one(stores: tuple[SqliteStore, SqliteStore]) -> None:
    one, two = stores
    for store in stores:
        assert ids(store, Filter(session_id="s5", history=True)) == {"n5", "n45", "n85"}
        first = store.get("n5")
        assert first is not None
        following = store.records(store.following(first.seq, 10))
        assert [record.id for _, record in sorted(following.items())] == ["n45", "n85"]
    one.forget(Filter(session_id="s5"))
    assert EVERYTHING - ids(one) == {"n5", "n45", "n85", "d5", "d45"}
    assert ids(two) == EVERYTHING


def test_sources_and_derivations_are_told_apart(stores: tuple[SqliteStore, SqliteStore]) -> None:
    for store in stores:
        with store.transaction() as transaction:
            for number in range(60):
                assert [record.id for record in transaction.sources(f"d{number}")] == [f"n{number}"]
                assert [other for other in range(60) if transaction.draws_on(f"d{number}", f"n{other}")] == [number]
        stands = Draft("stands", "stands for two", MOMENT, sources=("n1", "n2"), drawn=True, replaces=True)
        with store.transaction() as transaction:
            transaction.append([stands])
        everyone = {record.seq: record.id for record in store.scan(Filter(), limit=10_000).records}
        assert {everyone[seq] for seq in store.replaced(everyone)} == {"n1", "n2"}


def test_a_source_may_be_written_after_what_was_made_from_it(stores: tuple[SqliteStore, SqliteStore]) -> None:
    one, two = stores
    with one.transaction() as transaction:
        transaction.append([Draft("early", "made from what is yet to come", MOMENT, sources=("late", "n1"))])
    assert one.neighbours("early") == (("n1",), ())
    with two.transaction() as transaction:
        transaction.append([Draft("late", "in another namespace", MOMENT)])
    with one.transaction() as transaction:
        transaction.append([Draft(f"x{number}", "not awaited", MOMENT) for number in range(40)])
    assert one.neighbours("early") == (("n1",), ())
    with one.transaction() as transaction:
        transaction.append([Draft("late", "here it is", MOMENT)])
    assert one.neighbours("early") == (("late", "n1"), ())
    assert two.neighbours("late") == ((), ())
    assert one.forget(Filter(ids=["late"])).derived == 1
    assert one.get("early") is None


def test_retention_keeps_what_is_pinned_and_nothing_else(tmp_path: Path) -> None:
    for name in NAMESPACES:
        with loom.open(tmp_path / "a.loom", namespace=name, embedder="none") as memory:
            for number in range(40):
                memory.remember(f"note {number} of {name}", id=f"n{number}")
            if name == "one":
                memory.pin("n4")
    for name in NAMESPACES:
        with loom.open(tmp_path / "a.loom", namespace=name, embedder="none") as memory:
            memory.set_retention(Retention(max_records=5))
            memory.apply_retention()
            kept = {record.id for record in memory.list().records}
            assert kept == {f"n{number}" for number in range(35, 40)} | ({"n4"} if name == "one" else set())


def test_everyday_verbs_answer_right(tmp_path: Path) -> None:
    memories = [loom.open(tmp_path / "a.loom", namespace=name, embedder="none") for name in NAMESPACES]
    mine = {memory.store.namespace: [new_id() for _ in range(40)] for memory in memories}
    for memory in memories:
        for number, id in enumerate(mine[memory.store.namespace]):
            memory.remember(
                f"the harbour {number} of {memory.store.namespace}", id=id, session_id=f"talk{number % 20}"
            )
    for memory in memories:
        for number, id in enumerate(mine[memory.store.namespace]):
            found = memory.get(id)
            assert found is not None
            assert found.content == f"the harbour {number} of {memory.store.namespace}"
        hits = memory.recall("harbour 7", session_id="talk7", limit=10)
        assert {hit.session_id for hit in hits} == {"talk7"}
        memory.update(mine[memory.store.namespace][3], "the lighthouse")
        assert len(memory.history(mine[memory.store.namespace][3])) == 2
    memories[0].forget(mine["one"][0])
    assert memories[0].get_stats()["records"] == 40
    assert memories[1].get_stats()["records"] == 41
    for memory in memories:
        assert memory.check().ok
        memory.close()


@pytest.mark.parametrize("is_indexed", [False, True])
def test_turns_of_two_sessions_are_no_conversation(tmp_path: Path, is_indexed: bool) -> None:
    names = [f"talk{number}" for number in range(99)]
    other = next(name for name in names[1:] if identity.id_hash(1, name) == identity.id_hash(1, names[0]))
    told = [
        ("heron", names[0], "ana", "Where does the heron nest?"),
        ("noon", other, "cem", "We meet at noon."),
        ("reply", names[0], "ben", "Behind the old mill."),
        ("tea", other, "dora", "I bring the tea."),
    ]
    with loom.open(tmp_path / "a.loom", embedder="none", index_tail_records=10 if is_indexed else 2_000) as memory:
        for id, session, name, text in told:
            memory.remember(text, id=id, session_id=session, name=name)
        for number in range(40):
            memory.remember(f"note {number} about bridges", session_id=f"talk{number + 100}")
        memory.flush()
        found = {one.id: one for one in memory.recall("heron nest", limit=1, explain=True).candidates}
        assert "context" in found["reply"].signals
        assert found.keys().isdisjoint({"noon", "tea"})


def test_a_snapshot_restores_what_collides(stores: tuple[SqliteStore, SqliteStore], tmp_path: Path) -> None:
    from loom.snapshots import merging, staging, taking

    one, two = stores
    with one.transaction() as transaction:
        transaction.pin("n10", True)
        transaction.append([Draft("early", "made early", MOMENT, sources=("late",))])
    taken = taking.take(one, tmp_path / "one.hctx")
    staging.restore(taken.path, tmp_path / "b.loom")
    merged = SqliteStore(tmp_path / "b.loom", namespace="three")
    with merged.transaction() as transaction:
        transaction.append([Draft("mine", "of my own", MOMENT)])
    merging.restore_into(merged, taken.path, namespace="one")
    merging.restore_into(merged, taken.path, namespace="one")
    restored = SqliteStore(tmp_path / "b.loom", namespace="one")
    for store, more in ((restored, {"early"}), (merged, {"early", "mine"})):
        assert ids(store) == EVERYTHING | more
        assert ids(store, Filter(pinned=True)) == {"n10"}
        assert [store.neighbours(f"n{number}")[1] for number in range(60)] == [(f"d{n}",) for n in range(60)]
        with store.transaction() as transaction:
            transaction.append([Draft("late", "now", MOMENT)])
        assert store.neighbours("early") == (("late",), ())
        store.forget(Filter(ids=["n3"]))
        assert EVERYTHING - ids(store) == {"n3", "d3"}
        assert store.check().ok
    merged.close()
    restored.close()
    assert ids(two) == EVERYTHING


def test_what_is_not_stored_cannot_be_pinned(stores: tuple[SqliteStore, SqliteStore]) -> None:
    with pytest.raises(NotFound, match="write it first"), stores[0].transaction() as transaction:
        transaction.pin("nothing", True)


class Weak:
    """A `blake2b` of which four bits count."""

    def __init__(self, text: bytes, digest_size: int) -> None:
        self._bits = blake2b(text, digest_size=1).digest()[0] & 15
        self._size = digest_size

    def digest(self) -> bytes:
        return (self._bits + 1).to_bytes(self._size, "little")


def test_a_text_whose_own_terms_collide_leaves_the_tail_alone_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_segments, "blake2b", Weak)
    text_segments.term_hash.cache_clear()
    try:
        tail = TextTail()
        index = TextIndex([], tail)
        texts = {key: [f"word{number}" for number in range(key, key + 20)] for key in (1, 2, 3)}
        for key, terms in texts.items():
            tail.add(key, terms)
        for gone in (2, 1):
            assert tail.remove(gone)
            del texts[gone]
            for key, terms in texts.items():
                assert all(key in index.search({term: 1.0}, 10)[0] for term in terms)
        assert tail.remove(3)
        assert not len(tail)
    finally:
        text_segments.term_hash.cache_clear()


def test_terms_speakers_and_roles_that_collide_cost_scores_and_never_choose_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = [text_segments.term_hash]
    for module in (text_segments, doc_values):
        monkeypatch.setattr(module, "blake2b", Weak)
    for cache in caches:
        cache.cache_clear()
    try:
        with loom.open(tmp_path / "a.loom", embedder="none", index_tail_records=10) as memory:
            for number in range(80):
                memory.remember(
                    f"heron {number} flew over bridge {number}",
                    id=f"n{number}",
                    name=f"speaker{number % 20}",
                    role=("user", "assistant", "tool")[number % 3],
                    session_id=f"s{number % 10}",
                )
            memory.flush()
            choices: list[dict[str, Any]] = [
                {"name": "speaker3"},
                {"role": "tool"},
                {"session_id": "s4"},
                {"name": "speaker3", "role": "user"},
            ]
            for filters in choices:
                wanted = {record.seq for record in memory.list(limit=100, **filters).records}
                matches = search_text(memory.store, {"heron": 1.0}, 100, Filter(**filters))
                assert {match.seq for match in matches} == wanted
                hits = memory.recall("which heron flew over the bridge?", limit=100, **filters)
                assert {hit.id for hit in hits} <= {record.id for record in memory.store.records(wanted).values()}
            receipt = memory.forget(name="speaker3")
            assert set(receipt.ids) == {"n3", "n23", "n43", "n63"}
            left = {record.id for record in memory.list(limit=100).records}
            assert left == {f"n{number}" for number in range(80) if number % 20 != 3}
            assert memory.check().ok
    finally:
        for cache in caches:
            cache.cache_clear()
