"""The vector index: the same exact answer for every division of the vectors, and the recall of a search by codes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import InvalidInput, WrongDimension
from loom.index.segments import DamagedSegment, Segment, open_segment, write_segment
from loom.index.vector_codes import pack_bits, prepare_query, rotate, rotate_query
from loom.index.vector_index import VectorIndex, VectorTail, build, merge, unit_float16, without
from loom.index.vector_scoring import nominate
from loom.index.vector_segments import keys_of, rows_of, vector_rows

pytestmark = pytest.mark.usefixtures("both_ways")

Array = npt.NDArray[Any]


def make_segment(keys: Array, vectors: Array) -> Segment:
    header, arrays = build(keys, vectors)
    return Segment(header, arrays)


def brute_force(keys: Array, vectors: Array, query: Array, limit: int) -> list[int]:
    """By Python's own integers: products of float16 values are multiples of 2**-51, so nothing is rounded."""
    grid = [int(value) for value in np.rint(_unit(query) * 2.0**27)]
    scored = []
    for key, row in zip(keys.tolist(), unit_float16(vectors).astype(np.float64), strict=True):
        whole = [int(value) for value in row * 2.0**24]
        dot = sum(left * right for left, right in zip(whole, grid, strict=True)) * 2.0**-51
        square = sum(value * value for value in whole) * 2.0**-48
        scored.append((-min(1.0, max(-1.0, dot / square**0.5 if square else 0.0)), key))
    return [key for _, key in sorted(scored)[:limit]]


def _unit(vector: Array) -> Array:
    double = np.asarray(vector, dtype=np.float64)
    length = float(np.sqrt(double @ double))
    return double / length if length else double


def clustered(count: int, dimensions: int, clusters: int, seed: int) -> Array:
    """Clusters of unequal size around a common direction, with a falling spectrum, as embeddings have."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((clusters, dimensions))
    chosen = centres[np.minimum(random.geometric(min(1.0, 4 / clusters), count) - 1, clusters - 1)]
    spectrum = np.arange(1, dimensions + 1) ** -0.5
    points = (chosen + 0.7 * random.standard_normal((count, dimensions))) * spectrum + 0.1
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True), dtype=np.float32)


@st.composite
def collections(draw: st.DrawFn) -> tuple[Array, Array, Array, list[int]]:
    """Keys, vectors with duplicates and zeros among them, a query, and the part into which each vector goes."""
    dimensions = draw(st.sampled_from([1, 3, 8, 64, 65, 130]))
    count = draw(st.integers(0, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    keys = np.sort(random.choice(10_000, size=count, replace=False)).astype(np.int64)
    pool = random.standard_normal((max(1, count // 2), dimensions)).astype(np.float32)
    pool[random.random(len(pool)) < 0.1] = 0.0
    vectors = pool[random.integers(len(pool), size=count)]
    query = random.standard_normal(dimensions) if draw(st.booleans()) else pool[0]
    parts = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return keys, vectors, query, parts


def split(keys: Array, vectors: Array, parts: list[int]) -> VectorIndex:
    """Part 0 is the tail, added in two calls; the others are segments."""
    where = np.array(parts, dtype=np.int64)
    tail = VectorTail(vectors.shape[1])
    for half in (keys % 2 == 1, keys % 2 == 0):
        tail.add(keys[(where == 0) & half], vectors[(where == 0) & half])
    segments = [make_segment(keys[where == part], vectors[where == part]) for part in (1, 2, 3)]
    return VectorIndex(vectors.shape[1], segments, tail)


@settings(max_examples=150, deadline=None)
@given(collections(), st.integers(1, 45))
def test_any_split_over_segments_and_tail_ranks_like_brute_force(
    collection: tuple[Array, Array, Array, list[int]], limit: int
) -> None:
    keys, vectors, query, parts = collection
    found, scores = split(keys, vectors, parts).search(query, limit)
    assert found.tolist() == brute_force(keys, vectors, query, limit)
    whole, whole_scores = VectorIndex(vectors.shape[1], [make_segment(keys, vectors)]).search(query, limit)
    assert whole.tolist() == found.tolist()
    assert whole_scores.tobytes() == scores.tobytes()


@settings(max_examples=100, deadline=None)
@given(collections(), st.integers(1, 45), st.data())
def test_among_is_exact_on_the_allowed_keys(
    collection: tuple[Array, Array, Array, list[int]], limit: int, data: st.DataObject
) -> None:
    keys, vectors, query, parts = collection
    strangers = data.draw(st.lists(st.integers(-5, 10_005), max_size=60))
    allowed = np.array(sorted({*strangers, *data.draw(st.sets(st.sampled_from([*keys.tolist(), 0])))}), np.int64)
    mask = np.isin(keys, allowed)
    index = split(keys, vectors, parts)
    found, _ = index.search(query, limit, among=allowed)
    assert found.tolist() == brute_force(keys[mask], vectors[mask], query, limit)
    found, scores = index.search(query, max(1, allowed.size), among=allowed)
    scored = dict(zip(*(part.tolist() for part in index.score(query, allowed)), strict=True))
    assert scored == dict(zip(found.tolist(), scores.tolist(), strict=True))
    assert index.tail is not None
    in_tail = mask & (np.array(parts, dtype=np.int64) == 0)
    found, _ = VectorIndex(index.dimensions, tail=index.tail).search(query, limit, among=allowed)
    assert found.tolist() == brute_force(keys[in_tail], vectors[in_tail], query, limit)


def test_among_is_exact_in_a_segment_that_is_otherwise_searched_by_codes() -> None:
    vectors = clustered(5_000, 96, 20, seed=1)
    keys = np.arange(5_000, dtype=np.int64) * 3
    index = VectorIndex(96, [make_segment(keys, vectors)])
    allowed = keys[::7]
    found, _ = index.search(vectors[11], 20, among=allowed)
    assert found.tolist() == brute_force(allowed, vectors[::7], vectors[11], 20)


@given(collections())
def test_the_vectors_of_keys_are_those_that_went_in(collection: tuple[Array, Array, Array, list[int]]) -> None:
    keys, vectors, _, parts = collection
    index = split(keys, vectors, parts)
    assert len(index) == len(keys)
    wanted = np.sort(np.append(keys[::2], 10_001))
    found, rows = index.vectors(wanted)
    assert found.tolist() == keys[::2].tolist()
    assert np.array_equal(rows, unit_float16(vectors)[::2])


@given(collections(), st.integers(0, 45), st.integers(0, 45))
def test_keys_between_two_places_are_those_of_all_keys_in_order(
    collection: tuple[Array, Array, Array, list[int]], start: int, stop: int
) -> None:
    keys, vectors, _, parts = collection
    assert split(keys, vectors, parts).keys_between(start, stop).tolist() == keys.tolist()[start:stop]


def test_keys_between_two_places_of_a_large_index_are_found_by_reading_few_of_them() -> None:
    class Counted(np.ndarray):
        """Keys that count how many of them leave as a slice."""

        read = 0

        def __getitem__(self, place: Any) -> Any:
            found = super().__getitem__(place)
            Counted.read += np.size(found)
            return np.asarray(found)

    vectors = np.eye(4, dtype=np.float32)[np.arange(40_000) % 4]
    keys = np.arange(40_000, dtype=np.int64) * 3
    built = [build(keys[part::2], vectors[part::2]) for part in (0, 1)]
    segments = [Segment(header, {**arrays, "keys": arrays["keys"].view(Counted)}) for header, arrays in built]
    index = VectorIndex(4, segments)
    assert index.keys_between(20_000, 20_128).tolist() == keys[20_000:20_128].tolist()
    assert 0 < Counted.read < 1_000


def test_the_score_is_the_cosine() -> None:
    vectors = clustered(200, 48, 5, seed=2)
    query = vectors[3] * 17.0
    found, scores = VectorIndex(48, [make_segment(np.arange(200), vectors)]).search(query, 200)
    assert sorted(found.tolist()) == list(range(200))
    assert np.allclose(scores, (vectors @ vectors[3])[found], atol=1e-3)
    assert found[0] == 3
    assert 1.0 - 1e-6 < scores[0] <= 1.0
    assert (np.diff(scores) <= 0).all()


def test_equal_vectors_come_in_order_of_their_keys_even_when_there_are_thousands() -> None:
    same = np.repeat(clustered(1, 64, 1, seed=3), 30_000, axis=0)
    others = clustered(5_000, 64, 50, seed=4)
    vectors = np.concatenate([others, same])
    keys = np.random.default_rng(0).permutation(len(vectors)).astype(np.int64)
    found, _ = VectorIndex(64, [make_segment(keys, vectors)]).search(same[0], 25)
    assert found.tolist() == np.sort(keys[5_000:])[:25].tolist()


@pytest.mark.parametrize("vector", [clustered(1, 32, 1, seed=3), np.eye(1, 32, dtype=np.float32)])
def test_a_segment_of_nothing_but_one_vector_is_searched(vector: Array) -> None:
    # The second is its own mean without any rounding: the query then lies in the centre of the codes.
    vectors = np.repeat(vector, 4_000, axis=0)
    index = VectorIndex(32, [make_segment(np.arange(4_000), vectors)])
    assert index.search(vectors[0], 5)[0].tolist() == [0, 1, 2, 3, 4]
    assert index.search(-vectors[0], 5)[0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("count", [50, 3_000])
def test_a_zero_query_is_equally_far_from_everything(count: int) -> None:
    vectors = clustered(count, 32, 5, seed=5)
    index = VectorIndex(32, [make_segment(np.arange(count) + 100, vectors)])
    found, scores = index.search(np.zeros(32), 3)
    assert found.tolist() == [100, 101, 102]
    assert scores.tolist() == [0.0, 0.0, 0.0]


def test_zero_vectors_among_others_are_found_with_the_score_zero() -> None:
    vectors = np.abs(clustered(3_000, 32, 5, seed=6))
    vectors[::2] = 0.0
    index = VectorIndex(32, [make_segment(np.arange(3_000), vectors)])
    found, scores = index.search(vectors[1], 10)
    assert (found % 2 == 1).all()
    assert (scores > 0.5).all()
    among, scores = index.search(vectors[1], 2, among=np.array([0, 2], np.int64))
    assert among.tolist() == [0, 2]
    assert scores.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dimensions", [8, 100, 384])
def test_codes_find_98_of_100_of_the_ten_nearest(dimensions: int) -> None:
    vectors = clustered(20_100, dimensions, 200, seed=7)
    stored, queries = vectors[:20_000], vectors[20_000:]
    index = VectorIndex(dimensions, [make_segment(np.arange(20_000), stored)])
    exact = unit_float16(stored).astype(np.float32)
    hits = 0
    for query in queries:
        nearest = np.argsort(-(exact @ query), kind="stable")[:10]
        hits += np.isin(index.search(query, 10)[0], nearest).sum()
    assert hits / (10 * len(queries)) >= 0.98


def test_codes_find_98_of_100_where_there_are_no_clusters() -> None:
    random = np.random.default_rng(5)
    vectors = random.standard_normal((30_060, 128)) * np.arange(1, 129) ** -0.25
    vectors = np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)
    stored, queries = vectors[:30_000], vectors[30_000:]
    index = VectorIndex(128, [make_segment(np.arange(30_000), stored)])
    hits = 0
    for query in queries:
        nearest = np.argsort(-(stored @ query), kind="stable")[:10]
        hits += np.isin(index.search(query, 10)[0], nearest).sum()
    assert hits / (10 * len(queries)) >= 0.98


@pytest.mark.parametrize("dimensions", [256, 384, 1_024])
def test_a_code_has_a_bit_for_each_number_of_its_vector(dimensions: int) -> None:
    """Requirement 128: 32:1 beside vectors of float32."""
    vectors = clustered(5_000, dimensions, 50, seed=4)
    _, arrays = build(np.arange(5_000, dtype=np.int64), vectors)
    codes = [array for array in arrays.values() if array.dtype == np.uint64]
    assert sum(array.nbytes for array in codes) * 32 == vectors.nbytes


@pytest.mark.parametrize("limit", [1, 40, 3_000, 9_000])
def test_segments_that_are_asked_for_their_share_give_as_many_as_are_wanted(limit: int) -> None:
    vectors = clustered(9_000, 64, 40, seed=13)
    parts = [slice(0, 1_200), slice(1_200, 4_000), slice(4_000, 9_000)]
    index = VectorIndex(64, [make_segment(np.arange(9_000)[part], vectors[part]) for part in parts])
    found, scores = index.search(vectors[5_000], limit)
    assert np.unique(found).size == found.size == limit
    assert (np.diff(scores) <= 0).all()


def test_a_small_segment_is_scored_whole_and_few_rows_of_a_large_one() -> None:
    vectors = clustered(21_000, 128, 200, seed=8)
    large = make_segment(np.arange(20_000), vectors[:20_000])
    small = make_segment(np.arange(20_000, 21_000), vectors[20_000:])
    nominated = nominate([vector_rows(large), vector_rows(small)], prepare_query(vectors[5], 128), 10)
    scored = {own.keys.size: rows.size for own, rows in nominated}
    assert scored[1_000] == 1_000
    assert 10 <= scored[20_000] < 2_000


def test_a_record_keeps_its_score_when_it_moves_from_the_tail_into_a_segment(tmp_path: Any) -> None:
    vectors = clustered(3_000, 100, 20, seed=9)
    keys = np.arange(3_000, dtype=np.int64)
    tail = VectorTail(100)
    tail.add(keys, vectors)
    write_segment(tmp_path / "a.vectors", *build(keys, vectors))
    index = VectorIndex(100, [open_segment(tmp_path / "a.vectors")])
    for query in vectors[::500]:
        from_tail = dict(zip(*(part.tolist() for part in VectorIndex(100, tail=tail).search(query, 40)), strict=True))
        for key, score in zip(*(part.tolist() for part in index.search(query, 20)), strict=True):
            assert from_tail[key] == score


def same_arrays(left: dict[str, Array], right: dict[str, Array]) -> bool:
    return left.keys() == right.keys() and all(left[name].tobytes() == right[name].tobytes() for name in left)


def test_without_leaves_the_segment_that_would_have_been_built_without_them() -> None:
    vectors = clustered(300, 40, 5, seed=10)
    keys = np.arange(300, dtype=np.int64) * 2
    gone = {0, 1, 10, 598, 9_999}
    header, arrays = without(make_segment(keys, vectors), gone)
    stays = ~np.isin(keys, list(gone))
    expected_header, expected = build(keys[stays], vectors[stays])
    assert header == expected_header
    assert header["count"] == 297
    assert same_arrays(arrays, expected)
    raw = b"".join(array.tobytes() for array in arrays.values())
    for key in (0, 10, 598):
        assert unit_float16(vectors[key // 2][np.newaxis]).tobytes() not in raw


def test_without_everything_leaves_an_empty_segment() -> None:
    header, arrays = without(make_segment(np.array([4]), clustered(1, 40, 1, seed=11)), [4])
    assert (header["count"], header["first_key"], header["last_key"]) == (0, None, None)
    assert not arrays["centre"].any()
    found, scores = VectorIndex(40, [Segment(header, arrays)]).search(np.ones(40), 3)
    assert (found.size, scores.size) == (0, 0)


def test_merge_keeps_all_and_equals_one_build() -> None:
    vectors = clustered(500, 40, 5, seed=12)
    keys = np.random.default_rng(1).permutation(500).astype(np.int64)
    parts = [make_segment(keys[start::3], vectors[start::3]) for start in range(3)]
    empty = make_segment(np.empty(0, np.int64), np.empty((0, 40), np.float32))
    header, arrays = merge([*parts, empty])
    expected_header, expected = build(keys, vectors)
    assert header == expected_header
    assert same_arrays(arrays, expected)
    assert merge([parts[0], parts[0]])[0]["count"] == parts[0].header["count"]


def test_merge_refuses_segments_that_do_not_belong_together() -> None:
    with pytest.raises(InvalidInput):
        merge([])
    left = make_segment(np.array([1]), clustered(1, 40, 1, seed=13))
    right = make_segment(np.array([2]), clustered(1, 41, 1, seed=13))
    with pytest.raises(DamagedSegment):
        merge([left, right])


def test_build_sorts_by_key_and_refuses_a_key_given_twice() -> None:
    vectors = clustered(3, 8, 1, seed=14)
    header, arrays = build(np.array([7, 3, 5]), vectors)
    assert arrays["keys"].tolist() == [3, 5, 7]
    assert (arrays["vectors"] == unit_float16(vectors)[[1, 2, 0]]).all()
    assert (header["first_key"], header["last_key"]) == (3, 7)
    with pytest.raises(InvalidInput):
        build(np.array([1, 2, 1]), vectors)
    with pytest.raises(InvalidInput):
        build(np.array([1, 2]), vectors)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 7, 64, 300]), st.sampled_from([1.0, 1.0003, 1e-30, 1e30]))
def test_the_kept_form_is_unit_and_its_own_fixed_point(seed: int, dimensions: int, scale: float) -> None:
    vectors = (np.random.default_rng(seed).standard_normal((20, dimensions)) * scale).astype(np.float32)
    vectors[3] = 0.0
    kept = unit_float16(vectors)
    assert unit_float16(kept).tobytes() == kept.tobytes()
    lengths = np.linalg.norm(kept.astype(np.float64), axis=1)
    assert lengths[3] == 0.0
    assert np.abs(np.delete(lengths, 3) - 1.0).max() < 1.1e-3


def test_the_kept_form_does_not_change_the_callers_array() -> None:
    halves = np.full((3, 8), 2.0, dtype=np.float16)
    assert np.allclose(unit_float16(halves), 8**-0.5, atol=1e-3)
    assert (halves == 2.0).all()


def test_values_that_are_not_finite_are_refused() -> None:
    for bad in (np.nan, np.inf):
        vectors = np.ones((2, 4), dtype=np.float32)
        vectors[1, 2] = bad
        with pytest.raises(InvalidInput):
            build(np.array([1, 2]), vectors)
        with pytest.raises(InvalidInput):
            VectorIndex(4).search(vectors[1], 1)


def test_the_tail_grows_replaces_and_forgets() -> None:
    tail = VectorTail(16)
    vectors = clustered(1_000, 16, 5, seed=15)
    for start in range(0, 1_000, 7):
        tail.add(np.arange(1_000)[start : start + 7], vectors[start : start + 7])
    assert len(tail) == 1_000
    assert tail.keys.tolist() == list(range(1_000))
    tail.add([10], vectors[20:21])
    assert len(tail) == 1_000
    assert VectorIndex(16, tail=tail).search(vectors[20], 2)[0].tolist() == [10, 20]
    tail.remove([10, 20, 5_000])
    assert len(tail) == 998
    assert not {10, 20} & set(VectorIndex(16, tail=tail).search(vectors[20], 998)[0].tolist())
    removed = unit_float16(vectors[20:21])
    assert not (tail.view().own.vectors == removed).all(axis=1).any(), "spare rows included"


def test_a_search_sees_the_tail_before_or_after_a_change() -> None:
    tail = VectorTail(16)
    vectors = clustered(100, 16, 5, seed=16)
    tail.add(np.arange(50), vectors[:50])
    before, rows = tail.view()
    tail.add(np.arange(50, 100), vectors[50:])
    tail.remove(range(10))
    assert keys_of(before, rows).tolist() == list(range(50))
    assert (before.vectors[rows] == unit_float16(vectors[:50])).all()


def test_wrong_dimensions_are_refused() -> None:
    tail = VectorTail(16)
    with pytest.raises(WrongDimension):
        tail.add([1], np.ones((1, 17), dtype=np.float32))
    with pytest.raises(WrongDimension):
        VectorIndex(16, tail=tail).search(np.ones(17), 1)
    with pytest.raises(WrongDimension):
        VectorIndex(17, tail=tail)
    with pytest.raises(InvalidInput):
        VectorIndex(16, tail=tail).search(np.ones(16), 0)
    with pytest.raises(InvalidInput):
        tail.add([1, 1], np.ones((2, 16), dtype=np.float32))


@pytest.mark.parametrize("change", [{"code_version": 0}, {"dimensions": 16}, {"kind": "text"}, {"count": 9}])
def test_a_segment_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    header, arrays = build(np.arange(10), clustered(10, 32, 2, seed=17))
    with pytest.raises(DamagedSegment):
        VectorIndex(32, [Segment({**header, **change}, arrays)])
    with pytest.raises(DamagedSegment):
        VectorIndex(32, [Segment(header, {name: array for name, array in arrays.items() if name != "fine"})])


def test_a_row_outside_of_the_arrays_is_damage() -> None:
    rows = vector_rows(make_segment(np.arange(10), clustered(10, 32, 2, seed=17)))
    astray = rows._replace(rows=np.full(10, 10, dtype=np.uint32))
    with pytest.raises(DamagedSegment, match="outside of its own arrays"):
        rows_of(astray, np.arange(10))


@pytest.mark.parametrize("dimensions", [1, 8, 256, 300, 384, 1_000, 1_536])
def test_the_rotation_keeps_lengths_and_angles(dimensions: int) -> None:
    vectors = clustered(20, dimensions, 3, seed=18)
    turned = rotate(vectors)
    assert turned.shape == (20, max(256, -(-dimensions // 64) * 64))
    assert np.allclose(turned @ turned.T, vectors @ vectors.T, atol=1e-5)
    for vector, expected in zip(vectors, turned, strict=True):
        assert np.allclose(rotate_query(prepare_query(vector, dimensions).exact), expected, atol=1e-5)


def test_codes_never_change_within_a_code_version() -> None:
    # Later releases read the segments that this one writes, as long as the code version is the same.
    spread = np.cos(np.arange(384, dtype=np.float64) ** 2)[np.newaxis].astype(np.float32)
    turned = rotate(spread)
    assert np.abs(turned).min() > 1e-4
    assert hashlib.sha256(pack_bits(turned > 0).tobytes()).hexdigest()[:16] == "ee52839dba4301a0"
