"""The newest form of each state in a dialogue: a statement about a subject is removed when a later turn renews it.

The statements need not be worth keeping as facts. `state_wording` reads the state from a clause; this module compares
states, and removes replaced clauses from their turns. Events and their causes are never replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from loom.knowledge.extraction import may_state
from loom.knowledge.state_wording import (
    CHANGED,
    LASTING_SCALES,
    Frame,
    State,
    frame_in,
    has_one_value,
    state_in,
)
from loom.knowledge.summarizer import Turn
from loom.knowledge.wording import opens_reason
from loom.text.sentences import statements
from loom.text.statements import Statement, clauses

__all__ = ["is_state", "newest_states", "replaces"]

# A state is compared with this many earlier states of the same subject.
_LOOK_BACK: Final = 16


def replaces(newer: State, older: State) -> bool:
    """Whether two states exclude each other, so that the newer one replaces the older one."""
    if newer.subject != older.subject or (newer.value, newer.unit) == (older.value, older.unit):
        return False
    relations = {newer.relation, older.relation} - {CHANGED}
    if len(relations) > 1:
        return False
    sorts = {newer.sort, older.sort}
    plain = relations <= {"is"}
    attribute = plain and has_one_value(newer)
    if sorts == {"number"}:
        same_unit = newer.unit == older.unit or not (newer.unit and older.unit) or newer.relation == CHANGED
        return same_unit and (newer.renewed or attribute)
    if sorts == {"status"}:
        lasting = newer.renewed and LASTING_SCALES & newer.groups and LASTING_SCALES & older.groups
        return bool(newer.groups & older.groups or lasting)
    if sorts in ({"date"}, {"home"}) or (attribute and ("phrase" not in sorts or newer.renewed)):
        return True
    if sorts & {"date", "number", "status", "manner", "home"}:
        return newer.relation == CHANGED and sorts <= {"status", "name"}
    if "kind" in sorts and not newer.definite:
        return False
    return newer.renewed or (plain and newer.definite and newer.proper and older.proper)


def is_state(statement: Statement) -> bool:
    """Whether a clause of the statement gives the present state of something, or the value of an attribute."""
    if statement.machine or not may_state(statement, assistant=False):
        return False
    states = (state_in(part.text) for part in _parts(statement))
    return any(state is not None and (state.renewed or has_one_value(state)) for state in states)


class _Held(NamedTuple):
    """A clause with its state, if that is known, its words, its turn, and its place in the text of the turn."""

    state: State | None
    frame: Frame | None
    turn: int
    start: int
    end: int

    def is_renewed_by(self, newer: _Held) -> bool:
        if self.state is not None and newer.state is not None:
            # Two states in one turn are a list, unless the later one says that it is new.
            return (self.turn < newer.turn or newer.state.renewed) and replaces(newer.state, self.state)
        return self.frame is not None and newer.frame is not None and newer.frame.renews(self.frame)


def newest_states(turns: Sequence[Turn]) -> list[Turn]:
    """The turns, in the order of time, without the clauses whose state a later one replaces.

    Turns of tools are unchanged, and replace nothing. A turn without remaining clauses is left out.
    """
    held: dict[object, list[_Held]] = {}
    gone: dict[int, list[tuple[int, int]]] = {}
    for place, turn in enumerate(turns):
        if turn.role in ("tool", "function"):
            continue
        speaker = turn.speaker or turn.role or ""
        for clause in _stating_clauses(turn.text):
            state, frame = state_in(clause.text, speaker), frame_in(clause.text)
            newer = _Held(state, frame, place, clause.start, clause.end)
            for key in _keys(state, frame, speaker):
                before = held.setdefault(key, [])
                for older in before[-_LOOK_BACK:]:
                    if older.is_renewed_by(newer):
                        gone.setdefault(older.turn, []).append((older.start, older.end))
                        before.remove(older)
                before.append(newer)
    if not gone:
        return [*turns]
    left = []
    for place, turn in enumerate(turns):
        text = _without(turn.text, sorted({*gone[place]})) if place in gone else turn.text
        if text.strip(_MARKS) or place not in gone:
            left.append(turn if place not in gone else replace(turn, text=text))
    return left


_MARKS: Final = " .!?;,:。！？；，：\n"


def _keys(state: State | None, frame: Frame | None, speaker: str) -> Iterator[object]:
    """The keys by which clauses are compared: the subject of a state, and the first words of a frame."""
    if state is not None:
        yield state.subject
    if frame is not None and len(frame.words) > 2:
        yield ("" if _FIRST_PERSON.isdisjoint(frame.words) else speaker, *frame.words[:2])


_FIRST_PERSON: Final = frozenset(("i", "my", "me", "mine", "我"))


def _stating_clauses(text: str) -> Iterator[Statement]:
    """The clauses of a text that assert something. Clauses with a cause are left out, because they are events."""
    for statement in statements(text):
        if not statement.machine and may_state(statement, assistant=False):
            yield from _parts(statement)


def _parts(statement: Statement) -> list[Statement]:
    parts = clauses(statement)
    if len(parts) == 2 and statement.text[parts[0].end - statement.start] in ":：":
        parts = [statement]  # "Owner: Mira"
    return [] if any(opens_reason(part.text) for part in parts[1:]) else parts


_JOINING: Final = re.compile(r"[\s,;，；]*(?:(?:and|but|so) |而且|但是?|不过)?", re.IGNORECASE)
_ENDING: Final = re.compile(r"[.!?。！？]$")


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text without these clauses, and without the commas and conjunctions that only joined them."""
    kept = ""
    start = 0
    for begin, end in spans:
        kept += text[start:begin]
        ended = _ENDING.search(text[begin:end])
        start = end
        joined = _JOINING.match(text, end)
        if ended is None and joined is not None:
            start = joined.end()
        elif ended is not None and kept.rstrip()[-1:] in (",", ";", "，", "；"):
            kept = kept.rstrip(" ,;，；") + ended.group()
    return (kept + text[start:]).strip()
