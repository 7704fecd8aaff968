"""Archive blocks by themselves: any text and data is restored byte for byte, and no damage is taken for content."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loom.storage import blocks
from loom.storage.blocks import Block, DamagedBlock, Text, compress, shipped

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
KEYS = st.sampled_from(["id", "名", "", "\0", "a"]) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def dumped(value: Any) -> str:
    """As a store writes it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@st.composite
def several_texts(draw: st.DrawFn) -> list[Text]:
    steps = draw(st.lists(st.integers(1, 2**20), min_size=1, max_size=8))
    numbers = np.cumsum(steps).tolist()
    contents = draw(st.lists(TEXTS, min_size=1, max_size=3))  # so that some are the same
    values = draw(st.lists(st.none() | VALUES.map(dumped), min_size=1, max_size=4))
    return [Text(seq, draw(st.sampled_from(contents)), draw(st.sampled_from(values))) for seq in numbers]


def read_back(texts: list[Text], dictionary: zstd.ZstdDict | None = None) -> list[Text]:
    data, raw_bytes = compress(texts, dictionary)
    return list(Block(data, raw_bytes, dictionary).texts())


# --- the way back -----------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(several_texts())
@example([Text(1, "", None)])
@example([Text(1, "\0", '""'), Text(2, "\0\0", "null"), Text(3, "", "[]"), Text(4, "", "{}")])
@example([Text(1, "", dumped({"1": 1, "a": [{"1": 2}, {"1": 2.0}, {"1": True}, {"1": None}]}))])
@example([Text(1, "", dumped([-1, [0, -1], [], [[]], {"": -1}, -0.0, 1e300, 10**400]))])
@example([Text(1, "", dumped({"b": 1, "a": 2})), Text(2, "", dumped({"a": 1, "b": 2}))])
def test_every_text_and_every_data_comes_back_as_it_was(texts: list[Text]) -> None:
    assert read_back(texts) == texts
    assert read_back(texts, shipped()) == texts


@pytest.mark.parametrize(
    "data",
    [
        '{"a":1,"a":2}',
        '{ "a" : 1 }',
        "[1.0,1.00,1e2]",
        '["\\u4e2d"]',
        '{"b":{"x":1,"x":1}}',
        "-0",
        "1E400",
        "[1E400]",
        "[NaN]",
    ],
    ids=repr,
)
def test_data_that_another_writer_wrote_differently_comes_back_byte_for_byte(data: str) -> None:
    assert read_back([Text(1, "x", data)]) == [Text(1, "x", data)]


@pytest.mark.parametrize("depth", [10, 400, 700, 950])
def test_deeply_nested_data_comes_back(depth: int) -> None:
    data = '{"a":[' * (depth // 2) + "]}" * (depth // 2)
    assert read_back([Text(1, "x", data), Text(2, "y", '{"a":1}')])[0].data == data


@pytest.mark.parametrize("first", [2**31, 2**32 - 1, 2**32, 2**40, 2**62])
def test_numbers_of_any_size_come_back(first: int) -> None:
    texts = [Text(first, "one", None), Text(first + 1, "two", "[1]")]
    assert read_back(texts) == texts


def test_a_gap_of_more_than_32_bits_between_two_numbers_comes_back() -> None:
    texts = [Text(5, "one", None), Text(2**33, "two", None)]
    assert read_back(texts) == texts


def test_a_large_text_and_thousands_of_small_ones_come_back() -> None:
    large = "".join(random.Random(1).choices("abc 中文\n\0", k=400_000))
    texts = [Text(1, large, dumped({"log": large}))] + [Text(2 + n, str(n), dumped(n)) for n in range(5_000)]
    assert read_back(texts) == texts


def test_a_block_does_not_know_a_record_that_is_not_in_it() -> None:
    data, raw_bytes = compress([Text(7, "seven", "[7]")], None)
    block = Block(data, raw_bytes, None)
    assert (block.content(8), block.data(8), block.content(0)) == (None, None, None)
    assert block.numbers == [7]


def test_objects_with_the_same_fields_name_them_once() -> None:
    tasks = [{"identifier_of_task": n, "state_of_the_task": "open", "assigned_person": "ana"} for n in range(300)]
    _, raw_bytes = compress([Text(n + 1, "", dumped(task)) for n, task in enumerate(tasks)], None)
    assert raw_bytes < sum(len(dumped(task)) for task in tasks) / 2


# --- damage -----------------------------------------------------------------------------------------------


def outcome(payload: bytes, raw_bytes: int | None = None) -> list[Text] | None:
    """The result of reading a forged payload; None if it is refused. Any other error fails the test."""
    data = zstd.compress(payload)
    try:
        return list(Block(data, len(payload) if raw_bytes is None else raw_bytes, None).texts())
    except DamagedBlock:
        return None


def a_payload() -> bytes:
    texts = [Text(3, "one 一", dumped({"a": 1, "b": [1, {"c": None}]})), Text(9, "two", None), Text(11, "", "[1]")]
    return zstd.decompress(compress(texts, None)[0])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(a_payload()) - 1), st.integers(0, 255))
def test_a_payload_with_a_wrong_byte_is_read_or_refused_and_nothing_else(place: int, value: int) -> None:
    payload = bytearray(a_payload())
    payload[place] = value
    outcome(bytes(payload))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=64), st.integers(0, 12), st.integers(0, 12))
def test_a_table_of_contents_that_lies_is_read_or_refused_and_nothing_else(
    rest: bytes, count: int, table: int
) -> None:
    outcome(np.array([count, table], dtype="<u4").tobytes() + rest)


@pytest.mark.parametrize("cut", range(0, len(a_payload()), 3))
def test_a_payload_that_is_cut_short_is_refused(cut: int) -> None:
    assert outcome(a_payload()[:cut]) is None


@pytest.mark.parametrize("numbers", [(0xFFFFFFFF, 0), (0, 0xFFFFFFFF), (2**31, 2**31), (0x15555555, 8)])
def test_a_count_beyond_all_bounds_is_refused(numbers: tuple[int, int]) -> None:
    assert outcome(np.array(numbers, dtype="<u4").tobytes() + bytes(400)) is None


def broken_frames() -> dict[str, bytes]:
    data, _ = compress([Text(number, f"text {number} of the block", None) for number in range(1, 200)], None)
    return {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "without its last byte": data[:-1],
        "zeros": bytes(len(data)),
        "random": random.Random(2).randbytes(len(data)),
        "without its magic": b"\0" + data[1:],
    }


@pytest.mark.parametrize("data", list(broken_frames().values()), ids=list(broken_frames()))
def test_bytes_that_are_no_whole_frame_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedBlock):
        Block(data, 6000, None)


@pytest.mark.parametrize("difference", [-1, 1, 1000, -1000])
def test_a_wrong_size_is_refused(difference: int) -> None:
    data, raw_bytes = compress([Text(1, "x" * 5000, None)], None)
    with pytest.raises(DamagedBlock):
        Block(data, raw_bytes + difference, None)


@pytest.mark.parametrize("raw_bytes", [0, -1, 2**31, 2**62])
def test_a_size_that_no_block_has_is_refused(raw_bytes: int) -> None:
    """Before anything of that size is decompressed."""
    with pytest.raises(DamagedBlock, match=f"a block of {raw_bytes} bytes"):
        Block(compress([Text(1, "x", None)], None)[0], raw_bytes, None)


@pytest.mark.parametrize("size", [3, 5])
def test_sizes_that_do_not_add_up_to_the_payload_are_refused(size: int) -> None:
    table = np.array([1, 2], dtype="<u4").tobytes() + np.array([7], dtype="<i8").tobytes()
    sizes = np.array([size, 0xFFFFFFFF], dtype="<u4").tobytes()
    payload = table + sizes + b"[]" + b"text"
    with pytest.raises(DamagedBlock, match="does not fit it"):
        Block(zstd.compress(payload), len(payload), None)


# The size of a process says what a bomb took; the process must be young, so it is one of its own.
_BOMB = """
import resource, sys
from loom.storage.blocks import Block, DamagedBlock, zstd
compressor = zstd.ZstdCompressor(level=1)
megabyte = bytes(1 << 20)
bomb = b"".join([*(compressor.compress(megabyte) for _ in range(2048)), compressor.flush()])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for raw_bytes in (1, 100, 40_000, 1 << 20):
    try:
        Block(bomb, raw_bytes, None)
    except DamagedBlock:
        continue
    sys.exit("it was not refused")
print(len(bomb), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_frame_that_expands_to_gigabytes_is_refused_without_taking_them() -> None:
    done = subprocess.run([sys.executable, "-c", _BOMB], capture_output=True, text=True, check=True)
    size, grown_kb = map(int, done.stdout.split())
    assert size < 1 << 20
    assert grown_kb < 40_000


def test_another_dictionary_than_the_one_it_was_made_with_gives_no_texts() -> None:
    texts = [Text(n, f"the very same phrase of the harbour master {n}", None) for n in range(1, 50)]
    data, raw_bytes = compress(texts, zstd.ZstdDict(b"the very same phrase of the harbour master ", is_raw=True))
    for other in (None, shipped(), zstd.ZstdDict(b"T" * 43, is_raw=True)):
        try:
            found = list(Block(data, raw_bytes, other).texts())
        except DamagedBlock:
            continue
        assert found != texts  # the record's own checksum tells


# --- the dictionary of the package ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "texts",
    [
        [f"Ana: I told you about the meeting on Monday. We could move it to {n} o'clock." for n in range(9)],
        [f"我们下周开会讨论一下这个问题，时间是星期{n}下午三点。" for n in range(9)],
    ],
    ids=["English", "Chinese"],
)
def test_the_dictionary_makes_small_blocks_smaller_in_both_languages(texts: list[str]) -> None:
    block = [Text(number + 1, text, None) for number, text in enumerate(texts)]
    assert len(compress(block, shipped())[0]) < len(compress(block, None)[0])


def test_a_dictionary_that_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "phrases.bin").write_bytes(Path(blocks.__file__).with_name("phrases.bin").read_bytes()[:-1] + b"?")
    monkeypatch.setattr(blocks, "__file__", str(tmp_path / "blocks.py"))
    shipped.cache_clear()
    try:
        with pytest.raises(DamagedBlock, match="install"):
            shipped()
    finally:
        shipped.cache_clear()
