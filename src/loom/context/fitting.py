"""Fitting: de-duplicate the candidates, put them into one order, and take them in this order until the room is used.

These are pure functions; nothing here reads or writes a store. The order does not depend on the budget, and a prompt
takes the first part of it. With more room, every item that was complete therefore stays complete. A long memory has
two places in the order: its best passages at its rank, and the complete memory later. Otherwise only the next
candidate is shortened, to the remaining room. Turns of the conversation are taken from its end, as whole exchanges
and without gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice, pairwise

from loom.context.excerpts import EXCERPT_TOKENS, excerpt
from loom.context.items import Candidate, DroppedItem, Message, Place
from loom.context.message_shortening import shorter_messages, shorter_text
from loom.context.rendering import (
    CUT_OFF,
    WISHES_RULE,
    day_heading,
    gap_note,
    memory_block,
    paired_at,
    quoted_line,
    turn_messages,
)
from loom.recall.passage_scores import PassageScorer
from loom.text.duplicates import normal_form, normal_forms
from loom.text.passages import units
from loom.text.tokens import TokenCounter
from loom.types import MemoryType

__all__ = [
    "BEHIND",
    "LEFT_OUT_BEFORE",
    "LEFT_OUT_TURNS",
    "NO_ROOM",
    "NO_ROOM_FOR_TURN",
    "OFFERED_ALREADY",
    "ROOM_KEPT",
    "SHOWN_ONCE",
    "Exchange",
    "Offer",
    "Selection",
    "TokenCosts",
    "dedupe",
    "exchange_messages",
    "exchanges_of",
    "fit",
    "fits_whole",
    "left_out_turns",
    "shortened",
    "spoken_of",
    "spoken_tokens",
]

NO_ROOM = "no room"
"""The reason of a quotation that is larger than the free room."""

NO_ROOM_FOR_TURN = "no room for this part of the conversation"
"""Why a turn of the conversation is left out."""

BEHIND = "ranks behind one that has no room"
"""The reason for an item that would fit: with more room, items that rank before it come first."""

ROOM_KEPT = "room is kept for the turns to come"
"""Why a turn is left out although it would fit: the session's next prompts begin with the same tokens."""

SHOWN_ONCE = "earlier in this conversation, quoted in this prompt only"
"""Why a turn that is left out of the conversation is quoted."""

LEFT_OUT_BEFORE = "left out of the session's earlier prompt"
"""Why a turn is left out of a prompt that continues a prompt without it."""

LEFT_OUT_TURNS = frozenset({NO_ROOM_FOR_TURN, ROOM_KEPT, LEFT_OUT_BEFORE})
"""The reasons why turns of the conversation are left out."""

OFFERED_ALREADY = "the same memory is already offered"
"""Why the second offer of a memory is left out."""

# Before the part of a reason that says how much of an item remains.
_SHORTENED = "; shortened: "
_IS_THE_QUESTION = "it is the question"
_PART_IS_FULL = "quotations have had their part of the room"
# Room smaller than this is not filled with a part of an item.
_LEAST_PART = 48
# A long quotation waits until others have taken this share of its size, plus this share for each candidate that ranks
# before it: at rank 1 it takes at most four fifths of a prompt, at rank 8 a third.
_LONG_TOKENS = 256
_WAITS = 0.25
# A long memory whose best passages are already quoted waits until others have taken this many times its size.
_WAITS_WHOLE = 4.0
_WAITS_RANK = 1.0
# Passages replace a memory if they take at most this share of it.
_WORTH_A_CUT = 0.75
# The tokens around the text of a quotation. Exact costs are counted only for items that are taken.
_FRAME_TOKENS = 6
# The weight of a source without a share.
_NO_SHARE = 1e-3
# The weight of quoted turns of the current conversation if not all of it fits: turns are preferred to quotations of
# them.
_OWN_TURNS = 0.05
# The first (newest) exchanges of a conversation that does not fit weigh several times as much as the others.
_FEW_EXCHANGES = 4
_FIRST_TURNS = 8
# The same for standing instructions: in a small prompt, they are the first lines of memory.
_FEW_WISHES = 3
_FIRST_WISHES = 16


@dataclass(frozen=True, slots=True)
class Offer:
    """The candidates of one source, best first, and the name of the source's share."""

    source: str
    share: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Turns that belong together: a user's turn, and everything up to the user's next turn.

    `sizes` are the tokens of the messages, and `owners` the positions of their turns. If the exchange is shortened to
    `most` tokens, `cut` has the ids of the shortened turns.
    """

    turns: tuple[Candidate, ...]
    messages: tuple[Message, ...]
    sizes: tuple[int, ...]
    owners: tuple[int, ...]
    most: int = 0
    cut: frozenset[str] = frozenset()

    @property
    def tokens(self) -> int:
        return sum(self.sizes)

    @property
    def shortened(self) -> bool:
        return self.most > 0

    @property
    def whole_ids(self) -> set[str]:
        """The ids of the complete turns."""
        return {turn.id for turn in self.turns} - self.cut

    def tokens_by_turn(self) -> dict[str, int]:
        found = dict.fromkeys((turn.id for turn in self.turns), 0)
        for owner, size in zip(self.owners, self.sizes, strict=True):
            found[self.turns[owner].id] += size
        return found


class TokenCosts:
    """Costs in one prompt, by a counter. Upper bounds if the counter estimates."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        # By identity. Storing the candidate as well prevents the reuse of its identity.
        self._texts: dict[int, tuple[Candidate, str]] = {}
        self._lines: dict[int, int] = {}
        self._forms: dict[str, str] = {}
        self._headings: dict[str, int] = {}
        self.frame = self.messages([{"role": "user", "content": memory_block([])}])
        self.wishes = self.messages([{"role": "user", "content": f"<wishes>\n{WISHES_RULE}\n</wishes>"}])
        self.cut_off = self.messages([{"role": "user", "content": CUT_OFF}])

    def messages(self, messages: Iterable[Message]) -> int:
        """The tokens of messages, without the tokens that start the reply."""
        return sum(self.each(messages))

    def each(self, messages: Iterable[Message]) -> list[int]:
        """The tokens of each message."""
        return self.counter.safe_count_each(messages)

    def prepare(self, candidates: Iterable[Candidate], room: int) -> None:
        """Count the lines of the first candidates that may fit into this many tokens, and normalise their texts, all
        in one batch."""
        missing: list[Candidate] = []
        for one in candidates:
            if room <= 0:
                break
            if id(one) not in self._lines and _size(one) <= room:
                missing.append(one)
                room -= _size(one)
        lines = [f"{self.text(one)}\n" for one in missing]
        counts = self.counter.count_batch(lines) if self.counter.exact else map(self.counter.safe_count, lines)
        self._lines |= {id(one): tokens for one, tokens in zip(missing, counts, strict=True)}
        texts = [one.text for one in missing if one.text not in self._forms]
        self._forms |= zip(texts, normal_forms(texts), strict=True)

    def line(self, candidate: Candidate) -> int:
        """The tokens of a quotation with its line break, which often forms one token with the character before it."""
        if id(candidate) not in self._lines:
            self._lines[id(candidate)] = self.counter.safe_count(f"{self.text(candidate)}\n")
        return self._lines[id(candidate)]

    def words(self, candidate: Candidate) -> tuple[str, str]:
        """The words of a quotation and its speaker. Two quotations with the same words repeat each other."""
        if candidate.text not in self._forms:
            (self._forms[candidate.text],) = normal_forms([candidate.text])
        return self._forms[candidate.text], candidate.label or candidate.name or candidate.role or ""

    def text(self, candidate: Candidate) -> str:
        """The line of a quotation."""
        if id(candidate) not in self._texts:
            self._texts[id(candidate)] = (candidate, quoted_line(candidate))
        return self._texts[id(candidate)][1]

    def heading(self, moment: datetime, year: int | None) -> int:
        """The tokens of the heading of a day, with or without the year."""
        text = day_heading(moment, year)
        if text not in self._headings:
            self._headings[text] = self.counter.safe_count(f"{text}\n")
        return self._headings[text]


# --- de-duplicating --------------------------------------------------------------------------------------


def dedupe(offers: Sequence[Offer], question: str | None = None) -> tuple[list[Offer], list[DroppedItem]]:
    """Return each memory once, by its id, over all sources.

    The first offer counts. A turn of the conversation and a quotation of the same record both stay; `Selection`
    chooses between them once it is known whether the turn fits. The question is left out if it is the newest turn.
    `Selection` also handles quotations with the same statement: comparing texts takes time, and most quotations do
    not fit.
    """
    asking = None if question is None else _asking(offers, normal_form(question))
    seen: set[tuple[str, bool, bool]] = set()
    kept: list[Offer] = []
    dropped: list[DroppedItem] = []
    for offer in offers:
        own: list[Candidate] = []
        for one in offer.candidates:
            whole = not one.is_abridged
            is_turn = one.place is Place.TURN
            if (one.id, whole, is_turn) in seen:
                dropped.append(one.dropped(OFFERED_ALREADY))
            elif is_turn and one.id == asking:
                dropped.append(one.dropped(_IS_THE_QUESTION))
            else:
                seen.add((one.id, whole, is_turn))
                own.append(one)
        kept.append(replace(offer, candidates=tuple(own)))
    return kept, dropped


def _asking(offers: Iterable[Offer], asked: str) -> str | None:
    """The newest turn of the conversation, if it is the question."""
    newest = max(
        (one for offer in offers for one in offer.candidates if one.place is Place.TURN),
        key=lambda one: (one.seq, one.created_at.timestamp() if one.created_at else 0.0),
        default=None,
    )
    if newest is None or newest.role not in (None, "user") or normal_form(newest.text) != asked:
        return None
    return newest.id


# --- the conversation ------------------------------------------------------------------------------------


def exchanges_of(turns: Iterable[Candidate], costs: TokenCosts) -> list[Exchange]:
    """The conversation in order, divided at the user's turns."""
    ordered = sorted(turns, key=lambda one: (one.seq, one.created_at.timestamp() if one.created_at else 0.0, one.id))
    groups: list[list[tuple[Candidate, list[Message]]]] = []
    for one in ordered:
        messages = turn_messages(one)
        if not groups or messages[0]["role"] == "user":
            groups.append([])
        groups[-1].append((one, messages))
    shown = [paired_at([message for _, messages in group for message in messages]) for group in groups]
    sizes = iter(costs.each([message for pairs in shown for _, message in pairs]))
    found: list[Exchange] = []
    for group, pairs in zip(groups, shown, strict=True):
        owners = [at for at, (_, messages) in enumerate(group) for _ in messages]
        found.append(
            Exchange(
                tuple(one for one, _ in group),
                tuple(message for _, message in pairs),
                tuple(islice(sizes, len(pairs))),
                tuple(owners[at] for at, _ in pairs),
            )
        )
    return found


def shortened(exchange: Exchange, costs: TokenCosts, most: int) -> Exchange | None:
    """An exchange shortened to at most `most` tokens, with marks in the gaps; None if that is too little.

    The reason of each turn says how much of it remains. A call and its results both stay structured, or both are left
    out.
    """
    if exchange.shortened:
        turns = [replace(one, reason=one.reason.split(_SHORTENED)[0]) for one in exchange.turns]
        (whole,) = exchanges_of(turns, costs)
        return shortened(whole, costs, min(most, exchange.most))
    found = shorter_messages(exchange.messages, most, costs.counter.safe_count, costs.messages)
    if found is None:
        return None
    # A note belongs to the turn of the preceding message, otherwise to the first turn.
    owners: list[int] = []
    for origin in found.origins:
        owners.append(exchange.owners[origin] if origin >= 0 else owners[-1] if owners else 0)
    cut = {exchange.owners[at] for at in found.cut}
    part = Exchange(exchange.turns, found.messages, found.sizes, tuple(owners), most)
    before, now = exchange.tokens_by_turn(), part.tokens_by_turn()
    cut_turns = tuple(
        replace(turn, reason=f"{turn.reason}{_SHORTENED}{now[turn.id]:,} of {before[turn.id]:,} tokens")
        if at in cut
        else turn
        for at, turn in enumerate(exchange.turns)
    )
    return replace(part, turns=cut_turns, cut=frozenset(cut_turns[at].id for at in cut))


def _part(candidate: Candidate, text: str, told: str) -> Candidate:
    """A quotation of a part of a record."""
    return replace(candidate, text=text, stands_for=(candidate.id,), reason=f"{candidate.reason}{_SHORTENED}{told}")


def exchange_messages(exchanges: Sequence[Exchange]) -> list[Message]:
    """Exchanges as messages, with a line for each long pause between turns."""
    messages: list[Message] = []
    before: datetime | None = None
    for exchange in exchanges:
        note = gap_note(before, exchange.turns[0].created_at)
        if note is not None:
            messages.append({"role": "user", "content": note})
        messages += exchange.messages
        before = exchange.turns[-1].created_at or before
    return messages


def spoken_of(offers: Iterable[Offer], costs: TokenCosts) -> list[Exchange]:
    """The conversation that sources offer, the oldest exchange first."""
    return exchanges_of((one for offer in offers for one in offer.candidates if one.place is Place.TURN), costs)


def fits_whole(exchanges: Sequence[Exchange], room: int, costs: TokenCosts) -> bool:
    """Whether a conversation takes at most this many tokens."""
    mark = costs.cut_off if exchanges and exchanges[0].messages[0]["role"] != "user" else 0
    return not exchanges or spoken_tokens(exchanges, costs) + mark <= room


def spoken_tokens(exchanges: Sequence[Exchange], costs: TokenCosts) -> int:
    """The tokens of exchanges as messages, including all framing."""
    gaps = (gap_note(one.turns[-1].created_at, after.turns[0].created_at) for one, after in pairwise(exchanges))
    notes: list[Message] = [{"role": "user", "content": note} for note in gaps if note is not None]
    return sum(exchange.tokens for exchange in exchanges) + (costs.messages(notes) if notes else 0)


# --- fitting ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Selection:
    """The candidates taken so far, their cost, and the candidates left out.

    `present` has the ids of all memories in the prompt. A repetition by the same speaker is left out; so are a
    summary of records that are present in full, and a fact that was derived from one.
    """

    costs: TokenCosts
    room: int
    question: str = ""
    present: set[str] = field(default_factory=set)
    quotes: list[Candidate] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)  # while fitting, newest first
    is_cut: bool = False  # earlier turns of the conversation are left out
    tokens: dict[tuple[str, Place], int] = field(default_factory=dict)
    dropped: list[DroppedItem] = field(default_factory=list)
    lasting: int = 0  # the number of quotes that stay in the session's next prompt
    _days: set[tuple[int, int, int]] = field(default_factory=set)  # days that have a heading, with their years
    _years: set[int] = field(default_factory=set)
    _is_new_block: bool = True
    _has_wishes: bool = False
    _said: dict[tuple[str, str], str] = field(default_factory=dict)
    _scorer: PassageScorer | None = None
    _whole: dict[str, Candidate] = field(default_factory=dict)  # the whole memories of the excerpts
    _parts: dict[str, Candidate] = field(
        default_factory=dict
    )  # excerpts among the quotes; the whole memory replaces them
    _redundant: set[int] = field(default_factory=set)  # candidates that are left out regardless of room

    def add_quote(self, candidate: Candidate, most: int) -> int:
        """Take a quotation if it costs at most `most` tokens and is not redundant; return its cost, or 0.

        If a part of the memory is already quoted, the quotation replaces that part.
        """
        part = self._parts.get(candidate.id) if candidate.place is Place.QUOTE else None
        part_tokens = 0 if part is None else self.costs.line(part)
        # The stored count may already show that it does not fit. Rendering and counting it takes time.
        least = 0 if candidate.is_abridged else min(candidate.tokens, len(candidate.text))
        if self.is_redundant(candidate) or least > min(most, self.room) + part_tokens:
            return 0
        cost = self.costs.line(candidate) - part_tokens
        if self._is_new_block:
            cost += self.costs.frame
        day = None
        if candidate.place is Place.WISH and not self._has_wishes:
            cost += self.costs.wishes
        if candidate.created_at is not None and not candidate.is_passing:
            moment = candidate.created_at
            day = (moment.year, moment.month, moment.day)
            if day not in self._days:
                cost += self.costs.heading(moment, moment.year if moment.year in self._years else None)
        if cost > min(most, self.room):
            return 0
        if reason := self._why_not(candidate, is_taken=True):
            self._leave_out(candidate, reason)
            return 0
        if part is not None:
            self.quotes.remove(part)
            del self._parts[candidate.id]
        if day is not None:
            self._days.add(day)
            self._years.add(day[0])
        self._is_new_block = False
        self._has_wishes |= candidate.place is Place.WISH
        self.quotes.append(candidate)
        if not candidate.is_abridged:
            self.present.add(candidate.id)
        elif candidate.place is Place.QUOTE:
            self._parts[candidate.id] = candidate
        place = candidate.id, candidate.place
        self.tokens[place] = cost if part is None else self.tokens[place] + cost
        self.room -= cost
        return cost

    def quote_part(self, candidate: Candidate, most: int) -> int:
        """Take the part of a quotation that fits, with a mark at the cut; return its cost, or 0.

        A memory that a fact or a summary already represents is not taken.
        """
        most = min(most, self.room)
        part = self._parts.get(candidate.id)
        stand_in = any(candidate.id in one.stands_for and one is not part for one in self.quotes)
        whole = self._whole.get(candidate.id, candidate)
        if whole.is_abridged or stand_in:
            return 0
        known = 0 if part is None else self.costs.line(part)
        room = most + known - (self.costs.line(replace(whole, text="")) + 2 * self.costs.frame)
        # Without its frame it may fit.
        room = min(room, (whole.tokens or self.costs.counter.safe_count(whole.text)) - 1)
        while room >= _LEAST_PART:
            shorter = self._shorter(whole, room)
            if shorter is None or (part is not None and len(shorter.text) <= len(part.text)):
                return 0
            cost = self.add_quote(shorter, most)
            if cost or self.is_redundant(shorter):
                return cost
            room -= _LEAST_PART // 2
        return 0

    def _shorter(self, candidate: Candidate, most: int) -> Candidate | None:
        """A quotation shortened to at most this many tokens: the passages that the question needs, otherwise the
        beginning and the end."""
        count = self.costs.counter.safe_count
        before = candidate.tokens or count(candidate.text)
        found = excerpt(candidate.text, before, most, self._scorer_of(candidate), count)
        if found is not None:
            return _part(candidate, found.text, f"{count(found.text):,} of {before:,} tokens, {found}")
        text = shorter_text(candidate.text, most, count, before)
        if text == candidate.text or not text:
            return None
        return _part(candidate, text, f"{count(text):,} of {before:,} tokens")

    def brief(self, candidate: Candidate) -> Candidate | None:
        """The best passage of a long quotation as its replacement; None if that saves little."""
        if candidate.is_abridged or candidate.tokens <= _LONG_TOKENS or candidate.place is not Place.QUOTE:
            return None
        count = self.costs.counter.safe_count
        found = excerpt(
            candidate.text, candidate.tokens, EXCERPT_TOKENS, self._scorer_of(candidate), count, is_brief=True
        )
        if found is None:
            return None
        tokens = count(found.text)
        if tokens > _WORTH_A_CUT * candidate.tokens:
            return None
        self._whole[candidate.id] = candidate
        return _part(candidate, found.text, f"{tokens:,} of {candidate.tokens:,} tokens, {found}")

    def _scorer_of(self, candidate: Candidate) -> PassageScorer:
        scorer = candidate.scorer or self._scorer
        if scorer is None:
            scorer = self._scorer = PassageScorer.of_question(self.question)
        return scorer

    def speak_part(self, exchange: Exchange) -> int:
        """Take the part of the exchange that fits before those already taken; return its cost, or 0."""
        part = shortened(exchange, self.costs, self.room - self._gap(exchange))
        return 0 if part is None else self.add_exchange(part, self.room)

    def add_quoted(self, quotes: Iterable[Candidate]) -> None:
        """Add other quotations of the prompt, so that a candidate that repeats one of them is redundant."""
        for one in quotes:
            self._said.setdefault(self.costs.words(one), one.id)

    def end_lasting(self) -> None:
        """Mark everything taken so far as lasting in the session's prompts. Later quotations go into another
        message."""
        self.lasting = len(self.quotes)
        self._is_new_block = True
        self._days.clear()
        self._years.clear()

    def beside(self, quotes: Iterable[Candidate], present: Collection[str], room: int) -> Selection:
        """A selection that continues a block of quotations, in a prompt that has these memories in full."""
        found = Selection(self.costs, room, self.question, set(present), list(quotes))
        for one in found.quotes:
            found._is_new_block = False
            found._has_wishes |= one.place is Place.WISH
            found.tokens[one.id, one.place] = self.tokens[one.id, one.place]
            if not one.is_abridged:
                found._said.setdefault(self.costs.words(one), one.id)
            if one.is_abridged and one.place is Place.QUOTE:
                found._parts[one.id] = one
            if one.created_at is not None and not one.is_passing:
                found._days.add((one.created_at.year, one.created_at.month, one.created_at.day))
                found._years.add(one.created_at.year)
        return found

    def _why_not(self, candidate: Candidate, *, is_taken: bool = False) -> str:
        """The reason why a quotation is redundant, or an empty text. If it then `is_taken`, others repeat it."""
        if candidate.id in self.present and not candidate.is_abridged:
            return OFFERED_ALREADY
        part = self._parts.get(candidate.id) if candidate.place is Place.QUOTE else None
        if candidate.is_abridged and part is not None and len(part.text) >= len(candidate.text):
            return OFFERED_ALREADY
        if redundancy := _redundancy(candidate, self.present):
            return redundancy
        twin = next((one for one in candidate.copies if one in self.present), None)
        if twin is None:
            words = self.costs.words(candidate)
            if words[0] == self.question:
                return _IS_THE_QUESTION
            said = self._said.setdefault if is_taken else self._said.get
            twin = said(words, candidate.id)
        return "" if twin == candidate.id else f"says the same as {twin}"

    def _leave_out(self, candidate: Candidate, reason: str) -> None:
        self._redundant.add(id(candidate))
        self.dropped.append(candidate.dropped(reason))

    def is_redundant(self, candidate: Candidate) -> bool:
        """Whether the candidate was left out for a reason other than its size."""
        return id(candidate) in self._redundant

    def would_repeat(self, candidate: Candidate) -> bool:
        """Leave a candidate out if it is redundant, regardless of room. Returns whether it is redundant."""
        if reason := self._why_not(candidate):
            self._leave_out(candidate, reason)
        return bool(reason)

    def leave_out(self, candidates: Iterable[Candidate], reason: str) -> None:
        """Record the candidates that were not taken. The reason of an item larger than the free room is its size,
        that of the others is `reason`."""
        for one in candidates:
            if self.is_redundant(one) or (one.id in self._parts and not one.is_abridged):
                continue  # a part of it is in the prompt, and its reason says how much
            is_there = one.id in self.present and not one.is_abridged
            known = OFFERED_ALREADY if is_there else _redundancy(one, self.present)
            self._leave_out(one, known or (NO_ROOM if _size(one) > self.room else reason))

    def _gap(self, exchange: Exchange) -> int:
        """The cost of the line for the pause after an exchange."""
        later = self.exchanges[-1].turns[0].created_at if self.exchanges else None
        note = gap_note(exchange.turns[-1].created_at, later)
        return 0 if note is None else self.costs.messages([{"role": "user", "content": note}])

    def drop_redundant(self) -> None:
        """Remove a summary if the records that it replaces were taken in full after it, and a fact if its source
        was."""
        for one, reason in [(one, _redundancy(one, self.present)) for one in self.quotes]:
            if reason:
                self.quotes.remove(one)
                self.present.discard(one.id)
                self.room += self.costs.line(one)
                self._leave_out(one, reason)

    def add_exchange(self, exchange: Exchange, most: int) -> int:
        """Take the exchange before those already taken, if it costs at most `most` tokens; return its cost, or 0."""
        cost = exchange.tokens + self._gap(exchange)
        if cost > min(most, self.room):
            return 0
        self.exchanges.append(exchange)
        for one in [one for one in self.quotes if one.id in exchange.whole_ids and not one.is_abridged]:
            self.quotes.remove(one)
            self.room += self.costs.line(one)
            self._leave_out(one, OFFERED_ALREADY)
        self.present |= exchange.whole_ids
        self.tokens |= {(id, Place.TURN): tokens for id, tokens in exchange.tokens_by_turn().items()}
        self.tokens[exchange.turns[-1].id, Place.TURN] += cost - exchange.tokens
        self.room -= cost
        return cost


def _redundancy(candidate: Candidate, present: Collection[str]) -> str:
    """Why a candidate is redundant: all records that it replaces are present, or one source of the fact is. An empty
    text if it is not redundant."""
    if candidate.place is Place.WISH:  # unlike its source, the wish says that the instruction is in force
        return ""
    found = [one in present for one in candidate.stands_for]
    if candidate.kind == MemoryType.FACT and not candidate.is_abridged:
        return "its source is in the prompt" if any(found) else ""
    return "the whole memory is in the prompt" if found and all(found) else ""


# --- the order -------------------------------------------------------------------------------------------


class _Quotations:
    """The candidates of the sources with one share, best first. Long ones wait until others have taken their part.

    A `brief` form of a long candidate, if there is one, comes at the rank of the candidate.
    """

    def __init__(
        self,
        candidates: Iterable[Candidate],
        weight: float,
        in_order: bool,
        brief: Callable[[Candidate], Candidate | None],
        first: int = 0,
    ) -> None:
        """The `first` candidates come earlier than by their weight."""
        self._next = deque(candidates)
        self._brief = brief
        self._weight = max(weight, _NO_SHARE)
        self._in_order = in_order
        self._first = first
        self._long: list[tuple[float, Candidate]] = []
        self._spent = 0
        self._rank = 0
        self.head = self._found()

    @property
    def due(self) -> float:
        """The position of the head in the order: the tokens that its source will have taken, divided by the
        weight."""
        weight = self._weight * (_FIRST_WISHES if self._rank <= self._first else 1)
        return (self._spent + (0 if self.head is None else _size(self.head))) / weight

    def taken(self) -> None:
        self._spent += 0 if self.head is None else _size(self.head)
        self.passed()

    def passed(self) -> None:
        """Leave the head out at no cost to its source."""
        self.head = self._found()

    def _found(self) -> Candidate | None:
        if self._long and self._spent >= self._long[0][0]:
            return self._long.pop(0)[1]
        while self._next:
            one = self._next.popleft()
            self._rank += 1
            needed = _WAITS * self._rank * _size(one)
            part = None if self._in_order else self._brief(one)
            if part is not None:
                needed = max(_WAITS_WHOLE, _WAITS_RANK * self._rank) * _size(one)
            elif self._in_order or _size(one) <= _LONG_TOKENS or self._spent >= needed:
                return one
            self._long.append((needed, one))
            self._long.sort(key=lambda waiting: waiting[0])
            if part is not None:
                return part
        return self._long.pop(0)[1] if self._long else None

    def rest(self) -> list[Candidate]:
        """The candidates that were not taken."""
        waiting = {one.id for _, one in self._long}
        head = [] if self.head is None or self.head.id in waiting else [self.head]
        return [*head, *(one for _, one in self._long), *self._next]


def _size(candidate: Candidate) -> int:
    """The approximate size of a quotation, by the stored count. Rendering and counting all of them takes too long."""
    return ((0 if candidate.is_abridged else candidate.tokens) or units(candidate.text) // 4) + _FRAME_TOKENS


class _Talk:
    """The exchanges, newest first. Taken exchanges are removed."""

    def __init__(self, exchanges: deque[Exchange], weight: float, first: int) -> None:
        """The `first` exchanges come earlier than the others."""
        self._exchanges = exchanges
        self._weight = max(weight, _NO_SHARE)
        self._first = first
        self._spent = 0

    @property
    def head(self) -> Exchange | None:
        return self._exchanges[0] if self._exchanges else None

    @property
    def due(self) -> float:
        weight = self._weight * (_FIRST_TURNS if self._first > 0 else 1)
        return (self._spent + self._exchanges[0].tokens) / weight

    def taken(self) -> None:
        self._spent += self._exchanges.popleft().tokens
        self._first -= 1


def fit(
    offers: Sequence[Offer],
    weights: Mapping[str, float],
    room: int,
    costs: TokenCosts,
    question: str = "",
    *,
    talk: Sequence[Exchange] | None = None,
    is_conversation: bool = False,
    is_whole: bool | None = None,
    quotes_room: int | None = None,
    growing: int = 0,
    to_the_end: bool = False,
    state: Selection | None = None,
) -> Selection:
    """Take the candidates that fit, in an order in which each source appears in proportion to its weight.

    The turns of a conversation come first if all of them fit (`is_whole`). Otherwise the newest exchange comes first,
    the others share the room like a source, and the next one is shortened to the remaining room. `talk` is the
    conversation, if it is already known. `quotes_room` is the largest part of the room that quotations may take.
    `growing` tokens stay free for later turns if the conversation does not fit. With `to_the_end`, smaller quotations
    that rank behind one without room fill the remaining room; a prompt with a larger budget need not have them. The
    quotations of a given `state` stay, in the same block.
    """
    state = state or Selection(costs, room, normal_form(question))
    spoken = spoken_of(offers, costs) if talk is None else talk
    is_whole = fits_whole(spoken, room, costs) if is_whole is None else is_whole
    silent = deque(reversed(spoken))
    own = {turn.id for exchange in spoken for turn in exchange.turns} if is_conversation and not is_whole else set()
    queues = _quotations(offers, weights, own, state.brief)
    most = room if quotes_room is None else min(room, quotes_room)
    speaking = _Talk(silent, weights.get("l1", 0.0), _FEW_EXCHANGES if is_conversation else 0)
    if is_conversation and is_whole:
        while silent and state.add_exchange(silent[0], state.room):
            speaking.taken()
    elif is_conversation:
        state.is_cut = True
        state.room = max(0, state.room - costs.cut_off)
        if state.add_exchange(silent[0], state.room):
            speaking.taken()
            most = min(most, max(0, state.room - growing))
        else:
            most, growing = min(most, _beside_a_part(silent[0], state.room, costs)), 0
    growing = min(growing, state.room) if state.is_cut else 0
    state.room -= growing
    stopped, most = _take(state, queues, speaking, most)
    if growing and stopped is speaking:  # quotations are taken even if an exchange is larger than the room
        _, most = _take(state, queues, None, most)
    most = _take_facts(state, queues, most)
    # Only the next candidate is shortened: with more room, the candidates before it would take the room of the rest.
    may_be_short = silent and (stopped is speaking or (is_conversation and not state.exchanges))
    if may_be_short and state.room >= _LEAST_PART and state.speak_part(silent[0]):
        speaking.taken()
    if isinstance(stopped, _Quotations) and stopped.head is not None and state.quote_part(stopped.head, most):
        stopped.passed()
    state.room += growing
    state.drop_redundant()
    if to_the_end:
        _take_all(state, queues)
        most = state.room
    if spoken:
        state.exchanges.reverse()
    state.is_cut = state.is_cut and bool(silent)
    for one in (one for queue in queues for one in queue.rest()):
        state.leave_out([one], _PART_IS_FULL if _size(one) > most else NO_ROOM if to_the_end else BEHIND)
    state.dropped += left_out_turns(silent, state.room if growing else 0, state.present)
    return state


def left_out_turns(silent: Iterable[Exchange], kept: int, present: Collection[str]) -> list[DroppedItem]:
    """The turns of exchanges that are left out, the newest exchange first, with the reason. `kept` is the room that
    stays free although they would fit into it."""
    dropped: list[DroppedItem] = []
    for exchange in silent:
        kept = kept - exchange.tokens if exchange.tokens <= kept else 0
        dropped += [
            one.dropped(ROOM_KEPT if kept else NO_ROOM_FOR_TURN) for one in exchange.turns if one.id not in present
        ]
    return dropped


def _beside_a_part(exchange: Exchange, room: int, costs: TokenCosts) -> int:
    """The room for quotations beside an exchange that does not fit: half of the room, or less if turns that are whole
    in all of the room would otherwise be shortened. So with more room, no turn is shortened in favour of a
    quotation."""
    alone = shortened(exchange, costs, room)
    if alone is None:
        return room // 2
    for part in (2, 4, 8):
        beside = shortened(exchange, costs, room - room // part)
        if beside is not None and beside.cut == alone.cut:
            return room // part
    return 0


def _quotations(
    offers: Sequence[Offer],
    weights: Mapping[str, float],
    own: Collection[str],
    brief: Callable[[Candidate], Candidate | None],
) -> list[_Quotations]:
    """The quotations by share, with the quotations of the conversation's `own` turns apart."""
    by_share: dict[str, list[Candidate]] = {}
    turns: list[Candidate] = []
    for offer in offers:
        quotes = by_share.setdefault(offer.share, [])
        for one in offer.candidates:
            if one.place is not Place.TURN:
                (turns if one.id in own and not one.is_abridged else quotes).append(one)
    # Fragments of recent turns are worth less than recalled memories of the same size, so their source offers no
    # brief forms.
    queues = [
        _Quotations(
            quotes,
            weights.get(share, 0.0),
            in_order=share in ("l1", "instructions"),
            brief=brief,
            first=_FEW_WISHES if share == "instructions" else 0,
        )
        for share, quotes in by_share.items()
    ]
    return [*queues, _Quotations(turns, _OWN_TURNS, in_order=False, brief=brief)]


def _take_facts(state: Selection, queues: Sequence[_Quotations], most: int) -> int:
    """Take the derived facts that fit instead of a memory that does not; return the room left for quotations.

    With more room, the memory fits and replaces its facts.
    """
    for one in [one for queue in queues for one in queue.rest()]:
        if one.kind == MemoryType.FACT and one.stands_for and not one.is_abridged:
            most -= state.add_quote(one, most)
    return most


def _take_all(state: Selection, queues: Sequence[_Quotations]) -> None:
    """Take every candidate that fits, in the order of each source."""
    for one in [one for queue in queues for one in queue.rest()]:
        if state.room < _FRAME_TOKENS:
            break
        state.add_quote(one, state.room)


def _take(
    state: Selection, queues: Sequence[_Quotations], speaking: _Talk | None, most: int
) -> tuple[_Quotations | _Talk | None, int]:
    """Take candidates until one does not fit; return that one and the room left for quotations."""
    while True:
        ready = [queue for queue in queues if queue.head is not None and most > 0]
        queue = min(ready, key=lambda one: one.due, default=None)
        if speaking is not None and speaking.head is not None and (queue is None or speaking.due < queue.due):
            if not state.add_exchange(speaking.head, state.room):
                return speaking, most
            speaking.taken()
        elif queue is None or queue.head is None:
            return None, most
        else:
            if cost := state.add_quote(queue.head, most):
                most -= cost
                queue.taken()
            elif state.is_redundant(queue.head) or state.would_repeat(queue.head):
                queue.passed()
            elif most < state.room and speaking is not None and speaking.head is not None:
                most = 0  # quotations used their share; the conversation continues
            else:
                return queue, most
