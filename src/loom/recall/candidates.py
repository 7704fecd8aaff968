"""Candidates: what words, meaning, conversation and associations each nominate for a question, and all that is known
of it.

Each may bring what none of the others found, and each candidate is scored by all of them: `relevance` does that.
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
"""The numbers of the nearest records to a vector with their cosines, at most so many; among these, if given. It may
fall back on the store's own index."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What is asked of the indexes: words with their weights, other words for them, marks (speakers, times), and a
    vector.

    A mark's weight is what it counts for in nominating. The best `seeds` are looked at in their conversation,
    `reach` records before and after each, and for the terms that tie them to others, at most `links`. With `exact`,
    sessions whose hashes collide are told apart. `standing` are sequence numbers that are candidates anyway.
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
    """What nominates by meaning, instead of the store's own index."""


class Nominated(IntFlag):
    """What brought a candidate: each may bring what none of the others found."""

    WORDS = 1
    MEANING = 2
    CONTEXT = 4
    LINKS = 8
    NAMES = 16
    STANDING = 32


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What the indexes nominate, with everything that is known about it, in columns; rows are terms.

    `keys` are ascending numbers of records. A record with no bit in `nominated` is only the context of others.
    `words` and `marks` hold what each term adds to a record's score, `weights` what a word adds to a record of
    average length that holds it once; `frequencies` tell in how many records of the store each word stands, `spread`
    the same for each mark. `synonyms` and `synonym_weights` are like `words` and `weights`, at full weight, for the
    terms of other words that some record holds. `meaning` is the cosine, NaN where there is no vector. `links` is
    like `words`, for terms that the best records have in common with others.
    `following` is the place of the next record of the same conversation, -1 where it is not here, and `closeness`
    (0 to 1) says how much that one has to do with this. `sessions` and `speakers` number the sessions and speakers
    that several of these are of, -1 for a record that has none or shares it with no other; `assistant` tells the
    records of that role. Times are microseconds
    since 1970. `excluded` is what the words found and no filter but the one for derived and older versions left
    out, with its score, best first. `named` is like `words`, for the names that a model read in a record, None where
    it read none; in `links` they count too. `names` are these, by record, each with the words that it stands for.
    `addressed` tells, for words of the question by which one speaker addresses another, the records of the other.
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


# So many other words for a question's own are looked for, and in a large store none that stands in more than this
# share of it: that says too little for what it costs.
_MOST_SYNONYMS = 24
_COMMON_SYNONYM, _LARGE = 0.02, 20_000
# So many of the best are asked what they share with others: each costs 0.2 ms.
_LINKING = 2
# Marks alone reach no more than this: who or when is no reason to follow what else a record says.
_SILENCE = 100 * SILENT
_ASSISTANT = role_hash("assistant")


def find_candidates(view: SearchView, probe: Probe, limit: int, vector_limit: int, wanted: Filter) -> Candidates:
    """The best by words, meaning, conversation and shared terms, with all that is known of each.

    Up to `limit` by words and `vector_limit` by meaning; the filter admits all of them.
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
            by_names = self._best(limit, partial(names.search, probe.words))
            self._nominate(by_names, Nominated.NAMES)
            by_words = _together(by_words, by_names)
        seeds = _seeds(by_words, by_meaning, probe.seeds)
        if self._query and conversation.filter is not self._wanted:  # what another one said may lead to the answer
            search = partial(self._view.text.search, self._query)
            others = best_admitted(self._view, probe.seeds, conversation.filter, search)
            seeds = list(dict.fromkeys([*seeds, *others]))
        # Where words find enough and there is meaning as well, following the links brings nothing more (82.4 %
        # recall@10 on LoCoMo with and without) and takes a sixth of a recall. With words alone they bring 79.5 % to
        # 80.6 %, and where words find too little, what the nearest by meaning names leads on.
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
        if probe.links and len(self._nominated) < limit:  # words and meaning leave room: their sessions fill it
            members = conversation.of_sessions(sources, limit - len(self._nominated))
            known |= members
            self._nominate(conversation.admitted(list(members)), Nominated.LINKS)
        return self._collected([known[key] for key in sorted(self._nominated) if key in known])

    def _best(self, limit: int, search: Nominate, passed: dict[int, float] | None = None) -> dict[int, float]:
        return best_admitted(self._view, limit, self._wanted, search, passed)

    def _by_words(self, limit: int) -> dict[int, float]:
        if not self._query:
            return {}
        found = self._best(limit, partial(self._view.text.search, self._query), self._passed)
        self._nominate(found, Nominated.WORDS)
        return found

    def _by_meaning(self, limit: int) -> dict[int, float]:
        if self._probe.vector is None or self._view.vectors is None:
            return {}
        index, vector, nearest = self._view.vectors, self._probe.vector, self._probe.nearest
        search = partial(index.search, vector) if nearest is None else partial(nearest, index, vector)
        found = self._best(limit, search)
        self._nominate(found, Nominated.MEANING)
        return found

    def _follow_links(self, sources: Sequence[int], limit: int, names_only: bool) -> None:
        """Nominate what shares terms, names and speakers with these."""
        view, names = self._view, self._names
        self._links = associated_terms(
            view, sources, self._probe.words, self._probe.links, names, names_only=names_only
        )
        for search in (view.text.search, *(() if names is None else (names.search,))) if self._links else ():
            self._nominate(self._best(limit, partial(search, self._links)), Nominated.LINKS)

    def _nominate(self, keys: Iterable[int], by: Nominated) -> None:
        """Note what brings these. As plain numbers: a flag takes two microseconds to join another."""
        nominated, more = self._nominated, int(by)
        for key in keys:
            nominated[key] = nominated.get(key, 0) | more

    def _collected(self, known: Sequence[DocValues]) -> Candidates:
        """Everything known about the nominated and their context, in columns."""
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
        # In two calls: each takes as long as reading fifty numbers.
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
    """The best of both, best first: two by words for each one by meaning, while there are both."""
    worded, meant = list(by_words), list(by_meaning)
    most = limit if not meant else limit - limit // 3
    return list(dict.fromkeys(worded[:most] + meant[: max(limit // 3, limit - len(worded))]))


def _synonyms(text: TextIndex, probe: Probe) -> dict[str, float]:
    """The terms of other words that stand in some record and are not the question's own, those that weigh most."""
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
    """The records that links start from: the nearest by meaning, and the best by words."""
    meant = nearest[: _LINKING // 2 if worded else _LINKING]
    return list(dict.fromkeys([*meant, *worded[:_LINKING]]))[:_LINKING]


def _together(by_words: Mapping[int, float], by_names: Mapping[int, float]) -> dict[int, float]:
    """What either found, best first."""
    if not by_names:
        return dict(by_words)
    scores = {key: by_words.get(key, 0.0) + by_names.get(key, 0.0) for key in (*by_words, *by_names)}
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))
