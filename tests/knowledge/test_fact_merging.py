"""Merging facts without losing one, and the gate that decides whether a merged text is faithful."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import InvalidInput, WrongDimension
from loom.knowledge.fact_merging import Compression, L4Compressor
from loom.knowledge.fidelity import KEYWORD_THRESHOLD, FidelityChecker, FidelityResult, keywords
from loom.text.duplicates import may_merge
from loom.text.words import terms
from loom.types import Fact, FactType

START = datetime(2026, 1, 1, tzinfo=UTC)
HERE = [1.0, 0.0, 0.0]
THERE = [0.0, 1.0, 0.0]


def fact(content: str, embedding: Sequence[float] | None = HERE, at: int = 0, **more: object) -> Fact:
    created_at = START + timedelta(hours=at)
    return Fact(content, embedding=embedding, created_at=created_at, **{"id": f"{content}@{at}", **more})  # type: ignore[arg-type]


def others(count: int, importance: float = 0.1) -> list[Fact]:
    """Facts that are not merged: each has a number of its own."""
    return [fact(f"room {number} is empty", THERE, importance=importance) for number in range(count)]


def ids(facts: Iterable[Fact]) -> list[str]:
    return sorted(one.id for one in facts)


DARK_MODE = [
    fact("The user prefers dark mode.", at=1, tags=["ui"], sources=["m1"], importance=0.4, confidence=0.6),
    fact(
        "Dark mode is preferred in the editor.", at=2, tags=["editor"], sources=["m2"], importance=0.9, confidence=0.9
    ),
    fact("The user likes a dark theme at night.", at=3, tags=["ui"], sources=["m1", "m3"], importance=0.5),
]


# --- keywords ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("We study Machine Learning here", {"Machine Learning", "Machine", "Learning"}),
        ("The team uses Python and Redis", {"Python", "Redis"}),
        ("call memory_manager first", {"memory_manager"}),
        ("see loom.memory.core for that", {"loom.memory.core"}),
        ("set API_KEY and HTTP_TIMEOUT", {"API_KEY", "HTTP_TIMEOUT"}),
        ("向量检索的召回率", {"向量检索", "召回率"}),
        ("使用向量检索提高召回率", {"向量检索", "召回率"}),
        ("使用Redis缓存", {"Redis", "缓存"}),
        ("我们在存在的目的上", {"存在", "目的上"}),
        ("nothing to see, e.g. here, I think", set()),
        ("", set()),
    ],
)
def test_keywords_are_those_of_the_design(text: str, found: set[str]) -> None:
    assert set(keywords(text)) == found


@pytest.mark.parametrize(
    "hostile", ["A", "A ", "a.", "a_", "Aa ", "向", "的", "a.b ", "\ud800", "_", "是非", "。", "Aa.Bb "]
)
def test_keywords_of_a_hostile_text_take_one_pass(hostile: str) -> None:
    text = hostile * (200_000 // len(hostile))
    checked = FidelityChecker().check(text, [text])
    assert checked.keyword_retention == 1.0
    assert FidelityChecker().check("nothing", [text]).keyword_retention in (0.0, 1.0)


# --- fidelity ------------------------------------------------------------------------------------------------


def test_the_score_is_six_tenths_of_the_mean_cosine_and_four_tenths_of_the_kept_keywords() -> None:
    found = FidelityChecker().check(
        "Redis", ["Redis 向量检索", "Python", "Rust"], [2.0, 0, 0], [[1.0, 0, 0], [0, 3.0, 0]]
    )
    assert found.embedding_similarity == 0.5
    assert found.keyword_retention == 0.25
    assert found.score == pytest.approx(0.6 * 0.5 + 0.4 * 0.25)
    assert not found.passed
    assert found.lost_keywords == ("向量检索", "Python", "Rust")
    assert found.method == "composite"


def test_exactly_the_threshold_is_enough() -> None:
    similar, other = [1.0, 0.0], [0.0, 1.0]
    assert FidelityChecker(0.4).check("Redis", ["Redis"], similar, [other]).passed
    assert not FidelityChecker(0.41).check("Redis", ["Redis"], similar, [other]).passed


def test_a_merged_fact_carries_the_keys_of_the_design() -> None:
    kept = FidelityResult(0.85, 0.92, 0.75, True, "composite", ("Redis", "缓存")).as_metadata()
    assert kept == {
        "fidelity_embedding_similarity": 0.92,
        "fidelity_keyword_retention": 0.75,
        "fidelity_composite_score": 0.85,
        "fidelity_passed": True,
        "fidelity_lost_keywords": ["Redis", "缓存"],
    }


def test_a_keyword_is_kept_whatever_its_case_but_not_as_a_part_of_another_word() -> None:
    def retention(merged: str, original: str) -> float:
        return FidelityChecker().check(merged, [original]).keyword_retention

    assert retention("we run redis", "Redis") == 1.0
    assert retention("we rediscover it", "Redis") == 0.0
    assert retention("提高向量检索质量", "向量检索") == 1.0
    assert retention("向量，检索", "向量检索") == 0.0
    assert retention("no keyword", "nothing capitalised") == 1.0
    long = "甲乙丙丁戊己庚辛壬癸子丑"
    assert retention(f"前{long}后", long) == 1.0
    assert retention(long[:-1], long) == 0.0


CLUSTERS = [
    [
        "Ana set up Redis for sessions",
        "Sessions live in Redis with a TTL",
        "Redis holds sessions; Sentinel watches it",
    ],
    ["Deploys go through Jenkins", "Jenkins builds run in Docker", "Docker images come from Harbor"],
    ["The parser is in loom.parser", "loom.parser calls read_tokens", "read_tokens honours MAX_DEPTH"],
    ["Ben studies Machine Learning in Leeds", "Leeds has a course on Robotics", "Ben takes Robotics with Dr Moss"],
    ["向量检索的召回率", "召回率和延迟", "延迟与内存占用"],
    ["数据库使用主从复制", "主从复制的延迟报警", "延迟报警发送到值班群"],
    ["用户喜欢深色主题", "深色主题在编辑器里", "编辑器和终端的字体"],
]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster[0])
def test_without_vectors_a_text_that_drops_members_fails_and_one_that_uses_all_passes(cluster: list[str]) -> None:
    checker = FidelityChecker()
    whole = checker.check("。".join(cluster), cluster)
    assert whole.method == "keywords"
    assert whole.embedding_similarity is None
    assert whole.passed
    assert whole.score == whole.keyword_retention == 1.0
    for one in cluster:
        found = checker.check(one, cluster)
        assert found.keyword_retention < KEYWORD_THRESHOLD
        assert not found.passed
        assert found.lost_keywords


def test_vectors_that_say_nothing_count_as_none() -> None:
    checker = FidelityChecker()
    for merged, originals in ([[0.0, 0.0], [[1.0, 0.0]]], [[1.0, 0.0], [None]], [None, [[1.0, 0.0]]], [[1.0], []]):
        assert checker.check("Redis", ["Redis"], merged, originals).method == "keywords"  # type: ignore[arg-type]
    found = checker.check("Redis", ["Redis", "x"], [1e300, 0.0], [[1e-300, 0.0], [float("nan"), 1.0]])
    assert found.embedding_similarity == 1.0


def test_a_check_that_makes_no_sense_is_refused() -> None:
    checker = FidelityChecker()
    with pytest.raises(WrongDimension):
        checker.check("a", ["a"], [1.0, 0.0], [[1.0, 0.0, 0.0]])
    with pytest.raises(InvalidInput, match="list of texts"):
        checker.check("a", "a")
    with pytest.raises(InvalidInput, match="flat"):
        checker.check("a", ["a"], [[1.0]], [[1.0]])
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        FidelityChecker(threshold=1.5)


# --- when and whom ------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_design() -> None:
    compressor = L4Compressor()
    assert (compressor.threshold, compressor.similarity_threshold) == (150, 0.75)
    assert (compressor.min_cluster_size, compressor.fidelity_threshold) == (3, 0.5)


def test_up_to_the_threshold_nothing_happens() -> None:
    facts = [*DARK_MODE, *others(2)]
    assert L4Compressor(threshold=5).plan(facts) == Compression(tuple(facts))
    assert L4Compressor(threshold=5).compress(facts) == facts
    assert not L4Compressor(threshold=5).should_compress(facts)
    assert L4Compressor(threshold=4).plan(facts).merged


def test_three_facts_that_agree_become_one_with_everything_of_each() -> None:
    plan = L4Compressor(threshold=4).plan([*DARK_MODE, *others(2)])
    (merge,) = plan.merged
    assert merge.members == tuple(DARK_MODE)
    assert merge.content == merge.fact.content
    assert merge.content.startswith("The user likes a dark theme at night.")  # the newest first
    for member in DARK_MODE:
        assert member.content in merge.content
    merged = merge.fact
    assert merged.tags == ["ui", "editor"]
    assert merged.sources == ["m1", "m2", "m3"]
    assert merged.importance == 0.9
    assert merged.confidence == pytest.approx((0.6 + 0.9 + 0.8) / 3)
    assert merged.created_at == DARK_MODE[-1].created_at
    assert merged.embedding == pytest.approx(HERE)
    assert merged.metadata["merged_from"] == [member.id for member in DARK_MODE]
    assert merged.metadata["fidelity_passed"] is True
    assert merged.metadata["fidelity_composite_score"] == pytest.approx(1.0)
    assert ids(plan.kept) == ids(others(2))
    assert merged in L4Compressor(threshold=4).compress([*DARK_MODE, *others(2)])


def test_two_are_too_few() -> None:
    plan = L4Compressor(threshold=3).plan([*DARK_MODE[:2], *others(2)])
    assert not plan.merged
    assert L4Compressor(threshold=3, min_cluster_size=2).plan([*DARK_MODE[:2], *others(2)]).merged


def test_what_repeats_is_said_once_in_the_newest_words() -> None:
    facts = [
        fact("the user likes tea. He drinks it hot.", at=1),
        fact("The user likes tea!", at=2),
        fact("The user really likes tea with milk.", at=3),
        fact("THE USER LIKES TEA with milk if asked.", at=4, embedding=THERE),
    ]
    (merge,) = L4Compressor(threshold=3).plan(facts).merged
    assert merge.content == "The user really likes tea with milk. He drinks it hot."


def test_a_sentence_that_takes_something_back_does_not_stand_for_the_plain_one() -> None:
    facts = [fact("the tests pass", at=1), fact("the tests pass if mocked", at=2), fact("all checks are green", at=3)]
    (merge,) = L4Compressor(threshold=2).plan(facts).merged
    assert merge.content == "all checks are green; the tests pass if mocked; the tests pass"


def test_chinese_facts_are_joined_as_chinese() -> None:
    facts = [fact("用户喜欢深色主题", at=1), fact("用户偏好深色界面。", at=2), fact("用户想要深色的编辑器", at=3)]
    (merge,) = L4Compressor(threshold=2).plan(facts).merged
    assert merge.content == "用户想要深色的编辑器；用户偏好深色界面。用户喜欢深色主题"


@pytest.mark.parametrize(
    "contents",
    [
        ["rack 12 is hot", "rack 13 is hot", "rack 14 is hot"],
        ["Ana likes tea", "Ben likes tea", "Eve likes tea"],
        ["the cache is on", "the cache is not on", "no cache is on"],
        ["启用缓存", "不启用缓存", "禁用缓存"],
        ["upgrade to v1.2", "upgrade to v1.3", "upgrade to v1.4"],
    ],
)
def test_texts_that_differ_in_what_counts_are_never_joined(contents: list[str]) -> None:
    facts = [fact(content, at=at) for at, content in enumerate(contents)]
    plan = L4Compressor(threshold=2).plan(facts)
    assert not plan.merged
    assert ids([*plan.kept, *plan.left_out]) == ids(facts)


def test_agreeing_with_the_same_third_is_not_agreeing() -> None:
    contents = ["both ana and ben are fond of tea", "Ana is fond of tea", "Ben is fond of tea"]
    both, ana, ben = (fact(content, at=at) for at, content in enumerate(contents))
    assert may_merge(both.content, ana.content)
    assert may_merge(both.content, ben.content)
    assert not L4Compressor(threshold=2).plan([both, ana, ben]).merged
    pairing = L4Compressor(threshold=2, min_cluster_size=2)
    pairs = [pairing.plan(order).merged[0].members for order in itertools.permutations([both, ana, ben])]
    assert pairs == [(both, ana)] * 6


def test_facts_of_different_kinds_or_about_different_things_are_not_joined() -> None:
    for name, values in (
        ("fact_type", [*FactType]),
        ("metadata", [{"key": "a|b", "value": str(n)} for n in range(3)]),
    ):
        facts = [fact("the user likes tea", HERE, at, **{name: values[at]}) for at in range(3)]
        assert not L4Compressor(threshold=2).plan(facts).merged
    same = {"key": "user|drinks", "value": "tea"}
    facts = [fact("the user likes tea", at=at, metadata={**same, "seen": at}) for at in range(3)]
    (merge,) = L4Compressor(threshold=2).plan(facts).merged
    assert {"key", "value"} <= merge.fact.metadata.keys()
    assert "seen" not in merge.fact.metadata


def test_what_no_longer_holds_is_not_merged_with_what_does_and_leaves_first() -> None:
    facts = [fact("the user likes tea", at=at, importance=0.2) for at in range(3)]
    over = fact("the user likes tea", at=9, importance=1.0, superseded_at=START)
    plan = L4Compressor(threshold=1).plan([*facts, over])
    assert ids(plan.merged[0].members) == ids(facts)
    assert plan.left_out == (over,)


def test_a_chain_is_no_cluster() -> None:
    angles = [0.0, 0.6, 1.2, 1.8, 2.4]  # neighbours have a cosine of 0.83, the next but one 0.36
    facts = [fact("the user likes tea", [float(np.cos(a)), float(np.sin(a))], at) for at, a in enumerate(angles)]
    assert not L4Compressor(threshold=4).plan(facts).merged
    pairs = L4Compressor(threshold=4, min_cluster_size=2).plan(facts).merged
    assert [len(merge.members) for merge in pairs] == [2, 2]


def test_an_unfaithful_merge_is_given_up_and_its_members_stay() -> None:
    facts = [fact("the user likes tea", [1.0, 0.2 * at], at) for at in range(3)]
    strict = L4Compressor(threshold=2, fidelity_threshold=1.0).plan(facts)
    assert strict.unfaithful == 1
    assert not strict.merged
    assert ids([*strict.kept, *strict.left_out]) == ids(facts)


def test_one_text_stored_hundreds_of_times_becomes_one_fact_that_is_no_surer_for_it() -> None:
    facts = [fact("the moon is made of cheese", at=at, confidence=0.3, sources=[f"m{at}"]) for at in range(668)]
    (merge,) = L4Compressor().plan(facts).merged
    assert merge.content == "the moon is made of cheese"
    assert merge.fact.confidence == pytest.approx(0.3)
    assert len(merge.fact.sources) == len(merge.members) == 668


def test_a_merged_text_stays_of_a_size_that_a_prompt_can_hold() -> None:
    facts = [fact(f"the user likes {'a' * at} {'tea ' * 30}", at=at) for at in range(1, 60)]
    plan = L4Compressor(threshold=50).plan(facts)
    assert len(plan.merged) > 1
    assert all(len(merge.content) <= 2_000 for merge in plan.merged)
    giants = [fact("tea " * 1_000, at=at) for at in range(3)]
    assert not L4Compressor(threshold=2).plan(giants).merged


# --- who stays ------------------------------------------------------------------------------------------------


def test_without_embeddings_the_most_important_stay_and_the_rest_leave_the_tier() -> None:
    facts = [fact(f"fact {number}", None, importance=number / 10) for number in range(10)]
    plan = L4Compressor(threshold=4).plan(facts)
    assert [one.content for one in plan.kept] == ["fact 9", "fact 8", "fact 7", "fact 6"]
    assert ids(plan.left_out) == ids(facts[:6])
    assert not plan.merged


def test_facts_without_an_embedding_are_not_dropped_because_another_has_one() -> None:
    bare = [fact(f"fact {number}", None, importance=0.9) for number in range(9)]
    plan = L4Compressor(threshold=9).plan([*bare, fact("fact 10", importance=0.1)])
    assert ids(plan.kept) == ids(bare)
    for nothing in ([0.0, 0.0, 0.0], [float("nan"), 0.0, 1.0], []):
        odd = [fact(f"fact {number}", nothing, importance=0.9) for number in range(9)]
        assert ids(L4Compressor(threshold=9).plan([*odd, fact("fact 10", importance=0.1)]).kept) == ids(odd)


def test_where_merging_is_not_enough_importance_decides_about_merged_facts_too() -> None:
    plan = L4Compressor(threshold=2).plan([*DARK_MODE, *others(3, importance=0.5)])
    assert len(plan.merged) == 1
    assert len(plan.kept) == 1
    assert len(plan.left_out) == 2
    unimportant = L4Compressor(threshold=3).plan([*DARK_MODE, *others(3, importance=1.0)])
    assert not unimportant.merged
    assert ids(unimportant.left_out) == ids(DARK_MODE)


def test_an_unknown_importance_is_the_confidence() -> None:
    sure, unsure = fact("sure", None, confidence=0.9), fact("unsure", None, confidence=0.2)
    assert L4Compressor(threshold=1).plan([unsure, sure]).kept == (sure,)


def test_embeddings_may_be_given_beside_the_facts() -> None:
    facts = [fact("the user likes tea", None, at) for at in range(3)]
    assert not L4Compressor(threshold=2).plan(facts).merged
    assert L4Compressor(threshold=2).plan(facts, [HERE, HERE, HERE]).merged
    assert L4Compressor(threshold=2).plan(facts, np.ones((3, 4), np.float32)).merged
    assert not L4Compressor(threshold=2).plan(facts, [HERE, None, HERE]).merged


def test_requests_that_make_no_sense_are_refused() -> None:
    facts = [fact("a", at=1), fact("b", at=2)]
    with pytest.raises(InvalidInput, match="the same id"):
        L4Compressor(threshold=1).plan([facts[0], facts[0]])
    with pytest.raises(InvalidInput, match="one for each"):
        L4Compressor(threshold=1).plan(facts, [HERE])
    with pytest.raises(WrongDimension):
        L4Compressor(threshold=1).plan([fact("a", [1.0]), fact("b", [1.0, 2.0])])
    with pytest.raises(InvalidInput, match="threshold"):
        L4Compressor(threshold=0)
    with pytest.raises(InvalidInput, match="at least 2"):
        L4Compressor(min_cluster_size=1)
    with pytest.raises(InvalidInput, match="similarity_threshold"):
        L4Compressor(similarity_threshold=2)


# --- properties ----------------------------------------------------------------------------------------------

CONTENTS = """
the user likes tea;the user likes hot tea;The user likes tea, really.;Ana likes tea;ana likes tea;rack 12 is hot;
rack 13 is hot;rack twelve is hot;the rack is not hot;用户喜欢茶;用户喜欢热茶。;用户不喜欢茶;张伟喜欢茶;李娜喜欢茶;
十二月上线;12月上线;the user likes tea. He drinks it hot.;He drinks it hot;We use Redis;we use redis;见 a_b.c;!;
"""
contents = st.sampled_from([content.strip() for content in CONTENTS.split(";")])
vectors = st.one_of(
    st.none(),
    st.sampled_from([[1.0, 0.0], [0.9, 0.4], [0.7, 0.7], [0.4, 0.9], [0.0, 1.0], [0.0, 0.0], [-1.0, 0.1]]),
)


@st.composite
def many_facts(draw: st.DrawFn) -> list[Fact]:
    drawn = draw(
        st.lists(st.tuples(contents, vectors, st.integers(0, 3), st.sampled_from([None, 0.1, 0.9])), max_size=24)
    )
    return [
        Fact(
            content,
            embedding=vector,
            created_at=START + timedelta(hours=hours),
            importance=importance,
            id=f"f{number}",
        )
        for number, (content, vector, hours, importance) in enumerate(drawn)
    ]


@settings(max_examples=120, deadline=None)
@given(many_facts(), st.integers(1, 12), st.integers(2, 4), st.randoms())
def test_a_plan_loses_nothing_joins_nothing_it_must_not_and_is_the_same_in_any_order(
    facts: list[Fact], threshold: int, least: int, chance: random.Random
) -> None:
    compressor = L4Compressor(threshold=threshold, min_cluster_size=least)
    plan = compressor.plan(facts)
    members = [member for merge in plan.merged for member in merge.members]
    assert ids([*plan.kept, *members, *plan.left_out]) == ids(facts)
    assert len(plan.kept) + len(plan.merged) <= max(threshold, 0) or len(facts) <= threshold
    for merge in plan.merged:
        assert len(merge.members) >= least
        assert merge.fidelity.passed
        for one, other in itertools.combinations(merge.members, 2):
            assert may_merge(one.content, other.content)
            assert one.embedding is not None
            assert other.embedding is not None
            lengths = np.linalg.norm(one.embedding) * np.linalg.norm(other.embedding)
            assert np.dot(one.embedding, other.embedding) / lengths >= 0.75 - 1e-5
        said = set(terms(merge.content))
        assert all(said.issuperset(terms(member.content)) for member in merge.members)
    again = compressor.plan(chance.sample(facts, len(facts)))
    if len(facts) > threshold:
        assert again == plan
    stays = compressor.compress(facts)
    assert compressor.compress(stays) == stays


def test_thousands_of_facts_are_planned_without_loss() -> None:
    chance = np.random.default_rng(7)
    topics = chance.normal(size=(1_000, 64))
    verbs = ["is slow", "takes long", "hangs", "waits", "lags"]
    facts = [
        Fact(
            f"the job of topic {'abcdefghij'[number % 10] * (1 + number % 7)} {verbs[number // 1_000]}",
            embedding=(topics[number % 1_000] + chance.normal(size=64) * 0.2).tolist(),
            created_at=START,
            id=f"f{number}",
        )
        for number in range(5_000)
    ]
    plan = L4Compressor(threshold=1_500).plan(facts)
    assert len(plan.merged) > 900
    members = [member for merge in plan.merged for member in merge.members]
    assert ids([*plan.kept, *members, *plan.left_out]) == ids(facts)
