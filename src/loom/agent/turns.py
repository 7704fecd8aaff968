"""The conversation of an agent: storing its turns, and building the prompt for the next question.

`RememberedConversation` stores every turn as a `Task` in a memory and builds prompts from all tiers. In minimal mode,
`CompactConversation` keeps the dialogue in this process and summarises the part that becomes too long. The compact
memory is then the only memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from loom.agent.chat_models import Json
from loom.context.dialogue import compact_messages, should_compact
from loom.context.message_shortening import shorter_messages
from loom.context.orchestrator import Context
from loom.context.rendering import READING_RULE, MessageConverter, pair_tool_calls
from loom.context.truncation import SmartTruncator, TruncationStrategy
from loom.errors import OverBudget
from loom.knowledge.summarizer import Summarizer
from loom.memory.manager import MemoryManager
from loom.protocol import Task
from loom.text.tokens import TOKENS_PER_REPLY, TokenCounter

__all__ = ["CompactConversation", "Conversation", "Opening", "RememberedConversation", "fitted", "messages_of"]

# The dialogue of minimal mode is compacted above this share of the prompt: 70,000 of 128,000 tokens.
_COMPACT_ABOVE = 0.55
# The share of the prompt for the compact memory. It replaces the dialogue, so it has more than the usual tenth.
_COMPACT_MEMORY = 0.2


class Opening(NamedTuple):
    """The first prompt of a run, with the question last. `breakpoints` are messages after which it may be cached."""

    messages: list[Json]
    tokens: int
    breakpoints: tuple[int, ...] = ()
    context: Context | None = None


class Conversation(Protocol):
    """The source of a run's prompt and the store of its turns. Its methods block."""

    def keep(self, task: Task) -> None:
        """Keep a turn. When this returns, the turn is durable."""

    def opening(self, question: Task, system: str | None, budget: int) -> Opening:
        """Return the prompt for a question that was kept, in at most `budget` tokens."""


class RememberedConversation:
    """A conversation in a memory. Prompts draw on all tiers, and nothing is lost with the process."""

    def __init__(self, memory: MemoryManager) -> None:
        self._memory = memory

    def keep(self, task: Task) -> None:
        self._memory.remember(task)

    def opening(self, question: Task, system: str | None, budget: int) -> Opening:
        built = self._memory.context(question, budget=budget, system=system)
        return Opening(built.messages, built.tokens, built.breakpoints, built)


class CompactConversation:
    """The dialogue of one process, with all but its end summarised. Nothing is stored.

    `write_through` is called with the compact memory whenever it changes.
    """

    def __init__(
        self,
        counter: TokenCounter,
        summarizer: Summarizer | None = None,
        compact_memory: str = "",
        write_through: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._counter = counter
        self._write_through = write_through
        self._summarizer = summarizer or Summarizer(token_counter=counter)
        self._dialogue: list[Json] = [{"role": "user", "content": compact_memory}] if compact_memory else []
        self.compact_memory = compact_memory

    def keep(self, task: Task) -> None:
        self._dialogue += messages_of(task)

    def opening(self, question: Task, system: str | None, budget: int) -> Opening:
        rules: Json = {"role": "system", "content": f"{system}\n\n{READING_RULE}" if system else READING_RULE}
        size = self._counter.safe_count_messages(self._dialogue)
        if should_compact(self._dialogue, size, int(budget * _COMPACT_ABOVE)):
            compacted = compact_messages(
                self._dialogue, summarizer=self._summarizer, summary_tokens=int(budget * _COMPACT_MEMORY)
            )
            if compacted.compact_memory:
                self._dialogue = [dict(message) for message in compacted]
                self.compact_memory = compacted.compact_memory
                self._write_through(self.compact_memory)
        messages = [rules, *pair_tool_calls(self._dialogue)]
        tokens = self._counter.safe_count_messages(messages)
        if tokens > budget:
            shorter = SmartTruncator(self._counter).truncate(messages, budget, TruncationStrategy.TAIL_CUTOFF)
            messages, tokens = [dict(message) for message in shorter.messages], shorter.tokens
        return Opening(messages, tokens, (0,))


def messages_of(task: Task) -> list[Json]:
    """Return the messages of a turn in the form in which later prompts show them, so that a prefix stays the same."""
    return MessageConverter().convert(task)


def fitted(opening: Opening, steps: Sequence[Json], limit: int, counter: TokenCounter) -> tuple[list[Json], int]:
    """Return the prompt of a run with its steps so far, in at most `limit` tokens, and its size.

    If it is too large, the steps are shortened first, calls and results together, down to half of the prompt. Then
    the beginning is shortened, except for its rules and its question.
    """

    def size(messages: Sequence[Json]) -> int:
        return counter.safe_count_messages(messages) - TOKENS_PER_REPLY

    paired = pair_tool_calls(steps)
    taken = size(paired) if paired else 0
    if opening.tokens + taken <= limit:
        return [*opening.messages, *paired], opening.tokens + taken
    most = max(limit // 2, limit - opening.tokens)
    if taken > most:
        shorter = shorter_messages(paired, most, counter.safe_count, size)
        if shorter is None:
            raise OverBudget(f"the last step alone does not fit into the prompt of {limit:,} tokens; give it more")
        paired, taken = list(shorter.messages), sum(shorter.sizes)
    start = SmartTruncator(counter).truncate(opening.messages, limit - taken, TruncationStrategy.TAIL_CUTOFF)
    return [*(dict(message) for message in start.messages), *paired], start.tokens + taken
