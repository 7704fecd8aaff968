"""Searching: candidates from the indexes of this process, and which of them a filter admits.

The index is brought up to the snapshot that the filter is asked on. One whose files are missing or damaged is
rebuilt from the records by the way.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from loom.errors import CorruptStore, InvalidInput, WrongDimension
from loom.storage.analysis import FOUND_BY, index_terms, mapping, speaker_marks
from loom.storage.archive import CONTENT
from loom.storage.associations import Source, associated_terms
from loom.storage.base import Candidates, Filter, Match, Nominated, Probe, Vector
from loom.storage.engine import Engine, to_micros
from loom.storage.filters import conditions
from loom.storage.naming import UNNAMED_KINDS, is_names, named, names_in, nodes_of_name
from loom.storage.projections import TEXT, VECTORS, NamespaceIndex, StaleProjection, read_state
from loom.storage.segments import DamagedSegment
from loom.storage.text_index import SILENT
from loom.storage.upkeep import Upkeep
from loom.storage.vector_index import VectorIndex
from loom.storage.worker import LeaseLost

__all__ = ["Searcher", "check_limit"]

Answer = TypeVar("Answer")

# A filter that admits fewer records than this is scored exactly, record by record.
_EXACT_SUBSET = 50_000
# For how many derived records beside each other one there is room in what is asked for at first.
_MOST_DERIVED = 6.0

_Nominated = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
_Nominate = Callable[[sqlite3.Connection, NamespaceIndex, int, "npt.NDArray[np.int64] | None"], _Nominated]


class Searcher:
    """Search over one namespace."""

    def __init__(self, engine: Engine, upkeep: Upkeep) -> None:
        self._engine = engine
        self._upkeep = upkeep
        self._number = upkeep.namespace

    def search_text(self, query: Mapping[str, float], limit: int, wanted: Filter) -> list[Match]:
        return self._search(limit, wanted, self._by_words(query)) if query else []

    def search_vectors(self, query: Vector, limit: int, wanted: Filter) -> list[Match]:
        return self._search(limit, wanted, self._by_meaning(query))

    def _by_words(self, query: Mapping[str, float]) -> _Nominate:
        def nominate(
            connection: sqlite3.Connection, index: NamespaceIndex, count: int, among: npt.NDArray[np.int64] | None
        ) -> _Nominated:
            return index.text.search(query, count, among=among, terms_of=partial(_terms_of, connection))

        return nominate

    def _by_names(self, query: Mapping[str, float], names: _NamesRead) -> _Nominate:
        """By the names that a model read in the records: what holds them is found, and stands for its source."""
        asked = {named(node): weight for node, weight in query.items()}

        def nominate(
            connection: sqlite3.Connection, index: NamespaceIndex, count: int, among: npt.NDArray[np.int64] | None
        ) -> _Nominated:
            if among is not None:
                among = np.unique(_as_array(one.seq for one in names.of(among.tolist())))
            keys, scores = index.text.search(asked, count, among=among)
            sources = {one.seq: one.source for one in names.held_by(keys.tolist())}
            here = [place for place, key in enumerate(keys.tolist()) if key in sources]
            return _as_array(sources[int(keys[place])] for place in here), scores[here]

        return nominate

    def _by_meaning(self, query: Vector) -> _Nominate:
        def nominate(
            connection: sqlite3.Connection, index: NamespaceIndex, count: int, among: npt.NDArray[np.int64] | None
        ) -> _Nominated:
            vectors = self._vectors_for(index, query)
            if vectors is None:
                return np.empty(0, dtype=np.int64), np.empty(0)
            return vectors.search(query, count, among=among)

        return nominate

    def _vectors_for(self, index: NamespaceIndex, query: Vector) -> VectorIndex | None:
        """The vectors that a query can be compared with; None where they are of another space than it."""
        if index.vectors is None or index.space != self._upkeep.space:
            return None
        if len(query) != index.vectors.dimensions:
            raise WrongDimension(
                f"the query vector has {len(query)} dimensions; this store holds {index.vectors.dimensions}"
            )
        return index.vectors

    def candidates(self, probe: Probe, limit: int, vector_limit: int, wanted: Filter) -> Candidates:
        """What words, meaning, conversation and associations nominate, each scored by all, on one snapshot."""
        return self._answer(lambda: self._candidates(probe, limit, vector_limit, wanted))

    def _candidates(self, probe: Probe, limit: int, vector_limit: int, wanted: Filter) -> Candidates:
        with self._fresh_index() as (connection, index):
            synonyms = _synonyms(index, probe)
            query = {**probe.words, **synonyms, **probe.marks}
            by_meaning: dict[int, float] = {}
            if probe.vector is not None:
                near = self._by_meaning(probe.vector)
                by_meaning = self._admitted(connection, index, vector_limit, wanted, near)
            by_words: dict[int, float] = {}
            passed: dict[int, float] = {}
            if query:
                by_words = self._admitted(connection, index, limit, wanted, self._by_words(query), passed)
            nominated = dict.fromkeys(by_words, Nominated.WORDS)
            for key in by_meaning:
                nominated[key] = nominated.get(key, Nominated(0)) | Nominated.MEANING
            names = _NamesRead(connection, wanted) if probe.links and _has_names(index, wanted) else None
            if names is not None and probe.words:
                by_names = self._admitted(connection, index, limit, wanted, self._by_names(probe.words, names))
                for key in by_names:
                    nominated[key] = nominated.get(key, Nominated(0)) | Nominated.NAMES
                by_words = _together(by_words, by_names)
            seeds = _seeds(by_words, by_meaning, probe.seeds)
            conversation = _Conversation(connection, wanted, self._number, probe.reach)
            if query and conversation.filter != wanted:  # an answer may be found by what somebody else said
                others = self._admitted(connection, index, probe.seeds, conversation.filter, self._by_words(query))
                seeds = list(dict.fromkeys([*seeds, *others]))
            # Where words find enough and there is meaning as well, following the links brings nothing more (82.4 %
            # recall@10 on LoCoMo with and without) and takes a sixth of a recall. With words alone they bring 79.5 %
            # to 80.6 %, and where words find too little, what the nearest by meaning names leads on.
            worded = [key for key, score in by_words.items() if score > _SILENCE]
            few = len(worded) < limit
            sources = _sources(worded, list(by_meaning))
            links: dict[str, float] = {}
            if few or not by_meaning:
                links = _links(connection, index, probe, sources, bool(by_meaning), names)
            linking = [self._by_words(links)] if links else []
            if links and names is not None:
                linking.append(self._by_names(links, names))
            for nominate in linking:
                for key in self._admitted(connection, index, max(1, limit // 4), wanted, nominate):
                    nominated[key] = nominated.get(key, Nominated(0)) | Nominated.LINKS
            facts = conversation.look_around(seeds, nominated)
            strangers = [key for key in conversation.facts if key not in nominated]
            kept = conversation.admitted(strangers)
            for key in strangers:
                nominated[key] = Nominated.CONTEXT if key in kept else Nominated(0)
            if probe.links and len(nominated) < limit:  # words and meaning leave room: their sessions fill it
                members = conversation.of_sessions(sources, limit - len(nominated))
                facts |= members
                for key in conversation.admitted(list(members)):
                    nominated[key] = nominated.get(key, Nominated(0)) | Nominated.LINKS
            found_all = self._collected(index, probe, query, synonyms, links, nominated, facts, conversation)
            if names is not None:
                found_all = _with_names(index, names, probe.words, links, found_all)
            return replace(found_all, passed_over=passed)

    def _collected(
        self,
        index: NamespaceIndex,
        probe: Probe,
        query: Mapping[str, float],
        synonyms: Mapping[str, float],
        links: Mapping[str, float],
        nominated: Mapping[int, int],
        facts: Mapping[int, _Facts],
        conversation: _Conversation,
    ) -> Candidates:
        """Everything known about the nominated and their context, in columns."""
        listed = [key for key in sorted(nominated) if key in facts]
        keys = np.array(listed, dtype=np.int64)
        table, weights, frequencies = index.text.contributions(query, keys)
        split = len(probe.words)
        end = split + len(synonyms)
        scale = np.array(list(synonyms.values()))
        meaning = np.full(len(keys), np.nan)
        if probe.vector is not None and (vectors := self._vectors_for(index, probe.vector)) is not None:
            having, cosines = vectors.score(probe.vector, keys)
            meaning[keys.searchsorted(having)] = cosines
        known = [facts[key] for key in listed]
        created_at = np.array([one.created_at for one in known], dtype=np.int64)
        places = {key: place for place, key in enumerate(listed)}
        following = np.full(len(keys), -1, dtype=np.intp)
        closeness = np.zeros(len(keys))
        for key, (after, close) in conversation.following.items():
            if key in places and after in places:
                following[places[key]], closeness[places[key]] = places[after], close
        return Candidates(
            keys=keys,
            nominated=np.array([int(nominated[key]) for key in listed], dtype=np.uint8),
            words=table[:split],
            weights=weights[:split],
            frequencies=frequencies[:split],
            marks=table[end:],
            spread=frequencies[end:],
            synonym_terms=tuple(synonyms),
            synonyms=table[split:end] / scale[:, np.newaxis],
            synonym_weights=weights[split:end] / scale,
            meaning=meaning,
            link_terms=tuple(links),
            links=index.text.contributions(links, keys)[0] if links else np.zeros((0, len(keys))),
            following=following,
            closeness=closeness,
            sessions=_conversations([one.session for one in known], created_at),
            speakers=_speakers([one.name for one in known]),
            created_at=created_at,
            tokens=np.array([one.tokens for one in known], dtype=np.int64),
            importance=np.array([one.importance for one in known]),
        )

    def _search(self, limit: int, wanted: Filter, nominate: _Nominate) -> list[Match]:
        def ask() -> dict[int, float]:
            with self._fresh_index() as (connection, index):
                return self._admitted(connection, index, limit, wanted, nominate)

        return [Match(key, score) for key, score in self._answer(ask).items()]

    def _answer(self, ask: Callable[[], Answer]) -> Answer:
        """Ask; where a segment turns out to be damaged inside, make the indexes again and ask once more."""
        try:
            return ask()
        except DamagedSegment:
            for kind in (TEXT, VECTORS):
                with self._engine.read() as connection:
                    generation = read_state(connection, self._number, kind).generation
                self._repair(StaleProjection(kind, generation))
            return ask()

    def _admitted(
        self,
        connection: sqlite3.Connection,
        index: NamespaceIndex,
        limit: int,
        wanted: Filter,
        nominate: _Nominate,
        passed: dict[int, float] | None = None,
    ) -> dict[int, float]:
        """The best of an index that the filter admits, with their scores, best first.

        Where it only keeps out what is derived or older, those go into `passed`.
        """
        check_limit(limit)
        # Mostly the filter admits most of what is found: ask for a few more, and see who may stay.
        count = limit + 8
        if wanted.derived is False and index.derived:
            # What was drawn from a record is found by the same words, and being short it comes before it. Asking once
            # more, for eight times as many, took five times as long where there were four facts to ten records.
            others = max(1, index.text.documents - index.derived)
            count += int(limit * min(_MOST_DERIVED, 2 * index.derived / others))
        keys, scores = nominate(connection, index, count, None)
        if not wanted.narrows:
            gone = _kept_out(connection, keys, wanted.derived is False)
            if not gone:  # mostly
                return dict(zip(keys[:limit].tolist(), scores[:limit].tolist(), strict=True))
            kept = set(keys.tolist()) - gone
            if passed is not None:
                found = zip(keys.tolist(), scores.tolist(), strict=True)
                passed.update((key, score) for key, score in found if key in gone)
        else:
            kept = _admitted(connection, keys, *conditions(wanted, self._number, connection))
        if len(kept) < limit and len(keys) >= count:
            keys, scores, kept = self._search_further(connection, index, limit, wanted, nominate)
        pairs = zip(keys.tolist(), scores.tolist(), strict=True)
        return dict([pair for pair in pairs if pair[0] in kept][:limit])

    def _search_further(
        self, connection: sqlite3.Connection, index: NamespaceIndex, limit: int, wanted: Filter, nominate: _Nominate
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], set[int]]:
        """The filter admits few: search exactly among those, or, where they are many, ever deeper."""
        where, values = conditions(wanted, self._number, connection)
        among = _subset(connection, where, values, _EXACT_SUBSET) if wanted.narrows else None
        if among is not None:
            keys, scores = nominate(connection, index, limit, among)
            return keys, scores, set(keys.tolist())
        count = limit
        while True:
            count *= 8
            keys, scores = nominate(connection, index, count, None)
            kept = _admitted(connection, keys, where, values)
            if len(kept) >= limit or len(keys) < count:
                return keys, scores, kept

    @contextmanager
    def _fresh_index(self) -> Iterator[tuple[sqlite3.Connection, NamespaceIndex]]:
        """The index of this process, brought up to a snapshot; repairs a projection that is damaged."""
        own = self._upkeep
        for _ in range(100):
            with self._engine.read() as connection, own.index.lock:
                try:
                    own.index.refresh(connection)
                except StaleProjection as stale:
                    damage = stale
                else:
                    yield connection, own.index
                    return
            self._repair(damage)
        raise CorruptStore("the index of this store cannot be rebuilt; run check()")

    def _repair(self, damage: StaleProjection) -> None:
        """Rebuild a projection whose files are missing or damaged, unless it has changed meanwhile.

        Mostly it has: another process merged some segments after this one looked.
        """
        with self._engine.read() as connection:
            if read_state(connection, self._number, damage.kind).generation != damage.generation:
                return
        if self._engine.read_only:
            self._upkeep.index.rely_on_records(damage.kind, damage.generation)
        else:
            self.rebuild(damage.kind, damage.generation)

    def rebuild(self, kind: str, generation: int | None = None) -> None:
        """Make a projection again from the records; with `generation`, only if it is still that one."""
        own = self._upkeep
        with own.worker.lease(wait_s=60.0) as fence:
            if fence is None:
                return
            projector = own.projector(fence)
            try:
                if projector.reset(kind, generation):
                    while projector.due(kind):
                        projector.extend(kind)
            except (LeaseLost, StaleProjection):
                return  # somebody else is at it: the caller looks again


class _Facts(NamedTuple):
    """What is known of a record without its text."""

    seq: int
    session: int | None
    role: str | None
    name: str | None
    importance: float
    tokens: int
    created_at: int


_COLUMNS = "SELECT r.seq, r.session_hash, r.role, r.name, r.importance, r.tokens, r.created_at"
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


class _Conversation:
    """The records around some others in their sessions, as far as the filter admits them as context.

    What a filter says about speaker and kind is about the answers: the question before an answer may be anybody's.
    """

    def __init__(self, connection: sqlite3.Connection, wanted: Filter, namespace: int, reach: int) -> None:
        self._connection = connection
        self._reach = reach
        self.filter = replace(wanted, role=None, name=None, kind=None)
        self._strict = None if self.filter == wanted else conditions(wanted, namespace, connection)
        self._where, self._values = conditions(self.filter, namespace, connection)
        where = self._where
        in_session = f"{_FACTS} INDEXED BY records_by_session WHERE r.session_hash = ? AND r.seq"
        self._before = f"{in_session} < ? AND {where} ORDER BY r.seq DESC LIMIT ?"
        self._after = f"{in_session} > ? AND {where} ORDER BY r.seq LIMIT ?"
        in_a_row = f"{_FACTS} INDEXED BY records_by_number WHERE r.namespace = ? AND r.seq"
        self._row_before = f"{in_a_row} < ? AND {where} ORDER BY r.seq DESC LIMIT ?"
        self._row_after = f"{in_a_row} > ? AND {where} ORDER BY r.seq LIMIT ?"
        self._namespace = namespace
        self.facts: dict[int, _Facts] = {}
        self.following: dict[int, tuple[int, float]] = {}

    def look_around(self, seeds: Sequence[int], also: Iterable[int]) -> dict[int, _Facts]:
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

    def _chain(self, seed: _Facts, known: Mapping[int, _Facts]) -> None:
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

    def _beside(self, seed: _Facts, known: Mapping[int, _Facts], step: int) -> Iterable[_Facts]:
        """The records before a seed, or after it, nearest first."""
        found: list[_Facts] = []
        for number in range(seed.seq + step, seed.seq + step * (_NEARBY + 1), step):
            one = known.get(number)
            if one is not None and one.session == seed.session:
                found.append(one)
                if len(found) == self._reach:
                    return found
        return self._read(seed, before=step < 0)

    def _read_all(self, keys: Sequence[int]) -> dict[int, _Facts]:
        query = f"{_FACTS_OF} WHERE {self._where}"
        rows = self._connection.execute(query, (json.dumps(keys), *self._values)).fetchall()
        return {row[0]: _Facts._make(row) for row in rows}

    def _read(self, seed: _Facts, before: bool) -> Iterable[_Facts]:
        if seed.session is not None:
            query = self._before if before else self._after
            rows = self._connection.execute(query, (seed.session, seed.seq, *self._values, self._reach)).fetchall()
            return map(_Facts._make, rows)
        query = self._row_before if before else self._row_after
        rows = self._connection.execute(query, (self._namespace, seed.seq, *self._values, _FURTHEST)).fetchall()
        return [one for one in map(_Facts._make, rows) if one.session is None][: self._reach]

    def of_sessions(self, seeds: Sequence[int], most: int) -> dict[int, _Facts]:
        """What else was said in the conversations of these, the nearest first, no more than `most` of each."""
        found: dict[int, _Facts] = {}
        for seed in (self.facts[key] for key in seeds if key in self.facts):
            if seed.session is not None:
                for query in (self._before, self._after):
                    rows = self._connection.execute(query, (seed.session, seed.seq, *self._values, most // 2 + 1))
                    near = map(_Facts._make, rows.fetchall())
                    found |= {
                        one.seq: one for one in near if abs(one.created_at - seed.created_at) <= _LONGEST_PAUSE_US
                    }
        return found

    def admitted(self, keys: Sequence[int]) -> set[int]:
        """Which of the records read are admitted as answers too."""
        if self._strict is None:
            return set(keys)
        return _admitted(self._connection, np.array(keys, dtype=np.int64), *self._strict)


def _closeness(one: _Facts, after: _Facts) -> float:
    """How much a record has to do with the one that was written after it in the same session, 0 to 1."""
    pause = abs(after.created_at - one.created_at)
    speaker, other = (one.role, one.name), (after.role, after.name)
    if one.session is None:
        is_dialogue = speaker != other and any(speaker) and any(other)
        return 1.0 if is_dialogue and pause <= _LONGEST_BREAK_US else 0.0
    if pause > _LONGEST_PAUSE_US:
        return 0.0
    if speaker != other:
        return 1.0
    return _MONOLOGUE if any(speaker) else _NOBODY


def _conversations(sessions: Sequence[int | None], created_at: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """The numbers of the conversations of records in the order of the log; -1 for one that is alone in its own."""
    known = np.array([session or 0 for session in sessions], dtype=np.int64)
    order = known.argsort(kind="stable")
    of, moments = known[order], created_at[order]
    places = np.zeros(len(order), dtype=np.intp)
    begins = (of[1:] != of[:-1]) | (np.abs(moments[1:] - moments[:-1]) > _LONGEST_PAUSE_US)
    begins.cumsum(out=places[1:])
    alone = (np.bincount(places)[places] < 2) | (of == 0)
    places[alone] = -1
    numbers = np.empty_like(places)
    numbers[order] = places
    return numbers


def _speakers(names: Sequence[str | None]) -> npt.NDArray[np.intp]:
    """The numbers of the speakers of several of these records; -1 for the others."""
    counts = Counter(filter(None, names))
    if not counts:
        return np.full(len(names), -1, dtype=np.intp)
    numbers = {name: number for number, name in enumerate(counts) if counts[name] > 1}
    return np.array([numbers.get(name or "", -1) for name in names], dtype=np.intp)


def _seeds(by_words: Mapping[int, float], by_meaning: Mapping[int, float], limit: int) -> list[int]:
    """The best of both, best first: two by words for each one by meaning, while there are both."""
    worded, meant = list(by_words), list(by_meaning)
    most = limit if not meant else limit - limit // 3
    return list(dict.fromkeys(worded[:most] + meant[: max(limit // 3, limit - len(worded))]))


# So many other words for a question's own are looked for, and in a large store none that stands in more than this
# share of it: that says too little for what it costs.
_MOST_SYNONYMS = 24
_COMMON_SYNONYM, _LARGE = 0.02, 20_000


def _synonyms(index: NamespaceIndex, probe: Probe) -> dict[str, float]:
    """The terms of other words that stand in some record and are not the question's own, those that weigh most."""
    names = [name for name in probe.synonyms if name not in probe.words and name not in probe.marks]
    if not names:
        return {}
    documents = index.text.documents
    most = documents if documents < _LARGE else _COMMON_SYNONYM * documents
    counted = zip(names, index.text.frequencies(names), strict=True)
    found = [
        (-probe.synonyms[name] * math.log(1.0 + documents / count), name)
        for name, count in counted
        if 0 < count <= most
    ]
    return {name: probe.synonyms[name] for _, name in sorted(found)[:_MOST_SYNONYMS]}


# So many of the best are asked what they share with others: each costs 0.2 ms.
_LINKING = 2
# Marks alone reach no more than this: who or when is no reason to follow what else a record says.
_SILENCE = 100 * SILENT


def _sources(worded: Sequence[int], nearest: Sequence[int]) -> list[int]:
    """The records that links start from: the nearest by meaning, and the best by words."""
    meant = nearest[: _LINKING // 2 if worded else _LINKING]
    return list(dict.fromkeys([*meant, *worded[:_LINKING]]))[:_LINKING]


def _links(
    connection: sqlite3.Connection,
    index: NamespaceIndex,
    probe: Probe,
    best: Sequence[int],
    names_only: bool,
    names: _NamesRead | None,
) -> dict[str, float]:
    """The terms, names and speakers that tie these records to others; with `names_only`, no other terms."""
    if not probe.links or not best:
        return {}
    marks = ", ".join("?" * len(best))
    query = f"SELECT r.seq, r.name, r.metadata, ifnull({CONTENT}, '') FROM records r WHERE r.seq IN ({marks})"
    read = {row[0]: row[1:] for row in connection.execute(query, [*best])}
    nodes: dict[int, list[str]] = {}
    for one in names.of(best) if names is not None else ():
        nodes[one.source] = [node for name in one.names for node in nodes_of_name(name)]
    sources = [
        Source(content, speaker_marks(name), mapping(metadata), 1.0 / (2.0 + place), nodes.get(key, ()))
        for place, key in enumerate(best)
        if key in read
        for name, metadata, content in (read[key],)
    ]

    def frequencies(terms: Sequence[str]) -> list[int]:
        """In how many records each stands, or is read by a model."""
        found = index.text.frequencies(terms)
        if names is None:
            return found
        return [sum(both) for both in zip(found, index.text.frequencies([*map(named, terms)]), strict=True)]

    return associated_terms(
        sources, probe.words, frequencies, index.text.documents, probe.links, names_only=names_only
    )


# --- names that a model read ---------------------------------------------------------------------------------

# From records of names to what they were read in, and back, by the hashes of both ids. What else they were drawn from
# are turns before it.
_PAIR = "SELECT n.seq, n.metadata, r.seq, r.id, r.version FROM json_each(?) j"
_WITHDRAWN = "EXISTS (SELECT 1 FROM supersessions s WHERE s.record = n.seq)"
_HOLDS = f"WHERE {is_names('n')} AND n.committed_at <= ? AND NOT {_WITHDRAWN}"
_SOURCES_OF = (
    f"{_PAIR} CROSS JOIN records n ON n.seq = j.value CROSS JOIN edges e ON e.derived = n.id_hash "
    f"CROSS JOIN records r ON r.id_hash = e.source {_HOLDS}"
)
_NAMES_OF = (
    f"{_PAIR} CROSS JOIN records r ON r.seq = j.value CROSS JOIN edges e ON e.source = r.id_hash "
    f"CROSS JOIN records n ON n.id_hash = e.derived {_HOLDS}"
)
_ALWAYS = 2**62


class _Names(NamedTuple):
    """A record of names, its names, and the record that a model read them in."""

    seq: int
    names: Mapping[str, str]
    source: int


class _NamesRead:
    """What a model read in records, as far as it was known at the moment that the filter asks for."""

    def __init__(self, connection: sqlite3.Connection, wanted: Filter) -> None:
        self._connection = connection
        self._until = _ALWAYS if wanted.known_at is None else to_micros(wanted.known_at)

    def of(self, sources: Sequence[int]) -> list[_Names]:
        """The names that were read in these records."""
        return self._read(_NAMES_OF, sources)

    def held_by(self, keys: Sequence[int]) -> list[_Names]:
        """The names that these records hold."""
        return self._read(_SOURCES_OF, keys)

    def _read(self, query: str, keys: Sequence[int]) -> list[_Names]:
        found: list[_Names] = []
        for seq, metadata, source, id, version in self._connection.execute(query, (json.dumps(keys), self._until)):
            more = mapping(metadata)
            if (more.get("of"), more.get("version")) == (id, version):
                found.append(_Names(seq, names_in(more), source))
        return found


def _has_names(index: NamespaceIndex, wanted: Filter) -> bool:
    """Whether a model may have read names in what the filter admits."""
    kinds = {wanted.kind} if isinstance(wanted.kind, str) else {*(wanted.kind or ())}
    if not index.derived or wanted.derived or (kinds and kinds <= UNNAMED_KINDS):
        return False
    return index.text.frequencies([named()])[0] > 0


def _as_array(keys: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.array([*keys], dtype=np.int64)


def _together(by_words: Mapping[int, float], by_names: Mapping[int, float]) -> dict[int, float]:
    """What either found, best first."""
    if not by_names:
        return dict(by_words)
    scores = {key: by_words.get(key, 0.0) + by_names.get(key, 0.0) for key in (*by_words, *by_names)}
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


def _with_names(
    index: NamespaceIndex,
    names: _NamesRead,
    words: Mapping[str, float],
    links: Mapping[str, float],
    found: Candidates,
) -> Candidates:
    """The candidates with what the names that a model read add to the question's words, and to what they share."""
    held = sorted(names.of(found.keys.tolist()), key=lambda one: one.seq)
    if not held:
        return found
    keys, places = _as_array(one.seq for one in held), found.keys.searchsorted([one.source for one in held])

    def read(query: Mapping[str, float], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What each term adds, at most what it would by standing there: a name is rarer among names than in texts."""
        table, own, _ = index.text.contributions({named(node): weight for node, weight in query.items()}, keys)
        spread = np.zeros((len(query), len(found.keys)))
        spread[:, places] = table * np.minimum(weights / own, 1.0)[:, np.newaxis]
        return spread

    linked = found.links
    if links:
        linked = np.maximum(linked, read(links, index.text.contributions(links, found.keys)[1]))
    by_source = {one.source: one.names for one in held}
    return replace(found, named=read(words, found.weights), links=linked, names=by_source)


def check_limit(limit: int) -> None:
    if not isinstance(limit, int) or not 1 <= limit < 2**31:
        raise InvalidInput(f"limit is {limit!r}; it must be a whole number of 1 or more")


def _terms_of(connection: sqlite3.Connection, keys: Sequence[int]) -> list[list[str]]:
    """The terms of these records as the index was given them; none for one that is gone."""
    found: dict[int, list[str]] = {}
    for start in range(0, len(keys), 500):
        part = keys[start : start + 500]
        marks = ", ".join("?" * len(part))
        for key, *columns in connection.execute(f"{FOUND_BY} WHERE r.seq IN ({marks}) AND r.version > 0", part):
            found[key] = index_terms(*columns)
    return [found.get(key, []) for key in keys]


def _kept_out(connection: sqlite3.Connection, keys: npt.NDArray[np.int64], derived: bool) -> set[int]:
    """Which of the nominated have a newer version, or are derived: all that can keep one out without a filter."""
    query = "SELECT s.record FROM json_each(?1) j CROSS JOIN supersessions s ON s.record = j.value"
    if derived:
        query += " UNION ALL SELECT d.record FROM json_each(?1) j CROSS JOIN derivations d ON d.record = j.value"
    return {row[0] for row in connection.execute(query, (json.dumps(keys.tolist()),))}


def _admitted(connection: sqlite3.Connection, keys: npt.NDArray[np.int64], where: str, values: list[Any]) -> set[int]:
    """Which of the nominated records the filter admits."""
    kept: set[int] = set()
    wanted = keys.tolist()
    for start in range(0, len(wanted), 500):
        part = wanted[start : start + 500]
        marks = ", ".join("?" * len(part))
        kept.update(
            row[0]
            for row in connection.execute(
                f"SELECT r.seq FROM records r WHERE r.seq IN ({marks}) AND {where}", (*part, *values)
            )
        )
    return kept


def _subset(connection: sqlite3.Connection, where: str, values: list[Any], most: int) -> npt.NDArray[np.int64] | None:
    """The numbers of all records the filter admits, in order; None where there are more than `most`."""
    rows = connection.execute(f"SELECT r.seq FROM records r WHERE {where} LIMIT ?", (*values, most + 1)).fetchall()
    if len(rows) > most:
        return None
    return np.sort(np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows)))
