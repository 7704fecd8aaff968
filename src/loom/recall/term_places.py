"""Finding the terms of a question in texts.

Analysing a whole text takes five times as long as this search, so only words that begin like a term are analysed.
Terms of scripts without spaces are compared character by character.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loom.text.scripts import UNSPACED
from loom.text.words import MAX_TERM_CHARS, irregular_beginnings, simplified_in_place, terms

__all__ = ["Occurrences", "Sought"]

Numbers = npt.NDArray[np.intp]

# The least number of letters in the beginning of a word that is searched.
_FEWEST_LETTERS = 3
# The number of occurrences in a text that count.
_MOST_PLACES = 1_000
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")


class Occurrences(NamedTuple):
    """Occurrences of terms in texts: the row, the number of the text, and the place in it."""

    rows: Numbers
    texts: Numbers
    places: Numbers


class Sought(NamedTuple):
    """The terms to find in texts, with the row of each.

    `beginnings` has the beginnings of words that may have a term. Terms of scripts without spaces are in `letters` if
    they have one or two characters, otherwise in `unspaced`.
    """

    rows: Mapping[str, int]
    beginnings: Sequence[tuple[int, str, Sequence[str]]]
    letters: _Letters
    unspaced: Sequence[tuple[int, str]]

    @classmethod
    def of(cls, sought: Sequence[str]) -> Sought:
        rows = {term: row for row, term in enumerate(sought)}
        spaced: list[tuple[int, str, Sequence[str]]] = []
        short: list[tuple[int, str]] = []
        unspaced: list[tuple[int, str]] = []
        for term, row in rows.items():
            if term.isascii() or not _IS_UNSPACED.match(term):
                spaced.append((row, term, _beginnings(term)))
            else:
                (short if len(term) <= 2 else unspaced).append((row, term))
        return cls(rows, spaced, _Letters.of(short), unspaced)

    def occurrences(self, texts: Sequence[str], held: npt.NDArray[np.bool_] | None = None) -> Occurrences:
        """Find the terms in texts. `held` marks, for each row and text, whether the text may have the term.

        The texts are searched as one: separate searches take four times as long.
        """
        joined = _Joined(texts)
        found: list[tuple[Numbers, Numbers]] = [self._in_words(joined, held)]
        if (self.unspaced or self.letters.rows) and not joined.text.isascii():
            characters = simplified_in_place(joined.text)
            found.append(joined.first(*self.letters.places(characters)))
            found += [_of_row(row, joined.find(characters, term)) for row, term in self.unspaced]
        rows, places = (np.concatenate(column) for column in zip(*found, strict=True))
        of = joined.number(places)
        if held is not None:
            kept = held[rows, of]
            rows, of, places = rows[kept], of[kept], places[kept]
        return Occurrences(rows, of, places - joined.starts[of])

    def _in_words(self, joined: _Joined, held: npt.NDArray[np.bool_] | None) -> tuple[Numbers, Numbers]:
        """Return rows and places of the terms of spaced scripts."""
        wanted = self.beginnings
        if held is not None:
            somewhere = np.flatnonzero(held.any(axis=1)).tolist()
            wanted = [one for one in wanted if one[0] in somewhere]
        rows: list[int] = []
        places: list[int] = []
        for row, term, beginnings in wanted:
            # Converting to lower case takes longer than everything else for Chinese texts, in which a number is
            # usually searched.
            characters = joined.text if term.isdecimal() else joined.lowered
            here = [place for beginning in beginnings for place in joined.find(characters, beginning)]
            if held is not None and here:
                of = joined.number(np.array(here)).tolist()
                here = [place for place, number in zip(here, of, strict=True) if held[row, number]]
            here = [place for place in here if term in _terms_at(joined.text, place)]
            rows += [row] * len(here)
            places += here
        return np.array(rows, dtype=np.intp), np.array(places, dtype=np.intp)


def _beginnings(term: str) -> list[str]:
    """Return the beginnings of words that may have a term."""
    return sorted({term[: max(_FEWEST_LETTERS, len(term) - 2)], *_irregular().get(term[:_FEWEST_LETTERS], ())})


def _of_row(row: int, places: Sequence[int]) -> tuple[Numbers, Numbers]:
    return np.full(len(places), row, dtype=np.intp), np.array(places, dtype=np.intp)


class _Letters(NamedTuple):
    """Terms of one or two characters, found in one pass. Their characters are numbered from 1; 0 is any other.

    `numbers` maps code points to numbers, with 0 in the last place. `single` has the row of each number and `pairs`
    that of each pair of numbers, -1 if it is not a term.
    """

    rows: int
    numbers: npt.NDArray[np.uint16]
    single: Numbers
    pairs: Numbers

    @classmethod
    def of(cls, sought: Sequence[tuple[int, str]]) -> _Letters:
        letters = {letter: number for number, letter in enumerate(sorted({*"".join(term for _, term in sought)}), 1)}
        numbers = np.zeros(max(map(ord, letters), default=0) + 2, dtype=np.uint16)
        numbers[[*map(ord, letters)]] = [*letters.values()]
        count = len(letters) + 1
        single, pairs = np.full(count, -1), np.full(count * count, -1)
        for row, term in sought:
            if len(term) == 1:
                single[letters[term]] = row
            else:
                pairs[letters[term[0]] * count + letters[term[1]]] = row
        return cls(len(sought), numbers, single, pairs)

    def places(self, text: str) -> tuple[Numbers, Numbers]:
        """Return rows and places of the terms in a text."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.dtype("<u4"))
        numbers = self.numbers.take(points, mode="clip")
        here = numbers.nonzero()[0]
        after = numbers.take(here + 1, mode="clip").astype(np.intp)
        if len(here) and here[-1] + 1 == len(numbers):
            after[-1] = 0
        own = numbers[here].astype(np.intp)
        single, pairs = self.single[own], self.pairs[own * len(self.single) + after]
        alone, together = single >= 0, pairs >= 0
        return np.concatenate((single[alone], pairs[together])), np.concatenate((here[alone], here[together]))


class _Joined:
    """Texts concatenated with line breaks, which no term contains."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self.text = "\n".join(texts)
        self.starts = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])

    @cached_property
    def lowered(self) -> str:
        """The text in lower case. A text that would become longer is unchanged."""
        if self.text.isascii():
            return self.text.lower()
        lowered = [text.lower() for text in self._texts]
        pairs = zip(self._texts, lowered, strict=True)
        return "\n".join([lower if len(lower) == len(text) else text for text, lower in pairs])

    def number(self, places: Numbers) -> Numbers:
        """Return the numbers of the texts at these places."""
        return self.starts.searchsorted(places, side="right") - 1

    def find(self, characters: str, part: str) -> list[int]:
        """Return the first places of a part in each text. `characters` has the length of the texts."""
        places = _first_places(characters, part, 0, len(characters))
        if len(places) < _MOST_PLACES:
            return places
        ends = [*(self.starts[1:] - 1).tolist(), len(characters)]
        spans = zip(self.starts.tolist(), ends, strict=True)
        return [place for start, end in spans for place in _first_places(characters, part, start, end)]

    def first(self, rows: Numbers, places: Numbers) -> tuple[Numbers, Numbers]:
        """Return the first places of each row in each text."""
        if len(places) < _MOST_PLACES:
            return rows, places
        of = self.number(places)
        order = np.lexsort((places, of, rows))
        rows, places, of = rows[order], places[order], of[order]
        begins = np.flatnonzero(np.append(True, (np.diff(rows) != 0) | (np.diff(of) != 0)))
        ranks = np.arange(len(rows)) - np.repeat(begins, np.diff(np.append(begins, len(rows))))
        kept = ranks < _MOST_PLACES
        return rows[kept], places[kept]


def _first_places(text: str, part: str, start: int, end: int) -> list[int]:
    """Yield the first places of a part between two places of a text."""
    places: list[int] = []
    place = text.find(part, start, end)
    while place >= 0 and len(places) < _MOST_PLACES:
        places.append(place)
        place = text.find(part, place + 1, end)
    return places


def _terms_at(text: str, place: int) -> frozenset[str]:
    """Return the terms of the word at this place, with its compounds."""
    first, last = max(0, place - MAX_TERM_CHARS), place + MAX_TERM_CHARS
    start = max(text.rfind(" ", first, place), text.rfind("\n", first, place)) + 1 or first
    ends = [end for end in (text.find(" ", place, last), text.find("\n", place, last)) if end >= 0]
    return _known_terms(text[start : min(ends, default=last)])


@lru_cache(maxsize=4_096)
def _known_terms(word: str) -> frozenset[str]:
    return frozenset(terms(word))


@lru_cache(maxsize=1)
def _irregular() -> dict[str, frozenset[str]]:
    return irregular_beginnings(_FEWEST_LETTERS)
