"""What goes in: candidates are de-duplicated, costed, and taken by share until there is no room.

Pure decisions: nothing here reads or writes a store. Quotations are taken one by one, the best first; the turns of
the conversation from its end, by whole exchanges and without a gap, so that what is left still reads as one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from loom.context.items import Candidate, DroppedItem, Message, Place
from loom.context.rendering import day_heading, gap_note, memory_block, pair_tool_calls, quoted_line, turn_messages
from loom.knowledge.stand_ins import beginning
from loom.text.duplicates import normal_form
from loom.text.tokens import TOKENS_PER_REPLY, TokenCounter
from loom.types import MemoryType

__all__ = [
    "NO_ROOM_FOR_TURN",
    "Exchange",
    "Offer",
    "Selection",
    "TokenCosts",
    "dedupe",
    "exchange_messages",
    "exchanges_of",
    "fit",
    "is_redundant",
    "shortened",
]

NO_ROOM_FOR_TURN = "no room for this part of the conversation"
"""Why a turn of the conversation is left out."""

_IS_THE_QUESTION = "it is the question"
# Less room than this holds no quotation: a line break, a name, a word.
_LEAST_QUOTE = 4
# About so many tokens stay of a message whose exchange is too long to go in whole.
_SHORT = 48.0


@dataclass(frozen=True, slots=True)
class Offer:
    """What one source offers, the best first, and the name of the share it may count on."""

    source: str
    share: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Turns that belong together: what a user said, and everything up to the user's next word."""

    turns: tuple[Candidate, ...]
    messages: tuple[Message, ...]
    tokens: int
    shortened: bool = False


class TokenCosts:
    """What things take in one prompt, by a counter. For a counter that estimates, an upper bound."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        # By identity, with the candidate beside it so that no other can take its place.
        self._lines: dict[int, tuple[Candidate, str, int]] = {}
        self._headings: dict[str, int] = {}
        self.frame = self.messages([{"role": "user", "content": memory_block([])}])

    def messages(self, messages: Iterable[Message]) -> int:
        """The tokens of messages, without what primes the reply."""
        return self.counter.safe_count_messages(messages) - TOKENS_PER_REPLY

    def line(self, candidate: Candidate) -> int:
        """What a quotation takes with its line break, which is often one token with the character before it."""
        return self._line(candidate)[2]

    def text(self, candidate: Candidate) -> str:
        """The line of a quotation."""
        return self._line(candidate)[1]

    def _line(self, candidate: Candidate) -> tuple[Candidate, str, int]:
        known = self._lines.get(id(candidate))
        if known is None:
            text = quoted_line(candidate)
            known = self._lines[id(candidate)] = (candidate, text, self.counter.safe_count(f"{text}\n"))
        return known

    def heading(self, moment: datetime, year: int | None) -> int:
        """What the line of a day takes, after one of that year, or with its own."""
        text = day_heading(moment, year)
        if text not in self._headings:
            self._headings[text] = self.counter.safe_count(f"{text}\n")
        return self._headings[text]


# --- de-duplicating --------------------------------------------------------------------------------------


def dedupe(offers: Sequence[Offer], question: str | None = None) -> tuple[list[Offer], list[DroppedItem]]:
    """Each memory once, by id over all sources.

    A turn of the conversation is preferred to a quotation of the same record; else the first offer counts. The
    question itself is no memory: where it is the newest turn, it stays out. Quotations that say the same are told
    apart later, by `Selection`: reading what they say takes time, and most of them have no room.
    """
    turns = {one.id for offer in offers for one in offer.candidates if one.place is Place.TURN}
    asking = None if question is None else _asking(offers, normal_form(question))
    seen: set[tuple[str, bool]] = set()
    kept: list[Offer] = []
    dropped: list[DroppedItem] = []
    for offer in offers:
        own: list[Candidate] = []
        for one in offer.candidates:
            whole = not one.is_abridged
            is_turn = one.place is Place.TURN
            if (one.id, whole) in seen or (not is_turn and whole and one.id in turns):
                dropped.append(one.dropped("the same memory is offered already"))
            elif is_turn and one.id == asking:
                dropped.append(one.dropped(_IS_THE_QUESTION))
            else:
                seen.add((one.id, whole))
                own.append(one)
        kept.append(replace(offer, candidates=tuple(own)))
    return kept, dropped


def _asking(offers: Iterable[Offer], asked: str) -> str | None:
    """The turn that is the question: the newest of the conversation, if its words are those."""
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
    """The conversation in its order, divided where the user speaks."""
    ordered = sorted(turns, key=lambda one: (one.seq, one.created_at.timestamp() if one.created_at else 0.0, one.id))
    groups: list[list[tuple[Candidate, list[Message]]]] = []
    for one in ordered:
        messages = turn_messages(one)
        if not groups or messages[0]["role"] == "user":
            groups.append([])
        groups[-1].append((one, messages))
    found: list[Exchange] = []
    for group in groups:
        shown = pair_tool_calls([message for _, messages in group for message in messages])
        found.append(Exchange(tuple(one for one, _ in group), tuple(shown), costs.messages(shown)))
    return found


def shortened(exchange: Exchange, costs: TokenCosts) -> Exchange:
    """The beginnings of an exchange's messages, with marks where something is left out; calls become text."""
    messages: list[Message] = []
    for one in exchange.turns:
        short = replace(one, text=beginning(one.text, _SHORT), message=None)
        messages += turn_messages(replace(short, kind="message", role=one.role or "user"))
    return Exchange(exchange.turns, tuple(messages), costs.messages(messages), shortened=True)


def exchange_messages(exchanges: Sequence[Exchange]) -> list[Message]:
    """Exchanges as messages, with a line for each longer pause between turns."""
    messages: list[Message] = []
    before: datetime | None = None
    for exchange in exchanges:
        note = gap_note(before, exchange.turns[0].created_at)
        if note is not None:
            messages.append({"role": "user", "content": note})
        messages += exchange.messages
        before = exchange.turns[-1].created_at or before
    return messages


# --- fitting ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Selection:
    """What was taken so far, what it costs, and what stayed out.

    `present` has the ids of what is in the prompt, from before and by now. A text that the same speaker has said
    already is left out; so is a summary of what is present in full, and a fact derived from it.
    """

    costs: TokenCosts
    room: int
    question: str = ""
    present: set[str] = field(default_factory=set)
    quotes: list[Candidate] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)  # the newest first while fitting
    tokens: dict[str, int] = field(default_factory=dict)
    dropped: list[DroppedItem] = field(default_factory=list)
    lasting: int = 0  # how many of the quotes stay in the session's next prompt
    _days: set[tuple[int, int, int]] = field(default_factory=set)  # those that have a heading, and their years
    _years: set[int] = field(default_factory=set)
    _is_new_block: bool = True
    _said: dict[tuple[str, str], str] = field(default_factory=dict)
    _redundant: set[int] = field(default_factory=set)  # candidates that are left out whatever room there is

    def add_quote(self, candidate: Candidate, most: int) -> int:
        """Take a quotation if it costs at most `most` tokens and is not redundant; its cost, or 0."""
        if self.is_redundant(candidate) or self._is_too_long(candidate, min(most, self.room)):
            return 0
        cost = self.costs.line(candidate)
        if self._is_new_block:
            cost += self.costs.frame
        day = None
        if candidate.created_at is not None and candidate.place is not Place.STATE:
            moment = candidate.created_at
            day = (moment.year, moment.month, moment.day)
            if day not in self._days:
                cost += self.costs.heading(moment, moment.year if moment.year in self._years else None)
        if cost > min(most, self.room):
            return 0
        reason = self._why_not(candidate)
        if reason:
            self._leave_out(candidate, reason)
            return 0
        if day is not None:
            self._days.add(day)
            self._years.add(day[0])
        self._is_new_block = False
        self.quotes.append(candidate)
        if not candidate.is_abridged:
            self.present.add(candidate.id)
        self.tokens[candidate.id] = cost
        self.room -= cost
        return cost

    def end_lasting(self) -> None:
        """What was taken so far stays in the session's prompts; what comes now is quoted in another message."""
        self.lasting = len(self.quotes)
        self._is_new_block = True
        self._days.clear()
        self._years.clear()

    @staticmethod
    def _is_too_long(candidate: Candidate, most: int) -> bool:
        """Whether the stored count says so already: writing a quotation and counting it is what takes time."""
        whole = candidate.tokens if not candidate.is_abridged else 0
        return whole > most and len(candidate.text) > most

    def _why_not(self, candidate: Candidate) -> str:
        """What makes a quotation redundant, if anything does."""
        if is_redundant(candidate, self.present):
            return _redundancy(candidate)
        twin = next((one for one in candidate.copies if one in self.present), None)
        if twin is None:
            words = (normal_form(candidate.text), candidate.label or candidate.name or candidate.role or "")
            if words[0] == self.question:
                return _IS_THE_QUESTION
            twin = self._said.setdefault(words, candidate.id)
        return "" if twin == candidate.id else f"says the same as {twin}"

    def _leave_out(self, candidate: Candidate, reason: str) -> None:
        self._redundant.add(id(candidate))
        self.dropped.append(candidate.dropped(reason))

    def is_redundant(self, candidate: Candidate) -> bool:
        """Whether it was left out for another reason than its size."""
        return id(candidate) in self._redundant

    def leave_out(self, candidates: Iterable[Candidate], reason: str = "no room") -> None:
        """Note what was not taken, and why."""
        for one in candidates:
            if not self.is_redundant(one):
                self._leave_out(one, _redundancy(one) if is_redundant(one, self.present) else reason)

    def drop_redundant(self) -> None:
        """Let a summary go where what it stands for has come in full after it, and a fact after its source."""
        for one in [one for one in self.quotes if is_redundant(one, self.present)]:
            self.quotes.remove(one)
            self.present.discard(one.id)
            self.room += self.costs.line(one)
            self._leave_out(one, _redundancy(one))

    def add_exchange(self, exchange: Exchange, most: int) -> int:
        """Take the exchange before those taken already, if it costs at most `most` tokens; its cost, or 0."""
        cost = exchange.tokens
        later = self.exchanges[-1].turns[0].created_at if self.exchanges else None
        note = gap_note(exchange.turns[-1].created_at, later)
        if note is not None:
            cost += self.costs.messages([{"role": "user", "content": note}])
        if cost > min(most, self.room):
            return 0
        self.exchanges.append(exchange)
        if not exchange.shortened:
            self.present |= {turn.id for turn in exchange.turns}
        each = cost // len(exchange.turns)
        self.tokens |= {turn.id: each for turn in exchange.turns}
        self.tokens[exchange.turns[-1].id] += cost - each * len(exchange.turns)
        self.room -= cost
        return cost


def is_redundant(candidate: Candidate, present: Collection[str]) -> bool:
    """Whether what a candidate stands for is present: all of it; for a fact, any one of its sources."""
    sources = candidate.stands_for
    if candidate.kind == MemoryType.FACT and not candidate.is_abridged:
        return any(one in present for one in sources)
    return bool(sources) and all(one in present for one in sources)


def _redundancy(candidate: Candidate) -> str:
    if candidate.kind == MemoryType.FACT and not candidate.is_abridged:
        return "what it was drawn from is in the prompt"
    return "the whole memory is in the prompt"


def fit(
    offers: Sequence[Offer], shares: Mapping[str, int], room: int, costs: TokenCosts, question: str = ""
) -> Selection:
    """Take from each source up to its share, in the order of the sources; then let them use what others left.

    What does not fit is passed over and the next one tried; only the conversation stops there, because it must
    have no gap: an exchange too long for it is shortened first.
    """
    state = Selection(costs, room, normal_form(question))
    left = dict(shares)
    queues = [[one for one in offer.candidates if one.place is not Place.TURN] for offer in offers]
    talk = exchanges_of((one for offer in offers for one in offer.candidates if one.place is Place.TURN), costs)[::-1]
    speakers = next((o for o in offers if any(one.place is Place.TURN for one in o.candidates)), None)
    for flowing in (False, True):
        for offer, queue in zip(offers, queues, strict=True):
            most = state.room if flowing else left[offer.share]
            spent = _take_turns(state, talk, most) if offer is speakers else 0
            spent += _take_quotes(state, queue, most - spent, without_gap=offer.share == "l1")
            left[offer.share] -= spent
    state.drop_redundant()
    state.exchanges.reverse()
    for queue in queues:
        state.leave_out(queue)
    for exchange in talk:
        state.dropped += [one.dropped(NO_ROOM_FOR_TURN) for one in exchange.turns]
    return state


def _take_turns(state: Selection, talk: list[Exchange], most: int) -> int:
    """Exchanges from the newest back, as far as they fit; those taken leave the list."""
    spent = 0
    while talk:
        cost = state.add_exchange(talk[0], most - spent)
        if not cost and talk[0].tokens > 2 * _SHORT:
            cost = state.add_exchange(shortened(talk[0], state.costs), most - spent)
        if not cost:
            break
        spent += cost
        del talk[0]
    return spent


def _take_quotes(state: Selection, queue: list[Candidate], most: int, without_gap: bool) -> int:
    """The candidates that fit, the best first; those taken leave the list.

    `without_gap` none is taken behind one that does not fit, as with the newest records: scraps of what was said
    lately are worth less than as much of what was recalled.
    """
    spent = 0
    rest: list[Candidate] = []
    for position, one in enumerate(queue):
        if min(most - spent, state.room) < _LEAST_QUOTE:
            rest += queue[position:]
            break
        cost = state.add_quote(one, most - spent)
        spent += cost
        if not cost:
            rest.append(one)
            if without_gap and not state.is_redundant(one):
                rest += queue[position + 1 :]
                break
    queue[:] = rest
    return spent
