"""Resolvers and MemorySyncManager. Requirements 69, 104, 105; C-22."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

import loom.fractal
from loom.errors import InvalidInput, VersionConflictError
from loom.fractal.memory import AccessPolicy, FractalMemory, MemoryEntry, MemoryScope, ScopedMemory
from loom.fractal.resolvers import (
    ChildWinsResolver,
    ConflictResolver,
    MergeResolver,
    ParentWinsResolver,
    deep_merge,
)
from loom.fractal.sync import MemorySyncManager
from loom.memory import MemoryManager
from tests.storage.plain_store import PlainStore

LOCAL, SHARED, INHERITED = MemoryScope.LOCAL, MemoryScope.SHARED, MemoryScope.INHERITED

Answer = TypeVar("Answer")


def now(work: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run(work)


@pytest.fixture(params=["sqlite", "plain"])
def root(request: pytest.FixtureRequest) -> Iterator[FractalMemory]:
    with FractalMemory("root", store=PlainStore() if request.param == "plain" else None) as found:
        yield found


@pytest.fixture
def child(root: FractalMemory) -> FractalMemory:
    return FractalMemory("child", root)


@pytest.fixture
def sync(child: FractalMemory) -> MemorySyncManager:
    return MemorySyncManager(child)


def share(of: ScopedMemory, key: str, content: Any, **more: Any) -> MemoryEntry:
    return of.scopes.write(key, content, SHARED, **more)


def shared(of: ScopedMemory, key: str) -> Any:
    entry = of.scopes.read(key, SHARED)
    return None if entry is None else entry.content


def told(entries: list[MemoryEntry]) -> list[tuple[str, Any, MemoryScope]]:
    return [(entry.id, entry.content, entry.scope) for entry in entries]


# --- resolvers ---------------------------------------------------------------------------------------------

PARENT = MemoryEntry("plan", {"a": 1, "deep": {"x": 1, "y": [1]}, "only": "above"}, metadata={"tags": {"p": 1}})
CHILD = MemoryEntry("plan", {"a": 2, "deep": {"y": [2], "z": 3}, "mine": True}, SHARED, metadata={"tags": {"c": 1}})


def test_one_side_wins_whole() -> None:
    """Requirement 104."""
    assert ParentWinsResolver().resolve(PARENT, CHILD) == PARENT
    assert ChildWinsResolver().resolve(PARENT, CHILD) == CHILD


def test_a_merge_goes_to_any_depth_and_changes_neither_side() -> None:
    """Requirement 104: deep."""
    before = repr((PARENT, CHILD))
    merged = MergeResolver().resolve(PARENT, CHILD)
    assert merged.content == {"a": 2, "deep": {"x": 1, "y": [2], "z": 3}, "only": "above", "mine": True}
    assert merged.metadata == {"tags": {"p": 1, "c": 1}}
    other = MergeResolver(prefer="parent").resolve(PARENT, CHILD)
    assert other.content == {"a": 1, "deep": {"x": 1, "y": [1], "z": 3}, "only": "above", "mine": True}
    assert repr((PARENT, CHILD)) == before


@pytest.mark.parametrize(
    ("weak", "strong"), [([1], [2]), ({"a": 1}, "text"), ("text", {"a": 1}), (None, 0), (1, None)]
)
def test_what_cannot_be_merged_is_the_preferred_sides(weak: Any, strong: Any) -> None:
    assert deep_merge(weak, strong) == strong
    resolved = MergeResolver(prefer="parent").resolve(replace(PARENT, content=strong), replace(CHILD, content=weak))
    assert resolved.content == strong


def test_an_unknown_preference_is_refused() -> None:
    side: Any = "neither"
    with pytest.raises(InvalidInput, match="child or parent"):
        MergeResolver(prefer=side)


def test_resolvers_and_sync_are_imported_from_their_modules_and_not_from_the_package() -> None:
    """Requirement 15; C-22."""
    assert not {"FractalMemory", "MergeResolver", "MemorySyncManager"} & set(loom.fractal.__all__)
    with pytest.raises(AttributeError):
        loom.fractal.MemorySyncManager  # noqa: B018


# --- from the parent ---------------------------------------------------------------------------------------


def test_syncing_tells_what_is_new_above_and_nothing_twice(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager
) -> None:
    """Requirement 105."""
    assert now(sync.sync_from_parent()) == []
    share(root, "plan", 1)
    share(root, "team", "red")
    assert told(now(sync.sync_from_parent())) == [("team", "red", INHERITED), ("plan", 1, INHERITED)]
    assert now(sync.sync_from_parent()) == []
    share(child, "own", 1)
    share(root, "plan", 2)
    (entry,) = now(sync.sync_from_parent())
    assert (entry.id, entry.version, entry.parent_version) == ("plan", 2, 2)
    root.scopes.delete("plan", SHARED)
    assert now(sync.sync_from_parent()) == []
    share(root, "plan", 3)
    assert told(now(sync.sync_from_parent())) == [("plan", 3, INHERITED)]


def test_a_change_behind_a_nearer_value_is_not_told(root: FractalMemory, child: FractalMemory) -> None:
    sync = MemorySyncManager(FractalMemory("leaf", child))
    share(root, "plan", "far")
    share(child, "plan", "near")
    assert told(now(sync.sync_from_parent())) == [("plan", "near", INHERITED)]
    share(root, "plan", "far again")
    assert now(sync.sync_from_parent()) == []


def test_what_comes_to_light_when_a_nearer_value_goes_is_told(root: FractalMemory, child: FractalMemory) -> None:
    leaf = FractalMemory("leaf", child)
    sync = MemorySyncManager(leaf)
    share(root, "plan", "far")
    share(child, "plan", "near")
    assert told(now(sync.sync_from_parent())) == [("plan", "near", INHERITED)]
    share(root, "plan", "far, and hidden")
    assert now(sync.sync_from_parent()) == []
    child.scopes.delete("plan", SHARED)
    assert told(now(sync.sync_from_parent())) == [("plan", "far, and hidden", INHERITED)]


def test_more_keys_than_a_page_are_all_told(root: FractalMemory, sync: MemorySyncManager) -> None:
    """Trap: a limit that drops the rest in silence."""
    with root.scopes.store.transaction() as transaction:
        for number in range(2345):
            transaction.put_entry(f"key {number}", number, writer="root", scope=SHARED, owner="root")
    assert len(now(sync.sync_from_parent())) == 2345
    assert now(sync.sync_from_parent()) == []


def test_without_a_resolver_both_sides_keep_their_values(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager
) -> None:
    share(root, "plan", "root's")
    written = share(child, "plan", "child's")
    now(sync.sync_from_parent())
    assert (shared(root, "plan"), child.scopes.read("plan", SHARED)) == ("root's", written)


@pytest.mark.parametrize(
    ("resolver", "expected"),
    [
        (ParentWinsResolver(), {"a": 1, "p": 1}),
        (ChildWinsResolver(), {"a": 2, "c": 2}),
        (MergeResolver(), {"a": 2, "p": 1, "c": 2}),
        (MergeResolver("parent"), {"a": 1, "p": 1, "c": 2}),
    ],
    ids=str,
)
def test_the_resolver_decides_and_is_asked_again_only_when_the_parent_has_changed(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager, resolver: ConflictResolver, expected: Any
) -> None:
    """Requirements 104, 105; trap: an override that the next sync wipes out."""
    share(root, "plan", {"a": 1, "p": 1})
    share(child, "plan", {"a": 2, "c": 2})
    found = now(sync.sync_from_parent(resolver))
    assert told(found)[-1] == ("plan", expected, SHARED)
    assert (found[-1].version, found[-1].parent_version) == (2, 1)
    assert (shared(child, "plan"), shared(root, "plan")) == (expected, {"a": 1, "p": 1})
    share(child, "plan", "overridden on purpose")
    restarted = MemorySyncManager(child, resolver)
    now(restarted.sync_from_parent())
    assert shared(child, "plan") == "overridden on purpose"
    share(root, "plan", "new at the root")
    now(restarted.sync_from_parent())
    entry = child.scopes.read("plan", SHARED)
    assert entry is not None
    assert (entry.content == "new at the root") == (resolver in (ParentWinsResolver(), MergeResolver("parent")))
    assert entry.parent_version == 2


def test_a_value_that_is_equal_above_is_left_alone(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager
) -> None:
    share(root, "plan", {"a": 1})
    share(child, "plan", {"a": 1})
    now(sync.sync_from_parent(ParentWinsResolver()))
    entry = child.scopes.read("plan", SHARED)
    assert entry is not None
    assert entry.version == 1


def test_local_values_are_never_synced(root: FractalMemory, child: FractalMemory, sync: MemorySyncManager) -> None:
    share(root, "plan", "root's")
    child.scopes.write("plan", "mine", LOCAL)
    now(sync.sync_from_parent(ParentWinsResolver()))
    now(sync.sync_to_parent(ChildWinsResolver()))
    assert (child.scopes.read("plan"), shared(root, "plan")) == (child.scopes.read("plan", LOCAL), "root's")


class Interfering:
    """A resolver during whose first few calls another writer writes."""

    def __init__(self, memory: ScopedMemory, times: int) -> None:
        self.memory, self.left, self.seen = memory, times, list[Any]()

    def resolve(self, parent: MemoryEntry, child: MemoryEntry) -> MemoryEntry:
        self.seen.append((parent.content, child.content))
        if self.left:
            self.left -= 1
            share(self.memory, "plan", {f"late {self.left}": True} | shared(self.memory, "plan"))
        return MergeResolver().resolve(parent, child)


def test_no_update_is_lost_that_comes_while_the_resolver_decides(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager
) -> None:
    share(root, "plan", {"p": 1})
    share(child, "plan", {"c": 1})
    resolver = Interfering(child, 2)
    now(sync.sync_from_parent(resolver))
    assert shared(child, "plan") == {"p": 1, "c": 1, "late 0": True, "late 1": True}
    assert len(resolver.seen) == 3


def test_notes_of_syncing_are_not_seen_in_metadata(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager
) -> None:
    share(root, "plan", 1, metadata={"from": "root"})
    share(child, "plan", 2, metadata={"by": "child"})
    (entry,) = [one for one in now(sync.sync_from_parent(ParentWinsResolver())) if one.scope is SHARED]
    assert entry.metadata == {"from": "root", "by": "child"}
    share(child, "plan", 3)
    (up,) = now(sync.sync_to_parent(ChildWinsResolver()))
    assert up.metadata == {"from": "root", "by": "child"}


# --- to the parent -----------------------------------------------------------------------------------------


def test_what_a_child_shares_goes_up_when_it_is_handed_up(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager
) -> None:
    share(child, "report", "first")
    assert shared(root, "report") is None
    (entry,) = now(sync.sync_to_parent())
    assert (entry.content, entry.created_by, entry.version) == ("first", "child", 1)
    sibling = FractalMemory("sibling", root)
    assert str(sibling.scopes.read("report")) == "first"
    assert now(sync.sync_to_parent()) == []
    share(child, "report", "second")
    (entry,) = now(sync.sync_to_parent())  # the parent still has what was handed up: no conflict
    assert (entry.content, entry.version) == ("second", 2)


def test_a_parent_that_has_another_value_is_not_overwritten_without_a_resolver(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager
) -> None:
    share(child, "report", "child's")
    share(child, "other", 1)
    share(root, "report", "root's")
    with pytest.raises(VersionConflictError) as conflict:
        now(sync.sync_to_parent())
    assert (conflict.value.key, conflict.value.actual) == ("report", 1)
    assert (shared(root, "report"), shared(root, "other")) == ("root's", 1)
    now(sync.sync_to_parent(ChildWinsResolver()))
    assert shared(root, "report") == "child's"


def test_two_siblings_that_hand_up_one_key_are_merged(root: FractalMemory) -> None:
    nodes = [FractalMemory(f"child {number}", root) for number in range(3)]
    for node in nodes:
        share(node, "findings", {node.node_id: "found"})
        now(MemorySyncManager(node, MergeResolver()).sync_to_parent())
    assert shared(root, "findings") == {node.node_id: "found" for node in nodes}
    for node in nodes:  # and no unchanged value is passed up again
        assert now(MemorySyncManager(node, ChildWinsResolver()).sync_to_parent()) == []


def test_a_parents_change_after_handing_up_is_a_conflict_and_not_lost(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager
) -> None:
    share(child, "report", {"c": 1})
    now(sync.sync_to_parent())
    share(root, "report", {"c": 1, "r": 2})
    assert now(sync.sync_to_parent()) == []  # the child has nothing new
    share(child, "report", {"c": 3})
    with pytest.raises(VersionConflictError):
        now(sync.sync_to_parent())
    now(sync.sync_to_parent(MergeResolver()))
    assert shared(root, "report") == {"c": 3, "r": 2}


def test_no_update_of_the_parent_is_lost_that_comes_while_the_resolver_decides(
    root: FractalMemory, child: FractalMemory, sync: MemorySyncManager
) -> None:
    share(child, "plan", {"c": 1})
    share(root, "plan", {"r": 1})
    now(sync.sync_to_parent(Interfering(root, 1)))
    assert shared(root, "plan") == {"c": 1, "r": 1, "late 0": True}


def test_nothing_goes_up_where_the_policies_forbid_it() -> None:
    with FractalMemory("root", policies={SHARED: AccessPolicy(propagates_down=True)}) as root:
        child = FractalMemory("child", root)
        share(child, "report", 1)
        with pytest.raises(InvalidInput, match="policies forbid"):
            now(MemorySyncManager(child).sync_to_parent())
        assert shared(root, "report") is None


def test_a_root_has_nobody_to_sync_with(root: FractalMemory) -> None:
    share(root, "plan", 1)
    sync = MemorySyncManager(root)
    assert now(sync.sync_from_parent(MergeResolver())) == now(sync.sync_to_parent(MergeResolver())) == []


# --- version checks, and the manager -----------------------------------------------------------------------


def test_a_version_check_writes_only_on_the_version_that_was_read(
    child: FractalMemory, sync: MemorySyncManager
) -> None:
    """Requirement 105."""
    first = now(sync.write_with_version_check("plan", 1, 0))
    assert (first.version, first.scope) == (1, SHARED)
    with pytest.raises(VersionConflictError) as conflict:
        now(sync.write_with_version_check("plan", 2, 0))
    assert (conflict.value.key, conflict.value.expected, conflict.value.actual) == ("plan", 0, 1)
    assert now(sync.write_with_version_check("plan", 2, 1)).version == 2
    assert now(sync.write_with_version_check("mine", 2, 0, LOCAL)).scope is LOCAL
    unchecked: Any = None
    with pytest.raises(InvalidInput, match="version"):
        now(sync.write_with_version_check("plan", 3, unchecked))


def test_a_manager_syncs_both_ways_by_itself(tmp_path: Path) -> None:
    """Requirements 69, 106: reachable where the tiers are."""

    async def story() -> None:
        with MemoryManager("root", store=tmp_path / "agent.loom", embedder="none") as root:
            child = MemoryManager("child", root)
            await root.write("plan", {"a": 1}, SHARED)
            await child.write("plan", {"b": 2}, SHARED)
            entries = await child.sync_from_parent(MergeResolver())
            assert told(entries) == [("plan", {"a": 1}, INHERITED), ("plan", {"a": 1, "b": 2}, SHARED)]
            assert told(await child.sync_to_parent(MergeResolver())) == [("plan", {"a": 1, "b": 2}, SHARED)]
            assert str(await root.read("plan")) == str({"a": 1, "b": 2})
            by_hand = MemorySyncManager(child)
            assert (await by_hand.write_with_version_check("plan", 1, 2)).version == 3

    now(story())
