"""Random trees, writes and syncs against a plain model: every node reads what the policies say, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from loom.errors import VersionConflictError
from loom.fractal.memory import FractalMemory, MemoryScope
from loom.fractal.resolvers import ChildWinsResolver, MergeResolver, ParentWinsResolver, deep_merge
from loom.fractal.sync import MemorySyncManager
from loom.storage.sqlite.store import SqliteStore

LOCAL, SHARED, INHERITED, GLOBAL = MemoryScope.LOCAL, MemoryScope.SHARED, MemoryScope.INHERITED, MemoryScope.GLOBAL
KEYS = ("plan", "组", "z")
RESOLVERS = (ParentWinsResolver(), ChildWinsResolver(), MergeResolver())


@dataclass
class Value:
    """The expected state of a key of a place. A deleted key keeps its version."""

    content: Any = None
    version: int = 0
    there: bool = False
    writer: str = ""
    reconciled: tuple[str, int] | None = None
    taken: dict[str, int] = field(default_factory=dict)

    def put(self, content: Any, writer: str) -> None:
        self.content, self.version, self.there, self.writer = content, self.version + 1, True, writer

    def drop(self) -> None:
        self.version, self.there, self.reconciled, self.taken = self.version + 1, False, None, {}


@dataclass
class Node:
    memory: FractalMemory
    sync: MemorySyncManager
    parent: Node | None
    tree: str

    @property
    def name(self) -> str:
        return self.memory.node_id

    @property
    def root(self) -> Node:
        return self if self.parent is None else self.parent.root


def resolved(resolver: Any, parent: Any, child: Any) -> Any:
    if isinstance(resolver, MergeResolver):
        return deep_merge(parent, child)
    return parent if isinstance(resolver, ParentWinsResolver) else child


class Trees(RuleBasedStateMachine):
    """Two trees in one namespace, and one in another."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = [SqliteStore(), SqliteStore(namespace="theirs")]
        self.nodes: list[Node] = []
        # By tree as well: trees of other namespaces may have nodes of the same name.
        self.values: dict[tuple[str, MemoryScope, str, str], Value] = {}
        self.count = 0

    def teardown(self) -> None:
        for store in self.stores:
            store.close()

    @initialize()
    def plant(self) -> None:
        for name, tree, store in (("one", "one", 0), ("two", "two", 0), ("one", "three", 1)):
            self.add(FractalMemory(name, store=self.stores[store]), None, tree)

    def add(self, memory: FractalMemory, parent: Node | None, tree: str) -> None:
        self.nodes.append(Node(memory, MemorySyncManager(memory), parent, tree))

    @rule(chosen=st.integers(0, 99))
    def grow(self, chosen: int) -> None:
        if len(self.nodes) < 12:
            parent = self.nodes[chosen % len(self.nodes)]
            name = f"{parent.tree}-{len(self.nodes)}"
            self.add(FractalMemory(name, parent.memory), parent, parent.tree)

    def value(self, node: Node, scope: MemoryScope, key: str) -> Value:
        owner = node.root if scope is GLOBAL else node
        return self.values.setdefault((node.tree, scope, owner.name, key), Value())

    def inherited(self, node: Node, key: str) -> tuple[str, Value] | None:
        above = node.parent
        while above is not None:
            value = self.value(above, SHARED, key)
            if value.there:
                return above.name, value
            above = above.parent
        return None

    @rule(
        chosen=st.integers(0, 99),
        scope=st.sampled_from([LOCAL, SHARED, SHARED, GLOBAL]),
        key=st.sampled_from(KEYS),
        checked=st.sampled_from(["not", "right", "late"]),
    )
    def write(self, chosen: int, scope: MemoryScope, key: str, checked: str) -> None:
        node = self.nodes[chosen % len(self.nodes)]
        value = self.value(node, scope, key)
        present = value.version if value.there else 0
        self.count += 1
        content = {"tree": node.tree, f"by {node.name}": self.count}
        expected = {"not": None, "right": present, "late": present + 1}[checked]
        if checked == "late":
            with pytest.raises(VersionConflictError) as conflict:
                node.memory.scopes.write(key, content, scope, expected_version=expected)
            assert (conflict.value.expected, conflict.value.actual) == (expected, present)
            return
        entry = node.memory.scopes.write(key, content, scope, expected_version=expected)
        assert entry.version == value.version + 1
        value.put(content, node.name)

    @rule(chosen=st.integers(0, 99), scope=st.sampled_from([LOCAL, SHARED, GLOBAL]), key=st.sampled_from(KEYS))
    def delete(self, chosen: int, scope: MemoryScope, key: str) -> None:
        node = self.nodes[chosen % len(self.nodes)]
        value = self.value(node, scope, key)
        assert node.memory.scopes.delete(key, scope) is value.there
        if value.there:
            value.drop()

    @rule(chosen=st.integers(0, 99), resolver=st.sampled_from(RESOLVERS))
    def sync_down(self, chosen: int, resolver: Any) -> None:
        node = self.nodes[chosen % len(self.nodes)]
        asyncio.run(node.sync.sync_from_parent(resolver))
        for key in KEYS:
            own, above = self.value(node, SHARED, key), self.inherited(node, key)
            if not own.there or above is None or own.content == above[1].content:
                continue
            compared = (above[0], above[1].version)
            if own.reconciled != compared:
                own.put(resolved(resolver, above[1].content, own.content), node.name)
                own.reconciled = compared

    @rule(chosen=st.integers(0, 99), resolver=st.sampled_from(RESOLVERS))
    def sync_up(self, chosen: int, resolver: Any) -> None:
        node = self.nodes[chosen % len(self.nodes)]
        asyncio.run(node.sync.sync_to_parent(resolver))
        if node.parent is None:
            return
        for key in KEYS:
            own, above = self.value(node, SHARED, key), self.value(node.parent, SHARED, key)
            if not own.there:
                continue
            content = own.content
            if above.there:
                if above.taken.get(node.name) == own.version or above.content == own.content:
                    continue
                if above.writer != node.name:
                    content = resolved(resolver, above.content, own.content)
            above.put(content, node.name)
            above.taken[node.name] = own.version

    @invariant()
    def every_node_reads_what_it_should_and_of_its_own_tree(self) -> None:
        for node in self.nodes:
            scopes = node.memory.scopes
            for key in KEYS:
                for scope in (LOCAL, SHARED, GLOBAL):
                    value, entry = self.value(node, scope, key), scopes.read(key, scope)
                    assert (entry is not None) == value.there
                    if entry is not None:
                        assert (entry.content, entry.version, entry.updated_by) == (
                            value.content,
                            value.version,
                            value.writer,
                        )
                        assert entry.content["tree"] == node.tree
                        entry.content["tree"] = "changed by a reader"
                above, entry = self.inherited(node, key), scopes.read(key, INHERITED)
                assert (entry is not None) == (above is not None)
                if entry is not None and above is not None:
                    assert (entry.content, entry.version) == (above[1].content, above[1].version)

    @invariant()
    def listings_agree_with_reading(self) -> None:
        for node in self.nodes:
            for scope in MemoryScope:
                listed = {entry.id: entry for entry in node.memory.scopes.entries(scope)}
                read = {key: node.memory.scopes.read(key, scope) for key in KEYS}
                assert listed == {key: entry for key, entry in read.items() if entry is not None}


TestTrees = Trees.TestCase
TestTrees.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
