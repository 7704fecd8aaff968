"""Propagation of scores in the graph of memories.

The graph has nodes for memories, terms, names, sessions and speakers. Its edges are the postings of terms, names and
speakers in the text index, and the sessions in the log. `spread` is personalised propagation over a few hops (APPNP,
a graph neural network without trained weights): a memory without a word of the question gets a score from memories
that it shares a node with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["spread"]

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Groups = tuple[Places, float]
"""For each memory the number of its one node of a kind, -1 for none; and the weight of an edge."""


def spread(
    edges: Floats, start: Floats, groups: Sequence[Groups] = (), *, keep: float = 0.5, hops: int = 2
) -> Floats:
    """Return the value that reaches each memory along the edges (terms by memories, weights of 0 or more).

    In each hop a memory passes its value to its nodes and each node passes it to its memories; the share `keep` of
    the next value comes from `start`. A value that did not move is not counted: a memory without neighbours gets 0.
    The result is scaled to a maximum of 1.
    """
    whole = np.zeros(len(start))
    if edges.size:
        edges = edges * ((edges > 0).sum(axis=1, keepdims=True) > 1)  # a term of one memory alone leads nowhere
        inwards = edges / np.maximum(edges.sum(axis=1, keepdims=True), 1e-12)
        whole += edges.sum(axis=0)
    members: list[tuple[Places, Floats]] = []
    for numbers, weight in groups:
        of = numbers + 1
        counts = np.bincount(of)
        if len(counts) > 1:
            sizes = np.maximum(counts, 1) / weight
            sizes[0] = np.inf  # those of none get nothing
            members.append((of, sizes))
            whole += weight * (of > 0)
    if not members and not edges.size:
        return whole
    whole = np.maximum(whole, 1e-12)
    value = np.maximum(start, 0.0)
    origin = value
    reached = np.zeros(len(start))
    for _ in range(hops):
        # Sums and no matrix products: these are equal to the last bit in every process.
        reached = np.zeros(len(start))
        if edges.size:
            reached += (edges * (inwards * value).sum(axis=1, keepdims=True)).sum(axis=0)
        for of, sizes in members:
            reached += (np.bincount(of, value) / sizes).take(of)
        reached /= whole
        value = (1.0 - keep) * reached + keep * origin
    highest = float(reached.max(initial=0.0))
    return reached / highest if highest > 0.0 else reached
