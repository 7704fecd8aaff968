"""Scopes: values under keys, and which nodes of a tree may read and write them.

`Scopes` works over a store in the calling thread. `FractalMemory` is its awaitable face for a node without tiers;
`loom.memory.MemoryManager` has the same face next to its tiers. Values are not copied down a tree: an inherited value
is read from its owner, so it is never stale.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from loom.checks import checked_mapping, checked_member, checked_object, checked_text, checked_whole, if_given
from loom.errors import InvalidInput, NotPermitted, SettingsConflict
from loom.protocol import Closing

if TYPE_CHECKING:
    from loom.storage.contract import Entry, Store

__all__ = [
    "ACCESS_POLICIES",
    "RECONCILED_WITH",
    "TAKEN_FROM",
    "AccessPolicy",
    "FractalMemory",
    "MemoryEntry",
    "MemoryScope",
    "Scoped",
    "ScopedMemory",
    "Scopes",
    "TieredMemory",
    "Writers",
    "as_memory_entry",
    "awaited",
    "checked_key",
    "checked_limit",
    "checked_version",
    "in_thread",
    "known_scope",
]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


# --- policies -----------------------------------------------------------------------------------------


class MemoryScope(StrEnum):
    """The nodes to which a value is visible."""

    LOCAL = "local"
    SHARED = "shared"
    INHERITED = "inherited"
    GLOBAL = "global"


class Writers(StrEnum):
    """The nodes that may write in a scope."""

    ANYONE = "anyone"
    ROOT = "root"
    """Only the root of the tree."""
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The permissions of a scope: its writers, and whether values propagate to the parent and to descendants."""

    writers: Writers = Writers.ANYONE
    propagates_up: bool = False
    propagates_down: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "writers", checked_member(Writers, self.writers, "writers"))

    @property
    def writable(self) -> bool:
        """Whether any node may write."""
        return self.writers is not Writers.NOBODY

    def within(self, other: AccessPolicy) -> bool:
        """Return whether this policy allows at most what the other allows."""
        order = (Writers.NOBODY, Writers.ROOT, Writers.ANYONE)
        return (
            order.index(self.writers) <= order.index(other.writers)
            and self.propagates_up <= other.propagates_up
            and self.propagates_down <= other.propagates_down
        )


ACCESS_POLICIES: Mapping[MemoryScope, AccessPolicy] = MappingProxyType(
    {
        MemoryScope.LOCAL: AccessPolicy(),
        MemoryScope.SHARED: AccessPolicy(propagates_up=True, propagates_down=True),
        MemoryScope.INHERITED: AccessPolicy(Writers.NOBODY, propagates_down=True),
        MemoryScope.GLOBAL: AccessPolicy(propagates_up=True, propagates_down=True),
    }
)
"""The default policies. A tree may allow less, never more.

SHARED propagates down by being read as INHERITED, and up when `sync_to_parent` is called. INHERITED propagates down
if a parent's inherited values are inherited by its children. GLOBAL is stored at the root: propagating up lets other
nodes write it, propagating down lets them read it.
"""


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """A versioned value in a scope. `str(entry)` is its content.

    `parent_version` is the version of the ancestor's value that this entry equals or was last reconciled with.
    """

    id: str
    content: Any
    scope: MemoryScope = MemoryScope.LOCAL
    version: int = 1
    created_by: str = ""
    updated_by: str = ""
    parent_version: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.content)


# --- one node's scopes ---------------------------------------------------------------------------------

# Metadata that syncing writes. Callers neither see nor write it.
RECONCILED_WITH = "_reconciled_with"
TAKEN_FROM = "_taken_from"
_NOTES = frozenset({RECONCILED_WITH, TAKEN_FROM})
_SETTING = "access_policies"


class Scopes:
    """The values that are visible to one node of a tree. Thread-safe; blocks the calling thread on the disk.

    LOCAL and SHARED are stored under the name of the node, GLOBAL under that of the root. A name identifies one node
    of a namespace, so trees with different names share nothing. The policies of a tree are given at its root and kept
    in the store for every process. `above` are the stores and nodes whose SHARED values are inherited, nearest first.
    """

    __slots__ = ("above", "node_id", "parent", "policies", "root", "store")

    def __init__(
        self,
        node_id: str,
        store: Store,
        parent: Scopes | None = None,
        *,
        policies: Mapping[MemoryScope, AccessPolicy] | None = None,
        reconfigure: bool = False,
    ) -> None:
        self.node_id = node_id
        self.store = store
        self.parent = parent
        self.root: Scopes = self if parent is None else parent.root
        if parent is None:
            self.policies = _agreed(store, node_id, policies, reconfigure)
        else:
            if policies is not None:
                raise InvalidInput("the policies of a tree are given at its root, not to a node below it")
            if parent.store.namespace != store.namespace:
                raise InvalidInput(
                    f"a node in namespace {store.namespace!r} cannot have a parent in {parent.store.namespace!r}: "
                    "nothing crosses a namespace"
                )
            for ancestor in parent.chain_to_root():
                if ancestor.node_id == node_id and ancestor.store.store_id == store.store_id:
                    raise InvalidInput(f"a child needs a node_id other than {node_id!r}, which a node above it has")
            self.policies = parent.policies
        self.above = self._ancestry()

    def chain_to_root(self) -> Iterator[Scopes]:
        """Yield this node, its parent, and so on up to the root."""
        node: Scopes | None = self
        while node is not None:
            yield node
            node = node.parent

    def _ancestry(self) -> tuple[tuple[Store, tuple[str, ...]], ...]:
        """Return the nodes whose SHARED values are inherited, nearest first, grouped by store."""
        if self.parent is None or not self.policies[MemoryScope.SHARED].propagates_down:
            return ()
        first = (self.parent.store, (self.parent.node_id,))
        if not self.policies[MemoryScope.INHERITED].propagates_down:
            return (first,)
        beyond = self.parent.above
        if beyond and beyond[0][0] is first[0]:
            return ((first[0], first[1] + beyond[0][1]), *beyond[1:])
        return (first, *beyond)

    # -- values ----------------------------------------------------------------------------------------

    def write(
        self,
        key: str,
        content: Any,
        scope: MemoryScope | str = MemoryScope.LOCAL,
        *,
        expected_version: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> MemoryEntry:
        """Write the next version of a key, with `expected_version` (0: must not exist) only if it matches."""
        known = known_scope(scope)
        checked_version(expected_version)
        if_given(checked_mapping, metadata, "the metadata of write()")
        if metadata and not _NOTES.isdisjoint(metadata):
            raise InvalidInput(f"the names {', '.join(sorted(_NOTES))} in metadata are kept for syncing")
        store, owner = self._writable_place(key, known)
        with store.transaction() as transaction:
            entry = transaction.put_entry(
                key,
                content,
                writer=self.node_id,
                scope=known,
                owner=owner,
                expected_version=expected_version,
                metadata=metadata,
            )
        return as_memory_entry(entry, known)

    def delete(
        self, key: str, scope: MemoryScope | str = MemoryScope.LOCAL, *, expected_version: int | None = None
    ) -> bool:
        """Remove every version of a key that this node may write. Returns False if there is none."""
        known = known_scope(scope)
        checked_version(expected_version)
        store, owner = self._writable_place(key, known)
        with store.transaction() as transaction:
            deleted = transaction.delete_entry(
                key, scope=known, owner=owner, expected_version=expected_version, writer=self.node_id
            )
        return deleted > 0

    def read(
        self, key: str, scope: MemoryScope | str | Iterable[MemoryScope | str] | None = None
    ) -> MemoryEntry | None:
        """Return the value under a key, or None. `str(entry)` is its content.

        Searches one scope, or several in the given order; by default LOCAL, SHARED, INHERITED and GLOBAL. The result
        is a copy.
        """
        checked_key(key)
        for wanted in _searched_scopes(scope):
            if wanted is MemoryScope.INHERITED:
                entry = self.inherited(key)
            else:
                place = self._readable_place(wanted)
                entry = None if place is None else place[0].entry(key, scope=wanted, owner=place[1])
            if entry is not None:
                return as_memory_entry(entry, wanted)
        return None

    def inherited(self, key: str) -> Entry | None:
        """Return the current value of the nearest ancestor that shares this key."""
        for store, owners in self.above:
            entry = store.entry(key, scope=MemoryScope.SHARED, owner=owners)
            if entry is not None:
                return entry
        return None

    def own(self, key: str) -> Entry | None:
        """Return the value that this node shares under a key."""
        return self.store.entry(key, scope=MemoryScope.SHARED, owner=self.node_id)

    def entries(self, scope: MemoryScope | str, *, limit: int = 100) -> list[MemoryEntry]:
        """Return the visible values of a scope, last updated first."""
        known = known_scope(scope)
        checked_limit(limit)
        if known is MemoryScope.INHERITED:
            found = self._list_inherited(limit)
        else:
            place = self._readable_place(known)
            found = [] if place is None else place[0].entries(scope=known, owner=place[1], limit=limit)
        return [as_memory_entry(entry, known) for entry in found]

    def _list_inherited(self, limit: int) -> list[Entry]:
        """Return the newest inherited values. The nearest node that shares a key hides farther ones."""
        asked = limit + 1
        while True:
            levels = [
                store.entries(scope=MemoryScope.SHARED, owner=owner, limit=asked)
                for store, owners in self.above
                for owner in owners
            ]
            # Entries beyond the limit of a level are older than the last one it returned.
            cut = max((level[-1].updated_at for level in levels if len(level) == asked), default=None)
            found = []
            for entry in sorted(
                (entry for level in levels for entry in level),
                key=lambda entry: (-entry.updated_at.timestamp(), entry.key),
            ):
                if cut is not None and entry.updated_at <= cut:
                    break
                nearest = self.inherited(entry.key)
                if nearest is not None and nearest.owner == entry.owner:
                    found.append(entry)
                    if len(found) == limit:
                        return found
            if cut is None:
                return found
            asked *= 4

    # -- permissions ------------------------------------------------------------------------------------

    def _writable_place(self, key: str, scope: MemoryScope) -> tuple[Store, str]:
        checked_key(key)
        self.check_writable(scope)
        return self._place(scope)

    def check_writable(self, scope: MemoryScope) -> None:
        """Raise `NotPermitted` if the policies forbid this node to write in a scope."""
        policy, at_root = self.policies[scope], self.parent is None
        if scope is MemoryScope.INHERITED:
            raise NotPermitted(
                "inherited values belong to a parent and cannot be changed here; write the key as local to override "
                "it for this node, or write it as shared where it comes from"
            )
        if not policy.writable or (policy.writers is Writers.ROOT and not at_root):
            raise NotPermitted(
                f"the policies of this tree let {policy.writers} write {scope} values, and not {self.node_id!r}"
            )
        if scope is MemoryScope.GLOBAL and not at_root and not policy.propagates_up:
            raise NotPermitted(
                f"global values do not go up in this tree, so only its root {self.root.node_id!r} writes them"
            )

    def _place(self, scope: MemoryScope) -> tuple[Store, str]:
        """Return the store and the owner of a scope: the root for GLOBAL, else this node."""
        home = self.root if scope is MemoryScope.GLOBAL else self
        return home.store, home.node_id

    def _readable_place(self, scope: MemoryScope) -> tuple[Store, str] | None:
        hidden = scope is MemoryScope.GLOBAL and self.parent is not None and not self.policies[scope].propagates_down
        return None if hidden else self._place(scope)


def as_memory_entry(entry: Entry, scope: MemoryScope) -> MemoryEntry:
    """Convert a stored entry to the form for callers, without the metadata of syncing."""
    reconciled = entry.metadata.get(RECONCILED_WITH)
    return MemoryEntry(
        id=entry.key,
        content=entry.content,
        scope=scope,
        version=entry.version,
        created_by=entry.created_by,
        updated_by=entry.updated_by,
        parent_version=entry.version if scope is MemoryScope.INHERITED else reconciled and reconciled[1],
        metadata={name: value for name, value in entry.metadata.items() if name not in _NOTES},
    )


def known_scope(scope: MemoryScope | str) -> MemoryScope:
    """Return the scope of a name. Raises `InvalidInput` for an unknown one."""
    return checked_member(MemoryScope, scope, "scope")


def _searched_scopes(scope: MemoryScope | str | Iterable[MemoryScope | str] | None) -> tuple[MemoryScope, ...]:
    """Return the scopes to search, in order."""
    if scope is None:
        return tuple(MemoryScope)
    if isinstance(scope, str) or not isinstance(scope, Iterable):
        return (known_scope(scope),)
    found = tuple(map(known_scope, scope))
    if not found:
        raise InvalidInput("read() was given an empty list of scopes; leave it out to look in all four")
    return found


def checked_key(key: object) -> str:
    """Return a key that every backend can store, or raise `InvalidInput`."""
    if not isinstance(key, str) or not key:
        raise InvalidInput(f"a key must be a text of at least one character, not {key!r}")
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in key):
        raise InvalidInput(f"the key {key!r} must not contain a NUL or a lone surrogate")
    return key


def checked_version(version: int | None) -> None:
    """Raise `InvalidInput` for an expected version that no entry can have."""
    if_given(checked_whole, version, "expected_version")


def checked_limit(limit: object) -> None:
    """Raise `InvalidInput` unless the limit is a positive number of entries."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit < 2**31:
        raise InvalidInput(f"limit is {limit!r}; it must be a whole number of 1 or more")


def _agreed(
    store: Store, node_id: str, given: Mapping[MemoryScope, AccessPolicy] | None, reconfigure: bool
) -> Mapping[MemoryScope, AccessPolicy]:
    """Return the policies of a tree, agreed with every process that has the store open."""
    wanted = None if given is None else _narrowed(given)
    agreed: Mapping[MemoryScope, AccessPolicy] = ACCESS_POLICIES

    def decide(stored: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal agreed
        kept = stored.get(_SETTING)
        theirs = _narrowed({scope: AccessPolicy(**policy) for scope, policy in (kept or {}).items()})
        if wanted is None or wanted == theirs:
            agreed = theirs
            return {}
        if kept is not None and not reconfigure:
            raise SettingsConflict(
                f"the tree of {node_id!r} has other policies in the store than those given. Leave them out to use "
                "the store's, or pass reconfigure=True to change them for every process."
            )
        agreed = wanted
        return {_SETTING: {str(scope): asdict(policy) for scope, policy in wanted.items()}}

    store.update_settings(node_id, decide)
    return agreed


def _narrowed(given: Mapping[Any, AccessPolicy]) -> Mapping[MemoryScope, AccessPolicy]:
    """Return all four policies: the given ones and defaults. None may allow more than its default."""
    known = {known_scope(scope): policy for scope, policy in checked_mapping(given, "policies").items()}
    for scope, policy in known.items():
        if not isinstance(policy, AccessPolicy) or not policy.within(ACCESS_POLICIES[scope]):
            raise InvalidInput(
                f"the policy for {scope} must be an AccessPolicy that allows no more than {ACCESS_POLICIES[scope]}"
            )
    return MappingProxyType({**ACCESS_POLICIES, **known})


# --- the awaitable face --------------------------------------------------------------------------------


class Scoped(Protocol):
    """An object with scopes: a `FractalMemory` or a `MemoryManager`."""

    @property
    def scopes(self) -> Scopes: ...


def awaited(
    of: Callable[[S], T], verb: Callable[Concatenate[T, P], R]
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Turn a verb into an awaitable method of another class that runs in a thread, not on the event loop.

    `of` returns the object that the verb is called on.
    """

    @functools.wraps(verb)
    async def awaitable(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(verb, of(self), *args, **kwargs)

    return awaitable


def _scopes_of(memory: Scoped) -> Scopes:
    return memory.scopes


class ScopedMemory:
    """The verbs of `Scopes` as awaitable methods."""

    scopes: Scopes
    """The scopes of this node, for use without an event loop."""

    write = awaited(_scopes_of, Scopes.write)
    read = awaited(_scopes_of, Scopes.read)
    list_by_scope = awaited(_scopes_of, Scopes.entries)
    delete = awaited(_scopes_of, Scopes.delete)


class TieredMemory(Protocol):
    """The attributes that a `FractalMemory` needs of its base memory, such as a `LoomMemory`."""

    @property
    def node_id(self) -> str: ...

    @property
    def store(self) -> Store: ...


class FractalMemory(ScopedMemory, Closing):
    """A node's place in a tree and the values it shares there, without tiers.

        memory = FractalMemory("worker", parent_memory=lead)
        await memory.write("plan", ["read", "write"], MemoryScope.SHARED)

    The store is the given one, else that of `base_memory`, else that of the parent, else one in this process. A path
    is opened here and closed by `close`.
    """

    _elsewhere = "make one over the same store there: FractalMemory(node_id, store=path)"

    def __init__(
        self,
        node_id: str | None = None,
        parent_memory: Scoped | None = None,
        base_memory: TieredMemory | None = None,
        *,
        store: Store | str | PathLike[str] | None = None,
        policies: Mapping[MemoryScope, AccessPolicy] | None = None,
        reconfigure: bool = False,
    ) -> None:
        if base_memory is not None:
            checked_object(base_memory, "base_memory", "node_id", "store")
            node_id = base_memory.node_id if node_id is None else node_id
        node_id = checked_key(checked_text(node_id, "node_id"))
        parent = None if parent_memory is None else getattr(parent_memory, "scopes", None)
        if parent_memory is not None and not isinstance(parent, Scopes):
            raise InvalidInput(f"parent must be a FractalMemory or MemoryManager, not {type(parent_memory).__name__}")
        if store is None and base_memory is not None:
            store = base_memory.store
        if store is None and parent is not None:
            store = parent.store
        self._opened: Store | None = None
        if store is None or isinstance(store, str | PathLike):
            from loom.storage import open_store

            store = self._opened = open_store(store)
        checked_object(store, "store", "transaction", "update_settings")
        self.base_memory = base_memory
        self.parent_memory = parent_memory
        try:
            self.scopes = Scopes(node_id, store, parent, policies=policies, reconfigure=reconfigure)
        except BaseException:
            self.close()
            raise

    @property
    def node_id(self) -> str:
        """The name of the node."""
        return self.scopes.node_id

    def close(self) -> None:
        """Close the store if this object opened it. Safe to call twice."""
        if self._opened is not None:
            self._opened.close()


async def in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run blocking work in a thread, off the event loop."""
    import asyncio

    return await asyncio.to_thread(work, *args, **kwargs)
