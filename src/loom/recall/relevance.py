"""Relevance: from what is known about the candidates to one score for each, signal by signal.

Pure functions over the columns of `candidates`. Each signal lies between 0 and 1, and its weight says how much
it may add; the score is their weighted sum. What each of them brought is in docs/recall.md, with the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from loom.index.analysis import IS_QUESTION, ONLY_ASKS
from loom.recall.candidates import Candidates, Nominated
from loom.recall.coverage import by_parts, spread_out
from loom.recall.propagation import spread
from loom.recall.questions import Question
from loom.storage.moments import to_micros
from loom.text.time_terms import NAMES_A_TIME

__all__ = [
    "SIGNALS",
    "Scored",
    "Weights",
    "assisted",
    "calibrated",
    "names_speaker",
    "neighbours",
    "pooled",
    "reachable",
    "score",
]

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

SIGNALS = (
    "words",
    "synonyms",
    "names",
    "context",
    "meaning",
    "speaker",
    "role",
    "time",
    "links",
    "telling",
    "dated",
    "answer",
    "substance",
    "importance",
    "recency",
    "order",
    "parts",
    "spread",
)
"""The signals, in the order in which the explanation of a hit names them."""

# The rows of those that words bring, and of those that tie a record to the question, links apart. The others, up to
# the order, count only for a record that something ties; the time, which is among them, is such a tie itself.
_WORDED = slice(SIGNALS.index("words"), SIGNALS.index("context"))
_ANSWERING = slice(SIGNALS.index("words"), SIGNALS.index("meaning") + 1)
_ACCOMPANYING = slice(SIGNALS.index("speaker"), SIGNALS.index("order"))
_BY_LINKS = int(Nominated.LINKS)
_BY_MEANING = int(Nominated.MEANING)


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each signal may add to a score. 0 switches one off.

    `words` counts for the words of the record itself and `context` for those of its conversation, as far as these add
    to them. `synonyms` is the part of a word that another word for it counts for, and `passages` the part of a long
    record's words that its best passage decides. `parts` counts for what the best of each part of a question lack to
    follow the first of the whole. `spread` is the part of a score that a record loses for standing beside a better
    one, where a question wants many.
    """

    words: float = 1.0
    synonyms: float = 0.9
    context: float = 1.0
    meaning: float = 0.9
    speaker: float = 0.25
    role: float = 0.3
    time: float = 0.3
    links: float = 0.1
    telling: float = 0.1
    dated: float = 0.1
    answer: float = 0.25
    substance: float = 0.15
    importance: float = 0.05
    recency: float = 0.05
    order: float = 0.2
    passages: float = 1.0
    parts: float = 1.0
    spread: float = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """The score of each candidate, and what each signal added to it: a row of the table for each."""

    total: Floats
    signals: tuple[str, ...]
    table: Floats = field(repr=False)


# Words of the records before count for a turn, and of those after: each further one for a part of the one before.
# Measured on dialogues: from 0.5 to 0.8 and from 0.3 to 0.7 recall@10 moves between 75.7 and 77.6 %.
_BACK, _BACK_DECAY = 0.7, 0.7
_AHEAD, _AHEAD_DECAY = 0.5, 0.6
# A name that a model read in a text counts so much of one that stands there: it may have read wrongly.
_READ = 0.8
# A name that is a speaker's says who is meant, not what; where it is only mentioned, it counts so much.
_MENTIONED = 0.3
# The share of what words could reach at which they are taken to answer a question. The best of poor matches is none.
_GOOD_MATCH = 0.6
# Similarities count by how far they stand out among the candidates, in standard deviations up to this many.
_FAR_OUT = 7.0
_FEWEST_VECTORS = 8
# The part that the meaning of the turn before counts for, and of the turn after.
_MEANT_BEFORE, _MEANT_AFTER = 0.3, 0.2
# What meaning counts for, of its weight, where the words of a question are all there. Recall@5 of our Chinese set is
# 91.5 % with a half and 90.1 % with the whole; of the agent's sessions 88.2 % with both.
_LEAST_TRUST = 0.5
# Meaning counts where it agrees with words: the best by words, a quarter of them, lie this many standard deviations
# above the mean. With directions by chance half of the questions lie below 0, with the embedder one of twenty. So a
# random embedder, and an English one for Chinese, cost next to nothing (docs/recall.md).
_BY_CHANCE, _AGREES = 0.0, 0.3
_FEWEST_TELLING, _MOST_TELLING = 4, 12
# A text of so many tokens says as much as a text can; a few words hardly ever answer anything.
_SUBSTANTIAL = 150
_SUBSTANCE = np.minimum(np.log1p(np.arange(_SUBSTANTIAL + 2)) / math.log1p(_SUBSTANTIAL), 1.0)
# What ties a text to a question counts so much where the text only asks: its words are for the reply to inherit.
# Recall@5 of our Chinese set is 94.4 % with 0.7 and 93.0 % with 1, its MRR 75.7 and 72.1 %; LoCoMo stays as it is.
_ASKING = 0.7
# What ties a record to a question counts more where its role is the one that the question speaks of. Where it names
# none, the user's turns and tools gain this part of it: an assistant mostly repeats what they said.
_ANY_ROLE = 0.6
# Where a question wants many, the user's turns come first: what the assistant says to each of them repeats it.
_MANY_ROLE = 2.5
# Scores go along the edges from so many of the best, and an edge to a term weighs what the term does (about 1 to 10).
# LoCoMo, with the embedder: recall@20 86.9 % without sessions and speakers and 87.5 % with them, evidence within
# 4,000 tokens 96.1 and 96.7 %.
_SOURCES = 12
_SESSION, _SPEAKER = 1.0, 0.3
_HALF_LIFE_H = 48.0
# What meaning adds to a record that answers a question, of the most that it could.
_USUAL_MEANING = 0.3
# How sharply scores bend towards 1: a record with all that is asked for has 0.92, one with half of it 0.5.
_BEND = 8.0


def score(found: Candidates, question: Question, weights: Weights, now: datetime) -> Scored:
    """Score every candidate; records that are only context get their score too, for others to ignore."""
    table = np.zeros((len(SIGNALS), len(found.keys)))
    parts = dict(zip(SIGNALS, table, strict=True))  # rows of it, filled in place
    marks = list(question.marks)
    marked = dict(zip(marks, found.marks > 0.0, strict=True))
    known = dict(zip(marks, found.spread.tolist(), strict=True))
    speakers = {term: marked[mark] for term, mark in question.speakers.items() if known[mark]}
    speakers.update(found.addressed)
    around = neighbours(found.following, found.closeness)
    _fill_in_words(parts, found, question, speakers, around, weights.synonyms)
    ceiling = _ceiling(found, question)
    worded = table[_WORDED]
    together = worded.sum(axis=0)
    if weights.context:
        together += parts["context"]
    best = float(together.max(initial=0.0))
    full = max(best, _GOOD_MATCH * ceiling) or 1.0
    worded *= weights.words / full
    parts["context"] *= weights.context / full
    trust = _trust_in_meaning(best, ceiling) * _agreement(found)
    np.multiply(meaning_scores(found.meaning, around), weights.meaning * trust, out=parts["meaning"])
    if question.times:
        np.multiply(_timely(question, marked, len(found.keys)), weights.time, out=parts["time"])
    with_assistant = assisted(found)
    if len(asks := (marked[ONLY_ASKS] & ~with_assistant).nonzero()[0]):
        table[_ANSWERING, asks] *= _ASKING
        parts["time"][asks] *= _ASKING
    answering = table[_ANSWERING].sum(axis=0)
    answering += parts["time"]
    if weights.links:
        np.multiply(_linked(found, answering), weights.links, out=parts["links"])
    # What nothing ties to the question is no answer, however well it is written. One speaker or session is a tie only
    # for what was nominated for it.
    tied = np.logical_or(answering > 0.0, found.nominated & _BY_LINKS)
    if len(found.links):
        tied |= (found.links > 0.0).any(axis=0)
    for said in speakers.values():
        parts["speaker"][said] = weights.speaker
    role = weights.role * (_MANY_ROLE if question.wants_many else 1.0)
    np.multiply(_in_role(found, with_assistant, question.role), answering * role, out=parts["role"])
    parts["telling"][~marked[IS_QUESTION] | with_assistant] = weights.telling
    if question.wants_time:
        parts["dated"][marked[NAMES_A_TIME]] = weights.dated
    if question.answers:
        here = np.array([marked[mark] for mark in question.answers])
        np.multiply(here.mean(axis=0), weights.answer, out=parts["answer"])
    np.multiply(_SUBSTANCE.take(found.tokens, mode="clip"), weights.substance, out=parts["substance"])
    np.multiply(found.importance, weights.importance, out=parts["importance"])
    # By whole hours, so that what was written in a row stays in its order.
    age_h = np.maximum(to_micros(now) - found.created_at, 0) // 3_600_000_000
    np.multiply(0.5 ** (age_h / _HALF_LIFE_H), weights.recency, out=parts["recency"])
    accompanying = table[_ACCOMPANYING]
    accompanying *= tied
    total = table.sum(axis=0)
    if question.order:
        np.multiply(_in_order(found, total, question.order), weights.order, out=parts["order"])
        total += parts["order"]
    if question.wants_many:
        parts["spread"][:] = -spread_out(found, total, weights.spread)
        total += parts["spread"]
    if question.parts and weights.parts:
        rows = {term: row for row, term in enumerate(question.words)}
        gained = by_parts(found, [[rows[term] for term in part] for part in question.parts], total)
        np.multiply(gained, weights.parts, out=parts["parts"])
        total += parts["parts"]
    return Scored(total / _highest(weights), SIGNALS, table)


def _ceiling(found: Candidates, question: Question) -> float:
    """What words could reach, and no less than one whole word. A pair of characters that stands nowhere is mostly no
    word, and nothing is missing."""
    if not question.words:
        return 0.0
    weights, frequencies = found.weights.tolist(), found.frequencies.tolist()
    # What the heaviest would add at its full weight.
    whole: float = max([weight / asked for weight, asked in zip(weights, question.words.values(), strict=True)])
    counts = [frequency > 0 or term.isascii() for term, frequency in zip(question.words, frequencies, strict=True)]
    return max(float(found.weights[counts].sum()), whole)


def _trust_in_meaning(best: float, ceiling: float) -> float:
    """What meaning counts for: less where some record holds most of the question's words, more where none does."""
    answered = min(1.0, best / ceiling) if ceiling else 0.0
    return 1.0 - (1.0 - _LEAST_TRUST) * answered


def _agreement(found: Candidates) -> float:
    """How far meaning agrees with words, 0 to 1: the records that hold most of a question's words are nearer to it
    than others where an embedder understands them. Those that meaning alone brought say nothing of that. 1 where
    words find too few to tell: then meaning is all there is.
    """
    known = np.flatnonzero(~np.isnan(found.meaning) & (found.nominated != _BY_MEANING))
    words = found.words[:, known].sum(axis=0)
    count = min(_MOST_TELLING, max(_FEWEST_TELLING, np.count_nonzero(words) // 4))
    best = (-words).argsort(kind="stable")[:count]
    best = best[words[best] > 0.0]
    if len(known) < _FEWEST_VECTORS or len(best) < _FEWEST_TELLING:
        return 1.0
    values = found.meaning[known]
    beyond = values - values.sum() / len(values)
    deviation = math.sqrt((beyond * beyond).sum() / len(values))
    if not deviation > 1e-9:
        return 0.0
    agreed = float(beyond[best].sum()) / len(best) / deviation
    return min(1.0, max(0.0, (agreed - _BY_CHANCE) / (_AGREES - _BY_CHANCE)))


def _highest(weights: Weights) -> float:
    """What a score could reach, so that it lies between 0 and 1."""
    return (
        max(weights.words, weights.context)
        + weights.meaning
        + weights.speaker
        + weights.role
        + weights.time
        + weights.links
        + weights.telling
        + weights.dated
        + weights.answer
        + weights.substance
        + weights.importance
        + weights.recency
        + weights.order
    )


def reachable(found: Candidates, question: Question, weights: Weights) -> float:
    """What a record would score that has all that this question asks for, in the units of `Scored.total`.

    Signals that the question or the store cannot raise are left out: a question that names no speaker loses nothing
    for that, and neither does a store without vectors.
    """
    tied = max(weights.words, weights.context)
    if not np.isnan(found.meaning).all():
        tied += _USUAL_MEANING * weights.meaning
    if question.times:
        tied += weights.time
    role = float(_in_role(found, assisted(found), question.role).max(initial=0.0))
    tied += tied * role * weights.role * (_MANY_ROLE if question.wants_many else 1.0)
    asked = (
        (weights.speaker, names_speaker(found, question)),
        (weights.dated, question.wants_time),
        (weights.answer, bool(question.answers)),
    )
    others = weights.telling + 0.5 * weights.substance + sum(weight for weight, is_asked in asked if is_asked)
    return (tied + others) / _highest(weights)


def calibrated(total: Floats, reach: float) -> Floats:
    """Totals as scores that mean the same for every question: their share of what it could reach, below 1.

    Docs/recall.md has the shares of wrong hits above a score and of right ones below it.
    """
    share = np.maximum(total, 0.0) / reach if reach > 0.0 else np.zeros(len(total))
    scores: Floats = share / (1.0 + share**_BEND) ** (1.0 / _BEND)
    return scores


def _fill_in_words(
    parts: dict[str, Floats],
    found: Candidates,
    question: Question,
    speakers: Collection[str],
    around: Neighbours,
    synonyms: float,
) -> None:
    """What words bring: each record's own, what other words for the question's add to them, what the names add that a
    model read in it, and what is said around it. `speakers` are those of the question's words that name one."""
    kept = [term for term in question.words if term not in speakers]
    told, named = found.words, found.named
    if speakers:
        naming = np.array([term in speakers for term in question.words], dtype=np.bool_)
        parts["words"][:] = _MENTIONED * told[naming].sum(axis=0)
        told = told[~naming]
    said = _in_whole_words(kept, told)
    own = said.sum(axis=0)
    parts["words"] += own
    if named is not None:
        table = np.maximum(found.words, _READ * named)
        said = _in_whole_words(kept, table[~naming] if speakers else table)
        plain, own = own, said.sum(axis=0)
        parts["names"][:] = np.maximum(own - plain, 0.0)
        if speakers:
            parts["names"] += _MENTIONED * (table - found.words)[naming].sum(axis=0)
    if synonyms and question.concepts:
        merged = _with_synonyms(found, question, kept, said, synonyms)
        if merged is not said:
            plain, said, own = own, merged, merged.sum(axis=0)
            parts["synonyms"][:] = np.maximum(own - plain, 0.0)
    parts["context"][:] = np.maximum(pooled(said, around).sum(axis=0) - own, 0.0)


def _in_whole_words(terms: list[str], said: Floats) -> Floats:
    """The table where a character counts only in records that hold none of the question's pairs with it: 婚 for 结婚,
    and nothing on top of it. Measured on our Chinese set, words alone: recall@5 87 % with it and 93 % without."""
    alone = {term: row for row, term in enumerate(terms) if len(term) == 1}
    if not alone:
        return said
    holds = np.zeros((len(terms), len(terms)))
    for row, term in enumerate(terms):
        if len(term) == 2 and not term.isascii():
            for character in term:
                if character in alone:
                    holds[alone[character], row] = 1.0
    whole: Floats = said * (holds @ (said > 0.0) == 0.0)
    return whole


def _with_synonyms(found: Candidates, question: Question, terms: list[str], said: Floats, share: float) -> Floats:
    """The table with one row for each word that has others: what the word adds, or the best of the others.

    Another word counts no more than the word itself would, so that a rare one says nothing more than a common one.
    """
    # Another word may be one of the question's own too.
    stands = frozenset((*question.words, *found.synonym_terms))
    here = [
        (concept, others)
        for concept in question.concepts
        if (others := [other for other in concept.others if stands.issuperset(other.terms)])
    ]
    if not here:
        return said
    rows = {term: row for row, term in enumerate(terms)}
    weights = dict(zip(question.words, found.weights.tolist(), strict=True))
    at_full_weight = dict(
        zip(found.synonym_terms, zip(found.synonyms, found.synonym_weights.tolist(), strict=True), strict=True)
    )
    for place, (term, asked) in enumerate(question.words.items()):
        at_full_weight[term] = found.words[place] / asked, weights[term] / asked
    merged: list[Floats] = []
    taken: set[int] = set()
    for concept, others in here:
        own = [rows[term] for term in concept.terms if term in rows and rows[term] not in taken]
        if not own:
            continue
        most = sum([weights[term] for term in concept.terms if term in weights])
        best = np.zeros(len(found.keys))
        for other in others:
            value, full = at_full_weight[other.terms[0]]
            if len(other.terms) > 1:
                parts = [at_full_weight[term] for term in other.terms]
                part, full = np.array([value for value, _ in parts]), sum([weight for _, weight in parts])
                value = part.sum(axis=0) * (part > 0.0).all(axis=0)
            np.maximum(best, value * (other.weight * min(1.0, most / full)), out=best)
        if best.any():
            merged.append(np.maximum(said[own].sum(axis=0), share * best))
            taken.update(own)
    if not merged:
        return said
    left = [row for row in range(len(said)) if row not in taken]
    return np.concatenate((said[left], np.array(merged)))


Neighbours = tuple[tuple[Places, Floats], tuple[Places, Floats]]
"""The places of the records before, and of those after, each with how close they are: 0 where there is none, and the
place then says nothing."""


def neighbours(following: Places, closeness: Floats) -> Neighbours:
    """Both ways, from the place of the record after each (-1 where there is none) and how close that is."""
    linked = following >= 0
    after = following[linked]
    before, close = np.zeros(len(following), dtype=np.intp), np.zeros(len(following))
    before[after], close[after] = linked.nonzero()[0], closeness[linked]
    return (before, close), (following, closeness * linked)


def pooled(table: Floats, around: Neighbours, reach: int = 2) -> Floats:
    """Each term's best value within reach of each record, less the further away it stands.

    The best and not the sum: a term that a whole conversation repeats is one term still. What was said before counts
    more than what was said after: a reply takes its words from the question.
    """
    best, there = table.copy(), np.empty_like(table)
    for (step, close), weight, decay in zip(around, (_BACK, _AHEAD), (_BACK_DECAY, _AHEAD_DECAY), strict=True):
        place, strength = step, close
        for distance in range(reach):
            if distance:
                strength = strength * close[place]
                place = step[place]
            table.take(place, axis=1, out=there, mode="clip")  # a third of the time of an index
            there *= strength * weight
            np.maximum(best, there, out=best)
            weight *= decay
    return best


def meaning_scores(similarities: Floats, around: Neighbours) -> Floats:
    """How far each similarity stands out among all, with a part of those next to it; 0 to 1, 0 where there is none.

    The level of similarities differs from model to model, so only the distance from their mean counts. A few have no
    mean worth the name, and count as they are.
    """
    known = ~np.isnan(similarities)
    values = similarities[known]
    result = np.zeros(len(similarities))
    count = len(values)
    beyond = values - values.sum() / max(count, 1)  # and not `mean` and `std`, which take four times as long
    deviation = math.sqrt((beyond * beyond).sum() / count) if count >= _FEWEST_VECTORS else 0.0
    if not deviation > 1e-9:
        result[known] = np.clip(values, 0.0, 1.0)
        return result
    result[known] = np.maximum(beyond / deviation, 0.0)
    (before, close_before), (after, close_after) = around
    nearby = _MEANT_BEFORE * close_before * result[before] + _MEANT_AFTER * close_after * result[after]
    standing: Floats = np.minimum(result + nearby * known, _FAR_OUT) / _FAR_OUT
    return standing


def assisted(found: Candidates) -> npt.NDArray[np.bool_]:
    """Which of the records are of conversations with an assistant; one that is alone here, where any of them is.

    There the turns of a user are requests, which end in questions and state what they are about.
    """
    speaks = found.assistant
    if not speaks.any():
        return speaks
    of = found.sessions + 1
    spoken_to: npt.NDArray[np.bool_] = np.bincount(of, speaks)[of] > 0.0
    spoken_to[of == 0] = True
    return spoken_to


def names_speaker(found: Candidates, question: Question) -> bool:
    """Whether a question names a speaker of the store."""
    known = dict(zip(question.marks, found.spread.tolist(), strict=True))
    return bool(found.addressed) or any(known[mark] for mark in question.speakers.values())


def _in_role(found: Candidates, with_assistant: npt.NDArray[np.bool_], role: str) -> Floats:
    """How far the role of each record is the one that a question speaks of, where there are two. Tools take the side
    of the user: the assistant repeats what they found."""
    if role == "assistant":
        return np.where(found.assistant, _ANY_ROLE, 0.0)
    return np.where(with_assistant & ~found.assistant, 1.0 if role else _ANY_ROLE, 0.0)


def _linked(found: Candidates, answering: Floats) -> Floats:
    """What reaches each from the best of them, over shared terms and names, sessions and speakers."""
    start = answering
    if len(start) > _SOURCES:
        start = np.where(start >= np.partition(start, -_SOURCES)[-_SOURCES], start, 0.0)
    return spread(found.links, start, ((found.sessions, _SESSION), (found.speakers, _SPEAKER)))


def _timely(question: Question, marked: Mapping[str, npt.NDArray[np.bool_]], count: int) -> Floats:
    """The best of the asked times that a record is of or speaks of."""
    result = np.zeros(count)
    for mark, share in question.times.items():
        np.maximum(result, share * marked[mark], out=result)
    return result


def _in_order(found: Candidates, total: Floats, order: str) -> Floats:
    """For what is asked for as the latest, or the first: its place in time among the good answers, 1 for the best."""
    result = np.zeros(len(found.keys))
    good = np.flatnonzero((total >= 0.5 * total.max(initial=0.0)) & (found.nominated > 0))
    if len(good) > 1:
        moments = np.unique(found.created_at[good])
        if len(moments) > 1:
            place = moments.searchsorted(found.created_at[good]) / (len(moments) - 1)
            result[good] = place if order == "latest" else 1.0 - place
    return result
