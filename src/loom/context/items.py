"""What goes through the building of a context: candidates that sources offer, items that went in, what stayed out."""

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
    """How a candidate is shown."""

    TURN = "turn"
    """As a message of the conversation that is going on, in its own role."""
    QUOTE = "quote"
    """As a line quoted from memory, with where it comes from."""
    STATE = "state"
    """As a quoted value that changes by itself (a scope, a shared pool): after everything that lasts."""
    WISH = "wish"
    """As a standing instruction of the user, to be followed where it applies: directly before the question."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a source offers. `seq` is its number in the log, 0 for what is no record.

    `score` compares within one source, higher is better. `label` stands before the text where nobody speaks
    (`SHARED:plan`). `stands_for` are the ids that a summary replaces, or that a fact was derived from; `copies` those
    of memories that say the same. `tokens` are those of the whole record. `scorer` tells its passages apart where it
    was recalled.
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
        """Whether it stands after everything that lasts, and comes anew with each prompt."""
        return self.place in (Place.STATE, Place.WISH)

    @property
    def is_abridged(self) -> bool:
        """Whether it is a record in few words."""
        return self.id in self.stands_for

    def dropped(self, reason: str) -> DroppedItem:
        """What is said of it where it is not in the prompt."""
        return DroppedItem(self.id, self.source, self.tier, self.score, self.tokens, reason, self.text)

    @classmethod
    def of_record(cls, record: Record, **given: Any) -> Candidate:
        """A record as a candidate."""
        data = record.data if isinstance(record.data, Mapping) else None
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
            message=data,
            **given,
        )


@dataclass(frozen=True, slots=True)
class ContextItem:
    """Something that is in the prompt: where it came from, why it is there, and what it costs there.

    `tokens` is what it takes with its name, its heading and its message's overhead; of what stood in the prompt
    before, an even part of its message. Of what is `shortened`, a part of the text is not in the prompt; `reason`
    says how much, and the prompt has a mark in its place.
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
    """Something that was offered and is not in the prompt, and why. `tokens` are those of its text, 0 if unknown."""

    id: str
    source: str
    tier: str | None
    score: float
    tokens: int
    reason: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What became of a source: how much it offered, how much went in, and what went wrong, if anything."""

    name: str
    share: int
    offered: int
    used: int
    tokens: int
    error: str = ""
