"""The text index against a plain implementation of BM25, for any division of documents into segments and tail."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.errors import InvalidInput
from loom.index.segments import Built, DamagedSegment, Segment, open_segment, write_segment
from loom.index.text_index import K1, SILENT, B, TextIndex, TextLimits, TextTail, build, merge, term_hash, without
from loom.index.text_postings import PostingBitmaps, find_hash

pytestmark = pytest.mark.usefixtures("both_ways")

Corpus = dict[int, list[str]]
Answer = list[tuple[int, float]]

WORDS = [f"w{number}" for number in range(12)]
corpora = st.dictionaries(st.integers(0, 60), st.lists(st.sampled_from(WORDS), max_size=8), max_size=30)
queries = st.dictionaries(st.sampled_from([*WORDS, "unknown"]), st.sampled_from([0.1, 0.5, 1.0, 3.0]), max_size=6)


def naive_contributions(
    corpus: Mapping[int, Sequence[str]], query: Mapping[str, float], k1: float = K1, b: float = B
) -> dict[str, dict[int, float]]:
    """The contribution of each term to the score of each document that has it, the heaviest term first."""
    counted = {key: Counter(terms) for key, terms in corpus.items()}
    total = sum(len(terms) for terms in corpus.values())
    frequency = {term: sum(term in counts for counts in counted.values()) for term in query}
    weights = {
        term: query[term] * math.log(1.0 + (len(corpus) - frequency[term] + 0.5) / (frequency[term] + 0.5))
        for term in query
        if frequency[term]
    }
    average = total / len(corpus) if corpus else 0.0
    contributions: dict[str, dict[int, float]] = {}
    for term in sorted(weights, key=lambda term: (-weights[term], term_hash(term))):
        contributions[term] = {}
        for key, counts in counted.items():
            if term in counts:
                tf = float(min(counts[term], 65_535))
                norm = k1 * ((1.0 - b) + b * (len(corpus[key]) / average))
                contributions[term][key] = (tf * (k1 + 1.0)) / (tf + norm) * weights[term]
    return contributions


def summed(contributions: Iterable[Mapping[int, float]]) -> dict[int, float]:
    scores: dict[int, float] = {}
    for of_term in contributions:
        for key, contribution in of_term.items():
            scores[key] = scores.get(key, 0.0) + contribution
    return scores


def naive_scores(
    corpus: Mapping[int, Sequence[str]], query: Mapping[str, float], k1: float = K1, b: float = B
) -> dict[int, float]:
    """Every matching key with its score, by the book."""
    return summed(naive_contributions(corpus, query, k1, b).values())


def ranked(scores: Mapping[int, float], limit: int) -> Answer:
    return sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))[:limit]


def segment_of(corpus: Mapping[int, Sequence[str]]) -> Segment:
    return Segment(*build((key, corpus[key]) for key in sorted(corpus)))


def divided(corpus: Corpus, parts: Sequence[int]) -> tuple[list[Segment], TextTail]:
    """The documents in order of their keys, each into the part named for it; part 0 is the tail."""
    shares: dict[int, Corpus] = {}
    for place, key in enumerate(sorted(corpus)):
        shares.setdefault(parts[place % len(parts)], {})[key] = corpus[key]
    tail = TextTail()
    for key in shares.pop(0, {}):
        tail.add(key, corpus[key])
    return [segment_of(share) for _, share in sorted(shares.items())], tail


def answer(found: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]) -> Answer:
    keys, scores = found
    assert keys.dtype == np.int64
    assert scores.dtype == np.float64
    return list(zip(keys.tolist(), scores.tolist(), strict=True))


def keys_of(keys: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.array(sorted(keys), dtype=np.int64)


divisions = st.lists(st.integers(0, 3), min_size=1, max_size=10)


@given(corpora, queries, divisions, st.integers(0, 12))
def test_a_search_is_bm25_to_the_bit_however_the_documents_are_divided(
    corpus: Corpus, query: dict[str, float], parts: list[int], limit: int
) -> None:
    index = TextIndex(*divided(corpus, parts))
    assert index.documents == len(corpus)
    assert index.total_length == sum(map(len, corpus.values()))
    assert answer(index.search(query, limit)) == ranked(naive_scores(corpus, query), limit)


@given(corpora, queries, divisions, st.floats(0.0, 3.0), st.floats(0.0, 1.0))
def test_other_parameters_of_bm25_are_honoured(
    corpus: Corpus, query: dict[str, float], parts: list[int], k1: float, b: float
) -> None:
    index = TextIndex(*divided(corpus, parts))
    assert answer(index.search(query, 50, k1=k1, b=b)) == ranked(naive_scores(corpus, query, k1, b), 50)
    assert answer(index.search(query, 50)) == ranked(naive_scores(corpus, query), 50)


@given(corpora, queries, divisions, st.sets(st.integers(-5, 70)), st.integers(1, 8))
def test_among_finds_exactly_the_best_of_the_subset_with_the_scores_of_the_whole(
    corpus: Corpus, query: dict[str, float], parts: list[int], subset: set[int], limit: int
) -> None:
    index = TextIndex(*divided(corpus, parts))
    scores = {key: score for key, score in naive_scores(corpus, query).items() if key in subset}
    assert answer(index.search(query, limit, keys_of(subset))) == ranked(scores, limit)


@given(corpora, queries, divisions, st.lists(st.integers(-5, 70), max_size=20))
def test_score_gives_each_key_the_score_that_a_search_gives_it(
    corpus: Corpus, query: dict[str, float], parts: list[int], keys: list[int]
) -> None:
    scores = naive_scores(corpus, query)
    found = TextIndex(*divided(corpus, parts)).score(query, np.array(keys, dtype=np.int64))
    assert found.tolist() == [scores.get(key, 0.0) for key in keys]


@given(corpora, queries, divisions, st.sets(st.integers(0, 60)))
def test_after_forgetting_and_merging_the_index_is_that_of_the_documents_that_remain(
    corpus: Corpus, query: dict[str, float], parts: list[int], gone: set[int]
) -> None:
    segments, tail = divided(corpus, parts)
    segments = [Segment(*without(segment, gone)) for segment in segments]
    held = set(tail.keys())
    for key in gone:
        assert tail.remove(key) == (key in held)
    remaining = {key: terms for key, terms in corpus.items() if key not in gone}
    expected = ranked(naive_scores(remaining, query), 50)
    assert answer(TextIndex(segments, tail).search(query, 50)) == expected
    assert answer(TextIndex([Segment(*merge(segments))], tail).search(query, 50)) == expected


@given(corpora, divisions, st.sampled_from([1, 7, 1 << 20]))
def test_merging_gives_the_very_segment_that_building_would(corpus: Corpus, parts: list[int], at_once: int) -> None:
    segments, _ = divided(corpus, [part + 1 for part in parts])
    merged = merge(segments, postings_at_once=at_once)
    assert_same_segment(merged, build((key, corpus[key]) for key in sorted(corpus)))


@given(corpora, st.sets(st.integers(0, 60)))
def test_forgetting_leaves_the_very_segment_that_never_held_the_documents(corpus: Corpus, gone: set[int]) -> None:
    rest = {key: terms for key, terms in corpus.items() if key not in gone}
    assert_same_segment(without(segment_of(corpus), gone), build((key, rest[key]) for key in sorted(rest)))


def assert_same_segment(found: Built, expected: Built) -> None:
    assert found[0] == expected[0]
    assert found[1].keys() == expected[1].keys()
    for name, array in expected[1].items():
        assert found[1][name].dtype == array.dtype, name
        assert found[1][name].tolist() == array.tolist(), name


# --- A corpus that is large enough for every way of reading ------------------------------------------------


@pytest.fixture(scope="module")
def large() -> Corpus:
    """Documents of a Zipfian vocabulary, with gaps between the keys."""
    rng = np.random.default_rng(7)
    weights = 1.0 / (np.arange(500) + 2.0)
    words = [f"z{rank}" for rank in range(500)]
    corpus: Corpus = {}
    for key in range(2_600):
        if key < 1_300 or key % 7:
            ranks = rng.choice(500, size=int(rng.integers(1, 25)), p=weights / weights.sum())
            corpus[key] = [words[rank] for rank in ranks.tolist()]
    return corpus


@pytest.fixture(scope="module")
def large_queries() -> list[dict[str, float]]:
    rng = np.random.default_rng(8)
    queries = []
    for _ in range(14):
        spread = np.exp(rng.uniform(0.0, math.log(500.0), int(rng.integers(1, 9)))).astype(int) - 1
        queries.append({f"z{rank}": float(rng.choice([0.1, 1.0, 2.0])) for rank in spread.tolist()})
    return queries


@pytest.fixture(scope="module")
def large_scores(large: Corpus, large_queries: list[dict[str, float]]) -> list[dict[str, dict[int, float]]]:
    return [naive_contributions(large, query) for query in large_queries]


DIVISIONS = ([1], [0], [1, 2, 3], [1] * 900 + [2] * 800 + [0] * 1_000, [0, 1, 1, 2])


@pytest.mark.parametrize("batch", [1, 200, 100_000])
@pytest.mark.parametrize("dense_share", [0, 4, 1_000_000])
def test_every_way_of_reading_gives_full_bm25(
    large: Corpus,
    large_queries: list[dict[str, float]],
    large_scores: list[dict[str, dict[int, float]]],
    batch: int,
    dense_share: int,
) -> None:
    limits = TextLimits(batch_postings=batch, dense_share=dense_share)
    indexes = [TextIndex(*divided(large, parts), limits=limits) for parts in DIVISIONS]
    for query, contributions in zip(large_queries, large_scores, strict=True):
        scores = summed(contributions.values())
        for limit in (1, 20, 5_000):
            expected = ranked(scores, limit)
            assert all(answer(index.search(query, limit)) == expected for index in indexes)


def room_for_bitmaps(lists: int, documents: int) -> TextLimits:
    """Limits under which a few documents make a list common, and this many lists of all documents fit."""
    return TextLimits(common_share=1_000, fewest_bitmaps=1, bitmap_bytes=lists * 12 * (documents // 64 + 3))


@pytest.mark.parametrize("lists", [2, 1_000])
def test_bitmaps_of_common_lists_change_no_score(
    large: Corpus,
    large_queries: list[dict[str, float]],
    large_scores: list[dict[str, dict[int, float]]],
    lists: int,
) -> None:
    limits = room_for_bitmaps(lists, len(large))
    indexes = [TextIndex(*divided(large, parts), limits=limits) for parts in DIVISIONS]
    for _ in range(3):  # a list gets a bitmap in the second query that uses it, while there is room
        for query, contributions in zip(large_queries, large_scores, strict=True):
            scores = summed(contributions.values())
            keys = keys_of(list(large)[::40])
            for index in indexes:
                assert answer(index.search(query, 20)) == ranked(scores, 20)
                assert index.score(query, keys).tolist() == [scores.get(key, 0.0) for key in keys.tolist()]
    assert any(segment.bitmaps for segment in indexes[0].segments)
    assert not any(segment.bitmaps for segment in indexes[1].segments), "the tail has no bitmaps"


def test_a_plan_outlives_the_bitmaps_of_its_lists(large: Corpus) -> None:
    index = TextIndex(*divided(large, (1, 0)), limits=room_for_bitmaps(2, len(large)))
    common = [term for term, _ in Counter(term for terms in large.values() for term in set(terms)).most_common(12)]
    first, second = (dict.fromkeys(half, 1.0) for half in (common[:2], common[2:]))
    keys = keys_of(large)
    for _ in range(2):
        index.score(first, keys)
    expected = index.contributions(first, keys)[0].tolist()
    for _ in range(4):  # there is no room for all of these, so the bitmaps are dropped
        index.score(second, keys)
    assert index.contributions(first, keys)[0].tolist() == expected


@pytest.mark.parametrize("size", [1, 30, 1_200, 2_000])
def test_among_is_exact_for_small_and_large_subsets_and_beyond_the_budget(
    large: Corpus,
    large_queries: list[dict[str, float]],
    large_scores: list[dict[str, dict[int, float]]],
    size: int,
) -> None:
    subset = set(np.random.default_rng(size).choice(sorted(large), size, replace=False).tolist())
    limits = TextLimits(postings_budget=5, exact_documents=0)
    indexes = [TextIndex(*divided(large, parts), limits=limits) for parts in DIVISIONS]
    for query, contributions in zip(large_queries, large_scores, strict=True):
        scores = summed(contributions.values())
        expected = ranked({key: score for key, score in scores.items() if key in subset}, 20)
        for index in indexes:
            assert answer(index.search(query, 20, keys_of(subset))) == expected


def by_the_budget(
    contributions: Mapping[str, Mapping[int, float]], budget: int, shortlist: int, limit: int
) -> Answer:
    """The answer of the documented rule."""
    scores = summed(contributions.values())
    if sum(map(len, contributions.values())) <= budget:
        return ranked(scores, limit)
    read: list[Mapping[int, float]] = []
    for of_term in contributions.values():
        newest = sorted(of_term)[-budget:]
        read.append({key: of_term[key] for key in newest})
        budget -= len(newest)
        if not budget:
            break
    listed = sorted(summed(read).items(), key=lambda entry: (-entry[1], -entry[0]))[: max(shortlist, limit)]
    return ranked({key: scores[key] for key, _ in listed}, limit)


@pytest.mark.parametrize("shortlist", [1, 40, 5_000])
@pytest.mark.parametrize("budget", [1, 50, 700])
def test_beyond_the_budget_the_answer_follows_the_rule_and_not_the_division(
    large: Corpus,
    large_queries: list[dict[str, float]],
    large_scores: list[dict[str, dict[int, float]]],
    budget: int,
    shortlist: int,
) -> None:
    limits = TextLimits(postings_budget=budget, exact_documents=100, shortlist=shortlist)
    indexes = [TextIndex(*divided(large, parts), limits=limits) for parts in DIVISIONS]
    shortened = 0
    for query, contributions in zip(large_queries, large_scores, strict=True):
        found = answer(indexes[0].search(query, 10))
        assert found == by_the_budget(contributions, budget, shortlist, 10)
        for index in indexes:
            assert answer(index.search(query, 10)) == found
        shortened += found != ranked(summed(contributions.values()), 10)
    if budget < 700:
        assert shortened


def test_a_silent_term_is_told_of_and_finds_nothing_beside_others() -> None:
    index = TextIndex(*divided({1: ["ochre", "mark"], 2: ["mark"], 3: ["ochre"]}, (1, 0)))
    keys, scores = index.search({"ochre": 1.0, "mark": SILENT}, 10)
    assert keys.tolist() == [3, 1]
    assert scores.tolist() == index.search({"ochre": 1.0}, 10)[1].tolist()
    table, _, frequencies = index.contributions({"ochre": 1.0, "mark": SILENT}, np.array([1, 2, 3]))
    assert (table > 0.0).tolist() == [[True, False, True], [True, True, False]]
    assert frequencies.tolist() == [2, 2]
    assert index.search({"mark": SILENT}, 10)[0].tolist() == [2, 1]
    among = np.array([1, 2])
    assert index.search({"ochre": 1.0, "mark": SILENT}, 10, among=among)[0].tolist() == [1]


def test_a_budget_that_ends_with_a_term_is_spent_on_whole_terms() -> None:
    corpus = {key: ["common"] * (1 + key % 3) for key in range(40)}
    corpus.update({key: ["rare", *["long"] * 60] for key in (3, 9, 12, 30)})
    query = {"rare": 1.0, "common": 1.0}
    for parts in ([1], [0, 1, 2]):
        index = TextIndex(*divided(corpus, parts), limits=TextLimits(postings_budget=4, exact_documents=0))
        assert sorted(index.search(query, 10)[0].tolist()) == [3, 9, 12, 30]


def test_up_to_the_exact_number_of_documents_the_budget_does_not_count(
    large: Corpus,
    large_queries: list[dict[str, float]],
    large_scores: list[dict[str, dict[int, float]]],
) -> None:
    limits = TextLimits(postings_budget=1, exact_documents=len(large))
    index = TextIndex(*divided(large, [1, 2]), limits=limits)
    for query, contributions in zip(large_queries, large_scores, strict=True):
        assert answer(index.search(query, 10)) == ranked(summed(contributions.values()), 10)


# --- Edges -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segments", [[], [segment_of({})], [segment_of({1: []}), segment_of({})]])
def test_an_index_without_terms_finds_nothing(segments: list[Segment]) -> None:
    index = TextIndex(segments)
    assert answer(index.search({"anything": 1.0}, 10)) == []
    assert answer(index.search({"anything": 1.0}, 10, keys_of([1, 2]))) == []
    assert index.score({"anything": 1.0}, keys_of([1, 2])).tolist() == [0.0, 0.0]
    assert index.frequencies(["anything"])[0] == 0
    assert index.total_length == 0


def test_no_terms_or_only_unknown_ones_find_nothing() -> None:
    index = TextIndex([segment_of({1: ["a"], 2: ["b"]})])
    assert answer(index.search({}, 10)) == []
    assert answer(index.search({"c": 1.0}, 10)) == []
    assert answer(index.search({"a": 1.0}, 0)) == []
    assert answer(index.search({"a": 1.0}, 10, keys_of([]))) == []
    assert index.score({}, keys_of([2, 1])).tolist() == [0.0, 0.0]


def test_equal_scores_are_ordered_by_key() -> None:
    corpus = {key: ["same", "words"] for key in range(200)}
    index = TextIndex(*divided(corpus, [3, 0, 2, 1]))
    keys, scores = index.search({"same": 1.0}, 7)
    assert keys.tolist() == list(range(7))
    assert len(set(scores.tolist())) == 1


def test_a_repeated_term_counts_as_often_as_it_stands_there() -> None:
    corpus = {1: ["a", "b", "c"], 2: ["a", "a", "c"], 3: ["d"]}
    index = TextIndex([segment_of(corpus)])
    assert index.frequencies(["a"])[0] == 2
    assert answer(index.search({"a": 1.0}, 2)) == ranked(naive_scores(corpus, {"a": 1.0}), 2)
    assert index.search({"a": 1.0}, 1)[0].tolist() == [2]


@pytest.mark.parametrize("parts", [[0], [1]])
def test_one_huge_document_counts_a_term_at_most_65535_times(parts: list[int]) -> None:
    corpus = {1: ["a"] * 70_000 + ["b"], 2: ["a", "b"], 3: ["b"]}
    index = TextIndex(*divided(corpus, parts))
    query = {"a": 1.0, "b": 0.5}
    assert answer(index.search(query, 3)) == ranked(naive_scores(corpus, query), 3)
    assert index.total_length == 70_004


def test_more_kinds_of_postings_than_sixteen_bits_can_name(tmp_path: Path) -> None:
    corpus = {1: ["a", "b"], 2: ["a", "c", "c"], 3: ["c"]}
    segments = []
    for number, key in enumerate(corpus):
        header, arrays = build([(key, corpus[key])])
        extra = np.arange(40_000, dtype=np.uint32) + 1_000_000 * (number + 1)
        arrays["pair_lengths"] = np.append(arrays["pair_lengths"], extra)
        arrays["pair_frequencies"] = np.append(arrays["pair_frequencies"], np.ones(40_000, dtype=np.uint16))
        segments.append(Segment(header, arrays))
    merged = merge(segments)
    assert merged[1]["codes"].dtype == np.uint32
    index = TextIndex([Segment(*merged)])
    assert answer(index.search({"a": 1.0, "c": 1.0}, 3)) == ranked(naive_scores(corpus, {"a": 1.0, "c": 1.0}), 3)
    assert_same_segment(without(Segment(*merged), [2]), build([(1, corpus[1]), (3, corpus[3])]))


def test_a_segment_comes_back_from_its_file_and_names_no_term(tmp_path: Path, large: Corpus) -> None:
    path = tmp_path / "text.seg"
    corpus = {**large, 10_000: ["unmistakable", "z1"]}
    write_segment(path, *build((key, corpus[key]) for key in sorted(corpus)))
    index = TextIndex([open_segment(path)])
    query = {"unmistakable": 1.0, "z1": 1.0, "z30": 1.0}
    assert answer(index.search(query, 30)) == ranked(naive_scores(corpus, query), 30)
    assert b"unmistakable" not in path.read_bytes()
    assert term_hash("unmistakable").to_bytes(8, "little") in path.read_bytes()
    write_segment(path, *without(open_segment(path), {10_000}))
    assert term_hash("unmistakable").to_bytes(8, "little") not in path.read_bytes()


def test_hashes_of_terms_never_change() -> None:
    assert term_hash("loom") == 1253711516953209908
    assert term_hash("记忆") == 6906188532990332125


def test_a_search_that_fails_in_damage_leaves_nothing_behind() -> None:
    limits = TextLimits(batch_postings=1)
    corpus = {1: ["a", "b"], 2: ["a"]}
    header, arrays = build(corpus.items())
    common = int(np.flatnonzero(arrays["hashes"] == np.uint64(term_hash("a")))[0])
    first, last = arrays["starts"][common : common + 2].tolist()
    query = {"a": 1.0, "b": 1.0}
    for name, far in (("documents", 1 << 20), ("codes", 99)):
        damaged = arrays[name].copy()
        damaged[first:last] += far
        index = TextIndex([Segment(header, {**arrays, name: damaged})], limits=limits)
        with pytest.raises(DamagedSegment):
            index.search(query, 5)
        healthy = TextIndex([segment_of(corpus)], limits=limits)
        assert answer(healthy.search(query, 5)) == ranked(naive_scores(corpus, query), 5)
    with pytest.raises(DamagedSegment):
        index.score(query, keys_of([1, 2]))


@pytest.mark.parametrize(
    ("header", "arrays"),
    [
        ({"kind": "vectors"}, {}),
        ({"format": 1}, {}),
        ({"count": 3}, {}),
        ({"first_key": "1"}, {}),
        ({"last_key": 10**30}, {}),
        ({"total_length": None}, {}),
        ({}, {"lengths": np.zeros(1, dtype=np.uint32)}),
        ({}, {"doc_values": np.zeros((1, 6), dtype=np.int64)}),
        ({}, {"doc_values": np.zeros((2, 5), dtype=np.int64)}),
        ({}, {"doc_values": np.zeros(2, dtype=np.int64)}),
        ({}, {"starts": np.zeros(1, dtype=np.uint32)}),
        ({}, {"codes": np.zeros(1, dtype=np.uint16)}),
        ({}, {"pair_lengths": np.zeros(7, dtype=np.uint32)}),
    ],
)
def test_a_segment_that_does_not_add_up_is_refused(
    header: dict[str, object], arrays: dict[str, npt.NDArray[np.generic]]
) -> None:
    good_header, good_arrays = build([(1, ["a", "b"]), (2, ["a"])])
    segment = Segment({**good_header, **header}, {**good_arrays, **arrays})
    with pytest.raises(DamagedSegment):
        TextIndex([segment])
    with pytest.raises(DamagedSegment):
        merge([segment])
    with pytest.raises(DamagedSegment):
        TextIndex([Segment(good_header, {"keys": good_arrays["keys"]})])


def test_keys_out_of_order_or_in_two_segments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="ascending"):
        build([(2, ["a"]), (1, ["b"])])
    with pytest.raises(InvalidInput, match="ascending"):
        build([(1, ["a"]), (1, ["b"])])
    with pytest.raises(InvalidInput, match="share"):
        merge([segment_of({1: ["a"], 2: ["b"]}), segment_of({2: ["b"], 3: ["c"]})])


def test_keys_to_search_among_must_be_in_order() -> None:
    index = TextIndex([segment_of({1: ["a"], 2: ["a"]})])
    for among in ([2, 1], [1, 1]):
        with pytest.raises(InvalidInput, match="ascending"):
            index.search({"a": 1.0}, 5, np.array(among, dtype=np.int64))


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="budget"):
        TextIndex([], limits=TextLimits(postings_budget=0))


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf, 1e-9])
def test_a_weight_that_cannot_be_scored_is_refused(weight: float) -> None:
    with pytest.raises(InvalidInput, match="weight"):
        TextIndex([segment_of({1: ["a"]})]).search({"a": weight}, 1)


@pytest.mark.parametrize(("k1", "b", "limit"), [(-0.1, 0.5, 1), (1.2, 1.1, 1), (math.nan, 0.5, 1), (1.2, 0.5, -1)])
def test_parameters_out_of_range_are_refused(k1: float, b: float, limit: int) -> None:
    with pytest.raises(InvalidInput):
        TextIndex([segment_of({1: ["a"]})]).search({"a": 1.0}, limit, k1=k1, b=b)


# --- The tail ----------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 12), st.none() | st.lists(st.sampled_from(WORDS), max_size=5)), max_size=40),
    queries,
)
def test_a_tail_follows_any_order_of_adding_and_removing(
    steps: list[tuple[int, list[str] | None]], query: dict[str, float]
) -> None:
    tail = TextTail(trim_from=2)
    index = TextIndex([], tail)
    corpus: Corpus = {}
    for key, terms in steps:
        if terms is None:
            assert tail.remove(key) == (key in corpus)
            corpus.pop(key, None)
        else:
            tail.add(key, terms)
            corpus.setdefault(key, terms)
        assert sorted(tail.keys()) == sorted(corpus)
        assert index.documents == len(tail) == len(corpus)
        assert index.total_length == tail.total_length == sum(map(len, corpus.values()))
    scores = naive_scores(corpus, query)
    assert answer(index.search(query, 50)) == ranked(scores, 50)
    assert index.score(query, keys_of(range(13))).tolist() == [scores.get(key, 0.0) for key in range(13)]
    for term in WORDS:
        assert index.frequencies([term])[0] == sum(term in terms for terms in corpus.values())


def test_a_key_that_was_removed_and_given_again_is_the_new_document() -> None:
    tail = TextTail()
    for key in (0, 1, 2):
        tail.add(key, ["old"])
    tail.remove(1)
    tail.remove(2)
    tail.add(2, ["new", "words"])
    tail.add(4, ["new"])
    corpus = {0: ["old"], 2: ["new", "words"], 4: ["new"]}
    index = TextIndex([], tail)
    for term in ("old", "new"):
        scores = naive_scores(corpus, {term: 1.0})
        assert index.score({term: 1.0}, keys_of(range(5))).tolist() == [scores.get(key, 0.0) for key in range(5)]
        assert answer(index.search({term: 1.0}, 5, keys_of(range(5)))) == ranked(scores, 5)


def test_a_tail_that_has_passed_everything_on_holds_nothing() -> None:
    tail = TextTail()
    for key in range(5_000):
        tail.add(key, [f"w{key % 7}", f"only{key}"])
    for key in range(5_000):
        tail.remove(key)
    hashes = [term_hash(f"w{number}") for number in range(7)] + [term_hash(f"only{key}") for key in range(5_000)]
    view = tail.view(hashes)
    assert len(tail) == tail.total_length == view.count == len(view.documents) == 0
    assert not any(tail.frequencies(hashes))


def test_one_thread_may_search_while_another_writes() -> None:
    tail = TextTail()
    index = TextIndex([segment_of({key: ["a", "b"] for key in range(50)})], tail)
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for key in range(50, 1_500):
                tail.add(key, ["a", f"w{key % 5}"])
                if key % 3 == 0:
                    tail.remove(key - 1)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        keys, scores = index.search({"a": 1.0, "w1": 1.0}, 2_000)
        assert len(set(keys.tolist())) == len(keys) >= 50
        assert (np.diff(scores) <= 0.0).all()
    writer.join()
    assert not failures
    corpus: Corpus = {key: ["a", "b"] for key in range(50)}
    corpus.update({key: ["a", f"w{key % 5}"] for key in range(50, 1_500) if (key + 1) % 3 or key in (49, 1_499)})
    query = {"a": 1.0, "w1": 1.0}
    assert answer(index.search(query, 9)) == ranked(naive_scores(corpus, query), 9)


@pytest.mark.parametrize("shift", [0, 1, 3, 40])
def test_hashes_are_found_even_if_they_are_spread_unevenly(shift: int) -> None:
    hashes = sorted(term_hash(f"z{rank}") >> shift for rank in range(500))
    held = np.array(hashes, dtype=np.uint64)
    assert [find_hash(held, one) for one in hashes] == list(range(500))
    for unknown in ("unknown", "another", "third"):
        assert find_hash(held, term_hash(unknown) >> shift) is None
    for missing in (0, hashes[0] - 1, hashes[250] + 1, 2**64 - 1):
        assert find_hash(held, missing) is None
    assert find_hash(held[:0], hashes[0]) is None


def test_the_first_lookups_of_terms_find_what_later_ones_find(large: Corpus) -> None:
    names = [f"z{rank}" for rank in range(120)] + ["unknown", "another"]
    expected = [sum(name in terms for terms in large.values()) for name in names]
    segment = segment_of(large)
    assert [TextIndex([segment]).frequencies([name])[0] for name in names] == expected
    index = TextIndex([segment])
    assert [index.frequencies([name])[0] for name in names] == expected


def test_contributions_add_up_to_the_scores_wherever_documents_lie() -> None:
    corpus = [(key, [f"w{key % 3}", f"w{key % 5}", "all", *(["often"] * (key % 4))]) for key in range(1, 60)]
    segments = [Segment(*build(corpus[:20])), Segment(*build(corpus[20:41]))]
    tail = TextTail()
    for key, words in corpus[41:]:
        tail.add(key, words)
    index = TextIndex(segments, tail)
    query = {"w1": 1.0, "often": 0.5, "nowhere": 1.0, "all": 2.0}
    keys = keys_of([1, 7, 20, 21, 41, 42, 58, 99])
    table, weights, frequencies = index.contributions(query, keys)
    assert table.shape == (len(query), len(keys))
    assert table.sum(axis=0) == pytest.approx(index.score(query, keys))
    assert not table[2].any()
    assert frequencies.tolist() == index.frequencies(list(query))
    assert frequencies[2] == 0
    assert weights[2] > weights[0] > 0.0  # the rarer a term, the more it weighs


def test_what_has_left_the_tail_for_a_segment_is_still_scored_term_by_term() -> None:
    tail = TextTail()
    for key in range(1, 21):
        tail.add(key, ["all", f"only{key}"])
    segment = segment_of({key: ["all", f"only{key}"] for key in range(1, 11)})
    for key in range(1, 11):
        tail.remove(key)
    index = TextIndex([segment], tail)
    keys = np.arange(1, 21)
    for key in (5, 15):
        query = {f"only{key}": 1.0, "all": 1.0}
        table, _, frequencies = index.contributions(query, keys)
        assert (table[0] > 0).nonzero()[0].tolist() == [key - 1]
        assert (table[1] > 0).all()
        assert frequencies.tolist() == [1, 20]


def test_a_small_segment_reserves_no_more_for_bitmaps_than_its_lists_need() -> None:
    bitmaps = PostingBitmaps(3, 32 * 1024 * 1024, lists=20, postings=40, common_share=64, fewest=8)
    documents = np.array([0, 1, 2], dtype=np.uint32)
    assert bitmaps.slot(documents, 0, 3, query=1) == -1  # the first query that uses it
    assert bitmaps.slot(documents, 0, 3, query=2) == 0
    bits, before = bitmaps.arrays
    assert bits is not None
    assert before is not None
    assert bits.nbytes + before.nbytes <= 20 * 12
