"""Searching: candidates from the indexes of this process, and which of them a filter admits.

The index is brought up to the snapshot that the filter is asked on. One whose files are missing or damaged is first
rebuilt from the records.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from loom.errors import CorruptStore, LoomError, WrongDimension
from loom.index.analysis import mapping, speaker_marks
from loom.index.associations import Source, associated_terms
from loom.index.doc_values import DocValues
from loom.index.segments import DamagedSegment
from loom.index.text_index import SILENT
from loom.index.vector_index import VectorIndex
from loom.storage.contract import Candidates, Filter, Match, Nominated, Probe, Vector, check_limit
from loom.storage.sqlite.archive import CONTENT
from loom.storage.sqlite.engine import Engine
from loom.storage.sqlite.filters import admitted, conditions, kept_out
from loom.storage.sqlite.maintenance import Maintenance
from loom.storage.sqlite.model_names import NamesRead, as_array, has_names, with_names
from loom.storage.sqlite.namespace_index import NamespaceIndex
from loom.storage.sqlite.neighbours import Conversation, conversations_of, speakers_of
from loom.storage.sqlite.projections import TEXT, VECTORS, StaleProjection, read_state
from loom.storage.sqlite.worker import LeaseLost
from loom.text.entities import named, nodes_of_name

__all__ = ["Searcher"]

Answer = TypeVar("Answer")

# A filter that admits fewer records than this is scored exactly, record by record.
_EXACT_SUBSET = 50_000
# For how many derived records beside each other one there is room in what is asked for at first.
_MOST_DERIVED = 6.0

_Nominated = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
_Nominate = Callable[[sqlite3.Connection, NamespaceIndex, int, "npt.NDArray[np.int64] | None"], _Nominated]


class Searcher:
    """Search over one namespace."""

    def __init__(self, engine: Engine, maintenance: Maintenance) -> None:
        self._engine = engine
        self._maintenance = maintenance
        self._number = maintenance.namespace

    def search_text(self, query: Mapping[str, float], limit: int, wanted: Filter) -> list[Match]:
        return self._search(limit, wanted, self._by_words(query)) if query else []

    def search_vectors(self, query: Vector, limit: int, wanted: Filter) -> list[Match]:
        return self._search(limit, wanted, self._by_meaning(query))

    def _by_words(self, query: Mapping[str, float]) -> _Nominate:
        def nominate(
            connection: sqlite3.Connection, index: NamespaceIndex, count: int, among: npt.NDArray[np.int64] | None
        ) -> _Nominated:
            return index.text.search(query, count, among=among)

        return nominate

    def _by_names(self, query: Mapping[str, float], names: NamesRead) -> _Nominate:
        """By the names that a model read in the records: what holds them is found, and stands for its source."""
        asked = {named(node): weight for node, weight in query.items()}

        def nominate(
            connection: sqlite3.Connection, index: NamespaceIndex, count: int, among: npt.NDArray[np.int64] | None
        ) -> _Nominated:
            if among is not None:
                among = np.unique(as_array(one.seq for one in names.of(among.tolist())))
            keys, scores = index.text.search(asked, count, among=among)
            sources = {one.seq: one.source for one in names.held_by(keys.tolist())}
            here = [place for place, key in enumerate(keys.tolist()) if key in sources]
            return as_array(sources[int(keys[place])] for place in here), scores[here]

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
        if index.vectors is None or index.space != self._maintenance.space:
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
            nominated: dict[int, int] = {}
            _nominate(nominated, by_words, Nominated.WORDS)
            _nominate(nominated, by_meaning, Nominated.MEANING)
            names = NamesRead(connection, wanted) if probe.links and has_names(index, wanted) else None
            if names is not None and probe.words:
                by_names = self._admitted(connection, index, limit, wanted, self._by_names(probe.words, names))
                _nominate(nominated, by_names, Nominated.NAMES)
                by_words = _together(by_words, by_names)
            seeds = _seeds(by_words, by_meaning, probe.seeds)
            conversation = Conversation(connection, index, wanted, self._number, probe.reach)
            if query and conversation.filter != wanted:  # what another speaker said may lead to the answer
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
                linked = self._admitted(connection, index, max(1, limit // 4), wanted, nominate)
                _nominate(nominated, linked, Nominated.LINKS)
            known = conversation.look_around(seeds, nominated)
            strangers = [key for key in conversation.turns if key not in nominated]
            nominated.update(dict.fromkeys(strangers, 0))
            _nominate(nominated, conversation.admitted(strangers), Nominated.CONTEXT)
            if probe.links and len(nominated) < limit:  # words and meaning leave room: their sessions fill it
                members = conversation.of_sessions(sources, limit - len(nominated))
                known |= members
                _nominate(nominated, conversation.admitted(list(members)), Nominated.LINKS)
            found = self._collected(index, probe, query, synonyms, links, nominated, known, conversation, passed)
            return found if names is None else with_names(index, names, probe.words, links, found)

    def _collected(
        self,
        index: NamespaceIndex,
        probe: Probe,
        query: Mapping[str, float],
        synonyms: Mapping[str, float],
        links: Mapping[str, float],
        nominated: Mapping[int, int],
        known: Mapping[int, DocValues],
        conversation: Conversation,
        passed: Mapping[int, float],
    ) -> Candidates:
        """Everything known about the nominated and their context, in columns."""
        listed = [key for key in sorted(nominated) if key in known]
        keys = np.array(listed, dtype=np.int64)
        table, weights, frequencies = index.text.contributions(query, keys)
        split = len(probe.words)
        end = split + len(synonyms)
        scale = np.array(list(synonyms.values()))
        meaning = np.full(len(keys), np.nan)
        if probe.vector is not None and (vectors := self._vectors_for(index, probe.vector)) is not None:
            having, cosines = vectors.score(probe.vector, keys)
            meaning[keys.searchsorted(having)] = cosines
        columns = zip(*[known[key] for key in listed], strict=True) if listed else [()] * len(DocValues._fields)
        _, sessions, created_at, importance, names, _, tokens = columns
        places = {key: place for place, key in enumerate(listed)}
        following, closeness = [-1] * len(listed), [0.0] * len(listed)
        for key, (after, close) in conversation.following.items():
            if key in places and after in places:
                following[places[key]], closeness[places[key]] = places[after], close
        # In two calls: each takes as long as reading fifty numbers.
        of_conversations = following, conversations_of(sessions, created_at), speakers_of(names)
        numbers = np.array([*of_conversations, created_at, tokens], dtype=np.int64)
        shares = np.array([closeness, importance], dtype=np.float64)
        return Candidates(
            keys=keys,
            nominated=np.array([nominated[key] for key in listed], dtype=np.uint8),
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
            following=numbers[0],
            sessions=numbers[1],
            speakers=numbers[2],
            created_at=numbers[3],
            tokens=numbers[4],
            closeness=shares[0],
            importance=shares[1],
            excluded=passed,
        )

    def _search(self, limit: int, wanted: Filter, nominate: _Nominate) -> list[Match]:
        def ask() -> dict[int, float]:
            with self._fresh_index() as (connection, index):
                return self._admitted(connection, index, limit, wanted, nominate)

        return [Match(key, score) for key, score in self._answer(ask).items()]

    def _answer(self, ask: Callable[[], Answer]) -> Answer:
        """Ask; where a segment turns out to be damaged inside, rebuild its index and ask once more."""
        try:
            return ask()
        except DamagedSegment:
            damaged = self._maintenance.index.damaged_kinds() or [TEXT, VECTORS]
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            # Damage that no header shows can lead to any of these. Without damage the error stands.
            damaged = [] if isinstance(error, LoomError) else self._maintenance.index.damaged_kinds()
            if not damaged:
                raise
        for kind in damaged:
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
            # What was derived from a record has the same words and, being shorter, ranks before it. Asking once
            # more, for eight times as many, took five times as long where there were four facts to ten records.
            others = max(1, index.text.documents - index.derived)
            count += int(limit * min(_MOST_DERIVED, 2 * index.derived / others))
        keys, scores = nominate(connection, index, count, None)
        if not wanted.narrows:
            gone = kept_out(connection, keys.tolist(), wanted.derived is False)
            if not gone:  # mostly
                return dict(zip(keys[:limit].tolist(), scores[:limit].tolist(), strict=True))
            kept = set(keys.tolist()) - gone
            if passed is not None:
                found = zip(keys.tolist(), scores.tolist(), strict=True)
                passed.update((key, score) for key, score in found if key in gone)
        else:
            kept = admitted(connection, keys.tolist(), *conditions(wanted, self._number, connection))
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
            kept = admitted(connection, keys.tolist(), where, values)
            if len(kept) >= limit or len(keys) < count:
                return keys, scores, kept

    @contextmanager
    def _fresh_index(self) -> Iterator[tuple[sqlite3.Connection, NamespaceIndex]]:
        """The index of this process, brought up to a snapshot; repairs a projection that is damaged."""
        own = self._maintenance
        for _ in range(100):
            with self._engine.read() as connection, own.index.lock:
                try:
                    own.index.refresh(connection)
                except StaleProjection as stale:
                    damage = stale
                else:
                    own.notice_tail()
                    yield connection, own.index
                    return
            self._repair(damage)
            self._engine.renew_reading()
        raise CorruptStore("the index of this store cannot be rebuilt; run check()")

    def _repair(self, damage: StaleProjection) -> None:
        """Rebuild a projection whose files are missing or damaged, unless it has changed meanwhile.

        Mostly it has: another process merged some segments after this one looked.
        """
        with self._engine.read() as connection:
            if read_state(connection, self._number, damage.kind).generation != damage.generation:
                return
        if self._engine.read_only:
            self._maintenance.index.rely_on_records(damage.kind, damage.generation)
        else:
            self.rebuild(damage.kind, damage.generation)

    def rebuild(self, kind: str, generation: int | None = None) -> None:
        """Make a projection again from the records; with `generation`, only if it is still that one."""
        own = self._maintenance
        with own.worker.lease(wait_s=60.0) as fence:
            if fence is None:
                return
            projector = own.projector(fence)
            try:
                if projector.reset(kind, generation):
                    while projector.due(kind):
                        projector.extend(kind)
            except (LeaseLost, StaleProjection):
                return  # another process rebuilds it: the caller looks again


def _nominate(nominated: dict[int, int], keys: Iterable[int], by: Nominated) -> None:
    """Note what brings these. As plain numbers: a flag takes two microseconds to join another."""
    more = int(by)
    for key in keys:
        nominated[key] = nominated.get(key, 0) | more


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
    if not probe.synonyms:
        return {}
    documents = index.text.documents
    most = documents if documents < _LARGE else _COMMON_SYNONYM * documents
    counts = index.text.frequencies([*probe.synonyms])
    found = [
        (-weight * math.log(1.0 + documents / count), name)
        for (name, weight), count in zip(probe.synonyms.items(), counts, strict=True)
        if 0 < count <= most and name not in probe.words and name not in probe.marks
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
    names: NamesRead | None,
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


def _together(by_words: Mapping[int, float], by_names: Mapping[int, float]) -> dict[int, float]:
    """What either found, best first."""
    if not by_names:
        return dict(by_words)
    scores = {key: by_words.get(key, 0.0) + by_names.get(key, 0.0) for key in (*by_words, *by_names)}
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


def _subset(connection: sqlite3.Connection, where: str, values: list[Any], most: int) -> npt.NDArray[np.int64] | None:
    """The numbers of all records the filter admits, in order; None where there are more than `most`."""
    rows = connection.execute(f"SELECT r.seq FROM records r WHERE {where} LIMIT ?", (*values, most + 1)).fetchall()
    if len(rows) > most:
        return None
    return np.sort(np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows)))
