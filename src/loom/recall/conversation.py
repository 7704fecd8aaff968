"""What was said around some records: the turns before and after them, and how much these have to do with one another.

A turn is understood with its neighbours. Looked up when a question comes; nothing of it is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from loom.index.doc_values import DocValues
from loom.storage.contract import Filter
from loom.storage.search_view import SearchView

__all__ = ["WIDEST", "Conversation", "conversations_of", "speakers_of"]

# Turns further apart than this are two conversations, also in one session.
_LONGEST_PAUSE_US = 6 * 3_600 * 1_000_000
# Without a session, a turn and the reply to it belong together only while they are this close.
_LONGEST_BREAK_US = 30 * 60 * 1_000_000
# Records whose numbers are this near to a seed's are read with it, in any session.
_NEARBY = 2
WIDEST = 2 * _NEARBY
"""The numbers of two records that were taken for one conversation by a hash alone differ by at most this."""

# No more records than this are read to find the next one without a session.
_FURTHEST = 12
# How close two turns are: consecutive turns of one speaker are less close than a turn and its reply. Unnamed speakers
# may be one or two.
_MONOLOGUE = 0.5
_UNNAMED = 0.8


class Conversation:
    """The records around some others in their sessions, as far as the filter admits them as context.

    What a filter says about speaker and kind is about the answers: the question before an answer may be anybody's.
    Sessions are told apart by hashes, as doc values have them; with `exact`, by their names.
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
        """Add what was said before and after the seeds; what is known of it, of them, and of the others given, which
        the filter admits.

        Neighbours in a session mostly have neighbouring numbers, so these are looked up for all in one go. Where
        others wrote in between, what is missing is looked for seed by seed.
        """
        around = range(-_NEARBY, _NEARBY + 1) if self._reach else ()
        near = {seed + step for seed in seeds for step in around}
        known = self._view.doc_values(sorted(near.union(seeds, also)), self.filter, also)
        if self._exact:
            self._mixed = self._view.mixed(seeds, _NEARBY)
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
        found: list[DocValues] = []
        for other in range(seed.seq + step, seed.seq + step * (_NEARBY + 1), step):
            one = known.get(other)
            if one is not None and one.session == seed.session and (seed.seq, other) not in self._mixed:
                found.append(one)
                if len(found) == self._reach:
                    return found
        if seed.session:
            return self._view.beside(seed, self.filter, self._reach, before=step < 0)
        row = self._view.beside(seed, self.filter, _FURTHEST, before=step < 0)
        return [one for one in row if not one.session][: self._reach]

    def of_sessions(self, seeds: Sequence[int], most: int) -> dict[int, DocValues]:
        """What else was said in the conversations of these, the nearest first, no more than `most` of each."""
        found: dict[int, DocValues] = {}
        for seed in (self.turns[key] for key in seeds if key in self.turns):
            for before in (True, False) if seed.session else ():
                for one in self._view.beside(seed, self.filter, most // 2 + 1, before=before):
                    if abs(one.created_at - seed.created_at) <= _LONGEST_PAUSE_US:
                        found[one.seq] = one
        return found

    def admitted(self, keys: Sequence[int]) -> Collection[int]:
        """Which of the records read are admitted as answers too."""
        return keys if self.filter is self._wanted else self._view.admitted(keys, self._wanted)


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
    """The numbers of the conversations of records in the order of the log; -1 for one that is alone in its own.

    Sessions whose hashes collide count as one here, which may change a score and chooses no record.
    """
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
