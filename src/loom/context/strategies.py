"""Choosing without a prompt: memory units within a number of tokens, and events by their current value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from loom.checks import checked_items
from loom.drafts import ACTION_IMPORTANCE, DEFAULT_IMPORTANCE, task_text
from loom.errors import InvalidInput
from loom.protocol import Clock, ReadyList, Task, utc_now
from loom.text.tokens import TokenCounter, default_counter
from loom.text.words import query_terms, terms
from loom.types import MemoryUnit

__all__ = [
    "ContextManager",
    "ContextStrategy",
    "EventCandidate",
    "EventWeights",
    "PriorityContextStrategy",
    "SlidingWindowStrategy",
    "score_events",
]


# --- memory units ----------------------------------------------------------------------------------------


class ContextStrategy(Protocol):
    """Chooses the units of memory that fit into a context, in the order of time."""

    def select(self, units: Sequence[MemoryUnit], max_tokens: int) -> list[MemoryUnit]: ...


class _Sized:
    """The size of a unit: its own count if it has one."""

    def __init__(self, token_counter: TokenCounter | None = None) -> None:
        self._counter = default_counter() if token_counter is None else token_counter

    def tokens(self, unit: MemoryUnit) -> int:
        if unit.token_count:
            return unit.token_count
        message = unit.to_message()
        content = message.get("content")
        if isinstance(content, str) and len(message) == 2:
            return self._counter.safe_count(content)
        return self._counter.safe_count_each([message])[0]

    def _chosen(self, units: Iterable[MemoryUnit], room: int, is_end: bool) -> list[MemoryUnit]:
        """The units that fit, in the order of time. A unit that does not fit is skipped, or ends the choice."""
        chosen: list[MemoryUnit] = []
        for unit in units:
            size = self.tokens(unit)
            if size <= room:
                room -= size
                chosen.append(unit)
            elif is_end:
                break
        return _by_time(chosen)


class PriorityContextStrategy(_Sized, ContextStrategy):
    """The most important units first; among equals the newest. A unit that does not fit is skipped."""

    def select(self, units: Sequence[MemoryUnit], max_tokens: int) -> list[MemoryUnit]:
        best = sorted(units, key=lambda one: (-one.importance, -one.created_at.timestamp(), one.id))
        return self._chosen(best, _checked(max_tokens), is_end=False)


class SlidingWindowStrategy(_Sized, ContextStrategy):
    """The newest units without a gap: the first one that does not fit ends the choice."""

    def select(self, units: Sequence[MemoryUnit], max_tokens: int) -> list[MemoryUnit]:
        return self._chosen(reversed(_by_time(units)), _checked(max_tokens), is_end=True)


def _by_time(units: Iterable[MemoryUnit]) -> list[MemoryUnit]:
    return sorted(units, key=lambda one: (one.created_at.timestamp(), one.id))


def _checked(max_tokens: int) -> int:
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
        raise InvalidInput(f"max_tokens must be a whole number from 0, not {max_tokens!r}")
    return max_tokens


class ContextManager:
    """Chooses among memory units by a strategy: the units given to a call, or else those that were added.

    It is also a source of prompts: `memory.context(question, sources=[manager])` offers its choice.
    """

    name = "units"

    def __init__(self, strategy: ContextStrategy | None = None, max_tokens: int = 4000) -> None:
        self.strategy = strategy or PriorityContextStrategy()
        self.max_tokens = _checked(max_tokens)
        self._units: dict[str, MemoryUnit] = {}

    def add(self, *units: MemoryUnit) -> None:
        """Add units. A unit replaces an earlier one with the same id."""
        self._units |= {unit.id: unit for unit in units}

    def remove(self, id: str) -> bool:
        """Remove a unit. False if it is not there."""
        return self._units.pop(id, None) is not None

    def build_context(
        self, units: Iterable[MemoryUnit] | None = None, max_tokens: int | None = None
    ) -> ReadyList[MemoryUnit]:
        """The units that the strategy chooses among `units`, or else among those that were added, in the order of
        time.

        The list may be awaited, which changes nothing.
        """
        most = self.max_tokens if max_tokens is None else max_tokens
        given = self._units.values() if units is None else checked_items(units, MemoryUnit, "build_context")
        return ReadyList(self.strategy.select(list(given), most))

    def to_messages(
        self, units: Iterable[MemoryUnit] | None = None, max_tokens: int | None = None
    ) -> list[dict[str, Any]]:
        """The same as chat messages."""
        return [unit.to_message() for unit in self.build_context(units, max_tokens)]

    def get_context(self, task: Task, max_items: int) -> list[MemoryUnit]:
        """The candidates for a prompt: the newest of the units that the strategy chooses among the added ones."""
        return self.build_context()[-max_items:]

    def __len__(self) -> int:
        return len(self._units)


# --- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventWeights:
    """The weights in an event's score: its age, its action, its subject, and its node."""

    time: float = 0.40
    action: float = 0.25
    relevance: float = 0.20
    node: float = 0.15
    half_life_h: float = 1.0


@dataclass(frozen=True, slots=True)
class EventCandidate:
    """An event that may go into a context, with its score from 0 to 1 and the parts of the score."""

    task: Task
    score: float
    parts: dict[str, float] = field(default_factory=dict)


def score_events(
    tasks: Iterable[Task],
    current: Task | str,
    *,
    node_id: str | None = None,
    weights: EventWeights | None = None,
    now: datetime | None = None,
    clock: Clock = utc_now,
) -> list[EventCandidate]:
    """Events by their value for the current task, best first, and the newest first among equals.

    `node_id` is the node of the context: its events count more, and events of its session half as much.
    """
    moment = now or clock()
    given = weights or EventWeights()
    wanted = set(query_terms(current if isinstance(current, str) else task_text(current)))
    session = None if isinstance(current, str) else current.session_id
    found = []
    for task in tasks:
        age_h = max(0.0, (moment - task.created_at).total_seconds() / 3600)
        own = node_id is not None and node_id in (task.source_agent, task.target_agent)
        same = session is not None and task.session_id == session
        parts = {
            "time": 0.5 ** (age_h / given.half_life_h),
            "action": ACTION_IMPORTANCE.get(task.action, DEFAULT_IMPORTANCE),
            "relevance": len(wanted & set(terms(task_text(task)))) / len(wanted) if wanted else 0.0,
            "node": 1.0 if own else 0.5 if same else 0.0,
        }
        score = sum(getattr(given, name) * value for name, value in parts.items())
        found.append(EventCandidate(task, score, parts))
    found.sort(key=lambda one: (-one.score, -one.task.created_at.timestamp(), one.task.task_id))
    return found
