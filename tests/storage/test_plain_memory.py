"""The everyday verbs on a store without SQL: the layers above storage need its contract and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import NotFound, UnsupportedStore, VersionConflictError
from loom.everyday import Memory
from loom.memory.shared_pool import SharedMemoryPool
from loom.models.embedders import FakeEmbedder
from loom.storage import open_store
from loom.storage.contract import Filter, Retention, Store
from tests.storage.plain_store import PlainDatabase, PlainStore

STORES = ("plain", "sqlite")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Store = PlainStore() if request.param == "plain" else open_store(tmp_path / "a.loom")
    yield opened
    opened.close()


@pytest.fixture
def memory(store: Store) -> Iterator[Memory]:
    with Memory("agent", store=store, embedder=FakeEmbedder(), derive=True) as opened:
        yield opened


def test_what_is_remembered_is_recalled_and_listed(memory: Memory) -> None:
    memory.remember("We chose PostgreSQL for the orders service.", session_id="s", role="user", name="Ana")
    memory.remember("数据库备份在凌晨三点运行。")
    memory.remember("The garden needs water.")
    assert memory.flush().complete
    assert memory.recall("Which database did we choose for orders?", limit=1)[0].content.startswith("We chose")
    assert memory.recall("备份什么时候运行?", limit=1)[0].content.startswith("数据库备份")
    assert [hit.name for hit in memory.recall("PostgreSQL", session_id="s")] == ["Ana"]
    page = memory.list(kind="message", newest_first=False)
    assert [record.content[:3] for record in page.records] == ["We ", "数据库", "The"]
    assert memory.store.stats()["records"] == 3


def test_an_update_is_a_new_version_and_the_old_one_is_known_as_of_then(memory: Memory) -> None:
    memory.remember("The budget is 500 euros.", id="budget")
    before = datetime.now(UTC)
    memory.update("budget", "The budget is 700 euros.")
    assert [record.version for record in memory.history("budget")] == [1, 2]
    assert memory.recall("budget", limit=5)[0].content == "The budget is 700 euros."
    assert [hit.content for hit in memory.recall("budget", as_of=before)] == ["The budget is 500 euros."]


def test_forgetting_leaves_nothing_to_find(memory: Memory) -> None:
    memory.remember("The password hint is a blue heron.", id="hint")
    memory.remember("Herons fish at dawn.", id="other")
    memory.flush()
    assert memory.forget(["hint"]).records >= 1
    memory.flush()
    assert [hit.id for hit in memory.recall("blue heron hint")] == ["other"]
    assert memory.get("hint") is None
    assert memory.store.count(Filter(history=True, derived=False)) == 1
    assert memory.check().ok


def test_a_pin_keeps_from_retention(memory: Memory) -> None:
    for number in range(4):
        memory.remember(f"Note number {number}.", id=f"n{number}")
    memory.pin("n0")
    memory.set_retention(Retention(max_records=2))
    memory.apply_retention()  # the worker may have been first
    assert [memory.get(f"n{number}") is None for number in range(4)] == [False, True, False, False]
    assert memory.store.retention == Retention(max_records=2)
    with pytest.raises(NotFound):
        memory.pin("n1")


def test_a_prompt_holds_the_recent_and_the_recalled(memory: Memory) -> None:
    memory.remember("My name is Ana and I live in Berlin.", role="user", session_id="s")
    memory.remember("Noted.", role="assistant", session_id="s")
    memory.flush()
    context = memory.context("Where do I live?", session_id="s", budget=2000)
    assert "Berlin" in str(context.messages)
    assert context.tokens <= 2000
    again = memory.context("And my name?", session_id="s", budget=2000)
    assert "Ana" in str(again.messages)


def test_facts_are_derived_in_the_background_and_go_with_their_source(memory: Memory) -> None:
    decision = "We decided to use PostgreSQL for the orders service because it has row-level security."
    memory.remember(decision, role="user", id="choice")
    assert memory.flush().complete
    assert any("PostgreSQL" in fact.content for fact in memory.facts())
    memory.forget(["choice"])
    memory.flush()
    assert not any("PostgreSQL" in fact.content for fact in memory.facts())


def test_budgets_hold_and_what_is_promoted_comes_back(store: Store) -> None:
    budgets: dict[str, Any] = {
        "l1_token_budget": 60,
        "l2_token_budget": 60,
        "l3_token_budget": 200,
        "l4_token_budget": 200,
    }
    with Memory("agent", store=store, embedder="none", derive=False, **budgets) as memory:
        for number in range(30):
            memory.remember(f"Note {number} says that the harbour is closed today.", id=f"n{number}", importance=0.9)
        usage = store.usage("agent")
        assert all(usage[tier].tokens <= budgets[f"{tier}_token_budget"] for tier in ("l1", "l2", "l3"))
        assert min(usage[tier].items for tier in ("l1", "l2", "l3")) > 0
        first = next(iter(store.sizes("agent", "l3")))
        id = store.records([first])[first].id
        assert memory.promote(id).moved == (id,)
        assert "l2" in store.tiers(first, "agent")
        assert store.usage("agent")["l2"].tokens <= 60


def test_a_pool_and_its_history_lie_in_the_store(store: Store) -> None:
    asyncio.run(_use_a_pool(store))


async def _use_a_pool(store: Store) -> None:
    pool = SharedMemoryPool("team", store=store)
    await pool.write("plan", {"step": 1}, "a")
    await pool.write("plan", {"step": 2}, "b", expected_version=1)
    with pytest.raises(VersionConflictError):
        await pool.write("plan", {"step": 3}, "a", expected_version=1)
    assert [entry.content for entry in await pool.history("plan")] == [{"step": 1}, {"step": 2}]
    assert await pool.delete("plan", "a")
    assert await pool.read("plan") is None


def test_two_handles_of_one_database_see_each_other() -> None:
    database = PlainDatabase()
    with (
        Memory("one", store=PlainStore(database), embedder="none", derive=False) as one,
        Memory("two", store=PlainStore(database), embedder="none", derive=False) as two,
    ):
        one.remember("Shared between the two.", id="x")
        assert two.get("x") is not None
        assert [hit.id for hit in two.recall("shared")] == ["x"]
        two.update("x", "Changed by the other.")
        assert one.recall("changed")[0].version == 2


@pytest.mark.parametrize("source", [*STORES, "postgres"])
@pytest.mark.parametrize("target", [*STORES, "postgres"])
def test_a_snapshot_of_one_backend_is_restored_into_another(
    tmp_path: Path, source: str, target: str, request: pytest.FixtureRequest
) -> None:
    def opened(kind: str, name: str) -> Memory:
        place: Path | str = tmp_path / name
        if kind == "postgres":
            place = request.getfixturevalue("postgres_server").store_url(tmp_path)
        store: Store = PlainStore(namespace=name) if kind == "plain" else open_store(place, namespace=name)
        return Memory("agent", store=store, embedder=FakeEmbedder(), derive=True)

    with opened(source, "one") as one, opened(target, "two") as two:
        choice = "We decided to use PostgreSQL for the orders service because it has row-level security."
        one.remember(choice, id="choice", role="user", name="Ana", session_id="s", metadata={"项": 1})
        one.remember("数据库备份在凌晨三点运行。", id="backup", importance=0.9)
        one.remember("A first draft.", id="draft")
        one.update("draft", "A second draft.")
        one.pin("backup")
        with one.store.transaction() as transaction:
            transaction.put_entry("plan", {"step": [1, None]}, writer="w", scope="shared", owner="team")
            transaction.put_blob("table", bytes(range(256)) * 2000)
        assert one.flush().complete
        assert one.get("choice") is not None
        full = one.snapshot(tmp_path / "0.hctx")
        one.remember("Said after the first snapshot.", id="later")
        one.forget(["draft"])
        one.snapshot(tmp_path / "1.hctx", parent=full.path)

        two.remember("There before.", id="own")
        done = two.restore([full.path, tmp_path / "1.hctx"])
        assert two.flush().complete
        assert done.records == one.store.count(Filter(history=True))
        assert {*_texts(two)} == {*_texts(one), "There before."}
        assert [record.session_id for record in two.history("choice")] == ["s"]
        assert two.get("draft") is None
        assert two.store.pinned("backup")
        assert not two.store.pinned("choice")
        assert two.store.space == one.store.space
        entry = two.store.entry("plan", scope="shared", owner="team")
        assert entry is not None
        assert entry.content == {"step": [1, None]}
        assert two.store.blob("table") == bytes(range(256)) * 2000
        assert two.store.neighbours("choice") == one.store.neighbours("choice")
        assert two.recall("备份什么时候运行?", limit=1)[0].id == "backup"
        assert _sizes(two) == _sizes(one)
        again = two.restore([full.path, tmp_path / "1.hctx"])
        assert (again.records, again.present) == (0, done.records)
        assert two.check().ok


def _sizes(memory: Memory) -> dict[str, int]:
    sizes = memory.store.sizes("agent", "l2")
    return {record.id: sizes[seq] for seq, record in memory.store.records(sizes).items()}


def _texts(memory: Memory) -> list[str]:
    return [record.content for record in memory.store.scan(Filter(history=True), limit=100).records]


def test_a_snapshot_of_a_backend_without_files_becomes_a_new_store(tmp_path: Path) -> None:
    with Memory("agent", store=PlainStore(), embedder=FakeEmbedder(), derive=False) as memory:
        memory.remember("Kept in dicts.", id="x")
        memory.flush()
        memory.snapshot(tmp_path / "a.hctx")
        id = memory.store.store_id
    loom.restore(tmp_path / "a.hctx", tmp_path / "b.loom")
    with Memory("agent", store=open_store(tmp_path / "b.loom"), embedder=FakeEmbedder(), derive=False) as memory:
        assert memory.recall("dicts")[0].id == "x"
        assert memory.store.store_id == id
        assert memory.flush().complete
        assert memory.check().ok


@pytest.mark.parametrize("place", ["mysql://host/db", "mysql:/host/db", "sqlite://host/db", "file://host/db"])
def test_an_unknown_kind_of_store_is_refused_with_what_is_supported(place: str) -> None:
    with pytest.raises(UnsupportedStore, match="sqlite:///"):
        open_store(place)


def test_a_url_names_the_same_file_as_its_path(tmp_path: Path) -> None:
    path = tmp_path / "with a space.loom"
    for place in (path, str(path), f"sqlite://{path}", path.as_uri(), f"sqlite:{path}"):
        store = open_store(place)
        assert store.location == str(path)
        store.close()
    store = open_store()
    assert store.location == "in memory"
    store.close()
