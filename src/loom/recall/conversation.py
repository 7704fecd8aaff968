"""Conversations: the turns before and after a record, and how closely they belong together.

A turn is understood with its neighbours. They are looked up for each question; nothing is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from loom.index.analysis import role_mark
from loom.index.doc_values import DocValues, role_hash
from loom.storage.contract import Filter, Record
from loom.storage.search_view import SearchView

__all__ = ["WIDEST", "Conversation", "Listeners", "conversations_of", "speakers_of"]

# A longer pause separates two conversations of one session.
_LONGEST_PAUSE_US = 6 * 3_600 * 1_000_000
# Without a session, a turn and its reply belong together within this time.
_LONGEST_BREAK_US = 30 * 60 * 1_000_000
# The records within this distance of a seed in the log, of any session, are read together with it.
_NEARBY = 2
WIDEST = 2 * _NEARBY
"""The largest distance in the log between two records that only a hash places in one conversation."""

# The best seeds whose missing neighbours are looked up, each with a statement for either side.
_SOUGHT = 12
# The number of records that are read to find the next one without a session.
_FURTHEST = 12
# An assistant takes part in the conversation of a record if it speaks in this many records before it or after it.
_WITHIN = 16
_ASSISTANT = "assistant"
# The closeness of consecutive turns of one speaker; a turn and its reply have 1. Turns without a name may be of one
# speaker or of two.
_MONOLOGUE = 0.5
_UNNAMED = 0.8


class Conversation:
    """The records around seeds in their sessions that the filter admits as context.

    The parts of a filter for role, name and kind do not apply to context: another speaker may ask the question before
    an answer. Sessions are told apart by their hashes in the doc values; with `exact`, by their names.
    """

    def __init__(self, view: SearchView, wanted: Filter, reach: int, exact: bool = False) -> None:
        self._view = view
        self._wanted = wanted
        self._reach = reach
        anybody = wanted.role is None and wanted.name is None and wanted.kind is None
        self.filter = wanted if anybody else replace(wanted, role=None, name=None, kind=None)
        self._exact = exact
        self._mixed: set[tuple[int, int]] = set()
        self.turns: dict[int, DocValues] = {}
        self.following: dict[int, tuple[int, float]] = {}

    def look_around(self, seeds: Sequence[int], also: Collection[int]) -> dict[int, DocValues]:
        """Add the turns before and after the seeds. Return the doc values of these, of the seeds and of `also`.

        The best seeds come first. Neighbours in a session mostly have adjacent sequence numbers, which are read for
        all seeds at once. If other sessions wrote in between, the missing neighbours of the first seeds are read seed
        by seed.
        """
        around = range(-_NEARBY, _NEARBY + 1) if self._reach else ()
        near = {seed + step for seed in seeds for step in around}
        known = self._view.doc_values(sorted(near.union(seeds, also)), self.filter, also)
        if self._exact:
            self._mixed = self._view.mixed(seeds, _NEARBY)
        for place, seed in enumerate(seeds if self._reach else ()):
            if seed in known:
                self._chain(known[seed], known, seek=place < _SOUGHT)
        return known | self.turns

    def _chain(self, seed: DocValues, known: Mapping[int, DocValues], seek: bool) -> None:
        self.turns[seed.seq] = last = seed
        for one in self._beside(seed, known, -1, seek):
            if not (close := _closeness(one, last)):
                break
            self.following[one.seq] = last.seq, close
            self.turns[one.seq] = last = one
        last = seed
        for one in self._beside(seed, known, 1, seek):
            if not (close := _closeness(last, one)):
                break
            self.following[last.seq] = one.seq, close
            self.turns[one.seq] = last = one

    def _beside(self, seed: DocValues, known: Mapping[int, DocValues], step: int, seek: bool) -> Iterable[DocValues]:
        """Return the records before a seed, or after it, nearest first. Without `seek`, only those in `known`."""
        found: list[DocValues] = []
        for other in range(seed.seq + step, seed.seq + step * (_NEARBY + 1), step):
            one = known.get(other)
            if one is not None and one.session == seed.session and (seed.seq, other) not in self._mixed:
                found.append(one)
                if len(found) == self._reach:
                    return found
        if not seek:
            return found
        if seed.session:
            return self._view.beside(seed, self.filter, self._reach, before=step < 0)
        row = self._view.beside(seed, self.filter, _FURTHEST, before=step < 0)
        return [one for one in row if not one.session][: self._reach]

    def of_sessions(self, seeds: Sequence[int], most: int) -> dict[int, DocValues]:
        """Return further turns of the conversations of these records, nearest first, at most `most` of each."""
        found: dict[int, DocValues] = {}
        for seed in (self.turns[key] for key in seeds if key in self.turns):
            for before in (True, False) if seed.session else ():
                for one in self._view.beside(seed, self.filter, most // 2 + 1, before=before):
                    if abs(one.created_at - seed.created_at) <= _LONGEST_PAUSE_US:
                        found[one.seq] = one
        return found

    def admitted(self, keys: Sequence[int]) -> Collection[int]:
        """Return the records that are admitted as answers as well."""
        return keys if self.filter is self._wanted else self._view.admitted(keys, self._wanted)


class Listeners:
    """Finds the records of conversations in which an assistant takes part, by their roles. Valid as long as the view.

    For a record with a session, this is the case if the assistant says one of the turns around it; for a record
    without a session, if the assistant says anything in the namespace.
    """

    def __init__(self, view: SearchView) -> None:
        self._view = view
        self.is_assisted = view.text.frequencies([role_mark(_ASSISTANT)])[0] > 0
        """Whether an assistant says anything in the namespace."""
        self._known: dict[str, bool] = {}

    def hear(self, record: Record) -> bool:
        """Return whether an assistant takes part in the conversation of this record."""
        if not self.is_assisted or record.role == _ASSISTANT or record.session_id is None:
            return self.is_assisted
        if record.session_id not in self._known:
            self._known[record.session_id] = self._speaks_beside(record)
        return self._known[record.session_id]

    def _speaks_beside(self, record: Record) -> bool:
        assistant, said = role_hash(_ASSISTANT), Filter(derived=False)
        one = self._view.doc_values([record.seq], Filter()).get(record.seq)
        return one is not None and any(
            turn.role == assistant
            for before in (False, True)
            for turn in self._view.beside(one, said, _WITHIN, before=before)
        )


def _closeness(one: DocValues, after: DocValues) -> float:
    """Return the closeness of a record and the next one of its session, 0 to 1."""
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
    """Return a conversation number for each record, given in the order of the log; -1 for a record alone in its own.

    Sessions with colliding hashes count as one. That may change a score, but nominates no record.
    """
    numbers = [-1] * len(sessions)
    latest: dict[int, int] = {}  # the place of the last record of each session
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
    """Return a number for each speaker of several of these records; -1 for other records."""
    if not any(names):
        return [-1] * len(names)
    counts = Counter(filter(None, names))
    numbers = {name: number for number, name in enumerate(counts) if counts[name] > 1}
    return [numbers.get(name, -1) for name in names]
