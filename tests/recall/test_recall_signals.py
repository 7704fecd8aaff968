"""The signals of recall: each one alone, and the rules that hold for every question."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import loom
from loom.errors import InvalidInput
from loom.everyday import Memory
from loom.recall import search
from loom.recall.hits import Hit
from loom.recall.propagation import spread
from loom.recall.relevance import SIGNALS, neighbours, pooled
from loom.recall.search import Explanation
from loom.storage.contract import Filter
from loom.storage.sqlite.store import as_sqlite

NOW = datetime(2024, 5, 15, 12, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with loom.open(tmp_path / "a.loom", embedder="none", clock=lambda: NOW) as opened:
        yield opened


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def talk(memory: Memory, session: str, *turns: tuple[str, str], at: datetime = NOW) -> None:
    """Turns of a session, each with its speaker; ids are session and number."""
    for number, (name, text) in enumerate(turns):
        said_at = at + timedelta(seconds=number)
        memory.remember(
            text, id=f"{session}-{number}", name=name, role="user", session_id=session, created_at=said_at
        )


def test_a_reply_is_found_by_the_question_before_it(memory: Memory) -> None:
    talk(memory, "s", ("Ana", "Which colour shall the kitchen have?"), ("Ben", "Ochre, with white edges."))
    talk(memory, "t", ("Ana", "The garage is full."), ("Ben", "Then sell the trailer."))
    hits = memory.recall("colour of the kitchen")
    assert ids(hits)[:2] == ["s-1", "s-0"] or ids(hits)[:2] == ["s-0", "s-1"]
    reply = next(hit for hit in hits if hit.id == "s-1")
    assert "words" not in reply.signals
    assert "the turns around it" in reply.why
    assert not {"t-0", "t-1"} & set(ids(hits))


def test_what_was_said_a_day_later_in_the_same_session_is_no_reply(memory: Memory) -> None:
    talk(memory, "s", ("Ana", "Which colour shall the kitchen have?"))
    memory.remember("Agreed.", id="late", name="Ben", session_id="s", created_at=NOW + timedelta(days=1))
    assert ids(memory.recall("colour of the kitchen")) == ["s-0"]


def test_notes_without_a_session_are_no_context_for_each_other(memory: Memory) -> None:
    memory.remember("The kitchen is ochre.", id="a")
    memory.remember("The trailer was sold.", id="b")
    assert ids(memory.recall("kitchen")) == ["a"]


def test_a_question_that_names_a_speaker_prefers_what_that_speaker_said(memory: Memory) -> None:
    talk(memory, "s", ("Ana", "I painted the boat in spring."), ("Ben", "I painted the boat in spring, too!"))
    assert ids(memory.recall("What did Ben paint?"))[0] == "s-1"
    assert ids(memory.recall("What did Ana paint?"))[0] == "s-0"


def test_i_means_the_user_and_you_the_assistant(memory: Memory) -> None:
    memory.remember("Take the scenic route along the lake.", id="asked", role="user", session_id="a")
    memory.remember("Take the scenic route along the coast.", id="told", role="assistant", session_id="b")
    assert ids(memory.recall("Which scenic route did you recommend?"))[0] == "told"
    assert ids(memory.recall("Which scenic route did I mention?"))[0] == "asked"


@pytest.mark.parametrize(
    "question", ["Can you show me a scenic route?", "Could you list the scenic routes I mentioned?"]
)
def test_a_request_to_the_assistant_is_not_about_what_it_said(memory: Memory, question: str) -> None:
    memory.remember("Take the scenic route along the coast.", id="told", role="assistant", session_id="b")
    memory.remember("Take the scenic route along the lake.", id="asked", role="user", session_id="a")
    assert ids(memory.recall(question))[0] == "asked"


def test_a_user_who_asks_an_assistant_states_what_the_memory_is_about() -> None:
    first = {}
    for role in ("assistant", "user"):
        with loom.open(embedder="none") as memory:
            memory.remember("Can you fix the export?", id="asks", role="user", name="Ana", session_id="s")
            memory.remember("Sure, later.", id="replies", role=role, name="Ben", session_id="s")
            first[role] = memory.recall("export")[0].id
    assert first == {"assistant": "asks", "user": "replies"}  # between people the words are for the reply to inherit


def test_the_frame_of_a_question_counts_little(memory: Memory) -> None:
    memory.remember("In our conversations I brought up different aspects in order.", id="frame")
    memory.remember("The greenhouse needs glass.", id="topic")
    asked = "Can you list the order in which I brought up different aspects of the greenhouse in our conversations?"
    assert ids(memory.recall(asked))[0] == "topic"
    memory.remember("之前聊过的按顺序总结。", id="框架")
    memory.remember("温室要装玻璃。", id="主题")
    assert ids(memory.recall("帮我按时间顺序总结一下我们之前聊过的温室"))[0] == "主题"


def test_words_that_relate_the_things_of_a_question_count_little(memory: Memory) -> None:
    memory.remember("Both of them say something different about each other.", id="relation")
    memory.remember("The skiff is fast.", id="topic")
    assert ids(memory.recall("What do both say about the skiff?"))[0] == "topic"
    assert ids(memory.recall("What do both say?"))[0] == "relation"


def test_the_kind_that_is_asked_for_is_no_word_of_the_answer(memory: Memory) -> None:
    memory.remember("The guide was so kind.", id="frame")
    for number in range(3):
        memory.remember(f"A hull of oak, {number}.", id=f"topic-{number}")
    assert ids(memory.recall("What kind of hull is it?"))[0].startswith("topic")


def test_an_order_of_events_is_answered_from_the_whole_conversation(memory: Memory) -> None:
    for session in ("a", "b", "c"):
        for number in range(4):
            text = f"The sail of the boat, {session} {number}" + (" again" if session != "a" else "")
            memory.remember(text, id=f"{session}-{number}", session_id=session)
    best = {id.split("-")[0] for id in ids(memory.recall("In what order did the sail of the boat come up?", limit=3))}
    assert best == {"a", "b", "c"}
    assert {id.split("-")[0] for id in ids(memory.recall("sail of the boat", limit=3))} == {"a"}


def test_each_part_of_a_question_has_its_answer_among_the_first(memory: Memory) -> None:
    for number in range(12):
        memory.remember(f"The launch of the boat in the harbour, note {number} of the harbour launch.")
        memory.remember(f"A mast, {number}.", id=f"mast-{number}")
    hits = memory.recall("How long was it from the launch of the boat in the harbour until the mast?", limit=8)
    masts = [hit for hit in hits if hit.id.startswith("mast")]
    assert len(masts) == 2
    assert all("best for a part of the question" in hit.why for hit in masts)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_the_name_of_a_speaker_is_no_part_of_a_question(memory: Memory) -> None:
    talk(memory, "s", *[("Ana", f"Ana and Ben greet you, {number}.") for number in range(8)])
    talk(memory, "t", *[("Ben", f"I like sailing in the harbour, {number}.") for number in range(8)])
    explained = memory.recall("Do Ana and Ben like sailing in the harbour?", limit=8, explain=True)
    assert {hit.session_id for hit in explained.hits} == {"t"}
    assert not any("parts" in one.signals for one in explained.candidates if one.id.startswith("s"))


@pytest.mark.parametrize("question", ["In which countries was she?", "What cities did she see?", "Which town is it?"])
def test_a_question_for_places_prefers_a_text_that_names_one(memory: Memory, question: str) -> None:
    memory.remember("She saw it and was glad.", id="none")
    memory.remember("She saw it and was in Lisbon.", id="place")
    assert "answer" in next(hit for hit in memory.recall("she saw, " + question) if hit.id == "place").signals
    assert "answer" not in next(hit for hit in memory.recall("she saw, " + question) if hit.id == "none").signals


@pytest.mark.parametrize("question", ["What books has she read?", "which fantasy series has she read"])
def test_a_question_for_titles_prefers_a_text_that_names_one(memory: Memory, question: str) -> None:
    memory.remember("She has read a lot, at last.", id="none")
    memory.remember("She has read a lot, at last Moby Dick.", id="title")
    assert ids(memory.recall(question))[0] == "title"


def test_a_small_store_is_searched_more_thoroughly_than_a_large_one(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.remember([f"The harbour in the year {number}." for number in range(150)])

    def candidates() -> int:
        explained = memory.recall("harbour", limit=10, explain=True)
        assert len(explained.hits) == 10
        return len(explained.candidates)

    small = candidates()
    monkeypatch.setattr(search, "LARGE_STORE", 100)
    assert candidates() < 50 < 100 <= small


def test_captions_and_other_texts_in_the_metadata_are_found(memory: Memory) -> None:
    memory.remember(
        "Look at this!", id="a", metadata={"caption": "a heron on a wooden pier", "url": "http://x/heronry"}
    )
    memory.remember("Look at that!", id="b", metadata={"attachments": [{"title": "Invoice for the piano tuner"}]})
    assert ids(memory.recall("heron")) == ["a"]
    assert ids(memory.recall("piano tuner")) == ["b"]
    assert memory.recall("heronry") == []
    assert "heron" in memory.recall("heron")[0].why


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did we do on 3 May 2024?", "zoo"),
        ("What did we do at the sea in August 2023?", "sea"),
        ("去年八月我们去了哪里？", "lake"),
        ("What did we do last Friday?", "fair"),
    ],
)
def test_a_question_with_a_time_is_answered_from_that_time(memory: Memory, question: str, expected: str) -> None:
    memory.remember("We went to the zoo yesterday.", id="zoo", created_at=datetime(2024, 5, 4, tzinfo=UTC))
    memory.remember("Last August we went to the sea.", id="sea", created_at=datetime(2024, 2, 1, tzinfo=UTC))
    memory.remember("上周五我们去了集市。", id="fair", created_at=datetime(2024, 5, 15, tzinfo=UTC))
    memory.remember("去年八月我们去了湖边。", id="lake", created_at=datetime(2024, 2, 2, tzinfo=UTC))
    memory.remember("We did nothing at all.", id="nothing", created_at=datetime(2023, 1, 1, tzinfo=UTC))
    assert ids(memory.recall(question))[0] == expected


@pytest.mark.parametrize(
    ("question", "expected"), [("Where do I live now?", "third"), ("我现在住在哪里 live", "third")]
)
def test_what_is_asked_for_as_current_is_the_newest(memory: Memory, question: str, expected: str) -> None:
    for number, (name, town) in enumerate((("first", "Porto"), ("second", "Turin"), ("third", "Riga"))):
        memory.remember(f"I live in {town}.", id=name, created_at=NOW - timedelta(days=100 - number))
    assert ids(memory.recall(question))[0] == expected
    assert ids(memory.recall("Where did I first live?"))[0] == "first"


def test_a_memory_that_shares_no_word_with_the_question_is_found_through_another(memory: Memory) -> None:
    for number in range(30):
        memory.remember(f"An unrelated note on topic number{number}.", id=f"n{number}")
    memory.remember("The violin came from the Marchetti workshop.", id="violin")
    memory.remember("Marchetti moved to Cremona.", id="town")
    hits = memory.recall("Where is the violin from?")
    assert ids(hits)[:2] == ["violin", "town"]
    assert hits[1].signals.keys().isdisjoint({"words", "context"})
    assert "shares Marchetti with other hits" in hits[1].why


def test_quoted_words_must_stand_so(memory: Memory) -> None:
    memory.remember("fires large, switches small: a list", id="scattered")
    memory.remember("the title is Small Switches, Large Fires", id="exact")
    assert ids(memory.recall('Where is "small switches, large fires"?'))[0] == "exact"


def test_copies_appear_once_with_their_count(memory: Memory) -> None:
    for number in range(5):
        memory.remember("The  gate is open." if number else "the gate is open.", id=f"c{number}")
    memory.remember("The gate is open, number 12.", id="twelve")
    memory.remember("The gate is open, number 13.", id="thirteen")
    hits = memory.recall("gate open")
    assert [hit.id for hit in hits if hit.copies == 1] == ["twelve", "thirteen"]
    (together,) = [hit for hit in hits if hit.copies > 1]
    assert together.copies == 5
    assert {together.id, *together.copy_ids} == {f"c{number}" for number in range(5)}
    assert "said 5 times" in together.why


def test_near_copies_are_one_answer_unless_a_number_a_name_or_a_negation_differs(memory: Memory) -> None:
    first = memory.remember(
        "The build of the blue lantern project runs on the large server in the cellar.", name="Ana"
    )
    again = memory.remember(
        "the build of the blue lantern project, it runs on the large server in the cellar", name="Ana"
    )
    others = (
        "The build of the blue lantern project never runs on the large server in the cellar.",
        "The build of the blue lantern project runs on the large server 2 in the cellar.",
        "The build of the Oslo lantern project runs on the large server in the cellar.",
    )
    for text in others:
        memory.remember(text, name="Ana")
    hits = memory.recall("Where does the build of the blue lantern project run?")
    assert sorted(hit.copies for hit in hits) == [1, 1, 1, 2]
    twin = next(hit for hit in hits if hit.copies == 2)
    assert {twin.id, *twin.copy_ids} == {first.id, again.id}
    assert {hit.content for hit in hits} >= set(others)


def test_near_copies_are_two_answers_where_one_of_them_alone_holds_a_word_that_is_asked_for(memory: Memory) -> None:
    told = (
        "our neighbour brought back the old wooden ladder last evening, put it behind the garden shed next to the "
        "rusty wheelbarrow, apologised for keeping it all summer, and left a basket with fresh {} for the children"
    )
    memory.remember(told.format("plums"), id="plums")
    memory.remember(told.format("pears"), id="pears")
    memory.remember([f"pears of garden {number}" for number in range(40)])  # a common word, which decides no score
    assert memory.recall("Where is the wooden ladder of the neighbour?")[0].copies == 2
    question = (
        "Who put the wooden ladder behind the garden shed next to the wheelbarrow, with a basket of fresh pears?"
    )
    hits = memory.recall(question)[:2]
    assert hits[1].score > 0.9 * hits[0].score
    assert [(hit.id, hit.copies) for hit in hits] == [("pears", 1), ("plums", 1)]


def test_copies_do_not_crowd_out_the_others(memory: Memory) -> None:
    memory.remember(["The gate is open."] * 200)
    memory.remember("The gate is of iron and was painted last year by our neighbours.", id="iron")
    assert "iron" in ids(memory.recall("gate", limit=5))


def test_diversity_puts_something_else_second(memory: Memory) -> None:
    memory.remember("The red bicycle stands in the yard behind the house.", id="a")
    memory.remember("The red bicycle stands in the yard before the house.", id="b")
    memory.remember("A bicycle needs oil.", id="c")
    assert ids(memory.recall("red bicycle", limit=2)) == ["a", "b"]
    assert ids(memory.recall("red bicycle", limit=2, diversity=0.7)) == ["a", "c"]
    for wrong in (-0.1, 1.5, True, "much"):
        with pytest.raises(InvalidInput, match="diversity"):
            memory.recall("bicycle", diversity=wrong)  # type: ignore[arg-type]


def test_a_second_opinion_decides_the_order_and_a_failing_one_changes_nothing(memory: Memory) -> None:
    for name in ("a", "b", "c"):
        memory.remember(f"a note about harbours {name}", id=name)
    assert ids(memory.recall("harbours", limit=2, reranker=lambda _, hits: [ord(hit.id) for hit in hits])) == [
        "c",
        "b",
    ]

    def fails(question: str, hits: Sequence[Hit]) -> Sequence[float]:
        raise RuntimeError("no model")

    assert ids(memory.recall("harbours", reranker=fails)) == ids(memory.recall("harbours"))
    with pytest.raises(InvalidInput, match="one for each"):
        memory.recall("harbours", reranker=lambda _, hits: [1.0])


def test_the_explanation_of_a_recall_adds_up(memory: Memory) -> None:
    talk(memory, "s", ("Ana", "Which colour shall the kitchen have?"), ("Ben", "Ochre."), ("Ana", "Which colour?"))
    explanation = memory.recall("What colour did Ben want on 15 May 2024?", limit=2, explain=True)
    assert isinstance(explanation, Explanation)
    assert ids(explanation.hits) == [one.id for one in explanation.candidates if one.outcome == "returned"]
    assert [one.score for one in explanation.candidates] == sorted(
        (one.score for one in explanation.candidates), reverse=True
    )
    assert {one.outcome for one in explanation.candidates} == {"returned", "left out"}
    for one in explanation.candidates:
        assert set(one.signals) <= {*SIGNALS, "phrase"}
        assert one.nominated_by
    assert "ben" in explanation.question.speakers
    assert "asked: What colour" in str(explanation)
    assert explanation.hits[0].id in str(explanation)


def test_every_signal_ranks_the_candidates_that_it_speaks_for(memory: Memory) -> None:
    talk(memory, "s", ("Ana", "The kitchen is ochre."), ("Ben", "The kitchen is large and the floor is oak."))
    for hit in memory.recall("Is the kitchen ochre?"):
        assert set(hit.ranks) <= set(hit.signals)
        assert all(rank >= 1 for rank in hit.ranks.values())


# -- what must hold whatever the question -------------------------------------------------------------------

STRANGE = [
    "a",
    "猫",
    "?",
    "🙂",
    "the of and",
    "是的了吗",
    "x " * 10_000,
    "猫" * 20_000,
    '"unclosed AND (NOT * near/3 col:val ^ {',
    "'; DROP TABLE records; --",
    "кто украл бублик",
    "من أخذ الكتاب",
    "\x1fn ana \x1fd20240515 \x00",
    "\u202eevil\u202c",
    "Ångström ﬁ ① ㎏",
    "999999 years ago and in 0 days on 31 February",
    "-" * 500,
]


@pytest.mark.parametrize("question", STRANGE)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_no_question_is_too_strange(question: str, count: int) -> None:
    with loom.open(embedder="none", clock=lambda: NOW) as memory:
        for number in range(count):
            memory.remember(f"note {number} 猫 about 🙂", name="Ana", session_id="s")
        for hit in memory.recall(question):
            assert hit.score > 0.0
            assert isinstance(hit.why, str)


def test_a_text_cannot_pretend_to_be_of_another_speaker_or_time(memory: Memory) -> None:
    memory.remember("a note \x1fnana \x1fd20240515", id="liar", created_at=NOW - timedelta(days=400))
    memory.remember("a note by her", id="hers", name="Ana", created_at=NOW)
    hits = memory.recall("Which note is of Ana, today?")
    assert ids(hits)[0] == "hers"
    assert not {"speaker", "time"} & hits[-1].signals.keys()


def test_of_ten_thousand_memories_that_differ_in_a_number_the_right_one_comes_first() -> None:
    with loom.open(embedder="none", clock=lambda: NOW, derive=False) as memory:
        memory.remember([f"Locker {number} belongs to the second floor." for number in range(10_000)])
        memory.flush()
        for number in (7, 1234, 9999):
            assert memory.recall(f"Who has locker {number}?")[0].content.startswith(f"Locker {number} ")


def test_ten_thousand_copies_are_one_answer(memory: Memory) -> None:
    memory.remember(["The same thing again."] * 10_000)
    (hit,) = memory.recall("same thing")
    assert hit.copies > 1


def test_nothing_that_a_filter_excludes_is_brought_by_any_signal(memory: Memory) -> None:
    for session in ("mine", "theirs"):
        for number, text in enumerate(
            ("Which colour has the kitchen?", "Ochre.", "The Marchetti violin.", "Marchetti.")
        ):
            who = ("Ana", "Ben")[number % 2]
            memory.remember(
                text,
                id=f"{session}-{number}",
                name=who,
                role="user",
                session_id=session,
                metadata={"tenant": session},
            )
    question = "What did Ben say about the kitchen and the violin?"
    assert {hit.session_id for hit in memory.recall(question, session_id="mine")} == {"mine"}
    assert {hit.metadata["tenant"] for hit in memory.recall(question, where={"tenant": "mine"})} == {"mine"}
    assert {hit.name for hit in memory.recall(question, name="Ben")} == {"Ben"}
    assert set(ids(memory.recall(question, ids=["mine-1", "mine-2"]))) <= {"mine-1", "mine-2"}


def test_a_filter_on_the_speaker_keeps_the_context_of_the_others(memory: Memory) -> None:
    talk(memory, "s", ("Ana", "Which colour shall the kitchen have?"), ("Ben", "Ochre, with white edges."))
    assert ids(memory.recall("colour of the kitchen", name="Ben")) == ["s-1"]


def test_what_was_not_known_then_changes_no_answer_as_of_then(memory: Memory) -> None:
    talk(memory, "s", ("Ana", "Which colour shall the kitchen have?"), ("Ben", "Ochre."))
    then = NOW + timedelta(seconds=1)
    before = memory.recall("colour of the kitchen", as_of=then)
    memory.remember(
        "The kitchen colour, again?", name="Ana", role="user", session_id="s", created_at=NOW + timedelta(seconds=5)
    )
    after = memory.recall("colour of the kitchen", as_of=then)
    assert ids(before) == ids(after)


def test_the_order_is_the_same_in_every_process_before_and_after_the_index_is_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    questions = ["What did Ben say about the harbour?", "港口在哪里？", "which note on 3 May 2024"]
    with loom.open(path, embedder="none", clock=lambda: NOW, index_tail_records=64) as memory:
        for number in range(300):
            text = f"note {number % 40} about harbour {number} 港口 {number % 7}"
            memory.remember(
                text, id=str(number), name=("Ana", "Ben")[number % 2], role="user", session_id=f"s{number // 9}"
            )
        memory.flush()

        def answers() -> list[list[tuple[str, float]]]:
            return [[(hit.id, hit.score) for hit in memory.recall(one, limit=50)] for one in questions]

        first = answers()
        assert all(first)
        as_sqlite(memory.store).rebuild("text")
        assert answers() == first
        memory.vacuum()
        assert answers() == first
    script = (
        "import sys, loom; from datetime import datetime, UTC\n"
        "memory = loom.open(sys.argv[1], embedder='none', clock=lambda: datetime(2024, 5, 15, 12, tzinfo=UTC))\n"
        "print([[(hit.id, hit.score) for hit in memory.recall(one, limit=50)] for one in sys.argv[2:]])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(path), *questions], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == repr(first)


# -- the pure parts -----------------------------------------------------------------------------------------


def test_pooling_takes_the_best_of_each_term_and_less_from_further_away() -> None:
    table = np.array([[1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 2.0]])
    following = np.array([1, 2, 3, -1, -1])
    result = pooled(table, neighbours(following, np.ones(5)), reach=3)
    assert result[0].tolist() == pytest.approx([1.0, 0.7, 0.49, 0.343, 0.0])
    assert result[1].tolist() == [0.0, 0.0, 0.0, 0.0, 2.0]
    half = pooled(table, neighbours(following, np.full(5, 0.5)), reach=3)
    assert half[0].tolist() == pytest.approx([1.0, 0.35, 0.1225, 0.042875, 0.0])


def test_spreading_reaches_what_shares_a_term_and_nothing_else() -> None:
    edges = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    reached = spread(edges, np.array([1.0, 0.0, 0.0, 0.0]))
    assert reached.max() == 1.0
    assert reached[1] > reached[2] > 0.0
    assert reached[3] == 0.0
    assert spread(np.zeros((0, 3)), np.ones(3)).tolist() == [0.0, 0.0, 0.0]


def test_a_filter_admits_the_same_by_recall_and_by_listing(memory: Memory) -> None:
    for number in range(20):
        memory.remember(
            f"harbour {number}", id=str(number), role=("user", "assistant")[number % 2], session_id=f"s{number % 3}"
        )
    wanted = Filter(role="user", session_id=["s0", "s1"])
    listed = {record.id for record in memory.store.scan(wanted).records}
    assert {hit.id for hit in memory.manager.recall("harbour", limit=50, wanted=wanted)} == listed


class Contrary:
    """An embedder for which a question is similar to all texts except those with its words."""

    name = "contrary"
    dimensions = 2

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        return np.array([1.0, 0.0] if "?" in text or "noise" in text else [0.0, 1.0], dtype=np.float32)

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.array([self.embed(text) for text in texts])


def test_an_embedder_that_contradicts_the_words_counts_for_nothing() -> None:
    with loom.open(embedder=Contrary()) as memory:
        for number in range(12):
            memory.remember(f"Kitchen note {number}: the kitchen is ochre.", id=f"kitchen-{number}")
            memory.remember(f"Plain noise {number}, in the kitchen.", id=f"noise-{number}")
        memory.flush()
        hits = memory.recall("Which kitchen is ochre?", limit=24)
        added = [hit.ranking.contributions()["meaning"] for hit in hits if hit.ranking is not None]
        assert len(added) == 24
        assert not any(added)


@pytest.mark.parametrize("question", ["What is the invoice number?", "How do we deploy?", "猫叫什么名字？"])
def test_an_answer_that_has_all_a_question_asks_for_scores_high_and_others_low(memory: Memory, question: str) -> None:
    memory.remember("The invoice number is 4711.")
    memory.remember("We deploy with kubectl on Fridays.")
    memory.remember("猫的名字叫豆包。")
    memory.remember("Unrelated.")
    assert memory.recall(question)[0].score > 0.8
    assert memory.recall(f"{question} quantum chromodynamics gluons hadrons")[0].score < 0.6


def test_a_score_below_the_cut_is_left_out(memory: Memory) -> None:
    memory.remember("The invoice number is 4711.", id="whole")
    memory.remember("The number of chairs is four.", id="part")
    assert ids(memory.recall("What is the invoice number?")) == ["whole", "part"]
    assert ids(memory.recall("What is the invoice number?", min_score=0.7)) == ["whole"]
    explained = memory.recall("What is the invoice number?", min_score=0.7, explain=True)
    assert [one.outcome for one in explained.candidates] == ["returned", "left out"]
    for wrong in (-0.1, 1.1, True, "0.5", float("nan")):
        with pytest.raises(InvalidInput, match="min_score"):
            memory.recall("invoice", min_score=wrong)  # type: ignore[arg-type]


def test_an_acknowledgement_scores_low_beside_what_it_acknowledges(memory: Memory) -> None:
    memory.remember("Put my flight to Oslo on Friday.", id="asked", role="user", session_id="s")
    memory.remember("Got it.", id="filler", role="assistant", session_id="s")
    memory.remember("我周五飞奥斯陆。", id="说", role="user", session_id="t")
    memory.remember("好的，已记录。", id="填", role="assistant", session_id="t")
    scores = {hit.id: hit.score for hit in memory.recall("flight to Oslo on Friday")}
    assert scores["filler"] < 0.3 < scores["asked"]
    scores = {hit.id: hit.score for hit in memory.recall("周五飞哪里？")}
    assert scores["填"] < 0.3 < scores["说"]
