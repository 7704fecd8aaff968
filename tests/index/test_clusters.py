"""Clusters in large vector segments: the rows scanned are bounded, and the results stay right."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.index.segments import DamagedSegment, Segment
from loom.index.vector_codes import prepare_query
from loom.index.vector_index import VectorIndex, VectorLimits, VectorTail, build, merge, unit_float16, without
from loom.index.vector_scoring import spans_to_scan
from loom.index.vector_segments import Clustering, vector_rows

pytestmark = pytest.mark.usefixtures("both_ways")

Array = npt.NDArray[Any]

DIMENSIONS = 32
CLUSTERED = Clustering(from_rows=400, rows_per_cluster=20)
UNCLUSTERED = Clustering(from_rows=10**9)
LIMITS = VectorLimits(exact_below=100, most_scanned=1_500)


def gathered(count: int, seed: int = 0) -> Array:
    """Vectors in clusters, the small ones of them far from each other."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((max(1, count // 40), DIMENSIONS))
    vectors = centres[random.integers(len(centres), size=count)] + 0.4 * random.standard_normal((count, DIMENSIONS))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def segment(keys: Array, vectors: Array, clustering: Clustering = CLUSTERED) -> Segment:
    return Segment(*build(keys, vectors, clustering))


def index_of(*segments: Segment, limits: VectorLimits = LIMITS) -> VectorIndex:
    return VectorIndex(DIMENSIONS, segments, limits=limits)


def in_segments(vectors: Array, parts: int, clustering: Clustering = CLUSTERED) -> VectorIndex:
    numbers = np.array_split(np.arange(len(vectors)), parts)
    return index_of(*[segment(3 * part, vectors[part], clustering) for part in numbers])


def pairs(answer: tuple[Array, Array]) -> dict[int, float]:
    return dict(zip(answer[0].tolist(), answer[1].tolist(), strict=True))


def test_rows_are_ordered_by_cluster_and_every_key_finds_its_vector() -> None:
    vectors = gathered(1_000)
    held = segment(np.arange(1_000) * 2, vectors)
    assert held.header["clusters"] == 50
    assert held.arrays["keys"].tolist() == list(range(0, 2_000, 2))
    order = held.arrays["rows"]
    assert (held.arrays["vectors"][order] == unit_float16(vectors)).all()
    assert (held.arrays["places"][order] == np.arange(1_000)).all()
    ends = held.arrays["cluster_ends"].tolist()
    for first, last, centroid in zip([0, *ends], ends, held.arrays["cluster_centroids"].astype(float), strict=False):
        places = held.arrays["places"][first:last]
        assert (np.diff(places.astype(int)) > 0).all(), "in a cluster, rows follow their keys"
        members = held.arrays["vectors"][first:last].astype(float).sum(axis=0)
        assert centroid @ members == pytest.approx(np.linalg.norm(members), rel=1e-3)


def test_clusters_change_no_score_and_no_exact_answer() -> None:
    vectors = gathered(1_400)
    clustered = in_segments(vectors, 2)
    plain = in_segments(vectors, 2, UNCLUSTERED)
    assert all(one.header["clusters"] for one in clustered.segments)
    assert not any(one.header["clusters"] for one in plain.segments)
    keys = np.arange(0, 4_200, 5)
    for query in [*gathered(5, seed=7), *vectors[:5], np.zeros(DIMENSIONS)]:
        assert pairs(clustered.score(query, keys)) == pairs(plain.score(query, keys))
        found, expected = (index.search(query, 30, among=keys) for index in (clustered, plain))
        assert found[0].tolist() == expected[0].tolist()
        assert found[1].tolist() == expected[1].tolist()
        whole = plain.search(query, 10)
        assert np.isin(clustered.search(query, 10)[0], whole[0]).sum() >= 9
    assert clustered.search(np.zeros(DIMENSIONS), 4)[0].tolist() == [0, 3, 6, 9]


def test_the_nearest_clusters_of_many_rows_hold_the_nearest_vectors() -> None:
    vectors = gathered(6_100)
    stored, queries = unit_float16(vectors[:6_000]).astype(np.float32), vectors[6_000:]
    index = in_segments(vectors[:6_000], 3)
    hits = 0
    for query in queries:
        nearest = 3 * np.argsort(-(stored @ query), kind="stable")[:10]
        hits += np.isin(index.search(query, 10)[0], nearest).sum()
    assert hits / (10 * len(queries)) >= 0.95


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([100, 399, 400, 1_000, 2_500]), min_size=1, max_size=5),
    st.integers(0, 3),
    st.booleans(),
)
def test_no_more_rows_are_scanned_than_the_limit_allows(sizes: list[int], seed: int, alike: bool) -> None:
    segments = []
    for number, size in enumerate(sizes):
        vectors = np.ones((size, DIMENSIONS), dtype=np.float32) if alike else gathered(size, seed + number)
        segments.append(vector_rows(segment(10_000 * number + np.arange(size), vectors)))
    query = prepare_query(gathered(1, seed + 100)[0], DIMENSIONS)
    total = 0
    for own, spans in zip(segments, spans_to_scan(segments, query, 1_500), strict=True):
        edges = spans.reshape(-1)
        assert (np.diff(edges) >= 0).all()
        assert not edges.size or 0 <= edges[0] <= edges[-1] <= own.keys.size
        size = int((spans[:, 1] - spans[:, 0]).sum())
        assert own.cluster_ends.size or size == own.keys.size, "a segment without clusters is scanned whole"
        total += size
    unclustered = sum(size for size in sizes if size < 400)
    assert total == min(sum(sizes), max(1_500, unclustered + 750))


def test_the_newest_rows_of_a_cluster_that_fits_in_part_are_scanned() -> None:
    vectors = np.tile(gathered(1), (500, 1))  # all in one cluster
    limits = VectorLimits(exact_below=100, most_scanned=150)
    index = index_of(segment(np.arange(500), vectors), limits=limits)
    found, _ = index.search(vectors[0], 150)
    assert found.tolist() == list(range(350, 500))


def test_a_removed_vector_leaves_nothing_behind_not_even_in_the_centroid_of_its_cluster() -> None:
    vectors = gathered(800)
    whole = segment(np.arange(800), vectors)
    gone = [5, 17, 400, 799]
    header, arrays = without(whole, gone)
    assert (header["count"], header["clusters"]) == (796, 40)
    rest = index_of(Segment(header, arrays))
    raw = b"".join(array.tobytes() for array in arrays.values())
    for key in gone:
        assert unit_float16(vectors[key][np.newaxis]).tobytes() not in raw
        cluster = int(whole.arrays["cluster_ends"].searchsorted(whole.arrays["rows"][key], side="right"))
        centroid = whole.arrays["cluster_centroids"][cluster]
        assert centroid.tobytes() not in raw
    lost = whole.arrays["cluster_ends"].searchsorted(whole.arrays["rows"][gone], side="right")
    sizes, left = (np.diff(held["cluster_ends"], prepend=np.uint32(0)) for held in (whole.arrays, arrays))
    assert (sizes - left).tolist() == np.bincount(lost, minlength=40).tolist()
    kept = np.setdiff1d(np.arange(800), gone)
    before, after = (pairs(index.score(vectors[0], kept)) for index in (index_of(whole), rest))
    assert before == after
    assert pairs(rest.score(vectors[0], np.array(gone))) == {}


def test_a_cluster_that_loses_all_of_its_rows_does_no_harm() -> None:
    vectors = gathered(600)
    whole = segment(np.arange(600), vectors)
    first = whole.arrays["places"][: int(whole.arrays["cluster_ends"][0])].tolist()
    rest = index_of(Segment(*without(whole, first)))
    assert not set(rest.search(vectors[first[0]], 50)[0].tolist()) & set(first)
    nothing, _ = without(whole, range(600))
    assert nothing["count"] == 0


def test_segments_with_and_without_clusters_are_merged_into_one_with_all_of_their_vectors() -> None:
    vectors = gathered(1_300)
    numbers = np.random.default_rng(3).permutation(1_300)
    parts = [segment(part, vectors[part]) for part in (numbers[:700], numbers[700:900], numbers[900:])]
    assert [part.header["clusters"] for part in parts] == [35, 0, 20]
    merged = Segment(*merge(parts, CLUSTERED))
    assert merged.header["clusters"] == 65
    keys = np.arange(1_300)
    together = index_of(merged).score(vectors[3], keys)
    tail = VectorTail(DIMENSIONS)
    tail.add(keys, vectors)
    assert pairs(together) == pairs(VectorIndex(DIMENSIONS, [], tail).score(vectors[3], keys))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rows", lambda rows: rows + np.uint32(1)),
        ("places", lambda places: np.full_like(places, 2**32 - 1)),
        ("cluster_ends", lambda ends: ends[::-1].copy()),
        ("cluster_ends", lambda ends: ends + np.uint32(5)),
        ("cluster_ends", lambda ends: ends[:-1]),
        ("cluster_centroids", lambda centroids: centroids[:, :-1].copy()),
        ("rows", lambda rows: rows.astype(np.int64)),
        ("places", None),
    ],
)
def test_a_segment_with_invalid_rows_or_clusters_is_damaged(name: str, change: Any) -> None:
    vectors = gathered(2_000)
    header, arrays = build(np.arange(2_000), vectors, CLUSTERED)
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays[name])

    def ask() -> None:
        index = index_of(Segment(header, arrays))
        index.score(vectors[0], np.arange(2_000))
        index.search(vectors[0], 10)

    with pytest.raises(DamagedSegment):
        ask()


@pytest.mark.parametrize("clustering", [CLUSTERED, UNCLUSTERED])
@pytest.mark.parametrize("seed", range(6))
def test_damaged_keys_never_lead_out_of_the_segment(seed: int, clustering: Clustering) -> None:
    random = np.random.default_rng(seed)
    vectors = gathered(600)
    header, arrays = build(3 * np.arange(600), vectors, clustering)
    keys = arrays["keys"].copy()
    keys[random.integers(600, size=40)] = random.integers(-(2**63), 2**63 - 1, size=40)
    keys[-1] = 2**63 - 1 if seed % 2 else keys[-1]
    index = index_of(Segment(header, arrays | {"keys": keys}))
    asked = np.sort(random.choice(1_800, 200, replace=False))
    for query in vectors[:3]:
        found, _ = index.score(query, asked)
        assert np.isin(found, keys).all()
        assert np.isin(index.search(query, 20, among=asked)[0], keys).all()
        assert len(index.search(query, 20)[0]) == 20
