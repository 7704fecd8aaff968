"""Alternatives for the words of a question: which words have some, their effect, and their limits."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loom
from loom.everyday import Memory
from loom.recall.questions import understand
from loom.recall.relevance import Weights
from loom.text.thesaurus import Thesaurus, concepts

NOW = datetime(2024, 5, 15, 12, tzinfo=UTC)
SMALL = Thesaurus(
    [
        "car, vehicle, automobile",
        "buy, purchase, pick up",
        "bank, shore",
        "bank, lender, 银行",
        "bank, bench",
        "child, kid",
        "dislike, not like, hate",
        "车, 汽车, 座驾, car",
        "线上事故, 生产故障",
        "事故, 意外",
        "time off, holiday",
    ]
)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with loom.open(tmp_path / "a.loom", embedder="none", clock=lambda: NOW) as opened:
        yield opened


def others(text: str) -> dict[str, list[str]]:
    return {concept.word: [other.word for other in concept.others] for concept in SMALL.concepts(text)}


def sureness(text: str) -> dict[str, float]:
    return {other.word: other.weight for concept in SMALL.concepts(text) for other in concept.others}


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Which cars did they see?", {"cars"}),
        ("What was bought?", {"bought"}),
        ("What did she pick up?", {"pick up"}),
        ("Whose children are these?", {"children"}),
        ("新座驾", {"座驾"}),
        ("線上事故的原因", {"线上事故", "事故"}),
        ("buy汽车了吗", {"buy", "汽车"}),
        ("What time is it?", set()),
    ],
)
def test_words_and_phrases_are_known_in_every_form(question: str, words: set[str]) -> None:
    assert set(others(question)) == words


@pytest.mark.parametrize(
    "question",
    ["Where is Car now?", "Who met Bank?", "the car_id", "CAR-7", 'Who said "car"?', "谁说了「座驾」？", "did it"],
)
def test_names_identifiers_quotations_and_function_words_have_no_others(question: str) -> None:
    found = [c for c in understand(question, NOW).concepts if c.word.casefold() in ("car", "bank", "座驾", "did")]
    assert not found


def test_a_word_of_many_senses_is_less_sure_of_each() -> None:
    assert sureness("a car")["vehicle"] > sureness("a bank")["shore"] > 0.0


def test_what_a_phrase_leaves_and_a_single_character_are_less_sure_and_a_negation_is_left_out() -> None:
    assert sureness("my holiday")["time off"] == 0.5
    assert sureness("座驾")["车"] == sureness("座驾")["汽车"] / 2
    assert others("I dislike it") == {"dislike": ["hate"]}


def test_groups_reach_across_languages() -> None:
    assert "银行" in others("a bank")["bank"]
    assert "car" in others("座驾")["座驾"]


def test_a_hostile_question_costs_no_more_than_a_long_one() -> None:
    assert len(SMALL.concepts("座驾" * 2_000)) <= 16
    assert len(SMALL.concepts("car " * 2_000)) <= 16


@pytest.mark.parametrize("name", ["thesaurus.en.txt", "thesaurus.zh.txt"])
def test_the_groups_that_ship_are_sound(name: str) -> None:
    lines = (pkgutil.get_data("loom.text", name) or b"").decode("utf-8").splitlines()
    groups = [line.split(", ") for line in lines if line and not line.startswith("#")]
    assert len(groups) > 1_800
    for group in groups:
        assert len(group) >= 2, group
        assert len(set(group)) == len(group), group
        assert all(word and word == word.strip() for word in group), group


@pytest.mark.parametrize("name", ["thesaurus.kinds.en.txt", "thesaurus.kinds.zh.txt"])
def test_the_kinds_that_ship_are_sound(name: str) -> None:
    lines = (pkgutil.get_data("loom.text", name) or b"").decode("utf-8").splitlines()
    kinds = [line.partition(": ") for line in lines if line and not line.startswith("#")]
    assert len(kinds) > 100
    for asked_by, colon, belonging in kinds:
        words, members = asked_by.split(", "), belonging.split(", ")
        assert colon, asked_by
        assert len(members) >= 3, asked_by
        assert len({*words, *members}) == len(words) + len(members), asked_by
        assert all(word and word == word.strip() for word in (*words, *members)), asked_by


def test_a_kind_has_its_things_as_others_and_a_thing_not_its_kind() -> None:
    known = Thesaurus(["pet, animal companion", "pet: cat, dog, parrot"])
    (concept,) = known.concepts("Which pets are there?")
    assert [other.word for other in concept.others] == ["animal companion", "cat", "dog", "parrot"]
    assert concept.others[0].weight > concept.others[1].weight
    assert known.concepts("Where is the dog?") == ()
    assert len(Thesaurus([f"pet: {', '.join(f'cat{n}' for n in range(500))}"]).concepts("pet")[0].others) < 60


@pytest.mark.parametrize(
    ("said", "question", "why"),
    [
        ("The cat hid behind the piano.", "Where was the pet?", "cat for pet"),
        ("小满学的是古筝。", "她学什么乐器？", "古筝 for 乐器"),
        ("车定了，灰色的。", "她选了什么座驾？", "车 for 座驾"),
        ("The pay is 4,200 a month.", "How high is the salary?", "pay for salary"),
        ("工资每月四千二。", "How high is the salary?", "工资 for salary"),
    ],
)
def test_a_memory_is_found_by_another_word_and_says_so(memory: Memory, said: str, question: str, why: str) -> None:
    memory.remember(["The weather stays dry.", "窗外下雨了。", said])
    hit = memory.recall(question)[0]
    assert hit.content == said
    assert why in hit.why
    assert hit.signals["synonyms"] > 0.0
    asked = why.partition(" for ")[2]
    assert f"synonyms of {asked}: " in str(memory.recall(question, explain=True))


def test_the_word_itself_counts_more_and_several_others_count_once(memory: Memory) -> None:
    memory.remember("The salary of June.", id="itself")
    memory.remember("The pay of June.", id="pay")
    memory.remember("The wage of June.", id="wage")
    memory.remember("The pay, wage of June.", id="both")
    hits = {hit.id: hit for hit in memory.recall("salary")}
    assert next(iter(hits)) == "itself"
    assert hits["both"].signals["synonyms"] <= hits["pay"].signals["synonyms"] == hits["wage"].signals["synonyms"]


def test_without_their_weight_other_words_bring_nothing(memory: Memory) -> None:
    memory.remember("The pay is 4,200 a month.")
    assert memory.manager.search("How high is the salary?", limit=5).hits
    assert not memory.manager.search("How high is the salary?", limit=5, weights=Weights(synonyms=0.0)).hits


def test_a_speaker_called_like_a_word_has_no_others(memory: Memory) -> None:
    memory.remember("I was at the harbour.", name="Hope", role="user", session_id="s")
    memory.remember("My wish is a boat.", name="Ana", role="user", session_id="t")
    assert [hit.name for hit in memory.recall("hope harbour")] == ["Hope"]


def test_the_thesaurus_is_read_when_a_question_is_asked_and_not_before() -> None:
    code = (
        "import sys, loom\nmemory = loom.open(embedder='none')\nmemory.remember('a note')\n"
        "thesaurus = sys.modules.get('loom.text.thesaurus')\n"
        "assert thesaurus is None or not thesaurus.shipped.cache_info().currsize\n"
        "memory.recall('note')\nassert sys.modules['loom.text.thesaurus'].shipped.cache_info().currsize\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_common_words_of_the_package_have_others() -> None:
    assert {concept.word for concept in concepts("How much is my salary?")} >= {"salary"}
    assert {concept.word for concept in concepts("公司为什么推迟旅行？")} >= {"推迟", "旅行"}


@given(
    st.lists(st.sampled_from(["turn", "up", "the", "of", "table", "'s", "_", "-", "…", "c++", "#", "٣", "ª", "ﬁ"]))
)
def test_no_mixture_of_words_and_signs_is_too_strange(parts: list[str]) -> None:
    for text in (" ".join(parts), "".join(parts)):
        for concept in concepts(text):
            assert concept.others
