"""The part of a prompt between its rules and its question: parts kept from the previous prompt, and new parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from loom.context.fitting import (
    LEFT_OUT_TURNS,
    NO_ROOM,
    NO_ROOM_FOR_TURN,
    Exchange,
    Selection,
    TokenCosts,
    exchange_messages,
    exchanges_of,
    shortened,
    spoken_tokens,
)
from loom.context.items import Candidate, ContextItem, Message, Place
from loom.context.layout import Block, BlockKind
from loom.context.rendering import CUT_OFF, OPENING, in_reading_order, memory_block
from loom.storage.contract import Record

__all__ = ["ConversationPart", "CutMark", "Part", "Prompt", "QuotationPart", "conversation_parts", "part_of"]

# The size of a shortened exchange in an older layout, which does not record it.
_SHORT_TOKENS = 192


class QuotationPart:
    """Quotations in one message. Lasting ones quote whole records."""

    def __init__(self, quotes: Sequence[Candidate], costs: TokenCosts, lasting: bool = True) -> None:
        self.candidates = in_reading_order(quotes)
        self.lasting = lasting
        self._costs = costs
        self._render()

    def _render(self) -> None:
        self.messages: list[Message] = (
            [{"role": "user", "content": memory_block(self.candidates, self._costs.text)}] if self.candidates else []
        )
        self.tokens = self._costs.messages(self.messages)

    def remove(self, candidate: Candidate) -> None:
        self.candidates.remove(candidate)
        self._render()

    @property
    def whole_ids(self) -> set[str]:
        return {one.id for one in self.candidates if not one.is_abridged}

    def block(self) -> Block | None:
        numbers = tuple(one.seq for one in self.candidates if one.seq)
        return Block(BlockKind.QUOTES, numbers) if self.lasting and numbers else None


class CutMark:
    """The mark for missing earlier turns of the conversation."""

    lasting = True

    def __init__(self, costs: TokenCosts, budget: int) -> None:
        self.messages: list[Message] = [{"role": "user", "content": CUT_OFF}]
        self._budget = budget
        self.tokens = costs.cut_off
        self.candidates: list[Candidate] = []
        self.whole_ids: set[str] = set()

    def block(self) -> Block | None:
        return Block(BlockKind.CUT, (), self._budget)


class ConversationPart:
    """A run of the conversation, whole or shortened."""

    lasting = True

    def __init__(self, exchanges: Sequence[Exchange], costs: TokenCosts) -> None:
        self.exchanges = list(exchanges)
        self._costs = costs
        self._render()

    def _render(self) -> None:
        self.messages = exchange_messages(self.exchanges)
        self.tokens = spoken_tokens(self.exchanges, self._costs)

    @property
    def candidates(self) -> list[Candidate]:
        return [turn for exchange in self.exchanges for turn in exchange.turns]

    @property
    def whole_ids(self) -> set[str]:
        return {id for exchange in self.exchanges for id in exchange.whole_ids}

    def remove_first(self) -> Exchange:
        first = self.exchanges.pop(0)
        self._render()
        return first

    def block(self) -> Block | None:
        """The turns. If the last ones wait for the result of a tool, all of them are left to the next prompt."""
        turns = self.candidates
        waiting = next((at for at, turn in enumerate(turns) if _waits(turn, turns[at + 1 :])), len(turns))
        numbers = tuple(turn.seq for turn in turns[:waiting] if turn.seq)
        if not numbers:
            return None
        if self.exchanges[0].shortened:
            # A part of the exchange would be rendered differently.
            return Block(BlockKind.SHORT_TURNS, numbers, self.exchanges[0].most) if waiting == len(turns) else None
        return Block(BlockKind.TURNS, numbers)


Part = QuotationPart | CutMark | ConversationPart
"""A piece of a prompt. `lasting` parts are also in the session's next prompt. `whole_ids` are the ids of the memories
that it has in full, and `block` is its form in a layout."""


def _waits(turn: Candidate, later: Sequence[Candidate]) -> bool:
    """Whether a turn makes calls and has been followed only by the results of some of them."""
    calls = turn.message is not None and bool(turn.message.get("tool_calls"))
    return calls and all(one.role == "tool" for one in later) and len(later) < len((turn.message or {})["tool_calls"])


def conversation_parts(exchanges: Sequence[Exchange], costs: TokenCosts) -> list[Part]:
    """The conversation as parts. Each shortened exchange is a separate part."""
    return [
        ConversationPart(list(run), costs)
        for _, run in groupby(exchanges, key=lambda one: id(one) if one.shortened else 0)
    ]


def part_of(block: Block, records: Mapping[int, Record], costs: TokenCosts) -> Part:
    """Make a part from a block of an earlier layout. The same records give the same messages."""
    how = {"source": "session", "reason": "in the previous prompt"}
    if block.kind is BlockKind.QUOTES:
        return QuotationPart([Candidate.of_record(records[number], **how) for number in block.records], costs)
    if block.kind is BlockKind.CUT:
        return CutMark(costs, block.tokens)
    turns = [Candidate.of_record(records[number], place=Place.TURN, tier="l1", **how) for number in block.records]
    found = exchanges_of(turns, costs)
    if block.kind is BlockKind.SHORT_TURNS:
        found = [shortened(exchange, costs, block.tokens or _SHORT_TOKENS) or exchange for exchange in found]
    return ConversationPart(found, costs)


@dataclass(slots=True)
class Prompt:
    """The parts of a prompt in order, and how the new ones were chosen."""

    kept: list[Part]
    new: list[Part]
    selection: Selection
    notes: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in (*self.kept, *self.new))

    @property
    def opening(self) -> list[Message]:
        """The message that precedes a conversation whose first turn is an answer: providers refuse such a
        beginning."""
        first = next((part.messages[0] for part in (*self.kept, *self.new) if part.messages), None)
        if first is None or first["role"] == "user":
            return []
        is_cut = any(one.reason in LEFT_OUT_TURNS for one in self.selection.dropped)
        return [{"role": "user", "content": CUT_OFF if is_cut else OPENING}]

    def layout(self) -> list[Block]:
        """The new parts that will be in the next prompt."""
        return [block for part in self.new if part.lasting and (block := part.block()) is not None]

    def drop_one(self) -> bool:
        """Drop the last quotation, or else the oldest exchange. Returns False if nothing is left."""
        if self.selection.quotes:
            last = self.selection.quotes.pop()
            part = next(one for one in self.new if isinstance(one, QuotationPart) and last in one.candidates)
            part.remove(last)
            out, reason = [last], NO_ROOM
        else:
            talk = next((one for one in self.new if isinstance(one, ConversationPart) and one.exchanges), None)
            if talk is None:
                return False
            out, reason = list(talk.remove_first().turns), NO_ROOM_FOR_TURN
        self.new = [part for part in self.new if part.messages]
        self.selection.dropped += [one.dropped(reason) for one in out]
        return True

    def items(self) -> list[ContextItem]:
        """The items of the prompt in their order, each with its part of the tokens."""
        found: list[ContextItem] = []
        for part in (*self.kept, *self.new):
            own, whole = part.candidates, part.whole_ids
            found += [
                ContextItem(
                    one.id,
                    one.source,
                    one.tier,
                    one.score,
                    self.selection.tokens.get((one.id, one.place), part.tokens // len(own)),
                    one.reason,
                    one.place,
                    one.created_at,
                    one.seq,
                    one.text,
                    one.id not in whole,
                )
                for one in own
            ]
        return found
