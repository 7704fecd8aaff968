"""Several processes on one file: nothing is lost, no half-finished write is seen, and compare-and-set has one
winner."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import ReadOnly
from loom.models.embedders import FakeEmbedder
from tests.crash.processes import Child, assert_found, assert_sound, unique_word
from tests.tally import scaled

WRITERS = READERS = 4
SIZE = 6


def batch_texts(first: int, count: int) -> dict[str, str]:
    return {
        f"batch-{batch}-{place}": f"{unique_word(batch * SIZE + place)} written together"
        for batch in range(first, first + count)
        for place in range(SIZE)
    }


def four_writers_and_four_readers(path: Path | str, count: int, seed_of_embedder: int | None) -> None:
    loom.open(path, embedder="none").close()
    options = {"path": str(path), "index_tail_records": 20, "lease_s": 1.0, "seed_of_embedder": seed_of_embedder}
    batches = [f"batch-{number}" for number in range(WRITERS * count)]
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(Child("read_until_told", batches=batches, size=SIZE, **options))
            for _ in range(READERS)
        ]
        for reader in readers:
            assert reader.line() == "open"
        writers = [
            stack.enter_context(Child("write_batches", first=number * count, count=count, size=SIZE, **options))
            for number in range(WRITERS)
        ]
        for writer in writers:
            assert len(writer.finish()) == count
        for reader in readers:
            (line,) = reader.finish()
            assert "error" not in json.loads(line), line
    embedder = "none" if seed_of_embedder is None else FakeEmbedder(dimensions=16, seed=seed_of_embedder)
    with loom.open(path, embedder=embedder, index_tail_records=20, lease_s=1.0) as memory:
        assert memory.flush().complete
        written = batch_texts(0, WRITERS * count)
        assert_found(memory, written)
        stats = memory.get_stats()
        assert stats["records"] == len(written)
        assert stats["vectors"] == (0 if seed_of_embedder is None else len(written))
        numbers = [record.seq for record in memory.list(limit=len(written)).records]
        assert len(set(numbers)) == len(written)
        assert_sound(memory)


@pytest.mark.parametrize("seed_of_embedder", [None, 0])
def test_four_writers_and_four_readers_lose_nothing_and_see_no_half_batch(
    tmp_path: Path, seed_of_embedder: int | None
) -> None:
    four_writers_and_four_readers(tmp_path / "agent.loom", 15, seed_of_embedder)


@pytest.mark.soak
@pytest.mark.parametrize("seed_of_embedder", [None, 0])
def test_writers_and_readers_for_minutes_lose_nothing(tmp_path: Path, seed_of_embedder: int | None) -> None:
    for number in range(scaled(5)):
        four_writers_and_four_readers(tmp_path / f"agent-{number}.loom", min(400, scaled(2000)), seed_of_embedder)


def test_compare_and_set_from_four_processes_counts_exactly(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    loom.open(path, embedder="none").close()
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(Child("increment", path=str(path), key="counter", count=75)) for _ in range(4)
        ]
        for child in children:
            child.finish()
    with loom.open(path, embedder="none") as memory:
        entry = memory.store.entry("counter")
        assert entry is not None
        assert (entry.content, entry.version) == (300, 300)
        assert_sound(memory)


def test_processes_on_a_server_lose_nothing(postgres_url: str) -> None:
    four_writers_and_four_readers(postgres_url, 5, None)
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(Child("increment", path=postgres_url, key="counter", count=20)) for _ in range(4)
        ]
        for child in children:
            child.finish()
    with loom.open(postgres_url, embedder="none") as memory:
        entry = memory.store.entry("counter")
        assert entry is not None
        assert (entry.content, entry.version) == (80, 80)


def hosts_share(places: Sequence[str], threads: int, count: int) -> None:
    """One process for each place, all of the same memory, and threads in each: nothing lost, nothing twice."""
    options: dict[str, Any] = {"index_tail_records": 20, "lease_s": 1.0, "l2_token_budget": 200}
    loom.open(places[0], embedder="none", derive=False, **options).close()
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                Child("host", path=place, number=at, hosts=len(places), threads=threads, count=count, **options)
            )
            for at, place in enumerate(places)
        ]
        acknowledged = [word for child in children for line in child.finish() for word in json.loads(line)]
    assert len(set(acknowledged)) == len(places) * threads * count
    with loom.open(places[0], embedder="none", derive=False, **options) as memory:
        assert memory.flush().complete
        written = [record.content.split()[0] for record in memory.list(limit=len(acknowledged) + 1).records]
        assert sorted(written) == sorted(acknowledged)
        total = memory.store.entry("total")
        assert total is not None
        assert total.content == len(acknowledged)
        assert all(word in memory.recall(word, limit=1)[0].content for word in acknowledged[::3])
        assert_sound(memory)


def places_of(hosts: int, path: Path, url: str | None) -> list[str]:
    """The same memory for several hosts: a file, or a server and a cache for each."""
    if url is None:
        return [str(path / "agent.loom")] * hosts
    base = url.partition("&cache=")[0]
    return [f"{base}&cache={path / f'host-{number}'}" for number in range(hosts)]


@pytest.mark.parametrize("backend", ["file", "server"])
def test_threads_of_several_hosts_find_what_the_others_write(
    tmp_path: Path, backend: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if backend == "server" else None
    hosts_share(places_of(3, tmp_path, url), 4, 2)


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["file", "server"])
def test_64_threads_of_8_hosts_find_what_the_others_write(
    tmp_path: Path, backend: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if backend == "server" else None
    hosts_share(places_of(8, tmp_path, url), 8, max(3, scaled(40)))


def test_compare_and_set_on_a_new_key_has_one_winner(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    loom.open(path, embedder="none").close()
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child("claim", path=str(path), keys=60)) for _ in range(4)]
        for child in children:
            assert child.line() == "ready"
        for child in children:
            assert child.process.stdin is not None
            child.process.stdin.write("go\n")
            child.process.stdin.flush()
        won = [key for child in children for key in child.finish()]
    assert sorted(won) == sorted(f"key-{number}" for number in range(60))


def test_another_open_process_recalls_what_was_just_written_without_a_flush(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with (
        loom.open(path, embedder="none", index_tail_records=7) as memory,
        Child("serve", path=str(path), index_tail_records=7) as other,
    ):
        assert other.line() == "open"
        for number in range(40):
            memory.remember(f"{unique_word(number)} from here", id=f"here-{number}")
            assert other.ask("recall", question=unique_word(number), limit=1) == [f"here-{number}"]
            other.ask("remember", what=f"{unique_word(1000 + number)} from there", id=f"there-{number}")
            assert [hit.id for hit in memory.recall(unique_word(1000 + number), limit=1)] == [f"there-{number}"]
        memory.forget("here-3")
        assert other.ask("recall", question=f"{unique_word(3)}", limit=1) == []
        assert other.ask("has", id="here-3") is False
        other.finish()
        assert_sound(memory)


def test_a_read_only_reader_follows_a_writing_process(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with loom.open(path, embedder="none") as memory:
        memory.remember("there from the start", id="start")
    with Child("serve", path=str(path), index_tail_records=4, lease_s=1.0) as writer:
        assert writer.line() == "open"
        with loom.open(path, embedder="none", read_only=True) as reader:
            for number in range(40):
                writer.ask("remember", what=f"{unique_word(number)} written alone", id=f"one-{number}")
                assert [hit.id for hit in reader.recall(unique_word(number), limit=1)] == [f"one-{number}"]
                if number % 10 == 9:
                    writer.ask("flush")
            assert_found(reader, {f"one-{n}": f"{unique_word(n)} written alone" for n in range(40)})
            writer.ask("forget", id="one-5")
            assert reader.get("one-5") is None
            assert reader.recall(unique_word(5)) == []
            assert reader.check().ok
            with pytest.raises(ReadOnly):
                reader.remember("this may not be written")
        writer.finish()


def test_a_read_only_reader_that_is_killed_leaves_the_writer_unharmed(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with loom.open(path, embedder="none", index_tail_records=4) as memory:
        memory.remember([{"id": f"one-{n}", "content": f"{unique_word(n)} written alone"} for n in range(20)])
        for _ in range(3):
            with Child("serve", path=str(path), read_only=True) as reader:
                assert reader.line() == "open"
                assert reader.ask("recall", question=unique_word(7), limit=1) == ["one-7"]
                reader.tell("recall", question="written alone", limit=20)
                reader.kill()
            assert memory.flush().complete
        assert_found(memory, {f"one-{n}": f"{unique_word(n)} written alone" for n in range(20)})
        assert memory.forget("one-0").records == 1
        assert_sound(memory)
