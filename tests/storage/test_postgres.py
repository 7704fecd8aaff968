"""Situations that only a server has: lost connections, several hosts, and programs of two versions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import InvalidInput, StoreBusy, StoreUnavailable
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from loom.storage import open_store
from loom.storage.contract import AtMost, Draft, Filter, Store
from tests.postgres_server import PostgresServer

pytest.importorskip("psycopg")

import psycopg

NOON = datetime(2026, 2, 3, 12, 0, tzinfo=UTC)
QUESTIONS = ("Which harbour was closed?", "北门的集装箱在哪里？", "ship number 42", "lights of Porto")


@pytest.fixture
def execute(postgres_server: PostgresServer, postgres_url: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Executes a statement on the tables of the memory, without loom."""
    schema = postgres_url.partition("schema=")[2].partition("&")[0]
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:

        def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement.replace("SCHEMA", schema).encode(), values)
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    opened = open_store(postgres_url)
    yield opened
    opened.close()


def write(store: Store, *drafts: Draft) -> None:
    with store.transaction() as transaction:
        transaction.append(drafts)


def cut(execute: Callable[..., list[tuple[Any, ...]]]) -> int:
    """Terminate every other connection to the server; how many there were."""
    return len(
        execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
    )


def say_much(memory: Memory) -> None:
    memory.remember(
        [
            {"role": "user" if number % 2 else "assistant", "content": text, "name": "Ana" if number % 3 else "Ben"}
            for number in range(120)
            for text in [
                f"Ship number {number} came into the harbour of Porto at night and its lights went out.",
                f"第{number}艘船的集装箱停在北门，等候放行。",
            ][number % 2 :][:1]
        ],
        session_id="s1",
    )
    memory.remember("The harbour was closed on Monday because of the fog.", id="closed", session_id="s2")


def answers(memory: Memory) -> list[list[tuple[str, float]]]:
    return [[(hit.content, hit.score) for hit in memory.recall(question, limit=8)] for question in QUESTIONS]


# -- values ----------------------------------------------------------------------------------------------------------


def test_every_text_may_hold_nul_and_the_escape(store: Store) -> None:
    odd = "a\x00b\x01a\x01@content 1 1\x01"
    draft = Draft(
        id=odd,
        content="\x01@content 1 2\x00",
        created_at=NOON,
        session_id=odd,
        role=odd,
        name=odd,
        metadata={odd: [odd, 1]},
        data={odd: odd},
    )
    write(store, draft, Draft(id="other", content="plain", created_at=NOON, metadata={"a": "b"}))
    record = store.get(odd)
    assert record is not None
    for name in ("id", "content", "session_id", "role", "name", "metadata", "data"):
        assert getattr(record, name) == getattr(draft, name), name
    for wanted in (Filter(ids=[odd]), Filter(name=[odd, "x"]), Filter(session_id=odd), Filter(where={odd: odd})):
        assert [one.id for one in store.scan(wanted).records] == [odd]
    with store.transaction() as transaction:
        transaction.put_entry(odd, odd, writer=odd)
    entry = store.entry(odd)
    assert entry is not None
    assert (entry.key, entry.content) == (odd, odd)
    assert store.check().ok


def test_an_archived_text_comes_back_and_goes(store: Store) -> None:
    write(store, *(Draft(f"r{n}", f"harbour {n} " + "lorem ipsum " * 20, NOON, data={"n": n}) for n in range(40)))
    archived = store.archive()
    assert archived.records == 40
    record = store.get("r7")
    assert record is not None
    assert (record.content[:9], record.data) == ("harbour 7", {"n": 7})
    assert len(store.scan(Filter(), limit=40).records) == 40
    store.forget(Filter(ids=["r7"]))
    assert store.get("r7") is None
    record = store.get("r8")
    assert record is not None
    assert record.data == {"n": 8}
    assert store.check().ok


def test_a_text_that_no_counter_counts_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="count_with"):
        write(store, Draft("x", "text", NOON, tokens=AtMost(5), counter="unknown"))
    assert store.count(Filter()) == 0


def test_a_long_window_is_read_some_at_a_time(store: Store) -> None:
    write(store, *(Draft(f"r{n}", "text", NOON, tier="l1", tokens=1) for n in range(200)))
    with store.transaction() as transaction:
        transaction.put_settings("default", {"l1_token_budget": 130})
    assert [seq for seq, _ in store.window("default")] == store.numbers(Filter(), 200)[:69:-1]


# -- connections -----------------------------------------------------------------------------------------------------


def test_lost_connections_are_made_again(store: Store, execute: Callable[..., list[tuple[Any, ...]]]) -> None:
    for number in range(3):
        write(store, Draft(f"r{number}", "text", NOON))
        assert store.get(f"r{number}") is not None
        with store.reading():
            assert store.count(Filter()) == number + 1
        assert cut(execute) >= 1
    assert store.count(Filter()) == 3


def test_a_connection_that_is_lost_in_a_write_keeps_nothing(
    store: Store, execute: Callable[..., list[tuple[Any, ...]]]
) -> None:
    def write_and_be_cut(again: bool) -> None:
        with store.transaction() as transaction:
            transaction.append([Draft("x", "text", NOON)])
            transaction.put_entry("key", 1, writer="w")
            cut(execute)
            if again:
                transaction.put_entry("key", 2, writer="w")

    for again in (True, False):
        with pytest.raises(StoreUnavailable):
            write_and_be_cut(again)
    assert store.count(Filter()) == 0
    assert store.entry("key") is None
    write(store, Draft("x", "text", NOON))
    assert store.check().ok


def test_a_writer_that_hangs_is_waited_for_and_no_longer(
    store: Store, execute: Callable[..., list[tuple[Any, ...]]]
) -> None:
    execute("BEGIN")
    execute("SELECT 1 FROM SCHEMA.heads FOR UPDATE")
    with pytest.raises(StoreBusy), store.transaction(wait_s=0.01):
        pass
    assert store.count(Filter()) == 0
    execute("ROLLBACK")
    write(store, Draft("x", "text", NOON))


def test_nothing_is_left_in_a_session(store: Store, execute: Callable[..., list[tuple[Any, ...]]]) -> None:
    store.engine.server.prepared.is_allowed = False  # type: ignore[attr-defined]
    for number in range(12):
        write(store, Draft(f"r{number}", "text", NOON))
        store.get("r1")
    with store.engine.server.lent() as raw:  # type: ignore[attr-defined]
        settings = raw.execute("SELECT current_setting('lock_timeout'), current_setting('search_path')").fetchone()
        assert settings == ("0", '"$user", public')
        assert raw.pgconn.transaction_status == 0


def test_a_password_is_in_no_message(tmp_path: Path) -> None:
    url = f"postgresql://ana:secret@127.0.0.1:1/memory?cache={tmp_path}"
    with pytest.raises(StoreUnavailable) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert "ana@127.0.0.1:1/memory" in str(caught.value)
    with pytest.raises(InvalidInput) as refused:
        open_store("postgresql://ana:secret@127.0.0.1:1/memory?no_such_option=1")
    assert "secret" not in str(refused.value)


def test_many_threads_share_few_connections(postgres_url: str, execute: Callable[..., list[tuple[Any, ...]]]) -> None:
    with loom.open(f"{postgres_url}&connections=3", embedder="none", derive=False) as memory:
        with ThreadPoolExecutor(24) as threads:
            list(threads.map(lambda number: memory.remember(f"text {number}", id=f"r{number}"), range(120)))
            list(threads.map(lambda number: memory.recall(f"text {number}"), range(24)))
        ((most,),) = execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'loom'")
        assert most <= 3 + 24  # a thread that has one is not made to wait for another
        assert memory.get_stats()["records"] == 120


# -- several hosts ---------------------------------------------------------------------------------------------------


def other_host(url: str, folder: Path, **options: Any) -> Memory:
    """A memory with a cache of its own, as on another host."""
    base = url.partition("&cache=")[0]
    return loom.open(f"{base}&cache={folder}", embedder="none", **options)


def test_hosts_find_what_others_write_and_not_what_they_forget(postgres_url: str, tmp_path: Path) -> None:
    with (
        loom.open(postgres_url, embedder="none", index_tail_records=8) as one,
        other_host(postgres_url, tmp_path / "other", index_tail_records=8) as other,
    ):
        for number in range(30):
            writer, reader = (one, other) if number % 2 else (other, one)
            writer.remember(f"the lighthouse numbered q{number}q", id=f"r{number}")
            assert [hit.id for hit in reader.recall(f"q{number}q", limit=1)] == [f"r{number}"]
            if number % 10 == 9:
                writer.flush()
        one.forget("r3")
        assert other.recall("q3q", limit=1) == [] or other.recall("q3q", limit=1)[0].id != "r3"
        assert list((tmp_path / "other").glob("*/*.seg"))
        assert other.check(repair=False).ok


def test_a_damaged_file_in_the_cache_is_fetched_again(
    postgres_url: str, tmp_path: Path, execute: Callable[..., list[tuple[Any, ...]]]
) -> None:
    with loom.open(postgres_url, embedder="none", index_tail_records=8) as memory:
        say_much(memory)
        memory.flush()
        expected = answers(memory)
        before = execute("SELECT generation FROM SCHEMA.projections WHERE kind = 'text'")
    damages: tuple[Callable[[Path], object], ...] = (
        Path.unlink,
        lambda file: file.write_bytes(b"x" * file.stat().st_size),
    )
    for damage in damages:
        with other_host(postgres_url, tmp_path / "other") as other:
            assert answers(other) == expected
        files = list((tmp_path / "other").glob("*/*.seg"))
        assert files
        for file in files:
            damage(file)
        with other_host(postgres_url, tmp_path / "other") as other:
            assert answers(other) == expected
    assert execute("SELECT generation FROM SCHEMA.projections WHERE kind = 'text'") == before


# -- the same answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [False, True])
def test_answers_are_those_of_a_file_to_the_last_bit(postgres_url: str, tmp_path: Path, settled: bool) -> None:
    found = []
    for place in (tmp_path / "a.loom", postgres_url):
        now = [NOON]

        def clock(now: list[datetime] = now) -> datetime:
            now[0] += timedelta(seconds=1)
            return now[0]

        # Vectors come by and by until the memory has settled.
        embedder = FakeEmbedder(dimensions=32, seed=3) if settled else "none"
        with loom.open(place, embedder=embedder, clock=clock, index_tail_records=16, derive=False) as memory:
            say_much(memory)
            if settled:
                memory.flush()
            found.append(answers(memory))
    assert found[0] == found[1]


def test_a_backup_is_a_file_that_gives_the_same_answers(postgres_url: str, tmp_path: Path) -> None:
    with loom.open(postgres_url, embedder="none", derive=False) as memory:
        say_much(memory)
        memory.update("closed", "The harbour was open on Monday.")
        memory.pin("closed")
        memory.store.archive()
        memory.flush()
        expected, history = answers(memory), memory.history("closed")
        memory.backup(tmp_path / "copy.loom")
    with loom.open(tmp_path / "copy.loom", embedder="none", derive=False) as copy:
        assert answers(copy) == expected
        assert copy.history("closed") == history
        assert copy.check().ok
        copy.remember("and the file goes on", id="more")
        assert copy.get("more") is not None


# -- forgetting ------------------------------------------------------------------------------------------------------


def test_a_receipt_names_what_remains_and_vacuum_removes_it(
    store: Store, execute: Callable[..., list[tuple[Any, ...]]]
) -> None:
    write(store, *(Draft(f"r{n}", f"harbour secret{n}", NOON) for n in range(20)))
    store.flush()
    assert store.stats()["awaiting_vacuum"] == 0
    execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    execute("SELECT 1")  # somebody may still read what is forgotten now
    receipt = store.forget(Filter(ids=[f"r{n}" for n in range(10)]))
    assert [one.partition(",")[2] for one in receipt.remains] == [
        " until VACUUM, which is queued",
        " standbys, archives and base backups, until they expire",
    ]
    store.vacuum()
    assert store.stats()["awaiting_vacuum"] == 1
    execute("COMMIT")
    store.vacuum()
    assert store.stats()["awaiting_vacuum"] == 0
    dead = execute(
        "SELECT sum(n_dead_tup), bool_or(last_vacuum IS NOT NULL) FROM pg_stat_all_tables "
        "WHERE schemaname = 'SCHEMA' AND relname LIKE 'records%%'"
    )
    assert dead == [(0, True)]
    left = execute("SELECT content FROM SCHEMA.records")
    assert sorted(text for (text,) in left) == sorted(f"harbour secret{n}" for n in range(10, 20))


def test_the_worker_vacuums_when_it_is_idle(store: Store, execute: Callable[..., list[tuple[Any, ...]]]) -> None:
    write(store, Draft("r1", "harbour secret", NOON))
    store.forget(Filter(ids=["r1"]))
    deadline = time.monotonic() + 60
    while store.stats()["awaiting_vacuum"]:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    assert execute("SELECT count(*) FROM SCHEMA.vacuums") == [(0,)]
