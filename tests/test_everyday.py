"""The everyday verbs: their arguments, results, errors and guarantees."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.drafts import AttributeValues
from loom.errors import Closed, IdConflict, InvalidInput, LoomError, NotFound, ReadOnly, UnknownFilter
from loom.everyday import AsyncMemory, Memory
from loom.memory.core import LoomMemory
from loom.memory.manager import MemoryManager
from loom.memory.verbs import MemoryVerbs
from loom.models.embedders import FakeEmbedder
from loom.protocol import Task, TaskStatus
from loom.storage.contract import Dimensions, Filter, Record
from loom.text.sanitizer import ContentSanitizer
from loom.types import Filters

START = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)


class FakeClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> datetime:
        self.now += timedelta(**by)
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["file", "memory", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Memory]:
    place = tmp_path / "agent.loom" if request.param == "file" else None
    if request.param == "postgres":
        place = request.getfixturevalue("postgres_url")
    with loom.open(place, embedder="none", clock=clock) as opened:
        yield opened


def existing(memory: Memory, id: str) -> Record:
    record = memory.get(id)
    assert record is not None
    return record


# --- the shape of the verbs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        (
            "remember",
            ["id", "role", "name", "session_id", "created_at", "importance", "metadata", "trust"],
        ),
        ("recall", ["limit", "session_id", "tier", "since", "until", "as_of", "known_at", "where"]),
        ("list", ["limit", "after"]),
        ("update", ["id", "text"]),
        ("get", ["id"]),
        ("pin", ["id"]),
        ("unpin", ["id"]),
        ("forget", ["id"]),
        ("backup", ["path"]),
        ("flush", []),
        ("check", []),
        ("get_stats", []),
        ("close", []),
    ],
)
def test_each_verb_takes_the_arguments_of_the_design(verb: str, arguments: list[str]) -> None:
    parameters = inspect.signature(getattr(Memory, verb)).parameters
    filters = Filters.__optional_keys__
    named = {"remember": AttributeValues.__optional_keys__, "recall": filters, "list": filters, "forget": filters}
    assert set(arguments) <= parameters.keys() | named.get(verb, frozenset())


def test_open_takes_the_arguments_of_the_design(tmp_path: Path) -> None:
    with loom.open(
        tmp_path / "a.loom",
        namespace="n",
        node_id="agent-7",
        profile="loom",
        read_only=False,
        l1_token_budget=4000,
        embedder="none",
    ) as memory:
        assert memory.store.namespace == "n"
        assert memory.settings.l1_token_budget == 4000
        assert memory.get_stats()["l1_token_budget"] == 4000
        receipt = memory.remember("of that node")
        assert existing(memory, receipt.id).node == "agent-7"


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    unknown: dict[str, Any] = {"colour": "red"}
    with pytest.raises(InvalidInput, match=r"has no option 'colour'.*the options are"):
        loom.open(tmp_path / "a.loom", **unknown)
    assert not (tmp_path / "a.loom").exists()


# --- remember ---------------------------------------------------------------------------------------------


def test_everything_said_about_a_memory_is_kept(memory: Memory) -> None:
    made = START - timedelta(days=3)
    place = Dimensions(subject="subject", flow="state", layer="type")
    receipt = memory.remember(
        "We chose the authorization-code flow.\n\n  Indented\ttext stays.  ",
        id="choice",
        role="user",
        name="Ana",
        session_id="s1",
        created_at=made,
        importance=0.75,
        metadata={"topic": "login", "tags": ["a", "b"], "n": 3, "deep": {"x": None}},
        trust="web",
        kind="fact",
        dimensions=place,
    )
    record = existing(memory, "choice")
    assert (receipt.id, receipt.tier, receipt.version, receipt.created) == ("choice", "l1", 1, True)
    assert record.content == "We chose the authorization-code flow.\n\n  Indented\ttext stays.  "
    assert (record.role, record.name, record.session_id) == ("user", "Ana", "s1")
    assert record.created_at == made
    assert record.committed_at >= START
    assert (record.importance, record.trust, record.kind) == (0.75, "web", "fact")
    assert record.dimensions == place
    assert record.metadata == {"topic": "login", "tags": ["a", "b"], "n": 3, "deep": {"x": None}}
    assert record.superseded_at is None
    assert memory.store.tiers(record.seq, "default") == ("l1", "l2")  # 0.75 is important


class Speaker(str, Enum):  # noqa: UP042  # not a `StrEnum`: its members print as their names
    USER = "user"


def test_a_member_of_an_enumeration_of_texts_is_stored_as_its_value(memory: Memory) -> None:
    user = Speaker.USER
    memory.remember("The first one.", id=user, role=user, name=user, session_id=user, kind=user)
    memory.remember({"role": user, "content": user})
    first, second = memory.list().records[::-1]
    assert (first.id, first.role, first.name, first.session_id, first.kind) == ("user",) * 5
    assert (second.role, second.content, second.trust) == ("user", "user", "user")
    assert memory.get(user) == first
    assert [hit.id for hit in memory.recall("first one", session_id=user, role=user)] == ["user"]
    assert memory.check().ok


def test_tokens_are_exact_and_carry_the_name_of_their_counter(memory: Memory) -> None:
    text = "Tokens are counted once: 记忆比上下文更大。"
    receipt = memory.remember(text)
    record = existing(memory, receipt.id)
    assert receipt.tokens == record.tokens == memory.counter.count(text) > 0
    assert record.counter == "cl100k_base"
    assert memory.remember("hello world").tokens == 2


@pytest.mark.parametrize(
    ("role", "trust"),
    [
        ("user", "user"),
        ("assistant", "agent"),
        ("system", "agent"),
        ("tool", "tool"),
        ("stranger", "unknown"),
        (None, "unknown"),
    ],
)
def test_trust_follows_from_the_role_where_it_is_not_said(memory: Memory, role: str | None, trust: str) -> None:
    assert existing(memory, memory.remember("text", role=role).id).trust == trust


def test_new_ids_are_unique_and_ascend(memory: Memory) -> None:
    ids = [memory.remember("the same text").id for _ in range(50)]
    assert len(set(ids)) == 50
    assert ids == sorted(ids)


def test_the_same_id_and_text_again_changes_nothing(memory: Memory) -> None:
    first = memory.remember("text", id="x")
    again = memory.remember("text", id="x")
    assert (first.created, again.created) == (True, False)
    assert (again.id, again.version, again.tokens) == ("x", 1, first.tokens)
    assert len(memory.history("x")) == 1


def test_another_text_under_an_id_is_an_error_and_changes_nothing(memory: Memory) -> None:
    memory.remember("text", id="x")
    with pytest.raises(IdConflict, match="'x'"):
        memory.remember("other text", id="x")
    assert existing(memory, "x").content == "text"
    assert memory.recall("other") == []


def test_a_receipt_may_be_awaited(memory: Memory) -> None:
    async def use() -> loom.Receipt:
        return await memory.remember("awaited", id="x")

    assert asyncio.run(use()).id == "x"


@pytest.mark.parametrize("importance", [-0.1, 1.1, float("nan"), float("inf")])
def test_importance_is_from_zero_to_one(memory: Memory, importance: float) -> None:
    with pytest.raises(InvalidInput, match="importance"):
        memory.remember("text", importance=importance)
    assert memory.get_stats()["records"] == 0


def test_a_time_may_be_text_with_an_offset_in_every_verb(memory: Memory, clock: FakeClock) -> None:
    memory.remember("harbour", id="x", created_at="2026-05-01T18:00:00+08:00")
    memory.remember({"role": "user", "content": "harbour", "id": "y", "created_at": "2026-05-03T00:00:00Z"})
    memory.add_fact("Porto has a harbour.", fact_type="domain_knowledge")
    assert existing(memory, "x").created_at == datetime(2026, 5, 1, 10, tzinfo=UTC)
    between = "2026-05-02T00:00:00+00:00"
    assert [hit.id for hit in memory.recall("harbour", until=between, kind="message")] == ["x"]
    assert [record.id for record in memory.list(since=between, kind="message")] == ["y"]
    assert memory.facts(as_of=between) == []
    assert memory.recall("harbour", known_at=between) == memory.recall("harbour", as_of="2026-04-01T00:00:00Z") == []
    assert memory.archive("2026-05-02T00:00:00+00:00").records in (0, 1)
    assert memory.forget(until=between).ids == ("x",)


@pytest.mark.parametrize("moment", ["2026-05-01", "2026-05-01T18:00:00", "yesterday", 7])
def test_a_text_without_an_offset_is_no_time(memory: Memory, moment: Any) -> None:
    for use in (
        lambda: memory.remember("text", created_at=moment),
        lambda: memory.recall("text", since=moment),
        lambda: memory.list(until=moment),
        lambda: memory.forget(as_of=moment),
        lambda: memory.facts(as_of=moment),
        lambda: memory.archive(moment),
    ):
        with pytest.raises(InvalidInput, match=r"add its offset|ISO 8601"):
            use()


def test_times_keep_their_moment_whatever_their_zone(memory: Memory) -> None:
    there = datetime(2026, 5, 4, 18, 30, 15, 123456, tzinfo=timezone(timedelta(hours=8)))
    record = existing(memory, memory.remember("text", created_at=there).id)
    assert record.created_at == there
    assert record.created_at.utcoffset() == timedelta(0)


# --- remembering tasks ------------------------------------------------------------------------------------


def test_a_task_is_found_by_what_it_did(memory: Memory) -> None:
    task = Task(
        action="fetch_weather",
        parameters={"city": "Lisbon", "days": 3},
        session_id="s9",
        source_agent="planner",
        metadata={"importance": 0.9},
    )
    receipt = memory.remember(task)
    record = existing(memory, task.task_id)
    assert receipt.id == task.task_id
    assert (record.kind, record.name, record.session_id) == ("task", "planner", "s9")
    assert record.importance == 0.9
    assert record.created_at == task.created_at
    assert Task.from_dict(record.data) == task
    assert [hit.id for hit in memory.recall("weather in Lisbon")] == [task.task_id]


def test_a_task_that_changed_is_the_next_version_of_its_id(memory: Memory, clock: FakeClock) -> None:
    task = Task(task_id="t", action="build", created_at=START)
    assert memory.remember(task).version == 1
    assert not memory.remember(task).created
    clock.move(minutes=1)
    task.status = TaskStatus.RUNNING
    assert memory.remember(task).version == 2
    clock.move(minutes=1)
    task.status, task.result = TaskStatus.COMPLETED, {"artifact": "wheel-77"}
    assert memory.remember(task).version == 3
    clock.move(minutes=1)
    assert not memory.remember(task).created
    history = memory.history("t")
    assert [record.data["status"] for record in history] == ["pending", "running", "completed"]
    assert [record.superseded_at is None for record in history] == [False, False, True]
    assert [hit.version for hit in memory.recall("wheel-77")] == [3]
    assert [record.version for record in memory.list(kind="task").records] == [3]


def test_a_failed_task_is_found_by_its_error(memory: Memory) -> None:
    task = Task(action="deploy", error="disk quota exceeded", status=TaskStatus.FAILED)
    memory.remember(task)
    assert memory.recall("quota exceeded")[0].id == task.task_id


def test_a_task_is_kept_under_its_own_id(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="task_id"):
        memory.remember(Task(task_id="t", action="a"), id="other")
    assert memory.remember(Task(task_id="t", action="a"), id="t").id == "t"


def test_a_task_that_json_cannot_carry_is_refused(memory: Memory) -> None:
    with pytest.raises(InvalidInput):
        memory.remember(Task(action="a", result=object()))
    assert memory.get_stats()["records"] == 0


# --- remembering chat messages ----------------------------------------------------------------------------


def test_chat_messages_keep_their_roles_names_and_form(memory: Memory) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You help with travel."},
        {
            "role": "user",
            "name": "Ana",
            "content": [{"type": "text", "text": "Is it raining"}, {"type": "text", "text": "in Oslo?"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "drizzle, 4 degrees"},
        {"role": "assistant", "content": "Yes, light drizzle.", "id": "answer", "metadata": {"turn": 2}},
    ]
    receipts = memory.remember(messages, session_id="s1", metadata={"source": "chat"})
    records = [existing(memory, receipt.id) for receipt in receipts]
    assert [record.role for record in records] == ["system", "user", "assistant", "tool", "assistant"]
    assert [record.trust for record in records] == ["agent", "user", "agent", "tool", "agent"]
    assert {record.session_id for record in records} == {"s1"}
    assert records[1].content == "Is it raining\nin Oslo?"
    assert records[1].name == "Ana"
    assert records[1].data["content"] == messages[1]["content"]
    assert "get_weather" in records[2].content
    assert records[2].data["tool_calls"] == [call]
    assert records[3].data["tool_call_id"] == "c1"
    assert records[4].data is None
    assert receipts[4].id == "answer"
    assert records[4].metadata == {"source": "chat", "turn": 2}
    assert [record.seq for record in records] == sorted(record.seq for record in records)
    assert memory.recall("get_weather Oslo")[0].id == receipts[2].id
    assert memory.recall("drizzle degrees")[0].id == receipts[3].id


def test_parts_of_other_providers_are_read_too(memory: Memory) -> None:
    receipt = memory.remember(
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking it up."},
                {"type": "tool_use", "id": "t1", "name": "search_flights", "input": {"to": "Porto"}},
                {"type": "image_url", "image_url": {"url": "https://example.test/p.png"}},
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "two flights"}]},
            ],
        }
    )
    content = existing(memory, receipt.id).content
    assert content.startswith("Looking it up.")
    assert "search_flights" in content
    assert "Porto" in content
    assert "two flights" in content


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": "user"},
        {"role": "user", "content": 7},
        {"role": "user", "content": [7]},
        {"role": "assistant", "tool_calls": ["x"]},
        {"role": 7, "content": "a"},
        {"role": "user", "content": "a", "name": ["b"]},
        {"role": "user", "content": "a", "metadata": "b"},
        {"role": "user", "content": "a", "created_at": "yesterday"},
        {"role": "user", "content": [{"text": "a"}], "extra": object()},
    ],
)
def test_a_message_without_content_or_with_nonsense_is_refused(memory: Memory, message: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        memory.remember(message)
    assert memory.get_stats()["records"] == 0


def test_a_batch_is_kept_whole_or_not_at_all(memory: Memory) -> None:
    memory.remember("taken", id="taken")
    wrong: list[Any] = ["  ", {"role": "user", "content": "other", "id": "taken"}, 7]
    for bad in wrong:
        batch = ["first", {"role": "user", "content": "second"}, bad, "last"]
        with pytest.raises(LoomError):
            memory.remember(batch)
    assert memory.get_stats()["records"] == 1
    assert memory.recall("first second last") == []
    mixed: list[Any] = ["one", {"role": "user", "content": "two"}, Task(task_id="t", action="three")]
    receipts = memory.remember(mixed)
    assert [existing(memory, receipt.id).content for receipt in receipts] == ["one", "two", "three"]


def test_a_batch_may_repeat_itself_and_may_be_empty(memory: Memory) -> None:
    assert memory.remember([]) == []
    receipts = memory.remember(
        [{"content": "same", "id": "x", "role": "user"}, {"content": "same", "id": "x", "role": "user"}]
    )
    assert [receipt.created for receipt in receipts] == [True, False]
    with pytest.raises(InvalidInput, match="one id cannot name a list"):
        memory.remember(["a", "b"], id="x")  # type: ignore[call-overload]


# --- recall -----------------------------------------------------------------------------------------------


def test_recall_finds_english_and_chinese_by_their_words(memory: Memory) -> None:
    memory.remember("We chose the authorization-code flow, it is the safest.", id="oauth", name="Ana", role="user")
    memory.remember("数据库备份在每天凌晨三点运行。", id="backup")
    memory.remember("Lunch is at noon.", id="lunch")
    (hit,) = memory.recall("Which OAuth authorization flow did we choose?", limit=5)
    assert (hit.id, hit.name, hit.role, hit.trust) == ("oauth", "Ana", "user", "user")
    assert hit.score > 0
    assert "flow" in hit.why
    assert [hit.id for hit in memory.recall("备份什么时候运行？")] == ["backup"]
    assert memory.recall("zeppelin") == []


def test_recall_order_is_the_same_every_time_with_ties_as_they_were_written(memory: Memory) -> None:
    for name in ("c", "a", "b", "d"):
        memory.remember(f"an equal sentence about harbours {name}", id=name)
    memory.remember("harbours harbours harbours harbours", id="zz")
    memory.flush()
    first = [hit.id for hit in memory.recall("harbours")]
    assert first == ["zz", "c", "a", "b", "d"]
    assert [hit.id for hit in memory.recall("harbours")] == first


def test_a_shorter_result_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none", index_tail_records=16) as memory:
        for number in range(100):
            memory.remember(f"an equal sentence about harbours {number:02}", id=f"{(number * 37) % 100:03}")
        memory.flush()
        best = [hit.id for hit in memory.recall("harbours", limit=100)]
        assert best == [f"{(number * 37) % 100:03}" for number in range(100)]
        for limit in (1, 2, 5, 10, 50):
            assert [hit.id for hit in memory.recall("harbours", limit=limit)] == best[:limit]


def test_recall_gives_as_many_as_there_are_up_to_the_limit(memory: Memory) -> None:
    for number in range(30):
        memory.remember(f"note {number} about harbours")
    assert len(memory.recall("harbours", limit=7)) == 7
    assert len(memory.recall("harbours", limit=100)) == 30
    assert len(memory.recall("harbours")) == 10
    for limit in (0, -1):
        with pytest.raises(InvalidInput, match="limit"):
            memory.recall("harbours", limit=limit)


@pytest.mark.parametrize("question", ["", "   \n"])
def test_an_empty_question_is_refused(memory: Memory, question: str) -> None:
    with pytest.raises(InvalidInput, match="question is empty"):
        memory.recall(question)


def test_a_question_of_function_words_only_finds_nothing_or_something_but_never_fails(memory: Memory) -> None:
    memory.remember("the who what")
    for question in ("?", "what is the", "!!!", "的", "😀"):
        assert isinstance(memory.recall(question), list)


def test_recall_narrows_by_every_filter(memory: Memory, clock: FakeClock) -> None:
    memory.remember("harbour one", id="1", session_id="s1", role="user", metadata={"port": "Porto"})
    clock.move(hours=1)
    memory.remember(
        "harbour two", id="2", session_id="s2", role="assistant", importance=0.9, metadata={"port": "Oslo"}
    )
    clock.move(hours=1)
    memory.remember("harbour three", id="3", session_id="s3", name="Ana", kind="fact", trust="web")

    def ids(**filters: Any) -> list[str]:
        return sorted(hit.id for hit in memory.recall("harbour", **filters))

    assert ids() == ["1", "2", "3"]
    assert ids(session_id="s1") == ["1"]
    assert ids(session_id=["s1", "s3"]) == ["1", "3"]
    assert ids(tier="l1") == ["1", "2", "3"]
    assert ids(tier="l4") == []
    assert ids(since=START + timedelta(hours=1)) == ["2", "3"]
    assert ids(until=START + timedelta(hours=1)) == ["1"]
    assert ids(where={"port": "Porto"}) == ["1"]
    assert ids(where={"port": ["Porto", "Oslo"]}) == ["1", "2"]
    assert ids(role="assistant") == ["2"]
    assert ids(name="Ana") == ["3"]
    assert ids(kind="fact") == ["3"]
    assert ids(trust="web") == ["3"]
    assert ids(min_importance=0.8) == ["2"]
    assert ids(ids=["2", "3", "9"]) == ["2", "3"]
    memory.pin("3")
    assert ids(pinned=True) == ["3"]
    misspelt: dict[str, Any] = {"sesion_id": "s1"}
    with pytest.raises(UnknownFilter, match="recall\\(\\) has no filter 'sesion_id'; did you mean 'session_id'"):
        memory.recall("harbour", **misspelt)
    metadata: dict[str, Any] = {"port": "Porto"}
    with pytest.raises(UnknownFilter, match="where"):
        memory.list(**metadata)


def test_recall_by_meaning_finds_what_words_alone_rank_lower(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder=FakeEmbedder(), clock=FakeClock()) as memory:
        memory.remember("gardens and rivers", id="a")
        memory.remember("rivers", id="b")
        report = memory.flush()
        assert report.complete
        hits = memory.recall("rivers")
        assert {hit.id for hit in hits} == {"a", "b"}
        assert hits[0].id == "b"
        assert {"words", "meaning"} <= set(hits[0].signals)
        assert "meaning" in hits[0].why
        assert hits == memory.recall("rivers")


def test_until_a_record_is_embedded_it_is_found_by_words(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder=FakeEmbedder()) as memory:
        memory.remember("anything", id="a")
        memory.flush()
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember("rivers at dawn", id="b")
        assert memory.flush().waiting == {"embed": 1}
        assert memory.recall("rivers")[0].id == "b"
    with loom.open(tmp_path / "a.loom", embedder=FakeEmbedder()) as memory:
        assert memory.flush().complete
        assert memory.get_stats()["vectors"] == 2
        assert "meaning" in memory.recall("rivers")[0].signals


# --- two times --------------------------------------------------------------------------------------------


def test_as_of_asks_what_was_valid_and_known_at_what_was_remembered(memory: Memory, clock: FakeClock) -> None:
    told = clock.move(days=1)
    # Told on the second day about something that has been so for a year.
    memory.remember("The office is in Lisbon.", id="office", created_at=START - timedelta(days=365))
    clock.move(days=1)
    moved = clock.move(days=1)
    memory.update("office", "The office is in Porto.")
    later = clock.move(days=1)

    def place(**times: Any) -> list[str]:
        return [re.sub(r".*in |\.", "", hit.content) for hit in memory.recall("Where is the office?", **times)]

    assert place() == ["Porto"]
    assert place(as_of=later) == ["Porto"]
    assert place(as_of=moved) == ["Porto"]
    assert place(as_of=moved - timedelta(seconds=1)) == ["Lisbon"]
    assert place(as_of=START - timedelta(days=364)) == ["Lisbon"]
    assert place(as_of=START - timedelta(days=366)) == []
    assert place(known_at=told - timedelta(seconds=1)) == []
    assert place(known_at=told + timedelta(seconds=1)) == ["Lisbon"]
    assert place(known_at=moved - timedelta(seconds=1)) == ["Lisbon"]
    assert place(known_at=later) == ["Porto"]
    # What we believed, before we were told of the move, about the time after it.
    assert place(as_of=later, known_at=moved - timedelta(seconds=1)) == ["Lisbon"]
    assert place(as_of=START, known_at=START) == []
    assert [record.content for record in memory.list(as_of=told).records] == ["The office is in Lisbon."]


def test_commit_times_never_go_back_with_the_clock(memory: Memory, clock: FakeClock) -> None:
    memory.remember("first", id="a")
    clock.move(days=-1)
    memory.remember("second", id="b")
    assert existing(memory, "b").committed_at > existing(memory, "a").committed_at
    assert existing(memory, "b").created_at < existing(memory, "a").created_at


# --- get, history, list, update, pin ----------------------------------------------------------------------


def test_get_counts_a_use_and_recall_does_not(memory: Memory, clock: FakeClock) -> None:
    memory.remember("harbours", id="x")
    record = memory.store.get("x")
    assert record is not None
    memory.recall("harbours")
    memory.list()
    memory.history("x")
    assert memory.store.accesses([record.seq], "default") == {}
    first = clock.move(minutes=1)
    memory.get("x")
    second = clock.move(minutes=1)
    memory.get("x")
    access = memory.store.accesses([record.seq], "default")[record.seq]
    assert (access.count, access.previous_at, access.last_at) == (2, first, second)
    assert memory.get("nobody") is None


def test_update_puts_a_new_version_in_place_and_keeps_the_rest(memory: Memory, clock: FakeClock) -> None:
    memory.remember(
        "The port is 8080.", id="x", role="user", name="Ana", session_id="s", importance=0.8, metadata={"a": 1}
    )
    at = clock.move(hours=1)
    receipt = memory.update("x", "The port is 9090.")
    record = existing(memory, "x")
    assert (receipt.version, receipt.created) == (2, True)
    assert (record.content, record.version) == ("The port is 9090.", 2)
    assert (record.role, record.name, record.session_id, record.importance) == ("user", "Ana", "s", 0.8)
    assert record.metadata == {"a": 1}
    assert record.trust == "user"
    assert record.created_at == at
    old, new = memory.history("x")
    assert (old.content, old.superseded_at) == ("The port is 8080.", at)
    assert new == record
    assert [hit.content for hit in memory.recall("port 8080")] == ["The port is 9090."]
    assert memory.list().records == (record,)
    assert {each.version for each in memory.list(history=True).records} == {1, 2}
    assert not memory.update("x", "The port is 9090.").created
    assert memory.update("x", "The port is 7070.", metadata={"b": 2}).version == 3
    assert existing(memory, "x").metadata == {"b": 2}


def test_an_update_that_changes_only_the_metadata_is_a_new_version(memory: Memory) -> None:
    memory.remember("text", id="x", metadata={"a": 1})
    assert memory.update("x", "text", metadata={"a": 2}).version == 2
    assert existing(memory, "x").metadata == {"a": 2}


def test_what_an_update_does_not_name_stays_as_it_was(memory: Memory) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "fetch", "arguments": "{}"}}
    memory.remember({"role": "assistant", "tool_calls": [call], "id": "x"}, metadata={"n": 1}, session_id="s1")
    old = existing(memory, "x")
    assert memory.update("x", importance=0.9).version == 2
    assert memory.update("x", metadata={"n": 2}).version == 3
    new = existing(memory, "x")
    assert (new.importance, new.metadata) == (0.9, {"n": 2})
    assert (new.content, new.data, new.session_id, new.role) == (old.content, old.data, "s1", "assistant")
    assert [record.metadata for record in memory.history("x")] == [{"n": 1}, {"n": 1}, {"n": 2}]
    memory.update("x", "other words")
    assert existing(memory, "x").data is None  # the message says something else


def test_an_update_of_nothing_is_refused_by_name(memory: Memory) -> None:
    memory.remember("text", id="x")
    with pytest.raises(InvalidInput, match=r"update\(\) needs a new text, new metadata or a new importance"):
        memory.update("x")
    with pytest.raises(InvalidInput, match=r"update\(\) needs"):
        memory.update("x", None)
    wrong: Any = 7
    with pytest.raises(InvalidInput, match=r"update\(\) takes text, not int"):
        memory.update("x", wrong)
    with pytest.raises(InvalidInput, match=r"for update\(\) to keep"):
        memory.update("x", "  ")
    assert existing(memory, "x").version == 1


def test_an_update_may_return_to_an_earlier_text(memory: Memory) -> None:
    memory.remember("red", id="x")
    memory.update("x", "blue")
    assert memory.update("x", "red").version == 3
    assert [hit.version for hit in memory.recall("red")] == [3]


def test_what_does_not_exist_cannot_be_updated_or_pinned(memory: Memory) -> None:
    calls: list[Callable[[], object]] = [
        lambda: memory.update("nobody", "text"),
        lambda: memory.pin("nobody"),
        lambda: memory.unpin("nobody"),
    ]
    for call in calls:
        with pytest.raises(NotFound, match="nobody"):
            call()
    assert memory.history("nobody") == []


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_pages_hold_everything_once_and_in_order(memory: Memory, newest_first: bool, size: int) -> None:
    for number in range(20):
        memory.remember(f"note {number}", id=f"{number:02}", session_id="even" if number % 2 == 0 else "odd")
    memory.update("04", "note four")
    seen: list[str] = []
    after = None
    while True:
        page = memory.list(limit=size, after=after, newest_first=newest_first, session_id="even")
        seen += [record.id for record in page.records]
        assert len(page.records) <= size
        if page.next is None:
            break
        after = page.next
    order = ["00", "02", "06", "08", "10", "12", "14", "16", "18", "04"]
    assert seen == (order[::-1] if newest_first else order)
    with pytest.raises(InvalidInput, match="limit"):
        memory.list(limit=0)


def test_pages_stay_whole_while_others_write(memory: Memory) -> None:
    for number in range(10):
        memory.remember("note", id=f"{number:02}")
    page = memory.list(limit=4)
    memory.remember("newer", id="newer")
    memory.forget("08")
    rest = memory.list(limit=100, after=page.next)
    assert [record.id for record in (*page.records, *rest.records)] == [f"{number:02}" for number in range(9, -1, -1)]


def test_pins_are_seen_by_filters_and_survive_an_update(memory: Memory) -> None:
    memory.remember("one", id="1")
    memory.remember("two", id="2")
    memory.pin("1")
    memory.pin("1")
    memory.update("1", "one again")
    assert [record.id for record in memory.list(pinned=True).records] == ["1"]
    assert [record.id for record in memory.list(pinned=False).records] == ["2"]
    memory.unpin("1")
    memory.unpin("1")
    assert memory.list(pinned=True).records == ()


def test_what_is_read_is_the_callers_own(memory: Memory) -> None:
    given = {"tags": ["a"], "deep": {"x": 1}}
    memory.remember("text", id="x", metadata=given)
    given["tags"] = ["changed"]
    first = existing(memory, "x")
    assert isinstance(first.metadata, dict)
    first.metadata["tags"].append("b")
    first.metadata["deep"]["x"] = 2
    assert existing(memory, "x").metadata == {"tags": ["a"], "deep": {"x": 1}}
    hit = memory.recall("text")[0]
    assert hit.metadata == {"tags": ["a"], "deep": {"x": 1}}


# --- life -------------------------------------------------------------------------------------------------


def test_without_a_path_everything_stays_in_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with loom.open(embedder=FakeEmbedder()) as memory, loom.open(embedder=FakeEmbedder()) as other:
        memory.remember("harbours")
        assert memory.flush().complete
        assert memory.check().ok
        assert len(memory.recall("harbours")) == 1
        assert other.recall("harbours") == []
        assert memory.vacuum() == 0
        assert "in memory" in repr(memory)
    assert list(tmp_path.iterdir()) == []


def test_a_memory_is_there_again_after_it_was_closed(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember("harbours", id="x")
        memory.pin("x")
        memory.get("x")
        assert "a.loom" in repr(memory)
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        record = existing(memory, "x")
        assert memory.store.pinned("x")
        assert memory.recall("harbours")[0].id == "x"
        assert memory.store.accesses([record.seq], "default")[record.seq].count == 2


_VERBS: dict[str, Callable[[Memory, Path], object]] = {
    "remember": lambda memory, _: memory.remember("text"),
    "update": lambda memory, _: memory.update("x", "text two"),
    "recall": lambda memory, _: memory.recall("text"),
    "get": lambda memory, _: memory.get("x"),
    "history": lambda memory, _: memory.history("x"),
    "list": lambda memory, _: memory.list(),
    "pin": lambda memory, _: memory.pin("x"),
    "unpin": lambda memory, _: memory.unpin("x"),
    "forget": lambda memory, _: memory.forget("x"),
    "set_retention": lambda memory, _: memory.set_retention(loom.Retention(max_records=5)),
    "apply_retention": lambda memory, _: memory.apply_retention(),
    "flush": lambda memory, _: memory.flush(),
    "check": lambda memory, _: memory.check(),
    "backup": lambda memory, path: memory.backup(path / "copy.loom"),
    "vacuum": lambda memory, _: memory.vacuum(),
    "get_stats": lambda memory, _: memory.get_stats(),
}


@pytest.mark.parametrize("another_is_open", [True, False])
@pytest.mark.parametrize("verb", _VERBS)
def test_a_closed_memory_says_so(tmp_path: Path, verb: str, another_is_open: bool) -> None:
    path = tmp_path / "a.loom"
    memory = loom.open(path, embedder="none")
    memory.remember("text", id="x")
    other = loom.open(path, embedder="none") if another_is_open else None
    memory.close()
    memory.close()
    with pytest.raises(Closed, match="closed"):
        _VERBS[verb](memory, tmp_path)
    if other is not None:
        assert other.get("x") is not None
        other.close()


@pytest.mark.parametrize("verb", _VERBS)
def test_a_closed_memory_without_a_file_says_so(tmp_path: Path, verb: str) -> None:
    memory = loom.open(embedder="none")
    memory.remember("text", id="x")
    memory.close()
    with pytest.raises(Closed, match="closed"):
        _VERBS[verb](memory, tmp_path)


def test_leaving_the_with_block_closes_also_after_an_error(tmp_path: Path) -> None:
    memory = loom.open(tmp_path / "a.loom", embedder="none")
    with pytest.raises(NotFound), memory:
        memory.pin("nobody")
    with pytest.raises(Closed):
        memory.get("x")


_WRITING = ("remember", "update", "pin", "unpin", "forget", "set_retention", "vacuum")


@pytest.mark.parametrize("verb", _VERBS)
def test_a_read_only_memory_reads_and_never_writes(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "a.loom"
    with loom.open(path, embedder="none") as memory:
        memory.remember("some text", id="x")
    with loom.open(path, embedder="none", read_only=True) as memory:
        if verb in _WRITING:
            with pytest.raises(ReadOnly, match="read-only"):
                _VERBS[verb](memory, tmp_path)
        else:
            _VERBS[verb](memory, tmp_path)
        assert [record.content for record in memory.list().records] == ["some text"]
        assert memory.recall("text")[0].id == "x"


def test_namespaces_share_a_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with (
        loom.open(path, namespace="a", embedder="none") as one,
        loom.open(path, namespace="b", embedder="none") as two,
    ):
        one.remember("harbours of one", id="x")
        two.remember("harbours of two", id="x")
        one.pin("x")
        assert [hit.content for hit in one.recall("harbours")] == ["harbours of one"]
        assert [hit.content for hit in two.recall("harbours")] == ["harbours of two"]
        assert not two.store.pinned("x")
        assert two.get_stats()["records"] == 1
        one.forget("x")
        assert existing(two, "x").content == "harbours of two"


def test_the_same_file_opened_twice_is_one_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with loom.open(path, embedder="none") as one, loom.open(path, embedder="none") as two:
        one.remember("harbours", id="x")
        assert two.recall("harbours")[0].id == "x"
        two.forget("x")
        assert one.recall("harbours") == []


def test_sanitising_is_asked_for_and_recorded(tmp_path: Path) -> None:
    text = "Write to ana@example.test about\x07 the flow."
    with loom.open(tmp_path / "plain.loom", embedder="none") as memory:
        record = existing(memory, memory.remember(text).id)
        assert record.content == text
        assert record.metadata == {}
    with loom.open(tmp_path / "clean.loom", embedder="none", sanitizer=ContentSanitizer()) as memory:
        record = existing(memory, memory.remember(text, metadata={"a": 1}).id)
        assert "ana@example.test" not in record.content
        assert "\x07" not in record.content
        assert record.metadata["sanitized"]
        assert record.metadata["a"] == 1
        clean = existing(memory, memory.remember("Nothing to clean here.\n").id)
        assert clean.content == "Nothing to clean here.\n"
        assert clean.metadata == {}
        chat = memory.remember({"role": "user", "content": [{"type": "text", "text": text}], "extra": "kept?"})
        stored = existing(memory, chat.id)
        assert "ana@example.test" not in repr(stored)
        task = Task(task_id="t", action="mail", parameters={"to": "ana@example.test"})
        memory.remember(task)
        assert "ana@example.test" not in repr(existing(memory, "t"))
        assert memory.recall("ana@example.test") == [] or all(
            "ana@example.test" not in hit.content for hit in memory.recall("ana@example.test")
        )


def test_stats_count_what_is_there(memory: Memory) -> None:
    memory.remember(["one two", "three"])
    memory.remember("four", id="x")
    memory.update("x", "five")
    stats = memory.get_stats()
    assert stats["records"] == 4
    assert stats["superseded"] == 1
    assert stats["tokens"] == sum(record.tokens for record in memory.list(history=True).records)
    assert stats["vectors"] == stats["entries"] == 0
    assert stats["file_bytes"] > 0
    assert memory.store.count(Filter()) == 3
    memory.forget("x")
    assert memory.get_stats()["records"] == 2


def test_check_is_clean_after_ordinary_use(memory: Memory) -> None:
    memory.remember([f"note {number}" for number in range(20)])
    memory.remember("x", id="x")
    memory.update("x", "y")
    memory.forget(session_id="none of them")
    report = memory.check()
    assert report.ok
    assert report.records == 22
    assert report.repaired == ()


# --- the awaitable face -----------------------------------------------------------------------------------


def _public(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if not name.startswith("_") and inspect.isfunction(value)}


# What the verbs are made of, for the rooms above.
_BEHIND_THE_VERBS = {"search", "sources_of"}


def test_all_memories_have_the_same_verbs_under_the_same_names() -> None:
    for name in _public(AsyncMemory):
        assert getattr(LoomMemory, name) is getattr(MemoryManager, name) is getattr(Memory, name)


def test_every_verb_can_be_awaited_with_the_same_arguments() -> None:
    assert _public(AsyncMemory) == _public(MemoryVerbs) - _BEHIND_THE_VERBS
    for name in _public(AsyncMemory):
        sync, awaitable = getattr(Memory, name), getattr(AsyncMemory, name)
        assert inspect.iscoroutinefunction(awaitable)
        assert inspect.signature(sync) == inspect.signature(awaitable)
        assert sync.__doc__ == awaitable.__doc__


def test_awaited_verbs_do_what_the_others_do(tmp_path: Path) -> None:
    def script(call: Callable[..., Any]) -> list[object]:
        return [
            call("remember", "harbours of Porto", id="a", created_at=START),
            call("remember", [{"role": "user", "content": "rivers", "id": "b"}], created_at=START),
            call("update", "b", "rivers and lakes"),
            call("pin", "a"),
            call("recall", "harbours"),
            call("get", "b"),
            call("history", "b"),
            call("list", limit=1),
            call("unpin", "a"),
            call("forget", "b"),
            call("set_retention", loom.Retention(max_records=5)),
            call("apply_retention"),
            call("flush"),
            call("check"),
            call("get_stats"),
        ]

    plain = loom.open(tmp_path / "plain.loom", embedder="none", clock=FakeClock())
    expected = script(lambda verb, *args, **kwargs: getattr(plain, verb)(*args, **kwargs))
    plain.close()

    awaited = loom.open(tmp_path / "await.loom", embedder="none", clock=FakeClock())
    with asyncio.Runner() as runner:
        found = script(lambda verb, *args, **kwargs: runner.run(getattr(awaited.aio, verb)(*args, **kwargs)))
        runner.run(awaited.aio.backup(tmp_path / "copy.loom"))
        assert isinstance(runner.run(awaited.aio.vacuum()), int)
        with pytest.raises(NotFound):
            runner.run(awaited.aio.pin("nobody"))
        runner.run(awaited.aio.close())
    assert found == expected
    with loom.open(tmp_path / "copy.loom", embedder="none") as copy:
        assert existing(copy, "a").content == "harbours of Porto"


def test_awaited_verbs_run_side_by_side_and_leave_the_loop_free(tmp_path: Path) -> None:
    async def use() -> tuple[int, int]:
        async with loom.open(tmp_path / "a.loom", embedder="none").aio as memory:
            receipts = await asyncio.gather(*(memory.remember(f"note {number}") for number in range(40)))
            hits = await asyncio.gather(*(memory.recall(f"{number} note", limit=1) for number in range(40)))
            page = await memory.list(limit=100)
            assert {receipt.id for receipt in receipts} == {record.id for record in page.records}
            return len(page.records), sum(len(each) for each in hits)

    assert asyncio.run(use()) == (40, 40)


@pytest.mark.parametrize("id", [7, None, b"x", ["x"]])
@pytest.mark.parametrize("verb", ["get", "history", "pin", "unpin", "promote", "demote", "undo"])
def test_an_id_that_is_no_text_is_refused(memory: Memory, verb: str, id: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"{verb}\(\) takes an id, and an id must be a text"):
        getattr(memory, verb)(id)


@pytest.mark.parametrize("verb", ["recall", "facts"])
def test_a_question_that_is_no_text_is_refused_by_name(memory: Memory, verb: str) -> None:
    with pytest.raises(InvalidInput, match=rf"{verb}\(\) takes a question, and a question must be a text, not int"):
        getattr(memory, verb)(7)


def test_an_unknown_attribute_is_refused_by_name(memory: Memory) -> None:
    misspelt: dict[str, Any] = {"sesion_id": "s1"}
    with pytest.raises(InvalidInput, match=r"remember\(\) takes no 'sesion_id'; did you mean 'session_id'"):
        memory.remember("text", **misspelt)
