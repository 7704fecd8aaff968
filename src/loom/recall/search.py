"""Recall: from a question to the memories that answer it.

Words, meaning, conversation and links nominate candidates, and `relevance` scores them. This module runs the search
on one snapshot of the store, reads the best records, removes copies, and orders and explains the hits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from loom.echoes import echoes_among
from loom.errors import InvalidInput
from loom.index.analysis import attached
from loom.models.embedders import EmbeddingProvider, embed_question
from loom.recall.addressing import with_addressed, with_own
from loom.recall.candidates import Candidates, Nearest, Nominated, Probe, find_candidates
from loom.recall.conditions import with_instructions
from loom.recall.conversation import WIDEST
from loom.recall.copies import COMPARED, Duplicates, jaccard
from loom.recall.hits import Hit, Ranking
from loom.recall.passage_scores import ScoredByPassages, by_passages
from loom.recall.questions import Question, understand
from loom.recall.relevance import Scored, Weights, calibrated, reachable, score
from loom.recall.replacements import Companions, in_pairs, with_replacements
from loom.recall.reranking import MemoryReranker
from loom.recall.understanding import understood
from loom.storage.contract import Filter, Record, Store, Vector, check_limit
from loom.storage.search_view import SearchView
from loom.text.statement_kinds import without_opening
from loom.text.unstated import is_acknowledgement
from loom.text.words import query_terms

__all__ = ["LARGE_STORE", "CandidateExplanation", "Explanation", "Nearest", "Reranker", "question_vector", "recall"]

log = logging.getLogger("loom.recall")

LARGE_STORE = 20_000
"""From this many records on, fewer candidates are scored: in a smaller store, more of them cost little."""

# The number of candidates by words for each wanted hit. Meaning nominates a third of that, since a vector costs more
# to score and its far neighbours are rarely right. The number is the same for all small limits, so a shorter answer
# is the beginning of a longer one. Recall@10 in answers of ten from a small store, with 30 candidates and 10 seeds,
# and with 100 and 30: LoCoMo 83.3 and 84.3 %, REALTALK 70.9 and 72.9, BEAM 65.9 and 68.1, agents with tools 85.2 and
# 84.8.
_CANDIDATES = 3
_FEWEST_CANDIDATES = 30
_FEWEST_IN_SMALL = 100
_MEANT_SHARE = 3
# The number of best candidates whose conversation is read, the turns read before and after each, and the number of
# terms that links follow.
_FEWEST_SEEDS = 10
_FEWEST_SEEDS_IN_SMALL = 30
_HITS_FOR_SEED = 5
_REACH = 2
_LINKS = 12
# If copies leave too few hits, the search is repeated with this factor, up to this many rounds.
_DEEPER = 8
_ROUNDS = 3
# A reranker gets this many times the hits that are wanted.
_RERANKED = 3
_PHRASE = 0.3
# A record of a tool or an assistant that repeats an answer of this memory is not a hit; the memories themselves are.
_ECHO = "an echo of memory"
# An acknowledgement of at most this many tokens keeps this share of its score.
_FILLER_TOKENS = 12
_FILLER = 0.3
# The signals for which a hit has the value that the index measured, not the contribution to its score.
_MEASURED = frozenset(("words", "meaning"))
# The number of hits that `diversity` reorders.
_KEPT_APART = 256

Reranker = MemoryReranker | Callable[[str, Sequence[Hit]], Sequence[float]]
"""Reorders the hits: a `MemoryReranker`, or a function (a cross-encoder, an LLM) that returns a score for each hit,
higher is better."""


@dataclass(frozen=True, slots=True)
class CandidateExplanation:
    """One candidate: the contributions to its score, its nominations, and its outcome."""

    id: str
    score: float
    signals: Mapping[str, float]
    nominated_by: tuple[str, ...]
    outcome: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A complete recall: the hits, the analysed question, and every candidate, best first.

    `excluded` has the derived records and older versions that the words of the question found, as sequence numbers
    with scores, best first. It is empty if a filter restricted the recall further.
    """

    hits: list[Hit]
    question: Question
    candidates: tuple[CandidateExplanation, ...]
    excluded: Mapping[int, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the candidates as a table of plain text."""
        lines = [
            f"asked: {self.question.text}",
            f"terms: {', '.join(self.question.words)}",
        ]
        if self.question.phrases:
            lines.append(f"phrases: {', '.join(self.question.phrases)}")
        lines += [
            f"synonyms of {concept.word}: {', '.join(other.word for other in concept.others)}"
            for concept in self.question.concepts
        ]
        if self.question.times:
            lines.append("the question names a time")
        for place, one in enumerate(self.candidates, start=1):
            added = ", ".join(f"{name} {value:+.3f}" for name, value in one.signals.items())
            lines.append(
                f"{place:4d}. {one.score:.3f} {one.id} [{'+'.join(one.nominated_by)}] {one.outcome}: {added}"
            )
        return "\n".join(lines)


def recall(
    store: Store,
    question: str,
    *,
    limit: int,
    wanted: Filter,
    embedder: EmbeddingProvider | None = None,
    embed: Callable[[str], Vector | None] | None = None,
    weights: Weights | Callable[[], Weights] = Weights,
    diversity: float = 0.0,
    min_score: float = 0.0,
    reranker: Reranker | None = None,
    node: str = "",
    seeds: int = 0,
    standing: Mapping[int, float] = MappingProxyType({}),
    explain: bool = False,
    nearest: Nearest | None = None,
) -> Explanation:
    """Return the best memories for a question, best first; equal scores in the order of writing.

    Hits below `min_score` (0 to 1) are left out before reranking. `diversity` (0 to 1) trades similarity to the
    question for difference from the preceding hits. With `explain`, the explanation lists every candidate. `embed`
    returns the vector of a question instead of the embedder. `node` is the node whose uses a `MemoryReranker` counts.
    The turns around at least `seeds` of the best candidates are read; the default depends on the limit. `standing`
    maps the turns that gave instructions to their strengths (0 to 1), if the question meets their conditions. All
    reads of the store, including those by a function `weights`, see one snapshot. `nearest` nominates by meaning
    instead of the store's own index; the scores are computed in the same way.

    Raises `InvalidInput` for a question that is empty or not a text, and for numbers out of range.
    """
    if not isinstance(question, str):
        raise InvalidInput(f"a question must be a text, not {type(question).__name__}")
    check_limit(limit)
    if not question.strip():
        raise InvalidInput("the question is empty")
    for name, share in (("diversity", diversity), ("min_score", min_score)):
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 <= share <= 1.0:
            raise InvalidInput(f"{name} is {share!r}; it must be a number from 0 to 1")
    now = store.clock()
    asked = understand(question, now)
    is_worded = isinstance(weights, Weights) and not weights.meaning
    vector = None
    if not is_worded and embedder is not None:
        topic = asked.without_names(_speakers(store, asked))
        vector = question_vector(embedder, topic) if embed is None else embed(topic)
    reading = _Reading(
        asked,
        vector,
        weights,
        wanted,
        now,
        seeds=seeds,
        more_seeds=limit // _HITS_FOR_SEED,
        pool=min(limit * _RERANKED, 2**31 - 1) if diversity or reranker is not None else limit,
        node=node if isinstance(reranker, MemoryReranker) else None,
        standing=standing,
        explain=explain,
        nearest=nearest,
    )
    answer = store.search(reading.answer)
    hits = [hit for hit in answer.hits if hit.score >= min_score]
    if isinstance(reranker, MemoryReranker):
        hits = [
            replace(one.item, signals={**one.item.signals, "reranked": one.score})
            for one in reranker.rerank(question, hits)
        ]
    elif reranker is not None:
        hits = _reranked(reranker, question, hits)
    if diversity:
        hits = _diverse(hits, limit, diversity)
    hits = in_pairs(hits, answer.companions)[:limit]
    return Explanation(hits, asked, _explained(answer, hits) if explain else (), answer.found.excluded)


class _Answer(NamedTuple):
    """The answer from one snapshot: the hits in the order of their scores, and the ids of copies.

    `records` has all candidates if an explanation is requested; `companions` has the other sides of changes.
    """

    found: Candidates
    scored: Scored
    scores: Sequence[float]
    hits: list[Hit]
    copies: Mapping[str, str]
    records: Mapping[int, Record] = MappingProxyType({})
    companions: Companions = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Reading:
    """The part of a recall that reads the store: up to `pool` hits, with their uses by `node` if given."""

    asked: Question
    vector: Vector | None
    weights: Weights | Callable[[], Weights]
    wanted: Filter
    now: datetime
    seeds: int
    more_seeds: int
    pool: int
    node: str | None
    standing: Mapping[int, float]
    explain: bool
    nearest: Nearest | None = None

    def answer(self, view: SearchView) -> _Answer:
        weights = self.weights if isinstance(self.weights, Weights) else self.weights()
        # If the vectors do not follow the texts, only words are searched.
        is_understood = self.vector is not None and understood(view, self.asked.text)
        is_small = view.text.documents < LARGE_STORE
        fewest_seeds = _FEWEST_SEEDS_IN_SMALL if is_small else _FEWEST_SEEDS
        count = max(self.pool * _CANDIDATES, _FEWEST_IN_SMALL if is_small else _FEWEST_CANDIDATES)
        probe = Probe(
            self.asked.words,
            self.asked.marks,
            self.vector if is_understood else None,
            self.asked.synonyms if weights.synonyms else {},
            seeds=max(self.seeds, fewest_seeds + self.more_seeds),
            reach=_REACH if weights.context else 0,
            links=_LINKS if weights.links else 0,
            standing=tuple(self.standing),
            nearest=self.nearest,
        )
        found = self._search(view, probe, weights, count)
        # Doc values identify sessions by hashes. If two hashes collide near a hit, the search is repeated with the
        # names of the sessions.
        if probe.reach and view.mixed([hit.seq for hit in found.hits], WIDEST):
            found = self._search(view, replace(probe, exact=True), weights, count)
        if self.node is not None:
            uses = view.uses([hit.seq for hit in found.hits], self.node)
            found = found._replace(hits=[replace(hit, uses=uses.get(hit.seq, 0)) for hit in found.hits])
        hits, companions = with_replacements(view, found.hits, self.asked, self.wanted)
        found = found._replace(hits=hits, companions=companions)
        if self.explain:
            keys = found.found.keys[_best_first(found.found, found.scored)]
            found = found._replace(records=view.records(keys.tolist()))
        return found

    def _search(self, view: SearchView, probe: Probe, weights: Weights, count: int) -> _Answer:
        for _ in range(_ROUNDS):
            found = find_candidates(view, probe, count, count // _MEANT_SHARE, self.wanted)
            found = with_own(view, with_addressed(view, found, self.asked), self.asked)
            # A question that wants many memories asks for whole records.
            share = 0.0 if self.asked.wants_many else weights.passages
            by_best = by_passages(view, found, self.asked, share)
            found = by_best.found
            scored = _with_phrases(view, found, self.asked, score(found, self.asked, weights, self.now))
            scored = with_instructions(found, self.asked, scored, self.standing)
            scored = _without_filler(view, found, scored, self.pool)
            reach = reachable(found, self.asked, weights) + (_PHRASE if self.asked.phrases else 0.0)
            scores = calibrated(scored.total, reach).tolist()
            hits, copies = _distinct_hits(view, by_best, self.asked, scored, scores, self.pool)
            if len(hits) >= self.pool or not copies or len(found.keys) < count:
                break
            count *= _DEEPER
        return _Answer(found, scored, scores, hits, copies)


def _speakers(store: Store, asked: Question) -> frozenset[str]:
    """Return the terms of a question that are names of speakers of the store.

    They have a signal of their own. The vector of a question with a name is near to the turns that address that
    speaker: LoCoMo's recall@10 by the embedder alone is 35.6 % with names and 59.6 % without.
    """
    if not asked.speakers:
        return frozenset()
    counts = store.search(lambda view: view.text.frequencies([*asked.speakers.values()]))
    return frozenset(term for term, count in zip(asked.speakers, counts, strict=True) if count)


def question_vector(embedder: EmbeddingProvider, question: str) -> Vector | None:
    """Return the vector of a question, or None if the embedder fails. Recall then uses words alone."""
    try:
        return embed_question(embedder, question)
    except Exception as error:
        log.warning("the question was not embedded (%s), so only words are searched", type(error).__name__)
        return None


def _with_phrases(view: SearchView, found: Candidates, asked: Question, scored: Scored) -> Scored:
    """Return the scores with a bonus for records that contain the quoted phrases of the question."""
    if not asked.phrases or not len(found.keys):
        return scored
    wanted = [phrase.casefold() for phrase in asked.phrases]
    records = view.records(found.keys.tolist())
    added = np.zeros(len(found.keys))
    for place, key in enumerate(found.keys.tolist()):
        if key in records:
            text = f"{records[key].content}\n{attached(records[key].metadata)}".casefold()
            added[place] = _PHRASE * sum(phrase in text for phrase in wanted) / len(wanted)
    return Scored(scored.total + added, (*scored.signals, "phrase"), np.concatenate((scored.table, [added])))


def _without_filler(view: SearchView, found: Candidates, scored: Scored, pool: int) -> Scored:
    """Return the scores, with lower ones for acknowledgements such as "Got it." and 好的，已记住。

    Such a text gets its score from the turns around it, and answers nothing.
    """
    short = [place for place in _best_first(found, scored)[: 2 * pool] if found.tokens[place] <= _FILLER_TOKENS]
    records = view.records(found.keys[short].tolist()) if short else {}
    filler = [place for place in short if _is_filler(records.get(int(found.keys[place])))]
    if not filler:
        return scored
    kept = np.ones(len(found.keys))
    kept[filler] = _FILLER
    return Scored(scored.total * kept, scored.signals, scored.table * kept)


def _is_filler(record: Record | None) -> bool:
    return (
        record is not None
        and not attached(record.metadata)
        and (
            is_acknowledgement(record.content, record.role == "assistant")
            or not any(map(str.isalnum, without_opening(record.content)))
        )
    )


def _best_first(found: Candidates, scored: Scored) -> list[int]:
    """Return the places of the nominated candidates with a positive score, best first."""
    tied = np.where(found.nominated, scored.total, 0.0)
    order: list[int] = (-tied).argsort(kind="stable").tolist()  # keys ascend: of equals, the first written
    return order[: np.count_nonzero(tied > 0.0)]


def _distinct_hits(
    view: SearchView, by_best: ScoredByPassages, asked: Question, scored: Scored, scores: Sequence[float], limit: int
) -> tuple[list[Hit], dict[str, str]]:
    """Return the best hits, each text once, and the omitted ids, each with the id of which it is a copy or as an
    echo."""
    found = by_best.found
    order = _best_first(found, scored)
    totals: list[float] = scored.total.tolist()
    chosen: list[tuple[int, Record]] = []
    same: list[list[str]] = []
    duplicates = Duplicates(totals)
    copies: dict[str, str] = {}
    for start in range(0, len(order), limit):
        part = order[start : start + limit]
        seqs = found.keys[part].tolist()
        records = view.records(seqs)
        echoes = echoes_among(records.values())
        # For each place, a bit for each word of the question that the record has.
        held = [bits.tobytes() for bits in np.packbits(found.words[:, part] > 0.0, axis=0).T]
        duplicates.expect(
            (records[seq], place, words)
            for place, seq, words in zip(part, seqs, held, strict=True)
            if seq in records and records[seq].id not in echoes
        )
        for place, seq, words in zip(part, seqs, held, strict=True):
            record = records.get(seq)
            if record is None or not (record.content.strip() or attached(record.metadata)):
                continue  # forgotten meanwhile, or a message without text
            if record.id in echoes:
                copies[record.id] = _ECHO
                continue
            original = duplicates.find(record, place, words)
            if original is not None:
                same[original].append(record.id)
                copies[record.id] = chosen[original][1].id
            elif len(chosen) < limit:
                duplicates.add(record, place, words, len(chosen))
                chosen.append((place, record))
                same.append([])
        if len(chosen) >= limit:
            break
    spoken = _signals(scored, found, [place for place, _ in chosen])
    sessions = found.sessions.tolist()
    asked_words = tuple(asked.words)
    hits = [
        Hit(
            id=record.id,
            content=record.content,
            score=scores[place],
            tokens=record.tokens,
            created_at=record.created_at,
            role=record.role,
            name=record.name,
            session_id=record.session_id,
            kind=record.kind,
            trust=record.trust,
            importance=record.importance,
            metadata=record.metadata,
            version=record.version,
            superseded_at=record.superseded_at,
            signals=signals,
            ranking=Ranking(scored.signals, scored.table, found.nominated, place),
            copies=1 + len(same_text),
            copy_ids=tuple(same_text),
            query_terms=asked_words,
            link_terms=found.link_terms,
            concepts=asked.concepts,
            shares_session=sessions[place] >= 0,
            names=found.names.get(record.seq, {}),
            seq=record.seq,
            passage_scorer=by_best.scorer,
            scored_by=by_best.best.get(place),
        )
        for (place, record), same_text, signals in zip(chosen, same, spoken, strict=True)
    ]
    return hits, copies


def _signals(scored: Scored, found: Candidates, places: Sequence[int]) -> list[dict[str, float]]:
    """Return the signals of each place: words and meaning as measured, and the contributions of the others."""
    said, meaning = found.words[:, places].sum(axis=0).tolist(), found.meaning[places].tolist()
    spoken: list[dict[str, float]] = []
    for words, meant, added in zip(said, meaning, scored.table[:, places].T.tolist(), strict=True):
        own = {"words": words} if words > 0.0 else {}
        if meant == meant:
            own["meaning"] = meant
        others = zip(scored.signals, added, strict=True)
        spoken.append(own | {name: value for name, value in others if value > 0.0 and name not in _MEASURED})
    return spoken


def _reranked(reranker: Callable[[str, Sequence[Hit]], Sequence[float]], question: str, hits: list[Hit]) -> list[Hit]:
    """Return the hits in the order of a reranker. If it fails, they keep their order."""
    if not hits:
        return hits
    try:
        scores = [float(value) for value in reranker(question, hits)]
    except Exception as error:
        log.warning("the hits were not reranked (%s); they stay in their order", type(error).__name__)
        return hits
    if len(scores) != len(hits):
        raise InvalidInput(f"the reranker returned {len(scores)} scores for {len(hits)} hits; one for each is needed")
    order = sorted(range(len(hits)), key=lambda place: (-scores[place], place))
    return [replace(hits[place], signals={**hits[place].signals, "reranked": scores[place]}) for place in order]


def _diverse(hits: list[Hit], limit: int, diversity: float) -> list[Hit]:
    """Return the hits by maximal marginal relevance over the terms of their texts.

    Only the first `_KEPT_APART` hits are reordered; the others follow.
    """
    hits, others = hits[:_KEPT_APART], hits[_KEPT_APART:]
    terms = [frozenset(query_terms(hit.content[:COMPARED])) for hit in hits]
    highest = max((hit.score for hit in hits), default=1.0) or 1.0
    likest = [0.0] * len(hits)
    left = list(range(len(hits)))
    chosen: list[Hit] = []
    while left and len(chosen) < limit:
        best = max(left, key=lambda i: ((1.0 - diversity) * hits[i].score / highest - diversity * likest[i], -i))
        left.remove(best)
        chosen.append(hits[best])
        for i in left:
            likest[i] = max(likest[i], jaccard(terms[i], terms[best]))
    return [*chosen, *others][:limit]


def _explained(answer: _Answer, hits: Iterable[Hit]) -> tuple[CandidateExplanation, ...]:
    """Return every candidate with its outcome, best first."""
    found, scored, scores, _, copies, records, _ = answer
    outcomes = {id: _ECHO if of is _ECHO else f"copy of {of}" for id, of in copies.items()}
    outcomes |= {hit.id: "returned" for hit in hits}
    explained: list[CandidateExplanation] = []
    for place in _best_first(found, scored):
        record = records.get(int(found.keys[place]))
        if record is None:
            continue
        brought = Nominated(int(found.nominated[place]))
        explained.append(
            CandidateExplanation(
                id=record.id,
                score=scores[place],
                signals={
                    name: value
                    for name, value in zip(scored.signals, scored.table[:, place].tolist(), strict=True)
                    if value
                },
                nominated_by=tuple((flag.name or "").lower() for flag in Nominated if flag in brought),
                outcome=outcomes.get(record.id, "left out"),
            )
        )
    return tuple(explained)
