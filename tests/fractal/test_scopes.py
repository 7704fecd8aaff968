"""FractalMemory and the policies of a tree. Requirements 17, 23, 26, 66, 67, 99; C-14."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from loom.errors import Closed, InvalidInput, SettingsConflict, VersionConflictError
from loom.fractal.memory import (
    ACCESS_POLICIES,
    AccessPolicy,
    FractalMemory,
    MemoryScope,
    ScopedMemory,
    Scopes,
    Writers,
)
from loom.memory import LoomMemory, MemoryManager
from loom.storage.sqlite.store import SqliteStore
from tests.storage.plain_store import PlainStore

LOCAL, SHARED, INHERITED, GLOBAL = MemoryScope.LOCAL, MemoryScope.SHARED, MemoryScope.INHERITED, MemoryScope.GLOBAL

Answer = TypeVar("Answer")


def now(work: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run(work)


@pytest.fixture(params=["sqlite", "plain"])
def root(request: pytest.FixtureRequest) -> Iterator[FractalMemory]:
    with FractalMemory("root", store=PlainStore() if request.param == "plain" else None) as found:
        yield found


def chain(root: FractalMemory, depth: int) -> list[FractalMemory]:
    nodes = [root]
    for level in range(1, depth):
        nodes.append(FractalMemory(f"level-{level}", nodes[-1]))
    return nodes


def content(of: ScopedMemory, key: str, scope: MemoryScope | None = None) -> Any:
    entry = of.scopes.read(key, scope)
    return None if entry is None else entry.content


# --- the tree ----------------------------------------------------------------------------------------------


def test_a_value_shared_at_the_top_is_read_through_fifty_levels_as_it_is_now(root: FractalMemory) -> None:
    """Requirements 67, 99; C-14."""
    nodes = chain(root, 50)
    for step in (1, 2, 3):
        now(root.write("plan", {"step": step}, SHARED))
        entry = now(nodes[-1].read("plan"))
        assert entry is not None
        assert (entry.content, entry.scope, entry.version) == ({"step": step}, INHERITED, step)
        entry.content["step"] = "changed by a reader"
        assert content(nodes[-1], "plan") == content(root, "plan") == {"step": step}
    nodes[25].scopes.write("plan", "nearer", SHARED)
    assert [content(node, "plan", INHERITED) for node in (nodes[25], nodes[26], nodes[49])] == [
        {"step": 3},
        "nearer",
        "nearer",
    ]


def test_nobody_reads_a_siblings_or_a_childs_own_values(root: FractalMemory) -> None:
    one, two = FractalMemory("one", root), FractalMemory("two", root)
    below = FractalMemory("below", one)
    for scope in (LOCAL, SHARED):
        one.scopes.write(f"{scope} of one", 1, scope)
    assert [content(two, f"{scope} of one") for scope in (LOCAL, SHARED)] == [None, None]
    assert [content(root, f"{scope} of one") for scope in (LOCAL, SHARED)] == [None, None]
    assert [content(below, f"{scope} of one") for scope in (LOCAL, SHARED)] == [None, 1]
    for scope in MemoryScope:
        assert two.scopes.entries(scope) == []


def test_two_trees_in_one_namespace_share_nothing_not_even_global_values() -> None:
    """Trap: GLOBAL under no name at all is everybody's."""
    with closing(SqliteStore()) as store:
        trees = [FractalMemory(name, store=store) for name in ("one", "two")]
        below = [FractalMemory(f"below {tree.node_id}", tree) for tree in trees]
        below[0].scopes.write("team", "red", GLOBAL)
        trees[0].scopes.write("plan", 1, SHARED)
        assert content(trees[0], "team") == "red"
        for node in (trees[1], below[1]):
            assert (content(node, "team"), content(node, "plan")) == (None, None)
            assert [entry for scope in MemoryScope for entry in node.scopes.entries(scope)] == []


def test_no_tree_spans_two_namespaces(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with (
        closing(SqliteStore(path, namespace="ours")) as ours,
        closing(SqliteStore(path, namespace="theirs")) as theirs,
    ):
        root = FractalMemory("root", store=ours)
        root.scopes.write("plan", 1, SHARED)
        root.scopes.write("team", 1, GLOBAL)
        with pytest.raises(InvalidInput, match="crosses a namespace"):
            FractalMemory("child", root, store=theirs)
        namesake = FractalMemory("root", store=theirs)
        assert (content(namesake, "plan"), content(namesake, "team")) == (None, None)


def test_a_tree_may_span_two_files(root: FractalMemory, tmp_path: Path) -> None:
    root.scopes.write("plan", "root's", SHARED)
    with FractalMemory("middle", root, store=tmp_path / "middle.loom") as middle:
        leaf = FractalMemory("leaf", middle)
        assert content(leaf, "plan") == "root's"
        middle.scopes.write("plan", "middle's", SHARED)
        leaf.scopes.write("team", "red", GLOBAL)
        assert (content(leaf, "plan"), content(root, "team")) == ("middle's", "red")
        assert [entry.content for entry in leaf.scopes.entries(INHERITED)] == ["middle's"]


def test_a_name_occurs_once_on_the_way_up(root: FractalMemory, tmp_path: Path) -> None:
    middle = FractalMemory("middle", root)
    for name in ("root", "middle"):
        with pytest.raises(InvalidInput, match="node_id"):
            FractalMemory(name, middle)
    path = tmp_path / "agent.loom"
    with FractalMemory("top", store=path) as top, pytest.raises(InvalidInput, match="node_id"):
        FractalMemory("top", top, store=path)  # the same file by another handle


def test_values_are_the_same_for_every_process(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with FractalMemory("root", store=path) as root:
        root.scopes.write("plan", {"步": 1}, SHARED)
        script = (
            "import json, sys\n"
            "from loom.fractal.memory import FractalMemory\n"
            "with FractalMemory('root', store=sys.argv[1]) as root:\n"
            "    child = FractalMemory('child', root)\n"
            "    read = child.scopes.read('plan')\n"
            "    child.scopes.write('team', 'red', 'global')\n"
            "    print(json.dumps([read.content, read.version, str(read.scope)]))\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, timeout=60
        )
        assert json.loads(ran.stdout) == [{"步": 1}, 1, "inherited"]
        assert content(root, "team") == "red"


def test_a_memory_beside_tiers_uses_their_store_and_name(root: FractalMemory) -> None:
    """Requirement 99: base_memory."""
    with LoomMemory("agent", embedder="none") as tiers:
        memory = FractalMemory(base_memory=tiers)
        assert (memory.node_id, memory.base_memory) == ("agent", tiers)
        memory.scopes.write("plan", 1)
        assert tiers.store.stats()["entries"] == 1
        memory.close()
        assert content(memory, "plan") == 1  # the store is not its own to close


def test_a_manager_and_a_fractal_memory_are_nodes_of_one_tree() -> None:
    """002 2.6: the same verbs, the same values."""
    with MemoryManager("root", embedder="none") as manager:
        child = FractalMemory("child", manager)
        now(manager.write("plan", 1, SHARED))
        assert content(child, "plan") == 1
        now(child.write("team", "red", GLOBAL))
        entry = now(manager.read("team"))
        assert entry is not None
        assert (entry.content, entry.created_by) == ("red", "child")
        verbs = {"write", "read", "list_by_scope", "delete"}
        assert all(getattr(FractalMemory, verb) is getattr(MemoryManager, verb) for verb in verbs)


@pytest.mark.parametrize("node_id", [None, "", 3, "nul\0", "half \ud800"])
def test_a_node_needs_a_name(node_id: Any) -> None:
    with pytest.raises(InvalidInput):
        FractalMemory(node_id)


def test_writers_may_be_named_by_a_word() -> None:
    word: Any = "root"
    assert AccessPolicy(word).writers is Writers.ROOT
    word = "somebody"
    with pytest.raises(InvalidInput, match="anyone, root, nobody"):
        AccessPolicy(word)


def test_a_parent_without_scopes_is_refused() -> None:
    parent: Any = object()
    with pytest.raises(InvalidInput, match="parent"):
        FractalMemory("child", parent)


def test_a_closed_memory_refuses(tmp_path: Path) -> None:
    memory = FractalMemory("root", store=tmp_path / "agent.loom")
    memory.close()
    memory.close()
    with pytest.raises(Closed):
        memory.scopes.read("plan")


@pytest.mark.parametrize("key", ["", None, 3, "nul\0", "half \ud800"])
def test_a_key_that_the_store_cannot_carry_is_refused(root: FractalMemory, key: Any) -> None:
    for scope in (LOCAL, SHARED, GLOBAL):
        with pytest.raises(InvalidInput, match="key"):
            root.scopes.write(key, 1, scope)
        with pytest.raises(InvalidInput, match="key"):
            root.scopes.delete(key, scope)
        with pytest.raises(InvalidInput, match="key"):
            root.scopes.read(key, scope)


def test_what_syncing_notes_is_not_the_callers_to_write(root: FractalMemory) -> None:
    with pytest.raises(InvalidInput, match="syncing"):
        root.scopes.write("plan", 1, SHARED, metadata={"_reconciled_with": ["root", 9]})


# --- listing -----------------------------------------------------------------------------------------------


def test_what_a_nearer_node_shares_hides_a_farther_ones_in_every_listing(root: FractalMemory) -> None:
    """Trap: a limit cuts off the nearer value, so that the farther one, updated since, is returned."""
    middle = FractalMemory("middle", root)
    leaf = FractalMemory("leaf", middle)
    middle.scopes.write("plan", "nearer", SHARED)
    for number in range(8):
        middle.scopes.write(f"other {number}", number, SHARED)
    root.scopes.write("plan", "farther, and newer", SHARED)
    root.scopes.write("team", "red", SHARED)
    expected = ["team", *(f"other {number}" for number in reversed(range(8))), "plan"]
    for limit in range(1, 12):
        listed = leaf.scopes.entries(INHERITED, limit=limit)
        assert [entry.id for entry in listed] == expected[:limit]
        assert "farther, and newer" not in [entry.content for entry in listed]


def test_what_a_limit_keeps_back_is_not_passed_over_for_something_older(root: FractalMemory) -> None:
    """The newest values above are all hidden; the next one there is still newer than any nearer one."""
    middle = FractalMemory("middle", root)
    leaf = FractalMemory("leaf", middle)
    for number in range(6):
        middle.scopes.write(f"hidden {number}", "nearer", SHARED)
    middle.scopes.write("near", 1, SHARED)
    root.scopes.write("far", 2, SHARED)
    for number in range(6):
        root.scopes.write(f"hidden {number}", "farther", SHARED)
    for limit in (1, 2, 3):
        listed = leaf.scopes.entries(INHERITED, limit=limit)
        assert [entry.id for entry in listed] == ["far", "near", "hidden 5"][:limit]


def test_listing_and_following_cost_by_keys_and_not_by_versions() -> None:
    """Trap: a counter that was written a thousand times is one key."""
    root = FractalMemory("root")
    for number in range(300):
        root.scopes.write("counter", number, SHARED)
    store = root.scopes.store
    assert isinstance(store, SqliteStore)
    last = store.last_entry_change()
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with store.transaction() as transaction:
        connection = transaction.connection  # a store in memory has this one alone
    assert isinstance(connection, sqlite3.Connection)
    connection.set_progress_handler(count, 1)
    assert [entry.content for entry in root.scopes.entries(SHARED)] == [299]
    assert [change.version for change in store.entry_changes(last - 1, scope=SHARED, owner="root")] == [300]
    connection.set_progress_handler(None, 1)
    assert 0 < steps < 1000
    root.close()


# --- policies ----------------------------------------------------------------------------------------------


def tree_with(policies: Mapping[MemoryScope, AccessPolicy]) -> tuple[FractalMemory, FractalMemory, FractalMemory]:
    root = FractalMemory("root", policies=policies)
    child = FractalMemory("child", root)
    return root, child, FractalMemory("grandchild", child)


def test_the_usual_policies_are_those_of_the_design() -> None:
    """Requirement 99."""
    up_and_down = AccessPolicy(Writers.ANYONE, propagates_up=True, propagates_down=True)
    assert dict(ACCESS_POLICIES) == {
        LOCAL: AccessPolicy(Writers.ANYONE),
        SHARED: up_and_down,
        INHERITED: AccessPolicy(Writers.NOBODY, propagates_down=True),
        GLOBAL: up_and_down,
    }
    assert [scope for scope, policy in ACCESS_POLICIES.items() if policy.writable] == [LOCAL, SHARED, GLOBAL]


@pytest.mark.parametrize("scope", [LOCAL, SHARED, GLOBAL])
def test_a_tree_may_let_only_its_root_write_a_scope(scope: MemoryScope) -> None:
    usual = ACCESS_POLICIES[scope]
    root, child, _ = tree_with(
        {scope: AccessPolicy(Writers.ROOT, propagates_up=usual.propagates_up, propagates_down=usual.propagates_down)}
    )
    root.scopes.write("key", 1, scope)
    for attempt in (lambda: child.scopes.write("key", 2, scope), lambda: child.scopes.delete("key", scope)):
        with pytest.raises(InvalidInput, match="let root write"):
            attempt()
    assert content(root, "key", scope) == 1


@pytest.mark.parametrize("scope", [LOCAL, SHARED, GLOBAL])
def test_a_tree_may_let_nobody_write_a_scope(scope: MemoryScope) -> None:
    for node in tree_with({scope: AccessPolicy(Writers.NOBODY)}):
        with pytest.raises(InvalidInput, match="let nobody write"):
            node.scopes.write("key", 1, scope)
        assert content(node, "key") is None


def test_a_tree_may_keep_what_is_shared_from_going_down() -> None:
    root, child, grandchild = tree_with({SHARED: AccessPolicy(propagates_up=True)})
    root.scopes.write("plan", 1, SHARED)
    assert content(root, "plan") == 1
    for node in (child, grandchild):
        assert (content(node, "plan"), node.scopes.entries(INHERITED)) == (None, [])


def test_a_tree_may_end_inheritance_after_one_level() -> None:
    root, child, grandchild = tree_with({INHERITED: AccessPolicy(Writers.NOBODY)})
    root.scopes.write("plan", 1, SHARED)
    assert (content(child, "plan"), content(grandchild, "plan")) == (1, None)
    assert grandchild.scopes.entries(INHERITED) == []
    child.scopes.write("plan", 2, SHARED)
    assert content(grandchild, "plan") == 2


def test_a_tree_may_keep_global_values_from_coming_up_or_going_down() -> None:
    root, child, _ = tree_with({GLOBAL: AccessPolicy(propagates_down=True)})
    with pytest.raises(InvalidInput, match="do not go up"):
        child.scopes.write("team", "red", GLOBAL)
    root.scopes.write("team", "red", GLOBAL)
    assert content(child, "team") == "red"
    root, child, _ = tree_with({GLOBAL: AccessPolicy(propagates_up=True)})
    child.scopes.write("report", "done", GLOBAL)
    assert (content(root, "report"), content(child, "report"), child.scopes.entries(GLOBAL)) == ("done", None, [])


@pytest.mark.parametrize(
    "policies",
    [
        {LOCAL: AccessPolicy(propagates_down=True)},
        {LOCAL: AccessPolicy(propagates_up=True)},
        {INHERITED: AccessPolicy(Writers.ANYONE)},
        {INHERITED: AccessPolicy(Writers.ROOT)},
        {SHARED: "open"},
        {INHERITED: AccessPolicy("anyone")},  # type: ignore[arg-type]
        {"everywhere": AccessPolicy()},
    ],
    ids=str,
)
def test_a_tree_may_not_allow_more_than_usual(policies: Any) -> None:
    with pytest.raises(InvalidInput, match=r"AccessPolicy|scope"):
        FractalMemory("root", policies=policies)


def test_policies_belong_to_the_root_and_are_kept_for_every_process(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    strict = {SHARED: AccessPolicy(Writers.ROOT, propagates_down=True)}
    with (
        FractalMemory("root", store=path, policies=strict) as root,
        pytest.raises(InvalidInput, match="at its root"),
    ):
        FractalMemory("child", root, policies=strict)
    with FractalMemory("root", store=path) as root:
        child = FractalMemory("child", root)
        assert child.scopes.policies[SHARED] == strict[SHARED]
        with pytest.raises(InvalidInput, match="let root write"):
            child.scopes.write("plan", 1, SHARED)
    other = {GLOBAL: AccessPolicy(Writers.ROOT)}
    with pytest.raises(SettingsConflict, match="reconfigure"):
        FractalMemory("root", store=path, policies=other)
    with FractalMemory("root", store=path, policies=other, reconfigure=True) as root:
        assert root.scopes.policies[SHARED] == ACCESS_POLICIES[SHARED]
    with MemoryManager("root", store=path, embedder="none") as manager:
        assert manager.scopes.policies[GLOBAL] == other[GLOBAL]


def test_a_manager_takes_policies_as_well() -> None:
    with MemoryManager("root", embedder="none", policies={GLOBAL: AccessPolicy(Writers.ROOT)}) as root:
        child = MemoryManager("child", root)
        with pytest.raises(InvalidInput, match="let root write"):
            now(child.write("team", "red", GLOBAL))


# --- versions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [LOCAL, SHARED, GLOBAL])
def test_an_expected_version_must_be_the_present_one_in_every_scope(root: FractalMemory, scope: MemoryScope) -> None:
    child = FractalMemory("child", root)
    with pytest.raises(VersionConflictError) as missing:
        child.scopes.write("key", 1, scope, expected_version=4)
    assert (missing.value.expected, missing.value.actual) == (4, 0)
    assert child.scopes.write("key", 1, scope, expected_version=0).version == 1
    with pytest.raises(VersionConflictError):
        child.scopes.write("key", 2, scope, expected_version=0)
    assert child.scopes.write("key", 2, scope, expected_version=1).version == 2
    with pytest.raises(VersionConflictError):
        child.scopes.delete("key", scope, expected_version=1)
    assert child.scopes.delete("key", scope, expected_version=2)


def test_importing_the_scopes_loads_no_memory_and_no_event_loop() -> None:
    """Requirement 17: at run time the scopes do not depend on the memory."""
    script = "import sys, loom.fractal.memory, loom.fractal.sync, loom.fractal.resolvers\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "numpy", "loom.memory", "loom.storage"} & set(loaded)


def test_scopes_may_be_used_without_a_face() -> None:
    with closing(SqliteStore()) as store:
        root = Scopes("root", store)
        child = Scopes("child", store, root)
        root.write("plan", 1, SHARED)
        found = child.read("plan")
        assert found is not None
        assert (found.scope, child.root, [one.node_id for one in child.chain_to_root()]) == (
            INHERITED,
            root,
            ["child", "root"],
        )
