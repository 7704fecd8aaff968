"""SharedMemoryPool, in one process and in a store. Requirements 28, 79 to 81, 83, 84."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from loom.errors import Closed, InvalidInput, VersionConflictError
from loom.events import EventBus
from loom.memory import MemoryManager, PoolChange, PoolEntry, SharedMemoryPool
from loom.protocol import Task
from loom.storage import open_store
from loom.storage.sqlite.store import SqliteStore

Answer = TypeVar("Answer")


def now(work: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run(work)


@pytest.fixture
def bus() -> EventBus:
    return EventBus()


@pytest.fixture(params=["process", "store in memory", "file", "postgres"])
def pool(request: pytest.FixtureRequest, bus: EventBus, tmp_path: Path) -> Iterator[SharedMemoryPool]:
    if request.param == "process":
        with SharedMemoryPool("team", bus) as found:
            yield found
        return
    place = tmp_path / "pool.loom" if request.param == "file" else None
    if request.param == "postgres":
        place = request.getfixturevalue("postgres_url")
    store = open_store(place)
    with SharedMemoryPool("team", bus, store=store) as found:
        yield found
    store.close()


@pytest.fixture
def file_pool(tmp_path: Path) -> Iterator[SharedMemoryPool]:
    with SharedMemoryPool("team", store=tmp_path / "pool.loom") as found:
        yield found


# --- reading and writing -----------------------------------------------------------------------------------


def test_an_entry_says_who_wrote_it_and_when_and_its_version_grows(pool: SharedMemoryPool) -> None:
    """Requirements 28, 80."""
    first = now(pool.write("research", {"findings": [1]}, writer_id="agent-a", metadata={"x": 1, "y": 1}))
    assert (first.key, first.content, first.version) == ("research", {"findings": [1]}, 1)
    assert (first.created_by, first.updated_by, first.metadata) == ("agent-a", "agent-a", {"x": 1, "y": 1})
    second = now(pool.write("research", "done", writer_id="agent-b", metadata={"y": 2}))
    assert now(pool.read("research")) == second
    assert (second.version, second.created_by, second.updated_by) == (2, "agent-a", "agent-b")
    assert second.metadata == {"x": 1, "y": 2}
    assert second.created_at == first.created_at <= second.updated_at
    assert isinstance(second.updated_at, float)
    assert now(pool.read("never written")) is None


def test_values_are_copied_in_and_out(pool: SharedMemoryPool) -> None:
    """Trap: reads that return the stored object instead of a copy."""
    given, metadata = {"list": [1]}, {"tags": ["a"]}
    written = now(pool.write("key", given, metadata=metadata))
    given["list"].append(2)
    metadata["tags"].append("b")
    written.content["list"].append(3)
    written.metadata["tags"].append("c")
    readings: tuple[Callable[[], PoolEntry | None], ...] = (
        lambda: now(pool.read("key")),
        lambda: now(pool.list_entries())[0],
        lambda: now(pool.history("key"))[0],
    )
    for reading in readings * 2:
        entry = reading()
        assert entry is not None
        assert (entry.content, entry.metadata) == ({"list": [1]}, {"tags": ["a"]})
        entry.content["list"].append(4)
        entry.metadata["tags"].append("d")


def test_an_expected_version_must_be_the_present_one_also_for_a_missing_key(pool: SharedMemoryPool) -> None:
    """Requirement 81; trap: expected_version ignored for a missing key."""
    with pytest.raises(VersionConflictError) as missing:
        now(pool.write("key", 1, expected_version=3))
    assert (missing.value.key, missing.value.expected, missing.value.actual) == ("key", 3, 0)
    assert now(pool.read("key")) is None
    assert now(pool.write("key", 1, expected_version=0)).version == 1
    for wrong in (0, 2):
        with pytest.raises(VersionConflictError) as conflict:
            now(pool.write("key", 2, expected_version=wrong))
        assert (conflict.value.expected, conflict.value.actual) == (wrong, 1)
    entry = now(pool.read("key"))
    assert entry is not None
    assert (entry.content, entry.version) == (1, 1)
    assert now(pool.write("key", 2, expected_version=1)).version == 2
    assert now(pool.write("key", 3)).version == 3  # the last writer wins


def test_a_deleted_key_is_gone_and_its_versions_go_on(pool: SharedMemoryPool) -> None:
    now(pool.write("key", 1, metadata={"old": True}))
    with pytest.raises(VersionConflictError):
        now(pool.delete("key", expected_version=7))
    assert now(pool.delete("key", "agent-a", expected_version=1)) is True
    assert now(pool.delete("key")) is False
    with pytest.raises(VersionConflictError):
        now(pool.delete("key", expected_version=1))
    assert (now(pool.read("key")), now(pool.list_entries()), now(pool.history("key"))) == (None, [], [])
    again = now(pool.write("key", 2, "agent-b", expected_version=0))
    assert (again.version, again.created_by, again.metadata) == (3, "agent-b", {})


def test_entries_are_listed_by_prefix_last_updated_first(pool: SharedMemoryPool) -> None:
    """Requirement 80."""
    for key in ("research:a", "research:b", "plan", "research", "研究:甲", "research:a"):
        now(pool.write(key, key))

    def keys(*arguments: Any, **more: Any) -> list[str]:
        return [entry.key for entry in now(pool.list_entries(*arguments, **more))]

    assert keys(prefix="research:", limit=50) == ["research:a", "research:b"]
    assert keys() == ["research:a", "研究:甲", "research", "plan", "research:b"]
    assert keys(limit=2) == ["research:a", "研究:甲"]
    assert keys("研究") == ["研究:甲"]
    assert keys("r%") == keys("_") == []


def test_every_version_of_a_key_is_in_its_history(pool: SharedMemoryPool) -> None:
    for number in range(1, 6):
        now(pool.write("key", number, f"agent-{number}"))
    found = now(pool.history("key"))
    assert [(one.version, one.content, one.updated_by) for one in found] == [
        (number, number, f"agent-{number}") for number in range(1, 6)
    ]
    assert {one.created_by for one in found} == {"agent-1"}
    assert now(pool.history("other")) == []


def test_the_history_in_a_process_is_bounded_and_in_a_store_it_is_whole() -> None:
    for pool, kept in ((SharedMemoryPool(), 100), (SharedMemoryPool(store=SqliteStore()), 120)):
        for number in range(120):
            now(pool.write("key", number))
        assert [one.content for one in now(pool.history("key"))] == list(range(120 - kept, 120))


def test_an_update_is_made_of_what_is_there(pool: SharedMemoryPool) -> None:
    assert now(pool.update("counter", lambda value: (value or 0) + 1, "agent-a")).content == 1
    assert now(pool.update("counter", lambda value: value + 1, metadata={"m": 1})).metadata == {"m": 1}
    entry = now(pool.read("counter"))
    assert entry is not None
    assert (entry.content, entry.version) == (2, 2)


def test_no_increment_is_lost_between_tasks_and_threads(pool: SharedMemoryPool) -> None:
    """Trap: asyncio locks where threads come too."""

    async def count(times: int) -> None:
        for _ in range(times):
            await pool.update("counter", lambda value: (value or 0) + 1)

    async def together() -> None:
        await asyncio.gather(*(count(10) for _ in range(3)))

    threads = [threading.Thread(target=lambda: now(together())) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    entry = now(pool.read("counter"))
    assert entry is not None
    assert (entry.content, entry.version) == (90, 90)


@pytest.mark.parametrize(
    "call",
    [
        lambda pool: pool.write("", 1),
        lambda pool: pool.write(3, 1),
        lambda pool: pool.write("nul\0", 1),
        lambda pool: pool.write("\ud800", 1),
        lambda pool: pool.write("key", 1, writer_id=None),
        lambda pool: pool.write("key", 1, expected_version=-1),
        lambda pool: pool.write("key", 1, expected_version=True),
        lambda pool: pool.write("key", 1, expected_version="1"),
        lambda pool: pool.read(None),
        lambda pool: pool.delete(""),
        lambda pool: pool.delete("key", expected_version=1.5),
        lambda pool: pool.list_entries(limit=0),
        lambda pool: pool.list_entries(limit=True),
        lambda pool: pool.list_entries(None),
        lambda pool: pool.history(None),
        lambda pool: pool.watch(since=-1),
        lambda pool: pool.watch(None),
    ],
)
def test_what_makes_no_sense_is_refused(pool: SharedMemoryPool, call: Callable[[SharedMemoryPool], Any]) -> None:
    with pytest.raises(InvalidInput):
        now(call(pool))
    assert now(pool.list_entries()) == []


@pytest.mark.parametrize("pool_id", ["", None, 3, "nul\0"])
def test_a_pool_needs_a_name(pool_id: Any) -> None:
    with pytest.raises(InvalidInput):
        SharedMemoryPool(pool_id)


def test_a_pool_lies_in_a_store_or_a_path_and_nowhere_else() -> None:
    with MemoryManager("agent", embedder="none") as manager:
        wrong: Any = manager
        with pytest.raises(InvalidInput, match=r"memory\.store"):
            SharedMemoryPool("team", store=wrong)


def test_in_one_process_any_value_can_be_shared_that_can_be_copied() -> None:
    pool = SharedMemoryPool()
    for value in ({1: {2}}, (1, ...), Task(task_id="t"), b"bytes"):
        assert now(pool.write("key", value)).content == value
    with pytest.raises(InvalidInput, match="copied"):
        now(pool.write("key", threading.Lock()))
    entry = now(pool.read("key"))
    assert entry is not None
    assert entry.content == b"bytes"


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", float("nan"), "\ud800"])
def test_in_a_store_what_json_cannot_carry_is_refused_and_the_old_value_stays(
    file_pool: SharedMemoryPool, value: Any
) -> None:
    now(file_pool.write("key", 1))
    with pytest.raises(InvalidInput, match=r"JSON|surrogate"):
        now(file_pool.write("key", value))
    entry = now(file_pool.read("key"))
    assert entry is not None
    assert entry.content == 1


# --- apart and together ------------------------------------------------------------------------------------


def test_pools_are_apart_by_name_store_and_namespace(tmp_path: Path) -> None:
    path = tmp_path / "pool.loom"
    ours, theirs = SqliteStore(path), SqliteStore(path, namespace="theirs")
    pools = [
        SharedMemoryPool("team", store=ours),
        SharedMemoryPool("team 2", store=ours),
        SharedMemoryPool("team", store=theirs),
        SharedMemoryPool("team"),
    ]
    for number, pool in enumerate(pools):
        now(pool.write("key", number, expected_version=0))
    for number, pool in enumerate(pools):
        (entry,) = now(pool.list_entries())
        assert (entry.content, len(now(pool.history("key")))) == (number, 1)
    ours.close()
    theirs.close()


def test_a_pool_and_the_scopes_of_a_node_share_a_file_and_nothing_else(tmp_path: Path) -> None:
    with MemoryManager("team", store=tmp_path / "agent.loom", embedder="none") as manager:
        pool = SharedMemoryPool("team", store=manager.store)
        now(pool.write("plan", "the pool's"))
        assert now(manager.read("plan")) is None
        now(manager.write("plan", "the node's", "shared"))
        entry = now(pool.read("plan"))
        assert entry is not None
        assert entry.content == "the pool's"


def test_a_pool_is_there_again_on_reopening(tmp_path: Path) -> None:
    path = tmp_path / "pool.loom"
    with SharedMemoryPool("team", store=path) as pool:
        written = now(pool.write("键", {"值": [None, 1.5]}, "甲"))
    with SharedMemoryPool("team", store=str(path)) as pool:
        assert now(pool.read("键")) == written
        assert now(pool.write("键", 2)).version == 2


def test_a_child_has_the_pool_of_its_parent_unless_it_has_one_of_its_own() -> None:
    """Requirement 84."""
    pool, other = SharedMemoryPool("team"), SharedMemoryPool("other")
    with MemoryManager("root", embedder="none", shared_pool=pool) as root:
        child = MemoryManager("child", root)
        assert MemoryManager("grandchild", child).shared_pool is child.shared_pool is root.shared_pool is pool
        assert MemoryManager("apart", root, shared_pool=other).shared_pool is other
    with MemoryManager("alone", embedder="none") as alone:
        assert alone.shared_pool is None


def test_a_closed_pool_refuses_and_leaves_a_store_that_it_was_given_open() -> None:
    store = SqliteStore()
    pool = SharedMemoryPool("team", store=store)
    now(pool.write("key", 1))
    pool.close()
    pool.close()
    for call in (pool.read("key"), pool.write("key", 2), pool.list_entries(), pool.delete("key")):
        with pytest.raises(Closed):
            now(call)
    assert len(store.entries(scope="pool", owner="team")) == 1
    store.close()


def test_a_pool_in_a_store_works_outside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[threading.Thread] = []
    with closing(SqliteStore(tmp_path / "pool.loom")) as store, SharedMemoryPool("team", store=store) as pool:
        original = store.transaction

        def watched() -> Any:
            seen.append(threading.current_thread())
            return original()

        monkeypatch.setattr(store, "transaction", watched)
        now(pool.write("key", 1))
        now(pool.delete("key"))
    assert len(seen) == 2
    assert threading.main_thread() not in seen


# --- events ------------------------------------------------------------------------------------------------


def test_writing_and_deleting_are_published_after_they_are_done(pool: SharedMemoryPool, bus: EventBus) -> None:
    """Requirement 83."""
    found: list[Any] = []

    async def look(task: Task) -> None:
        entry = await pool.read(task.parameters["key"])
        found.append((task.action, task.source_agent, task.parameters, entry and entry.content))

    async def story() -> None:
        bus.register_handler("*", look)
        await pool.write("key", "a", writer_id="agent-a")
        await pool.write("key", "b", writer_id="agent-b")
        with pytest.raises(VersionConflictError):
            await pool.write("key", "c", expected_version=1)
        await pool.delete("key", "agent-c")
        await pool.delete("key", "agent-c")

    now(story())
    assert bus.failures == []
    assert found == [
        ("shared_pool.write", "agent-a", told(1, "agent-a"), "a"),
        ("shared_pool.write", "agent-b", told(2, "agent-b"), "b"),
        ("shared_pool.delete", "agent-c", told(3, "agent-c"), None),
    ]


def told(version: int, writer: str) -> dict[str, Any]:
    return {"pool_id": "team", "key": "key", "version": version, "writer": writer}


def test_what_a_team_writes_is_remembered_once_by_the_one_who_wrote_it() -> None:
    """Requirements 8, 59; C-39: with parent and child on one bus."""
    bus = EventBus()
    pool = SharedMemoryPool("team", event_bus=bus)
    with (
        MemoryManager("root", embedder="none", event_bus=bus) as root,
        MemoryManager("reader", root, event_bus=bus) as reader,
    ):
        now(pool.write("findings", [1], writer_id="reader"))
        assert root.store.stats()["records"] == 1
        assert [task.parameters["key"] for task in reader.get_l1_tasks()] == ["findings"]
        assert root.get_l1_tasks() == []


# --- watching ----------------------------------------------------------------------------------------------


def seen(change: PoolChange) -> tuple[str, int, str, Any]:
    return change.key, change.version, change.writer, None if change.entry is None else change.entry.content


def test_a_watch_tells_what_comes_after_it_began(pool: SharedMemoryPool) -> None:
    async def story() -> None:
        await pool.write("research:old", 0)
        async with pool.watch("research:") as changes:
            await pool.write("research:a", 1, "one")
            await pool.write("plan", 2, "two")
            await pool.write("research:b", 3, "three")
            assert [seen(await anext(changes)) for _ in range(2)] == [
                ("research:a", 1, "one", 1),
                ("research:b", 1, "three", 3),
            ]
            await pool.delete("research:a", "four")
            assert seen(await anext(changes)) == ("research:a", 2, "four", None)
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            assert not waiting.done()
            await pool.write("research:a", 5, "five")
            assert seen(await waiting) == ("research:a", 3, "five", 5)

    now(story())


def test_a_watch_gives_the_newest_of_versions_that_came_before_it_looked(pool: SharedMemoryPool) -> None:
    async def story() -> None:
        async with pool.watch() as changes:
            for number in range(5):
                await pool.write("a", number)
                await pool.write(f"key {number}", number)
            found = [seen(await anext(changes))[:2] for _ in range(6)]
            assert found == [("key 0", 1), ("key 1", 1), ("key 2", 1), ("key 3", 1), ("a", 5), ("key 4", 1)]

    now(story())


def test_a_watch_may_go_on_from_where_another_ended(pool: SharedMemoryPool) -> None:
    async def story() -> None:
        async with pool.watch() as changes:
            await pool.write("a", 1)
            last = await anext(changes)
        for number in range(250):
            await pool.write(f"key {number}", number)
        later = pool.watch(since=last.number)
        found = [(await anext(later)).key for _ in range(250)]
        assert found == [f"key {number}" for number in range(250)]

    now(story())


def test_several_watches_each_see_everything(pool: SharedMemoryPool) -> None:
    async def collect(changes: Any) -> list[int]:
        return [(await anext(changes)).version for _ in range(3)]

    async def story() -> None:
        async with pool.watch() as one, pool.watch() as two:
            gathered = asyncio.gather(collect(one), collect(two))
            for key in ("a", "b", "c"):
                await pool.write(key, 1)
            assert list(await gathered) == [[1, 1, 1]] * 2

    now(story())


def test_closing_a_pool_ends_its_watches(pool: SharedMemoryPool) -> None:
    async def story() -> list[str]:
        found: list[str] = []

        async def follow() -> None:
            async for change in pool.watch(since=0):
                found.append(change.key)
                arrived.set()

        arrived = asyncio.Event()
        await pool.write("a", 1)
        following = asyncio.ensure_future(follow())
        await arrived.wait()
        pool.close()
        await following
        return found

    assert now(story()) == ["a"]


def test_a_watch_hears_another_handle_and_another_thread(tmp_path: Path) -> None:
    path = tmp_path / "pool.loom"

    async def story() -> None:
        with SharedMemoryPool("team", store=path) as here, SharedMemoryPool("team", store=path) as there:
            async with here.watch("a") as changes:
                await there.write("a", 1, "elsewhere")
                assert seen(await anext(changes)) == ("a", 1, "elsewhere", 1)
                waiting = asyncio.ensure_future(anext(changes))
                await asyncio.to_thread(lambda: now(here.write("a2", 2)))
                assert seen(await waiting) == ("a2", 1, "", 2)

    now(story())


def test_an_entry_has_the_fields_of_the_design() -> None:
    entry = PoolEntry("key", 1)
    assert (entry.version, entry.created_by, entry.updated_by, entry.metadata) == (1, "", "", {})
