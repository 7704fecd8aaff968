"""MemoryManager: tiers, scopes and parents in one class. Requirements 23, 26, 62-69; C-12 to C-15."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from loom.errors import InvalidInput, ReadOnly, VersionConflictError
from loom.events import EventBus
from loom.fractal.memory import ACCESS_POLICIES, MemoryEntry, MemoryScope
from loom.memory import Fact, LoomMemory, MemoryManager, MemoryQuery, MemoryTier, MemoryType
from loom.protocol import Task
from loom.storage.sqlite.store import SqliteStore

LOCAL, SHARED, INHERITED, GLOBAL = MemoryScope.LOCAL, MemoryScope.SHARED, MemoryScope.INHERITED, MemoryScope.GLOBAL

Answer = TypeVar("Answer")


def now(work: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run(work)


def manager(node: str = "agent", parent: MemoryManager | None = None, **options: Any) -> MemoryManager:
    if parent is None:
        options.setdefault("embedder", "none")
    return MemoryManager(node, parent, **options)


@pytest.fixture
def root() -> Iterator[MemoryManager]:
    with manager("root") as found:
        yield found


@pytest.fixture
def child(root: MemoryManager) -> MemoryManager:
    return manager("child", root)


@pytest.fixture
def grandchild(child: MemoryManager) -> MemoryManager:
    return manager("grandchild", child)


def read(of: MemoryManager, key: str, scope: MemoryScope | None = None) -> Any:
    entry = now(of.read(key, scope))
    return None if entry is None else entry.content


# --- the tiers of a manager --------------------------------------------------------------------------------


def test_a_manager_has_everything_a_memory_has(root: MemoryManager) -> None:
    """Requirements 62, 68; C-15: no caller needs `_loom_memory`."""
    assert isinstance(root, LoomMemory)
    task = Task(action="node.error", parameters={"c": "the disk is full"})
    assert root.add_task(task).tier == MemoryTier.L1
    assert root.get_l1_tasks() == root.get_l2_tasks() == root.search_tasks("disk") == [task]
    assert root.get_task(task.task_id) == task
    assert root.get_call_chain(task.task_id) == [task]
    root.add_fact(Fact("the port is 8080"))
    assert [one.content for one in root.search_facts("port")] == ["the port is 8080"]
    assert [one.param_summary for one in root.l4.retrieve()] == ["the port is 8080"]
    assert not any(root.promote_tasks())
    assert not any(now(root.promote_tasks_async()))


def test_adding_a_task_may_be_awaited_or_not(root: MemoryManager) -> None:
    """Requirement 63; C-12."""

    async def awaited() -> None:
        receipt = await root.add_task(Task(task_id="t1"), importance=0.8)
        assert receipt.id == "t1"

    now(awaited())
    root.add_task(Task(task_id="t2"), importance=0.9)
    assert [one.task_id for one in root.get_l2_tasks()] == ["t2", "t1"]


def test_a_parent_and_its_children_have_tiers_of_their_own(root: MemoryManager, child: MemoryManager) -> None:
    root.add_task(Task(task_id="above", parameters={"c": "red paint"}))
    child.add_task(Task(task_id="below", parameters={"c": "red wine"}), importance=0.9)
    assert [one.task_id for one in root.get_l1_tasks()] == ["above"]
    assert [one.task_id for one in child.get_l1_tasks()] == ["below"]
    assert root.get_l2_tasks() == []
    assert [hit.id for hit in now(child.query("red"))] == ["below"]
    assert [hit.id for hit in now(root.query("red"))] == ["above"]


def test_parent_and_child_on_one_bus_both_find_what_was_said(root: MemoryManager) -> None:
    """C-39: stored once; 59: heard by both."""
    bus = EventBus()
    with manager("above", root, event_bus=bus) as above, manager("below", above, event_bus=bus) as below:
        bus.publish_sync(Task(task_id="t1", action="execute", parameters={"c": "paint the fence"}))
        assert root.store.stats()["records"] == 1
        for one in (above, below):
            assert [found.task_id for found in one.search_tasks("fence")] == ["t1"]
            assert [hit.id for hit in now(one.query("fence"))] == ["t1"]


def test_on_one_bus_nodes_sessions_and_versions_are_kept_apart(root: MemoryManager) -> None:
    """C-39: what names a node is that node's, what names none is everybody's, and each is one record."""
    bus = EventBus()
    with manager("above", root, event_bus=bus) as above, manager("below", above, event_bus=bus) as below:

        def heard(of: MemoryManager, session: str | None = None) -> list[str]:
            return [task.task_id for task in of.get_l1_tasks(session_id=session)]

        task = Task(task_id="below's", action="execute", target_agent="below", session_id="s1")
        for _ in range(3):
            bus.publish_sync(task)
        bus.publish_sync(Task(task_id="above's", action="execute", source_agent="above", session_id="s2"))
        bus.publish_sync(Task(task_id="both's", source_agent="above", target_agent="below", session_id="s2"))
        bus.publish_sync(Task(task_id="anybody's", source_agent="somebody else", session_id="s1"))
        assert heard(below) == ["below's", "both's", "anybody's"]
        assert heard(above) == ["above's", "both's", "anybody's"]
        assert (heard(below, "s1"), heard(above, "s1")) == (["below's", "anybody's"], ["anybody's"])
        assert root.store.stats()["records"] == 4
        task.result = "done"
        bus.publish_sync(task)
        assert root.store.stats()["records"] == 5  # the same task, its second version
        found = below.get_task("below's")
        assert found is not None
        assert found.result == "done"
    assert bus.failures == []


def test_many_nodes_that_publish_at_once_are_all_remembered_once(root: MemoryManager) -> None:
    bus = EventBus()
    nodes = [manager(f"node-{number}", root, event_bus=bus) for number in range(5)]

    async def publish(node: MemoryManager) -> None:
        for number in range(4):
            await bus.publish(Task(task_id=f"{node.node_id} says {number}", source_agent=node.node_id))

    async def all_at_once() -> None:
        await asyncio.gather(*(publish(node) for node in nodes))

    now(all_at_once())
    assert bus.failures == []
    assert root.store.stats()["records"] == 20
    for node in nodes:
        assert [task.task_id for task in node.get_l1_tasks()] == [f"{node.node_id} says {n}" for n in range(4)]
        node.close()


# --- values in scopes --------------------------------------------------------------------------------------


def test_a_value_is_read_as_an_entry_that_prints_as_its_content(root: MemoryManager) -> None:
    """Requirements 23, 64; C-13."""
    written = now(root.add_context("task:123:content", "任务内容..."))
    entry = now(root.read("task:123:content"))
    assert entry == written
    assert entry == MemoryEntry(
        "task:123:content", "任务内容...", scope=SHARED, version=1, created_by="root", updated_by="root"
    )
    assert f"{entry}" == str(entry) == "任务内容..."
    assert now(root.read("never written")) is None


@pytest.mark.parametrize("content", ["text", 3, 2.5, None, True, [1, [2]], {"键": {"值": [None]}}])
def test_any_plain_value_comes_back_as_it_was(root: MemoryManager, content: Any) -> None:
    """A value of None is not a missing key."""
    now(root.write("key", content))
    entry = now(root.read("key"))
    assert entry is not None
    assert entry.content == content
    assert str(entry) == str(content)


def test_a_value_that_is_not_plain_is_refused_and_the_old_one_stays(root: MemoryManager) -> None:
    now(root.write("key", 1))
    with pytest.raises(InvalidInput, match="JSON"):
        now(root.write("key", object()))
    assert read(root, "key") == 1


def test_local_values_are_the_nodes_own(root: MemoryManager, child: MemoryManager) -> None:
    """Requirement 26."""
    now(root.write("key", "root's"))
    assert read(child, "key") is None
    now(child.write("key", "child's", LOCAL))
    assert (read(root, "key"), read(child, "key")) == ("root's", "child's")


def test_shared_values_are_inherited_by_all_below_and_by_nobody_above(
    root: MemoryManager, child: MemoryManager, grandchild: MemoryManager
) -> None:
    """Requirements 66, 67."""
    now(child.write("plan", "three steps", SHARED))
    assert read(root, "plan") is None
    assert read(child, "plan", SHARED) == "three steps"
    entry = now(grandchild.read("plan"))
    assert entry is not None
    assert (entry.content, entry.scope, entry.created_by) == ("three steps", INHERITED, "child")
    assert read(grandchild, "plan", INHERITED) == "three steps"
    assert read(grandchild, "plan", SHARED) is None
    sibling = manager("sibling", root)
    assert read(sibling, "plan") is None


def test_global_values_are_one_for_the_whole_tree(
    root: MemoryManager, child: MemoryManager, grandchild: MemoryManager
) -> None:
    """Requirements 66, 67."""
    now(grandchild.write("team", "red", GLOBAL))
    assert [read(one, "team") for one in (root, child, grandchild)] == ["red"] * 3
    entry = now(root.write("team", "blue", GLOBAL))
    assert (entry.version, entry.created_by, entry.updated_by) == (2, "grandchild", "root")
    assert read(grandchild, "team", GLOBAL) == "blue"


def test_what_is_inherited_is_never_stale(
    root: MemoryManager, child: MemoryManager, grandchild: MemoryManager
) -> None:
    """C-14; trap: INHERITED cached for ever."""
    for version in range(1, 4):
        now(root.write("plan", {"step": version}, SHARED))
        entry = now(grandchild.read("plan"))
        assert entry is not None
        assert (entry.content, entry.version, entry.parent_version) == ({"step": version}, version, version)
    now(child.write("plan", "the nearer one", SHARED))
    assert read(grandchild, "plan") == "the nearer one"
    assert read(child, "plan", INHERITED) == {"step": 3}


def test_what_is_inherited_is_never_stale_across_handles(tmp_path: Path) -> None:
    """C-14, where another handle of the same file writes."""
    path = tmp_path / "agent.loom"
    with manager("root", store=path) as root, manager("root", store=path) as elsewhere:
        child = manager("child", root)
        now(root.write("plan", 1, SHARED))
        assert read(child, "plan") == 1
        now(elsewhere.write("plan", 2, SHARED))
        assert read(child, "plan") == 2


def test_values_are_copied_in_and_out(root: MemoryManager, child: MemoryManager) -> None:
    """C-14; traps: reads that hand out the live object, a child that holds its parent's own."""
    given = {"steps": [1]}
    written = now(root.write("plan", given, SHARED, metadata={"tags": ["a"]}))
    given["steps"].append(2)
    written.content["steps"].append(3)
    for reader in (root, child):
        entry = now(reader.read("plan"))
        assert entry is not None
        assert entry.content == {"steps": [1]}
        entry.content["steps"].append(4)
        entry.metadata["tags"].append("b")
        again = now(reader.read("plan"))
        assert again is not None
        assert (again.content, again.metadata) == ({"steps": [1]}, {"tags": ["a"]})


def test_a_key_is_looked_for_from_the_nearest_scope_outwards(root: MemoryManager, child: MemoryManager) -> None:
    """Requirement 66."""
    now(root.write("key", "global", GLOBAL))
    assert read(child, "key") == "global"
    now(root.write("key", "inherited", SHARED))
    assert read(child, "key") == "inherited"
    now(child.write("key", "shared", SHARED))
    assert read(child, "key") == "shared"
    now(child.write("key", "local", LOCAL))
    assert read(child, "key") == "local"
    assert [read(child, "key", scope) for scope in MemoryScope] == ["local", "shared", "inherited", "global"]


def test_what_is_inherited_cannot_be_written_from_below(root: MemoryManager, child: MemoryManager) -> None:
    """Requirement 66; trap: policies declared and not enforced."""
    now(root.write("plan", 1, SHARED))
    with pytest.raises(InvalidInput, match="local to override"):
        now(child.write("plan", 2, INHERITED))
    with pytest.raises(InvalidInput, match="parent"):
        now(child.add_context("plan", 2, scope=INHERITED))
    assert read(root, "plan") == read(child, "plan") == 1
    now(child.write("plan", 2, LOCAL))
    assert (read(root, "plan"), read(child, "plan")) == (1, 2)


@pytest.mark.parametrize("scope", list(MemoryScope))
def test_every_policy_is_what_the_manager_does(root: MemoryManager, scope: MemoryScope) -> None:
    policy = ACCESS_POLICIES[scope]
    if not policy.writable:
        with pytest.raises(InvalidInput):
            now(root.write("key", 1, scope))
        return
    now(root.write("key", 1, scope))
    assert (read(manager("child", root), "key") is not None) == policy.propagates_down


def test_versions_grow_by_one_and_an_expected_version_must_be_the_present_one(root: MemoryManager) -> None:
    """Requirement 69; trap: expected_version ignored for a missing key, check-then-write."""
    with pytest.raises(VersionConflictError) as missing:
        now(root.write("key", 1, expected_version=3))
    assert (missing.value.key, missing.value.expected, missing.value.actual) == ("key", 3, 0)
    assert read(root, "key") is None
    assert now(root.write("key", "a", expected_version=0)).version == 1
    assert now(root.write("key", "b")).version == 2
    with pytest.raises(VersionConflictError):
        now(root.write("key", "c", expected_version=1))
    with pytest.raises(VersionConflictError):
        now(root.write("key", "c", expected_version=0))
    assert read(root, "key") == "b"
    assert now(root.write("key", "c", expected_version=2)).version == 3


@pytest.mark.parametrize("version", ["1", 1.5, True, -1])
def test_an_expected_version_that_is_no_version_is_refused(root: MemoryManager, version: Any) -> None:
    with pytest.raises(InvalidInput):
        now(root.write("key", 1, expected_version=version))


def test_of_many_writers_that_expect_the_same_version_one_wins(root: MemoryManager) -> None:
    """Trap: asyncio locks where threads come too."""
    now(root.write("counter", 0, SHARED))
    lost = []

    def count() -> None:
        for _ in range(10):
            while True:
                entry = now(root.read("counter"))
                assert entry is not None
                try:
                    now(root.write("counter", entry.content + 1, SHARED, expected_version=entry.version))
                    break
                except VersionConflictError:
                    lost.append(entry.version)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert read(root, "counter") == 40


def test_a_value_can_be_removed_where_it_was_written_and_its_versions_go_on(
    root: MemoryManager, child: MemoryManager
) -> None:
    now(root.write("plan", 1, SHARED))
    assert now(child.delete("plan", SHARED)) is False
    with pytest.raises(InvalidInput, match="parent"):
        now(child.delete("plan", INHERITED))
    with pytest.raises(VersionConflictError):
        now(root.delete("plan", SHARED, expected_version=2))
    assert read(child, "plan") == 1
    assert now(root.delete("plan", SHARED)) is True
    assert (read(root, "plan"), read(child, "plan")) == (None, None)
    assert now(child.list_by_scope(INHERITED)) == []
    assert now(root.delete("plan", SHARED)) is False
    assert now(root.write("plan", 2, SHARED)).version > 1


def test_metadata_is_merged_on_writing(root: MemoryManager) -> None:
    now(root.write("key", 1, metadata={"a": 1, "b": 1}))
    assert now(root.write("key", 2, metadata={"b": 2})).metadata == {"a": 1, "b": 2}


def test_the_values_of_a_scope_are_listed_last_updated_first(root: MemoryManager, child: MemoryManager) -> None:
    """Requirement 66."""
    for key in ("a", "b", "c"):
        now(root.write(key, key, SHARED))
    now(root.write("a", "again", SHARED))
    now(child.write("b", "nearer", SHARED))
    now(child.write("mine", 1))
    now(root.write("all", 1, GLOBAL))
    grandchild = manager("grandchild", child)

    def listed(of: MemoryManager, scope: MemoryScope, limit: int = 100) -> list[tuple[str, Any, MemoryScope]]:
        return [(one.id, one.content, one.scope) for one in now(of.list_by_scope(scope, limit=limit))]

    assert listed(root, SHARED) == [("a", "again", SHARED), ("c", "c", SHARED), ("b", "b", SHARED)]
    assert listed(child, LOCAL) == [("mine", 1, LOCAL)]
    assert listed(child, GLOBAL) == [("all", 1, GLOBAL)]
    assert [one[0] for one in listed(child, INHERITED)] == ["a", "c", "b"]
    assert listed(grandchild, INHERITED) == [
        ("b", "nearer", INHERITED),
        ("a", "again", INHERITED),
        ("c", "c", INHERITED),
    ]
    assert [one[0] for one in listed(grandchild, INHERITED, limit=2)] == ["b", "a"]
    assert listed(root, INHERITED) == []


@pytest.mark.parametrize("limit", [0, -1, "x", 1.5])
@pytest.mark.parametrize("scope", list(MemoryScope))
def test_a_limit_that_is_no_number_of_values_is_refused(child: MemoryManager, scope: MemoryScope, limit: Any) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        now(child.list_by_scope(scope, limit=limit))


@pytest.mark.parametrize(
    "call",
    [
        lambda of: of.write("key", 1, "everywhere"),
        lambda of: of.read("key", "everywhere"),
        lambda of: of.list_by_scope("everywhere"),
        lambda of: of.add_context("key", 1, scope="everywhere"),
    ],
)
def test_an_unknown_scope_is_refused_with_the_known_ones(
    root: MemoryManager, call: Callable[[MemoryManager], Coroutine[Any, Any, Any]]
) -> None:
    with pytest.raises(InvalidInput, match="local, shared, inherited, global"):
        now(call(root))


@pytest.mark.parametrize("key", ["", None, 3])
def test_a_key_that_is_no_text_is_refused(root: MemoryManager, key: Any) -> None:
    with pytest.raises(InvalidInput, match="key"):
        now(root.write(key, 1))


def test_values_and_versions_are_there_again_on_reopening(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with manager("root", store=path) as root:
        now(root.write("plan", {"步": 1}, SHARED))
        now(root.write("plan", {"步": 2}, SHARED))
        now(root.write("all", 1, GLOBAL))
        now(root.add_context("mine", "x"))
    with manager("root", store=path) as root:
        entry = now(manager("child", root).read("plan"))
        assert entry is not None
        assert (entry.content, entry.version) == ({"步": 2}, 2)
        assert (read(root, "mine"), read(root, "all")) == ("x", 1)


def test_a_manager_opened_for_reading_reads_and_does_not_write(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with manager("root", store=path) as root:
        now(root.add_context("mine", "x"))
    with manager("root", store=path, read_only=True) as root:
        assert read(root, "mine") == "x"
        with pytest.raises(ReadOnly):
            now(root.add_context("mine", "y"))


# --- parents -----------------------------------------------------------------------------------------------


def test_a_child_without_a_store_shares_its_parents(root: MemoryManager, child: MemoryManager) -> None:
    """Requirements 62, 67."""
    assert child.store is root.store
    assert (child.parent, child.root) == (root, root)
    child.close()
    assert read(root, "nothing") is None  # the store is its parent's, and open


def test_a_child_may_have_a_store_of_its_own(root: MemoryManager, tmp_path: Path) -> None:
    now(root.write("plan", 1, SHARED))
    now(root.write("team", "red", GLOBAL))
    with manager("root", root, store=tmp_path / "child.loom", embedder="none") as child:
        assert child.store is not root.store
        assert (read(child, "plan"), read(child, "team")) == (1, "red")
        now(child.write("team", "blue", GLOBAL))
        now(child.write("plan", 2, LOCAL))
        assert (read(root, "team"), read(root, "plan")) == ("blue", 1)


def test_two_nodes_of_a_tree_in_one_store_need_two_names(root: MemoryManager) -> None:
    with pytest.raises(InvalidInput, match="node_id"):
        MemoryManager("root", root)
    with pytest.raises(InvalidInput, match="node_id"):
        MemoryManager(parent=root)


@pytest.mark.parametrize("parent", ["root", 3, LoomMemory])
def test_a_parent_that_is_no_manager_is_refused(parent: Any) -> None:
    if parent is LoomMemory:
        parent = LoomMemory("root", embedder="none")
    with pytest.raises(InvalidInput, match="parent"):
        MemoryManager("child", parent, embedder="none")


def test_a_child_may_have_other_budgets(root: MemoryManager) -> None:
    child = manager("child", root, l1_token_budget=50)
    for number in range(20):
        child.add_task(Task(parameters={"c": f"number {number} of twenty"}))
    assert child.l1.token_usage <= child.l1.token_budget == 50
    assert root.l1.token_budget == 8000


# --- asking ------------------------------------------------------------------------------------------------


def test_a_query_may_name_tier_kind_session_and_importance(root: MemoryManager) -> None:
    """Requirements 24, 65."""
    root.add_task(Task(task_id="t1", action="execute", parameters={"c": "red paint"}, session_id="s1"))
    root.add_task(Task(task_id="t2", parameters={"c": "red wine"}, session_id="s2"))
    root.add_task(Task(task_id="t3", parameters={"c": "red brick"}, session_id="s2"), "l3")
    root.add_fact(Fact("red is a colour", id="fact_red"))

    def found(**wanted: Any) -> set[str]:
        return {hit.id for hit in now(root.query(MemoryQuery("red", **wanted)))}

    assert found() == {"t1", "t2", "t3", "fact_red"}
    assert found(tier=MemoryTier.L2) == {"t1"}
    assert found(tier=MemoryTier.L1) == {"t1", "t2"}
    assert found(tier=MemoryTier.L3) == {"t3"}
    assert found(type=MemoryType.FACT) == {"fact_red"}
    assert found(session_id="s2") == {"t2", "t3"}
    assert found(min_importance=0.6) == {"t1", "fact_red"}
    assert len(found(limit=2)) == 2
    assert len(now(root.query("red", limit=1))) == 1


def test_what_only_the_log_holds_is_still_found_by_a_query() -> None:
    """Requirement 65; trap: nothing from L4 ever reaches a prompt."""
    budgets: dict[str, Any] = {f"l{tier}_token_budget": 60 for tier in (1, 2, 3, 4)}
    with manager("small", **budgets) as small:
        for number in range(40):
            small.add_task(
                Task(task_id=f"t{number}", parameters={"c": f"message m{number} of forty"}), importance=0.9
            )
        for number in range(40):
            (hit,) = now(small.query(f"m{number}", limit=1))
            assert hit.id == f"t{number}"
            assert f"message m{number} of forty" in hit.content


@pytest.mark.parametrize(
    "wanted", [{"tier": "l9"}, {"type": "rumour"}, {"limit": 0}, {"min_importance": 2}, {"query": " "}, {"query": 3}]
)
def test_a_query_that_makes_no_sense_is_refused_and_not_answered_with_nothing(
    root: MemoryManager, wanted: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        now(root.query(MemoryQuery(**{"query": "red"} | wanted)))


def test_asking_and_writing_do_not_block_the_loop(root: MemoryManager) -> None:
    """Awaited work runs in a thread other than the loop's."""
    seen = []
    original = root.store.transaction

    def watched() -> Any:
        seen.append(threading.current_thread())
        return original()

    async def write() -> threading.Thread:
        await root.write("key", 1)
        return threading.current_thread()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(root.store, "transaction", watched)
        loop = now(write())
    assert seen
    assert loop not in seen


def test_one_store_may_serve_many_managers_at_once() -> None:
    store = SqliteStore()
    managers = [manager(f"node-{number}", store=store) for number in range(4)]

    async def work() -> None:
        await asyncio.gather(*(one.write(f"key {n}", n, SHARED) for one in managers for n in range(10)))

    now(work())
    assert store.stats()["entries"] == 40
    for one in managers:
        assert len(now(one.list_by_scope(SHARED))) == 10
        one.close()
    store.close()


def test_syncing_tells_what_the_parent_shares_anew_and_nothing_twice() -> None:
    """Requirement 69."""

    async def story() -> None:
        with MemoryManager("parent", embedder="none") as parent, MemoryManager("child", parent=parent) as child:
            assert await child.sync_from_parent() == []
            first = await parent.write_with_version_check("plan", {"step": 1}, 0)
            assert [(one.id, one.version, one.scope) for one in await child.sync_from_parent()] == [
                ("plan", 1, MemoryScope.INHERITED)
            ]
            assert await child.sync_from_parent() == []
            await parent.write_with_version_check("plan", {"step": 2}, first.version)
            with pytest.raises(VersionConflictError):
                await parent.write_with_version_check("plan", {"step": 3}, first.version)
            assert [one.content for one in await child.sync_from_parent()] == [{"step": 2}]

    asyncio.run(story())
