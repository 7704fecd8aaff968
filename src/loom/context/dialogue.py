"""Compaction of the raw dialogue in a model's message list, once it is too long.

`compact_messages` serves both modes. In minimal mode `compact_memory` of the result is the whole memory. In full mode
the log holds the history. In both modes the newest exchanges stay word for word, and the originals can be read back
by the reference in the text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loom.checks import checked_list
from loom.context.rendering import neutralised
from loom.context.truncation import exchanges
from loom.drafts import message_text
from loom.errors import InvalidInput, NotFound
from loom.knowledge.dimensions import Dimension, dimension_of, rules_in
from loom.knowledge.fidelity import FidelityChecker, FidelityResult
from loom.knowledge.summarizer import Summarizer, Summary, turns_of_messages
from loom.memory.segment_store import MemorySegment, SegmentStore
from loom.text.tokens import TOKENS_PER_REPLY, TokenCounter

__all__ = ["DIALOGUE_TOKEN_LIMIT", "CompactedMessages", "compact_messages", "original_messages", "should_compact"]

Message = Mapping[str, Any]

DIALOGUE_TOKEN_LIMIT = 70_000
"""A dialogue with more tokens than this is compacted: about 55 % of a window of 128,000."""

# The share of the dialogue that stays word for word, and the share of the rest that its summary may take.
_VERBATIM_SHARE = 0.2
_SUMMARY_SHARE = 0.1
# The largest share of rules in a summary, and the prefix of a line that is a rule.
_RULES_SHARE = 0.5
_RULE = "rule: "


def should_compact(messages: Sequence[Message], tokens: int, limit: int = DIALOGUE_TOKEN_LIMIT) -> bool:
    """Whether a list of messages of this many tokens should be compacted."""
    return bool(messages) and tokens > limit


class CompactedMessages(list[Message]):
    """A dialogue with its older part summarised: a list of messages with a report of the compaction.

    `reference` names the originals: `original_messages(reference, segment_store)` returns them, and `originals` holds
    them while this object lives. `fidelity` measures how much of them the summary keeps. `rules` are the user's
    standing instructions, word for word; `by_dimension` has the kept rules, states and events.
    """

    def __init__(
        self,
        messages: Iterable[Message],
        *,
        compact_memory: str = "",
        summary: Summary | None = None,
        fidelity: FidelityResult | None = None,
        reference: str | None = None,
        originals: Sequence[Message] = (),
        rules: Sequence[str] = (),
        tokens_before: int,
        tokens: int,
    ) -> None:
        super().__init__(messages)
        self.compact_memory = compact_memory
        self.summary = summary
        self.fidelity = fidelity
        self.reference = reference
        self.originals = tuple(originals)
        self.rules = tuple(rules)
        self.tokens_before = tokens_before
        self.tokens = tokens

    @property
    def messages(self) -> list[Message]:
        return list(self)

    @property
    def by_dimension(self) -> dict[Dimension, tuple[str, ...]]:
        """The kept statements: rules (`type`) word for word, the newest form of each state, and events with their
        causes.

        A model does not report what it kept, so a summary by a model has only its rules here.
        """
        kept = self.summary.kept if self.summary is not None else ()
        found: dict[Dimension, tuple[str, ...]] = {"type": self.rules}
        for dimension in ("state", "event"):
            found[dimension] = tuple(one.text for one in kept if dimension_of(one.kind) == dimension)
        return found


def compact_messages(
    messages: Sequence[Message],
    *,
    summarizer: Summarizer | None = None,
    segment_store: SegmentStore | None = None,
    keep_tokens: int | None = None,
    summary_tokens: int | None = None,
) -> CompactedMessages:
    """Summarise the older part of a dialogue. System messages and the newest exchanges stay as they are.

    `keep_tokens` is the size of the part that stays word for word: by default a fifth of the dialogue, and at least
    the last exchange. `summary_tokens` bounds the summary: by default a tenth of what it replaces. A `segment_store`
    stores the originals under the reference. A dialogue with nothing to summarise is returned unchanged.
    """
    messages = checked_list(messages, "the messages of compact_messages()")
    if not all(isinstance(message, Mapping) for message in messages):
        raise InvalidInput("compact_messages() takes a list of chat messages: mappings with a role")
    writer = summarizer or Summarizer()
    counter = writer.counter
    before = counter.count_messages(messages)
    pinned = [message for message in messages if message.get("role") in ("system", "developer")]
    talk = [message for message in messages if message.get("role") not in ("system", "developer")]
    most = int(before * _VERBATIM_SHARE) if keep_tokens is None else keep_tokens
    start = _verbatim_from(talk, most, counter)
    older, recent = talk[:start], talk[start:]
    if not older:
        return CompactedMessages(messages, tokens_before=before, tokens=before)
    size = counter.count_messages(older) - TOKENS_PER_REPLY
    budget = max(1, int(size * _SUMMARY_SHARE)) if summary_tokens is None else summary_tokens
    told, known = _opened(older)
    turns = turns_of_messages(told)
    found = rules_in(turns, known)
    rules = _fitting(found.texts, int(budget * _RULES_SHARE), counter)
    # A rule that does not fit stays in its turn, as an ordinary statement.
    kept = found.turns if len(rules) == len(found.texts) else turns
    stated = [f"{_RULE}{text}" for text in rules]
    left = max(0, budget - counter.safe_count("\n".join(stated))) if rules else budget
    summary = writer.summarize(kept, budget=left)
    said = "\n".join([*stated, *_not_rules(summary.text)])
    originals = [*known, *(text for text in map(message_text, told) if text.strip())]
    fidelity = FidelityChecker().check(said, originals)
    reference = f"dialogue-{hashlib.blake2b(_dump(older).encode(), digest_size=12).hexdigest()}"
    if segment_store is not None:
        segment_store.store(MemorySegment(content=_dump(older), segment_id=reference))
    # The summary may contain text of tools and unknown speakers.
    lines = neutralised(said, trusted=False).replace("\n", "\n| ")
    text = f"<memory>\n[{len(older)} earlier messages, in short; originals: {reference}]\n{lines}\n</memory>"
    shown = [*pinned, {"role": "user", "content": text}, *recent]
    return CompactedMessages(
        shown,
        compact_memory=text,
        summary=summary,
        fidelity=fidelity,
        reference=reference,
        originals=older,
        rules=rules,
        tokens_before=before,
        tokens=counter.count_messages(shown),
    )


def _fitting(rules: Sequence[str], budget: int, counter: TokenCounter) -> list[str]:
    """Return the newest rules that fit a budget, in their order. A rule is never shortened."""
    kept: list[str] = []
    for text in reversed(rules):
        cost = counter.safe_count(f"{_RULE}{text}\n")
        if cost <= budget:
            budget -= cost
            kept.insert(0, text)
    return kept


def _not_rules(text: str) -> list[str]:
    """Return the lines of a summary, changed so that none of them is later read as a rule."""
    return [f"said: {line}" if line.startswith(_RULE) else line for line in text.splitlines()]


def original_messages(reference: str, segment_store: SegmentStore) -> list[Message]:
    """Return the original messages of a compacted text."""
    found = segment_store.retrieve([reference])
    if not found:
        raise NotFound(
            f"there are no messages under the reference {reference!r}; they were forgotten or never stored"
        )
    messages: list[Message] = json.loads(found[0].content)
    return messages


def _verbatim_from(talk: Sequence[Message], most: int, counter: TokenCounter) -> int:
    """The position of the first message that stays word for word. Whole exchanges stay, at least the last one."""
    start = len(talk)
    for group in reversed(exchanges(talk)):
        size = sum(counter.count_message(talk[at]) for at in group)
        if start < len(talk) and size > most:
            break
        most -= size
        start = group.start
    return start


_COMPACTED = re.compile(
    r"<memory>\n\[\d+ earlier messages, in short; originals: dialogue-\w+\]\n(.*)\n</memory>", re.DOTALL
)


def _opened(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """Return the messages, with results of `compact_messages` split into a message for each line, and their rules.

    An earlier summary as one text would be shortened as a whole and soon lose its first statements.
    """
    found: list[Message] = []
    rules: list[str] = []
    for message in messages:
        content = message.get("content")
        made = _COMPACTED.fullmatch(content) if isinstance(content, str) and message.get("role") == "user" else None
        if made is None:
            found.append(message)
        else:
            lines = [line for line in made[1].split("\n| ") if line.strip()]
            rules += [line.removeprefix(_RULE) for line in lines if line.startswith(_RULE)]
            found += [{"role": "user", "content": line} for line in lines if not line.startswith(_RULE)]
    return found, rules


def _dump(messages: Sequence[Message]) -> str:
    return json.dumps(list(messages), ensure_ascii=False, default=str)
