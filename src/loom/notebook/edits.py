"""Merges two edits of one text line by line, and finds the lines that an edit removed.

Lines that both sides changed occur twice in the merged text, between marks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from loom.text.words import content_terms

__all__ = ["MARKS", "Merged", "common_lines", "disagreements", "flaws", "has_conflict", "merged", "removed_headings"]

MARKS = ("<<<<<<< this file", "=======", ">>>>>>> memory")
"""The lines around a conflict: before the file's text, between both texts, and after the memory's."""

_BEGIN, _END = "<<<<<<< ", ">>>>>>> "
_HEADING = re.compile(r"#{1,6}\s+\S")
_FENCE = re.compile(r"\s*(?:```|~~~)")
# A front matter with more lines than this is taken for a text that begins with a horizontal rule.
_LONGEST_FRONT_MATTER = 200
# The share of common words from which two lines may contradict each other.
_ALIKE = 0.5
# The most pairs of lines that are compared. With more pairs, everything that differs is one conflict.
_MOST_COMPARED = 16_000_000


class Merged(NamedTuple):
    """A merged text, and the number of places in which both sides had changed the same lines."""

    text: str
    conflicts: int


def has_conflict(text: str) -> bool:
    """Return whether a text has the marks of an unresolved conflict."""
    lines = text.splitlines()
    return any(line.startswith(_BEGIN) for line in lines) and any(line.startswith(_END) for line in lines)


def merged(base: str, file: str, memory: str, *, other: str = "memory", joins: bool = False) -> Merged:
    """Merge two edits of `base`. The result has the additions and changes of both sides.

    `other` names the second side in the marks. With `joins`, lines that both sides added in one place follow each
    other without marks, unless a line of one side is nearly the same as a line of the other.
    """
    if file == memory or memory == base:
        return Merged(file, 0)
    if file == base:
        return Merged(memory, 0)
    old, ours, theirs = (text.splitlines(keepends=True) for text in (base, file, memory))
    lines: list[str] = []
    conflicts = 0
    at_old = at_ours = at_theirs = 0
    for old_at, ours_at, theirs_at, size in _common(old, ours, theirs):
        mine, others = ours[at_ours:ours_at], theirs[at_theirs:theirs_at]
        before = old[at_old:old_at]
        if mine in (before, others):
            lines += others
        elif others == before:
            lines += mine
        elif joins and not before and not disagreements(mine, others):
            lines += [*_ended(mine), *others]
        else:
            conflicts += 1
            lines += [f"{MARKS[0]}\n", *_ended(mine), f"{MARKS[1]}\n", *_ended(others), f"{_END}{other}\n"]
        lines += old[old_at : old_at + size]
        at_old, at_ours, at_theirs = old_at + size, ours_at + size, theirs_at + size
    return Merged("".join(lines), conflicts)


def common_lines(one: str, other: str) -> str:
    """Return the lines that two texts share, in order: the base of a merge whose common ancestor is unknown."""
    ours, theirs = one.splitlines(keepends=True), other.splitlines(keepends=True)
    return "".join(ours[at] for at in sorted(_pairs(ours, theirs)))


def disagreements(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of lines that share most of their words and are not equal: they may contradict each other."""
    if len(ours) * len(theirs) > _MOST_COMPARED:
        return []
    others = [(line.strip(), set(content_terms(line))) for line in theirs]
    found: list[tuple[str, str]] = []
    for line in ours:
        mine = set(content_terms(line))
        found += [
            (line.strip(), text)
            for text, words in others
            if mine and words and text != line.strip() and len(mine & words) >= _ALIKE * len(mine | words)
        ]
    return found


def removed_headings(before: str, after: str) -> list[str]:
    """Return the headings of a Markdown text that its next version lacks, without their number signs."""
    left = set(_headings(after))
    return [line.lstrip("#").strip() for line in _headings(before) if line not in left]


def flaws(text: str) -> list[tuple[int, str]]:
    """Return the malformed parts of a Markdown text, with line numbers. The text can still be used."""
    lines = text.splitlines()
    found: list[tuple[int, str]] = []
    if lines and lines[0].rstrip() == "---":
        end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
        if end is None or end > _LONGEST_FRONT_MATTER:
            found.append((1, "the front matter is not closed: a line of three hyphens must end it"))
    opened: list[int] = []
    for at, line in enumerate(lines, 1):
        if line.startswith(_BEGIN):
            opened.append(at)
        elif line.startswith(_END):
            if not opened:
                found.append((at, "the end of a conflict has no beginning; remove the mark"))
            opened = opened[:-1]
    return found + [(at, "the conflict has no end; remove the mark") for at in opened]


def _headings(text: str) -> list[str]:
    found: list[str] = []
    in_code = False
    for line in text.splitlines():
        in_code ^= _FENCE.match(line) is not None
        if not in_code and _HEADING.match(line):
            found.append(line.rstrip())
    return found


def _common(old: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return the stretches of lines that all three texts have, as their places and length; the last one is empty."""
    first = _pairs(old, ours)
    second = _pairs(old, theirs)
    found: list[tuple[int, int, int, int]] = []
    for at in sorted(first.keys() & second.keys()):
        mine, other = first[at], second[at]
        if found:
            before, mine_before, other_before, size = found[-1]
            if (before + size, mine_before + size, other_before + size) == (at, mine, other):
                found[-1] = (before, mine_before, other_before, size + 1)
                continue
        found.append((at, mine, other, 1))
    return [*found, (len(old), len(ours), len(theirs), 0)]


def _pairs(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Map lines of one text to the equal lines of another. A common beginning and end are matched directly."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    ours, theirs = old[start : len(old) - end], new[start : len(new) - end]
    found = {at: at for at in range(start)}
    if len(ours) * len(theirs) <= _MOST_COMPARED:
        for one in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
            found.update((start + one.a + at, start + one.b + at) for at in range(one.size))
    found.update((len(old) - at, len(new) - at) for at in range(1, end + 1))
    return found


def _ended(lines: Sequence[str]) -> list[str]:
    """Lines with a line break after the last one, so that a mark can follow."""
    return [line if line.endswith("\n") else f"{line}\n" for line in lines]
