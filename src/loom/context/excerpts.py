"""Excerpts: the passages of a long text that a question needs, in the order of the text, with marks for the gaps.

The best passage comes first, then others that share words with the question, then the passages next to it, then the
rest by importance. Each passage brings its headings. A code block that an excerpt enters or leaves in the middle is
opened and closed again. Pure functions of a text, a question and a number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from loom.context.message_shortening import left_out, shorter_text
from loom.context.truncation import weighty_words
from loom.recall.passage_scores import PassageScorer
from loom.text.passages import Passage, passages, units

__all__ = ["EXCERPT_TOKENS", "Excerpt", "excerpt"]

EXCERPT_TOKENS = 200
"""The size up to which an excerpt of a long memory gets more passages than the best one."""

# The tokens of a mark for a gap.
_MARK_TOKENS = 10
# The smallest part of a passage that is shown, in tokens.
_LEAST_PART = 32
# Another passage is shown beside the best one if its score is at least this share of the best score.
_AS_GOOD = 0.5
# In a text with more passages than this, the remaining ones are not compared individually.
_MOST_PASSAGES = 512


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a text: the numbers of the passages shown, from 1, and the number of all. `is_whole` is
    False if only a part of a passage is shown."""

    text: str
    shown: tuple[int, ...]
    passages: int
    is_whole: bool = True

    def __str__(self) -> str:
        """The passages in words, for the reason of an item."""
        numbers = ", ".join(map(str, self.shown[:4])) + (", …" if len(self.shown) > 4 else "")
        part = "" if self.is_whole else "a part of "
        return f"{part}passage{'s' if len(self.shown) > 1 else ''} {numbers} of {self.passages}"


def excerpt(
    text: str, tokens: int, most: int, scorer: PassageScorer, count: Callable[[str], int], *, is_brief: bool = False
) -> Excerpt | None:
    """The passages that a question needs from a text of `tokens` tokens, in at most `most` tokens.

    Returns None if the text is a single passage, or if not even a part of the best one fits. With `is_brief`, the
    best passage is shown in full, whatever its size, and others only if they are nearly as good.
    """
    parts = passages(text)
    if not 1 < len(parts) <= _MOST_PASSAGES:
        return None
    scores: list[float] = scorer.scores(text, parts).tolist()
    order = _order(text, parts, scores)
    each = tokens / max(1, units(text))
    sizes = [int(units(text[part.start : part.end]) * each) + _MARK_TOKENS for part in parts]
    chosen, room = [order[0]], most - sizes[order[0]]
    for at in order[1:]:
        if is_brief and (not scores[at] or scores[at] < _AS_GOOD * scores[order[0]]):
            break
        if sizes[at] <= room:
            chosen.append(at)
            room -= sizes[at]
    while not is_brief and count(_shown(text, parts, chosen, each)) > most:
        chosen.pop()
        if not chosen:
            return _part_of(text, parts, order[0], each, most, count)
    shown = tuple(at + 1 for at in sorted(chosen))
    return Excerpt(_shown(text, parts, chosen, each), shown, len(parts)) if len(shown) < len(parts) else None


def _order(text: str, parts: Sequence[Passage], scores: Sequence[float]) -> list[int]:
    """The passages in the order in which the question needs them."""
    best = max(range(len(parts)), key=lambda at: (scores[at], -at))
    reach = 1 if scores[best] else len(parts)  # if the question distinguishes none, all are equally near
    weights = [
        0 if score else weighty_words(text[part.start : part.end]) for part, score in zip(parts, scores, strict=True)
    ]
    return sorted(range(len(parts)), key=lambda at: (-scores[at], abs(at - best) > reach, -weights[at], at))


def _shown(text: str, parts: Sequence[Passage], chosen: Collection[int], each: float) -> str:
    """These passages in the order of the text, with their headings and a mark in each gap."""
    lines: list[str] = []
    end = 0
    numbers = set(chosen)
    for at in sorted(numbers):
        part = parts[at]
        if part.start != end or at == 0:
            if part.start > end:
                lines.append(_gap(text, end, part.start, each))
            lines += [f"{text[start:stop].strip()} […]" for start, stop in part.above if start >= end]
            if part.fence is not None:
                lines.append(text[slice(*part.fence)].strip())
        lines.append(text[part.start : part.end].strip("\n"))
        if part.fence_after is not None and at + 1 not in numbers:
            lines.append(_closing(text[slice(*part.fence_after)]))
        end = part.end
    if end < len(text):
        lines.append(_gap(text, end, len(text), each))
    return "\n".join(lines)


def _gap(text: str, start: int, end: int, each: float) -> str:
    return left_out(max(1, round(units(text[start:end]) * each)))


def _closing(fence: str) -> str:
    """The line that ends the code block that this line begins."""
    line = fence.strip()
    return line[: len(line) - len(line.lstrip(line[0]))]


def _part_of(
    text: str, parts: Sequence[Passage], at: int, each: float, most: int, count: Callable[[str], int]
) -> Excerpt | None:
    """The largest part of one passage that fits."""
    part = parts[at]
    before = _gap(text, 0, part.start, each) if at else ""
    after = _gap(text, part.end, len(text), each) if at + 1 < len(parts) else ""
    room = most - count(f"{before}\n\n{after}")
    inside = shorter_text(text[part.start : part.end].strip("\n"), room, count) if room >= _LEAST_PART else ""
    if not inside:
        return None
    return Excerpt("\n".join(filter(None, (before, inside, after))), (at + 1,), len(parts), is_whole=False)
