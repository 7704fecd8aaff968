"""The thesaurus: alternatives for the words of a question, within and across English and Chinese.

Text files beside this module hold groups of words with one meaning, one group per line, and kinds with their members
("pet: dog, cat"): a question names the kind, a memory the member. This module finds the words of a question that have
alternatives, with the alternatives and their certainty. `loom.recall` decides their score. The files are read at the
first question; English words are analysed when they are needed.
"""

from __future__ import annotations

import math
import pkgutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import NamedTuple

from loom.text.words import Token, irregular_beginnings, tokens

__all__ = ["Alternative", "Concept", "Thesaurus", "concepts", "shipped"]

# The longest Chinese word of a question. Longer members of a group are found by their bigrams.
_LONGEST_RUN = 6
# A phrase of more words is an explanation.
_LONGEST_PHRASE = 4
# The surest alternatives of a word, and the first words of a question. Both bound the cost of a question.
_MOST_OTHERS = 12
_MOST_CONCEPTS = 16
# The certainty of a member: a kind has many members, and usually another one is meant.
_MOST_MEMBERS = 48
_MEMBER = 0.7
_MEMBERS_FOLLOW = ": "
# One character is usually a part of a longer word, and the remaining word of "day off" usually means another day.
_PART = 0.5
# A Chinese word of this many characters consists of words that have alternatives of their own.
_COMPOUND = 4
_NEGATIONS = frozenset(("not", "no", "never", "without"))
# The number of letters of a word that its stem keeps, except in irregular forms.
_KEY_LETTERS = 2


class _Entry(NamedTuple):
    """A word or phrase as stems: its groups (none if it only begins longer entries), and the longer entries by their
    next stem."""

    numbers: list[int]
    longer: dict[str, _Entry]


@dataclass(frozen=True, slots=True)
class Alternative:
    """An alternative: its spelling, the terms that a record must contain, and its certainty from 0 to 1."""

    word: str
    terms: tuple[str, ...]
    weight: float


@dataclass(frozen=True, slots=True)
class Concept:
    """A word of the question, its terms, and its alternatives, the surest first."""

    word: str
    terms: tuple[str, ...]
    others: tuple[Alternative, ...]


class Thesaurus:
    """Groups of words, looked up by the words of a question."""

    def __init__(self, groups: Sequence[str]) -> None:
        """`groups` are words, separated by a comma and a space. A word may be in several groups.

        The words after a colon are the members of a kind: they are alternatives of the kind, but the kind is not an
        alternative of them.
        """
        self._groups = groups
        self._unspaced: dict[str, list[int]] = {}
        self._longest: dict[str, int] = {}  # the longest word by its first two characters
        # The keys are the first letters, so that only the words that a question may contain are stemmed.
        self._spaced: dict[str, list[tuple[str, int]]] = {}
        self._phrases: dict[str, dict[str, _Entry]] = {}
        self._known: dict[tuple[tuple[str, ...], tuple[int, ...]], tuple[Alternative, ...]] = {}
        unspaced, spaced, longest = self._unspaced, self._spaced, self._longest
        for number, group in enumerate(groups):
            for word in group.partition(_MEMBERS_FOLLOW)[0].lower().split(", "):
                if word.isascii():
                    spaced.setdefault(word[:_KEY_LETTERS], []).append((word, number))
                else:
                    unspaced.setdefault(word, []).append(number)
                    if len(word) > longest.get(word[:2], 1):
                        longest[word[:2]] = len(word)

    def concepts(self, text: str) -> tuple[Concept, ...]:
        """Return the words of a question that have alternatives, in order."""
        found: list[Concept] = []
        spoken = tokens(text)
        place = 0
        while place < len(spoken) and len(found) < _MOST_CONCEPTS:
            token = spoken[place]
            length = 1
            if token.is_unspaced:
                found += islice(self._in_run(token.text), _MOST_CONCEPTS)
            elif _may_have_others(token, place) and (entry := self._beginning(token.terms[0])) is not None:
                length, numbers = _longest_of(entry, spoken, place)
                if numbers:
                    asked = spoken[place : place + length]
                    words = tuple(dict.fromkeys([one.terms[0] for one in asked if not one.is_function]))
                    if others := self._others(words, numbers):
                        found.append(Concept(" ".join([one.text for one in asked]), words, others))
            place += length
        return tuple(found[:_MOST_CONCEPTS])

    def _in_run(self, run: str, longest: int = _LONGEST_RUN) -> Iterator[Concept]:
        """Yield the longest words of a Chinese run from left to right, and after a long one the words inside it."""
        place = 0
        while place < len(run):
            length = min(self._longest.get(run[place : place + 2], 1), longest, len(run) - place)
            while length > 1 and run[place : place + length] not in self._unspaced:
                length -= 1
            word = run[place : place + length]
            if length > 1 or (len(run) == 1 and word in self._unspaced):
                terms = tuple(_run_terms(word))
                if others := self._others(terms, self._unspaced[word]):
                    yield Concept(word, terms, others)
                if length >= _COMPOUND:
                    yield from self._in_run(word, length - 1)
            place += length

    def _beginning(self, stem: str) -> _Entry | None:
        """Return the entry of a stem, which leads to the longer entries that begin with it."""
        letters = stem[:_KEY_LETTERS]
        known = self._phrases.get(letters)
        if known is None:
            known = self._phrases[letters] = {}
            # Irregular forms (bought, for buy) begin with other letters.
            beginnings = dict.fromkeys((letters, *irregular_beginnings(_KEY_LETTERS).get(letters, ())))
            for word, number in chain.from_iterable(self._spaced.get(beginning, ()) for beginning in beginnings):
                stems = [one.terms[0] for one in tokens(word) if one.terms]
                if stems and stems[0].startswith(letters) and len(stems) <= _LONGEST_PHRASE:
                    entry = known.setdefault(stems[0], _Entry([], {}))
                    for one in stems[1:]:
                        entry = entry.longer.setdefault(one, _Entry([], {}))
                    entry.numbers.append(number)
        return known.get(stem)

    def _others(self, own: tuple[str, ...], numbers: Sequence[int]) -> tuple[Alternative, ...]:
        """Return the other words of these groups. The more groups a word has, the less certain is each of them."""
        key = own, tuple(numbers)
        known = self._known.get(key)
        if known is not None:
            return known
        groups = [self._groups[number] for number in dict.fromkeys(numbers)]
        senses = [group for group in groups if _MEMBERS_FOLLOW not in group]
        shared = Counter(other for group in senses for other in set(group.split(", ")))
        found: dict[tuple[str, ...], Alternative] = {}
        for other in sorted(shared, key=lambda one: (-shared[one], one)):
            terms, sureness = _read(other)
            if terms and not set(terms) <= set(own):
                found.setdefault(terms, Alternative(other, terms, sureness * math.sqrt(shared[other] / len(senses))))
        best = sorted(found.values(), key=lambda one: -one.weight)[:_MOST_OTHERS]
        known = self._known[key] = (*best, *self._members(own, groups, {one.terms for one in best}))
        return known

    def _members(
        self, own: tuple[str, ...], groups: Sequence[str], others: set[tuple[str, ...]]
    ) -> Iterator[Alternative]:
        """Return the members of the kinds among these groups, without those already included, in file order."""
        listed = [group.partition(_MEMBERS_FOLLOW)[2].split(", ") for group in groups if _MEMBERS_FOLLOW in group]
        for member in islice(dict.fromkeys(chain.from_iterable(listed)), _MOST_MEMBERS):
            terms, sureness = _read(member)
            if terms and terms not in others and not set(terms) <= set(own):
                yield Alternative(member, terms, _MEMBER * sureness)


def _longest_of(entry: _Entry, spoken: Sequence[Token], place: int) -> tuple[int, list[int]]:
    """Find the longest entry that begins at this token: its number of tokens and its groups."""
    only_function = spoken[place].is_function
    length, numbers = 1, [] if only_function else entry.numbers
    end = place + 1
    while entry.longer and end < len(spoken) and spoken[end].terms:
        following = spoken[end]
        longer = entry.longer.get(following.terms[0])
        if longer is None:
            break
        entry, end, only_function = longer, end + 1, only_function and following.is_function
        if entry.numbers and not only_function:
            length, numbers = end - place, entry.numbers
    return length, numbers


def _may_have_others(token: Token, place: int) -> bool:
    """Whether a token is not a name, identifier or number. The first word of a question may have a capital."""
    text = token.text
    return text.isalpha() and (text.islower() or (place == 0 and text.istitle()))


def _read(word: str) -> tuple[tuple[str, ...], float]:
    """Return the terms of an alternative and its certainty; no terms for a negation."""
    found: list[str] = []
    spoken = list(tokens(word))
    for token in spoken:
        if token.is_unspaced:
            found += _run_terms(token.text)[: max(1, len(token.text) - 1)]
        elif token.text.lower() in _NEGATIONS or token.text.endswith("n't"):
            return (), 0.0
        elif not token.is_function:
            found += token.terms[:1]
    is_part = len(found) == 1 and (len(spoken) > 1 or len(found[0]) == 1)
    return tuple(dict.fromkeys(found)), _PART if is_part else 1.0


def _run_terms(run: str) -> list[str]:
    """Return the bigrams of a word, then its characters."""
    return [*(run[i : i + 2] for i in range(len(run) - 1)), *run] if len(run) > 1 else [run]


@cache
def shipped() -> Thesaurus:
    """Return the thesaurus of this package."""
    groups: list[str] = []
    for name in ("thesaurus.zh.txt", "thesaurus.en.txt", "thesaurus.kinds.zh.txt", "thesaurus.kinds.en.txt"):
        lines = (pkgutil.get_data(__package__, name) or b"").decode("utf-8").splitlines()
        groups += [line for line in lines if line and line[0] != "#"]
    return Thesaurus(groups)


def concepts(text: str) -> tuple[Concept, ...]:
    """Return the words of a question for which the thesaurus of this package has alternatives."""
    return shipped().concepts(text)
