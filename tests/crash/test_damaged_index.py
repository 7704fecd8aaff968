"""The database file alone is the memory: whatever happens to its index, the answers stay correct."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom.everyday import Memory
from loom.index import segments as loom_segments
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
    """The hits in order, with scores rounded beyond the last bits of floating point."""
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
    segments(path)[0].write_bytes(b"LOOMSEG2" + bytes(range(256)) * 20)


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
    """The ranges of a segment file that a checksum covers: its head, and each of its arrays."""
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


# --- damage is not written on -------------------------------------------------------------------------------


def flip_in(victim: Path, part: str) -> None:
    """Flip the highest bit of the first byte of a part as a failing disk does it, without a trace in the times."""
    content, before = bytearray(victim.read_bytes()), victim.stat()
    content[guarded_ranges(content)[part][0]] ^= 128
    victim.write_bytes(content)
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))


PARTS = [
    *(("text", part) for part in ("keys", "lengths", "doc_values", "hashes", "starts", "documents", "codes")),
    *(("text", part) for part in ("pair_frequencies", "pair_lengths")),
    *(("vectors", part) for part in ("keys", "coarse", "fine", "vectors", "centre")),
]


@pytest.mark.parametrize(("kind", "part"), PARTS)
@pytest.mark.parametrize("rewrite", ["merge", "forget"])
def test_a_flipped_bit_is_rebuilt_and_never_written_on_under_a_new_checksum(
    path: Path, kind: str, part: str, rewrite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loom_segments, "IN_MEMORY_BYTES", 0)  # as if they were large
    with opened(path) as memory:
        for victim in segments(path):
            if victim.name.startswith(kind):
                flip_in(victim, part)
        if rewrite == "merge":
            for first in range(60, 100, 10):
                write(memory, first, first + 10)
                assert memory.flush().complete
            right = right_answers(100)
        else:
            for number in (0, 33):
                assert memory.forget(f"one-{number}").records == 1
                if part == "keys":  # a segment that is not known to hold the record would keep its words
                    assert memory.check(repair=False).ok
            assert memory.flush().complete
            right = right_answers(60, frozenset({0, 33}))
        assert memory.check().ok
        assert answers(memory) == right
        assert_sound(memory)


@pytest.mark.parametrize("kind", ["text", "vectors"])
def test_arrays_that_contradict_each_other_behind_right_checksums_are_not_written_on(path: Path, kind: str) -> None:
    with opened(path) as memory:
        found = [loom_segments.open_segment(one) for one in segments(path) if one.name.startswith(kind)]
        first = min(found, key=lambda segment: segment.header["first_key"])
        assert first.path is not None
        keys = first.arrays["keys"].copy()
        keys[[3, 4]] = keys[[4, 3]]
        beside = path.with_name(first.path.name)  # the worker removes unfinished files from the folder of the index
        loom_segments.write_segment(beside, first.header, {**first.arrays, "keys": keys})
        beside.replace(first.path)
        assert memory.forget("one-0").records == 1
        assert memory.check(repair=False).ok
        assert answers(memory) == right_answers(60, frozenset({0}))


def test_a_segment_of_another_store_is_not_merged_into_this_one(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.loom"
    with opened(other) as memory:
        for first in range(200, 260, 10):
            write(memory, first, first + 10)
            assert memory.flush().complete
    with opened(path) as memory:
        for mine, foreign in zip(segments(path), segments(other), strict=True):
            shutil.copyfile(foreign, mine)
        for first in range(60, 140, 10):
            write(memory, first, first + 10)
            assert memory.flush().complete
        assert memory.check(repair=False).ok
        assert answers(memory) == right_answers(140)


def test_a_segment_under_the_name_of_another_one_of_the_store_is_not_believed(path: Path) -> None:
    named = {kind: [one for one in segments(path) if one.name.startswith(kind)] for kind in ("text", "vectors")}
    for files in named.values():
        assert len(files) > 1
        shutil.copyfile(files[0], files[-1])
    with opened(path) as memory:
        assert answers(memory) == right_answers(60)
        assert memory.check().ok


_CUT_WHILE_MAPPED = """
import os, sys
import loom, loom.index.segments
from pathlib import Path
loom.index.segments.IN_MEMORY_BYTES = 16384
path, kept = Path(sys.argv[1]), float(sys.argv[2])
with loom.open(path, embedder="none", read_only=sys.argv[3] == "read_only") as memory:
    before = [hit.id for hit in memory.recall("word5 common", limit=20)]
    for file in path.with_name(path.name + "-index").glob("*.seg"):
        assert file.stat().st_size > 16384
        os.truncate(file, int(kept * file.stat().st_size))
    for question in ("word5 common", "word199", "word17"):
        print([hit.id for hit in memory.recall(question, limit=20)][:1])
    assert [hit.id for hit in memory.recall("word5 common", limit=20)] == before
    if sys.argv[3] != "read_only":
        assert memory.forget("one-9").ids == ("one-9",)
        assert memory.flush().complete and memory.check().ok
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a segment of many pages."""
    path = tmp_path_factory.mktemp("large") / "agent.loom"
    with loom.open(path, embedder="none", index_tail_records=200) as memory:
        texts = [
            f"word{number} common " + " ".join(f"t{number}x{one}" for one in range(40)) for number in range(3000)
        ]
        memory.remember([{"id": f"one-{number}", "content": text} for number, text in enumerate(texts)])
        assert memory.flush().complete
    assert [one.stat().st_size > 1 << 16 for one in segments(path)] == [True]
    return path


@pytest.mark.parametrize("mode", ["writing", "read_only"])
@pytest.mark.parametrize("kept", [0.0, 0.4, 0.999])
def test_a_segment_that_is_cut_short_while_it_is_mapped_does_not_kill_the_process(
    large: Path, tmp_path: Path, kept: float, mode: str
) -> None:
    shutil.copytree(large.parent, tmp_path / "copy")
    script = [sys.executable, "-c", _CUT_WHILE_MAPPED, str(tmp_path / "copy" / "agent.loom"), str(kept), mode]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['one-5']", "['one-199']", "['one-17']"]
