"""Merging facts: facts that agree become one, if the merged text passes the fidelity check.

A plan names the facts that stay, those that are merged and those that leave the knowledge tier. It deletes nothing,
and merged facts remain candidates of every search. Pure computation; `loom.memory` runs it and stores the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.blas import one_thread
from loom.checks import checked_items, checked_number, checked_whole
from loom.errors import InvalidInput, WrongDimension
from loom.knowledge.fidelity import FidelityChecker, FidelityResult, unit_vector
from loom.models.embedders import Matrix, Vector
from loom.protocol import ReadyAnswer, ReadyList
from loom.text.duplicates import Protected, may_merge, normal_form, protected
from loom.text.scripts import is_han
from loom.text.sentences import statements
from loom.text.words import terms
from loom.types import Fact

__all__ = [
    "Compression",
    "L4Compressor",
    "Merge",
]

# A merged fact must fit into a prompt. A longer fact is never merged.
_MOST_CHARS = 2_000
# The most similar facts that are compared with one: enough to fill a merged text several times.
_MOST_NEIGHBOURS = 128
# One block of the cosine matrix: 64 MB of float32 for any number of facts.
_BLOCK_CELLS = 1 << 24
# Products of float32 rows differ in the last bits with their place in the matrix.
_NOISE = 1e-6


class Merge(NamedTuple):
    """Facts that are merged: the `members` in the order of time, and the merged `fact`."""

    fact: Fact
    members: tuple[Fact, ...]
    fidelity: FidelityResult

    @property
    def content(self) -> str:
        return self.fact.content


class Compression(NamedTuple):
    """A plan for facts: each is kept as it is, a member of one merge, or left out of the tier.

    Kept and left-out facts are in the order of importance. `unfaithful` counts the clusters whose merged text did
    not pass; their members are kept or left out like any other fact.
    """

    kept: tuple[Fact, ...]
    merged: tuple[Merge, ...] = ()
    left_out: tuple[Fact, ...] = ()
    unfaithful: int = 0


class L4Compressor:
    """Keeps the knowledge tier near `threshold` facts.

    Facts are merged in clusters of at least `min_cluster_size` in which every two have a cosine of at least
    `similarity_threshold` and differ in nothing that `loom.text.duplicates` protects.
    """

    def __init__(
        self,
        threshold: int = 150,
        similarity_threshold: float = 0.75,
        min_cluster_size: int = 3,
        fidelity_threshold: float = 0.5,
    ) -> None:
        self.threshold = checked_whole(threshold, "threshold", 1)
        self.similarity_threshold = checked_number(similarity_threshold, "similarity_threshold", 0, 1)
        self.min_cluster_size = checked_whole(min_cluster_size, "min_cluster_size", 2)
        self.fidelity_threshold = fidelity_threshold
        self.checker = FidelityChecker(fidelity_threshold)

    def should_compress(self, facts: Sequence[Fact]) -> ReadyAnswer:
        """Whether there are more facts than the threshold. The answer may be awaited, which changes nothing."""
        return ReadyAnswer(len(checked_items(facts, Fact, "should_compress")) > self.threshold)

    def compress(
        self, facts: Sequence[Fact], embeddings: Sequence[npt.ArrayLike | None] | Matrix | None = None
    ) -> ReadyList[Fact]:
        """The facts that stay in the tier, including merged ones; all facts unchanged if there are no more than the
        threshold.

        The facts left out are still in the store: `plan` names them. The list may be awaited.
        """
        plan = self.plan(facts, embeddings)
        return ReadyList([*plan.kept, *(merge.fact for merge in plan.merged)])

    def plan(
        self, facts: Sequence[Fact], embeddings: Sequence[npt.ArrayLike | None] | Matrix | None = None
    ) -> Compression:
        """The plan for a tier with too many facts. The order of the facts does not matter.

        `embeddings` has one for each fact, or None for a fact without one; the default is the facts' own embeddings.
        """
        facts = checked_items(facts, Fact, "compress")
        if len({fact.id for fact in facts}) != len(facts):
            raise InvalidInput("two of the facts have the same id; give each fact once")
        if embeddings is not None and len(embeddings) != len(facts):
            raise InvalidInput(f"{len(facts)} facts and {len(embeddings)} embeddings; there must be one for each")
        if len(facts) <= self.threshold:
            return Compression(tuple(facts))
        known = [fact.embedding for fact in facts] if embeddings is None else embeddings
        units = {fact.id: unit for fact, unit in zip(facts, map(unit_vector, known), strict=True) if unit is not None}
        if len({len(unit) for unit in units.values()}) > 1:
            raise WrongDimension("the facts' embeddings differ in length: embed all of them with one model")
        made = [self._merge(cluster, units) for cluster in self._clusters(sorted(facts, key=_in_time), units)]
        merges = [merge for merge in made if merge.fidelity.passed]
        return self._settle(facts, merges, len(made) - len(merges))

    def _settle(self, facts: Sequence[Fact], merges: Sequence[Merge], unfaithful: int) -> Compression:
        """Keep the most important facts. If a merged fact would have to leave, its members leave unmerged."""
        merged = {member.id for merge in merges for member in merge.members}
        by_id = {merge.fact.id: merge for merge in merges}
        ranking = sorted(
            [*(fact for fact in facts if fact.id not in merged), *(merge.fact for merge in merges)],
            key=_by_importance,
        )
        staying, leaving = ranking[: self.threshold], ranking[self.threshold :]
        left_out = [
            member for fact in leaving for member in (by_id[fact.id].members if fact.id in by_id else (fact,))
        ]
        return Compression(
            tuple(fact for fact in staying if fact.id not in by_id),
            tuple(by_id[fact.id] for fact in staying if fact.id in by_id),
            tuple(sorted(left_out, key=_by_importance)),
            unfaithful,
        )

    # -- clusters of candidates -----------------------------------------------------------------------------

    def _clusters(self, facts: Sequence[Fact], units: Mapping[str, Vector]) -> Iterator[list[Fact]]:
        """Clusters of facts that may be merged, in the order of time."""
        groups: dict[Any, list[_Candidate]] = {}
        seen: dict[tuple[Any, str, bytes], _Candidate] = {}
        for fact in facts:
            unit = units.get(fact.id)
            if unit is None or fact.superseded_at is not None or len(fact.content) > _MOST_CHARS:
                continue
            # A fact that another may supersede by its key must not disappear into one about something else.
            subject = (str(fact.fact_type), repr(fact.metadata.get("key")), repr(fact.metadata.get("value")))
            same = (subject, fact.content, unit.tobytes())
            if same in seen:  # a repetition, which follows the first one
                seen[same].facts.append(fact)
                continue
            candidate = seen[same] = _Candidate([fact], protected(fact.content), unit)
            groups.setdefault((subject, candidate.protected.key), []).append(candidate)
        for group in groups.values():
            if sum(len(candidate.facts) for candidate in group) >= self.min_cluster_size:
                for cluster in _cluster(group, self.similarity_threshold, self.min_cluster_size):
                    yield sorted((fact for candidate in cluster for fact in candidate.facts), key=_in_time)

    def _merge(self, members: Sequence[Fact], units: Mapping[str, Vector]) -> Merge:
        vectors = [units[member.id] for member in members]
        centroid = unit_vector(np.sum(np.asarray(vectors, dtype=np.float64), axis=0))
        content = _union([member.content for member in reversed(members)])
        fidelity = self.checker.check(content, [member.content for member in members], centroid, vectors)
        ids = [member.id for member in members]
        named = blake2b("\0".join(sorted(ids)).encode("utf-8", "surrogatepass"), digest_size=13)
        shared = dict(members[0].metadata)
        for member in members[1:]:
            shared = {key: value for key, value in shared.items() if member.metadata.get(key) == value}
        fact = replace(
            members[-1],
            content=content,
            id=f"fact_{named.hexdigest()}",
            tags=_joined(member.tags for member in members),
            sources=_joined(member.sources for member in members),
            # The merged fact is as important as its most important member; otherwise merging would push knowledge out
            # of the tier. Its confidence is the average: a repetition does not make a statement more certain.
            importance=max(map(_importance, members)),
            confidence=min(1.0, math.fsum(member.confidence for member in members) / len(members)),
            access_count=sum(member.access_count for member in members),
            metadata={**shared, **fidelity.as_metadata(), "merged_from": ids},
            embedding=None if centroid is None else centroid.tolist(),
        )
        return Merge(fact, tuple(members), fidelity)


class _Candidate(NamedTuple):
    """Facts with the same text and vector, and the data that clustering needs."""

    facts: list[Fact]
    protected: Protected
    unit: Vector


def _in_time(fact: Fact) -> tuple[float, str]:
    return (fact.created_at.timestamp(), fact.id)


def _importance(fact: Fact) -> float:
    return fact.confidence if fact.importance is None else fact.importance


def _by_importance(fact: Fact) -> tuple[bool, float, float, float, str]:
    """The sort key: valid facts first, then importance, confidence, the newest, the id."""
    return (
        fact.superseded_at is not None,
        -_importance(fact),
        -fact.confidence,
        -fact.created_at.timestamp(),
        fact.id,
    )


def _joined(lists: Iterable[Sequence[str]]) -> list[str]:
    return [*dict.fromkeys(one for several in lists for one in several)]


def _cluster(group: Sequence[_Candidate], threshold: float, least: int) -> Iterator[list[_Candidate]]:
    """Clusters in which every two facts agree, around the best connected candidates first."""
    units: Matrix = np.stack([candidate.unit for candidate in group])
    kinds: dict[tuple[str, ...], int] = {}
    names = np.array([kinds.setdefault(candidate.protected.names, len(kinds)) for candidate in group])
    near = [*_neighbours(units, names, threshold)]
    weights = np.array([len(candidate.facts) for candidate in group])
    degrees = [int(weights[neighbours].sum()) for neighbours in near]
    taken = np.zeros(len(group), dtype=np.bool_)
    for seed in sorted(range(len(group)), key=lambda place: (-degrees[place], place)):
        if taken[seed] or degrees[seed] + weights[seed] < least:
            continue
        company = _company(seed, near[seed][~taken[near[seed]]].tolist(), group, units, names, threshold)
        if weights[company].sum() >= least:
            taken[company] = True
            yield [group[place] for place in company]


def _company(
    seed: int,
    neighbours: Sequence[int],
    group: Sequence[_Candidate],
    units: Matrix,
    names: npt.NDArray[np.int64],
    threshold: float,
) -> list[int]:
    """The seed and its neighbours, nearest first, that agree with it and with each other."""

    def agree(one: int, other: int) -> bool:
        return bool(names[one] == names[other]) or may_merge(group[one].protected, group[other].protected)

    willing = [seed, *(place for place in neighbours if agree(seed, place))]
    with one_thread():
        close = units[willing] @ units[willing].T >= threshold - _NOISE
    company = [seed]
    chars = len(group[seed].facts[0].content)
    fits = close[0]
    for index, place in enumerate(willing[1:], 1):
        size = len(group[place].facts[0].content) + 2
        if fits[index] and chars + size <= _MOST_CHARS and all(agree(place, other) for other in company[1:]):
            company.append(place)
            chars += size
            fits = fits & close[index]
    return company


def _neighbours(units: Matrix, names: npt.NDArray[np.int64], threshold: float) -> Iterator[npt.NDArray[np.intp]]:
    """The similar rows of each row, most similar first; if there are many, those with its names."""
    step = max(1, _BLOCK_CELLS // len(units))
    for start in range(0, len(units), step):
        with one_thread():
            cosines = units[start : start + step] @ units.T
        for offset, row in enumerate(cosines):
            row[start + offset] = -2.0
            similar = np.flatnonzero(row >= threshold - _NOISE)
            if len(similar) > _MOST_NEIGHBOURS:
                liking = row[similar] + 4.0 * (names[similar] == names[start + offset])
                least = np.partition(liking, -_MOST_NEIGHBOURS)[-_MOST_NEIGHBOURS]
                similar = similar[liking >= least][:_MOST_NEIGHBOURS]
            yield similar[np.lexsort((similar, -row[similar]))]


# --- one text from many --------------------------------------------------------------------------------------

_SENTENCE_ENDS = ".!?。！？…;；:："


class _Said(NamedTuple):
    """A sentence that is already in the merged text."""

    terms: list[str]
    protected: Protected


def _union(texts: Sequence[str]) -> str:
    """All statements of the texts, each once and in the words of the first text that has it.

    A sentence is left out only if another one has the same normal form, or has all of its words in the same order and
    no protected difference.
    """
    parts: list[str] = []
    known: set[str] = set()
    said: list[_Said] = []
    for text in texts:
        if (whole := normal_form(text)) in known:
            continue
        known.add(whole)
        sentences = [statement.text for statement in statements(text)] or [text]
        fresh: list[str] = []
        for sentence in sentences:
            form = normal_form(sentence)
            one = _Said(terms(sentence), protected(sentence))
            if (form in known and form != whole) or any(_says(other, one) for other in said):
                continue
            known.add(form)
            said.append(one)
            fresh.append(sentence)
        if fresh:
            parts.append(text.strip() if len(fresh) == len(sentences) else _join(fresh))
    return _join(parts) or texts[0]


# A sentence with one of these says less than the same sentence without it.
_HEDGES = frozenset(
    term
    for term in terms(
        "if unless when may might could should would maybe perhaps probably 如果 假如 除非 可能 也许 或许 应该 大概"
    )
    if len(term) > 1
)


def _says(other: _Said, one: _Said) -> bool:
    """Whether a sentence has all words of another in their order, and no word that weakens it."""
    if not one.terms or len(one.terms) > len(other.terms):
        return False
    rest = iter(other.terms)
    return (
        all(term in rest for term in one.terms)
        and _HEDGES.intersection(other.terms) <= {*one.terms}
        and may_merge(other.protected, one.protected)
    )


def _join(parts: Sequence[str]) -> str:
    text = ""
    for part in parts:
        if text:
            chinese = is_han(text[-1]) or text[-1] in "。！？；："
            ended = text[-1] in _SENTENCE_ENDS
            text += ("" if chinese else " ") if ended else "\n" if "\n" in text else "；" if chinese else "; "
        text += part
    return text
