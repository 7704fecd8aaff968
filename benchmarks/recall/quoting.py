"""The part of a turn that is in a prompt: the share of its text, and whether the passage that a question needs is
there.

A passage is one or more paragraphs of about 100 to 250 tokens; fenced code is not divided at blank lines. A question
needs the passage of the turn that contains most of the question's words, each weighted by its rarity among the
passages of the dialogue. If no passage contains any of them, the question needs the whole turn.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.recall.data import Dialogue
from loom.text.words import query_terms

__all__ = ["Passages", "passages_of", "share_quoted"]

# About 250 tokens of English. A turn of up to this length is one passage.
_MOST_CHARS = 1_000
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*")


def passages_of(text: str) -> list[str]:
    """The passages of a text, in its order."""
    if len(text) <= _MOST_CHARS:
        return [text]
    paragraphs: list[list[str]] = [[]]
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        if line.strip() or fenced:
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    packed: list[str] = []
    for paragraph in ("\n".join(lines) for lines in paragraphs if lines):
        if packed and len(packed[-1]) + len(paragraph) <= _MOST_CHARS:
            packed[-1] += f"\n\n{paragraph}"
        else:
            packed.append(paragraph)
    return packed


class Passages:
    """The passages of a dialogue's turns, and which of them each question needs."""

    def __init__(self, dialogue: Dialogue) -> None:
        asked = {id for question in dialogue.questions for id in question.evidence}
        self._texts = {turn.id: turn.text for turn in dialogue.turns}
        self._passages: Mapping[str, Sequence[tuple[str, frozenset[str]]]] = {
            turn.id: [(part, frozenset(query_terms(part))) for part in passages_of(turn.text)]
            for turn in dialogue.turns
            if turn.id in asked
        }
        held = [terms for parts in self._passages.values() for _, terms in parts]
        counts = Counter(term for terms in held for term in terms)
        self._rarity = {term: math.log(1.0 + len(held) / count) for term, count in counts.items()}

    def needed(self, question: str, turn: str) -> list[str]:
        """The passages of a turn any one of which suffices; the whole turn if the words of the question choose
        none."""
        asked = query_terms(question)
        scores = [
            sum(weight * self._rarity[term] for term, weight in asked.items() if term in terms)
            for _, terms in self._passages[turn]
        ]
        if not any(scores):
            return [self._texts[turn]]
        return [part for (part, _), score in zip(self._passages[turn], scores, strict=True) if score == max(scores)]

    def quoted(self, question: str, turn: str, quotations: Sequence[str]) -> tuple[bool, float]:
        """Whether a prompt with these quotations of the turn has the needed passage, and the quoted share of the
        turn."""
        share = share_quoted(self._texts[turn], quotations)
        if share >= 1.0:
            return True, share
        return any(share_quoted(part, quotations) >= 1.0 for part in self.needed(question, turn)), share


def share_quoted(text: str, quotations: Sequence[str]) -> float:
    """The share of a text that is in the quotations, in characters of whole sentences and lines."""
    inside = "\n".join(_SPACE.sub("", quotation) for quotation in quotations)
    if (whole := _SPACE.sub("", text)) in inside:
        return 1.0
    parts = (_SPACE.sub("", part) for line in text.splitlines() for part in _SENTENCE_END.split(line))
    return sum(len(part) for part in parts if part and part in inside) / len(whole)
