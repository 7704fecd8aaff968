"""What was said around some records: the turns before and after them, and how much these have to do with one another.

A turn is understood with its neighbours. Looked up when a question comes; nothing of it is kept.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from loom.index.doc_values import DocValues, of_rows
from loom.storage.contract import Filter
from loom.storage.sqlite.filters import admitted, conditions, kept_out
from loom.storage.sqlite.namespace_index import NamespaceIndex
from loom.storage.sqlite.rows import DOC_VALUE_COLUMNS

__all__ = ["Conversation", "conversations_of", "speakers_of"]

_READ = f"SELECT {DOC_VALUE_COLUMNS} FROM records r"
# CROSS: from the numbers to the rows. It takes two thirds of the time of IN, and is the same text for any number.
_READ_ALL = f"SELECT {DOC_VALUE_COLUMNS} FROM json_each(?) j CROSS JOIN records r ON r.seq = j.value"
# The hash finds them, and the name decides: the session of one record is that of the one after it.
_IN_SESSION = (
    f"{_READ} INDEXED BY records_by_session WHERE r.session_hash = ?1 "
    "AND r.session = (SELECT o.session FROM records o WHERE o.seq = ?2) AND r.seq"
)
_IN_A_ROW = f"{_READ} INDEXED BY records_by_number WHERE r.namespace = ?1 AND r.seq"

# Turns further apart than this are two conversations, also in one session.
_LONGEST_PAUSE_US = 6 * 3_600 * 1_000_000
# Without a session, a turn and the reply to it belong together only while they are this close.
_LONGEST_BREAK_US = 30 * 60 * 1_000_000
# Records whose numbers are this near to a seed's are read with it, in any session.
_NEARBY = 2
# No more records than this are read to find the next one without a session.
_FURTHEST = 12
# How close two turns are: consecutive turns of one speaker are less close than a turn and its reply. Unnamed speakers
# may be one or two.
_MONOLOGUE = 0.5
_UNNAMED = 0.8


class Conversation:
    """The records around some others in their sessions, as far as the filter admits them as context.

    What a filter says about speaker and kind is about the answers: the question before an answer may be anybody's.
    """

    def __init__(
        self, connection: sqlite3.Connection, index: NamespaceIndex, wanted: Filter, namespace: int, reach: int
    ) -> None:
        self._connection = connection
        self._index = index
        self._namespace = namespace
        self._reach = reach
        anybody = wanted.role is None and wanted.name is None and wanted.kind is None
        self.filter = wanted if anybody else replace(wanted, role=None, name=None, kind=None)
        self._strict = None if anybody else conditions(wanted, namespace, connection)
        self.turns: dict[int, DocValues] = {}
        self.following: dict[int, tuple[int, float]] = {}

    @cached_property
    def _admits(self) -> tuple[str, list[Any]]:
        """The filter as SQL. Mostly nothing has to be asked of the database."""
        return conditions(self.filter, self._namespace, self._connection)

    def look_around(self, seeds: Sequence[int], also: Collection[int]) -> dict[int, DocValues]:
        """Add what was said before and after the seeds; what is known of it, of them, and of the others given, which
        the filter admits.

        Neighbours in a session mostly have neighbouring numbers, so these are looked up for all in one go. Where
        others wrote in between, what is missing is looked for seed by seed.
        """
        around = range(-_NEARBY, _NEARBY + 1) if self._reach else ()
        near = {seed + step for seed in seeds for step in around}
        known = self._look_up(sorted(near.union(seeds, also)), also)
        for seed in seeds if self._reach else ():
            if seed in known:
                self._chain(known[seed], known)
        return known | self.turns

    def _chain(self, seed: DocValues, known: Mapping[int, DocValues]) -> None:
        self.turns[seed.seq] = last = seed
        for one in self._beside(seed, known, -1):
            if not (close := _closeness(one, last)):
                break
            self.following[one.seq] = last.seq, close
            self.turns[one.seq] = last = one
        last = seed
        for one in self._beside(seed, known, 1):
            if not (close := _closeness(last, one)):
                break
            self.following[last.seq] = one.seq, close
            self.turns[one.seq] = last = one

    def _beside(self, seed: DocValues, known: Mapping[int, DocValues], step: int) -> Iterable[DocValues]:
        """The records before a seed, or after it, nearest first."""
        number, session = seed.seq, seed.session
        found: list[DocValues] = []
        for other in range(number + step, number + step * (_NEARBY + 1), step):
            one = known.get(other)
            if one is not None and one.session == session:
                found.append(one)
                if len(found) == self._reach:
                    return found
        return self._read(seed, before=step < 0)

    def _look_up(self, keys: list[int], known_admitted: Collection[int]) -> dict[int, DocValues]:
        """Those of these ascending numbers that are records which the filter admits."""
        known, left = self._index.doc_values(keys)
        unsure = [key for key in known if key not in known_admitted]
        if self._index.holds_forgotten:
            gone = known.keys() - admitted(self._connection, [*known], *self._admits)
        elif self.filter.narrows:
            gone = set(unsure) - admitted(self._connection, unsure, *self._admits)
        else:
            gone = kept_out(self._connection, unsure, self.filter.derived is False)
        for key in gone:
            del known[key]
        if left:
            where, values = self._admits
            rows = self._connection.execute(f"{_READ_ALL} WHERE {where}", (str(left), *values))
            known |= {one.seq: one for one in of_rows(rows)}
        return known

    def _read(self, seed: DocValues, before: bool) -> Iterable[DocValues]:
        if seed.session:
            return self._read_on(_IN_SESSION, seed.session, seed, before, self._reach)
        row = self._read_on(_IN_A_ROW, self._namespace, seed, before, _FURTHEST)
        return [one for one in row if not one.session][: self._reach]

    def _read_on(self, query: str, of: int, seed: DocValues, before: bool, most: int) -> list[DocValues]:
        """The records before a seed, or after it, nearest first, as the database has them in a row."""
        where, values = self._admits
        side = f"< ?2 AND {where} ORDER BY r.seq DESC" if before else f"> ?2 AND {where} ORDER BY r.seq"
        rows = self._connection.execute(f"{query} {side} LIMIT ?", (of, seed.seq, *values, most))
        return of_rows(rows)

    def of_sessions(self, seeds: Sequence[int], most: int) -> dict[int, DocValues]:
        """What else was said in the conversations of these, the nearest first, no more than `most` of each."""
        found: dict[int, DocValues] = {}
        for seed in (self.turns[key] for key in seeds if key in self.turns):
            if seed.session:
                for before in (True, False):
                    near = self._read_on(_IN_SESSION, seed.session, seed, before, most // 2 + 1)
                    found |= {
                        one.seq: one for one in near if abs(one.created_at - seed.created_at) <= _LONGEST_PAUSE_US
                    }
        return found

    def admitted(self, keys: Sequence[int]) -> set[int]:
        """Which of the records read are admitted as answers too."""
        if self._strict is None:
            return set(keys)
        return admitted(self._connection, keys, *self._strict)


def _closeness(one: DocValues, after: DocValues) -> float:
    """How much a record has to do with the one that was written after it in the same session, 0 to 1."""
    pause = abs(after.created_at - one.created_at)
    same_speaker = one.role == after.role and one.name == after.name
    if not one.session:
        is_dialogue = not same_speaker and (one.role or one.name) and (after.role or after.name)
        return 1.0 if is_dialogue and pause <= _LONGEST_BREAK_US else 0.0
    if pause > _LONGEST_PAUSE_US:
        return 0.0
    if not same_speaker:
        return 1.0
    return _MONOLOGUE if one.role or one.name else _UNNAMED


def conversations_of(sessions: Sequence[int], created_at: Sequence[int]) -> list[int]:
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


def speakers_of(names: Sequence[int]) -> list[int]:
    """The numbers of the speakers of several of these records; -1 for the others."""
    if not any(names):
        return [-1] * len(names)
    counts = Counter(filter(None, names))
    numbers = {name: number for number, name in enumerate(counts) if counts[name] > 1}
    return [numbers.get(name, -1) for name in names]
