"""Coverage: corrections of the scores for questions that ask for many memories or name several things.

Pure functions over the scores of candidates. A shorter answer is always the beginning of a longer one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from loom.recall.candidates import Candidates

__all__ = ["by_parts", "spread_out"]

Floats = npt.NDArray[np.float64]

# The number of best candidates that are spread, and the distance in the log at which the nearness is 1/e.
_SPREAD = 64
_NEAR = 3.0
# The best two for each part rank above the eighth for the whole question: the first seven are left as they are.
_WHOLE = 8
_OF_PART = 2


def spread_out(found: Candidates, total: Floats, share: float) -> Floats:
    """Return the loss of each of the best candidates that has a better one of its conversation nearby: at most
    `share` of its score.

    The resulting order is spread over sessions and time.
    """
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
    """Return the gain of the best candidates for each part of a question: enough to rank among the first for the
    whole question.

    `rows` are the rows of `words` of each part.
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
            # Just above the last of the first for the whole question, in their former order.
            gained[place] = max(0.0, enough * (1.0 + 1e-6 * (1.0 + total[place] / highest)) - total[place])
    return gained


def _best(found: Candidates, total: Floats, most: int) -> npt.NDArray[np.intp]:
    """Return the places of the best candidates, best first, ties in the order of writing."""
    scores = np.where(found.nominated, total, 0.0)
    order = (-scores).argsort(kind="stable")[:most]
    return order[scores[order] > 0.0]
