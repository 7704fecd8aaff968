"""The compiled kernels: present if there is a compiler, equal to numpy in every bit, without access outside
arrays."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import zlib
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.index import kernels, vector_index
from loom.index.kernels import KERNELS, LIBRARY, SOURCE, Kernels, PostingLists, address, load
from loom.index.segments import DamagedSegment, Segment, open_segment, write_segment
from loom.index.text_index import TextIndex, TextLimits, TextTail, build
from loom.index.vector_codes import prepare_query, rotate_query
from loom.index.vector_index import VectorIndex, VectorLimits
from loom.index.vector_scoring import rows_by_code, spans_to_scan
from loom.index.vector_segments import Clustering, vector_rows

Array = npt.NDArray[Any]

COMPILER = shutil.which(os.environ.get("CC", "cc").split()[0])
needs_kernels = pytest.mark.skipif(KERNELS is None, reason="this installation has no compiled kernels")


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
def test_an_installation_beside_a_compiler_has_the_kernels() -> None:
    assert LIBRARY.exists()
    assert isinstance(KERNELS, Kernels)


# --- Libraries that are none ------------------------------------------------------------------------------------


def test_a_missing_library_and_one_that_is_none_are_done_without(tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    other.write_bytes(b"not a library")
    assert load(tmp_path / "missing.so") is None
    assert load(other) is None


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
@pytest.mark.parametrize("text", ["long long loom_version(void) { return 99; }", "int nothing;"])
def test_a_library_of_another_version_is_done_without(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.c").write_text(text)
    command = [str(COMPILER), "-shared", "-fPIC", "-o", str(tmp_path / "other.so"), str(tmp_path / "other.c")]
    subprocess.run(command, check=True, capture_output=True)
    assert load(tmp_path / "other.so") is None


def test_a_machine_of_another_byte_order_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.byteorder", "big")
    assert load() is None


def test_the_switch_ends_with_its_block_even_if_that_fails() -> None:
    def fail() -> None:
        with kernels.using(None):
            assert kernels.active is None
            raise KeyError

    before = kernels.active
    with pytest.raises(KeyError):
        fail()
    assert kernels.active is before


# --- The same bits ------------------------------------------------------------------------------------------------


def with_kernels(ask: Any, found: Kernels | None) -> Any:
    with kernels.using(found):
        return ask()


def both(ask: Any) -> tuple[Any, Any]:
    """The answer with the kernels, and without."""
    return ask(), with_kernels(ask, None)


def assert_same_bits(one: tuple[Array, ...], other: tuple[Array, ...]) -> None:
    for quick, plain in zip(one, other, strict=True):
        assert quick.dtype == plain.dtype
        assert quick.tobytes() == plain.tobytes()


words = st.sampled_from([f"w{number}" for number in range(12)])
documents = st.lists(st.lists(words, min_size=1, max_size=9), min_size=1, max_size=60)


@needs_kernels
@given(
    documents=documents,
    cuts=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    query=st.dictionaries(words, st.floats(1e-6, 9.0), min_size=1, max_size=8),
    limit=st.integers(1, 70),
    budget=st.sampled_from([1, 20, 1 << 19]),
)
def test_words_are_found_with_the_same_scores(
    documents: list[list[str]], cuts: tuple[int, int], query: dict[str, float], limit: int, budget: int
) -> None:
    numbered = list(enumerate(documents, 1))
    low, high = sorted(cuts)
    segments = [Segment(*build(part)) for part in (numbered[:low], numbered[low:high]) if part]
    tail = TextTail()
    for key, terms in numbered[high:]:
        tail.add(key, terms)
    keys = np.array([key for key, _ in numbered[::2]], dtype=np.int64)
    limits = TextLimits(postings_budget=budget, exact_documents=0, shortlist=5)
    index = TextIndex(segments, tail, limits=limits)
    assert_same_bits(*both(lambda: index.search(query, limit)))
    assert_same_bits(*both(lambda: index.search(query, limit, among=keys)))
    assert_same_bits(*both(lambda: (index.score(query, keys),)))
    assert_same_bits(*both(lambda: index.contributions(query, keys)))


@needs_kernels
def test_lists_with_bitmaps_give_the_same_scores() -> None:
    random = np.random.default_rng(5)
    numbered = [(key, [f"w{word}" for word in random.integers(0, 30, 20)]) for key in range(1, 20_001)]
    index = TextIndex([Segment(*build(numbered))])
    keys = np.sort(random.choice(np.arange(1, 20_001), 300, replace=False))
    for asked in range(3):  # a list gets a bitmap in the second query
        query = {f"w{number}": 1.0 + asked + number / 7 for number in range(12)}
        assert_same_bits(*both(lambda asked=query: index.contributions(asked, keys)))
    assert index.segments[0].bitmaps


@needs_kernels
@pytest.mark.parametrize("dimensions", [1, 255, 256, 300, 384, 512, 768, 1_536])
def test_a_query_is_rotated_to_the_same_bits(dimensions: int) -> None:
    random = np.random.default_rng(dimensions)
    for query in random.normal(size=(20, dimensions)):
        asked = prepare_query(query, dimensions).exact
        assert_same_bits(*both(lambda exact=asked: (rotate_query(exact),)))


@needs_kernels
@pytest.mark.parametrize(("count", "dimensions"), [(1_024, 5), (3_000, 100), (20_000, 384)])
def test_the_same_vectors_are_found_with_the_same_scores(count: int, dimensions: int) -> None:
    random = np.random.default_rng(count)
    centres = random.normal(size=(40, dimensions))
    vectors = centres[random.integers(0, 40, count)] + random.normal(size=(count, dimensions)) / 2
    vectors[: count // 3] = vectors[0]  # a crowd of duplicates
    segment = Segment(*vector_index.build(np.arange(count), vectors))
    index = VectorIndex(dimensions, [segment])
    keys = np.arange(0, count, 7)
    for query in (vectors[0], vectors[-1], *random.normal(size=(6, dimensions))):
        turned = rotate_query(prepare_query(query, dimensions).exact)
        for limit in (1, 18, 200):
            for spans in ([(0, count)], [(0, 0), (5, 700), (700, 701), (count - 300, count)]):
                nominate = partial(rows_by_code, vector_rows(segment), np.array(spans), turned, limit, 1.0)
                assert_same_bits(*both(lambda ask=nominate: (ask(),)))
            assert_same_bits(*both(lambda q=query, n=limit: index.search(q, n)))
        assert_same_bits(*both(lambda q=query: index.score(q, keys)))
        assert_same_bits(*both(lambda q=query: index.search(q, 10, among=keys)))


@needs_kernels
def test_the_same_clusters_are_scanned() -> None:
    random = np.random.default_rng(9)
    vectors = random.normal(size=(4_000, 40))
    clustering = Clustering(from_rows=400, rows_per_cluster=8)
    segment = Segment(*vector_index.build(np.arange(4_000), vectors, clustering))
    index = VectorIndex(40, [segment], limits=VectorLimits(most_scanned=1_500))
    for query in random.normal(size=(40, 40)):
        asked = prepare_query(query, 40)
        assert_same_bits(*both(lambda one=asked: tuple(spans_to_scan([vector_rows(segment)], one, 1_500))))
        assert_same_bits(*both(lambda one=query: index.search(one, 10)))


@needs_kernels
@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
@pytest.mark.parametrize("width", [0, 256])
def test_processors_with_narrower_registers_get_the_same_bits(tmp_path: Path, width: int) -> None:
    library = tmp_path / "narrow.so"
    flags = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fPIC", "-shared", f"-DWIDEST={width}"]
    command = [str(COMPILER), *flags, "-o", str(library), str(LIBRARY.with_name("kernels.c")), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    narrow = load(library)
    assert narrow is not None
    random = np.random.default_rng(width)
    vectors = random.normal(size=(3_001, 37))
    index = VectorIndex(37, [Segment(*vector_index.build(np.arange(3_000), vectors[:3_000]))])
    words = TextIndex(
        [Segment(*build([(key, [f"w{word}" for word in random.integers(0, 40, 9)]) for key in range(999)]))]
    )
    asked: list[Callable[[], tuple[Array, ...]]] = [
        lambda: index.search(vectors[-1], 20),
        lambda: index.score(vectors[-1], np.arange(0, 3_000, 11)),
        lambda: words.search({f"w{number}": 1.0 + number for number in range(9)}, 20),
    ]
    for ask in asked:
        assert_same_bits(ask(), with_kernels(ask, narrow))


# --- No way out of an array ---------------------------------------------------------------------------------------


def lists(spans: list[int], documents: Array, codes: Array, impacts: Array, documents_end: int) -> PostingLists:
    source = SOURCE.pack(
        address(documents), address(codes), address(impacts), 0, 0,
        len(documents), codes.itemsize, len(impacts), documents_end, 0, 0,
    )  # fmt: skip
    weights = array("d", [1.0] * (len(spans) // 5))
    return PostingLists(source, array("q", spans), weights, (documents, codes, impacts))


@needs_kernels
@pytest.mark.parametrize("width", [np.uint16, np.uint32, np.int64])
@pytest.mark.parametrize(
    ("span", "documents", "codes"),
    [
        ([0, -1, 2, -1, 0], [0, 1, 2], [0, 1, 0]),
        ([0, 0, 4, -1, 0], [0, 1, 2], [0, 1, 0]),
        ([0, 2, 1, -1, 0], [0, 1, 2], [0, 1, 0]),
        ([0, 0, 3, -1, 0], [0, 1, 9], [0, 1, 0]),
        ([0, 0, 3, -1, 0], [0, 1, 2], [0, 1, 7]),
    ],
    ids=["begins before", "ends behind", "ends before it begins", "document", "code"],
)
def test_postings_that_point_outside_are_refused(
    width: type[np.generic], span: list[int], documents: list[int], codes: list[int]
) -> None:
    assert KERNELS is not None
    numbers, narrow = np.array(documents, dtype=np.uint32), np.array(codes).astype(width)
    given = lists(span, numbers, narrow, np.ones(2), 3)
    with pytest.raises(IndexError):
        KERNELS.add(given, np.zeros(3))
    if documents == [0, 1, 2]:  # looking up reads no document but those that are wanted
        with pytest.raises(IndexError):
            KERNELS.look_up(given, np.arange(3), np.zeros(3), 0)


@needs_kernels
@given(sums=st.lists(st.floats(-1.0, 9.0) | st.just(-math.inf), max_size=200), limit=st.integers(1, 90))
def test_the_sum_at_a_place_is_the_one_that_sorting_finds(sums: list[float], limit: int) -> None:
    assert KERNELS is not None
    best = sorted((one for one in sums if one > 0.0), reverse=True)
    assert KERNELS.threshold(np.array(sums), limit) == (best[limit - 1] if limit <= len(best) else 0.0)
    many = np.random.default_rng(limit).random(3_000)
    assert KERNELS.threshold(many, limit) == np.sort(many)[-limit]


@needs_kernels
@given(
    sums=st.lists(st.sampled_from([-math.inf, 0.0, 0.5, 2.0]) | st.floats(0.0, 9.0), max_size=300),
    limit=st.integers(1, 400),
)
def test_the_best_sums_are_taken_with_their_ties_and_none_is_left(sums: list[float], limit: int) -> None:
    assert KERNELS is not None
    given = np.array(sums, dtype=np.float64)
    expected = KERNELS.select(given, KERNELS.threshold(given, limit))
    assert_same_bits(KERNELS.take(given, limit), expected)
    assert not given.any()


@needs_kernels
def test_more_documents_of_one_score_than_expected_are_all_selected() -> None:
    assert KERNELS is not None
    sums = np.zeros(9_001)
    sums[::3] = 2.5
    places, chosen = KERNELS.select(sums, KERNELS.threshold(sums, 10))
    assert places.tolist() == list(range(0, 9_001, 3))
    assert (chosen == 2.5).all()
    assert_same_bits(KERNELS.take(sums.copy(), 10), (places, chosen))
    assert KERNELS.threshold(sums, 3_002) == 0.0
    assert KERNELS.threshold(sums, 2**62) == 0.0


def as_written(path: Path, change: Any) -> Path:
    """A text segment whose header, true to its own checksum, says something else about its arrays."""
    write_segment(path, *build([(key, ["heron", f"w{key}"]) for key in range(40)]))
    whole = path.read_bytes()
    size = int.from_bytes(whole[8:12], "little")
    content = json.loads(whole[16 : 16 + size])
    change(content)
    head = json.dumps(content, separators=(",", ":")).encode().ljust(size)
    assert len(head) == size
    path.write_bytes(whole[:12] + zlib.crc32(head).to_bytes(4, "little") + head + whole[16 + size :])
    return path


@pytest.mark.parametrize(
    ("array", "field", "value"),
    [
        ("documents", "dtype", "|u1"),
        ("documents", "dtype", ">u4"),
        ("documents", "dtype", "<f4"),
        ("documents", "dtype", "|O"),
        ("documents", "dtype", "no"),
        ("documents", "shape", [80, 0]),
        ("documents", "shape", None),
        ("codes", "dtype", "<i2"),
        ("codes", "dtype", "|S2"),
        ("codes", "offset", 3),
        ("starts", "dtype", "<f4"),
        ("pair_lengths", "dtype", "<f4"),
    ],
)
@pytest.mark.usefixtures("both_ways")
def test_a_file_cannot_lie_about_what_its_arrays_hold(tmp_path: Path, array: str, field: str, value: Any) -> None:
    def change(content: dict[str, Any]) -> None:
        content["arrays"][array][field] = value

    path = as_written(tmp_path / "a.seg", change)
    with pytest.raises(DamagedSegment):
        TextIndex([open_segment(path)]).search({"heron": 1.0}, 50)


def test_the_same_file_unchanged_is_searched(tmp_path: Path) -> None:
    path = as_written(tmp_path / "a.seg", lambda content: None)
    keys, _ = TextIndex([open_segment(path)]).search({"heron": 1.0}, 50)
    assert keys.tolist() == list(range(40))
