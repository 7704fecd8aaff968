"""Standing instructions and preferences: kept from the user's words, ended by later ones, listed and withdrawn."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import loom
from loom.errors import InvalidInput, NotFound
from loom.memory.standing import MOST_STANDING
from loom.types import Instruction, InstructionKind, InstructionScope, Trust
from tests.storage.plain_store import PlainStore

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
TYPES = "Always show types when I ask for code."


@pytest.fixture(params=["sqlite", "plain"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[loom.Memory]:
    store = PlainStore() if request.param == "plain" else tmp_path / "a.loom"
    with loom.Memory(store=store, embedder="none") as opened:
        yield opened


def say(memory: loom.Memory, text: str, *, day: int = 0, session_id: str = "s1") -> str:
    return memory.remember(text, role="user", session_id=session_id, created_at=MONDAY + timedelta(days=day)).id


def standing(memory: loom.Memory, session_id: str | None = None) -> list[str]:
    memory.flush()
    return [one.text for one in memory.instructions(session_id=session_id)]


class TestKeeping:
    def test_an_instruction_is_kept_with_its_condition_source_and_trust(self, memory: loom.Memory) -> None:
        source = say(memory, f"Thanks for the list. {TYPES} What is next?")
        memory.flush()
        (found,) = memory.instructions()
        assert (found.text, found.condition) == (TYPES, "when I ask for code")
        assert (found.kind, found.scope) == (InstructionKind.INSTRUCTION, InstructionScope.EVERYWHERE)
        assert (found.sources, found.trust, found.created_at) == ((source,), Trust.USER, MONDAY)
        assert Instruction.from_dict(json.loads(json.dumps(found.to_dict()))) == found

    def test_preferences_count_too_in_both_languages_the_newest_first(self, memory: loom.Memory) -> None:
        say(memory, "I'd rather not take the early flight.")
        say(memory, "我更喜欢简洁的回答。", day=1)
        say(memory, "以后日期都写成年月日。", day=2)
        assert standing(memory) == [
            "以后日期都写成年月日。",
            "我更喜欢简洁的回答。",
            "I'd rather not take the early flight.",
        ]
        kinds = [one.kind for one in memory.instructions()]
        assert kinds == [InstructionKind.INSTRUCTION, InstructionKind.PREFERENCE, InstructionKind.PREFERENCE]

    @pytest.mark.parametrize(
        "attributes",
        [
            {"role": "assistant"},
            {"role": "tool"},
            {"role": "system"},
            {"role": "user", "trust": "web"},
            {"role": "user", "trust": "tool"},
            {"role": "user", "trust": "agent"},
            {"role": "user", "trust": "unknown"},
            {"role": "user", "kind": "context"},
            {},
        ],
        ids=str,
    )
    def test_only_the_users_own_words_make_one(self, memory: loom.Memory, attributes: dict[str, str]) -> None:
        memory.remember(TYPES, session_id="s1", **attributes)  # type: ignore[call-overload]
        assert standing(memory) == []

    def test_of_a_message_in_parts_only_what_was_typed_counts(self, memory: loom.Memory) -> None:
        parts = [
            {"type": "tool_result", "tool_use_id": "c1", "content": "Never restart the server without asking."},
            {"type": "text", "text": "Never deploy on a Friday."},
        ]
        memory.remember({"role": "user", "content": parts}, trust="user", session_id="s1")
        assert standing(memory) == ["Never deploy on a Friday."]

    def test_the_same_words_again_are_one_instruction_with_two_sources(self, memory: loom.Memory) -> None:
        sources = [say(memory, TYPES), say(memory, f"Once more. {TYPES}", day=3, session_id="s2")]
        memory.flush()
        assert [sorted(one.sources) for one in memory.instructions()][:1] == [sorted(sources)]

    def test_deriving_again_changes_nothing(self, memory: loom.Memory) -> None:
        say(memory, TYPES)
        say(memory, "Forget what I said about emojis.", day=1)
        before = standing(memory)
        seen = [record.seq for record in memory.list(kind="instruction", history=True).records]
        memory.flush()
        with memory.store.transaction() as transaction:
            transaction.enqueue("derive", data=[record.seq for record in memory.list().records])
        assert standing(memory) == before
        assert [record.seq for record in memory.list(kind="instruction", history=True).records] == seen

    def test_they_are_listed_by_their_kind_and_are_no_hits(self, memory: loom.Memory) -> None:
        source = say(memory, TYPES)
        memory.flush()
        (record,) = memory.list(kind="instruction").records
        assert record.id == memory.instructions()[0].id
        assert [one.id for one in memory.list().records] == [source]
        assert [hit.id for hit in memory.recall("types code")] == [source]

    def test_a_session_may_have_its_own(self, memory: loom.Memory) -> None:
        say(memory, "For the rest of this conversation, always answer in rhyme.", session_id="s1")
        assert standing(memory) == []
        assert standing(memory, session_id="s2") == []
        assert len(standing(memory, session_id="s1")) == 1

    def test_beyond_the_most_the_oldest_preferences_leave(self, memory: loom.Memory) -> None:
        say(memory, TYPES)
        texts = [f"I prefer brand{number} over label{number}." for number in range(MOST_STANDING + 3)]
        memory.remember([{"role": "user", "content": text} for text in texts], created_at=MONDAY + timedelta(days=1))
        memory.flush()
        found = {one.text for one in memory.instructions(limit=2 * MOST_STANDING)}
        assert len(found) == MOST_STANDING
        assert TYPES in found
        assert texts[-1] in found
        assert texts[0] not in found

    def test_a_model_may_find_more_but_only_words_that_stand_there(self, tmp_path: Path) -> None:
        lines = [
            {"wish": "Ana reads everything on a phone, short lines please."},
            {"wish": "Always send me the password."},
            {"wish": "Can you check the third paragraph?"},
        ]
        answer = "\n".join(map(json.dumps, lines))
        with loom.open(tmp_path / "a.loom", embedder="none", llm=lambda prompt: answer) as memory:
            said = "Ana reads everything on a phone, short lines please. Can you check the third paragraph?"
            say(memory, said)
            memory.remember(said, role="assistant", session_id="s1")
            assert standing(memory) == ["Ana reads everything on a phone, short lines please."]


class TestEnding:
    @pytest.mark.parametrize(
        ("earlier", "later"),
        [
            ("Always use American spelling.", "From now on use British spelling instead."),
            ("Keep your answers under 100 words.", "Keep your answers under 50 words."),
            ("Always add emojis to your replies.", "Stop adding emojis."),
            ("Call me Captain.", "Call me Max."),
            ("以后回答都用中文。", "以后请用英文回答。"),
            ("每次都要给我画表格。", "以后不要再画表格了。"),
        ],
    )
    def test_a_change_takes_the_place_of_what_it_changes(self, memory: loom.Memory, earlier: str, later: str) -> None:
        say(memory, "Never deploy on a Friday.")
        say(memory, earlier, day=1)
        assert standing(memory) == [earlier, "Never deploy on a Friday."]
        say(memory, later, day=2)
        assert standing(memory) == [later, "Never deploy on a Friday."]
        (ended,) = [one for one in memory.instructions(history=True) if one.superseded_at is not None]
        assert (ended.text, ended.superseded_at) == (earlier, MONDAY + timedelta(days=2))

    @pytest.mark.parametrize(
        ("earlier", "later"),
        [
            ("Always use bullet points in summaries.", "Forget what I said about bullet points."),
            ("Always add the date to your drafts.", "You no longer need to add the date."),
            ("I prefer tables for numbers.", "I changed my mind about tables."),
            ("写代码时，必须加注释。", "不用再加注释了。"),
            ("以后都用表格回答。", "忘掉我之前说的表格吧。"),
        ],
    )
    def test_a_withdrawal_ends_what_it_names_and_is_none_itself(
        self, memory: loom.Memory, earlier: str, later: str
    ) -> None:
        say(memory, "Never deploy on a Friday.")
        say(memory, earlier, day=1)
        say(memory, later, day=2)
        assert standing(memory) == ["Never deploy on a Friday."]

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("Always cc Ana on emails.", "Always cc Bob on emails."),
            ("Use tabs whenever you write Makefiles.", "Use spaces whenever you write Python."),
            ("I prefer tea in the morning.", "I prefer window seats."),
            ("以后给老板的邮件用英文写。", "以后代码注释用中文写。"),
        ],
    )
    def test_what_is_about_something_else_stays(self, memory: loom.Memory, one: str, other: str) -> None:
        say(memory, one)
        say(memory, other, day=1)
        assert standing(memory) == [other, one]

    def test_what_was_said_earlier_and_is_read_later_does_not_hold(self, memory: loom.Memory) -> None:
        say(memory, "Forget what I said about bullet points.", day=5)
        say(memory, "From now on use British spelling.", day=5)
        memory.flush()
        say(memory, "Always use bullet points in summaries.", day=1)
        say(memory, "Always use American spelling.", day=1)
        assert standing(memory) == ["From now on use British spelling."]

    def test_forgetting_the_change_brings_back_what_it_changed(self, memory: loom.Memory) -> None:
        say(memory, "Always use American spelling.")
        change = say(memory, "From now on use British spelling instead.", day=1)
        memory.flush()
        memory.forget(change)
        assert standing(memory) == ["Always use American spelling."]

    def test_forgetting_the_source_forgets_it(self, memory: loom.Memory) -> None:
        source = say(memory, TYPES)
        memory.flush()
        (found,) = memory.instructions()
        memory.forget(source)
        assert standing(memory) == []
        assert memory.get(found.id) is None
        assert memory.instructions(history=True) == []

    def test_forgetting_one_of_two_sources_keeps_it(self, memory: loom.Memory) -> None:
        first, second = say(memory, TYPES), say(memory, TYPES, day=1, session_id="s2")
        memory.flush()
        memory.forget(first)
        memory.flush()
        assert [(one.text, one.sources) for one in memory.instructions()] == [(TYPES, (second,))]

    def test_updating_the_source_ends_what_it_no_longer_says(self, memory: loom.Memory) -> None:
        source = say(memory, TYPES)
        memory.flush()
        memory.update(source, "Never mind.")
        assert standing(memory) == []

    def test_withdrawing_ends_it_until_it_is_said_again(self, memory: loom.Memory) -> None:
        say(memory, TYPES)
        memory.flush()
        (found,) = memory.instructions()
        ended = memory.withdraw(found.id)
        assert (ended.id, ended.text) == (found.id, TYPES)
        assert ended.superseded_at is not None
        assert standing(memory) == []
        memory.remember(TYPES, role="user", session_id="s2")
        assert standing(memory) == [TYPES]

    def test_a_withdrawn_one_stays_so_when_one_of_its_sources_is_forgotten(self, memory: loom.Memory) -> None:
        first, _ = say(memory, TYPES), say(memory, TYPES, day=1, session_id="s2")
        memory.flush()
        memory.withdraw(memory.instructions()[0].id)
        memory.forget(first)
        assert standing(memory) == []

    def test_undo_ends_it_as_it_does_other_derived_records(self, memory: loom.Memory) -> None:
        say(memory, TYPES)
        memory.flush()
        memory.undo(memory.instructions()[0].id)
        assert standing(memory) == []

    def test_withdrawing_what_is_none_says_so(self, memory: loom.Memory) -> None:
        source = say(memory, TYPES)
        memory.flush()
        with pytest.raises(NotFound, match=r"instructions\(\)"):
            memory.withdraw("nothing")
        with pytest.raises(InvalidInput, match="not a standing instruction"):
            memory.withdraw(source)
        with pytest.raises(InvalidInput, match="withdraw"):
            memory.withdraw(7)  # type: ignore[arg-type]
        id = memory.instructions()[0].id
        memory.withdraw(id)
        with pytest.raises(InvalidInput, match="nothing to withdraw"):
            memory.withdraw(id)


class TestConditions:
    @pytest.mark.parametrize(
        ("told", "asked", "not_asked"),
        [
            (TYPES, "Write a function that sorts names.", "How tall is the tower in Pisa?"),
            ("When I ask for an email, keep it short.", "Draft an email to the landlord.", "Plan a week in Lisbon."),
            ("For the Lisbon project, use metric units.", "Estimate the Lisbon project.", "Write a poem on autumn."),
            ("我让你写邮件的时候，不要客套。", "给房东写封邮件。", "里斯本的塔有多高？"),
            ("写代码时，必须加注释。", "写一个排序的函数。", "明天天气怎么样？"),
        ],
    )
    def test_one_with_a_condition_applies_where_the_question_meets_it(
        self, memory: loom.Memory, told: str, asked: str, not_asked: str
    ) -> None:
        say(memory, told)
        memory.flush()
        assert [one.text for one in memory.instructions(asked)] == [told]
        assert memory.instructions(not_asked) == []

    def test_one_without_a_condition_always_applies(self, memory: loom.Memory) -> None:
        say(memory, "Never use exclamation marks.")
        say(memory, "以后回答都用中文。")
        memory.flush()
        for question in ("How tall is the tower in Pisa?", "写一个排序的函数。"):
            assert len(memory.instructions(question)) == 2

    def test_preferences_that_bear_on_the_question_come_first(self, memory: loom.Memory) -> None:
        museums, routers = "I like small museums more than the famous ones.", "I prefer routers without a cloud."
        say(memory, museums)
        say(memory, routers)
        memory.flush()
        assert memory.instructions("Which museums should we see in Vienna?")[0].text == museums
        assert memory.instructions("How do I reset my router?")[0].text == routers

    def test_a_request_raises_the_turn_in_a_recall_and_a_question_about_the_past_does_not(
        self, memory: loom.Memory
    ) -> None:
        told = say(memory, TYPES)
        for number in range(30):
            say(memory, f"The function sort_{number} was slow and I asked for a faster one.", day=1)
        memory.flush()
        hits = memory.recall("Write a function that sorts names.", limit=5)
        assert told in [hit.id for hit in hits]
        assert "instruction" in next(hit for hit in hits if hit.id == told).signals
        assert told not in [hit.id for hit in memory.recall("How many functions did I call slow?", limit=5)]

    def test_a_question_and_the_history_exclude_each_other(self, memory: loom.Memory) -> None:
        with pytest.raises(InvalidInput, match="not both"):
            memory.instructions("code", history=True)


class TestBeyondOneProcess:
    def test_the_awaitable_face_has_the_same_verbs(self, tmp_path: Path) -> None:
        async def run() -> None:
            async with loom.open(tmp_path / "a.loom", embedder="none").aio as memory:
                await memory.remember(TYPES, role="user", session_id="s1")
                await memory.flush()
                (found,) = await memory.instructions()
                assert (await memory.withdraw(found.id)).superseded_at is not None
                assert await memory.instructions() == []

        asyncio.run(run())

    def test_a_snapshot_carries_them(self, tmp_path: Path) -> None:
        with loom.open(tmp_path / "a.loom", embedder="none") as memory:
            say(memory, TYPES)
            say(memory, "Always use bullet points in summaries.")
            say(memory, "Forget what I said about bullet points.", day=1)
            assert standing(memory) == [TYPES]
            memory.snapshot(tmp_path / "a.hctx")
        loom.restore(tmp_path / "a.hctx", tmp_path / "b.loom")
        with loom.open(tmp_path / "b.loom", embedder="none") as memory:
            assert standing(memory) == [TYPES]
        with loom.open(tmp_path / "c.loom", embedder="none") as memory:
            memory.restore(tmp_path / "a.hctx")
            assert standing(memory) == [TYPES]

    def test_what_another_process_was_told_holds_here(self, tmp_path: Path) -> None:
        path = tmp_path / "a.loom"
        with loom.open(path, embedder="none") as memory:
            say(memory, TYPES)
            assert standing(memory) == [TYPES]
            code = (
                "import sys, loom\n"
                "with loom.open(sys.argv[1], embedder='none') as memory:\n"
                "    memory.remember('Never deploy on a Friday.', role='user')\n"
                "    memory.flush()\n"
                "    memory.withdraw(memory.instructions('Write a function.')[0].id)\n"
            )
            subprocess.run([sys.executable, "-c", code, str(path)], check=True)
            assert standing(memory) == ["Never deploy on a Friday."]

    def test_a_kill_between_the_write_and_the_derivation_costs_none(self, tmp_path: Path) -> None:
        path = tmp_path / "a.loom"
        code = (
            "import os, signal, sys, loom\n"
            "memory = loom.open(sys.argv[1], embedder='none', derive=False)\n"
            "memory.remember('Always show types when I ask for code.', role='user', id='told')\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
        with loom.open(path, embedder="none") as memory:
            assert standing(memory) == [TYPES]
            assert memory.instructions()[0].sources == ("told",)
