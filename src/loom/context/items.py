"""The values of a build: candidates that sources offer, items in the prompt, and items that were left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from loom.recall.passage_scores import PassageScorer
from loom.storage.contract import Record
from loom.types import Trust

__all__ = ["Candidate", "ContextItem", "DroppedItem", "Message", "Place", "SourceReport"]

Message = dict[str, Any]
"""A chat message in OpenAI's form: role, content, and for tools `tool_calls` or `tool_call_id`."""


class Place(StrEnum):
    """The form in which a candidate is shown."""

    TURN = "turn"
    """A message of the current conversation, in its own role."""
    QUOTE = "quote"
    """A line quoted from memory, with its source."""
    STATE = "state"
    """A quoted value that may change at any time (a scope, a shared pool), after everything that lasts."""
    WISH = "wish"
    """A standing instruction of the user, to be followed whenever it applies, directly before the question."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer of a source. `seq` is its sequence number in the log, 0 if it is not a record.

    `score` compares within one source, higher is better. `label` precedes the text of an entry that has no speaker
    (`SHARED:plan`). `stands_for` has the ids that a summary replaces or that a fact was derived from, `copies` the
    ids of memories with the same statement. `tokens` counts the whole record. `scorer` scores the passages of a
    recalled record.
    """

    id: str
    text: str
    source: str = ""
    tier: str | None = None
    score: float = 0.0
    reason: str = ""
    place: Place = Place.QUOTE
    seq: int = 0
    role: str | None = None
    name: str | None = None
    session_id: str | None = None
    trust: str = Trust.UNKNOWN
    kind: str = "message"
    created_at: datetime | None = None
    version: int = 1
    tokens: int = 0
    label: str = ""
    stands_for: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    message: Mapping[str, Any] | None = None
    scorer: PassageScorer | None = field(default=None, repr=False, compare=False)

    @property
    def is_passing(self) -> bool:
        """Whether the candidate comes after all lasting parts and is rendered again for each prompt."""
        return self.place in (Place.STATE, Place.WISH)

    @property
    def is_abridged(self) -> bool:
        """Whether it is a short form of a record."""
        return self.id in self.stands_for

    def dropped(self, reason: str) -> DroppedItem:
        """The report on a candidate that is not in the prompt."""
        return DroppedItem(self.id, self.source, self.tier, self.score, self.tokens, reason, self.text)

    @classmethod
    def of_record(cls, record: Record, **given: Any) -> Candidate:
        """A record as a candidate."""
        return cls(
            id=record.id,
            text=given.pop("text", record.content),
            seq=record.seq,
            role=record.role,
            name=record.name,
            session_id=record.session_id,
            trust=record.trust,
            kind=record.kind,
            created_at=record.created_at,
            version=record.version,
            tokens=record.tokens,
            message=record.data if isinstance(record.data, Mapping) else None,
            **given,
        )


@dataclass(frozen=True, slots=True)
class ContextItem:
    """An item in the prompt, with its source, its reason and its tokens.

    `tokens` includes its name, its heading and its share of the message overhead. An item of the previous prompt has
    an equal share of its message. If it is `shortened`, a part of its text is missing; `reason` says how much, and
    the prompt marks the gap.
    """

    id: str
    source: str
    tier: str | None
    score: float
    tokens: int
    reason: str
    place: Place = Place.QUOTE
    created_at: datetime | None = None
    seq: int = 0
    text: str = ""
    shortened: bool = False


@dataclass(frozen=True, slots=True)
class DroppedItem:
    """An item that was offered and is not in the prompt, with the reason. `tokens` counts its text, 0 if unknown."""

    id: str
    source: str
    tier: str | None
    score: float
    tokens: int
    reason: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The result of a source: the number of items that it offered and of those in the prompt, and its error if it
    failed."""

    name: str
    share: int
    offered: int
    used: int
    tokens: int
    error: str = ""
