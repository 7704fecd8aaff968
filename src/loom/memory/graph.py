"""The graph of memories and the terms they share, and how much of a score goes along its edges.

The text index is the graph: a term's list of records are its edges. `spread` is personalised propagation over a few
hops (APPNP: a graph neural network without trained weights): a memory that shares no word with a question is found by
what it shares with those that do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["spread"]

Floats = npt.NDArray[np.float64]


def spread(edges: Floats, start: Floats, *, keep: float = 0.5, hops: int = 2) -> Floats:
    """What reaches each memory along the edges (terms by memories, weights of 0 or more), from its `start` values.

    In each hop a memory hands its value to its terms, each of which hands it on to the memories that hold it, and
    `keep` of what is there comes from the start again. What never left a memory is not counted: a memory without
    neighbours gets 0. The largest of the result is 1, unless all are 0.
    """
    if not edges.size:
        return np.zeros(len(start))
    shared = edges * ((edges > 0).sum(axis=1, keepdims=True) > 1)  # a term that one memory alone has leads nowhere
    outwards = shared / np.maximum(shared.sum(axis=0, keepdims=True), 1e-12)
    inwards = shared / np.maximum(shared.sum(axis=1, keepdims=True), 1e-12)
    value = np.maximum(start, 0.0)
    origin = value
    reached = np.zeros(len(start))
    for _ in range(hops):
        # Sums and no matrix products: these come out the same to the last bit in every process.
        reached = (outwards * (inwards * value).sum(axis=1, keepdims=True)).sum(axis=0)
        value = (1.0 - keep) * reached + keep * origin
    highest = float(reached.max(initial=0.0))
    return reached / highest if highest > 0.0 else reached
