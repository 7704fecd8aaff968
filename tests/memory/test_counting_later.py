"""Tokens that are counted after the commit: a writer does not wait for it, and a reader sees no difference."""

from __future__ import annotations

import pickle
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom.errors import CorruptStore, ForgetPending, IdConflict, OverBudget, StoreUnavailable
from loom.everyday import Memory
from loom.protocol import Task
from loom.snapshots.merging import restore_into
from loom.snapshots.taking import take as take_snapshot
from loom.storage.contract import AtMost, CheckReport, Draft, Filter, Store
from loom.storage.sqlite.engine import Engine
from loom.storage.sqlite.maintenance import Maintenance, WorkLimits
from loom.storage.sqlite.projections import TailLimit
from loom.storage.sqlite.store import SqliteStore, as_sqlite
from loom.text.tokens import TiktokenCounter, TokenCounter, counters_by_name, default_counter
from loom.types import MemoryTier, Receipt
from tests.crash.processes import Child

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

TEXTS = [
    "We chose the authorization-code flow, it is the safest.",
    "备份每天凌晨两点运行，保留十四天。",
    "The harbour of Rotterdam opens at six. 鹿特丹港六点开门。",
    "a word " * 60,
    "x",
    *(f"Container {number} waits at gate {number % 7} of the blue line." for number in range(20)),
]


class Watching(TiktokenCounter):
    """The exact counter, with the threads in which it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def count(self, text: str) -> int:
        self.threads.append(threading.get_ident())
        return super().count(text)

    @property
    def here(self) -> int:
        return self.threads.count(threading.get_ident())


class OfMyOwn(TokenCounter):
    """A counter that other processes do not have."""

    name = "of my own"
    exact = True
    margin = 0.0

    def count(self, text: str) -> int:
        return default_counter().count(text)


def opened(path: Path | Store | None = None, counter: TokenCounter | None = None, **options: Any) -> Memory:
    options = {"embedder": "none", "derive": False, **options}
    return Memory(store=path, token_counter=counter, **options)


@pytest.fixture(params=["file", "in memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "agent.loom" if request.param == "file" else None


def rows(memory: Memory, columns: str, where: str = "TRUE") -> list[tuple[Any, ...]]:
    """Columns of the records as they are stored: a read through the store would count the missing ones."""
    with as_sqlite(memory.store).transaction() as transaction:
        return transaction.connection.execute(f"SELECT {columns} FROM records WHERE {where}").fetchall()


def waiting(memory: Memory) -> int:
    """The number of uncounted rows."""
    return len(rows(memory, "seq", "tokens < 0"))


# --- who counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", [{}, {"role": "user", "name": "Ana", "session_id": "s1", "metadata": {"a": 1}}, {"importance": 0.6}]
)
def test_an_ordinary_memory_is_not_counted_by_whoever_writes_it(place: Path | None, said: dict[str, Any]) -> None:
    counter = Watching()
    with opened(place, counter) as memory:
        for number, text in enumerate(TEXTS):
            assert memory.remember(text, **said).tier is MemoryTier.L1
            assert memory.remember({"role": "user", "content": text}).created
            assert memory.remember(text, id=f"chosen {number}").version == 1
        assert counter.here == 0


def test_a_receipt_has_the_count_when_it_is_asked_for_it(place: Path | None) -> None:
    counter = Watching()
    with opened(place, counter) as memory:
        receipt = memory.remember("We chose the authorization-code flow, it is the safest.")
        assert (receipt.id, receipt.version, receipt.created, receipt.note) == (receipt.id, 1, True, "")
        assert counter.here == 0
        assert receipt.tokens == receipt.tokens == 12
        assert counter.here == 1
        again = pickle.loads(pickle.dumps(receipt))
        assert again == receipt == Receipt(receipt.id, MemoryTier.L1, 12)
        assert len({again, receipt}) == 1
        assert "tokens=12" in repr(receipt)


def test_what_was_there_already_is_told_of_as_if_it_had_been_counted(place: Path | None) -> None:
    with opened(place) as memory, opened(memory.store, node_id="two") as second:
        first = memory.remember("We chose the authorization-code flow.", id="flow")
        again = memory.remember("We chose the authorization-code flow.", id="flow")
        assert (first.created, again.created) == (True, False)
        assert again == Receipt("flow", MemoryTier.L1, first.tokens, created=False)
        heard = second.remember("We chose the authorization-code flow.", id="flow")
        assert (heard.created, heard.tier, heard.tokens) == (False, MemoryTier.L1, first.tokens)
        assert "had remembered it before" in heard.note
        assert [size for _, size in memory.store.window("two")] == [first.tokens]
        with pytest.raises(IdConflict):
            memory.remember("Another text.", id="flow")
        assert waiting(memory) == 1
        assert memory.update("flow", "Another text.").version == 2
        assert [size for _, size in memory.store.window("two")] == [3]
        assert memory.get_stats()["tokens"] == first.tokens + 3


def large(memory: Memory) -> object:
    return memory.remember("a long story " * 2000)


@pytest.mark.parametrize(
    "write",
    [
        lambda memory: memory.remember("it matters", importance=0.9),
        lambda memory: memory.remember(["one of", "several"]),
        lambda memory: memory.remember(Task(task_id="t", action="execute")),
        lambda memory: memory.manager.add_task(Task(task_id="t", action="message"), "l2"),
        lambda memory: memory.manager.l3.add("into the archive"),
        lambda memory: memory.manager.add_fact("The port is 8080"),
        lambda memory: memory.update(memory.remember("first version").id, "second version"),
        large,
    ],
)
def test_what_its_size_decides_is_counted_at_once(place: Path | None, write: Callable[[Memory], object]) -> None:
    with opened(place, Watching()) as memory:
        write(memory)
        assert waiting(memory) <= 1  # the first version
        newest = memory.list(limit=1).records[0]
        assert rows(memory, "tokens", f"seq = {newest.seq}") == [(memory.counter.count(newest.content),)]


def test_what_may_not_have_room_in_the_window_is_counted_at_once() -> None:
    with opened(l1_token_budget=40) as memory:
        memory.remember("short enough")
        assert waiting(memory) == 1
        memory.remember("a little longer than is sure to fit")
        assert waiting(memory) == 1
        draft = memory.manager.drafter.draft("word " * 60, count_later=True)
        with pytest.raises(OverBudget):
            memory.manager.tiers.write([draft], on_oversize="reject")


def test_what_may_be_a_new_version_is_counted_at_once_because_others_may_have_heard_the_old_one() -> None:
    with opened() as memory:
        memory.manager.tiers.write(
            [memory.manager.drafter.draft("next", "id", count_later=True)._replace(revises=True)]
        )
        assert waiting(memory) == 0


def test_where_everything_comes_to_the_working_tier_everything_is_counted_at_once() -> None:
    with opened(profile="lcr") as memory:
        memory.remember("used from the first moment on")
        assert waiting(memory) == 0
        assert memory.store.usage("default")["l2"].tokens == memory.counter.count("used from the first moment on")


def test_a_counter_that_others_do_not_have_counts_at_once(place: Path | None) -> None:
    with opened(place, OfMyOwn()) as memory:
        memory.remember("nobody else could count this")
        assert waiting(memory) == 0


# --- who reads -----------------------------------------------------------------------------------------------


def reading(memory: Memory) -> dict[str, Any]:
    """All sizes that a reader sees."""
    store, manager = memory.store, memory.manager
    records = [*memory.list(limit=1000).records]
    assert records
    stats = memory.get_stats()
    hits = memory.recall("containers at the gates", limit=20)
    prompt = memory.context("Which gate does container 7 wait at?", budget=400)
    return {
        "list": [(record.content, record.tokens) for record in records],
        "get": [store.get(record.id) == record for record in records],
        "history": [memory.history(record.id)[0].tokens for record in records],
        "recall": [(hit.content, hit.tokens, hit.score) for hit in hits],
        "window": [size for _, size in store.window("default")],
        "usage": store.usage("default")["l1"],
        "tasks": [task.parameters for task in manager.get_l1_tasks()],
        "counters": manager.get_counters().focus.current,
        "stats": (stats["tokens"], stats["l1_token_usage"]),
        "prompt": [(item.text, item.tokens) for item in prompt.items],
    }


def test_every_reader_sees_the_count_before_it_is_made_and_after(place: Path | None) -> None:
    texts = [*TEXTS, *TEXTS]
    options: dict[str, Any] = {"clock": lambda: NOW, "l1_token_budget": 600}
    with opened(place, **options) as memory, opened(**options) as twin:
        for text in texts:
            memory.remember(text)
        twin.remember(texts)
        assert (waiting(memory), waiting(twin)) == (len(texts), 0)
        expected = reading(twin)
        assert expected["stats"][0] == sum(map(memory.counter.count, texts))
        assert 0 < len(expected["window"]) < len(texts)
        assert reading(memory) == expected
        assert waiting(memory) == len(texts), "reading writes nothing"
        assert memory.flush().complete
        assert waiting(memory) == 0
        assert reading(memory) == expected
        assert memory.check() == twin.check()
        assert memory.check().ok


def test_what_comes_to_another_tier_before_it_is_counted_is_booked_at_its_size(place: Path | None) -> None:
    with opened(place) as memory:
        receipts = [memory.remember(text) for text in TEXTS]
        numbers = [found.seq for one in receipts if (found := memory.store.get(one.id)) is not None]
        with memory.store.transaction() as transaction:
            assert [one.tokens for one in transaction.as_residents(numbers[:3], "default")] == [
                one.tokens for one in receipts[:3]
            ]
            transaction.enter(numbers[:6], "l2", "default", "admitted")
            transaction.enter(numbers[:2], "l3", "default", "admitted", [1, 1])
        for _ in range(2):
            sizes = [one.tokens for one in memory.store.residents("default", "l2")]
            assert sizes == [one.tokens for one in receipts[:6]]
            assert memory.store.usage("default")["l2"].tokens == sum(sizes)
            assert memory.store.original_tokens("default", "l3") == sum(sizes[:2])
            assert memory.check() == CheckReport(len(TEXTS), (), ())
            memory.flush()


def test_a_text_is_counted_once_however_often_it_is_read(place: Path | None) -> None:
    counter = Watching()
    with opened(place, counter) as memory:
        for text in TEXTS:
            memory.remember(text)
        for _ in range(3):
            memory.store.window("default")
            memory.list(limit=100)
            memory.get_stats()
        assert counter.here == len(TEXTS)


def test_what_is_rolled_back_leaves_no_count_to_whoever_gets_its_number(place: Path | None) -> None:
    with opened(place) as memory:
        drafts = [memory.manager.drafter.draft(text, count_later=True) for text in ("a b c d e f", "g")]
        assert all(isinstance(draft.tokens, AtMost) for draft in drafts)
        held: list[tuple[int, int]] = []
        with suppress(ZeroDivisionError), memory.store.transaction() as transaction:
            transaction.append(drafts[:1])
            held = transaction.window("default")
            raise ZeroDivisionError
        with memory.store.transaction() as transaction:
            (written,) = transaction.append(drafts[1:])
        assert held == [(written.seq, 6)]
        assert memory.store.window("default") == [(written.seq, 1)]


def test_another_process_sees_the_counts_that_this_one_has_not_made(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        for text in TEXTS:
            memory.remember(text)
        mine = memory.get_stats()
        for options in ({"read_only": True}, {}):
            with Child("serve", path=str(path), background=False, derive=False, **options) as child:
                assert child.line() == "open"
                theirs = child.ask("stats")
                assert child.ask("problems") == []
            assert [theirs[name] for name in ("tokens", "l1_token_usage")] == [
                mine[name] for name in ("tokens", "l1_token_usage")
            ]
        assert waiting(memory) == len(TEXTS)


def test_processes_that_count_the_same_records_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        children = [Child("serve", path=str(path), background=False, derive=False) for _ in range(2)]
        with children[0], children[1]:
            assert [child.line() for child in children] == ["open", "open"]
            for number in range(600):
                memory.remember(f"{TEXTS[number % len(TEXTS)]} {number}")
            for child in children:
                child.tell("flush")
            assert memory.flush().complete
            assert [child.answer() for child in children] == [True, True]
        assert waiting(memory) == 0
        records = memory.list(limit=1000).records
        assert [record.tokens for record in records] == [memory.counter.count(record.content) for record in records]
        assert memory.check().ok


def test_the_background_thread_counts_by_itself(place: Path | None) -> None:
    counter = Watching()
    with opened(place, counter) as memory:
        for text in TEXTS:
            memory.remember(text)
        memory.store.wake_worker()
        deadline = time.monotonic() + 60
        while waiting(memory):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert (len(counter.threads), counter.here) == (len(TEXTS), 0)


def test_what_is_left_is_counted_while_idle(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        for text in TEXTS:
            memory.remember(text)
        ((namespace,),) = rows(memory, "DISTINCT namespace")
        engine = Engine.acquire(path)  # the one that the store has as well
        own = Maintenance(engine, namespace, TailLimit(), 10.0, WorkLimits())
        with own.worker.lease(wait_s=5.0) as fence:
            assert fence is not None
            while own.rest(fence):
                pass
        engine.release()
        assert waiting(memory) == 0


# --- what may happen in between -------------------------------------------------------------------------------


class Interrupted(TiktokenCounter):
    """The exact counter. What is in `todo` is done when it counts: after the worker has read the records that it
    counts, and before it writes their counts."""

    def __init__(self) -> None:
        super().__init__()
        self.todo: list[Callable[[], None]] = []

    def count(self, text: str) -> int:
        if self.todo:
            self.todo.pop()()
        return super().count(text)


@pytest.fixture
def in_between() -> Iterator[Interrupted]:
    counter = Interrupted()
    yield counter
    assert not counter.todo, "nothing was counted"


def test_a_record_that_is_forgotten_while_it_is_counted_stays_empty(
    place: Path | None, in_between: Interrupted
) -> None:
    with opened(place, in_between) as memory:
        receipts = [memory.remember(text) for text in TEXTS[:4]]
        gone = memory.store.get(receipts[1].id)
        assert gone is not None

        def forget() -> None:
            with suppress(ForgetPending):  # the records are gone; the worker cleans up when it has counted
                memory.store.forget(Filter(ids=[receipts[1].id]), timeout_s=0.0)

        in_between.todo.append(forget)
        memory.flush()
        assert rows(memory, "version, tokens, checksum", f"seq = {gone.seq}") == [(0, 0, 0)]
        assert memory.get_stats()["tokens"] == sum(receipts[one].tokens for one in (0, 2, 3))
        assert memory.check().ok


def test_a_record_that_another_has_counted_meanwhile_is_left_as_it_is(
    tmp_path: Path, in_between: Interrupted
) -> None:
    path = tmp_path / "agent.loom"
    with opened(path, in_between) as memory:
        receipt = memory.remember("counted by somebody else")

        def count() -> None:
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("UPDATE records SET tokens = 99, checksum = 0")

        in_between.todo.append(count)
        memory.flush()
        assert rows(memory, "tokens, checksum") == [(99, 0)]
        assert receipt.tokens == 5


def test_a_damaged_record_is_not_made_to_look_sound_by_counting_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    for damage in ("content = 'other words'", "content = CAST(x'ff61' AS TEXT)", "counter = CAST(x'ff' AS TEXT)"):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.loom"
        with opened(path) as memory:
            receipts = [memory.remember(text) for text in TEXTS[:3]]
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(f"UPDATE records SET {damage} WHERE id = ?", (receipts[1].id,))
            memory.flush()
            assert waiting(memory) == 1
            memory.get_stats()  # a sum has an upper bound of it
            if "CAST" not in damage:
                with pytest.raises(CorruptStore):
                    memory.store.get(receipts[1].id)
                assert len(memory.check().problems) == 1
            assert memory.store.get(receipts[2].id) is not None


def test_records_that_are_archived_before_they_are_counted_have_their_counts(tmp_path: Path) -> None:
    with opened(tmp_path / "agent.loom") as memory:
        for number in range(40):
            memory.remember(f"{TEXTS[number % 3]} {number}")
        expected = [memory.counter.count(record.content) for record in memory.list().records]
        assert memory.store.archive().records == 40
        assert waiting(memory) == 40
        for _ in range(2):
            assert [record.tokens for record in memory.list().records] == expected
            assert memory.get_stats()["tokens"] == sum(expected)
            assert memory.check().ok
            memory.flush()
        assert waiting(memory) == 0


def test_records_whose_block_is_damaged_before_they_are_counted_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        receipts = [memory.remember(f"{TEXTS[number % 3]} {number}") for number in range(40)]
        memory.store.archive()
    with opened(path) as memory:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE blocks SET data = zeroblob(length(data))")
        later = memory.remember("after the damage")
        memory.flush()
        assert waiting(memory) == 40
        with pytest.raises(CorruptStore, match="archive block"):
            memory.store.get(receipts[0].id)
        found = memory.store.get(later.id)
        assert found is not None
        assert found.tokens == later.tokens == 3
        assert memory.get_stats()["tokens"] >= sum(receipt.tokens for receipt in receipts) + 3
        assert memory.check().problems


def test_a_snapshot_and_what_is_restored_from_it_hold_the_true_counts(tmp_path: Path) -> None:
    with opened(tmp_path / "agent.loom") as memory:
        for text in TEXTS:
            memory.remember(text)
        expected = [(record.id, record.tokens) for record in memory.list().records]
        take_snapshot(memory.store, tmp_path / "all.hctx")
        assert waiting(memory) == len(TEXTS)
        memory.backup(tmp_path / "copy.loom")
    with opened(tmp_path / "other.loom") as other:
        restore_into(other.store, tmp_path / "all.hctx")
        assert waiting(other) == 0
        assert [(record.id, record.tokens) for record in other.list().records] == expected
        assert other.check().ok
    with opened(tmp_path / "copy.loom") as copy:
        assert waiting(copy) == len(TEXTS)
        copy.flush()
        assert waiting(copy) == 0
        assert [(record.id, record.tokens) for record in copy.list().records] == expected
        assert copy.check().ok


def test_a_snapshot_is_continued_and_restored_across_the_counting(tmp_path: Path) -> None:
    """A chain knows its store by checksums of records, which change when their counts come in."""
    chain = [tmp_path / "all.hctx", tmp_path / "more.hctx", tmp_path / "last.hctx"]
    with opened(tmp_path / "agent.loom") as memory:
        memory.remember("written before the first")
        take_snapshot(memory.store, chain[0])
        memory.remember("written before the second")
        take_snapshot(memory.store, chain[1], parent=chain[0])
        memory.flush()
        memory.remember("written before the third")
        assert take_snapshot(memory.store, chain[2], parent=chain[1]).records == 1
        assert restore_into(memory.store, chain).records == 0
        expected = [(record.content, record.tokens) for record in memory.list().records]
    with opened(tmp_path / "other.loom") as other:
        assert restore_into(other.store, chain).records == 3
        assert [(record.content, record.tokens) for record in other.list().records] == expected
        assert other.check().ok


def test_a_store_without_a_counter_says_so_and_counts_when_it_is_given_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        receipt = memory.remember("We moved the meeting to Thursday.")
    with closing(SqliteStore(path)) as store:
        assert store.count(Filter()) == 1
        with pytest.raises(StoreUnavailable, match="count_with"):
            store.get(receipt.id)
        assert store.flush().complete
        assert store.check().ok
        store.count_with({name: counter.count for name, counter in counters_by_name().items()})
        found = store.get(receipt.id)
        assert found is not None
        assert found.tokens == 7
        store.flush()
    with closing(SqliteStore(path)) as store:
        assert store.get(receipt.id) == found


def test_a_log_without_anything_to_count_is_not_looked_through_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        with memory.store.transaction() as transaction:
            transaction.append([Draft(f"n{n}", "short", NOW, tokens=1, named=False) for n in range(10_500)])
        memory.flush()
        assert memory.store.progress("tokens")[0] >= 10_500
        receipt = memory.remember("and one that waits")
        memory.flush()
        assert waiting(memory) == 0
        found = memory.store.get(receipt.id)
        assert found is not None
        assert memory.store.progress("tokens")[0] >= found.seq


# --- any sequence ---------------------------------------------------------------------------------------------

WORDS = st.sampled_from([*TEXTS[:4], "port 8080", "港口 8080", "yes", "no, not that one"])
STEPS = st.one_of(
    st.tuples(st.just("remember"), WORDS, st.sampled_from([0.1, 0.5, 0.95])),
    st.tuples(st.just("several"), st.lists(WORDS, min_size=1, max_size=3)),
    st.tuples(st.just("update"), st.integers(0, 30), WORDS),
    st.tuples(st.just("forget"), st.integers(0, 30)),
    st.tuples(st.just("promote"), st.integers(0, 30), st.sampled_from(["l1", "l2"])),
    st.tuples(st.just("flush")),
    st.tuples(st.just("archive")),
    st.tuples(st.just("evict"), st.sampled_from(["l1", "l2"])),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=14), on_disk=st.booleans())
def test_any_sequence_gives_the_same_sums_as_counting_at_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], on_disk: bool
) -> None:
    path = tmp_path_factory.mktemp("sums") / "agent.loom" if on_disk else None
    options: dict[str, Any] = {"clock": lambda: NOW, "l1_token_budget": 120, "l2_token_budget": 200}
    with opened(path, **options) as later, opened(None, OfMyOwn(), **options) as at_once:
        kept: list[tuple[str, str]] = []
        for step in steps:
            take(step, later, at_once, kept)
            assert waiting(at_once) == 0
            assert sums(later) == sums(at_once)
        assert later.check().ok


def take(step: tuple[Any, ...], later: Memory, at_once: Memory, kept: list[tuple[str, str]]) -> None:
    """One step on both, and the ids of what each has kept."""
    name, *rest = step
    if name == "remember":
        receipts = [memory.remember(rest[0], importance=rest[1]) for memory in (later, at_once)]
        kept.append((receipts[0].id, receipts[1].id))
    elif name == "several":
        pairs = zip(later.remember(list(rest[0])), at_once.remember(list(rest[0])), strict=True)
        kept.extend((one.id, other.id) for one, other in pairs)
    elif name == "flush":
        later.flush()
    elif name == "archive":
        later.store.archive()
    elif name == "evict":
        for memory in (later, at_once):
            memory.manager.tiers.evict(MemoryTier(rest[0]), 30)
    elif kept:
        place = rest[0] % len(kept)
        for memory, id in zip((later, at_once), kept[place], strict=True):
            if name == "update":
                memory.update(id, rest[1])
            elif name == "forget":
                memory.forget(id)
            else:
                found = memory.store.get(id)
                assert found is not None
                with memory.store.transaction() as transaction:
                    memory.manager.tiers.promote_records(transaction, [found.seq], MemoryTier(rest[1]), now=True)
        if name == "forget":
            del kept[place]


def sums(memory: Memory) -> dict[str, Any]:
    """The sizes of all records by their texts, since numbers and ids differ."""
    store = memory.store
    records = {record.seq: record for record in store.scan(Filter(history=True), limit=1000).records}
    tiers = {
        tier: sorted((records[one.record].content, one.tokens) for one in store.residents("default", tier))
        for tier in ("l2", "l3", "l4", "focus")
    }
    return {
        "records": sorted((record.content, record.tokens) for record in records.values()),
        "tokens": memory.get_stats()["tokens"],
        "window": [(records[seq].content, size) for seq, size in store.window("default")],
        "usage": {tier: (usage.items, usage.tokens) for tier, usage in store.usage("default").items() if usage.items},
        **tiers,
    }
