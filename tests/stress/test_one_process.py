"""Several handles and several threads on one file in one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import Closed, LoomError, UnsupportedStore
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from tests.crash.processes import Child, assert_found, assert_sound, unique_word


def text(number: int) -> str:
    return f"{unique_word(number)} written alone"


def same_name(path: Path) -> Path:
    return path


def dotted_name(path: Path) -> Path:
    return path.parent / "." / ".." / path.parent.name / path.name


def symbolic_link(path: Path) -> Path:
    link = path.with_name("link.loom")
    link.symlink_to(path.name)
    return link


def linked_folder(path: Path) -> Path:
    link = path.parent.parent / "linked-folder"
    link.symlink_to(path.parent, target_is_directory=True)
    return link / path.name


NAMES = [same_name, dotted_name, symbolic_link, linked_folder]


@pytest.mark.parametrize("rename", NAMES)
def test_a_file_opened_twice_is_one_store_and_each_handle_closes_alone(
    tmp_path: Path, rename: Callable[[Path], Path]
) -> None:
    path = tmp_path / "here" / "agent.loom"
    path.parent.mkdir()
    first = loom.open(path, embedder="none", index_tail_records=4)
    second = loom.open(rename(path), embedder="none", index_tail_records=4)
    for number in range(0, 40, 2):
        first.remember(text(number), id=f"one-{number}")
        second.remember(text(number + 1), id=f"one-{number + 1}")
        assert_found(first, {f"one-{number + 1}": text(number + 1)})
        assert_found(second, {f"one-{number}": text(number)})
    first.close()
    with pytest.raises(Closed):
        first.get("one-1")
    second.remember(text(40), id="one-40")
    assert second.flush().complete
    assert_found(second, {f"one-{number}": text(number) for number in range(41)})
    assert_sound(second)
    with Child("serve", path=str(path), index_tail_records=4) as other:
        assert other.line() == "open"
        assert other.ask("recall", question=unique_word(40), limit=1) == ["one-40"]
        other.ask("remember", what=text(41), id="one-41")
        other.finish()
    assert_found(second, {"one-41": text(41)})
    second.close()
    assert len(list(tmp_path.rglob("*-index"))) == 1, "one store, one index folder"
    with loom.open(path, embedder="none") as memory:
        assert_found(memory, {f"one-{number}": text(number) for number in range(42)})
        assert_sound(memory)


def test_a_process_that_came_by_a_symbolic_link_shares_the_index(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with loom.open(path, embedder="none", index_tail_records=4) as memory:
        with Child("serve", path=str(symbolic_link(path)), index_tail_records=4) as other:
            assert other.line() == "open"
            for number in range(20):
                memory.remember(text(number), id=f"one-{number}")
                other.ask("remember", what=text(100 + number), id=f"one-{100 + number}")
            assert other.ask("flush") is True
            assert memory.flush().complete
            assert other.ask("problems") == []
            for number in (0, 19, 100, 119):
                assert other.ask("recall", question=unique_word(number), limit=1) == [f"one-{number}"]
                assert_found(memory, {f"one-{number}": text(number)})
            other.finish()
        assert_sound(memory)


def test_a_file_with_two_hard_links_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with loom.open(path, embedder="none") as memory:
        memory.remember(text(1), id="one-1")
    os.link(path, tmp_path / "other.loom")
    for name in (path, tmp_path / "other.loom"):
        with pytest.raises(UnsupportedStore):
            loom.open(name, embedder="none")
    (tmp_path / "other.loom").unlink()
    with loom.open(path, embedder="none") as memory:
        assert_found(memory, {"one-1": text(1)})


@pytest.mark.parametrize("rename", NAMES)
def test_two_namespaces_of_one_file_share_nothing_and_close_alone(
    tmp_path: Path, rename: Callable[[Path], Path]
) -> None:
    path = tmp_path / "here" / "agent.loom"
    path.parent.mkdir()
    red = loom.open(path, namespace="red", embedder="none", index_tail_records=3)
    blue = loom.open(rename(path), namespace="blue", embedder="none", index_tail_records=3)
    for number in range(20):
        red.remember(text(number), id=f"one-{number}")
        blue.remember(text(100 + number), id=f"one-{number}")
    assert red.flush().complete
    assert blue.flush().complete
    assert_found(red, {f"one-{number}": text(number) for number in range(20)})
    assert_found(blue, {f"one-{number}": text(100 + number) for number in range(20)})
    assert unique_word(101) not in " ".join(
        hit.content for hit in red.recall(f"{unique_word(101)} written", limit=50)
    )
    red.close()
    blue.forget("one-3")
    blue.remember(text(130), id="one-30")
    assert blue.flush().complete
    assert_sound(blue)
    blue.close()
    with loom.open(path, namespace="red", embedder="none") as red:
        assert_found(red, {f"one-{number}": text(number) for number in range(20)})
        assert_sound(red)


def test_a_read_only_and_a_writing_handle_live_in_one_process(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with loom.open(path, embedder="none", index_tail_records=3) as memory:
        memory.remember(text(0), id="one-0")
        with loom.open(path, embedder="none", read_only=True) as reader:
            for number in range(1, 20):
                memory.remember(text(number), id=f"one-{number}")
                assert_found(reader, {f"one-{number}": text(number)})
        with Child("serve", path=str(path)) as other:  # the locks are still held after the reader closed
            assert other.line() == "open"
            other.ask("remember", what=text(50), id="one-50")
            other.kill()
        memory.remember(text(20), id="one-20")
        assert_found(memory, {f"one-{number}": text(number) for number in [*range(21), 50]})
    with loom.open(path, embedder="none") as memory:
        assert_found(memory, {f"one-{number}": text(number) for number in [*range(21), 50]})
        assert_sound(memory)


def run_threads(actions: list[Callable[[], None]]) -> None:
    """Run all at once, each in a thread; the first error of any is raised here."""
    errors: list[BaseException] = []
    begin = threading.Barrier(len(actions))

    def run(action: Callable[[], None]) -> None:
        try:
            begin.wait()
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("embedder", ["none", FakeEmbedder(dimensions=16)], ids=["words", "vectors"])
@pytest.mark.parametrize("in_file", [True, False], ids=["file", "memory"])
def test_eight_threads_write_and_recall_on_one_memory(tmp_path: Path, embedder: Any, in_file: bool) -> None:
    path = tmp_path / "agent.loom" if in_file else None
    with loom.open(path, embedder=embedder, index_tail_records=10) as memory:

        def work(first: int) -> None:
            for number in range(first, first + 25):
                memory.remember(text(number), id=f"one-{number}")
                assert_found(memory, {f"one-{number}": text(number)})
                if number % 5 == 4:
                    memory.update(f"one-{number}", f"{text(number)} again")
                if number % 10 == 7:
                    memory.forget(f"one-{number}")
                if number % 12 == 1:
                    memory.flush()

        run_threads([lambda first=thread * 1000: work(first) for thread in range(8)])  # type: ignore[misc]
        assert memory.flush().complete
        numbers = [thread * 1000 + place for thread in range(8) for place in range(25)]
        kept = [number for number in numbers if number % 10 != 7]
        assert_found(
            memory,
            {f"one-{number}": text(number) + (" again" if number % 5 == 4 else "") for number in kept},
        )
        assert all(memory.get(f"one-{number}") is None for number in numbers if number % 10 == 7)
        assert_sound(memory)


def test_threads_that_open_use_and_close_the_same_file_disturb_nobody(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with loom.open(path, embedder="none", index_tail_records=5) as memory:

        def work(first: int) -> None:
            for number in range(first, first + 15):
                with loom.open(path, embedder="none", index_tail_records=5) as own:
                    own.remember(text(number), id=f"one-{number}")
                    assert_found(own, {f"one-{number}": text(number)})

        run_threads([lambda first=thread * 1000: work(first) for thread in range(6)])  # type: ignore[misc]
        assert_found(
            memory, {f"one-{t * 1000 + place}": text(t * 1000 + place) for t in range(6) for place in range(15)}
        )
        assert_sound(memory)


def test_closing_while_other_threads_work_gives_them_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    memory = loom.open(path, embedder=FakeEmbedder(dimensions=16), index_tail_records=3)
    acknowledged: list[int] = []
    enough = threading.Event()

    def write(first: int) -> None:
        for number in range(first, first + 100_000):
            try:
                memory.remember(text(number), id=f"one-{number}")
            except Closed:
                return
            acknowledged.append(number)
            if len(acknowledged) > 150:
                enough.set()

    def recall() -> None:
        while True:
            try:
                memory.recall("written alone", limit=3)
            except Closed:
                return

    def close() -> None:
        enough.wait()
        memory.close()

    run_threads([lambda: write(0), lambda: write(1_000_000), recall, recall, close])
    with loom.open(path, embedder="none") as again:
        assert_found(again, {f"one-{number}": text(number) for number in acknowledged})
        assert_sound(again)


def test_an_embedder_that_fails_now_and_then_stops_neither_the_worker_nor_the_words(tmp_path: Path) -> None:
    class Shaky(FakeEmbedder):
        calls = 0

        def embed_batch(self, texts: Any) -> Any:
            self.calls += 1
            if self.calls % 3 == 1:
                raise RuntimeError("the model is not in the mood")
            return super().embed_batch(texts)

    with loom.open(tmp_path / "agent.loom", embedder=Shaky(dimensions=16), index_tail_records=3) as memory:
        for number in range(12):
            memory.remember(text(number), id=f"one-{number}")
        assert memory.flush().complete
        stats = memory.get_stats()
        assert stats["vectors"] == stats["records"] == 12
        assert_found(memory, {f"one-{number}": text(number) for number in range(12)})
        assert_sound(memory)


def test_errors_of_a_closed_memory_are_ours(tmp_path: Path) -> None:
    memory: Memory = loom.open(tmp_path / "agent.loom", embedder="none")
    memory.close()
    memory.close()
    verbs: list[Callable[[], object]] = [
        lambda: memory.remember("x"),
        lambda: memory.recall("x"),
        lambda: memory.get("x"),
        lambda: memory.list(),
        lambda: memory.forget("x"),
        lambda: memory.flush(),
        lambda: memory.check(),
        lambda: memory.get_stats(),
        lambda: memory.vacuum(),
        lambda: memory.backup(tmp_path / "copy.loom"),
    ]
    for verb in verbs:
        with pytest.raises(LoomError):
            verb()
