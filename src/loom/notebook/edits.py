"""Merging two edits of one text, line by line. What both changed stands in the result twice, between marks."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

__all__ = ["MARKS", "Merged", "has_conflict", "merged"]

MARKS = ("<<<<<<< this file", "=======", ">>>>>>> memory")
"""The lines around a conflict: before the file's text, between both, and after the memory's."""


class Merged(NamedTuple):
    """A merged text. In `conflicts` places both sides had changed the same lines."""

    text: str
    conflicts: int


def has_conflict(text: str) -> bool:
    """Whether a text still has a conflict that nobody has resolved."""
    lines = text.splitlines()
    return MARKS[0] in lines and MARKS[2] in lines


def merged(base: str, file: str, memory: str) -> Merged:
    """Two edits of `base` in one text. Nothing of either is lost."""
    if file == memory or memory == base:
        return Merged(file, 0)
    if file == base:
        return Merged(memory, 0)
    old, ours, theirs = (text.splitlines(keepends=True) for text in (base, file, memory))
    lines: list[str] = []
    conflicts = 0
    at_old = at_ours = at_theirs = 0
    for old_at, ours_at, theirs_at, size in _common(old, ours, theirs):
        mine, other = ours[at_ours:ours_at], theirs[at_theirs:theirs_at]
        before = old[at_old:old_at]
        if mine in (before, other):
            lines += other
        elif other == before:
            lines += mine
        else:
            conflicts += 1
            lines += [_line(MARKS[0]), *_ended(mine), _line(MARKS[1]), *_ended(other), _line(MARKS[2])]
        lines += old[old_at : old_at + size]
        at_old, at_ours, at_theirs = old_at + size, ours_at + size, theirs_at + size
    return Merged("".join(lines), conflicts)


def _common(old: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """The stretches that all three have, as their places and their length; an empty one at the end."""
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
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return {one.a + at: one.b + at for one in matcher.get_matching_blocks() for at in range(one.size)}


def _line(mark: str) -> str:
    return f"{mark}\n"


def _ended(lines: Sequence[str]) -> list[str]:
    """Lines of which the last one ends too, so that a mark can follow it."""
    return [line if line.endswith("\n") else f"{line}\n" for line in lines]
