"""The stored layout of a session's last prompt, so that the next prompt can begin with the same tokens.

A layout has sequence numbers of records in their order and no text, so it never contains forgotten text. It is stored
as a base and the parts appended since, each a small value under its own key, so a prompt costs one small write. Keys
hold a salted digest of the session, not its name. Earlier versions are emptied, and the layout of a session is
removed when one of its records is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from loom.errors import StoreError, VersionConflictError
from loom.storage.contract import LAYOUTS, Record, Store
from loom.storage.identity import session_key

__all__ = ["SCOPE", "Block", "BlockKind", "Layout", "LayoutStore"]

SCOPE = LAYOUTS
"""The scope of the entries of a store that hold layouts."""

# A layout with more parts than this is rewritten as one, which bounds the number of look-ups.
_MOST_PARTS = 48
# The longest wait for other writers. Without its layout a prompt is still correct; the next one has no prefix.
_WAIT_S = 0.25


class BlockKind(StrEnum):
    """The kind of a block of a layout."""

    QUOTES = "q"
    TURNS = "t"
    SHORT_TURNS = "s"
    CUT = "c"
    """The mark for omitted earlier turns, without records."""


@dataclass(frozen=True, slots=True)
class Block:
    """Records that belong together: quotations in one message, or consecutive turns.

    `tokens` is the size to which turns were shortened; for a mark, it is the budget under which turns were left out.
    """

    kind: BlockKind
    records: tuple[int, ...]
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """The blocks of a prompt in order. `generation` grows with every rewrite.

    `budget` is that of the prompt, 0 if it is not known. `parts` is the number of values that store the layout, and
    `next_version` is the version of the next part's key.
    """

    blocks: tuple[Block, ...] = ()
    generation: int = 0
    budget: int = 0
    parts: int = 0
    next_version: int = 0
    base_version: int = 0

    @property
    def records(self) -> list[int]:
        return [record for block in self.blocks for record in block.records]

    @property
    def quotes(self) -> list[Block]:
        """The quotations, in their order."""
        return [block for block in self.blocks if block.kind is BlockKind.QUOTES]

    @property
    def is_cut(self) -> bool:
        """Whether a part of the conversation is left out or shortened."""
        return any(block.kind in (BlockKind.CUT, BlockKind.SHORT_TURNS) for block in self.blocks)

    @property
    def cut_under(self) -> int:
        """The budget under which turns were left out; 0 if none were."""
        return max((block.tokens for block in self.blocks if block.kind is BlockKind.CUT), default=0)

    @property
    def leading(self) -> tuple[Block, ...]:
        """The quotations at the beginning."""
        first = next((at for at, block in enumerate(self.blocks) if block.kind is not BlockKind.QUOTES), None)
        return self.blocks[:first]

    @property
    def last_turn(self) -> int:
        """The sequence number of the newest turn; 0 without turns."""
        turns = (block for block in self.blocks if block.kind is not BlockKind.QUOTES)
        return max((record for block in turns for record in block.records), default=0)


class LayoutStore:
    """The layouts of one node's sessions, in a store."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._node = node

    def load(self, session_id: str) -> Layout:
        """The layout of a session's last prompt; an empty one if there is none."""
        prefix = self._key(session_id, "")
        parts = {
            entry.key.removeprefix(prefix): entry
            for entry in self._store.entries(prefix, scope=SCOPE, owner=self._node, limit=2 * _MOST_PARTS)
        }
        base = parts.get("0")
        if base is None:
            return Layout()
        generation = int(base.content["generation"])
        blocks, budget = _blocks(base.content), base.content.get("budget", 0)
        part = 1
        while (entry := parts.get(str(part))) is not None and entry.content["generation"] == generation:
            blocks += _blocks(entry.content)
            budget = entry.content.get("budget", 0)
            part += 1
        return Layout(tuple(blocks), generation, budget, part, 0 if entry is None else entry.version, base.version)

    def append(self, session_id: str, layout: Layout, blocks: Sequence[Block], budget: int = 0) -> bool:
        """Store the appended part of a layout. Returns False if another process was first; its layout is then
        valid."""
        if not layout.parts or layout.parts > _MOST_PARTS:
            return self.rewrite(session_id, layout, (*layout.blocks, *blocks), budget)
        if not blocks and budget == layout.budget:
            return True
        return self._put(session_id, layout.parts, layout.generation, blocks, budget, layout.next_version)

    def rewrite(self, session_id: str, layout: Layout, blocks: Sequence[Block], budget: int = 0) -> bool:
        """Replace a layout. Returns False if another process was first."""
        return self._put(session_id, 0, layout.generation + 1, blocks, budget, layout.base_version)

    def records(self, numbers: Iterable[int]) -> dict[int, Record]:
        """The records of a layout, including superseded ones; forgotten ones are missing."""
        return self._store.records(numbers)

    def newest(self, id: str) -> Record | None:
        """The current version of a memory."""
        return self._store.get(id)

    def _key(self, session_id: str, part: object) -> str:
        return f"{session_key(self._store.store_id, session_id)}:{part}"

    def _put(
        self, session_id: str, part: int, generation: int, blocks: Sequence[Block], budget: int, version: int
    ) -> bool:
        if self._store.read_only:
            return False
        kept = [[block.kind, list(block.records), *([block.tokens] if block.tokens else [])] for block in blocks]
        content = {"generation": generation, "budget": budget, "blocks": kept}
        try:
            with self._store.transaction(_WAIT_S) as transaction:
                transaction.put_entry(
                    self._key(session_id, part),
                    content,
                    writer=self._node,
                    scope=SCOPE,
                    owner=self._node,
                    expected_version=version,
                    history=False,
                )
        except (VersionConflictError, StoreError):  # the prompt is correct either way; only the next one may differ
            return False
        return True


def _blocks(content: Any) -> list[Block]:
    return [
        Block(BlockKind(kind), tuple(records), tokens[0] if tokens else 0)
        for kind, records, *tokens in content["blocks"]
    ]
