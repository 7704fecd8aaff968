"""Candidates: the records that words, meaning, conversation and links nominate for a question, in columns.

Each of the four may nominate records that the others miss. `relevance` scores every candidate by all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import partial

import numpy as np
import numpy.typing as npt

from loom.index.doc_values import DocValues, role_hash
from loom.index.text_index import SILENT, TextIndex
from loom.index.vector_index import VectorIndex
from loom.recall.associations import associated_terms
from loom.recall.conversation import Conversation, conversations_of, speakers_of
from loom.recall.model_names import model_names
from loom.storage.contract import Filter, Vector
from loom.storage.search_view import Keys, Nominate, Scores, SearchView, best_admitted

__all__ = ["Candidates", "Nearest", "Nominated", "Probe", "find_candidates"]


Nearest = Callable[[VectorIndex, Vector, int, Keys | None], tuple[Keys, Scores]]
"""Returns the keys of the nearest records to a vector with their cosines, up to a number, and among given keys. It
may fall back on the index of the store, its first argument."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The query for the indexes: words, synonyms and marks (speakers, times) with their weights, and a vector.

    The weight of a mark counts for nominating alone. The conversation around the best `seeds` is read, `reach`
    records before and after each, and at most `links` terms that tie them to others are followed. With `exact`,
    sessions with colliding hashes are told apart. `standing` are sequence numbers that are candidates in any case.
    """

    words: Mapping[str, float]
    marks: Mapping[str, float] = field(default_factory=dict)
    vector: Vector | None = None
    synonyms: Mapping[str, float] = field(default_factory=dict)
    seeds: int = 32
    reach: int = 0
    links: int = 0
    exact: bool = False
    standing: tuple[int, ...] = ()
    nearest: Nearest | None = None
    """Nominates by meaning instead of the store's own index."""


class Nominated(IntFlag):
    """The source of a nomination."""

    WORDS = 1
    MEANING = 2
    CONTEXT = 4
    LINKS = 8
    NAMES = 16
    STANDING = 32


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates. A column for each record; in tables, a row for each term.

    `keys` are ascending sequence numbers. A record without a bit in `nominated` is only context of others.

    `words` and `marks` have the BM25 contribution of each term to each record, and `weights` that of a word to a
    record of average length that has it once. `frequencies` and `spread` count the records of the store with each
    word and each mark. `synonyms` and `synonym_weights` are like `words` and `weights`, at full weight, for terms of
    synonyms. `links` is like `words`, for the terms that the best records share with others. `named` is like
    `words`, for names that a model read in the records, None if it read none; they count in `links` as well. `names`
    maps records to these names with the words that they stand for.

    `meaning` is the cosine, NaN without a vector. `following` is the place of the next record of the conversation, -1
    if it is not a candidate, and `closeness` (0 to 1) how closely the two belong together. `sessions` and `speakers`
    are numbers of the conversations and speakers of several candidates, otherwise -1. `assistant` marks the records
    of that role. `addressed` maps words of the question by which one speaker addresses another to the records of the
    other. `own` marks records about their speakers; None if the question names no speaker. Times are microseconds
    since 1970.

    `excluded` has the records that words found and only the filter for derived records and older versions left out,
    with their scores, best first.
    """

    keys: npt.NDArray[np.int64]
    nominated: npt.NDArray[np.uint8]
    words: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    frequencies: npt.NDArray[np.intp]
    marks: npt.NDArray[np.float64]
    spread: npt.NDArray[np.intp]
    synonym_terms: tuple[str, ...]
    synonyms: npt.NDArray[np.float64]
    synonym_weights: npt.NDArray[np.float64]
    meaning: npt.NDArray[np.float64]
    link_terms: tuple[str, ...]
    links: npt.NDArray[np.float64]
    following: npt.NDArray[np.intp]
    closeness: npt.NDArray[np.float64]
    sessions: npt.NDArray[np.intp]
    speakers: npt.NDArray[np.intp]
    assistant: npt.NDArray[np.bool_]
    created_at: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float64]
    excluded: Mapping[int, float] = field(default_factory=dict)
    named: npt.NDArray[np.float64] | None = None
    names: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    addressed: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    own: npt.NDArray[np.bool_] | None = None


# The most synonyms that are searched. In a large store, those in more than this share of the records are left out:
# they say too little for their cost.
_MOST_SYNONYMS = 24
_COMMON_SYNONYM, _LARGE = 0.02, 20_000
# The number of best records whose links are followed; each takes 0.2 ms.
_LINKING = 2
# The largest score from marks alone. A speaker or a time is not a reason to follow the links of a record.
_SILENCE = 100 * SILENT
_ASSISTANT = role_hash("assistant")


def find_candidates(view: SearchView, probe: Probe, limit: int, vector_limit: int, wanted: Filter) -> Candidates:
    """Return the best records by words, meaning, conversation and links, all admitted by the filter.

    Words nominate up to `limit` records, meaning up to `vector_limit`.
    """
    return _Nominating(view, probe, wanted).run(limit, vector_limit)


class _Nominating:
    """One search for candidates."""

    def __init__(self, view: SearchView, probe: Probe, wanted: Filter) -> None:
        self._view = view
        self._probe = probe
        self._wanted = wanted
        self._names = model_names(view, wanted) if probe.links else None
        self._conversation = Conversation(view, wanted, probe.reach, probe.exact)
        self._synonyms = _synonyms(view.text, probe)
        self._query = {**probe.words, **self._synonyms, **probe.marks}
        self._links: dict[str, float] = {}
        self._passed: dict[int, float] = {}
        self._nominated: dict[int, int] = {}

    def run(self, limit: int, vector_limit: int) -> Candidates:
        probe, names, conversation = self._probe, self._names, self._conversation
        by_words, by_meaning = self._by_words(limit), self._by_meaning(vector_limit)
        if names is not None and probe.words:
            by_names = self._best(limit, partial(names.search, probe.words), Nominated.NAMES)
            by_words = _together(by_words, by_names)
        seeds = _seeds(by_words, by_meaning, probe.seeds)
        if self._query and conversation.filter is not self._wanted:  # the turns of others lead to answers
            search = partial(self._view.text.search, self._query)
            others = best_admitted(self._view, probe.seeds, conversation.filter, search)
            seeds = list(dict.fromkeys([*seeds, *others]))
        # With enough records by words, and vectors, links add nothing (LoCoMo, recall@10: 82.4 % with and without)
        # and take a sixth of a recall. By words alone they raise it from 79.5 to 80.6 %. If words find too little,
        # the names in the nearest records by meaning are followed.
        worded = [key for key, score in by_words.items() if score > _SILENCE]
        sources = _sources(worded, list(by_meaning))
        if len(worded) < limit or not by_meaning:
            self._follow_links(sources, max(1, limit // 4), names_only=bool(by_meaning))
        if probe.standing:
            self._nominate(self._view.admitted(probe.standing, self._wanted), Nominated.STANDING)
        known = conversation.look_around(seeds, self._nominated)
        strangers = [key for key in conversation.turns if key not in self._nominated]
        self._nominated.update(dict.fromkeys(strangers, 0))
        self._nominate(conversation.admitted(strangers), Nominated.CONTEXT)
        if probe.links and len(self._nominated) < limit:  # the sessions of the sources fill the rest
            members = conversation.of_sessions(sources, limit - len(self._nominated))
            known |= members
            self._nominate(conversation.admitted(list(members)), Nominated.LINKS)
        return self._collected([known[key] for key in sorted(self._nominated) if key in known])

    def _best(
        self, limit: int, search: Nominate, by: Nominated, passed: dict[int, float] | None = None
    ) -> dict[int, float]:
        """Nominate the best records of a search."""
        found = best_admitted(self._view, limit, self._wanted, search, passed)
        self._nominate(found, by)
        return found

    def _by_words(self, limit: int) -> dict[int, float]:
        if not self._query:
            return {}
        search = partial(self._view.text.search, self._query)
        return self._best(limit, search, Nominated.WORDS, self._passed)

    def _by_meaning(self, limit: int) -> dict[int, float]:
        if self._probe.vector is None or self._view.vectors is None:
            return {}
        index, vector, nearest = self._view.vectors, self._probe.vector, self._probe.nearest
        search = partial(index.search, vector) if nearest is None else partial(nearest, index, vector)
        return self._best(limit, search, Nominated.MEANING)

    def _follow_links(self, sources: Sequence[int], limit: int, names_only: bool) -> None:
        """Nominate records that share terms, names or speakers with these."""
        view, names = self._view, self._names
        self._links = associated_terms(
            view, sources, self._probe.words, self._probe.links, names, names_only=names_only
        )
        for search in (view.text.search, *(() if names is None else (names.search,))) if self._links else ():
            self._best(limit, partial(search, self._links), Nominated.LINKS)

    def _nominate(self, keys: Iterable[int], by: Nominated) -> None:
        """Record a nomination. Uses plain integers, because combining two flags takes two microseconds."""
        nominated, more = self._nominated, int(by)
        for key in keys:
            nominated[key] = nominated.get(key, 0) | more

    def _collected(self, known: Sequence[DocValues]) -> Candidates:
        """Return the nominated records and their context, in columns."""
        probe, text, links, synonyms = self._probe, self._view.text, self._links, self._synonyms
        columns = zip(*known, strict=True) if known else [()] * len(DocValues._fields)
        listed, sessions, created_at, importance, speakers, roles, tokens = columns
        keys = np.array(listed, dtype=np.int64)
        table, weights, frequencies = text.contributions(self._query, keys)
        split, end = len(probe.words), len(probe.words) + len(synonyms)
        scale = np.array(list(synonyms.values()))
        meaning = np.full(len(keys), np.nan)
        if probe.vector is not None and self._view.vectors is not None:
            having, cosines = self._view.vectors.score(probe.vector, keys)
            meaning[keys.searchsorted(having)] = cosines
        linked, linking = np.zeros((0, len(keys))), np.empty(0)
        if links:
            linked, linking, _ = text.contributions(links, keys)
        named, names = None, {}
        if self._names is not None and (held := self._names.held_by(keys)):
            named = self._names.contributions(probe.words, weights[:split], held, keys)
            if links:
                linked = np.maximum(linked, self._names.contributions(links, linking, held, keys))
            names = {one.source: one.names for one in held}
        places = {key: place for place, key in enumerate(listed)}
        following, closeness = [-1] * len(listed), [0.0] * len(listed)
        for key, (after, close) in self._conversation.following.items():
            if key in places and after in places:
                following[places[key]], closeness[places[key]] = places[after], close
        # One call for all sessions and one for all speakers: a call takes as long as fifty numbers.
        groups = conversations_of(sessions, created_at), speakers_of(speakers)
        numbers = np.array([following, *groups, created_at, tokens], dtype=np.int64)
        shares = np.array([closeness, importance], dtype=np.float64)
        return Candidates(
            keys=keys,
            nominated=np.array([self._nominated[key] for key in listed], dtype=np.uint8),
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
            links=linked,
            following=numbers[0],
            sessions=numbers[1],
            speakers=numbers[2],
            assistant=np.array([role == _ASSISTANT for role in roles], dtype=np.bool_),
            created_at=numbers[3],
            tokens=numbers[4],
            closeness=shares[0],
            importance=shares[1],
            excluded=self._passed,
            named=named,
            names=names,
        )


def _seeds(by_words: Mapping[int, float], by_meaning: Mapping[int, float], limit: int) -> list[int]:
    """Return the best of both, best first: two by words for one by meaning, as long as there are both."""
    worded, meant = list(by_words), list(by_meaning)
    most = limit if not meant else limit - limit // 3
    return list(dict.fromkeys(worded[:most] + meant[: max(limit // 3, limit - len(worded))]))


def _synonyms(text: TextIndex, probe: Probe) -> dict[str, float]:
    """Return the heaviest terms of synonyms that some record has and the question does not have."""
    if not probe.synonyms:
        return {}
    documents = text.documents
    most = documents if documents < _LARGE else _COMMON_SYNONYM * documents
    counts = text.frequencies([*probe.synonyms])
    found = [
        (-weight * math.log(1.0 + documents / count), name)
        for (name, weight), count in zip(probe.synonyms.items(), counts, strict=True)
        if 0 < count <= most and name not in probe.words and name not in probe.marks
    ]
    return {name: probe.synonyms[name] for _, name in sorted(found)[:_MOST_SYNONYMS]}


def _sources(worded: Sequence[int], nearest: Sequence[int]) -> list[int]:
    """Return the records from which links are followed: the nearest by meaning and the best by words."""
    meant = nearest[: _LINKING // 2 if worded else _LINKING]
    return list(dict.fromkeys([*meant, *worded[:_LINKING]]))[:_LINKING]


def _together(by_words: Mapping[int, float], by_names: Mapping[int, float]) -> dict[int, float]:
    """Return the union of both, with summed scores, best first."""
    if not by_names:
        return dict(by_words)
    scores = {key: by_words.get(key, 0.0) + by_names.get(key, 0.0) for key in (*by_words, *by_names)}
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))
