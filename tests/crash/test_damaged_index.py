"""The database file alone is the memory: whatever happens to the index beside it, the answers stay right."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from tests.crash.processes import Child, assert_sound, unique_word

TAIL = 8
TOPICS = ("harbour", "orchard", "glacier", "lantern", "meadow")
QUESTIONS = [*TOPICS, "harbour lantern", unique_word(3), unique_word(40), f"{unique_word(61)} orchard"]
Answers = list[list[tuple[str, float]]]


def text(number: int) -> str:
    chance = random.Random(number)
    return " ".join([unique_word(number), *chance.choices(TOPICS, k=chance.randint(1, 6)), "stands here"])


def opened(path: Path | None, **options: Any) -> Memory:
    options = {"embedder": FakeEmbedder(dimensions=16), "index_tail_records": TAIL, "lease_s": 1.0, **options}
    return loom.open(path, **options)


def write(memory: Memory, first: int, last: int) -> None:
    memory.remember([{"id": f"one-{number}", "content": text(number)} for number in range(first, last)])


def answers(memory: Memory) -> Answers:
    """What is found, in order, with scores rounded past the last bits of floating point."""
    return [[(hit.id, round(hit.score, 9)) for hit in memory.recall(question, limit=20)] for question in QUESTIONS]


def right_answers(count: int, skipped: frozenset[int] = frozenset()) -> Answers:
    """Those of a fresh store with the same records, whose index never left memory."""
    with opened(None) as memory:
        for number in range(count):
            if number not in skipped:
                write(memory, number, number + 1)
        assert memory.flush().complete
        return answers(memory)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of 60 records, nearly all of them in segments, closed."""
    path = tmp_path / "agent.loom"
    with opened(path) as memory:
        for first in range(0, 60, 10):
            write(memory, first, first + 10)
            assert memory.flush().complete
    assert len(segments(path)) >= 4
    return path


def folder(path: Path) -> Path:
    return path.with_name(path.name + "-index")


def segments(path: Path) -> list[Path]:
    return sorted(folder(path).glob("*.seg"))


def delete_the_folder(path: Path) -> None:
    shutil.rmtree(folder(path))


def delete_one_segment(path: Path) -> None:
    segments(path)[0].unlink()


def delete_a_vector_segment(path: Path) -> None:
    segments(path)[-1].unlink()


def truncate_one_segment(path: Path) -> None:
    victim = segments(path)[0]
    with victim.open("r+b") as file:
        file.truncate(victim.stat().st_size // 2)


def empty_one_segment(path: Path) -> None:
    segments(path)[0].write_bytes(b"")


def put_rubbish_into_one_segment(path: Path) -> None:
    segments(path)[0].write_bytes(b"LOOMSEG1" + bytes(range(256)) * 20)


DAMAGES = [
    delete_the_folder,
    delete_one_segment,
    delete_a_vector_segment,
    truncate_one_segment,
    empty_one_segment,
    put_rubbish_into_one_segment,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_answers_are_right_after_damage_between_uses(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with opened(path) as memory:
        assert answers(memory) == right_answers(60)
        assert memory.check().ok
    with opened(path) as memory:
        assert_sound(memory)


@pytest.mark.parametrize("damage", DAMAGES)
def test_check_finds_and_repairs_damage(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with opened(path) as memory:
        assert not memory.check(repair=False).ok
        report = memory.check()
        assert report.ok
        assert report.repaired
        assert answers(memory) == right_answers(60)
        assert_sound(memory)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_read_only_reader_answers_right_beside_a_damaged_index(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with opened(path, read_only=True) as memory:
        assert answers(memory) == right_answers(60)
    with opened(path) as memory:
        assert memory.check().repaired, "a reader repaired what it may not write"


@pytest.mark.parametrize("damage", DAMAGES)
def test_writing_flushing_and_forgetting_go_on_after_damage_during_use(
    path: Path, damage: Callable[[Path], None]
) -> None:
    with opened(path) as memory:
        assert memory.recall("harbour")
        damage(path)
        for first in range(60, 100, 10):
            write(memory, first, first + 10)
        assert memory.flush().complete
        assert answers(memory) == right_answers(100)
        damage(path)
        assert memory.forget("one-61").records == 1
        assert memory.flush().complete
        assert answers(memory) == right_answers(100, frozenset({61}))
        assert memory.check().ok
        assert_sound(memory)


@pytest.mark.parametrize("damage", DAMAGES)
def test_another_open_process_answers_right_after_damage(path: Path, damage: Callable[[Path], None]) -> None:
    with Child("serve", path=str(path), index_tail_records=TAIL, lease_s=1.0) as child:
        assert child.line() == "open"
        assert child.ask("recall", question=unique_word(3), limit=1) == ["one-3"]
        damage(path)
        with opened(path) as memory:
            write(memory, 60, 75)
            assert memory.flush().complete
            for number in (3, 33, 59, 74):
                assert child.ask("recall", question=unique_word(number), limit=1) == [f"one-{number}"]
        assert child.ask("flush") is True
        assert child.ask("problems") == []
        child.finish()


def guarded_ranges(content: bytes | bytearray) -> dict[str, range]:
    """Where the bytes of a segment file lie that a checksum guards: its head, and each of its arrays."""
    end_of_head = 16 + int.from_bytes(content[8:12], "little")
    start = -(-end_of_head // 64) * 64
    ranges = {"head": range(16, end_of_head)}
    for name, entry in json.loads(content[16:end_of_head])["arrays"].items():
        first = start + entry["offset"]
        size = int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
        if size:
            ranges[name] = range(first, first + size)
    return ranges


def test_check_notices_a_flipped_bit_in_every_part_of_every_segment(path: Path) -> None:
    chance = random.Random(4)
    with opened(path) as memory:
        for victim in segments(path):
            content = victim.read_bytes()
            for part, places in guarded_ranges(content).items():
                damaged = bytearray(content)
                damaged[chance.choice(places)] ^= 1 << chance.randrange(8)
                victim.write_bytes(damaged)
                assert not memory.check(repair=False).ok, f"{part} of {victim.name}"
            victim.write_bytes(content)
        assert_sound(memory)


def test_check_rebuilds_an_index_with_a_flipped_bit(path: Path) -> None:
    for victim in (segments(path)[0], segments(path)[-1]):
        content = bytearray(victim.read_bytes())
        content[guarded_ranges(content)["keys"][3]] ^= 8
        victim.write_bytes(content)
    with opened(path) as memory:
        report = memory.check()
        assert report.ok
        assert len(report.repaired) == 2
        assert answers(memory) == right_answers(60)
        assert_sound(memory)


def test_an_older_backup_beside_a_newer_index_answers_as_the_backup(path: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.loom"
    with opened(path) as memory:
        memory.backup(backup)
        for first in range(60, 140, 10):
            write(memory, first, first + 10)
            memory.forget(f"one-{first - 60}")
            assert memory.flush().complete
    shutil.copyfile(backup, path)
    with opened(path) as memory:
        assert answers(memory) == right_answers(60)
        assert memory.check().ok
        # The same numbers are given out again, to other records than those in the newer index.
        memory.remember([{"id": f"one-{number}", "content": text(number)} for number in range(60, 90)])
        assert memory.flush().complete
        assert answers(memory) == right_answers(90)
        assert memory.check().ok
        assert_sound(memory)


def test_a_newer_file_beside_an_older_index_answers_as_the_file(path: Path, tmp_path: Path) -> None:
    old = tmp_path / "old-index"
    shutil.copytree(folder(path), old)
    with opened(path) as memory:
        for first in range(60, 140, 10):
            write(memory, first, first + 10)
            assert memory.flush().complete
        memory.forget("one-61")
    shutil.rmtree(folder(path))
    shutil.copytree(old, folder(path))
    with opened(path) as memory:
        assert answers(memory) == right_answers(140, frozenset({61}))
        assert memory.check().ok
        assert_sound(memory)


def test_the_index_of_another_store_is_not_believed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.loom"
    with opened(other) as memory:
        write(memory, 200, 260)
        assert memory.flush().complete
    theirs = segments(other)
    for mine, foreign in zip(segments(path), theirs, strict=False):
        shutil.copyfile(foreign, mine)
    with opened(path) as memory:
        assert answers(memory) == right_answers(60)
        assert memory.check().ok


def test_the_file_copied_alone_elsewhere_is_the_whole_memory(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copyfile(path, elsewhere / "moved.loom")
    with opened(elsewhere / "moved.loom") as memory:
        assert answers(memory) == right_answers(60)
        write(memory, 60, 70)
        assert memory.flush().complete
        assert answers(memory) == right_answers(70)
        assert memory.check().ok
        assert_sound(memory)


def test_the_folder_deleted_while_the_worker_builds_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened(path, index_tail_records=2) as memory:
        for number in range(120):
            write(memory, number, number + 1)
            if number % 10 == 9:
                shutil.rmtree(folder(path), ignore_errors=True)
        assert memory.flush().complete
        assert answers(memory) == right_answers(120)
        assert memory.check().ok
