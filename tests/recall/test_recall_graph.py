"""Recall of a memory that shares no word with the question, by names, sessions and speakers; and that no edge leads
past a filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import loom
from loom.everyday import Memory
from loom.index.analysis import index_terms
from loom.recall.hits import Hit
from loom.recall.propagation import spread
from loom.recall.questions import understand
from loom.recall.relevance import Weights
from loom.storage.sqlite.store import as_sqlite
from loom.text.entities import (
    AMOUNT,
    SOMEBODY,
    SOMEWHERE,
    answer_marks,
    entity_mark,
    entity_marks,
    name_nodes,
    only_asks,
)
from loom.text.words import terms

NOW = datetime(2024, 5, 15, 12, tzinfo=UTC)


class Topics:
    """An embedder that knows only a few topics, each by one word."""

    name = "topics"
    dimensions = 8
    topics = (("melody", "violin"), ("kitchen", "colour"), ("boat", "harbour"))

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        vector = np.full(self.dimensions, 0.01, dtype=np.float32)
        for place, words in enumerate(self.topics):
            vector[place] += any(word in text.lower() for word in words)
        vector[0] += 0.3 * ("note" in text)
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.array([self.embed(text) for text in texts], dtype=np.float32)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False, clock=lambda: NOW) as opened:
        yield opened


def by_id(hits: Sequence[Hit]) -> dict[str, Hit]:
    return {hit.id: hit for hit in hits}


def shares_no_word(hit: Hit) -> bool:
    return hit.signals.keys().isdisjoint({"words", "synonyms", "context", "meaning", "time"})


@pytest.mark.parametrize(
    ("noise", "first", "second", "question", "shared"),
    [
        (
            "A blue note about a lantern, number{}.",
            "The violin pays for Blue Lantern.",
            "Blue Lantern moved to Cremona.",
            "Who has the violin?",
            "Blue Lantern",
        ),
        (
            "远山有雪，近山也呼唤，第{}条。",
            "这把提琴出现在《远山的呼唤》里。",
            "《远山的呼唤》重映了。",
            "谁有提琴？",
            "远山的呼唤",
        ),
    ],
)
def test_a_name_of_several_words_leads_where_its_words_are_too_common(
    memory: Memory, noise: str, first: str, second: str, question: str, shared: str
) -> None:
    memory.remember([noise.format(number) for number in range(40)])
    memory.remember(first, id="first")
    memory.remember(second, id="second")
    found = by_id(memory.recall(question))
    assert shares_no_word(found["second"])
    assert f"shares {shared} with other hits" in found["second"].why
    assert set(found) == {"first", "second"}


def test_names_that_are_given_tie_memories_together(memory: Memory) -> None:
    memory.remember([f"An unrelated note on topic number{number}." for number in range(30)])
    memory.remember("The violin is hers.", id="violin", metadata={"entities": ["Lucia B."]})
    memory.remember("She moved north.", id="moved", metadata={"entities": ["lucia  b."]})
    found = by_id(memory.recall("Whose is the violin?"))
    assert "shares lucia b. with other hits" in found["moved"].why


def test_a_name_leads_on_from_what_meaning_found(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder=Topics(), derive=False, clock=lambda: NOW) as memory:
        memory.remember([f"An unrelated note on topic number{number}." for number in range(40)])
        memory.remember("My violin came from the Marchetti workshop.", id="violin")
        memory.remember("Old Marchetti moved away.", id="moved")
        memory.flush()
        question = "Which melody?"
        found = by_id(memory.recall(question))
        assert found["violin"].signals.keys().isdisjoint({"words", "synonyms"})
        assert "shares Marchetti with other hits" in found["moved"].why
        explanation = memory.recall(question, explain=True)
        assert next(one for one in explanation.candidates if one.id == "moved").nominated_by == ("links",)
        without = memory.manager.search(question, weights=Weights(links=0.0)).hits
        assert "moved" not in by_id(without)


def talk(memory: Memory, session: str, *texts: str, at: datetime = NOW) -> None:
    for number, text in enumerate(texts):
        said_at = at + timedelta(minutes=number)
        memory.remember(text, id=f"{session}-{number}", session_id=session, created_at=said_at)


def test_a_session_leads_to_what_is_out_of_reach_of_a_turn(memory: Memory) -> None:
    turns = ("The violin has arrived.", "Good.", "And then?", "Well.", "We wait.", "Ochre suits the wall.")
    talk(memory, "s", *turns)
    talk(memory, "t", "Nothing new.", "Nothing at all.")
    memory.remember("Later.", id="late", session_id="s", created_at=NOW + timedelta(days=2))
    found = by_id(memory.recall("violin", limit=20))
    assert set(found) == {f"s-{number}" for number in range(6)}
    assert shares_no_word(found["s-5"])
    assert "from the same session as other hits" in found["s-5"].why
    without = memory.manager.search("violin", limit=20, weights=Weights(links=0.0)).hits
    assert "s-5" not in by_id(without)


def test_a_speaker_of_few_words_leads_to_what_else_was_said(memory: Memory) -> None:
    for number in range(40):
        memory.remember(
            f"An unrelated note on topic number{number}.",
            name=("Ana", "Ben")[number % 2],
            created_at=NOW - timedelta(days=3),
        )
    memory.remember("I repair violins.", id="repairs", name="Marchetti")
    memory.remember("My workshop is by the canal.", id="canal", name="Marchetti", created_at=NOW - timedelta(days=9))
    memory.remember("Violins are dear.", id="dear", name="Ana")
    found = by_id(memory.recall("Where are violins repaired?"))
    assert set(found) == {"repairs", "canal", "dear"}  # Ana says much, so who said it says little
    assert shares_no_word(found["canal"])
    assert "said by Marchetti, who also said other hits" in found["canal"].why


def test_what_is_forgotten_leads_nowhere(memory: Memory) -> None:
    memory.remember([f"A blue note about a lantern, number{number}." for number in range(40)])
    memory.remember("The violin pays for Blue Lantern.", id="first")
    memory.remember("Blue Lantern moved to Cremona.", id="second")
    memory.forget("second")
    assert set(by_id(memory.recall("Who has the violin?"))) == {"first"}


# -- what kind of answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "mark", "answer", "other"),
    [
        ("Who found the boat?", SOMEBODY, "The boat was found by old Petrov.", "The boat was found by luck alone."),
        ("谁找到了船？", SOMEBODY, "船是小邱找到的。", "船是碰巧找到的。"),
        ("Where is the boat?", SOMEWHERE, "The boat lies in Riga.", "The boat lies idle now."),
        ("船在哪里？", SOMEWHERE, "船停在码头旁边。", "船停了下来了。"),
        ("How many boats are there?", AMOUNT, "There are three boats.", "There are such boats."),
        ("有多少条船？", AMOUNT, "船有三条。", "船有好的。"),
    ],
)
def test_a_memory_that_names_what_is_asked_for_comes_first(
    memory: Memory, question: str, mark: str, answer: str, other: str
) -> None:
    memory.remember(other, id="other", created_at=NOW + timedelta(hours=3))
    memory.remember(answer, id="answer")
    assert mark in understand(question, NOW).answers
    hits = memory.recall(question)
    assert [hit.id for hit in hits] == ["answer", "other"]
    assert "names what is asked for" in hits[0].why
    assert "answer" not in hits[1].signals


def test_the_same_question_of_another_kind_asks_for_nothing_of_it() -> None:
    assert understand("What colour is the boat?", NOW).answers == ()
    assert understand("船是什么颜色的？", NOW).answers == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I met Olga there.", {SOMEBODY}),
        ("We leave in August, on a Monday.", set()),
        ("They live in Porto.", {SOMEBODY, SOMEWHERE}),
        ("I saw it twice.", {AMOUNT}),
        ("张开了嘴，高兴极了。", set()),
        ("跟着蘇禾练的。", {SOMEBODY}),
        ("左边那颗也得拔。", {SOMEWHERE}),
        ("每周六上午九点。", {AMOUNT}),
        ("", set()),
    ],
)
def test_rules_see_people_places_and_numbers(text: str, expected: set[str]) -> None:
    assert set(answer_marks(text, terms(text))) == expected


def test_a_text_that_only_asks_gives_way_to_one_that_tells(memory: Memory) -> None:
    assert only_asks("Has the kitchen been painted?")
    assert only_asks("哦？厨房刷了吗？")
    assert not only_asks("We painted the kitchen, all of it, in one night. Do you like it?")
    memory.remember("Has the kitchen of ours been painted?", id="asks", session_id="a")
    memory.remember("Somebody has painted a kitchen.", id="tells", session_id="b")
    assert memory.recall("painted kitchen of ours")[0].id == "tells"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The Bank of England and New York.", {"bank of england", "new york"}),
        ("In Blue Lantern we trust", {"blue lantern"}),
        ('She reads "small switches" again', {"small switches"}),
        ("《远山的呼唤》和邵老师", {"远山的呼唤", "邵老师"}),
        ("nothing of that kind", set()),
    ],
)
def test_names_of_several_words_are_marks(text: str, names: set[str]) -> None:
    assert set(entity_marks(text, {})) == {entity_mark(name) for name in names}
    assert set(entity_marks(text, {})) <= set(index_terms(None, None, 0, None, text))


def test_everything_that_a_text_names_is_a_node() -> None:
    assert set(name_nodes("We met Olga at node_7 with 小邱 in New York.", {})) >= {
        "olga",
        terms("node_7")[0],
        "小邱",
        entity_mark("New York"),
    }
    assert len(name_nodes("Ana Bell " * 5_000 + "张三丰" * 5_000, {"entities": ["x" * 500] * 500})) < 100
    assert entity_marks("a note", {"entities": ["", 7, None, {"a": 1}]}) == []
    assert entity_marks("a note", {"entities": "not a list"}) == []


# -- propagation --------------------------------------------------------------------------------------------


def test_scores_go_along_sessions_and_speakers_and_less_through_large_ones() -> None:
    start = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    sessions = np.array([0, 0, 1, 1, 1, -1])
    reached = spread(np.zeros((0, 6)), start, [(sessions, 1.0)])
    assert reached[1] > 0.0
    assert reached[2:].tolist() == [0.0] * 4
    speakers = np.array([0, -1, 0, -1, -1, -1])
    both = spread(np.zeros((0, 6)), start, [(sessions, 1.0), (speakers, 0.3)])
    assert both[1] > both[2] > both[3] > 0.0  # the third is two hops away
    assert both[5] == 0.0
    crowd = np.array([0, 0, 0, 0, 0, 1])
    pair = np.array([-1, -1, -1, -1, 0, -1])
    many = spread(np.zeros((0, 6)), start, [(crowd, 1.0), (pair, 1.0)])
    assert many[1] > 0.0
    assert many[5] == 0.0


# -- no edge leads past a filter ----------------------------------------------------------------------------

SCENE = (
    "Which colour has the kitchen?",
    "As it was.",
    "It stays.",
    "My violin came from the Marchetti workshop.",
    "Old Marchetti moved away.",
    "Blue Lantern pays for the violin.",
    "Blue Lantern is closed.",
    "A melody, by the harbour.",
)
FILTERS: dict[str, dict[str, Any]] = {
    "node": {"node": "mine"},
    "session_id": {"session_id": ["mine", "mine, before"]},
    "tenant": {"where": {"tenant": "mine"}},
    "namespace": {},
}
FILLING = tuple(f"An unrelated note on topic number{number}." for number in range(30))
QUESTION = "Which colour has the kitchen, and whose is the violin?"


def fill_in(*places: tuple[Memory, str, str]) -> None:
    """The scene for each memory, side and session, turn by turn in turns."""
    for memory, side, session in places:
        before = NOW - timedelta(days=3)
        tenant = {"tenant": side}
        memory.remember([*FILLING], session_id=f"{session}, before", created_at=before, metadata=tenant)
    for number, text in enumerate(SCENE):
        for memory, side, session in places:
            memory.remember(
                text,
                id=f"{side}-{number}",
                name=("Ana", "Ben", "Ben", "Carla")[min(number, 3)],
                session_id=session,
                created_at=NOW + timedelta(minutes=number),
                metadata={"tenant": side},
            )
    for memory, _, _ in places:
        memory.flush()


@pytest.mark.parametrize("embedder", ["none", "topics"])
@pytest.mark.parametrize("by", FILTERS)
def test_no_way_of_nominating_leads_past_a_filter(tmp_path: Path, by: str, embedder: str) -> None:
    with ExitStack() as stack:

        def opened(path: Path, side: str) -> Memory:
            place: dict[str, Any] = {"node": {"node_id": side}, "namespace": {"namespace": side}}.get(by, {})
            provider = Topics() if embedder == "topics" else "none"
            return stack.enter_context(loom.open(path, embedder=provider, derive=False, clock=lambda: NOW, **place))

        mine, theirs = (opened(tmp_path / "a.loom", side) for side in ("mine", "theirs"))
        fill_in((theirs, "theirs", "theirs" if by == "session_id" else "mine"), (mine, "mine", "mine"))
        filters = FILTERS[by]
        explanation = mine.recall(QUESTION, limit=8, explain=True, **filters)
        ways = {way for one in explanation.candidates for way in one.nominated_by}
        assert ways == {"words", "context", "links"} | ({"meaning"} if embedder == "topics" else set())
        assert not {one.id for one in explanation.candidates if one.id.startswith("theirs")}
        assert {hit.metadata["tenant"] for hit in explanation.hits} == {"mine"}
        assert {hit.name for hit in mine.recall(QUESTION, limit=8, name="Carla", **filters)} == {"Carla"}
        # Nor do the others change what is found, as if they had never been there.
        alone = opened(tmp_path / "b.loom", "mine")
        fill_in((alone, "mine", "mine"))
        expected = alone.recall(QUESTION, limit=8, **filters)
        assert {hit.content for hit in explanation.hits} == {hit.content for hit in expected}


@pytest.mark.parametrize(
    "question",
    [
        "a",
        "猫",
        "🙂",
        "the of and",
        "x " * 10_000,
        '"unclosed AND (NOT * near/3',
        "кто украл бублик",
        "\x1f@who \x1fe \x1fn",
    ],
)
def test_no_question_is_too_strange_where_there_are_vectors_too(tmp_path: Path, question: str) -> None:
    with loom.open(tmp_path / "a.loom", embedder=Topics(), derive=False, clock=lambda: NOW) as memory:
        assert memory.recall(question) == []
        fill_in((memory, "mine", "mine"))
        hits = memory.recall(question)
        assert all(hit.score > 0.0 and isinstance(hit.why, str) for hit in hits)
        assert [hit.id for hit in hits] == [hit.id for hit in memory.recall(question)]
        before = [(hit.id, hit.score) for hit in memory.recall(QUESTION, limit=20)]
        as_sqlite(memory.store).rebuild("text")
        as_sqlite(memory.store).rebuild("vectors")
        assert [(hit.id, hit.score) for hit in memory.recall(QUESTION, limit=20)] == before
