"""Segment files: what was written is read back, and damage is noticed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from loom.index.segments import DamagedSegment, Segment, open_segment, write_segment

HEADER = {"kind": "test", "count": 3, "text": "你好", "nothing": None}
ARRAYS: dict[str, npt.NDArray[Any]] = {
    "keys": np.arange(1_000, dtype=np.int64),
    "codes": np.arange(600, dtype=np.uint64).reshape(6, 100),
    "halves": np.linspace(-1, 1, 77, dtype=np.float16).reshape(7, 11),
    "none": np.empty((0, 4), dtype=np.float32),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
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


def test_opening_reads_the_header_and_maps_the_rest(path: Path) -> None:
    segment = open_segment(path)
    path.unlink()
    assert (segment.arrays["keys"] == ARRAYS["keys"]).all()


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


def test_a_flipped_bit_in_an_array_names_that_array(path: Path) -> None:
    intact = open_segment(path)
    # Where the mapped arrays lie in the file, found by their content: each is preceded by the ones before it.
    content = path.read_bytes()
    for name in ("keys", "codes", "halves"):
        place = content.rindex(intact.arrays[name].tobytes())
        path.write_bytes(content)
        flip(path, place + intact.arrays[name].nbytes - 1)
        assert open_segment(path).damaged_arrays() == [name]


def test_a_missing_file_and_a_folder_are_damaged_segments(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(DamagedSegment):
            open_segment(path)


def test_a_segment_in_memory_has_nothing_to_check() -> None:
    assert Segment({}, ARRAYS).damaged_arrays() == []
