"""Shortening a list of chat messages to a number of tokens so that the rest still reads as a conversation.

The system message and the last message always stay. A tool call and its results are kept or dropped together, and so
are a question and its answer. The order of the list is kept under every strategy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any

from loom.checks import checked_list
from loom.context.message_shortening import answers_a_call, steps_of
from loom.context.rendering import neutralised
from loom.drafts import message_text
from loom.errors import InvalidInput, OverBudget
from loom.knowledge.stand_ins import beginning
from loom.knowledge.summarizer import Summarizer
from loom.text.tokens import TOKENS_PER_REPLY, TokenCounter, default_counter
from loom.text.words import query_terms, terms

__all__ = [
    "ImportanceScore",
    "SmartTruncator",
    "Summarize",
    "TruncationResult",
    "TruncationStrategy",
    "exchanges",
    "weighty_words",
]

Message = Mapping[str, Any]
Summarize = Callable[[Sequence[Message], int], str]
"""Summarises messages in a text of at most this many tokens."""


class TruncationStrategy(StrEnum):
    """The ways to make room."""

    TAIL_CUTOFF = "TAIL_CUTOFF"
    """The newest messages stay, without a gap."""
    IMPORTANCE_BASED = "IMPORTANCE_BASED"
    """The most important messages stay, in their order."""
    DYNAMIC_SUMMARY = "DYNAMIC_SUMMARY"
    """The newest messages stay; a summary replaces the others."""
    CONVERSATION_MERGE = "CONVERSATION_MERGE"
    """The newest messages stay; each earlier exchange becomes one line."""


@dataclass(frozen=True, slots=True)
class ImportanceScore:
    """The importance of a message, in parts from 0 to 1."""

    semantic: float
    recency: float
    user_emphasis: float
    structural: float

    @property
    def total(self) -> float:
        """The weighted sum, from 0 to 1."""
        return 0.4 * self.semantic + 0.3 * self.recency + 0.2 * self.user_emphasis + 0.1 * self.structural


@dataclass(frozen=True, slots=True)
class TruncationResult:
    """The remaining messages, and the number of the original ones. `dropped` has the positions of messages that are
    gone or only summarised."""

    messages: list[Message]
    truncated: bool
    preserved_count: int
    original_count: int
    tokens: int = 0
    dropped: tuple[int, ...] = field(default=())


def exchanges(messages: Sequence[Message]) -> list[range]:
    """The positions of the messages of each exchange: a user's message and everything up to the user's next one."""
    starts = [
        position
        for position, message in enumerate(messages)
        if position == 0 or (message.get("role") == "user" and not answers_a_call(message))
    ]
    return [range(start, end) for start, end in pairwise([*starts, len(messages)])]


class SmartTruncator:
    """Shortens conversations. Messages about `query` count as more important.

    `summarize` writes the summaries; by default it is the `Summarizer` without a model.
    """

    # The share of the verbatim part of a conversation if the rest is summarised.
    _VERBATIM_SHARE = 0.7

    def __init__(
        self,
        token_counter: TokenCounter | None = None,
        *,
        query: str | None = None,
        summarize: Summarize | None = None,
        half_life_h: float = 24.0,
    ) -> None:
        self._counter = default_counter() if token_counter is None else token_counter
        self._query = frozenset(query_terms(query)) if query else frozenset()
        self._summarize = summarize or self._by_rules
        self._half_life_h = half_life_h

    # -- importance --------------------------------------------------------------------------------------

    def calculate_importance(self, message: Message, recency: float | None = None) -> float:
        """The importance of a message, from 0 to 1. `recency` is used if it has no `timestamp`."""
        return self.score(message, recency).total

    def score(self, message: Message, recency: float | None = None, now: datetime | None = None) -> ImportanceScore:
        """The importance of a message, from 0 to 1. `recency` is used if the message has no `timestamp`."""
        text = message_text(message)
        return ImportanceScore(
            semantic=self._semantic(text),
            recency=self._recency(message, recency, now),
            user_emphasis=_emphasis(message),
            # Headings, lists, tables and code: 1 from four such lines on.
            structural=min(1.0, len(_MARKED_UP.findall(text[:20_000])) / 4),
        )

    def _semantic(self, text: str) -> float:
        """The share of the message that is not filler, and the share of the question's words that it mentions."""
        present = set(terms(text[:20_000]))
        substance = min(1.0, len(present) / 24)
        if _WEIGHTY.search(text):
            substance = min(1.0, substance + 0.3)
        if not self._query:
            return substance
        return 0.4 * substance + 0.6 * len(self._query & present) / len(self._query)

    def _recency(self, message: Message, given: float | None, now: datetime | None) -> float:
        moment = _moment(message)
        if moment is None:
            return 1.0 if given is None else given
        age_h = max(0.0, ((now or datetime.now(UTC)) - moment).total_seconds() / 3600)
        return float(0.5 ** (age_h / self._half_life_h))

    # -- truncating --------------------------------------------------------------------------------------

    def truncate(
        self,
        messages: Sequence[Message],
        target_tokens: int,
        strategy: TruncationStrategy | str = TruncationStrategy.IMPORTANCE_BASED,
    ) -> TruncationResult:
        """The messages within this many tokens, everything included; unchanged if they fit.

        Raises `OverBudget` if not even the system message and the last message fit.
        """
        if isinstance(target_tokens, bool) or not isinstance(target_tokens, int) or target_tokens < 0:
            raise InvalidInput(f"a target must be a whole number of tokens from 0, not {target_tokens!r}")
        try:
            chosen = TruncationStrategy(strategy)
        except ValueError as error:
            known = ", ".join(TruncationStrategy)
            raise InvalidInput(f"there is no strategy {strategy!r}; there are {known}") from error
        messages = checked_list(messages, "the messages of truncate()")
        sizes = [self._tokens(message) for message in messages]
        total = sum(sizes) + TOKENS_PER_REPLY
        if total <= target_tokens:
            return TruncationResult(list(messages), False, len(messages), len(messages), total)
        pinned = {at for at, message in enumerate(messages) if message.get("role") in ("system", "developer")}
        talk = [at for at in range(len(messages)) if at not in pinned]
        groups = [[talk[at] for at in group] for group in exchanges([messages[at] for at in talk])]
        last = _steps(messages, groups[-1])[-1] if groups else []
        room = target_tokens - TOKENS_PER_REPLY - sum(sizes[at] for at in pinned | set(last))
        if room < 0:
            raise OverBudget(
                f"the system message and the last message take {target_tokens - room:,} tokens and the target is "
                f"{target_tokens:,}; give at least {target_tokens - room:,}, or shorten them"
            )
        plan = _Plan(list(messages), sizes, pinned | set(last), groups, room)
        if chosen is TruncationStrategy.IMPORTANCE_BASED:
            return self._finish(plan, self._by_importance(plan))
        if chosen is TruncationStrategy.TAIL_CUTOFF:
            return self._finish(plan, self._newest(plan, plan.room))
        kept = self._newest(plan, int(plan.room * self._VERBATIM_SHARE))
        left = [at for group in groups for at in group if at not in kept and at not in plan.kept]
        summed = self._summed_up if chosen is TruncationStrategy.DYNAMIC_SUMMARY else self._merged
        room_left = plan.room - sum(sizes[at] for at in kept)
        return self._finish(plan, kept, summed(plan, left, room_left))

    def _tokens(self, message: Message) -> int:
        return self._counter.safe_count_messages([message]) - TOKENS_PER_REPLY

    def _newest(self, plan: _Plan, room: int) -> set[int]:
        """Whole exchanges from the end, without a gap. An exchange that is too large keeps its question and its last
        steps."""
        kept: set[int] = set()
        for group in reversed(plan.groups):
            wanted = [at for at in group if at not in plan.kept]
            size = plan.size(wanted)
            if size > room:
                if not kept:
                    kept |= self._ends_of(plan, group, room)
                break
            kept.update(wanted)
            room -= size
        return kept

    def _ends_of(self, plan: _Plan, group: Sequence[int], room: int) -> set[int]:
        steps = _steps(plan.messages, group)
        kept: set[int] = set()
        for step in (steps[0], *reversed(steps[1:])):
            wanted = [at for at in step if at not in plan.kept]
            if plan.size(wanted) > room:
                break
            kept.update(wanted)
            room -= plan.size(wanted)
        return kept

    def _by_importance(self, plan: _Plan) -> set[int]:
        now = max(filter(None, map(_moment, plan.messages)), default=None)
        count = max(1, len(plan.messages) - 1)
        worth = {
            index: max(self.score(plan.messages[at], at / count, now).total for at in group)
            for index, group in enumerate(plan.groups)
        }
        kept: set[int] = set()
        room = plan.room
        for index in sorted(worth, key=lambda index: (-worth[index], -index)):
            wanted = [at for at in plan.groups[index] if at not in plan.kept]
            size = plan.size(wanted)
            if size <= room:
                kept.update(wanted)
                room -= size
        return kept

    def _summed_up(self, plan: _Plan, left: Sequence[int], room: int) -> Message | None:
        # The frame of the message takes about ten tokens; the exact count decides below.
        if not left or room < 32:
            return self._merged(plan, left, room)
        text = self._summarize([plan.messages[at] for at in left], room - 16)
        message = _summary_message(text.splitlines(), len(left))
        return message if text and self._tokens(message) <= room else self._merged(plan, left, room)

    def _by_rules(self, messages: Sequence[Message], tokens: int) -> str:
        return Summarizer(token_counter=self._counter).summarize_messages(messages, budget=tokens).text

    def _merged(self, plan: _Plan, left: Sequence[int], room: int) -> Message | None:
        """One line for each omitted exchange, newest first, until the room is used."""
        lines: list[str] = []
        out = set(left)
        for group in reversed([[at for at in group if at in out] for group in plan.groups]):
            if not group:
                continue
            own = (plan.messages[at] for at in group)
            said = (f"{one.get('role')}: {beginning(message_text(one), 16.0)}" for one in own)
            line = " / ".join(part for part in said if not part.endswith(": "))
            if not line or self._tokens(_summary_message([line, *lines], len(left))) > room:
                break
            lines.insert(0, line)
        return _summary_message(lines, len(left)) if lines else None

    def _finish(self, plan: _Plan, kept: Iterable[int], summary: Message | None = None) -> TruncationResult:
        stay = plan.kept | set(kept)
        messages = [plan.messages[at] for at in sorted(stay)]
        if summary is not None:
            first = next((at for at, one in enumerate(messages) if one.get("role") not in ("system", "developer")), 0)
            messages.insert(first, summary)
        tokens = sum(map(self._tokens, messages)) + TOKENS_PER_REPLY
        dropped = tuple(at for at in range(len(plan.messages)) if at not in stay)
        return TruncationResult(messages, True, len(stay), len(plan.messages), tokens, dropped)


def _steps(messages: Sequence[Message], group: Sequence[int]) -> list[list[int]]:
    """The steps of an exchange, whose messages are at these positions."""
    return [[group[at] for at in step] for step in steps_of([messages[at] for at in group])]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The messages, their sizes, the ones that always stay, and the room for the others."""

    messages: list[Message]
    sizes: list[int]
    kept: set[int]
    groups: list[list[int]]
    room: int

    def size(self, positions: Iterable[int]) -> int:
        return sum(self.sizes[at] for at in positions)


_WEIGHTY = re.compile(
    r"\d|[\w/]\.\w{1,5}\b|`|_|\b(?:decid|chose|agreed|must|never|always|error|fail|fix|because|deadline|prefer)"
    r"|决定|选择|必须|错误|失败|修复|因为|截止|喜欢|不要|改为",
    re.IGNORECASE,
)
_MARKED_UP = re.compile(r"^[ \t]*(?:#{1,6} |[-*+] |\d+[.)] |```|\|)", re.MULTILINE)


def weighty_words(text: str) -> int:
    """The number of words in a text that decide, forbid or report a failure, and of its numbers and names of code."""
    return len(_WEIGHTY.findall(text))


def _emphasis(message: Message) -> float:
    """The emphasis by a person: the message was pinned, made a favourite, copied, or given an importance."""
    marks = message.get("metadata")
    found = {**marks, **message} if isinstance(marks, Mapping) else message
    if any(found.get(key) for key in ("pinned", "starred", "favorite", "favourite", "bookmarked")):
        return 1.0
    importance = found.get("importance")
    given = float(importance) if isinstance(importance, int | float) and 0 <= importance <= 1 else 0.0
    return max(given, 0.7 if found.get("copied") else 0.0)


def _moment(message: Message) -> datetime | None:
    for key in ("timestamp", "created_at"):
        value = message.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            # Numbers beyond the seconds of this millennium are milliseconds, as JavaScript counts.
            return datetime.fromtimestamp(value / 1000 if value > 32_503_680_000 else value, UTC)
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value
    return None


def _summary_message(lines: Sequence[str], count: int) -> Message:
    # Text of tools and unknown speakers is part of it.
    told = "\n".join(neutralised(line, trusted=False).replace("\n", "\n| ") for line in lines)
    return {"role": "user", "content": f"<memory>\n[{count} earlier messages, in short]\n{told}\n</memory>"}
