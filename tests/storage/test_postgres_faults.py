"""Connections that are lost, held or cut at the worst moments: an error or a safe retry, never a double or a loss."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import loom
from loom.errors import ForgetPending, IdConflict, StoreBusy, StoreFull, StoreUnavailable
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from loom.storage.contract import Draft
from tests.postgres_server import PostgresServer, find_programs, running_server

pytest.importorskip("psycopg")

import psycopg

from loom.storage.postgres import connections, namespace_engine
from tests.postgres_proxy import Way, way_to

WITHIN_S = 30.0

Execute = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def on_the_way(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[tuple[str, Way]]:
    """The URL of an empty memory, and the way between it and the server."""
    with way_to(postgres_server, tmp_path / "way") as (server, way):
        yield server.store_url(tmp_path), way


@pytest.fixture
def execute(postgres_server: PostgresServer, on_the_way: tuple[str, Way]) -> Iterator[Execute]:
    """Executes a statement on the tables of the memory, without loom."""
    schema = on_the_way[0].partition("schema=")[2].partition("&")[0]
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:

        def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement.replace("SCHEMA", schema).encode(), values)
            return cursor.fetchall() if cursor.description else []

        yield run


def opened(url: str, **options: Any) -> Memory:
    return loom.open(url, **{"embedder": "none", "derive": False, **options})


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < deadline, "what is waited for does not happen"
        threading.Event().wait(0.01)


def contents(memory: Memory) -> list[str]:
    return sorted(record.content for record in memory.list(limit=100))


# -- one statement ---------------------------------------------------------------------------------------------------


def test_a_plain_remember_is_one_statement(on_the_way: tuple[str, Way]) -> None:
    url, way = on_the_way
    with opened(url) as memory:
        memory.remember("the first one learns the settings")
        before = way.answers
        for number in range(5):
            memory.remember(f"text {number}", role="user", session_id="s1", metadata={"n": number})
        assert way.answers == before + 5 + 1  # and the statement is prepared once
        assert [hit.content for hit in memory.recall("text 3", limit=1)] == ["text 3"]
        assert memory.check().ok


EVERYDAY: list[dict[str, Any]] = [
    {},
    {"id": "of the caller {}"},
    {"role": "user", "name": "Ana", "session_id": "s1", "created_at": datetime(2026, 2, 3, tzinfo=UTC)},
    {"id": "m{}", "role": "assistant", "session_id": "s1", "metadata": {"n": 1}},
]


@pytest.mark.parametrize("said", EVERYDAY, ids=lambda said: ", ".join(said) or "nothing else")
def test_an_everyday_remember_is_one_round_trip(on_the_way: tuple[str, Way], said: dict[str, Any]) -> None:
    url, way = on_the_way
    with opened(url) as memory:

        def remember(number: int) -> None:
            memory.remember(f"text {number}", **(said | ({"id": said["id"].format(number)} if "id" in said else {})))

        for number in range(2):
            remember(number)  # the first learns the settings, and the second prepares the statement
        before = way.answers
        for number in range(2, 7):
            remember(number)
        assert way.answers == before + 5
        assert contents(memory) == [f"text {number}" for number in range(7)]


def put_entry(memory: Memory, number: int) -> None:
    with memory.store.transaction() as transaction:
        transaction.put_entry("key", number, writer="w")


IN_TRANSACTIONS: list[tuple[int, Callable[[Memory, int], object]]] = [
    (4, put_entry),
    (7, lambda memory, number: memory.remember(f"important text {number}", importance=0.9)),
    (9, lambda memory, number: memory.remember([f"text {number}", f"answer {number}"])),
]


@pytest.mark.parametrize(("most", "write"), IN_TRANSACTIONS, ids=["entry", "working tier", "list"])
def test_a_write_in_a_transaction_takes_few_round_trips(
    on_the_way: tuple[str, Way], most: int, write: Callable[[Memory, int], object]
) -> None:
    url, way = on_the_way
    with opened(url) as memory:
        taken = []
        for number in range(8):
            before = way.answers
            write(memory, number)
            taken.append(way.answers - before)
        # The first ones prepare statements, and the worker may speak meanwhile.
        assert min(taken) == most


def test_an_id_that_is_known_or_awaited_is_written_in_a_transaction(on_the_way: tuple[str, Way]) -> None:
    url, _ = on_the_way
    with opened(url) as memory:
        first = memory.remember("a text", id="known")
        again = memory.remember("a text", id="known")
        assert (first.created, again.created) == (True, False)
        with pytest.raises(IdConflict):
            memory.remember("another text", id="known")
        with memory.store.transaction() as transaction:
            transaction.append([Draft("derived", "a fact", datetime(2026, 2, 3, tzinfo=UTC), sources=("awaited",))])
        memory.remember("the source", id="awaited")
        assert [record.id for record in memory.store.sources("derived")] == ["awaited"]
        memory.forget("known")
        assert memory.remember("a new text", id="known").created
        assert memory.check().ok


@pytest.mark.parametrize("of_other", ["the record", "a name that is awaited"])
def test_an_id_that_is_taken_after_the_statement_began_is_not_written_twice(
    on_the_way: tuple[str, Way], execute: Execute, tmp_path: Path, of_other: str
) -> None:
    url, _ = on_the_way

    def is_waiting() -> bool:
        found = execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return found == [(1,)]

    base = url.partition("&cache=")[0]
    with opened(url) as memory, opened(f"{base}&cache={tmp_path / 'other'}") as other:
        for one in (memory, other):
            one.remember("learns the settings", id=f"{id(one)}")
        other.remember("a fact", id="derived", importance=0.9)
        statement = memory.store.engine.one_statements[False, True]  # type: ignore[attr-defined]
        # The statement waits after it began, and before it takes the lock.
        wait = b"(SELECT pg_advisory_xact_lock(27)) IS NOT NULL AND EXISTS (SELECT 1"
        statement.text = statement.text.replace(b"EXISTS (SELECT 1", wait, 1)
        execute("SELECT pg_advisory_lock(27)")
        writer = threading.Thread(target=memory.remember, args=("a text",), kwargs={"id": "same"})
        writer.start()
        wait_for(is_waiting)
        if of_other == "the record":
            other.remember("a text", id="same")
        else:
            with other.store.transaction() as transaction:
                transaction.derive("derived", ["same"])
        execute("SELECT pg_advisory_unlock(27)")
        writer.join(WITHIN_S)
        assert [record.id for record in memory.list(limit=10)].count("same") == 1
        assert len(memory.history("same")) == 1
        if of_other != "the record":
            assert [record.id for record in memory.store.sources("derived")] == ["same"]
        assert memory.check().ok


def test_a_lost_remember_whose_outcome_is_not_known_names_the_id_that_may_be_repeated(
    on_the_way: tuple[str, Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, way = on_the_way
    monkeypatch.setattr(connections, "FIND_AGAIN_S", 0.0)
    with opened(url) as memory:
        memory.remember("first")
        way.fail_over()
        way.lose_next_answer()
        with pytest.raises(StoreUnavailable, match="not known") as error:
            memory.remember("second")
        way.come_back()
        id = re.search(r"with id='(\w+)'", str(error.value))
        assert id is not None
        memory.remember("second", id=id[1])
        assert contents(memory) == ["first", "second"]


def test_settings_that_another_host_changes_hold_for_the_next_remember(
    on_the_way: tuple[str, Way], tmp_path: Path
) -> None:
    url, _ = on_the_way
    base = url.partition("&cache=")[0]
    with opened(url) as one:
        first = one.remember("before")
        cache = tmp_path / "other"
        with opened(f"{base}&cache={cache}", embedder=FakeEmbedder(), l1_token_budget=60, reconfigure=True) as other:
            long = one.remember("many words " * 60)
            assert (long.tier, "more than L1 takes" in long.note) == ("l3", True)
            second = one.remember("this text is embedded by the other host")
            other.flush()
            records = [other.store.get(receipt.id) for receipt in (first, long, second)]
            assert len(other.store.vectors([record.seq for record in records if record is not None])) == 3


def test_an_answer_that_is_lost_after_the_commit_neither_doubles_nor_loses_a_record(
    on_the_way: tuple[str, Way], execute: Execute
) -> None:
    url, way = on_the_way
    with opened(url) as memory:
        memory.remember("first")
        for number in range(3):
            way.lose_next_answer()
            receipt = memory.remember(f"text {number}")
            assert memory.get(receipt.id) is not None
        assert contents(memory) == ["first", "text 0", "text 1", "text 2"]
        assert memory.check().ok


def test_a_statement_that_outlives_its_connection_writes_nothing(
    on_the_way: tuple[str, Way], execute: Execute
) -> None:
    url, way = on_the_way

    def waiting(statement: str) -> bool:
        execute("SELECT pg_stat_clear_snapshot()")
        found = execute("SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return any(query.startswith(statement) for (query,) in found)

    with opened(url) as memory:
        memory.remember("first")
        execute("BEGIN")
        execute("SELECT 1 FROM SCHEMA.heads FOR UPDATE")
        writer = threading.Thread(target=memory.remember, args=("second",))
        writer.start()
        wait_for(lambda: waiting("WITH h AS"))
        way.cut_clients()
        wait_for(lambda: waiting("BEGIN"))  # the repetition, behind the lost statement
        execute("COMMIT")
        writer.join(WITHIN_S)
        assert contents(memory) == ["first", "second"]
        wait_for(lambda: not waiting("WITH h AS"))
        assert execute("SELECT count(*) FROM SCHEMA.records") == [(2,)]
        assert memory.check().ok


def test_a_statement_that_arrives_after_its_repetition_writes_nothing(
    on_the_way: tuple[str, Way], execute: Execute
) -> None:
    url, way = on_the_way
    with opened(url) as memory:
        memory.remember("first")
        memory.remember("prepares the statement")
        arrived = way.answers
        way.hold()
        writer = threading.Thread(target=memory.remember, args=("second",))
        writer.start()
        wait_for(lambda: way.holds_a_question)
        way.cut_clients()
        writer.join(WITHIN_S)
        assert contents(memory) == ["first", "prepares the statement", "second"]
        asked = way.answers
        assert asked > arrived
        way.release()
        wait_for(lambda: way.answers > asked)
        assert execute("SELECT count(*) FROM SCHEMA.records") == [(3,)]


# -- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [True, False])
def test_the_outcome_of_a_commit_on_a_lost_connection_is_found_out(
    on_the_way: tuple[str, Way], execute: Execute, answered: bool
) -> None:
    url, way = on_the_way
    with opened(url) as memory:
        memory.remember("first", id="first")

        def write() -> None:
            with memory.store.transaction() as transaction:
                transaction.put_entry("key", "value", writer="w")
                way.cut_at(b"COMMIT", answered=answered)

        if answered:
            write()  # it was kept, and the caller need not know
        else:
            with pytest.raises(StoreUnavailable, match="nothing was written"):
                write()
        assert execute("SELECT count(*) FROM SCHEMA.entries") == [(int(answered),)]
        assert contents(memory) == ["first"]
        assert memory.check().ok


def test_an_outcome_that_cannot_be_found_out_is_said_to_be_unknown(
    on_the_way: tuple[str, Way], postgres_server: PostgresServer, execute: Execute
) -> None:
    url, way = on_the_way
    with opened(url, busy_timeout_s=0.05) as memory, psycopg.connect(postgres_server.url, autocommit=True) as other:
        memory.remember("first")
        statement = f"SELECT 1 FROM {url.partition('schema=')[2].partition('&')[0]}.heads FOR UPDATE"
        # It takes the lock after the write, and before the question for its outcome.
        locking = threading.Thread(target=execute, args=(f"BEGIN; {statement}",))

        def is_waiting() -> bool:
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
            return other.execute(query, [f"%{statement}"]).fetchone() == (1,)

        def write() -> None:
            with memory.store.transaction() as transaction:
                transaction.put_entry("key", "value", writer="w")
                locking.start()
                wait_for(is_waiting)
                way.cut_at(b"COMMIT", answered=True)

        with pytest.raises(StoreUnavailable, match="not known"):
            write()
        locking.join(WITHIN_S)
        execute("ROLLBACK")
        assert execute("SELECT count(*) FROM SCHEMA.entries") == [(1,)]


INTERRUPTED = """
import signal, sys
import loom
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background command begins without it
with loom.open(sys.argv[1], embedder="none", derive=False, busy_timeout_s=3600) as memory:
    memory.remember("learns the settings")
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        memory.remember("interrupted")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    sys.stdin.readline()
    memory.remember("written")
"""


def test_a_remember_that_waits_for_another_writer_can_be_interrupted_and_keeps_nothing(
    on_the_way: tuple[str, Way], execute: Execute
) -> None:
    url, _ = on_the_way
    command = [sys.executable, "-c", INTERRUPTED, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(WITHIN_S, process.kill)
        late.start()
        assert process.stdout.readline() == "ready\n"
        execute("BEGIN; SELECT 1 FROM SCHEMA.heads FOR UPDATE")
        process.stdin.write("go on\n")
        process.stdin.flush()
        wait_for(lambda: execute("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)])
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        execute("ROLLBACK")
        process.communicate("go on\n")
        late.cancel()
        assert process.returncode == 0
    with opened(url) as memory:
        assert contents(memory) == ["learns the settings", "written"]


# -- anything else ---------------------------------------------------------------------------------------------------


def test_connections_that_are_terminated_in_the_middle_of_anything_cost_nothing(
    on_the_way: tuple[str, Way], execute: Execute
) -> None:
    url, _ = on_the_way
    stop = threading.Event()
    cuts: list[int] = []
    ours = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name = 'loom' AND pid <> pg_backend_pid()"
    )

    def cut() -> None:
        while not stop.wait(0.05):
            cuts.append(execute(ours)[0][0])

    def insist(action: Callable[[], object]) -> None:
        """Repeat what may be repeated: the same ids, a forgetting, a question."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                action()
            except (StoreBusy, StoreUnavailable, ForgetPending):
                assert time.monotonic() < deadline
            else:
                return

    with opened(url, embedder=FakeEmbedder(dimensions=16), index_tail_records=10, lease_s=1.0) as memory:
        cutter = threading.Thread(target=cut)
        cutter.start()
        try:
            for number in range(6):
                insist(partial(memory.remember, f"alone {number}", id=f"a{number}"))
                many = [{"content": f"of many {number} {at}", "id": f"m{number}-{at}"} for at in range(6)]
                insist(partial(memory.remember, many, importance=0.9))
                insist(partial(memory.context, f"alone {number}", budget=500))
                if number % 3 == 2:
                    insist(partial(memory.forget, f"m{number}-0"))
            wait_for(lambda: len(cuts) > 3)
        finally:
            stop.set()
            cutter.join(WITHIN_S)
        insist(lambda: memory.flush(timeout_s=WITHIN_S))
        assert sum(cuts) > 2
        expected = {f"alone {number}" for number in range(6)}
        expected |= {f"of many {number} {at}" for number in range(6) for at in range(6) if at or number % 3 != 2}
        assert contents(memory) == sorted(expected)
        assert [hit.id for hit in memory.recall("alone 5", limit=1)] == ["a5"]
        assert memory.check().ok


def test_a_host_that_is_cut_off_in_a_write_holds_the_others_up_and_no_longer_than_its_connection(
    on_the_way: tuple[str, Way], execute: Execute, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    url, way = on_the_way
    schema = url.partition("schema=")[2].partition("&")[0]
    begun, end = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def write(memory: Memory) -> None:
        try:
            with memory.store.transaction() as transaction:
                transaction.put_entry("by the lost host", 1, writer="lost")
                begun.set()
                end.wait(WITHIN_S)
                transaction.put_entry("by the lost host", 2, writer="lost")
        except StoreUnavailable as error:
            failed.append(error)

    other_url = f"{postgres_server.url}&schema={schema}&cache={tmp_path / 'other'}"
    with opened(url) as lost, opened(other_url, busy_timeout_s=0.2) as other:
        writer = threading.Thread(target=write, args=(lost,))
        writer.start()
        assert begun.wait(WITHIN_S)
        way.hold(new=True)  # the host is cut off, or stopped: the server hears nothing of it
        with pytest.raises(StoreBusy):
            other.remember("while the lost host holds the lock")
        # The server gives a silent transaction up after a while; the test does not wait as long.
        execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
        other.remember("after the server gave the lost host up", id="after")
        way.release()
        end.set()
        writer.join(WITHIN_S)
        assert failed
        assert other.store.entry("by the lost host") is None
        assert contents(other) == ["after the server gave the lost host up"]
        lost.remember("the lost host is back")
        assert len(contents(other)) == 2
        assert other.check().ok


def test_the_server_ends_a_write_whose_host_says_nothing(
    on_the_way: tuple[str, Way], tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = on_the_way
    schema = url.partition("schema=")[2].partition("&")[0]
    other_url = f"{postgres_server.url}&schema={schema}&cache={tmp_path / 'other'}"
    with opened(url) as silent, opened(other_url) as other:
        monkeypatch.setattr(namespace_engine, "SILENT_MS", 50)

        def write() -> None:
            with silent.store.transaction() as transaction:
                other.remember("by another host", id="after")  # it waits until the server has ended this write
                transaction.put_entry("by the silent host", 1, writer="silent")

        with pytest.raises(StoreUnavailable):
            write()
        assert contents(other) == ["by another host"]
        assert other.store.entry("by the silent host") is None
        silent.remember("the silent host is back")
        assert len(contents(other)) == 2


def test_a_full_disk_of_the_server_refuses_writes_and_loses_none(
    postgres_server: PostgresServer, tmp_path: Path, execute: Execute, on_the_way: tuple[str, Way]
) -> None:
    disk = Path(tempfile.mkdtemp(prefix="loom-full-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0777", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        disk.rmdir()
        pytest.skip("mounting a small file system needs the rights of root")
    name = f"full_{disk.name[-8:].lower()}"
    url = f"{postgres_server.store_url(tmp_path)}&options=-cdefault_tablespace%3D{name}"
    try:
        place = disk / "tables"
        place.mkdir()
        programs = find_programs()
        assert programs is not None
        programs.own(place)
        execute(f"CREATE TABLESPACE {name} LOCATION '{place}'")
        acknowledged: list[str] = []
        with opened(url) as memory:
            random = Random(7)

            def fill() -> None:
                while len(acknowledged) < 2_000:
                    acknowledged.append(memory.remember(random.randbytes(3_000).hex()).id)

            with pytest.raises(StoreFull):
                fill()
            assert acknowledged
            with pytest.raises(StoreFull):
                memory.remember([random.randbytes(3_000).hex() for _ in range(40)])
            assert {record.id for record in memory.list(limit=2_000).records} == set(acknowledged)
            subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)
            acknowledged.append(memory.remember("there is room again").id)
            assert len(memory.list(limit=2_000).records) == len(acknowledged)
            assert memory.check().ok
    finally:
        schema = url.partition("schema=")[2].partition("&")[0]
        execute(f"drop schema IF EXISTS {schema} CASCADE")
        execute(f"DROP TABLESPACE IF EXISTS {name}")
        subprocess.run(["umount", str(disk)], check=True)
        disk.rmdir()


def test_a_server_that_is_stopped_in_the_middle_and_started_again_has_every_write_once(tmp_path: Path) -> None:
    programs = find_programs()
    if programs is None:
        pytest.skip("the programs of a server are needed to stop and start one")
    acknowledged: list[str] = []
    stop = threading.Event()
    with running_server(programs) as server, opened(server.store_url(tmp_path)) as memory:

        def write(thread: int) -> None:
            for number in itertools.count():
                if stop.is_set():
                    return
                text = f"text {number} of {thread}"
                said: dict[str, Any] = {"id": text} if number % 2 else {}
                try:
                    memory.remember(text, **said)
                except (StoreBusy, StoreUnavailable):
                    continue  # whether it was kept is not known
                acknowledged.append(text)

        def wait_for_more() -> None:
            before = len(acknowledged)
            wait_for(lambda: len(acknowledged) > before + 30)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for writer in writers:
            writer.start()
        try:
            for how in (signal.SIGINT, signal.SIGQUIT):
                wait_for_more()
                server.stop(how)
                server.start()
            wait_for_more()
        finally:
            stop.set()
            for writer in writers:
                writer.join(2 * WITHIN_S)
        found = [record.content for record in memory.list(limit=100_000).records]
        assert len(found) == len(set(found))
        assert set(acknowledged) <= set(found)
        assert memory.check().ok
