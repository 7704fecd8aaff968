"""Derivation from the log: facts, summaries and merged facts, and undoing each of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import loom
from loom.errors import InvalidInput, NotFound
from loom.knowledge.extraction import FactExtractor
from loom.knowledge.facts import Extraction
from loom.storage.contract import Record
from tests.storage.plain_store import PlainStore

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "plain"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[loom.Memory]:
    store = PlainStore() if request.param == "plain" else tmp_path / "a.loom"
    with loom.Memory(store=store, embedder="none") as opened:
        yield opened


def say(memory: loom.Memory, text: str, *, day: int = 0, name: str = "Ana", session_id: str = "s1") -> str:
    at = MONDAY + timedelta(days=day)
    return memory.remember(text, role="user", name=name, session_id=session_id, created_at=at).id


def known(memory: loom.Memory) -> list[str]:
    memory.flush()
    return [fact.content for fact in memory.facts()]


class TestFacts:
    def test_are_drawn_from_what_was_said_and_name_it(self, memory: loom.Memory) -> None:
        source = say(memory, "We decided to use PostgreSQL for the orders service because it has row-level security.")
        memory.flush()
        facts = memory.facts("Which database do we use?")
        assert any("PostgreSQL" in fact.content for fact in facts)
        assert all(fact.sources == [source] for fact in facts)

    def test_are_drawn_in_chinese(self, memory: loom.Memory) -> None:
        say(memory, "用户讨论了 OAuth2.0 的三种模式，最终决定使用 Authorization Code 模式，因为安全性最高")
        assert known(memory)[::-1] == ["决策: 使用 OAuth2.0 Authorization Code 模式", "原因: 安全性最高"]

    def test_small_talk_gives_none(self, memory: loom.Memory) -> None:
        for text in ("Good morning!", "Haha, that's great.", "你好呀，今天天气不错", "Thanks a lot, see you later!"):
            say(memory, text)
        assert known(memory) == []

    def test_the_same_fact_from_ten_places_is_one_fact_with_ten_sources(self, memory: loom.Memory) -> None:
        sources = [say(memory, "I live in Berlin.", day=day, session_id=f"s{day}") for day in range(10)]
        memory.flush()
        (fact,) = memory.facts("Berlin")
        assert sorted(fact.sources) == sorted(sources)

    def test_a_newer_one_takes_the_place_of_a_contradicting_older_one(self, memory: loom.Memory) -> None:
        say(memory, "I live in Berlin.")
        say(memory, "I live in Paris now.", day=5)
        assert [fact for fact in known(memory) if "Berlin" in fact] == []
        then = MONDAY + timedelta(days=1)
        for found in (memory.facts(as_of=then), memory.facts("Where does Ana live?", as_of=then)):
            (fact,) = found
            assert "Berlin" in fact.content
            assert len(fact.sources) == 1
        (now,) = memory.facts("Where does Ana live?")
        assert len(now.sources) == 1
        every = memory.facts(history=True)
        assert {("Berlin" in fact.content, fact.superseded_at is None) for fact in every} == {
            (True, False),
            (False, True),
        }

    @pytest.mark.parametrize(
        ("older", "newer", "now"),
        [
            ("I live in Leeds.", "We've moved to York.", "Place: We've moved to York"),
            ("我住在杭州。", "我们家搬到成都了。", "地点: 我们家搬到成都了"),
            ("The budget is 900.", "Make that 1100.", "Number: The budget is 1100"),
            ("预算是900。", "改成1100吧。", "数值: 预算是1100"),
        ],
    )
    def test_a_move_and_a_bare_correction_retire_what_held_before(
        self, memory: loom.Memory, older: str, newer: str, now: str
    ) -> None:
        say(memory, older)
        memory.remember("Noted.", role="assistant", session_id="s1", created_at=MONDAY + timedelta(seconds=5))
        at = MONDAY + timedelta(minutes=1)
        memory.remember(newer, role="user", name="Ana", session_id="s1", created_at=at)
        assert known(memory) == [now]
        assert len(memory.facts(history=True)) == 2

    def test_a_bare_correction_draws_on_what_it_corrects(self, memory: loom.Memory) -> None:
        first = say(memory, "The budget of the choir is 900.")
        memory.flush()
        say(memory, "Make that 1100.")
        assert known(memory) == ["Number: The budget of the choir is 1100"]
        memory.forget(first)
        assert known(memory) == []

    def test_a_bare_correction_of_another_session_or_day_corrects_nothing(self, memory: loom.Memory) -> None:
        say(memory, "The budget is 900.")
        say(memory, "Make that 1100.", session_id="s2")
        say(memory, "Make that 1200.", day=3)
        assert known(memory) == ["Number: The budget is 900"]

    def test_what_was_said_earlier_and_comes_later_does_not_take_the_place_of_what_holds(
        self, memory: loom.Memory
    ) -> None:
        say(memory, "I live in Paris.", day=5)
        memory.flush()
        say(memory, "I live in Berlin.", day=0)
        assert all("Paris" in fact for fact in known(memory))
        assert any("Berlin" in fact.content for fact in memory.facts(as_of=MONDAY + timedelta(days=1)))

    def test_moving_back_makes_the_first_one_hold_again(self, memory: loom.Memory) -> None:
        for day, city in enumerate(("Berlin", "Paris", "Berlin")):
            say(memory, f"I live in {city}.", day=day)
            memory.flush()
        (fact,) = known(memory)
        assert "Berlin" in fact

    def test_forgetting_a_source_takes_the_fact_away(self, memory: loom.Memory) -> None:
        source = say(memory, "I live in Berlin.")
        assert known(memory)
        receipt = memory.forget(source)
        assert receipt.derived == 1
        assert known(memory) == []

    def test_forgetting_one_of_two_sources_draws_it_again_from_the_other(self, memory: loom.Memory) -> None:
        first = say(memory, "I live in Berlin.")
        second = say(memory, "I live in Berlin.", day=1)
        memory.flush()
        memory.forget(first)
        memory.flush()
        (fact,) = memory.facts()
        assert fact.sources == [second]

    def test_forgetting_what_took_the_place_brings_the_older_one_back(self, memory: loom.Memory) -> None:
        say(memory, "I live in Berlin.")
        newer = say(memory, "I live in Paris now.", day=5)
        memory.flush()
        memory.forget(newer)
        assert [("Berlin" in fact) for fact in known(memory)] == [True]

    def test_are_not_among_what_is_recalled_or_listed_unless_asked_for(self, memory: loom.Memory) -> None:
        source = say(memory, "We decided to use PostgreSQL for the orders service.")
        memory.flush()
        assert [hit.id for hit in memory.recall("PostgreSQL orders service")] == [source]
        assert [record.id for record in memory.list().records] == [source]
        assert memory.recall("PostgreSQL", kind="fact")
        assert memory.list(derived=True).records

    def test_one_that_was_undone_is_not_drawn_again(self, memory: loom.Memory) -> None:
        say(memory, "I live in Berlin.")
        memory.flush()
        (fact,) = memory.facts()
        assert memory.undo(fact.id).restored == ()
        assert known(memory) == []
        assert [one.id for one in memory.facts(history=True)] == [fact.id]

    def test_are_not_drawn_where_nobody_wants_them(self, tmp_path: Path) -> None:
        with loom.open(tmp_path / "b.loom", embedder="none", derive=False) as memory:
            say(memory, "I live in Berlin.")
            assert known(memory) == []

    def test_what_one_process_left_undone_another_does(self, tmp_path: Path) -> None:
        with loom.open(tmp_path / "b.loom", embedder="none", derive=False) as memory:
            say(memory, "I live in Berlin.")
        with loom.open(tmp_path / "b.loom", embedder="none") as memory:
            assert len(known(memory)) == 1

    def test_come_from_a_model_where_one_is_given(self, tmp_path: Path) -> None:
        asked: list[str] = []

        def model(prompt: str) -> str:
            asked.append(prompt)
            return '{"type": "identity", "content": "Ana is a nurse", "key": null, "value": null, "confidence": 0.9}'

        with loom.open(tmp_path / "b.loom", embedder="none", llm=model) as memory:
            say(memory, "Ana is a nurse, by the way.")
            assert any("nurse" in fact for fact in known(memory))
            assert asked

    def test_a_model_that_fails_costs_nothing_but_its_answer(self, tmp_path: Path) -> None:
        def broken(prompt: str) -> str:
            raise ConnectionError("no route")

        with loom.open(tmp_path / "b.loom", embedder="none", llm=broken) as memory:
            say(memory, "I live in Berlin.")
            memory.flush(timeout_s=30)
            assert memory.recall("Berlin")


class TestUndo:
    def test_of_something_that_was_remembered_is_refused(self, memory: loom.Memory) -> None:
        source = say(memory, "Tea.")
        with pytest.raises(InvalidInput, match="forget"):
            memory.undo(source)

    def test_of_something_unknown_is_refused(self, memory: loom.Memory) -> None:
        with pytest.raises(NotFound):
            memory.undo("nothing")

    def test_twice_is_refused(self, memory: loom.Memory) -> None:
        say(memory, "I live in Berlin.")
        memory.flush()
        (fact,) = memory.facts()
        memory.undo(fact.id)
        with pytest.raises(InvalidInput, match="nothing to undo"):
            memory.undo(fact.id)


def test_each_record_is_read_after_what_its_session_said_before(
    memory: loom.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, object]] = []

    def extract(_: FactExtractor, source: Record, **options: object) -> Extraction:
        read.append((source.content, options["before"]))
        return Extraction([])

    monkeypatch.setattr(FactExtractor, "extract_with_mentions", extract)
    say(memory, "When shall we deploy?")
    memory.flush()
    say(memory, "Is anybody there?", session_id="s2")
    say(memory, "Tuesday.", name="Ben")
    memory.flush()
    assert read == [
        ("When shall we deploy?", ""),
        ("Is anybody there?", ""),
        ("Tuesday.", "When shall we deploy?"),
    ]
