"""Segment files: written data is read back, and damage is detected."""

from __future__ import annotations

import errno
import json
import os
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from loom.errors import StoreUnavailable
from loom.index import segments
from loom.index.segments import DamagedSegment, Segment, open_segment, read_arrays, write_segment

HEADER = {"kind": "test", "count": 3, "text": "你好", "nothing": None}
ARRAYS: dict[str, npt.NDArray[Any]] = {
    "keys": np.arange(1_000, dtype=np.int64),
    "codes": np.arange(600, dtype=np.uint64).reshape(6, 100),
    "halves": np.linspace(-1, 1, 77, dtype=np.float16).reshape(7, 11),
    "none": np.empty((0, 4), dtype=np.float32),
}


@pytest.fixture(params=["in memory", "mapped"])
def path(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A segment that is read into memory when it is opened, or mapped."""
    if request.param == "mapped":
        monkeypatch.setattr(segments, "IN_MEMORY_BYTES", 0)
    target = tmp_path / "one.segment"
    write_segment(target, HEADER, ARRAYS)
    return target


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_segment_comes_back_as_it_was_written(path: Path) -> None:
    segment = open_segment(path)
    assert segment.header == HEADER
    assert list(segment.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        read = segment.arrays[name]
        assert (read.dtype, read.shape) == (array.dtype, array.shape)
        assert read.tobytes() == array.tobytes()
        assert type(read) is np.ndarray
        assert not read.flags.writeable
    assert segment.path == path
    assert segment.size_bytes == sum(array.nbytes for array in ARRAYS.values())
    assert segment.damaged_arrays() == []


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.sampled_from([np.uint8, np.int32, np.float16, np.uint64]).flatmap(
            lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=0))
        ),
        max_size=4,
    )
)
def test_any_arrays_round_trip(tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("segment") / "any.segment"
    write_segment(path, {}, content)
    segment = open_segment(path)
    assert {name: (array.dtype, array.shape) for name, array in segment.arrays.items()} == {
        name: (array.dtype, array.shape) for name, array in content.items()
    }
    assert all(segment.arrays[name].tobytes() == array.tobytes() for name, array in content.items())
    assert segment.damaged_arrays() == []


def test_arrays_that_are_not_contiguous_are_written_in_their_order(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.int32).reshape(3, 4)
    write_segment(tmp_path / "s", {}, {"turned": table.T, "every_other": table[:, ::2]})
    segment = open_segment(tmp_path / "s")
    assert (segment.arrays["turned"] == table.T).all()
    assert (segment.arrays["every_other"] == table[:, ::2]).all()


def test_a_segment_without_arrays_or_with_empty_ones_only_opens(tmp_path: Path) -> None:
    write_segment(tmp_path / "a", {"count": 0}, {})
    assert (open_segment(tmp_path / "a").header, open_segment(tmp_path / "a").arrays) == ({"count": 0}, {})
    write_segment(tmp_path / "b", {}, {"keys": np.empty(0, np.int64), "codes": np.empty((6, 0), np.uint64)})
    segment = open_segment(tmp_path / "b")
    assert segment.arrays["codes"].shape == (6, 0)
    assert segment.damaged_arrays() == []


def test_arrays_are_aligned(path: Path) -> None:
    for array in open_segment(path).arrays.values():
        assert array.size == 0 or array.ctypes.data % 64 == 0


def test_writing_leaves_one_file_and_replaces_an_older_one(path: Path) -> None:
    write_segment(path, {"count": 1}, {})
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert open_segment(path).header == {"count": 1}


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_segment(tmp_path / "s", HEADER, ARRAYS)
    assert list(tmp_path.iterdir()) == []


def test_a_small_segment_is_read_and_a_large_one_is_mapped(tmp_path: Path) -> None:
    for size, file in ((1_000, False), (segments.IN_MEMORY_BYTES, True)):
        write_segment(tmp_path / "s", {}, {"bytes": np.ones(size, dtype=np.uint8)})
        assert (open_segment(tmp_path / "s").file is not None) is file


def test_opening_a_large_segment_reads_the_header_and_maps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 4 * segments.IN_MEMORY_BYTES
    write_segment(tmp_path / "s", {}, {"bytes": np.ones(size, dtype=np.uint8)})
    read: list[int] = []
    pread = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        read.append(length)
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", counted)
    segment = open_segment(tmp_path / "s")
    assert sum(read) < 4_096
    (tmp_path / "s").unlink()
    assert int(segment.arrays["bytes"].sum()) == size
    assert segment.is_unchanged, "a merged segment that was deleted can still be read"


def test_every_truncation_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    for size in [*range(400), *range(400, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(DamagedSegment):
            open_segment(path)


def test_bytes_too_many_are_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DamagedSegment):
        open_segment(path)


def test_a_flipped_bit_in_the_header_is_noticed_at_opening(path: Path) -> None:
    content = path.read_bytes()
    size = 16 + int.from_bytes(content[8:12], "little")
    for place in range(size):
        path.write_bytes(content)
        flip(path, place)
        with pytest.raises(DamagedSegment):
            open_segment(path)


def place_of(path: Path, name: str) -> int:
    """The offset of the last byte of an array in the file, found by its content."""
    array = ARRAYS[name]
    return path.read_bytes().rindex(array.tobytes()) + array.nbytes - 1


@pytest.mark.parametrize("name", ["keys", "codes", "halves"])
def test_a_flipped_bit_in_an_array_is_noticed_at_opening(path: Path, name: str) -> None:
    flip(path, place_of(path, name))
    with pytest.raises(DamagedSegment, match=f"checksums: {name}"):
        open_segment(path)


@pytest.mark.parametrize("name", ["keys", "codes", "halves"])
def test_a_bit_that_flips_on_the_disk_is_noticed_by_who_verifies(path: Path, name: str) -> None:
    """Decay leaves the modification time as it was."""
    before = path.stat()
    flip(path, place_of(path, name))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DamagedSegment, match=f"checksums: {name}"):
        open_segment(path, verified=True)
    segment = open_segment(path, in_memory_up_to=0)
    assert segment.damaged_arrays() == [name]
    assert segment.damaged_arrays([other for other in ARRAYS if other != name]) == []


def test_a_mapped_file_that_is_written_to_or_cut_short_is_no_longer_unchanged(path: Path) -> None:
    content = path.read_bytes()

    def cut_within_a_tick() -> None:
        """On a coarse clock the modification time stays as it was."""
        before = path.stat()
        os.truncate(path, 100)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    damages: list[Callable[[], None]] = [
        cut_within_a_tick,
        lambda: os.truncate(path, 100),
        lambda: os.truncate(path, len(content) + 1),
        lambda: flip(path, place_of(path, "keys")),
    ]
    for damage in damages:
        path.write_bytes(content)
        segment = open_segment(path, in_memory_up_to=0)
        assert segment.is_unchanged
        damage()
        assert not segment.is_unchanged
        assert open_segment_or_none(path) is None


def open_segment_or_none(path: Path) -> Segment | None:
    try:
        return open_segment(path)
    except DamagedSegment:
        return None


def test_a_copy_is_verified_once(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    checked: list[str] = []
    checksum = segments.MappedFile.checksum

    def counted(file: segments.MappedFile, name: str) -> int | None:
        checked.append(name)
        return checksum(file, name)

    monkeypatch.setattr(segments.MappedFile, "checksum", counted)
    open_segment(copy, in_memory_up_to=0)
    assert checked == list(ARRAYS)
    open_segment(copy, in_memory_up_to=0)
    assert checked == list(ARRAYS)


def test_a_file_that_changes_while_it_is_verified_is_damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checksum = segments.MappedFile.checksum

    def touched(file: segments.MappedFile, name: str) -> int | None:
        os.utime(path, (0, 0))
        return checksum(file, name)

    monkeypatch.setattr(segments.MappedFile, "checksum", touched)
    with pytest.raises(DamagedSegment, match="changed while it was read"):
        open_segment(path, verified=True, in_memory_up_to=0)


@pytest.mark.parametrize("name", ["keys", "codes", "halves"])
def test_a_flipped_bit_in_an_array_that_is_stored_outside_of_a_file_is_noticed(path: Path, name: str) -> None:
    flip(path, place_of(path, name))
    content = path.read_bytes()
    with pytest.raises(DamagedSegment, match=f"checksums: {name}"):
        read_arrays(lambda first, last: content[first:last], len(content), "one")
    _, arrays = read_arrays(lambda first, last: content[first:last], len(content), "one", without=[name])
    assert list(arrays) == [other for other in ARRAYS if other != name]


def test_a_header_that_claims_four_gigabytes_is_not_read(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8:12] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(DamagedSegment):
        open_segment(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "change",
    [
        {"arrays": None},
        {"arrays": {"keys": 5}},
        {"arrays": {"keys": {"dtype": "|O", "shape": [2], "offset": 0, "crc": 0}}},
        {"arrays": {"keys": {"dtype": "<i8", "shape": [1 << 62, 4], "offset": 0, "crc": 0}}},
        {"arrays": {"keys": {"dtype": "<i8", "shape": [-4], "offset": 64, "crc": 0}}},
        {"arrays": {"keys": {"dtype": "<i8", "shape": [4], "offset": -64, "crc": 0}}},
        {"arrays": {"keys": {"dtype": "<i8", "shape": [4], "offset": 4, "crc": 0}}},
        {"arrays": {"keys": {"dtype": "<i8", "shape": [4], "offset": 4, "crc": zlib.crc32(bytes(32))}}},
        {"arrays": {"keys": {"dtype": "<i8", "shape": [0], "offset": -64, "crc": 0}}},
        {"arrays": {"keys": {"dtype": "<i8", "shape": [0], "offset": 8_256, "crc": 0}}},
        {"arrays": {"keys": {"dtype": "no type", "shape": [4], "offset": 0, "crc": 0}}},
        {"bytes": "many"},
        {"written": "yesterday", "arrays": {"keys": {"dtype": "<i8", "shape": [4], "offset": 0, "crc": 1}}},
        {"header": 7, "arrays": {}},
    ],
)
def test_a_header_that_makes_no_sense_behind_a_right_checksum_is_damage(path: Path, change: dict[str, Any]) -> None:
    content = path.read_bytes()
    end = 16 + int.from_bytes(content[8:12], "little")
    head = json.dumps({**json.loads(content[16:end]), "bytes": 8_192, **change}).encode()
    fixed = content[:8] + len(head).to_bytes(4, "little") + zlib.crc32(head).to_bytes(4, "little")
    start = -(-(16 + len(head)) // 64) * 64
    path.write_bytes((fixed + head).ljust(start, b"\0") + bytes(8_192))
    with pytest.raises(DamagedSegment):
        open_segment(path)


@pytest.mark.parametrize("lacking", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_process_without_descriptors_takes_no_segment_for_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch, lacking: int
) -> None:
    def refused(*_: Any) -> int:
        raise OSError(lacking, os.strerror(lacking))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(StoreUnavailable, match=os.strerror(lacking)):
        open_segment(path)


def test_a_missing_file_and_a_folder_are_damaged_segments(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(DamagedSegment):
            open_segment(path)


def test_a_segment_in_memory_has_nothing_to_check() -> None:
    assert Segment({}, ARRAYS).damaged_arrays() == []
