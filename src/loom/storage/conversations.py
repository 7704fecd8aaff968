"""What was said around some records: the turns before and after them, and how much these have to do with one another.

A turn is understood with its neighbours. Read from the database when a question comes; nothing of it is kept.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from loom.storage.base import Filter
from loom.storage.counting import TOKENS
from loom.storage.filters import admitted, conditions

__all__ = ["Conversation", "Facts", "conversations_of", "speakers_of"]


class Facts(NamedTuple):
    """What is known of a record without its text."""

    seq: int
    session: int | None
    role: str | None
    name: str | None
    importance: float
    tokens: int
    created_at: int


# From a row, without a call in Python for each: a recall reads a hundred.
_facts = partial(tuple.__new__, Facts)
_COLUMNS = f"SELECT r.seq, r.session_hash, r.role, r.name, r.importance, {TOKENS}, r.created_at"
_FACTS = f"{_COLUMNS} FROM records r"
# CROSS: from the numbers to the rows. It takes two thirds of the time of IN, and is the same text for any number.
_FACTS_OF = f"{_COLUMNS} FROM json_each(?) j CROSS JOIN records r ON r.seq = j.value"

# Turns further apart than this are another conversation, though the session be the same.
_LONGEST_PAUSE_US = 6 * 3_600 * 1_000_000
# Without a session, a turn and the reply to it belong together only while they are this close.
_LONGEST_BREAK_US = 30 * 60 * 1_000_000
# Numbers so near to a seed's are read with it, whosever they are.
_NEARBY = 2
# Nor are more records than this looked at to find the next one without a session.
_FURTHEST = 12
# What one speaker says in a row need not be one thing; a turn and the reply to it are. Where nobody is named, it may
# be either.
_MONOLOGUE = 0.5
_NOBODY = 0.8


class Conversation:
    """The records around some others in their sessions, as far as the filter admits them as context.

    What a filter says about speaker and kind is about the answers: the question before an answer may be anybody's.
    """

    def __init__(self, connection: sqlite3.Connection, wanted: Filter, namespace: int, reach: int) -> None:
        self._connection = connection
        self._reach = reach
        anybody = wanted.role is None and wanted.name is None and wanted.kind is None
        self.filter = wanted if anybody else replace(wanted, role=None, name=None, kind=None)
        self._strict = None if anybody else conditions(wanted, namespace, connection)
        self._where, self._values = conditions(self.filter, namespace, connection)
        where = self._where
        in_session = f"{_FACTS} INDEXED BY records_by_session WHERE r.session_hash = ? AND r.seq"
        self._before = f"{in_session} < ? AND {where} ORDER BY r.seq DESC LIMIT ?"
        self._after = f"{in_session} > ? AND {where} ORDER BY r.seq LIMIT ?"
        in_a_row = f"{_FACTS} INDEXED BY records_by_number WHERE r.namespace = ? AND r.seq"
        self._row_before = f"{in_a_row} < ? AND {where} ORDER BY r.seq DESC LIMIT ?"
        self._row_after = f"{in_a_row} > ? AND {where} ORDER BY r.seq LIMIT ?"
        self._namespace = namespace
        self.facts: dict[int, Facts] = {}
        self.following: dict[int, tuple[int, float]] = {}

    def look_around(self, seeds: Sequence[int], also: Iterable[int]) -> dict[int, Facts]:
        """Add what was said before and after the seeds; what is known of it, of them, and of the others given.

        Neighbours in a session mostly have neighbouring numbers, so these are read for all in one go (a third of the
        time). Where others wrote in between, what is missing is looked for seed by seed.
        """
        around = range(-_NEARBY, _NEARBY + 1) if self._reach else ()
        near = {seed + step for seed in seeds for step in around}
        known = self._read_all(sorted(near.union(seeds, also)))
        for seed in seeds if self._reach else ():
            if seed in known:
                self._chain(known[seed], known)
        return known | self.facts

    def _chain(self, seed: Facts, known: Mapping[int, Facts]) -> None:
        self.facts[seed.seq] = last = seed
        for one in self._beside(seed, known, -1):
            if not (close := _closeness(one, last)):
                break
            self.following[one.seq] = last.seq, close
            self.facts[one.seq] = last = one
        last = seed
        for one in self._beside(seed, known, 1):
            if not (close := _closeness(last, one)):
                break
            self.following[last.seq] = one.seq, close
            self.facts[one.seq] = last = one

    def _beside(self, seed: Facts, known: Mapping[int, Facts], step: int) -> Iterable[Facts]:
        """The records before a seed, or after it, nearest first."""
        number, session, *_ = seed
        found: list[Facts] = []
        for other in range(number + step, number + step * (_NEARBY + 1), step):
            one = known.get(other)
            if one is not None and one.session == session:
                found.append(one)
                if len(found) == self._reach:
                    return found
        return self._read(seed, before=step < 0)

    def _read_all(self, keys: list[int]) -> dict[int, Facts]:
        rows = self._connection.execute(f"{_FACTS_OF} WHERE {self._where}", (str(keys), *self._values)).fetchall()
        return {one[0]: one for one in map(_facts, rows)}

    def _read(self, seed: Facts, before: bool) -> Iterable[Facts]:
        if seed.session is not None:
            query = self._before if before else self._after
            rows = self._connection.execute(query, (seed.session, seed.seq, *self._values, self._reach)).fetchall()
            return map(_facts, rows)
        query = self._row_before if before else self._row_after
        rows = self._connection.execute(query, (self._namespace, seed.seq, *self._values, _FURTHEST)).fetchall()
        return [one for one in map(_facts, rows) if one.session is None][: self._reach]

    def of_sessions(self, seeds: Sequence[int], most: int) -> dict[int, Facts]:
        """What else was said in the conversations of these, the nearest first, no more than `most` of each."""
        found: dict[int, Facts] = {}
        for seed in (self.facts[key] for key in seeds if key in self.facts):
            if seed.session is not None:
                for query in (self._before, self._after):
                    rows = self._connection.execute(query, (seed.session, seed.seq, *self._values, most // 2 + 1))
                    near = map(_facts, rows.fetchall())
                    found |= {
                        one.seq: one for one in near if abs(one.created_at - seed.created_at) <= _LONGEST_PAUSE_US
                    }
        return found

    def admitted(self, keys: Sequence[int]) -> set[int]:
        """Which of the records read are admitted as answers too."""
        if self._strict is None:
            return set(keys)
        return admitted(self._connection, keys, *self._strict)


def _closeness(one: Facts, after: Facts) -> float:
    """How much a record has to do with the one that was written after it in the same session, 0 to 1."""
    _, session, role, name, _, _, earlier = one
    _, _, next_role, next_name, _, _, later = after
    pause = abs(later - earlier)
    same_speaker = role == next_role and name == next_name
    is_named = bool(role or name)
    if session is None:
        is_dialogue = not same_speaker and is_named and bool(next_role or next_name)
        return 1.0 if is_dialogue and pause <= _LONGEST_BREAK_US else 0.0
    if pause > _LONGEST_PAUSE_US:
        return 0.0
    if not same_speaker:
        return 1.0
    return _MONOLOGUE if is_named else _NOBODY


def conversations_of(sessions: Sequence[int | None], created_at: Sequence[int]) -> list[int]:
    """The numbers of the conversations of records in the order of the log; -1 for one that is alone in its own."""
    numbers = [-1] * len(sessions)
    latest: dict[int, int] = {}  # the place of the record that came last in each session
    for place, session in enumerate(sessions):
        if not session:
            continue
        before = latest.get(session)
        latest[session] = place
        if before is not None and abs(created_at[place] - created_at[before]) <= _LONGEST_PAUSE_US:
            if numbers[before] < 0:
                numbers[before] = before
            numbers[place] = numbers[before]
    return numbers


def speakers_of(names: Sequence[str | None]) -> list[int]:
    """The numbers of the speakers of several of these records; -1 for the others."""
    counts = Counter(filter(None, names))
    numbers = {name: number for number, name in enumerate(counts) if counts[name] > 1}
    return [numbers.get(name or "", -1) for name in names]
