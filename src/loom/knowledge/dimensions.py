"""Compression by dimension. Rules stay word for word, states keep their newest form, and events keep their causes.

`dimension_of` returns the dimension of a kept statement. `rules_in` removes the rules from a dialogue before it is
summarised, because a summary would shorten them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from loom.knowledge.instruction_changes import InstructionTopic, ends
from loom.knowledge.instructions import find_instructions
from loom.knowledge.summarizer import Turn
from loom.text.duplicates import normal_form
from loom.text.statement_kinds import StatementKind
from loom.types import InstructionKind

__all__ = ["Dimension", "Rules", "dimension_of", "rules_in"]

Dimension = Literal["type", "state", "event"]

_EVENTS: Final = frozenset(
    {
        StatementKind.FIX,
        StatementKind.ERROR,
        StatementKind.CHANGE,
        StatementKind.TEST,
        StatementKind.DECISION,
        StatementKind.REASON,
        StatementKind.EVENT,
    }
)


class Rules(NamedTuple):
    """The rules of a dialogue, word for word in their newest form, and its turns without them."""

    texts: tuple[str, ...]
    turns: tuple[Turn, ...]


def dimension_of(kind: str) -> Dimension:
    """Return the dimension of statements of this kind: event or state."""
    return "event" if kind in _EVENTS else "state"


def rules_in(turns: Iterable[Turn], known: Sequence[str] = ()) -> Rules:
    """Remove the standing instructions of the user from a dialogue, given in the order of time.

    `known` are rules from before the dialogue. A rule that a later one changes or withdraws is left out.
    """
    held: dict[str, InstructionTopic | None] = {}
    for text in known:
        held[text] = next((topic for _, topic in _instructions(text)), None)
    rest: list[Turn] = []
    for turn in turns:
        if turn.role != "user":
            rest.append(turn)
            continue
        left = turn.text
        for said, topic in _instructions(turn.text):
            for earlier in [one for one, about in held.items() if about is not None and ends(topic, about)]:
                del held[earlier]
            if topic.kind is not InstructionKind.WITHDRAWAL and normal_form(said) not in map(normal_form, held):
                held[said] = topic
            left = left.replace(said, "", 1)
        if left.strip(" .!?;,。！？；，\n"):
            rest.append(turn if left == turn.text else replace(turn, text=left.strip()))
    return Rules(tuple(held), tuple(rest))


def _instructions(text: str) -> list[tuple[str, InstructionTopic]]:
    """Return the instructions of a turn with their topics. Preferences are states, which may be shortened."""
    found = [one for one in find_instructions(text) if one.kind is not InstructionKind.PREFERENCE]
    return [(one.text, InstructionTopic.of(one.text, one.condition, one.kind, one.scope)) for one in found]
