"""The raw dialogue in a model's message list: when it is too long, and what it becomes.

`compact_messages` serves both modes. In the minimal one `compact_memory` of the result is the whole memory; in the
full one the result is for the moment, and the history itself is in the log. Either way the newest exchanges stay
word for word, and what was summed up can be had again by the reference in the text.
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
from loom.knowledge.fidelity import FidelityChecker, FidelityResult
from loom.knowledge.summarizer import Summarizer, Summary
from loom.memory.segment_store import MemorySegment, SegmentStore
from loom.text.tokens import TOKENS_PER_REPLY, TokenCounter

__all__ = ["DIALOGUE_TOKEN_LIMIT", "CompactedMessages", "compact_messages", "original_messages", "should_compact"]

Message = Mapping[str, Any]

DIALOGUE_TOKEN_LIMIT = 70_000
"""Above so many tokens a dialogue is compacted: about 55 % of a window of 128,000."""

# What stays word for word, as a share of the dialogue, and what a summary may have of the rest.
_VERBATIM_SHARE = 0.2
_SUMMARY_SHARE = 0.1


def should_compact(messages: Sequence[Message], tokens: int, limit: int = DIALOGUE_TOKEN_LIMIT) -> bool:
    """Whether a list of messages of so many tokens should be compacted."""
    return bool(messages) and tokens > limit


class CompactedMessages(list[Message]):
    """A dialogue with its older part summed up: a list of messages, and what was done.

    `reference` names the originals: `original_messages(reference, segment_store)` gives them back, and `originals`
    holds them while this object lives. `fidelity` says how much of them the summary keeps.
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
        tokens_before: int,
        tokens: int,
    ) -> None:
        super().__init__(messages)
        self.compact_memory = compact_memory
        self.summary = summary
        self.fidelity = fidelity
        self.reference = reference
        self.originals = tuple(originals)
        self.tokens_before = tokens_before
        self.tokens = tokens

    @property
    def messages(self) -> list[Message]:
        return list(self)


def compact_messages(
    messages: Sequence[Message],
    *,
    summarizer: Summarizer | None = None,
    segment_store: SegmentStore | None = None,
    keep_tokens: int | None = None,
    summary_tokens: int | None = None,
) -> CompactedMessages:
    """Sum up the older part of a dialogue; system messages and the newest exchanges stay as they are.

    `keep_tokens` is what stays word for word (a fifth of the dialogue by default, and at least the last exchange),
    `summary_tokens` what the summary may have (a tenth of what it stands for). With a `segment_store` the originals
    are kept there under the reference. A dialogue with nothing to sum up comes back as it was.
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
    told = _opened(older)
    summary = writer.summarize_messages(told, budget=budget)
    fidelity = FidelityChecker().check(summary.text, [text for text in map(message_text, told) if text.strip()])
    reference = _reference(older)
    if segment_store is not None:
        segment_store.store(MemorySegment(content=_dump(older), segment_id=reference))
    # What tools and strangers said is among it.
    lines = neutralised(summary.text, trusted=False).replace("\n", "\n| ")
    text = f"<memory>\n[{len(older)} earlier messages, in short; originals: {reference}]\n{lines}\n</memory>"
    shown = [*pinned, {"role": "user", "content": text}, *recent]
    return CompactedMessages(
        shown,
        compact_memory=text,
        summary=summary,
        fidelity=fidelity,
        reference=reference,
        originals=older,
        tokens_before=before,
        tokens=counter.count_messages(shown),
    )


def original_messages(reference: str, segment_store: SegmentStore) -> list[Message]:
    """The messages that a compacted text stands for."""
    found = segment_store.retrieve([reference])
    if not found:
        raise NotFound(f"there are no messages under the reference {reference!r}; they were never kept, or forgotten")
    messages: list[Message] = json.loads(found[0].content)
    return messages


def _verbatim_from(talk: Sequence[Message], most: int, counter: TokenCounter) -> int:
    """Where the part begins that stays word for word: whole exchanges from the end, at least the last one."""
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


def _opened(messages: Sequence[Message]) -> list[Message]:
    """The messages with those that `compact_messages` has made taken apart, a message for each line.

    As one text, an earlier summary would be shortened as a whole, and what it tells first would soon be gone.
    """
    found: list[Message] = []
    for message in messages:
        content = message.get("content")
        made = _COMPACTED.fullmatch(content) if isinstance(content, str) and message.get("role") == "user" else None
        if made is None:
            found.append(message)
        else:
            found += [{"role": "user", "content": line} for line in made[1].split("\n| ") if line.strip()]
    return found


def _dump(messages: Sequence[Message]) -> str:
    return json.dumps(list(messages), ensure_ascii=False, default=str)


def _reference(messages: Sequence[Message]) -> str:
    return f"dialogue-{hashlib.blake2b(_dump(messages).encode(), digest_size=12).hexdigest()}"
