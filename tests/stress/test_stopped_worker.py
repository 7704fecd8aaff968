"""SIGSTOP in the middle of the background work: the others continue, and its late work is fenced off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import ForgetPending, StoreBusy
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from tests.crash.processes import Child, Point, assert_found, assert_sound, named, point, unique_word

TAIL = 5
OPTIONS: dict[str, Any] = {"index_tail_records": TAIL, "lease_s": 1.0}


def stop(target: str, when: str, call: int = 1) -> Point:
    return point(target, when, call, signal="SIGSTOP")


def texts(first: int, last: int) -> dict[str, str]:
    return {f"one-{number}": f"{unique_word(number)} written alone" for number in range(first, last)}


def write(memory: Memory, first: int, last: int) -> None:
    memory.remember([{"id": name, "content": text} for name, text in texts(first, last).items()])


def opened(path: Path | str, **options: Any) -> Memory:
    return loom.open(path, embedder=FakeEmbedder(dimensions=16), **{**OPTIONS, **options})


# None of these is inside a transaction: a process that is stopped in one holds SQLite's own lock (see below).
STEPS = [
    stop("embedding.embed", "after"),  # vectors made, not written
    stop("projection.write_file", "after"),  # file written, not published
    stop("projection.write_file", "after", 2),
    stop("projection.join_segments", "after"),  # of words
    stop("projection.join_segments", "after", 2),  # of vectors
    stop("projection.delete_files", "before", 3),  # published, old files still there
    stop("lease.give_back", "before"),
]


@pytest.mark.parametrize("armed", STEPS, ids=named)
def test_others_go_on_while_the_worker_is_stopped_and_its_late_work_changes_nothing(
    tmp_path: Path, armed: Point
) -> None:
    others_go_on(tmp_path / "agent.loom", armed)


@pytest.mark.parametrize("armed", STEPS[:2], ids=named)
def test_other_hosts_go_on_while_the_worker_of_one_is_stopped(postgres_url: str, armed: Point) -> None:
    others_go_on(postgres_url, armed)


def others_go_on(path: Path | str, armed: Point) -> None:
    arguments = {"path": str(path), "seed_of_embedder": 0, "armed": armed, "background": False, **OPTIONS}
    with opened(path) as memory, Child("serve", **arguments) as other:
        assert other.line() == "open"
        for first in range(0, 30, 6):  # several tails, so that there are segments to merge
            other.tell(
                "remember", what=[{"id": name, "content": text} for name, text in texts(first, first + 6).items()]
            )
            other.tell("flush")
        other.wait_until_stopped()
        already = memory.get_stats()["records"]
        write(memory, 100, 130)
        assert_found(memory, texts(0, already) | texts(100, 130))
        assert memory.flush().complete
        stats = memory.get_stats()
        assert stats["vectors"] == stats["records"] == already + 30
        assert_sound(memory)

        other.resume()
        for _ in range(0, 30, 6):
            assert len(other.answer()) == 6
            assert other.answer() is True
        assert other.ask("problems") == []
        other.finish()
        assert memory.flush().complete
        assert_found(memory, texts(0, 30) | texts(100, 130))
        stats = memory.get_stats()
        assert stats["vectors"] == stats["records"] == 60
        assert_sound(memory)


def test_a_forget_that_is_stopped_is_finished_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        write(memory, 0, 30)
        assert memory.flush().complete
        armed = stop("forget.resume", "before")
        with Child("serve", path=str(path), armed=armed, **OPTIONS) as other:
            assert other.line() == "open"
            other.tell("forget", id=[f"one-{number}" for number in range(10)])
            other.wait_until_stopped()
            assert memory.get("one-3") is None
            assert memory.flush().complete
            assert memory.store.jobs("scrub") == []
            write(memory, 30, 60)
            assert memory.flush().complete
            other.resume()
            assert other.answer() == 10
            other.finish()
        assert_found(memory, texts(10, 60))
        assert_sound(memory)


def test_a_process_stopped_inside_a_transaction_holds_up_writers_with_a_clear_error_and_readers_not_at_all(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.loom"
    with opened(path, busy_timeout_s=0.3) as memory:
        write(memory, 0, 20)
        assert memory.flush().complete
        with Child(
            "serve",
            path=str(path),
            armed=stop("transaction.append", "after"),
            **OPTIONS,
        ) as other:
            assert other.line() == "open"
            other.tell("remember", what=f"{unique_word(50)} written alone", id="one-50")
            other.wait_until_stopped()
            assert_found(memory, texts(0, 20))
            assert memory.get("one-50") is None
            with pytest.raises(StoreBusy):
                memory.remember("this has to wait")
            other.resume()
            assert other.answer() == ["one-50"]
            memory.remember("this no longer has to wait")
            assert_found(memory, texts(0, 20) | texts(50, 51))
            other.finish()
        assert_sound(memory)


def test_forgetting_waits_for_a_stopped_reader_says_so_and_ends_when_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        write(memory, 0, 20)
        assert memory.flush().complete
        with Child(
            "serve",
            path=str(path),
            read_only=True,
            armed=stop("index.refresh", "after"),
            **OPTIONS,
        ) as reader:
            assert reader.line() == "open"
            reader.tell("recall", question=unique_word(3), limit=1)
            reader.wait_until_stopped()  # inside its snapshot
            with pytest.raises(ForgetPending) as pending:
                memory.forget("one-7", timeout_s=0.3)
            assert pending.value.holding
            assert memory.get("one-7") is None
            assert "one-7" not in [hit.id for hit in memory.recall(f"{unique_word(7)} written", limit=30)]
            write(memory, 20, 30)
            reader.resume()
            assert reader.answer() == ["one-3"]
            assert reader.ask("has", id="one-7") is False
            while memory.store.jobs("scrub"):  # by itself, without another request
                pass
            reader.finish()
        assert_sound(memory)
