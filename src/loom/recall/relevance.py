"""Relevance: score every candidate, signal by signal.

Pure functions over the columns of `candidates`. A signal lies between 0 and 1, and its weight is the most that it
adds. The score is the weighted sum. docs/recall.md has the effect of each signal on each set.
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

# The rows of three groups of signals: those from words; those that tie a record to the question (except links); and
# those that count only for a tied record. The time belongs to the third group, and ties a record as well.
_WORDED = slice(SIGNALS.index("words"), SIGNALS.index("context"))
_ANSWERING = slice(SIGNALS.index("words"), SIGNALS.index("meaning") + 1)
_ACCOMPANYING = slice(SIGNALS.index("speaker"), SIGNALS.index("order"))
_BY_LINKS = int(Nominated.LINKS)
_BY_MEANING = int(Nominated.MEANING)


@dataclass(frozen=True, slots=True)
class Weights:
    """The most that each signal adds to a score. 0 switches a signal off.

    `words` weights the words of the record, and `context` the additional words of its conversation. `synonyms` is the
    share of a word's weight that a synonym of it has. `passages` is the share of a long record's words that comes
    from its best passage. `parts` raises the best records for each part of a question up to the fifth hit for the
    whole question. `spread` is the share of its score that a record beside a better one loses if the question wants
    many.
    """

    words: float = 1.0
    synonyms: float = 0.9
    context: float = 1.0
    meaning: float = 0.9
    speaker: float = 0.45
    role: float = 0.3
    time: float = 0.45
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
    """The score of each candidate. The table has a row for each signal with its contributions."""

    total: Floats
    signals: tuple[str, ...]
    table: Floats = field(repr=False)


# The weights of words from the records before and after a turn, and the decay with each further record.
# Measured on dialogues: from 0.5 to 0.8 and from 0.3 to 0.7 recall@10 moves between 75.7 and 77.6 %.
_BACK, _BACK_DECAY = 0.7, 0.7
_AHEAD, _AHEAD_DECAY = 0.5, 0.6
# The weight of a name that a model read in a text, relative to a name that the text contains. The model may be wrong.
_READ = 0.8
# The weight of a speaker's name in a text. It identifies a person, not the subject.
_MENTIONED = 0.3
# From this share of the reachable weight of words on, the best match counts as an answer.
_GOOD_MATCH = 0.6
# The distance of a similarity from the mean of the candidates counts up to this many standard deviations.
_FAR_OUT = 7.0
_FEWEST_VECTORS = 8
# The weights of the meaning of the turn before and of the turn after. With 0.2 for the turn after, recall@10 is 0.1
# to 0.3 points lower on four sets and the same on four.
_MEANT_BEFORE, _MEANT_AFTER = 0.3, 0.3
# The share of its weight that meaning keeps if a record has all words of the question. Recall@5 of our Chinese set is
# 91.5 % with a half and 90.1 % with the whole; that of the agent's sessions is 88.2 % with both.
_LEAST_TRUST = 0.5
# Meaning counts to the extent that it agrees with words. The measure is the mean similarity of the best quarter by
# words, in standard deviations above the mean of all: at the first value meaning counts nothing, at the second in
# full. With random vectors half of the questions lie below 0, with the embedder one in twenty.
_BY_CHANCE, _AGREES = 0.0, 0.3
_FEWEST_TELLING, _MOST_TELLING = 4, 12
# The length in tokens from which on a text has full substance. A few words rarely answer a question.
_SUBSTANTIAL = 150
_SUBSTANCE = np.minimum(np.log1p(np.arange(_SUBSTANTIAL + 2)) / math.log1p(_SUBSTANTIAL), 1.0)
# The factor for the ties of a text that only asks: the reply inherits its words. Recall@5 of our Chinese set is 94.4
# % with 0.7 and 93.0 % with 1, its MRR 75.7 and 72.1 %. LoCoMo does not change.
_ASKING = 0.7
# The ties of a record count more if its role is the one that the question refers to. If the question refers to none,
# user turns and tool outputs get this share of the bonus: an assistant mostly repeats them.
_ANY_ROLE = 0.6
# The factor for the role if a question wants many: the user's turns come first, since the replies repeat them.
_MANY_ROLE = 2.5
# The share of its weight that the speaker keeps in a turn that is not about the speaker. Recall@10 of REALTALK is
# 70.6 % with it and 69.2 % without, of LoCoMo 83.3 % with both.
_OF_ANOTHER = 0.7
# The share for a speaker who is named after another: "What did Ana say about Ben?" Recall@10 of LoCoMo's questions
# with two names is 4 points higher than with the whole. REALTALK does not change.
_NOT_SUBJECT = 0.4
# The number of best candidates from which scores spread. An edge to a term has the weight of the term (about 1 to
# 10). LoCoMo, with the embedder: recall@20 86.9 % without sessions and speakers and 87.5 % with them, evidence within
# 4,000 tokens 96.1 and 96.7 %.
_SOURCES = 12
_SESSION, _SPEAKER = 1.0, 0.3
_HALF_LIFE_H = 48.0
# The usual contribution of meaning to a right answer, as a share of the possible one.
_USUAL_MEANING = 0.3
# The bend of scores towards 1: a record with everything asked for scores 0.92, one with half of it 0.5.
_BEND = 8.0


def score(found: Candidates, question: Question, weights: Weights, now: datetime) -> Scored:
    """Return the scores of all candidates, including those that are only context of others."""
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
    # Meaning counts less if some record has most of the question's words, more if none has.
    answered = min(1.0, best / ceiling) if ceiling else 0.0
    trust = (1.0 - (1.0 - _LEAST_TRUST) * answered) * _agreement(found)
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
    # An untied record is not an answer, however substantial. A common speaker or session ties only records that were
    # nominated for it.
    tied = np.logical_or(answering > 0.0, found.nominated & _BY_LINKS)
    if len(found.links):
        tied |= (found.links > 0.0).any(axis=0)
    if speakers:
        _fill_in_speakers(parts["speaker"], question, speakers, weights.speaker)
    if found.own is not None:
        parts["speaker"][~found.own] *= _OF_ANOTHER
    role = weights.role * (_MANY_ROLE if question.wants_many else 1.0)
    np.multiply(_in_role(found, with_assistant, question.role), answering * role, out=parts["role"])
    parts["telling"][~marked[IS_QUESTION] | with_assistant] = weights.telling
    if question.wants_time:
        parts["dated"][marked[NAMES_A_TIME]] = weights.dated
    if question.answers:
        np.multiply(
            np.array([marked[mark] for mark in question.answers]).mean(axis=0), weights.answer, out=parts["answer"]
        )
    np.multiply(_SUBSTANCE.take(found.tokens, mode="clip"), weights.substance, out=parts["substance"])
    np.multiply(found.importance, weights.importance, out=parts["importance"])
    # The age counts in whole hours, so that records written in quick succession keep their order.
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
        rows = {term: row for row, term in enumerate(question.words) if term not in speakers}
        of_parts = [[rows[term] for term in part if term in rows] for part in question.parts]
        np.multiply(by_parts(found, of_parts, total), weights.parts, out=parts["parts"])
        total += parts["parts"]
    return Scored(total / _highest(weights), SIGNALS, table)


def _fill_in_speakers(
    row: Floats, question: Question, speakers: Mapping[str, npt.NDArray[np.bool_]], weight: float
) -> None:
    """Fill in the row `speaker`. If several speakers are named, the first is the one of whom the question asks."""
    subject = question.subject(speakers) if len(speakers) > 1 else frozenset(speakers)
    for term, said in speakers.items():
        if term not in subject:
            row[said] = weight * _NOT_SUBJECT
    for term in subject:
        row[speakers[term]] = weight


def _ceiling(found: Candidates, question: Question) -> float:
    """Return the weight that words can reach, at least that of one whole word.

    A pair of characters that no record has is rarely a word, so it does not count as missing.
    """
    if not question.words:
        return 0.0
    weights, frequencies = found.weights.tolist(), found.frequencies.tolist()
    # The heaviest word at its full weight.
    whole: float = max([weight / asked for weight, asked in zip(weights, question.words.values(), strict=True)])
    counts = [frequency > 0 or term.isascii() for term, frequency in zip(question.words, frequencies, strict=True)]
    return max(float(found.weights[counts].sum()), whole)


def _agreement(found: Candidates) -> float:
    """Return how far meaning agrees with words, 0 to 1.

    An embedder that understands the texts puts the records with most of the question's words nearer to it than
    others. Records nominated by meaning alone are not compared. 1 if words find too few records to compare.
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
    """Return the largest possible sum, which scales scores to 0..1."""
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
    """Return the score of a record with everything that the question asks for, in the units of `Scored.total`.

    Signals that the question or the store cannot raise are left out: the speaker if none is named, meaning without
    vectors.
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
    """Return totals as shares of the reachable score, below 1, so that a score means the same for every question.

    docs/recall.md has the shares of wrong hits above a score and of right ones below it.
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
    """Fill in the rows `words`, `synonyms`, `names` and `context`. `speakers` are the terms that name a speaker."""
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
    """Return the table with single characters counted only in records that have no pair with them: 婚 for 结婚.

    Our Chinese set by words alone, recall@5: 87 % if characters count on top of pairs, 93 % if they do not.
    """
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
    """Return the table with one row for each word that has synonyms: the larger of the word and its best synonym.

    A synonym counts at most as much as the word itself would, so a rare synonym gains nothing by its rarity.
    """
    # A synonym may itself be a word of the question.
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
"""The places of the records before and after with their closeness. The place is undefined where closeness is 0."""


def neighbours(following: Places, closeness: Floats) -> Neighbours:
    """Return both directions, given the place of the record after each (-1 for none) and its closeness."""
    linked = following >= 0
    after = following[linked]
    before, close = np.zeros(len(following), dtype=np.intp), np.zeros(len(following))
    before[after], close[after] = linked.nonzero()[0], closeness[linked]
    return (before, close), (following, closeness * linked)


def pooled(table: Floats, around: Neighbours, reach: int = 2) -> Floats:
    """Return each term's best value within reach of each record, decreasing with distance.

    The best value counts and not the sum, since a term repeated throughout a conversation is still one term. The
    turns before count more than those after, because a reply refers to the words of its question.
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
    """Return how far each similarity exceeds the mean, plus a share of its neighbours'; 0 to 1, 0 without a vector.

    The level of similarities differs between models, so only the distance from the mean counts. With too few vectors
    for a mean, similarities count as they are.
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
    """Return which records belong to conversations with an assistant.

    A record without a conversation does if any other record does. In such conversations, a user's turns are requests:
    they end in a question and state their subject.
    """
    speaks = found.assistant
    if not speaks.any():
        return speaks
    of = found.sessions + 1
    spoken_to: npt.NDArray[np.bool_] = np.bincount(of, speaks)[of] > 0.0
    spoken_to[of == 0] = True
    return spoken_to


def names_speaker(found: Candidates, question: Question) -> bool:
    """Return whether a question names a speaker of the store."""
    known = dict(zip(question.marks, found.spread.tolist(), strict=True))
    return bool(found.addressed) or any(known[mark] for mark in question.speakers.values())


def _in_role(found: Candidates, with_assistant: npt.NDArray[np.bool_], role: str) -> Floats:
    """Return the degree to which each record has the role that a question refers to. Tools count as the user's side:
    the assistant repeats their output."""
    if role == "assistant":
        return np.where(found.assistant, _ANY_ROLE, 0.0)
    return np.where(with_assistant & ~found.assistant, 1.0 if role else _ANY_ROLE, 0.0)


def _linked(found: Candidates, answering: Floats) -> Floats:
    """Return the scores that reach each record from the best over shared terms, names, sessions and speakers."""
    start = answering
    if len(start) > _SOURCES:
        start = np.where(start >= np.partition(start, -_SOURCES)[-_SOURCES], start, 0.0)
    return spread(found.links, start, ((found.sessions, _SESSION), (found.speakers, _SPEAKER)))


def _timely(question: Question, marked: Mapping[str, npt.NDArray[np.bool_]], count: int) -> Floats:
    """Return the weight of the best asked time at which a record was said, or that it mentions."""
    result = np.zeros(count)
    for mark, share in question.times.items():
        np.maximum(result, share * marked[mark], out=result)
    return result


def _in_order(found: Candidates, total: Floats, order: str) -> Floats:
    """Return the place in time among the good answers if the latest or the first is asked for, 1 for the best."""
    result = np.zeros(len(found.keys))
    good = np.flatnonzero((total >= 0.5 * total.max(initial=0.0)) & (found.nominated > 0))
    moments = np.unique(found.created_at[good])
    if len(moments) > 1:
        place = moments.searchsorted(found.created_at[good]) / (len(moments) - 1)
        result[good] = place if order == "latest" else 1.0 - place
    return result
