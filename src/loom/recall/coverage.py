"""Coverage: what changes in an order of likeness where a question wants many memories, or asks for several things.

Pure functions over the scores of candidates. Both keep the order of scores, so that a shorter answer is the beginning
of a longer one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from loom.recall.candidates import Candidates

__all__ = ["by_parts", "spread_out"]

Floats = npt.NDArray[np.float64]

# So many of the best are spread. A record is near another while so few numbers of the log lie between them.
_SPREAD = 64
_NEAR = 3.0
# So many of each part come before the fifth of the whole question.
_WHOLE = 5
_OF_PART = 2


def spread_out(found: Candidates, total: Floats, share: float) -> Floats:
    """What each of the best loses, of its score, for standing near a better one in the same conversation: up to
    `share` of it. The order that is left spreads over sessions and time."""
    lost = np.zeros(len(total))
    best = _best(found, total, _SPREAD)
    if not share or len(best) < 2:
        return lost
    scores, sessions, keys = total[best], found.sessions[best], found.keys[best].astype(np.float64)
    near = np.exp(-np.abs(keys[:, None] - keys[None, :]) / _NEAR)
    near *= (sessions[:, None] == sessions[None, :]) & (sessions >= 0)
    taken = np.zeros(len(best))
    left = np.ones(len(best), dtype=np.bool_)
    for _ in range(len(best)):
        value = np.where(left, scores * (1.0 - share * taken), -1.0)
        chosen = int(value.argmax())
        lost[best[chosen]] = scores[chosen] - value[chosen]
        left[chosen] = False
        np.maximum(taken, near[chosen], out=taken)
    return lost


def by_parts(found: Candidates, rows: Sequence[Sequence[int]], total: Floats) -> Floats:
    """What the best of each part of a question gain: enough to stand among the first of the whole question.

    `rows` are the rows of `words` that each part has.
    """
    gained = np.zeros(len(total))
    best = _best(found, total, _SPREAD)
    if len(best) <= _WHOLE:
        return gained
    highest, enough = float(total[best[0]]), float(total[best[_WHOLE - 1]])
    for part in rows:
        said = found.words[list(part)].sum(axis=0)[best]
        if not said.any():
            continue
        order = (-(said / said.max() + total[best] / highest)).argsort(kind="stable")[:_OF_PART]
        for place in best[order[said[order] > 0.0]]:
            # Just above the last of the whole question, and in the order that they had.
            gained[place] = max(0.0, enough * (1.0 + 1e-6 * (1.0 + total[place] / highest)) - total[place])
    return gained


def _best(found: Candidates, total: Floats, most: int) -> npt.NDArray[np.intp]:
    """The places of the best candidates, best first, of equals the first written."""
    scores = np.where(found.nominated, total, 0.0)
    order = (-scores).argsort(kind="stable")[:most]
    return order[scores[order] > 0.0]
