"""Changes: a hit and the memory that it replaces, or that replaces it.

Two memories are a pair if the store says so: they are versions of one id, or a fact derived from one replaced a fact
derived from the other. Texts are not compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from loom.errors import CorruptStore
from loom.recall.hits import Hit, Revision
from loom.recall.questions import Question
from loom.storage.contract import Filter, Record
from loom.storage.search_view import SearchView
from loom.text.words import terms
from loom.types import MemoryType

__all__ = ["Companions", "in_pairs", "with_replacements"]

log = logging.getLogger("loom.recall")

Companions = Mapping[str, Hit]
"""Maps the id of a hit to the other side of its change, which follows it."""

# One in this many hits may bring its other side, which takes the place of another hit.
_HITS_FOR_A_COMPANION = 4


class _Change(NamedTuple):
    """Two memories with the statement that was replaced and the one that replaced it."""

    earlier: Record
    later: Record
    old: str
    new: str


def with_replacements(
    view: SearchView, hits: list[Hit], asked: Question, wanted: Filter
) -> tuple[list[Hit], Companions]:
    """Return the hits with `replaces` and `replaced_by` filled in, and the turns that follow them.

    Only facts that share a word with the question count, and those that replaced such a fact: a turn may state
    others.
    """
    pairs = view.replacements([hit.seq for hit in hits], wanted.as_of, wanted.known_at) if hits else []
    if not pairs:
        return hits, {}
    try:
        changes = [*_changes(view, pairs, {hit.seq for hit in hits}, asked, wanted)]
    except CorruptStore as error:
        log.warning("the changes of the hits were not read (%s); the hits are not marked", type(error).__name__)
        return hits, {}
    marked = [_marked(hit, changes) for hit in hits]
    return marked, _companions({hit.seq: hit for hit in marked}, changes)


def _marked(hit: Hit, changes: Sequence[_Change]) -> Hit:
    """Return a hit with its changes. The newest of several stays."""
    for change in changes:
        if hit.seq == change.later.seq:
            hit = replace(hit, replaces=_revision(change.earlier, change.old, change.new))
        elif hit.seq == change.earlier.seq:
            hit = replace(hit, replaced_by=_revision(change.later, change.new, change.old))
    return hit


def _revision(other: Record, content: str, own: str) -> Revision:
    return Revision(other.id, other.version, other.created_at, other.trust, content, own)


def _companions(hits: Mapping[int, Hit], changes: Sequence[_Change]) -> Companions:
    """Return the successor of each hit, or else its predecessor, if that is another memory."""
    found: dict[str, Hit] = {}
    for change in changes:
        for one, other in ((change.earlier, change.later), (change.later, change.earlier)):
            hit = hits.get(one.seq)
            told = None if hit is None else hit.replaced_by or hit.replaces
            if hit is not None and told is not None and told.id == other.id != hit.id:
                found[hit.id] = hits.get(other.seq) or _marked(_companion(hit, other), [change])
    return found


def in_pairs(hits: Sequence[Hit], companions: Companions) -> list[Hit]:
    """Return the hits, each followed by its companion with the same score; one for every few hits."""
    if not companions:
        return [*hits]
    known = {hit.id: hit for hit in hits}
    placed: dict[str, Hit] = {}
    count = 0
    for hit in hits:
        if hit.id in placed:
            continue
        placed[hit.id] = hit
        other = companions.get(hit.id)
        if other is not None and other.id not in placed and count * _HITS_FOR_A_COMPANION < len(placed):
            placed[other.id] = replace(known.get(other.id, other), score=hit.score)
            count += 1
    return [*placed.values()]


def _changes(
    view: SearchView, pairs: Sequence[tuple[int, int]], hits: set[int], asked: Question, wanted: Filter
) -> Iterator[_Change]:
    """Return the changes of these pairs of records, by the time of the later side."""
    stated = view.records([*{seq for pair in pairs for seq in pair}])
    both = [(stated[old], stated[new]) for old, new in pairs if old in stated and new in stated]
    asked_about = _asked_about(both, set(asked.words))
    turns = [
        (_said_in(old), _said_in(new), old, new)
        for old, new in both
        if old.content != new.content and old.seq in asked_about
    ]
    named = {seq for one in turns for seq in one[:2] if seq}
    spoken = view.records([*named]) if named else {}
    others = sorted(named - hits)
    current = hits | (view.admitted(others, wanted) if others else set())
    found = [
        _Change(spoken[first], spoken[last], old.content, new.content)
        for first, last, old, new in turns
        if first != last and {first, last} <= current
        if _is_said_in(old, spoken.get(first)) and _is_said_in(new, spoken.get(last))
    ]
    versions = [(old, new) for old, new in both if old.id == new.id and {old.seq, new.seq} & hits]
    seqs = [one.seq for pair in versions for one in pair]
    admitted = view.admitted(seqs, replace(wanted, history=True)) if seqs else set()
    found += [_Change(old, new, old.content, new.content) for old, new in versions if {old.seq, new.seq} <= admitted]
    yield from sorted(found, key=lambda one: (one.later.created_at, one.later.seq, one.earlier.created_at))


def _asked_about(pairs: Sequence[tuple[Record, Record]], words: set[str]) -> set[int]:
    """Return the records that share one of these words, and the other sides of their changes."""
    # The name of the speaker, which every fact has, is not a shared word.
    found = {
        one.seq
        for pair in pairs
        for one in pair
        if not (words - {*terms(one.name or "")}).isdisjoint(terms(one.content))
    }
    grown = True
    while grown:
        ties = {seq for old, new in pairs for seq in (old.seq, new.seq) if {old.seq, new.seq} & found}
        grown = not ties <= found
        found |= ties
    return found


def _said_in(record: Record) -> int:
    """Return the sequence number of the turn of a fact; 0 if it has none or several."""
    if record.kind != MemoryType.FACT or not isinstance(record.data, Mapping):
        return 0
    seq = record.data.get("said_in")
    return seq if isinstance(seq, int) and not isinstance(seq, bool) else 0


def _is_said_in(record: Record, turn: Record | None) -> bool:
    """Return whether a record was derived from this turn. In another file, its number may be that of another turn."""
    if turn is None or turn.seq >= record.seq:
        return False
    return all(
        getattr(record, name) == getattr(turn, name) for name in ("created_at", "node", "session_id", "name", "trust")
    )


def _companion(hit: Hit, record: Record) -> Hit:
    """Return the other side of a change as a hit without other signals."""
    return Hit(
        id=record.id,
        content=record.content,
        score=hit.score,
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
        signals={},
        query_terms=hit.query_terms,
        concepts=hit.concepts,
        seq=record.seq,
        passage_scorer=hit.passage_scorer,
    )
